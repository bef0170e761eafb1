//! Packets come in: from the host, from an interface's wire, out of the tunnel.

use super::config::Via;
use super::engine::{is_connection, Effects, Engine};
use super::flow::Item;
use super::receive::same_hosts;
use crate::edge::buffer::Buf;
use crate::ip::{self, Packet, Part, Segments, Sum, Tuple, ACK, SYN};
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};

/// A flow's queue may hold this many packets, and more only while the first waits no longer than `MOST_WAIT_NS`.
const FEW_PACKETS: usize = 64;
const MOST_PACKETS: usize = 2048;
const MOST_WAIT_NS: u64 = 400_000_000;
const MOST_FRAGMENTED: usize = 64;

/// Which flow a fragment without ports belongs to: what the first fragment has told.
#[derive(Debug, Default)]
pub struct Fragments(VecDeque<(IpAddr, IpAddr, u32, usize)>);

impl Fragments {
    #[cfg(test)]
    pub fn known(&self) -> usize {
        self.0.len()
    }

    fn note(&mut self, packet: &Packet, slot: usize) {
        if let Part::FirstFragment { identification } = packet.part {
            if self.0.len() >= MOST_FRAGMENTED {
                self.0.pop_front();
            }
            let (source, destination) = (packet.tuple.source.address, packet.tuple.destination.address);
            self.0.push_back((source, destination, identification, slot));
        }
    }

    fn find(&self, packet: &Packet) -> Option<usize> {
        let identification = match packet.part {
            Part::LaterFragment { identification } => identification,
            _ => return None,
        };
        let key = (packet.tuple.source.address, packet.tuple.destination.address, identification);
        self.0.iter().rev().find(|known| (known.0, known.1, known.2) == key).map(|known| known.3)
    }
}

impl Engine {
    /// A packet that the host sends.
    pub fn from_host(&mut self, now_ns: u64, mut buf: Buf, fx: &mut Effects) {
        let packet = match ip::parse(buf.bytes()) {
            Ok(packet) => packet,
            Err(_) => {
                fx.drops.malformed += 1;
                return fx.pool.give(buf);
            }
        };
        buf.truncate(packet.len);
        let slot = match self.slot_of(now_ns, &packet, fx) {
            Some(slot) => slot,
            None => {
                fx.drops.unroutable += 1;
                return fx.pool.give(buf);
            }
        };
        self.fragments.note(&packet, slot);
        let via = match self.flows.get_mut(slot) {
            Some(flow) => {
                flow.used_ns = now_ns;
                flow.note_flags(packet.tcp_flags, true);
                flow.via
            }
            None => return fx.pool.give(buf),
        };
        match via {
            Via::Direct => self.direct(now_ns, slot, packet, buf, fx),
            Via::Waypoint => self.through(now_ns, slot, &packet, buf, fx),
        }
    }

    /// The same in a large buffer, which is given back.
    pub fn from_host_whole(&mut self, now_ns: u64, large: Buf, fx: &mut Effects) {
        let single = fx.pool.take_with(large.bytes());
        fx.pool.give(large);
        match single {
            Some(single) => self.from_host(now_ns, single, fx),
            None => fx.drops.overrun += 1,
        }
    }

    /// The flow of a packet that the host sends; a new one if need be.
    fn slot_of(&mut self, now_ns: u64, packet: &Packet, fx: &mut Effects) -> Option<usize> {
        let remote = packet.tuple.destination.address;
        if remote.is_multicast() || remote.is_unspecified() || remote.is_loopback() || is_link_local(remote) {
            return None;
        }
        if remote == IpAddr::V4(Ipv4Addr::BROADCAST) {
            return None;
        }
        if matches!(packet.part, Part::LaterFragment { .. }) {
            let known = self.fragments.find(packet).filter(|slot| {
                // The flow may have ended, and another one have its slot.
                let tuple = self.tuple_of(*slot);
                tuple.map_or(false, |tuple| same_hosts(tuple, packet.tuple))
            });
            return known.or_else(|| self.flows.of_tuple(&packet.tuple));
        }
        // An error about a packet that came belongs to that packet's flow.
        if let Some(error) = packet.error {
            let slot = self.flows.of_tuple(&error.inner.reversed())?;
            return self.flows.get(slot).filter(|flow| flow.via == Via::Waypoint).map(|_| slot);
        }
        if let Some(slot) = self.flows.of_tuple(&packet.tuple) {
            let is_dead = self.flows.get(slot).map_or(false, |flow| flow.dead);
            if !is_dead || packet.tcp_flags & (SYN | ACK) != SYN {
                return Some(slot);
            }
            // The application connects again from the same port.
            self.forget(now_ns, slot, fx);
        }
        // An answer to a ping that came.
        let via = if self.is_waypoint { Some(Via::Waypoint) } else { None };
        self.create(now_ns, packet.tuple, packet.dscp, via, fx)
    }

