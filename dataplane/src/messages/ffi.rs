//! C interface of the reader, for ctypes. A panic is caught here and becomes an answer that changes nothing.
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::slice::from_raw_parts;

use super::reader::{Batch, Event};
use super::thread::ReadingThread;
use super::whole::{Whole, WholeReport};

/// Changes whenever a structure or a function here or the meaning of either does.
pub const ABI_VERSION: u32 = 5;

/// Where a batch is, until the next call.
#[repr(C)]
#[derive(Debug)]
pub struct Place {
    pub events: *const Event,
    pub event_count: u64,
    pub lines: *const u8,
    pub line_bytes: u64,
    pub values: *const f64,
    pub value_count: u64,
}

/// Version of this interface.
#[no_mangle]
pub extern "C" fn hyroads_messages_abi() -> u32 {
    ABI_VERSION
}

/// A reader without sockets, and its thread; to be freed. Null if the system gives none.
#[no_mangle]
pub extern "C" fn hyroads_messages_new(longest: u64) -> *mut ReadingThread {
    match ReadingThread::new(longest as usize) {
        Ok(thread) => Box::into_raw(Box::new(thread)),
        Err(_) => std::ptr::null_mut(),
    }
}

/// # Safety
/// `thread` is null or of `hyroads_messages_new`, and not used any more.
#[no_mangle]
pub unsafe extern "C" fn hyroads_messages_free(thread: *mut ReadingThread) {
    if !thread.is_null() {
        // SAFETY: as the caller promises.
        drop(Box::from_raw(thread));
    }
}

/// # Safety
/// `thread` is null or of `hyroads_messages_new`; nobody else calls anything here with it meanwhile.
unsafe fn guarded<T>(thread: *mut ReadingThread, otherwise: T, call: impl FnOnce(&mut ReadingThread) -> T) -> T {
    // SAFETY: as the caller promises.
    match thread.as_mut() {
        Some(thread) => catch_unwind(AssertUnwindSafe(|| call(thread))).unwrap_or(otherwise),
        None => otherwise,
    }
}

/// # Safety
/// `data` is null, or there are `count` items.
unsafe fn slice<'a, T>(data: *const T, count: u64) -> &'a [T] {
    if data.is_null() || count == 0 {
        return &[];
    }
    // SAFETY: as the caller promises.
    from_raw_parts(data, count as usize)
}

/// The descriptor that is readable while something is to be taken.
///
/// # Safety
/// `thread` is of `hyroads_messages_new`.
#[no_mangle]
pub unsafe extern "C" fn hyroads_messages_descriptor(thread: *mut ReadingThread) -> i32 {
    guarded(thread, -1, |thread| thread.descriptor())
}

/// Reads a socket from now on; what names it in events, 0 if it is not taken.
///
/// # Safety
/// `data` has `bytes` bytes.
#[no_mangle]
pub unsafe extern "C" fn hyroads_messages_add(thread: *mut ReadingThread, fd: i32, data: *const u8, bytes: u64) -> u64 {
    let data = slice(data, bytes);
    guarded(thread, 0, |thread| thread.reader().add(fd, data).unwrap_or(0))
}

/// Forgets a socket.
///
/// # Safety
/// `thread` is of `hyroads_messages_new`.
#[no_mangle]
pub unsafe extern "C" fn hyroads_messages_remove(thread: *mut ReadingThread, id: u64) {
    guarded(thread, (), |thread| thread.reader().remove(id));
}

/// Has sockets pinged, each with a number; of those that are not `is_refused` is set (`Reader::ping`).
///
/// # Safety
/// The arrays have `count` items.
#[no_mangle]
pub unsafe extern "C" fn hyroads_messages_ping(
    thread: *mut ReadingThread,
    ids: *const u64,
    seqs: *const u64,
    is_refused: *mut u8,
    count: u64,
) {
    let (ids, seqs) = (slice(ids, count), slice(seqs, count));
    guarded(thread, (), |thread| {
        let is_taken = thread.ping(ids, seqs);
        for (i, is_taken) in is_taken.into_iter().enumerate() {
            // SAFETY: as the caller promises.
            *is_refused.add(i) = u8::from(!is_taken);
        }
    });
}

