//! Interference domains in compact form; see `controller/core/interference.py` for the four rules.

use super::graph::{buckets, Graph, Load};

/// Which links contend, over links as `Graph` numbers them.
pub enum Interference {
    /// Links contend if their class is the same.
    Cliques(Cliques),
    /// Links of one medium contend if an end of one is near an end of the other.
    Ranges(Ranges),
    /// Sorted lists of neighbours per link, in the caller's numbers.
    Neighbours(Neighbours),
}

pub struct Cliques {
    class_of: Vec<u32>,
    /// Links of class c are `members[offsets[c]..offsets[c + 1]]`.
    offsets: Vec<u32>,
    members: Vec<u32>,
}

pub struct Ranges {
    /// Medium per link; `None` for a link that shares nothing.
    pub medium_of: Vec<Option<u32>>,
    pub source: Vec<u32>,
    pub target: Vec<u32>,
    pub nodes: usize,
    pub words: usize,
    /// Bit v % 64 of `near[(medium * nodes + u) * words + v / 64]`: u and v are in range.
    pub near: Vec<u64>,
}

pub struct Neighbours {
    pub offsets: Vec<usize>,
    pub indices: Vec<u32>,
    /// Our number -> the caller's, and back.
    pub original: Vec<u32>,
    pub renumbered: Vec<u32>,
}

impl Ranges {
    fn row(&self, medium: u32, node: u32) -> &[u64] {
        let start = (medium as usize * self.nodes + node as usize) * self.words;
        &self.near[start..start + self.words]
    }

    fn near(&self, medium: u32, first: u32, second: u32) -> bool {
        self.row(medium, first)[second as usize / 64] >> (second % 64) & 1 == 1
    }

    fn contends(&self, first: usize, second: usize) -> bool {
        match self.medium_of[first] {
            Some(medium) if self.medium_of[second] == Some(medium) => {
                let ends = [self.source[second], self.target[second]];
                let sees = |node| ends.iter().any(|&end| self.near(medium, node, end));
                sees(self.source[first]) || sees(self.target[first])
            }
            _ => first == second,
        }
    }

    /// The load of a link of the path: all links of its medium with an end near one of its ends.
    fn add_load(&self, graph: &Graph, link: u32, airtime: f64, load: &mut Load) {
        let at = link as usize;
        let medium = match self.medium_of[at] {
            Some(medium) => medium,
            None => return load.add(link, airtime),
        };
        let (from_source, from_target) = (self.row(medium, self.source[at]), self.row(medium, self.target[at]));
        let near: Vec<u64> = from_source.iter().zip(from_target).map(|(a, b)| a | b).collect();
        let reached = |node: u32| near[node as usize / 64] >> (node % 64) & 1 == 1;
        for (word, &bits) in near.iter().enumerate() {
            let mut left = bits;
            while left != 0 {
                let node = word as u32 * 64 + left.trailing_zeros();
                left &= left - 1;
                for other in graph.links_at(node) {
                    // A link with both ends near is met at both; its source counts.
                    let is_second = self.source[other as usize] != node && reached(self.source[other as usize]);
                    if self.medium_of[other as usize] == Some(medium) && !is_second {
                        load.add(other, airtime);
                    }
                }
            }
        }
    }
}

impl Cliques {
    /// From the class of each link, below `classes`.
    pub fn new(class_of: Vec<u32>, classes: usize) -> Cliques {
        let (offsets, members) = buckets(classes, class_of.iter().map(|&class| class as usize));
        Cliques { class_of, offsets, members }
    }

    fn add_load(&self, path: &[u32], capacity_mbps: &[f64], load: &mut Load) {
        let mut busy: Vec<(u32, f64)> = Vec::new();
        for &link in path {
            let (class, airtime) = (self.class_of[link as usize], 1.0 / capacity_mbps[link as usize]);
            match busy.iter_mut().find(|(other, _)| *other == class) {
                Some((_, sum)) => *sum += airtime,
                None => busy.push((class, airtime)),
            }
        }
        for (class, airtime) in busy {
            let (from, to) = (self.offsets[class as usize] as usize, self.offsets[class as usize + 1] as usize);
            self.members[from..to].iter().for_each(|&link| load.add(link, airtime));
        }
    }
}

impl Neighbours {
    fn of(&self, link: usize) -> &[u32] {
        let original = self.original[link] as usize;
        &self.indices[self.offsets[original]..self.offsets[original + 1]]
    }
}

impl Interference {
    pub fn contends(&self, first: u32, second: u32) -> bool {
        let (first, second) = (first as usize, second as usize);
        match self {
            Interference::Cliques(cliques) => cliques.class_of[first] == cliques.class_of[second],
            Interference::Ranges(ranges) => ranges.contends(first, second),
            Interference::Neighbours(lists) => lists.of(first).binary_search(&lists.original[second]).is_ok(),
        }
    }

    /// Busy time of every link per Mb/s on the path, in the order of the path (so that sums round as the reference's).
    pub fn path_load(&self, graph: &Graph, path: &[u32], capacity_mbps: &[f64], load: &mut Load) {
        load.clear();
        if let Interference::Cliques(cliques) = self {
            return cliques.add_load(path, capacity_mbps, load);
        }
        for &link in path {
            let airtime = 1.0 / capacity_mbps[link as usize];
            match self {
                Interference::Cliques(_) => {}
                Interference::Ranges(ranges) => ranges.add_load(graph, link, airtime, load),
                Interference::Neighbours(lists) => {
                    for &other in lists.of(link as usize) {
                        load.add(lists.renumbered[other as usize], airtime);
                    }
                }
            }
        }
    }
}
