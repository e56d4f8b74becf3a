//! A call that tries to acquire a lock and does not wait. [`calls`](super::calls) says what is recorded where.

use super::acquire::{acquired, site};
use super::calls::*;
use super::entries;
use super::fast::Way;
use super::{fast, filter, threads};
use latchwork_recording::layout::Entry;
use libc::{EBUSY, c_int};

/// A lock call that does not wait.
///
/// # Safety
///
/// The object is live.
#[inline(always)]
pub(super) unsafe fn attempt(call: Call, origin: Origin, attempt: impl Fn() -> c_int) -> c_int {
    // SAFETY: the caller's object is live.
    unsafe {
        match fast::count(call, origin) {
            Way::Short(_) => match attempt() {
                0 => 0,
                result => attempt_long_way(call, None, || result),
            },
            Way::Free(entry) => attempt_free(call, origin, entry, attempt),
            Way::Recursive(..) | Way::Long => attempt_long_way(call, Some(origin), attempt),
        }
    }
}

/// # Safety
///
/// The object is live.
#[inline(never)]
unsafe fn attempt_free(
    call: Call,
    origin: Origin,
    entry: &'static Entry,
    attempt: impl Fn() -> c_int,
) -> c_int {
    fast::count_free(call, origin, entry);
    match attempt() {
        0 => 0,
        // SAFETY: the caller's object is live.
        result => unsafe { attempt_long_way(call, None, || result) },
    }
}

/// Without an `origin`, the call has been counted, its attempt has failed, and its origin is in the thread's entry.
///
/// # Safety
///
/// The object is live.
#[cold]
#[inline(never)]
unsafe fn attempt_long_way(call: Call, origin: Option<Origin>, attempt: impl Fn() -> c_int) -> c_int {
    let Some(local) = &mut threads::current() else { return attempt() };
    let (origin, counted) = match origin {
        Some(origin) => (origin, false),
        None => (fast::take_back(local, call), true),
    };
    let filter = filter::value(call.address);
    let Some(place) = local.place(call.kind(), call.address) else { return attempt() };
    let site = if counted { 0 } else { site(local, place, call) };
    let result = attempt();
    if got(result) {
        // SAFETY: the caller's object is live.
        unsafe { acquired(local, place, call, origin, site, filter) };
    } else if result == EBUSY {
        entries::count_failed(place.entry);
    }
    result
}
