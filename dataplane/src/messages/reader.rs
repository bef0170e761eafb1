//! Reads many sockets: what is whole comes out in the order in which it came, and numbers when they are asked for.
use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::unix::io::{AsRawFd, RawFd};

use super::decode::{again, changes, kind, may_be_whole, pong, Kind};
use super::pings::Pings;
use super::whole::Whole;
use crate::sys::clock::monotonic_ns;
use crate::sys::epoll::{self, Epoll, Interest};

const READ_BYTES: usize = 1 << 16;
/// So many sockets are looked for at once.
const AT_ONCE: usize = 2048;
/// With more than this that nobody has taken nothing is read: senders wait then.
const MOST_EVENTS: usize = 8192;
const MOST_BYTES: usize = 16 << 20;
/// A socket of which so many events are to be taken is not read: who talks a lot keeps nobody else waiting.
const MOST_OF_ONE: usize = 256;
/// What is watched, but not read.
const WATCHED: u64 = 0;
/// What held messages and batches leave behind no more memory than this for the next ones.
const SPARE_BYTES: usize = 1 << 16;

/// A line for Python; its place is in `Batch::lines`, and `count` says how many lines came over its socket so far that
/// may be whole reports or readings.
pub const LINE: u64 = 0;
/// The end of the stream.
pub const END: u64 = 1;
/// An error of the socket: `count` is its number.
pub const FAILED: u64 = 2;
/// `first` is the number of a pong; of those that are kept (`Reader::take_pongs`) how many nanoseconds it took.
pub const PONG: u64 = 3;
/// Numbers of a message of changes; of a report its line is there as well, and of a reading the numbers say all.
pub const CHANGES: u64 = 4;
/// The same of a whole report that is written as the last one but for counters.
pub const WHOLE: u64 = 5;

/// Something that came over one socket. For ctypes.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// What `Reader::add` gave.
    pub id: u64,
    pub kind: u64,
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
        if self.lines.capacity() > MOST_BYTES {
            self.lines = Vec::new();
        }
    }

    fn push(&mut self, id: u64, kind: u64, line: &[u8], values: &[f64]) {
        let (place, first) = (self.lines.len() as u64, self.values.len() as u64);
        let (length, count) = (line.len() as u64, values.len() as u64);
        self.lines.extend_from_slice(line);
        self.values.extend_from_slice(values);
        self.events.push(Event { id, kind, line: place, length, first, count });
    }

    /// Something that has neither a line nor numbers.
    fn push_bare(&mut self, id: u64, kind: u64, first: u64, count: u64) {
        self.events.push(Event { id, kind, line: 0, length: 0, first, count });
    }

    /// Appends an event of another batch.
    fn copy(&mut self, event: &Event, from: &Batch) {
        let mut new = *event;
        new.line = self.lines.len() as u64;
        self.lines.extend_from_slice(&from.lines[event.line as usize..(event.line + event.length) as usize]);
        if event.kind >= CHANGES {
            new.first = self.values.len() as u64;
            self.values.extend_from_slice(&from.values[event.first as usize..(event.first + event.count) as usize]);
        }
        self.events.push(new);
    }
}

/// A line and its numbers, until somebody asks for those of all sessions.
#[derive(Debug, Default)]
struct Held {
    is_there: bool,
    line: Vec<u8>,
    values: Vec<f64>,
}

impl Held {
    fn keep(&mut self, line: &[u8], values: &[f64]) {
        self.is_there = true;
        self.line.clear();
        self.line.extend_from_slice(line);
        self.values.clear();
        self.values.extend_from_slice(values);
    }

    fn pass_on(&mut self, id: u64, kind: u64, batch: &mut Batch) {
        if std::mem::take(&mut self.is_there) {
            batch.push(id, kind, &self.line, &self.values);
            if self.line.capacity() > SPARE_BYTES {
                *self = Held::default();
            }
        }
    }
}

#[derive(Debug, Default)]
pub struct Connection {
    fd: RawFd,
    data: Vec<u8>,
    /// So many bytes have no end of a line in them.
    searched: usize,
    pub whole: Whole,
    /// The whole report or reading that Python has checked, if one was passed on alone; or that which it checks.
    known: Vec<u8>,
    /// So many lines that may be whole ones were passed on.
    wholes: u64,
    /// The newest whole report that differs from the one before in counters alone, and the newest changes since.
    held: [Held; 2],
    /// It is named in `Reader::holding`.
    is_listed: bool,
    /// Of so many events, counted from the first one ever, the last one is of this socket.
    told: u64,
    /// So many of its events are to be taken.
    waiting: usize,
    pings: Pings,
    scratch: Vec<f64>,
}

