//! Control connections: controllers over TCP, which the agent dials again and again, and anyone on the Unix socket.
//!
//! Any number of sessions may read. Once one has said that it leads, only that of the greatest epoch may change anything.

use super::changes::Changes;
use super::epochs::Epochs;
use super::protocol::{parse_request, Refusal, Reply, Request, Welcome};
use crate::sys::clock::monotonic_ns;
use crate::sys::epoll::{Epoll, Interest};
use crate::sys::lines::{LineStream, Peer};
use crate::sys::tcp;
use crate::sys::tls::{self, TlsStream};
use crate::sys::unix::ControlSocket;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::io::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;

const MS: u64 = 1_000_000;
const FIRST_BACKOFF_NS: u64 = 100 * MS;
const LAST_BACKOFF_NS: u64 = 2_000 * MS;
/// For the connection to be made, and for the controller's welcome.
const WELCOME_TIMEOUT_NS: u64 = 5_000 * MS;
/// A controller is dead if it says nothing for so many of its ping intervals, and not before the minimum.
const DEAD_PINGS: u64 = 8;
const DEAD_MIN_NS: u64 = 2_000 * MS;
const MAX_UNIX_PEERS: usize = 16;
/// However often others ask whether the leader is heard, it is asked no more often.
const ASK_LEADER_NS: u64 = 20 * MS;
/// A controller that does not lead is told no more often.
const STANDBY_REPORT_NS: u64 = 1_000 * MS;

#[derive(Debug)]
pub enum Stream {
    Tcp(TcpStream),
    Tls(TlsStream),
    Unix(UnixStream),
}

impl Stream {
    fn tcp(&self) -> Option<&TcpStream> {
        match self {
            Stream::Tcp(s) => Some(s),
            Stream::Tls(s) => Some(s.tcp()),
            Stream::Unix(_) => None,
        }
    }

    /// Whether what is to be written waits for the other side to say something.
    fn waits_to_read(&self) -> bool {
        matches!(self, Stream::Tls(s) if s.waits_to_read())
    }
}

impl Read for Stream {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(s) => s.read(out),
            Stream::Tls(s) => s.read(out),
            Stream::Unix(s) => s.read(out),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(s) => s.write(bytes),
            Stream::Tls(s) => s.write(bytes),
            Stream::Unix(s) => s.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsRawFd for Stream {
    fn as_raw_fd(&self) -> RawFd {
        match self {
            Stream::Tcp(s) => s.as_raw_fd(),
            Stream::Tls(s) => s.as_raw_fd(),
            Stream::Unix(s) => s.as_raw_fd(),
        }
    }
}

/// One connection.
#[derive(Debug)]
pub struct Connection {
    lines: LineStream<Stream>,
    token: u64,
    connected: bool,
    /// Which of the controllers it was dialled to.
    controller: Option<usize>,
    /// That the session has named; 0: it does not lead.
    epoch: u64,
    welcome: Option<Welcome>,
    /// If the other side asked for reports of what changed.
    changes: Option<Changes>,
    heard_ns: u64,
    pinged_ns: u64,
    reported_ns: u64,
    ping_seq: u64,
    writing: bool,
}

impl Connection {
    fn new(stream: Stream, token: u64, now_ns: u64, connected: bool, controller: Option<usize>) -> Self {
        Connection {
            lines: LineStream::new(stream),
            token,
            connected,
            controller,
            epoch: 0,
            welcome: None,
            changes: None,
            heard_ns: now_ns,
            pinged_ns: now_ns,
            reported_ns: now_ns,
            ping_seq: 0,
            writing: !connected,
        }
    }

    fn every(&self, interval_ms: Option<u64>) -> Option<u64> {
        interval_ms.filter(|ms| *ms > 0).map(|ms| ms.max(10) * MS)
    }

    fn report_ns(&self, epochs: Epochs) -> Option<u64> {
        let interval = self.every(self.welcome?.report_ms)?;
        Some(if epochs.obeys(self.epoch) { interval } else { interval.max(STANDBY_REPORT_NS) })
    }

    fn ping_ns(&self) -> Option<u64> {
        self.every(self.welcome?.ping_ms)
    }

    /// When the other side counts as dead.
    fn dead_at(&self) -> Option<u64> {
        match self.ping_ns() {
            Some(ping) => Some(self.heard_ns + (ping * DEAD_PINGS).max(DEAD_MIN_NS)),
            None if self.controller.is_some() && self.welcome.is_none() => Some(self.heard_ns + WELCOME_TIMEOUT_NS),
            None => None,
        }
    }

