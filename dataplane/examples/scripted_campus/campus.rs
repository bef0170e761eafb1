//! All devices of a network, and what they have with each controller. Bytes and time in, bytes out: no system calls.
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap, HashSet};
use std::fmt::Write;

use hyroads_dataplane::rng::Rng;
use serde::Serialize;
use serde_json::{json, Value};

use super::agent::{Agent, Carried, Report, Told};
use super::air::Rows;
use super::bands::{Bands, Message, Row};
use super::late::Late;
use super::script::{Air, Medium, Node, Script};
use super::switch::{self, Switch};
use super::words::{Config, Rates, Request, Said};

/// A device whose connection is over dials again after this time.
const REDIAL_NS: u64 = 500_000_000;
/// Devices dial one after the other.
const DIAL_EACH_NS: u64 = 2_000_000;
/// A controller that does not lead gets a report each second.
const STANDBY_NS: u64 = 1_000_000_000;

/// What happened so far; rows, readings and reports are those that were sent.
#[derive(Debug, Default, Serialize)]
pub struct Counts {
    pub adds: u64,
    pub deletes: u64,
    pub groups: u64,
    pub configs: u64,
    pub rates: u64,
    pub reports: u64,
    pub readings: u64,
    pub readings_with_rows: u64,
    pub rows: u64,
    pub asks: u64,
    pub refused: u64,
    /// Messages of a controller that a device could not read.
    pub odd: u64,
    /// Reports that were left out because this program was more than a period late.
    pub skipped: u64,
}

struct Radio {
    media: Vec<Medium>,
    rows: Rows,
}

enum Kind {
    Switch(Switch),
    Agent(Agent),
    Radio(Radio),
}

struct Device {
    node: String,
    /// The greatest epoch that a controller has named.
    greatest: u64,
    kind: Kind,
}

/// What a device has with one of the controllers.
struct Session {
    device: usize,
    port: u16,
    is_up: bool,
    is_welcome: bool,
    epoch: u64,
    period_ns: u64,
    whole_s: Option<f64>,
    told: Option<Told>,
    bands: Bands,
    input: Vec<u8>,
    output: Vec<u8>,
    /// Timers of earlier connections and periods have another number.
    timer: u64,
}

/// What is to be done now.
#[derive(Debug, PartialEq, Eq)]
pub enum Due {
    /// Dial this port of loopback for the session.
    Dial { session: usize, port: u16 },
    /// A report was due at this time; it is in the output of the session.
    Report { session: usize, due_ns: u64 },
}

struct Cut {
    began_ns: u64,
    label: u32,
    /// (device, flow number)
    users: HashSet<(usize, u32)>,
    took_ns: Option<u64>,
}

/// All devices.
pub struct Campus {
    devices: Vec<Device>,
    sessions: Vec<Session>,
    air: Air,
    carried: Carried,
    counts: Counts,
    lost: u64,
    labels: HashMap<String, u32>,
    /// By link: the device that is the agent at its far end.
    hears: HashMap<String, usize>,
    cut: Option<Cut>,
    timers: BinaryHeap<Reverse<(u64, usize, u64)>>,
    rng: Rng,
    has_output: BTreeSet<usize>,
    pub late: Late,
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

impl Campus {
    /// All devices of a script; they dial one after the other from now on.
    pub fn new(script: Script, now_ns: u64) -> Campus {
        let mut rng = Rng::new(script.seed);
        let mut devices = Vec::new();
        let mut add = |node: &Node, kind: Kind| {
            devices.push(Device { node: node.node.clone(), greatest: 0, kind });
            devices.len() - 1
        };
        for node in &script.nodes {
            add(node, Kind::Switch(Switch::new(node.dpid, node.ports.clone())));
        }
        let mut agents = HashMap::new();
        for node in script.nodes.iter().filter(|node| node.agent) {
            agents.insert(node.node.as_str(), add(node, Kind::Agent(Agent::new(script.arrivals))));
        }
        for node in script.nodes.iter().filter(|_| script.radios) {
            let rows = Rows::new(&node.media, rng.bits());
            add(node, Kind::Radio(Radio { media: node.media.clone(), rows }));
        }
        let hears = (script.links.iter())
            .filter_map(|link| Some((link.link.clone(), *agents.get(link.target.as_str())?)))
            .collect();
        let labels = script.links.iter().map(|link| (link.link.clone(), link.label)).collect();
        let ports = script.openflow.iter().zip(&script.agents);
        let sessions = ports.flat_map(|ports| (0..devices.len()).map(move |device| (device, ports)));
        let is_switch = |device: usize| matches!(devices[device].kind, Kind::Switch(_));
        let sessions: Vec<Session> = sessions
            .map(|(device, (&openflow, &agents))| {
                Session::new(device, if is_switch(device) { openflow } else { agents })
            })
            .collect();
        let timers = (0..sessions.len()).map(|at| Reverse((now_ns + at as u64 * DIAL_EACH_NS, at, 0))).collect();
        Campus {
            devices,
            sessions,
            air: script.air,
            carried: Carried::default(),
            counts: Counts::default(),
            lost: 0,
            labels,
            hears,
            cut: None,
            timers,
            rng,
            has_output: BTreeSet::new(),
            late: Late::default(),
        }
    }

