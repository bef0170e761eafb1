//! IP packets without an Ethernet header, IPv4 and IPv6: reading, rewriting in place, and the answers of a router.
//!
//! * [`parse`]: who talks to whom, fragments, and the packet that an ICMP error is about;
//! * [`rewrite`], [`rewrite_error`], [`clamp_mss`], [`complete`]: changes in place, with all checksums;
//! * [`too_big`], [`unreachable`], [`icmp_error`], [`reset`]: messages to the sender of a packet;
//! * [`fragment`]: IPv4 packets in pieces;
//! * [`Segments`]: TCP packets that stand for several;
//! * [`Joined`]: consecutive TCP packets of a flow that become one which stands for them.
//!
//! Every packet is taken to be hostile: nothing here panics, allocates, or reads behind the packet. The client stack
//! and the edge agent both use it, so it knows neither.

pub mod checksum;
mod fragment;
mod join;
mod parse;
mod reply;
mod rewrite;
mod segment;

#[cfg(test)]
mod parse_tests;
#[cfg(test)]
mod reply_tests;
#[cfg(test)]
mod rewrite_tests;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use fragment::fragment;
pub use join::Joined;
pub use parse::parse;
pub use reply::{icmp_error, reset, too_big, too_big_from_destination, unreachable, Report, MOST_MESSAGE};
pub use rewrite::{clamp_mss, complete, rewrite, rewrite_error};
pub use segment::{Piece, Segments, MOST_HEADERS};

use std::net::IpAddr;

pub const ICMP: u8 = 1;
pub const TCP: u8 = 6;
pub const UDP: u8 = 17;
pub const DCCP: u8 = 33;
pub const ICMPV6: u8 = 58;
pub const SCTP: u8 = 132;
pub const UDP_LITE: u8 = 136;

/// Bits of `Packet::tcp_flags`.
pub const FIN: u8 = 0x01;
pub const SYN: u8 = 0x02;
pub const RST: u8 = 0x04;
pub const ACK: u8 = 0x10;

/// One end of a flow. Protocols without ports have port 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Endpoint {
    pub address: IpAddr,
    pub port: u16,
}

/// What packets of a flow and direction have in common. The identifier of an ICMP echo stands as port: as the source's in
/// a request, as the destination's in a reply, and the other port is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tuple {
    pub protocol: u8,
    pub source: Endpoint,
    pub destination: Endpoint,
}

impl Tuple {
    /// The tuple of the other direction.
    pub fn reversed(self) -> Tuple {
        Tuple { protocol: self.protocol, source: self.destination, destination: self.source }
    }

    /// Whether [`rewrite`] can change ports (or echo identifiers). Not those of SCTP: its CRC covers the whole packet.
    pub fn has_rewritable_ports(&self) -> bool {
        match self.protocol {
            TCP | UDP | UDP_LITE | DCCP => true,
            ICMP | ICMPV6 => self.source.port != 0 || self.destination.port != 0,
            _ => false,
        }
    }
}

/// Fragments of a packet have the same addresses and identification. Later ones have no ports, and in IPv6 perhaps not
/// the protocol of the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Whole,
    FirstFragment { identification: u32 },
    LaterFragment { identification: u32 },
}

/// What an ICMP error says about the packet that it quotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IcmpError {
    /// Of the quoted packet, in the direction in which it was sent. Ports are 0 if it was a later fragment.
    pub inner: Tuple,
    pub inner_part: Part,
    /// The quoted packet is `inner_at..inner_end`, usually not all of it.
    pub inner_at: usize,
    pub inner_end: usize,
    /// The MTU in bytes, if the packet was too big for a link; at least 68 (IPv4) or 1280 (IPv6). A router that does not
    /// tell it (RFC 1191) is taken to mean the next usual one below the packet's length.
    pub mtu: Option<u32>,
}

/// What [`parse`] reads from a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    pub tuple: Tuple,
    /// Where the header of `tuple.protocol` begins, behind IPv4 options and IPv6 extension headers.
    pub l4_at: usize,
    /// Bytes of the packet as its header tells; padding behind them is no part of it.
    pub len: usize,
    pub part: Part,
    /// 0 if it is not TCP.
    pub tcp_flags: u8,
    pub dscp: u8,
    /// Set for ICMP errors.
    pub error: Option<IcmpError>,
}

impl Packet {
    pub fn is_ipv6(&self) -> bool {
        self.tuple.source.address.is_ipv6()
    }

    fn is_later_fragment(&self) -> bool {
        matches!(self.part, Part::LaterFragment { .. })
    }
}

/// Why bytes are no packet to be forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// Neither IPv4 nor IPv6, or nothing at all.
    Version,
    /// The IP header is cut off or shorter than it must be.
    Header,
    /// The header tells more bytes than there are.
    Length,
    /// IPv6 extension headers: cut off, or more than any host sends.
    Extensions,
    /// IPv6 source routing that has not ended (RFC 5095).
    SourceRoute,
    /// A fragment that overlaps the TCP header, ends behind 65,535 bytes, is empty or no multiple of 8 bytes.
    Fragment,
    /// The header of TCP, UDP, ICMP ... is cut off.
    Transport,
    /// An ICMP error that does not quote enough of the packet it is about.
    Quote,
}

/// What stands in the checksum field of TCP, UDP and the like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sum {
    /// The checksum.
    Whole,
    /// The sum of the pseudo header, not inverted: the kernel or the card completes it (`VIRTIO_NET_HDR_F_NEEDS_CSUM`).
    Partial,
}
