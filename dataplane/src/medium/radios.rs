//! Radios of mac80211_hwsim as ports of the medium: their frames come in, and go out, over generic netlink.
//!
//! The kernel says at once if a radio could not take a frame, because it is off or on another channel: such a *deaf* radio
//! acknowledges nothing. While none is known to be deaf, frames and what their senders are told go to the kernel together, in
//! one system call; so the first frame for a radio that has just become deaf still counts as acknowledged. As long as one is
//! deaf, its answers are awaited before the senders are told.

use super::config::Config;
use super::frame::{Air, Frame, Outcome};
use super::model::Model;
use super::parts::Report;
use super::{dot11, hwsim};
use crate::sys::genetlink::{Messages, Received, Socket};
use crate::sys::interface::Mac;
use serde::Serialize;
use std::io;
use std::os::unix::io::{AsRawFd, RawFd};

/// Messages are sent to the kernel once they are that long together.
const SEND_BYTES: usize = 128 << 10;
/// Batches read before the medium gets its turn.
const READS_PER_TURN: usize = 4;
/// Strangers that the log names.
const MOST_WARNINGS: usize = 16;

/// What went by beside the ordinary, since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct RadioCounters {
    /// Frames for a single radio that was off, or on another channel: not acknowledged.
    pub deaf: u64,
    /// Frames of radios that the configuration does not name.
    pub strangers: u64,
    /// Times at which the kernel had no room for frames, or took none: some are lost.
    pub overruns: u64,
    /// Messages that could not be understood.
    pub odd: u64,
}

/// A frame handed to the kernel for a single radio.
#[derive(Debug, Clone, Copy)]
struct Handed {
    sequence: u32,
    sender: usize,
    cookie: u64,
    receiver: usize,
    failed: bool,
}

/// What messages of the kernel turn into.
struct Inbox {
    /// Hardware address -> port, sorted.
    ports: Vec<(Mac, usize)>,
    family: u16,
    /// Frames that radios sent, with their ports, in order.
    frames: Vec<(usize, Frame)>,
    /// Since the last turn began.
    handed: Vec<Handed>,
    /// By port: the last frame that was handed to it failed. So it is at the start, when nothing is known.
    deaf: Vec<bool>,
    /// What strangers are told.
    outcomes: Messages,
    counters: RadioCounters,
    warned: Vec<Mac>,
}

/// All radios of the configuration, and the socket to them.
pub struct Radios {
    socket: Socket,
    /// Hardware address by port.
    addresses: Vec<Option<Mac>>,
    inbox: Inbox,
    /// Frames that radios receive, and what senders are told.
    out: Messages,
    /// Handed frames up to here have been sent.
    flushed: usize,
    sequence: u32,
    reports: Vec<Report>,
    failure: Option<io::Error>,
}

