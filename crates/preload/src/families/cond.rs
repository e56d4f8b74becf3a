//! `pthread_cond_*` over the condition variable of the crate `latchwork`.
//!
//! | bytes | contents |
//! |---|---|
//! | 0..8 | the raw condition variable |
//! | 8..16 | the mutex of its waiters |
//! | 16..24 | unused |
//! | 24..40 | glibc's `__wrefs`, at 28 or 36: zero in an object of ours |
//! | 40..44 | flags: the clock of its deadlines, whether statistics have counted it, and the fork generation |
//!
//! One condition variable works with every mutex, whether ours or glibc's: it releases and takes the mutex through the
//! mutex functions of the table. The sleep itself is in `cond.c`, which says why.
//!
//! glibc serves these condition variables in all respects: process-shared ones, and those that it has served before set-up
//! ([`leave_to_glibc`]).

use super::mutex::{self, Counted};
use super::timeout::Timeout;
use crate::state::abi::*;
use crate::state::counters::{self, Family, Reason};
use crate::state::dynamic;
use crate::state::generation;
use crate::state::table::{REAL, Slot, TABLE, install};
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering::*};
use latchwork::locks::condvar::{RawCondvar, Ticket};
use latchwork::machine::{Native, Wait};
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
pub(crate) fn install() {
    find_shared_flag();
    install! {
        cond_init => init,
        cond_destroy => destroy,
        cond_wait => latchwork_cond_wait,
        cond_timedwait => latchwork_cond_timedwait,
        cond_clockwait => latchwork_cond_clockwait,
        cond_signal => signal,
        cond_broadcast => broadcast,
    }
}

/// Offset of `__wrefs`, in bytes: 36 before glibc 2.41, and 28 since then.
static WREFS: AtomicUsize = AtomicUsize::new(28);
/// Its lowest bit: process-shared.
const SHARED: u32 = 1;
/// glibc's bit for the monotonic clock.
const MONOTONIC: u32 = 2;

/// Asks the glibc of this process where it keeps the flag. The next library's `pthread_cond_init` may be another one, which may
/// do anything.
fn find_shared_flag() {
    let Some(init) = dynamic::of_c_library(c"pthread_cond_init") else { return };
    let mut attr = 0;
    let mut words = [0u32; 12];
    // SAFETY: glibc's function has this type. Attributes have 4 bytes, and a condition variable has 48.
    unsafe {
        let init = core::mem::transmute::<*const c_void, unsafe extern "C" fn(*mut Cond, *const Attr) -> c_int>(
            init,
        );
        pthread_condattr_init(&mut attr);
        pthread_condattr_setpshared(&mut attr, libc::PTHREAD_PROCESS_SHARED);
        let c: *mut Cond = words.as_mut_ptr().cast();
        init(c, core::ptr::from_ref(&attr).cast());
        pthread_condattr_destroy(&mut attr);
    }
    if let Some(index) = words.iter().position(|word| word & SHARED != 0) {
        WREFS.store(index * 4, Relaxed);
    }
}

/// glibc's `__wrefs`.
fn wrefs(c: &Cond) -> &AtomicU32 {
    // SAFETY: the word lies in the object's 48 bytes, and all threads access it as an atomic.
    unsafe { &*core::ptr::from_ref(c).cast::<u8>().add(WREFS.load(Relaxed)).cast() }
}

/// Whether glibc owns the condition variable. One with glibc's bit for the monotonic clock was initialised before set-up.
fn is_of_glibc(c: &Cond) -> bool {
    wrefs(c).load(Relaxed) & (SHARED | MONOTONIC) != 0
}

/// Leaves a condition variable that a thread is about to wait for, before set-up, to glibc for good. It becomes process-shared:
/// glibc has no other mark that it keeps, and serves such an object within one process, too.
pub(crate) fn leave_to_glibc(c: &Cond) {
    find_shared_flag();
    wrefs(c).fetch_or(SHARED, Relaxed);
}

/// Whether the object is of the current generation, and calls are not counted.
#[inline(always)]
fn is_ready(c: &Cond) -> bool {
    generation::COND_WORD_IF_UNCOUNTED.is(c.flags.load(Acquire) & !COND_MONOTONIC)
}

