//! Strangers, recordings, restarts, and bytes of any kind.

use crate::client::engine::{Engine, Session};
use crate::client::flow::MOST_FLOWS;
use crate::client::testing::*;
use crate::client::tunnel::{self, Key, HEADER_LEN};
use crate::edge::frame::{Kind, Shim};
use crate::ip::{self, Sum, ACK, SYN};
use crate::rng::Rng;

fn key() -> Key {
    Key::parse(KEY).unwrap()
}

/// A datagram with a packet, as who has the key would make it.
fn forged(key: Key, session: u32, path: u8, flow: u16, sequence: u32, now_ns: u64, inner: &[u8]) -> Vec<u8> {
    let shim = Shim { kind: Kind::Data, path, flow, sequence, sent_us: (now_ns / 1000) as u32 };
    let mut bytes = tunnel::header(&shim, session, key, inner).to_vec();
    bytes.extend_from_slice(inner);
    bytes
}

fn stranger() -> std::net::SocketAddr {
    "198.18.0.66:666".parse().unwrap()
}

#[test]
fn strangers_are_counted_and_change_nothing() {
    let mut sim = Sim::new(&[(20.0, 5), (20.0, 5)]);
    sim.send(&numbered(1000, 0, 100));
    sim.run_ms(50);
    let flow = sim.number(1000).unwrap();
    sim.waypoint.host.clear();
    let inner = numbered(1000, 666, 100);
    let spoofed = udp("10.6.6.6:1000", SERVER, b"spoofed");
    for (bytes, what) in [
        (forged(Key::parse(&"f".repeat(32)).unwrap(), 7, 0, flow, 99, sim.now_ns, &inner), "wrong key"),
        (forged(key(), 8, 0, flow, 99, sim.now_ns, &inner), "other session"),
        (forged(key(), 7, 16, flow, 99, sim.now_ns, &inner), "no such interface"),
        (forged(key().of_waypoint(), 7, 0, flow, 99, sim.now_ns, &inner), "given back"),
        (vec![1; HEADER_LEN - 1], "cut"),
        (Vec::new(), "nothing"),
    ] {
        let before = sim.waypoint.fx.drops.clone();
        assert!(!sim.waypoint.datagram(sim.now_ns, &bytes, stranger()), "{what}");
        assert_eq!(sim.waypoint.fx.drops.unauthenticated, before.unauthenticated + 1, "{what}");
    }
    let bytes = forged(key(), 7, 0, flow, 99, sim.now_ns, &spoofed);
    assert!(sim.waypoint.datagram(sim.now_ns, &bytes, stranger()));
    assert_eq!(sim.waypoint.fx.drops.spoofed, 1);
    assert!(sim.waypoint.host.is_empty());
    // The tunnel still ends where the client is.
    assert!(sim.waypoint.engine.links.iter().all(|link| link.endpoint != Some(stranger())));
    sim.end();
}

#[test]
fn recordings_do_nothing() {
    let mut sim = Sim::new(&[(20.0, 5), (20.0, 5)]);
    sim.records = true;
    for number in 0..30 {
        sim.send(&numbered(1000, number, 100));
        sim.reply(&numbered_back(1000, number, 100));
        sim.run_ms(20);
        if number % 10 == 9 {
            let to = 1 - usize::from(sim.home(1000).unwrap());
            let flow = sim.number(1000).unwrap();
            sim.client.engine.migrate(sim.now_ns, flow, &format!("if{to}"), &mut sim.client.fx).unwrap();
        }
    }
    sim.run_ms(500);
    let flow = sim.waypoint.engine.flows.of_number(sim.number(1000).unwrap()).expect("both use one number");
    assert_eq!(sim.waypoint.engine.flows.get(flow).unwrap().home, sim.home(1000));
    let recorded = std::mem::take(&mut sim.recorded);
    let state = |sim: &Sim| {
        let flows = &sim.waypoint.engine.flows;
        let flow = flows.get(flows.slots().next().unwrap()).unwrap();
        let ends: Vec<_> = sim.waypoint.engine.links.iter().map(|link| (link.endpoint, link.usable)).collect();
        let own = &sim.client.engine.links;
        let rtts: Vec<_> = own.iter().map(|link| (link.heartbeat.rtt_ns, link.heartbeat.alive)).collect();
        (flow.home, flow.pinned, flow.rights, flow.bind_serial, ends, rtts, sim.home(1000))
    };
    for later_ms in [0, 11_000, 40_000, 200_000] {
        // Once while the flow is there, and when everything but the session has long been forgotten.
        sim.run_ms(later_ms);
        let heard = (sim.waypoint.host.len(), sim.client.host.len());
        let before = state(&sim);
        for (_, is_up, bytes) in &recorded {
            let end = if *is_up { &mut sim.waypoint } else { &mut sim.client };
            end.datagram(sim.now_ns, bytes, stranger());
        }
        assert_eq!((sim.waypoint.host.len(), sim.client.host.len()), heard, "after {later_ms} ms");
        assert_eq!(state(&sim), before, "after {later_ms} ms");
        // Nor do they when given back to where they came from.
        for (_, is_up, bytes) in &recorded {
            let end = if *is_up { &mut sim.client } else { &mut sim.waypoint };
            assert!(!end.datagram(sim.now_ns, bytes, stranger()));
        }
        assert_eq!(state(&sim), before);
    }
    sim.end();
}

