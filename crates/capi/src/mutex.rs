//! `lw_mutex_t`.

use crate::debug::waiting;
use crate::same_layout;
use crate::time::deadline;
use latchwork::locks::for_assembly::CompareMutex;
use latchwork::locks::mutex::shfl::RawShfl;
use latchwork::locks::mutex::{Fair, RawMutex};
use latchwork::machine::Native;
use libc::{EBUSY, ETIMEDOUT, clockid_t, timespec};
use std::ffi::c_int;

pub(crate) type Mutex = RawShfl<Native>;

same_layout!(Mutex, 16, 8);
const _: () = assert!(Mutex::WORD == 0 && Mutex::LOCKED == 1 && Mutex::QUEUE == 8);

/// The lock behind a pointer of C.
///
/// # Safety
///
/// The pointer is to a live lock.
unsafe fn at<'a>(mutex: *const Mutex) -> &'a Mutex {
    // SAFETY: the caller's pointer is to a live lock.
    unsafe { &*mutex }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lw_mutex_lock_slow(mutex: *const Mutex) {
    // SAFETY: the program passes a live mutex.
    let lock = unsafe { at(mutex) };
    waiting(mutex, 0, || lock.lock_contended());
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lw_mutex_trylock_slow(mutex: *const Mutex) -> c_int {
    // SAFETY: the program passes a live mutex.
    if unsafe { at(mutex) }.try_lock().is_some() { 0 } else { EBUSY }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn lw_mutex_clocklock_slow(
    mutex: *const Mutex,
    clock: clockid_t,
    time: *const timespec,
) -> c_int {
    // SAFETY: the program passes a live mutex and a valid time.
    match unsafe { deadline(clock, time) } {
        Err(error) => error,
        // SAFETY: the program passes a live mutex.
        Ok(deadline) if waiting(mutex, 0, || unsafe { at(mutex) }.lock_until(deadline)).is_some() => 0,
        Ok(_) => ETIMEDOUT,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lw_mutex_unlock_slow(mutex: *const Mutex) {
    // SAFETY: the program passes a live mutex that the calling thread holds.
    unsafe { at(mutex).unlock(()) };
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lw_mutex_unlock_fair_slow(mutex: *const Mutex) {
    // SAFETY: the program passes a live mutex that the calling thread holds.
    unsafe { at(mutex).unlock_fair(()) };
}
