//! What is due: hellos, binds, packets that have waited long enough, flows that are silent.

use super::config::Via;
use super::engine::{is_connection, Effects, Engine, Notice};
use super::flow::{Unconfirmed, AT_NEXT_PACKET};
use super::scheduler::interfaces;
use super::tunnel::{Body, Hello};
use crate::ip::TCP;
use std::cmp::Reverse;

const MS: u64 = 1_000_000;
const TICK_NS: u64 = 500 * MS;
/// A bind that is not confirmed is said again after this and the round trip, then after twice as long, and so on; after so
/// many times the flow's next packet is waited for.
const AGAIN_NS: u64 = 30 * MS;
const MOST_TRIES: u32 = 12;
/// While there is no way to the waypoint.
const NO_WAY_NS: u64 = 200 * MS;
/// A connection on an interface that is down is given up after this.
const CONNECTION_DOWN_NS: u64 = 3_000 * MS;
/// So many first packets of a flow without an answer: its interface carries nothing.
const UNANSWERED: u64 = 3;
const UNANSWERED_NS: u64 = 2_500 * MS;
/// Then new flows avoid it for so long, unless something comes over it.
const AVOIDED_NS: u64 = 30_000 * MS;
/// The client has left an interface if nothing came over it for so long.
const LEFT_NS: u64 = 4_000 * MS;

impl Engine {
    /// Does what is due.
    pub fn poll(&mut self, now_ns: u64, fx: &mut Effects) {
        self.poll_order(now_ns, fx);
        if !self.is_waypoint {
            self.poll_hellos(now_ns, fx);
            self.poll_binds(now_ns, fx);
        }
        if now_ns >= self.tick_ns {
            self.tick_ns = now_ns + TICK_NS;
            self.tick(now_ns, fx);
        }
    }

    /// When `poll` is next due.
    pub fn next_due(&self, now_ns: u64) -> u64 {
        let hellos = self.links.iter().filter(|link| self.says_hello(link)).map(|link| link.heartbeat.next_ns);
        let order = self.ordering.iter().filter_map(|slot| self.flows.get(*slot)?.order.next_due(now_ns));
        let binds = self.binds_due.peek().map(|Reverse((at_ns, ..))| *at_ns);
        hellos.chain(order).chain(binds).fold(self.next_tick(), u64::min)
    }

    /// An idle session of the waypoint's has nothing to look after.
    fn next_tick(&self) -> u64 {
        let is_idle = self.is_waypoint && self.flows.is_empty() && !self.links.iter().any(|link| link.state.up);
        if is_idle {
            u64::MAX
        } else {
            self.tick_ns
        }
    }

    fn says_hello(&self, link: &super::link::Link) -> bool {
        !self.is_waypoint && self.session.is_some() && link.usable && link.state.up && link.reaches_waypoint()
    }

    fn poll_order(&mut self, now_ns: u64, fx: &mut Effects) {
        let mut at = 0;
        while let Some(slot) = self.ordering.get(at).copied() {
            let waits = match self.flows.get_mut(slot) {
                Some(flow) => {
                    flow.order.poll(now_ns, &mut fx.released);
                    flow.order.next_due(now_ns).is_some()
                }
                None => false,
            };
            if waits {
                at += 1;
            } else {
                self.ordering.swap_remove(at);
            }
        }
        fx.take_released();
    }

    fn poll_hellos(&mut self, now_ns: u64, fx: &mut Effects) {
        let usable = (0..self.links.len())
            .filter(|number| self.links[*number].carries(Via::Waypoint, true))
            .fold(0, |set, number| set | 1 << number);
        for number in 0..self.links.len() {
            let link = &mut self.links[number];
            if link.heartbeat.dies(now_ns) {
                self.died(now_ns, number, fx);
            }
            let link = &self.links[number];
            if !self.says_hello(link) || link.heartbeat.next_ns > now_ns {
                continue;
            }
            let serial = self.next_serial(now_ns);
            let link = &self.links[number];
            let rate_kbps = link.rate_mbps.map_or(0, |mbps| (mbps * 1e3) as u32);
            let (to, hello) = (link.endpoint, Hello { serial, rate_kbps, usable: usable | 1 << number });
            if let Some(to) = to {
                self.tell(now_ns, &Body::Hello(hello), number as u8, 0, to, fx);
            }
            let link = &mut self.links[number];
            let busy = link.is_busy(now_ns);
            link.heartbeat.asked(now_ns, busy);
        }
    }

    /// The waypoint no longer answers over an interface.
    fn died(&mut self, now_ns: u64, number: usize, fx: &mut Effects) {
        fx.notices.push(Notice::Dead { link: number as u8 });
        self.retransmit_given(now_ns, number, fx);
        self.refresh_all(now_ns, fx);
        self.hello_at_once(now_ns);
        let any = self.links.iter().any(|link| link.carries(Via::Waypoint, true) && link.heartbeat.alive == Some(true));
        if !any && !std::mem::replace(&mut self.waypoint_lost, true) {
            fx.notices.push(Notice::WaypointLost);
        }
    }

