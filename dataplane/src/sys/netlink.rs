//! What happens to the host's interfaces, addresses, default routes and neighbours, as the kernel tells it (rtnetlink).

use super::interface::Mac;
use super::netlink_orphans::Orphans;
use super::socket::{self, RawAddress};
use super::{check, context};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::unix::io::{AsRawFd, OwnedFd, RawFd};

/// One change, or one part of the state at the start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// An interface exists and is like this; also told when none of this changed.
    Link(Link),
    /// The interface vanished; its addresses and routes went with it.
    LinkGone {
        /// Index of the interface.
        index: u32,
    },
    /// An interface has, or no longer has, an address.
    Address(Address),
    /// There is, or no longer is, a default route over an interface.
    DefaultRoute(DefaultRoute),
    /// How a neighbour is reached on its link.
    Neighbour(Neighbour),
    /// Changes were lost: forget everything. The whole state follows, in this call of `receive` or in later ones.
    Lost,
}

/// An interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// Index: the same for as long as the interface exists, while its name may change.
    pub index: u32,
    /// Name.
    pub name: String,
    /// Set up by the administrator.
    pub up: bool,
    /// Packets can pass: up, a cable or a radio association, and not waiting for authentication.
    pub carrier: bool,
    /// MTU in bytes.
    pub mtu: u32,
    /// Kind of hardware (ARPHRD_...): 1 is Ethernet.
    pub hatype: u16,
}

/// An address of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address {
    /// Index of the interface.
    pub index: u32,
    /// The address.
    pub address: IpAddr,
    /// Length of the subnet's prefix in bits.
    pub prefix: u8,
    /// The interface no longer has it.
    pub gone: bool,
    /// Not for new connections any more.
    pub deprecated: bool,
    /// Not usable (yet): duplicate address detection runs or has failed.
    pub tentative: bool,
    /// Valid beyond the link and the host.
    pub global: bool,
}

/// A default route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DefaultRoute {
    /// Index of the interface.
    pub index: u32,
    /// Of IPv6 rather than IPv4.
    pub ipv6: bool,
    /// Next hop; None: everything is a neighbour (point to point).
    pub gateway: Option<IpAddr>,
    /// Priority: the smallest metric wins.
    pub metric: u32,
    /// Routing table; 254 is the main one.
    pub table: u32,
    /// The route no longer exists.
    pub gone: bool,
}

/// A host of an interface's own network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Neighbour {
    /// Index of the interface.
    pub index: u32,
    /// Its address.
    pub address: IpAddr,
    /// Its MAC address, while the kernel itself would send to it; None: unknown, no longer answering, forgotten, or of another
    /// length.
    pub mac: Option<Mac>,
}

/// What a read of the socket held beside changes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Parsed {
    /// The end of a dump, or its refusal.
    pub ended: bool,
    /// The state changed while it was dumped: part of it may be missing.
    pub interrupted: bool,
}

