//! ShflLock, blocking: the default mutex.
//!
//! Source: Kashyap et al., "Scalable and practical locking with shuffling", SOSP 2019, section 4.2.2, figures 6 and 7.
//!
//! An acquisition swaps LOCKED into one word. A *newcomer* that finds the lock held spins for some microseconds
//! ([`newcomer`](super::newcomer)). Then it joins a queue of waiters that spin briefly and park ([`sleepers`], which has
//! the table of a waiter's states). Only the *head* of the queue competes with newcomers for the word. A newcomer that
//! takes the lock while there is a queue *steals* it from the head. One waiter at a time walks the queue and moves the
//! waiters of its own NUMA node together ([`shuffle`](super::shuffle)).
//!
//! # States
//!
//! The word is LOCKED (bit 0) and hints: NO_STEALING (bit 1), OFFERED (bit 2), LAPSED (bit 3), PARKED_HEAD (bit 31).
//!
//! | the word | becomes | the thread that writes it, and where | ordering |
//! |---|---|---|---|
//! | not LOCKED, no hint | LOCKED | a newcomer, `take` | (A) acquire |
//! | not LOCKED, any hints | LOCKED, no hint | the head, or a `try_lock` that finds no queue: `take_and_drop_hints` | (A) acquire |
//! | not LOCKED, LAPSED | LOCKED, LAPSED | any thread, `steal` | (A) acquire |
//! | LOCKED, any hints | not LOCKED, the same hints | the holder, `unlock`; it unparks the head if PARKED_HEAD is set | (A) release; (F) |
//! | LOCKED | PARKED_HEAD too | the head before it parks, `compete` (F); for a successor that is parked, the new holder, `leave`: without a fence, because the holder itself does the next decrement | |
//! | any, no LAPSED | NO_STEALING too | the head after [`STEAL_BOUND`], or a waiter behind it after [`WAKE_BOUND`], `support_head`; the holder, `unlock_fair`, `leave` | |
//! | not LOCKED, NO_STEALING | OFFERED too | a thread that NO_STEALING keeps off a free lock, `offer_or_lapse` | |
//! | the same, OFFERED | LAPSED instead of both | such a thread after [`PROMISE_BOUND`], `offer_or_lapse` | |
//! | LAPSED | without it | the head when it runs again, `compete` | |
//! | NO_STEALING, OFFERED | without them | the head when its deadline has passed, `compete` | |
//!
//! A swap also drops hints that another thread has set since the swapping thread's look; `repair` sets them again.
//!
//! # The decrement
//!
//! `unlock` is one `dec` instruction without a `lock` prefix: it keeps the hints, and its sign is PARKED_HEAD.
//!
//! - *Exclusion.* While LOCKED is set, only the holder clears it; other threads change hints, or swap LOCKED for LOCKED.
//! - *Hints may be lost* if they are set between the load and the store of the decrement, and a cleared hint may come
//!   back. The thread that sets NO_STEALING therefore looks again. The head clears LAPSED at each look, and drops a
//!   NO_STEALING that has come back when it takes the lock. If `repair` loses LAPSED on a held word, waiters set
//!   NO_STEALING again, and it lapses again.
//! - *PARKED_HEAD may not be lost.* (F): the head sets it, issues a heavy fence (the system call `membarrier`, which
//!   interrupts all running threads of the process) and looks again. A decrement under way is finished by then. If it lost
//!   the bit, the head sees that and does not park. Every later decrement sees the bit.
//!
//! # Modes
//!
//! | [`Policy::STEALING`] | a newcomer that finds the lock held | the head |
//! |---|---|---|
//! | `Anyone` | spins | sets NO_STEALING after [`STEAL_BOUND`] |
//! | `Local` | spins if there is no queue, or if it is in the group in `since`; others queue | likewise |
//! | `Nobody` | queues: outside the queue, later newcomers could pass it | is unparked at once, and has NO_STEALING: the old head sets it, or it does so itself |
//!
//! # Beyond the paper
//!
//! - *The head parks too*, at the word. A swap drops PARKED_HEAD, so a sleep costs one wakeup, not one an unlock.
//! - *Bounded unfairness.* A waiter behind `n` others waits for at most `n + 1` turns of `WAKE_BOUND`, the time until an
//!   unparked thread runs, and a section, if unparked threads run within `PROMISE_BOUND` (10 ms). (It is not `STEAL_BOUND`
//!   because a head that does not run yet cannot set NO_STEALING.) `n` includes the waiters that shuffling moves in front,
//!   at most 15 for each waiter that stood there.
//! - *Suspended waiters* are passed ([`sleepers`]): NO_STEALING is a promise that lapses. Newcomers do not queue then.
//! - *No wakeup inside the section.* A new holder moves a parked successor from its node to the word (a futex requeue), so
//!   that the unlock unparks it.
//! - *Few looks.* A look takes the word's cache line away from the holder, so waiters look at growing intervals. They take
//!   the lock only if several looks in a row find it free, or sections are long (`worth_taking`).
//! - *Newcomers spin* before they queue, and *timed waiters* queue too and may leave the queue.
//!
//! Size: 16 bytes; 64 per waiter, from the machine's node pool; none per holder. Atomics per uncontended pair: 1; in a
//! process with one thread, 0.
//! Fairness: bounded stealing, as above; FIFO in the queue, per NUMA node with at most 16 in a row.
//! Suspension: a waiter may be suspended at any instruction without keeping others from the lock. A thread is the holder
//! once it has swapped LOCKED in, though its call has not returned yet.

