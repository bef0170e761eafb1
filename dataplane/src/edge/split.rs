//! Deterministic split of a flow over its paths, in proportion to their rates.
//!
//! Every path has a credit in bytes: what its share of everything sent so far is ahead of what it carried. A frame may
//! go only to a path that is not ahead of its share, and among these to the one whose share would be used up first.
//! This is WF2Q (Bennett and Zhang, INFOCOM 1996) with all queues fed from one: a path is never more than one frame
//! off its share.

/// Credits in bytes; their sum is zero.
#[derive(Clone, Debug, Default)]
pub struct Split {
    share: Vec<f64>,
    credit: Vec<f64>,
}

impl Split {
    /// New weights, one per path; a weight of zero or less leaves the path unused. `credit_of[i]` names the old index
    /// of path i, whose credit it keeps.
    pub fn set_weights(&mut self, weights: &[f64], credit_of: &[Option<usize>]) {
        let total: f64 = weights.iter().filter(|w| **w > 0.0).sum();
        let old = std::mem::take(&mut self.credit);
        self.share = weights.iter().map(|w| if *w > 0.0 { w / total } else { 0.0 }).collect();
        self.credit = self
            .share
            .iter()
            .zip(credit_of)
            .map(|(share, from)| match from {
                Some(i) if *share > 0.0 => old.get(*i).copied().unwrap_or(0.0),
                _ => 0.0,
            })
            .collect();
        // A path that went took its credit along: the others share it, so that the sum stays zero.
        let sum: f64 = self.credit.iter().sum();
        for (credit, share) in self.credit.iter_mut().zip(&self.share) {
            *credit -= sum * share;
        }
    }

    /// The path of the next frame, whose length on path i is `len(i)` bytes; None if no path has a weight.
    pub fn choose(&self, len: impl Fn(usize) -> usize) -> Option<usize> {
        let mut best: Option<(f64, usize)> = None;
        let mut most: Option<(f64, usize)> = None;
        for (i, (&share, &credit)) in self.share.iter().zip(&self.credit).enumerate() {
            if share <= 0.0 {
                continue;
            }
            if most.map_or(true, |(c, _)| credit > c) {
                most = Some((credit, i));
            }
            if credit >= 0.0 {
                let finish = (len(i) as f64 - credit) / share;
                if best.map_or(true, |(f, _)| finish < f) {
                    best = Some((finish, i));
                }
            }
        }
        // Rounding may leave every credit a hair below zero.
        best.or(most).map(|(_, i)| i)
    }

    /// Accounts for `len` bytes sent on `path`.
    pub fn sent(&mut self, path: usize, len: usize) {
        let len = len as f64;
        for (credit, share) in self.credit.iter_mut().zip(&self.share) {
            *credit += share * len;
        }
        self.credit[path] -= len;
    }

    pub fn share(&self, path: usize) -> f64 {
        self.share[path]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edge::testing::Rng;

    fn fresh(weights: &[f64]) -> Split {
        let mut split = Split::default();
        split.set_weights(weights, &vec![None; weights.len()]);
        split
    }

    #[test]
    fn never_more_than_a_frame_off_the_share() {
        let mut rng = Rng::new(1);
        for _ in 0..200 {
            let paths = 1 + rng.below(6);
            let weights: Vec<f64> = (0..paths).map(|_| 0.05 + 30.0 * rng.uniform()).collect();
            let total: f64 = weights.iter().sum();
            let mut split = fresh(&weights);
            let mut sent = vec![0usize; paths];
            for _ in 0..2000 {
                let len = 60 + rng.below(1500);
                let path = split.choose(|_| len).unwrap();
                split.sent(path, len);
                sent[path] += len;
                let all: usize = sent.iter().sum();
                for i in 0..paths {
                    let error = sent[i] as f64 - all as f64 * weights[i] / total;
                    assert!(error.abs() < 1560.0, "path {i} is {error} bytes off with weights {weights:?}");
                }
            }
        }
    }

    #[test]
    fn unused_paths_get_nothing_and_none_means_none() {
        let mut split = fresh(&[0.0, 2.0, 0.0]);
        for _ in 0..10 {
            assert_eq!(split.choose(|_| 100), Some(1));
            split.sent(1, 100);
        }
        assert_eq!(fresh(&[0.0, 0.0]).choose(|_| 100), None);
        assert_eq!(Split::default().choose(|_| 100), None);
    }

    #[test]
    fn a_change_of_rates_keeps_credits_bounded() {
        let mut rng = Rng::new(2);
        let mut split = fresh(&[10.0, 5.0, 1.0]);
        for _ in 0..300 {
            for _ in 0..rng.below(20) {
                let len = 60 + rng.below(1500);
                let path = split.choose(|_| len).unwrap();
                split.sent(path, len);
            }
            let weights: Vec<f64> = (0..3).map(|_| if rng.below(4) == 0 { 0.0 } else { rng.uniform() }).collect();
            if weights.iter().all(|w| *w == 0.0) {
                continue;
            }
            split.set_weights(&weights, &[Some(0), Some(1), Some(2)]);
            assert!(split.credit.iter().sum::<f64>().abs() < 1e-6);
            assert!(split.credit.iter().all(|c| c.abs() < 3.0 * 1560.0), "{:?}", split.credit);
        }
    }
}
