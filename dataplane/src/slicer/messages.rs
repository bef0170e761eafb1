//! One packet-in or flow-mod, from one side to the other. Each function appends what `slices/proxy` would make of the
//! message and returns true, or appends nothing and returns false: the message is for Python.
use super::layout::{Tenant, PORTS};
use super::matches::plain_match;

pub const PACKET_IN: u8 = 10;
pub const FLOW_MOD: u8 = 14;
/// All flags of a flow-mod that OpenFlow 1.3 has.
const FLAGS: u16 = 0x1f;
pub const ADD: u8 = 0;
const DELETE: u8 = 3;
const DELETE_STRICT: u8 = 4;
/// Between the ports of 16 bits of Open vSwitch and the reserved ones: it refuses them.
const NO_PORTS: std::ops::Range<u32> = 0xff00..0xffff_ff00;
const VERSION: u8 = 4;
/// No buffer, any group.
const NONE: u32 = 0xFFFF_FFFF;
const FLOOD: u32 = 0xFFFF_FFFB;
const ALL: u32 = 0xFFFF_FFFC;
const CONTROLLER: u32 = 0xFFFF_FFFD;
/// How the source address of the slicer's own discovery frames begins.
const MARK: [u8; 4] = [0x0A, 0x53, 0x4C, 0x43];
const IN_PORT_FIELD: [u8; 4] = [0x80, 0, 0, 4];
const METADATA_FIELD: [u8; 4] = [0x80, 0, 4, 8];
const MASKED_METADATA_FIELD: [u8; 4] = [0x80, 0, 5, 16];

/// The caller knows that two bytes are there.
pub fn u16_at(data: &[u8], at: usize) -> u16 {
    u16::from(data[at]) << 8 | u16::from(data[at + 1])
}

/// The caller knows that four bytes are there.
pub fn u32_at(data: &[u8], at: usize) -> u32 {
    u32::from(u16_at(data, at)) << 16 | u32::from(u16_at(data, at + 2))
}

fn u64_at(data: &[u8], at: usize) -> u64 {
    u64::from(u32_at(data, at)) << 32 | u64::from(u32_at(data, at + 4))
}

fn padded(length: usize) -> usize {
    (length + 7) / 8 * 8
}

/// A match with its fields as they are, and padding of zeros.
fn put_match(fields: &[&[u8]], out: &mut Vec<u8>) {
    let length = 4 + fields.iter().map(|part| part.len()).sum::<usize>();
    out.extend_from_slice(&[0, 1]);
    out.extend_from_slice(&(length as u16).to_be_bytes());
    fields.iter().for_each(|part| out.extend_from_slice(part));
    out.resize(out.len() + padded(length) - length, 0);
}

/// Writes the size of the message that begins at `start`; takes it back if it does not fit.
fn finish(start: usize, good: bool, out: &mut Vec<u8>) -> bool {
    match u16::try_from(out.len() - start) {
        Ok(size) if good => {
            out[start + 2..start + 4].copy_from_slice(&size.to_be_bytes());
            true
        }
        _ => {
            out.truncate(start);
            false
        }
    }
}

/// What a packet-in's match says.
struct Arrival {
    in_port: u32,
    /// Where the metadata is, and its value.
    metadata: Option<(usize, usize, u64)>,
}

/// Bytes of the value of a field of the class `OFPXMC_OPENFLOW_BASIC` (OpenFlow 1.3.5, table 12); None: none of these.
fn basic_bytes(number: u8) -> Option<usize> {
    Some(match number {
        0 | 1 | 11 | 12 | 22 | 23 | 28 | 34 => 4,
        3 | 4 | 24 | 25 | 32 | 33 => 6,
        5 | 6 | 13..=18 | 21 | 39 => 2,
        7..=10 | 19 | 20 | 29 | 30 | 35 | 36 => 1,
        2 | 38 => 8,
        26 | 27 | 31 => 16,
        37 => 3,
        _ => return None,
    })
}

