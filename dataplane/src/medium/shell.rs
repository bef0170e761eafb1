//! The running emulator: TAP devices, radios, the control socket and the clock around the model.

use super::config::Config;
use super::control::{Control, Meter};
use super::frame::Frame;
use super::model::Model;
use super::radios::Radios;
use crate::sys::clock::{cpu_ns, monotonic_ns};
use crate::sys::epoll::{Epoll, Event, Interest};
use crate::sys::lines::{LineStream, Peer};
use crate::sys::netns::in_namespace;
use crate::sys::process::Signals;
use crate::sys::tap::{Tap, TapOptions};
use crate::sys::unix::{remove_stale, ControlSocket};
use std::collections::HashMap;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;

const TOKEN_SIGNALS: u64 = 1 << 32;
const TOKEN_SOCKET: u64 = TOKEN_SIGNALS + 1;
const TOKEN_RADIOS: u64 = TOKEN_SIGNALS + 2;
const TOKEN_FIRST_CLIENT: u64 = 1 << 33;
/// Frames taken from one port before the others get their turn.
const FRAMES_PER_TURN: usize = 64;
const MAX_CLIENTS: usize = 64;
/// Room for a VLAN tag or two behind the Ethernet header.
const FRAME_EXTRA_BYTES: usize = 14 + 8;

/// A frame read from a port and the time it counts as arrived at.
struct Arrival {
    at_ns: u64,
    port: usize,
    frame: Frame,
}

/// Everything the emulator owns; the TAP devices vanish with it.
pub struct Shell {
    // Dropped in this order: the socket is there only while all ports are.
    socket: ControlSocket,
    taps: Vec<Option<Tap>>,
    radios: Option<Radios>,
    model: Model,
    control: Control,
    meter: Meter,
    epoll: Epoll,
    signals: Signals,
    clients: HashMap<u64, LineStream<UnixStream>>,
    next_client: u64,
    arrivals: Vec<Arrival>,
    scratch: Vec<u8>,
}

impl Shell {
    /// Opens all ports, then the control socket: once it is there, everything is. A second emulator on the same socket is
    /// refused before it touches anything.
    pub fn open(config: &Config, socket_path: &Path) -> io::Result<Shell> {
        let signals = Signals::termination()?;
        remove_stale(socket_path)?;
        let epoll = Epoll::new(256)?;
        epoll.add(&signals, TOKEN_SIGNALS, Interest::READ)?;
        let mut taps = Vec::with_capacity(config.ports.len());
        for (i, port) in config.ports.iter().enumerate() {
            if port.radio.is_some() {
                taps.push(None);
                continue;
            }
            let options = TapOptions { mac: Some(port.mac), mtu: Some(port.mtu), ..TapOptions::new(&port.name) };
            let tap = in_namespace(port.netns.as_deref(), || Tap::open(&options))?;
            epoll.add(&tap, i as u64, Interest::READ)?;
            taps.push(Some(tap));
        }
        let radios = Radios::open(config)?;
        if let Some(radios) = &radios {
            epoll.add(radios, TOKEN_RADIOS, Interest::READ)?;
        }
        let socket = ControlSocket::listen(socket_path)?;
        epoll.add(&socket, TOKEN_SOCKET, Interest::READ)?;
        Ok(Shell {
            socket,
            taps,
            radios,
            model: Model::new(config, monotonic_ns()),
            control: Control::new(config),
            meter: Meter::from(cpu_ns()),
            epoll,
            signals,
            clients: HashMap::new(),
            next_client: TOKEN_FIRST_CLIENT,
            arrivals: Vec::new(),
            scratch: vec![0; config.options.mtu as usize + FRAME_EXTRA_BYTES],
        })
    }

    /// Serves until SIGTERM or SIGINT.
    pub fn run(&mut self) -> io::Result<()> {
        let mut events = Vec::with_capacity(256);
        loop {
            let (due_ns, from_ns) = (self.model.next_event_ns(), monotonic_ns());
            let waits = !self.radios.as_ref().map_or(false, Radios::has_frames);
            let timeout_ns = if waits { due_ns.map(|due| due.saturating_sub(from_ns)) } else { Some(0) };
            self.epoll.wait(timeout_ns, &mut events)?;
            let now_ns = monotonic_ns();
            self.meter.woken_late.note(due_ns, from_ns, now_ns);
            self.serve_medium(&events, now_ns)?;
            for event in events.iter().filter(|e| e.token >= TOKEN_SIGNALS) {
                match event.token {
                    TOKEN_SIGNALS => {
                        if self.signals.read()?.is_some() {
                            return Ok(());
                        }
                    }
                    TOKEN_SOCKET => self.accept()?,
                    TOKEN_RADIOS => {}
                    _ => self.serve_client(*event),
                }
            }
        }
    }

