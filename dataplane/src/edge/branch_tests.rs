//! A sender, two agents at which copies branch, and a receiver: path 1 leaves the trunk at x, paths 2 and 3 part at y.

use crate::edge::buffer::{Buf, Pool};
use crate::edge::engine::{Effects, Engine};
use crate::edge::frame::{outer_header, parse_network, FromNetwork, Kind, Shim, SHIM_LEN, TYPE_AGENT};
use crate::edge::pace::BURST_NS;
use crate::edge::protocol::{parse_request, Config, Refusal, Request};
use crate::edge::testing::Rng;

const MS: u64 = 1_000_000;
const WIRES: [&str; 5] = ["x", "y", "b1", "b2", "b3"];
const TRUNK: &str = r#"{"id":1,"rate_mbps":20,"interface":"x"},{"id":2,"rate_mbps":20,"interface":"b2","copied_from":1},
    {"id":3,"rate_mbps":20,"interface":"b3","copied_from":1}"#;
const APART: &str = r#"{"id":1,"rate_mbps":20,"interface":"b1"},{"id":2,"rate_mbps":20,"interface":"b2"},
    {"id":3,"rate_mbps":20,"interface":"b3"}"#;
const AT_X: &str = r#""branch":[{"number":16,"path":1,"copies":[{"id":1,"interface":"b1"},{"id":2,"interface":"y"}]}]"#;
const AT_Y: &str =
    r#""branch":[{"number":16,"path":2,"copies":[{"id":2,"interface":"b2"},{"id":3,"interface":"b3"}]}]"#;