use super::newcomer::{Newcomer, Since};
use super::shuffle::{NumaPolicy, Policy, Stealing, Waiter, head_may_shuffle};
use super::sleepers::{self, Intervals, NODE_PARKED, Next, PROMISE_BOUND, READY, Waited};
use super::{ConstNew, Fair, Info, RawMutex, Suspension};
use crate::locks::bits::Bits;
use crate::locks::for_assembly::ExchangeMutex;
use crate::locks::parked_bit::{park, unpark};
use crate::machine::{Deadline, Machine, Native, QNode, Word};
use core::marker::PhantomData;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering::*};

// Counts of looks and attempts are lowered by `M::patience` on machines that explore interleavings.

/// Microseconds (of 1024 ns) for which newcomers may steal from a head that runs. 500 would make the longest waits twice as
/// long, at the same throughput.
const STEAL_BOUND: u32 = 200;
/// The same for a head that was unparked and does not run yet. If newcomers kept off, the lock would be unused for the 50
/// microseconds or so until the head runs: little in 1 ms. 4 ms would make waits longer, at the same throughput.
const WAKE_BOUND: u32 = 1000;
/// Looks in a row that find the lock held, after which sections count as long: waiters may take a lock that is free at once.
const LONG_HOLD: u32 = 3;
/// Spin hints between two looks of the head, at first and at most.
const HEAD_PAUSE: (u32, u32) = (1, 32);
/// Looks of the head at the longest pause before it parks: some 80 microseconds, several times what a wakeup takes.
const HEAD_LOOKS: u32 = 128;
/// Second looks, and spin hints before each, until a newcomer or the head believes that a free lock is unused. Tuned (Zen 4,
/// two processors) between threads that only lock, where more is better, and threads that think, where less is better.
const ARRIVAL_IDLE: (u32, u32) = (2, 10);
const HEAD_IDLE: (u32, u32) = (4, 10);
/// Attempts at setting NO_STEALING, and spin hints after each: longer than a decrement can be under way that loses the bit.
const CLAIMS: (u32, u32) = (8, 16);

const FREE: Bits = Bits::NONE;
const LOCKED: Bits = Bits(1);
const NO_STEALING: Bits = Bits(1 << 1);
const OFFERED: Bits = Bits(1 << 2);
const LAPSED: Bits = Bits(1 << 3);
const PARKED_HEAD: Bits = Bits(1 << 31);