pub(super) const HEADER: usize = 16;
/// Sequence numbers and flags of netlink headers.
pub(super) const NLM_F_REQUEST: u16 = 1;
const NLM_F_DUMP: u16 = 0x300;
pub(super) const NLM_F_DUMP_INTR: u16 = 0x10;
pub(super) const NLMSG_ERROR: u16 = 2;
pub(super) const NLMSG_DONE: u16 = 3;
pub(super) const RTM_NEWLINK: u16 = 16;
pub(super) const RTM_DELLINK: u16 = 17;
const RTM_GETLINK: u16 = 18;
pub(super) const RTM_NEWADDR: u16 = 20;
const RTM_DELADDR: u16 = 21;
const RTM_GETADDR: u16 = 22;
pub(super) const RTM_NEWROUTE: u16 = 24;
pub(super) const RTM_DELROUTE: u16 = 25;
const RTM_GETROUTE: u16 = 26;
pub(super) const RTM_NEWNEIGH: u16 = 28;
pub(super) const RTM_DELNEIGH: u16 = 29;
const RTM_GETNEIGH: u16 = 30;
pub(super) const NDA_DST: u16 = 1;
pub(super) const NDA_LLADDR: u16 = 2;
/// Reachable, stale, delay, probe, no ARP, permanent: what the kernel sends to.
const NUD_VALID: u16 = 0x02 | 0x04 | 0x08 | 0x10 | 0x40 | 0x80;
pub(super) const IFLA_IFNAME: u16 = 3;
pub(super) const IFLA_MTU: u16 = 4;
pub(super) const IFA_ADDRESS: u16 = 1;
pub(super) const IFA_LOCAL: u16 = 2;
pub(super) const IFA_FLAGS: u16 = 8;
pub(super) const RTA_OIF: u16 = 4;
pub(super) const RTA_GATEWAY: u16 = 5;
pub(super) const RTA_PRIORITY: u16 = 6;
pub(super) const RTA_MULTIPATH: u16 = 9;
const RTA_TABLE: u16 = 15;
const RTA_VIA: u16 = 18;
const IFA_F_DADFAILED: u32 = 0x08;
const IFA_F_DEPRECATED: u32 = 0x20;
const IFA_F_TENTATIVE: u32 = 0x40;
const IFA_F_OPTIMISTIC: u32 = 0x04;
pub(super) const RTN_UNICAST: u8 = 1;
const RTM_F_CLONED: u32 = 0x200;
pub(super) const INET: u8 = libc::AF_INET as u8;
const INET6: u8 = libc::AF_INET6 as u8;

pub(super) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let b = bytes.get(at..at + 2)?;
    Some(u16::from_ne_bytes([b[0], b[1]]))
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let b = bytes.get(at..at + 4)?;
    Some(u32::from_ne_bytes([b[0], b[1], b[2], b[3]]))
}

/// Cuts off the first of a row of records that start with their own length, which counts from `length` on and must cover
/// `least` bytes: the record, and what follows it after padding to four bytes.
pub(super) fn cut(bytes: &[u8], length: usize, least: usize) -> Option<(&[u8], &[u8])> {
    if length < least {
        return None;
    }
    let record = bytes.get(..length)?;
    let next = (length + 3) & !3;
    Some((record, bytes.get(next..).unwrap_or(&[])))
}

/// Calls `visit` with type and value of each attribute; stops at the first that does not fit.
pub(super) fn attributes<'a>(mut bytes: &'a [u8], mut visit: impl FnMut(u16, &'a [u8])) {
    // Each round takes at least the four bytes of an attribute's own header.
    while let (Some(length), Some(kind)) = (u16_at(bytes, 0), u16_at(bytes, 2)) {
        match cut(bytes, usize::from(length), 4) {
            Some((record, rest)) => {
                // The two uppermost bits are flags (nested, byte order).
                visit(kind & 0x3fff, &record[4..]);
                bytes = rest;
            }
            None => return,
        }
    }
}

/// An address of a family (AF_INET, AF_INET6) from its bytes.
fn address(family: u8, bytes: &[u8]) -> Option<IpAddr> {
    if family == INET && bytes.len() == 4 {
        return Some(IpAddr::V4(Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3])));
    }
    if family == INET6 && bytes.len() == 16 {
        let mut octets = [0; 16];
        octets.copy_from_slice(bytes);
        return Some(IpAddr::V6(Ipv6Addr::from(octets)));
    }
    None
}

/// Appends the changes in what the kernel wrote, one or more messages. What does not concern us, or is cut off, is skipped;
/// no bytes make it fail.
pub fn parse(mut bytes: &[u8], out: &mut Vec<Change>) -> Parsed {
    let mut parsed = Parsed::default();
    while let (Some(length), Some(kind), Some(flags)) = (u32_at(bytes, 0), u16_at(bytes, 4), u16_at(bytes, 6)) {
        let (message, rest) = match cut(bytes, length as usize, HEADER) {
            Some(pair) => pair,
            None => break,
        };
        parsed.interrupted |= flags & NLM_F_DUMP_INTR != 0;
        let body = &message[HEADER..];
        match kind {
            NLMSG_DONE | NLMSG_ERROR => parsed.ended = true,
            RTM_NEWLINK | RTM_DELLINK => out.extend(link(body, kind == RTM_DELLINK)),
            RTM_NEWADDR | RTM_DELADDR => out.extend(interface_address(body, kind == RTM_DELADDR)),
            RTM_NEWNEIGH | RTM_DELNEIGH => out.extend(neighbour(body, kind == RTM_DELNEIGH)),
            RTM_NEWROUTE | RTM_DELROUTE => {
                route(body, kind == RTM_DELROUTE, out);
            }
            _ => {}
        }
        bytes = rest;
    }
    parsed
}

