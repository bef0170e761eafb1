//! What the last edge of a flow is told to do, and the checks of it. See docs/reference/dataplane.md section 2.

use super::seal::Base;
use serde::Deserialize;
use std::collections::HashSet;

#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub struct Egress {
    pub number: u16,
    #[serde(default)]
    pub id: String,
    pub paths: Vec<u8>,
    #[serde(default = "default_true")]
    pub reorder: bool,
    #[serde(default = "default_true")]
    pub equalise: bool,
    #[serde(default = "default_max_hold_ms")]
    pub max_hold_ms: u64,
    #[serde(default)]
    pub hold: HoldConfig,
    #[serde(default)]
    pub late: Late,
    /// Paths of which the agent tells at once.
    #[serde(default)]
    pub watch: Vec<u8>,
    /// With which its frames must be sealed.
    #[serde(default)]
    pub key: Option<Base>,
}

/// Paths that are waited for even if they are silent, until their pause came.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub struct HoldConfig {
    pub paths: Vec<u8>,
    pub ms: u64,
}

impl Default for HoldConfig {
    fn default() -> Self {
        HoldConfig { paths: Vec::new(), ms: 1 }
    }
}

/// What becomes of frames that come after they were given up.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Late {
    #[default]
    Deliver,
    Drop,
}

fn default_true() -> bool {
    true
}
fn default_max_hold_ms() -> u64 {
    100
}

const MAX_PATHS: usize = 32;

/// Of a flow, at either end.
pub(super) fn check_paths(ids: impl Iterator<Item = u8>) -> Result<(), String> {
    let mut seen = HashSet::new();
    for id in ids {
        if !seen.insert(id) {
            return Err(format!("path {id} twice"));
        }
    }
    if seen.len() > MAX_PATHS {
        return Err(format!("more than {MAX_PATHS} paths"));
    }
    Ok(())
}

impl Egress {
    pub fn check(&self) -> Result<(), String> {
        for (name, ms) in [("max_hold_ms", self.max_hold_ms), ("hold: ms", self.hold.ms)] {
            if !(1..=10_000).contains(&ms) {
                return Err(format!("{name} {ms}: expected 1 to 10000"));
            }
        }
        check_paths(self.paths.iter().copied())?;
        for (name, ids) in [("hold", &self.hold.paths), ("watch", &self.watch)] {
            check_paths(ids.iter().copied()).map_err(|e| format!("{name}: {e}"))?;
            if let Some(id) = ids.iter().find(|id| !self.paths.contains(id)) {
                return Err(format!("{name}: unknown path {id}"));
            }
        }
        Ok(())
    }
}
