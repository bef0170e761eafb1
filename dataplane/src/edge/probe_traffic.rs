//! What a path sends at least while it is probed: padding in batches make up what its flow does not offer.
//!
//! Batches, because radios put frames that wait together into one access; single frames would show a medium that is
//! busier than with real traffic.

/// A batch is this much time of the rate, within bounds.
const BATCH_NS: f64 = 20e6;
const LEAST_FRAMES: f64 = 4.0;
/// 64 kB is what WiFi puts in one access; more would overflow the queues of radios.
const MOST_FRAMES: f64 = 48.0;
/// Inner frames of padding are as long as those of bulk traffic.
pub const PROBE_LEN: usize = 1500;
/// Whoever asked for it may be gone: a probe that is not said again ends by itself.
pub const LASTS_NS: u64 = 1_000_000_000;

#[derive(Clone, Debug, Default)]
pub struct ProbeTraffic {
    /// Bytes of L2 payload per nanosecond; 0 is none.
    rate: f64,
    batch: f64,
    frames: usize,
    /// Bytes that the path is behind; negative if it is ahead.
    owed: f64,
    at_ns: u64,
    until_ns: u64,
}

impl ProbeTraffic {
    /// `frame_bytes` is the L2 payload of a frame of it.
    pub fn set(&mut self, now_ns: u64, rate_mbps: f64, frame_bytes: usize) {
        self.settle(now_ns);
        let length = frame_bytes.max(1) as f64;
        self.rate = rate_mbps / 8e3;
        let frames = (self.rate * BATCH_NS / length).round().clamp(LEAST_FRAMES, MOST_FRAMES);
        self.frames = frames as usize;
        self.batch = frames * length;
        self.until_ns = now_ns + LASTS_NS;
        self.owed = if rate_mbps > 0.0 { self.owed.clamp(-self.batch, self.batch) } else { 0.0 };
    }

    fn settle(&mut self, now_ns: u64) {
        let elapsed_ns = now_ns.min(self.until_ns).saturating_sub(self.at_ns) as f64;
        self.owed = (self.owed + self.rate * elapsed_ns).min(2.0 * self.batch);
        self.at_ns = self.at_ns.max(now_ns);
    }

    /// `bytes` of L2 payload left on the path.
    pub fn sent(&mut self, now_ns: u64, bytes: usize) {
        if self.rate > 0.0 {
            self.settle(now_ns);
            self.owed = (self.owed - bytes as f64).max(-self.batch);
        }
    }

    /// When a batch is due, if nothing else is sent until then.
    pub fn due_ns(&self, now_ns: u64) -> Option<u64> {
        if self.rate <= 0.0 || now_ns > self.until_ns {
            return None;
        }
        let at_ns = self.at_ns + ((self.batch - self.owed).max(0.0) / self.rate).ceil() as u64;
        (at_ns <= self.until_ns).then_some(at_ns)
    }

    /// Frames to send now: a whole batch, or none.
    pub fn frames_due(&self, now_ns: u64) -> usize {
        self.due_ns(now_ns).filter(|at_ns| *at_ns <= now_ns).map_or(0, |_| self.frames)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edge::testing::Rng;

    const MS: u64 = 1_000_000;

    #[test]
    fn padding_make_up_what_is_not_offered_and_nothing_else() {
        let mut rng = Rng::new(5);
        for (least_mbps, offered_mbps) in [(8.0_f64, 0.0_f64), (8.0, 3.0), (8.0, 12.0), (0.6, 0.2), (90.0, 40.0)] {
            let mut probe = ProbeTraffic::default();
            probe.set(0, least_mbps, 1520);
            let (mut now, mut data, mut padding) = (0u64, 0usize, 0usize);
            let gap = (1500.0 * 8e3 / if offered_mbps > 0.0 { offered_mbps } else { 1.0 }) as u64;
            let mut next_data = if offered_mbps > 0.0 { 0 } else { u64::MAX };
            while now < 4_000 * MS {
                if now % (500 * MS) < MS {
                    probe.set(now, least_mbps, 1520);
                }
                if next_data <= now {
                    probe.sent(now, 1500);
                    data += 1500;
                    next_data += gap / 2 + rng.below(gap as usize) as u64;
                }
                let frames = probe.frames_due(now);
                for _ in 0..frames {
                    probe.sent(now, 1520);
                    padding += 1520;
                }
                assert!(frames == 0 || (4..=48).contains(&frames), "{frames}");
                now += MS / 4;
            }
            let mbps = (data + padding) as f64 * 8e-6 / 4.0;
            let wanted = offered_mbps.max(least_mbps);
            assert!((mbps - wanted).abs() < 0.06 * wanted, "{mbps} of {wanted}");
            assert!(offered_mbps < least_mbps || padding == 0);
        }
    }

    #[test]
    fn it_ends_by_itself_or_when_told() {
        let mut probe = ProbeTraffic::default();
        probe.set(0, 10.0, 1500);
        assert!(probe.due_ns(0).is_some());
        let mut bytes = 0;
        for t in 0..3_000 {
            let frames = probe.frames_due(t * MS);
            (0..frames).for_each(|_| probe.sent(t * MS, 1500));
            bytes += frames * 1500;
        }
        assert!((f64::from(bytes as u32) - 1.25e6).abs() < 60_000.0, "{bytes} in a second");
        assert_eq!(probe.due_ns(3_000 * MS), None);
        probe.set(3_000 * MS, 10.0, 1500);
        assert!(probe.due_ns(3_000 * MS).is_some());
        probe.set(3_010 * MS, 0.0, 1500);
        assert_eq!((probe.due_ns(3_500 * MS), probe.frames_due(3_500 * MS)), (None, 0));
    }
}
