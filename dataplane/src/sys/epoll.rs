//! epoll with a timeout in nanoseconds.

use super::check;
use std::io;
use std::os::unix::io::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// What to wait for on a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interest {
    /// Wake when there is something to read (or the peer hung up).
    pub read: bool,
    /// Wake when there is room to write.
    pub write: bool,
}

impl Interest {
    /// Wait for input only.
    pub const READ: Interest = Interest { read: true, write: false };
    /// Wait for input and for room to write.
    pub const BOTH: Interest = Interest { read: true, write: true };
    /// Wait for nothing (errors and hang-ups still wake).
    pub const NONE: Interest = Interest { read: false, write: false };

    fn bits(self) -> u32 {
        let read = if self.read { libc::EPOLLIN | libc::EPOLLRDHUP } else { 0 };
        let write = if self.write { libc::EPOLLOUT } else { 0 };
        (read | write) as u32
    }
}

/// One thing that happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// The token given when the descriptor was added.
    pub token: u64,
    /// Something can be read; also set on errors and hang-ups, which show when reading.
    pub readable: bool,
    /// Something can be written.
    pub writable: bool,
}

/// A set of descriptors to wait on.
#[derive(Debug)]
pub struct Epoll {
    descriptor: OwnedFd,
    raw: Vec<libc::epoll_event>,
    /// False once the kernel said it has no epoll_pwait2 (before 5.11).
    has_pwait2: bool,
}

/// The time that epoll_pwait2 takes. C's timespec has smaller numbers on processors of 32 bits.
#[repr(C)]
struct KernelTime {
    seconds: i64,
    nanoseconds: i64,
}

impl KernelTime {
    fn of(ns: u64) -> KernelTime {
        KernelTime { seconds: (ns / 1_000_000_000) as i64, nanoseconds: (ns % 1_000_000_000) as i64 }
    }
}

