//! ShflLock, blocking.
//!
//! Source: Kashyap et al., "Scalable and practical locking with shuffling", SOSP 2019, section
//! 4.2.2, figures 6 and 7; shuffling in [`shuffle`](super::shuffle).
//!
//! A word that newcomers may steal, and behind it a queue of waiters that spin briefly and then
//! sleep. Only the head of the queue competes with newcomers for the word. Beyond the paper:
//!
//! - *The head sleeps too.* It announces itself with PARKED in the word and issues a heavy fence;
//!   see [`release_dec`](Machine::release_dec) for why no wakeup is lost though unlocking is not an
//!   atomic read-modify-write. Whoever takes the word drops PARKED with it, so one sleep costs one
//!   wake, not one per unlock.
//! - *Bounded unfairness.* The lock can be stolen from a head for [`STEAL_BOUND`] microseconds; then
//!   the head sets NO_STEALING, and the lock is its own at the next unlock. A head that was unparked but has not been
//!   scheduled yet cannot do that. Other threads may barge past it for at most `WAKE_BOUND`; after that, a waiter
//!   behind it sets NO_STEALING on the head's behalf. If woken threads run within `PROMISE_BOUND`, a waiter with `n`
//!   others in front of it thus waits for at most `n + 1` times the sum of three times: the longer bound, the time
//!   until a woken thread runs, and a holder's section.
//! - *Suspended waiters.* A waiter that is suspended for ever keeps the lock from nobody. NO_STEALING is a promise with
//!   a time limit. A thread that finds the lock free but promised to the head sets OFFERED and notes the time. After
//!   `PROMISE_BOUND` the next such thread sets LAPSED: any thread may take the lock until the head runs again. Waiters
//!   in the queue look at the lock at growing intervals and take it then; newcomers wait outside the queue. The header
//!   of `sleepers` has the rest.
//! - *No wakeup inside the section.* The new holder moves the sleep of the next head from its node to
//!   the word (a futex requeue), so that it is the unlock that wakes it.
//! - *Polite competition.* Waiters look at the word at growing intervals, and take it only if it is
//!   free several times in a row, or was held for long before: every look, and every change of hands, takes the
//!   cache line away from the thread that is using it.
//! - *Newcomers spin for about 3 microseconds before they queue, one of them for 13*, if that has been of use lately
//!   (`newcomer`).
//! - *Timed waiters* queue too, and may give up in the queue.
//!
//! Suspension: tolerates. A thread that has taken the word is the holder, though its call has not returned yet.
//!
//! | word | meaning | set by | cleared by |
//! |---|---|---|---|
//! | LOCKED (bit 0) | held | a swap by stealer or head | `release_dec` by the holder |
//! | NO_STEALING (bit 1) | the head is next | the head, or a waiter for it | the swap that takes the word; LAPSED |
//! | OFFERED (bit 2) | NO_STEALING has kept others from the free lock; `since` says from when on | those | the swap that takes the word; LAPSED |
//! | LAPSED (bit 3) | the head is suspended: anybody may take the lock | those | the head |
//! | PARKED (bit 31) | the head sleeps, wake it | the head | the swap that takes the word |
//!
//! Hints that are set while the lock is held may be lost to the unlocker's non-atomic decrement, and hints that are
//! cleared then may come back; the head looks again. OFFERED and LAPSED are set while the lock is free, or by the holder.
//!
//! The states of a node are in `sleepers`.
//!
//! Size: 16 bytes; 64 per waiter, from the pool; none per holder. Atomics per
//! uncontended pair: 1. In a process without a second thread: 0.
//! Fairness: bounded stealing as above; FIFO in the queue, per NUMA node with at most 16 in a row.

use super::newcomer::{Newcomer, TIME};
use super::shuffle::{NumaPolicy, Policy, Stealing, Waiter, may_start};
use super::sleepers::{self, Intervals, Next, PARKED, PROMISE_BOUND, READY, Waited};
use super::{ConstNew, Fair, Info, RawMutex, Suspension};
use crate::machine::{Arith, Deadline, Machine, Native, QNode, Word, micros};
use core::marker::PhantomData;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering::*};

