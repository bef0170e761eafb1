//! The Internet checksum: whole (RFC 1071) and by what changed (RFC 1624).

use std::net::IpAddr;

/// The sum of `bytes` as 16-bit words, not yet folded. An odd last byte counts as the upper half of a word.
pub fn add(bytes: &[u8]) -> u64 {
    let mut words = bytes.chunks_exact(4);
    // 2^16 = 1 modulo 2^16 - 1: wider words fold to the same sum. So do words of the other byte order, once swapped
    // (RFC 1071, section 2 B), which the processor adds several at a time.
    let mut sum: u64 = words.by_ref().map(|w| u64::from(u32::from_le_bytes([w[0], w[1], w[2], w[3]]))).sum();
    for pair in words.remainder().chunks(2) {
        sum += u64::from(pair[0]) | u64::from(pair.get(1).copied().unwrap_or(0)) << 8;
    }
    u64::from(fold(sum).swap_bytes())
}

/// The one's complement sum in 16 bits; 0 only if nothing but zeros was added.
pub fn fold(sum: u64) -> u16 {
    let sum = (sum & 0xffff_ffff) + (sum >> 32);
    let sum = (sum & 0xffff) + (sum >> 16 & 0xffff) + (sum >> 32);
    // At most 0x1fffe by now.
    ((sum & 0xffff) + (sum >> 16)) as u16
}

/// The Internet checksum over parts, each but the last of even length.
pub fn checksum(parts: &[&[u8]]) -> u16 {
    !fold(parts.iter().map(|part| add(part)).sum())
}

/// The sum of the pseudo header of TCP, UDP and ICMPv6 for `length` bytes; 0 for addresses of two families.
pub fn pseudo(source: IpAddr, destination: IpAddr, protocol: u8, length: usize) -> u64 {
    let addresses = match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => add(&source.octets()) + add(&destination.octets()),
        (IpAddr::V6(source), IpAddr::V6(destination)) => add(&source.octets()) + add(&destination.octets()),
        _ => return 0,
    };
    addresses + u64::from(protocol) + length as u64
}

/// What has been added to the sum of a packet's words by changing some of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Change(u64);

impl Change {
    /// Writes `new`, of even length, at the even offset `at`. Does nothing where that is outside.
    pub fn write(&mut self, bytes: &mut [u8], at: usize, new: &[u8]) {
        if let Some(old) = at.checked_add(new.len()).and_then(|end| bytes.get_mut(at..end)) {
            for (old, new) in old.chunks_exact(2).zip(new.chunks_exact(2)) {
                self.0 += u64::from(!u16::from_be_bytes([old[0], old[1]]));
                self.0 += u64::from(u16::from_be_bytes([new[0], new[1]]));
            }
            old.copy_from_slice(new);
        }
    }

    pub fn and(self, other: Change) -> Change {
        Change(self.0 + other.0)
    }

    /// A checksum after the change (RFC 1624, equation 3).
    pub fn applied(self, checksum: u16) -> u16 {
        !fold(u64::from(!checksum) + self.0)
    }

    /// A sum that is not inverted after the change.
    pub fn added(self, sum: u16) -> u16 {
        fold(u64::from(sum) + self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    #[test]
    fn folding_is_modulo_65535_with_0_for_nothing_only() {
        let mut rng = Rng::new(1);
        assert_eq!(fold(0), 0);
        let edges =
            [1, 0xffff, 0x1_0000, 0x1_fffe, 0xffff_ffff, 0x1_ffff_fffe, 0xffff_ffff_ffff, u64::MAX - 1, u64::MAX];
        for sum in (0..100_000).map(|_| (rng.bits() >> rng.below(60)).max(1)).chain(edges) {
            let wanted = if sum % 65_535 == 0 { 65_535 } else { sum % 65_535 };
            assert_eq!(u64::from(fold(sum)), wanted, "{sum:#x}");
        }
    }

    /// The example of RFC 1071, section 3.
    #[test]
    fn the_published_example() {
        assert_eq!(fold(add(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7])), 0xddf2);
        assert_eq!(checksum(&[&[0x00, 0x01, 0xf2, 0x03], &[0xf4, 0xf5, 0xf6, 0xf7]]), !0xddf2);
        assert_eq!(add(&[1, 2, 3]), 0x0102 + 0x0300);
    }
}
