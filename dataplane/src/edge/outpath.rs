//! The sending end of one path: pacing, counters, and the headers of its frames.

use super::buffer::{Buf, Pool};
use super::frame::{outer_header, Kind, Shim, ETHERNET_LEN, SHIM_LEN, TYPE_AGENT};
use super::guard::Sealer;
use super::pace::Pacer;
use super::probe_traffic::ProbeTraffic;
use super::protocol::OutPath;
use super::seal::SEAL_LEN;
use super::sequence_markers::SequenceMarkers;
use crate::sys::interface::Mac;

/// Frames of a HyWF split are bound to a path at most about this much ahead, so that the other end, which waits for
/// `max_hold_ms`, sees them in time.
const STAGED_MS: f64 = 40.0;
/// Where frames go if the switch fills in the addresses.
pub const SWITCH_MAC: Mac = [2, 0x48, 0x79, 0, 0, 0];
/// With a shorter inner frame real Ethernet pads the whole one, and no seal would be right any more.
const LEAST_SEALED: usize = 60 - ETHERNET_LEN - SHIM_LEN - SEAL_LEN;

/// Where a path's frames leave: index of the interface and its MAC.
pub type Exit = (usize, Mac);

/// Where a path stands in the numbers of its flow, when each frame goes on every path.
#[derive(Clone, Debug, Default)]
pub struct CopyPosition {
    /// The number that it sends next; None: it takes no part.
    pub reached: Option<u32>,
    /// Copies that it left out.
    pub skipped: u64,
    pub(super) behind_bytes: usize,
    pub(super) room_bytes: usize,
}

#[derive(Debug)]
pub struct PathOut {
    pub spec: OutPath,
    pub sent_frames: u64,
    pub sent_bytes: u64,
    pub exit: Exit,
    pub header: Vec<u8>,
    pub pacer: Pacer,
    pub probe: ProbeTraffic,
    pub sent_ns: u64,
    pub copy_position: CopyPosition,
    pub markers: SequenceMarkers,
    /// Frames and bytes that the path it is copied from had sent when that began.
    pub copied_since: (u64, u64),
}

impl PathOut {
    pub fn new(now_ns: u64, spec: &OutPath, exit: Exit, burst_ns: u64) -> Self {
        PathOut {
            spec: spec.clone(),
            sent_frames: 0,
            sent_bytes: 0,
            exit,
            header: path_header(spec, exit),
            pacer: Pacer::new(now_ns, spec.rate_mbps, spec.mtu, burst_ns),
            probe: ProbeTraffic::default(),
            // A first keep-alive at once: it tells the receiver where the sequence starts.
            sent_ns: 0,
            copy_position: CopyPosition::default(),
            markers: SequenceMarkers::default(),
            copied_since: (0, 0),
        }
    }

    pub fn weight(&self) -> f64 {
        self.spec.rate_mbps.unwrap_or(self.spec.weight)
    }

    /// Whether frames of the flow go by it, sent here or copied to it on the way.
    pub fn in_use(&self) -> bool {
        self.weight() > 0.0
    }

    /// Whether something may be sent on it here.
    pub fn usable(&self) -> bool {
        self.in_use() && self.spec.copied_from.is_none()
    }

    /// Adds to its counters what was copied to it on the way; `sent` is what the path it is copied from has sent.
    pub fn add_copied(&mut self, sent: Option<&(u64, u64)>) {
        if let (Some(_), Some((frames, bytes))) = (self.spec.copied_from, sent) {
            self.sent_frames += frames.saturating_sub(self.copied_since.0);
            self.sent_bytes += bytes.saturating_sub(self.copied_since.1);
        }
    }

    /// How much a HyWF split may bind to this path ahead of time; 0 if it can't be used.
    pub fn staging_bytes(&self) -> usize {
        match self.spec.rate_mbps {
            None => usize::MAX,
            Some(rate) if rate <= 0.0 => 0,
            Some(rate) => ((rate * 125.0 * STAGED_MS) as usize).max(1),
        }
    }
}

pub fn path_header(spec: &OutPath, exit: Exit) -> Vec<u8> {
    outer_header(spec.dst_mac.unwrap_or(SWITCH_MAC), exit.1, &spec.labels, TYPE_AGENT)
}

/// A frame to put on an interface.
pub type Outgoing = (usize, Buf);

fn put_headers(buf: &mut Buf, now_ns: u64, path: &PathOut, shim: Shim, sealer: &mut Sealer) {
    let head = path.header.len();
    let seal = if sealer.is_sealing() { SEAL_LEN } else { 0 };
    if seal > 0 && shim.kind.is_data() {
        buf.pad_to(LEAST_SEALED);
    }
    // The headroom holds MAX_LABELS labels, which the configuration was checked for.
    if let Some(room) = buf.prepend(head + SHIM_LEN + seal) {
        room[..head].copy_from_slice(&path.header);
        sealer.write(now_ns, shim, buf.bytes_mut(), head);
    }
}

/// A user's frame, or pieces, on its way.
pub fn launch(path: &mut PathOut, now_ns: u64, sealer: &mut Sealer, sequence: u32, buf: Buf) -> Outgoing {
    path.sent_ns = now_ns;
    let kind = if buf.pieces.is_some() { Kind::Pieces } else { Kind::Data };
    send(path, now_ns, kind, sealer, sequence, buf)
}

/// A frame without an inner frame; it counts for the pacing, but does not wait for it.
pub fn signal(
    path: &mut PathOut,
    now_ns: u64,
    kind: Kind,
    sealer: &mut Sealer,
    sequence: u32,
    pool: &mut Pool,
) -> Option<Outgoing> {
    Some(send(path, now_ns, kind, sealer, sequence, pool.take()?))
}

/// Tells over `carrier` that path `resumed` is used again, from `sequence` on.
pub fn announce(
    carrier: &mut PathOut,
    resumed: u8,
    now_ns: u64,
    sealer: &mut Sealer,
    sequence: u32,
    pool: &mut Pool,
) -> Option<Outgoing> {
    let shim = Shim { kind: Kind::Resume, path: resumed, flow: sealer.flow, sequence, sent_us: 0 };
    Some(emit(carrier, now_ns, shim, sealer, pool.take()?))
}

pub fn send(path: &mut PathOut, now_ns: u64, kind: Kind, sealer: &mut Sealer, sequence: u32, buf: Buf) -> Outgoing {
    let shim = Shim { kind, path: path.spec.id, flow: sealer.flow, sequence, sent_us: 0 };
    emit(path, now_ns, shim, sealer, buf)
}

/// `sealer` gives the frame its send time.
fn emit(path: &mut PathOut, now_ns: u64, shim: Shim, sealer: &mut Sealer, mut buf: Buf) -> Outgoing {
    put_headers(&mut buf, now_ns, path, shim, sealer);
    let bytes = buf.len() - ETHERNET_LEN;
    path.pacer.sent(now_ns, bytes);
    path.probe.sent(now_ns, bytes);
    path.sent_frames += 1;
    path.sent_bytes += bytes as u64;
    (path.exit.0, buf)
}
