//! One interface of the client, or how the waypoint reaches it: whether it carries, how fast, and what it was given.

use super::config::Via;
use super::flow::Item;
use crate::edge::pace::Pacer;
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

const MS: u64 = 1_000_000;
/// How far pacing may catch up.
const BURST_NS: u64 = MS;
const LONGEST_PACKET: usize = 1600;
/// A packet of several segments takes the interface no longer than this: others wait behind it.
const PIECE_NS: f64 = 1e6;
/// The same of datagrams of the tunnel that leave in one call, on an interface that has been full lately: two full
/// packets take this long at 100 Mb/s.
const FULL_BURST_NS: f64 = 0.25e6;
/// At a configured rate up to this there is nothing to gain from such packets.
const PLAIN_MBPS: f64 = 100.0;
/// Longest IP packet.
const LONGEST_PIECE: usize = 65_535;
/// UDP payload that the kernel takes in one call and cuts into datagrams.
const LONGEST_BURST: usize = 65_000;
/// Tunnel datagrams are about this long, at the least, where many leave at a time.
const BURST_PACKET: usize = 1024;
/// Datagrams that an interface was given last and may not have sent when it dies: two below the queue and those in the
/// device.
const RETAINED: usize = 8;
/// What was given longer ago has left, or another packet would not have been taken since.
const RETAINED_NS: u64 = 400 * MS;
/// Hellos: while packets come and go, else, and how many may be missed.
pub const BUSY_HELLO_NS: u64 = 100 * MS;
pub const IDLE_HELLO_NS: u64 = 1_000 * MS;
const BUSY_NS: u64 = 2_000 * MS;
const MISSED: u32 = 3;
/// After so many hellos without an answer there is no hurry: they may be paid for.
const LONG_UNANSWERED: u32 = 50;
/// For the answer to the first hello, and beyond the round trip.
const PATIENCE_NS: u64 = 300 * MS;
/// An interface that has been full within this time is known by what it carried then.
const FULL_NS: u64 = 10_000 * MS;
const RATE_BIN_NS: u64 = 100 * MS;
/// The greatest rate is forgotten by this much in each bin: half in ten seconds.
const FORGET: f64 = 0.993;

/// What the host says of an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkState {
    /// It is there, set up, and has a carrier.
    pub up: bool,
    pub address4: Option<Ipv4Addr>,
    pub address6: Option<Ipv6Addr>,
    /// IP bytes.
    pub mtu: u32,
}

impl LinkState {
    pub fn address(&self, is_ipv4: bool) -> Option<IpAddr> {
        match is_ipv4 {
            true => self.address4.map(IpAddr::V4),
            false => self.address6.map(IpAddr::V6),
        }
    }
}

/// Whether the other end answers over an interface.
#[derive(Clone, Debug, Default)]
pub struct Heartbeat {
    pub next_ns: u64,
    /// Hellos since the last answer.
    unanswered: u32,
    asked_ns: u64,
    heard_ns: u64,
    pub rtt_ns: Option<u64>,
    pub alive: Option<bool>,
}

impl Heartbeat {
    /// A hello leaves now.
    pub fn asked(&mut self, now_ns: u64, busy: bool) {
        if self.unanswered == 0 {
            self.asked_ns = now_ns;
        }
        self.unanswered += 1;
        let is_urgent = self.unanswered <= LONG_UNANSWERED && (busy || self.unanswered > 1);
        self.next_ns = now_ns + if is_urgent { BUSY_HELLO_NS } else { IDLE_HELLO_NS };
    }

    /// An answer came; true if the interface was not alive before.
    pub fn answered(&mut self, now_ns: u64, rtt_ns: u64) -> bool {
        self.unanswered = 0;
        self.heard_ns = now_ns;
        self.rtt_ns = Some(self.rtt_ns.map_or(rtt_ns, |old| (old * 7 + rtt_ns) / 8));
        self.alive.replace(true) != Some(true)
    }

    /// Anything else came over the interface.
    pub fn heard(&mut self, now_ns: u64) {
        self.heard_ns = now_ns;
    }

    /// True if it dies now: some hellos were not answered, and nothing else came since.
    pub fn dies(&mut self, now_ns: u64) -> bool {
        let patience_ns = PATIENCE_NS + 2 * self.rtt_ns.unwrap_or(0);
        let since_ns = self.asked_ns.max(self.heard_ns);
        let dead = self.unanswered >= MISSED && now_ns.saturating_sub(since_ns) > patience_ns;
        dead && self.alive.replace(false) != Some(false)
    }

    /// How long nothing has come over it.
    pub fn silent_for(&self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.heard_ns)
    }

    /// It was unplugged: what was known is of no use.
    pub fn reset(&mut self) {
        *self = Heartbeat { rtt_ns: self.rtt_ns, ..Heartbeat::default() };
    }
}

