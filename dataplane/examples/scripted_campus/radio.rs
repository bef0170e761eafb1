//! The radio of an access point: readings as lines. Pure.
use std::fmt::Write;

use super::air::Rows;
use super::bands::{Bands, Message, Row};
use super::counts::Counts;
use super::script::{Air, Medium};

/// What it hears, and how that is now.
pub struct Radio {
    media: Vec<Medium>,
    rows: Rows,
}

impl Radio {
    /// At rest; equal seeds give equal air.
    pub fn new(media: &[Medium], seed: u64) -> Radio {
        Radio { media: media.to_vec(), rows: Rows::new(media, seed) }
    }

    /// The next reading as a line: an answer has all rows, a report has those that the bands let through.
    pub fn read(&mut self, air: Air, bands: &mut Bands, seq: Option<u64>, now_s: f64, counts: &mut Counts) -> String {
        self.rows.read(air);
        let message = if seq.is_some() { Message::Whole } else { bands.message(&self.rows.now, now_s) };
        let rows = if seq.is_some() { &self.rows.now } else { bands.held() };
        let (mut sent, number) = (0, seq.map_or("null".to_string(), |seq| seq.to_string()));
        let mut line = match message {
            Message::Whole => format!(r#"{{"type":"radio","seq":{number},"time_s":{now_s:.6},"interfaces":["#),
            Message::Changes(_) => format!(r#"{{"type":"radio-changes","time_s":{now_s:.6},"interfaces":["#),
        };
        let (busy_us, active_us) = ((now_s * 5e5) as u64, (now_s * 1e6) as u64);
        for (at, medium) in self.media.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            let technology = &medium.technology;
            let _ = write!(line, r#"{comma}{{"technology":"{technology}","busy_us":{busy_us},"active_us":{active_us}"#);
            let some: Vec<usize>;
            let places = match &message {
                Message::Whole => {
                    some = (0..medium.rows.len()).collect();
                    Some(&some)
                }
                Message::Changes(changed) => Some(&changed[at]).filter(|changed| !changed.is_empty()),
            };
            if let Some(places) = places {
                sent += places.len() as u64;
                line.push_str(r#","neighbours":["#);
                for (count, &place) in places.iter().enumerate() {
                    line.push_str(if count == 0 { "" } else { "," });
                    write_row(&mut line, &medium.rows[place].mac, &rows[at][place]);
                }
                line.push(']');
            }
            line.push('}');
        }
        line.push_str("]}");
        counts.rows += sent;
        counts.readings_with_rows += u64::from(sent > 0);
        line
    }
}

fn write_row(line: &mut String, mac: &str, row: &Row) {
    let optional = |value: Option<f64>| value.map_or("null".to_string(), |value| value.to_string());
    let _ = write!(
        line,
        r#"{{"mac":"{mac}","tx_mbps":{},"rx_mbps":{},"loss":{:?},"signal_dbm":{},"last_heard_ms":{}}}"#,
        optional(row.tx_mbps),
        optional(row.rx_mbps),
        row.loss,
        optional(row.signal_dbm),
        row.last_heard_ms
    );
}
