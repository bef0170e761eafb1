//! The client stack of HyRoads, and the waypoint. See docs/reference/client-stack.md.

use hyroads_dataplane::client::options::{parse, Command, USAGE};
use hyroads_dataplane::client::{shell, waypoint};
use std::process::ExitCode;

fn main() -> ExitCode {
    let options = match parse(std::env::args().skip(1)) {
        Ok(Command::Run(options)) => options,
        Ok(Command::Help) => {
            print!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Ok(Command::Version) => {
            println!("hyroads-client {}", env!("CARGO_PKG_VERSION"));
            return ExitCode::SUCCESS;
        }
        Err(message) => {
            hyroads_dataplane::tell!("hyroads-client: {message}");
            return ExitCode::from(2);
        }
    };
    let result = match options.listen {
        Some(listen) => waypoint::run(&options, listen),
        None => shell::run(&options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        // What the user gave us is status 2, what befell us later 1.
        Err(error) if error.kind() == std::io::ErrorKind::InvalidInput => {
            hyroads_dataplane::tell!("hyroads-client: {error}");
            ExitCode::from(2)
        }
        Err(error) => {
            hyroads_dataplane::tell!("hyroads-client: {error}");
            ExitCode::from(1)
        }
    }
}
