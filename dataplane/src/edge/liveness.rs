//! Which inbound links live, from hello frames. Sans I/O: time is an argument.
//!
//! A link is down after `dead_ms` of silence and up again after two hellos in a row, however often it failed: who may do
//! without a link that flaps is known to the controller, not here.
//!
//! Silence is what was listened to. A time in which the agent was not run does not count (`unobserved`), because what
//! the agent shares its processors with, such as the sender, the medium or the switch, was probably not run either.
//!
//! A link that loses hellos by chance is waited for longer: until so many in a row are missing, k, that it happens by
//! chance about once a day, p^k / interval <= 1 / day, where p is the share of hellos that were missing lately. At 3 %
//! these are 5 instead of 3. (The idea of accrual failure detectors: Hayashibara et al., SRDS 2004.)
//!
//! Where agents have keys, hello frames are sealed (`guard`) and each counts once. Else anybody may have sent a hello. How long silence lasts is the configuration's business, which is the same at both
//! ends: the interval that a hello tells counts for nothing, and what is missing makes at most `LONGEST` times the dead
//! time.

use super::frame::{Hello, Seal};
use super::guard::{HelloGuard, Refused};
use super::protocol::HelloConfig;
use crate::sys::interface::Mac;
use std::collections::{HashMap, HashSet};

const MS: u64 = 1_000_000;
/// Hellos in a row after which a link is up again.
const ROW: u32 = 2;
/// So many dead times at most are added to a silence: a machine that never runs the agent hides no dead link for ever.
const MOST_UNOBSERVED: u64 = 4;
/// At the start neighbours may still be waiting for their own configuration.
const FIRST_GRACE_NS: u64 = 500 * MS;
/// False alarms that chance may raise.
const FALSE_ALARMS_PER_MS: f64 = 1.0 / 86_400_000.0;
/// A link that loses more than this may be taken for dead.
const MOST_MISSING: u32 = 16;
/// However many hellos are missing, a link is dead after so many dead times.
const LONGEST: u64 = 5;
/// Hellos after which what was missing before counts 1/e.
const MEMORY: f64 = 250.0;

#[derive(Clone, Debug)]
pub struct Link {
    pub name: String,
    pub up: bool,
    pub heard_ns: Option<u64>,
    dead_at_ns: u64,
    row: u32,
    sequence: u32,
    /// Of the silence of now, what was not listened to.
    unobserved_ns: u64,
    came: f64,
    missing: f64,
}

impl Link {
    /// Counts a hello, and those that are missing before it. Those of a time when the link was down tell nothing.
    fn count(&mut self, missing: u32) {
        let missing = if self.up && missing <= MOST_MISSING { f64::from(missing) } else { 0.0 };
        let fade = (-(missing + 1.0) / MEMORY).exp();
        self.came = self.came * fade + 1.0;
        self.missing = self.missing * fade + missing;
    }

    /// How many hellos in a row may be missing by chance.
    fn missing_by_chance(&self, interval_ns: u64) -> u64 {
        let loss = self.missing / (self.came + self.missing);
        if loss <= 0.0 {
            return 0;
        }
        let interval_ms = (interval_ns / MS).max(1);
        let count = (FALSE_ALARMS_PER_MS * interval_ms as f64).ln() / loss.ln();
        count.ceil().clamp(0.0, f64::from(MOST_MISSING)) as u64
    }
}

/// A link that changed: name, up.
pub type Change = (String, bool);

#[derive(Debug, Default)]
pub struct Liveness {
    links: Vec<Link>,
    by_mac: HashMap<Mac, Vec<usize>>,
    /// Of senders whose hello frames must be sealed, or once had to be.
    guards: HashMap<Mac, HelloGuard>,
    /// Which of them now.
    guarded: HashSet<Mac>,
    interval_ns: u64,
    dead_ns: u64,
}

