//! The solver on its own, on optima known by hand; equality with the reference is tested from Python.
use super::dense;
use super::method::Pace;
use super::problem::{Pattern, Problem};
use super::search::{Search, Solution, Warm};
use super::sparse::Structure;
use super::utility::Utility;

const PACE: Pace = Pace { boundary: 0.995, centring: 0.0, gives_way: false };
const LOG: Utility = Utility { weight: 1.0, alpha: 1.0, shift: 1.0 };

/// a -> b on PLC at 10 and on WiFi at 15, b -> c on WiFi at 30 Mb/s; one row per medium, both within `budget`.
fn triangle<'a>(utilities: Vec<Utility>, demand: &'a [f64], budget: &'a [f64]) -> Problem<'a> {
    Problem {
        starts: vec![0, 2],
        routing: Pattern { starts: &[0, 2, 4], items: &[0, 2, 1, 2] },
        crossings: &[1.0; 4],
        airtime: &[1.0 / 10.0, 1.0 / 15.0, 1.0 / 30.0],
        rows: Pattern { starts: &[0, 1, 3], items: &[0, 1, 2] },
        budget,
        utilities,
        demand,
    }
}

fn solved(problem: &Problem, start: &[f64]) -> Solution {
    let mut search = Search::new(problem, start, PACE);
    let method = search.cold();
    search.run(method, 100).expect("it converges")
}

fn near(found: &[f64], expected: &[f64]) {
    let close = found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6 * b.abs().max(1.0));
    assert!(close && found.len() == expected.len(), "{found:?} instead of {expected:?}");
}

#[test]
fn triangle_of_the_paper() {
    for budget in [1.0, 0.95, 0.7] {
        let (demand, budgets) = ([f64::INFINITY], [budget; 2]);
        let problem = triangle(vec![LOG], &demand, &budgets);
        near(&solved(&problem, &[2.0, 2.0]).rates, &[10.0 * budget, 20.0 / 3.0 * budget]);
    }
}

#[test]
fn a_demand_holds_and_rows_within_it_have_no_price() {
    let (demand, budget) = ([3.0], [1.0; 2]);
    let problem = triangle(vec![LOG], &demand, &budget);
    let solution = solved(&problem, &[0.5, 0.5]);
    assert!((solution.rates.iter().sum::<f64>() - 3.0).abs() < 1e-7);
    near(&solution.prices, &[0.0, 0.0]);
}

#[test]
fn prices_are_slopes() {
    let (demand, budget) = ([f64::INFINITY], [1.0; 2]);
    let solution = solved(&triangle(vec![LOG], &demand, &budget), &[2.0, 2.0]);
    // WiFi+WiFi costs 1/15 + 1/30 of WiFi's time, PLC+WiFi 1/30 of it and 1/10 of PLC's.
    let slope = 1.0 / (1.0 + 50.0 / 3.0);
    near(&solution.prices, &[10.0 * (slope - slope / 3.0), 10.0 * slope]);
}

#[test]
fn a_warm_start_ends_where_a_cold_one_does() {
    let (demand, before, after) = ([f64::INFINITY], [1.0, 1.0], [0.8, 0.9]);
    let first = solved(&triangle(vec![LOG], &demand, &before), &[2.0, 2.0]);
    let problem = triangle(vec![LOG], &demand, &after);
    let mut search = Search::new(&problem, &[2.0, 2.0], PACE);
    let method = search.warm(&Warm { rates: &first.rates, prices: &first.prices }).expect("prices are known");
    let warm = search.run(method, 100).expect("it converges");
    near(&warm.rates, &solved(&problem, &[2.0, 2.0]).rates);
    let silent = Warm { rates: &first.rates, prices: &[0.0, 0.0] };
    assert!(Search::new(&problem, &[2.0, 2.0], PACE).warm(&silent).is_none());
}

#[test]
fn throughput_goes_where_it_is_cheapest() {
    let (demand, budget) = ([f64::INFINITY], [1.0; 2]);
    let linear = Utility { weight: 1.0, alpha: 0.0, shift: 0.0 };
    near(&solved(&triangle(vec![linear], &demand, &budget), &[2.0, 2.0]).rates, &[10.0, 20.0 / 3.0]);
}

/// A positive definite matrix of numbers that look random.
fn matrix(size: usize) -> Vec<f64> {
    let value = |i: usize, j: usize| ((i * 31 + j * 17) % 23) as f64 / 23.0 - 0.5;
    let entry = |i: usize, j: usize| (0..size).map(|k| value(i, k) * value(j, k)).sum::<f64>();
    let diagonal = |i: usize, j: usize| if i == j { 1.0 } else { 0.0 };
    (0..size * size).map(|at| entry(at / size, at % size) + diagonal(at / size, at % size)).collect()
}

