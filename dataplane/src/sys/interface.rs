//! Properties of network interfaces through ioctls, and MAC addresses as text.

use super::{check, context, invalid};
use std::io;
use std::mem;
use std::os::unix::io::{AsRawFd, FromRawFd, OwnedFd};

/// A MAC address.
pub type Mac = [u8; 6];

/// `struct ifreq`: a name and 24 bytes that each request reads in its own way.
#[repr(C)]
pub(crate) struct InterfaceRequest {
    name: [u8; 16],
    pub(crate) data: [u8; 24],
}

impl InterfaceRequest {
    /// Checks the name as the kernel would: 1 to 15 bytes, no slash, no white space.
    pub(crate) fn new(name: &str) -> io::Result<Self> {
        let good = !name.is_empty() && name.len() <= 15 && name != "." && name != "..";
        if !good || name.bytes().any(|b| b == b'/' || b == b':' || b == 0 || b.is_ascii_whitespace()) {
            return Err(invalid(format!("interface name {name:?}: expected 1 to 15 characters without '/' or spaces")));
        }
        let mut request = InterfaceRequest { name: [0; 16], data: [0; 24] };
        request.name[..name.len()].copy_from_slice(name.as_bytes());
        Ok(request)
    }

    /// `ioctl(descriptor, code, self)`; `what` and `name` go into the error.
    pub(crate) fn call(&mut self, descriptor: &OwnedFd, code: u32, what: &str) -> io::Result<()> {
        self.try_call(descriptor, code).map_err(|error| {
            let end = self.name.iter().position(|&b| b == 0).unwrap_or(self.name.len());
            context(error, &format!("{what} of interface {}", String::from_utf8_lossy(&self.name[..end])))
        })
    }