fn sending(paths: &str) -> String {
    format!(r#""ingress":[{{"number":16,"default":true,"split":{{"kind":"copy"}},"paths":[{paths}]}}]"#)
}

fn parsed(text: &str) -> Result<Config, String> {
    match parse_request(&format!("{{\"type\":\"config\",\"revision\":1,{text}}}")) {
        Ok((_, Request::Config(config))) => Ok(*config),
        Err(Refusal::Invalid { message, .. }) => Err(message),
        other => panic!("{other:?}"),
    }
}

fn apply(engine: &mut Engine, now: u64, text: &str, fx: &mut Effects) {
    let exit_of = |name: Option<&str>| {
        let wire = WIRES.iter().position(|wire| Some(*wire) == name);
        (wire.unwrap_or(0), [2, 0, 0, 0, 0, 1])
    };
    engine.apply(now, &parsed(text).unwrap(), &exit_of, &mut || 4_000_000_000, fx);
}

/// The four agents, and frames on the wires between them.
struct World {
    engines: [Engine; 4],
    wires: Vec<(u64, usize, usize, Vec<u8>)>,
    /// Data frames by wire.
    data: [usize; 5],
    pauses: usize,
    offered: Vec<Vec<u8>>,
    got: Vec<Vec<u8>>,
    rng: Rng,
}

impl World {
    fn new(paths: &str) -> Self {
        let egress = r#""egress":[{"number":16,"paths":[1,2,3]}]"#;
        let engines = [&sending(paths), AT_X, AT_Y, egress].map(|text| {
            let mut engine = Engine::new(Pool::new(2048, 4096), BURST_NS);
            apply(&mut engine, 0, text, &mut Effects::default());
            engine
        });
        let (wires, offered, got) = (Vec::new(), Vec::new(), Vec::new());
        World { engines, wires, data: [0; 5], pauses: 0, offered, got, rng: Rng::new(7) }
    }

    /// The flow has a key from now on, before anything was sent.
    fn seal(&mut self) {
        const KEY: &str = r#""key":"000102030405060708090a0b0c0d0e0f""#;
        let sealed = [&sending(TRUNK), AT_X, AT_Y, r#""egress":[{"number":16,"paths":[1,2,3]}]"#];
        for (engine, text) in self.engines.iter_mut().zip(sealed) {
            let text = text.replacen("{\"number\"", &format!("{{{KEY},\"number\""), 1);
            let mut fx = Effects::default();
            apply(engine, 0, &format!("\"generation\":4,{text}"), &mut fx);
            fx.network.into_iter().for_each(|(_, buf)| engine.pool.give(buf));
        }
    }

    fn frame(&mut self, at: usize, bytes: &[u8]) -> Buf {
        self.engines[at].pool.take_with(bytes).unwrap()
    }

    /// What an agent wants sent, unless the wire loses it.
    fn put(&mut self, now: u64, at: usize, fx: &mut Effects, lossy: &[usize]) {
        for (wire, buf) in fx.network.drain(..) {
            let shim = match parse_network(buf.bytes()) {
                FromNetwork::Shim { shim, .. } => shim,
                other => panic!("{other:?}"),
            };
            self.data[wire] += usize::from(shim.kind == Kind::Data);
            self.pauses += usize::from(shim.kind == Kind::Pause);
            if !(lossy.contains(&wire) && self.rng.below(2) == 0) {
                let delay = [1, 1, 3, 9, 5][wire] * MS;
                self.wires.push((now + delay, self.wires.len(), wire, buf.bytes().to_vec()));
            }
            self.engines[at].pool.give(buf);
        }
        for buf in fx.access.drain(..) {
            self.got.push(buf.bytes().to_vec());
            self.engines[at].pool.give(buf);
        }
    }

    fn step(&mut self, step: u64, config: Option<&str>, lossy: &[usize]) {
        let (now, mut fx) = (1_000 * MS + step * MS / 10, Effects::default());
        if let Some(paths) = config {
            apply(&mut self.engines[0], now, &sending(paths), &mut fx);
        }
        if step % 10 == 0 && (400..6_000).contains(&step) {
            let mut bytes: Vec<u8> = (0..60 + self.rng.below(1350)).map(|_| self.rng.next() as u8).collect();
            bytes[13] = 0;
            let buf = self.frame(0, &bytes);
            self.offered.push(bytes);
            self.engines[0].from_access(now, buf, &mut fx);
        }
        for at in 0..4 {
            self.engines[at].poll(now, &mut fx);
            self.put(now, at, &mut fx, lossy);
        }
        let mut due: Vec<_> = self.wires.iter().filter(|w| w.0 <= now).cloned().collect();
        due.sort();
        self.wires.retain(|w| w.0 > now);
        for (_, _, wire, bytes) in due {
            let at = [1, 2, 3, 3, 3][wire];
            let buf = self.frame(at, &bytes);
            self.engines[at].from_network(now, buf, &mut fx);
            self.put(now, at, &mut fx, lossy);
        }
    }

    fn check(&self) {
        assert!(self.got == self.offered, "{} frames of {}", self.got.len(), self.offered.len());
        assert!(self.engines.iter().all(|engine| engine.pool.in_use() == 0));
    }
}

#[test]
fn pieces_are_copied_on_the_way() {
    let mut world = World::new(TRUNK);
    let small = sending(TRUNK).replace("\"rate_mbps\":", "\"mtu\":800,\"rate_mbps\":");
    let small = small.replace("\"default\":true", "\"default\":true,\"pieces\":true");
    apply(&mut world.engines[0], 0, &small, &mut Effects::default());
    // Each frame is lost on two of three ways at random, but never on the third.
    (0..8_000).for_each(|step| world.step(step, None, &[2, 4]));
    world.check();
    assert!(world.offered.iter().any(|frame| frame.len() > 800));
}

#[test]
fn what_copies_share_is_travelled_once_and_each_copy_arrives() {
    let mut world = World::new(TRUNK);
    (0..8_000).for_each(|step| world.step(step, None, &[]));
    world.check();
    let count = world.offered.len();
    assert_eq!(world.data, [count; 5]);
    let receiver = world.engines[3].receivers().next().unwrap().1;
    assert_eq!(receiver.counters.duplicate as usize, 2 * count);
    assert!(receiver.paths().iter().all(|path| path.received_frames as usize > count && !path.paused));
    let sender = world.engines[0].senders().next().unwrap();
    let sent: Vec<_> = sender.paths().iter().map(|path| sender.sent_by(path)).collect();
    assert!(sent[0].0 as usize > count && sent[1..] == [sent[0]; 2]);
    assert!(world.engines[1].branches.sent >= 2 * count as u64);
}

#[test]
fn sealed_copies_are_sealed_again_where_they_branch() {
    let mut world = World::new(TRUNK);
    world.seal();
    (0..8_000).for_each(|step| world.step(step, None, &[]));
    world.check();
    let forged: u64 = world.engines.iter().map(|e| e.counters.forged + e.counters.replayed).sum();
    assert_eq!((world.data, forged), ([world.offered.len(); 5], 0));
    // Without the key an agent on the way sends nothing on.
    let mut frame = outer_header([1; 6], [2; 6], &[], TYPE_AGENT);
    frame.extend_from_slice(&[1, 1, 0, 16, 0, 0, 0, 1, 0, 0, 0, 1]);
    frame.extend_from_slice(&[0; 60]);
    let (buf, mut fx) = (world.frame(1, &frame), Effects::default());
    world.engines[1].from_network(2_000 * MS, buf, &mut fx);
    assert_eq!((fx.network.len(), world.engines[1].counters.forged), (0, 1));
}

#[test]
fn what_a_branch_loses_comes_by_another() {
    let mut world = World::new(TRUNK);
    (0..8_000).for_each(|step| world.step(step, None, &[2, 4]));
    world.check();
}

#[test]
fn copies_begin_and_end_to_branch_without_a_gap_or_a_pause() {
    let mut world = World::new(APART);
    for step in 0..8_000 {
        let config = [TRUNK, APART][(step / 500 % 2) as usize];
        world.step(step, Some(config).filter(|_| step % 500 == 0), &[]);
    }
    world.check();
    assert_eq!(world.pauses, 0);
    assert!(world.data[0] > 1_000 / 4 && world.data[0] < world.offered.len());
    let sender = world.engines[0].senders().next().unwrap();
    let by_path = sender.paths().iter().map(|path| sender.sent_by(path).0);
    assert!(by_path.clone().max().unwrap() - by_path.min().unwrap() < 20, "each change may cost a keep-alive");
}

#[test]
fn a_resume_names_its_own_path_wherever_it_branches() {
    let mut world = World::new(TRUNK);
    let mut bytes = outer_header([2; 6], [2; 6], &[], TYPE_AGENT);
    let shim = Shim { kind: Kind::Resume, path: 3, flow: 16, sequence: 9, sent_us: 0 };
    let at = bytes.len();
    bytes.resize(at + SHIM_LEN, 0);
    shim.encode(&mut bytes[at..]);
    let (buf, mut fx) = (world.frame(1, &bytes), Effects::default());
    world.engines[1].from_network(0, buf, &mut fx);
    let shims = fx.network.iter().map(|(_, buf)| parse_network(buf.bytes()));
    assert!(
        shims.clone().count() == 2
            && shims.into_iter().all(|s| s == FromNetwork::Shim { shim, seal: None, inner_at: 26 })
    );
}

#[test]
fn a_frame_that_does_not_fit_a_branch_and_one_without_a_branch_go_nowhere() {
    let small = AT_X.replace(r#""b1"}"#, r#""b1","mtu":100}"#);
    let (mut world, mut fx) = (World::new(TRUNK), Effects::default());
    apply(&mut world.engines[1], 0, &small, &mut fx);
    for path in 0..=255u8 {
        let mut bytes = outer_header([2; 6], [2; 6], &[], TYPE_AGENT);
        bytes.extend([1, path, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0]);
        bytes.resize(200, 7);
        let buf = world.frame(1, &bytes);
        world.engines[1].from_network(0, buf, &mut fx);
    }
    assert_eq!(fx.network.iter().map(|(wire, _)| *wire).collect::<Vec<_>>(), [1]);
    assert_eq!(world.engines[1].counters.unknown_flow, 255);
}

#[test]
fn wrong_configurations_say_what_is_wrong() {
    let refused = |text: &str| parsed(text).unwrap_err();
    assert!(refused(&sending(TRUNK).replace("copy", "proportional")).contains("copied_from: expected the split"));
    assert!(refused(&sending(&TRUNK.replace("\"copied_from\":1", "\"copied_from\":9"))).contains("unknown path 9"));
    assert!(refused(&sending(&TRUNK.replacen("\"copied_from\":1", "\"copied_from\":3", 1))).contains("path 3 either"));
    assert!(refused(&AT_X.replace("16", "15")).contains("branch 15: expected a flow number"));
    assert!(refused(&AT_X.replace("\"path\":1", "\"path\":4")).contains("path 4 is not among its copies"));
    assert!(refused(&AT_X.replace("\"id\":2", "\"id\":1")).contains("path 1 twice"));
    let twice = format!("{},{}]", AT_X.trim_end_matches(']'), &AT_X[10..AT_X.len() - 1]);
    assert!(refused(&twice).contains("branch 16: path 1 twice"), "{twice}");
}
