//! Generic netlink: messages written and read in batches, without an allocation per message.

use super::netlink::{attributes, cut, u16_at, u32_at, HEADER, NLMSG_ERROR, NLM_F_REQUEST};
use super::socket::{self, RawAddress};
use super::{check, context};
use std::io;
use std::mem;
use std::os::unix::io::{AsRawFd, OwnedFd, RawFd};

/// Netlink's header and that of generic netlink: command u8, version u8, reserved u16.
const GENERIC_HEADER: usize = HEADER + 4;
const NLM_F_ACK: u16 = 4;
/// The family that knows the numbers of all families.
const CONTROLLER: u16 = 16;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;
/// Room in the kernel for each direction; beyond the system's limit if we may.
const KERNEL_BYTES: u32 = 8 << 20;
/// Messages read at once, and the longest: generic netlink's messages are at most a page or 8 KiB.
const BATCH: usize = 64;
const MESSAGE_BYTES: usize = 8 << 10;
const ANSWER_WITHIN_MS: i32 = 5_000;

/// A message that came from the kernel.
#[derive(Debug, PartialEq, Eq)]
pub enum Received<'a> {
    /// Of our family: command and attributes.
    Message {
        /// Command of the family.
        command: u8,
        /// Attributes, to be read with [`each_attribute`].
        attributes: &'a [u8],
    },
    /// The answer to a message of ours; 0: it was carried out, otherwise a positive errno.
    Answer {
        /// Sequence number of our message.
        sequence: u32,
        /// What went wrong.
        errno: i32,
    },
}

/// Calls `visit` with type and value of each attribute; stops at the first that does not fit.
pub fn each_attribute<'a>(bytes: &'a [u8], visit: impl FnMut(u16, &'a [u8])) {
    attributes(bytes, visit);
}

/// Calls `visit` with each message of `family` in what the kernel wrote, and with each answer. What is of another kind, or
/// cut off, is skipped and counted in the result; no bytes make it fail.
pub fn parse<'a>(mut bytes: &'a [u8], family: u16, mut visit: impl FnMut(Received<'a>)) -> u64 {
    let mut odd = 0;
    while !bytes.is_empty() {
        let length = u32_at(bytes, 0).unwrap_or(0) as usize;
        let (message, rest) = match cut(bytes, length, HEADER) {
            Some(pair) => pair,
            None => return odd + 1,
        };
        match received(message, family) {
            Some(received) => visit(received),
            None => odd += 1,
        }
        bytes = rest;
    }
    odd
}

fn received(message: &[u8], family: u16) -> Option<Received<'_>> {
    let kind = u16_at(message, 4)?;
    if kind == NLMSG_ERROR {
        let errno = u32_at(message, HEADER)? as i32;
        return Some(Received::Answer { sequence: u32_at(message, 8)?, errno: errno.checked_neg()? });
    }
    if kind != family {
        return None;
    }
    Some(Received::Message { command: *message.get(HEADER)?, attributes: message.get(GENERIC_HEADER..)? })
}

/// Messages to be sent, one after the other in one buffer that is used again and again.
#[derive(Debug, Default)]
pub struct Messages {
    bytes: Vec<u8>,
    begun: usize,
}

impl Messages {
    /// Begins a message; everything until the next one belongs to it.
    pub fn begin(&mut self, family: u16, command: u8, sequence: u32, acknowledge: bool) {
        self.begun = self.bytes.len();
        let flags = NLM_F_REQUEST | if acknowledge { NLM_F_ACK } else { 0 };
        self.bytes.extend_from_slice(&[0; 4]);
        self.bytes.extend_from_slice(&family.to_ne_bytes());
        self.bytes.extend_from_slice(&flags.to_ne_bytes());
        self.bytes.extend_from_slice(&sequence.to_ne_bytes());
        self.bytes.extend_from_slice(&[0; 4]);
        self.bytes.extend_from_slice(&[command, 1, 0, 0]);
        self.close();
    }

