//! A seeded generator for the property tests, and frames for tests of sizes.

pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// xorshift64 (Marsaglia, 2003).
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn below(&mut self, bound: usize) -> usize {
        ((self.next() >> 32) as usize * bound) >> 32
    }

    pub fn uniform(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// A frame from one host to another, with VLAN tags.
pub fn ethernet(kind: u16, tags: &[u16], payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    for tag in tags {
        frame.extend_from_slice(&0x8100u16.to_be_bytes());
        frame.extend_from_slice(&tag.to_be_bytes());
    }
    frame.extend_from_slice(&kind.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// Frames with the fragments of an IPv4 datagram of UDP, in order: bytes of payload behind the IP header of each.
pub fn fragments_v4(identification: u16, sizes: &[usize], tags: &[u16]) -> Vec<Vec<u8>> {
    let mut offset = 0;
    let mut frames = Vec::new();
    for (k, size) in sizes.iter().enumerate() {
        let more = if k + 1 < sizes.len() { 0x2000 } else { 0 };
        let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        packet[2..4].copy_from_slice(&((20 + size) as u16).to_be_bytes());
        packet[4..6].copy_from_slice(&identification.to_be_bytes());
        packet[6..8].copy_from_slice(&((offset / 8) as u16 | more).to_be_bytes());
        packet.resize(20 + size, 0x5a);
        frames.push(ethernet(0x0800, tags, &packet));
        offset += size;
    }
    frames
}

/// An IPv6 packet of `len` bytes with UDP.
pub fn udp_v6(len: usize) -> Vec<u8> {
    let mut packet = vec![0; 40];
    packet[0] = 0x60;
    packet[4..6].copy_from_slice(&((len - 40) as u16).to_be_bytes());
    packet[6] = 17;
    packet[8] = 0xfd;
    packet[23] = 1;
    packet[24] = 0xfd;
    packet[39] = 2;
    packet.resize(len, 0xcd);
    packet
}
