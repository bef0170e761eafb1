//! What the sockets of the client stack share: options, addresses, what became of a packet, and a bound on what waits below.

use super::interface::InterfaceRequest;
use super::{check, context};
use std::io;
use std::mem;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::unix::io::{AsRawFd, FromRawFd, OwnedFd};

/// What became of a packet that was handed to the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// The kernel has it.
    Done,
    /// There is no room now. If the socket has a bound on what waits below it, it becomes writable (EPOLLOUT) once there
    /// is room. If a queue of the device is full (ENOBUFS) nothing tells of room: try again after about a packet's time.
    NotNow,
    /// It is longer than the MTU of the interface or of the path.
    TooBig,
    /// The interface can't send it: no route, no address, down, gone, or a firewall of this host forbids it.
    NoRoute,
}

impl Sent {
    /// What an error of a send call means; None: it says that the caller is wrong, not the network.
    pub(crate) fn of_error(error: &io::Error) -> Option<Sent> {
        match error.raw_os_error()? {
            libc::EAGAIN | libc::EINTR | libc::ENOBUFS | libc::ENOMEM => Some(Sent::NotNow),
            libc::EMSGSIZE => Some(Sent::TooBig),
            libc::ENETUNREACH | libc::EHOSTUNREACH | libc::ENETDOWN | libc::ENODEV | libc::ENXIO => Some(Sent::NoRoute),
            libc::EPERM | libc::EACCES | libc::EADDRNOTAVAIL | libc::EHOSTDOWN | libc::EINVAL => Some(Sent::NoRoute),
            // Queued on the socket by ICMP; it says nothing about this packet, which was not sent.
            libc::ECONNREFUSED | libc::EPROTO | libc::ENOPROTOOPT => Some(Sent::NotNow),
            _ => None,
        }
    }
}

/// A socket, non-blocking and closed on exec, in the current network namespace.
pub(crate) fn open(family: i32, kind: i32, protocol: i32, what: &str) -> io::Result<OwnedFd> {
    let kind = kind | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: a plain system call.
    let descriptor = check(unsafe { libc::socket(family, kind, protocol) }, || what.to_string())?;
    // SAFETY: `descriptor` was just opened and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// `setsockopt` with a value of plain data.
pub(crate) fn set_option<T: Copy>(
    socket: &OwnedFd,
    level: i32,
    name: i32,
    value: &T,
    what: impl FnOnce() -> String,
) -> io::Result<()> {
    let (pointer, size) = (value as *const T, mem::size_of::<T>() as libc::socklen_t);
    // SAFETY: pointer and size describe `value`.
    let result = unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, pointer.cast(), size) };
    check(result, what).map(|_| ())
}

/// The value of an option that is an integer.
pub(crate) fn get_option(socket: &OwnedFd, level: i32, name: i32, what: impl FnOnce() -> String) -> io::Result<i32> {
    let mut value = 0i32;
    let mut size = mem::size_of::<i32>() as libc::socklen_t;
    let pointer = (&mut value as *mut i32).cast();
    // SAFETY: pointer and size describe `value`.
    let result = unsafe { libc::getsockopt(socket.as_raw_fd(), level, name, pointer, &mut size) };
    check(result, what).map(|_| value)
}

/// Sends and receives over this interface only. The socket keeps the interface's index: when an interface vanishes and
/// comes again under the same name, a new socket is needed.
pub(crate) fn bind_to_device(socket: &OwnedFd, interface: &str) -> io::Result<()> {
    InterfaceRequest::new(interface)?;
    let mut name = [0u8; 16];
    name[..interface.len()].copy_from_slice(interface.as_bytes());
    set_option(socket, libc::SOL_SOCKET, libc::SO_BINDTODEVICE, &name, || format!("bind to interface {interface}"))
}