/// Reads the match of a packet-in; the same lengths are refused as by `controller.ofp.guard`. None, too, if there are
/// fields of Open vSwitch's classes 0 and 1, packet registers or experimenters' fields: Python knows their lengths, and
/// they are rare.
fn arrival(fields: &[u8]) -> Option<Arrival> {
    let (mut in_port, mut metadata) = (None, None);
    let mut at = 0;
    while at < fields.len() {
        let header = fields.get(at..at + 4)?;
        let (masked, length) = (header[2] & 1 == 1, usize::from(header[3]));
        if length < 1 + usize::from(masked) || (masked && length % 2 == 1) {
            return None;
        }
        if matches!(header[..2], [0, 0] | [0, 1] | [0x80, 1] | [0xFF, 0xFF]) {
            return None;
        }
        let bytes = if header[..2] == [0x80, 0] { basic_bytes(header[2] >> 1) } else { None };
        if bytes.map_or(false, |bytes| length != bytes << usize::from(masked)) {
            return None;
        }
        let end = at + 4 + length;
        let body = fields.get(at + 4..end)?;
        if in_port.is_none() && *header == IN_PORT_FIELD {
            in_port = Some(u32_at(body, 0));
        }
        if metadata.is_none() && (*header == METADATA_FIELD || *header == MASKED_METADATA_FIELD) {
            metadata = Some((at, end, u64_at(body, 0)));
        }
        at = end;
    }
    Some(Arrival { in_port: in_port?, metadata })
}

/// A packet-in of one of the slice's tables, as its guests see it: `proxy.packets.packet_in`.
pub fn packet_in(message: &[u8], tenant: &Tenant, out: &mut Vec<u8>) -> bool {
    if message.len() < 34 || message[0] != VERSION || message[1] != PACKET_IN || u32_at(message, 8) != NONE {
        return false;
    }
    let length = usize::from(u16_at(message, 26));
    let data_at = 24 + padded(length) + 2;
    if u16_at(message, 24) != 1 || length < 4 || data_at > message.len() {
        return false;
    }
    let fields = &message[28..24 + length];
    let data = &message[data_at..];
    let table = u32::from(message[15]).wrapping_sub(tenant.first_table);
    let arrival = match arrival(fields) {
        Some(found) if tenant.has_port(found.in_port) && table < tenant.table_count => found,
        _ => return false,
    };
    if data.get(6..10).map_or(false, |source| *source == MARK) {
        return false;
    }
    let start = out.len();
    out.extend_from_slice(&message[..24]);
    out[start + 15] = table as u8;
    match arrival.metadata {
        None => put_match(&[fields], out),
        Some((from, to, value)) => {
            let value = value & tenant.metadata_mask;
            let mut field = [0; 12];
            field[..4].copy_from_slice(&METADATA_FIELD);
            field[4..].copy_from_slice(&value.to_be_bytes());
            let field: &[u8] = if value == 0 { &[] } else { &field };
            put_match(&[&fields[..from], field, &fields[to..]], out);
        }
    }
    out.extend_from_slice(&[0, 0]);
    out.extend_from_slice(data);
    finish(start, true, out)
}

/// A flow-mod of a guest for the switch, under `xid`: `proxy.flow_mod.translate`.
pub fn flow_mod(message: &[u8], tenant: &Tenant, kinds: &[u32; PORTS], xid: u32, out: &mut Vec<u8>) -> bool {
    if message.len() < 56 || message[0] != VERSION || message[1] != FLOW_MOD {
        return false;
    }
    let (table, command) = (u32::from(message[24]), message[25]);
    if table >= tenant.table_count || command > DELETE_STRICT || u16_at(message, 44) & !FLAGS != 0 {
        return false;
    }
    let deletes = command >= DELETE;
    let out_port = u32_at(message, 36);
    if deletes && (u32_at(message, 40) != NONE || matches!(out_port, FLOOD | ALL) || NO_PORTS.contains(&out_port)) {
        return false;
    }
    if !deletes && u32_at(message, 32) != NONE {
        return false;
    }
    let length = usize::from(u16_at(message, 50));
    let after = 48 + padded(length);
    if u16_at(message, 48) != 1 || length < 4 || after > message.len() {
        return false;
    }
    let fields = &message[52..48 + length];
    let in_port = match plain_match(fields) {
        Some(found) if found.in_port.map_or(true, |port| tenant.has_port(port)) => found.in_port,
        _ => return false,
    };
    let start = out.len();
    out.extend_from_slice(&message[..46]);
    out.extend_from_slice(&[0, 0]);
    out[start + 4..start + 8].copy_from_slice(&xid.to_be_bytes());
    out[start + 24] = (tenant.first_table + table) as u8;
    put_match(&[fields], out);
    let rest = Rest { tenant, kinds, in_port, table };
    let good = deletes || rest.instructions(&message[after..], out).is_some();
    finish(start, good, out)
}

