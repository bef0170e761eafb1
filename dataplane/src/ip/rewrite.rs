//! Changing packets in place. Checksums are changed by what changed (RFC 1624), so that a packet that was damaged before
//! stays recognisable as such.

use super::checksum::{add, fold, Change};
use super::parse::{be16, outline};
use super::{Endpoint, Packet, Part, Sum, DCCP, ICMP, ICMPV6, SYN, TCP, UDP, UDP_LITE};
use std::net::IpAddr;

const END: u8 = 0;
const NO_OPERATION: u8 = 1;
const MSS: u8 = 2;

/// Gives a packet another source, destination or both: addresses, and ports or the identifier of an echo where the packet
/// has them. `packet` is what [`parse`](super::parse()) told about `bytes` before.
///
/// Ports of SCTP and of protocols without ports are ignored. False, with nothing changed, if an address is of the other
/// family or `bytes` is shorter than the packet.
pub fn rewrite(
    bytes: &mut [u8],
    packet: &Packet,
    source: Option<Endpoint>,
    destination: Option<Endpoint>,
    sum: Sum,
) -> bool {
    edit(bytes, packet, source, destination, sum).is_some()
}

/// Gives an ICMP error back to whom it concerns, after [`rewrite`] changed the source of the packet it quotes: the
/// destination of the error becomes `destination`, the source of the quoted packet `inner_source`. The checksum of the
/// quoted packet's TCP or UDP header is kept right if it is quoted.
///
/// False, with nothing changed, if `packet` is no ICMP error or an address is of the other family.
pub fn rewrite_error(bytes: &mut [u8], packet: &Packet, destination: IpAddr, inner_source: Endpoint) -> bool {
    let error = match packet.error {
        Some(error) if destination.is_ipv6() == packet.is_ipv6() && bytes.len() >= packet.len => error,
        _ => return false,
    };
    let quoted = match bytes.get_mut(error.inner_at..error.inner_end) {
        Some(quoted) => quoted,
        None => return false,
    };
    let inner = match outline(quoted, true) {
        Ok(inner) => inner,
        Err(_) => return false,
    };
    match edit(quoted, &inner, Some(inner_source), None, Sum::Whole) {
        Some(change) => update(bytes, packet, change, Sum::Whole),
        None => return false,
    };
    edit(bytes, packet, None, Some(Endpoint { address: destination, port: 0 }), Sum::Whole).is_some()
}

/// Lowers the maximum segment size that a TCP SYN tells to what fits `mtu` bytes. True if it was larger.
pub fn clamp_mss(bytes: &mut [u8], packet: &Packet, mtu: usize, sum: Sum) -> bool {
    let headers = if packet.is_ipv6() { 60 } else { 40 };
    let most = match mtu.checked_sub(headers) {
        Some(most) if most > 0 => most.min(0xffff) as u16,
        _ => return false,
    };
    if packet.tuple.protocol != TCP || packet.tcp_flags & SYN == 0 || packet.is_later_fragment() {
        return false;
    }
    let at = match mss_at(bytes, packet) {
        Some(at) if be16(bytes, at) > most => at,
        _ => return false,
    };
    // Options begin anywhere; checksums are over whole words.
    let from = at & !1;
    let to = (at + 3) & !1;
    let mut words = [0; 4];
    let (words, old) = match bytes.get(from..to) {
        Some(old) => (&mut words[..to - from], old),
        None => return false,
    };
    words.copy_from_slice(old);
    words[at - from..at - from + 2].copy_from_slice(&most.to_be_bytes());
    let mut change = Change::default();
    change.write(bytes, from, words);
    if sum == Sum::Whole {
        update(bytes, packet, change, sum);
    }
    true
}

/// Where the value of the MSS option stands.
fn mss_at(bytes: &[u8], packet: &Packet) -> Option<usize> {
    let end = packet.l4_at + usize::from(*bytes.get(packet.l4_at + 12)? >> 4) * 4;
    let end = end.min(packet.len);
    let mut at = packet.l4_at + 20;
    while at < end {
        match *bytes.get(at)? {
            END => return None,
            NO_OPERATION => at += 1,
            kind => {
                let size = usize::from(*bytes.get(at + 1)?);
                if size < 2 || at + size > end {
                    return None;
                }
                if kind == MSS {
                    return (size == 4).then(|| at + 2);
                }
                at += size;
            }
        }
    }
    None
}

