//! Reader-writer ShflLock, blocking.
//!
//! Source: Kashyap et al., "Scalable and practical locking with shuffling", SOSP 2019, section
//! 4.2.3; the queue is that of the blocking mutex, [`shfl`](crate::locks::mutex::shfl).
//!
//! Two words, one that says whether there is a writer and one that counts readers, and behind them
//! one queue of readers and writers that spin briefly and then sleep. Who finds the words open to it
//! enters; the others queue, and only the head of the queue waits at the words. What the mutex does
//! against long holds, lost wakeups and unfairness is done here with the same means; read it first.
//!
//! A reader adds itself to the count, looks for a writer, and takes its addition back if there is one; a
//! writer sets its bit, looks for readers, and takes the bit back if there are any (Dekker's handshake;
//! each addition and each bit is one atomic instruction, none is retried).
//!
//! Where it differs from the paper:
//! - *One lock, not two.* In the paper a reader or writer that cannot enter acquires a ShflLock
//!   mutex, waits at the word, and releases the mutex. Here the head of the queue does so directly:
//!   one sleep per waiter instead of two (the mutex, then the word).
//! - *A waiting writer shuts readers out for as long as it is awake*, which is for some microseconds
//!   (DRAIN looks, with CLAIMED). Then it lets them in again and sleeps, until the last one leaves or the time of
//!   newcomers is up. With more threads than cores, shutting them out until a preempted reader runs
//!   again costs most of the throughput.
//! - *A waiting reader does not shut writers out at once*, nor a waiting writer other writers: newcomers
//!   may pass the head for [`STEAL_BOUND`] microseconds. Then it sets CLAIMED, which shuts them out, and is
//!   the paper's writer-waiting bit and, for a reader, its early increment. A head that sleeps by then is
//!   woken by a newcomer, and passed until it runs, but for no longer than `WAKE_BOUND`: shutting others out for
//!   as long as a wakeup takes leaves the lock unused. No waiter is passed over for ever: one with `n` in front
//!   of it waits for at most `n + 1` times (the longer bound, a wakeup and the sections inside).
//! - *Readers in a row enter together.* A reader that enters from the queue invites the readers that sleep right behind
//!   it: it wakes them all, and each enters by itself, past CLAIMED, unless a writer is inside by then; its node stays
//!   behind. (A reader that was counted in before it runs would, if it is suspended, keep writers out for ever.)
//!   On machines with several NUMA nodes readers are
//!   moved up behind readers, whatever their node; writers behind writers of their node.
//! - *Suspended waiters* are passed as in the mutex: a head to which the lock is left, by CLAIMED or because it has
//!   waited for `WAKE_BOUND`, keeps the lock, once a thread has found it free, for `PROMISE_BOUND`. Then LAPSED lets
//!   others in until the head runs again.
//!
//! | `word` | meaning | set by | cleared by |
//! |---|---|---|---|
//! | WRITER (bit 0) | held for writing, or a writer looks for readers | the writer | `release_dec`; the writer, if there are readers |
//! | CLAIMED (bit 1) | the head is next | the head | who enters from the queue |
//! | WAKING (bit 2) | the head is being woken: mind the time | who wakes it, thieves keep it | the head |
//! | OFFERED (bit 3) | the lock is free, and left to the head; `since` says from when on | newcomers, waiters | a writer that enters; LAPSED |
//! | LAPSED (bit 4) | the head is suspended: anybody may enter | newcomers, waiters | the head |
//! | PARKED (bit 31) | the head sleeps at `word`, wake it | the head | a writer that enters |
//!
//! | `readers` | meaning | set by | cleared by |
//! |---|---|---|---|
//! | bits 0 to 29 | readers inside, or looking for a writer | each of them adds one | and subtracts it |
//! | MIND (bit 30) | the head sleeps, or is being woken: mind the time | the head | the head |
//! | PARKED (bit 31) | the head sleeps at `readers`, wake it | the head | the head; a reader that comes in alone |
//!
//! A writer leaves with a decrement that is not an atomic read-modify-write, so hints that others set in
//! `word` meanwhile may be lost, or come back; the head makes up for it with a heavy fence before it
//! sleeps (see [`release_dec`](Machine::release_dec)). A hint that is lost is set again by the head, and
//! one that is revived is dropped by who enters from the queue next. `readers` is only changed
//! atomically; the last one to leave wakes the head.
//!
//! Who releases does not touch the lock afterwards (a wakeup needs only the address), so whoever
//! enters next may destroy it.
//!
//! Nodes are as in the mutex (`sleepers`); `group` also tells readers from writers.
//!
//! Suspension: tolerates, but for a few instructions on each side. A reader that is suspended between its
//! addition and its look at `word` is inside for that time: writers wait for it. A writer that is suspended between
//! setting its bit and taking it back, because there are readers, counts as the holder.
//!
//! Size: 24 bytes; 64 per waiter, from the pool; none per
//! holder. Atomics per uncontended pair: read 2, write 1.
//! Fairness: bounded stealing both ways, as above; FIFO in the queue but for shuffling.
//! Attempts: one that meets a reader or writer that is just about to turn back fails too.
//! Re-entry: a reader that read-locks again while a writer waits may wait for it, and so for ever. (The
//! preloaded library counts a thread's read holdings and does not ask the lock again.)
//! More than 2^30 - 1 simultaneous readers would break it.

