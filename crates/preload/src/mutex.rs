//! `pthread_mutex_*` over any raw lock.
//!
//! Each function is compiled once per lock and per state of statistics. The fast path is one
//! comparison (a normal mutex of the current fork generation), the raw lock's own fast path, and,
//! if the lock has such a thing, a store of its token.
//!
//! What differs from glibc: a normal mutex is not fair or unfair as glibc's is but as its lock is;
//! and unlocking a normal mutex that nobody holds is ignored.

use crate::abi::*;
use crate::table::{Attr, REAL, Slot, install};
use crate::{cancel, fork, identity, place, stats};
use core::sync::atomic::Ordering::*;
use latchwork::locks::mutex::{RawMutex, Token};
use latchwork::machine::{Clock, Deadline, Native};
use libc::{EAGAIN, EBUSY, EDEADLK, EINVAL, EPERM, ETIMEDOUT, c_int, timespec};

/// Serves the family with `L`.
pub(crate) fn install<L: RawMutex<Machine = Native>, const STATS: bool>() {
    stats::name_mutex(L::INFO.name);
    MAKE_CURRENT.set(make_current::<L, STATS>);
    install! {
        mutex_init => init::<STATS>,
        mutex_destroy => destroy::<L, STATS>,
        mutex_lock => lock::<L, STATS>,
        mutex_trylock => trylock::<L, STATS>,
        mutex_timedlock => timedlock::<L, STATS>,
        mutex_clocklock => clocklock::<L, STATS>,
        mutex_unlock => unlock::<L, STATS>,
    }
}

unsafe extern "C" {
    fn pthread_mutexattr_gettype(attr: *const Attr, kind: *mut c_int) -> c_int;
    fn pthread_mutexattr_getpshared(attr: *const Attr, shared: *mut c_int) -> c_int;
    fn pthread_mutexattr_getprotocol(attr: *const Attr, protocol: *mut c_int) -> c_int;
    fn pthread_mutexattr_getrobust(attr: *const Attr, robust: *mut c_int) -> c_int;
}

#[inline(always)]
unsafe fn raw<'a, L: RawMutex<Machine = Native>>(m: &Mutex) -> &'a L {
    // SAFETY: the mutex is a live object of ours; its first bytes are only used here.
    unsafe { place::locate(&m.raw) }
}

unsafe extern "C" fn init<const STATS: bool>(m: *mut Mutex, attr: *const Attr) -> c_int {
    let (mut kind, mut shared, mut protocol, mut robust) = (0, 0, 0, 0);
    // SAFETY: the caller's mutex and attributes, as pthread_mutex_init wants them.
    unsafe {
        if !attr.is_null() {
            pthread_mutexattr_gettype(attr, &mut kind);
            pthread_mutexattr_getpshared(attr, &mut shared);
            pthread_mutexattr_getprotocol(attr, &mut protocol);
            pthread_mutexattr_getrobust(attr, &mut robust);
        }
        if shared | protocol | robust != 0 {
            if STATS {
                stats::foreign_object(if robust != 0 {
                    stats::ROBUST
                } else if protocol != 0 {
                    stats::PRIORITY
                } else {
                    stats::MUTEX_SHARED
                });
            }
            return REAL.mutex_init.get()(m, attr);
        }
        make::<STATS>(m, kind as u32);
    }
    0
}

/// Makes an unlocked mutex of ours.
///
/// # Safety
///
/// `m` is valid for writes and nobody uses it.
unsafe fn make<const STATS: bool>(m: *mut Mutex, kind: u32) {
    let kind = if kind == ADAPTIVE { NORMAL } else { kind };
    // SAFETY: from the caller; zero is a valid `Mutex`.
    unsafe {
        m.cast::<u8>().write_bytes(0, size_of::<Mutex>());
        if STATS {
            stats::object(stats::MUTEX);
        }
        (*m).kind.store(fork::stamped(kind | SERVED | if STATS { SEEN } else { 0 }), Relaxed);
    }
}

