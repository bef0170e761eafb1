//! The medium with collisions against the theory of CSMA/CA.

use super::config::ConflictRule::Technology;
use super::config::{Config, LinkState};
use super::contention::Contention;
use super::test_world::*;

/// Saturated stations of one technology, each with a link of its own to a station that sends nothing.
fn saturated_stations(contention: Contention, rates_mbps: &[f64]) -> World {
    let sink = rates_mbps.len();
    let names: Vec<String> = (0..=sink).map(|i| format!("s{i}")).collect();
    let ports: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "w")).collect();
    let links: Vec<(usize, usize, f64)> = rates_mbps.iter().enumerate().map(|(i, &mbps)| (i, sink, mbps)).collect();
    let mut world = World::new(with(config(&ports, &links, Technology), contention));
    world.sources.extend((0..sink).map(saturated));
    world
}

fn with(mut config: Config, contention: Contention) -> Config {
    config.contention.insert("w".to_string(), contention);
    config
}

/// Share of the busy slots in which one of `n` stations begins alone: Bianchi's P_s, from his tau(p) by damped iteration.
fn bianchi_efficiency(n: i32) -> f64 {
    let (w, m, mut p) = (16.0, 6, 0.1f64);
    let mut tau = 0.0;
    for _ in 0..10_000 {
        let sum: f64 = (0..m).map(|k| (2.0 * p).powi(k)).sum();
        tau = 2.0 / (1.0 + w + p * w * sum);
        p += 0.1 * (1.0 - (1.0f64 - tau).powi(n - 1) - p);
    }
    f64::from(n) * tau * (1.0 - tau).powi(n - 1) / (1.0 - (1.0 - tau).powi(n))
}

#[test]
fn saturated_stations_have_bianchis_efficiency() {
    for n in [2, 5, 10] {
        let mut world = saturated_stations(Contention::Dot11, &vec![20.0; n]);
        let measured = world.rate_mbps(n, 60.0) / 20.0;
        let theory = bianchi_efficiency(n as i32);
        // 120 000 slots or so, in each of which a collision is one or none.
        assert!((measured - theory).abs() < 0.006, "{n} stations: {measured}, theory {theory}");
        let shares: Vec<f64> = (0..n).map(|l| world.model.link_stats(l, "").frames as f64).collect();
        let mean = shares.iter().sum::<f64>() / n as f64;
        assert!(shares.iter().all(|share| (share / mean - 1.0).abs() < 0.005), "{shares:?}");
    }
}

#[test]
fn power_line_stations_collide_more_often_than_those_of_wifi_if_they_are_few() {
    // Windows are smaller, but deferral widens them before anything has collided.
    let carried = |contention, n: usize| saturated_stations(contention, &vec![20.0; n]).rate_mbps(n, 20.0);
    for n in [2, 5] {
        let (ideal, wifi, plc) =
            (carried(Contention::Ideal, n), carried(Contention::Dot11, n), carried(Contention::Plc, n));
        assert!((plc < wifi - 0.1) == (n == 2) && wifi.max(plc) < ideal - 0.5, "{n} stations: {plc}, {wifi}, {ideal}");
    }
}

#[test]
fn a_single_backlogged_station_loses_nothing() {
    for contention in [Contention::Dot11, Contention::Plc] {
        // Two links of one station, to two others: in the same moments as on the ideal medium.
        let arrivals = |contention| {
            let ports = [("a", "w"), ("b", "w"), ("c", "w")];
            let links = [(0, 1, 15.0), (0, 2, 30.0), (1, 0, 15.0)];
            let mut world = World::new(with(config(&ports, &links, Technology), contention));
            let mut arrivals = Vec::new();
            for step in 0..200u64 {
                world.now_ns = step * 10_000_000;
                (0..20).for_each(|i| world.send(i % 2, PAYLOAD, 0));
                while let Some(at_ns) = world.model.next_event_ns().filter(|&at| at <= world.now_ns + 9_999_999) {
                    world.model.advance(at_ns, &mut |port, _| {
                        arrivals.push((at_ns, port));
                        true
                    });
                }
            }
            assert_eq!(world.model.link_stats(0, "").collisions, 0);
            arrivals
        };
        assert_eq!(arrivals(contention), arrivals(Contention::Ideal));
    }
}