use super::wait::{Await, Naps};
use super::{
    ConstNew, Info, RawDowngrade, RawFair, RawRecursive, RawRwLock, RawUpgrade, Suspension, Timeout,
};
use crate::locks::mutex::shuffle::{NumaPolicy, Policy, Waiter, may_start};
use crate::locks::mutex::sleepers::{self, Intervals, Next, PARKED, PROMISE_BOUND, READY, Waited};
use crate::machine::{Arith, Deadline, Machine, Native, QNode, Word, micros};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering, Ordering::*};

const FREE: u32 = 0;
const WRITER: u32 = 1;
const CLAIMED: u32 = 1 << 1;
const WAKING: u32 = 1 << 2;
const OFFERED: u32 = 1 << 3;
const LAPSED: u32 = 1 << 4;
const UPGRADING: u32 = 1 << 5;
const PARKED_HEAD: u32 = 1 << 31;

const READER: u32 = 1;
const UPGRADABLE: u32 = 1 << 29;
const MIND: u32 = 1 << 30;
const COUNT: u32 = MIND - 1;

/// Microseconds (of 1024 ns) for which newcomers may pass a head.
pub const STEAL_BOUND: u32 = 200;
/// The same for one that has been woken, or ought to be, and does not run yet, from when it has queued: a turn
/// that begins with a wakeup leaves the lock, and often processors, unused until then. Longer than the scheduler
/// takes to run somebody whom it has woken (a quantum or two), unless there are very many threads.
const WAKE_BOUND: u32 = 50 * STEAL_BOUND;
/// And at least from when it is the head: those who wait behind one another would each be late otherwise, and
/// nobody could pass any more.
const HEAD_BOUND: u32 = 5 * STEAL_BOUND;
/// Low bits of `since`: steals from a sleeping head. The clock is read at every sixteenth.
const STEALS: u32 = 15;
/// Looks at the word before a newcomer queues, and spin hints between them at most.
const ARRIVAL: (u32, u32) = (24, 8);
/// Spin hints between two looks of the head, at first and at most.
const HEAD_PAUSE: (u32, u32) = (1, 128);
/// Looks of the head, at the longest pause, before it sleeps.
const HEAD_LOOKS: u32 = 32;
/// Second looks at a free word, and spin hints before each, until a newcomer and a head that want to
/// write believe that it is idle.
const ARRIVAL_IDLE: (u32, u32) = (1, 5);
const HEAD_IDLE: (u32, u32) = (4, 8);
/// Looks at the readers inside while newcomers are shut out, before a writing head sleeps.
const DRAIN: u32 = 512;
/// Looks of a writer that has set its bit, for readers that are about to turn back.
const TURNING: u32 = 16;
/// Attempts to fall asleep while readers come and go, and spin hints between them.
const SLEEPS: (u32, u32) = (16, 64);
/// Sleeping readers that a reader which enters from the queue invites: each costs it a wakeup, and a chain of wakeups,
/// one by the other, takes as long as all of them need until they run.
const INVITATIONS: u32 = 16;
/// A sleep when the heavy fence was refused.
const UNFENCED_SLEEP: u64 = 1_000_000;

/// What an acquisition is for.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Side {
    Read,
    Upgradable,
    Write,
}

impl Side {
    /// The shuffling group: all readers are one.
    fn group<M: Machine>(self) -> u32 {
        match self {
            Side::Read => READING,
            Side::Upgradable => UPGRADABLE_READING,
            Side::Write => NumaPolicy::key::<M>(),
        }
    }

    /// What keeps this side out while it is in `readers`.
    fn kept_out_by(self) -> u32 {
        match self {
            Side::Read => 0,
            Side::Upgradable => UPGRADABLE,
            Side::Write => COUNT,
        }
    }
}

/// The group of readers, which is no NUMA node's.
const READING: u32 = u32::MAX;
/// The group of upgradable readers, likewise.
const UPGRADABLE_READING: u32 = u32::MAX - 1;

/// Reader-writer ShflLock. See the [module documentation](self).
#[repr(C)]
pub struct RawShflRw<M: Machine> {
    word: M::U32,
    readers: M::U32,
    tail: M::Ptr<QNode<M>>,
    /// When the head became it, and steals from it; see [`moment`].
    since: M::U32,
    /// When it queued, or later; likewise. See [`begin`](Self::begin).
    queued: M::U32,
}

impl RawShflRw<Native> {
    /// An unlocked lock.
    pub const fn new() -> Self {
        RawShflRw {
            word: AtomicU32::new(FREE),
            readers: AtomicU32::new(0),
            tail: AtomicPtr::new(null_mut()),
            since: AtomicU32::new(0),
            queued: AtomicU32::new(0),
        }
    }
}

impl Default for RawShflRw<Native> {
    fn default() -> Self {
        Self::new()
    }
}

impl ConstNew for RawShflRw<Native> {
    #[allow(clippy::declare_interior_mutable_const)]
    const NEW: Self = Self::new();
}

