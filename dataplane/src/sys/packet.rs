//! AF_PACKET sockets: whole Ethernet frames on an existing interface.

use super::{check, context, interface};
use std::io;
use std::mem;
use std::os::unix::io::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// EtherType that stands for every protocol.
pub const ALL_PROTOCOLS: u16 = libc::ETH_P_ALL as u16;

/// How a packet socket is opened.
#[derive(Debug, Clone)]
pub struct PacketOptions {
    /// Interface of the current network namespace.
    pub interface: String,
    /// Frames of this EtherType only, or [`ALL_PROTOCOLS`]. VLAN tags are seen with the latter alone: the kernel delivers
    /// tagged frames by their inner type too, but has forgotten the tag by then.
    pub ether_type: u16,
    /// Room in the kernel for each direction, in bytes.
    pub buffer_bytes: u32,
    /// Receive frames for other MAC addresses too.
    pub promiscuous: bool,
}

impl PacketOptions {
    /// 8 MiB of buffer, own frames only.
    pub fn new(interface: &str, ether_type: u16) -> Self {
        PacketOptions { interface: interface.to_string(), ether_type, buffer_bytes: 8 << 20, promiscuous: false }
    }
}

/// An open packet socket, non-blocking. It does not see what the host itself sends.
#[derive(Debug)]
pub struct PacketSocket {
    descriptor: OwnedFd,
    interface: String,
}

impl PacketSocket {
    /// Opens the socket in the current network namespace, bound to one interface.
    pub fn open(options: &PacketOptions) -> io::Result<PacketSocket> {
        let name = &options.interface;
        let index = interface::index(name)?;
        let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // Protocol 0: nothing is received before bind has named the interface.
        // SAFETY: a plain system call.
        let descriptor =
            check(unsafe { libc::socket(libc::AF_PACKET, kind, 0) }, || format!("packet socket on {name}"))?;
        // SAFETY: `descriptor` was just opened and nobody else has it.
        let socket = PacketSocket { descriptor: unsafe { OwnedFd::from_raw_fd(descriptor) }, interface: name.clone() };
        socket.option(libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, &1i32, "PACKET_QDISC_BYPASS")?;
        socket.option(libc::SOL_PACKET, libc::PACKET_AUXDATA, &1i32, "PACKET_AUXDATA")?;
        // Linux 4.20 and later; without it the caller would see its own frames, so it is required.
        socket.option(libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, &1i32, "PACKET_IGNORE_OUTGOING")?;
        socket.grow_buffers(options.buffer_bytes)?;
        socket.bind(index, options.ether_type)?;
        if options.promiscuous {
            let membership = libc::packet_mreq {
                mr_ifindex: index as libc::c_int,
                mr_type: libc::PACKET_MR_PROMISC as libc::c_ushort,
                mr_alen: 0,
                mr_address: [0; 8],
            };
            socket.option(libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &membership, "promiscuous mode")?;
        }
        Ok(socket)
    }

    fn option<T>(&self, level: libc::c_int, name: libc::c_int, value: &T, what: &str) -> io::Result<()> {
        let (pointer, size) = (value as *const T, mem::size_of::<T>() as libc::socklen_t);
        // SAFETY: pointer and size describe `value`.
        let result = unsafe { libc::setsockopt(self.as_raw_fd(), level, name, pointer.cast(), size) };
        check(result, || format!("{what} on packet socket {}", self.interface)).map(|_| ())
    }

    /// Beyond the system's limit if we may, up to it otherwise.
    fn grow_buffers(&self, bytes: u32) -> io::Result<()> {
        let bytes = bytes.min(i32::MAX as u32) as i32;
        for (forced, plain) in [(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF), (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)] {
            if self.option(libc::SOL_SOCKET, forced, &bytes, "buffer size").is_err() {
                self.option(libc::SOL_SOCKET, plain, &bytes, "buffer size")?;
            }
        }
        Ok(())
    }

    fn bind(&self, index: u32, ether_type: u16) -> io::Result<()> {
        // SAFETY: an all-zero sockaddr_ll is valid.
        let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = ether_type.to_be();
        address.sll_ifindex = index as libc::c_int;
        let size = mem::size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        let pointer = &address as *const libc::sockaddr_ll;
        // SAFETY: pointer and size describe `address`.
        let result = unsafe { libc::bind(self.as_raw_fd(), pointer.cast(), size) };
        check(result, || format!("bind packet socket to {}", self.interface)).map(|_| ())
    }

