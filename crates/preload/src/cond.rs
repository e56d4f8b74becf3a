//! `pthread_cond_*`.
//!
//! One condition variable works with every mutex, ours or glibc's: it releases and takes the mutex
//! through the mutex functions. The sleep itself is in `cond.c`, which says why.
//!
//! Process-shared condition variables are glibc's, wholly.

use crate::abi::*;
use crate::table::{Attr, REAL, TABLE, install};
use crate::{fork, mutex, stats};
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering::*};
use latchwork::locks::condvar::{RawCondvar, Ticket};
use latchwork::machine::{Clock, Native, Wait};
use libc::{c_int, c_void, timespec};

unsafe extern "C" {
    fn latchwork_cond_wait(c: *mut Cond, m: *mut Mutex) -> c_int;
    fn latchwork_cond_timedwait(c: *mut Cond, m: *mut Mutex, time: *const timespec) -> c_int;
    fn latchwork_cond_clockwait(
        c: *mut Cond,
        m: *mut Mutex,
        clock: libc::clockid_t,
        time: *const timespec,
    ) -> c_int;
    fn pthread_condattr_getpshared(attr: *const Attr, shared: *mut c_int) -> c_int;
    fn pthread_condattr_getclock(attr: *const Attr, clock: *mut libc::clockid_t) -> c_int;
    fn pthread_condattr_init(attr: *mut u32) -> c_int;
    fn pthread_condattr_setpshared(attr: *mut u32, shared: c_int) -> c_int;
    fn pthread_condattr_destroy(attr: *mut u32) -> c_int;
}

/// Serves the family.
pub(crate) fn install(stats: bool) {
    find_shared_flag();
    install! {
        cond_init => init,
        cond_destroy => destroy,
        cond_wait => latchwork_cond_wait,
        cond_timedwait => latchwork_cond_timedwait,
        cond_clockwait => latchwork_cond_clockwait,
    }
    if stats {
        install! { cond_signal => signal::<true>, cond_broadcast => broadcast::<true> }
    } else {
        install! { cond_signal => signal::<false>, cond_broadcast => broadcast::<false> }
    }
}

/// Offset of `__wrefs`, whose lowest bit says process-shared. glibc 2.41 moved it.
static SHARED_FLAG: AtomicUsize = AtomicUsize::new(36);
const SHARED: u32 = 1;

/// Asks the glibc that is here where it keeps the flag.
fn find_shared_flag() {
    let mut attr = 0;
    let mut words = [0u32; 12];
    // SAFETY: attributes are 4 bytes, a condition variable is 48.
    unsafe {
        pthread_condattr_init(&mut attr);
        pthread_condattr_setpshared(&mut attr, libc::PTHREAD_PROCESS_SHARED);
        let c: *mut Cond = words.as_mut_ptr().cast();
        REAL.cond_init.get()(c, core::ptr::from_ref(&attr).cast());
        pthread_condattr_destroy(&mut attr);
    }
    if let Some(index) = words.iter().position(|word| word & SHARED != 0) {
        SHARED_FLAG.store(index * 4, Relaxed);
    }
}

/// Whether glibc owns the condition variable.
fn is_foreign(c: &Cond) -> bool {
    // SAFETY: the flag lies in the object's 48 bytes.
    unsafe {
        let word = core::ptr::from_ref(c).cast::<u8>().add(SHARED_FLAG.load(Relaxed));
        (*word.cast::<AtomicU32>()).load(Relaxed) & SHARED != 0
    }
}

fn raw(c: &Cond) -> &RawCondvar<Native> {
    const {
        assert!(size_of::<RawCondvar<Native>>() <= 16 && align_of::<RawCondvar<Native>>() <= 8);
    }
    // SAFETY: it fits, all-zero is valid, and the bytes are used for nothing else.
    unsafe { &*c.raw.get().cast() }
}

/// Repairs and counts.
fn ready(c: &Cond) {
    let word = c.flags.load(Acquire);
    if (word ^ fork::normal()) & !MONOTONIC == 0 {
        return;
    }
    if !fork::is_current(word) {
        fork::repair(&c.flags, |_| {
            // The waiters are threads that the child does not have.
            // SAFETY: repairs are serialised, and nobody uses the object before it is repaired.
            unsafe { c.raw.get().write_bytes(0, 1) };
        });
    }
    if fork::normal() & SEEN != 0 && c.flags.fetch_or(SEEN, Relaxed) & SEEN == 0 {
        stats::object(stats::COND);
    }
}

