//! What a table is: [`Table`].

use latchwork::machine::Machine;
use std::fmt;

/// How large a table is.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Chains, a power of two.
    pub buckets: usize,
    /// Elements that the table has room for.
    pub elements: usize,
    /// Threads that will use the table at a time.
    pub threads: usize,
    /// Removed elements that may wait to be reclaimed, for each thread. All strategies that defer reclamation have the same
    /// worst case, as in section 4 of the paper.
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
    /// Whether several threads may use the table while some of them change it.
    pub concurrent: bool,
    /// Whether waiters sleep (after a bounded spin), or spin until they have the lock; true if no thread waits.
    pub blocking: bool,
}

/// A map from numbers to numbers in chains.
///
/// # Safety
///
/// An element that a thread may still meet is not given back to the pool, unless that thread notices.
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

    /// The calling thread as one that uses the table; `index` differs from thread to thread.
    fn join(&self, index: usize) -> Self::Handle<'_>;

    /// The value of `key`. `Err`: the strategy reclaims too early.
    ///
    /// # Safety
    ///
    /// The handle is one of this table. A check of that would cost nothing under this library's domains, whose guards cover all
    /// domains of a type, and two to four instructions of each measured lookup under other libraries' domains.
    unsafe fn get<'t>(&'t self, handle: &mut Self::Handle<'t>, key: u64) -> Result<Option<u64>, Reclaimed>;

    /// Inserts `key`. `false`: it is there already.
    fn insert<'t>(&'t self, handle: &mut Self::Handle<'t>, key: u64, value: u64) -> Result<bool, Reclaimed>;

    /// Removes `key`. `false`: it is not there.
    fn remove<'t>(&'t self, handle: &mut Self::Handle<'t>, key: u64) -> Result<bool, Reclaimed>;

    /// Announces that the calling thread has no reference into the table now. To be called between two operations.
    fn quiescent<'t>(&'t self, handle: &mut Self::Handle<'t>) {
        let _ = handle;
    }

    /// Elements that are neither in the table nor free to be used again, if the table can say.
    fn waiting(&self) -> Option<usize> {
        None
    }

    /// Calls `each` with every key and value.
    fn each(&mut self, each: impl FnMut(u64, u64));
}

/// A thread has met a node in a chain that is free, or was used again: the strategy reclaims too early.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Reclaimed;

impl fmt::Display for Reclaimed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a reader met an element of another chain: it was reclaimed while a thread read it")
    }
}

impl std::error::Error for Reclaimed {}
