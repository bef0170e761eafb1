//! The agent's shell: one thread, one epoll loop around the engine.

use super::buffer::{Buf, Pool};
use super::control::{Control, Handler, Security, LISTENER_TOKEN};
use super::devices::{Devices, ACCESS_TOKEN, FIRST_NETWORK_TOKEN, LAST_NETWORK_TOKEN};
use super::engine::{Effects, Engine, FirstNumbers};
use super::engine_report;
use super::media::PortReader;
use super::options::Options;
use super::protocol::{parse_request, Config, Refusal, Reply, Request, VERSION};
use crate::sys::clock::{cpu_ns, monotonic_ns};
use crate::sys::epoll::{Epoll, Event, Interest};
use crate::sys::file::{read_private, read_text};
use crate::sys::lateness::Lateness;
use crate::sys::process::{die_with_parent, low_latency, Signals};
use crate::sys::service_manager::ServiceManager;
use crate::sys::tls::Context;
use crate::sys::unix::ControlSocket;
use crate::sys::{context, invalid};
use std::cell::RefCell;
use std::fs;
use std::io::{self, Read};
use std::rc::Rc;

/// Buffers at most in use: 130 MB with frames of 1500 bytes.
const MAX_BUFFERS: usize = 1 << 16;
const SIGNAL_TOKEN: u64 = LISTENER_TOKEN - 1;
/// Under a flood that never lets us read everything, dead links are looked for this often nevertheless.
const FLOODED_NS: u64 = 1_000_000_000;

/// Everything that requests act on.
struct Agent {
    engine: Engine,
    devices: Devices,
    fx: Effects,
    node: String,
    boot: String,
    token: Option<String>,
    random: u64,
    epoll: Rc<RefCell<Epoll>>,
    woken_late: Lateness,
    ports: PortReader,
}

impl Agent {
    fn apply(&mut self, config: &Config) -> Result<FirstNumbers, String> {
        let copies = config.branch.iter().flat_map(|b| &b.copies);
        let paths = config.ingress.iter().flat_map(|f| &f.paths).chain(copies).filter_map(|p| p.interface.as_deref());
        let hellos = config.hello.send.iter().filter_map(|h| h.interface.as_deref());
        self.devices.ensure(paths.chain(hellos), &self.epoll.borrow()).map_err(|e| format!("config: {e}"))?;
        let (devices, random) = (&self.devices, &mut self.random);
        let exit_of = |name: Option<&str>| devices.exit_of(name);
        let from =
            self.engine.apply(monotonic_ns(), config, &exit_of, &mut || next_random(random) as u32, &mut self.fx);
        if let Err(error) = self.devices.set_access_is_host(self.engine.has_default_flow()) {
            crate::tell!("hyroads-edge: warning: {error}");
        }
        self.ports.watch(&config.media.ports);
        Ok(from)
    }

    fn read_access(&mut self, frames: &mut Vec<Buf>) -> io::Result<()> {
        let engine = &mut self.engine;
        self.devices.read_access(&mut engine.pool, &mut engine.counters.overrun, frames)?;
        let now_ns = monotonic_ns();
        for buf in frames.drain(..) {
            self.engine.from_access(now_ns, buf, &mut self.fx);
        }
        Ok(())
    }

    /// True if nothing is left to read.
    fn read_network(&mut self, at: usize, frames: &mut Vec<Buf>) -> io::Result<bool> {
        let engine = &mut self.engine;
        let drained = self.devices.read_network(at, &mut engine.pool, &mut engine.counters.overrun, frames)?;
        let now_ns = monotonic_ns();
        for buf in frames.drain(..) {
            self.engine.from_network(now_ns, buf, &mut self.fx);
        }
        Ok(drained)
    }

    /// What was read from ports, if any are to be read.
    fn ports_line(&self) -> Option<String> {
        self.ports.next_due().map(|_| Reply::Ports { ports: self.ports.ports() }.line())
    }

    fn report_lines(&self, seq: Option<u64>) -> Vec<String> {
        engine_report::lines(&self.engine, monotonic_ns(), seq, cpu_ns(), self.woken_late)
    }

