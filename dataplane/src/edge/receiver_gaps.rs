//! Missing numbers: which are lost, and until when the others are waited for.

use super::*;

impl Receiver {
    /// Gives up the missing numbers in front, if they are lost; false if they are still to be waited for.
    pub(super) fn skip_gap(&mut self, now_ns: u64) -> bool {
        let passed = self.passed_by_all(now_ns);
        let limit_ns = self.limit_ns();
        let window = match self.window.as_mut() {
            Some(window) => window,
            None => return false,
        };
        let next = window.next();
        let first = window.first_held().map(|(sequence, held)| (sequence, held.arrived_ns));
        let known_lost = match (passed, first) {
            (Some(p), Some((f, _))) => Some(if before(f, p) { f } else { p }),
            (Some(p), None) => Some(p),
            // No path is live any more: nobody is waited for.
            (None, Some((f, _))) => Some(f),
            (None, None) => None,
        };
        if let Some(to) = known_lost.filter(|to| before(next, *to)) {
            window.give_up(to);
            self.counters.lost += u64::from(to.wrapping_sub(next));
            return true;
        }
        match first {
            Some((f, arrived_ns)) if arrived_ns + limit_ns <= now_ns => {
                window.give_up(f);
                self.counters.timed_out += u64::from(f.wrapping_sub(next));
                self.end_holds();
                true
            }
            _ => false,
        }
    }

    /// How long the first frame behind a gap waits at most.
    fn limit_ns(&self) -> u64 {
        match self.paths.iter().any(InPath::is_held) {
            true => self.options.max_hold_ns.max(self.options.hold_ns),
            false => self.options.max_hold_ns,
        }
    }

    /// They have been waited for once as long as they may be.
    fn end_holds(&mut self) {
        self.paths.iter_mut().for_each(|p| p.holding = false);
    }

    /// While paths are held a number may be too far ahead only because so much waits: then the wait ends. False if the
    /// number is of another sequence.
    pub(super) fn make_room(&mut self, sequence: u32, out: &mut Released) -> bool {
        const REACH: u32 = 2 * crate::edge::reorder::WINDOW as u32;
        let window = match self.window.as_mut() {
            Some(window) if sequence.wrapping_sub(window.next()) < REACH && window.held() > 0 => window,
            _ => return false,
        };
        let mut freed = Vec::new();
        while let Some((number, _)) = window.first_held() {
            self.counters.timed_out += u64::from(number.wrapping_sub(window.next()));
            window.give_up(number);
            freed.extend(window.pop());
        }
        let is_near = window.place(sequence) != Place::Far;
        self.end_holds();
        freed.into_iter().for_each(|held| self.deliver(held.buf, out));
        is_near
    }

    /// The number that all live paths have passed; None if no path is live.
    pub(super) fn passed_by_all(&self, now_ns: u64) -> Option<u32> {
        let next = self.window.as_ref()?.next();
        self.paths
            .iter()
            .chain(&self.leaving)
            .filter(|p| p.is_held() || p.live_until(self.active_ns) > now_ns)
            .map(|p| p.passed.unwrap_or(next))
            .reduce(|a, b| if before(a, b) { a } else { b })
    }

    /// When `poll`, just called at `now_ns`, will next have something to do.
    pub fn next_due(&self, now_ns: u64) -> Option<u64> {
        [self.suspect_due(), self.watch.due_ns(), self.window_due(now_ns)].into_iter().flatten().min()
    }

    fn window_due(&self, now_ns: u64) -> Option<u64> {
        let window = self.window.as_ref()?;
        if let Some(held) = window.peek() {
            return Some(held.release_ns);
        }
        let limit_ns = self.limit_ns();
        window.first_held().map(|(_, held)| {
            let next = window.next();
            self.paths
                .iter()
                .chain(&self.leaving)
                .filter(|p| !p.passed.map_or(false, |q| before(next, q)) && !p.is_held())
                .map(|p| p.live_until(self.active_ns))
                .filter(|until| *until > now_ns)
                .fold(held.arrived_ns + limit_ns, u64::min)
        })
    }
}
