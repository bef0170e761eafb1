use super::*;
use serde_json::json;

fn report(time_s: f64, queued: u64, bytes: [u64; 2], up: bool) -> Value {
    json!({"type": "report", "seq": null, "more": false, "time_s": time_s, "revision": 3, "cpu_s": time_s,
        "ingress": [{"number": 16, "queued": queued, "dropped": 0, "paths": [
            {"id": 1, "rate_mbps": 9.53, "sent_bytes": bytes[0]}, {"id": 2, "rate_mbps": null, "sent_bytes": bytes[1]}]}],
        "egress": [{"number": 17, "lost": 0, "paths": [{"id": 1, "received_bytes": 5, "last_heard_ms": time_s}]}],
        "links": [{"link": "ab", "up": up, "last_heard_ms": time_s}, {"link": "cb", "up": true, "last_heard_ms": 1.0}]})
}

fn told(changes: &mut Changes, report: &Value, at_ms: u64) -> Vec<Value> {
    let lines = changes.lines(vec![report.to_string()], at_ms * MS);
    lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn what_differs_from_the_whole_report_is_told() {
    let mut changes = Changes::new(2000);
    let whole = report(1.0, 0, [10, 20], true);
    assert_eq!(told(&mut changes, &whole, 0), [whole]);
    let expected = json!({"type": "changes", "time_s": 1.1, "ingress": [{"number": 16, "queued": 4, "paths":
        [{"id": 2, "sent_bytes": 25}]}]});
    assert_eq!(told(&mut changes, &report(1.1, 4, [10, 25], true), 100), [expected]);
    // What is as it was in the whole one is not told, though it differs from the report before.
    let expected =
        json!({"type": "changes", "time_s": 1.2, "links": [{"link": "ab", "up": false, "last_heard_ms": 1.2}]});
    assert_eq!(told(&mut changes, &report(1.2, 0, [10, 20], false), 200), [expected]);
    assert_eq!(told(&mut changes, &report(1.3, 0, [10, 20], true), 300), [json!({"type": "changes", "time_s": 1.3})]);
}

#[test]
fn changes_name_their_type_first() {
    let mut changes = Changes::new(2000);
    changes.lines(vec![report(1.0, 0, [0, 0], true).to_string()], 0);
    let lines = changes.lines(vec![report(1.1, 0, [0, 0], true).to_string()], MS);
    assert_eq!(lines, ["{\"type\":\"changes\",\"time_s\":1.1}"]);
}

#[test]
fn everything_is_told_in_time_and_when_other_flows_or_links_are_there() {
    let mut changes = Changes::new(2000);
    let mut other = report(1.0, 0, [10, 20], true);
    told(&mut changes, &other, 0);
    assert_eq!(told(&mut changes, &other, 1999)[0]["type"], "changes");
    assert_eq!(told(&mut changes, &other, 2000), [other.clone()]);
    for (pointer, value) in [
        ("/ingress/0/number", json!(18)),
        ("/ingress/0/paths/1/id", json!(7)),
        ("/egress/0/paths", json!([])),
        ("/links/1/link", json!("db")),
        ("/links", json!([])),
    ] {
        *other.pointer_mut(pointer).unwrap() = value;
        assert_eq!(told(&mut changes, &other, 2001), [other.clone()], "{pointer}");
    }
}

#[test]
fn reports_in_parts_are_whole() {
    let mut changes = Changes::new(2000);
    let line = report(1.0, 0, [0, 0], true).to_string();
    changes.lines(vec![line.clone()], 0);
    let parts = vec![line.clone(), line.clone()];
    assert_eq!(changes.lines(parts.clone(), MS), parts);
    assert_eq!(changes.lines(vec![line.clone()], MS), [line]);
}

#[test]
fn an_agent_without_flows_says_nothing_twice() {
    let mut changes = Changes::new(2000);
    let idle = |time_s: f64, up: bool| {
        json!({"type": "report", "time_s": time_s, "cpu_s": time_s, "ingress": [], "egress": [],
            "links": [{"link": "ab", "up": up, "last_heard_ms": time_s}]})
    };
    told(&mut changes, &idle(1.0, true), 0);
    assert_eq!(told(&mut changes, &idle(1.1, true), 100), [] as [Value; 0]);
    assert_eq!(told(&mut changes, &idle(1.2, false), 200).len(), 1);
}
