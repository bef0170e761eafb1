//! Packets leave for the host: those of a TCP connection that follow each other as one.

use super::engine::Effects;
use crate::edge::buffer::Buf;
use crate::ip::Joined;
use crate::sys::tun::{Tun, MOST_PARTS};
use crate::sys::virtio::{VirtioHeader, GSO_TCP4, GSO_TCP6, NEEDS_CSUM};

/// Where the checksum stands in a TCP header.
pub const TCP_SUM_AT: u16 = 16;

/// Gives the host what is for it, in order.
pub fn write_tun(tun: &Tun, fx: &mut Effects) {
    let mut at = 0;
    while at < fx.to_host.len() {
        let (packets, written) = write_first(tun, &fx.to_host[at..]);
        fx.drops.overrun += if written { 0 } else { packets as u64 };
        at += packets;
    }
    for buf in fx.to_host.drain(..) {
        fx.pool.give(buf);
    }
}

/// Writes the first packet with those that can be joined to it; how many, and whether the host took them.
fn write_first(tun: &Tun, bufs: &[Buf]) -> (usize, bool) {
    let mut joined = match bufs {
        [] => return (0, true),
        [first, _, ..] => Joined::begin(first.bytes()),
        _ => None,
    };
    if let Some(joined) = &mut joined {
        let _ = bufs[1..].iter().take(MOST_PARTS - 2).all(|buf| joined.add(buf.bytes()));
    }
    let result = match joined.filter(|joined| joined.packets() > 1) {
        Some(mut joined) => {
            let (header, from, packets) = (segments_header(&joined), joined.header_len(), joined.packets());
            let mut parts = [&[][..]; MOST_PARTS];
            parts[0] = joined.head();
            for (part, buf) in parts[1..].iter_mut().zip(&bufs[..packets]) {
                *part = buf.bytes().get(from..).unwrap_or(&[]);
            }
            (packets, tun.write_parts(&header, &parts[..=packets]))
        }
        None => (1, tun.write(bufs[0].bytes())),
    };
    (result.0, result.1.unwrap_or(false))
}

fn segments_header(joined: &Joined) -> VirtioHeader {
    VirtioHeader {
        flags: NEEDS_CSUM,
        gso_type: if joined.is_ipv6() { GSO_TCP6 } else { GSO_TCP4 },
        hdr_len: joined.header_len() as u16,
        gso_size: joined.size() as u16,
        csum_start: joined.l4_at() as u16,
        csum_offset: TCP_SUM_AT,
    }
}
