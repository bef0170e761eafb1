//! The whole problem, of which only a part is solved, beside all of it at once; with and without bounds of slices.
use super::method::Pace;
use super::problem::Pattern;
use super::search::{Solution, Warm};
use super::utility::Utility;
use super::whole::Whole;

const PACE: Pace = Pace { boundary: 0.995, centring: 0.0, gives_way: false };
const LOG: Utility = Utility { weight: 1.0, alpha: 1.0, shift: 1.0 };
const FLOWS: usize = 8;

/// Eight flows over one channel of 100 Mb/s (link 0) or over a line of their own (link 1 + flow). Four are of slice 1,
/// which has a bound on the channel (row 9). Every link is a domain.
struct Network {
    routing: (Vec<i32>, Vec<i32>),
    domains: (Vec<i32>, Vec<i32>),
    crossings: Vec<f64>,
    airtime: Vec<f64>,
    budget: Vec<f64>,
    domain_of: Vec<i32>,
    set_of: Vec<i32>,
    slice_of: Vec<i32>,
    demand: Vec<f64>,
}

impl Network {
    fn new(line_mbps: f64, bound: f64) -> Network {
        let links = FLOWS as i32 + 1;
        let paths = (0..FLOWS as i32).flat_map(|flow| [0, 1 + flow]).collect();
        let mut airtime = vec![1.0 / line_mbps; FLOWS + 1];
        airtime[0] = 1.0 / 100.0;
        let mut budget = vec![1.0; FLOWS + 1];
        budget.push(bound);
        let mut set_of = vec![0; FLOWS + 1];
        set_of.push(1);
        Network {
            routing: ((0..=2 * FLOWS as i32).collect(), paths),
            domains: ((0..=links).collect(), (0..links).collect()),
            crossings: vec![1.0; 2 * FLOWS],
            airtime,
            budget,
            domain_of: (0..links).chain([0]).collect(),
            set_of,
            slice_of: (0..FLOWS as i32).map(|flow| flow % 2).collect(),
            demand: vec![f64::INFINITY; FLOWS],
        }
    }

    fn whole(&self) -> Whole<'_> {
        Whole {
            starts: (0..=FLOWS).map(|flow| 2 * flow).collect(),
            routing: Pattern { starts: &self.routing.0, items: &self.routing.1 },
            crossings: &self.crossings,
            airtime: &self.airtime,
            domains: Pattern { starts: &self.domains.0, items: &self.domains.1 },
            sets: Pattern { starts: &[0, 2, 3], items: &[0, 1, 1] },
            domain_of: &self.domain_of,
            set_of: &self.set_of,
            slices: 2,
            slice_of: &self.slice_of,
            budget: &self.budget,
            utilities: vec![LOG; FLOWS],
            demand: &self.demand,
        }
    }

    fn cold(&self) -> Solution {
        self.whole().cold(&[0.01; 2 * FLOWS], PACE, 100).expect("it converges")
    }

    fn warm(&self, earlier: &Solution) -> Solution {
        let warm = Warm { rates: &earlier.rates, prices: &earlier.prices };
        self.whole().warm(&warm, PACE, 100).expect("it converges")
    }
}

fn near(found: &Solution, expected: &Solution) {
    let (a, b) = (&found.rates, &expected.rates);
    let close = a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-5 * b.abs().max(1.0));
    assert!(close && a.len() == b.len(), "{a:?} instead of {b:?}");
}

#[test]
fn a_bound_holds_for_its_slice_alone() {
    let rates = Network::new(1.0, 0.2).cold().rates;
    let on_channel =
        |slice: usize| (0..FLOWS).filter(|flow| flow % 2 == slice).map(|flow| rates[2 * flow]).sum::<f64>();
    assert!((on_channel(1) - 20.0).abs() < 1e-4 && (on_channel(0) - 80.0).abs() < 1e-4, "{rates:?}");
}

#[test]
fn a_warm_start_on_a_part_ends_where_a_cold_one_does() {
    for (line_mbps, bound) in [(1.0, 0.2), (1.1, 0.21), (30.0, 0.2), (1.0, 0.9), (0.01, 0.001)] {
        let earlier = Network::new(1.0, 0.2).cold();
        let network = Network::new(line_mbps, bound);
        near(&network.warm(&earlier), &network.cold());
    }
}

#[test]
fn paths_left_out_join_when_they_are_worth_it() {
    // Before, a flow could use the channel only; now nobody remembers a price of the lines.
    let network = Network::new(50.0, 0.2);
    let mut earlier = network.cold();
    (0..FLOWS).for_each(|flow| earlier.rates[2 * flow + 1] = 0.0);
    earlier.prices[1..=FLOWS].fill(1e6);
    near(&network.warm(&earlier), &network.cold());
}

#[test]
fn rows_left_out_join_when_they_are_broken() {
    let network = Network::new(50.0, 0.2);
    let mut earlier = network.cold();
    earlier.rates.iter_mut().for_each(|rate| *rate *= 1e-3);
    earlier.prices[1..].fill(0.0);
    near(&network.warm(&earlier), &network.cold());
}
