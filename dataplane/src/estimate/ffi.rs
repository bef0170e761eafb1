//! C interface of the filters, for ctypes. Every pointer comes with a length, everything is checked before anything is
//! changed, and a panic is caught here and becomes a status.
use std::panic::{catch_unwind, AssertUnwindSafe};

use super::filter_bank::{Bank, Room, Settings};
use crate::planner::ffi::Array;

/// Changes whenever the request or the meaning of it does.
pub const ABI_VERSION: u32 = 1;

const OK: i32 = 0;
const INVALID: i32 = 2;
const PANIC: i32 = 3;

/// An array of the caller's that is changed: `count` items at `items`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ArrayMut<T> {
    items: *mut T,
    count: u64,
}

impl<T> ArrayMut<T> {
    /// # Safety
    /// `items` points to `count` items that nobody else looks at during the call, or is null.
    unsafe fn slice<'a>(&self) -> &'a mut [T] {
        if self.items.is_null() || self.count == 0 {
            return &mut [];
        }
        // SAFETY: as the caller promises.
        std::slice::from_raw_parts_mut(self.items, self.count as usize)
    }
}

/// N filters, changed in place by samples in order, and the settings (`Bank`, `Settings`).
#[repr(C)]
pub struct FilterRequest {
    /// Size of this structure in bytes, as the caller sees it.
    size: u64,
    /// float64[N] each, int64[N], float64[N, columns], float64[N].
    mean: ArrayMut<f64>,
    variance: ArrayMut<f64>,
    weight: ArrayMut<f64>,
    count: ArrayMut<i64>,
    recent: ArrayMut<f64>,
    time_s: ArrayMut<f64>,
    /// int64[k] below N, float64[k], finite, and float64[k].
    index: Array<i64>,
    values: Array<f64>,
    times_s: Array<f64>,
    /// uint64, 3 or more each.
    step_samples: Array<u64>,
    columns: u64,
    window: u64,
    jump_samples: u64,
    tau_s: f64,
    jump_ratio: f64,
    jump_sigma: f64,
    step_ratio: f64,
    step_sigma: f64,
}

type Checked<T> = Result<T, ()>;

fn ensure(good: bool) -> Checked<()> {
    good.then_some(()).ok_or(())
}

/// # Safety
/// The arrays of the request are what they say they are, and those of the filters do not overlap.
unsafe fn bank(request: &FilterRequest) -> Checked<Bank<'_>> {
    let bank = Bank {
        mean: request.mean.slice(),
        variance: request.variance.slice(),
        weight: request.weight.slice(),
        count: request.count.slice(),
        recent: request.recent.slice(),
        time_s: request.time_s.slice(),
        columns: request.columns as usize,
    };
    let filters = bank.mean.len();
    ensure(bank.variance.len() == filters && bank.weight.len() == filters && bank.count.len() == filters)?;
    ensure(bank.time_s.len() == filters && filters.checked_mul(bank.columns) == Some(bank.recent.len()))?;
    Ok(bank)
}

/// # Safety
/// As [`bank`].
unsafe fn settings(request: &FilterRequest) -> Checked<Settings<'_>> {
    let step_samples = request.step_samples.slice();
    ensure((1..=request.columns).contains(&request.window) && (1..=request.columns).contains(&request.jump_samples))?;
    ensure(step_samples.iter().all(|samples| (3..=request.columns).contains(samples)))?;
    Ok(Settings {
        tau_s: request.tau_s,
        window: request.window as usize,
        jump_samples: request.jump_samples as usize,
        jump_ratio: request.jump_ratio,
        jump_sigma: request.jump_sigma,
        step_samples,
        step_ratio: request.step_ratio,
        step_sigma: request.step_sigma,
    })
}

/// # Safety
/// As [`bank`].
unsafe fn update(request: &FilterRequest) -> Checked<()> {
    ensure(request.size == std::mem::size_of::<FilterRequest>() as u64)?;
    let (mut bank, settings) = (bank(request)?, settings(request)?);
    let (index, values, times_s) = (request.index.slice(), request.values.slice(), request.times_s.slice());
    ensure(values.len() == index.len() && times_s.len() == index.len())?;
    ensure(index.iter().all(|&at| at >= 0 && (at as u64) < bank.mean.len() as u64))?;
    ensure(values.iter().all(|value| value.is_finite()))?;
    let mut room = Room::default();
    for ((&at, &value), &time_s) in index.iter().zip(values).zip(times_s) {
        bank.update(at as usize, value, time_s, &settings, &mut room);
    }
    Ok(())
}

/// Version of this interface; a caller that knows another one must not call `hyroads_filters`.
#[no_mangle]
pub extern "C" fn hyroads_filters_abi() -> u32 {
    ABI_VERSION
}

/// Updates filters. Returns 0; 2 if the request is not valid, and nothing has changed; 3 if the kernel failed.
///
/// # Safety
/// The pointer is null or points to a structure whose arrays are as long as they say, for the time of the call; the
/// arrays of the filters overlap with no other.
#[no_mangle]
pub unsafe extern "C" fn hyroads_filters(request: *const FilterRequest) -> i32 {
    let updated = catch_unwind(AssertUnwindSafe(|| match request.as_ref() {
        Some(request) => update(request).map_or(INVALID, |()| OK),
        None => INVALID,
    }));
    updated.unwrap_or(PANIC)
}
