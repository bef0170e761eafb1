//! Flows that go straight out: what the wire sees, and what becomes of them when their interface changes.

use crate::client::flow::{FIRST_PORT, LAST_PORT};
use crate::client::link::LinkState;
use crate::client::testing::*;
use crate::ip::{self, testing::assert_right_sums, ACK, RST, SYN};
use std::net::Ipv4Addr;

const SYN_ACK: u8 = SYN | ACK;

fn direct(links: usize) -> Sim {
    let names: Vec<String> = (0..links).map(|k| format!("if{k}")).collect();
    let names: Vec<&str> = names.iter().map(|name| name.as_str()).collect();
    Sim::with_rules(&vec![(100.0, 5); links], &rule("", &names, "direct"))
}

fn tuple(bytes: &[u8]) -> ip::Tuple {
    ip::parse(bytes).unwrap().tuple
}

/// What leaves for a packet of the host, and over which interface.
fn out(sim: &mut Sim, bytes: &[u8]) -> Option<(usize, Vec<u8>)> {
    sim.direct.clear();
    sim.send(bytes);
    sim.run_ms(5);
    sim.direct.pop().map(|(_, link, bytes)| (link, bytes))
}

/// The answer of the host at the other end: source and destination swapped.
fn answer(sent: &[u8], flags: u8) -> Vec<u8> {
    let sent = tuple(sent);
    let shown = |end: ip::Endpoint| std::net::SocketAddr::new(end.address, end.port).to_string();
    tcp(&shown(sent.destination), &shown(sent.source), flags, b"")
}

