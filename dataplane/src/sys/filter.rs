//! Classic BPF: which received packets a socket of the client stack gets to see.

use super::invalid;
use std::io;
use std::ops::RangeInclusive;

/// Where a jump goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum To {
    Next,
    Accept,
    Drop,
    Mark(&'static str),
}

/// A program under construction: instructions with symbolic jumps.
#[derive(Default)]
struct Assembler {
    code: Vec<(u32, u32, To, To)>,
    marks: Vec<(&'static str, usize)>,
}

const ANCILLARY: u32 = -0x1000i32 as u32;
const PROTOCOL: u32 = ANCILLARY;
const PACKET_TYPE: u32 = ANCILLARY + 4;
const VLAN_TAG_PRESENT: u32 = ANCILLARY + 48;
/// Packet type "for this host" (PACKET_HOST).
const FOR_THIS_HOST: u32 = 0;

impl Assembler {
    fn load(&mut self, size: u32, at: u32) {
        self.code.push((libc::BPF_LD | size | libc::BPF_ABS, at, To::Next, To::Next));
    }

    fn plain(&mut self, code: u32, k: u32) {
        self.code.push((code, k, To::Next, To::Next));
    }

    /// Goes to `yes` if the accumulator `test`s true against `k`, to the next instruction otherwise.
    fn when(&mut self, test: u32, k: u32, yes: To) {
        self.code.push((libc::BPF_JMP | test | libc::BPF_K, k, yes, To::Next));
    }

    fn unless(&mut self, test: u32, k: u32, no: To) {
        self.code.push((libc::BPF_JMP | test | libc::BPF_K, k, To::Next, no));
    }

    fn mark(&mut self, name: &'static str) {
        self.marks.push((name, self.code.len()));
    }

    fn go(&mut self, to: To) {
        // A conditional jump whose ways are the same: it has the symbolic targets that the unconditional one lacks here.
        self.code.push((libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, to, to));
    }

    fn finish(self) -> io::Result<Vec<libc::sock_filter>> {
        let end = self.code.len();
        let target = |from: usize, to: To| -> io::Result<u8> {
            let at = match to {
                To::Next => from + 1,
                To::Accept => end,
                To::Drop => end + 1,
                To::Mark(name) => match self.marks.iter().find(|mark| mark.0 == name) {
                    Some(mark) => mark.1,
                    None => return Err(invalid(format!("packet filter: no mark {name}"))),
                },
            };
            let distance = at.checked_sub(from + 1).and_then(|d| u8::try_from(d).ok());
            distance.ok_or_else(|| invalid("packet filter: jump backwards or too far"))
        };
        let mut program = Vec::with_capacity(end + 2);
        for (i, &(code, k, yes, no)) in self.code.iter().enumerate() {
            let is_jump = code & 7 == libc::BPF_JMP;
            let (jt, jf) = if is_jump { (target(i, yes)?, target(i, no)?) } else { (0, 0) };
            program.push(libc::sock_filter { code: code as u16, jt, jf, k });
        }
        for k in [u32::MAX, 0] {
            program.push(libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k });
        }
        Ok(program)
    }
}

const BYTE: u32 = libc::BPF_B;
const HALF: u32 = libc::BPF_H;
const EQUAL: u32 = libc::BPF_JEQ;
const FRAGMENT_HEADER: u32 = 44;

