//! What the adapter knows of the power line: counters of real frames, and the delimiters that they stand for. Pure.
//!
//! Frames to one station are put together to one MPDU of at most 2 ms, as adapters do. Times are those of IEEE Std
//! 1901-2010.

use super::config::{Config, Station};

/// Preamble and frame control.
pub const DELIMITER_US: f64 = 110.48;
/// From the end of an exchange to the next.
pub const CONTENTION_SPACE_US: f64 = 100.0;
/// From the end of a payload to its acknowledgement.
pub const RESPONSE_SPACE_US: f64 = 140.0;
/// Unit of the frame length.
pub const LENGTH_UNIT_US: f64 = 1.28;
const MOST_PAYLOAD_US: f64 = 2000.0;
const BLOCK_BYTES: u64 = 512;
const BLOCK_BITS: f64 = 8.0 * 520.0;
const BEACON_NS: u64 = 40_000_000;
const FOREIGN_PAYLOAD_US: f64 = 2000.0;
const FOREIGN_TEIS: (u8, u8) = (200, 201);
/// Indications that wait for being sent; those beyond are lost, as an adapter's are.
const MOST_WAITING: usize = 4096;

/// Kinds of delimiter.
pub const BEACON: u8 = 0;
/// A data frame.
pub const START_OF_FRAME: u8 = 1;
/// The acknowledgement of a data frame.
pub const SELECTIVE_ACK: u8 = 2;

/// A delimiter to indicate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delimiter {
    /// One of the kinds above.
    pub kind: u8,
    /// Number of the sender.
    pub source: u8,
    /// Number of the receiver.
    pub destination: u8,
    /// Bit loading estimate, as mantissa and exponent.
    pub ble: u8,
    /// Payload and the space after it, in units of 1.28 us.
    pub length: u16,
}

/// Counters of one direction of a link.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// MPDUs that were acknowledged.
    pub mpdus: u64,
    /// Blocks that were decoded.
    pub blocks: u64,
    /// Blocks that were not.
    pub failed: u64,
}

#[derive(Debug, Clone, Default)]
struct Direction {
    counts: Counts,
    waiting_bytes: u64,
    errors: f64,
}

/// The line as this adapter sees it.
#[derive(Debug)]
pub struct Line {
    links: Vec<[Direction; 2]>,
    sniffing: bool,
    waiting: Vec<Delimiter>,
    foreign_share: f64,
    foreign_us: f64,
    last_ns: u64,
    beacon_ns: u64,
}

impl Line {
    /// A silent line at a time of the monotonic clock.
    pub fn new(config: &Config, now_ns: u64) -> Line {
        Line {
            links: vec![Default::default(); config.stations.len()],
            sniffing: false,
            waiting: Vec::new(),
            foreign_share: config.foreign_share,
            foreign_us: 0.0,
            last_ns: now_ns,
            beacon_ns: now_ns,
        }
    }

    /// Begins or ends indications.
    pub fn sniff(&mut self, on: bool) {
        self.sniffing = on;
        self.waiting.clear();
    }

    /// Whether something is indicated.
    pub fn sniffs(&self) -> bool {
        self.sniffing
    }

    /// Counters of the link to (`tx`) or from a station, by its place in the configuration.
    pub fn counts(&self, station: usize, tx: bool) -> Counts {
        self.links.get(station).map_or(Counts::default(), |link| link[usize::from(!tx)].counts)
    }

    /// A data frame of so many bytes went to (`tx`) or came from a station.
    pub fn carried(&mut self, config: &Config, station: usize, tx: bool, bytes: usize) {
        let (link, of) = match (self.links.get_mut(station), config.stations.get(station)) {
            (Some(link), Some(of)) => (link, of),
            _ => return,
        };
        let direction = &mut link[usize::from(!tx)];
        direction.waiting_bytes += bytes as u64;
        let us = direction.waiting_bytes as f64 / BLOCK_BYTES as f64 * BLOCK_BITS / rate(of, tx);
        if us >= MOST_PAYLOAD_US {
            self.flush(config, station, tx);
        }
    }

    /// Frames that waited for more are sent; delimiters of the time since the last call are indicated.
    pub fn advance(&mut self, config: &Config, now_ns: u64) {
        for station in 0..self.links.len() {
            self.flush(config, station, true);
            self.flush(config, station, false);
        }
        let passed_us = now_ns.saturating_sub(self.last_ns).min(1_000_000_000) as f64 / 1000.0;
        self.last_ns = now_ns;
        self.foreign_us += passed_us * self.foreign_share;
        let exchange_us = 2.0 * DELIMITER_US + FOREIGN_PAYLOAD_US + RESPONSE_SPACE_US + CONTENTION_SPACE_US;
        while self.foreign_us >= exchange_us {
            self.foreign_us -= exchange_us;
            self.exchange(FOREIGN_TEIS, 100.0, FOREIGN_PAYLOAD_US);
        }
        while now_ns.saturating_sub(self.beacon_ns) >= BEACON_NS {
            self.beacon_ns = if now_ns - self.beacon_ns > 25 * BEACON_NS { now_ns } else { self.beacon_ns + BEACON_NS };
            self.indicate(Delimiter { kind: BEACON, source: config.tei, destination: 0, ble: 0, length: 0 });
        }
    }

    /// The delimiters to indicate since the last call.
    pub fn indications(&mut self) -> Vec<Delimiter> {
        std::mem::take(&mut self.waiting)
    }