/// Completes a checksum that was [`Sum::Partial`], for a way out that does not. Only for packets that are no fragments.
pub fn complete(bytes: &mut [u8], packet: &Packet) {
    if let (Some((at, _)), Part::Whole) = (checksum_at(packet), packet.part) {
        let sum = match bytes.get(packet.l4_at..packet.len) {
            Some(segment) => !fold(add(segment)),
            None => return,
        };
        put(bytes, at, not_none(packet, sum));
    }
}

/// Writes addresses and ports and updates the checksums; returns what that changed in the sum of the packet's words.
fn edit(
    bytes: &mut [u8],
    packet: &Packet,
    source: Option<Endpoint>,
    destination: Option<Endpoint>,
    sum: Sum,
) -> Option<Change> {
    let v6 = packet.is_ipv6();
    let other_family = |end: Option<Endpoint>| end.map_or(false, |end| end.address.is_ipv6() != v6);
    if bytes.len() < packet.len || other_family(source) || other_family(destination) {
        return None;
    }
    let (source_at, destination_at) = if v6 { (8, 24) } else { (12, 16) };
    let (mut addresses, mut ports) = (Change::default(), Change::default());
    for (end, address_at, second) in [(source, source_at, false), (destination, destination_at, true)] {
        if let Some(end) = end {
            match end.address {
                IpAddr::V4(address) => addresses.write(bytes, address_at, &address.octets()),
                IpAddr::V6(address) => addresses.write(bytes, address_at, &address.octets()),
            }
            if let Some(at) = port_at(bytes, packet, second) {
                ports.write(bytes, at, &end.port.to_be_bytes());
            }
        }
    }
    let mut all = addresses.and(ports);
    if !v6 {
        let new = addresses.applied(be16(bytes, 10));
        all.write(bytes, 10, &new.to_be_bytes());
    }
    let covered = match (packet.tuple.protocol, sum) {
        (ICMP, Sum::Whole) => ports,
        (ICMP, Sum::Partial) => Change::default(),
        (_, Sum::Whole) => addresses.and(ports),
        (_, Sum::Partial) => addresses,
    };
    Some(all.and(update(bytes, packet, covered, sum)))
}

/// Changes the checksum above IP, as far as there is one; returns what that changed.
fn update(bytes: &mut [u8], packet: &Packet, covered: Change, sum: Sum) -> Change {
    let mut change = Change::default();
    if let Some((at, optional)) = checksum_at(packet) {
        let old = be16(bytes, at);
        match sum {
            Sum::Partial => change.write(bytes, at, &covered.added(old).to_be_bytes()),
            // No checksum, rather than one of 0.
            Sum::Whole if optional && old == 0 => {}
            Sum::Whole => change.write(bytes, at, &not_none(packet, covered.applied(old)).to_be_bytes()),
        }
    }
    change
}

/// Where the checksum stands, and whether 0 there means none. None also if it is not quoted.
fn checksum_at(packet: &Packet) -> Option<(usize, bool)> {
    let (at, optional) = match packet.tuple.protocol {
        TCP => (16, false),
        UDP => (6, true),
        UDP_LITE | DCCP => (6, false),
        ICMP if !packet.is_ipv6() => (2, false),
        ICMPV6 if packet.is_ipv6() => (2, false),
        _ => return None,
    };
    let at = packet.l4_at + at;
    (!packet.is_later_fragment() && at + 2 <= packet.len).then_some((at, optional))
}

/// UDP sends a checksum of 0 as 0xffff.
fn not_none(packet: &Packet, checksum: u16) -> u16 {
    match (packet.tuple.protocol, checksum) {
        (UDP | UDP_LITE, 0) => 0xffff,
        _ => checksum,
    }
}

/// Where a port, or the identifier of an echo, stands that belongs to the source or to the destination.
fn port_at(bytes: &[u8], packet: &Packet, of_destination: bool) -> Option<usize> {
    if packet.is_later_fragment() {
        return None;
    }
    let at = match (packet.tuple.protocol, of_destination) {
        (TCP | UDP | UDP_LITE | DCCP, false) => 0,
        (TCP | UDP | UDP_LITE | DCCP, true) => 2,
        (ICMP | ICMPV6, _) => match (packet.is_ipv6(), packet.tuple.protocol, bytes.get(packet.l4_at)?, of_destination)
        {
            (false, ICMP, 8, false) | (false, ICMP, 0, true) => 4,
            (true, ICMPV6, 128, false) | (true, ICMPV6, 129, true) => 4,
            _ => return None,
        },
        _ => return None,
    };
    Some(packet.l4_at + at)
}

fn put(bytes: &mut [u8], at: usize, value: u16) {
    if let Some(field) = bytes.get_mut(at..at + 2) {
        field.copy_from_slice(&value.to_be_bytes());
    }
}
