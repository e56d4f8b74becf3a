//! NUMA-aware reader-writer lock over a cohort mutex, with preference for writers.
//!
//! Source: Calciu, Dice, Lev, Luchangco, Marathe and Shavit, "NUMA-aware reader-writer locks", PPoPP 2013,
//! C-RW-WP; the mutex is C-TKT-TKT of Dice, Marathe and Shavit, "Lock cohorting", PPoPP 2012.
//!
//! Readers announce themselves on their NUMA node: each has two counters, of arrivals (*ingress*) and of
//! departures (*egress*). Writers take a mutex that prefers the holder's node: one ticket lock per node,
//! and a global one that goes from writer to writer of a node for up to [`BATCH`] times. A reader that finds
//! the mutex taken departs again and waits; a writer that has it waits until every node has had as many
//! departures as arrivals.
//!
//! | word | who writes it |
//! |---|---|
//! | a node's `ingress`, `egress` | its readers; one that turns back counts in both |
//! | a node's `next`, `serving`, `owned`, `passes` | its writers: a ticket lock; whether the global one comes with it, and how often it has |
//! | `next`, `serving`: held if they differ | the first writer of a cohort; the last one |
//! | `barrier` | readers that have waited for too long: newly come writers wait while it is not 0 |
//!
//! Where it differs from the paper: only the first writer of a cohort looks for readers, as none can enter
//! before the last has left. The node's lock is released before the global one, whose release is the
//! last access: whoever enters next may free the lock.
//!
//! Size: 1664 bytes, for up to 8 nodes (of more, some share); none per waiter or holder. Atomics per
//! uncontended pair: read 2; write 2.
//! Suspension: a waiter that is suspended blocks others.
//! Fairness: writers pass readers until one has looked [`PATIENCE`] times; FIFO among the writers of a node.
//! Re-entry: a reader that read-locks again while a writer waits deadlocks with that writer.
//! Timed forms: they poll.

use super::{ConstNew, Index, Info, RawDowngrade, RawRwLock, Suspension};
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

impl Default for RawCohortRw<Native> {
    fn default() -> Self {
        Self::new()
    }
}

impl ConstNew for RawCohortRw<Native> {
    #[allow(clippy::declare_interior_mutable_const)]
    const NEW: Self = Self::new();
}

impl<M: Machine> Tickets<M> {
    fn new() -> Self {
        let word = || M::U32::new(0);
        Tickets { next: word(), serving: word(), owned: word(), passes: word() }
    }

    /// Whether nobody has it or waits for it. The order of the loads: `next` is never behind.
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

    /// Whether somebody waits behind the caller, who holds it.
    fn is_wanted(&self) -> bool {
        self.next.load(Relaxed) != self.serving.load(Relaxed).wrapping_add(1)
    }

    fn serve_next(&self) {
        // (A) the section happens before the next one's.
        self.serving.store(self.serving.load(Relaxed).wrapping_add(1), Release);
    }
}

impl<M: Machine> Node<M> {
    /// Waits until all who have arrived have departed.
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
        node.ingress.0.fetch_add(1, SeqCst);
        if self.global.0.is_free() {
            return true;
        }
        node.egress.0.fetch_add(1, Relaxed);
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
                looks += 1;
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

    /// Releases what the first writer of a cohort has taken.
    fn release(&self, writers: &Tickets<M>) {
        writers.passes.store(0, Relaxed);
        writers.owned.store(0, Relaxed);
        writers.serve_next();
        self.global.0.serve_next(); // the last access
    }
}

// SAFETY: writers hold the global lock, which one of them hands to the next of its node; readers enter when
// it is free, or are waited for (E). (A) and (B) order the sections.
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
        let index = self.here();
        self.enter_read(self.node(index)).then_some(index)
    }

    #[inline]
    unsafe fn unlock_read(&self, index: Index) {
        // (B) the section happens before the writer that finds us gone.
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
        // Nobody held the node's lock, so the global one does not come with it.
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
        // Not to the next writer of the cohort: that does not look for readers.
        self.release(&node.writers.0);
        index
    }
}
