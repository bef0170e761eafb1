//! One solution: scaling, the first rows and point, steps with rows added on demand, and the way back to Mb/s.
//! `controller/core/rates/solver.py` is the reference.
use super::columns::Columns;
use super::method::{Method, Pace};
use super::point::{dot, Flows, Point};
use super::problem::{median, sums, Problem};
use super::rows;

const REGULARISATION: f64 = 1e-8;
const TARGET_MU: f64 = 1e-12;
const TARGET_ERROR: f64 = 1e-9;
const ROUNDING: f64 = 1e-5;
/// Rows are looked for once the point is this close to centred and feasible; before that it says little.
const SEARCH_MU: f64 = 0.3;
const SEARCH_ERROR: f64 = 0.3;
const OVERLAP: f64 = 0.8;
const START_MU: f64 = 0.2;
const SLACK: f64 = 1e-5;
const LARGE_ALPHA: f64 = 4.0;
const WARM_MU: (f64, f64) = (1e-6, 1e-2);

/// An earlier slot's rates (Mb/s) and prices of rows, and the gap that they leave in this slot.
pub struct Warm<'a> {
    pub rates: &'a [f64],
    pub prices: &'a [f64],
    pub gap: f64,
}

/// Rates of columns in Mb/s (up to rounding feasible), prices of rows per share of budget.
pub struct Solution {
    pub rates: Vec<f64>,
    pub prices: Vec<f64>,
    pub steps: usize,
    pub rows: usize,
}

pub struct Search<'a> {
    problem: &'a Problem<'a>,
    start: &'a [f64],
    unit: f64,
    price_unit: f64,
    chosen: Vec<usize>,
    pace: Pace,
}

