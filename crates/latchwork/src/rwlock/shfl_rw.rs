//! Reader-writer ShflLock, blocking.
//!
//! Source: Kashyap et al., "Scalable and practical locking with shuffling", SOSP 2019, section
//! 4.2.3; the queue is that of the blocking mutex, [`shfl`](crate::mutex::shfl).
//!
//! A word that counts readers and says whether there is a writer, and behind it one queue of
//! readers and writers that spin briefly and then sleep. Who finds the word open to it enters;
//! the others queue, and only the head of the queue waits at the word. What the mutex does against
//! long holds, lost wakeups and unfairness is done here with the same means; read it first.
//!
//! Where it differs from the paper:
//! - *One lock, not two.* In the paper a reader or writer that cannot enter acquires a ShflLock
//!   mutex, waits at the word, and releases the mutex. Here the head of the queue does so directly:
//!   one word less, and one sleep per waiter instead of two (the mutex, then the word).
//! - *A waiting writer does not shut readers out at once*, nor a waiting reader writers: newcomers
//!   may pass the head for [`STEAL_BOUND`] microseconds. With more threads than cores, shutting
//!   them out for the time that it takes to wake the head, or until a preempted reader runs again,
//!   costs most of the throughput. Then CLAIMED shuts them out, which is the paper's writer-waiting
//!   bit and, for a reader, its early increment. No waiter is passed over for ever: one with `n` in
//!   front of it waits for at most `n + 1` times (the bound, a wakeup and the sections inside).
//! - *Readers in a row enter together.* A reader that enters from the queue wakes the next one if
//!   that is a reader too. On machines with several NUMA nodes readers are moved up behind readers,
//!   whatever their node; writers behind writers of their node.
//!
//! | word | meaning | set by | cleared by |
//! |---|---|---|---|
//! | WRITER (bit 0) | held for writing | the writer, from a word without readers | `release_dec` |
//! | CLAIMED (bit 1) | the head is next | the head | who enters |
//! | WAKING (bit 2) | the head is being woken: mind the time | who wakes it, thieves keep it | the head |
//! | bits 3 to 30 | readers inside | each of them adds one | and subtracts it |
//! | PARKED (bit 31) | the head sleeps, wake it | the head | who enters a word that nobody holds |
//!
//! While WRITER is set only the head changes the word, and only hints, so that the writer leaves
//! with a decrement that is not an atomic read-modify-write; the head makes up for it with a heavy
//! fence before it sleeps (see [`release_dec`](Machine::release_dec)). A hint that the decrement
//! overwrites is set again by the head, and one that it revives is dropped by who enters next.
//! Readers leave with an atomic subtraction; the last one wakes the head.
//!
//! Who releases does not touch the lock afterwards (a wakeup needs only the address), so whoever
//! enters next may destroy it.
//!
//! Nodes are as in the mutex; `group` also tells readers from writers.
//!
//! Size: 16 bytes; 64 per waiter, on its stack (timed: from the pool); none per holder. Atomics per
//! uncontended pair: read 2, write 1.
//! Fairness: bounded stealing both ways, as above; FIFO in the queue but for shuffling.
//! Re-entry: a reader that read-locks again passes a waiting writer only until that has waited for
//! the bound; then both wait for ever. (The preloaded library counts a thread's read holdings and
//! does not ask the lock again.)
//! More than 2^28 - 1 simultaneous readers would break it.

use super::{ConstNew, Info, RawRwLock};
use crate::machine::{Arith, Clock, Deadline, Machine, Native, QNode, Wait, Word};
use crate::mutex::shuffle::{NumaPolicy, Policy, SLEEPERS_IN_A_ROW, is_shuffler, may_start, shuffle};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering::*};

const FREE: u32 = 0;
const WRITER: u32 = 1;
const CLAIMED: u32 = 1 << 1;
const WAKING: u32 = 1 << 2;
const READER: u32 = 1 << 3;
const PARKED_HEAD: u32 = 1 << 31;
const HINTS: u32 = CLAIMED | WAKING | PARKED_HEAD;
const READERS: u32 = !(HINTS | WRITER);

const WAITING: u32 = 0;
const READY: u32 = 1;
const PARKED: u32 = 2;
const SPINNING: u32 = 3;
const ABANDONED: u32 = 4;
const PARKED_TIMED: u32 = 5;

