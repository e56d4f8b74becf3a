//! Hybrid mutex: optimistic spinning, then a wait list with handoff.
//!
//! Source: Linux, `kernel/locking/mutex.c` (I. Molnar 2006; P. Zijlstra, T. Chen and W. Long 2009 to
//! 2016): "atomic", spinning and sleeping paths; the spinners' queue is `osq`.
//!
//! A newcomer tries one exchange; then it spins, as long as the holder can be expected to be done soon,
//! and of the spinners only the head of a queue looks at the lock; then it sleeps in a wait list. An unlock
//! wakes the first of the list, which competes with spinners and newcomers; if it loses, it demands a
//! *handoff*, and the next unlock gives it the lock.
//!
//! | bit | meaning | set by | cleared by |
//! |---|---|---|---|
//! | LOCKED | held | who acquires | the holder |
//! | WAITERS | somebody is in the list | who queues | who takes out the last |
//! | HANDOFF | the first in the list is next | that waiter | the unlock that does it |
//! | QUEUE | the list is being changed | whoever does so | the same |
//!
//! QUEUE is only set while the lock is held, and nobody else changes the word while it is.
//! Node (`status`), on the waiter's stack: WAITING -> PARKED (itself) -> WOKEN or GRANTED, from either, by an
//! unlock; WOKEN -> WAITING (itself, when it has lost).
//! Size: 24 bytes; 64 per waiter, on its stack, and 64 more while it spins; none per holder. Atomics per
//! uncontended pair: 2 (compare-and-exchange).
//! Suspension: a waiter that is suspended blocks others.
//! Fairness: the first in the list is passed over until it has been woken and has lost once; FIFO in the list.
//!
//! Where it differs from Linux:
//! - A user-space thread cannot see whether the holder is running, so spinning ends after so many looks.
//!   (That a holder which said where it took the lock is not running, if that is where the spinner is, can be
//!   seen, was tried, and does not pay: docs/policies.md.)
//! - Linux's unlock frees the lock and then takes the list's own lock to find whom to wake; such a mutex
//!   must not be destroyed by the next holder. Here the list's lock is a bit of the word, freed with it.
//! - A timed acquisition polls, outside the list.

use super::osq::{Osq, Spinner};
use super::{ConstNew, Info, RawMutex, Suspension};
use crate::machine::{Machine, Native, QNode, Word, node_view};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering::*};

const LOCKED: u32 = 1;
const WAITERS: u32 = 2;
const HANDOFF: u32 = 4;
const QUEUE: u32 = 8;

const WAITING: u32 = 0;
const PARKED: u32 = 1;
const WOKEN: u32 = 2;
const GRANTED: u32 = 3;

/// Looks of a spinner: in the spinners' queue, and at the lock, with a pause of so many hints after each.
const QUEUE_LOOKS: u32 = 1024;
const LOOKS: u32 = 256;
const PAUSE: u32 = 4;

/// Hybrid mutex. See the [module documentation](self).
pub struct RawHybrid<M: Machine> {
    word: M::U32,
    spinners: Osq<M>,
    /// The last in the wait list, whose `next` is the first.
    last: M::Ptr<QNode<M>>,
}

impl RawHybrid<Native> {
    /// An unlocked lock.
    pub const fn new() -> Self {
        RawHybrid {
            word: AtomicU32::new(0),
            spinners: Osq { tail: AtomicPtr::new(null_mut()) },
            last: AtomicPtr::new(null_mut()),
        }
    }
}

const_new!(RawHybrid<Native>);

node_view! {
    /// A node of the wait list.
    struct Waiter {
        /// The waiter behind this one; of the last, the first: the list is a ring.
        next: links[0],
        /// WAITING, PARKED, WOKEN or GRANTED; the owner spins and parks here.
        status: words[0],
    }
}

impl<M: Machine> RawHybrid<M> {
    #[cold]
    #[inline(never)]
    fn lock_slow(&self) {
        if !self.spin() {
            self.sleep();
        }
    }

    /// Spins for a while, in the queue of spinners.
    fn spin(&self) -> bool {
        let node = Spinner(M::acquire_node());
        let mut taken = false;
        if self.spinners.enter(node, M::patience(QUEUE_LOOKS)) {
            taken = (0..M::patience(LOOKS)).any(|_| {
                self.try_lock().is_some() || {
                    M::pause(PAUSE);
                    false
                }
            });
            self.spinners.leave(node);
        }
        // SAFETY: taken above, and unlinked.
        unsafe { M::release_node(node.0) };
        taken
    }

    /// Sleeps in the wait list until it has the lock.
    #[inline(never)]
    fn sleep(&self) {
        let storage = QNode::<M>::new();
        let node = Waiter(&storage);
        if self.acquire_or_enter(QUEUE) {
            return;
        }
        self.append(node);
        // (Q) the list as we leave it. The lock is still held, and HANDOFF cannot have changed.
        let handoff = self.word.load(Relaxed) & HANDOFF;
        self.word.store(LOCKED | WAITERS | handoff, Release);
        // (B) pairs with the swap in `unlock_slow`.
        while Self::await_news(node) == WOKEN {
            // Before we look at the word: an unlock after that will find that we are to be woken.
            // (B) if it fails, because we have been granted the lock.
            if node.status().compare_exchange(WOKEN, WAITING, Acquire, Acquire).is_ok()
                && self.acquire_or_enter(HANDOFF)
            {
                // We hold the lock, and QUEUE with it, and are the first in the list.
                let left = self.pop();
                self.word.store(LOCKED | left, Release); // (Q)
                return;
            }
        }
    }