#[test]
fn factors_solve_their_system() {
    for size in [1, 2, 7, 8, 9, 16, 31, 70] {
        let matrix = matrix(size);
        let expected: Vec<f64> = (0..size).map(|i| i as f64 - 3.0).collect();
        let mut b: Vec<f64> = (0..size).map(|i| (0..size).map(|j| matrix[i * size + j] * expected[j]).sum()).collect();
        let mut factor = matrix.clone();
        assert!(dense::cholesky(&mut factor, size));
        dense::solve(&factor, size, &mut b);
        near(&b, &expected);
    }
}

#[test]
fn what_is_not_positive_definite_has_no_factor() {
    assert!(!dense::cholesky(&mut [1.0, 2.0, 0.0, 1.0], 2));
    assert!(!dense::cholesky(&mut [f64::NAN], 1));
}

/// Blocks on a chain of rows, some of them far apart, as flows between buildings load them.
fn chain(size: usize) -> Vec<Vec<u32>> {
    let neighbours = (0..size as u32 - 2).map(|row| vec![row, row + 1, row + 2]);
    let apart = (0..size as u32 / 10).map(|row| vec![row, (7 * row + size as u32 / 2) % size as u32]);
    neighbours.chain(apart.filter(|rows| rows[0] != rows[1])).collect()
}

#[test]
fn a_sparse_factor_solves_what_the_dense_one_does() {
    for size in [33usize, 64, 65, 250] {
        let supports = chain(size);
        let structure = Structure::of(size, supports.iter().map(Vec::as_slice)).expect("most values are zero");
        let (mut values, mut matrix) = (vec![0.0; structure.values()], vec![0.0; size * size]);
        for (block, support) in supports.iter().enumerate() {
            let vectors: Vec<f64> = (0..2 * support.len()).map(|i| ((block * 7 + i * 5) % 11) as f64 - 5.0).collect();
            structure.add_outer(&mut values, block, &vectors, &mut Vec::new());
            for vector in vectors.chunks(support.len()) {
                for (i, &row) in support.iter().enumerate() {
                    for (j, &column) in support.iter().enumerate() {
                        matrix[row as usize * size + column as usize] += vector[i] * vector[j];
                    }
                }
            }
        }
        let added = |row: usize| 0.1 + row as f64 / size as f64;
        structure.add_diagonal(&mut values, (0..size).map(added));
        (0..size).for_each(|row| matrix[row * size + row] += added(row));
        let expected: Vec<f64> = (0..size).map(|i| i as f64 - 3.0).collect();
        let mut b: Vec<f64> = (0..size).map(|i| (0..size).map(|j| matrix[i * size + j] * expected[j]).sum()).collect();
        assert!(structure.factorise(&mut values, 1.0, &mut Vec::new()));
        structure.solve(&values, &mut b, &mut Vec::new());
        near(&b, &expected);
    }
}

#[test]
fn a_sparse_matrix_that_is_not_positive_definite_has_no_factor() {
    let supports = chain(40);
    let structure = Structure::of(40, supports.iter().map(Vec::as_slice)).expect("most values are zero");
    for value in [0.0, -1.0, f64::NAN] {
        assert!(!structure.factorise(&mut vec![value; structure.values()], 1.0, &mut Vec::new()));
    }
}

#[test]
fn where_most_values_are_there_the_matrix_is_dense() {
    let all: Vec<u32> = (0..100).collect();
    assert!(Structure::of(100, [&all[..]].into_iter()).is_none());
    assert!(Structure::of(8, chain(8).iter().map(Vec::as_slice)).is_none());
}

#[test]
fn outer_products_land_on_their_rows() {
    // Dense enough for zeros in between, and not.
    for size in [4, 40] {
        for at in [vec![0u32, 2, 3], vec![0, 1, 2, 3], vec![3]] {
            for count in 1..=4 {
                let vectors: Vec<f64> = (0..count * at.len()).map(|i| i as f64 + 1.0).collect();
                let mut sum = vec![0.0; size * size];
                dense::add_outer(&mut sum, size, &at, &vectors, &mut Vec::new());
                for (i, &row) in at.iter().enumerate() {
                    for (j, &column) in at.iter().enumerate().skip(i) {
                        let expected: f64 = vectors.chunks(at.len()).map(|vector| vector[i] * vector[j]).sum();
                        assert_eq!(std::mem::take(&mut sum[row as usize * size + column as usize]), expected);
                    }
                }
                assert!(sum.iter().all(|&rest| rest == 0.0));
            }
        }
    }
}
