//! Consecutive TCP packets of a flow that become one which stands for them, as a host's own receive offload makes them.

use super::checksum::{add, fold};
use super::parse::{be16, be32};
use super::{ACK, TCP};

/// Headers of the joined packet: IP without options or extensions, and TCP with options.
const MOST_HEADERS: usize = 100;
const MOST_BYTES: usize = 65_535;
const PSH: u8 = 0x08;
const DONT_FRAGMENT: u16 = 0x4000;
/// In the TCP header.
const FLAGS_AT: usize = 13;
const SUM_AT: usize = 16;

/// Packets that were put together so far. Their payload stays where it is: it is what follows `header_len` bytes of each.
///
/// Only packets with right checksums are joined: the host is told that the sum of the joined packet is right, so nobody
/// would find a byte that was wrong before.
#[derive(Clone, Debug)]
pub struct Joined {
    head: [u8; MOST_HEADERS],
    header: usize,
    l4_at: usize,
    /// Payload bytes of each packet; the last one may have less.
    size: usize,
    payload: usize,
    packets: usize,
    is_closed: bool,
}

impl Joined {
    /// Begins with a whole IP packet; None if nothing can follow it.
    pub fn begin(bytes: &[u8]) -> Option<Joined> {
        let (l4_at, header) = headers(bytes)?;
        let flags = bytes[l4_at + FLAGS_AT];
        if flags != ACK || !has_right_sums(bytes, l4_at) {
            return None;
        }
        let mut head = [0; MOST_HEADERS];
        head[..header].copy_from_slice(&bytes[..header]);
        let size = bytes.len() - header;
        Some(Joined { head, header, l4_at, size, payload: size, packets: 1, is_closed: false })
    }

    /// Adds the packet that follows; false if it is not one that can.
    pub fn add(&mut self, bytes: &[u8]) -> bool {
        let size = match headers(bytes) {
            Some(found) if found == (self.l4_at, self.header) => bytes.len() - self.header,
            _ => return false,
        };
        let flags = bytes[self.l4_at + FLAGS_AT];
        let fits = size <= self.size && self.header + self.payload + size <= MOST_BYTES;
        let can = !self.is_closed && fits && flags & !PSH == ACK && self.is_next(bytes);
        if !can || !has_right_sums(bytes, self.l4_at) {
            return false;
        }
        self.head[self.l4_at + FLAGS_AT] |= flags;
        self.payload += size;
        self.packets += 1;
        self.is_closed = size < self.size || flags & PSH != 0;
        true
    }

    /// Whether a packet with the same kinds of headers goes on where this one ends, with the same contents of all fields that
    /// segments of one packet share.
    fn is_next(&self, bytes: &[u8]) -> bool {
        let (ip, tcp) = (&self.head[..self.l4_at], &self.head[self.l4_at..self.header]);
        let (other_ip, other_tcp) = bytes[..self.header].split_at(self.l4_at);
        let same_ip = match self.is_ipv6() {
            true => ip[..4] == other_ip[..4] && ip[6..] == other_ip[6..],
            false => ip[..2] == other_ip[..2] && ip[6..10] == other_ip[6..10] && ip[12..] == other_ip[12..],
        };
        let same_tcp = tcp[..4] == other_tcp[..4]
            && tcp[8..FLAGS_AT] == other_tcp[8..FLAGS_AT]
            && tcp[FLAGS_AT + 1..SUM_AT] == other_tcp[FLAGS_AT + 1..SUM_AT]
            && tcp[SUM_AT + 2..] == other_tcp[SUM_AT + 2..];
        same_ip && same_tcp && be32(other_tcp, 4) == be32(tcp, 4).wrapping_add(self.payload as u32)
    }

    pub fn is_ipv6(&self) -> bool {
        self.head[0] >> 4 == 6
    }

    /// Packets that it stands for.
    pub fn packets(&self) -> usize {
        self.packets
    }

    /// Payload bytes of each packet but perhaps the last.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Bytes of the headers of each packet.
    pub fn header_len(&self) -> usize {
        self.header
    }

    /// Where the TCP header begins.
    pub fn l4_at(&self) -> usize {
        self.l4_at
    }

