//! Reading packets: who talks to whom, fragments, quoted packets, and what is refused.

use super::testing::*;
use super::*;
use crate::rng::Rng;

fn v4(protocol: u8, segment: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x45, 0xb8, 0, (20 + segment.len()) as u8, 0x12, 0x34, 0, 0, 64, protocol, 0, 0];
    bytes.extend_from_slice(&[10, 0, 0, 1, 192, 0, 2, 9]);
    bytes.extend_from_slice(segment);
    bytes
}

fn v6(next: u8, rest: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x6b, 0x80, 0, 0, 0, rest.len() as u8, next, 64];
    bytes.extend_from_slice(&[0x20, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    bytes.extend_from_slice(&[0x20, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
    bytes.extend_from_slice(rest);
    bytes
}

fn tuple(protocol: u8, source: (&str, u16), destination: (&str, u16)) -> Tuple {
    let end = |(address, port): (&str, u16)| Endpoint { address: address.parse().unwrap(), port };
    Tuple { protocol, source: end(source), destination: end(destination) }
}

const PORTS: [u8; 8] = [0x13, 0xc4, 0, 53, 0, 8, 0, 0];

#[test]
fn ipv4_udp_with_options_and_padding() {
    let mut bytes = v4(UDP, &PORTS);
    bytes[0] = 0x46;
    bytes[3] += 4;
    bytes.splice(20..20, [1, 1, 1, 0]);
    bytes.extend_from_slice(&[0xee; 18]);
    let packet = parse(&bytes).unwrap();
    assert_eq!(packet.tuple, tuple(UDP, ("10.0.0.1", 5060), ("192.0.2.9", 53)));
    assert_eq!((packet.l4_at, packet.len, packet.part, packet.dscp), (24, 32, Part::Whole, 46));
    assert_eq!((packet.tcp_flags, packet.error), (0, None));
}

#[test]
fn ipv6_extension_headers_are_walked() {
    let mut rest = vec![60, 0, 0, 0, 0, 0, 0, 0];
    rest.extend_from_slice(&[51, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    rest.extend_from_slice(&[43, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    rest.extend_from_slice(&[TCP, 0, 0, 0, 0, 0, 0, 0]);
    rest.extend_from_slice(&[1, 187, 0, 80, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, SYN | ACK, 0, 0, 0, 0, 0, 0]);
    let packet = parse(&v6(0, &rest)).unwrap();
    assert_eq!(packet.tuple, tuple(TCP, ("2001::1", 443), ("2001::2", 80)));
    assert_eq!((packet.l4_at, packet.tcp_flags, packet.dscp), (40 + 8 + 16 + 12 + 8, SYN | ACK, 46));
    assert_eq!(parse(&v6(59, &[])).unwrap().tuple, tuple(59, ("2001::1", 0), ("2001::2", 0)));
}

#[test]
fn an_echo_reply_is_the_reverse_of_its_request() {
    let mut request = v4(ICMP, &[8, 0, 0, 0, 0x12, 0x34, 0, 1]);
    let asked = parse(&request).unwrap().tuple;
    assert_eq!(asked, tuple(ICMP, ("10.0.0.1", 0x1234), ("192.0.2.9", 0)));
    request[20] = 0;
    request[12..20].rotate_left(4);
    assert_eq!(parse(&request).unwrap().tuple, asked.reversed());
    let answer = parse(&v6(ICMPV6, &[129, 0, 0, 0, 0x12, 0x34, 0, 1])).unwrap().tuple;
    assert_eq!(answer, tuple(ICMPV6, ("2001::1", 0), ("2001::2", 0x1234)));
    // A protocol of the other family means nothing.
    assert_eq!(parse(&v4(ICMPV6, &[128, 0, 0, 0, 1, 1, 0, 0])).unwrap().tuple.source.port, 0);
}

#[test]
fn fragments_are_told_apart() {
    let mut first = v4(UDP, &PORTS);
    first[6] = 0x20;
    let packet = parse(&first).unwrap();
    assert_eq!((packet.part, packet.tuple.source.port), (Part::FirstFragment { identification: 0x1234 }, 5060));
    first[6..8].copy_from_slice(&[0, 3]);
    let packet = parse(&first).unwrap();
    assert_eq!((packet.part, packet.tuple.source.port), (Part::LaterFragment { identification: 0x1234 }, 0));

    let mut rest = vec![UDP, 0, 0, 1, 0xde, 0xad, 0xbe, 0xef];
    rest.extend_from_slice(&PORTS);
    let packet = parse(&v6(44, &rest)).unwrap();
    assert_eq!((packet.part, packet.l4_at), (Part::FirstFragment { identification: 0xdead_beef }, 48));
    // One fragment that is all of the packet (RFC 6946).
    rest[3] = 0;
    let packet = parse(&v6(44, &rest)).unwrap();
    assert_eq!((packet.part, packet.tuple.destination.port), (Part::Whole, 53));
    rest[3] = 8;
    let packet = parse(&v6(44, &rest)).unwrap();
    assert_eq!((packet.part, packet.tuple.destination.port), (Part::LaterFragment { identification: 0xdead_beef }, 0));
}

#[test]
fn what_no_honest_host_sends_is_refused() {
    assert_eq!(refused(&[]), Malformed::Version);
    assert_eq!(refused(&[0x55; 40]), Malformed::Version);
    assert_eq!(refused(&[0x45; 19]), Malformed::Header);
    assert_eq!(refused(&[0x60; 39]), Malformed::Header);
    let with = |bytes: &[u8], changes: &[(usize, u8)]| {
        let mut bytes = bytes.to_vec();
        changes.iter().for_each(|&(at, to)| bytes[at] = to);
        refused(&bytes)
    };
    let udp = v4(UDP, &PORTS);
    assert_eq!(with(&udp, &[(0, 0x44)]), Malformed::Header);
    assert_eq!(with(&udp, &[(3, 29)]), Malformed::Length);
    assert_eq!(with(&udp, &[(3, 27)]), Malformed::Transport);
    assert_eq!(with(&udp, &[(6, 0x3f), (7, 0xff)]), Malformed::Fragment, "beyond 65,535 bytes");
    assert_eq!(with(&udp, &[(6, 0x20), (3, 25), (7, 9)]), Malformed::Fragment, "no multiple of 8 bytes");
    assert_eq!(with(&udp, &[(6, 0), (7, 9), (3, 20)]), Malformed::Fragment, "empty");
    let mut tcp = v4(TCP, &[0; 20]);
    assert_eq!(with(&tcp, &[(32, 0x40)]), Malformed::Transport, "a header of 16 bytes");
    assert_eq!(with(&tcp, &[(32, 0x60)]), Malformed::Transport, "options cut off");
    tcp[32] = 0x50;
    assert!(parse(&tcp).is_ok());
    assert_eq!(with(&tcp, &[(7, 1)]), Malformed::Fragment, "over the flags of TCP");
    let route = v6(43, &[UDP, 0, 4, 1, 0, 0, 0, 0, 0x13, 0xc4, 0, 53, 0, 8, 0, 0]);
    assert_eq!(refused(&route), Malformed::SourceRoute);
    assert_eq!(with(&route, &[(43, 0), (41, 9)]), Malformed::Extensions, "longer than the packet");
    assert_eq!(refused(&v6(60, &[60, 0, 0, 0, 0, 0, 0, 0].repeat(20))), Malformed::Extensions, "a long chain");
}

#[test]
fn errors_quote_what_was_sent() {
    let mut rng = Rng::new(3);
    for _ in 0..2_000 {
        let v6 = rng.below(2) == 0;
        let (bytes, about) = some_error(&mut rng, v6);
        let error = parse(&bytes).unwrap().error.unwrap();
        let sent = parse(&about).unwrap();
        assert_eq!((error.inner, error.inner_part), (sent.tuple, sent.part));
        assert_eq!(bytes[error.inner_at..error.inner_end], about[..error.inner_end - error.inner_at]);
        let l4_at = error.inner_at - 8;
        let tells = matches!((v6, bytes[l4_at], bytes[l4_at + 1]), (false, 3, 4) | (true, 2, _));
        assert_eq!(error.mtu, tells.then_some(1_440));
    }
}

#[test]
fn mtus_that_routers_do_not_tell_and_quotes_that_end_early() {
    let mut message = vec![3, 4, 0, 0, 0, 0, 0, 0];
    message.extend_from_slice(&v4(UDP, &PORTS));
    message[8 + 2..8 + 4].copy_from_slice(&1500u16.to_be_bytes());
    let told = |message: &[u8]| parse(&v4(ICMP, message)).map(|packet| packet.error.unwrap());
    assert_eq!(told(&message).unwrap().mtu, Some(1_492));
    message[7] = 20;
    assert_eq!(told(&message).unwrap().mtu, Some(68));
    assert_eq!(told(&message[..35]), Err(Malformed::Quote), "seven bytes of UDP");
    assert_eq!(told(&message[..8]), Err(Malformed::Quote));
    // Behind the 28 bytes stands an extension (RFC 4884).
    message[5] = 7;
    message.extend_from_slice(&[0x20; 12]);
    assert_eq!(told(&message).unwrap().inner_end, 20 + 8 + 28);
    // An IPv6 packet in an ICMP error of IPv4.
    message.truncate(8);
    message[5] = 0;
    message.extend_from_slice(&v6(UDP, &PORTS));
    assert_eq!(told(&message), Err(Malformed::Quote));
    message[..8].copy_from_slice(&[2, 0, 0, 0, 0, 0, 0, 68]);
    let packet = parse(&v6(ICMPV6, &message)).unwrap();
    assert_eq!(packet.error.unwrap().mtu, Some(1_280), "IPv6 has no smaller links");
}

#[test]
fn random_bytes_never_panic() {
    let mut rng = Rng::new(11);
    let mut out = [0; MOST_MESSAGE];
    let (mut read, mut errors) = (0, 0);
    for _ in 0..300_000 {
        let mut bytes = broken_packet(&mut rng);
        let v6 = bytes.first().map_or(false, |first| first >> 4 == 6);
        let (source, destination) = (some_end(&mut rng, v6), some_end(&mut rng, v6));
        let mtu = rng.below(200);
        too_big(&bytes, mtu, source.address, &mut out);
        too_big_from_destination(&bytes, mtu, &mut out);
        unreachable(&bytes, rng.below(2) == 0, source.address, &mut out);
        let mut at = Some(rng.below(2) * rng.below(100));
        while let Some(from) = at {
            at = fragment(&bytes, mtu, from, &mut out).and_then(|(_, next)| next);
            assert!(at.map_or(true, |next| next > from));
        }
        let sum = if rng.below(2) == 0 { Sum::Whole } else { Sum::Partial };
        if let Ok(packet) = parse(&bytes) {
            read += 1;
            errors += usize::from(packet.error.is_some());
            assert!(packet.l4_at <= packet.len && packet.len <= bytes.len());
            reset(&bytes, &packet, &mut out);
            // Also where the bytes are not those that were read.
            let mut others = broken_packet(&mut rng);
            for bytes in [&mut bytes, &mut others] {
                rewrite(bytes, &packet, Some(source), Some(destination), sum);
                rewrite_error(bytes, &packet, source.address, destination);
                clamp_mss(bytes, &packet, mtu, sum);
                complete(bytes, &packet);
                reset(bytes, &packet, &mut out);
            }
        }
    }
    assert!(read > 100_000 && errors > 20_000, "{read} packets were read, {errors} errors among them");
}
