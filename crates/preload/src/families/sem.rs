//! `sem_*` over [`RawSemaphore`], if mutexes are ours. glibc serves process-shared and named semaphores.
//!
//! | bytes | contents |
//! |---|---|
//! | 0..8 | glibc's value and waiters: zero in a semaphore of ours |
//! | 8..12 | [`SEM_OURS`] from `init` on; any other value makes the semaphore glibc's |
//! | 12.. | the raw semaphore |
//!
//! The sleep is in `sem.c`.

use crate::state::abi::{SEM_OURS, Sem};
use crate::state::counters::{self, Family, Reason};
use crate::state::table::{REAL, install};
use core::sync::atomic::Ordering::Relaxed;
use latchwork::locks::semaphore::{RawSemaphore, Step};
use latchwork::machine::Native;
use libc::{EAGAIN, EINVAL, EOVERFLOW, c_int, c_void, timespec};

unsafe extern "C" {
    fn latchwork_sem_wait(s: *mut Sem) -> c_int;
    fn latchwork_sem_timedwait(s: *mut Sem, time: *const timespec) -> c_int;
    fn latchwork_sem_clockwait(s: *mut Sem, clock: libc::clockid_t, time: *const timespec) -> c_int;
}

/// Serves the family.
pub(crate) fn install() {
    install! {
        sem_init => init, sem_destroy => destroy, sem_post => post, sem_getvalue => getvalue,
        sem_trywait => trywait, sem_wait => latchwork_sem_wait, sem_timedwait => latchwork_sem_timedwait,
        sem_clockwait => latchwork_sem_clockwait,
    }
}

/// Sets `errno`.
fn error(number: c_int) -> c_int {
    // SAFETY: the C library says where the calling thread's `errno` is.
    unsafe { *libc::__errno_location() = number };
    -1
}

fn is_ours(s: &Sem) -> bool {
    s.mark.load(Relaxed) == SEM_OURS
}

unsafe extern "C" fn init(s: *mut Sem, shared: c_int, value: u32) -> c_int {
    // SAFETY: the program passes memory for a semaphore, which no thread uses.
    unsafe {
        if shared != 0 {
            counters::foreign_object(Reason::SemShared);
            return REAL.sem_init.get()(s, shared, value);
        }
        if value > RawSemaphore::<Native>::MAX {
            return error(EINVAL);
        }
        counters::object(Family::Sem);
        s.cast::<u8>().write_bytes(0, size_of::<Sem>());
        (&raw mut (*s).raw).write(RawSemaphore::new(value));
        (*s).mark.store(SEM_OURS, Relaxed);
    }
    0
}

unsafe extern "C" fn destroy(s: *mut Sem) -> c_int {
    // SAFETY: the program passes a live semaphore.
    unsafe {
        if !is_ours(&*s) {
            return REAL.sem_destroy.get()(s);
        }
        // Nothing, as with glibc's: programs post to a waiter after that.
    }
    0
}

unsafe extern "C" fn post(s: *mut Sem) -> c_int {
    // SAFETY: the program passes a live semaphore. It may be freed as soon as the unit is released, so it is not used after
    // that.
    unsafe {
        if !is_ours(&*s) {
            return REAL.sem_post.get()(s);
        }
        match (*s).raw.release() {
            Ok(()) => 0,
            Err(_) => error(EOVERFLOW),
        }
    }
}

unsafe extern "C" fn getvalue(s: *mut Sem, value: *mut c_int) -> c_int {
    // SAFETY: the program passes a live semaphore and a number that is valid for writes.
    unsafe {
        if !is_ours(&*s) {
            return REAL.sem_getvalue.get()(s, value);
        }
        *value = (*s).raw.value() as c_int;
    }
    0
}

unsafe extern "C" fn trywait(s: *mut Sem) -> c_int {
    // SAFETY: the program passes a live semaphore.
    unsafe {
        if !is_ours(&*s) {
            return REAL.sem_trywait.get()(s);
        }
        if counters::on() {
            return trywait_counted(s);
        }
        if (*s).raw.try_acquire() { 0 } else { error(EAGAIN) }
    }
}

#[cold]
#[inline(never)]
unsafe extern "C" fn trywait_counted(s: *mut Sem) -> c_int {
    // SAFETY: the program passes a live semaphore of ours.
    let raw = unsafe { &(*s).raw };
    count(raw);
    if raw.try_acquire() { 0 } else { error(EAGAIN) }
}

