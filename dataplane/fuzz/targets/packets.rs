//! IP packets: reading, rewriting, cutting, joining, and the answers of a router. What was changed reads as what was meant,
//! and right checksums stay right.
//!
//! The first two bytes are a size (MTU, segments), then comes a packet, then perhaps another one that follows it.
#![no_main]
use hyroads_dataplane::ip::{self, testing, Endpoint, Joined, Packet, Part, Report, Segments, Sum};
use hyroads_fuzz::Script;

fn end(packet: &Packet) -> Endpoint {
    let address = if packet.is_ipv6() { "2001:db8::66" } else { "198.18.0.66" };
    Endpoint { address: address.parse().unwrap(), port: 0x1234 }
}

/// Whether there is a checksum and it is right. A field of 0 in UDP means that there is none, whatever the sum is.
fn has_right_sum(bytes: &[u8], packet: &Packet) -> bool {
    let is_there =
        |at: usize| at + 2 <= packet.len && (packet.tuple.protocol != ip::UDP || bytes[at..at + 2] != [0, 0]);
    packet.part == Part::Whole
        && testing::field_at(packet).map_or(false, is_there)
        && testing::segment_sum(bytes, packet) == 0xffff
}

fn rewritten(bytes: &[u8], packet: &Packet) {
    let mut changed = bytes.to_vec();
    let was_right = has_right_sum(bytes, packet);
    if ip::rewrite(&mut changed, packet, Some(end(packet)), None, Sum::Whole) {
        let again = ip::parse(&changed).expect("a rewritten packet is one");
        assert_eq!(again.tuple.source.address, end(packet).address);
        assert_eq!((again.len, again.l4_at, again.part), (packet.len, packet.l4_at, packet.part));
        assert!(!was_right || has_right_sum(&changed, &again), "the checksum was right");
    }
    let other = if packet.is_ipv6() { "192.0.2.1" } else { "::1" };
    let other = Endpoint { address: other.parse().unwrap(), port: 1 };
    let before = changed.clone();
    assert!(!ip::rewrite(&mut changed, packet, Some(other), None, Sum::Whole) && changed == before);
    if packet.error.is_some() {
        ip::rewrite_error(&mut changed, packet, end(packet).address, end(packet));
    }
}

fn answers(bytes: &[u8], packet: &Packet, size: usize) {
    let mut out = [0; 2048];
    let from = end(packet).address;
    let report = [Report::TooBig(size as u32), Report::NoRoute, Report::Prohibited][size % 3];
    for written in [
        ip::too_big(bytes, size, from, &mut out),
        ip::too_big_from_destination(bytes, size, &mut out),
        ip::unreachable(bytes, size % 2 == 0, from, &mut out),
        ip::icmp_error(bytes, report, from, &mut out),
        ip::reset(bytes, packet, &mut out),
    ] {
        assert!(written.map_or(true, |len| len <= out.len()));
    }
    if let Some(len) = ip::reset(bytes, packet, &mut out) {
        testing::assert_right_sums(&out[..len]);
    }
}

fn cut(bytes: &[u8], packet: &Packet, size: usize) {
    let mut out = [0; 65_536];
    let (mut at, mut payload) = (0, Vec::new());
    while let Some((len, next)) = ip::fragment(bytes, size, at, &mut out) {
        let piece = ip::parse(&out[..len]);
        if let Ok(piece) = piece {
            payload.extend_from_slice(&out[piece.l4_at..piece.len]);
        }
        match next {
            Some(next) if next > at => at = next,
            Some(_) => panic!("fragments go on"),
            None => break,
        }
    }
    if let Some(mut segments) = Segments::of(bytes, packet, size as u16) {
        let mut left = segments.left();
        while let Some(piece) = segments.next(bytes, 4 * size) {
            if !segments.advance(&piece) {
                break;
            }
            assert!(segments.left() < left, "segments go on");
            left = segments.left();
        }
    }
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let mut script = Script(data);
    let size = usize::from(script.number());
    let first = script.bytes();
    let second = script.bytes();
    if let Some(mut joined) = Joined::begin(first) {
        if joined.add(second) {
            let (len, header) = (second.len(), joined.header_len());
            assert!(joined.packets() == 2 && header <= first.len() && header <= len);
            joined.head();
        }
    }
    if let Ok(packet) = ip::parse(first) {
        assert!(packet.len <= first.len() && packet.l4_at <= packet.len);
        rewritten(first, &packet);
        answers(first, &packet, size);
        cut(first, &packet, size);
        let mut bytes = first.to_vec();
        ip::clamp_mss(&mut bytes, &packet, size, Sum::Whole);
        ip::complete(&mut bytes, &packet);
        assert!(ip::parse(&bytes).is_ok());
    }
});
