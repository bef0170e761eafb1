//! Whether to look again at once instead of sleeping: waking up costs more than a message, on some machines ten times.
//!
//! The slicer looks again only while messages come close behind each other, for a short time after each, and with a
//! processor to spare. Each look offers the processor to others. Looks in vain, or that others used, end it.

/// How long after the last message.
const LOOK_S: f64 = 60e-6;
/// Messages further apart than this are not close.
const CLOSE_S: f64 = 250e-6;
const MOST: i32 = 8;
const ENOUGH: i32 = 3;
/// A look that took longer has let somebody else work.
const TAKEN_S: f64 = 20e-6;
const ASK_S: f64 = 0.1;

#[derive(Debug)]
pub struct Spin {
    last_s: f64,
    seen_s: f64,
    credit: i32,
    asked_s: f64,
    spare: bool,
}

impl Default for Spin {
    fn default() -> Spin {
        Spin { last_s: f64::NEG_INFINITY, seen_s: 0.0, credit: 0, asked_s: f64::NEG_INFINITY, spare: false }
    }
}

impl Spin {
    /// Messages came.
    pub fn came(&mut self, now_s: f64) {
        self.credit = if now_s - self.last_s < CLOSE_S { (self.credit + 1).min(MOST) } else { 0 };
        self.last_s = now_s;
        self.seen_s = now_s;
    }

    /// Whether to look again, when nothing is there at `now_s`. `spare` says whether there is another processor.
    pub fn again(&mut self, now_s: f64, spare: impl Fn() -> bool) -> bool {
        if self.credit < ENOUGH {
            return false;
        }
        if now_s - self.seen_s > TAKEN_S {
            self.credit = 0;
            return false;
        }
        self.seen_s = now_s;
        if now_s - self.last_s > LOOK_S {
            self.credit -= 2;
            return false;
        }
        if now_s - self.asked_s > ASK_S {
            self.asked_s = now_s;
            self.spare = spare();
        }
        self.spare
    }
}