    fn next_due(&self, epochs: Epochs) -> Option<u64> {
        let ping = self.ping_ns().map(|ping| self.pinged_ns + ping);
        let report = self.report_ns(epochs).map(|report| self.reported_ns + report);
        [ping, report, self.dead_at()].into_iter().flatten().min()
    }
}

/// What the shell does with a request: it answers by lines.
pub trait Handler {
    /// Names the greatest epoch, if there is one.
    fn hello(&self, epoch: u64) -> String;
    /// The answer to a session that leads: what is in force.
    fn obeys(&self, seq: Option<u64>) -> String;
    /// Lines to answer, or an error.
    fn request(&mut self, seq: Option<u64>, request: Request) -> Result<Vec<String>, String>;
    /// Regular reports.
    fn report(&mut self) -> Vec<String>;
    /// Links that are down now, and what was read from ports: a controller that has just come must know.
    fn link_lines(&self) -> Vec<String>;
}

/// A controller that is dialled again and again.
#[derive(Debug)]
struct Dialled {
    address: SocketAddr,
    dial_ns: u64,
    backoff_ns: u64,
    was_connected: bool,
}

/// With what controllers are dialled over TLS: names as they were given, one for each.
#[derive(Debug)]
pub struct Security {
    pub context: tls::Context,
    pub names: Vec<String>,
}

#[derive(Debug)]
pub struct Control {
    controllers: Vec<Dialled>,
    security: Option<Security>,
    listener: Option<ControlSocket>,
    connections: Vec<Connection>,
    next_token: u64,
    jitter: u64,
    epochs: Epochs,
    /// When the leader was last asked for a sign of life, because another one wanted to know.
    asked_leader_ns: Option<u64>,
}

/// Token of the Unix listener; connections have higher ones.
pub const LISTENER_TOKEN: u64 = 1 << 32;

impl Control {
    pub fn new(
        controllers: &[SocketAddr],
        security: Option<Security>,
        listener: Option<ControlSocket>,
        seed: u64,
        epoll: &Epoll,
    ) -> io::Result<Self> {
        if let Some(listener) = &listener {
            epoll.add(listener, LISTENER_TOKEN, Interest::READ)?;
        }
        let dialled = |address: &SocketAddr| Dialled {
            address: *address,
            dial_ns: 0,
            backoff_ns: FIRST_BACKOFF_NS,
            was_connected: false,
        };
        Ok(Control {
            controllers: controllers.iter().map(dialled).collect(),
            security,
            listener,
            connections: Vec::new(),
            next_token: LISTENER_TOKEN + 1,
            jitter: seed | 1,
            epochs: Epochs::default(),
            asked_leader_ns: None,
        })
    }

    fn add(
        &mut self,
        stream: Stream,
        connected: bool,
        controller: Option<usize>,
        now_ns: u64,
        epoll: &Epoll,
    ) -> io::Result<()> {
        let token = self.next_token;
        self.next_token += 1;
        let interest = if connected { Interest::READ } else { Interest::BOTH };
        epoll.add(&stream, token, interest)?;
        self.connections.push(Connection::new(stream, token, now_ns, connected, controller));
        Ok(())
    }

    fn is_dialled(&self, which: usize) -> bool {
        self.connections.iter().any(|c| c.controller == Some(which))
    }

    /// Dials every controller that has no connection, as it is time.
    fn dial(&mut self, now_ns: u64, epoll: &Epoll) {
        for which in 0..self.controllers.len() {
            if now_ns < self.controllers[which].dial_ns || self.is_dialled(which) {
                continue;
            }
            let dialled = tcp::dial(&self.controllers[which].address).and_then(|s| self.secured(s, which));
            let made = dialled.and_then(|s| self.add(s, false, Some(which), now_ns, epoll));
            if made.is_err() {
                self.back_off(which, now_ns);
            }
        }
    }

    fn secured(&self, stream: TcpStream, which: usize) -> io::Result<Stream> {
        match &self.security {
            Some(security) => security.context.over(stream, &security.names[which]).map(Stream::Tls),
            None => Ok(Stream::Tcp(stream)),
        }
    }

    /// Doubles the pause, within 25 % of jitter so that a thousand agents don't come back at once.
    fn back_off(&mut self, which: usize, now_ns: u64) {
        self.jitter ^= self.jitter << 13;
        self.jitter ^= self.jitter >> 7;
        self.jitter ^= self.jitter << 17;
        let dialled = &mut self.controllers[which];
        let quarter = dialled.backoff_ns / 4;
        dialled.dial_ns = now_ns + dialled.backoff_ns - quarter + self.jitter % (2 * quarter);
        dialled.backoff_ns = (2 * dialled.backoff_ns).min(LAST_BACKOFF_NS);
    }

