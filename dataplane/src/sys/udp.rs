//! UDP sockets of a tunnel: bound to an interface or listening on all, many datagrams a call, never fragmented.

use super::socket::{self, RawAddress, SendBound, Sent};
use super::{check, context};
use std::io;
use std::mem;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::io::{AsRawFd, OwnedFd, RawFd};

/// Room in the kernel for what was not received yet, in bytes.
const RECEIVE_BYTES: u32 = 4 << 20;

/// Room for the ancillary data of a datagram: an address and a length.
const CONTROL_WORDS: usize = 12;
/// Datagrams that leave in one call.
pub const MOST_DATAGRAMS: usize = 64;
/// Bytes that come in one message: a datagram, or several that the kernel has put together.
const MESSAGE_BYTES: usize = 1 << 16;

/// An open UDP socket, non-blocking. An IPv6 socket carries IPv6 only.
#[derive(Debug)]
pub struct BoundUdp {
    descriptor: OwnedFd,
    shown: String,
    bound: Option<SendBound>,
}

impl BoundUdp {
    /// Opens the socket in the current network namespace, with port 0 on a port that the kernel chooses. With an `interface`
    /// it sends and receives over that one only (open another one when the interface has vanished and come again). With
    /// `bound_packet_bytes`, the size of a full IP packet in bytes, at most two full packets wait below it.
    pub fn open(interface: Option<&str>, local: SocketAddr, bound_packet_bytes: Option<u32>) -> io::Result<BoundUdp> {
        let shown = match interface {
            Some(name) => format!("UDP socket {local} on {name}"),
            None => format!("UDP socket {local}"),
        };
        let domain = if local.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
        let descriptor = socket::open(domain, libc::SOCK_DGRAM, 0, &shown)?;
        if let Some(name) = interface {
            socket::bind_to_device(&descriptor, name)?;
        }
        let name = || format!("don't-fragment option of {shown}");
        if local.is_ipv4() {
            let value = libc::IP_PMTUDISC_DO;
            socket::set_option(&descriptor, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, &value, name)?;
        } else {
            let only = || format!("IPv6 option of {shown}");
            socket::set_option(&descriptor, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, &1i32, only)?;
            let value = libc::IPV6_PMTUDISC_DO;
            socket::set_option(&descriptor, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, &value, name)?;
        }
        if interface.is_none() && local.ip().is_unspecified() {
            let (level, name) = match local {
                SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_PKTINFO),
                SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO),
            };
            socket::set_option(&descriptor, level, name, &1i32, || format!("packet information of {shown}"))?;
        }
        // Datagrams that came together are received together. Kernels before 5.0 do not know this.
        let _ = socket::set_option(&descriptor, libc::SOL_UDP, libc::UDP_GRO, &1i32, || format!("GRO of {shown}"));
        socket::grow_receive_buffer(&descriptor, RECEIVE_BYTES, &shown)?;
        let bound = match bound_packet_bytes {
            Some(bytes) => Some(SendBound::set(&descriptor, bytes, &shown)?),
            None => None,
        };
        socket::bind(&descriptor, &RawAddress::new(&local), || format!("bind {shown}"))?;
        Ok(BoundUdp { descriptor, shown, bound })
    }

    /// Address and port that the socket is bound to.
    pub fn local(&self) -> io::Result<SocketAddr> {
        let mut address = RawAddress::empty();
        let pointer = (&mut address.storage as *mut libc::sockaddr_storage).cast();
        // SAFETY: the storage holds any address and its length is given.
        let result = unsafe { libc::getsockname(self.as_raw_fd(), pointer, &mut address.length) };
        check(result, || format!("address of {}", self.shown))?;
        address.get().ok_or_else(|| super::invalid(format!("{}: address of another family", self.shown)))
    }

    /// Sends `head` and `body` as one datagram.
    pub fn send_to(&self, head: &[u8], body: &[u8], to: SocketAddr) -> io::Result<Sent> {
        if let Some(bound) = &self.bound {
            if !bound.has_room(&self.descriptor) {
                return Ok(Sent::NotNow);
            }
        }
        socket::transmit(&self.descriptor, [head, body], &RawAddress::new(&to))
            .map_err(|error| context(error, &format!("send to {to} on {}", self.shown)))
    }

    /// As `send_to`, from `local`, one of the host's addresses, of the family of `to`.
    pub fn send_from(&self, head: &[u8], body: &[u8], to: SocketAddr, local: IpAddr) -> io::Result<Sent> {
        let mut control = [0u64; CONTROL_WORDS];
        let words = write_local(&mut control, local, to);
        let control = control.get_mut(..words).unwrap_or(&mut []);
        socket::transmit_with(&self.descriptor, [head, body], &RawAddress::new(&to), control)
            .map_err(|error| context(error, &format!("send from {local} to {to} on {}", self.shown)))
    }

    /// Sends up to `MOST_DATAGRAMS` datagrams, each in two parts, in one call (UDP_SEGMENT): all or none. They are as long as
    /// the first, only the last may be shorter, and together at most 65,000 bytes. With `local` as by `send_from`. A refusal
    /// may mean that the kernel cannot do so for this interface: single datagrams may still pass.
    pub fn send_many<'a>(
        &self,
        datagrams: impl Iterator<Item = [&'a [u8]; 2]>,
        to: SocketAddr,
        local: Option<IpAddr>,
    ) -> io::Result<Sent> {
        if self.bound.map_or(false, |bound| !bound.has_room(&self.descriptor)) {
            return Ok(Sent::NotNow);
        }
        let (mut parts, mut count, mut size) = ([&[][..]; 2 * MOST_DATAGRAMS], 0, 0);
        for (datagram, two) in datagrams.zip(parts.chunks_exact_mut(2)) {
            two.copy_from_slice(&datagram);
            size = size.max(datagram[0].len() + datagram[1].len());
            count += 2;
        }
        let mut control = [0u64; CONTROL_WORDS];
        let words = local.map_or(0, |local| write_local(&mut control, local, to));
        let rest = control.get_mut(words..).unwrap_or(&mut []);
        let words = words + write_control(rest, libc::SOL_UDP, libc::UDP_SEGMENT, size as u16);
        let control = control.get_mut(..words).unwrap_or(&mut []);
        socket::transmit_parts::<{ 2 * MOST_DATAGRAMS }>(
            &self.descriptor,
            &parts[..count],
            &RawAddress::new(&to),
            control,
        )
        .map_err(|error| context(error, &format!("send many to {to} on {}", self.shown)))
    }

    /// Receives as many datagrams as there are and `batch` holds, in one system call; 0 if there is none now. Those that
    /// are longer than the batch allows are left out of its items. The count is of messages, see [`DatagramBatch::new`].
    pub fn receive(&self, batch: &mut DatagramBatch) -> io::Result<usize> {
        batch.count = 0;
        // Each attempt clears one error that ICMP queued on the socket.
        for _ in 0..4 {
            batch.arm();
            let (pointer, length) = (batch.headers.as_mut_ptr(), batch.headers.len() as libc::c_uint);
            let flags = libc::MSG_DONTWAIT as _;
            // SAFETY: every header points into buffers owned by `batch`, set just above.
            let n = unsafe { libc::recvmmsg(self.as_raw_fd(), pointer, length, flags, std::ptr::null_mut()) };
            if n >= 0 {
                batch.count = (n as usize).min(batch.headers.len());
                break;
            }
            if !socket::nothing_now(&format!("receive on {}", self.shown))? {
                break;
            }
        }
        Ok(batch.count)
    }

    /// Kernel memory in bytes of datagrams that wait below the socket, with about 800 bytes of overhead each; 0: none.
    pub fn waiting_bytes(&self) -> u32 {
        socket::waiting(&self.descriptor).max(0) as u32
    }
}

