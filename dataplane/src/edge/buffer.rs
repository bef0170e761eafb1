//! Frame buffers with headroom, and the bounded pool they come from.

/// Bytes kept free in front of a frame as it is read, enough for an Ethernet header, the shim, its seal and 24 labels.
pub const HEADROOM: usize = 136;

/// A frame in a buffer of fixed size. Headers are put in front of it without moving it.
#[derive(Debug)]
pub struct Buf {
    data: Box<[u8]>,
    start: usize,
    end: usize,
    /// It holds pieces of users' frames; the number of the frame that brought them, once it is known.
    pub pieces: Option<u32>,
}

impl Buf {
    pub fn with_size(size: usize) -> Self {
        let data = vec![0; HEADROOM + size].into_boxed_slice();
        Buf { data, start: HEADROOM, end: HEADROOM, pieces: None }
    }

    pub fn bytes(&self) -> &[u8] {
        &self.data[self.start..self.end]
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.data[self.start..self.end]
    }

    pub fn len(&self) -> usize {
        self.end - self.start
    }

    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Bytes that fit behind the headroom.
    fn room(&self) -> usize {
        self.data.len() - HEADROOM
    }

    /// The whole space behind the headroom, to be read into; `filled` then says how much of it is a frame.
    pub fn space(&mut self) -> &mut [u8] {
        &mut self.data[HEADROOM..]
    }

    pub fn filled(&mut self, len: usize) {
        self.start = HEADROOM;
        self.end = (HEADROOM + len).min(self.data.len());
        self.pieces = None;
    }

    /// Replaces the content; false (and empty) if it does not fit.
    pub fn set(&mut self, bytes: &[u8]) -> bool {
        let fits = HEADROOM + bytes.len() <= self.data.len();
        self.filled(0);
        if fits {
            self.filled(bytes.len());
            self.data[self.start..self.end].copy_from_slice(bytes);
        }
        fits
    }

    /// A frame of zeros, cut to what fits.
    pub fn zeroed(&mut self, len: usize) {
        self.filled(len);
        self.data[self.start..self.end].fill(0);
    }

    /// Drops what is behind the first `len` bytes.
    pub fn truncate(&mut self, len: usize) {
        self.end = self.end.min(self.start + len);
    }

    /// Grows the frame at the end, by zeros, to this length if there is room.
    pub fn pad_to(&mut self, len: usize) {
        let end = (self.start + len).min(self.data.len());
        if end > self.end {
            self.data[self.end..end].fill(0);
            self.end = end;
        }
    }

    /// Puts bytes of two places at the end; false, and nothing is changed, if they do not fit.
    pub fn append(&mut self, parts: [&[u8]; 2]) -> bool {
        let middle = self.end + parts[0].len();
        let end = middle + parts[1].len();
        if end > self.data.len() {
            return false;
        }
        self.data[self.end..middle].copy_from_slice(parts[0]);
        self.data[middle..end].copy_from_slice(parts[1]);
        self.end = end;
        true
    }

    /// Drops bytes from the front.
    pub fn strip(&mut self, count: usize) {
        self.start = (self.start + count).min(self.end);
    }

    /// Grows the frame at the front and gives the new bytes; None if there is no room left.
    pub fn prepend(&mut self, count: usize) -> Option<&mut [u8]> {
        self.start = self.start.checked_sub(count)?;
        Some(&mut self.data[self.start..self.start + count])
    }
}

/// So many free buffers are kept; what a greater peak needed is not kept for ever.
pub const MOST_FREE: usize = 4096;

/// Hands out buffers of one size, at most `limit` of them at a time, so that hostile input cannot use up memory; and, if
/// asked for, a few large ones.
#[derive(Debug)]
pub struct Pool {
    size: usize,
    free: Vec<Buf>,
    out: usize,
    limit: usize,
    large: Option<Box<Pool>>,
}

impl Pool {
    pub fn new(size: usize, limit: usize) -> Self {
        Pool { size, free: Vec::new(), out: 0, limit, large: None }
    }

    /// The same pool with all buffers that it keeps, so that its memory does not grow with each burst that is greater than
    /// those before. They are written to: else the kernel would give the memory only when they are used.
    pub fn prefilled(mut self) -> Self {
        let count = MOST_FREE.min(self.limit).saturating_sub(self.free.len());
        for _ in 0..count {
            let mut buf = Buf::with_size(self.size);
            buf.data.fill(1);
            self.free.push(buf);
        }
        self
    }

    /// The same pool with at most `limit` large buffers of `size` bytes beside its own.
    pub fn with_large(mut self, size: usize, limit: usize) -> Self {
        self.large = Some(Box::new(Pool::new(size.max(self.size + 1), limit)));
        self
    }