/// ShflLock, blocking. `P` orders the queue, and says which newcomers may steal. See the [module documentation](self).
pub struct RawShfl<M: Machine, P = NumaPolicy> {
    word: M::U32,
    /// When the head's turn began: it became the head, or a free lock was offered to it. [`Since`] has the other fields.
    since: M::U32,
    tail: M::Ptr<QNode<M>>,
    policy: PhantomData<P>,
}

impl<P> RawShfl<Native, P> {
    /// An unlocked lock.
    pub const fn new() -> Self {
        RawShfl {
            word: AtomicU32::new(0),
            since: AtomicU32::new(0),
            tail: AtomicPtr::new(null_mut()),
            policy: PhantomData,
        }
    }
}

const_new!(RawShfl<Native, P>, P: Policy);

impl<P: Policy> ExchangeMutex for RawShfl<Native, P> {
    const WORD: usize = core::mem::offset_of!(Self, word);
    const LOCKED: u32 = LOCKED.0;

    /// The preloaded library calls it after the fast path that it has in assembly.
    fn restore(&self, dropped: u32) -> bool {
        self.repair(Bits(dropped))
    }
}

// SAFETY: only one swap can take the word from not LOCKED to LOCKED; (A) orders the sections.
unsafe impl<M: Machine, P: Policy> RawMutex for RawShfl<M, P> {
    type Machine = M;
    type Token = ();
    const INFO: Info = Info {
        name: "shfl",
        summary: "ShflLock, blocking: NUMA-grouped queue of sleepers behind a stealable word",
        atomics: 1,
        waiter_bytes: 64,
        holder_bytes: 0,
        fairness: "stealing for 0.2 ms per queue position, at most 1 ms until a sleeper runs; FIFO per NUMA node, 16 in a row",
        blocking: true,
        suspension: Suspension::Tolerates,
        source: "Kashyap et al. 2019, section 4.2.2",
    };

    fn new_in() -> Self {
        RawShfl {
            word: M::U32::new(0),
            since: M::U32::new(0),
            tail: M::Ptr::new(null_mut()),
            policy: PhantomData,
        }
    }

    #[inline]
    fn lock(&self) {
        if !self.try_free() {
            self.lock_slow();
        }
    }

    #[inline]
    fn try_lock(&self) -> Option<()> {
        (self.try_free() || self.try_lock_slow()).then_some(())
    }

    #[inline(always)]
    fn try_lock_weak(&self) -> Option<()> {
        self.try_free().then_some(())
    }

    fn lock_contended(&self) {
        self.lock_slow();
    }

    fn lock_until(&self, deadline: Deadline) -> Option<()> {
        (self.try_free() || self.wait_for_lock(Some(deadline))).then_some(())
    }

    #[inline]
    unsafe fn unlock(&self, (): ()) {
        // (A) the section happens before the next acquisition. (F) pairs with `park` in `compete`.
        if M::release_dec(&self.word) {
            unpark::<M>(&raw const self.word);
        }
    }

    fn is_locked(&self) -> bool {
        self.state().has(LOCKED)
    }
}

impl<M: Machine, P: Policy> Fair for RawShfl<M, P> {
    unsafe fn unlock_fair(&self, (): ()) {
        // A suspended head (LAPSED) would leave the lock unused.
        if !self.is_queue_empty() && !self.state().has(LAPSED) {
            // The bit is not lost: this thread itself does the decrement that follows.
            NO_STEALING.set_in::<M>(&self.word);
        }
        // SAFETY: the caller's token came from the acquisition that this ends.
        unsafe { self.unlock(()) };
    }
}

impl<M: Machine, P: Policy> RawShfl<M, P> {
    #[inline(always)]
    fn state(&self) -> Bits {
        Bits::of::<M>(&self.word)
    }

    /// The one atomic instruction of an acquisition. Returns the old word.
    fn swap(&self, new: Bits) -> Bits {
        // (A) pairs with the decrement in `unlock`.
        Bits(M::acquire_swap(&self.word, new.0))
    }

