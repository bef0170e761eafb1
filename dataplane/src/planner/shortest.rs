//! The n shortest loop-free paths: Yen with Lawler's partition, searched lazily by A* with exact distances.
//! Mirrors `controller/core/tree.py`.
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use super::graph::{Distances, Graph, Vertex, NO_TECHNOLOGY, UNREACHABLE};

/// Paths that begin with `prefix` and leave it on none of `banned`.
struct Subspace {
    prefix: Vec<u32>,
    banned: Vec<u32>,
    /// Lower bound, or the cost of `best`.
    cost: u64,
    best: Option<Vec<u32>>,
}

/// Cheaper first; of equal cost the unsearched first, then the order of the paths.
impl Ord for Subspace {
    fn cmp(&self, other: &Subspace) -> Ordering {
        self.cost.cmp(&other.cost).then_with(|| self.best.cmp(&other.best))
    }
}

impl PartialOrd for Subspace {
    fn partial_cmp(&self, other: &Subspace) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Subspace {
    fn eq(&self, other: &Subspace) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Subspace {}

#[derive(Clone, Copy)]
struct Label {
    state: u32,
    link: u32,
    parent: u32,
    cost: u64,
}

const ROOT: u32 = u32::MAX;

/// Buffers that are used again from search to search.
pub struct Searcher {
    distances: Distances,
    labels: Vec<Label>,
    /// Label of a state, valid if the stamp is the current one.
    label_of: Vec<(u32, u32)>,
    visited: Vec<u32>,
    stamp: u32,
    queue: BinaryHeap<Reverse<(u64, u64, u32)>>,
}

/// One source and target in one vertex of the tree.
pub struct Flow<'a> {
    pub graph: &'a Graph,
    pub vertex: &'a Vertex,
    pub source: u32,
    pub target: u32,
}

impl Searcher {
    pub fn new(graph: &Graph) -> Searcher {
        Searcher {
            distances: Distances::default(),
            labels: Vec::new(),
            label_of: vec![(0, 0); graph.nodes * graph.technologies],
            visited: vec![0; graph.nodes],
            stamp: 0,
            queue: BinaryHeap::new(),
        }
    }

    /// The `n` best loop-free paths, best first.
    pub fn n_shortest(&mut self, flow: &Flow, n: usize) -> Vec<Vec<u32>> {
        self.distances.begin(flow.graph, flow.source, flow.target);
        let mut found = Vec::with_capacity(n);
        let mut open: BinaryHeap<Reverse<Subspace>> = BinaryHeap::new();
        open.extend(self.subspace(flow, &[], Vec::new()).map(Reverse));
        while found.len() < n {
            let mut least = match open.pop() {
                Some(Reverse(least)) => least,
                None => break,
            };
            match least.best.take() {
                None => {
                    if let Some((cost, best)) = self.search(flow, &least) {
                        open.push(Reverse(Subspace { cost, best: Some(best), ..least }));
                    }
                }
                Some(path) => {
                    if found.len() + 1 < n {
                        self.split(flow, &path, least, &mut open);
                    }
                    found.push(path);
                }
            }
        }
        found
    }

    /// Replaces a subspace by the ones that are left of it without its best path.
    fn split(&mut self, flow: &Flow, path: &[u32], whole: Subspace, open: &mut BinaryHeap<Reverse<Subspace>>) {
        let mut banned = whole.banned;
        for length in whole.prefix.len()..path.len() {
            banned.push(path[length]);
            open.extend(self.subspace(flow, &path[..length], std::mem::take(&mut banned)).map(Reverse));
        }
    }

    /// Marks the nodes of a prefix; returns its end (node, technology) and its cost.
    fn enter(&mut self, flow: &Flow, prefix: &[u32]) -> (u32, u32, u64) {
        self.stamp += 1;
        self.visited[flow.source as usize] = self.stamp;
        let (mut node, mut technology, mut cost) = (flow.source, NO_TECHNOLOGY, 0u64);
        for &link in prefix {
            cost = cost.saturating_add(flow.vertex.step(flow.graph, link, technology));
            node = flow.graph.target[link as usize];
            technology = flow.graph.technology[link as usize];
            self.visited[node as usize] = self.stamp;
        }
        (node, technology, cost)
    }

