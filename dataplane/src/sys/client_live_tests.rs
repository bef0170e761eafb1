//! The sockets of the client stack with real packets, in network namespaces. Without root these tests do nothing.

use super::clock::monotonic_ns;
use super::epoll::Interest;
use super::interface;
use super::ip_tap::{IpBatch, IpTap, IpTapOptions};
use super::packet::{PacketOptions, PacketSocket, ALL_PROTOCOLS};
use super::raw_ip::{Family, RawIp};
use super::socket::Sent;
use super::testing::{ip, ready, run, soon, udp, verifies, Lab, WRITE};
use super::tun::{Tun, TunOptions};
use super::udp::{path_mtu, BoundUdp, DatagramBatch, MOST_DATAGRAMS};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::io::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

fn tun_options(name: &str, persistent: bool) -> TunOptions {
    TunOptions { persistent, mtu: Some(1400), queue_packets: Some(700), ..TunOptions::new(name) }
}

#[test]
fn a_tun_survives_its_program_is_taken_up_again_and_removed() {
    let lab = match Lab::new() {
        Some(lab) => lab,
        None => return,
    };
    let shown = || run(&format!("ip -n {} link show dev hr0", lab.a));
    let open = |name, persistent| soon(|| lab.in_a(|| Ok(Tun::open(&tun_options(name, persistent)).ok()))).unwrap();
    let gone = |name| soon(|| lab.in_a(|| Ok(interface::index(name).err()))).is_some();
    let first = open("hr0", true);
    assert_eq!(lab.in_a(|| interface::mtu("hr0")), 1400);
    let busy = lab.in_a(|| Ok(Tun::open(&tun_options("hr0", true)).unwrap_err()));
    assert_eq!(busy.kind(), io::ErrorKind::AddrInUse);
    assert_eq!(busy.to_string(), "TUN hr0: another program holds it");
    drop(first);
    assert!(soon(|| shown().contains("NO-CARRIER").then_some(())).is_some());
    let second = open("hr0", true);
    assert!(shown().contains("LOWER_UP"));
    second.remove().unwrap();
    assert!(gone("hr0"));
    // What is not persistent goes with its program, even if it was persistent before.
    drop(open("hr1", true));
    drop(open("hr1", false));
    assert!(gone("hr1"));
    let other = lab.in_a(|| Ok(Tun::open(&TunOptions::new("va")).unwrap_err()));
    assert!(other.to_string().contains("va") && other.kind() == io::ErrorKind::InvalidInput, "{other}");
}

#[test]
fn a_tun_gives_single_packets_with_finished_checksums() {
    let lab = match Lab::new() {
        Some(lab) => lab,
        None => return,
    };
    let tun = lab.in_a(|| Tun::open(&TunOptions::new("hr0")));
    run(&format!("ip -n {} address add 10.77.0.2/24 dev hr0", lab.a));
    let listener_side = lab.in_a(|| UdpSocket::bind("10.77.0.2:30000"));
    let mut buffer = vec![0u8; 65536];
    // Whatever the kernel says on its own (router solicitations) is not ours.
    let next = |buffer: &mut [u8], from: usize| loop {
        assert!(ready(&tun, Interest::READ, 2000));
        // SAFETY: pointer and length describe the buffer.
        let n = unsafe { libc::read(tun.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len()) } as usize;
        if buffer[from] == 0x45 {
            return n;
        }
    };
    listener_side.send_to(&[7; 1000], "10.77.0.9:9").unwrap();
    let n = next(&mut buffer, 10);
    assert_eq!(buffer[..10], [0; 10]);
    assert!(n == 10 + 1028 && verifies(&buffer[10..n]));
    // More than the MTU: fragments, each complete. And the same through our own read.
    listener_side.send_to(&[7; 1000], "10.77.0.9:9").unwrap();
    let length = loop {
        assert!(ready(&tun, Interest::READ, 2000));
        match tun.read(&mut buffer).unwrap() {
            Some(length) if buffer[0] == 0x45 => break length,
            _ => {}
        }
    };
    assert!(length == 1028 && verifies(&buffer[..length]));
    while tun.read(&mut buffer).unwrap().is_some() {}
    // A buffer that is too short loses the packet rather than giving part of it.
    listener_side.send_to(&[7; 1000], "10.77.0.9:9").unwrap();
    assert!(ready(&tun, Interest::READ, 2000));
    assert_eq!(tun.read(&mut buffer[..1027]).unwrap(), None);
    // Back to the host; what is no IP packet is refused, not an error.
    assert!(tun.write(&udp("10.77.0.9:9", "10.77.0.2:30000", b"hello")).unwrap());
    listener_side.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    assert_eq!(listener_side.recv_from(&mut buffer).unwrap(), (5, "10.77.0.9:9".parse().unwrap()));
    assert!(!tun.write(&[0; 40]).unwrap() && !tun.write(&[]).unwrap());
    let wild = super::virtio::VirtioHeader {
        flags: 1,
        gso_type: 1,
        hdr_len: 9,
        gso_size: 0,
        csum_start: 9999,
        csum_offset: 9999,
    };
    assert!(!tun.write_offloaded(&wild, &udp("10.77.0.9:9", "10.77.0.2:30000", b"hello")).unwrap());
    interface_down(&lab.a, "hr0");
    assert!(!tun.write(&udp("10.77.0.9:9", "10.77.0.2:30000", b"hello")).unwrap());
}

