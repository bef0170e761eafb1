//! The filters of measured capacities in compiled code: thousands of samples each slot.
//!
//! The algorithm is that of `controller/core/estimate/filter_bank.py`, which remains the reference;
//! `controller/core/estimate/filters.py` explains it. Results agree to rounding; counts and recent samples are the same.
pub mod ffi;
pub mod filter_bank;

#[cfg(test)]
mod tests;
