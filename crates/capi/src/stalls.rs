//! Readers that stay in their sections: the limit on garbage, and the hook and the question for the thread that is in the way.
//!
//! Each domain has grace periods of its own, and so stalls and a hook of its own. A program that wants to be told of every stall
//! would have to know the library's domains. So a null domain stands for all of them here ([`own_domains`]).

use crate::rcu::{at, own_domains};
use crate::thread;
use latchwork::machine::{Native, record::Stall};
use latchwork::reclaim::domain::{AtLimit, Domain};
use latchwork::reclaim::{Limit, rcu::General};
use std::ffi::{c_int, c_void};

/// After how many nanoseconds a hook is called if the program does not say it.
const AFTER: u64 = 10_000_000_000;

/// `lw_rcu_stall_hook`.
type Hook = unsafe extern "C" fn(c_int, u64, *mut c_void);

/// What the program wants to get with its hook.
struct Context(*mut c_void);

// SAFETY: the pointer is only passed back to the program, whose function may be called by any thread: so the header says.
unsafe impl Send for Context {}
// SAFETY: several threads may call the program's function at the same time: so the header says. They only copy the pointer.
unsafe impl Sync for Context {}

impl Context {
    fn tell(&self, hook: Hook, stall: &Stall) {
        thread::lw_tsan_acquire(thread::clocks().cast());
        // SAFETY: the program has set the function, with this context.
        thread::run_callback(|| unsafe { hook(stall.thread.cast_signed(), stall.nanos, self.0) });
    }
}

/// Calls `look` with each domain that C means.
///
/// # Safety
///
/// The pointer is null, or to a live domain.
unsafe fn each(domain: *const Domain<Native, General>, look: impl FnMut(&Domain<Native, General>)) {
    // SAFETY: the caller's pointer is null or to a live domain.
    match unsafe { domain.as_ref() } {
        Some(domain) => [domain].into_iter().for_each(look),
        None => own_domains().into_iter().for_each(look),
    }
}

// SAFETY, for the functions below: the program passes null or a live domain, and what the header asks for.

#[unsafe(no_mangle)]
unsafe extern "C" fn lw_rcu_set_limit(
    domain: *const Domain<Native, General>,
    objects: u64,
    bytes: u64,
    wait_nanos: u64,
) {
    // SAFETY: see above.
    let domain = unsafe { at(domain) };
    domain.set_limit(Limit { objects, bytes });
    domain.set_at_limit(if wait_nanos == 0 { AtLimit::Grow } else { AtLimit::Wait { nanos: wait_nanos } });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lw_rcu_on_stall(
    domain: *const Domain<Native, General>,
    after_nanos: u64,
    hook: Option<Hook>,
    context: *mut c_void,
) {
    thread::lw_tsan_release(thread::clocks().cast());
    // SAFETY: see above.
    unsafe {
        each(domain, |domain| {
            domain.set_stall_nanos(if after_nanos == 0 { AFTER } else { after_nanos });
            let context = Context(context);
            match hook {
                Some(hook) => domain.on_stall(move |stall| context.tell(hook, stall)),
                None => domain.on_stall(|_| ()),
            }
        });
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lw_rcu_stall(
    domain: *const Domain<Native, General>,
    thread: *mut c_int,
    nanos: *mut u64,
) -> c_int {
    let mut longest: Option<Stall> = None;
    // SAFETY: see above; the program passes room for the answer.
    unsafe {
        each(domain, |domain| {
            longest = longest.into_iter().chain(domain.stall()).max_by_key(|stall| stall.nanos);
        });
        if let Some(stall) = longest {
            thread.write(stall.thread.cast_signed());
            nanos.write(stall.nanos);
        }
    }
    c_int::from(longest.is_some())
}
