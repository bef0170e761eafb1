//! What a flow that was silent may send at the greatest rates that it lately had, before the controller has noticed that
//! it wants more than it did: a page or a picture is there sooner, and longer transfers start at full rate.
//!
//! A bucket of bytes that fills only while the flow is silent, so that one that always sends never has any of it. It
//! holds at most some time of the greatest rate: a fair share, in a network that is shared by many a small one.

use serde::Deserialize;

const MS: f64 = 1e6;
/// Shorter gaps are no silence: TCP makes them.
const SILENCE_NS: u64 = 100_000_000;
/// So much silence fills an empty bucket.
const FILL_NS: f64 = 250.0 * MS;
/// A burst is sent so much faster than at the greatest rates: they leave the controller's margin free, and a burst is too short
/// to fill queues with what is too much.
const EAGERNESS: f64 = 1.25;
/// What the greatest rate counts halves in this time.
const HALF_NS: f64 = 60_000.0 * MS;

#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq)]
pub struct BurstConfig {
    /// At most so many.
    pub bytes: u32,
    /// And at most this much time of the flow's greatest rate.
    pub ms: u32,
}

/// Rates by path id, in Mb/s.
type Rates = Vec<(u8, f64)>;

#[derive(Clone, Debug, Default)]
pub struct Burst {
    config: BurstConfig,
    bytes: f64,
    active: bool,
    greatest: Rates,
    greatest_ns: u64,
}

fn total(rates: &Rates) -> f64 {
    rates.iter().map(|(_, mbps)| mbps).sum()
}

impl Burst {
    pub fn configure(&mut self, config: BurstConfig) {
        self.config = config;
        self.bytes = self.bytes.min(f64::from(config.bytes));
    }

    fn weight(&self, now_ns: u64) -> f64 {
        0.5f64.powf(now_ns.saturating_sub(self.greatest_ns) as f64 / HALF_NS)
    }

    /// The flow has these rates now.
    pub fn rates(&mut self, now_ns: u64, rates: Rates) {
        if total(&rates) >= total(&self.greatest) * self.weight(now_ns) {
            self.greatest = rates;
            self.greatest_ns = now_ns;
        }
    }

    /// There are no bursts for now.
    pub fn stop(&mut self) {
        *self = Burst { config: self.config, ..Burst::default() };
    }

    /// A frame came, `silence_ns` after the last one; true if a burst begins.
    pub fn wake(&mut self, now_ns: u64, silence_ns: u64) -> bool {
        if silence_ns < SILENCE_NS || self.config.bytes == 0 {
            return false;
        }
        let greatest = total(&self.greatest) * self.weight(now_ns);
        let most = f64::from(self.config.bytes).min(greatest * 125.0 * f64::from(self.config.ms));
        self.bytes = (self.bytes + most * silence_ns as f64 / FILL_NS).min(most);
        let begins = !self.active && self.bytes > 0.0;
        self.active |= begins;
        begins
    }

    /// What a path may send now, if that is more than its own rate.
    pub fn rate_mbps(&self, now_ns: u64, path: u8) -> Option<f64> {
        let found = self.greatest.iter().find(|(id, _)| *id == path).filter(|_| self.active)?;
        Some(EAGERNESS * found.1 * self.weight(now_ns))
    }

    /// Bytes left; true if the burst ends with them.
    pub fn spend(&mut self, bytes: usize) -> bool {
        if !self.active {
            return false;
        }
        self.bytes -= bytes as f64;
        self.active = self.bytes > 0.0;
        !self.active
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn after(config: BurstConfig, mbps: f64, silence_ns: u64) -> f64 {
        let mut burst = Burst::default();
        burst.configure(config);
        burst.rates(0, vec![(1, mbps / 4.0), (2, 0.75 * mbps)]);
        burst.wake(SECOND, silence_ns);
        burst.bytes
    }

    #[test]
    fn it_fills_in_silence_only_up_to_the_lesser_bound() {
        let config = BurstConfig { bytes: 100_000, ms: 50 };
        assert_eq!(after(config, 80.0, SECOND), 100_000.0);
        assert!((after(config, 8.0, SECOND) - 50_000.0).abs() < 1_000.0);
        assert_eq!(after(config, 80.0, SECOND / 8), 50_000.0);
        assert_eq!(after(config, 80.0, SECOND / 11), 0.0);
        assert_eq!(after(BurstConfig::default(), 80.0, SECOND), 0.0);
    }

    #[test]
    fn great_rates_count_less_as_time_goes_by_and_a_burst_ends_with_its_bytes() {
        let mut burst = Burst::default();
        burst.configure(BurstConfig { bytes: 1_000_000, ms: 50 });
        burst.rates(0, vec![(1, 60.0), (2, 20.0)]);
        burst.rates(SECOND, vec![(1, 1.0), (2, 1.0)]);
        assert_eq!(burst.rate_mbps(SECOND, 1), None);
        assert!(burst.wake(60 * SECOND, SECOND));
        assert!((burst.bytes - 250_000.0).abs() < 1.0, "{}", burst.bytes);
        assert!((burst.rate_mbps(60 * SECOND, 1).unwrap() - 30.0 * EAGERNESS).abs() < 1e-6);
        assert_eq!(burst.rate_mbps(60 * SECOND, 3), None);
        assert!(!burst.wake(60 * SECOND, SECOND), "it goes on");
        assert!(!burst.spend(200_000));
        assert!(burst.spend(60_000));
        assert!(!burst.spend(60_000));
        assert_eq!(burst.rate_mbps(61 * SECOND, 1), None);
        burst.rates(3_600 * SECOND, vec![(1, 1.0)]);
        assert!(burst.wake(3_600 * SECOND, SECOND));
        assert!((burst.rate_mbps(3_600 * SECOND, 1).unwrap() - EAGERNESS).abs() < 1e-6);
    }
}
