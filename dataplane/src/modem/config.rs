//! The adapter's configuration file.

use crate::sys::interface::{parse_mac, Mac};
use serde::{Deserialize, Deserializer};
use std::path::PathBuf;

/// Terminal identifiers of one network.
pub const MAX_STATIONS: usize = 254;
/// HomePlug AV2 with two streams.
const MOST_MBPS: u16 = 2024;
const MOST_CARRIERS: u16 = 2880;
const MOST_FIRMWARE: usize = 63;

/// Another adapter of the network, and the link to it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Station {
    /// The adapter's address.
    #[serde(deserialize_with = "mac")]
    pub mac: Mac,
    /// Its number in the network.
    pub tei: u8,
    /// The address of the host behind it; the adapter learns it where it is not given.
    #[serde(default = "unknown", deserialize_with = "mac")]
    pub behind: Mac,
    /// Average PHY rate to it, in Mb/s.
    #[serde(default)]
    pub tx_mbps: u16,
    /// Average PHY rate from it, in Mb/s.
    #[serde(default)]
    pub rx_mbps: u16,
    /// The medium's link to it; empty without a medium.
    #[serde(default)]
    pub tx_link: String,
    /// The medium's link from it; empty without a medium.
    #[serde(default)]
    pub rx_link: String,
    /// Share of blocks that its receiver cannot decode.
    #[serde(default)]
    pub block_errors: f64,
    /// This adapter answers VS_SW_VER for the station, if no adapter with its address is on the medium.
    #[serde(default)]
    pub answer_version: bool,
}

/// The medium on which `--outside` is a port.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Medium {
    /// Control socket of `hyroads-medium`.
    pub socket: PathBuf,
    /// Name of the port.
    pub port: String,
}

/// The whole file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The adapter's own address.
    #[serde(deserialize_with = "mac")]
    pub mac: Mac,
    /// Its number in the network.
    pub tei: u8,
    /// Class of chip, as VS_SW_VER has it.
    #[serde(default = "qca7420")]
    pub device: u8,
    /// Identifier of the chip, as VS_SW_VER has it.
    #[serde(default = "qca7420_ident")]
    pub ident: u32,
    /// Name of the firmware.
    #[serde(default = "firmware")]
    pub firmware: String,
    /// Carriers of a tone map.
    #[serde(default = "carriers")]
    pub carriers: u16,
    /// Rates, counters and airtime come from this medium; None: from this file and the frames that are carried.
    #[serde(default)]
    pub medium: Option<Medium>,
    /// The other adapters.
    #[serde(default)]
    pub stations: Vec<Station>,
    /// Vendor messages are answered.
    #[serde(default = "yes")]
    pub qualcomm: bool,
    /// The sniffer can be switched on.
    #[serde(default = "yes")]
    pub sniffer: bool,
    /// Share of answers that are lost.
    #[serde(default)]
    pub answer_loss: f64,
    /// How late answers are.
    #[serde(default)]
    pub answer_delay_ms: u32,
    /// Share of time that a foreign network occupies the line: it is indicated by the sniffer, and not made.
    #[serde(default)]
    pub foreign_share: f64,
    /// Of the losses.
    #[serde(default)]
    pub seed: u64,
}

/// The address behind a station of which nothing was heard.
pub fn unknown() -> Mac {
    [0xff; 6]
}

/// PHY rate in Mb/s at which HomePlug AV carries so many Mb/s of L2 payload (IEEE Std 1901-2010, 13.2.8.1.4; the
/// constants were measured on HomePlug AV 200).
pub fn phy_mbps(capacity_mbps: f64) -> u16 {
    if capacity_mbps > 0.0 {
        (1.7 * capacity_mbps - 0.65).round().clamp(1.0, f64::from(MOST_MBPS)) as u16
    } else {
        0
    }
}

fn qca7420() -> u8 {
    0x20
}

fn qca7420_ident() -> u32 {
    0x001c_fcfc
}

fn firmware() -> String {
    concat!("MAC-QCA7420-hyroads-modem-", env!("CARGO_PKG_VERSION")).to_string()
}

fn carriers() -> u16 {
    1155
}

