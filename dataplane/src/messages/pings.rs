//! Pings over one socket, which the reading thread sends, and answers to them that say nothing new, kept as times.
use std::io;
use std::os::unix::io::RawFd;

use super::decode::Pong;

/// Of so many pings it is remembered when they were sent.
const LATEST: usize = 4;

#[derive(Debug, Default)]
pub struct Pings {
    /// The number of one that is to be sent.
    due: Option<u64>,
    /// What there was no room for of one that was begun. Nothing else may be sent before it.
    rest: Vec<u8>,
    /// Number, and when it was sent (CLOCK_MONOTONIC).
    sent: [Option<(u64, u64)>; LATEST],
    next: usize,
    /// What the last pong that was passed on as a line has said.
    epoch: u64,
    round_trip_ns: Option<u64>,
}

impl Pings {
    /// One is to be sent; false: the last one was not sent yet, or not all of it.
    pub fn ask(&mut self, seq: u64) -> bool {
        let is_free = self.due.is_none() && self.rest.is_empty();
        if is_free {
            self.due = Some(seq);
        }
        is_free
    }

    /// Sends what is to be sent and there is room for. Of errors whoever reads the socket learns.
    pub fn send(&mut self, fd: RawFd, now_ns: u64) {
        if let Some(seq) = self.due.take() {
            self.rest = format!("{{\"type\":\"ping\",\"seq\":{}}}\n", seq).into_bytes();
            self.sent[self.next] = Some((seq, now_ns));
            self.next = (self.next + 1) % LATEST;
        }
        if self.rest.is_empty() {
            return;
        }
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: the buffer is ours and as long as is said; the kernel checks the descriptor.
        let sent = unsafe { libc::send(fd, self.rest.as_ptr().cast(), self.rest.len(), flags) };
        if sent >= 0 {
            self.rest.drain(..sent as usize);
        } else if io::Error::last_os_error().kind() != io::ErrorKind::WouldBlock {
            self.rest.clear();
        }
    }

    /// Sends what is to be sent; what there was no room for is the caller's to send now, before anything else.
    pub fn settle(&mut self, fd: RawFd, now_ns: u64) -> Vec<u8> {
        self.send(fd, now_ns);
        std::mem::take(&mut self.rest)
    }

    /// Keeps how long an answer to one of the latest pings took. False: it says more than that, and is to be passed on.
    pub fn answered(&mut self, pong: Pong, now_ns: u64) -> bool {
        for sent in &mut self.sent {
            if let Some((_, sent_ns)) = sent.filter(|&(seq, _)| seq == pong.seq) {
                self.round_trip_ns = Some(now_ns.saturating_sub(sent_ns));
                *sent = None;
                return pong.epoch.map_or(true, |epoch| epoch == self.epoch);
            }
        }
        false
    }

    /// A pong is passed on as a line.
    pub fn passed_on(&mut self, pong: Pong) {
        self.epoch = pong.epoch.unwrap_or(self.epoch);
    }

    /// Whether a round trip is to be taken.
    pub fn has_answer(&self) -> bool {
        self.round_trip_ns.is_some()
    }

    /// How long the newest round trip took, once.
    pub fn take_answer(&mut self) -> Option<u64> {
        self.round_trip_ns.take()
    }
}
