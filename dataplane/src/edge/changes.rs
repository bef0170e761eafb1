//! Regular reports that tell what changed since the last whole one of the same connection. See docs/reference/dataplane.md,
//! "Reports of what changed".
//!
//! Each tells all that differs from the whole one, so that none depends on another.

use serde_json::{Map, Value};

const MS: u64 = 1_000_000;
/// What changes in each report and matters in none: told in whole ones, and with whatever else changed of an entry.
const SLOW: [&str; 4] = ["last_heard_ms", "cpu_s", "woken_late", "seq"];
const NAMES: [&str; 3] = ["number", "id", "link"];

/// What one connection was told.
#[derive(Debug)]
pub struct Changes {
    whole_ns: u64,
    /// The last whole report, and when it was made; none if it had several parts.
    told: Option<(Map<String, Value>, u64)>,
}

impl Changes {
    /// Everything is told each `whole_ms`.
    pub fn new(whole_ms: u64) -> Self {
        Changes { whole_ns: whole_ms.max(10) * MS, told: None }
    }

    /// What to say of a whole report's lines: these, what changed, or nothing.
    pub fn lines(&mut self, whole: Vec<String>, now_ns: u64) -> Vec<String> {
        let report = match whole.as_slice() {
            [line] => serde_json::from_str::<Map<String, Value>>(line).ok(),
            _ => None,
        };
        let report = match report {
            Some(report) => report,
            None => {
                self.told = None;
                return whole;
            }
        };
        if let Some((told, at_ns)) = &self.told {
            if now_ns < at_ns.saturating_add(self.whole_ns) {
                if let Some(lines) = changed(told, &report) {
                    return lines;
                }
            }
        }
        self.told = Some((report, now_ns));
        whole
    }
}

/// None if other flows, paths or links are there. Nothing is to be said if nothing changed and no flow is there.
fn changed(told: &Map<String, Value>, now: &Map<String, Value>) -> Option<Vec<String>> {
    let mut found = entry(told, now)?;
    let is_idle =
        ["ingress", "egress"].iter().all(|side| matches!(now.get(*side), Some(Value::Array(a)) if a.is_empty()));
    found.remove("time_s");
    if is_idle && found.is_empty() {
        return Some(Vec::new());
    }
    found.insert("time_s".into(), now.get("time_s")?.clone());
    let text = serde_json::to_string(&found).ok()?;
    Some(vec![format!("{{\"type\":\"changes\",{}", &text[1..])])
}

/// The fields that differ, without names; None if the two can't be compared.
fn entry(told: &Map<String, Value>, now: &Map<String, Value>) -> Option<Map<String, Value>> {
    if told.len() != now.len() || NAMES.iter().any(|name| told.get(*name) != now.get(*name)) {
        return None;
    }
    let mut found = Map::new();
    for (key, value) in now {
        let before = told.get(key)?;
        if let (Value::Array(before), Value::Array(value)) = (before, value) {
            let entries = entries(before, value)?;
            if !entries.is_empty() {
                found.insert(key.clone(), Value::Array(entries));
            }
        } else if before != value && !SLOW.contains(&key.as_str()) {
            found.insert(key.clone(), value.clone());
        }
    }
    Some(found)
}

fn entries(told: &[Value], now: &[Value]) -> Option<Vec<Value>> {
    if told.len() != now.len() {
        return None;
    }
    let mut changed = Vec::new();
    for pair in told.iter().zip(now) {
        let (told, now) = match pair {
            (Value::Object(told), Value::Object(now)) => (told, now),
            _ => return None,
        };
        let mut found = entry(told, now)?;
        if !found.is_empty() {
            for key in NAMES.iter().chain(&["last_heard_ms"]) {
                if let Some(value) = now.get(*key) {
                    found.insert((*key).into(), value.clone());
                }
            }
            changed.push(Value::Object(found));
        }
    }
    Some(changed)
}

#[cfg(test)]
#[path = "changes_tests.rs"]
mod tests;
