//! Fissile lock: a test-and-set word in front of CNA.
//!
//! Source: Dice and Kogan, "Fissile Locks", NETYS 2020 (arXiv 2003.05025), section 2.
//!
//! A thread that finds the outer word free takes it. The other threads queue at the inner lock. The holder of the inner lock,
//! the *alpha* thread, competes for the outer word, and leaves the inner lock once it has it. An alpha that has been passed
//! over for long becomes *impatient* (the paper's word): newcomers then go to the inner lock straight away.
//!
//! | state | becomes | moved by | pairs with |
//! |---|---|---|---|
//! | `outer` FREE | HELD | a swap by a newcomer or the alpha | (A) acquire; the store in `unlock` |
//! | `outer` HELD | FREE | the holder's store | (A) release |
//! | `impatient` 0 | 1 | the alpha after [`GRACE`] failures | none: a hint |
//! | `impatient` 1 | 0 | the same alpha, when it has the lock | none |
//!
//! Size: 16 bytes; 64 per waiter, from the machine's node pool; none per holder.
//! Atomics per uncontended pair: 1.
//! Fairness: newcomers pass until the alpha is impatient, and then once per holder at most. Among the others, the inner lock's
//! (CNA: FIFO per NUMA node, 1024 in a row).
//! Suspension: blocks. A suspended alpha keeps the inner lock from the waiters behind it.

use super::cna::RawCna;
use super::{ConstNew, Info, RawMutex, Suspension};
use crate::machine::{Machine, Native, Offers, Word};
use core::sync::atomic::{AtomicU32, Ordering::*};

const FREE: u32 = 0;
const HELD: u32 = 1;

/// Failures of the alpha, each after `LOOKS` loads of the outer word, after which it is impatient.
const GRACE: u32 = 32;
const LOOKS: u32 = 64;

/// Fissile lock. See the [module documentation](self).
pub struct RawFissile<M: Machine> {
    outer: M::U32,
    impatient: M::U32,
    inner: RawCna<M>,
}

impl RawFissile<Native> {
    /// An unlocked lock.
    pub const fn new() -> Self {
        RawFissile { outer: AtomicU32::new(FREE), impatient: AtomicU32::new(0), inner: RawCna::new() }
    }
}

const_new!(RawFissile<Native>);

impl<M: Machine> RawFissile<M> {
    fn try_outer(&self) -> bool {
        // (A) pairs with the store in `unlock`.
        self.outer.load(Relaxed) == FREE && M::acquire_swap(&self.outer, HELD) == FREE
    }

    #[cold]
    #[inline(never)]
    fn lock_slow(&self) {
        let token = self.inner.lock();
        let (mut looks, mut offers) = (0, Offers::new());
        while !self.try_outer() {
            if M::spin_for(&self.outer, Relaxed, LOOKS, |outer| outer == FREE).is_none() {
                offers.take::<M>(u64::MAX);
            }
            looks = u32::saturating_add(looks, 1);
            if looks == M::patience(GRACE) {
                self.impatient.store(1, Relaxed);
            }
        }
        if looks >= M::patience(GRACE) {
            self.impatient.store(0, Relaxed);
        }
        // SAFETY: acquired above. The lock is still there, because the caller holds it.
        unsafe { self.inner.unlock(token) };
    }
}

// SAFETY: only one swap can take the outer word from FREE to HELD; (A) orders the sections.
unsafe impl<M: Machine> RawMutex for RawFissile<M> {
    type Machine = M;
    type Token = ();
    const INFO: Info = Info {
        name: "fissile",
        summary: "test-and-set in front of CNA",
        atomics: 1,
        waiter_bytes: 64,
        holder_bytes: 0,
        fairness: "stealing until the head of the queue has waited for long; then as cna",
        blocking: false,
        suspension: Suspension::Blocks,
        source: "Dice and Kogan 2020, section 2",
    };

    fn new_in() -> Self {
        RawFissile { outer: M::U32::new(FREE), impatient: M::U32::new(0), inner: RawCna::new_in() }
    }

    #[inline]
    fn lock(&self) {
        if self.try_lock().is_none() {
            self.lock_slow();
        }
    }

    #[inline]
    fn try_lock(&self) -> Option<()> {
        (self.impatient.load(Relaxed) == 0 && self.try_outer()).then_some(())
    }

    #[inline]
    unsafe fn unlock(&self, (): ()) {
        // (A) the section happens before the next acquire.
        self.outer.store(FREE, Release);
    }

    fn is_locked(&self) -> bool {
        self.outer.load(Relaxed) != FREE
    }
}