fn interface_down(namespace: &str, device: &str) {
    run(&format!("ip -n {namespace} link set {device} down"));
}

/// Bytes that are wrong wherever they are moved to.
fn pattern(length: usize) -> Vec<u8> {
    let mut state = 1u32;
    (0..length)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        })
        .collect()
}

/// Carries packets between a TUN and the interface `vb` until told to stop; the longest packet that the interface gave.
fn carry(tun: &Tun, tap: &IpTap, raw: &RawIp, stop: &AtomicBool) -> usize {
    let (mut batch, mut buffer, mut longest) = (IpBatch::new(16), vec![0u8; 2048], 0);
    while !stop.load(Ordering::Relaxed) {
        let mut idle = true;
        tap.receive(&mut batch).unwrap();
        for (header, packet) in batch.items() {
            idle = false;
            longest = longest.max(packet.len());
            while !tun.write_offloaded(&header, packet).unwrap() && !stop.load(Ordering::Relaxed) {}
        }
        while let Some(length) = tun.read(&mut buffer).unwrap() {
            idle = false;
            // The kernel's own packets of the TUN (router solicitations) have nowhere to go.
            let ours = (buffer[0] == 0x45 && raw_family(raw, 4))
                || (buffer[0] >> 4 == 6 && raw_family(raw, 6) && buffer[6] == 6);
            while ours && raw.send(&buffer[..length]).unwrap() == Sent::NotNow && !stop.load(Ordering::Relaxed) {
                ready(raw, WRITE, 10);
            }
        }
        if idle {
            thread::sleep(Duration::from_micros(50));
        }
    }
    longest
}

fn raw_family(raw: &RawIp, version: u8) -> bool {
    raw.family() == if version == 4 { Family::V4 } else { Family::V6 }
}

/// One TCP connection from a kernel in `a` to a kernel behind the TUN, both ways; the longest packet on the way in.
fn tcp_through(lab: &Lab, inner: &str, prefix: &str, outer: &str, family: Family) -> usize {
    let host = Lab::new().unwrap();
    run(&format!("ip -n {} link delete va", host.a));
    let tun = host.in_a(|| Tun::open(&TunOptions::new("hr0")));
    let (version, address) = match family {
        Family::V4 => (4, format!("{inner}:25000")),
        Family::V6 => (6, format!("[{inner}]:25000")),
    };
    let address: SocketAddr = address.parse().unwrap();
    run(&format!("ip -n {} address add {inner}/{prefix} dev hr0", host.a));
    run(&format!("ip -{version} -n {} route add default dev hr0", host.a));
    run(&format!("ip -n {} route add {inner} via {outer}", lab.a));
    // The kernel of `b` sees these packets too. Over IPv6 it would answer "no route" even where it does not forward.
    run(&format!("ip -{version} -n {} route add blackhole {inner}", lab.b));
    let tap = lab.in_b(|| IpTap::open(&IpTapOptions::new("vb")));
    let raw = lab.in_b(|| RawIp::open("vb", family));
    let listener = host.in_a(|| TcpListener::bind(address));
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
    let carrier = thread::spawn(move || carry(&tun, &tap, &raw, &stopped));
    let (up, down) = (pattern(24 << 20), pattern(8 << 20));
    let (expected, sent) = (up.clone(), down.clone());
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut received = vec![0; expected.len()];
        stream.read_exact(&mut received).unwrap();
        assert!(received == expected);
        stream.write_all(&sent).unwrap();
    });
    let mut stream = lab.in_a(|| TcpStream::connect_timeout(&address, Duration::from_secs(5)));
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(&up).unwrap();
    let mut received = vec![0; down.len()];
    stream.read_exact(&mut received).unwrap();
    assert!(received == down);
    server.join().unwrap();
    stop.store(true, Ordering::Relaxed);
    carrier.join().unwrap()
}

