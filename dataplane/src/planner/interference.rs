//! Interference domains in compact form; see `controller/core/interference.py` for the four rules.

/// Which links contend, over links as `Graph` numbers them.
pub enum Interference {
    /// Links contend if their class is the same.
    Cliques { class_of: Vec<u32>, classes: usize },
    /// Links of one medium contend if an end of one is near an end of the other.
    Ranges(Ranges),
    /// Sorted lists of neighbours per link, in the caller's numbers.
    Neighbours(Neighbours),
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

    fn add_load(&self, link: usize, airtime: f64, load: &mut [f64]) {
        let medium = match self.medium_of[link] {
            Some(medium) => medium,
            None => {
                load[link] += airtime;
                return;
            }
        };
        let (from_source, from_target) = (self.row(medium, self.source[link]), self.row(medium, self.target[link]));
        let near: Vec<u64> = from_source.iter().zip(from_target).map(|(a, b)| a | b).collect();
        let reached = |node: u32| near[node as usize / 64] >> (node % 64) & 1;
        for (other, busy) in load.iter_mut().enumerate() {
            let touched = reached(self.source[other]) | reached(self.target[other]);
            if touched == 1 && self.medium_of[other] == Some(medium) {
                *busy += airtime;
            }
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
            Interference::Cliques { class_of, .. } => class_of[first] == class_of[second],
            Interference::Ranges(ranges) => ranges.contends(first, second),
            Interference::Neighbours(lists) => lists.of(first).binary_search(&lists.original[second]).is_ok(),
        }
    }

    /// Busy time of every link per Mb/s on the path, in the order of the path (so that sums round as the reference's).
    pub fn path_load(&self, path: &[u32], capacity_mbps: &[f64], load: &mut [f64]) {
        load.fill(0.0);
        if let Interference::Cliques { class_of, classes } = self {
            let mut busy = vec![0.0; *classes];
            for &link in path {
                busy[class_of[link as usize] as usize] += 1.0 / capacity_mbps[link as usize];
            }
            for (one, &class) in load.iter_mut().zip(class_of) {
                *one = busy[class as usize];
            }
            return;
        }
        for &link in path {
            let airtime = 1.0 / capacity_mbps[link as usize];
            match self {
                Interference::Cliques { .. } => {}
                Interference::Ranges(ranges) => ranges.add_load(link as usize, airtime, load),
                Interference::Neighbours(lists) => {
                    for &other in lists.of(link as usize) {
                        load[lists.renumbered[other as usize] as usize] += airtime;
                    }
                }
            }
        }
    }
}
