//! What the agent tells at once of watched paths: that the first frame came, and what markers say.

use super::inpath::InPath;
use serde::Serialize;

const MS: u64 = 1_000_000;
/// A flow tells no more often than this, whatever comes in.
const LEAST_GAP_NS: u64 = 5 * MS;
/// What only data say is told no more often than this.
const DATA_GAP_NS: u64 = 100 * MS;

/// A watched path, as it is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PathNotice {
    pub id: u8,
    pub passed: Option<u32>,
    pub arrived: Option<u32>,
    pub paused: bool,
}

#[derive(Debug, Default)]
pub struct Watch {
    told: Vec<PathNotice>,
    told_ns: Option<u64>,
    due_ns: Option<u64>,
}

fn state(paths: &[InPath]) -> Vec<PathNotice> {
    let notice = |p: &InPath| PathNotice { id: p.id, passed: p.passed, arrived: p.arrived, paused: p.paused };
    paths.iter().filter(|p| p.watched).map(notice).collect()
}

impl Watch {
    /// A frame came on a watched path, or of it: `is_marker` if it did not carry data.
    pub fn heard(&mut self, now_ns: u64, is_marker: bool) {
        let gap_ns = if is_marker { LEAST_GAP_NS } else { DATA_GAP_NS };
        let at_ns = self.told_ns.map_or(now_ns, |told| now_ns.max(told + gap_ns));
        self.due_ns = Some(self.due_ns.map_or(at_ns, |due| due.min(at_ns)));
    }

    pub fn due_ns(&self) -> Option<u64> {
        self.due_ns
    }

    /// What is to be told now, if there is anything new.
    pub fn take(&mut self, now_ns: u64, paths: &[InPath]) -> Option<Vec<PathNotice>> {
        if self.due_ns.map_or(true, |due| due > now_ns) {
            return None;
        }
        self.due_ns = None;
        let state = state(paths);
        if state == self.told || state.is_empty() {
            return None;
        }
        self.told = state.clone();
        self.told_ns = Some(now_ns);
        Some(state)
    }
}
