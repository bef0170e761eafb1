//! Pacing of one path: a leaky bucket in bytes of L2 payload.
//!
//! With `depth` bytes of bucket, over any window of T seconds at most `rate * T + depth` bytes leave. The bucket holds
//! bytes, not time, so a change of the rate takes effect at once and without a burst: what is owed stays owed.

/// How long a path that fell behind may catch up, in nanoseconds of its rate. An agent is woken late by up to a
/// millisecond or two; without this allowance every late wake-up would cost throughput.
pub const BURST_NS: u64 = 2_000_000;

/// A path with frames that wait, and that is served late because the machine does not run the agent, makes up for at
/// most this much time.
pub const MOST_LATE_NS: u64 = 10_000_000;

/// A slow path must be able to hold two frames, or the split would leave it idle between its turns.
const MIN_FRAMES: f64 = 2.0;

#[derive(Clone, Debug)]
pub struct Pacer {
    /// Bytes per nanosecond; None is unshaped.
    rate: Option<f64>,
    depth: f64,
    level: f64,
    at_ns: u64,
}

impl Pacer {
    /// `rate_mbps` None means unshaped; `max_frame` is the longest frame of the path in bytes of L2 payload.
    pub fn new(now_ns: u64, rate_mbps: Option<f64>, max_frame: usize, burst_ns: u64) -> Self {
        let mut pacer = Pacer { rate: None, depth: 0.0, level: 0.0, at_ns: now_ns };
        pacer.set_rate(now_ns, rate_mbps, max_frame, burst_ns);
        pacer
    }

    pub fn set_rate(&mut self, now_ns: u64, rate_mbps: Option<f64>, max_frame: usize, burst_ns: u64) {
        self.drain(now_ns);
        self.rate = rate_mbps.map(|r| r / 8e3);
        self.depth = self.rate.map_or(0.0, |rate| (rate * burst_ns as f64).max(MIN_FRAMES * max_frame as f64));
        self.level = self.level.min(self.depth);
    }

    fn drain(&mut self, now_ns: u64) {
        if let Some(rate) = self.rate {
            let elapsed = now_ns.saturating_sub(self.at_ns) as f64;
            if elapsed > 0.0 {
                self.level = (self.level - rate * elapsed).max(0.0);
            }
        } else {
            self.level = 0.0;
        }
        self.at_ns = self.at_ns.max(now_ns);
    }

    /// When a frame of `len` bytes may leave: `now_ns` or later; None if the rate is zero.
    pub fn ready_at(&self, now_ns: u64, len: usize) -> Option<u64> {
        let rate = match self.rate {
            None => return Some(now_ns),
            Some(rate) if rate <= 0.0 => return None,
            Some(rate) => rate,
        };
        let excess = self.level + (len as f64).min(self.depth) - self.depth;
        if excess <= 0.0 {
            return Some(now_ns.max(self.at_ns));
        }
        let at = self.at_ns.saturating_add((excess / rate).ceil() as u64);
        Some(at.max(now_ns))
    }

    /// A frame of `len` bytes leaves now that has waited since `since_ns`: it could have left earlier, and so could what
    /// waits behind it. Frames that leave at `now_ns` are paced as if the agent had been in time. Credit that is not used
    /// now is lost.
    pub fn catch_up(&mut self, now_ns: u64, since_ns: u64, len: usize) {
        let rate = match self.rate {
            Some(rate) if rate > 0.0 && now_ns > self.at_ns => rate,
            _ => return,
        };
        let excess = (self.level + (len as f64).min(self.depth) - self.depth).max(0.0);
        let ready_ns = self.at_ns.saturating_add((excess / rate).ceil() as u64);
        let due_ns = ready_ns.max(since_ns).max(now_ns.saturating_sub(MOST_LATE_NS)).min(now_ns);
        self.drain(due_ns);
        self.level -= rate * (now_ns - due_ns) as f64;
        self.at_ns = now_ns;
    }

