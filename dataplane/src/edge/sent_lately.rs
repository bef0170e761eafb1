//! What a flow gave its paths a moment ago. A path that is taken away while it has a rate has died, as a rule: what it
//! was given lately goes again by the others, with the same numbers, before anything else. The newest goes first: that
//! is what was lost, if anything was. The other end passes on each number once, and a path that did not die has cost a
//! moment's airtime twice.

use super::buffer::{Buf, Pool};
use std::collections::VecDeque;

const MS: u64 = 1_000_000;
/// What a path is given from the loss of a carrier until the controller has sent another configuration. Silence takes
/// longer to notice; what is lost until then is the transport's to repeat.
const LATELY_NS: u64 = 20 * MS;
/// So much of it, so that no flow keeps more than a few hundred buffers.
const MOST_FRAMES: usize = 256;

#[derive(Debug)]
struct Sent {
    at_ns: u64,
    path: u8,
    sequence: u32,
    buf: Buf,
}

#[derive(Debug, Default)]
pub struct SentLately {
    frames: VecDeque<Sent>,
    /// The newest last.
    again: Vec<(u32, Buf)>,
}

impl SentLately {
    /// A frame is about to leave on a path. Where there is no buffer for its copy it can't be sent again.
    pub fn note(&mut self, now_ns: u64, path: u8, sequence: u32, buf: &Buf, pool: &mut Pool) {
        self.forget(now_ns, pool);
        if self.frames.len() >= MOST_FRAMES {
            self.frames.pop_front().into_iter().for_each(|sent| pool.give(sent.buf));
        }
        if let Some(copy) = pool.copy_of(buf) {
            self.frames.push_back(Sent { at_ns: now_ns, path, sequence, buf: copy });
        }
    }

    /// Gives back what is older.
    pub fn forget(&mut self, now_ns: u64, pool: &mut Pool) {
        while self.frames.front().map_or(false, |sent| now_ns.saturating_sub(sent.at_ns) > LATELY_NS) {
            self.frames.pop_front().into_iter().for_each(|sent| pool.give(sent.buf));
        }
    }

    /// These paths are gone.
    pub fn lost(&mut self, now_ns: u64, paths: &[u8], pool: &mut Pool) {
        self.forget(now_ns, pool);
        let (gone, stay) = std::mem::take(&mut self.frames).into_iter().partition(|sent| paths.contains(&sent.path));
        let (gone, stay): (VecDeque<Sent>, VecDeque<Sent>) = (gone, stay);
        self.frames = stay;
        self.again.extend(gone.into_iter().map(|sent| (sent.sequence, sent.buf)));
    }

    /// The length of what goes again next.
    pub fn head_len(&self) -> Option<usize> {
        self.again.last().map(|(_, buf)| buf.len())
    }

    /// It, with its number.
    pub fn take(&mut self) -> Option<(u32, Buf)> {
        self.again.pop()
    }

    /// Gives everything back.
    pub fn clear(&mut self, pool: &mut Pool) {
        let copies = self.frames.drain(..).map(|sent| sent.buf);
        copies.chain(self.again.drain(..).map(|(_, buf)| buf)).for_each(|buf| pool.give(buf));
    }
}
