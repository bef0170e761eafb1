//! The sending end of one flow: bounded queue, split, pacing, sequence numbers, keep-alives. Sans I/O: time is an
//! argument.

use super::buffer::{Buf, Pool};
use super::burst::Burst;
use super::copies::Copies;
use super::datagrams::Datagrams;
use super::frame::Kind;
use super::guard::{Sealer, Signing};
use super::outpath::{launch, send, signal, Exit, Outgoing, PathOut};
use super::pieces::{append_whole, can_cut, cut, MOST_HEADS};
use super::private::Private;
use super::probe_traffic::PROBE_LEN;
use super::protocol::Ingress;
use super::queue_bound::QueueBound;
use super::reorder::before;
use super::sent_lately::SentLately;
use super::split::Split;
use super::split_config::SplitMode;
use std::collections::VecDeque;

const MS: u64 = 1_000_000;
/// The queue holds at least this many frames however slow the flow is.
const MIN_QUEUE_FRAMES: usize = 32;
/// The queue of an unshaped flow only bridges a moment of the device having no room.
const UNSHAPED_QUEUE_BYTES: usize = 2_000_000;
/// What waited this long is of no use to anybody: flows without a usable path.
const MAX_AGE_NS: u64 = 5_000 * MS;
/// An idle path of an active flow sends keep-alives this often, an idle flow's less often, a forgotten flow's rarely.
const KEEP_ALIVE: [(u64, u64); 3] = [(500 * MS, 20 * MS), (10_000 * MS, 500 * MS), (u64::MAX, 2_000 * MS)];
/// What a faster path was given is not kept: copies would cost too much.
const FASTEST_COPIED_MBPS: f64 = 400.0;

/// What became of a frame that was offered.
#[derive(Debug)]
pub enum Offer {
    Queued,
    Dropped(Buf),
    /// It does not fit; the largest inner frame that does.
    TooBig(Buf, usize),
}

#[derive(Debug)]
pub struct Sender {
    pub number: u16,
    pub dropped: u64,
    pub too_big: u64,
    pub sent: u64,
    /// Padding that was sent.
    pub dummies: u64,
    /// Frames that went again because their path was gone.
    pub resent: u64,
    sealer: Sealer,
    paths: Vec<PathOut>,
    mode: SplitMode,
    split: Split,
    /// With a HyWF split; then `split` isn't used.
    private: Option<Box<Private>>,
    /// With copies, or what is left of them; then `split` isn't used.
    copies: Option<Copies>,
    seed: u64,
    queue: VecDeque<(u64, Buf)>,
    sent_lately: SentLately,
    queued_bytes: usize,
    bound: QueueBound,
    datagrams: Datagrams,
    burst: Burst,
    queue_ms: u64,
    max_inner: usize,
    /// The other end joins pieces.
    pieces: bool,
    sequence: u32,
    /// The first number under the paths in use now, and when that began.
    from: u32,
    from_ns: u64,
    data_ns: u64,
    burst_ns: u64,
}

impl Sender {
    /// `first` is the first sequence number: random, so that a receiver notices a restart. `seed` is that of a HyWF
    /// split.
    pub fn new(
        now_ns: u64,
        spec: &Ingress,
        exits: &[Exit],
        first: u32,
        seed: u64,
        burst_ns: u64,
        pool: &mut Pool,
    ) -> Self {
        let mut sender = Sender {
            number: spec.number,
            dropped: 0,
            too_big: 0,
            sent: 0,
            dummies: 0,
            resent: 0,
            sealer: Sealer::new(spec.number),
            paths: Vec::new(),
            mode: SplitMode::default(),
            split: Split::default(),
            private: None,
            copies: None,
            seed,
            queue: VecDeque::new(),
            sent_lately: SentLately::default(),
            queued_bytes: 0,
            bound: QueueBound::default(),
            datagrams: Datagrams::default(),
            burst: Burst::default(),
            queue_ms: spec.queue_ms,
            max_inner: 0,
            pieces: spec.pieces,
            sequence: first,
            from: first,
            from_ns: 0,
            data_ns: now_ns.saturating_sub(KEEP_ALIVE[0].0),
            burst_ns,
        };
        let paths = spec.paths.iter().zip(exits);
        sender.paths = paths.map(|(path, exit)| PathOut::new(now_ns, path, *exit, burst_ns)).collect();
        sender.set_mode(now_ns, &spec.split);
        sender.burst.configure(spec.burst);
        let fresh = vec![None; sender.paths.len()];
        sender.reweigh(now_ns, &fresh, pool);
        sender
    }

    /// With which key frames are sealed from now on; None: with none.
    pub fn set_signing(&mut self, now_ns: u64, signing: Option<Signing>) {
        self.sealer.set(now_ns, signing);
    }

