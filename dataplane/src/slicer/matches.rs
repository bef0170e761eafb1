//! Matches of flow-mods whose meaning is plain: no field twice, every mask and prerequisite as the specification wants
//! it (OpenFlow 1.3.5, section 7.2.3). Anything else is not for the fast path, whether it is right or wrong.
use super::messages::u32_at;

const BASIC: [u8; 2] = [0x80, 0];
const IN_PORT: usize = 0;
const ETH_TYPE: usize = 5;
const VLAN_VID: usize = 6;
const VLAN_PCP: usize = 7;
const IP_PROTO: usize = 10;
const TAG: u64 = 0x1000;
const IPV4: u64 = 0x0800;
const IPV6: u64 = 0x86DD;
const ARP: u64 = 0x0806;
/// Types whose rules Python remembers.
const DISCOVERY: [u64; 2] = [0x88CC, 0x8942];

struct Known {
    bytes: usize,
    bits: u32,
    maskable: bool,
}

/// The fields that are read here, by number.
fn known(number: usize) -> Option<Known> {
    let (bits, maskable) = match number {
        0 => (32, false),
        3 | 4 => (48, true),
        5 => (16, false),
        // Open vSwitch takes masks of the VLAN, but what they mean needs care.
        6 => (13, false),
        7 => (3, false),
        8 => (6, false),
        9 => (2, false),
        10 => (8, false),
        11 | 12 => (32, true),
        13..=18 => (16, false),
        19 | 20 => (8, false),
        21 => (16, false),
        22 | 23 => (32, true),
        _ => return None,
    };
    Some(Known { bytes: (bits as usize + 7) / 8, bits, maskable })
}

/// What a plain match says of the ingress port; None if the match is not plain.
pub struct Plain {
    pub in_port: Option<u32>,
}

/// Reads OXM fields, without the header of the match.
pub fn plain_match(fields: &[u8]) -> Option<Plain> {
    let mut values = [0u64; 24];
    let mut seen = 0u32;
    let mut at = 0;
    while at < fields.len() {
        let header = fields.get(at..at + 4)?;
        let (number, masked) = (usize::from(header[2] >> 1), header[2] & 1 == 1);
        let field = known(number)?;
        let length = if masked { 2 * field.bytes } else { field.bytes };
        if header[..2] != BASIC || usize::from(header[3]) != length || (masked && !field.maskable) {
            return None;
        }
        let body = fields.get(at + 4..at + 4 + length)?;
        let value = number_of(&body[..field.bytes]);
        if seen >> number & 1 == 1 || value >> field.bits != 0 {
            return None;
        }
        if masked && value & !number_of(&body[field.bytes..]) != 0 {
            return None;
        }
        seen |= 1 << number;
        values[number] = value;
        at += 4 + length;
    }
    if !prerequisites_hold(seen, &values) {
        return None;
    }
    Some(Plain { in_port: if seen >> IN_PORT & 1 == 1 { Some(values[IN_PORT] as u32) } else { None } })
}

fn number_of(bytes: &[u8]) -> u64 {
    match bytes.len() {
        4 => u64::from(u32_at(bytes, 0)),
        _ => bytes.iter().fold(0, |value, &byte| value << 8 | u64::from(byte)),
    }
}

/// All fields that others need are exact here.
fn prerequisites_hold(seen: u32, values: &[u64; 24]) -> bool {
    let has = |number: usize| seen >> number & 1 == 1;
    let any = |first: usize, last: usize| seen >> first & ((1 << (last - first + 1)) - 1) != 0;
    let eth_type = if has(ETH_TYPE) { values[ETH_TYPE] } else { 0 };
    let proto = if has(IP_PROTO) { values[IP_PROTO] } else { u64::MAX };
    let tagged = has(VLAN_VID) && values[VLAN_VID] & TAG != 0;
    !DISCOVERY.contains(&eth_type)
        && (!has(VLAN_VID) || tagged || values[VLAN_VID] == 0)
        && (!has(VLAN_PCP) || tagged)
        && (!any(8, 10) || eth_type == IPV4 || eth_type == IPV6)
        && (!any(11, 12) || eth_type == IPV4)
        && (!any(13, 14) || proto == 6)
        && (!any(15, 16) || proto == 17)
        && (!any(17, 18) || proto == 132)
        && (!any(19, 20) || (eth_type == IPV4 && proto == 1))
        && (!any(21, 23) || eth_type == ARP)
}
