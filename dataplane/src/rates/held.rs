//! Holds solutions up while their caller has something more urgent to do on the same processors.
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// So long a solution is held up at most.
pub const LONGEST: Duration = Duration::from_millis(100);

pub struct Hold {
    is_held: Mutex<bool>,
    released: Condvar,
}

/// That of this process.
pub static HOLD: Hold = Hold::open();

impl Hold {
    const fn open() -> Hold {
        Hold { is_held: Mutex::new(false), released: Condvar::new() }
    }

    /// From now on who passes waits, or does not.
    pub fn set(&self, is_held: bool) {
        *self.is_held.lock().unwrap_or_else(PoisonError::into_inner) = is_held;
        if !is_held {
            self.released.notify_all();
        }
    }

    /// Wait until nobody is held up; false if that took longer than `longest`.
    pub fn pass(&self, longest: Duration) -> bool {
        let is_held = self.is_held.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.released.wait_timeout_while(is_held, longest, |is_held| *is_held);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn who_passes_waits_for_the_end_of_a_hold() {
        let (hold, is_through) = (Hold::open(), AtomicBool::new(false));
        hold.set(true);
        std::thread::scope(|scope| {
            let passing = scope.spawn(|| {
                let found = hold.pass(Duration::from_secs(60));
                is_through.store(true, Ordering::SeqCst);
                found
            });
            std::thread::sleep(Duration::from_millis(20));
            assert!(!is_through.load(Ordering::SeqCst));
            hold.set(false);
            assert!(passing.join().unwrap());
        });
        assert!(hold.pass(Duration::ZERO));
    }

    #[test]
    fn nobody_is_held_up_for_longer_than_told() {
        let hold = Hold::open();
        hold.set(true);
        assert!(!hold.pass(Duration::from_millis(1)));
    }
}
