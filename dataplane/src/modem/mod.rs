//! An emulated HomePlug AV adapter: a bridge between a host's port and the medium that answers management messages
//! (docs/reference/dataplane.md, *The emulated power-line adapter*).

pub mod answers;
pub mod bridge;
pub mod config;
pub mod line;
pub mod medium;
pub mod shell;