impl<M: Machine> RawShflRw<M> {
    /// An acquisition for reading, past the head only while that has time.
    #[inline(always)]
    fn try_read_free(&self) -> bool {
        // (E) Dekker pair with `look_for_readers`: we add and then look for a writer, a writer sets its
        // bit and then looks for readers, all four sequentially consistent, so one sees the other.
        let before = self.readers.fetch_add(READER, SeqCst);
        // (A) pairs with the decrement in `unlock_write`.
        before < MIND && self.word.load(SeqCst) == FREE || self.stay(READER, before)
    }

    /// The same for an upgradable read.
    fn try_upgradable_free(&self) -> bool {
        self.announce_upgradable().is_some_and(|before| {
            // (A), (E) as above.
            before < MIND && self.word.load(SeqCst) == FREE || self.stay(UPGRADABLE, before)
        })
    }

    /// Adds the upgradable reader to `readers` if there is none; what was there before.
    fn announce_upgradable(&self) -> Option<u32> {
        if self.readers.load(Relaxed) & UPGRADABLE != 0 {
            return None;
        }
        // (E) as in `try_read_free`. If another thread was faster, this changes nothing.
        let before = self.readers.fetch_or(UPGRADABLE, SeqCst);
        (before & UPGRADABLE == 0).then_some(before)
    }

    /// What is left to do for a newcomer that has added itself, as `unit`, to `before` and has not seen a free lock:
    /// stays, or takes its addition back.
    #[cold]
    #[inline(never)]
    fn stay(&self, unit: u32, before: u32) -> bool {
        let word = self.word.load(SeqCst); // (A), (E)
        let asleep = word & (WAKING | PARKED_HEAD) != 0 || before >= MIND;
        let promised = word & CLAIMED != 0 || asleep && self.has_waited();
        if word & WRITER != 0 || promised && word & LAPSED == 0 {
            self.turn_back(unit);
            return false;
        }
        if asleep {
            self.count_steal();
        }
        if before & PARKED_HEAD != 0 && (before & COUNT == 0 || self.is_its_turn()) {
            // Its turn begins when it runs. Or: whoever left last has woken the head, and those who leave
            // from now on need not do so again. But the head may just now have taken our addition for the
            // reader it knew, and gone to sleep.
            self.readers.fetch_and(!PARKED_HEAD, Relaxed);
            wake_head::<M>(&raw const self.readers);
        }
        true
    }

    /// Takes back the addition of a reader, or of an upgradable reader.
    #[inline]
    fn turn_back(&self, unit: u32) {
        if unit == UPGRADABLE { self.leave_upgradable(Relaxed) } else { self.depart(Relaxed) }
    }

    #[inline(always)]
    fn depart(&self, order: Ordering) {
        if self.readers.fetch_sub(READER, order) & (COUNT | PARKED_HEAD) == READER | PARKED_HEAD {
            wake_head::<M>(&raw const self.readers);
        }
    }

    /// Subtracts the upgradable reader. The head may wait for just that, while other readers are inside.
    fn leave_upgradable(&self, order: Ordering) {
        if self.readers.fetch_sub(UPGRADABLE, order) & PARKED_HEAD != 0 {
            wake_head::<M>(&raw const self.readers);
        }
    }

    /// The uncontended acquisition for writing.
    #[inline(always)]
    fn try_write_free(&self) -> bool {
        self.readers.load(Relaxed) == 0
            && self.word.load(Relaxed) == FREE
            // (A) as above. (E) pairs with `try_read_free`.
            && self.word.compare_exchange(FREE, WRITER, SeqCst, Relaxed).is_ok()
            && (self.look_for_readers() || self.take_back())
    }

    /// Whether there are no readers, for a writer that has set its bit.
    #[inline(always)]
    fn look_for_readers(&self) -> bool {
        // (E) as above. (B) pairs with the subtraction in `unlock_read`.
        self.readers.load(SeqCst) & COUNT == 0
    }

    /// Takes back a writer's bit. Returns `false`.
    #[cold]
    fn take_back(&self) -> bool {
        if self.word.fetch_and(!WRITER, Relaxed) & PARKED_HEAD != 0 {
            wake_head::<M>(&raw const self.word);
        }
        false
    }

    /// A newcomer's attempt, past the head if there is one.
    fn steal(&self, side: Side) -> Steal {
        let mut word = self.word.load(Relaxed);
        let readers = self.readers.load(Relaxed);
        let asleep = word & (WAKING | PARKED_HEAD) != 0 || readers >= MIND;
        let waited = asleep && self.has_waited();
        if (waited || word & CLAIMED != 0) && word & LAPSED == 0 {
            let free = word & WRITER == 0 && readers & COUNT == 0;
            if !(free && self.lapses(word)) {
                return if waited { Steal::Refused } else { Steal::Held };
            }
            word = self.word.load(Relaxed);
        }
        if word & WRITER != 0 {
            return Steal::Held;
        }
        let taken = match side {
            Side::Read => self.try_read_free(),
            Side::Upgradable => self.try_upgradable_free(),
            Side::Write if readers & COUNT != 0 => false,
            Side::Write => {
                // If the head sleeps at the word, its waker has been, and nobody need do so again.
                let mut hints = if asleep { WAKING } else { 0 };
                // LAPSED outlives its use if there is no head to clear it.
                if word & LAPSED != 0 && !self.tail.load(Relaxed).is_null() {
                    hints |= LAPSED;
                }
                // (A), (E) as above.
                self.word.compare_exchange(word, hints | WRITER, SeqCst, Relaxed).is_ok()
                    && (self.look_for_readers() || self.take_back())
            }
        };
        if taken && asleep && side == Side::Write {
            self.count_steal();
        }
        if taken { Steal::Taken } else { Steal::Held }
    }

