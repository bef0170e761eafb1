//! What the medium consists of: links with their queues, ports, frames in flight, events.

use super::config::LinkState;
use super::frame::{Air, Frame, Outcome};
use std::collections::VecDeque;

/// Counters of a link since the last reset.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counters {
    /// Frames that left the queue for the air.
    pub sent: u64,
    /// Frames (for a broadcast link: copies) that arrived.
    pub frames: u64,
    /// L2 payload of those, in bytes.
    pub bytes: u64,
    /// Frames that found the queue full or the link down, or waited when it was cut.
    pub dropped: u64,
    /// Frames (copies) that were sent and did not arrive.
    pub lost: u64,
    /// Transmissions that collided.
    pub collisions: u64,
    /// Frames of radios that were sent and not received, and are sent again.
    pub retries: u64,
    pub air_ns: u64,
    pub queue_delay_ns: u64,
}

#[derive(Debug)]
pub(super) struct Waiting {
    pub since_ns: u64,
    pub frame: Frame,
}

/// A configured link, or the broadcast link of a port (`to` is None).
#[derive(Debug)]
pub(super) struct Link {
    pub from: usize,
    pub to: Option<usize>,
    pub state: LinkState,
    pub queue: VecDeque<Waiting>,
    /// Frames in the air.
    pub batch: Vec<Frame>,
    /// Frames that were sent and collided, while they still are in the air; they are the first in the queue.
    pub colliding: usize,
    /// How often the first frame in the queue has collided.
    pub retries: u32,
    /// When the transmission in the air ends.
    pub end_ns: u64,
    /// Serial number of the access that began last, and of the moment the link was last cut: what began before a cut is lost.
    pub started: u64,
    pub cut: u64,
    pub counters: Counters,
}

impl Link {
    pub fn new(from: usize, to: Option<usize>, state: LinkState) -> Link {
        let (queue, batch, counters) = (VecDeque::new(), Vec::new(), Counters::default());
        Link { from, to, state, queue, batch, colliding: 0, retries: 0, end_ns: 0, started: 0, cut: 0, counters }
    }

    /// Whether frames can cross it.
    pub fn is_live(&self) -> bool {
        self.state.up && self.state.capacity_mbps > 0.0
    }

    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    pub fn in_air(&self) -> usize {
        self.batch.len()
    }
}

#[derive(Debug, Default)]
pub(super) struct Port {
    /// Destination MAC address -> link, sorted.
    pub by_mac: Vec<([u8; 6], usize)>,
    pub links: Vec<usize>,
    pub broadcast: Option<usize>,
    pub uplink: Option<usize>,
    /// It is a radio: its frames are of 802.11, are acknowledged, and sent again if they are not.
    pub radio: bool,
    /// Frames from the host, frames to the host, frames the host had no room for, frames without a link.
    pub received: u64,
    pub sent: u64,
    pub refused: u64,
    pub unknown: u64,
}

/// A frame on its way after its transmission: `via` is the link it crosses, `account` the one it is counted on.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Flight {
    pub via: usize,
    pub account: usize,
    pub started: u64,
    pub frame: Frame,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Happening {
    TransmissionEnds(usize),
    CollisionEnds(usize),
    Arrives(Flight),
}

/// Ordered by time, then by when it was scheduled.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Event {
    pub at_ns: u64,
    pub order: u64,
    pub what: Happening,
}

/// What became of a frame, for the radio at `port` that sent it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Report {
    /// Port of the sender.
    pub port: usize,
    /// The frame, with the number of its tries.
    pub air: Air,
    /// What became of it.
    pub outcome: Outcome,
}
