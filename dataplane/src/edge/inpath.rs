//! What a receiver knows of one path of its flow.

use super::delay::WindowedMin;
use super::reorder::before;

const MS: u64 = 1_000_000;
/// A path silent for longer is not waited for.
pub const SILENT_NS: u64 = 150 * MS;
/// Nor is one that was never silent for long, once it is silent for longer than twice that and a keep-alive's interval.
const LEAST_SILENT_NS: u64 = 30 * MS;
const KEEP_ALIVE_NS: u64 = 20 * MS;
/// What is known of a path's silences is of the last one to two of these times, and of so many of them.
const LATELY_NS: u64 = 2_000 * MS;
const KNOWN: u32 = 50;
/// A path silent for longer than its slowest keep-alives get no grace either when its flow wakes up.
const FORGOTTEN_NS: u64 = 5_000 * MS;

/// The longest silence of a path lately, in the time before that and in this one.
#[derive(Clone, Copy, Debug, Default)]
struct Silences {
    since_ns: u64,
    longest_ns: [u64; 2],
    count: [u32; 2],
}

impl Silences {
    fn add(&mut self, now_ns: u64, silence_ns: u64) {
        let age_ns = now_ns.saturating_sub(self.since_ns);
        if age_ns > LATELY_NS {
            let is_next = age_ns <= 2 * LATELY_NS;
            self.longest_ns = [if is_next { self.longest_ns[1] } else { 0 }, 0];
            self.count = [if is_next { self.count[1] } else { 0 }, 0];
            self.since_ns = now_ns;
        }
        self.longest_ns[1] = self.longest_ns[1].max(silence_ns);
        self.count[1] = self.count[1].saturating_add(1);
    }

    /// From when on a silence is not one of these.
    fn limit_ns(&self) -> u64 {
        if self.count[0].saturating_add(self.count[1]) < KNOWN {
            return SILENT_NS;
        }
        let longest_ns = self.longest_ns[0].max(self.longest_ns[1]);
        (2 * longest_ns + KEEP_ALIVE_NS).clamp(LEAST_SILENT_NS, SILENT_NS)
    }
}

#[derive(Clone, Debug)]
pub struct InPath {
    pub id: u8,
    pub received_frames: u64,
    pub received_bytes: u64,
    pub heard_ns: Option<u64>,
    silences: Silences,
    /// Of the silence of now, the time in which nothing came by any path: perhaps nobody was there to hear it.
    excused_ns: u64,
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
            silences: Silences::default(),
            excused_ns: 0,
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

    /// Something of this path came that is not old.
    pub(super) fn heard(&mut self, now_ns: u64) {
        if let Some(silence_ns) = self.heard_ns.map(|at| now_ns.saturating_sub(at)).filter(|ns| *ns <= SILENT_NS) {
            self.silences.add(now_ns, silence_ns.saturating_sub(self.excused_ns));
        }
        self.heard_ns = Some(now_ns);
        self.excused_ns = 0;
    }

    /// Nothing came by any path of the flow for so long.
    pub(super) fn excuse(&mut self, silence_ns: u64) {
        self.excused_ns = self.excused_ns.saturating_add(silence_ns);
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
        if active_ns > heard && active_ns - heard < FORGOTTEN_NS {
            return active_ns + SILENT_NS;
        }
        // What the sender said on another path tells of no silence here.
        let is_heard = self.heard_ns == Some(heard);
        let limit_ns = if is_heard { self.silences.limit_ns().saturating_add(self.excused_ns) } else { SILENT_NS };
        heard + limit_ns.min(SILENT_NS)
    }
}