/// The greatest rate of late.
#[derive(Clone, Debug, Default)]
struct Peak {
    since_ns: u64,
    bytes: u64,
    mbps: f64,
    /// Of the last bin.
    latest_mbps: f64,
}

impl Peak {
    fn add(&mut self, now_ns: u64, bytes: usize) {
        let elapsed_ns = now_ns.saturating_sub(self.since_ns);
        if elapsed_ns >= RATE_BIN_NS {
            let mbps = self.bytes as f64 * 8e3 / elapsed_ns as f64;
            let bins = (elapsed_ns / RATE_BIN_NS).min(1000) as i32;
            self.mbps = (self.mbps * FORGET.powi(bins)).max(mbps);
            self.latest_mbps = mbps;
            (self.since_ns, self.bytes) = (now_ns, 0);
        }
        self.bytes += bytes as u64;
    }

    /// Whether the last bin tells nothing of the present.
    fn is_stale(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.since_ns) > 3 * RATE_BIN_NS
    }
}

#[derive(Clone, Debug, Default)]
pub struct LinkCounters {
    pub sent_bytes: u64,
    pub sent_packets: u64,
    pub received_bytes: u64,
    pub received_packets: u64,
    pub resent_packets: u64,
    pub lost_packets: u64,
}

#[derive(Debug)]
pub struct Link {
    pub name: String,
    pub state: LinkState,
    /// The configuration, or at the waypoint the client, lets it be used.
    pub usable: bool,
    pub rate_mbps: Option<f64>,
    pacer: Pacer,
    /// Whether packets of IPv4, and of IPv6, that stand for several TCP segments may be given to it now.
    pub takes_segments: [bool; 2],
    /// Whether it may be given many datagrams of the tunnel at a time.
    pub takes_bursts: bool,
    /// Where datagrams of the tunnel go over this interface.
    pub endpoint: Option<SocketAddr>,
    pub heartbeat: Heartbeat,
    /// The serial of the newest hello that came over it.
    pub heard_serial: u32,
    /// The last datagrams it was given: when, of which flow.
    given: VecDeque<(u64, usize, Item)>,
    /// To be sent before all others: copies, and what a dead interface was given.
    pub first: VecDeque<(usize, Item)>,
    sent_peak: Peak,
    received_peak: Peak,
    used_ns: u64,
    full_ns: Option<u64>,
    /// Until then direct flows prefer others: a connection over it was not answered.
    pub unanswered_until_ns: u64,
    /// Since when it does not carry.
    pub down_ns: Option<u64>,
    /// Name servers that only this interface's network answers for.
    pub dns: Vec<IpAddr>,
    pub counters: LinkCounters,
}

impl Link {
    pub fn new(name: &str) -> Self {
        Link {
            name: name.to_string(),
            state: LinkState::default(),
            usable: true,
            rate_mbps: None,
            pacer: Pacer::new(0, None, LONGEST_PACKET, BURST_NS),
            takes_segments: [false; 2],
            takes_bursts: false,
            endpoint: None,
            heartbeat: Heartbeat::default(),
            heard_serial: 0,
            given: VecDeque::with_capacity(RETAINED),
            first: VecDeque::new(),
            sent_peak: Peak::default(),
            received_peak: Peak::default(),
            used_ns: 0,
            full_ns: None,
            unanswered_until_ns: 0,
            down_ns: Some(0),
            dns: Vec::new(),
            counters: LinkCounters::default(),
        }
    }

    pub fn set_rate(&mut self, now_ns: u64, rate_mbps: Option<f64>) {
        if self.rate_mbps != rate_mbps {
            self.rate_mbps = rate_mbps;
            self.pacer.set_rate(now_ns, rate_mbps, LONGEST_PACKET, BURST_NS);
        }
    }

    /// Whether packets of a flow may go over it. `is_ipv4` is the family of the flow's packets.
    pub fn carries(&self, via: Via, is_ipv4: bool) -> bool {
        let open = self.usable && self.state.up;
        match via {
            Via::Direct => open && self.state.address(is_ipv4).is_some(),
            Via::Waypoint => open && self.reaches_waypoint() && self.heartbeat.alive != Some(false),
        }
    }

    /// Whether it has an address of the family that the tunnel needs.
    pub fn reaches_waypoint(&self) -> bool {
        self.endpoint.map_or(false, |to| self.state.address(to.is_ipv4()).is_some())
    }

    /// When a packet of so many bytes may leave; None if never.
    pub fn ready_at(&self, now_ns: u64, bytes: usize) -> Option<u64> {
        self.pacer.ready_at(now_ns, bytes)
    }

