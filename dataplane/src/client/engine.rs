//! One end of the client stack: which packet leaves over which interface. Bytes and time in, packets and messages out.
//!
//! The client has one engine, the waypoint one for each client. Both know the same interfaces by the same numbers: for
//! the client they are its own, for the waypoint the addresses that the client's datagrams come from.
//!
//! `forward` and `receive` take packets in, `placement` decides which interfaces a flow uses, `send` gives packets to
//! interfaces, `timers` does what is due; here are configuration, interfaces and the beginning and end of flows.

use super::application::Owners;
use super::config::{Config, Subject, Via};
use super::flow::{Flow, Flows, Item, Wire};
use super::link::{Link, LinkState};
use super::placement::Load;
use super::scheduler::{interfaces, Accepts, Scheduler, MOST_INTERFACES};
use super::send::More;
use super::tunnel::{Key, HEADER_LEN, MESSAGE_LEN};
use crate::edge::buffer::{Buf, Pool};
use crate::edge::receiver::Released;
use crate::ip::TCP;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::{IpAddr, SocketAddr};

/// What a flow of weight 1 may send in a turn.
const QUANTUM_BYTES: u32 = 1500;
const UDP_LEN: usize = 8;

/// What is told of.
#[derive(Clone, Debug, PartialEq)]
pub enum Notice {
    Up {
        link: u8,
    },
    Down {
        link: u8,
    },
    /// The waypoint no longer answers over an interface that is up, or answers again.
    Dead {
        link: u8,
    },
    Alive {
        link: u8,
    },
    WaypointLost,
    WaypointBack,
    Migrated {
        number: u16,
        from: Option<u8>,
        to: u8,
    },
}

/// A datagram without an inner packet.
#[derive(Clone, Copy, Debug)]
pub struct Message {
    pub link: u8,
    pub to: SocketAddr,
    pub(super) bytes: [u8; MESSAGE_LEN],
    pub(super) length: usize,
}

impl Message {
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Drops {
    /// No packet, or none that may be forwarded.
    pub malformed: u64,
    /// Datagrams with a wrong tag or of no session, packets that belong to no flow.
    pub unauthenticated: u64,
    /// Inner packets with an address that is not the client's.
    pub spoofed: u64,
    /// No interface for it.
    pub unroutable: u64,
    /// The queue was full.
    pub queue_full: u64,
    pub too_big: u64,
    /// No buffer was free.
    pub overrun: u64,
}

/// What engines want done, and the buffers that they share.
#[derive(Debug)]
pub struct Effects {
    pub pool: Pool,
    pub to_host: Vec<Buf>,
    pub messages: Vec<Message>,
    pub notices: Vec<Notice>,
    pub drops: Drops,
    pub(super) released: Released,
    /// An empty list to be used again.
    pub(super) spare: Vec<More>,
}

impl Effects {
    pub fn new(pool: Pool) -> Self {
        Effects {
            pool,
            to_host: Vec::new(),
            messages: Vec::new(),
            notices: Vec::new(),
            drops: Drops::default(),
            released: Released::default(),
            spare: Vec::new(),
        }
    }

    /// Hands on what a flow's order has let go.
    pub(super) fn take_released(&mut self) {
        self.to_host.append(&mut self.released.deliver);
        for buf in self.released.waste.drain(..) {
            self.pool.give(buf);
        }
    }
}

/// The tunnel between the two ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Session {
    pub number: u32,
    /// Of what this end sends, and of what it hears.
    pub(super) key: Key,
    pub(super) peer_key: Key,
}

impl Session {
    /// The client's end.
    pub fn of_client(number: u32, key: Key) -> Session {
        Session { number, key, peer_key: key.of_waypoint() }
    }

    /// The waypoint's end.
    pub fn of_waypoint(number: u32, key: Key) -> Session {
        Session { number, key: key.of_waypoint(), peer_key: key }
    }
}

