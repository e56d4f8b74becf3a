//! ShflLock, non-blocking.
//!
//! Source: Kashyap et al., "Scalable and practical locking with shuffling", SOSP 2019, section 4.2.1, figure 4.
//!
//! A test-and-set word in front of an MCS-like queue. A thread that finds the word free takes it, without a queue node. The
//! others queue, and only the head of the queue competes for the word. While there is a queue, its head keeps newcomers that
//! wait from stealing. Attempts (`try_lock`) may steal, because they would else fail although the lock is free, until the head
//! has looked [`PATIENCE`] times. Waiters group themselves by NUMA node ([`shuffle`](super::shuffle)), off the critical
//! path; under a thorough policy, the head does it. A thread leaves the queue when it acquires the lock, not when it releases
//! it, so nodes live on the waiters' stacks and a holder has none.
//!
//! | state | becomes | moved by | pairs with |
//! |---|---|---|---|
//! | `word` FREE | HELD | a swap by a newcomer or the head | (A) acquire; the store in `unlock` |
//! | `word` HELD | FREE | the holder's store | (A) release |
//! | `no_stealing` OPEN | QUEUED: newcomers that wait queue | a thread that finds the queue empty, or the head | none: the head sets it again |
//! | `no_stealing` QUEUED | OPEN | a head that leaves the queue empty | none |
//! | `no_stealing` QUEUED | BARRED: attempts fail too | a head that has been passed over for long | none |
//! | `no_stealing` BARRED | QUEUED | the same head, on leaving | none |
//! | `shuffling` 0 | 1: there is a shuffler | a head | (T) acquire |
//! | `shuffling` 1 | 0 | the shuffler, after a full batch or with no waiter behind it | (T) release |
//! | `tail`, `next` | as in [`mcs`](super::mcs) | | (C), (Q) |
//! | `status` WAITING | READY | the old head | (R) release; the waiter's acquire |
//!
//! *Which group a long run goes to.* A run is long if the group's threads queue again before the last of the run has left, so
//! that they are moved up in time. A group that has just got the role in a long queue cannot do that: its walk to the tail
//! takes longer than its turn (in the simulator, 14 us for 72 waiters of other sockets and 7 us for 24 handovers). Without a
//! remedy the same few groups always have the time (1024 acquisitions a turn against 24, for tens of milliseconds). So at the
//! start of a run, a coin flip decides whether the role moves on to the next group. (The paper names a random generator as a
//! way to mitigate starvation, as in CNA.)
//!
//! Size: 16 bytes; 64 per waiter, on its stack; none per holder.
//! Atomics per uncontended pair: 1.
//! Fairness: FIFO within a NUMA node; at most 1024 waiters of a node in a row. A newcomer that waits can pass only in the
//! moment between two holders in which `no_stealing` is not yet set; attempts pass each head for a while. A timed
//! acquisition polls outside the queue, and may be passed over.
//! Suspension: blocks. A suspended waiter keeps the lock from the waiters behind it.

use super::policies::NumaPolicy;
use super::shuffle::{Policy, Waiter, Walk, shuffle};
use super::{ConstNew, Info, RawMutex, Suspension};
use crate::machine::{Clock, Machine, Native, Offers, QNode, Word, node_view, or_abort};
use core::marker::PhantomData;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, Ordering::*};

const FREE: u32 = 0;
const HELD: u32 = 1;

const OPEN: u8 = 0;
/// There is a queue: newcomers that wait join it.
const QUEUED: u8 = 1;
/// Attempts fail as well.
const BARRED: u8 = 2;

const WAITING: u32 = 0;
const READY: u32 = 1;

/// Waiters of one group in a row before another group gets its turn (`MAX_SHUFFLES`), where each takes the lock at once.
const SPINNERS_IN_A_ROW: u32 = 1024;
/// Looks at one word before the waiter looks at the rest of its duties again.
const LOOKS: u32 = 64;
/// Looks at the word, in units of `LOOKS`, before a head bars attempts.
pub const PATIENCE: u32 = 64;

node_view! {
    /// The fields of a [`Waiter`]'s node that only this lock uses.
    struct Role {
        /// 1: the waiter is the shuffler.
        shuffler: words[4],
        /// Of the shuffler: the waiter at which its walk starts (the paper's `qlast`); null: at the shuffler.
        resume: links[1],
    }
}

/// ShflLock, non-blocking. See the [module documentation](self).
///
/// Two parts can be left out, to measure what each is worth (section 6.3, "factor analysis"): `HANDS_ON`, that a shuffler makes
/// another waiter the next shuffler, and `RESUMES`, that the next shuffler starts where the last walk stopped (the paper's
/// `qlast` optimisation).
pub struct RawShflSpin<M: Machine, P = NumaPolicy, const HANDS_ON: bool = true, const RESUMES: bool = true> {
    word: M::U32,
    no_stealing: M::U8,
    /// Whether there is a shuffler.
    shuffling: M::U8,
    tail: M::Ptr<QNode<M>>,
    policy: PhantomData<P>,
}

