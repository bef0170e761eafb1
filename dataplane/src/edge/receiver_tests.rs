//! A model of paths with delay, jitter and loss in front of a receiver.

use super::*;
use crate::edge::testing::Rng;

const FLOW: u16 = 16;

struct Bench {
    receiver: Receiver,
    got: Vec<(u64, u32)>,
    wasted: usize,
}

fn options(equalise: bool) -> ReceiverOptions {
    ReceiverOptions { reorder: true, equalise, max_hold_ns: 100 * MS, hold_ns: 2_000 * MS, drop_late: false }
}

fn frame(sequence: u32) -> Buf {
    let mut buf = Buf::with_size(64);
    let mut bytes = [0; 20];
    bytes[14..18].copy_from_slice(&sequence.to_be_bytes());
    buf.set(&bytes);
    buf
}

fn shim(kind: Kind, path: u8, sequence: u32, sent_ns: u64) -> Shim {
    Shim { kind, path, flow: FLOW, sequence, sent_us: (sent_ns / 1000) as u32 }
}

impl Bench {
    fn new(options: ReceiverOptions, paths: &[u8]) -> Self {
        Bench { receiver: Receiver::new(0, options, paths), got: Vec::new(), wasted: 0 }
    }

    fn collect(&mut self, now_ns: u64, out: Released) {
        self.wasted += out.waste.len();
        for buf in out.deliver {
            let b = &buf.bytes()[14..18];
            self.got.push((now_ns, u32::from_be_bytes([b[0], b[1], b[2], b[3]])));
        }
    }

    /// Lets the receiver's timers fire up to `to_ns`.
    fn run(&mut self, from_ns: u64, to_ns: u64) {
        let mut now = from_ns;
        while let Some(due) = self.receiver.next_due(now) {
            assert!(due > now || due <= from_ns, "the receiver wants to be polled for ever");
            if due > to_ns {
                return;
            }
            now = due.max(now);
            let mut out = Released::default();
            self.receiver.poll(now, &mut out);
            self.collect(now, out);
        }
    }

    fn put(&mut self, now_ns: u64, shim: Shim) {
        let mut out = Released::default();
        let buf = (shim.kind == Kind::Data).then(|| frame(shim.sequence));
        self.receiver.on_frame(now_ns, shim, buf, 40, &mut out);
        self.collect(now_ns, out);
    }

    /// Arrivals (time, shim) in any order; then a second in which nothing comes.
    fn play(&mut self, arrivals: Vec<(u64, Shim)>) -> u64 {
        let last = self.play_to(arrivals);
        self.run(last, last + 1_000 * MS);
        last
    }

    fn play_to(&mut self, mut arrivals: Vec<(u64, Shim)>) -> u64 {
        arrivals.sort_by_key(|(at, _)| *at);
        let mut last = 0;
        for (at, shim) in arrivals {
            self.run(last, at);
            self.put(at, shim);
            last = at;
        }
        last
    }

    fn numbers(&self) -> Vec<u32> {
        self.got.iter().map(|(_, s)| *s).collect()
    }
}

/// Frames sent every `gap_ns` over paths round robin, FIFO per path with jitter; None from `loss` drops a frame.
fn traffic(
    rng: &mut Rng,
    count: u32,
    start: u32,
    delays_ms: &[u64],
    jitter_ns: usize,
    loss: f64,
) -> (Vec<(u64, Shim)>, Vec<u32>) {
    let mut arrivals = Vec::new();
    let mut lost = Vec::new();
    let mut free = vec![0u64; delays_ms.len()];
    for k in 0..count {
        let sequence = start.wrapping_add(k);
        let path = k as usize % delays_ms.len();
        let sent = 1_000 * MS + u64::from(k) * MS / 2;
        let at = (sent + delays_ms[path] * MS + rng.below(jitter_ns + 1) as u64).max(free[path] + 1);
        if rng.uniform() < loss {
            lost.push(sequence);
            continue;
        }
        free[path] = at;
        arrivals.push((at, shim(Kind::Data, path as u8 + 1, sequence, sent)));
    }
    (arrivals, lost)
}

