//! Requests and replies of the control socket: one JSON object a line each way.

use super::config::{Config, LinkState};
use super::model::Model;
use super::radios::RadioCounters;
use crate::sys::lateness::Lateness;
use serde_json::{json, Map, Value};
use std::collections::HashMap;

/// What the shell measures about itself since the last reset.
#[derive(Debug, Clone, Copy, Default)]
pub struct Meter {
    /// How late the medium was served at worst, in nanoseconds; its own work is in it.
    pub lateness_max_ns: u64,
    /// How late the machine woke it.
    pub woken_late: Lateness,
    /// Processor time at the last reset, in nanoseconds.
    pub cpu_start_ns: u64,
    /// What the radios counted since the start; None: there are none.
    pub radios: Option<RadioCounters>,
}

impl Meter {
    /// Starts at a reading of the processor time.
    pub fn from(cpu_start_ns: u64) -> Meter {
        Meter { cpu_start_ns, ..Meter::default() }
    }
}

/// Names of links and ports, to answer requests about them.
#[derive(Debug)]
pub struct Control {
    links: HashMap<String, usize>,
    ports: HashMap<String, usize>,
    link_names: Vec<String>,
    port_names: Vec<String>,
}

type Reply = Result<Value, String>;

impl Control {
    /// Knows the names of this configuration.
    pub fn new(config: &Config) -> Control {
        let link_names: Vec<String> = config.links.iter().map(|l| l.id.clone()).collect();
        let port_names: Vec<String> = config.ports.iter().map(|p| p.name.clone()).collect();
        let index = |names: &[String]| names.iter().enumerate().map(|(i, n)| (n.clone(), i)).collect();
        Control { links: index(&link_names), ports: index(&port_names), link_names, port_names }
    }

    /// Carries out one request; the model has been advanced to the present. A bad request changes nothing.
    pub fn handle(&self, line: &str, model: &mut Model, meter: &mut Meter, cpu_ns: u64) -> String {
        let reply = match self.answer(line, model, meter, cpu_ns) {
            Ok(mut reply) => {
                reply["ok"] = json!(true);
                reply
            }
            Err(error) => json!({"ok": false, "error": error}),
        };
        reply.to_string()
    }

    fn answer(&self, line: &str, model: &mut Model, meter: &mut Meter, cpu_ns: u64) -> Reply {
        let request: Value = serde_json::from_str(line).map_err(|e| format!("request is not JSON: {e}"))?;
        let request = request.as_object().ok_or("request: expected a JSON object")?;
        let op = text(request, "op")?;
        match op {
            "ping" => only(request, &["op"]).map(|_| json!({})),
            "stats" => only(request, &["op"]).map(|_| self.stats(model, meter, cpu_ns)),
            "reset" => {
                only(request, &["op"])?;
                model.reset();
                *meter = Meter { radios: meter.radios, ..Meter::from(cpu_ns) };
                Ok(json!({}))
            }
            "lateness" => only(request, &["op"]).map(|_| json!({"woken_late": meter.woken_late})),
            "radio" => {
                only(request, &["op"])?;
                Ok(self.radio(model))
            }
            "set" => self.set(request, model),
            "uplink" => self.uplink(request, model),
            _ => Err(format!("op: expected ping, stats, lateness, radio, reset, set or uplink, got {op:?}")),
        }
    }

    fn stats(&self, model: &Model, meter: &Meter, cpu_ns: u64) -> Value {
        let links: Vec<_> = self.link_names.iter().enumerate().map(|(l, id)| model.link_stats(l, id)).collect();
        let ports: Vec<_> = self.port_names.iter().enumerate().map(|(p, name)| model.port_stats(p, name)).collect();
        let mut stats = json!({
            "elapsed_s": model.elapsed_s(),
            "links": links,
            "ports": ports,
            "total": model.total_stats(),
            "lateness_max_ms": meter.lateness_max_ns as f64 / 1e6,
            "woken_late": meter.woken_late,
            "cpu_s": cpu_ns.saturating_sub(meter.cpu_start_ns) as f64 / 1e9,
        });
        if let Some(radios) = meter.radios {
            stats["hwsim"] = json!(radios);
        }
        stats
    }

    /// A short answer to a question that is asked ten times a second; links and ports are in the order of the configuration.
    fn radio(&self, model: &Model) -> Value {
        let links: Vec<_> = (0..self.link_names.len()).map(|l| model.link_radio(l)).collect();
        let ports: Vec<_> = (0..self.port_names.len()).map(|p| model.heard_s(p)).collect();
        json!({"elapsed_s": model.elapsed_s(), "links": links, "ports": ports})
    }

