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
//! | [`bucket_lock`] | updaters lock the bucket, readers nothing: RCU-L, HPBR-L, and the same over epochs |
//! | [`type_stable`] | updaters lock the bucket, elements are used again at once, and readers look whether any was |
//! | [`michael`] | nobody locks: RCU-NBS, HPBR-NBS, and the same over epochs |
//!
//! The one to use is another: [`RcuMap`], over any keys and values, which grows while it is read.
//!
//! The tables above are there to be compared, and check themselves: keys are numbers, the number of elements is fixed,
//! and a reader that meets an element after it was reclaimed says so ([`Reclaimed`]).

mod array;
pub mod bucket_lock;
mod deferred;
mod elements;
pub mod growing;
mod lines;
pub mod locked;
pub mod michael;
mod node;
mod rcu_map;
mod strategies;
pub mod type_stable;

pub use node::Reclaimed;
pub use rcu_map::{Iter, RcuMap, Reading, Ref};
pub use strategies::{Visitor, visit};

use crate::locks::mutex::RawMutex;
use crate::machine::Machine;

#[cfg(test)]
mod tests;

/// Runs `section` with the lock, which is released also if that panics.
#[inline(always)]
fn under<L: RawMutex, T>(lock: &L, section: impl FnOnce() -> T) -> T {
    struct Held<'a, L: RawMutex>(&'a L, L::Token);
    impl<L: RawMutex> Drop for Held<'_, L> {
        #[inline(always)]
        fn drop(&mut self) {
            // SAFETY: made with the token of an acquisition, and dropped once.
            unsafe { self.0.unlock(self.1) }
        }
    }
    let _held = Held(lock, lock.lock());
    section()
}

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
/// An element that a thread may still meet is not given back to the pool, unless the thread notices.
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
    fn get<'t>(&'t self, handle: &mut Self::Handle<'t>, key: u64) -> Result<Option<u64>, Reclaimed>;

    /// Inserts `key`, unless it is there (`false`).
    fn insert<'t>(&'t self, handle: &mut Self::Handle<'t>, key: u64, value: u64) -> Result<bool, Reclaimed>;

    /// Removes `key`, unless it is not there (`false`).
    fn remove<'t>(&'t self, handle: &mut Self::Handle<'t>, key: u64) -> Result<bool, Reclaimed>;

    /// The calling thread has no reference into the table now: said between two operations.
    fn quiescent<'t>(&'t self, handle: &mut Self::Handle<'t>) {
        let _ = handle;
    }

    /// Elements that are neither in the table nor free to be used again.
    fn waiting(&mut self) -> usize {
        0
    }

    /// Calls `each` with every key and value.
    fn each(&mut self, each: impl FnMut(u64, u64));
}
