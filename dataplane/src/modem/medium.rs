//! What `hyroads-medium` reports of the power line: the airtime that the adapter hears, and its links. Pure.

use super::config::Config;
use serde::Deserialize;

/// The first request: names, in the order of the answers to the second.
pub const NAMES: &str = r#"{"op":"stats"}"#;
/// The request that is repeated.
pub const AIRTIME: &str = r#"{"op":"radio"}"#;

/// Reports come every few milliseconds; the airtime of a longer silence is lost.
const MOST_US: f64 = 1e6;
const MOST_MBPS: f64 = 1e6;

/// One direction of a link since the report before.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Air {
    /// For how long it was sending, in microseconds.
    pub us: f64,
    /// What it carries now at L2 payload, in Mb/s; 0: it is down.
    pub capacity_mbps: f64,
}

/// The line since the report before.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Aired {
    /// For how long the adapter sent or heard a sender, in microseconds.
    pub heard_us: f64,
    /// By station: the link to it, the link from it.
    pub links: Vec<[Air; 2]>,
}

#[derive(Deserialize)]
struct Link {
    id: String,
}

#[derive(Deserialize)]
struct Port {
    name: String,
}

#[derive(Deserialize)]
struct Names {
    links: Vec<Link>,
    ports: Vec<Port>,
}

#[derive(Deserialize)]
struct Airtime {
    links: Vec<(f64, u64, u64, f64)>,
    ports: Vec<Option<f64>>,
}

/// Turns answers of the medium's control socket into what is new.
#[derive(Debug)]
pub struct Reports {
    port: String,
    ids: Vec<[String; 2]>,
    places: Option<(usize, Vec<[usize; 2]>)>,
    /// Seconds at the last report: heard, and by link.
    before: Option<(f64, Vec<[f64; 2]>)>,
}

impl Reports {
    /// Of a configuration; None if it has no medium.
    pub fn new(config: &Config) -> Option<Reports> {
        let medium = config.medium.as_ref()?;
        let ids = config.stations.iter().map(|s| [s.tx_link.clone(), s.rx_link.clone()]).collect();
        Some(Reports { port: medium.port.clone(), ids, places: None, before: None })
    }

    /// What to send next.
    pub fn request(&self) -> &'static str {
        if self.places.is_some() {
            AIRTIME
        } else {
            NAMES
        }
    }

    /// Takes an answer; gives what is new since the one before. The error says what is wrong with it.
    pub fn take(&mut self, answer: &str) -> Result<Option<Aired>, String> {
        let (port, links) = match &self.places {
            Some(places) => places,
            None => {
                self.places = Some(self.find(answer)?);
                return Ok(None);
            }
        };
        let report: Airtime = serde_json::from_str(answer).map_err(|e| format!("unexpected answer: {e}"))?;
        let heard_s = report.ports.get(*port).copied().flatten();
        let heard_s = heard_s.ok_or(format!("port {}: it has no \"hears\"", self.port))?;
        let of = |link: &usize| report.links.get(*link).map(|l| (l.0, l.3)).ok_or("a link is missing");
        let mut now = Vec::with_capacity(links.len());
        for [to, from] in links {
            now.push([of(to)?, of(from)?]);
        }
        let seconds: Vec<[f64; 2]> = now.iter().map(|pair| [pair[0].1, pair[1].1]).collect();
        let before = self.before.replace((heard_s, seconds));
        let (heard_before_s, links_before) = match before {
            Some(before) => before,
            None => return Ok(None),
        };
        let air = |(mbps, s): (f64, f64), before_s: f64| Air {
            us: grown_us(s, before_s),
            capacity_mbps: mbps.clamp(0.0, MOST_MBPS),
        };
        let pairs = now.iter().zip(&links_before);
        Ok(Some(Aired {
            heard_us: grown_us(heard_s, heard_before_s),
            links: pairs.map(|(now, was)| [air(now[0], was[0]), air(now[1], was[1])]).collect(),
        }))
    }

    fn find(&self, answer: &str) -> Result<(usize, Vec<[usize; 2]>), String> {
        let names: Names = serde_json::from_str(answer).map_err(|e| format!("unexpected answer: {e}"))?;
        let port = names.ports.iter().position(|p| p.name == self.port).ok_or(format!("no port {}", self.port))?;
        let place = |id: &String| names.links.iter().position(|l| &l.id == id).ok_or(format!("no link {id}"));
        let mut links = Vec::with_capacity(self.ids.len());
        for [to, from] in &self.ids {
            links.push([place(to)?, place(from)?]);
        }
        Ok((port, links))
    }
}

