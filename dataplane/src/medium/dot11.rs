//! As much of 802.11 frames as the medium needs: whom they are for, and how much L2 payload they carry. Pure; any bytes are
//! borne.

use crate::sys::interface::Mac;

/// Frame control, duration and three addresses, sequence control.
const HEADER: usize = 24;
const FOURTH_ADDRESS: usize = 6;
const QOS_CONTROL: usize = 2;
const HT_CONTROL: usize = 4;
/// Header and check value of CCMP. Those of GCMP with 256 bits are 8 bytes longer, of WEP and TKIP shorter.
const CCMP: usize = 16;
/// What stands for the EtherType in front of a packet (LLC, SNAP).
const LLC: usize = 8;

const MANAGEMENT: u8 = 0;
const DATA: u8 = 2;
const TO_AND_FROM_DS: u8 = 0x03;
const PROTECTED: u8 = 0x40;
const ORDER: u8 = 0x80;
/// Bits of a data frame's subtype.
const NO_DATA: u8 = 0x4;
const QOS: u8 = 0x8;

/// Rates of hwsim's radios without HT, in 100 kb/s; above 4 GHz without the first four.
const RATES: [u32; 12] = [10, 20, 55, 110, 60, 90, 120, 180, 240, 360, 480, 540];
const RATES_OF_2_4_GHZ_ONLY: usize = 4;

/// The station, or group, that a frame is sent to on this hop; None: it is too short to say.
pub fn receiver(frame: &[u8]) -> Option<Mac> {
    frame.get(4..10).and_then(|address| Mac::try_from(address).ok())
}

/// Bytes of L2 payload, counted as those of the same packet in an Ethernet frame: what follows the EtherType. Of management
/// frames all that follows the header counts; control frames and those without data carry none.
pub fn payload_bytes(frame: &[u8]) -> u64 {
    let (first, flags) = match frame {
        [first, flags, ..] => (*first, *flags),
        _ => return 0,
    };
    let (kind, subtype) = (first >> 2 & 3, first >> 4);
    let with_qos = kind == DATA && subtype & QOS != 0;
    let header = match kind {
        MANAGEMENT => HEADER,
        DATA if subtype & NO_DATA == 0 => HEADER + LLC,
        _ => return 0,
    };
    let also = [
        (kind == DATA && flags & TO_AND_FROM_DS == TO_AND_FROM_DS, FOURTH_ADDRESS),
        (with_qos, QOS_CONTROL),
        (flags & ORDER != 0 && (with_qos || kind == MANAGEMENT), HT_CONTROL),
        (flags & PROTECTED != 0, CCMP),
    ];
    let more: usize = also.iter().filter(|(there, _)| *there).map(|(_, bytes)| bytes).sum();
    frame.len().saturating_sub(header + more) as u64
}

/// The number, as the driver counts, of the fastest rate that a link of this capacity has; the slowest if none is.
pub fn rate_index(kbps: u32, mhz: u32) -> u32 {
    let rates = if mhz < 4000 { &RATES[..] } else { &RATES[RATES_OF_2_4_GHZ_ONLY..] };
    let fitting = rates.iter().enumerate().filter(|(_, &rate)| rate * 100 <= kbps);
    fitting.max_by_key(|(_, &rate)| rate).map_or(0, |(i, _)| i as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header of `kind` with flags, and `bytes` in all.
    fn frame(first: u8, flags: u8, bytes: usize) -> Vec<u8> {
        let mut frame = vec![0; bytes];
        frame[0] = first;
        frame[1] = flags;
        frame
    }

    #[test]
    fn payload_is_that_of_the_same_packet_in_ethernet() {
        // A packet of 1000 bytes: data, QoS data, both protected, with four addresses, with HT control.
        for (first, flags, around) in [
            (0x08, 0x01, 24 + 8),
            (0x88, 0x02, 26 + 8),
            (0x08, 0x41, 24 + 8 + 8 + 8),
            (0x88, 0x42, 26 + 8 + 8 + 8),
            (0x88, 0x43, 32 + 8 + 8 + 8),
            (0x88, 0x81, 30 + 8),
        ] {
            assert_eq!(payload_bytes(&frame(first, flags, 1000 + around)), 1000, "{first:x} {flags:x}");
        }
    }

    #[test]
    fn management_carries_its_body_and_what_has_no_data_nothing() {
        assert_eq!(payload_bytes(&frame(0x80, 0, 124)), 100);
        // Null data, QoS null data, PS-Poll, acknowledgement.
        for first in [0x48, 0xc8, 0xa4, 0xd4] {
            assert_eq!(payload_bytes(&frame(first, 0, 60)), 0, "{first:x}");
        }
    }

    #[test]
    fn any_bytes_are_borne() {
        for first in 0..=255 {
            for flags in [0, 0x43, 0xff] {
                for bytes in 2..60 {
                    assert!(payload_bytes(&frame(first, flags, bytes)) <= bytes as u64);
                }
            }
        }
        assert_eq!((payload_bytes(&[]), payload_bytes(&[8])), (0, 0));
        assert_eq!((receiver(&[0; 9]), receiver(&[7; 10])), (None, Some([7; 6])));
    }

    #[test]
    fn the_rate_is_the_fastest_that_fits() {
        // 11 Mb/s stands before 6 in the driver's list.
        for (kbps, index) in [(500, 0), (5_999, 2), (6_000, 4), (11_500, 3), (20_000, 7), (1_000_000, 11)] {
            assert_eq!(rate_index(kbps, 2412), index, "{kbps}");
        }
        assert_eq!((rate_index(1_000, 5180), rate_index(u32::MAX, 5180)), (0, 7));
    }
}
