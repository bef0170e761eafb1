//! A thread that reads all the time, so that whoever takes what came need not wait for it, nor it for them.
use std::io;
use std::os::unix::io::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use super::reader::{Batch, Reader};
use crate::sys::check;
use crate::sys::clock::monotonic_ns;

/// So many sockets are read before others may have the reader: about a tenth of a millisecond.
const AT_ONCE: usize = 16;
/// Where messages come faster than one each so often, there is such a pause after each turn, as network interfaces
/// moderate their interrupts: what comes meanwhile is read together. After a quiet time so many turns have none.
const PAUSE_NS: u64 = 2_000_000;
const WITHOUT_PAUSE: f64 = 20.0;
/// How often a thread that has no room looks whether it should end.
const LOOK: Duration = Duration::from_millis(100);

/// An eventfd: readable once somebody has called `set`, until `clear`.
struct Flag(OwnedFd);

impl Flag {
    fn new() -> io::Result<Flag> {
        // SAFETY: a plain system call.
        let result = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        let descriptor = check(result, || "eventfd".to_string())?;
        // SAFETY: `descriptor` was just opened and nobody else has it.
        Ok(Flag(unsafe { OwnedFd::from_raw_fd(descriptor) }))
    }

    fn set(&self) {
        let one = 1_u64;
        // SAFETY: writes 8 bytes of a local. It can only fail where the flag is set already.
        unsafe { libc::write(self.0.as_raw_fd(), (&one as *const u64).cast(), 8) };
    }

    fn clear(&self) {
        let mut count = 0_u64;
        // SAFETY: reads 8 bytes into a local. It can only fail where the flag is not set.
        unsafe { libc::read(self.0.as_raw_fd(), (&mut count as *mut u64).cast(), 8) };
    }
}

struct Shared {
    reader: Mutex<Reader>,
    /// How many others want the reader.
    waiting: AtomicUsize,
    ends: AtomicBool,
    has_failed: AtomicBool,
    room: Condvar,
    /// Something is to be taken.
    news: Flag,
    /// Pings are to be sent.
    pings: Flag,
    /// The thread is to end.
    end: Flag,
}

impl Shared {
    // What a panic leaves behind is whole as far as it goes: at worst the end of a line is missing.
    fn lock(&self) -> MutexGuard<'_, Reader> {
        self.reader.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, descriptor: RawFd) -> io::Result<()> {
        let (mut credit, mut last_ns) = (WITHOUT_PAUSE, monotonic_ns());
        loop {
            wait_readable(descriptor)?;
            let now_ns = monotonic_ns();
            credit = (credit + (now_ns - last_ns) as f64 / PAUSE_NS as f64).min(WITHOUT_PAUSE) - 1.0;
            last_ns = now_ns;
            if credit < 0.0 {
                std::thread::sleep(Duration::from_nanos((-credit * PAUSE_NS as f64) as u64));
            }
            while self.read_some()? {
                if self.waiting.load(Ordering::Relaxed) > 0 {
                    std::thread::yield_now();
                }
            }
            if self.ends.load(Ordering::Relaxed) {
                return Ok(());
            }
        }
    }

    fn send_pings(&self, reader: &mut Reader, most: usize) {
        if reader.has_pings() && !reader.send_pings(most) {
            self.pings.clear();
        }
    }

    /// Whether more is ready.
    fn read_some(&self) -> io::Result<bool> {
        let mut reader = self.lock();
        self.send_pings(&mut reader, AT_ONCE);
        while reader.is_full() && !self.ends.load(Ordering::Relaxed) {
            self.send_pings(&mut reader, usize::MAX);
            reader = self.room.wait_timeout(reader, LOOK).unwrap_or_else(PoisonError::into_inner).0;
        }
        let had_events = reader.has_events();
        let is_more = reader.poll(AT_ONCE)? || reader.has_pings();
        if reader.has_events() && !had_events {
            self.news.set();
        }
        Ok(is_more && !self.ends.load(Ordering::Relaxed))
    }
}

