//! Reads many sockets: what is whole becomes a batch, in the order in which it came.
use std::collections::HashMap;
use std::io;
use std::os::unix::io::{AsRawFd, RawFd};

use super::decode::{again, changes, kind, may_be_whole, pong, Kind};
use super::whole::Whole;
use crate::sys::epoll::{self, Epoll, Interest};

const READ_BYTES: usize = 1 << 16;
/// So many sockets are read in one call, which lets other threads of the interpreter run once.
const AT_ONCE: usize = 2048;
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

/// The same of a whole report or reading that is written as the last one but for counters.
pub const WHOLE: u32 = 5;
/// What held messages leave behind no more memory than this for the next ones.
const SPARE_BYTES: usize = 1 << 16;

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

impl Batch {
    fn clear(&mut self) {
        self.events.clear();
        self.lines.clear();
        self.values.clear();
    }

    fn push(&mut self, fd: RawFd, kind: u32, line: &[u8], values: &[f64]) {
        let (place, first) = (self.lines.len() as u64, self.values.len() as u64);
        let (length, count) = (line.len() as u64, values.len() as u64);
        self.lines.extend_from_slice(line);
        self.values.extend_from_slice(values);
        self.events.push(Event { fd, kind, line: place, length, first, count });
    }
}

/// The newest numbers of a session, until somebody asks for those of all sessions.
#[derive(Debug, Default)]
struct Held {
    /// `CHANGES` or `WHOLE`; None: there are none.
    kind: Option<u32>,
    line: Vec<u8>,
    values: Vec<f64>,
}

impl Held {
    fn pass_on(&mut self, fd: RawFd, batch: &mut Batch) {
        if let Some(kind) = self.kind.take() {
            batch.push(fd, kind, &self.line, &self.values);
            if self.line.capacity() > SPARE_BYTES {
                *self = Held::default();
            }
        }
    }
}

#[derive(Debug, Default)]
pub struct Connection {
    data: Vec<u8>,
    /// So many bytes have no end of a line in them.
    searched: usize,
    pub whole: Whole,
    /// The whole report or reading that Python has checked, if one was passed on alone; or that which it checks.
    known: Vec<u8>,
    /// So many lines that may be whole ones were passed on since `refer`.
    unchecked: usize,
    held: Held,
    /// It is named in `Reader::holding`.
    is_listed: bool,
    scratch: Vec<f64>,
    /// Numbers are held until somebody asks for those of all sessions.
    pub holds: bool,
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
    /// Who may have numbers that are held, each once.
    holding: Vec<RawFd>,
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
            holding: Vec::new(),
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

    /// Forgets a socket, before it is closed, and what is held of it.
    pub fn remove(&mut self, fd: RawFd) {
        if self.connections.remove(&fd).is_some() {
            // It may be closed already, and out of the set by that.
            let _ = self.epoll.remove(&fd.as_raw_fd());
        }
    }

    /// What messages of changes over a socket refer to from now on. `is_last`: it is the last whole one that was read.
    pub fn refer(&mut self, fd: RawFd, whole: Whole, is_last: bool) {
        if let Some(connection) = self.connections.get_mut(&fd) {
            connection.refer(whole, is_last);
        }
    }

    /// Whether numbers of a socket are held.
    pub fn is_holding(&self, fd: RawFd) -> bool {
        self.connections.get(&fd).map_or(false, |connection| connection.held.kind.is_some())
    }

    /// The numbers that are held, of all sockets, to a new batch.
    pub fn take_held(&mut self) {
        self.batch.clear();
        for fd in std::mem::take(&mut self.holding) {
            if let Some(connection) = self.connections.get_mut(&fd) {
                connection.is_listed = false;
                connection.held.pass_on(fd, &mut self.batch);
            }
        }
    }

    /// Reads what is there, once of each of some sockets, to a new batch; the number of sockets. With `holds` numbers
    /// are held, until `take_held`, or until something else comes over the same socket, which they then precede.
    pub fn poll(&mut self, holds: bool) -> io::Result<usize> {
        self.batch.clear();
        if self.next >= self.ready.len() {
            self.next = 0;
            self.epoll.wait(Some(0), &mut self.ready)?;
        }
        let first = self.next;
        while self.next < self.ready.len() && self.batch.events.len() < MOST_EVENTS {
            // It may be gone meanwhile, and another one may have its number: then there is nothing to read yet.
            let fd = self.ready[self.next].token as RawFd;
            self.next += 1;
            self.read(fd, holds);
        }
        Ok(self.next - first)
    }