    /// Acquires the lock if it is free: for who is in the list (`bit` is HANDOFF), with QUEUE set. If it is
    /// held, sets `bit` in it, once nobody changes the list, and returns `false`.
    fn acquire_or_enter(&self, bit: u32) -> bool {
        loop {
            let word = self.word.load(Relaxed);
            let new = match word & (LOCKED | QUEUE) {
                0 if bit == QUEUE => word | LOCKED,
                0 => word | LOCKED | QUEUE,
                LOCKED => word | bit,
                _ => {
                    M::spin_until(&self.word, Relaxed, |word| word & QUEUE == 0);
                    continue;
                }
            };
            // (A) pairs with the release of the lock, (Q) of the list. Release: (W) our status before.
            if self.word.compare_exchange(word, new, AcqRel, Relaxed).is_ok() {
                return word & LOCKED == 0;
            }
        }
    }

    /// Adds a waiter to the list. For who has set QUEUE.
    fn append(&self, node: Waiter<'_, M>) {
        let last = self.last.load(Relaxed);
        if last.is_null() {
            node.next().store(node.as_ptr(), Relaxed);
        } else {
            // SAFETY: waiters stay while they are in the list, which is ours.
            let link = unsafe { Waiter::at(last) }.next();
            node.next().store(link.load(Relaxed), Relaxed);
            link.store(node.as_ptr(), Relaxed);
        }
        self.last.store(node.as_ptr(), Relaxed);
    }

    /// Takes the first waiter out of the list, which is not empty; returns WAITERS if others are left.
    /// For who has set QUEUE.
    fn pop(&self) -> u32 {
        let last = self.last.load(Relaxed);
        // SAFETY: waiters stay while they are in the list, which is ours.
        unsafe {
            let last_next = Waiter::at(last).next();
            let first = last_next.load(Relaxed);
            if first == last {
                self.last.store(null_mut(), Relaxed);
                return 0;
            }
            last_next.store(Waiter::at(first).next().load(Relaxed), Relaxed);
        }
        WAITERS
    }

    /// Spins, then sleeps, until `node` is WOKEN or GRANTED.
    fn await_news(node: Waiter<'_, M>) -> u32 {
        if let Some(status) = M::spin_for(node.status(), Acquire, LOOKS, |status| status != WAITING) {
            return status;
        }
        if let Err(status) = node.status().compare_exchange(WAITING, PARKED, Relaxed, Acquire) {
            return status;
        }
        loop {
            match node.status().load(Acquire) {
                PARKED => M::wait(node.status(), PARKED, None),
                status => return status,
            };
        }
    }

    #[cold]
    #[inline(never)]
    fn unlock_slow(&self) {
        // The lock is ours, so this ends with QUEUE set. (Q) the list as it was left.
        self.acquire_or_enter(QUEUE);
        let word = self.word.load(Relaxed);
        if word & WAITERS == 0 {
            self.word.store(0, Release); // (A)
            return;
        }
        // SAFETY: waiters stay while they are in the list, which is ours.
        let first = unsafe { Waiter::at(self.last.load(Relaxed)).next().load(Relaxed) };
        let (news, left) =
            if word & HANDOFF != 0 { (GRANTED, LOCKED | self.pop()) } else { (WOKEN, WAITERS) };
        // SAFETY: as above. With the news it may leave, and its node be gone.
        let (status, old) = unsafe {
            let status = core::ptr::from_ref(Waiter::at(first).status());
            (status, (*status).swap(news, AcqRel)) // (B), (W)
        };
        // (A) the section happens before the next acquire; (Q) the list as we leave it. Whoever has
        // been granted the lock cannot release it before this, and may destroy it after.
        self.word.store(left, Release);
        if old == PARKED {
            M::wake(status, 1);
        }
    }
}

// SAFETY: only one exchange can set LOCKED, and it is cleared, or left to one waiter, by the holder;
// (A) and (B) order the sections.
unsafe impl<M: Machine> RawMutex for RawHybrid<M> {
    type Machine = M;
    type Token = ();
    const INFO: Info = Info {
        name: "hybrid",
        summary: "Linux's mutex: queued optimistic spinning, then a wait list with handoff",
        atomics: 2,
        waiter_bytes: 64,
        holder_bytes: 0,
        fairness: "stealing until the first sleeper has lost once; FIFO in the list",
        blocking: true,
        suspension: Suspension::Blocks,
        source: "Linux 4.10 and later, kernel/locking/mutex.c",
    };

    fn new_in() -> Self {
        RawHybrid {
            word: M::U32::new(0),
            spinners: Osq { tail: M::Ptr::new(null_mut()) },
            last: M::Ptr::new(null_mut()),
        }
    }

    #[inline]
    fn lock(&self) {
        // (A) pairs with the releases in `unlock` and `unlock_slow`.
        if self.word.compare_exchange(0, LOCKED, Acquire, Relaxed).is_err() {
            self.lock_slow();
        }
    }

    #[inline]
    fn try_lock(&self) -> Option<()> {
        loop {
            let word = self.word.load(Relaxed);
            if word & LOCKED != 0 {
                return None;
            }
            // (A) as in `lock`.
            if self.word.compare_exchange(word, word | LOCKED, Acquire, Relaxed).is_ok() {
                return Some(());
            }
        }
    }

    #[inline]
    unsafe fn unlock(&self, (): ()) {
        // (A) the section happens before the next acquire.
        if self.word.compare_exchange(LOCKED, 0, Release, Relaxed).is_err() {
            self.unlock_slow();
        }
    }

    fn is_locked(&self) -> bool {
        self.word.load(Relaxed) & LOCKED != 0
    }
}
