//! Answers to packets that cannot be forwarded, and fragments.

use super::testing::*;
use super::*;
use crate::rng::Rng;

#[test]
fn too_big_tells_the_sender_what_fits() {
    let mut rng = Rng::new(21);
    for round in 0..2_000 {
        let v6 = round % 2 == 0;
        let mut bytes = some_packet_of(&mut rng, v6, [TCP, UDP][round / 2 % 2], 1_400);
        if !v6 {
            bytes[6] = 0x40;
        }
        let packet = parse(&bytes).unwrap();
        let router = some_end(&mut rng, v6).address;
        let mut out = [0; MOST_MESSAGE];
        let len = too_big(&bytes, 1_300, router, &mut out).unwrap();
        assert_right_sums(&out[..len]);
        let answer = parse(&out[..len]).unwrap();
        assert_eq!((answer.tuple.source.address, answer.len), (router, if v6 { 1_280 } else { 576 }));
        assert_eq!(answer.tuple.destination.address, packet.tuple.source.address);
        let error = answer.error.unwrap();
        assert_eq!((error.inner, error.mtu), (packet.tuple, Some(1_300)));
        assert_eq!(too_big(&bytes, bytes.len(), router, &mut out), None, "it fits");
        assert_eq!(too_big(&out[..len], 100, router, &mut [0; 1_280]), None, "an ICMP error");
        assert_eq!(too_big(&bytes, 1_300, some_end(&mut rng, !v6).address, &mut out), None, "the other family");
        assert_eq!(too_big(&bytes, 1_300, router, &mut out[..500]), None, "no room");
        if !v6 {
            bytes[6] = 0;
            assert_eq!(too_big(&bytes, 1_300, router, &mut out), None, "may be fragmented");
            assert!(too_big_from_destination(&bytes, 1_300, &mut out).is_some());
        }
    }
}

#[test]
fn unreachable_says_why() {
    let mut rng = Rng::new(22);
    for (v6, prohibited, wanted) in
        [(false, true, [3, 13]), (false, false, [3, 0]), (true, true, [1, 1]), (true, false, [1, 0])]
    {
        let bytes = some_packet_of(&mut rng, v6, UDP, 33);
        let mut out = [0; MOST_MESSAGE];
        let len = unreachable(&bytes, prohibited, some_end(&mut rng, v6).address, &mut out).unwrap();
        assert_right_sums(&out[..len]);
        let answer = parse(&out[..len]).unwrap();
        assert_eq!(out[answer.l4_at..answer.l4_at + 2], wanted);
        let error = answer.error.unwrap();
        assert_eq!(out[error.inner_at..error.inner_end], bytes);
        assert_eq!(error.mtu, None);
    }
}

#[test]
fn no_answer_where_none_is_allowed() {
    let mut rng = Rng::new(23);
    let (mut out, from4, from6) = ([0; MOST_MESSAGE], some_end(&mut rng, false), some_end(&mut rng, true));
    let mut answers = |bytes: &[u8], from: Endpoint| unreachable(bytes, true, from.address, &mut out).is_some();
    let v4 = some_packet_of(&mut rng, false, UDP, 40);
    let v6 = some_packet_of(&mut rng, true, UDP, 40);
    assert!(answers(&v4, from4) && answers(&v6, from6));
    let with = |bytes: &[u8], at: usize, new: &[u8]| {
        let mut bytes = bytes.to_vec();
        bytes[at..at + new.len()].copy_from_slice(new);
        bytes
    };
    for source in [[0, 0, 0, 0], [127, 0, 0, 1], [224, 0, 0, 1], [255, 255, 255, 255]] {
        assert!(!answers(&with(&v4, 12, &source), from4), "{source:?}");
    }
    assert!(!answers(&with(&v4, 16, &[239, 1, 1, 1]), from4), "to a group");
    assert!(!answers(&with(&v4, 7, &[9]), from4), "a later fragment");
    assert!(!answers(&with(&v6, 8, &[0; 16]), from6), "from nobody");
    assert!(!answers(&with(&v6, 8, &[0xff]), from6), "from a group");
    assert!(!answers(&with(&v6, 24, &[0xff]), from6), "to a group");
    for family in [false, true] {
        let (error, _) = some_error(&mut rng, family);
        assert!(!answers(&error, if family { from6 } else { from4 }));
    }
}

