//! Two engines whose flow and hello frames are sealed, and somebody else on the wires between them.

use super::*;
use crate::edge::pace::BURST_NS;
use crate::edge::protocol::{parse_request, Refusal, Request};
use crate::edge::testing::Rng;

const KEY: &str = "00112233445566778899aabbccddeeff";
const OTHER_KEY: &str = "ffeeddccbbaa99887766554433221100";
const THIRD_KEY: &str = "0f0e0d0c0b0a09080706050403020100";
const MAC: &str = "02:00:00:00:00:01";

fn parsed(text: &str) -> Result<Config, String> {
    match parse_request(&format!("{{\"type\":\"config\",\"revision\":1,{text}}}")) {
        Ok((_, Request::Config(config))) => Ok(*config),
        Err(Refusal::Invalid { message, .. }) => Err(message),
        other => panic!("{other:?}"),
    }
}

fn sending(key: &str, generation: u64) -> String {
    format!(
        r#""generation":{generation},"ingress":[{{"number":16,"default":true,"key":"{key}","paths":[
        {{"id":1,"rate_mbps":20}},{{"id":2,"rate_mbps":10,"interface":"two"}}]}}],
        "hello":{{"key":"{key}","interval_ms":40,"dead_ms":140,"send":[{{"label":7,"mac":"{MAC}"}}]}}"#
    )
}

fn receiving(key: &str, generation: u64) -> String {
    format!(
        r#""generation":{generation},"egress":[{{"number":16,"key":"{key}","paths":[1,2]}}],
        "hello":{{"interval_ms":40,"dead_ms":140,"expect":[{{"link":"ab","mac":"{MAC}","key":"{key}"}}]}}"#
    )
}

/// Two agents, what is under way between them, and what somebody else has heard of it.
struct World {
    ends: [Engine; 2],
    wire: Vec<(u64, usize, Vec<u8>)>,
    heard: Vec<Vec<u8>>,
    offered: Vec<Vec<u8>>,
    got: Vec<Vec<u8>>,
    links: Vec<Change>,
    rng: Rng,
    sent: usize,
}