    /// Whether the head, to which the free lock is left, has not come for too long. `word` is what leaves it.
    #[cold]
    fn lapses(&self, word: u32) -> bool {
        let next = if word & OFFERED == 0 {
            self.since.store(moment::<M>(), Relaxed);
            word | OFFERED
        } else if elapsed::<M>(self.since.load(Relaxed)) > PROMISE_BOUND {
            word & !(CLAIMED | OFFERED) | LAPSED
        } else {
            return false;
        };
        self.word.compare_exchange(word, next, Relaxed, Relaxed).is_ok() && next & LAPSED != 0
    }

    fn is_lapsed(&self) -> bool {
        self.word.load(Relaxed) & LAPSED != 0
    }

    /// A queued waiter's attempt when it has slept for long, past a head that does not run.
    fn rescue(&self, side: Side) -> bool {
        (self.is_lapsed() || elapsed::<M>(self.since.load(Relaxed)) > PROMISE_BOUND)
            && matches!(self.steal(side), Steal::Taken)
    }

    /// If another thief or a new head writes meanwhile, one of the writes is lost, and the head's turn
    /// comes early or a little late.
    fn count_steal(&self) {
        let since = self.since.load(Relaxed);
        self.since.store(since & !STEALS | (since + 1) & STEALS, Relaxed);
    }

    /// Whether a sleeping head is to be woken, to shut others out itself. The clock is read at every sixteenth
    /// steal.
    fn is_its_turn(&self) -> bool {
        self.since.load(Relaxed) & STEALS == 0 && self.is_overdue()
    }

    /// Whether it must not be passed any more, although it may not be running yet.
    fn has_waited(&self) -> bool {
        self.since.load(Relaxed) & STEALS == 0 && elapsed::<M>(self.queued.load(Relaxed)) > WAKE_BOUND
    }

    /// Whether the head has been passed over for [`STEAL_BOUND`].
    fn is_overdue(&self) -> bool {
        elapsed::<M>(self.since.load(Relaxed)) > STEAL_BOUND
    }

    /// There is a new head, which queued at `queued`. While it sleeps it may be passed for [`WAKE_BOUND`] from
    /// then on, but for [`HEAD_BOUND`] at least.
    fn begin(&self, queued: u32) {
        let now = moment::<M>();
        self.since.store(now, Relaxed);
        let age = now.wrapping_sub(queued).min((WAKE_BOUND - HEAD_BOUND) * (STEALS + 1));
        self.queued.store(now.wrapping_sub(age), Relaxed);
    }

    #[cold]
    fn try_slow(&self, side: Side) -> bool {
        // A hint may outlive its head, one that gave up: a free lock must not look held.
        matches!(self.steal(side), Steal::Taken)
            || self.tail.load(Relaxed).is_null() && self.try_head(side, true)
    }

    #[cold]
    #[inline(never)]
    fn lock_slow(&self, side: Side) {
        self.wait_for_lock(side, None, &|| ());
    }

    #[cold]
    #[inline(never)]
    fn lock_timed(&self, side: Side, deadline: Deadline) -> bool {
        self.wait_for_lock(side, Some(deadline), &|| ())
    }

    /// Calls `watch` when a sleep has ended by itself.
    #[cold]
    #[inline(never)]
    fn wait_for_lock(&self, side: Side, deadline: Option<Deadline>, watch: &dyn Fn()) -> bool {
        loop {
            if self.arrive(side) {
                return true;
            }
            if !self.is_lapsed() {
                return self.lock_queued(side, deadline, watch);
            }
            let attempt = || {
                watch();
                self.is_lapsed().then(|| matches!(self.steal(side), Steal::Taken))
            };
            if let Some(locked) = sleepers::wait_outside::<M>(deadline, attempt) {
                return locked;
            }
        }
    }

    /// A newcomer's short wait, at growing intervals.
    fn arrive(&self, side: Side) -> bool {
        let mut pause = 1;
        // With a head asleep there is nobody to be polite to.
        let mut eager = side != Side::Write
            || self.word.load(Relaxed) & (WAKING | PARKED_HEAD) != 0
            || self.readers.load(Relaxed) >= MIND;
        for _ in 0..M::patience(ARRIVAL.0) {
            if eager || self.is_idle(ARRIVAL_IDLE) {
                eager = side != Side::Write;
                match self.steal(side) {
                    Steal::Taken => return true,
                    Steal::Refused => return false,
                    Steal::Held => (),
                }
            }
            M::pause(pause);
            pause = (pause * 2).min(ARRIVAL.1);
        }
        false
    }