impl Liveness {
    /// What to expect; links that stay keep their state.
    pub fn configure(&mut self, now_ns: u64, hello: &HelloConfig) {
        self.interval_ns = u64::from(hello.interval_ms) * MS;
        // One hello may be missing, and the next one late.
        self.dead_ns = hello.dead_ms.saturating_mul(MS).max(self.interval_ns * 5 / 2);
        let grace_ns = FIRST_GRACE_NS.max(self.dead_ns.saturating_mul(3));
        let latest_ns = now_ns.saturating_add(grace_ns.max(self.longest_ns()));
        let mut old: HashMap<String, Link> =
            std::mem::take(&mut self.links).into_iter().map(|l| (l.name.clone(), l)).collect();
        self.by_mac.clear();
        for (i, entry) in hello.expect.iter().enumerate() {
            let mut link = old.remove(&entry.link).unwrap_or_else(|| Link {
                name: entry.link.clone(),
                up: true,
                heard_ns: None,
                dead_at_ns: now_ns.saturating_add(grace_ns),
                row: 0,
                sequence: 0,
                unobserved_ns: 0,
                came: 0.0,
                missing: 0.0,
            });
            // Other times hold at once: the sender is told of them, too.
            let heard_ns = link.heard_ns.map_or(0, |at| at.saturating_add(self.dead_ns));
            link.dead_at_ns = link.dead_at_ns.max(heard_ns).min(latest_ns);
            self.links.push(link);
            self.by_mac.entry(entry.mac).or_default().push(i);
        }
    }

    /// Which hello frames must be sealed; to be called before `configure`. What is known of a key stays.
    pub fn set_keys(&mut self, now_ns: u64, hello: &HelloConfig, generation: u64) {
        let wanted = hello.expect.iter().filter_map(|entry| Some((entry.mac, entry.key?)));
        self.guarded.clear();
        for (mac, base) in wanted {
            self.guarded.insert(mac);
            let was_open = self.by_mac.contains_key(&mac) && !self.guards.contains_key(&mac);
            let known = self.guards.remove(&mac).filter(|guard| guard.base() == base);
            let mut guard = known.unwrap_or_else(|| HelloGuard::new(base, was_open.then_some(now_ns)));
            guard.set_generation(generation);
            self.guards.insert(mac, guard);
        }
    }

    /// Whether a hello frame is to be looked at.
    pub fn check(&mut self, now_ns: u64, mac: Mac, hello: &Hello, seal: Option<Seal>) -> Result<(), Refused> {
        match self.guards.get_mut(&mac) {
            Some(guard) if self.guarded.contains(&mac) => guard.check(now_ns, &mac, hello, seal),
            _ => Ok(()),
        }
    }

    /// The bound of all waiting.
    fn longest_ns(&self) -> u64 {
        self.dead_ns.saturating_mul(LONGEST)
    }

    pub fn links(&self) -> &[Link] {
        &self.links
    }

    /// A hello arrived; false if nobody expected it.
    pub fn heard(&mut self, now_ns: u64, mac: Mac, hello: Hello, changes: &mut Vec<Change>) -> bool {
        let longest_ns = self.longest_ns();
        let links = match self.by_mac.get(&mac) {
            Some(links) => links,
            None => return false,
        };
        for i in links {
            let link = &mut self.links[*i];
            let in_time = link.heard_ns.map_or(false, |at| now_ns.saturating_sub(at) <= self.dead_ns);
            // In a row: the very next number, in time.
            let step = hello.sequence.wrapping_sub(link.sequence);
            link.row = if in_time && step == 1 { link.row.saturating_add(1) } else { 1 };
            // A sender that began anew, or one that is heard for the first time, has left nothing out.
            link.count(if link.heard_ns.is_some() { step.saturating_sub(1) } else { 0 });
            link.sequence = hello.sequence;
            link.heard_ns = Some(now_ns);
            link.unobserved_ns = 0;
            let tolerated = self.dead_ns.checked_div(self.interval_ns).unwrap_or(0);
            let more = link.missing_by_chance(self.interval_ns).saturating_sub(tolerated);
            let patience_ns = self.dead_ns.saturating_add(more.saturating_mul(self.interval_ns)).min(longest_ns);
            link.dead_at_ns = now_ns.saturating_add(patience_ns);
            if !link.up && link.row >= ROW {
                link.up = true;
                changes.push((link.name.clone(), true));
            }
        }
        true
    }

