//! TUN devices: virtual IP interfaces whose other end is this program.

use super::interface::{self, InterfaceRequest};
use super::virtio::{VirtioHeader, HEADER_LEN};
use super::{check, context, invalid};
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::io::{AsRawFd, OwnedFd, RawFd};

const TUNSETIFF: u32 = super::tun_request(202);
const TUNSETPERSIST: u32 = super::tun_request(203);
const TUNSETOFFLOAD: u32 = super::tun_request(208);
const TUNSETVNETHDRSZ: u32 = super::tun_request(216);
const TUN_F_CSUM: usize = 1;
const TUN_F_TSO4: usize = 2;
const TUN_F_TSO6: usize = 4;

/// Parts that a packet may be handed over in.
pub const MOST_PARTS: usize = 66;

/// How a TUN is set up when it is opened.
#[derive(Debug, Clone)]
pub struct TunOptions {
    /// Interface name, 1 to 15 characters.
    pub name: String,
    /// MTU in bytes; None leaves what it has (1500 when new).
    pub mtu: Option<u32>,
    /// Whether the interface stays, without carrier, when this program ends.
    pub persistent: bool,
    /// Whether to set the interface up.
    pub up: bool,
    /// How many packets the kernel keeps for this program before it drops; None leaves the default (500).
    pub queue_packets: Option<u32>,
    /// Whether the host may give packets of up to 64 KiB that stand for several TCP segments.
    pub segments: bool,
}

impl TunOptions {
    /// A TUN of that name, up, everything else as the kernel has it.
    pub fn new(name: &str) -> Self {
        TunOptions {
            name: name.to_string(),
            mtu: None,
            persistent: false,
            up: true,
            queue_packets: None,
            segments: false,
        }
    }
}

/// An open TUN device, non-blocking. The host gives single packets with finished checksums, and if asked to such that stand
/// for several segments; it takes packets that still need a checksum or stand for several segments.
#[derive(Debug)]
pub struct Tun {
    descriptor: OwnedFd,
    name: String,
}