    /// An attribute of the message begun last. One of more than 64 KiB does not fit and is left out.
    pub fn attribute(&mut self, kind: u16, value: &[u8]) {
        if let Ok(length) = u16::try_from(value.len() + 4) {
            self.bytes.extend_from_slice(&length.to_ne_bytes());
            self.bytes.extend_from_slice(&kind.to_ne_bytes());
            self.bytes.extend_from_slice(value);
            self.bytes.resize((self.bytes.len() + 3) & !3, 0);
            self.close();
        }
    }

    /// An attribute that is a number of 32 bits.
    pub fn number(&mut self, kind: u16, value: u32) {
        self.attribute(kind, &value.to_ne_bytes());
    }

    fn close(&mut self) {
        let length = (self.bytes.len() - self.begun) as u32;
        self.bytes[self.begun..self.begun + 4].copy_from_slice(&length.to_ne_bytes());
    }

    /// All messages, as they are sent.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Forgets all messages and keeps the room.
    pub fn clear(&mut self) {
        self.bytes.clear();
    }
}

/// What a read found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reading {
    /// Messages that nobody could understand.
    pub odd: u64,
    /// The kernel had no room for more: messages were lost.
    pub overrun: bool,
    /// There may be more to read.
    pub more: bool,
}

/// A socket of one family, non-blocking, in the current network namespace.
pub struct Socket {
    descriptor: OwnedFd,
    family: u16,
    buffers: Vec<u8>,
    headers: Vec<libc::mmsghdr>,
    // The headers point into these two.
    vectors: Vec<libc::iovec>,
    names: Vec<libc::sockaddr_nl>,
}

impl Socket {
    /// Opens the socket; an error of kind `NotFound` if the kernel does not know the family.
    pub fn open(family: &str) -> io::Result<Socket> {
        let what = "generic netlink socket";
        let descriptor = socket::open(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_GENERIC, what)?;
        socket::grow_receive_buffer(&descriptor, KERNEL_BYTES, what)?;
        grow_send_buffer(&descriptor, what)?;
        // Answers need not repeat the whole message.
        socket::set_option(&descriptor, libc::SOL_NETLINK, libc::NETLINK_CAP_ACK, &1i32, || what.to_string())?;
        socket::bind(&descriptor, &RawAddress::netlink(0), || format!("bind {what}"))?;
        // SAFETY: all zeros are valid values of these three.
        let (header, vector, name) = unsafe { (mem::zeroed(), mem::zeroed(), mem::zeroed()) };
        let mut socket = Socket {
            descriptor,
            family: CONTROLLER,
            buffers: vec![0; BATCH * MESSAGE_BYTES],
            headers: vec![header; BATCH],
            vectors: vec![vector; BATCH],
            names: vec![name; BATCH],
        };
        socket.family = socket.resolve(family)?;
        Ok(socket)
    }

    /// Number of the family.
    pub fn family(&self) -> u16 {
        self.family
    }

