//! Missing numbers: which are lost, and until when the others are waited for.

use super::*;

impl Receiver {
    /// Gives up the missing numbers in front, if they are lost; false if they are still to be waited for.
    pub(super) fn skip_gap(&mut self, now_ns: u64) -> bool {
        let passed = self.passed_by_all(now_ns);
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
            Some((f, arrived_ns)) if arrived_ns + self.options.max_hold_ns <= now_ns => {
                window.give_up(f);
                self.counters.timed_out += u64::from(f.wrapping_sub(next));
                true
            }
            _ => false,
        }
    }

    /// The number that all live paths have passed; None if no path is live.
    pub(super) fn passed_by_all(&self, now_ns: u64) -> Option<u32> {
        let next = self.window.as_ref()?.next();
        self.paths
            .iter()
            .filter(|p| p.live_until(self.active_ns) > now_ns)
            .map(|p| p.passed.unwrap_or(next))
            .reduce(|a, b| if before(a, b) { a } else { b })
    }

    /// When `poll`, just called at `now_ns`, will next have something to do.
    pub fn next_due(&self, now_ns: u64) -> Option<u64> {
        let suspect = self.suspect_due();
        let window = self.window.as_ref()?;
        if let Some(held) = window.peek() {
            return Some(suspect.map_or(held.release_ns, |s| s.min(held.release_ns)));
        }
        let gap = window.first_held().map(|(_, held)| {
            let next = window.next();
            self.paths
                .iter()
                .filter(|p| !p.passed.map_or(false, |q| before(next, q)))
                .map(|p| p.live_until(self.active_ns))
                .filter(|until| *until > now_ns)
                .fold(held.arrived_ns + self.options.max_hold_ns, u64::min)
        });
        match (suspect, gap) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }
}
