//! Waits for the connections of the slicer, and reads, translates and writes those messages that need nobody else.
//!
//! Connections are known by descriptor. What epoll says of others, or what Python must do, comes back as events.
use std::collections::VecDeque;

use super::layout::{Event, Line, Sent, Switch, Tenant, GUESTS, LEFT, PACED, WORK};
use super::messages::{flow_mod, packet_in, u16_at, u32_at, ADD, FLOW_MOD, PACKET_IN};
use super::spin::Spin;

/// The longest message; there is always room for one more.
const MESSAGE: u64 = 1 << 16;
/// As many messages of a guest are remembered.
const REMEMBERED: usize = 8192;
/// Ids of messages that were sent on here; when they are used up they begin anew.
pub const FIRST_XID: u32 = 0x4000_0000;
const LAST_XID: u32 = 0x7FFF_FFFF;
/// Looked at together.
const BATCH: usize = 64;
/// Descriptors above are not taken.
const MOST_LINES: usize = 1 << 16;

struct Entry {
    line: *mut Line,
    out: Vec<u8>,
    sent: VecDeque<Sent>,
}

enum Next {
    Done,
    Slow,
    Paced,
}

/// All connections of one slicer.
#[derive(Default)]
pub struct Relay {
    entries: Vec<Option<Entry>>,
    /// Descriptors with something to send.
    waiting: Vec<usize>,
    scratch: Vec<u8>,
    spin: Spin,
}

/// CLOCK_MONOTONIC, as `time.monotonic()`.
fn now_s() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a plain system call into a local.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

fn has_spare_processor() -> bool {
    // SAFETY: the set is plain data, and the kernel writes at most its size.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        let size = std::mem::size_of::<libc::cpu_set_t>();
        libc::sched_getaffinity(0, size, &mut set) == 0 && libc::CPU_COUNT(&set) > 1
    }
}

/// Events for Python, as many as there is room for.
pub struct Events<'a> {
    room: &'a mut [Event],
    count: usize,
}

impl<'a> Events<'a> {
    pub fn new(room: &'a mut [Event]) -> Events<'a> {
        Events { room, count: 0 }
    }

    pub fn count(&self) -> usize {
        self.count
    }

    fn push(&mut self, fd: i32, mask: u32, what: u32) {
        if let Some(place) = self.room.get_mut(self.count) {
            *place = Event { fd, mask, what };
            self.count += 1;
        }
    }
}

impl Relay {
    /// Takes a connection. Returns whether its descriptor is one.
    ///
    /// # Safety
    /// `line`, its buffer, and all that it points to stay where they are until `remove`.
    pub unsafe fn add(&mut self, line: *mut Line) -> bool {
        let fd = match usize::try_from((*line).fd) {
            Ok(fd) if fd < MOST_LINES => fd,
            _ => return false,
        };
        if self.entries.len() <= fd {
            self.entries.resize_with(fd + 1, || None);
        }
        self.entries[fd] = Some(Entry { line, out: Vec::new(), sent: VecDeque::new() });
        true
    }

    /// Forgets a connection, and what it sent.
    pub fn remove(&mut self, fd: i32) {
        if let Some(entry) = usize::try_from(fd).ok().and_then(|fd| self.entries.get_mut(fd)) {
            *entry = None;
        }
    }

    fn entry(&self, fd: i32) -> Option<&Entry> {
        self.entries.get(usize::try_from(fd).ok()?)?.as_ref()
    }

    /// The connection's entry, if it is known and can be written.
    // SAFETY: `line` is null or was added and not removed, so it and what it points to are there.
    unsafe fn writable(&self, line: *mut Line) -> Option<usize> {
        if line.is_null() || (*line).writable == 0 {
            return None;
        }
        self.entry((*line).fd).filter(|entry| entry.line == line).map(|_| (*line).fd as usize)
    }

    /// How much could not be sent.
    pub fn left_bytes(&self, fd: i32) -> u64 {
        self.entry(fd).map_or(0, |entry| entry.out.len() as u64)
    }

    /// What could not be sent, once.
    pub fn left(&mut self, fd: i32) -> Vec<u8> {
        let entry = usize::try_from(fd).ok().and_then(|fd| self.entries.get_mut(fd)?.as_mut());
        entry.map_or_else(Vec::new, |entry| std::mem::take(&mut entry.out))
    }

    /// What a guest sent that went on under an id; forgotten with this.
    pub fn asked(&mut self, fd: i32, xid: u32) -> Option<Sent> {
        let sent = &mut self.entries.get_mut(usize::try_from(fd).ok()?)?.as_mut()?.sent;
        // The newest is last, and the ids rise to it.
        let newest = sent.back()?.xid;
        let place = sent.partition_point(|one| newest.wrapping_sub(one.xid) > newest.wrapping_sub(xid));
        if sent.get(place)?.xid != xid {
            return None;
        }
        sent.remove(place)
    }

