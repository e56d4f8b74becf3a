//! Waits for condition variables and semaphores. None of them is counted as contention: the thread waits for something to happen.
//! Where a semaphore serves as a lock, the thread that has waited for a unit posts it later. The recorder counts how often that is so.
//!
//! The wait itself is called in `sleeps.c`, because the thread may be cancelled in it.
//!
//! If glibc serves mutexes, its `pthread_cond_wait` releases and takes the mutex without a call that the layer sees. So the
//! layer takes the mutex for released from the call on, and for taken again when the call returns. What the thread waited
//! for the mutex then is a part of its wait for the condition. This library's own condition variable goes through the
//! layer, so that part is counted apart (`relocks`), and is not in the wait for the condition.

use super::acquire::acquired;
use super::below::{BELOW, over};
use super::calls::{Call, Origin, got};
use super::entries::{self, bump, bump_short};
use super::file::record;
use super::lifetimes::{destroy, made};
use super::release::{Debt, released, releasing};
use super::threads::{self, Local};
use super::waits::{self, Wait};
use super::{clock, fast, filter, live, objects};
use crate::families::timeout::try_in_time;
use crate::state::abi::*;
use crate::state::memory::quietly;
use core::sync::atomic::{AtomicBool, Ordering::*};
use latchwork_recording::layout::*;
use libc::{ETIMEDOUT, c_int, clockid_t, timespec};

type Time = *const timespec;

/// `struct sleep` in sleeps.c.
#[repr(C)]
struct Sleep {
    object: *mut Cond,
    mutex: *mut Mutex,
    /// When the wait began; 0: it is not recorded.
    start: u64,
    /// The session in which it began.
    session: u64,
    /// The stack.
    waiter: u32,
    /// The clock of `time`.
    clock: clockid_t,
    /// The deadline; null: there is none. Only for a semaphore.
    time: Time,
}

/// `struct profile_functions` in sleeps.c.
#[repr(C)]
struct Functions {
    cond_wait: unsafe extern "C" fn(*mut Cond, *mut Mutex) -> c_int,
    cond_timedwait: unsafe extern "C" fn(*mut Cond, *mut Mutex, Time) -> c_int,
    cond_clockwait: unsafe extern "C" fn(*mut Cond, *mut Mutex, clockid_t, Time) -> c_int,
    cnd_wait: unsafe extern "C" fn(*mut Cond, *mut Mutex) -> c_int,
    cnd_timedwait: unsafe extern "C" fn(*mut Cond, *mut Mutex, Time) -> c_int,
    sem_wait: unsafe extern "C" fn(*mut Sem) -> c_int,
    sem_timedwait: unsafe extern "C" fn(*mut Sem, Time) -> c_int,
    sem_clockwait: unsafe extern "C" fn(*mut Sem, clockid_t, Time) -> c_int,
}

unsafe extern "C" {
    fn latchwork_profile_set_below(functions: *const Functions);
    fn latchwork_profile_cond_wait(c: *mut Cond, m: *mut Mutex) -> c_int;
    fn latchwork_profile_cond_timedwait(c: *mut Cond, m: *mut Mutex, time: Time) -> c_int;
    fn latchwork_profile_cond_clockwait(c: *mut Cond, m: *mut Mutex, clock: clockid_t, time: Time) -> c_int;
    fn latchwork_profile_cnd_wait(c: *mut Cond, m: *mut Mutex) -> c_int;
    fn latchwork_profile_cnd_timedwait(c: *mut Cond, m: *mut Mutex, time: Time) -> c_int;
    fn latchwork_profile_sem_wait(s: *mut Sem) -> c_int;
    fn latchwork_profile_sem_timedwait(s: *mut Sem, time: Time) -> c_int;
    fn latchwork_profile_sem_clockwait(s: *mut Sem, clock: clockid_t, time: Time) -> c_int;
}