    /// Carries out what the engine wants. A device in trouble costs frames, never the agent.
    fn flush(&mut self) {
        for (exit, buf) in self.fx.network.drain(..) {
            if !self.devices.write_network(exit, buf.bytes()).unwrap_or(false) {
                self.engine.counters.overrun += 1;
            }
            self.engine.pool.give(buf);
        }
        for buf in self.fx.access.drain(..) {
            if !self.devices.access.write(buf.bytes()).unwrap_or(false) {
                self.engine.counters.overrun += 1;
            }
            self.engine.pool.give(buf);
        }
    }
}

fn next_random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

impl Handler for Agent {
    fn hello(&self, epoch: u64) -> String {
        Reply::Hello {
            version: VERSION,
            node: &self.node,
            program: concat!("hyroads-edge ", env!("CARGO_PKG_VERSION")),
            boot: &self.boot,
            token: self.token.as_deref(),
            revision: self.engine.revision,
            changes: true,
            seals: true,
            pieces: true,
            seals_links: true,
            epoch,
        }
        .line()
    }

    fn obeys(&self, seq: Option<u64>) -> String {
        Reply::Obeys { seq, revision: self.engine.revision, rates: engine_report::rates(&self.engine) }.line()
    }

    fn request(&mut self, seq: Option<u64>, request: Request) -> Result<Vec<String>, String> {
        let from = match request {
            Request::Config(config) => self.apply(&config)?,
            Request::Rates(rates) => self.engine.set_rates(monotonic_ns(), &rates, &mut self.fx)?,
            Request::ResetCounters => {
                self.engine.reset_counters();
                self.woken_late = Lateness::default();
                FirstNumbers::new()
            }
            Request::Stats => return Ok(self.report_lines(seq)),
            // These are between the sessions.
            Request::Ping { .. } | Request::Pong | Request::Welcome(_) | Request::Lead(_) => return Ok(Vec::new()),
        };
        Ok(vec![Reply::Ok { seq, from }.line()])
    }

    fn report(&mut self) -> Vec<String> {
        self.report_lines(None)
    }

    fn link_lines(&self) -> Vec<String> {
        let down = self.engine.liveness().links().iter().filter(|l| !l.up);
        let down = down.map(|l| Reply::Link { link: &l.name, up: false }.line());
        down.chain(self.ports_line()).collect()
    }
}

fn random_seed() -> io::Result<u64> {
    let mut bytes = [0; 8];
    fs::File::open("/dev/urandom")
        .and_then(|mut f| f.read_exact(&mut bytes))
        .map_err(|e| context(e, "/dev/urandom"))?;
    Ok(u64::from_ne_bytes(bytes) | 1)
}

/// Reads a configuration file: a config message.
fn read_config(path: &std::path::Path) -> io::Result<Config> {
    let shown = path.display();
    let text = read_text(path)?;
    match parse_request(&text) {
        // What was sealed before with the same key could be said again.
        Ok((_, Request::Config(config))) if config.has_keys() => {
            Err(invalid(format!("{shown}: expected no keys: none may be used by two starts of an agent")))
        }
        Ok((_, Request::Config(config))) => Ok(*config),
        Ok(_) => Err(invalid(format!("{shown}: expected a message of type \"config\""))),
        Err(Refusal::Malformed(message) | Refusal::Invalid { message, .. }) => {
            Err(invalid(format!("{shown}: {message}")))
        }
    }
}

/// Runs until SIGTERM or SIGINT.
pub fn run(options: &Options) -> io::Result<()> {
    if options.die_with_parent {
        die_with_parent(None)?;
    }
    let config = options.config.as_deref().map(read_config).transpose()?;
    let token = options.token_file.as_deref().map(read_private).transpose()?.map(|text| text.trim().to_string());
    let security = security(options)?;
    let epoll = Rc::new(RefCell::new(Epoll::new(64)?));
    let signals = Signals::termination()?;
    epoll.borrow().add(&signals, SIGNAL_TOKEN, Interest::READ)?;
    let buffer_bytes = (options.access_mtu as usize + 512).max(2048);
    let devices = Devices::open(&options.access, &options.network, options.access_mtu, buffer_bytes, &epoll.borrow())?;
    let mut random = random_seed()?;
    let mut agent = Agent {
        engine: Engine::new(Pool::new(buffer_bytes, MAX_BUFFERS), options.burst_ns),
        devices,
        fx: Effects::default(),
        node: options.node.clone(),
        boot: format!("{:016x}", next_random(&mut random)),
        token,
        random,
        epoll: Rc::clone(&epoll),
        woken_late: Lateness::default(),
        ports: PortReader::default(),
    };
    if let Some(config) = config {
        agent.apply(&config).map_err(invalid)?;
    }
    let listener = options.control.as_deref().map(ControlSocket::listen).transpose()?;
    let seed = next_random(&mut agent.random);
    let control = Control::new(&options.controllers, security, listener, seed, &epoll.borrow())?;
    if let Some(warning) = low_latency(options.realtime) {
        crate::tell!("hyroads-edge: warning: {warning}");
    }
    turn(agent, control, &signals)
}

