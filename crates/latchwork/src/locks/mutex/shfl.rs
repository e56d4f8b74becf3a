//! ShflLock, blocking: the default mutex.
//!
//! Source: Kashyap et al., "Scalable and practical locking with shuffling", SOSP 2019, section 4.2.2, figures 6 and 7.
//!
//! An acquisition is one compare-and-exchange of one word. A *newcomer* that finds the lock held spins for some
//! microseconds. Then it joins a queue of waiters that spin briefly and park ([`sleepers`], which has the table of a
//! waiter's states). Only the *head* of the queue competes with newcomers for the word. A newcomer that takes the lock
//! while there is a queue *steals* it from the head. One waiter at a time walks the queue and moves the waiters of its
//! own NUMA node together ([`shuffle`](super::shuffle)).
//!
//! # States
//!
//! | the word | becomes | the thread that writes it, and where | ordering |
//! |---|---|---|---|
//! | FREE | HELD | any thread, `try_free`, `take` | (A) acquire |
//! | HELD | FREE | the holder, `unlock` | (A) release |
//! | HELD | WATCHED | the head before it parks, or when it demands the lock, `watch`; the holder for the next head, `leave` | |
//! | WATCHED | RELEASING | the holder, `unlock_slow`, before it looks at `turn` | |
//! | RELEASING | FREE; RESERVED if the head demands the lock | the holder, `unlock_slow`, then | (A) release |
//! | RESERVED | HELD | the head; a thread that may pass it, `steal` | (A) acquire |
//!
//! | bit of `turn` | meaning | set by | cleared by |
//! |---|---|---|---|
//! | WAKE | the head sleeps at `turn` until an unlock | the head, `park`; the holder for the next head, `leave` (W) | the unlock that unparks it (W); the head |
//! | ASLEEP | the head sleeps, until an unlock or for a time | the head; `leave` | the head |
//! | DEMAND | no newcomer may steal | the head after [`TURN`](Policy::TURN); `unlock_fair` | the next head; a thread that sets LAPSED |
//! | LAPSED | the head does not run: newcomers steal, and do not queue | a thread that found the lock free, and kept for the head, for [`PROMISE_BOUND`] | the head when it runs again |
//! | GROUP | the key of the last head, for [`Stealing::Local`] | a new or leaving head | |
//! | TIME | when the turn began, or a demanded lock became free, in microseconds | a new or leaving head; `unlock_slow` | |
//!
//! # The unlock
//!
//! `unlock` reads the word and, if that is HELD, stores FREE: no atomic read-modify-write. So it may overwrite a WATCHED
//! that another thread has set between the two, and the unlock does not look at `turn`. The thread that set it (the head)
//! therefore looks again after a microsecond. A processor finishes the two instructions long before, unless it is
//! interrupted between them. In that rare case the head sleeps beside a free lock. So each of its sleeps is bounded
//! ([`Intervals`]): 1 ms at first. Any other thread may take the lock meanwhile.
//!
//! A holder may free the lock's memory as soon as it has it. So each unlock looks at `turn` before it releases the word, and
//! then uses only the address of `turn`. (W): the head sets WAKE, and sleeps if it then finds the word WATCHED. The holder of a
//! WATCHED word makes it RELEASING, and then reads and clears WAKE. Both change `turn` by read-modify-writes, so one comes
//! second: either the holder sees WAKE, or the head sees that the word is not WATCHED any more.
//!
//! # How long a waiter waits
//!
//! - *Looks.* A look at the word takes its cache line away from the holder. A waiter that has waited for a time `t` looks
//!   again after `t / 8`, so it loses at most an eighth of its wait. It takes the lock if that is free at four looks in a
//!   row ([`LOOK`](Policy::LOOK) apart). If one of them finds it held again, a thread that has the word in its cache
//!   uses it over and over: the waiter stays away for another `t`.
//! - *Spin, then sleep.* A newcomer spins for [`SPIN`](Policy::SPIN) if there is no queue or its head sleeps. A head spins as
//!   long, then parks. The unlock that comes next unparks it.
//! - *Robbed.* If another thread took the lock before the unparked head ran, running threads use the lock well without
//!   wakeups. The head sleeps for a sixteenth of a turn, an eighth, and so on, and looks in between: no unlock has to wake it,
//!   and a lock that becomes idle is unused for at most as long as the head has waited.
//! - *Its turn.* After [`TURN`](Policy::TURN) the head demands the lock, and newcomers may not steal it.
//!
//! # Beyond the paper
//!
//! - *The head parks too.* In the paper it spins.
//! - *Bounded unfairness.* A waiter behind `n` others waits for at most `n + 1` times (a turn, the time until an unparked
//!   thread runs, and a section), if unparked threads run within `PROMISE_BOUND` (10 ms). `n` includes the waiters that
//!   shuffling moves in front, at most 15 for each waiter that stood there.
//! - *Suspended waiters* are passed: DEMAND lapses. Newcomers do not queue then, since nodes would pile up.
//! - *No wakeup inside the section.* A new holder moves a parked successor from its node to `turn` (a futex requeue), so
//!   that the unlock unparks it.
//! - *Policies without stealing* ([`Stealing::Nobody`]): the head always demands, and newcomers queue at once.
//!
//! Size: 16 bytes; 64 per waiter, from the machine's node pool; none per holder. Atomics per uncontended pair: 1; in a
//! process with one thread, 0.
//! Fairness: bounded stealing, as above; FIFO in the queue, per NUMA node with at most 16 in a row.
//! Suspension: a waiter may be suspended at any instruction without keeping others from the lock. A thread is the holder
//! once its compare-and-exchange has succeeded, though its call has not returned yet.

