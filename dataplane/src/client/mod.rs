//! The client stack: one address above, any interfaces below.
pub mod scheduler;
pub mod tunnel;
pub mod config;
pub mod order;
