//! The rows in use, by columns: for every path the rows that it loads, in scaled rates and budgets of 1.
use super::dense;
use super::problem::Problem;
use std::ops::Range;

/// k x n. Paths of a flow load much the same rows, so each flow has a dense block of its columns on its `support`: the
/// rows that any of its paths loads, in order.
pub struct Columns {
    pub rows: usize,
    /// Where the columns of each flow start, and n.
    starts: Vec<usize>,
    support_starts: Vec<usize>,
    support: Vec<u32>,
    block_starts: Vec<usize>,
    value: Vec<f64>,
}

impl Columns {
    /// No rows yet.
    pub fn none(problem: &Problem) -> Columns {
        let nothing = vec![0; problem.starts.len()];
        Columns {
            rows: 0,
            starts: problem.starts.clone(),
            support_starts: nothing.clone(),
            support: Vec::new(),
            block_starts: nothing,
            value: Vec::new(),
        }
    }

    /// These rows and after them the coefficients of the `added` ones, with rates in units of `unit` Mb/s.
    pub fn with_rows(&self, problem: &Problem, added: &[usize], unit: f64) -> Columns {
        let mut columns = Columns { rows: self.rows + added.len(), ..Columns::none(problem) };
        columns.support.reserve(self.support.len());
        columns.value.reserve(self.value.len());
        let scale: Vec<f64> = added.iter().map(|&row| unit / problem.budget[row]).collect();
        let mut loaded = Loaded::new(problem, added);
        for flow in 0..self.flows() {
            let own = self.starts[flow]..self.starts[flow + 1];
            loaded.sum_up(problem, flow, own.clone());
            let (support, block) = self.block(flow);
            columns.support.extend_from_slice(support);
            columns.support.extend(loaded.touched.iter().map(|&row| self.rows as u32 + row));
            for column in 0..own.len() {
                columns.value.extend_from_slice(&block[column * support.len()..(column + 1) * support.len()]);
                let sums = &mut loaded.sums[column * added.len()..];
                let taken = |&row: &u32| scale[row as usize] * std::mem::take(&mut sums[row as usize]);
                columns.value.extend(loaded.touched.iter().map(taken));
            }
            columns.support_starts[flow + 1] = columns.support.len();
            columns.block_starts[flow + 1] = columns.value.len();
        }
        columns
    }

    /// Only these rows (numbers in increasing order), numbered anew.
    pub fn only(&self, remaining: &[usize]) -> Columns {
        let mut number = vec![None; self.rows];
        remaining.iter().enumerate().for_each(|(new, &old)| number[old] = Some(new as u32));
        let mut columns = Columns {
            rows: remaining.len(),
            starts: self.starts.clone(),
            support_starts: vec![0; self.starts.len()],
            support: Vec::with_capacity(self.support.len()),
            block_starts: vec![0; self.starts.len()],
            value: Vec::with_capacity(self.value.len()),
        };
        for flow in 0..self.flows() {
            let (support, block) = self.block(flow);
            columns.support.extend(support.iter().filter_map(|&row| number[row as usize]));
            for values in block.chunks_exact(support.len().max(1)) {
                let stays = |(&row, &value): (&u32, &f64)| number[row as usize].map(|_| value);
                columns.value.extend(support.iter().zip(values).filter_map(stays));
            }
            columns.support_starts[flow + 1] = columns.support.len();
            columns.block_starts[flow + 1] = columns.value.len();
        }
        columns
    }

    pub fn flows(&self) -> usize {
        self.starts.len() - 1
    }

    /// The rows that a flow's columns load, and column by column the coefficients there.
    pub fn block(&self, flow: usize) -> (&[u32], &[f64]) {
        let support = &self.support[self.support_starts[flow]..self.support_starts[flow + 1]];
        (support, &self.value[self.block_starts[flow]..self.block_starts[flow + 1]])
    }

    /// Where each flow's support starts, and all of them.
    pub fn supports(&self) -> (&[usize], &[u32]) {
        (&self.support_starts, &self.support)
    }

    /// A x.
    pub fn times(&self, x: &[f64]) -> Vec<f64> {
        let mut result = vec![0.0; self.rows];
        let mut sums = vec![0.0; self.rows];
        for flow in 0..self.flows() {
            let (support, block) = self.block(flow);
            let sums = &mut sums[..support.len()];
            dense::combine(block, &x[self.starts[flow]..self.starts[flow + 1]], sums);
            support.iter().zip(sums).for_each(|(&row, &mut sum)| result[row as usize] += sum);
        }
        result
    }

    /// A' y.
    pub fn transposed(&self, y: &[f64]) -> Vec<f64> {
        let mut result = vec![0.0; self.starts[self.flows()]];
        let mut own = Vec::with_capacity(self.rows);
        for flow in 0..self.flows() {
            let (support, block) = self.block(flow);
            own.clear();
            own.extend(support.iter().map(|&row| y[row as usize]));
            dense::products(block, &own, &mut result[self.starts[flow]..self.starts[flow + 1]]);
        }
        result
    }
}

/// Airtime that the columns of one flow take of each of some rows.
struct Loaded {
    offsets: Vec<usize>,
    rows_of_link: Vec<u32>,
    /// Column by column; zeros but for the flow at hand.
    sums: Vec<f64>,
    /// Rows that the flow loads, in order.
    touched: Vec<u32>,
    /// The flow that touched each row last.
    seen: Vec<usize>,
}

impl Loaded {
    fn new(problem: &Problem, rows: &[usize]) -> Loaded {
        let (offsets, rows_of_link) = rows_by_link(problem, rows);
        Loaded { offsets, rows_of_link, sums: Vec::new(), touched: Vec::new(), seen: vec![usize::MAX; rows.len()] }
    }

    fn sum_up(&mut self, problem: &Problem, flow: usize, columns: Range<usize>) {
        let count = self.seen.len();
        self.touched.clear();
        self.sums.resize(self.sums.len().max(columns.len() * count), 0.0);
        for (sums, column) in self.sums.chunks_exact_mut(count.max(1)).zip(columns) {
            for at in problem.routing.starts[column] as usize..problem.routing.starts[column + 1] as usize {
                let link = problem.routing.items[at] as usize;
                let airtime = problem.crossings[at] * problem.airtime[link];
                for &row in &self.rows_of_link[self.offsets[link]..self.offsets[link + 1]] {
                    sums[row as usize] += airtime;
                    if std::mem::replace(&mut self.seen[row as usize], flow) != flow {
                        self.touched.push(row);
                    }
                }
            }
        }
        self.touched.sort_unstable();
    }
}

/// For every link which of these rows it is in, as offsets and items.
fn rows_by_link(problem: &Problem, rows: &[usize]) -> (Vec<usize>, Vec<u32>) {
    let mut offsets = vec![0usize; problem.airtime.len() + 1];
    for &row in rows {
        problem.rows.row(row).iter().for_each(|&link| offsets[link as usize + 1] += 1);
    }
    for link in 1..offsets.len() {
        offsets[link] += offsets[link - 1];
    }
    let mut next = offsets.clone();
    let mut items = vec![0u32; offsets[offsets.len() - 1]];
    for (number, &row) in rows.iter().enumerate() {
        for &link in problem.rows.row(row) {
            items[next[link as usize]] = number as u32;
            next[link as usize] += 1;
        }
    }
    (offsets, items)
}
