//! The client stack: one address above, any interfaces below. Everything but the shells is free of system calls and
//! takes time as an argument. See docs/reference/client-stack.md.
pub mod application;
#[cfg(test)]
mod bursts_tests;
pub mod codel;
pub mod config;
pub mod control;
pub mod devices;
#[cfg(test)]
mod direct_tests;
pub mod engine;
pub mod flow;
pub mod forward;
mod host;
#[cfg(test)]
mod hostile_tests;
pub mod link;
pub mod options;
pub mod order;
pub mod placement;
pub mod receive;
pub mod report;
pub mod scheduler;
pub mod send;
#[cfg(test)]
mod sharing_tests;
pub mod shell;
pub mod state;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod timers;
pub mod tunnel;
pub mod waypoint;

#[cfg(test)]
mod segments_tests;
#[cfg(test)]
mod steady_tests;
