//! Hash tables: the one that McKenney, Hart and Walpole measured, under each way to synchronize it.
//!
//! A dense array of pointers, each to the chain of its bucket (McKenney, Hart and Walpole, "Practical
//! Concerns for Scalable Synchronization", 2005, section 3.3). What differs is who may be where at the same
//! time, and when the memory of an element that was removed is used again; each way is a [`Table`], one file
//! per family:
//!
//! | file | tables |
//! |---|---|
//! | [`locked`] | one reader-writer lock (any of ours; `percpu` is the brlock), one mutex per bucket, none at all ("ideal") |
//!
//! They are there to be compared, and check themselves: keys are numbers, the number of elements is fixed,
//! and a reader that meets an element after it was reclaimed says so ([`Reclaimed`]).

mod array;
pub mod locked;
pub mod node;

pub use node::Reclaimed;

use crate::machine::Machine;
use crate::mutex::RawMutex;
use crate::registry;
use crate::rwlock::RawRwLock;

#[cfg(test)]
mod tests;

/// How large a table is.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Chains, a power of two.
    pub buckets: usize,
    /// Elements that can be in it.
    pub elements: usize,
    /// Threads that will use it at a time.
    pub threads: usize,
    /// Removed elements that may wait to be reclaimed, for each thread. What is asked of the strategies that
    /// defer it is the same worst case for all, as in section 4 of the paper.
    pub waiting: usize,
}

/// How tables of one kind synchronize.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Info {
    /// The name that a user types.
    pub name: &'static str,
    /// One line: what it is.
    pub summary: &'static str,
    /// Paper and section.
    pub source: &'static str,
    /// Whether several threads may use it when some of them change it.
    pub concurrent: bool,
    /// Whether waiters sleep (after a bounded spin) or spin until they have it; true where nobody waits.
    pub blocking: bool,
}

/// A map from numbers to numbers in chains.
///
/// # Safety
///
/// An element that a thread may still meet is not given back to the pool.
pub unsafe trait Table: Send + Sync + Sized + 'static {
    /// The machine it runs on.
    type Machine: Machine;
    /// What a thread needs to use it.
    type Handle<'a>
    where
        Self: 'a;
    /// Its description.
    const INFO: Info;

    /// An empty table. Panics unless `shape.buckets` is a power of two.
    fn new(shape: &Shape) -> Self;

    /// The calling thread is going to use the table; `index` differs from thread to thread.
    fn join(&self, index: usize) -> Self::Handle<'_>;

    /// The value of `key`. `Err`: the strategy is broken.
    fn get(&self, handle: &mut Self::Handle<'_>, key: u64) -> Result<Option<u64>, Reclaimed>;

    /// Inserts `key`, unless it is there (`false`).
    fn insert(&self, handle: &mut Self::Handle<'_>, key: u64, value: u64) -> Result<bool, Reclaimed>;

    /// Removes `key`, unless it is not there (`false`).
    fn remove(&self, handle: &mut Self::Handle<'_>, key: u64) -> Result<bool, Reclaimed>;

    /// The calling thread has no reference into the table now: said between two operations.
    fn quiescent(&self, handle: &mut Self::Handle<'_>) {
        let _ = handle;
    }

    /// Elements that are neither in the table nor free to be used again.
    fn waiting(&mut self) -> usize {
        0
    }

    /// Calls `each` with every key and value.
    fn each(&mut self, each: impl FnMut(u64, u64));
}

/// Called with each kind of table.
pub trait Visitor<M: Machine> {
    /// One of them.
    fn table<T: Table<Machine = M>>(&mut self);
}

/// Shows every kind of table to `visitor`. Those under a lock are called as the lock is: a reader-writer
/// lock is one for the whole table, a mutex one of many, one in each bucket.
pub fn visit<M: Machine>(visitor: &mut impl Visitor<M>) {
    struct Locks<'a, V>(&'a mut V);
    impl<M: Machine, V: Visitor<M>> registry::Visitor<M> for Locks<'_, V> {
        fn mutex<L: RawMutex<Machine = M>>(&mut self) {
            self.0.table::<locked::Locked<locked::PerBucket<L>>>();
        }
        fn rwlock<R: RawRwLock<Machine = M>>(&mut self) {
            self.0.table::<locked::Locked<locked::Global<R>>>();
        }
    }
    visitor.table::<locked::Locked<locked::Ideal<M>>>();
    registry::visit(&mut Locks(visitor));
}
