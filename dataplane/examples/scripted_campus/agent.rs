//! An edge agent: what a flow may send it sends, and the far agent has it at once. Pure.
use std::collections::HashMap;
use std::fmt::Write;

use super::words::{Config, RatesByFlow};

pub const FRAME_BYTES: u64 = 1400;

/// Bytes that paths have carried so far, by (flow number, path id): both ends count the same ones.
#[derive(Default)]
pub struct Carried {
    places: HashMap<(u32, u32), usize>,
    bytes: Vec<f64>,
}

impl Carried {
    fn place(&mut self, number: u32, path: u32) -> usize {
        let next = self.bytes.len();
        let place = *self.places.entry((number, path)).or_insert(next);
        if place == next {
            self.bytes.push(0.0);
        }
        place
    }

    fn whole(&self, place: usize) -> u64 {
        self.bytes[place] as u64
    }
}

/// A path of a flow that begins here.
struct Sent {
    id: u32,
    rate_mbps: f64,
    labels: Vec<u32>,
    place: usize,
}

struct Ingress {
    number: u32,
    paths: Vec<Sent>,
}

struct Egress {
    number: u32,
    /// (id, place)
    paths: Vec<(u32, usize)>,
}

/// The last whole report on a connection (docs/reference/dataplane.md, *Reports of what changed*).
pub struct Reported {
    at_s: f64,
    configs: u64,
    links: Vec<bool>,
    rates: Vec<f64>,
    sent: Vec<u64>,
    received: Vec<u64>,
}

/// What an agent reports.
pub enum Report {
    Line(String),
    /// Nothing has changed.
    Nothing,
}

/// An agent.
#[derive(Default)]
pub struct Agent {
    pub revision: u64,
    /// How many configurations it was given: counters of two of them are not compared.
    configs: u64,
    ingress: Vec<Ingress>,
    egress: Vec<Egress>,
    links: Vec<(String, bool)>,
    at_s: f64,
    reports_arrivals: bool,
}

impl Agent {
    /// Without a configuration.
    pub fn new(reports_arrivals: bool) -> Agent {
        Agent { reports_arrivals, ..Agent::default() }
    }

    /// Takes a whole configuration.
    pub fn configure(&mut self, config: Config, carried: &mut Carried, now_s: f64) {
        self.advance(carried, now_s);
        self.revision = config.revision;
        self.configs += 1;
        let mut sent = |number: u32, paths: Vec<super::words::Path>| -> Vec<Sent> {
            let of_path = |path: super::words::Path| Sent {
                id: path.id,
                rate_mbps: path.rate_mbps.unwrap_or(0.0),
                place: carried.place(number, path.id),
                labels: path.labels,
            };
            paths.into_iter().map(of_path).collect()
        };
        self.ingress = config
            .ingress
            .into_iter()
            .map(|flow| Ingress { number: flow.number, paths: sent(flow.number, flow.paths) })
            .collect();
        let received = |flow: &super::words::Arriving, carried: &mut Carried| {
            flow.paths.iter().map(|&id| (id, carried.place(flow.number, id))).collect()
        };
        self.egress =
            config.egress.iter().map(|flow| Egress { number: flow.number, paths: received(flow, carried) }).collect();
        let up: HashMap<String, bool> = self.links.drain(..).collect();
        let expected = config.hello.expect.into_iter().map(|each| each.link);
        self.links = expected.map(|link| (link.clone(), up.get(&link).copied().unwrap_or(true))).collect();
    }

    /// Takes other rates.
    pub fn set_rates(&mut self, rates: &RatesByFlow, carried: &mut Carried, now_s: f64) {
        self.advance(carried, now_s);
        for flow in &mut self.ingress {
            if let Some(of_flow) = rates.get(&flow.number) {
                for path in &mut flow.paths {
                    path.rate_mbps = of_flow.get(&path.id).map_or(path.rate_mbps, |rate| rate.unwrap_or(0.0));
                }
            }
        }
    }

