//! Seals: what shows that a frame comes from an agent of this network, and that nobody changed it. See
//! docs/reference/dataplane.md, "Seals".
//!
//! A seal has 64 bits: SipHash-2-4 (Aumasson and Bernstein, 2012) over the shim, with the inner frame condensed by NH
//! (Black, Halevi, Krawczyk, Krovetz and Rogaway, UMAC, 1999): each block of 256 bytes becomes 16 bytes with one
//! multiplication for 16 of its bytes, so that a frame of 1,500 bytes costs a tenth of a microsecond. Two frames of one
//! length have the same blocks with a probability of at most 2^-64, whoever chose them, and nobody sees these.
//!
//! Keys are derived from the one that the controller gives and from a generation, of which three count at a time.

use serde::Deserialize;
use std::fmt;
use std::rc::Rc;

pub const SEAL_LEN: usize = 8;
/// Of a key as the controller gives it.
pub const BASE_LEN: usize = 16;
/// Words of a block of NH.
const BLOCK_WORDS: usize = 32;
const BLOCK_LEN: usize = BLOCK_WORDS * 8;
const PAIR_LEN: usize = 16;
/// Of the two addresses of an Ethernet frame.
pub const ENDS_LEN: usize = 12;
/// What a word begins with says what is sealed.
const SHIM_DOMAIN: u64 = 1;
const HELLO_DOMAIN: u64 = 2;
const KEY_DOMAIN: u64 = 3;
const LINK_DOMAIN: u64 = 4;

/// SipHash-2-4, fed by words of eight bytes.
#[derive(Clone, Copy)]
struct Sip {
    v: [u64; 4],
    words: u64,
}

impl Sip {
    fn new(key: [u64; 2]) -> Self {
        let v = [
            key[0] ^ 0x736f_6d65_7073_6575,
            key[1] ^ 0x646f_7261_6e64_6f6d,
            key[0] ^ 0x6c79_6765_6e65_7261,
            key[1] ^ 0x7465_6462_7974_6573,
        ];
        Sip { v, words: 0 }
    }

    #[inline(always)]
    fn round(&mut self) {
        let v = &mut self.v;
        v[0] = v[0].wrapping_add(v[1]);
        v[1] = v[1].rotate_left(13) ^ v[0];
        v[0] = v[0].rotate_left(32);
        v[2] = v[2].wrapping_add(v[3]);
        v[3] = v[3].rotate_left(16) ^ v[2];
        v[0] = v[0].wrapping_add(v[3]);
        v[3] = v[3].rotate_left(21) ^ v[0];
        v[2] = v[2].wrapping_add(v[1]);
        v[1] = v[1].rotate_left(17) ^ v[2];
        v[2] = v[2].rotate_left(32);
    }

    #[inline(always)]
    fn word(&mut self, word: u64) {
        self.v[3] ^= word;
        self.round();
        self.round();
        self.v[0] ^= word;
        self.words = self.words.wrapping_add(1);
    }

    /// `rest` are up to seven bytes behind the words, and `count` how many they are.
    #[inline(always)]
    fn finish(mut self, rest: u64, count: u64) -> u64 {
        self.word(self.words.wrapping_mul(8).wrapping_add(count) << 56 | rest);
        self.v[2] ^= 0xff;
        for _ in 0..4 {
            self.round();
        }
        self.v[0] ^ self.v[1] ^ self.v[2] ^ self.v[3]
    }
}

/// A key that the controller gave.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Base([u8; BASE_LEN]);

impl fmt::Debug for Base {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Base(...)")
    }
}

impl<'de> Deserialize<'de> for Base {
    /// 32 hexadecimal digits. No error says what they were.
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        let mut bytes = [0; BASE_LEN];
        let is_hex = text.len() == 2 * BASE_LEN && text.bytes().all(|b| b.is_ascii_hexdigit());
        for (at, byte) in bytes.iter_mut().enumerate().filter(|_| is_hex) {
            *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap_or(0);
        }
        match is_hex {
            true => Ok(Base(bytes)),
            false => Err(serde::de::Error::custom(format!("key: expected {} hexadecimal digits", 2 * BASE_LEN))),
        }
    }
}

impl Base {
    pub const fn new(bytes: [u8; BASE_LEN]) -> Self {
        Base(bytes)
    }