use super::policy::{NumaPolicy, Policy, Stealing};
use super::shuffle::{Waiter, head_may_shuffle};
use super::sleepers::{self, Intervals, NODE_PARKED, Next, PROMISE_BOUND, READY, Waited};
use super::{ConstNew, Fair, Info, RawMutex, Suspension};
use crate::locks::bits::Bits;
use crate::locks::for_assembly::CompareMutex;
use crate::machine::{Deadline, MICRO, Machine, Native, QNode, Word, micros};
use core::marker::PhantomData;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering::*};

/// Pauses of [`Policy::LOOK`] between the head's announcement and its second look: 0.8 microseconds, far longer than the two
/// instructions of a release.
const SETTLES: u32 = 16;

const FREE: u32 = 0;
const HELD: u32 = 1;
const WATCHED: u32 = 2;
const RELEASING: u32 = 3;
const RESERVED: u32 = 4;

const WAKE: Bits = Bits(1 << 31);
const ASLEEP: Bits = Bits(1 << 30);
const DEMAND: Bits = Bits(1 << 29);
const LAPSED: Bits = Bits(1 << 28);
const GROUP: Bits = Bits(15 << 24);
const TIME: Bits = Bits((1 << 24) - 1);

/// ShflLock, blocking. `P` orders the queue, and says which newcomers may steal. See the [module documentation](self).
pub struct RawShfl<M: Machine, P = NumaPolicy> {
    word: M::U32,
    turn: M::U32,
    tail: M::Ptr<QNode<M>>,
    policy: PhantomData<P>,
}

impl<P> RawShfl<Native, P> {
    /// An unlocked lock.
    pub const fn new() -> Self {
        RawShfl {
            word: AtomicU32::new(0),
            turn: AtomicU32::new(0),
            tail: AtomicPtr::new(null_mut()),
            policy: PhantomData,
        }
    }
}

const_new!(RawShfl<Native, P>, P: Policy);

impl<P: Policy> CompareMutex for RawShfl<Native, P> {
    const WORD: usize = core::mem::offset_of!(Self, word);
    const LOCKED: u32 = HELD;

    #[inline(always)]
    unsafe fn release(&self) -> bool {
        Native::release_if(&self.word, HELD) // (A)
    }
}