    /// How many bytes a packet of several segments may have; 0: only plain packets. What an interface carries of itself
    /// is known after it has carried plain packets for a while.
    pub fn piece_bytes(&self, is_ipv6: bool) -> usize {
        let mbps = match self.rate_mbps {
            _ if !self.takes_segments[usize::from(is_ipv6)] => return 0,
            Some(rate_mbps) if rate_mbps <= PLAIN_MBPS => return 0,
            Some(rate_mbps) => rate_mbps,
            None => self.sent_peak.mbps,
        };
        ((mbps * PIECE_NS / 8e3) as usize).min(LONGEST_PIECE)
    }

    /// How many bytes datagrams of the tunnel that leave in one call may have together; 0: one datagram a call. It
    /// follows the rate of the last moment: an interface that has become slow is given few again.
    pub fn burst_bytes(&self, now_ns: u64) -> usize {
        let mbps = match self.rate_mbps {
            _ if !self.takes_bursts => return 0,
            Some(rate_mbps) if rate_mbps <= PLAIN_MBPS => return 0,
            Some(rate_mbps) => rate_mbps.min(self.sent_peak.latest_mbps),
            None => self.sent_peak.latest_mbps,
        };
        if self.sent_peak.is_stale(now_ns) {
            return 0;
        }
        let span_ns = if self.was_full(now_ns) { FULL_BURST_NS } else { PIECE_NS };
        ((mbps * span_ns / 8e3) as usize).min(LONGEST_BURST)
    }

    /// A packet was given to the interface.
    pub fn sent(&mut self, now_ns: u64, bytes: usize, packets: usize) {
        self.pacer.sent(now_ns, bytes);
        self.sent_peak.add(now_ns, bytes);
        self.used_ns = now_ns;
        self.counters.sent_bytes += bytes as u64;
        self.counters.sent_packets += packets as u64;
    }

    pub fn received(&mut self, now_ns: u64, bytes: usize) {
        self.received_peak.add(now_ns, bytes);
        self.used_ns = now_ns;
        self.counters.received_bytes += bytes as u64;
        self.counters.received_packets += 1;
    }

    /// Keeps a datagram until later ones have pushed it out.
    pub fn keep(&mut self, now_ns: u64, slot: usize, item: Item) {
        self.given.push_back((now_ns, slot, item));
    }

    /// A datagram that is no longer to be kept. Twice what may leave in one call may still be below the queue.
    pub fn pushed_out(&mut self, now_ns: u64) -> Option<Item> {
        let most = RETAINED + 2 * self.burst_bytes(now_ns) / BURST_PACKET;
        if self.given.len() <= most {
            return None;
        }
        self.given.pop_front().map(|(_, _, item)| item)
    }

    /// What the interface may still hold, oldest first; the others are `spent`.
    pub fn take_given(&mut self, now_ns: u64, spent: &mut Vec<Item>) -> Vec<(usize, Item)> {
        let mut out = Vec::new();
        for (given_ns, slot, item) in self.given.drain(..) {
            match now_ns.saturating_sub(given_ns) <= RETAINED_NS {
                true => out.push((slot, item)),
                false => spent.push(item),
            }
        }
        out
    }

    /// Takes out what it keeps of a flow that has ended.
    pub fn take_of(&mut self, slot: usize, spent: &mut Vec<Item>) {
        if self.given.iter().any(|given| given.1 == slot) {
            for (given_ns, of, item) in std::mem::take(&mut self.given) {
                if of == slot {
                    spent.push(item);
                } else {
                    self.given.push_back((given_ns, of, item));
                }
            }
        }
        if self.first.iter().any(|first| first.0 == slot) {
            for (of, item) in std::mem::take(&mut self.first) {
                if of == slot {
                    spent.push(item);
                } else {
                    self.first.push_back((of, item));
                }
            }
        }
    }

    /// Whether packets came or went lately.
    pub fn is_busy(&self, now_ns: u64) -> bool {
        self.used_within(now_ns, BUSY_NS)
    }

    /// Whether a packet was given to it within this time.
    pub fn used_within(&self, now_ns: u64, span_ns: u64) -> bool {
        self.used_ns > 0 && now_ns.saturating_sub(self.used_ns) < span_ns
    }

    /// It had no room.
    pub fn note_full(&mut self, now_ns: u64) {
        self.full_ns = Some(now_ns);
    }

    /// What it carries at most, Mb/s, as far as that is known: configured, or seen when it was full.
    pub fn limit_mbps(&self, now_ns: u64) -> Option<f64> {
        self.rate_mbps.or(Some(self.sent_peak.mbps).filter(|mbps| self.was_full(now_ns) && *mbps > 0.0))
    }

    fn was_full(&self, now_ns: u64) -> bool {
        self.full_ns.map_or(false, |at_ns| now_ns.saturating_sub(at_ns) < FULL_NS)
    }

