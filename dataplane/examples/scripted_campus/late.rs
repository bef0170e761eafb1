//! How late reports went out. Pure.
use serde_json::{json, Value};

/// Counts by steps of a tenth of a millisecond; longer delays are counted in the last one.
const STEP_NS: u64 = 100_000;
const STEPS: usize = 100_000;

/// Delays between the time at which a report was due and the end of its system call.
pub struct Late {
    counts: Vec<u32>,
    count: u64,
    max_ns: u64,
}

impl Default for Late {
    fn default() -> Late {
        Late { counts: vec![0; STEPS], count: 0, max_ns: 0 }
    }
}

impl Late {
    /// One more report.
    pub fn note(&mut self, late_ns: u64) {
        self.counts[((late_ns / STEP_NS) as usize).min(STEPS - 1)] += 1;
        self.count += 1;
        self.max_ns = self.max_ns.max(late_ns);
    }

    /// Milliseconds that this share of the reports is not later than, to a tenth.
    fn percentile_ms(&self, share: f64) -> f64 {
        let wanted = (share * self.count as f64).ceil() as u64;
        let mut seen = 0;
        for (step, &count) in self.counts.iter().enumerate() {
            seen += u64::from(count);
            if seen >= wanted {
                return (step + 1) as f64 / 10.0;
            }
        }
        0.0
    }

    /// Count and percentiles since the last call.
    pub fn take(&mut self) -> Value {
        let (p50_ms, p99_ms) =
            if self.count == 0 { (0.0, 0.0) } else { (self.percentile_ms(0.5), self.percentile_ms(0.99)) };
        let found =
            json!({"reports": self.count, "p50_ms": p50_ms, "p99_ms": p99_ms, "max_ms": self.max_ns as f64 / 1e6});
        *self = Late::default();
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_bounds_of_the_values_since_the_last_call() {
        let mut late = Late::default();
        (1..=1000u64).for_each(|ms| late.note(ms * 1_000_000 / 10));
        late.note(1 << 60);
        let found = late.take();
        assert_eq!((&found["reports"], &found["p50_ms"], &found["p99_ms"]), (&json!(1001), &json!(50.2), &json!(99.2)));
        assert!(found["max_ms"].as_f64().unwrap() > 1e9);
        assert_eq!(late.take()["max_ms"], 0.0);
    }
}
