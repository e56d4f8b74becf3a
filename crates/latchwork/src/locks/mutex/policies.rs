//! Shuffling policies beyond NUMA grouping, for either ShflLock.
//!
//! Source: Kashyap et al. 2019, section 7 ("Policies"), which names them and leaves them open. What a policy is, and what the
//! locks guarantee whatever it says, is in [`shuffle`](super::shuffle).
//!
//! | policy | which waiters are moved up |
//! |---|---|
//! | [`NumaPolicy`] | waiters of the shuffler's NUMA node; the default |
//! | [`NoPolicy`] | none |
//! | [`Hops`] | waiters of the shuffler's NUMA node, then those of the nodes nearest to it |
//! | [`Priority`] | the most urgent ones; no thread steals from a head that has asked for the lock |
//! | [`Opportunity`] | those that have held the lock for the shortest time lately |
//!
//! [`RawLocally`] is not a policy but a lock over any of them, in which newcomers steal only within their group.
//!
//! No policy adds anything to the lock or to a waiter, but for 8 bytes per lock that `Opportunity` measures with. What each
//! is worth is in `docs/policies.md`, with an example of a policy of one's own.

use super::shfl::RawShfl;
use super::shuffle::{MAX_RANKS, Policy};
use super::{ConstNew, Info, RawMutex};
use crate::machine::{Clock, Deadline, Machine, Native, Word};
use core::marker::PhantomData;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// Groups waiters of one NUMA node, so that the lock and its data stay in that node's caches.
#[derive(Debug)]
pub struct NumaPolicy;

impl Policy for NumaPolicy {
    fn applies<M: Machine>() -> bool {
        M::numa_nodes() > 1
    }
    fn key<M: Machine>() -> u32 {
        M::numa_node()
    }
    fn rank<M: Machine>(shuffler: u32, waiter: u32) -> usize {
        usize::from(shuffler != waiter)
    }
}

/// Leaves the queue in order of arrival.
#[derive(Debug)]
pub struct NoPolicy;

impl Policy for NoPolicy {
    #[inline]
    fn applies<M: Machine>() -> bool {
        false
    }
    #[inline]
    fn key<M: Machine>() -> u32 {
        0
    }
    #[inline]
    fn rank<M: Machine>(_: u32, _: u32) -> usize {
        Self::RANKS
    }
}

/// Several levels of NUMA: first the shuffler's own node, then its neighbours, and so on.
#[derive(Debug)]
pub struct Hops;

impl Policy for Hops {
    const RANKS: usize = 3;

    fn applies<M: Machine>() -> bool {
        NumaPolicy::applies::<M>()
    }
    fn key<M: Machine>() -> u32 {
        M::numa_node()
    }
    fn rank<M: Machine>(shuffler: u32, waiter: u32) -> usize {
        M::numa_hops(shuffler, waiter) as usize
    }
}

/// How urgent it is for a thread to get a lock.
pub trait Urgency: Send + Sync + 'static {
    /// The urgency of the calling thread: 0 is the most urgent; from 7 on all are alike.
    fn of_caller<M: Machine>() -> u32;
}

/// The most urgent waiter is the next but one: the head of the queue keeps its place, all waiters behind it are sorted by
/// urgency, and no thread steals from a head that has asked for the lock.
///
/// An urgent thread waits for threads that are as urgent and came before it. Of the others it waits for three as a rule: the
/// holder, the head, and the next waiter, which looks at the whole queue before it takes the lock. It waits for more if
/// newcomers take the lock before the queue has a head, or if a waiter has queued but not linked itself yet: the next
/// waiter then does not see who stands behind that one. After
/// [`PATIENCE`](Policy::PATIENCE) more urgent threads in a row, one other thread has its turn, so no thread starves.
/// The holder does not inherit the urgency of a waiter, because the scheduler alone gives out processors.
#[derive(Debug)]
pub struct Priority<U>(PhantomData<U>);

impl<U: Urgency> Policy for Priority<U> {
    const RANKS: usize = MAX_RANKS;
    const PATIENCE: Option<u32> = Some(64);
    const THOROUGH: bool = true;
    const STEALING: bool = false;

    fn key<M: Machine>() -> u32 {
        U::of_caller::<M>()
    }
    fn rank<M: Machine>(_: u32, waiter: u32) -> usize {
        (waiter as usize).min(Self::RANKS - 1)
    }
}

/// Where a thread keeps how long it has held the lock: a word of its own, zero at first. With a type for each lock, each
/// lock counts for itself. With one type for all, a thread that has had much of one lock waits longer for the others too.
pub trait Account: Send + Sync + 'static {
    /// The calling thread's word.
    fn get<M: Machine>() -> u64;
    /// Changes it.
    fn set<M: Machine>(word: u64);
}

/// The waiter that has held the lock for less time lately comes first. Threads get the same share of the *time* that the
/// lock is held, not of the acquisitions (Patel et al., "Avoiding scheduler subversion using
/// scheduler-cooperative locks", EuroSys 2020). For [`RawOpportunity`], which measures.
#[derive(Debug)]
pub struct Opportunity<A>(PhantomData<A>);

/// Binary logarithm of the nanoseconds (17 ms) after which half of a thread's time is forgotten.
const HALF_LIFE: u32 = 24;
/// Nanoseconds: smaller differences do not count.
const SLACK: u32 = 1 << 8;

impl<A: Account> Opportunity<A> {
    /// The time for which the calling thread has held the lock, as far as it is not forgotten. The upper half of the word
    /// is when the word was last changed, in half lives.
    fn used<M: Machine>(now: u64) -> u32 {
        let word = A::get::<M>();
        let age = ((now >> HALF_LIFE) as u32).wrapping_sub((word >> 32) as u32);
        (word as u32).checked_shr(age).unwrap_or(0)
    }