fn yes() -> bool {
    true
}

fn mac<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Mac, D::Error> {
    let text = String::deserialize(deserializer)?;
    parse_mac(&text).ok_or_else(|| serde::de::Error::custom(format!("expected a MAC address, got {text:?}")))
}

impl Config {
    /// The configuration of a JSON text; the error names what was expected.
    pub fn parse(text: &str) -> Result<Config, String> {
        let config: Config = serde_json::from_str(text).map_err(|e| e.to_string())?;
        config.check().map(|()| config)
    }

    fn check(&self) -> Result<(), String> {
        let share = |value: f64, name: &str| match (0.0..=1.0).contains(&value) {
            true => Ok(()),
            false => Err(format!("{name}: expected a number from 0 to 1")),
        };
        share(self.answer_loss, "answer_loss")?;
        share(self.foreign_share, "foreign_share")?;
        if self.stations.len() > MAX_STATIONS {
            return Err(format!("stations: at most {MAX_STATIONS}"));
        }
        if self.carriers > MOST_CARRIERS {
            return Err(format!("carriers: at most {MOST_CARRIERS}"));
        }
        if self.firmware.len() > MOST_FIRMWARE || !self.firmware.is_ascii() {
            return Err(format!("firmware: at most {MOST_FIRMWARE} ASCII characters"));
        }
        if self.medium.is_some() && self.foreign_share > 0.0 {
            return Err("foreign_share: not with a medium, which has foreign traffic of its own".to_string());
        }
        for (i, station) in self.stations.iter().enumerate() {
            let named = !station.tx_link.is_empty() && !station.rx_link.is_empty();
            if named != self.medium.is_some() || station.tx_link.is_empty() != station.rx_link.is_empty() {
                return Err(format!("stations[{i}]: tx_link and rx_link go with a medium, and only with one"));
            }
            share(station.block_errors, &format!("stations[{i}].block_errors"))?;
            if station.tx_mbps > MOST_MBPS || station.rx_mbps > MOST_MBPS {
                return Err(format!("stations[{i}]: rates of at most {MOST_MBPS} Mb/s"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_a_file_and_names_what_is_wrong() {
        let config = Config::parse(
            r#"{"mac": "00:0b:3b:aa:00:01", "tei": 1,
                "stations": [{"mac": "00:0b:3b:aa:00:02", "tei": 2, "tx_mbps": 132, "rx_mbps": 98}]}"#,
        )
        .unwrap();
        assert_eq!((config.device, config.carriers, config.stations[0].behind), (0x20, 1155, [0xff; 6]));
        let with = |more: &str| Config::parse(&format!(r#"{{"mac": "00:0b:3b:aa:00:01", "tei": 1{more}}}"#));
        assert!(with(r#", "answer_loss": 2"#).unwrap_err().starts_with("answer_loss"));
        assert!(with(r#", "carriers": 3000"#).unwrap_err().starts_with("carriers"));
        assert!(with(r#", "none": 1"#).unwrap_err().contains("unknown field"));
        assert!(Config::parse(r#"{"mac": "x", "tei": 1}"#).unwrap_err().contains("MAC address"));
        let medium = r#", "medium": {"socket": "/m", "port": "a"}"#;
        assert!(with(&format!(r#"{medium}, "foreign_share": 0.5"#)).unwrap_err().starts_with("foreign_share"));
        let station = r#""stations": [{"mac": "00:0b:3b:aa:00:02", "tei": 2"#;
        assert!(with(&format!(r#"{medium}, {station}}}]"#)).unwrap_err().contains("tx_link"));
        assert!(with(&format!(r#", {station}, "tx_link": "ab", "rx_link": "ba"}}]"#)).unwrap_err().contains("tx_link"));
        assert!(with(&format!(r#"{medium}, {station}, "tx_link": "ab", "rx_link": "ba"}}]"#)).is_ok());
    }

    #[test]
    fn phy_rates_are_those_of_the_published_line() {
        assert_eq!([0.0, 0.1, 10.38, 78.03, 5000.0].map(phy_mbps), [0, 1, 17, 132, 2024]);
    }
}
