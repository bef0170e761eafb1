//! Datagrams of the tunnel come in: inner packets and what concerns their order, hellos, echoes and binds.

use super::config::Via;
use super::engine::{Effects, Engine, Notice};
use super::tunnel::{decode, Bind, Body, Datagram, Echo, Hello, HEADER_LEN};
use crate::edge::buffer::Buf;
use crate::edge::frame::{Kind, Shim};
use crate::edge::reorder::before;
use crate::ip::{self, Packet, Part, Sum, Tuple, SYN};
use std::net::{Ipv4Addr, SocketAddr};

/// After so long without one, the other end's clock may be anywhere.
const OUTAGE_NS: u64 = 60_000_000_000;

/// No datagram is on its way for longer, in microseconds.
const OLDEST_US: i32 = 10_000_000;

impl Engine {
    /// A datagram of the tunnel. False: it is nobody's we know.
    pub fn from_tunnel(&mut self, now_ns: u64, mut buf: Buf, from: SocketAddr, fx: &mut Effects) -> bool {
        let session = self.session;
        let datagram = match session.and_then(|session| Some((session, decode(buf.bytes(), session.peer_key)?))) {
            Some((session, datagram))
                if usize::from(datagram.shim.path) < self.links.len()
                    && datagram.session == session.number
                    && !self.is_replayed(now_ns, datagram.shim.sent_us) =>
            {
                datagram
            }
            _ => {
                fx.drops.unauthenticated += 1;
                fx.pool.give(buf);
                return false;
            }
        };
        let length = buf.len();
        let link = &mut self.links[usize::from(datagram.shim.path)];
        link.received(now_ns, length);
        link.heartbeat.heard(now_ns);
        if datagram.body == Body::Shim {
            buf.strip(HEADER_LEN);
            self.shim(now_ns, datagram.shim, buf, fx);
        } else {
            fx.pool.give(buf);
            self.message(now_ns, &datagram, from, fx);
        }
        true
    }

    /// Whether a datagram was sent so long before the newest one that it must be a recording. What is younger is known by
    /// its number.
    fn is_replayed(&mut self, now_ns: u64, sent_us: u32) -> bool {
        let age_us = match self.newest {
            Some((newest_us, heard_ns)) if now_ns.saturating_sub(heard_ns) < OUTAGE_NS => {
                newest_us.wrapping_sub(sent_us) as i32
            }
            _ => 0,
        };
        if age_us <= 0 {
            self.newest = Some((sent_us, now_ns));
        }
        age_us > OLDEST_US
    }

    fn shim(&mut self, now_ns: u64, shim: Shim, mut buf: Buf, fx: &mut Effects) {
        if shim.kind != Kind::Data {
            fx.pool.give(buf);
            if let Some(slot) = self.flows.of_number(shim.flow) {
                self.order(now_ns, slot, shim, None, fx);
            }
            return;
        }
        let packet = match ip::parse(buf.bytes()) {
            Ok(packet) => packet,
            Err(_) => {
                fx.drops.malformed += 1;
                return fx.pool.give(buf);
            }
        };
        buf.truncate(packet.len);
        let inner = if self.is_waypoint { packet.tuple.source.address } else { packet.tuple.destination.address };
        if !self.own_address(inner) {
            fx.drops.spoofed += 1;
            return fx.pool.give(buf);
        }
        let slot = match self.slot_from_tunnel(now_ns, &shim, &packet, fx) {
            Some(slot) => slot,
            None => {
                fx.drops.unroutable += 1;
                return fx.pool.give(buf);
            }
        };
        if packet.tcp_flags & SYN != 0 {
            let mtu = self.flows.get(slot).map_or(1500, |flow| self.mtu(flow));
            ip::clamp_mss(buf.bytes_mut(), &packet, mtu, Sum::Whole);
        }
        if let Some(flow) = self.flows.get_mut(slot) {
            flow.used_ns = now_ns;
            flow.counters.received_bytes += packet.len as u64;
            flow.counters.received_packets += 1;
            flow.note_flags(packet.tcp_flags, false);
        }
        self.order(now_ns, slot, shim, Some(buf), fx);
    }

