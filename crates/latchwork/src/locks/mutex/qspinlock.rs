//! Queued spinlock of the Linux kernel: an MCS lock in 4 bytes.
//!
//! Source: Linux, `kernel/locking/qspinlock.c` (W. Long, P. Zijlstra), 2015 on.
//!
//! The tail of the queue is a number, not a pointer. The first waiter does not queue, but sets *pending* and spins on the
//! lock word. Only the second waiter and later ones take a node.
//!
//! The word is (tail, pending, locked), where 0 stands for none:
//!
//! | from | to | moved by | pairs with |
//! |---|---|---|---|
//! | (0, 0, 0) | (0, 0, 1) | a newcomer | (A) acquire; `unlock` |
//! | (0, 0, 1) | (0, 1, 1) | the first waiter | |
//! | (0, 1, 0) | (0, 0, 1) | the same waiter, after the holder has released | (A) acquire |
//! | (x, p, l) | (n, p, l) | an arriving waiter: its node is n, behind x if there is one | (C): nodes are initialised |
//! | (n, 0, 0) | (0, 0, 1), or (x, 0, 1) if x is behind | the head of the queue | (A) acquire |
//! | (x, p, 1) | (x, p, 0) | the holder | (A) release |
//!
//! | a node's word | becomes | moved by | pairs with |
//! |---|---|---|---|
//! | `taken` 0 | 1, and 0 again | the thread that uses the node | (G) |
//! | `status` WAITING | HEAD | the head before | (R) release; the waiter's acquire |
//! | `next` | the next waiter's node | that waiter | (D) release; the head's acquire |
//!
//! Size: 4 bytes; 64 per waiter from the second on, in the waiting array; none per holder.
//! Atomics per uncontended pair: 2.
//! Fairness: FIFO. A newcomer can pass while at most one thread waits.
//! Suspension: blocks. A suspended waiter keeps the lock from the waiters behind it, and from newcomers.
//!
//! Where it differs from Linux:
//! - A node is not a processor's own, because a thread can be preempted here. A thread takes a node of the waiting array for
//!   as long as it queues. If none is free, it spins on the word, out of turn.
//! - The release is an atomic subtraction; Linux stores a byte of the word, and mixes access sizes.

use super::{ConstNew, Info, RawMutex, Suspension};
use crate::machine::{Arith, Machine, Native, Offers, QNode, Word, node_view, shared};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicU32, Ordering::*};

const LOCKED: u32 = 1;
const PENDING: u32 = 1 << 8;
/// Where the tail begins: one more than the number of the last waiter's node.
const TAIL: u32 = 16;

const WAITING: u32 = 0;
const HEAD: u32 = 1;

/// Looks for the handover from the pending waiter to complete, before a newcomer queues.
const PENDING_LOOKS: u32 = 512;

/// Queued spinlock. See the [module documentation](self).
pub struct RawQspinlock<M: Machine> {
    word: M::U32,
}

impl RawQspinlock<Native> {
    /// An unlocked lock.
    pub const fn new() -> Self {
        RawQspinlock { word: AtomicU32::new(0) }
    }
}

const_new!(RawQspinlock<Native>);

node_view! {
    /// A node of the waiting array.
    struct Node {
        /// The successor, once it has linked itself.
        next: links[0],
        /// WAITING or HEAD; the owner spins here.
        status: words[0],
        /// Whether a thread has the node: 0 or 1.
        taken: words[2],
    }
}

/// Takes a node of the waiting array; its number and the node.
fn take_node<M: Machine>() -> Option<(u32, Node<'static, M>)> {
    let array = shared::waiting_array::<M>();
    let array = &array[..array.len().min(1 << 15)];
    let start = (M::thread_id() >> 6).wrapping_add(M::thread_id()).wrapping_mul(0x9e37_79b9) >> 8;
    (0..array.len()).find_map(|i| {
        let number = start.wrapping_add(i) & (array.len() - 1);
        let node = Node(&array[number]);
        // (G) pairs with the store at the end of `lock_queued`.
        let free =
            node.taken().load(Relaxed) == 0 && node.taken().compare_exchange(0, 1, Acquire, Relaxed).is_ok();
        free.then(|| {
            M::note_node();
            (number as u32, node)
        })
    })
}