impl AsRawFd for BoundUdp {
    fn as_raw_fd(&self) -> RawFd {
        self.descriptor.as_raw_fd()
    }
}

/// Largest IP packet in bytes, with its header, that the kernel believes the path to `to` over the interface to carry. `None`
/// for the interface: over whichever the host's routes choose.
pub fn path_mtu(interface: Option<&str>, to: SocketAddr) -> io::Result<u32> {
    let what = format!("path MTU to {to}");
    let domain = if to.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let descriptor = socket::open(domain, libc::SOCK_DGRAM, 0, &what)?;
    if let Some(name) = interface {
        socket::bind_to_device(&descriptor, name)?;
    }
    let address = RawAddress::new(&to);
    // SAFETY: pointer and length describe the address.
    check(unsafe { libc::connect(descriptor.as_raw_fd(), address.pointer(), address.length) }, || what.clone())?;
    let (level, name) =
        if to.is_ipv4() { (libc::IPPROTO_IP, libc::IP_MTU) } else { (libc::IPPROTO_IPV6, libc::IPV6_MTU) };
    socket::get_option(&descriptor, level, name, || what.clone()).map(|mtu| mtu.max(0) as u32)
}

/// Buffers for [`BoundUdp::receive`].
pub struct DatagramBatch {
    datagram_bytes: usize,
    bytes: Vec<u8>,
    names: Vec<libc::sockaddr_storage>,
    vectors: Vec<libc::iovec>,
    headers: Vec<libc::mmsghdr>,
    controls: Vec<[u64; CONTROL_WORDS]>,
    count: usize,
}