/// Turns a normal mutex that was just made into a recursive one.
pub(crate) fn make_recursive(m: &Mutex) {
    m.kind.store(m.kind.load(Relaxed) | RECURSIVE, Relaxed);
}

unsafe extern "C" fn destroy<L: RawMutex<Machine = Native>, const STATS: bool>(m: *mut Mutex) -> c_int {
    // SAFETY: the caller's mutex, which nobody else uses.
    unsafe {
        let m = &*m;
        if class::<L, STATS>(m) == Class::Foreign {
            return REAL.mutex_destroy.get()(core::ptr::from_ref(m).cast_mut());
        }
        if m.owner.load(Relaxed) >= WAITER {
            return EBUSY;
        }
        // Not `raw`: that would make a lock only to free it.
        if place::exists::<L, MUTEX_SPACE>(&m.raw) {
            if raw::<L>(m).is_locked() {
                return EBUSY;
            }
            place::discard::<L, MUTEX_SPACE>(&m.raw);
        }
        // As glibc marks it: every later use is refused, by glibc, with EINVAL.
        m.kind.store(u32::MAX, Relaxed);
    }
    0
}

/// What a mutex is, once it is of the current generation.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Class {
    Normal,
    Recursive,
    ErrorCheck,
    Foreign,
}

/// Repairs, counts and classifies.
#[cold]
unsafe fn class<L: RawMutex<Machine = Native>, const STATS: bool>(m: &Mutex) -> Class {
    loop {
        let word = m.kind.load(Acquire);
        if word & FOREIGN != 0 {
            return Class::Foreign;
        }
        if !fork::is_current(word) {
            // SAFETY: as for the caller.
            fork::repair(&m.kind, |kind| unsafe { mend::<L>(m, kind & !(SEEN | SERVED)) });
            continue;
        }
        if word & SERVED == 0 {
            // From a static initialiser. From now on a normal one takes the fast path.
            let seen = if STATS { SEEN } else { 0 };
            if m.kind.compare_exchange(word, word | SERVED | seen, Relaxed, Relaxed).is_ok() && STATS {
                stats::object(stats::MUTEX);
            }
            continue;
        }
        return match word & LOW & !(SEEN | SERVED | IN_SHARED_MEMORY) {
            NORMAL => Class::Normal,
            RECURSIVE => Class::Recursive,
            ERRORCHECK => Class::ErrorCheck,
            ADAPTIVE => {
                // From a static initialiser. From now on it takes the fast path.
                let _ = m.kind.compare_exchange(word, word & !ADAPTIVE, Relaxed, Relaxed);
                continue;
            }
            // glibc refuses it with EINVAL.
            _ => Class::Foreign,
        };
    }
}

/// In a forked child: drops the waiters. A mutex that was held stays held, by the forking thread or
/// by one that the child does not have; which of them, nobody asks, as with glibc.
unsafe fn mend<L: RawMutex<Machine = Native>>(m: &Mutex, kind: u32) {
    // SAFETY: repairs are serialised, and nobody uses the object before it is repaired.
    unsafe {
        if !place::exists::<L, MUTEX_SPACE>(&m.raw) {
            return;
        }
        let normal = kind == NORMAL || kind == ADAPTIVE;
        let held = if normal { raw::<L>(m).is_locked() } else { owner(m) != 0 };
        m.owner.store(owner(m), Relaxed);
        place::reset::<L, MUTEX_SPACE>(&m.raw);
        if held && let Some(token) = raw::<L>(m).try_lock() {
            m.token.store(token.into_word(), Relaxed);
        }
    }
}

/// The bits of the owner's word that name a thread, and what one waiter of a condition variable adds to it.
const THREAD: u64 = WAITER - 1;
const WAITER: u64 = 1 << identity::BITS;

