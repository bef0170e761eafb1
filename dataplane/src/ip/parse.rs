//! Reading packets.

use super::{Endpoint, IcmpError, Malformed, Packet, Part, Tuple};
use super::{DCCP, ICMP, ICMPV6, SCTP, TCP, UDP, UDP_LITE};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;
const DESTINATION: u8 = 60;
/// Hosts send at most four or five extension headers.
const MOST_EXTENSIONS: usize = 8;
const MOST_BYTES: usize = 65_535;
/// Of an ICMP message; the header of an error, behind which the quoted packet begins.
const ICMP_LEN: usize = 8;
/// MTUs that links have (RFC 1191, table 7.1).
const PLATEAUS: [u32; 10] = [32_000, 17_914, 8_166, 4_352, 2_002, 1_492, 1_006, 508, 296, 68];

/// Reads a packet that was sent or received. Padding behind it is ignored.
///
/// IPv4's header checksum and those of the layers above are not looked at: rewriting keeps wrong ones wrong.
pub fn parse(bytes: &[u8]) -> Result<Packet, Malformed> {
    let mut packet = outline(bytes, false)?;
    if let Some(quote) = quote(bytes, &packet) {
        packet.error = Some(quote?);
    }
    Ok(packet)
}

pub(super) fn be16(bytes: &[u8], at: usize) -> u16 {
    match bytes.get(at..at + 2) {
        Some(b) => u16::from_be_bytes([b[0], b[1]]),
        None => 0,
    }
}

pub(super) fn be32(bytes: &[u8], at: usize) -> u32 {
    match bytes.get(at..at + 4) {
        Some(b) => u32::from_be_bytes([b[0], b[1], b[2], b[3]]),
        None => 0,
    }
}

/// The IP header and what follows it.
pub(super) struct Header {
    pub l4_at: usize,
    pub len: usize,
    pub protocol: u8,
    pub part: Part,
    pub dscp: u8,
    source: IpAddr,
    destination: IpAddr,
}

/// A packet without what an ICMP error quotes. Where the packet itself is `quoted`, it may be cut off: `len` is what is
/// there, and eight bytes of the header above IP are enough.
pub(super) fn outline(bytes: &[u8], quoted: bool) -> Result<Packet, Malformed> {
    let header = match bytes.first().map(|byte| byte >> 4) {
        Some(4) => ipv4(bytes, quoted)?,
        Some(6) => ipv6(bytes, quoted)?,
        _ => return Err(Malformed::Version),
    };
    let (source_port, destination_port, tcp_flags) = transport(bytes, &header, quoted)?;
    let source = Endpoint { address: header.source, port: source_port };
    let destination = Endpoint { address: header.destination, port: destination_port };
    let tuple = Tuple { protocol: header.protocol, source, destination };
    let Header { l4_at, len, part, dscp, .. } = header;
    Ok(Packet { tuple, l4_at, len, part, tcp_flags, dscp, error: None })
}

pub(super) fn ipv4(bytes: &[u8], quoted: bool) -> Result<Header, Malformed> {
    let header = bytes.get(..20).ok_or(Malformed::Header)?;
    let l4_at = usize::from(header[0] & 15) * 4;
    let told = usize::from(be16(header, 2));
    if header[0] >> 4 != 4 || l4_at < 20 || told < l4_at {
        return Err(Malformed::Header);
    }
    let len = length(told, l4_at, bytes, quoted)?;
    let field = be16(header, 6);
    let identification = u32::from(be16(header, 4));
    let part = part(identification, usize::from(field & 0x1fff) * 8, field & 0x2000 != 0);
    let header = Header {
        l4_at,
        len,
        protocol: header[9],
        part,
        dscp: header[1] >> 2,
        source: Ipv4Addr::new(header[12], header[13], header[14], header[15]).into(),
        destination: Ipv4Addr::new(header[16], header[17], header[18], header[19]).into(),
    };
    if !quoted {
        check_fragment(&header, l4_at, usize::from(field & 0x1fff) * 8, field & 0x2000 != 0)?;
    }
    Ok(header)
}

