//! Who gets how much of which interface, what overtakes what, and what happens when all of it changes.

use crate::client::engine::{Engine, Notice};
use crate::client::testing::*;
use crate::client::tunnel::Key;
use crate::ip;
use std::collections::HashMap;

/// Rules by destination port: name, weight, interfaces, further keys.
fn rules(of: &[(u16, f64, &[&str], &str)]) -> String {
    let one = |(port, weight, interfaces, extra): &(u16, f64, &[&str], &str)| {
        rule(
            &format!(r#""weight":{weight:?},"match":{{"source_port":[{port},{port}]}},{extra}"#),
            interfaces,
            "waypoint",
        )
    };
    let mut all: Vec<String> = of.iter().map(one).collect();
    all.push(rule("", of[0].2, "waypoint"));
    all.join(",")
}

/// Keeps flows backlogged for so long; what arrived of each, Mb/s. `number` counts the packets of each flow.
fn rates(sim: &mut Sim, ports: &[u16], seconds: f64, down: bool) -> Vec<f64> {
    let steps = (seconds * 1000.0) as u64;
    let end = |sim: &mut Sim| std::mem::take(if down { &mut sim.client.host } else { &mut sim.waypoint.host });
    end(sim);
    let mut bytes: HashMap<u16, usize> = HashMap::new();
    for _ in 0..steps {
        for port in ports {
            let side = if down { &sim.waypoint.engine } else { &sim.client.engine };
            let number = sim.number(*port);
            let slot = number.and_then(|number| side.flows.of_number(number));
            let waiting = slot.and_then(|slot| side.flows.get(slot)).map_or(0, |flow| flow.queue.len());
            // Not so many that the queue would be kept short.
            for _ in waiting..6 {
                match down {
                    true => sim.reply(&numbered_back(*port, 0, 1400)),
                    false => sim.send(&numbered(*port, 0, 1400)),
                }
            }
        }
        sim.run_ms(1);
        for (_, packet) in end(sim) {
            let tuple = ip::parse(&packet).unwrap().tuple;
            *bytes.entry(if down { tuple.destination.port } else { tuple.source.port }).or_default() += packet.len();
        }
    }
    ports.iter().map(|port| *bytes.get(port).unwrap_or(&0) as f64 * 8e-6 / seconds).collect()
}

/// Shares rather than rates: the tunnel's headers and the way take their part.
fn near(got: &[f64], wanted: &[f64], off: f64) {
    let (all, total): (f64, f64) = (got.iter().sum(), wanted.iter().sum());
    for (got_one, wanted_one) in got.iter().zip(wanted) {
        let share = got_one / all / (wanted_one / total);
        assert!((share - 1.0).abs() <= off, "{got:?} instead of {wanted:?}");
    }
    assert!(all > 0.93 * total && all < total, "{got:?} instead of {wanted:?}");
}

#[test]
fn flows_get_their_weighted_max_min_share_up_and_down() {
    // Yap, figure 4.5: capacities 3 and 10; a accepts the first, b both, c the second; weights 1, 2, 1.
    let (both, first, second): (&[&str], &[&str], &[&str]) = (&["if0", "if1"], &["if0"], &["if1"]);
    let text = rules(&[(1, 1.0, first, ""), (2, 2.0, both, r#""spread":"packet","#), (3, 1.0, second, "")]);
    for down in [false, true] {
        let mut sim = Sim::with_rules(&[(3.0, 5), (10.0, 5)], &text);
        (1..4).for_each(|port| sim.send(&numbered(port, 0, 100)));
        sim.run_ms(300);
        near(&rates(&mut sim, &[1, 2, 3], 5.0, down), &[3.0, 20.0 / 3.0, 10.0 / 3.0], 0.02);
        near(&rates(&mut sim, &[2, 3], 5.0, down), &[26.0 / 3.0, 13.0 / 3.0], 0.02);
        near(&rates(&mut sim, &[3], 3.0, down), &[10.0], 0.01);
        sim.end();
    }
}

#[test]
fn flows_on_one_interface_each_are_shared_out_by_rate() {
    let mut sim = Sim::new(&[(10.0, 5), (30.0, 5)]);
    for port in 1..41 {
        sim.send(&numbered(port, 0, 100));
        sim.run_ms(2);
    }
    let on_fast = (1..41).filter(|port| sim.home(*port) == Some(1)).count();
    assert!((28..=32).contains(&on_fast), "{on_fast} of 40");
    sim.end();
}

#[test]
fn copies_make_the_loss_of_an_interface_cost_nothing() {
    let mut sim = Sim::with_rules(&[(10.0, 5), (10.0, 30)], &rule(r#""copies":true,"#, &["if0", "if1"], "waypoint"));
    sim.send(&numbered(1000, 9_999, 100));
    sim.run_ms(200);
    (sim.client.host, sim.waypoint.host) = (Vec::new(), Vec::new());
    sim.wires[1].loss = 0.3;
    for number in 0..400 {
        match number {
            100 => sim.wires[0].is_cut = true,
            101 => sim.wires[1].loss = 0.0,
            // The other one dies only when the first is known to be back.
            300 => sim.wires[0].is_cut = false,
            _ => {}
        }
        sim.send(&numbered(1000, number, 500));
        sim.run_ms(5);
    }
    sim.run_ms(1_000);
    assert_all(&numbers(&sim.waypoint.host, 1000), 400, "up");
    sim.end();
}

#[test]
fn an_urgent_packet_behind_fifty_full_ones_leaves_at_most_three_later() {
    let full =
        r#"{"name":"urgent","match":{"source_port":[5060,5060]},"urgent":true,"interfaces":["if0"],"via":"VIA"}"#;
    for via in ["direct", "waypoint"] {
        let text = format!("{},{}", full.replace("VIA", via), rule("", &["if0"], via));
        let mut sim = Sim::with_rules(&[(10.0, 5)], &text);
        sim.send(&numbered(5060, 1, 200));
        sim.run_ms(100);
        (0..50).for_each(|number| sim.send(&numbered(1000, number, 1450)));
        let before = if via == "direct" { sim.direct.len() } else { 0 };
        sim.waypoint.host.clear();
        sim.send(&numbered(5060, 2, 200));
        sim.run_ms(300);
        let left: Vec<(u64, Vec<u8>)> = match via {
            "direct" => sim.direct[before..].iter().map(|(at_ns, _, bytes)| (*at_ns, bytes.clone())).collect(),
            _ => sim.waypoint.host.clone(),
        };
        assert!(left.len() >= 49, "{via}: the others leave, too: {}", left.len());
        let is_urgent = |packet: &(u64, Vec<u8>)| packet.1.len() == 200;
        assert!(left.iter().position(is_urgent).unwrap() <= 3, "{via}");
        sim.end();
    }
}

#[test]
fn a_policy_that_changes_under_load_moves_flows_and_loses_nothing() {
    let mut sim = Sim::new(&[(20.0, 5), (20.0, 20)]);
    sim.send(&numbered(1000, 9_999, 100));
    sim.run_ms(150);
    sim.waypoint.host.clear();
    let interface = |name: &str| format!(r#""name":"{name}","rate_mbps":20.0"#);
    let mut at_change = Vec::new();
    for number in 0..1000 {
        let text = match number {
            100 => Some(configuration(&[interface("if1"), interface("if0")], &rule("", &["if1"], "waypoint"))),
            300 => Some(configuration(&[interface("if0"), interface("if1")], &rule("", &["if0"], "waypoint"))),
            500 => Some(configuration(&[interface("if1")], &rule("", &["if1"], "waypoint"))),
            700 => {
                let text = configuration(&[interface("if1"), interface("if0")], &rule("", &["if0"], "waypoint"));
                Some(text)
            }
            _ => None,
        };
        if let Some(text) = text {
            sim.configure_text(&text);
            if number == 700 {
                // It is there again, under the number that was free.
                assert_eq!(sim.client.engine.link_number("if0"), Some(0));
                sim.state(0, up(0));
            }
            at_change.push(number);
        }
        sim.send(&numbered(1000, number, 1000));
        sim.run_ms(1);
        if let Some(last) = at_change.last().filter(|last| number == **last + 50) {
            let wanted = if last / 200 % 2 == 0 { 1 } else { 0 };
            assert_eq!(sim.home(1000), Some(wanted), "after the change at {last}");
        }
    }
    sim.run_ms(500);
    assert_all(&numbers(&sim.waypoint.host, 1000), 1000, "up");
    sim.end();
}

#[test]
fn the_users_choice_ends_when_a_mode_makes_its_interface_a_backup() {
    let mut sim = Sim::new(&[(20.0, 5), (20.0, 5)]);
    sim.send(&numbered(1000, 0, 100));
    sim.run_ms(50);
    let number =
        sim.client.engine.flows.slots().find_map(|slot| Some(sim.client.engine.flows.get(slot)?.number)).unwrap();
    let (now_ns, client) = (sim.now_ns, &mut sim.client);
    client.engine.migrate(now_ns, number, "if1", &mut client.fx).unwrap();
    assert_eq!(sim.home(1000), Some(1));
    sim.configure(&rule("", &["if0", "if1"], "waypoint"));
    assert_eq!(sim.home(1000), Some(1));
    sim.configure(r#"{"name":"rest","interfaces":["if0"],"backup":["if1"],"via":"waypoint"}"#);
    assert_eq!(sim.home(1000), Some(0));
    let (now_ns, client) = (sim.now_ns, &mut sim.client);
    client.engine.migrate(now_ns, number, "if1", &mut client.fx).unwrap();
    assert_eq!(sim.home(1000), Some(1));
    sim.end();
}

#[test]
fn a_rule_by_dscp_still_holds_after_a_change() {
    let voice = r#"{"name":"voice","match":{"dscp":46},"weight":4.0,"interfaces":["if1"],"via":"waypoint"}"#;
    let text = format!("{voice},{}", rule("", &["if0"], "waypoint"));
    let mut sim = Sim::with_rules(&[(20.0, 5), (20.0, 5)], &text);
    let mut packet = numbered(1000, 0, 100);
    packet[1] = 46 << 2;
    packet[10..12].fill(0);
    let sum = !ip::testing::plain_sum(&packet[..20]);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    sim.send(&packet);
    sim.run_ms(50);
    assert_eq!(sim.home(1000), Some(1));
    sim.configure(&text);
    assert_eq!(sim.home(1000), Some(1));
    sim.end();
}

#[test]
fn a_silent_death_is_found_by_hellos_and_the_waypoint_may_be_lost_and_come_back() {
    let mut sim = Sim::new(&[(20.0, 5), (20.0, 10)]);
    sim.send(&numbered(1000, 0, 100));
    sim.run_ms(50);
    let home = usize::from(sim.home(1000).unwrap());
    sim.client.notices.clear();
    sim.wires[home].is_cut = true;
    for number in 0..100 {
        sim.send(&numbered(1000, number, 100));
        sim.run_ms(10);
    }
    assert_eq!(sim.home(1000), Some(1 - home as u8));
    assert!(sim.client.notices.contains(&Notice::Dead { link: home as u8 }));
    assert!(!sim.client.notices.contains(&Notice::WaypointLost));
    sim.wires[1 - home].is_cut = true;
    sim.run_ms(3_000);
    assert!(sim.client.notices.contains(&Notice::WaypointLost));
    // While nothing answers, little is spent on asking.
    sim.run_ms(60_000);
    let before = sim.wires[0].carried[0] + sim.wires[1].carried[0];
    sim.run_ms(10_000);
    assert!(sim.wires[0].carried[0] + sim.wires[1].carried[0] - before < 2_000);
    (0..2).for_each(|link| sim.wires[link].is_cut = false);
    sim.run_ms(1_500);
    assert!(sim.client.notices.contains(&Notice::WaypointBack));
    sim.waypoint.host.clear();
    sim.send(&numbered(1000, 7, 100));
    sim.run_ms(100);
    assert_eq!(numbers(&sim.waypoint.host, 1000).last(), Some(&7));
    sim.end();
}

#[test]
fn an_interface_that_comes_up_and_carries_nothing_is_not_used() {
    let text = rule(r#""backup":["if1"],"#, &["if0"], "waypoint");
    let mut sim = Sim::with_rules(&[(20.0, 5), (20.0, 5)], &text);
    sim.unplug(0);
    sim.send(&numbered(1000, 9_999, 100));
    sim.run_ms(100);
    sim.waypoint.host.clear();
    assert_eq!(sim.home(1000), Some(1));
    sim.plug(0);
    sim.wires[0].is_cut = true;
    for number in 0..200 {
        sim.send(&numbered(1000, number, 100));
        sim.run_ms(10);
        assert_eq!(sim.home(1000), Some(1));
    }
    sim.wires[0].is_cut = false;
    sim.run_ms(1_500);
    assert_eq!(sim.home(1000), Some(0), "used once it answers");
    assert_all(&numbers(&sim.waypoint.host, 1000), 200, "up");
    sim.end();
}

#[test]
fn ten_thousand_flows_move_in_less_than_a_moment() {
    let mut sim = Sim::new(&[(1_000.0, 1), (1_000.0, 1), (1_000.0, 1)]);
    for number in 0..10_000 {
        sim.send(&udp(&format!("100.72.0.2:{}", 1024 + number), SERVER, b"x"));
        if number % 1000 == 0 {
            sim.run_ms(1);
        }
    }
    sim.run_ms(20);
    let on = |sim: &Sim| {
        let flows = &sim.client.engine.flows;
        flows.slots().filter(|slot| flows.get(*slot).unwrap().home == Some(0)).count()
    };
    assert!((3_000..3_700).contains(&on(&sim)), "{}", on(&sim));
    let begun = std::time::Instant::now();
    sim.client.engine.link_state(sim.now_ns, 0, Default::default(), &mut sim.client.fx);
    let took = begun.elapsed();
    assert_eq!(on(&sim), 0);
    // 10^8 comparisons took seconds.
    assert!(took.as_millis() < 500, "{took:?}");
    sim.run_ms(2_000);
    let flows = &sim.client.engine.flows;
    assert!(flows.slots().all(|slot| flows.get(slot).unwrap().unconfirmed.is_none()), "all binds are confirmed");
    sim.end();
}

#[test]
fn the_tunnel_and_what_is_in_it_may_be_of_either_family() {
    let waypoint6: std::net::SocketAddr = "[2001:db8:f::1]:6656".parse().unwrap();
    let engine = |to: &str| {
        let text = configuration(&[r#""name":"if0""#.to_string()], &rule("", &["if0"], "waypoint"));
        let mut engine = Engine::client();
        let mut fx = crate::client::engine::Effects::new(crate::edge::buffer::Pool::new(1792, 100));
        let config = crate::client::testing::config(&text.replace("203.0.113.1", to)).unwrap();
        engine.configure(MS, config, &mut fx);
        engine.link_state(MS, 0, up(0), &mut fx);
        (engine, fx)
    };
    for (to, outer) in [("203.0.113.1", 20), (waypoint6.ip().to_string().as_str(), 40)] {
        let (mut client, mut fx) = engine(to);
        for (source, destination) in [("100.72.0.2:1", SERVER), ("[fd00::2]:1", "[2001:db8:9::9]:443")] {
            let buf = fx.pool.take_with(&tcp(source, destination, ip::SYN, b"")).unwrap();
            client.from_host(2 * MS, buf, &mut fx);
            let taken = client.take(2 * MS, 0, &mut fx).unwrap();
            let packet = ip::parse(taken.bytes()).unwrap();
            ip::testing::assert_right_sums(taken.bytes());
            let at = packet.l4_at + 22;
            let mss = usize::from(u16::from_be_bytes([taken.bytes()[at], taken.bytes()[at + 1]]));
            // A full segment, its headers, ours and UDP's and the outer one's are just the interface's MTU.
            let inner = if source.starts_with('[') { 60 } else { 40 };
            assert_eq!(mss + inner + 24 + 8 + outer, 1500, "{to} {source}");
            match taken.to {
                crate::client::send::To::Tunnel { to: sent_to, .. } => assert_eq!(sent_to.ip().to_string(), to),
                other => panic!("{other:?}"),
            }
            client.sent(2 * MS, 0, taken, &mut fx);
        }
        client.end(3 * MS, &mut fx);
        assert_eq!(fx.pool.in_use(), 0);
    }
    assert!(Key::parse(KEY).is_some());
}

#[test]
fn a_ping_passes_in_both_directions() {
    let mut sim = Sim::new(&[(20.0, 5)]);
    sim.send(&echo("100.72.0.2", "192.0.2.9", 7, false));
    sim.run_ms(20);
    assert_eq!(sim.waypoint.host.pop().unwrap().1, echo("100.72.0.2", "192.0.2.9", 7, false));
    sim.reply(&echo("192.0.2.9", "100.72.0.2", 7, true));
    sim.run_ms(20);
    assert_eq!(sim.client.host.pop().unwrap().1, echo("192.0.2.9", "100.72.0.2", 7, true));
    sim.reply(&echo("192.0.2.9", "100.72.0.2", 9, false));
    sim.run_ms(20);
    assert_eq!(sim.client.host.pop().unwrap().1, echo("192.0.2.9", "100.72.0.2", 9, false));
    sim.send(&echo("100.72.0.2", "192.0.2.9", 9, true));
    sim.run_ms(20);
    assert_eq!(sim.waypoint.host.pop().unwrap().1, echo("100.72.0.2", "192.0.2.9", 9, true));
    assert_eq!((sim.client.engine.flows.len(), sim.waypoint.engine.flows.len()), (2, 2));
    sim.end();
}

#[test]
fn months_of_running_wrap_nothing_that_matters() {
    let mut sim = Sim::new(&[(20.0, 5), (20.0, 30)]);
    // Send times wrap after 71 minutes, serials after 49 days.
    for days in [0, 1, 24, 25, 49, 50] {
        sim.jump((days * 86_400_000 + 4_290_000) * MS);
        sim.run_ms(20_000);
        for number in 0..40 {
            sim.send(&numbered(1000, number, 500));
            sim.run_ms(2);
        }
        sim.run_ms(200);
        sim.waypoint.host.clear();
        for number in 0..2_000 {
            sim.send(&numbered(1000, number, 500));
            sim.run_ms(5);
            if number % 100 == 0 {
                let to = 1 - sim.home(1000).unwrap();
                let flow = sim.number(1000).unwrap();
                sim.client.engine.migrate(sim.now_ns, flow, &format!("if{to}"), &mut sim.client.fx).unwrap();
            }
        }
        sim.run_ms(300);
        assert_all(&numbers(&sim.waypoint.host, 1000), 2_000, &format!("after {days} days"));
        assert!(sim.client.engine.links.iter().all(|link| link.heartbeat.alive == Some(true)));
        let flow = sim.waypoint.engine.flows.of_number(sim.number(1000).unwrap()).unwrap();
        assert_eq!(sim.waypoint.engine.flows.get(flow).unwrap().home, sim.home(1000), "binds are heard");
    }
    sim.end();
}
