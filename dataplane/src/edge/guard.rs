//! Which sealed frames are taken: those that an agent with the key has made, each of them once.
//!
//! The send times of a flow's sealed frames all differ, and they rise on every path. Of each path the greatest ones that
//! came are kept: a frame is new if its time is none of these and later than all that were before them. So frames may
//! come in any order by different paths, and up to `RING` of them out of order by one path.
//!
//! A send time has 32 bits, which are used up in 71 minutes. The seal covers 32 more that are not sent: how often the
//! sender's time began anew since it has the key. The receiver knows that from the frames before and from its own clock.
//!
//! An agent never begins anew with a key: the controller derives keys from what both agents said of their start.

use super::frame::{Hello, Kind, Seal, Shim, HELLO_LEN, SHIM_LEN};
use super::seal::{Base, Condensed, Covered, Key, ENDS_LEN};
use crate::sys::interface::Mac;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::rc::Rc;

/// So many frames of a path may come out of order.
const RING: usize = 256;
/// Generations that count at a time: the one in force, the one before, the one after.
const GENERATIONS: u64 = 3;
/// Times that a sender's time may have begun anew before its first frame is heard: two days.
const FIRST_HIGHS: u32 = 40;
/// Frames without a seal are taken for so long where none was needed before: some are on slow paths.
const LENIENT_NS: u64 = 1_000_000_000;
/// Where a running flow gets a key of another origin, its sender goes on with the old one for so long, and its receiver
/// takes both for so long: they need not be told at the same time.
const SEND_OLD_NS: u64 = 300_000_000;
const TAKE_OLD_NS: u64 = 2_000_000_000;
/// What is known of keys that are not in use now.
const MOST_REMEMBERED: usize = 1 << 16;
/// Hello frames of one sender may be so many numbers late.
const HELLO_WINDOW: u32 = 64;
/// Of so many generations is known what came, of each sender.
const MOST_GENERATIONS: usize = 64;

/// Why a frame is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    Forged,
    Replayed,
}

/// What came lately by one path: send times with their upper half.
#[derive(Debug, Default)]
struct Ring {
    came: VecDeque<u64>,
    greatest: u64,
    /// Nothing up to this one is new.
    floor: u64,
}

impl Ring {
    fn take(&mut self, stamp: u64) -> bool {
        if stamp <= self.floor || (stamp <= self.greatest && self.came.contains(&stamp)) {
            return false;
        }
        self.greatest = self.greatest.max(stamp);
        if self.came.len() >= RING {
            self.floor = self.floor.max(self.came.pop_front().unwrap_or(0));
        }
        self.came.push_back(stamp);
        true
    }
}

/// The greatest send time with a key, and when it was heard.
#[derive(Clone, Copy, Debug)]
struct Newest {
    stamp: u64,
    heard_ns: u64,
}

/// A key of one generation and what came with it.
#[derive(Debug)]
struct Life {
    generation: u64,
    key: Rc<Key>,
    newest: Option<Newest>,
    /// What came before all rings.
    floor: u64,
    /// By path; resumes, which come by any path, have a ring of their own.
    rings: Vec<(u16, Ring)>,
}

const RESUMES: u16 = 256;

impl Life {
    fn new(base: Base, generation: u64, before: Option<Newest>) -> Self {
        let floor = before.map_or(0, |newest| newest.stamp.saturating_add(1));
        Life { generation, key: Key::of(base, generation), newest: before, floor, rings: Vec::new() }
    }

    /// The whole send time of a frame if its seal is right.
    fn stamp_of(&self, now_ns: u64, shim: &Shim, bytes: &[u8; SHIM_LEN], inner: Condensed, tag: u64) -> Option<u64> {
        let is_right = |high: u32| self.key.seal(inner, bytes, high) == tag;
        let whole = |high: u32| u64::from(high) << 32 | u64::from(shim.sent_us);
        match self.newest {
            None => (0..FIRST_HIGHS).find(|high| is_right(*high)).map(whole),
            Some(newest) => {
                let elapsed_us = now_ns.saturating_sub(newest.heard_ns) / 1000;
                // The second one is for a sender whose clock stood still.
                let expected = nearest(newest.stamp.saturating_add(elapsed_us), shim.sent_us);
                let (first, second) = (high_of(expected), high_of(nearest(newest.stamp, shim.sent_us)));
                match is_right(first) {
                    true => Some(whole(first)),
                    false => (second != first && is_right(second)).then_some(whole(second)),
                }
            }
        }
    }