    pub fn is_sealing(&self) -> bool {
        self.sealer.is_sealing()
    }

    /// The first number under the paths in use now.
    pub fn from(&self) -> u32 {
        self.from
    }

    pub fn paths(&self) -> &[PathOut] {
        &self.paths
    }

    /// Frames and bytes that went by a path, with those that were copied to it on the way.
    pub fn sent_by(&self, path: &PathOut) -> (u64, u64) {
        let from = path.spec.copied_from.and_then(|id| self.paths.iter().find(|p| p.spec.id == id));
        let (frames, bytes) = from.map_or((0, 0), |p| (p.sent_frames, p.sent_bytes));
        let copied = |now: u64, since: u64| now.saturating_sub(since);
        (path.sent_frames + copied(frames, path.copied_since.0), path.sent_bytes + copied(bytes, path.copied_since.1))
    }

    /// Bytes of the largest inner frame that fits the paths in use.
    pub fn max_inner(&self) -> usize {
        self.max_inner
    }

    pub fn queued(&self) -> usize {
        self.queue.len() + self.private.as_ref().map_or(0, |p| p.staged())
    }

    /// Of the frames that [`Self::queued`] counts, without labels.
    pub fn queued_bytes(&self) -> usize {
        self.queued_bytes
    }

    pub fn reset_counters(&mut self) {
        self.dropped = 0;
        self.too_big = 0;
        self.sent = 0;
        self.dummies = 0;
        self.resent = 0;
        for path in &mut self.paths {
            path.sent_frames = 0;
            path.sent_bytes = 0;
            path.copied_since = (0, 0);
            path.copy_position.skipped = 0;
        }
    }

    /// Drops the oldest of what a slower flow can't send in time any more.
    fn trim(&mut self, now_ns: u64, pool: &mut Pool) {
        let limit = self.bound.get(now_ns) + self.datagrams.beyond();
        while self.queue.len() > MIN_QUEUE_FRAMES && self.queued_bytes > limit {
            self.drop_head(pool);
        }
    }

    fn drop_head(&mut self, pool: &mut Pool) {
        if let Some((_, buf)) = self.queue.pop_front() {
            self.queued_bytes -= buf.len();
            self.dropped += 1;
            pool.give(buf);
        }
    }

    /// Takes a user's frame.
    pub fn offer(&mut self, now_ns: u64, buf: Buf, pool: &mut Pool) -> Offer {
        let fits = buf.len() <= self.max_inner;
        let is_carried = fits || (self.pieces && can_cut(buf.len(), self.max_inner));
        if !is_carried {
            self.too_big += 1;
            return Offer::TooBig(buf, self.max_inner);
        }
        if self.burst.wake(now_ns, now_ns.saturating_sub(self.data_ns)) {
            self.pace(now_ns);
        }
        self.data_ns = now_ns;
        if let Some(private) = &mut self.private {
            private.on_frame(now_ns, buf.len());
        }
        self.trim(now_ns, pool);
        let heads = if self.pieces { MOST_HEADS } else { 0 };
        let beyond = match self.queued() < MIN_QUEUE_FRAMES {
            true => 0,
            false => (self.queued_bytes + buf.len() + heads).saturating_sub(self.bound.get(now_ns)),
        };
        if !self.datagrams.admit(now_ns, buf.bytes(), beyond) {
            self.dropped += 1;
            return Offer::Dropped(buf);
        }
        if !fits {
            return self.enqueue_pieces(now_ns, buf, pool);
        }
        let added = self.queue.back_mut().and_then(|(_, last)| append_whole(buf.bytes(), self.max_inner, last));
        match added {
            Some(added) => {
                self.queued_bytes += added;
                pool.give(buf);
            }
            None => self.enqueue(now_ns, buf),
        }
        Offer::Queued
    }

    fn enqueue(&mut self, now_ns: u64, buf: Buf) {
        self.queued_bytes += buf.len();
        self.queue.push_back((now_ns, buf));
    }

    /// The last of the queue takes pieces as long as it waits.
    fn enqueue_pieces(&mut self, now_ns: u64, buf: Buf, pool: &mut Pool) -> Offer {
        let last = self.queue.back_mut().map(|(_, last)| last);
        match cut(buf.bytes(), self.max_inner, last, pool) {
            Some(cut) => {
                self.queued_bytes += cut.added;
                cut.fresh.into_iter().for_each(|piece| self.enqueue(now_ns, piece));
                pool.give(buf);
                Offer::Queued
            }
            None => {
                self.dropped += 1;
                Offer::Dropped(buf)
            }
        }
    }

