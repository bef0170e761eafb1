//! Memory that Python owns and both sides read and write (`slices/native/layout.py` has the same structures). One thread
//! at a time is in them: the slicer's event loop, or the call that it makes here.

/// Ports from here on are left to Python.
pub const PORTS: usize = 4096;
pub const PORT_WORDS: usize = PORTS / 64;
/// A slice with more controllers at a switch is left to Python.
pub const GUESTS: usize = 8;

const TOKEN: f64 = 1.0 - 1e-9;

/// `controller.core.token_bucket`, with the same arithmetic.
#[repr(C)]
pub struct Bucket {
    pub rate_per_s: f64,
    pub burst: f64,
    pub tokens: f64,
    /// Infinite until the first use.
    pub filled_s: f64,
}

impl Bucket {
    /// Whether there is a token now.
    pub fn has_token(&mut self, now_s: f64) -> bool {
        if self.filled_s < f64::INFINITY {
            let elapsed_s = (now_s - self.filled_s).max(0.0);
            self.tokens = self.burst.min(self.tokens + elapsed_s * self.rate_per_s);
            self.filled_s = self.filled_s.max(now_s);
        } else {
            self.filled_s = now_s;
        }
        self.tokens >= TOKEN
    }

    /// Takes a token if there is one. A debt beyond the burst is forgiven.
    pub fn take(&mut self, now_s: f64) -> bool {
        let there = self.has_token(now_s);
        self.tokens = if there { self.tokens - 1.0 } else { self.tokens.max(-self.burst) };
        there
    }
}

/// Flow entries of a slice on a switch: at most, counted, and added since the count.
#[repr(C)]
pub struct Quota {
    pub most: u64,
    pub counted: u64,
    pub added: u64,
    pub refused: u64,
}

impl Quota {
    pub fn has_room(&self) -> bool {
        self.counted.saturating_add(self.added) < self.most
    }
}

/// A slice on one switch.
#[repr(C)]
pub struct Tenant {
    pub packet_ins: *mut Bucket,
    pub changes: *mut Bucket,
    pub entries: *mut Quota,
    /// Messages that were forwarded here, and packet-ins that were dropped here.
    pub messages: u64,
    pub dropped_packet_ins: u64,
    /// The bits of the metadata that are the guest's.
    pub metadata_mask: u64,
    /// Before each output to a port; -1: none.
    pub queue: i64,
    pub first_table: u32,
    pub table_count: u32,
    /// `whole`, `uniform` and the switch's `kinds` are of the slices of now.
    pub ports_known: u32,
    /// All ports of the slice have the same flowspace.
    pub uniform: u32,
    /// More than `GUESTS` if there is one that is not among `guests`.
    pub guest_count: u32,
    pub padding: u32,
    pub ports: [u64; PORT_WORDS],
    /// Ports where every packet is the slice's.
    pub whole: [u64; PORT_WORDS],
    pub guests: [*mut Line; GUESTS],
}

impl Tenant {
    pub fn has_port(&self, port: u32) -> bool {
        bit(&self.ports, port)
    }

    /// Whether an unchanged packet that came in at `in_port` (None: any of the slice's) may leave at `port` for certain.
    pub fn may_leave(&self, in_port: Option<u32>, port: u32, kinds: &[u32; PORTS]) -> bool {
        if self.ports_known == 0 || !self.has_port(port) {
            return false;
        }
        bit(&self.whole, port)
            || match in_port {
                None => self.uniform != 0,
                Some(one) => self.has_port(one) && kinds[one as usize] == kinds[port as usize],
            }
    }
}

fn bit(words: &[u64; PORT_WORDS], port: u32) -> bool {
    words.get(port as usize / 64).map_or(false, |word| word >> (port % 64) & 1 == 1)
}

/// One switch. `tenants` says whose each table is.
#[repr(C)]
pub struct Switch {
    pub line: *mut Line,
    /// Of the next message that is sent on here.
    pub next_xid: u32,
    pub padding: u32,
    pub tenants: [*mut Tenant; 256],
    /// Equal for ports that have the same flowspace.
    pub kinds: [u32; PORTS],
}

/// One connection: of a switch (`tenant` is null) or of a guest. `buffer[start..end]` has come and is not handled yet.
#[repr(C)]
pub struct Line {
    pub buffer: *mut u8,
    pub room: u64,
    pub start: u64,
    pub end: u64,
    /// When something came last.
    pub heard_s: f64,
    pub switch: *mut Switch,
    pub tenant: *mut Tenant,
    pub fd: i32,
    /// Nothing holds it, so it may be read and its messages handled.
    pub open: u32,
    /// Nothing waits to be sent, so it may be written.
    pub writable: u32,
    /// The guest may change the switch.
    pub may_change: u32,
    /// The reasons of packet-ins that the guest wants, one bit each.
    pub packet_in_reasons: u32,
    pub padding: u32,
}

/// What was sent on under an id of the slicer's own: an error quotes it.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Sent {
    pub sent_s: f64,
    pub xid: u32,
    pub guest_xid: u32,
    pub length: u32,
    pub padding: u32,
    pub head: [u8; 64],
}

/// What Python has to do with a connection.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Event {
    pub fd: i32,
    /// What epoll said; 0 for what this module says itself, by `what`.
    pub mask: u32,
    pub what: u32,
}

/// The next message in the buffer is not for the fast path.
pub const WORK: u32 = 1;
/// The slice has used up its messages for now.
pub const PACED: u32 = 2;
/// Not everything could be sent.
pub const LEFT: u32 = 3;