#[test]
fn tcp_passes_whole_offloaded_packets_through_the_tun() {
    let lab = match Lab::new() {
        Some(lab) => lab,
        None => return,
    };
    let longest = tcp_through(&lab, "10.77.0.2", "32", "10.9.0.2", Family::V4);
    assert!(longest > 20_000, "{longest} bytes");
    let longest = tcp_through(&lab, "fd77::2", "128", "fd09::2", Family::V6);
    assert!(longest > 20_000, "{longest} bytes");
}

#[test]
fn raw_packets_of_both_families_find_their_neighbour() {
    let lab = match Lab::new() {
        Some(lab) => lab,
        None => return,
    };
    for (family, from, to, other) in [
        (Family::V4, "10.9.0.2:20001", "10.9.0.1:7000", "[fd09::1]:7000"),
        (Family::V6, "[fd09::2]:20001", "[fd09::1]:7000", "10.9.0.1:7000"),
    ] {
        let receiver = lab.in_a(|| UdpSocket::bind(to));
        receiver.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let raw = lab.in_b(|| RawIp::open("vb", family));
        assert_eq!(raw.send(&udp(from, to, b"by hand")).unwrap(), Sent::Done);
        let mut buffer = [0; 2000];
        assert_eq!(receiver.recv_from(&mut buffer).unwrap(), (7, from.parse().unwrap()));
        assert_eq!(raw.send(&udp(from, to, &[0; 1500])).unwrap(), Sent::TooBig);
        let wrong = if family == Family::V4 { "[fd77::2]:1" } else { "10.77.0.2:1" };
        assert_eq!(raw.send(&udp(wrong, other, b"")).unwrap(), Sent::NoRoute);
        for short in 0..28 {
            assert_ne!(raw.send(&udp(from, to, b"")[..short]).unwrap(), Sent::TooBig);
        }
        if family == Family::V6 {
            assert_eq!(raw.send(&udp(from, "[2001:db8::1]:1", b"")).unwrap(), Sent::NoRoute);
        }
        // Protocol 255 is the only one that such a socket could receive.
        let back = lab.in_a(|| RawIp::open("va", family));
        let (a, b): (SocketAddr, SocketAddr) =
            (to.parse().unwrap(), if family == Family::V4 { "10.9.0.2:0" } else { "[fd09::2]:0" }.parse().unwrap());
        assert_eq!(back.send(&ip(a.ip(), b.ip(), 255, b"anything")).unwrap(), Sent::Done);
        assert!(!ready(&raw, Interest::READ, 50));
        assert_eq!(raw.waiting_bytes(), 0);
    }
    let raw = lab.in_b(|| RawIp::open("vb", Family::V4));
    interface_down(&lab.b, "vb");
    assert_eq!(raw.send(&udp("10.77.0.2:1", "10.9.0.1:1", b"")).unwrap(), Sent::NoRoute);
    run(&format!("ip -n {} link delete vb", lab.b));
    assert_eq!(raw.send(&udp("10.77.0.2:1", "10.9.0.1:1", b"")).unwrap(), Sent::NoRoute);
    assert!(lab.in_b(|| Ok(RawIp::open("vb", Family::V4).unwrap_err())).to_string().contains("vb"));
}

