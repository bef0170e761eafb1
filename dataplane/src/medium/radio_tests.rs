//! Decisions about frames of radios, in virtual time.

use super::config::ConflictRule::{Pairs, Technology};
use super::config::{Config, LinkState};
use super::contention::Contention;
use super::frame::{Air, Frame, Outcome};
use super::model::Model;
use super::parts::Report;
use super::rng::Rng;
use super::test_world::{config, SECOND};

/// L2 payload of a data frame, and what is around it: header with QoS control, and LLC.
const PAYLOAD: usize = 1250;
const AROUND: usize = 26 + 8;

/// Radios with links by (from, to, Mb/s), all contending.
fn radios(count: usize, links: &[(usize, usize, f64)]) -> Config {
    let names: Vec<String> = (0..count).map(|i| format!("r{i}")).collect();
    let ports: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "w")).collect();
    let mut config = config(&ports, links, Technology);
    config.ports.iter_mut().for_each(|port| port.radio = Some(port.mac));
    config
}

/// A data frame of port `from`; `to` None: to all.
fn data(from: usize, to: Option<usize>, cookie: u64) -> Frame {
    let mut bytes = vec![0; AROUND + PAYLOAD];
    bytes[0] = 0x88;
    let receiver = to.map_or([0xff; 6], |to| [2, 0, 0, 0, (to >> 8) as u8, to as u8]);
    bytes[4..10].copy_from_slice(&receiver);
    Frame { bytes, air: Some(Air { sender: from, cookie, mhz: 2412, ..Air::default() }) }
}

/// A model, what arrived as (port, cookie), and what senders were told.
struct Air80211 {
    model: Model,
    arrived: Vec<(usize, Air)>,
    told: Vec<Report>,
}

impl Air80211 {
    fn new(config: &Config) -> Air80211 {
        Air80211 { model: Model::new(config, 0), arrived: Vec::new(), told: Vec::new() }
    }

    fn run(&mut self, until_ns: u64) {
        let arrived = &mut self.arrived;
        self.model.advance(until_ns, &mut |port, frame| {
            arrived.push((port, frame.air.unwrap()));
            true
        });
        self.model.take_reports(&mut self.told);
    }

    fn outcomes(&self) -> Vec<(u64, Outcome, u32)> {
        self.told.iter().map(|report| (report.air.cookie, report.outcome, report.air.tries)).collect()
    }
}

fn loss(loss: f64, capacity_mbps: f64) -> LinkState {
    LinkState { loss, ..LinkState::of(capacity_mbps) }
}

#[test]
fn a_frame_takes_the_time_of_its_payload_and_is_acknowledged() {
    let mut air = Air80211::new(&radios(2, &[(0, 1, 10.0), (1, 0, 10.0)]));
    air.model.set_link(0, LinkState { signal_dbm: -61, ..LinkState::of(10.0) });
    air.model.receive(0, data(0, Some(1), 7), 0);
    // 1250 bytes at 10 Mb/s, whatever the headers of 802.11 are.
    air.run(999_999);
    assert!(air.arrived.is_empty() && air.told.is_empty());
    air.run(1_000_000);
    let (port, heard) = air.arrived[0];
    assert_eq!((port, heard.signal_dbm, heard.kbps, heard.mhz), (1, -61, 10_000, 2412));
    assert_eq!(air.outcomes(), [(7, Outcome::Acknowledged, 1)]);
}