/// RFC 9293, 3.10.7.1, and that the answer is what a peer in SYN-SENT or ESTABLISHED accepts (3.10.7.3, 3.10.7.4).
#[test]
fn a_reset_has_the_numbers_that_its_receiver_accepts() {
    let mut rng = Rng::new(24);
    for round in 0..4_000 {
        let v6 = round % 2 == 0;
        let data = rng.below(30);
        let mut bytes = some_packet_of(&mut rng, v6, TCP, data);
        let l4_at = parse(&bytes).unwrap().l4_at;
        let flags = [SYN, SYN | ACK, ACK, FIN | ACK, FIN, RST, RST | ACK, 0][round / 2 % 8];
        bytes[l4_at + 13] = flags;
        set_sum(&mut bytes, false);
        let packet = parse(&bytes).unwrap();
        let mut out = [0; 60];
        let len = match reset(&bytes, &packet, &mut out) {
            Some(len) => len,
            None => {
                assert!(flags & RST != 0, "only a RST has no answer");
                continue;
            }
        };
        assert_eq!(flags & RST, 0);
        assert_right_sums(&out[..len]);
        let answer = parse(&out[..len]).unwrap();
        assert_eq!(answer.tuple, packet.tuple.reversed());
        let word =
            |bytes: &[u8], at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let (sequence, acknowledged) = (word(&out, answer.l4_at + 4), word(&out, answer.l4_at + 8));
        if flags & ACK != 0 {
            // What the sender expects next is what it acknowledged.
            assert_eq!((answer.tcp_flags, sequence), (RST, word(&bytes, l4_at + 8)));
        } else {
            let next = word(&bytes, l4_at + 4).wrapping_add(data as u32 + u32::from(flags & (SYN | FIN) != 0));
            assert_eq!((answer.tcp_flags, sequence, acknowledged), (RST | ACK, 0, next));
        }
    }
}

#[test]
fn no_reset_about_parts_or_other_protocols() {
    let mut rng = Rng::new(25);
    let udp = some_packet_of(&mut rng, false, UDP, 20);
    assert_eq!(reset(&udp, &parse(&udp).unwrap(), &mut [0; 60]), None);
    let mut tcp = some_packet_of(&mut rng, false, TCP, 800);
    tcp.truncate(20 + usize::from(tcp[0] & 15) * 4 - 20 + 64);
    let total = tcp.len() as u16;
    tcp[2..4].copy_from_slice(&total.to_be_bytes());
    let l4_at = usize::from(tcp[0] & 15) * 4;
    tcp[6] = 0x20;
    tcp[l4_at + 13] = SYN;
    assert_eq!(reset(&tcp, &parse(&tcp).unwrap(), &mut [0; 60]), None, "its length is not known");
    tcp[l4_at + 13] = ACK;
    assert_eq!(reset(&tcp, &parse(&tcp).unwrap(), &mut [0; 60]), Some(40));
    assert_eq!(reset(&tcp, &parse(&tcp).unwrap(), &mut [0; 39]), None, "no room");
}

/// Puts fragments together as RFC 791 tells, in any order.
fn reassemble(pieces: &[Vec<u8>]) -> Vec<u8> {
    let mut payload = Vec::new();
    let mut last = 0;
    for piece in pieces {
        let at = usize::from(piece[0] & 15) * 4;
        let offset = (usize::from(piece[6] & 31) << 8 | usize::from(piece[7])) * 8;
        payload.resize(payload.len().max(offset + piece.len() - at), 0xee);
        payload[offset..offset + piece.len() - at].copy_from_slice(&piece[at..]);
        last += usize::from(piece[6] & 0x20 == 0);
    }
    assert_eq!(last, 1, "exactly one is the last");
    payload
}

