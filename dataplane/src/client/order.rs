//! The receiving end of one flow of the tunnel: each packet once, and in order though interfaces differ in delay.
//!
//! As long as a flow uses one interface, its packets are handed on as they come, and nothing is kept but which of the
//! last numbers have been seen. When a second interface brings packets, `edge::receiver` puts them in order, until one
//! interface alone has been used for `SETTLED_NS`.

use crate::edge::buffer::Buf;
use crate::edge::frame::{Kind, Shim};
use crate::edge::receiver::{Receiver, ReceiverOptions, Released};
use crate::edge::reorder::before;

const MS: u64 = 1_000_000;
/// Numbers behind the next one of which is known whether they came.
const SEEN: u32 = 64;
/// A number that lies further back than this is of another sequence: the sender has begun anew.
const BEGUN_ANEW: u32 = 1 << 20;
const SETTLED_NS: u64 = 1_000 * MS;
const MAX_HOLD_NS: u64 = 100 * MS;
const INTERFACES: u8 = super::scheduler::MOST_INTERFACES as u8;

/// See the head of this module.
#[derive(Debug, Default)]
pub struct Order {
    begun: bool,
    /// The number behind the greatest that has come.
    next: u32,
    /// Bit k: the number `known - 1 - k` has come. `known` is `next`, or what that was when a second interface came.
    seen: u64,
    known: u32,
    interface: u8,
    /// When anything was last heard.
    heard_ns: u64,
    /// When an interface other than `interface` was last heard.
    mixed_ns: u64,
    receiver: Option<Box<Receiver>>,
}

impl Order {
    /// Takes what came over an interface: a packet in `buf`, or nothing with the other kinds.
    pub fn accept(&mut self, now_ns: u64, shim: Shim, buf: Option<Buf>, out: &mut Released) {
        if !self.begun && shim.kind == Kind::Data {
            let (next, known) = (shim.sequence, shim.sequence);
            *self = Order { begun: true, next, known, interface: shim.path, ..Order::default() };
        }
        if !self.begun || shim.path >= INTERFACES {
            out.waste.extend(buf);
            return;
        }
        self.settle(now_ns, out);
        let is_silent = self.receiver.is_none() && now_ns.saturating_sub(self.heard_ns) > SETTLED_NS;
        self.heard_ns = now_ns;
        if shim.path != self.interface && is_silent {
            // Nothing is on its way over the other one any more.
            self.interface = shim.path;
        } else if shim.path != self.interface {
            self.mix(now_ns, &shim, out);
        }
        let is_new = shim.kind != Kind::Data || self.is_new(shim.sequence);
        let receiver = match self.receiver.as_mut() {
            Some(receiver) if is_new => receiver,
            _ => {
                let queue = if is_new { &mut out.deliver } else { &mut out.waste };
                queue.extend(buf);
                return;
            }
        };
        receiver.on_frame(now_ns, shim, buf, 0, out);
        self.settle(now_ns, out);
    }

    /// A second interface is in use.
    fn mix(&mut self, now_ns: u64, shim: &Shim, out: &mut Released) {
        self.mixed_ns = now_ns;
        let known = self.interface;
        self.interface = shim.path;
        if self.receiver.is_some() {
            return;
        }
        let options = ReceiverOptions {
            reorder: true,
            equalise: false,
            max_hold_ns: MAX_HOLD_NS,
            hold_ns: MAX_HOLD_NS,
            drop_late: false,
        };
        let paths: Vec<u8> = (0..INTERFACES).collect();
        let mut receiver = Box::new(Receiver::new(now_ns, options, &paths));
        // What the first interface has brought so far.
        let so_far = Shim { kind: Kind::KeepAlive, path: known, sequence: self.next, ..*shim };
        receiver.on_frame(now_ns, so_far, None, 0, out);
        self.receiver = Some(receiver);
    }