    fn direct(&mut self, now_ns: u64, slot: usize, packet: Packet, mut buf: Buf, fx: &mut Effects) {
        let dead = self.flows.get(slot).map_or(true, |flow| flow.dead);
        let bound = self.flows.get(slot).map_or(false, |flow| flow.wire.is_some());
        if dead || !bound && !self.bind_direct(now_ns, slot, fx) {
            return self.refuse(slot, &packet, buf, dead, fx);
        }
        let (wire, mtu) = match self.flows.get(slot).and_then(|flow| Some((flow.wire?, self.mtu(flow)))) {
            Some(found) => found,
            None => return fx.pool.give(buf),
        };
        if packet.len > mtu && self.too_big(&packet, mtu, &buf, fx) {
            return fx.pool.give(buf);
        }
        let (source, destination) = (wire.tuple.source, wire.tuple.destination);
        if ip::rewrite(buf.bytes_mut(), &packet, Some(source), Some(destination), Sum::Whole) {
            if packet.len > mtu {
                return self.in_fragments(now_ns, slot, mtu, buf, fx);
            }
            self.queue(now_ns, slot, buf, fx);
        } else {
            fx.drops.malformed += 1;
            fx.pool.give(buf);
        }
    }

    /// A TCP packet that the host sends and that stands for several segments of `size` bytes of payload.
    pub fn from_host_segments(&mut self, now_ns: u64, mut buf: Buf, size: u16, fx: &mut Effects) {
        let packet = ip::parse(buf.bytes()).ok();
        let known = packet.and_then(|packet| Some((packet, Segments::of(buf.bytes(), &packet, size)?)));
        let (packet, segments) = match known {
            Some(known) => known,
            None => {
                fx.drops.malformed += 1;
                return fx.pool.give(buf);
            }
        };
        buf.truncate(packet.len);
        let via = match self.slot_of(now_ns, &packet, fx).and_then(|slot| Some((slot, self.flows.get_mut(slot)?))) {
            Some((slot, flow)) => {
                flow.used_ns = now_ns;
                flow.note_flags(packet.tcp_flags, true);
                (slot, flow.via)
            }
            None => {
                fx.drops.unroutable += 1;
                return fx.pool.give(buf);
            }
        };
        match via {
            (slot, Via::Direct) => self.direct_segments(now_ns, slot, &packet, segments, buf, fx),
            (slot, Via::Waypoint) => self.cut(now_ns, slot, &packet, segments, buf, fx),
        }
    }

    fn direct_segments(
        &mut self,
        now_ns: u64,
        slot: usize,
        packet: &Packet,
        segments: Segments,
        mut buf: Buf,
        fx: &mut Effects,
    ) {
        let dead = self.flows.get(slot).map_or(true, |flow| flow.dead);
        let bound = self.flows.get(slot).map_or(false, |flow| flow.wire.is_some());
        if dead || !bound && !self.bind_direct(now_ns, slot, fx) {
            return self.refuse(slot, packet, buf, dead, fx);
        }
        let (wire, mtu) = match self.flows.get(slot).and_then(|flow| Some((flow.wire?, self.mtu(flow)))) {
            Some(found) => found,
            None => return fx.pool.give(buf),
        };
        let most = self.links.get(usize::from(wire.link)).map_or(0, |link| link.piece_bytes(packet.is_ipv6()));
        let worth = most >= 2 * segments.packet_len() && fx.pool.large_left() > 0;
        let goes_whole = worth && segments.packet_len() <= mtu && wire.tuple.destination == packet.tuple.destination;
        if !goes_whole {
            return self.cut(now_ns, slot, packet, segments, buf, fx);
        }
        if ip::rewrite(buf.bytes_mut(), packet, Some(wire.tuple.source), None, Sum::Partial) {
            let item = Item { segments: Some(segments), ..Item::new(buf, now_ns) };
            self.queue_item(now_ns, slot, item, fx);
        } else {
            fx.drops.malformed += 1;
            fx.pool.give(buf);
        }
    }

