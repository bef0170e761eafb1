//! The whole problem of a slot, with rows of slices, and its optimum found on the part that counts.
//!
//! Where rates and prices of an earlier slot are known, most paths cost clearly more than their flow pays, and most rows
//! are far from their budget. The solver runs without them. Afterwards *all* paths and rows are looked at: if a path left
//! out is worth using, or a row is broken, they join and it goes on from there. So the optimum is that of the whole
//! problem. A path left out carries nothing there: its price is above what its flow pays.
use super::method::Pace;
use super::part::Part;
use super::problem::{sums, Pattern};
use super::rows;
use super::search::{Search, Solution, Warm};
use super::utility::Utility;

/// Paths that cost at most so much more than their flow pays take part.
const DEAR: f64 = 1.1;
/// Rows with at least this load take part.
const LOADED: f64 = 0.9;
/// A path left out is worth using if it costs less than its flow pays by more than rounding; a row is broken by more.
const WORTH: f64 = 1.0 - 1e-8;
const BROKEN: f64 = 1.0 + 1e-9;
/// The last attempt has everything, and so has that after one that leads nowhere.
const ATTEMPTS: usize = 4;

/// n columns (paths) of f flows over U used links, m rows; rates in Mb/s. Row r limits the columns of the slices of set
/// `set_of[r]` on the links of domain `domain_of[r]`.
pub struct Whole<'a> {
    /// Where the columns of each flow start, and n.
    pub starts: Vec<usize>,
    pub routing: Pattern<'a>,
    /// How often a path crosses its link, beside `routing`.
    pub crossings: &'a [f64],
    pub airtime: &'a [f64],
    pub domains: Pattern<'a>,
    pub sets: Pattern<'a>,
    pub domain_of: &'a [i32],
    pub set_of: &'a [i32],
    pub slices: usize,
    /// The slice of each flow.
    pub slice_of: &'a [i32],
    pub budget: &'a [f64],
    pub utilities: Vec<Utility>,
    pub demand: &'a [f64],
}