#[test]
fn recordings_begin_no_flow_that_has_ended() {
    let mut sim = Sim::new(&[(20.0, 5)]);
    sim.records = true;
    sim.send(&numbered(1000, 0, 100));
    sim.run_ms(100);
    let recorded = std::mem::take(&mut sim.recorded);
    sim.run_ms(400_000);
    assert_eq!(sim.waypoint.engine.flows.len(), 0);
    sim.waypoint.host.clear();
    for (_, _, bytes) in recorded.iter().filter(|(_, is_up, _)| *is_up) {
        sim.waypoint.datagram(sim.now_ns, bytes, stranger());
    }
    assert!(sim.waypoint.host.is_empty() && sim.waypoint.engine.flows.is_empty());
    sim.end();
}

#[test]
fn a_nat_that_begins_anew_is_followed() {
    let mut sim = Sim::new(&[(20.0, 5)]);
    sim.send(&numbered(1000, 0, 100));
    sim.run_ms(50);
    sim.wires[0].seen_from = "198.51.100.4:61000".parse().unwrap();
    sim.run_ms(1_100);
    sim.client.host.clear();
    sim.reply(&numbered_back(1000, 1, 100));
    sim.run_ms(50);
    assert_eq!(numbers(&sim.client.host, 1000), [1]);
    sim.end();
}

/// The client's program is started again: all that it knew is gone, key and session are the same.
fn restart(sim: &mut Sim) {
    let links = sim.wires.len();
    let mut old = std::mem::replace(&mut sim.client.engine, Engine::client());
    old.end(sim.now_ns, &mut sim.client.fx);
    let names: Vec<String> = (0..links).map(|k| format!("if{k}")).collect();
    let names: Vec<&str> = names.iter().map(|name| name.as_str()).collect();
    sim.configure(&rule("", &names, "waypoint"));
    (0..links).for_each(|link| sim.state(link, up(link)));
}

#[test]
fn a_client_that_is_started_again_goes_on_at_once() {
    for ran_ms in [300, 5_000, 100_000] {
        let mut sim = Sim::new(&[(20.0, 5), (20.0, 5)]);
        for number in 0..200 {
            sim.send(&numbered(1000, number, 1000));
            sim.reply(&numbered_back(1000, number, 1000));
            sim.run_ms(1 + ran_ms / 200);
        }
        restart(&mut sim);
        sim.run_ms(100);
        assert!(sim.client.engine.links.iter().all(|link| link.heartbeat.alive == Some(true)), "hellos are heard");
        // First the server speaks: the host has nothing to say.
        sim.client.host.clear();
        (0..50).for_each(|number| sim.reply(&numbered_back(1000, number, 1000)));
        sim.run_ms(200);
        assert_all(&numbers(&sim.client.host, 1000), 50, "down");
        sim.waypoint.host.clear();
        (0..50).for_each(|number| sim.send(&numbered(1000, number, 1000)));
        (0..50).for_each(|number| sim.send(&numbered(1001, number, 1000)));
        sim.run_ms(300);
        assert_all(&numbers(&sim.waypoint.host, 1000), 50, "up");
        assert_all(&numbers(&sim.waypoint.host, 1001), 50, "another flow, up");
        sim.end();
    }
}