    /// Queues, waits to be the head, and competes for the word.
    fn lock_queued(&self, side: Side, deadline: Option<Deadline>, watch: &dyn Fn()) -> bool {
        let node = sleepers::new_node::<M>();
        let now = moment::<M>();
        node.key().store(side.group::<M>(), Relaxed);
        node.queued().store(now, Relaxed);
        let mut locked = false;
        if sleepers::enqueue::<M>(&self.tail, node) {
            self.begin(now);
        } else {
            // Only readers are invited.
            let enter = |invited| {
                if invited {
                    return self.enter(Side::Read);
                }
                watch();
                self.rescue(side)
            };
            match sleepers::wait_for_head::<M, NumaPolicy>(&self.tail, node, deadline, enter) {
                Waited::Head => (),
                Waited::HeadWithLock => locked = true,
                Waited::Locked => return true,
                Waited::TimedOut => return false,
            }
        }
        locked = locked || self.compete(node, side, deadline, watch);
        if locked && side != Side::Write {
            let reads = |waiter: Waiter<'_, M>| waiter.key().load(Relaxed) == READING;
            sleepers::invite::<M, NumaPolicy>(node, M::patience(INVITATIONS), reads);
        }
        self.leave(node, side, locked);
        locked
    }

    /// The head's part: `true` with the lock, `false` after the deadline.
    fn compete(&self, node: Waiter<'_, M>, side: Side, deadline: Option<Deadline>, watch: &dyn Fn()) -> bool {
        let mut claimed = false;
        let mut pause = HEAD_PAUSE.0;
        let mut looks = 0;
        let mut intervals = Intervals::of_sleeps();
        if self.readers.load(Relaxed) >= MIND {
            self.readers.fetch_and(COUNT, Relaxed); // we do not sleep any more
        }
        loop {
            if may_start::<M, NumaPolicy>(node) {
                sleepers::walk::<M, NumaPolicy>(&self.tail, node, || self.is_open(side));
            }
            let drains = self.is_kept_out_by_readers(side);
            let drained = drains && self.drain(side);
            if self.try_head(side, claimed || drained) {
                return true;
            }
            let past = WAKING | LAPSED | if drains && side == Side::Write && !claimed { CLAIMED } else { 0 };
            if self.word.load(Relaxed) & past != 0 {
                self.word.fetch_and(!past, Relaxed);
            }
            let read = self.is_kept_out_by_readers(side);
            M::pause(pause);
            if pause < M::patience(HEAD_PAUSE.1) && !read {
                pause *= 2;
                continue;
            }
            if deadline.is_some_and(|d| d.passed::<M>()) {
                if claimed {
                    self.word.fetch_and(!(CLAIMED | OFFERED), Relaxed);
                }
                return self.try_head(side, true);
            }
            claimed = claimed || self.is_overdue();
            if claimed && self.word.load(Relaxed) & CLAIMED == 0 {
                self.word.fetch_or(CLAIMED, Relaxed);
                pause = HEAD_PAUSE.0;
            }
            looks += 1;
            if read || looks >= M::patience(HEAD_LOOKS) {
                let until = intervals.until::<M>(deadline);
                if read {
                    self.park_behind_readers(side, until);
                } else {
                    self.park_head(until);
                }
                watch();
                looks = 0;
            }
        }
    }

    /// Whether nobody inside keeps `side` out.
    fn is_open(&self, side: Side) -> bool {
        self.word.load(Relaxed) & WRITER == 0
            && (side == Side::Read || self.readers.load(Relaxed) & side.kept_out_by() == 0)
    }

    /// Whether readers inside keep `side` out, and no writer does.
    fn is_kept_out_by_readers(&self, side: Side) -> bool {
        side != Side::Read
            && self.word.load(Relaxed) & WRITER == 0
            && self.readers.load(Relaxed) & side.kept_out_by() != 0
    }

    /// Shuts newcomers out while the readers inside leave, for some microseconds; whether they did. By CLAIMED and not
    /// by WRITER, which is no promise that lapses.
    /// (An upgradable reader waits for one reader only, and shuts nobody out.)
    fn drain(&self, side: Side) -> bool {
        if side == Side::Write {
            self.word.fetch_or(CLAIMED, Relaxed);
        }
        M::spin_for(&self.readers, Relaxed, DRAIN, |readers| readers & side.kept_out_by() == 0).is_some()
    }

    /// The head's attempt, or that of a thread which has found the queue empty: hints do not keep it out, and
    /// it drops them. A writer takes a lock that is merely between two sections of another writer only
    /// if it is its `turn`.
    fn try_head(&self, side: Side, turn: bool) -> bool {
        match side {
            Side::Read | Side::Upgradable => {
                if !self.enter(side) {
                    return false;
                }
                if self.word.load(Relaxed) != FREE {
                    // UPGRADING is no hint: an upgradable reader may have set it just now.
                    let dropped = self.word.fetch_and(WRITER | UPGRADING, Relaxed);
                    if dropped & WRITER != 0 && dropped & PARKED_HEAD != 0 {
                        // A writer that is about to turn back has set its bit, and a head that we do not know
                        // of went to sleep behind it: let that head announce itself again. (Without the
                        // bit, the writer that took it back has seen PARKED, and wakes.)
                        wake_head::<M>(&raw const self.word);
                    }
                }
                true
            }
            Side::Write => {
                let word = self.word.load(Relaxed);
                if word & WRITER != 0
                    || self.readers.load(Relaxed) & COUNT != 0
                    || !(turn || self.is_idle(HEAD_IDLE))
                {
                    return false;
                }
                // (A), (E)
                if self.word.compare_exchange(word, WRITER, SeqCst, Relaxed).is_err() {
                    return false;
                }
                // (B), (E)
                M::spin_for(&self.readers, SeqCst, TURNING, |readers| readers & COUNT == 0).is_some()
                    || self.take_back()
            }
        }
    }

