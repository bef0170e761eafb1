//! Fragments of an IP datagram at a queue that is full: the queue takes all of them or none, because the receiver can
//! use no datagram of which a fragment is missing.
//!
//! Without this rule, small last fragments pass where large first ones do not, and a flow that offers slightly more than
//! its rate loses far more datagrams than it must.

use super::fit::packet_at;
use crate::ip::{self, Part};
use std::collections::VecDeque;
use std::net::IpAddr;

/// Later fragments may exceed the queue's bound by the bytes of the largest datagram.
const MOST_BEYOND: usize = 65_535;
/// Datagrams whose fragments are being refused. Senders send the fragments of a datagram one after another.
const MOST_REFUSED: usize = 16;
/// Senders use an identification again much later, and send the fragments of a datagram much sooner.
const FORGET_NS: u64 = 1_000_000_000;

/// What the fragments of a datagram have in common: addresses and identification.
type Datagram = (IpAddr, IpAddr, u32);

/// Decides which frames a queue with a bound takes.
#[derive(Debug, Default)]
pub struct Datagrams {
    /// Datagrams of which a fragment was refused, and when.
    refused: VecDeque<(u64, Datagram)>,
    /// Bytes by which the queue exceeds its bound because of later fragments.
    beyond: usize,
}

impl Datagrams {
    /// Bytes that the queue may have beyond its bound now.
    pub fn beyond(&self) -> usize {
        self.beyond
    }

    /// Whether the queue takes `frame`, with which it would have `beyond` bytes more than its bound (0: there is room).
    pub fn admit(&mut self, now_ns: u64, frame: &[u8], beyond: usize) -> bool {
        while self.refused.front().map_or(false, |(at_ns, _)| now_ns.saturating_sub(*at_ns) > FORGET_NS) {
            self.refused.pop_front();
        }
        if beyond == 0 {
            self.beyond = 0;
            if self.refused.is_empty() {
                return true;
            }
        }
        let (datagram, is_later) = match fragment(frame) {
            Some(found) => found,
            None => return beyond == 0,
        };
        if self.refused.iter().any(|(_, known)| *known == datagram) {
            return false;
        }
        // Of a datagram that is not refused, the first fragment is in the queue, or has left it.
        let is_taken = beyond == 0 || (is_later && beyond <= MOST_BEYOND);
        match is_taken {
            true => self.beyond = beyond,
            false => self.refuse(now_ns, datagram),
        }
        is_taken
    }

    fn refuse(&mut self, now_ns: u64, datagram: Datagram) {
        if self.refused.len() >= MOST_REFUSED {
            self.refused.pop_front();
        }
        self.refused.push_back((now_ns, datagram));
    }
}

/// Which datagram a frame has a fragment of, and whether that is a later one; None if it has none.
fn fragment(frame: &[u8]) -> Option<(Datagram, bool)> {
    let packet = ip::parse(frame.get(packet_at(frame)?..)?).ok()?;
    let (identification, is_later) = match packet.part {
        Part::Whole => return None,
        Part::FirstFragment { identification } => (identification, false),
        Part::LaterFragment { identification } => (identification, true),
    };
    Some(((packet.tuple.source.address, packet.tuple.destination.address, identification), is_later))
}

#[cfg(test)]
#[path = "datagrams_tests.rs"]
mod tests;
