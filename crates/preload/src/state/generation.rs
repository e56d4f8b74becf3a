//! Fork generations: how a forked child comes to repair each object before it uses it.
//!
//! The child has one thread, but the queues of the locks that it inherits contain threads that it does not have. The child
//! cannot find all those locks, so it repairs each at its first use there. A global *generation* is increased in the child, and every
//! object carries the generation in which it was last used. A call that finds an older one first drops the object's
//! waiters.
//!
//! The check costs nothing. A fast path compares the whole word of the object, kind and generation, with one expected word:
//! that of an object that needs no repair and no further look ([`Expected`]). The same comparison tells a normal mutex from
//! the other kinds.
//!
//! One lock serialises the repairs of all objects. A thread that forks holds it, so no child inherits a half-repaired
//! object.
//!
//! An object in memory that the child shares with its parent is not repaired: see [`mapping`].

use super::abi::{COND_COUNTED, IN_SHARED_MEMORY, LOW, RWLOCK_OURS, SERVED};
use super::mapping;
use core::sync::atomic::{AtomicU32, Ordering::*};
use latchwork::locks::mutex::{RawMutex, ttas::RawTtas};
use latchwork::machine::Native;

/// The kind or flags word of an object that a fast path may serve.
#[repr(transparent)]
pub(crate) struct Expected(AtomicU32);

/// A word that no object has: all flags of glibc's, but not those of a destroyed mutex.
const NONE: u32 = LOW;

impl Expected {
    #[inline(always)]
    pub(crate) fn get(&self) -> u32 {
        self.0.load(Relaxed)
    }

    /// Whether an object with this word may take the fast path.
    #[inline(always)]
    pub(crate) fn is(&self, word: u32) -> bool {
        word == self.get()
    }

    /// Whether any object may take the fast path.
    pub(crate) fn exists(&self) -> bool {
        self.get() != NONE
    }

    fn set(&self, word: u32) {
        self.0.store(word, Relaxed);
    }

    fn next_generation(&self) {
        if self.exists() {
            self.0.fetch_add(LOW + 1, Relaxed);
        }
    }
}

/// A normal mutex that this library has used.
pub(crate) static MUTEX: Expected = Expected(AtomicU32::new(SERVED));
/// The same while statistics do not count calls; otherwise no mutex.
pub(crate) static UNCOUNTED_MUTEX: Expected = Expected(AtomicU32::new(SERVED));
/// The same if `shfl` serves mutexes and no observer is on: the entry points with its code compare with this.
pub(crate) static RECOMMENDED_MUTEX: Expected = Expected(AtomicU32::new(NONE));

/// A rwlock that this library has claimed.
pub(crate) static RWLOCK: Expected = Expected(AtomicU32::new(RWLOCK_OURS));
/// The same while statistics do not count calls; otherwise no rwlock.
pub(crate) static UNCOUNTED_RWLOCK: Expected = Expected(AtomicU32::new(RWLOCK_OURS));
/// The same if `bravo-2d-shfl-rw` serves rwlocks and no observer is on.
pub(crate) static RECOMMENDED_RWLOCK: Expected = Expected(AtomicU32::new(NONE));

/// A condition variable on the realtime clock while statistics do not count calls; otherwise none.
pub(crate) static UNCOUNTED_COND: Expected = Expected(AtomicU32::new(0));

/// The current generation, in the high half.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// From now on no lock call takes a fast path that does not count it.
pub(crate) fn count_calls() {
    for expected in [&UNCOUNTED_MUTEX, &UNCOUNTED_RWLOCK, &UNCOUNTED_COND] {
        expected.set(NONE);
    }
}

/// From now on the entry points with the code of `shfl` serve normal mutexes.
pub(crate) fn recommend_mutex() {
    RECOMMENDED_MUTEX.set(UNCOUNTED_MUTEX.get());
}

/// The same for rwlocks and `bravo-2d-shfl-rw`.
pub(crate) fn recommend_rwlock() {
    RECOMMENDED_RWLOCK.set(UNCOUNTED_RWLOCK.get());
}

/// `low`, in the current generation.
pub(crate) fn stamped(low: u32) -> u32 {
    GENERATION.load(Relaxed) | low & LOW
}

/// The word of a new condition variable, which statistics have counted if they are on.
pub(crate) fn new_cond(low: u32) -> u32 {
    stamped(low | if UNCOUNTED_COND.exists() { 0 } else { COND_COUNTED })
}

/// Whether a kind or flags word is of the current generation, or of an object that is never repaired.
#[inline(always)]
pub(crate) fn is_current(word: u32) -> bool {
    (word ^ GENERATION.load(Relaxed)) & !LOW == 0 || word & IN_SHARED_MEMORY != 0
}

static REPAIRS: RawTtas<Native> = RawTtas::new();

/// Brings an object of an older generation up to date. If no other thread has done that yet, this calls
/// `mend` with the low half of the word; no other repair runs meanwhile.
#[cold]
pub(crate) fn repair(word: &AtomicU32, mend: impl FnOnce(u32)) {
    REPAIRS.lock();
    // (A) pairs with the store below: through the lock, or because a thread that has read the new word acquired it.
    let old = word.load(Acquire);
    if is_current(old) {
        // Another thread has repaired the object.
    } else if mapping::is_shared(core::ptr::from_ref(word).addr()) {
        // The object is the parent's too. From now on neither process takes the fast path.
        word.fetch_or(IN_SHARED_MEMORY, Relaxed);
    } else {
        // An object that was never used before the fork is all zero, and mending it changes nothing.
        mend(old & LOW);
        word.store(stamped(old), Release); // (A)
    }
    // SAFETY: taken above.
    unsafe { REPAIRS.unlock(()) };
}

/// In a thread that is about to fork: waits for a repair that is under way, and lets none begin.
pub(crate) fn before_fork() {
    REPAIRS.lock();
}

/// In the parent and in the child: repairs may begin again.
pub(crate) fn after_fork() {
    // The lock does not sleep, so the child finds no waiter in it.
    // SAFETY: this thread, or the one that it is a copy of, has taken it in `before_fork`.
    unsafe { REPAIRS.unlock(()) };
}

/// In the child, which has one thread: every object is of an older generation from now on. The number wraps after 65,536
/// nested forks.
pub(crate) fn begin() {
    GENERATION.fetch_add(LOW + 1, Relaxed);
    for expected in [&MUTEX, &UNCOUNTED_MUTEX, &RECOMMENDED_MUTEX] {
        expected.next_generation();
    }
    for expected in [&RWLOCK, &UNCOUNTED_RWLOCK, &RECOMMENDED_RWLOCK] {
        expected.next_generation();
    }
    UNCOUNTED_COND.next_generation();
}