const FREE: u32 = 0;
const LOCKED: u32 = 1;
const NO_STEALING: u32 = 1 << 1;
const OFFERED: u32 = 1 << 2;
const LAPSED: u32 = 1 << 3;
const PARKED_HEAD: u32 = 1 << 31;

/// Microseconds (of 1024 ns) for which the lock can be stolen from a head.
pub const STEAL_BOUND: u32 = 200;
/// The same for one that has been woken, or ought to be, and does not run yet: a turn that begins with a
/// wakeup leaves the lock, and often processors, unused until then, for 50 microseconds or so. A twentieth of the
/// turn is little; much longer turns are not faster, and everybody in the queue waits for them.
const WAKE_BOUND: u32 = 5 * STEAL_BOUND;
/// Looks in a row that found the word held, after which a section is so long that who waits may take the
/// word as soon as it is free.
const LONG_HOLD: u32 = 3;
/// Spin hints between two looks of the head, at first and at most.
const HEAD_PAUSE: (u32, u32) = (1, 32);
/// Looks of the head, at the longest pause, before it sleeps.
const HEAD_LOOKS: u32 = 128;
/// Second looks at a free word, and spin hints before each, until a newcomer and a head believe
/// that it is idle; see [`RawShfl::is_unused`]. Tuned on a two-processor Zen 4 against two extremes:
/// threads that do nothing but lock (more is better) and threads that think (less is better).
const ARRIVAL_IDLE: (u32, u32) = (2, 10);
const HEAD_IDLE: (u32, u32) = (4, 10);
/// Attempts at setting NO_STEALING, and spin hints after which it is there to stay if it is there:
/// longer than a decrement that lost it can have been under way.
const CLAIMS: u32 = 8;
const CLAIM_PAUSE: u32 = 16;
/// A sleep when the heavy fence was refused.
const UNFENCED_SLEEP: u64 = 1_000_000;

/// ShflLock, blocking. See the [module documentation](self).
pub struct RawShfl<M: Machine, P = NumaPolicy> {
    word: M::U32,
    /// When the head became it; see [`micros`].
    since: M::U32,
    tail: M::Ptr<QNode<M>>,
    policy: PhantomData<P>,
}

impl<P> RawShfl<Native, P> {
    /// Where the word is, and what it is while the lock is held and nobody waits, for fast paths that are not
    /// written in Rust.
    pub const WORD: usize = core::mem::offset_of!(Self, word);
    /// See [`WORD`](Self::WORD).
    pub const LOCKED: u32 = LOCKED;

    /// An unlocked lock.
    pub const fn new() -> Self {
        RawShfl {
            word: AtomicU32::new(FREE),
            since: AtomicU32::new(0),
            tail: AtomicPtr::new(null_mut()),
            policy: PhantomData,
        }
    }
}

impl<P> Default for RawShfl<Native, P> {
    fn default() -> Self {
        Self::new()
    }
}

impl<P: Policy> ConstNew for RawShfl<Native, P> {
    #[allow(clippy::declare_interior_mutable_const)]
    const NEW: Self = Self::new();
}

impl<M: Machine, P: Policy> RawShfl<M, P> {
    /// The uncontended acquisition. With any hint set it goes the slow way.
    #[inline(always)]
    fn try_free(&self) -> bool {
        self.word.load(Relaxed) == FREE && self.take()
    }

    /// The one atomic instruction of an acquisition. Looks first are the caller's.
    #[inline(always)]
    fn take(&self) -> bool {
        // (A) pairs with the decrement in `unlock`.
        let old = M::acquire_swap(&self.word, LOCKED);
        old == FREE || self.restore(old)
    }