/// All sockets.
pub struct Reader {
    epoll: Epoll,
    connections: HashMap<u64, Connection>,
    last_id: u64,
    ready: Vec<epoll::Event>,
    /// The first of `ready` that was not read yet. All are, before they are waited for again: so nobody starves.
    next: usize,
    buffer: Vec<u8>,
    longest: usize,
    /// Who may have numbers that are held, each once.
    holding: Vec<u64>,
    /// Who is to be pinged, in order.
    to_ping: VecDeque<u64>,
    /// Who may have answered a ping, each once.
    ponged: Vec<u64>,
    /// What came and was not taken, but for the first `taken` events.
    pending: Batch,
    taken: usize,
    /// Events before those in `pending`.
    before: u64,
    /// All that came before this was read; and when those of `ready` were looked for.
    until_ns: u64,
    looked_ns: u64,
    /// Sockets that were read since `looked_ns` was the end of a round.
    count: usize,
    /// `until_ns` when everything that was read had been taken.
    taken_until_ns: u64,
}

impl Reader {
    /// Without sockets; lines are cut just above `longest` bytes, to be refused.
    pub fn new(longest: usize) -> io::Result<Reader> {
        let now_ns = monotonic_ns();
        Ok(Reader {
            epoll: Epoll::new(AT_ONCE)?,
            connections: HashMap::new(),
            last_id: 0,
            ready: Vec::new(),
            next: 0,
            buffer: vec![0; READ_BYTES],
            longest,
            holding: Vec::new(),
            to_ping: VecDeque::new(),
            ponged: Vec::new(),
            pending: Batch::default(),
            taken: 0,
            before: 0,
            until_ns: now_ns,
            looked_ns: now_ns,
            count: 0,
            taken_until_ns: now_ns,
        })
    }

    /// Readable while something is to be read.
    pub fn descriptor(&self) -> RawFd {
        self.epoll.descriptor()
    }

    /// Has the descriptor be readable while another one is; nothing is read of that.
    pub fn watch(&self, descriptor: &impl AsRawFd) -> io::Result<()> {
        self.epoll.add(descriptor, WATCHED, Interest::READ)
    }

    /// Reads a socket from now on; `data` is what was read of it before. What names it in events, never used again.
    pub fn add(&mut self, fd: RawFd, data: &[u8]) -> io::Result<u64> {
        let id = self.last_id + 1;
        self.epoll.add(&fd.as_raw_fd(), id, Interest::READ)?;
        self.last_id = id;
        self.connections.insert(id, Connection { fd, data: data.to_vec(), ..Connection::default() });
        Ok(id)
    }

    /// Forgets a socket, before it is closed, and what is held of it.
    pub fn remove(&mut self, id: u64) {
        if let Some(connection) = self.connections.remove(&id) {
            // It may be closed already, and out of the set by that.
            let _ = self.epoll.remove(&connection.fd);
        }
    }

