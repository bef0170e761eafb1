//! Flows through the tunnel: whatever happens to interfaces, every packet arrives once and in order.

use crate::client::application::Owners;
use crate::client::testing::*;
use crate::ip::Tuple;
use crate::rng::Rng;

/// The first packets, so that both ends know where the flow's numbers begin.
fn begin(sim: &mut Sim) {
    sim.send(&numbered(1000, 9_999, 100));
    sim.run_ms(150);
    sim.reply(&numbered_back(1000, 9_999, 100));
    sim.run_ms(150);
}

/// Sends a packet each `gap_us`, and has one sent back, while `change` does something every 10 ms.
fn stream(sim: &mut Sim, count: u32, gap_us: u64, mut change: impl FnMut(&mut Sim, u32)) {
    for number in 0..count {
        sim.send(&numbered(1000, number, 1000));
        sim.reply(&numbered_back(1000, number, 1000));
        if number % 10 == 9 {
            change(sim, number);
        }
        sim.run_until(sim.now_ns + gap_us * 1000);
    }
    sim.run_ms(2_000);
}

#[test]
fn migrations_lose_nothing_and_keep_the_order() {
    for seed in 0..10 {
        let mut rng = Rng::new(seed);
        let mut sim = Sim::new(&[(20.0, 5), (30.0, rng.below(60) as u64), (10.0, rng.below(30) as u64)]);
        begin(&mut sim);
        (sim.client.host, sim.waypoint.host) = (Vec::new(), Vec::new());
        let mut moved = 0;
        stream(&mut sim, 600, 1_000, |sim, _| {
            let to = format!("if{}", rng.below(3));
            let number = sim.number(1000).unwrap();
            let before = sim.home(1000);
            sim.client.engine.migrate(sim.now_ns, number, &to, &mut sim.client.fx).unwrap();
            moved += u32::from(sim.home(1000) != before);
        });
        assert!(moved > 20);
        assert_all(&numbers(&sim.waypoint.host, 1000), 600, &format!("seed {seed} up"));
        assert_all(&numbers(&sim.client.host, 1000), 600, &format!("seed {seed} down"));
        sim.end();
    }
}

#[test]
fn the_waypoint_answers_over_the_interface_that_the_flow_moved_to() {
    let mut sim = Sim::new(&[(20.0, 5), (20.0, 10)]);
    sim.send(&numbered(1000, 0, 100));
    sim.run_ms(50);
    for turn in 0..6 {
        let to = 1 - usize::from(sim.home(1000).unwrap());
        let number = sim.number(1000).unwrap();
        sim.client.engine.migrate(sim.now_ns, number, &format!("if{to}"), &mut sim.client.fx).unwrap();
        sim.run_ms(60);
        assert_eq!(sim.home(1000), Some(to as u8));
        let before = [sim.wires[0].carried[1], sim.wires[1].carried[1]];
        for number in 0..50 {
            sim.reply(&numbered_back(1000, number, 1000));
        }
        sim.run_ms(100);
        assert!(sim.wires[to].carried[1] - before[to] > 50_000, "turn {turn}");
        assert!(sim.wires[1 - to].carried[1] - before[1 - to] < 1_000, "turn {turn}");
        let slot = sim.client.engine.flows.of_number(number).unwrap();
        assert!(sim.client.engine.flows.get(slot).unwrap().unconfirmed.is_none(), "the bind was confirmed");
    }
    sim.end();
}

#[test]
fn nothing_is_lost_at_the_sender_when_an_interface_dies_by_its_carrier() {
    for seed in 0..30 {
        let mut rng = Rng::new(seed);
        let mut sim = Sim::new(&[(5.0, 50), (5.0, 50)]);
        let mut sent = 0;
        while sent < 300 {
            // Backlogged: some wait above, two below.
            for _ in 0..2 {
                sim.send(&numbered(1000, sent, 1400));
                sent += 1;
            }
            sim.run_until(sim.now_ns + 4_800_000);
            if rng.below(12) == 0 {
                let home = usize::from(sim.home(1000).unwrap());
                sim.plug(1 - home);
                sim.run_ms(150 + rng.below(20) as u64);
                sim.unplug(home);
            }
        }
        sim.run_ms(2_000);
        assert_eq!(sim.client.fx.drops, super::Drops::default());
        assert_all(&numbers(&sim.waypoint.host, 1000), 300, &format!("seed {seed}"));
        sim.end();
    }
}