impl Whole<'_> {
    pub fn columns(&self) -> usize {
        self.routing.count()
    }

    pub fn rows(&self) -> usize {
        self.budget.len()
    }

    /// From nothing but safe rates.
    pub fn cold(&self, start: &[f64], pace: Pace, max_steps: usize) -> Option<Solution> {
        let part = Part::of(self, &vec![true; self.columns()]);
        let rows: Vec<usize> = (0..self.rows()).collect();
        let (starts, items) = part.rows(self, &rows);
        let budget = self.budget.to_vec();
        let problem = part.problem(Pattern { starts: &starts, items: &items }, &budget);
        let mut search = Search::new(&problem, start, pace);
        let method = search.cold();
        search.run(method, max_steps)
    }

    /// From the rates and prices of an earlier slot. None if that leads nowhere.
    pub fn warm(&self, earlier: &Warm, pace: Pace, max_steps: usize) -> Option<Solution> {
        let mut known = Solution { rates: earlier.rates.to_vec(), prices: earlier.prices.to_vec(), steps: 0, rows: 0 };
        let (mut columns, mut rows) = (vec![false; self.columns()], vec![self.rows() <= rows::FEW_ROWS; self.rows()]);
        let mut everything = false;
        for attempt in 1..=ATTEMPTS {
            everything |= attempt == ATTEMPTS;
            let costs = self.costs(&known.prices);
            self.add_columns(&mut columns, &known.rates, &costs);
            if everything || !columns.contains(&true) {
                columns.fill(true);
            }
            let part = Part::of(self, &columns);
            let found = self.warm_part(&part, &mut rows, &known, everything, (pace, max_steps));
            let Found { solution, loads } = match found {
                Some(found) => found,
                None if everything => return None,
                None => {
                    known.steps += max_steps;
                    everything = true;
                    continue;
                }
            };
            let steps = known.steps + solution.steps;
            known = Solution { steps, ..solution };
            let broken = (0..self.rows()).any(|row| !rows[row] && loads[row] > BROKEN);
            if everything || !(broken || self.is_worth_more(&columns, &known)) {
                return Some(known);
            }
        }
        None
    }

    /// The optimum of a part, on rows that are loaded, some more for its columns, and those that took part before.
    fn warm_part(
        &self,
        part: &Part,
        takes_part: &mut [bool],
        known: &Solution,
        everything: bool,
        (pace, max_steps): (Pace, usize),
    ) -> Option<Found> {
        let rates: Vec<f64> = part.columns.iter().map(|&column| known.rates[column]).collect();
        let loads = part.loads(self, &rates);
        let alone = part.loads(self, &vec![1.0; rates.len()]);
        let worst = part.worst_rows(self, &alone);
        let loaded = |row: usize| everything || loads[row] > LOADED || known.prices[row] > 0.0;
        (0..self.rows()).filter(|&row| loaded(row)).for_each(|row| takes_part[row] = true);
        worst.iter().for_each(|&row| takes_part[row] = true);
        let rows: Vec<usize> = (0..self.rows()).filter(|&row| takes_part[row]).collect();
        let (starts, items) = part.rows(self, &rows);
        let budget: Vec<f64> = rows.iter().map(|&row| self.budget[row]).collect();
        let problem = part.problem(Pattern { starts: &starts, items: &items }, &budget);
        let start = safe(part, &worst.iter().map(|&row| alone[row]).collect::<Vec<f64>>());
        let prices: Vec<f64> = rows.iter().map(|&row| known.prices[row]).collect();
        let mut search = Search::new(&problem, &start, pace);
        let method = search.warm(&Warm { rates: &rates, prices: &prices })?;
        let found = search.run(method, max_steps)?;
        let loads = part.loads(self, &found.rates);
        let (mut rates, mut prices) = (vec![0.0; self.columns()], vec![0.0; self.rows()]);
        part.columns.iter().zip(&found.rates).for_each(|(&column, &rate)| rates[column] = rate);
        rows.iter().zip(&found.prices).for_each(|(&row, &price)| prices[row] = price);
        Some(Found { solution: Solution { rates, prices, ..found }, loads })
    }

    /// What a Mb/s on every column costs at prices per share of each row's budget.
    fn costs(&self, prices: &[f64]) -> Vec<f64> {
        let mut per_link = vec![0.0; self.airtime.len() * self.slices];
        for row in (0..prices.len()).filter(|&row| prices[row] > 0.0) {
            let price = prices[row] / self.budget[row];
            for &link in self.domains.row(self.domain_of[row] as usize) {
                let own = &mut per_link[link as usize * self.slices..][..self.slices];
                self.sets.row(self.set_of[row] as usize).iter().for_each(|&slice| own[slice as usize] += price);
            }
        }
        let mut costs = Vec::with_capacity(self.columns());
        for (flow, &slice) in self.slice_of.iter().enumerate() {
            for column in self.starts[flow]..self.starts[flow + 1] {
                let own = self.routing.starts[column] as usize..self.routing.starts[column + 1] as usize;
                let cost = |at: usize| {
                    let link = self.routing.items[at] as usize;
                    self.crossings[at] * self.airtime[link] * per_link[link * self.slices + slice as usize]
                };
                costs.push(own.map(cost).sum());
            }
        }
        costs
    }

    /// Columns that carry something, or cost not much more than their flow pays, take part.
    fn add_columns(&self, takes_part: &mut [bool], rates: &[f64], costs: &[f64]) {
        let totals = sums(&self.starts, rates);
        for (flow, &total) in totals.iter().enumerate() {
            let own = self.starts[flow]..self.starts[flow + 1];
            let cheapest = costs[own.clone()].iter().copied().fold(f64::INFINITY, f64::min);
            // A flow that has something pays for its cheapest path, whatever changed since; others what they would.
            let pays = if total > 0.0 { cheapest } else { cheapest.min(self.utilities[flow].slope(0.0)) };
            own.for_each(|column| takes_part[column] |= rates[column] > 0.0 || costs[column] <= DEAR * pays);
        }
    }

    /// Whether a column that took no part is worth using at the prices found.
    fn is_worth_more(&self, took_part: &[bool], found: &Solution) -> bool {
        let (totals, costs) = (sums(&self.starts, &found.rates), self.costs(&found.prices));
        (0..totals.len()).any(|flow| {
            let own = self.starts[flow]..self.starts[flow + 1];
            let used = own.clone().filter(|&column| took_part[column]).map(|column| costs[column]);
            let pays = used.fold(self.utilities[flow].slope(totals[flow]), f64::min);
            own.into_iter().any(|column| !took_part[column] && costs[column] < WORTH * pays)
        })
    }
}

/// The optimum of a part, with the rates, prices and loads of the whole.
struct Found {
    solution: Solution,
    loads: Vec<f64>,
}

/// Half of what each column gets if the busiest row on its way is shared equally, within the demands.
fn safe(part: &Part, worst: &[f64]) -> Vec<f64> {
    let mut rates: Vec<f64> = worst.iter().map(|worst| 0.5 / worst).collect();
    let totals = sums(&part.starts, &rates);
    for (flow, total) in totals.iter().enumerate() {
        let share = (0.5 * part.demand[flow] / total).min(1.0);
        rates[part.starts[flow]..part.starts[flow + 1]].iter_mut().for_each(|rate| *rate *= share);
    }
    rates
}