#[test]
fn a_new_key_goes_on_with_all_flows_and_refuses_the_old_one() {
    let mut sim = Sim::new(&[(20.0, 5), (20.0, 5)]);
    (0..50).for_each(|number| sim.send(&numbered(1000, number, 1000)));
    sim.run_ms(300);
    let other = "ff".repeat(16);
    let session = Session::of_waypoint(7, Key::parse(&other).unwrap());
    sim.waypoint.engine.renew(session, &mut sim.waypoint.fx);
    sim.run_ms(50);
    let old = forged(key(), 7, 0, 1, 1 << 20, sim.now_ns, &numbered(1000, 7, 100));
    assert!(!sim.waypoint.datagram(sim.now_ns, &old, stranger()));
    let interfaces: Vec<String> = (0..2).map(|k| format!(r#""name":"if{k}","rate_mbps":20.0"#)).collect();
    let text = configuration(&interfaces, &rule("", &["if0", "if1"], "waypoint")).replace(KEY, &other);
    sim.configure_text(&text);
    sim.run_ms(50);
    (sim.client.host, sim.waypoint.host) = (Vec::new(), Vec::new());
    (0..50).for_each(|number| sim.send(&numbered(1000, number, 1000)));
    (0..50).for_each(|number| sim.reply(&numbered_back(1000, number, 1000)));
    sim.run_ms(300);
    assert_all(&numbers(&sim.waypoint.host, 1000), 50, "up");
    assert_all(&numbers(&sim.client.host, 1000), 50, "down");
    sim.end();
}

#[test]
fn without_its_tunnel_a_flow_begins_anew() {
    let mut sim = Sim::new(&[(20.0, 5)]);
    sim.send(&tcp(CLIENT, SERVER, SYN, b""));
    sim.send(&numbered(1000, 0, 100));
    sim.run_ms(50);
    sim.reply(&tcp(SERVER, CLIENT, SYN | ACK, b""));
    sim.run_ms(50);
    let text = configuration(&[r#""name":"if0""#.to_string()], &rule("", &["if0"], "direct"));
    let begin = text.find(r#""waypoint":"#).unwrap();
    let end = text.find(r#""rules":"#).unwrap();
    sim.configure_text(&format!("{}\"waypoint\":null,{}", &text[..begin], &text[end..]));
    sim.client.host.clear();
    sim.send(&tcp(CLIENT, SERVER, ACK, b"data"));
    assert_eq!(ip::parse(&sim.client.host[0].1).unwrap().tcp_flags & ip::RST, ip::RST);
    sim.send(&numbered(1000, 1, 100));
    sim.run_ms(10);
    assert_eq!(sim.direct.len(), 1, "UDP goes straight out now");
    sim.end();
}

#[test]
fn any_bytes_from_anywhere_do_no_harm() {
    let mut rng = Rng::new(11);
    let mut sim = Sim::with_rules(
        &[(50.0, 5), (50.0, 20)],
        &[
            r#"{"name":"direct","match":{"protocol":"udp"},"interfaces":["if0","if1"],"via":"direct"}"#.to_string(),
            r#"{"name":"copies","match":{"protocol":"icmp"},"copies":true,"interfaces":["if0","if1"],"via":"waypoint"}"#
                .to_string(),
            rule(r#""spread":"packet","#, &["if0", "if1"], "waypoint"),
        ]
        .join(","),
    );
    for turn in 0..20_000 {
        let mut bytes = ip::testing::broken_packet(&mut rng);
        bytes.truncate(1700);
        match rng.below(6) {
            0 => sim.send(&bytes),
            1 => sim.reply(&bytes),
            2 => drop(sim.wire(rng.below(3), &bytes)),
            3 => {
                let (path, flow) = (rng.below(18) as u8, [1, 2, 40_000, rng.bits() as u16][rng.below(4)]);
                let (session, sequence) = (7, rng.bits() as u32);
                let up = rng.below(2) == 0;
                let kind = [Kind::Data, Kind::KeepAlive, Kind::Pause, Kind::Padding, Kind::Resume][rng.below(5)];
                let shim = Shim { kind, path, flow, sequence, sent_us: (sim.now_ns / 1000) as u32 };
                let key = if up { key() } else { key().of_waypoint() };
                let datagram = [&tunnel::header(&shim, session, key, &bytes)[..], &bytes[..]].concat();
                let end = if up { &mut sim.waypoint } else { &mut sim.client };
                end.datagram(sim.now_ns, &datagram, stranger());
            }
            4 => {
                sim.waypoint.datagram(sim.now_ns, &bytes, stranger());
                sim.client.datagram(sim.now_ns, &bytes, stranger());
            }
            _ => {
                let text = bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
                assert!(crate::client::testing::config(&text).is_err());
            }
        }
        if turn % 10 == 0 {
            sim.run_ms(1);
        }
    }
    sim.run_ms(1_000);
    // And it still works.
    sim.waypoint.host.clear();
    sim.send(&tcp("100.72.0.2:999", SERVER, SYN, b""));
    sim.run_ms(100);
    assert_eq!(sim.waypoint.host.len(), 1);
    sim.end();
}

#[test]
fn an_interface_that_is_taken_away_keeps_no_buffer() {
    let mut sim = Sim::with_rules(&[(1.0, 5), (1.0, 5)], &rule(r#""copies":true,"#, &["if0", "if1"], "waypoint"));
    for number in 0..100 {
        sim.send(&numbered(1000, number, 1000));
        sim.run_ms(1);
    }
    let only = configuration(&[r#""name":"if1""#.to_string()], &rule("", &["if1"], "waypoint"));
    sim.configure_text(&only);
    sim.run_ms(10);
    let other = configuration(&[r#""name":"new0""#.to_string()], &rule("", &["new0"], "waypoint"));
    sim.configure_text(&other);
    assert_eq!(sim.client.engine.link_number("new0"), Some(0));
    sim.end();
}

#[test]
fn tables_stay_within_their_bounds_and_the_silent_make_room() {
    let mut sim = Sim::with_rules(&[(10_000.0, 1)], &rule("", &["if0"], "waypoint"));
    sim.send(&numbered(7, 0, 100));
    sim.run_ms(50);
    sim.reply(&numbered_back(7, 0, 100));
    sim.run_ms(50);
    for number in 0..MOST_FLOWS + 3_000 {
        let source = format!("100.72.0.2:{}", 1024 + number % 60_000);
        let server = format!("192.0.{}.9:80", number / 60_000);
        sim.send(&udp(&source, &server, b"new"));
        if number % 1000 == 0 {
            sim.send(&numbered(7, 1, 100));
            sim.run_ms(1);
        }
    }
    sim.run_ms(100);
    for end in [&sim.client, &sim.waypoint] {
        assert!(end.engine.flows.len() <= MOST_FLOWS && end.engine.flows.len() > MOST_FLOWS - 1_000);
    }
    sim.waypoint.host.clear();
    sim.send(&numbered(7, 2, 100));
    sim.run_ms(50);
    assert_eq!(numbers(&sim.waypoint.host, 7), [2]);
    sim.end();
}

#[test]
fn a_pool_that_is_used_up_costs_packets_and_no_more() {
    let mut sim = Sim::new(&[(0.1, 5), (100.0, 5)]);
    let slow = rule("", &["if0"], "waypoint")
        .replace(r#""rest","#, r#""slow","match":{"protocol":"udp","destination_port":[9,9]},"#);
    sim.configure(&format!("{slow},{}", rule("", &["if1"], "waypoint")));
    // Far more flows than buffers wait for the slow interface.
    for number in 0..40_000 {
        sim.send(&udp(&format!("100.72.0.2:{}", 2000 + number % 500), "192.0.2.9:9", &[0; 1000]));
    }
    sim.waypoint.host.clear();
    for number in 0..100 {
        sim.send(&numbered(1000, number, 1000));
        sim.run_ms(1);
    }
    sim.run_ms(100);
    assert_all(&numbers(&sim.waypoint.host, 1000), 100, "another flow");
    sim.end();
}

#[test]
fn checksums_that_the_kernel_has_not_finished_stay_so() {
    let mut sim = Sim::with_rules(&[(10.0, 1)], &rule("", &["if0"], "direct"));
    sim.send(&udp(CLIENT, SERVER, b"question"));
    sim.run_ms(5);
    let sent = ip::parse(&sim.direct[0].2).unwrap().tuple;
    let local = std::net::SocketAddr::new(sent.source.address, sent.source.port).to_string();
    let mut back = udp(SERVER, &local, b"answer");
    let packet = ip::parse(&back).unwrap();
    let partial = ip::testing::pseudo_sum(&back, &packet);
    back[26..28].copy_from_slice(&partial.to_be_bytes());
    assert!(sim.client.engine.from_wire(sim.now_ns, 0, &mut back, Sum::Partial, &mut sim.client.fx));
    let packet = ip::parse(&back).unwrap();
    assert_eq!(&back[26..28], ip::testing::pseudo_sum(&back, &packet).to_be_bytes());
    sim.end();
}
