//! C interface of the slicer's fast path, for ctypes. A panic is caught here and becomes an answer that changes nothing.
use std::mem::size_of;
use std::panic::{catch_unwind, AssertUnwindSafe};

use super::layout::{Bucket, Event, Line, Quota, Sent, Switch, Tenant};
use super::relay::{Events, Relay};

/// Changes whenever a structure of `layout`, a function here or the meaning of either does.
pub const ABI_VERSION: u32 = 1;

/// Version of this interface.
#[no_mangle]
pub extern "C" fn hyroads_slicer_abi() -> u32 {
    ABI_VERSION
}

/// The sizes of all structures in bytes, added up with weights: a caller with other structures gets another number.
#[no_mangle]
pub extern "C" fn hyroads_slicer_sizes() -> u64 {
    let sizes = [
        size_of::<Bucket>(),
        size_of::<Quota>(),
        size_of::<Tenant>(),
        size_of::<Switch>(),
        size_of::<Line>(),
        size_of::<Sent>(),
        size_of::<Event>(),
    ];
    sizes.iter().fold(0, |sum, &size| sum * 31 + size as u64)
}

/// A relay without connections; to be freed.
#[no_mangle]
pub extern "C" fn hyroads_slicer_new() -> *mut Relay {
    Box::into_raw(Box::new(Relay::default()))
}

/// # Safety
/// `relay` is null or of `hyroads_slicer_new`, and not used any more.
#[no_mangle]
pub unsafe extern "C" fn hyroads_slicer_free(relay: *mut Relay) {
    if !relay.is_null() {
        drop(Box::from_raw(relay));
    }
}

// SAFETY: `relay` is null or of `hyroads_slicer_new`, and nobody else uses it meanwhile: the caller's threads take turns.
unsafe fn guarded<T>(relay: *mut Relay, otherwise: T, call: impl FnOnce(&mut Relay) -> T) -> T {
    match relay.as_mut() {
        Some(relay) => catch_unwind(AssertUnwindSafe(|| call(relay))).unwrap_or(otherwise),
        None => otherwise,
    }
}

/// Takes a connection; 1 if it is taken.
///
/// # Safety
/// `line` and all that it points to stay where they are until it is removed.
#[no_mangle]
pub unsafe extern "C" fn hyroads_slicer_add(relay: *mut Relay, line: *mut Line) -> i32 {
    guarded(relay, 0, |relay| i32::from(!line.is_null() && relay.add(line)))
}

/// Forgets the connection with this descriptor.
///
/// # Safety
/// `relay` is of `hyroads_slicer_new`.
#[no_mangle]
pub unsafe extern "C" fn hyroads_slicer_remove(relay: *mut Relay, fd: i32) {
    guarded(relay, (), |relay| relay.remove(fd));
}

/// Waits as `Relay::poll`; returns how many events there are.
///
/// # Safety
/// `events` has room for `room` events; connections are as `hyroads_slicer_add` wants them.
#[no_mangle]
pub unsafe extern "C" fn hyroads_slicer_poll(
    relay: *mut Relay,
    epoll: i32,
    timeout_s: f64,
    events: *mut Event,
    room: u64,
) -> u64 {
    guarded(relay, 0, |relay| {
        let mut events = Events::new(std::slice::from_raw_parts_mut(events, room as usize));
        relay.poll(epoll, timeout_s, &mut events);
        events.count() as u64
    })
}

/// Handles what is in the buffer of one connection; returns how many events there are.
///
/// # Safety
/// As `hyroads_slicer_poll`, and `line` was added.
#[no_mangle]
pub unsafe extern "C" fn hyroads_slicer_step(relay: *mut Relay, line: *mut Line, events: *mut Event, room: u64) -> u64 {
    guarded(relay, 0, |relay| {
        let mut events = Events::new(std::slice::from_raw_parts_mut(events, room as usize));
        relay.step(line, &mut events);
        events.count() as u64
    })
}

/// How many bytes could not be sent to a connection.
///
/// # Safety
/// `relay` is of `hyroads_slicer_new`.
#[no_mangle]
pub unsafe extern "C" fn hyroads_slicer_left(relay: *mut Relay, fd: i32) -> u64 {
    guarded(relay, 0, |relay| relay.left_bytes(fd))
}

/// Moves them to `into`.
///
/// # Safety
/// `into` has room for `hyroads_slicer_left` bytes.
#[no_mangle]
pub unsafe extern "C" fn hyroads_slicer_take_left(relay: *mut Relay, fd: i32, into: *mut u8) {
    guarded(relay, (), |relay| {
        let data = relay.left(fd);
        std::ptr::copy_nonoverlapping(data.as_ptr(), into, data.len());
    });
}

/// What a guest sent that went on under `xid`; 1 if it is known, and forgotten now.
///
/// # Safety
/// `into` has room for it.
#[no_mangle]
pub unsafe extern "C" fn hyroads_slicer_asked(relay: *mut Relay, fd: i32, xid: u32, into: *mut Sent) -> i32 {
    guarded(relay, 0, |relay| match relay.asked(fd, xid) {
        Some(sent) => {
            *into = sent;
            1
        }
        None => 0,
    })
}
