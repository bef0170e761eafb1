//! The receiving end of one flow: reordering, delay equalisation, loss and late frames. Sans I/O: time is an argument.
//!
//! A missing number is lost once every *live* path delivered a higher one (paths keep their order), or `max_hold`
//! after the first frame behind it arrived. A path is live while it was heard of within 150 ms; senders send
//! keep-alives every 20 ms while a flow is active. A path that was never silent for long lately is live for less, 30 ms
//! at least: it is dead, and what it did not bring is not worth waiting for. Its silence counts only while other paths
//! bring something. After an idle time every path that was heard of lately gets 150 ms of grace.
//!
//! Equalisation: a frame is held until its delay reaches the windowed minimum of the slowest live path.

use super::buffer::{Buf, Pool};
use super::delay::{ClockOrigin, WindowedMin};
use super::egress_config::{Egress, Late};
use super::frame::{Kind, Shim};
use super::inpath::InPath;
use super::pieces::Joiner;
use super::reorder::{before, Place, Window};
use super::watch::{PathNotice, Watch};

const MS: u64 = 1_000_000;
/// Without data for this long a flow was idle.
const IDLE_NS: u64 = 100 * MS;
/// Where nothing comes by any path for longer than this, the flow is slow or we were not run: no path is silent then.
const ALL_SILENT_NS: u64 = 5 * MS;
/// Holding a frame for less is not worth a timer.
const LEAST_HOLD_US: i32 = 200;
/// A late frame sent this long before the newest one is dropped: a path that comes back must not pour out its stale
/// queue.
const STALE_US: i32 = 250_000;
/// Send times further apart than this are not those of one running sender.
const NONSENSE_US: i32 = 10_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiverOptions {
    pub reorder: bool,
    pub equalise: bool,
    pub max_hold_ns: u64,
    /// Instead of `max_hold_ns` while a path is held.
    pub hold_ns: u64,
    /// What was given up is dropped if it comes after all.
    pub drop_late: bool,
}

impl ReceiverOptions {
    pub fn of(flow: &Egress) -> Self {
        ReceiverOptions {
            reorder: flow.reorder,
            equalise: flow.equalise,
            max_hold_ns: flow.max_hold_ms * MS,
            hold_ns: flow.hold.ms * MS,
            drop_late: flow.late == Late::Drop,
        }
    }
}

/// What comes out of a receiver: frames to hand on, in order, and buffers that are no longer needed.
#[derive(Debug, Default)]
pub struct Released {
    pub deliver: Vec<Buf>,
    pub waste: Vec<Buf>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReceiverCounters {
    pub delivered_frames: u64,
    pub delivered_bytes: u64,
    /// Arrived after a higher number.
    pub reordered: u64,
    /// Arrived after being given up, and delivered out of order.
    pub late: u64,
    /// Arrived so late that it was dropped.
    pub stale: u64,
    pub duplicate: u64,
    /// Numbers that every live path had passed.
    pub lost: u64,
    /// Numbers given up by the bounded hold.
    pub timed_out: u64,
    pub restarts: u64,
    /// Padding, dropped.
    pub dummies: u64,
    pub held_max: u64,
    pub hold_ns: u64,
}

#[derive(Debug)]
struct Held {
    buf: Buf,
    arrived_ns: u64,
    release_ns: u64,
}

/// A frame with what came along with it.
#[derive(Debug)]
struct Arrival {
    shim: Shim,
    buf: Option<Buf>,
    wire_bytes: usize,
    since_ns: u64,
}

#[derive(Debug)]
pub struct Receiver {
    options: ReceiverOptions,
    paths: Vec<InPath>,
    /// Paths that are no longer configured: what they were given may come again by others, for as long as they would
    /// have been waited for.
    leaving: Vec<InPath>,
    window: Option<Window<Held>>,
    origin: ClockOrigin,
    highest: u32,
    newest_sent_us: Option<u32>,
    /// A number that did not fit the window; a second one near it means the sender restarted.
    suspect: Option<Arrival>,
    accepted_ns: u64,
    /// When something came last, by whatever path.
    turned_ns: u64,
    data_ns: u64,
    active_ns: u64,
    /// Every number before this one is known to have been used.
    announced: u32,
    watch: Watch,
    joiner: Joiner,
    pub counters: ReceiverCounters,
}

impl Receiver {
    pub fn new(now_ns: u64, options: ReceiverOptions, paths: &[u8]) -> Self {
        Receiver {
            options,
            paths: paths.iter().map(|id| InPath::new(*id, now_ns)).collect(),
            leaving: Vec::new(),
            window: None,
            origin: ClockOrigin::default(),
            highest: 0,
            newest_sent_us: None,
            suspect: None,
            accepted_ns: 0,
            turned_ns: now_ns,
            data_ns: 0,
            active_ns: 0,
            announced: 0,
            watch: Watch::default(),
            joiner: Joiner::default(),
            counters: ReceiverCounters::default(),
        }
    }

