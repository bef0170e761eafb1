//! The flows of one end of the client stack, and how packets find theirs.

use super::codel::Codel;
use super::config::Via;
use super::order::Order;
use super::scheduler::Accepts;
use crate::edge::buffer::Buf;
use crate::ip::{Endpoint, Segments, Tuple, FIN, ICMP, ICMPV6, RST, SYN, TCP, UDP};
use std::collections::vec_deque::Drain;
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

const S: u64 = 1_000_000_000;
/// At most so many flows at a time; the longest silent one makes room.
pub const MOST_FLOWS: usize = 16_384;
/// Of more flows to one destination all further ones are alike.
pub const MOST_ORDINALS: usize = 8;
/// Ports that the host's own connections do not use: the kernel is told to answer nothing that comes to them.
pub const FIRST_PORT: u16 = 20_000;
pub const LAST_PORT: u16 = 32_767;
/// Numbers of flows that the client begins are below, those that the waypoint begins from here on.
const FIRST_OF_WAYPOINT: u16 = 1 << 15;
/// An empty queue keeps room for so many.
const USUAL_PACKETS: usize = 32;
/// A flow's number is not given out again before what is on its way has arrived.
const REST_NS: u64 = 10 * S;

/// A packet that waits.
#[derive(Debug)]
pub struct Item {
    pub buf: Buf,
    pub queued_ns: u64,
    /// Of a packet that was given to an interface before, or to another one, too.
    pub sequence: Option<u32>,
    /// Set if it stands for several packets; only of direct flows.
    pub segments: Option<Segments>,
}

impl Item {
    pub fn new(buf: Buf, queued_ns: u64) -> Item {
        Item { buf, queued_ns, sequence: None, segments: None }
    }

    /// Packets that it stands for.
    pub fn packets(&self) -> usize {
        self.segments.map_or(1, |segments| segments.left())
    }
}

/// The packets of a flow that wait.
#[derive(Debug, Default)]
pub struct Queue {
    items: VecDeque<Item>,
    packets: usize,
}

impl Queue {
    /// Packets; an item that stands for several counts as several.
    pub fn len(&self) -> usize {
        self.packets
    }

    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub fn front(&self) -> Option<&Item> {
        self.items.front()
    }

    pub fn push_back(&mut self, item: Item) {
        self.packets += item.packets();
        self.items.push_back(item);
    }

    pub fn push_front(&mut self, item: Item) {
        self.packets += item.packets();
        self.items.push_front(item);
    }

    /// Gives back the memory that a long queue took.
    pub fn relax(&mut self) {
        if self.items.is_empty() && self.items.capacity() > USUAL_PACKETS {
            self.items = VecDeque::new();
        }
    }

    pub fn pop_front(&mut self) -> Option<Item> {
        let item = self.items.pop_front()?;
        self.packets -= item.packets();
        Some(item)
    }

    pub fn drain(&mut self, all: std::ops::RangeFull) -> Drain<'_, Item> {
        self.packets = 0;
        self.items.drain(all)
    }
}

/// How a direct flow looks on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wire {
    pub link: u8,
    /// Source: the interface's address and a port of ours.
    pub tuple: Tuple,
}

#[derive(Clone, Debug, Default)]
pub struct Counters {
    pub sent_bytes: u64,
    pub sent_packets: u64,
    pub received_bytes: u64,
    pub received_packets: u64,
    pub dropped_packets: u64,
    pub migrations: u64,
}

/// What a flow may do; from its rule, or from the client's `Bind`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rights {
    pub weight: f64,
    pub urgent: bool,
    pub spread: bool,
    pub copies: bool,
    pub wanted: Accepts,
    pub backup: Accepts,
}

/// A bind that is sent when the flow's next packet has left.
pub const AT_NEXT_PACKET: u64 = u64::MAX;
/// So many flows make room at a time.
const ROOM: usize = 64;

