//! The waypoint's shell: the other end of clients' tunnels, one thread, one UDP socket, one TUN.
//!
//! Inner packets leave by the TUN with the client's inner address; what becomes of them, forwarding or delivery, is the
//! host's business. Each client has an engine of its own.

use super::config::{Request, SessionRequest};
use super::control::{Answer, Control, Handler};
use super::engine::{Effects, Engine, Session};
use super::host;
use super::options::Options;
use super::report;
use super::send::{Taken, To};
use super::shell::{BUFFER_BYTES, LARGE_BYTES, MOST_BUFFERS, MOST_LARGE};
use super::tunnel::session_of;
use crate::edge::buffer::Pool;
use crate::ip;
use crate::sys::clock::monotonic_ns;
use crate::sys::epoll::{Epoll, Event, Interest};
use crate::sys::process::{die_with_parent, low_latency, Signals};
use crate::sys::socket::Sent;
use crate::sys::tun::{Tun, TunOptions};
use crate::sys::udp::{BoundUdp, DatagramBatch};
use serde_json::{json, Value};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::io;
use std::net::{IpAddr, SocketAddr};

const SIGNAL_TOKEN: u64 = 1;
const TUN_TOKEN: u64 = 2;
const UDP_TOKEN: u64 = 3;
const BUDGET: usize = 64;
const DATAGRAMS: usize = 32;
const MOST_SESSIONS: usize = 4096;
const MOST_LOCALS: usize = 16 * MOST_SESSIONS;
/// A full device queue tells nothing when it has room again.
const RETRY_NS: u64 = 200_000;
/// After many datagrams in one call did not work.
const REST_NS: u64 = 1_000_000_000;

struct Client {
    name: String,
    engine: Engine,
    /// Something came or is due.
    is_active: bool,
    due_ns: u64,
    /// Its entry among what is due; never later than `due_ns`.
    entered_ns: u64,
    /// It waits for room in the socket.
    is_stalled: bool,
}

/// The address of ours that each client's interface sends to: behind another one, a NAT or firewall would let nothing
/// back. Clients that have sent nothing since there were too many are answered from the address that the routes choose.
#[derive(Default)]
struct Locals(HashMap<SocketAddr, IpAddr>);

impl Locals {
    fn note(&mut self, client: SocketAddr, local: Option<IpAddr>) {
        if let Some(local) = local {
            if self.0.len() >= MOST_LOCALS && !self.0.contains_key(&client) {
                self.0.clear();
            }
            self.0.insert(client, local);
        }
    }

    /// All datagrams of `taken` in one call.
    fn send_burst(&self, udp: &BoundUdp, head: &[u8], taken: &Taken, to: SocketAddr) -> Sent {
        let datagrams = std::iter::once([head, taken.bytes()]).chain(taken.more());
        udp.send_many(datagrams, to, self.0.get(&to).copied()).unwrap_or(Sent::NoRoute)
    }

    fn send(&self, udp: &BoundUdp, head: &[u8], body: &[u8], to: SocketAddr) -> Sent {
        let sent = match self.0.get(&to) {
            Some(local) => udp.send_from(head, body, to, *local),
            None => udp.send_to(head, body, to),
        };
        sent.unwrap_or(Sent::NoRoute)
    }
}

struct Waypoint {
    clients: HashMap<u32, Client>,
    by_address: HashMap<IpAddr, u32>,
    active: Vec<u32>,
    /// When to look after which session. Most are idle: none is looked at in vain. An entry counts if it is its client's.
    due: BinaryHeap<Reverse<(u64, u32)>>,
    stalled: Vec<u32>,
    fx: Effects,
    tun: Tun,
    udp: BoundUdp,
    locals: Locals,
    datagrams: DatagramBatch,
    blocked_ns: Option<u64>,
    bursts_rest_until_ns: u64,
    strangers: u64,
    begun_ns: u64,
}

