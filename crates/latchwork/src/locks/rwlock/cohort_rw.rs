//! NUMA-aware reader-writer lock over a cohort mutex, with preference for writers.
//!
//! # Source
//!
//! Calciu, Dice, Lev, Luchangco, Marathe and Shavit, "NUMA-aware reader-writer locks", PPoPP 2013, C-RW-WP. The mutex is
//! C-TKT-TKT of Dice, Marathe and Shavit, "Lock cohorting", PPoPP 2012.
//!
//! # Idea
//!
//! Readers announce themselves on their NUMA node, which has two counters: arrivals (*ingress*) and departures (*egress*).
//! Writers take a mutex that prefers the holder's node: one ticket lock per node, and a global one that goes from writer to
//! writer of a node up to [`BATCH`] times. A reader that finds the mutex taken departs again and waits. A writer that has the
//! mutex waits until each node has had as many departures as arrivals.
//!
//! # States
//!
//! | word | meaning | which thread changes it |
//! |---|---|---|
//! | a node's `ingress`, `egress` | readers arrived and departed | the readers on that node; a reader that turns back counts in both |
//! | a node's `next`, `serving` | the node's ticket lock | writers on that node |
//! | a node's `owned`, `passes` | the global lock comes with the node's lock; how often it has been passed on | the holder of the node's lock |
//! | the global `next`, `serving` | held if they differ | the first writer of a cohort takes it; the last one releases it |
//! | `barrier` | readers that have waited for too long: new writers wait while it is not 0 | such a reader adds one, and subtracts it when it has the lock |
//!
//! # Orderings
//!
//! | pair | one side | other side |
//! |---|---|---|
//! | (A) | a writer serves the next ticket, release | the thread that finds its ticket served, or the lock free, acquire |
//! | (B) | a reader counts its departure, release | the writer that counts departures, and then the arrivals, acquire |
//! | (E) | a reader arrives, then looks at the global lock | a writer takes the global lock, then looks at the arrivals; all sequentially consistent, so one sees the other |
//!
//! # Where it differs from the paper
//!
//! Only the first writer of a cohort looks for readers: none can enter before the last writer of the cohort has left. A writer
//! releases the node's lock before the global one. Releasing the global one is its last access, because the thread that enters
//! next may free the lock.
//!
//! # Properties
//!
//! - Size: 1664 bytes, for up to 8 nodes (further nodes share counters); none per waiter or holder.
//! - Atomic read-modify-writes per uncontended pair: read 2; write 2.
//! - Fairness: writers pass readers until one reader has looked [`PATIENCE`] times; FIFO among the writers of a node.
//! - Suspension: a waiter that is suspended blocks others.
//! - Re-entry: a reader that read-locks again while a writer waits deadlocks with that writer.
//! - Limit: 2^27 simultaneous readers of a node. Soon after that, the process ends. An attempt to write that is stopped between its steps
//!   for exactly 2^32 writers (or a multiple) would succeed beside a writer: a minute at least.
//! - Timed forms poll.

use super::{ConstNew, Index, Info, LOOK, RawDowngrade, RawRwLock, Suspension, check_difference};
use crate::machine::{Arith, Machine, Native, Offers, Word};
use core::sync::atomic::{AtomicU32, Ordering::*};

/// NUMA nodes that have counters of their own.
const NODES: usize = 8;
/// Writers of a node in a row.
pub const BATCH: u32 = 64;
/// Looks of a reader at the mutex before it raises the barrier.
pub const PATIENCE: u32 = 4096;

/// On a cache line of its own.
#[repr(align(64))]
struct Padded<T>(T);

/// A ticket lock, and what its holder knows of the global one.
struct Tickets<M: Machine> {
    next: M::U32,
    serving: M::U32,
    owned: M::U32,
    passes: M::U32,
}

struct Node<M: Machine> {
    ingress: Padded<M::U32>,
    egress: Padded<M::U32>,
    writers: Padded<Tickets<M>>,
}

/// C-RW-WP. See the [module documentation](self).
#[repr(C)]
pub struct RawCohortRw<M: Machine> {
    /// The global ticket lock; `owned` and `passes` are not used.
    global: Padded<Tickets<M>>,
    barrier: Padded<M::U32>,
    nodes: [Node<M>; NODES],
}

const _: () = assert!(size_of::<RawCohortRw<Native>>() == 1664);

