//! MCS queue lock whose waiters sleep.
//!
//! Source: the lock is that of [`mcs`](super::mcs); spinning for a while and then parking: Dice,
//! "Malthusian Locks", EuroSys 2017, section 5 (MCS-STP).
//!
//! A waiter spins on its node, and then sleeps there until its predecessor wakes it. Strict order makes
//! it the example of what blocking locks avoid: once waiters sleep, each handover is a wakeup.
//!
//! Node (`status`): WAITING -> PARKED (itself, after a spin) -> GRANTED, from either, by the predecessor.
//! Size: 8 bytes; 64 per waiter and 64 per holder, from the machine's node pool. Atomics per
//! uncontended pair: 2 (swap, compare-and-exchange).
//! Suspension: a waiter that is suspended blocks others.
//! Fairness: FIFO.

use super::local::Local;
use super::{ConstNew, Info, RawMutex, Suspension, queue};
use crate::machine::{Clock, Machine, Native, QNode, Word, node_view};
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicPtr, Ordering::*};

pub(super) const WAITING: u32 = 0;
const PARKED: u32 = 1;
const GRANTED: u32 = 2;

/// Looks at its node before a waiter sleeps: some 20 microseconds, twice what a wakeup takes.
const LOOKS: u32 = 1024;

/// Rounds of spinning, some 20 milliseconds, after which a waiter sleeps though its processor is idle.
const IDLE_ROUNDS: u32 = 1024;
/// Nanoseconds after which an offer of the processor has come back from another thread: more than the
/// system call takes.
const TAKEN: u64 = 5_000;

/// Parking MCS lock, whose waiters spin for so many rounds. See the [module documentation](self).
pub struct RawMcsPark<M: Machine, const ROUNDS: u32 = 1> {
    tail: M::Ptr<QNode<M>>,
}

impl<const ROUNDS: u32> RawMcsPark<Native, ROUNDS> {
    /// An unlocked lock.
    pub const fn new() -> Self {
        RawMcsPark { tail: AtomicPtr::new(null_mut()) }
    }
}

impl<const ROUNDS: u32> Default for RawMcsPark<Native, ROUNDS> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const ROUNDS: u32> ConstNew for RawMcsPark<Native, ROUNDS> {
    #[allow(clippy::declare_interior_mutable_const)]
    const NEW: Self = Self::new();
}

node_view! {
    /// A queue node.
    struct Node {
        /// The successor, once it has linked itself.
        next: links[0],
        /// WAITING, PARKED or GRANTED; the owner spins and parks here.
        status: words[0],
    }
}

fn fresh_node<M: Machine>() -> Node<'static, M> {
    let node = Node(M::acquire_node());
    node.next().store(null_mut(), Relaxed);
    node.status().store(WAITING, Relaxed);
    node
}

/// Waits for [`grant`]: spins, and then sleeps; with several `rounds`, not before it has offered its
/// processor so many times to another thread that took it, or [`IDLE_ROUNDS`] times in all.
pub(super) fn await_grant<M: Machine>(status: &M::U32, rounds: u32) {
    loop {
        let mut taken = 0;
        for round in 1.. {
            // (B) pairs with the swap in `grant`.
            if M::spin_for(status, Acquire, LOOKS, |status| status == GRANTED).is_some() {
                return;
            }
            if round >= M::patience(if rounds > 1 { IDLE_ROUNDS } else { 1 }) {
                break;
            }
            let start = M::now(Clock::Monotonic);
            M::yield_now();
            taken += u32::from(M::now(Clock::Monotonic).saturating_sub(start) > TAKEN);
            if taken >= rounds {
                break;
            }
        }
        if status.compare_exchange(WAITING, PARKED, Relaxed, Acquire).is_err() {
            return;
        }
        loop {
            match status.load(Acquire) {
                PARKED => M::wait(status, PARKED, None),
                GRANTED => return,
                _ => break, // roused
            };
        }
    }
}