    fn poll_binds(&mut self, now_ns: u64, fx: &mut Effects) {
        while let Some(Reverse((at_ns, slot, serial))) = self.binds_due.peek().copied() {
            if at_ns > now_ns {
                break;
            }
            self.binds_due.pop();
            let bind = self.flows.get(slot).and_then(|flow| flow.unconfirmed);
            if let Some(bind) = bind.filter(|bind| bind.serial == serial && bind.again_ns == at_ns) {
                self.send_bind(now_ns, slot, bind, fx);
            }
        }
    }

    /// Says a flow's bind, and when to say it again.
    fn send_bind(&mut self, now_ns: u64, slot: usize, mut bind: Unconfirmed, fx: &mut Effects) {
        let flow = match self.flows.get(slot) {
            Some(flow) => flow,
            None => return,
        };
        let open = self.open(Via::Waypoint, true);
        let number = flow.home.map(usize::from).or_else(|| interfaces(flow.accepts).next());
        let number = number.filter(|number| open >> number & 1 == 1);
        let way = number.and_then(|number| Some((number, self.links.get(number)?.endpoint?)));
        match way {
            Some((number, to)) => {
                let rtt_ns = self.links[number].heartbeat.rtt_ns.unwrap_or(0);
                let (body, flow_number) = (Body::Bind(self.bind_of(flow, bind.serial)), flow.number);
                self.tell(now_ns, &body, number as u8, flow_number, to, fx);
                bind.again_ns = now_ns + (AGAIN_NS << bind.tries.min(7)) + rtt_ns;
                bind.tries += 1;
            }
            None => bind.again_ns = now_ns + NO_WAY_NS,
        }
        if bind.tries >= MOST_TRIES {
            bind.again_ns = AT_NEXT_PACKET;
        } else {
            self.binds_due.push(Reverse((bind.again_ns, slot, bind.serial)));
        }
        if let Some(flow) = self.flows.get_mut(slot) {
            flow.unconfirmed = Some(bind);
        }
    }

    fn tick(&mut self, now_ns: u64, fx: &mut Effects) {
        for slot in self.flows.expired(now_ns) {
            self.forget(now_ns, slot, fx);
        }
        self.flows.relax();
        if self.is_waypoint {
            let mut is_changed = false;
            for link in &mut self.links {
                let left = link.state.up && link.heartbeat.silent_for(now_ns) > LEFT_NS;
                link.state.up &= !left;
                is_changed |= left;
            }
            if is_changed {
                self.refresh_all(now_ns, fx);
            }
        } else {
            let slots: Vec<usize> = self.flows.slots().collect();
            slots.into_iter().for_each(|slot| self.look_after(now_ns, slot, fx));
            self.balance(now_ns, fx);
        }
    }

    /// A direct flow whose interface carries it no longer.
    pub(super) fn look_after(&mut self, now_ns: u64, slot: usize, fx: &mut Effects) {
        let (flow, wire) = match self.flows.get(slot).and_then(|flow| Some((flow, flow.wire?))) {
            Some(found) if !found.0.dead => found,
            _ => return,
        };
        let link = &self.links[usize::from(wire.link)];
        let source = wire.tuple.source.address;
        let is_other = link.state.up && link.state.address(source.is_ipv4()) != Some(source);
        let others = self.base(flow) & !(1 << wire.link) != 0;
        // What need not go on there does not wait if there is another interface.
        let patience_ns = if others && !is_connection(flow) { 0 } else { CONNECTION_DOWN_NS };
        let is_down = link.down_ns.map_or(false, |since| now_ns.saturating_sub(since) >= patience_ns);
        let gone = is_other || !link.usable || is_down;
        let unanswered = flow.counters.received_packets == 0
            && flow.counters.sent_packets >= UNANSWERED
            && now_ns.saturating_sub(flow.begun_ns) > UNANSWERED_NS;
        if gone {
            self.orphan(now_ns, slot, fx);
        } else if unanswered && others && flow.tuple.protocol == TCP {
            self.links[usize::from(wire.link)].unanswered_until_ns = now_ns + AVOIDED_NS;
            self.forget(now_ns, slot, fx);
        }
    }

    /// An interface that has nothing to do takes a flow from one on which several wait.
    fn balance(&mut self, now_ns: u64, fx: &mut Effects) {
        let mut crowds: Vec<Vec<usize>> = vec![Vec::new(); self.links.len()];
        for slot in self.flows.slots() {
            let home = self.flows.get(slot).filter(|flow| flow.queue.len() > 2).and_then(|flow| flow.home);
            if let Some(crowd) = home.and_then(|home| crowds.get_mut(usize::from(home))) {
                crowd.push(slot);
            }
        }
        for (number, _) in crowds.iter().enumerate().filter(|(_, crowd)| crowd.is_empty()) {
            let movable = |slot: &&usize| {
                self.flows.get(**slot).map_or(false, |flow| {
                    flow.via == Via::Waypoint && flow.pinned.is_none() && self.base(flow) >> number & 1 == 1
                })
            };
            let crowded = crowds.iter().filter(|crowd| crowd.len() > 1);
            let candidate = crowded.max_by_key(|crowd| crowd.len()).and_then(|crowd| crowd.iter().find(movable));
            if let Some(slot) = candidate.copied() {
                self.move_home(now_ns, slot, number as u8, fx);
                self.refresh(now_ns, slot, fx);
                return;
            }
        }
    }
}
