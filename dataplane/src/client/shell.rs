//! The client's shell: one thread, one epoll loop around the engine.

use super::application::Owners;
use super::config::{Config, Request};
use super::control::{self, Answer, Control, Handler};
use super::devices::{self, Device, Host};
use super::engine::{Effects, Engine};
use super::host;
use super::options::Options;
use super::report;
use super::send::To;
use super::state::{self, StateFile};
use crate::edge::buffer::Pool;
use crate::ip::{Sum, Tuple};
use crate::sys::clock::monotonic_ns;
use crate::sys::epoll::{Epoll, Event, Interest};
use crate::sys::ip_tap::IpBatch;
use crate::sys::netlink::{Change, Monitor};
use crate::sys::process::{die_with_parent, low_latency, Signals};
use crate::sys::sock_owner::SocketOwners;
use crate::sys::socket::Sent;
use crate::sys::tun::{Tun, TunOptions};
use crate::sys::udp::DatagramBatch;
use std::io;

pub const BUFFER_BYTES: usize = 1792;
/// Buffers at most in use: 16 MB.
pub const MOST_BUFFERS: usize = 8192;
/// Buffers for packets that stand for several, and how many of them at most: 4 MiB.
pub const LARGE_BYTES: usize = 1 << 16;
pub const MOST_LARGE: usize = 64;
const SIGNAL_TOKEN: u64 = 1;
const TUN_TOKEN: u64 = 2;
const MONITOR_TOKEN: u64 = 3;
/// Packets read from, or given to, one side before the others get their turn.
const BUDGET: usize = 64;
const BUDGET_BYTES: usize = 256 << 10;
/// Carriers of interfaces in use are asked for this often, those of others now and then.
const CARRIER_NS: u64 = 2_000_000;
const IDLE_CARRIER_NS: u64 = 100_000_000;
const IN_USE_NS: u64 = 50_000_000;
/// Messages that may wait for room.
const MOST_MESSAGES: usize = 256;
const DATAGRAMS: usize = 16;
const PACKETS: usize = 16;

struct Client {
    engine: Engine,
    fx: Effects,
    tun: Tun,
    host: Host,
    devices: Vec<Option<Device>>,
    packets: IpBatch,
    datagrams: DatagramBatch,
    state: Option<StateFile>,
    restored: Vec<state::Saved>,
    strangers: u64,
    begun_ns: u64,
    carriers_ns: u64,
}

/// What one turn of the loop has found.
#[derive(Default)]
struct Found {
    tun: bool,
    links: bool,
    ended: bool,
}

/// Runs until SIGTERM or SIGINT.
pub fn run(options: &Options) -> io::Result<()> {
    if options.die_with_parent {
        die_with_parent(None)?;
    }
    let mut epoll = Epoll::new(64)?;
    let signals = Signals::termination()?;
    epoll.add(&signals, SIGNAL_TOKEN, Interest::READ)?;
    let mut monitor = Monitor::open()?;
    epoll.add(&monitor, MONITOR_TOKEN, Interest::READ)?;
    let mut control = Control::listen(&options.control, &epoll)?;
    let tun = Tun::open(&TunOptions {
        mtu: Some(options.mtu),
        persistent: true,
        queue_packets: Some(1000),
        segments: true,
        ..TunOptions::new(&options.tun)
    })?;
    epoll.add(&tun, TUN_TOKEN, Interest::READ)?;
    let (state, restored) = match &options.state {
        Some(path) => StateFile::open(path).map(|(file, saved)| (Some(file), saved))?,
        None => (None, Vec::new()),
    };
    if let Some(warning) = low_latency(options.realtime) {
        crate::tell!("hyroads-client: warning: {warning}");
    }
    let mut client = Client {
        engine: Engine::client(),
        fx: Effects::new(Pool::new(BUFFER_BYTES, MOST_BUFFERS).with_large(LARGE_BYTES, MOST_LARGE).prefilled()),
        tun,
        host: Host::default(),
        devices: Vec::new(),
        packets: IpBatch::new(PACKETS),
        datagrams: DatagramBatch::new(DATAGRAMS, BUFFER_BYTES),
        state,
        restored,
        strangers: 0,
        begun_ns: monotonic_ns(),
        carriers_ns: 0,
    };
    let mut events: Vec<Event> = Vec::new();
    loop {
        let timeout = client.timeout_ns(monotonic_ns());
        epoll.wait(Some(timeout), &mut events)?;
        let found = client.look(&events, &mut control, &signals, &epoll)?;
        if found.ended {
            return client.tun.remove();
        }
        client.turn(&found, &mut monitor, &epoll)?;
        client.tell(&mut control, &epoll);
    }
}

