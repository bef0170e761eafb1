//! Counters of an engine as reports of the control protocol.

use super::engine::Engine;
use super::protocol::Reply;
use super::receiver::Receiver;
use super::report::{EgressReport, InPathReport, IngressReport, LinkReport, OutPathReport, Report};
use super::sender::Sender;
use crate::sys::lateness::Lateness;
use std::collections::BTreeMap;

/// Flows in one line: a line has at most 1 MiB, a flow with eight paths takes about 1.7 kB.
const FLOWS_PER_LINE: usize = 400;

/// Flows whose rates one line tells: with eight paths they take about 120 bytes each.
const RATES_PER_LINE: usize = 3000;

/// Rates in force by flow number and path id; of so many flows as a line holds.
pub fn rates(engine: &Engine) -> BTreeMap<u16, BTreeMap<u8, Option<f64>>> {
    let rates_of = |sender: &Sender| sender.paths().iter().map(|p| (p.spec.id, p.spec.rate_mbps)).collect();
    engine.senders().take(RATES_PER_LINE).map(|sender| (sender.number, rates_of(sender))).collect()
}

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
        queued_bytes: sender.queued_bytes(),
        dropped: sender.dropped,
        too_big: sender.too_big,
        sent: sender.sent,
        dummies: sender.dummies,
        resent: sender.resent,
        from: sender.from(),
        paths: sender
            .paths()
            .iter()
            .map(|p| {
                let (sent_frames, sent_bytes) = sender.sent_by(p);
                OutPathReport {
                    id: p.spec.id,
                    rate_mbps: p.spec.rate_mbps,
                    sent_frames,
                    sent_bytes,
                    skipped: p.copy_position.skipped,
                }
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
            branched: engine.branches.sent,
            unclassified: engine.counters.unclassified,
            malformed: engine.counters.malformed,
            unknown_flow: engine.counters.unknown_flow,
            overrun: engine.counters.overrun,
            forged: engine.counters.forged,
            replayed: engine.counters.replayed,
            cpu_s: rounded(cpu_ns as f64 / 1e9),
            woken_late,
        };
        out.push(Reply::Report(&report).line());
        if !report.more {
            return out;
        }
    }
}