/// A configuration of one interface, with or without a waypoint, whose flows want one.
fn wants_waypoint(sim: &mut Sim, on_loss: &str, has_waypoint: bool) {
    let rules = rule(on_loss, &["if0"], "waypoint");
    let text = configuration(&[r#""name":"if0","rate_mbps":100.0"#.to_string()], &rules);
    let none = format!(r#""waypoint":null,"rules":[{rules}]}}"#);
    let at = text.find(r#""waypoint":{"#).unwrap();
    sim.configure_text(&if has_waypoint { text } else { format!("{}{none}", &text[..at]) });
}

#[test]
fn new_flows_are_blocked_without_a_waypoint_where_the_policy_says_so() {
    let syn = |port: u16| tcp(&format!("100.72.0.2:{port}"), SERVER, SYN, b"");
    let block = r#""on_loss":"block","#;
    let mut sim = Sim::new(&[(100.0, 5)]);
    wants_waypoint(&mut sim, block, false);
    assert_eq!(out(&mut sim, &syn(40_001)), None);
    // Nor from another address that the host has, which the waypoint would not carry.
    assert_eq!(out(&mut sim, &tcp("10.9.9.9:40001", SERVER, SYN, b"")), None);
    assert_eq!(sim.home(40_001), None);
    wants_waypoint(&mut sim, block, true);
    sim.run_ms(50);
    assert_eq!(out(&mut sim, &syn(40_001)), None);
    sim.run_ms(50);
    assert!(sim.waypoint.host.iter().any(|(_, packet)| tuple(packet).source.port == 40_001));
    sim.end();
}

#[test]
fn new_flows_go_direct_while_the_waypoint_is_silent_unless_they_are_blocked() {
    for (on_loss, is_direct) in [("", true), (r#""on_loss":"direct","#, true), (r#""on_loss":"block","#, false)] {
        let mut sim = Sim::new(&[(100.0, 5)]);
        wants_waypoint(&mut sim, on_loss, true);
        sim.send(&numbered(1000, 0, 100));
        sim.run_ms(50);
        sim.wires[0].is_cut = true;
        for number in 0..300 {
            sim.send(&numbered(1000, number, 100));
            sim.run_ms(10);
        }
        let syn = tcp("100.72.0.2:40001", SERVER, SYN, b"");
        assert_eq!(out(&mut sim, &syn).is_some(), is_direct, "{}", on_loss);
        sim.wires[0].is_cut = false;
        sim.run_ms(3_000);
        sim.waypoint.host.clear();
        // Flows that begin now go through it again.
        assert_eq!(out(&mut sim, &tcp("100.72.0.2:40002", SERVER, SYN, b"")), None);
        sim.run_ms(50);
        assert!(sim.waypoint.host.iter().any(|(_, packet)| tuple(packet).source.port == 40_002));
        sim.end();
    }
}

#[test]
fn addresses_and_ports_are_rewritten_forth_and_back_in_both_families() {
    let mut sim = direct(1);
    for (own, there, local) in [
        ("100.72.0.2", "192.0.2.9", "198.51.100.4"),
        ("fd00::2", "2001:db8:9::9", "2001:db8::4"),
        // Not the tunnel's address: any other that the host puts on hr0.
        ("10.9.9.9", "192.0.2.9", "198.51.100.4"),
    ] {
        let end = |address: &str, port: u16| std::net::SocketAddr::new(address.parse().unwrap(), port).to_string();
        for udp_too in [false, true] {
            let (source, destination) = (end(own, 40_000), end(there, 443));
            let build = |s: &str, d: &str| if udp_too { udp(s, d, b"hi!") } else { tcp(s, d, SYN, b"") };
            let (link, sent) = out(&mut sim, &build(&source, &destination)).unwrap();
            let wire = tuple(&sent);
            assert_eq!((link, wire.source.address), (0, local.parse().unwrap()));
            assert!((FIRST_PORT..=LAST_PORT).contains(&wire.source.port));
            assert_eq!((wire.destination.address, wire.destination.port), (there.parse().unwrap(), 443));
            assert_right_sums(&sent);
            let back = build(&destination, &end(local, wire.source.port));
            let got = sim.wire(0, &back).unwrap();
            assert_eq!(tuple(&got), tuple(&build(&destination, &source)));
            assert_right_sums(&got);
            // Another port, another host, another interface: not ours.
            assert!(sim.wire(0, &build(&destination, &end(local, wire.source.port ^ 1))).is_none());
            assert!(sim.wire(0, &build(&end(there, 444), &end(local, wire.source.port))).is_none());
            assert!(sim.wire(1, &back).is_none());
        }
        let (_, sent) = out(&mut sim, &echo(own, there, 77, false)).unwrap();
        assert_right_sums(&sent);
        let got = sim.wire(0, &echo(there, local, tuple(&sent).source.port, true)).unwrap();
        assert_eq!(got, echo(there, own, 77, true));
    }
    sim.end();
}

#[test]
fn errors_about_a_flow_reach_the_host_as_if_they_were_about_its_own_packet() {
    let mut sim = direct(1);
    let sent_by_host = udp("100.72.0.2:40000", "192.0.2.9:53", b"question");
    let (_, sent) = out(&mut sim, &sent_by_host).unwrap();
    let mut error = [0; 1280];
    let router = "203.0.113.77".parse().unwrap();
    let length = ip::unreachable(&sent, false, router, &mut error).unwrap();
    let got = sim.wire(0, &error[..length]).unwrap();
    let packet = ip::parse(&got).unwrap();
    assert_eq!(packet.tuple.source.address, router);
    assert_eq!(packet.tuple.destination.address, "100.72.0.2".parse::<std::net::IpAddr>().unwrap());
    assert_eq!(packet.error.unwrap().inner, tuple(&sent_by_host));
    assert_right_sums(&got);
    // About a flow that there is not.
    let other = udp("198.51.100.4:20001", "192.0.2.10:53", b"question");
    let length = ip::unreachable(&other, false, router, &mut error).unwrap();
    assert!(sim.wire(0, &error[..length]).is_none());
    sim.end();
}

/// Cuts a UDP packet in two.
fn halves(whole: &[u8]) -> Vec<Vec<u8>> {
    let (mut at, mut out) = (Some(0), Vec::new());
    while let Some(from) = at {
        let mut part = vec![0; 1500];
        let (length, next) = ip::fragment(whole, 620, from, &mut part).unwrap();
        part.truncate(length);
        out.push(part);
        at = next;
    }
    out
}

#[test]
fn fragments_go_with_the_first_one_and_never_with_a_later_flow() {
    let mut sim = direct(2);
    let whole = udp("100.72.0.2:40000", "192.0.2.9:7000", &[5; 1000]);
    let parts = halves(&whole);
    assert_eq!(parts.len(), 2);
    let (link, _) = out(&mut sim, &parts[0]).unwrap();
    let (same, second) = out(&mut sim, &parts[1]).unwrap();
    assert_eq!(link, same);
    assert_eq!(tuple(&second).source.address, up(link).address4.map(std::net::IpAddr::V4).unwrap());
    let slot = sim.client.engine.flows.slots().next().unwrap();
    let wire = sim.client.engine.flows.get(slot).unwrap().wire.unwrap().tuple;
    let end = |end: ip::Endpoint| std::net::SocketAddr::new(end.address, end.port).to_string();
    let back = halves(&udp(&end(wire.destination), &end(wire.source), &[6; 1000]));
    assert!(sim.wire(link, &back[0]).is_some());
    let got = sim.wire(link, &back[1]).unwrap();
    assert_eq!(tuple(&got).destination.address, "100.72.0.2".parse::<std::net::IpAddr>().unwrap());
    assert!(sim.wire(1 - link, &back[1]).is_none(), "another network may have the same addresses");
    // The flow ends and another one gets its slot: what is left of the old packet is nobody's.
    sim.client.engine.forget(sim.now_ns, slot, &mut sim.client.fx);
    out(&mut sim, &udp("100.72.0.2:40001", "192.0.2.77:7000", b"new")).unwrap();
    assert_eq!(sim.client.engine.flows.slots().next(), Some(slot));
    assert!(sim.wire(link, &back[1]).is_none());
    assert!(out(&mut sim, &parts[1]).is_none());
    sim.end();
}

#[test]
fn an_address_that_changes_resets_connections_and_moves_the_rest() {
    let mut sim = direct(2);
    let syn = tcp("100.72.0.2:40000", "192.0.2.9:443", SYN, b"");
    let (link, sent) = out(&mut sim, &syn).unwrap();
    assert!(sim.wire(link, &answer(&sent, SYN_ACK)).is_some());
    // A second flow on the same interface: choose until one is.
    let mut port = 50_000;
    let (mut on, mut first) = (usize::MAX, Vec::new());
    while on != link {
        port += 1;
        (on, first) = out(&mut sim, &udp(&format!("100.72.0.2:{port}"), "192.0.2.9:7000", b"x")).unwrap();
    }
    sim.state(link, LinkState { address4: Some(Ipv4Addr::new(198, 51, 100, 99)), ..up(link) });
    sim.client.host.clear();
    assert!(out(&mut sim, &tcp("100.72.0.2:40000", "192.0.2.9:443", ACK, b"data")).is_none());
    let reset = ip::parse(&sim.client.host[0].1).unwrap();
    assert_eq!((reset.tcp_flags & RST, reset.tuple), (RST, tuple(&syn).reversed()));
    let (_, second) = out(&mut sim, &udp(&format!("100.72.0.2:{port}"), "192.0.2.9:7000", b"x")).unwrap();
    assert_ne!(tuple(&first).source, tuple(&second).source);
    assert_ne!(tuple(&second).source.address, "198.51.100.4".parse::<std::net::IpAddr>().unwrap());
    // The application connects again, from the same port.
    let (_, again) = out(&mut sim, &syn).unwrap();
    assert_ne!(tuple(&again).source, tuple(&sent).source);
    sim.end();
}

#[test]
fn an_interface_that_goes_takes_its_connections_along_and_nothing_else() {
    let mut sim = direct(2);
    let (link, sent) = out(&mut sim, &tcp("100.72.0.2:40000", "192.0.2.9:443", SYN, b"")).unwrap();
    sim.wire(link, &answer(&sent, SYN_ACK)).unwrap();
    let data = tcp("100.72.0.2:40000", "192.0.2.9:443", ACK, b"data");
    // A short loss of carrier ends no connection.
    sim.unplug(link);
    sim.run_ms(1_000);
    assert!(out(&mut sim, &data).is_none());
    sim.plug(link);
    sim.run_ms(100);
    assert_eq!(sim.direct.last().map(|sent| sent.1), Some(link));
    // A long one does; a new one begins elsewhere.
    sim.unplug(link);
    sim.run_ms(4_000);
    sim.client.host.clear();
    assert!(out(&mut sim, &data).is_none());
    assert_eq!(ip::parse(&sim.client.host[0].1).unwrap().tcp_flags & RST, RST);
    let (other, _) = out(&mut sim, &tcp("100.72.0.2:40001", "192.0.2.9:443", SYN, b"")).unwrap();
    assert_eq!(other, 1 - link);
    // With none left the host hears it at once.
    sim.unplug(other);
    sim.client.host.clear();
    assert!(out(&mut sim, &udp("100.72.0.2:40002", "192.0.2.9:7000", b"x")).is_none());
    assert!(ip::parse(&sim.client.host[0].1).unwrap().error.is_some());
    sim.end();
}

#[test]
fn what_is_too_big_for_the_interface_is_told_and_connections_fit_from_the_start() {
    let mut sim = direct(1);
    sim.state(0, LinkState { mtu: 1400, ..up(0) });
    let mut big = udp("100.72.0.2:40000", "192.0.2.9:7000", &[1; 1460]);
    big[6] = 0x40;
    let sum = {
        big[10..12].fill(0);
        !ip::testing::plain_sum(&big[..20])
    };
    big[10..12].copy_from_slice(&sum.to_be_bytes());
    assert!(out(&mut sim, &big).is_none());
    let told = ip::parse(&sim.client.host[0].1).unwrap().error.unwrap();
    assert_eq!((told.mtu, told.inner), (Some(1400), tuple(&big)));
    // Without "don't fragment" it leaves in pieces that fit.
    sim.direct.clear();
    sim.send(&udp("100.72.0.2:40000", "192.0.2.9:7000", &[1; 1460]));
    sim.run_ms(10);
    assert_eq!(sim.direct.len(), 2);
    assert!(sim.direct.iter().all(|(_, _, bytes)| bytes.len() <= 1400));
    sim.end();
}

#[test]
fn a_question_to_one_interfaces_name_server_goes_to_that_of_the_interface_in_use() {
    let mut sim = direct(2);
    let interfaces: Vec<String> =
        (0..2).map(|k| format!(r#""name":"if{k}","rate_mbps":100.0,"dns":["10.0.{k}.53"]"#)).collect();
    for (only, server) in [("if0", "10.0.0.53"), ("if1", "10.0.1.53")] {
        sim.configure_text(&configuration(&interfaces, &rule("", &[only], "direct")));
        let question = udp(&format!("100.72.0.2:40{}", &server[5..6].repeat(3)), "10.0.0.53:53", b"?");
        let (link, sent) = out(&mut sim, &question).unwrap();
        let wire = tuple(&sent);
        assert_eq!((format!("if{link}").as_str(), wire.destination.address.to_string().as_str()), (only, server));
        let local = std::net::SocketAddr::new(wire.source.address, wire.source.port).to_string();
        let got = sim.wire(link, &udp(&format!("{server}:53"), &local, b"!")).unwrap();
        assert_eq!(tuple(&got), tuple(&question).reversed(), "the host asked that one");
        // Another host's port 53 is left alone.
        let other = udp("100.72.0.2:41000", "192.0.2.53:53", b"?");
        assert_eq!(tuple(&out(&mut sim, &other).unwrap().1).destination, tuple(&other).destination);
    }
    sim.end();
}

#[test]
fn a_connection_that_nobody_answers_tries_another_interface() {
    let mut sim = direct(2);
    let syn = tcp("100.72.0.2:40000", "192.0.2.9:443", SYN, b"");
    let (link, _) = out(&mut sim, &syn).unwrap();
    // As Linux repeats it: after 1, 3 and 7 s.
    sim.run_ms(1_000);
    assert_eq!(out(&mut sim, &syn).unwrap().0, link);
    sim.run_ms(2_000);
    out(&mut sim, &syn).unwrap();
    sim.run_ms(4_000);
    assert_eq!(out(&mut sim, &syn).unwrap().0, 1 - link);
    // So does the next one, for a while.
    assert_eq!(out(&mut sim, &tcp("100.72.0.2:40001", "192.0.2.9:443", SYN, b"")).unwrap().0, 1 - link);
    sim.end();
}

#[test]
fn ports_are_used_up_by_one_server_only_and_come_back() {
    let mut sim = direct(1);
    let all = usize::from(LAST_PORT - FIRST_PORT) + 1;
    for port in 0..all {
        let source = format!("100.72.0.{}:{}", 2 + port / 60_000, 1024 + port % 60_000);
        sim.send(&udp(&source, "192.0.2.9:7000", b"x"));
        sim.run_until(sim.now_ns + 100_000);
    }
    assert!(out(&mut sim, &udp("100.72.0.2:900", "192.0.2.9:7000", b"x")).is_none());
    assert!(out(&mut sim, &udp("100.72.0.2:901", "192.0.2.10:7000", b"x")).is_some());
    sim.run_ms(61_000);
    assert!(out(&mut sim, &udp("100.72.0.2:900", "192.0.2.9:7000", b"x")).is_some());
    sim.end();
}
