//! The running adapter: two packet sockets, the medium's control socket, the clock, and what waits for being answered.

use super::answers::{course, indication, Course, ETHER_TYPE};
use super::bridge::{unwrap, wrap, Bridge, Place};
use super::config::{phy_mbps, unknown, Config};
use super::line::Line;
use super::medium::Reports;
use crate::rng::Rng;
use crate::sys::clock::monotonic_ns;
use crate::sys::epoll::{Epoll, Event, Interest};
use crate::sys::interface::{self, Mac};
use crate::sys::lines::{LineStream, Peer};
use crate::sys::packet::{Batch, PacketOptions, PacketSocket, ALL_PROTOCOLS};
use crate::sys::process::Signals;
use crate::sys::{context, invalid};
use std::collections::VecDeque;
use std::io;
use std::os::unix::net::UnixStream;

const INSIDE: usize = 0;
const OUTSIDE: usize = 1;
const SIGNALS: u64 = 2;
const MEDIUM: u64 = 3;
const TICK_NS: u64 = 5_000_000;
const BATCH: usize = 64;
/// Frames taken from one side before the other gets its turn.
const TURNS: usize = 4;
const BATCH_BYTES: usize = 2048;
/// 1500 bytes behind the Ethernet header, and one VLAN tag.
const MOST_FRAME: usize = 1514;
const TAG: usize = 4;
const MOST_DELAYED: usize = 4096;
/// MTU that the medium needs: a frame with its tag and its header.
const OUTSIDE_MTU: usize = MOST_FRAME + TAG;

/// An answer that waits: when it is due, to which side it goes.
struct Delayed {
    due_ns: u64,
    inside: bool,
    frame: Vec<u8>,
}

/// The connection to the medium.
struct Medium {
    reports: Reports,
    lines: LineStream<UnixStream>,
    /// A request has no answer yet.
    waits: bool,
}

impl Medium {
    fn connect(config: &Config) -> io::Result<Option<Medium>> {
        let (reports, medium) = match (Reports::new(config), &config.medium) {
            (Some(reports), Some(medium)) => (reports, medium),
            _ => return Ok(None),
        };
        let of_socket = |e| context(e, &format!("medium at {}", medium.socket.display()));
        let stream = UnixStream::connect(&medium.socket).map_err(of_socket)?;
        stream.set_nonblocking(true)?;
        Ok(Some(Medium { reports, lines: LineStream::new(stream), waits: false }))
    }

    /// Sends the next request if the last one has its answer.
    fn request(&mut self) -> io::Result<()> {
        if !self.waits {
            self.lines.queue(self.reports.request())?;
            self.waits = true;
        }
        self.lines.flush().map(|_| ())
    }
}