    fn words(&self) -> [u64; 2] {
        [word_at(&self.0, 0), word_at(&self.0, 8)]
    }
}

/// A key of one generation, ready to use.
#[derive(Clone)]
pub struct Key {
    prf: [u64; 2],
    nh: [u64; BLOCK_WORDS],
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(...)")
    }
}

/// What a seal covers besides the shim.
#[derive(Clone, Copy, Debug, Default)]
pub struct Covered<'a> {
    /// Destination and source of a frame between two switches; None: the frame of a flow, which may travel further.
    pub ends: Option<[u8; ENDS_LEN]>,
    /// What follows the seal; nothing for frames that carry none.
    pub inner: &'a [u8],
}

/// A frame's inner frame as a key sees it; the shim is still missing.
#[derive(Clone, Copy)]
pub struct Condensed(Sip);

impl Key {
    pub fn of(base: Base, generation: u64) -> Rc<Key> {
        let word = |number: u64| {
            let mut sip = Sip::new(base.words());
            sip.word(KEY_DOMAIN | number << 8);
            sip.word(generation);
            sip.finish(0, 0)
        };
        let mut nh = [0; BLOCK_WORDS];
        for (number, key) in nh.iter_mut().enumerate() {
            *key = word(2 + number as u64);
        }
        Rc::new(Key { prf: [word(0), word(1)], nh })
    }

    pub fn condense(&self, Covered { ends, inner }: Covered) -> Condensed {
        let mut sip = Sip::new(self.prf);
        let domain = if ends.is_some() { LINK_DOMAIN } else { SHIM_DOMAIN };
        sip.word(domain | (inner.len() as u64) << 8);
        if let Some(ends) = ends {
            sip.word(word_at(&ends, 0));
            sip.word(u64::from(u32::from_le_bytes([ends[8], ends[9], ends[10], ends[11]])));
        }
        for block in inner.chunks(BLOCK_LEN) {
            let sum = self.block(block);
            sip.word(sum as u64);
            sip.word((sum >> 64) as u64);
        }
        Condensed(sip)
    }

    #[inline]
    fn block(&self, block: &[u8]) -> u128 {
        let mut sum = 0u128;
        let pairs = block.chunks_exact(PAIR_LEN);
        let rest = pairs.remainder();
        let mut keys = self.nh.chunks_exact(2);
        for (pair, key) in pairs.zip(&mut keys) {
            sum = sum.wrapping_add(multiplied(pair, key));
        }
        if !rest.is_empty() {
            let mut last = [0; PAIR_LEN];
            last[..rest.len()].copy_from_slice(rest);
            if let Some(key) = keys.next() {
                sum = sum.wrapping_add(multiplied(&last, key));
            }
        }
        sum
    }

    /// The seal of a shim, as it is on the wire, in front of that. `high` is what its send time lacks (`guard`).
    pub fn seal(&self, condensed: Condensed, shim: &[u8; 12], high: u32) -> u64 {
        let mut sip = condensed.0;
        sip.word(word_at(shim, 0));
        sip.word(u64::from(u32::from_le_bytes([shim[8], shim[9], shim[10], shim[11]])) | u64::from(high) << 32);
        sip.finish(0, 0)
    }

    /// The seal of a hello frame from an interface.
    pub fn seal_hello(&self, mac: &[u8; 6], interval_ms: u16, sequence: u32) -> u64 {
        let mut sip = Sip::new(self.prf);
        let mut from = [0; 8];
        from[..6].copy_from_slice(mac);
        sip.word(HELLO_DOMAIN | u64::from(interval_ms) << 8 | u64::from(sequence) << 32);
        sip.word(u64::from_le_bytes(from));
        sip.finish(0, 0)
    }
}

#[inline(always)]
fn multiplied(pair: &[u8], key: &[u64]) -> u128 {
    let (first, second) = (word_at(pair, 0).wrapping_add(key[0]), word_at(pair, 8).wrapping_add(key[1]));
    u128::from(first) * u128::from(second)
}

#[inline(always)]
fn word_at(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    if let Some(found) = bytes.get(at..at + 8) {
        word.copy_from_slice(found);
    }
    u64::from_le_bytes(word)
}

#[cfg(test)]
#[path = "seal_tests.rs"]
mod tests;