/// Puts a tbf of that rate below `vb` of the lab's `b`, with a bucket of one packet.
fn limit(lab: &Lab, rate: &str) {
    run(&format!("tc -n {} qdisc replace dev vb root tbf rate {rate} burst 1600 limit 1000000", lab.b));
}

/// Full packets that wait in the tbf of `vb`; the kernel's own, of neighbours and groups, are small.
fn backlog(lab: &Lab) -> usize {
    let text = run(&format!("tc -n {} -s qdisc show dev vb", lab.b));
    let word = text.split_whitespace().skip_while(|w| *w != "backlog").nth(1).unwrap();
    let (number, unit) = word.split_at(word.find(|c: char| !c.is_ascii_digit()).unwrap());
    number.parse::<usize>().unwrap() * if unit == "Kb" { 1024 } else { 1 } / 1500
}

/// Mb/s of IP packets that one socket sends through a line of 2 Mb/s: in the best quarter of a second, for the machine
/// may be busy in the others, and in a whole second. Two packets last 12 ms there: so long others may run.
///
/// Before that it is looked at how many packets a line of 30 kb/s takes at once.
fn fill(lab: &Lab, socket: &impl AsRawFd, waiting: impl Fn() -> u32, send: impl Fn() -> Sent) -> (f64, f64) {
    // The neighbour's address is to be known, so that all wait in the queue.
    limit(lab, "1gbit");
    assert_eq!(send(), Sent::Done);
    thread::sleep(Duration::from_millis(20));
    // A packet takes 404 ms; the first one leaves with the bucket's first tokens, and counts until the other end has it.
    limit(lab, "30kbit");
    let start = monotonic_ns();
    let mut at_once = 0;
    while monotonic_ns() - start < 100_000_000 {
        at_once += u32::from(send() == Sent::Done);
        thread::sleep(Duration::from_millis(1));
    }
    let below = backlog(lab);
    assert!((2..=3).contains(&at_once) && (1..=2).contains(&below), "{at_once} at once, {below} below");
    assert_eq!(send(), Sent::NotNow);
    limit(lab, "2mbit");
    assert!(ready(socket, WRITE, 1000));
    let (start, mut sent_ns, mut most) = (monotonic_ns(), Vec::new(), 0);
    while monotonic_ns() - start < 1_000_000_000 {
        assert!(ready(socket, WRITE, 1000));
        if send() == Sent::Done {
            sent_ns.push(monotonic_ns() - start);
        }
        most = most.max(waiting());
    }
    // A full packet takes 2,304 bytes of kernel memory.
    assert!(most > 2304 && most <= 2 * 2304, "{most} bytes wait");
    let mbps = |packets: usize, ns: u64| packets as f64 * 1500.0 * 8.0 / 1e3 / (ns as f64 / 1e6);
    let quarters = sent_ns.windows(42).map(|times| mbps(41, times[41] - times[0]));
    (quarters.fold(0.0, f64::max), mbps(sent_ns.len(), monotonic_ns() - start))
}

#[test]
fn at_most_two_full_packets_wait_below_and_the_line_stays_busy() {
    let lab = match Lab::new() {
        Some(lab) => lab,
        None => return,
    };
    let receiver = lab.in_a(|| UdpSocket::bind("10.9.0.1:7000"));
    let raw = lab.in_b(|| RawIp::open("vb", Family::V4));
    let packet = udp("10.77.0.2:20001", "10.9.0.1:7000", &[0; 1472]);
    let raw6 = lab.in_b(|| RawIp::open("vb", Family::V6));
    let packet6 = udp("[fd09::2]:20001", "[fd09::1]:7000", &[0; 1452]);
    let tunnel = lab.in_b(|| BoundUdp::open(Some("vb"), "0.0.0.0:0".parse().unwrap(), Some(1500)));
    let to = receiver.local_addr().unwrap();
    let all = || {
        let results = [
            fill(&lab, &raw, || raw.waiting_bytes(), || raw.send(&packet).unwrap()),
            fill(&lab, &raw6, || raw6.waiting_bytes(), || raw6.send(&packet6).unwrap()),
            fill(&lab, &tunnel, || tunnel.waiting_bytes(), || tunnel.send_to(&[0; 24], &[0; 1448], to).unwrap()),
        ];
        println!("tbf of 2 Mb/s, Mb/s of IP packets by raw IPv4, raw IPv6 and UDP: {results:.3?}");
        results
    };
    // 2 Mb/s with Ethernet headers are 1.98 Mb/s of IP packets. A machine that is busy in every quarter of a second
    // tells nothing about the line.
    let mut best = [0.0, 0.0, 0.0];
    let is_busy = (0..5).any(|_| {
        for (best, (quarter, whole)) in best.iter_mut().zip(all()) {
            assert!(whole < 2.04, "{whole} Mb/s");
            *best = f64::max(*best, quarter);
        }
        best.iter().all(|best| *best > 1.88)
    });
    assert!(is_busy, "in none of five attempts: {best:.3?} Mb/s");
}

