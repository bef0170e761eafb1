//! The window of sequence numbers of one flow: what is held, what was delivered, what comes next.
//!
//! Sequence numbers wrap; all comparisons are of differences. The window knows no time and no paths: `receiver`
//! decides when a missing number is given up.

/// Frames that may be held ahead of the next one: 100 ms at 3.8 Gb/s, 2 s (a handover) at 190 Mb/s. One flow must not
/// use up all buffers.
pub const WINDOW: usize = 32_768;
/// Numbers behind the next one of which is known whether they were delivered.
pub const HISTORY: usize = 65_536;
/// There is room for so many at first: most flows are slow, and hundreds of them may be put in order at a time.
const FIRST_HISTORY: usize = 1024;
/// Frames that may be held at first.
const FIRST_SLOTS: usize = 16;
/// What held more gives its room back once it is empty: a flow that moved once may never be out of order again.
const MOST_EMPTY_SLOTS: usize = 256;

/// Where a number lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// It is to come: 0 = the next one.
    Ahead(usize),
    /// Given up before; it was not delivered.
    Late,
    /// Delivered or held already.
    Duplicate,
    /// Too far off to belong to this window: the sender restarted, or the frame is forged.
    Far,
}

#[derive(Debug)]
pub struct Window<T> {
    next: u32,
    slots: Vec<Option<T>>,
    held: usize,
    /// A bit for each of the last numbers, a power of two of them.
    delivered: Vec<u64>,
    /// So many numbers behind the next one are noted there, at most `HISTORY`.
    noted: usize,
}

/// True if `a` comes before `b`.
pub fn before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

impl<T> Window<T> {
    pub fn new(next: u32) -> Self {
        Window { next, slots: Vec::new(), held: 0, delivered: vec![0; FIRST_HISTORY / 64], noted: 0 }
    }

    pub fn next(&self) -> u32 {
        self.next
    }

    pub fn held(&self) -> usize {
        self.held
    }

    pub fn place(&self, sequence: u32) -> Place {
        let ahead = sequence.wrapping_sub(self.next) as i32;
        if ahead >= 0 {
            return match ahead as usize {
                n if n >= WINDOW => Place::Far,
                n if self.slot(sequence).is_some() => {
                    debug_assert!(n < self.slots.len());
                    Place::Duplicate
                }
                n => Place::Ahead(n),
            };
        }
        if ahead < -(HISTORY as i32) {
            return Place::Far;
        }
        if self.was_delivered(sequence) {
            Place::Duplicate
        } else {
            Place::Late
        }
    }

    /// Numbers behind the next one for which there is room.
    fn room(&self) -> usize {
        64 * self.delivered.len()
    }

    fn bit(&self, sequence: u32) -> (usize, u64) {
        let at = sequence as usize % self.room();
        (at / 64, 1 << (at % 64))
    }

    fn was_delivered(&self, sequence: u32) -> bool {
        let (word, bit) = self.bit(sequence);
        self.next.wrapping_sub(sequence) as usize <= self.noted && self.delivered[word] & bit != 0
    }

    /// Makes room for `count` numbers behind the next one.
    fn note(&mut self, count: usize) {
        self.noted = self.noted.max(count.min(HISTORY));
        let size = self.noted.next_power_of_two();
        if size > self.room() {
            let known = (1..=self.room() as u32).map(|back| self.next.wrapping_sub(back));
            let delivered: Vec<u32> = known.filter(|sequence| self.was_delivered(*sequence)).collect();
            self.delivered = vec![0; size / 64];
            for sequence in delivered {
                let (word, bit) = self.bit(sequence);
                self.delivered[word] |= bit;
            }
        }
    }

    fn slot(&self, sequence: u32) -> Option<&T> {
        // Within the slots at hand every number has its own.
        if sequence.wrapping_sub(self.next) as usize >= self.slots.len() {
            return None;
        }
        self.slots[sequence as usize & (self.slots.len() - 1)].as_ref()
    }

    /// Holds a frame that lies `Ahead`.
    pub fn hold(&mut self, sequence: u32, item: T) {
        let ahead = sequence.wrapping_sub(self.next) as usize;
        debug_assert!(ahead < WINDOW);
        if ahead >= self.slots.len() {
            self.grow(ahead);
        }
        let mask = self.slots.len() - 1;
        if self.slots[sequence as usize & mask].replace(item).is_none() {
            self.held += 1;
        }
    }

