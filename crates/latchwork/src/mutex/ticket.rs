//! Ticket lock.
//!
//! Source: Mellor-Crummey and Scott 1991, section 2.2 (after Reed and Kanodia 1979).
//!
//! Take a number, wait until it is served. Strictly first come, first served, and all waiters spin
//! on one word. With more threads than cores the next in line is often not running, and everybody
//! waits for it.
//!
//! State: `next` counts arrivals, `serving` counts releases; the lock is free when they are equal.
//! Size: 8 bytes, none per waiter or holder. Atomics per uncontended pair: 1.
//! Fairness: FIFO. More than 2^32 - 1 simultaneous waiters would break it.

use super::stacked::Local;
use super::{ConstNew, Info, RawMutex};
use crate::machine::{Arith, Machine, Native, Word};
use core::sync::atomic::{AtomicU32, Ordering::*};

/// Ticket lock. See the [module documentation](self).
pub struct RawTicket<M: Machine> {
    next: M::U32,
    serving: M::U32,
}

impl RawTicket<Native> {
    /// An unlocked lock.
    pub const fn new() -> Self {
        RawTicket { next: AtomicU32::new(0), serving: AtomicU32::new(0) }
    }
}

impl Default for RawTicket<Native> {
    fn default() -> Self {
        Self::new()
    }
}

impl ConstNew for RawTicket<Native> {
    #[allow(clippy::declare_interior_mutable_const)]
    const NEW: Self = Self::new();
}

// SAFETY: each ticket is drawn once and served once; (A) orders the sections.
unsafe impl<M: Machine> RawMutex for RawTicket<M> {
    type Machine = M;
    type Token = ();
    const INFO: Info = Info {
        name: "ticket",
        summary: "ticket spinlock",
        atomics: 1,
        waiter_bytes: 0,
        holder_bytes: 0,
        fairness: "FIFO",
        blocking: false,
        source: "Mellor-Crummey and Scott 1991, section 2.2",
    };

    fn new_in() -> Self {
        RawTicket { next: M::U32::new(0), serving: M::U32::new(0) }
    }

    #[inline]
    fn lock(&self) {
        let ticket = self.next.fetch_add(1, Relaxed);
        // (A) pairs with the store in `unlock`.
        if self.serving.load(Acquire) != ticket {
            M::spin_until(&self.serving, Acquire, |serving| serving == ticket);
        }
    }

    #[inline]
    fn try_lock(&self) -> Option<()> {
        // (A) pairs with the store in `unlock`: the section before is the one that served us.
        let serving = self.serving.load(Acquire);
        // Nobody can draw `serving` unless it is next, so success means that it is our turn.
        self.next.compare_exchange(serving, serving.wrapping_add(1), Relaxed, Relaxed).ok().map(drop)
    }

    #[inline]
    unsafe fn unlock(&self, (): ()) {
        // Only the holder writes `serving`. (A) the section happens before the next acquire.
        let serving = self.serving.load(Relaxed);
        self.serving.store(serving.wrapping_add(1), Release);
    }

    fn is_locked(&self) -> bool {
        self.next.load(Relaxed) != self.serving.load(Relaxed)
    }
}

impl<M: Machine> Local for RawTicket<M> {
    fn has_waiters(&self, (): ()) -> bool {
        self.next.load(Relaxed).wrapping_sub(self.serving.load(Relaxed)) > 1
    }
}