    fn resolve(&mut self, family: &str) -> io::Result<u16> {
        let mut name = family.as_bytes().to_vec();
        name.push(0);
        let mut found = None;
        self.ask(GET_FAMILY, &[(FAMILY_NAME, &name)], |attributes| {
            each_attribute(attributes, |kind, value| {
                if kind == FAMILY_ID {
                    found = u16_at(value, 0);
                }
            });
        })?;
        found.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("no netlink family {family}")))
    }

    /// Sends one command and waits for its answer; messages that come meanwhile go to `visit`.
    pub fn ask(&mut self, command: u8, body: &[(u16, &[u8])], mut visit: impl FnMut(&[u8])) -> io::Result<()> {
        let mut messages = Messages::default();
        messages.begin(self.family, command, 1, true);
        body.iter().for_each(|&(kind, value)| messages.attribute(kind, value));
        self.send(&messages)?;
        let mut answer = None;
        while answer.is_none() {
            let mut poll = libc::pollfd { fd: self.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            // SAFETY: one valid pollfd.
            let ready = check(unsafe { libc::poll(&mut poll, 1, ANSWER_WITHIN_MS) }, || "poll netlink".to_string())?;
            if ready == 0 {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "generic netlink does not answer"));
            }
            self.receive(|received| match received {
                Received::Answer { sequence: 1, errno } => answer = Some(errno),
                Received::Answer { .. } => {}
                Received::Message { attributes, .. } => visit(attributes),
            })?;
        }
        match answer {
            Some(0) | None => Ok(()),
            Some(errno) => Err(io::Error::from_raw_os_error(errno)),
        }
    }

    /// Sends all messages in one system call; the kernel carries them out before this returns. False: it had no room.
    pub fn send(&self, messages: &Messages) -> io::Result<bool> {
        let (pointer, length) = (messages.bytes().as_ptr().cast(), messages.bytes().len());
        loop {
            // SAFETY: pointer and length describe the bytes.
            if unsafe { libc::send(self.as_raw_fd(), pointer, length, libc::MSG_DONTWAIT) } >= 0 {
                return Ok(true);
            }
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::EINTR) => {}
                Some(libc::ENOBUFS | libc::ENOMEM | libc::EAGAIN) => return Ok(false),
                _ => return Err(context(error, "send to generic netlink")),
            }
        }
    }

    /// Reads as many messages as a batch holds, in one system call. Only those of the kernel are believed.
    pub fn receive(&mut self, mut visit: impl FnMut(Received<'_>)) -> io::Result<Reading> {
        let count = match self.read_batch() {
            Ok(count) => count,
            Err(error) => match error.raw_os_error() {
                Some(libc::EAGAIN | libc::EINTR) => return Ok(Reading::default()),
                Some(libc::ENOBUFS) => return Ok(Reading { odd: 0, overrun: true, more: true }),
                _ => return Err(context(error, "receive from generic netlink")),
            },
        };
        let mut reading = Reading { more: count == BATCH, ..Reading::default() };
        for (i, header) in self.headers.iter().take(count).enumerate() {
            let bytes = self.buffers.get(i * MESSAGE_BYTES..).unwrap_or(&[]);
            let bytes = &bytes[..(header.msg_len as usize).min(MESSAGE_BYTES).min(bytes.len())];
            let is_kernel = self.names[i].nl_family == libc::AF_NETLINK as u16 && self.names[i].nl_pid == 0;
            if !is_kernel || header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0 {
                reading.odd += 1;
                continue;
            }
            reading.odd += parse(bytes, self.family, &mut visit);
        }
        Ok(reading)
    }

    fn read_batch(&mut self) -> io::Result<usize> {
        let buffers = self.buffers.chunks_exact_mut(MESSAGE_BYTES);
        let parts = buffers.zip(&mut self.vectors).zip(&mut self.names).zip(&mut self.headers);
        for (((buffer, vector), name), header) in parts {
            *vector = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
            name.nl_family = 0;
            header.msg_len = 0;
            header.msg_hdr.msg_name = (name as *mut libc::sockaddr_nl).cast();
            header.msg_hdr.msg_namelen = mem::size_of::<libc::sockaddr_nl>() as libc::socklen_t;
            header.msg_hdr.msg_iov = vector;
            header.msg_hdr.msg_iovlen = 1;
            header.msg_hdr.msg_flags = 0;
        }
        let (pointer, length) = (self.headers.as_mut_ptr(), self.headers.len() as libc::c_uint);
        let flags = libc::MSG_DONTWAIT as _;
        // SAFETY: every header points into buffers that `self` owns, set just above.
        let n = unsafe { libc::recvmmsg(self.as_raw_fd(), pointer, length, flags, std::ptr::null_mut()) };
        if n < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok((n as usize).min(self.headers.len()))
    }
}

fn grow_send_buffer(descriptor: &OwnedFd, what: &str) -> io::Result<()> {
    let bytes = KERNEL_BYTES as i32;
    let set = |option| socket::set_option(descriptor, libc::SOL_SOCKET, option, &bytes, || format!("buffer of {what}"));
    set(libc::SO_SNDBUFFORCE).or_else(|_| set(libc::SO_SNDBUF))
}

