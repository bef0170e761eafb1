//! The model against theory.

use super::config::ConflictRule::{Domains, Pairs, Technology};
use super::config::LinkState;
use super::test_world::*;

fn assert_near(measured: f64, theory: f64, relative: f64) {
    assert!((measured - theory).abs() <= relative * theory, "measured {measured}, theory {theory}");
}

#[test]
fn one_link_carries_its_capacity_in_l2_payload() {
    let mut world = World::new(config(&[("a", "w"), ("b", "w")], &[(0, 1, 10.0)], Technology));
    world.sources.push(saturated(0));
    assert_near(world.rate_mbps(1, 5.0), 10.0, 0.001);
    let stats = world.model.link_stats(0, "ab");
    assert_near(stats.airtime, 1.0, 1e-9);
    assert_near(stats.busy, 1.0, 1e-9);
}

#[test]
fn saturated_two_hop_path_carries_the_harmonic_rate() {
    // 1 / (1/15 + 1/30) = 10.
    let ports = [("a", "w"), ("b", "w"), ("c", "w")];
    let mut world = World::new(config(&ports, &[(0, 1, 15.0), (1, 2, 30.0)], Technology));
    world.sources.push(saturated(0));
    world.relays.push((1, 1));
    assert_near(world.rate_mbps(2, 20.0), 10.0, 0.01);
    assert_near(world.model.link_stats(0, "").airtime, 2.0 / 3.0, 0.01);
    assert_near(world.model.link_stats(1, "").airtime, 1.0 / 3.0, 0.01);
}

#[test]
fn three_node_example_carries_both_routes() {
    let ports = [("a-plc", "p"), ("b-plc", "p"), ("a-wifi", "w"), ("b-wifi", "w"), ("c-wifi", "w")];
    let mut world = World::new(config(&ports, &[(0, 1, 10.0), (2, 3, 15.0), (3, 4, 30.0)], Technology));
    world.sources.push(paced(0, 10.0, 1));
    world.sources.push(paced(1, 20.0 / 3.0, 2));
    world.relays.extend([(1, 2), (3, 2)]);
    world.run(20 * SECOND);
    assert_near(world.by_tag[1] as f64 * 8e-6 / 20.0, 10.0, 0.01);
    assert_near(world.by_tag[2] as f64 * 8e-6 / 20.0, 20.0 / 3.0, 0.01);
    assert_near(world.model.link_stats(1, "").busy, 1.0, 0.01);
}

#[test]
fn contending_stations_get_equal_access_also_with_unequal_numbers_of_links() {
    // Port 0 has three links, port 1 and 2 one each; all at 12 Mb/s towards port 3.. in one medium.
    let ports: Vec<(&str, &str)> = ["a", "b", "c", "x", "y", "z"].iter().map(|&n| (n, "w")).collect();
    let links = [(0, 3, 12.0), (0, 4, 12.0), (0, 5, 12.0), (1, 3, 12.0), (2, 3, 12.0)];
    let mut world = World::new(config(&ports, &links, Technology));
    world.sources.extend((0..5).map(saturated));
    world.run(10 * SECOND);
    let shares: Vec<f64> = (0..5).map(|l| world.model.link_stats(l, "").airtime).collect();
    for (share, theory) in shares.iter().zip([1.0 / 9.0, 1.0 / 9.0, 1.0 / 9.0, 1.0 / 3.0, 1.0 / 3.0]) {
        assert_near(*share, theory, 0.005);
    }
}

#[test]
fn fair_access_means_equal_frames_not_equal_airtime() {
    // Two saturated stations of 10 and 40 Mb/s: both get 1 / (1/10 + 1/40) = 8 Mb/s.
    let mut world = World::new(config(
        &[("a", "w"), ("b", "w"), ("c", "w"), ("d", "w")],
        &[(0, 1, 10.0), (2, 3, 40.0)],
        Technology,
    ));
    world.sources.extend([saturated(0), saturated(1)]);
    world.run(10 * SECOND);
    for port in [1, 3] {
        assert_near(world.arrived[port] as f64 * 8e-7, 8.0, 0.005);
    }
}