#[test]
fn output_is_in_order_and_every_frame_comes_out_once() {
    let mut rng = Rng::new(5);
    for round in 0..60 {
        let delays: Vec<u64> = (0..1 + rng.below(4)).map(|_| 1 + rng.below(40) as u64).collect();
        let loss = if round % 2 == 0 { 0.0 } else { 0.05 };
        let start = u32::MAX - rng.below(1500) as u32;
        let (arrivals, lost) = traffic(&mut rng, 1500, start, &delays, 2_000_000, loss);
        let ids: Vec<u8> = (1..=delays.len() as u8).collect();
        let mut bench = Bench::new(options(round % 3 == 0), &ids);
        // A keep-alive tells where the flow starts, as senders do.
        let hello = ids.iter().map(|id| (MS, shim(Kind::KeepAlive, *id, start, 0)));
        bench.play(hello.chain(arrivals).collect());
        let wanted: Vec<u32> = (0..1500).map(|k| start.wrapping_add(k)).filter(|s| !lost.contains(s)).collect();
        assert_eq!(bench.numbers(), wanted, "delays {delays:?}");
        let counters = &bench.receiver.counters;
        assert_eq!((counters.duplicate, counters.late, bench.wasted), (0, 0, 0));
        // The tail of a flow is only known to be lost from a keep-alive.
        let tail = lost.iter().rev().zip((0..1500).rev()).take_while(|(s, k)| **s == start.wrapping_add(*k)).count();
        assert_eq!((counters.lost + counters.timed_out) as usize, lost.len() - tail);
        assert_eq!(bench.receiver.held(), 0);
    }
}

#[test]
fn a_loss_is_known_once_all_paths_passed_without_any_timer() {
    let mut bench = Bench::new(options(false), &[1, 2]);
    let t = 1_000 * MS;
    bench.put(t, shim(Kind::Data, 1, 0, t));
    bench.put(t + MS, shim(Kind::Data, 2, 1, t));
    bench.put(t + 2 * MS, shim(Kind::Data, 1, 3, t));
    assert_eq!(bench.numbers(), [0, 1]);
    // Path 2 passed number 2 as well, by a keep-alive.
    bench.put(t + 3 * MS, shim(Kind::KeepAlive, 2, 4, t));
    assert_eq!(bench.got.last(), Some(&(t + 3 * MS, 3)));
    assert_eq!(bench.receiver.counters.lost, 1);
}

#[test]
fn frames_on_a_slow_path_are_waited_for_once_a_keep_alive_tells_of_them() {
    let mut bench = Bench::new(options(false), &[1, 2]);
    let hello = 1_000 * MS;
    let mut arrivals = vec![(hello, shim(Kind::KeepAlive, 1, 0, 0)), (hello, shim(Kind::KeepAlive, 2, 0, 0))];
    // After a silence a whole run takes the slow path; the other only says that numbers were used.
    let t = 3_000 * MS;
    arrivals.extend((0..20).map(|k| (t + 30 * MS + u64::from(k), shim(Kind::Data, 2, k, t))));
    arrivals.push((t + 15 * MS, shim(Kind::KeepAlive, 1, 20, t)));
    arrivals.push((t + 22 * MS, shim(Kind::Data, 1, 20, t)));
    bench.play(arrivals);
    assert_eq!(bench.numbers(), (0..=20).collect::<Vec<_>>());
    assert_eq!((bench.receiver.counters.lost, bench.receiver.counters.late), (0, 0));
}

