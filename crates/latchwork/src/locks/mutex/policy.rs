//! What a shuffling policy decides: the order of a ShflLock's waiters.
//!
//! Source: Kashyap et al., "Scalable and practical locking with shuffling", SOSP 2019, sections 4.1 and 7.
//!
//! A policy only compares two numbers that waiters have brought along. It touches no queue, so it cannot break the
//! queue's invariants, and it cannot lose or starve a waiter: at most [`PATIENCE`](Policy::PATIENCE) waiters pass any
//! one waiter. The walk that moves the waiters is in [`shuffle`](super::shuffle); more policies are in
//! [`policies`](super::policies).

use crate::machine::Machine;

/// The most ranks that a policy can have.
pub const MAX_RANKS: usize = 8;

/// The order in which waiters get a lock, as seen from the waiter that shuffles.
///
/// A waiter's key is taken when it queues, by its own thread, and does not change while it waits.
pub trait Policy: Send + Sync + 'static {
    /// How many ranks there are, at most [`MAX_RANKS`].
    const RANKS: usize = 1;
    /// How many others may pass a waiter. With one rank: how many waiters of a group get the lock in a row. `None`:
    /// as many as the lock finds best for NUMA groups.
    const PATIENCE: Option<u32> = None;
    /// Whether the head of the queue looks at all waiters before it takes the lock. Without this, the head may take a
    /// lock that has become free during a walk, and leave a waiter where it is. (In the non-blocking ShflLock the head
    /// is then the only waiter that shuffles.)
    const THOROUGH: bool = false;
    /// Whether newcomers may *steal* for a bounded time: take the lock past the whole queue. (In the non-blocking ShflLock only
    /// attempts, `try_lock`, steal.)
    const STEALING: bool = true;

    // How the blocking ShflLocks wait. `latchwork-lab ablate shfl` shows what each item is worth. A policy of one's own leaves
    // them as they are.

    /// Nanoseconds between the first looks of a waiter, and between those at a lock that looks free: about one transfer of
    /// a cache line.
    #[doc(hidden)]
    const LOOK: u32 = 50;
    /// A waiter looks again after its wait so far, divided by this: it loses at most an eighth of its wait, and the holder few
    /// cache misses. Twice as often and half as often are as fast on average (`docs/ablation.md`).
    #[doc(hidden)]
    const PROMPTNESS: u32 = 8;
    /// Further looks that find a lock free before a waiter takes it: two threads that do nothing but lock and unlock are twice
    /// as fast with them on an AMD EPYC (Zen 5, `docs/mutexes.md`).
    #[doc(hidden)]
    const SECOND_LOOKS: u32 = 3;
    /// Nanoseconds for which a waiter spins before it sleeps: about what it costs to park and unpark it.
    #[doc(hidden)]
    const SPIN: u32 = 10_000;
    /// Microseconds (of 1024 ns) for which newcomers may steal from a head: long beside the wakeup of a thread, short beside
    /// a quantum of the scheduler (3 ms).
    #[doc(hidden)]
    const TURN: u32 = 1000;
    /// Whether a head that was robbed sleeps for a time, and is not unparked by each unlock.
    #[doc(hidden)]
    const NAPS: bool = true;
    /// Whether newcomers spin beside a head that sleeps.
    #[doc(hidden)]
    const BESIDE: bool = true;
    /// Whether a parked waiter that becomes the head sleeps on until the unlock.
    #[doc(hidden)]
    const REQUEUES: bool = true;

    /// Whether there is anything to move on this machine.
    #[inline(always)]
    fn applies<M: Machine>() -> bool {
        true
    }
    /// The key of the calling thread.
    fn key<M: Machine>() -> u32;
    /// Where a waiter with the key `waiter` belongs if a waiter with the key `shuffler` shuffles. Rank 0 stands right
    /// behind the shuffler, rank 1 behind all of rank 0, and so on. A waiter whose rank is [`RANKS`](Self::RANKS) or
    /// more stays where it is.
    fn rank<M: Machine>(shuffler: u32, waiter: u32) -> usize;
}

/// Groups waiters of one NUMA node, so that the lock and its data stay in that node's caches.
#[derive(Debug)]
pub struct NumaPolicy;

impl Policy for NumaPolicy {
    #[inline]
    fn applies<M: Machine>() -> bool {
        M::numa_nodes() > 1
    }
    #[inline]
    fn key<M: Machine>() -> u32 {
        M::numa_node()
    }
    #[inline]
    fn rank<M: Machine>(shuffler: u32, waiter: u32) -> usize {
        usize::from(shuffler != waiter)
    }
}
