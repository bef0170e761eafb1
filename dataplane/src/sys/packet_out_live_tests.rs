//! Packets of several segments through real interfaces, and the neighbours that they go to. Without root these tests do
//! nothing.

use super::epoll::Interest;
use super::interface;
use super::netlink::{Change, Monitor};
use super::packet::{Batch, PacketOptions, PacketSocket, ALL_PROTOCOLS};
use super::packet_out::PacketOut;
use super::socket::Sent;
use super::testing::{ready, run, verifies, Lab, WRITE};
use super::virtio::{VirtioHeader, GSO_TCP4, GSO_TCP6, NEEDS_CSUM};
use crate::ip::{self, Segments, ACK, TCP};
use std::net::{IpAddr, UdpSocket};

const PAYLOAD: usize = 20_000;
const SIZE: u16 = 1_400;

/// A TCP packet from `vb` of the lab to `va`, of several segments.
fn whole(ipv6: bool) -> Vec<u8> {
    let (from, to): (IpAddr, IpAddr) = match ipv6 {
        false => ("10.9.0.2".parse().unwrap(), "10.9.0.1".parse().unwrap()),
        true => ("fd09::2".parse().unwrap(), "fd09::1".parse().unwrap()),
    };
    let mut segment = vec![0u8; 20];
    segment[12..14].copy_from_slice(&[5 << 4, ACK]);
    segment.extend((0..PAYLOAD).map(|at| (at / 7) as u8));
    super::testing::ip(from, to, TCP, &segment)
}

fn header(ipv6: bool, l4_at: u16) -> VirtioHeader {
    let gso_type = if ipv6 { GSO_TCP6 } else { GSO_TCP4 };
    VirtioHeader {
        flags: NEEDS_CSUM,
        gso_type,
        hdr_len: l4_at + 20,
        gso_size: SIZE,
        csum_start: l4_at,
        csum_offset: 16,
    }
}

/// The IP packets of TCP that arrive within a moment.
fn arrived(wire: &PacketSocket) -> Vec<Vec<u8>> {
    let (mut batch, mut out) = (Batch::new(64, 70_000), Vec::new());
    while ready(wire, Interest::READ, 200) {
        wire.receive(&mut batch).unwrap();
        let is_tcp = |f: &&[u8]| f.get(12..14) == Some(&[8, 0]) && f[23] == TCP || f.get(20) == Some(&TCP);
        out.extend(batch.frames().filter(is_tcp).map(|frame| frame[14..].to_vec()));
    }
    out
}

#[test]
fn the_kernel_cuts_pieces_into_packets_with_right_checksums() {
    let lab = match Lab::new() {
        Some(lab) => lab,
        None => return,
    };
    // As a card without offloads would.
    run(&format!("ip netns exec {} ethtool -K vb tso off gso off tx off", lab.b));
    let out = lab.in_b(|| PacketOut::open("vb"));
    let wire = lab.in_a(|| PacketSocket::open(&PacketOptions::new("va", ALL_PROTOCOLS)));
    let hop = Some(Lab::mac(&lab.a, "va"));
    for ipv6 in [false, true] {
        let bytes = whole(ipv6);
        let packet = ip::parse(&bytes).unwrap();
        let mut segments = Segments::of(&bytes, &packet, SIZE).unwrap();
        let mut payload = Vec::new();
        loop {
            let piece = segments.next(&bytes, 6_000).unwrap();
            let [head, body] = piece.parts(&bytes);
            let header = if piece.segments > 1 { header(ipv6, piece.l4_at as u16) } else { VirtioHeader::PLAIN };
            assert!(ready(&out, WRITE, 1000));
            assert_eq!(out.send(&header, hop, head, body).unwrap(), Sent::Done);
            for one in arrived(&wire) {
                assert!(one.len() <= piece.header_len() + usize::from(SIZE) && verifies(&one), "{} bytes", one.len());
                payload.extend_from_slice(&one[piece.header_len()..]);
            }
            if !segments.advance(&piece) {
                break;
            }
        }
        assert!(payload == bytes[packet.l4_at + 20..], "{} bytes of {PAYLOAD}", payload.len());
    }
    let bytes = whole(false);
    assert!(out.send(&header(false, 20), None, &bytes[..40], &bytes[40..]).is_err());
    assert_eq!(out.send(&header(false, 20), hop, &[], &bytes).unwrap(), Sent::NoRoute);
    run(&format!("ip -n {} link set vb down", lab.b));
    assert_eq!(out.send(&header(false, 20), hop, &bytes[..40], &bytes[40..]).unwrap(), Sent::NoRoute);
}

#[test]
fn at_most_two_pieces_wait_below() {
    let lab = match Lab::new() {
        Some(lab) => lab,
        None => return,
    };
    run(&format!("tc -n {} qdisc replace dev vb root tbf rate 1mbit burst 1600 limit 10000000", lab.b));
    let mut out = lab.in_b(|| PacketOut::open("vb"));
    let hop = Some(Lab::mac(&lab.a, "va"));
    let bytes = whole(false);
    let send = |out: &PacketOut| out.send(&header(false, 20), hop, &bytes[..40], &bytes[40..]).unwrap();
    for longest in [bytes.len(), 65_535] {
        out.set_longest(longest).unwrap();
        let taken = (0..20).take_while(|_| send(&out) == Sent::Done).count();
        assert_eq!(send(&out), Sent::NotNow);
        let most = 2 * (longest as u32 + 8_192 + 4_096);
        assert!(taken >= 1 && out.waiting_bytes() <= most, "{taken} sent, {} bytes wait", out.waiting_bytes());
    }
    run(&format!("tc -n {} qdisc del dev vb root", lab.b));
    assert!(ready(&out, WRITE, 1000) && out.waiting_bytes() == 0);
}

#[test]
fn the_monitor_tells_a_neighbours_mac_address_and_when_it_is_gone() {
    let lab = match Lab::new() {
        Some(lab) => lab,
        None => return,
    };
    let (index, mac) = (lab.in_b(|| interface::index("vb")), Lab::mac(&lab.a, "va"));
    let address: IpAddr = "10.9.0.1".parse().unwrap();
    let mut monitor = lab.in_b(Monitor::open);
    let mut until = |wanted: Option<interface::Mac>| {
        let (mut changes, mut rounds) = (Vec::new(), 0);
        let is_it =
            |c: &Change| matches!(c, Change::Neighbour(n) if (n.index, n.address, n.mac) == (index, address, wanted));
        while !changes.iter().any(is_it) {
            rounds += 1;
            assert!(rounds < 50, "{changes:?}");
            ready(&monitor, Interest::READ, 100);
            monitor.receive(&mut changes).unwrap();
        }
    };
    let socket = lab.in_b(|| UdpSocket::bind("10.9.0.2:0"));
    socket.send_to(b"hello", "10.9.0.1:9").unwrap();
    until(Some(mac));
    run(&format!("ip -n {} neighbour del 10.9.0.1 dev vb", lab.b));
    until(None);
    // And what was known before it was asked.
    run(&format!("ip -n {} neighbour replace 10.9.0.1 lladdr 02:00:00:00:00:07 dev vb", lab.b));
    monitor = lab.in_b(Monitor::open);
    let mut changes = Vec::new();
    for _ in 0..20 {
        ready(&monitor, Interest::READ, 50);
        monitor.receive(&mut changes).unwrap();
    }
    let known = changes
        .iter()
        .any(|c| matches!(c, Change::Neighbour(n) if n.address == address && n.mac == Some([2, 0, 0, 0, 0, 7])));
    assert!(known, "{changes:?}");
}