    /// Rates by flow and path, as the answer to `lead` says them.
    pub fn rates(&self) -> HashMap<u32, HashMap<u32, f64>> {
        let paths = |flow: &Ingress| flow.paths.iter().map(|path| (path.id, path.rate_mbps)).collect();
        self.ingress.iter().map(|flow| (flow.number, paths(flow))).collect()
    }

    /// Flows that send by a link with this label.
    pub fn users(&self, label: u32) -> impl Iterator<Item = u32> + '_ {
        let uses = move |path: &Sent| path.rate_mbps > 0.0 && path.labels.contains(&label);
        self.ingress.iter().filter(move |flow| flow.paths.iter().any(uses)).map(|flow| flow.number)
    }

    /// Labels of all paths with a rate.
    pub fn labels_in_use(&self) -> impl Iterator<Item = u32> + '_ {
        let paths = self.ingress.iter().flat_map(|flow| &flow.paths);
        paths.filter(|path| path.rate_mbps > 0.0).flat_map(|path| path.labels.iter().copied())
    }

    /// An inbound link is silent, or heard again; false: this agent does not know it.
    pub fn set_link(&mut self, link: &str, up: bool) -> bool {
        let known = self.links.iter_mut().find(|(name, _)| name == link);
        known.map(|known| known.1 = up).is_some()
    }

    /// Carries what the rates allow, until now.
    fn advance(&mut self, carried: &mut Carried, now_s: f64) {
        let elapsed_s = if self.at_s == 0.0 { 0.0 } else { now_s - self.at_s };
        self.at_s = now_s;
        for path in self.ingress.iter().flat_map(|flow| &flow.paths) {
            carried.bytes[path.place] += path.rate_mbps * 125_000.0 * elapsed_s;
        }
    }

    /// Answers `stats`, or reports what has come about: all each `whole_s`, else what has changed since.
    pub fn report(
        &mut self,
        reported: &mut Option<Reported>,
        whole_s: Option<f64>,
        seq: Option<u64>,
        carried: &mut Carried,
        now_s: f64,
    ) -> Report {
        self.advance(carried, now_s);
        if let (None, Some(whole_s)) = (seq, whole_s) {
            let current = reported
                .as_ref()
                .filter(|reported| now_s < reported.at_s + whole_s && reported.configs == self.configs);
            match current {
                Some(reported) => return self.changes(reported, carried),
                None => *reported = Some(self.now(carried)),
            }
        }
        Report::Line(self.whole(seq, carried))
    }

    fn now(&self, carried: &Carried) -> Reported {
        let sent = || self.ingress.iter().flat_map(|flow| &flow.paths);
        let received = self.egress.iter().flat_map(|flow| &flow.paths);
        Reported {
            at_s: self.at_s,
            configs: self.configs,
            links: self.links.iter().map(|link| link.1).collect(),
            rates: sent().map(|path| path.rate_mbps).collect(),
            sent: sent().map(|path| carried.whole(path.place)).collect(),
            received: received.map(|path| carried.whole(path.1)).collect(),
        }
    }

    fn whole(&self, seq: Option<u64>, carried: &Carried) -> String {
        let seq = seq.map_or("null".to_string(), |seq| seq.to_string());
        let ingress = joined(self.ingress.iter().map(|flow| whole_sent(flow, carried)));
        let egress = joined(self.egress.iter().map(|flow| {
            let paths: &[_] = if self.reports_arrivals { &flow.paths } else { &[] };
            whole_received(flow.number, paths, carried)
        }));
        let link = |(link, up): &(String, bool)| format!(r#"{{"link":"{link}","up":{up},"last_heard_ms":1.0}}"#);
        let links = joined(self.links.iter().map(link));
        format!(
            concat!(
                r#"{{"type":"report","seq":{},"time_s":{:.6},"revision":{},"ingress":[{}],"egress":[{}],"links":[{}],"#,
                r#""branched":0,"unclassified":0,"malformed":0,"unknown_flow":0,"overrun":0,"cpu_s":1.5,"#,
                r#""woken_late":{{"max_ms":0.1,"over_5_ms_s":0.0,"over_20_ms_s":0.0,"over_100_ms_s":0.0}},"more":false}}"#
            ),
            seq, self.at_s, self.revision, ingress, egress, links
        )
    }

    fn changes(&self, reported: &Reported, carried: &Carried) -> Report {
        let links: Vec<String> = (self.links.iter().zip(&reported.links))
            .filter(|(link, &before)| link.1 != before)
            .map(|((link, up), _)| format!(r#"{{"link":"{link}","up":{up}}}"#))
            .collect();
        if self.ingress.is_empty() && self.egress.is_empty() && links.is_empty() {
            return Report::Nothing;
        }
        let mut line = format!(r#"{{"type":"changes","time_s":{:.6}"#, self.at_s);
        let lists = [
            ("ingress", self.sent_since(reported, carried)),
            ("egress", self.received_since(reported, carried)),
            ("links", links),
        ];
        for (name, entries) in lists.iter().filter(|(_, entries)| !entries.is_empty()) {
            let _ = write!(line, r#","{name}":[{}]"#, entries.join(","));
        }
        line.push('}');
        Report::Line(line)
    }

    fn sent_since(&self, reported: &Reported, carried: &Carried) -> Vec<String> {
        let (mut found, mut at) = (Vec::new(), 0);
        for flow in &self.ingress {
            let (mut paths, mut total, mut is_new) = (Vec::new(), 0, false);
            for path in &flow.paths {
                let count = carried.whole(path.place);
                let (is_other_rate, is_more) = (path.rate_mbps != reported.rates[at], count != reported.sent[at]);
                total += count / FRAME_BYTES;
                is_new |= is_more;
                at += 1;
                if is_other_rate || is_more {
                    let rate =
                        if is_other_rate { format!(r#""rate_mbps":{},"#, path.rate_mbps) } else { String::new() };
                    let (id, frames) = (path.id, count / FRAME_BYTES);
                    paths.push(format!(r#"{{"id":{id},{rate}"sent_frames":{frames},"sent_bytes":{count}}}"#));
                }
            }
            if !paths.is_empty() {
                let sent = if is_new { format!(r#""sent":{total},"#) } else { String::new() };
                found.push(format!(r#"{{"number":{},{sent}"paths":[{}]}}"#, flow.number, paths.join(",")));
            }
        }
        found
    }

    fn received_since(&self, reported: &Reported, carried: &Carried) -> Vec<String> {
        let (mut found, mut at) = (Vec::new(), 0);
        for flow in self.egress.iter().filter(|_| self.reports_arrivals) {
            let (mut paths, mut total) = (Vec::new(), 0);
            for &(id, place) in &flow.paths {
                let count = carried.whole(place);
                total += count;
                if count != reported.received[at] {
                    let frames = count / FRAME_BYTES;
                    let counters =
                        format!(r#""received_frames":{frames},"received_bytes":{count},"last_heard_ms":1.5"#);
                    paths.push(format!(r#"{{"id":{id},{counters}}}"#));
                }
                at += 1;
            }
            if !paths.is_empty() {
                let delivered = format!(r#""delivered_frames":{},"delivered_bytes":{total}"#, total / FRAME_BYTES);
                found.push(format!(r#"{{"number":{},{delivered},"paths":[{}]}}"#, flow.number, paths.join(",")));
            }
        }
        found
    }
}

fn joined(entries: impl Iterator<Item = String>) -> String {
    entries.collect::<Vec<_>>().join(",")
}

fn whole_sent(flow: &Ingress, carried: &Carried) -> String {
    let paths = joined(flow.paths.iter().map(|path| {
        let (id, rate, count) = (path.id, path.rate_mbps, carried.whole(path.place));
        let frames = count / FRAME_BYTES;
        format!(r#"{{"id":{id},"rate_mbps":{rate},"sent_frames":{frames},"sent_bytes":{count}}}"#)
    }));
    let sent: u64 = flow.paths.iter().map(|path| carried.whole(path.place) / FRAME_BYTES).sum();
    format!(
        concat!(
            r#"{{"number":{},"queued":20,"queued_bytes":28000,"dropped":0,"too_big":0,"sent":{},"dummies":0,"#,
            r#""paths":[{}]}}"#
        ),
        flow.number, sent, paths
    )
}

fn whole_received(number: u32, paths: &[(u32, usize)], carried: &Carried) -> String {
    let total: u64 = paths.iter().map(|path| carried.whole(path.1)).sum();
    let paths = joined(paths.iter().map(|&(id, place)| {
        let count = carried.whole(place);
        let frames = count / FRAME_BYTES;
        let counters = format!(r#""received_frames":{frames},"received_bytes":{count},"delay_ms":2.5"#);
        format!(r#"{{"id":{id},{counters},"last_heard_ms":1.5}}"#)
    }));
    format!(
        concat!(
            r#"{{"number":{},"delivered_frames":{},"delivered_bytes":{},"reordered":0,"late":0,"stale":0,"#,
            r#""duplicate":0,"lost":0,"timed_out":0,"restarts":0,"dummies":0,"held":0,"held_max":0,"#,
            r#""hold_mean_ms":0.1,"paths":[{}]}}"#
        ),
        number,
        total / FRAME_BYTES,
        total,
        paths
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{json, Value};

    fn configured(revision: u64) -> (Agent, Carried) {
        let (mut agent, mut carried) = (Agent::new(true), Carried::default());
        let config = json!({"revision": revision, "ingress": [{"number": 16, "paths": [
            {"id": 1, "rate_mbps": 8.0, "labels": [100, 200]}, {"id": 2, "rate_mbps": null, "labels": [300]}]}],
            "egress": [{"number": 17, "paths": [1]}], "hello": {"expect": [{"link": "ab"}]}});
        agent.configure(serde_json::from_value(config).unwrap(), &mut carried, 1.0);
        (agent, carried)
    }

    fn parsed(report: Report) -> Value {
        match report {
            Report::Line(line) => serde_json::from_str(&line).unwrap(),
            Report::Nothing => Value::Null,
        }
    }

    #[test]
    fn carries_what_its_rates_allow_and_reports_changes() {
        let (mut agent, mut carried) = configured(5);
        let mut reported = None;
        let whole = parsed(agent.report(&mut reported, Some(2.0), None, &mut carried, 2.0));
        assert_eq!((&whole["type"], &whole["revision"]), (&json!("report"), &json!(5)));
        assert_eq!(whole["ingress"][0]["paths"][0]["sent_bytes"], 1_000_000);
        let changes = parsed(agent.report(&mut reported, Some(2.0), None, &mut carried, 2.1));
        let path = json!({"id": 1, "sent_frames": 785, "sent_bytes": 1_100_000});
        assert_eq!(
            changes,
            json!({"type": "changes", "time_s": 2.1, "ingress": [{"number": 16, "sent": 785, "paths": [path]}]})
        );
        assert_eq!(parsed(agent.report(&mut reported, Some(2.0), Some(9), &mut carried, 2.2))["seq"], 9);
        assert_eq!(parsed(agent.report(&mut reported, Some(2.0), None, &mut carried, 4.0))["type"], "report");
    }

    #[test]
    fn other_rates_and_a_silent_link_are_changes_and_another_configuration_is_reported_whole() {
        let (mut agent, mut carried) = configured(5);
        let mut reported = None;
        agent.report(&mut reported, Some(2.0), None, &mut carried, 1.0);
        let rates: RatesByFlow = serde_json::from_value(json!({"16": {"1": 0.0, "2": 4.5}})).unwrap();
        agent.set_rates(&rates, &mut carried, 1.0);
        assert!(agent.set_link("ab", false) && !agent.set_link("xy", false));
        let changes = parsed(agent.report(&mut reported, Some(2.0), None, &mut carried, 1.0));
        assert_eq!(changes["links"], json!([{"link": "ab", "up": false}]));
        assert_eq!(changes["ingress"][0]["paths"][1]["rate_mbps"], 4.5);
        assert_eq!((agent.users(100).count(), agent.users(300).count()), (0, 1));
        let (again, _) = configured(6);
        agent.configs = again.configs + 1;
        assert_eq!(parsed(agent.report(&mut reported, Some(2.0), None, &mut carried, 1.1))["type"], "report");
    }
}
