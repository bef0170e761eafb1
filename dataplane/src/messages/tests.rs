use super::decode::{again, changes, may_be_whole, pong};
use super::reader::{Batch, Connection, Reader, CHANGES, END, LINE, PONG, WHOLE};
use super::whole::{Whole, WholeReport};
use crate::rng::Rng;
use std::io::Write;
use std::os::unix::io::AsRawFd;
use std::os::unix::net::UnixStream;

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

/// A line with up to three bytes changed or put in, or its end cut off.
fn damaged(line: &[u8], rng: &mut Rng) -> Vec<u8> {
    let mut text = line.to_vec();
    for _ in 0..1 + rng.bits() % 3 {
        let at = (rng.bits() % text.len() as u64) as usize;
        match rng.bits() % 3 {
            0 => text[at] = rng.bits() as u8,
            1 => text.truncate(at.max(1)),
            _ => text.insert(at, b"{}[],:\"-.0eE9\\"[(rng.bits() % 14) as usize]),
        }
    }
    text
}

#[test]
fn nothing_that_comes_makes_it_fail() {
    let line =
        br#"{"type":"changes","time_s":1.5,"ingress":[{"number":7,"queued":4,"paths":[{"id":1,"sent_bytes":250}]}]}"#;
    let mut rng = Rng::new(3);
    for _ in 0..20_000 {
        let text = damaged(line, &mut rng);
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

const REPORT: &str = r#"{"type":"report","seq":null,"time_s":1,"revision":5,"ingress":[{"number":7,"queued":20,"queued_bytes":28000,"dropped":0,"paths":[{"id":0,"sent_bytes":100,"sent_frames":1,"rate_mbps":5},{"id":1,"sent_bytes":200,"sent_frames":2,"rate_mbps":6}]}],"egress":[{"number":9,"lost":null,"paths":[{"id":3,"received_bytes":300}]}],"links":[{"link":"l","up":true,"last_heard_ms":1.5}],"woken_late":{"max_ms":0.1},"more":false}"#;
const READING: &str = r#"{"type":"radio","seq":null,"time_s":1,"interfaces":[{"technology":"w","busy_us":1,"active_us":2,"neighbours":[{"mac":"m","loss":0.5}]}]}"#;

fn decoded_again(line: &str, known: &str, whole: &Whole) -> Option<Vec<f64>> {
    let mut values = Vec::new();
    again(line.as_bytes(), known.as_bytes(), whole, &mut values).map(|()| values)
}

#[test]
fn a_whole_report_that_differs_in_counters_alone_is_decoded() {
    let line = REPORT.replace("\"time_s\":1,", "\"time_s\":2.5,").replace("300", "1e3").replace("1.5", "12");
    let line = line.replace("\"max_ms\":0.1", "\"max_ms\":0.25").replace("28000", "7");
    let values = decoded_again(&line, REPORT, &whole()).unwrap();
    assert_eq!(values, [2.5, 20.0, 7.0, 0.0, 100.0, 200.0, 1.0, 2.0, 5.0, 6.0, 1e3]);
    for (before, after) in [
        ("\"number\":7", "\"number\":8"),
        ("\"id\":1", "\"id\":2"),
        ("\"revision\":5", "\"revision\":6"),
        ("\"up\":true", "\"up\":false"),
        ("\"link\":\"l\"", "\"link\":\"m\""),
        ("\"lost\":null", "\"lost\":0"),
        ("\"queued\":20", "\"queued\":null"),
        ("\"queued\":20", "\"queued\":020"),
        ("\"queued\":20", "\"queued\":1e999"),
        ("\"queued\":20", "\"queued\":2-0"),
        ("\"seq\":null", "\"seq\":1"),
        ("\"more\":false", "\"more\":true"),
        ("\"more\":false}", "\"more\":false}x"),
        ("\"more\":false}", "\"more\":false"),
    ] {
        assert_eq!(decoded_again(&REPORT.replace(before, after), REPORT, &whole()), None, "{}", after);
    }
}

#[test]
fn a_whole_reading_with_other_neighbours_is_left_to_python() {
    let whole = Whole::Reading(vec![b"w".to_vec()]);
    let line = READING.replace("\"busy_us\":1", "\"busy_us\":17").replace("\"time_s\":1", "\"time_s\":3");
    assert_eq!(decoded_again(&line, READING, &whole), Some(vec![3.0, 17.0, 2.0]));
    for (before, after) in [
        ("0.5", "0.6"),
        ("\"mac\":\"m\"", "\"mac\":\"n\""),
        ("\"busy_us\":1", "\"busy_us\":1.5"),
        ("\"time_s\":1", "\"time_s\":-1"),
    ] {
        assert_eq!(decoded_again(&READING.replace(before, after), READING, &whole), None, "{}", after);
    }
    let other_order = READING.replace("\"busy_us\":1,\"active_us\":2", "\"active_us\":2,\"busy_us\":1");
    assert_eq!(decoded_again(&other_order, &other_order, &whole), None);
}

#[test]
fn nothing_that_comes_instead_of_a_whole_report_makes_it_fail() {
    let reading = Whole::Reading(vec![b"w".to_vec()]);
    let mut rng = Rng::new(4);
    for _ in 0..20_000 {
        for (known, whole) in [(REPORT, &whole()), (READING, &reading)] {
            let text = damaged(known.as_bytes(), &mut rng);
            let (line, mut values) = (text.as_slice(), Vec::new());
            let _ =
                (again(line, known.as_bytes(), whole, &mut values), again(known.as_bytes(), line, whole, &mut values));
            let _ = again(line, line, whole, &mut values);
        }
    }
}

#[test]
fn numbers_are_held_until_they_are_asked_for_or_something_else_comes() {
    let mut reader = Reader::new(1 << 20).unwrap();
    let mut pairs: Vec<(UnixStream, UnixStream)> = (0..3).map(|_| UnixStream::pair().unwrap()).collect();
    for (_, ours) in &pairs {
        assert!(reader.add(ours.as_raw_fd(), b""));
    }
    let fds: Vec<i32> = pairs.iter().map(|(_, ours)| ours.as_raw_fd()).collect();
    for (device, _) in &mut pairs {
        device.write_all(format!("{REPORT}\n").as_bytes()).unwrap();
    }
    assert_eq!(reader.poll(true).unwrap(), 3);
    assert!(reader.batch.events.iter().all(|event| event.kind == LINE));
    for &fd in &fds {
        reader.refer(fd, whole(), true);
    }
    for time_s in 2..5 {
        for (device, _) in &mut pairs {
            device.write_all(format!("{{\"type\":\"changes\",\"time_s\":{time_s}}}\n").as_bytes()).unwrap();
        }
        assert_eq!(reader.poll(true).unwrap(), 3);
        assert!(reader.batch.events.is_empty() && reader.is_holding(fds[1]));
    }
    // The first says something else, the last is forgotten, and another one gets its place.
    pairs[0].0.write_all(b"{\"type\":\"link\"}\n").unwrap();
    reader.poll(true).unwrap();
    let told: Vec<(i32, u32)> = reader.batch.events.iter().map(|event| (event.fd, event.kind)).collect();
    assert_eq!(told, [(fds[0], CHANGES), (fds[0], LINE)]);
    reader.remove(fds[2]);
    assert!(reader.add(fds[2], b"") && !reader.is_holding(fds[2]));
    reader.take_held();
    assert_eq!(reader.batch.events.len(), 1);
    let event = reader.batch.events[0];
    assert_eq!((event.fd, event.kind, reader.batch.values[event.first as usize]), (fds[1], CHANGES, 4.0));
    reader.take_held();
    assert!(reader.batch.events.is_empty() && !reader.is_holding(fds[1]));

    // A whole one, changes that refer to it, and the end: all in their order.
    let again = REPORT.replace("\"time_s\":1,", "\"time_s\":9,");
    pairs[1].0.write_all(format!("{again}\n{{\"type\":\"changes\",\"time_s\":10}}\n").as_bytes()).unwrap();
    pairs[1].0.shutdown(std::net::Shutdown::Both).unwrap();
    let mut kinds = Vec::new();
    for _ in 0..2 {
        reader.poll(true).unwrap();
        kinds.extend(reader.batch.events.iter().map(|event| event.kind));
    }
    assert_eq!(kinds, [WHOLE, CHANGES, END]);
}
