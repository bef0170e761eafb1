//! Guards: what they take in which order, and that nothing is taken twice.

use super::*;
use crate::edge::frame::parse_network;
use crate::edge::frame::FromNetwork;
use crate::edge::testing::Rng;

const MS: u64 = 1_000_000;
const WRAP_NS: u64 = (1 << 32) * 1000;
const BASE: Base = Base::new([7; 16]);
const OTHER: Base = Base::new([8; 16]);

/// A sending and a receiving end with one key.
struct Ends {
    sealer: Sealer,
    signings: Signings,
    guards: Guards,
}

impl Ends {
    fn new(now_ns: u64, generation: u64) -> Self {
        let mut ends = Ends { sealer: Sealer::new(16), signings: Signings::default(), guards: Guards::default() };
        ends.receive(now_ns, BASE, generation);
        ends.send(now_ns, BASE, generation);
        ends
    }

    fn receive(&mut self, now_ns: u64, base: Base, generation: u64) {
        self.guards.configure(now_ns, generation, &[(16, base)].into(), &HashSet::new());
    }

    fn send(&mut self, now_ns: u64, base: Base, generation: u64) {
        let signing = self.signings.of(now_ns, base, generation);
        self.sealer.set(now_ns, Some(signing));
    }

    /// A whole frame as it arrives.
    fn frame(&mut self, now_ns: u64, kind: Kind, path: u8, sequence: u32) -> Vec<u8> {
        let mut frame = vec![0; 14 + 20];
        frame[12..14].copy_from_slice(&[0x88, 0xb5]);
        frame.extend_from_slice(&[9; 60]);
        self.sealer.write(now_ns, Shim { kind, path, flow: 16, sequence, sent_us: 0 }, &mut frame, 14);
        frame
    }

    fn data(&mut self, now_ns: u64, path: u8, sequence: u32) -> Vec<u8> {
        self.frame(now_ns, Kind::Data, path, sequence)
    }

