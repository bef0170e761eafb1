//! Data plane of HyRoads. `sys` holds the system calls, the other modules are free of them where they can be.
#![deny(clippy::print_stderr)]

/// Says something on stderr. Where that is not possible (the log's disk is full, its reader has gone) it is not said:
/// `eprintln!` would end the program.
#[macro_export]
macro_rules! tell {
    ($($words:tt)*) => {{
        let line = format!("{}\n", format_args!($($words)*));
        let _ = std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes());
    }};
}

pub mod client;
pub mod edge;
pub mod estimate;
pub mod ip;
pub mod medium;
pub mod messages;
pub mod modem;
pub mod planner;
pub mod rates;
pub mod rng;
pub mod slicer;
pub mod sys;