/// Whether the C library serves mutexes and condition variables.
static GLIBC: AtomicBool = AtomicBool::new(false);

/// Whether the C library serves mutexes.
pub(super) fn glibc_serves() -> bool {
    GLIBC.load(Relaxed)
}

/// Remembers the functions below the layer. `glibc`: the C library serves mutexes.
pub(super) fn prepare(glibc: bool) {
    GLIBC.store(glibc, Relaxed);
    let functions = Functions {
        cond_wait: BELOW.cond_wait.get(),
        cond_timedwait: BELOW.cond_timedwait.get(),
        cond_clockwait: BELOW.cond_clockwait.get(),
        cnd_wait: BELOW.cnd_wait.get(),
        cnd_timedwait: BELOW.cnd_timedwait.get(),
        sem_wait: BELOW.sem_wait.get(),
        sem_timedwait: BELOW.sem_timedwait.get(),
        sem_clockwait: BELOW.sem_clockwait.get(),
    };
    // SAFETY: no other thread waits yet: the process is being set up.
    unsafe { latchwork_profile_set_below(&functions) };
}

/// The part of the layer for condition variables and semaphores.
pub(super) fn place(on: bool) {
    over! { on;
        cond_init => cond_init, cond_destroy => cond_destroy,
        cond_wait => latchwork_profile_cond_wait, cond_timedwait => latchwork_profile_cond_timedwait,
        cond_clockwait => latchwork_profile_cond_clockwait,
        cond_signal => cond_signal, cond_broadcast => cond_broadcast,
        cnd_wait => latchwork_profile_cnd_wait, cnd_timedwait => latchwork_profile_cnd_timedwait,
        sem_init => sem_init, sem_destroy => sem_destroy, sem_post => sem_post, sem_trywait => sem_trywait,
        sem_wait => latchwork_profile_sem_wait, sem_timedwait => latchwork_profile_sem_timedwait,
        sem_clockwait => latchwork_profile_sem_clockwait,
    }
    if glibc_serves() {
        over! { on; cnd_signal => cnd_signal, cnd_broadcast => cnd_broadcast }
    }
}

/// Before a wait for a condition variable, with the mutex held.
#[unsafe(no_mangle)]
unsafe extern "C" fn latchwork_profile_cond_begin(sleep: &mut Sleep) {
    let Some(local) = &mut threads::current() else { return };
    let Some(entry) = local.entry(kind::CONDVAR, sleep.object.addr()) else { return };
    sleep.waiter = local.stacks.capture();
    if GLIBC.load(Relaxed)
        && let Some(mutex) = local.known_place(kind::MUTEX, sleep.mutex.addr())
    {
        let depth = mutex.entry.depth.swap(0, Relaxed);
        entries::forget_old_hold(mutex.entry, depth);
        let seen = mutex.entry.open.load(Relaxed) != 0 || filter::is_watched(sleep.mutex.addr());
        let debt = if seen { Debt::of(mutex, depth) } else { Debt::Nothing };
        let held = releasing(local, mutex, false, debt);
        released(local, mutex.entry, sleep.mutex.addr(), &held);
    }
    sleep.start = clock::now();
    sleep.session = local.session();
    local.relock_nanos = 0;
    waits::begin(local, entry.class.load(Relaxed), sleep.waiter, sleep.start);
}