unsafe extern "C" fn init(c: *mut Cond, attr: *const Attr) -> c_int {
    let (mut shared, mut clock) = (0, libc::CLOCK_REALTIME);
    // SAFETY: the caller's object and attributes, as pthread_cond_init wants them.
    unsafe {
        if !attr.is_null() {
            pthread_condattr_getpshared(attr, &mut shared);
            pthread_condattr_getclock(attr, &mut clock);
        }
        if shared != 0 {
            if stats::on() {
                stats::foreign_object(stats::COND_SHARED);
            }
            return REAL.cond_init.get()(c, attr);
        }
        c.cast::<u8>().write_bytes(0, size_of::<Cond>());
        let clock = if clock == libc::CLOCK_MONOTONIC { MONOTONIC } else { 0 };
        (*c).flags.store(fork::normal() | clock, Relaxed);
    }
    if stats::on() {
        stats::object(stats::COND);
    }
    0
}

/// Waits for waiters that have been woken but are not out of their wait yet.
unsafe extern "C" fn destroy(c: *mut Cond) -> c_int {
    // SAFETY: the caller's object.
    let c = unsafe { &*c };
    if is_foreign(c) {
        // SAFETY: as above.
        return unsafe { REAL.cond_destroy.get()(core::ptr::from_ref(c).cast_mut()) };
    }
    ready(c);
    raw(c).wait_until_quiet();
    0
}

unsafe extern "C" fn signal<const STATS: bool>(c: *mut Cond) -> c_int {
    // SAFETY: the caller's object.
    let c = unsafe { &*c };
    if is_foreign(c) {
        // SAFETY: as above.
        return unsafe { REAL.cond_signal.get()(core::ptr::from_ref(c).cast_mut()) };
    }
    ready(c);
    if STATS {
        stats::call(stats::COND);
    }
    raw(c).notify_one();
    0
}

unsafe extern "C" fn broadcast<const STATS: bool>(c: *mut Cond) -> c_int {
    // SAFETY: the caller's object.
    let c = unsafe { &*c };
    if is_foreign(c) {
        // SAFETY: as above.
        return unsafe { REAL.cond_broadcast.get()(core::ptr::from_ref(c).cast_mut()) };
    }
    ready(c);
    if STATS {
        stats::call(stats::COND);
    }
    raw(c).notify_all();
    0
}

/// `struct wait` in cond.c.
#[repr(C)]
struct Waiter {
    cond: *mut Cond,
    mutex: *mut Mutex,
    word: *const AtomicU32,
    ticket: Ticket,
    operation: c_int,
    time: *const timespec,
    timed_out: c_int,
    clock: c_int,
    /// Whether the mutex counts this waiter as a user.
    counted: c_int,
}

// As in cond.c.
const CLOCK_OF_COND: c_int = -2;
const SLEEP: c_int = -1;
const FOREIGN_COND: c_int = -2;
const FOREIGN_BUT_MUTEX: c_int = -3;

/// Checks the arguments, joins the waiters and releases the mutex; SLEEP if all that worked.
#[unsafe(no_mangle)]
unsafe extern "C" fn latchwork_cond_begin(w: &mut Waiter) -> c_int {
    // SAFETY: the caller's objects and time.
    unsafe {
        let c = &*w.cond;
        if is_foreign(c) {
            if stats::on() {
                stats::foreign_call(stats::COND_SHARED);
            }
            return if mutex::is_foreign(&*w.mutex) { FOREIGN_COND } else { FOREIGN_BUT_MUTEX };
        }
        ready(c);
        let monotonic = if w.clock == CLOCK_OF_COND {
            c.flags.load(Relaxed) & MONOTONIC != 0
        } else {
            w.clock == libc::CLOCK_MONOTONIC
        };
        if !w.time.is_null() {
            let clock = if monotonic { Clock::Monotonic } else { Clock::Realtime };
            match deadline(clock, w.time) {
                Err(error) => return error,
                // The kernel refuses a time before the epoch.
                Ok(_) if (*w.time).tv_sec < 0 => w.time = &EPOCH,
                Ok(_) => {}
            }
        }
        w.operation = libc::FUTEX_WAIT_BITSET | libc::FUTEX_PRIVATE_FLAG;
        if !w.time.is_null() && !monotonic {
            w.operation |= libc::FUTEX_CLOCK_REALTIME;
        }
        if stats::on() {
            stats::call(stats::COND);
            stats::contended(stats::COND);
        }
        w.ticket = raw(c).prepare();
        w.word = core::ptr::from_ref(raw(c).word());
        let error = leave(w.mutex, &mut w.counted);
        if error != 0 {
            raw(c).abandon(w.ticket);
            return error;
        }
    }
    SLEEP
}