    /// Reads what hosts sent and lets the medium catch up with `now_ns`.
    ///
    /// If the process comes late, frames have waited in the devices while the medium stood still. They count as arrived
    /// evenly between the moment something was due and now: a link whose queue ran dry meanwhile then goes on in virtual
    /// time, and lateness does not cost capacity.
    fn serve_medium(&mut self, events: &[Event], now_ns: u64) -> io::Result<()> {
        let due_ns = self.model.next_event_ns().map_or(now_ns, |due| due.min(now_ns));
        self.meter.lateness_max_ns = self.meter.lateness_max_ns.max(now_ns - due_ns);
        let mut arrivals = std::mem::take(&mut self.arrivals);
        for event in events.iter().filter(|e| e.token < TOKEN_SIGNALS) {
            self.read_port(event.token as usize, due_ns, now_ns, &mut arrivals);
        }
        if let Some(radios) = &mut self.radios {
            let (first, readable) = (arrivals.len(), events.iter().any(|e| e.token == TOKEN_RADIOS));
            arrivals.extend(radios.read(readable, &mut self.model)?.map(|(port, frame)| Arrival {
                at_ns: 0,
                port,
                frame,
            }));
            spread(&mut arrivals[first..], due_ns, now_ns);
        }
        arrivals.sort_by_key(|arrival| arrival.at_ns);
        let (taps, radios) = (&self.taps, &mut self.radios);
        let mut deliver = |port: usize, frame: &Frame| match (&taps[port], radios.as_mut()) {
            // A port that fails is found out when it is read.
            (Some(tap), _) => tap.write(frame).unwrap_or(false),
            (None, Some(radios)) => radios.deliver(port, frame),
            (None, None) => false,
        };
        for Arrival { at_ns, port, frame } in arrivals.drain(..) {
            self.model.advance(at_ns, &mut deliver);
            self.model.receive(port, frame, at_ns);
        }
        self.model.advance(now_ns, &mut deliver);
        self.arrivals = arrivals;
        self.radios.as_mut().map_or(Ok(()), |radios| radios.settle(&mut self.model))
    }

    fn read_port(&mut self, port: usize, due_ns: u64, now_ns: u64, arrivals: &mut Vec<Arrival>) {
        let first = arrivals.len();
        let mut failure = None;
        if let Some(Some(tap)) = self.taps.get(port) {
            while arrivals.len() - first < FRAMES_PER_TURN {
                match tap.read(&mut self.scratch) {
                    Ok(Some(length)) => {
                        let mut frame = self.model.take_buffer();
                        frame.extend_from_slice(&self.scratch[..length]);
                        arrivals.push(Arrival { at_ns: 0, port, frame: frame.into() });
                    }
                    Ok(None) => break,
                    Err(error) => {
                        failure = Some(error);
                        break;
                    }
                }
            }
        }
        spread(&mut arrivals[first..], due_ns, now_ns);
        if let Some(error) = failure {
            self.close_port(port, &error);
        }
    }

    /// The device is gone (deleted, or its namespace was): the others go on.
    fn close_port(&mut self, port: usize, error: &io::Error) {
        crate::tell!("hyroads-medium: port closed: {error}");
        if let Some(tap) = self.taps[port].take() {
            if let Err(error) = self.epoll.remove(&tap) {
                crate::tell!("hyroads-medium: {error}");
            }
        }
    }

    fn accept(&mut self) -> io::Result<()> {
        while let Some(stream) = self.socket.accept()? {
            if self.clients.len() >= MAX_CLIENTS {
                crate::tell!("hyroads-medium: more than {MAX_CLIENTS} control clients, one refused");
                continue;
            }
            let token = self.next_client;
            self.next_client += 1;
            self.epoll.add(&stream, token, Interest::READ)?;
            self.clients.insert(token, LineStream::new(stream));
        }
        Ok(())
    }

    /// A client that misbehaves is closed; that concerns nobody else.
    fn serve_client(&mut self, event: Event) {
        if let Some(mut client) = self.clients.remove(&event.token) {
            match self.converse(&mut client, event) {
                Ok(Peer::Open) => {
                    self.clients.insert(event.token, client);
                }
                Ok(Peer::Closed) => {}
                Err(error) => crate::tell!("hyroads-medium: control client closed: {error}"),
            }
        }
    }

    fn converse(&mut self, client: &mut LineStream<UnixStream>, event: Event) -> io::Result<Peer> {
        let peer = if event.readable { client.fill()? } else { Peer::Open };
        let mut answers = Vec::new();
        self.meter.radios = self.radios.as_ref().map(Radios::counters);
        while let Some(line) = client.next_line()? {
            answers.push(self.control.handle(line, &mut self.model, &mut self.meter, cpu_ns()));
        }
        answers.iter().try_for_each(|answer| client.queue(answer))?;
        let done = client.flush()?;
        self.epoll.modify(client, event.token, if done { Interest::READ } else { Interest::BOTH })?;
        Ok(peer)
    }
}

/// Lets arrivals of one source count as evenly spread over the time in which they came.
fn spread(arrivals: &mut [Arrival], due_ns: u64, now_ns: u64) {
    let count = arrivals.len() as u64;
    for (i, arrival) in arrivals.iter_mut().enumerate() {
        arrival.at_ns = due_ns + (now_ns - due_ns) * i as u64 / count;
    }
}
