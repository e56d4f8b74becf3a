//! Test-and-set.
//!
//! Source: Anderson 1990, section 2; `TAS` in the ShflLock paper, Table 1.
//!
//! A swap until it returns "free". Every attempt takes the cache line exclusively, so waiters slow
//! the holder's release down: the baseline that every other lock is measured against.
//!
//! State: 0 free -> 1 held (a swap by anybody) -> 0 (a store by the holder).
//! Size: 4 bytes, none per waiter or holder. Atomics per uncontended pair: 1.
//! Suspension: tolerates; nobody waits for a certain waiter.
//! Fairness: none; a waiter may be passed over for ever.

use super::{ConstNew, Info, RawMutex, Suspension};
use crate::machine::{Machine, Native, Offers, Word};
use core::sync::atomic::{AtomicU32, Ordering::*};

const FREE: u32 = 0;
const HELD: u32 = 1;
/// Failed swaps before the waiter offers its processor to other threads.
const PATIENCE: u32 = 512;

/// Test-and-set lock. See the [module documentation](self).
pub struct RawTas<M: Machine> {
    word: M::U32,
}

impl RawTas<Native> {
    /// An unlocked lock.
    pub const fn new() -> Self {
        RawTas { word: AtomicU32::new(FREE) }
    }
}

impl Default for RawTas<Native> {
    fn default() -> Self {
        Self::new()
    }
}

impl ConstNew for RawTas<Native> {
    #[allow(clippy::declare_interior_mutable_const)]
    const NEW: Self = Self::new();
}

// SAFETY: only one swap can take the word from FREE to HELD; (A) orders the sections.
unsafe impl<M: Machine> RawMutex for RawTas<M> {
    type Machine = M;
    type Token = ();
    const INFO: Info = Info {
        name: "tas",
        summary: "test-and-set spinlock",
        atomics: 1,
        waiter_bytes: 0,
        holder_bytes: 0,
        fairness: "none",
        blocking: false,
        suspension: Suspension::Tolerates,
        source: "Anderson 1990, section 2",
    };

    fn new_in() -> Self {
        RawTas { word: M::U32::new(FREE) }
    }

    #[inline]
    fn lock(&self) {
        let (mut failures, mut offers) = (0, Offers::new());
        while self.try_lock().is_none() {
            M::pause(1);
            failures += 1;
            if failures % PATIENCE == 0 {
                offers.take::<M>(u64::MAX);
            }
        }
    }

    #[inline]
    fn try_lock(&self) -> Option<()> {
        // (A) pairs with the store in `unlock`.
        (M::acquire_swap(&self.word, HELD) == FREE).then_some(())
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
