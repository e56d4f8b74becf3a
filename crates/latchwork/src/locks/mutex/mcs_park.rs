//! MCS queue lock whose waiters park.
//!
//! Source: the lock is that of [`mcs`](super::mcs). Spinning for a while and then parking: Dice, "Malthusian Locks",
//! EuroSys 2017, section 5 (MCS-STP).
//!
//! A waiter spins on its node, and then parks there until its predecessor unparks it. The lock shows what blocking locks
//! must avoid: the order is strict, so once waiters park, each handover is a wakeup.
//!
//! | state | becomes | moved by | pairs with |
//! |---|---|---|---|
//! | `tail` and `next` | as in [`mcs`](super::mcs) | | (A), (C), (D) |
//! | `status` WAITING | PARKED | the waiter, after its spin | none; the waiter looks again |
//! | `status` WAITING or PARKED | GRANTED; a parked waiter is unparked | the holder, `grant` | (B) release; the waiter's acquire |
//! | `status` PARKED | WAITING, unparked | the holder (in [`cst`](super::cst) only), `rouse` | none |
//!
//! Size: 8 bytes; 64 per waiter and 64 per holder, from the machine's node pool.
//! Atomics per uncontended pair: 2 (swap, compare-and-exchange).
//! Fairness: FIFO.
//! Suspension: blocks. A suspended waiter keeps the lock from the waiters behind it, and from newcomers.
//!
//! `await_grant`, `grant`, `rouse` and `is_parked` work on a `status` word alone. [`cst`](super::cst) and
//! [`malthusian`](super::malthusian) use them for nodes of their own.

use super::local::Local;
use super::{ConstNew, Info, RawMutex, Suspension, queue};
use crate::machine::{Clock, Machine, Native, QNode, Word, node_view};
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicPtr, Ordering::*};

pub(super) const WAITING: u32 = 0;
const PARKED: u32 = 1;
const GRANTED: u32 = 2;

/// Looks of a waiter at its node before it parks: some 20 microseconds, twice what a wakeup takes.
const LOOKS: u32 = 1024;

/// Rounds of spinning, some 20 milliseconds, after which a waiter parks though no other thread wants its processor.
const IDLE_ROUNDS: u32 = 1024;
/// Nanoseconds of a `sched_yield` that show that another thread had the processor meanwhile: the system call alone takes
/// less.
const TAKEN: u64 = 5_000;

/// Parking MCS lock. A waiter parks when another thread has wanted its processor `ROUNDS` times. See the [module documentation](self).
pub struct RawMcsPark<M: Machine, const ROUNDS: u32 = 1> {
    tail: M::Ptr<QNode<M>>,
}

impl<const ROUNDS: u32> RawMcsPark<Native, ROUNDS> {
    /// An unlocked lock.
    pub const fn new() -> Self {
        RawMcsPark { tail: AtomicPtr::new(null_mut()) }
    }
}

const_new!(RawMcsPark<Native, ROUNDS>, const ROUNDS: u32);

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

/// Waits for [`grant`]: spins, and then parks. With several `rounds` it parks only after another thread has taken its
/// processor so many times, when it was offered, or after [`IDLE_ROUNDS`] offers.
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
                _ => break, // `rouse` has unparked it: it spins again
            };
        }
    }
}

/// Unparks a waiter before its turn, if it has parked: it spins again.
pub(super) fn rouse<M: Machine>(status: &M::U32) {
    if status.compare_exchange(PARKED, WAITING, Relaxed, Relaxed).is_ok() {
        M::wake(status, 1);
    }
}

/// Whether the waiter has parked.
pub(super) fn is_parked<M: Machine>(status: &M::U32) -> bool {
    status.load(Relaxed) == PARKED
}

/// Hands the lock over. (B) the section happens before the successor's.
///
/// # Safety
///
/// `status` is that of a thread that waits for the lock, which the caller holds and gives up with this call.
pub(super) unsafe fn grant<M: Machine>(status: *const M::U32) {
    // SAFETY: a waiter keeps its node at least until it has been granted the lock. The node may be another thread's when the
    // wake comes, which uses the address only.
    if unsafe { (*status).swap(GRANTED, Release) } == PARKED {
        M::wake(status, 1);
    }
}

// SAFETY: a thread enters when its swap finds the queue empty (A), or when its predecessor, which then leaves, grants it the
// lock (B). Each waiter is granted the lock once.
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
        // Acquire: (A) pairs with the exchange in `unlock`. Release: (C) the successor finds this node initialised.
        let before = self.tail.swap(node.as_ptr(), AcqRel);
        if !before.is_null() {
            // SAFETY: the predecessor keeps its node until it has granted us the lock, and for that it waits for `next`.
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
        // (A) the section happens before that of the thread that finds the queue empty.
        if !next.is_null() || self.tail.compare_exchange(node.as_ptr(), null_mut(), Release, Relaxed).is_err()
        {
            if next.is_null() {
                // The successor has swapped `tail` but has not linked itself yet.
                next = M::spin_until(node.next(), Acquire, |next: *mut QNode<M>| !next.is_null());
            }
            // SAFETY: `next` waits behind the caller, which is the holder.
            unsafe { grant::<M>(Node::at(next).status()) };
        }
        // SAFETY: no other thread can reach the node any more: it is not the tail, and the successor has linked itself.
        unsafe { M::release_node(node.0) };
    }

    fn is_locked(&self) -> bool {
        !self.tail.load(Relaxed).is_null()
    }
}

impl<M: Machine, const ROUNDS: u32> Local for RawMcsPark<M, ROUNDS> {
    unsafe fn has_waiters(&self, token: Self::Token) -> bool {
        // SAFETY: the token is from an acquisition that has not ended, says the caller: it is the holder's node.
        let node = unsafe { Node::at(token.as_ptr()) };
        !node.next().load(Relaxed).is_null() || self.tail.load(Relaxed) != node.as_ptr()
    }
}