    fn check(&mut self, now_ns: u64, frame: &[u8]) -> Result<(), Refused> {
        match parse_network(frame) {
            FromNetwork::Shim { shim, seal, inner_at } => {
                let covered = covered_by(shim.kind, frame, &frame[inner_at..]);
                self.guards.check(now_ns, &shim, seal, frame[14..26].try_into().unwrap(), covered).map(drop)
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn each_frame_is_taken_once_whatever_the_order_of_the_paths() {
    let mut ends = Ends::new(0, 5);
    let mut rng = Rng::new(1);
    let mut under_way: Vec<(u64, Vec<u8>)> = Vec::new();
    let mut taken = 0;
    for k in 0..20_000u32 {
        let now_ns = 1_000 * MS + u64::from(k) * 20_000;
        let path = 1 + rng.below(3) as u8;
        // Each path keeps the order; one is 200 ms slower.
        let delay_ns = [1, 30, 200][usize::from(path) - 1] * MS;
        under_way.push((now_ns + delay_ns, ends.data(now_ns, path, k)));
        let due: Vec<_> = under_way.iter().filter(|f| f.0 <= now_ns).cloned().collect();
        under_way.retain(|f| f.0 > now_ns);
        for (_, frame) in due {
            assert_eq!(ends.check(now_ns, &frame), Ok(()));
            taken += 1;
            if rng.below(4) == 0 {
                assert_eq!(ends.check(now_ns, &frame), Err(Refused::Replayed));
            }
            if rng.below(50) == 0 {
                let later_ns = now_ns + rng.below(1_000) as u64 * MS;
                assert_eq!(ends.check(later_ns, &frame), Err(Refused::Replayed));
            }
        }
    }
    assert!(taken > 16_000);
}

#[test]
fn a_path_may_be_out_of_order_by_the_size_of_its_window() {
    let mut ends = Ends::new(0, 1);
    let frames: Vec<Vec<u8>> = (0..RING as u32 + 2).map(|k| ends.data(u64::from(k) * 1_000, 1, k)).collect();
    // The second one comes last of `RING`, the first one after one more.
    let order: Vec<usize> = (2..=RING).chain([1, RING + 1]).collect();
    order.iter().for_each(|at| assert_eq!(ends.check(MS, &frames[*at]), Ok(()), "{at}"));
    assert_eq!(ends.check(MS, &frames[0]), Err(Refused::Replayed));
    (0..frames.len()).for_each(|at| assert_eq!(ends.check(MS, &frames[at]), Err(Refused::Replayed)));
}

#[test]
fn frames_of_one_moment_differ_and_signals_are_taken_once() {
    let mut ends = Ends::new(0, 1);
    for kind in [Kind::KeepAlive, Kind::Pause, Kind::Resume, Kind::Padding, Kind::Data] {
        let frames: Vec<Vec<u8>> = (0..5).map(|_| ends.frame(7 * MS, kind, 1, 4)).collect();
        frames.iter().for_each(|frame| assert_eq!(ends.check(7 * MS, frame), Ok(()), "{kind:?}"));
        frames.iter().for_each(|frame| assert_eq!(ends.check(7 * MS, frame), Err(Refused::Replayed)));
    }
}

#[test]
fn what_nobody_with_the_key_has_made_is_forged() {
    let mut ends = Ends::new(0, 6);
    let mut rng = Rng::new(2);
    let frame = ends.data(MS, 1, 1);
    for _ in 0..2_000 {
        let mut other = frame.clone();
        // Not the EtherType, the bit that says that there is a seal, or the flow.
        let at = [14, 15, 18, 22, 26, 40, 93][rng.below(7)];
        let bit = 1 << rng.below(if at == 14 { 7 } else { 8 });
        other[at] ^= bit;
        if !matches!(parse_network(&other), FromNetwork::Malformed) {
            assert_eq!(ends.check(MS, &other), Err(Refused::Forged), "{at} {bit}");
        }
    }
    let mut bare = frame.clone();
    bare[14] &= 0x1f;
    assert_eq!(ends.check(MS, &bare), Err(Refused::Forged), "without a seal");
    assert_eq!(ends.check(MS, &frame), Ok(()), "none of them has harmed the real one");
}

#[test]
fn keys_change_without_loss_and_without_an_order() {
    let mut ends = Ends::new(0, 5);
    let mut now_ns = 0;
    let mut old = Vec::new();
    for (sends, receives) in [(5, 5), (6, 5), (6, 6), (6, 7), (7, 7), (7, 8), (8, 7)] {
        ends.receive(now_ns, BASE, receives);
        ends.send(now_ns, BASE, sends);
        for k in 0..100 {
            now_ns += MS;
            let frame = ends.data(now_ns, 1, k);
            assert_eq!(ends.check(now_ns, &frame), Ok(()), "{sends} {receives}");
            old.push(frame);
        }
    }
    for frame in &old {
        assert!(ends.check(now_ns, frame).is_err());
    }
    // Two generations on nothing of the first ones counts; if a controller goes back they don't begin anew.
    for generation in [8, 20, 6, 5, 7] {
        ends.receive(now_ns, BASE, generation);
        old.iter().for_each(|frame| assert!(ends.check(now_ns, frame).is_err(), "{generation}"));
    }
}

#[test]
fn a_time_that_begins_anew_is_no_replay_and_makes_none_possible() {
    // The sender's machine has run for 3.5 times 71 minutes.
    let began_ns = 3 * WRAP_NS + WRAP_NS / 2;
    let mut ends = Ends::new(began_ns, 1);
    let mut now_ns = began_ns;
    let first = ends.data(now_ns, 1, 0);
    // The receiver's own clock is another one.
    assert_eq!(ends.check(5 * MS, &first), Ok(()));
    for k in 1..2_000u32 {
        // A keep-alive each 13 s.
        now_ns += 13_000 * MS;
        let frame = ends.frame(now_ns, Kind::KeepAlive, 1, 1);
        assert_eq!(ends.check(now_ns - began_ns, &frame), Ok(()), "{k}");
        assert!(ends.check(now_ns - began_ns, &first).is_err(), "{k}");
    }
    // Silence of a day.
    now_ns += 20 * WRAP_NS;
    let frame = ends.data(now_ns, 1, 1);
    assert_eq!(ends.check(now_ns - began_ns, &frame), Ok(()));
    assert!(ends.check(now_ns - began_ns, &first).is_err());
}

#[test]
fn a_receiver_that_comes_late_finds_the_time() {
    for wraps in [0, 1, 7, u64::from(FIRST_HIGHS) - 1] {
        let mut ends = Ends::new(0, 1);
        let frame = ends.data(wraps * WRAP_NS + 5 * MS, 1, 0);
        assert_eq!(ends.check(9 * MS, &frame), Ok(()), "{wraps}");
        assert_eq!(ends.check(9 * MS, &frame), Err(Refused::Replayed));
    }
}

#[test]
fn a_flow_that_ends_and_comes_again_takes_nothing_of_before() {
    let mut ends = Ends::new(0, 1);
    let frames: Vec<Vec<u8>> = (0..50).map(|k| ends.data(u64::from(k) * MS, 1, k)).collect();
    frames[..40].iter().for_each(|frame| assert_eq!(ends.check(60 * MS, frame), Ok(())));
    ends.guards.configure(70 * MS, 1, &HashMap::new(), &HashSet::new());
    assert!(!ends.guards.has(16));
    // Another flow has the number meanwhile.
    ends.receive(80 * MS, OTHER, 1);
    ends.guards.configure(90 * MS, 1, &HashMap::new(), &HashSet::new());
    ends.receive(100 * MS, BASE, 1);
    frames[..40].iter().for_each(|frame| assert_eq!(ends.check(100 * MS, frame), Err(Refused::Replayed)));
    // The sender goes on with its time, also if the flow began anew there.
    ends.sealer = Sealer::new(16);
    ends.send(3 * WRAP_NS, BASE, 1);
    let frame = ends.data(3 * WRAP_NS, 1, 0);
    assert_eq!(ends.check(3 * WRAP_NS + 100 * MS, &frame), Ok(()));
}

#[test]
fn a_key_of_another_origin_takes_the_place_of_one_without_loss() {
    for receiver_first in [true, false] {
        let mut ends = Ends::new(0, 1);
        for ms in 0..4_000 {
            let (now_ns, told_ms) = (ms * MS, [1_000, 1_200]);
            if ms == told_ms[usize::from(!receiver_first)] {
                ends.receive(now_ns, OTHER, 1);
            }
            if ms == told_ms[usize::from(receiver_first)] {
                ends.send(now_ns, OTHER, 1);
            }
            let frame = ends.data(now_ns, 1, ms as u32);
            assert_eq!(ends.check(now_ns, &frame), Ok(()), "{ms}");
            assert_eq!(ends.check(now_ns, &frame), Err(Refused::Replayed));
        }
        ends.sealer = Sealer::new(16);
        ends.send(4_000 * MS, BASE, 1);
        let old = ends.data(4_000 * MS, 1, 0);
        assert_eq!(ends.check(4_000 * MS, &old), Err(Refused::Forged), "the old key counts no more");
    }
}

#[test]
fn where_no_seal_was_needed_none_is_for_a_moment() {
    let mut ends = Ends::new(0, 1);
    ends.sealer.set(0, None);
    let mut bare = vec![0; 14 + 12];
    bare[12..14].copy_from_slice(&[0x88, 0xb5]);
    bare.extend_from_slice(&[9; 60]);
    let shim = Shim { kind: Kind::Data, path: 1, flow: 16, sequence: 0, sent_us: 0 };
    ends.sealer.write(0, shim, &mut bare, 14);
    assert_eq!(ends.check(0, &bare), Err(Refused::Forged));
    ends.guards = Guards::default();
    ends.guards.configure(0, 1, &[(16, BASE)].into(), &HashSet::from([16]));
    assert_eq!(ends.check(LENIENT_NS - 1, &bare), Ok(()));
    assert_eq!(ends.check(LENIENT_NS, &bare), Err(Refused::Forged));
    ends.guards = Guards::default();
    ends.guards.configure(0, 1, &[(16, BASE)].into(), &HashSet::from([16]));
    ends.send(0, BASE, 1);
    let sealed = ends.data(MS, 1, 1);
    assert_eq!(ends.check(MS, &sealed), Ok(()));
    assert_eq!(ends.check(2 * MS, &bare), Ok(()), "it may be from before");
    assert_eq!(ends.check(LENIENT_NS, &bare), Err(Refused::Forged));
}

#[test]
fn the_nearest_time_is_found_across_every_border() {
    let mut rng = Rng::new(5);
    for _ in 0..100_000 {
        let stamp = rng.next() >> (1 + rng.below(40));
        let expected = match rng.below(2) {
            0 => stamp.saturating_add(rng.next() >> 33),
            _ => stamp.saturating_sub(rng.next() >> 33),
        };
        assert_eq!(nearest(expected, stamp as u32), stamp, "{expected}");
    }
    nearest(u64::MAX, 0);
    nearest(0, u32::MAX);
}

fn hello(guard: &mut HelloGuard, signing: &Signing, sequence: u32) -> Result<(), Refused> {
    let bytes = signing.hello(&[2; 6], &Hello { interval_ms: 40, sequence });
    let (hello, seal) = Hello::decode_sealed(&bytes).unwrap();
    guard.check(0, &[2; 6], &hello, seal)
}

#[test]
fn hellos_count_once_in_any_order_within_a_window() {
    let mut guard = HelloGuard::new(BASE, None);
    guard.set_generation(3);
    let signing = Signings::default().of(0, BASE, 3);
    let mut rng = Rng::new(9);
    let mut came = HashSet::new();
    let mut greatest = 0;
    for _ in 0..20_000 {
        let sequence = (greatest + 3u32).saturating_sub(rng.below(90) as u32);
        let is_new = sequence > greatest || greatest - sequence < HELLO_WINDOW;
        let wanted = if is_new && came.insert(sequence) { Ok(()) } else { Err(Refused::Replayed) };
        if came.len() > 1 || wanted.is_ok() {
            assert_eq!(hello(&mut guard, &signing, sequence), wanted, "{sequence} after {greatest}");
        }
        greatest = greatest.max(sequence);
    }
    assert!(came.len() > 1_000, "{}", came.len());
}

#[test]
fn a_hello_is_of_its_interface_and_of_its_key() {
    let mut guard = HelloGuard::new(BASE, None);
    guard.set_generation(3);
    let mut signings = Signings::default();
    let signing = signings.of(0, BASE, 3);
    let bytes = signing.hello(&[2; 6], &Hello { interval_ms: 40, sequence: 5 });
    let (said, seal) = Hello::decode_sealed(&bytes).unwrap();
    assert_eq!(guard.check(0, &[4; 6], &said, seal), Err(Refused::Forged));
    assert_eq!(guard.check(0, &[2; 6], &Hello { sequence: 6, ..said }, seal), Err(Refused::Forged));
    assert_eq!(guard.check(0, &[2; 6], &said, None), Err(Refused::Forged));
    assert_eq!(guard.check(0, &[2; 6], &said, seal), Ok(()));
    for (generation, wanted) in [(2, Ok(())), (4, Ok(())), (5, Err(Refused::Forged)), (3, Ok(()))] {
        let signing = signings.of(0, BASE, generation);
        assert_eq!(hello(&mut guard, &signing, 9), wanted, "{generation}");
    }
    // Generations that come back know what came.
    guard.set_generation(9);
    guard.set_generation(3);
    assert_eq!(hello(&mut guard, &signing, 9), Err(Refused::Replayed));
    assert_eq!(hello(&mut guard, &signing, 10), Ok(()));
    let other = signings.of(0, OTHER, 3);
    assert_eq!(hello(&mut guard, &other, 11), Err(Refused::Forged));
}
