//! Messages of mac80211_hwsim, the kernel's simulated 802.11 radios (drivers/net/wireless/virtual/mac80211_hwsim.h).

use super::frame::{Air, Outcome};
use crate::sys::genetlink::{each_attribute, Messages};
use crate::sys::interface::Mac;

/// Name of the generic netlink family.
pub const FAMILY: &str = "MAC80211_HWSIM";
/// Makes the sender the medium of all radios of its namespace.
pub const REGISTER: u8 = 1;
/// A frame on the air: from the kernel one that a radio sends, to the kernel one that a radio receives.
pub const FRAME: u8 = 2;
/// What became of a frame.
const TX_INFO: u8 = 3;

const RECEIVER: u16 = 1;
const TRANSMITTER: u16 = 2;
const DATA: u16 = 3;
const FLAGS: u16 = 4;
const RX_RATE: u16 = 5;
const SIGNAL: u16 = 6;
const RATES: u16 = 7;
const COOKIE: u16 = 8;
const FREQUENCY: u16 = 19;

const NO_ACK: u32 = 2;
const ACKNOWLEDGED: u32 = 4;
/// What stands for "no rate".
const NO_RATE: u8 = 0xff;

/// A frame that a radio sends.
#[derive(Debug, PartialEq, Eq)]
pub struct Sent<'a> {
    /// Hardware address of the radio.
    pub radio: Mac,
    /// The frame of 802.11.
    pub frame: &'a [u8],
    /// The sender is not known here: 0.
    pub air: Air,
}

/// Reads the attributes of a `FRAME`; None: one is missing or has another size.
pub fn read_frame(attributes: &[u8]) -> Option<Sent<'_>> {
    let (mut radio, mut frame, mut flags, mut cookie) = (None, None, None, None);
    let mut air = Air { rates: [NO_RATE, 0, NO_RATE, 0, NO_RATE, 0, NO_RATE, 0], ..Air::default() };
    each_attribute(attributes, |kind, value| match kind {
        TRANSMITTER => radio = Mac::try_from(value).ok(),
        DATA => frame = Some(value),
        FLAGS => flags = number(value),
        COOKIE => cookie = value.try_into().ok().map(u64::from_ne_bytes),
        FREQUENCY => air.mhz = number(value).unwrap_or(0),
        RATES => air.rates = value.try_into().unwrap_or(air.rates),
        _ => {}
    });
    air.flags = flags?;
    air.cookie = cookie?;
    air.no_ack = air.flags & NO_ACK != 0;
    Some(Sent { radio: radio?, frame: frame?, air })
}

fn number(value: &[u8]) -> Option<u32> {
    value.try_into().ok().map(u32::from_ne_bytes)
}

/// Lets the radio `receiver` receive a frame.
pub fn write_frame(out: &mut Messages, family: u16, sequence: u32, receiver: &Mac, frame: &[u8], air: &Air, rate: u32) {
    out.begin(family, FRAME, sequence, false);
    out.attribute(RECEIVER, receiver);
    out.attribute(DATA, frame);
    out.number(RX_RATE, rate);
    out.number(SIGNAL, air.signal_dbm as u32);
    if air.mhz != 0 {
        out.number(FREQUENCY, air.mhz);
    }
}

/// Tells the radio `sender` what became of a frame.
pub fn write_outcome(out: &mut Messages, family: u16, sender: &Mac, air: &Air, outcome: Outcome) {
    let flags = match outcome {
        Outcome::Acknowledged => air.flags | ACKNOWLEDGED,
        Outcome::Unanswered | Outcome::ToGroup => air.flags,
        // A full queue says nothing of the link: neither the choice of the rate nor the watch on the station is to see it.
        Outcome::Dropped => air.flags | NO_ACK,
    };
    out.begin(family, TX_INFO, 0, false);
    out.attribute(TRANSMITTER, sender);
    out.number(FLAGS, flags);
    out.number(SIGNAL, air.signal_dbm as u32);
    out.attribute(COOKIE, &air.cookie.to_ne_bytes());
    out.attribute(RATES, &tried(air, outcome));
}

