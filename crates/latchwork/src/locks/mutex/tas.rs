//! Test-and-set.
//!
//! Source: Anderson 1990, section 2; `TAS` in the ShflLock paper, table 1.
//!
//! A thread swaps HELD into the word until the swap returns FREE. Every attempt takes the cache line exclusively, so waiters
//! slow the holder's release down. This is the baseline for all other locks.
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

const_new!(RawTas<Native>);

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
            failures = (failures + 1) % PATIENCE;
            if failures == 0 {
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