impl World {
    fn new() -> Self {
        let engine = || Engine::new(Pool::new(2048, 4096), BURST_NS);
        let (wire, heard, offered, got, links) = (Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
        World { ends: [engine(), engine()], wire, heard, offered, got, links, rng: Rng::new(8), sent: 0 }
    }

    fn apply(&mut self, now_ns: u64, end: usize, text: &str) {
        let mut fx = Effects::default();
        let exit_of = |name: Option<&str>| (usize::from(name.is_some()), [2, 0, 0, 0, 0, 1]);
        let first = self.rng.next() as u32;
        self.ends[end].apply(now_ns, &parsed(text).unwrap(), &exit_of, &mut || first, &mut fx);
        self.take(now_ns, end, fx);
    }

    fn take(&mut self, now_ns: u64, end: usize, fx: Effects) {
        for (exit, buf) in fx.network {
            let mut bytes = buf.bytes().to_vec();
            // The switch makes a hello frame of what has its label.
            if bytes[12..14] == [0x88, 0x47] {
                bytes.drain(12..18);
                bytes.splice(12..12, [0x88, 0xb6]);
                bytes[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
            }
            self.sent += 1;
            self.wire.push((now_ns + [2, 30][exit] * MS, self.sent, bytes));
            self.ends[end].pool.give(buf);
        }
        for buf in fx.access {
            self.got.push(buf.bytes().to_vec());
            self.ends[end].pool.give(buf);
        }
        self.links.extend(fx.changes);
    }

    fn arrive(&mut self, now_ns: u64, bytes: &[u8]) {
        let buf = self.ends[1].pool.take_with(bytes).unwrap();
        let mut fx = Effects::default();
        self.ends[1].from_network(now_ns, buf, &mut fx);
        self.take(now_ns, 1, fx);
    }

    /// Steps of 0.1 ms; a frame each 0.8 ms, `attack` between them.
    fn run(&mut self, from_ns: u64, steps: u64, mut attack: impl FnMut(&mut World, u64)) -> u64 {
        for step in 0..steps {
            let now = from_ns + step * MS / 10;
            if step % 8 == 0 && step < steps - 1_500 {
                let bytes: Vec<u8> = (0..60 + self.rng.below(1_400)).map(|_| self.rng.next() as u8).collect();
                let buf = self.ends[0].pool.take_with(&bytes).unwrap();
                self.offered.push(bytes);
                let mut fx = Effects::default();
                self.ends[0].from_access(now, buf, &mut fx);
                self.take(now, 0, fx);
            }
            for end in 0..2 {
                let mut fx = Effects::default();
                self.ends[end].poll(now, &mut fx);
                self.ends[end].poll_links(now, &mut fx);
                self.take(now, end, fx);
            }
            let mut due: Vec<_> = self.wire.iter().filter(|w| w.0 <= now).cloned().collect();
            due.sort();
            self.wire.retain(|w| w.0 > now);
            for (_, _, bytes) in due {
                self.arrive(now, &bytes);
                self.heard.push(bytes);
            }
            attack(self, now);
        }
        from_ns + steps * MS / 10
    }

    fn check(&self) {
        assert!(self.got == self.offered, "{} of {} frames", self.got.len(), self.offered.len());
        assert!(self.ends.iter().all(|end| end.pool.in_use() == 0));
    }

    fn refused(&self) -> (u64, u64) {
        (self.ends[1].counters.forged, self.ends[1].counters.replayed)
    }
}

#[test]
fn sealed_frames_arrive_unchanged_while_keys_change() {
    let mut world = World::new();
    world.apply(0, 1, &receiving(KEY, 3));
    world.apply(0, 0, &sending(KEY, 3));
    let mut generations = 3;
    world.run(MS, 16_000, |world, now| {
        if now % (200 * MS) == 0 {
            generations += 1;
            let ends = if generations % 2 == 0 { [0, 1] } else { [1, 0] };
            for end in ends {
                let text = [sending(KEY, generations), receiving(KEY, generations)];
                world.apply(now, end, &text[end]);
            }
        }
    });
    world.check();
    assert!(generations > 9 && world.refused() == (0, 0));
    assert!(world.links.is_empty());
    let counters = &world.ends[1].receivers().next().unwrap().1.counters;
    assert_eq!((counters.lost, counters.late, counters.restarts, counters.duplicate), (0, 0, 0, 0));
}

#[test]
fn frames_larger_than_paths_arrive_in_pieces_and_unchanged() {
    let mut world = World::new();
    world.apply(0, 1, &receiving(KEY, 3));
    let small = sending(KEY, 3).replace("\"rate_mbps\":", "\"mtu\":800,\"rate_mbps\":");
    world.apply(0, 0, &small.replace("\"default\":true", "\"default\":true,\"pieces\":true"));
    world.run(MS, 16_000, |_, _| ());
    world.check();
    assert!(world.offered.iter().filter(|frame| frame.len() > 800).count() > 500);
    assert!(world.heard.iter().all(|frame| frame.len() <= 814));
    let counters = &world.ends[1].receivers().next().unwrap().1.counters;
    assert_eq!(counters.delivered_frames, world.offered.len() as u64);
    assert_eq!((counters.lost, counters.late, world.refused()), (0, 0, (0, 0)));
}

#[test]
fn nothing_that_somebody_else_sends_is_delivered() {
    let mut world = World::new();
    world.apply(0, 1, &receiving(KEY, 3));
    world.apply(0, 0, &sending(KEY, 3));
    let (mut forged, mut replayed) = (0, 0);
    world.run(MS, 12_000, |world, now| {
        if world.heard.is_empty() {
            return;
        }
        for _ in 0..3 {
            let at = world.rng.below(world.heard.len());
            let mut bytes = world.heard[at].clone();
            match world.rng.below(4) {
                0 => replayed += 1,
                1 => {
                    // Any bit behind the addresses and the type, but for the padding of hello frames.
                    let most = if bytes[12..14] == [0x88, 0xb6] { 16 } else { bytes.len() - 14 };
                    let place = 14 + world.rng.below(most.min(20));
                    bytes[place] ^= 1 << world.rng.below(8);
                }
                2 => {
                    let place = bytes.len() - 1 - world.rng.below(20);
                    bytes[place] ^= 1;
                }
                _ => bytes[6] ^= 4,
            }
            forged += 1;
            world.arrive(now, &bytes);
        }
    });
    world.check();
    let (found, again) = world.refused();
    assert!(found > 3_000 && again >= replayed, "{found} {again} of {forged}, {replayed}");
    assert!(world.links.is_empty());
    let receiver = world.ends[1].receivers().next().unwrap().1;
    assert_eq!((receiver.counters.restarts, receiver.counters.duplicate, receiver.counters.lost), (0, 0, 0));
}

#[test]
fn a_dead_link_stays_dead_with_its_old_hellos() {
    let mut world = World::new();
    world.apply(0, 1, &receiving(KEY, 3));
    world.apply(0, 0, &sending(KEY, 3));
    let now = world.run(MS, 5_000, |_, _| ());
    let heard = world.heard.clone();
    let mut dead = World { ends: world.ends, ..World::new() };
    let mut at = heard.iter().filter(|bytes| bytes[12..14] == [0x88, 0xb6]).cycle();
    for step in 0..10_000 {
        let now = now + step * MS / 10;
        if step % 100 == 0 {
            dead.arrive(now, at.next().unwrap());
        }
        let mut fx = Effects::default();
        dead.ends[1].poll_links(now, &mut fx);
        dead.links.extend(fx.changes);
    }
    assert_eq!(dead.links, [("ab".to_string(), false)]);
    assert!(dead.refused().1 >= 90);
}

#[test]
fn an_agent_that_begins_anew_has_another_key_and_nothing_of_before_counts() {
    let mut world = World::new();
    world.apply(0, 1, &receiving(KEY, 3));
    world.apply(0, 0, &sending(KEY, 3));
    let now = world.run(MS, 5_000, |_, _| ());
    world.check();
    let old = std::mem::take(&mut world.heard);
    // The first edge: its numbers, its hello frames and perhaps its clock begin anew.
    world.ends[0] = Engine::new(Pool::new(2048, 4096), BURST_NS);
    world.apply(now, 1, &receiving(OTHER_KEY, 3));
    world.apply(now, 0, &sending(OTHER_KEY, 3));
    let later = world.run(now, 5_000, |world, now| {
        if now % MS == 0 {
            let at = world.rng.below(old.len());
            world.arrive(now, &old[at]);
        }
    });
    world.check();
    let (forged, replayed) = world.refused();
    assert!(forged + replayed > 400, "{forged} {replayed}");
    // The last edge. A sender whose flow was not taken away meanwhile goes on with its old key for 0.3 s, and a last edge
    // that begins anew does not know that.
    world.ends[1] = Engine::new(Pool::new(2048, 4096), BURST_NS);
    world.apply(later, 1, &receiving(THIRD_KEY, 4));
    world.apply(later, 0, &sending(THIRD_KEY, 4));
    world.run(later, 5_000, |world, now| {
        let at = world.rng.below(old.len());
        world.arrive(now, &old[at]);
    });
    let (got, lost) = (world.got.len(), world.offered.len() - world.got.len());
    assert!((1..=300 * 10 / 8).contains(&lost), "{lost}");
    assert!(world.got[got - 60..] == world.offered[got + lost - 60..]);
}

#[test]
fn agents_with_and_without_keys_understand_each_other() {
    // The receiver has no key: what is sealed is taken as it is.
    let bare =
        |text: String| text.replace(&format!("\"key\":\"{KEY}\","), "").replace(&format!(",\"key\":\"{KEY}\""), "");
    for (sends, receives) in
        [(sending(KEY, 3), bare(receiving(KEY, 3))), (bare(sending(KEY, 3)), bare(receiving(KEY, 3)))]
    {
        let mut world = World::new();
        world.apply(0, 1, &receives);
        world.apply(0, 0, &sends);
        let now = world.run(MS, 4_000, |_, _| ());
        world.check();
        // A running flow gets its key at both ends, in either order, the other one a little later.
        world.apply(now, 1, &receiving(KEY, 3));
        world.run(now, 2_000, |_, _| ());
        world.apply(now + 200 * MS, 0, &sending(KEY, 3));
        world.run(now + 200 * MS, 4_000, |_, _| ());
        world.check();
        assert!(world.refused() == (0, 0) && world.links.is_empty());
    }
}

#[test]
fn bad_keys_are_refused_and_not_repeated() {
    for (text, wanted) in [
        (r#""hello":{"key":"00112233445566778899aabbccddeeff","send":[{"label":1}]}"#, "hello.send[0]: mac"),
        (r#""egress":[{"number":16,"paths":[1],"key":"secret-secret"}]"#, "expected 32 hexadecimal digits"),
        (r#""generation":4294967296"#, "generation 4294967296"),
    ] {
        let error = parsed(text).unwrap_err();
        assert!(error.contains(wanted) && !error.contains("secret"), "{error}");
    }
    // A flow with a key leaves eight bytes less for the inner frame.
    let room = |key: &str| {
        let config = parsed(&format!(r#""ingress":[{{"number":16,{key}"paths":[{{"id":1,"labels":[1,2]}}]}}]"#));
        config.unwrap().ingress[0].paths[0].overhead()
    };
    assert_eq!((room(""), room(&format!("\"key\":\"{KEY}\","))), (20, 28));
}
