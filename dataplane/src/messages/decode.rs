//! Frequent lines to numbers. Pure.
use super::scan::Scan;
use super::whole::{Flow, Whole, WholeReport, COLUMNS};

const CHANGES: &[u8] = b"{\"type\":\"changes\",";
const RADIO_CHANGES: &[u8] = b"{\"type\":\"radio-changes\",";
const REPORT: &[u8] = b"{\"type\":\"report\",";
/// By side: the columns of its flows, and of their paths.
const OF_FLOWS: [[&[u8]; COLUMNS]; 2] =
    [[b"queued", b"queued_bytes", b"dropped"], [b"delivered_bytes", b"delivered_frames", b"lost"]];
const OF_PATHS: [[&[u8]; COLUMNS]; 2] =
    [[b"sent_bytes", b"sent_frames", b"rate_mbps"], [b"received_bytes", b"received_frames", b"delay_ms"]];
/// What is no counter: with another one of these a line says something else.
const NO_COUNTERS: [&[u8]; 4] = [b"number", b"id", b"revision", b"seq"];
/// Counters of a reading; its neighbours' numbers are left to Python.
const RADIO_COUNTERS: [&[u8]; 3] = [b"time_s", b"busy_us", b"active_us"];
/// As `MAX_COUNTER` and `_number` of `agents/telemetry.py` bound it; counters beyond 2^53 are left to Python.
const MOST_TIME_S: f64 = 1e15;

/// What a line is, by its beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Changes,
    RadioChanges,
    Other,
}

/// What a line is; two of one kind that is not `Other` replace each other.
pub fn kind(line: &[u8]) -> Kind {
    if line.starts_with(CHANGES) {
        Kind::Changes
    } else if line.starts_with(RADIO_CHANGES) {
        Kind::RadioChanges
    } else {
        Kind::Other
    }
}

/// Whether a line may be a whole report or reading, however it is spelled: then changes refer to something else.
pub fn may_be_whole(line: &[u8]) -> bool {
    let has = |part: &[u8]| line.windows(part.len()).any(|window| window == part);
    line.contains(&b'\\') || has(b"report") || has(b"radio\"")
}

/// An answer to a ping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pong {
    pub seq: u64,
    /// The greatest epoch that was named to the device, if one was.
    pub epoch: Option<u64>,
    /// It has said nothing but its number.
    pub is_bare: bool,
}

/// A pong, as devices write it.
pub fn pong(line: &[u8]) -> Option<Pong> {
    let mut scan = Scan::new(line);
    scan.expect(b'{')?;
    if scan.name()? != b"type" || scan.text()? != b"pong" {
        return None;
    }
    scan.expect(b',')?;
    if scan.name()? != b"seq" {
        return None;
    }
    let mut found = Pong { seq: scan.whole()?, epoch: None, is_bare: true };
    let mut has_heard = false;
    while !scan.takes(b'}') {
        found.is_bare = false;
        scan.expect(b',')?;
        match scan.name()? {
            b"epoch" if found.epoch.is_none() => found.epoch = Some(scan.whole()?),
            b"heard_ms" if !std::mem::replace(&mut has_heard, true) => {
                scan.number_or_null()?;
            }
            _ => return None,
        }
    }
    at_end(scan, found)
}

fn at_end<T>(mut scan: Scan, value: T) -> Option<T> {
    if scan.is_at_end() {
        Some(value)
    } else {
        None
    }
}

/// A whole report or reading that is, but for counters, written as the last one that Python has checked (`known`):
/// appends its time, and all columns, as `changes` does. On None `into` may have been appended to.
pub fn again(line: &[u8], known: &[u8], whole: &Whole, into: &mut Vec<f64>) -> Option<()> {
    match whole {
        Whole::Report(whole) => {
            let rest = line.strip_prefix(REPORT)?;
            numbers_that_differ(line, known, |name| !NO_COUNTERS.contains(&name))?;
            report(rest, whole, into, true)
        }
        Whole::Reading(technologies) => {
            numbers_that_differ(line, known, |name| RADIO_COUNTERS.contains(&name))?;
            whole_reading(line, technologies.len(), into)
        }
        Whole::Unknown => None,
    }
}

