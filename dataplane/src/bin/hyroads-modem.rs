//! An emulated HomePlug AV adapter; see docs/reference/dataplane.md, *The emulated power-line adapter*.

use hyroads_dataplane::modem::config::Config;
use hyroads_dataplane::modem::shell::Shell;
use hyroads_dataplane::sys::file::read_text;
use hyroads_dataplane::sys::process;
use std::path::PathBuf;
use std::process::ExitCode;

const USAGE: &str =
    "usage: hyroads-modem --config FILE.json --inside INTERFACE --outside INTERFACE [--die-with-parent]";
const EXIT_BAD_INPUT: u8 = 2;
const EXIT_FAILED: u8 = 1;

struct Arguments {
    config: PathBuf,
    inside: String,
    outside: String,
    die_with_parent: bool,
}

enum Request {
    Run(Arguments),
    Say(String),
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Request, String> {
    let (mut config, mut inside, mut outside, mut die_with_parent) = (None, None, None, false);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{argument} needs a value; {USAGE}"));
        match argument.as_str() {
            "--config" => config = Some(PathBuf::from(value()?)),
            "--inside" => inside = Some(value()?),
            "--outside" => outside = Some(value()?),
            "--die-with-parent" => die_with_parent = true,
            "--help" | "-h" => return Ok(Request::Say(USAGE.to_string())),
            "--version" => return Ok(Request::Say(format!("hyroads-modem {}", env!("CARGO_PKG_VERSION")))),
            _ => return Err(format!("unknown argument {argument:?}; {USAGE}")),
        }
    }
    match (config, inside, outside) {
        (Some(config), Some(inside), Some(outside)) => {
            Ok(Request::Run(Arguments { config, inside, outside, die_with_parent }))
        }
        _ => Err(format!("--config, --inside and --outside are needed; {USAGE}")),
    }
}

fn serve(arguments: &Arguments, config: Config) -> std::io::Result<()> {
    if arguments.die_with_parent {
        process::die_with_parent(None)?;
    }
    let mut shell = Shell::open(config, &arguments.inside, &arguments.outside)?;
    println!("hyroads-modem: ready");
    shell.run()
}

fn fail(status: u8, error: impl std::fmt::Display) -> ExitCode {
    hyroads_dataplane::tell!("hyroads-modem: {error}");
    ExitCode::from(status)
}

fn main() -> ExitCode {
    let arguments = match parse(std::env::args().skip(1)) {
        Ok(Request::Run(arguments)) => arguments,
        Ok(Request::Say(text)) => {
            println!("{text}");
            return ExitCode::SUCCESS;
        }
        Err(error) => return fail(EXIT_BAD_INPUT, error),
    };
    let path = &arguments.config;
    let parsed = read_text(path).map_err(|e| e.to_string());
    let parsed = parsed.and_then(|text| Config::parse(&text).map_err(|e| format!("{}: {e}", path.display())));
    match parsed {
        Ok(config) => match serve(&arguments, config) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(EXIT_FAILED, error),
        },
        Err(error) => fail(EXIT_BAD_INPUT, error),
    }
}
