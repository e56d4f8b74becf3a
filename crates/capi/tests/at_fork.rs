//! Hazard pointers ask for their handlers of `fork` until the C library has registered them, and not again.

use latchwork_capi as _;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

type Handler = Option<unsafe extern "C" fn()>;

unsafe extern "C" {
    safe fn lw_hazard_make() -> *mut c_void;
}

/// Calls for handlers that run before a fork: those of hazard pointers alone.
static CALLS: AtomicU32 = AtomicU32::new(0);
/// How many of these fail, as if there were no memory.
const FAILURES: u32 = 2;

#[unsafe(no_mangle)]
extern "C" fn pthread_atfork(before: Handler, _parent: Handler, _child: Handler) -> c_int {
    let fails = before.is_some() && CALLS.fetch_add(1, Relaxed) < FAILURES;
    if fails { libc::ENOMEM } else { 0 }
}

#[test]
fn handlers_that_were_not_registered_are_registered_with_the_next_block() {
    // More hazard pointers at a time than five blocks have.
    for _ in 0..64 * 5 {
        assert!(!lw_hazard_make().is_null());
    }
    assert_eq!(CALLS.load(Relaxed), FAILURES + 1);
}
