//! A whole agent with flows of every kind: frames from both sides, time, and new configurations, in any order.
//!
//! Steps: 0 a frame from the access side, 1 a frame from the network, 2 time passes, 3 a control line. After each one
//! every buffer is where the agent says.
#![no_main]
use hyroads_dataplane::edge::buffer::Pool;
use hyroads_dataplane::edge::engine::{Effects, Engine};
use hyroads_dataplane::edge::pace::BURST_NS;
use hyroads_dataplane::edge::protocol::{parse_request, Config, Request};
use hyroads_fuzz::Script;

const POOL: usize = 256;
const START: &str = r#"{"type":"config","revision":1,
    "hello":{"interval_ms":40,"dead_ms":200,"send":[{"label":5}],"expect":[{"link":"l1","mac":"02:00:00:00:00:09"}]},
    "ingress":[{"number":16,"paths":[{"id":1,"rate_mbps":20},{"id":2,"rate_mbps":10,"labels":[7,8]}]},
        {"number":17,"split":{"kind":"hywf","padding":{"gap_ms":0.4,"deviation_ms":0.1,"max_per_s":1000}},"paths":[{"id":1,"rate_mbps":5},{"id":2,"rate_mbps":5}]},
        {"number":18,"split":{"kind":"copy"},"paths":[{"id":1,"rate_mbps":20},{"id":2,"rate_mbps":20,"copied_from":1}]}],
    "egress":[{"number":16,"paths":[1,2],"watch":[1],"hold":{"paths":[2],"ms":50}},{"number":18,"paths":[1,2],"late":"drop"},
        {"number":19,"paths":[1],"reorder":false,"equalise":false}],
    "branch":[{"number":20,"path":1,"copies":[{"id":1,"labels":[4]},{"id":2,"labels":[5]}]}]}"#;

fn apply(engine: &mut Engine, now_ns: u64, config: &Config, fx: &mut Effects) {
    let exit_of = |name: Option<&str>| (name.map_or(0, |name| name.len() % 2), [2, 0, 0, 0, 0, 1]);
    engine.apply(now_ns, config, &exit_of, &mut || 0xffff_fff0, fx);
}

fn give_back(engine: &mut Engine, fx: &mut Effects) {
    fx.network.drain(..).for_each(|(_, buf)| engine.pool.give(buf));
    fx.access.drain(..).for_each(|buf| engine.pool.give(buf));
    fx.changes.clear();
    fx.notices.clear();
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let mut engine = Engine::new(Pool::new(2048, POOL), BURST_NS);
    let (mut fx, mut now_ns) = (Effects::default(), 5_000_000_000);
    match parse_request(START) {
        Ok((_, Request::Config(config))) => apply(&mut engine, now_ns, &config, &mut fx),
        other => panic!("{other:?}"),
    }
    let mut script = Script(data);
    while !script.is_at_end() {
        match script.byte() % 4 {
            step @ (0 | 1) => {
                if let Some(buf) = engine.pool.take_with(script.bytes()) {
                    match step {
                        0 => engine.from_access(now_ns, buf, &mut fx),
                        _ => engine.from_network(now_ns, buf, &mut fx),
                    }
                }
            }
            2 => now_ns += u64::from(script.number()) * 100_000,
            _ => match std::str::from_utf8(script.bytes()).map(parse_request) {
                Ok(Ok((_, Request::Config(config)))) => apply(&mut engine, now_ns, &config, &mut fx),
                Ok(Ok((_, Request::Rates(rates)))) => drop(engine.set_rates(now_ns, &rates, &mut fx)),
                Ok(Ok((_, Request::ResetCounters))) => engine.reset_counters(),
                _ => {}
            },
        }
        for _ in 0..64 {
            if engine.poll(now_ns, &mut fx) {
                break;
            }
        }
        give_back(&mut engine, &mut fx);
        assert!(engine.pool.in_use() <= POOL);
    }
    // Without flows nothing is kept.
    let none = Config { ingress: vec![], egress: vec![], branch: vec![], ..parsed() };
    apply(&mut engine, now_ns, &none, &mut fx);
    give_back(&mut engine, &mut fx);
    assert_eq!(engine.pool.in_use(), 0, "buffers leak");
});

fn parsed() -> Config {
    match parse_request(r#"{"type":"config","revision":2}"#) {
        Ok((_, Request::Config(config))) => *config,
        other => panic!("{other:?}"),
    }
}
