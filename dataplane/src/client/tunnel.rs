//! What travels between the two ends of the client stack, in UDP: inner packets, and messages about interfaces and
//! flows. Bytes in, messages out; nothing here knows time or sockets.
//!
//! ```text
//! 0       1          2..3         4..7       8..11                    12..15    16..23   24..
//! kind    interface  flow number  sequence   send time, us mod 2^32   session   tag      inner packet or message
//! ```
//!
//! Kinds 1 to 5 are those of labelled frames (`edge::frame`); `interface` is the client's number of the interface that
//! the datagram travels over. The tag is SipHash-2-4 of the first 16 bytes and the first `TAGGED` bytes behind the tag,
//! under a key that both ends got over TLS; each direction has its own, derived from it. So nobody else can move, begin
//! or end a flow. Payload beyond these bytes is no better protected than without a tunnel.

use crate::edge::frame::{be16, be32, Kind, Shim, SHIM_LEN};

/// Bytes in front of an inner packet.
pub const HEADER_LEN: usize = 24;
/// Bytes behind the header that the tag covers: the headers of an inner packet and all messages.
pub const TAGGED: usize = 96;
const SESSION_AT: usize = SHIM_LEN;
const TAG_AT: usize = 16;

const HELLO: u8 = 16;
const ECHO: u8 = 17;
const BIND: u8 = 18;
const BOUND: u8 = 19;

/// The key of a session.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Key([u64; 2]);

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key(..)")
    }
}

impl Key {
    /// Reads 32 hexadecimal digits.
    pub fn parse(text: &str) -> Option<Key> {
        if text.len() != 32 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
            return None;
        }
        let half = |at: usize| u64::from_str_radix(&text[at..at + 16], 16).ok();
        Some(Key([half(0)?, half(16)?]))
    }

    /// The key of what the waypoint sends: nothing that a client has sent can be given back to it, or the other way.
    pub fn of_waypoint(self) -> Key {
        Key([self.0[0] ^ 0x5c5c_5c5c_5c5c_5c5c, self.0[1]])
    }
}

/// What the sender wants of a flow, said by the client to the waypoint.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bind {
    /// Grows with every bind of a session: an older one that comes later is nothing.
    pub serial: u32,
    pub accepts: u16,
    /// The interface to use while the flow is not spread.
    pub home: u8,
    pub urgent: bool,
    /// Each packet goes over the interface that is free, not all over `home`.
    pub spread: bool,
    /// Each packet goes over every interface.
    pub copies: bool,
    /// Thousandths.
    pub weight_milli: u32,
}

/// What an interface's hello says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Grows with every hello of a session, whatever the interface.
    pub serial: u32,
    /// What the waypoint may send over it, kilobit/s; 0 is not known.
    pub rate_kbps: u32,
    /// The interfaces over which the client wants to get packets.
    pub usable: u16,
}

/// The answer to a hello, on the same interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Echo {
    pub serial: u32,
    /// The send time of the hello that it answers.
    pub asked_us: u32,
}

/// What a datagram carries behind its header.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Body {
    /// An inner packet from `HEADER_LEN` on, or what else concerns the order of a flow.
    Shim,
    Hello(Hello),
    Echo(Echo),
    Bind(Bind),
    Bound {
        serial: u32,
    },
}

/// A datagram as it came, its tag not yet compared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Datagram {
    /// Of a message only `path`, `flow` and `sent_us` mean something.
    pub shim: Shim,
    pub session: u32,
    pub body: Body,
}

/// The session that a datagram claims to belong to.
pub fn session_of(bytes: &[u8]) -> Option<u32> {
    be32(bytes, SESSION_AT)
}

/// Reads a datagram; None if it is malformed or its tag is wrong.
pub fn decode(bytes: &[u8], key: Key) -> Option<Datagram> {
    let session = session_of(bytes)?;
    let head = bytes.get(..TAG_AT)?;
    let mut tag_bytes = [0; 8];
    tag_bytes.copy_from_slice(bytes.get(TAG_AT..HEADER_LEN)?);
    let behind = &bytes[HEADER_LEN..];
    if tag(key, head, &behind[..behind.len().min(TAGGED)]) != u64::from_be_bytes(tag_bytes) {
        return None;
    }
    if let Some(shim) = Shim::decode(bytes) {
        return Some(Datagram { shim, session, body: Body::Shim });
    }
    let body = match bytes[0] {
        HELLO => Body::Hello(Hello { serial: be32(behind, 0)?, rate_kbps: be32(behind, 4)?, usable: be16(behind, 8)? }),
        ECHO => Body::Echo(Echo { serial: be32(behind, 0)?, asked_us: be32(behind, 4)? }),
        BIND => Body::Bind(decode_bind(behind)?),
        BOUND => Body::Bound { serial: be32(behind, 0)? },
        _ => return None,
    };
    let shim = Shim {
        kind: Kind::KeepAlive,
        path: bytes[1],
        flow: be16(bytes, 2)?,
        sequence: be32(bytes, 4)?,
        sent_us: be32(bytes, 8)?,
    };
    Some(Datagram { shim, session, body })
}