    /// Waits until there is something for Python or `timeout_s` (negative: for ever) is over.
    ///
    /// # Safety
    /// As `add`, for all connections.
    pub unsafe fn poll(&mut self, epoll: i32, timeout_s: f64, events: &mut Events) {
        let deadline_s = if timeout_s < 0.0 { f64::INFINITY } else { now_s() + timeout_s };
        let mut found = [libc::epoll_event { events: 0, u64: 0 }; BATCH];
        let mut wait_ms = if timeout_s == 0.0 { 0 } else { self.wait_ms(deadline_s) };
        loop {
            let count = libc::epoll_wait(epoll, found.as_mut_ptr(), BATCH as i32, wait_ms);
            if count < 0 {
                // A signal: Python looks after it.
                return;
            }
            if count > 0 && self.look(&found[..count as usize], events) {
                self.spin.came(now_s());
            }
            if events.count > 0 || (count == 0 && now_s() >= deadline_s) || timeout_s == 0.0 {
                return;
            }
            wait_ms = self.wait_ms(deadline_s);
        }
    }

    /// How long to sleep: not at all while it is worth to look again.
    fn wait_ms(&mut self, deadline_s: f64) -> i32 {
        let now_s = now_s();
        if self.spin.again(now_s, has_spare_processor) {
            // SAFETY: a plain system call.
            unsafe { libc::sched_yield() };
            return 0;
        }
        if deadline_s == f64::INFINITY {
            return -1;
        }
        ((deadline_s - now_s).max(0.0) * 1e3).ceil().min(3.6e6) as i32
    }

    /// Whether messages came that needed nobody else.
    // SAFETY: as `poll`: all connections that were added and not removed are where they were.
    unsafe fn look(&mut self, found: &[libc::epoll_event], events: &mut Events) -> bool {
        let mut came = false;
        for one in found {
            let (fd, mask) = (one.u64 as u32 as i32, one.events);
            if mask == libc::EPOLLIN as u32 && self.entry(fd).map_or(false, |entry| (*entry.line).open != 0) {
                came |= self.read(fd, events);
            } else {
                events.push(fd, mask, 0);
            }
        }
        came
    }

    /// Reads once and handles what came. An end or an error is for Python, which reads it again.
    // SAFETY: as `poll`. The bounds of the buffer, which Python writes too, are compared before it is touched.
    unsafe fn read(&mut self, fd: i32, events: &mut Events) -> bool {
        let line = match self.entry(fd) {
            Some(entry) => entry.line,
            None => return false,
        };
        let one = &mut *line;
        if one.start > one.end || one.end > one.room {
            return false;
        }
        if one.room - one.end < MESSAGE {
            std::ptr::copy(one.buffer.add(one.start as usize), one.buffer, (one.end - one.start) as usize);
            one.end -= one.start;
            one.start = 0;
        }
        let room = (one.room - one.end) as usize;
        let got = libc::recv(fd, one.buffer.add(one.end as usize).cast(), room, libc::MSG_DONTWAIT);
        if got <= 0 {
            events.push(fd, libc::EPOLLIN as u32, 0);
            return false;
        }
        one.end += got as u64;
        self.step(line, events)
    }

    /// Handles the messages in a connection's buffer up to the first that is for Python. Returns whether there was one
    /// that is not.
    ///
    /// # Safety
    /// As `add`.
    pub unsafe fn step(&mut self, line: *mut Line, events: &mut Events) -> bool {
        let now_s = now_s();
        (*line).heard_s = now_s;
        let before = (*line).start;
        let next = self.messages(line, now_s);
        let came = (*line).start != before;
        if (*line).start == (*line).end {
            (*line).start = 0;
            (*line).end = 0;
        }
        self.flush(events);
        match next {
            Next::Done => {}
            Next::Slow => events.push((*line).fd, 0, WORK),
            Next::Paced => events.push((*line).fd, 0, PACED),
        }
        came
    }

    // SAFETY: as `step`. The bounds of the buffer are compared before each message is looked at.
    unsafe fn messages(&mut self, line: *mut Line, now_s: f64) -> Next {
        while (*line).open != 0 {
            let (start, end) = ((*line).start, (*line).end);
            if start > end || end > (*line).room {
                return Next::Slow;
            }
            let have = std::slice::from_raw_parts((*line).buffer.add(start as usize), (end - start) as usize);
            if have.len() < 8 {
                break;
            }
            let length = usize::from(u16_at(have, 2));
            if length < 8 {
                return Next::Slow;
            }
            let message = match have.get(..length) {
                Some(message) => message,
                None => break,
            };
            let next = if (*line).tenant.is_null() {
                self.switch_said(line, message, now_s)
            } else {
                self.guest_said(line, message, now_s)
            };
            match next {
                Next::Slow => return Next::Slow,
                Next::Done => (*line).start += length as u64,
                Next::Paced => {
                    (*line).start += length as u64;
                    return Next::Paced;
                }
            }
        }
        Next::Done
    }