    /// The agent was not run, and listened to nothing, in this time. Links are waited for that much longer.
    pub fn unobserved(&mut self, from_ns: u64, to_ns: u64) {
        let most_ns = self.dead_ns.saturating_mul(MOST_UNOBSERVED);
        for link in &mut self.links {
            let since_ns = link.heard_ns.map_or(from_ns, |heard| heard.max(from_ns));
            let more_ns = to_ns.saturating_sub(since_ns).min(most_ns.saturating_sub(link.unobserved_ns));
            link.unobserved_ns += more_ns;
            link.dead_at_ns = link.dead_at_ns.saturating_add(more_ns);
        }
    }

    /// Declares the silent dead. Call it only after everything that came until `now_ns` was handed in.
    pub fn poll(&mut self, now_ns: u64, changes: &mut Vec<Change>) {
        for link in self.links.iter_mut().filter(|l| l.up && l.dead_at_ns <= now_ns) {
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
    use crate::edge::protocol::HelloExpect;
    use crate::edge::testing::Rng;

    const MAC: Mac = [2, 0, 0, 0, 0, 1];

    fn config(interval_ms: u16, dead_ms: u64, links: &[&str]) -> HelloConfig {
        let expect = links.iter().map(|link| HelloExpect { link: link.to_string(), mac: MAC, key: None }).collect();
        HelloConfig { interval_ms, dead_ms, expect, ..HelloConfig::default() }
    }

    fn expecting() -> Liveness {
        let mut liveness = Liveness::default();
        liveness.configure(0, &config(40, 140, &["ab"]));
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
    fn two_hellos_in_a_row_are_enough_however_often_a_link_failed() {
        let mut liveness = expecting();
        let (mut now, mut sequence) = (0, 0);
        for _ in 0..20 {
            now += 1_000 * MS;
            let mut changes = Vec::new();
            liveness.poll(now, &mut changes);
            for _ in 0..2 {
                now += 40 * MS;
                sequence += 1;
                liveness.heard(now, MAC, hello(sequence), &mut changes);
            }
            assert_eq!(changes, [("ab".to_string(), false), ("ab".to_string(), true)]);
        }
    }

    /// Hellos until 400 ms: dead at 540 ms.
    fn heard_for_a_while() -> Liveness {
        let mut liveness = expecting();
        for k in 0..=10u32 {
            liveness.heard(u64::from(k) * 40 * MS, MAC, hello(k), &mut Vec::new());
        }
        liveness
    }

    #[test]
    fn a_time_in_which_nobody_listened_is_no_silence() {
        let mut liveness = heard_for_a_while();
        let mut changes = Vec::new();
        // Of the 300 ms, those after the last hello count.
        liveness.unobserved(350 * MS, 650 * MS);
        liveness.poll(789 * MS, &mut changes);
        assert!(changes.is_empty());
        liveness.poll(790 * MS, &mut changes);
        assert_eq!(changes.len(), 1);
    }

    #[test]
    fn what_was_heard_since_is_not_waited_for_longer() {
        let mut liveness = heard_for_a_while();
        liveness.unobserved(0, 400 * MS);
        assert_eq!(liveness.next_due(), Some(540 * MS));
    }

    #[test]
    fn a_dead_link_is_noticed_even_if_the_agent_is_hardly_ever_run() {
        let mut liveness = heard_for_a_while();
        let mut changes = Vec::new();
        let mut now = 400 * MS;
        while changes.is_empty() {
            liveness.unobserved(now, now + 100 * MS);
            now += 101 * MS;
            liveness.poll(now, &mut changes);
            assert!(now < 2_000 * MS);
        }
        assert!((1_000 * MS..=1_220 * MS).contains(&now), "{now}");
        // With the next hello it is waited for as before.
        liveness.heard(now, MAC, hello(50), &mut changes);
        liveness.heard(now + 40 * MS, MAC, hello(51), &mut changes);
        assert_eq!(liveness.next_due(), Some(now + 180 * MS));
    }

    /// Silences told of a link that lives but loses hellos independently, and how long its death stays unnoticed.
    fn lossy(loss: f64, hellos: u32) -> (usize, u64) {
        let mut liveness = expecting();
        let mut rng = Rng::new(5);
        let (mut changes, mut last_ns) = (Vec::new(), 0);
        for k in 0..hellos {
            let now_ns = u64::from(k) * 40 * MS;
            liveness.poll(now_ns, &mut changes);
            if rng.uniform() >= loss {
                liveness.heard(now_ns, MAC, hello(k), &mut changes);
                last_ns = now_ns;
            }
        }
        let silences = changes.iter().filter(|(_, up)| !up).count();
        (silences, (liveness.next_due().unwrap() - last_ns) / MS)
    }

    #[test]
    fn a_link_that_loses_hellos_by_chance_is_waited_for() {
        // An hour of hellos. Without patience 3 % in a row of three would be silent twice, 10 % 90 times.
        let (silences, noticed_ms) = lossy(0.03, 90_000);
        assert!(silences == 0 && (180..=260).contains(&noticed_ms), "{silences} {noticed_ms}");
        let (silences, noticed_ms) = lossy(0.1, 90_000);
        assert!(silences <= 1 && (260..=380).contains(&noticed_ms), "{silences} {noticed_ms}");
        // A clean link is noticed as fast as configured.
        assert_eq!(lossy(0.0, 5_000), (0, 140));
        assert_eq!(lossy(0.001, 25_000).1, 140);
    }

    #[test]
    fn a_silence_or_a_sender_that_began_anew_is_no_loss() {
        let mut liveness = expecting();
        let mut changes = Vec::new();
        for k in 0..100u32 {
            liveness.heard(u64::from(k) * 40 * MS, MAC, hello(k), &mut changes);
        }
        liveness.poll(9_000 * MS, &mut changes);
        for k in 225..230u32 {
            liveness.heard(u64::from(k) * 40 * MS, MAC, hello(k), &mut changes);
        }
        for k in 0..10u32 {
            liveness.heard(u64::from(230 + k) * 40 * MS, MAC, hello(k), &mut changes);
        }
        assert_eq!(changes.iter().map(|(_, up)| *up).collect::<Vec<_>>(), [false, true]);
        assert_eq!(liveness.next_due(), Some(239 * 40 * MS + 140 * MS));
    }

    #[test]
    fn a_config_keeps_what_is_known() {
        let mut liveness = expecting();
        let mut changes = Vec::new();
        liveness.poll(600 * MS, &mut changes);
        liveness.configure(700 * MS, &config(40, 140, &["ab", "cd"]));
        let up: Vec<bool> = liveness.links().iter().map(|l| l.up).collect();
        assert_eq!(up, [false, true]);
    }
    #[test]
    fn no_hello_tells_how_long_to_wait() {
        for interval_ms in [0, 1, 40, 4_000, u16::MAX] {
            let mut liveness = expecting();
            let mut changes = Vec::new();
            for k in 0..10u32 {
                liveness.heard(u64::from(k) * 40 * MS, MAC, hello(k), &mut changes);
            }
            liveness.heard(400 * MS, MAC, Hello { interval_ms, sequence: 10 }, &mut changes);
            assert_eq!(liveness.next_due(), Some(540 * MS), "{interval_ms}");
            liveness.poll(540 * MS, &mut changes);
            assert_eq!(changes, [("ab".to_string(), false)]);
        }
    }

    #[test]
    fn hellos_that_seem_to_be_missing_make_five_dead_times_at_most() {
        let mut liveness = Liveness::default();
        // Three times the interval: chance alone would allow 16 hellos and more.
        liveness.configure(0, &config(100, 300, &["ab"]));
        let mut changes = Vec::new();
        for k in 0..500u32 {
            liveness.heard(u64::from(k) * 100 * MS, MAC, hello(k * 17), &mut changes);
        }
        assert_eq!(liveness.next_due(), Some(49_900 * MS + 5 * 300 * MS));
        assert!(changes.is_empty());
    }

    #[test]
    fn other_times_hold_at_once() {
        let mut liveness = Liveness::default();
        let mut changes = Vec::new();
        liveness.configure(0, &config(10_000, 60_000, &["ab"]));
        liveness.heard(MS, MAC, hello(1), &mut changes);
        liveness.configure(2 * MS, &config(40, 140, &["ab"]));
        assert_eq!(liveness.next_due(), Some(2 * MS + 5 * 140 * MS));
        liveness.heard(3 * MS, MAC, hello(2), &mut changes);
        // As many agents share the medium now, all say hello less often.
        liveness.configure(4 * MS, &config(80, 280, &["ab"]));
        assert_eq!(liveness.next_due(), Some(3 * MS + 280 * MS));
    }

    #[test]
    fn a_hello_less_often_is_in_time_if_the_configuration_says_so() {
        let mut liveness = Liveness::default();
        liveness.configure(0, &config(400, 1_400, &["ab"]));
        let mut changes = Vec::new();
        for k in 0..100u32 {
            let now_ns = u64::from(k) * 400 * MS;
            liveness.poll(now_ns, &mut changes);
            liveness.heard(now_ns, MAC, Hello { interval_ms: 400, sequence: k }, &mut changes);
        }
        assert!(changes.is_empty());
        assert_eq!(liveness.next_due(), Some(99 * 400 * MS + 1_400 * MS));
    }

    /// Any configurations and hellos at any times: no overflow, and never longer than configured.
    #[test]
    fn whatever_comes_the_dead_time_stays_within_its_bounds() {
        let mut rng = Rng::new(11);
        let edge = |rng: &mut Rng| match rng.below(4) {
            0 => rng.next() >> rng.below(64),
            1 => u64::MAX - rng.below(1000) as u64,
            2 => rng.below(2000) as u64,
            _ => u64::MAX / MS - 1 + rng.below(3) as u64,
        };
        for _ in 0..500 {
            let (mut liveness, mut changes) = (Liveness::default(), Vec::new());
            let mut now_ns = if rng.below(4) == 0 { edge(&mut rng) } else { 0 };
            let (mut dead_ns, mut sequence) = (0u64, 0u32);
            for k in 0..100 {
                if k == 0 || rng.below(20) == 0 {
                    let (interval_ms, dead_ms) = (rng.next() as u16, edge(&mut rng));
                    liveness.configure(now_ns, &config(interval_ms, dead_ms, &["ab"]));
                    dead_ns = dead_ms.saturating_mul(MS).max(u64::from(interval_ms) * MS * 5 / 2);
                    let most_ns = dead_ns.saturating_mul(LONGEST).max(FIRST_GRACE_NS);
                    assert!(liveness.next_due().map_or(true, |due| due <= now_ns.saturating_add(most_ns)));
                }
                now_ns = now_ns.saturating_add(if rng.below(10) == 0 { edge(&mut rng) } else { 40 * MS });
                sequence =
                    sequence.wrapping_add(if rng.below(4) == 0 { rng.next() as u32 } else { rng.below(20) as u32 });
                liveness.poll(now_ns, &mut changes);
                liveness.heard(now_ns, MAC, Hello { interval_ms: rng.next() as u16, sequence }, &mut changes);
                if let Some(due_ns) = liveness.next_due() {
                    assert!(due_ns >= now_ns.saturating_add(dead_ns));
                    assert!(due_ns <= now_ns.saturating_add(dead_ns.saturating_mul(LONGEST)));
                }
            }
        }
    }
}
