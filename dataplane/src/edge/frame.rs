//! The labelled frame: Ethernet, MPLS label stack, shim, inner frame; and hello frames. See docs/reference/dataplane.md section
//! 1.
//!
//! Everything here reads hostile bytes: decoding never panics and never loops over more than the frame holds.

use super::seal::SEAL_LEN;
use crate::sys::interface::Mac;

pub const ETHERNET_LEN: usize = 14;
pub const SHIM_LEN: usize = 12;
pub const LABEL_LEN: usize = 4;
pub const HELLO_LEN: usize = 46;
pub const TYPE_MPLS: u16 = 0x8847;
pub const TYPE_AGENT: u16 = 0x88b5;
pub const TYPE_HELLO: u16 = 0x88b6;
pub const BROADCAST: Mac = [0xff; 6];
pub const MAX_LABEL: u32 = (1 << 20) - 1;
const TTL: u32 = 64;
/// Bottom-of-stack bit of a label entry.
const BOTTOM: u32 = 0x100;
const HELLO_VERSION: u8 = 1;
/// Of the first byte of a shim, and of the eighth of a hello: a seal follows, made in the generation whose last two bits
/// are in `GENERATION`.
const SEALED: u8 = 0x80;
const GENERATION: u8 = 0x60;
const HELLO_SEAL_AT: usize = 7;
/// Where the user's frame begins behind the flow number.
pub const INNER_AT: usize = ETHERNET_LEN + LABEL_LEN;
const ADDRESSES_LEN: usize = 12;
const TYPE_VLAN: u16 = 0x8100;
const TYPE_OUTER_VLAN: u16 = 0x88a8;
/// A VLAN tag as a label: these bits, and PCP and VID of the tag in the others.
const TAG_MASK: u32 = 0xf_1000;
const TAG_PRESENT: u16 = 0x1000;
/// A label that says that no tags follow, in front of a user's own MPLS.
const NO_TAG: u32 = 0xe_ffff;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Data = 1,
    /// No inner frame; carries the next sequence number.
    KeepAlive = 2,
    /// A keep-alive that says the sender no longer uses the path: nothing more is to be waited for on it.
    Pause = 3,
    /// Padding of a private flow, or the filling of a path that is probed: whatever follows the shim is to be thrown away; carries the next sequence number.
    Padding = 4,
    /// Says on another path that the path named is used again: frames from this number on may come there.
    Resume = 5,
    /// Pieces of users' frames.
    Pieces = 6,
    /// What a switch sends to its neighbour behind a label, of no flow (`links`).
    Link = 7,
}

impl Kind {
    /// Whether it has a number of its own and brings something for users.
    pub fn is_data(self) -> bool {
        matches!(self, Kind::Data | Kind::Pieces)
    }
}

/// What shows that a frame is from an agent that has the key (`seal`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seal {
    /// The last two bits of the key's generation.
    pub generation: u8,
    pub tag: u64,
}

impl Seal {
    fn flags(generation: u64) -> u8 {
        SEALED | (generation as u8 & 3) << 5
    }

