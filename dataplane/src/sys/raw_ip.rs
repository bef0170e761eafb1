//! Raw IP sockets that send whole packets of ours over one interface; the kernel finds the next hop and its MAC address.

use super::socket::{self, RawAddress, SendBound, Sent};
use super::{context, interface};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::unix::io::{AsRawFd, OwnedFd, RawFd};

/// Address family of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// An open raw socket, non-blocking. It sends and never receives; at most two full packets wait below it.
///
/// Routing is the kernel's, restricted to the interface: the default route of that interface, whatever its metric. Without one
/// IPv6 answers [`Sent::NoRoute`], but IPv4 takes every destination for a neighbour and asks for it by ARP in vain: look for
/// the interface's default route (see [`super::netlink`]) before IPv4 packets go there. Neither tells when the next hop does
/// not answer ARP or neighbour discovery.
#[derive(Debug)]
pub struct RawIp {
    descriptor: OwnedFd,
    interface: String,
    family: Family,
    bound: SendBound,
}

impl RawIp {
    /// Opens the socket in the current network namespace. It is of the interface as it is now: open another one when the
    /// interface has vanished and come again, or when its MTU has changed.
    pub fn open(interface: &str, family: Family) -> io::Result<RawIp> {
        let what = format!("raw socket on {interface}");
        let domain = if family == Family::V4 { libc::AF_INET } else { libc::AF_INET6 };
        let descriptor = socket::open(domain, libc::SOCK_RAW, libc::IPPROTO_RAW, &what)?;
        // IPPROTO_RAW stands for "packets with their IP header". It receives none but packets of protocol 255: drop those.
        let drop_all = libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: 0 };
        socket::attach_filter(&descriptor, &[drop_all], &what)?;
        socket::bind_to_device(&descriptor, interface)?;
        let name = || format!("header option of {what}");
        match family {
            Family::V4 => socket::set_option(&descriptor, libc::IPPROTO_IP, libc::IP_HDRINCL, &1i32, name)?,
            Family::V6 => socket::set_option(&descriptor, libc::IPPROTO_IPV6, libc::IPV6_HDRINCL, &1i32, name)?,
        }
        let bound = SendBound::set(&descriptor, interface::mtu(interface)?, &what)?;
        Ok(RawIp { descriptor, interface: interface.to_string(), family, bound })
    }

    /// Name of the interface.
    pub fn interface(&self) -> &str {
        &self.interface
    }

    /// Family of the packets that it sends.
    pub fn family(&self) -> Family {
        self.family
    }

    /// Sends one complete IP packet with finished checksums. One of another family than the socket's, or too short for its
    /// header, goes nowhere ([`Sent::NoRoute`]).
    pub fn send(&self, packet: &[u8]) -> io::Result<Sent> {
        self.send_parts([packet, &[]])
    }

    /// The same for a packet in two parts, of which the first holds at least the IP header.
    pub fn send_parts(&self, parts: [&[u8]; 2]) -> io::Result<Sent> {
        let packet = parts[0];
        let to = match (self.family, packet.first().map(|b| b >> 4)) {
            (Family::V4, Some(4)) if packet.len() >= 20 => {
                RawAddress::v4(Ipv4Addr::new(packet[16], packet[17], packet[18], packet[19]), 0)
            }
            (Family::V6, Some(6)) if packet.len() >= 40 => {
                let mut address = [0; 16];
                address.copy_from_slice(&packet[24..40]);
                RawAddress::v6(Ipv6Addr::from(address), 0, 0)
            }
            _ => return Ok(Sent::NoRoute),
        };
        if !self.bound.has_room(&self.descriptor) {
            return Ok(Sent::NotNow);
        }
        socket::transmit(&self.descriptor, parts, &to)
            .map_err(|error| context(error, &format!("send on raw socket on {}", self.interface)))
    }

    /// Kernel memory in bytes of packets that wait below the socket, with about 800 bytes of overhead each; 0: none.
    pub fn waiting_bytes(&self) -> u32 {
        socket::waiting(&self.descriptor).max(0) as u32
    }
}

impl AsRawFd for RawIp {
    fn as_raw_fd(&self) -> RawFd {
        self.descriptor.as_raw_fd()
    }
}
