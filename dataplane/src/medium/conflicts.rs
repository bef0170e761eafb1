//! Which links may not send at the same time, folded into classes.
//!
//! The interference domain I_l of a link is the closed neighbourhood of l in the conflict graph. Links with the same domain
//! are told apart by nothing that matters for access, so they form one *class*: whether one of them may send, and for how
//! long its domain was busy, is the same for all. If all links of a technology contend, a technology is one class and an
//! access costs the same however many links there are.

use super::config::{Config, ConflictRule};
use std::collections::HashMap;

/// A set of small numbers, one bit each.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Bits(Vec<u64>);

impl Bits {
    fn new(size: usize) -> Self {
        Bits(vec![0; (size + 63) / 64])
    }

    fn insert(&mut self, i: usize) {
        self.0[i / 64] |= 1 << (i % 64);
    }

    fn contains(&self, i: usize) -> bool {
        self.0[i / 64] >> (i % 64) & 1 == 1
    }

    fn union(&mut self, other: &Bits) {
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            *mine |= theirs;
        }
    }

    fn ones(&self) -> impl Iterator<Item = usize> + '_ {
        let size = self.0.len() * 64;
        (0..size).filter(move |&i| self.contains(i))
    }
}

/// The conflict graph of all links, broadcast links included.
#[derive(Debug, Clone)]
pub struct Conflicts {
    /// Class of each link.
    pub class_of: Vec<usize>,
    /// Classes that may not send while a class sends; each contains itself.
    pub neighbours: Vec<Vec<usize>>,
}

impl Conflicts {
    /// Builds the graph. Link numbers: the configured links, then one broadcast link for each port in `broadcasters`, in
    /// that order. The broadcast link of a port contends with whatever one of the port's links contends with.
    pub fn new(config: &Config, broadcasters: &[usize]) -> Conflicts {
        let count = config.links.len();
        let total = count + broadcasters.len();
        let mut domains = rule_domains(config, total);
        add_broadcast(config, broadcasters, &mut domains);
        let mut known: HashMap<&Bits, usize> = HashMap::new();
        let mut class_of = Vec::with_capacity(total);
        let mut first_link = Vec::new();
        for (link, domain) in domains.iter().enumerate() {
            let next = known.len();
            let class = *known.entry(domain).or_insert(next);
            if class == next {
                first_link.push(link);
            }
            class_of.push(class);
        }
        let neighbours = first_link
            .iter()
            .map(|&link| {
                let mut classes: Vec<usize> = domains[link].ones().map(|l| class_of[l]).collect();
                classes.sort_unstable();
                classes.dedup();
                classes
            })
            .collect();
        Conflicts { class_of, neighbours }
    }

    /// Whether two links contend.
    pub fn contend(&self, l: usize, m: usize) -> bool {
        self.neighbours[self.class_of[l]].binary_search(&self.class_of[m]).is_ok()
    }
}

/// The domain of each configured link among the configured links; room for broadcast links, which stay empty.
fn rule_domains(config: &Config, total: usize) -> Vec<Bits> {
    let mut domains: Vec<Bits> = (0..total).map(|_| Bits::new(total)).collect();
    for (i, domain) in domains.iter_mut().enumerate() {
        domain.insert(i);
    }
    match &config.conflicts {
        ConflictRule::Technology => {
            let mut members: HashMap<&str, Vec<usize>> = HashMap::new();
            for (i, link) in config.links.iter().enumerate() {
                members.entry(&config.ports[link.from].technology).or_default().push(i);
            }
            members.values().for_each(|clique| join(&mut domains, clique));
        }
        ConflictRule::Pairs(pairs) => pairs.iter().for_each(|&(a, b)| join(&mut domains, &[a, b])),
        ConflictRule::Domains(cliques) => cliques.iter().for_each(|clique| join(&mut domains, clique)),
    }
    domains
}

fn join(domains: &mut [Bits], clique: &[usize]) {
    let mut set = Bits::new(domains.len());
    clique.iter().for_each(|&l| set.insert(l));
    clique.iter().for_each(|&l| domains[l].union(&set));
}

