//! Links: what the node's switch sends to a neighbouring switch behind a label is sealed here, and what comes from one
//! is checked before the switch sees it. See docs/reference/dataplane.md, "Seals of links".
//!
//! Keys are those of hello frames: each agent has one, which its neighbours know. A seal covers both addresses, so a
//! frame counts at the neighbour that it was sent to, from the interface that sent it, and once (`guard`).

use super::buffer::Buf;
use super::frame::{mac_at, Kind, Seal, Shim, ETHERNET_LEN, SHIM_LEN, TYPE_AGENT, TYPE_MPLS};
use super::guard::{covered_by, Guards, Refused, Sealer, Signing};
use super::protocol::Config;
use super::seal::{ENDS_LEN, SEAL_LEN};
use crate::sys::interface::Mac;
use std::collections::{HashMap, HashSet};

/// Bytes that a seal of a link adds to a frame.
pub const LINK_OVERHEAD: usize = SHIM_LEN + SEAL_LEN;
/// With a shorter inner frame real Ethernet pads the whole one, and no seal would be right any more.
const LEAST_INNER: usize = 60 - ETHERNET_LEN - LINK_OVERHEAD;
/// Frames of links are of no flow.
const NO_FLOW: u16 = 0;

#[derive(Debug)]
pub struct Links {
    sealer: Sealer,
    /// Own interfaces: the number of each is the path in its frames' shims.
    own: HashMap<Mac, u8>,
    /// By interface of a neighbour: under which number `guards` knows it.
    peers: HashMap<Mac, u16>,
    guards: Guards,
}

impl Default for Links {
    fn default() -> Self {
        Links { sealer: Sealer::new(NO_FLOW), own: HashMap::new(), peers: HashMap::new(), guards: Guards::default() }
    }
}

impl Links {
    /// Own interfaces and neighbours are those of hello frames. Without keys, or without `seal_links`, nothing passes.
    pub fn configure(&mut self, now_ns: u64, config: &Config, signing: Option<Signing>) {
        let signing = signing.filter(|_| config.seal_links);
        let is_on = signing.is_some();
        self.sealer.set(now_ns, signing);
        let own = config.hello.send.iter().filter_map(|send| send.mac).zip(0..=u8::MAX);
        self.own = own.filter(|_| is_on).collect();
        let expected = config.hello.expect.iter().filter(|_| config.seal_links);
        let keys: HashMap<Mac, _> = expected.filter_map(|entry| Some((entry.mac, entry.key?))).collect();
        self.peers.retain(|mac, _| keys.contains_key(mac));
        let mut used: HashSet<u16> = self.peers.values().copied().collect();
        let mut free = 0..=u16::MAX;
        let mut names: Vec<Mac> = keys.keys().filter(|mac| !self.peers.contains_key(*mac)).copied().collect();
        names.sort_unstable();
        for mac in names {
            if let Some(number) = free.find(|number| used.insert(*number)) {
                self.peers.insert(mac, number);
            }
        }
        let wanted = self.peers.iter().filter_map(|(mac, number)| Some((*number, *keys.get(mac)?))).collect();
        self.guards.configure(now_ns, config.generation, &wanted, &HashSet::new());
    }

    /// Seals a labelled frame of the own switch in its place. False: it is none that may leave, and stays as it was.
    pub fn seal(&mut self, now_ns: u64, buf: &mut Buf) -> bool {
        let ends = ends_of(buf);
        let path = match (ends, self.own.get(&mac_at(buf.bytes(), 6))) {
            (Some(_), Some(path)) if self.sealer.is_sealing() => *path,
            _ => return false,
        };
        let shim = Shim { kind: Kind::Link, path, flow: NO_FLOW, sequence: 0, sent_us: 0 };
        buf.strip(ETHERNET_LEN);
        buf.pad_to(LEAST_INNER);
        match (ends, buf.prepend(ETHERNET_LEN + LINK_OVERHEAD)) {
            (Some(ends), Some(room)) => write_header(room, ends, TYPE_AGENT),
            _ => return false,
        }
        self.sealer.write(now_ns, shim, buf.bytes_mut(), ETHERNET_LEN);
        true
    }

    /// Takes the seal off a frame from a neighbour, if it is right and new. The labelled frame remains.
    pub fn open(
        &mut self,
        now_ns: u64,
        shim: &Shim,
        seal: Option<Seal>,
        inner_at: usize,
        buf: &mut Buf,
    ) -> Result<(), Refused> {
        let number = self.peers.get(&mac_at(buf.bytes(), 6)).ok_or(Refused::Forged)?;
        let bytes = buf.bytes();
        let ends = ends_of(buf).ok_or(Refused::Forged)?;
        let head = bytes.get(ETHERNET_LEN..ETHERNET_LEN + SHIM_LEN).and_then(|head| head.try_into().ok());
        let inner = bytes.get(inner_at..).ok_or(Refused::Forged)?;
        // In the guards a flow number is an interface's; in the frame it is covered by the seal.
        let known = Shim { flow: *number, ..*shim };
        let covered = covered_by(Kind::Link, bytes, inner);
        match self.guards.check(now_ns, &known, seal, head.ok_or(Refused::Forged)?, covered)? {
            Some(_) => {}
            None => return Err(Refused::Forged),
        }
        buf.strip(inner_at);
        match buf.prepend(ETHERNET_LEN) {
            Some(room) => write_header(room, ends, TYPE_MPLS),
            None => return Err(Refused::Forged),
        }
        Ok(())
    }
}

fn ends_of(buf: &Buf) -> Option<[u8; ENDS_LEN]> {
    buf.bytes().get(..ENDS_LEN)?.try_into().ok()
}

fn write_header(room: &mut [u8], ends: [u8; ENDS_LEN], ether_type: u16) {
    room[..ENDS_LEN].copy_from_slice(&ends);
    room[ENDS_LEN..ETHERNET_LEN].copy_from_slice(&ether_type.to_be_bytes());
}

#[cfg(test)]
#[path = "links_tests.rs"]
mod tests;