/// `struct ifinfomsg`: family u8, padding u8, type u16, index i32, flags u32, change u32.
fn link(body: &[u8], gone: bool) -> Option<Change> {
    // Other families tell of a bridge's ports: leaving a bridge is not vanishing.
    if body.first() != Some(&(libc::AF_UNSPEC as u8)) {
        return None;
    }
    let (hatype, index, flags) = (u16_at(body, 2)?, u32_at(body, 4)?, u32_at(body, 8)?);
    if gone {
        return Some(Change::LinkGone { index });
    }
    let (mut name, mut mtu) = (None, 0);
    attributes(body.get(16..)?, |kind, value| match kind {
        IFLA_IFNAME => {
            let end = value.iter().position(|&b| b == 0).unwrap_or(value.len());
            name = Some(String::from_utf8_lossy(&value[..end]).into_owned());
        }
        IFLA_MTU => mtu = u32_at(value, 0).unwrap_or(0),
        _ => {}
    });
    let all = (libc::IFF_UP | libc::IFF_LOWER_UP | libc::IFF_RUNNING) as u32;
    let up = flags & libc::IFF_UP as u32 != 0;
    Some(Change::Link(Link { index, name: name?, up, carrier: flags & all == all, mtu, hatype }))
}

/// `struct ifaddrmsg`: family u8, prefix length u8, flags u8, scope u8, index u32.
fn interface_address(body: &[u8], gone: bool) -> Option<Change> {
    let (family, prefix, scope, index) = (*body.first()?, *body.get(1)?, *body.get(3)?, u32_at(body, 4)?);
    let mut flags = u32::from(*body.get(2)?);
    let (mut local, mut other) = (None, None);
    attributes(&body[8..], |kind, value| match kind {
        // On a point-to-point interface IFA_ADDRESS is the other end's.
        IFA_LOCAL => local = address(family, value),
        IFA_ADDRESS => other = address(family, value),
        IFA_FLAGS => flags = u32_at(value, 0).unwrap_or(flags),
        _ => {}
    });
    Some(Change::Address(Address {
        index,
        address: local.or(other)?,
        prefix,
        gone,
        deprecated: flags & IFA_F_DEPRECATED != 0,
        tentative: flags & IFA_F_DADFAILED != 0 || flags & (IFA_F_TENTATIVE | IFA_F_OPTIMISTIC) == IFA_F_TENTATIVE,
        global: scope == libc::RT_SCOPE_UNIVERSE,
    }))
}

/// `struct ndmsg`: family u8, padding u8 and u16, index u32, state u16, flags u8, type u8.
fn neighbour(body: &[u8], gone: bool) -> Option<Change> {
    let (family, index, state) = (*body.first()?, u32_at(body, 4)?, u16_at(body, 8)?);
    let (mut to, mut mac) = (None, None);
    attributes(body.get(12..)?, |kind, value| match kind {
        NDA_DST => to = address(family, value),
        NDA_LLADDR => mac = Mac::try_from(value).ok(),
        _ => {}
    });
    let mac = mac.filter(|_| !gone && state & NUD_VALID != 0);
    Some(Change::Neighbour(Neighbour { index, address: to?, mac }))
}

