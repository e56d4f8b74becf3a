//! ShflLock, blocking: the default mutex.
//!
//! Source: Kashyap et al., "Scalable and practical locking with shuffling", SOSP 2019, section 4.2.2, figures 6 and 7.
//!
//! One word says whether the lock is held; an acquisition swaps LOCKED into it. A *newcomer* that finds the lock held
//! spins for some microseconds ([`newcomer`](super::newcomer)) and then joins a queue of waiters that spin briefly and
//! park ([`sleepers`]). Only the *head* of the queue competes with newcomers for the word. A newcomer
//! that takes the lock while there is a queue *steals* it from the head. Waiters that wait move those of their own NUMA
//! node together ([`shuffle`](super::shuffle)).
//!
//! # States
//!
//! The word is LOCKED (bit 0) and hints: NO_STEALING (bit 1), OFFERED (bit 2), LAPSED (bit 3) and PARKED (bit 31).
//!
//! | the word | becomes | moved by | pairs with |
//! |---|---|---|---|
//! | not LOCKED, no hint | LOCKED | a newcomer's or the head's swap, `take` | (A) acquire; `unlock` |
//! | LOCKED, any hints | not LOCKED, the same hints | the holder's decrement, `unlock`, which unparks the head if PARKED is set | (A) release; (F) |
//! | LOCKED | PARKED too | the head before it parks, `compete`; the new holder for a head that parks already, `leave` | (F) the heavy fence, with `unlock` |
//! | not LOCKED, PARKED | LOCKED | any swap: the unlock has seen PARKED already | (A) |
//! | any, no LAPSED | NO_STEALING too: newcomers keep off | the head after [`STEAL_BOUND`]; for a head that does not run, a waiter behind it after [`WAKE_BOUND`]; `support_head`. The holder, `unlock_fair` | |
//! | not LOCKED, NO_STEALING | LOCKED, no hint | the head's swap, `take_as_head` | (A) |
//! | not LOCKED, NO_STEALING | OFFERED too, and the time in `since` | a thread that NO_STEALING keeps off the free lock, `lapses` | |
//! | the same, OFFERED | LAPSED instead of both | such a thread after [`PROMISE_BOUND`], `lapses` | |
//! | not LOCKED, LAPSED | LOCKED, LAPSED | any thread's swap, `steal` | (A) |
//! | LAPSED | without it | the head when it runs again, `compete` | |
//! | NO_STEALING, OFFERED | without them | the head when its deadline has passed, `compete` | |
//!
//! Transitions without a pair are hints: the decrement is no atomic read-modify-write, so a hint that is set while the
//! lock is held may be lost, and one that is cleared then may come back. The head sets NO_STEALING until it stays, and
//! looks again. PARKED may not be lost: after (F) the heavy fence, every decrement that comes sees it. OFFERED and LAPSED
//! are set while the lock is free, or by the holder. A swap that has dropped a hint puts it right (`repair`).
//!
//! # Beyond the paper
//!
//! - *The head parks too*, at the word. The swap that takes the word drops PARKED, so a sleep costs one wakeup, not one an
//!   unlock.
//! - *Bounded unfairness.* If unparked threads run within `PROMISE_BOUND`, a waiter with `n` others in front of it waits
//!   for at most `n + 1` times the sum of: `WAKE_BOUND`, the time until an unparked thread runs, and a section.
//! - *Suspended waiters.* NO_STEALING is a promise with a time limit. When it has lapsed, any thread may take the lock
//!   until the head runs again; waiters in the queue look at the lock at growing intervals, newcomers outside the queue.
//! - *No wakeup inside the section.* The new holder moves a parked next head from its node to the word (a futex requeue),
//!   so that it is the unlock that unparks it.
//! - *Few looks.* Every look and every handover takes the word's cache line away from the holder. Waiters look at growing
//!   intervals, and take the lock only if several looks in a row find it free, or sections are long.
//! - *Newcomers spin* before they queue, and *timed waiters* queue too and may leave the queue.
//!
//! Size: 16 bytes; 64 per waiter, from the machine's node pool; none per holder. Atomics per uncontended pair: 1; in a
//! process with one thread, 0.
//! Fairness: bounded stealing, as above; FIFO in the queue, per NUMA node with at most 16 in a row.
//! Suspension: tolerates. A thread that has swapped LOCKED in is the holder, though its call has not returned yet.