/// After it.
#[unsafe(no_mangle)]
unsafe extern "C" fn latchwork_profile_cond_end(sleep: &mut Sleep, result: c_int) -> c_int {
    if sleep.start == 0 {
        return result;
    }
    let Some(local) = &mut threads::current() else { return result };
    if local.session() != sleep.session {
        return result;
    }
    let end = clock::now();
    waits::end(local, end);
    live::look(end);
    let filter = filter::value(sleep.mutex.addr());
    // C11 has a number of its own for a timeout.
    const TIMED_OUT: c_int = 4;
    let late = matches!(result, ETIMEDOUT | TIMED_OUT);
    let has_waited = result == 0 || late;
    if GLIBC.load(Relaxed) {
        // EPERM: the thread does not hold the mutex, and did not wait.
        if result != libc::EPERM
            && let Some(mutex) = local.place(kind::MUTEX, sleep.mutex.addr())
        {
            let call = Call::of_mutex(sleep.mutex);
            // SAFETY: the program's mutex is live.
            unsafe { acquired(local, mutex, call, Origin { caller: 0, slot: 0 }, sleep.waiter, filter) };
        }
    } else if has_waited
        && let Some(mutex) = local.known_place(kind::MUTEX, sleep.mutex.addr())
        && mutex.entry.site.load(Relaxed) == 0
    {
        // The call that took the mutex again lies in this library. The holder is named by the program's call.
        mutex.entry.site.store(sleep.waiter as u16, Relaxed);
        local.open(mutex.entry);
    }
    if has_waited {
        let until = end.saturating_sub(core::mem::take(&mut local.relock_nanos));
        slept(local, kind::CONDVAR, sleep, until, late);
    }
    result
}

/// Records a wait that has ended.
fn slept(local: &mut Local, kind: u32, sleep: &Sleep, end: u64, late: bool) {
    let Some(entry) = local.entry(kind, sleep.object.addr()) else { return };
    let (object, class) = (entry.object.load(Relaxed), entry.class.load(Relaxed));
    let serial = if object == NONE { 0 } else { record::<Object>(object).serial.load(Relaxed) };
    let nanos = end.saturating_sub(sleep.start);
    let wait = Wait { object, serial, class, waiter: sleep.waiter, start: sleep.start, nanos, weight: 1 };
    waits::note(local, 0, &wait, None);
    if late {
        objects::counters(object, serial, class).timeouts.fetch_add(1, Relaxed);
    }
}

/// Before a wait for a semaphore: whether a unit could be taken at once.
#[unsafe(no_mangle)]
unsafe extern "C" fn latchwork_profile_sem_begin(sleep: &mut Sleep) -> bool {
    let Some(local) = &mut threads::current() else { return false };
    let Some(entry) = local.entry(kind::SEMAPHORE, sleep.object.addr()) else { return false };
    // SAFETY: the program's live semaphore, and its time.
    let attempt =
        || unsafe { try_in_time(sleep.clock, sleep.time, || BELOW.sem_trywait.get()(sleep.object.cast())) };
    if quietly(attempt) == 0 {
        bump(&entry.acquisitions);
        return true;
    }
    sleep.waiter = local.stacks.capture();
    sleep.start = clock::now();
    sleep.session = local.session();
    waits::begin(local, entry.class.load(Relaxed), sleep.waiter, sleep.start);
    false
}

/// After it.
#[unsafe(no_mangle)]
unsafe extern "C" fn latchwork_profile_sem_end(sleep: &mut Sleep, result: c_int) -> c_int {
    if sleep.start == 0 {
        return result;
    }
    quietly(|| {
        let Some(local) = &mut threads::current() else { return };
        if local.session() != sleep.session {
            return;
        }
        let end = clock::now();
        waits::end(local, end);
        live::look(end);
        // SAFETY: the C library says where the calling thread's `errno` is.
        let error = if result == 0 { 0 } else { unsafe { *libc::__errno_location() } };
        let late = error == ETIMEDOUT;
        if result == 0
            && let Some(entry) = local.entry(kind::SEMAPHORE, sleep.object.addr())
        {
            bump(&entry.acquisitions);
            entry.depth.store(entries::GOT_UNIT, Relaxed);
        }
        // A wait that a signal interrupts was one, too.
        if result == 0 || late || error == libc::EINTR {
            slept(local, kind::SEMAPHORE, sleep, end, late);
            waits::settle(local);
        }
    });
    result
}

