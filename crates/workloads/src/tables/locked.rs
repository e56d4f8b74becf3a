//! The table under locks, or under no lock at all.
//!
//! Source: McKenney, Hart and Walpole, "Practical Concerns for Scalable Synchronization", 2005, sections 2.1
//! and 3.3: "globalrw" ([`Global`] over any reader-writer lock), "brlock" ([`Global`] over
//! [`RawPerCpu`](latchwork::locks::rwlock::percpu::RawPerCpu)), "spinbkt" ([`PerBucket`] over any spinlock) and "ideal"
//! ([`Ideal`]).
//!
//! Chains are sorted, here and in the other tables. An operation holds the lock of its bucket, which is that of the whole
//! table or the bucket's own, from the head of the chain to its end. A thread that removes an element has excluded all
//! others from it, so the element is free at once.
//!
//! State of an element: free -> in a chain (`insert`) -> free (`remove`). Both steps are under the lock, held for writing.
//! Orderings: the locks' own; links and keys need none.

use super::node::{Node, Place, Pool, give_back, look, search};
use super::table::{Info, Reclaimed, Shape, Table};
use crate::lock::{Exclusive, Lock, Shared};
use latchwork::locks::mutex::RawMutex;
use latchwork::locks::rwlock::RawRwLock;
use latchwork::machine::{Machine, Word};
use latchwork::map::array::Array;
use std::marker::PhantomData;
use std::ptr::null_mut;
use std::sync::atomic::Ordering::Relaxed;

/// How operations on a bucket exclude each other.
///
/// # Safety
///
/// `write` runs beside no other `write` or `read` of the same bucket, unless [`Info::concurrent`] is false.
pub unsafe trait Guard: Send + Sync + 'static {
    /// The machine it runs on.
    type Machine: Machine;
    /// What each bucket has for it.
    type Bucket: Send + Sync + 'static;
    /// What is said about the table.
    const INFO: Info;
    /// For a new table.
    fn new() -> Self;
    /// For one of its buckets.
    fn bucket() -> Self::Bucket;
    /// Runs `section`, which reads the bucket.
    fn read<T>(&self, bucket: &Self::Bucket, section: impl FnOnce() -> T) -> T;
    /// Runs `section`, which changes the bucket.
    fn write<T>(&self, bucket: &Self::Bucket, section: impl FnOnce() -> T) -> T;
}

const SOURCE: &str = "McKenney, Hart and Walpole 2005, section 3.3";

/// One reader-writer lock for all.
pub struct Global<R>(Shared<R>);

// SAFETY: a thread that holds a reader-writer lock for writing excludes all others (`RawRwLock`).
unsafe impl<R: RawRwLock> Guard for Global<R> {
    type Machine = R::Machine;
    type Bucket = ();
    const INFO: Info = Info {
        name: R::INFO.name,
        summary: "one reader-writer lock for the whole table",
        source: SOURCE,
        concurrent: true,
        blocking: R::INFO.blocking,
    };

    fn new() -> Self {
        Global(Shared::new())
    }
    fn bucket() {}
    #[inline(always)]
    fn read<T>(&self, (): &(), section: impl FnOnce() -> T) -> T {
        let _held = self.0.read();
        section()
    }
    #[inline(always)]
    fn write<T>(&self, (): &(), section: impl FnOnce() -> T) -> T {
        let _held = self.0.write();
        section()
    }
}

/// A mutex in each bucket.
pub struct PerBucket<L>(PhantomData<L>);

// SAFETY: the holder of a mutex excludes all others (`RawMutex`), and the mutex is that of the bucket.
unsafe impl<L: RawMutex> Guard for PerBucket<L> {
    type Machine = L::Machine;
    type Bucket = Exclusive<L>;
    const INFO: Info = Info {
        name: L::INFO.name,
        summary: "a mutex in each bucket",
        source: SOURCE,
        concurrent: true,
        blocking: L::INFO.blocking,
    };

    fn new() -> Self {
        PerBucket(PhantomData)
    }
    fn bucket() -> Exclusive<L> {
        Exclusive::new()
    }
    #[inline(always)]
    fn read<T>(&self, bucket: &Exclusive<L>, section: impl FnOnce() -> T) -> T {
        self.write(bucket, section)
    }
    #[inline(always)]
    fn write<T>(&self, bucket: &Exclusive<L>, section: impl FnOnce() -> T) -> T {
        let _held = bucket.write();
        section()
    }
}

/// Operations do not exclude each other: what the other tables are measured against. The table is right as long as no
/// thread changes it, or one thread has it for itself.
pub struct Ideal<M>(PhantomData<M>);