#[test]
fn the_tap_gives_the_classes_it_was_asked_for_and_no_other() {
    let lab = match Lab::new() {
        Some(lab) => lab,
        None => return,
    };
    let tap = lab.in_b(|| IpTap::open(&IpTapOptions::new("vb")));
    let all =
        lab.in_b(|| IpTap::open(&IpTapOptions { ports: 1..=7, other_protocols: true, ..IpTapOptions::new("vb") }));
    let wire = lab.in_a(|| PacketSocket::open(&PacketOptions::new("va", ALL_PROTOCOLS)));
    let (mac_a, mac_b) = (Lab::mac(&lab.a, "va"), Lab::mac(&lab.b, "vb"));
    let frame = |to: [u8; 6], tag: &[u8], packet: &[u8]| {
        let kind: [u8; 2] = if packet[0] >> 4 == 4 { [8, 0] } else { [0x86, 0xdd] };
        [&to[..], &mac_a[..], tag, &kind, packet].concat()
    };
    let ours = udp("10.9.0.1:1", "10.9.0.2:20000", b"ours");
    let gre = ip("10.9.0.1".parse().unwrap(), "10.9.0.2".parse().unwrap(), 47, &[0; 8]);
    for (frame, by_tap, by_all) in [
        (frame(mac_b, &[], &ours), true, false),
        (frame(mac_b, &[0x81, 0, 0, 5], &ours), false, false),
        (frame([2, 0, 0, 0, 0, 9], &[], &ours), false, false),
        (frame([0xff; 6], &[], &ours), false, false),
        (frame(mac_b, &[], &udp("10.9.0.1:1", "10.9.0.2:19999", b"")), false, false),
        (frame(mac_b, &[], &udp("[fd09::1]:1", "[fd09::2]:32767", b"")), true, false),
        (frame(mac_b, &[], &udp("[fd09::1]:1", "[fd09::2]:32768", b"")), false, false),
        (frame(mac_b, &[], &udp("10.9.0.1:1", "10.9.0.2:7", b"")), false, true),
        (frame(mac_b, &[], &gre), false, true),
        (frame(mac_b, &[], &ours[..10]), false, false),
    ] {
        assert!(wire.send(&frame).unwrap());
        // Both see frames in order: after this one comes one that both take.
        let mut marker = ours.clone();
        marker[22..24].copy_from_slice(&[0x4e, 0x21]);
        marker[28..32].copy_from_slice(b"mark");
        let mut marker7 = marker.clone();
        marker7[22..24].copy_from_slice(&[0, 3]);
        for end in [&marker, &marker7] {
            assert!(wire.send(&self::concat(mac_b, mac_a, end)).unwrap());
        }
        for (socket, end, wanted) in [(&tap, &marker, by_tap), (&all, &marker7, by_all)] {
            let (mut batch, mut seen) = (IpBatch::new(4), Vec::new());
            while seen.last() != Some(end) {
                assert!(ready(socket, Interest::READ, 2000));
                socket.receive(&mut batch).unwrap();
                seen.extend(batch.items().map(|(_, packet)| packet.to_vec()));
            }
            seen.pop();
            let expected = if wanted { vec![frame[14..].to_vec()] } else { Vec::new() };
            assert_eq!(seen, expected, "{frame:02x?}");
        }
    }
    // What the host itself sends is not seen, and neither is anything while the interface is down; afterwards it goes on.
    let raw = lab.in_b(|| RawIp::open("vb", Family::V4));
    assert_eq!(raw.send(&ours).unwrap(), Sent::Done);
    assert!(!ready(&tap, Interest::READ, 30));
    interface_down(&lab.b, "vb");
    let mut batch = IpBatch::new(4);
    assert_eq!(tap.receive(&mut batch).unwrap(), 0);
    run(&format!("ip -n {} link set vb up", lab.b));
    assert!(wire.send(&frame(mac_b, &[], &ours)).unwrap());
    assert!(ready(&tap, Interest::READ, 2000));
    assert_eq!(tap.receive(&mut batch).unwrap(), 1);
    assert_eq!(batch.items().next().unwrap().1, &ours[..]);
    run(&format!("ip -n {} link delete vb", lab.b));
    assert_eq!(tap.receive(&mut batch).unwrap(), 0);
    assert_eq!(batch.items().count(), 0);
}

