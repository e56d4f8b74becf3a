//! ShflLock, blocking: the default mutex.
//!
//! Source: Kashyap et al., "Scalable and practical locking with shuffling", SOSP 2019, section 4.2.2, figures 6 and 7.
//!
//! An acquisition is one compare-and-exchange of one word. A *newcomer* that finds the lock held spins for some microseconds,
//! then joins a queue of waiters that park ([`sleepers`] has the table of a waiter's states). Only the *head* of the queue
//! competes with newcomers for the word. A newcomer that takes the lock while there is a queue *steals* it from the head. The
//! head moves the waiters of its own NUMA node together ([`shuffle`](super::shuffle)).
//!
//! # States
//!
//! | bit of `word` | meaning | set by | cleared by |
//! |---|---|---|---|
//! | HELD | a thread holds the lock | (A) acquire: the new holder, which clears the other bits: `try_free`, `take` | (A) release: `unlock`, `unlock_slow` |
//! | PARKED | a hint: the head sleeps at `word`; only beside HELD | the head before it parks, `park`; the holder for the next head, `leave`, or for one that may nap there, `unlock_fair` | the unlock, which then unparks the head; a torn one |
//! | DEMAND | no newcomer may steal, and a free lock is left to the head | the head after [`TURN`](Policy::TURN), `demand`; the holder, `unlock_fair`, `leave` | a new holder; a head that gives up (if it may be stolen from); an unlock without a queue; a torn one |
//!
//! [`turn`](super::turn) has the bits of the word `turn`.
//!
//! # The unlock
//!
//! `unlock` stores 0 in the word if there is no queue, or if the word is HELD: no atomic read-modify-write. If the head sets PARKED
//! between the look and the store, the store erases that, and the unlock wakes no thread: a *torn* release. The head looks again
//! after 0.75 us, by when the store is done unless the holder was interrupted between the two. In that rare case the head sleeps
//! beside a free lock, which any other thread may take; so it never sleeps for longer than it has waited, or 10 ms.
//! The next holder may free the lock's memory. So an unlock uses only the address of `word` after it has released it.
//!
//! # How long a waiter waits, and where that differs from the paper
//!
//! The paper's shuffler, and a thread that acquires the lock, wake the waiters that are next ahead of their turn (S_SPINNING). Here
//! no waiter is woken early: newcomers use the lock meanwhile, and the unlock wakes a parked head. Also, only the head shuffles; a NUMA
//! node gets the lock 16 times in a row, not 1024; and an acquisition is a compare-and-exchange, not an exchange.
//!
//! - *Looks.* A look at the word takes its cache line away from the holder. A waiter that has waited for a time `t` looks again
//!   after `t / 16`. It takes the lock if that is free at four looks in a row ([`LOOK`](Policy::LOOK) apart). If one finds it
//!   held again, a thread that has the word in its cache uses it over and over: the waiter stays away for another `t`. After 16
//!   looks in a row at a held lock its sections are long, and the waiter takes it at the first look that finds it free.
//! - *Spin, then sleep.* A newcomer spins for [`SPIN`](Policy::SPIN) if there is no queue or its head sleeps. A head spins as
//!   long, once, then parks (the paper's head spins for ever). The next unlock unparks it, and it looks whether the lock is free.
//! - *In vain.* If spins rarely end with the lock, newcomers and queued waiters park at once ([`turn`](super::turn)). Where the process
//!   has one processor, the head does so too.
//! - *Robbed.* If it is held after the head has parked once, running threads probably use it well without wakeups. The head naps for
//!   as long as it has waited so far, again and again, and looks in between. No unlock wakes it: an idle lock may be unused for as long
//!   as the head has waited.
//! - *Its turn.* After [`TURN`](Policy::TURN), or the nap that it is in by then, the head demands the lock, spins again, and newcomers
//!   may not steal it. A waiter behind `n` others (and up to 15 of its node that each may bring) waits for about `n + 1` times (two
//!   turns, sections and wakeups), if a wakeup takes less than `PROMISE_BOUND`. A torn demand is made again at the head's next look, rarely after a sleep.
//!   A head that gives up takes back what was demanded for it, by `unlock_fair` too; the next head begins anew.
//! - *A suspended waiter* is passed ([`sleepers`]), or, by chance, a late one. No newcomer queues behind one: nodes would pile up.
//! - *No wakeup inside the section.* A new holder requeues a parked successor to `word` (futex), so that the unlock unparks it.
//!
//! Size: 16 bytes; 64 per waiter, from the machine's node pool. Atomics per uncontended pair: 1; 0 with a single thread.
//! Fairness: bounded stealing, as above; FIFO in the queue, per NUMA node with at most 16 in a row.
//! Suspension: a suspended waiter only delays others ([`sleepers`]). A thread is the holder from its compare-and-exchange on.

