//! Ticket lock.
//!
//! Source: Mellor-Crummey and Scott 1991, section 2.2 (after Reed and Kanodia 1979).
//!
//! Take a number, wait until it is served. Strictly first come, first served, and all waiters spin
//! on one word. With more threads than cores the next in line is often not running, and everybody
//! waits for it.
//!
//! With [`RawTicketBackoff`], a waiter looks again after a pause in proportion to the number of those
//! before it (the same paper, section 2.2: "proportional backoff"), so that most waiters leave the word
//! alone most of the time.
//!
//! State: `next` counts arrivals, `serving` counts releases; the lock is free when they are equal.
//! Size: 8 bytes, none per waiter or holder. Atomics per uncontended pair: 1.
//! Suspension: a waiter that is suspended blocks others.
//! Fairness: FIFO. More than 2^32 - 1 simultaneous waiters would break it.

use super::local::Local;
use super::{ConstNew, Fair, Info, RawMutex, Suspension};
use crate::machine::{Arith, Machine, Native, Offers, Word};
use core::sync::atomic::{AtomicU32, Ordering::*};

/// Spin hints per waiter before oneself, of who backs off: a short section and its handover.
const PAUSE: u32 = 8;
/// Pauses after which it offers its processor to other threads.
const PATIENCE: u32 = 32;

/// Ticket lock with proportional backoff.
pub type RawTicketBackoff<M> = RawTicket<M, true>;

/// Ticket lock. See the [module documentation](self).
pub struct RawTicket<M: Machine, const BACKOFF: bool = false> {
    next: M::U32,
    serving: M::U32,
}

impl<const BACKOFF: bool> RawTicket<Native, BACKOFF> {
    /// An unlocked lock.
    pub const fn new() -> Self {
        RawTicket { next: AtomicU32::new(0), serving: AtomicU32::new(0) }
    }
}

impl<const BACKOFF: bool> Default for RawTicket<Native, BACKOFF> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const BACKOFF: bool> ConstNew for RawTicket<Native, BACKOFF> {
    #[allow(clippy::declare_interior_mutable_const)]
    const NEW: Self = Self::new();
}

impl<M: Machine, const BACKOFF: bool> RawTicket<M, BACKOFF> {
    fn wait(&self, ticket: u32, mut serving: u32) {
        let (mut pauses, mut offers) = (0, Offers::new());
        while serving != ticket {
            M::pause(ticket.wrapping_sub(serving).saturating_mul(PAUSE));
            pauses += 1;
            if pauses % PATIENCE == 0 {
                offers.take::<M>(u64::MAX);
            }
            serving = self.serving.load(Acquire); // (A)
        }
    }
}

// SAFETY: each ticket is drawn once and served once; (A) orders the sections.
unsafe impl<M: Machine, const BACKOFF: bool> RawMutex for RawTicket<M, BACKOFF> {
    type Machine = M;
    type Token = ();
    const INFO: Info = Info {
        name: if BACKOFF { "ticket-backoff" } else { "ticket" },
        summary: if BACKOFF { "ticket spinlock, proportional backoff" } else { "ticket spinlock" },
        atomics: 1,
        waiter_bytes: 0,
        holder_bytes: 0,
        fairness: "FIFO",
        blocking: false,
        suspension: Suspension::Blocks,
        source: "Mellor-Crummey and Scott 1991, section 2.2",
    };

    fn new_in() -> Self {
        RawTicket { next: M::U32::new(0), serving: M::U32::new(0) }
    }

    #[inline]
    fn lock(&self) {
        let ticket = self.next.fetch_add(1, Relaxed);
        // (A) pairs with the store in `unlock`.
        let serving = self.serving.load(Acquire);
        if serving != ticket && BACKOFF {
            self.wait(ticket, serving);
        } else if serving != ticket {
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

impl<M: Machine, const BACKOFF: bool> Fair for RawTicket<M, BACKOFF> {}

impl<M: Machine, const BACKOFF: bool> Local for RawTicket<M, BACKOFF> {
    fn has_waiters(&self, (): ()) -> bool {
        self.next.load(Relaxed).wrapping_sub(self.serving.load(Relaxed)) > 1
    }
}
