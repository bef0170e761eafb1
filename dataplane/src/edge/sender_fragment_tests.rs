//! Fragments of IP datagrams at a sender with a full queue, driven by a simulated clock.

use super::tests::{flow, path, Bench};
use super::*;
use crate::edge::frame::{be16, Shim};
use crate::edge::pieces::Joiner;
use crate::edge::protocol::OutPath;
use crate::edge::testing::fragments_v4;
use std::collections::BTreeMap;

/// Offers datagrams in fragments for 1 s, at `load` times the rate of the paths. Gives the share of the paths' rate that
/// complete datagrams use, and the greatest number of bytes in the queue.
fn whole_datagrams(sizes: &[usize], load: f64, pieces: bool) -> (f64, usize) {
    let mtu = if pieces { 1500 } else { 1600 };
    let sized = |id, mbps| OutPath { mtu, ..path(id, Some(mbps), &[1, 2]) };
    let mut bench = Bench::with(Ingress { pieces, ..flow(vec![sized(1, 19.0), sized(2, 9.5)]) });
    // Labels and a shim in each frame of a path; a user's frame has 14 bytes of Ethernet and 20 of IP.
    let (frame, room) = (20.0, mtu as f64 - 20.0);
    let inner: Vec<f64> = sizes.iter().map(|size| *size as f64 + 34.0).collect();
    let needed: f64 = match pieces {
        true => inner.iter().map(|len| (len + 2.0) * (room + frame) / (room - 2.0)).sum(),
        false => inner.iter().map(|len| len + frame).sum(),
    };
    let each_ns = needed * 8e3 / 28.5;
    let (mut joiner, mut left, mut most) = (Joiner::default(), BTreeMap::<u16, usize>::new(), 0);
    let (mut now, mut count, end) = (0, 0u64, 1_000 * MS);
    while now < end {
        if now as f64 >= count as f64 * each_ns / load {
            count += 1;
            for frame in fragments_v4(count as u16, sizes, &[]) {
                let buf = bench.pool.take_with(&frame).unwrap();
                if let Offer::Dropped(buf) = bench.sender.offer(now, buf, &mut bench.pool) {
                    bench.pool.give(buf);
                }
                most = most.max(bench.sender.queued_bytes());
            }
        }
        while let Some((_, buf)) = bench.sender.next(now, &mut bench.pool) {
            let (shim, inner) = (Shim::decode(&buf.bytes()[22..]).unwrap(), &buf.bytes()[34..]);
            let mut frames = Vec::new();
            match shim.kind {
                Kind::Pieces => joiner.take(shim.sequence, inner, &mut bench.pool, &mut frames),
                _ => frames.push(bench.pool.take_with(inner).unwrap()),
            }
            for frame in frames {
                *left.entry(be16(frame.bytes(), 18).unwrap()).or_default() += 1;
                bench.pool.give(frame);
            }
            bench.pool.give(buf);
        }
        let next = (count as f64 * each_ns / load).ceil() as u64;
        now = bench.sender.next_due(now).map_or(next, |due| due.min(next)).max(now + 1);
    }
    let whole = left.values().filter(|fragments| **fragments == sizes.len()).count();
    (whole as f64 * each_ns / end as f64, most)
}

#[test]
fn flow_that_offers_too_much_loses_whole_datagrams_and_no_single_fragments() {
    for sizes in [&[1456, 24][..], &[1456, 1456, 1456, 1456, 1456, 720]] {
        for pieces in [false, true] {
            for load in [1.5, 4.0] {
                let (share, most) = whole_datagrams(sizes, load, pieces);
                assert!(share > 0.97, "{sizes:?} at {load}, pieces: {pieces}: {share}");
                // 60 ms of 28.5 Mb/s, and the rest of the datagram that was let in last.
                assert!(most <= 213_750 + sizes.iter().sum::<usize>() + 40 * sizes.len(), "{most}");
            }
        }
    }
}
