//! All flows of an agent together. Sans I/O: frames and time go in, frames and events come out as `Effects`.

use super::branch::Branches;
use super::buffer::{Buf, Pool};
use super::fit::{clamp, fit, Fitted};
use super::frame::{
    outer_header, parse_access, parse_network, put_tags_back, FromAccess, FromNetwork, Hello, Kind, Seal, Shim,
    INNER_AT,
};
use super::frame::{BROADCAST, ETHERNET_LEN, SHIM_LEN, TYPE_HELLO};
use super::guard::{covered_by, Checked, Guards, Refused, Signing, Signings};
use super::links::Links;
use super::liveness::{Change, Liveness};
use super::media::Media;
use super::mtu::RateLimit;
use super::outpath::{Exit, Outgoing, SWITCH_MAC};
use super::protocol::{Config, Egress, RateChange, TO_FIT};
use super::receiver::{Receiver, ReceiverOptions, Released};
use super::seal::Base;
use super::sender::{Offer, Sender};
use super::timers::Timers;
use super::watch::PathNotice;
use crate::sys::interface::Mac;
use std::collections::{BTreeMap, HashMap, HashSet};

const MS: u64 = 1_000_000;
/// Frames that one flow may send before others get their turn.
const QUANTUM: usize = 16;
/// Timers that one call looks at, so that reading is never put off for long.
const TIMERS_PER_POLL: usize = 256;
const RECEIVER_KEY: u32 = 1 << 16;
const HELLO_KEY: u32 = 2 << 16;
/// Where frames of so many bytes fit, no host on an Ethernet sends larger TCP segments.
const FULL_FRAME: usize = ETHERNET_LEN + 1500;

/// What is to be done with the outside world.
#[derive(Debug, Default)]
pub struct Effects {
    pub network: Vec<Outgoing>,
    pub access: Vec<Buf>,
    pub changes: Vec<Change>,
    /// Flow number, and what is to be told at once of its watched paths.
    pub notices: Vec<(u16, Vec<PathNotice>)>,
}

#[derive(Clone, Debug, Default)]
pub struct Counters {
    /// Not labelled, and there is no default flow.
    pub unclassified: u64,
    pub malformed: u64,
    pub unknown_flow: u64,
    pub overrun: u64,
    pub forged: u64,
    pub replayed: u64,
}

impl Counters {
    fn refuse(&mut self, why: Refused) {
        match why {
            Refused::Forged => self.forged += 1,
            Refused::Replayed => self.replayed += 1,
        }
    }
}

/// A hello to say regularly on one interface.
#[derive(Debug)]
struct HelloSender {
    header: Vec<u8>,
    exit: usize,
    /// With which address it leaves.
    mac: Mac,
}

#[derive(Debug)]
pub struct Engine {
    pub pool: Pool,
    pub counters: Counters,
    pub revision: u64,
    /// By flow number.
    senders: Vec<Option<Box<Sender>>>,
    receivers: Vec<Option<Box<Receiver>>>,
    pub branches: Branches,
    guards: Guards,
    signings: Signings,
    hello_signing: Option<Signing>,
    links: Links,
    /// Nothing is sent or taken without a seal.
    must_seal: bool,
    default_flow: Option<u16>,
    timers: Timers,
    liveness: Liveness,
    hello_senders: Vec<HelloSender>,
    hello_interval_ms: u16,
    hello_sequence: u32,
    hello_ns: u64,
    media: Media,
    /// Where frames go back to the switch.
    switch_exit: usize,
    too_big: RateLimit,
    released: Released,
    burst_ns: u64,
}

/// New rates by flow number.
pub type Rates = BTreeMap<u16, RateChange>;
/// By flow number: the first number under new paths, of flows whose paths in use have changed.
pub type FirstNumbers = BTreeMap<u16, u32>;

