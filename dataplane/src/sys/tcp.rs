//! Dialling without waiting: a TCP connection that is made in the background.

use super::check;
use std::io;
use std::mem;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::io::{AsRawFd, FromRawFd};

/// Starts to connect. The stream is non-blocking and becomes writable when the connection is made or has failed;
/// `TcpStream::take_error` then tells which.
pub fn dial(address: &SocketAddr) -> io::Result<TcpStream> {
    let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    // SAFETY: a plain system call.
    let descriptor = check(unsafe { libc::socket(family, kind, 0) }, || "TCP socket".to_string())?;
    // SAFETY: `descriptor` was just opened and nobody else has it.
    let stream = unsafe { TcpStream::from_raw_fd(descriptor) };
    let result = match address {
        SocketAddr::V4(v4) => {
            // SAFETY: an all-zero sockaddr_in is valid.
            let mut raw: libc::sockaddr_in = unsafe { mem::zeroed() };
            raw.sin_family = libc::AF_INET as libc::sa_family_t;
            raw.sin_port = v4.port().to_be();
            raw.sin_addr.s_addr = u32::from_ne_bytes(v4.ip().octets());
            connect(&stream, &raw)
        }
        SocketAddr::V6(v6) => {
            // SAFETY: an all-zero sockaddr_in6 is valid.
            let mut raw: libc::sockaddr_in6 = unsafe { mem::zeroed() };
            raw.sin6_family = libc::AF_INET6 as libc::sa_family_t;
            raw.sin6_port = v6.port().to_be();
            raw.sin6_addr.s6_addr = v6.ip().octets();
            raw.sin6_scope_id = v6.scope_id();
            connect(&stream, &raw)
        }
    };
    match result {
        Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => {
            Err(super::context(error, &format!("connect to {address}")))
        }
        _ => Ok(stream),
    }
}

fn connect<T>(stream: &TcpStream, address: &T) -> io::Result<()> {
    let (pointer, size) = (address as *const T, mem::size_of::<T>() as libc::socklen_t);
    // SAFETY: pointer and size describe a socket address.
    if unsafe { libc::connect(stream.as_raw_fd(), pointer.cast(), size) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::epoll::{Epoll, Interest};
    use super::*;
    use std::net::TcpListener;

    fn result_of(address: SocketAddr) -> Option<io::Error> {
        let stream = match dial(&address) {
            Ok(stream) => stream,
            Err(error) => return Some(error),
        };
        let mut epoll = Epoll::new(1).unwrap();
        epoll.add(&stream, 1, Interest::BOTH).unwrap();
        let mut events = Vec::new();
        epoll.wait(Some(1_000_000_000), &mut events).unwrap();
        assert!(events[0].writable);
        stream.take_error().unwrap()
    }

    #[test]
    fn connects_to_a_listener_and_tells_of_a_refusal() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        assert!(result_of(address).is_none());
        assert!(listener.accept().is_ok());
        drop(listener);
        assert!(result_of(address).is_some());
    }
}
