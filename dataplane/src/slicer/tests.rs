//! What `tests/unit/slices/test_slicer_fast_path.py` can't see from outside.
use super::layout::{Bucket, Tenant, PORTS, PORT_WORDS};
use super::matches::plain_match;
use super::messages::{flow_mod, packet_in};
use super::spin::Spin;
use crate::rng::Rng;

#[test]
fn looks_again_only_behind_close_messages_and_for_a_short_time() {
    let mut spin = Spin::default();
    assert!(!spin.again(0.0, || true), "nothing has come");
    for number in 0..4 {
        spin.came(f64::from(number));
        assert!(!spin.again(f64::from(number), || true), "a message a second is not close");
    }
    (0..4).for_each(|number| spin.came(3.0 + f64::from(number) * 1e-4));
    let mut now_s = 3.0003;
    assert!(spin.again(now_s, || true));
    while spin.again(now_s, || true) {
        now_s += 1e-6;
    }
    assert!(now_s - 3.0003 < 100e-6, "it sleeps soon");
}

#[test]
fn leaves_the_processor_to_others() {
    let mut spin = Spin::default();
    (0..9).for_each(|number| spin.came(f64::from(number) * 1e-5));
    assert!(!spin.again(9e-5, || false), "there is one processor");
    let mut spin = Spin::default();
    (0..9).for_each(|number| spin.came(f64::from(number) * 1e-5));
    assert!(spin.again(8e-5, || true));
    assert!(!spin.again(8e-5 + 30e-6, || true), "somebody else has worked meanwhile");
}

#[test]
fn a_bucket_forgives_what_is_beyond_its_burst() {
    let mut bucket = Bucket { rate_per_s: 10.0, burst: 2.0, tokens: -50.0, filled_s: f64::INFINITY };
    assert!(!bucket.take(5.0));
    assert_eq!(bucket.tokens, -2.0);
    assert!(bucket.take(5.31) && !bucket.take(5.31));
}

#[test]
fn a_field_needs_what_it_stands_on() {
    let eth_type = [0x80, 0, 10, 2, 8, 0];
    let proto = [0x80, 0, 20, 1, 6];
    let tcp = [0x80, 0, 28, 2, 0, 80];
    let plain = |parts: &[&[u8]]| plain_match(&parts.concat()).is_some();
    assert!(plain(&[&eth_type, &proto, &tcp]) && plain(&[&tcp, &proto, &eth_type]));
    assert!(!plain(&[&proto, &tcp]) && !plain(&[&eth_type, &tcp]) && !plain(&[&eth_type, &eth_type]));
    assert!(!plain(&[&eth_type[..5]]));
}

#[test]
fn no_message_makes_it_panic() {
    let mut random = Rng::new(1);
    let tenant = Tenant {
        packet_ins: std::ptr::null_mut(),
        changes: std::ptr::null_mut(),
        entries: std::ptr::null_mut(),
        messages: 0,
        dropped_packet_ins: 0,
        metadata_mask: 0xFFFF,
        queue: 1,
        first_table: 10,
        table_count: 4,
        ports_known: 1,
        uniform: 1,
        guest_count: 0,
        padding: 0,
        ports: [u64::MAX; PORT_WORDS],
        whole: [u64::MAX; PORT_WORDS],
        guests: [std::ptr::null_mut(); 8],
    };
    let kinds = [0; PORTS];
    let mut out = Vec::new();
    for _ in 0..200_000 {
        let length = (random.bits() % 120) as usize;
        let mut message: Vec<u8> =
            (0..length).map(|_| [0, 0, 1, 4, 8, 16, 0x80, 0xFF][(random.bits() % 8) as usize]).collect();
        for (at, value) in
            [(0, 4), (1, if random.bits() % 2 == 0 { 10 } else { 14 }), (24, 0), (25, 0), (49, 1), (50, 0)]
        {
            if let Some(place) = message.get_mut(at) {
                *place = value;
            }
        }
        let before = out.len();
        if !packet_in(&message, &tenant, &mut out) && !flow_mod(&message, &tenant, &kinds, 7, &mut out) {
            assert_eq!(out.len(), before, "what is not forwarded leaves nothing");
        }
        out.clear();
    }
}
