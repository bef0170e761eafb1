//! C interface of the reader, for ctypes. A panic is caught here and becomes an answer that changes nothing.
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::slice::from_raw_parts;

use super::reader::{Batch, Event, Reader};
use super::whole::{Whole, WholeReport};

/// Changes whenever a structure or a function here or the meaning of either does.
pub const ABI_VERSION: u32 = 2;

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

/// A reader without sockets; to be freed. Null if the system gives none.
#[no_mangle]
pub extern "C" fn hyroads_messages_new(longest: u64) -> *mut Reader {
    match Reader::new(longest as usize) {
        Ok(reader) => Box::into_raw(Box::new(reader)),
        Err(_) => std::ptr::null_mut(),
    }
}

/// # Safety
/// `reader` is null or of `hyroads_messages_new`, and not used any more.
#[no_mangle]
pub unsafe extern "C" fn hyroads_messages_free(reader: *mut Reader) {
    if !reader.is_null() {
        // SAFETY: as the caller promises.
        drop(Box::from_raw(reader));
    }
}

/// # Safety
/// `reader` is null or of `hyroads_messages_new`; nobody else uses it meanwhile.
unsafe fn guarded<T>(reader: *mut Reader, otherwise: T, call: impl FnOnce(&mut Reader) -> T) -> T {
    // SAFETY: as the caller promises.
    match reader.as_mut() {
        Some(reader) => catch_unwind(AssertUnwindSafe(|| call(reader))).unwrap_or(otherwise),
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

/// The descriptor that is readable while something is to be read.
///
/// # Safety
/// `reader` is of `hyroads_messages_new`.
#[no_mangle]
pub unsafe extern "C" fn hyroads_messages_descriptor(reader: *mut Reader) -> i32 {
    guarded(reader, -1, |reader| reader.descriptor())
}

/// Reads a socket from now on; 1 if it is taken.
///
/// # Safety
/// `data` has `bytes` bytes.
#[no_mangle]
pub unsafe extern "C" fn hyroads_messages_add(reader: *mut Reader, fd: i32, data: *const u8, bytes: u64) -> i32 {
    let data = slice(data, bytes);
    guarded(reader, 0, |reader| i32::from(reader.add(fd, data)))
}

/// Forgets a socket.
///
/// # Safety
/// `reader` is of `hyroads_messages_new`.
#[no_mangle]
pub unsafe extern "C" fn hyroads_messages_remove(reader: *mut Reader, fd: i32) {
    guarded(reader, (), |reader| reader.remove(fd));
}

/// Changes refer to a whole report (`WholeReport::new`). `is_last`: it is the last line that may be a whole one.
///
/// # Safety
/// The arrays have as many items as is said.
#[no_mangle]
pub unsafe extern "C" fn hyroads_messages_report(
    reader: *mut Reader,
    fd: i32,
    shape: *const u64,
    shape_count: u64,
    values: *const f64,
    value_count: u64,
    is_last: i32,
) {
    let (shape, values) = (slice(shape, shape_count), slice(values, value_count));
    guarded(reader, (), |reader| {
        let whole = WholeReport::new(shape, values).map_or(Whole::Unknown, |whole| Whole::Report(Box::new(whole)));
        reader.refer(fd, whole, is_last != 0);
    });
}

/// Changes refer to a reading of these technologies, each with a line's end after it.
///
/// # Safety
/// `names` has `bytes` bytes.
#[no_mangle]
pub unsafe extern "C" fn hyroads_messages_reading(
    reader: *mut Reader,
    fd: i32,
    names: *const u8,
    bytes: u64,
    is_last: i32,
) {
    let names = slice(names, bytes);
    guarded(reader, (), |reader| {
        let parts = names.split(|&c| c == b'\n').filter(|name| !name.is_empty());
        reader.refer(fd, Whole::Reading(parts.map(<[u8]>::to_vec).collect()), is_last != 0);
    });
}

/// Whether numbers of a socket are held.
///
/// # Safety
/// `reader` is of `hyroads_messages_new`.
#[no_mangle]
pub unsafe extern "C" fn hyroads_messages_is_holding(reader: *mut Reader, fd: i32) -> i32 {
    guarded(reader, 0, |reader| i32::from(reader.is_holding(fd)))
}

/// Reads what is there (`Reader::poll`); how many sockets had something, -1 if that failed.
///
/// # Safety
/// `place` is valid.
#[no_mangle]
pub unsafe extern "C" fn hyroads_messages_poll(reader: *mut Reader, place: *mut Place, holds: i32) -> i64 {
    guarded(reader, -1, |reader| {
        let count = reader.poll(holds != 0).map_or(-1, |count| count as i64);
        // SAFETY: as the caller promises.
        *place = place_of(&reader.batch);
        count
    })
}

/// The numbers that are held (`Reader::take_held`).
///
/// # Safety
/// `place` is valid.
#[no_mangle]
pub unsafe extern "C" fn hyroads_messages_held(reader: *mut Reader, place: *mut Place) {
    guarded(reader, (), |reader| {
        reader.take_held();
        // SAFETY: as the caller promises.
        *place = place_of(&reader.batch);
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
