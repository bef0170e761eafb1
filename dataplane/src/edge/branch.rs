//! Copies that branch on the way: a frame of a flow that goes by several paths travels their first links once, to an
//! agent that sends a copy on each of them. See docs/reference/dataplane.md section 2.
//!
//! Nothing is queued or paced here: the first edge paces what comes, by the slowest of the paths.

use super::buffer::{Buf, Pool};
use super::egress_config::check_paths;
use super::frame::{Kind, Shim, SHIM_LEN};
use super::guard::{write_sealed, Checked};
use super::outpath::{path_header, Exit, Outgoing};
use super::protocol::{OutPath, FIRST_FLOW};
use super::seal::{Base, SEAL_LEN};
use serde::Deserialize;
use std::collections::BTreeMap;

/// Frames of flow `number` that come by `path` go on by `copies`, one of which has the id of that path.
#[derive(Clone, Debug, Deserialize, PartialEq)]
pub struct Branch {
    pub number: u16,
    pub path: u8,
    pub copies: Vec<OutPath>,
    /// Of the flow, if it is sealed.
    #[serde(default)]
    pub key: Option<Base>,
}

impl Branch {
    pub fn check(&self) -> Result<(), String> {
        if self.number < FIRST_FLOW {
            return Err(format!("expected a flow number of {FIRST_FLOW} or more"));
        }
        check_paths(self.copies.iter().map(|p| p.id))?;
        for copy in &self.copies {
            copy.check().map_err(|e| format!("path {}: {e}", copy.id))?;
        }
        match self.copies.iter().any(|p| p.id == self.path) {
            true => Ok(()),
            false => Err(format!("path {} is not among its copies", self.path)),
        }
    }
}

/// Where a copy goes.
#[derive(Debug)]
struct Copy {
    id: u8,
    header: Vec<u8>,
    exit: usize,
    /// The longest frame behind the shim.
    most_inner: usize,
}

/// All branches of an agent.
#[derive(Debug, Default)]
pub struct Branches {
    by_path: BTreeMap<(u16, u8), Vec<Copy>>,
    /// Frames that were sent on, each copy counted.
    pub sent: u64,
}

impl Branches {
    pub fn configure(&mut self, wanted: &[Branch], exit_of: &dyn Fn(Option<&str>) -> Exit) {
        let copy_of = |path: &OutPath| {
            let exit = exit_of(path.interface.as_deref());
            let most_inner = path.mtu - path.overhead();
            Copy { id: path.id, header: path_header(path, exit), exit: exit.0, most_inner }
        };
        let copies = |branch: &Branch| branch.copies.iter().map(copy_of).collect();
        self.by_path = wanted.iter().map(|b| ((b.number, b.path), copies(b))).collect();
    }

    /// Whether frames with this shim branch here. A resume comes by another path than the one it names.
    pub fn has(&self, shim: &Shim) -> bool {
        !self.by_path.is_empty() && self.of(shim).next().is_some()
    }

    /// Whether anything of a flow branches here.
    pub fn has_flow(&self, number: u16) -> bool {
        self.by_path.range((number, 0)..=(number, u8::MAX)).next().is_some()
    }

    fn of(&self, shim: &Shim) -> impl Iterator<Item = &Copy> {
        let resumes = shim.kind == Kind::Resume;
        let paths = if resumes { 0..=u8::MAX } else { shim.path..=shim.path };
        self.by_path.range((shim.flow, *paths.start())..=(shim.flow, *paths.end())).flat_map(|(_, copies)| copies)
    }

    /// Sends a frame on, by all its copies; what is before `inner_at` is written anew, and sealed again if it was.
    /// Without a buffer, or where it does not fit, a copy is left out.
    pub fn send(
        &mut self,
        mut buf: Buf,
        (shim, inner_at): (Shim, usize),
        checked: Option<&Checked>,
        pool: &mut Pool,
        out: &mut Vec<Outgoing>,
    ) {
        buf.strip(inner_at);
        let shim_len = SHIM_LEN + checked.map_or(0, |_| SEAL_LEN);
        let mut sent = 0;
        for copy in self.of(&shim).filter(|copy| buf.len() <= copy.most_inner) {
            if let Some(mut copied) = pool.take_with(buf.bytes()) {
                // What a resume says is of the path that it names.
                let path = if shim.kind == Kind::Resume { shim.path } else { copy.id };
                let head = copy.header.len();
                if let Some(room) = copied.prepend(head + shim_len) {
                    room[..head].copy_from_slice(&copy.header);
                    let (shim, frame) = (Shim { path, ..shim }, copied.bytes_mut());
                    match checked {
                        Some(sealed) => write_sealed(&sealed.key, sealed.generation, sealed.high, shim, frame, head),
                        None => shim.encode(&mut frame[head..]),
                    }
                }
                out.push((copy.exit, copied));
                sent += 1;
            }
        }
        self.sent += sent;
        pool.give(buf);
    }
}

#[cfg(test)]
#[path = "branch_tests.rs"]
mod tests;
