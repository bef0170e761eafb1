//! The control group (cgroup v2) of the process that made a socket, as the kernel tells it: sock_diag gives the group's
//! number, the file system of control groups its path.

use super::netlink::{attributes, cut, u16_at, u32_at, HEADER, NLM_F_REQUEST};
use super::socket::{self, RawAddress};
use super::{check, context};
use crate::ip::{Endpoint, Tuple, TCP, UDP};
use std::fs::{self, File};
use std::io;
use std::net::{IpAddr, UdpSocket};
use std::os::unix::io::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const INET_DIAG_CGROUP_ID: u16 = 21;
/// `struct inet_diag_req_v2` and `struct inet_diag_msg`.
const REQUEST: usize = 56;
const ANSWER: usize = 72;
/// Of a file handle of kernfs: its kind, and 8 bytes with the number.
const FILEID_KERNFS: i32 = 0xfe;

/// `struct file_handle` with what kernfs puts there.
#[repr(C)]
struct Handle {
    bytes: libc::c_uint,
    kind: libc::c_int,
    number: [u8; 8],
}

/// Asks the kernel of the network namespace in which it was opened.
#[derive(Debug)]
pub struct SocketOwners {
    diag: OwnedFd,
    mount: File,
    root: PathBuf,
}

impl SocketOwners {
    /// Fails if the kernel does not tell, or there is no file system of control groups.
    pub fn open() -> io::Result<SocketOwners> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").map_err(|error| context(error, "mountinfo"))?;
        let root = cgroup2_of(&mounts).ok_or_else(|| {
            io::Error::new(io::ErrorKind::NotFound, "no cgroup v2 file system is mounted on this host")
        })?;
        let mount = File::open(&root).map_err(|error| context(error, &root.display().to_string()))?;
        let diag = socket::open(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_SOCK_DIAG, "sock_diag socket")?;
        socket::bind(&diag, &RawAddress::netlink(0), || "bind sock_diag socket".to_string())?;
        let owners = SocketOwners { diag, mount, root };
        owners.try_itself()?;
        Ok(owners)
    }

    /// Asks for a socket of its own.
    fn try_itself(&self) -> io::Result<()> {
        let own = UdpSocket::bind(("127.0.0.1", 0)).map_err(|error| context(error, "a socket to ask for"))?;
        let address = own.local_addr().map_err(|error| context(error, "a socket to ask for"))?;
        let source = Endpoint { address: address.ip(), port: address.port() };
        let number = self.number_of(&Tuple { protocol: UDP, source, destination: source });
        let number = number.ok_or_else(|| {
            io::Error::new(io::ErrorKind::Unsupported, "the kernel does not tell the cgroups of sockets (inet_diag)")
        })?;
        self.path_of(number).map(|_| ())
    }

    /// The path of the control group of a flow's socket; None if the flow has none here.
    pub fn cgroup_of(&self, tuple: &Tuple) -> Option<Box<str>> {
        self.path_of(self.number_of(tuple)?).ok()
    }

    /// The number of the control group of a flow's socket.
    fn number_of(&self, tuple: &Tuple) -> Option<u64> {
        let (local, remote) = (tuple.source, tuple.destination);
        match tuple.protocol {
            TCP => self.ask(tuple.protocol, local, remote),
            // The kernel takes the two ends of UDP the other way round.
            UDP => self.ask(tuple.protocol, remote, local),
            _ => None,
        }
    }

    fn ask(&self, protocol: u8, source: Endpoint, destination: Endpoint) -> Option<u64> {
        let message = request(protocol, source, destination);
        let mut answer = [0u8; 1024];
        // What an earlier question may have left is not the answer.
        while self.receive(&mut answer).is_some() {}
        // SAFETY: pointer and length describe `message`.
        let sent =
            unsafe { libc::send(self.diag.as_raw_fd(), message.as_ptr().cast(), message.len(), libc::MSG_DONTWAIT) };
        if sent < 0 {
            return None;
        }
        let length = self.receive(&mut answer)?;
        cgroup_number(&answer[..length])
    }

    /// The length of the next message, if there is one. The kernel has answered when `send` returns.
    fn receive(&self, buffer: &mut [u8]) -> Option<usize> {
        // SAFETY: pointer and length describe `buffer`.
        let n =
            unsafe { libc::recv(self.diag.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), libc::MSG_DONTWAIT) };
        usize::try_from(n).ok().map(|length| length.min(buffer.len()))
    }

    /// The path of a control group below the root.
    fn path_of(&self, number: u64) -> io::Result<Box<str>> {
        let what = || "open a cgroup by its number".to_string();
        let mut handle = Handle { bytes: 8, kind: FILEID_KERNFS, number: number.to_ne_bytes() };
        let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_DIRECTORY;
        let pointer: *mut Handle = &mut handle;
        // SAFETY: `handle` is a file handle of the length that it says, and lives over the call.
        let opened = unsafe { libc::syscall(libc::SYS_open_by_handle_at, self.mount.as_raw_fd(), pointer, flags) };
        let descriptor = check(opened as RawFd, what)?;
        // SAFETY: the descriptor was just opened and belongs to nobody else.
        let file = unsafe { File::from_raw_fd(descriptor) };
        let path = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).map_err(|e| context(e, &what()))?;
        Ok(below(&path, &self.root).into_boxed_str())
    }
}

