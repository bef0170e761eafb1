//! What reading and rewriting a packet costs: `cargo bench --bench packet`.
//!
//! CPU time of one thread, ns a packet of 1500 bytes: `parse`, and `parse` with a `rewrite` of source address and port.

use hyroads_dataplane::ip::{parse, rewrite, Endpoint, Sum, TCP, UDP};
use hyroads_dataplane::sys::clock::cpu_ns;

const PACKETS: usize = 5_000_000;
const LEN: usize = 1500;

fn main() {
    println!("{:<24}{:>10}{:>20}", "ns a packet", "parse", "parse and rewrite");
    for (title, v6, protocol) in
        [("IPv4 TCP", false, TCP), ("IPv4 UDP", false, UDP), ("IPv6 TCP", true, TCP), ("IPv6 UDP", true, UDP)]
    {
        let mut bytes = packet(v6, protocol);
        let ends = ends(v6);
        // What is summed up and looked at is not optimised away.
        let mut sum = 0;
        let read = timed(|number| {
            bytes[header(v6)] = number as u8;
            let packet = parse(&bytes).expect("a packet");
            sum += packet.l4_at + packet.len + usize::from(packet.tuple.source.port);
        });
        let both = timed(|number| {
            let packet = parse(&bytes).expect("a packet");
            let source = Some(ends[number % ends.len()]);
            assert!(rewrite(&mut bytes, &packet, source, None, Sum::Whole));
        });
        assert!(sum > 0 && parse(&bytes).is_ok());
        println!("{:<24}{:>10.1}{:>20.1}", title, read, both);
    }
}

fn timed(mut work: impl FnMut(usize)) -> f64 {
    (0..PACKETS / 10).for_each(&mut work);
    let began_ns = cpu_ns();
    (0..PACKETS).for_each(&mut work);
    (cpu_ns() - began_ns) as f64 / PACKETS as f64
}

fn ends(v6: bool) -> [Endpoint; 2] {
    let addresses = if v6 { ["2001:db8::5", "fd68::2"] } else { ["192.0.2.5", "10.171.0.2"] };
    [20_000, 443]
        .map(|port| Endpoint { address: addresses[usize::from(port < 1_000)].parse().expect("an address"), port })
}

fn header(v6: bool) -> usize {
    if v6 {
        40
    } else {
        20
    }
}

fn packet(v6: bool, protocol: u8) -> Vec<u8> {
    let mut bytes = vec![7; LEN];
    if v6 {
        bytes[..4].copy_from_slice(&[0x60, 0, 0, 0]);
        bytes[4..6].copy_from_slice(&(LEN as u16 - 40).to_be_bytes());
        bytes[6] = protocol;
    } else {
        bytes[..2].copy_from_slice(&[0x45, 0]);
        bytes[2..4].copy_from_slice(&(LEN as u16).to_be_bytes());
        bytes[6..10].copy_from_slice(&[0x40, 0, 64, protocol]);
    }
    bytes[header(v6) + 12] = 0x50;
    bytes
}
