//! What a receiver knows of one path of its flow.

use super::delay::WindowedMin;
use super::reorder::before;

const MS: u64 = 1_000_000;
/// A path silent for longer is not waited for.
pub const SILENT_NS: u64 = 150 * MS;
/// A path silent for longer than its slowest keep-alives get no grace either when its flow wakes up.
const FORGOTTEN_NS: u64 = 5_000 * MS;

#[derive(Clone, Debug)]
pub struct InPath {
    pub id: u8,
    pub received_frames: u64,
    pub received_bytes: u64,
    pub heard_ns: Option<u64>,
    known_ns: u64,
    /// When the sender said on another path that it uses this one again.
    expected_ns: Option<u64>,
    /// The sender's time of what was heard last.
    sent_us: Option<u32>,
    /// Every number before this one has arrived on this path, or never will.
    pub(super) passed: Option<u32>,
    pub(super) paused: bool,
    pub(super) delay: WindowedMin,
}

impl InPath {
    pub(super) fn new(id: u8, now_ns: u64) -> Self {
        InPath {
            id,
            received_frames: 0,
            received_bytes: 0,
            heard_ns: None,
            known_ns: now_ns,
            expected_ns: None,
            sent_us: None,
            passed: None,
            paused: false,
            delay: WindowedMin::default(),
        }
    }

    /// A frame of this path came, sent at `sent_us`.
    pub(super) fn heard(&mut self, now_ns: u64, sent_us: u32, pause: bool) {
        self.heard_ns = Some(now_ns);
        self.sent_us = Some(sent_us);
        self.paused = pause;
    }

    /// The sender said at `sent_us` on another path that it uses this one again, from `sequence` on. If this path has
    /// told of later times itself, that is old news.
    pub(super) fn resumed(&mut self, now_ns: u64, sent_us: u32, sequence: u32) {
        if self.sent_us.map_or(true, |last| before(last, sent_us)) {
            self.paused = false;
            self.expected_ns = Some(now_ns);
            self.passed_to(sequence);
        }
    }

    /// Numbers before this one have come on this path, or never will.
    pub(super) fn passed_to(&mut self, sequence: u32) {
        if self.passed.map_or(true, |passed| before(passed, sequence)) {
            self.passed = Some(sequence);
        }
    }

    /// Until when this path is live if nothing more is heard of it.
    pub(super) fn live_until(&self, active_ns: u64) -> u64 {
        if self.paused {
            return 0;
        }
        let heard = self.heard_ns.max(self.expected_ns).unwrap_or(self.known_ns);
        let from = if active_ns > heard && active_ns - heard < FORGOTTEN_NS { active_ns } else { heard };
        from + SILENT_NS
    }
}
