//! Senders that copy, driven by a simulated clock.

use super::tests::{flow, path, Bench};
use super::*;
use crate::edge::frame::Shim;
use crate::edge::protocol::{OutPath, RateChange};
use crate::edge::testing::Rng;
use std::collections::{BTreeMap, BTreeSet};

fn copying(paths: Vec<OutPath>) -> Ingress {
    Ingress { split: SplitMode::Copy, ..flow(paths) }
}

/// Numbers of the data on each path, in the order they left.
fn by_path(log: &[(u8, Kind, u32)]) -> BTreeMap<u8, Vec<u32>> {
    let mut all: BTreeMap<u8, Vec<u32>> = BTreeMap::new();
    for (path, _, sequence) in log.iter().filter(|l| l.1 == Kind::Data) {
        all.entry(*path).or_default().push(*sequence);
    }
    all
}

/// A sender with what it says: (path, kind, number).
struct Copier {
    bench: Bench,
    said: Vec<(u8, Kind, u32)>,
}

impl Copier {
    fn new(flow: Ingress) -> Self {
        Copier { bench: Bench::with(flow), said: Vec::new() }
    }

    fn note(&mut self, out: Vec<Outgoing>) {
        for (_, buf) in out {
            let mut at = 14;
            while buf.bytes()[at] == 0 {
                at += 4;
            }
            let shim = Shim::decode(&buf.bytes()[at..]).unwrap();
            self.said.push((shim.path, shim.kind, shim.sequence));
            self.bench.pool.give(buf);
        }
    }

    fn service(&mut self, now: u64) {
        let mut out = Vec::new();
        while let Some(outgoing) = self.bench.sender.next(now, &mut self.bench.pool) {
            out.push(outgoing);
        }
        self.bench.sender.keep_alives(now, &mut self.bench.pool, &mut out);
        self.note(out);
    }

    fn update(&mut self, now: u64, flow: &Ingress) -> Option<u32> {
        let exits: Vec<Exit> = flow.paths.iter().map(|_| (0, [2; 6])).collect();
        let mut out = Vec::new();
        let from = self.bench.sender.update(now, flow, &exits, &mut self.bench.pool, &mut out);
        self.note(out);
        from
    }

    /// Offers a frame each `gap_ns` from `from` to `to`.
    fn run(&mut self, from: u64, to: u64, gap_ns: u64) {
        let (mut now, mut next) = (from, from);
        while now < to {
            if next <= now {
                self.bench.offer(now, 1000);
                next += gap_ns;
            }
            self.service(now);
            let due = self.bench.sender.next_due(now).unwrap_or(u64::MAX);
            now = due.clamp(now + 1, next.max(now + 1));
        }
    }
}

#[test]
fn every_path_carries_every_number_once_and_in_order() {
    let paths =
        vec![path(1, Some(20.0), &[1]), path(2, Some(9.0), &[2]), path(3, Some(0.0), &[3]), path(4, None, &[4])];
    let mut copier = Copier::new(copying(paths));
    // 8 Mb/s.
    copier.run(0, 1_000 * MS, MS);
    copier.service(1_100 * MS);
    let expected: Vec<u32> = (0..1000).map(|k| (u32::MAX - 5).wrapping_add(k)).collect();
    let all = by_path(&copier.said);
    assert_eq!(all.keys().copied().collect::<Vec<_>>(), [1, 2, 4]);
    assert!(all.values().all(|numbers| *numbers == expected));
    assert_eq!((copier.bench.sender.sent, copier.bench.pool.in_use()), (1000, 0));
    assert!(copier.bench.sender.paths().iter().all(|p| p.copy_position.skipped == 0));
}

#[test]
fn a_path_that_cannot_keep_up_leaves_out_the_oldest_and_holds_nobody_up() {
    let mut copier = Copier::new(copying(vec![path(1, Some(20.0), &[1]), path(2, Some(2.0), &[2])]));
    copier.run(0, 2_000 * MS, MS);
    let all = by_path(&copier.said);
    assert_eq!(all[&1].len(), 2000);
    let slow = &all[&2];
    // 2 Mb/s for 2 s.
    assert!((470..=500).contains(&slow.len()), "{}", slow.len());
    assert!(slow.windows(2).all(|w| before(w[0], w[1])));
    // It is never further behind than 60 ms of 2 Mb/s, and what it left out is counted.
    let backlog = copier.bench.pool.in_use();
    assert!(backlog <= 16, "{backlog}");
    let skipped = copier.bench.sender.paths()[1].copy_position.skipped as usize;
    assert_eq!(slow.len() + skipped + backlog, 2000);
    assert_eq!(copier.bench.sender.paths()[0].copy_position.skipped, 0);
}

