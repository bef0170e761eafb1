//! Packets go out: what an interface that is free takes next, and what becomes of it.

use super::codel::TARGET_NS;
use super::config::Via;
use super::engine::{Effects, Engine};
use super::flow::{Flow, Item};
use super::link::Link;
use super::scheduler::interfaces;
use super::tunnel::{header, HEADER_LEN};
use crate::edge::frame::{Kind, Shim};
use crate::ip::{self, Piece, Segments};
use std::net::{IpAddr, SocketAddr};

/// Copies that may wait for an interface.
const MOST_COPIES: usize = 64;
/// No interface has so long a round trip that a queue may stand longer.
const MOST_WAIT_NS: u64 = 100_000_000;
/// Datagrams that the kernel takes in one call (`UDP_MAX_SEGMENTS` is 64 before Linux 6.9).
pub const MOST_BURST: usize = 64;
/// Pacing asks for room for a packet of this length.
const USUAL_BYTES: usize = 1500;

/// Where a packet goes.
#[derive(Clone, Copy, Debug)]
pub enum To {
    /// As it is, to its own destination.
    Wire(IpAddr),
    /// Behind this header, in UDP.
    Tunnel { head: [u8; HEADER_LEN], to: SocketAddr },
}

/// A further datagram of the same flow that leaves in the same call.
#[derive(Debug)]
pub struct More {
    head: [u8; HEADER_LEN],
    item: Item,
}

/// A packet that an interface takes. It goes back to the engine with `sent`, `put_back` or `refused`.
#[derive(Debug)]
pub struct Taken {
    slot: usize,
    item: Item,
    pub to: To,
    /// Datagrams of the tunnel behind the first: as long as it, only the last may be shorter.
    more: Vec<More>,
    /// The part of the item that leaves now, if it stands for several packets.
    pub piece: Option<Piece>,
    /// From the interface's own queue, not from the flow's.
    is_first: bool,
    /// It gets the flow's next number.
    is_fresh: bool,
}

impl Taken {
    pub fn bytes(&self) -> &[u8] {
        self.item.buf.bytes()
    }

    /// The datagrams behind the first, header and inner packet.
    pub fn more(&self) -> impl ExactSizeIterator<Item = [&[u8]; 2]> {
        self.more.iter().map(|more| [&more.head[..], more.item.buf.bytes()])
    }

    /// Bytes of the inner packets of all datagrams.
    pub fn inner_bytes(&self) -> usize {
        self.item.buf.len() + self.more.iter().map(|more| more.item.buf.len()).sum::<usize>()
    }

    /// The packet that leaves, in two parts.
    pub fn parts(&self) -> [&[u8]; 2] {
        match &self.piece {
            Some(piece) => piece.parts(self.bytes()),
            None => [self.bytes(), &[]],
        }
    }
}

impl Engine {
    /// When an interface may be given the packet that waits for it; None if there is none, or never.
    pub fn ready_at(&self, now_ns: u64, link: usize) -> Option<u64> {
        let state = self.links.get(link)?;
        let waits = !state.first.is_empty() || self.scheduler.waits(link);
        state.ready_at(now_ns, USUAL_BYTES).filter(|_| waits)
    }

    /// The packet that an interface sends next.
    pub fn take(&mut self, now_ns: u64, link: usize, fx: &mut Effects) -> Option<Taken> {
        while let Some((slot, item)) = self.links.get_mut(link)?.first.pop_front() {
            if self.can_leave(link, slot) {
                return self.encapsulate(now_ns, link, slot, item, true);
            }
            fx.pool.give(item.buf);
        }
        let (flows, state) = (&self.flows, self.links.get(link)?);
        let burst_bytes = state.burst_bytes(now_ns);
        let size = |slot: usize| flows.get(slot).map_or(0, |flow| next_len(flow, state, burst_bytes));
        let slot = self.scheduler.next(link, size)?;
        match self.next_item(now_ns, slot, fx) {
            Some(item) if self.can_leave(link, slot) => {
                let mut taken = self.encapsulate(now_ns, link, slot, item, false)?;
                self.take_more(now_ns, link, &mut taken, burst_bytes, fx);
                Some(taken)
            }
            Some(item) => {
                fx.pool.give(item.buf);
                None
            }
            None => {
                self.scheduler.emptied(slot);
                None
            }
        }
    }