    /// Name of the interface.
    pub fn interface(&self) -> &str {
        &self.interface
    }

    /// Receives as many frames as there are and `batch` holds, in one system call; 0 if there is none now.
    pub fn receive(&self, batch: &mut Batch) -> io::Result<usize> {
        batch.count = 0;
        batch.arm();
        let (pointer, length) = (batch.headers.as_mut_ptr(), batch.headers.len() as libc::c_uint);
        // SAFETY: every header points into buffers owned by `batch`, set just above.
        let n =
            unsafe { libc::recvmmsg(self.as_raw_fd(), pointer, length, libc::MSG_DONTWAIT as _, std::ptr::null_mut()) };
        if n < 0 {
            return self.not_now("receive").map(|_| 0);
        }
        batch.take(n as usize);
        Ok(batch.count)
    }

    /// Sends one frame. False: the kernel has no room for it now.
    pub fn send(&self, frame: &[u8]) -> io::Result<bool> {
        // SAFETY: pointer and length describe `frame`.
        let n = unsafe { libc::send(self.as_raw_fd(), frame.as_ptr().cast(), frame.len(), libc::MSG_DONTWAIT) };
        if n >= 0 {
            return Ok(true);
        }
        self.not_now("send").map(|_| false)
    }

    /// The last error, unless it only means "not now" (ENOBUFS: the device's queue is full; ENETDOWN: it was set down).
    fn not_now(&self, what: &str) -> io::Result<()> {
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EAGAIN | libc::EINTR | libc::ENOBUFS | libc::ENETDOWN) => Ok(()),
            _ => Err(context(error, &format!("{what} on packet socket {}", self.interface))),
        }
    }
}

impl AsRawFd for PacketSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.descriptor.as_raw_fd()
    }
}

/// Room in front of each frame: a VLAN tag that the kernel took out is put back there.
const TAG: usize = 4;
/// Room for the control data of one message: a `tpacket_auxdata` with its header.
const CONTROL: usize = 64;

/// Buffers for [`PacketSocket::receive`].
pub struct Batch {
    frame_bytes: usize,
    frames: Vec<u8>,
    control: Vec<[u64; CONTROL / 8]>,
    vectors: Vec<libc::iovec>,
    headers: Vec<libc::mmsghdr>,
    /// Start and end of each received frame in `frames`.
    spans: Vec<(usize, usize)>,
    count: usize,
}

impl Batch {
    /// Room for `capacity` frames of at most `frame_bytes` each; longer ones are left out.
    pub fn new(capacity: usize, frame_bytes: usize) -> Batch {
        let capacity = capacity.max(1);
        // SAFETY: all-zero iovec and mmsghdr are valid (null pointers, zero lengths).
        let (vector, header): (libc::iovec, libc::mmsghdr) = unsafe { (mem::zeroed(), mem::zeroed()) };
        Batch {
            frame_bytes,
            frames: vec![0; capacity * (TAG + frame_bytes)],
            control: vec![[0; CONTROL / 8]; capacity],
            vectors: vec![vector; capacity],
            headers: vec![header; capacity],
            spans: vec![(0, 0); capacity],
            count: 0,
        }
    }

    /// Points the message headers at the buffers; done before every call because the kernel writes the lengths over.
    fn arm(&mut self) {
        let stride = TAG + self.frame_bytes;
        for (i, header) in self.headers.iter_mut().enumerate() {
            let at = i * stride + TAG;
            self.vectors[i].iov_base = self.frames[at..].as_mut_ptr().cast();
            self.vectors[i].iov_len = self.frame_bytes;
            header.msg_hdr.msg_iov = &mut self.vectors[i];
            header.msg_hdr.msg_iovlen = 1;
            header.msg_hdr.msg_control = self.control[i].as_mut_ptr().cast();
            header.msg_hdr.msg_controllen = CONTROL as _;
            header.msg_hdr.msg_flags = 0;
        }
    }

    /// Notes where the frames are, puts VLAN tags back and leaves out what was cut off.
    fn take(&mut self, received: usize) {
        let stride = TAG + self.frame_bytes;
        for i in 0..received.min(self.headers.len()) {
            let header = &self.headers[i];
            if header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0 {
                continue;
            }
            let (mut start, end) = (i * stride + TAG, i * stride + TAG + header.msg_len as usize);
            if let Some(tag) = vlan_tag(&header.msg_hdr) {
                if end - start >= 14 {
                    self.frames.copy_within(start..start + 12, start - TAG);
                    self.frames[start + 8..start + 12].copy_from_slice(&tag);
                    start -= TAG;
                }
            }
            self.spans[self.count] = (start, end);
            self.count += 1;
        }
    }