fn add_broadcast(config: &Config, broadcasters: &[usize], domains: &mut [Bits]) {
    let count = config.links.len();
    let mut own = vec![Vec::new(); config.ports.len()];
    for (i, link) in config.links.iter().enumerate() {
        own[link.from].push(i);
    }
    let unions: Vec<Bits> = broadcasters
        .iter()
        .map(|&port| {
            let mut union = Bits::new(domains.len());
            own[port].iter().for_each(|&l| union.union(&domains[l]));
            union
        })
        .collect();
    for (k, union) in unions.iter().enumerate() {
        let broadcast = count + k;
        for link in union.ones() {
            domains[broadcast].insert(link);
            domains[link].insert(broadcast);
        }
        // Two broadcast links contend if a link of the one port contends with a link of the other.
        for (j, &port) in broadcasters.iter().enumerate() {
            if own[port].iter().any(|&l| union.contains(l)) {
                domains[broadcast].insert(count + j);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::config::{Link, LinkState, Options, Port};
    use super::*;

    fn config(ports: &[&str], links: &[(usize, usize)], conflicts: ConflictRule) -> Config {
        let port = |(i, technology): (usize, &&str)| Port {
            name: format!("p{i}"),
            netns: None,
            mac: [2, 0, 0, 0, 0, i as u8],
            technology: technology.to_string(),
            uplink: None,
            hears: None,
            radio: None,
            mtu: 1600,
        };
        let state = LinkState::of(10.0);
        let link = |(i, &(from, to)): (usize, &(usize, usize))| Link { id: format!("l{i}"), from, to, state };
        Config {
            options: Options::default(),
            ports: ports.iter().enumerate().map(port).collect(),
            links: links.iter().enumerate().map(link).collect(),
            conflicts,
            contention: Default::default(),
        }
    }

    #[test]
    fn a_technology_is_one_class() {
        let config = config(&["w", "w", "p", "p"], &[(0, 1), (1, 0), (2, 3), (3, 2)], ConflictRule::Technology);
        let conflicts = Conflicts::new(&config, &[0, 1, 2, 3]);
        assert_eq!(conflicts.class_of, [0, 0, 1, 1, 0, 0, 1, 1]);
        assert_eq!(conflicts.neighbours, [vec![0], vec![1]]);
    }

    #[test]
    fn pairs_are_closed_symmetrically_and_nothing_is_added() {
        let config = config(&["w"; 4], &[(0, 1), (1, 0), (2, 3)], ConflictRule::Pairs(vec![(2, 1)]));
        let conflicts = Conflicts::new(&config, &[]);
        let expected = [[true, false, false], [false, true, true], [false, true, true]];
        for (l, row) in expected.iter().enumerate() {
            for (m, &contend) in row.iter().enumerate() {
                assert_eq!(conflicts.contend(l, m), contend, "{l} {m}");
            }
        }
    }

    #[test]
    fn overlapping_domains_are_not_merged() {
        let config = config(&["w"; 6], &[(0, 1), (2, 3), (4, 5)], ConflictRule::Domains(vec![vec![0, 1], vec![1, 2]]));
        let conflicts = Conflicts::new(&config, &[]);
        assert!(conflicts.contend(0, 1) && conflicts.contend(2, 1));
        assert!(!conflicts.contend(0, 2));
    }

    #[test]
    fn a_broadcast_takes_the_union_of_its_ports_domains() {
        // Port 0 has two links that don't contend; each contends with a link of another station.
        let links = [(0, 1), (0, 2), (3, 4), (5, 6), (7, 8)];
        let config = config(&["w"; 9], &links, ConflictRule::Pairs(vec![(0, 2), (1, 3)]));
        let conflicts = Conflicts::new(&config, &[0, 3, 7]);
        let (of0, of3, of7) = (5, 6, 7);
        for link in 0..4 {
            assert!(conflicts.contend(of0, link), "{link}");
        }
        assert!(!conflicts.contend(of0, 4) && !conflicts.contend(of0, of7));
        assert!(conflicts.contend(of0, of3) && conflicts.contend(of3, of0));
        assert!(!conflicts.contend(of3, 1) && conflicts.contend(of3, 0));
    }
}