    /// If `flags` say that there is one at `at`.
    fn decode(flags: u8, bytes: &[u8], at: usize) -> Option<Option<Seal>> {
        if flags & SEALED == 0 {
            return Some(None);
        }
        let (high, low) = (be32(bytes, at)?, be32(bytes, at + 4)?);
        Some(Some(Seal { generation: (flags & GENERATION) >> 5, tag: u64::from(high) << 32 | u64::from(low) }))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shim {
    pub kind: Kind,
    pub path: u8,
    pub flow: u16,
    pub sequence: u32,
    pub sent_us: u32,
}

impl Shim {
    pub fn encode(&self, out: &mut [u8]) {
        out[0] = self.kind as u8;
        out[1] = self.path;
        out[2..4].copy_from_slice(&self.flow.to_be_bytes());
        out[4..8].copy_from_slice(&self.sequence.to_be_bytes());
        out[8..12].copy_from_slice(&self.sent_us.to_be_bytes());
    }

    /// In a frame with a seal.
    pub fn encode_sealed(&self, generation: u64) -> [u8; SHIM_LEN] {
        let mut out = [0; SHIM_LEN];
        self.encode(&mut out);
        out[0] |= Seal::flags(generation);
        out
    }

    /// With the seal, if there is one.
    pub fn decode_sealed(bytes: &[u8]) -> Option<(Shim, Option<Seal>)> {
        let seal = Seal::decode(*bytes.first()?, bytes, SHIM_LEN)?;
        let mut shim: [u8; SHIM_LEN] = bytes.get(..SHIM_LEN)?.try_into().ok()?;
        if seal.is_some() {
            shim[0] &= !(SEALED | GENERATION);
        }
        Some((Shim::decode(&shim)?, seal))
    }

    pub fn decode(bytes: &[u8]) -> Option<Shim> {
        let bytes = bytes.get(..SHIM_LEN)?;
        let kind = match bytes[0] {
            1 => Kind::Data,
            2 => Kind::KeepAlive,
            3 => Kind::Pause,
            4 => Kind::Padding,
            5 => Kind::Resume,
            6 => Kind::Pieces,
            7 => Kind::Link,
            _ => return None,
        };
        Some(Shim { kind, path: bytes[1], flow: be16(bytes, 2)?, sequence: be32(bytes, 4)?, sent_us: be32(bytes, 8)? })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    pub interval_ms: u16,
    pub sequence: u32,
}

impl Hello {
    /// The payload, padded to the smallest Ethernet payload.
    pub fn encode(&self) -> [u8; HELLO_LEN] {
        let mut out = [0; HELLO_LEN];
        out[0] = HELLO_VERSION;
        out[1..3].copy_from_slice(&self.interval_ms.to_be_bytes());
        out[3..7].copy_from_slice(&self.sequence.to_be_bytes());
        out
    }

    /// The same with a seal where others have padding: who knows of none reads it as before.
    pub fn encode_sealed(&self, generation: u64, tag: u64) -> [u8; HELLO_LEN] {
        let mut out = self.encode();
        out[HELLO_SEAL_AT] = Seal::flags(generation);
        out[HELLO_SEAL_AT + 1..HELLO_SEAL_AT + 1 + SEAL_LEN].copy_from_slice(&tag.to_be_bytes());
        out
    }

    pub fn decode_sealed(bytes: &[u8]) -> Option<(Hello, Option<Seal>)> {
        let flags = bytes.get(HELLO_SEAL_AT).copied().unwrap_or(0);
        Some((Hello::decode(bytes)?, Seal::decode(flags, bytes, HELLO_SEAL_AT + 1)?))
    }

    pub fn decode(bytes: &[u8]) -> Option<Hello> {
        if *bytes.first()? != HELLO_VERSION {
            return None;
        }
        let sequence = bytes.get(3..7)?;
        Some(Hello { interval_ms: be16(bytes, 1)?, sequence: be32(sequence, 0)? })
    }
}

/// A frame that arrived on the network side. An inner frame is what follows `inner_at`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FromNetwork {
    Shim {
        shim: Shim,
        seal: Option<Seal>,
        inner_at: usize,
    },
    Hello {
        mac: Mac,
        hello: Hello,
        seal: Option<Seal>,
    },
    /// Frames of the node's own switch for a neighbour.
    Labelled,
    Malformed,
}

pub fn parse_network(frame: &[u8]) -> FromNetwork {
    match ether_type(frame) {
        Some(TYPE_AGENT) => match Shim::decode_sealed(&frame[ETHERNET_LEN..]) {
            Some((shim, seal)) => {
                let inner_at = ETHERNET_LEN + SHIM_LEN + if seal.is_some() { SEAL_LEN } else { 0 };
                // A user frame has at least its own Ethernet header.
                match shim.kind == Kind::Data && frame.len() < inner_at + ETHERNET_LEN {
                    true => FromNetwork::Malformed,
                    false => FromNetwork::Shim { shim, seal, inner_at },
                }
            }
            None => FromNetwork::Malformed,
        },
        Some(TYPE_HELLO) => match Hello::decode_sealed(&frame[ETHERNET_LEN..]) {
            Some((hello, seal)) => FromNetwork::Hello { mac: mac_at(frame, 6), hello, seal },
            None => FromNetwork::Malformed,
        },
        Some(TYPE_MPLS) => FromNetwork::Labelled,
        _ => FromNetwork::Malformed,
    }
}

/// A frame that the access side handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FromAccess {
    /// `Ethernet, 0x8847, one label = flow number, user frame`
    Labelled {
        flow: u16,
        inner_at: usize,
    },
    /// `Ethernet, 0x8847, flow number, one label for each of 1 or 2 VLAN tags, user frame without them`:
    /// `put_tags_back` makes it a whole frame again.
    Tagged {
        flow: u16,
        tags: usize,
    },
    Plain,
    Malformed,
}

/// Only for an access side with a switch: without one nothing is labelled, and a user's own MPLS must not be taken for
/// it.
pub fn parse_access(frame: &[u8]) -> FromAccess {
    if frame.len() < ETHERNET_LEN {
        return FromAccess::Malformed;
    }
    if ether_type(frame) != Some(TYPE_MPLS) {
        return FromAccess::Plain;
    }
    let entry = be32(frame, ETHERNET_LEN).unwrap_or(u32::MAX);
    let flow = match u16::try_from(entry >> 12) {
        Ok(flow) => flow,
        Err(_) => return FromAccess::Plain,
    };
    // Open vSwitch clears the bottom-of-stack bit in front of labels of its own, and if the user's frame is MPLS, too.
    let (tags, labels) = if entry & BOTTOM == 0 { labels_behind(&frame[INNER_AT..]) } else { (0, 0) };
    let inner_at = INNER_AT + labels * LABEL_LEN;
    match tags {
        _ if frame.len() < inner_at + ETHERNET_LEN => FromAccess::Plain,
        0 => FromAccess::Labelled { flow, inner_at },
        _ => FromAccess::Tagged { flow, tags },
    }
}

/// How many VLAN tags the labels behind the flow number stand for, and how many labels these are. A switch whose
/// datapath is in the kernel writes them (docs/reference/openflow.md, section 6). Others don't, and in a user's MPLS frame
/// that follows the flow number directly only a group address could be taken for them.
fn labels_behind(bytes: &[u8]) -> (usize, usize) {
    let label_at = |place: usize| be32(bytes, place * LABEL_LEN).map(|entry| (entry >> 12, entry & BOTTOM != 0));
    match (label_at(0), label_at(1)) {
        (Some((NO_TAG, false)), _) => (0, 1),
        (Some((outer, true)), _) if is_tag(outer) => (1, 1),
        (Some((outer, false)), Some((inner, true))) if is_tag(outer) && is_tag(inner) => (2, 2),
        _ => (0, 0),
    }
}

/// A broadcast address is no tag: it would be one of VLAN 4095, which is reserved.
fn is_tag(label: u32) -> bool {
    label & TAG_MASK == TAG_MASK && label != MAX_LABEL
}

/// Writes the tags of a `FromAccess::Tagged` into the user's frame, which then begins at `INNER_AT`. One alone gets the
/// type 0x8100, the outer of two 0x88a8: the switch can't see the types.
pub fn put_tags_back(frame: &mut [u8], tags: usize) {
    let types: &[u16] = if tags == 1 { &[TYPE_VLAN] } else { &[TYPE_OUTER_VLAN, TYPE_VLAN] };
    let inner_at = INNER_AT + types.len() * LABEL_LEN;
    if frame.len() < inner_at + ETHERNET_LEN {
        return;
    }
    let mut written = [0; 2 * LABEL_LEN];
    for (place, (ether_type, tag)) in types.iter().zip(written.chunks_exact_mut(LABEL_LEN)).enumerate() {
        let entry = be32(frame, INNER_AT + place * LABEL_LEN).unwrap_or(0);
        tag[..2].copy_from_slice(&ether_type.to_be_bytes());
        tag[2..].copy_from_slice(&((entry >> 12) as u16 & !TAG_PRESENT).to_be_bytes());
    }
    frame.copy_within(inner_at..inner_at + ADDRESSES_LEN, INNER_AT);
    let tags_at = INNER_AT + ADDRESSES_LEN;
    frame[tags_at..tags_at + types.len() * LABEL_LEN].copy_from_slice(&written[..types.len() * LABEL_LEN]);
}

/// Ethernet header and labels, as they go in front of shim or hello. Every label is a stack of its own (bottom bit
/// set): Open vSwitch drops what it should pop from a stack of more than three. Without labels (neighbouring agents)
/// `bare_type` is what the last switch would have left.
pub fn outer_header(dst: Mac, src: Mac, labels: &[u32], bare_type: u16) -> Vec<u8> {
    let mut out = Vec::with_capacity(ETHERNET_LEN + LABEL_LEN * labels.len());
    out.extend_from_slice(&dst);
    out.extend_from_slice(&src);
    let ether_type = if labels.is_empty() { bare_type } else { TYPE_MPLS };
    out.extend_from_slice(&ether_type.to_be_bytes());
    for label in labels {
        out.extend_from_slice(&(label << 12 | BOTTOM | TTL).to_be_bytes());
    }
    out
}

pub fn ether_type(frame: &[u8]) -> Option<u16> {
    be16(frame, 12)
}

pub fn mac_at(frame: &[u8], at: usize) -> Mac {
    let mut mac = [0; 6];
    if let Some(bytes) = frame.get(at..at + 6) {
        mac.copy_from_slice(bytes);
    }
    mac
}

pub fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    let b = bytes.get(at..at + 2)?;
    Some(u16::from_be_bytes([b[0], b[1]]))
}

