//! Packet sockets that receive the IP packets of the client stack on one interface, several wire packets in one (GRO).

use super::socket::{self, RawAddress};
use super::virtio::{VirtioHeader, HEADER_LEN};
use super::{filter, interface, invalid};
use std::io;
use std::mem;
use std::ops::RangeInclusive;
use std::os::unix::io::{AsRawFd, OwnedFd, RawFd};

const ARPHRD_ETHER: u16 = 1;
const ARPHRD_LOOPBACK: u16 = 772;
/// Kinds of hardware whose packets start with the IP header: PPP, raw IP (cellular modems), IP tunnels, TUN and WireGuard.
const WITHOUT_LINK_HEADER: [u16; 7] = [512, 519, 768, 769, 776, 778, 0xfffe];
pub(super) const ETHERNET_BYTES: usize = 14;
/// Longest IP packet, and the distance of the buffers.
const PACKET_BYTES: usize = 1 << 16;

/// Bytes of an interface's link header.
pub(super) fn link_bytes(interface: &str) -> io::Result<usize> {
    match interface::hardware_type(interface)? {
        ARPHRD_ETHER | ARPHRD_LOOPBACK => Ok(ETHERNET_BYTES),
        kind if WITHOUT_LINK_HEADER.contains(&kind) => Ok(0),
        kind => Err(invalid(format!("interface {interface}: link headers of hardware type {kind} are not known"))),
    }
}

/// How a receiving socket is opened.
#[derive(Debug, Clone)]
pub struct IpTapOptions {
    /// Interface of the current network namespace.
    pub interface: String,
    /// TCP and UDP packets to these ports are received.
    pub ports: RangeInclusive<u16>,
    /// Receive protocols other than TCP, UDP and ICMP, too.
    pub other_protocols: bool,
    /// Room in the kernel in bytes.
    pub buffer_bytes: u32,
}

impl IpTapOptions {
    /// Ports 20000 to 32767, no other protocols, 8 MiB of buffer.
    pub fn new(interface: &str) -> Self {
        let interface = interface.to_string();
        IpTapOptions { interface, ports: 20_000..=32_767, other_protocols: false, buffer_bytes: 8 << 20 }
    }
}

/// An open socket, non-blocking. The kernel's own stack gets the packets, too: a firewall rule has to keep them from it.
#[derive(Debug)]
pub struct IpTap {
    descriptor: OwnedFd,
    interface: String,
    link_bytes: usize,
}

impl IpTap {
    /// Opens the socket in the current network namespace. It is of the interface as it is now: open another one when the
    /// interface has vanished and come again. While the interface is down it receives nothing, afterwards it goes on.
    pub fn open(options: &IpTapOptions) -> io::Result<IpTap> {
        let name = &options.interface;
        let index = interface::index(name)?;
        let link_bytes = link_bytes(name)?;
        let what = format!("packet socket on {name}");
        // Protocol 0: nothing is received before bind has named the interface, so the filter is there first.
        let descriptor = socket::open(libc::AF_PACKET, libc::SOCK_RAW, 0, &what)?;
        let program = filter::for_client(link_bytes as u32, &options.ports, options.other_protocols)?;
        socket::attach_filter(&descriptor, &program, &what)?;
        let options_on = [
            (libc::PACKET_VNET_HDR, "PACKET_VNET_HDR"),
            // Linux 4.20 and later; without it we would see what the host sends.
            (libc::PACKET_IGNORE_OUTGOING, "PACKET_IGNORE_OUTGOING"),
        ];
        for (option, text) in options_on {
            socket::set_option(&descriptor, libc::SOL_PACKET, option, &1i32, || format!("{text} of {what}"))?;
        }
        socket::grow_receive_buffer(&descriptor, options.buffer_bytes, &what)?;
        // Every protocol: the filter chooses, and one socket serves both families.
        let address = RawAddress::packet(index, libc::ETH_P_ALL as u16);
        socket::bind(&descriptor, &address, || format!("bind {what}"))?;
        Ok(IpTap { descriptor, interface: name.clone(), link_bytes })
    }

    /// Name of the interface.
    pub fn interface(&self) -> &str {
        &self.interface
    }