/// Everything the adapter owns.
pub struct Shell {
    config: Config,
    line: Line,
    bridge: Bridge,
    medium: Option<Medium>,
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
        let mtu = interface::mtu(outside)?;
        if (mtu as usize) < OUTSIDE_MTU {
            return Err(invalid(format!("interface {outside}: MTU {mtu}, expected at least {OUTSIDE_MTU}")));
        }
        let medium = Medium::connect(&config)?;
        let epoll = Epoll::new(8)?;
        epoll.add(&sides[INSIDE], INSIDE as u64, Interest::READ)?;
        epoll.add(&sides[OUTSIDE], OUTSIDE as u64, Interest::READ)?;
        epoll.add(&signals, SIGNALS, Interest::READ)?;
        if let Some(medium) = &medium {
            epoll.add(&medium.lines, MEDIUM, Interest::READ)?;
        }
        Ok(Shell {
            line: Line::new(&config, monotonic_ns()),
            bridge: Bridge::default(),
            medium,
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
                    MEDIUM => self.read_medium(*event)?,
                    side => self.serve(side as usize)?,
                }
            }
            let now_ns = monotonic_ns();
            self.send_due(now_ns)?;
            if now_ns >= tick_ns {
                tick_ns = now_ns + TICK_NS;
                self.line.advance(&self.config, now_ns);
                if let Some(medium) = &mut self.medium {
                    medium.request()?;
                }
            }
            self.indicate(now_ns)?;
        }
    }

    /// What the medium answered: PHY rates now, and what it carried.
    fn read_medium(&mut self, event: Event) -> io::Result<()> {
        let medium = match &mut self.medium {
            Some(medium) if event.readable => medium,
            _ => return Ok(()),
        };
        let peer = medium.lines.fill()?;
        while let Some(answer) = medium.lines.next_line()? {
            medium.waits = false;
            let aired = match medium.reports.take(answer).map_err(|e| invalid(format!("medium: {e}")))? {
                Some(aired) => aired,
                None => continue,
            };
            for (station, [to, from]) in self.config.stations.iter_mut().zip(&aired.links) {
                station.tx_mbps = phy_mbps(to.capacity_mbps);
                station.rx_mbps = phy_mbps(from.capacity_mbps);
            }
            self.line.aired(&self.config, &aired);
        }
        match peer {
            Peer::Open => Ok(()),
            Peer::Closed => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the medium has ended")),
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
        if side == INSIDE {
            self.bridge.learn(frame, Place::Inside);
            return self.take(side, None, frame);
        }
        let received = match unwrap(self.config.mac, &self.config.stations, frame) {
            Some(received) => received,
            None => return Ok(()),
        };
        let inner = received.inner;
        if let Some(station) = received.station {
            self.bridge.learn(inner, Place::Station(station));
            let of = &mut self.config.stations[station];
            if of.behind == unknown() && inner[6..12] != of.mac {
                of.behind.copy_from_slice(&inner[6..12]);
            }
        }
        self.take(side, received.station, inner)
    }

    /// Takes a frame of the host, or one that came over the line from a station.
    fn take(&mut self, side: usize, station: Option<usize>, frame: &[u8]) -> io::Result<()> {
        let inside = side == INSIDE;
        let before = self.line.sniffs();
        match course(&self.config, &mut self.line, frame, inside) {
            Course::Bridge => return self.bridge(side, station, frame),
            Course::Answered(answers) => self.answer(inside, answers),
            Course::Both(answers) => {
                self.answer(inside, answers);
                self.bridge(side, station, frame)?;
            }
        }
        if self.line.sniffs() && (!before || self.listener.is_none()) {
            self.listener = frame.get(6..12).and_then(|mac| mac.try_into().ok());
        }
        Ok(())
    }

    fn bridge(&mut self, side: usize, station: Option<usize>, frame: &[u8]) -> io::Result<()> {
        let tagged = matches!(frame.get(12..14), Some([0x81, 0x00] | [0x88, 0xa8]));
        if frame.len() < 14 || frame.len() > MOST_FRAME + if tagged { TAG } else { 0 } {
            return Ok(());
        }
        if side == INSIDE {
            return self.transmit(frame);
        }
        self.count(station, false, frame);
        match self.bridge.place(frame) {
            // It does not go back to the line.
            Some(Place::Station(_)) => Ok(()),
            _ => self.sides[INSIDE].send(frame).map(|_| ()),
        }
    }

    /// Sends a frame over the line, to the station that its receiver is behind, or to all.
    fn transmit(&mut self, frame: &[u8]) -> io::Result<()> {
        let station = match self.bridge.place(frame) {
            Some(Place::Inside) => return Ok(()),
            Some(Place::Station(station)) => Some(station),
            None => self.config.stations.iter().position(|s| frame.get(..6) == Some(&s.mac)),
        };
        self.count(station, true, frame);
        let to = station.and_then(|station| self.config.stations.get(station));
        self.sides[OUTSIDE].send(&wrap(self.config.mac, to, frame)).map(|_| ())
    }

    /// Without a medium a data frame counts for its station, or for the only one.
    fn count(&mut self, station: Option<usize>, tx: bool, frame: &[u8]) {
        if self.medium.is_some() || frame.get(12..14) == Some(&ETHER_TYPE) {
            return;
        }
        if let Some(station) = station.or(if self.config.stations.len() == 1 { Some(0) } else { None }) {
            self.line.carried(&self.config, station, tx, frame.len());
        }
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
                if delayed.inside {
                    self.sides[INSIDE].send(&delayed.frame)?;
                } else {
                    self.transmit(&delayed.frame)?;
                }
            }
        }
        Ok(())
    }

    fn indicate(&mut self, now_ns: u64) -> io::Result<()> {
        for delimiter in self.line.indications() {
            if let Some(to) = self.listener {
                self.sides[INSIDE].send(&indication(&self.config, to, &delimiter, now_ns / 1000))?;
            }
        }
        Ok(())
    }
}