use super::policies::NumaPolicy;
use super::shuffle::{Policy, Waiter};
use super::sleepers::{self, Head, READY, SHORTEST_SLEEP};
use super::turn::{ASLEEP, LAPSED, PROMISE_BOUND, Turn, age};
use super::{ConstNew, Fair, Info, RawMutex, Suspension};
use crate::locks::bits::Bits;
use crate::locks::for_assembly::CompareMutex;
use crate::machine::{Arith, Deadline, Machine, Nap, Native, QNode, Word};
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering::*};
use core::{marker::PhantomData, ptr::null_mut};

const HELD: u32 = 1 << 0;
const PARKED: u32 = 1 << 1;
const DEMAND: u32 = 1 << 2;

/// ShflLock, blocking. `P` orders the queue, and says which newcomers may steal. See the [module documentation](self).
#[repr(C)]
pub struct RawShfl<M: Machine, P = NumaPolicy> {
    word: M::U32,
    turn: Turn<M>,
    tail: M::Ptr<QNode<M>>,
    order: PhantomData<P>,
}

impl<P> RawShfl<Native, P> {
    /// An unlocked lock.
    pub const fn new() -> Self {
        RawShfl {
            word: AtomicU32::new(0),
            turn: Turn(AtomicU32::new(0)),
            tail: AtomicPtr::new(null_mut()),
            order: PhantomData,
        }
    }
}

const_new!(RawShfl<Native, P>, P: Policy);

impl<P: Policy> CompareMutex for RawShfl<Native, P> {
    const WORD: usize = core::mem::offset_of!(Self, word);
    const LOCKED: u32 = HELD;
    const QUEUE: usize = core::mem::offset_of!(Self, tail);

    #[inline(always)]
    unsafe fn release(&self) -> bool {
        Native::release_if(&self.tail, &self.word, HELD) // (A)
    }
}

// SAFETY: only one compare-and-exchange can set HELD, and only its thread stores HELD anew; (A) orders the sections.
unsafe impl<M: Machine, P: Policy> RawMutex for RawShfl<M, P> {
    type Machine = M;
    type Token = ();
    const INFO: Info = Info {
        name: "shfl",
        summary: "ShflLock, blocking: NUMA-grouped queue of sleepers behind a stealable word",
        atomics: 1,
        waiter_bytes: 64,
        holder_bytes: 0,
        fairness: "stealing for 1 to 2 ms per queue position; FIFO per NUMA node, 16 in a row",
        blocking: true,
        suspension: Suspension::Tolerates,
        source: "Kashyap et al. 2019, section 4.2.2",
    };

    fn new_in() -> Self {
        let (word, turn) = (M::U32::new(0), Turn(M::U32::new(0)));
        Self { word, turn, tail: M::Ptr::new(null_mut()), order: PhantomData }
    }

    #[inline]
    fn lock(&self) {
        if !self.try_free() {
            self.wait_for_lock(None, P::BESIDE);
        }
    }

    #[inline]
    fn try_lock(&self) -> Option<()> {
        (self.try_free() || self.steal()).then_some(())
    }

    #[inline(always)]
    fn try_lock_weak(&self) -> Option<()> {
        self.try_free().then_some(())
    }

    fn lock_contended(&self) {
        self.wait_for_lock(None, P::BESIDE);
    }

    fn lock_until(&self, deadline: Deadline) -> Option<()> {
        (self.try_free() || self.wait_for_lock(Some(deadline), P::BESIDE)).then_some(())
    }

    #[inline]
    unsafe fn unlock(&self, (): ()) {
        // (A) the section happens before the next acquisition.
        if !M::release_if(&self.tail, &self.word, HELD) {
            self.unlock_slow();
        }
    }

    fn is_locked(&self) -> bool {
        self.word().has(HELD)
    }

    /// Where the process has one processor, a waiter parks at once: that lets the holder run too, and keeps the rest of the slice.
    fn wants_offers(&self) -> bool {
        self.is_locked() && !M::has_one_processor()
    }
}

