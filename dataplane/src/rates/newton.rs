//! The Newton system at a point, in the space of rows: (A H^-1 A' + diag(s / lambda)) d_lambda = ...
//!
//! H is one diagonal-plus-rank-one block per flow. Its inverse splits into the part between flows and the part within a
//! flow (columns minus their mean), both positive semidefinite, so that nothing cancels. See `interior_point.py`.
use super::columns::Columns;
use super::dense;
use super::point::{Flows, Point, Residuals, Targets};
use super::sparse::Structure;

/// A path whose rate answers to a price so much less than its flow's rate does is left out of the matrix.
const UNMOVED: f64 = 1e-12;

/// The factorised system; its memory is used again at the next point.
#[derive(Default)]
pub struct Newton {
    curvature: Vec<f64>,
    spread: Vec<f64>,
    share: Vec<f64>,
    between: Vec<f64>,
    gram: Vec<f64>,
    factor: Vec<f64>,
    /// The rows that flows loaded when it was last looked where the matrix has values, and that; None where it is dense.
    supports: Supports,
    structure: Option<Structure>,
}

/// The rows that each flow loads.
#[derive(Default)]
struct Supports {
    rows: usize,
    starts: Vec<usize>,
    support: Vec<u32>,
}

impl Supports {
    fn of(columns: &Columns) -> Supports {
        let (starts, support) = columns.supports();
        Supports { rows: columns.rows, starts: starts.to_vec(), support: support.to_vec() }
    }

    fn are_of(&self, columns: &Columns) -> bool {
        self.rows == columns.rows && (&self.starts[..], &self.support[..]) == columns.supports()
    }
}

/// Where the system is.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    pub flows: &'a Flows,
    pub columns: &'a Columns,
    pub point: &'a Point,
    pub residuals: &'a Residuals,
}

impl Newton {
    /// Set up and factorise at a place; false if rounding makes that impossible.
    pub fn prepare(&mut self, place: Place) -> bool {
        let Place { flows, point, residuals, .. } = place;
        let curvature = |f: usize| point.flow_price[f] * flows.utilities[f].curvature(residuals.totals[f]);
        self.curvature = (0..flows.count()).map(curvature).collect();
        let mut whole = self.curvature.clone();
        for (k, &flow) in flows.limited.iter().enumerate() {
            whole[flow] += point.demand_price[k] / point.t[k];
        }
        let spread = |(column, &flow): (usize, &u32)| {
            1.0 / (point.bound_price[column] / point.x[column] + residuals.regularisation[flow as usize])
        };
        self.spread = flows.of.iter().enumerate().map(spread).collect();
        let totals = flows.sums(&self.spread);
        self.share = self.spread.iter().zip(&flows.of).map(|(&one, &flow)| one / totals[flow as usize]).collect();
        self.between =
            totals.iter().zip(&whole).map(|(&total, &curvature)| total / (1.0 + curvature * total)).collect();
        self.fill(flows, place.columns);
        self.factorise(place)
    }

    /// A H^-1 A', upper triangle.
    fn fill(&mut self, flows: &Flows, columns: &Columns) {
        let size = columns.rows;
        if !self.supports.are_of(columns) {
            self.supports = Supports::of(columns);
            let supports = (0..columns.flows()).map(|flow| columns.block(flow).0);
            self.structure = Structure::of(size, supports);
        }
        let mut gram = std::mem::take(&mut self.gram);
        gram.clear();
        gram.resize(self.structure.as_ref().map_or(size * size, Structure::values), 0.0);
        let mut vectors = Vec::new();
        let mut space = Vec::new();
        for flow in 0..flows.count() {
            let (support, block) = columns.block(flow);
            if !support.is_empty() {
                self.vectors_of(flow, flows, block, support.len(), &mut vectors);
                match &self.structure {
                    Some(structure) => structure.add_outer(&mut gram, flow, &vectors, &mut space),
                    None => dense::add_outer(&mut gram, size, support, &vectors, &mut space),
                }
            }
        }
        self.gram = gram;
    }

    /// The vectors whose outer products add up to the flow's part of the matrix, on its support: the mean, and for
    /// every column but the first how far it is from the mean of those before (Welford's update of a variance), which
    /// takes one vector less than differences from the mean of all, and nothing cancels in their weights.
    fn vectors_of(&self, flow: usize, flows: &Flows, block: &[f64], length: usize, vectors: &mut Vec<f64>) {
        let columns = block.len() / length;
        vectors.clear();
        vectors.resize((1 + columns) * length, 0.0);
        let (mean, mut rest) = vectors.split_at_mut(length);
        let (mut before, mut used) = (0.0, 1);
        for (values, spread) in block.chunks_exact(length).zip(&self.spread[flows.starts[flow]..]) {
            let share = spread / (before + spread);
            let weight = share * before;
            if weight > UNMOVED * self.between[flow] {
                let (vector, others) = rest.split_at_mut(length);
                dense::deviation(vector, values, mean, weight.sqrt());
                rest = others;
                used += 1;
            }
            dense::approach(mean, values, share);
            before += spread;
        }
        let root = self.between[flow].sqrt();
        mean.iter_mut().for_each(|value| *value *= root);
        vectors.truncate(used * length);
    }

