//! Hybrid mutex: optimistic spinning, then a wait list with handoff.
//!
//! Source: Linux, `kernel/locking/mutex.c` (I. Molnar 2006; P. Zijlstra, T. Chen and W. Long 2009 to 2016): "atomic",
//! spinning and sleeping paths. The spinners' queue is `osq`.
//!
//! A newcomer tries one exchange. Then it spins for as long as the holder can be expected to be done soon; of the spinners,
//! only the head of a queue looks at the lock. Then it parks in a wait list. An unlock unparks the first waiter of the list,
//! which competes with spinners and newcomers. If it loses, it demands a *handoff*, and the next unlock gives it the lock.
//!
//! | bit of the word | meaning | set by | cleared by |
//! |---|---|---|---|
//! | LOCKED | held | the thread that acquires, (A) acquire | the holder, (A) release |
//! | WAITERS | the list is not empty | a waiter that queues | the thread that takes out the last waiter |
//! | HANDOFF | the first waiter in the list is next | that waiter | the unlock that hands over |
//! | QUEUE | the list is being changed | the thread that changes it, (Q) acquire | the same, (Q) release |
//!
//! QUEUE is only set while the lock is held, and no other thread changes the word while it is.
//!
//! | `status` of a waiter | becomes | moved by | pairs with |
//! |---|---|---|---|
//! | WAITING | PARKED | the waiter, before it parks | none |
//! | WAITING or PARKED | WOKEN, GRANTED; a parked waiter is unparked | an unlock | (B) release; the waiter's acquire |
//! | WOKEN | WAITING | the waiter, before it looks at the lock | (W): an unlock after that look finds WAITING |
//!
//! Size: 24 bytes; 64 per waiter, on its stack, and 64 more while it spins; none per holder.
//! Atomics per uncontended pair: 2 (compare-and-exchange).
//! Fairness: the first waiter in the list is passed over until it has been unparked and has lost once; FIFO in the list.
//! Suspension: blocks. The lock may be handed to a suspended waiter.
//!
//! Where it differs from Linux:
//! - A user-space thread cannot see whether the holder is running, so spinning ends after so many looks. (A spinner can see
//!   that a holder which said on which processor it took the lock does not run, if the spinner runs there. That was tried,
//!   and does not pay: docs/policies.md.)
//! - Linux's unlock frees the lock and then takes the list's own lock to find the waiter to unpark. The next holder of such a
//!   mutex must not destroy it. Here the list's lock is a bit of the word, freed with it.
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

/// Looks of a spinner in the spinners' queue; looks at the lock; spin hints after each of those.
const QUEUE_LOOKS: u32 = 1024;
const LOOKS: u32 = 256;
const PAUSE: u32 = 4;

/// Hybrid mutex. See the [module documentation](self).
pub struct RawHybrid<M: Machine> {
    word: M::U32,
    spinners: Osq<M>,
    /// The last waiter in the wait list, whose `next` is the first; null: the list is empty.
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
        // SAFETY: the node was taken above.
        if unsafe { self.spinners.enter(node, M::patience(QUEUE_LOOKS)) } {
            taken = (0..M::patience(LOOKS)).any(|_| {
                self.try_lock().is_some() || {
                    M::pause(PAUSE);
                    false
                }
            });
            // SAFETY: the node is at the head: `enter` has said so.
            unsafe { self.spinners.leave(node) };
        }
        // SAFETY: taken above, and unlinked.
        unsafe { M::release_node(node.0) };
        taken
    }

    /// Waits in the wait list until the caller has the lock.
    #[inline(never)]
    fn sleep(&self) {
        let storage = QNode::<M>::new();
        let node = Waiter(&storage);
        if self.acquire_or_enter(QUEUE) {
            return;
        }
        self.append(node);
        // (Q) the list as the caller leaves it. The lock is still held, and HANDOFF cannot have changed.
        let handoff = self.word.load(Relaxed) & HANDOFF;
        self.word.store(LOCKED | WAITERS | handoff, Release);
        // (B) pairs with the swap in `unlock_slow`.
        while Self::await_news(node) == WOKEN {
            // (W) before the look at the word, which is a release: an unlock after that finds a waiter that is to be unparked. If it
            // fails, an unlock has handed the lock over, and `await_news` looks again (B).
            if node.status().compare_exchange(WOKEN, WAITING, Relaxed, Relaxed).is_ok()
                && self.acquire_or_enter(HANDOFF)
            {
                // The caller holds the lock, and QUEUE with it, and is the first in the list.
                let left = self.pop();
                self.word.store(LOCKED | left, Release); // (Q)
                return;
            }
        }
    }

    /// Acquires the lock if it is free, with QUEUE set if the caller is in the list (`bit` is HANDOFF). If the lock is
    /// held, sets `bit` in the word, once no thread changes the list, and returns `false`.
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
            // (A) pairs with the release of the lock, (Q) with that of the list. Release: (W) the caller's status before.
            if self.word.compare_exchange(word, new, AcqRel, Relaxed).is_ok() {
                return word & LOCKED == 0;
            }
        }
    }

    /// Adds a waiter to the list. The caller has set QUEUE.
    fn append(&self, node: Waiter<'_, M>) {
        let last = self.last.load(Relaxed);
        if last.is_null() {
            node.next().store(node.as_ptr(), Relaxed);
        } else {
            // SAFETY: waiters keep their nodes while they are in the list, and QUEUE keeps other threads from the list.
            let link = unsafe { Waiter::at(last) }.next();
            node.next().store(link.load(Relaxed), Relaxed);
            link.store(node.as_ptr(), Relaxed);
        }
        self.last.store(node.as_ptr(), Relaxed);
    }

    /// Takes the first waiter out of the list, which is not empty. Returns WAITERS if others are left. The caller has set
    /// QUEUE.
    fn pop(&self) -> u32 {
        let last = self.last.load(Relaxed);
        // SAFETY: waiters keep their nodes while they are in the list, and QUEUE keeps other threads from the list.
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

    /// Spins, then parks, until `node` is WOKEN or GRANTED.
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
        // The caller holds the lock, so this ends with QUEUE set. (Q) the list as it was left.
        self.acquire_or_enter(QUEUE);
        let word = self.word.load(Relaxed);
        if word & WAITERS == 0 {
            // A waiter that was granted the lock between its status and its look at the lock has set HANDOFF for itself.
            self.word.store(0, Release); // (A)
            return;
        }
        // SAFETY: waiters keep their nodes while they are in the list, and QUEUE keeps other threads from the list.
        let first = unsafe { Waiter::at(self.last.load(Relaxed)).next().load(Relaxed) };
        let (news, left) =
            if word & HANDOFF != 0 { (GRANTED, LOCKED | self.pop()) } else { (WOKEN, WAITERS) };
        // SAFETY: as for `first`. With the news the waiter may leave, and its node be gone.
        let (status, old) = unsafe {
            let status = core::ptr::from_ref(Waiter::at(first).status());
            (status, (*status).swap(news, AcqRel)) // (B), (W)
        };
        // (A) the section happens before the next acquisition. (Q) the list as the caller leaves it. A waiter that has been
        // granted the lock cannot release it before this store, because QUEUE is set, and may destroy the lock after it.
        self.word.store(left, Release);
        if old == PARKED {
            M::wake(status, 1);
        }
    }
}