fn concat(to: [u8; 6], from: [u8; 6], packet: &[u8]) -> Vec<u8> {
    [&to[..], &from[..], &[8, 0], packet].concat()
}

#[test]
fn datagrams_go_both_ways_and_errors_by_icmp_end_nothing() {
    let lab = match Lab::new() {
        Some(lab) => lab,
        None => return,
    };
    for (any, address_a, address_b) in [("0.0.0.0:0", "10.9.0.1", "10.9.0.2"), ("[::]:0", "[fd09::1]", "[fd09::2]")] {
        let any: SocketAddr = any.parse().unwrap();
        let a = lab.in_a(|| BoundUdp::open(None, any, None));
        let b = lab.in_b(|| BoundUdp::open(Some("vb"), any, Some(1500)));
        let to: SocketAddr = format!("{address_a}:{}", a.local().unwrap().port()).parse().unwrap();
        let from: SocketAddr = format!("{address_b}:{}", b.local().unwrap().port()).parse().unwrap();
        let mut batch = DatagramBatch::new(8, 100);
        for i in 0..20u8 {
            while b.send_to(&[i, 1, 2], &vec![i; usize::from(i) * 5], to).unwrap() != Sent::Done {}
        }
        assert_eq!(b.send_to(b"head", &[7; 97], to).unwrap(), Sent::Done);
        let (mut seen, mut counted) = (Vec::new(), 0);
        while counted < 21 {
            assert!(ready(&a, Interest::READ, 2000));
            counted += a.receive(&mut batch).unwrap();
            seen.extend(batch.items().map(|(source, datagram)| (source, datagram.to_vec())));
        }
        // The last one is longer than the buffers.
        let wanted: Vec<_> =
            (0..20u8).map(|i| (from, [&[i, 1, 2][..], &vec![i; usize::from(i) * 5]].concat())).collect();
        assert_eq!(seen, wanted);
        assert_eq!(a.receive(&mut batch).unwrap(), 0);
        assert_eq!(batch.items().count(), 0);

        // An answer leaves from the address that was asked.
        while b.send_to(b"ask", b"", to).unwrap() != Sent::Done {}
        assert!(ready(&a, Interest::READ, 2000));
        assert_eq!(a.receive(&mut batch).unwrap(), 1);
        let local = batch.items_with_local().next().unwrap().1.unwrap();
        assert_eq!(local, to.ip());
        assert_eq!(a.send_from(b"answer", b"!", from, local).unwrap(), Sent::Done);
        assert!(ready(&b, Interest::READ, 2000));
        assert_eq!(b.receive(&mut batch).unwrap(), 1);
        let (source, nothing, bytes) = batch.items_with_local().next().unwrap();
        assert_eq!((source, nothing, &bytes[..]), (to, None, &b"answer!"[..]));

        let closed: SocketAddr = format!("{address_a}:9").parse().unwrap();
        for _ in 0..5 {
            while b.send_to(b"", b"nobody there", closed).unwrap() != Sent::Done {}
            thread::sleep(Duration::from_millis(2));
            assert_eq!(b.receive(&mut batch).unwrap(), 0);
        }
        assert_eq!(a.send_to(b"", b"back", from).unwrap(), Sent::Done);
        assert!(ready(&b, Interest::READ, 2000));
        assert_eq!(b.receive(&mut batch).unwrap(), 1);

        assert_eq!(b.send_to(&[0; 20], &[0; 1453], to).unwrap(), Sent::TooBig);
        assert_eq!(lab.in_b(|| path_mtu(Some("vb"), to)), 1500);
        let nowhere: SocketAddr = if any.is_ipv4() { "192.0.2.1:1" } else { "[2001:db8::1]:1" }.parse().unwrap();
        assert_eq!(a.send_to(b"", b"x", nowhere).unwrap(), Sent::NoRoute);
    }
    let any: SocketAddr = "0.0.0.0:0".parse().unwrap();
    let b = lab.in_b(|| BoundUdp::open(Some("vb"), any, Some(1500)));
    interface_down(&lab.b, "vb");
    assert_eq!(b.send_to(b"", b"x", "10.9.0.1:7".parse().unwrap()).unwrap(), Sent::NoRoute);
    let taken = lab.in_b(|| Ok(BoundUdp::open(None, b.local()?, None).unwrap_err()));
    assert!(taken.to_string().contains(&b.local().unwrap().to_string()), "{taken}");
}

