//! The command line of `hyroads-edge`. No dependency: a dozen options do not justify one.

use super::pace::BURST_NS;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;

/// Each costs a session and reports.
const MAX_CONTROLLERS: usize = 8;

pub const USAGE: &str = "\
usage: hyroads-edge --node ID --access PORT --network PORT [options]

The edge agent of HyRoads: splits flows over paths, paces, reorders and equalises.

  --node ID             name of this node towards the controller
  --access PORT         side of the users: tap:NAME or packet:INTERFACE
  --network PORT        side of the paths: tap:NAME or packet:INTERFACE
  --controller H:P,...  controllers to dial, all of them (default: none); may be repeated
  --control PATH        Unix socket for the same protocol
  --config FILE         start with this config message (JSON)
  --token-file FILE     token for the controller, on one line
  --ca FILE             speak TLS, and trust controllers with a certificate of this authority (PEM)
  --cert FILE           certificate that is shown to controllers (PEM); with --key
  --key FILE            its key
  --access-mtu BYTES    largest IP packet of the users (default 1500)
  --burst-ms MS         how far a path may catch up when late (default 2)
  --realtime            run under SCHED_FIFO (warns if not permitted)
  --die-with-parent     end when the parent process ends
  --help, --version
";

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Port {
    Tap(String),
    Packet(String),
}

impl Port {
    pub fn parse(text: &str) -> Result<Port, String> {
        match text.split_once(':') {
            Some(("tap", name)) if !name.is_empty() => Ok(Port::Tap(name.into())),
            Some(("packet", name)) if !name.is_empty() => Ok(Port::Packet(name.into())),
            _ => Err(format!("port {text:?}: expected tap:NAME or packet:INTERFACE")),
        }
    }
}

#[derive(Clone, Debug)]
pub struct Options {
    pub node: String,
    pub access: Port,
    pub network: Port,
    /// A session is held with each.
    pub controllers: Vec<SocketAddr>,
    /// As they were named, one for each.
    pub controller_names: Vec<String>,
    pub control: Option<PathBuf>,
    pub config: Option<PathBuf>,
    pub token_file: Option<PathBuf>,
    /// Only with it there is TLS.
    pub ca: Option<PathBuf>,
    /// Certificate and key.
    pub own: Option<(PathBuf, PathBuf)>,
    pub access_mtu: u32,
    pub burst_ns: u64,
    pub realtime: bool,
    pub die_with_parent: bool,
}

/// What the command line asks for.
#[derive(Debug)]
pub enum Command {
    Run(Box<Options>),
    Help,
    Version,
}

pub fn parse(arguments: impl Iterator<Item = String>) -> Result<Command, String> {
    let mut arguments = arguments;
    let (mut node, mut access, mut network) = (None, None, None);
    let (mut certificate, mut key) = (None, None);
    let mut options = Options {
        node: String::new(),
        access: Port::Tap(String::new()),
        network: Port::Tap(String::new()),
        controllers: Vec::new(),
        controller_names: Vec::new(),
        control: None,
        config: None,
        token_file: None,
        ca: None,
        own: None,
        access_mtu: 1500,
        burst_ns: BURST_NS,
        realtime: false,
        die_with_parent: false,
    };
    while let Some(argument) = arguments.next() {
        let (name, inline) = match argument.split_once('=') {
            Some((name, value)) => (name.to_string(), Some(value.to_string())),
            None => (argument, None),
        };
        let mut value = || inline.clone().or_else(|| arguments.next()).ok_or(format!("{name}: expected a value"));
        match name.as_str() {
            "--node" => node = Some(value()?),
            "--access" => access = Some(Port::parse(&value()?)?),
            "--network" => network = Some(Port::parse(&value()?)?),
            "--controller" => {
                for text in value()?.split(',') {
                    add_controller(&mut options.controllers, text.trim())?;
                    options.controller_names.push(host_of(text.trim()));
                }
            }
            "--control" => options.control = Some(value()?.into()),
            "--config" => options.config = Some(value()?.into()),
            "--token-file" => options.token_file = Some(value()?.into()),
            "--ca" => options.ca = Some(value()?.into()),
            "--cert" => certificate = Some(value()?.into()),
            "--key" => key = Some(value()?.into()),
            "--access-mtu" => options.access_mtu = number(&name, &value()?, 576, 9000)?,
            "--burst-ms" => options.burst_ns = u64::from(number(&name, &value()?, 1, 1000)?) * 1_000_000,
            "--realtime" => options.realtime = true,
            "--die-with-parent" => options.die_with_parent = true,
            "--help" | "-h" => return Ok(Command::Help),
            "--version" => return Ok(Command::Version),
            other => return Err(format!("unknown option {other:?}; try --help")),
        }
    }
    options.node = node.ok_or("--node is missing")?;
    options.access = access.ok_or("--access is missing")?;
    options.network = network.ok_or("--network is missing")?;
    options.own = match (certificate, key) {
        (Some(certificate), Some(key)) => Some((certificate, key)),
        (None, None) => None,
        _ => return Err("--cert and --key: expected both".into()),
    };
    if options.own.is_some() && options.ca.is_none() {
        return Err("--cert: expected --ca, by which controllers are trusted".into());
    }
    Ok(Command::Run(Box::new(options)))
}

