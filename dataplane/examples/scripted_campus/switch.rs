//! An OpenFlow 1.3 switch as far as the controller uses it: it keeps the rules and groups that it is given. Pure.
use std::collections::{BTreeMap, BTreeSet};

use super::counts::Counts;

const VERSION: u8 = 4;
const HELLO: u8 = 0;
const ECHO_REQUEST: u8 = 2;
const ECHO_REPLY: u8 = 3;
const FEATURES_REQUEST: u8 = 5;
const FEATURES_REPLY: u8 = 6;
const GET_CONFIG_REQUEST: u8 = 7;
const GET_CONFIG_REPLY: u8 = 8;
const FLOW_MOD: u8 = 14;
const GROUP_MOD: u8 = 15;
const MULTIPART_REQUEST: u8 = 18;
const MULTIPART_REPLY: u8 = 19;
const BARRIER_REQUEST: u8 = 20;
const BARRIER_REPLY: u8 = 21;
const ROLE_REQUEST: u8 = 24;
const ROLE_REPLY: u8 = 25;
const FLOW: u16 = 1;
const GROUP_DESCRIPTION: u16 = 7;
const METER_FEATURES: u16 = 11;
const PORT_DESCRIPTION: u16 = 13;
const DELETE: u8 = 3;
const DELETE_STRICT: u8 = 4;
const GROUP_DELETE: u16 = 2;
const ALL_TABLES: u8 = 0xff;
/// Bytes of a flow statistics entry before its match, and of a port.
const ENTRY_BYTES: usize = 48;
const NAME_BYTES: usize = 16;
const MOST_PART_BYTES: usize = 60_000;

/// (table, priority, match)
type Key = (u8, u16, Vec<u8>);

struct Rule {
    cookie: u64,
    instructions: Vec<u8>,
}

/// A switch.
pub struct Switch {
    dpid: u64,
    ports: Vec<String>,
    rules: BTreeMap<Key, Rule>,
    groups: BTreeSet<u32>,
}

/// A whole message: header, then body.
fn message(kind: u8, xid: u32, body: &[u8]) -> Vec<u8> {
    let mut found = vec![VERSION, kind];
    found.extend_from_slice(&((body.len() + 8) as u16).to_be_bytes());
    found.extend_from_slice(&xid.to_be_bytes());
    found.extend_from_slice(body);
    found
}

/// What a switch says first.
pub fn hello() -> Vec<u8> {
    message(HELLO, 1, &[])
}

/// The length of the first whole message, if it is all there.
pub fn whole(data: &[u8]) -> Option<usize> {
    let length = usize::from(u16_at(data, 2)?).max(8);
    (data.len() >= length).then_some(length)
}

fn u16_at(data: &[u8], at: usize) -> Option<u16> {
    data.get(at..at + 2).map(|two| u16::from_be_bytes([two[0], two[1]]))
}

fn u32_at(data: &[u8], at: usize) -> Option<u32> {
    data.get(at..at + 4).map(|four| u32::from_be_bytes([four[0], four[1], four[2], four[3]]))
}

fn u64_at(data: &[u8], at: usize) -> Option<u64> {
    Some(u64::from(u32_at(data, at)?) << 32 | u64::from(u32_at(data, at + 4)?))
}

impl Switch {
    /// Without rules.
    pub fn new(dpid: u64, ports: Vec<String>) -> Switch {
        Switch { dpid, ports, rules: BTreeMap::new(), groups: BTreeSet::new() }
    }

    /// How many rules it has.
    pub fn rules(&self) -> usize {
        self.rules.len()
    }

