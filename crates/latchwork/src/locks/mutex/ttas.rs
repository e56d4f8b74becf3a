//! Test-and-test-and-set with bounded exponential backoff.
//!
//! Source: Anderson 1990, section 3 (backoff); Rudolph and Segall 1984 (the test).
//!
//! A waiter reads the word until the lock looks free, and only then tries to take it. After a failure it pauses, each time
//! for longer up to a bound, and then also yields its processor. The lock is cheap without contention and unfair under it: a
//! waiter that pauses for long loses to a thread that has just come.
//!
//! | the word | becomes | moved by | pairs with |
//! |---|---|---|---|
//! | FREE | HELD | a swap by any thread | (A) acquire; the store in `unlock` |
//! | HELD | FREE | the holder's store | (A) release |
//!
//! Size: 4 bytes, none per waiter or holder.
//! Atomics per uncontended pair: 1.
//! Fairness: none. A waiter may be passed over for ever.
//! Suspension: tolerates. No thread waits for a particular waiter.

use super::{ConstNew, Info, RawMutex, Suspension};
use crate::locks::backoff::Backoff;
use crate::machine::{Machine, Native, Word};
use core::sync::atomic::{AtomicU32, Ordering::*};

const FREE: u32 = 0;
const HELD: u32 = 1;

/// Test-and-test-and-set lock. See the [module documentation](self).
pub struct RawTtas<M: Machine> {
    word: M::U32,
}

impl RawTtas<Native> {
    /// An unlocked lock.
    pub const fn new() -> Self {
        RawTtas { word: AtomicU32::new(FREE) }
    }
}

const_new!(RawTtas<Native>);

// SAFETY: only one swap can take the word from FREE to HELD; (A) orders the sections.
unsafe impl<M: Machine> RawMutex for RawTtas<M> {
    type Machine = M;
    type Token = ();
    const INFO: Info = Info {
        name: "ttas",
        summary: "test-and-test-and-set spinlock, bounded exponential backoff",
        atomics: 1,
        waiter_bytes: 0,
        holder_bytes: 0,
        fairness: "none",
        blocking: false,
        suspension: Suspension::Tolerates,
        source: "Anderson 1990, section 3",
    };

    fn new_in() -> Self {
        RawTtas { word: M::U32::new(FREE) }
    }

    #[inline]
    fn lock(&self) {
        let mut backoff = Backoff::default();
        while self.try_lock().is_none() {
            backoff.wait::<M>();
        }
    }

    #[inline]
    fn try_lock(&self) -> Option<()> {
        // (A) pairs with the store in `unlock`.
        (self.word.load(Relaxed) == FREE && M::acquire_swap(&self.word, HELD) == FREE).then_some(())
    }

    #[inline]
    unsafe fn unlock(&self, (): ()) {
        // (A) the section happens before the next acquire.
        self.word.store(FREE, Release);
    }

    fn is_locked(&self) -> bool {
        self.word.load(Relaxed) != FREE
    }
}