    fn choose(&self) -> Option<(usize, usize)> {
        let inner = self.sent_lately.head_len().or_else(|| self.queue.front().map(|(_, buf)| buf.len()))?;
        let path = self.split.choose(|i| inner + self.paths[i].spec.overhead())?;
        Some((path, inner + self.paths[path].spec.overhead()))
    }

    /// The next frame if one may leave now, labelled and stamped.
    pub fn next(&mut self, now_ns: u64, pool: &mut Pool) -> Option<Outgoing> {
        while self.queue.front().map_or(false, |(at, _)| now_ns.saturating_sub(*at) > MAX_AGE_NS) {
            self.drop_head(pool);
        }
        if self.private.is_some() {
            return self.next_private(now_ns);
        }
        if self.copies.is_some() {
            return self.next_copy(now_ns, pool);
        }
        let (index, len) = self.choose()?;
        if self.paths[index].pacer.ready_at(now_ns, len)? > now_ns {
            return None;
        }
        if let Some((at_ns, _)) = self.queue.front() {
            self.paths[index].pacer.catch_up(now_ns, *at_ns, len);
        }
        let (sequence, buf) = self.take(index, now_ns, pool)?;
        self.split.sent(index, len);
        let outgoing = launch(&mut self.paths[index], now_ns, &mut self.sealer, sequence, buf);
        if self.burst.spend(len) {
            self.pace(now_ns);
        }
        Some(outgoing)
    }

    /// What goes again, else the first frame of the queue, with its number.
    fn take(&mut self, index: usize, now_ns: u64, pool: &mut Pool) -> Option<(u32, Buf)> {
        if let Some(again) = self.sent_lately.take() {
            self.resent += 1;
            return Some(again);
        }
        let (_, buf) = self.queue.pop_front()?;
        self.queued_bytes -= buf.len();
        let sequence = self.sequence;
        self.sequence = sequence.wrapping_add(1);
        self.sent += 1;
        // There is no other path that it could take again, or the flow is too fast to keep all that it sends.
        let path = &self.paths[index].spec;
        if self.paths.len() > 1 && path.rate_mbps.map_or(false, |mbps| mbps <= FASTEST_COPIED_MBPS) {
            self.sent_lately.note(now_ns, path.id, sequence, &buf, pool);
        }
        Some((sequence, buf))
    }

    /// Binds what waits to paths, and sends the first frame of those that may leave now.
    fn next_private(&mut self, now_ns: u64) -> Option<Outgoing> {
        let private = self.private.as_mut()?;
        while private.has_room() {
            match self.queue.pop_front() {
                None => break,
                Some((at_ns, buf)) => match private.stage(self.sequence, buf) {
                    Ok(()) => self.sequence = self.sequence.wrapping_add(1),
                    Err(buf) => {
                        self.queue.push_front((at_ns, buf));
                        break;
                    }
                },
            }
        }
        let ready = |(i, path): (usize, &PathOut)| {
            let (sequence, len) = private.head(i)?;
            let at_ns = path.pacer.ready_at(now_ns, len + path.spec.overhead())?;
            (at_ns <= now_ns).then_some((i, sequence))
        };
        let earlier = |a: (usize, u32), b: (usize, u32)| if before(b.1, a.1) { b } else { a };
        let (index, _) = self.paths.iter().enumerate().filter_map(ready).reduce(earlier)?;
        let (sequence, buf) = private.take(index)?;
        self.queued_bytes -= buf.len();
        self.sent += 1;
        Some(launch(&mut self.paths[index], now_ns, &mut self.sealer, sequence, buf))
    }

    /// Every number before this one has left on a path, or never will.
    fn passed(&self, path: usize) -> u32 {
        let staged = self.private.as_ref().and_then(|p| p.head(path)).map(|(sequence, _)| sequence);
        staged.or(self.paths[path].copy_position.reached).unwrap_or(self.sequence)
    }

    /// Padding that is due, if there is nothing else to send.
    fn pad(&mut self, now_ns: u64, pool: &mut Pool, out: &mut Vec<Outgoing>) {
        let idle = self.queued() == 0;
        let padding = match &mut self.private {
            Some(private) => private.padding(now_ns).filter(|_| idle),
            None => return,
        };
        if let Some((index, len)) = padding {
            let (path, len) = (&mut self.paths[index], len.min(self.max_inner));
            if path.pacer.ready_at(now_ns, len + path.spec.overhead()).map_or(true, |at| at > now_ns) {
                return;
            }
            if let Some(mut buf) = pool.take() {
                buf.zeroed(len);
                self.dummies += 1;
                out.push(send(path, now_ns, Kind::Padding, &mut self.sealer, self.sequence, buf));
            }
        }
    }