/// When a flow's bind is to be sent, its slot, and the bind's serial. A bind that is confirmed or replaced stays until
/// then.
pub(super) type Wishes = BinaryHeap<Reverse<(u64, usize, u32)>>;

/// See the head of this module.
pub struct Engine {
    pub(super) is_waypoint: bool,
    pub config: Config,
    pub session: Option<Session>,
    pub links: Vec<Link>,
    pub flows: Flows,
    pub(super) scheduler: Scheduler,
    pub(super) serial: u32,
    pub(super) heard_serial: u32,
    /// When the other end sent the newest of its datagrams, by its own clock, and when that came.
    pub(super) newest: Option<(u32, u64)>,
    /// Flows whose packets wait for others before them, and flows with a bind that is not confirmed.
    pub(super) ordering: Vec<usize>,
    pub(super) binds_due: Wishes,
    /// What counts when a flow looks for an interface.
    pub(super) load: Load,
    pub(super) fragments: super::forward::Fragments,
    pub(super) tick_ns: u64,
    pub(super) waypoint_lost: bool,
    /// Slots whose direct binding has changed and is to be saved.
    pub changed: Vec<usize>,
    /// Needed by rules that ask for applications.
    pub owners: Option<Box<dyn Owners>>,
}

impl Engine {
    /// The client's end; it does nothing before `configure`.
    pub fn client() -> Self {
        Engine {
            is_waypoint: false,
            config: Config::default(),
            session: None,
            links: Vec::new(),
            flows: Flows::new(false),
            scheduler: Scheduler::new(MOST_INTERFACES, QUANTUM_BYTES),
            serial: 0,
            heard_serial: 0,
            newest: None,
            ordering: Vec::new(),
            binds_due: Wishes::new(),
            load: Load::default(),
            fragments: super::forward::Fragments::default(),
            tick_ns: 0,
            waypoint_lost: false,
            changed: Vec::new(),
            owners: None,
        }
    }

    /// The waypoint's end for one client.
    pub fn waypoint(
        session: Session,
        address4: Option<std::net::Ipv4Addr>,
        address6: Option<std::net::Ipv6Addr>,
    ) -> Self {
        let links = (0..MOST_INTERFACES).map(|number| Link::new(&number.to_string())).collect();
        let config = Config { address4, address6, ..Config::default() };
        Engine { is_waypoint: true, session: Some(session), links, config, flows: Flows::new(true), ..Engine::client() }
    }

    /// Goes on with other keys: the client has opened its session anew.
    pub fn renew(&mut self, session: Session, fx: &mut Effects) {
        self.session = Some(session);
        self.newest = None;
        self.heard_serial = 0;
        self.links.iter_mut().for_each(|link| link.heard_serial = 0);
        let slots: Vec<usize> = self.flows.slots().collect();
        for slot in slots {
            if let Some(flow) = self.flows.get_mut(slot) {
                flow.order.end(&mut fx.released);
                flow.bind_serial = 0;
            }
        }
        fx.take_released();
    }

    /// What the daemon wants from now on. Interfaces that stay keep their numbers; flows that stay go on, by their new
    /// rules.
    pub fn configure(&mut self, now_ns: u64, config: Config, fx: &mut Effects) {
        let numbers = self.number_links(now_ns, &config, fx);
        let session = config.waypoint.as_ref().map(|w| Session::of_client(w.session, w.key));
        let endpoint = config.waypoint.as_ref().map(|w| w.address);
        let renewed = session != self.session || self.links.iter().any(|link| link.endpoint != endpoint);
        self.config = config;
        for rule in &mut self.config.rules {
            rule.accepts = renumbered(rule.accepts, &numbers);
            rule.backup = renumbered(rule.backup, &numbers);
        }
        if renewed {
            self.links.iter_mut().for_each(|link| {
                link.endpoint = endpoint;
                link.heartbeat.reset();
            });
            self.session = session;
            if let Some(session) = session {
                self.renew(session, fx);
            }
        }
        let slots: Vec<usize> = self.flows.slots().collect();
        for slot in slots {
            if self.has_no_tunnel(slot) {
                self.orphan(now_ns, slot, fx);
            }
            self.apply_rule(now_ns, slot, fx);
        }
        self.hello_at_once(now_ns);
    }

