//! What the daemon wants of the client stack: requests of the control socket, checked, and rules that are quick to
//! match.

use super::application::Application;
use super::scheduler::{Accepts, MOST_INTERFACES};
use super::tunnel::Key;
use crate::ip::{ICMP, ICMPV6, TCP, UDP};
use serde::Deserialize;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

const MOST_RULES: usize = 1024;
const MOST_RATE_MBPS: f64 = 1e6;
const MOST_WEIGHT: f64 = 1e6;
const LEAST_WEIGHT: f64 = 1e-3;

/// A request of the client's control socket.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    Configure(Box<ConfigureRequest>),
    Migrate { seq: u64, flow: u32, interface: String },
    Status { seq: u64 },
    Watch { seq: u64 },
    Session(SessionRequest),
    EndSession { seq: u64, session: u32 },
}

impl Request {
    pub fn seq(&self) -> u64 {
        match self {
            Request::Configure(entry) => entry.seq,
            Request::Session(entry) => entry.seq,
            Request::Migrate { seq, .. } | Request::EndSession { seq, .. } => *seq,
            Request::Status { seq } | Request::Watch { seq } => *seq,
        }
    }
}

/// `configure` as it came.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConfigureRequest {
    seq: u64,
    address4: Option<Ipv4Addr>,
    address6: Option<Ipv6Addr>,
    interfaces: Vec<InterfaceEntry>,
    waypoint: Option<WaypointEntry>,
    rules: Vec<RuleEntry>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct InterfaceEntry {
    name: String,
    rate_mbps: Option<f64>,
    #[serde(default)]
    backup: bool,
    #[serde(default = "yes")]
    usable: bool,
    #[serde(default)]
    dns: Vec<IpAddr>,
}

fn yes() -> bool {
    true
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WaypointEntry {
    address: IpAddr,
    port: u16,
    session: u32,
    key: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleEntry {
    name: String,
    #[serde(rename = "match", default)]
    fields: MatchEntry,
    weight: Option<f64>,
    #[serde(default)]
    urgent: bool,
    interfaces: Vec<String>,
    #[serde(default)]
    backup: Vec<String>,
    #[serde(default)]
    copies: bool,
    #[serde(default)]
    spread: Spread,
    via: Via,
    #[serde(default)]
    on_loss: OnLoss,
}

/// How the packets of a flow are shared out among the interfaces that it accepts.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Spread {
    #[default]
    Flow,
    Packet,
}

/// What becomes of new flows through the waypoint while it does not answer.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum OnLoss {
    #[default]
    Direct,
    Block,
}

/// Whether a flow goes straight out or through the waypoint.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Via {
    Direct,
    Waypoint,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct MatchEntry {
    protocol: Option<ProtocolEntry>,
    source: Option<String>,
    destination: Option<String>,
    source_port: Option<[u16; 2]>,
    destination_port: Option<[u16; 2]>,
    dscp: Option<u8>,
    application: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum ProtocolEntry {
    Number(u8),
    Name(String),
}

/// `session` of the waypoint's control socket.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionRequest {
    seq: u64,
    pub session: u32,
    pub client: String,
    key: String,
    pub address4: Option<Ipv4Addr>,
    pub address6: Option<Ipv6Addr>,
}

impl SessionRequest {
    /// The key, or what is wrong with the request.
    pub fn key(&self) -> Result<Key, String> {
        if self.address4.is_none() && self.address6.is_none() {
            return Err("session: expected address4 or address6".to_string());
        }
        Key::parse(&self.key).ok_or_else(|| "key: expected 32 hexadecimal digits".to_string())
    }
}