    /// Takes one whole message; answers are appended to `out`. None: the message is shorter than its kind needs.
    pub fn take(&mut self, data: &[u8], counts: &mut Counts, out: &mut Vec<u8>) -> Option<()> {
        let (kind, xid, body) = (*data.get(1)?, u32_at(data, 4)?, data.get(8..)?);
        match kind {
            FLOW_MOD => self.change(data, counts)?,
            GROUP_MOD => self.change_group(body, counts)?,
            BARRIER_REQUEST => out.extend(message(BARRIER_REPLY, xid, &[])),
            ECHO_REQUEST => out.extend(message(ECHO_REPLY, xid, body)),
            ROLE_REQUEST => out.extend(message(ROLE_REPLY, xid, body)),
            FEATURES_REQUEST => out.extend(message(FEATURES_REPLY, xid, &self.features())),
            GET_CONFIG_REQUEST => out.extend(message(GET_CONFIG_REPLY, xid, &[0, 0, 0xff, 0xff])),
            MULTIPART_REQUEST => self.parts(data, xid, out)?,
            _ => (),
        }
        Some(())
    }

    fn features(&self) -> Vec<u8> {
        let mut body = self.dpid.to_be_bytes().to_vec();
        body.extend_from_slice(&[0, 0, 0, 0, 254, 0, 0, 0, 0, 0, 0, 0x4f, 0, 0, 0, 0]);
        body
    }

    fn change(&mut self, data: &[u8], counts: &mut Counts) -> Option<()> {
        let (cookie, mask, table, command) = (u64_at(data, 8)?, u64_at(data, 16)?, *data.get(24)?, *data.get(25)?);
        let (priority, length) = (u16_at(data, 30)?, usize::from(u16_at(data, 50)?));
        let end = 48 + (length + 7) / 8 * 8;
        let matched = data.get(48..end)?.to_vec();
        match command {
            DELETE => {
                counts.deletes += 1;
                self.rules.retain(|key, rule| !is_in(key, rule, table, cookie, mask, &matched));
            }
            DELETE_STRICT => {
                counts.deletes += 1;
                self.rules.remove(&(table, priority, matched));
            }
            _ => {
                counts.adds += 1;
                self.rules.insert((table, priority, matched), Rule { cookie, instructions: data.get(end..)?.to_vec() });
            }
        }
        Some(())
    }

    fn change_group(&mut self, body: &[u8], counts: &mut Counts) -> Option<()> {
        let (command, number) = (u16_at(body, 0)?, u32_at(body, 4)?);
        counts.groups += 1;
        if command == GROUP_DELETE {
            self.groups.remove(&number);
        } else {
            self.groups.insert(number);
        }
        Some(())
    }

    fn parts(&self, data: &[u8], xid: u32, out: &mut Vec<u8>) -> Option<()> {
        let kind = u16_at(data, 8)?;
        let entries: Vec<Vec<u8>> = match kind {
            PORT_DESCRIPTION => (1u32..).zip(&self.ports).map(|(number, name)| self.port(number, name)).collect(),
            FLOW => {
                let (table, cookie, mask) = (*data.get(16)?, u64_at(data, 32)?, u64_at(data, 40)?);
                let matched = data.get(48..)?;
                let wanted = self.rules.iter().filter(|(key, rule)| is_in(key, rule, table, cookie, mask, matched));
                wanted.map(|(key, rule)| entry(key, rule)).collect()
            }
            GROUP_DESCRIPTION => {
                self.groups.iter().map(|group| [&[0, 8, 0, 0], &group.to_be_bytes()[..]].concat()).collect()
            }
            METER_FEATURES => vec![[&[0, 1, 0, 0], &[0u8; 8][..], &[8, 0, 0, 0]].concat()],
            _ => Vec::new(),
        };
        let mut part = Vec::new();
        for entry in entries {
            if part.len() + entry.len() > MOST_PART_BYTES {
                out.extend(multipart(kind, xid, true, &part));
                part.clear();
            }
            part.extend(entry);
        }
        out.extend(multipart(kind, xid, false, &part));
        Some(())
    }

    fn port(&self, number: u32, name: &str) -> Vec<u8> {
        let mut found = number.to_be_bytes().to_vec();
        found.extend_from_slice(&[0; 4]);
        found.push(2);
        found.extend_from_slice(&(self.dpid as u32).to_be_bytes());
        found.extend_from_slice(&[number as u8, 0, 0]);
        let at = found.len();
        found.extend(name.bytes().take(NAME_BYTES - 1));
        found.resize(at + NAME_BYTES + 32, 0);
        found
    }
}

