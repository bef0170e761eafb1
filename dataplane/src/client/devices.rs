//! The sockets of the client's interfaces, and what the kernel says of them.

use super::host::TCP_SUM_AT;
use super::link::LinkState;
use super::send::Taken;
use crate::ip::Piece;
use crate::sys::epoll::{Epoll, Interest};
use crate::sys::interface::{CarrierQuery, Mac};
use crate::sys::ip_tap::{IpTap, IpTapOptions};
use crate::sys::netlink::{Address, Change, DefaultRoute};
use crate::sys::packet_out::PacketOut;
use crate::sys::raw_ip::{Family, RawIp};
use crate::sys::socket::Sent;
use crate::sys::udp::BoundUdp;
use crate::sys::virtio::{VirtioHeader, GSO_ECN, GSO_TCP4, GSO_TCP6, NEEDS_CSUM};
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::io::{AsRawFd, RawFd};

/// Tokens of a device's sockets are `FIRST_TOKEN + number * TOKENS_EACH` and the following.
pub const FIRST_TOKEN: u64 = 16;
pub const TOKENS_EACH: u64 = 8;
pub const LAST_TOKEN: u64 = FIRST_TOKEN + TOKENS_EACH * 64 - 1;
const TAP: u64 = 0;
const RAW4: u64 = 1;
const RAW6: u64 = 2;
const UDP: u64 = 3;
const OUT: u64 = 4;
/// Nothing tells when a full device queue has room again.
const RETRY_NS: u64 = 200_000;
const MAIN_TABLE: u32 = 254;
/// The kernel only makes sure that a next hop is still there when it sends to it itself: so often it does.
const VERIFY_NS: u64 = 1_000_000_000;
/// Neighbours of an interface that are known; the kernel by itself knows no more.
const MOST_NEIGHBOURS: usize = 1024;

/// What is known of one of the host's interfaces.
#[derive(Debug, Default)]
struct HostLink {
    name: String,
    carrier: bool,
    mtu: u32,
    addresses: Vec<Address>,
    routes: Vec<DefaultRoute>,
    neighbours: HashMap<IpAddr, Mac>,
}

impl HostLink {
    /// An address is of use where a default route is: packets go to other networks.
    fn address(&self, ipv6: bool) -> Option<IpAddr> {
        if !self.routes.iter().any(|route| route.ipv6 == ipv6) {
            return None;
        }
        let good = |a: &&Address| a.address.is_ipv6() == ipv6 && a.global && !a.tentative;
        let fresh = self.addresses.iter().filter(good).find(|a| !a.deprecated);
        fresh.or_else(|| self.addresses.iter().find(good)).map(|a| a.address)
    }

    /// Where packets to other networks go: the MAC address of the next hop, if there is one and the kernel knows it.
    fn hop(&self, ipv6: bool) -> Option<Option<Mac>> {
        let route = self.routes.iter().filter(|route| route.ipv6 == ipv6).min_by_key(|route| route.metric)?;
        Some(route.gateway.and_then(|gateway| self.neighbours.get(&gateway)).copied())
    }

    fn note_neighbour(&mut self, address: IpAddr, mac: Option<Mac>) {
        self.neighbours.remove(&address);
        if let Some(mac) = mac.filter(|_| self.neighbours.len() < MOST_NEIGHBOURS) {
            self.neighbours.insert(address, mac);
        }
    }

    fn state(&self) -> LinkState {
        let address4 = self.address(false).and_then(|a| if let IpAddr::V4(a) = a { Some(a) } else { None });
        let address6 = self.address(true).and_then(|a| if let IpAddr::V6(a) = a { Some(a) } else { None });
        LinkState { up: self.carrier, address4, address6, mtu: self.mtu }
    }
}

/// The host's interfaces as rtnetlink tells.
#[derive(Debug, Default)]
pub struct Host {
    links: HashMap<u32, HostLink>,
}

