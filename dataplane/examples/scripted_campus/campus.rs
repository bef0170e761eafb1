//! All devices of a network, and what they have with each controller. Bytes and time in, bytes out: no system calls.
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap};

use hyroads_dataplane::rng::Rng;
use serde::Serialize;

use super::agent::{Agent, Carried, Report, Reported};
use super::bands::Bands;
use super::counts::Counts;
use super::late::Late;
use super::radio::Radio;
use super::requests::Cut;
use super::script::{Air, Node, Script};
use super::switch::{self, Switch};
use super::words::{Answer, Config, FirstWords, Rates, Said};

/// A device whose connection is over dials again after this time.
const REDIAL_NS: u64 = 500_000_000;
/// Devices dial one after the other.
const DIAL_EACH_NS: u64 = 2_000_000;
/// A controller that does not lead gets a report each second.
const STANDBY_NS: u64 = 1_000_000_000;

/// What a device is.
pub enum Kind {
    Switch(Switch),
    Agent(Agent),
    Radio(Radio),
}

/// A device.
pub struct Device {
    node: String,
    /// The greatest epoch that a controller has named.
    greatest: u64,
    pub kind: Kind,
}

/// What a device has with one of the controllers.
pub struct Session {
    pub device: usize,
    port: u16,
    is_up: bool,
    pub is_welcome: bool,
    epoch: u64,
    period_ns: u64,
    whole_s: Option<f64>,
    reported: Option<Reported>,
    bands: Bands,
    input: Vec<u8>,
    output: Vec<u8>,
    /// Timers of earlier connections and periods have another number.
    timer: u64,
}

/// A task that is due.
#[derive(Debug, PartialEq, Eq)]
pub enum Due {
    /// Dial this port of loopback for the session.
    Dial { session: usize, port: u16 },
    /// A report was due at this time; it is in the output of the session.
    Report { session: usize, due_ns: u64 },
}

/// All devices.
pub struct Campus {
    pub devices: Vec<Device>,
    pub sessions: Vec<Session>,
    pub air: Air,
    carried: Carried,
    pub counts: Counts,
    pub lost: u64,
    pub labels: HashMap<String, u32>,
    /// By link: the device that is the agent at its far end.
    pub hears: HashMap<String, usize>,
    pub cut: Option<Cut>,
    timers: BinaryHeap<Reverse<(u64, usize, u64)>>,
    rng: Rng,
    has_output: BTreeSet<usize>,
    pub late: Late,
}

/// As devices write it.
fn line_of(message: &impl Serialize) -> Vec<u8> {
    // A structure of texts and numbers can always be written.
    let mut line = serde_json::to_vec(message).unwrap_or_default();
    line.push(b'\n');
    line
}

/// Of nanoseconds.
pub fn seconds(ns: u64) -> f64 {
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
            let radio = Radio::new(&node.media, rng.bits());
            add(node, Kind::Radio(radio));
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

    /// What waits to be sent; the caller removes what it has sent.
    pub fn output(&mut self, at: usize) -> &mut Vec<u8> {
        &mut self.sessions[at].output
    }

    fn say(&mut self, at: usize, bytes: &[u8]) {
        if self.sessions[at].is_up {
            self.sessions[at].output.extend_from_slice(bytes);
            self.has_output.insert(at);
        }
    }

    /// Queues a line.
    pub fn say_line(&mut self, at: usize, answer: &Answer) {
        self.say(at, &line_of(answer));
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
                self.say_line(at, &Answer { kind: "pong", seq: said.seq, ..Answer::default() });
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
        (session.reported, session.is_welcome) = (None, true);
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
        let mut answer = Answer { kind: "ok", seq: said.seq, ..Answer::default() };
        if let Kind::Agent(agent) = &self.devices[device].kind {
            (answer.revision, answer.rates) = (Some(agent.revision), Some(agent.rates()));
        }
        self.say_line(at, &answer);
        if !led_before && self.sessions[at].is_welcome {
            self.schedule(at, now_ns);
        }
    }

    fn refuse(&mut self, at: usize, said: &Said) {
        self.counts.refused += 1;
        let epoch = self.devices[self.sessions[at].device].greatest;
        let message = Some("stale epoch");
        self.say_line(at, &Answer { kind: "error", seq: said.seq, message, epoch: Some(epoch), ..Answer::default() });
    }

    /// An agent changes what it sends, and says so.
    fn change(&mut self, at: usize, said: &Said, now_ns: u64, change: impl FnOnce(&mut Agent, &mut Carried)) {
        let device = self.sessions[at].device;
        let carried = &mut self.carried;
        if let Kind::Agent(agent) = &mut self.devices[device].kind {
            change(agent, carried);
            if let Some(cut) = &mut self.cut {
                cut.follow(device, agent, now_ns);
            }
        }
        self.say_line(at, &Answer { kind: "ok", seq: said.seq, ..Answer::default() });
    }

    // -- reports

    fn report(&mut self, at: usize, seq: Option<u64>, now_ns: u64) {
        let session = &mut self.sessions[at];
        let (now_s, counts) = (seconds(now_ns), &mut self.counts);
        let mut line = match &mut self.devices[session.device].kind {
            Kind::Switch(_) => return,
            Kind::Agent(agent) => {
                counts.reports += 1;
                match agent.report(&mut session.reported, session.whole_s, seq, &mut self.carried, now_s) {
                    Report::Line(line) => line,
                    Report::Nothing => return,
                }
            }
            Kind::Radio(radio) => {
                counts.readings += 1;
                radio.read(self.air, &mut session.bands, seq, now_s, counts)
            }
        };
        line.push('\n');
        self.say(at, line.as_bytes());
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
            reported: None,
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
        let (role, revision) = match &self.kind {
            Kind::Switch(_) => return switch::hello(),
            Kind::Agent(agent) => (None, Some(agent.revision)),
            Kind::Radio(_) => (Some("radio"), None),
        };
        line_of(&FirstWords {
            kind: "hello",
            version: 1,
            role,
            node: &self.node,
            program: "scripted 1.0",
            boot: "1",
            token: None,
            changes: true,
            revision,
            epoch: Some(self.greatest).filter(|&epoch| epoch > 0),
        })
    }
}
