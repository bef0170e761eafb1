//! Laws that hold in every network, checked on random ones.

use super::config::{Config, ConflictRule, LinkState};
use super::contention::Contention;
use super::model::Model;
use super::rng::Rng;
use super::test_world::{config, frame, group_frame, PAYLOAD};

const PORTS: usize = 7;

/// A random network: some of the links between seven ports, random rates, one of the three kinds of conflicts.
fn random_config(rng: &mut Rng) -> Config {
    let names: Vec<String> = (0..PORTS).map(|i| format!("p{i}")).collect();
    let ports: Vec<(&str, &str)> = names.iter().map(|n| (n.as_str(), "w")).collect();
    let mut links = Vec::new();
    for from in 0..PORTS {
        for to in 0..PORTS {
            if from != to && rng.chance(0.4) {
                links.push((from, to, 1.0 + 50.0 * rng.unit()));
            }
        }
    }
    let count = links.len().max(1);
    let conflicts = match rng.below(3) {
        0 => ConflictRule::Technology,
        1 => ConflictRule::Pairs((0..2 * links.len()).map(|_| (rng.below(count), rng.below(count))).collect()),
        _ => ConflictRule::Domains((0..links.len() / 2).map(|_| (0..4).map(|_| rng.below(count)).collect()).collect()),
    };
    let mut config = config(&ports, &links, conflicts);
    config.options.queue_frames = 1 + rng.below(10);
    config.options.frame_overhead_us = 100.0 * rng.unit();
    config.options.aggregate_frames = 1 + rng.below(4);
    config.options.seed = rng.bits();
    let contention = [Contention::Ideal, Contention::Dot11, Contention::Plc][rng.below(3)];
    config.contention.insert("w".to_string(), contention);
    config
}

/// No two contending links are in the air unless they collide, and no startable link waits.
fn check_access(model: &Model) {
    let colliding = |l: usize| model.links[l].colliding > 0;
    let active: Vec<usize> = (0..model.links.len()).filter(|&l| model.links[l].in_air() > 0 || colliding(l)).collect();
    for (i, &l) in active.iter().enumerate() {
        assert!(!colliding(l) || model.links[l].in_air() == 0, "link {l} collides with itself");
        for &m in &active[i + 1..] {
            let both = colliding(l) && colliding(m);
            assert!(both || !model.access.contend(l, m), "links {l} and {m} send together");
        }
    }
    for (l, link) in model.links.iter().enumerate() {
        assert!(link.queued() == 0 || !model.access.is_free(l), "link {l} waits for nothing");
        assert_eq!(active.iter().any(|&m| model.access.contend(l, m)), !model.access.is_free(l));
    }
}

fn random_state(rng: &mut Rng) -> LinkState {
    LinkState {
        capacity_mbps: if rng.chance(0.1) { 0.0 } else { 1.0 + 50.0 * rng.unit() },
        delay_ms: if rng.chance(0.5) { 0.0 } else { 20.0 * rng.unit() },
        loss: if rng.chance(0.5) { 0.0 } else { rng.unit() },
        up: rng.chance(0.7),
        signal_dbm: -50,
    }
}

/// Thousands of random frames, changes and waits; `group` allows group frames. Gives what was received and delivered.
fn storm(config: &Config, rng: &mut Rng, group: bool) -> (Model, u64, u64) {
    let mut model = Model::new(config, 0);
    let (mut now_ns, mut received, mut delivered) = (0u64, 0u64, 0u64);
    for _ in 0..3000 {
        match rng.below(10) {
            0 if !config.links.is_empty() => {
                let state = random_state(rng);
                model.set_link(rng.below(config.links.len()), state);
            }
            1..=3 => {
                now_ns += rng.below(3_000_000) as u64;
                let mut last_ns = 0;
                while let Some(at_ns) = model.next_event_ns().filter(|&at| at <= now_ns) {
                    assert!(at_ns >= last_ns);
                    last_ns = at_ns;
                    model.advance(at_ns, &mut |_, _| {
                        delivered += 1;
                        true
                    });
                    check_access(&model);
                }
                model.advance(now_ns, &mut |_, _| unreachable!("everything due was done"));
            }
            _ => {
                let payload = rng.below(PAYLOAD);
                let sent =
                    if group && rng.chance(0.2) { group_frame(payload) } else { frame(rng.below(PORTS), payload, 0) };
                received += 1;
                model.receive(rng.below(PORTS), sent, now_ns);
            }
        }
        check_access(&model);
    }
    (model, received, delivered)
}

#[test]
fn frames_are_conserved() {
    for seed in 0..60 {
        let mut rng = Rng::new(seed);
        let config = random_config(&mut rng);
        let (mut model, received, delivered) = storm(&config, &mut rng, false);
        let total = model.total_stats();
        assert_eq!(total.received, received);
        assert_eq!(total.frames, delivered);
        let sum = total.frames + total.dropped + total.lost + total.queued + total.in_flight + total.unknown;
        assert_eq!(sum, received, "seed {seed}: {total:?}");
        // In the end everything leaves.
        let mut late = 0;
        model.advance(u64::MAX / 2, &mut |_, _| {
            late += 1;
            true
        });
        let end = model.total_stats();
        assert_eq!((end.queued, end.in_flight), (0, 0));
        assert_eq!(end.frames, delivered + late);
        assert_eq!(end.frames + end.dropped + end.lost + end.unknown, received);
    }
}

#[test]
fn contending_links_never_send_together_and_nothing_waits_in_vain() {
    // The checks are made inside, after every step.
    for seed in 100..160 {
        let mut rng = Rng::new(seed);
        let config = random_config(&mut rng);
        let (model, _, delivered) = storm(&config, &mut rng, true);
        assert!(delivered > 0 || config.links.is_empty());
        for l in 0..config.links.len() {
            let stats = model.link_stats(l, "");
            assert!(stats.airtime <= stats.busy + 1e-9 && stats.busy <= 1.0 + 1e-9, "{stats:?}");
        }
    }
}

#[test]
fn frames_of_a_link_arrive_in_order_while_nothing_changes() {
    for seed in 200..220 {
        let mut rng = Rng::new(seed);
        let config = random_config(&mut rng);
        let mut model = Model::new(&config, 0);
        let mut sent = vec![0u8; config.links.len()];
        for _ in 0..400 {
            if config.links.is_empty() {
                break;
            }
            let l = rng.below(config.links.len());
            let mut data = frame(config.links[l].to, 2, l as u8);
            data[15] = sent[l];
            sent[l] = sent[l].wrapping_add(1);
            model.receive(config.links[l].from, data, 0);
        }
        let mut last: Vec<Option<u8>> = vec![None; config.links.len()];
        model.advance(u64::MAX / 2, &mut |_, data| {
            let (l, number) = (data[14] as usize, data[15]);
            assert!(last[l].map_or(true, |before| number > before));
            last[l] = Some(number);
            true
        });
    }
}