// SAFETY: only one compare-and-exchange can take the word from free to HELD; (A) orders the sections.
unsafe impl<M: Machine, P: Policy> RawMutex for RawShfl<M, P> {
    type Machine = M;
    type Token = ();
    const INFO: Info = Info {
        name: "shfl",
        summary: "ShflLock, blocking: NUMA-grouped queue of sleepers behind a stealable word",
        atomics: 1,
        waiter_bytes: 64,
        holder_bytes: 0,
        fairness: "stealing for 1 ms per queue position; FIFO per NUMA node, 16 in a row",
        blocking: true,
        suspension: Suspension::Tolerates,
        source: "Kashyap et al. 2019, section 4.2.2",
    };

    fn new_in() -> Self {
        RawShfl {
            word: M::U32::new(0),
            turn: M::U32::new(0),
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
        // (A) the section happens before the next acquisition.
        if !M::release_if(&self.word, HELD) {
            self.unlock_slow();
        }
    }

    fn is_locked(&self) -> bool {
        !is_free(self.word.load(Relaxed))
    }
}

impl<M: Machine, P: Policy> Fair for RawShfl<M, P> {
    unsafe fn unlock_fair(&self, (): ()) {
        if !self.is_queue_empty() && !self.turn().has(LAPSED) {
            self.update(|turn| turn.with(DEMAND));
            self.word.store(WATCHED, Relaxed);
        }
        // SAFETY: the caller's token came from the acquisition that this ends.
        unsafe { self.unlock(()) };
    }
}

/// Whether a word says that no thread holds the lock.
fn is_free(word: u32) -> bool {
    word & RELEASING == 0
}

/// The field GROUP of a waiter with this key.
fn group(key: u32) -> Bits {
    Bits(key << 24).only(GROUP)
}

/// `turn` with the present time.
fn stamped<M: Machine>(turn: Bits) -> Bits {
    turn.without(TIME).with(Bits(micros::<M>()).only(TIME))
}

impl<M: Machine, P: Policy> RawShfl<M, P> {
    fn turn(&self) -> Bits {
        Bits(self.turn.load(Acquire))
    }

    fn is_queue_empty(&self) -> bool {
        self.tail.load(Relaxed).is_null()
    }

    /// Replaces `turn` by `next(turn)`, and returns what it was. AcqRel: (W).
    fn update(&self, next: impl Fn(Bits) -> Bits) -> Bits {
        let mut turn = self.turn();
        loop {
            match self.turn.compare_exchange(turn.0, next(turn).0, AcqRel, Acquire) {
                Ok(_) => return turn,
                Err(now) => turn = Bits(now),
            }
        }
    }

    /// The uncontended acquisition.
    #[inline(always)]
    fn try_free(&self) -> bool {
        M::acquire_zero(&self.word, HELD) // (A)
    }

    /// Takes a free lock, of which the word is FREE or RESERVED.
    fn take(&self) -> bool {
        let word = self.word.load(Relaxed);
        is_free(word) && self.word.compare_exchange(word, HELD, Acquire, Relaxed).is_ok() // (A)
    }

    /// Takes a free lock by a thread that is not the head.
    fn steal(&self) -> bool {
        match self.word.load(Relaxed) {
            FREE => self.take(),
            RESERVED => self.may_pass() && self.take(),
            _ => false,
        }
    }

    /// Whether a thread that is not the head may take the lock although it is RESERVED.
    fn may_pass(&self) -> bool {
        let lapsed = self.turn_exceeds(PROMISE_BOUND);
        if lapsed {
            self.update(|turn| turn.without(DEMAND).with(LAPSED));
        }
        lapsed || self.is_queue_empty()
    }

    /// Whether the head's turn has lasted for longer than `bound` microseconds.
    fn turn_exceeds(&self, bound: u32) -> bool {
        Bits(micros::<M>().wrapping_sub(self.turn().0)).only(TIME).0 > bound
    }