    /// The attempt of a reader or an upgradable reader past all hints, for a waiter that is the head or has been invited.
    fn enter(&self, side: Side) -> bool {
        if self.word.load(Relaxed) & WRITER != 0 {
            return false;
        }
        let unit = if side == Side::Upgradable { UPGRADABLE } else { READER };
        if unit == UPGRADABLE {
            if self.announce_upgradable().is_none() {
                return false;
            }
        } else {
            self.readers.fetch_add(READER, SeqCst); // (E)
        }
        // (A), (E)
        if self.word.load(SeqCst) & WRITER != 0 {
            self.turn_back(unit);
            return false;
        }
        true
    }

    /// Whether the lock is unused, and not merely between two sections of a thread that has it in
    /// its cache: to take it from there costs two cache misses and often a wakeup of the next head.
    fn is_idle(&self, (looks, pause): (u32, u32)) -> bool {
        (0..M::patience(looks)).all(|_| {
            M::pause(pause);
            self.is_open(Side::Write)
        })
    }

    /// Sleeps until the writer leaves.
    fn park_head(&self, deadline: Option<Deadline>) {
        if self.word.fetch_or(PARKED_HEAD, Relaxed) & WRITER == 0 {
            return;
        }
        // (F) the heavy fence orders the bit before the second look, and the writer's decrement
        // either before that look or after the bit.
        let fenced = M::heavy_fence();
        let word = self.word.load(Relaxed);
        if word & WRITER == 0 || word & PARKED_HEAD == 0 {
            return;
        }
        let deadline = match deadline {
            deadline if fenced => deadline,
            Some(deadline) if deadline.passed::<M>() => return,
            _ => Some(Deadline::after::<M>(UNFENCED_SLEEP)),
        };
        M::wait(&self.word, word, deadline);
    }

    /// A head that readers keep out sleeps until the last of them leaves. While readers come and go the word does not
    /// stand still for long enough to fall asleep at it.
    fn park_behind_readers(&self, side: Side, deadline: Option<Deadline>) {
        let mut readers = self.readers.fetch_or(MIND | PARKED_HEAD, Relaxed) | MIND | PARKED_HEAD;
        for _ in 0..M::patience(SLEEPS.0) {
            if readers & side.kept_out_by() == 0 || readers & PARKED_HEAD == 0 {
                break;
            }
            M::wait(&self.readers, readers, deadline);
            M::pause(SLEEPS.1);
            readers = self.readers.load(Relaxed);
        }
        self.readers.fetch_and(COUNT, Relaxed);
    }

    /// Stops being the head, with the lock or without: the next waiter that is still there becomes it.
    fn leave(&self, node: Waiter<'static, M>, side: Side, locked: bool) {
        // (R) makes it visible to the next head.
        let begin = |next: Waiter<'_, M>| self.begin(next.queued().load(Relaxed));
        let Some(Next { status, before, group }) = sleepers::next_head(&self.tail, node, begin) else {
            return;
        };
        match before {
            // It cannot enter beside us, so it sleeps on, as a parked head, until we leave.
            // In this order: who is to wake it must find the sleeper.
            PARKED if locked && side == Side::Write => {
                M::requeue(status, READY, &self.word);
                self.word.fetch_or(PARKED_HEAD, Relaxed);
            }
            PARKED
                if locked
                    && group != READING
                    && (group != UPGRADABLE_READING || side == Side::Upgradable) =>
            {
                M::requeue(status, READY, &self.readers);
                self.readers.fetch_or(MIND | PARKED_HEAD, Relaxed);
            }
            PARKED => {
                self.word.fetch_or(WAKING, Relaxed);
                M::wake(status, 1);
            }
            _ => (),
        }
    }
}

/// What became of an attempt to steal.
enum Steal {
    /// The lock is ours.
    Taken,
    /// Somebody has it.
    Held,
    /// It is the head's turn.
    Refused,
}

/// Now, as `since` keeps it: microseconds of 1024 ns in the upper bits (they wrap after 4.6 minutes
/// and are compared by difference), no steals in the lower ones.
fn moment<M: Machine>() -> u32 {
    micros::<M>().wrapping_mul(STEALS + 1)
}

/// Microseconds since `time`.
fn elapsed<M: Machine>(time: u32) -> u32 {
    moment::<M>().wrapping_sub(time & !STEALS) / (STEALS + 1)
}

