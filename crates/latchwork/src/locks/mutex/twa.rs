//! TWA: ticket lock with a waiting array.
//!
//! Source: Dice and Kogan, "TWA: Ticket Locks Augmented with a Waiting Array", Euro-Par 2019, section 2, listing 1.
//!
//! The waiters of a ticket lock all spin on one word, and each handover takes it away from all of them. Here only the thread
//! that is next does. A waiter further behind waits at a place of an array that all locks share, which it finds by hashing
//! the lock and its ticket, until that place changes. A holder that releases the lock notifies the place of the thread that
//! is next but one, which then waits at the lock.
//!
//! | word | changed by | pairs with |
//! |---|---|---|
//! | `next`: tickets drawn | an arriving thread adds one | nothing; the ticket decides the order |
//! | `serving`: the ticket that holds the lock, or will be the next to | the holder, on release | (A) release; the acquire load of the thread with that ticket |
//! | a place's `notices` | a holder, on release, adds one | (W) release; the acquire load of a waiter at the place |
//!
//! Several waiters may share a place. A notice for another waiter costs them one look at `serving`.
//!
//! Size: 8 bytes, none per waiter or holder; per process, the waiting array.
//! Atomics per uncontended pair: 2 (two additions).
//! Fairness: FIFO. More than 2^32 - 1 simultaneous waiters would break it, and so would exactly 2^32 acquisitions (or a multiple)
//! while an attempt is stopped between its two steps: a minute at least.
//! Suspension: blocks. A suspended waiter keeps the lock from all later tickets.
//!
//! Where it differs from the paper: places are 64 bytes apart, not 8, and successive tickets go to successive places.

use super::{ConstNew, Info, RawMutex, Suspension};
use crate::machine::{Arith, Machine, Native, Word, node_view, shared};
use core::sync::atomic::{AtomicU32, Ordering::*};

/// A waiter with at most so many tickets before its own waits at the lock (`LongTermThreshold`).
const NEAR: u32 = 1;

/// TWA lock. See the [module documentation](self).
pub struct RawTwa<M: Machine> {
    next: M::U32,
    serving: M::U32,
}

impl RawTwa<Native> {
    /// An unlocked lock.
    pub const fn new() -> Self {
        RawTwa { next: AtomicU32::new(0), serving: AtomicU32::new(0) }
    }
}

const_new!(RawTwa<Native>);

node_view! {
    /// A place of the waiting array.
    struct Place {
        /// How many notifications it has had. Waiters look for a change.
        notices: words[1],
    }
}

impl<M: Machine> RawTwa<M> {
    /// Where the owner of `ticket` waits while it is far from its turn.
    fn place(&self, ticket: u32) -> Option<&'static M::U32> {
        let array = shared::waiting_array::<M>();
        let lock = M::identity(core::ptr::from_ref(self).addr()) >> 3;
        let lock = (lock as u32).wrapping_mul(0x9e37_79b9) >> 8;
        let mask = array.len().wrapping_sub(1);
        array.get(lock.wrapping_add(ticket) as usize & mask).map(|node| Place(node).notices())
    }

    #[cold]
    #[inline(never)]
    fn wait(&self, ticket: u32) {
        if let Some(place) = self.place(ticket) {
            let far = || ticket.wrapping_sub(self.serving.load(Acquire)) > NEAR;
            // (W) pairs with the addition in `unlock`. The waiter reads the place before the lock, so a notice that it has
            // missed at the place shows in the lock.
            let mut seen = place.load(Acquire);
            while far() {
                seen = M::spin_until(place, Acquire, |now| now != seen);
            }
        }
        // (A) pairs with the store in `unlock`.
        M::spin_until(&self.serving, Acquire, |serving| serving == ticket);
    }
}

// SAFETY: each ticket is drawn once and served once; (A) orders the sections.
unsafe impl<M: Machine> RawMutex for RawTwa<M> {
    type Machine = M;
    type Token = ();
    const INFO: Info = Info {
        name: "twa",
        summary: "ticket lock whose waiters wait in a shared array until they are next",
        atomics: 2,
        waiter_bytes: 0,
        holder_bytes: 0,
        fairness: "FIFO",
        blocking: false,
        suspension: Suspension::Blocks,
        source: "Dice and Kogan 2019 (TWA), listing 1",
    };

    fn new_in() -> Self {
        RawTwa { next: M::U32::new(0), serving: M::U32::new(0) }
    }

    #[inline]
    fn lock(&self) {
        let ticket = self.next.fetch_add(1, Relaxed);
        // (A) pairs with the store in `unlock`.
        if self.serving.load(Acquire) != ticket {
            self.wait(ticket);
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
        // Only the holder writes `serving`.
        let serving = self.serving.load(Relaxed).wrapping_add(1);
        let place = self.place(serving.wrapping_add(NEAR));
        // (A) the section happens before the next acquire. The lock may be gone after this.
        self.serving.store(serving, Release);
        if let Some(place) = place {
            place.fetch_add(1, Release); // (W)
        }
    }

    fn is_locked(&self) -> bool {
        self.next.load(Relaxed) != self.serving.load(Relaxed)
    }
}
