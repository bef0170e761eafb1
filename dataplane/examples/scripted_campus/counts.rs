//! What devices have sent and received.
use serde::Serialize;

/// What happened so far; rows, readings and reports are those that were sent.
#[derive(Debug, Default, Serialize)]
pub struct Counts {
    pub adds: u64,
    pub deletes: u64,
    pub groups: u64,
    pub configs: u64,
    pub rates: u64,
    pub reports: u64,
    pub readings: u64,
    pub readings_with_rows: u64,
    pub rows: u64,
    pub asks: u64,
    pub refused: u64,
    /// Messages of a controller that a device could not read.
    pub odd: u64,
    /// Reports that were left out because this program was more than a period late.
    pub skipped: u64,
}
