//! Some columns of a whole problem. In each slice they cross links of their own, so that a row of some slices alone is a
//! row like any other: the solver knows nothing of slices.
use super::problem::{Pattern, Problem};
use super::utility::Utility;
use super::whole::Whole;

/// Columns, flows and links that count, numbered anew.
pub struct Part {
    /// Their numbers in the whole.
    pub columns: Vec<usize>,
    pub starts: Vec<usize>,
    pub demand: Vec<f64>,
    utilities: Vec<Utility>,
    routing_starts: Vec<i32>,
    routing_items: Vec<i32>,
    crossings: Vec<f64>,
    airtime: Vec<f64>,
    /// The slice of each link, and the links in every domain.
    slice_of: Vec<u32>,
    domain_starts: Vec<usize>,
    domain_links: Vec<u32>,
}

impl Part {
    /// The columns that are marked.
    pub fn of(whole: &Whole, marked: &[bool]) -> Part {
        let (link_of, starts_of_links) = own_links(whole, marked);
        let links = starts_of_links[whole.airtime.len()] as usize;
        let mut part = Part {
            columns: Vec::new(),
            starts: vec![0],
            demand: Vec::new(),
            utilities: Vec::new(),
            routing_starts: vec![0],
            routing_items: Vec::new(),
            crossings: Vec::new(),
            airtime: vec![0.0; links],
            slice_of: vec![0; links],
            domain_starts: vec![0],
            domain_links: Vec::new(),
        };
        (0..whole.slice_of.len()).for_each(|flow| part.take_flow(whole, flow, marked, &link_of));
        for domain in 0..whole.domains.count() {
            for &link in whole.domains.row(domain) {
                part.domain_links.extend(starts_of_links[link as usize]..starts_of_links[link as usize + 1]);
            }
            part.domain_starts.push(part.domain_links.len());
        }
        part
    }

    fn take_flow(&mut self, whole: &Whole, flow: usize, marked: &[bool], link_of: &[u32]) {
        let (slice, before) = (whole.slice_of[flow] as usize, self.columns.len());
        for column in (whole.starts[flow]..whole.starts[flow + 1]).filter(|&column| marked[column]) {
            self.columns.push(column);
            for at in whole.routing.starts[column] as usize..whole.routing.starts[column + 1] as usize {
                let link = whole.routing.items[at] as usize;
                let own = link_of[link * whole.slices + slice] as usize;
                self.airtime[own] = whole.airtime[link];
                self.slice_of[own] = slice as u32;
                self.routing_items.push(own as i32);
                self.crossings.push(whole.crossings[at]);
            }
            self.routing_starts.push(self.routing_items.len() as i32);
        }
        if self.columns.len() > before {
            self.starts.push(self.columns.len());
            self.demand.push(whole.demand[flow]);
            self.utilities.push(whole.utilities[flow]);
        }
    }

