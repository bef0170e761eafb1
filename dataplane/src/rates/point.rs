//! A point of the interior point method, steps from it, and how far it is from optimal.
use super::columns::Columns;
use super::problem::sums;
use super::utility::Utility;

/// Flows of n columns, scaled.
pub struct Flows {
    /// Where the columns of each flow start, and n.
    pub starts: Vec<usize>,
    /// The flow of each column.
    pub of: Vec<u32>,
    pub utilities: Vec<Utility>,
    /// Flows with a finite demand, and these demands.
    pub limited: Vec<usize>,
    pub demand: Vec<f64>,
}

impl Flows {
    pub fn count(&self) -> usize {
        self.utilities.len()
    }

    pub fn sums(&self, values: &[f64]) -> Vec<f64> {
        sums(&self.starts, values)
    }

    pub fn slopes(&self, totals: &[f64]) -> Vec<f64> {
        self.utilities.iter().zip(totals).map(|(utility, &x)| utility.slope(x)).collect()
    }
}

/// Rates, slacks of rows and demands, prices of rows, bounds and demands, and the price p_f that flows pay; or a step
/// of all of them.
#[derive(Clone, Default)]
pub struct Point {
    pub x: Vec<f64>,
    pub s: Vec<f64>,
    pub t: Vec<f64>,
    pub row_price: Vec<f64>,
    pub bound_price: Vec<f64>,
    pub demand_price: Vec<f64>,
    pub flow_price: Vec<f64>,
}

impl Point {
    fn parts(&self) -> [&[f64]; 7] {
        [&self.x, &self.s, &self.t, &self.row_price, &self.bound_price, &self.demand_price, &self.flow_price]
    }

    fn pairs(&self) -> [(&[f64], &[f64]); 3] {
        [(&self.x, &self.bound_price), (&self.s, &self.row_price), (&self.t, &self.demand_price)]
    }

    /// Mean product of a slack and its price (mu).
    pub fn complementarity(&self) -> f64 {
        let total: f64 = self.pairs().iter().map(|(a, b)| dot(a, b)).sum();
        total / self.terms() as f64
    }

    fn terms(&self) -> usize {
        self.x.len() + self.s.len() + self.t.len()
    }

    /// Mu after a share of a step.
    pub fn complementarity_after(&self, step: &Point, length: f64) -> f64 {
        let mut total = 0.0;
        for ((a, b), (da, db)) in self.pairs().iter().zip(step.pairs()) {
            total += (0..a.len()).map(|i| (a[i] + length * da[i]) * (b[i] + length * db[i])).sum::<f64>();
        }
        total / self.terms() as f64
    }

    /// The products of slacks and prices after a share of a step.
    pub fn products_after(&self, step: &Point, length: f64) -> Targets {
        let (own, moved) = (self.pairs(), step.pairs());
        let product = |k: usize| {
            let ((a, b), (da, db)) = (own[k], moved[k]);
            (0..a.len()).map(|i| (a[i] + length * da[i]) * (b[i] + length * db[i])).collect()
        };
        Targets { bound: product(0), row: product(1), demand: product(2) }
    }

    /// The largest share of a step, at most 1, that keeps every part non-negative.
    pub fn longest(&self, step: &Point) -> f64 {
        let worst = |(part, change): (&[f64], &[f64])| {
            part.iter().zip(change).map(|(&part, &change)| -change / part).fold(0.0, f64::max)
        };
        let worst = self.parts().into_iter().zip(step.parts()).map(worst).fold(1.0, f64::max);
        1.0 / worst
    }

    /// Go a share of a step.
    pub fn advance(&mut self, step: &Point, length: f64) {
        let mine = [
            &mut self.x,
            &mut self.s,
            &mut self.t,
            &mut self.row_price,
            &mut self.bound_price,
            &mut self.demand_price,
            &mut self.flow_price,
        ];
        for (part, change) in mine.into_iter().zip(step.parts()) {
            part.iter_mut().zip(change).for_each(|(part, &change)| *part += length * change);
        }
    }
}

/// What the products x z, s lambda and t nu should become.
#[derive(Default)]
pub struct Targets {
    pub bound: Vec<f64>,
    pub row: Vec<f64>,
    pub demand: Vec<f64>,
}

/// How far a point is from the linear and logarithmic conditions.
#[derive(Default)]
pub struct Residuals {
    pub dual: Vec<f64>,
    pub row: Vec<f64>,
    pub demand: Vec<f64>,
    pub flow: Vec<f64>,
    /// eps_f of each flow.
    pub regularisation: Vec<f64>,
    /// x_f.
    pub totals: Vec<f64>,
}

impl Residuals {
    pub fn of(flows: &Flows, columns: &Columns, point: &Point, regularisation: f64) -> Residuals {
        let totals = flows.sums(&point.x);
        let eps: Vec<f64> =
            point.flow_price.iter().zip(&totals).map(|(&p, &x)| regularisation * p / (1.0 + x)).collect();
        let mut price = point.flow_price.clone();
        let mut demand = Vec::with_capacity(flows.limited.len());
        for (k, &flow) in flows.limited.iter().enumerate() {
            price[flow] -= point.demand_price[k];
            let spare = flows.demand[k] - totals[flow] - point.t[k];
            demand.push(if spare.abs() > 1e-13 * flows.demand[k] { spare } else { 0.0 });
        }
        let mut dual = columns.transposed(&point.row_price);
        for (column, dual) in dual.iter_mut().enumerate() {
            let flow = flows.of[column] as usize;
            *dual = price[flow] - *dual + point.bound_price[column] - eps[flow] * point.x[column];
        }
        let loads = columns.times(&point.x);
        let row = loads.iter().zip(&point.s).map(|(&load, &s)| 1.0 - load - s).collect();
        let flow =
            (0..flows.count()).map(|f| flows.utilities[f].log_slope(totals[f]) - point.flow_price[f].ln()).collect();
        Residuals { dual, row, demand, flow, regularisation: eps, totals }
    }

    /// The largest, with dual residuals relative to the price of the flow.
    pub fn relative(&self, prices: &[f64], flows: &Flows) -> f64 {
        let dual = self.dual.iter().zip(&flows.of).map(|(&dual, &flow)| (dual / prices[flow as usize]).abs());
        let others = self.row.iter().chain(&self.demand).chain(&self.flow).map(|one| one.abs());
        // A value that isn't a number must not pass for a small one.
        dual.chain(others).fold(0.0, |worst, one| if one > worst || one.is_nan() { one } else { worst })
    }
}

pub fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}