/// Wakes a sleeper before its turn, to spin again.
///
/// # Safety
///
/// `waiter` waits for the lock, which the caller holds.
pub(super) fn rouse<M: Machine>(status: &M::U32) {
    if status.compare_exchange(PARKED, WAITING, Relaxed, Relaxed).is_ok() {
        M::wake(status, 1);
    }
}

/// Whether it has gone to sleep.
pub(super) fn is_parked<M: Machine>(status: &M::U32) -> bool {
    status.load(Relaxed) == PARKED
}

/// Hands the lock over, with a count. (B) the section happens before the successor's.
///
/// # Safety
///
/// `next` waits for the lock, which the caller holds and gives up with this call.
pub(super) unsafe fn grant<M: Machine>(status: *const M::U32) {
    // SAFETY: a waiter's node stays at least until it has been granted the lock. The node may be another thread's when the wake comes, which uses its address only.
    if unsafe { (*status).swap(GRANTED, Release) } == PARKED {
        M::wake(status, 1);
    }
}

// SAFETY: the queue orders all acquisitions and each is granted once, by its predecessor (B) or by
// finding the queue empty (A).
unsafe impl<M: Machine, const ROUNDS: u32> RawMutex for RawMcsPark<M, ROUNDS> {
    type Machine = M;
    type Token = NonNull<QNode<M>>;
    const INFO: Info = Info {
        name: "mcs-park",
        summary: "MCS queue lock whose waiters spin, then sleep",
        atomics: 2,
        waiter_bytes: 64,
        holder_bytes: 64,
        fairness: "FIFO",
        blocking: true,
        suspension: Suspension::Blocks,
        source: "Dice 2017, section 5 (MCS-STP)",
    };

    fn new_in() -> Self {
        RawMcsPark { tail: M::Ptr::new(null_mut()) }
    }

    #[inline]
    fn lock(&self) -> Self::Token {
        let node = fresh_node::<M>();
        // Acquire: (A) pairs with the exchange in `unlock`; release: (C) our successor finds our
        // node initialised.
        let before = self.tail.swap(node.as_ptr(), AcqRel);
        if !before.is_null() {
            // SAFETY: the predecessor stays until it has granted us the lock, which needs `next`.
            // (D) pairs with the loads in `unlock`.
            unsafe { Node::at(before).next().store(node.as_ptr(), Release) };
            await_grant::<M>(node.status(), ROUNDS); // (B)
        }
        NonNull::from(node.0)
    }

    #[inline]
    fn try_lock(&self) -> Option<Self::Token> {
        // (A), (C) as in `lock`.
        queue::attempt(&self.tail, || fresh_node().0)
    }

    #[inline]
    unsafe fn unlock(&self, token: Self::Token) {
        // SAFETY: the token is the holder's node.
        let node = unsafe { Node::at(token.as_ptr()) };
        let mut next = node.next().load(Acquire); // (D)
        // (A) the section happens before whoever finds the queue empty.
        if !next.is_null() || self.tail.compare_exchange(node.as_ptr(), null_mut(), Release, Relaxed).is_err()
        {
            if next.is_null() {
                // A successor has swapped the tail but not linked itself yet.
                next = M::spin_until(node.next(), Acquire, |next: *mut QNode<M>| !next.is_null());
            }
            // SAFETY: it waits behind us, and we are the holder.
            unsafe { grant::<M>(Node::at(next).status()) };
        }
        // SAFETY: nobody knows our node any more: it is not the tail, and our successor is linked.
        unsafe { M::release_node(node.0) };
    }

    fn is_locked(&self) -> bool {
        !self.tail.load(Relaxed).is_null()
    }
}

impl<M: Machine, const ROUNDS: u32> Local for RawMcsPark<M, ROUNDS> {
    fn has_waiters(&self, token: Self::Token) -> bool {
        // SAFETY: the token is the holder's node.
        let node = unsafe { Node::at(token.as_ptr()) };
        !node.next().load(Relaxed).is_null() || self.tail.load(Relaxed) != node.as_ptr()
    }
}
