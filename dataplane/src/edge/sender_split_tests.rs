//! Senders with a fixed or a HyWF split, driven by a simulated clock.

use super::tests::{flow, path, rates, Bench};
use super::*;
use crate::edge::protocol::OutPath;
use crate::edge::split_config::{HywfConfig, PaddingConfig};
use std::collections::BTreeMap;

fn hywf() -> HywfConfig {
    HywfConfig { n_cons: 20.0, cost_share: None, n_chp: None, p_d: None, silence_ms: 1000, padding: None }
}

fn bench(split: SplitMode, paths: Vec<OutPath>) -> Bench {
    Bench::with(Ingress { split, ..flow(paths) })
}

fn unshaped() -> Vec<OutPath> {
    vec![path(1, None, &[]), path(2, None, &[])]
}

fn data(bench: &Bench) -> Vec<(u64, u8)> {
    bench.log.iter().filter(|l| l.3 == Kind::Data as u8).map(|l| (l.0, l.1)).collect()
}

/// One frame each millisecond for `frames` of them, then a silence: one access after the other.
fn accesses(bench: &mut Bench, count: u64, frames: u64, silence_ms: u64) -> Vec<Vec<u8>> {
    let every = frames + silence_ms;
    for access in 0..count {
        for frame in 0..frames {
            let now = (1 + access * every + frame) * MS;
            assert!(bench.offer(now, 500));
            bench.service(now);
        }
    }
    let sent = data(bench);
    assert_eq!(sent.len() as u64, count * frames);
    let of = |access: u64| sent.iter().filter(|s| (s.0 / MS - 1) / every == access).map(|s| s.1).collect();
    (0..count).map(of).collect()
}

fn shares(accesses: &[Vec<u8>]) -> Vec<f64> {
    let share = |a: &Vec<u8>| a.iter().filter(|p| **p == 1).count() as f64 / a.len() as f64;
    accesses.iter().map(share).collect()
}

fn moments(values: &[f64]) -> (f64, f64) {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    (mean, values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / values.len() as f64)
}

#[test]
fn every_access_has_a_share_of_its_own_and_silence_tells_them_apart() {
    // Short runs, so that the share seen is near the share drawn.
    let short = HywfConfig { n_cons: 2.0, ..hywf() };
    let mut private = bench(SplitMode::Hywf(short), unshaped());
    let seen = shares(&accesses(&mut private, 400, 400, 1001));
    let (mean, variance) = moments(&seen);
    assert!((mean - 0.5).abs() < 0.05, "{mean}");
    // Of a uniform share 1/12, and a little for the runs.
    assert!((0.07..0.10).contains(&variance), "{variance}");
    // Pauses that are too short leave it one access.
    let mut private = bench(SplitMode::Hywf(short), unshaped());
    let (_, within) = moments(&shares(&accesses(&mut private, 400, 400, 900)));
    assert!(within < 0.005, "{within}");
    let costly = HywfConfig { cost_share: Some(0.1), ..short };
    let (mean, _) = moments(&shares(&accesses(&mut bench(SplitMode::Hywf(costly), unshaped()), 400, 400, 1001)));
    assert!((mean - 0.1).abs() < 0.02, "{mean}");
}

#[test]
fn runs_have_their_mean_length_within_an_access() {
    let mut private = bench(SplitMode::Hywf(hywf()), unshaped());
    let all = accesses(&mut private, 60, 3000, 1001);
    // A run on network 1 ends with probability (1 - p) / n_cons, on network 2 with p / n_cons: expected changes.
    let (mut seen, mut expected) = (0.0, 0.0);
    for (access, share) in all.iter().zip(shares(&all)) {
        seen += access.windows(2).filter(|w| w[0] != w[1]).count() as f64;
        expected += 2.0 * share * (1.0 - share) / 20.0 * (access.len() - 1) as f64;
    }
    assert!((seen / expected - 1.0).abs() < 0.08, "{seen} changes where {expected} are expected");
}

