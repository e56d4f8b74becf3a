//! How long a spin hint takes on this processor: 4 to 60 nanoseconds.
//!
//! The first thread that waits measures it, in some microseconds.

use super::{Clock, Machine, Native};
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Spin hints in 1024 ns; 0: not measured yet.
static PER_MICRO: AtomicU32 = AtomicU32::new(0);

/// Spin hints of a measurement: some hundred nanoseconds at least, which is several times what reading the clock takes.
const SAMPLE: u32 = 64;
/// Measurements, of which the shortest counts: the thread may be interrupted in the others.
const SAMPLES: u32 = 4;

/// See [`Machine::hints`].
pub(super) fn hints(nanos: u32) -> u32 {
    let per_micro = match PER_MICRO.load(Relaxed) {
        0 => measure(),
        known => known,
    };
    ((u64::from(nanos) * u64::from(per_micro)) >> 10).max(1) as u32
}

#[cold]
fn measure() -> u32 {
    let sample = || {
        let start = Native::now(Clock::Monotonic);
        Native::pause(SAMPLE);
        Native::now(Clock::Monotonic) - start
    };
    let nanos = (0..SAMPLES).map(|_| sample()).min().unwrap_or(0);
    let per_micro = (u64::from(SAMPLE << 10) / nanos.max(1)).clamp(1, 1 << 10) as u32;
    PER_MICRO.store(per_micro, Relaxed);
    per_micro
}