    /// What it is configured to carry, or has carried of late, Mb/s; None if neither is known.
    pub fn known_rate_mbps(&self) -> Option<f64> {
        let seen = self.sent_peak.mbps.max(self.received_peak.mbps);
        self.rate_mbps.or(if seen > 0.0 { Some(seen) } else { None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heart_that_is_not_answered_stops_and_begins_again() {
        let mut heart = Heartbeat::default();
        let mut now_ns = MS;
        assert!(heart.alive.is_none());
        heart.asked(now_ns, true);
        assert!(heart.answered(now_ns + 20 * MS, 20 * MS));
        assert!(!heart.answered(now_ns + 21 * MS, 20 * MS));
        let mut died_ns = None;
        while died_ns.is_none() {
            now_ns = heart.next_ns;
            heart.asked(now_ns, true);
            died_ns = Some(now_ns).filter(|now| heart.dies(*now));
            assert!(now_ns < 2_000 * MS);
        }
        assert!(now_ns >= MS + 20 * MS + PATIENCE_NS);
        assert!(!heart.dies(now_ns + MS) && heart.alive == Some(false));
        assert!(heart.answered(now_ns + 2 * MS, 30 * MS));
    }

    #[test]
    fn packets_that_come_keep_it_alive() {
        let mut heart = Heartbeat::default();
        heart.asked(0, true);
        heart.answered(MS, MS);
        for step in 1..50 {
            heart.asked(step * 100 * MS, true);
            heart.heard(step * 100 * MS + 50 * MS);
            assert!(!heart.dies(step * 100 * MS + 99 * MS));
        }
    }

    #[test]
    fn the_greatest_rate_fades() {
        let mut peak = Peak::default();
        (1..100).for_each(|k| peak.add(k * 10 * MS, 12_500));
        assert!((peak.mbps - 10.0).abs() < 1.5, "{}", peak.mbps);
        peak.add(30_000 * MS, 1);
        assert!(peak.mbps < 2.0, "{}", peak.mbps);
    }

    /// Carries packets at a rate for a while; when it ends.
    fn carry(link: &mut Link, from_ns: u64, mbps: f64, ms: u64) -> u64 {
        let step_ns = (1500.0 * 8e3 / mbps) as u64;
        let times = ms * MS / step_ns;
        (0..times).for_each(|k| link.sent(from_ns + k * step_ns, 1500, 1));
        from_ns + times * step_ns
    }

    #[test]
    fn bursts_are_as_long_as_the_rate_of_the_last_moment_allows() {
        let mut link = Link::new("wlan0");
        let mut now_ns = carry(&mut link, 1_000 * MS, 1_000.0, 250);
        assert_eq!(link.burst_bytes(now_ns), 0, "the socket does not take any");
        link.takes_bursts = true;
        assert_eq!(link.burst_bytes(now_ns), LONGEST_BURST);
        // What has no room is given a quarter of a millisecond: at 100 Mb/s two packets, below that one.
        link.note_full(now_ns);
        assert!((29_000..33_000).contains(&link.burst_bytes(now_ns)), "{}", link.burst_bytes(now_ns));
        for (mbps, packets) in [(100.0, 2), (50.0, 1), (20.0, 0)] {
            now_ns = carry(&mut link, now_ns, mbps, 300);
            assert!(link.burst_bytes(now_ns) / 1500 <= packets, "{mbps} Mb/s: {} bytes", link.burst_bytes(now_ns));
        }
        // Where nothing pushes back, it may be a millisecond; what is long ago tells nothing.
        now_ns = carry(&mut link, now_ns + 20_000 * MS, 200.0, 300);
        assert!((23_000..27_000).contains(&link.burst_bytes(now_ns)), "{}", link.burst_bytes(now_ns));
        assert_eq!(link.burst_bytes(now_ns + 1_000 * MS), 0);
        link.set_rate(now_ns, Some(PLAIN_MBPS));
        assert_eq!(link.burst_bytes(now_ns), 0);
        link.set_rate(now_ns, Some(150.0));
        assert!((17_000..20_000).contains(&link.burst_bytes(now_ns)));
    }

    #[test]
    fn only_what_was_given_lately_is_given_again() {
        let mut link = Link::new("wlan0");
        let item = || Item::new(crate::edge::buffer::Buf::with_size(1), 0);
        for k in 0..RETAINED {
            link.keep(k as u64 * 100 * MS, k, item());
            assert!(link.pushed_out(k as u64 * 100 * MS).is_none());
        }
        link.keep(800 * MS, 99, item());
        assert!(link.pushed_out(800 * MS).is_some() && link.pushed_out(800 * MS).is_none());
        let mut spent = Vec::new();
        let again: Vec<usize> = link.take_given(800 * MS, &mut spent).into_iter().map(|(slot, _)| slot).collect();
        assert_eq!((again, spent.len()), (vec![4, 5, 6, 7, 99], 3));
    }
}
