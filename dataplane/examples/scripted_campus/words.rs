//! What controllers say to agents and radios, and the test says to this program.
use std::collections::HashMap;

use serde::{Deserialize, Serialize};

/// Rates in Mb/s by flow number and path id; none: unshaped.
pub type RatesByFlow = HashMap<u32, HashMap<u32, Option<f64>>>;

/// A line of a controller; which of these are there depends on its kind.
#[derive(Debug, Deserialize)]
pub struct Said {
    #[serde(rename = "type")]
    pub kind: String,
    pub seq: Option<u64>,
    pub epoch: Option<u64>,
    pub report_ms: Option<f64>,
    pub interval_ms: Option<f64>,
    pub whole_ms: Option<f64>,
    #[serde(default)]
    pub leader: bool,
}

/// A line of a device. Members are written in this order, as devices do: `type` first.
#[derive(Debug, Default, Serialize)]
pub struct Answer<'a> {
    #[serde(rename = "type")]
    pub kind: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rates: Option<HashMap<u32, HashMap<u32, f64>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub up: Option<bool>,
}

/// What an agent or a radio says first.
#[derive(Debug, Serialize)]
pub struct FirstWords<'a> {
    #[serde(rename = "type")]
    pub kind: &'a str,
    pub version: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<&'a str>,
    pub node: &'a str,
    pub program: &'a str,
    pub boot: &'a str,
    pub token: Option<&'a str>,
    pub changes: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
}

/// A configuration, as far as scripted agents use it.
#[derive(Debug, Deserialize)]
pub struct Config {
    pub revision: u64,
    pub ingress: Vec<Leaving>,
    pub egress: Vec<Arriving>,
    pub hello: Hello,
}

/// A flow that begins at the agent.
#[derive(Debug, Deserialize)]
pub struct Leaving {
    pub number: u32,
    pub paths: Vec<Path>,
}

/// A path of it.
#[derive(Debug, Deserialize)]
pub struct Path {
    pub id: u32,
    pub rate_mbps: Option<f64>,
    #[serde(default)]
    pub labels: Vec<u32>,
}

/// A flow that ends at the agent.
#[derive(Debug, Deserialize)]
pub struct Arriving {
    pub number: u32,
    pub paths: Vec<u32>,
}

/// Links whose hello frames are expected.
#[derive(Debug, Deserialize)]
pub struct Hello {
    pub expect: Vec<Expected>,
}

/// One of them.
#[derive(Debug, Deserialize)]
pub struct Expected {
    pub link: String,
}

/// The message `rates`.
#[derive(Debug, Deserialize)]
pub struct Rates {
    pub rates: RatesByFlow,
}

/// A request of the test.
#[derive(Debug, Deserialize)]
#[serde(tag = "op", rename_all = "kebab-case")]
pub enum Request {
    /// A link falls silent, or is heard again (`up`).
    Cut {
        link: String,
        #[serde(default)]
        up: bool,
    },
    /// How long it took until no agent sent by the cut link any more.
    CutMs,
    /// Links that flows use now.
    Used,
    /// Processor time of this program.
    Cpu,
    /// Counts of sent and received messages.
    Counts,
    /// How late reports were since the last such request.
    Lateness,
    /// From now on the air is another one.
    Air(super::script::Air),
}