    fn grow(&mut self, ahead: usize) {
        let size = (ahead + 1).next_power_of_two().max(FIRST_SLOTS);
        let old = std::mem::take(&mut self.slots);
        let mut slots: Vec<Option<T>> = Vec::new();
        slots.resize_with(size, || None);
        let count = old.len();
        for (i, item) in old.into_iter().enumerate() {
            if item.is_some() {
                let offset = (i as u32).wrapping_sub(self.next) as usize & (count - 1);
                let sequence = self.next.wrapping_add(offset as u32);
                slots[sequence as usize & (size - 1)] = item;
            }
        }
        self.slots = slots;
    }

    /// Begins at `sequence` instead, if that is a little earlier and nothing was delivered or given up yet.
    pub fn begin_earlier(&mut self, sequence: u32) -> bool {
        let back = self.next.wrapping_sub(sequence) as usize;
        if self.noted > 0 || back == 0 || back > WINDOW / 2 || back + self.slots.len() > WINDOW {
            return false;
        }
        let count = self.slots.len();
        let slots = std::mem::take(&mut self.slots);
        let mut held: Vec<(u32, T)> = Vec::with_capacity(self.held);
        for (i, item) in slots.into_iter().enumerate().filter_map(|(i, item)| Some((i as u32, item?))) {
            let ahead = i.wrapping_sub(self.next) as usize & (count - 1);
            held.push((self.next.wrapping_add(ahead as u32), item));
        }
        self.held = 0;
        self.next = sequence;
        held.into_iter().for_each(|(number, item)| self.hold(number, item));
        true
    }

    /// The next frame, if it is held.
    pub fn peek(&self) -> Option<&T> {
        self.slot(self.next)
    }

    /// Takes the next frame, which then counts as delivered.
    pub fn pop(&mut self) -> Option<T> {
        if self.slots.is_empty() {
            return None;
        }
        let at = self.next as usize & (self.slots.len() - 1);
        let item = self.slots[at].take()?;
        self.held -= 1;
        if self.held == 0 && self.slots.len() > MOST_EMPTY_SLOTS {
            self.slots = Vec::new();
        }
        self.advance(true);
        Some(item)
    }

    /// The next number was delivered without being held.
    pub fn pass(&mut self) {
        self.advance(true);
    }

    /// Gives up the numbers before `to`, of which none is held.
    pub fn give_up(&mut self, to: u32) {
        while before(self.next, to) {
            self.advance(false);
        }
    }

    /// Notes that a late frame was delivered after all.
    pub fn delivered_late(&mut self, sequence: u32) {
        self.note(self.next.wrapping_sub(sequence) as usize);
        let (word, bit) = self.bit(sequence);
        self.delivered[word] |= bit;
    }

    fn advance(&mut self, delivered: bool) {
        // With the one that is next until now.
        self.note(self.noted + 1);
        let (word, bit) = self.bit(self.next);
        if delivered {
            self.delivered[word] |= bit;
        } else {
            self.delivered[word] &= !bit;
        }
        self.next = self.next.wrapping_add(1);
    }

    /// The first frame that is held and its number.
    pub fn first_held(&self) -> Option<(u32, &T)> {
        if self.held == 0 {
            return None;
        }
        (0..self.slots.len() as u32)
            .map(|n| self.next.wrapping_add(n))
            .find_map(|sequence| self.slot(sequence).map(|item| (sequence, item)))
    }

