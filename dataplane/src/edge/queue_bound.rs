//! How much a flow may queue: it follows the greatest total rate of the last second, so that a probe, during which the
//! flow is slower, costs no burst of losses.

use std::collections::VecDeque;

const MEMORY_NS: u64 = 1_000_000_000;

#[derive(Debug, Default)]
pub struct QueueBound {
    bytes: usize,
    /// Earlier bounds and until when they count; the earlier one is always the greater.
    past: VecDeque<(u64, usize)>,
}

impl QueueBound {
    /// The bound that the flow's rates give now.
    pub fn set(&mut self, now_ns: u64, bytes: usize) {
        let old = std::mem::replace(&mut self.bytes, bytes);
        if old > bytes {
            while self.past.back().map_or(false, |(_, earlier)| *earlier <= old) {
                self.past.pop_back();
            }
            self.past.push_back((now_ns + MEMORY_NS, old));
        }
    }

    /// The greatest bound of the last second, in bytes.
    pub fn get(&mut self, now_ns: u64) -> usize {
        while self.past.front().map_or(false, |(until_ns, bytes)| *until_ns <= now_ns || *bytes <= self.bytes) {
            self.past.pop_front();
        }
        self.past.front().map_or(self.bytes, |(_, bytes)| *bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edge::testing::Rng;

    #[test]
    fn it_is_the_greatest_of_the_last_second() {
        let mut rng = Rng::new(8);
        for _ in 0..200 {
            let mut bound = QueueBound::default();
            let mut log: Vec<(u64, usize)> = Vec::new();
            let mut now = 0;
            for _ in 0..60 {
                now += 1 + rng.below(400_000_000) as u64;
                let bytes = rng.below(8);
                bound.set(now, bytes);
                log.push((now, bytes));
                let at = now + rng.below(1_500_000_000) as u64 / 3;
                // A bound counts until a second after the next one replaced it.
                let ended = |i: usize| log.get(i + 1).map_or(u64::MAX, |next| next.0 + MEMORY_NS);
                let wanted = (0..log.len()).filter(|i| ended(*i) > at).map(|i| log[i].1).max();
                assert_eq!(Some(bound.get(at)), wanted);
                now = at;
            }
        }
    }
}
