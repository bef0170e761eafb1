//! Packets that stand for several segments, from the host to an interface.

use super::engine::{Effects, Engine};
use super::link::LinkState;
use super::send::{Taken, To};
use super::testing::config;
use crate::edge::buffer::Pool;
use crate::ip::{self, ACK, FIN};
use crate::rng::Rng;
use std::net::Ipv4Addr;

const MS: u64 = 1_000_000;
const HEADERS: usize = 40;
const SIZE: u16 = 1448;
const MOST_LARGE: usize = 8;

/// A client with one interface of that rate ("null": not known) that takes packets of several segments.
fn client(rate_mbps: &str, via: &str) -> (Engine, Effects) {
    let waypoint = match via {
        "waypoint" => r#"{"address":"198.51.100.9","port":6656,"session":7,"key":"000102030405060708090a0b0c0d0e0f"}"#,
        _ => "null",
    };
    let config = config(&format!(
        r#"{{"type":"configure","seq":1,"address4":"10.171.0.2","address6":null,
        "interfaces":[{{"name":"eth0","rate_mbps":{rate_mbps}}}],"waypoint":{waypoint},
        "rules":[{{"name":"rest","interfaces":["eth0"],"via":"{via}"}}]}}"#
    ));
    let (mut engine, mut fx) = (Engine::client(), Effects::new(Pool::new(1792, 512).with_large(1 << 16, MOST_LARGE)));
    engine.configure(MS, config.unwrap(), &mut fx);
    let address4 = Some(Ipv4Addr::new(192, 0, 2, 33));
    engine.link_state(MS, 0, LinkState { up: true, address4, address6: None, mtu: 1500 }, &mut fx);
    engine.links[0].takes_segments = [true; 2];
    (engine, fx)
}

/// A packet of connection `port` whose payload says which bytes of the stream they are.
fn packet(port: u16, from: u32, data: usize, flags: u8) -> Vec<u8> {
    let mut bytes = vec![0u8; HEADERS];
    bytes[0] = 0x45;
    bytes[2..4].copy_from_slice(&((HEADERS + data) as u16).to_be_bytes());
    bytes[6] = 0x40;
    bytes[8..10].copy_from_slice(&[64, ip::TCP]);
    bytes[12..20].copy_from_slice(&[10, 171, 0, 2, 203, 0, 113, 5]);
    bytes[20..24].copy_from_slice(&[(port >> 8) as u8, port as u8, 0, 80]);
    bytes[24..28].copy_from_slice(&from.to_be_bytes());
    bytes[32..34].copy_from_slice(&[5 << 4, flags]);
    bytes.extend((0..data as u32).map(|at| stream_byte(from.wrapping_add(at))));
    bytes
}

fn stream_byte(at: u32) -> u8 {
    (at.wrapping_mul(2_654_435_761) >> 24) as u8
}

/// The host sends; false if there was no buffer to read it into.
fn send(engine: &mut Engine, fx: &mut Effects, now_ns: u64, bytes: &[u8]) -> bool {
    let mut buf = match fx.pool.take_large() {
        Some(buf) => buf,
        None => return false,
    };
    assert!(buf.set(bytes));
    engine.from_host_segments(now_ns, buf, SIZE, fx);
    true
}

/// Bytes of what leaves, and where in the stream its payload begins.
fn check(taken: &Taken) -> (usize, u32, usize) {
    let whole = taken.parts().concat();
    let packet = ip::parse(&whole).unwrap();
    assert_eq!(packet.len, whole.len());
    let from = u32::from_be_bytes([whole[24], whole[25], whole[26], whole[27]]);
    assert!(whole[HEADERS..].iter().zip(from..).all(|(byte, at)| *byte == stream_byte(at)));
    (whole.len(), from, whole.len() - HEADERS)
}

/// Takes everything that waits, now and then as if there were no room; the lengths of the packets.
fn drain(engine: &mut Engine, fx: &mut Effects, now_ns: &mut u64, rng: &mut Rng, next: &mut u32) -> Vec<usize> {
    let mut lengths = Vec::new();
    while let Some(at_ns) = engine.ready_at(*now_ns, 0) {
        *now_ns = at_ns;
        let taken = match engine.take(*now_ns, 0, fx) {
            Some(taken) => taken,
            None => continue,
        };
        let (length, from, payload) = check(&taken);
        if rng.below(4) == 0 {
            engine.put_back(0, 0, taken);
            continue;
        }
        assert_eq!(from, *next);
        *next = from + payload as u32;
        lengths.push(length);
        engine.sent(*now_ns, 0, taken, fx);
    }
    lengths
}

#[test]
fn pieces_are_as_long_as_the_interface_is_fast_and_lose_nothing() {
    for (rate_mbps, longest) in
        [("null", 1_488), ("12.0", 1_488), ("100.0", 1_488), ("200.0", 25_000), ("2000.0", 65_535)]
    {
        let (mut engine, mut fx) = client(rate_mbps, "direct");
        let (mut rng, mut now_ns, mut next, mut sent) = (Rng::new(7), 2 * MS, 1, 1u32);
        let mut lengths = Vec::new();
        for round in 0..200 {
            let data = 2 * usize::from(SIZE) + rng.below(60_000);
            let flags = if round == 199 { ACK | FIN } else { ACK };
            assert!(send(&mut engine, &mut fx, now_ns, &packet(40_000, sent, data, flags)));
            sent += data as u32;
            lengths.extend(drain(&mut engine, &mut fx, &mut now_ns, &mut rng, &mut next));
        }
        assert_eq!(next, sent);
        let most = *lengths.iter().max().unwrap();
        assert!(most <= longest && most + 1_488 >= longest.min(60_000), "{rate_mbps} Mb/s: {most} bytes");
        // Wherever packets are counted, segments are meant.
        let counters = &engine.links[0].counters;
        assert_eq!(counters.sent_bytes as usize, lengths.iter().sum::<usize>());
        let segments: usize = lengths.iter().map(|length| (length - HEADERS + 1_447) / 1_448).sum();
        assert_eq!(counters.sent_packets as usize, segments);
        assert_eq!((fx.pool.in_use(), fx.drops.queue_full), (0, 0));
    }
}