    fn take(&mut self, now_ns: u64, shim: &Shim, stamp: u64) -> bool {
        // Times begin at 0, which no ring takes.
        let stamp = stamp.saturating_add(1);
        if stamp <= self.floor {
            return false;
        }
        let path = if shim.kind == Kind::Resume { RESUMES } else { u16::from(shim.path) };
        let at = match self.rings.iter().position(|(id, _)| *id == path) {
            Some(at) => at,
            None => {
                self.rings.push((path, Ring::default()));
                self.rings.len() - 1
            }
        };
        let is_new = self.rings[at].1.take(stamp);
        if is_new && self.newest.map_or(true, |newest| newest.stamp < stamp - 1) {
            self.newest = Some(Newest { stamp: stamp - 1, heard_ns: now_ns });
        }
        is_new
    }
}

fn high_of(stamp: u64) -> u32 {
    (stamp >> 32) as u32
}

/// Of all times with this lower half the one nearest to an expected one.
fn nearest(expected: u64, low: u32) -> u64 {
    const SPAN: u64 = 1 << 32;
    let same = expected & !(SPAN - 1) | u64::from(low);
    let others = [same.checked_sub(SPAN), same.checked_add(SPAN)];
    let is_nearer = |a: u64, b: u64| a.abs_diff(expected) < b.abs_diff(expected);
    others.into_iter().flatten().fold(same, |best, other| if is_nearer(other, best) { other } else { best })
}

/// The keys of one flow at its last edge, or at an agent on its way.
#[derive(Debug)]
pub struct Guard {
    base: Base,
    lives: Vec<Life>,
    /// Until when frames without a seal are taken.
    lenient_ns: u64,
    /// The key before this one, and until when it counts.
    before: Option<(u64, Box<Guard>)>,
}

impl Guard {
    fn check(
        &mut self,
        now_ns: u64,
        shim: &Shim,
        seal: Seal,
        bytes: &[u8; SHIM_LEN],
        covered: Covered,
    ) -> Result<Checked, Refused> {
        let life = self.lives.iter_mut().find(|life| life.generation % 4 == u64::from(seal.generation));
        let life = life.ok_or(Refused::Forged)?;
        let condensed = life.key.condense(covered);
        let stamp = life.stamp_of(now_ns, shim, bytes, condensed, seal.tag).ok_or(Refused::Forged)?;
        match life.take(now_ns, shim, stamp) {
            true => Ok(Checked { key: Rc::clone(&life.key), generation: life.generation, high: high_of(stamp) }),
            false => Err(Refused::Replayed),
        }
    }
}

/// What is known of a sealed frame that was taken: what its seal is made of, for those who send it on.
#[derive(Clone, Debug)]
pub struct Checked {
    pub key: Rc<Key>,
    pub generation: u64,
    pub high: u32,
}

/// All flows that are sealed.
#[derive(Debug, Default)]
pub struct Guards {
    /// By flow number; empty while none is sealed.
    by_flow: Vec<Option<Box<Guard>>>,
    /// Of keys that are not in use any more: what came last with them.
    remembered: HashMap<(Base, u64), Newest>,
}

/// Which generations count.
fn counting(generation: u64) -> impl Iterator<Item = u64> {
    let first = generation.saturating_sub(1);
    (0..GENERATIONS).map(move |step| first.saturating_add(step))
}

impl Guards {
    /// These flows are sealed from now on, with these keys, and `open` are those that were taken without seals before.
    pub fn configure(&mut self, now_ns: u64, generation: u64, wanted: &HashMap<u16, Base>, was_open: &HashSet<u16>) {
        if self.by_flow.is_empty() && !wanted.is_empty() {
            self.by_flow.resize_with(1 << 16, || None);
        }
        for (number, slot) in self.by_flow.iter_mut().enumerate() {
            let base = wanted.get(&(number as u16));
            if let Some(guard) = slot.as_ref().map_or(false, |g| base != Some(&g.base)).then(|| slot.take()).flatten() {
                guard.lives.iter().for_each(|life| remember(&mut self.remembered, guard.base, life));
                if let Some(base) = base {
                    let before = Some((now_ns.saturating_add(TAKE_OLD_NS), Box::new(Guard { before: None, ..*guard })));
                    *slot = Some(Box::new(Guard { base: *base, lives: Vec::new(), lenient_ns: 0, before }));
                }
            }
        }
        for (number, base) in wanted {
            let slot = &mut self.by_flow[usize::from(*number)];
            let lenient_ns = if was_open.contains(number) { now_ns.saturating_add(LENIENT_NS) } else { 0 };
            let guard = slot
                .get_or_insert_with(|| Box::new(Guard { base: *base, lives: Vec::new(), lenient_ns, before: None }));
            let mut lives = Vec::new();
            for each in counting(generation) {
                let known = guard.lives.iter().position(|life| life.generation == each);
                lives.push(match known {
                    Some(at) => guard.lives.swap_remove(at),
                    None => Life::new(*base, each, self.remembered.get(&(*base, each)).copied()),
                });
            }
            guard.lives.iter().for_each(|life| remember(&mut self.remembered, guard.base, life));
            guard.lives = lives;
        }
    }