/// Path 1 carries the flow and takes 40 ms; path 2 takes 4 ms and is idle, so that keep-alives alone come by it.
#[test]
fn a_keep_alive_that_was_faster_costs_nothing_that_was_sent_before() {
    for begins_ms in 0..60 {
        let t = 1_000 * MS;
        let data = (0..200u32).map(|k| (u64::from(k), shim(Kind::Data, 1, 500 + k, t + u64::from(k) * MS)));
        let idle =
            (0..10u32).map(|k| (u64::from(20 * k), shim(Kind::KeepAlive, 2, 500 + 20 * k, t + u64::from(20 * k) * MS)));
        let arrivals = data.map(|(ms, s)| (t + (ms + 40) * MS, s)).chain(idle.map(|(ms, s)| (t + (ms + 4) * MS, s)));
        // The receiver begins in the middle of the flow, as after a restart of its agent.
        let begins = t + begins_ms * MS;
        let heard: Vec<_> = arrivals.filter(|(at, _)| *at >= begins).collect();
        let first = begins_ms.saturating_sub(40) as u32;
        let mut bench = Bench::new(ReceiverOptions { drop_late: true, ..options(false) }, &[1, 2]);
        bench.play(heard);
        assert_eq!(bench.numbers(), (500 + first..700).collect::<Vec<_>>(), "from {begins_ms} ms");
        let counters = &bench.receiver.counters;
        assert_eq!((counters.lost, counters.timed_out, counters.stale, bench.wasted), (0, 0, 0, 0));
    }
}

#[test]
fn a_path_that_names_an_earlier_number_is_waited_for_at_the_beginning() {
    let mut bench = Bench::new(ReceiverOptions { drop_late: true, ..options(false) }, &[1, 2]);
    let t = 1_000 * MS;
    bench.put(t, shim(Kind::KeepAlive, 2, 101, t));
    bench.put(t + MS, shim(Kind::KeepAlive, 1, 100, t - 10 * MS));
    bench.put(t + 2 * MS, shim(Kind::Data, 2, 101, t));
    assert!(bench.got.is_empty());
    bench.put(t + 3 * MS, shim(Kind::Data, 1, 100, t - 8 * MS));
    assert_eq!(bench.numbers(), [100, 101]);
    // Something was delivered: what is older is late.
    bench.put(t + 4 * MS, shim(Kind::Data, 1, 99, t));
    let counters = &bench.receiver.counters;
    assert_eq!((counters.lost, counters.timed_out, counters.stale, bench.got.len()), (0, 0, 1, 2));
    // Nothing more comes by a path that has paused.
    let mut other = Bench::new(options(false), &[1, 2]);
    other.put(t, shim(Kind::KeepAlive, 2, 101, t));
    other.put(t + MS, shim(Kind::Pause, 1, 100, t));
    other.put(t + 2 * MS, shim(Kind::Data, 2, 101, t));
    assert_eq!((other.numbers(), other.receiver.counters.lost), (vec![101], 0));
}

#[test]
fn hold_is_bounded_and_a_silent_path_is_not_waited_for() {
    let mut bench = Bench::new(options(false), &[1, 2]);
    let t = 1_000 * MS;
    let mut arrivals = vec![(t, shim(Kind::KeepAlive, 1, 0, t)), (t, shim(Kind::KeepAlive, 2, 0, t))];
    // Path 2 dies at once: every second frame is lost.
    for k in (0..2000u32).step_by(2) {
        let at = t + MS + u64::from(k) * MS / 2;
        arrivals.push((at, shim(Kind::Data, 1, k, at)));
    }
    bench.play(arrivals);
    assert_eq!(bench.got.len(), 1000);
    for (at, sequence) in &bench.got {
        let sent = t + MS + u64::from(*sequence) * MS / 2;
        assert!(at - sent <= 100 * MS, "held for {} ms", (at - sent) / MS);
        // Once the path has been silent for 150 ms nothing waits any more.
        if sent > t + 155 * MS {
            assert_eq!(*at, sent);
        }
    }
}

/// Two paths in turn, a frame each millisecond; path 2 dies at `dead_ns`. Frames of path 1 and when they came out.
fn death_of_a_path(jitter_ns: u64, dead_ns: u64, absent: std::ops::Range<u64>) -> Bench {
    let mut bench = Bench::new(options(false), &[1, 2]);
    let mut rng = Rng::new(7);
    let (mut arrivals, mut sequence) = (Vec::new(), 0);
    for at in (1_000 * MS..dead_ns + 400 * MS).step_by(MS as usize) {
        let path = 1 + (sequence % 2) as u8;
        if path == 1 || at < dead_ns {
            let late = if jitter_ns > 0 && path == 2 { jitter_ns * u64::from(rng.below(8) == 0) } else { 0 };
            // Nobody reads while the agent is not run.
            let read = if absent.contains(&(at + late)) { absent.end } else { at + late };
            arrivals.push((read, shim(Kind::Data, path, sequence, at)));
        }
        sequence += 1;
    }
    // Paths keep their order.
    let mut last = [0; 3];
    for (at, shim) in &mut arrivals {
        *at = (*at).max(last[usize::from(shim.path)]);
        last[usize::from(shim.path)] = *at;
    }
    bench.play(arrivals);
    bench
}

