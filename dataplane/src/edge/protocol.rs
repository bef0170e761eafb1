//! The control protocol: serde types of what is said, and the checks of what is heard. See docs/reference/dataplane.md section 2.

use crate::sys::interface::{parse_mac, Mac};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashSet};

use super::branch::Branch;
use super::burst::BurstConfig;
use super::egress_config::check_paths;
pub use super::egress_config::Egress;
use super::epochs::MAX_EPOCH;
use super::frame::{LABEL_LEN, MAX_LABEL, SHIM_LEN};
use super::media::{Media, Port};
use super::report::Report;
use super::seal::{Base, SEAL_LEN};
use super::split_config::SplitMode;
use super::watch::PathNotice;

pub const VERSION: u32 = 1;
pub const FIRST_FLOW: u16 = 16;
/// The label behind which a switch hands over a frame of the single path that is too large, or a TCP SYN.
pub const TO_FIT: u16 = 8;
/// As many labels as the headroom of a buffer holds.
pub const MAX_LABELS: usize = 24;
pub const MAX_RATE_MBPS: f64 = 1e6;
/// Of times that the controller names, in ms.
const MAX_TIME_MS: u64 = 600_000;
const MAX_BURST_BYTES: u32 = 10_000_000;
const MAX_GENERATION: u64 = u32::MAX as u64;

/// A line from the controller (or from whoever uses the Unix socket).
#[derive(Debug)]
pub enum Request {
    Welcome(Welcome),
    /// The session leads, with this epoch.
    Lead(u64),
    Config(Box<Config>),
    /// By flow number.
    Rates(BTreeMap<u16, RateChange>),
    Stats,
    ResetCounters,
    /// `leader`: whether the leader is alive is to be found out, too.
    Ping {
        leader: bool,
    },
    Pong,
}

impl Request {
    /// Whether only a session that leads may say it.
    pub fn changes(&self) -> bool {
        matches!(self, Request::Config(_) | Request::Rates(_) | Request::ResetCounters)
    }
}