/// With what controllers are dialled over TLS, if that was asked for. The key is a secret as tokens are.
fn security(options: &Options) -> io::Result<Option<Security>> {
    let ca = match &options.ca {
        Some(ca) => ca,
        None => return Ok(None),
    };
    if let Some((_, key)) = &options.own {
        read_private(key)?;
    }
    let own = options.own.as_ref().map(|(certificate, key)| (certificate.as_path(), key.as_path()));
    Ok(Some(Security { context: Context::client(ca, own)?, names: options.controller_names.clone() }))
}

/// The loop: wait, read, do what is due, write.
fn turn(mut agent: Agent, mut control: Control, signals: &Signals) -> io::Result<()> {
    let epoll = Rc::clone(&agent.epoll);
    let mut events: Vec<Event> = Vec::new();
    let mut frames: Vec<Buf> = Vec::new();
    let mut drained_ns = monotonic_ns();
    let mut more = false;
    let mut manager = ServiceManager::new();
    manager.ready();
    let mut back_by_ns = u64::MAX;
    loop {
        // What came before this moment is read in this turn, even if we are not run again for long after it.
        let asked_ns = monotonic_ns();
        agent.engine.absent(back_by_ns, asked_ns);
        let dues = [agent.engine.next_due(), control.next_due(), manager.next_due(), agent.ports.next_due()];
        let due = dues.into_iter().flatten().min();
        let timeout = if more { Some(0) } else { due.map(|at| at.saturating_sub(asked_ns)) };
        back_by_ns = timeout.map_or(u64::MAX, |wait| asked_ns.saturating_add(wait));
        epoll.borrow_mut().wait(timeout, &mut events)?;
        agent.woken_late.note(due, asked_ns, monotonic_ns());
        let mut drained = true;
        for event in &events {
            match event.token {
                ACCESS_TOKEN => agent.read_access(&mut frames)?,
                FIRST_NETWORK_TOKEN..=LAST_NETWORK_TOKEN => {
                    drained &= agent.read_network((event.token - FIRST_NETWORK_TOKEN) as usize, &mut frames)?;
                }
                SIGNAL_TOKEN => {
                    if signals.read()?.is_some() {
                        manager.stopping();
                        return Ok(());
                    }
                }
                token => control.on_event(token, &epoll.borrow(), &mut agent),
            }
        }
        let now_ns = monotonic_ns();
        more = !agent.engine.poll(now_ns, &mut agent.fx);
        if drained || now_ns - drained_ns > FLOODED_NS {
            drained_ns = now_ns;
            agent.engine.poll_links(asked_ns, &mut agent.fx);
        }
        agent.flush();
        for (link, up) in std::mem::take(&mut agent.fx.changes) {
            control.broadcast(&Reply::Link { link: &link, up }.line(), &epoll.borrow());
        }
        for (number, paths) in std::mem::take(&mut agent.fx.notices) {
            control.broadcast(&Reply::Passed { number, paths: &paths }.line(), &epoll.borrow());
        }
        if agent.ports.poll(now_ns) {
            control.broadcast(&Reply::Ports { ports: agent.ports.ports() }.line(), &epoll.borrow());
        }
        if control.next_due().map_or(false, |due| due <= now_ns) {
            control.poll(now_ns, &epoll.borrow(), &mut agent);
            agent.flush();
        }
        manager.turned(now_ns);
    }
}
