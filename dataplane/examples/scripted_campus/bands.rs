//! Which rows of a reading an access point sends: `controller/access_point/reading_changes.py` in Rust, for readings
//! whose interfaces and rows are always the same ones. `tests/unit/test_campus_devices.py` compares the two. Pure.

use serde::{Deserialize, Serialize};

const SIGNAL_BAND_DB: f64 = 3.0;
const RATE_BAND: f64 = 0.05;
const LOSS_BAND: f64 = 0.02;
const BAND_EVERY_S: f64 = 1.0;
const STEP_OF_RATES: f64 = 0.9;
const STEP_OF_LOSS: f64 = 0.1;
const HEARD_STEP_MS: i64 = 500;
const REFRESH_S: f64 = 0.3;

/// What a radio says of a neighbour.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Row {
    pub tx_mbps: Option<f64>,
    pub rx_mbps: Option<f64>,
    pub loss: f64,
    pub signal_dbm: Option<f64>,
    pub last_heard_ms: i64,
}

/// What goes out for a reading.
#[derive(Debug, Clone, PartialEq)]
pub enum Message {
    /// All rows.
    Whole,
    /// By interface: the places of rows that differ from the last whole reading.
    Changes(Vec<Vec<usize>>),
}

/// What one session was sent. Everything is sent each `whole_s`.
pub struct Bands {
    whole_s: f64,
    whole: Vec<Vec<Row>>,
    /// None: nothing was sent.
    whole_at_s: Option<f64>,
    /// The rows that the controller holds.
    held: Vec<Vec<Row>>,
    /// When rows that left the band were sent.
    band_at_s: f64,
}

impl Bands {
    /// Nothing was sent.
    pub fn new(whole_s: f64) -> Bands {
        let (whole, held) = (Vec::new(), Vec::new());
        Bands { whole_s, whole, whole_at_s: None, held, band_at_s: f64::NEG_INFINITY }
    }

    /// The rows that a message has: those that the controller holds from now on.
    pub fn held(&self) -> &[Vec<Row>] {
        &self.held
    }

    /// What to send for a reading.
    pub fn message(&mut self, reading: &[Vec<Row>], now_s: f64) -> Message {
        self.steady(reading, now_s);
        if let Some(at_s) = self.whole_at_s.filter(|at_s| now_s - at_s < self.whole_s) {
            let differ = |(held, whole): (&Vec<Row>, &Vec<Row>)| -> Vec<usize> {
                (0..held.len()).filter(|&row| held[row] != whole[row]).collect()
            };
            let changed: Vec<Vec<usize>> = self.held.iter().zip(&self.whole).map(differ).collect();
            if now_s - at_s < REFRESH_S || changed.iter().all(Vec::is_empty) {
                return Message::Changes(changed);
            }
        }
        self.whole.clone_from(&self.held);
        self.whole_at_s = Some(now_s);
        Message::Whole
    }

    fn steady(&mut self, reading: &[Vec<Row>], now_s: f64) {
        let is_due = now_s >= self.band_at_s + BAND_EVERY_S;
        let mut leaves_band = self.held.is_empty();
        if self.held.is_empty() {
            self.held = reading.to_vec();
        }
        for (held, rows) in self.held.iter_mut().zip(reading) {
            for (held, row) in held.iter_mut().zip(rows) {
                if is_urgent(held, row) {
                    *held = *row;
                } else if is_due && is_beyond_band(held, row) {
                    leaves_band = true;
                    *held = *row;
                }
            }
        }
        if is_due && leaves_band {
            self.band_at_s = now_s;
        }
    }
}

fn is_urgent(held: &Row, row: &Row) -> bool {
    (row.last_heard_ms - held.last_heard_ms).abs() >= HEARD_STEP_MS
        || (row.loss - held.loss).abs() >= STEP_OF_LOSS
        || row.signal_dbm.is_none() != held.signal_dbm.is_none()
        || is_step(held.tx_mbps, row.tx_mbps)
        || is_step(held.rx_mbps, row.rx_mbps)
}

fn is_step(held: Option<f64>, rate: Option<f64>) -> bool {
    match (held, rate) {
        (Some(held), Some(rate)) => held != rate && held.min(rate) <= STEP_OF_RATES * held.max(rate),
        (held, rate) => held.is_some() != rate.is_some(),
    }
}

/// Of a row that is not urgent: the same values are there.
fn is_beyond_band(held: &Row, row: &Row) -> bool {
    let beyond = |held: Option<f64>, now: Option<f64>, is_beyond: fn(f64, f64) -> bool| match (held, now) {
        (Some(held), Some(now)) => is_beyond(held, now),
        _ => false,
    };
    let far: fn(f64, f64) -> bool = |held, now| (now - held).abs() > RATE_BAND * held;
    beyond(held.signal_dbm, row.signal_dbm, |held, now| (now - held).abs() > SIGNAL_BAND_DB)
        || (row.loss - held.loss).abs() > LOSS_BAND
        || beyond(held.tx_mbps, row.tx_mbps, far)
        || beyond(held.rx_mbps, row.rx_mbps, far)
}
