//! What a router or a host answers to a packet that it cannot forward.

use super::checksum::{add, checksum, fold, pseudo};
use super::parse::{be32, is_icmp_error, outline};
use super::{Packet, Part, ACK, FIN, ICMP, ICMPV6, RST, SYN, TCP};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// ICMP messages stay within 576 bytes (IPv4) and 1280 bytes (IPv6).
const QUOTE_V4: usize = 576 - 20 - 8;
const QUOTE_V6: usize = MOST_MESSAGE - 40 - 8;
/// Bytes; a buffer of so many is enough for every answer.
pub const MOST_MESSAGE: usize = 1280;
const ICMP_LEN: usize = 8;
const TCP_LEN: usize = 20;
const HOPS: u8 = 64;
/// Network control (RFC 1812, 4.3.2.5).
const ICMP_TOS: u8 = 0xc0;

/// What an ICMP error reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report {
    /// The packet does not fit a link of this MTU in bytes: ICMP fragmentation needed (RFC 1191), ICMPv6 packet too big.
    TooBig(u32),
    /// There is no route to the destination.
    NoRoute,
    /// A policy forbids the packet.
    Prohibited,
}

/// Tells the source of a packet that only `mtu` bytes fit; returns the length of the message in `out`.
///
/// None if the packet fits or may be fragmented (IPv4 without "don't fragment"), and where [`icmp_error`] gives none.
pub fn too_big(bytes: &[u8], mtu: usize, from: IpAddr, out: &mut [u8]) -> Option<usize> {
    let packet = outline(bytes, true).ok()?;
    let may_be_fragmented = !packet.is_ipv6() && bytes.get(6)? & 0x40 == 0;
    if packet.len <= mtu || may_be_fragmented {
        return None;
    }
    icmp_error(bytes, Report::TooBig(u32::try_from(mtu).unwrap_or(u32::MAX)), from, out)
}

/// [`too_big`] from the packet's destination, and whether or not IPv4 may be fragmented: for agents without an address of
/// their own, behind which nobody fragments.
pub fn too_big_from_destination(bytes: &[u8], mtu: usize, out: &mut [u8]) -> Option<usize> {
    let packet = outline(bytes, true).ok().filter(|packet| packet.len > mtu)?;
    let report = Report::TooBig(u32::try_from(mtu).unwrap_or(u32::MAX));
    icmp_error(bytes, report, packet.tuple.destination.address, out)
}

/// Tells the source of a packet that it cannot go where it should; `prohibited` by a policy, or for want of a route.
/// None where [`icmp_error`] gives none.
pub fn unreachable(bytes: &[u8], prohibited: bool, from: IpAddr, out: &mut [u8]) -> Option<usize> {
    let report = if prohibited { Report::Prohibited } else { Report::NoRoute };
    icmp_error(bytes, report, from, out)
}

/// Writes an ICMP error about the packet `bytes`, sent by `from` to the packet's source, and returns its length.
///
/// None if RFC 1122 (3.2.2) forbids one: about ICMP errors, about fragments but the first, where source or destination is
/// no single host. None also if `from` is of the other family or `out` too short; [`MOST_MESSAGE`] bytes are
/// always enough.
pub fn icmp_error(bytes: &[u8], report: Report, from: IpAddr, out: &mut [u8]) -> Option<usize> {
    let packet = outline(bytes, true).ok()?;
    let (source, destination) = (packet.tuple.source.address, packet.tuple.destination.address);
    if packet.is_later_fragment() || is_icmp_error(bytes, &packet) || !can_be_answered(source, destination) {
        return None;
    }
    let v6 = packet.is_ipv6();
    let quoted = bytes.get(..packet.len.min(if v6 { QUOTE_V6 } else { QUOTE_V4 }))?;
    let protocol = if v6 { ICMPV6 } else { ICMP };
    let at = ip_header(out, from, source, protocol, ICMP_LEN + quoted.len())?;
    let message = out.get_mut(at..at + ICMP_LEN + quoted.len())?;
    let (kind, code, word) = match (report, v6) {
        (Report::TooBig(mtu), false) => (3, 4, mtu.min(0xffff)),
        (Report::TooBig(mtu), true) => (2, 0, mtu),
        (Report::NoRoute, false) => (3, 0, 0),
        (Report::NoRoute, true) => (1, 0, 0),
        (Report::Prohibited, false) => (3, 13, 0),
        (Report::Prohibited, true) => (1, 1, 0),
    };
    message[..4].copy_from_slice(&[kind, code, 0, 0]);
    message[4..ICMP_LEN].copy_from_slice(&word.to_be_bytes());
    message[ICMP_LEN..].copy_from_slice(quoted);
    let header = if v6 { pseudo(from, source, ICMPV6, message.len()) } else { 0 };
    let sum = !fold(header + add(message));
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    Some(at + message.len())
}