#[test]
fn order_of_access_is_random_but_seeded() {
    let order = |seed| {
        let mut config = config(
            &[("a", "w"), ("b", "w"), ("c", "w"), ("d", "w")],
            &[(0, 3, 9.0), (1, 3, 9.0), (2, 3, 9.0)],
            Technology,
        );
        config.options.seed = seed;
        let mut world = World::new(config);
        for tag in 0..3 {
            (0..50).for_each(|_| world.send(tag, PAYLOAD, tag as u8));
        }
        let mut tags = Vec::new();
        world.model.advance(10 * SECOND, &mut |_, frame| {
            tags.push(frame[14]);
            true
        });
        assert_eq!(tags.len(), 150);
        tags
    };
    assert_eq!(order(1), order(1));
    assert_ne!(order(1), order(2));
    let first = order(3);
    let rounds: std::collections::BTreeSet<&[u8]> = first.chunks(3).collect();
    assert!(rounds.len() > 3, "{rounds:?}");
}

#[test]
fn hidden_conflicts_by_explicit_pairs() {
    // Links 0 and 2 don't contend with each other, link 1 with both: 0 and 2 can each send as if alone.
    let ports: Vec<(&str, &str)> = ["a", "b", "c", "d", "e", "f"].iter().map(|&n| (n, "w")).collect();
    let mut world =
        World::new(config(&ports, &[(0, 1, 10.0), (2, 3, 10.0), (4, 5, 10.0)], Pairs(vec![(0, 1), (2, 1)])));
    world.sources.extend([saturated(0), saturated(2)]);
    world.run(5 * SECOND);
    assert_near(world.arrived[1] as f64 * 8e-6 / 5.0, 10.0, 0.005);
    assert_near(world.arrived[5] as f64 * 8e-6 / 5.0, 10.0, 0.005);
    assert_near(world.model.link_stats(1, "").busy, 1.0, 1e-3);
    assert!(world.model.link_stats(1, "").airtime == 0.0);
    // With one neighbour at half load, the middle gets the rest of the time that both leave.
    let mut world =
        World::new(config(&ports, &[(0, 1, 10.0), (2, 3, 10.0), (4, 5, 10.0)], Pairs(vec![(0, 1), (2, 1)])));
    world.sources.extend([paced(0, 5.0, 0), saturated(1)]);
    world.run(10 * SECOND);
    assert_near(world.arrived[1] as f64 * 8e-7, 5.0, 0.01);
    assert_near(world.arrived[3] as f64 * 8e-7, 5.0, 0.01);
}

#[test]
fn a_direction_contends_only_if_the_rule_says_so() {
    let ports = [("a", "w"), ("b", "w")];
    let mut full = World::new(config(&ports, &[(0, 1, 10.0), (1, 0, 10.0)], Domains(vec![])));
    full.sources.extend([saturated(0), saturated(1)]);
    assert_near(full.rate_mbps(1, 2.0), 10.0, 0.005);
    let mut half = World::new(config(&ports, &[(0, 1, 10.0), (1, 0, 10.0)], Domains(vec![vec![0, 1]])));
    half.sources.extend([saturated(0), saturated(1)]);
    assert_near(half.rate_mbps(1, 2.0), 5.0, 0.005);
}

#[test]
fn broadcast_reaches_live_neighbours_at_the_slowest_rate() {
    let ports: Vec<(&str, &str)> = ["a", "b", "c", "d"].iter().map(|&n| (n, "w")).collect();
    let mut world = World::new(config(&ports, &[(0, 1, 10.0), (0, 2, 20.0), (0, 3, 2.0), (1, 0, 10.0)], Technology));
    world.model.set_link(2, LinkState { up: false, ..state(2.0) });
    world.model.receive(0, group_frame(PAYLOAD), 0);
    // 1250 bytes at 10 Mb/s (the slowest live link) take 1 ms.
    assert_eq!(world.model.next_event_ns(), Some(1_000_000));
    world.run(10_000_000);
    assert_eq!(world.arrived, [0, 1250, 1250, 0]);
    assert_near(world.model.link_stats(3, "").busy, 0.1, 1e-6);
    world.model.set_link(2, state(2.0));
    world.model.receive(0, group_frame(PAYLOAD), world.now_ns);
    assert_eq!(world.model.next_event_ns(), Some(15_000_000));
    // A cut while the frame is in the air loses the copies of that link only.
    world.run(12_000_000);
    world.model.set_link(0, LinkState { up: false, ..state(10.0) });
    world.run(20_000_000);
    assert_eq!(world.arrived, [0, 1250, 2500, 1250]);
    let broadcast = world.model.port_stats(0, "a").broadcast.unwrap();
    assert_eq!((broadcast.frames, broadcast.copies, broadcast.lost), (2, 4, 1));
}