/// Calls `each` with the name and the text of each number of a line whose texts have no escapes.
fn each_number<'a>(line: &'a [u8], mut each: impl FnMut(&'a [u8], &'a [u8]) -> Option<()>) -> Option<()> {
    let (mut at, mut name): (usize, &[u8]) = (0, b"");
    while let Some(&c) = line.get(at) {
        let rest = &line[at..];
        at += match c {
            b'"' => {
                name = Scan::new(rest).text()?;
                name.len() + 2
            }
            b'-' | b'0'..=b'9' => {
                let length = number_length(rest);
                each(name, &rest[..length])?;
                length
            }
            _ => 1,
        };
    }
    Some(())
}

fn number_length(text: &[u8]) -> usize {
    text.iter().position(|c| !matches!(c, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E')).unwrap_or(text.len())
}

/// Whether two lines are the same but for numbers whose names `may_differ`.
fn numbers_that_differ(line: &[u8], known: &[u8], may_differ: impl Fn(&[u8]) -> bool) -> Option<()> {
    let (mut at, mut place): (usize, usize) = (0, 0);
    let mut name: &[u8] = b"";
    while at < line.len() && place < known.len() {
        let (rest, other) = (&line[at..], &known[place..]);
        match (rest[0], other[0]) {
            (b'"', b'"') => {
                let text = Scan::new(rest).text()?;
                let length = text.len() + 2;
                if other.get(..length)? != &rest[..length] {
                    return None;
                }
                name = text;
                at += length;
                place += length;
            }
            (b'-' | b'0'..=b'9', b'-' | b'0'..=b'9') => {
                let (length, before) = (number_length(rest), number_length(other));
                if rest[..length] != other[..before] {
                    let mut scan = Scan::new(&rest[..length]);
                    scan.number()?;
                    if !(scan.is_at_end() && may_differ(name)) {
                        return None;
                    }
                }
                at += length;
                place += before;
            }
            (now, before) if now == before => {
                at += 1;
                place += 1;
            }
            _ => return None,
        }
    }
    if at == line.len() && place == known.len() {
        Some(())
    } else {
        None
    }
}

/// Time and counters of a whole reading, if they are named in the order in which devices write them.
fn whole_reading(line: &[u8], interfaces: usize, into: &mut Vec<f64>) -> Option<()> {
    let from = into.len();
    each_number(line, |name, text| {
        let place = RADIO_COUNTERS.iter().position(|&known| known == name);
        if let Some(place) = place {
            let count = into.len() - from;
            let wanted = if count == 0 { 0 } else { 2 - count % 2 };
            let mut scan = Scan::new(text);
            let value = if place == 0 { scan.number()? } else { scan.whole()? as f64 };
            let is_time = place != 0 || (0.0..=MOST_TIME_S).contains(&value);
            if place != wanted || !is_time || !scan.is_at_end() {
                return None;
            }
            into.push(value);
        }
        Some(())
    })?;
    if into.len() - from == 1 + 2 * interfaces {
        Some(())
    } else {
        None
    }
}

/// A message of changes: appends its time, and the columns of what it refers to with what has changed. On None `into`
/// may have been appended to.
pub fn changes(line: &[u8], whole: &Whole, into: &mut Vec<f64>) -> Option<()> {
    match (kind(line), whole) {
        (Kind::Changes, Whole::Report(whole)) => report(&line[CHANGES.len()..], whole, into, false),
        (Kind::RadioChanges, Whole::Reading(technologies)) => reading(&line[RADIO_CHANGES.len()..], technologies, into),
        _ => None,
    }
}

/// Of a whole report (`is_whole`) it is known that all else is as Python has checked it.
fn report(rest: &[u8], whole: &WholeReport, into: &mut Vec<f64>, is_whole: bool) -> Option<()> {
    let from = into.len();
    into.push(f64::NAN);
    into.extend_from_slice(&whole.values);
    let values = into.get_mut(from..)?;
    let mut scan = Scan::new(rest);
    let mut told = [false; 2];
    loop {
        match scan.name()? {
            b"time_s" => values[0] = scan.number()?,
            b"ingress" => side(&mut scan, 0, whole, &mut told, &mut values[1..])?,
            b"egress" => side(&mut scan, 1, whole, &mut told, &mut values[1..])?,
            b"unclassified" | b"malformed" | b"forged" | b"replayed" | b"cpu_s" | b"revision" => {
                scan.number_or_null()?;
            }
            _ if is_whole => scan.skip()?,
            _ => return None,
        }
        if scan.takes(b'}') {
            break;
        }
        scan.expect(b',')?;
    }
    if values[0].is_nan() {
        return None;
    }
    at_end(scan, ())
}

fn side(scan: &mut Scan, side: usize, whole: &WholeReport, told: &mut [bool; 2], values: &mut [f64]) -> Option<()> {
    if std::mem::replace(&mut told[side], true) {
        return None;
    }
    let mut seen: Vec<u64> = Vec::new();
    scan.members(b'[', b']', |scan| {
        scan.expect(b'{')?;
        // Devices name the number first, so that what follows has its place.
        if scan.name()? != b"number" {
            return None;
        }
        let number = scan.whole()?;
        let flow = whole.flow(side, number)?;
        if seen.contains(&number) {
            return None;
        }
        seen.push(number);
        flow_members(scan, side, flow, whole, values)
    })
}

fn flow_members(scan: &mut Scan, side: usize, flow: &Flow, whole: &WholeReport, values: &mut [f64]) -> Option<()> {
    let mut has_paths = false;
    while !scan.takes(b'}') {
        scan.expect(b',')?;
        let name = scan.name()?;
        match name {
            b"number" => return None,
            b"paths" if has_paths => return None,
            b"paths" => {
                has_paths = true;
                paths(scan, side, flow, whole, values)?;
                continue;
            }
            _ => (),
        }
        let value = scan.number_or_null()?;
        if let Some(column) = OF_FLOWS[side].iter().position(|&known| known == name) {
            *values.get_mut(whole.first_of_flows(side) + column * whole.flows[side] + flow.at)? = value;
        }
    }
    Some(())
}

fn paths(scan: &mut Scan, side: usize, flow: &Flow, whole: &WholeReport, values: &mut [f64]) -> Option<()> {
    let mut seen: Vec<u64> = Vec::new();
    let first = whole.first_of_paths(side);
    scan.members(b'[', b']', |scan| {
        scan.expect(b'{')?;
        if scan.name()? != b"id" {
            return None;
        }
        let id = scan.whole()?;
        let &(_, row) = flow.paths.iter().find(|&&(known, _)| known == id)?;
        if seen.contains(&id) {
            return None;
        }
        seen.push(id);
        while !scan.takes(b'}') {
            scan.expect(b',')?;
            let name = scan.name()?;
            if name == b"id" {
                return None;
            }
            let value = scan.number_or_null()?;
            if let Some(column) = OF_PATHS[side].iter().position(|&known| known == name) {
                *values.get_mut(first + column * whole.paths[side] + row)? = value;
            }
        }
        Some(())
    })
}

/// The time, then busy and active microseconds of each interface.
fn reading(rest: &[u8], technologies: &[Vec<u8>], into: &mut Vec<f64>) -> Option<()> {
    let mut scan = Scan::new(rest);
    if scan.name()? != b"time_s" {
        return None;
    }
    let time_s = scan.number()?;
    if !(0.0..=MOST_TIME_S).contains(&time_s) {
        return None;
    }
    into.push(time_s);
    scan.expect(b',')?;
    if scan.name()? != b"interfaces" {
        return None;
    }
    let mut told = technologies.iter();
    scan.members(b'[', b']', |scan| {
        scan.expect(b'{')?;
        if scan.name()? != b"technology" || scan.text()? != told.next()?.as_slice() {
            return None;
        }
        for wanted in [b"busy_us".as_slice(), b"active_us"] {
            scan.expect(b',')?;
            if scan.name()? != wanted {
                return None;
            }
            into.push(scan.whole()? as f64);
        }
        scan.expect(b'}')
    })?;
    scan.expect(b'}')?;
    if told.next().is_some() {
        return None;
    }
    at_end(scan, ())
}
