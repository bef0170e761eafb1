//! One end of the client stack: which packet leaves over which interface. Bytes and time in, packets and messages out.
//!
//! The client has one engine, the waypoint one for each client. Both know the same interfaces by the same numbers: for
//! the client they are its own, for the waypoint the addresses that the client's datagrams come from.
//!
//! `forward` takes packets in, `send` gives them to interfaces, `timers` does what is due; here is what decides which
//! interfaces a flow uses.

use super::config::{Config, Spread, Subject, Via};
use super::flow::{Flow, Flows, Item, Rights, Unconfirmed, Wire};
use super::link::{Link, LinkState};
use super::scheduler::{interfaces, Accepts, Scheduler, MOST_INTERFACES};
use super::tunnel::{self, Bind, Body, Key, HEADER_LEN, MESSAGE_LEN};
use crate::edge::buffer::{Buf, Pool};
use crate::edge::frame::{Kind, Shim};
use crate::edge::receiver::Released;
use crate::ip::{Endpoint, TCP};
use std::net::{IpAddr, SocketAddr};

/// What a flow of weight 1 may send in a turn.
const QUANTUM_BYTES: u32 = 1500;
const UDP_LEN: usize = 8;
/// An interface of which nothing is known is taken to be as fast as this.
const UNKNOWN_MBPS: f64 = 10.0;
/// A flow that was used so lately counts when another one looks for an interface.
const ACTIVE_NS: u64 = 1_000_000_000;

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
    bytes: [u8; MESSAGE_LEN],
    length: usize,
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
    pub key: Key,
}

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
    /// Flows whose packets wait for others before them, and flows with a wish that is not confirmed.
    pub(super) ordering: Vec<usize>,
    pub(super) wishing: Vec<usize>,
    pub(super) fragments: super::forward::Fragments,
    pub(super) tick_ns: u64,
    pub(super) waypoint_lost: bool,
    /// Slots whose direct binding has changed and is to be saved.
    pub changed: Vec<usize>,
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
            ordering: Vec::new(),
            wishing: Vec::new(),
            fragments: super::forward::Fragments::default(),
            tick_ns: 0,
            waypoint_lost: false,
            changed: Vec::new(),
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
        let numbers = self.number_links(now_ns, &config);
        let session = config.waypoint.as_ref().map(|w| Session { number: w.session, key: w.key });
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
            self.rule_anew(now_ns, slot, fx);
        }
        self.hello_at_once(now_ns);
    }

    /// The number of each interface of a configuration.
    fn number_links(&mut self, now_ns: u64, config: &Config) -> Vec<usize> {
        for link in &mut self.links {
            if !config.interfaces.iter().any(|interface| interface.name == link.name) {
                *link = Link::new("");
                link.usable = false;
            }
        }
        let mut numbers = Vec::new();
        for interface in &config.interfaces {
            let known = self.links.iter().position(|link| link.name == interface.name);
            let number = known.or_else(|| self.links.iter().position(|link| link.name.is_empty()));
            let number = number.unwrap_or(self.links.len());
            if known.is_none() {
                let link = Link::new(&interface.name);
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
            self.give_again(now_ns, number, fx);
        }
        self.refresh_all(now_ns, fx);
        self.hello_at_once(now_ns);
    }

    pub(super) fn hello_at_once(&mut self, now_ns: u64) {
        self.links.iter_mut().for_each(|link| link.heartbeat.next_ns = now_ns);
    }

    /// What a dead interface may still hold goes over others.
    pub(super) fn give_again(&mut self, now_ns: u64, number: usize, fx: &mut Effects) {
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

    /// The interfaces that carry packets of a flow now.
    pub(super) fn open(&self, via: Via, is_ipv4: bool) -> Accepts {
        let carries = |number: &usize| self.links[*number].carries(via, is_ipv4);
        (0..self.links.len()).filter(carries).fold(0, |set, number| set | 1 << number)
    }

    /// Those of the open interfaces that a flow is to use.
    pub(super) fn base(&self, flow: &Flow) -> Accepts {
        let open = self.open(flow.via, flow.tuple.source.address.is_ipv4());
        let pinned = flow.pinned.map_or(0, |link| 1 << link);
        let choices = [pinned, flow.rights.wanted, flow.rights.backup];
        choices.iter().map(|choice| choice & open).find(|choice| *choice != 0).unwrap_or(0)
    }

    fn rule_anew(&mut self, now_ns: u64, slot: usize, fx: &mut Effects) {
        let flow = match self.flows.get(slot) {
            Some(flow) => flow,
            None => return,
        };
        let (rule, rights, _) = self.rights_of(&subject(flow, 0));
        if let Some(flow) = self.flows.get_mut(slot) {
            flow.rule = rule;
            // Rules that make an interface a backup count more than an older order to migrate to it.
            let allowed = rights.wanted | (rights.backup & flow.rights.backup);
            flow.rights = rights;
            let known = flow.pinned.map_or(false, |link| allowed >> link & 1 == 1);
            flow.pinned = flow.pinned.filter(|_| known);
        }
        self.refresh(now_ns, slot, fx);
        self.wish_if_special(now_ns, slot);
    }

    /// Rule and rights of a new flow.
    pub(super) fn rights_of(&self, subject: &Subject) -> (usize, Rights, Via) {
        let number = self.config.rule_of(subject).unwrap_or(0);
        let all = Rights { weight: 1.0, urgent: false, spread: false, copies: false, wanted: !0, backup: 0 };
        match self.config.rules.get(number) {
            None => (0, all, Via::Waypoint),
            Some(rule) => {
                let rights = Rights {
                    weight: rule.weight,
                    urgent: rule.urgent,
                    spread: rule.spread == Spread::Packet,
                    copies: rule.copies,
                    wanted: rule.accepts,
                    backup: rule.backup,
                };
                (number, rights, rule.via)
            }
        }
    }

    /// Brings what the scheduler knows of a flow up to date, and moves the flow if its interface no longer carries it.
    pub(super) fn refresh(&mut self, now_ns: u64, slot: usize, fx: &mut Effects) {
        let flow = match self.flows.get(slot) {
            Some(flow) => flow,
            None => return,
        };
        let base = self.base(flow);
        let (rights, home, wire) = (flow.rights, flow.home, flow.wire);
        let accepts = match (flow.via, wire) {
            (Via::Direct, None) => 0,
            (Via::Direct, Some(wire)) => 1 << wire.link & self.open(Via::Direct, wire.tuple.source.address.is_ipv4()),
            (Via::Waypoint, _) if rights.spread || rights.copies => base,
            (Via::Waypoint, _) => match home.filter(|home| base >> home & 1 == 1) {
                Some(home) => 1 << home,
                None => match self.choose(now_ns, base, rights.weight, slot) {
                    Some(link) => {
                        self.move_home(now_ns, slot, link, fx);
                        1 << link
                    }
                    None => 0,
                },
            },
        };
        self.accept(now_ns, slot, accepts, fx);
    }

    fn accept(&mut self, now_ns: u64, slot: usize, accepts: Accepts, fx: &mut Effects) {
        let before = match self.flows.get(slot) {
            Some(flow) if flow.rights.spread || flow.rights.copies => flow.accepts,
            _ => accepts,
        };
        if before != 0 && accepts != 0 && before != accepts {
            self.say_used(now_ns, slot, before & !accepts, accepts & !before, fx);
            self.wish_if_special(now_ns, slot);
        }
        if let Some(flow) = self.flows.get_mut(slot) {
            let rights = Some((flow.rights.weight, flow.rights.urgent));
            if flow.accepts == accepts && flow.scheduled == rights {
                return;
            }
            flow.accepts = accepts;
            flow.scheduled = rights;
            self.scheduler.add(slot, flow.rights.weight, accepts, flow.rights.urgent);
            if !flow.queue.is_empty() {
                self.scheduler.arrived(slot);
            }
        }
    }

    /// The interface on which a flow of such a weight would get most.
    pub(super) fn choose(&self, now_ns: u64, among: Accepts, weight: f64, except: usize) -> Option<u8> {
        let mut load = [0.0; MOST_INTERFACES];
        if among.count_ones() > 1 {
            for flow in self.flows.slots().filter(|slot| *slot != except).filter_map(|slot| self.flows.get(slot)) {
                let home = flow.home.or(flow.wire.map(|wire| wire.link));
                if let Some(home) = home.filter(|_| now_ns.saturating_sub(flow.used_ns) < ACTIVE_NS) {
                    load[usize::from(home)] += flow.rights.weight;
                }
            }
        }
        let rate = |number: usize| self.links[number].known_rate_mbps();
        let known: Vec<f64> = interfaces(among).filter_map(rate).collect();
        let usual = if known.is_empty() { UNKNOWN_MBPS } else { known.iter().sum::<f64>() / known.len() as f64 };
        let level = |number: usize| rate(number).unwrap_or(usual) / (load[number] + weight);
        let best = interfaces(among).fold(None, |best: Option<(usize, f64)>, number| match best {
            Some((_, most)) if most >= level(number) => best,
            _ => Some((number, level(number))),
        });
        best.map(|(number, _)| number as u8)
    }

    /// A tunnel flow uses another interface from now on.
    pub(super) fn move_home(&mut self, now_ns: u64, slot: usize, to: u8, fx: &mut Effects) {
        let flow = match self.flows.get_mut(slot) {
            Some(flow) => flow,
            None => return,
        };
        let (from, number) = (flow.home.replace(to), flow.number);
        if from.is_none() {
            return;
        }
        flow.counters.migrations += 1;
        fx.notices.push(Notice::Migrated { number, from, to });
        if let Some(from) = from {
            self.say_used(now_ns, slot, 1 << from, 1 << to, fx);
        }
        self.wish(now_ns, slot);
    }

    /// Tells the other end which interfaces a flow has left, and which it uses from now on. It waits for nothing more on
    /// those that were left; of one that carries nothing any more it hears on another, on which what that one was given
    /// last comes again.
    fn say_used(&mut self, now_ns: u64, slot: usize, left: Accepts, joined: Accepts, fx: &mut Effects) {
        let (flow, open) = match self.flows.get(slot) {
            Some(flow) if flow.next_sequence > 1 => (flow, self.open(Via::Waypoint, true)),
            _ => return,
        };
        let others = (flow.accepts & !left | joined) & open;
        let over = |link: usize, set: Accepts| if open >> link & 1 == 1 { Some(link) } else { interfaces(set).next() };
        for link in interfaces(left) {
            if let Some(over) = over(link, others) {
                self.say(now_ns, slot, Kind::Pause, link as u8, over as u8, fx);
            }
        }
        for link in interfaces(joined) {
            if let Some(over) = interfaces(left & open).next() {
                self.say(now_ns, slot, Kind::Resume, link as u8, over as u8, fx);
            }
        }
    }

    /// Says something about a flow's order: `path` is the interface that it is about, `over` the one to say it on.
    pub(super) fn say(&mut self, now_ns: u64, slot: usize, kind: Kind, path: u8, over: u8, fx: &mut Effects) {
        let (flow, session) = match (self.flows.get(slot), self.session) {
            (Some(flow), Some(session)) => (flow, session),
            _ => return,
        };
        let link = &self.links[usize::from(over)];
        let to = match link.endpoint.filter(|_| link.carries(Via::Waypoint, true)) {
            Some(to) => to,
            None => return,
        };
        let sent_us = (now_ns / 1000) as u32;
        let shim = Shim { kind, path, flow: flow.number, sequence: flow.next_sequence, sent_us };
        let mut bytes = [0; MESSAGE_LEN];
        bytes[..HEADER_LEN].copy_from_slice(&tunnel::header(&shim, session.number, session.key, &[]));
        fx.messages.push(Message { link: over, to, bytes, length: HEADER_LEN });
    }

    /// Sends a message over an interface.
    pub(super) fn tell(&mut self, now_ns: u64, body: &Body, link: u8, flow: u16, to: SocketAddr, fx: &mut Effects) {
        if let Some(session) = self.session {
            let sent_us = (now_ns / 1000) as u32;
            let (bytes, length) = tunnel::message(body, link, flow, sent_us, session.number, session.key);
            fx.messages.push(Message { link, to, bytes, length });
        }
    }

    /// The waypoint is to know what this flow wants.
    pub(super) fn wish(&mut self, now_ns: u64, slot: usize) {
        if self.is_waypoint {
            return;
        }
        self.serial += 1;
        let serial = self.serial;
        if let Some(flow) = self.flows.get_mut(slot) {
            flow.unconfirmed = Some(Unconfirmed { serial, again_ns: now_ns, tries: 0 });
            if !self.wishing.contains(&slot) {
                self.wishing.push(slot);
            }
        }
    }

    /// What is as every flow's needs no words: the waypoint answers over the interface that the packets come on.
    pub(super) fn wish_if_special(&mut self, now_ns: u64, slot: usize) {
        let is_special = self.flows.get(slot).map_or(false, |flow| {
            let rights = flow.rights;
            let usual = rights.weight == 1.0 && !rights.urgent && !rights.spread && !rights.copies;
            flow.via == Via::Waypoint && (!usual || flow.bind_serial > 0)
        });
        if is_special {
            self.wish(now_ns, slot);
        }
    }

    pub(super) fn bind_of(&self, flow: &Flow, serial: u32) -> Bind {
        Bind {
            serial,
            accepts: flow.accepts,
            home: flow.home.unwrap_or_else(|| flow.accepts.trailing_zeros().min(15) as u8),
            urgent: flow.rights.urgent,
            spread: flow.rights.spread,
            copies: flow.rights.copies,
            weight_milli: (flow.rights.weight * 1e3).min(4e9) as u32,
        }
    }

    /// Moves a flow to an interface. The text of an error names what cannot be.
    pub fn migrate(&mut self, now_ns: u64, number: u16, name: &str, fx: &mut Effects) -> Result<(), String> {
        let slot = self.flows.of_number(number).ok_or_else(|| format!("flow {number}: there is none"))?;
        let link = self.link_number(name).ok_or_else(|| format!("interface {name:?}: there is none"))?;
        let flow = self.flows.get(slot).ok_or_else(|| format!("flow {number}: there is none"))?;
        if flow.via == Via::Direct {
            return Err(format!("flow {number} goes straight out: only flows through the waypoint can move"));
        }
        if (flow.rights.wanted | flow.rights.backup) >> link & 1 == 0 {
            return Err(format!("flow {number}: its rule does not accept {name}"));
        }
        if !self.links[link].carries(Via::Waypoint, flow.tuple.source.address.is_ipv4()) {
            return Err(format!("interface {name}: the waypoint is not reached over it"));
        }
        if flow.rights.spread || flow.rights.copies {
            return Err(format!("flow {number} uses all its interfaces at once"));
        }
        if let Some(flow) = self.flows.get_mut(slot) {
            flow.pinned = Some(link as u8);
        }
        self.refresh(now_ns, slot, fx);
        Ok(())
    }

    /// A direct flow gets its interface. False if none carries it.
    pub(super) fn bind_direct(&mut self, now_ns: u64, slot: usize, except: Accepts, fx: &mut Effects) -> bool {
        let flow = match self.flows.get(slot) {
            Some(flow) => flow,
            None => return false,
        };
        let (base, remote) = (self.base(flow), flow.tuple.destination);
        let among = if base & !except != 0 { base & !except } else { base };
        let number = match self.choose(now_ns, among, flow.rights.weight, slot) {
            Some(number) => number,
            None => return false,
        };
        let link = &self.links[usize::from(number)];
        let remote = self.name_server(link, remote);
        let bound = match link.state.address(remote.address.is_ipv4()) {
            Some(local) => self.flows.bind(slot, number, local, remote),
            None => false,
        };
        self.changed.push(slot);
        self.refresh(now_ns, slot, fx);
        bound
    }

    /// A question to some interface's name server goes to one that this interface's network answers for.
    fn name_server(&self, link: &Link, remote: Endpoint) -> Endpoint {
        let is_one = remote.port == 53 && self.links.iter().any(|other| other.dns.contains(&remote.address));
        let own = link.dns.iter().find(|address| address.is_ipv4() == remote.address.is_ipv4());
        match own {
            Some(own) if is_one && !link.dns.contains(&remote.address) => Endpoint { address: *own, port: 53 },
            _ => remote,
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
            let silent = self.flows.longest_silent()?;
            self.forget(now_ns, silent, fx);
        }
        let subject = Subject {
            protocol: tuple.protocol,
            source: (tuple.source.address, tuple.source.port),
            destination: (tuple.destination.address, tuple.destination.port),
            dscp,
        };
        let (rule, rights, by_rule) = self.rights_of(&subject);
        // The waypoint forwards nothing that does not come from the address it gave.
        let is_own = self.is_waypoint || self.own_address(tuple.source.address);
        let via = if is_own { via.unwrap_or(by_rule) } else { Via::Direct };
        let flow = Flow::new(now_ns, number, tuple, rule, rights, via);
        let slot = self.flows.insert(flow);
        self.refresh(now_ns, slot, fx);
        self.wish_if_special(now_ns, slot);
        Some(slot)
    }

    pub(super) fn own_address(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(v4) => self.config.address4 == Some(v4),
            IpAddr::V6(v6) => self.config.address6 == Some(v6),
        }
    }

    /// A flow ends; its packets with it.
    pub(super) fn forget(&mut self, now_ns: u64, slot: usize, fx: &mut Effects) {
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

fn subject(flow: &Flow, dscp: u8) -> Subject {
    Subject {
        protocol: flow.tuple.protocol,
        source: (flow.tuple.source.address, flow.tuple.source.port),
        destination: (flow.tuple.destination.address, flow.tuple.destination.port),
        dscp,
    }
}

/// Whether an interface that does not carry is worth waiting for: a TCP connection cannot change its address.
pub(super) fn is_connection(flow: &Flow) -> bool {
    flow.tuple.protocol == TCP && flow.counters.received_packets > 0
}

#[cfg(test)]
#[path = "engine_tests.rs"]
mod tests;