    /// The flow of an inner packet: by its number, if the packet is really of that flow.
    fn slot_from_tunnel(&mut self, now_ns: u64, shim: &Shim, packet: &Packet, fx: &mut Effects) -> Option<usize> {
        let ours = packet.tuple.reversed();
        let has_ports = packet.error.is_none() && !matches!(packet.part, Part::LaterFragment { .. });
        if let Some(slot) = self.flows.of_number(shim.flow) {
            let known = self.flows.get(slot)?.tuple;
            let is_same = known == ours || !has_ports && known.destination.address == ours.destination.address;
            if is_same || packet.error.is_some() {
                return Some(slot);
            }
            if self.flows.is_own(shim.flow) {
                return None;
            }
            // The other end has given the number to another flow.
            self.forget(now_ns, slot, fx);
        }
        if !has_ports {
            return None;
        }
        if let Some(slot) = self.flows.of_tuple(&ours) {
            if !self.is_waypoint {
                // The client's number counts, which the waypoint does not know yet: it has just begun the same flow, or
                // knows it from a program before this one.
                return Some(slot);
            }
            // The same flow by another number: the other end has begun anew.
            self.forget(now_ns, slot, fx);
        }
        if self.flows.is_own(shim.flow) {
            self.flows.claim(shim.flow);
        }
        let slot = self.create_numbered(now_ns, shim.flow, ours, packet.dscp, Some(Via::Waypoint), fx)?;
        if self.is_waypoint {
            let flow = self.flows.get_mut(slot)?;
            flow.home = None;
            flow.pinned = Some(shim.path);
            self.refresh(now_ns, slot, fx);
        }
        Some(slot)
    }

    fn order(&mut self, now_ns: u64, slot: usize, shim: Shim, buf: Option<Buf>, fx: &mut Effects) {
        let flow = match self.flows.get_mut(slot) {
            Some(flow) => flow,
            None => return buf.into_iter().for_each(|buf| fx.pool.give(buf)),
        };
        let is_newest = shim.kind == Kind::Data && flow.order.is_newest(shim.sequence);
        flow.order.accept(now_ns, shim, buf, &mut fx.released);
        let waits = flow.order.next_due(now_ns).is_some();
        // Without a bind of its own a flow is answered where it comes from.
        let follows = self.is_waypoint && flow.bind_serial == 0 && is_newest && flow.pinned != Some(shim.path);
        if waits && !self.ordering.contains(&slot) {
            self.ordering.push(slot);
        }
        if follows {
            if let Some(flow) = self.flows.get_mut(slot) {
                flow.pinned = Some(shim.path);
            }
            self.refresh(now_ns, slot, fx);
        }
        fx.take_released();
    }

    fn message(&mut self, now_ns: u64, datagram: &Datagram, from: SocketAddr, fx: &mut Effects) {
        let (link, flow) = (datagram.shim.path, datagram.shim.flow);
        match datagram.body {
            Body::Hello(hello) if self.is_waypoint => self.hello(now_ns, link, &hello, datagram, from, fx),
            Body::Echo(echo) if !self.is_waypoint => self.echo(now_ns, link, &echo, fx),
            Body::Bind(bind) if self.is_waypoint && self.bind(now_ns, flow, &bind, fx) => {
                self.tell(now_ns, &Body::Bound { serial: bind.serial }, link, flow, from, fx);
            }
            Body::Bound { serial } if !self.is_waypoint => {
                let slot = self.flows.of_number(flow);
                if let Some(flow) = slot.and_then(|slot| self.flows.get_mut(slot)) {
                    flow.bind_serial = serial;
                    flow.unconfirmed = flow.unconfirmed.filter(|bind| bind.serial != serial);
                }
            }
            _ => {}
        }
    }