/// An interface of the client; its number is its place in the list.
#[derive(Clone, Debug, PartialEq)]
pub struct Interface {
    pub name: String,
    /// None: as fast as it takes packets.
    pub rate_mbps: Option<f64>,
    /// Used by a rule only while no other interface of the rule is usable.
    pub backup: bool,
    /// False: nothing is sent over it.
    pub usable: bool,
    /// Name servers that only this interface's network answers for.
    pub dns: Vec<IpAddr>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Waypoint {
    pub address: SocketAddr,
    pub session: u32,
    pub key: Key,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Prefix {
    address: IpAddr,
    length: u8,
}

impl Prefix {
    fn parse(text: &str) -> Option<Prefix> {
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().ok()?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let length = length.map_or(Some(most), |text| text.parse().ok()).filter(|length| *length <= most)?;
        Some(Prefix { address, length })
    }

    fn contains(&self, other: IpAddr) -> bool {
        match (self.address, other) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let differ = u32::from(own) ^ u32::from(other);
                self.length == 0 || differ >> (32 - u32::from(self.length)) == 0
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let differ = u128::from(own) ^ u128::from(other);
                self.length == 0 || differ >> (128 - u32::from(self.length)) == 0
            }
            _ => false,
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Match {
    protocol: Option<Protocols>,
    source: Option<Prefix>,
    destination: Option<Prefix>,
    source_port: Option<[u16; 2]>,
    destination_port: Option<[u16; 2]>,
    dscp: Option<u8>,
    application: Option<Application>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocols {
    One(u8),
    /// ICMP and ICMPv6.
    Icmp,
}

/// What is asked of the rules: the first packet of a flow.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    pub protocol: u8,
    pub source: (IpAddr, u16),
    pub destination: (IpAddr, u16),
    pub dscp: u8,
    /// The control group of its socket.
    pub cgroup: Option<&'a str>,
}

impl Match {
    fn covers(&self, subject: &Subject) -> bool {
        let protocol = self.protocol.map_or(true, |wanted| match wanted {
            Protocols::One(number) => number == subject.protocol,
            Protocols::Icmp => subject.protocol == ICMP || subject.protocol == ICMPV6,
        });
        let has_ports = subject.protocol == TCP || subject.protocol == UDP;
        let port =
            |range: Option<[u16; 2]>, port| range.map_or(true, |[low, high]| has_ports && low <= port && port <= high);
        protocol
            && self.source.map_or(true, |prefix| prefix.contains(subject.source.0))
            && self.destination.map_or(true, |prefix| prefix.contains(subject.destination.0))
            && port(self.source_port, subject.source.1)
            && port(self.destination_port, subject.destination.1)
            && self.dscp.map_or(true, |dscp| dscp == subject.dscp)
            && self.application.as_ref().map_or(true, |wanted| subject.cgroup.map_or(false, |own| wanted.covers(own)))
    }
}

/// What becomes of the flows that a match covers.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    pub name: String,
    fields: Match,
    pub weight: f64,
    pub urgent: bool,
    pub accepts: Accepts,
    /// Accepted while none of `accepts` is usable.
    pub backup: Accepts,
    pub copies: bool,
    pub spread: Spread,
    pub via: Via,
    pub on_loss: OnLoss,
}

/// The checked request.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Config {
    pub address4: Option<Ipv4Addr>,
    pub address6: Option<Ipv6Addr>,
    pub interfaces: Vec<Interface>,
    pub waypoint: Option<Waypoint>,
    pub rules: Vec<Rule>,
}

impl Config {
    /// The number of the first rule that covers a flow.
    pub fn rule_of(&self, subject: &Subject) -> Option<usize> {
        self.rules.iter().position(|rule| rule.fields.covers(subject))
    }

    /// The number of the first rule that asks for the application of a flow.
    pub fn first_of_application(&self) -> Option<usize> {
        self.rules.iter().position(|rule| rule.fields.application.is_some())
    }

