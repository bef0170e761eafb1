//! A sender driven by a simulated clock.

use super::*;
use crate::edge::burst::BurstConfig;
use crate::edge::frame::{be16, be32, parse_network, FromNetwork, Shim};
use crate::edge::pace::BURST_NS;
use crate::edge::protocol::{OutPath, RateChange};
use crate::edge::testing::Rng;
use std::collections::BTreeMap;

pub(super) fn path(id: u8, rate_mbps: Option<f64>, labels: &[u32]) -> OutPath {
    let labels = labels.to_vec();
    OutPath {
        id,
        labels,
        rate_mbps,
        weight: 1.0,
        mtu: 1600,
        interface: None,
        dst_mac: None,
        copied_from: None,
        sealed: false,
    }
}

pub(super) fn flow(paths: Vec<OutPath>) -> Ingress {
    Ingress {
        number: 16,
        id: "f".into(),
        default: false,
        queue_ms: 60,
        split: SplitMode::Proportional,
        burst: BurstConfig::default(),
        paths,
        pieces: false,
        key: None,
    }
}

pub(super) fn rates(rates: &[(u8, Option<f64>)]) -> RateChange {
    RateChange { rates: rates.iter().copied().collect(), ..RateChange::default() }
}

pub(super) struct Bench {
    pub sender: Sender,
    pub pool: Pool,
    /// Time, path, L2 payload, kind.
    pub log: Vec<(u64, u8, usize, u8)>,
    pub sequences: Vec<u32>,
    pub exits: Vec<Exit>,
}

impl Bench {
    pub fn new(paths: Vec<OutPath>) -> Self {
        Bench::with(flow(paths))
    }

    pub fn with(flow: Ingress) -> Self {
        let exits: Vec<Exit> = flow.paths.iter().map(|_| (0, [2; 6])).collect();
        let mut pool = Pool::new(2048, 10_000);
        Bench {
            sender: Sender::new(0, &flow, &exits, u32::MAX - 5, 1, BURST_NS, &mut pool),
            pool,
            log: Vec::new(),
            sequences: Vec::new(),
            exits,
        }
    }

    pub fn note(&mut self, now: u64, buf: Buf) {
        let bytes = buf.bytes();
        let mut at = 14;
        // The last switch would have popped the labels, which are small numbers here; a shim begins with its kind.
        while be16(bytes, 12) == Some(0x8847) && bytes[at] == 0 {
            at += 4;
        }
        let shim = Shim::decode(&bytes[at..]).unwrap();
        self.log.push((now, shim.path, bytes.len() - 14, shim.kind as u8));
        if shim.kind == Kind::Data {
            self.sequences.push(shim.sequence);
        }
        self.pool.give(buf);
    }

    pub fn offer(&mut self, now: u64, len: usize) -> bool {
        let mut buf = self.pool.take().unwrap();
        buf.set(&vec![0x5a; len]);
        match self.sender.offer(now, buf, &mut self.pool) {
            Offer::Queued => true,
            Offer::Dropped(buf) | Offer::TooBig(buf, _) => {
                self.pool.give(buf);
                false
            }
        }
    }

    pub fn service(&mut self, now: u64) {
        while let Some((_, buf)) = self.sender.next(now, &mut self.pool) {
            self.note(now, buf);
        }
        let mut out = Vec::new();
        self.sender.keep_alives(now, &mut self.pool, &mut out);
        for (_, buf) in out {
            self.note(now, buf);
        }
    }

    /// Keeps the queue full of frames from `from` to `to`.
    pub fn saturate(&mut self, from: u64, to: u64, mut len: impl FnMut() -> usize) {
        let mut now = from;
        while now < to {
            while self.offer(now, len()) {}
            self.service(now);
            now = self.sender.next_due(now).unwrap().max(now + 1);
        }
    }

    pub fn bytes(&self, path: u8, from: u64, to: u64) -> f64 {
        let of = |l: &&(u64, u8, usize, u8)| l.1 == path && (from..to).contains(&l.0);
        self.log.iter().filter(of).map(|l| l.2 as f64).sum()
    }
}