fn multipart(kind: u16, xid: u32, has_more: bool, entries: &[u8]) -> Vec<u8> {
    let mut body = kind.to_be_bytes().to_vec();
    body.extend_from_slice(&[0, u8::from(has_more), 0, 0, 0, 0]);
    body.extend_from_slice(entries);
    message(MULTIPART_REPLY, xid, &body)
}

fn entry((table, priority, matched): &Key, rule: &Rule) -> Vec<u8> {
    let mut found = ((ENTRY_BYTES + matched.len() + rule.instructions.len()) as u16).to_be_bytes().to_vec();
    found.extend_from_slice(&[*table, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    found.extend_from_slice(&priority.to_be_bytes());
    found.resize(24, 0);
    found.extend_from_slice(&rule.cookie.to_be_bytes());
    found.resize(ENTRY_BYTES, 0);
    found.extend_from_slice(matched);
    found.extend_from_slice(&rule.instructions);
    found
}

/// Whether a rule is of this table, cookie and, where the match has fields, of such fields.
fn is_in((own_table, _, own): &Key, rule: &Rule, table: u8, cookie: u64, mask: u64, matched: &[u8]) -> bool {
    let length = usize::from(u16_at(matched, 2).unwrap_or(4));
    let fields = matched.get(4..length).unwrap_or(&[]);
    let has_fields = || fields.is_empty() || own.windows(fields.len()).any(|window| window == fields);
    (table == ALL_TABLES || table == *own_table) && rule.cookie & mask == cookie & mask && has_fields()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow_mod(command: u8, table: u8, cookie: u64, mask: u64, fields: &[u8]) -> Vec<u8> {
        let mut body = [cookie.to_be_bytes(), mask.to_be_bytes()].concat();
        body.extend_from_slice(&[table, command, 0, 0, 0, 0, 0, 7]);
        body.extend_from_slice(&[0xff; 12]);
        body.extend_from_slice(&[0; 4]);
        body.extend_from_slice(&[0, 1, 0, 4 + fields.len() as u8]);
        body.extend_from_slice(fields);
        let end = 40 + (4 + fields.len() + 7) / 8 * 8;
        body.resize(end, 0);
        message(FLOW_MOD, 9, &body)
    }

    #[test]
    fn rules_are_kept_listed_and_deleted_by_cookie_and_table() {
        let mut switch = Switch::new(3, vec!["n3t1".to_string()]);
        let (mut counts, mut out) = (Counts::default(), Vec::new());
        for (table, cookie, fields) in [(0, 0x11, [1u8; 8]), (0, 0x12, [2u8; 8]), (1, 0x21, [1u8; 8])] {
            switch.take(&flow_mod(0, table, cookie, 0, &fields), &mut counts, &mut out).unwrap();
        }
        assert!(out.is_empty() && switch.rules() == 3 && counts.adds == 3);
        let all = [&[0, 1, 0, 0, 0, 0, 0, 0, 0xff][..], &[0; 31], &[0, 1, 0, 4, 0, 0, 0, 0]].concat();
        switch.take(&message(MULTIPART_REQUEST, 5, &all), &mut counts, &mut out).unwrap();
        // Header, head of the part, and three entries of 48 bytes with a match of 16.
        assert_eq!((out.len(), whole(&out)), (8 + 8 + 3 * 64, Some(8 + 8 + 3 * 64)));
        assert_eq!(u64_at(&out, 16 + 24), Some(0x11));
        switch.take(&flow_mod(DELETE, ALL_TABLES, 0x10, 0xf0, &[1; 8]), &mut counts, &mut out).unwrap();
        assert_eq!((switch.rules(), counts.deletes), (2, 1));
        assert!(switch.take(&flow_mod(0, 0, 1, 0, &[1; 8])[..40], &mut counts, &mut out).is_none());
    }
}