    /// A new configuration; paths that stay keep what is known of them.
    pub fn update(&mut self, now_ns: u64, options: ReceiverOptions, paths: &[u8]) {
        self.options = options;
        let mut old = std::mem::take(&mut self.paths);
        self.paths = paths
            .iter()
            .map(|id| match old.iter().position(|p| p.id == *id) {
                Some(at) => old.swap_remove(at),
                None => InPath::new(*id, now_ns),
            })
            .collect();
        self.leaving.retain(|path| path.live_until(self.active_ns) > now_ns && !paths.contains(&path.id));
        self.leaving.extend(old.into_iter().filter(|path| path.heard_ns.is_some() && !path.is_held()));
    }

    /// Which paths are held, and which are told of at once. What is so already goes on.
    pub fn attend(&mut self, hold: &[u8], watch: &[u8]) {
        for path in &mut self.paths {
            path.attend(hold.contains(&path.id), watch.contains(&path.id));
        }
    }

    /// What is to be told at once of watched paths.
    pub fn notice(&mut self, now_ns: u64) -> Option<Vec<PathNotice>> {
        self.watch.take(now_ns, &self.paths)
    }

    pub fn paths(&self) -> &[InPath] {
        &self.paths
    }

    pub fn reset_counters(&mut self) {
        self.counters = ReceiverCounters::default();
        for path in &mut self.paths {
            path.received_frames = 0;
            path.received_bytes = 0;
        }
    }

    pub fn held(&self) -> usize {
        self.window.as_ref().map_or(0, Window::held)
    }

    /// Milliseconds, with the offset between the ends' clocks in it.
    pub fn delay_ms(&self, path: &InPath) -> Option<f64> {
        path.delay.get().map(|d| f64::from(self.origin.absolute_us(d)) / 1e3)
    }

    /// Takes a frame: `buf` is the inner frame (data) or nothing; `wire_bytes` its L2 payload as it arrived.
    pub fn on_frame(&mut self, now_ns: u64, shim: Shim, buf: Option<Buf>, wire_bytes: usize, out: &mut Released) {
        let window = self.window.get_or_insert_with(|| {
            self.highest = shim.sequence;
            self.announced = shim.sequence;
            Window::new(shim.sequence)
        });
        let mut far = window.place(shim.sequence) == Place::Far;
        if far && self.paths.iter().any(InPath::is_held) {
            far = !self.make_room(shim.sequence, out);
        }
        let frame = Arrival { shim, buf, wire_bytes, since_ns: now_ns };
        if far {
            self.on_far(now_ns, frame, out);
        } else {
            self.accept(now_ns, frame, out);
        }
        self.poll(now_ns, out);
    }