    // SAFETY: as `step`; `message` is in the buffer of `line`, which nothing moves meanwhile.
    unsafe fn switch_said(&mut self, line: *mut Line, message: &[u8], now_s: f64) -> Next {
        if message[1] != PACKET_IN || message.len() < 34 || (*line).switch.is_null() {
            return Next::Slow;
        }
        let switch: &Switch = &*(*line).switch;
        let tenant: *mut Tenant = switch.tenants[usize::from(message[15])];
        if tenant.is_null() || (*tenant).guest_count == 0 || (*tenant).guest_count as usize > GUESTS {
            return Next::Slow;
        }
        let reason = u32::from(message[14]).min(31);
        let guests = (*tenant).guests;
        let mut to = [None; GUESTS];
        for (place, &guest) in to.iter_mut().zip(&guests[..(*tenant).guest_count as usize]) {
            if guest.is_null() {
                return Next::Slow;
            }
            if (*guest).packet_in_reasons >> reason & 1 == 1 {
                match self.writable(guest) {
                    Some(fd) => *place = Some(fd),
                    None => return Next::Slow,
                }
            }
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        let good = packet_in(message, &*tenant, &mut scratch);
        if good && (*(*tenant).packet_ins).take(now_s) {
            to.iter().flatten().for_each(|&fd| self.put(fd, &scratch));
        } else if good {
            (*tenant).dropped_packet_ins += 1;
        }
        self.scratch = scratch;
        if good {
            Next::Done
        } else {
            Next::Slow
        }
    }

    // SAFETY: as `step`; `message` is in the buffer of `line`, which nothing moves meanwhile.
    unsafe fn guest_said(&mut self, line: *mut Line, message: &[u8], now_s: f64) -> Next {
        let (tenant, switch) = ((*line).tenant, (*line).switch);
        if message[1] != FLOW_MOD || message.len() < 56 || (*line).may_change == 0 || switch.is_null() {
            return Next::Slow;
        }
        let target = match self.writable((*switch).line) {
            Some(fd) => fd,
            None => return Next::Slow,
        };
        let adds = message[25] == ADD;
        if (*(*tenant).changes).rate_per_s <= 0.0 || (adds && !(*(*tenant).entries).has_room()) {
            return Next::Slow;
        }
        let xid = (*switch).next_xid.max(FIRST_XID);
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        let good = flow_mod(message, &*tenant, &(*switch).kinds, xid, &mut scratch);
        if good {
            self.put(target, &scratch);
        }
        self.scratch = scratch;
        if !good {
            return Next::Slow;
        }
        (*switch).next_xid = if xid >= LAST_XID { FIRST_XID } else { xid + 1 };
        self.remember((*line).fd, xid, message, now_s);
        (*tenant).messages += 1;
        (*(*tenant).entries).added += u64::from(adds);
        let changes = &mut *(*tenant).changes;
        changes.tokens -= 1.0;
        if changes.has_token(now_s) {
            Next::Done
        } else {
            Next::Paced
        }
    }

    fn remember(&mut self, fd: i32, xid: u32, message: &[u8], sent_s: f64) {
        let entry = usize::try_from(fd).ok().and_then(|fd| self.entries.get_mut(fd)?.as_mut());
        if let Some(entry) = entry {
            if entry.sent.len() >= REMEMBERED {
                entry.sent.pop_front();
            }
            let length = message.len().min(64);
            let mut head = [0; 64];
            head[..length].copy_from_slice(&message[..length]);
            let guest_xid = u32_at(message, 4);
            entry.sent.push_back(Sent { sent_s, xid, guest_xid, length: length as u32, padding: 0, head });
        }
    }

    fn put(&mut self, fd: usize, data: &[u8]) {
        if let Some(Some(entry)) = self.entries.get_mut(fd) {
            if entry.out.is_empty() {
                self.waiting.push(fd);
            }
            entry.out.extend_from_slice(data);
        }
    }

    /// Sends what waits. What does not go at once is Python's to send.
    // SAFETY: as `step`: lines of entries are there until they are removed.
    unsafe fn flush(&mut self, events: &mut Events) {
        while let Some(fd) = self.waiting.pop() {
            let entry = match self.entries.get_mut(fd) {
                Some(Some(entry)) => entry,
                _ => continue,
            };
            let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
            let sent = libc::send(fd as i32, entry.out.as_ptr().cast(), entry.out.len(), flags);
            if sent == entry.out.len() as isize {
                entry.out.clear();
                continue;
            }
            entry.out.drain(..usize::try_from(sent).unwrap_or(0));
            (*entry.line).writable = 0;
            events.push(fd as i32, 0, LEFT);
        }
    }
}
