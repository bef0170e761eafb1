//! Answers to management messages, as bytes. Pure: layouts are those that Debian's plc-utils read.

use super::config::{Config, Station};
use super::line::{Counts, Delimiter, Line};
use crate::sys::interface::Mac;

/// EtherType of management messages.
pub const ETHER_TYPE: [u8; 2] = [0x88, 0xe1];
/// Qualcomm's adapters answer to this address at their own port.
pub const LOCAL: Mac = [0x00, 0xb0, 0x52, 0x00, 0x00, 0x01];
const BROADCAST: Mac = [0xff; 6];
const OUI: [u8; 3] = [0x00, 0xb0, 0x52];
const DISCOVER_LIST: u16 = 0x0014;
const NETWORK_STATS: u16 = 0x6048;
const VERSION: u16 = 0xa000;
const LINK_STATS: u16 = 0xa030;
const SNIFFER: u16 = 0xa034;
const NETWORK_INFO: u16 = 0xa038;
const TONE_MAP: u16 = 0xa070;
const CONFIRM: u16 = 1;
const INDICATE: u16 = 2;
const LEAST_FRAME: usize = 60;
/// Bytes of a message in one fragment.
const FRAGMENT: usize = 1400;
const NETWORK_ID: [u8; 7] = [0x48, 0x79, 0x52, 0x6f, 0x61, 0x64, 0x01];
const SNID: u8 = 1;
const SLOTS: u8 = 6;
/// Bits of a carrier by its code.
const BITS: [u32; 9] = [0, 1, 2, 3, 4, 6, 8, 10, 12];
const SYMBOL_US: f64 = 40.96 + 5.56;
const CODE_RATE: f64 = 16.0 / 21.0;
const INVALID_ADDRESS: u8 = 0x20;
const UNKNOWN_ADDRESS: u8 = 0x01;
const UNKNOWN_SLOT: u8 = 0x02;

/// Where a management message goes.
#[derive(Debug, PartialEq, Eq)]
pub enum Course {
    /// Not a management message, or one for another adapter: it is bridged.
    Bridge,
    /// It ends here; these are the answers.
    Answered(Vec<Vec<u8>>),
    /// It is for all adapters: answered and bridged.
    Both(Vec<Vec<u8>>),
}

/// A request as it came in.
struct Request<'a> {
    source: Mac,
    version: u8,
    kind: u16,
    body: &'a [u8],
}

/// What becomes of a frame; `inside`: it comes from the host's port. Switches the sniffer as a side effect.
pub fn course(config: &Config, line: &mut Line, frame: &[u8], inside: bool) -> Course {
    let (destination, request) = match parse(frame) {
        Some(parsed) => parsed,
        None => return Course::Bridge,
    };
    if destination == config.mac || (inside && destination == LOCAL) {
        return Course::Answered(answers(config, line, &request));
    }
    if destination == BROADCAST && inside {
        return Course::Both(answers(config, line, &request));
    }
    let stands_in = |s: &Station| s.answer_version && s.mac == destination && request.kind == VERSION;
    match config.stations.iter().find(|s| inside && stands_in(s)) {
        Some(station) if config.qualcomm => Course::Answered(vec![version(config, &request, station.mac)]),
        _ if destination == LOCAL => Course::Answered(Vec::new()),
        _ => Course::Bridge,
    }
}

/// An indication of a delimiter, to the host that switched the sniffer on.
pub fn indication(config: &Config, to: Mac, delimiter: &Delimiter, time_us: u64) -> Vec<u8> {
    let mut body = OUI.to_vec();
    body.extend([0, 0]);
    body.extend(time_us.to_le_bytes());
    body.extend((time_us as u32).to_le_bytes());
    let mut control = [0u8; 16];
    let length = delimiter.length & 0x0fff;
    control[0] = delimiter.kind & 7 | SNID << 4;
    control[1..4].copy_from_slice(&[delimiter.source, delimiter.destination, 1]);
    control[6] = delimiter.ble;
    control[8..10].copy_from_slice(&length.to_le_bytes());
    body.extend(control);
    body.extend([0u8; 16]);
    frame(to, config.mac, 0, SNIFFER + INDICATE, 0, &body)
}