/// Brings the object up to the current generation, and counts it at its first use.
#[cold]
#[inline(never)]
fn make_ready(c: &Cond) {
    if !generation::is_current(c.flags.load(Acquire)) {
        generation::repair(&c.flags, |_| {
            // The waiters are threads that the child does not have.
            // SAFETY: `repair` lets one thread at a time do this, before any uses the object. Zero is an unused condition
            // variable, and its words are atomics, which a shared reference may change.
            unsafe { core::ptr::from_ref(&c.raw).cast_mut().write_bytes(0, 1) };
        });
    }
    if counters::on() && c.flags.fetch_or(COND_COUNTED, Relaxed) & COND_COUNTED == 0 {
        counters::object(Family::Cond);
    }
}

unsafe extern "C" fn init(c: *mut Cond, attr: *const Attr) -> c_int {
    let (mut shared, mut clock) = (0, libc::CLOCK_REALTIME);
    // SAFETY: the program passes memory for a condition variable, which no thread uses, and valid attributes or null.
    // All-zero bytes are a valid `Cond`.
    unsafe {
        if !attr.is_null() {
            pthread_condattr_getpshared(attr, &mut shared);
            pthread_condattr_getclock(attr, &mut clock);
        }
        if shared != 0 {
            counters::foreign_object(Reason::CondShared);
            return REAL.cond_init.get()(c, attr);
        }
        c.cast::<u8>().write_bytes(0, size_of::<Cond>());
        let clock = if clock == libc::CLOCK_MONOTONIC { COND_MONOTONIC } else { 0 };
        (*c).flags.store(generation::new_cond(clock), Relaxed);
    }
    counters::object(Family::Cond);
    0
}

/// Waits until the waiters that have been woken are out of their wait.
unsafe extern "C" fn destroy(c: *mut Cond) -> c_int {
    // SAFETY: the program passes a live condition variable.
    let c = unsafe { &*c };
    if is_of_glibc(c) {
        // SAFETY: the program's own argument.
        return unsafe { REAL.cond_destroy.get()(core::ptr::from_ref(c).cast_mut()) };
    }
    if !is_ready(c) {
        make_ready(c);
    }
    c.raw.wait_until_quiet();
    0
}

unsafe extern "C" fn signal(c: *mut Cond) -> c_int {
    // SAFETY: the program passes a live condition variable.
    let c = unsafe { &*c };
    if is_of_glibc(c) {
        // SAFETY: the program's own argument.
        return unsafe { REAL.cond_signal.get()(core::ptr::from_ref(c).cast_mut()) };
    }
    attend(c);
    notify(c, 1);
    0
}

unsafe extern "C" fn broadcast(c: *mut Cond) -> c_int {
    // SAFETY: the program passes a live condition variable.
    let c = unsafe { &*c };
    if is_of_glibc(c) {
        // SAFETY: the program's own argument.
        return unsafe { REAL.cond_broadcast.get()(core::ptr::from_ref(c).cast_mut()) };
    }
    attend(c);
    notify(c, u32::MAX);
    0
}

/// Notifies at most `count` waiters: when the calling thread unlocks their mutex, if it holds that.
#[inline(always)]
fn notify(c: &Cond, count: u32) {
    if c.raw.has_waiters() && !mutex::holder::defer(c, count) {
        c.raw.notify(count);
    }
}

/// Makes the object ready, and counts a notification.
#[inline(always)]
fn attend(c: &Cond) {
    if !is_ready(c) {
        make_ready(c);
        counters::call(Family::Cond);
    }
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
    /// Where the mutex counts this waiter as a user.
    counted: Counted,
}

// As in cond.c.
const CLOCK_OF_COND: c_int = -2;
const SLEEP: c_int = -1;
const FOREIGN_COND: c_int = -2;
const FOREIGN_BUT_MUTEX: c_int = -3;