    /// Whether there is a way over an interface for a flow's packets.
    fn can_leave(&self, link: usize, slot: usize) -> bool {
        let endpoint = self.links.get(link).and_then(|link| link.endpoint);
        self.flows.get(slot).map_or(false, |flow| match flow.via {
            Via::Direct => flow.wire.is_some(),
            Via::Waypoint => self.session.is_some() && endpoint.is_some(),
        })
    }

    /// The first packet of a flow that is not dropped to keep its queue short.
    fn next_item(&mut self, now_ns: u64, slot: usize, fx: &mut Effects) -> Option<Item> {
        let target_ns = self.wait_target(now_ns, slot)?;
        let flow = self.flows.get_mut(slot)?;
        loop {
            let mut item = flow.queue.pop_front()?;
            let waited_ns = now_ns.saturating_sub(item.queued_ns);
            let is_last = flow.queue.is_empty() && item.packets() == 1;
            // What was given to an interface before, the other end waits for.
            if item.sequence.is_some() || !flow.codel.drops(now_ns, waited_ns, target_ns, is_last) {
                return Some(item);
            }
            flow.counters.dropped_packets += 1;
            fx.drops.queue_full += 1;
            match item.segments.as_mut().map_or(false, |segments| segments.skip()) {
                true => flow.queue.push_front(item),
                false => fx.pool.give(item.buf),
            }
        }
    }

    /// Adds the packets of the same flow that may leave in the same call.
    fn take_more(&mut self, now_ns: u64, link: usize, taken: &mut Taken, burst_bytes: usize, fx: &mut Effects) {
        let (slot, len) = (taken.slot, taken.item.buf.len());
        let session = match (self.session, taken.to) {
            (Some(session), To::Tunnel { .. }) if taken.is_fresh => session,
            _ => return,
        };
        let most = most_datagrams(len, burst_bytes);
        if most > 1 {
            taken.more = std::mem::take(&mut fx.spare);
        }
        while taken.more.len() + 1 < most {
            match self.flows.get(slot).filter(|flow| !flow.rights.copies).and_then(|flow| flow.queue.front()) {
                Some(item) if can_follow(item, len) => {}
                _ => break,
            }
            let mut item = match self.next_item(now_ns, slot, fx) {
                Some(item) => item,
                None => break,
            };
            let flow = match self.flows.get_mut(slot) {
                Some(flow) => flow,
                None => return fx.pool.give(item.buf),
            };
            if !can_follow(&item, len) {
                // The one that stood before it was dropped.
                flow.queue.push_front(item);
                break;
            }
            let sequence = flow.next_sequence.wrapping_add(1 + taken.more.len() as u32);
            let sent_us = (now_ns / 1000) as u32;
            let shim = Shim { kind: Kind::Data, path: link as u8, flow: flow.number, sequence, sent_us };
            let head = header(&shim, session.number, session.key, item.buf.bytes());
            let is_last = item.buf.len() < len;
            item.sequence = Some(sequence);
            taken.more.push(More { head, item });
            if is_last {
                break;
            }
        }
    }

    /// How long packets of a flow may wait. A flow that may move to an interface with a long round trip keeps a window
    /// that fills it: with a shorter queue here, TCP would need seconds there to grow.
    fn wait_target(&self, now_ns: u64, slot: usize) -> Option<u64> {
        let flow = self.flows.get(slot)?;
        let is_short = now_ns.saturating_sub(flow.queue.front()?.queued_ns) < TARGET_NS;
        if is_short || flow.via == Via::Direct || flow.rights.urgent {
            return Some(TARGET_NS);
        }
        let usable =
            self.open(flow.via, flow.tuple.source.address.is_ipv4()) & (flow.rights.wanted | flow.rights.backup);
        let slowest = interfaces(usable).filter_map(|link| self.links[link].heartbeat.rtt_ns).max();
        Some(slowest.unwrap_or(0).clamp(TARGET_NS, MOST_WAIT_NS))
    }