impl Tun {
    /// Creates the TUN in the current network namespace, or attaches to a persistent one that no program holds.
    pub fn open(options: &TunOptions) -> io::Result<Tun> {
        let name = &options.name;
        let mut request = InterfaceRequest::new(name)?;
        let mut open = OpenOptions::new();
        open.read(true).write(true).custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC);
        let file = open.open("/dev/net/tun").map_err(|e| context(e, "open /dev/net/tun"))?;
        let descriptor = OwnedFd::from(file);
        let flags = (libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR) as u16;
        request.data[..2].copy_from_slice(&flags.to_ne_bytes());
        request.try_call(&descriptor, TUNSETIFF).map_err(|error| explain(error, name))?;
        let tun = Tun { descriptor, name: name.clone() };
        // A program that held it before may have left other values.
        let header_bytes = HEADER_LEN as libc::c_int;
        tun.control(TUNSETVNETHDRSZ, &header_bytes as *const libc::c_int as usize, "header size")?;
        let offloads = if options.segments { TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6 } else { 0 };
        tun.control(TUNSETOFFLOAD, offloads, "offloads")?;
        tun.control(TUNSETPERSIST, options.persistent.into(), "persistence")?;
        if let Some(mtu) = options.mtu {
            interface::set_mtu(name, mtu)?;
        }
        if let Some(packets) = options.queue_packets {
            interface::set_tx_queue(name, packets)?;
        }
        if options.up {
            interface::set_up(name, true)?;
        }
        Ok(tun)
    }

    fn control(&self, code: u32, value: usize, what: &str) -> io::Result<()> {
        // SAFETY: the requests above read at most one int through a pointer that is valid over the call, or take a number.
        let result = unsafe { libc::ioctl(self.descriptor.as_raw_fd(), code as _, value) };
        check(result, || format!("set {what} of TUN {}", self.name)).map(|_| ())
    }

    /// Name of the interface.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Reads one IP packet that the host sent into the device. None: there is none now, or the next one was longer than
    /// `buffer` and is lost; epoll tells which. For a TUN without `segments`: a packet of several is lost, too.
    pub fn read(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        let got = self.read_segments(buffer)?;
        Ok(got.filter(|(size, _)| *size == 0).map(|(_, length)| length))
    }

    /// The same with the payload bytes of each TCP segment that the packet stands for, whose checksum holds only the sum of
    /// the pseudo header; 0 for a plain packet, which is complete.
    pub fn read_segments(&self, buffer: &mut [u8]) -> io::Result<Option<(u16, usize)>> {
        let mut header = VirtioHeader::PLAIN;
        // The kernel cuts off silently: one byte behind the buffer shows it.
        let mut beyond = 0u8;
        let vectors = [
            libc::iovec { iov_base: (&mut header as *mut VirtioHeader).cast(), iov_len: HEADER_LEN },
            libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() },
            libc::iovec { iov_base: (&mut beyond as *mut u8).cast(), iov_len: 1 },
        ];
        // SAFETY: the vectors describe the header, `buffer` and one byte, all alive over the call.
        let n = unsafe { libc::readv(self.descriptor.as_raw_fd(), vectors.as_ptr(), vectors.len() as libc::c_int) };
        if n < 0 {
            return self.no_packet("read").map(|_| None);
        }
        let length = (n as usize).saturating_sub(HEADER_LEN);
        if length == 0 || length > buffer.len() {
            return Ok(None);
        }
        if header.is_gso() {
            return Ok(header.is_tcp().then_some((header.gso_size, length)).filter(|(size, _)| *size > 0));
        }
        Ok(header.finish_checksum(&mut buffer[..length]).then_some((0, length)))
    }

    /// Hands one complete IP packet to the host. False: the host did not take it (no room now, interface down, no IP packet).
    pub fn write(&self, packet: &[u8]) -> io::Result<bool> {
        self.write_offloaded(&VirtioHeader::PLAIN, packet)
    }

    /// Hands over a packet of up to 64 KiB whose checksum the host is to make, or that stands for several segments. False: the
    /// host did not take it (no room now, interface down, header and packet do not fit together).
    pub fn write_offloaded(&self, header: &VirtioHeader, packet: &[u8]) -> io::Result<bool> {
        self.write_parts(header, &[packet])
    }

    /// The same with a packet in parts; those behind `MOST_PARTS` are left out.
    pub fn write_parts(&self, header: &VirtioHeader, parts: &[&[u8]]) -> io::Result<bool> {
        let header = libc::iovec { iov_base: header as *const VirtioHeader as *mut _, iov_len: HEADER_LEN };
        let mut vectors = [header; MOST_PARTS + 1];
        for (vector, part) in vectors[1..].iter_mut().zip(parts) {
            *vector = libc::iovec { iov_base: part.as_ptr() as *mut libc::c_void, iov_len: part.len() };
        }
        let count = 1 + parts.len().min(MOST_PARTS);
        // SAFETY: the vectors describe the header and the parts, which the kernel only reads.
        let n = unsafe { libc::writev(self.descriptor.as_raw_fd(), vectors.as_ptr(), count as libc::c_int) };
        if n >= 0 {
            return Ok(true);
        }
        self.no_packet("write").map(|_| false)
    }

    /// Takes the interface away, persistent or not.
    pub fn remove(self) -> io::Result<()> {
        self.control(TUNSETPERSIST, 0, "persistence")
    }

    /// The last error, unless it only means "not this packet": no room, interface down, or bytes that are no IP packet, which
    /// may come from a stranger.
    fn no_packet(&self, what: &str) -> io::Result<()> {
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EAGAIN | libc::EINTR | libc::ENOBUFS | libc::ENOMEM | libc::EIO) => Ok(()),
            Some(libc::EINVAL | libc::EMSGSIZE | libc::ENETDOWN) => Ok(()),
            _ => Err(context(error, &format!("{what} TUN {}", self.name))),
        }
    }
}

/// Says in words why the kernel refuses a name.
fn explain(error: io::Error, name: &str) -> io::Error {
    match error.raw_os_error() {
        Some(libc::EBUSY) => io::Error::new(io::ErrorKind::AddrInUse, format!("TUN {name}: another program holds it")),
        Some(libc::EINVAL | libc::EEXIST) => invalid(format!(
            "TUN {name}: an interface of that name and of another kind exists; remove it or choose another name"
        )),
        _ => context(error, &format!("create TUN {name}")),
    }
}

impl AsRawFd for Tun {
    fn as_raw_fd(&self) -> RawFd {
        self.descriptor.as_raw_fd()
    }
}