fn longest_pause_ns(bench: &Bench, from_ns: u64) -> u64 {
    let times: Vec<u64> = bench.got.iter().map(|(at, _)| *at).filter(|at| *at >= from_ns).collect();
    times.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0)
}

#[test]
fn a_path_that_was_never_silent_is_not_waited_for_long_when_it_dies() {
    let bench = death_of_a_path(0, 3_000 * MS, 0..0);
    let pause_ns = longest_pause_ns(&bench, 2_000 * MS);
    assert!((20 * MS..=35 * MS).contains(&pause_ns), "{} ms", pause_ns / MS);
    assert_eq!((bench.receiver.counters.late, bench.receiver.counters.timed_out), (0, 0));
}

#[test]
fn a_path_that_is_silent_now_and_then_is_waited_for_longer() {
    for jitter_ms in [10, 25, 40] {
        let bench = death_of_a_path(jitter_ms * MS, 5_000 * MS, 0..0);
        assert_eq!((bench.receiver.counters.late, bench.receiver.counters.stale), (0, 0), "{jitter_ms} ms");
        let pause_ns = longest_pause_ns(&bench, 5_000 * MS);
        assert!(pause_ns <= 105 * MS, "{jitter_ms} ms: {} ms", pause_ns / MS);
    }
}

#[test]
fn no_path_is_taken_for_dead_because_the_agent_was_not_run() {
    for absent_ms in [10, 40, 90, 140] {
        let bench = death_of_a_path(0, 6_000 * MS, 3_000 * MS..(3_000 + absent_ms) * MS);
        let wanted = bench.numbers().windows(2).all(|pair| pair[0] < pair[1]);
        assert!(wanted, "{absent_ms} ms");
        assert_eq!((bench.receiver.counters.late, bench.receiver.counters.stale), (0, 0), "{absent_ms} ms");
    }
}

#[test]
fn what_a_path_that_is_gone_was_given_is_waited_for_a_moment() {
    for (comes_after_ms, in_order) in [(10, true), (25, true), (200, false)] {
        let mut bench = Bench::new(options(false), &[1, 2]);
        let (mut arrivals, mut sequence) = (Vec::new(), 0);
        for at in (1_000..2_000).map(|ms| ms * MS) {
            arrivals.push((at, shim(Kind::Data, 1 + (sequence % 2) as u8, sequence, at)));
            sequence += 1;
        }
        let dead = arrivals.pop().unwrap().1.sequence;
        let last = bench.play_to(arrivals);
        bench.receiver.update(last, options(false), &[1]);
        let mut rest: Vec<_> = (1..400u32)
            .map(|k| (last + u64::from(k) * MS, shim(Kind::Data, 1, dead + k, last + u64::from(k) * MS)))
            .collect();
        rest.push((last + comes_after_ms * MS + 1, shim(Kind::Data, 1, dead, last)));
        bench.play(rest);
        let numbers = bench.numbers();
        assert_eq!(numbers.windows(2).all(|pair| pair[0] < pair[1]), in_order, "{comes_after_ms} ms");
        assert_eq!(numbers.len(), 1_399, "{comes_after_ms} ms: each comes out once");
        assert!(longest_pause_ns(&bench, 1_500 * MS) <= 35 * MS, "{comes_after_ms} ms");
    }
}

