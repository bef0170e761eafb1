//! Sockets, standard input and time around the devices.
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};

use hyroads_dataplane::sys::clock::{cpu_ns, monotonic_ns};
use hyroads_dataplane::sys::epoll::{Epoll, Event, Interest};
use hyroads_dataplane::sys::invalid;
use hyroads_dataplane::sys::process::low_latency;
use hyroads_dataplane::sys::tcp::dial;

use super::campus::{Campus, Due};
use super::script::Script;

const READ_BYTES: usize = 1 << 18;
const AT_ONCE: usize = 256;
/// Sessions have the tokens from 0 on.
const STDIN: u64 = u64::MAX;
/// A turn costs a system call: reports that are due within this time go out together, that much late at most.
const TOGETHER_NS: u64 = 200_000;
/// Reports that are made before sockets have their turn.
const REPORTS_AT_ONCE: usize = 64;

enum Link {
    None,
    Dialled(TcpStream),
    Open { stream: TcpStream, waits: bool },
}

struct Shell {
    campus: Campus,
    links: Vec<Link>,
    epoll: Epoll,
    requests: Vec<u8>,
    chunk: Vec<u8>,
}

/// Until standard input ends.
pub fn run() -> io::Result<()> {
    let (script, requests) = first_line()?;
    let script: Script = serde_json::from_slice(&script).map_err(|error| invalid(format!("the script: {error}")))?;
    let campus = Campus::new(script, monotonic_ns());
    let links = (0..campus.sessions()).map(|_| Link::None).collect();
    let mut shell = Shell { campus, links, epoll: Epoll::new(AT_ONCE)?, requests, chunk: vec![0; READ_BYTES] };
    shell.epoll.add(&io::stdin(), STDIN, Interest::READ)?;
    // The devices stand for other machines: they do not wait for the controller's processor.
    if let Some(warning) = low_latency(true) {
        hyroads_dataplane::tell!("scripted_campus: {warning}");
    }
    let mut events = Vec::new();
    while shell.turn(&mut events)? {}
    Ok(())
}

/// The first line, and what came behind it.
fn first_line() -> io::Result<(Vec<u8>, Vec<u8>)> {
    let (mut input, mut chunk) = (Vec::new(), vec![0; READ_BYTES]);
    loop {
        let count = io::stdin().lock().read(&mut chunk)?;
        if count == 0 {
            return Err(invalid("standard input ended before the script did"));
        }
        let new = input.len();
        input.extend_from_slice(&chunk[..count]);
        if let Some(at) = input[new..].iter().position(|&byte| byte == b'\n') {
            let rest = input.split_off(new + at + 1);
            return Ok((input, rest));
        }
    }
}

impl Shell {
    /// Waits for the next task or event and handles it; false: standard input has ended.
    fn turn(&mut self, events: &mut Vec<Event>) -> io::Result<bool> {
        let wait_ns = self.campus.next_ns().map(|next_ns| match next_ns.saturating_sub(monotonic_ns()) {
            0 => 0,
            wait_ns => wait_ns.max(TOGETHER_NS),
        });
        self.epoll.wait(wait_ns, events)?;
        for event in events.iter() {
            if event.token == STDIN {
                if !self.take_requests()? {
                    return Ok(false);
                }
            } else {
                self.on_event(event);
            }
            self.send_all();
        }
        self.do_due();
        Ok(true)
    }

    fn do_due(&mut self) {
        for _ in 0..REPORTS_AT_ONCE {
            match self.campus.take_due(monotonic_ns()) {
                Some(Due::Dial { session, port }) => self.dial(session, port),
                Some(Due::Report { due_ns, .. }) => {
                    self.send_all();
                    self.campus.late.note(monotonic_ns().saturating_sub(due_ns));
                }
                None => break,
            }
        }
        self.send_all();
    }

    fn dial(&mut self, session: usize, port: u16) {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let dialled = dial(&address).and_then(|stream| {
            stream.set_nodelay(true)?;
            self.epoll.add(&stream, session as u64, Interest::BOTH)?;
            Ok(stream)
        });
        match dialled {
            Ok(stream) => self.links[session] = Link::Dialled(stream),
            Err(_) => self.lose(session),
        }
    }

    fn lose(&mut self, session: usize) {
        // Closing takes the socket out of the set.
        self.links[session] = Link::None;
        self.campus.lost(session, monotonic_ns());
    }

    fn on_event(&mut self, event: &Event) {
        let session = event.token as usize;
        match std::mem::replace(&mut self.links[session], Link::None) {
            Link::None => (),
            Link::Dialled(stream) => match stream.take_error() {
                Ok(None) if event.writable => {
                    let is_watched = self.epoll.modify(&stream, event.token, Interest::READ).is_ok();
                    self.links[session] = Link::Open { stream, waits: false };
                    if is_watched {
                        self.campus.connected(session);
                    } else {
                        self.lose(session);
                    }
                }
                Ok(None) => self.links[session] = Link::Dialled(stream),
                _ => self.lose(session),
            },
            Link::Open { stream, waits } => {
                self.links[session] = Link::Open { stream, waits };
                if event.writable && waits {
                    self.send(session);
                }
                if event.readable {
                    self.read(session);
                }
            }
        }
    }

    fn read(&mut self, session: usize) {
        let result = match &mut self.links[session] {
            Link::Open { stream, .. } => stream.read(&mut self.chunk),
            _ => return,
        };
        match result {
            Ok(count) if count > 0 => self.campus.received(session, &self.chunk[..count], monotonic_ns()),
            Err(error) if is_for_later(&error) => (),
            _ => self.lose(session),
        }
    }

    fn send_all(&mut self) {
        for session in self.campus.take_senders() {
            self.send(session);
        }
    }

    /// Sends what there is room for, and waits for room for the rest.
    fn send(&mut self, session: usize) {
        let output = self.campus.output(session);
        let (stream, waits) = match &mut self.links[session] {
            Link::Open { stream, waits } => (stream, waits),
            _ => return,
        };
        let result = if output.is_empty() { Ok(0) } else { stream.write(output) };
        let is_kept = match result {
            Ok(count) => {
                output.drain(..count);
                true
            }
            Err(error) => is_for_later(&error),
        };
        let wants = !output.is_empty();
        if is_kept && wants != *waits {
            *waits = wants;
            let interest = if wants { Interest::BOTH } else { Interest::READ };
            if self.epoll.modify(stream, session as u64, interest).is_ok() {
                return;
            }
        } else if is_kept {
            return;
        }
        self.lose(session);
    }

    fn take_requests(&mut self) -> io::Result<bool> {
        let count = io::stdin().lock().read(&mut self.chunk)?;
        self.requests.extend_from_slice(&self.chunk[..count]);
        while let Some(at) = self.requests.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = self.requests.drain(..=at).collect();
            let answer = match serde_json::from_slice(&line) {
                Ok(request) => self.campus.answer(request, monotonic_ns(), cpu_ns()),
                Err(error) => serde_json::json!({"error": error.to_string()}),
            };
            let mut out = io::stdout().lock();
            writeln!(out, "{answer}")?;
            out.flush()?;
        }
        Ok(count > 0)
    }
}

fn is_for_later(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