/// Runs until SIGTERM or SIGINT.
pub fn run(options: &Options, listen: SocketAddr) -> io::Result<()> {
    if options.die_with_parent {
        die_with_parent(None)?;
    }
    let mut epoll = Epoll::new(64)?;
    let signals = Signals::termination()?;
    epoll.add(&signals, SIGNAL_TOKEN, Interest::READ)?;
    let mut control = Control::listen(&options.control, &epoll)?;
    let udp = BoundUdp::open(None, listen, None)?;
    epoll.add(&udp, UDP_TOKEN, Interest::READ)?;
    let tun = Tun::open(&TunOptions {
        mtu: Some(options.mtu),
        persistent: true,
        queue_packets: Some(1000),
        segments: true,
        ..TunOptions::new(&options.tun)
    })?;
    epoll.add(&tun, TUN_TOKEN, Interest::READ)?;
    if let Some(warning) = low_latency(options.realtime) {
        crate::tell!("hyroads-client: warning: {warning}");
    }
    let mut waypoint = Waypoint {
        clients: HashMap::new(),
        by_address: HashMap::new(),
        active: Vec::new(),
        due: BinaryHeap::new(),
        stalled: Vec::new(),
        fx: Effects::new(Pool::new(BUFFER_BYTES, 4 * MOST_BUFFERS).with_large(LARGE_BYTES, MOST_LARGE)),
        tun,
        udp,
        locals: Locals::default(),
        datagrams: DatagramBatch::new(DATAGRAMS, BUFFER_BYTES),
        blocked_ns: None,
        bursts_rest_until_ns: 0,
        strangers: 0,
        begun_ns: monotonic_ns(),
    };
    let mut events: Vec<Event> = Vec::new();
    loop {
        let timeout = waypoint.due_ns().saturating_sub(monotonic_ns());
        epoll.wait(Some(timeout), &mut events)?;
        for event in &events {
            match event.token {
                SIGNAL_TOKEN if signals.read()?.is_some() => return waypoint.tun.remove(),
                SIGNAL_TOKEN => {}
                TUN_TOKEN => waypoint.read_tun()?,
                UDP_TOKEN => waypoint.on_udp(*event, &epoll),
                token => control.on_event(token, &epoll, &mut waypoint),
            }
        }
        waypoint.turn(&epoll);
    }
}

impl Waypoint {
    fn due_ns(&self) -> u64 {
        let due = self.due.peek().map_or(u64::MAX, |Reverse((at_ns, _))| *at_ns);
        let due = if self.active.is_empty() { due } else { 0 };
        self.blocked_ns.map_or(due, |at| due.min(at))
    }

    fn activate(clients: &mut HashMap<u32, Client>, active: &mut Vec<u32>, session: u32) {
        if let Some(client) = clients.get_mut(&session) {
            if !std::mem::replace(&mut client.is_active, true) {
                active.push(session);
            }
        }
    }

    fn read_tun(&mut self) -> io::Result<()> {
        let now_ns = monotonic_ns();
        for _ in 0..BUDGET {
            // The engine leaves all of them for this.
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
            let to = ip::parse(buf.bytes()).ok().map(|packet| packet.tuple.destination.address);
            let session = to.and_then(|to| self.by_address.get(&to).copied());
            match session.and_then(|session| self.clients.get_mut(&session).map(|client| (session, client))) {
                Some((session, client)) => {
                    let fx = &mut self.fx;
                    if size > 0 {
                        client.engine.from_host_segments(now_ns, buf, size, fx);
                    } else {
                        client.engine.from_host_whole(now_ns, buf, fx);
                    }
                    Self::activate(&mut self.clients, &mut self.active, session);
                }
                None => {
                    self.fx.drops.unroutable += 1;
                    self.fx.pool.give(buf);
                }
            }
        }
        Ok(())
    }

    fn on_udp(&mut self, event: Event, epoll: &Epoll) {
        if event.writable {
            self.unblock(epoll);
        }
        if !event.readable || self.udp.receive(&mut self.datagrams).is_err() {
            return;
        }
        let now_ns = monotonic_ns();
        for (from, local, bytes) in self.datagrams.items_with_local() {
            let session = session_of(bytes).unwrap_or(0);
            let client = match self.clients.get_mut(&session) {
                Some(client) => client,
                None => {
                    self.strangers += 1;
                    continue;
                }
            };
            match self.fx.pool.take_with(bytes) {
                Some(buf) => {
                    if client.engine.from_tunnel(now_ns, buf, from, &mut self.fx) {
                        self.locals.note(from, local);
                        Self::activate(&mut self.clients, &mut self.active, session);
                    }
                }
                None => self.fx.drops.overrun += 1,
            }
        }
    }

