//! Frames in the medium, of Ethernet and of 802.11, and what the radio that sent one is told of it.

use super::dot11;
use std::ops::Deref;

/// Bytes of the Ethernet header, which count neither as payload nor as airtime.
const ETHERNET_HEADER: usize = 14;

/// A frame: of Ethernet from a TAP device, or of 802.11 from a radio.
#[derive(Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Frame {
    /// All of it, from the first byte of its header on.
    pub bytes: Vec<u8>,
    /// Of a frame of a radio: by what its sender knows it.
    pub air: Option<Air>,
}

/// What belongs to a frame of a radio.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Air {
    /// Port of the radio that sent it.
    pub sender: usize,
    /// What the driver calls it.
    pub cookie: u64,
    /// Flags of the driver.
    pub flags: u32,
    /// Centre of its channel.
    pub mhz: u32,
    /// Four pairs of a rate and a number of tries, as the sender wants them.
    pub rates: [u8; 8],
    /// Nobody is to acknowledge it.
    pub no_ack: bool,
    /// How often it has been on the air.
    pub tries: u32,
    /// Strength at the receiver, and capacity of the link there; known on arrival.
    pub signal_dbm: i32,
    /// Capacity of the link over which it arrived.
    pub kbps: u32,
}

/// What became of a frame of a radio.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It was received and acknowledged.
    Acknowledged,
    /// It was sent as often as it may be, or there is no link, and nobody acknowledged it.
    Unanswered,
    /// It was sent to a group: nobody is asked.
    ToGroup,
    /// The queue was full: it was never sent.
    Dropped,
}

impl Frame {
    /// Bytes of L2 payload.
    pub fn payload_bytes(&self) -> u64 {
        match self.air {
            Some(_) => dot11::payload_bytes(&self.bytes),
            None => self.bytes.len().saturating_sub(ETHERNET_HEADER) as u64,
        }
    }

    /// The address it is for on this hop; None: it is too short to be a frame.
    pub fn destination(&self) -> Option<[u8; 6]> {
        match self.air {
            Some(_) => dot11::receiver(&self.bytes),
            None if self.bytes.len() < ETHERNET_HEADER => None,
            None => self.bytes.get(..6).and_then(|address| address.try_into().ok()),
        }
    }
}

impl From<Vec<u8>> for Frame {
    fn from(bytes: Vec<u8>) -> Frame {
        Frame { bytes, air: None }
    }
}

impl Deref for Frame {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}