    /// Back to one interface.
    fn settle(&mut self, now_ns: u64, out: &mut Released) {
        let settled = now_ns.saturating_sub(self.mixed_ns) > SETTLED_NS;
        if settled && self.receiver.as_ref().map_or(false, |receiver| receiver.held() == 0) {
            // It may keep a packet that seems to be of another sequence.
            self.receiver.take().into_iter().for_each(|mut receiver| receiver.flush(out));
            self.known = self.next;
            self.seen = !0;
        }
    }

    /// Notes a number; false if it is known to have come before. The receiver, if there is one, knows of its own.
    fn is_new(&mut self, sequence: u32) -> bool {
        let ahead = sequence.wrapping_sub(self.known);
        let is_ahead = !before(sequence, self.known);
        if !before(sequence, self.next) {
            self.next = sequence.wrapping_add(1);
        }
        if is_ahead && self.receiver.is_none() {
            self.seen = self.seen.checked_shl(ahead.saturating_add(1)).unwrap_or(0) | 1;
            self.known = self.next;
        }
        if is_ahead {
            return true;
        }
        let back = self.known.wrapping_sub(sequence) - 1;
        if back >= SEEN {
            return self.begins_anew(back, sequence);
        }
        let bit = 1 << back;
        let seen = self.seen;
        self.seen |= bit;
        seen & bit == 0
    }

    fn begins_anew(&mut self, back: u32, sequence: u32) -> bool {
        let anew = back >= BEGUN_ANEW;
        if anew {
            self.next = sequence.wrapping_add(1);
            self.known = self.next;
            self.seen = 1;
        }
        anew
    }

    /// Hands on what has waited long enough.
    pub fn poll(&mut self, now_ns: u64, out: &mut Released) {
        if let Some(receiver) = self.receiver.as_mut() {
            receiver.poll(now_ns, out);
            self.settle(now_ns, out);
        }
    }

    /// When `poll` has something to do.
    pub fn next_due(&self, now_ns: u64) -> Option<u64> {
        self.receiver.as_ref()?.next_due(now_ns)
    }

    /// Gives up what is held.
    pub fn end(&mut self, out: &mut Released) {
        if let Some(mut receiver) = self.receiver.take() {
            receiver.flush(out);
        }
        *self = Order::default();
    }

    /// Whether a number is greater than all that have come.
    pub fn is_newest(&self, sequence: u32) -> bool {
        !self.begun || !before(sequence, self.next)
    }

