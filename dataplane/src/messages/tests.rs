use super::decode::{changes, may_be_whole, pong};
use super::reader::{Batch, Connection, CHANGES, LINE, PONG};
use super::whole::{Whole, WholeReport};
use crate::rng::Rng;

fn whole() -> Whole {
    // One flow (7) with paths 0 and 1 at its ingress, one (9) with path 3 at its egress.
    let shape = [1, 7, 2, 0, 1, 1, 9, 1, 3];
    let values = [20.0, 28_000.0, 0.0, 100.0, 200.0, 1.0, 2.0, 5.0, 6.0, 300.0];
    Whole::Report(Box::new(WholeReport::new(&shape, &values).unwrap()))
}

fn decoded(line: &str) -> Option<Vec<f64>> {
    let mut values = Vec::new();
    changes(line.as_bytes(), &whole(), &mut values).map(|()| values)
}

#[test]
fn what_changed_takes_the_place_of_what_the_whole_report_says() {
    let line = r#"{"type":"changes","time_s":1.5,"ingress":[{"number":7,"sent":3,"queued":4,"paths":[{"id":1,"sent_bytes":250,"rate_mbps":null}]}],"egress":[{"number":9,"paths":[{"id":3,"received_bytes":350}]}]}"#;
    let values = decoded(line).unwrap();
    assert_eq!(values[..8], [1.5, 4.0, 28_000.0, 0.0, 100.0, 250.0, 1.0, 2.0]);
    assert!(values[9].is_nan() && values[8] == 5.0 && values[10] == 350.0);
}

#[test]
fn what_python_would_refuse_or_treat_otherwise_is_left_to_it() {
    for rest in [
        r#""ingress":[]}"#,
        r#""time_s":null}"#,
        r#""time_s":1e999}"#,
        r#""time_s":01}"#,
        r#""time_s":1,}"#,
        r#""time_s":1}x"#,
        r#""time_s":1,"links":[]}"#,
        r#""time_s":1,"ingress":[{"number":8}]}"#,
        r#""time_s":1,"ingress":[{"number":7.0}]}"#,
        r#""time_s":1,"ingress":[{"number":7},{"number":7}]}"#,
        r#""time_s":1,"ingress":[{"number":7,"queued":true}]}"#,
        r#""time_s":1,"ingress":[{"number":7,"paths":[{"id":2}]}]}"#,
    ] {
        assert_eq!(decoded(&format!("{{\"type\":\"changes\",{}", rest)), None, "{}", rest);
    }
}

#[test]
fn nothing_that_comes_makes_it_fail() {
    let line =
        br#"{"type":"changes","time_s":1.5,"ingress":[{"number":7,"queued":4,"paths":[{"id":1,"sent_bytes":250}]}]}"#;
    let mut rng = Rng::new(3);
    for _ in 0..20_000 {
        let mut text = line.to_vec();
        for _ in 0..1 + rng.bits() % 3 {
            let at = (rng.bits() % text.len() as u64) as usize;
            match rng.bits() % 3 {
                0 => text[at] = rng.bits() as u8,
                1 => text.truncate(at.max(1)),
                _ => text.insert(at, b"{}[],:\"-.0eE9\\"[(rng.bits() % 14) as usize]),
            }
        }
        let mut values = Vec::new();
        let _ = (changes(&text, &whole(), &mut values), pong(&text), may_be_whole(&text));
    }
}

#[test]
fn lines_keep_their_order_and_only_changes_of_one_kind_replace_each_other() {
    let mut connection = Connection::default();
    connection.whole = whole();
    let mut batch = Batch::default();
    let text = "{\"type\":\"changes\",\"time_s\":1}\n{\"type\":\"changes\",\"time_s\":2}\n{\"type\":\"link\"}\n\
                {\"type\":\"changes\",\"time_s\":3}\n{\"type\": \"pong\", \"seq\": 4}\n{\"type\":\"report\"}\n\
                {\"type\":\"changes\",\"time_s\":5}\n{\"ty";
    let mut given = Vec::new();
    for part in text.as_bytes().chunks(100_000) {
        given.extend_from_slice(part);
    }
    connection.give(&given, 5, 1 << 20, &mut batch);
    let kinds: Vec<u32> = batch.events.iter().map(|event| event.kind).collect();
    assert_eq!(kinds, [CHANGES, LINE, CHANGES, PONG, LINE, LINE]);
    assert_eq!(batch.values[batch.events[0].first as usize], 2.0);
    assert_eq!(batch.values[batch.events[2].first as usize], 3.0);
}

#[test]
fn a_line_that_is_too_long_is_cut_above_the_bound() {
    let mut connection = Connection::default();
    let mut batch = Batch::default();
    connection.give(&[b'x'; 40], 5, 10, &mut batch);
    assert_eq!(batch.events[0].length, 11);
}