    fn unblock(&mut self, epoll: &Epoll) {
        if self.blocked_ns.take().is_some() {
            // The socket is there for as long as the program runs.
            let _ = epoll.modify(&self.udp, UDP_TOKEN, Interest::READ);
            for session in self.stalled.drain(..) {
                if let Some(client) = self.clients.get_mut(&session) {
                    client.is_stalled = false;
                }
                Self::activate(&mut self.clients, &mut self.active, session);
            }
        }
    }

    /// Does what is due and sends what waits.
    fn turn(&mut self, epoll: &Epoll) {
        let now_ns = monotonic_ns();
        if self.blocked_ns.map_or(false, |at| at <= now_ns) {
            self.unblock(epoll);
        }
        self.activate_due(now_ns);
        for session in std::mem::take(&mut self.active) {
            if let Some(client) = self.clients.get_mut(&session) {
                client.is_active = false;
                if client.engine.next_due(now_ns) <= now_ns {
                    client.engine.poll(now_ns, &mut self.fx);
                }
            }
            for message in self.fx.messages.drain(..) {
                // A hello that is not answered comes again.
                let _ = self.locals.send(&self.udp, message.bytes(), &[], message.to);
            }
            if self.blocked_ns.is_none() {
                self.send(session, epoll);
            }
            self.enter(session);
        }
        host::write_tun(&self.tun, &mut self.fx);
        self.fx.notices.clear();
    }

    fn activate_due(&mut self, now_ns: u64) {
        while let Some(Reverse((at_ns, session))) = self.due.peek().copied().filter(|due| due.0 .0 <= now_ns) {
            self.due.pop();
            let client = match self.clients.get_mut(&session) {
                Some(client) if client.entered_ns == at_ns => client,
                _ => continue,
            };
            client.entered_ns = u64::MAX;
            if client.due_ns <= now_ns {
                Self::activate(&mut self.clients, &mut self.active, session);
            } else {
                client.entered_ns = client.due_ns;
                self.due.push(Reverse((client.due_ns, session)));
            }
        }
    }

    /// Notes when a session is to be looked after next.
    fn enter(&mut self, session: u32) {
        if let Some(client) = self.clients.get_mut(&session) {
            let now_ns = monotonic_ns();
            client.due_ns = client.next_due(now_ns);
            if self.blocked_ns.is_some() && client.due_ns <= now_ns {
                // What waits for room is not due before there is some.
                client.due_ns = client.engine.next_due(now_ns);
                if !std::mem::replace(&mut client.is_stalled, true) {
                    self.stalled.push(session);
                }
            }
            if client.due_ns < client.entered_ns {
                client.entered_ns = client.due_ns;
                self.due.push(Reverse((client.due_ns, session)));
            }
        }
    }

    fn send(&mut self, session: u32, epoll: &Epoll) {
        let engine = match self.clients.get_mut(&session) {
            Some(client) => &mut client.engine,
            None => return,
        };
        for number in 0..engine.links.len() {
            for _ in 0..BUDGET {
                let now_ns = monotonic_ns();
                engine.links[number].takes_bursts = now_ns >= self.bursts_rest_until_ns;
                if engine.ready_at(now_ns, number).map_or(true, |at| at > now_ns) {
                    break;
                }
                let taken = match engine.take(now_ns, number, &mut self.fx) {
                    Some(taken) => taken,
                    None => break,
                };
                let is_burst = taken.more().len() > 0;
                let sent = match &taken.to {
                    To::Tunnel { head, to } if is_burst => self.locals.send_burst(&self.udp, head, &taken, *to),
                    To::Tunnel { head, to } => self.locals.send(&self.udp, head, taken.bytes(), *to),
                    To::Wire(_) => Sent::NoRoute,
                };
                match sent {
                    Sent::Done => engine.sent(now_ns, number, taken, &mut self.fx),
                    // Single ones may still pass, and the kernel says better what is wrong.
                    Sent::TooBig | Sent::NoRoute if is_burst => {
                        engine.put_back(now_ns, number, taken);
                        self.bursts_rest_until_ns = now_ns + REST_NS;
                    }
                    Sent::TooBig => engine.refused(number, taken, true, &mut self.fx),
                    Sent::NoRoute => engine.refused(number, taken, false, &mut self.fx),
                    Sent::NotNow => {
                        engine.put_back(now_ns, number, taken);
                        if epoll.modify(&self.udp, UDP_TOKEN, Interest::BOTH).is_ok() {
                            self.blocked_ns = Some(now_ns + RETRY_NS);
                        }
                        return;
                    }
                }
            }
        }
    }

