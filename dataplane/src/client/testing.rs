//! Two engines with links between them in virtual time, and packets for them.

use super::config::{Config, Request};
use super::engine::{Effects, Engine, Notice, Session};
use super::link::LinkState;
use super::send::To;
use super::tunnel::Key;
use crate::edge::buffer::Pool;
use crate::ip::{self, testing::plain_sum, testing::set_sum, Sum, ICMP, ICMPV6, TCP, UDP};
use crate::rng::Rng;
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

pub const MS: u64 = 1_000_000;
pub const CLIENT: &str = "100.72.0.2:40000";
pub const SERVER: &str = "192.0.2.9:443";
pub const WAYPOINT: &str = "203.0.113.1:6656";
pub const KEY: &str = "000102030405060708090a0b0c0d0e0f";
const PACKET: usize = 1500;
/// Where virtual time begins: no test depends on 0.
const START_NS: u64 = 5_000 * MS;

/// What a `configure` request says, or why it is refused.
pub fn config(text: &str) -> Result<Config, String> {
    match serde_json::from_str(text) {
        Ok(Request::Configure(entry)) => Config::of(&entry),
        Ok(other) => Err(format!("{other:?}")),
        Err(error) => Err(error.to_string()),
    }
}

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// A packet with right checksums around a segment.
pub fn around(protocol: u8, source: IpAddr, destination: IpAddr, segment: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            bytes.extend_from_slice(&[0x45, 0]);
            bytes.extend_from_slice(&((20 + segment.len()) as u16).to_be_bytes());
            bytes.extend_from_slice(&[0, 7, 0, 0, 64, protocol, 0, 0]);
            bytes.extend_from_slice(&source.octets());
            bytes.extend_from_slice(&destination.octets());
            let sum = !plain_sum(&bytes);
            bytes[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            bytes.extend_from_slice(&[0x60, 0, 0, 0]);
            bytes.extend_from_slice(&(segment.len() as u16).to_be_bytes());
            bytes.extend_from_slice(&[protocol, 64]);
            bytes.extend_from_slice(&source.octets());
            bytes.extend_from_slice(&destination.octets());
        }
        _ => panic!("two families"),
    }
    bytes.extend_from_slice(segment);
    set_sum(&mut bytes, false);
    bytes
}

pub fn udp(source: &str, destination: &str, payload: &[u8]) -> Vec<u8> {
    let (source, destination) = (address(source), address(destination));
    let mut segment = Vec::new();
    segment.extend_from_slice(&source.port().to_be_bytes());
    segment.extend_from_slice(&destination.port().to_be_bytes());
    segment.extend_from_slice(&((8 + payload.len()) as u16).to_be_bytes());
    segment.extend_from_slice(&[0, 0]);
    segment.extend_from_slice(payload);
    around(UDP, source.ip(), destination.ip(), &segment)
}

/// A TCP segment with an MSS option of 1460 bytes if it is a SYN.
pub fn tcp(source: &str, destination: &str, flags: u8, payload: &[u8]) -> Vec<u8> {
    let (source, destination) = (address(source), address(destination));
    let mut segment = Vec::new();
    segment.extend_from_slice(&source.port().to_be_bytes());
    segment.extend_from_slice(&destination.port().to_be_bytes());
    segment.extend_from_slice(&[0, 0, 1, 0, 0, 0, 2, 0]);
    let options: &[u8] = if flags & ip::SYN != 0 { &[2, 4, 0x05, 0xb4] } else { &[] };
    segment.extend_from_slice(&[(((20 + options.len()) / 4) << 4) as u8, flags, 0xff, 0xff, 0, 0, 0, 0]);
    segment.extend_from_slice(options);
    segment.extend_from_slice(payload);
    around(TCP, source.ip(), destination.ip(), &segment)
}

/// A ping, or the answer to one; `id` is its identifier.
pub fn echo(source: &str, destination: &str, id: u16, is_reply: bool) -> Vec<u8> {
    let (source, destination): (IpAddr, IpAddr) = (source.parse().unwrap(), destination.parse().unwrap());
    let (protocol, kind) = match (source.is_ipv4(), is_reply) {
        (true, false) => (ICMP, 8),
        (true, true) => (ICMP, 0),
        (false, false) => (ICMPV6, 128),
        (false, true) => (ICMPV6, 129),
    };
    let mut segment = vec![kind, 0, 0, 0];
    segment.extend_from_slice(&id.to_be_bytes());
    segment.extend_from_slice(&[0, 1, 9, 9, 9, 9]);
    around(protocol, source, destination, &segment)
}

