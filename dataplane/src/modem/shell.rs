//! The running adapter: two packet sockets, the clock, and what waits for being answered.

use super::answers::{course, indication, Course, ETHER_TYPE};
use super::config::Config;
use super::line::Line;
use crate::rng::Rng;
use crate::sys::clock::monotonic_ns;
use crate::sys::epoll::{Epoll, Interest};
use crate::sys::interface::Mac;
use crate::sys::packet::{Batch, PacketOptions, PacketSocket, ALL_PROTOCOLS};
use crate::sys::process::Signals;
use std::collections::VecDeque;
use std::io;

const SIGNALS: u64 = 2;
const TICK_NS: u64 = 5_000_000;
const BATCH: usize = 64;
/// Frames taken from one side before the other gets its turn.
const TURNS: usize = 4;
const BATCH_BYTES: usize = 2048;
/// 1500 bytes behind the Ethernet header, and one VLAN tag.
const MOST_FRAME: usize = 1514;
const TAG: usize = 4;
const MOST_DELAYED: usize = 4096;

/// An answer that waits: when it is due, to which side it goes.
struct Delayed {
    due_ns: u64,
    inside: bool,
    frame: Vec<u8>,
}

/// Everything the adapter owns.
pub struct Shell {
    config: Config,
    line: Line,
    /// The host's port, the medium.
    sides: [PacketSocket; 2],
    epoll: Epoll,
    signals: Signals,
    batch: Batch,
    delayed: VecDeque<Delayed>,
    /// To whom the sniffer's indications go.
    listener: Option<Mac>,
    rng: Rng,
}

impl Shell {
    /// Opens both interfaces.
    pub fn open(config: Config, inside: &str, outside: &str) -> io::Result<Shell> {
        let signals = Signals::termination()?;
        let open = |name: &str| {
            PacketSocket::open(&PacketOptions { promiscuous: true, ..PacketOptions::new(name, ALL_PROTOCOLS) })
        };
        let sides = [open(inside)?, open(outside)?];
        let epoll = Epoll::new(8)?;
        epoll.add(&sides[0], 0, Interest::READ)?;
        epoll.add(&sides[1], 1, Interest::READ)?;
        epoll.add(&signals, SIGNALS, Interest::READ)?;
        Ok(Shell {
            line: Line::new(&config, monotonic_ns()),
            rng: Rng::new(config.seed),
            config,
            sides,
            epoll,
            signals,
            batch: Batch::new(BATCH, BATCH_BYTES),
            delayed: VecDeque::new(),
            listener: None,
        })
    }

    /// Serves until SIGTERM or SIGINT.
    pub fn run(&mut self) -> io::Result<()> {
        let mut events = Vec::with_capacity(8);
        let mut tick_ns = monotonic_ns() + TICK_NS;
        loop {
            let next_ns = self.delayed.iter().map(|d| d.due_ns).min().map_or(tick_ns, |due| due.min(tick_ns));
            self.epoll.wait(Some(next_ns.saturating_sub(monotonic_ns())), &mut events)?;
            for event in &events {
                match event.token {
                    SIGNALS => {
                        if self.signals.read()?.is_some() {
                            return Ok(());
                        }
                    }
                    side => self.serve(side as usize)?,
                }
            }
            let now_ns = monotonic_ns();
            self.send_due(now_ns)?;
            if now_ns >= tick_ns {
                tick_ns = now_ns + TICK_NS;
                self.line.advance(&self.config, now_ns);
            }
            self.indicate(now_ns)?;
        }
    }

    fn serve(&mut self, side: usize) -> io::Result<()> {
        for _ in 0..TURNS {
            let count = self.sides[side].receive(&mut self.batch)?;
            let batch = std::mem::replace(&mut self.batch, Batch::new(0, 0));
            let served = batch.frames().try_for_each(|frame| self.frame(side, frame));
            self.batch = batch;
            served?;
            if count < BATCH {
                break;
            }
        }
        Ok(())
    }

    fn frame(&mut self, side: usize, frame: &[u8]) -> io::Result<()> {
        let inside = side == 0;
        let before = self.line.sniffs();
        match course(&self.config, &mut self.line, frame, inside) {
            Course::Bridge => return self.bridge(side, frame),
            Course::Answered(answers) => self.answer(inside, answers),
            Course::Both(answers) => {
                self.answer(inside, answers);
                self.bridge(side, frame)?;
            }
        }
        if self.line.sniffs() && (!before || self.listener.is_none()) {
            self.listener = frame.get(6..12).and_then(|mac| mac.try_into().ok());
        }
        Ok(())
    }

    fn bridge(&mut self, side: usize, frame: &[u8]) -> io::Result<()> {
        let tagged = matches!(frame.get(12..14), Some([0x81, 0x00] | [0x88, 0xa8]));
        if frame.len() < 14 || frame.len() > MOST_FRAME + if tagged { TAG } else { 0 } {
            return Ok(());
        }
        if let Some(station) = self.station_of(side, frame) {
            self.line.carried(&self.config, station, side == 0, frame.len());
        }
        self.sides[1 - side].send(frame).map(|_| ())
    }

    /// The station to or from which a data frame goes: by the address behind it, or the only one there is.
    fn station_of(&self, side: usize, frame: &[u8]) -> Option<usize> {
        if frame.get(12..14) == Some(&ETHER_TYPE) {
            return None;
        }
        let mac = if side == 0 { frame.get(..6)? } else { frame.get(6..12)? };
        let stations = &self.config.stations;
        let found = stations.iter().position(|s| s.behind == mac || s.mac == mac);
        found.or(if stations.len() == 1 { Some(0) } else { None })
    }

    fn answer(&mut self, inside: bool, answers: Vec<Vec<u8>>) {
        let due_ns = monotonic_ns() + u64::from(self.config.answer_delay_ms) * 1_000_000;
        if answers.is_empty() || self.rng.unit() < self.config.answer_loss {
            return;
        }
        for frame in answers {
            if self.delayed.len() < MOST_DELAYED {
                self.delayed.push_back(Delayed { due_ns, inside, frame });
            }
        }
    }

    fn send_due(&mut self, now_ns: u64) -> io::Result<()> {
        while self.delayed.front().map_or(false, |d| d.due_ns <= now_ns) {
            if let Some(delayed) = self.delayed.pop_front() {
                self.sides[usize::from(!delayed.inside)].send(&delayed.frame)?;
            }
        }
        Ok(())
    }

    fn indicate(&mut self, now_ns: u64) -> io::Result<()> {
        for delimiter in self.line.indications() {
            if let Some(to) = self.listener {
                self.sides[0].send(&indication(&self.config, to, &delimiter, now_ns / 1000))?;
            }
        }
        Ok(())
    }
}