/// Sends the ping of a socket; how many bytes of it there was no room for, which are put in `rest`.
///
/// # Safety
/// `rest` has room for `room` bytes, which are enough for a ping.
#[no_mangle]
pub unsafe extern "C" fn hyroads_messages_settle(thread: *mut ReadingThread, id: u64, rest: *mut u8, room: u64) -> u64 {
    guarded(thread, 0, |thread| {
        let left = thread.reader().settle(id);
        let length = left.len().min(room as usize);
        // SAFETY: as the caller promises.
        std::ptr::copy_nonoverlapping(left.as_ptr(), rest, length);
        length as u64
    })
}

/// The answers to pings that were kept.
///
/// # Safety
/// `place` is valid.
#[no_mangle]
pub unsafe extern "C" fn hyroads_messages_pongs(thread: *mut ReadingThread, place: *mut Place) {
    guarded(thread, (), |thread| {
        thread.take_pongs();
        // SAFETY: as the caller promises.
        *place = place_of(&thread.batch);
    });
}

/// Changes refer to a whole report (`WholeReport::new`), as far as `wholes` lines that may be whole ones were read.
/// `is_last`: it is the last of these.
///
/// # Safety
/// The arrays have as many items as is said.
#[no_mangle]
pub unsafe extern "C" fn hyroads_messages_report(
    thread: *mut ReadingThread,
    id: u64,
    shape: *const u64,
    shape_count: u64,
    values: *const f64,
    value_count: u64,
    wholes: u64,
    is_last: i32,
) {
    let (shape, values) = (slice(shape, shape_count), slice(values, value_count));
    guarded(thread, (), |thread| {
        let whole = WholeReport::new(shape, values).map_or(Whole::Unknown, |whole| Whole::Report(Box::new(whole)));
        thread.reader().refer(id, whole, wholes, is_last != 0);
    });
}

/// Changes refer to a reading of these technologies, each with a line's end after it; the rest as above.
///
/// # Safety
/// `names` has `bytes` bytes.
#[no_mangle]
pub unsafe extern "C" fn hyroads_messages_reading(
    thread: *mut ReadingThread,
    id: u64,
    names: *const u8,
    bytes: u64,
    wholes: u64,
    is_last: i32,
) {
    let names = slice(names, bytes);
    guarded(thread, (), |thread| {
        let parts = names.split(|&c| c == b'\n').filter(|name| !name.is_empty());
        let whole = Whole::Reading(parts.map(<[u8]>::to_vec).collect());
        thread.reader().refer(id, whole, wholes, is_last != 0);
    });
}

/// Whether something of a socket was read and is to be taken.
///
/// # Safety
/// `thread` is of `hyroads_messages_new`.
#[no_mangle]
pub unsafe extern "C" fn hyroads_messages_is_holding(thread: *mut ReadingThread, id: u64) -> i32 {
    guarded(thread, 0, |thread| i32::from(thread.reader().is_holding(id)))
}

/// CLOCK_MONOTONIC in nanoseconds: all that came before was read and taken, but for held numbers.
///
/// # Safety
/// `thread` is of `hyroads_messages_new`.
#[no_mangle]
pub unsafe extern "C" fn hyroads_messages_taken_until_ns(thread: *mut ReadingThread) -> u64 {
    guarded(thread, 0, |thread| thread.reader().taken_until_ns())
}

/// The next events, at most so many; 1 if there are more, 0 if not, -1 if nothing is read any more.
///
/// # Safety
/// `place` is valid.
#[no_mangle]
pub unsafe extern "C" fn hyroads_messages_take(thread: *mut ReadingThread, place: *mut Place, most: u64) -> i32 {
    guarded(thread, -1, |thread| {
        let is_more = thread.take(most as usize).map_or(-1, i32::from);
        // SAFETY: as the caller promises.
        *place = place_of(&thread.batch);
        is_more
    })
}

/// The numbers that are held.
///
/// # Safety
/// `place` is valid.
#[no_mangle]
pub unsafe extern "C" fn hyroads_messages_held(thread: *mut ReadingThread, place: *mut Place) {
    guarded(thread, (), |thread| {
        thread.take_held();
        // SAFETY: as the caller promises.
        *place = place_of(&thread.batch);
    });
}

fn place_of(batch: &Batch) -> Place {
    Place {
        events: batch.events.as_ptr(),
        event_count: batch.events.len() as u64,
        lines: batch.lines.as_ptr(),
        line_bytes: batch.lines.len() as u64,
        values: batch.values.as_ptr(),
        value_count: batch.values.len() as u64,
    }
}
