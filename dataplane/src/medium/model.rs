//! The medium in virtual time: frames in, deliveries out.

use super::access::Access;
use super::carrier::Carriers;
use super::collisions::Contenders;
use super::config::{Config, LinkState, Options};
use super::conflicts::Conflicts;
use super::contention::Contention;
use super::frame::{Frame, Outcome};
use super::parts::{Event, Flight, Happening, Link, Port, Report, Waiting};
use super::rng::Rng;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Buffers kept for reuse; more are given back to the allocator.
const MAX_SPARE_BUFFERS: usize = 4096;

/// The medium. Times are nanoseconds of any clock that does not go back.
#[derive(Debug)]
pub struct Model {
    pub(super) ports: Vec<Port>,
    /// Configured links first, then broadcast links.
    pub(super) links: Vec<Link>,
    pub(super) configured: usize,
    pub(super) access: Access,
    pub(super) carriers: Carriers,
    pub(super) contenders: Contenders,
    options: Options,
    events: BinaryHeap<Reverse<Event>>,
    scheduled: u64,
    pub(super) serial: u64,
    pub(super) rng: Rng,
    spare: Vec<Vec<u8>>,
    reports: Vec<Report>,
    /// Frames on their way after the transmission (delay).
    pub(super) flying: u64,
    pub(super) now_ns: u64,
    pub(super) reset_ns: u64,
}

impl Model {
    /// An idle medium at time `now_ns`.
    pub fn new(config: &Config, now_ns: u64) -> Model {
        let mut ports: Vec<Port> = Vec::new();
        ports.resize_with(config.ports.len(), Port::default);
        let mut links = Vec::with_capacity(config.links.len() + ports.len());
        for (i, link) in config.links.iter().enumerate() {
            links.push(Link::new(link.from, Some(link.to), link.state));
            ports[link.from].links.push(i);
            ports[link.from].by_mac.push((config.ports[link.to].mac, i));
        }
        let broadcasters: Vec<usize> = (0..ports.len()).filter(|&p| !ports[p].links.is_empty()).collect();
        for &p in &broadcasters {
            ports[p].broadcast = Some(links.len());
            ports[p].by_mac.sort_unstable();
            links.push(Link::new(p, None, LinkState { up: false, ..LinkState::of(0.0) }));
        }
        let port_of: Vec<usize> = links.iter().map(|l| l.from).collect();
        let access = Access::new(Conflicts::new(config, &broadcasters), &port_of, ports.len());
        let mut model = Model {
            configured: config.links.len(),
            access,
            carriers: Carriers::new(&config.ports),
            contenders: Contenders::new(config),
            options: config.options.clone(),
            events: BinaryHeap::new(),
            scheduled: 0,
            serial: 0,
            rng: Rng::new(config.options.seed),
            spare: Vec::new(),
            reports: Vec::new(),
            flying: 0,
            now_ns,
            reset_ns: now_ns,
            ports,
            links,
        };
        broadcasters.iter().for_each(|&p| model.refresh_broadcast(p));
        for (p, port) in config.ports.iter().enumerate() {
            model.set_uplink(p, port.uplink);
            model.ports[p].radio = port.radio.is_some();
        }
        model
    }

    /// An empty buffer to read a frame into; frames given to the model come back here.
    pub fn take_buffer(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_default()
    }

    /// Gives the buffer of a frame back.
    pub fn recycle(&mut self, frame: Frame) {
        if self.spare.len() < MAX_SPARE_BUFFERS {
            let mut buffer = frame.bytes;
            buffer.clear();
            self.spare.push(buffer);
        }
    }

    /// The end of a frame that a port sent; a radio is told of it.
    pub(super) fn settle(&mut self, port: usize, frame: Frame, outcome: Outcome) {
        if let Some(air) = frame.air {
            self.reports.push(Report { port, air, outcome });
        }
        self.recycle(frame);
    }

    /// What became of the frames of radios, in the order in which it did; each is told once.
    pub fn take_reports(&mut self, into: &mut Vec<Report>) {
        into.append(&mut self.reports);
    }