use super::newcomer::{Newcomer, Since};
use super::shuffle::{NumaPolicy, Policy, Stealing, Waiter, may_start};
use super::sleepers::{self, Intervals, Next, PARKED, PROMISE_BOUND, READY, Waited};
use super::{ConstNew, Fair, Info, RawMutex, Suspension};
use crate::locks::bits::Bits;
use crate::locks::for_assembly::ExchangeMutex;
use crate::locks::parked_bit::{park, unpark};
use crate::machine::{Deadline, Machine, Native, QNode, Word};
use core::marker::PhantomData;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering::*};

/// Microseconds (of 1024 ns) for which newcomers may steal from a head. Longer costs fairness: the longest waits of 0.2 ms
/// are half of those of 0.5 ms, at the same throughput.
const STEAL_BOUND: u32 = 200;
/// The same for a head that was unparked and does not run yet. Until it runs (some 50 microseconds) the lock is unused, and
/// often a processor. A twentieth of the turn is little; with 4 ms and more, throughput is the same and waits are longer.
const WAKE_BOUND: u32 = 1000;
/// Looks in a row that find the lock held, after which sections count as long: waiters may take a lock that is free at once.
const LONG_HOLD: u32 = 3;
/// Spin hints between two looks of the head, at first and at most: each look takes the cache line away from the holder.
const HEAD_PAUSE: (u32, u32) = (1, 32);
/// Looks of the head at the longest pause before it parks: some 80 microseconds, several times what a wakeup takes.
const HEAD_LOOKS: u32 = 128;
/// Second looks, and spin hints before each, until a newcomer or the head believes that a free lock is unused. Tuned (Zen 4,
/// two processors) between threads that only lock, where more is better, and threads that think, where less is better.
const ARRIVAL_IDLE: (u32, u32) = (2, 10);
const HEAD_IDLE: (u32, u32) = (4, 10);
/// Attempts at setting NO_STEALING, and spin hints after each: longer than a decrement can be under way that loses the bit.
const CLAIMS: u32 = 8;
const CLAIM_PAUSE: u32 = 16;

const FREE: Bits = Bits::NONE;
const LOCKED: Bits = Bits(1);
const NO_STEALING: Bits = Bits(1 << 1);
const OFFERED: Bits = Bits(1 << 2);
const LAPSED: Bits = Bits(1 << 3);
const PARKED_HEAD: Bits = Bits(1 << 31);

