//! New configurations and rates of a sender.

use super::super::buffer::Pool;
use super::super::frame::Kind;
use super::super::outpath::{announce, launch, path_header, signal, Exit, Outgoing, PathOut};
use super::super::private::Private;
use super::super::probe_traffic::PROBE_LEN;
use super::super::protocol::{Ingress, RateChange};
use super::super::sequence_markers::SequenceMarkers;
use super::super::split_config::SplitMode;
use super::{Sender, UNSHAPED_QUEUE_BYTES};
use std::collections::{BTreeMap, BTreeSet};

/// Ids of the paths with a rate, and whether each frame goes on all of them.
#[derive(PartialEq)]
struct Used {
    ids: BTreeSet<u8>,
    copying: bool,
}

impl Sender {
    /// A new configuration. Paths with an id that stays keep pacing, split credit and counters; a path that goes says
    /// so. Gives the first number under the new paths, if the paths in use are others.
    pub fn update(
        &mut self,
        now_ns: u64,
        spec: &Ingress,
        exits: &[Exit],
        pool: &mut Pool,
        out: &mut Vec<Outgoing>,
    ) -> Option<u32> {
        let before = self.used();
        self.queue_ms = spec.queue_ms;
        self.pieces = spec.pieces;
        if !matches!(spec.split, SplitMode::Hywf(_)) {
            self.unbind(now_ns, pool, out);
        }
        self.set_mode(now_ns, &spec.split);
        if self.mode != SplitMode::Proportional {
            self.sent_lately.clear(pool);
        }
        self.burst.configure(spec.burst);
        let sent: BTreeMap<u8, (u64, u64)> =
            self.paths.iter().map(|p| (p.spec.id, (p.sent_frames, p.sent_bytes))).collect();
        let mut old: Vec<Option<PathOut>> = std::mem::take(&mut self.paths).into_iter().map(Some).collect();
        let mut from = Vec::new();
        for (path, exit) in spec.paths.iter().zip(exits) {
            let at = old.iter().position(|p| p.as_ref().map_or(false, |p| p.spec.id == path.id));
            from.push(at);
            match at.and_then(|i| old[i].take()) {
                Some(mut existing) => {
                    existing.add_copied(sent.get(&existing.spec.copied_from.unwrap_or(path.id)));
                    existing.pacer.set_rate(now_ns, path.rate_mbps, path.mtu, self.burst_ns);
                    existing.spec = path.clone();
                    existing.exit = *exit;
                    existing.header = path_header(path, *exit);
                    self.paths.push(existing);
                }
                None => self.paths.push(PathOut::new(now_ns, path, *exit, self.burst_ns)),
            }
        }
        for path in self.paths.iter_mut().filter(|p| p.spec.copied_from.is_some()) {
            path.copied_since = path.spec.copied_from.and_then(|from| sent.get(&from)).copied().unwrap_or_default();
            // Markers of the path that it is copied from are copied, too.
            path.markers = SequenceMarkers::default();
        }
        let mut gone: Vec<PathOut> = old.into_iter().flatten().filter(PathOut::usable).collect();
        for path in &mut gone {
            out.extend(signal(path, now_ns, Kind::Pause, &mut self.sealer, self.sequence, pool));
        }
        let lost: Vec<u8> = gone.iter().map(|path| path.spec.id).collect();
        self.sent_lately.lost(now_ns, &lost, pool);
        self.changed(now_ns, &before, &from, pool, out)
    }

    fn used(&self) -> Used {
        let ids = self.paths.iter().filter(|p| p.in_use()).map(|p| p.spec.id).collect();
        Used { ids, copying: self.is_copying() }
    }

    /// After new paths or rates: path i is what `from[i]` was.
    fn changed(
        &mut self,
        now_ns: u64,
        before: &Used,
        from: &[Option<usize>],
        pool: &mut Pool,
        out: &mut Vec<Outgoing>,
    ) -> Option<u32> {
        self.reweigh(now_ns, from, pool);
        self.trim(now_ns, pool);
        let now = self.used();
        if now == *before {
            return None;
        }
        self.from = self.sequence;
        self.from_ns = now_ns;
        for index in 0..self.paths.len() {
            let (id, usable) = (self.paths[index].spec.id, self.paths[index].usable());
            if self.paths[index].spec.copied_from.is_some() {
                continue;
            }
            if usable || before.ids.contains(&id) {
                self.paths[index].markers.begin(now_ns, !usable);
                out.extend(self.mark(index, now_ns, pool));
            }
        }
        self.announce(now_ns, before, &now, pool, out);
        Some(self.from)
    }

    /// Tells the other end over the paths that were in use `before` of those that are used again: their first frames
    /// may take longer than what follows on the others.
    fn announce(&mut self, now_ns: u64, before: &Used, now: &Used, pool: &mut Pool, out: &mut Vec<Outgoing>) {
        let (sealer, sequence) = (&mut self.sealer, self.sequence);
        for carrier in self.paths.iter_mut().filter(|p| p.usable() && before.ids.contains(&p.spec.id)) {
            let resumed = now.ids.difference(&before.ids);
            out.extend(resumed.filter_map(|id| announce(carrier, *id, now_ns, sealer, sequence, pool)));
        }
    }

