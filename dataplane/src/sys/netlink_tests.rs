//! What the kernel says about interfaces: its bytes, and the kernel itself in network namespaces (root only).

use super::clock::monotonic_ns;
use super::epoll::Interest;
use super::interface;
use super::netlink::*;
use super::testing::{ready, run, Lab};
use crate::rng::Rng;
use std::net::IpAddr;

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = [(4 + value.len() as u16).to_ne_bytes(), kind.to_ne_bytes()].concat();
    bytes.extend_from_slice(value);
    bytes.resize((bytes.len() + 3) & !3, 0);
    bytes
}

fn message(kind: u16, flags: u16, body: &[u8]) -> Vec<u8> {
    let mut bytes = (HEADER as u32 + body.len() as u32).to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes().iter().chain(&flags.to_ne_bytes()));
    bytes.extend([0; 8]);
    bytes.extend_from_slice(body);
    bytes
}

/// An IPv4 default route of the main table with these attributes.
fn default_route(kind: u16, attributes: &[Vec<u8>]) -> Vec<u8> {
    message(kind, 0, &[&[INET, 0, 0, 0, 254, 3, 0, RTN_UNICAST, 0, 0, 0, 0][..], &attributes.concat()].concat())
}

#[test]
fn messages_become_changes() {
    let mut bytes = message(RTM_NEWLINK, 0, &{
        let mut body = vec![0, 0, 1, 0];
        body.extend([7u32, 0x1_0043, 0].iter().flat_map(|n| n.to_ne_bytes()));
        body.extend(attribute(IFLA_IFNAME, b"wlan0\0"));
        body.extend(attribute(IFLA_MTU, &1400u32.to_ne_bytes()));
        body
    });
    let bridge = bytes.len() + HEADER;
    bytes.extend(message(RTM_DELLINK, 0, &[0, 0, 1, 0, 9, 0, 0, 0, 0, 0, 0, 0]));
    bytes.extend(message(RTM_NEWADDR, 0, &{
        let mut body = vec![INET, 24, 0x80, 0, 7, 0, 0, 0];
        body.extend(attribute(IFA_ADDRESS, &[192, 0, 2, 9]));
        body.extend(attribute(IFA_LOCAL, &[192, 0, 2, 1]));
        body.extend(attribute(IFA_FLAGS, &0x20u32.to_ne_bytes()));
        body
    }));
    bytes.extend(default_route(
        RTM_NEWROUTE,
        &[
            attribute(RTA_GATEWAY, &[192, 0, 2, 9]),
            attribute(RTA_OIF, &7u32.to_ne_bytes()),
            attribute(RTA_PRIORITY, &600u32.to_ne_bytes()),
        ],
    ));
    let mut hops = [&[16, 0, 0, 0, 3, 0, 0, 0][..], &attribute(RTA_GATEWAY, &[10, 0, 0, 1])].concat();
    hops.extend([8, 0, 0, 0, 4, 0, 0, 0]);
    bytes.extend(default_route(RTM_DELROUTE, &[attribute(RTA_MULTIPATH, &hops)]));
    bytes.extend(message(NLMSG_DONE, NLM_F_DUMP_INTR, &[0; 4]));
    let mut changes = Vec::new();
    let parsed = parse(&bytes, &mut changes);
    assert_eq!(parsed, Parsed { ended: true, interrupted: true });
    let v4 = |text: &str| text.parse::<IpAddr>().unwrap();
    let route =
        DefaultRoute { index: 7, ipv6: false, gateway: Some(v4("192.0.2.9")), metric: 600, table: 254, gone: false };
    let name = "wlan0".to_string();
    let wanted = [
        Change::Link(Link { index: 7, name, up: true, carrier: true, mtu: 1400, hatype: 1 }),
        Change::LinkGone { index: 9 },
        Change::Address(Address {
            index: 7,
            address: v4("192.0.2.1"),
            prefix: 24,
            gone: false,
            deprecated: true,
            tentative: false,
            global: true,
        }),
        Change::DefaultRoute(route),
        Change::DefaultRoute(DefaultRoute { index: 3, gateway: Some(v4("10.0.0.1")), metric: 0, gone: true, ..route }),
        Change::DefaultRoute(DefaultRoute { index: 4, gateway: None, metric: 0, gone: true, ..route }),
    ];
    assert_eq!(changes, wanted);
    // A port that left its bridge still exists.
    bytes[bridge] = libc::AF_BRIDGE as u8;
    changes.clear();
    parse(&bytes, &mut changes);
    assert_eq!(changes.len(), 5);

    // Whatever is changed in them or cut off: no panic, an end, and no more changes than messages and hops fit.
    let mut rng = Rng::new(13);
    for _ in 0..50_000 {
        let mut hostile = bytes.clone();
        for _ in 0..1 + rng.below(6) {
            let at = rng.below(hostile.len());
            hostile[at] = [0, 1, 3, 4, 8, 0xff, rng.bits() as u8][rng.below(7)];
        }
        hostile.truncate(rng.below(hostile.len() + 1));
        changes.clear();
        parse(&hostile, &mut changes);
        assert!(changes.len() <= hostile.len() / 8);
    }
}