/// Receive buffer of that many bytes: beyond the system's limit if we may, up to it otherwise.
pub(crate) fn grow_receive_buffer(socket: &OwnedFd, bytes: u32, what: &str) -> io::Result<()> {
    let bytes = bytes.min(i32::MAX as u32 / 2) as i32;
    let set = |option| set_option(socket, libc::SOL_SOCKET, option, &bytes, || format!("receive buffer of {what}"));
    set(libc::SO_RCVBUFFORCE).or_else(|_| set(libc::SO_RCVBUF))
}

/// Only what this classic BPF program accepts is received from now on.
pub(crate) fn attach_filter(socket: &OwnedFd, program: &[libc::sock_filter], what: &str) -> io::Result<()> {
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_ptr() as *mut libc::sock_filter };
    set_option(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program, || format!("packet filter of {what}"))
}

/// Lets a socket hand on a packet only while at most one full packet waits below it, so that at most two do.
///
/// The kernel counts the memory of what it has not sent yet (`sk_wmem_alloc`), takes packets while that is less than the
/// send buffer, and calls the socket writable while it is less than half. A send buffer of twice a packet and a bit, of
/// which only half is used, therefore gives both: no third packet, and a wake-up when the last but one has left rather than
/// when the line already stands still, as with the smallest buffer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SendBound {
    half: i32,
}

impl SendBound {
    /// Sets the send buffer for packets of at most `packet_bytes` bytes.
    pub(crate) fn set(socket: &OwnedFd, packet_bytes: u32, what: &str) -> io::Result<SendBound> {
        SendBound::set_memory(socket, packet_memory(packet_bytes), what)
    }

    /// Sets the send buffer for packets that take at most so many bytes of kernel memory.
    pub(crate) fn set_memory(socket: &OwnedFd, packet_memory: i32, what: &str) -> io::Result<SendBound> {
        let name = || format!("send buffer of {what}");
        let wanted = packet_memory + 64;
        // The kernel doubles what it is given.
        set_option(socket, libc::SOL_SOCKET, libc::SO_SNDBUF, &wanted, name)?;
        let buffer = get_option(socket, libc::SOL_SOCKET, libc::SO_SNDBUF, name)?;
        Ok(SendBound { half: buffer / 2 })
    }

    /// Whether there is room for one more; the same condition as that of EPOLLOUT.
    pub(crate) fn has_room(&self, socket: &OwnedFd) -> bool {
        waiting(socket) + 1 < self.half
    }
}

/// Memory the kernel takes for a packet of that many bytes: headers and its own record in front and behind, rounded up to
/// the next size of its allocator, and the packet's descriptor.
fn packet_memory(packet_bytes: u32) -> i32 {
    const AROUND: u32 = 448;
    const DESCRIPTOR: i32 = 256;
    let data = (packet_bytes.min(1 << 20) + AROUND).next_power_of_two();
    data as i32 + DESCRIPTOR
}

/// Kernel memory in bytes of what the socket was given and no device has sent yet; 0 if it can't be told.
pub(crate) fn waiting(socket: &OwnedFd) -> i32 {
    let mut bytes: libc::c_int = 0;
    // SAFETY: SIOCOUTQ (TIOCOUTQ) writes one int through the pointer.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &mut bytes) };
    if result < 0 {
        return 0;
    }
    bytes
}

/// A socket address as the kernel reads and writes it.
#[derive(Clone, Copy)]
pub(crate) struct RawAddress {
    pub(crate) storage: libc::sockaddr_storage,
    pub(crate) length: libc::socklen_t,
}

impl RawAddress {
    /// No address; room for any.
    pub(crate) fn empty() -> RawAddress {
        // SAFETY: an all-zero sockaddr_storage is valid.
        RawAddress { storage: unsafe { mem::zeroed() }, length: mem::size_of::<libc::sockaddr_storage>() as _ }
    }

    pub(crate) fn new(address: &SocketAddr) -> RawAddress {
        match address {
            SocketAddr::V4(v4) => RawAddress::v4(*v4.ip(), v4.port()),
            SocketAddr::V6(v6) => RawAddress::v6(*v6.ip(), v6.port(), v6.scope_id()),
        }
    }

