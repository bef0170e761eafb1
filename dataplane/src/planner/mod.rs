//! The planner kernel: the whole exploration tree of one flow in compiled code.
//!
//! It gives exactly what `controller/core/tree.py` and the modules it uses give (same integer weights, same order of
//! ties, same order of floating-point sums); the Python code is the reference and explains the algorithms. Links are
//! renumbered by source node inside, which keeps the order of paths: two paths first differ on links out of one node.
pub mod ffi;
pub mod graph;
pub mod interference;
pub mod routes;
pub mod shortest;
pub mod tree;

#[cfg(test)]
mod tests;
