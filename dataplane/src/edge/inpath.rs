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
    pub passed: Option<u32>,
    pub paused: bool,
    /// The greatest number that a frame other than a pause brought since it is watched.
    pub arrived: Option<u32>,
    pub watched: bool,
    /// It is waited for even if it is silent, until its pause comes; and whether that is still so.
    pub(super) hold: bool,
    pub(super) holding: bool,
    /// When the sender last said on another path that it uses this one again, by its own clock.
    resumed_us: Option<u32>,
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
            arrived: None,
            watched: false,
            hold: false,
            holding: false,
            resumed_us: None,
            delay: WindowedMin::default(),
        }
    }

    /// A frame of this path came, sent at `sent_us`.
    pub(super) fn said(&mut self, sent_us: u32, pause: bool) {
        self.sent_us = Some(sent_us);
        // A pause that was sent before the path was used again is old news.
        self.paused = pause && self.resumed_us.map_or(true, |resumed| !before(sent_us, resumed));
    }

    /// The sender said at `sent_us` on another path that it uses this one again, from `sequence` on. If this path has
    /// told of later times itself, that is old news.
    pub(super) fn resumed(&mut self, now_ns: u64, sent_us: u32, sequence: u32) {
        if self.sent_us.map_or(true, |last| before(last, sent_us)) {
            // Unless its pause has come, something from before it may still be on its way.
            if self.paused || self.passed.is_none() {
                self.passed_to(sequence);
            }
            self.paused = false;
            self.resumed_us = Some(sent_us);
            self.expected_ns = Some(now_ns);
        }
    }

    /// Something that came on this path itself brought a number; true if it is the first.
    pub(super) fn arrived_to(&mut self, sequence: u32) -> bool {
        let first = self.watched && self.arrived.is_none();
        if self.watched && self.arrived.map_or(true, |arrived| before(arrived, sequence)) {
            self.arrived = Some(sequence);
        }
        first
    }

    /// Whether this path is to be held and to be watched from now on. What it was before goes on.
    pub(super) fn attend(&mut self, hold: bool, watched: bool) {
        if hold != self.hold {
            self.hold = hold;
            self.holding = hold;
        }
        if watched != self.watched {
            self.watched = watched;
            self.arrived = None;
        }
    }

    /// Whether it is waited for though it may be silent.
    pub(super) fn is_held(&self) -> bool {
        self.holding && !self.paused
    }

    /// The sender has begun another sequence, by a clock that may have started anew.
    pub(super) fn restart(&mut self) {
        self.passed = None;
        self.arrived = None;
        self.sent_us = None;
        self.resumed_us = None;
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