    /// A flow of the tunnel for which there is none any more, or none for its address.
    fn has_no_tunnel(&self, slot: usize) -> bool {
        self.flows.get(slot).map_or(false, |flow| {
            let is_own = self.session.is_some() && self.own_address(flow.tuple.source.address);
            flow.via == Via::Waypoint && !is_own
        })
    }

    /// The number of each interface of a configuration.
    fn number_links(&mut self, now_ns: u64, config: &Config, fx: &mut Effects) -> Vec<usize> {
        for number in 0..self.links.len() {
            let name = &self.links[number].name;
            if !name.is_empty() && !config.interfaces.iter().any(|interface| interface.name == *name) {
                self.remove_link(now_ns, number, fx);
            }
        }
        let mut numbers = Vec::new();
        for interface in &config.interfaces {
            let known = self.links.iter().position(|link| link.name == interface.name);
            let number = known.or_else(|| self.links.iter().position(|link| link.name.is_empty()));
            let number = number.unwrap_or(self.links.len());
            if known.is_none() {
                let mut link = Link::new(&interface.name);
                link.down_ns = Some(now_ns);
                if number == self.links.len() {
                    self.links.push(link);
                } else {
                    self.links[number] = link;
                }
            }
            let link = &mut self.links[number];
            link.usable = interface.usable;
            link.dns = interface.dns.clone();
            link.set_rate(now_ns, interface.rate_mbps);
            numbers.push(number);
        }
        numbers
    }

    /// An interface is no longer to be used; another one may get its number.
    fn remove_link(&mut self, now_ns: u64, number: usize, fx: &mut Effects) {
        self.retransmit_given(now_ns, number, fx);
        let slots: Vec<usize> = self.flows.slots().collect();
        for slot in slots {
            let flow = match self.flows.get_mut(slot) {
                Some(flow) => flow,
                None => continue,
            };
            flow.pinned = flow.pinned.filter(|pinned| usize::from(*pinned) != number);
            if flow.wire.map_or(false, |wire| usize::from(wire.link) == number) {
                self.orphan(now_ns, slot, fx);
            }
        }
        self.links[number] = Link::new("");
        self.links[number].usable = false;
    }

    /// The number of an interface.
    pub fn link_number(&self, name: &str) -> Option<usize> {
        self.links.iter().position(|link| link.name == name && !name.is_empty())
    }

    /// The host says how an interface is.
    pub fn link_state(&mut self, now_ns: u64, number: usize, state: LinkState, fx: &mut Effects) {
        let link = match self.links.get_mut(number) {
            Some(link) if link.state != state => link,
            _ => return,
        };
        let was_up = std::mem::replace(&mut link.state, state).up;
        link.down_ns = if state.up { None } else { Some(link.down_ns.unwrap_or(now_ns)) };
        if was_up != state.up {
            link.heartbeat.reset();
            let link = number as u8;
            fx.notices.push(if state.up { Notice::Up { link } } else { Notice::Down { link } });
        }
        if was_up && !state.up {
            self.retransmit_given(now_ns, number, fx);
        }
        self.refresh_all(now_ns, fx);
        let slots: Vec<usize> = self.flows.slots().collect();
        slots.into_iter().for_each(|slot| self.look_after(now_ns, slot, fx));
        self.hello_at_once(now_ns);
    }

    pub(super) fn hello_at_once(&mut self, now_ns: u64) {
        self.links.iter_mut().for_each(|link| link.heartbeat.next_ns = now_ns);
    }

