//! Readings on standard input, messages on standard output: for the comparison of `bands.rs` with the Python code.
use std::io::BufRead;

use serde::Deserialize;
use serde_json::{json, Value};

use super::bands::{Bands, Message, Row};

#[derive(Deserialize)]
struct Reading {
    now_s: f64,
    interfaces: Vec<Vec<Row>>,
}

/// Until standard input ends. Each line of output has the kind of the message and, by interface, (place, row).
pub fn run(whole_s: f64) -> Result<(), String> {
    let mut bands = Bands::new(whole_s);
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(|error| error.to_string())?;
        let reading: Reading = serde_json::from_str(&line).map_err(|error| error.to_string())?;
        let message = bands.message(&reading.interfaces, reading.now_s);
        println!("{}", answer(&message, bands.held()));
    }
    Ok(())
}

fn answer(message: &Message, held: &[Vec<Row>]) -> Value {
    let all: Vec<Vec<usize>> = held.iter().map(|rows| (0..rows.len()).collect()).collect();
    let (kind, places) = match message {
        Message::Whole => ("radio", &all),
        Message::Changes(places) => ("radio-changes", places),
    };
    let of_interface = |(places, rows): (&Vec<usize>, &Vec<Row>)| -> Vec<Value> {
        places.iter().map(|&place| json!([place, rows[place]])).collect()
    };
    let rows: Vec<Vec<Value>> = places.iter().zip(held).map(of_interface).collect();
    json!({"type": kind, "rows": rows})
}
