//! The interior point method on a growing set of rows: Mehrotra's predictor-corrector with Gondzio's centrality
//! correctors. `controller/core/rates/interior_point.py` is the reference and says where it is from.
use super::columns::Columns;
use super::newton::{Newton, Place};
use super::point::{Flows, Point, Residuals, Targets};

/// Correctors: how many a step, how much longer a step they aim at, when the gain is worth it, and around which share
/// of the target products may stay.
const CORRECTORS: usize = 4;
const LONG_ENOUGH: f64 = 0.9;
const AMBITION: f64 = 0.3;
const LEAST_GAIN: f64 = 0.03;
const NEIGHBOURHOOD: f64 = 0.1;
const NEW_SLACK: f64 = 0.01;
/// Never so near to the bound that rounding reaches it.
const INSIDE: f64 = 1.0 - 1e-10;

/// Once the complementarity is below the first, a step shorter than the second is followed by one that is centred so much
/// at least: steps that go in a circle there are known.
const NEAR_THE_END: f64 = 1e-6;
const SHORT: f64 = 0.8;
const AFTER_SHORT: f64 = 0.3;

/// How boldly to step: share of the way to the bound, and the least centring (sigma); and whether steps wait while they
/// are held up (`held`).
#[derive(Clone, Copy)]
pub struct Pace {
    pub boundary: f64,
    pub centring: f64,
    pub gives_way: bool,
}

pub struct Method {
    pub flows: Flows,
    pub columns: Columns,
    pub point: Point,
    pub residuals: Residuals,
    pace: Pace,
    /// How far the last step went.
    length: f64,
    regularisation: f64,
    newton: Newton,
}

impl Method {
    pub fn new(flows: Flows, columns: Columns, point: Point, regularisation: f64, pace: Pace) -> Method {
        let residuals = Residuals::of(&flows, &columns, &point, regularisation);
        Method { flows, columns, point, residuals, pace, length: 1.0, regularisation, newton: Newton::default() }
    }

    fn refresh(&mut self) {
        self.residuals = Residuals::of(&self.flows, &self.columns, &self.point, self.regularisation);
    }

    /// Price the bounds of paths at what they cost more than their flow pays, within a factor of what is central.
    pub fn price_bounds(&mut self, factor: f64) {
        let costs = self.columns.transposed(&self.point.row_price);
        for (column, cost) in costs.iter().enumerate() {
            let excess = cost - self.point.flow_price[self.flows.of[column] as usize];
            let central = &mut self.point.bound_price[column];
            *central = excess.max(*central / factor).min(*central * factor);
        }
        self.refresh();
    }

    /// `columns` has the old rows first. New ones get some slack even where they are violated.
    fn add_rows(&mut self, columns: Columns) {
        let mu = self.point.complementarity();
        let least = mu.sqrt().min(NEW_SLACK);
        for load in &columns.times(&self.point.x)[self.columns.rows..] {
            let slack = (1.0 - load).abs().max(least);
            self.point.s.push(slack);
            self.point.row_price.push(mu / slack);
        }
        self.columns = columns;
    }

    /// Go on with these rows alone (numbers in increasing order).
    pub fn keep_rows(&mut self, remaining: &[usize]) {
        self.columns = self.columns.only(remaining);
        self.point.s = remaining.iter().map(|&row| self.point.s[row]).collect();
        self.point.row_price = remaining.iter().map(|&row| self.point.row_price[row]).collect();
        self.refresh();
    }

    /// Mean complementarity relative to the mean value p_f x_f of a flow.
    pub fn relative_mu(&self) -> f64 {
        let value: f64 = self.point.flow_price.iter().zip(&self.residuals.totals).map(|(p, x)| p * x).sum();
        self.point.complementarity() * self.flows.count() as f64 / value
    }

    /// Largest relative residual of the conditions other than complementarity.
    pub fn error(&self) -> f64 {
        self.residuals.relative(&self.point.flow_price, &self.flows)
    }

