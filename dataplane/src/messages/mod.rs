//! Reads what agents and radios tell the controller, for `framework/shared_poll.py` (docs/explanation/controller.md,
//! *Reading what devices say*).
//!
//! The Python parser says what is allowed and remains the reference. This module decodes the three kinds of lines that
//! come several times a second from each device, in the form in which devices write them, to columns of numbers: `pong`,
//! `changes` without links, and `radio-changes` without neighbours. Everything else is passed on as the line that it
//! is, in its order: also what would be refused. To leave a line to Python is always right, only slower.
//!
//! It also sends pings: those of thousands of sessions would cost Python a system call each, and their answers an event
//! each.
pub mod decode;
pub mod ffi;
pub mod pings;
pub mod reader;
pub mod scan;
pub mod thread;
pub mod whole;

#[cfg(test)]
mod tests;
