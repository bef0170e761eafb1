//! The system calls of the data plane: clock, network namespaces, TAP and TUN devices, packet, raw and UDP
//! sockets, rtnetlink, epoll, signals, line streams.
//!
//! Everything that can fail returns `io::Result` with the operation and its object in the text; nothing panics. Unsafe
//! code lives below this module, in the `ffi` modules, in the slicer's relay, which works on memory of its caller, and in
//! the rates' vector code. Each block says why it is sound: `make lint` refuses one without a SAFETY comment.

pub mod clock;
pub mod epoll;
pub mod file;
pub mod filter;
pub mod genetlink;
pub mod interface;
pub mod ip_tap;
pub mod lateness;
pub mod lines;
pub mod netlink;
mod netlink_orphans;
pub mod netns;
mod openssl;
pub mod packet;
pub mod packet_out;
pub mod process;
pub mod raw_ip;
pub mod service_manager;
pub mod sock_owner;
pub mod socket;
pub mod tap;
pub mod tcp;
pub mod tls;
pub mod tun;
pub mod udp;
pub mod unix;
pub mod virtio;

#[cfg(test)]
mod client_live_tests;
#[cfg(test)]
mod netlink_tests;
#[cfg(test)]
mod packet_out_live_tests;
#[cfg(test)]
mod testing;

use std::io;

/// The same error with `what` in front of its text; the kind is kept, so `WouldBlock` can still be told apart.
pub fn context(error: io::Error, what: &str) -> io::Error {
    io::Error::new(error.kind(), format!("{what}: {error}"))
}

/// An error of our own, of kind `InvalidInput`.
pub fn invalid(text: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text.into())
}

/// The request that gives the driver of TUN and TAP devices an integer: `_IOW('T', number, int)` of asm/ioctl.h, where
/// some processors have another bit for "write".
pub(crate) const fn tun_request(number: u32) -> u32 {
    let is_other =
        cfg!(any(target_arch = "mips", target_arch = "mips64", target_arch = "powerpc", target_arch = "powerpc64"));
    let write = if is_other { 0x8000_0000 } else { 0x4000_0000 };
    write | (4 << 16) | ((b'T' as u32) << 8) | number
}

/// Turns the -1 of a system call into an error that says what was tried.
pub(crate) fn check(result: libc::c_int, what: impl FnOnce() -> String) -> io::Result<libc::c_int> {
    if result < 0 {
        let error = io::Error::last_os_error();
        return Err(context(error, &what()));
    }
    Ok(result)
}
