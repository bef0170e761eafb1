//! The sending end of one flow: bounded queue, split, pacing, sequence numbers, keep-alives. Sans I/O: time is an
//! argument.

use super::buffer::{Buf, Pool};
use super::frame::{outer_header, Kind, Shim, ETHERNET_LEN, SHIM_LEN, TYPE_AGENT};
use super::pace::Pacer;
use super::protocol::{Ingress, OutPath};
use super::split::Split;
use crate::sys::interface::Mac;
use std::collections::{BTreeMap, VecDeque};

const MS: u64 = 1_000_000;
/// The queue holds at least this many frames however slow the flow is.
const MIN_QUEUE_FRAMES: usize = 32;
/// The queue of an unshaped flow only bridges a moment of the device having no room.
const UNSHAPED_QUEUE_BYTES: usize = 2_000_000;
/// What waited this long is of no use to anybody: flows without a usable path.
const MAX_AGE_NS: u64 = 5_000 * MS;
/// An idle path of an active flow sends keep-alives this often, an idle flow's less often, a forgotten flow's rarely.
const KEEP_ALIVE: [(u64, u64); 3] = [(500 * MS, 20 * MS), (10_000 * MS, 500 * MS), (u64::MAX, 2_000 * MS)];
/// Where frames go if the switch fills in the addresses.
pub const SWITCH_MAC: Mac = [2, 0x48, 0x79, 0, 0, 0];

/// Where a path's frames leave: index of the interface and its MAC.
pub type Exit = (usize, Mac);

#[derive(Debug)]
pub struct PathOut {
    pub spec: OutPath,
    pub sent_frames: u64,
    pub sent_bytes: u64,
    exit: Exit,
    header: Vec<u8>,
    pacer: Pacer,
    sent_ns: u64,
}

impl PathOut {
    fn new(now_ns: u64, spec: &OutPath, exit: Exit, burst_ns: u64) -> Self {
        PathOut {
            spec: spec.clone(),
            sent_frames: 0,
            sent_bytes: 0,
            exit,
            header: path_header(spec, exit),
            pacer: Pacer::new(now_ns, spec.rate_mbps, spec.mtu, burst_ns),
            // A first keep-alive at once: it tells the receiver where the sequence starts.
            sent_ns: 0,
        }
    }

    fn weight(&self) -> f64 {
        self.spec.rate_mbps.unwrap_or(self.spec.weight)
    }

    fn usable(&self) -> bool {
        self.weight() > 0.0
    }
}

fn path_header(spec: &OutPath, exit: Exit) -> Vec<u8> {
    outer_header(spec.dst_mac.unwrap_or(SWITCH_MAC), exit.1, &spec.labels, TYPE_AGENT)
}

/// What became of a frame that was offered.
#[derive(Debug)]
pub enum Offer {
    Queued,
    Dropped(Buf),
    /// It does not fit; the largest inner frame that does.
    TooBig(Buf, usize),
}

#[derive(Debug)]
pub struct Sender {
    pub number: u16,
    pub dropped: u64,
    pub too_big: u64,
    pub sent: u64,
    paths: Vec<PathOut>,
    split: Split,
    queue: VecDeque<(u64, Buf)>,
    queued_bytes: usize,
    queue_limit: usize,
    queue_ms: u64,
    max_inner: usize,
    sequence: u32,
    data_ns: u64,
    burst_ns: u64,
}

/// A frame to put on an interface.
pub type Outgoing = (usize, Buf);

impl Sender {
    /// `first` is the first sequence number: random, so that a receiver notices a restart.
    pub fn new(now_ns: u64, spec: &Ingress, exits: &[Exit], first: u32, burst_ns: u64) -> Self {
        let mut sender = Sender {
            number: spec.number,
            dropped: 0,
            too_big: 0,
            sent: 0,
            paths: Vec::new(),
            split: Split::default(),
            queue: VecDeque::new(),
            queued_bytes: 0,
            queue_limit: 0,
            queue_ms: spec.queue_ms,
            max_inner: 0,
            sequence: first,
            data_ns: now_ns.saturating_sub(KEEP_ALIVE[0].0),
            burst_ns,
        };
        let paths = spec.paths.iter().zip(exits);
        sender.paths = paths.map(|(path, exit)| PathOut::new(now_ns, path, *exit, burst_ns)).collect();
        let fresh = vec![None; sender.paths.len()];
        sender.reweigh(&fresh);
        sender
    }

