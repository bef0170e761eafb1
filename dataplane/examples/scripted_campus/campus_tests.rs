use hyroads_dataplane::messages::decode;
use serde_json::{json, Value};

use super::campus::{Campus, Due};
use super::words::Request;

const MS: u64 = 1_000_000;

fn campus() -> Campus {
    let rows = json!([{"mac": "m1", "tx_mbps": 100.0}]);
    let node = |name: &str, dpid: u64| {
        let media = json!([{"technology": "wifi", "rows": rows}]);
        json!({"node": name, "dpid": dpid, "ports": ["p"], "agent": true, "media": media})
    };
    let script = json!({"seed": 1, "openflow": [6653], "agents": [6655], "air": {"noise": true, "moving": 0.0},
        "arrivals": true, "radios": true, "nodes": [node("a", 1), node("b", 2)],
        "links": [{"link": "ab", "label": 100, "target": "b"}]});
    Campus::new(serde_json::from_value(script).unwrap(), 0)
}

/// Connects a session and welcomes it; its hello. Sessions: two switches, two agents, two radios.
fn welcomed(campus: &mut Campus, session: usize, welcome: &Value) -> Value {
    campus.connected(session);
    let hello = taken(campus, session);
    campus.received(session, format!("{welcome}\n").as_bytes(), 0);
    serde_json::from_str(hello.trim_end()).unwrap()
}

fn taken(campus: &mut Campus, session: usize) -> String {
    String::from_utf8(std::mem::take(campus.output(session))).unwrap()
}

/// When reports of a session were due until a time.
fn reports(campus: &mut Campus, wanted: usize, until_ns: u64) -> Vec<u64> {
    let mut found = Vec::new();
    while let Some(due) = campus.take_due(until_ns) {
        match due {
            Due::Report { session, due_ns } if session == wanted => found.push(due_ns),
            _ => (),
        }
    }
    found
}

#[test]
fn a_radio_reports_each_interval_and_its_pong_is_one_that_the_library_decodes() {
    let mut campus = campus();
    let hello = welcomed(&mut campus, 4, &json!({"type": "welcome", "interval_ms": 100, "whole_ms": 2000}));
    assert_eq!((&hello["role"], &hello["node"]), (&json!("radio"), &json!("a")));
    let due = reports(&mut campus, 4, 100 * MS - 1);
    assert!(due.len() == 1 && due[0] < 100 * MS);
    let reading: Value = serde_json::from_str(taken(&mut campus, 4).trim_end()).unwrap();
    assert_eq!((&reading["type"], &reading["interfaces"][0]["neighbours"][0]["mac"]), (&json!("radio"), &json!("m1")));
    campus.received(4, b"{\"type\":\"ping\",\"seq\":7}\n", 100 * MS - 1);
    assert_eq!(decode::pong(taken(&mut campus, 4).trim_end().as_bytes()).unwrap().seq, 7);
    assert_eq!(reports(&mut campus, 4, due[0] + 100 * MS), [due[0] + 100 * MS]);
    // Half a second behind: four reports are left out.
    assert_eq!(reports(&mut campus, 4, due[0] + 650 * MS), [due[0] + 200 * MS]);
    assert_eq!(reports(&mut campus, 4, due[0] + 700 * MS), [due[0] + 700 * MS]);
}

#[test]
fn a_cut_is_over_when_no_agent_sends_by_the_link_any_more() {
    let mut campus = campus();
    welcomed(&mut campus, 2, &json!({"type": "welcome", "report_ms": 100}));
    welcomed(&mut campus, 3, &json!({"type": "welcome", "report_ms": 100}));
    let paths = json!([{"id": 1, "rate_mbps": 5.0, "labels": [100]}]);
    let config = json!({"type": "config", "seq": 3, "revision": 9, "ingress": [{"number": 16, "paths": paths}],
        "egress": [], "hello": {"expect": []}});
    campus.received(2, format!("{config}\n").as_bytes(), MS);
    assert_eq!(taken(&mut campus, 2), "{\"type\":\"ok\",\"seq\":3}\n");
    assert_eq!(campus.answer(Request::Used, MS, 0), json!({"links": ["ab"]}));
    campus.answer(Request::Cut { link: "ab".to_string(), up: false }, 2 * MS, 0);
    assert_eq!(taken(&mut campus, 3), "{\"type\":\"link\",\"link\":\"ab\",\"up\":false}\n");
    assert_eq!(campus.answer(Request::CutMs, 3 * MS, 0), json!({"ms": null, "flows_on_it": 1}));
    campus.received(2, b"{\"type\":\"rates\",\"seq\":4,\"rates\":{\"16\":{\"1\":0.0}}}\n", 12 * MS);
    assert_eq!(campus.answer(Request::CutMs, 20 * MS, 0), json!({"ms": 10.0, "flows_on_it": 0}));
}

#[test]
fn a_controller_with_an_older_epoch_is_refused_and_unreadable_lines_are_counted() {
    let mut campus = campus();
    welcomed(&mut campus, 2, &json!({"type": "welcome", "report_ms": 100}));
    campus.received(2, b"{\"type\":\"lead\",\"seq\":1,\"epoch\":5}\n", 0);
    assert!(taken(&mut campus, 2).starts_with("{\"type\":\"ok\",\"seq\":1,\"revision\":0"));
    campus.received(2, b"{\"type\":\"lead\",\"seq\":2,\"epoch\":4}\n[nonsense\n", 0);
    let refused = "{\"type\":\"error\",\"seq\":2,\"message\":\"stale epoch\",\"epoch\":5}\n";
    assert_eq!(taken(&mut campus, 2), refused);
    assert_eq!((campus.counts.refused, campus.counts.odd), (1, 1));
    campus.lost(2, 0);
    campus.connected(2);
    assert!(taken(&mut campus, 2).contains("\"epoch\":5"));
}
