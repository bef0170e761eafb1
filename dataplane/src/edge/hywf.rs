//! HyWF: a split over two networks that keeps either of them from telling which website is fetched.
//!
//! Per access (what a silence ends) the share p of network 1 is drawn anew. Frames go in runs on one network, of
//! geometric length with mean n_cons; every run chooses network 1 with probability p. As a Markov chain: stay on
//! network 1 with probability 1 - (1 - p) / n_cons, on network 2 with 1 - p / n_cons. HyWF-AP draws p again every
//! n_chp frames on average, around the access's p_d: uniformly in [0, 2 p_d] or, above one half, in [2 p_d - 1, 1].

use crate::rng::Rng;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Law {
    /// Mean length of a run, frames; 1 or more.
    pub n_cons: f64,
    /// Mean share of network 1 if it is the costly one, at most 0.5; else p is uniform in [0, 1].
    pub cost_share: Option<f64>,
    /// Mean number of frames between draws of p, for HyWF-AP.
    pub n_chp: Option<f64>,
    /// The p_d of every access; None draws it like p.
    pub p_d: Option<f64>,
}

#[derive(Debug)]
pub struct Hywf {
    law: Law,
    rng: Rng,
    p_d: f64,
    p: f64,
    /// The network of the last frame of this access.
    network: Option<usize>,
}

impl Hywf {
    pub fn new(law: Law, rng: Rng) -> Self {
        let mut hywf = Hywf { law, rng, p_d: 0.5, p: 0.5, network: None };
        hywf.begin();
        hywf
    }

    /// Another law, from the next access on; what is being sent goes on as it was drawn.
    pub fn set_law(&mut self, law: Law) {
        self.law = law;
    }

    pub fn law(&self) -> Law {
        self.law
    }

    pub fn rng(&mut self) -> &mut Rng {
        &mut self.rng
    }

    /// The share of network 1 as drawn last.
    pub fn share(&self) -> f64 {
        self.p
    }

    /// A new access begins.
    pub fn begin(&mut self) {
        let widest = self.law.cost_share.map_or(1.0, |share| 2.0 * share);
        self.p_d = self.law.p_d.unwrap_or_else(|| widest * self.rng.unit());
        self.p = self.p_d;
        self.network = None;
        if self.law.n_chp.is_some() {
            self.draw_around();
        }
    }

    fn draw_around(&mut self) {
        let width = 2.0 * self.p_d.min(1.0 - self.p_d);
        self.p = (2.0 * self.p_d - 1.0).max(0.0) + width * self.rng.unit();
    }

