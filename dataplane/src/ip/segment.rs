//! TCP packets that stand for several segments, and the pieces that leave: one segment, or fewer than all of them.

use super::checksum::{add, fold};
use super::parse::{be16, be32};
use super::{Packet, Part, FIN, RST, SYN, TCP};

/// Headers of a piece: IPv4 with options or IPv6 with usual extensions, and TCP with options.
pub const MOST_HEADERS: usize = 160;
const PSH: u8 = 0x08;
const CWR: u8 = 0x80;
/// In the TCP header.
const FLAGS_AT: usize = 13;
const SUM_AT: usize = 16;

/// How a packet is to be cut, and how much of it has left already. The packet itself stays as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segments {
    is_ipv6: bool,
    l4_at: usize,
    /// Bytes of all headers.
    header: usize,
    /// Payload bytes of each segment; the last one may have less.
    size: usize,
    len: usize,
    /// Where the payload begins that has not left.
    at: usize,
}

/// The next part of a packet: headers of its own, and a part of the payload where it stands.
#[derive(Clone, Debug)]
pub struct Piece {
    head: [u8; MOST_HEADERS],
    header: usize,
    from: usize,
    to: usize,
    pub segments: usize,
    pub size: usize,
    pub l4_at: usize,
    pub is_ipv6: bool,
    /// The first segment tells that the sender has slowed down (CWR), the others do not.
    pub slowed: bool,
}

impl Segments {
    /// None for packets that cannot be cut: not TCP, fragments, without payload, or segments of a size of 0.
    pub fn of(bytes: &[u8], packet: &Packet, size: u16) -> Option<Segments> {
        let can = packet.tuple.protocol == TCP && packet.part == Part::Whole && packet.tcp_flags & (SYN | RST) == 0;
        let tcp_len = usize::from(bytes.get(packet.l4_at + 12)? >> 4) * 4;
        let header = packet.l4_at + tcp_len;
        let fits = tcp_len >= 20 && header < packet.len && header <= MOST_HEADERS && packet.len <= bytes.len();
        let (is_ipv6, l4_at, len) = (packet.is_ipv6(), packet.l4_at, packet.len);
        (can && fits && size > 0).then_some(Segments { is_ipv6, l4_at, header, size: size.into(), len, at: header })
    }

    pub fn is_ipv6(&self) -> bool {
        self.is_ipv6
    }

    /// Segments that have not left.
    pub fn left(&self) -> usize {
        (self.len - self.at + self.size - 1) / self.size
    }

    /// Bytes of a full segment's IP packet.
    pub fn packet_len(&self) -> usize {
        self.header + self.size
    }

    /// Bytes of the IP packet that the next piece is: as many whole segments as fit into `most`, at least one.
    pub fn next_len(&self, most: usize) -> usize {
        self.header + self.next_end(most) - self.at
    }

    fn next_end(&self, most: usize) -> usize {
        let segments = (most.saturating_sub(self.header) / self.size).max(1);
        self.len.min(self.at + segments * self.size)
    }

    /// The next piece. One segment has a finished checksum, several have the sum of the pseudo header.
    pub fn next(&self, bytes: &[u8], most: usize) -> Option<Piece> {
        let (from, to, header) = (self.at, self.next_end(most), self.header);
        let payload = bytes.get(from..to)?;
        let mut head = [0; MOST_HEADERS];
        head.get_mut(..header)?.copy_from_slice(bytes.get(..header)?);
        let segments = (payload.len() + self.size - 1) / self.size;
        let (is_first, is_last) = (from == header, to == self.len);
        self.write_ip(&mut head, header + payload.len());
        let tcp = head.get_mut(self.l4_at..header)?;
        let sequence = be32(tcp, 4).wrapping_add((from - header) as u32);
        tcp[4..8].copy_from_slice(&sequence.to_be_bytes());
        tcp[FLAGS_AT] &= if is_last { !0 } else { !(FIN | PSH) };
        tcp[FLAGS_AT] &= if is_first { !0 } else { !CWR };
        tcp[SUM_AT..SUM_AT + 2].fill(0);
        let slowed = tcp[FLAGS_AT] & CWR != 0;
        let mut sum = self.pseudo(&head, header - self.l4_at + payload.len());
        if segments == 1 {
            sum += add(&head[self.l4_at..header]) + add(payload);
        }
        let sum = if segments == 1 { !fold(sum) } else { fold(sum) };
        head[self.l4_at + SUM_AT..self.l4_at + SUM_AT + 2].copy_from_slice(&sum.to_be_bytes());
        let (size, l4_at, is_ipv6) = (self.size, self.l4_at, self.is_ipv6);
        Some(Piece { head, header, from, to, segments, size, l4_at, is_ipv6, slowed })
    }

