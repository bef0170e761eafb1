//! Every switch, agent and radio of a network, scripted, in one thread: for a real controller, without packets.
//!
//! Standard input brings the devices as one line of JSON (`script.rs`), and then requests (`words.rs`), each of which
//! gets an answer of one line. The program ends with its standard input. `benchmarks/scale.py` runs it.
//! With `--bands WHOLE_S` it reads readings of one radio instead, and says which of their rows go out.

mod agent;
mod air;
mod bands;
mod campus;
#[cfg(test)]
mod campus_tests;
mod counts;
mod late;
mod radio;
mod requests;
mod script;
mod shell;
mod switch;
mod tried;
mod words;

use std::process::ExitCode;

fn run(arguments: &[String]) -> Result<(), String> {
    match arguments {
        [] => shell::run().map_err(|error| error.to_string()),
        [option, whole_s] if option == "--bands" => {
            tried::run(whole_s.parse().map_err(|_| "--bands: expected seconds")?)
        }
        _ => Err("usage: scripted_campus [--bands WHOLE_S]".to_string()),
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            hyroads_dataplane::tell!("scripted_campus: {error}");
            ExitCode::FAILURE
        }
    }
}