#[test]
fn senders_with_other_seeds_split_independently() {
    let spec = Ingress { split: SplitMode::Hywf(hywf()), ..flow(unshaped()) };
    let of = |seed| {
        let mut private = Bench::with(spec.clone());
        private.sender = Sender::new(0, &spec, &private.exits, 7, seed, 0, &mut private.pool);
        shares(&accesses(&mut private, 300, 100, 1001))
    };
    let (there, back) = (of(11), of(12));
    let ((a, va), (b, vb)) = (moments(&there), moments(&back));
    let together: f64 = there.iter().zip(&back).map(|(x, y)| (x - a) * (y - b)).sum::<f64>() / 300.0;
    assert!((together / (va * vb).sqrt()).abs() < 0.2, "correlation {}", together / (va * vb).sqrt());
    assert_eq!(there, of(11));
}

#[test]
fn both_paths_are_paced_and_used_at_once() {
    let fixed_share = HywfConfig { n_cons: 5.0, n_chp: Some(1e9), p_d: Some(0.5), ..hywf() };
    let settings = HywfConfig { padding: Some(PaddingConfig { max_per_s: 0.0, ..Default::default() }), ..fixed_share };
    let mut private = bench(SplitMode::Hywf(settings), vec![path(1, Some(10.0), &[1]), path(2, Some(10.0), &[2])]);
    private.saturate(0, 4_000 * MS, || 1000);
    let carried = |id| private.bytes(id, 0, 4_000 * MS) / 5e6;
    assert!(carried(1) <= 1.01 && carried(2) <= 1.01, "{} {}", carried(1), carried(2));
    assert!(private.pool.in_use() > 0);
    // p itself is drawn in [0, 1] around p_d: the path with the larger part is full.
    assert!(carried(1).max(carried(2)) > 0.93, "{} {}", carried(1), carried(2));
    let frames = data(&private);
    let in_use = |from: u64, id: u8| frames.iter().any(|f| f.1 == id && (from..from + 100 * MS).contains(&f.0));
    let both = (0..40).filter(|k| in_use(k * 100 * MS, 1) && in_use(k * 100 * MS, 2)).count();
    assert!(both > 30, "{both} of 40 intervals use both paths");
}

#[test]
fn sequence_numbers_rise_on_every_path_and_none_is_missing() {
    let mut private = bench(SplitMode::Hywf(hywf()), vec![path(1, Some(20.0), &[1]), path(2, Some(5.0), &[2])]);
    private.saturate(0, 1_000 * MS, || 700);
    // A path that stops hands over what was bound to it; one that is taken out as well; back again.
    let mut out = Vec::new();
    private.sender.set_rates(1_000 * MS, &rates(&[(2, Some(0.0))]), &mut private.pool, &mut out);
    private.saturate(1_000 * MS, 1_200 * MS, || 700);
    let before = data(&private).len();
    assert!(data(&private)[..before].iter().all(|f| f.1 == 1 || f.0 < 1_000 * MS));
    private.sender.set_rates(1_200 * MS, &rates(&[(2, Some(5.0))]), &mut private.pool, &mut out);
    private.saturate(1_200 * MS, 1_500 * MS, || 700);
    let spec = Ingress { split: SplitMode::Hywf(hywf()), ..flow(vec![path(2, Some(5.0), &[2])]) };
    private.sender.update(1_500 * MS, &spec, &private.exits.clone(), &mut private.pool, &mut out);
    private.saturate(1_500 * MS, 1_800 * MS, || 700);
    // Another split: what was bound leaves at once.
    let spec = flow(vec![path(2, Some(5.0), &[2]), path(3, Some(5.0), &[])]);
    private.sender.update(1_800 * MS, &spec, &private.exits.clone(), &mut private.pool, &mut out);
    for (_, buf) in out.split_off(0) {
        private.note(1_800 * MS, buf);
    }
    private.saturate(1_800 * MS, 2_000 * MS, || 700);
    let mut sequences: Vec<u32> = private.sequences.iter().map(|s| s.wrapping_sub(u32::MAX - 5)).collect();
    sequences.sort_unstable();
    assert_eq!(sequences, (0..sequences.len() as u32).collect::<Vec<_>>());
    assert_eq!(private.sender.sent as usize, sequences.len());
    private.sender.dismiss(2_000 * MS, &mut private.pool, &mut out);
    for (_, buf) in out {
        private.pool.give(buf);
    }
    assert_eq!(private.pool.in_use(), 0);
}

