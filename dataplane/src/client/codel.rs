//! Keeps the queue of a flow short: CoDel (RFC 8289). Time is an argument.
//!
//! A queue in which every packet has waited longer than a target, at least `TARGET_NS`, for `INTERVAL_NS` is a standing
//! one: it gives its sender nothing but delay. Then packets are dropped from its front, first one, then ever more often,
//! until the wait is below the target again.

const MS: u64 = 1_000_000;
pub const TARGET_NS: u64 = 15 * MS;
const INTERVAL_NS: u64 = 100 * MS;

/// What CoDel knows of one queue.
#[derive(Clone, Copy, Debug, Default)]
pub struct Codel {
    /// When the wait will have been above the target for an interval; None while it is below.
    standing_ns: Option<u64>,
    dropping: bool,
    next_drop_ns: u64,
    count: u32,
}

impl Codel {
    /// Whether the first packet of the queue, which has waited for `waited_ns`, is dropped; `is_last` if there is no other.
    pub fn drops(&mut self, now_ns: u64, waited_ns: u64, target_ns: u64, is_last: bool) -> bool {
        if waited_ns < target_ns || is_last {
            self.standing_ns = None;
            self.dropping = false;
            return false;
        }
        let standing_ns = *self.standing_ns.get_or_insert(now_ns + INTERVAL_NS);
        if self.dropping {
            // A queue that could not leave for a while, for want of an interface, is not to be dropped as a whole.
            if now_ns.saturating_sub(self.next_drop_ns) > INTERVAL_NS {
                self.next_drop_ns = now_ns + self.pause_ns();
            }
            let due = now_ns >= self.next_drop_ns;
            if due {
                self.count += 1;
                self.next_drop_ns += self.pause_ns();
            }
            return due;
        }
        if now_ns < standing_ns {
            return false;
        }
        // A queue that stood a moment ago is dropped from as often as then.
        let lately = now_ns.saturating_sub(self.next_drop_ns) < 8 * INTERVAL_NS;
        self.count = if lately && self.count > 2 { self.count - 2 } else { 1 };
        self.dropping = true;
        self.next_drop_ns = now_ns + self.pause_ns();
        true
    }

    fn pause_ns(&self) -> u64 {
        (INTERVAL_NS as f64 / f64::from(self.count.max(1)).sqrt()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Drops in `seconds` of a queue that always waits so long, one packet a millisecond.
    fn drops(waited_ns: u64, seconds: u64) -> Vec<u64> {
        let mut codel = Codel::default();
        (0..seconds * 1000).filter(|ms| codel.drops(ms * MS, waited_ns, TARGET_NS, false)).collect()
    }

    #[test]
    fn a_short_queue_loses_nothing_and_a_standing_one_ever_more() {
        assert!(drops(TARGET_NS - 1, 10).is_empty());
        let lost = drops(2 * TARGET_NS, 2);
        assert_eq!(lost[0], INTERVAL_NS / MS);
        let pauses: Vec<u64> = lost.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(pauses.windows(2).all(|pair| pair[1] <= pair[0] + 1), "{pauses:?}");
        assert!(pauses[0] >= 70 && *pauses.last().unwrap() < 30, "{pauses:?}");
    }

    #[test]
    fn a_queue_that_could_not_leave_for_a_while_is_not_dropped_as_a_whole() {
        let mut codel = Codel::default();
        assert!((0..150).any(|ms| codel.drops(ms * MS, 2 * TARGET_NS, TARGET_NS, false)));
        codel.drops(150 * MS, 2 * TARGET_NS, TARGET_NS, false);
        let lost = (0..64).filter(|k| codel.drops(10_000 * MS + k * MS / 10, 9_000 * MS, TARGET_NS, false)).count();
        assert!(lost <= 2, "{lost} of 64");
    }

    #[test]
    fn a_burst_passes_and_the_last_packet_always_does() {
        let mut codel = Codel::default();
        assert!((0..90).all(|ms| !codel.drops(ms * MS, 5 * TARGET_NS, TARGET_NS, false)));
        assert!(!codel.drops(91 * MS, 0, TARGET_NS, false));
        assert!((92..191).all(|ms| !codel.drops(ms * MS, 5 * TARGET_NS, TARGET_NS, false)));
        assert!((200..5000).all(|ms| !codel.drops(ms * MS, 5 * TARGET_NS, TARGET_NS, true)));
    }
}