    /// A descriptor of ours is ready.
    pub fn on_event(&mut self, token: u64, epoll: &Epoll, handler: &mut dyn Handler) {
        let now_ns = monotonic_ns();
        if token == LISTENER_TOKEN {
            self.accept(now_ns, epoll, handler);
            return;
        }
        if let Some(at) = self.connections.iter().position(|c| c.token == token) {
            let mut wants_leader = false;
            let result = self.serve(at, now_ns, handler, &mut wants_leader);
            self.settle(at, result, now_ns, epoll);
            if wants_leader {
                self.ask_leader(now_ns, epoll);
            }
        }
    }

    /// How long ago the session that leads said something; none if nobody leads, or it is gone.
    fn leader_heard_ms(&self, now_ns: u64) -> Option<u64> {
        let leads = |c: &&Connection| c.epoch != 0 && self.epochs.obeys(c.epoch);
        let heard_ns = self.connections.iter().filter(leads).map(|c| c.heard_ns).max()?;
        Some((now_ns.saturating_sub(heard_ns) + MS - 1) / MS)
    }

    /// Asks the session that leads for a sign of life, so that the next pong can tell of it.
    fn ask_leader(&mut self, now_ns: u64, epoll: &Epoll) {
        if self.asked_leader_ns.map_or(false, |asked| now_ns < asked + ASK_LEADER_NS) {
            return;
        }
        self.asked_leader_ns = Some(now_ns);
        for at in (0..self.connections.len()).rev() {
            let connection = &mut self.connections[at];
            if connection.epoch != 0 && self.epochs.obeys(connection.epoch) {
                connection.ping_seq += 1;
                let ping = Reply::Ping { seq: Some(connection.ping_seq) }.line();
                let result = connection.lines.queue(&ping);
                self.settle(at, result, now_ns, epoll);
            }
        }
    }

    fn accept(&mut self, now_ns: u64, epoll: &Epoll, handler: &dyn Handler) {
        while let Some(Ok(Some(stream))) = self.listener.as_ref().map(ControlSocket::accept) {
            if self.connections.iter().filter(|c| c.controller.is_none()).count() >= MAX_UNIX_PEERS {
                continue;
            }
            if self.add(Stream::Unix(stream), true, None, now_ns, epoll).is_ok() {
                let at = self.connections.len() - 1;
                let result = self.connections[at].lines.queue(&handler.hello(self.epochs.greatest()));
                self.settle(at, result, now_ns, epoll);
            }
        }
    }