#[test]
fn what_is_lost_is_sent_again_until_it_arrives_or_eight_tries_are_over() {
    let mut air = Air80211::new(&radios(2, &[(0, 1, 100.0)]));
    air.model.set_link(0, loss(0.3, 100.0));
    // 100 us a try: never more than 100 frames wait.
    let frames = 200_000;
    let (mut cookie, mut now_ns) = (0, 0);
    while cookie < frames {
        air.model.receive(0, data(0, Some(1), cookie), now_ns);
        cookie += 1;
        now_ns += 150_000;
        air.run(now_ns);
    }
    air.run(now_ns + SECOND);
    assert_eq!(air.told.len() as u64, frames);
    let order: Vec<u64> = air.arrived.iter().map(|(_, heard)| heard.cookie).collect();
    assert!(order.windows(2).all(|pair| pair[0] < pair[1]), "never out of order, never twice");
    let lost = air.told.iter().filter(|report| report.outcome == Outcome::Unanswered).count();
    assert_eq!(lost + order.len(), frames as usize);
    // 0.3^8 of them: 13 of 200 000.
    assert!((2..=30).contains(&lost), "{lost}");
    assert!(air.told.iter().filter(|r| r.outcome == Outcome::Unanswered).all(|r| r.air.tries == 8));
    let tries: u64 = air.told.iter().map(|report| u64::from(report.air.tries)).sum();
    assert!((tries as f64 / frames as f64 * 0.7 - 1.0).abs() < 0.01, "{tries}");
    let stats = air.model.link_stats(0, "");
    assert_eq!(stats.retries, tries - frames);
    assert_eq!((stats.frames, stats.lost, stats.dropped), (frames - lost as u64, lost as u64, 0));
}

#[test]
fn tries_cost_airtime() {
    let mut air = Air80211::new(&radios(2, &[(0, 1, 10.0)]));
    air.model.set_link(0, loss(0.3, 10.0));
    for step in 0..10_000u64 {
        air.model.receive(0, data(0, Some(1), step), step * 1_000_000);
        air.run((step + 1) * 1_000_000);
    }
    let stats = air.model.link_stats(0, "");
    assert!((stats.airtime - 1.0).abs() < 0.01);
    assert!((stats.bytes as f64 * 8e-6 / 10.0 / 7.0 - 1.0).abs() < 0.02, "{stats:?}");
}