    fn is_queue_empty(&self) -> bool {
        self.tail.load(Relaxed).is_null()
    }

    /// The uncontended acquisition. With any hint set, the caller goes the slow way.
    #[inline(always)]
    fn try_free(&self) -> bool {
        self.state() == FREE && self.take()
    }

    #[inline(always)]
    fn take(&self) -> bool {
        let old = self.swap(LOCKED);
        old == FREE || self.repair(old)
    }

    /// Sets the hints again that a swap has `dropped`, and returns whether the swap took the lock.
    ///
    /// It is `cold` to stay out of the fast path, but it is not rare: a thread that only locks and unlocks looks at its own
    /// last decrement in its store buffer, long before its swap reaches the word in the cache.
    #[cold]
    #[inline(never)]
    fn repair(&self, dropped: Bits) -> bool {
        // OFFERED is not set again: the lock is not unused.
        let mut kept = dropped.only(NO_STEALING);
        if dropped.has(LAPSED) && !self.is_queue_empty() {
            kept = kept.with(LAPSED);
        }
        if kept != FREE {
            kept.set_in::<M>(&self.word);
        }
        if dropped.has(LOCKED) && dropped.has(PARKED_HEAD) {
            // The head has parked behind another holder. It is unparked to set the bit again. (If the lock was free, the
            // previous holder's unlock has seen PARKED_HEAD, and unparks the head.)
            unpark::<M>(&raw const self.word);
        }
        !dropped.has(LOCKED)
    }

    /// [`take`](Self::take) by the head, or by a thread that has found the queue empty: newcomers may steal again.
    fn take_and_drop_hints(&self) -> bool {
        let old = self.swap(LOCKED);
        !old.has(LOCKED) || self.repair(old)
    }

    /// An attempt of a thread that is not the head.
    fn steal(&self) -> bool {
        let state = self.state();
        if state.has(LOCKED) || state.has(NO_STEALING) && !self.offer_or_lapse(state) {
            return false;
        }
        // (NO_STEALING in `state` has become LAPSED by now.)
        if !state.has(NO_STEALING) && !state.has(LAPSED) {
            return self.take();
        }
        // LAPSED is not kept without a queue: no head would clear it.
        let lapsed = if self.is_queue_empty() { FREE } else { LAPSED };
        let old = self.swap(LOCKED.with(lapsed));
        old.without(LAPSED) == FREE || self.repair(old)
    }

    /// Sets OFFERED in a free word, `state`, that has NO_STEALING; or LAPSED, after `PROMISE_BOUND` without the head. Returns
    /// whether it has set LAPSED.
    #[cold]
    fn offer_or_lapse(&self, state: Bits) -> bool {
        let next = if !state.has(OFFERED) {
            // This store comes first, so that a thread that sees OFFERED compares with this time. Relaxed: where a processor
            // reorders the two, the promise lapses early, which costs fairness once. If the exchange fails, the turn merely
            // seems to begin now, and newcomers may steal for one bound more.
            Since::load::<M>(&self.since).store_now::<M>(&self.since);
            state.with(OFFERED)
        } else if self.turn_exceeds(PROMISE_BOUND) {
            state.without(NO_STEALING.with(OFFERED)).with(LAPSED)
        } else {
            return false;
        };
        self.word.compare_exchange(state.0, next.0, Relaxed, Relaxed).is_ok() && next.has(LAPSED)
    }

    /// Whether the head's turn has lasted for longer than `bound` microseconds.
    fn turn_exceeds(&self, bound: u32) -> bool {
        Since::elapsed::<M>(&self.since) > bound
    }

    /// Begins the turn of a new head. `group` is that of the first head, and later of the head before, which holds the lock
    /// unless it has timed out.
    fn begin_turn(&self, group: u32) {
        let since = match P::STEALING {
            Stealing::Local => Since::in_group(group),
            _ => Since::load::<M>(&self.since),
        };
        since.store_now::<M>(&self.since);
    }