#[test]
fn an_interface_that_is_not_known_is_found_to_be_fast() {
    let (mut engine, mut fx) = client("null", "direct");
    let (mut rng, mut next, mut lengths) = (Rng::new(8), 1, Vec::new());
    for round in 0..300u64 {
        // 60,000 bytes a millisecond.
        let mut now_ns = (2 + round) * MS;
        assert!(send(&mut engine, &mut fx, now_ns, &packet(40_000, next, 60_000, ACK)));
        lengths.push(drain(&mut engine, &mut fx, &mut now_ns, &mut rng, &mut next));
    }
    assert!(lengths[..90].iter().flatten().all(|length| *length <= 1_488));
    assert!(lengths[250..].iter().all(|round| round.len() <= 3), "{:?}", lengths[250]);
    // What does not take such packets any more gets plain ones, also of what waits already.
    send(&mut engine, &mut fx, 303 * MS, &packet(40_000, next, 60_000, ACK));
    engine.links[0].takes_segments = [false, true];
    let plain = drain(&mut engine, &mut fx, &mut (303 * MS), &mut rng, &mut next);
    assert!(plain.len() == 42 && plain.iter().all(|length| *length <= 1_488), "{plain:?}");
    assert_eq!(fx.pool.in_use(), 0);
}

#[test]
fn memory_is_bounded_and_every_buffer_comes_back() {
    let (mut engine, mut fx) = client("1000.0", "direct");
    let mut rng = Rng::new(9);
    for round in 0..3_000u32 {
        let port = 40_000 + rng.below(50) as u16;
        let data = 2 * usize::from(SIZE) + rng.below(60_000);
        // One of the large ones is always left to read into.
        assert!(send(&mut engine, &mut fx, u64::from(round) * MS, &packet(port, 1, data, ACK)));
        assert!(fx.pool.large_left() >= 1);
    }
    assert!(fx.pool.in_use() >= 512 && fx.drops.overrun > 0);
    engine.end(4_000 * MS, &mut fx);
    assert_eq!(fx.pool.in_use(), 0);
}

#[test]
fn a_standing_queue_loses_single_segments() {
    let (mut engine, mut fx) = client("200.0", "direct");
    let mut now_ns = 2 * MS;
    let (mut offered, mut left) = (0, 0);
    for round in 0..400u32 {
        now_ns += MS;
        // Twice what the interface carries.
        if send(&mut engine, &mut fx, now_ns, &packet(40_000, round * 50_000, 50_000, ACK)) {
            offered += 35;
        }
        while engine.ready_at(now_ns, 0).map_or(false, |at| at <= now_ns) {
            if let Some(taken) = engine.take(now_ns, 0, &mut fx) {
                left += (check(&taken).2 + 1_447) / 1_448;
                engine.sent(now_ns, 0, taken, &mut fx);
            }
        }
    }
    let flow = engine.flows.slots().find_map(|slot| engine.flows.get(slot)).unwrap();
    let (waiting, dropped) = (flow.queue.len(), flow.counters.dropped_packets as usize);
    assert_eq!(offered, left + waiting + dropped + fx.drops.overrun as usize);
    assert!(dropped > 2 && waiting > 0, "{dropped} dropped, {waiting} wait");
}

#[test]
fn in_the_tunnel_they_are_plain_packets_that_fit() {
    let (mut engine, mut fx) = client("1000.0", "waypoint");
    let data = 20 * 1400;
    let mut buf = fx.pool.take_large().unwrap();
    assert!(buf.set(&packet(40_000, 1, data, ACK)));
    engine.from_host_segments(2 * MS, buf, 1400, &mut fx);
    assert_eq!(fx.pool.in_use(), 20);
    let (mut next, mut count) = (1, 0);
    while let Some(taken) = engine.take(10_000 * MS + count * MS, 0, &mut fx) {
        let (length, from, payload) = check(&taken);
        assert!(matches!(taken.to, To::Tunnel { .. }) && length == HEADERS + 1400 && from == next);
        next += payload as u32;
        count += 1;
        engine.sent(10_000 * MS + count * MS, 0, taken, &mut fx);
    }
    assert_eq!((next as usize, count), (1 + data, 20));
    // Too long for the tunnel: the host hears so.
    send(&mut engine, &mut fx, 3 * MS, &packet(40_000, next, 20_000, ACK));
    assert_eq!((fx.drops.too_big, fx.to_host.len()), (1, 1));
}

#[test]
fn what_is_no_such_packet_is_counted_and_dropped() {
    let (mut engine, mut fx) = client("1000.0", "direct");
    let mut rng = Rng::new(10);
    for _ in 0..20_000 {
        let mut bytes = packet(40_000, 1, 3_000, ACK);
        for _ in 0..3 {
            let at = rng.below(HEADERS);
            bytes[at] = rng.bits() as u8;
        }
        bytes.truncate(1 + rng.below(bytes.len()));
        send(&mut engine, &mut fx, 2 * MS, &bytes);
        fx.to_host.drain(..).for_each(|buf| fx.pool.give(buf));
    }
    assert!(fx.drops.malformed > 10_000);
    engine.end(3 * MS, &mut fx);
    assert_eq!(fx.pool.in_use(), 0);
}
