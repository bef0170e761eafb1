//! Packet sockets that send IP packets which stand for several TCP segments: the kernel or the network card cuts them.

use super::interface::{self, Mac};
use super::ip_tap::{link_bytes, ETHERNET_BYTES};
use super::socket::{self, RawAddress, SendBound, Sent};
use super::virtio::{VirtioHeader, HEADER_LEN};
use super::{context, invalid};
use std::io;
use std::os::unix::io::{AsRawFd, OwnedFd, RawFd};

/// Headers of a packet that the first part of a message may hold.
const MOST_HEAD: usize = 240;
/// Kernel memory around the payload of a packet: its headers and descriptor.
const AROUND: i32 = 2048;
const PAGE: u32 = 4096;
/// Kernel memory of a packet of 64 KiB is about this much.
const MOST_BYTES: u32 = 1 << 16;

/// An open socket, non-blocking. It sends and never receives. The next hop is the caller's to know: these packets pass the
/// host's routes and its firewall by, but not the interface's queueing discipline.
#[derive(Debug)]
pub struct PacketOut {
    descriptor: OwnedFd,
    interface: String,
    index: u32,
    link_bytes: u16,
    mac: Mac,
    bound: SendBound,
    bound_bytes: u32,
}

impl PacketOut {
    /// Opens the socket in the current network namespace. It is of the interface as it is now: open another one when the
    /// interface has vanished and come again.
    pub fn open(interface: &str) -> io::Result<PacketOut> {
        let what = format!("sending packet socket on {interface}");
        let (index, link_bytes) = (interface::index(interface)?, link_bytes(interface)? as u16);
        // Protocol 0: it receives nothing.
        let descriptor = socket::open(libc::AF_PACKET, libc::SOCK_RAW, 0, &what)?;
        let option = || format!("PACKET_VNET_HDR of {what}");
        socket::set_option(&descriptor, libc::SOL_PACKET, libc::PACKET_VNET_HDR, &1i32, option)?;
        socket::bind(&descriptor, &RawAddress::packet(index, 0), || format!("bind {what}"))?;
        let bound_bytes = interface::mtu(interface)?.min(MOST_BYTES);
        let bound = SendBound::set_memory(&descriptor, memory(bound_bytes), &what)?;
        let interface = interface.to_string();
        let mut out = PacketOut { descriptor, interface, index, link_bytes, mac: Mac::default(), bound, bound_bytes };
        out.read_mac()?;
        Ok(out)
    }

    /// Reads the interface's own MAC address, which may have changed.
    pub fn read_mac(&mut self) -> io::Result<()> {
        if self.needs_hop() {
            self.mac = interface::mac(&self.interface)?;
        }
        Ok(())
    }

    /// Name of the interface.
    pub fn interface(&self) -> &str {
        &self.interface
    }

    /// Whether a packet needs its next hop's MAC address.
    pub fn needs_hop(&self) -> bool {
        self.link_bytes > 0
    }

    /// From now on packets are of at most so many bytes; at most two such wait below.
    pub fn set_longest(&mut self, bytes: usize) -> io::Result<()> {
        let bytes = (bytes.min(MOST_BYTES as usize) as u32).next_power_of_two();
        if bytes != self.bound_bytes {
            let what = format!("sending packet socket on {}", self.interface);
            self.bound = SendBound::set_memory(&self.descriptor, memory(bytes), &what)?;
            self.bound_bytes = bytes;
        }
        Ok(())
    }

    /// Sends one IP packet, headers and payload. The offsets of `header` count from the IP header.
    pub fn send(&self, header: &VirtioHeader, hop: Option<Mac>, head: &[u8], payload: &[u8]) -> io::Result<Sent> {
        let ether_type = match head.first().map(|b| b >> 4) {
            Some(4) => libc::ETH_P_IP,
            Some(6) => libc::ETH_P_IPV6,
            _ => return Ok(Sent::NoRoute),
        };
        if head.len() > MOST_HEAD || self.needs_hop() && hop.is_none() {
            return Err(invalid(format!("packet socket on {}: no next hop, or headers too long", self.interface)));
        }
        if !self.bound.has_room(&self.descriptor) {
            return Ok(Sent::NotNow);
        }
        let mut first = [0u8; HEADER_LEN + ETHERNET_BYTES + MOST_HEAD];
        let (ip_at, kind) = (HEADER_LEN + usize::from(self.link_bytes), ether_type as u16);
        first[..HEADER_LEN].copy_from_slice(&header.behind_link(self.link_bytes).bytes());
        if let (Some(link), Some(hop)) = (first[HEADER_LEN..ip_at].get_mut(..ETHERNET_BYTES), hop) {
            link[..6].copy_from_slice(&hop);
            link[6..12].copy_from_slice(&self.mac);
            link[12..].copy_from_slice(&kind.to_be_bytes());
        }
        let end = ip_at + head.len();
        first[ip_at..end].copy_from_slice(head);
        let to = RawAddress::packet(self.index, kind);
        socket::transmit(&self.descriptor, [&first[..end], payload], &to)
            .map_err(|error| context(error, &format!("send on packet socket on {}", self.interface)))
    }

    /// Kernel memory in bytes of packets that wait below the socket; 0: none.
    pub fn waiting_bytes(&self) -> u32 {
        socket::waiting(&self.descriptor).max(0) as u32
    }
}

/// Kernel memory of a packet of that many bytes, whose payload is in pages.
fn memory(bytes: u32) -> i32 {
    ((bytes + PAGE - 1) / PAGE * PAGE) as i32 + AROUND
}

impl AsRawFd for PacketOut {
    fn as_raw_fd(&self) -> RawFd {
        self.descriptor.as_raw_fd()
    }
}