    /// Least cost from the end of a link to the target, `None` if the link can't be taken.
    fn rest(&mut self, flow: &Flow, link: u32) -> Option<u64> {
        let end = flow.graph.target[link as usize];
        let barred = flow.vertex.weight[link as usize] == 0
            || self.visited[end as usize] == self.stamp
            || (end != flow.target && !flow.graph.relays[end as usize]);
        if barred {
            return None;
        }
        let rest = self.distances.of(flow.graph, flow.vertex, flow.graph.end_state(link));
        (rest != UNREACHABLE).then_some(rest)
    }

    /// A subspace with its lower bound (loops allowed); `None` if it is empty.
    fn subspace(&mut self, flow: &Flow, prefix: &[u32], banned: Vec<u32>) -> Option<Subspace> {
        let (node, technology, cost) = self.enter(flow, prefix);
        let links = flow.graph.links_out(node).filter(|link| !banned.contains(link));
        let bounds = links.filter_map(|link| {
            let rest = self.rest(flow, link)?;
            Some(rest.saturating_add(flow.vertex.step(flow.graph, link, technology)))
        });
        let least = bounds.min()?;
        Some(Subspace { prefix: prefix.to_vec(), banned, cost: cost.saturating_add(least), best: None })
    }

    /// Best path of a subspace, by (cost, path).
    fn search(&mut self, flow: &Flow, space: &Subspace) -> Option<(u64, Vec<u32>)> {
        let (node, technology, cost) = self.enter(flow, &space.prefix);
        self.labels.clear();
        self.queue.clear();
        self.expand(flow, (node, technology, cost, ROOT), &space.banned);
        while let Some(Reverse((_, cost, index))) = self.queue.pop() {
            let label = self.labels[index as usize];
            if self.label_of[label.state as usize] != (self.stamp, index) {
                continue;
            }
            let node = flow.graph.target[label.link as usize];
            if node == flow.target {
                let mut path = space.prefix.clone();
                path.extend(self.walk(index));
                return Some((cost, path));
            }
            let technology = flow.graph.technology[label.link as usize];
            self.expand(flow, (node, technology, cost, index), &[]);
        }
        None
    }

    fn expand(&mut self, flow: &Flow, (node, technology, cost, parent): (u32, u32, u64, u32), banned: &[u32]) {
        for link in flow.graph.links_out(node) {
            if banned.contains(&link) {
                continue;
            }
            if let Some(rest) = self.rest(flow, link) {
                let cost = cost.saturating_add(flow.vertex.step(flow.graph, link, technology));
                // The ways into the target are rivals whatever they come in on: one state for all of them.
                let end = flow.graph.target[link as usize];
                let first = end as usize * flow.graph.technologies;
                let state = if end == flow.target { first } else { flow.graph.end_state(link) } as u32;
                self.offer(Label { state, link, parent, cost }, rest);
            }
        }
    }

    /// Keeps a label if it is the best of its state so far: cheaper, or of equal cost and smaller order.
    fn offer(&mut self, label: Label, rest: u64) {
        let (stamp, known) = self.label_of[label.state as usize];
        if stamp == self.stamp {
            let best = self.labels[known as usize];
            if label.cost > best.cost || (label.cost == best.cost && !self.precedes(&label, known)) {
                return;
            }
        }
        let index = self.labels.len() as u32;
        self.label_of[label.state as usize] = (self.stamp, index);
        self.queue.push(Reverse((label.cost.saturating_add(rest), label.cost, index)));
        self.labels.push(label);
    }

    fn precedes(&self, label: &Label, known: u32) -> bool {
        let mut path = if label.parent == ROOT { Vec::new() } else { self.walk(label.parent) };
        path.push(label.link);
        path < self.walk(known)
    }

    /// Links from the end of the prefix to a label.
    fn walk(&self, mut index: u32) -> Vec<u32> {
        let mut links = Vec::new();
        while index != ROOT {
            let label = self.labels[index as usize];
            links.push(label.link);
            index = label.parent;
        }
        links.reverse();
        links
    }
}