    // -- connections

    /// How many connections there are, each from 0 on.
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// A session has a connection: it says hello.
    pub fn connected(&mut self, at: usize) {
        let session = &mut self.sessions[at];
        let timer = session.timer + 1;
        *session = Session { is_up: true, timer, ..Session::new(session.device, session.port) };
        let hello = self.devices[session.device].hello();
        self.say(at, &hello);
    }

    /// The connection of a session is over, or could not be made.
    pub fn lost(&mut self, at: usize, now_ns: u64) {
        let session = &mut self.sessions[at];
        self.lost += u64::from(session.is_up);
        (session.is_up, session.is_welcome) = (false, false);
        session.input.clear();
        session.output.clear();
        session.timer += 1;
        let timer = session.timer;
        self.timers.push(Reverse((now_ns + REDIAL_NS, at, timer)));
    }

    /// Sessions that have something to send since the last call.
    pub fn take_senders(&mut self) -> BTreeSet<usize> {
        std::mem::take(&mut self.has_output)
    }

    /// What waits to be sent; whoever sends a part of it removes it.
    pub fn output(&mut self, at: usize) -> &mut Vec<u8> {
        &mut self.sessions[at].output
    }

    fn say(&mut self, at: usize, bytes: &[u8]) {
        if self.sessions[at].is_up {
            self.sessions[at].output.extend_from_slice(bytes);
            self.has_output.insert(at);
        }
    }

    fn say_line(&mut self, at: usize, line: &Value) {
        self.say(at, format!("{line}\n").as_bytes());
    }

    // -- time

    /// When something is due next.
    pub fn next_ns(&self) -> Option<u64> {
        self.timers.peek().map(|Reverse((at_ns, ..))| *at_ns)
    }

    /// Something that is due.
    pub fn take_due(&mut self, now_ns: u64) -> Option<Due> {
        while self.next_ns()? <= now_ns {
            let Reverse((due_ns, at, timer)) = self.timers.pop()?;
            let session = &self.sessions[at];
            if timer != session.timer {
                continue;
            }
            if !session.is_up {
                return Some(Due::Dial { session: at, port: session.port });
            }
            let period_ns = self.period_ns(at);
            let behind = now_ns.saturating_sub(due_ns) / period_ns.max(1);
            self.counts.skipped += behind;
            self.timers.push(Reverse((due_ns + (behind + 1) * period_ns, at, timer)));
            self.report(at, None, now_ns);
            return Some(Due::Report { session: at, due_ns });
        }
        None
    }

    fn period_ns(&self, at: usize) -> u64 {
        let session = &self.sessions[at];
        if session.leads(&self.devices[session.device]) {
            session.period_ns
        } else {
            STANDBY_NS
        }
    }

    /// From now on the session reports with its period, at a phase of its own.
    fn schedule(&mut self, at: usize, now_ns: u64) {
        self.sessions[at].timer += 1;
        let (timer, period_ns) = (self.sessions[at].timer, self.period_ns(at));
        let phase_ns = self.rng.below(period_ns as usize) as u64;
        self.timers.push(Reverse((now_ns + phase_ns, at, timer)));
    }

    // -- what controllers say

    /// Bytes that came for a session.
    pub fn received(&mut self, at: usize, bytes: &[u8], now_ns: u64) {
        let mut input = std::mem::take(&mut self.sessions[at].input);
        input.extend_from_slice(bytes);
        let device = self.sessions[at].device;
        let taken = match self.devices[device].kind {
            Kind::Switch(_) => self.take_messages(at, &input),
            _ => self.take_lines(at, &input, now_ns),
        };
        input.drain(..taken);
        self.sessions[at].input = input;
    }

