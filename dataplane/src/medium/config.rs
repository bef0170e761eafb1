//! The configuration of the emulator: read from JSON, checked once, with names turned into indices.

use super::contention::{check_contention, Contention};
use crate::sys::interface::{parse_mac, Mac};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// What is wrong with a configuration: the place in the document and what was expected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError(pub String);

impl std::fmt::Display for ConfigError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.0)
    }
}

pub(super) fn fault<T>(place: impl std::fmt::Display, problem: impl std::fmt::Display) -> Result<T, ConfigError> {
    Err(ConfigError(format!("{place}: {problem}")))
}

/// Options of the whole medium.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// Frames a link keeps while it waits for the medium.
    pub queue_frames: usize,
    /// Airtime that each access costs besides the bytes, in microseconds.
    pub frame_overhead_us: f64,
    /// Frames that may share one overhead.
    pub aggregate_frames: usize,
    /// Longest access with more than one frame, in microseconds.
    pub aggregate_us: f64,
    /// Seed of access order and losses.
    pub seed: u64,
    /// MTU in bytes of the ports that name none of their own.
    pub mtu: u32,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            queue_frames: 100,
            frame_overhead_us: 0.0,
            aggregate_frames: 1,
            aggregate_us: 4000.0,
            seed: 1,
            mtu: 1600,
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPort {
    name: String,
    #[serde(default)]
    netns: Option<String>,
    mac: String,
    technology: String,
    #[serde(default)]
    uplink: Option<String>,
    #[serde(default)]
    hears: Option<Vec<String>>,
    #[serde(default)]
    radio: Option<String>,
    #[serde(default)]
    mtu: Option<u32>,
}

fn yes() -> bool {
    true
}

fn strong() -> i32 {
    DEFAULT_SIGNAL_DBM
}

/// What mac80211_hwsim itself says of every frame.
const DEFAULT_SIGNAL_DBM: i32 = -50;
/// The least and the greatest MTU in bytes.
const LEAST_MTU: u32 = 68;
const MOST_MTU: u32 = 9216;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawLink {
    id: String,
    from: String,
    to: String,
    capacity_mbps: f64,
    #[serde(default)]
    delay_ms: f64,
    #[serde(default)]
    loss: f64,
    #[serde(default = "yes")]
    up: bool,
    #[serde(default = "strong")]
    signal_dbm: i32,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawConflicts {
    technology: Option<bool>,
    pairs: Option<Vec<(usize, usize)>>,
    domains: Option<Vec<Vec<usize>>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawConfig {
    #[serde(default)]
    options: Options,
    ports: Vec<RawPort>,
    links: Vec<RawLink>,
    conflicts: RawConflicts,
    #[serde(default)]
    contention: BTreeMap<String, Contention>,
}

/// A port: one interface of one station.
#[derive(Debug, Clone)]
pub struct Port {
    /// Name of the TAP.
    pub name: String,
    /// Namespace the TAP is made in; None: that of the emulator.
    pub netns: Option<String>,
    /// MAC address.
    pub mac: Mac,
    /// Technology (medium instance).
    pub technology: String,
    /// Port that everything is sent to, if this is a station of an access point.
    pub uplink: Option<usize>,
    /// Ports whose transmissions it hears besides its own; None: nobody asks.
    pub hears: Option<Vec<usize>>,
    /// Hardware address if it is a radio of mac80211_hwsim; None: a TAP device.
    pub radio: Option<Mac>,
    /// MTU of the TAP in bytes.
    pub mtu: u32,
}

/// What may change in a link while the medium runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LinkState {
    /// Capacity at L2 payload in Mb/s; 0 carries nothing.
    pub capacity_mbps: f64,
    /// Propagation delay in milliseconds.
    pub delay_ms: f64,
    /// Probability that a frame is lost.
    pub loss: f64,
    /// Whether the link exists at all now.
    pub up: bool,
    /// Strength with which a radio at its end hears it.
    pub signal_dbm: i32,
}

impl LinkState {
    /// A link that is up, without delay and loss.
    pub fn of(capacity_mbps: f64) -> LinkState {
        LinkState { capacity_mbps, delay_ms: 0.0, loss: 0.0, up: true, signal_dbm: DEFAULT_SIGNAL_DBM }
    }

    /// The first thing that is out of range, if any.
    pub fn problem(&self) -> Option<String> {
        let checks = [
            ("capacity_mbps", self.capacity_mbps, 0.0, 1e6),
            ("delay_ms", self.delay_ms, 0.0, 10_000.0),
            ("loss", self.loss, 0.0, 1.0),
            ("signal_dbm", f64::from(self.signal_dbm), -110.0, 0.0),
        ];
        let bad = checks.into_iter().find(|&(_, value, low, high)| !(low..=high).contains(&value));
        bad.map(|(name, value, low, high)| format!("{name}: expected a number from {low} to {high}, got {value}"))
    }
}

/// A directed link between two ports.
#[derive(Debug, Clone)]
pub struct Link {
    /// Identifier, unique.
    pub id: String,
    /// Index of the sending port.
    pub from: usize,
    /// Index of the receiving port.
    pub to: usize,
    /// State at the start.
    pub state: LinkState,
}

/// Which links contend; indices into `links`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConflictRule {
    /// All links of one technology contend.
    Technology,
    /// Explicit pairs (symmetric closure is taken).
    Pairs(Vec<(usize, usize)>),
    /// Explicit cliques.
    Domains(Vec<Vec<usize>>),
}