    /// What a dead interface may still hold goes over others.
    pub(super) fn retransmit_given(&mut self, now_ns: u64, number: usize, fx: &mut Effects) {
        let mut spent = Vec::new();
        let again = self.links[number].take_given(now_ns, &mut spent);
        spent.extend(self.links[number].first.drain(..).map(|(_, item)| item));
        for (slot, item) in again.into_iter().rev() {
            match self.flows.get_mut(slot).filter(|flow| flow.via == Via::Waypoint && !flow.rights.copies) {
                Some(flow) => {
                    flow.queue.push_front(item);
                    self.links[number].counters.resent_packets += 1;
                    self.scheduler.arrived(slot);
                }
                None => spent.push(item),
            }
        }
        spent.into_iter().for_each(|item| fx.pool.give(item.buf));
    }

    pub(super) fn refresh_all(&mut self, now_ns: u64, fx: &mut Effects) {
        let slots: Vec<usize> = self.flows.slots().collect();
        for slot in slots {
            self.refresh(now_ns, slot, fx);
        }
    }

    /// Goes on with a direct flow of a process before this one. False if its interface is not as it was.
    pub fn restore(
        &mut self,
        now_ns: u64,
        tuple: crate::ip::Tuple,
        link: &str,
        wire: crate::ip::Tuple,
        fx: &mut Effects,
    ) -> bool {
        let number = match self.link_number(link) {
            Some(number)
                if self.links[number].state.address(wire.source.address.is_ipv4()) == Some(wire.source.address) =>
            {
                number as u8
            }
            _ => return false,
        };
        if self.flows.of_tuple(&tuple).is_some() || self.flows.of_wire(number, wire).is_some() {
            return false;
        }
        let slot = match self.create(now_ns, tuple, 0, Some(Via::Direct), fx) {
            Some(slot) => slot,
            None => return false,
        };
        let bound = self.flows.rebind(slot, Wire { link: number, tuple: wire });
        self.refresh(now_ns, slot, fx);
        bound
    }

    /// A new flow that this host begins, or that the other end has begun with `number`.
    pub(super) fn create(
        &mut self,
        now_ns: u64,
        tuple: crate::ip::Tuple,
        dscp: u8,
        via: Option<Via>,
        fx: &mut Effects,
    ) -> Option<usize> {
        let number = self.flows.free_number(now_ns)?;
        self.create_numbered(now_ns, number, tuple, dscp, via, fx)
    }

    pub(super) fn create_numbered(
        &mut self,
        now_ns: u64,
        number: u16,
        tuple: crate::ip::Tuple,
        dscp: u8,
        via: Option<Via>,
        fx: &mut Effects,
    ) -> Option<usize> {
        if self.flows.len() >= super::flow::MOST_FLOWS {
            for silent in self.flows.longest_silent() {
                self.forget(now_ns, silent, fx);
            }
        }
        let cgroup = self.cgroup_of(&tuple);
        let subject = Subject {
            protocol: tuple.protocol,
            source: (tuple.source.address, tuple.source.port),
            destination: (tuple.destination.address, tuple.destination.port),
            dscp,
            cgroup: cgroup.as_deref(),
        };
        let (rule, rights, by_rule) = self.rights_of(&subject);
        // The waypoint forwards nothing that does not come from the address it gave.
        let is_own = self.is_waypoint || self.own_address(tuple.source.address);
        let given = if is_own { via.unwrap_or(by_rule) } else { Via::Direct };
        let via = if by_rule == Via::Waypoint && via.is_none() { self.way_of_new(rule, given)? } else { given };
        let mut flow = Flow::new(now_ns, number, tuple, rule, rights, via);
        flow.dscp = dscp;
        flow.cgroup = cgroup;
        let slot = self.flows.insert(flow);
        self.refresh(now_ns, slot, fx);
        self.bind_if_special(now_ns, slot);
        Some(slot)
    }

    /// The control group of a flow's socket, if any rule asks for it.
    pub(super) fn cgroup_of(&mut self, tuple: &crate::ip::Tuple) -> Option<Box<str>> {
        self.config.first_of_application()?;
        self.owners.as_mut()?.cgroup_of(tuple)
    }