impl<'a> Search<'a> {
    /// Rates are scaled by a typical rate and utilities by a typical slope, so that tolerances mean the same in every
    /// network. `start` are safe rates in Mb/s.
    pub fn new(problem: &'a Problem<'a>, start: &'a [f64], pace: Pace) -> Search<'a> {
        let unit = (start.iter().map(|rate| rate.ln()).sum::<f64>() / start.len() as f64).exp();
        let totals = sums(&problem.starts, start);
        let slope = |f: usize| problem.utilities[f].scaled(unit).log_slope(totals[f] / unit);
        let price_unit = median((0..totals.len()).map(slope).collect()).exp();
        Search { problem, start, unit, price_unit, chosen: Vec::new(), pace }
    }

    fn flows(&self) -> Flows {
        let problem = self.problem;
        let mut utilities: Vec<_> = problem.utilities.iter().map(|utility| utility.scaled(self.unit)).collect();
        utilities.iter_mut().for_each(|utility| utility.weight /= self.price_unit);
        let limited: Vec<usize> = (0..utilities.len()).filter(|&f| problem.demand[f].is_finite()).collect();
        let demand = limited.iter().map(|&f| problem.demand[f] / self.unit).collect();
        let of = |(f, pair): (usize, &[usize])| std::iter::repeat(f as u32).take(pair[1] - pair[0]);
        let of = problem.starts.windows(2).enumerate().flat_map(of).collect();
        Flows { starts: problem.starts.clone(), of, utilities, limited, demand }
    }

    fn scaled(&self, rates: &[f64]) -> Vec<f64> {
        rates.iter().map(|rate| rate / self.unit).collect()
    }

    fn columns(&self) -> Columns {
        Columns::build(self.problem, &self.chosen, self.unit)
    }

    /// A feasible point that shares the busiest domain of each path equally, prices centred.
    pub fn cold(&mut self) -> Method {
        let flows = self.flows();
        let x = self.scaled(self.start);
        self.chosen = rows::first_rows(self.problem, self.start);
        let columns = self.columns();
        let totals = flows.sums(&x);
        let prices = flows.slopes(&totals);
        let slack: Vec<f64> = columns.times(&x).iter().map(|load| 1.0 - load).collect();
        let mu = START_MU * dot(&prices, &totals) / slack.len() as f64;
        let large = flows.utilities.iter().any(|utility| utility.alpha > LARGE_ALPHA);
        let mut method = self.method(flows, columns, x, slack, prices, mu);
        if !large {
            // With the prices of rows raised until paths cost what their flows pay, the first steps are twice as long.
            let costs = method.flows.least(&method.columns.transposed(&method.point.row_price));
            let ratios = method.point.flow_price.iter().zip(&costs).map(|(price, cost)| (price / cost).ln()).collect();
            method.price_rows(median(ratios).exp());
        }
        method
    }

    /// The earlier slot's point, moved away from the bounds by as much as its gap calls for.
    pub fn warm(&mut self, warm: &Warm) -> Method {
        let flows = self.flows();
        let loads = self.problem.loads(warm.rates);
        let all = self.problem.rows.count() <= rows::FEW_ROWS;
        self.chosen = (0..loads.len()).filter(|&row| all || warm.prices[row] > 0.0 || loads[row] > 1.0).collect();
        let columns = self.columns();
        let rates = self.scaled(warm.rates);
        let size = (rates.len() + columns.rows) as f64;
        let raised: Vec<f64> = rates.iter().map(|rate| rate.max(1e-3)).collect();
        let value = dot(&flows.slopes(&flows.sums(&raised)), &flows.sums(&rates)) / flows.count() as f64;
        let mu = value * (warm.gap / self.price_unit / size / value).max(WARM_MU.0).min(WARM_MU.1);
        let prices: Vec<f64> = self.chosen.iter().map(|&row| warm.prices[row] / self.price_unit).collect();
        let path_prices = columns.transposed(&prices);
        let cheapest = flows.least(&path_prices);
        let dearer = |column: usize| path_prices[column] - cheapest[flows.of[column] as usize];
        let x: Vec<f64> = (0..rates.len()).map(|i| off_bound(rates[i], dearer(i), mu)).collect();
        let loads = columns.times(&x);
        let slack = (0..columns.rows).map(|i| off_bound(1.0 - loads[i], prices[i], mu)).collect();
        let flow_prices = flows.slopes(&flows.sums(&x));
        self.method(flows, columns, x, slack, flow_prices, mu)
    }

    fn method(
        &self,
        flows: Flows,
        columns: Columns,
        x: Vec<f64>,
        slack: Vec<f64>,
        flow_price: Vec<f64>,
        mu: f64,
    ) -> Method {
        let totals = flows.sums(&x);
        let spare = |(&flow, &demand): (&usize, &f64)| (demand - totals[flow]).max(0.05 * demand);
        let t: Vec<f64> = flows.limited.iter().zip(&flows.demand).map(spare).collect();
        let least = if mu > 1e-3 { 0.02 } else { mu };
        let s: Vec<f64> = slack.iter().map(|slack| slack.max(least)).collect();
        let priced = |slack: &[f64]| slack.iter().map(|slack| mu / slack).collect();
        let (row_price, bound_price, demand_price) = (priced(&s), priced(&x), priced(&t));
        let point = Point { x, s, t, row_price, bound_price, demand_price, flow_price };
        Method::new(flows, columns, point, REGULARISATION, self.pace)
    }

    /// Iterate to the optimum; None if it isn't reached in so many steps.
    pub fn run(&mut self, mut method: Method, max_steps: usize) -> Option<Solution> {
        let mut last = f64::INFINITY;
        for step in 1..=max_steps {
            method.step()?;
            let (mu, error) = (method.relative_mu(), method.error());
            let added = mu < SEARCH_MU && error < SEARCH_ERROR && self.add_violated(&mut method);
            // Once complementary, an error that no longer falls is rounding; the certificate tells whether it matters.
            let stuck = error < ROUNDING && error > 0.5 * last;
            if !added && mu < TARGET_MU && (error < TARGET_ERROR || stuck) {
                return Some(self.finish(&method, step));
            }
            last = error;
        }
        None
    }

    fn add_violated(&mut self, method: &mut Method) -> bool {
        let rates: Vec<f64> = method.point.x.iter().map(|x| x * self.unit).collect();
        let loads = self.problem.loads(&rates);
        let added = rows::violated(self.problem, &loads, &self.chosen, OVERLAP);
        if added.is_empty() {
            return false;
        }
        let worst = self.problem.worst_of_columns(&loads);
        let shrink: Vec<f64> = worst.iter().map(|&w| if w > 1.0 + 1e-9 { 0.9 / w } else { 1.0 }).collect();
        self.chosen.extend(added);
        method.add_rows(self.columns(), &shrink);
        true
    }

    fn finish(&self, method: &Method, steps: usize) -> Solution {
        let mut prices = vec![0.0; self.problem.rows.count()];
        for (k, &row) in self.chosen.iter().enumerate() {
            // Rows that don't bind keep a trace of price; without it the warm start takes only those that count.
            if method.point.s[k] < SLACK {
                prices[row] = method.point.row_price[k] * self.price_unit;
            }
        }
        let rates = method.point.x.iter().map(|x| x * self.unit).collect();
        Solution { rates, prices, steps, rows: self.chosen.len() }
    }
}

/// A value raised where it is smaller than a central point's would be at this price.
fn off_bound(value: f64, price: f64, mu: f64) -> f64 {
    value.max(mu / price.max(mu.sqrt()))
}
