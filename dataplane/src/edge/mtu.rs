//! "Too big" messages: ICMP fragmentation needed (RFC 792, RFC 1191) and ICMPv6 packet too big (RFC 4443), for frames
//! that do not fit a path.
//!
//! The agent has no address of its own, so the message comes from the packet's destination, as bridged tunnels of
//! Linux do it.
//! IPv4 packets that may be fragmented are (`fit`) and get no message. VLAN tags are copied.

use super::fit::packet_at;
use crate::ip;

/// The answer to `frame` where only frames of `max_frame` bytes fit; None if there is to be none.
pub fn too_big_reply(frame: &[u8], max_frame: usize) -> Option<Vec<u8>> {
    let at = packet_at(frame)?;
    // A group address on either end, or no sender to answer.
    if frame[0] & 1 != 0 || frame[6] & 1 != 0 || frame[6..12] == [0; 6] {
        return None;
    }
    let packet = frame.get(at..)?;
    let mtu = max_frame.checked_sub(at)?;
    let mut message = [0; ip::MOST_MESSAGE];
    let len = ip::too_big_from_destination(packet, mtu, &mut message)?;
    let mut out = Vec::with_capacity(at + len);
    out.extend_from_slice(&frame[6..12]);
    out.extend_from_slice(&frame[..6]);
    out.extend_from_slice(&frame[12..at]);
    out.extend_from_slice(&message[..len]);
    Some(out)
}

/// At most so many messages: a token bucket.
#[derive(Debug)]
pub struct RateLimit {
    tokens: f64,
    at_ns: u64,
}

const PER_SECOND: f64 = 200.0;
const BURST: f64 = 50.0;

impl Default for RateLimit {
    fn default() -> Self {
        RateLimit { tokens: BURST, at_ns: 0 }
    }
}

impl RateLimit {
    pub fn allow(&mut self, now_ns: u64) -> bool {
        let elapsed_s = now_ns.saturating_sub(self.at_ns) as f64 / 1e9;
        self.tokens = (self.tokens + elapsed_s * PER_SECOND).min(BURST);
        self.at_ns = now_ns;
        if self.tokens < 1.0 {
            return false;
        }
        self.tokens -= 1.0;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edge::fit::{TYPE_IPV4, TYPE_IPV6};
    use crate::edge::frame::be16;
    use crate::edge::testing::{ethernet, udp_v6, Rng};
    use crate::ip::checksum::checksum;

    fn udp_v4(len: usize) -> Vec<u8> {
        let mut packet = vec![0x45, 0, 0, 0, 0, 9, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        packet[2..4].copy_from_slice(&(len as u16).to_be_bytes());
        packet.resize(len, 0xab);
        packet
    }

    #[test]
    fn ipv4_answer_has_mtu_quote_and_right_checksums() {
        for tags in [&[][..], &[7], &[7, 9]] {
            let frame = ethernet(TYPE_IPV4, tags, &udp_v4(1500));
            let l2 = 14 + 4 * tags.len();
            let reply = too_big_reply(&frame, l2 + 1400).unwrap();
            assert_eq!((&reply[..6], &reply[6..12], &reply[12..l2]), (&frame[6..12], &frame[..6], &frame[12..l2]));
            let ip = &reply[l2..];
            assert_eq!((&ip[12..16], &ip[16..20]), (&[10, 0, 0, 2][..], &[10, 0, 0, 1][..]));
            assert_eq!((ip[9], ip[20], ip[21], be16(ip, 26)), (1, 3, 4, Some(1400)));
            assert_eq!((checksum(&[&ip[..20]]), checksum(&[&ip[20..]])), (0, 0));
            assert_eq!((ip.len(), &ip[28..100]), (576, &frame[l2..l2 + 72]));
        }
    }

    #[test]
    fn ipv6_answer_has_mtu_and_right_checksum() {
        let frame = ethernet(TYPE_IPV6, &[5], &udp_v6(1500));
        let reply = too_big_reply(&frame, 18 + 1350).unwrap();
        let ip = &reply[18..];
        assert_eq!((ip[6], ip[40], ip[41], &ip[44..48]), (58, 2, 0, &1350u32.to_be_bytes()[..]));
        let length = ((ip.len() - 40) as u32).to_be_bytes();
        assert_eq!(checksum(&[&ip[8..40], &length, &[0, 0, 0, 58], &ip[40..]]), 0);
        assert_eq!((&ip[8..24], ip.len()), (&frame[18 + 24..18 + 40], 1280));
    }

    #[test]
    fn no_answer_where_none_is_allowed() {
        let v4 = |change: fn(&mut Vec<u8>)| {
            let mut packet = udp_v4(1500);
            change(&mut packet);
            too_big_reply(&ethernet(TYPE_IPV4, &[], &packet), 1014)
        };
        assert!(v4(|_| {}).is_some());
        assert!(v4(|p| p[16] = 239).is_none(), "to a group");
        assert!(v4(|p| p[7] = 1).is_none(), "a later fragment");
        assert!(v4(|p| {
            p[9] = 1;
            p[20] = 3;
        })
        .is_none());
        assert!(v4(|p| p.truncate(900)).is_none(), "it fits");
        let mut group = ethernet(TYPE_IPV4, &[], &udp_v4(1500));
        group[0] = 0xff;
        assert!(too_big_reply(&group, 1014).is_none());
        assert!(too_big_reply(&ethernet(0x88cc, &[], &[0; 1500]), 1014).is_none());
    }

    #[test]
    fn random_frames_never_panic() {
        let mut rng = Rng::new(31);
        for _ in 0..100_000 {
            let payload: Vec<u8> = (0..rng.below(120)).map(|_| rng.next() as u8).collect();
            let kinds = [TYPE_IPV4, TYPE_IPV6, 0x8100, 0x88a8];
            let mut frame = ethernet(kinds[rng.below(4)], &[], &payload);
            if frame.len() > 14 && rng.below(2) == 0 {
                frame[14] = [0x45, 0x60, 0x4f][rng.below(3)];
            }
            frame.truncate(frame.len() - rng.below(20).min(frame.len()));
            too_big_reply(&frame, rng.below(100));
        }
    }

    #[test]
    fn messages_are_limited() {
        let mut limit = RateLimit::default();
        let second = 1_000_000_000;
        let count =
            |limit: &mut RateLimit, from: u64| (0..1000).filter(|k| limit.allow(from + k * second / 1000)).count();
        let first = count(&mut limit, 10 * second);
        assert!((240..=251).contains(&first), "{first}");
    }
}