    /// The swap has dropped hints that were set since the look before it: puts them right, and says
    /// whether it took the lock. A thread that does nothing but lock and unlock loads the word long
    /// before its last decrement is out of the store buffer, so this is no rare case there.
    #[cold]
    #[inline(never)]
    pub fn restore(&self, dropped: u32) -> bool {
        let mut kept = dropped & NO_STEALING;
        if dropped & LAPSED != 0 && !self.tail.load(Relaxed).is_null() {
            kept |= LAPSED;
        }
        if kept != 0 {
            self.word.fetch_or(kept, Relaxed);
        }
        let taken = dropped & LOCKED == 0;
        if !taken && dropped & PARKED_HEAD != 0 {
            // The lock was taken and its head went to sleep: let it announce itself again. (From a
            // lock that was free, the unlocker has seen the bit, and wakes.)
            wake_head::<M>(&raw const self.word);
        }
        taken
    }

    /// [`take`](Self::take) by the head: stealing may begin again.
    fn take_as_head(&self) -> bool {
        let old = M::acquire_swap(&self.word, LOCKED);
        old & LOCKED == 0 || self.restore(old)
    }

    /// A newcomer's attempt, past the head if there is one.
    fn steal(&self) -> bool {
        let word = self.word.load(Relaxed);
        if word & LOCKED != 0 || word & NO_STEALING != 0 && !self.lapses(word) {
            return false;
        }
        if word & (NO_STEALING | LAPSED) == 0 {
            return self.take();
        }
        // LAPSED outlives its use if there is no head to clear it.
        let lapsed = if self.tail.load(Relaxed).is_null() { 0 } else { LAPSED };
        // (A) as in `take`.
        let old = M::acquire_swap(&self.word, LOCKED | lapsed);
        old & !LAPSED == FREE || self.restore(old)
    }

    /// Whether the head has left the free lock, which `word` promises to it, unused for longer than `PROMISE_BOUND`.
    #[cold]
    fn lapses(&self, word: u32) -> bool {
        let next = if word & OFFERED == 0 {
            self.note_time(self.since.load(Relaxed) & !Self::TIMES);
            word | OFFERED
        } else if self.waited(PROMISE_BOUND) {
            word & !(NO_STEALING | OFFERED) | LAPSED
        } else {
            return false;
        };
        self.word.compare_exchange(word, next, Relaxed, Relaxed).is_ok() && next & LAPSED != 0
    }

    /// A queued waiter's attempt when it has slept for long, past a head that does not run.
    fn rescue(&self) -> bool {
        self.support_head(WAKE_BOUND);
        (self.word.load(Relaxed) & LAPSED != 0 || self.waited(PROMISE_BOUND)) && self.steal()
    }

    /// Whether the head has been passed over for so many microseconds.
    fn overdue(&self, bound: u32) -> bool {
        P::STEALING == Stealing::Nobody || self.waited(bound)
    }

    /// Whether `since` was so many microseconds ago.
    fn waited(&self, bound: u32) -> bool {
        micros::<M>().wrapping_sub(self.since.load(Relaxed)) & Self::TIMES > bound
    }

    /// The part of `since` that is a time; above it stands, if the policy wants it, a group, or else what
    /// newcomers know.
    const TIMES: u32 = (1 << TIME) - 1;

    /// Whether a thief would take the lock away from the group that it is in.
    fn is_far(&self) -> bool {
        P::STEALING == Stealing::Local && self.since.load(Relaxed) >> TIME != place(P::key::<M>())
    }

    /// Notes that there is a new head, in the group that the lock is in.
    fn begin(&self, group: u32) {
        let above = match P::STEALING {
            Stealing::Local => place(group) << TIME,
            _ => self.since.load(Relaxed) & !Self::TIMES,
        };
        self.note_time(above);
    }

    fn note_time(&self, above: u32) {
        self.since.store(micros::<M>() & Self::TIMES | above, Relaxed);
    }

    /// Ends the stealing if it has gone on for so many microseconds, unless the head is suspended.
    fn support_head(&self, bound: u32) -> bool {
        if !self.overdue(bound) || self.word.load(Relaxed) & LAPSED != 0 {
            return false;
        }
        for _ in 0..M::patience(CLAIMS) {
            self.word.fetch_or(NO_STEALING, Relaxed);
            M::pause(CLAIM_PAUSE);
            if self.word.load(Relaxed) & NO_STEALING != 0 {
                break;
            }
        }
        true
    }