/// The last bind that the waypoint was sent and has not yet confirmed.
#[derive(Clone, Copy, Debug)]
pub struct Unconfirmed {
    pub serial: u32,
    pub again_ns: u64,
    pub tries: u32,
}

#[derive(Debug)]
pub struct Flow {
    pub number: u16,
    /// Source is this end's host.
    pub tuple: Tuple,
    /// How many others went to the same destination when it began, at most `MOST_ORDINALS - 1`.
    pub ordinal: usize,
    pub rule: usize,
    /// Of its first packet.
    pub dscp: u8,
    /// The control group of its socket, if a rule asks for it.
    pub cgroup: Option<Box<str>>,
    pub rights: Rights,
    pub via: Via,
    /// The user's choice of interface.
    pub pinned: Option<u8>,
    /// The interface in use; of a spread flow none in particular.
    pub home: Option<u8>,
    /// In force at the scheduler, with weight and urgency.
    pub accepts: Accepts,
    pub scheduled: Option<(f64, bool)>,
    pub wire: Option<Wire>,
    /// A direct flow whose interface has lost its address: it cannot go on.
    pub dead: bool,
    pub queue: Queue,
    pub codel: Codel,
    pub next_sequence: u32,
    pub order: Order,
    pub unconfirmed: Option<Unconfirmed>,
    pub bind_serial: u32,
    /// FIN of this side and of the other, RST of either.
    fins: u8,
    pub begun_ns: u64,
    pub used_ns: u64,
    pub counters: Counters,
}

impl Flow {
    pub fn new(now_ns: u64, number: u16, tuple: Tuple, rule: usize, rights: Rights, via: Via) -> Self {
        Flow {
            number,
            tuple,
            ordinal: 0,
            rule,
            dscp: 0,
            cgroup: None,
            rights,
            via,
            pinned: None,
            home: None,
            accepts: 0,
            scheduled: None,
            wire: None,
            dead: false,
            queue: Queue::default(),
            codel: Codel::default(),
            // Ahead of what a program before this one has sent under the same number.
            next_sequence: (now_ns / 1000) as u32,
            order: Order::default(),
            unconfirmed: None,
            bind_serial: 0,
            fins: 0,
            begun_ns: now_ns,
            used_ns: now_ns,
            counters: Counters::default(),
        }
    }

    /// Whether the other end may know of it.
    pub fn has_begun(&self) -> bool {
        self.counters.sent_packets > 0
    }

    /// Notes a packet's TCP flags; `ours` is the direction.
    pub fn note_flags(&mut self, flags: u8, ours: bool) {
        if flags & RST != 0 {
            self.fins = 3;
        } else if flags & FIN != 0 {
            self.fins |= if ours { 1 } else { 2 };
        } else if flags & SYN != 0 {
            self.fins = 0;
        }
    }

    /// How long it may be silent before it is forgotten (RFC 4787, RFC 5382, RFC 5508).
    pub fn patience_ns(&self) -> u64 {
        match self.tuple.protocol {
            TCP if self.fins == 3 || self.dead => 10 * S,
            TCP if self.counters.received_packets == 0 => 120 * S,
            TCP => 7_440 * S,
            UDP if self.counters.received_packets == 0 => 60 * S,
            ICMP | ICMPV6 => 60 * S,
            _ => 300 * S,
        }
    }
}

/// See the head of this module. Flows are in slots, which are the scheduler's numbers of flows.
#[derive(Default)]
pub struct Flows {
    slots: Vec<Option<Box<Flow>>>,
    free: Vec<usize>,
    count: usize,
    by_tuple: HashMap<Tuple, usize>,
    by_wire: HashMap<(u8, Tuple), usize>,
    by_number: HashMap<u16, usize>,
    to_destination: HashMap<(u8, Endpoint), u32>,
    resting: VecDeque<(u64, u16)>,
    next_number: u16,
    next_port: u16,
    is_waypoint: bool,
}