fn number(name: &str, text: &str, least: u32, most: u32) -> Result<u32, String> {
    let expected = || format!("{name} {text:?}: expected a number from {least} to {most}");
    let value: u32 = text.parse().map_err(|_| expected())?;
    if (least..=most).contains(&value) {
        Ok(value)
    } else {
        Err(expected())
    }
}

fn add_controller(known: &mut Vec<SocketAddr>, text: &str) -> Result<(), String> {
    let address = resolve(text)?;
    if known.contains(&address) {
        return Err(format!("--controller {text:?}: named twice"));
    }
    if known.len() == MAX_CONTROLLERS {
        return Err(format!("--controller {text:?}: expected at most {MAX_CONTROLLERS} controllers"));
    }
    known.push(address);
    Ok(())
}

/// The part before the port, without the brackets of IPv6.
fn host_of(text: &str) -> String {
    let host = text.rsplit_once(':').map_or(text, |(host, _)| host);
    host.trim_start_matches('[').trim_end_matches(']').into()
}

/// Names are looked up once: a lookup later would stop the traffic.
fn resolve(text: &str) -> Result<SocketAddr, String> {
    let mut addresses = text.to_socket_addrs().map_err(|e| format!("--controller {text:?}: {e}"))?;
    addresses.next().ok_or(format!("--controller {text:?}: no address"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Command, String> {
        parse(line.split_whitespace().map(String::from))
    }

    #[test]
    fn options_are_read_in_both_spellings() {
        let line = "--node a --controller=127.0.0.1:6654 --access tap:a-acc --network packet:eth0 --access-mtu=1400 --realtime";
        match parsed(line) {
            Ok(Command::Run(o)) => {
                assert_eq!((o.node.as_str(), o.access_mtu, o.realtime), ("a", 1400, true));
                assert_eq!((o.access, o.network), (Port::Tap("a-acc".into()), Port::Packet("eth0".into())));
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn controllers_are_a_list_in_either_spelling() {
        let rest = "--node a --access tap:x --network tap:n";
        let line = format!("{rest} --controller 127.0.0.1:1,127.0.0.1:2 --controller [::1]:3");
        match parsed(&line) {
            Ok(Command::Run(o)) => {
                let ports: Vec<u16> = o.controllers.iter().map(SocketAddr::port).collect();
                assert_eq!(ports, [1, 2, 3]);
                assert_eq!(o.controller_names, ["127.0.0.1", "127.0.0.1", "::1"]);
            }
            other => panic!("{other:?}"),
        }
        let many: Vec<String> = (1..=9).map(|port| format!("127.0.0.1:{port}")).collect();
        for (list, wanted) in [
            ("127.0.0.1:1,127.0.0.1:1".to_string(), "named twice"),
            (many.join(","), "at most 8"),
            ("127.0.0.1:1,".into(), "--controller"),
        ] {
            let error = parsed(&format!("{rest} --controller {list}")).unwrap_err();
            assert!(error.contains(wanted), "{error}");
        }
    }

    #[test]
    fn errors_name_the_option() {
        for (line, wanted) in [
            ("", "--node"),
            ("--node a --access x --network tap:n", "expected tap:NAME"),
            ("--node a --access tap:x", "--network is missing"),
            ("--access-mtu 12", "576 to 9000"),
            ("--node", "expected a value"),
            ("--dance", "unknown option"),
            ("--node a --access tap:x --network tap:n --cert c", "expected both"),
            ("--node a --access tap:x --network tap:n --cert c --key k", "expected --ca"),
        ] {
            let error = parsed(line).unwrap_err();
            assert!(error.contains(wanted), "{error}");
        }
    }
}
