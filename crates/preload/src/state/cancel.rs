//! Asynchronous cancellation of a thread inside a lock call.
//!
//! If a thread died in the middle of a queue, the waiters behind it would wait for ever. So a lock call that has to wait
//! switches its thread to deferred cancellation. A thread that had asked for asynchronous cancellation waits in slices:
//! between two slices it is in no queue and holds nothing, and there it may die.

use latchwork::machine::{Clock, Deadline, Machine, Native};
use libc::c_int;

const DEFERRED: c_int = 0;
const ASYNCHRONOUS: c_int = 1;

/// Nanoseconds for which a thread that may be cancelled at any time waits before it lets a pending cancellation end it.
/// Each end of a slice costs the thread its position in the queue; a cancellation may take this long.
const SLICE: u64 = 10_000_000;

unsafe extern "C" {
    fn pthread_setcanceltype(kind: c_int, old: *mut c_int) -> c_int;
}

fn set_type(kind: c_int) -> c_int {
    let mut old = DEFERRED;
    // SAFETY: `old` is valid for writes.
    unsafe { pthread_setcanceltype(kind, &mut old) };
    old
}

/// Waits with `block`, or with `until` if there is a deadline or the thread may be cancelled asynchronously. `None`: the
/// deadline passed.
#[inline]
pub(crate) fn wait<T>(
    deadline: Option<Deadline>,
    block: impl FnOnce() -> T,
    mut until: impl FnMut(Deadline) -> Option<T>,
) -> Option<T> {
    if set_type(DEFERRED) != ASYNCHRONOUS {
        return match deadline {
            None => Some(block()),
            Some(deadline) => until(deadline),
        };
    }
    let clock = deadline.map_or(Clock::Monotonic, |deadline| deadline.clock);
    let end = deadline.map_or(u64::MAX, |deadline| deadline.nanos);
    let result = loop {
        let nanos = Native::now(clock).saturating_add(SLICE).min(end);
        let got = until(Deadline { clock, nanos });
        if got.is_some() || nanos == end {
            break got;
        }
        // A pending cancellation ends the thread here.
        set_type(ASYNCHRONOUS);
        set_type(DEFERRED);
    };
    set_type(ASYNCHRONOUS);
    result
}

/// Calls `f`, during which the thread is not cancelled.
pub(crate) fn shielded<T>(f: impl FnOnce() -> T) -> T {
    let kind = set_type(DEFERRED);
    let result = f();
    if kind == ASYNCHRONOUS {
        set_type(ASYNCHRONOUS);
    }
    result
}