/// What came within a time, until `last` is among it.
fn until(monitor: &mut Monitor, last: impl Fn(&Change) -> bool) -> Vec<Change> {
    let mut changes = Vec::new();
    let deadline = monotonic_ns() + 5_000_000_000;
    while !changes.iter().any(&last) {
        assert!(monotonic_ns() < deadline, "{changes:?}");
        ready(monitor, Interest::READ, 100);
        monitor.receive(&mut changes).unwrap();
    }
    changes
}

#[test]
fn the_monitor_tells_the_state_and_each_change() {
    let lab = match Lab::new() {
        Some(lab) => lab,
        None => return,
    };
    let b = &lab.b;
    run(&format!("ip -n {b} route add default via 10.9.0.1 metric 50"));
    run(&format!("ip -n {b} -6 route add default via fd09::1 dev vb metric 60"));
    let index = lab.in_b(|| interface::index("vb"));
    let mut monitor = lab.in_b(Monitor::open);
    let mut state = Vec::new();
    monitor.receive(&mut state).unwrap();
    let has = |changes: &[Change], wanted: &dyn Fn(&Change) -> bool| changes.iter().any(wanted);
    let link = |c: &Change| matches!(c, Change::Link(l) if l.index == index && l.name == "vb" && l.carrier && l.mtu == 1500 && l.hatype == 1);
    let address = |text: &str, c: &Change| {
        let address: IpAddr = text.parse().unwrap();
        matches!(c, Change::Address(a) if a.index == index && a.address == address && a.global && !a.gone && !a.tentative)
    };
    let route = |text: &str, metric: u32, gone: bool, c: &Change| {
        let gateway: Option<IpAddr> = Some(text.parse().unwrap());
        matches!(c, Change::DefaultRoute(r)
            if r.index == index && r.gateway == gateway && r.metric == metric && r.table == 254 && r.gone == gone)
    };
    assert!(has(&state, &link) && has(&state, &|c| address("10.9.0.2", c)) && has(&state, &|c| address("fd09::2", c)));
    assert!(has(&state, &|c| route("10.9.0.1", 50, false, c)) && has(&state, &|c| route("fd09::1", 60, false, c)));

    run(&format!("ip -n {b} route del default via 10.9.0.1 metric 50"));
    until(&mut monitor, |c| route("10.9.0.1", 50, true, c));
    run(&format!("ip -n {b} address add 192.0.2.7/24 dev vb"));
    until(&mut monitor, |c| address("192.0.2.7", c));
    run(&format!("ip -n {b} address del 192.0.2.7/24 dev vb"));
    until(&mut monitor, |c| matches!(c, Change::Address(a) if a.gone && a.prefix == 24));
    // Plugged in, renamed and out again.
    run(&format!("ip -n {b} link add name wwan0 type veth peer name far"));
    until(&mut monitor, |c| matches!(c, Change::Link(l) if l.name == "wwan0" && !l.up && !l.carrier));
    let hot = lab.in_b(|| interface::index("wwan0"));
    run(&format!("ip -n {b} link set wwan0 name usb0"));
    until(&mut monitor, |c| matches!(c, Change::Link(l) if l.name == "usb0" && l.index == hot));
    run(&format!("ip -n {b} link delete usb0"));
    until(&mut monitor, |c| *c == Change::LinkGone { index: hot });
}