    /// The solver's problem on rows as [`Part::rows`] gives them.
    pub fn problem<'a>(&'a self, rows: Pattern<'a>, budget: &'a [f64]) -> Problem<'a> {
        Problem {
            starts: self.starts.clone(),
            routing: self.routing(),
            crossings: &self.crossings,
            airtime: &self.airtime,
            rows,
            budget,
            utilities: self.utilities.clone(),
            demand: &self.demand,
        }
    }

    /// The links in some rows of the whole, as starts and items.
    pub fn rows(&self, whole: &Whole, rows: &[usize]) -> (Vec<i32>, Vec<i32>) {
        let (mut starts, mut items) = (vec![0], Vec::new());
        let mut is_in = vec![false; whole.slices];
        for &row in rows {
            let set = whole.sets.row(whole.set_of[row] as usize);
            set.iter().for_each(|&slice| is_in[slice as usize] = true);
            let own = self.domain(whole.domain_of[row] as usize).iter();
            items.extend(own.filter(|&&link| is_in[self.slice_of[link as usize] as usize]).map(|&link| link as i32));
            set.iter().for_each(|&slice| is_in[slice as usize] = false);
            starts.push(items.len() as i32);
        }
        (starts, items)
    }

    fn routing(&self) -> Pattern<'_> {
        Pattern { starts: &self.routing_starts, items: &self.routing_items }
    }

    fn domain(&self, at: usize) -> &[u32] {
        &self.domain_links[self.domain_starts[at]..self.domain_starts[at + 1]]
    }

    /// Airtime over budget of every row of the whole at rates of these columns.
    pub fn loads(&self, whole: &Whole, rates: &[f64]) -> Vec<f64> {
        let busy = self.routing().airtime(&self.crossings, &self.airtime, rates);
        let mut taken = vec![0.0; whole.domains.count() * whole.slices];
        for (domain, taken) in taken.chunks_exact_mut(whole.slices).enumerate() {
            for &link in self.domain(domain) {
                taken[self.slice_of[link as usize] as usize] += busy[link as usize];
            }
        }
        let load = |row: usize| {
            let taken = &taken[whole.domain_of[row] as usize * whole.slices..][..whole.slices];
            let set = whole.sets.row(whole.set_of[row] as usize);
            set.iter().map(|&slice| taken[slice as usize]).sum::<f64>() / whole.budget[row]
        };
        (0..whole.rows()).map(load).collect()
    }

    /// Of the rows that each column loads, the one with the greatest of these loads.
    pub fn worst_rows(&self, whole: &Whole, loads: &[f64]) -> Vec<usize> {
        let mut rows: Vec<Vec<(usize, &[i32])>> = vec![Vec::new(); whole.domains.count()];
        for row in 0..whole.rows() {
            rows[whole.domain_of[row] as usize].push((row, whole.sets.row(whole.set_of[row] as usize)));
        }
        let mut of_link: Vec<Option<usize>> = vec![None; self.airtime.len()];
        let mut of_slice: Vec<Option<usize>> = vec![None; whole.slices];
        let worse = |worst: &mut Option<usize>, row: usize| {
            if worst.map_or(true, |worst| loads[row] > loads[worst]) {
                *worst = Some(row);
            }
        };
        for (domain, rows) in rows.iter().enumerate() {
            of_slice.fill(None);
            for &(row, set) in rows {
                set.iter().for_each(|&slice| worse(&mut of_slice[slice as usize], row));
            }
            for &link in self.domain(domain) {
                if let Some(row) = of_slice[self.slice_of[link as usize] as usize] {
                    worse(&mut of_link[link as usize], row);
                }
            }
        }
        let mut worst = Vec::with_capacity(self.columns.len());
        for links in self.routing_starts.windows(2) {
            let mut of_column = None;
            let links = &self.routing_items[links[0] as usize..links[1] as usize];
            links.iter().filter_map(|&link| of_link[link as usize]).for_each(|row| worse(&mut of_column, row));
            worst.extend(of_column);
        }
        worst
    }
}

/// By link and slice the link of the part, and where those of each link start.
fn own_links(whole: &Whole, marked: &[bool]) -> (Vec<u32>, Vec<u32>) {
    let mut link_of = vec![u32::MAX; whole.airtime.len() * whole.slices];
    for (flow, &slice) in whole.slice_of.iter().enumerate() {
        for column in (whole.starts[flow]..whole.starts[flow + 1]).filter(|&column| marked[column]) {
            whole
                .routing
                .row(column)
                .iter()
                .for_each(|&link| link_of[link as usize * whole.slices + slice as usize] = 0);
        }
    }
    let (mut starts, mut count) = (vec![0], 0);
    for slices in link_of.chunks_exact_mut(whole.slices) {
        for number in slices.iter_mut().filter(|number| **number == 0) {
            *number = count;
            count += 1;
        }
        starts.push(count);
    }
    (link_of, starts)
}
