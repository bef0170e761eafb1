//! Handovers between two engines over wires of any delay: nothing lost, doubled or out of order.

use super::*;
use crate::edge::frame::{Shim, SHIM_LEN};
use crate::edge::pace::BURST_NS;
use crate::edge::protocol::{parse_request, Request};
use crate::edge::reorder::before;
use crate::edge::testing::Rng;

const STEP_NS: u64 = MS / 4;

fn config(text: &str) -> Config {
    match parse_request(&format!("{{\"type\":\"config\",\"revision\":1,{text}}}")) {
        Ok((_, Request::Config(config))) => *config,
        other => panic!("{other:?}"),
    }
}

fn ingress(split: &str, rates: [f64; 2]) -> Config {
    let paths = format!(
        r#"[{{"id":1,"rate_mbps":{},"interface":"1"}},{{"id":2,"rate_mbps":{},"interface":"2"}}]"#,
        rates[0], rates[1]
    );
    config(&format!(r#""ingress":[{{"number":16,"default":true,"split":{{"kind":"{split}"}},"paths":{paths}}}]"#))
}

fn egress(hold: &[u8], watch: &[u8]) -> Config {
    config(&format!(
        r#""egress":[{{"number":16,"paths":[1,2],"late":"drop","hold":{{"paths":{hold:?},"ms":4000}},"watch":{watch:?}}}]"#
    ))
}

/// Sender, receiver and what is under way between them.
struct World {
    now: u64,
    rng: Rng,
    a: Engine,
    b: Engine,
    /// By path: (arrival, frame), in order.
    wires: [Vec<(u64, Vec<u8>)>; 2],
    delays: [u64; 2],
    /// The client has left this place: what comes by it is lost.
    left: [bool; 2],
    markers_lost: f64,
    offered: u32,
    got: Vec<u32>,
    notices: Vec<PathNotice>,
}

fn set(engine: &mut Engine, now: u64, config: &Config, fx: &mut Effects) -> FirstNumbers {
    let exit_of = |name: Option<&str>| (name.map_or(0, |n| usize::from(n == "2")), [2; 6]);
    engine.apply(now, config, &exit_of, &mut || 4_294_967_000, fx)
}

impl World {
    fn new(seed: u64, delays: [u64; 2], markers_lost: f64) -> Self {
        let engine = || Engine::new(Pool::new(2048, 8192), BURST_NS);
        let mut world = World {
            now: 1_000 * MS,
            rng: Rng::new(seed),
            a: engine(),
            b: engine(),
            wires: Default::default(),
            delays,
            left: [false; 2],
            markers_lost,
            offered: 0,
            got: Vec::new(),
            notices: Vec::new(),
        };
        world.tell_b(&egress(&[], &[]));
        world.tell_a(&ingress("proportional", [40.0, 0.0]));
        world
    }

    fn tell_a(&mut self, config: &Config) -> Option<u32> {
        let mut fx = Effects::default();
        let from = set(&mut self.a, self.now, config, &mut fx);
        self.send(fx);
        from.get(&16).copied()
    }

    fn tell_b(&mut self, config: &Config) {
        let mut fx = Effects::default();
        set(&mut self.b, self.now, config, &mut fx);
        self.take(fx);
    }

    fn send(&mut self, mut fx: Effects) {
        for (wire, buf) in fx.network.drain(..) {
            let shim = Shim::decode(&buf.bytes()[14..]).unwrap();
            let is_lost =
                shim.kind != Kind::Data && shim.kind != Kind::Resume && self.rng.uniform() < self.markers_lost;
            let jitter = self.rng.below(1 + self.delays[wire] as usize / 2) as u64;
            let earliest = self.wires[wire].last().map_or(0, |last| last.0);
            if !is_lost {
                let at = earliest.max(self.now + self.delays[wire] + jitter);
                self.wires[wire].push((at, buf.bytes().to_vec()));
            }
            self.a.pool.give(buf);
        }
    }

    fn take(&mut self, mut fx: Effects) {
        for buf in fx.access.drain(..) {
            let b = &buf.bytes()[14..18];
            self.got.push(u32::from_be_bytes([b[0], b[1], b[2], b[3]]));
            self.b.pool.give(buf);
        }
        for (_, paths) in fx.notices.drain(..) {
            self.notices = paths;
        }
    }

    fn step(&mut self, busy: bool) {
        self.now += STEP_NS;
        let mut fx = Effects::default();
        if busy && self.rng.below(4) == 0 {
            let mut buf = self.a.pool.take().unwrap();
            let mut bytes = vec![0; 60 + self.rng.below(1400)];
            bytes[14..18].copy_from_slice(&self.offered.to_be_bytes());
            buf.set(&bytes);
            self.offered += 1;
            self.a.from_access(self.now, buf, &mut fx);
        }
        self.a.poll(self.now, &mut fx);
        self.send(fx);
        let mut fx = Effects::default();
        for wire in 0..2 {
            let count = self.wires[wire].iter().take_while(|w| w.0 <= self.now).count();
            for (_, bytes) in self.wires[wire].drain(..count).filter(|_| !self.left[wire]) {
                assert!(bytes.len() >= 14 + SHIM_LEN);
                let mut buf = self.b.pool.take().unwrap();
                buf.set(&bytes);
                self.b.from_network(self.now, buf, &mut fx);
            }
        }
        self.b.poll(self.now, &mut fx);
        self.take(fx);
    }

    fn run(&mut self, ms: u64, busy: bool) {
        for _ in 0..ms * MS / STEP_NS {
            self.step(busy);
        }
    }

    /// Until the receiver told of everything that is needed to leave the old path; the time that took.
    fn until_needless(&mut self, from: u32, old: u8, new: u8, busy: bool) -> u64 {
        let began = self.now;
        let told = |world: &World, id: u8, what: fn(&PathNotice) -> Option<u32>| {
            let notice = world.notices.iter().find(|n| n.id == id);
            notice.and_then(what).map_or(false, |number| !before(number, from))
        };
        while !(told(self, old, |n| n.passed) && told(self, new, |n| n.arrived)) {
            self.step(busy);
            assert!(self.now - began < 4_000 * MS, "nothing was told: {:?}, from {from}", self.notices);
        }
        self.now - began
    }

    fn ends_well(&mut self) {
        self.run(3_000, false);
        assert_eq!(self.got, (0..self.offered).collect::<Vec<_>>());
        assert_eq!((self.a.pool.in_use(), self.b.pool.in_use()), (0, 0));
    }
}

fn rates(of: u8) -> [f64; 2] {
    if of == 1 {
        [40.0, 0.0]
    } else {
        [0.0, 40.0]
    }
}

/// From path `old` to the other one, as the managers of handovers do it.
fn hand_over(world: &mut World, old: u8, copies: bool, busy: bool) -> u64 {
    let new = 3 - old;
    world.left[usize::from(new) - 1] = false;
    world.notices.clear();
    world.tell_b(&egress(&[old], &[1, 2]));
    world.run(3, busy);
    let during = if copies { ingress("copy", [40.0, 40.0]) } else { ingress("proportional", rates(new)) };
    let from = world.tell_a(&during).unwrap();
    let took = world.until_needless(from, old, new, busy);
    world.left[usize::from(old) - 1] = true;
    world.run(5, busy);
    if copies {
        world.tell_a(&ingress("proportional", rates(new))).unwrap();
    }
    world.run(5, busy);
    world.tell_b(&egress(&[], &[]));
    took
}

#[test]
fn handovers_lose_double_and_reorder_nothing_whatever_the_delays() {
    let mut rng = Rng::new(1);
    for seed in 0..40 {
        let delay = |rng: &mut Rng| [1, 5, 30, 200, 900][rng.below(5)] * MS;
        let delays = [delay(&mut rng), delay(&mut rng)];
        let mut world = World::new(seed, delays, if seed % 2 == 0 { 0.0 } else { 0.3 });
        world.run(1_500, true);
        let mut at = 1;
        for _ in 0..4 {
            let busy = rng.below(4) > 0;
            hand_over(&mut world, at, rng.below(2) == 0, busy);
            at = 3 - at;
            world.run(rng.below(400) as u64, busy);
        }
        world.ends_well();
    }
}

#[test]
fn what_is_needed_to_leave_is_told_within_the_delay_of_the_slower_path() {
    for (delays, copies) in [([5, 20], false), ([60, 2], false), ([60, 2], true), ([5, 20], true)] {
        let mut world = World::new(7, delays.map(|d| d * MS), 0.0);
        for busy in [true, false] {
            let old = if busy { 1 } else { 2 };
            world.run(700, busy);
            let took = hand_over(&mut world, old, copies, busy);
            let most = delays.iter().max().unwrap() * 3 / 2 + 7;
            assert!(took <= most * MS, "{} ms with {delays:?}, copies {copies}, busy {busy}", took / MS);
        }
        world.ends_well();
    }
}

#[test]
fn a_path_that_dies_is_held_for_once_and_no_longer() {
    let mut world = World::new(3, [5 * MS, 5 * MS], 0.0);
    world.run(50, true);
    world.tell_b(&egress(&[1], &[1, 2]));
    world.left[0] = true;
    world.run(20, true);
    world.tell_a(&ingress("proportional", [0.0, 40.0]));
    let before_hold = world.got.len();
    world.run(3_900, true);
    assert_eq!(world.got.len(), before_hold, "all wait for path 1");
    world.run(300, true);
    let lost = world.b.receivers().next().unwrap().1.counters.timed_out as usize;
    assert!(lost > 5 && lost < 40, "{lost}");
    world.run(500, true);
    world.run(1_000, false);
    assert_eq!(world.got.len() + lost, world.offered as usize, "what came later waited no more");
    assert!(world.got.windows(2).all(|w| w[0] < w[1]));
}

#[test]
fn n_copies_survive_the_loss_of_single_ones() {
    let mut world = World::new(5, [3 * MS, 11 * MS], 0.0);
    world.tell_a(&ingress("copy", [40.0, 40.0]));
    world.run(20, true);
    for round in 0..200 {
        // Never both at once, and not sooner than what is under way has come.
        world.left = [round % 2 == 0, round % 2 == 1];
        world.run(3, true);
        world.left = [false; 2];
        world.run(25, true);
    }
    world.ends_well();
    let counters = &world.b.receivers().next().unwrap().1.counters;
    assert!(counters.duplicate > 500, "{}", counters.duplicate);
    assert_eq!((counters.lost, counters.timed_out, counters.stale), (0, 0, 0));
}
