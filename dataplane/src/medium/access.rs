//! Who sends next.
//!
//! A station is a port; its backlogged links of one class form a *group*. Whenever classes become free, one station is
//! drawn at random among those with a startable link that have not had their turn in this round; when all have, a new round
//! begins. So every order is possible, yet in the long run and in the short every contending station gets the same number
//! of accesses. (Independent draws are as fair on average, but a relay's queue then does a random walk up to its bound, and
//! the frames dropped there have used airtime: a saturated 15 -> 30 Mb/s two-hop path carries 9.85 instead of 10.) Within a
//! station the startable link that waited longest since its last access is served: round robin.
//!
//! Invariant: between events no backlogged link of a free class waits. So a frame that finds its class free starts at once,
//! and the end of a transmission needs to look only at the classes it freed.
//!
//! Who *collides* with the station whose turn it is decides [`super::collisions`]; those that do keep their turn, because
//! they have sent nothing.

use super::conflicts::Conflicts;
use super::rng::Rng;
use std::collections::VecDeque;

/// Access state of a class of links (see [`Conflicts`]).
#[derive(Debug, Default)]
struct Class {
    /// Transmissions now in the air that block this class.
    blocked: u32,
    busy_since_ns: u64,
    busy_ns: u64,
    /// Groups served after this moment (in accesses) have had their turn.
    round: u64,
    /// Groups with backlog.
    waiting: Vec<usize>,
}

/// The links of one port in one class.
#[derive(Debug)]
struct Group {
    port: usize,
    class: usize,
    /// Backlogged links, the least recently served first.
    links: VecDeque<usize>,
    /// Last access of the port in the domain of this class.
    turn: u64,
    /// Where this group stands in `waiting` of its class.
    position: usize,
}

/// What a draw notes about a station, valid if `draw` is that of now.
#[derive(Debug, Clone, Copy, Default)]
struct Candidate {
    draw: u64,
    group: usize,
}

/// The stations that one look finds startable, each once, with the group whose first link waited longest.
#[derive(Debug)]
struct Found {
    candidates: Vec<Candidate>,
    ports: Vec<usize>,
    draws: u64,
}

impl Found {
    fn begin(&mut self) {
        self.draws += 1;
        self.ports.clear();
    }

    fn note(&mut self, g: usize, groups: &[Group], served: &[u64]) {
        // Last access of the group's first link.
        let oldest = |g: usize| groups[g].links.front().map_or(u64::MAX, |&l| served[l]);
        let port = groups[g].port;
        let candidate = &mut self.candidates[port];
        if candidate.draw != self.draws {
            *candidate = Candidate { draw: self.draws, group: g };
            self.ports.push(port);
        } else if oldest(g) < oldest(candidate.group) {
            candidate.group = g;
        }
    }
}

/// Fair random access to the media.
#[derive(Debug)]
pub struct Access {
    conflicts: Conflicts,
    classes: Vec<Class>,
    groups: Vec<Group>,
    group_of: Vec<usize>,
    groups_of_port: Vec<Vec<usize>>,
    /// Serial number of each link's last access.
    served: Vec<u64>,
    found: Found,
    free: Vec<usize>,
}

impl Access {
    /// Nothing waits and everything is free. `port_of` gives the sending port of each link, of `ports` in all.
    pub fn new(conflicts: Conflicts, port_of: &[usize], ports: usize) -> Access {
        let mut classes = Vec::new();
        classes.resize_with(conflicts.neighbours.len(), Class::default);
        let (mut groups, mut group_of): (Vec<Group>, Vec<usize>) = (Vec::new(), Vec::new());
        let mut groups_of_port: Vec<Vec<usize>> = vec![Vec::new(); ports];
        for (link, &port) in port_of.iter().enumerate() {
            let class = conflicts.class_of[link];
            let known = groups_of_port[port].iter().copied().find(|&g| groups[g].class == class);
            let group = known.unwrap_or_else(|| {
                groups.push(Group { port, class, links: VecDeque::new(), turn: 0, position: 0 });
                groups_of_port[port].push(groups.len() - 1);
                groups.len() - 1
            });
            group_of.push(group);
        }
        Access {
            served: vec![0; port_of.len()],
            found: Found { candidates: vec![Candidate::default(); ports], ports: Vec::new(), draws: 0 },
            free: Vec::new(),
            conflicts,
            classes,
            groups,
            group_of,
            groups_of_port,
        }
    }

    /// Whether a link may send now.
    pub fn is_free(&self, link: usize) -> bool {
        self.classes[self.conflicts.class_of[link]].blocked == 0
    }

    /// A link has got something to send.
    pub fn backlog(&mut self, link: usize) {
        let g = self.group_of[link];
        if self.groups[g].links.is_empty() {
            let waiting = &mut self.classes[self.groups[g].class].waiting;
            self.groups[g].position = waiting.len();
            waiting.push(g);
        }
        self.groups[g].links.push_back(link);
    }