    pub(crate) fn v4(address: Ipv4Addr, port: u16) -> RawAddress {
        // SAFETY: an all-zero sockaddr_in is valid.
        let mut raw: libc::sockaddr_in = unsafe { mem::zeroed() };
        raw.sin_family = libc::AF_INET as libc::sa_family_t;
        raw.sin_port = port.to_be();
        raw.sin_addr.s_addr = u32::from_ne_bytes(address.octets());
        RawAddress::from_part(&raw)
    }

    pub(crate) fn v6(address: Ipv6Addr, port: u16, scope: u32) -> RawAddress {
        // SAFETY: an all-zero sockaddr_in6 is valid.
        let mut raw: libc::sockaddr_in6 = unsafe { mem::zeroed() };
        raw.sin6_family = libc::AF_INET6 as libc::sa_family_t;
        raw.sin6_port = port.to_be();
        raw.sin6_addr.s6_addr = address.octets();
        raw.sin6_scope_id = scope;
        RawAddress::from_part(&raw)
    }

    pub(crate) fn packet(index: u32, ether_type: u16) -> RawAddress {
        // SAFETY: an all-zero sockaddr_ll is valid.
        let mut raw: libc::sockaddr_ll = unsafe { mem::zeroed() };
        raw.sll_family = libc::AF_PACKET as libc::sa_family_t;
        raw.sll_protocol = ether_type.to_be();
        raw.sll_ifindex = index as libc::c_int;
        RawAddress::from_part(&raw)
    }

    /// Netlink messages of these groups (bits).
    pub(crate) fn netlink(groups: u32) -> RawAddress {
        // SAFETY: an all-zero sockaddr_nl is valid.
        let mut raw: libc::sockaddr_nl = unsafe { mem::zeroed() };
        raw.nl_family = libc::AF_NETLINK as libc::sa_family_t;
        raw.nl_groups = groups;
        RawAddress::from_part(&raw)
    }

    fn from_part<T>(part: &T) -> RawAddress {
        let mut address = RawAddress::empty();
        let size = mem::size_of::<T>().min(mem::size_of::<libc::sockaddr_storage>());
        // SAFETY: at most the size of either, both are plain data.
        unsafe {
            std::ptr::copy_nonoverlapping(
                (part as *const T).cast::<u8>(),
                (&mut address.storage as *mut libc::sockaddr_storage).cast(),
                size,
            )
        };
        address.length = size as libc::socklen_t;
        address
    }

    pub(crate) fn pointer(&self) -> *const libc::sockaddr {
        (&self.storage as *const libc::sockaddr_storage).cast()
    }

    /// The sender of a netlink message: 0 is the kernel.
    pub(crate) fn netlink_port(&self) -> Option<u32> {
        if i32::from(self.storage.ss_family) != libc::AF_NETLINK {
            return None;
        }
        // SAFETY: the family says that it is a sockaddr_nl, which fits into the storage.
        let raw: libc::sockaddr_nl = unsafe { std::ptr::read(self.pointer().cast()) };
        Some(raw.nl_pid)
    }

    /// None: of another family.
    pub(crate) fn get(&self) -> Option<SocketAddr> {
        match i32::from(self.storage.ss_family) {
            libc::AF_INET => {
                // SAFETY: the family says that it is a sockaddr_in, which fits into the storage.
                let raw: libc::sockaddr_in = unsafe { std::ptr::read(self.pointer().cast()) };
                let address = Ipv4Addr::from(raw.sin_addr.s_addr.to_ne_bytes());
                Some(SocketAddr::new(IpAddr::V4(address), u16::from_be(raw.sin_port)))
            }
            libc::AF_INET6 => {
                // SAFETY: the family says that it is a sockaddr_in6, which fits into the storage.
                let raw: libc::sockaddr_in6 = unsafe { std::ptr::read(self.pointer().cast()) };
                let address = Ipv6Addr::from(raw.sin6_addr.s6_addr);
                Some(SocketAddr::V6(SocketAddrV6::new(address, u16::from_be(raw.sin6_port), 0, raw.sin6_scope_id)))
            }
            _ => None,
        }
    }
}

