//! Reports of the control protocol: the serde types. `engine_report` fills them from an engine.

use crate::sys::lateness::Lateness;
use serde::Serialize;

/// Counters. A report too long for one line comes in parts, all but the last with `more`.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    pub seq: Option<u64>,
    pub more: bool,
    pub time_s: f64,
    pub revision: u64,
    pub ingress: Vec<IngressReport>,
    pub egress: Vec<EgressReport>,
    pub links: Vec<LinkReport>,
    pub unclassified: u64,
    pub malformed: u64,
    /// Copies that branched off here.
    pub branched: u64,
    /// Frames for flow numbers that are not configured here.
    pub unknown_flow: u64,
    /// Frames that could not be taken in or passed on: buffers used up, or a device without room.
    pub overrun: u64,
    /// Shims and hello frames that nobody with the key has sealed.
    pub forged: u64,
    /// Those that had come before.
    pub replayed: u64,
    pub cpu_s: f64,
    /// How late the machine woke the agent.
    pub woken_late: Lateness,
}

#[derive(Debug, Serialize)]
pub struct IngressReport {
    pub number: u16,
    pub queued: usize,
    pub queued_bytes: usize,
    pub dropped: u64,
    pub too_big: u64,
    pub sent: u64,
    pub dummies: u64,
    /// Sent again because their path was gone.
    pub resent: u64,
    pub from: u32,
    pub paths: Vec<OutPathReport>,
}

#[derive(Debug, Serialize)]
pub struct OutPathReport {
    pub id: u8,
    pub rate_mbps: Option<f64>,
    pub sent_frames: u64,
    pub sent_bytes: u64,
    pub skipped: u64,
}

#[derive(Debug, Serialize)]
pub struct EgressReport {
    pub number: u16,
    pub delivered_frames: u64,
    pub delivered_bytes: u64,
    pub reordered: u64,
    pub late: u64,
    pub stale: u64,
    pub duplicate: u64,
    pub lost: u64,
    pub timed_out: u64,
    pub restarts: u64,
    pub dummies: u64,
    pub held: usize,
    pub held_max: u64,
    pub hold_mean_ms: f64,
    pub paths: Vec<InPathReport>,
}

#[derive(Debug, Serialize)]
pub struct InPathReport {
    pub id: u8,
    pub received_frames: u64,
    pub received_bytes: u64,
    pub delay_ms: Option<f64>,
    pub last_heard_ms: Option<f64>,
    pub passed: Option<u32>,
    pub arrived: Option<u32>,
    pub paused: bool,
}

#[derive(Debug, Serialize)]
pub struct LinkReport {
    pub link: String,
    pub up: bool,
    pub last_heard_ms: Option<f64>,
}