fn parse(frame: &[u8]) -> Option<(Mac, Request<'_>)> {
    if frame.get(12..14)? != ETHER_TYPE {
        return None;
    }
    let (destination, source) = (frame.get(..6)?.try_into().ok()?, frame.get(6..12)?.try_into().ok()?);
    let version = *frame.get(14)?;
    let kind = u16::from_le_bytes(frame.get(15..17)?.try_into().ok()?);
    let body = frame.get(if version == 0 { 17 } else { 19 }..)?;
    Some((destination, Request { source, version, kind, body }))
}

fn answers(config: &Config, line: &mut Line, request: &Request) -> Vec<Vec<u8>> {
    match request.kind {
        NETWORK_STATS => network_stats(config, request),
        DISCOVER_LIST => message(config, request, &discover_list(config)),
        _ if !config.qualcomm || request.body.get(..3) != Some(&OUI) => Vec::new(),
        VERSION => vec![version(config, request, config.mac)],
        NETWORK_INFO => message(config, request, &network_info(config)),
        LINK_STATS => message(config, request, &link_stats(config, line, &request.body[3..])),
        TONE_MAP => message(config, request, &tone_map(config, &request.body[3..])),
        SNIFFER if config.sniffer => {
            let on = request.body.get(3) == Some(&1);
            line.sniff(on);
            let mut body = OUI.to_vec();
            body.extend([0, u8::from(on)]);
            body.extend([0u8; 10]);
            message(config, request, &body)
        }
        _ => Vec::new(),
    }
}

/// The confirmation of a request, in fragments if it has to be.
fn message(config: &Config, request: &Request, body: &[u8]) -> Vec<Vec<u8>> {
    let kind = request.kind + CONFIRM;
    let parts: Vec<&[u8]> = body.chunks(FRAGMENT).collect();
    if request.version == 0 || parts.len() <= 1 {
        let body = body.get(..FRAGMENT).unwrap_or(body);
        return vec![frame(request.source, config.mac, request.version, kind, 0, body)];
    }
    let last = (parts.len() - 1).min(15) as u8;
    let numbered = (0..=last).zip(parts);
    numbered.map(|(i, part)| frame(request.source, config.mac, request.version, kind, last << 4 | i, part)).collect()
}

fn frame(to: Mac, from: Mac, version: u8, kind: u16, fragment: u8, body: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(LEAST_FRAME.max(19 + body.len()));
    frame.extend(to);
    frame.extend(from);
    frame.extend(ETHER_TYPE);
    frame.push(version);
    frame.extend(kind.to_le_bytes());
    if version != 0 {
        frame.extend([fragment, 0]);
    }
    frame.extend(body);
    if frame.len() < LEAST_FRAME {
        frame.resize(LEAST_FRAME, 0);
    }
    frame
}

fn network_stats(config: &Config, request: &Request) -> Vec<Vec<u8>> {
    if request.version == 0 {
        return Vec::new();
    }
    let mut body = vec![config.stations.len() as u8];
    for station in &config.stations {
        body.extend(station.mac);
        for rate in [station.tx_mbps, station.rx_mbps] {
            match request.version {
                1 => body.push(rate.min(255) as u8),
                _ => body.extend(rate.to_le_bytes()),
            }
        }
    }
    message(config, request, &body)
}

fn discover_list(config: &Config) -> Vec<u8> {
    let mut body = vec![config.stations.len() as u8];
    for station in &config.stations {
        body.extend(station.mac);
        body.extend([station.tei, 1, SNID, 0, 1, station.tx_mbps.min(255) as u8]);
    }
    body.push(1);
    body.extend(NETWORK_ID);
    body.extend([SNID, 0, 0, 1, 0, 0]);
    body
}

fn version(config: &Config, request: &Request, of: Mac) -> Vec<u8> {
    let mut text = config.firmware.as_bytes().to_vec();
    text.push(0);
    let length = text.len() as u8;
    text.resize(65, 0);
    text.extend(config.ident.to_le_bytes());
    text.resize(254, 0);
    let mut body = OUI.to_vec();
    body.extend([0, config.device, length]);
    body.extend(text);
    frame(request.source, of, request.version, VERSION + CONFIRM, 0, &body)
}

