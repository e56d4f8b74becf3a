//! What a table is: [`Table`].

use latchwork::machine::Machine;
use std::fmt;

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

/// A node that is free, or was reused, has been met in a chain: the strategy reclaims too early.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Reclaimed;

impl fmt::Display for Reclaimed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a reader met an element of another chain: it was reclaimed while somebody read it")
    }
}

impl std::error::Error for Reclaimed {}