fn decode_bind(bytes: &[u8]) -> Option<Bind> {
    let flags = *bytes.get(7)?;
    Some(Bind {
        serial: be32(bytes, 0)?,
        accepts: be16(bytes, 4)?,
        home: *bytes.get(6)?,
        urgent: flags & 1 != 0,
        spread: flags & 2 != 0,
        copies: flags & 4 != 0,
        weight_milli: be32(bytes, 8)?,
    })
}

/// The header of a datagram that carries `inner` (nothing for a keep-alive or a pause).
pub fn header(shim: &Shim, session: u32, key: Key, inner: &[u8]) -> [u8; HEADER_LEN] {
    let mut out = [0; HEADER_LEN];
    shim.encode(&mut out);
    finish(&mut out, session, key, inner);
    out
}

fn finish(header: &mut [u8; HEADER_LEN], session: u32, key: Key, behind: &[u8]) {
    header[SESSION_AT..TAG_AT].copy_from_slice(&session.to_be_bytes());
    let tag = tag(key, &header[..TAG_AT], &behind[..behind.len().min(TAGGED)]);
    header[TAG_AT..].copy_from_slice(&tag.to_be_bytes());
}

/// Longest message with its header.
pub const MESSAGE_LEN: usize = HEADER_LEN + 12;

/// A message as a whole datagram and its length. `body` is none that carries a packet.
pub fn message(body: &Body, path: u8, flow: u16, sent_us: u32, session: u32, key: Key) -> ([u8; MESSAGE_LEN], usize) {
    let mut text = [0; 12];
    let (kind, length) = match body {
        Body::Hello(hello) => {
            text[..4].copy_from_slice(&hello.serial.to_be_bytes());
            text[4..8].copy_from_slice(&hello.rate_kbps.to_be_bytes());
            text[8..10].copy_from_slice(&hello.usable.to_be_bytes());
            (HELLO, 10)
        }
        Body::Echo(echo) => {
            text[..4].copy_from_slice(&echo.serial.to_be_bytes());
            text[4..8].copy_from_slice(&echo.asked_us.to_be_bytes());
            (ECHO, 8)
        }
        Body::Bind(bind) => {
            text[..4].copy_from_slice(&bind.serial.to_be_bytes());
            text[4..6].copy_from_slice(&bind.accepts.to_be_bytes());
            text[6] = bind.home;
            text[7] = u8::from(bind.urgent) | u8::from(bind.spread) << 1 | u8::from(bind.copies) << 2;
            text[8..].copy_from_slice(&bind.weight_milli.to_be_bytes());
            (BIND, 12)
        }
        Body::Bound { serial } => {
            text[..4].copy_from_slice(&serial.to_be_bytes());
            (BOUND, 4)
        }
        Body::Shim => (Kind::KeepAlive as u8, 0),
    };
    let mut header = [0; HEADER_LEN];
    Shim { kind: Kind::KeepAlive, path, flow, sequence: 0, sent_us }.encode(&mut header);
    header[0] = kind;
    finish(&mut header, session, key, &text[..length]);
    let mut out = [0; MESSAGE_LEN];
    out[..HEADER_LEN].copy_from_slice(&header);
    out[HEADER_LEN..].copy_from_slice(&text);
    (out, HEADER_LEN + length)
}

/// SipHash-2-4 (Aumasson, Bernstein 2012) of `head`, 16 bytes, and `behind`.
fn tag(key: Key, head: &[u8], behind: &[u8]) -> u64 {
    let mut state = Sip::new(key.0);
    let mut words = head.chunks_exact(8).chain(behind.chunks_exact(8));
    words.by_ref().for_each(|word| state.word(little(word)));
    let rest = behind.chunks_exact(8).remainder();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    last[7] = (head.len() + behind.len()) as u8;
    state.word(u64::from_le_bytes(last));
    state.end()
}

fn little(word: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(word);
    u64::from_le_bytes(bytes)
}

struct Sip([u64; 4]);

impl Sip {
    fn new(key: [u64; 2]) -> Self {
        Sip([
            key[0] ^ 0x736f_6d65_7073_6575,
            key[1] ^ 0x646f_7261_6e64_6f6d,
            key[0] ^ 0x6c79_6765_6e65_7261,
            key[1] ^ 0x7465_6462_7974_6573,
        ])
    }