    /// What messages of changes over a socket refer to from now on, as far as Python has read: `wholes` is of the last
    /// line. If others came since, it will say so of those. `is_last`: it is that line itself.
    pub fn refer(&mut self, id: u64, whole: Whole, wholes: u64, is_last: bool) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.refer(whole, wholes, is_last);
        }
    }

    /// Whether something of a socket was read and is to be taken, numbers or anything else.
    pub fn is_holding(&self, id: u64) -> bool {
        let taken = self.before + self.taken as u64;
        let is_there = |connection: &Connection| connection.is_holding() || connection.pings.has_answer();
        self.connections.get(&id).map_or(false, |connection| is_there(connection) || connection.told > taken)
    }

    /// Has a socket pinged; false if it is not read, or if its last ping was not sent yet: `settle` it then.
    pub fn ping(&mut self, id: u64, seq: u64) -> bool {
        let is_asked = self.connections.get_mut(&id).map_or(false, |connection| connection.pings.ask(seq));
        if is_asked {
            self.to_ping.push_back(id);
        }
        is_asked
    }

    /// Sends pings, at most so many; whether others are to be sent.
    pub fn send_pings(&mut self, most: usize) -> bool {
        for _ in 0..most.min(self.to_ping.len()) {
            let connection = self.to_ping.pop_front().and_then(|id| self.connections.get_mut(&id));
            if let Some(connection) = connection {
                connection.pings.send(connection.fd, monotonic_ns());
            }
        }
        self.has_pings()
    }

    /// Whether pings are to be sent.
    pub fn has_pings(&self) -> bool {
        !self.to_ping.is_empty()
    }

    /// Before anybody else sends over a socket: sends its ping, and gives what there was no room for.
    pub fn settle(&mut self, id: u64) -> Vec<u8> {
        match self.connections.get_mut(&id) {
            Some(connection) => connection.pings.settle(connection.fd, monotonic_ns()),
            None => Vec::new(),
        }
    }

    /// Replaces a batch by the answers to pings that were kept, the newest of each socket.
    pub fn take_pongs(&mut self, into: &mut Batch) {
        into.clear();
        for id in self.ponged.drain(..) {
            let answer = self.connections.get_mut(&id).and_then(|connection| connection.pings.take_answer());
            if let Some(round_trip_ns) = answer {
                into.push_bare(id, PONG, round_trip_ns, 0);
            }
        }
    }

    /// Replaces a batch by the next events, at most so many; whether there are more.
    pub fn take(&mut self, most: usize, into: &mut Batch) -> bool {
        into.clear();
        let rest = self.pending.events.len() - self.taken;
        for event in &self.pending.events[self.taken..self.taken + rest.min(most)] {
            if let Some(connection) = self.connections.get_mut(&event.id) {
                connection.waiting = connection.waiting.saturating_sub(1);
            }
        }
        if self.taken == 0 && rest <= most {
            std::mem::swap(&mut self.pending, into);
            self.before += rest as u64;
            return false;
        }
        for event in &self.pending.events[self.taken..self.taken + rest.min(most)] {
            into.copy(event, &self.pending);
        }
        self.taken += rest.min(most);
        if rest > most {
            return true;
        }
        self.before += self.pending.events.len() as u64;
        self.pending.clear();
        self.taken = 0;
        false
    }

    /// Replaces a batch by the numbers that are held, of all sockets of which nothing else is to be taken first.
    pub fn take_held(&mut self, into: &mut Batch) {
        into.clear();
        let taken = self.before + self.taken as u64;
        let connections = &mut self.connections;
        self.holding.retain(|&id| match connections.get_mut(&id) {
            Some(connection) if connection.told <= taken => {
                connection.is_listed = false;
                connection.pass_on_held(id, into);
                false
            }
            Some(_) => true,
            None => false,
        });
    }

    /// Whether events are to be taken.
    pub fn has_events(&self) -> bool {
        self.taken < self.pending.events.len()
    }

    /// Whether so much is to be taken that nothing more should be read.
    pub fn is_full(&self) -> bool {
        self.pending.events.len() >= MOST_EVENTS || self.pending.lines.len() >= MOST_BYTES
    }

    /// CLOCK_MONOTONIC: all that came before was read, and taken but for held numbers.
    pub fn taken_until_ns(&mut self) -> u64 {
        if !self.has_events() {
            if self.next >= self.ready.len() && self.look().is_ok() && self.ready.is_empty() {
                self.until_ns = self.looked_ns;
            }
            self.taken_until_ns = self.until_ns;
        }
        self.taken_until_ns
    }

    /// Looks for sockets that are ready, once all those of last time were read.
    fn look(&mut self) -> io::Result<()> {
        let is_complete = self.ready.len() < AT_ONCE || self.count >= self.connections.len();
        if is_complete {
            self.until_ns = self.looked_ns;
            self.looked_ns = monotonic_ns();
            self.count = 0;
        }
        self.next = 0;
        self.epoll.wait(Some(0), &mut self.ready)
    }

    /// Reads what is there, once of each of some sockets, at most so many; whether others are ready.
    pub fn poll(&mut self, most: usize) -> io::Result<bool> {
        if self.next >= self.ready.len() {
            self.look()?;
        }
        for _ in 0..most.min(self.ready.len() - self.next) {
            // It may be gone meanwhile; names are not used again.
            let id = self.ready[self.next].token;
            self.next += 1;
            self.count += usize::from(id != WATCHED);
            self.read(id);
        }
        Ok(self.next < self.ready.len())
    }

    fn read(&mut self, id: u64) {
        let connection = match self.connections.get_mut(&id) {
            Some(connection) if connection.waiting < MOST_OF_ONE => connection,
            _ => return,
        };
        let (buffer, fd) = (&mut self.buffer, connection.fd);
        // SAFETY: the buffer is ours and as long as is said; the kernel checks the descriptor.
        let got = unsafe { libc::recv(fd, buffer.as_mut_ptr().cast(), buffer.len(), libc::MSG_DONTWAIT) };
        let error = io::Error::last_os_error();
        let known = self.pending.events.len();
        let had_answer = connection.pings.has_answer();
        if got > 0 {
            connection.give(&self.buffer[..got as usize], id, self.longest, &mut self.pending);
            if connection.is_holding() && !std::mem::replace(&mut connection.is_listed, true) {
                self.holding.push(id);
            }
            if connection.pings.has_answer() && !had_answer {
                self.ponged.push(id);
            }
        } else if got == 0 || !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) {
            connection.pass_on_held(id, &mut self.pending);
            let (kind, count) = if got == 0 { (END, 0) } else { (FAILED, error.raw_os_error().unwrap_or(0) as u64) };
            self.pending.push_bare(id, kind, 0, count);
            // What was read of it is still to be taken.
            let _ = self.epoll.remove(&fd);
        }
        if self.pending.events.len() > known {
            connection.told = self.before + self.pending.events.len() as u64;
            connection.waiting += self.pending.events.len() - known;
        }
    }
}