// SAFETY: `INFO.concurrent` is false. If several threads update the table all the same, chains are wrong and may be rings,
// but nothing is undefined: elements consist of words, and live as long as the table.
unsafe impl<M: Machine> Guard for Ideal<M> {
    type Machine = M;
    type Bucket = ();
    const INFO: Info = Info {
        name: "ideal",
        summary: "no synchronization: what the others are measured against",
        source: SOURCE,
        concurrent: false,
        blocking: true,
    };

    fn new() -> Self {
        Ideal(PhantomData)
    }
    fn bucket() {}
    #[inline(always)]
    fn read<T>(&self, (): &(), section: impl FnOnce() -> T) -> T {
        section()
    }
    #[inline(always)]
    fn write<T>(&self, (): &(), section: impl FnOnce() -> T) -> T {
        section()
    }
}

struct Bucket<G: Guard> {
    head: <G::Machine as Machine>::Ptr<Node<G::Machine>>,
    guard: G::Bucket,
}

/// The table. See the [module documentation](self).
pub struct Locked<G: Guard> {
    buckets: Array<Bucket<G>>,
    guard: G,
    pool: Box<Pool<G::Machine>>,
}

impl<G: Guard> Locked<G> {
    #[inline(always)]
    fn bucket(&self, key: u64) -> (&Bucket<G>, u64) {
        // SAFETY: there are one or more buckets, a power of two (`new`).
        (unsafe { self.buckets.masked(key) }, self.buckets.len() as u64 - 1)
    }
}

// SAFETY: elements are given back under the guard, held for writing.
unsafe impl<G: Guard> Table for Locked<G> {
    type Machine = G::Machine;
    /// The list of free elements that the thread uses.
    type Handle<'a> = usize;
    const INFO: Info = G::INFO;

    fn new(shape: &Shape) -> Self {
        assert!(shape.buckets.is_power_of_two(), "the number of buckets is a power of two");
        let bucket = |_| Bucket { head: Word::new(null_mut()), guard: G::bucket() };
        Locked {
            buckets: Array::new(shape.buckets, bucket),
            guard: G::new(),
            pool: Pool::new(shape.elements.max(1)),
        }
    }

    fn join(&self, index: usize) -> usize {
        index
    }

    #[inline(always)]
    unsafe fn get(&self, _: &mut usize, key: u64) -> Result<Option<u64>, Reclaimed> {
        let (bucket, mask) = self.bucket(key);
        // SAFETY: links lead to nodes of the pool, and are never marked.
        let look =
            || unsafe { look::<G::Machine>(bucket.head.load(Relaxed), key, mask, |link| link.load(Relaxed)) };
        self.guard.read(&bucket.guard, look)
    }

    fn insert(&self, list: &mut usize, key: u64, value: u64) -> Result<bool, Reclaimed> {
        let (bucket, mask) = self.bucket(key);
        self.guard.write(&bucket.guard, || {
            // SAFETY: links lead to nodes of the pool, and are never marked.
            let place = unsafe { search::<G::Machine>(&bucket.head, bucket.head.load(Relaxed), key, mask) }?;
            let Place { link, node: next, hit } = place;
            if hit {
                return Ok(false);
            }
            let node =
                self.pool.take(*list, key, value, Relaxed).expect("no more elements than the shape says");
            // SAFETY: `take` has given the node to this thread alone; the pool keeps it valid.
            unsafe { &*node }.next.store(next, Relaxed);
            link.store(node, Relaxed);
            Ok(true)
        })
    }

    fn remove(&self, _: &mut usize, key: u64) -> Result<bool, Reclaimed> {
        let (bucket, mask) = self.bucket(key);
        self.guard.write(&bucket.guard, || {
            // SAFETY: links lead to nodes of the pool, and are never marked.
            let Place { link, node, hit } =
                unsafe { search::<G::Machine>(&bucket.head, bucket.head.load(Relaxed), key, mask) }?;
            if hit {
                // SAFETY: the node is in the chain, and no other thread is there.
                link.store(unsafe { &*node }.next.load(Relaxed), Relaxed);
                // SAFETY: the node came from this table's pool, and has just left the chain.
                unsafe { give_back(node, Relaxed) };
            }
            Ok(hit)
        })
    }

    /// A removed element is free at once.
    fn waiting(&self) -> Option<usize> {
        Some(0)
    }

    fn each(&mut self, mut each: impl FnMut(u64, u64)) {
        // SAFETY: links lead to nodes of the pool.
        unsafe { super::node::each::<G::Machine>(self.buckets.iter().map(|bucket| &bucket.head), &mut each) };
    }
}
