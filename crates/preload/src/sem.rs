//! `sem_*` over [`RawSemaphore`], if mutexes are ours. Process-shared and named ones are glibc's.
//!
//! The sleep is in `cond.c`, for the reasons given there.

use crate::abi::{clock, deadline};
use crate::table::{REAL, install};
use crate::{cancel, stats};
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use latchwork::locks::semaphore::{RawSemaphore, Step};
use latchwork::machine::{Clock, Native};
use libc::{EAGAIN, EINVAL, EOVERFLOW, c_int, c_void, timespec};

/// `sem_t`. At offset 8 glibc says whether it is process-shared: with 0 or 128.
#[repr(C, align(8))]
pub(crate) struct Sem {
    /// glibc's value and waiters: zero in a semaphore of ours, so that glibc's own functions, called past this library,
    /// find no unit.
    _value: [u32; 2],
    /// [`OURS`], or glibc's.
    mark: AtomicU32,
    raw: RawSemaphore<Native>,
    _rest: [u32; 4],
}

const _: () = assert!(size_of::<Sem>() == 32 && core::mem::offset_of!(Sem, mark) == 8);

const OURS: u32 = 0x6c77_7365;

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

fn error(number: c_int) -> c_int {
    // SAFETY: the thread's own.
    unsafe { *libc::__errno_location() = number };
    -1
}

fn is_ours(s: &Sem) -> bool {
    s.mark.load(Relaxed) == OURS
}

unsafe extern "C" fn init(s: *mut Sem, shared: c_int, value: u32) -> c_int {
    // SAFETY: the caller's memory, which nobody uses.
    unsafe {
        if shared != 0 {
            if stats::on() {
                stats::foreign_object(stats::SEM_SHARED);
            }
            return REAL.sem_init.get()(s, shared, value);
        }
        if value > RawSemaphore::<Native>::MAX {
            return error(EINVAL);
        }
        if stats::on() {
            stats::object(stats::SEM);
        }
        s.cast::<u8>().write_bytes(0, size_of::<Sem>());
        (&raw mut (*s).raw).write(RawSemaphore::new(value));
        (*s).mark.store(OURS, Relaxed);
    }
    0
}

unsafe extern "C" fn destroy(s: *mut Sem) -> c_int {
    // SAFETY: the caller's semaphore.
    unsafe {
        if !is_ours(&*s) {
            return REAL.sem_destroy.get()(s);
        }
        // A later use is glibc's, which finds no units.
        (*s).mark.store(0, Relaxed);
    }
    0
}

unsafe extern "C" fn post(s: *mut Sem) -> c_int {
    // SAFETY: the caller's semaphore. It may be gone once it has been released.
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
    // SAFETY: the caller's semaphore and number.
    unsafe {
        if !is_ours(&*s) {
            return REAL.sem_getvalue.get()(s, value);
        }
        *value = (*s).raw.value() as c_int;
    }
    0
}

unsafe extern "C" fn trywait(s: *mut Sem) -> c_int {
    // SAFETY: the caller's semaphore.
    unsafe {
        if !is_ours(&*s) {
            return REAL.sem_trywait.get()(s);
        }
        count(&(*s).raw);
        if (*s).raw.try_acquire() { 0 } else { error(EAGAIN) }
    }
}

fn count(raw: &RawSemaphore<Native>) {
    if stats::on() {
        stats::call(stats::SEM);
        if raw.value() == 0 {
            stats::contended(stats::SEM);
        }
    }
}

/// `struct sem_wait` in cond.c.
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

const NO_TIME: c_int = -1;
const TAKEN: c_int = 0;
const SLEEP: c_int = -1;
const FOREIGN: c_int = -2;
const GIVEN_UP: c_int = -3;

/// Begins a wait, without waiting: [`FOREIGN`], an error, [`TAKEN`], or [`SLEEP`] for more steps.
#[unsafe(no_mangle)]
unsafe extern "C" fn latchwork_sem_begin(w: &mut Waiter) -> c_int {
    // SAFETY: the caller's objects.
    unsafe {
        if !is_ours(&*w.sem) {
            return FOREIGN;
        }
        w.operation = libc::FUTEX_WAIT_BITSET | libc::FUTEX_PRIVATE_FLAG;
        if w.clock != NO_TIME {
            let Some(clock) = clock(w.clock) else { return EINVAL };
            if let Err(error) = deadline(clock, w.time) {
                return error;
            }
            if clock == Clock::Realtime {
                w.operation |= libc::FUTEX_CLOCK_REALTIME;
            }
        }
        count(&(*w.sem).raw);
        if (*w.sem).raw.try_acquire() {
            return TAKEN;
        }
        // The kernel refuses a time before the epoch, so the waiter must not sleep until then.
        if w.clock != NO_TIME && (*w.time).tv_sec < 0 { libc::ETIMEDOUT } else { SLEEP }
    }
}

/// A step of a wait: [`TAKEN`], [`GIVEN_UP`], or [`SLEEP`], as the waiter says.
#[unsafe(no_mangle)]
unsafe extern "C" fn latchwork_sem_step(w: &mut Waiter) -> c_int {
    // SAFETY: the caller's semaphore.
    let raw = unsafe { &(*w.sem).raw };
    if w.slept == 0 && w.late == 0 && cancel::spin(|| raw.try_acquire()) {
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
    // SAFETY: the argument of the cleanup handler.
    unsafe { (*(*w.cast::<Waiter>()).sem).raw.forsake() };
}

/// glibc's functions, for semaphores that are its own.
#[unsafe(no_mangle)]
unsafe extern "C" fn latchwork_sem_functions(f: &mut Functions) {
    *f = Functions { wait: REAL.sem_wait.get(), clockwait: REAL.sem_clockwait.get() };
}

/// `struct sem_functions` in cond.c.
#[repr(C)]
struct Functions {
    wait: unsafe extern "C" fn(*mut Sem) -> c_int,
    clockwait: unsafe extern "C" fn(*mut Sem, libc::clockid_t, *const timespec) -> c_int,
}