    /// Puts around a packet what it needs on the way.
    fn encapsulate(&mut self, now_ns: u64, link: usize, slot: usize, item: Item, is_first: bool) -> Option<Taken> {
        let (flow, link_state) = (self.flows.get(slot)?, self.links.get(link)?);
        if flow.via == Via::Direct {
            let to = To::Wire(flow.wire?.tuple.destination.address);
            let next = |s: Segments| s.next(item.buf.bytes(), link_state.piece_bytes(s.is_ipv6()));
            let piece = item.segments.and_then(next);
            return Some(Taken { slot, item, to, more: Vec::new(), piece, is_first, is_fresh: false });
        }
        let (session, to) = (self.session?, link_state.endpoint?);
        let sequence = item.sequence.unwrap_or(flow.next_sequence);
        let sent_us = (now_ns / 1000) as u32;
        let shim = Shim { kind: Kind::Data, path: link as u8, flow: flow.number, sequence, sent_us };
        let head = header(&shim, session.number, session.key, item.buf.bytes());
        let is_fresh = item.sequence.is_none();
        Some(Taken {
            slot,
            item: Item { sequence: Some(sequence), ..item },
            to: To::Tunnel { head, to },
            more: Vec::new(),
            piece: None,
            is_first,
            is_fresh,
        })
    }

    /// The interface has no room after all.
    pub fn put_back(&mut self, now_ns: u64, link: usize, taken: Taken) {
        self.links[link].note_full(now_ns);
        let Taken { slot, mut item, more, is_first, is_fresh, .. } = taken;
        if is_first {
            self.links[link].first.push_front((slot, item));
            return;
        }
        if is_fresh {
            item.sequence = None;
        }
        if let Some(flow) = self.flows.get_mut(slot) {
            for more in more.into_iter().rev() {
                flow.queue.push_front(Item { sequence: None, ..more.item });
            }
            flow.queue.push_front(item);
        }
    }

    /// The interface took it.
    pub fn sent(&mut self, now_ns: u64, link: usize, taken: Taken, fx: &mut Effects) {
        let inner = taken.piece.as_ref().map_or(taken.inner_bytes(), |piece| piece.len());
        let Taken { slot, mut item, to, mut more, piece, is_first, is_fresh } = taken;
        let packets = piece.as_ref().map_or(1 + more.len(), |piece| piece.segments);
        let overhead = if matches!(to, To::Tunnel { .. }) { self.overhead() } else { 0 };
        self.links[link].sent(now_ns, inner + packets * overhead, packets);
        let flow = match self.flows.get_mut(slot) {
            Some(flow) => flow,
            None => {
                more.drain(..).for_each(|more| fx.pool.give(more.item.buf));
                return fx.pool.give(item.buf);
            }
        };
        flow.counters.sent_bytes += inner as u64;
        flow.counters.sent_packets += packets as u64;
        if is_fresh {
            flow.next_sequence = flow.next_sequence.wrapping_add(1 + more.len() as u32);
        }
        let goes_on = match (&piece, &mut item.segments) {
            (Some(piece), Some(segments)) => segments.advance(piece),
            _ => false,
        };
        if goes_on {
            flow.queue.push_front(item);
            return self.scheduler.sent(link, slot, inner, true);
        }
        let binds = flow.unconfirmed.is_some();
        let (waits, copies) = (!flow.queue.is_empty(), if flow.rights.copies { flow.accepts } else { 0 });
        if !is_first {
            self.scheduler.sent(link, slot, inner, waits);
            if is_fresh && copies & !(1 << link) != 0 {
                self.copy(copies & !(1 << link), slot, &item, fx);
            }
        }
        if binds {
            self.bind_with_packet(now_ns, slot);
        }
        match to {
            To::Wire(_) => fx.pool.give(item.buf),
            To::Tunnel { .. } => {
                let link = &mut self.links[link];
                link.keep(now_ns, slot, item);
                more.drain(..).for_each(|more| link.keep(now_ns, slot, more.item));
                while let Some(old) = link.pushed_out(now_ns) {
                    fx.pool.give(old.buf);
                }
            }
        }
        if more.capacity() > fx.spare.capacity() {
            fx.spare = more;
        }
    }