/// A checked configuration.
#[derive(Debug, Clone)]
pub struct Config {
    /// Options.
    pub options: Options,
    /// Ports.
    pub ports: Vec<Port>,
    /// Links between them.
    pub links: Vec<Link>,
    /// Which of them contend.
    pub conflicts: ConflictRule,
    /// How stations contend, by technology; ideal where nothing is said.
    pub contention: BTreeMap<String, Contention>,
}

impl Config {
    /// Reads and checks a configuration; nothing is taken over from a bad one.
    pub fn parse(text: &str) -> Result<Config, ConfigError> {
        let raw: RawConfig = serde_json::from_str(text).map_err(|e| ConfigError(e.to_string()))?;
        check_options(&raw.options)?;
        let ports = check_ports(&raw.ports, &raw.options)?;
        let links = check_links(&raw.links, &raw.ports)?;
        for (i, port) in ports.iter().enumerate() {
            if let Some(to) = port.uplink {
                if !links.iter().any(|l| l.from == i && l.to == to) {
                    return fault(
                        format!("ports[{i}].uplink"),
                        format!("no link from {} to {}", port.name, ports[to].name),
                    );
                }
            }
        }
        check_addresses(&ports, &links)?;
        let conflicts = check_conflicts(raw.conflicts, &ports, &links)?;
        let contention = check_contention(raw.contention, &ports)?;
        Ok(Config { options: raw.options, ports, links, conflicts, contention })
    }
}

fn check_options(options: &Options) -> Result<(), ConfigError> {
    let whole = [
        ("queue_frames", options.queue_frames, 1, 1 << 20),
        ("aggregate_frames", options.aggregate_frames, 1, 1 << 16),
        ("mtu", options.mtu as usize, LEAST_MTU as usize, MOST_MTU as usize),
    ];
    for (name, value, low, high) in whole {
        if !(low..=high).contains(&value) {
            return fault(format!("options.{name}"), format!("expected {low} to {high}, got {value}"));
        }
    }
    for (name, value) in [("frame_overhead_us", options.frame_overhead_us), ("aggregate_us", options.aggregate_us)] {
        if !(0.0..=1e6).contains(&value) {
            return fault(format!("options.{name}"), format!("expected 0 to 1e6 microseconds, got {value}"));
        }
    }
    Ok(())
}

fn check_ports(raw: &[RawPort], options: &Options) -> Result<Vec<Port>, ConfigError> {
    let mut places: BTreeSet<(Option<&str>, &str)> = BTreeSet::new();
    let mut names: HashMap<&str, usize> = HashMap::new();
    for (i, port) in raw.iter().enumerate() {
        if port.name.is_empty() || port.name.len() > 15 {
            return fault(format!("ports[{i}].name"), "expected an interface name of 1 to 15 characters");
        }
        if names.insert(&port.name, i).is_some() || !places.insert((port.netns.as_deref(), &port.name)) {
            return fault(format!("ports[{i}].name"), format!("{:?} is used twice", port.name));
        }
    }
    let mut ports = Vec::with_capacity(raw.len());
    for (i, port) in raw.iter().enumerate() {
        let mac = check_mac(&format!("ports[{i}].mac"), &port.mac)?;
        let radio = check_radio(i, port)?;
        if let Some(other) = ports.iter().position(|p: &Port| radio.is_some() && p.radio == radio) {
            return fault(format!("ports[{i}].radio"), format!("is that of ports[{other}]"));
        }
        let uplink = match port.uplink.as_deref() {
            None => None,
            Some(name) => match names.get(name) {
                Some(&index) => Some(index),
                None => return fault(format!("ports[{i}].uplink"), format!("no port {name:?}")),
            },
        };
        let mut hears = port.hears.as_ref().map(|_| Vec::new());
        for (k, name) in port.hears.iter().flatten().enumerate() {
            match names.get(name.as_str()) {
                Some(&index) => hears.iter_mut().for_each(|heard: &mut Vec<usize>| heard.push(index)),
                None => return fault(format!("ports[{i}].hears[{k}]"), format!("no port {name:?}")),
            }
        }
        let (name, netns, technology) = (port.name.clone(), port.netns.clone(), port.technology.clone());
        let mtu = check_mtu(i, port, options)?;
        ports.push(Port { name, netns, mac, technology, uplink, hears, radio, mtu });
    }
    Ok(ports)
}

