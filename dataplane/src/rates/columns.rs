//! The rows in use, by columns: for every path the rows that it loads, in scaled rates and budgets of 1.
use super::problem::Problem;

/// k x n, sparse. `support` lists per flow the rows that any of its paths loads, in order, and `slot` says for every
/// entry where its row is in that list.
#[derive(Default)]
pub struct Columns {
    pub rows: usize,
    pub starts: Vec<usize>,
    pub row: Vec<u32>,
    pub value: Vec<f64>,
    pub slot: Vec<u32>,
    pub support_starts: Vec<usize>,
    pub support: Vec<u32>,
}

impl Columns {
    /// The coefficients of the `chosen` rows, with rates in units of `unit` Mb/s.
    pub fn build(problem: &Problem, chosen: &[usize], unit: f64) -> Columns {
        let (offsets, rows_of_link) = rows_by_link(problem, chosen);
        let mut columns =
            Columns { rows: chosen.len(), starts: vec![0], support_starts: vec![0], ..Columns::default() };
        let mut sums = vec![0.0; chosen.len()];
        let mut seen = vec![0u32; chosen.len()];
        let mut touched: Vec<u32> = Vec::new();
        let scale: Vec<f64> = chosen.iter().map(|&row| unit / problem.budget[row]).collect();
        for (flow, pair) in problem.starts.windows(2).enumerate() {
            let mut support: Vec<u32> = Vec::new();
            for column in pair[0]..pair[1] {
                for at in problem.routing.starts[column] as usize..problem.routing.starts[column + 1] as usize {
                    let link = problem.routing.items[at] as usize;
                    let airtime = problem.crossings[at] * problem.airtime[link];
                    for &row in &rows_of_link[offsets[link]..offsets[link + 1]] {
                        if sums[row as usize] == 0.0 {
                            touched.push(row);
                        }
                        sums[row as usize] += airtime;
                    }
                }
                for &row in &touched {
                    columns.row.push(row);
                    columns.value.push(sums[row as usize] * scale[row as usize]);
                    sums[row as usize] = 0.0;
                    if seen[row as usize] != flow as u32 + 1 {
                        seen[row as usize] = flow as u32 + 1;
                        support.push(row);
                    }
                }
                touched.clear();
                columns.starts.push(columns.row.len());
            }
            columns.close_flow(support, &mut seen, pair[0]);
        }
        columns
    }

    /// Number the support of the flow whose columns start at `first`; `seen` keeps nothing but marks of this flow.
    fn close_flow(&mut self, mut support: Vec<u32>, seen: &mut [u32], first: usize) {
        support.sort_unstable();
        let mark = support.first().map_or(0, |&row| seen[row as usize]);
        support.iter().enumerate().for_each(|(at, &row)| seen[row as usize] = at as u32);
        let entries = self.starts[first]..self.row.len();
        self.slot.extend(self.row[entries].iter().map(|&row| seen[row as usize]));
        support.iter().for_each(|&row| seen[row as usize] = mark);
        self.support.extend_from_slice(&support);
        self.support_starts.push(self.support.len());
    }

    /// A x.
    pub fn times(&self, x: &[f64]) -> Vec<f64> {
        let mut result = vec![0.0; self.rows];
        for (pair, &x) in self.starts.windows(2).zip(x) {
            for (&row, &value) in self.row[pair[0]..pair[1]].iter().zip(&self.value[pair[0]..pair[1]]) {
                result[row as usize] += value * x;
            }
        }
        result
    }

    /// A' y.
    pub fn transposed(&self, y: &[f64]) -> Vec<f64> {
        let price = |pair: &[usize]| {
            let entries = self.row[pair[0]..pair[1]].iter().zip(&self.value[pair[0]..pair[1]]);
            entries.map(|(&row, &value)| value * y[row as usize]).sum()
        };
        self.starts.windows(2).map(price).collect()
    }
}

/// For every link the chosen rows that it is in, as offsets and items.
fn rows_by_link(problem: &Problem, chosen: &[usize]) -> (Vec<usize>, Vec<u32>) {
    let mut offsets = vec![0usize; problem.airtime.len() + 1];
    for &row in chosen {
        problem.rows.row(row).iter().for_each(|&link| offsets[link as usize + 1] += 1);
    }
    for link in 1..offsets.len() {
        offsets[link] += offsets[link - 1];
    }
    let mut next = offsets.clone();
    let mut items = vec![0u32; offsets[offsets.len() - 1]];
    for (number, &row) in chosen.iter().enumerate() {
        for &link in problem.rows.row(row) {
            items[next[link as usize]] = number as u32;
            next[link as usize] += 1;
        }
    }
    (offsets, items)
}
