//! What seals cost: `cargo bench --bench seal`.
//!
//! CPU time of one thread. First ns a frame that sealing and checking take by themselves, by the length of the inner frame.
//! Then two agents without their devices, with and without a key, in turn: ns a frame for both agents together, of which
//! each seals or checks once; the throughput of the pair; and what a seal adds to a frame at one agent.

use hyroads_dataplane::edge::buffer::Pool;
use hyroads_dataplane::edge::engine::{Effects, Engine};
use hyroads_dataplane::edge::frame::{Kind, Shim};
use hyroads_dataplane::edge::protocol::{parse_request, Request};
use hyroads_dataplane::edge::seal::{Base, Covered, Key};
use hyroads_dataplane::sys::clock::cpu_ns;

const SEALS: u32 = 2_000_000;
const FRAMES: usize = 100_000;
const ROUNDS: usize = 15;
const KEY: &str = r#""key":"000102030405060708090a0b0c0d0e0f","#;

fn main() {
    println!("{:<24}{:>10}", "ns a frame", "seal");
    for len in [60, 300, 1514] {
        println!("{:<24}{:>10.1}", format!("{len} bytes"), seal_ns(len));
    }
    println!(
        "{:<24}{:>10}{:>10}{:>14}{:>12}",
        "ns a frame, two agents", "bare", "sealed", "throughput", "added to one"
    );
    for len in [60, 300, 1514] {
        let mut pairs = [Pair::new(""), Pair::new(KEY)];
        let mut took: [Vec<f64>; 2] = [Vec::new(), Vec::new()];
        for round in 0..ROUNDS {
            for which in [round % 2, 1 - round % 2] {
                took[which].push(pairs[which].carry(len));
            }
        }
        let (bare, sealed) = (median(&mut took[0]), median(&mut took[1]));
        let title = format!("{len} bytes");
        println!("{title:<24}{bare:>10.1}{sealed:>10.1}{:>14.3}{:>12.1}", bare / sealed, (sealed - bare) / 2.0);
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(|a, b| a.partial_cmp(b).expect("numbers"));
    values[values.len() / 2]
}

fn seal_ns(len: usize) -> f64 {
    let key = Key::of(Base::new([7; 16]), 1);
    let mut inner = vec![3; len];
    let shim = Shim { kind: Kind::Data, path: 1, flow: 16, sequence: 0, sent_us: 0 };
    let mut sum = 0u64;
    let mut work = |number: u32| {
        inner[0] = number as u8;
        let head = Shim { sequence: number, ..shim }.encode_sealed(1);
        sum = sum.wrapping_add(key.seal(key.condense(Covered { ends: None, inner: &inner }), &head, 0));
    };
    (0..SEALS / 10).for_each(&mut work);
    let began_ns = cpu_ns();
    (0..SEALS).for_each(&mut work);
    let took_ns = cpu_ns() - began_ns;
    // It is not optimised away.
    assert!(sum != 0);
    took_ns as f64 / f64::from(SEALS)
}

/// Two agents and a flow over two paths.
struct Pair {
    a: Engine,
    b: Engine,
    now_ns: u64,
}

impl Pair {
    fn new(key: &str) -> Self {
        let sends = format!(r#""ingress":[{{"number":16,{key}"default":true,"paths":[{{"id":1}},{{"id":2}}]}}]"#);
        let receives = format!(r#""egress":[{{"number":16,{key}"paths":[1,2]}}]"#);
        let engine = |text: &str| {
            let mut engine = Engine::new(Pool::new(2048, 4096), 2_000_000);
            let line = format!("{{\"type\":\"config\",\"revision\":1,{text}}}");
            match parse_request(&line) {
                Ok((_, Request::Config(config))) => {
                    engine.apply(0, &config, &|_| (0, [2, 0, 0, 0, 0, 1]), &mut || 7, &mut Effects::default());
                }
                other => panic!("{other:?}"),
            }
            engine
        };
        Pair { a: engine(&sends), b: engine(&receives), now_ns: 0 }
    }

    /// ns a frame.
    fn carry(&mut self, len: usize) -> f64 {
        let frame = vec![5; len];
        let (mut fx_a, mut fx_b) = (Effects::default(), Effects::default());
        let (mut took_ns, mut got) = (0, 0);
        let began_ns = cpu_ns();
        for _ in 0..FRAMES {
            self.now_ns += 4_000;
            let buf = self.a.pool.take_with(&frame).expect("a buffer");
            self.a.from_access(self.now_ns, buf, &mut fx_a);
            self.a.poll(self.now_ns, &mut fx_a);
            for (_, sent) in fx_a.network.drain(..) {
                let came = self.b.pool.take_with(sent.bytes()).expect("a buffer");
                self.a.pool.give(sent);
                self.b.from_network(self.now_ns, came, &mut fx_b);
            }
            for buf in fx_b.access.drain(..) {
                got += 1;
                self.b.pool.give(buf);
            }
        }
        took_ns += cpu_ns() - began_ns;
        assert_eq!((got, self.b.counters.forged + self.b.counters.replayed), (FRAMES, 0));
        took_ns as f64 / FRAMES as f64
    }
}