    #[cold]
    fn try_lock_slow(&self) -> bool {
        // The hint may outlive its head, one that gave up: a free lock must not look held.
        self.steal()
            || self.tail.load(Relaxed).is_null()
                && self.word.load(Relaxed) & LOCKED == 0
                && self.take_as_head()
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
            let lapsed = || self.word.load(Relaxed) & LAPSED != 0;
            if !lapsed() {
                return self.lock_queued(deadline);
            }
            let outcome = sleepers::wait_outside::<M>(deadline, || lapsed().then(|| self.steal()));
            if let Some(locked) = outcome {
                return locked;
            }
        }
    }

    /// A newcomer's short wait, at growing intervals. It goes on while there is a queue: the
    /// waiters there are mostly asleep, and a processor that has nothing else to do is better used
    /// by a thread that is awake.
    fn arrive(&self) -> bool {
        if P::STEALING == Stealing::Nobody {
            // Who is not in the queue is passed by whoever finds the lock free.
            return self.tail.load(Relaxed).is_null() && self.steal();
        }
        if !self.tail.load(Relaxed).is_null()
            && (self.overdue(WAKE_BOUND) || self.is_far())
            && self.word.load(Relaxed) & LAPSED == 0
        {
            return false; // the head may be waiting for our processor
        }
        let mut newcomer = Newcomer::<M>::new(&self.since, P::STEALING == Stealing::Anyone);
        // With a head asleep there is nobody to be polite to.
        let mut eager = self.word.load(Relaxed) & PARKED_HEAD != 0;
        let mut held = 0;
        loop {
            if self.word.load(Relaxed) & LOCKED != 0 {
                held += 1;
            } else if (eager || self.is_unused(held, ARRIVAL_IDLE)) && self.steal() {
                newcomer.succeeded();
                return true;
            } else {
                held = 0;
            }
            eager = false;
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
        let mut pause = HEAD_PAUSE.0;
        let mut looks = 0;
        let mut held = 0;
        let mut intervals = Intervals::of_sleeps();
        if P::STEALING == Stealing::Nobody && self.word.load(Relaxed) & NO_STEALING == 0 {
            // Nobody was the head before us, or one that gave up: from here on nobody passes.
            self.support_head(0);
        }
        loop {
            if may_start::<M, P>(node) {
                sleepers::walk::<M, P>(&self.tail, node, || self.word.load(Relaxed) & LOCKED == 0);
            }
            let word = self.word.load(Relaxed);
            if word & LAPSED != 0 {
                self.word.fetch_and(!LAPSED, Relaxed); // we run again
            }
            let ours = word & NO_STEALING != 0;
            if word & LOCKED != 0 {
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
                    self.word.fetch_and(!(NO_STEALING | OFFERED), Relaxed);
                }
                return self.word.load(Relaxed) & LOCKED == 0 && self.take_as_head();
            }
            if !ours && self.support_head(STEAL_BOUND) {
                pause = HEAD_PAUSE.0;
            }
            looks += 1;
            if looks >= M::patience(HEAD_LOOKS) {
                self.park_head(intervals.until::<M>(deadline));
                looks = 0;
            }
        }
    }

    /// Whether a lock that was found free, after so many looks that had found it held, is unused, and not
    /// merely between two short sections of a thread that has it in its cache: to take it from there costs two
    /// cache misses and often a wakeup of the next head.
    fn is_unused(&self, held: u32, (looks, pause): (u32, u32)) -> bool {
        held >= LONG_HOLD
            || (0..M::patience(looks)).all(|_| {
                M::pause(pause);
                self.word.load(Relaxed) & LOCKED == 0
            })
    }

    /// Sleeps until the next unlock.
    fn park_head(&self, deadline: Option<Deadline>) {
        // SeqCst is not needed: (F) the heavy fence orders the bit before the second look, and
        // every unlocker's decrement either before that look or after the bit.
        if self.word.fetch_or(PARKED_HEAD, Relaxed) & LOCKED == 0 {
            return;
        }
        let fenced = M::heavy_fence();
        let word = self.word.load(Relaxed);
        if word & LOCKED == 0 || word & PARKED_HEAD == 0 {
            return;
        }
        let deadline = match deadline {
            deadline if fenced => deadline,
            Some(deadline) if deadline.passed::<M>() => return,
            _ => Some(Deadline::after::<M>(UNFENCED_SLEEP)),
        };
        M::wait(&self.word, word, deadline);
    }

    /// Stops being the head, with the lock or without: the next waiter that is still there becomes it.
    fn leave(&self, node: Waiter<'static, M>, locked: bool) {
        // For the next head, if there is one; (R) makes it visible to it.
        self.begin(node.key().load(Relaxed));
        let claim = |_: Waiter<'_, M>| {
            if P::STEALING == Stealing::Nobody && locked {
                // Ours to set, as it is us who will decrement: it is not lost.
                self.word.fetch_or(NO_STEALING, Relaxed);
            }
        };
        let Some(Next { status, before, .. }) = sleepers::next_head(&self.tail, node, claim) else { return };
        match before {
            // (Without thieves to bridge it, a wakeup is too long for the unlock to begin it.)
            PARKED if locked && P::STEALING != Stealing::Nobody => {
                // It sleeps on, as a parked head, until our own unlock wakes it. In this order: the thread that
                // drops the bit from the held word wakes, and must find the sleeper. (The next head may have left after
                // its deadline, and its node may have a new owner that is READY and asleep. Then we move that
                // owner, and our unlock wakes it.)
                M::requeue(status, READY, &self.word);
                self.word.fetch_or(PARKED_HEAD, Relaxed);
            }
            PARKED => _ = M::wake(status, 1),
            _ => (),
        }
    }
}

