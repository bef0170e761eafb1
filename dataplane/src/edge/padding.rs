//! Adaptive padding: padding frames in gaps that are longer than a website's bursts leave (after Shmatikov and Wang,
//! "Timing analysis in low-latency mix networks", ESORICS 2006).
//!
//! After every frame a waiting time is drawn, uniformly within half of `gap` of it. If no frame comes first, a padding frame is
//! sent and the next time is drawn; with probability 1 / (1 + burst) there is none, and the gap stays as it is until the
//! next frame. A bucket bounds the rate of padding whatever happens.

use crate::rng::Rng;

const SECOND_NS: f64 = 1e9;
/// Frames of padding that may follow each other before the bound of their rate counts.
const DEPTH: f64 = 8.0;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Schedule {
    pub gap_ns: u64,
    /// Mean number of padding frames in an endless gap.
    pub burst: f64,
    pub max_per_s: f64,
}

#[derive(Debug)]
pub struct Padding {
    schedule: Schedule,
    due_ns: Option<u64>,
    credit: f64,
    at_ns: u64,
}

impl Padding {
    pub fn new(now_ns: u64, schedule: Schedule) -> Self {
        Padding { schedule, due_ns: None, credit: DEPTH, at_ns: now_ns }
    }

    pub fn schedule(&self) -> Schedule {
        self.schedule
    }

    /// A user's frame came.
    pub fn on_frame(&mut self, now_ns: u64, rng: &mut Rng) {
        let Schedule { gap_ns, burst, .. } = self.schedule;
        self.due_ns = match rng.chance(burst / (1.0 + burst)) {
            true => Some(now_ns + (gap_ns as f64 * (0.5 + rng.unit())) as u64),
            false => None,
        };
    }

    pub fn due_ns(&self) -> Option<u64> {
        self.due_ns
    }

    /// True if a padding frame is to be sent now.
    pub fn poll(&mut self, now_ns: u64, rng: &mut Rng) -> bool {
        if self.due_ns.map_or(true, |due| due > now_ns) {
            return false;
        }
        let elapsed_ns = now_ns.saturating_sub(self.at_ns) as f64;
        self.credit = (self.credit + elapsed_ns / SECOND_NS * self.schedule.max_per_s).min(DEPTH);
        self.at_ns = now_ns;
        self.on_frame(now_ns, rng);
        let allowed = self.schedule.max_per_s > 0.0 && self.credit >= 1.0;
        self.credit -= f64::from(u8::from(allowed));
        allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn padding_times(schedule: Schedule, frames: &[u64], until: u64, seed: u64) -> Vec<u64> {
        let (mut padding, mut rng) = (Padding::new(0, schedule), Rng::new(seed));
        let mut sent = Vec::new();
        for (i, at) in frames.iter().enumerate() {
            padding.on_frame(*at, &mut rng);
            let end = frames.get(i + 1).copied().unwrap_or(until);
            while let Some(due) = padding.due_ns().filter(|due| *due < end) {
                if padding.poll(due, &mut rng) {
                    sent.push(due);
                }
            }
        }
        sent
    }

    #[test]
    fn bursts_are_left_alone_and_gaps_get_their_mean_number() {
        let schedule = Schedule { gap_ns: 20 * MS, burst: 3.0, max_per_s: 1e6 };
        let dense: Vec<u64> = (0..2000).map(|i| i * 5 * MS).collect();
        assert_eq!(padding_times(schedule, &dense, 10_000 * MS, 1), Vec::<u64>::new());
        let sparse: Vec<u64> = (0..2000).map(|i| i * 5_000 * MS).collect();
        let mean = padding_times(schedule, &sparse, 10_000_000 * MS, 2).len() as f64 / 2000.0;
        assert!((mean - 3.0).abs() < 0.3, "{mean}");
    }

    #[test]
    fn the_rate_is_bounded() {
        let schedule = Schedule { gap_ns: MS, burst: 1e6, max_per_s: 40.0 };
        let sent = padding_times(schedule, &[0], 20_000 * MS, 3);
        for (i, from) in sent.iter().enumerate() {
            let within = sent[i..].iter().take_while(|at| **at < from + 1_000 * MS).count();
            assert!(within as f64 <= 40.0 + DEPTH, "{within} in a second");
        }
        assert!(sent.len() > 780, "{}", sent.len());
        assert_eq!(padding_times(Schedule { max_per_s: 0.0, ..schedule }, &[0], 1_000 * MS, 4).len(), 0);
    }
}
