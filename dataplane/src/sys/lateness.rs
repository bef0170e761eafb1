//! How late the machine woke a waiting program: the worst, and the time lost to wake-ups beyond some bounds.

use serde::{Serialize, Serializer};

/// Wake-ups later than these count, in nanoseconds.
const BOUNDS_NS: [u64; 3] = [5_000_000, 20_000_000, 100_000_000];

/// What a program knows of its own wake-ups. Only what the machine did counts, not the program's own work: a wake-up is
/// late from the moment that it was due, or that the program began to wait if that was later.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Lateness {
    max_ns: u64,
    over_ns: [u64; 3],
}

impl Lateness {
    /// A program that waited from `from_ns` on until `due_ns` (None: for ever) ran again at `now_ns`. Costs a comparison
    /// unless the wake-up was late, or later than all before.
    pub fn note(&mut self, due_ns: Option<u64>, from_ns: u64, now_ns: u64) {
        let late_ns = due_ns.map_or(0, |due| now_ns.saturating_sub(due.max(from_ns)));
        if late_ns > self.max_ns.min(BOUNDS_NS[0]) {
            self.record(late_ns);
        }
    }

    #[cold]
    fn record(&mut self, late_ns: u64) {
        self.max_ns = self.max_ns.max(late_ns);
        for (sum, _) in self.over_ns.iter_mut().zip(BOUNDS_NS).filter(|(_, bound)| late_ns > *bound) {
            *sum += late_ns;
        }
    }
}

/// `over_20_ms_s` is by how much all wake-ups that were more than 20 ms late were late, together.
#[derive(Serialize)]
struct Told {
    max_ms: f64,
    over_5_ms_s: f64,
    over_20_ms_s: f64,
    over_100_ms_s: f64,
}

impl Serialize for Lateness {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let [over_5_ms_s, over_20_ms_s, over_100_ms_s] = self.over_ns.map(|ns| (ns / 1_000) as f64 / 1e6);
        Told { max_ms: (self.max_ns / 1_000) as f64 / 1e3, over_5_ms_s, over_20_ms_s, over_100_ms_s }
            .serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const MS: u64 = 1_000_000;

    fn told(late: &Lateness) -> serde_json::Value {
        serde_json::to_value(late).unwrap()
    }

    #[test]
    fn the_worst_and_the_time_beyond_each_bound_are_told() {
        let mut late = Lateness::default();
        for late_ms in [1, 4, 3, 5, 6, 20, 21, 150, 2] {
            late.note(Some(1_000 * MS), 0, (1_000 + late_ms) * MS);
        }
        let expected = json!({"max_ms": 150.0, "over_5_ms_s": 0.197, "over_20_ms_s": 0.171, "over_100_ms_s": 0.150});
        assert_eq!(told(&late), expected);
    }

    #[test]
    fn the_worst_is_told_even_if_nothing_was_late() {
        let mut late = Lateness::default();
        late.note(Some(10 * MS), 0, 12 * MS);
        late.note(Some(20 * MS), 0, 21 * MS);
        assert_eq!(told(&late)["max_ms"], 2.0);
        assert_eq!(told(&late)["over_5_ms_s"], 0.0);
    }

    #[test]
    fn own_work_early_wake_ups_and_waiting_for_ever_are_not_late() {
        let mut late = Lateness::default();
        // It was due 300 ms before the program came to wait for it.
        late.note(Some(100 * MS), 400 * MS, 400 * MS);
        late.note(Some(500 * MS), 400 * MS, 450 * MS);
        late.note(None, 400 * MS, 900 * MS);
        assert_eq!(late, Lateness::default());
        // From there on it is.
        late.note(Some(100 * MS), 400 * MS, 430 * MS);
        assert_eq!(told(&late)["over_20_ms_s"], 0.03);
    }
}