    /// Single packets instead of one that stands for several.
    fn cut(&mut self, now_ns: u64, slot: usize, packet: &Packet, mut segments: Segments, buf: Buf, fx: &mut Effects) {
        let mtu = self.flows.get(slot).map_or(1500, |flow| self.mtu(flow));
        if segments.packet_len() > mtu && self.too_big(packet, mtu, &buf, fx) {
            return fx.pool.give(buf);
        }
        while let Some(piece) = segments.next(buf.bytes(), 0) {
            let part = fx.pool.take_with_parts(piece.parts(buf.bytes()));
            match (part, self.flows.get(slot).map(|flow| flow.via)) {
                (Some(part), Some(via)) => {
                    let single = Packet { len: part.len(), ..*packet };
                    match via {
                        Via::Direct => self.direct(now_ns, slot, single, part, fx),
                        Via::Waypoint => self.through(now_ns, slot, &single, part, fx),
                    }
                }
                (part, _) => {
                    fx.drops.overrun += 1;
                    part.into_iter().for_each(|part| fx.pool.give(part));
                }
            }
            if !segments.advance(&piece) {
                break;
            }
        }
        fx.pool.give(buf);
    }

    fn through(&mut self, now_ns: u64, slot: usize, packet: &Packet, mut buf: Buf, fx: &mut Effects) {
        if self.flows.get(slot).map_or(true, |flow| flow.dead) {
            return self.refuse(slot, packet, buf, true, fx);
        }
        let mtu = self.flows.get(slot).map_or(1500, |flow| self.mtu(flow));
        if packet.tcp_flags & SYN != 0 {
            ip::clamp_mss(buf.bytes_mut(), packet, mtu, Sum::Whole);
        }
        if packet.len > mtu {
            if self.too_big(packet, mtu, &buf, fx) {
                return fx.pool.give(buf);
            }
            return self.in_fragments(now_ns, slot, mtu, buf, fx);
        }
        self.queue(now_ns, slot, buf, fx);
    }

    /// Cuts a packet that may be cut.
    fn in_fragments(&mut self, now_ns: u64, slot: usize, mtu: usize, buf: Buf, fx: &mut Effects) {
        let mut at = 0;
        while let Some(mut part) = fx.pool.take() {
            let next = match ip::fragment(buf.bytes(), mtu, at, part.space()) {
                Some((length, next)) => {
                    part.filled(length);
                    self.queue(now_ns, slot, part, fx);
                    next
                }
                None => {
                    fx.pool.give(part);
                    None
                }
            };
            match next {
                Some(next) => at = next,
                None => break,
            }
        }
        fx.pool.give(buf);
    }

    /// Tells the host that a packet is too big. False if it may be cut instead.
    fn too_big(&mut self, packet: &Packet, mtu: usize, buf: &Buf, fx: &mut Effects) -> bool {
        let mut answer = match fx.pool.take() {
            Some(answer) => answer,
            None => return true,
        };
        match ip::too_big(buf.bytes(), mtu, packet.tuple.destination.address, answer.space()) {
            Some(length) => {
                answer.filled(length);
                fx.to_host.push(answer);
                fx.drops.too_big += 1;
                true
            }
            None => {
                fx.pool.give(answer);
                false
            }
        }
    }

    /// The host hears at once that a packet cannot go on.
    fn refuse(&mut self, slot: usize, packet: &Packet, buf: Buf, dead: bool, fx: &mut Effects) {
        fx.drops.unroutable += 1;
        if let Some(flow) = self.flows.get_mut(slot) {
            flow.counters.dropped_packets += 1;
        }
        if let Some(mut answer) = fx.pool.take() {
            let from = packet.tuple.destination.address;
            let length = match dead {
                true => ip::reset(buf.bytes(), packet, answer.space()),
                false => ip::unreachable(buf.bytes(), false, from, answer.space()),
            };
            match length {
                Some(length) => {
                    answer.filled(length);
                    fx.to_host.push(answer);
                }
                None => fx.pool.give(answer),
            }
        }
        fx.pool.give(buf);
    }