    /// The unlock of a lock that is WATCHED.
    #[cold]
    #[inline(never)]
    fn unlock_slow(&self) {
        self.word.store(RELEASING, Relaxed);
        // (W) pairs with `park`.
        let turn = self.update(|turn| {
            let turn = turn.without(WAKE);
            if turn.has(DEMAND) { stamped::<M>(turn) } else { turn }
        });
        let sleeper = &raw const self.turn;
        self.word.store(if turn.has(DEMAND) { RESERVED } else { FREE }, Release); // (A)
        if turn.has(ASLEEP) && turn.has(WAKE.with(DEMAND)) {
            M::wake(sleeper, u32::MAX);
        }
    }

    /// Has the holder's unlock look at `turn`, unless the release is torn.
    fn watch(&self) {
        _ = self.word.compare_exchange(HELD, WATCHED, Relaxed, Relaxed);
    }

    #[cold]
    fn try_lock_slow(&self) -> bool {
        self.steal()
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
            let spun = match self.spin_as_newcomer() {
                Ok(()) => return true,
                Err(spun) => spun,
            };
            let is_lapsed = || self.turn().has(LAPSED);
            if !is_lapsed() {
                return self.lock_queued(deadline, spun);
            }
            // `None`: the head runs again, and the caller may queue.
            let attempt = || if is_lapsed() { Some(self.steal()) } else { None };
            if let Some(locked) = sleepers::wait_outside::<M>(deadline, attempt) {
                return locked;
            }
        }
    }

    /// A newcomer's attempts before it queues. Without success, whether it has spun.
    fn spin_as_newcomer(&self) -> Result<(), bool> {
        let turn = self.turn();
        let is_far = || P::STEALING == Stealing::Local && turn.only(GROUP) != group(P::key::<M>());
        let alone = self.is_queue_empty();
        let (spins, taken) = if P::STEALING == Stealing::Nobody {
            (false, alone && self.steal()) // beside the queue, later newcomers could pass it
        } else if !alone && (!turn.has(ASLEEP) || turn.has(DEMAND) || !P::BESIDE || is_far()) {
            (false, self.steal())
        } else {
            (true, self.spin(P::SPIN, false, || self.steal()))
        };
        if taken { Ok(()) } else { Err(spins) }
    }

    /// Spins for about `nanos`, and calls `take` when the lock is free; with `at_once` at the first look.
    fn spin(&self, nanos: u32, at_once: bool, take: impl Fn() -> bool) -> bool {
        let mut waited = 0;
        loop {
            let free = is_free(self.word.load(Relaxed));
            if free && (at_once || self.stays_free()) && take() {
                return true;
            }
            if waited >= M::patience(nanos) {
                return false;
            }
            let pause = (if free { waited } else { waited / P::PROMPTNESS }).max(P::LOOK);
            M::pause(M::hints(pause));
            waited += pause;
        }
    }

    fn stays_free(&self) -> bool {
        (0..M::patience(P::SECOND_LOOKS)).all(|_| {
            M::pause(M::hints(P::LOOK));
            is_free(self.word.load(Relaxed))
        })
    }

    /// Queues, waits to be the head, and competes for the word.
    fn lock_queued(&self, deadline: Option<Deadline>, mut spun: bool) -> bool {
        let node = sleepers::new_node::<M>();
        node.key().store(P::key::<M>(), Relaxed);
        let mut locked = false;
        if sleepers::enqueue::<M>(&self.tail, node) {
            self.begin_turn(node);
        } else {
            // Asked after the waiter woke up by itself: the head may be suspended.
            let pass_head = |_| {
                let late = is_free(self.word.load(Relaxed))
                    && (self.turn().has(LAPSED) || self.turn_exceeds(PROMISE_BOUND));
                if late {
                    self.update(|turn| turn.without(DEMAND).with(LAPSED));
                }
                late && self.take()
            };
            match sleepers::wait_for_head::<M, P>(&self.tail, node, deadline, M::hints(P::SPIN), pass_head) {
                Waited::Head => spun = false,
                Waited::HeadWithLock => locked = true,
                Waited::Locked => return true,
                Waited::TimedOut => return false,
            }
        }
        locked = locked || self.compete(node, deadline, spun);
        self.leave(node, locked);
        locked
    }

