//! What agents and radios tell the controller several times a second, decoded to numbers. What is decoded is finite or
//! missing, and every event lies inside of its batch.
//!
//! The first byte says what changes refer to, the third in pieces of how many bytes lines come.
#![no_main]
use hyroads_dataplane::messages::reader::{Batch, Connection, CHANGES, LINE, PONG, WHOLE};
use hyroads_dataplane::messages::whole::{Whole, WholeReport};
use hyroads_fuzz::Script;

const LONGEST: usize = 4096;

fn whole(which: u8) -> Whole {
    match which % 3 {
        0 => Whole::Unknown,
        1 => Whole::Reading(vec![b"wifi-5".to_vec(), b"plc".to_vec()]),
        _ => {
            // One flow (7) with paths 0 and 1 at its ingress, one (9) with path 3 at its egress.
            let shape = [1, 7, 2, 0, 1, 1, 9, 1, 3];
            let values = [20.0, 28_000.0, 0.0, 100.0, 200.0, 1.0, 2.0, 5.0, 6.0, 300.0, 3.0, 2.5, 400.0, 4.0, 0.0];
            Whole::Report(Box::new(WholeReport::new(&shape, &values).expect("a report")))
        }
    }
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let mut script = Script(data);
    let mut connection = Connection::default();
    connection.whole = whole(script.byte());
    script.byte();
    let piece = usize::from(script.byte()).max(1);
    let mut batch = Batch::default();
    for part in script.0.chunks(piece) {
        connection.give(part, 5, LONGEST, &mut batch);
    }
    for event in &batch.events {
        let line_end = (event.line + event.length) as usize;
        match event.kind {
            LINE => assert!(line_end <= batch.lines.len() && event.length as usize <= LONGEST + 1),
            PONG => assert_eq!(event.length, 0),
            CHANGES | WHOLE => {
                let values = &batch.values[event.first as usize..(event.first + event.count) as usize];
                assert!(line_end <= batch.lines.len() && values.iter().all(|value| !value.is_infinite()));
            }
            other => panic!("an event of kind {other}"),
        }
    }
});