impl RawCohortRw<Native> {
    /// An unlocked lock.
    pub const fn new() -> Self {
        const fn word() -> Padded<AtomicU32> {
            Padded(AtomicU32::new(0))
        }
        const fn tickets() -> Padded<Tickets<Native>> {
            Padded(Tickets {
                next: AtomicU32::new(0),
                serving: AtomicU32::new(0),
                owned: AtomicU32::new(0),
                passes: AtomicU32::new(0),
            })
        }
        RawCohortRw {
            global: tickets(),
            barrier: word(),
            nodes: [const { Node { ingress: word(), egress: word(), writers: tickets() } }; NODES],
        }
    }
}

const_new!(RawCohortRw<Native>);

impl<M: Machine> Tickets<M> {
    fn new() -> Self {
        let word = || M::U32::new(0);
        Tickets { next: word(), serving: word(), owned: word(), passes: word() }
    }

    /// Whether no thread holds it or waits for it. `serving` is loaded first, so `next` is never behind it.
    fn is_free(&self) -> bool {
        // (A) pairs with `serve_next`, for readers. (E) see `RawCohortRw::enter_read`.
        let serving = self.serving.load(Acquire);
        self.next.load(SeqCst) == serving
    }

    fn lock(&self) {
        let ticket = self.next.fetch_add(1, SeqCst); // (E), if it is the global one
        // (A) pairs with `serve_next`.
        M::spin_until(&self.serving, Acquire, |serving| serving == ticket);
    }

    fn try_lock(&self) -> bool {
        let serving = self.serving.load(Acquire); // (A)
        self.next.compare_exchange(serving, serving.wrapping_add(1), SeqCst, Relaxed).is_ok() // (E)
    }

    /// Whether a thread waits behind the caller, which holds it.
    fn is_wanted(&self) -> bool {
        self.next.load(Relaxed) != self.serving.load(Relaxed).wrapping_add(1)
    }

    fn serve_next(&self) {
        // (A) the section happens before the next one's.
        self.serving.store(self.serving.load(Relaxed).wrapping_add(1), Release);
    }
}

impl<M: Machine> Node<M> {
    /// Waits until all readers that have arrived have departed.
    fn await_readers(&self) {
        loop {
            // In this order: departures seen are then never more than arrivals seen.
            // (B) pairs with the departures.
            let egress = self.egress.0.load(Acquire);
            // (E)
            if self.ingress.0.load(SeqCst) == egress {
                return;
            }
            M::spin_until(&self.egress.0, Relaxed, |now| now != egress);
        }
    }

    fn has_readers(&self) -> bool {
        let egress = self.egress.0.load(Acquire); // (B)
        self.ingress.0.load(SeqCst) != egress // (E)
    }
}

impl<M: Machine> RawCohortRw<M> {
    fn nodes(&self) -> &[Node<M>] {
        &self.nodes[..(M::numa_nodes() as usize).clamp(1, NODES)]
    }

    fn here(&self) -> Index {
        Index(M::numa_node() % self.nodes().len() as u32)
    }

    fn node(&self, Index(index): Index) -> &Node<M> {
        &self.nodes[index as usize]
    }

    #[inline]
    fn enter_read(&self, node: &Node<M>) -> bool {
        // (E) Dekker pair: a reader arrives and then looks at the mutex, a writer takes the mutex and then
        // looks for arrivals, all sequentially consistent, so one sees the other.
        let before = node.ingress.0.fetch_add(1, SeqCst);
        if before.is_multiple_of(LOOK) {
            check_difference::<M, _>(before, &node.ingress.0, &node.egress.0, 1);
        }
        if self.global.0.is_free() {
            return true;
        }
        // (B) its arrival is seen by each thread that counts this departure.
        node.egress.0.fetch_add(1, Release);
        false
    }

    #[cold]
    fn read_slow(&self, node: &Node<M>) {
        let (mut raised, mut offers) = (false, Offers::new());
        loop {
            let mut looks = 0;
            while !self.global.0.is_free() {
                if !raised && looks >= M::patience(PATIENCE) {
                    raised = true;
                    self.barrier.0.fetch_add(1, Relaxed);
                }
                looks = u32::saturating_add(looks, 1);
                let serving = self.global.0.serving.load(Relaxed);
                M::spin_for(&self.global.0.serving, Relaxed, 64, |now| now != serving);
                offers.take::<M>(u64::MAX);
            }
            if self.enter_read(node) {
                break;
            }
        }
        if raised {
            self.barrier.0.fetch_sub(1, Relaxed);
        }
    }