    pub fn has(&self, number: u16) -> bool {
        matches!(self.by_flow.get(usize::from(number)), Some(Some(_)))
    }

    /// Whether a frame is taken; `bytes` are its shim as it came, `covered` what its seal covers besides. None: there is no
    /// seal, and none is needed.
    pub fn check(
        &mut self,
        now_ns: u64,
        shim: &Shim,
        seal: Option<Seal>,
        bytes: &[u8; SHIM_LEN],
        covered: Covered,
    ) -> Result<Option<Checked>, Refused> {
        let guard = match self.by_flow.get_mut(usize::from(shim.flow)) {
            Some(Some(guard)) => guard,
            _ => return Ok(None),
        };
        let seal = match seal {
            Some(seal) => seal,
            None if now_ns < guard.lenient_ns => return Ok(None),
            None => return Err(Refused::Forged),
        };
        match (guard.check(now_ns, shim, seal, bytes, covered), &mut guard.before) {
            (Err(Refused::Forged), Some((until_ns, before))) if now_ns < *until_ns => {
                before.check(now_ns, shim, seal, bytes, covered).map(Some)
            }
            (result, _) => result.map(Some),
        }
    }
}

fn remember(remembered: &mut HashMap<(Base, u64), Newest>, base: Base, life: &Life) {
    if let Some(newest) = life.newest {
        if remembered.len() < MOST_REMEMBERED {
            // Several senders may share a key, and their send times rise together.
            let known = remembered.entry((base, life.generation)).or_insert(newest);
            if known.stamp < newest.stamp {
                *known = newest;
            }
        }
    }
}

/// The sending end of a flow: gives frames their send times, and seals them if there is a key.
#[derive(Debug)]
pub struct Sealer {
    pub flow: u16,
    last_us: u64,
    signing: Option<Signing>,
    /// Another one, and when it takes the place of that.
    next: Option<(u64, Signing)>,
}

/// A key to seal with.
#[derive(Clone, Debug)]
pub struct Signing {
    base: Base,
    key: Rc<Key>,
    generation: u64,
    /// How often the time had begun anew when we got the key.
    origin: u32,
}

impl Signing {
    /// A sealed hello frame's payload.
    pub fn hello(&self, mac: &Mac, hello: &Hello) -> [u8; HELLO_LEN] {
        hello.encode_sealed(self.generation, self.key.seal_hello(mac, hello.interval_ms, hello.sequence))
    }
}

/// Keys that this agent has sealed with, so that none begins anew.
#[derive(Debug, Default)]
pub struct Signings {
    known: HashMap<(Base, u64), Signing>,
}

impl Signings {
    pub fn of(&mut self, now_ns: u64, base: Base, generation: u64) -> Signing {
        if self.known.len() >= MOST_REMEMBERED {
            self.known.retain(|(_, each), _| *each + 1 >= generation);
        }
        let origin = high_of(now_ns / 1000);
        let signing = self.known.entry((base, generation)).or_insert_with(|| Signing {
            base,
            key: Key::of(base, generation),
            generation,
            origin,
        });
        signing.clone()
    }
}

impl Sealer {
    pub fn new(flow: u16) -> Self {
        Sealer { flow, last_us: 0, signing: None, next: None }
    }

    pub fn set(&mut self, now_ns: u64, signing: Option<Signing>) {
        self.turn(now_ns);
        match (&self.signing, signing) {
            (Some(old), Some(new)) if old.base != new.base => {
                let known = self.next.take().filter(|(_, next)| next.base == new.base);
                let at_ns = known.map_or(now_ns.saturating_add(SEND_OLD_NS), |(at_ns, _)| at_ns);
                self.next = Some((at_ns, new));
            }
            (_, signing) => {
                self.signing = signing;
                self.next = None;
            }
        }
    }

    fn turn(&mut self, now_ns: u64) {
        if self.next.as_ref().map_or(false, |(at_ns, _)| *at_ns <= now_ns) {
            self.signing = self.next.take().map(|(_, signing)| signing);
        }
    }

    /// The send time of a frame. With a key all of them differ.
    fn stamp(&mut self, now_ns: u64) -> u64 {
        let now_us = now_ns / 1000;
        if self.signing.is_some() {
            self.last_us = now_us.max(self.last_us.saturating_add(1));
            return self.last_us;
        }
        now_us
    }