impl<M: Machine, P: Policy> Fair for RawShfl<M, P> {
    unsafe fn unlock_fair(&self, (): ()) {
        if !self.is_queue_empty() && !self.is_lapsed() {
            self.word.fetch_or(DEMAND | PARKED, Relaxed); // the head may nap at the word
        }
        // SAFETY: the caller's token came from the acquisition that this ends.
        unsafe { self.unlock(()) };
    }
}

impl<M: Machine, P: Policy> RawShfl<M, P> {
    fn word(&self) -> Bits {
        Bits::of::<M>(&self.word)
    }

    fn is_queue_empty(&self) -> bool {
        self.tail.load(Relaxed).is_null()
    }

    /// The uncontended acquisition.
    #[inline(always)]
    fn try_free(&self) -> bool {
        M::acquire_zero(&self.word, HELD) // (A)
    }

    /// Takes the lock if its `word`, as the caller has seen it, says that it is free.
    fn take(&self, word: Bits) -> bool {
        !word.has(HELD) && self.word.compare_exchange(word.0, HELD, Acquire, Relaxed).is_ok() // (A)
    }

    /// Takes a free lock by a thread that is not the head.
    #[cold]
    fn steal(&self) -> bool {
        let word = self.word();
        let may = || !word.has(DEMAND) || self.is_queue_empty() || self.lapses();
        !word.has(HELD) && may() && self.take(word)
    }

    /// Whether there is a head and it does not run. LAPSED may stay behind when the queue becomes empty; the next head clears it.
    fn is_lapsed(&self) -> bool {
        self.turn.get().has(LAPSED) && !self.is_queue_empty()
    }

    /// Whether a thread that finds the lock free may pass the head: LAPSED is set, or the last stamp is older than
    /// [`PROMISE_BOUND`]. Then this sets LAPSED.
    fn lapses(&self) -> bool {
        let turn = self.turn.get();
        // It fails if `turn` has changed since it was read: there may be another head. Relaxed: LAPSED publishes nothing.
        turn.has(LAPSED)
            || age::<M>(turn) > PROMISE_BOUND
                && self.turn.0.compare_exchange(turn.0, turn.0 | LAPSED, Relaxed, Relaxed).is_ok()
    }

    /// The unlock of a lock that is PARKED or has a DEMAND.
    #[cold]
    #[inline(never)]
    fn unlock_slow(&self) {
        if self.word().has(DEMAND) {
            self.turn.restamp();
        }
        let (word, kept) = (&raw const self.word, if self.is_queue_empty() { 0 } else { DEMAND });
        // (A)
        if Bits(self.word.fetch_and(kept, Release)).has(PARKED) {
            M::wake(word, u32::MAX);
        }
    }

    /// The head keeps newcomers out, also while the lock is free: otherwise they may take it until the head next looks, over and over.
    /// Then the promise begins here, and not with the release.
    fn demand(&self) {
        let word = self.word();
        if !word.has(DEMAND) {
            if !word.has(HELD) {
                self.turn.restamp();
            }
            self.word.fetch_or(DEMAND, Relaxed);
        }
    }

    /// Waits for the lock. `beside`: the caller may spin beside a head that sleeps. `false` after the deadline. A newcomer behind
    /// a head that runs makes one attempt to steal, and queues.
    #[cold]
    #[inline(never)]
    pub(super) fn wait_for_lock(&self, deadline: Option<Deadline>, beside: bool) -> bool {
        let mut nap = Nap::new();
        loop {
            let spins =
                self.is_queue_empty() || beside && self.turn.get().has(ASLEEP) && !self.word().has(DEMAND);
            let spin = |nanos, at_once| {
                sleepers::spin::<M, P>(nanos, at_once, || !self.is_locked(), || self.steal())
            };
            if P::STEALING && self.turn.try_as_newcomer::<P>(spins, spin) {
                return true;
            }
            if !self.is_lapsed() {
                return self.lock_queued(deadline, spins);
            }
            // Nodes would pile up behind a suspended head, so the caller stays outside of the queue, and begins anew.
            let left = deadline.map_or(u64::MAX, |deadline| deadline.left::<M>());
            if left == 0 {
                return self.steal();
            }
            nap.take::<M>(left);
        }
    }

