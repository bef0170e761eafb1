//! A small world around the model for its tests: sources that send, relays that pass on, and what arrived where.

use super::config::{Config, ConflictRule, Link, LinkState, Options, Port};
use super::model::Model;

pub const SECOND: u64 = 1_000_000_000;
/// L2 payload of the test frames, in bytes.
pub const PAYLOAD: usize = 1250;

pub fn state(capacity_mbps: f64) -> LinkState {
    LinkState::of(capacity_mbps)
}

/// Ports by (name, technology), links by (from, to, Mb/s).
pub fn config(ports: &[(&str, &str)], links: &[(usize, usize, f64)], conflicts: ConflictRule) -> Config {
    let port = |(i, &(name, technology)): (usize, &(&str, &str))| Port {
        name: name.to_string(),
        netns: None,
        mac: [2, 0, 0, 0, (i >> 8) as u8, i as u8],
        technology: technology.to_string(),
        uplink: None,
        hears: None,
        radio: None,
        mtu: 1600,
    };
    let link = |(i, &(from, to, mbps)): (usize, &(usize, usize, f64))| Link {
        id: format!("link{i}"),
        from,
        to,
        state: state(mbps),
    };
    Config {
        options: Options::default(),
        ports: ports.iter().enumerate().map(port).collect(),
        links: links.iter().enumerate().map(link).collect(),
        conflicts,
        contention: Default::default(),
    }
}

/// A frame to a port, with `tag` in its payload.
pub fn frame(to: usize, payload: usize, tag: u8) -> Vec<u8> {
    let mut frame = vec![0; 14 + payload];
    frame[..6].copy_from_slice(&[2, 0, 0, 0, (to >> 8) as u8, to as u8]);
    if payload > 0 {
        frame[14] = tag;
    }
    frame
}

/// A frame to everyone.
pub fn group_frame(payload: usize) -> Vec<u8> {
    let mut frame = frame(0, payload, 0);
    frame[..6].copy_from_slice(&[0xff; 6]);
    frame
}

/// Sends frames of `PAYLOAD` bytes over a link: at a rate, or as many as the link takes.
pub struct Source {
    link: usize,
    tag: u8,
    interval_ns: Option<u64>,
    next_ns: u64,
}

pub fn saturated(link: usize) -> Source {
    Source { link, tag: 0, interval_ns: None, next_ns: 0 }
}

pub fn paced(link: usize, mbps: f64, tag: u8) -> Source {
    let interval_ns = (PAYLOAD as f64 * 8000.0 / mbps) as u64;
    Source { link, tag, interval_ns: Some(interval_ns), next_ns: 0 }
}

pub struct World {
    pub config: Config,
    pub model: Model,
    pub sources: Vec<Source>,
    /// (port that received, link that it goes on over)
    pub relays: Vec<(usize, usize)>,
    /// Payload bytes that arrived by port, and by tag at ports that don't relay.
    pub arrived: Vec<u64>,
    pub by_tag: [u64; 4],
    pub now_ns: u64,
}

impl World {
    pub fn new(config: Config) -> World {
        let model = Model::new(&config, 0);
        let arrived = vec![0; config.ports.len()];
        World { config, model, sources: vec![], relays: vec![], arrived, by_tag: [0; 4], now_ns: 0 }
    }

    pub fn send(&mut self, link: usize, payload: usize, tag: u8) {
        let (from, to) = (self.config.links[link].from, self.config.links[link].to);
        self.model.receive(from, frame(to, payload, tag), self.now_ns);
    }

    fn feed(&mut self) {
        for i in 0..self.sources.len() {
            let Source { link, tag, interval_ns, .. } = self.sources[i];
            match interval_ns {
                None => {
                    while self.model.links[link].is_live() && self.model.links[link].queued() < 20 {
                        self.send(link, PAYLOAD, tag);
                    }
                }
                Some(interval_ns) => {
                    while self.sources[i].next_ns <= self.now_ns {
                        self.send(link, PAYLOAD, tag);
                        self.sources[i].next_ns += interval_ns;
                    }
                }
            }
        }
    }

    /// Lets time pass up to `until_ns`.
    pub fn run(&mut self, until_ns: u64) {
        let mut deliveries: Vec<(usize, Vec<u8>)> = Vec::new();
        loop {
            self.feed();
            let due = self.sources.iter().filter(|s| s.interval_ns.is_some()).map(|s| s.next_ns);
            let next = due.chain(self.model.next_event_ns()).min().unwrap_or(until_ns).min(until_ns);
            self.model.advance(next, &mut |port, frame| {
                deliveries.push((port, frame.to_vec()));
                true
            });
            self.now_ns = next;
            for (port, frame) in deliveries.drain(..) {
                let payload = frame.len() - 14;
                self.arrived[port] += payload as u64;
                let tag = frame.get(14).copied().unwrap_or(0);
                match self.relays.iter().find(|r| r.0 == port) {
                    Some(&(_, link)) => {
                        let (from, to) = (self.config.links[link].from, self.config.links[link].to);
                        self.model.receive(from, self::frame(to, payload, tag), next);
                    }
                    None => self.by_tag[tag as usize] += payload as u64,
                }
            }
            if next >= until_ns {
                return;
            }
        }
    }

    /// Runs for `seconds` and gives what arrived at `port` meanwhile, in Mb/s.
    pub fn rate_mbps(&mut self, port: usize, seconds: f64) -> f64 {
        let before = self.arrived[port];
        self.run(self.now_ns + (seconds * SECOND as f64) as u64);
        (self.arrived[port] - before) as f64 * 8e-6 / seconds
    }
}
