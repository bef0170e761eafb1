//! C interface of the rates' solver, for ctypes. Every pointer comes with a length, everything is checked before use,
//! and a panic is caught here and becomes a status.
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::time::Duration;

use super::held::HOLD;
use super::method::Pace;
use super::problem::Pattern;
use super::search::{Solution, Warm};
use super::utility::Utility;
use super::whole::Whole;
use crate::planner::ffi::Array;

/// Changes whenever the request, the answer or the meaning of either does.
pub const ABI_VERSION: u32 = 3;

const OK: i32 = 0;
const UNSOLVED: i32 = 1;
const INVALID: i32 = 2;
const PANIC: i32 = 3;

/// A reduced problem (`Whole`) and where to start: `start_mbps` for a cold start, else `warm_rates` and `warm_prices`;
/// what isn't needed is empty.
#[repr(C)]
pub struct RatesRequest {
    /// Size of this structure in bytes, as the caller sees it.
    size: u64,
    /// int32[n + 1] and items below U, then float64 beside the items.
    routing_starts: Array<i32>,
    routing_items: Array<i32>,
    crossings: Array<f64>,
    /// Links of domains: int32[d + 1] and items below U.
    domain_starts: Array<i32>,
    domain_items: Array<i32>,
    /// Slices of sets: int32[k + 1] and items below `slices`.
    set_starts: Array<i32>,
    set_items: Array<i32>,
    /// int32[m] each, below d and below k.
    domain_of: Array<i32>,
    set_of: Array<i32>,
    /// int32[f], below `slices`.
    slice_of: Array<i32>,
    /// float64[U], float64[m].
    airtime: Array<f64>,
    budget: Array<f64>,
    /// int32[f + 1]: where the columns of each flow start.
    flow_starts: Array<i32>,
    /// float64[f] each.
    weight: Array<f64>,
    alpha: Array<f64>,
    shift_mbps: Array<f64>,
    demand_mbps: Array<f64>,
    /// float64[n], positive.
    start_mbps: Array<f64>,
    warm_rates: Array<f64>,
    warm_prices: Array<f64>,
    boundary: f64,
    centring: f64,
    max_steps: u64,
    slices: u64,
    /// 1 if this waits before each step while it is held up (`hyroads_rates_hold`), else 0.
    gives_way: u64,
}

/// Where the answer goes: float64[n] and float64[m].
#[repr(C)]
pub struct RatesAnswer {
    size: u64,
    rates_mbps: *mut f64,
    rates_count: u64,
    prices: *mut f64,
    prices_count: u64,
    steps: u64,
    rows: u64,
}

/// More slices than any network has: tables have as many entries for each link.
const MOST_SLICES: u64 = 1 << 12;

type Checked<T> = Result<T, ()>;

fn ensure(good: bool) -> Checked<()> {
    good.then_some(()).ok_or(())
}

/// A pattern of rows whose items are below a bound.
fn pattern<'a>(starts: &'a [i32], items: &'a [i32], below: usize) -> Checked<Pattern<'a>> {
    ensure(starts.first() == Some(&0) && starts.last().map(|&last| last as usize) == Some(items.len()))?;
    ensure(starts.windows(2).all(|pair| pair[0] <= pair[1]))?;
    ensure(items.iter().all(|&item| item >= 0 && (item as usize) < below))?;
    Ok(Pattern { starts, items })
}

fn numbers(values: &[i32], count: usize, below: usize) -> Checked<()> {
    ensure(values.len() == count && values.iter().all(|&value| value >= 0 && (value as usize) < below))
}

fn positive(values: &[f64], count: usize) -> Checked<()> {
    ensure(values.len() == count && values.iter().all(|&value| value > 0.0 && value.is_finite()))
}

fn not_negative(values: &[f64], count: usize) -> Checked<()> {
    ensure(values.len() == count && values.iter().all(|&value| value >= 0.0))
}