    pub(super) fn set_mode(&mut self, now_ns: u64, mode: &SplitMode) {
        self.mode = mode.clone();
        match (mode, &mut self.private) {
            (SplitMode::Hywf(hywf), Some(private)) => private.update(now_ns, hywf.settings()),
            (SplitMode::Hywf(hywf), None) => {
                self.private =
                    Some(Box::new(Private::new(now_ns, hywf.settings(), self.seed ^ u64::from(self.sequence))));
            }
            _ => {}
        }
    }

    /// The end of a HyWF split: what it has bound to paths has its numbers already, so it leaves at once.
    fn unbind(&mut self, now_ns: u64, pool: &mut Pool, out: &mut Vec<Outgoing>) {
        for (path, sequence, buf) in self.private.take().map_or_else(Vec::new, |p| p.into_staged()) {
            self.queued_bytes -= buf.len();
            match path {
                Some(index) => {
                    self.sent += 1;
                    out.push(launch(&mut self.paths[index], now_ns, &mut self.sealer, sequence, buf));
                }
                None => {
                    self.dropped += 1;
                    pool.give(buf);
                }
            }
        }
    }

    /// The fast way: new rates of some paths; a path that isn't named keeps its rate, and sends no probe traffic. Gives what
    /// `update` gives.
    pub fn set_rates(
        &mut self,
        now_ns: u64,
        change: &RateChange,
        pool: &mut Pool,
        out: &mut Vec<Outgoing>,
    ) -> Option<u32> {
        let before = self.used();
        for path in &mut self.paths {
            if let Some(rate) = change.rates.get(&path.spec.id) {
                path.spec.rate_mbps = *rate;
                path.pacer.set_rate(now_ns, *rate, path.spec.mtu, self.burst_ns);
            }
            let least_mbps = change.fill.get(&path.spec.id).copied().unwrap_or(0.0);
            path.probe.set(
                now_ns,
                least_mbps.min(path.spec.rate_mbps.unwrap_or(least_mbps)),
                PROBE_LEN + path.spec.overhead(),
            );
        }
        let same: Vec<Option<usize>> = (0..self.paths.len()).map(Some).collect();
        self.changed(now_ns, &before, &same, pool, out)
    }

    pub fn knows_path(&self, id: u8) -> bool {
        self.paths.iter().any(|p| p.spec.id == id)
    }

    pub(super) fn reweigh(&mut self, now_ns: u64, from: &[Option<usize>], pool: &mut Pool) {
        let weights: Vec<f64> = self.paths.iter().map(PathOut::weight).collect();
        self.split.set_weights(self.fixed_weights().as_ref().unwrap_or(&weights), from);
        if let Some(private) = &mut self.private {
            private.remap(from, self.paths.iter().map(PathOut::staging_bytes).collect());
        }
        self.settle_copies(pool);
        let unshaped = self.paths.iter().any(|p| p.spec.rate_mbps.is_none());
        let total_mbps: f64 = match self.is_copying() {
            true => weights.iter().fold(0.0, |a, b| b.max(a)),
            false => weights.iter().sum(),
        };
        let bytes = match unshaped {
            true => UNSHAPED_QUEUE_BYTES,
            false => (total_mbps * 125.0 * self.queue_ms as f64) as usize,
        };
        self.bound.set(now_ns, bytes);
        let room = |p: &PathOut| p.spec.mtu - p.spec.overhead();
        self.note_rates(now_ns);
        let used = self.paths.iter().filter(|p| p.in_use()).map(room).min();
        self.max_inner = used.or_else(|| self.paths.iter().map(room).min()).unwrap_or(usize::MAX);
    }

    /// Bursts are those of flows that are split by rates.
    fn note_rates(&mut self, now_ns: u64) {
        let rates = self.paths.iter().map(|p| p.spec.rate_mbps.map(|mbps| (p.spec.id, mbps)));
        match rates.collect::<Option<Vec<_>>>() {
            Some(rates) if self.mode == SplitMode::Proportional => self.burst.rates(now_ns, rates),
            _ => self.burst.stop(),
        }
        self.pace(now_ns);
    }

    /// Paces and splits by the paths' rates, or in a burst by the greater ones that they lately had.
    pub(super) fn pace(&mut self, now_ns: u64) {
        if self.mode != SplitMode::Proportional {
            return;
        }
        let mut weights = Vec::with_capacity(self.paths.len());
        for path in &mut self.paths {
            let own = path.spec.rate_mbps;
            let rate = match self.burst.rate_mbps(now_ns, path.spec.id) {
                Some(greater) => own.map(|own| if own > 0.0 { own.max(greater) } else { own }),
                None => own,
            };
            path.pacer.set_rate(now_ns, rate, path.spec.mtu, self.burst_ns);
            weights.push(rate.unwrap_or(path.spec.weight));
        }
        let same: Vec<Option<usize>> = (0..self.paths.len()).map(Some).collect();
        self.split.set_weights(&weights, &same);
    }

    /// Fixed shares of the usable paths; None if they are all 0, or there are none.
    fn fixed_weights(&self) -> Option<Vec<f64>> {
        let shares = match &self.mode {
            SplitMode::Fixed { shares } => shares,
            _ => return None,
        };
        let share = |p: &PathOut| if p.usable() { shares.get(&p.spec.id).copied().unwrap_or(0.0) } else { 0.0 };
        Some(self.paths.iter().map(share).collect()).filter(|w: &Vec<f64>| w.iter().any(|w| *w > 0.0))
    }
}