    /// A waiting link has nothing to send any more.
    pub fn withdraw(&mut self, link: usize) {
        let g = self.group_of[link];
        let links = &mut self.groups[g].links;
        let before = links.len();
        if links.front() == Some(&link) {
            links.pop_front();
        } else {
            links.retain(|&l| l != link);
        }
        if before > 0 && links.is_empty() {
            self.stop_waiting(g);
        }
    }

    fn stop_waiting(&mut self, g: usize) {
        let position = self.groups[g].position;
        let waiting = &mut self.classes[self.groups[g].class].waiting;
        waiting.swap_remove(position);
        if let Some(&moved) = waiting.get(position) {
            self.groups[moved].position = position;
        }
    }

    /// A link takes the medium at `at_ns`; `serial` numbers the accesses. It no longer waits: call `backlog` again if
    /// there is more to send.
    pub fn occupy(&mut self, link: usize, at_ns: u64, serial: u64) {
        self.withdraw(link);
        self.served[link] = serial;
        let class = self.conflicts.class_of[link];
        let port = self.groups[self.group_of[link]].port;
        let neighbours = &self.conflicts.neighbours[class];
        for &g in &self.groups_of_port[port] {
            let group = &mut self.groups[g];
            if neighbours.binary_search(&group.class).is_ok() {
                group.turn = serial;
            }
        }
        self.block(class, at_ns);
    }

    /// A link takes part in a collision at `at_ns`. It still waits, and its station has not had its turn.
    pub fn collide(&mut self, link: usize, at_ns: u64) {
        self.block(self.conflicts.class_of[link], at_ns);
    }

    fn block(&mut self, class: usize, at_ns: u64) {
        for &c in &self.conflicts.neighbours[class] {
            let class = &mut self.classes[c];
            if class.blocked == 0 {
                class.busy_since_ns = at_ns;
            }
            class.blocked += 1;
        }
    }

    /// The transmission of a link ends at `at_ns`.
    pub fn release(&mut self, link: usize, at_ns: u64) {
        for &c in &self.conflicts.neighbours[self.conflicts.class_of[link]] {
            let class = &mut self.classes[c];
            class.blocked -= 1;
            if class.blocked == 0 {
                class.busy_ns += at_ns - class.busy_since_ns;
                self.free.push(c);
            }
        }
    }

    /// The next link to start among those that waited for what was released; `serial` is the number of the last access. Call
    /// (and `occupy`) until there is none.
    pub fn next(&mut self, serial: u64, rng: &mut Rng) -> Option<usize> {
        let mut free = std::mem::take(&mut self.free);
        free.retain(|&c| self.classes[c].blocked == 0 && !self.classes[c].waiting.is_empty());
        let mut group = None;
        if !free.is_empty() {
            group = self.draw(&free, rng);
            if group.is_none() {
                free.iter().for_each(|&c| self.classes[c].round = serial);
                group = self.draw(&free, rng);
            }
        }
        self.free = free;
        group.and_then(|g| self.groups[g].links.front().copied())
    }

    /// Draws a station among those that have not had their turn, and takes its group whose first link waited longest.
    fn draw(&mut self, free: &[usize], rng: &mut Rng) -> Option<usize> {
        self.found.begin();
        for &c in free {
            let class = &self.classes[c];
            for &g in class.waiting.iter().filter(|&&g| self.groups[g].turn <= class.round) {
                self.found.note(g, &self.groups, &self.served);
            }
        }
        if self.found.ports.is_empty() {
            return None;
        }
        let port = self.found.ports[rng.below(self.found.ports.len())];
        Some(self.found.candidates[port].group)
    }

    /// The links, one of each other station, that could start now and contend with a link that can.
    pub fn rivals(&mut self, link: usize, rivals: &mut Vec<usize>) {
        self.found.begin();
        let (own, class) = (self.groups[self.group_of[link]].port, self.conflicts.class_of[link]);
        for &c in self.conflicts.neighbours[class].iter().filter(|&&c| self.classes[c].blocked == 0) {
            for &g in self.classes[c].waiting.iter().filter(|&&g| self.groups[g].port != own) {
                self.found.note(g, &self.groups, &self.served);
            }
        }
        let group = |&port: &usize| self.found.candidates[port].group;
        rivals.extend(self.found.ports.iter().filter_map(|port| self.groups[group(port)].links.front()));
    }

    /// Time that the domain of a link was busy since the last reset, up to `now_ns`.
    pub fn busy_ns(&self, link: usize, now_ns: u64) -> u64 {
        let class = &self.classes[self.conflicts.class_of[link]];
        let running = if class.blocked > 0 { now_ns.saturating_sub(class.busy_since_ns) } else { 0 };
        class.busy_ns + running
    }

    /// Starts the busy times anew.
    pub fn reset(&mut self, now_ns: u64) {
        for class in &mut self.classes {
            class.busy_ns = 0;
            class.busy_since_ns = now_ns;
        }
    }

    /// Whether two links contend.
    pub fn contend(&self, l: usize, m: usize) -> bool {
        self.conflicts.contend(l, m)
    }
}