fn network_info(config: &Config) -> Vec<u8> {
    let coordinator = config.stations.iter().map(|s| (s.tei, s.mac)).chain([(config.tei, config.mac)]).min();
    let (tei, mac) = coordinator.unwrap_or((config.tei, config.mac));
    let mut data = vec![0, 1];
    data.extend(NETWORK_ID);
    data.extend([0, 0, SNID, config.tei, 0, 0, 0, 0, if mac == config.mac { 2 } else { 0 }]);
    data.extend(mac);
    data.extend([tei, 0, 0, 0, config.stations.len() as u8, 0, 0, 0, 0, 0]);
    for station in &config.stations {
        data.extend(station.mac);
        data.extend([station.tei, 0, 0, 0]);
        data.extend(station.behind);
        data.extend(station.tx_mbps.to_le_bytes());
        data.extend([0, 0]);
        data.extend(station.rx_mbps.to_le_bytes());
        data.extend([0, 0]);
    }
    let mut body = OUI.to_vec();
    body.extend([0, 0]);
    body.extend((data.len() as u16).to_le_bytes());
    body.extend(data);
    body
}

fn link_stats(config: &Config, line: &Line, asked: &[u8]) -> Vec<u8> {
    let mut body = OUI.to_vec();
    let (direction, link) = match asked.get(1..3) {
        Some(&[direction, link]) => (direction, link),
        _ => (0xff, 0),
    };
    let found = asked.get(3..9).and_then(|mac| config.stations.iter().position(|s| s.mac == mac));
    let station = match found {
        Some(station) if direction <= 2 => station,
        _ => {
            body.extend([if direction > 2 { 2 } else { INVALID_ADDRESS }, direction, link, 0]);
            return body;
        }
    };
    body.extend([0, direction, link, config.stations[station].tei]);
    if direction != 1 {
        let Counts { mpdus, blocks, failed } = line.counts(station, true);
        for number in [mpdus, 0, 0, blocks, failed] {
            body.extend(number.to_le_bytes());
        }
    }
    if direction != 0 {
        let Counts { mpdus, blocks, failed } = line.counts(station, false);
        for number in [mpdus, 0, blocks, failed, 0, 0] {
            body.extend(number.to_le_bytes());
        }
        body.push(0);
    }
    body
}

fn tone_map(config: &Config, asked: &[u8]) -> Vec<u8> {
    let mut body = OUI.to_vec();
    let station = asked.get(4..10).and_then(|mac| config.stations.iter().find(|s| s.mac == mac));
    let (station, slot) = match (station, asked.get(10)) {
        (Some(station), Some(&slot)) if slot < SLOTS => (station, slot),
        (None, _) => {
            body.extend([UNKNOWN_ADDRESS, 0, 0, 0]);
            return body;
        }
        _ => {
            body.extend([UNKNOWN_SLOT, 0, 0, 0]);
            return body;
        }
    };
    let codes = carrier_codes(f64::from(station.tx_mbps), usize::from(config.carriers));
    let packed = codes.chunks(2).map(|pair| pair[0] | pair.get(1).unwrap_or(&0) << 4);
    let length = 24 + (codes.len() + 1) / 2;
    body.extend([0, 0]);
    body.extend((length as u16).to_le_bytes());
    body.extend([0, 0]);
    body.extend(station.mac);
    body.extend([slot, 0, SLOTS, 0]);
    for number in [config.carriers, 0, config.carriers, 0, 0, 0] {
        body.extend(number.to_le_bytes());
    }
    body.extend(packed);
    body
}