    fn set_session(&mut self, bind: &SessionRequest) -> Result<(), String> {
        let session = Session::of_waypoint(bind.session, bind.key()?);
        let addresses: Vec<IpAddr> =
            bind.address4.map(IpAddr::V4).into_iter().chain(bind.address6.map(IpAddr::V6)).collect();
        for address in &addresses {
            if self.by_address.get(address).map_or(false, |holder| *holder != bind.session) {
                return Err(format!("{address} is the address of another session"));
            }
        }
        let is_full = self.clients.len() >= MOST_SESSIONS;
        match self.clients.get_mut(&bind.session) {
            Some(client) => {
                client.engine.config.address4 = bind.address4;
                client.engine.config.address6 = bind.address6;
                client.engine.renew(session, &mut self.fx);
                client.name = bind.client.clone();
            }
            None if is_full => return Err(format!("there are {MOST_SESSIONS} sessions")),
            None => {
                let engine = Engine::waypoint(session, bind.address4, bind.address6);
                let name = bind.client.clone();
                let client = Client {
                    name,
                    engine,
                    is_active: false,
                    due_ns: u64::MAX,
                    entered_ns: u64::MAX,
                    is_stalled: false,
                };
                self.clients.insert(bind.session, client);
            }
        }
        self.by_address.retain(|_, holder| *holder != bind.session);
        self.by_address.extend(addresses.into_iter().map(|address| (address, bind.session)));
        Ok(())
    }

    fn end_session(&mut self, session: u32) -> Result<(), String> {
        let mut client = self.clients.remove(&session).ok_or_else(|| format!("session {session}: there is none"))?;
        client.engine.end(monotonic_ns(), &mut self.fx);
        self.by_address.retain(|_, holder| *holder != session);
        Ok(())
    }

    fn status(&self) -> Value {
        let now_ns = monotonic_ns();
        let mut status = report::head(now_ns - self.begun_ns, &self.fx.drops, self.strangers, &self.fx.pool);
        let sessions = self.clients.iter().map(|(number, client)| {
            let links: Vec<Value> = client
                .engine
                .link_documents(&|_| (Vec::new(), false))
                .into_iter()
                .filter(|link| !link["endpoint"].is_null())
                .collect();
            let flows = client.engine.flow_documents(now_ns);
            let config = &client.engine.config;
            json!({"session": number, "client": client.name, "address4": config.address4, "address6": config.address6,
                   "interfaces": links, "flows": flows})
        });
        status["sessions"] = sessions.collect::<Vec<Value>>().into();
        status
    }
}

impl Client {
    fn next_due(&self, now_ns: u64) -> u64 {
        let links = 0..self.engine.links.len();
        let ready = links.filter_map(|number| self.engine.ready_at(now_ns, number));
        ready.fold(self.engine.next_due(now_ns), u64::min)
    }
}

impl Handler for Waypoint {
    fn request(&mut self, request: Request) -> Result<Answer, String> {
        match request {
            Request::Session(bind) => self.set_session(&bind).map(|()| Answer::Done),
            Request::EndSession { session, .. } => self.end_session(session).map(|()| Answer::Done),
            Request::Status { .. } => Ok(Answer::Status(self.status())),
            Request::Watch { .. } => Ok(Answer::Watches),
            Request::Configure(_) | Request::Migrate { .. } => Err("this is a waypoint, not a client".to_string()),
        }
    }
}