    pub(super) fn own_address(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(v4) => self.config.address4 == Some(v4),
            IpAddr::V6(v6) => self.config.address6 == Some(v6),
        }
    }

    /// A flow ends; its packets with it.
    pub(super) fn forget(&mut self, now_ns: u64, slot: usize, fx: &mut Effects) {
        // Another flow may get the slot.
        let mut spent = Vec::new();
        self.links.iter_mut().for_each(|link| link.take_of(slot, &mut spent));
        spent.into_iter().for_each(|item| fx.pool.give(item.buf));
        self.scheduler.emptied(slot);
        if let Some(mut flow) = self.flows.remove(now_ns, slot) {
            flow.queue.drain(..).for_each(|item: Item| fx.pool.give(item.buf));
            flow.order.end(&mut fx.released);
            if flow.wire.is_some() {
                self.changed.push(slot);
            }
        }
        fx.take_released();
    }

    /// How long everything is that grows with use, by name.
    #[cfg(test)]
    pub fn sizes(&self) -> Vec<(&'static str, usize)> {
        let mut sizes = self.flows.sizes();
        sizes.extend([
            ("links", self.links.len()),
            ("first of links", self.links.iter().map(|link| link.first.len()).sum()),
            ("flows in order", self.ordering.len()),
            ("binds due", self.binds_due.len()),
            ("changed flows", self.changed.len()),
            ("fragments", self.fragments.known()),
        ]);
        sizes
    }

    /// Gives back all buffers.
    pub fn end(&mut self, now_ns: u64, fx: &mut Effects) {
        let slots: Vec<usize> = self.flows.slots().collect();
        slots.into_iter().for_each(|slot| self.forget(now_ns, slot, fx));
        for link in &mut self.links {
            let mut spent = Vec::new();
            let given = link.take_given(now_ns, &mut spent);
            spent.extend(given.into_iter().map(|(_, item)| item));
            spent.extend(link.first.drain(..).map(|(_, item)| item));
            spent.into_iter().for_each(|item| fx.pool.give(item.buf));
        }
    }

    /// Bytes that the tunnel adds to an inner packet.
    pub(super) fn overhead(&self) -> usize {
        let is_ipv4 = self.links.iter().find_map(|link| link.endpoint).map_or(true, |to| to.is_ipv4());
        HEADER_LEN + UDP_LEN + if is_ipv4 { 20 } else { 40 }
    }

    /// The longest packet of a flow that all its interfaces take, in bytes.
    pub(super) fn mtu(&self, flow: &Flow) -> usize {
        let set = match flow.wire {
            Some(wire) => 1 << wire.link,
            None => flow.rights.wanted | flow.rights.backup,
        };
        let links = interfaces(set).filter_map(|number| self.links.get(number)).filter(|link| link.state.mtu > 0);
        let least = links.map(|link| link.state.mtu as usize).min().unwrap_or(1500);
        match flow.via {
            Via::Direct => least,
            Via::Waypoint => least.saturating_sub(self.overhead()),
        }
    }
}

fn renumbered(set: Accepts, numbers: &[usize]) -> Accepts {
    interfaces(set).filter_map(|at| numbers.get(at)).fold(0, |out, number| out | 1 << number)
}

pub(super) fn subject(flow: &Flow) -> Subject<'_> {
    Subject {
        protocol: flow.tuple.protocol,
        source: (flow.tuple.source.address, flow.tuple.source.port),
        destination: (flow.tuple.destination.address, flow.tuple.destination.port),
        dscp: flow.dscp,
        cgroup: flow.cgroup.as_deref(),
    }
}

/// Whether an interface that does not carry is worth waiting for: a TCP connection cannot change its address.
pub(super) fn is_connection(flow: &Flow) -> bool {
    flow.tuple.protocol == TCP && flow.counters.received_packets > 0
}

#[cfg(test)]
#[path = "engine_tests.rs"]
mod tests;