/// A UDP packet of the flow `port` that carries its number.
pub fn numbered(port: u16, number: u32, bytes: usize) -> Vec<u8> {
    let mut payload = number.to_be_bytes().to_vec();
    payload.resize(bytes.saturating_sub(28).max(4), 0xaa);
    udp(&format!("100.72.0.2:{port}"), SERVER, &payload)
}

/// As `numbered`, from the server to the client.
pub fn numbered_back(port: u16, number: u32, bytes: usize) -> Vec<u8> {
    let mut payload = number.to_be_bytes().to_vec();
    payload.resize(bytes.saturating_sub(28).max(4), 0xbb);
    udp(SERVER, &format!("100.72.0.2:{port}"), &payload)
}

/// The numbers of the packets of a flow, as they came; `port` is the client's.
pub fn numbers(packets: &[(u64, Vec<u8>)], port: u16) -> Vec<u32> {
    let of = |bytes: &Vec<u8>| {
        let packet = ip::parse(bytes).ok()?;
        let is_its = packet.tuple.source.port == port || packet.tuple.destination.port == port;
        let number = bytes.get(packet.l4_at + 8..packet.l4_at + 12)?;
        if is_its && packet.tuple.protocol == UDP {
            Some(u32::from_be_bytes(number.try_into().ok()?))
        } else {
            None
        }
    };
    packets.iter().filter_map(|(_, bytes)| of(bytes)).collect()
}

/// One interface of the client and the way from there to the waypoint.
pub struct Wire {
    pub rate_mbps: f64,
    pub delay_ns: u64,
    pub loss: f64,
    /// Nothing arrives any more, and nobody tells.
    pub is_cut: bool,
    /// What leaves later than this is lost: the carrier went.
    dead_ns: u64,
    free_ns: [u64; 2],
    /// Where the waypoint sees datagrams come from: changed by a NAT that begins anew.
    pub seen_from: SocketAddr,
    pub carried: [usize; 2],
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Flight {
    at_ns: u64,
    number: u64,
    left_ns: u64,
    link: usize,
    is_up: bool,
    bytes: Vec<u8>,
    from: SocketAddr,
}

pub struct End {
    pub engine: Engine,
    pub fx: Effects,
    /// What its host got, and when.
    pub host: Vec<(u64, Vec<u8>)>,
    pub notices: Vec<Notice>,
}

impl End {
    fn new(engine: Engine) -> End {
        End { engine, fx: Effects::new(Pool::new(1792, 8192)), host: Vec::new(), notices: Vec::new() }
    }

    fn collect(&mut self, now_ns: u64) {
        for buf in self.fx.to_host.drain(..) {
            self.host.push((now_ns, buf.bytes().to_vec()));
            self.fx.pool.give(buf);
        }
        self.notices.append(&mut self.fx.notices);
    }

    pub fn give(&mut self, now_ns: u64, bytes: &[u8]) {
        if let Some(buf) = self.fx.pool.take_with(bytes) {
            self.engine.from_host(now_ns, buf, &mut self.fx);
        }
        self.collect(now_ns);
    }

    /// A datagram of the tunnel.
    pub fn datagram(&mut self, now_ns: u64, bytes: &[u8], from: SocketAddr) -> bool {
        let known = match self.fx.pool.take_with(bytes) {
            Some(buf) => self.engine.from_tunnel(now_ns, buf, from, &mut self.fx),
            None => false,
        };
        self.collect(now_ns);
        known
    }