    /// Sets NO_STEALING if the head's turn has lasted for `bound` microseconds, unless the head is suspended. Returns whether
    /// it has tried; a decrement may still lose the bit.
    fn support_head(&self, bound: u32) -> bool {
        let overdue = P::STEALING == Stealing::Nobody || self.turn_exceeds(bound);
        if !overdue || self.state().has(LAPSED) {
            return false;
        }
        (0..M::patience(CLAIMS.0)).any(|_| {
            NO_STEALING.set_in::<M>(&self.word);
            M::pause(CLAIMS.1);
            self.state().has(NO_STEALING)
        });
        true
    }

    #[cold]
    fn try_lock_slow(&self) -> bool {
        // A decrement may bring back the NO_STEALING of a head that gave up. A free lock must not look held then.
        self.steal() || self.is_queue_empty() && !self.state().has(LOCKED) && self.take_and_drop_hints()
    }

    #[cold]
    #[inline(never)]
    fn lock_slow(&self) {
        self.wait_for_lock(None);
    }

    #[cold]
    #[inline(never)]
    fn wait_for_lock(&self, deadline: Option<Deadline>) -> bool {
        loop {
            if self.spin_as_newcomer() {
                return true;
            }
            let is_lapsed = || self.state().has(LAPSED);
            if !is_lapsed() {
                return self.lock_queued(deadline);
            }
            // `None`: the head runs again, and the caller may queue.
            let attempt = || if is_lapsed() { Some(self.steal()) } else { None };
            if let Some(locked) = sleepers::wait_outside::<M>(deadline, attempt) {
                return locked;
            }
        }
    }

    /// A newcomer's spin, also while there is a queue: most waiters there are parked, and the newcomer runs already.
    fn spin_as_newcomer(&self) -> bool {
        if P::STEALING == Stealing::Nobody {
            return self.is_queue_empty() && self.steal();
        }
        let is_far =
            || P::STEALING == Stealing::Local && !Since::load::<M>(&self.since).is_in_group(P::key::<M>());
        // A head that has not come for so long may be waiting for the caller's processor.
        let is_late = || self.turn_exceeds(WAKE_BOUND);
        if !self.is_queue_empty() && (is_late() || is_far()) && !self.state().has(LAPSED) {
            return false;
        }
        let mut newcomer = Newcomer::<M>::new(&self.since, P::STEALING == Stealing::Anyone);
        // A parked head does not take a free lock in the next moment.
        let mut at_once = self.state().has(PARKED_HEAD);
        let mut held_looks = 0;
        loop {
            if self.state().has(LOCKED) {
                held_looks += 1;
            } else if (at_once || self.worth_taking(held_looks, ARRIVAL_IDLE)) && self.steal() {
                newcomer.succeeded();
                return true;
            } else {
                held_looks = 0;
            }
            at_once = false;
            if !newcomer.waits(held_looks) {
                return false;
            }
        }
    }

    /// Queues, waits to be the head, and competes for the word.
    fn lock_queued(&self, deadline: Option<Deadline>) -> bool {
        let node = sleepers::new_node::<M>();
        node.key().store(P::key::<M>(), Relaxed);
        let mut locked = false;
        if sleepers::enqueue::<M>(&self.tail, node) {
            self.begin_turn(node.key().load(Relaxed));
        } else {
            self.support_head(WAKE_BOUND);
            // Asked after the waiter woke up by itself: the head may be suspended.
            let pass_head = |_| {
                self.support_head(WAKE_BOUND);
                (self.state().has(LAPSED) || self.turn_exceeds(PROMISE_BOUND)) && self.steal()
            };
            match sleepers::wait_for_head::<M, P>(&self.tail, node, deadline, pass_head) {
                Waited::Head => (),
                Waited::HeadWithLock => locked = true,
                Waited::Locked => return true,
                Waited::TimedOut => return false,
            }
        }
        locked = locked || self.compete(node, deadline);
        self.leave(node, locked);
        locked
    }