    fn set(&self, request: &Map<String, Value>, model: &mut Model) -> Reply {
        only(request, &["op", "link", "capacity_mbps", "delay_ms", "loss", "up", "signal_dbm"])?;
        let id = text(request, "link")?;
        let link = *self.links.get(id).ok_or_else(|| format!("link: no link {id:?}"))?;
        let mut state: LinkState = model.link_state(link);
        number(request, "capacity_mbps", &mut state.capacity_mbps)?;
        number(request, "delay_ms", &mut state.delay_ms)?;
        number(request, "loss", &mut state.loss)?;
        if let Some(value) = request.get("up") {
            state.up = value.as_bool().ok_or_else(|| format!("up: expected true or false, got {value}"))?;
        }
        if let Some(value) = request.get("signal_dbm") {
            let whole = value.as_i64().and_then(|dbm| i32::try_from(dbm).ok());
            state.signal_dbm = whole.ok_or_else(|| format!("signal_dbm: expected a whole number, got {value}"))?;
        }
        if let Some(problem) = state.problem() {
            return Err(problem);
        }
        model.set_link(link, state);
        Ok(json!({}))
    }

    fn uplink(&self, request: &Map<String, Value>, model: &mut Model) -> Reply {
        only(request, &["op", "port", "to"])?;
        let find = |key: &str, name: &str| self.ports.get(name).copied().ok_or(format!("{key}: no port {name:?}"));
        let name = text(request, "port")?;
        let port = find("port", name)?;
        if model.is_radio(port) {
            return Err(format!("port: {name} is a radio, whose frames name their receiver"));
        }
        let to = match request.get("to") {
            None => return Err("to: missing, expected a port or null".to_string()),
            Some(Value::Null) => None,
            Some(_) => Some(find("to", text(request, "to")?)?),
        };
        if model.set_uplink(port, to) {
            return Ok(json!({}));
        }
        let to = to.map_or("", |to| &self.port_names[to]);
        Err(format!("to: no link from {name} to {to}"))
    }
}

fn text<'a>(request: &'a Map<String, Value>, key: &str) -> Result<&'a str, String> {
    match request.get(key) {
        None => Err(format!("{key}: missing, expected a string")),
        Some(value) => value.as_str().ok_or_else(|| format!("{key}: expected a string, got {value}")),
    }
}

fn number(request: &Map<String, Value>, key: &str, target: &mut f64) -> Result<(), String> {
    if let Some(value) = request.get(key) {
        *target = value.as_f64().ok_or_else(|| format!("{key}: expected a number, got {value}"))?;
    }
    Ok(())
}

