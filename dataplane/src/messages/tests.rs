use super::decode::{again, changes, may_be_whole, pong};
use super::reader::{Batch, Connection, Reader, CHANGES, END, LINE, PONG, WHOLE};
use super::thread::ReadingThread;
use super::whole::{Whole, WholeReport};
use crate::rng::Rng;
use crate::sys::clock::monotonic_ns;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::io::AsRawFd;
use std::os::unix::net::UnixStream;

fn whole() -> Whole {
    // One flow (7) with paths 0 and 1 at its ingress, one (9) with path 3 at its egress.
    let shape = [1, 7, 2, 0, 1, 1, 9, 1, 3];
    let values = [20.0, 28_000.0, 0.0, 100.0, 200.0, 1.0, 2.0, 5.0, 6.0, 300.0, 3.0, 2.5, 400.0, 4.0, 0.0];
    Whole::Report(Box::new(WholeReport::new(&shape, &values).unwrap()))
}

fn decoded(line: &str) -> Option<Vec<f64>> {
    let mut values = Vec::new();
    changes(line.as_bytes(), &whole(), &mut values).map(|()| values)
}

#[test]
fn what_changed_takes_the_place_of_what_the_whole_report_says() {
    let line = r#"{"type":"changes","time_s":1.5,"ingress":[{"number":7,"sent":3,"queued":4,"paths":[{"id":1,"sent_bytes":250,"rate_mbps":null}]}],"egress":[{"number":9,"lost":1,"paths":[{"id":3,"received_bytes":350,"delay_ms":null}],"delivered_frames":5}]}"#;
    let values = decoded(line).unwrap();
    assert_eq!(values[..8], [1.5, 4.0, 28_000.0, 0.0, 100.0, 250.0, 1.0, 2.0]);
    assert!(values[9].is_nan() && values[8] == 5.0);
    assert_eq!(values[10..12], [350.0, 3.0]);
    assert!(values[12].is_nan());
    assert_eq!(values[13..], [400.0, 5.0, 1.0]);
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
    let kinds: Vec<u64> = batch.events.iter().map(|event| event.kind).collect();
    assert_eq!(kinds, [CHANGES, LINE, PONG, CHANGES, LINE, LINE]);
    assert_eq!(batch.values[batch.events[0].first as usize], 2.0);
    assert_eq!(batch.values[batch.events[3].first as usize], 3.0);
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
    assert_eq!(values[..13], [2.5, 20.0, 7.0, 0.0, 100.0, 200.0, 1.0, 2.0, 5.0, 6.0, 1e3, 3.0, 2.5]);
    assert!(values[13..15] == [400.0, 4.0] && values[15].is_nan() && values.len() == 16);
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

/// A reader of some sockets, whose other ends are devices.
fn reader_of(count: usize) -> (Reader, Vec<(UnixStream, UnixStream, u64)>) {
    let mut reader = Reader::new(1 << 20).unwrap();
    let mut sockets = Vec::new();
    for _ in 0..count {
        let (device, ours) = UnixStream::pair().unwrap();
        let id = reader.add(ours.as_raw_fd(), b"").unwrap();
        sockets.push((device, ours, id));
    }
    (reader, sockets)
}

fn taken(reader: &mut Reader) -> Batch {
    let mut batch = Batch::default();
    while reader.poll(100).unwrap() {}
    assert!(!reader.take(1000, &mut batch));
    batch
}

fn kinds(batch: &Batch) -> Vec<(u64, u64)> {
    batch.events.iter().map(|event| (event.id, event.kind)).collect()
}

#[test]
fn numbers_are_held_until_they_are_asked_for_or_something_else_comes() {
    let (mut reader, mut sockets) = reader_of(3);
    let ids: Vec<u64> = sockets.iter().map(|socket| socket.2).collect();
    for (device, _, _) in &mut sockets {
        device.write_all(format!("{REPORT}\n").as_bytes()).unwrap();
    }
    let batch = taken(&mut reader);
    assert!(batch.events.len() == 3 && batch.events.iter().all(|event| event.kind == LINE && event.count == 1));
    for &id in &ids {
        reader.refer(id, whole(), 1, true);
    }
    for time_s in 2..5 {
        for (device, _, _) in &mut sockets {
            device.write_all(format!("{{\"type\":\"changes\",\"time_s\":{time_s}}}\n").as_bytes()).unwrap();
        }
        assert!(taken(&mut reader).events.is_empty() && reader.is_holding(ids[1]));
    }
    // The first says something else, the last is forgotten, and another one gets its place.
    sockets[0].0.write_all(b"{\"type\":\"link\"}\n").unwrap();
    assert_eq!(kinds(&taken(&mut reader)), [(ids[0], CHANGES), (ids[0], LINE)]);
    reader.remove(ids[2]);
    let again = reader.add(sockets[2].1.as_raw_fd(), b"").unwrap();
    assert!(again > ids[2] && !reader.is_holding(again));
    let mut batch = Batch::default();
    reader.take_held(&mut batch);
    assert_eq!(kinds(&batch), [(ids[1], CHANGES)]);
    assert_eq!(batch.values[batch.events[0].first as usize], 4.0);
    reader.take_held(&mut batch);
    assert!(batch.events.is_empty() && !reader.is_holding(ids[1]));

    // A whole one, changes that refer to it, and the end: all in their order, and there until they are taken.
    let again = REPORT.replace("\"time_s\":1,", "\"time_s\":9,");
    sockets[1].0.write_all(format!("{again}\n{{\"type\":\"changes\",\"time_s\":10}}\n").as_bytes()).unwrap();
    sockets[1].0.shutdown(std::net::Shutdown::Both).unwrap();
    for _ in 0..2 {
        reader.poll(100).unwrap();
    }
    assert!(reader.is_holding(ids[1]));
    assert_eq!(kinds(&taken(&mut reader)), [(ids[1], WHOLE), (ids[1], CHANGES), (ids[1], END)]);
    assert!(!reader.is_holding(ids[1]));
}

#[test]
fn numbers_do_not_overtake_lines_that_were_not_taken() {
    let (mut reader, mut sockets) = reader_of(2);
    for (device, _, id) in &mut sockets {
        reader.refer(*id, whole(), 0, false);
        let lines = "{\"type\":\"link\"}\n{\"type\":\"changes\",\"time_s\":2}\n";
        device.write_all(lines.as_bytes()).unwrap();
    }
    while reader.poll(100).unwrap() {}
    let mut batch = Batch::default();
    reader.take_held(&mut batch);
    assert!(batch.events.is_empty());
    assert!(reader.take(1, &mut batch));
    let first = batch.events[0].id;
    reader.take_held(&mut batch);
    assert_eq!(kinds(&batch), [(first, CHANGES)]);
    assert!(!reader.take(1, &mut batch));
    reader.take_held(&mut batch);
    assert!(batch.events.len() == 1 && batch.events[0].id != first);
}

#[test]
fn what_python_says_of_an_older_whole_report_is_left_out() {
    let (mut reader, mut sockets) = reader_of(1);
    let changes = b"{\"type\":\"changes\",\"time_s\":2}\n";
    let (device, _, id) = &mut sockets[0];
    device.write_all(format!("{REPORT}\n{REPORT}\n").as_bytes()).unwrap();
    let batch = taken(&mut reader);
    assert_eq!(batch.events.iter().map(|event| event.count).collect::<Vec<u64>>(), [1, 2]);
    reader.refer(*id, whole(), 1, true);
    device.write_all(changes).unwrap();
    assert_eq!(kinds(&taken(&mut reader)), [(*id, LINE)]);
    reader.refer(*id, whole(), 2, true);
    device.write_all(changes).unwrap();
    assert!(taken(&mut reader).events.is_empty());
}

#[test]
fn who_talks_a_lot_keeps_nobody_waiting() {
    let (mut reader, mut sockets) = reader_of(2);
    let line = b"{\"type\":\"link\"}\n";
    sockets[0].0.write_all(&line.repeat(300)).unwrap();
    while reader.poll(100).unwrap() {}
    sockets[0].0.write_all(line).unwrap();
    sockets[1].0.write_all(line).unwrap();
    let batch = taken(&mut reader);
    assert_eq!((batch.events.len(), batch.events[300].id), (301, sockets[1].2));
    assert_eq!(kinds(&taken(&mut reader)), [(sockets[0].2, LINE)]);
}

#[test]
fn it_is_told_until_when_all_was_taken() {
    let (mut reader, mut sockets) = reader_of(1);
    let before_ns = monotonic_ns();
    assert!(reader.taken_until_ns() >= before_ns);
    sockets[0].0.write_all(b"{\"type\":\"link\"}\n").unwrap();
    let sent_ns = monotonic_ns();
    assert!(reader.taken_until_ns() < sent_ns);
    while reader.poll(100).unwrap() {}
    assert!(reader.taken_until_ns() < sent_ns);
    assert_eq!(taken(&mut reader).events.len(), 1);
    assert!(reader.taken_until_ns() >= sent_ns);
}

#[test]
fn a_thread_reads_while_others_do_not_and_stops_where_nobody_takes() {
    let mut thread = ReadingThread::new(1 << 20).unwrap();
    let (mut device, ours) = UnixStream::pair().unwrap();
    let id = thread.reader().add(ours.as_raw_fd(), b"").unwrap();
    device.set_nonblocking(true).unwrap();
    let line = b"{\"type\":\"link\"}\n";
    let mut sent = 0;
    let mut is_stuck_since_ns = monotonic_ns();
    while monotonic_ns() - is_stuck_since_ns < 300_000_000 {
        match device.write(line) {
            Ok(count) if count == line.len() => {
                sent += 1;
                is_stuck_since_ns = monotonic_ns();
            }
            Ok(_) => panic!("a part of a line was sent"),
            Err(_) => std::thread::sleep(std::time::Duration::from_millis(5)),
        }
    }
    let mut told = 0;
    while told < sent {
        thread.take(1000).unwrap();
        assert!(thread.batch.events.iter().all(|event| (event.id, event.kind) == (id, LINE)));
        told += thread.batch.events.len();
    }
    assert_eq!(told, sent);
    thread.reader().remove(id);
}

/// A reader, and the other end of a socket that it reads.
fn reader_of_one() -> (Reader, UnixStream, UnixStream, u64) {
    let (here, there) = UnixStream::pair().unwrap();
    let mut reader = Reader::new(1 << 20).unwrap();
    let id = reader.add(here.as_raw_fd(), b"").unwrap();
    (reader, here, there, id)
}

fn events_of(reader: &mut Reader) -> Vec<(u64, u64)> {
    let mut batch = Batch::default();
    reader.take(1000, &mut batch);
    batch.events.iter().map(|event| (event.kind, event.first)).collect()
}

fn answers(reader: &mut Reader) -> Vec<u64> {
    let mut batch = Batch::default();
    reader.take_pongs(&mut batch);
    batch.events.iter().map(|event| event.first).collect()
}

fn all_that_came(there: &mut UnixStream) -> String {
    let mut text = vec![0; 1 << 20];
    there.set_nonblocking(true).unwrap();
    let length = there.read(&mut text).unwrap_or(0);
    String::from_utf8_lossy(&text[..length]).into_owned()
}

#[test]
fn an_answer_to_a_ping_is_told_as_the_time_it_took() {
    let (mut reader, _here, mut there, id) = reader_of_one();
    let before_ns = monotonic_ns();
    assert!(reader.ping(id, 7) && !reader.ping(id, 8) && reader.has_pings());
    assert!(!reader.send_pings(10));
    assert_eq!(all_that_came(&mut there), "{\"type\":\"ping\",\"seq\":7}\n");
    there.write_all(b"{\"type\":\"pong\",\"seq\":7}\n").unwrap();
    reader.poll(10).unwrap();
    assert!(reader.is_holding(id));
    assert_eq!(events_of(&mut reader), []);
    let times = answers(&mut reader);
    assert!(times.len() == 1 && times[0] <= monotonic_ns() - before_ns, "{:?}", times);
    assert!(!reader.is_holding(id) && answers(&mut reader).is_empty());
}

#[test]
fn only_an_answer_to_a_late_ping_that_says_nothing_new_is_told_as_a_time() {
    let (mut reader, _here, mut there, id) = reader_of_one();
    for seq in 1..=6 {
        assert!(reader.ping(id, seq));
        reader.send_pings(1);
    }
    // 1 and 2 are not among the latest four; 6 is answered twice; nobody was asked 9.
    for (text, events, times) in [
        ("\"seq\":2", vec![(PONG, 2)], 0),
        ("\"seq\":6", vec![], 1),
        ("\"seq\":6", vec![(PONG, 6)], 0),
        ("\"seq\":9", vec![(PONG, 9)], 0),
        ("\"seq\":9,\"epoch\":0", vec![(LINE, 0)], 0),
        ("\"seq\":5,\"epoch\":3,\"epoch\":3", vec![(LINE, 0)], 0),
        ("\"seq\":5,\"epoch\":-3", vec![(LINE, 0)], 0),
        ("\"seq\":5,\"epoch\":3,\"more\":1", vec![(LINE, 0)], 0),
        // A new epoch is told, and how long the answer took is kept nevertheless.
        ("\"seq\":5,\"epoch\":3,\"heard_ms\":12", vec![(LINE, 0)], 1),
        ("\"seq\":4,\"heard_ms\":null,\"epoch\":3", vec![], 1),
        ("\"seq\":3", vec![], 1),
    ] {
        there.write_all(format!("{{\"type\":\"pong\",{}}}\n", text).as_bytes()).unwrap();
        reader.poll(10).unwrap();
        assert_eq!(events_of(&mut reader), events, "{}", text);
        assert_eq!(answers(&mut reader).len(), times, "{}", text);
    }
}

#[test]
fn a_ping_that_has_no_room_is_given_back_where_it_was_cut() {
    let (mut reader, mut here, mut there, id) = reader_of_one();
    here.set_nonblocking(true).unwrap();
    while here.write(&[b'x'; 4096]).is_ok() {}
    while here.write(b"x").is_ok() {}
    assert!(reader.ping(id, 1));
    reader.send_pings(1);
    assert!(!reader.ping(id, 2));
    assert_eq!(reader.settle(id), b"{\"type\":\"ping\",\"seq\":1}\n");
    // It is somebody else's now.
    assert_eq!(reader.settle(id), b"");
    assert!(!all_that_came(&mut there).is_empty());
    assert!(reader.ping(id, 3));
    assert_eq!(reader.settle(id), b"");
    assert!(!reader.send_pings(10));
    let mut text = String::new();
    while let more @ 1.. = all_that_came(&mut there).len() {
        text = format!("{}", more);
    }
    assert!(!text.is_empty());
}

#[test]
fn pings_to_a_socket_that_is_gone_are_no_problem() {
    let (mut reader, _here, there, id) = reader_of_one();
    drop(there);
    assert!(reader.ping(id, 1));
    reader.send_pings(10);
    assert_eq!(reader.settle(id), b"");
    assert!(reader.ping(id, 2));
    reader.remove(id);
    assert!(!reader.send_pings(10) && !reader.ping(id, 3));
    assert_eq!(reader.settle(id), b"");
}

#[test]
fn a_thread_sends_pings_while_nothing_comes_and_rests_again() {
    let (here, there) = UnixStream::pair().unwrap();
    let mut thread = ReadingThread::new(1 << 20).unwrap();
    let id = thread.reader().add(here.as_raw_fd(), b"").unwrap();
    let mut lines = BufReader::new(there.try_clone().unwrap()).lines();
    for seq in 1..=20 {
        assert_eq!(thread.ping(&[id, id + 1], &[seq, seq]), [true, false]);
        let line = lines.next().unwrap().unwrap();
        assert_eq!(line, format!("{{\"type\":\"ping\",\"seq\":{}}}", seq));
        (&there).write_all(format!("{{\"type\":\"pong\",\"seq\":{}}}\n", seq).as_bytes()).unwrap();
        let until_ns = monotonic_ns() + 5_000_000_000;
        while !thread.reader().is_holding(id) && monotonic_ns() < until_ns {
            std::thread::yield_now();
        }
        thread.take_pongs();
        assert_eq!(thread.batch.events.len(), 1);
    }
}
