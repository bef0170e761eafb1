//! The client stack: one address above, any interfaces below.
pub mod scheduler;

pub use crate::ip as packet;
