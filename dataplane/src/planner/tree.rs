//! The exploration tree and its best distinct multipaths; mirrors `controller/core/tree.py`.
use std::collections::HashMap;

use super::graph::{greatest_load, Graph, Load, Vertex};
use super::interference::Interference;
use super::shortest::{Flow, Searcher};

const ESTIMATE_UNITS: f64 = 1_099_511_627_776.0; // 2^40

/// A path (links as `Graph` numbers them) and its rate in the vertex in which it was found.
#[derive(Clone, Debug, PartialEq)]
pub struct RatedPath {
    pub links: Vec<u32>,
    pub rate_mbps: f64,
}

/// One flow to plan, and how much of the tree to explore.
pub struct Query {
    pub source: u32,
    pub target: u32,
    pub shortest: usize,
    pub depth: usize,
    pub arms: usize,
}

/// The single path and the best distinct multipaths, best first.
#[derive(Debug, Default)]
pub struct Plan {
    pub single: Option<RatedPath>,
    pub arms: Vec<Vec<RatedPath>>,
}

struct Arm {
    branch: Vec<RatedPath>,
    units: u64,
    explored: usize,
}

struct Explorer<'a> {
    graph: &'a Graph,
    interference: &'a Interference,
    query: &'a Query,
    searcher: Searcher,
    vertex: Vertex,
    load: Load,
    branch: Vec<RatedPath>,
    single: Option<RatedPath>,
    arms: HashMap<Vec<Vec<u32>>, Arm>,
    leaves: usize,
}

/// Explores the whole tree. The capacities are those of the links as `Graph` numbers them.
pub fn explore(graph: &Graph, interference: &Interference, capacity_mbps: Vec<f64>, query: &Query) -> Plan {
    let mut explorer = Explorer {
        graph,
        interference,
        query,
        searcher: Searcher::new(graph),
        vertex: Vertex::new(graph, capacity_mbps),
        load: Load::new(graph.source.len()),
        branch: Vec::new(),
        single: None,
        arms: HashMap::new(),
        leaves: 0,
    };
    explorer.visit(query.depth);
    explorer.finish()
}

impl Explorer<'_> {
    /// Explores the branches below the vertex, of at most `depth` paths each.
    fn visit(&mut self, depth: usize) {
        let (graph, query) = (self.graph, self.query);
        let flow = Flow { graph, vertex: &self.vertex, source: query.source, target: query.target };
        let paths = self.searcher.n_shortest(&flow, query.shortest);
        if paths.is_empty() && !self.branch.is_empty() {
            self.leaf();
        }
        for links in paths {
            let greatest = greatest_load(self.interference, &self.vertex, &links);
            self.branch.push(RatedPath { links, rate_mbps: 1.0 / greatest });
            if self.single.is_none() {
                self.single = self.branch.last().cloned();
            }
            if depth > 1 {
                let path = &self.branch[self.branch.len() - 1].links;
                self.interference.path_load(graph, path, &self.vertex.capacity_mbps, &mut self.load);
                let before = self.vertex.become_child(graph, &self.load, greatest);
                self.visit(depth - 1);
                self.vertex.become_parent(graph, before);
            } else {
                self.leaf();
            }
            self.branch.pop();
        }
    }

    fn leaf(&mut self) {
        self.leaves += 1;
        let total: f64 = self.branch.iter().fold(0.0, |sum, path| sum + path.rate_mbps);
        let units = (total * (ESTIMATE_UNITS / self.graph.unit_mbps) + 0.5) as u64;
        let mut identity: Vec<Vec<u32>> = self.branch.iter().map(|path| path.links.clone()).collect();
        identity.sort_unstable();
        if self.arms.get(&identity).map_or(true, |known| units > known.units) {
            let arm = Arm { branch: self.branch.clone(), units, explored: self.leaves };
            self.arms.insert(identity, arm);
        }
    }

    fn finish(self) -> Plan {
        let mut arms: Vec<Arm> = self.arms.into_values().collect();
        arms.sort_unstable_by_key(|arm| {
            let links: usize = arm.branch.iter().map(|path| path.links.len()).sum();
            (std::cmp::Reverse(arm.units), arm.branch.len(), links, arm.explored)
        });
        arms.truncate(self.query.arms);
        Plan { single: self.single, arms: arms.into_iter().map(|arm| arm.branch).collect() }
    }
}
