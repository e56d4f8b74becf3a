//! `lw_cond_t`.

use crate::mutex::Mutex;
use crate::time::deadline;
use crate::{debug, same_layout};
use latchwork::locks::condvar::{RawCondvar, Ticket};
use latchwork::locks::mutex::RawMutex;
use latchwork::machine::{Native, Wait};
use libc::{ETIMEDOUT, clockid_t, timespec};
use std::ffi::c_int;

type Cond = RawCondvar<Native>;

same_layout!(Cond, 8, 4);

fn result(wait: Wait) -> c_int {
    if wait == Wait::TimedOut { ETIMEDOUT } else { 0 }
}

/// The ticket of which C has the number.
fn ticket(number: u32) -> Ticket {
    // SAFETY: `Ticket` is a transparent number. A number that is no ticket of the condition variable makes a wait end early
    // or late, and harms nothing else.
    unsafe { core::mem::transmute::<u32, Ticket>(number) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lw_cond_wait_slow(
    cond: *const Cond,
    mutex: *const Mutex,
    clock: clockid_t,
    time: *const timespec,
) -> c_int {
    // SAFETY: the program passes live objects, a valid time or null, and holds the mutex.
    unsafe {
        let deadline = match (!time.is_null()).then(|| deadline(clock, time)).transpose() {
            Ok(deadline) => deadline,
            Err(error) => return error,
        };
        let (cond, mutex) = (&*cond, &*mutex);
        debug::without(mutex, || {
            let reason = debug::waiting(cond, debug::COND, || cond.wait(|| mutex.unlock(()), deadline));
            if mutex.try_lock_weak().is_none() {
                // The notifying thread may hold the mutex and wait for this processor.
                Cond::offer_processor(|| mutex.wants_offers());
                debug::waiting(mutex, 0, || mutex.lock());
            }
            result(reason)
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lw_cond_prepare(cond: *const Cond) -> u32 {
    // SAFETY: the program passes a live condition variable.
    unsafe { &*cond }.prepare().value()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lw_cond_block(
    cond: *const Cond,
    number: u32,
    clock: clockid_t,
    time: *const timespec,
) -> c_int {
    // SAFETY: the program passes a live condition variable, and a valid time or null.
    unsafe {
        match (!time.is_null()).then(|| deadline(clock, time)).transpose() {
            Ok(deadline) => {
                result(debug::waiting(cond, debug::COND, || (*cond).block(ticket(number), deadline)))
            }
            Err(error) => error,
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lw_cond_finish(cond: *const Cond, number: u32, reason: c_int) -> c_int {
    let before = if reason == ETIMEDOUT { Wait::TimedOut } else { Wait::Woken };
    // SAFETY: the program passes a live condition variable.
    let after = unsafe { &*cond }.finish(ticket(number), before);
    if reason == ETIMEDOUT { result(after) } else { reason }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lw_cond_signal_slow(cond: *const Cond) {
    // SAFETY: the program passes a live condition variable.
    unsafe { &*cond }.notify_one();
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lw_cond_broadcast_slow(cond: *const Cond) {
    // SAFETY: the program passes a live condition variable.
    unsafe { &*cond }.notify_all();
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lw_cond_destroy_slow(cond: *const Cond) {
    // SAFETY: the program passes a live condition variable.
    unsafe { &*cond }.wait_until_quiet();
}