/// The MTU of a port: its own, or that of all ports. It never exceeds the latter, for which the buffers are made.
fn check_mtu(i: usize, port: &RawPort, options: &Options) -> Result<u32, ConfigError> {
    let mtu = match port.mtu {
        None => return Ok(options.mtu),
        Some(mtu) => mtu,
    };
    if port.radio.is_some() {
        return fault(format!("ports[{i}].mtu"), "a radio's interface has its MTU from its owner");
    }
    if !(LEAST_MTU..=options.mtu).contains(&mtu) {
        return fault(format!("ports[{i}].mtu"), format!("expected {LEAST_MTU} to {}, got {mtu}", options.mtu));
    }
    Ok(mtu)
}

fn check_mac(place: &str, text: &str) -> Result<Mac, ConfigError> {
    match parse_mac(text) {
        Some(mac) if mac[0] & 1 == 0 && mac != [0; 6] => Ok(mac),
        _ => fault(place, format!("expected a unicast MAC address, got {text:?}")),
    }
}

/// The hardware address of a port that is a radio. Its interface may be in any namespace, and its frames name their receiver.
fn check_radio(i: usize, port: &RawPort) -> Result<Option<Mac>, ConfigError> {
    let text = match &port.radio {
        None => return Ok(None),
        Some(text) => text,
    };
    for (key, given) in [("netns", port.netns.is_some()), ("uplink", port.uplink.is_some())] {
        if given {
            return fault(format!("ports[{i}].{key}"), "a radio has none");
        }
    }
    check_mac(&format!("ports[{i}].radio"), text).map(Some)
}

fn check_links(raw: &[RawLink], ports: &[RawPort]) -> Result<Vec<Link>, ConfigError> {
    let names: HashMap<&str, usize> = ports.iter().enumerate().map(|(i, p)| (p.name.as_str(), i)).collect();
    let mut ids = BTreeSet::new();
    let mut links = Vec::with_capacity(raw.len());
    for (i, link) in raw.iter().enumerate() {
        if !ids.insert(&link.id) {
            return fault(format!("links[{i}].id"), format!("{:?} is used twice", link.id));
        }
        let find = |key: &str, name: &str| match names.get(name) {
            Some(&index) => Ok(index),
            None => fault(format!("links[{i}].{key}"), format!("no port {name:?}")),
        };
        let (from, to) = (find("from", &link.from)?, find("to", &link.to)?);
        if from == to {
            return fault(format!("links[{i}]"), "leads from a port to itself");
        }
        if ports[from].radio.is_some() != ports[to].radio.is_some() {
            return fault(format!("links[{i}]"), "joins a radio and a port that is none");
        }
        let RawLink { capacity_mbps, delay_ms, loss, up, signal_dbm, .. } = *link;
        let state = LinkState { capacity_mbps, delay_ms, loss, up, signal_dbm };
        if let Some(problem) = state.problem() {
            return fault(format!("links[{i}]"), problem);
        }
        links.push(Link { id: link.id.clone(), from, to, state });
    }
    Ok(links)
}

/// A destination address must lead to one link of its port.
fn check_addresses(ports: &[Port], links: &[Link]) -> Result<(), ConfigError> {
    let mut seen = HashMap::new();
    for (i, link) in links.iter().enumerate() {
        if let Some(other) = seen.insert((link.from, ports[link.to].mac), i) {
            let problem = format!("leads from {} to the same MAC address as links[{other}]", ports[link.from].name);
            return fault(format!("links[{i}]"), problem);
        }
    }
    Ok(())
}

fn check_conflicts(raw: RawConflicts, ports: &[Port], links: &[Link]) -> Result<ConflictRule, ConfigError> {
    let expected = "expected exactly one of {\"technology\": true}, {\"pairs\": ...}, {\"domains\": ...}";
    match (raw.technology, raw.pairs, raw.domains) {
        (Some(true), None, None) => {
            let mixed = links.iter().position(|l| ports[l.from].technology != ports[l.to].technology);
            match mixed {
                Some(i) => fault(format!("links[{i}]"), "joins ports of two technologies"),
                None => Ok(ConflictRule::Technology),
            }
        }
        (None, Some(pairs), None) => {
            let numbers = pairs.iter().enumerate().flat_map(|(i, &(a, b))| [(i, a), (i, b)]);
            check_indices("conflicts.pairs", numbers, links.len())?;
            Ok(ConflictRule::Pairs(pairs))
        }
        (None, None, Some(domains)) => {
            let numbers = domains.iter().enumerate().flat_map(|(i, d)| d.iter().map(move |&l| (i, l)));
            check_indices("conflicts.domains", numbers, links.len())?;
            Ok(ConflictRule::Domains(domains))
        }
        _ => fault("conflicts", expected),
    }
}