    /// Accounts for `len` bytes that leave now.
    pub fn sent(&mut self, now_ns: u64, len: usize) {
        self.drain(now_ns);
        // What a path says that is not used is not owed later.
        if self.rate.map_or(false, |rate| rate > 0.0) {
            self.level += len as f64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edge::testing::Rng;

    #[test]
    fn no_window_carries_more_than_rate_plus_burst() {
        let mut rng = Rng::new(3);
        for _ in 0..50 {
            let rate_mbps = 0.2 + 100.0 * rng.uniform();
            let mut pacer = Pacer::new(0, Some(rate_mbps), 1600, BURST_NS);
            let mut now = 0u64;
            let mut log: Vec<(u64, usize)> = Vec::new();
            for _ in 0..400 {
                let len = 60 + rng.below(1540);
                now = pacer.ready_at(now, len).unwrap();
                // Sometimes nobody sends for a while, sometimes the agent is late.
                if rng.below(10) == 0 {
                    now += rng.below(20_000_000) as u64;
                }
                pacer.sent(now, len);
                log.push((now, len));
            }
            let burst = (rate_mbps * 1e6 / 8.0 * 2e-3).max(3200.0);
            for first in 0..log.len() {
                let mut bytes = 0;
                for (at, len) in &log[first..] {
                    bytes += len;
                    let allowed = rate_mbps / 8e3 * (at - log[first].0) as f64 + burst;
                    assert!(bytes as f64 <= allowed + 1.0, "{bytes} bytes where {allowed} are allowed");
                }
            }
        }
    }

    #[test]
    fn carries_the_whole_rate_when_always_fed() {
        let mut pacer = Pacer::new(0, Some(10.0), 1600, BURST_NS);
        let (mut now, mut bytes) = (0, 0);
        while now < 1_000_000_000 {
            now = pacer.ready_at(now, 1500).unwrap();
            pacer.sent(now, 1500);
            bytes += 1500;
        }
        assert!((bytes as f64 - 1.25e6).abs() < 5000.0, "{bytes}");
    }

    /// Bytes that leave in 10 s if the agent is run every `late_ns`, and frames of 1500 bytes always wait.
    fn bytes_served_each(late_ns: u64) -> usize {
        let mut pacer = Pacer::new(0, Some(10.0), 1600, BURST_NS);
        let mut bytes = 0;
        for now_ns in (0..10_000_000_000).step_by(late_ns as usize) {
            while pacer.ready_at(now_ns, 1500) == Some(now_ns) {
                pacer.catch_up(now_ns, 0, 1500);
                pacer.sent(now_ns, 1500);
                bytes += 1500;
            }
        }
        bytes
    }

    #[test]
    fn waiting_frames_make_up_for_late_wake_ups_within_a_bound() {
        let whole = 12_500_000;
        for late_ns in [1_000_000, 4_000_000, 9_000_000] {
            let bytes = bytes_served_each(late_ns);
            assert!((bytes as f64 / whole as f64 - 1.0).abs() < 0.002, "{late_ns} {bytes}");
        }
        // 10 ms and the depth of the bucket in each 40 ms.
        let bytes = bytes_served_each(40_000_000);
        assert!(bytes > whole / 4 && bytes < whole * 4 / 10, "{bytes}");
    }

    #[test]
    fn silence_earns_nothing() {
        const SECOND: u64 = 1_000_000_000;
        let mut pacer = Pacer::new(0, Some(10.0), 1500, BURST_NS);
        // A frame that has just come may leave with one more, as without catching up.
        pacer.catch_up(SECOND, SECOND, 1500);
        pacer.sent(SECOND, 1500);
        pacer.sent(SECOND, 1500);
        assert!(pacer.ready_at(SECOND, 1500).unwrap() > SECOND);
        // Credit that was not used at once is lost.
        pacer.catch_up(2 * SECOND, 2 * SECOND - MOST_LATE_NS, 1500);
        pacer.sent(2 * SECOND, 1500);
        assert!(pacer.level < -5000.0);
        pacer.sent(2 * SECOND + 1, 1500);
        assert!(pacer.level >= 1500.0);
    }

    #[test]
    fn a_new_rate_holds_at_once_without_a_burst() {
        let mut pacer = Pacer::new(0, Some(1.0), 1000, BURST_NS);
        pacer.sent(0, 1000);
        pacer.sent(0, 1000);
        // 1000 bytes are owed: 8 ms at 1 Mb/s, 0.8 ms at 10 Mb/s.
        assert_eq!(pacer.ready_at(0, 1000), Some(8_000_000));
        pacer.set_rate(0, Some(10.0), 1000, BURST_NS);
        assert_eq!(pacer.ready_at(0, 1500), Some(800_000));
        pacer.set_rate(0, Some(0.0), 1000, BURST_NS);
        assert_eq!(pacer.ready_at(0, 1000), None);
        pacer.set_rate(0, None, 1000, BURST_NS);
        assert_eq!(pacer.ready_at(5, 1000), Some(5));
    }
}