// SAFETY: WRITER is set from a word without it, and of a reader and a writer one sees the other (E) and
// turns back; (A) and (B) order the sections.
unsafe impl<M: Machine> RawRwLock for RawShflRw<M> {
    type Machine = M;
    type Read = ();
    type Write = ();
    type Counted = Self;
    const INFO: Info = Info {
        name: "shfl-rw",
        summary: "reader-writer ShflLock, blocking: one queue of sleepers behind a stealable word",
        atomics: 2,
        waiter_bytes: 64,
        holder_bytes: 0,
        fairness: "stealing for 0.2 ms per queue position, at most 10 ms until a sleeper runs; then FIFO",
        blocking: true,
        suspension: Suspension::Tolerates,
        source: "Kashyap et al. 2019, section 4.2.3",
    };

    fn new_in() -> Self {
        RawShflRw {
            word: M::U32::new(FREE),
            readers: M::U32::new(0),
            tail: M::Ptr::new(null_mut()),
            since: M::U32::new(0),
            queued: M::U32::new(0),
        }
    }

    #[inline]
    fn read(&self) {
        if !self.try_read_free() {
            self.lock_slow(Side::Read);
        }
    }

    #[inline]
    fn try_read(&self) -> Option<()> {
        (self.try_read_free() || self.try_slow(Side::Read)).then_some(())
    }

    #[inline(always)]
    fn try_read_weak(&self) -> Option<()> {
        self.try_read_free().then_some(())
    }

    fn read_until(&self, deadline: Deadline) -> Option<()> {
        (self.try_read_free() || self.lock_timed(Side::Read, deadline)).then_some(())
    }

    #[inline]
    fn read_watching(&self, deadline: Option<Deadline>, watch: &dyn Fn()) -> Option<()> {
        (self.try_read_free() || self.wait_for_lock(Side::Read, deadline, watch)).then_some(())
    }

    #[inline]
    unsafe fn unlock_read(&self, (): ()) {
        // (B) the section happens before the writer that finds us gone, directly or through the
        // read-modify-writes of other readers.
        self.depart(Release);
    }

    #[inline]
    fn write(&self) {
        if !self.try_write_free() {
            self.lock_slow(Side::Write);
        }
    }

    #[inline]
    fn try_write(&self) -> Option<()> {
        (self.try_write_free() || self.try_slow(Side::Write)).then_some(())
    }

    fn write_until(&self, deadline: Deadline) -> Option<()> {
        (self.try_write_free() || self.lock_timed(Side::Write, deadline)).then_some(())
    }

    #[inline]
    fn write_watching(&self, deadline: Option<Deadline>, watch: &dyn Fn()) -> Option<()> {
        (self.try_write_free() || self.wait_for_lock(Side::Write, deadline, watch)).then_some(())
    }

    #[inline]
    unsafe fn unlock_write(&self, (): ()) {
        // (A) the section happens before the next acquisition. (F) pairs with `park_head`.
        if M::release_dec(&self.word) {
            wake_head::<M>(&raw const self.word);
        }
    }

    fn is_locked(&self) -> bool {
        self.word.load(Relaxed) & WRITER != 0 || self.readers.load(Relaxed) & COUNT != 0
    }

    fn is_write_locked(&self) -> bool {
        self.word.load(Relaxed) & WRITER != 0
    }
}

impl<M: Machine> RawShflRw<M> {
    /// An attempt to read past everything but a writer that is inside. `Err` says whether a reader is inside.
    fn enter_recursive(&self) -> Result<(), bool> {
        // (A), (E) as in `try_read_free`.
        let before = self.readers.fetch_add(READER, SeqCst);
        let word = self.word.load(SeqCst);
        // (U) An upgradable reader that upgrades looks for readers again after it has taken UPGRADING back.
        if word & WRITER == 0 || word & UPGRADING != 0 {
            return Ok(());
        }
        self.turn_back(READER);
        Err(before & COUNT != 0)
    }

    /// Makes the upgradable reader, which the caller is, a writer.
    fn upgrade_slow(&self, timeout: Timeout) -> bool {
        let alone = |readers: u32| readers & COUNT == UPGRADABLE;
        if matches!(timeout, Timeout::Immediate) && !alone(self.readers.load(Relaxed)) {
            return false;
        }
        // A writer that has set its bit finds the upgradable reader, and takes the bit back.
        let mut word = self.word.load(Relaxed);
        loop {
            if word & WRITER != 0 {
                if M::spin_for(&self.word, Relaxed, TURNING, |word| word & WRITER == 0).is_none()
                    && !Naps::until::<M, _, _>(&self.word, timeout, |word| word & WRITER == 0)
                {
                    return false;
                }
                word = self.word.load(Relaxed);
                continue;
            }
            // (A), (E) as in `try_write_free`.
            match self.word.compare_exchange(word, word & !OFFERED | WRITER, SeqCst, Relaxed) {
                Ok(_) => break,
                Err(now) => word = now,
            }
        }
        // (B), (E) as in `try_head`.
        while M::spin_for(&self.readers, SeqCst, TURNING, alone).is_none() {
            // Readers are inside. A reader that reads again must not wait for this thread: UPGRADING tells it.
            self.word.fetch_or(UPGRADING, Relaxed);
            let left = Naps::until::<M, _, _>(&self.readers, timeout, alone);
            // (U) Dekker pair with `enter_recursive`: it adds a reader and then looks for UPGRADING, this thread takes
            // UPGRADING back and then looks for readers, all sequentially consistent, so one sees the other.
            self.word.fetch_and(!UPGRADING, SeqCst);
            if !left {
                return self.take_back();
            }
        }
        // The head may sleep until there are no readers; now it must sleep until the writer leaves.
        self.leave_upgradable(Relaxed);
        true
    }

