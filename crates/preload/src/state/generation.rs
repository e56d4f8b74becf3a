//! Fork generations: how a forked child comes to repair each object before it uses it.
//!
//! The child has one thread, but the queues of the locks that it inherits contain threads that it does not have. The child
//! cannot find all those locks, so it repairs each at its first use there. A global *generation* is increased in the child,
//! and every object carries the generation in which it was last used. A call that finds another one first drops the
//! object's waiters. An object from a static initialiser carries generation 0, so the child repairs it even if the parent
//! never used it; that changes nothing but the generation.
//!
//! The number has 16 bits and wraps after 65,536 nested forks. An object that was last used exactly that many forks ago
//! looks current, and keeps its waiters.
//!
//! The check costs nothing. A fast path compares the whole word of the object, kind and generation, with one expected word:
//! that of an object that needs no repair and no further look ([`Expected`]). The same comparison tells a normal mutex from
//! the other kinds.
//!
//! One lock serialises the repairs of all objects. A thread that forks holds it, so no child inherits a half-repaired
//! object. A signal handler that interrupts a repair may use other objects, and fork: the repair goes on when it returns.
//!
//! An object in memory that processes share is never mended, because another process may use it. The first process of
//! another generation that uses such an object finds out ([`mapping`]) and sets [`IN_SHARED_MEMORY`] in its word. From then
//! on every process considers the object current.
//!
//! # Orderings
//!
//! (A) A repair ends with a release store of the object's word. Every thread that uses the raw lock has loaded the word
//! with acquire before, on the fast paths too ([`Expected::is_in`]). So a thread that finds the new generation also finds
//! the repaired raw lock. Later changes of the word are read-modify-writes, which continue the release sequence, or are
//! made by `init` and `destroy`, which the program must order. On x86-64 an acquire load is an ordinary load.

use super::abi::{COND_COUNTED, IN_SHARED_MEMORY, LOW, RWLOCK_OURS, SERVED};
use super::alone::Alone;
use super::mapping;
use core::sync::atomic::{AtomicU32, Ordering::*};

/// The one value of an object's kind or flags word with which a fast path serves the object.
#[repr(transparent)]
pub(crate) struct Expected(AtomicU32);

/// A word that no object has: all flags of glibc's, but not those of a destroyed mutex.
const NONE: u32 = LOW;

impl Expected {
    #[inline(always)]
    pub(crate) fn get(&self) -> u32 {
        self.0.load(Relaxed)
    }

    /// Whether the object with the word at `word` may take the fast path. If so, the thread sees the raw lock as its repair
    /// has left it.
    #[inline(always)]
    pub(crate) fn is_in(&self, word: &AtomicU32) -> bool {
        self.is(word.load(Acquire)) // pairs with (A) in `repair`
    }