/// A policy's key, in the bits above a time.
fn place(key: u32) -> u32 {
    key & (u32::MAX >> TIME)
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
            word: M::U32::new(FREE),
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
        // (A) the section happens before the next acquire. (F) pairs with `park_head`.
        if M::release_dec(&self.word) {
            wake_head::<M>(&raw const self.word);
        }
    }

    fn is_locked(&self) -> bool {
        self.word.load(Relaxed) & LOCKED != 0
    }
}

/// Wakes the head. The lock may be gone by now: only its address is used.
#[cold]
#[inline(never)]
fn wake_head<M: Machine>(word: *const M::U32) {
    M::wake(word, 1);
}

impl<M: Machine, P: Policy> Fair for RawShfl<M, P> {
    unsafe fn unlock_fair(&self, (): ()) {
        // A suspended head (LAPSED) would leave the lock unused.
        if !self.tail.load(Relaxed).is_null() && self.word.load(Relaxed) & LAPSED == 0 {
            // The bit is not lost: this thread itself does the decrement that follows.
            self.word.fetch_or(NO_STEALING, Relaxed);
        }
        // SAFETY: the caller's token came from the acquisition that this ends.
        unsafe { self.unlock(()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::AtomicBool;
    use std::thread;

    /// After a fair release, the next attempt does not pass the waiter in the queue. (A later one may, if the waiter does
    /// not run for `PROMISE_BOUND`.)
    #[test]
    fn a_fair_release_hands_over() {
        for _ in 0..100 {
            let (lock, served) = (RawShfl::<Native>::new(), AtomicBool::new(false));
            lock.lock();
            thread::scope(|scope| {
                scope.spawn(|| {
                    lock.lock();
                    served.store(true, Relaxed);
                    // SAFETY: from the acquisition above.
                    unsafe { lock.unlock(()) };
                });
                while lock.tail.load(Relaxed).is_null() {
                    thread::yield_now();
                }
                // SAFETY: from the acquisition above.
                unsafe { lock.unlock_fair(()) };
                if lock.try_lock().is_some() {
                    let in_order = served.load(Relaxed);
                    // SAFETY: from the attempt above.
                    unsafe { lock.unlock(()) };
                    assert!(in_order, "the attempt passed the waiter");
                }
            });
            assert!(served.into_inner() && !lock.is_locked());
        }
    }
}