pub fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    let b = bytes.get(at..at + 4)?;
    Some(u32::from_be_bytes([b[0], b[1], b[2], b[3]]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edge::testing::Rng;

    #[test]
    fn shim_has_the_documented_layout() {
        let shim = Shim { kind: Kind::Data, path: 3, flow: 0x1234, sequence: 0x0506_0708, sent_us: 0x090a_0b0c };
        let mut out = [0; SHIM_LEN];
        shim.encode(&mut out);
        assert_eq!(out, [1, 3, 0x12, 0x34, 5, 6, 7, 8, 9, 10, 11, 12]);
        assert_eq!(Shim::decode(&out), Some(shim));
        out[0] = 8;
        assert_eq!(Shim::decode(&out), None);
    }

    #[test]
    fn hello_is_padded_and_survives() {
        let hello = Hello { interval_ms: 40, sequence: 77 };
        let bytes = hello.encode();
        assert_eq!((bytes.len(), &bytes[..7]), (46, &[1, 0, 40, 0, 0, 0, 77][..]));
        assert_eq!(Hello::decode(&bytes), Some(hello));
    }

    #[test]
    fn seals_follow_a_shim_and_lie_in_the_padding_of_a_hello() {
        let shim = Shim { kind: Kind::Data, path: 3, flow: 0x1234, sequence: 0x0506_0708, sent_us: 0x090a_0b0c };
        let mut bytes = shim.encode_sealed(7).to_vec();
        assert_eq!(bytes, [0xe1, 3, 0x12, 0x34, 5, 6, 7, 8, 9, 10, 11, 12]);
        bytes.extend_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8]);
        let seal = Seal { generation: 3, tag: 0x0102_0304_0506_0708 };
        assert_eq!(Shim::decode_sealed(&bytes), Some((shim, Some(seal))));
        assert_eq!(Shim::decode_sealed(&bytes[..19]), None);
        // An agent that knows of no seals refuses the shim, and reads the hello.
        assert_eq!(Shim::decode(&bytes), None);
        let hello = Hello { interval_ms: 40, sequence: 77 };
        let bytes = hello.encode_sealed(7, seal.tag);
        assert_eq!(&bytes[..17], &[1, 0, 40, 0, 0, 0, 77, 0xe0, 1, 2, 3, 4, 5, 6, 7, 8, 0]);
        assert_eq!((Hello::decode_sealed(&bytes), Hello::decode(&bytes)), (Some((hello, Some(seal))), Some(hello)));
        assert_eq!(Hello::decode_sealed(&hello.encode()), Some((hello, None)));
        assert_eq!(Hello::decode_sealed(&bytes[..15]), None);
    }

    #[test]
    fn every_label_is_a_stack_of_its_own() {
        let header = outer_header([1; 6], [2; 6], &[111, 222], TYPE_AGENT);
        assert_eq!(ether_type(&header), Some(TYPE_MPLS));
        assert_eq!(be32(&header, 14), Some(111 << 12 | 0x100 | 64));
        assert_eq!(be32(&header, 18), Some(222 << 12 | 0x100 | 64));
        assert_eq!(ether_type(&outer_header([1; 6], [2; 6], &[], TYPE_AGENT)), Some(TYPE_AGENT));
    }

    #[test]
    fn access_frames_are_told_apart() {
        let mut frame = outer_header([1; 6], [2; 6], &[300], TYPE_AGENT);
        frame.extend_from_slice(&[7; 60]);
        assert_eq!(parse_access(&frame), FromAccess::Labelled { flow: 300, inner_at: 18 });
        // Open vSwitch clears the bottom-of-stack bit over a user's own MPLS frame.
        let mut over_mpls = frame.clone();
        over_mpls[16] &= !1;
        assert_eq!(parse_access(&over_mpls), FromAccess::Labelled { flow: 300, inner_at: 18 });
        // A label beyond 16 bits is none of ours.
        let mut user = outer_header([1; 6], [2; 6], &[70_000], TYPE_AGENT);
        user.extend_from_slice(&[7; 60]);
        assert_eq!(parse_access(&user), FromAccess::Plain);
        assert_eq!(parse_access(&frame[..20]), FromAccess::Plain);
        assert_eq!(parse_access(&frame[..13]), FromAccess::Malformed);
    }

    /// A frame with these VLAN tags (type and TCI), and as a switch with a kernel datapath hands it over.
    fn tagged(tags: &[(u16, u16)]) -> (Vec<u8>, Vec<u8>) {
        let (addresses, rest) = ([3; ADDRESSES_LEN], [b"\x08\x06".as_slice(), &[9; 46]].concat());
        let (mut whole, mut handed) = (addresses.to_vec(), outer_header([1; 6], [2; 6], &[300], TYPE_AGENT));
        handed[16] &= !1;
        for (place, (ether_type, tci)) in tags.iter().enumerate() {
            whole.extend_from_slice(&ether_type.to_be_bytes());
            whole.extend_from_slice(&tci.to_be_bytes());
            let bottom = u32::from(place + 1 == tags.len()) * BOTTOM;
            let entry = (TAG_MASK | u32::from(*tci)) << 12 | bottom | TTL;
            handed.extend_from_slice(&entry.to_be_bytes());
        }
        whole.extend_from_slice(&rest);
        handed.extend_from_slice(&addresses);
        handed.extend_from_slice(&rest);
        (whole, handed)
    }

    #[test]
    fn vlan_tags_that_come_as_labels_are_put_back() {
        let mut rng = Rng::new(11);
        let mut tci = || (rng.below(8) << 13 | rng.below(4095)) as u16;
        for _ in 0..2000 {
            let one = vec![(TYPE_VLAN, tci())];
            let two = vec![(TYPE_OUTER_VLAN, tci()), (TYPE_VLAN, tci())];
            for tags in [one, two] {
                let (whole, mut handed) = tagged(&tags);
                assert_eq!(parse_access(&handed), FromAccess::Tagged { flow: 300, tags: tags.len() });
                put_tags_back(&mut handed, tags.len());
                assert_eq!(&handed[INNER_AT..], &whole[..]);
            }
        }
    }

    #[test]
    fn a_users_own_mpls_is_taken_for_no_tag() {
        let flow = |user: &[u8]| {
            let mut frame = outer_header([1; 6], [2; 6], &[300], TYPE_AGENT);
            frame[16] &= !1;
            frame.extend_from_slice(user);
            frame
        };
        // Any unicast address, and that of a broadcast, directly behind the flow number.
        let mut rng = Rng::new(12);
        for _ in 0..20_000 {
            let mut user: Vec<u8> = (0..60).map(|_| rng.next() as u8).collect();
            user[0] &= !1;
            assert_eq!(parse_access(&flow(&user)), FromAccess::Labelled { flow: 300, inner_at: INNER_AT });
        }
        assert_eq!(parse_access(&flow(&[0xff; 60])), FromAccess::Labelled { flow: 300, inner_at: INNER_AT });
        // A kernel datapath says so with a label.
        let mut marked = (NO_TAG << 12 | TTL).to_be_bytes().to_vec();
        marked.extend_from_slice(&[0xff; 60]);
        let inner_at = INNER_AT + LABEL_LEN;
        assert_eq!(parse_access(&flow(&marked)), FromAccess::Labelled { flow: 300, inner_at });
        assert_eq!(parse_access(&flow(&marked)[..inner_at + 13]), FromAccess::Plain);
    }

    #[test]
    fn random_bytes_never_panic_and_round_trips_hold() {
        let mut rng = Rng::new(7);
        for _ in 0..200_000 {
            let mut bytes: Vec<u8> = (0..rng.below(80)).map(|_| rng.next() as u8).collect();
            if bytes.len() > 14 && rng.below(2) == 0 {
                let kinds = [TYPE_AGENT, TYPE_HELLO, TYPE_MPLS];
                bytes[12..14].copy_from_slice(&kinds[rng.below(3)].to_be_bytes());
            }
            if bytes.len() > 24 && rng.below(2) == 0 {
                // Labels for tags behind a flow number without a bottom.
                bytes[14..17].copy_from_slice(&[0, 1, 0]);
                bytes[18..20].copy_from_slice(&[0xf1, 0x23]);
                bytes[22..24].copy_from_slice(&[0xf3, 0x45]);
            }
            if let FromAccess::Tagged { tags, .. } = parse_access(&bytes) {
                put_tags_back(&mut bytes.clone(), tags);
            }
            put_tags_back(&mut bytes.clone(), 1 + rng.below(2));
            if let FromNetwork::Shim { shim, seal, inner_at } = parse_network(&bytes) {
                let mut out = [0; SHIM_LEN];
                shim.encode(&mut out);
                if let Some(seal) = seal {
                    out = shim.encode_sealed(seal.generation.into());
                    assert_eq!(bytes[inner_at - SEAL_LEN..inner_at], seal.tag.to_be_bytes());
                }
                assert_eq!((&out[..], seal.is_some()), (&bytes[14..14 + SHIM_LEN], inner_at == 34));
            }
        }
    }
}
