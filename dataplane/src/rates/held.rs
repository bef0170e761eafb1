//! Holds solutions up while their caller has something more urgent to do on the same processors.
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// So long solutions are held up at most.
const LONGEST: Duration = Duration::from_secs(1);

pub struct Hold {
    /// None: nobody is held up.
    until: Mutex<Option<Instant>>,
    changed: Condvar,
}

/// That of this process.
pub static HOLD: Hold = Hold::none();

impl Hold {
    const fn none() -> Hold {
        Hold { until: Mutex::new(None), changed: Condvar::new() }
    }

    /// From now on who passes waits, for so long at most; zero: nobody waits any more.
    pub fn set(&self, during: Duration) {
        *self.until() = Some(Instant::now() + during.min(LONGEST)).filter(|_| !during.is_zero());
        self.changed.notify_all();
    }

    /// Wait until nobody is held up.
    pub fn pass(&self) {
        let mut until = self.until();
        while let Some(left) = until.and_then(|until| until.checked_duration_since(Instant::now())) {
            until = self.changed.wait_timeout(until, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn until(&self) -> MutexGuard<'_, Option<Instant>> {
        self.until.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn who_passes_waits_for_the_end_of_a_hold() {
        let (hold, is_through) = (Hold::none(), AtomicBool::new(false));
        hold.set(Duration::from_secs(60));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                hold.pass();
                is_through.store(true, Ordering::SeqCst);
            });
            std::thread::sleep(Duration::from_millis(20));
            assert!(!is_through.load(Ordering::SeqCst));
            hold.set(Duration::ZERO);
        });
        hold.pass();
    }

    #[test]
    fn nobody_is_held_up_for_longer_than_told() {
        let (hold, began) = (Hold::none(), Instant::now());
        hold.set(Duration::from_secs(u64::MAX));
        hold.pass();
        assert!(began.elapsed() >= LONGEST);
        hold.set(Duration::from_millis(1));
        hold.pass();
    }
}