    /// When the next thing happens by itself.
    pub fn next_event_ns(&self) -> Option<u64> {
        self.events.peek().map(|event| event.0.at_ns)
    }

    /// Takes a frame that the host of `port` sent at `at_ns`. Call `advance(at_ns)` before; earlier times count as now.
    pub fn receive(&mut self, port: usize, frame: impl Into<Frame>, at_ns: u64) {
        let (frame, at_ns) = (frame.into(), at_ns.max(self.now_ns));
        self.ports[port].received += 1;
        match self.link_for(port, &frame) {
            Some(link) => self.enqueue(link, frame, at_ns),
            None => {
                self.ports[port].unknown += 1;
                self.settle(port, frame, Outcome::Unanswered);
            }
        }
    }

    fn link_for(&self, port: usize, frame: &Frame) -> Option<usize> {
        let port = &self.ports[port];
        let destination = frame.destination()?;
        if port.uplink.is_some() {
            return port.uplink;
        }
        if destination[0] & 1 == 1 {
            return port.broadcast;
        }
        let found = port.by_mac.binary_search_by(|(mac, _)| mac.cmp(&destination));
        found.ok().map(|i| port.by_mac[i].1)
    }

    fn enqueue(&mut self, l: usize, frame: Frame, at_ns: u64) {
        let link = &mut self.links[l];
        if !link.is_live() || link.queue.len() >= self.options.queue_frames {
            link.counters.dropped += 1;
            let (port, outcome) = (link.from, if link.is_live() { Outcome::Dropped } else { Outcome::Unanswered });
            return self.settle(port, frame, outcome);
        }
        link.queue.push_back(Waiting { since_ns: at_ns, frame });
        if link.queue.len() == 1 {
            self.access.backlog(l);
        }
        if self.access.is_free(l) {
            self.start(l, at_ns);
        }
    }

    /// Lets everything happen that is due by `now_ns`. Frames for hosts go to `deliver(port, frame)`, which says whether
    /// the host took them.
    pub fn advance(&mut self, now_ns: u64, deliver: &mut impl FnMut(usize, &Frame) -> bool) {
        while self.next_event_ns().map_or(false, |at| at <= now_ns) {
            let Event { at_ns, what, .. } = match self.events.pop() {
                Some(Reverse(event)) => event,
                None => break,
            };
            self.now_ns = self.now_ns.max(at_ns);
            match what {
                Happening::TransmissionEnds(link) => self.finish(link, at_ns, deliver),
                Happening::CollisionEnds(link) => self.end_collision(link, at_ns),
                Happening::Arrives(flight) => {
                    self.flying -= 1;
                    self.arrive(flight, deliver);
                }
            }
        }
        self.now_ns = self.now_ns.max(now_ns);
    }

    pub(super) fn schedule(&mut self, at_ns: u64, what: Happening) {
        self.scheduled += 1;
        self.events.push(Reverse(Event { at_ns, order: self.scheduled, what }));
    }

    /// How many of the waiting frames may share one access, and how long it takes. Those of radios go one by one, so that one
    /// that is sent again keeps its place.
    pub(super) fn next_batch(&self, l: usize) -> (usize, u64) {
        let link = &self.links[l];
        let ns_per_byte = 8000.0 / link.state.capacity_mbps;
        let limit_ns = self.options.aggregate_us * 1e3;
        let (mut frames, mut duration_ns) = (0, self.options.frame_overhead_us * 1e3);
        let most = if self.ports[link.from].radio { 1 } else { self.options.aggregate_frames };
        for waiting in link.queue.iter().take(most) {
            let needed_ns = waiting.frame.payload_bytes() as f64 * ns_per_byte;
            if frames > 0 && duration_ns + needed_ns > limit_ns {
                break;
            }
            duration_ns += needed_ns;
            frames += 1;
        }
        // At least 1 ns, so that time goes on even for an empty payload without overhead.
        (frames, (duration_ns.round() as u64).max(1))
    }