    fn queue(&mut self, now_ns: u64, slot: usize, buf: Buf, fx: &mut Effects) {
        self.queue_item(now_ns, slot, Item::new(buf, now_ns), fx);
    }

    fn queue_item(&mut self, now_ns: u64, slot: usize, item: Item, fx: &mut Effects) {
        let flow = match self.flows.get_mut(slot) {
            Some(flow) => flow,
            None => return fx.pool.give(item.buf),
        };
        let waits_ns = flow.queue.front().map_or(0, |first| now_ns.saturating_sub(first.queued_ns));
        let waiting = flow.queue.len();
        // The fewer buffers are left, the fewer a flow may have: none can take them all.
        let most = MOST_PACKETS.min((fx.pool.left() / 4).max(1));
        if waiting >= most || waiting >= FEW_PACKETS && waits_ns > MOST_WAIT_NS {
            flow.counters.dropped_packets += item.packets() as u64;
            fx.drops.queue_full += item.packets() as u64;
            return fx.pool.give(item.buf);
        }
        flow.queue.push_back(item);
        self.scheduler.arrived(slot);
    }

    /// A packet that came to one of the host's own addresses on an interface. True: it is the host's now, changed in
    /// place; false: it belongs to no flow of ours.
    pub fn from_wire(&mut self, now_ns: u64, link: usize, bytes: &mut [u8], sum: Sum, fx: &mut Effects) -> bool {
        let packet = match ip::parse(bytes) {
            Ok(packet) => packet,
            Err(_) => {
                fx.drops.malformed += 1;
                return false;
            }
        };
        let number = link as u8;
        if let Some(error) = packet.error {
            let slot = self.flows.of_wire(number, error.inner);
            let tuple = slot.and_then(|slot| self.flows.get(slot)).map(|flow| flow.tuple);
            let to = tuple.map(|tuple| tuple.source);
            return to.map_or(false, |to| ip::rewrite_error(bytes, &packet, to.address, to));
        }
        let known = match packet.part {
            Part::LaterFragment { .. } => self.fragments.find(&packet).filter(|slot| {
                let wire = self.flows.get(*slot).and_then(|flow| flow.wire).filter(|wire| wire.link == number);
                wire.map_or(false, |wire| same_hosts(wire.tuple, packet.tuple.reversed()))
            }),
            _ => self.flows.of_wire(number, packet.tuple.reversed()),
        };
        let slot = match known {
            Some(slot) => slot,
            None => return false,
        };
        self.fragments.note(&packet, slot);
        let tuple = match self.flows.get_mut(slot) {
            Some(flow) => {
                flow.used_ns = now_ns;
                flow.counters.received_bytes += packet.len as u64;
                flow.counters.received_packets += 1;
                flow.note_flags(packet.tcp_flags, false);
                flow.tuple
            }
            None => return false,
        };
        if let Some(link) = self.links.get_mut(link) {
            link.received(now_ns, packet.len);
            link.unanswered_until_ns = 0;
        }
        ip::rewrite(bytes, &packet, Some(tuple.destination), Some(tuple.source), sum)
    }

    /// Where a direct flow's interface went, it cannot follow. UDP and pings begin anew elsewhere; a TCP connection is
    /// reset at its next packet, so that the application connects again at once.
    pub(super) fn orphan(&mut self, now_ns: u64, slot: usize, fx: &mut Effects) {
        let connected = self.flows.get(slot).map_or(false, is_connection);
        if !connected {
            return self.forget(now_ns, slot, fx);
        }
        if let Some(flow) = self.flows.get_mut(slot) {
            flow.dead = true;
            flow.queue.drain(..).for_each(|item| fx.pool.give(item.buf));
        }
        self.scheduler.emptied(slot);
    }

    /// The tuple of a flow, for what is told of it.
    pub fn tuple_of(&self, slot: usize) -> Option<Tuple> {
        self.flows.get(slot).map(|flow| flow.tuple)
    }
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.segments()[0] & 0xffc0 == 0xfe80,
    }
}