    /// A frame whose number fits the window.
    fn accept(&mut self, now_ns: u64, frame: Arrival, out: &mut Released) {
        let shim = frame.shim;
        self.accepted_ns = now_ns;
        let silence_ns = now_ns.saturating_sub(std::mem::replace(&mut self.turned_ns, now_ns));
        if silence_ns > ALL_SILENT_NS {
            self.paths.iter_mut().chain(&mut self.leaving).for_each(|path| path.excuse(silence_ns));
        }
        self.note_activity(now_ns, &shim);
        let stale = self.note_send_time(shim.sent_us);
        if !stale {
            self.begin_earlier(&shim);
        }
        let delay_us = self.origin.delay_us(now_ns, shim.sent_us);
        if delay_us.is_none() {
            for path in &mut self.paths {
                path.delay = WindowedMin::default();
            }
        }
        let delay_us = delay_us.unwrap_or(0);
        self.note_path(now_ns, &shim, delay_us, frame.wire_bytes, stale);
        if let Some(buf) = frame.buf {
            self.on_data(now_ns, &shim, delay_us, stale, buf, out);
        }
    }

    /// By how much a frame was sent before the newest one, by the sender's own clock.
    fn age_us(&self, sent_us: u32) -> i32 {
        self.newest_sent_us.map_or(0, |newest| newest.wrapping_sub(sent_us) as i32)
    }

    fn is_stale(&self, age_us: i32) -> bool {
        let limit_us = STALE_US.max((2 * self.options.max_hold_ns / 1000) as i32);
        // No queue holds frames for so long: either this frame's or the newest one's send time is nonsense.
        age_us > limit_us && age_us < NONSENSE_US
    }

    fn note_send_time(&mut self, sent_us: u32) -> bool {
        let age_us = self.age_us(sent_us);
        if self.newest_sent_us.is_none() || !(0..NONSENSE_US).contains(&age_us) {
            self.newest_sent_us = Some(sent_us);
        }
        self.is_stale(age_us)
    }

    fn note_path(&mut self, now_ns: u64, shim: &Shim, delay_us: i32, wire_bytes: usize, stale: bool) {
        let path = match self.paths.iter_mut().find(|p| p.id == shim.path) {
            Some(path) => path,
            None => return self.note_leaving(shim),
        };
        if shim.kind == Kind::Resume {
            // It came on another path, so it tells nothing of this one's delay.
            path.resumed(now_ns, shim.sent_us, shim.sequence);
            if path.watched {
                self.watch.heard(now_ns, true);
            }
            return;
        }
        path.received_frames += 1;
        path.received_bytes += wire_bytes as u64;
        self.counters.dummies += u64::from(shim.kind == Kind::Padding);
        path.said(shim.sent_us, shim.kind == Kind::Pause);
        if !stale {
            path.heard(now_ns);
            path.delay.add(now_ns, delay_us);
        }
        let is_data = shim.kind.is_data();
        let reached = shim.sequence.wrapping_add(u32::from(is_data));
        path.passed_to(reached);
        let first = shim.kind != Kind::Pause && path.arrived_to(reached);
        if path.watched {
            self.watch.heard(now_ns, first || !is_data);
        }
    }

    /// What still comes by a path that is no longer configured.
    fn note_leaving(&mut self, shim: &Shim) {
        if let Some(path) = self.leaving.iter_mut().find(|p| p.id == shim.path) {
            path.said(shim.sent_us, shim.kind == Kind::Pause);
            path.passed_to(shim.sequence.wrapping_add(u32::from(shim.kind.is_data())));
        }
    }

    /// A number that was used while the flow was idle wakes it up, also if only a keep-alive tells of it: its frame may be
    /// on its way on a slower path that was silent for long.
    fn note_activity(&mut self, now_ns: u64, shim: &Shim) {
        let end = shim.sequence.wrapping_add(u32::from(shim.kind.is_data()));
        if before(self.announced, end) {
            self.announced = end;
            if now_ns.saturating_sub(self.data_ns) > IDLE_NS {
                self.active_ns = now_ns;
            }
        }
    }