/// New rates of a flow by path id, in Mb/s of L2 payload.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RateChange {
    /// None is unshaped; a path that isn't named keeps its rate.
    pub rates: BTreeMap<u8, Option<f64>>,
    /// What a path sends at least; one that isn't named sends what the flow offers.
    pub fill: BTreeMap<u8, f64>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Welcome {
    pub version: u32,
    #[serde(default)]
    pub report_ms: Option<u64>,
    #[serde(default)]
    pub ping_ms: Option<u64>,
    /// Reports shall tell what changed, and everything this often.
    #[serde(default)]
    pub whole_ms: Option<u64>,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub struct Config {
    pub revision: u64,
    /// Of all keys in it.
    #[serde(default)]
    pub generation: u64,
    #[serde(default)]
    pub hello: HelloConfig,
    #[serde(default)]
    pub ingress: Vec<Ingress>,
    #[serde(default)]
    pub egress: Vec<Egress>,
    #[serde(default)]
    pub branch: Vec<Branch>,
    #[serde(default)]
    pub media: Media,
    /// What the switch sends to its neighbours is sealed here, and what they send is checked (`links`).
    #[serde(default)]
    pub seal_links: bool,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub struct HelloConfig {
    #[serde(default = "default_interval_ms")]
    pub interval_ms: u16,
    #[serde(default = "default_dead_ms")]
    pub dead_ms: u64,
    #[serde(default)]
    pub send: Vec<HelloSend>,
    #[serde(default)]
    pub expect: Vec<HelloExpect>,
    /// With which ours are sealed.
    #[serde(default)]
    pub key: Option<Base>,
}

impl Default for HelloConfig {
    fn default() -> Self {
        HelloConfig {
            interval_ms: default_interval_ms(),
            dead_ms: default_dead_ms(),
            send: Vec::new(),
            expect: Vec::new(),
            key: None,
        }
    }
}

#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub struct HelloSend {
    #[serde(default)]
    pub technology: Option<String>,
    /// The switch turns it into a hello frame; None with an interface of one's own.
    #[serde(default)]
    pub label: Option<u32>,
    #[serde(default)]
    pub interface: Option<String>,
    /// The address with which the switch sends it, for the seal; with an interface of one's own it is that one's.
    #[serde(default, deserialize_with = "optional_mac")]
    pub mac: Option<Mac>,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub struct HelloExpect {
    pub link: String,
    #[serde(deserialize_with = "mac")]
    pub mac: Mac,
    /// With which they must be sealed.
    #[serde(default)]
    pub key: Option<Base>,
}

#[derive(Clone, Debug, Deserialize, PartialEq)]
pub struct Ingress {
    pub number: u16,
    #[serde(default)]
    pub id: String,
    #[serde(default)]
    pub default: bool,
    #[serde(default = "default_queue_ms")]
    pub queue_ms: u64,
    #[serde(default)]
    pub split: SplitMode,
    #[serde(default)]
    pub burst: BurstConfig,
    pub paths: Vec<OutPath>,
    /// The last agent joins pieces of frames that do not fit the paths.
    #[serde(default)]
    pub pieces: bool,
    /// With which its frames are sealed.
    #[serde(default)]
    pub key: Option<Base>,
}

#[derive(Clone, Debug, Deserialize, PartialEq)]
pub struct OutPath {
    pub id: u8,
    #[serde(default)]
    pub labels: Vec<u32>,
    /// None is unshaped.
    #[serde(default)]
    pub rate_mbps: Option<f64>,
    /// Share of an unshaped path.
    #[serde(default = "default_weight")]
    pub weight: f64,
    #[serde(default = "default_mtu")]
    pub mtu: usize,
    #[serde(default)]
    pub interface: Option<String>,
    #[serde(default, deserialize_with = "optional_mac")]
    pub dst_mac: Option<Mac>,
    /// What goes on that path is copied to this one on the way: nothing is sent on it here.
    #[serde(default)]
    pub copied_from: Option<u8>,
    /// Its frames are sealed, as the flow has a key.
    #[serde(skip)]
    pub sealed: bool,
}

impl OutPath {
    /// Bytes of L2 payload that a frame has beyond the inner frame.
    pub fn overhead(&self) -> usize {
        self.labels.len() * LABEL_LEN + SHIM_LEN + if self.sealed { SEAL_LEN } else { 0 }
    }
}

fn default_interval_ms() -> u16 {
    40
}
fn default_dead_ms() -> u64 {
    140
}
fn default_queue_ms() -> u64 {
    60
}
fn default_weight() -> f64 {
    1.0
}
fn default_mtu() -> usize {
    1600
}

fn mac<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Mac, D::Error> {
    let text = String::deserialize(from)?;
    parse_mac(&text).ok_or_else(|| serde::de::Error::custom(format!("mac {text:?}: expected xx:xx:xx:xx:xx:xx")))
}

fn optional_mac<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<Mac>, D::Error> {
    match Option::<String>::deserialize(from)? {
        None => Ok(None),
        Some(text) => parse_mac(&text)
            .map(Some)
            .ok_or_else(|| serde::de::Error::custom(format!("dst_mac {text:?}: expected xx:xx:xx:xx:xx:xx"))),
    }
}

/// Why a line was not carried out.
#[derive(Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Not JSON, or not an object with a type: the stream can't be trusted.
    Malformed(String),
    /// Understood well enough to answer.
    Invalid { seq: Option<u64>, message: String },
}

#[derive(Deserialize)]
struct Envelope {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    seq: Option<u64>,
}

#[derive(Deserialize)]
struct LeadBody {
    epoch: u64,
}

#[derive(Deserialize)]
struct PingBody {
    #[serde(default)]
    leader: bool,
}

#[derive(Deserialize)]
struct RatesBody {
    rates: BTreeMap<String, BTreeMap<String, Option<f64>>>,
    #[serde(default)]
    fill: BTreeMap<String, BTreeMap<String, f64>>,
}

/// A request and the number its answer is to carry.
pub fn parse_request(line: &str) -> Result<(Option<u64>, Request), Refusal> {
    let envelope: Envelope = serde_json::from_str(line).map_err(|e| Refusal::Malformed(e.to_string()))?;
    let seq = envelope.seq;
    let invalid = |message: String| Refusal::Invalid { seq, message };
    let request = match envelope.kind.as_str() {
        "welcome" => {
            let welcome: Welcome = serde_json::from_str(line).map_err(|e| invalid(format!("welcome: {e}")))?;
            welcome.check().map_err(|e| invalid(format!("welcome: {e}")))?;
            Request::Welcome(welcome)
        }
        "config" => {
            let mut config: Config = serde_json::from_str(line).map_err(|e| invalid(format!("config: {e}")))?;
            config.settle();
            config.check().map_err(|e| invalid(format!("config: {e}")))?;
            Request::Config(Box::new(config))
        }
        "rates" => {
            let body: RatesBody = serde_json::from_str(line).map_err(|e| invalid(format!("rates: {e}")))?;
            Request::Rates(numbered_rates(body).map_err(|e| invalid(format!("rates: {e}")))?)
        }
        "lead" => {
            let body: LeadBody = serde_json::from_str(line).map_err(|e| invalid(format!("lead: {e}")))?;
            if !(1..=MAX_EPOCH).contains(&body.epoch) {
                return Err(invalid(format!("lead: epoch {}: expected 1 to {MAX_EPOCH}", body.epoch)));
            }
            Request::Lead(body.epoch)
        }
        "stats" => Request::Stats,
        "reset-counters" => Request::ResetCounters,
        "ping" => {
            let body: PingBody = serde_json::from_str(line).map_err(|e| invalid(format!("ping: {e}")))?;
            Request::Ping { leader: body.leader }
        }
        "pong" => Request::Pong,
        other => return Err(invalid(format!("unknown type {other:?}"))),
    };
    Ok((seq, request))
}

fn numbered_rates(body: RatesBody) -> Result<BTreeMap<u16, RateChange>, String> {
    let mut flows: BTreeMap<u16, RateChange> = BTreeMap::new();
    for (flow, paths) in body.rates {
        let change = flows.entry(flow_number(&flow)?).or_default();
        for (path, rate) in paths {
            check_rate(rate).map_err(|e| format!("flow {flow}: path {path}: {e}"))?;
            change.rates.insert(path_id(&flow, &path)?, rate);
        }
    }
    for (flow, paths) in body.fill {
        let change = flows.entry(flow_number(&flow)?).or_default();
        for (path, fill) in paths {
            check_rate(Some(fill)).map_err(|e| format!("flow {flow}: path {path}: fill: {e}"))?;
            change.fill.insert(path_id(&flow, &path)?, fill);
        }
    }
    Ok(flows)
}

fn flow_number(text: &str) -> Result<u16, String> {
    text.parse().map_err(|_| format!("flow {text:?}: expected a number up to 65535"))
}

fn path_id(flow: &str, text: &str) -> Result<u8, String> {
    text.parse().map_err(|_| format!("flow {flow}: path {text:?}: expected a number up to 255"))
}

fn check_rate(rate: Option<f64>) -> Result<(), String> {
    match rate {
        Some(r) if !(0.0..=MAX_RATE_MBPS).contains(&r) => Err(format!("rate_mbps {r}: expected 0 to {MAX_RATE_MBPS}")),
        _ => Ok(()),
    }
}

fn check_time(name: &str, ms: u64) -> Result<(), String> {
    if ms > MAX_TIME_MS {
        return Err(format!("{name} {ms}: expected at most {MAX_TIME_MS}"));
    }
    Ok(())
}

impl Welcome {
    fn check(&self) -> Result<(), String> {
        if self.version != VERSION {
            return Err(format!("version {} is not {VERSION}", self.version));
        }
        check_time("report_ms", self.report_ms.unwrap_or(0))?;
        check_time("ping_ms", self.ping_ms.unwrap_or(0))?;
        check_time("whole_ms", self.whole_ms.unwrap_or(0))
    }
}

impl Config {
    /// Paths of flows with keys have less room for inner frames.
    fn settle(&mut self) {
        self.media.sealed = self.seal_links;
        for flow in self.ingress.iter_mut().filter(|flow| flow.key.is_some()) {
            flow.paths.iter_mut().for_each(|path| path.sealed = true);
        }
        for branch in self.branch.iter_mut().filter(|branch| branch.key.is_some()) {
            branch.copies.iter_mut().for_each(|path| path.sealed = true);
        }
    }

    /// Whether it holds any key.
    pub fn has_keys(&self) -> bool {
        let flows = self.ingress.iter().map(|f| f.key).chain(self.egress.iter().map(|f| f.key));
        let hellos = self.hello.expect.iter().map(|e| e.key).chain([self.hello.key]);
        flows.chain(self.branch.iter().map(|b| b.key)).chain(hellos).any(|key| key.is_some())
    }

    /// Everything that serde does not see.
    pub fn check(&self) -> Result<(), String> {
        self.media.check()?;
        if self.hello.interval_ms == 0 || self.hello.dead_ms < u64::from(self.hello.interval_ms) {
            return Err("hello: expected 0 < interval_ms <= dead_ms".into());
        }
        check_time("hello: dead_ms", self.hello.dead_ms)?;
        if self.generation > MAX_GENERATION {
            return Err(format!("generation {}: expected at most {MAX_GENERATION}", self.generation));
        }
        if let Some(at) =
            self.hello.send.iter().position(|s| s.mac.is_none() && s.interface.is_none() && self.hello.key.is_some())
        {
            return Err(format!("hello.send[{at}]: mac: expected an address, as hello frames have a key"));
        }
        for (i, send) in self.hello.send.iter().enumerate() {
            match send.label {
                Some(label) if label > MAX_LABEL => {
                    return Err(format!("hello.send[{i}]: label {label} has more than 20 bits"))
                }
                None if send.interface.is_none() => {
                    return Err(format!("hello.send[{i}]: expected label or interface"))
                }
                _ => {}
            }
        }
        let mut numbers = HashSet::new();
        for flow in &self.ingress {
            check_number(flow.number, &mut numbers).map_err(|e| format!("ingress: {e}"))?;
            flow.check().map_err(|e| format!("ingress {}: {e}", flow.number))?;
        }
        if self.ingress.iter().filter(|f| f.default).count() > 1 {
            return Err("ingress: more than one default flow".into());
        }
        numbers.clear();
        for flow in &self.egress {
            check_number(flow.number, &mut numbers).map_err(|e| format!("egress: {e}"))?;
            flow.check().map_err(|e| format!("egress {}: {e}", flow.number))?;
        }
        let mut branches = HashSet::new();
        for branch in &self.branch {
            branch.check().map_err(|e| format!("branch {}: {e}", branch.number))?;
            if !branches.insert((branch.number, branch.path)) {
                return Err(format!("branch {}: path {} twice", branch.number, branch.path));
            }
        }
        Ok(())
    }
}

fn check_number(number: u16, seen: &mut HashSet<u16>) -> Result<(), String> {
    if number < FIRST_FLOW {
        return Err(format!("flow number {number}: expected {FIRST_FLOW} or more"));
    }
    if !seen.insert(number) {
        return Err(format!("flow number {number} twice"));
    }
    Ok(())
}

impl Ingress {
    fn check(&self) -> Result<(), String> {
        if !(1..=10_000).contains(&self.queue_ms) {
            return Err(format!("queue_ms {}: expected 1 to 10000", self.queue_ms));
        }
        if self.burst.bytes > MAX_BURST_BYTES || self.burst.ms > 10_000 {
            return Err(format!("burst: expected at most {MAX_BURST_BYTES} bytes and 10000 ms"));
        }
        let ids: Vec<u8> = self.paths.iter().map(|p| p.id).collect();
        check_paths(ids.iter().copied())?;
        for path in &self.paths {
            path.check().map_err(|e| format!("path {}: {e}", path.id))?;
            self.check_copied(path).map_err(|e| format!("path {}: copied_from: {e}", path.id))?;
        }
        self.split.check(&ids).map_err(|e| format!("split: {e}"))
    }

    fn check_copied(&self, path: &OutPath) -> Result<(), String> {
        let from = match path.copied_from {
            None => return Ok(()),
            Some(from) => from,
        };
        if self.split != SplitMode::Copy {
            return Err("expected the split \"copy\"".into());
        }
        match self.paths.iter().find(|p| p.id == from) {
            Some(other) if other.copied_from.is_none() => Ok(()),
            Some(_) => Err(format!("nothing is sent on path {from} either")),
            None => Err(format!("unknown path {from}")),
        }
    }
}

impl OutPath {
    pub(super) fn check(&self) -> Result<(), String> {
        check_rate(self.rate_mbps)?;
        if !(self.weight > 0.0 && self.weight <= MAX_RATE_MBPS) {
            return Err(format!("weight {}: expected more than 0", self.weight));
        }
        if self.labels.len() > MAX_LABELS {
            return Err(format!("{} labels: expected at most {MAX_LABELS}", self.labels.len()));
        }
        if let Some(label) = self.labels.iter().find(|l| **l > MAX_LABEL) {
            return Err(format!("label {label} has more than 20 bits"));
        }
        let least = self.overhead() + 60;
        if !(least..=65_535).contains(&self.mtu) {
            return Err(format!("mtu {}: expected {least} to 65535", self.mtu));
        }
        Ok(())
    }
}

/// What the agent says.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum Reply<'a> {
    Hello {
        version: u32,
        node: &'a str,
        program: &'a str,
        boot: &'a str,
        token: Option<&'a str>,
        revision: u64,
        /// It can report what changed.
        changes: bool,
        /// It can seal frames.
        seals: bool,
        /// It can join pieces of frames, and send them on.
        pieces: bool,
        /// It can seal what its switch sends to neighbours.
        seals_links: bool,
        /// The greatest that was ever named.
        #[serde(skip_serializing_if = "is_zero")]
        epoch: u64,
    },
    /// The answer to "lead": what is in force.
    #[serde(rename = "ok")]
    Obeys {
        seq: Option<u64>,
        revision: u64,
        rates: BTreeMap<u16, BTreeMap<u8, Option<f64>>>,
    },
    /// Another session leads.
    #[serde(rename = "error")]
    Stale {
        seq: Option<u64>,
        message: &'a str,
        epoch: u64,
    },
    Ok {
        seq: Option<u64>,
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        from: BTreeMap<u16, u32>,
    },
    Error {
        seq: Option<u64>,
        message: &'a str,
    },
    Link {
        link: &'a str,
        up: bool,
    },
    /// What was read from the node's ports.
    Ports {
        ports: &'a [Port],
    },
    Passed {
        number: u16,
        paths: &'a [PathNotice],
    },
    Ping {
        seq: Option<u64>,
    },
    Pong {
        seq: Option<u64>,
        /// The greatest that was ever named.
        #[serde(skip_serializing_if = "is_zero")]
        epoch: u64,
        /// How long ago the session of that epoch said something; none if there is no such session now.
        #[serde(skip_serializing_if = "Option::is_none")]
        heard_ms: Option<u64>,
    },
    Report(&'a Report),
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Reply<'_> {
    pub fn line(&self) -> String {
        // These types hold nothing that JSON can't say; an empty line would only be ignored.
        serde_json::to_string(self).unwrap_or_default()
    }
}

#[cfg(test)]
#[path = "protocol_tests.rs"]
mod tests;