/// How often each of the wanted rates was tried.
fn tried(air: &Air, outcome: Outcome) -> [u8; 8] {
    let mut rates = [NO_RATE, 0, NO_RATE, 0, NO_RATE, 0, NO_RATE, 0];
    let mut left = air.tries.min(255) as u8;
    if outcome == Outcome::Dropped {
        return rates;
    }
    let wanted = air.rates.chunks_exact(2).take_while(|pair| pair[0] != NO_RATE).count();
    for (i, (pair, out)) in air.rates.chunks_exact(2).zip(rates.chunks_exact_mut(2)).enumerate().take(wanted) {
        // The last one takes all that is left.
        let count = if i + 1 == wanted { left } else { left.min(pair[1].max(1)) };
        if i > 0 && count == 0 {
            break;
        }
        out.copy_from_slice(&[pair[0], count]);
        left -= count;
    }
    rates
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use crate::sys::genetlink::{parse, Received};

    const FAMILY_ID: u16 = 0x1c;
    const RADIO: Mac = [0x42, 0, 0, 0, 5, 0];

    fn air() -> Air {
        Air { cookie: 0x1122, flags: 1, mhz: 2412, rates: [11, 2, 3, 1, 0, 4, 0xff, 0], tries: 1, ..Air::default() }
    }

    /// Attributes of a frame as the kernel (Linux 6.12) writes them, by hand.
    #[cfg(target_endian = "little")]
    fn by_hand() -> Vec<u8> {
        let mut bytes = vec![10, 0, 2, 0, 0x42, 0, 0, 0, 5, 0, 0, 0]; // transmitter
        bytes.extend([30, 0, 3, 0]); // frame: 26 bytes, padded
        bytes.extend([0x88, 1, 0, 0, 2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
        bytes.extend([8, 0, 4, 0, 1, 0, 0, 0]); // flags
        bytes.extend([8, 0, 19, 0, 0x6c, 9, 0, 0]); // 2412 MHz
        bytes.extend([12, 0, 7, 0, 11, 2, 3, 1, 0, 4, 0xff, 0]); // rates
        bytes.extend([16, 0, 21, 0, 11, 8, 0, 3, 0, 0, 0, 0, 0, 0xff, 0, 0]); // flags of the rates
        bytes.extend([4, 0, 20, 0]); // padding
        bytes.extend([12, 0, 8, 0, 0x22, 0x11, 0, 0, 0, 0, 0, 0]); // cookie
        bytes
    }

    #[cfg(target_endian = "little")]
    #[test]
    fn a_frame_of_the_kernel_is_read() {
        let bytes = by_hand();
        let sent = read_frame(&bytes).unwrap();
        assert_eq!((sent.radio, sent.frame.len(), sent.frame[0]), (RADIO, 26, 0x88));
        assert_eq!(sent.air, Air { tries: 0, ..air() });
    }

    #[cfg(target_endian = "little")]
    #[test]
    fn a_frame_that_lacks_something_is_none_and_no_bytes_make_it_fail() {
        let bytes = by_hand();
        for (kind, at) in [(TRANSMITTER, 2), (DATA, 14), (FLAGS, 46), (COOKIE, 94)] {
            assert_eq!(bytes[at], kind as u8);
            let mut other = bytes.clone();
            other[at] = 99;
            assert_eq!(read_frame(&other), None, "{kind}");
        }
        let mut rng = Rng::new(11);
        for _ in 0..20_000 {
            let mut other = bytes.clone();
            for _ in 0..1 + rng.below(4) {
                let at = rng.below(other.len());
                other[at] = rng.bits() as u8;
            }
            other.truncate(rng.below(other.len() + 1));
            read_frame(&other);
        }
    }

    fn written(write: impl Fn(&mut Messages)) -> (u8, Vec<(u16, Vec<u8>)>) {
        let mut messages = Messages::default();
        write(&mut messages);
        let mut found = None;
        parse(messages.bytes(), FAMILY_ID, |received| {
            if let Received::Message { command, attributes } = received {
                let mut all = Vec::new();
                each_attribute(attributes, |kind, value| all.push((kind, value.to_vec())));
                found = Some((command, all));
            }
        });
        found.unwrap()
    }

    #[cfg(target_endian = "little")]
    #[test]
    fn a_frame_for_a_radio_has_what_the_kernel_asks_for() {
        let heard = Air { signal_dbm: -61, ..air() };
        let expected = vec![
            (RECEIVER, RADIO.to_vec()),
            (DATA, vec![1, 2, 3]),
            (RX_RATE, vec![7, 0, 0, 0]),
            (SIGNAL, vec![0xc3, 0xff, 0xff, 0xff]),
            (FREQUENCY, vec![0x6c, 9, 0, 0]),
        ];
        assert_eq!(written(|out| write_frame(out, FAMILY_ID, 5, &RADIO, &[1, 2, 3], &heard, 7)), (FRAME, expected));
    }

    #[cfg(target_endian = "little")]
    #[test]
    fn outcomes_have_flags_and_tries() {
        let none = [0xff, 0, 0xff, 0, 0xff, 0, 0xff, 0];
        for (outcome, tries, flags, rates) in [
            (Outcome::Acknowledged, 1, 5, [11, 1, 0xff, 0, 0xff, 0, 0xff, 0]),
            (Outcome::Acknowledged, 4, 5, [11, 2, 3, 1, 0, 1, 0xff, 0]),
            (Outcome::Unanswered, 8, 1, [11, 2, 3, 1, 0, 5, 0xff, 0]),
            (Outcome::Unanswered, 1_000, 1, [11, 2, 3, 1, 0, 252, 0xff, 0]),
            (Outcome::Unanswered, 0, 1, [11, 0, 0xff, 0, 0xff, 0, 0xff, 0]),
            (Outcome::ToGroup, 1, 1, [11, 1, 0xff, 0, 0xff, 0, 0xff, 0]),
            (Outcome::Dropped, 0, 3, none),
        ] {
            let (command, all) = written(|out| write_outcome(out, FAMILY_ID, &RADIO, &Air { tries, ..air() }, outcome));
            assert_eq!(command, TX_INFO);
            assert_eq!(all[0], (TRANSMITTER, RADIO.to_vec()));
            assert_eq!(all[1], (FLAGS, vec![flags, 0, 0, 0]), "{outcome:?}");
            assert_eq!(all[3], (COOKIE, vec![0x22, 0x11, 0, 0, 0, 0, 0, 0]));
            assert_eq!(all[4], (RATES, rates.to_vec()), "{outcome:?} {tries}");
        }
        // A radio that wants no rate is told of none.
        assert_eq!(tried(&Air { rates: none, ..air() }, Outcome::Acknowledged), none);
    }
}