    /// A large buffer, or None when all of them are in use.
    pub fn take_large(&mut self) -> Option<Buf> {
        self.large.as_mut().and_then(|large| large.take())
    }

    /// Large buffers that are not in use.
    pub fn large_left(&self) -> usize {
        self.large.as_ref().map_or(0, |large| large.limit - large.out)
    }

    /// An empty buffer, or None when `limit` of them are in use.
    pub fn take(&mut self) -> Option<Buf> {
        if self.out >= self.limit {
            return None;
        }
        self.out += 1;
        Some(self.free.pop().unwrap_or_else(|| Buf::with_size(self.size)))
    }

    /// A buffer with these bytes, or None if none is free or they do not fit.
    pub fn take_with(&mut self, bytes: &[u8]) -> Option<Buf> {
        self.take_with_parts([bytes, &[]])
    }

    /// The same with bytes of two places.
    pub fn take_with_parts(&mut self, parts: [&[u8]; 2]) -> Option<Buf> {
        if parts[0].len() + parts[1].len() > self.size {
            return None;
        }
        let mut buf = self.take()?;
        buf.filled(parts[0].len() + parts[1].len());
        let (first, second) = buf.bytes_mut().split_at_mut(parts[0].len());
        first.copy_from_slice(parts[0]);
        second.copy_from_slice(parts[1]);
        Some(buf)
    }

    /// A copy of a frame, or None if no buffer is free or it does not fit.
    pub fn copy_of(&mut self, buf: &Buf) -> Option<Buf> {
        let mut copy = self.take_with(buf.bytes())?;
        copy.pieces = buf.pieces;
        Some(copy)
    }

    pub fn give(&mut self, mut buf: Buf) {
        if buf.room() > self.size {
            if let Some(large) = &mut self.large {
                return large.give(buf);
            }
        }
        self.out = self.out.saturating_sub(1);
        buf.filled(0);
        if self.free.len() < MOST_FREE {
            self.free.push(buf);
        }
    }

    pub fn in_use(&self) -> usize {
        self.out + self.large.as_ref().map_or(0, |large| large.out)
    }

    /// Buffers that there are, in use or not.
    pub fn made(&self) -> usize {
        self.out + self.free.len() + self.large.as_ref().map_or(0, |large| large.made())
    }

    /// Buffers that can still be taken.
    pub fn left(&self) -> usize {
        self.limit.saturating_sub(self.out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_go_in_front_and_come_off() {
        let mut buf = Buf::with_size(100);
        assert!(buf.set(b"frame"));
        buf.prepend(2).unwrap().copy_from_slice(b"h:");
        assert_eq!(buf.bytes(), b"h:frame");
        buf.strip(2);
        assert_eq!(buf.bytes(), b"frame");
        assert!(buf.prepend(HEADROOM + 1).is_none());
        assert!(!buf.set(&[0; 101]));
    }

    #[test]
    fn pool_is_bounded() {
        let mut pool = Pool::new(64, 2);
        let first = pool.take().unwrap();
        let _second = pool.take().unwrap();
        assert!(pool.take().is_none());
        pool.give(first);
        assert!(pool.take().is_some());
        assert!(pool.take_large().is_none());
    }

    #[test]
    fn a_burst_makes_none_where_all_are_there_and_leaves_no_more_than_that() {
        for (limit, burst) in [(8, 8), (MOST_FREE + 9, MOST_FREE + 9)] {
            let mut pool = Pool::new(64, limit).prefilled();
            let free = limit.min(MOST_FREE);
            assert_eq!(pool.made(), free);
            let taken: Vec<Buf> = std::iter::from_fn(|| pool.take()).collect();
            assert_eq!((taken.len(), pool.made()), (burst, burst));
            assert!(taken.iter().all(Buf::is_empty));
            taken.into_iter().for_each(|buf| pool.give(buf));
            assert_eq!((pool.made(), pool.in_use()), (free, 0));
        }
    }

    #[test]
    fn large_buffers_are_counted_on_their_own() {
        let mut pool = Pool::new(64, 1).with_large(4096, 2);
        let (small, large) = (pool.take().unwrap(), pool.take_large().unwrap());
        assert!(pool.take().is_none() && pool.large_left() == 1 && pool.in_use() == 2);
        pool.give(large);
        assert!(pool.take().is_none() && pool.large_left() == 2);
        pool.give(small);
        assert_eq!((pool.take().unwrap().space().len(), pool.take_large().unwrap().space().len()), (64, 4096));
    }
}
