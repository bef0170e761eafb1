//! Seals: known answers, and what changes them. The golden ones were computed by another program, in Python, from the
//! description in docs/reference/dataplane.md.

use super::*;
use crate::edge::frame::{Kind, Shim};
use crate::edge::testing::Rng;

const BASE: [u8; 16] = [16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31];
const GENERATION: u64 = 20_783;

fn shim() -> [u8; 12] {
    let shim = Shim { kind: Kind::Data, path: 3, flow: 0x1234, sequence: 0x0506_0708, sent_us: 0x090a_0b0c };
    shim.encode_sealed(GENERATION)
}

/// What the seal of a flow's frame covers.
fn flow(inner: &[u8]) -> Covered<'_> {
    Covered { ends: None, inner }
}

#[test]
fn siphash_gives_the_answer_of_its_paper() {
    let key: Vec<u8> = (0..16).collect();
    let mut sip = Sip::new([word_at(&key, 0), word_at(&key, 8)]);
    let message: Vec<u8> = (0..15).collect();
    sip.word(word_at(&message, 0));
    let mut rest = [0; 8];
    rest[..7].copy_from_slice(&message[8..]);
    assert_eq!(sip.finish(u64::from_le_bytes(rest), 7), 0xa129_ca61_49be_45e5);
}

#[test]
fn golden_seals() {
    let key = Key::of(Base::new(BASE), GENERATION);
    let short: Vec<u8> = (0..60).collect();
    let long: Vec<u8> = (0..1514u32).map(|i| (i * 7) as u8).collect();
    for (inner, wanted) in
        [(&[][..], 0x9805_5f3d_8d42_79ca), (&short, 0x244f_5358_f4f5_3abf), (&long, 0x18dc_2493_a112_da0d)]
    {
        assert_eq!(key.seal(key.condense(flow(inner)), &shim(), 1), wanted, "{} bytes", inner.len());
    }
    assert_eq!(key.seal_hello(&[2, 0, 1, 1, 0, 5], 40, 77), 0x8e62_bb76_01bd_0cb7);
}

#[test]
fn any_bit_and_any_length_changes_a_seal() {
    let mut rng = Rng::new(3);
    let key = Key::of(Base::new(BASE), 1);
    for _ in 0..3_000 {
        let mut inner: Vec<u8> = (0..rng.below(700)).map(|_| (rng.next() as u8) & (rng.next() as u8)).collect();
        let (mut head, high) = (shim(), rng.next() as u32);
        let seal = |inner: &[u8], head: &[u8; 12], high: u32| key.seal(key.condense(flow(inner)), head, high);
        let right = seal(&inner, &head, high);
        assert_eq!(seal(&inner, &head, high), right);
        assert_ne!(seal(&inner, &head, high ^ 1 << rng.below(32)), right);
        let (at, bit) = (rng.below(12), 1 << rng.below(8));
        head[at] ^= bit;
        assert_ne!(seal(&inner, &head, high), right);
        head[at] ^= bit;
        inner.push(0);
        assert_ne!(seal(&inner, &head, high), right, "a zero more");
        inner.pop();
        if !inner.is_empty() {
            let at = rng.below(inner.len());
            inner[at] ^= 1 << rng.below(8);
            assert_ne!(seal(&inner, &head, high), right);
        }
    }
}

#[test]
fn two_halves_that_change_places_change_a_seal() {
    let key = Key::of(Base::new(BASE), 1);
    let inner: Vec<u8> = (0..512u32).map(|i| (i / 16) as u8).collect();
    let seal = |inner: &[u8]| key.seal(key.condense(flow(inner)), &shim(), 0);
    for step in [8, 16, 256] {
        let mut other = inner.clone();
        let (first, second) = (other[..step].to_vec(), other[step..2 * step].to_vec());
        other[..step].copy_from_slice(&second);
        other[step..2 * step].copy_from_slice(&first);
        assert!(seal(&other) != seal(&inner) || other == inner, "{step}");
    }
}

#[test]
fn other_keys_and_generations_give_other_seals() {
    let seal = |base: [u8; 16], generation: u64| {
        let key = Key::of(Base::new(base), generation);
        key.seal(key.condense(flow(&[1; 300])), &shim(), 0)
    };
    let mut other = BASE;
    other[15] ^= 1;
    let seals = [seal(BASE, 1), seal(BASE, 2), seal(other, 1), seal(other, 2)];
    assert!((0..4).all(|a| (0..a).all(|b| seals[a] != seals[b])));
}

#[test]
fn a_key_is_read_and_never_shown() {
    let base: Base = serde_json::from_str("\"101112131415161718191a1b1c1d1E1F\"").unwrap();
    assert_eq!(base, Base::new(BASE));
    assert_eq!(format!("{base:?} {:?}", Key::of(base, 1)), "Base(...) Key(...)");
    for wrong in
        ["\"\"", "\"10\"", "\"+0111213141516171819aabbccddeeff00\"", "\"1011121314151617é1b1c1d1e1f00000\"", "7"]
    {
        let error = serde_json::from_str::<Base>(wrong).unwrap_err().to_string();
        assert!(wrong == "7" || (error.contains("32 hexadecimal digits") && !error.contains("1213")), "{error}");
    }
}