    /// Leaves the lock to the head of the queue, if there is one: newcomers do not pass it, unless it is suspended.
    fn promise(&self) {
        if !self.tail.load(Relaxed).is_null() {
            self.word.fetch_or(CLAIMED, Relaxed);
        }
    }
}

// SAFETY: the caller has added itself to the readers before it takes WRITER back, and a writer that sets WRITER afterwards
// sees it: (A) orders the addition before.
unsafe impl<M: Machine> RawDowngrade for RawShflRw<M> {
    #[inline]
    unsafe fn downgrade(&self, (): ()) {
        self.readers.fetch_add(READER, Relaxed);
        // SAFETY: the caller holds the lock for writing.
        unsafe { self.unlock_write(()) };
    }
}

// SAFETY: UPGRADABLE counts as a reader for writers, and only one thread has it. That thread sets WRITER while it has
// UPGRADABLE, so no other writer comes in between, and is a writer when no other reader is left (E), (U).
unsafe impl<M: Machine> RawUpgrade for RawShflRw<M> {
    type Upgradable = ();

    #[inline]
    fn upgradable_within(&self, timeout: Timeout, watch: &dyn Fn()) -> Option<()> {
        let taken = self.try_upgradable_free()
            || match timeout {
                Timeout::Immediate => self.try_slow(Side::Upgradable),
                Timeout::At(deadline) => self.wait_for_lock(Side::Upgradable, Some(deadline), watch),
                Timeout::Never => self.wait_for_lock(Side::Upgradable, None, watch),
            };
        taken.then_some(())
    }

    #[inline]
    unsafe fn unlock_upgradable(&self, (): ()) {
        self.leave_upgradable(Release); // (B)
    }

    #[inline]
    unsafe fn unlock_upgradable_fair(&self, (): ()) {
        self.promise();
        self.leave_upgradable(Release); // (B)
    }

    #[inline]
    unsafe fn upgrade_within(&self, (): (), timeout: Timeout) -> Result<(), ()> {
        if self.upgrade_slow(timeout) { Ok(()) } else { Err(()) }
    }

    #[inline]
    unsafe fn downgrade_upgradable(&self, (): ()) {
        // Another upgradable reader may wait at the head.
        if self.readers.fetch_sub(UPGRADABLE - READER, Release) & PARKED_HEAD != 0 {
            wake_head::<M>(&raw const self.readers);
        }
    }

    #[inline]
    unsafe fn downgrade_to_upgradable(&self, (): ()) {
        // A newcomer that has announced itself finds the writer, and takes that back.
        while self.readers.fetch_or(UPGRADABLE, Relaxed) & UPGRADABLE != 0 {
            let gone = |readers: u32| readers & UPGRADABLE == 0;
            Naps::until::<M, _, _>(&self.readers, Timeout::Never, gone);
        }
        // SAFETY: the caller holds the lock for writing.
        unsafe { self.unlock_write(()) };
    }
}

// SAFETY: a recursive reader enters as a reader does, or beside an upgradable reader that does not write yet (U).
unsafe impl<M: Machine> RawRecursive for RawShflRw<M> {
    #[inline]
    fn read_recursive_within(&self, timeout: Timeout, watch: &dyn Fn()) -> Option<()> {
        loop {
            let Err(read) = self.enter_recursive() else { return Some(()) };
            if !read {
                // A writer is inside, and no reader: the caller waits like any other.
                return match timeout {
                    Timeout::Immediate => None,
                    Timeout::At(deadline) => self.read_watching(Some(deadline), watch),
                    Timeout::Never => self.read_watching(None, watch),
                };
            }
            // The writer, or the reader, is about to turn back, so the caller must not wait in the queue.
            let open = |word| word & WRITER == 0 || word & UPGRADING != 0;
            if M::spin_for(&self.word, Relaxed, TURNING, open).is_none() {
                watch();
                if !Naps::until::<M, _, _>(&self.word, timeout, open) {
                    return None;
                }
            }
        }
    }
}

// SAFETY: CLAIMED is a hint, and the release is that of `RawRwLock`.
unsafe impl<M: Machine> RawFair for RawShflRw<M> {
    #[inline]
    fn is_awaited(&self) -> bool {
        !self.tail.load(Relaxed).is_null()
    }

    #[inline]
    unsafe fn unlock_read_fair(&self, (): ()) {
        self.promise();
        // SAFETY: the caller holds the lock for reading.
        unsafe { self.unlock_read(()) };
    }

    #[inline]
    unsafe fn unlock_write_fair(&self, (): ()) {
        self.promise();
        // SAFETY: the caller holds the lock for writing.
        unsafe { self.unlock_write(()) };
    }
}

/// Wakes the head. The lock may be gone by now: only its address is used.
#[cold]
#[inline(never)]
fn wake_head<M: Machine>(word: *const M::U32) {
    M::wake(word, 1);
}