/// `struct rtmsg`: family, destination and source prefix length, tos, table, protocol, scope, type (u8 each), flags u32.
fn route(body: &[u8], gone: bool, out: &mut Vec<Change>) -> Option<()> {
    let (family, flags) = (*body.first()?, u32_at(body, 8)?);
    let is_default = body[1] == 0 && body[2] == 0 && body[7] == RTN_UNICAST && flags & RTM_F_CLONED == 0;
    if !is_default || (family != INET && family != INET6) {
        return None;
    }
    let mut base =
        DefaultRoute { index: 0, ipv6: family == INET6, gateway: None, metric: 0, table: u32::from(body[4]), gone };
    let mut hops: &[u8] = &[];
    attributes(&body[12..], |kind, value| match kind {
        RTA_OIF => base.index = u32_at(value, 0).unwrap_or(0),
        RTA_PRIORITY => base.metric = u32_at(value, 0).unwrap_or(0),
        RTA_TABLE => base.table = u32_at(value, 0).unwrap_or(base.table),
        RTA_MULTIPATH => hops = value,
        _ => base.gateway = gateway(family, kind, value).or(base.gateway),
    });
    if base.index != 0 {
        out.push(Change::DefaultRoute(base));
    }
    // `struct rtnexthop`: length u16, flags u8, hops u8, interface i32, attributes.
    while let (Some(length), Some(index)) = (u16_at(hops, 0), u32_at(hops, 4)) {
        let (hop, rest) = cut(hops, usize::from(length), 8)?;
        let mut one = DefaultRoute { index, gateway: None, ..base };
        attributes(&hop[8..], |kind, value| one.gateway = gateway(family, kind, value).or(one.gateway));
        out.push(Change::DefaultRoute(one));
        hops = rest;
    }
    None
}

/// The next hop, if this attribute names it; RTA_VIA is an address of another family behind two bytes that say which.
fn gateway(family: u8, kind: u16, value: &[u8]) -> Option<IpAddr> {
    match kind {
        RTA_GATEWAY => address(family, value),
        RTA_VIA => address(u16_at(value, 0)? as u8, &value[2..]),
        _ => None,
    }
}

/// What is asked for, one after the other: a socket answers one dump at a time. Kind, family and length of the body, of
/// which the longest (ifinfomsg) will do for most; behind that of neighbours (ndmsg) attributes would be read.
const DUMPS: [(u16, u8, usize); 5] = [
    (RTM_GETLINK, libc::AF_UNSPEC as u8, 16),
    (RTM_GETADDR, libc::AF_UNSPEC as u8, 16),
    (RTM_GETROUTE, INET, 16),
    (RTM_GETROUTE, INET6, 16),
    (RTM_GETNEIGH, libc::AF_UNSPEC as u8, 12),
];

/// Groups of `struct sockaddr_nl`: LINK, IPV4_IFADDR, IPV4_ROUTE, IPV6_IFADDR, IPV6_ROUTE, NEIGH.
const GROUPS: u32 = 0x1 | 0x4 | 0x10 | 0x40 | 0x100 | 0x400;
const RECEIVE_BYTES: u32 = 2 << 20;
/// The kernel writes at most 32 KiB at a time.
const BUFFER_BYTES: usize = 64 << 10;
/// How often in a row a dump that was interrupted is asked for again.
const MOST_REPEATS: u32 = 8;
/// Reads of one call of `receive`, so that a flood of changes does not keep the program from everything else.
const MOST_READS: usize = 256;

/// Watches the current network namespace, non-blocking.
#[derive(Debug)]
pub struct Monitor {
    descriptor: OwnedFd,
    buffer: Vec<u8>,
    /// The dump that is under way; None: all are done.
    dump: Option<usize>,
    /// All are to be made again once the one under way has ended.
    again: bool,
    interrupted: bool,
    repeats: u32,
    orphans: Orphans,
}

impl Monitor {
    /// Opens the socket and asks for the whole state: the first `receive` gives it.
    pub fn open() -> io::Result<Monitor> {
        Monitor::with_buffer(RECEIVE_BYTES)
    }