    fn on_data(&mut self, now_ns: u64, shim: &Shim, delay_us: i32, stale: bool, buf: Buf, out: &mut Released) {
        if now_ns.saturating_sub(self.data_ns) > IDLE_NS {
            self.active_ns = now_ns;
        }
        self.data_ns = now_ns;
        if before(shim.sequence, self.highest) {
            self.counters.reordered += 1;
        } else {
            self.highest = shim.sequence;
        }
        let release_ns = self.release_ns(now_ns, delay_us);
        let reorder = self.options.reorder;
        let window = match self.window.as_mut() {
            Some(window) => window,
            None => return,
        };
        match window.place(shim.sequence) {
            Place::Duplicate | Place::Far => {
                self.counters.duplicate += 1;
                out.waste.push(buf);
            }
            Place::Late => {
                window.delivered_late(shim.sequence);
                if stale || self.options.drop_late {
                    self.counters.stale += 1;
                    out.waste.push(buf);
                } else {
                    // Without reordering everything behind the highest is "late" by design.
                    self.counters.late += u64::from(reorder);
                    self.deliver(buf, out);
                }
            }
            Place::Ahead(_) if !reorder => {
                let mut freed = Vec::new();
                while let Some((sequence, _)) = window.first_held() {
                    window.give_up(sequence);
                    freed.extend(window.pop());
                }
                window.give_up(shim.sequence);
                window.pass();
                for held in freed {
                    self.deliver(held.buf, out);
                }
                self.deliver(buf, out);
            }
            Place::Ahead(0) if window.held() == 0 && release_ns <= now_ns => {
                window.pass();
                self.deliver(buf, out);
            }
            Place::Ahead(_) => {
                window.hold(shim.sequence, Held { buf, arrived_ns: now_ns, release_ns });
                self.counters.held_max = self.counters.held_max.max(window.held() as u64);
            }
        }
    }

    fn deliver(&mut self, buf: Buf, out: &mut Released) {
        if buf.pieces.is_none() {
            self.count(&buf);
        }
        out.deliver.push(buf);
    }

    fn count(&mut self, buf: &Buf) {
        self.counters.delivered_frames += 1;
        self.counters.delivered_bytes += buf.len().saturating_sub(super::frame::ETHERNET_LEN) as u64;
    }

    /// Puts the frames that are whole now in the place of what brought their last pieces.
    pub fn join(&mut self, pool: &mut Pool, out: &mut Released) {
        if out.deliver.iter().all(|buf| buf.pieces.is_none()) {
            return;
        }
        for buf in std::mem::take(&mut out.deliver) {
            match buf.pieces {
                None => out.deliver.push(buf),
                Some(number) => {
                    let from = out.deliver.len();
                    self.joiner.take(number, buf.bytes(), pool, &mut out.deliver);
                    for frame in &out.deliver[from..] {
                        self.count(frame);
                    }
                    out.waste.push(buf);
                }
            }
        }
    }

    /// When a frame that took `delay_us` may go on.
    fn release_ns(&self, now_ns: u64, delay_us: i32) -> u64 {
        if !self.options.equalise || self.paths.len() < 2 {
            return now_ns;
        }
        let slowest = self
            .paths
            .iter()
            .filter(|p| p.heard_ns.is_some() && p.live_until(self.active_ns) > now_ns)
            .filter_map(|p| p.delay.get())
            .max();
        match slowest.map(|s| s.saturating_sub(delay_us)) {
            Some(ahead_us) if ahead_us >= LEAST_HOLD_US => {
                now_ns + (ahead_us as u64 * 1000).min(self.options.max_hold_ns)
            }
            _ => now_ns,
        }
    }

    /// Delivers what is due and gives up what is lost.
    pub fn poll(&mut self, now_ns: u64, out: &mut Released) {
        if self.suspect_due().map_or(false, |due| due <= now_ns) {
            if let Some(suspect) = self.suspect.take() {
                self.let_go(suspect, out);
            }
        }
        while let Some(window) = self.window.as_mut() {
            if let Some(held) = window.peek() {
                if held.release_ns > now_ns {
                    return;
                }
                if let Some(held) = window.pop() {
                    self.counters.hold_ns += now_ns.saturating_sub(held.arrived_ns);
                    self.deliver(held.buf, out);
                }
            } else if !self.skip_gap(now_ns) {
                return;
            }
        }
    }
}

#[path = "receiver_gaps.rs"]
mod gaps;
#[path = "receiver_restart.rs"]
mod restart;
#[cfg(test)]
#[path = "receiver_tests.rs"]
mod tests;