impl Flows {
    pub fn new(is_waypoint: bool) -> Self {
        Flows { is_waypoint, next_port: FIRST_PORT, ..Flows::default() }
    }

    pub fn len(&self) -> usize {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub fn get(&self, slot: usize) -> Option<&Flow> {
        self.slots.get(slot)?.as_deref()
    }

    pub fn get_mut(&mut self, slot: usize) -> Option<&mut Flow> {
        self.slots.get_mut(slot)?.as_deref_mut()
    }

    /// The slots in use.
    pub fn slots(&self) -> impl Iterator<Item = usize> + '_ {
        self.slots.iter().enumerate().filter(|(_, flow)| flow.is_some()).map(|(slot, _)| slot)
    }

    pub fn of_tuple(&self, tuple: &Tuple) -> Option<usize> {
        self.by_tuple.get(tuple).copied()
    }

    /// The direct flow that looks so on an interface's wire; `tuple` is in the direction of what we send.
    pub fn of_wire(&self, link: u8, tuple: Tuple) -> Option<usize> {
        self.by_wire.get(&(link, tuple)).copied()
    }

    pub fn of_number(&self, number: u16) -> Option<usize> {
        self.by_number.get(&number).copied()
    }

    /// Whether a number is one of those that this end gives out.
    pub fn is_own(&self, number: u16) -> bool {
        (number >= FIRST_OF_WAYPOINT) == self.is_waypoint
    }

    /// A number that nobody uses; None if all are in use.
    pub fn free_number(&mut self, now_ns: u64) -> Option<u16> {
        // The other end may have told of a number that rests, or that was not given out yet.
        loop {
            let number = self.next_free_number(now_ns)?;
            if !self.by_number.contains_key(&number) {
                return Some(number);
            }
        }
    }

    fn next_free_number(&mut self, now_ns: u64) -> Option<u16> {
        let has_rested = |(since_ns, _): &(u64, u16)| now_ns.saturating_sub(*since_ns) > REST_NS;
        let base = if self.is_waypoint { FIRST_OF_WAYPOINT } else { 0 };
        if self.resting.front().map_or(false, has_rested) || self.next_number + 1 >= FIRST_OF_WAYPOINT {
            return self.resting.pop_front().map(|(_, number)| number);
        }
        self.next_number += 1;
        Some(base + self.next_number)
    }

    /// The other end knows a number of ours that we do not: it is in use.
    pub fn claim(&mut self, number: u16) {
        self.resting.retain(|(_, resting)| *resting != number);
    }

    /// Adds a flow; one with the same tuple or number goes out of the tables that it is in.
    pub fn insert(&mut self, mut flow: Flow) -> usize {
        let alike = self.to_destination.entry((flow.tuple.protocol, flow.tuple.destination)).or_default();
        flow.ordinal = (*alike as usize).min(MOST_ORDINALS - 1);
        *alike += 1;
        let slot = self.free.pop().unwrap_or(self.slots.len());
        if slot == self.slots.len() {
            self.slots.push(None);
        }
        self.by_tuple.insert(flow.tuple, slot);
        self.by_number.insert(flow.number, slot);
        self.slots[slot] = Some(Box::new(flow));
        self.count += 1;
        slot
    }

    /// Binds a direct flow to an interface: the address it has there, and a port that nothing else there uses. False if
    /// there is none.
    pub fn bind(&mut self, slot: usize, link: u8, local: IpAddr, remote: Endpoint) -> bool {
        let tuple = match self.get(slot) {
            Some(flow) => flow.tuple,
            None => return false,
        };
        let ports = u32::from(LAST_PORT - FIRST_PORT) + 1;
        // Other protocols have nothing to tell two flows to the same host apart.
        let has_port = matches!(tuple.protocol, TCP | UDP | ICMP | ICMPV6);
        for _ in 0..if has_port { ports } else { 1 } {
            let port = if has_port { self.next_port } else { 0 };
            self.next_port = if self.next_port >= LAST_PORT { FIRST_PORT } else { self.next_port + 1 };
            let source = Endpoint { address: local, port };
            let wire = Wire { link, tuple: Tuple { source, destination: remote, ..tuple } };
            if !self.by_wire.contains_key(&(link, wire.tuple)) {
                return self.rebind(slot, wire);
            }
        }
        false
    }

