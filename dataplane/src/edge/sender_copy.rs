//! Sending copies.

use super::super::buffer::{Buf, Pool};
use super::super::copies::Copies;
use super::super::outpath::{launch, Outgoing};
use super::super::reorder::before;
use super::super::split_config::SplitMode;
use super::Sender;

impl Sender {
    pub(super) fn is_copying(&self) -> bool {
        self.mode == SplitMode::Copy
    }

    /// Begins, goes on with or ends copies, as mode and paths are now. What paths are behind with when copying ends
    /// they still send first, so that numbers rise on every path.
    pub(super) fn settle_copies(&mut self, pool: &mut Pool) {
        let copying = self.is_copying();
        if copying && self.copies.is_none() {
            self.copies = Some(Copies::new(self.sequence));
        }
        if let Some(copies) = &mut self.copies {
            copies.settle(&mut self.paths, self.queue_ms, copying, pool);
        }
        self.drop_copies();
    }

    /// Once nothing is left of copies that have ended the flow's split counts again.
    fn drop_copies(&mut self) {
        if !self.is_copying() && self.copies.as_ref().map_or(false, Copies::is_empty) {
            self.copies = None;
            self.paths.iter_mut().for_each(|p| p.copy_position.reached = None);
        }
    }

    /// When a path may send what is next on it: time, number, path.
    fn copy_ready(&self, now_ns: u64, copies: &Copies, index: usize) -> Option<(u64, u32, usize)> {
        let path = &self.paths[index];
        path.copy_position.reached?;
        let fresh = || self.queue.front().filter(|_| self.is_copying()).map(|(_, buf)| (self.sequence, buf.len()));
        let (number, len) = copies.head(path).or_else(fresh)?;
        Some((path.pacer.ready_at(now_ns, len + path.spec.overhead())?, number, index))
    }

    fn copies_ready<'a>(&'a self, now_ns: u64, copies: &'a Copies) -> impl Iterator<Item = (u64, u32, usize)> + 'a {
        (0..self.paths.len()).filter_map(move |index| self.copy_ready(now_ns, copies, index))
    }

    pub(super) fn copies_due(&self, now_ns: u64, copies: &Copies) -> Option<u64> {
        self.copies_ready(now_ns, copies).map(|(at_ns, ..)| at_ns).min()
    }

    /// The next copy that may leave now, lowest numbers first.
    pub(super) fn next_copy(&mut self, now_ns: u64, pool: &mut Pool) -> Option<Outgoing> {
        let copies = self.copies.as_ref()?;
        let ready = self.copies_ready(now_ns, copies).filter(|(at_ns, ..)| *at_ns <= now_ns);
        let (_, number, index) = ready.reduce(|a, b| if before(b.1, a.1) { b } else { a })?;
        let (sequence, buf) = if number == self.sequence {
            (number, self.first_copy(index, pool)?)
        } else {
            self.copies.as_mut()?.take(&mut self.paths, index, pool)?
        };
        self.drop_copies();
        Some(launch(&mut self.paths[index], now_ns, &mut self.sealer, sequence, buf))
    }

    /// The flow's next frame gets its number, and path `index` sends it first.
    fn first_copy(&mut self, index: usize, pool: &mut Pool) -> Option<Buf> {
        let copies = self.copies.as_mut()?;
        let (_, buf) = self.queue.pop_front()?;
        self.queued_bytes -= buf.len();
        self.sequence = self.sequence.wrapping_add(1);
        self.sent += 1;
        Some(copies.put(&mut self.paths, index, buf, pool))
    }
}
