//! Futex mutex.
//!
//! Source: Drepper, "Futexes are tricky", 2011, section 6 (`mutex2`).
//!
//! One word says whether the lock is held, and whether a thread may be asleep. Only in that case an unlock wakes a thread.
//! A newcomer takes the word whenever it is free.
//!
//! | from | to | by |
//! |---|---|---|
//! | FREE | HELD | a newcomer, which then holds the lock |
//! | HELD | CONTENDED | a waiter that is about to sleep |
//! | FREE | CONTENDED | a waiter that has spun or slept, and then holds the lock |
//! | HELD | FREE | the holder |
//! | CONTENDED | FREE | the holder, which then wakes one sleeper |
//!
//! Size: 4 bytes, none per waiter or holder. Atomics per uncontended pair: 2.
//! Fairness: none. Newcomers may pass a waiter for ever.

use latchwork::locks::mutex::{ConstNew, Info, RawMutex, Suspension};
use latchwork::machine::{Deadline, Machine, Native, Word};
use std::sync::atomic::{AtomicU32, Ordering::*};

const FREE: u32 = 0;
const HELD: u32 = 1;
const CONTENDED: u32 = 2;

/// Looks at the word before a waiter sleeps: a short section ends within so many.
const LOOKS: u32 = 100;

/// Futex mutex. See the [module documentation](self).
pub struct RawFutex<M: Machine> {
    word: M::U32,
}

impl ConstNew for RawFutex<Native> {
    #[allow(clippy::declare_interior_mutable_const)]
    const NEW: Self = RawFutex { word: AtomicU32::new(FREE) };
}

impl<M: Machine> RawFutex<M> {
    #[cold]
    fn lock_slow(&self, deadline: Option<Deadline>) -> bool {
        let free = M::spin_for(&self.word, Relaxed, LOOKS, |word| word == FREE);
        if free.is_some() && self.try_lock().is_some() {
            return true;
        }
        // (A) pairs with the exchange in `unlock`. From here on the word stays CONTENDED while this thread holds the
        // lock, because other threads may sleep.
        while self.word.swap(CONTENDED, Acquire) != FREE {
            if deadline.is_some_and(|deadline| deadline.passed::<M>()) {
                // A wake-up that this thread has used up is not lost: its CONTENDED makes the holder wake another.
                return false;
            }
            M::wait(&self.word, CONTENDED, deadline);
        }
        true
    }
}

// SAFETY: a thread acquires by the exchange that takes the word away from FREE, and until the next FREE there is only one
// such exchange. (A) orders the sections.
unsafe impl<M: Machine> RawMutex for RawFutex<M> {
    type Machine = M;
    type Token = ();
    const INFO: Info = Info {
        name: "futex",
        summary: "three-state futex mutex",
        atomics: 2,
        waiter_bytes: 0,
        holder_bytes: 0,
        fairness: "none",
        blocking: true,
        suspension: Suspension::Blocks,
        source: "Drepper 2011, section 6",
    };

    fn new_in() -> Self {
        RawFutex { word: M::U32::new(FREE) }
    }

    #[inline]
    fn lock(&self) {
        if self.try_lock().is_none() {
            self.lock_slow(None);
        }
    }

    #[inline]
    fn try_lock(&self) -> Option<()> {
        // (A) pairs with the exchange in `unlock`.
        self.word.compare_exchange(FREE, HELD, Acquire, Relaxed).ok().map(drop)
    }

    fn lock_until(&self, deadline: Deadline) -> Option<()> {
        (self.try_lock().is_some() || self.lock_slow(Some(deadline))).then_some(())
    }

    #[inline]
    unsafe fn unlock(&self, (): ()) {
        let word = &raw const self.word;
        // (A) pairs with the exchanges that acquire: the section happens before the next one.
        if self.word.swap(FREE, Release) == CONTENDED {
            // The next holder may have destroyed the lock already. `wake` uses only the address.
            M::wake(word, 1);
        }
    }

    fn is_locked(&self) -> bool {
        self.word.load(Relaxed) != FREE
    }
}
