//! The Unix socket a program listens on for its control protocol.

use super::{context, invalid};
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::io::{AsRawFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// A listening Unix socket, non-blocking; its file is removed when it is dropped.
#[derive(Debug)]
pub struct ControlSocket {
    listener: UnixListener,
    path: PathBuf,
    /// Device and inode of our file: a successor's file at the same path must survive us.
    identity: (u64, u64),
}

impl ControlSocket {
    /// Listens on `path`. A socket file that nobody answers on is replaced; one that a live program holds, or a file of
    /// another kind, is an error.
    pub fn listen(path: &Path) -> io::Result<ControlSocket> {
        let shown = path.display();
        remove_stale(path)?;
        let listener = UnixListener::bind(path).map_err(|e| context(e, &format!("listen on {shown}")))?;
        listener.set_nonblocking(true).map_err(|e| context(e, &format!("listen on {shown}")))?;
        // Whoever may connect controls the network: the owner only.
        let mode = fs::Permissions::from_mode(0o600);
        fs::set_permissions(path, mode).map_err(|e| context(e, &format!("restrict {shown}")))?;
        let information = fs::symlink_metadata(path).map_err(|e| context(e, &format!("inspect {shown}")))?;
        let identity = (information.dev(), information.ino());
        Ok(ControlSocket { listener, path: path.to_path_buf(), identity })
    }

    /// The next client, non-blocking. None: there is none now.
    pub fn accept(&self) -> io::Result<Option<UnixStream>> {
        match self.listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(true).map_err(|e| context(e, "control client"))?;
                Ok(Some(stream))
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(None),
            Err(error) => Err(context(error, &format!("accept on {}", self.path.display()))),
        }
    }
}

/// Makes sure that `path` is free to listen on, removing a socket file that nobody answers on.
pub fn remove_stale(path: &Path) -> io::Result<()> {
    let shown = path.display();
    let information = match fs::symlink_metadata(path) {
        Ok(information) => information,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(context(error, &format!("inspect {shown}"))),
    };
    if !information.file_type().is_socket() {
        return Err(invalid(format!("{shown} exists and is not a socket")));
    }
    match UnixStream::connect(path) {
        Ok(_) => Err(io::Error::new(io::ErrorKind::AddrInUse, format!("{shown}: another program answers there"))),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(|e| context(e, &format!("remove stale socket {shown}")))
        }
        Err(error) => Err(context(error, &format!("ask who holds {shown}"))),
    }
}

impl AsRawFd for ControlSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.listener.as_raw_fd()
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        if let Ok(information) = fs::symlink_metadata(&self.path) {
            if (information.dev(), information.ino()) == self.identity {
                // Leaving a stale file is harmless: the next listener replaces it.
                let _ = fs::remove_file(&self.path);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("hyroads-{name}-{}", std::process::id()))
    }

    #[test]
    fn a_live_socket_is_refused_and_a_stale_one_replaced() {
        let path = scratch("control");
        let first = ControlSocket::listen(&path).unwrap();
        let refused = ControlSocket::listen(&path).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
        drop(first);
        assert!(!path.exists());

        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        let second = ControlSocket::listen(&path).unwrap();
        assert!(second.accept().unwrap().is_none());
        let _client = UnixStream::connect(&path).unwrap();
        assert!(second.accept().unwrap().is_some());
    }

    #[test]
    fn a_plain_file_is_left_alone() {
        let path = scratch("plain");
        fs::write(&path, "precious").unwrap();
        assert!(ControlSocket::listen(&path).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
        fs::remove_file(&path).unwrap();
    }
}
