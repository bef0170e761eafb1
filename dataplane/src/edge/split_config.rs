//! How a flow's frames are split over its paths, as the control protocol says it, and the checks of it. See
//! docs/reference/dataplane.md section 2.

use super::hywf::Law;
use super::padding::Schedule;
use super::private::Settings;
use serde::Deserialize;
use std::collections::BTreeMap;

const MAX_SHARE: f64 = 1e6;

/// How a flow's frames are split over its paths.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum SplitMode {
    /// By the paths' rates.
    #[default]
    Proportional,
    /// By these shares, path by path; one that is not named gets nothing.
    Fixed {
        #[serde(deserialize_with = "by_path")]
        shares: BTreeMap<u8, f64>,
    },
    Hywf(HywfConfig),
    /// Each frame on every path with a rate.
    Copy,
}

/// Network 1 is the first path, network 2 the second.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
pub struct HywfConfig {
    #[serde(default = "default_n_cons")]
    pub n_cons: f64,
    #[serde(default)]
    pub cost_share: Option<f64>,
    #[serde(default)]
    pub n_chp: Option<f64>,
    #[serde(default)]
    pub p_d: Option<f64>,
    #[serde(default = "default_silence_ms")]
    pub silence_ms: u64,
    /// None: the defaults if there is an `n_chp`, else no padding.
    #[serde(default)]
    pub padding: Option<PaddingConfig>,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
pub struct PaddingConfig {
    #[serde(default = "default_gap_ms")]
    pub gap_ms: f64,
    #[serde(default = "default_deviation_ms")]
    pub deviation_ms: f64,
    #[serde(default = "default_max_per_s")]
    pub max_per_s: f64,
}

impl Default for PaddingConfig {
    fn default() -> Self {
        PaddingConfig { gap_ms: default_gap_ms(), deviation_ms: default_deviation_ms(), max_per_s: default_max_per_s() }
    }
}

fn default_n_cons() -> f64 {
    20.0
}
fn default_silence_ms() -> u64 {
    1000
}
/// Gaps of the synthetic traces of the study `privacy`.
fn default_gap_ms() -> f64 {
    9.0
}
fn default_deviation_ms() -> f64 {
    63.0
}
fn default_max_per_s() -> f64 {
    200.0
}

/// Keys of an object are strings, and those of a tagged one are not converted by serde.
fn by_path<'de, D: serde::Deserializer<'de>>(from: D) -> Result<BTreeMap<u8, f64>, D::Error> {
    let parse = |(id, share): (String, f64)| match id.parse() {
        Ok(id) => Ok((id, share)),
        Err(_) => Err(serde::de::Error::custom(format!("path {id:?}: expected a number up to 255"))),
    };
    BTreeMap::<String, f64>::deserialize(from)?.into_iter().map(parse).collect()
}

impl SplitMode {
    /// Everything that serde does not see; `paths` are the ids of the flow's.
    pub fn check(&self, paths: &[u8]) -> Result<(), String> {
        match self {
            SplitMode::Proportional | SplitMode::Copy => Ok(()),
            SplitMode::Fixed { shares } => check_shares(shares, paths),
            SplitMode::Hywf(_) if paths.len() > 2 => {
                Err(format!("{} paths: expected at most 2 with hywf", paths.len()))
            }
            SplitMode::Hywf(hywf) => hywf.check(),
        }
    }
}

fn check_shares(shares: &BTreeMap<u8, f64>, paths: &[u8]) -> Result<(), String> {
    if let Some(id) = shares.keys().find(|id| !paths.contains(*id)) {
        return Err(format!("shares: unknown path {id}"));
    }
    if let Some((id, share)) = shares.iter().find(|(_, share)| !(0.0..=MAX_SHARE).contains(*share)) {
        return Err(format!("shares: path {id}: {share}: expected 0 or more"));
    }
    if !shares.values().any(|share| *share > 0.0) {
        return Err("shares: expected one above 0".into());
    }
    Ok(())
}

fn check_range(name: &str, value: f64, low: f64, high: f64) -> Result<(), String> {
    match (low..=high).contains(&value) {
        true => Ok(()),
        false => Err(format!("{name} {value}: expected {low} to {high}")),
    }
}

impl HywfConfig {
    fn check(&self) -> Result<(), String> {
        check_range("n_cons", self.n_cons, 1.0, 1e6)?;
        check_range("silence_ms", self.silence_ms as f64, 1.0, 1e6)?;
        check_range("cost_share", self.cost_share.unwrap_or(0.5), 0.0, 0.5)?;
        check_range("n_chp", self.n_chp.unwrap_or(1.0), 1.0, 1e9)?;
        check_range("p_d", self.p_d.unwrap_or(0.5), 0.0, 1.0)?;
        if self.p_d.is_some() && (self.n_chp.is_none() || self.cost_share.is_some()) {
            return Err("p_d: expected with n_chp and without cost_share".into());
        }
        let padding = self.padding.unwrap_or_default();
        check_range("padding.gap_ms", padding.gap_ms, 0.1, 1e5)?;
        check_range("padding.deviation_ms", padding.deviation_ms, 0.0, 1e5)?;
        check_range("padding.max_per_s", padding.max_per_s, 0.0, 1e4)
    }

