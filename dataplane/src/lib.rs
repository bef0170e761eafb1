//! Data plane of HyRoads. `sys` holds the system calls, the other modules are free of them where they can be.
pub mod client;
pub mod edge;
pub mod ip;
pub mod medium;
pub mod messages;
pub mod planner;
pub mod rates;
pub mod rng;
pub mod slicer;
pub mod sys;
