//! Random packets with right checksums for the tests, and a second, plain way to compute checksums.

use super::{Malformed, Packet, DCCP, ICMP, ICMPV6, SCTP, TCP, UDP, UDP_LITE};
use crate::rng::Rng;

/// The Internet checksum, word by word.
pub fn plain_sum(bytes: &[u8]) -> u16 {
    let mut sum = 0u32;
    for at in (0..bytes.len()).step_by(2) {
        sum += u32::from(bytes[at]) * 256 + bytes.get(at + 1).map_or(0, |low| u32::from(*low));
        sum = sum % 65_536 + sum / 65_536;
    }
    sum as u16
}

/// The sum over pseudo header (but for ICMP in IPv4) and segment: 0xffff if the checksum is right.
pub fn segment_sum(bytes: &[u8], packet: &Packet) -> u16 {
    plain_sum(&pseudo_and(bytes, packet, &bytes[packet.l4_at..packet.len]))
}

/// The sum of the pseudo header alone.
pub fn pseudo_sum(bytes: &[u8], packet: &Packet) -> u16 {
    plain_sum(&pseudo_and(bytes, packet, &[]))
}

fn pseudo_and(bytes: &[u8], packet: &Packet, segment: &[u8]) -> Vec<u8> {
    let mut all = Vec::new();
    if packet.tuple.protocol != ICMP {
        all.extend_from_slice(if packet.is_ipv6() { &bytes[8..40] } else { &bytes[12..20] });
        all.extend_from_slice(&((packet.len - packet.l4_at) as u32).to_be_bytes());
        all.extend_from_slice(&[0, 0, 0, packet.tuple.protocol]);
    }
    all.extend_from_slice(segment);
    all
}

/// Fails unless the IPv4 header checksum and that of the segment are right.
pub fn assert_right_sums(bytes: &[u8]) {
    let packet = super::parse(bytes).unwrap();
    if !packet.is_ipv6() {
        assert_eq!(plain_sum(&bytes[..usize::from(bytes[0] & 15) * 4]), 0xffff, "IPv4 header");
    }
    if let Some(at) = field_at(&packet) {
        let is_none = packet.tuple.protocol == UDP && bytes[at..at + 2] == [0, 0];
        assert!(is_none || segment_sum(bytes, &packet) == 0xffff, "{packet:?}");
    }
}

/// Where the checksum of the segment stands.
pub fn field_at(packet: &Packet) -> Option<usize> {
    let at = match packet.tuple.protocol {
        TCP => 16,
        UDP | UDP_LITE | DCCP => 6,
        ICMP | ICMPV6 => 2,
        _ => return None,
    };
    Some(packet.l4_at + at)
}

pub fn some_bytes(rng: &mut Rng, len: usize) -> Vec<u8> {
    (0..len).map(|_| rng.bits() as u8).collect()
}

/// A host's address, 4 or 16 bytes.
pub fn some_address(rng: &mut Rng, v6: bool) -> Vec<u8> {
    let mut address = some_bytes(rng, if v6 { 16 } else { 4 });
    address[0] = if v6 { 0x20 } else { 10 };
    address
}

/// An IP packet around a segment, with IPv4 options or IPv6 extension headers now and then; no checksum but IPv4's.
pub fn wrap(rng: &mut Rng, v6: bool, protocol: u8, segment: &[u8]) -> Vec<u8> {
    let mut packet = Vec::new();
    if v6 {
        let mut next = protocol;
        let mut extensions = Vec::new();
        for _ in 0..rng.below(4).saturating_sub(1) {
            let kind = [0, 60, 43, 51][rng.below(4)];
            let extra = rng.below(3);
            let mut header = vec![0; 8 + extra * 8];
            header[0] = next;
            header[1] = if kind == 51 { header.len() / 4 - 2 } else { extra } as u8;
            header.extend_from_slice(&extensions);
            extensions = header;
            next = kind;
        }
        packet.extend_from_slice(&[0x6b, 0x80, 0, 0]);
        packet.extend_from_slice(&((extensions.len() + segment.len()) as u16).to_be_bytes());
        packet.extend_from_slice(&[next, 64]);
        packet.extend(some_address(rng, true));
        packet.extend(some_address(rng, true));
        packet.extend(extensions);
    } else {
        let options = if rng.below(3) == 0 { rng.below(11) * 4 } else { 0 };
        packet.extend_from_slice(&[0x45 + (options / 4) as u8, 0xb8]);
        packet.extend_from_slice(&((20 + options + segment.len()) as u16).to_be_bytes());
        packet.extend(some_bytes(rng, 2));
        packet.extend_from_slice(&[0x40 * rng.below(2) as u8, 0, 64, protocol, 0, 0]);
        packet.extend(some_address(rng, false));
        packet.extend(some_address(rng, false));
        packet.resize(20 + options, 1);
        let sum = !plain_sum(&packet);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
    }
    packet.extend_from_slice(segment);
    packet
}