/// Microseconds (of 1024 ns) for which newcomers may pass a head.
pub const STEAL_BOUND: u32 = 500;
/// Low bits of `since`: steals from a sleeping head. The clock is read at every sixteenth.
const STEALS: u32 = 15;
/// Looks at the word before a newcomer queues, and spin hints between them at most.
const ARRIVAL: (u32, u32) = (24, 8);
/// Spin hints between two looks of the head, at first and at most.
const HEAD_PAUSE: (u32, u32) = (1, 128);
/// Looks of the head, at the longest pause, before it sleeps.
const HEAD_LOOKS: u32 = 32;
/// Looks of a waiter at its node before it sleeps.
const NODE_LOOKS: u32 = 256;
/// Second looks at a free word, and spin hints before each, until a newcomer and a head that want to
/// write believe that it is idle.
const ARRIVAL_IDLE: (u32, u32) = (1, 5);
const HEAD_IDLE: (u32, u32) = (4, 8);
/// Walks of a shuffler that is not the head, each after so many looks, before it sleeps like others.
const WALKS: u32 = 8;
/// A sleep when the heavy fence was refused.
const UNFENCED_SLEEP: u64 = 1_000_000;

/// What an acquisition is for.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Side {
    Read,
    Write,
}

impl Side {
    /// What it adds to the word.
    #[inline(always)]
    fn unit(self) -> u32 {
        match self {
            Side::Read => READER,
            Side::Write => WRITER,
        }
    }

    /// Whether nobody inside keeps it out.
    #[inline(always)]
    fn may_enter(self, word: u32) -> bool {
        match self {
            Side::Read => word & WRITER == 0,
            Side::Write => word & (WRITER | READERS) == 0,
        }
    }

    /// The shuffling group: all readers are one.
    fn group<M: Machine>(self) -> u32 {
        match self {
            Side::Read => READING,
            Side::Write => NumaPolicy::group::<M>(),
        }
    }
}

/// The group of readers, which is no NUMA node's.
const READING: u32 = u32::MAX;

/// Reader-writer ShflLock. See the [module documentation](self).
#[repr(C)]
pub struct RawShflRw<M: Machine> {
    word: M::U32,
    /// When the head became it, and steals from it; see [`micros`].
    since: M::U32,
    tail: M::Ptr<QNode<M>>,
}

