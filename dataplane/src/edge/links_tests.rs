//! Links: which frames are opened, once, and which are refused.

use super::*;
use crate::edge::buffer::Pool;
use crate::edge::engine::{Effects, Engine};
use crate::edge::frame::{ether_type, outer_header};
use crate::edge::protocol::{parse_request, Request};
use crate::edge::testing::Rng;

const MS: u64 = 1_000_000;
const A: [Mac; 2] = [[2, 0, 1, 1, 0, 1], [2, 0, 1, 2, 0, 1]];
const B: [Mac; 2] = [[2, 0, 1, 1, 0, 2], [2, 0, 1, 2, 0, 2]];
const C: [Mac; 2] = [[2, 0, 1, 1, 0, 3], [2, 0, 1, 2, 0, 3]];
const KEYS: [&str; 4] = [
    "0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a",
    "0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b",
    "0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c",
    "0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d",
];

fn text(mac: &Mac) -> String {
    mac.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":")
}

/// A configuration of the agent with interfaces `own`; its neighbours have interfaces and keys.
fn config(own: [Mac; 2], key: &str, peers: &[([Mac; 2], &str)], seal_links: bool, generation: u64) -> Box<Config> {
    let send = own.map(|mac| format!(r#"{{"label":99,"mac":"{}"}}"#, text(&mac))).join(",");
    let expect: Vec<String> = peers
        .iter()
        .flat_map(|(macs, key)| macs.map(|mac| format!(r#"{{"link":"l{0}","mac":"{0}","key":"{key}"}}"#, text(&mac))))
        .collect();
    let hello = format!(r#"{{"key":"{key}","send":[{send}],"expect":[{}]}}"#, expect.join(","));
    let line = format!(
        r#"{{"type":"config","revision":1,"generation":{generation},"seal_links":{seal_links},"hello":{hello}}}"#
    );
    match parse_request(&line) {
        Ok((_, Request::Config(config))) => config,
        other => panic!("{other:?}"),
    }
}

struct Node {
    engine: Engine,
}

impl Node {
    fn new(config: &Config) -> Self {
        let mut node = Node { engine: Engine::new(Pool::new(2048, 64), 2 * MS) };
        node.configure(0, config);
        node
    }

    fn configure(&mut self, now_ns: u64, config: &Config) {
        self.engine.apply(now_ns, config, &|_| (0, [2, 0, 0, 0, 0, 9]), &mut || 7, &mut Effects::default());
    }

    /// What the agent gives back to its switch for a frame from there.
    fn pass(&mut self, now_ns: u64, frame: &[u8]) -> Option<Vec<u8>> {
        let mut fx = Effects::default();
        let buf = self.engine.pool.take_with(frame).expect("a buffer");
        self.engine.from_network(now_ns, buf, &mut fx);
        assert!(fx.access.is_empty());
        let out: Vec<_> = fx.network.drain(..).collect();
        assert!(out.len() < 2);
        out.into_iter().next().map(|(_, buf)| {
            let bytes = buf.bytes().to_vec();
            self.engine.pool.give(buf);
            bytes
        })
    }

    fn refused(&self) -> (u64, u64) {
        (self.engine.counters.forged, self.engine.counters.replayed)
    }
}

/// A user's frame behind a label, between two interfaces.
fn labelled(to: Mac, from: Mac, user: &[u8]) -> Vec<u8> {
    let mut frame = outer_header(to, from, &[4711], TYPE_MPLS);
    frame.extend_from_slice(user);
    frame
}

fn three() -> (Node, Node, Node) {
    let [a, b, c, _] = KEYS;
    (
        Node::new(&config(A, a, &[(B, b), (C, c)], true, 5)),
        Node::new(&config(B, b, &[(A, a), (C, c)], true, 5)),
        Node::new(&config(C, c, &[(A, a), (B, b)], true, 5)),
    )
}

#[test]
fn a_frame_comes_out_as_it_went_in_and_once() {
    let (mut a, mut b, _) = three();
    for (number, len) in [14, 42, 60, 1514].iter().enumerate() {
        let now_ns = MS * (1 + number as u64);
        let frame = labelled(B[0], A[0], &vec![7; *len]);
        let sealed = a.pass(now_ns, &frame).unwrap();
        assert_eq!((ether_type(&sealed), &sealed[..12]), (Some(TYPE_AGENT), &frame[..12]));
        assert!(sealed.len() >= 60);
        assert!(*len < 40 || sealed.len() == frame.len() + LINK_OVERHEAD);
        let opened = b.pass(now_ns, &sealed).unwrap();
        assert_eq!(opened[..frame.len()], frame[..]);
        assert!(opened[frame.len()..].iter().all(|byte| *byte == 0));
        assert_eq!(b.pass(now_ns, &sealed), None);
        assert_eq!(b.refused(), (0, number as u64 + 1));
    }
    assert_eq!(a.refused(), (0, 0));
}

#[test]
fn honest_frames_with_loss_reordering_and_duplicates_are_opened_once_each() {
    let (mut a, mut b, _) = three();
    let mut rng = Rng::new(5);
    let mut under_way: Vec<(u64, usize, Vec<u8>)> = Vec::new();
    let mut opened = vec![0u32; 6_000];
    let (mut lost, mut doubled) = (0, 0);
    for number in 0..opened.len() {
        let now_ns = MS + number as u64 * 100_000;
        let port = rng.below(2);
        let frame = labelled(B[port], A[port], &[&(number as u32).to_be_bytes()[..], &[3; 60]].concat());
        let sealed = a.pass(now_ns, &frame).unwrap();
        match rng.below(10) {
            0 => lost += 1,
            // One medium is slower, and both change the order of frames that are near each other.
            draw => {
                let delay_ns = [1, 40][port] * MS + rng.below(5) as u64 * MS;
                under_way.push((now_ns + delay_ns, number, sealed.clone()));
                if draw < 3 {
                    doubled += 1;
                    under_way.push((now_ns + delay_ns + rng.below(300) as u64 * MS, number, sealed));
                }
            }
        }
        let (mut due, rest) = under_way.into_iter().partition::<Vec<_>, _>(|(at_ns, ..)| *at_ns <= now_ns);
        under_way = rest;
        due.sort_by_key(|(at_ns, ..)| *at_ns);
        for (_, number, sealed) in due {
            opened[number] += u32::from(b.pass(now_ns, &sealed).is_some());
        }
    }
    for (_, number, sealed) in under_way {
        opened[number] += u32::from(b.pass(2_000 * MS, &sealed).is_some());
    }
    assert!(opened.iter().all(|count| *count <= 1));
    assert_eq!(opened.iter().filter(|count| **count == 1).count(), opened.len() - lost);
    assert_eq!(b.refused(), (0, doubled));
}

#[test]
fn no_changed_frame_is_opened() {
    let (mut a, mut b, _) = three();
    let mut rng = Rng::new(6);
    let sealed = a.pass(MS, &labelled(B[0], A[0], &[7; 100])).unwrap();
    for _ in 0..3_000 {
        let mut other = sealed.clone();
        let at = rng.below(other.len());
        other[at] ^= 1 << rng.below(8);
        assert_eq!(b.pass(MS, &other), None, "byte {at}");
    }
    // Nor a longer or a shorter one, nor one whose seal was left out.
    assert_eq!(b.pass(MS, &[&sealed[..], &[0]].concat()), None);
    assert_eq!(b.pass(MS, &sealed[..sealed.len() - 1]), None);
    let mut bare = [&sealed[..26], &sealed[34..]].concat();
    bare[14] = Kind::Link as u8;
    assert_eq!(b.pass(MS, &bare), None);
    assert!(b.pass(MS, &sealed).is_some());
}

#[test]
fn a_frame_counts_only_where_it_was_sent_to() {
    let (mut a, mut b, mut c) = three();
    let sealed = a.pass(MS, &labelled(B[0], A[0], &[7; 100])).unwrap();
    let readdressed = |to: Mac, from: Mac| [&to[..], &from[..], &sealed[12..]].concat();
    assert_eq!(c.pass(MS, &readdressed(C[0], A[0])), None);
    assert_eq!(b.pass(MS, &readdressed(B[1], A[0])), None);
    assert_eq!(b.pass(MS, &readdressed(B[0], A[1])), None);
    assert_eq!(b.pass(MS, &readdressed(B[0], C[0])), None);
    assert_eq!(b.pass(MS, &readdressed(B[0], [2; 6])), None);
    assert_eq!(a.pass(MS, &readdressed(A[0], B[0])), None);
    assert_eq!((a.refused(), b.refused(), c.refused()), ((1, 0), (4, 0), (1, 0)));
    // A frame to a group counts at each neighbour that has the sender's key.
    let group = a.pass(2 * MS, &labelled([3, 0, 0, 0, 0, 1], A[0], &[7; 100])).unwrap();
    assert!(b.pass(2 * MS, &group).is_some() && c.pass(2 * MS, &group).is_some());
    assert!(b.pass(2 * MS, &sealed).is_some());
}

#[test]
fn frame_without_an_own_source_address_is_not_sealed() {
    let (mut a, ..) = three();
    assert_eq!(a.pass(MS, &labelled(B[0], C[0], &[7; 100])), None);
    assert_eq!(a.pass(MS, &labelled(B[0], [2; 6], &[7; 100])), None);
    assert_eq!(a.pass(MS, &[0x88; 14]), None);
    let mut short = labelled(B[0], A[0], &[]);
    short.truncate(14);
    assert!(a.pass(MS, &short).is_some());
}

#[test]
fn nothing_passes_unless_links_are_sealed() {
    let [key, peer, ..] = KEYS;
    let mut a = Node::new(&config(A, key, &[(B, peer)], true, 5));
    let mut open = Node::new(&config(B, peer, &[(A, key)], false, 5));
    let sealed = a.pass(MS, &labelled(B[0], A[0], &[7; 100])).unwrap();
    assert_eq!(open.pass(MS, &sealed), None);
    assert_eq!(open.pass(MS, &labelled(A[0], B[0], &[7; 100])), None);
    // Once it is no longer wanted, nothing is sealed any more.
    a.configure(MS, &config(A, key, &[(B, peer)], false, 5));
    assert_eq!(a.pass(MS, &labelled(B[0], A[0], &[7; 100])), None);
}

#[test]
fn neighbour_that_restarted_has_another_key_and_its_old_frames_are_refused() {
    let (mut a, mut b, _) = three();
    let [key, peer, third, fresh] = KEYS;
    let before = a.pass(MS, &labelled(B[0], A[0], &[7; 100])).unwrap();
    b.configure(2 * MS, &config(B, peer, &[(A, fresh), (C, third)], true, 5));
    let mut again = Node::new(&config(A, fresh, &[(B, peer)], true, 5));
    let frame = labelled(B[0], A[0], &[8; 100]);
    let sealed = again.pass(3 * MS, &frame).unwrap();
    assert_eq!(b.pass(3 * MS, &sealed), Some(frame));
    // Frames that were under way count for 2 s, afterwards not.
    assert_eq!(b.pass(3_000 * MS, &before), None);
    assert_eq!(b.refused(), (1, 0));
    // Not even where the old key comes back.
    b.configure(3_001 * MS, &config(B, peer, &[(A, key), (C, third)], true, 5));
    let late = a.pass(3_002 * MS, &labelled(B[0], A[0], &[9; 100])).unwrap();
    assert!(b.pass(3_002 * MS, &late).is_some());
    assert_eq!(b.pass(3_003 * MS, &late), None);
}

#[test]
fn generations_change_without_loss() {
    let (mut a, mut b, _) = three();
    let [key, peer, ..] = KEYS;
    for generation in 5..12u64 {
        let now_ns = generation * 1_000 * MS;
        // Either end is the first one.
        let ends: [(&mut Node, Box<Config>); 2] = [
            (&mut a, config(A, key, &[(B, peer)], true, generation)),
            (&mut b, config(B, peer, &[(A, key)], true, generation)),
        ];
        let mut ends: Vec<_> = ends.into_iter().collect();
        if generation % 2 == 0 {
            ends.reverse();
        }
        for (node, config) in ends {
            node.configure(now_ns, &config);
        }
        for number in 0..20u64 {
            let frame = labelled(B[1], A[1], &[number as u8; 80]);
            let sealed = a.pass(now_ns + number, &frame).unwrap();
            assert_eq!(b.pass(now_ns + number, &sealed), Some(frame));
        }
    }
    assert_eq!(b.refused(), (0, 0));
}

#[test]
fn hosts_frames_leave_room_for_the_seal() {
    let [key, peer, ..] = KEYS;
    for (seal_links, wanted) in [(false, 1496), (true, 1476)] {
        let mut config = config(A, key, &[(B, peer)], seal_links, 5);
        config.media.mtu = Some(1500);
        assert_eq!(config.media.single_frame(), wanted);
    }
}

/// An agent with a flow of paths without labels, with or without a key.
fn flow(side: &str, key: Option<&str>, seal_links: bool) -> Node {
    let key = key.map_or(String::new(), |key| format!(r#","key":"{key}""#));
    let flow = match side {
        "ingress" => format!(r#"{{"number":16,"default":true,"paths":[{{"id":1}}]{key}}}"#),
        _ => format!(r#"{{"number":16,"paths":[1]{key}}}"#),
    };
    let line =
        format!(r#"{{"type":"config","revision":1,"generation":5,"seal_links":{seal_links},"{side}":[{flow}]}}"#);
    match parse_request(&line) {
        Ok((_, Request::Config(config))) => Node::new(&config),
        other => panic!("{other:?}"),
    }
}

/// Frames of data that leave for a user's frame.
fn sent(node: &mut Node) -> Vec<Vec<u8>> {
    let mut fx = Effects::default();
    let buf = node.engine.pool.take_with(&[7; 80]).expect("a buffer");
    node.engine.from_access(MS, buf, &mut fx);
    node.engine.poll(MS, &mut fx);
    fx.network.iter().map(|(_, buf)| buf.bytes().to_vec()).filter(|frame| frame[14] & 0x1f == 1).collect()
}

#[test]
fn where_links_are_sealed_no_frame_of_a_flow_goes_or_is_taken_without_a_seal() {
    let key = Some(KEYS[0]);
    assert_eq!(sent(&mut flow("ingress", None, true)), Vec::<Vec<u8>>::new());
    let bare = sent(&mut flow("ingress", None, false));
    let sealed = sent(&mut flow("ingress", key, true));
    assert_eq!((bare.len(), sealed.len()), (1, 1));
    let took = |mut node: Node, frame: &[u8]| {
        let mut fx = Effects::default();
        let buf = node.engine.pool.take_with(frame).expect("a buffer");
        node.engine.from_network(MS, buf, &mut fx);
        node.engine.poll(1_000 * MS, &mut fx);
        (fx.access.len(), node.engine.counters.forged)
    };
    assert_eq!(took(flow("egress", None, false), &bare[0]), (1, 0));
    assert_eq!(took(flow("egress", None, true), &bare[0]), (0, 1));
    assert_eq!(took(flow("egress", key, true), &bare[0]), (0, 1));
    assert_eq!(took(flow("egress", None, true), &sealed[0]), (0, 1));
    assert_eq!(took(flow("egress", key, true), &sealed[0]), (1, 0));
}
