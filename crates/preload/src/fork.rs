//! `fork`: the child can use every lock.
//!
//! The child has one thread, and locks whose queues are full of threads that it does not have. It
//! cannot find them all, so it repairs each at its first use: a global *generation* is bumped in
//! the child, every object carries the generation that it was last used under, and an operation
//! that finds an older one first drops the object's waiters. The check costs nothing, because the
//! fast path compares the whole word, kind and generation, with what a normal object of the current
//! generation looks like.
//!
//! Repair runs under one lock for all objects, which is also held around `fork`, so no child
//! inherits a half-repaired object.
//!
//! An object in memory that the child shares with its parent is not repaired: [`mapping`](crate::mapping).
//!
//! Our handlers must be registered before all others: then `prepare` comes last and `child` comes
//! first, and a lock that an application takes in its prepare handler is held at the fork and
//! already repaired, or about to be, when the application's child handler releases it. That is why
//! `__register_atfork` is interposed.

use crate::abi::{IN_SHARED_MEMORY, LOW, Mutex, RwLock, SEEN, SERVED};
use crate::table::REAL;
use crate::{holds, mapping, place, rwlock, stats};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::*};
use latchwork::locks::mutex::{RawMutex, ttas::RawTtas};
use latchwork::machine::Native;

/// The word of a normal object that needs nothing done: the current generation in the high half,
/// and [`SEEN`] if statistics are on.
static NORMAL: AtomicU32 = AtomicU32::new(0);

/// The same of a mutex, which is also [`SERVED`].
static NORMAL_MUTEX: AtomicU32 = AtomicU32::new(SERVED);

/// [`NORMAL_MUTEX`] if mutexes are `shfl` and uncounted, for the entry points in `hot`; else
/// [`NOBODY`].
static FAVOURITE: AtomicU32 = AtomicU32::new(NOBODY);

/// The same for reader-writer locks and `bravo-2d-shfl-rw`.
static FAVOURITE_RW: AtomicU32 = AtomicU32::new(NOBODY);

/// A word that no object has: all of glibc's flags, but not a destroyed one's.
const NOBODY: u32 = LOW;

/// Whether the mutex is a normal one of the favourite lock, and there is nothing to do about it.
#[inline(always)]
pub(crate) fn is_favourite(m: &Mutex) -> bool {
    m.kind.load(Relaxed) == FAVOURITE.load(Relaxed)
}

/// The word that [`is_favourite`] compares with.
#[cfg(versioned)]
pub(crate) fn favourite() -> &'static AtomicU32 {
    &FAVOURITE
}

/// Whether there is such a mutex.
pub(crate) fn has_favourite() -> bool {
    FAVOURITE.load(Relaxed) != NOBODY
}

pub(crate) fn set_favourite() {
    FAVOURITE.store(normal_mutex(), Relaxed);
}

/// The same of a reader-writer lock.
#[inline(always)]
pub(crate) fn is_favourite_rw(l: &RwLock) -> bool {
    l.flags.load(Relaxed) == FAVOURITE_RW.load(Relaxed)
}

/// The word that [`is_favourite_rw`] compares with.
#[cfg(versioned)]
pub(crate) fn favourite_rw() -> &'static AtomicU32 {
    &FAVOURITE_RW
}

pub(crate) fn has_favourite_rw() -> bool {
    FAVOURITE_RW.load(Relaxed) != NOBODY
}

pub(crate) fn set_favourite_rw() {
    FAVOURITE_RW.store(rwlock::normal(), Relaxed);
}

static REPAIR: RawTtas<Native> = RawTtas::new();

/// See [`NORMAL`].
#[inline(always)]
pub(crate) fn normal() -> u32 {
    NORMAL.load(Relaxed)
}

/// See [`NORMAL_MUTEX`].
#[inline(always)]
pub(crate) fn normal_mutex() -> u32 {
    NORMAL_MUTEX.load(Relaxed)
}

/// Whether a kind or flags word is of the current generation, or of an object that has none.
#[inline(always)]
pub(crate) fn is_current(word: u32) -> bool {
    (word ^ normal()) & !LOW == 0 || word & IN_SHARED_MEMORY != 0
}

/// `low`, under the current generation.
pub(crate) fn stamped(low: u32) -> u32 {
    normal() & !LOW | low & LOW
}

pub(crate) fn set_normal(stats: bool) {
    let normal = if stats { SEEN } else { 0 };
    NORMAL.store(normal, Relaxed);
    NORMAL_MUTEX.store(normal | SERVED, Relaxed);
}

/// Brings an object whose word is of an older generation up to date: `mend` is called if that is
/// still to be done, and no other repair runs meanwhile.
#[cold]
pub(crate) fn repair(word: &AtomicU32, mend: impl FnOnce(u32)) {
    REPAIR.lock();
    // (A) pairs with the store below, through the lock or through whoever read the new word.
    let old = word.load(Acquire);
    if is_current(old) {
        // Another thread has repaired it.
    } else if mapping::is_shared(core::ptr::from_ref(word).addr()) {
        // It is the parent's too. From now on neither process takes the fast path.
        word.fetch_or(IN_SHARED_MEMORY, Relaxed);
    } else {
        // An object that was never used before the fork is all zero, and mending is harmless.
        mend(old & LOW);
        word.store(stamped(old), Release); // (A)
    }
    // SAFETY: taken above.
    unsafe { REPAIR.unlock(()) };
}

pub(crate) fn register() {
    // SAFETY: the handlers are plain functions; a null object means that they are never removed.
    unsafe { REAL.register_atfork.get()(Some(prepare), Some(parent), Some(child), null_mut()) };
}

/// Whether locks are checked.
static CHECK: AtomicBool = AtomicBool::new(false);

pub(crate) fn set_check() {
    CHECK.store(true, Relaxed);
}

unsafe extern "C" fn prepare() {
    if CHECK.load(Relaxed) {
        latchwork_check::before_fork();
    }
    REPAIR.lock();
    place::before_fork();
}

unsafe extern "C" fn parent() {
    after(false);
}

/// Gives back what `prepare` has taken.
fn after(child: bool) {
    place::after_fork();
    // SAFETY: taken in `prepare`.
    unsafe { REPAIR.unlock(()) };
    if CHECK.load(Relaxed) {
        latchwork_check::after_fork(child);
    }
}

unsafe extern "C" fn child() {
    // These locks do not sleep, so no waiter is left in them.
    after(true);
    // Wraps after 65,536 nested forks.
    for normal in [&NORMAL, &NORMAL_MUTEX] {
        normal.fetch_add(LOW + 1, Relaxed);
    }
    if has_favourite() {
        set_favourite();
    }
    if has_favourite_rw() {
        set_favourite_rw();
    }
    stats::after_fork();
    mapping::after_fork();
    // BRAVO's tables name readers that are gone. What this thread reads is found when it uses the lock: until then the
    // object is not touched, which may have been freed without being released.
    // SAFETY: the child has one thread.
    unsafe { Native::forget_readers() };
    holds::after_fork();
}