#[test]
fn a_group_frame_is_sent_once_at_the_slowest_rate_and_reaches_all() {
    let mut air = Air80211::new(&radios(4, &[(0, 1, 10.0), (0, 2, 5.0), (0, 3, 100.0)]));
    air.model.set_link(2, LinkState { up: false, ..LinkState::of(100.0) });
    air.model.receive(0, data(0, None, 3), 0);
    air.run(1_999_999);
    assert!(air.told.is_empty());
    air.run(2_000_000);
    assert_eq!(air.arrived.iter().map(|(port, _)| *port).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(air.outcomes(), [(3, Outcome::ToGroup, 1)]);
    // Each neighbour may miss it, and nobody sends it again.
    air.model.set_link(0, loss(1.0, 10.0));
    air.model.receive(0, data(0, None, 4), 2_000_000);
    air.run(SECOND);
    assert_eq!((air.arrived.len(), air.outcomes()[1]), (3, (4, Outcome::ToGroup, 1)));
}

#[test]
fn a_frame_that_nobody_is_to_acknowledge_is_sent_once() {
    let mut air = Air80211::new(&radios(2, &[(0, 1, 10.0)]));
    air.model.set_link(0, loss(1.0, 10.0));
    let mut frame = data(0, Some(1), 5);
    frame.air.as_mut().unwrap().no_ack = true;
    air.model.receive(0, frame, 0);
    air.run(SECOND);
    assert_eq!(air.outcomes(), [(5, Outcome::Unanswered, 1)]);
}

#[test]
fn whoever_cannot_be_reached_does_not_answer() {
    let mut air = Air80211::new(&radios(3, &[(0, 1, 10.0)]));
    // No link; no such station; too short to say.
    air.model.receive(0, data(0, Some(2), 1), 0);
    air.model.receive(0, data(0, Some(9), 2), 0);
    air.model.receive(0, Frame { bytes: vec![0x88; 9], air: data(0, None, 3).air }, 0);
    // One in the air, two that wait, when the link is cut.
    (4..7).for_each(|cookie| air.model.receive(0, data(0, Some(1), cookie), 0));
    air.model.set_link(0, LinkState { up: false, ..LinkState::of(10.0) });
    air.model.receive(0, data(0, Some(1), 7), 0);
    air.run(SECOND);
    assert!(air.arrived.is_empty());
    let mut told = air.outcomes();
    told.sort_unstable_by_key(|(cookie, _, _)| *cookie);
    let expected: Vec<_> = (1..8).map(|cookie| (cookie, Outcome::Unanswered, u32::from(cookie == 4))).collect();
    assert_eq!(told, expected);
}

#[test]
fn a_full_queue_is_told_apart_from_a_bad_link() {
    let mut config = radios(2, &[(0, 1, 10.0)]);
    config.options.queue_frames = 2;
    let mut air = Air80211::new(&config);
    (0..5).for_each(|cookie| air.model.receive(0, data(0, Some(1), cookie), 0));
    air.run(SECOND);
    let dropped: Vec<u64> = air.told.iter().filter(|r| r.outcome == Outcome::Dropped).map(|r| r.air.cookie).collect();
    assert_eq!((dropped, air.arrived.len()), (vec![3, 4], 3));
}

#[test]
fn conflicts_hold_between_radios_and_ports_of_ethernet() {
    // A radio's link and a cable's share a medium; a second radio's link does not.
    let mut config = config(
        &[("r0", "w"), ("r1", "w"), ("t0", "p"), ("t1", "p"), ("r2", "w"), ("r3", "w")],
        &[(0, 1, 10.0), (2, 3, 10.0), (4, 5, 10.0)],
        Pairs(vec![(0, 1)]),
    );
    [0, 1, 4, 5].into_iter().for_each(|p| config.ports[p].radio = Some(config.ports[p].mac));
    let mut model = Model::new(&config, 0);
    let mut ethernet = vec![0; 14 + PAYLOAD];
    ethernet[..6].copy_from_slice(&[2, 0, 0, 0, 0, 3]);
    model.receive(0, data(0, Some(1), 1), 0);
    model.receive(2, ethernet, 0);
    model.receive(4, data(4, Some(5), 2), 0);
    let mut arrived = Vec::new();
    for at_ns in [1_000_000, 2_000_000] {
        model.advance(at_ns, &mut |port, _| {
            arrived.push((at_ns, port));
            true
        });
    }
    assert_eq!(arrived, [(1_000_000, 1), (1_000_000, 5), (2_000_000, 3)]);
    let mut told = Vec::new();
    model.take_reports(&mut told);
    assert_eq!(told.len(), 2);
}

#[test]
fn collisions_and_losses_together_are_at_most_eight_tries() {
    let mut config = radios(9, &(1..9).map(|from| (from, 0, 10.0)).collect::<Vec<_>>());
    config.contention.insert("w".to_string(), Contention::Dot11);
    let mut air = Air80211::new(&config);
    (0..8).for_each(|l| air.model.set_link(l, loss(0.4, 10.0)));
    let mut rng = Rng::new(2);
    let mut given = 0u64;
    for step in 1..20_000u64 {
        let from = 1 + rng.below(8);
        air.model.receive(from, data(from, Some(0), step), air.model.now_ns);
        given += 1;
        air.run(step * 2_000_000);
    }
    air.run(u64::MAX / 2);
    assert_eq!(air.told.len() as u64, given, "each frame is told of once");
    let unanswered = air.told.iter().filter(|r| r.outcome == Outcome::Unanswered);
    let tries: Vec<u32> = unanswered.map(|report| report.air.tries).collect();
    assert!(!tries.is_empty() && tries.iter().all(|&tries| tries == 8), "{tries:?}");
    assert!(air.told.iter().all(|report| report.air.tries <= 8));
    let collisions: u64 = (0..8).map(|l| air.model.link_stats(l, "").collisions).sum();
    assert!(collisions > 100);
    assert_eq!(air.arrived.len() + tries.len() + dropped(&air), given as usize);
}

fn dropped(air: &Air80211) -> usize {
    air.told.iter().filter(|report| report.outcome == Outcome::Dropped).count()
}