fn only(request: &Map<String, Value>, known: &[&str]) -> Result<(), String> {
    match request.keys().find(|key| !known.contains(&key.as_str())) {
        Some(key) => Err(format!("{key}: unknown key, expected {}", known.join(", "))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::config::ConflictRule::Technology;
    use super::super::test_world::{config, frame};
    use super::*;

    fn setting() -> (Control, Model, Meter) {
        let config = config(&[("a", "w"), ("b", "w")], &[(0, 1, 10.0)], Technology);
        (Control::new(&config), Model::new(&config, 0), Meter::default())
    }

    #[test]
    fn requests_are_carried_out() {
        let (control, mut model, mut meter) = setting();
        meter.woken_late.note(Some(0), 0, 30_000_000);
        let mut ask = |model: &mut Model, line: &str| -> Value {
            serde_json::from_str(&control.handle(line, model, &mut meter, 3_000_000_000)).unwrap()
        };
        assert_eq!(ask(&mut model, r#"{"op":"ping"}"#), json!({"ok": true}));
        assert_eq!(
            ask(&mut model, r#"{"op":"set","link":"link0","capacity_mbps":20,"loss":0.5}"#),
            json!({"ok": true})
        );
        let expected = LinkState { loss: 0.5, ..LinkState::of(20.0) };
        assert_eq!(model.link_state(0), expected);
        assert_eq!(ask(&mut model, r#"{"op":"uplink","port":"a","to":"b"}"#)["ok"], true);
        assert_eq!(ask(&mut model, r#"{"op":"uplink","port":"a","to":null}"#)["ok"], true);
        model.receive(0, frame(1, 1000, 0), 0);
        let stats = ask(&mut model, r#"{"op":"stats"}"#);
        assert_eq!(stats["ports"][0]["received_frames"], 1);
        assert_eq!(stats["cpu_s"], 3.0);
        let late = json!({"max_ms": 30.0, "over_5_ms_s": 0.03, "over_20_ms_s": 0.03, "over_100_ms_s": 0.0});
        assert_eq!(stats["woken_late"], late);
        assert_eq!(ask(&mut model, r#"{"op":"lateness"}"#), json!({"ok": true, "woken_late": late}));
        for key in [
            "id",
            "up",
            "capacity_mbps",
            "frames",
            "bytes",
            "dropped",
            "lost",
            "collisions",
            "airtime",
            "busy",
            "queued",
            "queue_delay_ms",
        ] {
            assert!(stats["links"][0].get(key).is_some(), "{key}");
        }
        assert_eq!(stats.get("hwsim"), None);
        let radio = ask(&mut model, r#"{"op":"radio"}"#);
        assert_eq!(
            (&radio["ok"], &radio["links"][0][0], &radio["ports"]),
            (&json!(true), &json!(20.0), &json!([null, null]))
        );
        assert_eq!(radio["links"][0].as_array().unwrap().len(), 4);
        assert_eq!(ask(&mut model, r#"{"op":"reset"}"#)["ok"], true);
        let stats = ask(&mut model, r#"{"op":"stats"}"#);
        assert_eq!((&stats["ports"][0]["received_frames"], &stats["cpu_s"]), (&json!(0), &json!(0.0)));
        assert_eq!(stats["woken_late"]["max_ms"], 0.0);
    }

    #[test]
    fn a_radio_has_a_signal_and_no_uplink() {
        let mut config = config(&[("a", "w"), ("b", "w")], &[(0, 1, 10.0)], Technology);
        config.ports.iter_mut().for_each(|port| port.radio = Some(port.mac));
        let (control, mut model) = (Control::new(&config), Model::new(&config, 0));
        let mut meter =
            Meter { radios: Some(RadioCounters { deaf: 3, ..RadioCounters::default() }), ..Meter::default() };
        let mut ask =
            |line: &str| -> Value { serde_json::from_str(&control.handle(line, &mut model, &mut meter, 0)).unwrap() };
        assert_eq!(ask(r#"{"op":"set","link":"link0","signal_dbm":-71}"#)["ok"], true);
        let refused = ask(r#"{"op":"uplink","port":"a","to":"b"}"#);
        assert!(refused["error"].as_str().unwrap().contains("a is a radio"), "{refused}");
        assert_eq!(ask(r#"{"op":"reset"}"#)["ok"], true);
        let counters = json!({"deaf": 3, "strangers": 0, "overruns": 0, "odd": 0});
        assert_eq!(ask(r#"{"op":"stats"}"#)["hwsim"], counters);
        assert_eq!(model.link_state(0).signal_dbm, -71);
    }

    #[test]
    fn bad_requests_get_one_error_and_change_nothing() {
        let (control, mut model, mut meter) = setting();
        let before = model.link_state(0);
        let cases = [
            ("", "not JSON"),
            ("[]", "object"),
            ("{}", "op"),
            (r#"{"op":7}"#, "op"),
            (r#"{"op":"dance"}"#, "dance"),
            (r#"{"op":"stats","deep":true}"#, "deep"),
            (r#"{"op":"set","link":"zz","up":false}"#, "zz"),
            (r#"{"op":"set","link":"link0","up":false,"loss":2}"#, "loss"),
            (r#"{"op":"set","link":"link0","up":false,"capacity_mbps":"fast"}"#, "capacity_mbps"),
            (r#"{"op":"set","link":"link0","up":1}"#, "up"),
            (r#"{"op":"set","link":"link0","up":false,"speed":1}"#, "speed"),
            (r#"{"op":"set","link":"link0","up":false,"signal_dbm":-40.5}"#, "signal_dbm"),
            (r#"{"op":"set","link":"link0","up":false,"signal_dbm":1}"#, "signal_dbm"),
            (r#"{"op":"uplink","port":"a"}"#, "to"),
            (r#"{"op":"uplink","port":"b","to":"a"}"#, "no link from b to a"),
        ];
        for (line, expected) in cases {
            let reply: Value = serde_json::from_str(&control.handle(line, &mut model, &mut meter, 0)).unwrap();
            assert_eq!(reply["ok"], false, "{line}");
            assert!(reply["error"].as_str().unwrap().contains(expected), "{line}: {reply}");
            assert_eq!(model.link_state(0), before);
        }
    }
}