    /// The client says where it is and what it wants. An older hello says nothing; of all interfaces together the newest
    /// counts, for they differ in delay.
    fn hello(
        &mut self,
        now_ns: u64,
        number: u8,
        hello: &Hello,
        datagram: &Datagram,
        from: SocketAddr,
        fx: &mut Effects,
    ) {
        let is_newer = |known: u32| known == 0 || before(known, hello.serial);
        if !is_newer(self.links[usize::from(number)].heard_serial) {
            return;
        }
        let mut changed = false;
        if is_newer(self.heard_serial) {
            self.heard_serial = hello.serial;
            for at in 0..self.links.len() {
                let usable = hello.usable >> at & 1 == 1;
                let was_usable = std::mem::replace(&mut self.links[at].usable, usable);
                changed |= was_usable != usable;
                if was_usable && !usable {
                    self.retransmit_given(now_ns, at, fx);
                }
            }
        }
        let link = &mut self.links[usize::from(number)];
        link.heard_serial = hello.serial;
        changed |= link.endpoint.replace(from) != Some(from);
        changed |= !std::mem::replace(&mut link.state.up, true);
        link.state.address4 = Some(Ipv4Addr::UNSPECIFIED);
        link.state.address6 = Some(std::net::Ipv6Addr::UNSPECIFIED);
        let rate_mbps = Some(f64::from(hello.rate_kbps) / 1e3).filter(|rate| *rate > 0.0);
        link.set_rate(now_ns, rate_mbps);
        changed |= link.heartbeat.answered(now_ns, 0);
        let echo = Body::Echo(Echo { serial: hello.serial, asked_us: datagram.shim.sent_us });
        self.tell(now_ns, &echo, number, 0, from, fx);
        if changed {
            self.refresh_all(now_ns, fx);
        }
    }

    fn echo(&mut self, now_ns: u64, number: u8, echo: &Echo, fx: &mut Effects) {
        let rtt_us = ((now_ns / 1000) as u32).wrapping_sub(echo.asked_us);
        // A time before the hello was sent is no answer to it.
        if rtt_us > 60_000_000 {
            return;
        }
        let link = &mut self.links[usize::from(number)];
        // A recording tells nothing, and a late answer nothing new.
        if link.heard_serial != 0 && !before(link.heard_serial, echo.serial) {
            return;
        }
        link.heard_serial = echo.serial;
        if link.heartbeat.answered(now_ns, u64::from(rtt_us) * 1000) {
            fx.notices.push(Notice::Alive { link: number });
            if std::mem::take(&mut self.waypoint_lost) {
                fx.notices.push(Notice::WaypointBack);
            }
            self.refresh_all(now_ns, fx);
            self.hello_at_once(now_ns);
        }
    }

    /// What the client wants of a flow. False if there is no such flow yet.
    fn bind(&mut self, now_ns: u64, number: u16, bind: &Bind, fx: &mut Effects) -> bool {
        let slot = match self.flows.of_number(number) {
            Some(slot) => slot,
            None => return false,
        };
        if let Some(flow) = self.flows.get_mut(slot) {
            if flow.bind_serial != 0 && !before(flow.bind_serial, bind.serial) {
                return true;
            }
            flow.bind_serial = bind.serial;
            flow.rights.wanted = bind.accepts;
            flow.rights.backup = !0;
            flow.rights.weight = (f64::from(bind.weight_milli) / 1e3).max(1e-3);
            flow.rights.urgent = bind.urgent;
            flow.rights.spread = bind.spread;
            flow.rights.copies = bind.copies;
            // `refresh` moves it there with all that belongs to it.
            let home = bind.home.min(15);
            flow.pinned = if bind.spread || bind.copies { None } else { Some(home) };
        }
        self.refresh(now_ns, slot, fx);
        true
    }
}

pub(super) fn same_hosts(one: Tuple, other: Tuple) -> bool {
    one.source.address == other.source.address && one.destination.address == other.destination.address
}