    /// Packets that wait for others before them.
    pub fn held(&self) -> usize {
        self.receiver.as_ref().map_or(0, |receiver| receiver.held())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edge::testing::Rng;

    fn packet(sequence: u32) -> Buf {
        let mut buf = Buf::with_size(8);
        assert!(buf.set(&sequence.to_be_bytes()));
        buf
    }

    fn shim(kind: Kind, path: u8, sequence: u32, now_ns: u64) -> Shim {
        Shim { kind, path, flow: 1, sequence, sent_us: (now_ns / 1000) as u32 }
    }

    fn delivered(out: &mut Released) -> Vec<u32> {
        let numbers = out.deliver.iter().map(|buf| u32::from_be_bytes(buf.bytes().try_into().unwrap())).collect();
        *out = Released::default();
        numbers
    }

    fn bring(order: &mut Order, now_ns: u64, path: u8, sequence: u32) -> Vec<u32> {
        let mut out = Released::default();
        order.accept(now_ns, shim(Kind::Data, path, sequence, now_ns), Some(packet(sequence)), &mut out);
        delivered(&mut out)
    }

    #[test]
    fn one_interface_is_handed_on_at_once_and_each_packet_once() {
        let (mut order, start) = (Order::default(), u32::MAX - 3);
        for k in 0..10 {
            let sequence = start.wrapping_add(k);
            assert_eq!(bring(&mut order, u64::from(k), 0, sequence), [sequence]);
            assert!(bring(&mut order, u64::from(k), 0, sequence).is_empty());
        }
        let next = start.wrapping_add(10);
        assert_eq!(bring(&mut order, 20, 0, next.wrapping_add(5)), [next.wrapping_add(5)]);
        assert_eq!(bring(&mut order, 21, 0, next), [next]);
        assert!(bring(&mut order, 22, 0, next).is_empty());
        // A recording of long ago is not played again; a sender that begins anew is heard.
        assert!(bring(&mut order, 23, 0, next.wrapping_sub(5000)).is_empty());
        assert_eq!(bring(&mut order, 24, 0, next.wrapping_sub(1 << 30)).len(), 1);
        assert!(order.receiver.is_none());
    }

    #[test]
    fn a_move_to_a_faster_interface_keeps_the_order() {
        let (mut order, mut got, mut now_ns) = (Order::default(), Vec::new(), 0);
        // Numbers 0..60 on interface 0 with 40 ms, from 60 on on interface 1 with 5 ms, one a millisecond.
        let mut arrivals: Vec<(u64, u8, u32)> = (0..60).map(|k| (u64::from(k) + 40, 0, k)).collect();
        arrivals.extend((60..90).map(|k| (u64::from(k) + 5, 1, k)));
        arrivals.sort_unstable();
        for (at_ms, path, sequence) in arrivals {
            now_ns = at_ms * MS;
            got.extend(bring(&mut order, now_ns, path, sequence));
        }
        assert_eq!(got, (0..90).collect::<Vec<u32>>());
        assert!(order.receiver.is_some());
        assert_eq!(bring(&mut order, now_ns, 1, 90), [90]);
        let after_ns = now_ns + SETTLED_NS + MS;
        assert_eq!(bring(&mut order, after_ns, 1, 91), [91]);
        assert!(order.receiver.is_none());
        assert!(bring(&mut order, after_ns, 1, 91).is_empty());
        assert!(bring(&mut order, after_ns, 1, 89).is_empty());
    }

    #[test]
    fn what_a_dead_interface_was_given_is_not_waited_for_long() {
        let (mut order, mut out) = (Order::default(), Released::default());
        assert_eq!(bring(&mut order, MS, 0, 0), [0]);
        // 1 was lost with interface 0; 2 comes over the other.
        assert!(bring(&mut order, 2 * MS, 1, 2).is_empty());
        let due_ns = order.next_due(2 * MS).unwrap();
        assert!(due_ns <= 2 * MS + MAX_HOLD_NS);
        order.poll(due_ns, &mut out);
        assert_eq!(delivered(&mut out), [2]);
    }

    #[test]
    fn any_interleaving_delivers_each_number_once_and_in_order() {
        let mut rng = Rng::new(3);
        for _ in 0..200 {
            let (mut order, mut got) = (Order::default(), Vec::new());
            let delays = [rng.below(60) as u64, rng.below(60) as u64, rng.below(60) as u64];
            let mut free_ms = [0u64; 3];
            let mut arrivals = Vec::new();
            for k in 0..300u32 {
                let path = if k == 0 { 0 } else { rng.below(3) };
                free_ms[path] = free_ms[path].max(u64::from(k)) + delays[path].min(1);
                arrivals.push((free_ms[path] + delays[path], path as u8, k));
                if rng.below(8) == 0 {
                    let other = rng.below(3);
                    arrivals.push((u64::from(k) + delays[other], other as u8, k));
                }
            }
            arrivals.sort_unstable();
            let first = arrivals.iter().position(|a| a.2 == 0).unwrap();
            arrivals.swap(0, first);
            for (at_ms, path, sequence) in arrivals {
                got.extend(bring(&mut order, at_ms.max(1) * MS, path, sequence));
            }
            let mut out = Released::default();
            order.end(&mut out);
            got.extend(delivered(&mut out));
            let mut sorted = got.clone();
            sorted.sort_unstable();
            sorted.dedup();
            assert_eq!(sorted.len(), got.len(), "twice");
            assert_eq!(sorted, (0..300).collect::<Vec<u32>>());
        }
    }
}
