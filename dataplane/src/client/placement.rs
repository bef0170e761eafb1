//! Which interfaces a flow uses: by its rule, by what is open, by what is left there; and what the other end is told
//! of it.

use super::config::{OnLoss, Spread, Subject, Via};
use super::engine::{subject, Effects, Engine, Message, Notice};
use super::flow::{Flow, Rights, Unconfirmed, AT_NEXT_PACKET, MOST_ORDINALS};
use super::link::Link;
use super::scheduler::{interfaces, Accepts, MOST_INTERFACES};
use super::tunnel::{self, Bind, Body, HEADER_LEN, MESSAGE_LEN};
use crate::edge::frame::{Kind, Shim};
use crate::edge::reorder::before;
use crate::ip::Endpoint;
use std::cmp::Reverse;
use std::net::SocketAddr;

/// An interface of which nothing is known is taken to be as fast as this.
const UNKNOWN_MBPS: f64 = 10.0;
/// A flow that was used so lately counts when another one looks for an interface, and they are counted so often.
pub(super) const ACTIVE_NS: u64 = 1_000_000_000;
const COUNTED_NS: u64 = 100_000_000;
const MS: u64 = 1_000_000;

/// The weights of the flows that each interface has had to carry of late.
#[derive(Debug, Default)]
pub(super) struct Load {
    counted_ns: Option<u64>,
    weights: [f64; MOST_INTERFACES],
    /// Of them, flows that are the first to their destination, the second and so on.
    alike: [[u32; MOST_INTERFACES]; MOST_ORDINALS],
}

impl Engine {
    /// The interfaces that carry packets of a flow now.
    pub(super) fn open(&self, via: Via, is_ipv4: bool) -> Accepts {
        let (mut open, mut proven) = (0, 0);
        for (number, link) in self.links.iter().enumerate().filter(|(_, link)| link.carries(via, is_ipv4)) {
            open |= 1 << number;
            proven |= Accepts::from(link.heartbeat.alive == Some(true)) << number;
        }
        // An interface that has just come up may carry nothing: where the waypoint has answered is better.
        if via == Via::Waypoint && proven != 0 {
            proven
        } else {
            open
        }
    }

    /// Those of the open interfaces that a flow is to use.
    pub(super) fn base(&self, flow: &Flow) -> Accepts {
        let open = self.open(flow.via, flow.tuple.source.address.is_ipv4());
        let pinned = flow.pinned.map_or(0, |link| 1 << link);
        let choices = [pinned, flow.rights.wanted, flow.rights.backup];
        choices.iter().map(|choice| choice & open).find(|choice| *choice != 0).unwrap_or(0)
    }

