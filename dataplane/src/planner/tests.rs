//! The kernel on its own; equality with the reference on random networks is tested from Python.
use super::graph::{Graph, Links};
use super::interference::{Cliques, Interference};
use super::tree::{explore, Plan, Query};

/// a -> b on PLC at 10 and on WiFi at 15, b -> c on WiFi at 30 Mb/s; every WiFi link contends with every other.
fn triangle() -> (Graph, Interference) {
    let links = Links { source: &[0, 0, 1], target: &[1, 1, 2], technology: &[0, 1, 1] };
    let graph = Graph::new(&links, vec![true, true, true], vec![true, true], 30.0);
    (graph, Interference::Cliques(Cliques::new(vec![0, 1, 1], 2)))
}

fn plan(source: u32, target: u32, depth: usize) -> Plan {
    let (graph, interference) = triangle();
    let query = Query { source, target, shortest: 5, depth, arms: 5 };
    explore(&graph, &interference, vec![10.0, 15.0, 30.0], &query)
}

#[test]
fn triangle_reaches_sixteen_and_two_thirds() {
    let plan = plan(0, 2, 2);
    let best = &plan.arms[0];
    assert_eq!(best[0].links, [0, 2]);
    assert_eq!(best[1].links, [1, 2]);
    assert!((best[0].rate_mbps - 10.0).abs() < 1e-12);
    assert!((best[1].rate_mbps - 20.0 / 3.0).abs() < 1e-12);
    assert_eq!(plan.arms.len(), 2, "WiFi first leaves nothing for PLC+WiFi: an arm of one path");
}

#[test]
fn no_route_is_an_empty_plan() {
    let plan = plan(2, 0, 2);
    assert!(plan.single.is_none() && plan.arms.is_empty());
}

#[test]
fn a_node_that_does_not_relay_is_not_crossed() {
    let links = Links { source: &[0, 1], target: &[1, 2], technology: &[0, 0] };
    let graph = Graph::new(&links, vec![true, false, true], vec![true], 10.0);
    let interference = Interference::Cliques(Cliques::new(vec![0, 0], 1));
    let query = Query { source: 0, target: 2, shortest: 5, depth: 1, arms: 5 };
    assert!(explore(&graph, &interference, vec![10.0, 10.0], &query).single.is_none());
}