#[test]
fn a_station_with_uplink_sends_everything_there() {
    let ports = [("a", "w"), ("b", "w"), ("c", "w")];
    let mut config = config(&ports, &[(0, 1, 10.0), (0, 2, 10.0)], Technology);
    config.ports[0].uplink = Some(1);
    let mut world = World::new(config);
    let stranger = frame(77, PAYLOAD, 0);
    for frame in [frame(2, PAYLOAD, 0), group_frame(PAYLOAD), stranger.clone()] {
        world.model.receive(0, frame, world.now_ns);
    }
    world.run(SECOND / 10);
    assert_eq!(world.arrived, [0, 3750, 0]);
    assert!(world.model.set_uplink(0, Some(2)));
    world.model.receive(0, group_frame(PAYLOAD), world.now_ns);
    world.run(SECOND / 5);
    assert_eq!(world.arrived, [0, 3750, 1250]);
    assert!(!world.model.set_uplink(0, Some(0)) && !world.model.set_uplink(1, Some(0)));
    assert!(world.model.set_uplink(0, None));
    world.model.receive(0, stranger, world.now_ns);
    world.model.receive(0, vec![0xff; 13], world.now_ns);
    assert_eq!(world.model.port_stats(0, "a").unknown, 2);
}

#[test]
fn aggregated_frames_share_one_overhead() {
    // 1000 us of overhead, 1 ms a frame: alone 2 ms a frame; four together 5 ms; and at most 4 ms gives three in 4 ms.
    for (frames, limit_us, theory) in [(1, 1e6, 5.0), (4, 1e6, 8.0), (4, 4000.0, 7.5), (4, 500.0, 5.0)] {
        let mut config = config(&[("a", "w"), ("b", "w")], &[(0, 1, 10.0)], Technology);
        config.options.frame_overhead_us = 1000.0;
        config.options.aggregate_frames = frames;
        config.options.aggregate_us = limit_us;
        let mut world = World::new(config);
        world.sources.push(saturated(0));
        assert_near(world.rate_mbps(1, 20.0), theory, 0.002);
    }
}

#[test]
fn losses_have_the_given_rate_and_cost_airtime() {
    let mut world = World::new(config(&[("a", "w"), ("b", "w")], &[(0, 1, 100.0)], Technology));
    world.model.set_link(0, LinkState { loss: 0.2, ..state(100.0) });
    world.sources.push(saturated(0));
    world.run(10 * SECOND);
    let stats = world.model.link_stats(0, "");
    let sent = (stats.frames + stats.lost) as f64;
    assert_near(sent, 1e5, 0.001);
    // Four standard deviations of 100 000 draws.
    assert!((stats.lost as f64 / sent - 0.2).abs() < 4.0 * (0.2f64 * 0.8 / 1e5).sqrt());
    assert_near(stats.airtime, 1.0, 1e-6);
    world.model.set_link(0, LinkState { loss: 1.0, ..state(100.0) });
    world.run(10 * SECOND + 200_000);
    let before = world.arrived[1];
    world.run(11 * SECOND);
    assert_eq!(world.arrived[1], before);
}

#[test]
fn capacity_may_change_at_any_time() {
    let mut world = World::new(config(&[("a", "w"), ("b", "w")], &[(0, 1, 10.0)], Technology));
    world.sources.push(saturated(0));
    assert_near(world.rate_mbps(1, 3.0), 10.0, 0.002);
    world.model.set_link(0, state(40.0));
    assert_near(world.rate_mbps(1, 3.0), 40.0, 0.002);
    world.model.set_link(0, state(0.0));
    assert!(world.rate_mbps(1, 3.0) < 0.01);
    world.model.set_link(0, state(5.0));
    assert_near(world.rate_mbps(1, 3.0), 5.0, 0.002);
}

#[test]
fn a_cut_link_loses_what_is_in_the_air_and_drops_what_waits() {
    let mut world =
        World::new(config(&[("a", "w"), ("b", "w"), ("c", "w")], &[(0, 1, 10.0), (2, 1, 10.0)], Technology));
    world.model.set_link(0, LinkState { delay_ms: 5.0, ..state(10.0) });
    // Frames of 1 ms each: at 3.5 ms three are on their way (5 ms), one is in the air, six wait.
    (0..10).for_each(|_| world.send(0, PAYLOAD, 0));
    world.run(3_500_000);
    world.model.set_link(0, LinkState { up: false, delay_ms: 5.0, ..state(10.0) });
    world.send(0, PAYLOAD, 0);
    let stats = world.model.link_stats(0, "");
    assert_eq!((stats.dropped, stats.queued), (7, 0));
    // Back before the frame in the air ends: it is lost all the same, new frames arrive.
    world.run(3_600_000);
    world.model.set_link(0, state(10.0));
    world.send(0, PAYLOAD, 0);
    world.run(SECOND);
    let stats = world.model.link_stats(0, "");
    assert_eq!((stats.frames, stats.lost, stats.dropped), (1, 4, 7));
    assert_eq!(world.arrived[1], 1250);
}

