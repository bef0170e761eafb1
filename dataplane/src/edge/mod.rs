//! The edge agent. Everything but the shell (`shell`, `devices`, `control`) is free of system calls and takes time as
//! an argument.
//! See docs/reference/dataplane.md and docs/reference/agent.md.
pub mod branch;
pub mod buffer;
pub mod burst;
pub mod control;
pub mod copies;
pub mod delay;
pub mod devices;
pub mod egress_config;
pub mod engine;
pub mod engine_report;
pub mod frame;
pub mod hywf;
pub mod inpath;
pub mod liveness;
pub mod mtu;
pub mod options;
pub mod outpath;
pub mod pace;
pub mod padding;
pub mod private;
pub mod probe_traffic;
pub mod protocol;
pub mod queue_bound;
pub mod receiver;
pub mod reorder;
pub mod report;
pub mod sender;
pub mod sequence_markers;
pub mod shell;
pub mod split;
pub mod split_config;
#[cfg(test)]
pub(crate) mod testing;
pub mod timers;
pub mod watch;