    /// The same with the system's own error, number and all.
    pub(crate) fn try_call(&mut self, descriptor: &OwnedFd, code: u32) -> io::Result<()> {
        let pointer = self as *mut InterfaceRequest;
        // SAFETY: `self` has the layout and at least the size of what these requests read and write.
        if unsafe { libc::ioctl(descriptor.as_raw_fd(), code as _, pointer) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    fn set_number(&mut self, number: u32) {
        self.data[..4].copy_from_slice(&number.to_ne_bytes());
    }

    fn number(&self) -> u32 {
        u32::from_ne_bytes([self.data[0], self.data[1], self.data[2], self.data[3]])
    }
}

/// A datagram socket for interface requests, in the current namespace.
fn request_socket() -> io::Result<OwnedFd> {
    // SAFETY: a plain system call; the descriptor is owned from here on.
    let result = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    let descriptor = check(result, || "socket for interface requests".to_string())?;
    // SAFETY: `descriptor` was just opened and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Index of an interface of the current namespace.
pub fn index(name: &str) -> io::Result<u32> {
    let mut request = InterfaceRequest::new(name)?;
    request.call(&request_socket()?, libc::SIOCGIFINDEX as u32, "index")?;
    Ok(request.number())
}

/// MAC address of an interface.
pub fn mac(name: &str) -> io::Result<Mac> {
    let mut request = InterfaceRequest::new(name)?;
    request.call(&request_socket()?, libc::SIOCGIFHWADDR as u32, "MAC address")?;
    let d = &request.data;
    Ok([d[2], d[3], d[4], d[5], d[6], d[7]])
}

/// Kind of hardware (ARPHRD_...): 1 for everything that looks like Ethernet.
pub fn hardware_type(name: &str) -> io::Result<u16> {
    let mut request = InterfaceRequest::new(name)?;
    request.call(&request_socket()?, libc::SIOCGIFHWADDR as u32, "kind of hardware")?;
    Ok(u16::from_ne_bytes([request.data[0], request.data[1]]))
}

/// Asks a device for its carrier at this moment (ethtool's GLINK).
///
/// The kernel tells of a carrier by rtnetlink at once only if it has told of no other within the last second (on devices
/// whose peer has another index: always), otherwise up to a second later. Being asked makes it tell at once: ask every few
/// milliseconds while something is to be sent, and [`super::netlink::Monitor`] hears of it, too.
#[derive(Debug)]
pub struct CarrierQuery {
    socket: OwnedFd,
    name: String,
}

impl CarrierQuery {
    /// For an interface of the current network namespace, which need not exist yet.
    pub fn open(name: &str) -> io::Result<CarrierQuery> {
        InterfaceRequest::new(name)?;
        Ok(CarrierQuery { socket: request_socket()?, name: name.to_string() })
    }

    /// Whether the interface is up and has its carrier; true for devices that can't tell, false for one that does not exist.
    pub fn up(&self) -> bool {
        const ETHTOOL_GLINK: u32 = 0x0a;
        let mut value: [u32; 2] = [ETHTOOL_GLINK, 0];
        let pointer = value.as_mut_ptr() as usize;
        let result = InterfaceRequest::new(&self.name).and_then(|mut request| {
            request.data[..mem::size_of::<usize>()].copy_from_slice(&pointer.to_ne_bytes());
            request.try_call(&self.socket, libc::SIOCETHTOOL as u32)
        });
        // The kernel wrote through the pointer, which the compiler does not see.
        // SAFETY: `value` is alive and initialised.
        let link = unsafe { std::ptr::read_volatile(&value[1]) };
        match result {
            Ok(()) => link != 0,
            Err(error) => error.raw_os_error() == Some(libc::EOPNOTSUPP),
        }
    }
}

/// MTU of an interface in bytes (without the Ethernet header).
pub fn mtu(name: &str) -> io::Result<u32> {
    let mut request = InterfaceRequest::new(name)?;
    request.call(&request_socket()?, libc::SIOCGIFMTU as u32, "MTU")?;
    Ok(request.number())
}

/// Sets the MAC address of an Ethernet interface.
pub fn set_mac(name: &str, mac: Mac) -> io::Result<()> {
    let mut request = InterfaceRequest::new(name)?;
    request.data[..2].copy_from_slice(&libc::ARPHRD_ETHER.to_ne_bytes());
    request.data[2..8].copy_from_slice(&mac);
    request.call(&request_socket()?, libc::SIOCSIFHWADDR as u32, "set MAC address")
}

/// Sets the MTU of an interface.
pub fn set_mtu(name: &str, mtu: u32) -> io::Result<()> {
    let mut request = InterfaceRequest::new(name)?;
    request.set_number(mtu);
    request.call(&request_socket()?, libc::SIOCSIFMTU as u32, "set MTU")
}

/// Sets the transmit queue length (for a TAP: what it holds until the program reads).
pub fn set_tx_queue(name: &str, frames: u32) -> io::Result<()> {
    let mut request = InterfaceRequest::new(name)?;
    request.set_number(frames);
    request.call(&request_socket()?, libc::SIOCSIFTXQLEN as u32, "set transmit queue length")
}

/// Sets an interface administratively up or down.
pub fn set_up(name: &str, up: bool) -> io::Result<()> {
    let socket = request_socket()?;
    let mut request = InterfaceRequest::new(name)?;
    request.call(&socket, libc::SIOCGIFFLAGS as u32, "flags")?;
    let mut flags = u16::from_ne_bytes([request.data[0], request.data[1]]);
    flags = if up { flags | libc::IFF_UP as u16 } else { flags & !(libc::IFF_UP as u16) };
    request.data[..2].copy_from_slice(&flags.to_ne_bytes());
    request.call(&socket, libc::SIOCSIFFLAGS as u32, "set flags")
}

/// Reads `02:00:00:00:00:01`; exactly six two-digit hexadecimal bytes.
pub fn parse_mac(text: &str) -> Option<Mac> {
    let mut mac = [0u8; 6];
    let mut parts = text.split(':');
    for byte in &mut mac {
        let part = parts.next()?;
        if part.len() != 2 || !part.bytes().all(|b| b.is_ascii_hexdigit()) {
            return None;
        }
        *byte = u8::from_str_radix(part, 16).ok()?;
    }
    if parts.next().is_some() {
        return None;
    }
    Some(mac)
}

/// Writes a MAC address in lower-case hexadecimal.
pub fn format_mac(mac: Mac) -> String {
    let [a, b, c, d, e, f] = mac;
    format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mac_addresses_survive_the_round_trip() {
        let mac = [0x02, 0, 0xab, 1, 0xff, 9];
        assert_eq!(parse_mac(&format_mac(mac)), Some(mac));
        assert_eq!(parse_mac("02:00:AB:01:ff:09"), Some(mac));
        for bad in [
            "",
            "02",
            "02:00:00:00:00",
            "02:00:00:00:00:00:00",
            "2:0:0:0:0:1",
            "02:00:00:00:00:+1",
            "gg:00:00:00:00:00",
        ] {
            assert_eq!(parse_mac(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn names_the_kernel_would_refuse_are_refused() {
        for bad in ["", "a name", "sixteen-letters-", "a/b", ".", "a:0"] {
            assert!(InterfaceRequest::new(bad).is_err(), "{bad:?}");
        }
        assert!(InterfaceRequest::new("fifteen-letters").is_ok());
    }

    #[test]
    fn loopback_has_an_index_and_an_mtu() {
        assert_eq!(index("lo").unwrap(), 1);
        assert!(mtu("lo").unwrap() >= 1500);
        assert!(index("hr-missing").unwrap_err().to_string().contains("hr-missing"));
    }
}