#[test]
fn when_copying_ends_what_a_path_is_behind_with_goes_first() {
    let slow = path(2, Some(4.0), &[2]);
    let mut copier = Copier::new(copying(vec![path(1, Some(80.0), &[1]), slow.clone()]));
    for _ in 0..20 {
        copier.bench.offer(0, 1000);
    }
    copier.service(0);
    copier.service(2 * MS);
    let from = copier.update(2 * MS, &flow(vec![path(1, Some(0.0), &[1]), slow])).unwrap();
    copier.bench.offer(2 * MS, 1000);
    copier.run(2 * MS, 200 * MS, 1_000 * MS);
    let all = by_path(&copier.said);
    let numbers: Vec<u32> = (0..22).map(|k| (u32::MAX - 5).wrapping_add(k)).collect();
    assert_eq!(all[&2], numbers);
    assert_eq!((from, all[&1].as_slice()), (numbers[20], &numbers[..20]));
    let pause = copier.said.iter().find(|s| s.1 == Kind::Pause);
    assert_eq!(pause, Some(&(1, Kind::Pause, from)));
}

#[test]
fn whatever_changes_numbers_rise_on_every_path_and_marks_are_true() {
    for seed in 0..200 {
        let mut rng = Rng::new(seed);
        let mut copier = Copier::new(copying(vec![path(1, Some(5.0), &[1]), path(2, Some(5.0), &[2])]));
        let (mut now, mut frames) = (0, 0u32);
        for _ in 0..60 {
            for _ in 0..rng.below(12) {
                frames += u32::from(copier.bench.offer(now, 60 + rng.below(1400)));
                now += rng.below(3_000_000) as u64;
                copier.service(now);
            }
            let rate = |rng: &mut Rng| [Some(0.0), Some(1.0), Some(8.0), Some(30.0), None][rng.below(5)];
            let next = copier.bench.sender.sequence;
            let from = if rng.below(2) == 0 {
                let change = RateChange {
                    rates: BTreeMap::from([(1 + rng.below(2) as u8, rate(&mut rng))]),
                    ..RateChange::default()
                };
                if change.rates.keys().any(|id| !copier.bench.sender.knows_path(*id)) {
                    continue;
                }
                let mut out = Vec::new();
                let from = copier.bench.sender.set_rates(now, &change, &mut copier.bench.pool, &mut out);
                copier.note(out);
                from
            } else {
                let mut paths: Vec<OutPath> = (1..4u8).map(|id| path(id, rate(&mut rng), &[id.into()])).collect();
                paths.retain(|_| rng.below(3) > 0);
                let mut wanted = copying(paths);
                if rng.below(2) == 0 {
                    wanted.split = SplitMode::Proportional;
                }
                copier.update(now, &wanted)
            };
            assert!(from.map_or(true, |from| from == next && from == copier.bench.sender.from()));
        }
        // All paths in use again, so that everything leaves.
        copier.update(now, &copying(vec![path(1, None, &[1])]));
        copier.service(now);
        let mut all: Vec<u32> = by_path(&copier.said).into_values().flatten().collect();
        all.sort_by_key(|n| n.wrapping_add(6));
        all.dedup();
        let dropped = copier.bench.sender.dropped as u32;
        assert_eq!(all, (0..frames - dropped).map(|k| (u32::MAX - 5).wrapping_add(k)).collect::<Vec<_>>());
        assert_eq!(copier.bench.pool.in_use(), 0, "seed {seed}");
        let (mut reached, mut seen): (BTreeMap<u8, u32>, BTreeSet<u32>) = Default::default();
        for (id, kind, number) in copier.said.iter().filter(|s| s.1 != Kind::Resume) {
            let least = reached.entry(*id).or_insert(*number);
            // What a path that is gone was given goes again.
            if *kind == Kind::Data && !seen.insert(*number) && before(*number, *least) {
                continue;
            }
            assert!(!before(*number, *least), "seed {seed}: path {id} says {number} after {least}");
            *least = number.wrapping_add(u32::from(*kind == Kind::Data));
        }
    }
}