fn check_indices(place: &str, numbers: impl Iterator<Item = (usize, usize)>, links: usize) -> Result<(), ConfigError> {
    for (i, index) in numbers {
        if index >= links {
            return fault(format!("{place}[{i}]"), format!("no link of index {index}, there are {links}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{json, Value};

    fn good() -> Value {
        json!({
            "ports": [
                {"name": "a", "netns": null, "mac": "02:00:00:00:00:01", "technology": "wifi", "uplink": "b", "hears": ["b"]},
                {"name": "b", "mac": "02:00:00:00:00:02", "technology": "wifi"}],
            "links": [{"id": "ab", "from": "a", "to": "b", "capacity_mbps": 10},
                      {"id": "ba", "from": "b", "to": "a", "capacity_mbps": 10, "delay_ms": 1.5, "loss": 0.1, "up": false}],
            "conflicts": {"technology": true}, "contention": {"wifi": "csma-802.11"}})
    }

    #[test]
    fn a_good_configuration_gets_its_defaults() {
        let config = Config::parse(&good().to_string()).unwrap();
        assert_eq!((config.options.queue_frames, config.options.mtu), (100, 1600));
        assert_eq!((config.ports[0].uplink, config.contention["wifi"]), (Some(1), Contention::Dot11));
        assert_eq!(config.links[0].state, LinkState::of(10.0));
        assert_eq!(config.links[1].state, LinkState { delay_ms: 1.5, loss: 0.1, up: false, ..LinkState::of(10.0) });
    }

    #[test]
    fn a_port_has_its_own_mtu_or_that_of_the_options() {
        let mut raw = good();
        raw["options"] = json!({"mtu": 1550});
        raw["ports"][0]["mtu"] = json!(1500);
        let config = Config::parse(&raw.to_string()).unwrap();
        assert_eq!((config.ports[0].mtu, config.ports[1].mtu), (1500, 1550));
    }

    #[test]
    fn every_fault_names_its_place() {
        let cases = [
            ("/ports/0/mac", json!("02:00"), "ports[0].mac"),
            ("/ports/0/mac", json!("03:00:00:00:00:01"), "ports[0].mac"),
            ("/ports/0/uplink", json!("zz"), "ports[0].uplink"),
            ("/ports/0/radio", json!("42:00:00:00:00:00"), "ports[0].uplink"),
            ("/ports/1/radio", json!("42:00"), "ports[1].radio"),
            ("/ports/1/radio", json!("42:00:00:00:00:00"), "links[0]: joins a radio"),
            ("/links/0/signal_dbm", json!(3), "signal_dbm"),
            ("/links/0/signal_dbm", json!(-50.5), "-50.5"),
            ("/ports/0/hears", json!(["b", "zz"]), "ports[0].hears[1]"),
            ("/ports/0/mtu", json!(67), "ports[0].mtu"),
            ("/ports/1/mtu", json!(1601), "ports[1].mtu"),
            ("/options", json!({"mtu": 9217}), "options.mtu"),
            ("/ports/1/name", json!("a"), "ports[1].name"),
            ("/ports/1/name", json!("a-name-that-is-too-long"), "ports[1].name"),
            ("/ports/1/technology", json!("plc"), "links[0]"),
            ("/links/0/to", json!("zz"), "links[0].to"),
            ("/links/0/to", json!("a"), "links[0]"),
            ("/links/1/id", json!("ab"), "links[1].id"),
            ("/links/0/capacity_mbps", json!(-1), "capacity_mbps"),
            ("/links/1/loss", json!(1.5), "loss"),
            ("/links/1/delay_ms", json!(1e9), "delay_ms"),
            ("/links", json!([]), "ports[0].uplink"),
            ("/conflicts", json!({}), "conflicts"),
            ("/conflicts", json!({"technology": false}), "conflicts"),
            ("/conflicts", json!({"technology": true, "pairs": []}), "conflicts"),
            ("/conflicts", json!({"pairs": [[0, 1], [0, 2]]}), "conflicts.pairs[1]"),
            ("/conflicts", json!({"domains": [[0, 5]]}), "conflicts.domains[0]"),
            ("/conflicts", json!({"cliques": []}), "cliques"),
            ("/contention", json!({"plc": "csma-1901"}), "contention.plc"),
            ("/contention/wifi", json!("csma"), "csma-802.11"),
        ];
        for (pointer, value, expected) in cases {
            let mut document = good();
            let (parent, key) = pointer.rsplit_once('/').unwrap();
            document.pointer_mut(parent).unwrap()[key] = value;
            let error = Config::parse(&document.to_string()).unwrap_err().to_string();
            assert!(error.contains(expected), "{pointer}: {error}");
        }
    }
}