impl Radios {
    /// Becomes the medium of all radios of the current namespace; None if the configuration has no radio.
    pub fn open(config: &Config) -> io::Result<Option<Radios>> {
        if config.ports.iter().all(|port| port.radio.is_none()) {
            return Ok(None);
        }
        let mut socket = Socket::open(hwsim::FAMILY).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                io::Error::new(error.kind(), "no mac80211_hwsim in this kernel: load it (modprobe mac80211_hwsim)")
            }
            _ => error,
        })?;
        socket.ask(hwsim::REGISTER, &[], |_| ()).map_err(refused)?;
        Ok(Some(Radios {
            addresses: config.ports.iter().map(|port| port.radio).collect(),
            inbox: Inbox::new(config, socket.family()),
            socket,
            out: Messages::default(),
            flushed: 0,
            sequence: 0,
            reports: Vec::new(),
            failure: None,
        }))
    }

    /// What went by beside the ordinary.
    pub fn counters(&self) -> RadioCounters {
        self.inbox.counters
    }

    /// Whether frames wait that were read before.
    pub fn has_frames(&self) -> bool {
        !self.inbox.frames.is_empty()
    }

    /// A turn begins: the frames that radios have sent, each with its port, after those that were read before. If the socket
    /// is not readable, there are no others.
    pub fn read(&mut self, readable: bool, model: &mut Model) -> io::Result<std::vec::Drain<'_, (usize, Frame)>> {
        if readable {
            self.pull(model)?;
        }
        self.inbox.note_failures();
        Ok(self.inbox.frames.drain(..))
    }

    fn pull(&mut self, model: &mut Model) -> io::Result<()> {
        let Radios { socket, inbox, .. } = self;
        for _ in 0..READS_PER_TURN {
            let reading = socket.receive(|received| inbox.take(received, || model.take_buffer()))?;
            inbox.counters.odd += reading.odd;
            inbox.counters.overruns += u64::from(reading.overrun);
            if !reading.more {
                break;
            }
        }
        Ok(())
    }

    /// A frame reaches the radio of a port. False: there is none.
    pub fn deliver(&mut self, port: usize, frame: &Frame) -> bool {
        let (receiver, air) = match (self.addresses.get(port), &frame.air) {
            (Some(Some(address)), Some(air)) => (*address, air),
            _ => return false,
        };
        let is_group = dot11::receiver(frame).map_or(true, |address| address[0] & 1 == 1);
        let sequence = if is_group { 0 } else { self.hand(port, air) };
        let rate = dot11::rate_index(air.kbps, air.mhz);
        hwsim::write_frame(&mut self.out, self.socket.family(), sequence, &receiver, frame, air, rate);
        self.flush_beyond(SEND_BYTES);
        true
    }

    /// Notes a frame whose sender waits for an acknowledgement, under a number that is not 0.
    fn hand(&mut self, receiver: usize, air: &Air) -> u32 {
        self.sequence = self.sequence.checked_add(1).unwrap_or(1);
        let Air { sender, cookie, .. } = *air;
        self.inbox.handed.push(Handed { sequence: self.sequence, sender, cookie, receiver, failed: false });
        self.sequence
    }

    /// Sends everything if it is longer than that.
    fn flush_beyond(&mut self, bytes: usize) {
        if self.out.bytes().len() <= bytes {
            return;
        }
        match self.socket.send(&self.out) {
            Ok(true) => {}
            Ok(false) => {
                self.inbox.counters.overruns += 1;
                self.inbox.handed[self.flushed..].iter_mut().for_each(|handed| handed.failed = true);
            }
            Err(error) => self.failure = Some(error),
        }
        self.flushed = self.inbox.handed.len();
        self.out.clear();
    }

    /// The turn ends: sends what was delivered and tells the senders what became of their frames.
    pub fn settle(&mut self, model: &mut Model) -> io::Result<()> {
        if self.inbox.is_doubtful() {
            self.flush_beyond(0);
            self.pull(model)?;
        }
        let mut reports = std::mem::take(&mut self.reports);
        model.take_reports(&mut reports);
        for report in reports.drain(..) {
            if let Some(Some(address)) = self.addresses.get(report.port) {
                let outcome = self.inbox.outcome(&report);
                hwsim::write_outcome(&mut self.out, self.inbox.family, address, &report.air, outcome);
                self.flush_beyond(SEND_BYTES);
            }
        }
        self.reports = reports;
        self.flush_beyond(0);
        self.flushed = 0;
        if !self.inbox.outcomes.bytes().is_empty() {
            let told = self.socket.send(&self.inbox.outcomes)?;
            self.inbox.counters.overruns += u64::from(!told);
            self.inbox.outcomes.clear();
        }
        self.failure.take().map_or(Ok(()), Err)
    }
}

/// Why the kernel did not make us the medium.
fn refused(error: io::Error) -> io::Error {
    let why = match error.raw_os_error() {
        Some(libc::EBUSY) => "another program is the medium of the radios of this network namespace",
        Some(libc::EOPNOTSUPP) => {
            "there is a radio with several channels at once, for which the driver allows no medium"
        }
        Some(libc::EPERM) => "only root may be the medium of radios",
        _ => return crate::sys::context(error, "become the medium of mac80211_hwsim"),
    };
    io::Error::new(error.kind(), format!("mac80211_hwsim: {why}"))
}

impl Inbox {
    fn new(config: &Config, family: u16) -> Inbox {
        let radios = config.ports.iter().enumerate().filter_map(|(p, port)| Some((port.radio?, p)));
        let mut ports: Vec<(Mac, usize)> = radios.collect();
        ports.sort_unstable();
        Inbox {
            ports,
            family,
            frames: Vec::new(),
            handed: Vec::new(),
            deaf: vec![true; config.ports.len()],
            outcomes: Messages::default(),
            counters: RadioCounters::default(),
            warned: Vec::new(),
        }
    }

    fn take(&mut self, received: Received<'_>, buffer: impl FnOnce() -> Vec<u8>) {
        match received {
            Received::Message { command: hwsim::FRAME, attributes } => match hwsim::read_frame(attributes) {
                Some(sent) => self.sent(sent, buffer),
                None => self.counters.odd += 1,
            },
            // Radios and interfaces that come and go.
            Received::Message { .. } => {}
            Received::Answer { sequence, errno } => self.answered(sequence, errno),
        }
    }

    fn sent(&mut self, sent: hwsim::Sent<'_>, buffer: impl FnOnce() -> Vec<u8>) {
        match self.ports.binary_search_by(|(address, _)| address.cmp(&sent.radio)) {
            Ok(i) => {
                let port = self.ports[i].1;
                let mut bytes = buffer();
                bytes.extend_from_slice(sent.frame);
                self.frames.push((port, Frame { bytes, air: Some(Air { sender: port, ..sent.air }) }));
            }
            Err(_) => {
                self.counters.strangers += 1;
                self.warn(sent.radio);
                hwsim::write_outcome(&mut self.outcomes, self.family, &sent.radio, &sent.air, Outcome::Unanswered);
            }
        }
    }

    fn warn(&mut self, radio: Mac) {
        if self.warned.len() < MOST_WARNINGS && !self.warned.contains(&radio) {
            self.warned.push(radio);
            let text: Vec<String> = radio.iter().map(|byte| format!("{byte:02x}")).collect();
            crate::tell!("hyroads-medium: warning: no port has the radio {}, nobody hears it", text.join(":"));
        }
    }