    /// Receives as many packets as there are and `batch` holds, in one system call; 0 if there is none now. What is longer
    /// than 64 KiB or can't be described by a virtio header is counted but left out of its items.
    pub fn receive(&self, batch: &mut IpBatch) -> io::Result<usize> {
        batch.count = 0;
        batch.arm(self.link_bytes);
        // A packet that the kernel can't describe is an error of its own (EINVAL); the next one is behind it.
        for _ in 0..4 {
            let (pointer, length) = (batch.messages.as_mut_ptr(), batch.messages.len() as libc::c_uint);
            let flags = libc::MSG_DONTWAIT as _;
            // SAFETY: every message points into buffers owned by `batch`.
            let n = unsafe { libc::recvmmsg(self.as_raw_fd(), pointer, length, flags, std::ptr::null_mut()) };
            if n >= 0 {
                batch.count = (n as usize).min(batch.messages.len());
                break;
            }
            if !socket::nothing_now(&format!("receive on packet socket on {}", self.interface))? {
                break;
            }
        }
        Ok(batch.count)
    }
}

impl AsRawFd for IpTap {
    fn as_raw_fd(&self) -> RawFd {
        self.descriptor.as_raw_fd()
    }
}

/// Buffers for [`IpTap::receive`]; one batch serves all interfaces. Memory is only taken by what has been received into.
pub struct IpBatch {
    packets: Vec<u8>,
    headers: Vec<VirtioHeader>,
    /// Where the link headers go.
    links: Vec<[u8; 16]>,
    vectors: Vec<[libc::iovec; 3]>,
    messages: Vec<libc::mmsghdr>,
    /// Length of the link header that the vectors are set for.
    link_bytes: usize,
    count: usize,
}

// SAFETY: the pointers in vectors and messages point into the batch's own vectors, whose contents move with it.
unsafe impl Send for IpBatch {}

impl IpBatch {
    /// Room for `capacity` packets of up to 64 KiB.
    pub fn new(capacity: usize) -> IpBatch {
        let capacity = capacity.max(1);
        // SAFETY: all-zero structures are valid (null pointers, zero lengths).
        let (vector, message): (libc::iovec, libc::mmsghdr) = unsafe { (mem::zeroed(), mem::zeroed()) };
        IpBatch {
            // Zeroed memory of this size comes from the kernel page by page as it is touched.
            packets: vec![0; capacity * PACKET_BYTES],
            headers: vec![VirtioHeader::PLAIN; capacity],
            links: vec![[0; 16]; capacity],
            vectors: vec![[vector; 3]; capacity],
            messages: vec![message; capacity],
            link_bytes: usize::MAX,
            count: 0,
        }
    }

    /// Points the messages at the buffers. The kernel changes none of this (there is no address and no control data), so that
    /// it is only done again for another kind of link.
    fn arm(&mut self, link_bytes: usize) {
        if self.link_bytes == link_bytes {
            return;
        }
        self.link_bytes = link_bytes;
        for (i, message) in self.messages.iter_mut().enumerate() {
            let header = (&mut self.headers[i] as *mut VirtioHeader).cast();
            let packet = self.packets[i * PACKET_BYTES..].as_mut_ptr().cast();
            self.vectors[i] = [
                libc::iovec { iov_base: header, iov_len: HEADER_LEN },
                libc::iovec { iov_base: self.links[i].as_mut_ptr().cast(), iov_len: link_bytes },
                libc::iovec { iov_base: packet, iov_len: PACKET_BYTES },
            ];
            message.msg_hdr.msg_iov = self.vectors[i].as_mut_ptr();
            message.msg_hdr.msg_iovlen = 3;
        }
    }

    /// The packets of the last receive, from their IP headers on, each with its header for [`super::tun::Tun::write_offloaded`].
    pub fn items(&mut self) -> impl Iterator<Item = (VirtioHeader, &mut [u8])> {
        let link_bytes = if self.count == 0 { 0 } else { self.link_bytes };
        let messages = self.messages[..self.count].iter().zip(&self.headers);
        messages.zip(self.packets.chunks_mut(PACKET_BYTES)).filter_map(move |((message, header), packet)| {
            if message.msg_hdr.msg_flags & libc::MSG_TRUNC != 0 {
                return None;
            }
            let length = (message.msg_len as usize).checked_sub(HEADER_LEN + link_bytes)?;
            Some((header.without_link(link_bytes as u16)?, packet.get_mut(..length)?))
        })
    }
}