impl Epoll {
    /// An empty set that reports at most `capacity` events per wait.
    pub fn new(capacity: usize) -> io::Result<Epoll> {
        // SAFETY: a plain system call.
        let descriptor = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) }, || "epoll_create1".to_string())?;
        let raw = vec![libc::epoll_event { events: 0, u64: 0 }; capacity.max(1)];
        // SAFETY: `descriptor` was just opened and nobody else has it.
        Ok(Epoll { descriptor: unsafe { OwnedFd::from_raw_fd(descriptor) }, raw, has_pwait2: true })
    }

    /// Itself readable while something is ready.
    pub fn descriptor(&self) -> RawFd {
        self.descriptor.as_raw_fd()
    }

    fn control(&self, operation: libc::c_int, fd: RawFd, token: u64, interest: Interest) -> io::Result<()> {
        let mut event = libc::epoll_event { events: interest.bits(), u64: token };
        // SAFETY: `event` lives over the call; the kernel checks the descriptors.
        let result = unsafe { libc::epoll_ctl(self.descriptor.as_raw_fd(), operation, fd, &mut event) };
        check(result, || format!("epoll_ctl on descriptor {fd}")).map(|_| ())
    }

    /// Adds a descriptor; `token` comes back in its events.
    pub fn add(&self, descriptor: &impl AsRawFd, token: u64, interest: Interest) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, descriptor.as_raw_fd(), token, interest)
    }

    /// Changes what to wait for.
    pub fn modify(&self, descriptor: &impl AsRawFd, token: u64, interest: Interest) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, descriptor.as_raw_fd(), token, interest)
    }

    /// Takes a descriptor out of the set (closing it does so too).
    pub fn remove(&self, descriptor: &impl AsRawFd) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_DEL, descriptor.as_raw_fd(), 0, Interest::NONE)
    }

    /// Waits for at most `timeout_ns` (None = for ever) and replaces `events` by what happened. A signal handler that ran
    /// ends the wait with no events.
    pub fn wait(&mut self, timeout_ns: Option<u64>, events: &mut Vec<Event>) -> io::Result<()> {
        events.clear();
        let count = match self.raw_wait(timeout_ns) {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
            Err(error) => return Err(error),
        };
        let trouble = (libc::EPOLLERR | libc::EPOLLHUP | libc::EPOLLRDHUP | libc::EPOLLIN) as u32;
        for raw in &self.raw[..count] {
            let (bits, token) = (raw.events, raw.u64);
            let (readable, writable) = (bits & trouble != 0, bits & libc::EPOLLOUT as u32 != 0);
            events.push(Event { token, readable, writable });
        }
        Ok(())
    }

    fn raw_wait(&mut self, timeout_ns: Option<u64>) -> io::Result<usize> {
        if self.has_pwait2 {
            let time = timeout_ns.map(KernelTime::of);
            let pointer = time.as_ref().map_or(std::ptr::null(), |time| time as *const KernelTime);
            let (fd, length) = (self.descriptor.as_raw_fd(), self.raw.len() as libc::c_int);
            let no_mask = std::ptr::null::<libc::sigset_t>();
            // SAFETY: the event array and the time live over the call and have the given length.
            let result = unsafe {
                libc::syscall(libc::SYS_epoll_pwait2, fd, self.raw.as_mut_ptr(), length, pointer, no_mask, 0usize)
            };
            let error = io::Error::last_os_error();
            if result >= 0 {
                return Ok(result as usize);
            }
            if error.raw_os_error() != Some(libc::ENOSYS) {
                return Err(super::context(error, "epoll_pwait2"));
            }
            self.has_pwait2 = false;
        }
        self.ppoll_wait(timeout_ns)
    }

    /// For kernels before 5.11: an epoll descriptor can itself be polled, and ppoll has always had nanoseconds.
    fn ppoll_wait(&mut self, timeout_ns: Option<u64>) -> io::Result<usize> {
        let time = timeout_ns
            .map(|ns| libc::timespec { tv_sec: (ns / 1_000_000_000) as _, tv_nsec: (ns % 1_000_000_000) as _ });
        let timeout = time.as_ref().map_or(std::ptr::null(), |time| time as *const libc::timespec);
        let mut poll = libc::pollfd { fd: self.descriptor.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one pollfd, and `timeout` is null or valid.
        check(unsafe { libc::ppoll(&mut poll, 1, timeout, std::ptr::null()) }, || "ppoll".to_string())?;
        let length = self.raw.len() as libc::c_int;
        // SAFETY: the event array has the given length.
        let result = unsafe { libc::epoll_wait(self.descriptor.as_raw_fd(), self.raw.as_mut_ptr(), length, 0) };
        check(result, || "epoll_wait".to_string()).map(|n| n as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::super::clock::monotonic_ns;
    use super::*;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    fn exercise(mut epoll: Epoll) {
        let mut events = Vec::new();
        let start = monotonic_ns();
        epoll.wait(Some(300_000), &mut events).unwrap();
        assert!(events.is_empty());
        assert!(monotonic_ns() - start >= 300_000);

        let (mut ours, theirs) = UnixStream::pair().unwrap();
        epoll.add(&theirs, 5, Interest::READ).unwrap();
        ours.write_all(b"x").unwrap();
        epoll.wait(None, &mut events).unwrap();
        assert_eq!(events, [Event { token: 5, readable: true, writable: false }]);
        epoll.modify(&theirs, 6, Interest::BOTH).unwrap();
        epoll.wait(Some(0), &mut events).unwrap();
        assert_eq!(events, [Event { token: 6, readable: true, writable: true }]);
        epoll.remove(&theirs).unwrap();
        epoll.wait(Some(0), &mut events).unwrap();
        assert!(events.is_empty());
    }

    #[test]
    fn waits_with_epoll_pwait2() {
        exercise(Epoll::new(8).unwrap());
    }

    #[test]
    fn waits_on_old_kernels() {
        let mut epoll = Epoll::new(8).unwrap();
        epoll.has_pwait2 = false;
        exercise(epoll);
    }
}
