//! Adaptive padding: dummies in the gaps between frames (Shmatikov and Wang, ESORICS 2006, in the form of Juarez and
//! others, ESORICS 2016).
//!
//! After every frame a gap is drawn from a normal distribution that was fitted to the gaps of all traces. If no frame
//! comes by then, a dummy is sent and the next gap is drawn. Padding ends with the access, after a silence. A bucket
//! bounds the rate of padding whatever happens.

use crate::rng::Rng;

const SECOND_NS: f64 = 1e9;
/// Frames of padding that may follow each other before the bound of their rate counts.
const DEPTH: f64 = 8.0;
const LEAST_GAP_NS: f64 = 1e5;
/// A gap is drawn again so often while it is not above 0.
const TRIES: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Schedule {
    /// Mean and standard deviation of the normal distribution, before it is cut at 0.
    pub gap_ns: f64,
    pub deviation_ns: f64,
    pub max_per_s: f64,
    /// So long after a user's frame there is no more padding.
    pub silence_ns: u64,
}

impl Schedule {
    /// Until the next dummy.
    fn draw(&self, rng: &mut Rng) -> u64 {
        let mut gaps = (0..TRIES).map(|_| self.gap_ns + self.deviation_ns * rng.normal());
        gaps.find(|gap| *gap > 0.0).unwrap_or(self.gap_ns).max(LEAST_GAP_NS) as u64
    }
}

#[derive(Debug)]
pub struct Padding {
    schedule: Schedule,
    due_ns: Option<u64>,
    /// When the access ends, if no frame comes.
    end_ns: u64,
    credit: f64,
    at_ns: u64,
}

impl Padding {
    pub fn new(now_ns: u64, schedule: Schedule) -> Self {
        Padding { schedule, due_ns: None, end_ns: now_ns, credit: DEPTH, at_ns: now_ns }
    }

    pub fn schedule(&self) -> Schedule {
        self.schedule
    }

    /// A user's frame came.
    pub fn on_frame(&mut self, now_ns: u64, rng: &mut Rng) {
        self.end_ns = now_ns.saturating_add(self.schedule.silence_ns);
        self.wait(now_ns, rng);
    }

    fn wait(&mut self, now_ns: u64, rng: &mut Rng) {
        let due_ns = now_ns.saturating_add(self.schedule.draw(rng));
        self.due_ns = (self.schedule.max_per_s > 0.0 && due_ns < self.end_ns).then_some(due_ns);
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
        self.wait(now_ns, rng);
        let allowed = self.credit >= 1.0;
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
    fn gaps_are_filled_at_the_drawn_distance_until_silence_ends_the_access() {
        // Hardly ever below 0: the gaps have the mean and the deviation that were asked for.
        let schedule = Schedule { gap_ns: 20.0e6, deviation_ns: 5.0e6, max_per_s: 1e6, silence_ns: 1_000 * MS };
        let dense: Vec<u64> = (0..2000).map(|i| i * MS).collect();
        assert_eq!(padding_times(schedule, &dense, 2_000 * MS, 1), Vec::<u64>::new(), "bursts are left alone");
        let sparse: Vec<u64> = (0..400).map(|i| i * 5_000 * MS).collect();
        let sent = padding_times(schedule, &sparse, 2_000_000 * MS, 2);
        assert!((sent.len() as f64 / 400.0 - 49.5).abs() < 0.5, "{}", sent.len());
        assert!(sent.iter().all(|at| at % (5_000 * MS) < 1_000 * MS), "padding after the end of an access");
        let gaps: Vec<f64> = sent.windows(2).map(|w| (w[1] - w[0]) as f64 / 1e6).filter(|gap| *gap < 1000.0).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let deviation = (gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64).sqrt();
        assert!((mean - 20.0).abs() < 0.3 && (deviation - 5.0).abs() < 0.2, "{mean} {deviation}");
    }

    #[test]
    fn gaps_of_a_wide_law_are_those_above_zero() {
        // Half of a normal distribution: its mean is 0.7979 deviations.
        let schedule = Schedule { gap_ns: 0.0, deviation_ns: 40.0e6, max_per_s: 1e6, silence_ns: 1_000 * MS };
        let mut rng = Rng::new(5);
        let drawn: Vec<f64> = (0..50_000).map(|_| schedule.draw(&mut rng) as f64 / 1e6).collect();
        let mean = drawn.iter().sum::<f64>() / 5e4;
        assert!((mean / (40.0 * 0.7979) - 1.0).abs() < 0.02, "{mean}");
        assert!(drawn.iter().all(|gap| *gap >= 0.1));
        let never = Schedule { gap_ns: 0.0, deviation_ns: 0.0, ..schedule };
        assert_eq!(never.draw(&mut rng), LEAST_GAP_NS as u64);
    }

    #[test]
    fn the_rate_is_bounded() {
        let schedule = Schedule { gap_ns: 1.0e6, deviation_ns: 0.0, max_per_s: 40.0, silence_ns: 20_000 * MS };
        let sent = padding_times(schedule, &[0], 30_000 * MS, 3);
        for (i, from) in sent.iter().enumerate() {
            let within = sent[i..].iter().take_while(|at| **at < from + 1_000 * MS).count();
            assert!(within as f64 <= 40.0 + DEPTH, "{within} in a second");
        }
        assert!(sent.len() > 780, "{}", sent.len());
        assert_eq!(padding_times(Schedule { max_per_s: 0.0, ..schedule }, &[0], 1_000 * MS, 4).len(), 0);
    }
}