#[test]
fn queues_are_bounded_and_their_delay_is_told() {
    let mut world = World::new(config(&[("a", "w"), ("b", "w")], &[(0, 1, 10.0)], Technology));
    (0..150).for_each(|_| world.send(0, PAYLOAD, 0));
    assert_eq!(world.model.link_stats(0, "").queued, 100);
    world.run(SECOND);
    let stats = world.model.link_stats(0, "");
    assert_eq!((stats.frames, stats.dropped), (101, 49));
    // Frame i waits i ms: on average 50 ms.
    assert_near(stats.queue_delay_ms, 50.0, 1e-6);
}

#[test]
fn a_late_process_loses_no_capacity() {
    // Advancing in steps of 55 ms: the queue bridges them, and virtual time does the rest.
    let mut world = World::new(config(&[("a", "w"), ("b", "w")], &[(0, 1, 10.0)], Technology));
    let mut arrived = 0u64;
    for step in 1..=200u64 {
        (0..60).for_each(|_| world.send(0, PAYLOAD, 0));
        world.model.advance(step * 55_000_000, &mut |_, frame| {
            arrived += frame.len() as u64 - 14;
            true
        });
        world.now_ns = step * 55_000_000;
    }
    assert_near(arrived as f64 * 8e-6 / 11.0, 10.0, 0.005);
}

#[test]
fn a_reset_starts_every_counter_anew() {
    let mut world = World::new(config(&[("a", "w"), ("b", "w")], &[(0, 1, 10.0)], Technology));
    world.sources.push(saturated(0));
    world.run(SECOND + 500_000);
    world.model.reset();
    world.run(2 * SECOND + 500_000);
    let stats = world.model.link_stats(0, "");
    assert_near(stats.airtime, 1.0, 1e-9);
    assert_near(stats.busy, 1.0, 1e-9);
    assert_near(world.model.elapsed_s(), 1.0, 1e-9);
    assert_near(stats.frames as f64, 1000.0, 0.002);
}

#[test]
fn a_station_hears_whom_it_hears_once() {
    // 0 -> 1 and 2 -> 3 don't contend; port 1 hears both senders, 3 only its own, 4 nobody, 5 has no ears.
    let ports = [("a", "w"), ("b", "w"), ("c", "w"), ("d", "w"), ("e", "w"), ("f", "w")];
    let mut config = config(&ports, &[(0, 1, 10.0), (2, 3, 10.0)], Domains(vec![]));
    for (port, hears) in [(0, vec![1]), (1, vec![0, 2, 0]), (2, vec![3]), (3, vec![2]), (4, vec![])] {
        config.ports[port].hears = Some(hears);
    }
    let mut world = World::new(config);
    world.sources.push(paced(0, 5.0, 1));
    world.sources.push(paced(1, 2.5, 2));
    world.run(20 * SECOND);
    let busy = |port| world.model.port_stats(port, "").busy;
    assert_near(busy(0).unwrap(), 0.5, 0.01); // its own frames
    assert_near(busy(2).unwrap(), 0.25, 0.01);
    assert_near(busy(3).unwrap(), 0.25, 0.01);
    assert_eq!((busy(4), busy(5)), (Some(0.0), None));
    // Both at once count once: at most the sum, at least the larger.
    let both = busy(1).unwrap();
    assert!(0.5 <= both + 1e-9 && both <= 0.75 + 0.01, "{both}");
    assert_near(world.model.heard_s(0).unwrap(), 10.0, 0.01);
    assert_near(world.model.link_radio(0).3, 10.0, 0.01);
    world.model.reset();
    assert_eq!(world.model.heard_s(1), Some(0.0));
}

#[test]
fn what_is_sent_at_once_is_heard_once() {
    let ports = [("a", "w"), ("b", "w"), ("c", "w"), ("d", "w")];
    let mut config = config(&ports, &[(0, 1, 10.0), (2, 3, 10.0)], Domains(vec![]));
    config.ports[1].hears = Some(vec![0, 2]);
    let mut world = World::new(config);
    world.sources.push(saturated(0));
    world.sources.push(saturated(1));
    world.run(5 * SECOND);
    assert_near(world.model.port_stats(1, "").busy.unwrap(), 1.0, 1e-6);
}
