//! A slot's reduced problem as the caller hands it over (`controller/core/rates/reduction.py`), and products with its
//! whole constraint: row g is `rows[g] diag(airtime) routing' x <= budget[g]`.
use super::utility::Utility;

/// A sparse matrix by rows, without values (ones).
#[derive(Clone, Copy)]
pub struct Pattern<'a> {
    pub starts: &'a [i32],
    pub items: &'a [i32],
}

impl<'a> Pattern<'a> {
    pub fn count(&self) -> usize {
        self.starts.len() - 1
    }

    pub fn row(&self, at: usize) -> &'a [i32] {
        &self.items[self.starts[at] as usize..self.starts[at + 1] as usize]
    }

    /// Of columns and the links they cross: how long each link is busy at rates of the columns.
    pub fn airtime(&self, crossings: &[f64], airtime: &[f64], rates: &[f64]) -> Vec<f64> {
        let mut busy = vec![0.0; airtime.len()];
        for (column, &rate) in rates.iter().enumerate() {
            for at in self.starts[column] as usize..self.starts[column + 1] as usize {
                busy[self.items[at] as usize] += crossings[at] * rate;
            }
        }
        busy.iter_mut().zip(airtime).for_each(|(busy, &airtime)| *busy *= airtime);
        busy
    }

    pub fn longest(&self) -> usize {
        self.starts.windows(2).map(|pair| (pair[1] - pair[0]) as usize).max().unwrap_or(0)
    }
}

/// n columns (paths) of f flows over U used links, m rows; rates in Mb/s.
pub struct Problem<'a> {
    /// Where the columns of each flow start, and n.
    pub starts: Vec<usize>,
    pub routing: Pattern<'a>,
    /// How often a path crosses its link, beside `routing`.
    pub crossings: &'a [f64],
    pub airtime: &'a [f64],
    pub rows: Pattern<'a>,
    pub budget: &'a [f64],
    pub utilities: Vec<Utility>,
    pub demand: &'a [f64],
}

impl Problem<'_> {
    pub fn columns(&self) -> usize {
        self.routing.count()
    }

    /// Airtime of every row over its budget; feasible if at most 1.
    pub fn loads(&self, rates: &[f64]) -> Vec<f64> {
        let busy = self.routing.airtime(self.crossings, self.airtime, rates);
        let load = |row: usize| self.rows.row(row).iter().map(|&link| busy[link as usize]).sum::<f64>();
        (0..self.rows.count()).map(|row| load(row) / self.budget[row]).collect()
    }

    /// The columns that cross each link, as offsets and items.
    pub fn columns_by_link(&self) -> (Vec<usize>, Vec<u32>) {
        let mut offsets = vec![0usize; self.airtime.len() + 1];
        self.routing.items.iter().for_each(|&link| offsets[link as usize + 1] += 1);
        for link in 1..offsets.len() {
            offsets[link] += offsets[link - 1];
        }
        let mut next = offsets.clone();
        let mut items = vec![0u32; self.routing.items.len()];
        for column in 0..self.columns() {
            for &link in self.routing.row(column) {
                items[next[link as usize]] = column as u32;
                next[link as usize] += 1;
            }
        }
        (offsets, items)
    }

    /// The largest load among the rows that each column touches.
    pub fn worst_of_columns(&self, loads: &[f64]) -> Vec<f64> {
        let mut per_link = vec![0.0f64; self.airtime.len()];
        for (row, &load) in loads.iter().enumerate() {
            for &link in self.rows.row(row) {
                let worst = &mut per_link[link as usize];
                *worst = worst.max(load);
            }
        }
        let worst = |column: usize| self.routing.row(column).iter().map(|&l| per_link[l as usize]).fold(0.0, f64::max);
        (0..self.columns()).map(worst).collect()
    }
}

/// Sums over each flow's columns.
pub fn sums(starts: &[usize], values: &[f64]) -> Vec<f64> {
    starts.windows(2).map(|pair| values[pair[0]..pair[1]].iter().sum()).collect()
}

/// The middle value, or the mean of the two in the middle.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    if values.len() % 2 == 1 {
        values[half]
    } else {
        0.5 * (values[half - 1] + values[half])
    }
}