    /// An error's text names the place.
    pub fn of(entry: &ConfigureRequest) -> Result<Config, String> {
        let interfaces = interfaces(&entry.interfaces)?;
        let waypoint = entry.waypoint.as_ref().map(waypoint).transpose()?;
        if entry.rules.len() > MOST_RULES {
            return Err(format!("rules: expected at most {MOST_RULES}"));
        }
        let rules: Vec<Rule> = entry
            .rules
            .iter()
            .enumerate()
            .map(|(at, rule)| self::rule(rule, &interfaces, waypoint.is_some()).map_err(|e| format!("rules[{at}].{e}")))
            .collect::<Result<_, _>>()?;
        if rules.last().map_or(true, |rule| rule.fields != Match::default()) {
            return Err("rules: expected a last rule without a match".to_string());
        }
        if entry.address4.is_none() && entry.address6.is_none() {
            return Err("address4: expected an address, here or in address6".to_string());
        }
        Ok(Config { address4: entry.address4, address6: entry.address6, interfaces, waypoint, rules })
    }
}

fn interfaces(entries: &[InterfaceEntry]) -> Result<Vec<Interface>, String> {
    if entries.is_empty() || entries.len() > MOST_INTERFACES {
        return Err(format!("interfaces: expected 1 to {MOST_INTERFACES}"));
    }
    let mut out: Vec<Interface> = Vec::new();
    for (at, entry) in entries.iter().enumerate() {
        let plain = !entry.name.is_empty() && entry.name.len() <= 15;
        if !plain || entry.name.bytes().any(|b| b == b'/' || b == 0 || b.is_ascii_whitespace()) {
            return Err(format!("interfaces[{at}].name: expected an interface's name, got {:?}", entry.name));
        }
        if out.iter().any(|other| other.name == entry.name) {
            return Err(format!("interfaces[{at}].name: {:?} is there twice", entry.name));
        }
        if entry.rate_mbps.map_or(false, |rate| !(rate > 0.0 && rate <= MOST_RATE_MBPS)) {
            return Err(format!("interfaces[{at}].rate_mbps: expected null or a rate above 0 Mb/s"));
        }
        out.push(Interface {
            name: entry.name.clone(),
            rate_mbps: entry.rate_mbps,
            backup: entry.backup,
            usable: entry.usable,
            dns: entry.dns.clone(),
        });
    }
    Ok(out)
}

fn waypoint(entry: &WaypointEntry) -> Result<Waypoint, String> {
    let key = Key::parse(&entry.key).ok_or("waypoint.key: expected 32 hexadecimal digits")?;
    if entry.port == 0 || entry.address.is_unspecified() || entry.address.is_multicast() {
        return Err(format!("waypoint: {} port {} is nobody's address", entry.address, entry.port));
    }
    Ok(Waypoint { address: SocketAddr::new(entry.address, entry.port), session: entry.session, key })
}

fn rule(entry: &RuleEntry, interfaces: &[Interface], has_waypoint: bool) -> Result<Rule, String> {
    let weight = entry.weight.unwrap_or(1.0);
    if !(LEAST_WEIGHT..=MOST_WEIGHT).contains(&weight) {
        return Err(format!("weight: expected {LEAST_WEIGHT} to {MOST_WEIGHT}, got {weight}"));
    }
    let set = |names: &[String], place: &str| -> Result<Accepts, String> {
        names.iter().try_fold(0, |set: Accepts, name| {
            let number = interfaces.iter().position(|interface| interface.name == *name);
            number.map(|number| set | 1 << number).ok_or_else(|| format!("{place}: unknown interface {name:?}"))
        })
    };
    let (accepts, backup) = (set(&entry.interfaces, "interfaces")?, set(&entry.backup, "backup")?);
    if accepts | backup == 0 {
        return Err("interfaces: expected at least one".to_string());
    }
    let needs_waypoint = entry.copies || entry.spread == Spread::Packet || entry.via == Via::Waypoint;
    if needs_waypoint && !has_waypoint && entry.on_loss == OnLoss::Direct {
        return Err("via: there is no waypoint".to_string());
    }
    if needs_waypoint && entry.via == Via::Direct {
        return Err("via: copies and spread \"packet\" need the waypoint".to_string());
    }
    let spare: Accepts = interfaces.iter().enumerate().filter(|(_, i)| i.backup).fold(0, |set, (n, _)| set | 1 << n);
    Ok(Rule {
        name: entry.name.clone(),
        fields: fields(&entry.fields).map_err(|e| format!("match.{e}"))?,
        weight,
        urgent: entry.urgent,
        accepts: accepts & !spare,
        backup: backup | accepts & spare,
        copies: entry.copies,
        spread: entry.spread,
        via: entry.via,
        on_loss: entry.on_loss,
    })
}

fn fields(entry: &MatchEntry) -> Result<Match, String> {
    let protocol = match &entry.protocol {
        None => None,
        Some(ProtocolEntry::Number(number)) => Some(Protocols::One(*number)),
        Some(ProtocolEntry::Name(name)) => Some(match name.as_str() {
            "tcp" => Protocols::One(TCP),
            "udp" => Protocols::One(UDP),
            "icmp" => Protocols::Icmp,
            other => return Err(format!("protocol: expected tcp, udp, icmp or a number, got {other:?}")),
        }),
    };
    let prefix = |text: &Option<String>, place: &str| match text {
        None => Ok(None),
        Some(text) => Prefix::parse(text).map(Some).ok_or_else(|| format!("{place}: expected a prefix, got {text:?}")),
    };
    let ports = |range: Option<[u16; 2]>, place: &str| match range {
        Some([low, high]) if low > high => Err(format!("{place}: expected the lower port first")),
        range => Ok(range),
    };
    if entry.dscp.map_or(false, |dscp| dscp > 63) {
        return Err("dscp: expected 0 to 63".to_string());
    }
    let application = match &entry.application {
        None => None,
        Some(text) => Some(Application::parse(text).ok_or("application: expected a name, or the path of a cgroup")?),
    };
    Ok(Match {
        protocol,
        source: prefix(&entry.source, "source")?,
        destination: prefix(&entry.destination, "destination")?,
        source_port: ports(entry.source_port, "source_port")?,
        destination_port: ports(entry.destination_port, "destination_port")?,
        dscp: entry.dscp,
        application,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::testing::config;

    const GOOD: &str = r#"{"type":"configure","seq":1,"address4":"10.171.0.2","address6":null,
        "interfaces":[{"name":"wlan0","rate_mbps":null},{"name":"wwan0","rate_mbps":20.0,"backup":true,"dns":["192.0.2.53"]}],
        "waypoint":{"address":"192.0.2.1","port":6656,"session":7,"key":"000102030405060708090a0b0c0d0e0f"},
        "rules":[{"name":"voice","match":{"protocol":"udp","destination_port":[5060,5061],"destination":"192.0.2.0/24"},
                  "weight":4.0,"urgent":true,"interfaces":["wwan0"],"via":"waypoint","copies":true},
                 {"name":"ping","match":{"protocol":"icmp"},"interfaces":["wlan0"],"via":"direct"},
                 {"name":"rest","interfaces":["wlan0","wwan0"],"via":"waypoint","spread":"packet"}]}"#;

    fn subject(protocol: u8, destination: &str, port: u16) -> Subject<'static> {
        let source = ("10.171.0.2".parse().unwrap(), 40_000);
        Subject { protocol, source, destination: (destination.parse().unwrap(), port), dscp: 0, cgroup: None }
    }

    #[test]
    fn the_first_rule_that_covers_a_flow_is_its_own() {
        let config = config(GOOD).unwrap();
        let rule = |protocol, destination, port| config.rule_of(&subject(protocol, destination, port)).unwrap();
        assert_eq!(rule(UDP, "192.0.2.77", 5061), 0);
        assert_eq!(rule(TCP, "192.0.2.77", 5061), 2);
        assert_eq!(rule(UDP, "192.0.3.77", 5061), 2);
        assert_eq!(rule(UDP, "192.0.2.77", 5062), 2);
        assert_eq!(rule(ICMPV6, "2001:db8::1", 0), 1);
        assert_eq!((config.rules[2].accepts, config.rules[2].backup), (1, 2));
        assert_eq!((config.rules[0].accepts, config.rules[0].backup), (0, 2));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (good, bad, wanted) in [
            (r#""wwan0","rate_mbps":20.0"#, r#""wlan0","rate_mbps":20.0"#, "is there twice"),
            (r#""rate_mbps":20.0"#, r#""rate_mbps":0"#, "interfaces[1].rate_mbps"),
            (r#""rate_mbps":20.0"#, r#""speed":20.0"#, "unknown field"),
            (r#"["wwan0"],"via""#, r#"["eth7"],"via""#, "rules[0].interfaces: unknown interface \"eth7\""),
            (r#"["wwan0"],"via""#, r#"[],"via""#, "rules[0].interfaces: expected at least one"),
            (r#""weight":4.0"#, r#""weight":0.0"#, "rules[0].weight"),
            (r#""weight":4.0"#, r#""on_loss":"drop""#, "unknown variant `drop`"),
            (r#""weight":4.0"#, r#""weight":-1"#, "rules[0].weight"),
            (r#"5060,5061"#, r#"5061,5060"#, "rules[0].match.destination_port"),
            (r#"192.0.2.0/24"#, r#"192.0.2.0/33"#, "rules[0].match.destination"),
            (r#""protocol":"udp""#, r#""protocol":"quic""#, "rules[0].match.protocol"),
            (r#""protocol":"udp""#, r#""application":"a/b""#, "rules[0].match.application"),
            (r#"090a0b0c0d0e0f""#, r#"090a0b0c0d0e0""#, "waypoint.key"),
            (r#""via":"waypoint","spread""#, r#""via":"direct","spread""#, "rules[2].via"),
            (r#""name":"rest","#, r#""name":"rest","match":{"dscp":1},"#, "without a match"),
            (r#""10.171.0.2""#, "null", "address4"),
        ] {
            let text = GOOD.replace(good, bad);
            assert_ne!(text, GOOD, "{good}");
            let error = config(&text).unwrap_err();
            assert!(error.contains(wanted), "{error} instead of {wanted}");
        }
    }

    #[test]
    fn prefixes_compare_their_bits_only() {
        let contains = |prefix: &str, address: &str| Prefix::parse(prefix).unwrap().contains(address.parse().unwrap());
        assert!(contains("0.0.0.0/0", "203.0.113.9") && !contains("0.0.0.0/0", "::1"));
        assert!(contains("10.1.0.0/16", "10.1.255.1") && !contains("10.1.0.0/16", "10.2.0.0"));
        assert!(contains("2001:db8::/33", "2001:db8:7fff::1") && !contains("2001:db8::/33", "2001:db8:8000::"));
        assert!(contains("10.0.0.1", "10.0.0.1") && !contains("10.0.0.1", "10.0.0.2"));
    }
}