fn ipv6(bytes: &[u8], quoted: bool) -> Result<Header, Malformed> {
    let fixed = bytes.get(..40).ok_or(Malformed::Header)?;
    let address = |at: usize| -> IpAddr {
        let mut octets = [0; 16];
        octets.copy_from_slice(&fixed[at..at + 16]);
        Ipv6Addr::from(octets).into()
    };
    let len = length(40 + usize::from(be16(fixed, 4)), 40, bytes, quoted)?;
    let dscp = (be16(fixed, 0) >> 6 & 63) as u8;
    let (source, destination) = (address(8), address(24));
    let mut header = Header { l4_at: 40, len, protocol: fixed[6], part: Part::Whole, dscp, source, destination };
    for _ in 0..=MOST_EXTENSIONS {
        if !matches!(header.protocol, HOP_BY_HOP | ROUTING | FRAGMENT | AUTHENTICATION | DESTINATION) {
            return Ok(header);
        }
        let extension = bytes.get(header.l4_at..len).filter(|b| b.len() >= 8).ok_or(Malformed::Extensions)?;
        let size = match header.protocol {
            FRAGMENT => 8,
            AUTHENTICATION => (usize::from(extension[1]) + 2) * 4,
            _ => (usize::from(extension[1]) + 1) * 8,
        };
        // The checksums above are about the last destination of a source route, and this one is not.
        if header.protocol == ROUTING && extension[3] != 0 && !quoted {
            return Err(Malformed::SourceRoute);
        }
        let is_fragment = header.protocol == FRAGMENT;
        header.protocol = extension[0];
        header.l4_at += size;
        if header.l4_at > len {
            return Err(Malformed::Extensions);
        }
        if is_fragment {
            let offset = usize::from(be16(extension, 2) & 0xfff8);
            let more = extension[3] & 1 != 0;
            header.part = part(be32(extension, 4), offset, more);
            if !quoted {
                check_fragment(&header, 40, offset, more)?;
            }
            if offset > 0 {
                return Ok(header);
            }
        }
    }
    Err(Malformed::Extensions)
}

fn length(told: usize, least: usize, bytes: &[u8], quoted: bool) -> Result<usize, Malformed> {
    let len = if quoted { told.min(bytes.len()) } else { told };
    match (least..=bytes.len()).contains(&len) {
        true => Ok(len),
        false => Err(Malformed::Length),
    }
}

fn part(identification: u32, offset: usize, more: bool) -> Part {
    match (offset, more) {
        (0, false) => Part::Whole,
        (0, true) => Part::FirstFragment { identification },
        _ => Part::LaterFragment { identification },
    }
}

/// Refuses fragments with which packets were smuggled past filters (RFC 1858, 3128) or hosts were brought down.
/// `unfragmented` is the length of the header that every fragment has.
fn check_fragment(header: &Header, unfragmented: usize, offset: usize, more: bool) -> Result<(), Malformed> {
    if header.part == Part::Whole {
        return Ok(());
    }
    let payload = header.len - header.l4_at;
    let overlaps = header.protocol == TCP && offset == 8;
    let beyond = unfragmented + offset + payload > MOST_BYTES + if unfragmented == 40 { 40 } else { 0 };
    if payload == 0 || overlaps || beyond || (more && payload % 8 != 0) {
        return Err(Malformed::Fragment);
    }
    Ok(())
}