    /// Adds to it.
    fn charge<M: Machine>(now: u64, nanos: u64) {
        let nanos = u32::try_from(nanos).unwrap_or(u32::MAX);
        let used = Self::used::<M>(now).saturating_add(nanos);
        A::set::<M>((now >> HALF_LIFE) << 32 | u64::from(used));
    }
}

impl<A: Account> Policy for Opportunity<A> {
    const RANKS: usize = MAX_RANKS;
    const PATIENCE: Option<u32> = Some(1024);
    const THOROUGH: bool = true;

    fn key<M: Machine>() -> u32 {
        Self::used::<M>(M::now(Clock::Monotonic))
    }
    /// Grows with the logarithm of the time by which the waiter has held the lock longer than the shuffler.
    fn rank<M: Machine>(shuffler: u32, waiter: u32) -> usize {
        let more = waiter.saturating_sub(shuffler) / SLACK;
        ((u32::BITS - more.leading_zeros()).div_ceil(2) as usize).min(Self::RANKS - 1)
    }
}

/// ShflLock, blocking, that measures for [`Opportunity`]. It reads the clock twice per acquisition.
pub struct RawOpportunity<M: Machine, A> {
    lock: RawShfl<M, Opportunity<A>>,
    /// When the holder acquired the lock.
    entered: M::U64,
}

impl<A> RawOpportunity<Native, A> {
    /// An unlocked lock.
    pub const fn new() -> Self {
        RawOpportunity { lock: RawShfl::new(), entered: AtomicU64::new(0) }
    }
}

const_new!(RawOpportunity<Native, A>, A: Account);

impl<M: Machine, A: Account> RawOpportunity<M, A> {
    fn entered(&self) {
        self.entered.store(M::now(Clock::Monotonic), Relaxed);
    }
}

// SAFETY: exclusion and orderings are those of the lock inside. Only the holder uses `entered`.
unsafe impl<M: Machine, A: Account> RawMutex for RawOpportunity<M, A> {
    type Machine = M;
    type Token = ();
    const INFO: Info = Info {
        name: "shfl-opportunity",
        summary: "ShflLock that shares out the time for which it is held",
        fairness: "equal time with the lock; newcomers steal as under shfl",
        ..RawShfl::<M, Opportunity<A>>::INFO
    };

    fn new_in() -> Self {
        RawOpportunity { lock: RawShfl::new_in(), entered: M::U64::new(0) }
    }

    fn lock(&self) {
        self.lock.lock();
        self.entered();
    }

    fn try_lock(&self) -> Option<()> {
        self.lock.try_lock().map(|()| self.entered())
    }

    fn lock_until(&self, deadline: Deadline) -> Option<()> {
        self.lock.lock_until(deadline).map(|()| self.entered())
    }

    unsafe fn unlock(&self, (): ()) {
        let now = M::now(Clock::Monotonic);
        Opportunity::<A>::charge::<M>(now, now.saturating_sub(self.entered.load(Relaxed)));
        // SAFETY: the caller's token is from an acquisition of this lock, and so of the one inside.
        unsafe { self.lock.unlock(()) }
    }

    fn is_locked(&self) -> bool {
        self.lock.is_locked()
    }
}

/// ShflLock, blocking, with stealing within a group: with [`NumaPolicy`], on the same NUMA node. A newcomer that does not find the
/// lock free at once spins beside a sleeping head if its key is that of the last thread that waited for the lock. Any other makes
/// one more attempt and queues, unless nobody does. (Section 6.3, "ShflLock (NUMA)".)
pub struct RawLocally<M: Machine, P = NumaPolicy> {
    lock: RawShfl<M, P>,
    /// The key of the last thread that waited for the lock and got it.
    group: M::U32,
}

impl<P> RawLocally<Native, P> {
    /// An unlocked lock.
    pub const fn new() -> Self {
        RawLocally { lock: RawShfl::new(), group: AtomicU32::new(0) }
    }
}

const_new!(RawLocally<Native, P>, P: Policy);

impl<M: Machine, P: Policy> RawLocally<M, P> {
    fn wait(&self, deadline: Option<Deadline>) -> bool {
        let key = P::key::<M>();
        let locked = self.lock.wait_for_lock(deadline, self.group.load(Relaxed) == key);
        if locked {
            self.group.store(key, Relaxed);
        }
        locked
    }
}

// SAFETY: exclusion and orderings are those of the lock inside. `group` is a hint.
unsafe impl<M: Machine, P: Policy> RawMutex for RawLocally<M, P> {
    type Machine = M;
    type Token = ();
    const INFO: Info = Info {
        name: "shfl-local",
        summary: "ShflLock that is stolen within a NUMA node only",
        ..RawShfl::<M, P>::INFO
    };

    fn new_in() -> Self {
        RawLocally { lock: RawShfl::new_in(), group: M::U32::new(0) }
    }

    fn lock(&self) {
        if self.lock.try_lock_weak().is_none() {
            self.wait(None);
        }
    }

    fn try_lock(&self) -> Option<()> {
        self.lock.try_lock()
    }

    fn lock_until(&self, deadline: Deadline) -> Option<()> {
        (self.lock.try_lock_weak().is_some() || self.wait(Some(deadline))).then_some(())
    }

    unsafe fn unlock(&self, (): ()) {
        // SAFETY: the caller's token is from an acquisition of this lock, and so of the one inside.
        unsafe { self.lock.unlock(()) }
    }

    fn is_locked(&self) -> bool {
        self.lock.is_locked()
    }
}