impl Client {
    fn timeout_ns(&self, now_ns: u64) -> u64 {
        let due = self.engine.next_due(now_ns).min(self.carriers_ns);
        let at = self.devices.iter().enumerate().filter_map(|(number, device)| {
            let device = device.as_ref()?;
            device.retry_at().or_else(|| self.engine.ready_at(now_ns, number))
        });
        at.fold(due, u64::min).saturating_sub(now_ns)
    }

    fn look(&mut self, events: &[Event], control: &mut Control, signals: &Signals, epoll: &Epoll) -> io::Result<Found> {
        let mut found = Found::default();
        for event in events {
            match event.token {
                SIGNAL_TOKEN => found.ended |= signals.read()?.is_some(),
                TUN_TOKEN => found.tun = true,
                MONITOR_TOKEN => found.links = true,
                devices::FIRST_TOKEN..=devices::LAST_TOKEN => self.on_device(*event, epoll),
                token => {
                    control.on_event(token, epoll, &mut Requests { client: self, epoll });
                }
            }
        }
        Ok(found)
    }

    fn on_device(&mut self, event: Event, epoll: &Epoll) {
        let number = ((event.token - devices::FIRST_TOKEN) / devices::TOKENS_EACH) as usize;
        let device = match self.devices.get_mut(number).and_then(Option::as_mut) {
            Some(device) => device,
            None => return,
        };
        if event.writable {
            device.unblock(epoll);
        }
        if event.readable && device.is_tap(event.token) {
            self.read_wire(number);
        } else if event.readable && device.is_tunnel(event.token) {
            self.read_tunnel(number);
        }
    }

    fn read_wire(&mut self, number: usize) {
        let device = match &self.devices[number] {
            Some(device) => device,
            None => return,
        };
        // An interface in trouble costs packets, never the program.
        if device.tap().receive(&mut self.packets).is_err() {
            return;
        }
        let now_ns = monotonic_ns();
        for (header, packet) in self.packets.items() {
            let sum = if header.needs_checksum() { Sum::Partial } else { Sum::Whole };
            if self.engine.from_wire(now_ns, number, packet, sum, &mut self.fx) {
                let whole = !header.needs_checksum() && !header.is_gso();
                let written = if whole { self.tun.write(packet) } else { self.tun.write_offloaded(&header, packet) };
                self.fx.drops.overrun += u64::from(!written.unwrap_or(false));
            }
        }
    }

    fn read_tunnel(&mut self, number: usize) {
        let received = match self.devices[number].as_ref().and_then(Device::udp) {
            Some(udp) => udp.receive(&mut self.datagrams),
            None => return,
        };
        if received.is_err() {
            return;
        }
        let now_ns = monotonic_ns();
        let waypoint = self.engine.config.waypoint.as_ref().map(|waypoint| waypoint.address);
        for (from, bytes) in self.datagrams.items() {
            if Some(from) != waypoint {
                self.strangers += 1;
                continue;
            }
            match self.fx.pool.take_with(bytes) {
                Some(buf) => {
                    self.engine.from_tunnel(now_ns, buf, from, &mut self.fx);
                }
                None => self.fx.drops.overrun += 1,
            }
        }
        self.write_tun();
    }

    fn turn(&mut self, found: &Found, monitor: &mut Monitor, epoll: &Epoll) -> io::Result<()> {
        if found.links {
            self.read_links(monitor, epoll)?;
        }
        let now_ns = monotonic_ns();
        if found.tun {
            self.read_tun(now_ns)?;
        }
        if self.engine.next_due(now_ns) <= now_ns {
            self.engine.poll(now_ns, &mut self.fx);
        }
        for device in self.devices.iter_mut().flatten() {
            if device.retry_at().map_or(false, |at| at <= now_ns) {
                device.unblock(epoll);
            }
        }
        if self.carriers_ns <= now_ns {
            self.ask_carriers(now_ns, epoll);
        }
        self.send_messages(now_ns, epoll);
        self.send_packets(epoll);
        self.write_tun();
        self.save();
        Ok(())
    }

    fn ask_carriers(&mut self, now_ns: u64, epoll: &Epoll) {
        let in_use = self.engine.links.iter().any(|link| link.used_within(now_ns, IN_USE_NS));
        self.carriers_ns = now_ns + if in_use { CARRIER_NS } else { IDLE_CARRIER_NS };
        let mut changed = false;
        for device in self.devices.iter_mut().flatten() {
            changed |= device.carrier_changed();
        }
        if changed {
            self.fit_devices(epoll);
        }
    }