    /// Takes as many frames as may share one access and puts them into the air.
    pub(super) fn start(&mut self, l: usize, at_ns: u64) {
        let (frames, duration_ns) = self.next_batch(l);
        self.serial += 1;
        self.access.occupy(l, at_ns, self.serial);
        let link = &mut self.links[l];
        self.carriers.begin(link.from, at_ns);
        for mut waiting in link.queue.drain(..frames) {
            link.counters.sent += 1;
            link.counters.queue_delay_ns += at_ns - waiting.since_ns.min(at_ns);
            if let Some(air) = &mut waiting.frame.air {
                air.tries += 1 + link.retries;
            }
            link.batch.push(waiting.frame);
        }
        link.retries = 0;
        link.started = self.serial;
        link.end_ns = at_ns + duration_ns;
        link.counters.air_ns += duration_ns;
        if !link.queue.is_empty() {
            self.access.backlog(l);
        }
        self.schedule(at_ns + duration_ns, Happening::TransmissionEnds(l));
    }

    fn finish(&mut self, l: usize, at_ns: u64, deliver: &mut impl FnMut(usize, &Frame) -> bool) {
        self.access.release(l, at_ns);
        self.carriers.end(self.links[l].from, at_ns);
        let mut batch = std::mem::take(&mut self.links[l].batch);
        let started = self.links[l].started;
        for frame in batch.drain(..) {
            if self.links[l].to.is_some() {
                self.cross(Flight { via: l, account: l, started, frame }, at_ns, deliver);
            } else {
                self.spread(l, frame, at_ns, deliver);
            }
        }
        self.links[l].batch = batch;
        self.start_waiting(at_ns);
    }

    /// Lets those begin that waited for what was released.
    pub(super) fn start_waiting(&mut self, at_ns: u64) {
        while let Some(next) = self.access.next(self.serial, &mut self.rng) {
            if !self.collide(next, at_ns) {
                self.start(next, at_ns);
            }
        }
    }

    /// A broadcast frame goes to every neighbour that a live link leads to.
    fn spread(&mut self, broadcast: usize, frame: Frame, at_ns: u64, deliver: &mut impl FnMut(usize, &Frame) -> bool) {
        let (port, started) = (self.links[broadcast].from, self.links[broadcast].started);
        for i in 0..self.ports[port].links.len() {
            let via = self.ports[port].links[i];
            let link = &self.links[via];
            if link.is_live() || link.cut > started {
                let mut bytes = self.take_buffer();
                bytes.extend_from_slice(&frame);
                let copy = Frame { bytes, air: frame.air };
                self.cross(Flight { via, account: broadcast, started, frame: copy }, at_ns, deliver);
            }
        }
        self.settle(port, frame, Outcome::ToGroup);
    }

    /// The transmission is over: the frame may be lost or sent again, arrive now or after the link's delay.
    fn cross(&mut self, flight: Flight, at_ns: u64, deliver: &mut impl FnMut(usize, &Frame) -> bool) {
        let LinkState { loss, delay_ms, .. } = self.links[flight.via].state;
        if self.rng.chance(loss) {
            if self.may_retry(&flight) {
                self.retry(flight, at_ns);
            } else {
                self.lose(flight);
            }
        } else if delay_ms > 0.0 {
            self.flying += 1;
            self.schedule(at_ns + (delay_ms * 1e6).round() as u64, Happening::Arrives(flight));
        } else {
            self.arrive(flight, deliver);
        }
    }

    /// Whether a frame that was not received is sent again: one of a radio to a single station, on a link that still is.
    fn may_retry(&self, flight: &Flight) -> bool {
        let link = &self.links[flight.account];
        let live = link.is_live() && link.cut <= flight.started;
        let spent = |tries| tries > self.retry_limit(flight.account);
        live && link.to.is_some() && flight.frame.air.map_or(false, |air| !air.no_ack && !spent(air.tries))
    }

    /// How often a frame of a link is sent again: 802.11's rules for radios, those of the technology's collisions otherwise.
    pub(super) fn retry_limit(&self, l: usize) -> u32 {
        let (port, group) = (self.links[l].from, self.links[l].to.is_none());
        if self.ports[port].radio {
            return Contention::Dot11.retries(group);
        }
        self.contenders.retries(port, group)
    }

