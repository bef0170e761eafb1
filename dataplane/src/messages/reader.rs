//! Reads many sockets: what is whole becomes a batch, in the order in which it came.
use std::collections::HashMap;
use std::io;
use std::os::unix::io::{AsRawFd, RawFd};

use super::decode::{changes, kind, may_be_whole, pong, Kind};
use super::whole::Whole;
use crate::sys::epoll::{self, Epoll, Interest};

const READ_BYTES: usize = 1 << 16;
const AT_ONCE: usize = 256;
/// With so many events in a batch no further socket is read to it, so that others than we have their turn.
const MOST_EVENTS: usize = 256;

/// A line for Python; its place is in `Batch::lines`.
pub const LINE: u32 = 0;
/// The end of the stream.
pub const END: u32 = 1;
/// An error of the socket: `count` is its number.
pub const FAILED: u32 = 2;
/// `first` is the number of a pong.
pub const PONG: u32 = 3;
/// Numbers of a message of changes; its line is there as well.
pub const CHANGES: u32 = 4;

/// Something that came over one socket. For ctypes.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    pub fd: i32,
    pub kind: u32,
    /// Where its line is.
    pub line: u64,
    pub length: u64,
    /// Where its numbers are.
    pub first: u64,
    pub count: u64,
}

/// What came, in order.
#[derive(Debug, Default)]
pub struct Batch {
    pub events: Vec<Event>,
    pub lines: Vec<u8>,
    pub values: Vec<f64>,
}

#[derive(Debug, Default)]
pub struct Connection {
    data: Vec<u8>,
    /// So many bytes have no end of a line in them.
    searched: usize,
    pub whole: Whole,
}

/// All sockets.
pub struct Reader {
    epoll: Epoll,
    connections: HashMap<RawFd, Connection>,
    ready: Vec<epoll::Event>,
    /// The first of `ready` that was not read yet. All are, before they are waited for again: so nobody starves.
    next: usize,
    buffer: Vec<u8>,
    longest: usize,
    pub batch: Batch,
}

impl Reader {
    /// Without sockets; lines are cut just above `longest` bytes, to be refused.
    pub fn new(longest: usize) -> io::Result<Reader> {
        Ok(Reader {
            epoll: Epoll::new(AT_ONCE)?,
            connections: HashMap::new(),
            ready: Vec::new(),
            next: 0,
            buffer: vec![0; READ_BYTES],
            longest,
            batch: Batch::default(),
        })
    }

    /// Readable while something is to be read.
    pub fn descriptor(&self) -> RawFd {
        self.epoll.descriptor()
    }

    /// Reads a socket from now on; `data` is what was read of it before.
    pub fn add(&mut self, fd: RawFd, data: &[u8]) -> bool {
        let connection = Connection { data: data.to_vec(), ..Connection::default() };
        self.connections.insert(fd, connection);
        self.epoll.add(&fd.as_raw_fd(), fd as u64, Interest::READ).is_ok()
    }

    /// Forgets a socket, before it is closed.
    pub fn remove(&mut self, fd: RawFd) {
        if self.connections.remove(&fd).is_some() {
            // It may be closed already, and out of the set by that.
            let _ = self.epoll.remove(&fd.as_raw_fd());
        }
    }

    /// What messages of changes over a socket refer to from now on.
    pub fn refer(&mut self, fd: RawFd, whole: Whole) {
        if let Some(connection) = self.connections.get_mut(&fd) {
            connection.whole = whole;
        }
    }

    /// Reads what is there, once of each of some sockets, to a new batch; the number of sockets.
    pub fn poll(&mut self) -> io::Result<usize> {
        self.batch.events.clear();
        self.batch.lines.clear();
        self.batch.values.clear();
        if self.next >= self.ready.len() {
            self.next = 0;
            self.epoll.wait(Some(0), &mut self.ready)?;
        }
        let first = self.next;
        while self.next < self.ready.len() && self.batch.events.len() < MOST_EVENTS {
            // It may be gone meanwhile, and another one may have its number: then there is nothing to read yet.
            let fd = self.ready[self.next].token as RawFd;
            self.next += 1;
            self.read(fd);
        }
        Ok(self.next - first)
    }

    fn read(&mut self, fd: RawFd) {
        let connection = match self.connections.get_mut(&fd) {
            Some(connection) => connection,
            None => return,
        };
        // SAFETY: the buffer is ours and as long as is said; the kernel checks the descriptor.
        let got = unsafe { libc::recv(fd, self.buffer.as_mut_ptr().cast(), self.buffer.len(), libc::MSG_DONTWAIT) };
        if got > 0 {
            connection.give(&self.buffer[..got as usize], fd, self.longest, &mut self.batch);
            return;
        }
        let error = io::Error::last_os_error();
        if got < 0 && matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) {
            return;
        }
        let kind = if got == 0 { END } else { FAILED };
        let count = if got == 0 { 0 } else { error.raw_os_error().unwrap_or(0) as u64 };
        self.batch.events.push(Event { fd, kind, line: 0, length: 0, first: 0, count });
        self.remove(fd);
    }
}

impl Connection {
    /// The lines that are whole now. Of messages of changes that follow each other the newest is enough: each says
    /// all that differs from the whole report.
    pub fn give(&mut self, more: &[u8], fd: RawFd, longest: usize, batch: &mut Batch) {
        let mut before = Kind::Other;
        let mut from = 0;
        let mut data = std::mem::take(&mut self.data);
        data.extend_from_slice(more);
        while let Some((end, next)) = self.end_of_line(&data, from, longest) {
            let line = &data[from..end];
            let now = kind(line);
            if now != Kind::Other && now == before {
                batch.events.pop();
            }
            self.line(fd, line, now, batch);
            before = now;
            from = next;
        }
        self.data = data;
        self.data.drain(..from);
    }

    /// Where a line ends, and where the next one begins; one that is too long is cut just above the bound.
    fn end_of_line(&mut self, data: &[u8], from: usize, longest: usize) -> Option<(usize, usize)> {
        let rest = &data[(from + self.searched).min(data.len())..];
        match rest.iter().position(|&c| c == b'\n') {
            Some(place) => {
                let end = from + self.searched + place;
                self.searched = 0;
                Some((end, end + 1))
            }
            None if data.len() - from > longest => {
                self.searched = 0;
                let end = from + longest + 1;
                Some((end, (end + 1).min(data.len())))
            }
            None => {
                self.searched = data.len() - from;
                None
            }
        }
    }

    fn line(&mut self, fd: RawFd, line: &[u8], now: Kind, batch: &mut Batch) {
        let place = batch.lines.len() as u64;
        let mut event = Event { fd, kind: LINE, line: place, length: line.len() as u64, first: 0, count: 0 };
        if now == Kind::Other {
            if let Some(seq) = pong(line) {
                batch.events.push(Event { kind: PONG, length: 0, first: seq, ..event });
                return;
            }
            if may_be_whole(line) {
                // Python says what changes refer to once it has checked it.
                self.whole = Whole::Unknown;
            }
        } else {
            let first = batch.values.len();
            if changes(line, &self.whole, &mut batch.values).is_some() {
                event.kind = CHANGES;
                event.first = first as u64;
                event.count = (batch.values.len() - first) as u64;
            } else {
                batch.values.truncate(first);
            }
        }
        batch.lines.extend_from_slice(line);
        batch.events.push(event);
    }
}
