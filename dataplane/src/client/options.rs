//! The command line of `hyroads-client`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

pub const USAGE: &str = "\
usage: hyroads-client --control PATH [options]
       hyroads-client --waypoint --listen [ADDRESS:]PORT --control PATH [options]

The client stack of HyRoads: one address above, any interfaces below. `hyroads client run` starts and configures it.

  --control PATH        Unix socket that it is configured over
  --tun NAME            the interface that applications see (default hr0; with --waypoint hrw0)
  --mtu BYTES           its MTU (default 1500)
  --state FILE          direct flows, so that they go on when this program is started again
  --waypoint            be the other end of clients' tunnels
  --listen [ADDR:]PORT  where their datagrams come to (UDP; default address: all of IPv4)
  --realtime            run under SCHED_FIFO (warns if not permitted)
  --die-with-parent     end when the parent process ends
  --help, --version
";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    pub control: PathBuf,
    pub tun: String,
    pub mtu: u32,
    pub state: Option<PathBuf>,
    /// Where datagrams come to; None for a client.
    pub listen: Option<SocketAddr>,
    pub realtime: bool,
    pub die_with_parent: bool,
}

/// What the command line asks for.
#[derive(Debug, PartialEq, Eq)]
pub enum Command {
    Run(Box<Options>),
    Help,
    Version,
}

pub fn parse(arguments: impl Iterator<Item = String>) -> Result<Command, String> {
    let mut arguments = arguments;
    let (mut control, mut tun, mut listen, mut state) = (None, None, None, None);
    let (mut mtu, mut is_waypoint, mut realtime, mut die_with_parent) = (1500, false, false, false);
    while let Some(argument) = arguments.next() {
        let (name, inline) = match argument.split_once('=') {
            Some((name, value)) => (name.to_string(), Some(value.to_string())),
            None => (argument, None),
        };
        let mut value = || inline.clone().or_else(|| arguments.next()).ok_or(format!("{name}: expected a value"));
        match name.as_str() {
            "--control" => control = Some(PathBuf::from(value()?)),
            "--tun" => tun = Some(value()?),
            "--mtu" => mtu = parse_mtu(&value()?)?,
            "--state" => state = Some(PathBuf::from(value()?)),
            "--listen" => listen = Some(parse_listen(&value()?)?),
            "--waypoint" => is_waypoint = true,
            "--realtime" => realtime = true,
            "--die-with-parent" => die_with_parent = true,
            "--help" | "-h" => return Ok(Command::Help),
            "--version" => return Ok(Command::Version),
            other => return Err(format!("unknown option {other:?}; try --help")),
        }
    }
    match (is_waypoint, listen.is_some()) {
        (true, false) => return Err("--listen is missing".to_string()),
        (false, true) => return Err("--listen: expected --waypoint with it".to_string()),
        _ => {}
    }
    let usual = if is_waypoint { "hrw0" } else { "hr0" };
    Ok(Command::Run(Box::new(Options {
        control: control.ok_or("--control is missing")?,
        tun: tun.unwrap_or_else(|| usual.to_string()),
        mtu,
        state,
        listen,
        realtime,
        die_with_parent,
    })))
}

fn parse_mtu(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(mtu) if (1280..=9000).contains(&mtu) => Ok(mtu),
        _ => Err(format!("--mtu {text:?}: expected a number from 1280 to 9000")),
    }
}

fn parse_listen(text: &str) -> Result<SocketAddr, String> {
    let port = text.parse::<u16>().map(|port| SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port));
    match port.or_else(|_| text.parse()) {
        Ok(address) if address.port() > 0 => Ok(address),
        _ => Err(format!("--listen {text:?}: expected PORT or ADDRESS:PORT")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Command, String> {
        parse(line.split_whitespace().map(String::from))
    }

    #[test]
    fn a_client_and_a_waypoint() {
        match parsed("--control /run/c --mtu=1400 --state /run/s") {
            Ok(Command::Run(o)) => assert_eq!((o.tun.as_str(), o.mtu, o.listen), ("hr0", 1400, None)),
            other => panic!("{other:?}"),
        }
        match parsed("--waypoint --listen 6656 --control /run/c") {
            Ok(Command::Run(o)) => assert_eq!((o.tun.as_str(), o.listen), ("hrw0", "0.0.0.0:6656".parse().ok())),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn errors_name_the_option() {
        for (line, wanted) in [
            ("", "--control is missing"),
            ("--control /c --waypoint", "--listen is missing"),
            ("--control /c --listen 6656", "expected --waypoint"),
            ("--control /c --waypoint --listen 0", "expected PORT"),
            ("--control /c --mtu 9", "1280 to 9000"),
            ("--dance", "unknown option"),
        ] {
            let error = parsed(line).unwrap_err();
            assert!(error.contains(wanted), "{error}");
        }
    }
}
