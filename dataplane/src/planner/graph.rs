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
pub fn buckets(count: usize, keys: impl Iterator<Item = usize> + Clone) -> (Vec<u32>, Vec<u32>) {
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

    /// Links out of a node and into it.
    pub fn links_at(&self, node: u32) -> impl Iterator<Item = u32> + '_ {
        let (first, last) = (node as usize * self.technologies, (node as usize + 1) * self.technologies);
        let into = &self.ingress_links[self.ingress[first] as usize..self.ingress[last] as usize];
        self.links_out(node).chain(into.iter().copied())
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

/// A vertex of the tree: what is left of the capacities, and the metric that follows from it. The tree has one, which
/// becomes a child of itself and its parent again: that costs what the path between them touches.
pub struct Vertex {
    pub capacity_mbps: Vec<f64>,
    /// Weight of a link; 0 if it does not exist.
    pub weight: Vec<u64>,
    /// Cost of staying on a shared technology at a node.
    staying: Vec<u64>,
    /// How many links of each technology exist.
    alive: Vec<u32>,
}

/// What a vertex was before it became a child of itself.
pub struct Before {
    links: Vec<(u32, f64, u64)>,
    staying: Vec<(u32, u64)>,
    several: bool,
}

impl Vertex {
    pub fn new(graph: &Graph, capacity_mbps: Vec<f64>) -> Vertex {
        let weight: Vec<u64> = capacity_mbps.iter().map(|&one| graph.weight(one)).collect();
        let mut alive = vec![0; graph.technologies];
        for (&technology, &weight) in graph.technology.iter().zip(&weight) {
            alive[technology as usize] += u32::from(weight > 0);
        }
        let mut vertex = Vertex { capacity_mbps, weight, staying: vec![0; graph.nodes], alive };
        vertex.set_all_staying(graph);
        vertex
    }

    /// Whether links of several technologies exist.
    fn several(&self) -> bool {
        self.alive.iter().filter(|&&links| links > 0).count() > 1
    }

    fn staying_at(&self, graph: &Graph, node: usize) -> u64 {
        let links = graph.egress[node] as usize..graph.egress[node + 1] as usize;
        self.weight[links].iter().copied().filter(|&weight| weight > 0).min().unwrap_or(0)
    }

    fn set_all_staying(&mut self, graph: &Graph) {
        let several = self.several();
        for node in 0..graph.nodes {
            self.staying[node] = if several { self.staying_at(graph, node) } else { 0 };
        }
    }

    /// Cost of going on over `link` when the path came in on the given technology.
    pub fn step(&self, graph: &Graph, link: u32, came_in_on: u32) -> u64 {
        let (link, on) = (link as usize, graph.technology[link as usize]);
        let stays = on == came_in_on && graph.shared[on as usize];
        let cost = if stays { self.staying[graph.source[link] as usize] } else { 0 };
        self.weight[link].saturating_add(cost)
    }

    /// Becomes `update(path, self)`, from the load of the path and the greatest load on it.
    pub fn become_child(&mut self, graph: &Graph, load: &Load, greatest: f64) -> Before {
        let mut before = Before { links: Vec::new(), staying: Vec::new(), several: self.several() };
        for &link in load.links() {
            let (at, busy) = (link as usize, load.of(link));
            if self.weight[at] > 0 {
                before.links.push((link, self.capacity_mbps[at], self.weight[at]));
                let remaining = 1.0 - busy / greatest;
                let left = if remaining < NEGLIGIBLE_AIRTIME { 0.0 } else { self.capacity_mbps[at] * remaining };
                self.capacity_mbps[at] = left;
                self.weight[at] = graph.weight(left);
                self.alive[graph.technology[at] as usize] -= u32::from(self.weight[at] == 0);
            }
        }
        if self.several() != before.several {
            self.set_all_staying(graph);
        } else if before.several {
            let mut nodes: Vec<u32> = before.links.iter().map(|&(link, ..)| graph.source[link as usize]).collect();
            nodes.sort_unstable();
            nodes.dedup();
            for node in nodes {
                before.staying.push((node, self.staying[node as usize]));
                self.staying[node as usize] = self.staying_at(graph, node as usize);
            }
        }
        before
    }

    /// Becomes what it was before [`Vertex::become_child`].
    pub fn become_parent(&mut self, graph: &Graph, before: Before) {
        let changed = self.several() != before.several;
        for (link, capacity_mbps, weight) in before.links {
            let at = link as usize;
            self.alive[graph.technology[at] as usize] += u32::from(self.weight[at] == 0);
            self.capacity_mbps[at] = capacity_mbps;
            self.weight[at] = weight;
        }
        for (node, staying) in before.staying {
            self.staying[node as usize] = staying;
        }
        if changed {
            self.set_all_staying(graph);
        }
    }
}

/// Busy time of every link per Mb/s on a path. Only links that the path touches are looked at.
pub struct Load {
    busy: Vec<f64>,
    links: Vec<u32>,
}

impl Load {
    /// Of no path, in a network with so many links.
    pub fn new(links: usize) -> Load {
        Load { busy: vec![0.0; links], links: Vec::new() }
    }

    /// Links that are busy, in any order.
    pub fn links(&self) -> &[u32] {
        &self.links
    }

    pub fn of(&self, link: u32) -> f64 {
        self.busy[link as usize]
    }

    /// Becomes that of no path.
    pub fn clear(&mut self) {
        for link in self.links.drain(..) {
            self.busy[link as usize] = 0.0;
        }
    }

    pub fn add(&mut self, link: u32, airtime: f64) {
        let busy = &mut self.busy[link as usize];
        if *busy == 0.0 {
            self.links.push(link);
        }
        *busy += airtime;
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

/// Exact distances of states (node, technology) to one target over paths that do not pass through one source, worked out
/// no further from the target than somebody asks. Buffers are used again.
#[derive(Default)]
pub struct Distances {
    cost: Vec<u64>,
    queue: BinaryHeap<Reverse<(u64, u32)>>,
    source: u32,
    target: u32,
}

impl Distances {
    /// Begins anew.
    pub fn begin(&mut self, graph: &Graph, source: u32, target: u32) {
        self.cost.clear();
        self.cost.resize(graph.nodes * graph.technologies, UNREACHABLE);
        self.queue.clear();
        (self.source, self.target) = (source, target);
        for technology in 0..graph.technologies {
            let state = target as usize * graph.technologies + technology;
            self.cost[state] = 0;
            self.queue.push(Reverse((0, state as u32)));
        }
    }

    /// The distance of a state; [`UNREACHABLE`] if there is none. The graph and the vertex are those of all questions
    /// since [`Distances::begin`].
    pub fn of(&mut self, graph: &Graph, vertex: &Vertex, state: usize) -> u64 {
        // What is found later is no nearer than the nearest that waits (Dijkstra).
        while let Some(&Reverse((nearest, _))) = self.queue.peek() {
            if self.cost[state] <= nearest {
                break;
            }
            self.settle(graph, vertex);
        }
        self.cost[state]
    }

    /// Takes the nearest state that waits, and goes on from there.
    fn settle(&mut self, graph: &Graph, vertex: &Vertex) {
        let (cost, state) = match self.queue.pop() {
            Some(Reverse((cost, state))) => (cost, state as usize),
            None => return,
        };
        let node = (state / graph.technologies) as u32;
        let is_end = node == self.source || (node != self.target && !graph.relays[node as usize]);
        if cost > self.cost[state] || is_end {
            return;
        }
        for &link in &graph.ingress_links[graph.ingress[state] as usize..graph.ingress[state + 1] as usize] {
            let start = graph.source[link as usize];
            if vertex.weight[link as usize] > 0 && start != self.target {
                self.reach(graph, vertex, link, start, cost);
            }
        }
    }

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

#[cfg(test)]
mod tests {
    use super::super::interference::Cliques;
    use super::*;
    use crate::rng::Rng;

    fn random(rng: &mut Rng) -> (Graph, Vertex, Interference) {
        let pick = |rng: &mut Rng, below: usize, count: usize| -> Vec<u32> {
            (0..count).map(|_| rng.below(below) as u32).collect()
        };
        let source = pick(rng, 6, 40);
        let target: Vec<u32> = source.iter().map(|&node| (node + 1 + rng.below(5) as u32) % 6).collect();
        // The second technology has few links, so that paths take it away as a whole.
        let technology: Vec<u32> = (0..40).map(|_| u32::from(rng.below(12) == 0)).collect();
        let links = Links { source: &source, target: &target, technology: &technology };
        let graph = Graph::new(&links, vec![true; 6], vec![true; 2], 50.0);
        let capacities = (0..40).map(|_| rng.below(50) as f64).collect();
        let class_of = pick(rng, 3, 40);
        let vertex = Vertex::new(&graph, capacities);
        (graph, vertex, Interference::Cliques(Cliques::new(class_of, 3)))
    }

    fn assert_same(vertex: &Vertex, wanted: &Vertex) {
        assert_eq!(vertex.capacity_mbps, wanted.capacity_mbps);
        assert_eq!((&vertex.weight, &vertex.staying), (&wanted.weight, &wanted.staying));
        assert_eq!(vertex.alive, wanted.alive);
    }

    #[test]
    fn a_child_has_the_metric_of_its_capacities_and_becomes_its_parent_again() {
        let mut rng = Rng::new(5);
        let mut tried = 0;
        for _ in 0..300 {
            let (graph, mut vertex, interference) = random(&mut rng);
            let path: Vec<u32> = (0..40).filter(|&link| vertex.weight[link as usize] > 0).take(2).collect();
            if path.len() < 2 {
                continue;
            }
            let parent = Vertex::new(&graph, vertex.capacity_mbps.clone());
            let (mut load, greatest) = (Load::new(40), greatest_load(&interference, &vertex, &path));
            interference.path_load(&graph, &path, &vertex.capacity_mbps, &mut load);
            let before = vertex.become_child(&graph, &load, greatest);
            assert!(vertex.capacity_mbps != parent.capacity_mbps);
            assert_same(&vertex, &Vertex::new(&graph, vertex.capacity_mbps.clone()));
            vertex.become_parent(&graph, before);
            assert_same(&vertex, &parent);
            tried += 1;
        }
        assert!(tried > 200);
    }
}