static EPOCH: timespec = timespec { tv_sec: 0, tv_nsec: 0 };

/// After the sleep: takes the mutex again.
#[unsafe(no_mangle)]
unsafe extern "C" fn latchwork_cond_end(w: &mut Waiter) -> c_int {
    // SAFETY: the caller's objects.
    unsafe {
        let reason = if w.timed_out != 0 { Wait::TimedOut } else { Wait::Woken };
        let reason = raw(&*w.cond).finish(w.ticket, reason);
        match enter(w.mutex, w.counted) {
            0 if reason == Wait::TimedOut => libc::ETIMEDOUT,
            error => error,
        }
    }
}

/// The thread was cancelled in its sleep. If it was woken first, by a notification that was meant
/// for one waiter, another one gets it.
#[unsafe(no_mangle)]
unsafe extern "C" fn latchwork_cond_cancelled(w: *mut c_void) {
    // SAFETY: the argument of the cleanup handler.
    unsafe {
        let w = &*w.cast::<Waiter>();
        raw(&*w.cond).abandon(w.ticket);
        enter(w.mutex, w.counted);
    }
}

/// Unlocks the mutex of a waiter, and says whether it counts the waiter as a user: then the unlock does not fail.
unsafe extern "C" fn leave(m: *mut Mutex, counted: *mut c_int) -> c_int {
    // SAFETY: the caller's mutex, which it holds, and its own word.
    unsafe {
        *counted = c_int::from(mutex::note_waiter(&*m));
        TABLE.mutex_unlock.get()(m)
    }
}

/// Locks it again.
unsafe extern "C" fn enter(m: *mut Mutex, counted: c_int) -> c_int {
    // SAFETY: the caller's mutex, which cannot be destroyed while it counts a waiter.
    unsafe {
        let error = TABLE.mutex_lock.get()(m);
        if error == 0 && counted != 0 {
            mutex::forget_waiter(&*m);
        }
        error
    }
}

/// `struct functions` in cond.c.
#[repr(C)]
struct Functions {
    cond_wait: unsafe extern "C" fn(*mut Cond, *mut Mutex) -> c_int,
    cond_timedwait: unsafe extern "C" fn(*mut Cond, *mut Mutex, *const timespec) -> c_int,
    cond_clockwait: unsafe extern "C" fn(*mut Cond, *mut Mutex, libc::clockid_t, *const timespec) -> c_int,
    mutex_lock: unsafe extern "C" fn(*mut Mutex) -> c_int,
    mutex_unlock: unsafe extern "C" fn(*mut Mutex) -> c_int,
    leave_ours: unsafe extern "C" fn(*mut Mutex, *mut c_int) -> c_int,
    enter_ours: unsafe extern "C" fn(*mut Mutex, c_int) -> c_int,
    foreign_clock: c_int,
}

#[unsafe(no_mangle)]
unsafe extern "C" fn latchwork_cond_functions(f: *mut Functions, c: *const Cond) {
    // SAFETY: `f` is valid for writes and the flag lies in the object.
    unsafe {
        let flags = *c.cast::<u8>().add(SHARED_FLAG.load(Relaxed)).cast::<u32>();
        let monotonic = flags & MONOTONIC != 0;
        f.write(Functions {
            cond_wait: REAL.cond_wait.get(),
            cond_timedwait: REAL.cond_timedwait.get(),
            cond_clockwait: REAL.cond_clockwait.get(),
            mutex_lock: REAL.mutex_lock.get(),
            mutex_unlock: REAL.mutex_unlock.get(),
            leave_ours: leave,
            enter_ours: enter,
            foreign_clock: if monotonic { libc::CLOCK_MONOTONIC } else { libc::CLOCK_REALTIME },
        });
    }
}
