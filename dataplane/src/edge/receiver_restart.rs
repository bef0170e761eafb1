//! Frames of another sequence than the one in progress, its beginning, and the end of a flow.

use super::*;

impl Receiver {
    /// A frame from another sequence: the second one near the first shows that the sender restarted.
    pub(super) fn on_far(&mut self, now_ns: u64, frame: Arrival, out: &mut Released) {
        const NEAR: u32 = crate::edge::reorder::WINDOW as u32 / 2;
        let number = frame.shim.sequence;
        // An old queue may be poured out while the flow goes on; once nothing else arrives, it is the sender that is
        // new.
        let goes_on = now_ns.saturating_sub(self.accepted_ns) < IDLE_NS;
        if goes_on && self.is_stale(self.age_us(frame.shim.sent_us)) {
            self.counters.stale += u64::from(frame.buf.is_some());
            out.waste.extend(frame.buf);
            return;
        }
        let other = match self.suspect.replace(frame) {
            Some(other) => other,
            None => return,
        };
        if number.wrapping_sub(other.shim.sequence).wrapping_add(NEAR) >= 2 * NEAR {
            // Two strangers: the first is let go out of order rather than lost.
            self.let_go(other, out);
            return;
        }
        self.restart(if before(other.shim.sequence, number) { other.shim.sequence } else { number }, out);
        self.accept(now_ns, other, out);
        if let Some(frame) = self.suspect.take() {
            self.accept(now_ns, frame, out);
        }
    }

    pub(super) fn let_go(&mut self, suspect: Arrival, out: &mut Released) {
        match suspect.buf {
            Some(buf) if self.options.drop_late => {
                self.counters.stale += 1;
                out.waste.push(buf);
            }
            Some(buf) => {
                self.counters.late += 1;
                self.deliver(buf, out);
            }
            None => {}
        }
    }

    pub(super) fn restart(&mut self, next: u32, out: &mut Released) {
        let held = self.window.as_mut().map_or_else(Vec::new, |w| w.restart(next));
        for frame in held {
            self.deliver(frame.buf, out);
        }
        self.counters.restarts += 1;
        self.highest = next;
        self.announced = next;
        // The sender's clock may have started anew as well.
        self.origin = ClockOrigin::default();
        self.newest_sent_us = None;
        for path in &mut self.paths {
            path.restart();
            path.delay = WindowedMin::default();
        }
    }

    /// The first that is heard of a sequence may be a keep-alive of a fast path that has overtaken numbers on slower
    /// ones. Nobody has given these up: as long as nothing was delivered the sequence begins with them. A pause says
    /// that nothing comes any more.
    pub(super) fn begin_earlier(&mut self, shim: &Shim) {
        if let Some(window) = self.window.as_mut().filter(|_| shim.kind != Kind::Pause) {
            window.begin_earlier(shim.sequence);
        }
    }

    /// The flow ends here: gives everything that is held.
    pub fn flush(&mut self, out: &mut Released) {
        let next = self.window.as_ref().map_or(0, Window::next);
        let held = self.window.as_mut().map_or_else(Vec::new, |w| w.restart(next));
        for frame in held {
            self.deliver(frame.buf, out);
        }
        if let Some(suspect) = self.suspect.take() {
            self.let_go(suspect, out);
        }
    }

    /// When a stranger's frame is let go if nothing confirms it.
    pub(super) fn suspect_due(&self) -> Option<u64> {
        let suspect = self.suspect.as_ref().filter(|s| s.buf.is_some())?;
        Some(suspect.since_ns + self.options.max_hold_ns)
    }
}