impl Engine {
    pub fn new(pool: Pool, burst_ns: u64) -> Self {
        let mut engine = Engine {
            pool,
            counters: Counters::default(),
            revision: 0,
            senders: Vec::new(),
            receivers: Vec::new(),
            branches: Branches::default(),
            guards: Guards::default(),
            signings: Signings::default(),
            hello_signing: None,
            links: Links::default(),
            must_seal: false,
            default_flow: None,
            timers: Timers::default(),
            liveness: Liveness::default(),
            hello_senders: Vec::new(),
            hello_interval_ms: 0,
            hello_sequence: 0,
            hello_ns: 0,
            media: Media::default(),
            switch_exit: 0,
            too_big: RateLimit::default(),
            released: Released::default(),
            burst_ns,
        };
        engine.senders.resize_with(1 << 16, || None);
        engine.receivers.resize_with(1 << 16, || None);
        engine
    }

    /// True if the access side is a host, not a switch that labels.
    pub fn has_default_flow(&self) -> bool {
        self.default_flow.is_some()
    }

    pub fn senders(&self) -> impl Iterator<Item = &Sender> {
        self.senders.iter().flatten().map(Box::as_ref)
    }

    pub fn receivers(&self) -> impl Iterator<Item = (u16, &Receiver)> {
        self.receivers.iter().enumerate().filter_map(|(n, r)| r.as_ref().map(|r| (n as u16, r.as_ref())))
    }

    pub fn liveness(&self) -> &Liveness {
        &self.liveness
    }

    /// Makes a checked configuration the one in force. `exit_of` knows every interface that it names; `random` gives
    /// first sequence numbers.
    pub fn apply(
        &mut self,
        now_ns: u64,
        config: &Config,
        exit_of: &dyn Fn(Option<&str>) -> Exit,
        random: &mut dyn FnMut() -> u32,
        fx: &mut Effects,
    ) -> FirstNumbers {
        self.apply_keys(now_ns, config);
        let from = self.apply_ingress(now_ns, config, exit_of, random, fx);
        self.apply_egress(now_ns, &config.egress, fx);
        self.branches.configure(&config.branch, exit_of);
        self.apply_hello(now_ns, config, exit_of);
        self.media = config.media.clone();
        self.switch_exit = exit_of(None).0;
        self.revision = config.revision;
        from
    }

    /// Which flows must be sealed here, and how hello frames are.
    fn apply_keys(&mut self, now_ns: u64, config: &Config) {
        let ends = config.egress.iter().map(|flow| (flow.number, flow.key));
        let keys = ends.chain(config.branch.iter().map(|branch| (branch.number, branch.key)));
        let wanted: HashMap<u16, Base> = keys.filter_map(|(number, key)| Some((number, key?))).collect();
        let (receivers, branches) = (&self.receivers, &self.branches);
        let was_open: HashSet<u16> = wanted
            .keys()
            .copied()
            .filter(|n| {
                !config.seal_links
                    && !self.guards.has(*n)
                    && (receivers[usize::from(*n)].is_some() || branches.has_flow(*n))
            })
            .collect();
        self.guards.configure(now_ns, config.generation, &wanted, &was_open);
        self.hello_signing = config.hello.key.map(|key| self.signings.of(now_ns, key, config.generation));
        self.links.configure(now_ns, config, self.hello_signing.clone());
        self.must_seal = config.seal_links;
    }