/// Writes the RST with which the destination of a TCP segment would answer if it knew nothing of the connection
/// (RFC 9293, 3.10.7.1), and returns its length. None if the segment is a RST itself, or no TCP, or a fragment whose
/// answer would need the length of all of it.
pub fn reset(bytes: &[u8], packet: &Packet, out: &mut [u8]) -> Option<usize> {
    let (source, destination) = (packet.tuple.source, packet.tuple.destination);
    let flags = packet.tcp_flags;
    if packet.tuple.protocol != TCP || flags & RST != 0 || packet.is_later_fragment() {
        return None;
    }
    let segment = bytes.get(packet.l4_at..packet.len).filter(|segment| segment.len() >= TCP_LEN)?;
    if !can_be_answered(source.address, destination.address) {
        return None;
    }
    let (sequence, acknowledged, answer) = if flags & ACK != 0 {
        (be32(segment, 8), 0, RST)
    } else {
        if packet.part != Part::Whole {
            return None;
        }
        let data = segment.len().checked_sub(usize::from(segment[12] >> 4) * 4)?;
        let length = data as u32 + u32::from(flags & SYN != 0) + u32::from(flags & FIN != 0);
        (0, be32(segment, 4).wrapping_add(length), RST | ACK)
    };
    let at = ip_header(out, destination.address, source.address, TCP, TCP_LEN)?;
    let tcp = out.get_mut(at..at + TCP_LEN)?;
    tcp.fill(0);
    tcp[..2].copy_from_slice(&destination.port.to_be_bytes());
    tcp[2..4].copy_from_slice(&source.port.to_be_bytes());
    tcp[4..8].copy_from_slice(&sequence.to_be_bytes());
    tcp[8..12].copy_from_slice(&acknowledged.to_be_bytes());
    tcp[12] = (TCP_LEN as u8 / 4) << 4;
    tcp[13] = answer;
    let sum = !fold(pseudo(destination.address, source.address, TCP, TCP_LEN) + add(tcp));
    tcp[16..18].copy_from_slice(&sum.to_be_bytes());
    Some(at + TCP_LEN)
}

/// Whether both ends are single hosts, and the source one that can be reached.
fn can_be_answered(source: IpAddr, destination: IpAddr) -> bool {
    let sender = match source {
        IpAddr::V4(address) => !(address.octets()[0] == 0 || address.is_loopback() || is_group(address)),
        IpAddr::V6(address) => !(address.is_unspecified() || address == Ipv6Addr::LOCALHOST || address.is_multicast()),
    };
    let group = match destination {
        IpAddr::V4(address) => is_group(address),
        IpAddr::V6(address) => address.is_multicast(),
    };
    sender && !group
}

/// Multicast, reserved and broadcast addresses.
fn is_group(address: Ipv4Addr) -> bool {
    address.octets()[0] >= 224
}

/// Writes an IP header and returns its length; None if it does not fit or the families differ.
fn ip_header(out: &mut [u8], source: IpAddr, destination: IpAddr, protocol: u8, payload: usize) -> Option<usize> {
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let header = out.get_mut(..20)?;
            header.fill(0);
            header[0] = 0x45;
            header[1] = if protocol == ICMP { ICMP_TOS } else { 0 };
            header[2..4].copy_from_slice(&u16::try_from(20 + payload).ok()?.to_be_bytes());
            header[8] = HOPS;
            header[9] = protocol;
            header[12..16].copy_from_slice(&source.octets());
            header[16..].copy_from_slice(&destination.octets());
            let sum = checksum(&[header]);
            header[10..12].copy_from_slice(&sum.to_be_bytes());
            Some(20)
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let header = out.get_mut(..40)?;
            header[..4].copy_from_slice(&[0x60, 0, 0, 0]);
            header[4..6].copy_from_slice(&u16::try_from(payload).ok()?.to_be_bytes());
            header[6] = protocol;
            header[7] = HOPS;
            header[8..24].copy_from_slice(&source.octets());
            header[24..].copy_from_slice(&destination.octets());
            Some(40)
        }
        _ => None,
    }
}