    pub(super) fn with_buffer(bytes: u32) -> io::Result<Monitor> {
        let descriptor = socket::open(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE, "rtnetlink socket")?;
        socket::grow_receive_buffer(&descriptor, bytes, "rtnetlink socket")?;
        socket::bind(&descriptor, &RawAddress::netlink(GROUPS), || "bind rtnetlink socket".to_string())?;
        let mut monitor = Monitor {
            descriptor,
            buffer: vec![0; BUFFER_BYTES],
            dump: Some(0),
            again: false,
            interrupted: false,
            repeats: 0,
            orphans: Orphans::default(),
        };
        monitor.request()?;
        Ok(monitor)
    }

    /// Asks for the dump that is due, if one is.
    fn request(&mut self) -> io::Result<()> {
        self.interrupted = false;
        let (kind, family, body) = match self.dump.and_then(|dump| DUMPS.get(dump)) {
            Some(dump) => *dump,
            None => {
                self.dump = None;
                return Ok(());
            }
        };
        // Only the family in the first byte of the body matters.
        let mut message = [0u8; HEADER + 16];
        let length = HEADER + body;
        message[..4].copy_from_slice(&(length as u32).to_ne_bytes());
        message[4..6].copy_from_slice(&kind.to_ne_bytes());
        message[6..8].copy_from_slice(&(NLM_F_REQUEST | NLM_F_DUMP).to_ne_bytes());
        message[HEADER] = family;
        // SAFETY: pointer and length describe `message`.
        let n = unsafe { libc::send(self.as_raw_fd(), message.as_ptr().cast(), length, libc::MSG_DONTWAIT) };
        check(n.min(0) as i32, || "ask rtnetlink for the state".to_string()).map(|_| ())
    }

    /// Appends what has changed since the last call, in order. A route that is gone may be told of twice.
    pub fn receive(&mut self, out: &mut Vec<Change>) -> io::Result<()> {
        let start = out.len();
        let result = self.read(out);
        self.orphans.complete(out, start);
        result
    }

    fn read(&mut self, out: &mut Vec<Change>) -> io::Result<()> {
        for _ in 0..MOST_READS {
            let mut from = RawAddress::empty();
            let name = (&mut from.storage as *mut libc::sockaddr_storage).cast();
            let (pointer, length) = (self.buffer.as_mut_ptr().cast(), self.buffer.len());
            let flags = libc::MSG_DONTWAIT;
            // SAFETY: buffer and address are described by their lengths and live over the call.
            let n = unsafe { libc::recvfrom(self.as_raw_fd(), pointer, length, flags, name, &mut from.length) };
            if n < 0 {
                let error = io::Error::last_os_error();
                match error.raw_os_error() {
                    Some(libc::EAGAIN) => return Ok(()),
                    Some(libc::EINTR) => continue,
                    Some(libc::ENOBUFS) => {
                        out.push(Change::Lost);
                        self.restart()?;
                        continue;
                    }
                    _ => return Err(context(error, "receive from rtnetlink")),
                }
            }
            // Only the kernel (port 0) is believed.
            if from.netlink_port() == Some(0) {
                let parsed = parse(&self.buffer[..(n as usize).min(self.buffer.len())], out);
                self.follow(parsed)?;
            }
        }
        Ok(())
    }

    /// Everything anew, as soon as the dump that may be under way has ended.
    fn restart(&mut self) -> io::Result<()> {
        self.repeats = 0;
        if self.dump.is_some() {
            self.again = true;
            return Ok(());
        }
        self.dump = Some(0);
        self.request()
    }

    /// Goes on to the next dump when one has ended.
    fn follow(&mut self, parsed: Parsed) -> io::Result<()> {
        self.interrupted |= parsed.interrupted;
        if !parsed.ended || self.dump.is_none() {
            return Ok(());
        }
        if self.again {
            self.again = false;
            self.dump = Some(0);
        } else if self.interrupted && self.repeats < MOST_REPEATS {
            self.repeats += 1;
        } else {
            self.repeats = 0;
            self.dump = self.dump.map(|dump| dump + 1);
        }
        self.request()
    }
}

impl AsRawFd for Monitor {
    fn as_raw_fd(&self) -> RawFd {
        self.descriptor.as_raw_fd()
    }
}