impl RawShflRw<Native> {
    /// An unlocked lock.
    pub const fn new() -> Self {
        RawShflRw { word: AtomicU32::new(FREE), since: AtomicU32::new(0), tail: AtomicPtr::new(null_mut()) }
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
    /// The uncontended acquisition for reading. With any hint set it goes the slow way.
    #[inline(always)]
    fn try_read_free(&self) -> bool {
        let mut word = self.word.load(Relaxed);
        while word & !READERS == 0 {
            // (A) pairs with the decrement in `unlock_write`. A failure is another reader's success,
            // or a writer.
            match self.word.compare_exchange(word, word + READER, Acquire, Relaxed) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
        false
    }

    /// The uncontended acquisition for writing.
    #[inline(always)]
    fn try_write_free(&self) -> bool {
        // (A) as above. (B) pairs with the subtraction in `unlock_read`.
        self.word.load(Relaxed) == FREE && self.word.compare_exchange(FREE, WRITER, Acquire, Relaxed).is_ok()
    }

    /// Enters the word, which the caller has seen to be open. The head is not asleep and has no
    /// claims beside its own, so it drops all hints. Others leave them to the head and its
    /// waker, the last reader; but if nobody is inside, its waker has been, and they drop PARKED.
    #[inline]
    fn enter(&self, side: Side, word: u32, head: bool) -> bool {
        let hints = if head {
            0
        } else if word & !HINTS != 0 {
            word & HINTS
        } else if word & (WAKING | PARKED_HEAD) != 0 {
            WAKING
        } else {
            0
        };
        // (A), (B) as above.
        self.word.compare_exchange(word, (word & !HINTS | hints) + side.unit(), Acquire, Relaxed).is_ok()
    }

    /// A newcomer's attempt, past the head if there is one.
    fn steal(&self, side: Side) -> Steal {
        loop {
            let word = self.word.load(Relaxed);
            let asleep = word & (WAKING | PARKED_HEAD) != 0;
            if asleep && self.since.load(Relaxed) & STEALS == 0 && self.overdue() {
                return Steal::Refused;
            }
            if word & CLAIMED != 0 || !side.may_enter(word) {
                return Steal::Held;
            }
            if self.enter(side, word, false) {
                if asleep {
                    // Count it. If another thief or a new head writes meanwhile, one of the writes is
                    // lost, and the head's turn comes early or a little late.
                    let since = self.since.load(Relaxed);
                    self.since.store(since & !STEALS | (since + 1) & STEALS, Relaxed);
                }
                return Steal::Taken;
            }
            if side == Side::Write {
                return Steal::Held;
            }
        }
    }

    /// Whether the head has been passed over for long enough.
    fn overdue(&self) -> bool {
        micros::<M>().wrapping_sub(self.since.load(Relaxed) & !STEALS) > STEAL_BOUND * (STEALS + 1)
    }

    #[cold]
    fn try_slow(&self, side: Side) -> bool {
        if matches!(self.steal(side), Steal::Taken) {
            return true;
        }
        // A hint may outlive its head, one that gave up: a free lock must not look held.
        loop {
            let word = self.word.load(Relaxed);
            if !self.tail.load(Relaxed).is_null() || !side.may_enter(word) {
                return false;
            }
            if self.enter(side, word, true) {
                return true;
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn lock_slow(&self, side: Side) {
        if !self.arrive(side) {
            let node = QNode::<M>::new();
            self.lock_queued(&node, side, None);
        }
    }

    /// A newcomer's short wait, at growing intervals.
    fn arrive(&self, side: Side) -> bool {
        let mut pause = 1;
        // With a head asleep there is nobody to be polite to.
        let mut eager = side == Side::Read || self.word.load(Relaxed) & (WAKING | PARKED_HEAD) != 0;
        for _ in 0..M::patience(ARRIVAL.0) {
            if eager || self.is_idle(ARRIVAL_IDLE) {
                eager = side == Side::Read;
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

    #[cold]
    #[inline(never)]
    fn lock_timed(&self, side: Side, deadline: Deadline) -> bool {
        if self.arrive(side) {
            return true;
        }
        let node = M::acquire_node();
        node.next.store(null_mut(), Relaxed);
        node.status.store(WAITING, Relaxed);
        node.batch.store(0, Relaxed);
        node.shuffler.store(0, Relaxed);
        node.resume.store(null_mut(), Relaxed);
        match self.lock_queued(node, side, Some(deadline)) {
            Outcome::Abandoned => false, // the node is the queue's now
            outcome => {
                // SAFETY: ours, and no longer in the queue.
                unsafe { M::release_node(node) };
                matches!(outcome, Outcome::Locked)
            }
        }
    }

    /// Queues, waits to be the head, and competes for the word.
    fn lock_queued(&self, node: &QNode<M>, side: Side, deadline: Option<Deadline>) -> Outcome {
        node.group.store(side.group::<M>(), Relaxed);
        // (C) our node is initialised for whoever queues behind us, and our predecessor's for us.
        let before = self.tail.swap(node.as_ptr(), AcqRel);
        if before.is_null() {
            self.since.store(micros::<M>(), Relaxed);
        } else {
            // SAFETY: the predecessor stays until it has made us the head, which needs `next`; the
            // node of one that gave up stays likewise.
            // (Q) pairs with the walks' and the head's loads of `next`.
            unsafe { (*before).next.store(node.as_ptr(), Release) };
            if !self.wait_for_head(node, deadline) {
                return Outcome::Abandoned;
            }
        }
        let locked = self.compete(node, side, deadline);
        self.leave(node, side, locked);
        if locked { Outcome::Locked } else { Outcome::TimedOut }
    }

    /// Waits in the queue. `false`: gave up, and the node now belongs to the queue.
    fn wait_for_head(&self, node: &QNode<M>, deadline: Option<Deadline>) -> bool {
        let mut walks = 0;
        loop {
            // (R) pairs with the hand-over in `leave`.
            if M::spin_for(&node.status, Acquire, NODE_LOOKS, |status| status == READY).is_some() {
                return true;
            }
            if walks < M::patience(WALKS) && is_shuffler::<M, NumaPolicy>(node) {
                walks += 1;
                self.shuffle(node, || node.status.load(Relaxed) == READY);
                continue;
            }
            walks = 0;
            let status = node.status.load(Relaxed);
            let late = deadline.is_some_and(|d| d.passed::<M>());
            let next = match deadline {
                None => PARKED,
                Some(_) if late => ABANDONED,
                Some(_) => PARKED_TIMED,
            };
            // (R) as above, if it fails because we have become the head. Release: (D) pairs with
            // the swap in `leave` that finds ABANDONED and takes the node over.
            if status == READY || node.status.compare_exchange(status, next, AcqRel, Acquire).is_err() {
                continue;
            }
            if late {
                return false;
            }
            while node.status.load(Relaxed) == next {
                if M::wait(&node.status, next, deadline) == Wait::TimedOut {
                    break;
                }
            }
        }
    }

    /// The head's part: `true` with the lock, `false` after the deadline.
    fn compete(&self, node: &QNode<M>, side: Side, deadline: Option<Deadline>) -> bool {
        let mut claimed = false;
        let mut pause = HEAD_PAUSE.0;
        let mut looks = 0;
        loop {
            if may_start::<M, NumaPolicy>(node) {
                self.shuffle(node, || side.may_enter(self.word.load(Relaxed)));
            }
            if self.try_head(side, claimed) {
                return true;
            }
            if self.word.load(Relaxed) & WAKING != 0 {
                self.word.fetch_and(!WAKING, Relaxed);
            }
            M::pause(pause);
            if pause < M::patience(HEAD_PAUSE.1) {
                pause *= 2;
                continue;
            }
            if deadline.is_some_and(|d| d.passed::<M>()) {
                if claimed {
                    self.word.fetch_and(!CLAIMED, Relaxed);
                }
                return self.try_head(side, true);
            }
            claimed = claimed || self.overdue();
            if claimed && self.word.load(Relaxed) & CLAIMED == 0 {
                self.word.fetch_or(CLAIMED, Relaxed);
                pause = HEAD_PAUSE.0;
            }
            looks += 1;
            if looks >= M::patience(HEAD_LOOKS) {
                self.park_head(side, deadline);
                looks = 0;
            }
        }
    }

    /// The head's attempt. A writer takes a lock that is merely between two sections of another
    /// thread only if it is its `turn`.
    fn try_head(&self, side: Side, turn: bool) -> bool {
        loop {
            let word = self.word.load(Relaxed);
            if !side.may_enter(word) || !(turn || side == Side::Read || self.is_idle(HEAD_IDLE)) {
                return false;
            }
            if self.enter(side, word, true) {
                return true;
            }
        }
    }

    /// Whether the lock is unused, and not merely between two sections of a thread that has it in
    /// its cache: to take it from there costs two cache misses and often a wakeup of the next head.
    fn is_idle(&self, (looks, pause): (u32, u32)) -> bool {
        (0..M::patience(looks)).all(|_| {
            M::pause(pause);
            Side::Write.may_enter(self.word.load(Relaxed))
        })
    }

    /// Sleeps until the writer, or the last reader, leaves.
    fn park_head(&self, side: Side, deadline: Option<Deadline>) {
        let word = self.word.fetch_or(PARKED_HEAD, Relaxed);
        if side.may_enter(word) {
            return;
        }
        // (F) the heavy fence orders the bit before the second look, and the writer's decrement
        // either before that look or after the bit. Who leaves with an atomic instruction, or enters
        // after our bit was set, needs none: it comes after the bit.
        let fenced = word & WRITER == 0 || M::heavy_fence();
        let word = self.word.load(Relaxed);
        if side.may_enter(word) || word & PARKED_HEAD == 0 {
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
    fn leave(&self, node: &QNode<M>, side: Side, locked: bool) {
        let mut current = node;
        // For the next head, if there is one; (R) makes it visible to it.
        self.since.store(micros::<M>(), Relaxed);
        loop {
            let mut next = current.next.load(Acquire); // (Q)
            let mut last = false;
            if next.is_null() {
                last = self.tail.compare_exchange(current.as_ptr(), null_mut(), Release, Relaxed).is_ok();
                if !last {
                    next = M::spin_until(&current.next, Acquire, |next: *mut QNode<M>| !next.is_null());
                }
            }
            if !core::ptr::eq(current, node) {
                // SAFETY: its owner gave up (D), and it is no longer in the queue.
                unsafe { M::release_node(&*current.as_ptr()) };
            }
            if last {
                return;
            }
            // SAFETY: a waiter's node stays at least until it is READY.
            let (status, group) = unsafe { (&(*next).status, (*next).group.load(Relaxed)) };
            // (R) the queue as our walks left it. (D) pairs with giving up.
            match status.swap(READY, AcqRel) {
                // SAFETY: an abandoned node is ours to release.
                ABANDONED => current = unsafe { &*next },
                PARKED if locked && !(side == Side::Read && group == READING) => {
                    // It cannot enter beside us, so it sleeps on, as a parked head, until we leave.
                    // In this order: who is to wake it must find the sleeper.
                    M::requeue(status, READY, &self.word);
                    self.word.fetch_or(PARKED_HEAD, Relaxed);
                    return;
                }
                // The second is not moved: it may give up as the head too, and its node be another
                // lock's by then.
                PARKED | PARKED_TIMED => {
                    self.word.fetch_or(WAKING, Relaxed);
                    M::wake(status, 1);
                    return;
                }
                _ => return,
            }
        }
    }

    /// One walk; wakes the waiter next in line, so that it is running when its turn comes.
    fn shuffle(&self, node: &QNode<M>, stop: impl FnMut() -> bool) {
        let mut wakes = 1;
        let grouped = |waiter: &QNode<M>| {
            if wakes == 0 {
                return;
            }
            let from = waiter.status.load(Relaxed);
            if matches!(from, WAITING | PARKED | PARKED_TIMED)
                && waiter.status.compare_exchange(from, SPINNING, Relaxed, Relaxed).is_ok()
            {
                if from != WAITING {
                    M::wake(&raw const waiter.status, 1);
                }
                wakes -= 1;
            }
        };
        let abandoned = |waiter: &QNode<M>| waiter.status.load(Acquire) == ABANDONED; // (D)
        shuffle::<M, NumaPolicy>(node, SLEEPERS_IN_A_ROW, false, stop, grouped, abandoned);
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

/// How a queued acquisition ended, and whose the node is.
enum Outcome {
    /// Has the lock; has left the queue.
    Locked,
    /// The deadline passed at the head; has left the queue.
    TimedOut,
    /// The deadline passed in the queue; the node stays there.
    Abandoned,
}

/// Now, as `since` keeps it: microseconds of 1024 ns in the upper bits (they wrap after 4.6 minutes
/// and are compared by difference), no steals in the lower ones.
fn micros<M: Machine>() -> u32 {
    ((M::now(Clock::Monotonic) >> 10) as u32).wrapping_mul(STEALS + 1)
}

// SAFETY: WRITER is set from a word without readers or writer, readers are counted from a word
// without a writer, both by compare-and-exchange; (A) and (B) order the sections.
unsafe impl<M: Machine> RawRwLock for RawShflRw<M> {
    type Machine = M;
    type Read = ();
    type Write = ();
    const INFO: Info = Info {
        name: "shfl-rw",
        summary: "reader-writer ShflLock, blocking: one queue of sleepers behind a stealable word",
        atomics: 2,
        waiter_bytes: 64,
        holder_bytes: 0,
        fairness: "stealing for at most 0.5 ms per queue position, by readers and writers; then FIFO",
        blocking: true,
        source: "Kashyap et al. 2019, section 4.2.3",
    };

    fn new_in() -> Self {
        RawShflRw { word: M::U32::new(FREE), since: M::U32::new(0), tail: M::Ptr::new(null_mut()) }
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
    unsafe fn unlock_read(&self, (): ()) {
        // (B) the section happens before the writer that finds us gone, directly or through the
        // read-modify-writes of other readers.
        let word = self.word.fetch_sub(READER, Release);
        if word & (READERS | PARKED_HEAD) == READER | PARKED_HEAD {
            wake_head::<M>(&raw const self.word);
        }
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
    unsafe fn unlock_write(&self, (): ()) {
        // (A) the section happens before the next acquisition. (F) pairs with `park_head`.
        if M::release_dec(&self.word) {
            wake_head::<M>(&raw const self.word);
        }
    }

    fn is_locked(&self) -> bool {
        self.word.load(Relaxed) & (WRITER | READERS) != 0
    }

    fn is_write_locked(&self) -> bool {
        self.word.load(Relaxed) & WRITER != 0
    }
}

/// Wakes the head. The lock may be gone by now: only its address is used.
#[cold]
#[inline(never)]
fn wake_head<M: Machine>(word: *const M::U32) {
    M::wake(word, 1);
}
