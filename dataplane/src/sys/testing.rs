//! For the live tests: network namespaces with veth pairs, and packets.

use super::clock::monotonic_ns;
use super::epoll::{Epoll, Interest};
use super::netns::in_namespace;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::io::AsRawFd;
use std::process::{self, Command};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

static NEXT: AtomicU32 = AtomicU32::new(0);

/// Runs a command, words split at spaces; its output. Panics with the command's own words if it fails.
pub fn run(command: &str) -> String {
    let mut words = command.split_whitespace();
    let output = Command::new(words.next().unwrap()).args(words).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{command}: {said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Two namespaces with one cable: interface `va` of `a` (10.9.0.1/24, fd09::1/64) to `vb` of `b` (10.9.0.2/24, fd09::2/64).
/// They vanish when this is dropped, also after a panic.
pub struct Lab {
    pub a: String,
    pub b: String,
}

impl Lab {
    /// None without root.
    pub fn new() -> Option<Lab> {
        // SAFETY: a plain system call.
        if unsafe { libc::geteuid() } != 0 {
            return None;
        }
        let stem = format!("hr-{}-{}", process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let lab = Lab { a: format!("{stem}-a"), b: format!("{stem}-b") };
        let (a, b) = (&lab.a, &lab.b);
        for namespace in [a, b] {
            run(&format!("ip netns add {namespace}"));
            run(&format!("ip -n {namespace} link set lo up"));
            // No duplicate address detection: link-local addresses are there at once, without which a packet from an address
            // that is not the interface's own asks for no neighbour.
            run(&format!("ip netns exec {namespace} sysctl -q -w net.ipv6.conf.default.accept_dad=0"));
        }
        run(&format!("ip -n {a} link add name va type veth peer name vb netns {b}"));
        for (namespace, device, number) in [(a, "va", 1), (b, "vb", 2)] {
            run(&format!("ip -n {namespace} address add 10.9.0.{number}/24 dev {device}"));
            run(&format!("ip -n {namespace} address add fd09::{number}/64 dev {device} nodad"));
            run(&format!("ip -n {namespace} link set {device} up"));
        }
        Some(lab)
    }

    pub fn in_a<T>(&self, action: impl FnOnce() -> std::io::Result<T>) -> T {
        in_namespace(Some(&self.a), action).unwrap()
    }

    pub fn in_b<T>(&self, action: impl FnOnce() -> std::io::Result<T>) -> T {
        in_namespace(Some(&self.b), action).unwrap()
    }

    /// The hardware address of an interface, as text.
    pub fn mac(namespace: &str, device: &str) -> super::interface::Mac {
        in_namespace(Some(namespace), || super::interface::mac(device)).unwrap()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for namespace in [&self.a, &self.b] {
            let _ = Command::new("ip").args(["netns", "delete", namespace]).output();
        }
    }
}

/// Waits at most `milliseconds` until the descriptor is ready; whether it is.
pub fn ready(descriptor: &impl AsRawFd, interest: Interest, milliseconds: u64) -> bool {
    let (mut epoll, mut events) = (Epoll::new(1).unwrap(), Vec::new());
    epoll.add(descriptor, 0, interest).unwrap();
    let deadline = monotonic_ns() + milliseconds * 1_000_000;
    loop {
        epoll.wait(Some(deadline.saturating_sub(monotonic_ns())), &mut events).unwrap();
        let hit = events.iter().any(|e| (interest.read && e.readable) || (interest.write && e.writable));
        if hit || monotonic_ns() >= deadline {
            return hit;
        }
    }
}

/// Tries again for at most two seconds until there is something. Tests run side by side in one process: for a moment, a
/// command that another test starts holds a copy of every descriptor, so what is closed here is not closed at once.
pub fn soon<T>(mut attempt: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = monotonic_ns() + 2_000_000_000;
    loop {
        match attempt() {
            None if monotonic_ns() < deadline => thread::sleep(Duration::from_millis(5)),
            result => return result,
        }
    }
}

/// Interest in room to write only.
pub const WRITE: Interest = Interest { read: false, write: true };

fn sum(bytes: &[u8]) -> u32 {
    bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0))).sum()
}

fn fold(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// An IP packet of that protocol and payload, with checksum if it is UDP or ICMP(v6).
pub fn ip(from: IpAddr, to: IpAddr, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let (mut packet, addresses) = match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let length = (20 + payload.len() as u16).to_be_bytes();
            let mut header = vec![0x45, 0, length[0], length[1], 0, 1, 0x40, 0, 64, protocol, 0, 0];
            header.extend(from.octets().iter().chain(&to.octets()));
            let checksum = !fold(sum(&header));
            header[10..12].copy_from_slice(&checksum.to_be_bytes());
            let pseudo = sum(&header[12..20]);
            (header, pseudo)
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let length = (payload.len() as u16).to_be_bytes();
            let mut header = vec![0x60, 0, 0, 0, length[0], length[1], protocol, 64];
            header.extend(from.octets().iter().chain(&to.octets()));
            let pseudo = sum(&header[8..40]);
            (header, pseudo)
        }
        _ => panic!("one family"),
    };
    let start = packet.len();
    packet.extend_from_slice(payload);
    let at = match protocol {
        17 => 6,
        1 | 58 => 2,
        _ => return packet,
    };
    let pseudo = if protocol == 1 { 0 } else { addresses + u32::from(protocol) + payload.len() as u32 };
    let checksum = match !fold(sum(payload) + pseudo) {
        0 => 0xffff,
        other => other,
    };
    packet[start + at..start + at + 2].copy_from_slice(&checksum.to_be_bytes());
    packet
}

/// A UDP datagram with its IP header.
pub fn udp(from: &str, to: &str, payload: &[u8]) -> Vec<u8> {
    let (from, to): (SocketAddr, SocketAddr) = (from.parse().unwrap(), to.parse().unwrap());
    let mut datagram = [from.port().to_be_bytes(), to.port().to_be_bytes()].concat();
    datagram.extend((8 + payload.len() as u16).to_be_bytes());
    datagram.extend([0, 0]);
    datagram.extend_from_slice(payload);
    ip(from.ip(), to.ip(), 17, &datagram)
}

/// Whether the UDP or TCP checksum of a packet without options or extension headers is right.
pub fn verifies(packet: &[u8]) -> bool {
    let (start, protocol, addresses) = match packet[0] >> 4 {
        4 => (20, packet[9], sum(&packet[12..20])),
        _ => (40, packet[6], sum(&packet[8..40])),
    };
    let payload = &packet[start..];
    fold(sum(payload) + addresses + u32::from(protocol) + payload.len() as u32) == 0xffff
}