    pub fn paths(&self) -> &[PathOut] {
        &self.paths
    }

    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    pub fn reset_counters(&mut self) {
        self.dropped = 0;
        self.too_big = 0;
        self.sent = 0;
        for path in &mut self.paths {
            path.sent_frames = 0;
            path.sent_bytes = 0;
        }
    }

    /// A new configuration. Paths with an id that stays keep pacing, split credit and counters; a path that goes says
    /// so.
    pub fn update(&mut self, now_ns: u64, spec: &Ingress, exits: &[Exit], pool: &mut Pool, out: &mut Vec<Outgoing>) {
        self.queue_ms = spec.queue_ms;
        let mut old: Vec<Option<PathOut>> = std::mem::take(&mut self.paths).into_iter().map(Some).collect();
        let mut from = Vec::new();
        for (path, exit) in spec.paths.iter().zip(exits) {
            let at = old.iter().position(|p| p.as_ref().map_or(false, |p| p.spec.id == path.id));
            from.push(at);
            match at.and_then(|i| old[i].take()) {
                Some(mut kept) => {
                    let used = kept.usable();
                    kept.pacer.set_rate(now_ns, path.rate_mbps, path.mtu, self.burst_ns);
                    kept.spec = path.clone();
                    if used && !kept.usable() {
                        out.extend(signal(&mut kept, now_ns, Kind::Pause, self.number, self.sequence, pool));
                    }
                    kept.exit = *exit;
                    kept.header = path_header(path, *exit);
                    self.paths.push(kept);
                }
                None => self.paths.push(PathOut::new(now_ns, path, *exit, self.burst_ns)),
            }
        }
        for mut gone in old.into_iter().flatten().filter(PathOut::usable) {
            out.extend(signal(&mut gone, now_ns, Kind::Pause, self.number, self.sequence, pool));
        }
        self.reweigh(&from);
        self.trim(pool);
    }

    /// The fast way: new rates of some paths; a path that isn't named keeps its rate.
    pub fn set_rates(
        &mut self,
        now_ns: u64,
        rates: &BTreeMap<u8, Option<f64>>,
        pool: &mut Pool,
        out: &mut Vec<Outgoing>,
    ) {
        for path in &mut self.paths {
            if let Some(rate) = rates.get(&path.spec.id) {
                let used = path.usable();
                path.spec.rate_mbps = *rate;
                path.pacer.set_rate(now_ns, *rate, path.spec.mtu, self.burst_ns);
                if used && !path.usable() {
                    out.extend(signal(path, now_ns, Kind::Pause, self.number, self.sequence, pool));
                }
            }
        }
        let same: Vec<Option<usize>> = (0..self.paths.len()).map(Some).collect();
        self.reweigh(&same);
        self.trim(pool);
    }

    pub fn knows_path(&self, id: u8) -> bool {
        self.paths.iter().any(|p| p.spec.id == id)
    }

    fn reweigh(&mut self, from: &[Option<usize>]) {
        let weights: Vec<f64> = self.paths.iter().map(PathOut::weight).collect();
        self.split.set_weights(&weights, from);
        let unshaped = self.paths.iter().any(|p| p.spec.rate_mbps.is_none());
        let total_mbps: f64 = weights.iter().sum();
        self.queue_limit = match unshaped {
            true => UNSHAPED_QUEUE_BYTES,
            false => (total_mbps * 125.0 * self.queue_ms as f64) as usize,
        };
        let room = |p: &PathOut| p.spec.mtu - p.spec.overhead();
        let used = self.paths.iter().filter(|p| p.usable()).map(room).min();
        self.max_inner = used.or_else(|| self.paths.iter().map(room).min()).unwrap_or(usize::MAX);
    }

    /// Drops the oldest of what a slower flow can't send in time any more.
    fn trim(&mut self, pool: &mut Pool) {
        while self.queue.len() > MIN_QUEUE_FRAMES && self.queued_bytes > self.queue_limit {
            self.drop_head(pool);
        }
    }

    fn drop_head(&mut self, pool: &mut Pool) {
        if let Some((_, buf)) = self.queue.pop_front() {
            self.queued_bytes -= buf.len();
            self.dropped += 1;
            pool.give(buf);
        }
    }

    /// Takes a user's frame.
    pub fn offer(&mut self, now_ns: u64, buf: Buf) -> Offer {
        if buf.len() > self.max_inner {
            self.too_big += 1;
            return Offer::TooBig(buf, self.max_inner);
        }
        self.data_ns = now_ns;
        if self.queue.len() >= MIN_QUEUE_FRAMES && self.queued_bytes + buf.len() > self.queue_limit {
            self.dropped += 1;
            return Offer::Dropped(buf);
        }
        self.queued_bytes += buf.len();
        self.queue.push_back((now_ns, buf));
        Offer::Queued
    }

