//! Ticket lock.
//!
//! Source: Mellor-Crummey and Scott 1991, section 2.2 (after Reed and Kanodia 1979).
//!
//! A thread draws a ticket and waits until its number is served. Threads get the lock strictly in the order in which they
//! came, and all waiters spin on one word. With more threads than processors, the thread whose turn it is often does not run,
//! and all other threads wait for it.
//!
//! With [`RawTicketBackoff`], a waiter pauses between two looks for a time in proportion to the number of threads before it
//! (the same paper, section 2.2: "proportional backoff"), so most waiters leave the word alone most of the time.
//!
//! | word | changed by | pairs with |
//! |---|---|---|
//! | `next`: tickets drawn | an arriving thread adds one | nothing; the ticket decides the order |
//! | `serving`: the ticket that holds the lock, or will be the next to | the holder, on release, adds one | (A) release; the acquire load of the thread with that ticket |
//!
//! The lock is free when the two are equal.
//!
//! Size: 8 bytes, none per waiter or holder.
//! Atomics per uncontended pair: 1.
//! Fairness: FIFO. More than 2^32 - 1 simultaneous waiters would break it, and so would exactly 2^32 acquisitions (or a multiple)
//! while an attempt is stopped between its two steps: a minute at least.
//! Suspension: blocks. A suspended waiter keeps the lock from all later tickets.

use super::local::Local;
use super::{ConstNew, Fair, Info, RawMutex, Suspension};
use crate::machine::{Arith, Machine, Native, Offers, Word};
use core::sync::atomic::{AtomicU32, Ordering::*};

/// Spin hints per thread before the waiter, if it backs off: about as long as a short section and its handover.
const PAUSE: u32 = 8;
/// Pauses after which a waiter that backs off offers its processor to other threads.
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

const_new!(RawTicket<Native, BACKOFF>, const BACKOFF: bool);

impl<M: Machine, const BACKOFF: bool> RawTicket<M, BACKOFF> {
    fn wait(&self, ticket: u32, mut serving: u32) {
        let (mut pauses, mut offers) = (0, Offers::new());
        while serving != ticket {
            M::pause(ticket.wrapping_sub(serving).saturating_mul(PAUSE));
            pauses = (pauses + 1) % PATIENCE;
            if pauses == 0 {
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
        // (A) pairs with the store in `unlock` of the section before.
        let serving = self.serving.load(Acquire);
        // The exchange succeeds only if `serving` is the next ticket to be drawn. Then it is served already.
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
    unsafe fn has_waiters(&self, (): ()) -> bool {
        self.next.load(Relaxed).wrapping_sub(self.serving.load(Relaxed)) > 1
    }
}