    fn apply_ingress(
        &mut self,
        now_ns: u64,
        config: &Config,
        exit_of: &dyn Fn(Option<&str>) -> Exit,
        random: &mut dyn FnMut() -> u32,
        fx: &mut Effects,
    ) -> FirstNumbers {
        let mut from = FirstNumbers::new();
        let mut wanted = vec![false; 1 << 16];
        self.default_flow = config.ingress.iter().find(|f| f.default).map(|f| f.number);
        for flow in &config.ingress {
            wanted[usize::from(flow.number)] = true;
            let exits: Vec<Exit> = flow.paths.iter().map(|p| exit_of(p.interface.as_deref())).collect();
            let signing = flow.key.map(|key| self.signings.of(now_ns, key, config.generation));
            let slot = &mut self.senders[usize::from(flow.number)];
            let first = match slot {
                Some(sender) => {
                    sender.set_signing(now_ns, signing);
                    sender.update(now_ns, flow, &exits, &mut self.pool, &mut fx.network)
                }
                None => {
                    let (first, seed) = (random(), u64::from(random()) << 32 | u64::from(random()));
                    let mut sender = Sender::new(now_ns, flow, &exits, first, seed, self.burst_ns, &mut self.pool);
                    sender.set_signing(now_ns, signing);
                    *slot = Some(Box::new(sender));
                    Some(first)
                }
            };
            from.extend(first.map(|first| (flow.number, first)));
            self.timers.arm(u32::from(flow.number), Some(now_ns));
        }
        for (number, slot) in self.senders.iter_mut().enumerate() {
            if !wanted[number] {
                if let Some(sender) = slot.take() {
                    sender.dismiss(now_ns, &mut self.pool, &mut fx.network);
                }
            }
        }
        from
    }

    fn apply_egress(&mut self, now_ns: u64, flows: &[Egress], fx: &mut Effects) {
        let mut wanted = vec![false; 1 << 16];
        for flow in flows {
            wanted[usize::from(flow.number)] = true;
            let options = ReceiverOptions::of(flow);
            let slot = &mut self.receivers[usize::from(flow.number)];
            let receiver = slot.get_or_insert_with(|| Box::new(Receiver::new(now_ns, options, &flow.paths)));
            receiver.update(now_ns, options, &flow.paths);
            receiver.attend(&flow.hold.paths, &flow.watch);
            self.timers.arm(RECEIVER_KEY + u32::from(flow.number), Some(now_ns));
        }
        for (number, slot) in self.receivers.iter_mut().enumerate() {
            if !wanted[number] {
                if let Some(mut receiver) = slot.take() {
                    receiver.flush(&mut self.released);
                    receiver.join(&mut self.pool, &mut self.released);
                    fx.access.append(&mut self.released.deliver);
                }
            }
        }
        self.discard();
    }

    fn apply_hello(&mut self, now_ns: u64, config: &Config, exit_of: &dyn Fn(Option<&str>) -> Exit) {
        let hello = &config.hello;
        self.hello_senders = hello
            .send
            .iter()
            .map(|send| {
                let (exit, mac) = exit_of(send.interface.as_deref());
                let header = match send.label {
                    Some(label) => outer_header(SWITCH_MAC, mac, &[label], TYPE_HELLO),
                    None => outer_header(BROADCAST, mac, &[], TYPE_HELLO),
                };
                HelloSender { header, exit, mac: send.mac.unwrap_or(mac) }
            })
            .collect();
        self.hello_interval_ms = hello.interval_ms;
        self.liveness.set_keys(now_ns, hello, config.generation);
        self.liveness.configure(now_ns, hello);
        self.timers.arm(HELLO_KEY, Some(now_ns));
    }

    /// Checks all before it changes any.
    pub fn set_rates(&mut self, now_ns: u64, rates: &Rates, fx: &mut Effects) -> Result<FirstNumbers, String> {
        for (number, change) in rates {
            let sender = self.senders[usize::from(*number)].as_ref().ok_or(format!("rates: unknown flow {number}"))?;
            if let Some(id) = change.rates.keys().chain(change.fill.keys()).find(|id| !sender.knows_path(**id)) {
                return Err(format!("rates: flow {number}: unknown path {id}"));
            }
        }
        let mut from = FirstNumbers::new();
        for (number, change) in rates {
            if let Some(sender) = &mut self.senders[usize::from(*number)] {
                let first = sender.set_rates(now_ns, change, &mut self.pool, &mut fx.network);
                from.extend(first.map(|first| (*number, first)));
                self.timers.arm(u32::from(*number), Some(now_ns));
            }
        }
        Ok(from)
    }

