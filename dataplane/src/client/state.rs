//! The direct flows of a client in a file, so that they go on when the program is started again.
//!
//! One record of `RECORD` bytes for each slot of the flow table, written when a flow is bound or ends: nothing is
//! written for a packet.

use crate::ip::{Endpoint, Tuple};
use crate::sys::context;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

const RECORD: usize = 128;
const MAGIC: u8 = 0xc1;
const NAME: usize = 15;
const TUPLE: usize = 37;

/// A direct flow.
#[derive(Clone, Debug, PartialEq)]
pub struct Saved {
    pub tuple: Tuple,
    pub wire: Tuple,
    pub interface: String,
}

impl Saved {
    fn encode(&self) -> [u8; RECORD] {
        let mut out = [0; RECORD];
        out[0] = MAGIC;
        let name = self.interface.as_bytes();
        let length = name.len().min(NAME);
        out[1] = length as u8;
        out[2..2 + length].copy_from_slice(&name[..length]);
        encode_tuple(&self.tuple, &mut out[20..20 + TUPLE]);
        encode_tuple(&self.wire, &mut out[60..60 + TUPLE]);
        out
    }

    fn decode(record: &[u8]) -> Option<Saved> {
        if record.len() < RECORD || record[0] != MAGIC {
            return None;
        }
        let name = record.get(2..2 + usize::from(record[1]).min(NAME))?;
        Some(Saved {
            interface: String::from_utf8(name.to_vec()).ok()?,
            tuple: decode_tuple(&record[20..20 + TUPLE])?,
            wire: decode_tuple(&record[60..60 + TUPLE])?,
        })
    }
}

fn encode_tuple(tuple: &Tuple, out: &mut [u8]) {
    out[0] = tuple.protocol;
    for (endpoint, at) in [(tuple.source, 1), (tuple.destination, 19)] {
        let bytes = match endpoint.address {
            IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
            IpAddr::V6(v6) => v6.octets(),
        };
        out[at..at + 16].copy_from_slice(&bytes);
        out[at + 16..at + 18].copy_from_slice(&endpoint.port.to_be_bytes());
    }
}

fn decode_tuple(bytes: &[u8]) -> Option<Tuple> {
    let endpoint = |at: usize| -> Option<Endpoint> {
        let mut octets = [0; 16];
        octets.copy_from_slice(bytes.get(at..at + 16)?);
        let port = u16::from_be_bytes([*bytes.get(at + 16)?, *bytes.get(at + 17)?]);
        let address = match octets {
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d] => IpAddr::V4(Ipv4Addr::new(a, b, c, d)),
            octets => IpAddr::V6(Ipv6Addr::from(octets)),
        };
        Some(Endpoint { address, port })
    };
    let tuple = Tuple { protocol: *bytes.first()?, source: endpoint(1)?, destination: endpoint(19)? };
    Some(tuple).filter(|tuple| tuple.source.address.is_ipv4() == tuple.destination.address.is_ipv4())
}

/// The file while the program runs.
#[derive(Debug)]
pub struct StateFile {
    file: File,
}

impl StateFile {
    /// Opens the file, or makes it; gives what it held and begins anew. Records that are damaged are left out.
    pub fn open(path: &Path) -> io::Result<(StateFile, Vec<Saved>)> {
        let shown = path.display();
        let mut options = OpenOptions::new();
        let mut file = options
            .read(true)
            .write(true)
            .create(true)
            .mode(0o600)
            .open(path)
            .map_err(|e| context(e, &format!("state file {shown}")))?;
        let mut bytes = Vec::new();
        let most = (super::flow::MOST_FLOWS * RECORD) as u64;
        (&mut file).take(most).read_to_end(&mut bytes).map_err(|e| context(e, &format!("state file {shown}")))?;
        let saved = bytes.chunks_exact(RECORD).filter_map(Saved::decode).collect();
        file.set_len(0).map_err(|e| context(e, &format!("state file {shown}")))?;
        Ok((StateFile { file }, saved))
    }

    /// Writes the record of a slot, or clears it.
    pub fn write(&mut self, slot: usize, saved: Option<&Saved>) -> io::Result<()> {
        let record = saved.map_or([0; RECORD], Saved::encode);
        self.file.write_all_at(&record, (slot * RECORD) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn saved(interface: &str, v6: bool) -> Saved {
        let address = |last: u8| match v6 {
            true => IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last.into())),
            false => IpAddr::V4(Ipv4Addr::new(192, 0, 2, last)),
        };
        let end = |last, port| Endpoint { address: address(last), port };
        let tuple = Tuple { protocol: 6, source: end(1, 40_000), destination: end(2, 443) };
        Saved { tuple, wire: Tuple { source: end(3, 20_001), ..tuple }, interface: interface.to_string() }
    }

    #[test]
    fn flows_survive_and_those_that_ended_do_not() {
        let path = std::env::temp_dir().join(format!("hyroads-client-state-{}", std::process::id()));
        let (mut file, before) = StateFile::open(&path).unwrap();
        assert!(before.is_empty());
        file.write(5, Some(&saved("wlan0", false))).unwrap();
        file.write(2, Some(&saved("wwan0", true))).unwrap();
        file.write(7, Some(&saved("eth0", true))).unwrap();
        file.write(7, None).unwrap();
        drop(file);
        let (_, after) = StateFile::open(&path).unwrap();
        assert_eq!(after, [saved("wwan0", true), saved("wlan0", false)]);
        std::fs::write(&path, vec![MAGIC; 1000]).unwrap();
        assert!(StateFile::open(&path).unwrap().1.iter().all(|saved| saved.interface.len() <= NAME));
        std::fs::remove_file(&path).unwrap();
    }
}
