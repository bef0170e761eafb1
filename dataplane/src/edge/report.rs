//! Counters of an engine as reports of the control protocol.

use super::engine::Engine;
use super::protocol::Reply;
use super::receiver::Receiver;
use super::sender::Sender;
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
    /// Frames for flow numbers that are not configured here.
    pub unknown_flow: u64,
    /// Frames that could not be taken in or passed on: buffers used up, or a device without room.
    pub overrun: u64,
    pub cpu_s: f64,
    /// How late the machine woke the agent.
    pub woken_late: Lateness,
}

#[derive(Debug, Serialize)]
pub struct IngressReport {
    pub number: u16,
    pub queued: usize,
    pub dropped: u64,
    pub too_big: u64,
    pub sent: u64,
    pub dummies: u64,
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

/// Flows in one line: a line has at most 1 MiB, a flow with eight paths takes about 1.7 kB.
const FLOWS_PER_LINE: usize = 400;

fn ago_ms(now_ns: u64, at_ns: Option<u64>) -> Option<f64> {
    at_ns.map(|at| rounded(now_ns.saturating_sub(at) as f64 / 1e6))
}

/// Three decimals are enough and keep lines short.
fn rounded(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

fn ingress(sender: &Sender) -> IngressReport {
    IngressReport {
        number: sender.number,
        queued: sender.queued(),
        dropped: sender.dropped,
        too_big: sender.too_big,
        sent: sender.sent,
        dummies: sender.dummies,
        from: sender.from(),
        paths: sender
            .paths()
            .iter()
            .map(|p| OutPathReport {
                id: p.spec.id,
                rate_mbps: p.spec.rate_mbps,
                sent_frames: p.sent_frames,
                sent_bytes: p.sent_bytes,
                skipped: p.lane.skipped,
            })
            .collect(),
    }
}

fn egress(now_ns: u64, number: u16, receiver: &Receiver) -> EgressReport {
    let c = &receiver.counters;
    EgressReport {
        number,
        delivered_frames: c.delivered_frames,
        delivered_bytes: c.delivered_bytes,
        reordered: c.reordered,
        late: c.late,
        stale: c.stale,
        duplicate: c.duplicate,
        lost: c.lost,
        timed_out: c.timed_out,
        restarts: c.restarts,
        dummies: c.dummies,
        held: receiver.held(),
        held_max: c.held_max,
        hold_mean_ms: rounded(c.hold_ns as f64 / 1e6 / c.delivered_frames.max(1) as f64),
        paths: receiver
            .paths()
            .iter()
            .map(|p| InPathReport {
                id: p.id,
                received_frames: p.received_frames,
                received_bytes: p.received_bytes,
                delay_ms: receiver.delay_ms(p).map(rounded),
                last_heard_ms: ago_ms(now_ns, p.heard_ns),
                passed: p.passed,
                arrived: p.arrived,
                paused: p.paused,
            })
            .collect(),
    }
}

/// The report as lines; usually one.
pub fn lines(engine: &Engine, now_ns: u64, seq: Option<u64>, cpu_ns: u64, woken_late: Lateness) -> Vec<String> {
    let mut senders: Vec<IngressReport> = engine.senders().map(ingress).collect();
    let mut receivers: Vec<EgressReport> = engine.receivers().map(|(n, r)| egress(now_ns, n, r)).collect();
    let links = engine.liveness().links().iter();
    let mut links: Vec<LinkReport> = links
        .map(|l| LinkReport { link: l.name.clone(), up: l.up, last_heard_ms: ago_ms(now_ns, l.heard_ns) })
        .collect();
    let mut out = Vec::new();
    loop {
        let part: Vec<IngressReport> = senders.drain(..senders.len().min(FLOWS_PER_LINE)).collect();
        let room = FLOWS_PER_LINE - part.len();
        let report = Report {
            seq,
            time_s: rounded(now_ns as f64 / 1e9),
            revision: engine.revision,
            ingress: part,
            egress: receivers.drain(..receivers.len().min(room)).collect(),
            links: std::mem::take(&mut links),
            more: !senders.is_empty() || !receivers.is_empty(),
            unclassified: engine.counters.unclassified,
            malformed: engine.counters.malformed,
            unknown_flow: engine.counters.unknown_flow,
            overrun: engine.counters.overrun,
            cpu_s: rounded(cpu_ns as f64 / 1e9),
            woken_late,
        };
        out.push(Reply::Report(&report).line());
        if !report.more {
            return out;
        }
    }
}
