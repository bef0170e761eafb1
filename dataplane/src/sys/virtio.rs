//! The header that TUN devices and packet sockets put in front of a packet that is not finished: one whose checksum is still
//! to be made, or that stands for several packets on the wire (segmentation offload).

/// The checksum is to be made over everything from `csum_start`.
pub const NEEDS_CSUM: u8 = 1;
/// The checksum has been verified.
pub const DATA_VALID: u8 = 2;
/// One packet.
pub const GSO_NONE: u8 = 0;
/// Several TCP segments over IPv4.
pub const GSO_TCP4: u8 = 1;
/// Several TCP segments over IPv6.
pub const GSO_TCP6: u8 = 4;
/// Several UDP datagrams.
pub const GSO_UDP_L4: u8 = 5;
/// Bit beside the type: the first segment has TCP's CWR flag.
pub const GSO_ECN: u8 = 0x80;

/// `struct virtio_net_hdr`. Offsets count from the first byte of the IP header.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct VirtioHeader {
    /// [`NEEDS_CSUM`], [`DATA_VALID`].
    pub flags: u8,
    /// [`GSO_NONE`] or the kind of segments.
    pub gso_type: u8,
    /// Length of all headers in bytes; a hint.
    pub hdr_len: u16,
    /// Payload bytes of each segment.
    pub gso_size: u16,
    /// Where the checksum starts.
    pub csum_start: u16,
    /// Where it is to be written, counted from `csum_start`.
    pub csum_offset: u16,
}

/// Bytes of [`VirtioHeader`].
pub const HEADER_LEN: usize = 10;

impl VirtioHeader {
    /// A packet that is complete as it stands.
    pub const PLAIN: VirtioHeader =
        VirtioHeader { flags: 0, gso_type: 0, hdr_len: 0, gso_size: 0, csum_start: 0, csum_offset: 0 };

    /// Whether the transport checksum holds only the sum of the pseudo header so far.
    pub fn needs_checksum(&self) -> bool {
        self.flags & NEEDS_CSUM != 0
    }

    /// Whether the packet stands for several on the wire.
    pub fn is_gso(&self) -> bool {
        self.gso_type & !GSO_ECN != GSO_NONE
    }

    /// Whether it stands for several TCP segments.
    pub fn is_tcp(&self) -> bool {
        matches!(self.gso_type & !GSO_ECN, GSO_TCP4 | GSO_TCP6)
    }

    /// As the kernel reads it.
    pub fn bytes(&self) -> [u8; HEADER_LEN] {
        let mut bytes = [self.flags, self.gso_type, 0, 0, 0, 0, 0, 0, 0, 0];
        for (at, value) in [self.hdr_len, self.gso_size, self.csum_start, self.csum_offset].iter().enumerate() {
            bytes[2 + 2 * at..4 + 2 * at].copy_from_slice(&value.to_ne_bytes());
        }
        bytes
    }

    /// The same without a link header of `link_bytes` in front; None: the checksum would start within that header.
    pub fn without_link(&self, link_bytes: u16) -> Option<VirtioHeader> {
        let mut header = *self;
        header.hdr_len = header.hdr_len.saturating_sub(link_bytes);
        if header.needs_checksum() {
            header.csum_start = header.csum_start.checked_sub(link_bytes)?;
        }
        Some(header)
    }

    /// The same with a link header of `link_bytes` in front.
    pub fn behind_link(&self, link_bytes: u16) -> VirtioHeader {
        let mut header = *self;
        header.hdr_len = header.hdr_len.saturating_add(link_bytes);
        if header.needs_checksum() {
            header.csum_start = header.csum_start.saturating_add(link_bytes);
        }
        header
    }

    /// Makes the transport checksum of one packet, if it is still to be made. False: the header does not fit the packet, or the
    /// packet stands for several.
    pub fn finish_checksum(&self, packet: &mut [u8]) -> bool {
        if self.is_gso() {
            return false;
        }
        if !self.needs_checksum() {
            return true;
        }
        let (start, at) = (self.csum_start as usize, self.csum_start as usize + self.csum_offset as usize);
        if at + 2 > packet.len() {
            return false;
        }
        // A UDP checksum of zero means "none"; the other form of zero is right for every protocol.
        let checksum = match !sum(&packet[start..]) {
            0 => 0xffff,
            other => other,
        };
        packet[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
        true
    }
}

/// The sum of 16-bit words. Words of 32 bits give the same and are quicker.
fn sum(bytes: &[u8]) -> u16 {
    let mut words = bytes.chunks_exact(4);
    let mut sum: u64 = words.by_ref().map(|w| u64::from(u32::from_be_bytes([w[0], w[1], w[2], w[3]]))).sum();
    for pair in words.remainder().chunks(2) {
        sum += u64::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layout_is_that_of_the_kernel() {
        assert_eq!(std::mem::size_of::<VirtioHeader>(), HEADER_LEN);
        let header =
            VirtioHeader { flags: 1, gso_type: 4, hdr_len: 66, gso_size: 1448, csum_start: 34, csum_offset: 16 };
        // SAFETY: plain data without padding, of that size.
        let kernel = unsafe { std::mem::transmute::<VirtioHeader, [u8; HEADER_LEN]>(header) };
        assert_eq!(header.bytes(), kernel);
    }

    #[test]
    fn offsets_move_with_the_link_header() {
        let header =
            VirtioHeader { flags: NEEDS_CSUM, hdr_len: 66, csum_start: 34, csum_offset: 16, ..VirtioHeader::PLAIN };
        let stripped = header.without_link(14).unwrap();
        assert_eq!((stripped.hdr_len, stripped.csum_start, stripped.csum_offset), (52, 20, 16));
        assert_eq!(stripped.behind_link(14), header);
        assert_eq!(VirtioHeader { csum_start: 13, ..header }.without_link(14), None);
        assert_eq!(VirtioHeader::PLAIN.without_link(14), Some(VirtioHeader::PLAIN));
    }

    #[test]
    fn a_finished_checksum_verifies_and_odd_headers_are_refused() {
        let header = VirtioHeader { flags: NEEDS_CSUM, csum_start: 20, csum_offset: 6, ..VirtioHeader::PLAIN };
        for length in 28..70usize {
            let mut packet: Vec<u8> = (0..length).map(|i| i as u8).collect();
            packet[26..28].copy_from_slice(&[0x12, 0x34]); // the sum of the pseudo header
            assert!(header.finish_checksum(&mut packet));
            // What the receiver does: sum of everything, with the pseudo header again, is all ones.
            let mut sum = 0x1234u32;
            for pair in packet[20..].chunks(2) {
                sum += u32::from(u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)]));
            }
            sum = (sum & 0xffff) + (sum >> 16);
            assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff, "{length}");
        }
        for short in 0..28 {
            assert!(!header.finish_checksum(&mut vec![0; short]));
        }
        let huge = VirtioHeader { csum_start: 0xffff, csum_offset: 0xffff, ..header };
        assert!(!huge.finish_checksum(&mut [0; 100]));
        assert!(!VirtioHeader { gso_type: GSO_TCP4, ..header }.finish_checksum(&mut [0; 100]));
    }
}