impl<P, const HANDS_ON: bool, const RESUMES: bool> RawShflSpin<Native, P, HANDS_ON, RESUMES> {
    /// An unlocked lock.
    pub const fn new() -> Self {
        RawShflSpin {
            word: AtomicU32::new(FREE),
            no_stealing: AtomicU8::new(OPEN),
            shuffling: AtomicU8::new(0),
            tail: AtomicPtr::new(null_mut()),
            policy: PhantomData,
        }
    }
}

const_new!(RawShflSpin<Native, P, HANDS_ON, RESUMES>, P: Policy, const HANDS_ON: bool, const RESUMES: bool);

impl<M: Machine, P: Policy, const HANDS_ON: bool, const RESUMES: bool> RawShflSpin<M, P, HANDS_ON, RESUMES> {
    /// What keeps attempts out.
    const BAR: u8 = if P::STEALING { BARRED } else { QUEUED };

    fn try_word(&self) -> bool {
        // (A) pairs with the store in `unlock`.
        self.word.load(Relaxed) == FREE && M::acquire_swap(&self.word, HELD) == FREE
    }

    #[cold]
    #[inline(never)]
    fn lock_queued(&self) {
        let storage = QNode::<M>::new();
        let node = Waiter(&storage);
        node.status().store(WAITING, Relaxed);
        node.key().store(P::key::<M>(), Relaxed);
        // (C) this node is initialised for the next arrival, and the predecessor's for us.
        let before = self.tail.swap(node.as_ptr(), AcqRel);
        if before.is_null() {
            self.no_stealing.store(QUEUED, Relaxed);
        } else {
            // SAFETY: the predecessor keeps its node until it has made us the head, and for that it waits for `next`.
            // (Q) pairs with the walks' and the head's loads of `next`.
            unsafe { Waiter::at(before).next().store(node.as_ptr(), Release) };
            self.wait_for_head(node);
        }
        // The head does not walk: that would be on the way from one holder to the next. A thorough policy must not overlook
        // a waiter: then the head alone walks, before it takes the lock.
        if P::THOROUGH && or_abort(P::applies::<M>) {
            _ = shuffle::<M, P>(node, node, &self.tail, SPINNERS_IN_A_ROW, |_| false, |_| false);
        }
        let mut shuffler = !P::THOROUGH && (is_shuffler(node) || self.head_may_shuffle());
        let (mut looked, mut offers) = (0, Offers::new());
        while !self.try_word() {
            let wanted = if looked < M::patience(PATIENCE) { QUEUED } else { BARRED };
            if self.no_stealing.load(Relaxed) < wanted {
                // It is set late, or the old head has cleared it after this one had set it (see `leave`).
                self.no_stealing.store(wanted, Relaxed);
            }
            looked = u32::saturating_add(looked, 1);
            let next = node.next().load(Acquire); // (Q)
            if shuffler && !next.is_null() {
                // SAFETY: it stands behind the head, so it cannot leave the queue before the head does.
                hand_on(unsafe { Waiter::at(next) });
                shuffler = false;
            }
            if M::spin_for(&self.word, Relaxed, LOOKS, |word| word == FREE).is_none() {
                offers.take::<M>(u64::MAX);
            }
        }
        self.leave(node, shuffler, looked > M::patience(PATIENCE));
    }

    /// Whether the head may start shuffling: then it is, or makes another, the shuffler.
    fn head_may_shuffle(&self) -> bool {
        // (T) pairs with the end of a walk in `wait_for_head`.
        let may = or_abort(P::applies::<M>) && self.shuffling.load(Acquire) == 0;
        if may {
            self.shuffling.store(1, Relaxed);
        }
        may
    }

    fn wait_for_head(&self, node: Waiter<'_, M>) {
        let (mut idle, mut offers) = (true, Offers::new());
        loop {
            // (R) pairs with the hand-over in `leave`.
            match M::spin_for(node.status(), Acquire, LOOKS, |status| {
                status == READY || idle && is_shuffler(node)
            }) {
                Some(READY) => return,
                Some(_) => idle = false, // the shuffler from now on; its later walks come after `LOOKS` looks each
                None => offers.take::<M>(u64::MAX),
            }
            if is_shuffler(node) {
                self.walk(node);
            }
        }
    }