    /// Starts over at `next`; everything held comes out in order.
    pub fn restart(&mut self, next: u32) -> Vec<T> {
        let mut out = Vec::with_capacity(self.held);
        while let Some((sequence, _)) = self.first_held() {
            self.give_up(sequence);
            out.extend(self.pop());
        }
        self.next = next;
        self.delivered.fill(0);
        self.noted = 0;
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edge::testing::Rng;

    #[test]
    fn what_was_delivered_is_known_as_far_back_as_promised() {
        let mut rng = Rng::new(12);
        for round in 0..6 {
            let start = u32::MAX - rng.below(100_000) as u32;
            let mut window: Window<()> = Window::new(start);
            let mut delivered = std::collections::HashSet::new();
            for _ in 0..40_000 {
                match rng.below(10) {
                    0 => window.give_up(window.next().wrapping_add(1 + rng.below(round + 1) as u32)),
                    1 => {
                        let sequence = window.next().wrapping_sub(1 + rng.below(3000) as u32);
                        let is_late = window.place(sequence) == Place::Late;
                        assert_eq!(is_late, delivered.insert(sequence), "{sequence} of {start}");
                        if is_late {
                            window.delivered_late(sequence);
                        }
                    }
                    _ => {
                        delivered.insert(window.next());
                        window.pass();
                    }
                }
                let most = if rng.below(2) == 0 { 2000 } else { HISTORY };
                let back = 1 + rng.below(most) as u32;
                let sequence = window.next().wrapping_sub(back);
                let place = if delivered.contains(&sequence) { Place::Duplicate } else { Place::Late };
                assert_eq!(window.place(sequence), place, "{back} back");
            }
            assert!(window.room() <= HISTORY);
        }
        let mut slow: Window<()> = Window::new(7);
        (0..1024).for_each(|_| slow.pass());
        assert_eq!(slow.room(), FIRST_HISTORY);
    }

    #[test]
    fn room_for_many_is_given_back_once_nothing_is_held() {
        for (count, left) in [(10u32, FIRST_SLOTS), (200, 256), (20_000, 0)] {
            let mut window = Window::new(0);
            (1..count).for_each(|sequence| window.hold(sequence, sequence));
            window.pass();
            assert_eq!(std::iter::from_fn(|| window.pop()).count() as u32, count - 1);
            assert_eq!((window.held(), window.slots.len()), (0, left));
            window.hold(count + 3, 1);
            assert_eq!((window.place(count + 3), window.place(count)), (Place::Duplicate, Place::Ahead(0)));
        }
    }

    #[test]
    fn every_order_comes_out_sorted_across_the_wrap() {
        let mut rng = Rng::new(11);
        for _ in 0..50 {
            let start = u32::MAX - rng.below(3000) as u32;
            let mut window = Window::new(start);
            let mut waiting: Vec<u32> = (0..4000).map(|k| start.wrapping_add(k)).collect();
            let mut out = Vec::new();
            while !waiting.is_empty() {
                let reach = 1 + rng.below(500);
                let pick = rng.below(waiting.len().min(reach));
                let sequence = waiting.remove(pick);
                assert!(matches!(window.place(sequence), Place::Ahead(_)));
                window.hold(sequence, sequence);
                assert_eq!(window.place(sequence), Place::Duplicate);
                while let Some(s) = window.pop() {
                    out.push(s);
                }
            }
            let wanted: Vec<u32> = (0..4000).map(|k| start.wrapping_add(k)).collect();
            assert_eq!(out, wanted);
            assert_eq!(window.held(), 0);
        }
    }

    #[test]
    fn late_is_told_from_duplicate() {
        let mut window = Window::new(100);
        window.hold(102, ());
        assert_eq!(window.first_held(), Some((102, &())));
        window.give_up(102);
        window.pop().unwrap();
        assert_eq!(window.place(101), Place::Late);
        assert_eq!(window.place(102), Place::Duplicate);
        window.delivered_late(101);
        assert_eq!(window.place(101), Place::Duplicate);
        // The first frame may have overtaken others on a faster path.
        assert_eq!(window.place(99), Place::Late);
        assert_eq!(window.place(103 + WINDOW as u32), Place::Far);
        assert_eq!(window.place(103u32.wrapping_sub(HISTORY as u32 + 1)), Place::Far);
    }

    #[test]
    fn it_begins_earlier_until_something_was_delivered_or_given_up() {
        for start in [0u32, 100, u32::MAX - 2] {
            let mut window = Window::new(start);
            for ahead in [1, 2, 15] {
                window.hold(start.wrapping_add(ahead), start.wrapping_add(ahead));
            }
            let first = start.wrapping_sub(20);
            assert!(!window.begin_earlier(start) && !window.begin_earlier(start.wrapping_add(3)));
            assert!(!window.begin_earlier(start.wrapping_sub(WINDOW as u32 / 2 + 1)), "too far off");
            assert!(window.begin_earlier(first));
            assert_eq!((window.next(), window.held(), window.place(first)), (first, 3, Place::Ahead(0)));
            assert_eq!(window.first_held(), Some((start.wrapping_add(1), &start.wrapping_add(1))));
            window.pass();
            assert!(!window.begin_earlier(first), "something was delivered");
            window.give_up(start.wrapping_add(1));
            let wanted = [1, 2].map(|ahead| Some(start.wrapping_add(ahead)));
            assert_eq!([window.pop(), window.pop(), window.pop()], [wanted[0], wanted[1], None]);
            assert_eq!(window.restart(start), [start.wrapping_add(15)]);
            assert!(window.begin_earlier(first), "another beginning");
            window.give_up(start);
            assert!(!window.begin_earlier(first.wrapping_sub(1)), "something was given up");
        }
    }

    #[test]
    fn restart_gives_what_is_held_in_order() {
        let mut window = Window::new(10);
        for s in [15, 12, 13] {
            window.hold(s, s);
        }
        assert_eq!(window.restart(9_000_000), vec![12, 13, 15]);
        assert_eq!(window.place(9_000_000), Place::Ahead(0));
        assert_eq!(window.place(15), Place::Far);
    }
}