    /// Writes shim and seal into a frame that is sent now, at `shim_at`; the inner frame is there.
    pub fn write(&mut self, now_ns: u64, mut shim: Shim, frame: &mut [u8], shim_at: usize) {
        self.turn(now_ns);
        let stamp = self.stamp(now_ns);
        shim.sent_us = stamp as u32;
        match &self.signing {
            None => shim.encode(&mut frame[shim_at..]),
            Some(signing) => {
                let high = high_of(stamp).wrapping_sub(signing.origin);
                write_sealed(&signing.key, signing.generation, high, shim, frame, shim_at);
            }
        }
    }

    pub fn is_sealing(&self) -> bool {
        self.signing.is_some()
    }
}

/// Writes shim and seal of a frame whose inner frame is there.
pub fn write_sealed(key: &Key, generation: u64, high: u32, shim: Shim, frame: &mut [u8], shim_at: usize) {
    let (head, inner) = frame.split_at_mut(shim_at + SHIM_LEN + super::seal::SEAL_LEN);
    let bytes = shim.encode_sealed(generation);
    let tag = key.seal(key.condense(covered_by(shim.kind, head, inner)), &bytes, high);
    head[shim_at..shim_at + SHIM_LEN].copy_from_slice(&bytes);
    head[shim_at + SHIM_LEN..].copy_from_slice(&tag.to_be_bytes());
}

/// What the seal of a frame covers, whose first bytes are `head` and whose inner frame is `inner`.
pub fn covered_by<'a>(kind: Kind, head: &[u8], inner: &'a [u8]) -> Covered<'a> {
    let ends = head.get(..ENDS_LEN).and_then(|ends| ends.try_into().ok());
    match kind {
        Kind::Link => Covered { ends, inner },
        Kind::Data | Kind::Pieces => Covered { ends: None, inner },
        _ => Covered::default(),
    }
}

/// Hello frames of one sender.
#[derive(Debug)]
pub struct HelloGuard {
    base: Base,
    lives: Vec<(u64, Rc<Key>, HelloWindow)>,
    /// What came in generations that do not count now.
    remembered: BTreeMap<u64, HelloWindow>,
    lenient_ns: u64,
}

/// Which numbers came: the greatest one, and of those before it a bit each.
#[derive(Clone, Copy, Debug, Default)]
struct HelloWindow {
    greatest: Option<u32>,
    came: u64,
}

impl HelloWindow {
    fn take(&mut self, sequence: u32) -> bool {
        let greatest = match self.greatest {
            None => {
                *self = HelloWindow { greatest: Some(sequence), came: 1 };
                return true;
            }
            Some(greatest) => greatest,
        };
        if sequence > greatest {
            let step = sequence - greatest;
            self.came = if step < HELLO_WINDOW { self.came << step | 1 } else { 1 };
            self.greatest = Some(sequence);
            return true;
        }
        let late = greatest - sequence;
        if late >= HELLO_WINDOW || self.came & 1 << late != 0 {
            return false;
        }
        self.came |= 1 << late;
        true
    }
}

impl HelloGuard {
    pub fn new(base: Base, lenient_ns: Option<u64>) -> Self {
        let lenient_ns = lenient_ns.map_or(0, |now_ns| now_ns.saturating_add(LENIENT_NS));
        HelloGuard { base, lives: Vec::new(), remembered: BTreeMap::new(), lenient_ns }
    }

    pub fn base(&self) -> Base {
        self.base
    }

    pub fn set_generation(&mut self, generation: u64) {
        let mut lives = Vec::new();
        for each in counting(generation) {
            let known = self.lives.iter().position(|(of, ..)| *of == each);
            lives.push(match known {
                Some(at) => self.lives.swap_remove(at),
                None => (each, Key::of(self.base, each), self.remembered.remove(&each).unwrap_or_default()),
            });
        }
        let gone = std::mem::replace(&mut self.lives, lives);
        self.remembered.extend(gone.into_iter().map(|(each, _, window)| (each, window)));
        while self.remembered.len() > MOST_GENERATIONS {
            let first = self.remembered.keys().next().copied().unwrap_or(0);
            self.remembered.remove(&first);
        }
    }

    pub fn check(&mut self, now_ns: u64, mac: &Mac, hello: &Hello, seal: Option<Seal>) -> Result<(), Refused> {
        let seal = match seal {
            Some(seal) => seal,
            None if now_ns < self.lenient_ns => return Ok(()),
            None => return Err(Refused::Forged),
        };
        let life = self.lives.iter_mut().find(|(generation, ..)| generation % 4 == u64::from(seal.generation));
        let (_, key, window) = life.ok_or(Refused::Forged)?;
        if key.seal_hello(mac, hello.interval_ms, hello.sequence) != seal.tag {
            return Err(Refused::Forged);
        }
        match window.take(hello.sequence) {
            true => Ok(()),
            false => Err(Refused::Replayed),
        }
    }
}

#[cfg(test)]
#[path = "guard_tests.rs"]
mod tests;
