//! The time-stamp counter beside `CLOCK_MONOTONIC`: what the two recorders measure alike.
//!
//! Each recorder decides by itself whether the counter is its clock. A moment is read on both clocks at once, and the counter's rate
//! is measured between two moments that are at least [`BASELINE`] apart.

use latchwork::machine::{Clock, Machine, Native};

/// The shortest time over which the rate is measured, in nanoseconds: a reading of both clocks is right to some 50 ns.
const BASELINE: u64 = 200_000;

/// A moment on both clocks, or the time between two moments.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Moment {
    /// On the counter.
    pub(super) ticks: u64,
    /// On `CLOCK_MONOTONIC`.
    pub(super) nanos: u64,
}

/// The time-stamp counter; 0 on other architectures than x86-64.
#[inline(always)]
pub(super) fn counter() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: each x86-64 processor has the instruction. A process for which the kernel has switched it off has another clock
    // source, or has called prctl(PR_SET_TSC), which the C library's clock_gettime would not survive either.
    return unsafe { core::arch::x86_64::_rdtsc() };
    #[cfg(not(target_arch = "x86_64"))]
    0
}

/// Both clocks at nearly the same moment: the best of some attempts. `ticks` reads the counter, or what stands for it.
pub(super) fn both(ticks: impl Fn() -> u64) -> Moment {
    let attempt = |_| {
        let before = ticks();
        let nanos = Native::now(Clock::Monotonic);
        let took = ticks().wrapping_sub(before);
        (took, Moment { ticks: before.wrapping_add(took / 2), nanos })
    };
    (0..8).map(attempt).min().unwrap_or_default().1
}

/// How far both clocks have advanced since an earlier moment. Waits until that is long enough to tell the counter's rate.
pub(super) fn passed_since(first: Moment, ticks: impl Fn() -> u64) -> Moment {
    loop {
        let now = both(&ticks);
        let nanos = now.nanos.saturating_sub(first.nanos);
        if nanos >= BASELINE {
            return Moment { ticks: now.ticks.saturating_sub(first.ticks), nanos };
        }
        core::hint::spin_loop();
    }
}