/// ShflLock, blocking. See the [module documentation](self).
pub struct RawShfl<M: Machine, P = NumaPolicy> {
    word: M::U32,
    /// When the head became the head, and what newcomers have learnt; see [`Since`].
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
        (self.try_free() || self.lock_timed(deadline)).then_some(())
    }

    #[inline]
    unsafe fn unlock(&self, (): ()) {
        // (A) the section happens before the next acquisition. (F) pairs with `park`.
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

    /// The one atomic instruction of an acquisition. Looks first are the caller's.
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

    /// The swap has dropped hints that were set since the look before it. Puts them right, and returns whether the swap
    /// took the lock. A thread that does nothing but lock and unlock loads the word long before its last decrement is out
    /// of the store buffer, so this is no rare case there.
    #[cold]
    #[inline(never)]
    fn repair(&self, dropped: Bits) -> bool {
        let mut kept = dropped.only(NO_STEALING);
        if dropped.has(LAPSED) && !self.is_queue_empty() {
            kept = kept.with(LAPSED);
        }
        if kept != FREE {
            kept.set_in::<M>(&self.word);
        }
        if dropped.has(LOCKED) && dropped.has(PARKED_HEAD) {
            // Another thread has taken the lock and the head has parked: the head is to set the bit again. (If the lock
            // was free, the previous holder's unlock has seen PARKED and unparks the head.)
            unpark::<M>(&raw const self.word);
        }
        !dropped.has(LOCKED)
    }

    /// [`take`](Self::take) by the head: it drops the hints, and newcomers may steal again.
    fn take_as_head(&self) -> bool {
        let old = self.swap(LOCKED);
        !old.has(LOCKED) || self.repair(old)
    }

    /// An attempt past the head, if there is one.
    fn steal(&self) -> bool {
        let state = self.state();
        if state.has(LOCKED) || state.has(NO_STEALING) && !self.lapses(state) {
            return false;
        }
        if !state.has(NO_STEALING.with(LAPSED)) {
            return self.take();
        }
        // LAPSED outlives its use if there is no head to clear it.
        let lapsed = if self.is_queue_empty() { FREE } else { LAPSED };
        let old = self.swap(LOCKED.with(lapsed));
        old.without(LAPSED) == FREE || self.repair(old)
    }

    /// Whether the head has left the free lock, which `state` promises to it, unused for longer than `PROMISE_BOUND`.
    #[cold]
    fn lapses(&self, state: Bits) -> bool {
        let next = if !state.has(OFFERED) {
            Since::load::<M>(&self.since).store_now::<M>(&self.since);
            state.with(OFFERED)
        } else if self.waited(PROMISE_BOUND) {
            state.without(NO_STEALING.with(OFFERED)).with(LAPSED)
        } else {
            return false;
        };
        self.word.compare_exchange(state.0, next.0, Relaxed, Relaxed).is_ok() && next.has(LAPSED)
    }

    /// The attempt of a queued waiter that has slept for long, past a head that does not run.
    fn rescue(&self) -> bool {
        self.support_head(WAKE_BOUND);
        (self.state().has(LAPSED) || self.waited(PROMISE_BOUND)) && self.steal()
    }

    /// Whether the head has been the head for longer than `bound` microseconds.
    fn waited(&self, bound: u32) -> bool {
        Since::elapsed::<M>(&self.since) > bound
    }

    /// Notes that there is a new head, and the group that the lock is in.
    fn begin(&self, group: u32) {
        let since = match P::STEALING {
            Stealing::Local => Since::in_group(group),
            _ => Since::load::<M>(&self.since),
        };
        since.store_now::<M>(&self.since);
    }

    /// Sets NO_STEALING if newcomers have stolen for `bound` microseconds, unless the head is suspended.
    fn support_head(&self, bound: u32) -> bool {
        let overdue = P::STEALING == Stealing::Nobody || self.waited(bound);
        if !overdue || self.state().has(LAPSED) {
            return false;
        }
        for _ in 0..M::patience(CLAIMS) {
            NO_STEALING.set_in::<M>(&self.word);
            M::pause(CLAIM_PAUSE);
            if self.state().has(NO_STEALING) {
                break;
            }
        }
        true
    }

    #[cold]
    fn try_lock_slow(&self) -> bool {
        // NO_STEALING may outlive a head that gave up. A free lock must not look held then.
        self.steal() || self.is_queue_empty() && !self.state().has(LOCKED) && self.take_as_head()
    }

    #[cold]
    #[inline(never)]
    fn lock_slow(&self) {
        self.wait_for_lock(None);
    }

    #[cold]
    #[inline(never)]
    fn lock_timed(&self, deadline: Deadline) -> bool {
        self.wait_for_lock(Some(deadline))
    }

    fn wait_for_lock(&self, deadline: Option<Deadline>) -> bool {
        loop {
            if self.arrive() {
                return true;
            }
            let lapsed = || self.state().has(LAPSED);
            if !lapsed() {
                return self.lock_queued(deadline);
            }
            let outcome = sleepers::wait_outside::<M>(deadline, || lapsed().then(|| self.steal()));
            if let Some(locked) = outcome {
                return locked;
            }
        }
    }

    /// A newcomer's spin. It goes on while there is a queue: the waiters there mostly park, and a processor that has
    /// nothing else to do is better used by a thread that runs.
    fn arrive(&self) -> bool {
        if P::STEALING == Stealing::Nobody {
            // Any thread that finds the lock free passes a thread that is not in the queue.
            return self.is_queue_empty() && self.steal();
        }
        let is_far =
            || P::STEALING == Stealing::Local && !Since::load::<M>(&self.since).is_in_group(P::key::<M>());
        if !self.is_queue_empty() && (self.waited(WAKE_BOUND) || is_far()) && !self.state().has(LAPSED) {
            return false; // the head may be waiting for the caller's processor
        }
        let mut newcomer = Newcomer::<M>::new(&self.since, P::STEALING == Stealing::Anyone);
        // A parked head does not take a free lock in the next moment.
        let mut at_once = self.state().has(PARKED_HEAD);
        let mut held = 0;
        loop {
            if self.state().has(LOCKED) {
                held += 1;
            } else if (at_once || self.is_unused(held, ARRIVAL_IDLE)) && self.steal() {
                newcomer.succeeded();
                return true;
            } else {
                held = 0;
            }
            at_once = false;
            if !newcomer.waits(held) {
                return false;
            }
        }
    }

    /// Queues, waits to be the head, and competes for the word.
    fn lock_queued(&self, deadline: Option<Deadline>) -> bool {
        let node = sleepers::new_node::<M>();
        node.key().store(P::key::<M>(), Relaxed);
        if sleepers::enqueue::<M>(&self.tail, node) {
            self.begin(node.key().load(Relaxed));
        } else {
            self.support_head(WAKE_BOUND);
            match sleepers::wait_for_head::<M, P>(&self.tail, node, deadline, |_| self.rescue()) {
                Waited::Head => (),
                Waited::HeadWithLock => {
                    self.leave(node, true);
                    return true;
                }
                Waited::Locked => return true,
                Waited::TimedOut => return false,
            }
        }
        let locked = self.compete(node, deadline);
        self.leave(node, locked);
        locked
    }

    /// The head's part: `true` with the lock, `false` after the deadline.
    fn compete(&self, node: Waiter<'_, M>, deadline: Option<Deadline>) -> bool {
        let (mut pause, mut looks, mut held) = (HEAD_PAUSE.0, 0, 0);
        let mut intervals = Intervals::of_sleeps();
        if P::STEALING == Stealing::Nobody && !self.state().has(NO_STEALING) {
            // There was no head before the caller, or one that gave up: from here on no thread passes.
            self.support_head(0);
        }
        loop {
            if may_start::<M, P>(node) {
                sleepers::walk::<M, P>(&self.tail, node, || !self.state().has(LOCKED));
            }
            let state = self.state();
            if state.has(LAPSED) {
                LAPSED.clear_in::<M>(&self.word); // the head runs again
            }
            let ours = state.has(NO_STEALING);
            if state.has(LOCKED) {
                held += 1;
            } else if (ours || self.is_unused(held, HEAD_IDLE)) && self.take_as_head() {
                return true;
            } else {
                held = 0;
            }
            M::pause(pause);
            if pause < M::patience(HEAD_PAUSE.1) {
                pause *= 2;
                continue;
            }
            if deadline.is_some_and(|d| d.passed::<M>()) {
                if ours {
                    NO_STEALING.with(OFFERED).clear_in::<M>(&self.word);
                }
                return !self.state().has(LOCKED) && self.take_as_head();
            }
            if !ours && self.support_head(STEAL_BOUND) {
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

    /// Whether a lock that was found free, after `held` looks that found it held, is unused. It may be merely between two
    /// short sections of a thread that has it in its cache: to take it from there costs two cache misses, and often a
    /// wakeup of the next head.
    fn is_unused(&self, held: u32, (looks, pause): (u32, u32)) -> bool {
        held >= LONG_HOLD
            || (0..M::patience(looks)).all(|_| {
                M::pause(pause);
                !self.state().has(LOCKED)
            })
    }

    /// Stops being the head, with the lock or without it. The next waiter that is still there becomes the head.
    fn leave(&self, node: Waiter<'static, M>, locked: bool) {
        self.begin(node.key().load(Relaxed)); // (R) makes it visible to the next head
        let claim = |_: Waiter<'_, M>| {
            if P::STEALING == Stealing::Nobody && locked {
                // Not lost: the caller is the holder, and does the next decrement.
                NO_STEALING.set_in::<M>(&self.word);
            }
        };
        let Some(Next { status, before, .. }) = sleepers::next_head(&self.tail, node, claim) else { return };
        match before {
            // (If newcomers may not steal until the head runs, the head is unparked now: that takes long.)
            PARKED if locked && P::STEALING != Stealing::Nobody => {
                // The next head stays parked, at the word now, until the caller's unlock unparks it. The requeue comes
                // first: a thread that drops PARKED from the held word unparks, and must find the head. (The next head may
                // have timed out, and its node may have a new owner that is READY and parked. Then the requeue moves that
                // owner, and the unlock unparks it.)
                M::requeue(status, READY, &self.word);
                PARKED_HEAD.set_in::<M>(&self.word);
            }
            PARKED => _ = M::wake(status, 1),
            _ => (),
        }
    }
}

#[cfg(test)]
mod tests;
