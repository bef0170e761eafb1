//! The edge agent of HyRoads. See docs/reference/agent.md.

use hyroads_dataplane::edge::options::{parse, Command, USAGE};
use hyroads_dataplane::edge::shell;
use std::process::ExitCode;

fn main() -> ExitCode {
    let options = match parse(std::env::args().skip(1)) {
        Ok(Command::Run(options)) => options,
        Ok(Command::Help) => {
            print!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Ok(Command::Version) => {
            println!("hyroads-edge {}", env!("CARGO_PKG_VERSION"));
            return ExitCode::SUCCESS;
        }
        Err(message) => {
            hyroads_dataplane::tell!("hyroads-edge: {message}");
            return ExitCode::from(2);
        }
    };
    match shell::run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        // What the user gave us is status 2, what befell us later 1.
        Err(error) if error.kind() == std::io::ErrorKind::InvalidInput => {
            hyroads_dataplane::tell!("hyroads-edge: {error}");
            ExitCode::from(2)
        }
        Err(error) => {
            hyroads_dataplane::tell!("hyroads-edge: {error}");
            ExitCode::from(1)
        }
    }
}