    pub(super) fn apply_rule(&mut self, now_ns: u64, slot: usize, fx: &mut Effects) {
        let unknown = self.flows.get(slot).filter(|flow| flow.cgroup.is_none()).map(|flow| flow.tuple);
        if let Some(cgroup) = unknown.and_then(|tuple| self.cgroup_of(&tuple)) {
            if let Some(flow) = self.flows.get_mut(slot) {
                flow.cgroup = Some(cgroup);
            }
        }
        let flow = match self.flows.get(slot) {
            Some(flow) => flow,
            None => return,
        };
        let (rule, rights, _) = self.rights_of(&subject(flow));
        if let Some(flow) = self.flows.get_mut(slot) {
            // The user's choice ends with the right to the interface, and when the interface becomes a backup.
            let old = flow.rights;
            let demoted = |link: u8| (old.wanted & !rights.wanted) >> link & 1 == 1;
            let known = |link: u8| (rights.wanted | rights.backup) >> link & 1 == 1;
            flow.pinned = flow.pinned.filter(|link| known(*link) && !demoted(*link));
            flow.rule = rule;
            flow.rights = rights;
        }
        self.refresh(now_ns, slot, fx);
        self.bind_if_special(now_ns, slot);
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

    /// Which way a new flow takes whose rule wants the waypoint; None: nothing of it may leave.
    pub(super) fn way_of_new(&self, rule: usize, given: Via) -> Option<Via> {
        let has_tunnel = self.session.is_some() && given == Via::Waypoint;
        match self.config.rules.get(rule).map_or(OnLoss::Direct, |rule| rule.on_loss) {
            OnLoss::Block if !has_tunnel => None,
            // Packets in a silent tunnel reach no other host, and arrive once the waypoint is back.
            OnLoss::Block => Some(given),
            OnLoss::Direct if self.waypoint_lost => Some(Via::Direct),
            OnLoss::Direct => Some(given),
        }
    }

    /// Brings what the scheduler knows of a flow up to date, and moves the flow if its interface no longer carries it.
    pub(super) fn refresh(&mut self, now_ns: u64, slot: usize, fx: &mut Effects) {
        let flow = match self.flows.get(slot) {
            Some(flow) => flow,
            None => return,
        };
        let base = self.base(flow);
        let (rights, home, wire, ordinal) = (flow.rights, flow.home, flow.wire, flow.ordinal);
        let accepts = match (flow.via, wire) {
            (Via::Direct, None) => 0,
            (Via::Direct, Some(wire)) => 1 << wire.link & self.open(Via::Direct, wire.tuple.source.address.is_ipv4()),
            (Via::Waypoint, _) if rights.spread || rights.copies => base,
            (Via::Waypoint, _) => match home.filter(|home| base >> home & 1 == 1) {
                Some(home) => 1 << home,
                None => match self.choose(now_ns, base, rights.weight, ordinal) {
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
            self.bind_if_special(now_ns, slot);
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

    /// Counts again what interfaces carry, if that is not just done.
    fn count_load(&mut self, now_ns: u64) {
        if self.load.counted_ns.map_or(false, |at_ns| now_ns.saturating_sub(at_ns) < COUNTED_NS) {
            return;
        }
        let mut weights = [0.0; MOST_INTERFACES];
        let mut alike = [[0; MOST_INTERFACES]; MOST_ORDINALS];
        for flow in self.flows.slots().filter_map(|slot| self.flows.get(slot)) {
            let home = flow.home.or(flow.wire.map(|wire| wire.link));
            if let Some(home) = home.filter(|_| now_ns.saturating_sub(flow.used_ns) < ACTIVE_NS) {
                weights[usize::from(home)] += flow.rights.weight;
                alike[flow.ordinal][usize::from(home)] += 1;
            }
        }
        self.load = Load { counted_ns: Some(now_ns), weights, alike };
    }

    /// The interface on which a flow of such a weight gets most; from now on it is counted there.
    fn choose(&mut self, now_ns: u64, among: Accepts, weight: f64, ordinal: usize) -> Option<u8> {
        let only = interfaces(among).next()?;
        let best = if among.count_ones() > 1 { self.best(now_ns, among, weight, ordinal) } else { only };
        self.load.weights[best] += weight;
        self.load.alike[ordinal][best] += 1;
        Some(best as u8)
    }

    /// An interface that has not been full may carry as much as the best. Of equals the one that has fewest flows of the
    /// same ordinal: where every second connection to a server is the one that carries much, they are shared out, too.
    fn best(&mut self, now_ns: u64, among: Accepts, weight: f64, ordinal: usize) -> usize {
        self.count_load(now_ns);
        let most = interfaces(among).filter_map(|number| self.links[number].known_rate_mbps());
        let usual = most.fold(UNKNOWN_MBPS, f64::max);
        let rank = |number: usize| {
            let rate = self.links[number].limit_mbps(now_ns).unwrap_or(usual);
            let alike = f64::from(self.load.alike[ordinal][number]);
            (rate / (self.load.weights[number] + weight), -alike)
        };
        interfaces(among).fold(MOST_INTERFACES, |best, number| match best {
            MOST_INTERFACES => number,
            best if rank(number).partial_cmp(&rank(best)) == Some(std::cmp::Ordering::Greater) => number,
            best => best,
        })
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
        self.queue_bind(now_ns, slot);
    }

    /// Tells the other end which interfaces a flow has left, and which it uses from now on. It waits for nothing more on
    /// those that were left; of one that carries nothing any more it hears on another, on which what that one was given
    /// last comes again.
    fn say_used(&mut self, now_ns: u64, slot: usize, left: Accepts, joined: Accepts, fx: &mut Effects) {
        let (flow, open) = match self.flows.get(slot) {
            Some(flow) if flow.has_begun() => (flow, self.open(Via::Waypoint, true)),
            _ => return,
        };
        let others = (flow.accepts & !left | joined) & open;
        let over = |link: usize, set: Accepts| if open >> link & 1 == 1 { Some(link) } else { interfaces(set).next() };
        // Which are used comes first: with none left in use, nothing would be waited for.
        for link in interfaces(joined) {
            if let Some(over) = interfaces(left & open).next() {
                self.say(now_ns, slot, Kind::Resume, link as u8, over as u8, fx);
            }
        }
        for link in interfaces(left) {
            if let Some(over) = over(link, others) {
                self.say(now_ns, slot, Kind::Pause, link as u8, over as u8, fx);
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

    /// Serials keep up with time, so that those of a program that is started again are newer than the last one's. 0 is none.
    pub(super) fn next_serial(&mut self, now_ns: u64) -> u32 {
        let (next, by_time) = (self.serial.wrapping_add(1), (now_ns / MS) as u32);
        self.serial = if self.serial == 0 || before(next, by_time) { by_time } else { next }.max(1);
        self.serial
    }

    /// The waypoint is to know what this flow wants.
    pub(super) fn queue_bind(&mut self, now_ns: u64, slot: usize) {
        if self.is_waypoint {
            return;
        }
        let serial = self.next_serial(now_ns);
        if let Some(flow) = self.flows.get_mut(slot) {
            // Those of many flows that say nothing need not be said in one instant.
            let is_idle = now_ns.saturating_sub(flow.used_ns) > ACTIVE_NS;
            let again_ns = match (flow.has_begun(), is_idle) {
                (false, _) => AT_NEXT_PACKET,
                (true, false) => now_ns,
                (true, true) => now_ns + MS * (100 + slot as u64 % 900),
            };
            flow.unconfirmed = Some(Unconfirmed { serial, again_ns, tries: 0 });
            if again_ns < AT_NEXT_PACKET {
                self.binds_due.push(Reverse((again_ns, slot, serial)));
            }
        }
    }

    /// A flow's packet has left: the waypoint knows the flow, and can be told what is wanted of it.
    pub(super) fn bind_with_packet(&mut self, now_ns: u64, slot: usize) {
        let bind = self.flows.get_mut(slot).and_then(|flow| flow.unconfirmed.as_mut());
        if let Some(bind) = bind.filter(|bind| bind.again_ns == AT_NEXT_PACKET) {
            (bind.again_ns, bind.tries) = (now_ns, 0);
            self.binds_due.push(Reverse((now_ns, slot, bind.serial)));
        }
    }

    /// What is as every flow's needs no words: the waypoint answers over the interface that the packets come on.
    pub(super) fn bind_if_special(&mut self, now_ns: u64, slot: usize) {
        let is_special = self.flows.get(slot).map_or(false, |flow| {
            let rights = flow.rights;
            let usual = rights.weight == 1.0 && !rights.urgent && !rights.spread && !rights.copies;
            flow.via == Via::Waypoint && (!usual || flow.bind_serial > 0)
        });
        if is_special {
            self.queue_bind(now_ns, slot);
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
    pub(super) fn bind_direct(&mut self, now_ns: u64, slot: usize, fx: &mut Effects) -> bool {
        let flow = match self.flows.get(slot) {
            Some(flow) => flow,
            None => return false,
        };
        let (base, remote) = (self.base(flow), flow.tuple.destination);
        let answers = |number: &usize| self.links[*number].unanswered_until_ns <= now_ns;
        let answering = interfaces(base).filter(answers).fold(0, |set, number| set | 1 << number);
        let among = if answering != 0 { answering } else { base };
        let (weight, ordinal) = (flow.rights.weight, flow.ordinal);
        let number = match self.choose(now_ns, among, weight, ordinal) {
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
}
