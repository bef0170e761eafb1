//! A multi-homed client and its waypoint in virtual time: packets of the host, of strangers, and of who has the key.
//!
//! Steps: 0 and 1 a packet of the host or of the other side, 2 one on the wire, 3 an authenticated datagram with any
//! header, 4 any datagram, 5 time passes, 6 a control line. At the end every buffer is back.
#![no_main]
use hyroads_dataplane::client::testing::{config, rule, Sim, KEY};
use hyroads_dataplane::client::tunnel::{self, Key};
use hyroads_dataplane::edge::frame::{Kind, Shim};
use hyroads_fuzz::Script;

const KINDS: [Kind; 5] = [Kind::Data, Kind::KeepAlive, Kind::Pause, Kind::Padding, Kind::Resume];

fn datagram(script: &mut Script, now_ns: u64) -> (bool, Vec<u8>) {
    let (what, path, flow) = (script.byte(), script.byte(), script.number());
    let sequence = u32::from(script.number()) << 16 | u32::from(script.number());
    let is_up = what & 8 == 0;
    let key = Key::parse(KEY).expect("a key of tests");
    let key = if is_up { key } else { key.of_waypoint() };
    let sent_us = (now_ns / 1000) as u32;
    let shim = Shim { kind: KINDS[usize::from(what & 7) % KINDS.len()], path, flow, sequence, sent_us };
    let inner = script.bytes();
    (is_up, [&tunnel::header(&shim, 7, key, inner)[..], inner].concat())
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let rules = [
        r#"{"name":"direct","match":{"protocol":"udp"},"interfaces":["if0","if1"],"via":"direct"}"#.to_string(),
        r#"{"name":"copies","match":{"protocol":"icmp"},"copies":true,"interfaces":["if0","if1"],"via":"waypoint"}"#
            .to_string(),
        rule(r#""spread":"packet","#, &["if0", "if1"], "waypoint"),
    ];
    let stranger = "198.18.0.66:666".parse().expect("an address");
    let mut sim = Sim::with_rules(&[(50.0, 5), (50.0, 20)], &rules.join(","));
    let mut script = Script(data);
    let mut left_ms = 5_000;
    while !script.is_at_end() {
        match script.byte() % 7 {
            0 => sim.send(script.bytes()),
            1 => sim.reply(script.bytes()),
            2 => drop(sim.wire(usize::from(script.byte() % 3), script.bytes())),
            3 => {
                let (is_up, bytes) = datagram(&mut script, sim.now_ns);
                let end = if is_up { &mut sim.waypoint } else { &mut sim.client };
                end.datagram(sim.now_ns, &bytes, stranger);
            }
            4 => {
                let bytes = script.bytes();
                assert!(!sim.waypoint.datagram(sim.now_ns, bytes, stranger), "nobody guesses a key");
                assert!(!sim.client.datagram(sim.now_ns, bytes, stranger), "nobody guesses a key");
            }
            5 => {
                let ms = u64::from(script.byte()).min(left_ms);
                left_ms -= ms;
                sim.run_ms(ms);
            }
            _ => drop(std::str::from_utf8(script.bytes()).map(config)),
        }
    }
    sim.run_ms(100);
    sim.end();
});
