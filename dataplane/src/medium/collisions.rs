//! Collisions: what a station whose turn it is shares the slot with, and what becomes of frames that nobody could read.
//!
//! Each time a station is about to begin, n - 1 others that could begin too contend with it. How many of the n do begin is
//! drawn ([`super::contention`]). If it is more than one, each of them sends what it would have sent, for as long as that
//! takes, and none of it arrives: the medium is busy until the longest has ended. The frames stay where they were in their
//! queues; after as many collisions as the technology retries they are lost.
//!
//! Carrier sensing is perfect within the conflict graph: stations collide because they begin in one slot, never because
//! one does not hear the other.

use super::config::Config;
use super::contention::Collisions;
use super::frame::Outcome;
use super::model::Model;
use super::parts::Happening;

/// Who may collide, and how often that happens.
#[derive(Debug)]
pub(super) struct Contenders {
    collisions: Collisions,
    /// Kept for reuse.
    links: Vec<usize>,
}

impl Contenders {
    pub fn new(config: &Config) -> Contenders {
        Contenders { collisions: Collisions::new(&config.ports, &config.contention), links: Vec::new() }
    }

    /// How often a frame of a port is sent again after a collision.
    pub fn retries(&self, port: usize, group: bool) -> u32 {
        self.collisions.retries(port, group)
    }
}

impl Model {
    /// A link may start at `at_ns`: if stations that contend begin together, all of them send in vain. False if there is no
    /// collision.
    pub(super) fn collide(&mut self, l: usize, at_ns: u64) -> bool {
        let port = self.links[l].from;
        if !self.contenders.collisions.may_collide(port) {
            return false;
        }
        let mut links = std::mem::take(&mut self.contenders.links);
        links.clear();
        self.access.rivals(l, &mut links);
        links.retain(|&rival| self.contenders.collisions.collide(port, self.links[rival].from));
        let others = self.contenders.collisions.draw(port, links.len() + 1, &mut self.rng) - 1;
        for i in 0..others {
            let other = i + self.rng.below(links.len() - i);
            links.swap(i, other);
        }
        if others > 0 {
            self.send_in_vain(l, at_ns);
            links[..others].iter().for_each(|&rival| self.send_in_vain(rival, at_ns));
        }
        self.contenders.links = links;
        others > 0
    }

    fn send_in_vain(&mut self, l: usize, at_ns: u64) {
        let (frames, duration_ns) = self.next_batch(l);
        self.serial += 1;
        self.access.collide(l, at_ns);
        let link = &mut self.links[l];
        self.carriers.begin(link.from, at_ns);
        link.colliding = frames;
        link.started = self.serial;
        link.end_ns = at_ns + duration_ns;
        link.counters.air_ns += duration_ns;
        link.counters.collisions += 1;
        self.schedule(at_ns + duration_ns, Happening::CollisionEnds(l));
    }

    pub(super) fn end_collision(&mut self, l: usize, at_ns: u64) {
        self.access.release(l, at_ns);
        let limit = self.retry_limit(l);
        let link = &mut self.links[l];
        self.carriers.end(link.from, at_ns);
        let frames = std::mem::take(&mut link.colliding);
        // If the link was cut meanwhile, what collided is gone.
        if link.cut <= link.started && !link.queue.is_empty() {
            link.retries += 1;
            // A frame of a radio may have been on the air before, without a collision.
            let air = link.queue.front().and_then(|waiting| waiting.frame.air);
            let spent = link.retries.saturating_add(air.map_or(0, |air| air.tries));
            if spent > limit || air.map_or(false, |air| air.no_ack) {
                self.give_up(l, frames, at_ns);
            }
        }
        self.start_waiting(at_ns);
    }

    /// The first frames in the queue have collided too often.
    fn give_up(&mut self, l: usize, frames: usize, at_ns: u64) {
        let (port, collisions) = (self.links[l].from, self.links[l].retries);
        let (outcome, copies) = match self.links[l].to {
            Some(_) => (Outcome::Unanswered, 1),
            None => (
                Outcome::ToGroup,
                self.ports[self.links[l].from].links.iter().filter(|&&link| self.links[link].is_live()).count(),
            ),
        };
        for _ in 0..frames {
            let link = &mut self.links[l];
            if let Some(mut waiting) = link.queue.pop_front() {
                if let Some(air) = &mut waiting.frame.air {
                    air.tries += collisions;
                }
                link.counters.sent += 1;
                link.counters.lost += copies as u64;
                link.counters.queue_delay_ns += at_ns - waiting.since_ns.min(at_ns);
                self.settle(port, waiting.frame, outcome);
            }
        }
        self.links[l].retries = 0;
        if self.links[l].queue.is_empty() {
            self.access.withdraw(l);
        }
    }
}