impl Host {
    pub fn note(&mut self, change: Change) {
        match change {
            Change::Link(link) => {
                let known = self.links.entry(link.index).or_default();
                known.name = link.name;
                known.carrier = link.carrier;
                known.mtu = link.mtu;
            }
            Change::LinkGone { index } => {
                self.links.remove(&index);
            }
            Change::Address(address) => {
                let link = self.links.entry(address.index).or_default();
                link.addresses.retain(|known| known.address != address.address);
                if !address.gone {
                    link.addresses.push(address);
                }
            }
            Change::DefaultRoute(route) if route.table == MAIN_TABLE => {
                let link = self.links.entry(route.index).or_default();
                let same = |known: &DefaultRoute| {
                    (known.ipv6, known.gateway, known.metric) == (route.ipv6, route.gateway, route.metric)
                };
                link.routes.retain(|known| !same(known));
                if !route.gone {
                    link.routes.push(route);
                }
            }
            Change::DefaultRoute(_) => {}
            Change::Neighbour(neighbour) => {
                if let Some(link) = self.links.get_mut(&neighbour.index) {
                    link.note_neighbour(neighbour.address, neighbour.mac);
                }
            }
            Change::Lost => self.links.clear(),
        }
    }

    /// Index and state of an interface.
    pub fn find(&self, name: &str) -> Option<(u32, LinkState)> {
        let found = self.links.iter().find(|(_, link)| link.name == name);
        found.map(|(index, link)| (*index, link.state()))
    }

    /// Next hops of IPv4 and IPv6 on an interface, see `Device::set_hops`.
    pub fn hops(&self, index: u32) -> [Option<Option<Mac>>; 2] {
        let hop = |ipv6: bool| self.links.get(&index)?.hop(ipv6);
        [hop(false), hop(true)]
    }

    /// For a status document: addresses, and whether there is a default route.
    pub fn shown(&self, name: &str) -> (Vec<String>, bool) {
        match self.links.values().find(|link| link.name == name) {
            Some(link) => {
                let addresses = link.addresses.iter().filter(|a| a.global);
                (addresses.map(|a| format!("{}/{}", a.address, a.prefix)).collect(), !link.routes.is_empty())
            }
            None => (Vec::new(), false),
        }
    }
}

/// The sockets of one interface. They are of the interface as it was when they were opened.
pub struct Device {
    name: String,
    index: u32,
    mtu: u32,
    first_token: u64,
    tap: IpTap,
    raw4: RawIp,
    raw6: Option<RawIp>,
    udp: Option<BoundUdp>,
    /// For packets of several segments.
    out: Option<PacketOut>,
    /// Of IPv4 and IPv6: whether packets may go there by it, and the next hop's MAC address.
    hops: [Option<Option<Mac>>; 2],
    /// When the kernel last sent to the next hop.
    verified_ns: [u64; 2],
    /// It did not work; not before this time again.
    rests_until_ns: u64,
    /// The same of many datagrams in one call.
    bursts_rest_until_ns: u64,
    carrier: CarrierQuery,
    /// What the last query told.
    pub has_carrier: bool,
    /// A socket that had no room: its token, and when to try again anyway.
    blocked: Option<(u64, u64)>,
}