    /// Binds a flow as it was bound before.
    pub fn rebind(&mut self, slot: usize, wire: Wire) -> bool {
        match self.slots.get_mut(slot) {
            Some(Some(flow)) => flow.wire = Some(wire),
            _ => return false,
        }
        self.by_wire.insert((wire.link, wire.tuple), slot);
        true
    }

    /// Takes a flow out.
    pub fn remove(&mut self, now_ns: u64, slot: usize) -> Option<Box<Flow>> {
        let flow = self.slots.get_mut(slot)?.take()?;
        self.count -= 1;
        self.free.push(slot);
        let destination = (flow.tuple.protocol, flow.tuple.destination);
        if let Some(alike) = self.to_destination.get_mut(&destination) {
            *alike -= 1;
            if *alike == 0 {
                self.to_destination.remove(&destination);
            }
        }
        if self.by_tuple.get(&flow.tuple) == Some(&slot) {
            self.by_tuple.remove(&flow.tuple);
        }
        if self.by_number.get(&flow.number) == Some(&slot) {
            self.by_number.remove(&flow.number);
            if self.is_own(flow.number) {
                self.resting.push_back((now_ns, flow.number));
            }
        }
        if let Some(wire) = flow.wire {
            self.by_wire.remove(&(wire.link, wire.tuple));
        }
        Some(flow)
    }

    /// How long everything is that grows with use, by name; `resting` apart, numbers that are free again.
    #[cfg(test)]
    pub fn sizes(&self) -> Vec<(&'static str, usize)> {
        let room = |flow: &Flow| flow.queue.items.capacity();
        vec![
            ("slots", self.slots.len()),
            ("free slots", self.free.len()),
            ("by tuple", self.by_tuple.len()),
            ("by wire", self.by_wire.len()),
            ("by number", self.by_number.len()),
            ("to destination", self.to_destination.len()),
            ("resting numbers", self.resting.len()),
            ("room in queues", self.slots.iter().flatten().map(|flow| room(flow)).sum()),
            ("packets held", self.slots.iter().flatten().map(|flow| flow.order.held()).sum()),
        ]
    }

    /// Gives back the memory that long queues took.
    pub fn relax(&mut self) {
        self.slots.iter_mut().flatten().for_each(|flow| flow.queue.relax());
    }

    /// Flows that have been silent for longer than they may, and the longest silent one if there are too many.
    pub fn expired(&self, now_ns: u64) -> Vec<usize> {
        let silent = |slot: &usize| {
            let flow = self.get(*slot);
            flow.map_or(false, |flow| now_ns.saturating_sub(flow.used_ns) > flow.patience_ns() && flow.queue.is_empty())
        };
        self.slots().filter(silent).collect()
    }