#[test]
fn late_wake_ups_cost_no_throughput() {
    let mut bench = Bench::new(vec![path(1, Some(19.0), &[1]), path(2, Some(9.5), &[2])]);
    let (mut now, end, mut late) = (0, 5_000 * MS, Rng::new(6));
    while now < end {
        while bench.offer(now, 1400) {}
        bench.service(now);
        now = bench.sender.next_due(now).unwrap().max(now + 1) + late.below(8 * MS as usize) as u64;
    }
    for (id, mbps) in [(1, 19.0), (2, 9.5)] {
        let share = bench.bytes(id, 0, end) * 8e3 / mbps / end as f64;
        assert!((0.99..1.01).contains(&share), "path {id}: {share}");
    }
}

#[test]
fn a_saturated_flow_fills_every_path_and_no_window_exceeds_it() {
    let mut rng = Rng::new(1);
    for rates in [vec![10.0, 6.667], vec![30.0, 2.0, 7.5], vec![0.7, 1.3], vec![90.0, 55.0, 30.0, 12.0]] {
        let paths = rates.iter().enumerate().map(|(i, r)| path(i as u8 + 1, Some(*r), &[100, 200])).collect();
        let mut bench = Bench::new(paths);
        bench.saturate(0, 4_000 * MS, || 60 + rng.below(1450));
        for (i, rate) in rates.iter().enumerate() {
            let id = i as u8 + 1;
            let share = bench.bytes(id, 0, 4_000 * MS) / (rate * 1e6 / 8.0 * 4.0);
            assert!(share > 0.985 && share < 1.015, "path {id} of {rates:?} carries {share} of its rate");
            let own: Vec<_> = bench.log.iter().filter(|l| l.1 == id).collect();
            let burst = (rate * 1e6 / 8.0 * 2e-3).max(3200.0);
            for first in (0..own.len()).step_by(7) {
                let mut bytes = 0.0;
                for entry in own[first..].iter().take(300) {
                    bytes += entry.2 as f64;
                    let allowed = rate / 8e3 * (entry.0 - own[first].0) as f64 + burst;
                    assert!(bytes <= allowed + 30.0, "{bytes} bytes where {allowed} are allowed");
                }
            }
        }
        let expected: Vec<u32> = (0..bench.sequences.len() as u32).map(|k| (u32::MAX - 5).wrapping_add(k)).collect();
        assert_eq!(bench.sequences, expected);
    }
}

#[test]
fn the_split_is_proportional_at_every_load() {
    for load in [0.1, 0.5, 0.9] {
        let mut bench = Bench::new(vec![path(1, Some(20.0), &[1, 2]), path(2, Some(30.0), &[1, 2])]);
        let gap = (1020.0 * 8e3 / 50.0 / load) as u64;
        let mut now = 0;
        while now < 2_000 * MS {
            bench.offer(now, 1000);
            let until = now + gap;
            while now < until {
                bench.service(now);
                now = bench.sender.next_due(now).map_or(until, |due| due.clamp(now + 1, until));
            }
        }
        let data = |id: u8| bench.log.iter().filter(|l| l.1 == id && l.3 == 1).map(|l| l.2 as f64).sum::<f64>();
        let error = data(1) - (data(1) + data(2)) * 0.4;
        assert!(error.abs() < 1020.0, "load {load}: {error} bytes off");
    }
}