#[test]
fn any_sequence_of_deaths_and_revivals_ends_with_packets_once_and_in_order() {
    for seed in 0..20 {
        let mut rng = Rng::new(100 + seed);
        let mut sim = Sim::new(&[(20.0, 5), (30.0, 30), (10.0, 15)]);
        begin(&mut sim);
        (sim.client.host, sim.waypoint.host) = (Vec::new(), Vec::new());
        stream(&mut sim, 1_500, 1_000, |sim, _| {
            let link = rng.below(3);
            match rng.below(8) {
                0 => sim.unplug(link),
                1 | 2 => sim.plug(link),
                3 => sim.wires[link].is_cut = true,
                4 | 5 => sim.wires[link].is_cut = false,
                6 => {
                    let port = 1024 + rng.below(60_000) as u16;
                    sim.wires[link].seen_from.set_port(port);
                }
                _ => {
                    if let Some(number) = sim.number(1000) {
                        let _ = sim.client.engine.migrate(sim.now_ns, number, &format!("if{link}"), &mut sim.client.fx);
                    }
                }
            }
        });
        for (host, what) in [(&sim.waypoint.host, "up"), (&sim.client.host, "down")] {
            let got = numbers(host, 1000);
            let mut once = got.clone();
            once.sort_unstable();
            once.dedup();
            assert_eq!(once.len(), got.len(), "seed {seed} {what}: twice");
            let swapped = got.windows(2).filter(|pair| pair[0] > pair[1]).count();
            assert!(swapped * 20 <= got.len(), "seed {seed} {what}: {swapped} of {} swapped", got.len());
        }
        // When everything works again, so does the flow.
        (0..3).for_each(|link| {
            sim.wires[link].is_cut = false;
            sim.plug(link);
        });
        sim.run_ms(3_000);
        (sim.client.host, sim.waypoint.host) = (Vec::new(), Vec::new());
        stream(&mut sim, 100, 2_000, |_, _| ());
        assert_all(&numbers(&sim.waypoint.host, 1000), 100, &format!("seed {seed} up, afterwards"));
        assert_all(&numbers(&sim.client.host, 1000), 100, &format!("seed {seed} down, afterwards"));
        sim.end();
    }
}

/// Sockets of odd ports are of the one application, those of even ports of the other.
struct ByPort;

impl Owners for ByPort {
    fn cgroup_of(&mut self, tuple: &Tuple) -> Option<Box<str>> {
        let path = if tuple.source.port % 2 == 1 { "/app.slice/app-video-1.scope" } else { "/app.slice/web.service" };
        Some(path.into()).filter(|_| tuple.source.port < 5000)
    }
}

#[test]
fn a_flow_takes_the_rule_of_its_application_also_when_the_rule_comes_later() {
    let rest = rule("", &["if0"], "waypoint");
    let mut sim = Sim::with_rules(&[(20.0, 5), (20.0, 5)], &rest);
    sim.client.engine.owners = Some(Box::new(ByPort));
    sim.send(&numbered(1001, 0, 100));
    sim.send(&numbered(1002, 0, 100));
    assert_eq!((sim.home(1001), sim.home(1002)), (Some(0), Some(0)));
    let video = r#"{"name":"video","match":{"application":"video"},"interfaces":["if1"],"via":"waypoint"}"#;
    sim.configure(&format!("{video},{rest}"));
    for port in [1003, 1004, 5001] {
        sim.send(&numbered(port, 0, 100));
    }
    sim.run_ms(50);
    let homes: Vec<_> = [1001, 1002, 1003, 1004, 5001].iter().map(|port| sim.home(*port).unwrap()).collect();
    assert_eq!(homes, [1, 0, 1, 0, 0]);
    // Without sockets to ask for nothing is of any application.
    sim.client.engine.owners = None;
    sim.send(&numbered(1005, 0, 100));
    assert_eq!(sim.home(1005), Some(0));
    sim.end();
}
