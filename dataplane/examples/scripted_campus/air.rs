//! Rows of a radio on air that never rests, as `tests/support/noisy_air.py` draws them. Pure.
use super::bands::Row;
use super::script::{Air, Medium};
use hyroads_dataplane::rng::Rng;

const NOISE_DB: [i32; 6] = [-3, -2, -1, 1, 2, 3];
const NOISE_OF_RATES: f64 = 0.05;
/// This share of the rows of a reading is measured again; the rest stays as it is.
const NOISY_SHARE: f64 = 0.5;
const HEARD_WITHIN_MS: usize = 100;
/// A row that moves takes one of these shares of its rate, and `STEP_DB` less signal for each place.
const STEPS: [f64; 3] = [1.0, 0.8, 0.6];
const STEP_DB: i32 = 6;
const SIGNAL_DBM: i32 = -50;
const HEARD_MS: i64 = 5;

/// The rows of one access point, by interface.
pub struct Rows {
    rng: Rng,
    at_rest_mbps: Vec<Vec<f64>>,
    steps: Vec<Vec<usize>>,
    pub now: Vec<Vec<Row>>,
}

impl Rows {
    /// All rows as they are at rest; equal seeds give equal readings.
    pub fn new(media: &[Medium], seed: u64) -> Rows {
        let rates = |medium: &Medium| medium.rows.iter().map(|row| row.tx_mbps).collect::<Vec<_>>();
        let rows = |medium: &Medium| medium.rows.iter().map(|row| at_rest(row.tx_mbps)).collect::<Vec<_>>();
        Rows {
            rng: Rng::new(seed),
            at_rest_mbps: media.iter().map(rates).collect(),
            steps: media.iter().map(|medium| vec![0; medium.rows.len()]).collect(),
            now: media.iter().map(rows).collect(),
        }
    }

    /// The next reading is in `now`.
    pub fn read(&mut self, air: Air) {
        if !air.noise && air.moving <= 0.0 {
            return;
        }
        for interface in 0..self.now.len() {
            for row in 0..self.now[interface].len() {
                self.read_row(air, interface, row);
            }
        }
    }

    fn read_row(&mut self, air: Air, interface: usize, at: usize) {
        let moves = self.rng.chance(air.moving);
        let step = &mut self.steps[interface][at];
        if moves {
            *step = (*step + 1 + self.rng.below(STEPS.len() - 1)) % STEPS.len();
        }
        let row = &mut self.now[interface][at];
        if moves || self.rng.chance(NOISY_SHARE) {
            let factor = STEPS[*step] * (1.0 + NOISE_OF_RATES * (2.0 * self.rng.unit() - 1.0));
            let signal_dbm = SIGNAL_DBM - STEP_DB * *step as i32 + NOISE_DB[self.rng.below(NOISE_DB.len())];
            row.signal_dbm = Some(f64::from(signal_dbm));
            row.tx_mbps = Some(rounded(self.at_rest_mbps[interface][at] * factor));
        }
        row.last_heard_ms = self.rng.below(HEARD_WITHIN_MS) as i64;
    }
}

fn at_rest(tx_mbps: f64) -> Row {
    let signal_dbm = Some(f64::from(SIGNAL_DBM));
    Row { tx_mbps: Some(tx_mbps), rx_mbps: None, loss: 0.0, signal_dbm, last_heard_ms: HEARD_MS }
}

/// To kb/s, as radios do.
fn rounded(mbps: f64) -> f64 {
    (mbps * 1e3).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::super::script::Neighbour;
    use super::*;

    fn media() -> Vec<Medium> {
        let rows = (0..200).map(|i| Neighbour { mac: format!("m{i}"), tx_mbps: 100.0 }).collect();
        vec![Medium { technology: "wifi".to_string(), rows }]
    }

    #[test]
    fn half_of_the_rows_change_by_one_to_three_db_and_five_percent() {
        let air = Air { noise: true, moving: 0.0 };
        let (mut rows, mut changed) = (Rows::new(&media(), 1), 0);
        for _ in 0..100 {
            let before: Vec<Option<f64>> = rows.now[0].iter().map(|row| row.tx_mbps).collect();
            rows.read(air);
            changed += rows.now[0].iter().zip(&before).filter(|(row, before)| row.tx_mbps != **before).count();
            for row in &rows.now[0] {
                let (signal, rate) = (row.signal_dbm.unwrap() + 50.0, row.tx_mbps.unwrap());
                assert!(signal.abs() <= 3.0 && (95.0..=105.0).contains(&rate), "{signal} {rate}");
            }
        }
        assert!((9_000..11_000).contains(&changed), "{changed} of 20,000");
    }

    #[test]
    fn equal_seeds_give_equal_readings_and_still_air_none() {
        let air = Air { noise: true, moving: 0.01 };
        let (mut one, mut other, mut still) = (Rows::new(&media(), 7), Rows::new(&media(), 7), Rows::new(&media(), 7));
        let first = still.now.clone();
        for _ in 0..20 {
            one.read(air);
            other.read(air);
            still.read(Air { noise: false, moving: 0.0 });
        }
        assert!(one.now == other.now && still.now == first && one.now != first);
        // Some have moved: beyond what noise alone does.
        assert!(one.now[0].iter().any(|row| row.tx_mbps.unwrap() < 90.0));
    }
}