// SAFETY: only one exchange can set LOCKED. The holder clears it or hands it to one waiter. (A) and (B) order the sections.
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
        RawHybrid { word: M::U32::new(0), spinners: Osq::new_in(), last: M::Ptr::new(null_mut()) }
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

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::AtomicBool;
    use std::thread;

    /// The first waiter of the list has demanded a handoff. That stays when another waiter queues, and the unlock obeys: from then
    /// on no attempt takes the lock before that waiter has had it.
    #[test]
    fn a_demanded_handoff_is_made() {
        let (lock, served) = (&RawHybrid::<Native>::new(), &AtomicBool::new(false));
        let await_waiter_behind = |last| {
            while lock.last.load(Relaxed) == last || lock.word.load(Relaxed) & QUEUE != 0 {
                thread::yield_now();
            }
        };
        let waits = || {
            lock.lock();
            served.store(true, Relaxed);
            // SAFETY: acquired above.
            unsafe { lock.unlock(()) };
        };
        lock.lock();
        thread::scope(|scope| {
            scope.spawn(waits);
            await_waiter_behind(null_mut());
            lock.word.fetch_or(HANDOFF, Relaxed);
            let first = lock.last.load(Relaxed);
            scope.spawn(waits);
            await_waiter_behind(first);
            let kept = lock.word.load(Relaxed) & HANDOFF != 0;
            // SAFETY: acquired above.
            unsafe { lock.unlock(()) };
            if lock.try_lock().is_some() {
                let in_order = served.load(Relaxed);
                // SAFETY: from the attempt above.
                unsafe { lock.unlock(()) };
                assert!(in_order, "the attempt passed the waiter");
            }
            assert!(kept, "a waiter that queues has taken the demand back");
        });
    }

    /// A demand ends when it is obeyed: the next unlock only wakes the waiter behind, which then takes the lock, and the list ends
    /// with the last one. Nodes stand for the waiters.
    #[test]
    fn a_demand_ends_with_the_handover() {
        let lock = RawHybrid::<Native>::new();
        let nodes = [(); 3].map(|()| QNode::<Native>::new());
        let waiters = nodes.each_ref().map(Waiter);
        let news = || waiters.map(|waiter| waiter.status().load(Relaxed));
        // SAFETY: the test or one of the waiters holds the lock.
        let unlock = || unsafe { lock.unlock(()) };
        lock.lock();
        waiters.iter().for_each(|&waiter| lock.append(waiter));
        lock.word.store(LOCKED | WAITERS, Relaxed);
        assert!(!lock.acquire_or_enter(HANDOFF), "it is held");
        assert_eq!(lock.word.load(Relaxed), LOCKED | WAITERS | HANDOFF);
        unlock();
        assert_eq!((lock.word.load(Relaxed), news()), (LOCKED | WAITERS, [GRANTED, WAITING, WAITING]));
        unlock();
        assert_eq!((lock.word.load(Relaxed), news()), (WAITERS, [GRANTED, WOKEN, WAITING]));
        for left in [WAITERS, 0] {
            assert!(lock.acquire_or_enter(HANDOFF));
            assert_eq!((lock.word.load(Relaxed) & (LOCKED | QUEUE), lock.pop()), (LOCKED | QUEUE, left));
            lock.word.store(LOCKED | left, Relaxed);
            unlock();
            assert_eq!((lock.word.load(Relaxed), news()[2]), (left, WOKEN));
        }
    }

    /// A waiter that is granted the lock while it demands it may leave the demand behind, with an empty list.
    #[test]
    fn a_demand_may_outlive_the_list() {
        let lock = RawHybrid::<Native>::new();
        lock.word.store(LOCKED | HANDOFF, Relaxed);
        // SAFETY: the lock is held, by no other thread.
        unsafe { lock.unlock(()) };
        assert_eq!(lock.word.load(Relaxed), 0);
    }
}