    /// Puts a frame that was not received back in front of all others.
    fn retry(&mut self, flight: Flight, at_ns: u64) {
        let l = flight.account;
        let link = &mut self.links[l];
        link.counters.retries += 1;
        link.queue.push_front(Waiting { since_ns: at_ns, frame: flight.frame });
        if link.queue.len() == 1 {
            self.access.backlog(l);
        }
    }

    fn arrive(&mut self, mut flight: Flight, deliver: &mut impl FnMut(usize, &Frame) -> bool) {
        let via = &self.links[flight.via];
        let port = match via.to {
            Some(port) if via.cut <= flight.started => port,
            _ => return self.lose(flight),
        };
        if let Some(air) = &mut flight.frame.air {
            air.signal_dbm = via.state.signal_dbm;
            air.kbps = (via.state.capacity_mbps * 1e3) as u32;
        }
        let counters = &mut self.links[flight.account].counters;
        counters.frames += 1;
        counters.bytes += flight.frame.payload_bytes();
        if deliver(port, &flight.frame) {
            self.ports[port].sent += 1;
        } else {
            self.ports[port].refused += 1;
        }
        self.end(flight, Outcome::Acknowledged);
    }

    fn lose(&mut self, flight: Flight) {
        self.links[flight.account].counters.lost += 1;
        self.end(flight, Outcome::Unanswered);
    }

    /// Of copies of a group frame nobody is told: that was when it was sent.
    fn end(&mut self, flight: Flight, outcome: Outcome) {
        let link = &self.links[flight.account];
        match link.to {
            Some(_) => self.settle(link.from, flight.frame, outcome),
            None => self.recycle(flight.frame),
        }
    }

    /// State of a configured link.
    pub fn link_state(&self, l: usize) -> LinkState {
        self.links[l].state
    }

    /// Whether a port is a radio.
    pub fn is_radio(&self, port: usize) -> bool {
        self.ports[port].radio
    }

    /// Changes a configured link at the time last advanced to. What is in the air keeps the rate it started with; if the
    /// link is cut, it is lost, and what waits is dropped.
    pub fn set_link(&mut self, l: usize, state: LinkState) {
        let was_live = self.links[l].is_live();
        self.links[l].state = state;
        if was_live && !self.links[l].is_live() {
            self.serial += 1;
            self.links[l].cut = self.serial;
            self.drop_queue(l);
        }
        self.refresh_broadcast(self.links[l].from);
    }

    fn drop_queue(&mut self, l: usize) {
        let queue = std::mem::take(&mut self.links[l].queue);
        if !queue.is_empty() {
            self.access.withdraw(l);
        }
        self.links[l].counters.dropped += queue.len() as u64;
        let port = self.links[l].from;
        queue.into_iter().for_each(|waiting| self.settle(port, waiting.frame, Outcome::Unanswered));
    }

    /// The broadcast link of a port runs at the rate of its slowest live link.
    fn refresh_broadcast(&mut self, port: usize) {
        let broadcast = match self.ports[port].broadcast {
            Some(broadcast) => broadcast,
            None => return,
        };
        let live = self.ports[port].links.iter().map(|&l| &self.links[l]).filter(|l| l.is_live());
        let slowest = live.map(|l| l.state.capacity_mbps).fold(f64::INFINITY, f64::min);
        let up = slowest.is_finite();
        let state = &mut self.links[broadcast].state;
        state.up = up;
        state.capacity_mbps = if up { slowest } else { 0.0 };
        if !up {
            self.drop_queue(broadcast);
        }
    }

    /// Sends everything from `port` to the port `to` from now on, or by destination address again. False, and nothing
    /// changed, if no link leads there, or the port is a radio: its frames themselves say whom they are for.
    pub fn set_uplink(&mut self, port: usize, to: Option<usize>) -> bool {
        if self.ports[port].radio {
            return to.is_none();
        }
        let link = match to {
            None => None,
            Some(to) => {
                let found = self.ports[port].links.iter().copied().find(|&l| self.links[l].to == Some(to));
                if found.is_none() {
                    return false;
                }
                found
            }
        };
        self.ports[port].uplink = link;
        true
    }
}