    fn write_ip(&self, head: &mut [u8; MOST_HEADERS], len: usize) {
        if self.is_ipv6 {
            head[4..6].copy_from_slice(&((len - 40) as u16).to_be_bytes());
            return;
        }
        let identification = be16(head, 4).wrapping_add(((self.at - self.header) / self.size) as u16);
        head[2..4].copy_from_slice(&(len as u16).to_be_bytes());
        head[4..6].copy_from_slice(&identification.to_be_bytes());
        head[10..12].fill(0);
        let sum = !fold(add(&head[..self.l4_at]));
        head[10..12].copy_from_slice(&sum.to_be_bytes());
    }

    fn pseudo(&self, head: &[u8; MOST_HEADERS], len: usize) -> u64 {
        let addresses = if self.is_ipv6 { &head[8..40] } else { &head[12..20] };
        add(addresses) + u64::from(TCP) + len as u64
    }

    /// The next segment is left out; false if it was the last.
    pub fn skip(&mut self) -> bool {
        self.at = self.next_end(0);
        self.at < self.len
    }

    /// A piece has left; false if it was the last.
    pub fn advance(&mut self, piece: &Piece) -> bool {
        self.at = piece.to;
        self.at < self.len
    }
}

impl Piece {
    /// Headers and payload; `bytes` are those of the whole packet.
    pub fn parts<'a>(&'a self, bytes: &'a [u8]) -> [&'a [u8]; 2] {
        [&self.head[..self.header], bytes.get(self.from..self.to).unwrap_or(&[])]
    }

    pub fn header_len(&self) -> usize {
        self.header
    }

    /// Bytes of the IP packet.
    pub fn len(&self) -> usize {
        self.header + self.to - self.from
    }

    pub fn is_empty(&self) -> bool {
        self.from == self.to
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{assert_right_sums, broken_packet, plain_sum, pseudo_sum, set_sum, some_bytes, wrap};
    use super::super::{parse, ACK};
    use super::*;
    use crate::rng::Rng;

    /// A packet of TCP with options and `data` bytes of payload.
    fn some_tcp(rng: &mut Rng, v6: bool, flags: u8, data: usize) -> Vec<u8> {
        let options = rng.below(11) * 4;
        let mut segment = some_bytes(rng, 20 + options + data);
        segment[12] = ((5 + options / 4) << 4) as u8;
        segment[FLAGS_AT] = flags;
        segment[20..20 + options].fill(1);
        let mut bytes = wrap(rng, v6, TCP, &segment);
        set_sum(&mut bytes, false);
        bytes
    }

    /// Cuts a piece as a network card would: into plain packets, each with sums made from scratch.
    fn by_card(piece: &Piece, bytes: &[u8], out: &mut Vec<Vec<u8>>) {
        let whole = piece.parts(bytes).concat();
        let packet = parse(&whole).unwrap();
        assert_eq!((packet.len, packet.l4_at), (whole.len(), piece.l4_at));
        if piece.segments == 1 {
            assert_right_sums(&whole);
            return out.push(whole);
        }
        if !packet.is_ipv6() {
            assert_eq!(plain_sum(&whole[..packet.l4_at]), 0xffff);
        }
        let sum_at = packet.l4_at + SUM_AT;
        assert_eq!(be16(&whole, sum_at) % 0xffff, pseudo_sum(&whole, &packet) % 0xffff);
        let (head, payload) = whole.split_at(piece.header_len());
        let count = (payload.len() + piece.size - 1) / piece.size;
        assert_eq!(count, piece.segments);
        for (number, part) in payload.chunks(piece.size).enumerate() {
            let mut one = [head, part].concat();
            let tcp = packet.l4_at;
            let sequence = be32(&one, tcp + 4).wrapping_add((number * piece.size) as u32);
            one[tcp + 4..tcp + 8].copy_from_slice(&sequence.to_be_bytes());
            one[tcp + FLAGS_AT] &= if number + 1 == count { !0 } else { !(FIN | PSH) };
            one[tcp + FLAGS_AT] &= if number == 0 { !0 } else { !CWR };
            if packet.is_ipv6() {
                let len = (one.len() - 40) as u16;
                one[4..6].copy_from_slice(&len.to_be_bytes());
            } else {
                let (len, id) = (one.len() as u16, be16(&one, 4).wrapping_add(number as u16));
                one[2..4].copy_from_slice(&len.to_be_bytes());
                one[4..6].copy_from_slice(&id.to_be_bytes());
                one[10..12].fill(0);
                let sum = !plain_sum(&one[..tcp]);
                one[10..12].copy_from_slice(&sum.to_be_bytes());
            }
            set_sum(&mut one, false);
            out.push(one);
        }
    }

    #[test]
    fn pieces_of_any_length_become_the_same_packets() {
        let mut rng = Rng::new(31);
        for round in 0..400 {
            let flags = ACK | [0, PSH, PSH | FIN, CWR, CWR | PSH][rng.below(5)];
            let data = 1 + rng.below(if round % 8 == 0 { 64_000 } else { 9_000 });
            let bytes = some_tcp(&mut rng, round % 2 == 0, flags, data);
            let packet = parse(&bytes).unwrap();
            let size = (1 + rng.below(1_460)).max(data / 300) as u16;
            let whole = Segments::of(&bytes, &packet, size).unwrap();
            let mut one_by_one = Vec::new();
            let mut segments = whole;
            loop {
                let piece = segments.next(&bytes, 0).unwrap();
                assert_eq!((piece.segments, piece.len()), (1, segments.next_len(0)));
                by_card(&piece, &bytes, &mut one_by_one);
                if !segments.advance(&piece) {
                    break;
                }
            }
            let (mut pieces, mut segments) = (Vec::new(), whole);
            loop {
                let (most, left) = (rng.below(20_000), segments.left());
                let piece = segments.next(&bytes, most).unwrap();
                assert!(piece.len() <= most.max(whole.packet_len()) && piece.len() == segments.next_len(most));
                by_card(&piece, &bytes, &mut pieces);
                let goes_on = segments.advance(&piece);
                assert_eq!(segments.left(), left - piece.segments);
                if !goes_on {
                    break;
                }
            }
            assert_eq!((pieces.len(), &pieces), (whole.left(), &one_by_one));
            check_packets(&bytes, &packet, size.into(), &one_by_one);
        }
    }

    /// Put together, the packets are what they were cut from, and only the right ones have its flags.
    fn check_packets(bytes: &[u8], packet: &Packet, size: usize, cut: &[Vec<u8>]) {
        let (tcp, flags) = (packet.l4_at, bytes[packet.l4_at + FLAGS_AT]);
        let header = tcp + usize::from(bytes[tcp + 12] >> 4) * 4;
        let mut payload = Vec::new();
        for (number, one) in cut.iter().enumerate() {
            let wanted = be32(bytes, tcp + 4).wrapping_add(payload.len() as u32);
            assert_eq!(be32(one, tcp + 4), wanted, "sequence number");
            let (is_first, is_last) = (number == 0, number + 1 == cut.len());
            assert!(one.len() == header + size || is_last);
            let mut expected = flags;
            expected &= if is_last { !0 } else { !(FIN | PSH) };
            expected &= if is_first { !0 } else { !CWR };
            assert_eq!(one[tcp + FLAGS_AT], expected);
            // Nothing else in the headers differs.
            assert_eq!(one[tcp..tcp + 4], bytes[tcp..tcp + 4]);
            assert_eq!(one[tcp + 8..tcp + 13], bytes[tcp + 8..tcp + 13]);
            assert_eq!(one[tcp + 18..header], bytes[tcp + 18..header]);
            match packet.is_ipv6() {
                true => assert!(one[..4] == bytes[..4] && one[6..tcp] == bytes[6..tcp]),
                false => {
                    assert_eq!(be16(one, 4), be16(bytes, 4).wrapping_add(number as u16));
                    assert!(one[..2] == bytes[..2] && one[6..10] == bytes[6..10] && one[12..tcp] == bytes[12..tcp]);
                }
            }
            payload.extend_from_slice(&one[header..]);
        }
        assert!(payload == bytes[header..packet.len]);
    }

    #[test]
    fn broken_packets_do_no_harm() {
        let mut rng = Rng::new(32);
        let mut cut = 0;
        for _ in 0..200_000 {
            let bytes = broken_packet(&mut rng);
            let packet = match parse(&bytes) {
                Ok(packet) => packet,
                Err(_) => continue,
            };
            if let Some(mut segments) = Segments::of(&bytes, &packet, rng.below(300) as u16) {
                cut += 1;
                let most = rng.below(1_000);
                while segments.next(&bytes, most).map_or(false, |piece| segments.advance(&piece)) {}
            }
        }
        assert!(cut > 1_000, "{cut}");
    }
}