/// `bind` to an address.
pub(crate) fn bind(socket: &OwnedFd, address: &RawAddress, what: impl FnOnce() -> String) -> io::Result<()> {
    // SAFETY: pointer and length describe the address.
    let result = unsafe { libc::bind(socket.as_raw_fd(), address.pointer(), address.length) };
    check(result, what).map(|_| ())
}

/// Sends the two parts as one datagram or packet. An error that ICMP queued on the socket is cleared by the first attempt.
pub(crate) fn transmit(socket: &OwnedFd, parts: [&[u8]; 2], to: &RawAddress) -> io::Result<Sent> {
    transmit_with(socket, parts, to, &mut [])
}

/// As `transmit`, with ancillary data.
pub(crate) fn transmit_with(
    socket: &OwnedFd,
    parts: [&[u8]; 2],
    to: &RawAddress,
    control: &mut [u64],
) -> io::Result<Sent> {
    let count = if parts[1].is_empty() { 1 } else { 2 };
    transmit_parts::<2>(socket, &parts[..count], to, control)
}

/// As `transmit_with`, of up to `MOST` parts; the others are left out.
pub(crate) fn transmit_parts<const MOST: usize>(
    socket: &OwnedFd,
    parts: &[&[u8]],
    to: &RawAddress,
    control: &mut [u64],
) -> io::Result<Sent> {
    let mut vectors = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; MOST];
    for (vector, part) in vectors.iter_mut().zip(parts) {
        *vector = libc::iovec { iov_base: part.as_ptr() as *mut libc::c_void, iov_len: part.len() };
    }
    // SAFETY: an all-zero msghdr is valid.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_name = to.pointer() as *mut libc::c_void;
    message.msg_namelen = to.length;
    message.msg_iov = vectors.as_mut_ptr();
    message.msg_iovlen = parts.len().min(MOST) as _;
    if !control.is_empty() {
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = mem::size_of_val(control) as _;
    }
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    let mut again = true;
    loop {
        // SAFETY: address and vectors live over the call; the kernel only reads them.
        if unsafe { libc::sendmsg(socket.as_raw_fd(), &message, flags) } >= 0 {
            return Ok(Sent::Done);
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::ECONNREFUSED | libc::EPROTO | libc::ENOPROTOOPT | libc::EINTR) if again => again = false,
            _ => return Sent::of_error(&error).ok_or(error),
        }
    }
}

/// The last error of a receive call, unless it only means that there is nothing now, or was queued on the socket by ICMP or by
/// the interface and ends nothing. True: try once more, there may be something behind it.
pub(crate) fn nothing_now(what: &str) -> io::Result<bool> {
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EAGAIN) => Ok(false),
        Some(libc::EINTR | libc::ENOBUFS | libc::ENOMEM | libc::ENETDOWN | libc::ENODEV | libc::ENXIO) => Ok(false),
        Some(libc::ECONNREFUSED | libc::EHOSTUNREACH | libc::ENETUNREACH | libc::EHOSTDOWN | libc::EMSGSIZE) => {
            Ok(true)
        }
        Some(libc::EPROTO | libc::ENOPROTOOPT | libc::EACCES | libc::EPERM | libc::EINVAL) => Ok(true),
        _ => Err(context(error, what)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_the_round_trip() {
        for text in ["192.0.2.1:65535", "0.0.0.0:0", "[2001:db8::1]:20000", "[fe80::1%7]:1"] {
            let address: SocketAddr = text.parse().unwrap();
            assert_eq!(RawAddress::new(&address).get(), Some(address));
        }
        assert_eq!(RawAddress::empty().get(), None);
    }
}
