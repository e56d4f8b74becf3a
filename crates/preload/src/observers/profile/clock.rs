//! The recorder's clock: nanoseconds, close to those of `CLOCK_MONOTONIC`.
//!
//! A thread that has waited reads the clock while it holds the lock, so the reading must be short. On x86-64 it is one `rdtsc`
//! and a multiplication, a third of a `clock_gettime`, if the kernel itself keeps its time by the time-stamp counter: then the
//! counter has a constant rate, and is the same on all processors. Otherwise, and on other architectures, it is
//! `clock_gettime`.
//!
//! The counter's rate is measured when a recording begins: over the time since the start of the process, and no less than
//! [`passed_since`] says. Durations are right to one part in some thousand. The clock is not corrected later, so in a long
//! recording it may differ from `CLOCK_MONOTONIC` by that part.

use super::super::clocks::{Moment, both, counter, passed_since};
use crate::state::kernel;
use core::sync::atomic::{AtomicU64, Ordering::*};
use latchwork::machine::{Clock, Machine, Native};
use libc::timespec;

/// A moment on both clocks.
static TICKS: AtomicU64 = AtomicU64::new(0);
static NANOS: AtomicU64 = AtomicU64::new(0);
/// Nanoseconds of a tick, times 2^32; 0: `clock_gettime` is the clock.
static RATE: AtomicU64 = AtomicU64::new(0);

/// The time. A thread may read a value that is some nanoseconds smaller than what another thread has read before.
#[inline(always)]
pub(super) fn now() -> u64 {
    let rate = RATE.load(Relaxed);
    if rate == 0 {
        return by_kernel();
    }
    let since = counter().saturating_sub(TICKS.load(Relaxed));
    NANOS.load(Relaxed).wrapping_add(((u128::from(since) * u128::from(rate)) >> 32) as u64)
}

/// A function of its own, so that its callers need not save registers for it on their short way.
#[cold]
#[inline(never)]
fn by_kernel() -> u64 {
    Native::now(Clock::Monotonic)
}

/// The CPU time of the calling thread, in nanoseconds.
pub(super) fn cpu_time() -> u64 {
    let mut time = timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: there is room for the answer. The call fails for no clock that every kernel has.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// When the calling thread was started, or up to 10 ms later: the kernel tells it in its ticks. `now` is the time. If the kernel does
/// not tell it, `now` is the answer. This runs within a lock call, so it allocates nothing.
pub(super) fn thread_start(now: u64) -> u64 {
    // SAFETY: the path is a string.
    let file =
        unsafe { kernel::open(c"/proc/thread-self/stat".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC, 0) };
    if file < 0 {
        return now;
    }
    let mut text = [0_u8; 1024];
    let length = kernel::read(file, &mut text);
    kernel::close(file);
    // SAFETY: the call takes a number.
    let per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    let Some(tick) = u64::try_from(per_second).ok().and_then(|ticks| 1_000_000_000_u64.checked_div(ticks))
    else {
        return now;
    };
    let Some(ticks) = started_at(&text[..length]) else { return now };
    let mut time = timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: there is room for the answer. The call fails for no clock that every kernel has.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &mut time) };
    let since_boot = time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64;
    // The next tick: then a thread that lives shortly does not seem to live for a tick.
    let age = since_boot.saturating_sub((ticks + 1).saturating_mul(tick));
    now.saturating_sub(age)
}

/// Field 22 of a `stat` file. Field 2 is a name in parentheses, which may contain any byte; numbers follow.
fn started_at(stat: &[u8]) -> Option<u64> {
    let name_ends = stat.iter().rposition(|byte| *byte == b')')?;
    let field = stat[name_ends..].split(|byte| *byte == b' ').nth(20)?;
    core::str::from_utf8(field).ok()?.parse().ok()
}

/// While the process starts.
pub(super) fn prepare() {
    if cfg!(target_arch = "x86_64") {
        let Moment { ticks, nanos } = both(counter);
        TICKS.store(ticks, Relaxed);
        NANOS.store(nanos, Relaxed);
    }
}

/// Before a recording begins. No thread reads the clock meanwhile.
pub(super) fn calibrate() {
    let first = Moment { ticks: TICKS.load(Relaxed), nanos: NANOS.load(Relaxed) };
    if first.ticks == 0 || !kernel_uses_counter() {
        return RATE.store(0, Relaxed);
    }
    let Moment { ticks, nanos } = passed_since(first, counter);
    let rate = (u128::from(nanos) << 32).checked_div(u128::from(ticks)).unwrap_or(0);
    // From a tenth of a gigahertz to sixteen.
    RATE.store(if (1 << 28..10 << 32).contains(&rate) { rate as u64 } else { 0 }, Relaxed);
}

fn kernel_uses_counter() -> bool {
    let path = c"/sys/devices/system/clocksource/clocksource0/current_clocksource";
    let mut name = [0_u8; 8];
    // SAFETY: the path is a string.
    let file = unsafe { kernel::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC, 0) };
    if file < 0 {
        return false;
    }
    let length = kernel::read(file, &mut name);
    kernel::close(file);
    name[..length] == *b"tsc\n"
}
