//! IPv4 packets in pieces (RFC 791, 3.2).

use super::checksum::checksum;
use super::parse::{be16, ipv4};
use super::Part;

const DONT_FRAGMENT: u16 = 0x4000;
const MORE: u16 = 0x2000;
const MOST_HEADER: usize = 60;
/// An option with this bit is in every fragment.
const COPIED: u8 = 0x80;
const END: u8 = 0;
const NO_OPERATION: u8 = 1;

/// Writes the fragment that begins at byte `at` of the payload; returns its length and where the next one begins, if it
/// was not the last. Begin with `at` = 0 and the packet's checksum [complete](super::complete()). A packet that fits comes
/// back whole. An identification of 0 becomes 1, as Linux gives every packet of a raw socket with 0 another one.
///
/// None if it is no IPv4 packet, must not be fragmented or cannot be to `mtu` bytes, or if `out` is too short.
pub fn fragment(bytes: &[u8], mtu: usize, at: usize, out: &mut [u8]) -> Option<(usize, Option<usize>)> {
    let packet = ipv4(bytes, false).ok()?;
    if at == 0 && packet.len <= mtu {
        out.get_mut(..packet.len)?.copy_from_slice(bytes.get(..packet.len)?);
        return Some((packet.len, None));
    }
    let flags = be16(bytes, 6);
    let rest = bytes.get(packet.l4_at.checked_add(at)?..packet.len)?;
    if flags & DONT_FRAGMENT != 0 || at % 8 != 0 || rest.is_empty() {
        return None;
    }
    let mut header = [0; MOST_HEADER];
    let header_len = copy_header(bytes.get(..packet.l4_at)?, at > 0, &mut header)?;
    let room = mtu.checked_sub(header_len)?;
    let (size, next) = if rest.len() <= room { (rest.len(), None) } else { (room & !7, Some(at + (room & !7))) };
    let total = header_len + size;
    if size == 0 {
        return None;
    }
    // More of the packet follows, or this is itself a fragment that more follows.
    let more = if next.is_some() { MORE } else { flags & MORE };
    let offset = usize::from(flags & 0x1fff) + at / 8;
    if packet.part == Part::Whole && be16(&header, 4) == 0 {
        header[5] = 1;
    }
    header[2..4].copy_from_slice(&(total as u16).to_be_bytes());
    header[6..8].copy_from_slice(&(offset as u16 | more).to_be_bytes());
    header[10..12].fill(0);
    let sum = checksum(&[&header[..header_len]]);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    let out = out.get_mut(..total)?;
    out[..header_len].copy_from_slice(&header[..header_len]);
    out[header_len..].copy_from_slice(&rest[..size]);
    Some((total, next))
}

/// The header of a fragment, without the options that only the first has; returns its length.
fn copy_header(old: &[u8], is_later: bool, new: &mut [u8; MOST_HEADER]) -> Option<usize> {
    if !is_later {
        new.get_mut(..old.len())?.copy_from_slice(old);
        return Some(old.len());
    }
    new[..20].copy_from_slice(old.get(..20)?);
    let (mut at, mut len) = (20, 20);
    while let Some(&kind) = old.get(at) {
        let size = match kind {
            END => break,
            NO_OPERATION => 1,
            _ => usize::from(*old.get(at + 1)?).max(2),
        };
        let option = old.get(at..at + size)?;
        if kind & COPIED != 0 {
            new.get_mut(len..len + size)?.copy_from_slice(option);
            len += size;
        }
        at += size;
    }
    // What is left of the last word is 0, the end of options.
    let len = (len + 3) & !3;
    new[0] = 0x40 | (len / 4) as u8;
    Some(len)
}