    /// Releases the node's lock and the global one, which the first writer of the cohort has taken.
    fn release(&self, writers: &Tickets<M>) {
        writers.passes.store(0, Relaxed);
        writers.owned.store(0, Relaxed);
        writers.serve_next();
        self.global.0.serve_next(); // the last access
    }
}

// SAFETY: a writer holds the global lock, or has got it from the writer before it on its node. A reader enters when the global
// lock is free, or a writer waits for it (E). (A) and (B) order the sections.
unsafe impl<M: Machine> RawRwLock for RawCohortRw<M> {
    type Machine = M;
    type Read = Index;
    type Write = Index;
    type Counted = Self;
    const INFO: Info = Info {
        name: "cohort-rw",
        summary: "NUMA-aware reader-writer spinlock over a cohort mutex (C-RW-WP)",
        atomics: 2,
        waiter_bytes: 0,
        holder_bytes: 0,
        fairness: "writers first, until a reader runs out of patience; up to 64 writers of a node in a row",
        blocking: false,
        suspension: Suspension::Blocks,
        source: "Calciu et al. 2013, C-RW-WP",
    };

    fn new_in() -> Self {
        let word = || Padded(M::U32::new(0));
        let tickets = || Padded(Tickets::new());
        RawCohortRw {
            global: tickets(),
            barrier: word(),
            nodes: core::array::from_fn(|_| Node { ingress: word(), egress: word(), writers: tickets() }),
        }
    }

    #[inline]
    fn read(&self) -> Index {
        let index = self.here();
        let node = self.node(index);
        if !self.enter_read(node) {
            self.read_slow(node);
        }
        index
    }

    fn try_read(&self) -> Option<Index> {
        // An attempt that turns back may keep a waiting writer from seeing that no reader is inside: look first.
        let index = self.here();
        (self.global.0.is_free() && self.enter_read(self.node(index))).then_some(index)
    }

    #[inline]
    unsafe fn unlock_read(&self, index: Index) {
        // (B) the section happens before the section of the writer that counts this departure.
        self.node(index).egress.0.fetch_add(1, Release);
    }

    fn write(&self) -> Index {
        M::spin_until(&self.barrier.0, Relaxed, |barrier| barrier == 0);
        let index = self.here();
        let writers = &self.node(index).writers.0;
        writers.lock();
        if writers.owned.load(Relaxed) == 0 {
            self.global.0.lock();
            writers.owned.store(1, Relaxed);
            self.nodes().iter().for_each(Node::await_readers);
        }
        index
    }

    fn try_write(&self) -> Option<Index> {
        let index = self.here();
        let writers = &self.node(index).writers.0;
        if self.barrier.0.load(Relaxed) != 0 || !writers.try_lock() {
            return None;
        }
        // No thread held the node's lock, so the global one does not come with it.
        if !self.global.0.try_lock() {
            writers.serve_next();
            return None;
        }
        if self.nodes().iter().any(Node::has_readers) {
            self.release(writers);
            return None;
        }
        writers.owned.store(1, Relaxed);
        Some(index)
    }

    unsafe fn unlock_write(&self, index: Index) {
        let writers = &self.node(index).writers.0;
        let passes = writers.passes.load(Relaxed);
        if passes < BATCH && writers.is_wanted() {
            writers.passes.store(passes + 1, Relaxed);
            writers.serve_next();
        } else {
            self.release(writers);
        }
    }

    fn is_locked(&self) -> bool {
        self.is_write_locked() || self.nodes().iter().any(Node::has_readers)
    }

    fn is_write_locked(&self) -> bool {
        !self.global.0.is_free()
    }
}

// SAFETY: the caller has arrived as a reader before it releases the global lock, and the next writer to take that lock
// waits for all readers that have arrived (E).
unsafe impl<M: Machine> RawDowngrade for RawCohortRw<M> {
    unsafe fn downgrade(&self, index: Index) -> Index {
        let node = self.node(index);
        node.ingress.0.fetch_add(1, SeqCst); // (E)
        // The lock must not go to the next writer of the cohort, which does not look for readers.
        self.release(&node.writers.0);
        index
    }
}