    /// The turn of a new head begins. `node` is the first head's, and later that of the head before, which holds the lock
    /// unless it has timed out.
    fn begin_turn(&self, node: Waiter<'_, M>) {
        let turn = group(node.key().load(Relaxed));
        self.update(|_| stamped::<M>(if P::STEALING == Stealing::Nobody { turn.with(DEMAND) } else { turn }));
    }

    /// The head's part: `true` with the lock, `false` after the deadline. A head that has `spun` before it queued parks at
    /// once.
    fn compete(&self, node: Waiter<'_, M>, deadline: Option<Deadline>, mut spun: bool) -> bool {
        let mut intervals = Intervals::of_sleeps();
        let (mut nap, mut slept) = (u64::from(P::TURN / 16) << MICRO, false);
        loop {
            if head_may_shuffle::<M, P>(node) {
                sleepers::walk::<M, P>(&self.tail, node, || is_free(self.word.load(Relaxed)));
            }
            if self.turn().has(LAPSED) {
                self.update(|turn| turn.without(LAPSED)); // the head runs again
            }
            let demands = self.turn().has(DEMAND);
            if demands {
                self.watch();
            }
            if self.spin(if spun { 0 } else { P::SPIN }, demands, || self.take()) {
                return true;
            }
            spun = false;
            if deadline.is_some_and(|d| d.passed::<M>()) {
                return self.take();
            }
            if !demands && self.turn_exceeds(P::TURN) {
                self.update(|turn| stamped::<M>(turn).with(DEMAND));
            } else if slept && !demands && P::NAPS {
                let turn = self.update(|turn| turn.with(ASLEEP)).with(ASLEEP);
                M::doze_at(
                    &self.turn,
                    turn.0,
                    deadline.map_or(nap, |deadline| nap.min(deadline.left::<M>())),
                );
                self.update(|turn| turn.without(ASLEEP));
                nap *= 2;
            } else {
                self.park(intervals.until_torn::<M>(deadline));
                slept = true;
            }
        }
    }

    /// Parks the head until an unlock finds WAKE, or until the deadline. May return at any time.
    fn park(&self, deadline: Option<Deadline>) {
        let asleep = WAKE.with(ASLEEP);
        let turn = self.update(|turn| turn.with(asleep)).with(asleep); // (W)
        self.watch();
        (1..M::patience(SETTLES)).for_each(|_| M::pause(M::hints(P::LOOK)));
        match self.word.load(Relaxed) {
            WATCHED => _ = M::wait(&self.turn, turn.0, deadline),
            // The holder may need the caller's processor to complete the release.
            RELEASING => M::doze_at(&self.turn, turn.0, u64::from(P::TURN / 16) << MICRO),
            _ => (),
        }
        self.update(|turn| turn.without(asleep));
    }

    /// Stops being the head, with the lock or without it. The next waiter that is still there becomes the head.
    fn leave(&self, node: Waiter<'static, M>, locked: bool) {
        self.begin_turn(node); // (R) of `sleepers` makes it visible to the next head
        if P::STEALING == Stealing::Nobody && locked {
            self.word.store(WATCHED, Relaxed);
        }
        let Some(Next { status, before, .. }) = sleepers::next_head(&self.tail, node, |_| ()) else { return };
        if before != NODE_PARKED {
            return;
        }
        if locked && P::STEALING != Stealing::Nobody && P::REQUEUES {
            // The next head sleeps on, at `turn`, until the caller's unlock unparks it.
            //
            // It may have timed out by now, and its node may belong to a stranger: a waiter of any lock. If the stranger has
            // just become the head of its queue and is still parked, the requeue moves it here. An unlock therefore wakes all
            // threads at `turn`: waking one could leave this lock's head asleep. The stranger sleeps until then, or until its
            // own timed wakeup (`Intervals`).
            M::requeue(status, READY, &self.turn);
            self.update(|turn| turn.with(WAKE.with(ASLEEP)));
            self.word.store(WATCHED, Relaxed);
        } else {
            // (Where no thread may steal, the lock would otherwise be unused from the unlock until the head runs.)
            M::wake(status, 1);
        }
    }
}

#[cfg(test)]
mod tests;