fn below(path: &Path, root: &Path) -> String {
    let inner = path.strip_prefix(root).unwrap_or(path);
    format!("/{}", inner.display())
}

/// Where control groups of version 2 are mounted: by the lines of `/proc/self/mountinfo`.
fn cgroup2_of(mounts: &str) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        let place = mount.split(' ').nth(4)?;
        Some(PathBuf::from(place)).filter(|_| kind.starts_with("cgroup2 "))
    })
}

/// `struct nlmsghdr` and `struct inet_diag_req_v2`.
fn request(protocol: u8, source: Endpoint, destination: Endpoint) -> [u8; HEADER + REQUEST] {
    let mut out = [0u8; HEADER + REQUEST];
    out[..4].copy_from_slice(&((HEADER + REQUEST) as u32).to_ne_bytes());
    out[4..6].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    out[6..8].copy_from_slice(&NLM_F_REQUEST.to_ne_bytes());
    let body = &mut out[HEADER..];
    body[0] = if source.address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 } as u8;
    body[1] = protocol;
    // Any state.
    body[4..8].copy_from_slice(&u32::MAX.to_ne_bytes());
    for (end, port_at, address_at) in [(source, 8, 12), (destination, 10, 28)] {
        body[port_at..port_at + 2].copy_from_slice(&end.port.to_be_bytes());
        match end.address {
            IpAddr::V4(address) => body[address_at..address_at + 4].copy_from_slice(&address.octets()),
            IpAddr::V6(address) => body[address_at..address_at + 16].copy_from_slice(&address.octets()),
        }
    }
    // No cookie.
    body[48..56].copy_from_slice(&u64::MAX.to_ne_bytes());
    out
}

/// The number in an answer; None for an error, or what is none.
fn cgroup_number(answer: &[u8]) -> Option<u64> {
    let (length, kind) = (u32_at(answer, 0)?, u16_at(answer, 4)?);
    let (message, _) = cut(answer, length as usize, HEADER + ANSWER)?;
    let mut found = None;
    if kind == SOCK_DIAG_BY_FAMILY {
        attributes(&message[HEADER + ANSWER..], |kind, value| {
            if kind == INET_DIAG_CGROUP_ID {
                found = value.try_into().ok().map(u64::from_ne_bytes);
            }
        });
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_system_of_control_groups_is_found() {
        let hybrid = "30 25 0:26 / /sys/fs/cgroup ro - tmpfs tmpfs rw\n\
                      33 30 0:29 / /sys/fs/cgroup/unified rw,nosuid shared:9 - cgroup2 cgroup2 rw\n";
        assert_eq!(cgroup2_of(hybrid), Some(PathBuf::from("/sys/fs/cgroup/unified")));
        assert_eq!(cgroup2_of("30 25 0:26 / /sys/fs/cgroup ro - cgroup cgroup2 rw\n"), None);
        assert_eq!(cgroup2_of("cgroup2\n - cgroup2 \n"), None);
        assert_eq!(below(Path::new("/sys/fs/cgroup/a/b"), Path::new("/sys/fs/cgroup")), "/a/b");
        assert_eq!(below(Path::new("/sys/fs/cgroup"), Path::new("/sys/fs/cgroup")), "/");
    }

    #[test]
    fn no_bytes_make_an_answer_fail() {
        let mut answer = vec![0u8; HEADER + ANSWER + 12];
        let length = answer.len() as u32;
        answer[..4].copy_from_slice(&length.to_ne_bytes());
        answer[4..6].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
        answer[HEADER + ANSWER..][..2].copy_from_slice(&12u16.to_ne_bytes());
        answer[HEADER + ANSWER + 2..][..2].copy_from_slice(&INET_DIAG_CGROUP_ID.to_ne_bytes());
        answer[HEADER + ANSWER + 4..].copy_from_slice(&77u64.to_ne_bytes());
        assert_eq!(cgroup_number(&answer), Some(77));
        for length in 0..answer.len() {
            assert_eq!(cgroup_number(&answer[..length]), None);
        }
        for (at, value) in [(4, 2u8), (HEADER + ANSWER, 8), (HEADER + ANSWER, 255), (HEADER + ANSWER + 2, 9), (0, 255)]
        {
            let mut other = answer.clone();
            other[at] = value;
            assert_eq!(cgroup_number(&other), None, "{at}");
        }
    }
}