    pub fn reset_counters(&mut self) {
        self.counters = Counters::default();
        self.branches.sent = 0;
        self.senders.iter_mut().flatten().for_each(|s| s.reset_counters());
        self.receivers.iter_mut().flatten().for_each(|r| r.reset_counters());
    }

    /// A frame from the access side.
    pub fn from_access(&mut self, now_ns: u64, mut buf: Buf, fx: &mut Effects) {
        let number = match (self.default_flow, parse_access(buf.bytes())) {
            (_, FromAccess::Malformed) => {
                self.counters.malformed += 1;
                return self.pool.give(buf);
            }
            (Some(number), _) => number,
            (None, FromAccess::Labelled { flow, inner_at }) => {
                buf.strip(inner_at);
                flow
            }
            (None, FromAccess::Tagged { flow, tags }) => {
                put_tags_back(buf.bytes_mut(), tags);
                buf.strip(INNER_AT);
                flow
            }
            (None, FromAccess::Plain) => {
                self.counters.unclassified += 1;
                return self.pool.give(buf);
            }
        };
        if number == TO_FIT && self.default_flow.is_none() {
            return self.fit_single(now_ns, buf, fx);
        }
        let sender = match &mut self.senders[usize::from(number)] {
            Some(sender) => sender,
            None => {
                self.counters.unknown_flow += 1;
                return self.pool.give(buf);
            }
        };
        if sender.max_inner() < FULL_FRAME {
            clamp(buf.bytes_mut(), sender.max_inner().min(self.media.tcp_frame()));
        }
        match sender.offer(now_ns, buf, &mut self.pool) {
            Offer::Queued => {}
            Offer::Dropped(buf) => return self.pool.give(buf),
            Offer::TooBig(buf, max_inner) => {
                for piece in self.fitted(now_ns, buf, max_inner, fx) {
                    match self.senders[usize::from(number)].as_mut().map(|s| s.offer(now_ns, piece, &mut self.pool)) {
                        Some(Offer::Dropped(buf) | Offer::TooBig(buf, _)) => self.pool.give(buf),
                        Some(Offer::Queued) | None => {}
                    }
                }
            }
        }
        self.serve_sender(number, now_ns, fx);
    }

    /// A frame of the single path: the switch sends TCP's SYNs and what is too large, and forwards what comes back.
    fn fit_single(&mut self, now_ns: u64, mut buf: Buf, fx: &mut Effects) {
        clamp(buf.bytes_mut(), self.media.tcp_frame());
        let most = self.media.single_frame();
        if buf.len() <= most {
            return fx.network.push((self.switch_exit, buf));
        }
        for piece in self.fitted(now_ns, buf, most, fx) {
            fx.network.push((self.switch_exit, piece));
        }
    }

    /// The fragments of a frame that has more than `most` bytes. If it has none, its sender is answered.
    fn fitted(&mut self, now_ns: u64, mut buf: Buf, most: usize, fx: &mut Effects) -> Vec<Buf> {
        let fitted = fit(buf.bytes(), most);
        if let Fitted::Answer(answer) = &fitted {
            if self.too_big.allow(now_ns) && buf.set(answer) {
                fx.access.push(buf);
                return Vec::new();
            }
        }
        self.pool.give(buf);
        match fitted {
            Fitted::Fragments(frames) => frames.iter().filter_map(|frame| self.pool.take_with(frame)).collect(),
            Fitted::Answer(_) | Fitted::Nothing => Vec::new(),
        }
    }

    fn serve_sender(&mut self, number: u16, now_ns: u64, fx: &mut Effects) {
        let sender = match &mut self.senders[usize::from(number)] {
            Some(sender) if sender.is_sealing() || !self.must_seal => sender,
            _ => return,
        };
        for _ in 0..QUANTUM {
            match sender.next(now_ns, &mut self.pool) {
                Some(outgoing) => fx.network.push(outgoing),
                None => break,
            }
        }
        let due = sender.next_due(now_ns);
        self.timers.arm(u32::from(number), due);
    }