/// # Safety
/// The arrays of the request are what they say they are.
unsafe fn read(request: &RatesRequest) -> Checked<Whole<'_>> {
    let airtime = request.airtime.slice();
    let routing = pattern(request.routing_starts.slice(), request.routing_items.slice(), airtime.len())?;
    let domains = pattern(request.domain_starts.slice(), request.domain_items.slice(), airtime.len())?;
    ensure(request.slices > 0 && request.slices <= MOST_SLICES)?;
    let slices = request.slices as usize;
    let sets = pattern(request.set_starts.slice(), request.set_items.slice(), slices)?;
    not_negative(airtime, airtime.len())?;
    let rows = request.budget.slice().len();
    numbers(request.domain_of.slice(), rows, domains.count())?;
    numbers(request.set_of.slice(), rows, sets.count())?;
    positive(request.crossings.slice(), routing.items.len())?;
    positive(request.budget.slice(), rows)?;
    ensure(routing.items.iter().all(|&link| airtime[link as usize] > 0.0))?;
    let starts = request.flow_starts.slice();
    ensure(starts.len() >= 2 && starts[0] == 0 && starts.windows(2).all(|pair| pair[0] < pair[1]))?;
    ensure(starts[starts.len() - 1] as usize == routing.count())?;
    numbers(request.slice_of.slice(), starts.len() - 1, slices)?;
    Ok(Whole {
        starts: starts.iter().map(|&start| start as usize).collect(),
        routing,
        crossings: request.crossings.slice(),
        airtime,
        domains,
        sets,
        domain_of: request.domain_of.slice(),
        set_of: request.set_of.slice(),
        slices,
        slice_of: request.slice_of.slice(),
        budget: request.budget.slice(),
        utilities: read_utilities(request, starts.len() - 1)?,
        demand: request.demand_mbps.slice(),
    })
}

// SAFETY: only for a request whose arrays have the lengths that it says, as `read` was promised.
unsafe fn read_utilities(request: &RatesRequest, flows: usize) -> Checked<Vec<Utility>> {
    let (weight, alpha, shift) = (request.weight.slice(), request.alpha.slice(), request.shift_mbps.slice());
    positive(weight, flows)?;
    not_negative(alpha, flows)?;
    not_negative(shift, flows)?;
    ensure(request.demand_mbps.slice().len() == flows && request.demand_mbps.slice().iter().all(|&one| one > 0.0))?;
    Ok((0..flows).map(|f| Utility { weight: weight[f], alpha: alpha[f], shift: shift[f] }).collect())
}

/// # Safety
/// As [`read`].
unsafe fn run(request: &RatesRequest) -> Checked<Option<Solution>> {
    ensure(request.size == std::mem::size_of::<RatesRequest>() as u64)?;
    let whole = read(request)?;
    let pace = Pace { boundary: request.boundary, centring: request.centring, gives_way: request.gives_way == 1 };
    ensure(pace.boundary > 0.0 && pace.boundary < 1.0 && (0.0..1.0).contains(&pace.centring))?;
    let max_steps = request.max_steps.min(10_000) as usize;
    let (rates, prices) = (request.warm_rates.slice(), request.warm_prices.slice());
    if rates.is_empty() {
        let start = request.start_mbps.slice();
        positive(start, whole.columns())?;
        return Ok(whole.cold(start, pace, max_steps));
    }
    not_negative(rates, whole.columns())?;
    not_negative(prices, whole.rows())?;
    Ok(whole.warm(&Warm { rates, prices }, pace, max_steps))
}

/// # Safety
/// The buffers of the answer have the room that it says.
unsafe fn write(answer: &mut RatesAnswer, solution: &Solution) -> i32 {
    let fits = solution.rates.len() as u64 == answer.rates_count && solution.prices.len() as u64 == answer.prices_count;
    if !fits || answer.rates_mbps.is_null() || (answer.prices.is_null() && answer.prices_count > 0) {
        return INVALID;
    }
    std::ptr::copy_nonoverlapping(solution.rates.as_ptr(), answer.rates_mbps, solution.rates.len());
    std::ptr::copy_nonoverlapping(solution.prices.as_ptr(), answer.prices, solution.prices.len());
    answer.steps = solution.steps as u64;
    answer.rows = solution.rows as u64;
    OK
}

/// Version of this interface; a caller that knows another one must not call `hyroads_rates`.
#[no_mangle]
pub extern "C" fn hyroads_rates_abi() -> u32 {
    ABI_VERSION
}

/// From now on solutions that give way wait before their next step, for so many milliseconds in all; 0: not any more.
#[no_mangle]
pub extern "C" fn hyroads_rates_hold(during_ms: u64) {
    HOLD.set(Duration::from_millis(during_ms));
}

/// Solves one slot. Returns 0; 1 if that did not converge in so many steps; 2 if the request is not valid; 3 if the
/// solver failed.
///
/// # Safety
/// Both pointers are null or point to structures whose arrays are as long as they say, for the time of the call.
#[no_mangle]
pub unsafe extern "C" fn hyroads_rates(request: *const RatesRequest, answer: *mut RatesAnswer) -> i32 {
    let solved = catch_unwind(AssertUnwindSafe(|| {
        let (request, answer) = match (request.as_ref(), answer.as_mut()) {
            (Some(request), Some(answer)) if answer.size == std::mem::size_of::<RatesAnswer>() as u64 => {
                (request, answer)
            }
            _ => return INVALID,
        };
        match run(request) {
            Err(()) => INVALID,
            Ok(None) => UNSOLVED,
            Ok(Some(solution)) => write(answer, &solution),
        }
    }));
    solved.unwrap_or(PANIC)
}