    /// The same for a word that the caller has loaded with acquire.
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

// What the names of these words say: the plain one is for functions that statistics do not count, which are the unlock
// functions. `_IF_UNCOUNTED` is for functions that they count: while statistics are on, no object has this word, so every
// call takes the slow path, which counts it. `_IF_RECOMMENDED` is for the entry points with the code of the recommended
// lock: no object has this word if another lock serves the family.

/// A normal mutex that this library has used.
pub(crate) static MUTEX_WORD: Expected = Expected(AtomicU32::new(SERVED));
/// The same while statistics do not count calls; otherwise no mutex.
pub(crate) static MUTEX_WORD_IF_UNCOUNTED: Expected = Expected(AtomicU32::new(SERVED));
/// The same if `shfl` serves mutexes and no observer is on: the entry points with its code compare with this.
pub(crate) static MUTEX_WORD_IF_RECOMMENDED: Expected = Expected(AtomicU32::new(NONE));

/// A rwlock that this library has claimed.
pub(crate) static RWLOCK_WORD: Expected = Expected(AtomicU32::new(RWLOCK_OURS));
/// The same while statistics do not count calls; otherwise no rwlock.
pub(crate) static RWLOCK_WORD_IF_UNCOUNTED: Expected = Expected(AtomicU32::new(RWLOCK_OURS));
/// The same if `bravo-2d-shfl-rw` serves rwlocks and no observer is on.
pub(crate) static RWLOCK_WORD_IF_RECOMMENDED: Expected = Expected(AtomicU32::new(NONE));
/// The same if `bravo-2d-glibc` serves them: its objects have the word at another place.
pub(crate) static RWLOCK_WORD_IF_OVER_GLIBC: Expected = Expected(AtomicU32::new(NONE));

/// A condition variable on the realtime clock while statistics do not count calls; otherwise none.
pub(crate) static COND_WORD_IF_UNCOUNTED: Expected = Expected(AtomicU32::new(0));

/// The current generation, in the high half.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// From now on no lock call takes a fast path that does not count it.
pub(crate) fn count_calls() {
    for expected in [&MUTEX_WORD_IF_UNCOUNTED, &RWLOCK_WORD_IF_UNCOUNTED, &COND_WORD_IF_UNCOUNTED] {
        expected.set(NONE);
    }
}

/// From now on the entry points with the code of `shfl` serve normal mutexes.
pub(crate) fn recommend_mutex() {
    MUTEX_WORD_IF_RECOMMENDED.set(MUTEX_WORD_IF_UNCOUNTED.get());
}

/// The same for rwlocks and `bravo-2d-shfl-rw`.
pub(crate) fn recommend_rwlock() {
    RWLOCK_WORD_IF_RECOMMENDED.set(RWLOCK_WORD_IF_UNCOUNTED.get());
}

/// The same for rwlocks and `bravo-2d-glibc`.
pub(crate) fn recommend_over_glibc() {
    RWLOCK_WORD_IF_OVER_GLIBC.set(RWLOCK_WORD_IF_UNCOUNTED.get());
}

/// From now on the entry points with the code of particular locks serve no object, or those again that they served before.
/// Other threads may use objects meanwhile.
pub(crate) fn suspend_recommended(suspend: bool) {
    /// A bit for each word that was in use.
    static SUSPENDED: AtomicU32 = AtomicU32::new(0);
    let words = [
        (&MUTEX_WORD_IF_RECOMMENDED, &MUTEX_WORD_IF_UNCOUNTED),
        (&RWLOCK_WORD_IF_RECOMMENDED, &RWLOCK_WORD_IF_UNCOUNTED),
        (&RWLOCK_WORD_IF_OVER_GLIBC, &RWLOCK_WORD_IF_UNCOUNTED),
    ];
    let mut suspended = SUSPENDED.load(Relaxed);
    for (bit, (recommended, usual)) in words.into_iter().enumerate() {
        if suspend && recommended.exists() {
            suspended |= 1 << bit;
            recommended.set(NONE);
        } else if !suspend && suspended & 1 << bit != 0 {
            suspended &= !(1 << bit);
            recommended.set(usual.get());
        }
    }
    SUSPENDED.store(suspended, Relaxed);
}

/// `low`, in the current generation.
pub(crate) fn stamped(low: u32) -> u32 {
    GENERATION.load(Relaxed) | low & LOW
}

/// The word of a new condition variable, which statistics have counted if they are on.
pub(crate) fn new_cond(low: u32) -> u32 {
    stamped(low | if COND_WORD_IF_UNCOUNTED.exists() { 0 } else { COND_COUNTED })
}

/// Whether a kind or flags word is of the current generation, or of an object that is never repaired.
#[inline(always)]
pub(crate) fn is_current(word: u32) -> bool {
    (word ^ GENERATION.load(Relaxed)) & !LOW == 0 || word & IN_SHARED_MEMORY != 0
}

static REPAIRS: Alone = Alone::new();

/// Whether a kind or flags word is of a generation that begins after the current one.
fn is_newer(word: u32) -> bool {
    word.wrapping_sub(GENERATION.load(Relaxed)).cast_signed() > LOW as i32
}

/// Brings an object of another generation up to date. If no other thread has done that yet, and no other process uses the
/// object, this calls `mend` with the low half of the word, in which [`IN_SHARED_MEMORY`] is not set. No other thread
/// repairs an object meanwhile.
#[cold]
pub(crate) fn repair(word: &AtomicU32, mend: impl FnOnce(u32)) {
    REPAIRS.run(|_| repair_alone(word, mend));
}

fn repair_alone(word: &AtomicU32, mend: impl FnOnce(u32)) {
    let old = word.load(Acquire);
    if is_newer(old) {
        // Another process has used the object, such as a forked child. The memory may be newer than the list of mappings.
        mapping::forget();
    }
    if is_current(old) {
        // Another thread has repaired the object.
    } else if mapping::is_shared(core::ptr::from_ref(word).addr()) {
        // Another process may use the object. From now on no process takes the fast path.
        word.fetch_or(IN_SHARED_MEMORY, Relaxed);
    } else {
        // An object that was never used before the fork is all zero, and mending it changes nothing.
        mend(old & LOW);
        word.store(stamped(old), Release); // (A) publishes what `mend` has written
    }
}

/// Runs `decide` while no other thread does so, and no repair runs. A thread that forks holds the same lock, so no child
/// finds a decision half made. `decide` calls nothing that may use a lock.
#[cold]
pub(crate) fn one_at_a_time<T>(decide: impl FnOnce() -> T) -> T {
    REPAIRS.run(|_| decide())
}

/// In a thread that is about to fork: waits for a repair that is under way, and lets none begin.
pub(crate) fn before_fork() {
    REPAIRS.before_fork();
}

/// In the parent and in the child: repairs may begin again.
pub(crate) fn after_fork() {
    REPAIRS.after_fork();
}

/// In the child, which has one thread: every object is of an older generation from now on.
pub(crate) fn begin() {
    GENERATION.fetch_add(LOW + 1, Relaxed);
    for expected in [&MUTEX_WORD, &MUTEX_WORD_IF_UNCOUNTED, &MUTEX_WORD_IF_RECOMMENDED] {
        expected.next_generation();
    }
    for expected in
        [&RWLOCK_WORD, &RWLOCK_WORD_IF_UNCOUNTED, &RWLOCK_WORD_IF_RECOMMENDED, &RWLOCK_WORD_IF_OVER_GLIBC]
    {
        expected.next_generation();
    }
    COND_WORD_IF_UNCOUNTED.next_generation();
}
