//! What the program is given: one line of JSON on standard input (`tests/support/campus_devices.py` writes it).
use serde::Deserialize;

/// All devices, and where their controllers listen.
#[derive(Debug, Clone, Deserialize)]
pub struct Script {
    /// Equal seeds give equal air and equal phases of reports.
    pub seed: u64,
    /// A TCP port of each controller on loopback, for switches.
    pub openflow: Vec<u16>,
    /// The same for agents and radios.
    pub agents: Vec<u16>,
    pub air: Air,
    /// Whether agents report what arrives by each path.
    pub arrivals: bool,
    /// Whether nodes have telemetry sessions.
    pub radios: bool,
    pub nodes: Vec<Node>,
    pub links: Vec<Link>,
}

/// How the air changes from one reading to the next.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
pub struct Air {
    /// Half of the rows differ by 1 to 3 dB, and their rates by up to 5 %.
    pub noise: bool,
    /// The probability that a row takes another rate and signal.
    pub moving: f64,
}

/// A node with a switch.
#[derive(Debug, Clone, Deserialize)]
pub struct Node {
    pub node: String,
    pub dpid: u64,
    pub ports: Vec<String>,
    pub agent: bool,
    pub media: Vec<Medium>,
}

/// What the radio of one technology hears.
#[derive(Debug, Clone, Deserialize)]
pub struct Medium {
    pub technology: String,
    pub rows: Vec<Neighbour>,
}

/// The far end of a link, at rest.
#[derive(Debug, Clone, Deserialize)]
pub struct Neighbour {
    pub mac: String,
    pub tx_mbps: f64,
}

/// A link: the agent of `target` says whether it is heard.
#[derive(Debug, Clone, Deserialize)]
pub struct Link {
    pub link: String,
    pub label: u32,
    pub target: String,
}