/// What is known while the instructions of a flow-mod are read.
struct Rest<'a> {
    tenant: &'a Tenant,
    kinds: &'a [u32; PORTS],
    in_port: Option<u32>,
    table: u32,
}

/// The first element of a list of type, length and body; None if it does not end in the list.
fn element(data: &[u8]) -> Option<(u16, &[u8])> {
    if data.len() < 8 {
        return None;
    }
    let length = usize::from(u16_at(data, 2));
    if length < 8 || length % 8 != 0 {
        return None;
    }
    Some((u16_at(data, 0), data.get(..length)?))
}

impl Rest<'_> {
    /// Of each type one at most, as switches have it.
    fn instructions(&self, mut data: &[u8], out: &mut Vec<u8>) -> Option<()> {
        let mut seen = [false; 6];
        while !data.is_empty() {
            let (kind, one) = element(data)?;
            if std::mem::replace(seen.get_mut(usize::from(kind))?, true) {
                return None;
            }
            match (kind, one.len()) {
                (1, 8) => self.goto(u32::from(one[4]), out)?,
                (2, 24) => self.write_metadata(one, out)?,
                (4, _) => self.apply(&one[8..], out)?,
                (5, 8) => out.extend_from_slice(one),
                _ => return None,
            }
            data = &data[one.len()..];
        }
        Some(())
    }

    fn goto(&self, table: u32, out: &mut Vec<u8>) -> Option<()> {
        if table <= self.table || table >= self.tenant.table_count {
            return None;
        }
        out.extend_from_slice(&[0, 1, 0, 8, (self.tenant.first_table + table) as u8, 0, 0, 0]);
        Some(())
    }

    fn write_metadata(&self, one: &[u8], out: &mut Vec<u8>) -> Option<()> {
        let (value, mask, allowed) = (u64_at(one, 8), u64_at(one, 16), self.tenant.metadata_mask);
        if value & mask & !allowed != 0 {
            return None;
        }
        out.extend_from_slice(&[0, 2, 0, 24, 0, 0, 0, 0]);
        out.extend_from_slice(&(value & allowed).to_be_bytes());
        out.extend_from_slice(&(mask & allowed).to_be_bytes());
        Some(())
    }

    /// Outputs alone.
    fn apply(&self, mut data: &[u8], out: &mut Vec<u8>) -> Option<()> {
        let start = out.len();
        out.extend_from_slice(&[0, 4, 0, 0, 0, 0, 0, 0]);
        while !data.is_empty() {
            let (kind, one) = element(data)?;
            if kind != 0 || one.len() != 16 {
                return None;
            }
            let port = u32_at(one, 4);
            if port != CONTROLLER {
                if !self.tenant.may_leave(self.in_port, port, self.kinds) {
                    return None;
                }
                if let Ok(queue) = u32::try_from(self.tenant.queue) {
                    out.extend_from_slice(&[0, 21, 0, 8]);
                    out.extend_from_slice(&queue.to_be_bytes());
                }
            }
            out.extend_from_slice(one);
            data = &data[16..];
        }
        let size = u16::try_from(out.len() - start).ok()?;
        out[start + 2..start + 4].copy_from_slice(&size.to_be_bytes());
        Some(())
    }
}