/// Passes IPv4 and IPv6 for this host's MAC address, without VLAN tag, behind a link header of `link_bytes`: TCP and UDP to
/// `ports`, echo replies and ICMP errors, fragments that are not the first, packets with IPv6 extension headers, and other
/// protocols if `others`.
pub(crate) fn for_client(
    link_bytes: u32,
    ports: &RangeInclusive<u16>,
    others: bool,
) -> io::Result<Vec<libc::sock_filter>> {
    let l = link_bytes;
    let rest = if others { To::Accept } else { To::Drop };
    let mut a = Assembler::default();
    a.load(libc::BPF_W, PACKET_TYPE);
    a.unless(EQUAL, FOR_THIS_HOST, To::Drop);
    a.load(libc::BPF_W, VLAN_TAG_PRESENT);
    a.unless(EQUAL, 0, To::Drop);
    a.load(libc::BPF_W, PROTOCOL);
    a.when(EQUAL, libc::ETH_P_IP as u32, To::Mark("v4"));
    a.unless(EQUAL, libc::ETH_P_IPV6 as u32, To::Drop);

    a.load(BYTE, l);
    a.plain(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, 0xf0);
    a.unless(EQUAL, 0x60, To::Drop);
    a.plain(libc::BPF_LDX | libc::BPF_IMM, l + 40);
    a.load(BYTE, l + 6);
    a.unless(EQUAL, FRAGMENT_HEADER, To::Mark("protocol6"));
    a.load(HALF, l + 42);
    a.when(libc::BPF_JSET, 0xfff8, To::Accept);
    a.plain(libc::BPF_LDX | libc::BPF_IMM, l + 48);
    a.load(BYTE, l + 40);
    a.mark("protocol6");
    a.when(EQUAL, libc::IPPROTO_ICMPV6 as u32, To::Mark("icmp6"));
    for header in [libc::IPPROTO_HOPOPTS, libc::IPPROTO_ROUTING, libc::IPPROTO_DSTOPTS] {
        a.when(EQUAL, header as u32, To::Accept);
    }
    a.go(To::Mark("protocol"));
    a.mark("icmp6");
    a.plain(libc::BPF_LD | BYTE | libc::BPF_IND, 0);
    // Destination unreachable, packet too big, time exceeded, parameter problem.
    for kind in 1..=4 {
        a.when(EQUAL, kind, To::Accept);
    }
    a.when(EQUAL, 129, To::Accept);
    a.go(To::Drop);

    a.mark("v4");
    a.load(BYTE, l);
    a.plain(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, 0xf0);
    a.unless(EQUAL, 0x40, To::Drop);
    a.load(HALF, l + 6);
    a.when(libc::BPF_JSET, 0x1fff, To::Accept);
    a.plain(libc::BPF_LDX | BYTE | libc::BPF_MSH, l);
    a.plain(libc::BPF_MISC | libc::BPF_TXA, 0);
    a.plain(libc::BPF_ALU | libc::BPF_ADD | libc::BPF_K, l);
    a.plain(libc::BPF_MISC | libc::BPF_TAX, 0);
    a.load(BYTE, l + 9);
    a.unless(EQUAL, libc::IPPROTO_ICMP as u32, To::Mark("protocol"));
    a.plain(libc::BPF_LD | BYTE | libc::BPF_IND, 0);
    // Echo reply, destination unreachable, time exceeded, parameter problem.
    for kind in [0, 3, 11, 12] {
        a.when(EQUAL, kind, To::Accept);
    }
    a.go(To::Drop);

    a.mark("protocol");
    a.when(EQUAL, libc::IPPROTO_TCP as u32, To::Mark("ports"));
    a.unless(EQUAL, libc::IPPROTO_UDP as u32, rest);
    a.mark("ports");
    a.plain(libc::BPF_LD | HALF | libc::BPF_IND, 2);
    a.unless(libc::BPF_JGE, u32::from(*ports.start()), To::Drop);
    a.when(libc::BPF_JGT, u32::from(*ports.end()), To::Drop);
    a.go(To::Accept);
    a.finish()
}

#[cfg(test)]
mod tests {
    use super::super::testing::{ip, udp};
    use super::*;

    /// What the kernel's interpreter would return for a frame to this host without VLAN tag.
    fn accepts(
        program: &[libc::sock_filter],
        link_bytes: usize,
        packet: &[u8],
        protocol: u32,
        kind: u32,
        tag: u32,
    ) -> bool {
        let frame = [&vec![0; link_bytes], packet].concat();
        let (mut a, mut x, mut at) = (0u32, 0u32, 0usize);
        // Jumps only go forward, so this ends.
        loop {
            let i = program[at];
            at += 1;
            let code = u32::from(i.code);
            let load = |from: usize, size: u32| -> Option<u32> {
                let bytes = frame.get(from..from + if size == HALF { 2 } else { 1 })?;
                Some(bytes.iter().fold(0, |n, b| n << 8 | u32::from(*b)))
            };
            let loaded = match code & 7 {
                libc::BPF_LD if i.k == PACKET_TYPE => Some(kind),
                libc::BPF_LD if i.k == VLAN_TAG_PRESENT => Some(tag),
                libc::BPF_LD if i.k == PROTOCOL => Some(protocol),
                libc::BPF_LD if code & 0xe0 == libc::BPF_IND => load((x + i.k) as usize, code & 0x18),
                libc::BPF_LD => load(i.k as usize, code & 0x18),
                libc::BPF_LDX if code & 0xe0 == libc::BPF_IMM => Some(i.k),
                libc::BPF_LDX => load(i.k as usize, BYTE).map(|b| (b & 15) * 4),
                _ => None,
            };
            match code & 7 {
                libc::BPF_LD | libc::BPF_LDX => match loaded {
                    Some(value) if code & 7 == libc::BPF_LD => a = value,
                    Some(value) => x = value,
                    None => return false,
                },
                libc::BPF_ALU if code & 0xf0 == libc::BPF_AND => a &= i.k,
                libc::BPF_ALU => a += i.k,
                libc::BPF_MISC if code & 0xf8 == libc::BPF_TXA => a = x,
                libc::BPF_MISC => x = a,
                libc::BPF_RET => return i.k != 0,
                _ => {
                    let yes = match code & 0xf0 {
                        libc::BPF_JEQ => a == i.k,
                        libc::BPF_JGT => a > i.k,
                        libc::BPF_JGE => a >= i.k,
                        _ => a & i.k != 0,
                    };
                    at += usize::from(if yes { i.jt } else { i.jf });
                }
            }
        }
    }

