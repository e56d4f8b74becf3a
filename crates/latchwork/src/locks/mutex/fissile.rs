//! Fissile lock: a test-and-set word in front of CNA.
//!
//! Source: Dice and Kogan, "Fissile Locks", NETYS 2020 (arXiv 2003.05025), section 2.
//!
//! Who finds the outer word free takes it. The others queue at the inner lock, and its holder, the
//! *alpha* thread, competes for the outer word, and leaves the inner lock once it has it. An alpha that
//! has been passed over for long becomes *impatient*: then newcomers go to the inner lock straight away.
//!
//! Outer word: 0 free -> 1 held (a swap by a newcomer or the alpha) -> 0 (a store by the holder).
//! `impatient` 0 -> 1 -> 0, by the alpha.
//! Size: 16 bytes; 64 per waiter, from the machine's node pool; none per holder. Atomics per uncontended
//! pair: 1.
//! Suspension: a waiter that is suspended blocks others.
//! Fairness: newcomers pass until the alpha is impatient, once per holder at most then; the inner lock's
//! (CNA: FIFO per NUMA node, 1024 in a row) among the others.

use super::cna::RawCna;
use super::{ConstNew, Info, RawMutex, Suspension};
use crate::machine::{Machine, Native, Offers, Word};
use core::sync::atomic::{AtomicU32, Ordering::*};

const FREE: u32 = 0;
const HELD: u32 = 1;

/// Looks at the outer word, of 64 loads each, after which the alpha thread is impatient.
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

impl Default for RawFissile<Native> {
    fn default() -> Self {
        Self::new()
    }
}

impl ConstNew for RawFissile<Native> {
    #[allow(clippy::declare_interior_mutable_const)]
    const NEW: Self = Self::new();
}

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
            looks += 1;
            if looks == M::patience(GRACE) {
                self.impatient.store(1, Relaxed);
            }
        }
        if looks >= M::patience(GRACE) {
            self.impatient.store(0, Relaxed);
        }
        // SAFETY: acquired above. The lock is still there: we hold it.
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
        fairness: "stealing until the first in line is impatient; then as cna",
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