fn wait_readable(descriptor: RawFd) -> io::Result<()> {
    let mut poll = libc::pollfd { fd: descriptor, events: libc::POLLIN, revents: 0 };
    // SAFETY: one pollfd, which lives over the call.
    match check(unsafe { libc::poll(&mut poll, 1, -1) }, || "poll".to_string()) {
        Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
        _ => Ok(()),
    }
}

/// A reader and its thread.
pub struct ReadingThread {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// After a fork the thread is in the other process alone.
    process: u32,
    /// What was taken last.
    pub batch: Batch,
}

impl ReadingThread {
    /// Reads from now on (`Reader::new`).
    pub fn new(longest: usize) -> io::Result<ReadingThread> {
        let (reader, end, pings) = (Reader::new(longest)?, Flag::new()?, Flag::new()?);
        reader.watch(&end.0)?;
        reader.watch(&pings.0)?;
        let descriptor = reader.descriptor();
        let shared = Arc::new(Shared {
            reader: Mutex::new(reader),
            waiting: AtomicUsize::new(0),
            ends: AtomicBool::new(false),
            has_failed: AtomicBool::new(false),
            room: Condvar::new(),
            news: Flag::new()?,
            pings,
            end,
        });
        let theirs = Arc::clone(&shared);
        let body = move || {
            let is_fine = catch_unwind(AssertUnwindSafe(|| theirs.run(descriptor).is_ok())).unwrap_or(false);
            if !is_fine {
                theirs.has_failed.store(true, Ordering::Relaxed);
                theirs.news.set();
            }
        };
        let thread = without_signals(|| Builder::new().name("hyroads-read".to_string()).spawn(body))?;
        Ok(ReadingThread { shared, thread: Some(thread), process: std::process::id(), batch: Batch::default() })
    }

    /// The reader, for a moment.
    pub fn reader(&self) -> MutexGuard<'_, Reader> {
        self.shared.waiting.fetch_add(1, Ordering::Relaxed);
        let reader = self.shared.lock();
        self.shared.waiting.fetch_sub(1, Ordering::Relaxed);
        reader
    }

    /// Readable while something is to be taken.
    pub fn descriptor(&self) -> RawFd {
        self.shared.news.0.as_raw_fd()
    }

    /// The next events, at most so many (`Reader::take`); whether there are more. An error: nothing is read any more.
    pub fn take(&mut self, most: usize) -> io::Result<bool> {
        let mut batch = std::mem::take(&mut self.batch);
        let mut reader = self.reader();
        let is_more = reader.take(most, &mut batch);
        if !is_more {
            self.shared.news.clear();
        }
        drop(reader);
        self.shared.room.notify_all();
        self.batch = batch;
        if self.batch.events.is_empty() && self.shared.has_failed.load(Ordering::Relaxed) {
            return Err(io::Error::new(io::ErrorKind::Other, "the reading thread has ended"));
        }
        Ok(is_more)
    }

    /// Has sockets pinged (`Reader::ping`); which of them are.
    pub fn ping(&self, ids: &[u64], seqs: &[u64]) -> Vec<bool> {
        let mut reader = self.reader();
        let is_taken = ids.iter().zip(seqs).map(|(&id, &seq)| reader.ping(id, seq)).collect();
        if reader.has_pings() {
            self.shared.pings.set();
            self.shared.room.notify_all();
        }
        is_taken
    }

    /// The answers to pings that were kept (`Reader::take_pongs`).
    pub fn take_pongs(&mut self) {
        let mut batch = std::mem::take(&mut self.batch);
        self.reader().take_pongs(&mut batch);
        self.batch = batch;
    }

    /// The numbers that are held (`Reader::take_held`).
    pub fn take_held(&mut self) {
        let mut batch = std::mem::take(&mut self.batch);
        self.reader().take_held(&mut batch);
        self.batch = batch;
    }
}

impl Drop for ReadingThread {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            return;
        }
        self.shared.ends.store(true, Ordering::Relaxed);
        self.shared.end.set();
        self.shared.room.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Threads that start meanwhile leave all signals to others.
fn without_signals<T>(start: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    // SAFETY: sets are plain data, filled by the calls; the thread's own mask is put back.
    unsafe {
        let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        let started = start();
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
        started
    }
}