/// Source port, destination port and TCP flags.
fn transport(bytes: &[u8], header: &Header, quoted: bool) -> Result<(u16, u16, u8), Malformed> {
    let v6 = header.source.is_ipv6();
    let least = match header.protocol {
        _ if matches!(header.part, Part::LaterFragment { .. }) => return Ok((0, 0, 0)),
        TCP => 20,
        UDP | UDP_LITE => 8,
        DCCP | SCTP => 12,
        ICMP if !v6 => ICMP_LEN,
        ICMPV6 if v6 => ICMP_LEN,
        _ => return Ok((0, 0, 0)),
    };
    let least = if quoted { 8 } else { least };
    let segment = bytes.get(header.l4_at..header.len).filter(|b| b.len() >= least).ok_or(Malformed::Transport)?;
    match (header.protocol, segment[0]) {
        (ICMP, 8) | (ICMPV6, 128) => Ok((be16(segment, 4), 0, 0)),
        (ICMP, 0) | (ICMPV6, 129) => Ok((0, be16(segment, 4), 0)),
        (ICMP | ICMPV6, _) => Ok((0, 0, 0)),
        (TCP, _) if !quoted => {
            let size = usize::from(segment[12] >> 4) * 4;
            if size < 20 || (size > segment.len() && header.part == Part::Whole) {
                return Err(Malformed::Transport);
            }
            Ok((be16(segment, 0), be16(segment, 2), segment[13]))
        }
        _ => Ok((be16(segment, 0), be16(segment, 2), 0)),
    }
}

/// Whether a message of this type is an ICMP error, to which there is never another one in answer.
pub(super) fn is_icmp_error(bytes: &[u8], packet: &Packet) -> bool {
    let kind = bytes.get(packet.l4_at).copied().unwrap_or(0);
    match packet.tuple.protocol {
        _ if packet.is_later_fragment() => false,
        ICMP if !packet.is_ipv6() => !matches!(kind, 0 | 8 | 13..=18),
        ICMPV6 if packet.is_ipv6() => kind < 128,
        _ => false,
    }
}

/// What an ICMP error quotes; None if the packet is no ICMP error.
fn quote(bytes: &[u8], packet: &Packet) -> Option<Result<IcmpError, Malformed>> {
    let v6 = packet.is_ipv6();
    let message = match packet.tuple.protocol {
        ICMP if !v6 => bytes.get(packet.l4_at..packet.len)?,
        ICMPV6 if v6 => bytes.get(packet.l4_at..packet.len)?,
        _ => return None,
    };
    // Fragments of errors do not occur: errors are short.
    let known = if v6 { matches!(message.first()?, 1..=4) } else { matches!(message.first()?, 3..=5 | 11 | 12) };
    if !known || packet.is_later_fragment() {
        return None;
    }
    Some(read_quote(message, packet.l4_at, v6))
}

fn read_quote(message: &[u8], l4_at: usize, v6: bool) -> Result<IcmpError, Malformed> {
    let inner = message.get(ICMP_LEN..).ok_or(Malformed::Quote)?;
    // With extensions behind the quoted packet, its length is told (RFC 4884).
    let told = match (v6, message[0]) {
        (false, 3 | 11 | 12) => usize::from(message[5]) * 4,
        (true, 1 | 3) => usize::from(message[4]) * 8,
        _ => 0,
    };
    let inner = if told == 0 { inner } else { &inner[..told.min(inner.len())] };
    let packet = outline(inner, true).map_err(|_| Malformed::Quote)?;
    if packet.is_ipv6() != v6 {
        return Err(Malformed::Quote);
    }
    let mtu = match (v6, message[0], message[1]) {
        (false, 3, 4) => Some(told_mtu(u32::from(be16(message, 6)), u32::from(be16(inner, 2)))),
        (true, 2, _) => Some(be32(message, 4).max(1_280)),
        _ => None,
    };
    let inner_at = l4_at + ICMP_LEN;
    Ok(IcmpError { inner: packet.tuple, inner_part: packet.part, inner_at, inner_end: inner_at + packet.len, mtu })
}

fn told_mtu(told: u32, length: u32) -> u32 {
    match told {
        0 => PLATEAUS.iter().copied().find(|mtu| *mtu < length).unwrap_or(68),
        _ => told.max(68),
    }
}