/// A packet with right checksums: TCP with options, UDP (now and then without a checksum), UDP-Lite, DCCP, SCTP, an echo
/// or its reply, or a protocol without ports.
pub fn some_packet(rng: &mut Rng) -> Vec<u8> {
    let v6 = rng.below(2) == 0;
    let icmp = if v6 { ICMPV6 } else { ICMP };
    let protocol = [TCP, TCP, UDP, UDP, UDP_LITE, DCCP, SCTP, icmp, icmp, 50][rng.below(10)];
    let size = if rng.below(4) == 0 { 1_400 } else { 100 };
    let data = rng.below(size);
    some_packet_of(rng, v6, protocol, data)
}

pub fn some_packet_of(rng: &mut Rng, v6: bool, protocol: u8, data: usize) -> Vec<u8> {
    let options = rng.below(11);
    let header = match protocol {
        TCP => 20 + options * 4,
        SCTP | DCCP => 12,
        _ => 8,
    };
    let mut segment = some_bytes(rng, header + data);
    match protocol {
        TCP => {
            segment[12] = (5 + options as u8) << 4;
            segment[20..header].fill(1);
        }
        UDP | UDP_LITE => segment[4..6].copy_from_slice(&((8 + data) as u16).to_be_bytes()),
        ICMP => segment[..2].copy_from_slice(&[[8, 0][rng.below(2)], 0]),
        ICMPV6 => segment[..2].copy_from_slice(&[128 + rng.below(2) as u8, 0]),
        _ => {}
    }
    let mut bytes = wrap(rng, v6, protocol, &segment);
    let none = protocol == UDP && rng.below(5) == 0;
    set_sum(&mut bytes, none);
    bytes
}

/// Writes the right checksum of the segment, or 0 for `none`.
pub fn set_sum(bytes: &mut [u8], none: bool) {
    let packet = super::parse(bytes).unwrap();
    if let Some(at) = field_at(&packet) {
        bytes[at..at + 2].fill(0);
        let sum = match (none, !segment_sum(bytes, &packet)) {
            (true, _) => 0,
            (false, 0) if matches!(packet.tuple.protocol, UDP | UDP_LITE) => 0xffff,
            (false, sum) => sum,
        };
        bytes[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    }
}

/// What looks like a packet at first, and is changed, cut or continued at random.
pub fn broken_packet(rng: &mut Rng) -> Vec<u8> {
    let mut bytes = match rng.below(4) {
        0 => {
            let len = rng.below(120);
            let mut bytes = some_bytes(rng, len);
            if let Some(first) = bytes.first_mut() {
                *first = [0x45, 0x60, 0x4f, 0x46][rng.below(4)];
            }
            bytes
        }
        1 => {
            let v6 = rng.below(2) == 0;
            some_error(rng, v6).0
        }
        _ => some_packet(rng),
    };
    for _ in 0..rng.below(6) {
        let within = if rng.below(4) == 0 { bytes.len() } else { bytes.len().min(80) };
        if within > 0 {
            let at = rng.below(within);
            bytes[at] = if rng.below(2) == 0 { rng.bits() as u8 } else { [0, 1, 43, 44, 51, 60, 255][rng.below(7)] };
        }
    }
    if rng.below(3) == 0 {
        bytes.truncate(rng.below(bytes.len() + 1));
    }
    bytes
}

/// An ICMP error with right checksums and the packet that it quotes, of which it may have less.
pub fn some_error(rng: &mut Rng, v6: bool) -> (Vec<u8>, Vec<u8>) {
    let icmp = if v6 { ICMPV6 } else { ICMP };
    let protocol = [TCP, UDP, UDP_LITE, icmp, 50][rng.below(5)];
    let data = rng.below(600);
    let about = some_packet_of(rng, v6, protocol, data);
    let l4_at = super::parse(&about).unwrap().l4_at;
    let most = about.len().min(if v6 { 1_232 } else { 548 });
    let quoted = &about[..(l4_at + 8 + rng.below(600)).min(most)];
    let mut message = match (v6, rng.below(3)) {
        (false, 0) => vec![3, 4, 0, 0, 0, 0, 5, 0xa0],
        (false, 1) => vec![3, 1, 0, 0, 0, 0, 0, 0],
        (false, _) => vec![11, 0, 0, 0, 0, 0, 0, 0],
        (true, 0) => vec![2, 0, 0, 0, 0, 0, 5, 0xa0],
        (true, 1) => vec![1, 0, 0, 0, 0, 0, 0, 0],
        (true, _) => vec![3, 0, 0, 0, 0, 0, 0, 0],
    };
    message.extend_from_slice(quoted);
    let mut bytes = wrap(rng, v6, icmp, &message);
    set_sum(&mut bytes, false);
    (bytes, about)
}

/// An end with an address of the family and a port.
pub fn some_end(rng: &mut Rng, v6: bool) -> super::Endpoint {
    let mut octets = [0; 16];
    let address = some_address(rng, v6);
    octets[..address.len()].copy_from_slice(&address);
    let address = match v6 {
        true => std::net::Ipv6Addr::from(octets).into(),
        false => std::net::Ipv4Addr::new(octets[0], octets[1], octets[2], octets[3]).into(),
    };
    super::Endpoint { address, port: rng.bits() as u16 }
}

pub fn refused(bytes: &[u8]) -> Malformed {
    super::parse(bytes).unwrap_err()
}
