//! Which session may change something, where several controllers are dialled: one that names the greatest epoch.

/// Epochs are OpenFlow's generation ids, too, and must fit in what every language takes for a whole number.
pub const MAX_EPOCH: u64 = i64::MAX as u64;

/// The greatest epoch that any session has named. It outlives sessions; 0: none was ever named.
#[derive(Clone, Copy, Debug, Default)]
pub struct Epochs {
    greatest: u64,
}

impl Epochs {
    pub fn greatest(self) -> u64 {
        self.greatest
    }

    /// A session says that it leads. False if another one was named that is greater.
    pub fn lead(&mut self, epoch: u64) -> bool {
        if epoch < self.greatest {
            return false;
        }
        self.greatest = epoch;
        true
    }

    /// Whether a session that has named this epoch (0: none) is obeyed: all are while none was ever named.
    pub fn obeys(self, epoch: u64) -> bool {
        epoch >= self.greatest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_greatest_epoch_is_obeyed_and_stays() {
        let mut epochs = Epochs::default();
        assert!(epochs.obeys(0));
        assert!(epochs.lead(3));
        assert!(epochs.obeys(3) && !epochs.obeys(0) && !epochs.obeys(2));
        assert!(!epochs.lead(2));
        assert!(epochs.lead(3) && epochs.lead(4));
        assert_eq!(epochs.greatest(), 4);
        assert!(!epochs.obeys(3));
    }
}
