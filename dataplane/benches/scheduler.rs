//! What a decision of miDRR costs, beside plain deficit round robin at one interface: `cargo bench --bench scheduler`.
//!
//! Backlogged flows of full packets, interfaces of capacities 1 to 16 in turn as their packets end. CPU time of one
//! thread, ns a decision (`next` and `sent`): the mean, and the 99th percentile of single decisions, which holds what a
//! look at the clock costs (shown beside it).

use hyroads_dataplane::client::scheduler::{Accepts, Scheduler};
use hyroads_dataplane::sys::clock::cpu_ns;
use std::time::Instant;

const DECISIONS: usize = 2_000_000;
const TIMED: usize = 200_000;

fn main() {
    println!("{:<34}{:>10}{:>12}{:>12}", "ns a decision", "mean", "99 %", "(clock)");
    let plain = run("plain DRR, 1 interface, 32 flows", 1, 32);
    for (interfaces, flows) in [(2, 8), (2, 1_000), (16, 8), (16, 32), (16, 1_000)] {
        let title = format!("{} interfaces, {} flows", interfaces, flows);
        let mean = run(&title, interfaces, flows);
        println!("{:>44.2} x plain", mean / plain);
    }
}

/// The order in which interfaces of capacities 1, 2, ... become free.
fn order(interfaces: usize) -> Vec<usize> {
    let mut free = vec![0.0; interfaces];
    (0..4_096)
        .map(|_| {
            let next = (0..interfaces).min_by(|a, b| free[*a].partial_cmp(&free[*b]).unwrap()).unwrap();
            free[next] += 1.0 / (next + 1) as f64;
            next
        })
        .collect()
}

fn run(title: &str, interfaces: usize, flows: usize) -> f64 {
    let mut scheduler = Scheduler::new(interfaces, 1500);
    for flow in 0..flows {
        // Every second flow accepts all, the others some.
        let all = ((1u32 << interfaces) - 1) as Accepts;
        let some = (0x9e37_79b9u32.wrapping_mul(flow as u32 + 1) >> 7) as Accepts & all;
        let accepts = if flow % 2 == 0 || some == 0 { all } else { some };
        scheduler.add(flow, (flow % 3 + 1) as f64, accepts, false);
        scheduler.arrived(flow);
    }
    let order = order(interfaces);
    let sizes = vec![1500; flows];
    // What is summed up and looked at is not optimised away.
    let mut sum = 0;
    let mut decide = |number: usize| {
        let interface = order[number % order.len()];
        if let Some(flow) = scheduler.next(interface, |flow| sizes[flow]) {
            sum += flow;
            scheduler.sent(interface, flow, sizes[flow], true);
        }
    };
    (0..DECISIONS / 10).for_each(&mut decide);
    let began_ns = cpu_ns();
    (0..DECISIONS).for_each(&mut decide);
    let mean = (cpu_ns() - began_ns) as f64 / DECISIONS as f64;
    let clock = percentile(&mut (0..TIMED).map(|_| timed(|| ())).collect::<Vec<_>>());
    let high = percentile(&mut (0..TIMED).map(|number| timed(|| decide(number))).collect::<Vec<_>>());
    assert!(sum > 0, "one flow got everything");
    println!("{:<34}{:>10.1}{:>12}{:>12}", title, mean, high, clock);
    mean
}

fn timed(work: impl FnOnce()) -> u64 {
    let began = Instant::now();
    work();
    began.elapsed().as_nanos() as u64
}

fn percentile(samples: &mut [u64]) -> u64 {
    samples.sort_unstable();
    samples[samples.len() * 99 / 100]
}