    fn keep_alive_interval(&self, now_ns: u64) -> u64 {
        let idle = now_ns.saturating_sub(self.data_ns.max(self.from_ns));
        KEEP_ALIVE.iter().find(|(until, _)| idle < *until).map_or(KEEP_ALIVE[2].1, |(_, interval)| *interval)
    }

    /// Batches of probe traffic on paths that shall send more than the flow offers and have nothing else to send.
    fn probe(&mut self, now_ns: u64, pool: &mut Pool, out: &mut Vec<Outgoing>) {
        for index in 0..self.paths.len() {
            let frames = match self.queued() {
                0 => self.paths[index].probe.frames_due(now_ns),
                _ => 0,
            };
            let sequence = self.passed(index);
            for _ in 0..frames {
                let (path, sealer) = (&mut self.paths[index], &mut self.sealer);
                let len = PROBE_LEN.min(path.spec.mtu - path.spec.overhead());
                if let Some(mut buf) = pool.take() {
                    buf.zeroed(len);
                    self.dummies += 1;
                    path.sent_ns = now_ns;
                    out.push(send(path, now_ns, Kind::Padding, sealer, sequence, buf));
                }
            }
        }
    }

    /// Keep-alives, padding and filling that are due.
    pub fn keep_alives(&mut self, now_ns: u64, pool: &mut Pool, out: &mut Vec<Outgoing>) {
        let interval = self.keep_alive_interval(now_ns);
        self.sent_lately.forget(now_ns, pool);
        self.pad(now_ns, pool, out);
        self.probe(now_ns, pool, out);
        for index in 0..self.paths.len() {
            let path = &mut self.paths[index];
            let is_due = path.usable() && path.sent_ns + interval <= now_ns;
            if path.markers.take(now_ns) || is_due {
                out.extend(self.mark(index, now_ns, pool));
            }
        }
    }

    /// Says on a path which number it has reached, and whether it is used.
    fn mark(&mut self, index: usize, now_ns: u64, pool: &mut Pool) -> Option<Outgoing> {
        let sequence = self.passed(index);
        let path = &mut self.paths[index];
        path.sent_ns = now_ns;
        let kind = if path.usable() { Kind::KeepAlive } else { Kind::Pause };
        signal(path, now_ns, kind, &mut self.sealer, sequence, pool)
    }

    /// When a frame may leave, or a keep-alive is due.
    pub fn next_due(&self, now_ns: u64) -> Option<u64> {
        let interval = self.keep_alive_interval(now_ns);
        let alive = self.paths.iter().filter(|p| p.usable()).map(|p| p.sent_ns + interval).min();
        let markers = self.paths.iter().filter_map(|p| p.markers.due_ns()).min();
        let data = match (&self.private, &self.copies) {
            (None, None) => self.choose().and_then(|(path, len)| self.paths[path].pacer.ready_at(now_ns, len)),
            (Some(private), _) => self.private_due(now_ns, private),
            (None, Some(copies)) => self.copies_due(now_ns, copies),
        };
        let probe = match self.queued() {
            0 => self.paths.iter().filter_map(|p| p.probe.due_ns(now_ns)).min(),
            _ => None,
        };
        [alive, markers, data, probe].into_iter().flatten().min()
    }

    fn private_due(&self, now_ns: u64, private: &Private) -> Option<u64> {
        let ready = |(i, path): (usize, &PathOut)| {
            let (_, len) = private.head(i)?;
            path.pacer.ready_at(now_ns, len + path.spec.overhead())
        };
        let staged = self.paths.iter().enumerate().filter_map(ready);
        let unbound = (!self.queue.is_empty() && private.has_room()).then_some(now_ns);
        staged.chain(private.padding_due()).chain(unbound).min()
    }

    /// Gives everything back.
    pub fn dismiss(mut self, now_ns: u64, pool: &mut Pool, out: &mut Vec<Outgoing>) {
        for path in self.paths.iter_mut().filter(|p| p.usable()) {
            out.extend(signal(path, now_ns, Kind::Pause, &mut self.sealer, self.sequence, pool));
        }
        for (_, buf) in self.queue.drain(..) {
            pool.give(buf);
        }
        for (_, _, buf) in self.private.map_or_else(Vec::new, |p| p.into_staged()) {
            pool.give(buf);
        }
        if let Some(copies) = self.copies {
            copies.dismiss(pool);
        }
        self.sent_lately.clear(pool);
    }
}

#[path = "sender_config.rs"]
mod config;
#[path = "sender_copy.rs"]
mod copy;

#[cfg(test)]
#[path = "sender_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "sender_copy_tests.rs"]
mod copy_tests;
#[cfg(test)]
#[path = "sender_fragment_tests.rs"]
mod fragment_tests;
#[cfg(test)]
#[path = "sender_split_tests.rs"]
mod split_tests;