#[test]
fn a_change_of_rates_holds_at_once_and_a_zero_path_says_pause() {
    let mut bench = Bench::new(vec![path(1, Some(10.0), &[1]), path(2, Some(10.0), &[2])]);
    bench.saturate(0, 500 * MS, || 1000);
    let mut out = Vec::new();
    bench.sender.set_rates(500 * MS, &rates(&[(1, Some(40.0)), (2, Some(0.0))]), &mut bench.pool, &mut out);
    for (_, buf) in out {
        bench.note(500 * MS, buf);
    }
    let last: Vec<_> = bench.log.iter().rev().take(2).map(|l| (l.1, l.3)).collect();
    assert_eq!(last, [(2, 3), (1, 2)], "a pause, and on the other path that this is so");
    bench.saturate(500 * MS, 600 * MS, || 1000);
    let pauses: Vec<u64> = bench.log.iter().filter(|l| l.1 == 2 && l.0 > 500 * MS).map(|l| l.0 / MS).collect();
    assert_eq!(pauses, [520, 560], "it says so again, and nothing else");
    let share = bench.bytes(1, 500 * MS, 600 * MS) / 500_000.0;
    assert!(share > 0.97 && share < 1.025, "{share}");
    // Down to nothing: nothing but pauses leaves, and the queue is bounded.
    bench.sender.set_rates(600 * MS, &rates(&[(1, Some(0.0))]), &mut bench.pool, &mut Vec::new());
    let before = bench.sequences.len();
    while bench.offer(600 * MS, 1000) {}
    bench.service(700 * MS);
    assert_eq!((bench.sequences.len(), bench.sender.queued()), (before, 300));
    assert_eq!(bench.log.last().map(|l| l.3), Some(3));
    // A second later only little may wait.
    assert!(!bench.offer(1_601 * MS, 1000));
    assert_eq!((bench.sequences.len(), bench.sender.queued()), (before, MIN_QUEUE_FRAMES));
}

#[test]
fn the_queue_is_bounded_in_time() {
    let mut bench = Bench::new(vec![path(1, Some(80.0), &[1])]);
    while bench.offer(0, 1000) {}
    // 60 ms of 80 Mb/s.
    assert_eq!((bench.sender.queued(), bench.sender.queued_bytes()), (600, 600_000));
    // Slower for less than a second, as in a probe: nothing is lost.
    bench.sender.set_rates(0, &rates(&[(1, Some(8.0))]), &mut bench.pool, &mut Vec::new());
    assert!(!bench.offer(999 * MS, 1000));
    assert_eq!(bench.sender.queued(), 600);
    // For longer: the queue is that of the slower flow.
    assert!(!bench.offer(1_000 * MS, 1000));
    assert_eq!(bench.sender.queued(), 60);
    assert_eq!(bench.pool.in_use(), 60);
    bench.sender.set_rates(1_100 * MS, &rates(&[(1, Some(40.0))]), &mut bench.pool, &mut Vec::new());
    while bench.offer(1_100 * MS, 1000) {}
    assert_eq!(bench.sender.queued(), 300);
}

#[test]
fn keep_alives_come_fast_while_active_and_slowly_later() {
    let mut bench = Bench::new(vec![path(1, Some(10.0), &[1]), path(2, Some(10.0), &[2])]);
    bench.offer(10_000 * MS, 100);
    let mut now = 10_000 * MS;
    while now < 25_000 * MS {
        bench.service(now);
        now = bench.sender.next_due(now).unwrap();
    }
    let count =
        |from: u64, to: u64| bench.log.iter().filter(|l| l.3 == 2 && (from * MS..to * MS).contains(&l.0)).count();
    assert!((46..=52).contains(&count(10_000, 10_500)), "{}", count(10_000, 10_500));
    assert!((34..=42).contains(&count(10_500, 20_000)), "{}", count(10_500, 20_000));
    assert!((4..=6).contains(&count(20_500, 25_000)), "{}", count(20_500, 25_000));
}

#[test]
fn frames_too_big_for_any_used_path_are_refused() {
    let small = OutPath { mtu: 1500, ..path(2, Some(5.0), &[1, 2]) };
    let mut bench = Bench::new(vec![path(1, Some(10.0), &[1, 2]), small]);
    assert!(bench.offer(0, 1480));
    assert!(!bench.offer(0, 1481));
    assert_eq!(bench.sender.too_big, 1);
    bench.sender.set_rates(0, &rates(&[(2, Some(0.0))]), &mut bench.pool, &mut Vec::new());
    assert!(bench.offer(0, 1580));
    assert!(!bench.offer(0, 1581));
}

