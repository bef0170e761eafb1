//! Running a piece of code inside another network namespace.

use super::{check, context, invalid};
use std::fs::File;
use std::io;
use std::os::unix::io::AsRawFd;

/// The file of a namespace: a name as in `ip netns` or an absolute path such as `/proc/123/ns/net`.
fn namespace_path(namespace: &str) -> io::Result<String> {
    if namespace.starts_with('/') {
        return Ok(namespace.to_string());
    }
    let plain = !namespace.is_empty() && !namespace.contains('/') && namespace != "." && namespace != "..";
    if !plain || namespace.contains('\0') {
        return Err(invalid(format!("network namespace {namespace:?}: expected a name or an absolute path")));
    }
    Ok(format!("/run/netns/{namespace}"))
}

/// Puts the thread back into its namespace when it is dropped, also when the closure panicked.
struct Restore {
    old: File,
    done: bool,
}

impl Restore {
    fn restore(&mut self) -> io::Result<()> {
        self.done = true;
        enter(&self.old, "return to own network namespace")
    }
}

impl Drop for Restore {
    fn drop(&mut self) {
        if !self.done {
            // Only reached while unwinding: there is nobody left to tell.
            let _ = self.restore();
        }
    }
}

fn enter(namespace: &File, what: &str) -> io::Result<()> {
    // SAFETY: the descriptor is open for as long as the reference lives.
    let result = unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) };
    check(result, || what.to_string()).map(|_| ())
}

/// Runs `action` with the calling thread inside `namespace` (None = where it is). Descriptors opened there stay valid
/// afterwards; that is how one thread owns devices of many namespaces.
pub fn in_namespace<T>(namespace: Option<&str>, action: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let name = match namespace {
        None => return action(),
        Some(name) => name,
    };
    let path = namespace_path(name)?;
    let old = File::open("/proc/thread-self/ns/net").map_err(|e| context(e, "open own network namespace"))?;
    let new = File::open(&path).map_err(|e| context(e, &format!("open network namespace {name}")))?;
    enter(&new, &format!("enter network namespace {name}"))?;
    let mut restore = Restore { old, done: false };
    let result = action();
    restore.restore()?;
    result.map_err(|e| context(e, &format!("network namespace {name}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_paths_and_tricks_are_refused() {
        assert_eq!(namespace_path("hr-x").unwrap(), "/run/netns/hr-x");
        assert_eq!(namespace_path("/proc/1/ns/net").unwrap(), "/proc/1/ns/net");
        for bad in ["", ".", "..", "a/b", "../x"] {
            assert!(namespace_path(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn without_a_namespace_the_action_just_runs() {
        assert_eq!(in_namespace(None, || Ok(7)).unwrap(), 7);
    }

    #[test]
    fn a_missing_namespace_is_named_in_the_error() {
        let error = in_namespace(Some("hr-does-not-exist"), || Ok(())).unwrap_err();
        assert!(error.to_string().contains("hr-does-not-exist"), "{error}");
    }
}