    /// A frame from the network side.
    pub fn from_network(&mut self, now_ns: u64, mut buf: Buf, fx: &mut Effects) {
        match parse_network(buf.bytes()) {
            FromNetwork::Labelled if self.links.seal(now_ns, &mut buf) => fx.network.push((self.switch_exit, buf)),
            // Without sealed links the switch sends no such frame here.
            FromNetwork::Labelled if !self.must_seal => self.pool.give(buf),
            FromNetwork::Malformed | FromNetwork::Labelled => {
                self.counters.malformed += 1;
                self.pool.give(buf);
            }
            FromNetwork::Shim { shim, seal, inner_at } if shim.kind == Kind::Link => {
                match self.links.open(now_ns, &shim, seal, inner_at, &mut buf) {
                    Ok(()) => fx.network.push((self.switch_exit, buf)),
                    Err(why) => {
                        self.counters.refuse(why);
                        self.pool.give(buf);
                    }
                }
            }
            FromNetwork::Hello { mac, hello, seal } => {
                match self.liveness.check(now_ns, mac, &hello, seal) {
                    Ok(()) => drop(self.liveness.heard(now_ns, mac, hello, &mut fx.changes)),
                    Err(why) => self.counters.refuse(why),
                }
                self.pool.give(buf);
            }
            FromNetwork::Shim { shim, seal, inner_at } => match self.check(now_ns, &shim, seal, inner_at, &buf) {
                Ok(checked) if self.branches.has(&shim) => {
                    self.branches.send(buf, (shim, inner_at), checked.as_ref(), &mut self.pool, &mut fx.network);
                }
                Ok(_) => self.receive(now_ns, shim, inner_at, buf, fx),
                Err(why) => {
                    self.counters.refuse(why);
                    self.pool.give(buf);
                }
            },
        }
    }

    /// Whether a frame is one of an agent that has the flow's key, and new.
    fn check(
        &mut self,
        now_ns: u64,
        shim: &Shim,
        seal: Option<Seal>,
        inner_at: usize,
        buf: &Buf,
    ) -> Result<Option<Checked>, Refused> {
        let bytes = buf.bytes();
        let covered = covered_by(shim.kind, bytes, bytes.get(inner_at..).unwrap_or(&[]));
        match bytes.get(ETHERNET_LEN..ETHERNET_LEN + SHIM_LEN).and_then(|head| head.try_into().ok()) {
            Some(head) => match self.guards.check(now_ns, shim, seal, head, covered)? {
                None if self.must_seal => Err(Refused::Forged),
                checked => Ok(checked),
            },
            None => Err(Refused::Forged),
        }
    }

    /// A frame for this end of its flow.
    fn receive(&mut self, now_ns: u64, shim: Shim, inner_at: usize, mut buf: Buf, fx: &mut Effects) {
        let receiver = match &mut self.receivers[usize::from(shim.flow)] {
            Some(receiver) => receiver,
            None => {
                self.counters.unknown_flow += 1;
                return self.pool.give(buf);
            }
        };
        let wire_bytes = buf.len() - ETHERNET_LEN;
        let inner = if shim.kind.is_data() {
            buf.strip(inner_at);
            buf.pieces = (shim.kind == Kind::Pieces).then_some(shim.sequence);
            Some(buf)
        } else {
            self.pool.give(buf);
            None
        };
        receiver.on_frame(now_ns, shim, inner, wire_bytes, &mut self.released);
        receiver.join(&mut self.pool, &mut self.released);
        fx.access.append(&mut self.released.deliver);
        fx.notices.extend(receiver.notice(now_ns).map(|paths| (shim.flow, paths)));
        let due = receiver.next_due(now_ns);
        self.timers.arm(RECEIVER_KEY + u32::from(shim.flow), due);
        self.discard();
    }

