//! Times of C.

use latchwork::machine::{Clock, Deadline};
use libc::{CLOCK_MONOTONIC, CLOCK_REALTIME, EINVAL, clockid_t, timespec};
use std::ffi::c_int;

const SECOND: u64 = 1_000_000_000;

/// The deadline at `time` on `clock`, or EINVAL. A time before the clock's beginning has passed; one beyond its range never
/// comes.
///
/// # Safety
///
/// `time` is valid.
pub(crate) unsafe fn deadline(clock: clockid_t, time: *const timespec) -> Result<Deadline, c_int> {
    let clock = match clock {
        CLOCK_REALTIME => Clock::Realtime,
        CLOCK_MONOTONIC => Clock::Monotonic,
        _ => return Err(EINVAL),
    };
    // SAFETY: the caller's time is valid.
    let timespec { tv_sec, tv_nsec } = unsafe { *time };
    let Some(part) = u64::try_from(tv_nsec).ok().filter(|part| *part < SECOND) else { return Err(EINVAL) };
    let nanos =
        u64::try_from(tv_sec).map_or(0, |seconds| seconds.saturating_mul(SECOND).saturating_add(part));
    Ok(Deadline { clock, nanos })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        let nanos = |clock, tv_sec, tv_nsec| {
            // SAFETY: a reference to a local variable.
            unsafe { deadline(clock, &timespec { tv_sec, tv_nsec }) }.map(|deadline| deadline.nanos)
        };
        assert_eq!(nanos(CLOCK_MONOTONIC, 1, 2), Ok(SECOND + 2));
        assert_eq!(nanos(CLOCK_REALTIME, -1, 5), Ok(0));
        assert_eq!(nanos(CLOCK_REALTIME, i64::MAX, 0), Ok(u64::MAX));
        for (clock, part) in
            [(CLOCK_MONOTONIC, -1), (CLOCK_MONOTONIC, 1_000_000_000), (libc::CLOCK_BOOTTIME, 0)]
        {
            assert_eq!(nanos(clock, 1, part), Err(EINVAL));
        }
    }
}