    /// The head's part: `true` with the lock, `false` after the deadline.
    fn compete(&self, node: Waiter<'_, M>, deadline: Option<Deadline>) -> bool {
        let (mut pause, mut looks, mut held_looks) = (HEAD_PAUSE.0, 0, 0);
        let mut intervals = Intervals::of_sleeps();
        if P::STEALING == Stealing::Nobody && !self.state().has(NO_STEALING) {
            // There was no head before the caller, or that head gave up.
            self.support_head(0);
        }
        loop {
            if head_may_shuffle::<M, P>(node) {
                sleepers::walk::<M, P>(&self.tail, node, || !self.state().has(LOCKED));
            }
            let state = self.state();
            if state.has(LAPSED) {
                LAPSED.clear_in::<M>(&self.word); // the head runs again
            }
            let promised = state.has(NO_STEALING);
            if state.has(LOCKED) {
                held_looks += 1;
            } else if (promised || self.worth_taking(held_looks, HEAD_IDLE)) && self.take_and_drop_hints() {
                return true;
            } else {
                held_looks = 0;
            }
            M::pause(pause);
            if pause < M::patience(HEAD_PAUSE.1) {
                pause *= 2;
                continue;
            }
            if deadline.is_some_and(|d| d.passed::<M>()) {
                if promised {
                    NO_STEALING.with(OFFERED).clear_in::<M>(&self.word);
                }
                return !self.state().has(LOCKED) && self.take_and_drop_hints();
            }
            if !promised && self.support_head(STEAL_BOUND) {
                pause = HEAD_PAUSE.0;
            }
            looks += 1;
            if looks >= M::patience(HEAD_LOOKS) {
                // (F) pairs with `unlock`.
                park::<M>(&self.word, LOCKED, PARKED_HEAD, intervals.until::<M>(deadline));
                looks = 0;
            }
        }
    }

    /// Whether to take a lock that was found free after `held_looks` looks that found it held: sections are long, or
    /// further `looks` find it free too. Otherwise it may be between two short sections of a thread that has it in its
    /// cache. To take it from there costs two cache misses, and often a wakeup of the next head.
    fn worth_taking(&self, held_looks: u32, (looks, pause): (u32, u32)) -> bool {
        held_looks >= LONG_HOLD
            || (0..M::patience(looks)).all(|_| {
                M::pause(pause);
                !self.state().has(LOCKED)
            })
    }

    /// Stops being the head, with the lock or without it. The next waiter that is still there becomes the head.
    fn leave(&self, node: Waiter<'static, M>, locked: bool) {
        self.begin_turn(node.key().load(Relaxed)); // (R) of `sleepers` makes it visible to the next head
        let keep_newcomers_off = |_: Waiter<'_, M>| {
            if P::STEALING == Stealing::Nobody && locked {
                NO_STEALING.set_in::<M>(&self.word); // not lost: the caller does the next decrement itself
            }
        };
        let Some(Next { status, before, .. }) = sleepers::next_head(&self.tail, node, keep_newcomers_off)
        else {
            return;
        };
        if before != NODE_PARKED {
            return;
        }
        if locked && P::STEALING != Stealing::Nobody {
            // The next head sleeps on, at the word, until the caller's unlock unparks it. The requeue comes before the bit: a
            // thread that drops PARKED_HEAD from the held word unparks the head, and must find it.
            //
            // The next head may have timed out by now, and its node may belong to a stranger: a waiter of any lock. If the
            // stranger has just become the head of its queue and is still parked, the requeue moves it here. `unpark`
            // therefore wakes all threads at the word: waking one could leave this lock's head asleep. The stranger sleeps
            // until then, or until its own timed wakeup (`Intervals`).
            M::requeue(status, READY, &self.word);
            PARKED_HEAD.set_in::<M>(&self.word);
        } else {
            // (Where no thread may steal, the lock would otherwise be unused from the unlock until the head runs.)
            M::wake(status, 1);
        }
    }
}

#[cfg(test)]
mod tests;
