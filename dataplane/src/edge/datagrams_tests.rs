use super::*;
use crate::edge::fit::{TYPE_IPV4, TYPE_IPV6};
use crate::edge::testing::{ethernet, fragments_v4, udp_v6, Rng};

const MS: u64 = 1_000_000;

fn fragment_v6(identification: u32, is_later: bool) -> Vec<u8> {
    let mut packet = udp_v6(40 + 8 + 64);
    packet[6] = 44;
    packet[40..48].copy_from_slice(&[17, 0, u8::from(is_later) * 2, u8::from(!is_later), 0, 0, 0, 0]);
    packet[44..48].copy_from_slice(&identification.to_be_bytes());
    ethernet(TYPE_IPV6, &[], &packet)
}

#[test]
fn later_fragments_share_the_fate_of_the_first() {
    let v4 = |id: u16| {
        let frames = fragments_v4(id, &[1456, 24], &[]);
        (frames[0].clone(), frames[1].clone())
    };
    let v6 = |id: u16| (fragment_v6(u32::from(id), false), fragment_v6(u32::from(id), true));
    for pair in [&v4 as &dyn Fn(u16) -> (Vec<u8>, Vec<u8>), &v6] {
        let mut datagrams = Datagrams::default();
        let ((first, later), (other, other_later)) = (pair(1), pair(2));
        assert!(!datagrams.admit(0, &first, 1) && datagrams.admit(0, &other, 0));
        assert!(!datagrams.admit(0, &later, 0), "there is room for it, but the first one is gone");
        assert!(datagrams.admit(0, &other_later, 100), "there is no room for it, but the first one waits");
        assert!(!datagrams.admit(FORGET_NS, &later, 0) && datagrams.admit(FORGET_NS + 1, &later, 0));
    }
}

#[test]
fn other_frames_are_taken_while_there_is_room() {
    let mut datagrams = Datagrams::default();
    assert!(!datagrams.admit(0, &fragments_v4(1, &[1456, 24], &[])[0], 1));
    for frame in [fragments_v4(1, &[900], &[])[0].clone(), ethernet(0x0806, &[], &[0; 28]), vec![1, 2]] {
        assert!(datagrams.admit(MS, &frame, 0) && !datagrams.admit(MS, &frame, 1));
    }
    assert_eq!(datagrams.refused.len(), 1, "whole packets are not remembered");
}

#[test]
fn fragments_without_end_are_bounded() {
    let mut datagrams = Datagrams::default();
    let later = &fragments_v4(7, &[1456, 1456, 24], &[5])[1];
    assert!(datagrams.admit(0, later, MOST_BEYOND) && !datagrams.admit(0, later, MOST_BEYOND + 1));
    for id in 0..100 {
        assert!(!datagrams.admit(0, &fragments_v4(id, &[1456, 24], &[])[0], 9));
        assert!(datagrams.refused.len() <= MOST_REFUSED);
    }
}

#[test]
fn random_bytes_never_panic() {
    let (mut rng, mut datagrams) = (Rng::new(12), Datagrams::default());
    for k in 0..50_000 {
        let mut bytes: Vec<u8> = (0..rng.below(90)).map(|_| rng.next() as u8).collect();
        if bytes.len() > 14 {
            let kind = [TYPE_IPV4, TYPE_IPV6, 0x8100][rng.below(3)];
            bytes[12..14].copy_from_slice(&kind.to_be_bytes());
            bytes[14] = [0x45, 0x60, 0x4f][rng.below(3)];
        }
        datagrams.admit(k * MS, &bytes, rng.below(3));
        assert!(datagrams.refused.len() <= MOST_REFUSED);
    }
}