    /// Checked settings as the sender takes them.
    pub fn settings(&self) -> Settings {
        let law = Law { n_cons: self.n_cons, cost_share: self.cost_share, n_chp: self.n_chp, p_d: self.p_d };
        let padding = self.padding.or_else(|| self.n_chp.map(|_| PaddingConfig::default()));
        let silence_ns = self.silence_ms * 1_000_000;
        let schedule = |p: PaddingConfig| Schedule {
            gap_ns: p.gap_ms * 1e6,
            deviation_ns: p.deviation_ms * 1e6,
            max_per_s: p.max_per_s,
            silence_ns,
        };
        Settings { law, padding: padding.map(schedule), silence_ns }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edge::protocol::{parse_request, Refusal, Request};

    fn refused(line: &str) -> String {
        match parse_request(line) {
            Err(Refusal::Invalid { message, .. }) => message,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn splits_are_proportional_fixed_or_hywf() {
        let with = |split: &str| {
            format!(
                r#"{{"type":"config","revision":1,"ingress":[{{"number":16,"split":{split},"paths":[{{"id":1}}]}}]}}"#
            )
        };
        let split = |text: &str| match parse_request(&with(text)) {
            Ok((_, Request::Config(config))) => config.ingress[0].split.clone(),
            other => panic!("{other:?}"),
        };
        assert_eq!(split(r#"{"kind":"proportional"}"#), SplitMode::Proportional);
        assert_eq!(split(r#"{"kind":"copy"}"#), SplitMode::Copy);
        assert_eq!(split(r#"{"kind":"fixed","shares":{"1":1}}"#), SplitMode::Fixed { shares: [(1, 1.0)].into() });
        let hywf = |text: &str| match split(text) {
            SplitMode::Hywf(hywf) => hywf.settings(),
            other => panic!("{other:?}"),
        };
        let plain = hywf(r#"{"kind":"hywf","n_cons":20,"cost_share":null,"n_chp":null,"p_d":null,"silence_ms":1000}"#);
        assert_eq!(plain, hywf(r#"{"kind":"hywf"}"#));
        assert_eq!((plain.law.n_cons, plain.silence_ns, plain.padding), (20.0, 1_000_000_000, None));
        // HyWF-AP pads unless it is told not to.
        assert_eq!(hywf(r#"{"kind":"hywf","n_chp":100}"#).padding.map(|p| p.max_per_s), Some(200.0));
        for (text, wanted) in [
            (r#"{"kind":"dance"}"#, "dance"),
            (r#"{"kind":"fixed","shares":{"9":1}}"#, "split: shares: unknown path 9"),
            (r#"{"kind":"fixed","shares":{"x":1}}"#, "path \"x\""),
            (r#"{"kind":"fixed","shares":{"1":-1}}"#, "expected 0 or more"),
            (r#"{"kind":"fixed","shares":{"1":0}}"#, "expected one above 0"),
            (r#"{"kind":"hywf","n_cons":0.5}"#, "split: n_cons 0.5"),
            (r#"{"kind":"hywf","cost_share":0.6}"#, "cost_share 0.6: expected 0 to 0.5"),
            (r#"{"kind":"hywf","p_d":0.6}"#, "p_d: expected with n_chp"),
            (r#"{"kind":"hywf","silence_ms":0}"#, "silence_ms 0"),
            (r#"{"kind":"hywf","padding":{"max_per_s":1e9}}"#, "padding.max_per_s"),
            (r#"{"kind":"hywf","padding":{"deviation_ms":-1}}"#, "padding.deviation_ms -1: expected 0 to 100000"),
        ] {
            assert!(refused(&with(text)).contains(wanted), "{}", refused(&with(text)));
        }
        let path = |id: u8| format!(r#"{{"id":{id},"labels":[1]}}"#);
        let three = format!("\"paths\":[{},{},{}]", path(1), path(2), path(3));
        let line = format!(
            r#"{{"type":"config","revision":1,"ingress":[{{"number":16,"split":{{"kind":"hywf"}},{three}}}]}}"#
        );
        assert!(refused(&line).contains("3 paths: expected at most 2"), "{}", refused(&line));
    }
}
