//! Changes in place, against checksums that are computed anew.

use super::testing::*;
use super::*;
use crate::rng::Rng;

/// The packet with a checksum that is left to the kernel; None if its kind has none.
fn partial(bytes: &[u8]) -> Option<Vec<u8>> {
    let packet = parse(bytes).unwrap();
    let at = field_at(&packet).filter(|_| packet.tuple.protocol != ICMP)?;
    let mut bytes = bytes.to_vec();
    let sum = pseudo_sum(&bytes, &packet);
    bytes[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    Some(bytes)
}

fn with_ports_of(wanted: Endpoint, old: Endpoint, packet: &Packet, has_port: bool) -> Endpoint {
    let keeps = packet.tuple.protocol == SCTP || !has_port;
    Endpoint { address: wanted.address, port: if keeps { old.port } else { wanted.port } }
}

/// Whether the source and the destination have a port or an identifier.
fn has_ports(bytes: &[u8], packet: &Packet) -> (bool, bool) {
    match packet.tuple.protocol {
        ICMP | ICMPV6 => (matches!(bytes[packet.l4_at], 8 | 128), matches!(bytes[packet.l4_at], 0 | 129)),
        TCP | UDP | UDP_LITE | DCCP | SCTP => (true, true),
        _ => (false, false),
    }
}

#[test]
fn sums_are_right_and_the_way_back_gives_the_same_bytes() {
    let mut rng = Rng::new(5);
    for _ in 0..20_000 {
        let before = some_packet(&mut rng);
        let packet = parse(&before).unwrap();
        let v6 = packet.is_ipv6();
        assert_right_sums(&before);
        let source = Some(some_end(&mut rng, v6)).filter(|_| rng.below(4) > 0);
        let destination = Some(some_end(&mut rng, v6)).filter(|_| rng.below(4) > 0);
        let mut bytes = before.clone();
        assert!(rewrite(&mut bytes, &packet, source, destination, Sum::Whole));
        assert_right_sums(&bytes);
        let after = parse(&bytes).unwrap();
        let (of_source, of_destination) = has_ports(&before, &packet);
        let old = packet.tuple;
        let wanted = source.map_or(old.source, |new| with_ports_of(new, old.source, &packet, of_source));
        assert_eq!(after.tuple.source, wanted);
        let wanted =
            destination.map_or(old.destination, |new| with_ports_of(new, old.destination, &packet, of_destination));
        assert_eq!(after.tuple.destination, wanted);
        assert_eq!(bytes[packet.l4_at + 8..], with_later_sum(&before, &bytes, &packet)[packet.l4_at + 8..]);
        assert!(rewrite(&mut bytes, &after, Some(old.source), Some(old.destination), Sum::Whole));
        assert_eq!(bytes, before, "{packet:?}");
    }
}

/// `before` with the checksum of TCP, which stands behind the first eight bytes, as in `after`.
fn with_later_sum(before: &[u8], after: &[u8], packet: &Packet) -> Vec<u8> {
    let mut bytes = before.to_vec();
    if packet.tuple.protocol == TCP {
        bytes[packet.l4_at + 16..packet.l4_at + 18].copy_from_slice(&after[packet.l4_at + 16..packet.l4_at + 18]);
    }
    bytes
}

#[test]
fn partial_sums_stay_those_of_the_pseudo_header() {
    let mut rng = Rng::new(6);
    let mut count = 0;
    for _ in 0..10_000 {
        let mut bytes = match partial(&some_packet(&mut rng)) {
            Some(bytes) => bytes,
            None => continue,
        };
        let packet = parse(&bytes).unwrap();
        let v6 = packet.is_ipv6();
        let (source, destination) = (some_end(&mut rng, v6), some_end(&mut rng, v6));
        assert!(rewrite(&mut bytes, &packet, Some(source), Some(destination), Sum::Partial));
        let at = field_at(&packet).unwrap();
        assert_eq!(bytes[at..at + 2], pseudo_sum(&bytes, &packet).to_be_bytes());
        complete(&mut bytes, &packet);
        assert_right_sums(&bytes);
        assert_ne!((packet.tuple.protocol, &bytes[at..at + 2]), (UDP, &[0, 0][..]));
        count += 1;
    }
    assert!(count > 5_000);
}

#[test]
fn a_udp_checksum_that_comes_to_zero_is_sent_as_ones() {
    let mut rng = Rng::new(7);
    let mut bytes = some_packet_of(&mut rng, false, UDP, 11);
    set_sum(&mut bytes, false);
    let packet = parse(&bytes).unwrap();
    let at = packet.l4_at + 6;
    let ends: Vec<Endpoint> = (0..=u16::MAX).map(|port| Endpoint { port, ..packet.tuple.source }).collect();
    let mut ones = 0;
    for end in ends {
        rewrite(&mut bytes, &packet, Some(end), None, Sum::Whole);
        assert_eq!(segment_sum(&bytes, &packet), 0xffff);
        assert_ne!(bytes[at..at + 2], [0, 0]);
        ones += usize::from(bytes[at..at + 2] == [0xff, 0xff]);
    }
    assert!(ones >= 1, "one of all ports must make the checksum 0");
}

#[test]
fn damage_stays_visible() {
    let mut rng = Rng::new(8);
    for _ in 0..2_000 {
        let mut bytes = some_packet_of(&mut rng, false, TCP, 40);
        let packet = parse(&bytes).unwrap();
        bytes[packet.len - 1] ^= 1;
        bytes[8] ^= 1;
        rewrite(&mut bytes, &packet, Some(some_end(&mut rng, false)), None, Sum::Whole);
        assert_ne!(segment_sum(&bytes, &packet), 0xffff);
        assert_ne!(plain_sum(&bytes[..packet.l4_at]), 0xffff);
    }
}

#[test]
fn later_fragments_change_addresses_only_and_fit_the_first() {
    let mut rng = Rng::new(9);
    let mut bytes = some_packet_of(&mut rng, false, UDP, 1_000);
    bytes[6] = 0;
    let sum = !plain_sum(&[&bytes[..10], &[0, 0], &bytes[12..parse(&bytes).unwrap().l4_at]].concat());
    bytes[10..12].copy_from_slice(&sum.to_be_bytes());
    set_sum(&mut bytes, false);
    let whole = parse(&bytes).unwrap();
    let (source, destination) = (some_end(&mut rng, false), some_end(&mut rng, false));
    let (mut payload, mut at) = (Vec::new(), Some(0));
    while let Some(from) = at {
        let mut piece = [0; 300];
        let (len, next) = fragment(&bytes, 300, from, &mut piece).unwrap();
        let packet = parse(&piece[..len]).unwrap();
        assert!(rewrite(&mut piece[..len], &packet, Some(source), Some(destination), Sum::Whole));
        assert_eq!(plain_sum(&piece[..packet.l4_at]), 0xffff);
        payload.extend_from_slice(&piece[packet.l4_at..len]);
        at = next;
    }
    rewrite(&mut bytes, &whole, Some(source), Some(destination), Sum::Whole);
    assert_eq!(payload, bytes[whole.l4_at..whole.len]);
    assert_right_sums(&bytes);
}

#[test]
fn fragments_of_ipv6_keep_their_sum_together() {
    let mut rng = Rng::new(15);
    for _ in 0..500 {
        let segment_from = some_packet_of(&mut rng, true, UDP, 400);
        let whole = parse(&segment_from).unwrap();
        let segment = &segment_from[whole.l4_at..];
        let (source, destination) = (some_end(&mut rng, true), some_end(&mut rng, true));
        // Two fragments of the same packet, between the same ends.
        let mut pieces: Vec<Vec<u8>> = [(0, 200, 1), (200, segment.len(), 0)]
            .iter()
            .map(|&(from, to, more)| {
                let mut piece = segment_from[..40].to_vec();
                piece[4..6].copy_from_slice(&((8 + to - from) as u16).to_be_bytes());
                piece[6] = 44;
                piece.extend_from_slice(&[UDP, 0, 0, from as u8 | more, 1, 2, 3, 4]);
                piece.extend_from_slice(&segment[from..to]);
                piece
            })
            .collect();
        let mut wanted = segment_from.clone();
        rewrite(&mut wanted, &whole, Some(source), Some(destination), Sum::Whole);
        for piece in &mut pieces {
            let packet = parse(piece).unwrap();
            assert_eq!(packet.l4_at, 48);
            assert!(rewrite(piece, &packet, Some(source), Some(destination), Sum::Whole));
            assert_eq!(piece[8..40], wanted[8..40]);
        }
        assert_eq!([&pieces[0][48..], &pieces[1][48..]].concat(), wanted[whole.l4_at..]);
    }
}

#[test]
fn nothing_changes_where_the_family_is_another() {
    let mut rng = Rng::new(10);
    for _ in 0..200 {
        let before = some_packet(&mut rng);
        let packet = parse(&before).unwrap();
        let (fits, other) = (some_end(&mut rng, packet.is_ipv6()), some_end(&mut rng, !packet.is_ipv6()));
        let mut bytes = before.clone();
        assert!(!rewrite(&mut bytes, &packet, Some(fits), Some(other), Sum::Whole));
        assert!(!rewrite(&mut bytes, &packet, Some(other), None, Sum::Whole));
        let short = bytes.len() - 1;
        assert!(!rewrite(&mut bytes[..short], &packet, Some(fits), None, Sum::Whole));
        assert_eq!(bytes, before);
        let (before, _) = some_error(&mut rng, packet.is_ipv6());
        let (mut bytes, packet) = (before.clone(), parse(&before).unwrap());
        assert!(!rewrite_error(&mut bytes, &packet, fits.address, other));
        assert!(!rewrite_error(&mut bytes, &packet, other.address, fits));
        assert_eq!(bytes, before);
    }
}

/// An error as a router makes it for a packet that we rewrote comes back as if it were about the packet before.
#[test]
fn errors_come_back_about_the_packet_of_the_application() {
    let mut rng = Rng::new(12);
    let mut whole = 0;
    for _ in 0..10_000 {
        let v6 = rng.below(2) == 0;
        let icmp = if v6 { ICMPV6 } else { ICMP };
        let protocol = [TCP, UDP, UDP_LITE, icmp, SCTP, 50][rng.below(6)];
        let data = rng.below(700);
        let ours = some_packet_of(&mut rng, v6, protocol, data);
        let packet = parse(&ours).unwrap();
        let mapped = some_end(&mut rng, v6);
        let mut sent = ours.clone();
        rewrite(&mut sent, &packet, Some(mapped), None, Sum::Whole);

        let mut out = [0; MOST_MESSAGE];
        let router = some_end(&mut rng, v6).address;
        let len = unreachable(&sent, false, router, &mut out).unwrap();
        // Many routers quote no more than eight bytes above IP.
        let len = if rng.below(3) == 0 { cut(&mut out[..len], packet.l4_at + 8) } else { len };
        let bytes = &mut out[..len];
        assert_right_sums(bytes);
        let error = parse(bytes).unwrap();
        let quoted = error.error.unwrap();
        assert_eq!(quoted.inner, parse(&sent).unwrap().tuple);
        assert!(rewrite_error(bytes, &error, packet.tuple.source.address, packet.tuple.source));
        assert_right_sums(bytes);
        let after = parse(bytes).unwrap();
        assert_eq!(after.tuple.source.address, router);
        assert_eq!(after.tuple.destination.address, packet.tuple.source.address);
        let quoted = after.error.unwrap();
        assert_eq!(quoted.inner, packet.tuple);
        assert_eq!(bytes[quoted.inner_at..], ours[..quoted.inner_end - quoted.inner_at], "{packet:?}");
        whole += usize::from(quoted.inner_end - quoted.inner_at == ours.len());
    }
    assert!(whole > 1_000);
}

/// Shortens what an ICMP error quotes to `quoted` bytes.
fn cut(bytes: &mut [u8], quoted: usize) -> usize {
    let v6 = bytes[0] >> 4 == 6;
    let len = if v6 { 48 } else { 28 } + quoted;
    let bytes = &mut bytes[..len];
    if v6 {
        bytes[4..6].copy_from_slice(&((len - 40) as u16).to_be_bytes());
    } else {
        bytes[2..4].copy_from_slice(&(len as u16).to_be_bytes());
        bytes[10..12].fill(0);
        let sum = !plain_sum(&bytes[..20]);
        bytes[10..12].copy_from_slice(&sum.to_be_bytes());
    }
    set_sum(bytes, false);
    len
}

fn syn(rng: &mut Rng, v6: bool, options: &[u8]) -> Vec<u8> {
    let mut segment = some_bytes(rng, 20);
    segment[12] = (5 + options.len() as u8 / 4) << 4;
    segment[13] = SYN;
    segment.extend_from_slice(options);
    segment.extend(some_bytes(rng, 3));
    let mut bytes = wrap(rng, v6, TCP, &segment);
    set_sum(&mut bytes, false);
    bytes
}

#[test]
fn segment_sizes_are_lowered_in_syns_only() {
    let mut rng = Rng::new(13);
    for round in 0..2_000 {
        let v6 = round % 2 == 0;
        let headers = if v6 { 60 } else { 40 };
        // In front of the option stand none to three that do nothing, so that it begins at an odd byte, too.
        let mut options = vec![1; round % 4];
        options.extend_from_slice(&[2, 4, 0x05, 0xb4, 3, 3, 7]);
        options.resize(12, 0);
        let before = syn(&mut rng, v6, &options);
        let packet = parse(&before).unwrap();
        let mtu = headers + 100 + rng.below(1_400);
        let mut bytes = before.clone();
        assert_eq!(clamp_mss(&mut bytes, &packet, mtu, Sum::Whole), mtu < 1_460 + headers);
        assert_right_sums(&bytes);
        let at = packet.l4_at + 20 + round % 4 + 2;
        let told = usize::from(bytes[at]) * 256 + usize::from(bytes[at + 1]);
        assert_eq!(told, 1_460.min(mtu - headers));
        assert!(!clamp_mss(&mut bytes, &packet, mtu, Sum::Whole), "it is low enough");

        let mut bytes = partial(&before).unwrap();
        clamp_mss(&mut bytes, &packet, mtu, Sum::Partial);
        complete(&mut bytes, &packet);
        assert_right_sums(&bytes);
        let mut data = before.clone();
        data[packet.l4_at + 13] = ACK;
        let packet = parse(&data).unwrap();
        assert!(!clamp_mss(&mut data, &packet, 200, Sum::Whole));
    }
}

#[test]
fn broken_options_are_left_alone() {
    let mut rng = Rng::new(14);
    let broken: [&[u8]; 8] = [
        &[2, 3, 9, 9],
        &[2, 0, 9, 9],
        &[1, 1, 1, 2],
        &[1, 2, 4, 9],
        &[0, 2, 4, 9],
        &[8, 255, 2, 4],
        &[3, 0, 2, 4, 5, 180, 0, 0],
        &[3, 1, 2, 4, 5, 180, 0, 0],
    ];
    for options in broken {
        let before = syn(&mut rng, false, options);
        let packet = parse(&before).unwrap();
        let mut bytes = before.clone();
        assert!(!clamp_mss(&mut bytes, &packet, 100, Sum::Whole));
        assert_eq!(bytes, before);
    }
}