    /// Ends everything; every buffer must be back.
    pub fn end(&mut self, now_ns: u64) {
        self.engine.end(now_ns, &mut self.fx);
        self.collect(now_ns);
        assert_eq!(self.fx.pool.in_use(), 0, "buffers leak");
    }
}

/// A client and its waypoint.
pub struct Sim {
    pub now_ns: u64,
    pub client: End,
    pub waypoint: End,
    pub wires: Vec<Wire>,
    flights: BinaryHeap<Reverse<Flight>>,
    launched: u64,
    rng: Rng,
    /// Packets that left straight: when, over which interface.
    pub direct: Vec<(u64, usize, Vec<u8>)>,
    /// All datagrams of the tunnel: link, whether to the waypoint, bytes.
    pub recorded: Vec<(usize, bool, Vec<u8>)>,
    pub records: bool,
    /// Whether interfaces take many datagrams at a time.
    pub bursts: bool,
    /// The most datagrams that an interface took at a time.
    pub most_together: usize,
}

pub fn session(number: u32) -> Session {
    Session::of_waypoint(number, Key::parse(KEY).unwrap())
}

/// A rule for everything.
pub fn rule(extra: &str, interfaces: &[&str], via: &str) -> String {
    format!(r#"{{"name":"rest",{extra}"interfaces":{interfaces:?},"via":"{via}"}}"#)
}

/// A `configure` request; interfaces are JSON without braces.
pub fn configuration(interfaces: &[String], rules: &str) -> String {
    let interfaces: Vec<String> = interfaces.iter().map(|interface| format!("{{{interface}}}")).collect();
    format!(
        r#"{{"type":"configure","seq":1,"address4":"100.72.0.2","address6":"fd00::2","interfaces":[{}],
           "waypoint":{{"address":"203.0.113.1","port":6656,"session":7,"key":"{KEY}"}},"rules":[{rules}]}}"#,
        interfaces.join(",")
    )
}

pub fn up(link: usize) -> LinkState {
    LinkState {
        up: true,
        address4: Some(Ipv4Addr::new(198, 51, 100 + link as u8, 4)),
        address6: Some(std::net::Ipv6Addr::new(0x2001, 0xdb8, link as u16, 0, 0, 0, 0, 4)),
        mtu: 1500,
    }
}

impl Sim {
    /// Links by rate (Mb/s) and delay (ms); everything goes through the waypoint.
    pub fn new(links: &[(f64, u64)]) -> Sim {
        let names: Vec<String> = (0..links.len()).map(|k| format!("if{k}")).collect();
        let names: Vec<&str> = names.iter().map(|name| name.as_str()).collect();
        Sim::with_rules(links, &rule("", &names, "waypoint"))
    }

    pub fn with_rules(links: &[(f64, u64)], rules: &str) -> Sim {
        let wire = |(number, (rate_mbps, delay_ms)): (usize, &(f64, u64))| Wire {
            rate_mbps: *rate_mbps,
            delay_ns: delay_ms * MS,
            loss: 0.0,
            is_cut: false,
            dead_ns: u64::MAX,
            free_ns: [0; 2],
            seen_from: SocketAddr::new(IpAddr::V4(Ipv4Addr::new(198, 51, 100 + number as u8, 4)), 5000),
            carried: [0; 2],
        };
        let waypoint = Engine::waypoint(session(7), Some(Ipv4Addr::new(100, 72, 0, 2)), "fd00::2".parse().ok());
        let mut sim = Sim {
            now_ns: START_NS,
            client: End::new(Engine::client()),
            waypoint: End::new(waypoint),
            wires: links.iter().enumerate().map(wire).collect(),
            flights: BinaryHeap::new(),
            launched: 0,
            rng: Rng::new(7),
            direct: Vec::new(),
            recorded: Vec::new(),
            records: false,
            bursts: false,
            most_together: 0,
        };
        sim.configure(rules);
        for number in 0..links.len() {
            sim.client.engine.link_state(sim.now_ns, number, up(number), &mut sim.client.fx);
        }
        // The first hellos.
        sim.run_ms(2 * links.iter().map(|link| link.1).max().unwrap_or(0) + 20);
        sim
    }

