//! Two engines back to back over two ideal wires with different delays.

use super::*;
use crate::edge::pace::BURST_NS;
use crate::edge::protocol::{parse_request, Request};
use crate::edge::testing::Rng;

fn config(text: &str) -> Config {
    match parse_request(&format!("{{\"type\":\"config\",{text}}}")) {
        Ok((_, Request::Config(config))) => *config,
        other => panic!("{other:?}"),
    }
}

fn engine(now: u64, text: &str) -> (Engine, Effects) {
    let mut engine = Engine::new(Pool::new(2048, 4096), BURST_NS);
    let mut fx = Effects::default();
    apply(&mut engine, now, text, &mut fx);
    (engine, fx)
}

fn apply(engine: &mut Engine, now: u64, text: &str, fx: &mut Effects) {
    let exit_of = |name: Option<&str>| match name {
        Some("two") => (1, [2, 0, 0, 0, 0, 2]),
        _ => (0, [2, 0, 0, 0, 0, 1]),
    };
    engine.apply(now, &config(text), &exit_of, &mut || 4_000_000_000, fx);
}

const SEND: &str = r#""revision":1,"ingress":[{"number":16,"default":true,"paths":[
    {"id":1,"rate_mbps":20},{"id":2,"rate_mbps":10,"interface":"two"}]}]"#;
const RECEIVE: &str = r#""revision":1,"egress":[{"number":16,"paths":[1,2]}]"#;

fn frame(engine: &mut Engine, bytes: &[u8]) -> Buf {
    let mut buf = engine.pool.take().unwrap();
    assert!(buf.set(bytes));
    buf
}

#[test]
fn frames_arrive_unchanged_and_in_order_over_unequal_paths() {
    let b = carry(SEND);
    assert_eq!(b.receivers().next().unwrap().1.counters.dummies, 0);
}

