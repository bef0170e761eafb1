//! The shared-medium emulator; see docs/reference/dataplane.md, section 3.

use hyroads_dataplane::medium::config::Config;
use hyroads_dataplane::medium::shell::Shell;
use hyroads_dataplane::sys::file::read_text;
use hyroads_dataplane::sys::process;
use std::path::PathBuf;
use std::process::ExitCode;

const USAGE: &str = "usage: hyroads-medium --config FILE.json --socket PATH [--hwsim] [--realtime] [--die-with-parent]";
const EXIT_BAD_INPUT: u8 = 2;
const EXIT_FAILED: u8 = 1;

struct Arguments {
    config: PathBuf,
    socket: PathBuf,
    hwsim: bool,
    realtime: bool,
    die_with_parent: bool,
}

enum Request {
    Run(Arguments),
    Tell(String),
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Request, String> {
    let (mut config, mut socket) = (None, None);
    let (mut hwsim, mut realtime, mut die_with_parent) = (false, false, false);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().map(PathBuf::from).ok_or(format!("{argument} needs a value; {USAGE}"));
        match argument.as_str() {
            "--config" => config = Some(value()?),
            "--socket" => socket = Some(value()?),
            "--hwsim" => hwsim = true,
            "--realtime" => realtime = true,
            "--die-with-parent" => die_with_parent = true,
            "--help" | "-h" => return Ok(Request::Tell(USAGE.to_string())),
            "--version" => return Ok(Request::Tell(format!("hyroads-medium {}", env!("CARGO_PKG_VERSION")))),
            _ => return Err(format!("unknown argument {argument:?}; {USAGE}")),
        }
    }
    match (config, socket) {
        (Some(config), Some(socket)) => {
            Ok(Request::Run(Arguments { config, socket, hwsim, realtime, die_with_parent }))
        }
        _ => Err(format!("--config and --socket are needed; {USAGE}")),
    }
}

fn load(path: &std::path::Path, hwsim: bool) -> Result<Config, String> {
    let text = read_text(path).map_err(|e| e.to_string())?;
    let config = Config::parse(&text).map_err(|e| format!("{}: {e}", path.display()))?;
    match config.ports.iter().position(|port| port.radio.is_some()) {
        Some(i) if !hwsim => Err(format!("{}: ports[{i}].radio: needs --hwsim", path.display())),
        None if hwsim => Err(format!("{}: ports: --hwsim needs a port with a radio", path.display())),
        _ => Ok(config),
    }
}

fn serve(arguments: &Arguments, config: &Config) -> std::io::Result<()> {
    if arguments.die_with_parent {
        process::die_with_parent(None)?;
    }
    let mut shell = Shell::open(config, &arguments.socket)?;
    if let Some(warning) = process::low_latency(arguments.realtime) {
        hyroads_dataplane::tell!("hyroads-medium: warning: {warning}");
    }
    shell.run()
}

fn fail(status: u8, error: impl std::fmt::Display) -> ExitCode {
    hyroads_dataplane::tell!("hyroads-medium: {error}");
    ExitCode::from(status)
}

fn main() -> ExitCode {
    let arguments = match parse(std::env::args().skip(1)) {
        Ok(Request::Run(arguments)) => arguments,
        Ok(Request::Tell(text)) => {
            println!("{text}");
            return ExitCode::SUCCESS;
        }
        Err(error) => return fail(EXIT_BAD_INPUT, error),
    };
    let config = match load(&arguments.config, arguments.hwsim) {
        Ok(config) => config,
        Err(error) => return fail(EXIT_BAD_INPUT, error),
    };
    match serve(&arguments, &config) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(EXIT_FAILED, error),
    }
}