#[test]
fn many_datagrams_leave_in_one_call_and_come_in_one() {
    let lab = match Lab::new() {
        Some(lab) => lab,
        None => return,
    };
    for (any, address_a) in [("0.0.0.0:0", "10.9.0.1"), ("[::]:0", "[fd09::1]")] {
        let any: SocketAddr = any.parse().unwrap();
        let a = lab.in_a(|| BoundUdp::open(None, any, None));
        let b = lab.in_b(|| BoundUdp::open(Some("vb"), any, Some(1500)));
        let to: SocketAddr = format!("{address_a}:{}", a.local().unwrap().port()).parse().unwrap();
        let head = [9u8; 24];
        let mut batch = DatagramBatch::new(4, 1000);
        let mut from = None;
        for (count, last) in [(2, 900), (44, 1), (MOST_DATAGRAMS, 500)] {
            let body = |k: usize| vec![k as u8; if k + 1 == count { last } else { 976 }];
            let bodies: Vec<Vec<u8>> = (0..count).map(body).collect();
            let datagrams = || bodies.iter().map(|body| [&head[..], &body[..]]);
            while b.send_many(datagrams(), to, None).unwrap() != Sent::Done {}
            let (mut seen, mut messages) = (Vec::new(), 0);
            while seen.len() < count {
                assert!(ready(&a, Interest::READ, 2000));
                messages += a.receive(&mut batch).unwrap();
                for (source, local, bytes) in batch.items_with_local() {
                    from = Some(source);
                    assert_eq!(local, Some(to.ip()));
                    seen.push(bytes.to_vec());
                }
            }
            assert!(seen == datagrams().map(|parts| parts.concat()).collect::<Vec<_>>());
            assert_eq!(messages, 1, "{count} datagrams");
        }
        // The other way, from the address that was asked.
        let bodies = [[1u8; 700], [2; 700], [3; 700]];
        let datagrams = bodies.iter().map(|body| [&head[..], &body[..]]);
        assert_eq!(a.send_many(datagrams, from.unwrap(), Some(to.ip())).unwrap(), Sent::Done);
        assert!(ready(&b, Interest::READ, 2000));
        b.receive(&mut batch).unwrap();
        let seen: Vec<_> = batch.items().map(|(source, bytes)| (source, bytes.len(), bytes[24])).collect();
        assert_eq!(seen, [(to, 724, 1), (to, 724, 2), (to, 724, 3)]);
        // Longer than the buffers: left out. Longer than the path carries: refused as a whole.
        let long = [[0u8; 1100], [0; 1100]];
        while b.send_many(long.iter().map(|body| [&head[..], &body[..]]), to, None).unwrap() != Sent::Done {}
        assert!(ready(&a, Interest::READ, 2000));
        a.receive(&mut batch).unwrap();
        assert_eq!(batch.items().count(), 0);
        let longer = [[0u8; 1600], [0; 1600]];
        let refused = b.send_many(longer.iter().map(|body| [&head[..], &body[..]]), to, None);
        assert!(!matches!(refused, Ok(Sent::Done | Sent::NotNow)), "{refused:?}");
    }
}
