//! A small seeded generator of pseudo-random numbers: SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number
//! generators, OOPSLA 2014). Good enough for access order, losses and splits, and the same on every machine.

/// The generator; equal seeds give equal sequences.
#[derive(Debug, Clone)]
pub struct Rng {
    state: u64,
}

impl Rng {
    /// Starts the sequence of `seed`.
    pub fn new(seed: u64) -> Self {
        Rng { state: seed }
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A number in 0..n; 0 for n = 0.
    pub fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.bits()) * n as u128) >> 64) as usize
    }

    /// A number of the standard normal distribution (Box and Muller, Annals of Mathematical Statistics 29, 1958).
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }

    /// True with probability `p`; draws nothing for p <= 0.
    pub fn chance(&mut self, p: f64) -> bool {
        p > 0.0 && self.unit() < p
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_numbers_of_the_published_generator() {
        let mut rng = Rng::new(1234567);
        assert_eq!(rng.bits(), 6457827717110365317);
        assert_eq!(rng.bits(), 3203168211198807973);
    }

    #[test]
    fn normal_numbers_have_the_moments_and_the_tails_of_the_law() {
        let mut rng = Rng::new(3);
        let drawn: Vec<f64> = (0..200_000).map(|_| rng.normal()).collect();
        let mean = drawn.iter().sum::<f64>() / 2e5;
        let variance = drawn.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 2e5;
        assert!(mean.abs() < 0.01 && (variance - 1.0).abs() < 0.02, "{mean} {variance}");
        let beyond = |limit: f64| drawn.iter().filter(|x| x.abs() > limit).count() as f64 / 2e5;
        assert!((beyond(1.0) - 0.3173).abs() < 0.005 && (beyond(1.96) - 0.05).abs() < 0.002);
    }

    #[test]
    fn small_numbers_are_even_and_in_range() {
        let mut rng = Rng::new(7);
        let mut counts = [0u32; 5];
        for _ in 0..50_000 {
            counts[rng.below(5)] += 1;
        }
        assert!(counts.iter().all(|&c| (9_600..10_400).contains(&c)), "{counts:?}");
    }
}