    fn discard(&mut self) {
        for buf in self.released.waste.drain(..) {
            self.pool.give(buf);
        }
    }

    /// Does what is due. False: there is more, call again after reading.
    pub fn poll(&mut self, now_ns: u64, fx: &mut Effects) -> bool {
        for _ in 0..TIMERS_PER_POLL {
            match self.timers.pop(now_ns) {
                None => return true,
                Some(HELLO_KEY) => self.greet(now_ns, fx),
                Some(key) if key >= RECEIVER_KEY => self.serve_receiver((key - RECEIVER_KEY) as u16, now_ns, fx),
                Some(key) => {
                    let is_open = !self.must_seal;
                    if let Some(sender) = self.senders[key as usize].as_mut().filter(|s| is_open || s.is_sealing()) {
                        sender.keep_alives(now_ns, &mut self.pool, &mut fx.network);
                    }
                    self.serve_sender(key as u16, now_ns, fx);
                }
            }
        }
        false
    }

    fn serve_receiver(&mut self, number: u16, now_ns: u64, fx: &mut Effects) {
        if let Some(receiver) = &mut self.receivers[usize::from(number)] {
            receiver.poll(now_ns, &mut self.released);
            receiver.join(&mut self.pool, &mut self.released);
            fx.access.append(&mut self.released.deliver);
            fx.notices.extend(receiver.notice(now_ns).map(|paths| (number, paths)));
            let due = receiver.next_due(now_ns);
            self.timers.arm(RECEIVER_KEY + u32::from(number), due);
        }
        self.discard();
    }

    fn greet(&mut self, now_ns: u64, fx: &mut Effects) {
        if self.hello_senders.is_empty() {
            return;
        }
        let interval_ns = u64::from(self.hello_interval_ms) * MS;
        if self.hello_ns + interval_ns <= now_ns {
            let planned = self.hello_ns + interval_ns;
            // Late by more than an interval: no burst to catch up.
            self.hello_ns = if now_ns - planned < interval_ns { planned } else { now_ns };
            self.hello_sequence = self.hello_sequence.wrapping_add(1);
            let hello = Hello { interval_ms: self.hello_interval_ms, sequence: self.hello_sequence };
            for sender in &self.hello_senders {
                if let Some(mut buf) = self.pool.take() {
                    buf.set(&match &self.hello_signing {
                        Some(signing) => signing.hello(&sender.mac, &hello),
                        None => hello.encode(),
                    });
                    if let Some(room) = buf.prepend(sender.header.len()) {
                        room.copy_from_slice(&sender.header);
                    }
                    fx.network.push((sender.exit, buf));
                }
            }
        }
        self.timers.arm(HELLO_KEY, Some(self.hello_ns + interval_ns));
    }

    /// The agent did nothing in this time. A hello interval may well pass while others have the processor or while there is
    /// much to do; what is longer than that is no time of listening.
    pub fn absent(&mut self, from_ns: u64, to_ns: u64) {
        if to_ns.saturating_sub(from_ns) > u64::from(self.hello_interval_ms) * MS {
            self.liveness.unobserved(from_ns, to_ns);
        }
    }

    /// Looks for dead links. To be called only once all that arrived until `now_ns` has been handed in.
    pub fn poll_links(&mut self, now_ns: u64, fx: &mut Effects) {
        self.liveness.poll(now_ns, &mut fx.changes);
    }

    /// When `poll` or `poll_links` has something to do.
    pub fn next_due(&mut self) -> Option<u64> {
        match (self.timers.next_due(), self.liveness.next_due()) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }
}

#[cfg(test)]
#[path = "handover_tests.rs"]
mod handover_tests;
#[cfg(test)]
#[path = "engine_seal_tests.rs"]
mod seal_tests;
#[cfg(test)]
#[path = "engine_tests.rs"]
mod tests;