    /// One walk of the shuffler. After it another waiter may have the role. No waiter has it once the run is complete.
    fn walk(&self, node: Waiter<'_, M>) {
        let (role, batch) = (Role(node.0), node.batch().load(Relaxed));
        let resume = role.resume().load(Relaxed);
        role.shuffler().store(0, Relaxed);
        role.resume().store(null_mut(), Relaxed);
        // SAFETY: it stands behind the shuffler, so it cannot leave the queue before the shuffler does.
        let from = if resume.is_null() { node } else { unsafe { Waiter::at(resume) } };
        // Where a run begins, a coin decides whether the role moves to the next group at once.
        let at_once = P::RANKS == 1 && HANDS_ON && batch == 0 && coin::<M>();
        let strange = |waiter: Waiter<'_, M>| {
            or_abort(|| P::rank::<M>(node.key().load(Relaxed), waiter.key().load(Relaxed)) != 0)
        };
        let stop =
            |current: Waiter<'_, M>| node.status().load(Relaxed) == READY || at_once && strange(current);
        let Some(Walk { last, reached, stopped }) =
            shuffle::<M, P>(node, from, &self.tail, SPINNERS_IN_A_ROW, stop, |_| false)
        else {
            return self.shuffling.store(0, Release); // (T) our walk is over before another starts
        };
        let grouped_none = last == node || at_once && strange(reached);
        let next = match stopped && grouped_none {
            _ if !HANDS_ON => node,
            true => reached,
            false => last,
        };
        let resumes = RESUMES && reached != next;
        Role(next.0).resume().store(if resumes { reached.as_ptr() } else { null_mut() }, Relaxed);
        Role(next.0).shuffler().store(1, Release); // (S)
    }

    /// Leaves the queue, holding the lock.
    fn leave(&self, node: Waiter<'_, M>, shuffler: bool, barred: bool) {
        let mut next = node.next().load(Acquire); // (Q)
        if next.is_null() {
            if shuffler {
                self.shuffling.store(0, Relaxed); // (C) known to the next head, if the queue is empty
            }
            if self.tail.compare_exchange(node.as_ptr(), null_mut(), Release, Relaxed).is_ok() {
                // A newcomer that has queued since may have set it. It looks again while it waits.
                self.no_stealing.store(OPEN, Relaxed);
                return;
            }
            next = M::spin_until(node.next(), Acquire, |next: *mut QNode<M>| !next.is_null());
        }
        if barred {
            self.no_stealing.store(QUEUED, Relaxed);
        }
        // SAFETY: a waiter keeps its node at least until it is READY.
        let next = unsafe { Waiter::at(next) };
        if shuffler {
            self.shuffling.store(1, Relaxed);
            hand_on(next);
        }
        // (R) the queue as the walks left it.
        next.status().store(READY, Release);
    }
}

/// Makes `next` the shuffler in place of a waiter in front of it that will not walk any more.
fn hand_on<M: Machine>(next: Waiter<'_, M>) {
    Role(next.0).shuffler().store(1, Release); // (S)
}

/// Whether `node` is the shuffler.
fn is_shuffler<M: Machine>(node: Waiter<'_, M>) -> bool {
    // (S) pairs with the end of a walk: the shuffler sees the queue as that walk left it.
    Role(node.0).shuffler().load(Acquire) != 0
}

/// True half of the time.
fn coin<M: Machine>() -> bool {
    let seed = M::now(Clock::Monotonic) ^ M::thread_id() as u64;
    seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 63 != 0
}

// SAFETY: only one swap can take the word from FREE to HELD; (A) orders the sections.
unsafe impl<M: Machine, P: Policy, const HANDS_ON: bool, const RESUMES: bool> RawMutex
    for RawShflSpin<M, P, HANDS_ON, RESUMES>
{
    type Machine = M;
    type Token = ();
    const INFO: Info = Info {
        name: "shfl-spin",
        summary: "ShflLock, non-blocking: NUMA-grouped queue behind a stealable word",
        atomics: 1,
        waiter_bytes: 64,
        holder_bytes: 0,
        fairness: "FIFO per NUMA node, 1024 in a row; stealing while the queue is empty, and by attempts",
        blocking: false,
        suspension: Suspension::Blocks,
        source: "Kashyap et al. 2019, section 4.2.1",
    };

    fn new_in() -> Self {
        RawShflSpin {
            word: M::U32::new(FREE),
            no_stealing: M::U8::new(OPEN),
            shuffling: M::U8::new(0),
            tail: M::Ptr::new(null_mut()),
            policy: PhantomData,
        }
    }

    #[inline]
    fn lock(&self) {
        if self.try_lock_weak().is_none() {
            self.lock_queued();
        }
    }

    #[inline]
    fn try_lock(&self) -> Option<()> {
        (self.no_stealing.load(Relaxed) < Self::BAR && self.try_word()).then_some(())
    }

    /// Not past the queue: the caller goes on to wait there.
    #[inline(always)]
    fn try_lock_weak(&self) -> Option<()> {
        (self.no_stealing.load(Relaxed) == OPEN && self.try_word()).then_some(())
    }

    #[inline]
    unsafe fn unlock(&self, (): ()) {
        // (A) the section happens before the next acquire.
        self.word.store(FREE, Release);
    }

    fn is_locked(&self) -> bool {
        self.word.load(Relaxed) != FREE
    }
}
