use super::*;
use crate::edge::testing::{ethernet, udp_v6, Rng};
use crate::ip::checksum::checksum;

fn frame(to: u8, tags: &[u16], kind: u16, packet: &[u8]) -> Vec<u8> {
    let mut frame = ethernet(kind, tags, packet);
    frame[0] = to;
    frame
}

fn udp_v4(len: usize, flags: u8, to: [u8; 4]) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 0, 0, 9, flags, 0, 64, 17, 0, 0, 10, 0, 0, 1];
    packet.extend_from_slice(&to);
    packet[2..4].copy_from_slice(&(len as u16).to_be_bytes());
    packet.extend((20..len).map(|i| i as u8));
    packet
}

/// A SYN with a segment size of 1460 bytes and a right checksum.
fn syn_v4() -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 44, 0, 9, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    packet.extend_from_slice(&[0x9c, 0x40, 0, 80, 0, 0, 0, 1, 0, 0, 0, 0, 0x60, 0x02, 0xff, 0xff, 0, 0, 0, 0]);
    packet.extend_from_slice(&[2, 4, 0x05, 0xb4]);
    let sum = checksum(&[&packet[12..20], &[0, 6, 0, 24], &packet[20..]]);
    packet[36..38].copy_from_slice(&sum.to_be_bytes());
    packet
}

#[test]
fn the_segment_size_of_a_syn_is_lowered_and_its_checksum_stays_right() {
    for tags in [&[][..], &[7], &[7, 9]] {
        let mut bytes = frame(2, tags, TYPE_IPV4, &syn_v4());
        let at = 14 + 4 * tags.len();
        assert!(clamp(&mut bytes, 1460 + 4 * tags.len()));
        let packet = &bytes[at..];
        assert_eq!(be16(packet, 42), Some(1460 - 14 - 40));
        assert_eq!(checksum(&[&packet[12..20], &[0, 6, 0, 24], &packet[20..]]), 0);
        assert!(!clamp(&mut bytes, 1514), "it is low enough");
    }
    let mut data = frame(2, &[], TYPE_IPV4, &syn_v4());
    data[14 + 33] = 0x10;
    assert!(!clamp(&mut data, 1460), "no SYN");
    assert!(!clamp(&mut frame(2, &[], 0x0806, &[0; 28]), 1460));
}

#[test]
fn a_packet_that_may_be_fragmented_comes_in_fragments_that_fit() {
    for tags in [&[][..], &[7]] {
        let packet = udp_v4(1500, 0, [10, 0, 0, 2]);
        let whole = frame(2, tags, TYPE_IPV4, &packet);
        let pieces = match fit(&whole, 1400) {
            Fitted::Fragments(pieces) => pieces,
            other => panic!("{other:?}"),
        };
        let at = 14 + 4 * tags.len();
        let mut payload = Vec::new();
        for piece in &pieces {
            assert!(piece.len() <= 1400 && piece[..at] == whole[..at]);
            assert_eq!(checksum(&[&piece[at..at + 20]]), 0);
            payload.extend_from_slice(&piece[at + 20..]);
        }
        assert_eq!((pieces.len(), payload), (2, packet[20..].to_vec()));
    }
}

#[test]
fn a_packet_that_must_not_be_fragmented_is_answered_unless_it_goes_to_a_group() {
    let whole = frame(2, &[], TYPE_IPV4, &udp_v4(1500, 0x40, [10, 0, 0, 2]));
    match fit(&whole, 1496) {
        Fitted::Answer(answer) => assert_eq!((be16(&answer, 14 + 26), answer[14 + 20]), (Some(1482), 3)),
        other => panic!("{other:?}"),
    }
    match fit(&frame(2, &[5], TYPE_IPV6, &udp_v6(1500)), 1496) {
        Fitted::Answer(answer) => assert_eq!(be16(&answer, 18 + 46), Some(1478)),
        other => panic!("{other:?}"),
    }
    let group = frame(1, &[], TYPE_IPV4, &udp_v4(1500, 0x40, [239, 1, 1, 1]));
    assert!(matches!(fit(&group, 1496), Fitted::Fragments(pieces) if pieces.len() == 2));
    assert_eq!(fit(&frame(2, &[], 0x88cc, &[0; 1500]), 1496), Fitted::Nothing);
}

#[test]
fn random_frames_never_panic() {
    let mut rng = Rng::new(39);
    for _ in 0..50_000 {
        let payload: Vec<u8> = (0..rng.below(120)).map(|_| rng.next() as u8).collect();
        let kind = [TYPE_IPV4, TYPE_IPV6, 0x8100, 0x88a8][rng.below(4)];
        let mut bytes = frame([1, 2][rng.below(2)], &[], kind, &payload);
        if bytes.len() > 24 {
            bytes[14] = [0x45, 0x60, 0x4f, 0x46][rng.below(4)];
            bytes[23] = [6, 17, 1][rng.below(3)];
        }
        bytes.truncate(bytes.len() - rng.below(20).min(bytes.len()));
        let room = rng.below(110);
        fit(&bytes, room);
        clamp(&mut bytes, room);
    }
}
