//! What a long day leaves behind: interfaces that come and go, and what TCP sends again.

use crate::client::testing::*;
use crate::ip;

/// Sizes of all that grows with use, of both ends.
fn sizes(sim: &Sim) -> Vec<(&'static str, usize)> {
    let (client, waypoint) = (sim.client.engine.sizes(), sim.waypoint.engine.sizes());
    client.into_iter().chain(waypoint).collect()
}

/// 12 flows send and are answered for so long; each way `number` tells packets apart.
fn talk(sim: &mut Sim, ms: u64, number: &mut u32) {
    for _ in 0..ms / 5 {
        for port in 40_000..40_012 {
            sim.send(&numbered(port, *number, 600));
            sim.reply(&numbered_back(port, *number, 600));
        }
        *number += 1;
        sim.run_ms(5);
    }
    sim.client.host.clear();
    sim.waypoint.host.clear();
    sim.direct.clear();
}

/// The first bytes of the TCP segments that have come, in thousands.
fn tcp_thousands(sim: &Sim) -> Vec<u32> {
    let is_tcp = |bytes: &[u8]| ip::parse(bytes).map_or(false, |packet| packet.tuple.protocol == ip::TCP);
    let number = |bytes: &[u8]| u32::from_be_bytes([bytes[40], bytes[41], bytes[42], bytes[43]]) / 1000;
    sim.waypoint.host.iter().filter(|(_, bytes)| is_tcp(bytes)).map(|(_, bytes)| number(bytes)).collect()
}

#[test]
fn interfaces_that_come_and_go_leave_tables_as_long_as_before() {
    let mut sim = Sim::new(&[(100.0, 5), (100.0, 20), (100.0, 1), (100.0, 40)]);
    let (mut number, mut after) = (0, Vec::new());
    for cycle in 0..24 {
        let link = cycle % 4;
        // By turns with a carrier that goes, and in silence.
        match cycle / 4 % 2 {
            0 => sim.unplug(link),
            _ => sim.wires[link].is_cut = true,
        }
        talk(&mut sim, 200, &mut number);
        sim.run_ms(1500);
        match cycle / 4 % 2 {
            0 => sim.plug(link),
            _ => sim.wires[link].is_cut = false,
        }
        talk(&mut sim, 200, &mut number);
        // Nothing waits any more, and binds that were confirmed have passed.
        sim.run_ms(8_000);
        sim.client.notices.clear();
        sim.waypoint.notices.clear();
        if cycle % 8 == 7 {
            after.push((sizes(&sim), sim.client.fx.pool.in_use() + sim.waypoint.fx.pool.in_use()));
        }
    }
    let (first, last) = (&after[0], &after[after.len() - 1]);
    for (before, now) in first.0.iter().zip(&last.0) {
        assert!(now.1 <= before.1 + before.1 / 20, "{}: {} and then {}; {after:?}", now.0, before.1, now.1);
    }
    // What interfaces were given last is kept: eight datagrams of each.
    assert!(last.1 <= 2 * 4 * 8, "{} buffers in use", last.1);
    sim.end();
}

#[test]
fn what_tcp_sends_again_does_not_wait_behind_what_is_new() {
    let mut sim = Sim::new(&[(10.0, 5)]);
    (0..50).for_each(|k| sim.send(&tcp_at(40_000, k * 1000, 1000)));
    sim.run_ms(10);
    sim.send(&tcp_at(40_000, 3_000, 1000));
    sim.run_ms(100);
    let numbers = tcp_thousands(&sim);
    assert_eq!(numbers.len(), 51);
    let again = numbers.iter().rposition(|number| *number == 3).unwrap();
    // In 10 ms a dozen left; two are below the queue.
    assert!((10..16).contains(&again), "{numbers:?}");
    let new: Vec<u32> = numbers.iter().enumerate().filter(|(at, _)| *at != again).map(|(_, number)| *number).collect();
    assert_eq!(new, (0..50).collect::<Vec<u32>>());
    sim.end();
}

#[test]
fn what_tcp_sends_again_while_it_waits_stays_behind_what_is_before_it() {
    let mut sim = Sim::new(&[(10.0, 5)]);
    (0..30).for_each(|k| sim.send(&tcp_at(40_000, k * 1000, 1000)));
    // As a probe for lost packets does.
    sim.send(&tcp_at(40_000, 29_000, 1000));
    sim.run_ms(100);
    assert_eq!(tcp_thousands(&sim), (0..30).chain(29..30).collect::<Vec<u32>>());
    sim.end();
}
