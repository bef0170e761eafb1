//! One-way delay of a path: the minimum over a sliding window.
//!
//! The two ends' clocks differ by an unknown offset, so a delay means something only in comparison with another path
//! of the same flow. A minimum is used, not a mean: queueing of a first burst would pollute a mean for long. A window
//! of two seconds follows a change of route and lets clocks drift by 100 ppm without harm.

const BUCKETS: usize = 4;
const BUCKET_NS: u64 = 500_000_000;

/// Microseconds, from an arbitrary origin that the paths of a flow share.
#[derive(Clone, Debug, Default)]
pub struct WindowedMin {
    buckets: [Option<(u64, i32)>; BUCKETS],
    epoch: u64,
    least: Option<i32>,
}

impl WindowedMin {
    pub fn add(&mut self, now_ns: u64, delay_us: i32) {
        let epoch = now_ns / BUCKET_NS;
        let bucket = &mut self.buckets[epoch as usize % BUCKETS];
        match bucket {
            Some((of, least)) if *of == epoch => *least = (*least).min(delay_us),
            _ => *bucket = Some((epoch, delay_us)),
        }
        if epoch != self.epoch || self.least.map_or(true, |least| delay_us < least) {
            self.epoch = epoch;
            self.least = self
                .buckets
                .iter()
                .flatten()
                .filter(|(of, _)| of + BUCKETS as u64 > epoch)
                .map(|(_, least)| *least)
                .min();
        }
    }

    /// The minimum as of the last sample: a path that is idle keeps what was known of it.
    pub fn get(&self) -> Option<i32> {
        self.least
    }
}

/// Turns send times on the wire into delays that can be compared within a flow, however far apart the clocks are.
#[derive(Clone, Debug, Default)]
pub struct ClockOrigin(Option<u32>);

/// Beyond this a sender's clock has jumped (it was restarted).
const JUMP_US: i32 = 1 << 30;

impl ClockOrigin {
    /// Delay in microseconds from the flow's origin; None if the clock jumped, then the origin is new and earlier
    /// delays are void.
    pub fn delay_us(&mut self, now_ns: u64, sent_us: u32) -> Option<i32> {
        let raw = ((now_ns / 1000) as u32).wrapping_sub(sent_us);
        let origin = *self.0.get_or_insert(raw);
        let delay = raw.wrapping_sub(origin) as i32;
        if delay.checked_abs().map_or(true, |d| d > JUMP_US) {
            self.0 = Some(raw);
            return None;
        }
        Some(delay)
    }

    /// The delay with the clocks' offset in it: the true one if both ends read the same clock.
    pub fn absolute_us(&self, delay_us: i32) -> i32 {
        (self.0.unwrap_or(0) as i32).wrapping_add(delay_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    const MS: u64 = 1_000_000;

    #[test]
    fn minimum_forgets_after_the_window_and_ignores_slow_packets() {
        let mut min = WindowedMin::default();
        assert_eq!(min.get(), None);
        min.add(0, 50_000);
        min.add(MS, 5_000);
        min.add(2 * MS, 90_000);
        assert_eq!(min.get(), Some(5_000));
        for t in (10..3000).step_by(10) {
            min.add(t * MS, 20_000);
        }
        assert_eq!(min.get(), Some(20_000));
        // After silence the old value stands until there is a new one.
        min.add(60_000 * MS, 30_000);
        assert_eq!(min.get(), Some(30_000));
    }

    #[test]
    fn any_offset_and_wrap_of_the_clocks_cancels() {
        for offset in [0u32, 1 << 31, u32::MAX - 1000, 12345] {
            let mut origin = ClockOrigin::default();
            let mut delays = Vec::new();
            for k in 0..100u64 {
                let now_us = 5_000_000_000 + k * 60_000_000;
                let path_delay = if k % 2 == 0 { 5_000 } else { 25_000 };
                let sent = ((now_us - path_delay) as u32).wrapping_add(offset);
                delays.push(origin.delay_us(now_us * 1000, sent).unwrap());
            }
            assert!(delays.chunks(2).all(|d| d[1] - d[0] == 20_000), "offset {offset}");
        }
    }

    #[test]
    fn a_jump_of_the_clock_starts_over() {
        let mut origin = ClockOrigin::default();
        assert_eq!(origin.delay_us(9_000_000_000, 8_000_000), Some(0));
        assert_eq!(origin.delay_us(9_000_000_000, 8_000_000u32.wrapping_sub(1 << 31)), None);
        assert_eq!(origin.absolute_us(0), ((9_000_000u32).wrapping_sub(8_000_000u32.wrapping_sub(1 << 31))) as i32);
    }
}