/// Checks the arguments, joins the waiters and releases the mutex. SLEEP: all that worked.
#[unsafe(no_mangle)]
unsafe extern "C" fn latchwork_cond_begin(w: &mut Waiter) -> c_int {
    // SAFETY: the program passes live objects and a valid time or null.
    unsafe {
        let c = &*w.cond;
        if is_of_glibc(c) {
            counters::foreign_call(Reason::CondShared);
            return if mutex::is_of_glibc(&*w.mutex) { FOREIGN_COND } else { FOREIGN_BUT_MUTEX };
        }
        if !is_ready(c) {
            make_ready(c);
        }
        let monotonic = if w.clock == CLOCK_OF_COND {
            c.flags.load(Relaxed) & COND_MONOTONIC != 0
        } else {
            w.clock == libc::CLOCK_MONOTONIC
        };
        w.operation = libc::FUTEX_WAIT_BITSET | libc::FUTEX_PRIVATE_FLAG;
        if !w.time.is_null() {
            if Timeout::checked(libc::CLOCK_REALTIME, w.time).is_none() {
                return libc::EINVAL;
            }
            // The kernel refuses a time before the epoch.
            if (*w.time).tv_sec < 0 {
                w.time = &EPOCH;
            }
            if !monotonic {
                w.operation |= libc::FUTEX_CLOCK_REALTIME;
            }
        }
        counters::call(Family::Cond);
        counters::contended(Family::Cond);
        // A notifier compares this word with the mutex that it holds, and looks into the mutex only if that is the same.
        if c.mutex.load(Relaxed) != w.mutex {
            // Waiters with another mutex have been notified, or the program breaks a rule of POSIX. They may sleep until the notifier
            // releases that mutex. The next notification is the caller's, and must not end at one of them.
            c.raw.wake_claimed();
            c.mutex.store(w.mutex, Relaxed);
        }
        w.ticket = c.raw.prepare();
        w.word = core::ptr::from_ref(c.raw.word());
        let error = leave(w.mutex, &mut w.counted);
        if error != 0 {
            c.raw.abandon(w.ticket);
            return error;
        }
    }
    SLEEP
}

static EPOCH: timespec = timespec { tv_sec: 0, tv_nsec: 0 };

/// After the sleep: takes the mutex again.
#[unsafe(no_mangle)]
unsafe extern "C" fn latchwork_cond_end(w: &mut Waiter) -> c_int {
    // SAFETY: the program's objects outlive the wait.
    unsafe {
        let reason = if w.timed_out != 0 { Wait::TimedOut } else { Wait::Woken };
        let reason = (*w.cond).raw.finish(w.ticket, reason);
        match enter(w.mutex, w.counted) {
            0 if reason == Wait::TimedOut => libc::ETIMEDOUT,
            error => error,
        }
    }
}

/// The thread was cancelled in its sleep. If a notification had already woken it, which was meant for one waiter, another
/// waiter gets that notification.
#[unsafe(no_mangle)]
unsafe extern "C" fn latchwork_cond_cancelled(w: *mut c_void) {
    // SAFETY: `cond.c` passes the waiter as the argument of the cleanup handler, and the objects outlive the wait.
    unsafe {
        let w = &*w.cast::<Waiter>();
        (*w.cond).raw.abandon(w.ticket);
        enter(w.mutex, w.counted);
    }
}

/// Unlocks the mutex of a waiter. `counted`: where the mutex counts the waiter as a user; if it does, the unlock does not fail.
unsafe extern "C" fn leave(m: *mut Mutex, counted: *mut Counted) -> c_int {
    // SAFETY: the program passes a mutex that the waiter holds; `counted` is valid for writes.
    unsafe {
        *counted = mutex::note_waiter(&*m);
        TABLE.mutex_unlock.get()(m)
    }
}

/// How a waiter takes its mutex again. An observer that tells these calls from others puts a function of its own here.
pub(crate) static RELOCK: Slot<unsafe extern "C" fn(*mut Mutex) -> c_int> = Slot::new(relock);

/// Locks the mutex as the program does.
pub(crate) unsafe extern "C" fn relock(m: *mut Mutex) -> c_int {
    // SAFETY: the caller's mutex is live.
    unsafe { TABLE.mutex_lock.get()(m) }
}

/// Locks it again.
unsafe extern "C" fn enter(m: *mut Mutex, counted: Counted) -> c_int {
    // SAFETY: the mutex is live: `destroy` refuses one that counts a waiter.
    unsafe {
        if counted == Counted::Here {
            RawCondvar::<Native>::offer_processor(|| mutex::wants_offers(&*m));
        }
        let error = RELOCK.get()(m);
        if error == 0 {
            mutex::forget_waiter(&*m, counted);
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
    leave_ours: unsafe extern "C" fn(*mut Mutex, *mut Counted) -> c_int,
    enter_ours: unsafe extern "C" fn(*mut Mutex, Counted) -> c_int,
    foreign_clock: c_int,
}

#[unsafe(no_mangle)]
unsafe extern "C" fn latchwork_cond_functions(f: *mut Functions, c: *const Cond) {
    // SAFETY: `cond.c` passes a live condition variable, and room for the answer.
    unsafe {
        let monotonic = wrefs(&*c).load(Relaxed) & MONOTONIC != 0;
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