    fn read(&mut self, fd: RawFd, holds: bool) {
        let connection = match self.connections.get_mut(&fd) {
            Some(connection) => connection,
            None => return,
        };
        // SAFETY: the buffer is ours and as long as is said; the kernel checks the descriptor.
        let got = unsafe { libc::recv(fd, self.buffer.as_mut_ptr().cast(), self.buffer.len(), libc::MSG_DONTWAIT) };
        if got > 0 {
            connection.holds = holds;
            connection.give(&self.buffer[..got as usize], fd, self.longest, &mut self.batch);
            if connection.held.kind.is_some() && !std::mem::replace(&mut connection.is_listed, true) {
                self.holding.push(fd);
            }
            return;
        }
        let error = io::Error::last_os_error();
        if got < 0 && matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) {
            return;
        }
        let kind = if got == 0 { END } else { FAILED };
        let count = if got == 0 { 0 } else { error.raw_os_error().unwrap_or(0) as u64 };
        connection.held.pass_on(fd, &mut self.batch);
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
            if now != Kind::Other && now == before && self.held.kind.take().is_none() {
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

    fn refer(&mut self, whole: Whole, is_last: bool) {
        self.whole = whole;
        if self.unchecked != 1 || !is_last {
            self.known.clear();
        }
        self.unchecked = 0;
    }

    fn line(&mut self, fd: RawFd, line: &[u8], now: Kind, batch: &mut Batch) {
        if now == Kind::Other {
            if let Some(seq) = pong(line) {
                self.held.pass_on(fd, batch);
                let place = batch.lines.len() as u64;
                batch.events.push(Event { fd, kind: PONG, line: place, length: 0, first: seq, count: 0 });
                return;
            }
            if !may_be_whole(line) {
                self.pass_on(fd, line, batch);
            } else if !self.whole_again(fd, line, batch) {
                // Python says what changes refer to once it has checked it.
                self.whole = Whole::Unknown;
                self.unchecked += 1;
                self.known.clear();
                self.known.extend_from_slice(line);
                self.pass_on(fd, line, batch);
            }
            return;
        }
        let mut values = std::mem::take(&mut self.scratch);
        values.clear();
        if changes(line, &self.whole, &mut values).is_some() {
            self.numbers(fd, CHANGES, line, &values, batch);
        } else {
            self.pass_on(fd, line, batch);
        }
        self.scratch = values;
    }

    fn pass_on(&mut self, fd: RawFd, line: &[u8], batch: &mut Batch) {
        self.held.pass_on(fd, batch);
        batch.push(fd, LINE, line, &[]);
    }

    /// Takes a whole report or reading that differs from the one before in counters alone; false: it does not.
    fn whole_again(&mut self, fd: RawFd, line: &[u8], batch: &mut Batch) -> bool {
        if self.known.is_empty() || self.unchecked > 0 {
            return false;
        }
        let mut values = std::mem::take(&mut self.scratch);
        values.clear();
        let is_again = again(line, &self.known, &self.whole, &mut values).is_some();
        if is_again {
            if let Whole::Report(whole) = &mut self.whole {
                whole.values.clear();
                whole.values.extend_from_slice(&values[1..]);
            }
            self.known.clear();
            self.known.extend_from_slice(line);
            self.numbers(fd, WHOLE, line, &values, batch);
        }
        self.scratch = values;
        is_again
    }

    fn numbers(&mut self, fd: RawFd, kind: u32, line: &[u8], values: &[f64], batch: &mut Batch) {
        if !self.holds {
            batch.push(fd, kind, line, values);
            return;
        }
        // What changes refer to is told before them, and what referred to the one before comes first.
        if self.held.kind == Some(WHOLE) || kind == WHOLE {
            self.held.pass_on(fd, batch);
        }
        self.held.kind = Some(kind);
        self.held.line.clear();
        self.held.line.extend_from_slice(line);
        self.held.values.clear();
        self.held.values.extend_from_slice(values);
    }
}
