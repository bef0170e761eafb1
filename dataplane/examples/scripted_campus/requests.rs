//! Requests of the test, and their answers.
use std::collections::{BTreeSet, HashMap, HashSet};

use serde_json::{json, Value};

use super::agent::Agent;
use super::campus::{seconds, Campus, Kind};
use super::words::{Answer, Request};

/// A link that fell silent, and the flows that still use it.
pub struct Cut {
    began_ns: u64,
    label: u32,
    /// (device, flow number)
    users: HashSet<(usize, u32)>,
    took_ns: Option<u64>,
}

impl Cut {
    /// An agent has other rates.
    pub fn follow(&mut self, device: usize, agent: &Agent, now_ns: u64) {
        let still: HashSet<u32> = agent.users(self.label).collect();
        self.users.retain(|(user, number)| *user != device || still.contains(number));
        if self.users.is_empty() && self.took_ns.is_none() {
            self.took_ns = Some(now_ns - self.began_ns);
        }
    }
}

impl Campus {
    /// The answer to a request.
    pub fn answer(&mut self, request: Request, now_ns: u64, cpu_ns: u64) -> Value {
        match request {
            Request::Cut { link, up } => match self.cut(&link, up, now_ns) {
                Some(()) => self.totals(),
                None => json!({"error": format!("no agent hears link {link}")}),
            },
            Request::CutMs => {
                let took_ms = self.cut.as_ref().and_then(|cut| cut.took_ns).map(|ns| ns as f64 / 1e6);
                json!({"ms": took_ms, "flows_on_it": self.cut.as_ref().map_or(0, |cut| cut.users.len())})
            }
            Request::Used => json!({"links": self.used()}),
            Request::Cpu => json!({"cpu_s": seconds(cpu_ns)}),
            Request::Counts => self.totals(),
            Request::Lateness => self.late.take(),
            Request::Air(air) => {
                self.air = air;
                json!({})
            }
        }
    }

    fn agents(&self) -> impl Iterator<Item = (usize, &Agent)> {
        self.devices.iter().enumerate().filter_map(|(at, device)| match &device.kind {
            Kind::Agent(agent) => Some((at, agent)),
            _ => None,
        })
    }

    fn cut(&mut self, link: &str, up: bool, now_ns: u64) -> Option<()> {
        let (&label, &device) = (self.labels.get(link)?, self.hears.get(link)?);
        let users = self.agents().flat_map(|(at, agent)| agent.users(label).map(move |number| (at, number))).collect();
        self.cut = Some(Cut { began_ns: now_ns, label, users, took_ns: None });
        if let Kind::Agent(agent) = &mut self.devices[device].kind {
            agent.set_link(link, up);
        }
        let line = Answer { kind: "link", link: Some(link), up: Some(up), ..Answer::default() };
        for at in (0..self.sessions.len()).filter(|&at| self.sessions[at].device == device).collect::<Vec<_>>() {
            if self.sessions[at].is_welcome {
                self.say_line(at, &line);
            }
        }
        Some(())
    }

    fn used(&self) -> BTreeSet<&str> {
        let links: HashMap<u32, &str> = self.labels.iter().map(|(link, &label)| (label, link.as_str())).collect();
        self.agents()
            .flat_map(|(_, agent)| agent.labels_in_use())
            .filter_map(|label| links.get(&label).copied())
            .collect()
    }

    fn totals(&self) -> Value {
        let rules = self.devices.iter().filter_map(|device| match &device.kind {
            Kind::Switch(switch) => Some(switch.rules()),
            _ => None,
        });
        let (most, total) = rules.fold((0, 0), |(most, total), rules| (rules.max(most), total + rules));
        let configured = self.agents().filter(|(_, agent)| agent.revision != 0).count();
        json!({"counts": self.counts, "lost_connections": self.lost, "rules_most": most, "rules_total": total,
            "configured": configured})
    }
}