    /// The same packet for other interfaces.
    fn copy(&mut self, onto: u16, slot: usize, item: &Item, fx: &mut Effects) {
        for number in interfaces(onto) {
            let queue = &mut self.links[number].first;
            if queue.len() >= MOST_COPIES {
                if let Some((_, old)) = queue.pop_front() {
                    fx.pool.give(old.buf);
                }
                self.links[number].counters.lost_packets += 1;
            }
            if let Some(buf) = fx.pool.take_with(item.buf.bytes()) {
                self.links[number].first.push_back((slot, Item { buf, ..*item }));
            }
        }
    }

    /// The kernel refused it: too big for the way, or there is none.
    pub fn refused(&mut self, link: usize, taken: Taken, too_big: bool, fx: &mut Effects) {
        let Taken { slot, item, more, is_first, .. } = taken;
        let packets = 1 + more.len() as u64;
        self.links[link].counters.lost_packets += packets;
        let waits = match self.flows.get_mut(slot) {
            Some(flow) => {
                flow.counters.dropped_packets += packets;
                !flow.queue.is_empty()
            }
            None => false,
        };
        if !is_first {
            self.scheduler.sent(link, slot, 0, waits);
        }
        if too_big {
            fx.drops.too_big += packets;
            self.tell_too_big(slot, &item, fx);
        } else {
            fx.drops.unroutable += packets;
        }
        more.into_iter().for_each(|more| fx.pool.give(more.item.buf));
        fx.pool.give(item.buf);
    }

    /// The kernel knows a smaller path MTU than the interface's: the host is told one that is sure to fit.
    fn tell_too_big(&mut self, slot: usize, item: &Item, fx: &mut Effects) {
        let flow = match self.flows.get(slot) {
            Some(flow) if flow.via == Via::Waypoint => flow,
            _ => return,
        };
        let least = if flow.tuple.source.address.is_ipv4() { 1024 } else { 1280 };
        if let Some(mut answer) = fx.pool.take() {
            match ip::too_big(item.buf.bytes(), least, flow.tuple.destination.address, answer.space()) {
                Some(length) => {
                    answer.filled(length);
                    fx.to_host.push(answer);
                }
                None => fx.pool.give(answer),
            }
        }
    }
}

/// Bytes of the packet, or of the packets together, that a flow gives next. Those behind the first may be shorter.
fn next_len(flow: &Flow, link: &Link, burst_bytes: usize) -> usize {
    let item = match flow.queue.front() {
        Some(item) => item,
        None => return 0,
    };
    match item.segments {
        Some(segments) => segments.next_len(link.piece_bytes(segments.is_ipv6())),
        None if flow.via == Via::Direct || flow.rights.copies => item.buf.len(),
        None => item.buf.len() * most_datagrams(item.buf.len(), burst_bytes).min(flow.queue.len()).max(1),
    }
}

/// Datagrams around inner packets of `len` bytes that may leave in one call.
fn most_datagrams(len: usize, burst_bytes: usize) -> usize {
    (burst_bytes / (len + HEADER_LEN)).min(MOST_BURST)
}

/// Whether a packet may leave in one call with others of `len` bytes before it. What has a number already was given to an
/// interface before.
fn can_follow(item: &Item, len: usize) -> bool {
    item.sequence.is_none() && item.segments.is_none() && item.buf.len() <= len
}