impl<M: Machine> RawQspinlock<M> {
    #[cold]
    #[inline(never)]
    fn lock_slow(&self) {
        // (0, 1, 0): the pending waiter is about to take the lock; then we may be the pending one.
        if self.word.load(Relaxed) == PENDING {
            let _ = M::spin_for(&self.word, Relaxed, PENDING_LOOKS, |word| word != PENDING);
        }
        if self.word.load(Relaxed) & !LOCKED == 0 {
            let word = self.word.fetch_or(PENDING, Relaxed);
            if word & !LOCKED == 0 {
                // (A) pairs with the subtraction in `unlock`. If the lock was free, this sees the thread's own PENDING, which
                // continues the release sequence of that subtraction.
                M::spin_until(&self.word, Acquire, |word| word & LOCKED == 0);
                self.word.fetch_sub(PENDING - LOCKED, Relaxed);
                return;
            }
            if word & PENDING == 0 {
                self.word.fetch_and(!PENDING, Relaxed); // set too late: there is a queue
            }
        }
        match take_node::<M>() {
            Some((number, node)) => self.lock_queued(number, node),
            None => {
                let mut offers = Offers::new();
                while self.try_lock().is_none() {
                    M::spin_until(&self.word, Relaxed, |word| word & LOCKED == 0);
                    offers.take::<M>(u64::MAX);
                }
            }
        }
    }

    fn lock_queued(&self, number: u32, node: Node<'static, M>) {
        node.next().store(null_mut(), Relaxed);
        node.status().store(WAITING, Relaxed);
        let tail = (number + 1) << TAIL;
        // (C) this node is initialised for the next arrival, and the predecessor's for us.
        let before = self.update(AcqRel, |word| word & ((1 << TAIL) - 1) | tail) >> TAIL;
        if before != 0 {
            let before = Node(&shared::waiting_array::<M>()[before as usize - 1]);
            before.next().store(node.as_ptr(), Release); // (D) pairs with the spin below
            // (R) pairs with the store below.
            M::spin_until(node.status(), Acquire, |status| status == HEAD);
        }
        // (A) pairs with the subtraction in `unlock`.
        let word = M::spin_until(&self.word, Acquire, |word| word & (LOCKED | PENDING) == 0);
        // While there is a tail, no other thread can take the lock, or set PENDING for good.
        if word != tail || self.word.compare_exchange(tail, LOCKED, Relaxed, Relaxed).is_err() {
            self.word.fetch_or(LOCKED, Relaxed);
            self.leave(tail, node);
        }
        node.taken().store(0, Release); // (G) the caller is done with it
    }

    /// The head leaves the queue, with the lock. Another waiter is behind it, or a PENDING was set too late.
    fn leave(&self, tail: u32, node: Node<'_, M>) {
        loop {
            let word = self.word.load(Relaxed);
            if word >> TAIL != tail >> TAIL {
                break;
            }
            let rest = word & ((1 << TAIL) - 1);
            if self.word.compare_exchange(word, rest, Relaxed, Relaxed).is_ok() {
                return;
            }
        }
        let next = M::spin_until(node.next(), Acquire, |next: *mut QNode<M>| !next.is_null()); // (D)
        // SAFETY: nodes of the waiting array are static.
        unsafe { Node::at(next).status().store(HEAD, Release) }; // (R)
    }

    fn update(&self, order: core::sync::atomic::Ordering, new: impl Fn(u32) -> u32) -> u32 {
        let mut word = self.word.load(Relaxed);
        loop {
            match self.word.compare_exchange(word, new(word), order, Relaxed) {
                Ok(_) => return word,
                Err(now) => word = now,
            }
        }
    }
}

// SAFETY: three threads can set LOCKED: one that finds the word 0, the one pending waiter when LOCKED is clear, and, if there
// is no pending waiter, the one head of the queue. They exclude each other. (A) orders the sections.
unsafe impl<M: Machine> RawMutex for RawQspinlock<M> {
    type Machine = M;
    type Token = ();
    const INFO: Info = Info {
        name: "qspinlock",
        summary: "Linux's queued spinlock: a pending bit, and an MCS queue of numbered nodes",
        atomics: 2,
        waiter_bytes: 64,
        holder_bytes: 0,
        fairness: "FIFO; stealing while at most one thread waits",
        blocking: false,
        suspension: Suspension::Blocks,
        source: "Linux 4.2 and later, kernel/locking/qspinlock.c",
    };

    fn new_in() -> Self {
        RawQspinlock { word: M::U32::new(0) }
    }

    #[inline]
    fn lock(&self) {
        if self.try_lock().is_none() {
            self.lock_slow();
        }
    }

    #[inline]
    fn try_lock(&self) -> Option<()> {
        // (A) pairs with the subtraction in `unlock`.
        (self.word.load(Relaxed) == 0 && self.word.compare_exchange(0, LOCKED, Acquire, Relaxed).is_ok())
            .then_some(())
    }

    #[inline]
    unsafe fn unlock(&self, (): ()) {
        // (A) the section happens before the next acquire.
        self.word.fetch_sub(LOCKED, Release);
    }

    fn is_locked(&self) -> bool {
        self.word.load(Relaxed) & LOCKED != 0
    }
}
