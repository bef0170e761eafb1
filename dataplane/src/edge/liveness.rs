//! Which inbound links live, from hello frames. Sans I/O: time is an argument.
//!
//! A link is down after `dead_ms` of silence and up again after two hellos in a row. Damping: every time a link goes
//! down costs a point that halves every ten seconds; a link with three points or more needs 2^points hellos in a row
//! (at most 64).

use super::frame::Hello;
use super::protocol::HelloExpect;
use crate::sys::interface::Mac;
use std::collections::HashMap;

const MS: u64 = 1_000_000;
const HALF_LIFE_NS: f64 = 10e9;
const MAX_ROW: u32 = 64;
/// At the start neighbours may still be waiting for their own configuration.
const FIRST_GRACE_NS: u64 = 500 * MS;

#[derive(Clone, Debug)]
pub struct Link {
    pub name: String,
    pub up: bool,
    pub heard_ns: Option<u64>,
    dead_at_ns: u64,
    row: u32,
    sequence: u32,
    points: f64,
    points_ns: u64,
}

impl Link {
    fn points(&self, now_ns: u64) -> f64 {
        let age = now_ns.saturating_sub(self.points_ns) as f64;
        self.points * 0.5f64.powf(age / HALF_LIFE_NS)
    }

    fn needed(&self, now_ns: u64) -> u32 {
        let points = self.points(now_ns);
        if points < 2.5 {
            return 2;
        }
        (2f64.powf(points.round()) as u32).min(MAX_ROW)
    }
}

/// A link that changed: name, up.
pub type Change = (String, bool);

#[derive(Debug, Default)]
pub struct Liveness {
    links: Vec<Link>,
    by_mac: HashMap<Mac, Vec<usize>>,
    dead_ns: u64,
}

impl Liveness {
    /// What to expect; links that stay keep their state.
    pub fn configure(&mut self, now_ns: u64, dead_ms: u64, expect: &[HelloExpect]) {
        self.dead_ns = dead_ms * MS;
        let mut old: HashMap<String, Link> =
            std::mem::take(&mut self.links).into_iter().map(|l| (l.name.clone(), l)).collect();
        self.by_mac.clear();
        for (i, entry) in expect.iter().enumerate() {
            let grace = FIRST_GRACE_NS.max(3 * self.dead_ns);
            self.links.push(old.remove(&entry.link).unwrap_or_else(|| Link {
                name: entry.link.clone(),
                up: true,
                heard_ns: None,
                dead_at_ns: now_ns + grace,
                row: 0,
                sequence: 0,
                points: 0.0,
                points_ns: now_ns,
            }));
            self.by_mac.entry(entry.mac).or_default().push(i);
        }
    }

    pub fn links(&self) -> &[Link] {
        &self.links
    }

    /// A hello arrived; false if nobody expected it.
    pub fn heard(&mut self, now_ns: u64, mac: Mac, hello: Hello, changes: &mut Vec<Change>) -> bool {
        let links = match self.by_mac.get(&mac) {
            Some(links) => links,
            None => return false,
        };
        for i in links {
            let link = &mut self.links[*i];
            let in_time = link.heard_ns.map_or(false, |at| now_ns.saturating_sub(at) <= self.dead_ns);
            // In a row: the very next number, in time.
            let next = hello.sequence.wrapping_sub(link.sequence) == 1;
            link.row = if in_time && next { link.row.saturating_add(1) } else { 1 };
            link.sequence = hello.sequence;
            link.heard_ns = Some(now_ns);
            // A sender that says hello less often than we were told must not be taken for dead.
            let patience = self.dead_ns.max(u64::from(hello.interval_ms) * MS * 5 / 2);
            link.dead_at_ns = now_ns + patience;
            if !link.up && link.row >= link.needed(now_ns) {
                link.up = true;
                changes.push((link.name.clone(), true));
            }
        }
        true
    }

    /// Declares the silent dead. Call it only after everything received was handed in.
    pub fn poll(&mut self, now_ns: u64, changes: &mut Vec<Change>) {
        for link in self.links.iter_mut().filter(|l| l.up && l.dead_at_ns <= now_ns) {
            link.points = link.points(now_ns) + 1.0;
            link.points_ns = now_ns;
            link.up = false;
            link.row = 0;
            changes.push((link.name.clone(), false));
        }
    }

    /// When a link will be dead if nothing is heard of it.
    pub fn next_due(&self) -> Option<u64> {
        self.links.iter().filter(|l| l.up).map(|l| l.dead_at_ns).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: Mac = [2, 0, 0, 0, 0, 1];

    fn expecting() -> Liveness {
        let mut liveness = Liveness::default();
        liveness.configure(0, 140, &[HelloExpect { link: "ab".into(), mac: MAC }]);
        liveness
    }

    fn hello(sequence: u32) -> Hello {
        Hello { interval_ms: 40, sequence }
    }

    #[test]
    fn down_after_silence_and_up_after_two_in_a_row() {
        let mut liveness = expecting();
        let mut changes = Vec::new();
        for k in 0..10u32 {
            liveness.heard(u64::from(k) * 40 * MS, MAC, hello(k), &mut changes);
            liveness.poll(u64::from(k) * 40 * MS, &mut changes);
        }
        assert!(changes.is_empty());
        assert_eq!(liveness.next_due(), Some(500 * MS));
        liveness.poll(499 * MS, &mut changes);
        assert!(changes.is_empty());
        liveness.poll(500 * MS, &mut changes);
        assert_eq!(changes, [("ab".to_string(), false)]);
        liveness.heard(600 * MS, MAC, hello(20), &mut changes);
        // One is missing: not in a row.
        liveness.heard(680 * MS, MAC, hello(22), &mut changes);
        assert_eq!(changes.len(), 1);
        liveness.heard(720 * MS, MAC, hello(23), &mut changes);
        assert_eq!(changes[1], ("ab".to_string(), true));
        assert!(!liveness.heard(720 * MS, [9; 6], hello(1), &mut changes));
    }

    #[test]
    fn a_flapping_link_is_damped_and_forgiven() {
        let mut liveness = expecting();
        let (mut now, mut sequence) = (0, 0);
        let mut needed = Vec::new();
        for _ in 0..5 {
            now += 2_000 * MS;
            let mut changes = Vec::new();
            liveness.poll(now, &mut changes);
            assert_eq!(changes.len(), 1);
            let mut count = 0;
            while !liveness.links()[0].up {
                now += 40 * MS;
                sequence += 1;
                count += 1;
                liveness.heard(now, MAC, hello(sequence), &mut changes);
            }
            needed.push(count);
        }
        assert_eq!(needed[..2], [2, 2]);
        assert!(needed[4] >= 8 && needed[4] <= 64, "{needed:?}");
        let mut changes = Vec::new();
        now += 100_000 * MS;
        liveness.poll(now, &mut changes);
        liveness.heard(now, MAC, hello(900), &mut changes);
        liveness.heard(now, MAC, hello(901), &mut changes);
        assert!(liveness.links()[0].up);
    }

    #[test]
    fn a_config_keeps_what_is_known() {
        let mut liveness = expecting();
        let mut changes = Vec::new();
        liveness.poll(600 * MS, &mut changes);
        let both = ["ab", "cd"].map(|link| HelloExpect { link: link.into(), mac: MAC });
        liveness.configure(700 * MS, 140, &both);
        let up: Vec<bool> = liveness.links().iter().map(|l| l.up).collect();
        assert_eq!(up, [false, true]);
    }
}
