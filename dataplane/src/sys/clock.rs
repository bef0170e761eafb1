//! Monotonic time and processor time, in nanoseconds.

fn read(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec; these two clocks exist on every Linux, so the call can't fail.
    unsafe { libc::clock_gettime(clock, &mut time) };
    (time.tv_sec as u64) * 1_000_000_000 + time.tv_nsec as u64
}

/// Nanoseconds of CLOCK_MONOTONIC.
pub fn monotonic_ns() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

/// Nanoseconds of processor time that this process has used.
pub fn cpu_ns() -> u64 {
    read(libc::CLOCK_PROCESS_CPUTIME_ID)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_goes_forward_and_work_costs_processor_time() {
        let (start, start_cpu) = (monotonic_ns(), cpu_ns());
        let mut sum = 0u64;
        while cpu_ns() == start_cpu {
            sum = sum.wrapping_add(1);
        }
        assert!(monotonic_ns() > start);
        assert!(cpu_ns() > start_cpu);
    }
}
