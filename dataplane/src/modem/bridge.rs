//! Which addresses are behind which adapter, and the frames in which adapters carry Ethernet frames over the line. Pure.

use super::config::Station;
use crate::sys::interface::Mac;
use std::collections::HashMap;

/// EtherType of frames from adapter to adapter (IEEE 802: for local experiments).
pub const ON_LINE: [u8; 2] = [0x88, 0xb5];
/// Bytes that a frame has more on the line.
pub const HEADER: usize = 14;
const ETHERNET_HEADER: usize = 14;
const GROUP: Mac = [0xff; 6];
/// Addresses that are kept; one more makes the adapter forget all, and learn them again.
const MOST_ADDRESSES: usize = 1024;

/// Where an address is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// At the host's port.
    Inside,
    /// Behind a station, by its place in the configuration.
    Station(usize),
}

/// A frame from the line.
#[derive(Debug, PartialEq, Eq)]
pub struct Received<'a> {
    /// The station that sent it; None: one that is not in the configuration.
    pub station: Option<usize>,
    /// The Ethernet frame in it.
    pub inner: &'a [u8],
}

/// What the adapter has learned of addresses, from the senders of frames.
#[derive(Debug, Default)]
pub struct Bridge {
    places: HashMap<Mac, Place>,
}

impl Bridge {
    /// A frame of an address came from a place.
    pub fn learn(&mut self, frame: &[u8], place: Place) {
        let source: Mac = match frame.get(6..12).and_then(|mac| mac.try_into().ok()) {
            Some(source) => source,
            None => return,
        };
        if source[0] & 1 == 1 {
            return;
        }
        if self.places.len() >= MOST_ADDRESSES && !self.places.contains_key(&source) {
            self.places.clear();
        }
        self.places.insert(source, place);
    }

    /// The place of a frame's receiver; None: a group, or not known.
    pub fn place(&self, frame: &[u8]) -> Option<Place> {
        let destination: Mac = frame.get(..6)?.try_into().ok()?;
        self.places.get(&destination).copied()
    }
}

/// The frame on the line that carries an Ethernet frame to a station, or to all (None).
pub fn wrap(own: Mac, to: Option<&Station>, inner: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(HEADER + inner.len());
    frame.extend(to.map_or(GROUP, |station| station.mac));
    frame.extend(own);
    frame.extend(ON_LINE);
    frame.extend(inner);
    frame
}

/// The Ethernet frame in a frame from the line; None if it is not for this adapter, or not a frame between adapters.
pub fn unwrap<'a>(own: Mac, stations: &[Station], frame: &'a [u8]) -> Option<Received<'a>> {
    let (destination, source) = (frame.get(..6)?, frame.get(6..12)?);
    let inner = frame.get(HEADER..)?;
    if frame[12..14] != ON_LINE || (destination != own && destination != GROUP) || inner.len() < ETHERNET_HEADER {
        return None;
    }
    Some(Received { station: stations.iter().position(|station| station.mac == source), inner })
}

#[cfg(test)]
mod tests {
    use super::super::config::Config;
    use super::*;

    const OWN: Mac = [0, 0x0b, 0x3b, 0xaa, 0, 1];

    fn stations() -> Vec<Station> {
        let text = r#"{"mac": "00:0b:3b:aa:00:01", "tei": 1, "stations": [
            {"mac": "00:0b:3b:aa:00:02", "tei": 2, "tx_mbps": 100, "rx_mbps": 50}]}"#;
        Config::parse(text).unwrap().stations
    }

    fn frame(destination: u8, source: u8) -> Vec<u8> {
        [[2, 0, 0, 0, 0, destination], [2, 0, 0, 0, 0, source]].concat().into_iter().chain([8, 0, 1, 2]).collect()
    }

    #[test]
    fn frames_cross_the_line_unchanged_and_only_to_whom_they_are_for() {
        let stations = stations();
        let inner = frame(1, 2);
        let sent = wrap(stations[0].mac, None, &inner);
        assert_eq!(unwrap(OWN, &stations, &sent), Some(Received { station: Some(0), inner: &inner }));
        let to_other = wrap(OWN, Some(&stations[0]), &inner);
        assert_eq!(unwrap(OWN, &stations, &to_other), None);
        assert_eq!(unwrap(stations[0].mac, &[], &to_other), Some(Received { station: None, inner: &inner }));
        assert!((0..HEADER + ETHERNET_HEADER).all(|n| unwrap(OWN, &stations, &sent[..n]).is_none()));
        assert_eq!(unwrap(OWN, &stations, &inner), None);
    }

    #[test]
    fn learns_where_senders_are_and_forgets_before_it_grows_too_large() {
        let mut bridge = Bridge::default();
        bridge.learn(&frame(1, 2), Place::Inside);
        bridge.learn(&frame(2, 1), Place::Station(0));
        assert_eq!(bridge.place(&frame(2, 9)), Some(Place::Inside));
        assert_eq!(bridge.place(&frame(1, 9)), Some(Place::Station(0)));
        assert_eq!(bridge.place(&frame(7, 9)), None);
        bridge.learn(&[0xff; 14], Place::Inside);
        assert_eq!(bridge.place(&[0xff; 14]), None);
        for i in 0..5000u16 {
            let [high, low] = i.to_be_bytes();
            bridge.learn(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 1, high, low], Place::Inside);
            assert!(bridge.places.len() <= MOST_ADDRESSES);
        }
    }
}
