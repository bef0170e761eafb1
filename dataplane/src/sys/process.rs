//! What the process asks of the kernel for itself: low latency, signals, death with its parent.

use super::{check, context, invalid};
use std::io;
use std::mem;
use std::os::unix::io::{AsRawFd, FromRawFd, OwnedFd, RawFd};

const REALTIME_PRIORITY: libc::c_int = 10;

/// Exact timers, and SCHED_FIFO if `realtime`. What was not permitted comes back as a warning for the user.
pub fn low_latency(realtime: bool) -> Option<String> {
    // Ordinary threads get their timers up to 50 us late to save power.
    // SAFETY: a plain system call without pointers.
    let slack = check(unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1, 0, 0, 0) }, || "PR_SET_TIMERSLACK".to_string());
    let fifo = if realtime { set_fifo() } else { Ok(()) };
    let problems: Vec<String> =
        [slack.map(|_| ()), fifo].into_iter().filter_map(|r| r.err().map(|e| e.to_string())).collect();
    if problems.is_empty() {
        return None;
    }
    Some(format!("low latency is not available ({}): frames may be late by milliseconds", problems.join("; ")))
}

fn set_fifo() -> io::Result<()> {
    // SAFETY: an all-zero sched_param is valid.
    let mut parameters: libc::sched_param = unsafe { mem::zeroed() };
    parameters.sched_priority = REALTIME_PRIORITY;
    // A child must not inherit this: it could starve the machine.
    let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    // SAFETY: `parameters` lives over the call.
    let result = unsafe { libc::sched_setscheduler(0, policy, &parameters) };
    check(result, || "SCHED_FIFO".to_string()).map(|_| ())
}

/// Has the kernel send SIGTERM to this process when its parent `parent_pid` dies. Errors if the parent is gone already.
pub fn die_with_parent(parent_pid: Option<u32>) -> io::Result<()> {
    // SAFETY: plain system calls without pointers.
    check(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM, 0, 0, 0) }, || "PR_SET_PDEATHSIG".to_string())?;
    let now = std::os::unix::process::parent_id();
    match parent_pid {
        Some(expected) if expected != now => Err(invalid(format!("parent process {expected} has ended"))),
        _ => Ok(()),
    }
}

/// Signals as something to read, instead of a handler that may run at any point.
#[derive(Debug)]
pub struct Signals {
    descriptor: OwnedFd,
}

impl Signals {
    /// SIGTERM and SIGINT.
    pub fn termination() -> io::Result<Signals> {
        Signals::new(&[libc::SIGTERM, libc::SIGINT])
    }

    /// Blocks the given signals for the calling thread (call before starting others) and opens a descriptor for them.
    pub fn new(signals: &[libc::c_int]) -> io::Result<Signals> {
        // SAFETY: an all-zero sigset_t is valid storage, sigemptyset initialises it; the pointers live over the calls.
        let descriptor = unsafe {
            let mut set: libc::sigset_t = mem::zeroed();
            libc::sigemptyset(&mut set);
            for &signal in signals {
                check(libc::sigaddset(&mut set, signal), || format!("signal {signal}"))?;
            }
            let error = libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
            if error != 0 {
                return Err(context(io::Error::from_raw_os_error(error), "block signals"));
            }
            check(libc::signalfd(-1, &set, libc::SFD_NONBLOCK | libc::SFD_CLOEXEC), || "signalfd".to_string())?
        };
        // SAFETY: `descriptor` was just opened and nobody else has it.
        Ok(Signals { descriptor: unsafe { OwnedFd::from_raw_fd(descriptor) } })
    }

    /// The number of a signal that arrived. None: there is none now.
    pub fn read(&self) -> io::Result<Option<u32>> {
        // SAFETY: an all-zero signalfd_siginfo is valid; pointer and size describe it.
        let (n, information) = unsafe {
            let mut information: libc::signalfd_siginfo = mem::zeroed();
            let pointer = &mut information as *mut libc::signalfd_siginfo;
            let size = mem::size_of::<libc::signalfd_siginfo>();
            (libc::read(self.as_raw_fd(), pointer.cast(), size), information)
        };
        if n > 0 {
            return Ok(Some(information.ssi_signo));
        }
        let error = io::Error::last_os_error();
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
            _ => Err(context(error, "read signals")),
        }
    }
}

impl AsRawFd for Signals {
    fn as_raw_fd(&self) -> RawFd {
        self.descriptor.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_can_be_read_once() {
        let signals = Signals::new(&[libc::SIGUSR1]).unwrap();
        assert_eq!(signals.read().unwrap(), None);
        // SAFETY: sends the signal, blocked above, to this very thread.
        assert_eq!(unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGUSR1) }, 0);
        assert_eq!(signals.read().unwrap(), Some(libc::SIGUSR1 as u32));
        assert_eq!(signals.read().unwrap(), None);
    }

    #[test]
    fn a_parent_that_is_gone_is_noticed() {
        assert!(die_with_parent(Some(u32::MAX)).is_err());
    }
}