#[test]
fn private_frames_arrive_unchanged_and_in_order_with_padding_or_without() {
    let split = |text: &str| SEND.replacen("\"paths\"", &format!("\"split\":{text},\"paths\""), 1);
    carry(&split(r#"{"kind":"hywf"}"#));
    carry(&split(r#"{"kind":"fixed","shares":{"1":0.6,"2":0.4}}"#));
    let b = carry(&split(
        r#"{"kind":"hywf","n_cons":15,"n_chp":100,"padding":{"gap_ms":0.4,"deviation_ms":0.1,"max_per_s":1000}}"#,
    ));
    assert!(b.receivers().next().unwrap().1.counters.dummies > 100);
}

#[test]
fn a_probe_of_one_path_after_the_other_neither_loses_nor_reorders_a_frame() {
    let parts = [
        r#"{"16":{"1":20,"2":0}}"#,
        r#"{"16":{"1":0,"2":12}},"fill":{"16":{"2":9}}"#,
        r#"{"16":{"1":20,"2":10}}"#,
        r#"{"16":{"1":0,"2":0}}"#,
        r#"{"16":{"1":15,"2":0}},"fill":{"16":{"1":15}}"#,
        r#"{"16":{"1":20,"2":10}}"#,
    ];
    let b = carry_while(SEND, |step, now, engine, fx| {
        if step % 1500 == 0 && step > 0 {
            let part = parts[(step / 1500) as usize % parts.len()];
            match parse_request(&format!(r#"{{"type":"rates","rates":{part}}}"#)) {
                Ok((_, Request::Rates(rates))) => {
                    engine.set_rates(now, &rates, fx).unwrap();
                }
                other => panic!("{other:?}"),
            }
        }
    });
    let receiver = b.receivers().next().unwrap().1;
    assert!(receiver.counters.dummies > 30, "{}", receiver.counters.dummies);
    assert_eq!(receiver.counters.stale + receiver.counters.duplicate, 0);
}

/// Carries 1.6 s of random frames from one engine to another, all of them in order; the second engine comes back.
fn carry(send: &str) -> Engine {
    carry_while(send, |_, _, _, _| ())
}

fn carry_while(send: &str, mut meanwhile: impl FnMut(u64, u64, &mut Engine, &mut Effects)) -> Engine {
    let (mut a, mut fx_a) = engine(0, send);
    let (mut b, mut fx_b) = engine(0, RECEIVE);
    let mut rng = Rng::new(4);
    // (arrival, order, bytes) of what is under way.
    let mut wire: Vec<(u64, usize, Vec<u8>)> = Vec::new();
    let (mut offered, mut got): (Vec<Vec<u8>>, Vec<Vec<u8>>) = (Vec::new(), Vec::new());
    for step in 0..20_000u64 {
        let now = 1_000 * MS + step * MS / 10;
        if step % 8 == 0 && (400..16_000).contains(&step) {
            let mut bytes: Vec<u8> = (0..14 + rng.below(1500)).map(|_| rng.next() as u8).collect();
            bytes[13] = 0;
            offered.push(bytes.clone());
            let buf = frame(&mut a, &bytes);
            a.from_access(now, buf, &mut fx_a);
        }
        meanwhile(step, now, &mut a, &mut fx_a);
        a.poll(now, &mut fx_a);
        for (exit, buf) in fx_a.network.drain(..) {
            let delay = if exit == 0 { 2 * MS } else { 30 * MS };
            wire.push((now + delay, wire.len(), buf.bytes().to_vec()));
            a.pool.give(buf);
        }
        let mut due: Vec<_> = wire.iter().filter(|w| w.0 <= now).cloned().collect();
        due.sort();
        wire.retain(|w| w.0 > now);
        for (_, _, bytes) in due {
            let buf = frame(&mut b, &bytes);
            b.from_network(now, buf, &mut fx_b);
        }
        b.poll(now, &mut fx_b);
        for buf in fx_b.access.drain(..) {
            got.push(buf.bytes().to_vec());
            b.pool.give(buf);
        }
    }
    assert_eq!(got.len(), offered.len());
    assert!(got == offered, "frames were changed or reordered");
    assert_eq!((a.pool.in_use(), b.pool.in_use()), (0, 0));
    let receiver = b.receivers().next().unwrap().1;
    assert_eq!((receiver.counters.lost, receiver.counters.late, receiver.counters.timed_out), (0, 0, 0));
    b
}

#[test]
fn many_flows_on_one_interface_take_turns() {
    let flows: Vec<String> = (16..1016)
        .map(|n| format!(r#"{{"number":{n},"paths":[{{"id":1,"labels":[{n}],"rate_mbps":0.5}}]}}"#))
        .collect();
    let (mut a, mut fx) = engine(0, &format!(r#""revision":3,"ingress":[{}]"#, flows.join(",")));
    let mut bytes = outer_header([1; 6], [2; 6], &[16], 0);
    bytes.resize(18 + 800, 7);
    let mut sent = vec![0usize; 1 << 16];
    for step in 0..200u64 {
        let now = 1_000 * MS + step * 5 * MS;
        for n in 16..1016u32 {
            bytes[14..18].copy_from_slice(&(n << 12 | 0x140).to_be_bytes());
            if let Some(mut buf) = a.pool.take() {
                buf.set(&bytes);
                a.from_access(now, buf, &mut fx);
            }
        }
        while !a.poll(now, &mut fx) {}
        for (_, buf) in fx.network.drain(..) {
            if buf.len() > 100 {
                let label = super::super::frame::be32(buf.bytes(), 14).unwrap() >> 12;
                sent[label as usize] += buf.len() - 14;
            }
            a.pool.give(buf);
        }
    }
    let all = &sent[16..1016];
    // One second of 0.5 Mb/s, and the first burst of two frames.
    let (least, most) = (all.iter().min().unwrap(), all.iter().max().unwrap());
    assert!(*least >= 61_000 && *most <= 62_500 + 3_200, "{least} to {most} bytes");
}

#[test]
fn what_is_not_ours_is_counted_and_returned() {
    let (mut a, mut fx) = engine(0, RECEIVE);
    let mut rng = Rng::new(6);
    for _ in 0..20_000 {
        let mut bytes: Vec<u8> = (0..rng.below(100)).map(|_| rng.next() as u8).collect();
        if bytes.len() > 20 && rng.below(2) == 0 {
            bytes[12..18].copy_from_slice(&[0x88, 0xb5, 1, 1, 0, 16]);
        }
        let buf = frame(&mut a, &bytes);
        match rng.below(2) {
            0 => a.from_access(1, buf, &mut fx),
            _ => a.from_network(1, buf, &mut fx),
        }
        for buf in fx.access.drain(..) {
            a.pool.give(buf);
        }
    }
    assert!(a.counters.malformed > 0 && a.counters.unclassified > 0);
    apply(&mut a, 2, r#""revision":2"#, &mut fx);
    for buf in fx.access.drain(..) {
        a.pool.give(buf);
    }
    assert_eq!((a.pool.in_use(), a.revision), (0, 2));
}

#[test]
fn a_frame_too_big_is_answered_on_the_access_side() {
    let (mut a, mut fx) = engine(
        0,
        r#""revision":1,"ingress":[{"number":16,"default":true,"paths":[{"id":1,"rate_mbps":9,"mtu":1400}]}]"#,
    );
    let mut bytes = vec![
        2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0, 5, 220, 0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
    ];
    bytes.resize(1514, 0);
    let buf = frame(&mut a, &bytes);
    a.from_access(0, buf, &mut fx);
    let reply = fx.access.pop().unwrap();
    // 1400 less shim and inner Ethernet header.
    assert_eq!(&reply.bytes()[40..42], &1374u16.to_be_bytes());
    assert_eq!(a.senders().next().unwrap().too_big, 1);
}

#[test]
fn hellos_are_said_every_interval_and_heard() {
    let hello = r#""revision":1,"hello":{"interval_ms":40,"dead_ms":140,"send":[{"label":99},{"interface":"two"}],
        "expect":[{"link":"ba","mac":"02:00:00:00:00:02"}]}"#;
    let (mut a, mut fx) = engine(1_000 * MS, hello);
    let mut said = [0, 0];
    for step in 0..1000 {
        let now = 1_000 * MS + step * MS;
        a.poll(now, &mut fx);
        for (exit, buf) in fx.network.drain(..) {
            said[exit] += 1;
            let bytes = buf.bytes().to_vec();
            if exit == 1 && step < 500 {
                let mut back = a.pool.take().unwrap();
                back.set(&bytes);
                let mut fx = Effects::default();
                a.from_network(now, back, &mut fx);
            }
            a.pool.give(buf);
        }
        a.poll_links(now, &mut fx);
    }
    assert_eq!(said, [25, 25]);
    assert_eq!(fx.changes, [("ba".to_string(), false)]);
    assert!(!a.liveness().links()[0].up);
}

#[test]
fn only_an_absence_of_more_than_a_hello_interval_puts_silence_off() {
    let hello =
        r#""revision":1,"hello":{"interval_ms":40,"dead_ms":140,"expect":[{"link":"ba","mac":"02:00:00:00:00:02"}]}"#;
    for (absent_ms, dead_ms) in [(40, 500), (41, 541)] {
        let (mut a, mut fx) = engine(0, hello);
        // At the start a link is waited for at least 500 ms.
        a.absent(100 * MS, (100 + absent_ms) * MS);
        a.poll_links(dead_ms * MS - 1, &mut fx);
        assert!(fx.changes.is_empty());
        a.poll_links(dead_ms * MS, &mut fx);
        assert_eq!(fx.changes, [("ba".to_string(), false)]);
    }
}

#[test]
fn rates_are_all_or_nothing() {
    let (mut a, mut fx) = engine(0, SEND);
    let change = |rates: &[(u8, f64)], fill: &[(u8, f64)]| {
        let rates = rates.iter().map(|(id, rate)| (*id, Some(*rate))).collect();
        BTreeMap::from([(16, RateChange { rates, fill: fill.iter().copied().collect() })])
    };
    let rates = change(&[(1, 5.0), (7, 1.0)], &[]);
    assert!(a.set_rates(0, &rates, &mut fx).unwrap_err().contains("unknown path 7"));
    assert_eq!(a.senders().next().unwrap().paths()[0].spec.rate_mbps, Some(20.0));
    assert!(a.set_rates(0, &change(&[(1, 5.0)], &[(8, 1.0)]), &mut fx).unwrap_err().contains("unknown path 8"));
    assert_eq!(a.senders().next().unwrap().paths()[0].spec.rate_mbps, Some(20.0));
    let rates = change(&[(1, 5.0)], &[]);
    a.set_rates(0, &rates, &mut fx).unwrap();
    assert_eq!(a.senders().next().unwrap().paths()[0].spec.rate_mbps, Some(5.0));
}
