//! One solution: scaling, the first rows and point, steps with rows added on demand, and the way back to Mb/s.
//!
//! Differs from the reference, `controller/core/rates/solver.py`, in where it starts and when rows are added: it keeps to
//! the central path and inside *all* rows of the network, those that don't take part yet included. A step ends before
//! it crosses one of these, which then takes part. That takes half as many steps.
use super::columns::Columns;
use super::held::HOLD;
use super::method::{Method, Pace};
use super::point::{dot, Flows, Point};
use super::problem::{median, sums, Problem};
use super::rows;

const REGULARISATION: f64 = 1e-8;
const TARGET_MU: f64 = 1e-12;
const TARGET_ERROR: f64 = 1e-9;
const ROUNDING: f64 = 1e-5;
/// A row is violated by more than rounding.
const VIOLATED: f64 = 1.0 + 1e-9;
/// How near to a row that doesn't take part a step may go, as a share of the way and at least.
const APPROACH: f64 = 0.95;
const LEAST_APPROACH: f64 = 0.01;
/// Once mu is below the first, rows with more slack than the second no longer take part; the time that a step takes
/// grows with the square of their number. Whatever a step would cross takes part again.
const DROPS: [(f64, f64); 3] = [(0.05, 0.1), (0.005, 0.05), (0.0005, 0.02)];
/// Before that rows take part that are this near to their budget: the fewer steps end early at one.
const NEAR: f64 = 0.97;
/// Of rows that are added at once, only those that have this share of new links.
const OVERLAP: f64 = 0.8;
/// Rounds towards the analytic centre, and how near to a row they end.
const ROUNDS: usize = 8;
const NEAREST: f64 = 0.9;
const CENTRE_SLACK: f64 = 0.05;
/// Mu at a cold start, relative to the worth of the path that is worth most.
const START_MU: f64 = 0.3;
const SLACK: f64 = 1e-5;
const LARGE_ALPHA: f64 = 4.0;
/// How far a warm start moves towards the centre: at least, per overload, at most.
const TOWARDS_CENTRE: (f64, f64, f64) = (0.1, 4.0, 0.3);
/// How far from central the products of a start may be.
const FROM_CENTRAL: f64 = 10.0;