#[test]
fn a_path_that_is_alone_gets_all_and_without_paths_frames_wait() {
    let mut private = bench(SplitMode::Hywf(hywf()), vec![path(1, Some(0.0), &[1]), path(2, Some(50.0), &[2])]);
    for i in 1..200 {
        private.offer(i * MS, 500);
        private.service(i * MS);
    }
    assert!(data(&private).iter().all(|f| f.1 == 2));
    private.sender.set_rates(200 * MS, &rates(&[(2, Some(0.0))]), &mut private.pool, &mut Vec::new());
    let before = data(&private).len();
    while private.offer(200 * MS, 500) {}
    private.service(300 * MS);
    // The bound is that of the greatest rate of the last second: 60 ms of 50 Mb/s.
    assert_eq!((data(&private).len(), private.sender.queued()), (before, 750));
    assert_eq!(private.sender.queued_bytes(), 750 * 500, "staged frames wait, too");
    // All that is due is that the pause is said again.
    assert_eq!(private.sender.next_due(300 * MS), Some(340 * MS));
}

#[test]
fn padding_fills_gaps_only_counts_for_the_pacing_and_stops() {
    let padding = PaddingConfig { gap_ms: 40.0, deviation_ms: 4.0, max_per_s: 1000.0 };
    // Gaps of 391 ms, of which the first 190 ms are padded.
    let ap = HywfConfig { n_chp: Some(100.0), p_d: Some(0.5), padding: Some(padding), silence_ms: 190, ..hywf() };
    let mut private = bench(SplitMode::Hywf(ap), vec![path(1, Some(10.0), &[1]), path(2, Some(10.0), &[2])]);
    let mut now = 10_000 * MS;
    for burst in 0..500u64 {
        let start = 10_000 * MS + burst * 400 * MS;
        for i in 0..10 {
            private.offer(start + i * MS, 300 + i as usize);
        }
        while now < start + 400 * MS {
            private.service(now);
            now = private.sender.next_due(now).unwrap().max(now + 1);
        }
    }
    let dummies: Vec<_> = private.log.iter().filter(|l| l.3 == Kind::Padding as u8).collect();
    let per_gap = dummies.len() as f64 / 500.0;
    assert!((3.8..4.2).contains(&per_gap), "{per_gap}");
    assert_eq!(private.sender.dummies, dummies.len() as u64);
    // As long as users' frames: labels and shim on top of 300 to 309 bytes.
    assert!(dummies.iter().all(|l| (316..326).contains(&l.2)));
    assert!(dummies.iter().all(|l| (l.0 - 10_000 * MS) % (400 * MS) > 10 * MS), "a dummy within a burst");
    let second = dummies.iter().filter(|l| l.1 == 2).count() as f64 / dummies.len() as f64;
    assert!((0.3..0.7).contains(&second), "{second}");
}

#[test]
fn fixed_shares_hold_and_give_way_if_no_path_of_theirs_is_left() {
    let shares = BTreeMap::from([(1, 0.8), (2, 0.2)]);
    let mut fixed = bench(SplitMode::Fixed { shares }, vec![path(1, Some(10.0), &[]), path(2, Some(40.0), &[])]);
    for i in 1..=1000 {
        fixed.offer(i * MS, 500);
        fixed.service(i * MS);
    }
    assert_eq!(data(&fixed).iter().filter(|f| f.1 == 1).count(), 800);
    let shares = BTreeMap::from([(1, 1.0)]);
    let mut fixed = bench(SplitMode::Fixed { shares }, vec![path(1, Some(0.0), &[]), path(2, Some(40.0), &[])]);
    fixed.offer(MS, 500);
    fixed.service(MS);
    assert_eq!(data(&fixed).len(), 1);
}
