//! Makes users' packets fit paths: TCP's segment size is lowered in SYNs, IPv4 packets are fragmented where they may be,
//! and the sender of another packet gets ICMP "fragmentation needed" or ICMPv6 "packet too big".

use super::frame::{be16, ether_type, ETHERNET_LEN};
use super::mtu::too_big_reply;
use crate::ip::{self, Sum, SYN, TCP};

pub(super) const TYPE_IPV4: u16 = 0x0800;
pub(super) const TYPE_IPV6: u16 = 0x86dd;
const VLAN_TYPES: [u16; 3] = [0x8100, 0x88a8, 0x9100];
const MAX_TAGS: usize = 2;
const DONT_FRAGMENT: u8 = 0x40;
const IPV4_FLAGS_AT: usize = 6;

/// What becomes of a frame that is too large.
#[derive(Debug, PartialEq, Eq)]
pub enum Fitted {
    /// Frames with the fragments of its packet.
    Fragments(Vec<Vec<u8>>),
    /// The answer to its sender.
    Answer(Vec<u8>),
    /// It can be neither fragmented nor answered.
    Nothing,
}

/// Where the IPv4 or IPv6 packet of a frame begins, behind at most two VLAN tags.
pub fn packet_at(frame: &[u8]) -> Option<usize> {
    let mut at = ETHERNET_LEN;
    let mut kind = ether_type(frame)?;
    for _ in 0..MAX_TAGS {
        if VLAN_TYPES.contains(&kind) {
            kind = be16(frame, at + 2)?;
            at += 4;
        }
    }
    (kind == TYPE_IPV4 || kind == TYPE_IPV6).then_some(at)
}

/// Lowers the segment size of a TCP SYN so that frames with such segments have at most `most_frame` bytes. True if it
/// was larger.
pub fn clamp(frame: &mut [u8], most_frame: usize) -> bool {
    let at = match packet_at(frame) {
        Some(at) => at,
        None => return false,
    };
    let most = match most_frame.checked_sub(at) {
        Some(most) => most,
        None => return false,
    };
    match frame.get_mut(at..) {
        Some(bytes) => match ip::parse(bytes) {
            Ok(packet) if packet.tuple.protocol == TCP && packet.tcp_flags & SYN != 0 => {
                ip::clamp_mss(bytes, &packet, most, Sum::Whole)
            }
            _ => false,
        },
        None => false,
    }
}

/// What becomes of a frame that has more than `most_frame` bytes.
pub fn fit(frame: &[u8], most_frame: usize) -> Fitted {
    if let Some(fragments) = fragments(frame, most_frame) {
        return Fitted::Fragments(fragments);
    }
    too_big_reply(frame, most_frame).map_or(Fitted::Nothing, Fitted::Answer)
}

/// IPv4 packets that may be fragmented, and those to groups: their senders must not be answered (RFC 1122, 3.2.2).
fn fragments(frame: &[u8], most_frame: usize) -> Option<Vec<Vec<u8>>> {
    let at = packet_at(frame)?;
    let (header, bytes) = (frame.get(..at)?, frame.get(at..)?);
    if bytes.first()? >> 4 != 4 {
        return None;
    }
    let mut packet = bytes.to_vec();
    if header[0] & 1 != 0 {
        *packet.get_mut(IPV4_FLAGS_AT)? &= !DONT_FRAGMENT;
    }
    let room = most_frame.checked_sub(at)?;
    let mut out = vec![0; room];
    let (mut from, mut found) = (Some(0), Vec::new());
    while let Some(next) = from {
        let (len, rest) = ip::fragment(&packet, room, next, &mut out)?;
        found.push([header, out.get(..len)?].concat());
        from = rest;
    }
    Some(found)
}

#[cfg(test)]
#[path = "fit_tests.rs"]
mod tests;