    fn flush(&mut self, config: &Config, station: usize, tx: bool) {
        let of = match config.stations.get(station) {
            Some(of) => of,
            None => return,
        };
        let direction = &mut self.links[station][usize::from(!tx)];
        if direction.waiting_bytes == 0 {
            return;
        }
        let blocks = (direction.waiting_bytes + BLOCK_BYTES - 1) / BLOCK_BYTES;
        direction.waiting_bytes = 0;
        direction.errors += blocks as f64 * of.block_errors;
        let failed = direction.errors as u64;
        direction.errors -= failed as f64;
        direction.counts.mpdus += 1;
        direction.counts.blocks += blocks;
        direction.counts.failed += failed;
        let ble = rate(of, tx);
        let teis = if tx { (config.tei, of.tei) } else { (of.tei, config.tei) };
        self.exchange(teis, ble, (blocks + failed) as f64 * BLOCK_BITS / ble);
    }

    fn exchange(&mut self, (source, destination): (u8, u8), ble_mbps: f64, payload_us: f64) {
        let length = ((payload_us + RESPONSE_SPACE_US) / LENGTH_UNIT_US).min(4095.0) as u16;
        let ble = ble_code(ble_mbps);
        self.indicate(Delimiter { kind: START_OF_FRAME, source, destination, ble, length });
        self.indicate(Delimiter { kind: SELECTIVE_ACK, source: destination, destination: source, ble: 0, length: 0 });
    }

    fn indicate(&mut self, delimiter: Delimiter) {
        if self.sniffing && self.waiting.len() < MOST_WAITING {
            self.waiting.push(delimiter);
        }
    }
}

/// PHY rate of a direction, at least that of the most robust modulation.
fn rate(station: &Station, tx: bool) -> f64 {
    f64::from(if tx { station.tx_mbps } else { station.rx_mbps }).max(4.0)
}

/// The mantissa and exponent whose bit loading estimate is closest.
pub fn ble_code(mbps: f64) -> u8 {
    let distance = |code: &u8| (ble_mbps(*code) - mbps).abs();
    (0..=u8::MAX).min_by(|a, b| distance(a).total_cmp(&distance(b))).unwrap_or(0)
}

/// The bit loading estimate of a mantissa and exponent, in Mb/s.
pub fn ble_mbps(code: u8) -> f64 {
    let (mantissa, exponent) = (f64::from(code >> 3), i32::from(code & 7));
    (32.0 + mantissa) * 2f64.powi(exponent - 4) + 2f64.powi(exponent - 5)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(more: &str) -> Config {
        Config::parse(&format!(
            r#"{{"mac": "00:0b:3b:aa:00:01", "tei": 1, {more} "stations": [
                {{"mac": "00:0b:3b:aa:00:02", "tei": 2, "tx_mbps": 100, "rx_mbps": 50, "block_errors": 0.1}}]}}"#
        ))
        .unwrap()
    }

    fn airtime_us(delimiters: &[Delimiter]) -> f64 {
        delimiters
            .iter()
            .map(|d| match d.kind {
                START_OF_FRAME => DELIMITER_US + f64::from(d.length) * LENGTH_UNIT_US,
                SELECTIVE_ACK => DELIMITER_US + CONTENTION_SPACE_US,
                _ => 0.0,
            })
            .sum()
    }

    #[test]
    fn counts_frames_as_blocks_and_indicates_their_airtime() {
        let config = config("");
        let mut line = Line::new(&config, 0);
        line.sniff(true);
        for _ in 0..100 {
            line.carried(&config, 0, true, 1514);
        }
        line.advance(&config, 1_000_000);
        let counts = line.counts(0, true);
        assert!((296..=320).contains(&counts.blocks), "{counts:?}");
        assert!((29..=32).contains(&counts.failed), "{counts:?}");
        let heard = line.indications();
        assert_eq!(heard.len() as u64, 2 * counts.mpdus);
        let wanted = (counts.blocks + counts.failed) as f64 * 41.6 + counts.mpdus as f64 * 460.96;
        assert!((airtime_us(&heard) - wanted).abs() < 1.28 * counts.mpdus as f64 + 1.0);
        assert_eq!(line.counts(0, false), Counts::default());
    }

    #[test]
    fn indicates_foreign_airtime_and_beacons() {
        let config = config(r#""foreign_share": 0.5,"#);
        let mut line = Line::new(&config, 0);
        line.sniff(true);
        for ms in (0..=1000).step_by(5) {
            line.advance(&config, ms * 1_000_000);
        }
        let heard = line.indications();
        assert!((airtime_us(&heard) - 500_000.0).abs() < 5_000.0);
        assert_eq!(heard.iter().filter(|d| d.kind == BEACON).count(), 25);
    }

    #[test]
    fn says_nothing_unless_switched_on_and_is_bounded() {
        let config = config(r#""foreign_share": 1,"#);
        let mut line = Line::new(&config, 0);
        line.advance(&config, 1_000_000_000);
        assert!(line.indications().is_empty());
        line.sniff(true);
        for s in 1..100 {
            line.advance(&config, s * 1_000_000_000);
        }
        assert_eq!(line.indications().len(), MOST_WAITING);
    }

    #[test]
    fn codes_of_bit_loading_are_close() {
        for mbps in [5.0, 50.0, 98.0, 132.0, 400.0] {
            assert!((ble_mbps(ble_code(mbps)) / mbps - 1.0).abs() < 0.02);
        }
    }
}
