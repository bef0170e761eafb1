//! What a long day leaves behind: interfaces that come and go.

use crate::client::testing::*;

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