    /// The headers of the joined packet. The TCP checksum is the sum of the pseudo header, the host completes it.
    pub fn head(&mut self) -> &[u8] {
        let (len, l4_at) = (self.header + self.payload, self.l4_at);
        if self.is_ipv6() {
            self.head[4..6].copy_from_slice(&((len - l4_at) as u16).to_be_bytes());
        } else {
            self.head[2..4].copy_from_slice(&(len as u16).to_be_bytes());
            self.head[10..12].fill(0);
            let sum = !fold(add(&self.head[..l4_at]));
            self.head[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        let sum = fold(pseudo(&self.head, len - l4_at));
        self.head[l4_at + SUM_AT..l4_at + SUM_AT + 2].copy_from_slice(&sum.to_be_bytes());
        &self.head[..self.header]
    }
}

/// Where the TCP header and the payload begin, of a whole TCP packet with payload and an IP header as most have it: without
/// options or extensions, and in IPv4 not to be fragmented.
fn headers(bytes: &[u8]) -> Option<(usize, usize)> {
    let (l4_at, told) = match *bytes.first()? {
        0x45 if bytes.len() >= 40 && bytes[9] == TCP && be16(bytes, 6) == DONT_FRAGMENT => (20, be16(bytes, 2).into()),
        first if first >> 4 == 6 && bytes.len() >= 60 && bytes[6] == TCP => (40, 40 + usize::from(be16(bytes, 4))),
        _ => return None,
    };
    let tcp_len = usize::from(bytes[l4_at + 12] >> 4) * 4;
    let is_whole = told == bytes.len() && tcp_len >= 20 && l4_at + tcp_len < bytes.len();
    is_whole.then_some((l4_at, l4_at + tcp_len))
}

fn has_right_sums(bytes: &[u8], l4_at: usize) -> bool {
    let ip_is_right = bytes[0] >> 4 == 6 || fold(add(&bytes[..l4_at])) == 0xffff;
    ip_is_right && fold(pseudo(bytes, bytes.len() - l4_at) + add(&bytes[l4_at..])) == 0xffff
}

/// The sum of the pseudo header of a packet that `headers` has accepted, for `len` bytes of TCP.
fn pseudo(bytes: &[u8], len: usize) -> u64 {
    let addresses = if bytes[0] >> 4 == 6 { &bytes[8..40] } else { &bytes[12..20] };
    add(addresses) + u64::from(TCP) + len as u64
}

#[cfg(test)]
mod tests {
    use super::super::testing::{broken_packet, set_sum, some_bytes, wrap};
    use super::super::{parse, Segments, FIN};
    use super::*;
    use crate::rng::Rng;

    /// A packet of `data` bytes of payload, as a host's segmentation offload gives it.
    fn some_tcp(rng: &mut Rng, v6: bool, flags: u8, data: usize) -> Vec<u8> {
        let options = rng.below(11) * 4;
        let mut segment = some_bytes(rng, 20 + options + data);
        segment[12] = ((5 + options / 4) << 4) as u8;
        segment[FLAGS_AT] = flags;
        let mut bytes = wrap(rng, v6, TCP, &segment);
        if !v6 {
            bytes[6..8].copy_from_slice(&DONT_FRAGMENT.to_be_bytes());
            let l4_at = usize::from(bytes[0] & 15) * 4;
            bytes[10..12].fill(0);
            let sum = !fold(add(&bytes[..l4_at]));
            bytes[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        set_sum(&mut bytes, false);
        bytes
    }

    fn cut(bytes: &[u8], size: usize) -> Vec<Vec<u8>> {
        let mut segments = Segments::of(bytes, &parse(bytes).unwrap(), size as u16).unwrap();
        let mut all = Vec::new();
        while let Some(piece) = segments.next(bytes, 0) {
            all.push(piece.parts(bytes).concat());
            if !segments.advance(&piece) {
                break;
            }
        }
        all
    }

    /// Joins from the front as long as packets can be joined.
    fn join(packets: &[Vec<u8>]) -> Option<Joined> {
        let mut joined = Joined::begin(&packets[0])?;
        let _ = packets[1..].iter().all(|packet| joined.add(packet));
        Some(joined)
    }

    /// The packet that the host is given.
    fn whole(joined: &mut Joined, packets: &[Vec<u8>]) -> Vec<u8> {
        let header = joined.header_len();
        let mut whole = joined.head().to_vec();
        packets[..joined.packets()].iter().for_each(|packet| whole.extend_from_slice(&packet[header..]));
        whole
    }

    #[test]
    fn joining_undoes_cutting() {
        let (mut rng, mut joined_ones) = (Rng::new(41), 0);
        for round in 0..600 {
            let (size, flags) = (1 + rng.below(1_400), ACK | [0, PSH][rng.below(2)]);
            let data = size + 1 + rng.below(40 * size).min(60_000);
            let bytes = some_tcp(&mut rng, round % 2 == 0, flags, data);
            let packets = cut(&bytes, size);
            let plain = headers(&bytes).is_some();
            let mut joined = match join(&packets) {
                Some(joined) => joined,
                // Options or extensions of IP.
                None => {
                    assert!(!plain);
                    continue;
                }
            };
            joined_ones += 1;
            assert_eq!((joined.packets(), joined.size()), (packets.len(), size));
            let again = whole(&mut joined, &packets);
            assert_eq!(parse(&again).unwrap(), parse(&bytes).unwrap());
            // What the kernel cuts it into is what came.
            assert_eq!(cut(&again, joined.size()), packets);
        }
        assert!(joined_ones > 100, "{joined_ones}");
    }

    #[test]
    fn what_differs_is_not_joined() {
        let mut rng = Rng::new(42);
        let mut tried = 0;
        while tried < 600 {
            let v6 = rng.below(2) == 0;
            let bytes = some_tcp(&mut rng, v6, ACK, 3_000);
            let packets = cut(&bytes, 1_000);
            let (mut joined, mut second) = match Joined::begin(&packets[0]) {
                Some(joined) => (joined, packets[1].clone()),
                None => continue,
            };
            tried += 1;
            let l4_at = joined.l4_at();
            let at = rng.below(second.len());
            second[at] ^= 1 << rng.below(8);
            // A wrong byte, and then the same with right sums.
            assert!(!joined.clone().add(&second), "byte {at}");
            let is_payload = at >= joined.header_len();
            let is_sum = (l4_at + SUM_AT..l4_at + SUM_AT + 2).contains(&at) || !v6 && (10..12).contains(&at);
            let is_identification = !v6 && (4..6).contains(&at);
            let is_push = at == l4_at + FLAGS_AT && second[at] == ACK | PSH;
            if !v6 {
                second[10..12].fill(0);
                let sum = !fold(add(&second[..l4_at]));
                second[10..12].copy_from_slice(&sum.to_be_bytes());
            }
            if parse(&second).map_or(false, |packet| packet.l4_at == l4_at && packet.tuple.protocol == TCP) {
                set_sum(&mut second, false);
                let may = is_payload || is_sum || is_identification || is_push;
                assert_eq!(joined.add(&second), may, "byte {at}");
            }
        }
    }

    #[test]
    fn order_and_last_packets_stay() {
        let mut rng = Rng::new(43);
        let bytes = loop {
            let bytes = some_tcp(&mut rng, true, ACK | PSH, 3_500);
            if headers(&bytes).is_some() {
                break bytes;
            }
        };
        let packets = cut(&bytes, 1_000);
        let mut joined = Joined::begin(&packets[0]).unwrap();
        assert!(!joined.add(&packets[2]) && !joined.add(&packets[0]));
        assert!(joined.add(&packets[1]) && joined.add(&packets[2]) && joined.add(&packets[3]));
        // The last was shorter and pushed: nothing follows it, and nothing begins with it.
        assert!(!joined.add(&packets[3]) && Joined::begin(&packets[3]).is_none());
        let fin = some_tcp(&mut rng, true, ACK | FIN, 100);
        assert!(Joined::begin(&fin).is_none());
    }

    #[test]
    fn nothing_grows_beyond_a_packet() {
        let mut rng = Rng::new(44);
        let mut bytes = some_tcp(&mut rng, true, ACK, 64_000);
        while headers(&bytes).is_none() {
            bytes = some_tcp(&mut rng, true, ACK, 64_000);
        }
        let mut packets = cut(&bytes, 1_000);
        let mut joined = join(&packets).unwrap();
        let mut next = packets.pop().unwrap();
        let l4_at = joined.l4_at();
        loop {
            let sequence = be32(&next, l4_at + 4).wrapping_add(1_000);
            next[l4_at + 4..l4_at + 8].copy_from_slice(&sequence.to_be_bytes());
            set_sum(&mut next, false);
            if !joined.add(&next) {
                break;
            }
        }
        assert!(joined.header_len() + joined.packets() * 1_000 <= MOST_BYTES && joined.packets() >= 65);
    }

    #[test]
    fn broken_packets_do_no_harm() {
        let mut rng = Rng::new(45);
        let bytes = some_tcp(&mut rng, true, ACK, 2_000);
        let good = cut(&bytes, 1_000);
        for _ in 0..40_000 {
            let broken = broken_packet(&mut rng);
            if let Some(mut joined) = Joined::begin(&broken) {
                joined.add(&broken);
                assert!(!joined.head().is_empty());
            }
            if let Some(mut joined) = Joined::begin(&good[0]) {
                joined.add(&broken);
            }
        }
    }
}