    /// Queues, waits to be the head, and competes for the word.
    fn lock_queued(&self, deadline: Option<Deadline>, spun: bool) -> bool {
        // Asked after the waiter woke up by itself: the head may be suspended.
        let pass = |_| !self.is_locked() && self.lapses() && self.take(self.word());
        let waited = sleepers::wait_for_head::<M, P>(&self.tail, &self.turn, P::key::<M>(), deadline, pass);
        let Head { node, at_once, locked } = match waited {
            Ok(head) => head,
            Err(locked) => return locked,
        };
        let locked = locked || self.compete(node, deadline, spun && at_once);
        self.leave(node, locked);
        locked
    }

    /// The head's part: `true` with the lock, `false` after the deadline. A head that has `spun` before it queued parks at once.
    fn compete(&self, node: Waiter<'_, M>, deadline: Option<Deadline>, mut spun: bool) -> bool {
        let take = || self.take(self.word());
        let (mut has_parked, mut demands) = (false, !P::STEALING);
        let spins = !M::has_one_processor();
        loop {
            if demands {
                self.demand();
            }
            sleepers::walk::<M, P>(&self.tail, &self.turn, node, || !self.is_locked());
            if self.turn.get().has(LAPSED) {
                self.turn.0.fetch_and(!LAPSED, Relaxed); // the head runs again
            }
            let nanos = if spins && (demands || !spun) { P::SPIN } else { 0 };
            let free = || {
                if demands {
                    self.demand();
                }
                !self.is_locked()
            };
            if sleepers::spin::<M, P>(nanos, demands, free, take) {
                return true;
            }
            spun = true;
            if deadline.is_some_and(|d| d.passed::<M>()) {
                return take();
            }
            if !demands && (self.word().has(DEMAND) || self.turn.exceeds(P::TURN)) {
                demands = true;
                continue;
            }
            let park = |until| self.park(if demands { PARKED | DEMAND } else { PARKED }, until);
            let nap = (has_parked && !demands && P::NAPS).then_some((&self.word, DEMAND));
            sleepers::sleep(&self.turn, deadline, SHORTEST_SLEEP, nap, park);
            has_parked = true;
        }
    }

    /// Parks the head until an unlock finds PARKED, which is one of `bits`, or until the deadline. May return at any time. It sets
    /// them for the holder's unlock, anew before each sleep, unless the lock is free.
    fn park(&self, bits: u32, deadline: Option<Deadline>) {
        let word = self.word();
        if word.has(HELD) {
            _ = self.word.compare_exchange(word.0, word.0 | bits, Relaxed, Relaxed);
        }
        sleepers::let_release_end::<M>();
        let word = self.word();
        if word.has(PARKED) {
            M::wait(&self.word, word.0, deadline);
        }
    }

    /// Stops being the head, with the lock or without it. The next waiter that is still there becomes the head.
    fn leave(&self, node: Waiter<'static, M>, locked: bool) {
        // The next head's turn begins. This is before that head's own changes, by (R), (L) or (C) of `sleepers`.
        self.turn.begin();
        // The plain stores to `word`, here and below, overwrite no other thread's change: the lock is held, so no thread can take
        // it, and only the head sets bits. The next head may have done so if it woke up by itself; then it does so again.
        match locked {
            true if !P::STEALING => self.word.store(HELD | DEMAND, Relaxed),
            false if P::STEALING => _ = self.word.fetch_and(!DEMAND, Relaxed),
            _ => (),
        }
        let Some((status, _)) = sleepers::next_head(&self.tail, node) else { return };
        if locked && P::STEALING && P::REQUEUES {
            // The next head sleeps on, at `word`, until the caller's unlock unparks it. If it has timed out by now, its node may
            // belong to the head of another lock's queue, which the requeue then moves here. So an unlock wakes all threads at
            // `word`: waking one could leave this lock's head asleep. The stranger may sleep until its own timed wakeup, also when this
            // lock's memory is freed before. If that becomes the word of a futex whose owner wakes one thread, the stranger may take
            // that wakeup. All of this needs a timeout, a new wait with the same node and a handover, within this function.
            self.turn.0.fetch_or(ASLEEP, Relaxed); // before the system call, so that newcomers do not queue meanwhile
            M::requeue(status, READY, &self.word);
            self.word.store(HELD | PARKED, Relaxed);
        } else {
            // No unlock of the caller's will wake it, or (where no thread may steal) the lock would be unused until it runs.
            M::wake(status, 1);
        }
    }
}

#[cfg(test)]
mod tests;
