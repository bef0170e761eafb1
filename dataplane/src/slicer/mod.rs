//! The slicer's fast path: packet-ins on their way to a slice's controllers, and the flow-mods that answer them.
//!
//! `slices/proxy` says what becomes of each message and remains the reference. This module forwards messages of the two
//! kinds whose translation is plain, byte for byte as the reference would. Everything else stays in the connection's
//! buffer for Python, in its order: messages that would be refused, rewrite headers, need a check of the flowspace, or
//! come when a limit is reached. Both work on the same memory (`layout`), so there is nothing to keep in step.
pub mod ffi;
pub mod layout;
pub mod matches;
pub mod messages;
pub mod relay;
pub mod spin;

#[cfg(test)]
mod tests;