/// Counts a notification of a condition variable, or a unit that a semaphore gets.
#[inline(always)]
fn told(kind: u32, address: usize) {
    match fast::entry(address) {
        // The long way adds the number to the object's before it overflows.
        Some(entry) if entry.depth.load(Relaxed) == 0 && entry.reads.load(Relaxed) < u32::MAX / 2 => {
            bump_short(&entry.reads);
        }
        _ => told_long_way(kind, address),
    }
}

#[cold]
#[inline(never)]
fn told_long_way(kind: u32, address: usize) {
    let Some(local) = &mut threads::current() else { return };
    let filter = filter::value(address);
    let Some(entry) = local.entry(kind, address) else { return };
    bump_short(&entry.reads);
    entries::flush_short(entry);
    // The depth of a condition variable's entry is always 0.
    if entry.depth.load(Relaxed) == entries::GOT_UNIT {
        entry.depth.store(0, Relaxed);
        entries::counters(entry).relocks.fetch_add(1, Relaxed);
    }
    if filter == filter::value(address) && !filter::is_watched(address) {
        // The next calls take the short way.
        entry.filter.store(filter::expected(filter, false), Relaxed);
    }
}

unsafe extern "C" fn cond_init(c: *mut Cond, attr: *const Attr) -> c_int {
    made(Call::new(kind::CONDVAR, c.addr(), false), None);
    // SAFETY: the program's own arguments.
    unsafe { BELOW.cond_init.get()(c, attr) }
}

unsafe extern "C" fn cond_destroy(c: *mut Cond) -> c_int {
    // SAFETY: the program's own argument.
    destroy(c.addr(), || unsafe { BELOW.cond_destroy.get()(c) })
}

unsafe extern "C" fn cond_signal(c: *mut Cond) -> c_int {
    told(kind::CONDVAR, c.addr());
    // SAFETY: the program's own argument.
    unsafe { BELOW.cond_signal.get()(c) }
}

unsafe extern "C" fn cond_broadcast(c: *mut Cond) -> c_int {
    told(kind::CONDVAR, c.addr());
    // SAFETY: the program's own argument.
    unsafe { BELOW.cond_broadcast.get()(c) }
}

unsafe extern "C" fn cnd_signal(c: *mut Cond) -> c_int {
    told(kind::CONDVAR, c.addr());
    // SAFETY: the program's own argument.
    unsafe { BELOW.cnd_signal.get()(c) }
}

unsafe extern "C" fn cnd_broadcast(c: *mut Cond) -> c_int {
    told(kind::CONDVAR, c.addr());
    // SAFETY: the program's own argument.
    unsafe { BELOW.cnd_broadcast.get()(c) }
}

unsafe extern "C" fn sem_init(s: *mut Sem, shared: c_int, value: u32) -> c_int {
    made(Call::new(kind::SEMAPHORE, s.addr(), false), None);
    // SAFETY: the program's own arguments.
    unsafe { BELOW.sem_init.get()(s, shared, value) }
}

unsafe extern "C" fn sem_destroy(s: *mut Sem) -> c_int {
    // SAFETY: the program's own argument.
    destroy(s.addr(), || unsafe { BELOW.sem_destroy.get()(s) })
}

unsafe extern "C" fn sem_post(s: *mut Sem) -> c_int {
    // The semaphore may be gone when the unit is released.
    told(kind::SEMAPHORE, s.addr());
    // SAFETY: the program's own argument.
    unsafe { BELOW.sem_post.get()(s) }
}

unsafe extern "C" fn sem_trywait(s: *mut Sem) -> c_int {
    // SAFETY: the program's own argument.
    let result = unsafe { BELOW.sem_trywait.get()(s) };
    if let Some(local) = &mut threads::current()
        && let Some(entry) = local.entry(kind::SEMAPHORE, s.addr())
    {
        if got(result) {
            bump(&entry.acquisitions);
        } else {
            entries::count_failed(entry);
        }
    }
    result
}