    fn take_messages(&mut self, at: usize, input: &[u8]) -> usize {
        let (mut taken, mut out) = (0, Vec::new());
        if let Kind::Switch(device) = &mut self.devices[self.sessions[at].device].kind {
            while let Some(length) = switch::whole(&input[taken..]) {
                let message = &input[taken..taken + length];
                if device.take(message, &mut self.counts, &mut out).is_none() {
                    self.counts.odd += 1;
                }
                taken += length;
            }
        }
        if !out.is_empty() {
            self.say(at, &out);
        }
        taken
    }

    fn take_lines(&mut self, at: usize, input: &[u8], now_ns: u64) -> usize {
        let mut taken = 0;
        while let Some(length) = input[taken..].iter().position(|&byte| byte == b'\n') {
            let line = &input[taken..taken + length];
            if self.take_line(at, line, now_ns).is_err() {
                self.counts.odd += 1;
            }
            taken += length + 1;
        }
        taken
    }

    fn take_line(&mut self, at: usize, line: &[u8], now_ns: u64) -> serde_json::Result<()> {
        let said: Said = serde_json::from_slice(line)?;
        match said.kind.as_str() {
            "welcome" => self.welcome(at, &said, now_ns),
            "ping" => {
                self.counts.asks += u64::from(said.leader);
                self.say_line(at, &json!({"type": "pong", "seq": said.seq}));
            }
            "stats" | "read" => self.report(at, said.seq, now_ns),
            "lead" => self.lead(at, &said, now_ns),
            "config" | "rates" if !self.leads(at) => self.refuse(at, &said),
            "config" => {
                let config: Config = serde_json::from_slice(line)?;
                self.counts.configs += 1;
                self.change(at, &said, now_ns, |agent, carried| agent.configure(config, carried, seconds(now_ns)));
            }
            "rates" => {
                let rates: Rates = serde_json::from_slice(line)?;
                self.counts.rates += 1;
                self.change(at, &said, now_ns, |agent, carried| {
                    agent.set_rates(&rates.rates, carried, seconds(now_ns))
                });
            }
            _ => (),
        }
        Ok(())
    }

    fn leads(&self, at: usize) -> bool {
        self.sessions[at].leads(&self.devices[self.sessions[at].device])
    }

    fn welcome(&mut self, at: usize, said: &Said, now_ns: u64) {
        let session = &mut self.sessions[at];
        let period_ms = said.report_ms.or(said.interval_ms).unwrap_or(100.0);
        session.period_ns = (period_ms.max(1.0) * 1e6) as u64;
        session.whole_s = said.whole_ms.map(|ms| ms / 1e3);
        (session.told, session.is_welcome) = (None, true);
        session.bands = Bands::new(session.whole_s.unwrap_or(0.0));
        self.schedule(at, now_ns);
    }

    fn lead(&mut self, at: usize, said: &Said, now_ns: u64) {
        let device = self.sessions[at].device;
        let epoch = said.epoch.unwrap_or(0);
        if epoch < self.devices[device].greatest {
            return self.refuse(at, said);
        }
        let led_before = self.leads(at);
        self.sessions[at].epoch = epoch;
        self.devices[device].greatest = epoch;
        let mut answer = json!({"type": "ok", "seq": said.seq});
        if let Kind::Agent(agent) = &self.devices[device].kind {
            answer["revision"] = json!(agent.revision);
            answer["rates"] = json!(agent.rates());
        }
        self.say_line(at, &answer);
        if !led_before && self.sessions[at].is_welcome {
            self.schedule(at, now_ns);
        }
    }

    fn refuse(&mut self, at: usize, said: &Said) {
        self.counts.refused += 1;
        let epoch = self.devices[self.sessions[at].device].greatest;
        self.say_line(at, &json!({"type": "error", "seq": said.seq, "message": "stale epoch", "epoch": epoch}));
    }

    /// An agent changes what it sends, and says so.
    fn change(&mut self, at: usize, said: &Said, now_ns: u64, change: impl FnOnce(&mut Agent, &mut Carried)) {
        let device = self.sessions[at].device;
        let carried = &mut self.carried;
        if let Kind::Agent(agent) = &mut self.devices[device].kind {
            change(agent, carried);
            if let Some(cut) = &mut self.cut {
                let still: HashSet<u32> = agent.users(cut.label).collect();
                cut.users.retain(|(user, number)| *user != device || still.contains(number));
                if cut.users.is_empty() && cut.took_ns.is_none() {
                    cut.took_ns = Some(now_ns - cut.began_ns);
                }
            }
        }
        self.say_line(at, &json!({"type": "ok", "seq": said.seq}));
    }

