//! Frames that do not fit a path, in pieces (docs/reference/dataplane.md, *Pieces*).
//!
//! The first agent fills frames of the path with pieces as long as they wait in its queue, so that a path's headers are
//! paid once for each full frame. A user's frame has two pieces, in frames with consecutive numbers, or one. The last
//! agent joins them.

use super::buffer::{Buf, Pool};
use super::frame::{be16, ETHERNET_LEN};
use std::collections::VecDeque;

/// In front of a piece: what it is, and its length.
const HEAD_LEN: usize = 2;
/// What a frame has more in pieces than whole, at most.
pub const MOST_HEADS: usize = 2 * HEAD_LEN;
const BEGINS: u16 = 0x8000;
const ENDS: u16 = 0x4000;
const LENGTH: u16 = 0x3fff;
/// Pieces that wait for the other one of their frame. Where frames leave in order, the next frame has it.
const MOST_WAITING: usize = 16;

/// Whether a frame of `len` bytes can be cut for frames with room for `room` bytes.
pub fn can_cut(len: usize, room: usize) -> bool {
    let most = most_piece(room);
    len > most && len <= 2 * most
}

fn most_piece(room: usize) -> usize {
    room.saturating_sub(HEAD_LEN).min(usize::from(LENGTH))
}

/// Puts a whole frame behind the pieces in `open`, if it fits: the bytes that were added.
pub fn append_whole(frame: &[u8], room: usize, open: &mut Buf) -> Option<usize> {
    let fits = open.pieces.is_some() && frame.len() <= most_piece(room.saturating_sub(open.len()));
    (fits && append(open, BEGINS | ENDS, frame)).then(|| HEAD_LEN + frame.len())
}

/// A frame that was cut.
#[derive(Debug)]
pub struct Cut {
    /// Bytes that `open` has grown by.
    pub added: usize,
    pub fresh: Vec<Buf>,
}

/// Cuts a frame in two pieces; None if there are no buffers, and nothing is changed then.
///
/// The first piece fills `open`, if that has pieces and the rest then fits a new buffer.
pub fn cut(frame: &[u8], room: usize, open: Option<&mut Buf>, pool: &mut Pool) -> Option<Cut> {
    let most = most_piece(room);
    let open = open.filter(|buf| buf.pieces.is_some());
    let space = open.as_ref().map_or(0, |buf| most_piece(room.saturating_sub(buf.len())));
    let into_open = space > 0 && space < frame.len() && frame.len() - space <= most;
    let (first, rest) = frame.split_at(if into_open { space } else { most.min(frame.len()) });
    let last = with_piece(ENDS, rest, pool)?;
    if into_open && open.map_or(false, |buf| append(buf, BEGINS, first)) {
        return Some(Cut { added: HEAD_LEN + first.len(), fresh: vec![last] });
    }
    match with_piece(BEGINS, first, pool) {
        Some(buf) => Some(Cut { added: 0, fresh: vec![buf, last] }),
        None => {
            pool.give(last);
            None
        }
    }
}

fn with_piece(flag: u16, bytes: &[u8], pool: &mut Pool) -> Option<Buf> {
    let mut buf = pool.take()?;
    if !append(&mut buf, flag, bytes) {
        pool.give(buf);
        return None;
    }
    buf.pieces = Some(0);
    Some(buf)
}

fn append(buf: &mut Buf, flag: u16, bytes: &[u8]) -> bool {
    buf.append([&(flag | bytes.len() as u16).to_be_bytes(), bytes])
}

/// What of a frame has come.
#[derive(Debug)]
struct Waiting {
    /// Number of the frame with the first piece.
    number: u32,
    begins: bool,
    bytes: Vec<u8>,
}

/// Joins the pieces of one flow, also where frames come in another order.
#[derive(Debug, Default)]
pub struct Joiner {
    waiting: VecDeque<Waiting>,
}

impl Joiner {
    /// Takes the pieces of the frame `number`, and appends the frames that are whole now to `out`.
    pub fn take(&mut self, number: u32, mut bytes: &[u8], pool: &mut Pool, out: &mut Vec<Buf>) {
        // Short frames are padded with zeros, which is a head without flags.
        while let Some(head) = be16(bytes, 0) {
            let end = HEAD_LEN + usize::from(head & LENGTH);
            let piece = match bytes.get(HEAD_LEN..end) {
                Some(piece) => piece,
                None => return,
            };
            let joined = match head & (BEGINS | ENDS) {
                BEGINS => self.meet(number, true, piece, pool),
                ENDS => self.meet(number.wrapping_sub(1), false, piece, pool),
                0 => return,
                _ => whole([piece, &[]], pool),
            };
            out.extend(joined);
            bytes = &bytes[end..];
        }
    }

    fn meet(&mut self, number: u32, begins: bool, piece: &[u8], pool: &mut Pool) -> Option<Buf> {
        let fits = |other: &Waiting| other.number == number && other.begins != begins;
        match self.waiting.iter().position(fits).and_then(|at| self.waiting.remove(at)) {
            Some(other) => {
                let parts = if begins { [piece, &other.bytes] } else { [&other.bytes, piece] };
                whole(parts, pool)
            }
            None => {
                if self.waiting.len() >= MOST_WAITING {
                    self.waiting.pop_front();
                }
                self.waiting.push_back(Waiting { number, begins, bytes: piece.to_vec() });
                None
            }
        }
    }
}

