//! When a path says again which number it has reached: after a change of the paths in use the other end must learn it
//! soon, though some of what says so is lost.

const MS: u64 = 1_000_000;
const FIRST_GAP_NS: u64 = 20 * MS;
const LAST_GAP_NS: u64 = 2_000 * MS;
/// A path in use says it this often beside the first time; data and ordinary keep-alives say it as well.
const REPEATS: u32 = 2;

/// Gaps double, from the first to the last.
#[derive(Clone, Debug, Default)]
pub struct SequenceMarkers {
    due_ns: Option<u64>,
    gap_ns: u64,
    left: u32,
}

impl SequenceMarkers {
    /// It was said now. A path that is not used any more goes on `for_ever`.
    pub fn begin(&mut self, now_ns: u64, for_ever: bool) {
        *self = SequenceMarkers {
            due_ns: Some(now_ns + FIRST_GAP_NS),
            gap_ns: FIRST_GAP_NS,
            left: if for_ever { u32::MAX } else { REPEATS },
        };
    }

    pub fn due_ns(&self) -> Option<u64> {
        self.due_ns
    }

    /// Whether it is to be said now.
    pub fn take(&mut self, now_ns: u64) -> bool {
        if self.due_ns.map_or(true, |due| due > now_ns) {
            return false;
        }
        self.gap_ns = (2 * self.gap_ns).min(LAST_GAP_NS);
        self.left -= u32::from(self.left < u32::MAX);
        self.due_ns = (self.left > 0).then_some(now_ns + self.gap_ns);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times_ms(for_ever: bool) -> Vec<u64> {
        let mut markers = SequenceMarkers::default();
        assert!(!markers.take(0));
        markers.begin(0, for_ever);
        (0..10_000).filter(|t| markers.take(t * MS)).collect()
    }

    #[test]
    fn a_used_path_repeats_it_twice_and_a_paused_one_for_ever() {
        assert_eq!(times_ms(false), [20, 60]);
        assert_eq!(times_ms(true), [20, 60, 140, 300, 620, 1260, 2540, 4540, 6540, 8540]);
    }
}
