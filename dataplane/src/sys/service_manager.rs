//! What a service manager is told, by systemd's `sd_notify` protocol: ready, ending, and that the loop still turns.
//! Without a service manager nothing is sent.

use std::ffi::{OsStr, OsString};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

/// A datagram of `NAME=value` goes to the Unix socket that `NOTIFY_SOCKET` names (abstract names are not spoken to). A
/// manager that can't be reached, or does not read, holds nobody up.
#[derive(Debug)]
pub struct ServiceManager {
    channel: Option<(UnixDatagram, PathBuf)>,
    /// Silence after which the manager takes us for hung is three times this, nanoseconds; None: it does not watch.
    period_ns: Option<u64>,
    due_ns: u64,
}

impl ServiceManager {
    pub fn new() -> ServiceManager {
        let variable = |name| std::env::var_os(name);
        ServiceManager::of(variable("NOTIFY_SOCKET"), variable("WATCHDOG_USEC"), variable("WATCHDOG_PID"))
    }

    fn of(socket: Option<OsString>, watchdog_us: Option<OsString>, pid: Option<OsString>) -> ServiceManager {
        let path = socket.map(PathBuf::from).filter(|path| path.is_absolute());
        let channel = path.and_then(|path| {
            let socket = UnixDatagram::unbound().ok()?;
            socket.set_nonblocking(true).ok()?;
            Some((socket, path))
        });
        let ours = pid.map_or(true, |pid| pid == OsStr::new(&std::process::id().to_string()));
        let watchdog_us = watchdog_us.and_then(|text| text.to_str()?.parse::<u64>().ok()).filter(|us| ours && *us > 0);
        let period_ns = watchdog_us.filter(|_| channel.is_some()).map(|us| (us.saturating_mul(1_000) / 3).max(1));
        ServiceManager { channel, period_ns, due_ns: 0 }
    }

    fn tell(&self, line: &str) {
        if let Some((socket, path)) = &self.channel {
            let _ = socket.send_to(line.as_bytes(), Path::new(path));
        }
    }

    pub fn ready(&self) {
        self.tell("READY=1");
    }

    pub fn stopping(&self) {
        self.tell("STOPPING=1");
    }

    /// When [`ServiceManager::turned`] has to be called next.
    pub fn next_due(&self) -> Option<u64> {
        self.period_ns.map(|_| self.due_ns)
    }

    /// The loop has turned: a watching manager is told, if it is time to.
    pub fn turned(&mut self, now_ns: u64) {
        if let Some(period_ns) = self.period_ns.filter(|_| now_ns >= self.due_ns) {
            self.due_ns = now_ns.saturating_add(period_ns);
            self.tell("WATCHDOG=1");
        }
    }
}

impl Default for ServiceManager {
    fn default() -> Self {
        ServiceManager::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Heard {
        socket: UnixDatagram,
        path: PathBuf,
    }

    impl Heard {
        fn new(name: &str) -> Heard {
            let path = std::env::temp_dir().join(format!("hyroads-{name}-{}", std::process::id()));
            let _ = std::fs::remove_file(&path);
            let socket = UnixDatagram::bind(&path).unwrap();
            socket.set_nonblocking(true).unwrap();
            Heard { socket, path }
        }

        fn next(&self) -> Option<String> {
            let mut bytes = [0; 100];
            let length = self.socket.recv(&mut bytes).ok()?;
            Some(String::from_utf8(bytes[..length].to_vec()).unwrap())
        }
    }

    impl Drop for Heard {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.path);
        }
    }

    #[test]
    fn a_manager_hears_of_the_start_of_turns_a_third_of_its_time_apart_and_of_the_end() {
        let heard = Heard::new("notify-life");
        let mut manager = ServiceManager::of(Some(heard.path.clone().into()), Some("3000".into()), None);
        manager.ready();
        assert_eq!(heard.next().as_deref(), Some("READY=1"));
        assert_eq!(manager.next_due(), Some(0));
        manager.turned(5);
        assert_eq!((heard.next().as_deref(), manager.next_due()), (Some("WATCHDOG=1"), Some(1_000_005)));
        manager.turned(1_000_004);
        assert_eq!(heard.next(), None, "it was told a moment ago");
        manager.turned(1_000_005);
        assert_eq!(heard.next().as_deref(), Some("WATCHDOG=1"));
        manager.stopping();
        assert_eq!(heard.next().as_deref(), Some("STOPPING=1"));
    }

    #[test]
    fn nobody_is_told_by_a_process_that_is_not_watched_or_has_no_manager() {
        let heard = Heard::new("notify-none");
        let path = || Some(OsString::from(&heard.path));
        for (socket, watchdog_us, pid) in [
            (path(), None, None),
            (path(), Some("3000"), Some("1")),
            (path(), Some("often"), None),
            (path(), Some("0"), None),
            (Some("relative".into()), Some("3000"), None),
            (None, Some("3000"), None),
        ] {
            let mut manager = ServiceManager::of(socket, watchdog_us.map(OsString::from), pid.map(OsString::from));
            assert_eq!(manager.next_due(), None);
            manager.turned(u64::MAX);
            assert_eq!(heard.next(), None);
        }
    }

    #[test]
    fn a_manager_that_is_gone_or_does_not_read_holds_nobody_up() {
        let heard = Heard::new("notify-full");
        let mut manager = ServiceManager::of(Some(heard.path.clone().into()), Some("3".into()), None);
        for turn in 0..5_000 {
            manager.turned(turn * 1_000_000);
        }
        drop(heard);
        manager.stopping();
    }
}
