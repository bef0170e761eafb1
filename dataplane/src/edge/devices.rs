//! The agent's devices: the access side, the network side, and interfaces that paths name themselves.

use super::buffer::{Buf, Pool};
use super::frame::{ether_type, TYPE_AGENT, TYPE_HELLO, TYPE_MPLS};
use super::options::Port;
use super::outpath::Exit;
use crate::sys::epoll::{Epoll, Interest};
use crate::sys::interface::{self, Mac};
use crate::sys::packet::{Batch, PacketOptions, PacketSocket, ALL_PROTOCOLS};
use crate::sys::tap::{Tap, TapOptions};
use std::io;

/// Frames read from one device before the others get their turn.
const READ_BUDGET: usize = 128;
const BATCH: usize = 32;
/// What a TAP keeps for us while we are not running: 10 ms of 1.2 Gb/s.
const TAP_QUEUE_FRAMES: u32 = 1000;
/// Room for outer Ethernet header and label on the access side (and two VLAN tags), for labels, shim and inner header
/// on the network side.
const ACCESS_EXTRA: u32 = 26;
const NETWORK_EXTRA: u32 = 130;

/// A set of descriptors for one interface.
#[derive(Debug)]
enum Wire {
    Tap(Tap),
    /// One socket per EtherType we care for; the first one sends.
    Packet(Vec<PacketSocket>),
}

#[derive(Debug)]
pub struct Device {
    pub name: String,
    pub mac: Mac,
    index: u32,
    wire: Wire,
}

impl Device {
    fn tap(name: &str, mtu: u32) -> io::Result<Device> {
        let options = TapOptions { mtu: Some(mtu), tx_queue_frames: Some(TAP_QUEUE_FRAMES), ..TapOptions::new(name) };
        let tap = Tap::open(&options)?;
        Device::new(name, Wire::Tap(tap))
    }

    fn packet(name: &str, types: &[u16]) -> io::Result<Device> {
        let mut sockets = Vec::new();
        for ether_type in types {
            // Users' frames go to any address, agents' frames to our own or to all.
            let promiscuous = *ether_type == ALL_PROTOCOLS;
            sockets.push(PacketSocket::open(&PacketOptions { promiscuous, ..PacketOptions::new(name, *ether_type) })?);
        }
        Device::new(name, Wire::Packet(sockets))
    }

    fn new(name: &str, wire: Wire) -> io::Result<Device> {
        Ok(Device { name: name.into(), mac: interface::mac(name)?, index: interface::index(name)?, wire })
    }

    fn watch(&self, epoll: &Epoll, token: u64) -> io::Result<()> {
        match &self.wire {
            Wire::Tap(tap) => epoll.add(tap, token, Interest::READ),
            Wire::Packet(sockets) => sockets.iter().try_for_each(|s| epoll.add(s, token, Interest::READ)),
        }
    }

    /// True if the interface went away, or another one has its name now.
    fn is_gone(&self) -> bool {
        interface::index(&self.name).map_or(true, |index| index != self.index)
    }

    /// Reads up to the budget; true if nothing is left.
    fn read(&self, batch: &mut Batch, pool: &mut Pool, overrun: &mut u64, out: &mut Vec<Buf>) -> io::Result<bool> {
        match &self.wire {
            Wire::Tap(tap) => read_tap(tap, pool, overrun, out),
            Wire::Packet(sockets) => {
                let mut drained = true;
                for socket in sockets {
                    drained &= read_packets(socket, batch, pool, overrun, out)?;
                }
                Ok(drained)
            }
        }
    }

    pub fn write(&self, frame: &[u8]) -> io::Result<bool> {
        match &self.wire {
            Wire::Tap(tap) => tap.write(frame),
            Wire::Packet(sockets) => sockets[0].send(frame),
        }
    }
}

fn read_tap(tap: &Tap, pool: &mut Pool, overrun: &mut u64, out: &mut Vec<Buf>) -> io::Result<bool> {
    for _ in 0..READ_BUDGET {
        let mut buf = match pool.take() {
            Some(buf) => buf,
            None => {
                *overrun += 1;
                return Ok(true);
            }
        };
        match tap.read(buf.space()) {
            Ok(Some(len)) => {
                buf.filled(len);
                out.push(buf);
            }
            Ok(None) => {
                pool.give(buf);
                return Ok(true);
            }
            Err(error) => {
                pool.give(buf);
                return Err(error);
            }
        }
    }
    Ok(false)
}

