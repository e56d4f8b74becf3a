//! `lw_sem_t`.

use crate::time::deadline;
use crate::{debug, same_layout};
use latchwork::locks::semaphore::RawSemaphore;
use latchwork::machine::Native;
use libc::{EOVERFLOW, ETIMEDOUT, clockid_t, timespec};
use std::ffi::c_int;

type Sem = RawSemaphore<Native>;

same_layout!(Sem, 8, 4);

#[unsafe(no_mangle)]
unsafe extern "C" fn lw_sem_wait_slow(sem: *const Sem) {
    // SAFETY: the program passes a live semaphore.
    let semaphore = unsafe { &*sem };
    debug::waiting(sem, debug::SEM, || semaphore.acquire());
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lw_sem_clockwait_slow(
    sem: *const Sem,
    clock: clockid_t,
    time: *const timespec,
) -> c_int {
    // SAFETY: the program passes a live semaphore and a valid time.
    match unsafe { deadline(clock, time) } {
        Err(error) => error,
        // SAFETY: the program passes a live semaphore.
        Ok(deadline) if debug::waiting(sem, debug::SEM, || unsafe { &*sem }.acquire_until(deadline)) => 0,
        Ok(_) => ETIMEDOUT,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lw_sem_post_slow(sem: *const Sem, units: u32) -> c_int {
    // SAFETY: the program passes a live semaphore.
    if unsafe { &*sem }.release_many(units).is_ok() { 0 } else { EOVERFLOW }
}