fn fragments(bytes: &[u8], mtu: usize) -> Vec<Vec<u8>> {
    let (mut pieces, mut at) = (Vec::new(), Some(0));
    while let Some(from) = at {
        let mut out = vec![0; mtu];
        let (len, next) = fragment(bytes, mtu, from, &mut out).unwrap();
        out.truncate(len);
        pieces.push(out);
        at = next;
    }
    pieces
}

#[test]
fn fragments_reassemble() {
    let mut rng = Rng::new(26);
    for _ in 0..2_000 {
        let size = if rng.below(10) == 0 { 60_000 } else { 3_000 };
        let data = rng.below(size);
        let mut bytes = some_packet_of(&mut rng, false, UDP, data);
        bytes[6] = 0;
        let packet = parse(&bytes).unwrap();
        let mtu = 68 + rng.below(1_433);
        let mut pieces = fragments(&bytes, mtu);
        if pieces.len() == 1 {
            assert_eq!(pieces[0], bytes);
            continue;
        }
        for piece in &pieces {
            let part = parse(piece).unwrap();
            assert!(piece.len() <= mtu && part.len == piece.len() && part.part != Part::Whole);
            assert_eq!(plain_sum(&piece[..part.l4_at]), 0xffff);
            assert_eq!((&piece[4..6], &piece[12..20]), (&bytes[4..6], &bytes[12..20]));
        }
        assert_eq!(reassemble(&pieces), bytes[packet.l4_at..]);
        // Once more on a narrower link.
        pieces = pieces.iter().flat_map(|piece| fragments(piece, 68)).collect();
        assert_eq!(reassemble(&pieces), bytes[packet.l4_at..]);
    }
}

#[test]
fn later_fragments_have_only_the_options_that_are_copied() {
    let mut rng = Rng::new(27);
    let segment = some_bytes(&mut rng, 200);
    let mut bytes = vec![0x48, 0, 0, 232, 0, 0, 0, 0, 64, 50, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    // Record route (not copied), router alert (copied), end.
    bytes.extend_from_slice(&[7, 7, 4, 0, 0, 0, 0, 0x94, 4, 0, 1, 0]);
    bytes.extend_from_slice(&segment);
    let pieces = fragments(&bytes, 100);
    assert_eq!(pieces[0][20..32], bytes[20..32]);
    assert!(pieces.len() > 2 && pieces[1..].iter().all(|piece| piece[0] == 0x46 && piece[20..24] == [0x94, 4, 0, 1]));
    assert!(pieces.iter().all(|piece| piece[4..6] == [0, 1]), "one identification, and not 0");
    assert_eq!(reassemble(&pieces), segment);
}

#[test]
fn what_must_not_be_fragmented_is_not() {
    let mut rng = Rng::new(28);
    let mut bytes = some_packet_of(&mut rng, false, UDP, 900);
    let mut out = [0; 2_000];
    bytes[6] = 0x40;
    assert_eq!(fragment(&bytes, 500, 0, &mut out), None);
    assert_eq!(fragment(&bytes, 1_500, 0, &mut out), Some((bytes.len(), None)));
    bytes[6] = 0;
    assert_eq!(fragment(&bytes, 27, 0, &mut out), None, "no room for eight bytes");
    assert_eq!(fragment(&bytes, 500, 12, &mut out), None, "between two fragments");
    assert_eq!(fragment(&bytes, 500, 1_600, &mut out), None, "behind the end");
    assert_eq!(fragment(&bytes, 500, usize::MAX, &mut out), None);
    assert_eq!(fragment(&bytes, 500, 0, &mut out[..100]), None);
    let v6 = some_packet_of(&mut rng, true, UDP, 900);
    assert_eq!(fragment(&v6, 500, 0, &mut out), None);
}