/// The thread that has a recursive or error-checking mutex, or 0.
fn owner(m: &Mutex) -> u64 {
    m.owner.load(Relaxed) & THREAD
}

/// Brings a mutex up to the current fork generation; set by the family.
static MAKE_CURRENT: Slot<unsafe fn(&Mutex)> = Slot::new(nothing);

unsafe fn nothing(_: &Mutex) {}

unsafe fn make_current<L: RawMutex<Machine = Native>, const STATS: bool>(m: &Mutex) {
    // SAFETY: the caller's mutex is a live one of `L`.
    unsafe { class::<L, STATS>(m) };
}

/// Counts the caller, which is about to wait for a condition variable, as a user of the mutex that it holds. Returns
/// whether it did: not if glibc owns the mutex, and counts by itself, nor if the unlock that follows will fail.
///
/// # Safety
///
/// The mutex is a live one of the caller's.
pub(crate) unsafe fn note_waiter(m: &Mutex) -> bool {
    if is_foreign(m) {
        return false;
    }
    // The repair of an object in a forked child forgets the parent's waiters: it must come before ours.
    // SAFETY: the caller's mutex is a live one, and the family's, which has set the function.
    unsafe { MAKE_CURRENT.get()(m) };
    let owned = m.kind.load(Relaxed) & (RECURSIVE | ERRORCHECK) != 0;
    if owned && owner(m) != identity::me() {
        return false;
    }
    m.owner.store(m.owner.load(Relaxed).wrapping_add(WAITER), Relaxed);
    true
}

/// The caller, which [`note_waiter`] has counted, holds the mutex again.
pub(crate) fn forget_waiter(m: &Mutex) {
    m.owner.store(m.owner.load(Relaxed).wrapping_sub(WAITER), Relaxed);
}

/// How long a caller is willing to wait.
#[derive(Copy, Clone)]
enum Patience {
    Forever,
    None,
    Until(Clock, *const timespec),
}

#[inline(always)]
fn keep<L: RawMutex<Machine = Native>>(m: &Mutex, token: L::Token) {
    if const { size_of::<L::Token>() != 0 } {
        m.token.store(token.into_word(), Relaxed);
    }
}

/// Locks the raw lock.
#[inline(always)]
unsafe fn acquire<L: RawMutex<Machine = Native>, const STATS: bool>(m: &Mutex, patience: Patience) -> c_int {
    // SAFETY: as for the caller.
    unsafe {
        let lock = raw::<L>(m);
        // Who goes on to wait does not pass those who wait already.
        let got = if matches!(patience, Patience::Forever) { lock.try_lock_weak() } else { lock.try_lock() };
        match got {
            Some(token) => {
                keep::<L>(m, token);
                0
            }
            None => contended::<L, STATS>(m, patience),
        }
    }
}

/// The rest of an acquisition whose [`acquire_fast`] has failed.
///
/// # Safety
///
/// As there.
#[cold]
#[inline(never)]
pub(crate) unsafe extern "C" fn acquire_contended<L: RawMutex<Machine = Native>>(m: *mut Mutex) -> c_int {
    // SAFETY: from the caller.
    unsafe { contended::<L, false>(&*m, Patience::Forever) }
}

/// The part of an acquisition that waits, after a failed attempt.
///
/// # Safety
///
/// As [`acquire_fast`], and the time of `patience` is valid.
#[inline(never)]
unsafe fn contended<L: RawMutex<Machine = Native>, const STATS: bool>(
    m: &Mutex,
    patience: Patience,
) -> c_int {
    if STATS {
        stats::contended(stats::MUTEX);
    }
    let deadline: Option<Deadline> = match patience {
        Patience::Forever => None,
        Patience::None => return EBUSY,
        // SAFETY: the caller's timespec.
        Patience::Until(clock, time) => match unsafe { deadline(clock, time) } {
            Ok(deadline) => Some(deadline),
            Err(error) => return error,
        },
    };
    // SAFETY: as for the caller.
    let lock = unsafe { raw::<L>(m) };
    match cancel::wait(deadline, || lock.lock_contended(), |deadline| lock.lock_until(deadline)) {
        Some(token) => {
            keep::<L>(m, token);
            0
        }
        None => ETIMEDOUT,
    }
}