    #[inline]
    fn round(&mut self) {
        let v = &mut self.0;
        v[0] = v[0].wrapping_add(v[1]);
        v[2] = v[2].wrapping_add(v[3]);
        v[1] = v[1].rotate_left(13) ^ v[0];
        v[3] = v[3].rotate_left(16) ^ v[2];
        v[0] = v[0].rotate_left(32);
        v[2] = v[2].wrapping_add(v[1]);
        v[0] = v[0].wrapping_add(v[3]);
        v[1] = v[1].rotate_left(17) ^ v[2];
        v[3] = v[3].rotate_left(21) ^ v[0];
        v[2] = v[2].rotate_left(32);
    }

    #[inline]
    fn word(&mut self, word: u64) {
        self.0[3] ^= word;
        self.round();
        self.round();
        self.0[0] ^= word;
    }

    fn end(mut self) -> u64 {
        self.0[2] ^= 0xff;
        (0..4).for_each(|_| self.round());
        self.0.iter().fold(0, |all, word| all ^ word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edge::testing::Rng;

    const KEY: Key = Key([0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908]);

    #[test]
    fn the_tag_is_the_published_siphash() {
        // Test vectors of the reference implementation: key 00..0f, messages 00 01 02 ...
        let bytes: Vec<u8> = (0..64).collect();
        assert_eq!(tag(KEY, &[], &bytes[..15]), 0xa129_ca61_49be_45e5);
        assert_eq!(tag(KEY, &bytes[..8], &bytes[8..15]), 0xa129_ca61_49be_45e5);
        assert_eq!(tag(KEY, &[], &[]), 0x726f_db47_dd0e_0e31);
    }

    fn messages() -> Vec<Body> {
        vec![
            Body::Hello(Hello { serial: 7, rate_kbps: 20_000, usable: 0b1001 }),
            Body::Echo(Echo { serial: 7, asked_us: u32::MAX }),
            Body::Bind(Bind {
                serial: 9,
                accepts: 0b101,
                home: 2,
                urgent: true,
                spread: false,
                copies: true,
                weight_milli: 1500,
            }),
            Body::Bound { serial: 9 },
        ]
    }

    #[test]
    fn messages_and_packets_survive_the_way() {
        for body in messages() {
            let (bytes, length) = message(&body, 3, 77, 1234, 5, KEY);
            let datagram = decode(&bytes[..length], KEY).unwrap();
            assert_eq!((datagram.body, datagram.session, datagram.shim.path), (body, 5, 3));
            assert_eq!((datagram.shim.flow, datagram.shim.sent_us), (77, 1234));
        }
        let shim = Shim { kind: Kind::Data, path: 1, flow: 2, sequence: 3, sent_us: 4 };
        let mut bytes = header(&shim, 8, KEY, &[7; 200]).to_vec();
        bytes.extend_from_slice(&[7; 200]);
        assert_eq!(decode(&bytes, KEY), Some(Datagram { shim, session: 8, body: Body::Shim }));
    }

    #[test]
    fn no_bit_that_matters_can_be_changed() {
        let shim = Shim { kind: Kind::Data, path: 1, flow: 2, sequence: 3, sent_us: 4 };
        let mut whole = header(&shim, 8, KEY, &[7; 100]).to_vec();
        whole.extend_from_slice(&[7; 100]);
        for bit in 0..(HEADER_LEN + TAGGED) * 8 {
            whole[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(&whole, KEY), None, "bit {bit}");
            whole[bit / 8] ^= 1 << (bit % 8);
        }
        assert!(decode(&whole, KEY).is_some());
        assert_eq!(decode(&whole, Key([1, 2])), None);
    }

    #[test]
    fn random_and_cut_bytes_never_panic() {
        let mut rng = Rng::new(5);
        for _ in 0..100_000 {
            let bytes: Vec<u8> = (0..rng.below(60)).map(|_| rng.next() as u8).collect();
            assert_eq!(decode(&bytes, KEY), None);
        }
        for body in messages() {
            let (bytes, length) = message(&body, 0, 0, 0, 0, KEY);
            (0..length).for_each(|cut| assert_eq!(decode(&bytes[..cut], KEY), None, "{body:?} cut to {cut}"));
        }
    }

    #[test]
    fn keys_are_32_hexadecimal_digits() {
        assert_eq!(Key::parse("07060504030201000f0e0d0c0b0a0908"), Some(KEY));
        for bad in ["", "0", "+7060504030201000f0e0d0c0b0a0908", "é7060504030201000f0e0d0c0b0a090"] {
            assert_eq!(Key::parse(bad), None, "{bad}");
        }
        assert_eq!(format!("{KEY:?}"), "Key(..)");
    }
}