    // -- reports

    fn report(&mut self, at: usize, seq: Option<u64>, now_ns: u64) {
        let session = &mut self.sessions[at];
        let (now_s, counts) = (seconds(now_ns), &mut self.counts);
        let mut line = match &mut self.devices[session.device].kind {
            Kind::Switch(_) => return,
            Kind::Agent(agent) => {
                counts.reports += 1;
                match agent.report(&mut session.told, session.whole_s, seq, &mut self.carried, now_s) {
                    Report::Line(line) => line,
                    Report::Nothing => return,
                }
            }
            Kind::Radio(radio) => {
                counts.readings += 1;
                radio.rows.read(self.air);
                radio.reading(&mut session.bands, seq, now_s, counts)
            }
        };
        line.push('\n');
        self.say(at, line.as_bytes());
    }

    // -- requests of the test

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
        let line = json!({"type": "link", "link": link, "up": up});
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

impl Session {
    fn new(device: usize, port: u16) -> Session {
        Session {
            device,
            port,
            is_up: false,
            is_welcome: false,
            epoch: 0,
            period_ns: 100_000_000,
            whole_s: None,
            told: None,
            bands: Bands::new(0.0),
            input: Vec::new(),
            output: Vec::new(),
            timer: 0,
        }
    }

    /// Whether the device obeys this controller. Until one has named an epoch it obeys all.
    fn leads(&self, device: &Device) -> bool {
        self.epoch >= device.greatest
    }
}

impl Device {
    fn hello(&self) -> Vec<u8> {
        let mut hello = json!({"type": "hello", "version": 1, "node": self.node, "program": "scripted 1.0", "boot": "1",
            "token": null, "changes": true});
        match &self.kind {
            Kind::Switch(_) => return switch::hello(),
            Kind::Agent(agent) => hello["revision"] = json!(agent.revision),
            Kind::Radio(_) => hello["role"] = json!("radio"),
        }
        if self.greatest > 0 {
            hello["epoch"] = json!(self.greatest);
        }
        format!("{hello}\n").into_bytes()
    }
}

impl Radio {
    /// A reading as a line: an answer has all rows, others have those that the bands let through.
    fn reading(&self, bands: &mut Bands, seq: Option<u64>, now_s: f64, counts: &mut Counts) -> String {
        let message = if seq.is_some() { Message::Whole } else { bands.message(&self.rows.now, now_s) };
        let rows = if seq.is_some() { &self.rows.now } else { bands.held() };
        let (mut sent, number) = (0, seq.map_or("null".to_string(), |seq| seq.to_string()));
        let mut line = match message {
            Message::Whole => format!(r#"{{"type":"radio","seq":{number},"time_s":{now_s:.6},"interfaces":["#),
            Message::Changes(_) => format!(r#"{{"type":"radio-changes","time_s":{now_s:.6},"interfaces":["#),
        };
        let (busy_us, active_us) = ((now_s * 5e5) as u64, (now_s * 1e6) as u64);
        for (at, medium) in self.media.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            let technology = &medium.technology;
            let _ = write!(line, r#"{comma}{{"technology":"{technology}","busy_us":{busy_us},"active_us":{active_us}"#);
            let some: Vec<usize>;
            let places = match &message {
                Message::Whole => {
                    some = (0..medium.rows.len()).collect();
                    Some(&some)
                }
                Message::Changes(changed) => Some(&changed[at]).filter(|changed| !changed.is_empty()),
            };
            if let Some(places) = places {
                sent += places.len() as u64;
                line.push_str(r#","neighbours":["#);
                for (count, &place) in places.iter().enumerate() {
                    line.push_str(if count == 0 { "" } else { "," });
                    write_row(&mut line, &medium.rows[place].mac, &rows[at][place]);
                }
                line.push(']');
            }
            line.push('}');
        }
        line.push_str("]}");
        counts.rows += sent;
        counts.readings_with_rows += u64::from(sent > 0);
        line
    }
}

fn write_row(line: &mut String, mac: &str, row: &Row) {
    let optional = |value: Option<f64>| value.map_or("null".to_string(), |value| value.to_string());
    let _ = write!(
        line,
        r#"{{"mac":"{mac}","tx_mbps":{},"rx_mbps":{},"loss":{:?},"signal_dbm":{},"last_heard_ms":{}}}"#,
        optional(row.tx_mbps),
        optional(row.rx_mbps),
        row.loss,
        optional(row.signal_dbm),
        row.last_heard_ms
    );
}