impl Connection {
    fn is_holding(&self) -> bool {
        self.held.iter().any(|held| held.is_there)
    }

    /// What changes refer to is told before them.
    fn pass_on_held(&mut self, id: u64, batch: &mut Batch) {
        let [whole, changes] = &mut self.held;
        whole.pass_on(id, WHOLE, batch);
        changes.pass_on(id, CHANGES, batch);
    }

    /// The lines that are whole now. Of messages of changes that follow each other the newest is enough: each says
    /// all that differs from the whole report.
    pub fn give(&mut self, more: &[u8], id: u64, longest: usize, batch: &mut Batch) {
        let mut before = Kind::Other;
        let mut from = 0;
        let mut data = std::mem::take(&mut self.data);
        data.extend_from_slice(more);
        while let Some((end, next)) = self.end_of_line(&data, from, longest) {
            let line = &data[from..end];
            let now = kind(line);
            if now != Kind::Other && now == before && !std::mem::take(&mut self.held[1].is_there) {
                batch.events.pop();
            }
            self.line(id, line, now, batch);
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

    fn refer(&mut self, whole: Whole, wholes: u64, is_last: bool) {
        if wholes != self.wholes {
            return;
        }
        self.whole = whole;
        if !is_last {
            self.known.clear();
        }
    }

    fn line(&mut self, id: u64, line: &[u8], now: Kind, batch: &mut Batch) {
        if now == Kind::Other {
            let found = pong(line);
            if found.map_or(false, |pong| self.pings.answered(pong, monotonic_ns())) {
                return;
            }
            if let Some(pong) = found.filter(|pong| pong.is_bare) {
                // It says nothing that numbers would have to precede.
                batch.push_bare(id, PONG, pong.seq, 0);
            } else if let Some(pong) = found {
                self.pings.passed_on(pong);
                self.pass_on(id, line, batch);
            } else if !may_be_whole(line) {
                self.pass_on(id, line, batch);
            } else if !self.whole_again(line) {
                // Python says what changes refer to once it has checked it.
                self.whole = Whole::Unknown;
                self.wholes += 1;
                self.known.clear();
                self.known.extend_from_slice(line);
                self.pass_on(id, line, batch);
            }
            return;
        }
        let mut values = std::mem::take(&mut self.scratch);
        values.clear();
        if changes(line, &self.whole, &mut values).is_some() {
            self.held[1].keep(if now == Kind::RadioChanges { b"" } else { line }, &values);
        } else {
            self.pass_on(id, line, batch);
        }
        self.scratch = values;
    }

    fn pass_on(&mut self, id: u64, line: &[u8], batch: &mut Batch) {
        self.pass_on_held(id, batch);
        batch.push(id, LINE, line, &[]);
        if let Some(event) = batch.events.last_mut() {
            event.count = self.wholes;
        }
    }

    /// Takes a whole report or reading that differs from the one before in counters alone; false: it does not.
    fn whole_again(&mut self, line: &[u8]) -> bool {
        if self.known.is_empty() {
            return false;
        }
        let mut values = std::mem::take(&mut self.scratch);
        values.clear();
        let is_again = again(line, &self.known, &self.whole, &mut values).is_some();
        if is_again {
            self.known.clear();
            self.known.extend_from_slice(line);
            if let Whole::Report(whole) = &mut self.whole {
                whole.values.clear();
                whole.values.extend_from_slice(&values[1..]);
                // Changes before it referred to another one, and are of before.
                self.held[1].is_there = false;
                self.held[0].keep(line, &values);
            } else {
                // Of readings nothing but numbers is told; neighbours are as they were.
                self.held[1].keep(b"", &values);
            }
        }
        self.scratch = values;
        is_again
    }
}