    /// The frames of the last receive.
    pub fn frames(&self) -> impl Iterator<Item = &[u8]> {
        self.spans[..self.count].iter().map(move |&(start, end)| &self.frames[start..end])
    }
}

/// The VLAN tag that the kernel moved out of the frame, as it stood in the frame.
fn vlan_tag(header: &libc::msghdr) -> Option<[u8; 4]> {
    // SAFETY: the kernel filled the control buffer of `header`; the CMSG functions stay within its length.
    unsafe {
        let mut message = libc::CMSG_FIRSTHDR(header);
        while !message.is_null() {
            if (*message).cmsg_level == libc::SOL_PACKET && (*message).cmsg_type == libc::PACKET_AUXDATA {
                let data: libc::tpacket_auxdata = std::ptr::read_unaligned(libc::CMSG_DATA(message).cast());
                if data.tp_status & libc::TP_STATUS_VLAN_VALID == 0 {
                    return None;
                }
                let known = data.tp_status & libc::TP_STATUS_VLAN_TPID_VALID != 0;
                let protocol = if known { data.tp_vlan_tpid } else { libc::ETH_P_8021Q as u16 };
                let (p, t) = (protocol.to_be_bytes(), data.tp_vlan_tci.to_be_bytes());
                return Some([p[0], p[1], t[0], t[1]]);
            }
            message = libc::CMSG_NXTHDR(header, message);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::clock::monotonic_ns;
    use super::super::epoll::{Epoll, Interest};
    use super::*;

    /// A packet socket on loopback, or None where that is not permitted.
    fn on_loopback(ether_type: u16) -> Option<PacketSocket> {
        match PacketSocket::open(&PacketOptions::new("lo", ether_type)) {
            Ok(socket) => Some(socket),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => None,
            Err(error) => panic!("{error}"),
        }
    }

    /// The first `count` frames of EtherType `kind`, behind a VLAN tag or not.
    fn collect(socket: &PacketSocket, kind: [u8; 2], count: usize) -> Vec<Vec<u8>> {
        let (mut epoll, mut events) = (Epoll::new(4).unwrap(), Vec::new());
        epoll.add(socket, 0, Interest::READ).unwrap();
        let (mut batch, mut frames) = (Batch::new(4, 2048), Vec::new());
        let deadline_ns = monotonic_ns() + 5_000_000_000;
        while frames.len() < count && monotonic_ns() < deadline_ns {
            epoll.wait(Some(100_000_000), &mut events).unwrap();
            socket.receive(&mut batch).unwrap();
            let ours = |f: &&[u8]| f.get(12..14) == Some(&kind) || f.get(16..18) == Some(&kind);
            frames.extend(batch.frames().filter(ours).map(<[u8]>::to_vec));
        }
        frames
    }

    #[test]
    fn frames_pass_unchanged_with_and_without_vlan_tag() {
        // An EtherType of our own tells these frames from everybody else's.
        let kind = [0x9a, 0xbc];
        let socket = match on_loopback(ALL_PROTOCOLS) {
            Some(socket) => socket,
            None => return,
        };
        let mut sent = Vec::new();
        for i in 0..20u8 {
            let mut frame = vec![0u8; 12];
            if i % 2 == 1 {
                frame.extend_from_slice(&[0x81, 0x00, 0x60, i]);
            }
            frame.extend_from_slice(&kind);
            frame.extend((0..100).map(|b: u8| b ^ i));
            assert!(socket.send(&frame).unwrap());
            sent.push(frame);
        }
        assert_eq!(collect(&socket, kind, sent.len()), sent);
    }

    #[test]
    fn frames_that_do_not_fit_are_left_out() {
        let kind = [0x9a, 0xbd];
        let socket = match on_loopback(u16::from_be_bytes(kind)) {
            Some(socket) => socket,
            None => return,
        };
        let frame = |payload: usize| [&[0u8; 12][..], &kind, &vec![7; payload]].concat();
        assert!(socket.send(&frame(4000)).unwrap() && socket.send(&frame(60)).unwrap());
        assert_eq!(collect(&socket, kind, 1), [frame(60)]);
    }

    #[test]
    fn a_missing_interface_is_named() {
        let error = PacketSocket::open(&PacketOptions::new("hr-missing", ALL_PROTOCOLS)).unwrap_err();
        assert!(error.to_string().contains("hr-missing"), "{error}");
    }
}