impl Device {
    pub fn open(
        name: &str,
        number: usize,
        index: u32,
        mtu: u32,
        waypoint: Option<SocketAddr>,
        epoll: &Epoll,
    ) -> io::Result<Device> {
        let options = IpTapOptions { other_protocols: true, ..IpTapOptions::new(name) };
        let local: Option<SocketAddr> = waypoint.map(|to| match to {
            SocketAddr::V4(_) => SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0),
            SocketAddr::V6(_) => SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 0),
        });
        let device = Device {
            name: name.to_string(),
            index,
            mtu,
            first_token: FIRST_TOKEN + number as u64 * TOKENS_EACH,
            tap: IpTap::open(&options)?,
            raw4: RawIp::open(name, Family::V4)?,
            // A host without IPv6 has no such sockets.
            raw6: RawIp::open(name, Family::V6).ok(),
            udp: local.map(|local| BoundUdp::open(Some(name), local, Some(mtu))).transpose()?,
            // Without it all packets are plain ones.
            out: PacketOut::open(name).ok(),
            hops: [None; 2],
            verified_ns: [0; 2],
            rests_until_ns: 0,
            bursts_rest_until_ns: 0,
            carrier: CarrierQuery::open(name)?,
            has_carrier: true,
            blocked: None,
        };
        epoll.add(&device.tap, device.first_token + TAP, Interest::READ)?;
        epoll.add(&device.raw4, device.first_token + RAW4, Interest::NONE)?;
        if let Some(raw6) = &device.raw6 {
            epoll.add(raw6, device.first_token + RAW6, Interest::NONE)?;
        }
        if let Some(out) = &device.out {
            epoll.add(out, device.first_token + OUT, Interest::NONE)?;
        }
        if let Some(udp) = &device.udp {
            epoll.add(udp, device.first_token + UDP, Interest::READ)?;
        }
        Ok(device)
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the sockets still fit the interface.
    pub fn fits(&self, index: u32, mtu: u32, waypoint: Option<SocketAddr>) -> bool {
        let family = self.udp.as_ref().and_then(|udp| udp.local().ok()).map(|local| local.is_ipv4());
        self.index == index && self.mtu == mtu && family == waypoint.map(|to| to.is_ipv4())
    }

    /// Asks for the carrier; true if it came or went. The kernel tells of it up to a second late if another link changed
    /// within the last one.
    pub fn carrier_changed(&mut self) -> bool {
        let carrier = self.carrier.up();
        std::mem::replace(&mut self.has_carrier, carrier) != carrier
    }

    pub fn tap(&self) -> &IpTap {
        &self.tap
    }

    pub fn udp(&self) -> Option<&BoundUdp> {
        self.udp.as_ref()
    }

    /// Whether an event's token is that of the socket that datagrams come to.
    pub fn is_tunnel(&self, token: u64) -> bool {
        token == self.first_token + UDP
    }

    pub fn is_tap(&self, token: u64) -> bool {
        token == self.first_token + TAP
    }

    /// What the host knows of the next hops of IPv4 and IPv6.
    pub fn set_hops(&mut self, hops: [Option<Option<Mac>>; 2]) {
        let needs = self.out.as_ref().map_or(true, |out| out.needs_hop());
        self.hops = hops.map(|hop| hop.filter(|mac| mac.is_some() || !needs));
    }

    /// The interface has changed, perhaps its MAC address.
    pub fn changed(&mut self) {
        if self.out.as_mut().map_or(false, |out| out.read_mac().is_err()) {
            self.out = None;
        }
    }

    pub fn index(&self) -> u32 {
        self.index
    }

    /// Whether packets of several segments may be given to it now, of IPv4 and of IPv6.
    pub fn takes_segments(&self, now_ns: u64) -> [bool; 2] {
        let (needs, works) = match &self.out {
            Some(out) => (out.needs_hop(), now_ns >= self.rests_until_ns),
            None => (true, false),
        };
        let verified = |family: usize| !needs || now_ns.saturating_sub(self.verified_ns[family]) < VERIFY_NS;
        [0, 1].map(|family| works && self.hops[family].is_some() && verified(family))
    }

    /// Sends a packet of several segments; none is longer than `longest`.
    pub fn send_segments(
        &mut self,
        now_ns: u64,
        piece: &Piece,
        parts: [&[u8]; 2],
        longest: usize,
        epoll: &Epoll,
    ) -> Sent {
        let (hop, out) = match (self.hops[usize::from(piece.is_ipv6)], &mut self.out) {
            (Some(hop), Some(out)) => (hop, out),
            _ => return Sent::NotNow,
        };
        let sent = out.set_longest(longest).and_then(|()| out.send(&segments_header(piece), hop, parts[0], parts[1]));
        let fd = out.as_raw_fd();
        match sent {
            Ok(Sent::Done) => Sent::Done,
            Ok(Sent::NotNow) => self.note_room(now_ns, Sent::NotNow, OUT, fd, epoll),
            // Plain packets may still pass, and the kernel says better what is wrong.
            _ => {
                self.rests_until_ns = now_ns + VERIFY_NS;
                Sent::NotNow
            }
        }
    }

    pub fn send_raw(&mut self, now_ns: u64, parts: [&[u8]; 2], is_ipv4: bool, epoll: &Epoll) -> Sent {
        let (socket, token) = match &self.raw6 {
            Some(raw6) if !is_ipv4 => (raw6, RAW6),
            None if !is_ipv4 => return Sent::NoRoute,
            _ => (&self.raw4, RAW4),
        };
        let (sent, fd) = (socket.send_parts(parts).unwrap_or(Sent::NoRoute), socket.as_raw_fd());
        if sent == Sent::Done {
            self.verified_ns[usize::from(!is_ipv4)] = now_ns;
        }
        self.note_room(now_ns, sent, token, fd, epoll)
    }

    pub fn send_udp(&mut self, now_ns: u64, head: &[u8], body: &[u8], to: SocketAddr, epoll: &Epoll) -> Sent {
        let udp = match &self.udp {
            Some(udp) => udp,
            None => return Sent::NoRoute,
        };
        let (sent, fd) = (udp.send_to(head, body, to).unwrap_or(Sent::NoRoute), udp.as_raw_fd());
        self.note_room(now_ns, sent, UDP, fd, epoll)
    }

    /// Whether many datagrams may be given to it in one call.
    pub fn takes_bursts(&self, now_ns: u64) -> bool {
        self.udp.is_some() && now_ns >= self.bursts_rest_until_ns
    }

    /// Sends all datagrams of `taken`, or none.
    pub fn send_burst(&mut self, now_ns: u64, head: &[u8], taken: &Taken, to: SocketAddr, epoll: &Epoll) -> Sent {
        let udp = match &self.udp {
            Some(udp) => udp,
            None => return Sent::NoRoute,
        };
        let datagrams = std::iter::once([head, taken.bytes()]).chain(taken.more());
        let (sent, fd) = (udp.send_many(datagrams, to, None), udp.as_raw_fd());
        match sent {
            Ok(Sent::Done) => Sent::Done,
            Ok(Sent::NotNow) => self.note_room(now_ns, Sent::NotNow, UDP, fd, epoll),
            // Single ones may still pass, and the kernel says better what is wrong.
            _ => {
                self.bursts_rest_until_ns = now_ns + VERIFY_NS;
                Sent::NotNow
            }
        }
    }

    fn note_room(&mut self, now_ns: u64, sent: Sent, which: u64, fd: RawFd, epoll: &Epoll) -> Sent {
        if sent == Sent::NotNow && self.blocked.is_none() {
            let token = self.first_token + which;
            let interest = Interest { read: which == UDP, write: true };
            if epoll.modify(&fd, token, interest).is_ok() {
                self.blocked = Some((token, now_ns + RETRY_NS));
            }
        }
        sent
    }

    /// A socket has room again, or it is time to try.
    pub fn unblock(&mut self, epoll: &Epoll) {
        let token = match self.blocked.take() {
            Some((token, _)) => token,
            None => return,
        };
        let which = token - self.first_token;
        let interest = if which == UDP { Interest::READ } else { Interest::NONE };
        let fd = match which {
            RAW4 => Some(self.raw4.as_raw_fd()),
            RAW6 => self.raw6.as_ref().map(|raw6| raw6.as_raw_fd()),
            OUT => self.out.as_ref().map(|out| out.as_raw_fd()),
            _ => self.udp.as_ref().map(|udp| udp.as_raw_fd()),
        };
        if let Some(fd) = fd {
            // A socket that is gone needs no events.
            let _ = epoll.modify(&fd, token, interest);
        }
    }

    /// When to try again though nothing tells of room; None if nothing is in the way.
    pub fn retry_at(&self) -> Option<u64> {
        self.blocked.map(|(_, at_ns)| at_ns)
    }

    pub fn is_blocked(&self) -> bool {
        self.blocked.is_some()
    }
}

/// What the kernel is to make of a packet of several segments.
fn segments_header(piece: &Piece) -> VirtioHeader {
    let kind = if piece.is_ipv6 { GSO_TCP6 } else { GSO_TCP4 };
    VirtioHeader {
        flags: NEEDS_CSUM,
        gso_type: kind | if piece.slowed { GSO_ECN } else { 0 },
        hdr_len: piece.header_len() as u16,
        gso_size: piece.size as u16,
        csum_start: piece.l4_at as u16,
        csum_offset: TCP_SUM_AT,
    }
}