#[test]
fn an_update_keeps_sequence_queue_and_paths_that_stay() {
    let mut bench = Bench::new(vec![path(1, Some(1.0), &[1]), path(2, Some(1.0), &[2])]);
    for _ in 0..20 {
        bench.offer(0, 1000);
    }
    bench.service(0);
    let (queued, sent) = (bench.sender.queued(), bench.sequences.len() as u32);
    assert!(queued > 10);
    let spec = flow(vec![path(2, Some(100.0), &[2]), path(3, Some(100.0), &[])]);
    let mut out = Vec::new();
    bench.sender.update(0, &spec, &bench.exits.clone(), &mut bench.pool, &mut out);
    assert_eq!(out.len(), 4, "the pause of path 1, where paths 2 and 3 are, and on path 2 that path 3 is used now");
    bench.service(MS);
    bench.service(2 * MS);
    assert_eq!(bench.sender.queued(), 0);
    assert_eq!(bench.sequences.last(), Some(&(u32::MAX - 5).wrapping_add(sent + queued as u32 - 1)));
    assert!(bench.log.iter().filter(|l| l.0 > 0).all(|l| l.1 != 1));
}

#[test]
fn unshaped_paths_send_at_once_and_share_by_weight() {
    let heavy = OutPath { weight: 3.0, ..path(2, None, &[]) };
    let mut bench = Bench::new(vec![path(1, None, &[]), heavy]);
    for _ in 0..400 {
        assert!(bench.offer(0, 500));
        bench.service(0);
    }
    let count = |id: u8| bench.log.iter().filter(|l| l.1 == id && l.3 == 1).count();
    assert_eq!((count(1), count(2)), (100, 300));
    let mut frame = vec![0; 12];
    frame.extend_from_slice(&[0x88, 0xb5, 1, 1, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0]);
    frame.extend_from_slice(&[0; 20]);
    assert!(matches!(parse_network(&frame), FromNetwork::Shim { .. }));
}

#[test]
fn a_path_that_is_used_again_is_announced_on_the_others_and_starts_at_once() {
    let mut bench = Bench::new(vec![path(1, Some(10.0), &[1]), path(2, Some(0.0), &[2]), path(3, Some(0.0), &[3])]);
    bench.saturate(0, 500 * MS, || 1000);
    assert_eq!(bench.bytes(2, 0, 500 * MS) + bench.bytes(3, 0, 500 * MS), 0.0, "not even keep-alives");
    let next = bench.sequences.len() as u32;
    let mut out = Vec::new();
    bench.sender.set_rates(500 * MS, &rates(&[(2, Some(10.0))]), &mut bench.pool, &mut out);
    assert_eq!(out.len(), 3, "keep-alives on both, and the resume");
    let bytes = out[2].1.bytes();
    assert_eq!(be32(bytes, 14).map(|entry| entry >> 12), Some(1), "on path 1");
    let shim = Shim::decode(&bytes[18..]).unwrap();
    assert_eq!((shim.kind, shim.path, shim.sequence), (Kind::Resume, 2, (u32::MAX - 5).wrapping_add(next)));
    bench.saturate(500 * MS, 520 * MS, || 1000);
    assert!(bench.bytes(2, 500 * MS, 520 * MS) > 20_000.0);
    // Of several that stop and one that starts only the pauses are sent: nobody could carry the news.
    let mut out = Vec::new();
    let change = rates(&[(1, Some(0.0)), (2, Some(0.0)), (3, Some(5.0))]);
    let next = (u32::MAX - 5).wrapping_add(bench.sequences.len() as u32);
    assert_eq!(bench.sender.set_rates(520 * MS, &change, &mut bench.pool, &mut out), Some(next));
    let kind = |buf: &Buf| buf.bytes()[18];
    assert_eq!(out.iter().map(|(_, buf)| kind(buf)).collect::<Vec<_>>(), [3, 3, 2]);
    // Other rates of the same paths are no news.
    let slower = rates(&[(3, Some(2.0))]);
    assert_eq!(bench.sender.set_rates(530 * MS, &slower, &mut bench.pool, &mut Vec::new()), None);
    assert_eq!(bench.sender.from(), next);
}