    /// The network of the next frame: 0 or 1.
    pub fn draw(&mut self) -> usize {
        if let Some(n_chp) = self.law.n_chp {
            if self.rng.chance(1.0 / n_chp) {
                self.draw_around();
            }
        }
        let network = match self.network {
            Some(network) if !self.rng.chance(1.0 / self.law.n_cons) => network,
            _ => usize::from(!self.rng.chance(self.p)),
        };
        self.network = Some(network);
        network
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn law() -> Law {
        Law { n_cons: 20.0, cost_share: None, n_chp: None, p_d: None }
    }

    fn shares(law: Law, accesses: usize, seed: u64) -> Vec<f64> {
        let mut hywf = Hywf::new(law, Rng::new(seed));
        let draw = |_| {
            hywf.begin();
            hywf.share()
        };
        (0..accesses).map(draw).collect()
    }

    fn mean(values: &[f64]) -> f64 {
        values.iter().sum::<f64>() / values.len() as f64
    }

    /// Largest distance from the uniform distribution on [0, width] (Kolmogorov and Smirnov), times sqrt(n).
    fn distance(mut values: Vec<f64>, width: f64) -> f64 {
        values.sort_by(f64::total_cmp);
        let n = values.len() as f64;
        let gap = |(i, v): (usize, &f64)| (v / width - (i as f64 + 0.5) / n).abs();
        values.iter().enumerate().map(gap).fold(0.0, f64::max) * n.sqrt()
    }

    #[test]
    fn shares_of_accesses_are_uniform_and_do_not_depend_on_each_other() {
        // 1.63 is exceeded by one in a hundred.
        assert!(distance(shares(law(), 20_000, 1), 1.0) < 1.63);
        let costly = shares(Law { cost_share: Some(0.15), ..law() }, 20_000, 2);
        assert!((mean(&costly) - 0.15).abs() < 0.003);
        assert!(distance(costly, 0.3) < 1.63);
        let draws = shares(law(), 20_000, 3);
        let neighbours: Vec<f64> = draws.windows(2).map(|w| (w[0] - 0.5) * (w[1] - 0.5) * 12.0).collect();
        assert!(mean(&neighbours).abs() < 0.03);
    }

    #[test]
    fn directions_are_independent() {
        let (there, back) = (shares(law(), 20_000, 4), shares(law(), 20_000, 5));
        let product: Vec<f64> = there.iter().zip(&back).map(|(a, b)| (a - 0.5) * (b - 0.5) * 12.0).collect();
        assert!(mean(&product).abs() < 0.03, "{}", mean(&product));
    }

    #[test]
    fn frames_follow_the_markov_chain() {
        for p in [0.1, 0.5, 0.8] {
            let mut hywf = Hywf::new(law(), Rng::new(6));
            hywf.p = p;
            let networks: Vec<usize> = (0..400_000).map(|_| hywf.draw()).collect();
            let mut pairs = [[0.0f64; 2]; 2];
            for w in networks.windows(2) {
                pairs[w[0]][w[1]] += 1.0;
            }
            let leave = |n: usize| pairs[n][1 - n] / (pairs[n][0] + pairs[n][1]);
            assert!((leave(0) * 20.0 / (1.0 - p) - 1.0).abs() < 0.07, "{}", leave(0));
            assert!((leave(1) * 20.0 / p - 1.0).abs() < 0.07, "{}", leave(1));
            let share = networks.iter().filter(|n| **n == 0).count() as f64 / 400_000.0;
            assert!((share - p).abs() < 0.02, "{share} instead of {p}");
        }
    }

    #[test]
    fn runs_last_n_cons_frames_on_average() {
        let mut hywf = Hywf::new(law(), Rng::new(7));
        hywf.p = 0.5;
        // At p = 1/2 every other run changes the network: what is seen lasts twice as long.
        let networks: Vec<usize> = (0..400_000).map(|_| hywf.draw()).collect();
        let changes = networks.windows(2).filter(|w| w[0] != w[1]).count();
        let length = 400_000.0 / changes as f64;
        assert!((length / 40.0 - 1.0).abs() < 0.04, "{length}");
    }

    #[test]
    fn adaptive_padding_redraws_around_the_share_of_the_access() {
        for p_d in [0.2, 0.5, 0.9] {
            let ap = Law { n_chp: Some(100.0), p_d: Some(p_d), ..law() };
            let mut hywf = Hywf::new(ap, Rng::new(8));
            let (mut seen, mut redraws) = (vec![hywf.share()], 0);
            for _ in 0..400_000 {
                let before = hywf.share();
                hywf.draw();
                if hywf.share() != before {
                    redraws += 1;
                    seen.push(hywf.share());
                }
            }
            assert!((redraws as f64 / 4000.0 - 1.0).abs() < 0.06, "{redraws}");
            assert!((mean(&seen) - p_d).abs() < 0.02);
            let (low, width) = ((2.0 * p_d - 1.0f64).max(0.0), 2.0 * p_d.min(1.0 - p_d));
            assert!(distance(seen.iter().map(|p| p - low).collect(), width) < 1.63);
        }
    }

    #[test]
    fn equal_seeds_give_equal_splits() {
        let run = |seed| {
            let mut hywf = Hywf::new(law(), Rng::new(seed));
            (0..1000).map(|_| hywf.draw()).collect::<Vec<_>>()
        };
        assert_eq!(run(9), run(9));
        assert_ne!(run(9), run(10));
    }
}