    fn read_tun(&mut self, now_ns: u64) -> io::Result<()> {
        let mut bytes = 0;
        for _ in 0..BUDGET {
            // The engine leaves one for this.
            let mut buf = match self.fx.pool.take_large() {
                Some(buf) => buf,
                None => return Ok(()),
            };
            let (size, length) = match self.tun.read_segments(buf.space())? {
                Some(read) => read,
                None => {
                    self.fx.pool.give(buf);
                    return Ok(());
                }
            };
            buf.filled(length);
            if size > 0 {
                self.engine.from_host_segments(now_ns, buf, size, &mut self.fx);
            } else {
                self.engine.from_host_whole(now_ns, buf, &mut self.fx);
            }
            bytes += length;
            if bytes >= BUDGET_BYTES {
                break;
            }
        }
        Ok(())
    }

    /// Brings devices and engine up to date with what the kernel tells.
    fn read_links(&mut self, monitor: &mut Monitor, epoll: &Epoll) -> io::Result<()> {
        let mut changes = Vec::new();
        monitor.receive(&mut changes)?;
        // Neighbours come and go all the time.
        let only_neighbours = changes.iter().all(|change| matches!(change, Change::Neighbour(_)));
        changes.into_iter().for_each(|change| self.host.note(change));
        if only_neighbours {
            self.fit_hops();
        } else {
            self.fit_devices(epoll);
        }
        Ok(())
    }

    fn fit_hops(&mut self) {
        for device in self.devices.iter_mut().flatten() {
            device.set_hops(self.host.hops(device.index()));
        }
    }

    fn fit_devices(&mut self, epoll: &Epoll) {
        let now_ns = monotonic_ns();
        let waypoint = self.engine.config.waypoint.as_ref().map(|waypoint| waypoint.address);
        self.devices.resize_with(self.engine.links.len(), || None);
        for number in 0..self.engine.links.len() {
            let name = self.engine.links[number].name.clone();
            let (index, mut state) = self.host.find(&name).unwrap_or_default();
            let fits = |device: &Device| device.name() == name && device.fits(index, state.mtu, waypoint);
            if !self.devices[number].as_ref().map_or(false, fits) {
                self.devices[number] = None;
                if index > 0 && state.up {
                    match Device::open(&name, number, index, state.mtu, waypoint, epoll) {
                        Ok(device) => self.devices[number] = Some(device),
                        Err(error) => crate::tell!("hyroads-client: interface {name}: {error}"),
                    }
                }
            }
            state.up &= self.devices[number].as_ref().map_or(false, |device| device.has_carrier);
            self.engine.link_state(now_ns, number, state, &mut self.fx);
        }
        self.devices.iter_mut().flatten().for_each(Device::changed);
        self.fit_hops();
        let waiting = std::mem::take(&mut self.restored);
        for saved in waiting {
            if !self.engine.restore(now_ns, saved.tuple, &saved.interface, saved.wire, &mut self.fx)
                && self.engine.link_number(&saved.interface).is_none()
            {
                self.restored.push(saved);
            }
        }
    }

    /// Messages go before packets; one that finds no room waits for it.
    fn send_messages(&mut self, now_ns: u64, epoll: &Epoll) {
        let messages = std::mem::take(&mut self.fx.messages);
        let excess = messages.len().saturating_sub(MOST_MESSAGES);
        for message in messages.into_iter().skip(excess) {
            let number = usize::from(message.link);
            let sent = match self.devices.get_mut(number).and_then(Option::as_mut) {
                Some(device) if !device.is_blocked() => {
                    device.send_udp(now_ns, message.bytes(), &[], message.to, epoll)
                }
                Some(_) => Sent::NotNow,
                None => Sent::NoRoute,
            };
            if sent == Sent::NotNow {
                self.fx.messages.push(message);
            }
        }
    }

