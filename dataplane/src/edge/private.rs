//! What a sender with a HyWF split keeps: the law, the padding, and frames that are bound to a path.
//!
//! A frame gets its path and its sequence number when it is *staged*, in the order of arrival; staged frames wait for
//! their own path only, so that both paths are used at once though runs alternate.

use super::buffer::Buf;
use super::hywf::{Hywf, Law};
use super::padding::{Padding, Schedule};
use crate::rng::Rng;
use std::collections::VecDeque;

/// Frames bound to paths ahead of their time: while one path is busy with a run the other goes on.
const STAGED: usize = 128;
/// Lengths of so many frames are remembered: padding has one of them.
const LENGTHS: usize = 16;

/// The checked settings of a HyWF split.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    pub law: Law,
    pub padding: Option<Schedule>,
    pub silence_ns: u64,
}

#[derive(Debug)]
struct Staged {
    sequence: u32,
    buf: Buf,
}

#[derive(Debug)]
pub struct Private {
    law: Hywf,
    padding: Option<Padding>,
    silence_ns: u64,
    frame_ns: Option<u64>,
    lengths: [usize; LENGTHS],
    frames: usize,
    /// By path: bytes that may be staged before no more is; 0 if it can't be used.
    rooms: Vec<usize>,
    /// By path.
    staged: Vec<VecDeque<Staged>>,
    bytes: Vec<usize>,
    /// Staged for a path that went, while no other can be used.
    strays: VecDeque<Staged>,
    count: usize,
}

impl Private {
    pub fn new(now_ns: u64, settings: Settings, seed: u64) -> Self {
        Private {
            law: Hywf::new(settings.law, Rng::new(seed)),
            padding: settings.padding.map(|schedule| Padding::new(now_ns, schedule)),
            silence_ns: settings.silence_ns,
            frame_ns: None,
            lengths: [0; LENGTHS],
            frames: 0,
            rooms: Vec::new(),
            staged: Vec::new(),
            bytes: Vec::new(),
            strays: VecDeque::new(),
            count: 0,
        }
    }

    /// Other settings; what did not change goes on.
    pub fn update(&mut self, now_ns: u64, settings: Settings) {
        if self.law.law() != settings.law {
            self.law.set_law(settings.law);
        }
        self.silence_ns = settings.silence_ns;
        if self.padding.as_ref().map(Padding::schedule) != settings.padding {
            self.padding = settings.padding.map(|schedule| Padding::new(now_ns, schedule));
        }
    }

    /// A user's frame of `len` bytes came.
    pub fn on_frame(&mut self, now_ns: u64, len: usize) {
        if self.frame_ns.map_or(true, |at| now_ns.saturating_sub(at) >= self.silence_ns) {
            self.law.begin();
        }
        self.frame_ns = Some(now_ns);
        self.lengths[self.frames % LENGTHS] = len;
        self.frames += 1;
        if let Some(padding) = &mut self.padding {
            padding.on_frame(now_ns, self.law.rng());
        }
    }

    /// The path of the next frame; None if no path can be used. One that is alone gets all.
    fn choose(&mut self) -> Option<usize> {
        match self.rooms.as_slice() {
            [one, two] if *one > 0 && *two > 0 => Some(self.law.draw()),
            rooms => rooms.iter().position(|room| *room > 0),
        }
    }

    pub fn has_room(&self) -> bool {
        let full = |(room, bytes): (&usize, &usize)| *room > 0 && bytes >= room;
        self.count < STAGED && self.can_stage() && !self.rooms.iter().zip(&self.bytes).any(full)
    }

    fn can_stage(&self) -> bool {
        self.rooms.iter().any(|room| *room > 0)
    }

    pub fn staged(&self) -> usize {
        self.count
    }

    /// Binds a frame; gives it back if no path can be used.
    pub fn stage(&mut self, sequence: u32, buf: Buf) -> Result<(), Buf> {
        match self.choose() {
            None => Err(buf),
            Some(path) => {
                self.bytes[path] += buf.len();
                self.staged[path].push_back(Staged { sequence, buf });
                self.count += 1;
                Ok(())
            }
        }
    }

    /// Number and length of the first frame staged for a path.
    pub fn head(&self, path: usize) -> Option<(u32, usize)> {
        self.staged.get(path)?.front().map(|s| (s.sequence, s.buf.len()))
    }

    pub fn take(&mut self, path: usize) -> Option<(u32, Buf)> {
        let staged = self.staged.get_mut(path)?.pop_front()?;
        self.bytes[path] -= staged.buf.len();
        self.count -= 1;
        Some((staged.sequence, staged.buf))
    }

    /// The paths have changed: path i is what `from[i]` was. Frames of a path that can't be used any more (its room is
    /// 0) go to one that can.
    pub fn remap(&mut self, from: &[Option<usize>], rooms: Vec<usize>) {
        let mut old = std::mem::take(&mut self.staged);
        let remaining = from.iter().map(|at| at.and_then(|i| old.get_mut(i)).map(std::mem::take).unwrap_or_default());
        self.staged = remaining.collect();
        self.strays.extend(old.into_iter().flatten());
        for (queue, _) in self.staged.iter_mut().zip(&rooms).filter(|(_, room)| **room == 0) {
            self.strays.append(queue);
        }
        if let Some(path) = rooms.iter().position(|room| *room > 0).filter(|_| !self.strays.is_empty()) {
            self.staged[path].append(&mut self.strays);
            let in_order = |a: &Staged, b: &Staged| (a.sequence.wrapping_sub(b.sequence) as i32).cmp(&0);
            self.staged[path].make_contiguous().sort_by(in_order);
        }
        self.rooms = rooms;
        self.bytes = self.staged.iter().map(|queue| queue.iter().map(|s| s.buf.len()).sum()).collect();
    }

    /// All that was staged, with its path if that can be used.
    pub fn into_staged(self) -> Vec<(Option<usize>, u32, Buf)> {
        let mut all = Vec::new();
        for (path, staged) in self.staged.into_iter().enumerate() {
            all.extend(staged.into_iter().map(|s| (Some(path), s.sequence, s.buf)));
        }
        all.extend(self.strays.into_iter().map(|s| (None, s.sequence, s.buf)));
        all
    }

    pub fn padding_due(&self) -> Option<u64> {
        self.padding.as_ref().and_then(Padding::due_ns)
    }

    /// The path and the length of padding that is to be sent now.
    pub fn padding(&mut self, now_ns: u64) -> Option<(usize, usize)> {
        if !self.padding.as_mut()?.poll(now_ns, self.law.rng()) {
            return None;
        }
        let len = self.lengths[self.law.rng().below(self.frames.min(LENGTHS))];
        Some((self.choose()?, len))
    }
}