/// Writes the address that a datagram leaves from; returns how many words it takes.
fn write_local(control: &mut [u64], local: IpAddr, to: SocketAddr) -> usize {
    match (local, to) {
        (IpAddr::V4(address), SocketAddr::V4(_)) => {
            // SAFETY: all zeros are a valid in_pktinfo.
            let mut info: libc::in_pktinfo = unsafe { mem::zeroed() };
            info.ipi_spec_dst.s_addr = u32::from_ne_bytes(address.octets());
            write_control(control, libc::IPPROTO_IP, libc::IP_PKTINFO, info)
        }
        (IpAddr::V6(address), SocketAddr::V6(_)) => {
            // SAFETY: all zeros are a valid in6_pktinfo.
            let mut info: libc::in6_pktinfo = unsafe { mem::zeroed() };
            info.ipi6_addr.s6_addr = address.octets();
            write_control(control, libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, info)
        }
        _ => 0,
    }
}

/// Writes one piece of ancillary data; returns how many words it takes.
fn write_control<T: Copy>(control: &mut [u64], level: libc::c_int, kind: libc::c_int, value: T) -> usize {
    let at = mem::size_of::<libc::cmsghdr>();
    let length = at + mem::size_of::<T>();
    if length > mem::size_of_val(control) {
        return 0;
    }
    // SAFETY: all zeros are a valid header; header and value fit, and unaligned writes need no alignment.
    unsafe {
        let mut header: libc::cmsghdr = mem::zeroed();
        header.cmsg_len = length as _;
        header.cmsg_level = level;
        header.cmsg_type = kind;
        let to = control.as_mut_ptr().cast::<u8>();
        to.cast::<libc::cmsghdr>().write_unaligned(header);
        to.add(at).cast::<T>().write_unaligned(value);
    }
    (length + 7) / 8
}

/// What ancillary data tell of a message.
#[derive(Clone, Copy, Debug, Default)]
struct Told {
    /// The address that it came to.
    local: Option<IpAddr>,
    /// It is several datagrams of this length, of which the last may be shorter.
    size: Option<usize>,
}

/// Reads all pieces of ancillary data. Kinds that nobody asked for are left out.
fn read_control(control: &[u64; CONTROL_WORDS], length: usize) -> Told {
    let at = mem::size_of::<libc::cmsghdr>();
    let end = length.min(mem::size_of_val(control));
    let (mut told, mut from) = (Told::default(), 0);
    while from + at <= end {
        // SAFETY: the header is within the array, and any bytes are valid for it.
        let header = unsafe { control.as_ptr().cast::<u8>().add(from).cast::<libc::cmsghdr>().read_unaligned() };
        // C libraries give this number and msg_controllen different widths.
        let whole: usize = header.cmsg_len as _;
        if whole < at || whole > end - from {
            break;
        }
        let fits = |size: usize| whole >= at + size;
        // SAFETY: each value is read only if it lies within the piece, and any bytes are valid for it.
        unsafe {
            let value = control.as_ptr().cast::<u8>().add(from + at);
            match (header.cmsg_level, header.cmsg_type) {
                (libc::IPPROTO_IP, libc::IP_PKTINFO) if fits(mem::size_of::<libc::in_pktinfo>()) => {
                    let info = value.cast::<libc::in_pktinfo>().read_unaligned();
                    // The local address to answer from, also for a broadcast.
                    told.local = Some(IpAddr::V4(info.ipi_spec_dst.s_addr.to_ne_bytes().into()));
                }
                (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) if fits(mem::size_of::<libc::in6_pktinfo>()) => {
                    let info = value.cast::<libc::in6_pktinfo>().read_unaligned();
                    told.local = Some(IpAddr::V6(info.ipi6_addr.s6_addr.into()));
                }
                (libc::SOL_UDP, libc::UDP_GRO) if fits(mem::size_of::<libc::c_int>()) => {
                    let size = value.cast::<libc::c_int>().read_unaligned();
                    told.size = usize::try_from(size).ok().filter(|size| *size > 0);
                }
                _ => {}
            }
        }
        from += (whole + 7) / 8 * 8;
    }
    told
}