/// # Safety
///
/// As [`acquire_fast`].
#[inline(always)]
pub(crate) unsafe fn release<L: RawMutex<Machine = Native>>(m: &Mutex) {
    // SAFETY: as for the caller; while the lock is held, the word is what `keep` stored.
    unsafe {
        let lock = raw::<L>(m);
        // Unlocking what nobody holds is an error that glibc forgives.
        if lock.is_locked() {
            let word = if const { size_of::<L::Token>() != 0 } { m.token.load(Relaxed) } else { 0 };
            lock.unlock(L::Token::from_word(word));
        }
    }
}

/// Every acquisition that the fast paths do not serve.
#[cold]
#[inline(never)]
unsafe fn acquire_other<L: RawMutex<Machine = Native>, const STATS: bool>(
    m: &Mutex,
    patience: Patience,
) -> c_int {
    // SAFETY: the caller's mutex.
    unsafe {
        let class = class::<L, STATS>(m);
        if class == Class::Foreign {
            return real(m, patience, STATS);
        }
        if STATS {
            stats::call(stats::MUTEX);
        }
        if class == Class::Normal {
            return acquire::<L, STATS>(m, patience);
        }
        let me = identity::me();
        if owner(m) == me {
            if class == Class::ErrorCheck {
                return if matches!(patience, Patience::None) { EBUSY } else { EDEADLK };
            }
            let count = m.count.load(Relaxed);
            if count == u32::MAX {
                return EAGAIN;
            }
            m.count.store(count + 1, Relaxed);
            return 0;
        }
        let result = acquire::<L, STATS>(m, patience);
        if result == 0 {
            m.count.store(1, Relaxed);
            m.owner.store(m.owner.load(Relaxed) | me, Relaxed);
        }
        result
    }
}

unsafe fn real(m: &Mutex, patience: Patience, count: bool) -> c_int {
    if count {
        stats::foreign_call(reason(m));
    }
    let m = core::ptr::from_ref(m).cast_mut();
    // SAFETY: the caller's arguments.
    unsafe {
        match patience {
            Patience::Forever => REAL.mutex_lock.get()(m),
            Patience::None => REAL.mutex_trylock.get()(m),
            Patience::Until(Clock::Realtime, time) => REAL.mutex_timedlock.get()(m, time),
            Patience::Until(Clock::Monotonic, time) => {
                REAL.mutex_clocklock.get()(m, libc::CLOCK_MONOTONIC, time)
            }
        }
    }
}

fn reason(m: &Mutex) -> usize {
    let kind = m.kind.load(Relaxed);
    if kind & ROBUST != 0 {
        stats::ROBUST
    } else if kind & PRIORITY != 0 {
        stats::PRIORITY
    } else {
        stats::MUTEX_SHARED
    }
}

/// Whether glibc owns the mutex.
pub(crate) fn is_foreign(m: &Mutex) -> bool {
    m.kind.load(Relaxed) & FOREIGN != 0
}

/// The uncontended acquisition of a normal mutex.
///
/// # Safety
///
/// It is a normal mutex of ours, of the current generation.
#[inline(always)]
pub(crate) unsafe fn acquire_fast<L: RawMutex<Machine = Native>>(m: &Mutex) -> bool {
    // SAFETY: from the caller.
    let Some(token) = (unsafe { raw::<L>(m) }).try_lock_weak() else { return false };
    keep::<L>(m, token);
    true
}

// The fast paths have one way out of line each, a jump: no stack frame.