#[test]
fn a_paused_path_is_not_waited_for_at_all() {
    let mut bench = Bench::new(options(false), &[1, 2]);
    let t = 1_000 * MS;
    bench.put(t, shim(Kind::Data, 2, 0, t));
    bench.put(t, shim(Kind::Pause, 2, 1, t));
    bench.put(t, shim(Kind::Data, 1, 1, t));
    bench.put(t + MS, shim(Kind::Data, 1, 3, t));
    assert_eq!(bench.numbers(), [0, 1, 3]);
    // It is back with its next frame, and waited for again.
    bench.put(t + 2 * MS, shim(Kind::Data, 2, 4, t));
    bench.put(t + 3 * MS, shim(Kind::Data, 1, 6, t));
    assert_eq!(bench.numbers(), [0, 1, 3, 4]);
    bench.put(t + 4 * MS, shim(Kind::Data, 2, 5, t));
    assert_eq!(bench.numbers(), [0, 1, 3, 4, 5, 6]);
}

#[test]
fn equalisation_gives_all_frames_the_delay_of_the_slowest_path() {
    let mut rng = Rng::new(8);
    let (arrivals, _) = traffic(&mut rng, 4000, 0, &[5, 35], 0, 0.0);
    let mut bench = Bench::new(options(true), &[1, 2]);
    bench.play(arrivals);
    let delay = |at: u64, s: u32| (at - (1_000 * MS + u64::from(s) * MS / 2)) as f64 / 1e6;
    for (at, s) in bench.got.iter().skip(200) {
        assert!((delay(*at, *s) - 35.0).abs() < 0.6, "frame {s} took {} ms", delay(*at, *s));
    }
    let mut plain = Bench::new(options(false), &[1, 2]);
    let (arrivals, _) = traffic(&mut rng, 100, 0, &[5], 0, 0.0);
    plain.play(arrivals);
    assert!(plain.got.iter().all(|(at, s)| delay(*at, *s) < 5.1));
}

#[test]
fn a_stale_queue_of_a_returning_path_is_not_poured_out() {
    let mut bench = Bench::new(options(false), &[1, 2]);
    let t = 1_000 * MS;
    let mut arrivals = vec![(t, shim(Kind::KeepAlive, 1, 0, t)), (t, shim(Kind::KeepAlive, 2, 0, t))];
    for k in 0..4000u32 {
        let sent = t + u64::from(k) * MS;
        match k {
            _ if k % 2 == 0 => arrivals.push((sent + MS, shim(Kind::Data, 1, k, sent))),
            // Path 2 keeps what was sent in the first two seconds and delivers it then, at once.
            0..=1999 => arrivals.push((t + 2_000 * MS + u64::from(k), shim(Kind::Data, 2, k, sent))),
            _ => arrivals.push((sent + 2 * MS, shim(Kind::Data, 2, k, sent))),
        }
    }
    bench.play(arrivals);
    let counters = bench.receiver.counters.clone();
    assert!(counters.late <= 130, "{counters:?}");
    assert_eq!(bench.got.len() + bench.wasted, 4000);
    assert_eq!((counters.lost + counters.timed_out), counters.late + counters.stale);
    assert_eq!(counters.stale as usize, bench.wasted);
    // No stall when the path is back: what is sent later is 1 ms behind at most, for the slower path.
    for (at, s) in bench.got.iter().filter(|(_, s)| *s > 2010) {
        assert!(at - (t + u64::from(*s) * MS) <= 3 * MS);
    }
}

#[test]
fn duplicates_are_dropped_wherever_they_arrive() {
    let mut rng = Rng::new(9);
    let (mut arrivals, lost) = traffic(&mut rng, 2000, 77, &[3, 20], 500_000, 0.02);
    let copies: Vec<_> = arrivals
        .iter()
        .filter(|_| rng.below(3) == 0)
        .map(|(at, s)| (at + 30 * MS, Shim { path: 3 - s.path, ..*s }))
        .collect();
    let count = copies.len();
    arrivals.extend(copies);
    let mut bench = Bench::new(options(false), &[1, 2]);
    bench.play(arrivals);
    let mut numbers = bench.numbers();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), bench.got.len());
    assert_eq!(bench.got.len(), 2000 - lost.len());
    assert_eq!(bench.receiver.counters.duplicate as usize, count);
}