    /// A predictor-corrector step and how far to go; None if its system can't be solved.
    pub fn direction(&mut self) -> Option<(Point, f64)> {
        let mut newton = std::mem::take(&mut self.newton);
        let place =
            Place { flows: &self.flows, columns: &self.columns, point: &self.point, residuals: &self.residuals };
        if !newton.prepare(place) {
            return None;
        }
        let is_circling = self.relative_mu() < NEAR_THE_END && self.length < SHORT;
        let centring = self.pace.centring.max(if is_circling { AFTER_SHORT } else { 0.0 });
        let mu = self.point.complementarity();
        let affine = newton.solve(place, &self.zero_targets());
        let ahead = self.point.complementarity_after(&affine, self.point.longest(&affine));
        let target = (ahead / mu).powi(3).max(centring) * mu;
        let corrected = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| target - a * b).collect();
        let wanted = Targets {
            bound: corrected(&affine.x, &affine.bound_price),
            row: corrected(&affine.s, &affine.row_price),
            demand: corrected(&affine.t, &affine.demand_price),
        };
        let step = newton.solve(place, &wanted);
        let step = self.centred(&newton, place, wanted, step, target);
        // Near the end almost the whole way to the bound is safe, which makes the last steps superlinear.
        let near = if centring == 0.0 { INSIDE.min(1.0 - self.relative_mu()) } else { 0.0 };
        let length = (self.pace.boundary.max(near) * self.point.longest(&step)).min(self.trusted(&step)).min(1.0);
        self.newton = newton;
        length.is_finite().then_some((step, length))
    }

    /// Go a share of a step, and go on with more rows if there are any.
    pub fn advance(&mut self, step: &Point, length: f64, more: Option<Columns>) {
        self.point.advance(step, length);
        self.length = length;
        if let Some(columns) = more {
            self.add_rows(columns);
        }
        self.refresh();
    }

    fn zero_targets(&self) -> Targets {
        let point = &self.point;
        Targets { bound: vec![0.0; point.x.len()], row: vec![0.0; point.s.len()], demand: vec![0.0; point.t.len()] }
    }

    /// The step, corrected while that makes it longer: products far from the target at a longer step are pulled back.
    fn centred(&self, newton: &Newton, place: Place, mut wanted: Targets, mut step: Point, target: f64) -> Point {
        let mut length = self.point.longest(&step);
        for _ in 0..CORRECTORS {
            if length >= LONG_ENOUGH {
                break;
            }
            let products = self.point.products_after(&step, (length + AMBITION).min(1.0));
            let pull = |wanted: &mut [f64], products: &[f64]| {
                wanted.iter_mut().zip(products).for_each(|(wanted, &product)| *wanted += pulled(product, target));
            };
            pull(&mut wanted.bound, &products.bound);
            pull(&mut wanted.row, &products.row);
            pull(&mut wanted.demand, &products.demand);
            let better = newton.solve(place, &wanted);
            let longer = self.point.longest(&better);
            if longer < length + LEAST_GAIN * AMBITION {
                break;
            }
            step = better;
            length = longer;
        }
        step
    }

    /// Length up to which the slopes U' are about as linear in the logarithm as the Newton step takes them.
    fn trusted(&self, step: &Point) -> f64 {
        let changes = self.flows.sums(&step.x);
        let of_flow = |f: usize| self.flows.utilities[f].trusted(self.residuals.totals[f], changes[f]);
        (0..self.flows.count()).map(of_flow).fold(1.0, f64::min)
    }
}

/// What brings a product into the neighbourhood of the target; a large one is pulled by a bounded amount.
fn pulled(product: f64, target: f64) -> f64 {
    let (low, high) = (NEIGHBOURHOOD * target, target / NEIGHBOURHOOD);
    (product.clamp(low, high) - product).max(-high)
}