unsafe extern "C" fn lock<L: RawMutex<Machine = Native>, const STATS: bool>(m: *mut Mutex) -> c_int {
    // SAFETY: the caller's mutex.
    unsafe {
        if !STATS && (*m).kind.load(Relaxed) == fork::normal_mutex() && acquire_fast::<L>(&*m) {
            return 0;
        }
        lock_slow::<L, STATS>(m)
    }
}

#[cold]
#[inline(never)]
unsafe extern "C" fn lock_slow<L: RawMutex<Machine = Native>, const STATS: bool>(m: *mut Mutex) -> c_int {
    // SAFETY: the caller's mutex.
    unsafe {
        let kind = (*m).kind.load(Relaxed);
        let first = !STATS && kind | SERVED == fork::normal_mutex() && kind & SERVED == 0;
        // A normal mutex from a static initialiser is marked here; short-lived ones are many.
        if first && (*m).kind.compare_exchange(kind, kind | SERVED, Relaxed, Relaxed).is_ok() {
            return if acquire_fast::<L>(&*m) { 0 } else { acquire_contended::<L>(m) };
        }
        acquire_other::<L, STATS>(&*m, Patience::Forever)
    }
}

unsafe extern "C" fn trylock<L: RawMutex<Machine = Native>, const STATS: bool>(m: *mut Mutex) -> c_int {
    // SAFETY: the caller's mutex.
    unsafe {
        if STATS || (*m).kind.load(Relaxed) != fork::normal_mutex() {
            return trylock_slow::<L, STATS>(m);
        }
        match raw::<L>(&*m).try_lock() {
            Some(token) => {
                keep::<L>(&*m, token);
                0
            }
            None => EBUSY,
        }
    }
}

#[cold]
#[inline(never)]
unsafe extern "C" fn trylock_slow<L: RawMutex<Machine = Native>, const STATS: bool>(m: *mut Mutex) -> c_int {
    // SAFETY: the caller's mutex.
    unsafe { acquire_other::<L, STATS>(&*m, Patience::None) }
}

unsafe extern "C" fn timedlock<L: RawMutex<Machine = Native>, const STATS: bool>(
    m: *mut Mutex,
    time: *const timespec,
) -> c_int {
    // SAFETY: the caller's mutex and time.
    unsafe { acquire_other::<L, STATS>(&*m, Patience::Until(Clock::Realtime, time)) }
}

unsafe extern "C" fn clocklock<L: RawMutex<Machine = Native>, const STATS: bool>(
    m: *mut Mutex,
    id: libc::clockid_t,
    time: *const timespec,
) -> c_int {
    match clock(id) {
        // SAFETY: the caller's mutex and time.
        Some(clock) => unsafe { acquire_other::<L, STATS>(&*m, Patience::Until(clock, time)) },
        None => EINVAL,
    }
}

unsafe extern "C" fn unlock<L: RawMutex<Machine = Native>, const STATS: bool>(m: *mut Mutex) -> c_int {
    // SAFETY: the caller's mutex.
    unsafe {
        let m = &*m;
        if m.kind.load(Relaxed) == fork::normal_mutex() {
            release::<L>(m);
            0
        } else {
            unlock_other::<L, STATS>(m)
        }
    }
}

#[cold]
#[inline(never)]
unsafe fn unlock_other<L: RawMutex<Machine = Native>, const STATS: bool>(m: &Mutex) -> c_int {
    // SAFETY: the caller's mutex.
    unsafe {
        match class::<L, STATS>(m) {
            Class::Foreign => return REAL.mutex_unlock.get()(core::ptr::from_ref(m).cast_mut()),
            Class::Normal => {}
            Class::Recursive | Class::ErrorCheck => {
                if owner(m) != identity::me() {
                    return EPERM;
                }
                let count = m.count.load(Relaxed) - 1;
                m.count.store(count, Relaxed);
                if count != 0 {
                    return 0;
                }
                m.owner.store(m.owner.load(Relaxed) & !THREAD, Relaxed);
            }
        }
        release::<L>(m);
    }
    0
}