#[test]
fn a_restarted_sender_loses_nothing() {
    let mut bench = Bench::new(options(false), &[1]);
    let t = 1_000 * MS;
    for k in 0..10 {
        bench.put(t + k * MS, shim(Kind::Data, 1, k as u32, t + k * MS));
    }
    for k in 0..10 {
        let at = t + 3_000 * MS + k * MS;
        bench.put(at, shim(Kind::Data, 1, 3_000_000_000 + k as u32, at));
    }
    let wanted: Vec<u32> = (0..10).chain(3_000_000_000..3_000_000_010).collect();
    assert_eq!(bench.numbers(), wanted);
    assert_eq!(bench.receiver.counters.restarts, 1);
    // One forged number does not disturb the flow.
    bench.put(t + 4_000 * MS, shim(Kind::Data, 1, 5, t + 4_000 * MS));
    bench.put(t + 4_001 * MS, shim(Kind::Data, 1, 3_000_000_010, t + 4_001 * MS));
    assert_eq!(bench.numbers().last(), Some(&3_000_000_010));
    bench.run(t + 4_001 * MS, t + 5_000 * MS);
    assert_eq!(bench.numbers().last(), Some(&5));
    assert_eq!(bench.receiver.counters.restarts, 1);
}

#[test]
fn a_sender_whose_clock_started_anew_is_followed_at_once() {
    for back_s in [1u64, 9, 60, 1200, 2100, 100_000] {
        let mut bench = Bench::new(options(true), &[1, 2]);
        let t = 200_000_000 * MS;
        for k in 0..20 {
            bench.put(t + k * MS, shim(Kind::Data, 1 + (k % 2) as u8, k as u32, t + k * MS));
        }
        // The machine was rebooted: new numbers, and a clock that is behind.
        let start = t + 15_000 * MS;
        for k in 0..50 {
            let now = start + k * MS;
            let sent = now - back_s * 1_000 * MS - 15_000 * MS;
            bench.run(now - MS, now);
            bench.put(now, shim(Kind::Data, 1 + (k % 2) as u8, 3_000_000_000 + k as u32, sent));
        }
        bench.run(start + 50 * MS, start + 500 * MS);
        let wanted: Vec<u32> = (0..20).chain(3_000_000_000..3_000_000_050).collect();
        assert_eq!(bench.numbers(), wanted, "{back_s} s back");
    }
}

#[test]
fn one_forged_send_time_does_not_make_the_flow_stale() {
    let mut bench = Bench::new(options(false), &[1, 2]);
    let t = 1_000 * MS;
    bench.put(t, shim(Kind::Data, 1, 0, t));
    bench.put(t, shim(Kind::KeepAlive, 2, 0, t + 600_000 * MS));
    for k in 1..100 {
        let now = t + k * MS;
        bench.run(now - MS, now);
        bench.put(now, shim(Kind::Data, 1 + (k % 2) as u8, k as u32, now));
    }
    assert_eq!(bench.numbers(), (0..100).collect::<Vec<u32>>());
    assert_eq!(bench.wasted, 0);
}

#[test]
fn random_shims_never_panic_or_lose_count() {
    let mut rng = Rng::new(10);
    for _ in 0..100 {
        let mut bench = Bench::new(options(rng.below(2) == 0), &[1, 2]);
        let (mut now, mut given) = (0, 0);
        let mut centre = rng.next() as u32;
        for _ in 0..500 {
            if rng.below(50) == 0 {
                centre = rng.next() as u32;
            }
            let kinds = [Kind::Data, Kind::Data, Kind::KeepAlive, Kind::Pause];
            let sequence = centre.wrapping_add(rng.below(200) as u32);
            let spread = rng.below(400_000_000) as u64;
            let shim = shim(kinds[rng.below(4)], rng.below(4) as u8, sequence, (now + spread).saturating_sub(200 * MS));
            given += u64::from(shim.kind == Kind::Data);
            bench.put(now, shim);
            let later = now + rng.below(5_000_000) as u64;
            bench.run(now, later);
            now = later;
        }
        bench.run(now, now + 10_000 * MS);
        let c = &bench.receiver.counters;
        assert_eq!(c.delivered_frames + c.duplicate + c.stale, given, "{c:?}");
        assert_eq!(c.delivered_frames as usize, bench.got.len());
    }
}
