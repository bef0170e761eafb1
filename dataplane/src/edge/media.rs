//! The node's ports on the media: their MTU and address are read from the interfaces and reported to the controller.

use super::frame::{LABEL_LEN, SHIM_LEN};
use super::links::LINK_OVERHEAD;
use super::seal::SEAL_LEN;
use crate::sys::interface::{self, Mac};
use serde::{Deserialize, Serialize, Serializer};

/// How often the interfaces are read.
const READ_NS: u64 = 1_000_000_000;
const MOST_PORTS: usize = 256;
const MOST_NAME: usize = 15;
/// An IPv4 header and a few bytes must fit behind what the agent adds.
const LEAST_MTU: usize = 128;
const MOST_MTU: usize = 65_535;
/// TCP leaves room for the labels of a path of four hops and the agent's label, so that a flow may become a multipath.
const TCP_LABELS: usize = 5;

/// What the controller says of the media.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
pub struct Media {
    /// Names of the node's ports that are to be read.
    #[serde(default)]
    pub ports: Vec<String>,
    /// Payload of the smallest link, in bytes. None: every frame of a host fits.
    #[serde(default)]
    pub mtu: Option<usize>,
    /// What switches send to each other is sealed.
    #[serde(skip)]
    pub sealed: bool,
}

impl Media {
    pub fn check(&self) -> Result<(), String> {
        if self.ports.len() > MOST_PORTS {
            return Err(format!("media.ports: expected at most {MOST_PORTS}"));
        }
        if let Some(name) = self.ports.iter().find(|name| name.is_empty() || name.len() > MOST_NAME) {
            return Err(format!("media.ports: {name:?}: expected 1 to {MOST_NAME} bytes"));
        }
        match self.mtu {
            Some(mtu) if !(LEAST_MTU..=MOST_MTU).contains(&mtu) => {
                Err(format!("media.mtu {mtu}: expected {LEAST_MTU} to {MOST_MTU}"))
            }
            _ => Ok(()),
        }
    }

    /// Bytes of the largest user's frame that switches carry behind one label.
    pub fn single_frame(&self) -> usize {
        self.mtu.map_or(usize::MAX, |mtu| mtu - LABEL_LEN - if self.sealed { LINK_OVERHEAD } else { 0 })
    }

    /// Bytes of the largest user's frame with a TCP segment: it fits single paths and multipaths.
    pub fn tcp_frame(&self) -> usize {
        self.mtu.map_or(usize::MAX, |mtu| mtu - SHIM_LEN - SEAL_LEN - TCP_LABELS * LABEL_LEN)
    }
}

/// What was read from one interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Port {
    pub name: String,
    pub mtu: u32,
    #[serde(serialize_with = "as_text")]
    pub mac: Mac,
}

fn as_text<S: Serializer>(mac: &Mac, to: S) -> Result<S::Ok, S::Error> {
    let bytes: Vec<String> = mac.iter().map(|byte| format!("{byte:02x}")).collect();
    to.serialize_str(&bytes.join(":"))
}

/// Reads the ports that the controller names, again and again.
#[derive(Debug, Default)]
pub struct PortReader {
    names: Vec<String>,
    ports: Vec<Port>,
    due_ns: Option<u64>,
}

impl PortReader {
    /// Read these ports from now on.
    pub fn watch(&mut self, names: &[String]) {
        if self.names != names {
            self.names = names.to_vec();
            self.due_ns = Some(0);
        }
    }

    /// The last reading; a port without an interface here is missing.
    pub fn ports(&self) -> &[Port] {
        &self.ports
    }

    pub fn next_due(&self) -> Option<u64> {
        self.due_ns
    }

    /// Reads if it is time. True if the reading differs from the last one.
    pub fn poll(&mut self, now_ns: u64) -> bool {
        self.poll_with(now_ns, &read)
    }

    fn poll_with(&mut self, now_ns: u64, read: &dyn Fn(&str) -> Option<Port>) -> bool {
        if self.due_ns.map_or(true, |due| due > now_ns) {
            return false;
        }
        self.due_ns = if self.names.is_empty() { None } else { Some(now_ns + READ_NS) };
        let ports: Vec<Port> = self.names.iter().filter_map(|name| read(name)).collect();
        let differs = ports != self.ports;
        self.ports = ports;
        differs
    }
}

fn read(name: &str) -> Option<Port> {
    let (mtu, mac) = (interface::mtu(name).ok()?, interface::mac(name).ok()?);
    Some(Port { name: name.to_string(), mtu, mac })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn ports_are_read_each_second_and_changes_are_noticed() {
        let mtu = Cell::new(1500);
        let read = |name: &str| {
            let port = Port { name: name.to_string(), mtu: mtu.get(), mac: [2, 0, 0, 0, 0, 1] };
            (name != "gone").then_some(port)
        };
        let mut reader = PortReader::default();
        assert!(!reader.poll_with(5 * SECOND, &read), "no port is to be read");
        reader.watch(&["wifi".to_string(), "gone".to_string()]);
        assert!(reader.poll_with(5 * SECOND, &read));
        assert_eq!(reader.ports().iter().map(|p| (p.name.as_str(), p.mtu)).collect::<Vec<_>>(), [("wifi", 1500)]);
        mtu.set(1400);
        assert!(!reader.poll_with(5 * SECOND + READ_NS - 1, &read), "it is too early");
        assert!(reader.poll_with(5 * SECOND + READ_NS, &read));
        assert_eq!(reader.ports()[0].mtu, 1400);
        assert!(!reader.poll_with(9 * SECOND, &read), "nothing changed");
        reader.watch(&[]);
        assert!(reader.poll_with(9 * SECOND, &read) && reader.ports().is_empty());
        assert_eq!(reader.next_due(), None);
    }

    #[test]
    fn loopback_is_read_and_written_as_the_controller_expects() {
        let port = read("lo").unwrap();
        assert!(port.mtu >= 1500);
        let port = Port { mtu: 1500, mac: [2, 0, 0, 0, 0xab, 1], ..port };
        let line = serde_json::to_string(&port).unwrap();
        assert_eq!(line, r#"{"name":"lo","mtu":1500,"mac":"02:00:00:00:ab:01"}"#);
        assert_eq!(read("no-such-port"), None);
    }

    #[test]
    fn frames_leave_room_for_labels_shim_and_seal() {
        let media = Media { mtu: Some(1500), ..Media::default() };
        assert_eq!((media.single_frame(), media.tcp_frame()), (1496, 1460));
        assert_eq!((Media::default().single_frame(), Media::default().tcp_frame()), (usize::MAX, usize::MAX));
        for mtu in [0, 127, 65_536] {
            assert!(Media { mtu: Some(mtu), ..Media::default() }.check().is_err());
        }
        assert!(Media { ports: vec![String::new()], ..Media::default() }.check().is_err());
    }
}
