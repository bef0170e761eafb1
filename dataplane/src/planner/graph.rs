//! The graph of interfaces in flat arrays, its integer metric, and exact distances to the target.
use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::interference::Interference;

const FASTEST_UNITS: f64 = 16_777_216.0; // 2^24
const SLOWEST_UNITS: f64 = 70_368_744_177_664.0; // 2^46
const HOP_BITS: u32 = 8;
const NEGLIGIBLE_AIRTIME: f64 = 1e-9;

/// Distance of a state that does not reach the target.
pub const UNREACHABLE: u64 = u64::MAX;
/// Ingress technology of a path that has not begun.
pub const NO_TECHNOLOGY: u32 = u32::MAX;

/// What does not change in the tree: structure of the network, links in the order of their source nodes.
pub struct Graph {
    pub nodes: usize,
    pub technologies: usize,
    pub source: Vec<u32>,
    pub target: Vec<u32>,
    pub technology: Vec<u32>,
    /// Links out of node v are `egress[v]..egress[v + 1]`.
    pub egress: Vec<u32>,
    /// Links into node v on technology k are `ingress_links[ingress[v * K + k]..ingress[v * K + k + 1]]`.
    ingress: Vec<u32>,
    ingress_links: Vec<u32>,
    pub relays: Vec<bool>,
    pub shared: Vec<bool>,
    /// The caller's index of each link.
    pub original: Vec<u32>,
    pub unit_mbps: f64,
}

/// The caller's description of the links, in the caller's order.
pub struct Links<'a> {
    pub source: &'a [u32],
    pub target: &'a [u32],
    pub technology: &'a [u32],
}

/// Offsets and members of buckets: members of bucket b are `members[offsets[b]..offsets[b + 1]]`, in order.
fn buckets(count: usize, keys: impl Iterator<Item = usize> + Clone) -> (Vec<u32>, Vec<u32>) {
    let mut offsets = vec![0u32; count + 1];
    for key in keys.clone() {
        offsets[key + 1] += 1;
    }
    for bucket in 0..count {
        offsets[bucket + 1] += offsets[bucket];
    }
    let mut next = offsets.clone();
    let mut members = vec![0u32; offsets[count] as usize];
    for (item, key) in keys.enumerate() {
        members[next[key] as usize] = item as u32;
        next[key] += 1;
    }
    (offsets, members)
}

impl Graph {
    pub fn new(links: &Links, relays: Vec<bool>, shared: Vec<bool>, unit_mbps: f64) -> Graph {
        let (nodes, technologies) = (relays.len(), shared.len());
        let (egress, original) = buckets(nodes, links.source.iter().map(|&node| node as usize));
        let pick = |values: &[u32]| -> Vec<u32> { original.iter().map(|&link| values[link as usize]).collect() };
        let (source, target) = (pick(links.source), pick(links.target));
        let technology = pick(links.technology);
        let states = target.iter().zip(&technology);
        let states = states.map(|(&node, &on)| node as usize * technologies + on as usize);
        let (ingress, ingress_links) = buckets(nodes * technologies, states);
        Graph {
            nodes,
            technologies,
            source,
            target,
            technology,
            egress,
            ingress,
            ingress_links,
            relays,
            shared,
            original,
            unit_mbps,
        }
    }

    pub fn links_out(&self, node: u32) -> std::ops::Range<u32> {
        self.egress[node as usize]..self.egress[node as usize + 1]
    }

    /// Whether any link, of whatever capacity, comes in on a technology.
    pub fn has_ingress(&self, node: u32, technology: u32) -> bool {
        let state = node as usize * self.technologies + technology as usize;
        self.ingress[state] < self.ingress[state + 1]
    }

    /// State at the end of a link: (node, technology) as one number.
    pub fn end_state(&self, link: u32) -> usize {
        self.target[link as usize] as usize * self.technologies + self.technology[link as usize] as usize
    }

    fn weight(&self, capacity_mbps: f64) -> u64 {
        if capacity_mbps <= 0.0 {
            return 0;
        }
        // The value is positive, so the cast is the floor.
        let units = (FASTEST_UNITS * self.unit_mbps / capacity_mbps + 0.5).min(SLOWEST_UNITS);
        ((units as u64) << HOP_BITS) + 1
    }
}

/// A vertex of the tree: what is left of the capacities, and the metric that follows from it.
#[derive(Clone)]
pub struct Vertex {
    pub capacity_mbps: Vec<f64>,
    /// Weight of a link; 0 if it does not exist.
    pub weight: Vec<u64>,
    /// Cost of staying on a shared technology at a node.
    staying: Vec<u64>,
}

