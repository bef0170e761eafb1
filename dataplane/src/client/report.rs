//! Status documents and events, as the control socket tells them.

use super::engine::{Drops, Engine, Notice};
use super::flow::Flow;
use super::scheduler::{interfaces, MOST_INTERFACES};
use crate::edge::buffer::Pool;
use crate::ip::{Endpoint, ICMP, ICMPV6, TCP, UDP};
use serde_json::{json, Value};

const S: f64 = 1e9;
const PROGRAM: &str = concat!("hyroads-client ", env!("CARGO_PKG_VERSION"));

fn shown(endpoint: Endpoint, has_port: bool) -> String {
    match (endpoint.address, has_port) {
        (std::net::IpAddr::V6(address), true) => format!("[{address}]:{}", endpoint.port),
        (address, true) => format!("{address}:{}", endpoint.port),
        (address, false) => address.to_string(),
    }
}

fn protocol(number: u8) -> Value {
    match number {
        TCP => "tcp".into(),
        UDP => "udp".into(),
        ICMP | ICMPV6 => "icmp".into(),
        other => other.into(),
    }
}

impl Engine {
    fn name_of(&self, link: u8) -> Value {
        self.links.get(usize::from(link)).map_or(Value::Null, |link| link.name.as_str().into())
    }

    fn flow_document(&self, now_ns: u64, flow: &Flow) -> Value {
        let has_port = matches!(flow.tuple.protocol, TCP | UDP);
        let home = flow.wire.map(|wire| wire.link).or(flow.home).filter(|_| !flow.rights.spread && !flow.rights.copies);
        let names: Vec<Value> = interfaces(flow.accepts).map(|number| self.name_of(number as u8)).collect();
        let counters = &flow.counters;
        json!({
            "id": flow.number,
            "rule": self.config.rules.get(flow.rule).map(|rule| rule.name.as_str()),
            "protocol": protocol(flow.tuple.protocol),
            "source": shown(flow.tuple.source, has_port),
            "destination": shown(flow.tuple.destination, has_port),
            "via": if flow.wire.is_some() || flow.via == super::config::Via::Direct { "direct" } else { "waypoint" },
            "interface": home.map(|link| self.name_of(link)),
            "interfaces": names,
            "sent_bytes": counters.sent_bytes,
            "sent_packets": counters.sent_packets,
            "received_bytes": counters.received_bytes,
            "received_packets": counters.received_packets,
            "queue_packets": flow.queue.len(),
            "held_packets": flow.order.held(),
            "dropped_packets": counters.dropped_packets,
            "migrations": counters.migrations,
            "age_s": now_ns.saturating_sub(flow.begun_ns) as f64 / S,
            "idle_s": now_ns.saturating_sub(flow.used_ns) as f64 / S,
            "weight": flow.rights.weight,
            "urgent": flow.rights.urgent,
        })
    }

    /// All flows.
    pub fn flow_documents(&self, now_ns: u64) -> Vec<Value> {
        self.flows
            .slots()
            .filter_map(|slot| self.flows.get(slot))
            .map(|flow| self.flow_document(now_ns, flow))
            .collect()
    }

    /// All interfaces; `host` adds what only the host knows: addresses, and whether there is a way out.
    pub fn link_documents(&self, host: &dyn Fn(&str) -> (Vec<String>, bool)) -> Vec<Value> {
        let mut waiting = [0; MOST_INTERFACES];
        for flow in self.flows.slots().filter_map(|slot| self.flows.get(slot)).filter(|flow| !flow.queue.is_empty()) {
            interfaces(flow.accepts).for_each(|number| waiting[number] += flow.queue.len());
        }
        let named = self.links.iter().enumerate().filter(|(_, link)| !link.name.is_empty());
        named
            .map(|(number, link)| {
                let (addresses, gateway) = host(&link.name);
                let counters = &link.counters;
                json!({
                    "number": number,
                    "name": link.name,
                    "up": link.state.up,
                    "carrier": link.state.up,
                    "addresses": addresses,
                    "gateway": gateway,
                    "usable": link.usable,
                    "endpoint": link.endpoint.map(|to| to.to_string()),
                    "alive": link.heartbeat.alive,
                    "rtt_ms": link.heartbeat.rtt_ns.map(|ns| ns as f64 / 1e6),
                    "mtu": link.state.mtu,
                    "rate_mbps": link.known_rate_mbps(),
                    "sent_bytes": counters.sent_bytes,
                    "sent_packets": counters.sent_packets,
                    "received_bytes": counters.received_bytes,
                    "received_packets": counters.received_packets,
                    "queue_packets": waiting[number] + link.first.len(),
                    "resent_packets": counters.resent_packets,
                    "lost_packets": counters.lost_packets,
                })
            })
            .collect()
    }

    /// An event of the client.
    pub fn event(&self, notice: &Notice) -> Value {
        let of = |event: &str, link: u8| json!({"type": "event", "event": event, "interface": self.name_of(link)});
        match notice {
            Notice::Up { link } => of("interface.up", *link),
            Notice::Down { link } => of("interface.down", *link),
            Notice::Dead { link } => of("interface.dead", *link),
            Notice::Alive { link } => of("interface.alive", *link),
            Notice::WaypointLost => json!({"type": "event", "event": "waypoint.lost"}),
            Notice::WaypointBack => json!({"type": "event", "event": "waypoint.back"}),
            Notice::Migrated { number, from, to } => json!({
                "type": "event", "event": "flow.migrated", "flow": number,
                "from": from.map(|link| self.name_of(link)), "to": self.name_of(*to),
            }),
        }
    }
}

/// Program, age and counters.
pub fn head(uptime_ns: u64, drops: &Drops, strangers: u64, pool: &Pool) -> Value {
    json!({
        "program": PROGRAM,
        "uptime_s": uptime_ns as f64 / S,
        "buffers": pool.in_use(),
        "buffers_made": pool.made(),
        "counters": {
            "malformed": drops.malformed,
            "unauthenticated": drops.unauthenticated,
            "strangers": strangers,
            "spoofed": drops.spoofed,
            "unroutable": drops.unroutable,
            "queue_full": drops.queue_full,
            "too_big": drops.too_big,
            "overrun": drops.overrun,
        },
    })
}