#[test]
fn airtime_is_conserved_and_a_collision_takes_as_long_as_the_longer_frame() {
    let mut world = saturated_stations(Contention::Dot11, &[10.0, 40.0]);
    world.run(60 * SECOND);
    let stats = [world.model.link_stats(0, ""), world.model.link_stats(1, "")];
    assert!((stats[0].busy - 1.0).abs() < 1e-9);
    // One collision more or less may be in the air.
    let both = stats[0].collisions as f64;
    assert!(both > 1000.0 && stats[0].collisions == stats[1].collisions);
    let seconds = |mbps: f64| PAYLOAD as f64 * 8e-6 / mbps;
    for (stat, mbps) in stats.iter().zip([10.0, 40.0]) {
        let sending = stat.frames as f64 * seconds(mbps) + both * seconds(mbps);
        assert!((stat.airtime * 60.0 - sending).abs() < 3.0 * seconds(mbps), "{stat:?}");
    }
    // Both send in a collision; the shorter frame's time counts once.
    let sum = (stats[0].airtime + stats[1].airtime) * 60.0 - both * seconds(40.0);
    assert!((sum - 60.0).abs() < 2.0 * seconds(10.0), "{sum}");
    assert_eq!((stats[0].lost, stats[1].lost), (0, 0));
}

#[test]
fn frames_that_collide_too_often_are_lost() {
    for (contention, most) in [(Contention::Dot11, 0.01), (Contention::Plc, 0.0)] {
        let mut world = saturated_stations(contention, &[20.0; 40]);
        world.run(60 * SECOND);
        let total = world.model.total_stats();
        let share = total.lost as f64 / total.frames as f64;
        assert!(share <= most && (share > 0.0) == (most > 0.0), "{contention:?}: {share}");
    }
}

#[test]
fn group_frames_of_wifi_are_sent_once_those_of_power_line_until_they_get_through() {
    for (contention, least, most) in [(Contention::Dot11, 0.2, 0.55), (Contention::Plc, 0.0, 0.0)] {
        let mut world = saturated_stations(contention, &[20.0; 10]);
        world.sources.remove(0);
        for step in 1..=400u64 {
            world.model.receive(0, group_frame(PAYLOAD), world.now_ns);
            world.run(step * SECOND / 10);
        }
        let group = world.model.port_stats(0, "").broadcast.unwrap();
        assert_eq!(group.copies + group.lost, group.frames);
        assert!(group.frames >= 398 && group.queued <= 2);
        let share = group.lost as f64 / group.frames as f64;
        assert!(share >= least && share <= most, "{contention:?}: {share}");
    }
}

#[test]
fn a_link_that_is_cut_while_it_collides_drops_what_waits() {
    let mut world = saturated_stations(Contention::Dot11, &[10.0, 10.0]);
    let down = LinkState { up: false, ..state(10.0) };
    let mut cuts = 0;
    while cuts < 20 {
        world.run(world.now_ns + 500_000);
        if world.model.links[0].colliding == 0 {
            continue;
        }
        world.model.set_link(0, down);
        assert_eq!((world.model.links[0].queued(), world.model.link_stats(0, "").queued), (0, 0));
        world.model.set_link(0, state(10.0));
        cuts += 1;
    }
    let before = world.arrived[2];
    world.run(world.now_ns + SECOND);
    assert!(world.arrived[2] > before + 1_000_000);
}

#[test]
fn only_stations_of_one_technology_collide() {
    // Three technologies: two ideal for each other, one of a single station.
    let ports = [("a", "w"), ("b", "w"), ("c", "p"), ("d", "p"), ("e", "q"), ("f", "q")];
    let mut config = config(&ports, &[(0, 1, 10.0), (2, 3, 10.0), (4, 5, 10.0), (5, 4, 10.0)], Technology);
    for (technology, contention) in [("w", Contention::Dot11), ("p", Contention::Plc), ("q", Contention::Ideal)] {
        config.contention.insert(technology.to_string(), contention);
    }
    let mut world = World::new(config);
    world.sources.extend((0..4).map(saturated));
    world.run(5 * SECOND);
    for (link, mbps) in [(0, 10.0), (1, 10.0), (2, 5.0), (3, 5.0)] {
        let stats = world.model.link_stats(link, "");
        assert!((stats.bytes as f64 * 8e-6 / 5.0 / mbps - 1.0).abs() < 0.005 && stats.collisions == 0, "{stats:?}");
    }
}