#[test]
fn a_filled_path_carries_dummies_in_batches_where_the_flow_offers_too_little() {
    for (offered_mbps, wanted) in [(0.0, 8.0), (3.0, 8.0), (20.0, 10.0)] {
        let mut bench = Bench::new(vec![path(1, Some(10.0), &[1]), path(2, Some(0.0), &[2])]);
        let change = RateChange { fill: BTreeMap::from([(1, 8.0), (2, 8.0)]), ..RateChange::default() };
        bench.sender.set_rates(0, &change, &mut bench.pool, &mut Vec::new());
        let (mut now, mut offered) = (0, 0.0);
        while now < 400 * MS {
            while offered < offered_mbps / 8e3 * now as f64 && bench.offer(now, 1000) {
                offered += 1016.0;
            }
            bench.service(now);
            now = bench.sender.next_due(now).unwrap().clamp(now + 1, now + MS / 2);
        }
        let mbps = bench.bytes(1, 0, 400 * MS) * 8e-6 / 0.4;
        assert!((mbps - wanted).abs() < 0.08 * wanted, "{mbps} Mb/s");
        assert_eq!(bench.bytes(2, 0, 400 * MS), 0.0, "a path with rate 0 is not filled");
        let dummies: Vec<u64> = bench.log.iter().filter(|l| l.3 == 4).map(|l| l.0).collect();
        assert_eq!(dummies.is_empty(), offered_mbps > 8.0);
        let batches = dummies.windows(2).filter(|w| w[1] > w[0]).count() + 1;
        assert!(dummies.is_empty() || dummies.len() / batches >= 10, "{} in {batches}", dummies.len());
        // The next message without a fill ends it.
        bench.sender.set_rates(400 * MS, &rates(&[(1, Some(10.0))]), &mut bench.pool, &mut Vec::new());
        let before = bench.sender.dummies;
        for t in 400..500 {
            bench.service(t * MS);
        }
        assert_eq!(bench.sender.dummies, before);
    }
}

#[test]
fn a_flow_that_was_silent_sends_a_burst_at_its_greatest_rates_and_one_that_always_sends_has_none() {
    let burst = BurstConfig { bytes: 50_000, ms: 100 };
    let mut bench = Bench::with(Ingress { burst, ..flow(vec![path(1, Some(40.0), &[1]), path(2, Some(40.0), &[2])]) });
    bench.sender.set_rates(0, &rates(&[(1, Some(8.0)), (2, Some(4.0))]), &mut bench.pool, &mut Vec::new());
    let mbps = |bench: &Bench, from: u64, to: u64| {
        [1, 2].map(|id| bench.bytes(id, from * MS, to * MS) * 8e-3 / (to - from) as f64)
    };
    // Busy from the beginning, with the gaps that TCP makes; new flows have a burst.
    for round in 0..20u64 {
        bench.saturate(round * 150 * MS, (round * 150 + 80) * MS, || 1000);
    }
    bench.saturate(2_950 * MS, 3_000 * MS, || 1000);
    // At first it makes up for some of the time in which frames waited and it was not run.
    let [one, two] = mbps(&bench, 2_951, 3_000);
    assert!(one < 8.6 && two < 4.6, "{one}, {two}");
    // Silence, with the queue empty.
    for t in 3_000..4_000 {
        bench.service(t * MS);
    }
    assert_eq!(bench.sender.queued(), 0);
    bench.saturate(4_000 * MS, 4_500 * MS, || 1000);
    // 50 kB at 40 + 40 Mb/s (less 5 % for 4 s): 5 ms, and what a late agent may catch up.
    let [one, two] = mbps(&bench, 4_000, 4_005);
    assert!((30.0..46.0).contains(&one) && (30.0..46.0).contains(&two), "{one}, {two}");
    let [one, two] = mbps(&bench, 4_010, 4_500);
    assert!((one / 8.0 - 1.0).abs() < 0.03 && (two / 4.0 - 1.0).abs() < 0.03, "{one}, {two}");
    // A path without a rate is not used for it.
    bench.sender.set_rates(4_500 * MS, &rates(&[(1, Some(0.0))]), &mut bench.pool, &mut Vec::new());
    bench.saturate(6_000 * MS, 6_020 * MS, || 1000);
    let [one, two] = mbps(&bench, 6_000, 6_010);
    assert!(one < 0.1 && two > 30.0, "{one}, {two}");
}