    fn factorise(&mut self, place: Place) -> bool {
        let (point, size) = (place.point, place.columns.rows);
        let diagonal = (0..size).map(|row| point.s[row] / point.row_price[row]);
        match &self.structure {
            Some(structure) => structure.add_diagonal(&mut self.gram, diagonal),
            None => diagonal.enumerate().for_each(|(row, added)| self.gram[row * size + row] += added),
        }
        let mut space = Vec::new();
        for regularisation in [1e-15, 1e-12, 1e-9, 1e-6] {
            self.factor.clear();
            self.factor.extend_from_slice(&self.gram);
            let is_done = match &self.structure {
                Some(structure) => structure.factorise(&mut self.factor, 1.0 + regularisation, &mut space),
                None => {
                    (0..size).for_each(|row| self.factor[row * size + row] *= 1.0 + regularisation);
                    dense::cholesky(&mut self.factor, size)
                }
            };
            if is_done {
                return true;
            }
        }
        false
    }

    /// H^-1 v, in two parts that don't cancel, and its sum per flow.
    fn apply_inverse(&self, flows: &Flows, values: &[f64]) -> (Vec<f64>, Vec<f64>) {
        let mut result = vec![0.0; values.len()];
        let mut totals = vec![0.0; flows.count()];
        for (flow, sum) in totals.iter_mut().enumerate() {
            let own = flows.starts[flow]..flows.starts[flow + 1];
            let mean: f64 = own.clone().map(|column| values[column] * self.share[column]).sum();
            let total = self.between[flow] * mean;
            let mut rest = 0.0;
            for column in own.clone() {
                result[column] = self.spread[column] * (values[column] - mean);
                rest += result[column];
            }
            // The first part sums to zero up to rounding, which a tight demand would take for a real difference.
            own.for_each(|column| result[column] += self.share[column] * (total - rest));
            *sum = total;
        }
        (result, totals)
    }

    /// The step towards the target products and zero residuals.
    pub fn solve(&self, place: Place, wanted: &Targets) -> Point {
        let Place { flows, columns, point, residuals } = place;
        let towards = |wanted: &[f64], slack: &[f64], price: &[f64]| -> Vec<f64> {
            (0..wanted.len()).map(|i| wanted[i] / slack[i] - price[i]).collect()
        };
        let bound = towards(&wanted.bound, &point.x, &point.bound_price);
        let row = towards(&wanted.row, &point.row_price, &point.s);
        let demand = towards(&wanted.demand, &point.t, &point.demand_price);
        let mut per_flow: Vec<f64> = point.flow_price.iter().zip(&residuals.flow).map(|(&p, &r)| p * r).collect();
        let flow_target = per_flow.clone();
        for (k, &flow) in flows.limited.iter().enumerate() {
            per_flow[flow] -= demand[k] - point.demand_price[k] / point.t[k] * residuals.demand[k];
        }
        let mut dual: Vec<f64> = (0..flows.of.len())
            .map(|column| residuals.dual[column] + per_flow[flows.of[column] as usize] + bound[column])
            .collect();
        let mut row_price = columns.times(&self.apply_inverse(flows, &dual).0);
        (0..columns.rows).for_each(|i| row_price[i] -= residuals.row[i] - row[i]);
        match &self.structure {
            Some(structure) => structure.solve(&self.factor, &mut row_price, &mut Vec::new()),
            None => dense::solve(&self.factor, columns.rows, &mut row_price),
        }
        dual.iter_mut().zip(columns.transposed(&row_price)).for_each(|(dual, price)| *dual -= price);
        let (x, total) = self.apply_inverse(flows, &dual);
        // Not residuals.row - A dx: a slack of 1e-13 needs its change to relative precision.
        let s = (0..columns.rows).map(|i| row[i] - point.s[i] / point.row_price[i] * row_price[i]).collect();
        let t: Vec<f64> =
            flows.limited.iter().enumerate().map(|(k, &flow)| residuals.demand[k] - total[flow]).collect();
        let bound_price = (0..x.len()).map(|i| bound[i] - point.bound_price[i] / point.x[i] * x[i]).collect();
        let demand_price = (0..t.len()).map(|k| demand[k] - point.demand_price[k] / point.t[k] * t[k]).collect();
        let flow_price = (0..total.len()).map(|f| flow_target[f] - self.curvature[f] * total[f]).collect();
        Point { x, s, t, row_price, bound_price, demand_price, flow_price }
    }
}
