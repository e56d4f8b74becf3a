//! How long a caller is willing to wait.

use latchwork::machine::{Clock, Deadline};
use libc::{EBUSY, EINVAL, c_int, clockid_t, timespec};

/// How long a lock call may wait.
#[derive(Copy, Clone)]
pub(super) enum Timeout {
    /// As long as it takes.
    Never,
    /// Not at all.
    Immediate,
    /// Until this time on the realtime clock.
    Realtime(*const timespec),
    /// Until this time on the monotonic clock.
    Monotonic(*const timespec),
}

impl Timeout {
    /// Until `time` on the clock with this number. `None`: no lock call takes this clock.
    pub(super) fn on(clock: clockid_t, time: *const timespec) -> Option<Self> {
        match clock {
            libc::CLOCK_REALTIME => Some(Timeout::Realtime(time)),
            libc::CLOCK_MONOTONIC => Some(Timeout::Monotonic(time)),
            _ => None,
        }
    }

    /// The same for a call that looks at the time before it looks at the lock, as glibc's reader-writer locks, condition variables and
    /// semaphores do. `None`: no
    /// lock call takes this clock, or the time is not one. A null pointer is no deadline, as for glibc.
    ///
    /// # Safety
    ///
    /// The time is null or valid for reads.
    pub(super) unsafe fn checked(clock: clockid_t, time: *const timespec) -> Option<Self> {
        if time.is_null() {
            return Some(Timeout::Never);
        }
        let timeout = Self::on(clock, time)?;
        // SAFETY: the caller's time is valid for reads.
        is_below_a_second(unsafe { (*time).tv_nsec }).then_some(timeout)
    }

    /// The deadline, if there is one, or the error that a call returns which has to wait: EBUSY if it may not, EINVAL if
    /// the time is not one. With negative seconds any time is one, and has passed: so glibc's mutexes have it.
    ///
    /// # Safety
    ///
    /// The time is valid for reads.
    pub(super) unsafe fn deadline(self) -> Result<Option<Deadline>, c_int> {
        let (clock, time) = match self {
            Timeout::Never => return Ok(None),
            Timeout::Immediate => return Err(EBUSY),
            Timeout::Realtime(time) => (Clock::Realtime, time),
            Timeout::Monotonic(time) => (Clock::Monotonic, time),
        };
        // SAFETY: the caller's time is valid for reads.
        let (seconds, nanos) = unsafe { ((*time).tv_sec, (*time).tv_nsec) };
        // A time before the epoch has passed, as the epoch has.
        let Ok(seconds) = u64::try_from(seconds) else { return Ok(Some(Deadline { clock, nanos: 0 })) };
        if !is_below_a_second(nanos) {
            return Err(EINVAL);
        }
        let nanos = seconds.saturating_mul(1_000_000_000).saturating_add(nanos as u64);
        Ok(Some(Deadline { clock, nanos }))
    }
}

/// Whether the clock is one of a lock call's and the time is valid, for the parts in C.
#[unsafe(no_mangle)]
unsafe extern "C" fn latchwork_is_time(clock: clockid_t, time: *const timespec) -> bool {
    // SAFETY: the program passes a time that is null or valid for reads.
    unsafe { Timeout::checked(clock, time) }.is_some()
}

/// Whether a time with these nanoseconds is one.
fn is_below_a_second(nanos: i64) -> bool {
    (0..1_000_000_000).contains(&nanos)
}

/// Calls `attempt` for a timed call, unless the clock or the time is invalid or the time is before the epoch: then the answer is EBUSY,
/// and the call itself says whether it minds. A call for a mutex looks at the time only if it has to wait; but for one that inherits
/// priorities also if its holder has ended, and there the kernel refuses a time before the epoch.
///
/// # Safety
///
/// As [`Timeout::checked`].
pub(crate) unsafe fn try_in_time(
    clock: clockid_t,
    time: *const timespec,
    attempt: impl FnOnce() -> c_int,
) -> c_int {
    // SAFETY: the caller's time is null or valid for reads.
    let is_usual =
        unsafe { Timeout::checked(clock, time).is_some() && (time.is_null() || (*time).tv_sec >= 0) };
    if is_usual { attempt() } else { EBUSY }
}