impl Vertex {
    pub fn new(graph: &Graph, capacity_mbps: Vec<f64>) -> Vertex {
        let weight = capacity_mbps.iter().map(|&one| graph.weight(one)).collect();
        let staying = vec![0; graph.nodes];
        let mut vertex = Vertex { capacity_mbps, weight, staying };
        vertex.set_staying(graph);
        vertex
    }

    fn set_staying(&mut self, graph: &Graph) {
        let mut alive = graph.technology.iter().zip(&self.weight).filter(|(_, &weight)| weight > 0);
        let first = alive.next().map(|(&technology, _)| technology);
        let several = alive.any(|(&technology, _)| Some(technology) != first);
        for node in 0..graph.nodes {
            let links = graph.egress[node] as usize..graph.egress[node + 1] as usize;
            let least = self.weight[links].iter().copied().filter(|&weight| weight > 0).min();
            self.staying[node] = if several { least.unwrap_or(0) } else { 0 };
        }
    }

    /// Cost of going on over `link` when the path came in on the given technology.
    pub fn step(&self, graph: &Graph, link: u32, came_in_on: u32) -> u64 {
        let (link, on) = (link as usize, graph.technology[link as usize]);
        let stays = on == came_in_on && graph.shared[on as usize];
        let cost = if stays { self.staying[graph.source[link] as usize] } else { 0 };
        self.weight[link].saturating_add(cost)
    }

    /// Becomes `update(path, parent)`: only weights of links whose capacity changes are computed again.
    pub fn become_child(&mut self, graph: &Graph, parent: &Vertex, load: &[f64], greatest: f64) {
        self.capacity_mbps.copy_from_slice(&parent.capacity_mbps);
        self.weight.copy_from_slice(&parent.weight);
        for (link, &busy) in load.iter().enumerate() {
            if busy > 0.0 && self.weight[link] > 0 {
                let remaining = 1.0 - busy / greatest;
                let capacity = if remaining < NEGLIGIBLE_AIRTIME { 0.0 } else { self.capacity_mbps[link] * remaining };
                self.capacity_mbps[link] = capacity;
                self.weight[link] = graph.weight(capacity);
            }
        }
        self.set_staying(graph);
    }
}

/// R(P) = 1 / the greatest load on the links of the path; returns that greatest load.
pub fn greatest_load(interference: &Interference, vertex: &Vertex, path: &[u32]) -> f64 {
    let mut greatest = 0.0f64;
    for &link in path {
        let mut load = 0.0;
        for &other in path {
            if interference.contends(link, other) {
                load += 1.0 / vertex.capacity_mbps[other as usize];
            }
        }
        greatest = greatest.max(load);
    }
    greatest
}

/// Exact distance of every state (node, technology) to `target` over paths that do not pass through `source`.
pub fn distances_to(graph: &Graph, vertex: &Vertex, source: u32, target: u32, into: &mut Distances) {
    let technologies = graph.technologies;
    into.cost.clear();
    into.cost.resize(graph.nodes * technologies, UNREACHABLE);
    into.queue.clear();
    for technology in 0..technologies {
        let state = target as usize * technologies + technology;
        into.cost[state] = 0;
        into.queue.push(Reverse((0, state as u32)));
    }
    while let Some(Reverse((cost, state))) = into.queue.pop() {
        let state = state as usize;
        let node = (state / technologies) as u32;
        if cost > into.cost[state] || node == source || (node != target && !graph.relays[node as usize]) {
            continue;
        }
        for &link in &graph.ingress_links[graph.ingress[state] as usize..graph.ingress[state + 1] as usize] {
            let start = graph.source[link as usize];
            if vertex.weight[link as usize] > 0 && start != target {
                into.reach(graph, vertex, link, start, cost);
            }
        }
    }
}

/// Distances of all states, and the heap that computes them (kept to be used again).
#[derive(Default)]
pub struct Distances {
    pub cost: Vec<u64>,
    queue: BinaryHeap<Reverse<(u64, u32)>>,
}

impl Distances {
    fn reach(&mut self, graph: &Graph, vertex: &Vertex, link: u32, start: u32, rest: u64) {
        let first = start as usize * graph.technologies;
        let on = graph.technology[link as usize];
        let (switching, staying) = (vertex.step(graph, link, NO_TECHNOLOGY), vertex.step(graph, link, on));
        let known = &mut self.cost[first..first + graph.technologies];
        for (came_in_on, least) in known.iter_mut().enumerate() {
            let cost = rest.saturating_add(if came_in_on == on as usize { staying } else { switching });
            if cost < *least {
                *least = cost;
                self.queue.push(Reverse((cost, (first + came_in_on) as u32)));
            }
        }
    }
}