/// An earlier slot's rates (Mb/s) and prices of rows.
pub struct Warm<'a> {
    pub rates: &'a [f64],
    pub prices: &'a [f64],
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
    takes_part: Vec<bool>,
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
        let takes_part = vec![false; problem.rows.count()];
        Search { problem, start, unit, price_unit, chosen: Vec::new(), takes_part, pace }
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

    /// These rows take part from now on, after those of `columns`.
    fn choose(&mut self, columns: &Columns, rows: &[usize]) -> Columns {
        rows.iter().for_each(|&row| self.takes_part[row] = true);
        self.chosen.extend(rows);
        columns.with_rows(self.problem, rows, self.unit)
    }

    /// Loads of all rows at scaled rates.
    fn loads(&self, x: &[f64]) -> Vec<f64> {
        let rates: Vec<f64> = x.iter().map(|x| x * self.unit).collect();
        self.problem.loads(&rates)
    }

    /// A point near the centre of what is feasible, with prices at which most paths cost more than their flows pay.
    pub fn cold(&mut self) -> Method {
        let flows = self.flows();
        let columns = self.choose(&Columns::none(self.problem), &rows::first_rows(self.problem, self.start));
        let (x, pull) = self.centre(&flows, &columns);
        let prices = flows.slopes(&flows.sums(&x));
        let highest = (0..x.len()).map(|i| prices[flows.of[i] as usize] / pull[i]).fold(0.0, f64::max);
        let mut method = self.method(flows, columns, x, START_MU * highest);
        method.price_bounds(FROM_CENTRAL);
        method
    }

    /// The earlier slot's point, moved towards the centre.
    ///
    /// Rates and prices of an optimum are on the bounds, from where no step is long. Rates between them and the centre
    /// have slack everywhere, and with the old prices nearly the products of a central point (Yildirim and Wright,
    /// "Warm-start strategies in interior-point methods for linear programming", SIAM J. Optim. 12(3), 2002).
    ///
    /// None if the prices say nothing.
    pub fn warm(&mut self, warm: &Warm) -> Option<Method> {
        let flows = self.flows();
        let loads = self.problem.loads(warm.rates);
        let all = self.problem.rows.count() <= rows::FEW_ROWS;
        let first: Vec<usize> = (0..loads.len()).filter(|&row| all || warm.prices[row] > 0.0).collect();
        let columns = self.choose(&Columns::none(self.problem), &first);
        let prices: Vec<f64> = self.chosen.iter().map(|&row| warm.prices[row] / self.price_unit).collect();
        let (centre, _) = self.centre(&flows, &columns);
        let overload = loads.iter().copied().fold(1.0, f64::max) - 1.0;
        let share = (TOWARDS_CENTRE.0 + TOWARDS_CENTRE.1 * overload).min(TOWARDS_CENTRE.2);
        let worst = self.problem.worst_of_columns(&loads);
        let mixed = |i: usize| (1.0 - share) * warm.rates[i] / self.unit / worst[i].max(1.0) + share * centre[i];
        let x: Vec<f64> = (0..centre.len()).map(mixed).collect();
        let slack: Vec<f64> = columns.times(&x).iter().map(|load| 1.0 - load).collect();
        let mu = dot(&slack, &prices) / prices.len() as f64;
        if !(mu > 0.0 && mu.is_finite()) {
            return None;
        }
        let mut method = self.method(flows, columns, x, mu);
        for (central, &price) in method.point.row_price.iter_mut().zip(&prices) {
            *central = price.max(*central / FROM_CENTRAL).min(*central * FROM_CENTRAL);
        }
        method.price_bounds(FROM_CENTRAL);
        Some(method)
    }

    /// Where the central path comes from, nearly: the analytic centre, 1 / x_P = sum of a_iP / s_i + 1 / t_f; and the
    /// right-hand side there. All rows hold with slack.
    fn centre(&self, flows: &Flows, columns: &Columns) -> (Vec<f64>, Vec<f64>) {
        let mut x: Vec<f64> = self.start.iter().map(|rate| rate / self.unit).collect();
        // The slopes of a large alpha span many powers of ten: the caller's start is better than the centre.
        let large = flows.utilities.iter().any(|utility| utility.alpha > LARGE_ALPHA);
        for _ in 0..if large { 0 } else { ROUNDS } {
            let pull = pull(flows, columns, &x);
            x.iter_mut().zip(&pull).for_each(|(x, pull)| *x = (*x / pull).sqrt());
            let loads = columns.times(&x);
            within(&mut x, loads);
        }
        let loads = self.loads(&x);
        within(&mut x, loads);
        let pull = pull(flows, columns, &x);
        (x, pull)
    }

    /// The method at rates x, with all products mu.
    fn method(&self, flows: Flows, columns: Columns, x: Vec<f64>, mu: f64) -> Method {
        let totals = flows.sums(&x);
        let spare = |(&flow, &demand): (&usize, &f64)| (demand - totals[flow]).max(0.05 * demand);
        let t: Vec<f64> = flows.limited.iter().zip(&flows.demand).map(spare).collect();
        let s: Vec<f64> = columns.times(&x).iter().map(|load| (1.0 - load).max(mu.min(0.01))).collect();
        let priced = |slack: &[f64]| slack.iter().map(|slack| mu / slack).collect();
        let (row_price, bound_price, demand_price) = (priced(&s), priced(&x), priced(&t));
        let point = Point { x, s, t, row_price, bound_price, demand_price, flow_price: flows.slopes(&totals) };
        Method::new(flows, columns, point, REGULARISATION, self.pace)
    }

    /// Iterate to the optimum; None if it isn't reached in so many steps.
    pub fn run(&mut self, mut method: Method, max_steps: usize) -> Option<Solution> {
        let mut last = f64::INFINITY;
        let mut drops = if self.takes_part.len() > rows::FEW_ROWS { &DROPS[..] } else { &[] };
        let mut loads = self.loads(&method.point.x);
        for step in 1..=max_steps {
            if self.pace.gives_way {
                HOLD.pass();
            }
            let (direction, length) = method.direction()?;
            let change = self.loads(&direction.x);
            let room = self.room(&loads, &change, length);
            let ahead: Vec<f64> = loads.iter().zip(&change).map(|(load, change)| load + length * change).collect();
            let bound = if drops.len() == DROPS.len() { NEAR } else { VIOLATED };
            let added = rows::violated(self.problem, &ahead, &self.takes_part, bound, OVERLAP);
            let complete = added.is_empty();
            let more = (!complete).then(|| self.choose(&method.columns, &added));
            method.advance(&direction, room, more);
            loads.iter_mut().zip(&change).for_each(|(load, change)| *load += room * change);
            let (mu, error) = (method.relative_mu(), method.error());
            if let Some(&(below, slack)) = drops.first() {
                if mu < below {
                    self.drop_rows(&mut method, slack);
                    drops = &drops[1..];
                }
            }
            // Once complementary, an error that no longer falls is rounding; the certificate tells whether it matters.
            let stuck = error < ROUNDING && error > 0.5 * last;
            if complete && mu < TARGET_MU && (error < TARGET_ERROR || stuck) {
                return Some(self.finish(&method, step));
            }
            last = error;
        }
        None
    }

    /// Rows with so much slack no longer take part.
    fn drop_rows(&mut self, method: &mut Method, slack: f64) {
        let (remaining, dropped): (Vec<usize>, Vec<usize>) =
            (0..self.chosen.len()).partition(|&k| method.point.s[k] < slack);
        if !dropped.is_empty() && !remaining.is_empty() {
            dropped.iter().for_each(|&k| self.takes_part[self.chosen[k]] = false);
            self.chosen = remaining.iter().map(|&k| self.chosen[k]).collect();
            method.keep_rows(&remaining);
        }
    }

    /// How far a step may go before it crosses rows that don't take part.
    fn room(&self, loads: &[f64], change: &[f64], mut length: f64) -> f64 {
        for row in (0..loads.len()).filter(|&row| !self.takes_part[row]) {
            if loads[row] < 1.0 && loads[row] + length * change[row] > VIOLATED {
                length = length.min(APPROACH * (1.0 - loads[row]).max(LEAST_APPROACH) / change[row]);
            }
        }
        length
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

/// Scale rates down until the largest of these loads leaves room.
fn within(x: &mut [f64], loads: Vec<f64>) {
    let scale = NEAREST / loads.into_iter().fold(NEAREST, f64::max);
    x.iter_mut().for_each(|x| *x *= scale);
}

/// The sum of a_iP / s_i + 1 / t_f for every path.
fn pull(flows: &Flows, columns: &Columns, x: &[f64]) -> Vec<f64> {
    let steepness: Vec<f64> = columns.times(x).iter().map(|load| 1.0 / (1.0 - load).max(CENTRE_SLACK)).collect();
    let mut pull = columns.transposed(&steepness);
    let totals = flows.sums(x);
    for (&flow, &demand) in flows.limited.iter().zip(&flows.demand) {
        let steepness = 1.0 / (demand - totals[flow]).max(CENTRE_SLACK * demand);
        pull[flows.starts[flow]..flows.starts[flow + 1]].iter_mut().for_each(|pull| *pull += steepness);
    }
    pull
}
