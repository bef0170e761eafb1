//! Many datagrams of the tunnel at a time.

use crate::client::send::MOST_BURST;
use crate::client::testing::*;

/// Gives both ends packets for 60 ms, `each` of them every millisecond; how many there were for each end.
fn exchange(sim: &mut Sim, each: u32) -> u32 {
    let mut number = 0;
    for _ in 0..60 {
        for _ in 0..each {
            // Now and then one that is shorter.
            let bytes = if number % 37 == 36 { 600 } else { 1400 };
            sim.client.give(sim.now_ns, &numbered(1000, number, bytes));
            sim.waypoint.give(sim.now_ns, &numbered_back(1000, number, bytes));
            number += 1;
        }
        sim.run_ms(1);
    }
    number
}

fn fast(links: &[(f64, u64)]) -> Sim {
    let mut sim = Sim::new(links);
    sim.bursts = true;
    // The rate of the last moment must be known.
    sim.send(&numbered(1000, 0, 1400));
    sim.run_ms(50);
    for _ in 0..5 {
        exchange(&mut sim, 40);
    }
    sim.run_ms(20);
    sim.client.host.clear();
    sim.waypoint.host.clear();
    sim
}

#[test]
fn bursts_bring_every_packet_once_and_in_order() {
    let mut sim = fast(&[(1000.0, 2), (1000.0, 8)]);
    let count = exchange(&mut sim, 40);
    sim.run_ms(50);
    assert!(sim.most_together > 8 && sim.most_together <= MOST_BURST, "{}", sim.most_together);
    assert_all(&numbers(&sim.waypoint.host, 1000), count, "to the waypoint");
    assert_all(&numbers(&sim.client.host, 1000), count, "to the client");
    sim.end();
}

#[test]
fn what_a_dead_interface_was_given_in_bursts_is_sent_again() {
    let mut sim = fast(&[(1000.0, 2), (1000.0, 8)]);
    let home = sim.home(1000).unwrap();
    let mut sent = 0;
    for _ in 0..20 {
        for _ in 0..40 {
            sim.client.give(sim.now_ns, &numbered(1000, sent, 1400));
            sent += 1;
        }
        sim.run_ms(1);
    }
    for _ in 0..40 {
        sim.client.give(sim.now_ns, &numbered(1000, sent, 1400));
        sent += 1;
    }
    sim.pump();
    sim.unplug(home.into());
    sim.run_ms(300);
    let mut got = numbers(&sim.waypoint.host, 1000);
    got.sort_unstable();
    assert_all(&got, sent, "behind a dead interface");
    sim.end();
}

#[test]
fn a_burst_that_finds_no_room_stays_as_it_was() {
    let mut sim = fast(&[(1000.0, 2)]);
    for number in 0..30 {
        sim.client.give(sim.now_ns, &numbered(1000, number, 1400));
    }
    let (now_ns, end) = (sim.now_ns, &mut sim.client);
    let first = end.engine.take(now_ns, 0, &mut end.fx).unwrap();
    let together = |taken: &crate::client::send::Taken| -> Vec<Vec<u8>> {
        std::iter::once(taken.bytes().to_vec()).chain(taken.more().map(|parts| parts.concat())).collect()
    };
    let before = together(&first);
    assert!(before.len() > 4, "{}", before.len());
    end.engine.put_back(now_ns, 0, first);
    // It has been full: fewer leave at a time now, but the same ones.
    let again = end.engine.take(now_ns, 0, &mut end.fx).unwrap();
    let after = together(&again);
    assert!(after.len() < before.len() && after[..] == before[..after.len()]);
    // A refusal loses them, and gives their buffers back.
    end.engine.refused(0, again, false, &mut end.fx);
    assert_eq!(end.fx.drops.unroutable, after.len() as u64);
    sim.run_ms(50);
    assert_eq!(numbers(&sim.waypoint.host, 1000), (after.len() as u32..30).collect::<Vec<u32>>());
    sim.end();
}

#[test]
fn slow_interfaces_and_copies_get_one_at_a_time() {
    let mut sim = fast(&[(50.0, 2), (50.0, 2)]);
    assert_eq!(sim.most_together, 1);
    exchange(&mut sim, 10);
    assert_eq!(sim.most_together, 1);
    sim.end();
    let mut sim = Sim::with_rules(&[(1000.0, 2), (1000.0, 2)], &rule(r#""copies":true,"#, &["if0", "if1"], "waypoint"));
    sim.bursts = true;
    for _ in 0..5 {
        exchange(&mut sim, 40);
    }
    assert_eq!(sim.most_together, 1);
    sim.end();
}
