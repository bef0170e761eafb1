//! TAP devices: virtual Ethernet interfaces whose other end is this program.

use super::interface::{self, InterfaceRequest, Mac};
use super::{check, context};
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::io::{AsRawFd, OwnedFd, RawFd};

const TUNSETIFF: u32 = super::tun_request(202);
const TUNSETCARRIER: u32 = super::tun_request(226);

/// How a TAP is set up when it is opened.
#[derive(Debug, Clone)]
pub struct TapOptions {
    /// Interface name, 1 to 15 characters.
    pub name: String,
    /// MAC address; None leaves what the kernel gave it.
    pub mac: Option<Mac>,
    /// MTU in bytes; None leaves 1500.
    pub mtu: Option<u32>,
    /// How many frames the kernel keeps for this program before it drops; None leaves the default (1000).
    pub tx_queue_frames: Option<u32>,
    /// Whether to set the interface up.
    pub up: bool,
}

impl TapOptions {
    /// A TAP of that name, up, everything else as the kernel has it.
    pub fn new(name: &str) -> Self {
        TapOptions { name: name.to_string(), mac: None, mtu: None, tx_queue_frames: None, up: true }
    }
}

/// An open TAP device, non-blocking. The interface vanishes with it unless it had been made persistent.
#[derive(Debug)]
pub struct Tap {
    descriptor: OwnedFd,
    name: String,
}

impl Tap {
    /// Creates (or attaches to) the TAP in the current network namespace and configures it.
    pub fn open(options: &TapOptions) -> io::Result<Tap> {
        let name = &options.name;
        let mut request = InterfaceRequest::new(name)?;
        let mut open = OpenOptions::new();
        open.read(true).write(true).custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC);
        let file = open.open("/dev/net/tun").map_err(|e| context(e, "open /dev/net/tun"))?;
        let descriptor = OwnedFd::from(file);
        let flags = (libc::IFF_TAP | libc::IFF_NO_PI) as u16;
        request.data[..2].copy_from_slice(&flags.to_ne_bytes());
        request.call(&descriptor, TUNSETIFF, "create TAP")?;
        if let Some(mac) = options.mac {
            interface::set_mac(name, mac)?;
        }
        if let Some(mtu) = options.mtu {
            interface::set_mtu(name, mtu)?;
        }
        if let Some(frames) = options.tx_queue_frames {
            interface::set_tx_queue(name, frames)?;
        }
        if options.up {
            interface::set_up(name, true)?;
        }
        Ok(Tap { descriptor, name: name.clone() })
    }

    /// Name of the interface.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Reads one frame that the host sent into the device. None: there is none now.
    pub fn read(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        // SAFETY: pointer and length describe `buffer`.
        let n = unsafe { libc::read(self.descriptor.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len()) };
        if n >= 0 {
            return Ok(Some(n as usize));
        }
        self.no_frame("read").map(|_| None)
    }

    /// Hands one frame to the host. False: the host has no room for it now, or the interface was set down.
    pub fn write(&self, frame: &[u8]) -> io::Result<bool> {
        // SAFETY: pointer and length describe `frame`.
        let n = unsafe { libc::write(self.descriptor.as_raw_fd(), frame.as_ptr().cast(), frame.len()) };
        if n >= 0 {
            return Ok(true);
        }
        self.no_frame("write").map(|_| false)
    }

    /// Tells the host that the cable is plugged in or out.
    pub fn set_carrier(&self, up: bool) -> io::Result<()> {
        let value: libc::c_uint = up.into();
        // SAFETY: TUNSETCARRIER reads one unsigned int through the pointer.
        let result = unsafe { libc::ioctl(self.descriptor.as_raw_fd(), TUNSETCARRIER as _, &value) };
        check(result, || format!("set carrier of TAP {}", self.name)).map(|_| ())
    }

    /// The last error, unless it only means "not now".
    fn no_frame(&self, what: &str) -> io::Result<()> {
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EAGAIN | libc::EINTR | libc::ENOBUFS | libc::EIO) => Ok(()),
            _ => Err(context(error, &format!("{what} TAP {}", self.name))),
        }
    }
}

impl AsRawFd for Tap {
    fn as_raw_fd(&self) -> RawFd {
        self.descriptor.as_raw_fd()
    }
}