#[test]
fn routes_that_the_kernel_drops_silently_are_told_as_gone() {
    let lab = match Lab::new() {
        Some(lab) => lab,
        None => return,
    };
    let b = &lab.b;
    let mut monitor = lab.in_b(Monitor::open);
    let gone = |c: &Change| matches!(c, Change::DefaultRoute(r) if !r.ipv6 && r.metric == 50 && r.gone);
    for command in ["address del 10.9.0.2/24 dev vb", "link set vb down"] {
        run(&format!("ip -n {b} address replace 10.9.0.2/24 dev vb"));
        run(&format!("ip -n {b} route add default via 10.9.0.1 metric 50"));
        monitor.receive(&mut Vec::new()).unwrap();
        run(&format!("ip -n {b} {command}"));
        until(&mut monitor, gone);
    }
}

/// Microseconds from the loss of the carrier of `vb` to the change, sorted; asked for every 2 ms.
fn losses(lab: &Lab, rounds: usize) -> Vec<u64> {
    let (mut monitor, index) = (lab.in_b(Monitor::open), lab.in_b(|| interface::index("vb")));
    let query = lab.in_b(|| interface::CarrierQuery::open("vb"));
    let mut times = Vec::new();
    for _ in 0..rounds {
        lab.in_a(|| interface::set_up("va", true));
        assert!(query.up());
        monitor.receive(&mut Vec::new()).unwrap();
        let (start, mut changes) = (monotonic_ns(), Vec::new());
        lab.in_a(|| interface::set_up("va", false));
        while !changes.iter().any(|c| matches!(c, Change::Link(l) if l.index == index && !l.carrier)) {
            assert!(monotonic_ns() - start < 5_000_000_000);
            ready(&monitor, Interest::READ, 2);
            monitor.receive(&mut changes).unwrap();
            assert!(!query.up());
        }
        times.push((monotonic_ns() - start) / 1000);
    }
    times.sort_unstable();
    times
}

#[test]
fn carrier_loss_is_told_at_once() {
    let lab = match Lab::new() {
        Some(lab) => lab,
        None => return,
    };
    let times = losses(&lab, 10);
    println!("carrier loss to change, asked every 2 ms: {times:?} us");
    // Far from the second that the kernel takes if nobody asks.
    assert!(times[5] < 100_000);
    lab.in_b(|| {
        assert!(!interface::CarrierQuery::open("missing")?.up() && interface::CarrierQuery::open("lo")?.up());
        Ok(())
    });
}

#[test]
fn after_a_loss_the_whole_state_follows() {
    let lab = match Lab::new() {
        Some(lab) => lab,
        None => return,
    };
    let mut monitor = lab.in_b(|| Monitor::with_buffer(4096));
    monitor.receive(&mut Vec::new()).unwrap();
    let commands: String = (0..200).map(|i| format!("address add 192.0.{i}.1/24 dev vb\n")).collect();
    let path = std::env::temp_dir().join(format!("hyroads-netlink-{}", std::process::id()));
    std::fs::write(&path, commands).unwrap();
    run(&format!("ip -n {} -batch {}", lab.b, path.display()));
    std::fs::remove_file(&path).unwrap();
    let changes = until(&mut monitor, |c| *c == Change::Lost);
    let lost = changes.iter().rposition(|c| *c == Change::Lost).unwrap();
    let mut all: Vec<_> = changes[lost..].to_vec();
    ready(&monitor, Interest::READ, 50);
    monitor.receive(&mut all).unwrap();
    let mut known: Vec<IpAddr> = all
        .iter()
        .filter_map(|change| match change {
            Change::Address(a) if a.prefix == 24 && !a.gone => Some(a.address),
            _ => None,
        })
        .collect();
    known.sort_unstable();
    known.dedup();
    assert_eq!(known.len(), 201);
    assert!(all.iter().any(|c| matches!(c, Change::Link(l) if l.name == "vb")));
}
