//! The solver of a slot's rates in compiled code: sparse, and without the overhead of arrays.
//!
//! The algorithm is that of `controller/core/rates/{solver,interior_point}.py`, which explain it and remain the
//! reference; results agree to the tolerance of both, not bit by bit. Certificate and feasibility are checked in Python,
//! whoever solved.
pub mod columns;
pub mod dense;
pub mod ffi;
pub mod held;
pub mod method;
pub mod newton;
pub mod part;
pub mod point;
pub mod problem;
pub mod rows;
pub mod search;
pub mod sparse;
pub mod utility;
pub mod whole;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod whole_tests;