/// Two paths of 8 Mb/s for 200 ms, then others; what the first ones sent before, and all that is sent afterwards.
fn after_a_change(then: Vec<OutPath>) -> (Bench, usize) {
    let mut bench = Bench::new(vec![path(1, Some(8.0), &[1]), path(2, Some(8.0), &[2])]);
    bench.saturate(0, 200 * MS, || 1000);
    let before = bench.sequences.len();
    let mut out = Vec::new();
    let exits = bench.exits.clone();
    bench.sender.update(200 * MS, &flow(then), &exits, &mut bench.pool, &mut out);
    out.into_iter().for_each(|(_, buf)| bench.note(200 * MS, buf));
    bench.saturate(200 * MS, 300 * MS, || 1000);
    (bench, before)
}

#[test]
fn what_a_path_was_given_lately_goes_again_first_once_it_is_gone() {
    let (bench, before) = after_a_change(vec![path(1, Some(8.0), &[1])]);
    let (old, new) = bench.sequences.split_at(before);
    let again: Vec<u32> = new.iter().copied().take_while(|number| old.contains(number)).collect();
    let data: Vec<_> = bench.log.iter().filter(|l| l.3 == Kind::Data as u8).take(before).collect();
    let mut wanted: Vec<u32> =
        data.iter().zip(old).filter(|(l, _)| l.1 == 2 && l.0 >= 180 * MS).map(|(_, number)| *number).collect();
    wanted.reverse();
    assert!(wanted.len() > 15, "{}", wanted.len());
    assert_eq!(again, wanted);
    assert_eq!(bench.sender.resent, again.len() as u64);
    // Then the flow goes on where it was, each number once.
    let next = old.last().unwrap().wrapping_add(1);
    assert!(new[again.len()..].iter().enumerate().all(|(k, number)| *number == next.wrapping_add(k as u32)));
}

#[test]
fn nothing_goes_again_for_a_path_that_was_not_in_use_any_more() {
    let (mut bench, _) = after_a_change(vec![path(1, Some(8.0), &[1]), path(2, Some(0.0), &[2])]);
    let mut out = Vec::new();
    let exits = bench.exits.clone();
    let alone = flow(vec![path(1, Some(8.0), &[1])]);
    bench.sender.update(300 * MS, &alone, &exits, &mut bench.pool, &mut out);
    out.into_iter().for_each(|(_, buf)| bench.note(300 * MS, buf));
    bench.saturate(300 * MS, 400 * MS, || 1000);
    assert_eq!(bench.sender.resent, 0);
}

#[test]
fn what_is_remembered_is_bounded_and_given_back() {
    let mut bench = Bench::new(vec![path(1, Some(300.0), &[1]), path(2, Some(300.0), &[2])]);
    bench.saturate(0, 200 * MS, || 1000);
    let copies = bench.pool.in_use() - bench.sender.queued();
    assert!((1..=256).contains(&copies), "{copies}");
    for now in (400..4_000).step_by(20) {
        bench.service(now * MS);
    }
    assert_eq!((bench.sender.queued(), bench.pool.in_use()), (0, 0));
}
