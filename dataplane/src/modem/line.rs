//! What the adapter knows of the power line: counters of real frames, and the delimiters that they stand for. Pure.
//!
//! On a medium, airtime is what the medium reports: counters are of as many blocks as it carried and of as many MPDUs
//! as the rest of the airtime is the overhead of. Without one, frames to one station are put together to one MPDU of at
//! most 2 ms, as adapters do. Times are those of IEEE Std 1901-2010.

use super::config::{Config, Station};
use super::medium::{Air, Aired};

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
/// A beacon from its preamble to the next frame.
const BEACON_US: f64 = DELIMITER_US + 288.0 + CONTENTION_SPACE_US;
/// Share of time that beacons leave. What a line carries is measured beside its beacons, so a medium at its capacity is
/// as busy as this with frames.
const BESIDE_BEACONS: f64 = 1.0 - BEACON_US * 1e3 / BEACON_NS as f64;
/// What an MPDU takes besides its payload.
const OVERHEAD_US: f64 = 2.0 * DELIMITER_US + RESPONSE_SPACE_US + CONTENTION_SPACE_US;
const FOREIGN_TEIS: (u8, u8) = (200, 201);
const FOREIGN_MBPS: f64 = 100.0;
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
    /// Of a medium: blocks, MPDUs and airtime that are not yet whole, counted or indicated.
    blocks: f64,
    mpdus: f64,
    aired_us: f64,
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
        self.foreign(passed_us * self.foreign_share);
        while now_ns.saturating_sub(self.beacon_ns) >= BEACON_NS {
            self.beacon_ns = if now_ns - self.beacon_ns > 25 * BEACON_NS { now_ns } else { self.beacon_ns + BEACON_NS };
            self.indicate(Delimiter { kind: BEACON, source: config.tei, destination: 0, ble: 0, length: 0 });
        }
    }

    /// What a medium carried since the last call is counted and indicated.
    pub fn aired(&mut self, config: &Config, aired: &Aired) {
        let mut own_us = 0.0;
        for (station, pair) in aired.links.iter().enumerate() {
            for (air, tx) in pair.iter().zip([true, false]) {
                own_us += air.us;
                self.count_airtime(config, station, tx, air);
            }
        }
        self.foreign((aired.heard_us - own_us).max(0.0) * BESIDE_BEACONS);
    }

    fn count_airtime(&mut self, config: &Config, station: usize, tx: bool, air: &Air) {
        let (link, of) = match (self.links.get_mut(station), config.stations.get(station)) {
            (Some(link), Some(of)) => (link, of),
            _ => return,
        };
        let (direction, ble) = (&mut link[usize::from(!tx)], rate(of, tx));
        let blocks = air.us * air.capacity_mbps / (8 * BLOCK_BYTES) as f64;
        direction.blocks += blocks;
        direction.mpdus += ((air.us - blocks * BLOCK_BITS / ble) / OVERHEAD_US).max(0.0);
        direction.errors += blocks * of.block_errors;
        direction.counts.blocks += whole(&mut direction.blocks);
        direction.counts.mpdus += whole(&mut direction.mpdus);
        direction.counts.failed += whole(&mut direction.errors);
        direction.aired_us += air.us * BESIDE_BEACONS;
        let exchanges = exchanges(&mut direction.aired_us);
        self.exchanges(teis(config, of, tx), ble, exchanges);
    }

    /// A network of other people occupied the line for so long.
    fn foreign(&mut self, us: f64) {
        self.foreign_us += us;
        let exchanges = exchanges(&mut self.foreign_us);
        self.exchanges(FOREIGN_TEIS, FOREIGN_MBPS, exchanges);
    }

    fn exchanges(&mut self, teis: (u8, u8), ble_mbps: f64, count: u64) {
        for _ in 0..count {
            self.exchange(teis, ble_mbps, MOST_PAYLOAD_US);
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
        let failed = whole(&mut direction.errors);
        direction.counts.mpdus += 1;
        direction.counts.blocks += blocks;
        direction.counts.failed += failed;
        let ble = rate(of, tx);
        self.exchange(teis(config, of, tx), ble, (blocks + failed) as f64 * BLOCK_BITS / ble);
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

/// Takes the whole part out of a number.
fn whole(number: &mut f64) -> u64 {
    let found = number.clamp(0.0, 1e9) as u64;
    *number -= found as f64;
    found
}

/// Takes as many exchanges of full payload out of an airtime as it has room for.
fn exchanges(us: &mut f64) -> u64 {
    let length_us = MOST_PAYLOAD_US + OVERHEAD_US;
    let mut count = *us / length_us;
    let found = whole(&mut count);
    *us = count * length_us;
    found
}

/// Numbers of the sender and the receiver of a direction.
fn teis(config: &Config, station: &Station, tx: bool) -> (u8, u8) {
    if tx {
        (config.tei, station.tei)
    } else {
        (station.tei, config.tei)
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
                BEACON => BEACON_US,
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
        assert!((airtime_us(&heard) - 500_000.0 - 25.0 * BEACON_US).abs() < 5_000.0);
        assert_eq!(heard.iter().filter(|d| d.kind == BEACON).count(), 25);
    }

    #[test]
    fn airtime_of_a_medium_is_indicated_and_counted_whole() {
        let config = config("");
        let mut line = Line::new(&config, 0);
        line.sniff(true);
        // Two seconds: 30 % to the station, 10 % from it, 50 % of other people.
        for _ in 0..400 {
            let (to, from) = (Air { us: 1500.0, capacity_mbps: 59.2 }, Air { us: 500.0, capacity_mbps: 29.8 });
            line.aired(&config, &Aired { heard_us: 4500.0, links: vec![[to, from]] });
        }
        let heard = line.indications();
        assert!(heard.len() < MOST_WAITING && (airtime_us(&heard) - 1.8e6 * BESIDE_BEACONS).abs() < 10_000.0);
        let (to, from) = (line.counts(0, true), line.counts(0, false));
        assert_eq!((to.blocks, from.blocks), (8671, 1455));
        assert!((i64::try_from(to.failed).unwrap() - 867).abs() <= 1);
        let us = |counts: Counts, mbps: f64| counts.mpdus as f64 * 460.96 + counts.blocks as f64 * 4160.0 / mbps;
        assert!((us(to, 100.0) - 0.6e6).abs() < 1000.0 && (us(from, 50.0) - 0.2e6).abs() < 1000.0);
        let of = |source| heard.iter().filter(|d| d.kind == START_OF_FRAME && d.source == source).count();
        assert_eq!((of(1), of(2), of(200)), (240, 80, 401));
    }

    #[test]
    fn full_line_is_busy_all_of_the_time_with_its_beacons() {
        let config = config("");
        let mut line = Line::new(&config, 0);
        line.sniff(true);
        for ms in (5..=2000).step_by(5) {
            let (to, none) = (Air { us: 5000.0, capacity_mbps: 59.2 }, Air { us: 0.0, capacity_mbps: 29.8 });
            line.aired(&config, &Aired { heard_us: 5000.0, links: vec![[to, none]] });
            line.advance(&config, ms * 1_000_000);
        }
        let heard = line.indications();
        assert!((airtime_us(&heard) - 2e6).abs() < 5_000.0, "{}", airtime_us(&heard));
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