// SAFETY: the pointers in the headers are set before each use and point into vectors that move with the batch.
unsafe impl Send for DatagramBatch {}

impl DatagramBatch {
    /// Room for `capacity` messages, each a datagram or several that came together. Datagrams longer than `datagram_bytes`
    /// are left out. Memory is only taken by what has been received into.
    pub fn new(capacity: usize, datagram_bytes: usize) -> DatagramBatch {
        let capacity = capacity.max(1);
        // SAFETY: all-zero structures are valid (null pointers, zero lengths).
        let (vector, header): (libc::iovec, libc::mmsghdr) = unsafe { (mem::zeroed(), mem::zeroed()) };
        DatagramBatch {
            datagram_bytes,
            bytes: vec![0; capacity * MESSAGE_BYTES],
            names: vec![RawAddress::empty().storage; capacity],
            vectors: vec![vector; capacity],
            headers: vec![header; capacity],
            controls: vec![[0; CONTROL_WORDS]; capacity],
            count: 0,
        }
    }

    /// Points the message headers at the buffers; done before every call because the kernel writes the lengths over.
    fn arm(&mut self) {
        for (i, header) in self.headers.iter_mut().enumerate() {
            self.vectors[i].iov_base = self.bytes[i * MESSAGE_BYTES..].as_mut_ptr().cast();
            self.vectors[i].iov_len = MESSAGE_BYTES;
            header.msg_hdr.msg_name = (&mut self.names[i] as *mut libc::sockaddr_storage).cast();
            header.msg_hdr.msg_namelen = mem::size_of::<libc::sockaddr_storage>() as libc::socklen_t;
            header.msg_hdr.msg_iov = &mut self.vectors[i];
            header.msg_hdr.msg_iovlen = 1;
            header.msg_hdr.msg_control = self.controls[i].as_mut_ptr().cast();
            header.msg_hdr.msg_controllen = mem::size_of_val(&self.controls[i]) as _;
            header.msg_hdr.msg_flags = 0;
        }
    }

    /// The datagrams of the last receive, each with its source.
    pub fn items(&mut self) -> impl Iterator<Item = (SocketAddr, &mut [u8])> {
        self.items_with_local().map(|(from, _, bytes)| (from, bytes))
    }

    /// As `items`, each also with the host's address that it came to, if the socket listens on all of them.
    pub fn items_with_local(&mut self) -> impl Iterator<Item = (SocketAddr, Option<IpAddr>, &mut [u8])> {
        let (headers, names) = (&self.headers[..self.count], &self.names[..self.count]);
        let (buffers, most) = (self.bytes.chunks_mut(MESSAGE_BYTES), self.datagram_bytes);
        let messages = headers.iter().zip(names).zip(&self.controls).zip(buffers);
        let messages = messages.filter_map(|(((header, name), control), buffer)| {
            if header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0 {
                return None;
            }
            let from = RawAddress { storage: *name, length: header.msg_hdr.msg_namelen }.get()?;
            let told = read_control(control, header.msg_hdr.msg_controllen as _);
            let bytes = buffer.get_mut(..header.msg_len as usize)?;
            Some((from, told, bytes))
        });
        messages.flat_map(move |(from, told, bytes)| {
            let size = told.size.unwrap_or(bytes.len()).max(1);
            bytes.chunks_mut(size).filter(move |one| one.len() <= most).map(move |one| (from, told.local, one))
        })
    }
}