    /// Answers tell of failures: of a frame for a radio (with a number), or of an outcome that the sender no longer waits for.
    fn answered(&mut self, sequence: u32, errno: i32) {
        if errno == 0 || sequence == 0 {
            return;
        }
        if let Some(handed) = self.handed.iter_mut().find(|handed| handed.sequence == sequence) {
            handed.failed = true;
            self.counters.deaf += 1;
        }
    }

    /// Whether a radio that was deaf has been handed a frame.
    fn is_doubtful(&self) -> bool {
        self.handed.iter().any(|handed| self.deaf.get(handed.receiver).copied().unwrap_or(true))
    }

    /// All answers to what was handed are there: who is deaf from now on.
    fn note_failures(&mut self) {
        for handed in self.handed.drain(..) {
            if let Some(deaf) = self.deaf.get_mut(handed.receiver) {
                *deaf = handed.failed;
            }
        }
    }

    fn outcome(&self, report: &Report) -> Outcome {
        let failed = |h: &&Handed| h.failed && h.sender == report.port && h.cookie == report.air.cookie;
        match report.outcome {
            Outcome::Acknowledged if self.handed.iter().any(|handed| failed(&handed)) => Outcome::Unanswered,
            outcome => outcome,
        }
    }
}

impl AsRawFd for Radios {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::super::config::ConflictRule::Technology;
    use super::super::test_world::config;
    use super::*;

    const FAMILY: u16 = 0x1c;

    fn inbox() -> Inbox {
        let mut config = config(&[("a", "w"), ("b", "w")], &[(0, 1, 10.0), (1, 0, 10.0)], Technology);
        config.ports[0].radio = Some([0x42, 0, 0, 0, 1, 0]);
        config.ports[1].radio = Some([0x42, 0, 0, 0, 0, 0]);
        Inbox::new(&config, FAMILY)
    }

    fn sent(radio: Mac, frame: &[u8]) -> hwsim::Sent<'_> {
        hwsim::Sent { radio, frame, air: Air { cookie: 9, ..Air::default() } }
    }

    #[test]
    fn frames_come_from_the_port_of_their_radio() {
        let mut inbox = inbox();
        inbox.sent(sent([0x42, 0, 0, 0, 0, 0], &[1; 30]), Vec::new);
        inbox.sent(sent([0x42, 0, 0, 0, 1, 0], &[2; 40]), Vec::new);
        let told: Vec<_> = inbox.frames.iter().map(|(p, f)| (*p, f.len(), f.air.unwrap().sender)).collect();
        assert_eq!(told, [(1, 30, 1), (0, 40, 0)]);
        assert!(inbox.outcomes.bytes().is_empty());
    }

    #[test]
    fn a_stranger_is_told_that_nobody_hears_it() {
        let mut inbox = inbox();
        inbox.sent(sent([0x42, 0, 0, 0, 7, 0], &[1; 30]), Vec::new);
        assert!(inbox.frames.is_empty() && !inbox.outcomes.bytes().is_empty());
        assert_eq!(inbox.counters.strangers, 1);
    }

    #[test]
    fn a_radio_that_did_not_take_a_frame_acknowledged_none() {
        let mut inbox = inbox();
        for (sequence, sender, cookie) in [(1, 0, 5), (2, 0, 6), (3, 1, 6)] {
            inbox.handed.push(Handed { sequence, sender, cookie, receiver: 1 - sender, failed: false });
        }
        // 2 failed; 1 was answered without an error; 0 is nobody's, 9 of an earlier turn.
        for (sequence, errno) in [(2, 22), (1, 0), (0, 22), (9, 22)] {
            inbox.take(Received::Answer { sequence, errno }, Vec::new);
        }
        let outcome =
            |port, cookie, outcome| inbox.outcome(&Report { port, air: Air { cookie, ..Air::default() }, outcome });
        assert_eq!(outcome(0, 6, Outcome::Acknowledged), Outcome::Unanswered);
        assert_eq!(outcome(0, 5, Outcome::Acknowledged), Outcome::Acknowledged);
        assert_eq!(outcome(1, 6, Outcome::Acknowledged), Outcome::Acknowledged);
        assert_eq!(outcome(0, 6, Outcome::ToGroup), Outcome::ToGroup);
        assert_eq!(inbox.counters, RadioCounters { deaf: 1, ..RadioCounters::default() });
    }

    #[test]
    fn answers_are_awaited_while_a_radio_is_deaf() {
        let mut inbox = inbox();
        let handed = |receiver, failed| Handed { sequence: 1, sender: 1 - receiver, cookie: 5, receiver, failed };
        assert!(!inbox.is_doubtful(), "nothing was handed");
        // At the start nobody is known to hear.
        for (failed, doubtful) in [(false, true), (false, false), (true, false), (true, true), (false, true)] {
            inbox.handed.push(handed(1, failed));
            assert_eq!(inbox.is_doubtful(), doubtful);
            inbox.note_failures();
            assert!(inbox.handed.is_empty());
        }
        inbox.handed.push(handed(0, false));
        assert!(inbox.is_doubtful(), "each radio for itself");
    }
}