/// Codes of modulation whose bits come closest to a bit loading estimate in Mb/s.
fn carrier_codes(ble_mbps: f64, carriers: usize) -> Vec<u8> {
    let mut left = (ble_mbps * SYMBOL_US / CODE_RATE).round().max(0.0) as u32;
    let mut codes = Vec::with_capacity(carriers);
    for i in 0..carriers {
        let share = left / (carriers - i) as u32 + u32::from(left % (carriers - i) as u32 > 0);
        let code = BITS.iter().rposition(|&bits| bits <= share).unwrap_or(0);
        left -= BITS[code].min(left);
        codes.push(code as u8);
    }
    codes
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: Mac = [2, 0, 1, 2, 0, 1];

    fn config(stations: usize) -> Config {
        let rows: Vec<String> = (0..stations)
            .map(|i| {
                let tei = i + 2;
                format!(r#"{{"mac": "00:0b:3b:aa:00:{tei:02x}", "tei": {tei}, "tx_mbps": 300, "rx_mbps": 98}}"#)
            })
            .collect();
        let text = format!(r#"{{"mac": "00:0b:3b:aa:00:01", "tei": 1, "stations": [{}]}}"#, rows.join(","));
        Config::parse(&text).unwrap()
    }

    fn asked(to: Mac, version: u8, kind: u16, body: &[u8]) -> Vec<u8> {
        frame(to, HOST, version, kind, 0, body)
    }

    fn one(config: &Config, request: &[u8]) -> Vec<u8> {
        match course(config, &mut Line::new(config, 0), request, true) {
            Course::Answered(mut frames) => frames.remove(0),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn answers_what_is_for_it_and_bridges_all_else() {
        let config = config(1);
        let mut line = Line::new(&config, 0);
        let request = asked(LOCAL, 1, NETWORK_STATS, &[]);
        assert!(matches!(course(&config, &mut line, &request, true), Course::Answered(f) if f.len() == 1));
        // Another host's question to its own adapter does not cross the line.
        assert_eq!(course(&config, &mut line, &request, false), Course::Answered(Vec::new()));
        let request = asked(BROADCAST, 1, NETWORK_STATS, &[]);
        assert!(matches!(course(&config, &mut line, &request, true), Course::Both(f) if f.len() == 1));
        let request = asked(config.stations[0].mac, 0, VERSION, &OUI);
        assert_eq!(course(&config, &mut line, &request, true), Course::Bridge);
        assert_eq!(course(&config, &mut line, &[0; 60], true), Course::Bridge);
    }

    #[test]
    fn rates_have_one_byte_in_version_1_and_two_in_version_2() {
        let config = config(1);
        assert_eq!(one(&config, &asked(LOCAL, 1, NETWORK_STATS, &[]))[19..28], [1, 0, 0x0b, 0x3b, 0xaa, 0, 2, 255, 98]);
        assert_eq!(one(&config, &asked(LOCAL, 2, NETWORK_STATS, &[]))[26..30], [44, 1, 98, 0]);
    }

    #[test]
    fn counters_are_of_the_station_that_is_named() {
        let config = config(2);
        let mut line = Line::new(&config, 0);
        line.carried(&config, 1, true, 1024);
        line.advance(&config, 1);
        let body = [&OUI[..], &[0, 0, 0xf8], &config.stations[1].mac].concat();
        let frames = match course(&config, &mut line, &asked(LOCAL, 0, LINK_STATS, &body), true) {
            Course::Answered(frames) => frames,
            other => panic!("{other:?}"),
        };
        assert_eq!(frames[0][20..24], [0, 0, 0xf8, 3]);
        assert_eq!(frames[0][24..32], 1u64.to_le_bytes());
        assert_eq!(frames[0][48..56], 2u64.to_le_bytes());
        let unknown = [&OUI[..], &[0, 0, 0xf8], &[9; 6]].concat();
        assert_eq!(one(&config, &asked(LOCAL, 0, LINK_STATS, &unknown))[20], INVALID_ADDRESS);
    }

    #[test]
    fn long_answers_are_fragments() {
        let config = config(254);
        let request = asked(LOCAL, 1, NETWORK_INFO, &OUI);
        let frames = match course(&config, &mut Line::new(&config, 0), &request, true) {
            Course::Answered(frames) => frames,
            other => panic!("{other:?}"),
        };
        assert_eq!(frames.iter().map(|f| f[17]).collect::<Vec<_>>(), [0x40, 0x41, 0x42, 0x43, 0x44]);
        assert_eq!(frames.iter().map(|f| f.len() - 19).sum::<usize>(), 7 + 34 + 254 * 24);
        assert!(frames.iter().all(|f| f.len() <= 1514));
    }

    #[test]
    fn tone_maps_carry_the_rate() {
        for mbps in [0.0, 20.0, 98.0, 132.0] {
            let codes = carrier_codes(mbps, 1155);
            let bits: u32 = codes.iter().map(|&code| BITS[usize::from(code)]).sum();
            assert!((f64::from(bits) * CODE_RATE / SYMBOL_US - mbps).abs() < 0.2, "{mbps}");
        }
    }

    #[test]
    fn any_frame_is_safe() {
        let config = config(3);
        let mut rng = crate::rng::Rng::new(1);
        for _ in 0..20_000 {
            let kind =
                [NETWORK_STATS, DISCOVER_LIST, VERSION, LINK_STATS, SNIFFER, NETWORK_INFO, TONE_MAP][rng.below(7)];
            let body: Vec<u8> = (0..rng.below(24)).map(|_| rng.bits() as u8).collect();
            let body = if rng.below(2) == 0 { body } else { [&OUI[..], &body].concat() };
            let mut request = asked(LOCAL, rng.below(3) as u8, kind, &body);
            request.truncate(14 + rng.below(40));
            course(&config, &mut Line::new(&config, 0), &request, rng.below(2) == 0);
        }
    }
}