impl AsRawFd for Socket {
    fn as_raw_fd(&self) -> RawFd {
        self.descriptor.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    /// Family 0x1c, command 2, attribute 4 = 1 and attribute 2 = six bytes, by hand.
    const BY_HAND: [u8; 40] = [
        40, 0, 0, 0, 0x1c, 0, 1, 0, 7, 0, 0, 0, 0, 0, 0, 0, // length, family, request, sequence 7, port
        2, 1, 0, 0, // command, version
        8, 0, 4, 0, 1, 0, 0, 0, // attribute 4
        10, 0, 2, 0, 0x42, 0, 0, 0, 5, 0, 0, 0, // attribute 2, padded
    ];

    /// A command with its attributes.
    type Parsed = (u8, Vec<(u16, Vec<u8>)>);

    fn collect(bytes: &[u8]) -> (Vec<Parsed>, Vec<(u32, i32)>, u64) {
        let (mut messages, mut answers) = (Vec::new(), Vec::new());
        let odd = parse(bytes, 0x1c, |received| match received {
            Received::Message { command, attributes } => {
                let mut all = Vec::new();
                each_attribute(attributes, |kind, value| all.push((kind, value.to_vec())));
                messages.push((command, all));
            }
            Received::Answer { sequence, errno } => answers.push((sequence, errno)),
        });
        (messages, answers, odd)
    }

    #[cfg(target_endian = "little")]
    #[test]
    fn messages_are_written_as_by_hand() {
        let mut messages = Messages::default();
        messages.begin(0x1c, 2, 7, false);
        messages.number(4, 1);
        messages.attribute(2, &[0x42, 0, 0, 0, 5, 0]);
        assert_eq!(messages.bytes(), BY_HAND);
        // The next one does not change it.
        messages.begin(0x1c, 3, 8, true);
        assert_eq!((messages.bytes().len(), &messages.bytes()[..40]), (60, &BY_HAND[..]));
        assert_eq!(messages.bytes()[40..48], [20, 0, 0, 0, 0x1c, 0, 5, 0]);
        messages.clear();
        assert!(messages.bytes().is_empty());
    }

    #[cfg(target_endian = "little")]
    #[test]
    fn messages_and_answers_are_read() {
        let mut bytes = BY_HAND.to_vec();
        // An error, -22, of the message with number 9.
        bytes.extend([36, 0, 0, 0, 2, 0, 0, 1, 9, 0, 0, 0, 0, 0, 0, 0, 0xea, 0xff, 0xff, 0xff]);
        bytes.extend([0; 16]);
        // Of another family.
        bytes.extend([20, 0, 0, 0, 0x1d, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 1, 0, 0]);
        let (messages, answers, odd) = collect(&bytes);
        let expected = vec![(4, vec![1, 0, 0, 0]), (2, vec![0x42, 0, 0, 0, 5, 0])];
        assert_eq!((messages, answers, odd), (vec![(2, expected)], vec![(9, 22)], 1));
    }

    #[test]
    fn no_bytes_make_it_fail() {
        let mut rng = Rng::new(5);
        for _ in 0..20_000 {
            let mut bytes = BY_HAND.repeat(1 + rng.below(2));
            for _ in 0..1 + rng.below(6) {
                let at = rng.below(bytes.len());
                bytes[at] = rng.bits() as u8;
            }
            bytes.truncate(rng.below(bytes.len() + 1));
            collect(&bytes);
        }
        assert_eq!(collect(&[]).2, 0);
        // An answer that is no negative number can't be turned round.
        let mut least = vec![20, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];
        least.extend(i32::MIN.to_ne_bytes());
        assert_eq!(collect(&least).2, 1);
    }

    #[test]
    fn an_attribute_that_is_too_long_is_left_out() {
        let mut messages = Messages::default();
        messages.begin(1, 2, 3, false);
        messages.attribute(3, &[0; 70_000]);
        assert_eq!(messages.bytes().len(), GENERIC_HEADER);
    }

    #[test]
    fn the_kernel_knows_its_families_and_not_others() {
        let socket = Socket::open("nlctrl").unwrap();
        assert_eq!(socket.family(), CONTROLLER);
        let error = Socket::open("hr-no-such").err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