/// Microseconds between two readings of a counter of seconds, at most a second; 0 if it was reset.
fn grown_us(now_s: f64, before_s: f64) -> f64 {
    let us = (now_s - before_s) * 1e6;
    // It may be NaN.
    if us > 0.0 {
        us.min(MOST_US)
    } else {
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reports() -> Reports {
        let text = r#"{"mac": "00:0b:3b:aa:00:01", "tei": 1, "medium": {"socket": "/m", "port": "a"}, "stations": [
            {"mac": "00:0b:3b:aa:00:02", "tei": 2, "tx_link": "ab", "rx_link": "ba"}]}"#;
        Reports::new(&Config::parse(text).unwrap()).unwrap()
    }

    const KNOWN: &str = r#"{"ok":true,"elapsed_s":1,"links":[{"id":"ba"},{"id":"xy"},{"id":"ab"}],
        "ports":[{"name":"x"},{"name":"a"}]}"#;

    #[test]
    fn gives_what_grew_since_the_last_report() {
        let mut reports = reports();
        assert_eq!(reports.request(), NAMES);
        assert_eq!(reports.take(KNOWN), Ok(None));
        assert_eq!(reports.request(), AIRTIME);
        let first = r#"{"links":[[5,1,0,0.1],[5,1,0,9],[8,2,0,0.25]],"ports":[null,1.5]}"#;
        assert_eq!(reports.take(first), Ok(None));
        let second = r#"{"links":[[5,1,0,0.1],[5,1,0,9],[0,2,0,0.5]],"ports":[null,2.5]}"#;
        let to = Air { us: 250_000.0, capacity_mbps: 0.0 };
        let from = Air { us: 0.0, capacity_mbps: 5.0 };
        let wanted = Aired { heard_us: 1e6, links: vec![[to, from]] };
        assert_eq!(reports.take(second), Ok(Some(wanted)));
        // Whatever a medium reports is bounded.
        let absurd = r#"{"links":[[-5,1,0,1e308],[1,1,0,9],[1e308,2,0,0.5]],"ports":[null,1e308]}"#;
        let absurd = reports.take(absurd).unwrap().unwrap();
        let wanted = [Air { us: 0.0, capacity_mbps: 1e6 }, Air { us: 1e6, capacity_mbps: 0.0 }];
        assert_eq!(absurd, Aired { heard_us: 1e6, links: vec![wanted] });
        // After a reset of the medium's counters nothing is new.
        assert_eq!(reports.take(first).unwrap().unwrap().heard_us, 0.0);
    }

    #[test]
    fn says_what_is_wrong_with_an_answer() {
        assert!(reports().take("{}").unwrap_err().contains("links"));
        let unknown = KNOWN.replace("\"a\"", "\"b\"");
        assert_eq!(reports().take(&unknown).unwrap_err(), "no port a");
        let mut reports = reports();
        reports.take(KNOWN).unwrap();
        assert!(reports.take(r#"{"links":[],"ports":[null,1]}"#).unwrap_err().contains("missing"));
        let deaf = r#"{"links":[[5,1,0,0.1],[5,1,0,9],[8,2,0,0.25]],"ports":[null,null]}"#;
        assert!(reports.take(deaf).unwrap_err().contains("hears"));
    }
}