fn whole(parts: [&[u8]; 2], pool: &mut Pool) -> Option<Buf> {
    let has_header = parts[0].len() + parts[1].len() >= ETHERNET_LEN;
    has_header.then(|| pool.take_with_parts(parts)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edge::testing::Rng;

    const ROOM: usize = 1472;

    fn pool() -> Pool {
        Pool::new(2048, 1000)
    }

    fn frame(len: usize, seed: usize) -> Vec<u8> {
        (0..len).map(|k| (k * 7 + seed) as u8).collect()
    }

    /// Cuts frames one after another, as in a queue that is not served meanwhile.
    fn queue(frames: &[Vec<u8>], pool: &mut Pool) -> Vec<Buf> {
        let mut queue: Vec<Buf> = Vec::new();
        for frame in frames {
            let cut = cut(frame, ROOM, queue.last_mut(), pool).unwrap();
            queue.extend(cut.fresh);
        }
        queue
    }

    fn joined(order: &[(u32, &Buf)], pool: &mut Pool) -> Vec<Vec<u8>> {
        let (mut joiner, mut out) = (Joiner::default(), Vec::new());
        order.iter().for_each(|(number, buf)| joiner.take(*number, buf.bytes(), pool, &mut out));
        out.iter().map(|buf| buf.bytes().to_vec()).collect()
    }

    #[test]
    fn waiting_frames_share_full_frames_of_the_path() {
        let frames: Vec<Vec<u8>> = (0..60).map(|seed| frame(1514, seed)).collect();
        let mut pool = pool();
        let queue = queue(&frames, &mut pool);
        assert!(queue.iter().all(|buf| buf.len() <= ROOM && buf.pieces.is_some()));
        // 60 frames of 1518 bytes with heads.
        assert_eq!(queue.len(), 62);
        let order: Vec<(u32, &Buf)> = queue.iter().enumerate().map(|(k, buf)| (k as u32, buf)).collect();
        assert_eq!(joined(&order, &mut pool), frames);
        queue.into_iter().for_each(|buf| pool.give(buf));
    }

    #[test]
    fn small_frame_takes_the_place_behind_a_piece() {
        let mut pool = pool();
        let (large, small) = (frame(1490, 3), frame(58, 4));
        let Cut { mut fresh, .. } = cut(&large, ROOM, None, &mut pool).unwrap();
        assert_eq!(append_whole(&small, ROOM, fresh.last_mut().unwrap()), Some(60));
        let order: Vec<(u32, &Buf)> = fresh.iter().enumerate().map(|(k, buf)| (k as u32, buf)).collect();
        assert_eq!(joined(&order, &mut pool), [large, small.clone()]);
        assert_eq!(append_whole(&small, ROOM, &mut fresh[0]), None, "it is full");
        let mut plain = pool.take_with(&small).unwrap();
        assert_eq!(append_whole(&small, ROOM, &mut plain), None, "it has a frame and no pieces");
    }

    #[test]
    fn neighbours_that_changed_places_are_joined_across_the_wrap() {
        let frames: Vec<Vec<u8>> = (0..40).map(|seed| frame(1480 + seed, seed)).collect();
        let mut pool = pool();
        let queue = queue(&frames, &mut pool);
        let mut order: Vec<(u32, &Buf)> =
            queue.iter().enumerate().map(|(k, buf)| ((k as u32).wrapping_sub(20), buf)).collect();
        order.chunks_mut(3).for_each(|three| three.reverse());
        let mut found = joined(&order, &mut pool);
        found.sort();
        let mut wanted = frames;
        wanted.sort();
        assert_eq!(found, wanted);
    }

    #[test]
    fn lost_piece_costs_the_frames_that_it_belongs_to() {
        let frames: Vec<Vec<u8>> = (0..5).map(|seed| frame(1514, seed)).collect();
        let mut pool = pool();
        let queue = queue(&frames, &mut pool);
        let came = [0, 1, 3, 4, 5].map(|k| (k as u32, &queue[k]));
        assert_eq!(joined(&came, &mut pool), [0, 3, 4].map(|k| frames[k].clone()));
    }

    #[test]
    fn cutting_needs_room_and_buffers() {
        assert!(can_cut(1514, 1472) && can_cut(2 * 1470, 1472) && !can_cut(2 * 1470 + 1, 1472));
        assert!(!can_cut(1470, 1472) && !can_cut(100, 1) && !can_cut(0, 0));
        let mut pool = Pool::new(2048, 1);
        assert!(cut(&frame(1514, 1), ROOM, None, &mut pool).is_none());
        assert_eq!(pool.in_use(), 0);
        let mut small = Pool::new(64, 9);
        assert!(cut(&frame(1514, 1), ROOM, None, &mut small).is_none());
        assert_eq!(small.in_use(), 0);
    }

    #[test]
    fn waiting_pieces_are_bounded_and_random_bytes_never_panic() {
        let (mut rng, mut pool, mut joiner) = (Rng::new(5), pool(), Joiner::default());
        for _ in 0..100_000 {
            let mut bytes: Vec<u8> = (0..rng.below(60)).map(|_| rng.next() as u8).collect();
            if bytes.len() > 2 {
                bytes[0] = [0x80, 0x40, 0, 0xc0][rng.below(4)];
                bytes[1] = rng.below(bytes.len()) as u8;
            }
            let mut out = Vec::new();
            joiner.take(rng.below(30) as u32, &bytes, &mut pool, &mut out);
            assert!(joiner.waiting.len() <= MOST_WAITING && out.iter().all(|buf| buf.len() >= ETHERNET_LEN));
            out.into_iter().for_each(|buf| pool.give(buf));
        }
        assert_eq!(pool.in_use(), 0);
    }
}
