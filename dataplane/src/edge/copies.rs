//! Copies: each frame goes, with one number, on every path in use.
//!
//! The path that is fastest takes a frame from the flow's queue and gives it its number; what the others still have to
//! send waits here, once for all of them. A path that falls too far behind leaves out the oldest.

use super::buffer::{Buf, Pool};
use super::outpath::PathOut;
use std::collections::VecDeque;

/// A path may always fall so many frames behind, however slow it is: a burst of the host's must not cost copies.
const MIN_BEHIND: u32 = 8;

/// Frames that at least one path has sent and another one still must.
#[derive(Debug)]
pub struct Copies {
    frames: VecDeque<Buf>,
    /// The number of the first of them, or the next one if there are none.
    first: u32,
}

impl Copies {
    pub fn new(next: u32) -> Self {
        Copies { frames: VecDeque::new(), first: next }
    }

    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    fn next(&self) -> u32 {
        self.first.wrapping_add(self.frames.len() as u32)
    }

    fn at(&self, number: u32) -> usize {
        number.wrapping_sub(self.first) as usize
    }

    /// Paths or rates have changed: one that can't be used takes no part any more, and with `joining` all others do.
    pub fn settle(&mut self, paths: &mut [PathOut], queue_ms: u64, joining: bool, pool: &mut Pool) {
        let next = self.next();
        for path in paths.iter_mut() {
            let usable = path.usable();
            let position = &mut path.copy_position;
            match position.reached {
                Some(reached) if !usable => {
                    position.skipped += u64::from(next.wrapping_sub(reached));
                    position.reached = None;
                    position.behind_bytes = 0;
                }
                None if usable && joining => position.reached = Some(next),
                _ => {}
            }
            position.room_bytes =
                path.spec.rate_mbps.map_or(usize::MAX, |mbps| (mbps * 125.0 * queue_ms as f64) as usize);
        }
        self.trim(paths, pool);
    }

    /// Number and length of what a path that is behind has to send next.
    pub fn head(&self, path: &PathOut) -> Option<(u32, usize)> {
        let reached = path.copy_position.reached?;
        self.frames.get(self.at(reached)).map(|buf| (reached, buf.len()))
    }

    /// That frame. Without a buffer to copy it to it is left out.
    pub fn take(&mut self, paths: &mut [PathOut], index: usize, pool: &mut Pool) -> Option<(u32, Buf)> {
        let number = paths[index].copy_position.reached?;
        let at = self.at(number);
        let bytes = self.frames.get(at)?.len();
        let position = &mut paths[index].copy_position;
        position.reached = Some(number.wrapping_add(1));
        position.behind_bytes -= bytes;
        // The last to need it takes the frame itself.
        if at == 0 && !is_needed(paths, number) {
            self.first = number.wrapping_add(1);
            return self.frames.pop_front().map(|buf| (number, buf));
        }
        let copy = pool.copy_of(&self.frames[at]);
        if copy.is_none() {
            paths[index].copy_position.skipped += 1;
        }
        self.trim(paths, pool);
        copy.map(|buf| (number, buf))
    }

    /// The next frame of the flow, which path `index` sends first: gives what that is to send.
    pub fn put(&mut self, paths: &mut [PathOut], index: usize, buf: Buf, pool: &mut Pool) -> Buf {
        let number = self.next();
        paths[index].copy_position.reached = Some(number.wrapping_add(1));
        let alone = !is_needed(paths, number);
        let copy = if alone { None } else { pool.copy_of(&buf) };
        let to_send = match copy {
            None => {
                // Nobody else wants it, or there is no buffer: then the others go without all that they are behind.
                for buf in self.frames.drain(..) {
                    pool.give(buf);
                }
                self.first = number.wrapping_add(1);
                for position in paths.iter_mut().map(|p| &mut p.copy_position) {
                    if let Some(reached) = position.reached {
                        position.skipped += u64::from(self.first.wrapping_sub(reached));
                        position.reached = Some(self.first);
                        position.behind_bytes = 0;
                    }
                }
                return buf;
            }
            Some(copy) => copy,
        };
        for path in paths.iter_mut().filter(|p| p.copy_position.reached.map_or(false, |r| r != number.wrapping_add(1)))
        {
            path.copy_position.behind_bytes += buf.len();
        }
        self.frames.push_back(buf);
        self.trim(paths, pool);
        to_send
    }

    /// Leaves out what paths are too far behind with, and forgets what nobody has to send any more.
    fn trim(&mut self, paths: &mut [PathOut], pool: &mut Pool) {
        let next = self.next();
        for position in paths.iter_mut().map(|p| &mut p.copy_position) {
            while let Some(reached) = position.reached {
                if position.behind_bytes <= position.room_bytes || next.wrapping_sub(reached) <= MIN_BEHIND {
                    break;
                }
                position.behind_bytes -= self.frames[reached.wrapping_sub(self.first) as usize].len();
                position.reached = Some(reached.wrapping_add(1));
                position.skipped += 1;
            }
        }
        while !self.frames.is_empty() && !is_needed(paths, self.first) {
            self.first = self.first.wrapping_add(1);
            if let Some(buf) = self.frames.pop_front() {
                pool.give(buf);
            }
        }
    }

    pub fn dismiss(self, pool: &mut Pool) {
        for buf in self.frames {
            pool.give(buf);
        }
    }
}

/// Whether a path has still to send this number.
fn is_needed(paths: &[PathOut], number: u32) -> bool {
    paths.iter().filter_map(|p| p.copy_position.reached).any(|reached| (number.wrapping_sub(reached) as i32) >= 0)
}