fn read_packets(
    socket: &PacketSocket,
    batch: &mut Batch,
    pool: &mut Pool,
    overrun: &mut u64,
    out: &mut Vec<Buf>,
) -> io::Result<bool> {
    for _ in 0..READ_BUDGET / BATCH {
        let count = socket.receive(batch)?;
        for frame in batch.frames() {
            match pool.take() {
                Some(mut buf) => match buf.set(frame) {
                    true => out.push(buf),
                    false => pool.give(buf),
                },
                None => *overrun += 1,
            }
        }
        if count < BATCH {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Tokens of the devices in the epoll set; others are above.
pub const ACCESS_TOKEN: u64 = 0;
pub const FIRST_NETWORK_TOKEN: u64 = 1;
pub const LAST_NETWORK_TOKEN: u64 = 1 << 16;

pub struct Devices {
    pub access: Device,
    /// The first is the network side; the others are interfaces that paths name.
    network: Vec<Device>,
    batch: Batch,
    access_mtu: u32,
    access_is_host: bool,
}

impl Devices {
    pub fn open(
        access: &Port,
        network: &Port,
        access_mtu: u32,
        buffer_bytes: usize,
        epoll: &Epoll,
    ) -> io::Result<Self> {
        let access = match access {
            Port::Tap(name) => Device::tap(name, access_mtu + ACCESS_EXTRA)?,
            Port::Packet(name) => Device::packet(name, &[ALL_PROTOCOLS])?,
        };
        let network = match network {
            Port::Tap(name) => Device::tap(name, access_mtu + NETWORK_EXTRA)?,
            Port::Packet(name) => Device::packet(name, &[TYPE_AGENT, TYPE_HELLO, TYPE_MPLS])?,
        };
        access.watch(epoll, ACCESS_TOKEN)?;
        network.watch(epoll, FIRST_NETWORK_TOKEN)?;
        Ok(Devices {
            access,
            network: vec![network],
            batch: Batch::new(BATCH, buffer_bytes),
            access_mtu,
            access_is_host: false,
        })
    }

    /// Opens the interfaces that a configuration names and that are not open yet.
    pub fn ensure<'a>(&mut self, names: impl Iterator<Item = &'a str>, epoll: &Epoll) -> io::Result<()> {
        for name in names {
            let at = self.network.iter().position(|d| d.name == name);
            if at.map_or(false, |i| !self.network[i].is_gone()) {
                continue;
            }
            let device = Device::packet(name, &[TYPE_AGENT, TYPE_HELLO])?;
            let slot = at.unwrap_or(self.network.len());
            device.watch(epoll, FIRST_NETWORK_TOKEN + slot as u64)?;
            if slot < self.network.len() {
                self.network[slot] = device;
            } else {
                self.network.push(device);
            }
        }
        Ok(())
    }

    /// Index and MAC of an interface by name; None is the network side.
    pub fn exit_of(&self, name: Option<&str>) -> Exit {
        let at = name.and_then(|name| self.network.iter().position(|d| d.name == name)).unwrap_or(0);
        (at, self.network[at].mac)
    }

    /// A host on the access side must not send larger packets than a switch there, which adds header and label of its
    /// own.
    pub fn set_access_is_host(&mut self, is_host: bool) -> io::Result<()> {
        if is_host == self.access_is_host {
            return Ok(());
        }
        self.access_is_host = is_host;
        match &self.access.wire {
            Wire::Tap(tap) => interface::set_mtu(tap.name(), self.access_mtu + if is_host { 0 } else { ACCESS_EXTRA }),
            Wire::Packet(_) => Ok(()),
        }
    }

    pub fn read_access(&mut self, pool: &mut Pool, overrun: &mut u64, out: &mut Vec<Buf>) -> io::Result<bool> {
        self.access.read(&mut self.batch, pool, overrun, out)
    }

    pub fn read_network(
        &mut self,
        at: usize,
        pool: &mut Pool,
        overrun: &mut u64,
        out: &mut Vec<Buf>,
    ) -> io::Result<bool> {
        let first = out.len();
        let device = &self.network[at];
        let drained = device.read(&mut self.batch, pool, overrun, out)?;
        // A TAP gives everything the switch floods or the host itself says; that is none of our business.
        if let Wire::Tap(_) = device.wire {
            let mut at = first;
            while at < out.len() {
                match ether_type(out[at].bytes()) {
                    Some(TYPE_AGENT | TYPE_HELLO | TYPE_MPLS) => at += 1,
                    _ => pool.give(out.remove(at)),
                }
            }
        }
        Ok(drained)
    }

    pub fn write_network(&self, at: usize, frame: &[u8]) -> io::Result<bool> {
        self.network.get(at).map_or(Ok(false), |device| device.write(frame))
    }
}