    /// Reads what has come and answers it. An error ends the connection.
    ///
    /// `wants_leader` becomes true if the other side wants to know whether the leader is alive.
    fn serve(&mut self, at: usize, now_ns: u64, handler: &mut dyn Handler, wants_leader: &mut bool) -> io::Result<()> {
        let leader_heard_ms = self.leader_heard_ms(now_ns);
        let connection = &mut self.connections[at];
        if !connection.connected {
            if let Some(stream) = connection.lines.stream().tcp() {
                if let Some(error) = stream.take_error()? {
                    return Err(error);
                }
                stream.set_nodelay(true)?;
            }
            connection.connected = true;
            connection.heard_ns = now_ns;
            connection.lines.queue(&handler.hello(self.epochs.greatest()))?;
        }
        let peer = connection.lines.fill()?;
        while let Some(line) = connection.lines.next_line()? {
            connection.heard_ns = now_ns;
            if line.is_empty() {
                continue;
            }
            let answers = match parse_request(line) {
                Ok((_, Request::Welcome(welcome))) => {
                    connection.welcome = Some(welcome);
                    connection.changes = welcome.whole_ms.map(Changes::new);
                    connection.pinged_ns = now_ns;
                    connection.reported_ns = now_ns;
                    if let Some(which) = connection.controller {
                        let dialled = &mut self.controllers[which];
                        dialled.backoff_ns = FIRST_BACKOFF_NS;
                        dialled.was_connected = true;
                        crate::tell!("hyroads-edge: controller {} welcomed us", dialled.address);
                    }
                    handler.link_lines()
                }
                Ok((seq, Request::Lead(epoch))) if self.epochs.lead(epoch) => {
                    connection.epoch = epoch;
                    vec![handler.obeys(seq)]
                }
                Ok((seq, Request::Lead(_))) => vec![stale(seq, self.epochs)],
                Ok((seq, Request::Ping { leader })) => {
                    *wants_leader |= leader;
                    let epoch = self.epochs.greatest();
                    let is_leader = epoch != 0 && connection.epoch == epoch;
                    let heard_ms = if is_leader { Some(0) } else { leader_heard_ms };
                    vec![Reply::Pong { seq, epoch, heard_ms }.line()]
                }
                Ok((seq, request)) if request.changes() && !self.epochs.obeys(connection.epoch) => {
                    vec![stale(seq, self.epochs)]
                }
                Ok((seq, request)) => handler.request(seq, request).unwrap_or_else(|message| {
                    crate::tell!("hyroads-edge: refused: {message}");
                    vec![Reply::Error { seq, message: &message }.line()]
                }),
                Err(Refusal::Invalid { seq, message }) => vec![Reply::Error { seq, message: &message }.line()],
                Err(Refusal::Malformed(message)) => {
                    if connection.controller.is_some() {
                        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("malformed line: {message}")));
                    }
                    vec![Reply::Error { seq: None, message: &format!("malformed line: {message}") }.line()]
                }
            };
            for answer in answers {
                connection.lines.queue(&answer)?;
            }
        }
        match peer {
            Peer::Open => Ok(()),
            Peer::Closed => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "closed by the other side")),
        }
    }

    /// Writes what is queued; on an error the connection goes.
    fn settle(&mut self, at: usize, result: io::Result<()>, now_ns: u64, epoll: &Epoll) {
        let connection = &mut self.connections[at];
        if result.is_ok() && !connection.connected {
            return;
        }
        let result = result.and_then(|()| connection.lines.flush()).and_then(|flushed| {
            let writes = !flushed && !connection.lines.stream().waits_to_read();
            if connection.writing != writes {
                connection.writing = writes;
                let interest = if writes { Interest::BOTH } else { Interest::READ };
                epoll.modify(&connection.lines, connection.token, interest)?;
            }
            Ok(())
        });
        if let Err(error) = result {
            let gone = self.connections.remove(at);
            if let Some(which) = gone.controller {
                let dialled = &mut self.controllers[which];
                let address = dialled.address;
                if error.kind() == io::ErrorKind::InvalidInput && !dialled.was_connected {
                    crate::tell!("hyroads-edge: controller {address}: {error}");
                }
                if std::mem::take(&mut dialled.was_connected) {
                    crate::tell!(
                        "hyroads-edge: controller {address} lost ({error}); going on with the configuration in force"
                    );
                }
                self.back_off(which, now_ns);
            }
        }
    }

    /// Says a line to everyone who welcomed us.
    pub fn broadcast(&mut self, line: &str, epoll: &Epoll) {
        let now_ns = monotonic_ns();
        for at in (0..self.connections.len()).rev() {
            if self.connections[at].welcome.is_some() {
                let result = self.connections[at].lines.queue(line);
                self.settle(at, result, now_ns, epoll);
            }
        }
    }

    /// Dials, pings, reports and gives up on the dead, as it is time.
    pub fn poll(&mut self, now_ns: u64, epoll: &Epoll, handler: &mut dyn Handler) {
        self.dial(now_ns, epoll);
        for at in (0..self.connections.len()).rev() {
            let connection = &mut self.connections[at];
            if connection.next_due(self.epochs).map_or(true, |due| due > now_ns) {
                continue;
            }
            let mut result = Ok(());
            if connection.dead_at().map_or(false, |dead| dead <= now_ns) {
                result = Err(io::Error::new(io::ErrorKind::TimedOut, "silent for too long"));
            }
            if result.is_ok() && connection.ping_ns().map_or(false, |ping| connection.pinged_ns + ping <= now_ns) {
                connection.pinged_ns = now_ns;
                connection.ping_seq += 1;
                result = connection.lines.queue(&Reply::Ping { seq: Some(connection.ping_seq) }.line());
            }
            if result.is_ok()
                && connection.report_ns(self.epochs).map_or(false, |r| connection.reported_ns + r <= now_ns)
            {
                connection.reported_ns = now_ns;
                let whole = handler.report();
                let lines = match &mut connection.changes {
                    Some(changes) => changes.lines(whole, now_ns),
                    None => whole,
                };
                result = lines.iter().try_for_each(|line| connection.lines.queue(line));
            }
            self.settle(at, result, now_ns, epoll);
        }
    }

    pub fn next_due(&self) -> Option<u64> {
        let waiting = self.controllers.iter().enumerate().filter(|(which, _)| !self.is_dialled(*which));
        let dials = waiting.map(|(_, dialled)| dialled.dial_ns);
        self.connections.iter().filter_map(|c| c.next_due(self.epochs)).chain(dials).min()
    }
}

fn stale(seq: Option<u64>, epochs: Epochs) -> String {
    Reply::Stale { seq, message: "stale epoch", epoch: epochs.greatest() }.line()
}

#[cfg(test)]
#[path = "control_tests.rs"]
mod tests;