    fn choose(&self) -> Option<(usize, usize)> {
        let inner = self.queue.front()?.1.len();
        let path = self.split.choose(|i| inner + self.paths[i].spec.overhead())?;
        Some((path, inner + self.paths[path].spec.overhead()))
    }

    /// The next frame if one may leave now, labelled and stamped.
    pub fn next(&mut self, now_ns: u64, pool: &mut Pool) -> Option<Outgoing> {
        while self.queue.front().map_or(false, |(at, _)| now_ns.saturating_sub(*at) > MAX_AGE_NS) {
            self.drop_head(pool);
        }
        let (index, len) = self.choose()?;
        if self.paths[index].pacer.ready_at(now_ns, len)? > now_ns {
            return None;
        }
        let (_, mut buf) = self.queue.pop_front()?;
        self.queued_bytes -= buf.len();
        let path = &mut self.paths[index];
        put_headers(&mut buf, path, Kind::Data, self.number, self.sequence, now_ns);
        self.sequence = self.sequence.wrapping_add(1);
        self.split.sent(index, len);
        path.pacer.sent(now_ns, len);
        path.sent_ns = now_ns;
        path.sent_frames += 1;
        path.sent_bytes += len as u64;
        self.sent += 1;
        Some((path.exit.0, buf))
    }

    fn keep_alive_interval(&self, now_ns: u64) -> u64 {
        let idle = now_ns.saturating_sub(self.data_ns);
        KEEP_ALIVE.iter().find(|(until, _)| idle < *until).map_or(KEEP_ALIVE[2].1, |(_, interval)| *interval)
    }

    /// Keep-alives that are due.
    pub fn keep_alives(&mut self, now_ns: u64, pool: &mut Pool, out: &mut Vec<Outgoing>) {
        let interval = self.keep_alive_interval(now_ns);
        let (number, sequence) = (self.number, self.sequence);
        for path in self.paths.iter_mut().filter(|p| p.usable()) {
            if path.sent_ns + interval <= now_ns {
                path.sent_ns = now_ns;
                out.extend(signal(path, now_ns, Kind::KeepAlive, number, sequence, pool));
            }
        }
    }

    /// When a frame may leave, or a keep-alive is due.
    pub fn next_due(&self, now_ns: u64) -> Option<u64> {
        let interval = self.keep_alive_interval(now_ns);
        let alive = self.paths.iter().filter(|p| p.usable()).map(|p| p.sent_ns + interval).min();
        let data = self.choose().and_then(|(path, len)| self.paths[path].pacer.ready_at(now_ns, len));
        match (alive, data) {
            (Some(a), Some(d)) => Some(a.min(d)),
            (a, d) => a.or(d),
        }
    }

    /// Gives everything back.
    pub fn dismiss(mut self, now_ns: u64, pool: &mut Pool, out: &mut Vec<Outgoing>) {
        for path in self.paths.iter_mut().filter(|p| p.usable()) {
            out.extend(signal(path, now_ns, Kind::Pause, self.number, self.sequence, pool));
        }
        for (_, buf) in self.queue.drain(..) {
            pool.give(buf);
        }
    }
}

fn put_headers(buf: &mut Buf, path: &PathOut, kind: Kind, flow: u16, sequence: u32, now_ns: u64) {
    let head = path.header.len();
    // The headroom holds MAX_LABELS labels, which the configuration was checked for.
    if let Some(room) = buf.prepend(head + SHIM_LEN) {
        room[..head].copy_from_slice(&path.header);
        let sent_us = (now_ns / 1000) as u32;
        let shim = Shim { kind, path: path.spec.id, flow, sequence, sent_us };
        shim.encode(&mut room[head..]);
    }
}

/// A frame without an inner frame; it counts for the pacing, but does not wait for it.
fn signal(path: &mut PathOut, now_ns: u64, kind: Kind, flow: u16, sequence: u32, pool: &mut Pool) -> Option<Outgoing> {
    let mut buf = pool.take()?;
    put_headers(&mut buf, path, kind, flow, sequence, now_ns);
    let bytes = buf.len() - ETHERNET_LEN;
    path.pacer.sent(now_ns, bytes);
    path.sent_frames += 1;
    path.sent_bytes += bytes as u64;
    Some((path.exit.0, buf))
}

#[cfg(test)]
#[path = "sender_tests.rs"]
mod tests;
