//! The control socket of `hyroads-client`: newline-delimited JSON, each request answered.

use super::config::Request;
use crate::sys::epoll::{Epoll, Interest};
use crate::sys::lines::{LineStream, Peer};
use crate::sys::unix::ControlSocket;
use serde_json::{json, Value};
use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;

/// Tokens from here on are the control socket's.
pub const FIRST_TOKEN: u64 = 1 << 32;
const MOST_PEERS: usize = 16;

/// Carries out requests.
pub trait Handler {
    /// The keys of the answer beside `type` and `seq`, or what is wrong.
    fn request(&mut self, request: Request) -> Result<Answer, String>;
}

/// What a request is answered with.
pub enum Answer {
    Done,
    Status(Value),
    /// Done, and events follow.
    Watches,
}

struct Connection {
    token: u64,
    lines: LineStream<UnixStream>,
    watches: bool,
    writing: bool,
}

pub struct Control {
    listener: ControlSocket,
    connections: Vec<Connection>,
    next_token: u64,
}

impl Control {
    pub fn listen(path: &Path, epoll: &Epoll) -> io::Result<Control> {
        let listener = ControlSocket::listen(path)?;
        epoll.add(&listener, FIRST_TOKEN, Interest::READ)?;
        Ok(Control { listener, connections: Vec::new(), next_token: FIRST_TOKEN + 1 })
    }

    /// Takes what came for a token of this socket.
    pub fn on_event(&mut self, token: u64, epoll: &Epoll, handler: &mut dyn Handler) {
        if token == FIRST_TOKEN {
            return self.accept(epoll);
        }
        if let Some(at) = self.connections.iter().position(|connection| connection.token == token) {
            if self.connections[at].serve(handler).and_then(|()| self.connections[at].flush(epoll)).is_err() {
                self.connections.swap_remove(at);
            }
        }
    }

    fn accept(&mut self, epoll: &Epoll) {
        while let Ok(Some(stream)) = self.listener.accept() {
            let token = self.next_token;
            if self.connections.len() >= MOST_PEERS || epoll.add(&stream, token, Interest::READ).is_err() {
                continue;
            }
            self.next_token += 1;
            self.connections.push(Connection { token, lines: LineStream::new(stream), watches: false, writing: false });
        }
    }

    /// Whether somebody wants events.
    pub fn is_watched(&self) -> bool {
        self.connections.iter().any(|connection| connection.watches)
    }

    /// Tells an event to all that watch; one that does not read is let go.
    pub fn tell(&mut self, event: &Value, epoll: &Epoll) {
        let line = event.to_string();
        self.connections.retain_mut(|connection| {
            !connection.watches || connection.lines.queue(&line).and_then(|()| connection.flush(epoll)).is_ok()
        });
    }
}

impl Connection {
    fn serve(&mut self, handler: &mut dyn Handler) -> io::Result<()> {
        let peer = self.lines.fill()?;
        while let Some(line) = self.lines.next_line()? {
            let answer = match serde_json::from_str::<Request>(line) {
                Err(error) => json!({"type": "error", "seq": seq_of(line), "message": error.to_string()}),
                Ok(request) => {
                    let seq = request.seq();
                    match handler.request(request) {
                        Ok(Answer::Done) => json!({"type": "ok", "seq": seq}),
                        Ok(Answer::Watches) => {
                            self.watches = true;
                            json!({"type": "ok", "seq": seq})
                        }
                        Ok(Answer::Status(mut status)) => {
                            status["type"] = "status".into();
                            status["seq"] = seq.into();
                            status
                        }
                        Err(message) => json!({"type": "error", "seq": seq, "message": message}),
                    }
                }
            };
            self.lines.queue(&answer.to_string())?;
        }
        match peer {
            Peer::Open => Ok(()),
            Peer::Closed => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    fn flush(&mut self, epoll: &Epoll) -> io::Result<()> {
        let writing = !self.lines.flush()?;
        if writing != self.writing {
            self.writing = writing;
            let interest = if writing { Interest::BOTH } else { Interest::READ };
            epoll.modify(&self.lines, self.token, interest)?;
        }
        Ok(())
    }
}

fn seq_of(line: &str) -> Option<u64> {
    serde_json::from_str::<Value>(line).ok()?.get("seq")?.as_u64()
}