    /// The flows that have been silent for longest; first those that were never answered.
    pub fn longest_silent(&self) -> Vec<usize> {
        let key = |slot: usize| self.get(slot).map(|flow| (flow.counters.received_packets > 0, flow.used_ns, slot));
        let mut all: Vec<(bool, u64, usize)> = self.slots().filter_map(key).collect();
        if all.len() > ROOM {
            all.select_nth_unstable(ROOM);
            all.truncate(ROOM);
        }
        all.into_iter().map(|(_, _, slot)| slot).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(text: &str) -> Endpoint {
        let address: std::net::SocketAddr = text.parse().unwrap();
        Endpoint { address: address.ip(), port: address.port() }
    }

    fn tuple(source: &str, destination: &str) -> Tuple {
        Tuple { protocol: TCP, source: endpoint(source), destination: endpoint(destination) }
    }

    const RIGHTS: Rights = Rights { weight: 1.0, urgent: false, spread: false, copies: false, wanted: 1, backup: 0 };

    fn add(flows: &mut Flows, now_ns: u64, source: &str) -> usize {
        let number = flows.free_number(now_ns).unwrap();
        flows.insert(Flow::new(now_ns, number, tuple(source, "192.0.2.9:443"), 0, RIGHTS, Via::Direct))
    }

    #[test]
    fn flows_to_one_server_get_ports_of_their_own() {
        let (mut flows, local) = (Flows::new(false), "198.51.100.4".parse().unwrap());
        let mut ports = std::collections::HashSet::new();
        let all = usize::from(LAST_PORT - FIRST_PORT) + 1;
        for k in 0..all {
            let slot = add(&mut flows, 0, &format!("10.171.0.2:{}", 1000 + k));
            assert!(flows.bind(slot, 3, local, endpoint("192.0.2.9:443")));
            let wire = flows.get(slot).unwrap().wire.unwrap();
            assert_eq!(flows.of_wire(3, wire.tuple), Some(slot));
            ports.insert(wire.tuple.source.port);
        }
        assert_eq!(ports.len(), all);
        let slot = add(&mut flows, 0, "10.171.0.2:900");
        assert!(!flows.bind(slot, 3, local, endpoint("192.0.2.9:443")));
        assert!(flows.bind(slot, 3, local, endpoint("192.0.2.9:80")));
        assert!(flows.bind(slot, 2, local, endpoint("192.0.2.9:443")));
    }

    #[test]
    fn a_flow_that_is_removed_leaves_nothing_and_its_number_rests() {
        let mut flows = Flows::new(false);
        let first = add(&mut flows, 0, "10.171.0.2:1");
        assert!(flows.bind(first, 0, "198.51.100.4".parse().unwrap(), endpoint("192.0.2.9:443")));
        let (number, wire) = (flows.get(first).unwrap().number, flows.get(first).unwrap().wire.unwrap());
        flows.remove(5, first).unwrap();
        assert!(flows.remove(5, first).is_none() && flows.is_empty());
        assert_eq!((flows.of_wire(0, wire.tuple), flows.of_number(number)), (None, None));
        assert_eq!(flows.of_tuple(&tuple("10.171.0.2:1", "192.0.2.9:443")), None);
        let second = add(&mut flows, 6, "10.171.0.2:1");
        assert_ne!(flows.get(second).unwrap().number, number);
        assert_eq!(flows.free_number(5 + REST_NS + 1), Some(number));
    }

    #[test]
    fn the_two_ends_never_give_out_the_same_number() {
        let (mut client, mut waypoint) = (Flows::new(false), Flows::new(true));
        for _ in 0..40_000 {
            let of_client =
                client.free_number(0).map_or(true, |number| client.is_own(number) && !waypoint.is_own(number));
            let of_waypoint = waypoint.free_number(0).map_or(true, |number| waypoint.is_own(number));
            assert!(of_client && of_waypoint);
        }
        assert_eq!(client.free_number(0), None);
    }

    #[test]
    fn silent_flows_expire_by_what_they_were() {
        let mut flows = Flows::new(false);
        let (new, open, closed) =
            (add(&mut flows, 0, "10.0.0.1:1"), add(&mut flows, 0, "10.0.0.1:2"), add(&mut flows, 0, "10.0.0.1:3"));
        for slot in [open, closed] {
            flows.get_mut(slot).unwrap().counters.received_packets = 1;
        }
        flows.get_mut(closed).unwrap().note_flags(FIN, true);
        flows.get_mut(closed).unwrap().note_flags(FIN, false);
        assert_eq!(flows.expired(11 * S), [closed]);
        assert_eq!(flows.expired(121 * S), [new, closed]);
        assert_eq!(flows.expired(7_441 * S).len(), 3);
    }
}