    /// The same interfaces, each with its rate, and other rules.
    pub fn configure(&mut self, rules: &str) {
        let interface = |(k, wire): (usize, &Wire)| format!(r#""name":"if{k}","rate_mbps":{:?}"#, wire.rate_mbps);
        let interfaces: Vec<String> = self.wires.iter().enumerate().map(interface).collect();
        self.configure_text(&configuration(&interfaces, rules));
    }

    pub fn configure_text(&mut self, text: &str) {
        let config = config(text).unwrap();
        self.client.engine.configure(self.now_ns, config, &mut self.client.fx);
        self.client.collect(self.now_ns);
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.client.give(self.now_ns, bytes);
        self.pump();
    }

    pub fn reply(&mut self, bytes: &[u8]) {
        self.waypoint.give(self.now_ns, bytes);
        self.pump();
    }

    /// A packet comes to the client's own address on an interface; whether it was the stack's.
    pub fn wire(&mut self, link: usize, bytes: &[u8]) -> Option<Vec<u8>> {
        let mut bytes = bytes.to_vec();
        let is_ours = self.client.engine.from_wire(self.now_ns, link, &mut bytes, Sum::Whole, &mut self.client.fx);
        self.client.collect(self.now_ns);
        if is_ours {
            Some(bytes)
        } else {
            None
        }
    }

    /// An interface loses its carrier, with what it has not yet sent.
    pub fn unplug(&mut self, link: usize) {
        self.wires[link].dead_ns = self.now_ns;
        self.state(link, LinkState { up: false, ..up(link) });
    }

    pub fn plug(&mut self, link: usize) {
        self.wires[link].dead_ns = u64::MAX;
        self.wires[link].free_ns = [self.now_ns; 2];
        self.state(link, up(link));
    }

    pub fn state(&mut self, link: usize, state: LinkState) {
        self.client.engine.link_state(self.now_ns, link, state, &mut self.client.fx);
        self.client.collect(self.now_ns);
        self.pump();
    }

    pub fn run_ms(&mut self, ms: u64) {
        self.run_until(self.now_ns + ms * MS);
    }

    pub fn run_until(&mut self, end_ns: u64) {
        self.pump();
        loop {
            let next_ns = self.next_ns();
            if next_ns > end_ns {
                break;
            }
            assert!(next_ns >= self.now_ns);
            // A timer that is due and does nothing would spin for ever.
            self.now_ns = next_ns.max(self.now_ns + 1);
            while self.flights.peek().map_or(false, |flight| flight.0.at_ns <= self.now_ns) {
                self.land();
            }
            self.pump();
        }
        self.now_ns = end_ns;
    }

    /// Goes on later; what is on its way is lost.
    pub fn jump(&mut self, to_ns: u64) {
        self.flights.clear();
        self.now_ns = to_ns;
        for wire in &mut self.wires {
            wire.free_ns = [to_ns; 2];
        }
    }

    fn next_ns(&self) -> u64 {
        let flight = self.flights.peek().map_or(u64::MAX, |flight| flight.0.at_ns);
        let mut next_ns = flight;
        for (end, side) in [(&self.client, 0), (&self.waypoint, 1)] {
            next_ns = next_ns.min(end.engine.next_due(self.now_ns).max(self.now_ns));
            for (number, wire) in self.wires.iter().enumerate() {
                if let Some(at_ns) = end.engine.ready_at(self.now_ns, number) {
                    next_ns = next_ns.min(at_ns.max(wire.room_ns(side)));
                }
            }
        }
        next_ns
    }

    fn land(&mut self) {
        let flight = match self.flights.pop() {
            Some(Reverse(flight)) => flight,
            None => return,
        };
        let wire = &self.wires[flight.link];
        if wire.is_cut || flight.is_up && flight.left_ns > wire.dead_ns || self.now_ns > wire.dead_ns && !flight.is_up {
            return;
        }
        let end = if flight.is_up { &mut self.waypoint } else { &mut self.client };
        end.datagram(self.now_ns, &flight.bytes, flight.from);
    }

    fn launch(&mut self, link: usize, is_up: bool, bytes: Vec<u8>, to: SocketAddr) {
        if self.records {
            self.recorded.push((link, is_up, bytes.clone()));
        }
        let is_lost = self.rng.chance(self.wires[link].loss);
        let wire = &mut self.wires[link];
        let side = usize::from(!is_up);
        let wanted = if is_up { address(WAYPOINT) } else { wire.seen_from };
        wire.carried[side] += bytes.len();
        let left_ns = wire.free_ns[side].max(self.now_ns) + (bytes.len() as f64 * 8e3 / wire.rate_mbps) as u64;
        wire.free_ns[side] = left_ns;
        let from = if is_up { wire.seen_from } else { address(WAYPOINT) };
        if !is_lost && to == wanted {
            self.launched += 1;
            let (at_ns, number) = (left_ns + wire.delay_ns, self.launched);
            self.flights.push(Reverse(Flight { at_ns, number, left_ns, link, is_up, bytes, from }));
        }
    }

    /// Both ends do what is due and send what may leave.
    pub fn pump(&mut self) {
        for is_up in [true, false] {
            let side = usize::from(!is_up);
            let end = if is_up { &mut self.client } else { &mut self.waypoint };
            for _ in 0..3 {
                if end.engine.next_due(self.now_ns) <= self.now_ns {
                    end.engine.poll(self.now_ns, &mut end.fx);
                }
            }
            assert!(end.engine.next_due(self.now_ns) > self.now_ns, "due again and again");
            end.collect(self.now_ns);
            for message in std::mem::take(&mut end.fx.messages) {
                self.launch(usize::from(message.link), is_up, message.bytes().to_vec(), message.to);
            }
            for link in 0..self.wires.len() {
                self.feed(link, is_up, side);
            }
        }
    }

    fn feed(&mut self, link: usize, is_up: bool, side: usize) {
        while self.wires[link].room_ns(side) <= self.now_ns {
            let end = if is_up { &mut self.client } else { &mut self.waypoint };
            if end.engine.ready_at(self.now_ns, link).map_or(true, |at_ns| at_ns > self.now_ns) {
                return;
            }
            end.engine.links[link].takes_bursts = self.bursts;
            let taken = match end.engine.take(self.now_ns, link, &mut end.fx) {
                Some(taken) => taken,
                None => return,
            };
            let (to, bytes) = (taken.to, taken.bytes().to_vec());
            let more: Vec<Vec<u8>> = taken.more().map(|parts| parts.concat()).collect();
            self.most_together = self.most_together.max(1 + more.len());
            end.engine.sent(self.now_ns, link, taken, &mut end.fx);
            match to {
                To::Wire(_) => {
                    let wire = &mut self.wires[link];
                    let took_ns = (bytes.len() as f64 * 8e3 / wire.rate_mbps) as u64;
                    wire.free_ns[side] = wire.free_ns[side].max(self.now_ns) + took_ns;
                    wire.carried[side] += bytes.len();
                    self.direct.push((self.now_ns, link, bytes));
                }
                To::Tunnel { head, to } => {
                    self.launch(link, is_up, [&head[..], &bytes[..]].concat(), to);
                    more.into_iter().for_each(|datagram| self.launch(link, is_up, datagram, to));
                }
            }
        }
    }

    /// Ends both engines; every buffer must be back.
    pub fn end(mut self) {
        self.client.end(self.now_ns);
        self.waypoint.end(self.now_ns);
    }

    /// The interface that a flow of the client uses.
    pub fn home(&self, port: u16) -> Option<u8> {
        let flows = &self.client.engine.flows;
        let is_its = |slot: &usize| flows.get(*slot).map_or(false, |flow| flow.tuple.source.port == port);
        flows.get(flows.slots().find(is_its)?)?.home
    }

    /// The number of a flow of the client.
    pub fn number(&self, port: u16) -> Option<u16> {
        let flows = &self.client.engine.flows;
        let is_its = |slot: &usize| flows.get(*slot).map_or(false, |flow| flow.tuple.source.port == port);
        Some(flows.get(flows.slots().find(is_its)?)?.number)
    }
}

impl Wire {
    /// When there is room: at most two packets wait below the queue.
    fn room_ns(&self, side: usize) -> u64 {
        let packet_ns = (PACKET as f64 * 8e3 / self.rate_mbps) as u64;
        self.free_ns[side].saturating_sub(packet_ns)
    }
}

/// Fails unless every number from 0 to `count` is there once and in order.
pub fn assert_all(got: &[u32], count: u32, what: &str) {
    let missing: Vec<u32> =
        (0..count).collect::<BTreeSet<u32>>().difference(&got.iter().copied().collect()).copied().collect();
    assert!(
        missing.is_empty(),
        "{what}: {} of {count} missing: {:?}",
        missing.len(),
        &missing[..missing.len().min(20)]
    );
    assert_eq!(got.len(), count as usize, "{what}: something came twice");
    let swapped = got.windows(2).position(|pair| pair[0] > pair[1]);
    assert_eq!(swapped, None, "{what}: not in order");
}
