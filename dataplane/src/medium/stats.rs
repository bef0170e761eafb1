//! Counters of the medium as they are reported.

use super::model::Model;
use super::parts::Counters;
use serde::Serialize;

/// One link since the last reset.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LinkStats<'a> {
    /// Identifier.
    pub id: &'a str,
    /// Whether it is up.
    pub up: bool,
    /// Capacity in Mb/s.
    pub capacity_mbps: f64,
    /// Frames that arrived.
    pub frames: u64,
    /// L2 payload of those.
    pub bytes: u64,
    /// Frames that found the queue full or the link down, or waited when it was cut.
    pub dropped: u64,
    /// Frames that were sent and did not arrive.
    pub lost: u64,
    /// Transmissions that collided, each for as long as its frames take.
    pub collisions: u64,
    /// Frames of a radio that were sent and not received, and were sent again.
    pub retries: u64,
    /// Share of time that the link was sending, collisions included.
    pub airtime: f64,
    /// Share of time that any link of its domain was sending.
    pub busy: f64,
    /// Frames waiting now.
    pub queued: usize,
    /// Mean time that sent frames had waited, in milliseconds.
    pub queue_delay_ms: f64,
}

/// The broadcast link of a port since the last reset.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BroadcastStats {
    /// Frames sent.
    pub frames: u64,
    /// Copies that arrived.
    pub copies: u64,
    /// L2 payload of those copies.
    pub bytes: u64,
    /// Frames that were dropped before they were sent.
    pub dropped: u64,
    /// Copies that did not arrive.
    pub lost: u64,
    /// Share of time that it was sending.
    pub airtime: f64,
    /// Frames waiting now.
    pub queued: usize,
}

/// One port since the last reset.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PortStats<'a> {
    /// Name.
    pub name: &'a str,
    /// Frames from the host.
    pub received_frames: u64,
    /// Frames to the host.
    pub sent_frames: u64,
    /// Frames the host had no room for.
    pub refused: u64,
    /// Frames from the host for which there is no link.
    pub unknown: u64,
    /// Group frames; None if no link leaves the port.
    pub broadcast: Option<BroadcastStats>,
    /// Share of time that the port sent or heard somebody; None if it has no ears.
    pub busy: Option<f64>,
}

/// Sums over links (without broadcast) and ports since the last reset.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct TotalStats {
    /// Frames from all hosts.
    pub received: u64,
    /// Of those, frames without a link.
    pub unknown: u64,
    /// Frames that arrived, by link.
    pub frames: u64,
    /// L2 payload of those.
    pub bytes: u64,
    /// Frames dropped before they were sent.
    pub dropped: u64,
    /// Frames sent that did not arrive.
    pub lost: u64,
    /// Frames waiting now.
    pub queued: u64,
    /// Frames in the air or on their way now.
    pub in_flight: u64,
}

impl Model {
    /// Seconds since the last reset.
    pub fn elapsed_s(&self) -> f64 {
        (self.now_ns - self.reset_ns) as f64 / 1e9
    }

    fn share(&self, ns: u64) -> f64 {
        let elapsed_ns = self.now_ns - self.reset_ns;
        if elapsed_ns == 0 {
            return 0.0;
        }
        ns as f64 / elapsed_ns as f64
    }

    /// Airtime without the part of the present transmission that is still to come.
    fn airtime(&self, l: usize) -> f64 {
        let link = &self.links[l];
        self.share(link.counters.air_ns.saturating_sub(link.end_ns.saturating_sub(self.now_ns)))
    }

    /// Counters of a configured link.
    pub fn link_stats<'a>(&self, l: usize, id: &'a str) -> LinkStats<'a> {
        let link = &self.links[l];
        let Counters { frames, bytes, dropped, lost, sent, collisions, retries, queue_delay_ns, .. } = link.counters;
        LinkStats {
            id,
            up: link.state.up,
            capacity_mbps: link.state.capacity_mbps,
            frames,
            bytes,
            dropped,
            lost,
            collisions,
            retries,
            airtime: self.airtime(l),
            busy: self.share(self.access.busy_ns(l, self.now_ns)),
            queued: link.queued(),
            queue_delay_ms: queue_delay_ns as f64 / 1e6 / sent.max(1) as f64,
        }
    }

    /// Counters of a port.
    pub fn port_stats<'a>(&self, p: usize, name: &'a str) -> PortStats<'a> {
        let port = &self.ports[p];
        let broadcast = port.broadcast.map(|b| {
            let Counters { sent, frames, bytes, dropped, lost, .. } = self.links[b].counters;
            let queued = self.links[b].queued();
            BroadcastStats { frames: sent, copies: frames, bytes, dropped, lost, airtime: self.airtime(b), queued }
        });
        let (received_frames, sent_frames) = (port.received, port.sent);
        let busy = self.carriers.busy_ns(p, self.now_ns).map(|ns| self.share(ns));
        PortStats { name, received_frames, sent_frames, refused: port.refused, unknown: port.unknown, broadcast, busy }
    }

    /// What the radios at both ends of a link could learn of it: capacity in Mb/s (0: not live), frames sent and lost,
    /// and seconds of airtime, all since the last reset.
    pub fn link_radio(&self, l: usize) -> (f64, u64, u64, f64) {
        let link = &self.links[l];
        let capacity_mbps = if link.is_live() { link.state.capacity_mbps } else { 0.0 };
        let Counters { frames, lost, .. } = link.counters;
        (capacity_mbps, frames + lost, lost, self.airtime(l) * self.elapsed_s())
    }

    /// Seconds that a port sent or heard somebody since the last reset; None if it has no ears.
    pub fn heard_s(&self, p: usize) -> Option<f64> {
        self.carriers.busy_ns(p, self.now_ns).map(|ns| ns as f64 / 1e9)
    }

    /// Sums over everything.
    pub fn total_stats(&self) -> TotalStats {
        let mut total = TotalStats { in_flight: self.flying, ..TotalStats::default() };
        for port in &self.ports {
            total.received += port.received;
            total.unknown += port.unknown;
        }
        for link in &self.links[..self.configured] {
            total.frames += link.counters.frames;
            total.bytes += link.counters.bytes;
            total.dropped += link.counters.dropped;
            total.lost += link.counters.lost;
            total.queued += link.queued() as u64;
            total.in_flight += link.in_air() as u64;
        }
        total
    }

    /// Starts all counters anew at the time last advanced to.
    pub fn reset(&mut self) {
        self.reset_ns = self.now_ns;
        self.access.reset(self.now_ns);
        self.carriers.reset(self.now_ns);
        for link in &mut self.links {
            // The rest of what is in the air belongs to the new period.
            let air_ns = link.end_ns.saturating_sub(self.now_ns);
            link.counters = Counters { air_ns, ..Counters::default() };
        }
        for port in &mut self.ports {
            (port.received, port.sent, port.refused, port.unknown) = (0, 0, 0, 0);
        }
    }
}