    fn send_packets(&mut self, epoll: &Epoll) {
        for number in 0..self.devices.len() {
            let device = match &mut self.devices[number] {
                Some(device) if !device.is_blocked() => device,
                _ => continue,
            };
            let mut bytes = 0;
            for _ in 0..BUDGET {
                let now_ns = monotonic_ns();
                self.engine.links[number].takes_segments = device.takes_segments(now_ns);
                self.engine.links[number].takes_bursts = device.takes_bursts(now_ns);
                if self.engine.ready_at(now_ns, number).map_or(true, |at| at > now_ns) {
                    break;
                }
                let taken = match self.engine.take(now_ns, number, &mut self.fx) {
                    Some(taken) => taken,
                    None => break,
                };
                let parts = taken.parts();
                let is_burst = taken.more().len() > 0;
                let sent = match (&taken.to, &taken.piece) {
                    (To::Wire(_), Some(piece)) if piece.segments > 1 => {
                        let longest = self.engine.links[number].piece_bytes(piece.is_ipv6);
                        device.send_segments(now_ns, piece, parts, longest, epoll)
                    }
                    (To::Wire(to), _) => device.send_raw(now_ns, parts, to.is_ipv4(), epoll),
                    (To::Tunnel { head, to }, _) if is_burst => device.send_burst(now_ns, head, &taken, *to, epoll),
                    (To::Tunnel { head, to }, _) => device.send_udp(now_ns, head, taken.bytes(), *to, epoll),
                };
                bytes += if is_burst { taken.inner_bytes() } else { parts[0].len() + parts[1].len() };
                match sent {
                    Sent::Done => self.engine.sent(now_ns, number, taken, &mut self.fx),
                    Sent::NotNow => {
                        self.engine.put_back(now_ns, number, taken);
                        break;
                    }
                    Sent::TooBig => self.engine.refused(number, taken, true, &mut self.fx),
                    Sent::NoRoute => self.engine.refused(number, taken, false, &mut self.fx),
                }
                if bytes >= BUDGET_BYTES {
                    break;
                }
            }
        }
    }

    fn write_tun(&mut self) {
        host::write_tun(&self.tun, &mut self.fx);
    }

    fn save(&mut self) {
        for slot in self.engine.changed.drain(..) {
            if let Some(state) = &mut self.state {
                let flow = self.engine.flows.get(slot).and_then(|flow| Some((flow.tuple, flow.wire?)));
                let saved = flow.map(|(tuple, wire)| state::Saved {
                    tuple,
                    wire: wire.tuple,
                    interface: self.engine.links[usize::from(wire.link)].name.clone(),
                });
                if let Err(error) = state.write(slot, saved.as_ref()) {
                    crate::tell!("hyroads-client: state file: {error}; flows will not survive a restart");
                    self.state = None;
                }
            }
        }
    }

    fn tell(&mut self, control: &mut Control, epoll: &Epoll) {
        let notices = std::mem::take(&mut self.fx.notices);
        if control.is_watched() {
            for notice in notices {
                control.tell(&self.engine.event(&notice), epoll);
            }
        }
    }
}

impl Owners for SocketOwners {
    fn cgroup_of(&mut self, tuple: &Tuple) -> Option<Box<str>> {
        SocketOwners::cgroup_of(self, tuple)
    }
}

struct Requests<'a> {
    client: &'a mut Client,
    epoll: &'a Epoll,
}

impl Handler for Requests<'_> {
    fn request(&mut self, request: Request) -> Result<Answer, String> {
        let client = &mut *self.client;
        let now_ns = monotonic_ns();
        match request {
            Request::Configure(bind) => {
                let config = Config::of(&bind)?;
                if let (Some(rule), None) = (config.first_of_application(), &client.engine.owners) {
                    let owners = SocketOwners::open().map_err(|e| format!("rules[{rule}].match.application: {e}"))?;
                    client.engine.owners = Some(Box::new(owners));
                }
                client.engine.configure(now_ns, config, &mut client.fx);
                client.fit_devices(self.epoll);
                Ok(Answer::Done)
            }
            Request::Migrate { flow, interface, .. } => {
                let number = u16::try_from(flow).map_err(|_| format!("flow {flow}: there is none"))?;
                client.engine.migrate(now_ns, number, &interface, &mut client.fx)?;
                // The order takes effect with the next packet; the waypoint hears of it now.
                client.engine.poll(now_ns, &mut client.fx);
                client.send_messages(now_ns, self.epoll);
                Ok(Answer::Done)
            }
            Request::Status { .. } => {
                let uptime_ns = now_ns - client.begun_ns;
                let mut status = report::head(uptime_ns, &client.fx.drops, client.strangers, &client.fx.pool);
                let host = &client.host;
                status["interfaces"] = client.engine.link_documents(&|name| host.shown(name)).into();
                status["flows"] = client.engine.flow_documents(now_ns).into();
                Ok(Answer::Status(status))
            }
            Request::Watch { .. } => Ok(Answer::Watches),
            Request::Session(_) | Request::EndSession { .. } => Err("this is a client, not a waypoint".to_string()),
        }
    }
}

/// Tokens of the control socket are beyond all others.
const _: () = assert!(control::FIRST_TOKEN > devices::LAST_TOKEN);