/// Counts a call, which is contended if there is no unit.
#[cold]
#[inline(never)]
fn count(raw: &RawSemaphore<Native>) {
    counters::call(Family::Sem);
    if raw.value() == 0 {
        counters::contended(Family::Sem);
    }
}

/// `struct sem_wait` in sem.c.
#[repr(C)]
struct Waiter {
    sem: *mut Sem,
    word: *const u32,
    expected: u32,
    operation: c_int,
    time: *const timespec,
    clock: c_int,
    slept: c_int,
    late: c_int,
}

// As in sem.c.
const NO_TIME: c_int = -1;
const TAKEN: c_int = 0;
const SLEEP: c_int = -1;
const FOREIGN: c_int = -2;
const GIVEN_UP: c_int = -3;

/// Begins a wait, without waiting. The answer is [`FOREIGN`], an error, [`TAKEN`], or [`SLEEP`]: then
/// [`latchwork_sem_step`] says more.
#[unsafe(no_mangle)]
unsafe extern "C" fn latchwork_sem_begin(w: &mut Waiter) -> c_int {
    // SAFETY: the program passes a live semaphore and a valid time.
    unsafe {
        if !is_ours(&*w.sem) {
            return FOREIGN;
        }
        w.operation = libc::FUTEX_WAIT_BITSET | libc::FUTEX_PRIVATE_FLAG;
        if w.clock == libc::CLOCK_REALTIME {
            w.operation |= libc::FUTEX_CLOCK_REALTIME;
        }
        if counters::on() { take_counted(w) } else { take(w) }
    }
}

/// The last part of `latchwork_sem_begin`: an attempt.
///
/// # Safety
///
/// The program has passed a live semaphore of ours and a valid time.
#[inline(always)]
unsafe fn take(w: &mut Waiter) -> c_int {
    // SAFETY: the caller's semaphore is live and its time valid.
    unsafe {
        if (*w.sem).raw.try_acquire() {
            return TAKEN;
        }
        // The kernel refuses a time before the epoch, so the waiter does not sleep until then.
        if w.clock != NO_TIME && (*w.time).tv_sec < 0 { libc::ETIMEDOUT } else { SLEEP }
    }
}

#[cold]
#[inline(never)]
unsafe fn take_counted(w: &mut Waiter) -> c_int {
    // SAFETY: the caller's semaphore is live and its time valid.
    unsafe {
        count(&(*w.sem).raw);
        take(w)
    }
}

/// One step of a wait. The answer is [`TAKEN`], [`GIVEN_UP`], or [`SLEEP`]: then the waiter says where and how.
#[unsafe(no_mangle)]
unsafe extern "C" fn latchwork_sem_step(w: &mut Waiter) -> c_int {
    // SAFETY: the program's semaphore outlives the wait.
    let raw = unsafe { &(*w.sem).raw };
    if w.slept == 0 && w.late == 0 && raw.spin() {
        return TAKEN;
    }
    match raw.step(w.slept != 0, w.late != 0) {
        Step::Taken => TAKEN,
        Step::GivenUp => GIVEN_UP,
        Step::Sleep(expected) => {
            (w.word, w.expected) = (core::ptr::from_ref(raw.word()).cast(), expected);
            SLEEP
        }
    }
}

/// The thread was cancelled in its sleep.
#[unsafe(no_mangle)]
unsafe extern "C" fn latchwork_sem_cancelled(w: *mut c_void) {
    // SAFETY: `sem.c` passes the waiter as the argument of the cleanup handler, and the semaphore outlives the wait.
    unsafe { (*(*w.cast::<Waiter>()).sem).raw.forsake() };
}

/// `struct sem_functions` in sem.c.
#[repr(C)]
struct Functions {
    wait: unsafe extern "C" fn(*mut Sem) -> c_int,
    clockwait: unsafe extern "C" fn(*mut Sem, libc::clockid_t, *const timespec) -> c_int,
}

/// glibc's functions, for semaphores that are its own.
#[unsafe(no_mangle)]
unsafe extern "C" fn latchwork_sem_functions(f: &mut Functions) {
    *f = Functions { wait: REAL.sem_wait.get(), clockwait: REAL.sem_clockwait.get() };
}
