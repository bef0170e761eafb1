//! When each flow is to be looked at again. A heap with lazy deletion: an entry counts only if it is the one its flow
//! waits for.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

#[derive(Debug, Default)]
pub struct Timers {
    heap: BinaryHeap<Reverse<(u64, u64, u32)>>,
    due: Vec<u64>,
    serial: u64,
}

const NEVER: u64 = u64::MAX;

impl Timers {
    /// Sees to it that `key` fires at `at_ns` at the latest. A timer is only ever brought forward: one that turns out
    /// too early costs its owner a look, one that moved with every frame would cost a heap operation per frame. Equal
    /// times fire in the order they were set, so that flows take turns.
    pub fn arm(&mut self, key: u32, at_ns: Option<u64>) {
        let index = key as usize;
        if index >= self.due.len() {
            self.due.resize(index + 1, NEVER);
        }
        let at = at_ns.unwrap_or(NEVER);
        if at < self.due[index] {
            self.due[index] = at;
            self.serial += 1;
            self.heap.push(Reverse((at, self.serial, key)));
        }
    }

    fn clean(&mut self) {
        while let Some(Reverse((at, _, key))) = self.heap.peek() {
            if self.due[*key as usize] == *at {
                return;
            }
            self.heap.pop();
        }
    }

    pub fn next_due(&mut self) -> Option<u64> {
        self.clean();
        self.heap.peek().map(|Reverse((at, _, _))| *at)
    }

    /// A key whose time has come; its timer is cleared.
    pub fn pop(&mut self, now_ns: u64) -> Option<u32> {
        if self.next_due()? > now_ns {
            return None;
        }
        let Reverse((_, _, key)) = self.heap.pop()?;
        self.due[key as usize] = NEVER;
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fires_once_in_order_and_only_comes_forward() {
        let mut timers = Timers::default();
        timers.arm(1, Some(50));
        timers.arm(2, Some(30));
        timers.arm(3, Some(30));
        timers.arm(1, Some(10));
        timers.arm(3, Some(90));
        timers.arm(3, None);
        assert_eq!(timers.next_due(), Some(10));
        let fired: Vec<_> = (0..4).map(|_| timers.pop(60)).collect();
        assert_eq!(fired, [Some(1), Some(2), Some(3), None]);
        timers.arm(1, Some(50));
        assert_eq!((timers.pop(49), timers.pop(50), timers.next_due()), (None, Some(1), None));
    }
}