    #[test]
    fn each_class_passes_or_not_behind_every_link_header() {
        let packet4 =
            |protocol: u8, payload: &[u8]| ip([192, 0, 2, 1].into(), [192, 0, 2, 2].into(), protocol, payload);
        let (one, two): (std::net::IpAddr, std::net::IpAddr) = ("fd09::1".parse().unwrap(), "fd09::2".parse().unwrap());
        let packet6 = |protocol: u8, payload: &[u8]| ip(one, two, protocol, payload);
        let mut cases = Vec::new();
        for (port, inside) in
            [(19_999, false), (20_000, true), (25_000, true), (32_767, true), (32_768, false), (53, false)]
        {
            cases.push((udp("192.0.2.1:25000", &format!("192.0.2.2:{port}"), b""), inside));
            cases.push((udp("[fd09::1]:25000", &format!("[fd09::2]:{port}"), b""), inside));
            let ports = [[0x61, 0xa8], u16::to_be_bytes(port)].concat();
            let tcp = [&ports[..], &[0; 16]].concat();
            cases.push((packet4(6, &tcp), inside));
            cases.push((packet6(6, &tcp), inside));
            // IP options move the ports.
            let mut options = packet4(6, &[&[1; 8][..], &tcp].concat());
            options[0] = 0x47;
            cases.push((options, inside));
            // The first fragment of IPv6 has ports, later ones have none.
            cases.push((packet6(44, &[&[6, 0, 0, 1, 0, 0, 0, 9], &tcp[..]].concat()), inside));
        }
        for kind in 0..=255u8 {
            cases.push((packet4(1, &[kind, 0, 0, 0, 0, 0, 0, 0]), [0, 3, 11, 12].contains(&kind)));
            cases.push((packet6(58, &[kind, 0, 0, 0, 0, 0, 0, 0]), [1, 2, 3, 4, 129].contains(&kind)));
        }
        cases.push((packet6(44, &[6, 0, 0, 8, 0, 0, 0, 9]), true));
        cases.push((packet6(0, &[6, 0, 0, 0, 0, 0, 0, 0]), true));
        let mut later = packet4(17, &[0; 8]);
        later[7] = 1;
        cases.push((later, true));
        let mut version = udp("192.0.2.1:1", "192.0.2.2:20000", b"");
        version[0] = 0x55;
        cases.push((version, false));

        for link_bytes in [0usize, 14] {
            let plain = for_client(link_bytes as u32, &(20_000..=32_767), false).unwrap();
            let all = for_client(link_bytes as u32, &(20_000..=32_767), true).unwrap();
            let run = |program: &[libc::sock_filter], packet: &[u8], kind: u32, tag: u32| {
                let protocol = if packet[0] >> 4 == 6 { libc::ETH_P_IPV6 } else { libc::ETH_P_IP };
                accepts(program, link_bytes, packet, protocol as u32, kind, tag)
            };
            for (packet, wanted) in &cases {
                assert_eq!(run(&plain, packet, 0, 0), *wanted, "{packet:02x?}");
                assert_eq!(run(&all, packet, 0, 0), *wanted, "{packet:02x?}");
                // Broadcast, multicast, for others; tagged.
                assert!((1..=4).all(|kind| !run(&plain, packet, kind, 0)) && !run(&plain, packet, 0, 1));
                for end in 0..packet.len() {
                    accepts(&plain, link_bytes, &packet[..end], 0x800, 0, 0);
                    accepts(&plain, link_bytes, &packet[..end], 0x86dd, 0, 0);
                }
            }
            for protocol in [47, 50, 132] {
                for packet in [packet4(protocol, &[0; 8]), packet6(protocol, &[0; 8])] {
                    assert!(!run(&plain, &packet, 0, 0) && run(&all, &packet, 0, 0));
                }
            }
            // ARP is for the kernel.
            assert!(!accepts(&all, link_bytes, &[0; 60], 0x806, 0, 0));
        }
    }
}
