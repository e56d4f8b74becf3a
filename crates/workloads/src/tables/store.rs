//! What the tables with deferred reclamation share: buckets, the pool, and the domain in which removed elements are
//! retired.

use super::node::{Node, Pool};
use super::table::Shape;
use latchwork::machine::{Machine, Word};
use latchwork::map::array::Array;
use latchwork::reclaim::{GuardOf, Limit, Reader, Reclaim};
use std::ptr::null_mut;
use std::sync::atomic::Ordering::Relaxed;

/// Elements that a domain may leave to its next batch, for each thread and each list.
const SLACK: usize = 256;

#[cfg(test)]
std::thread_local! {
    /// Calls of [`Store::checked`] by the calling thread.
    pub static CHECKS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// A table's memory.
pub struct Store<D: Reclaim, B> {
    /// The first field, so that it is dropped before the pool: dropping it reclaims elements into the pool.
    pub domain: D,
    heads: Array<<D::Machine as Machine>::Ptr<Node<D::Machine>>>,
    /// What updaters of a bucket have beside its head.
    own: Array<B>,
    pool: Box<Pool<D::Machine>>,
    /// Removed elements that may wait to be reclaimed, for each thread.
    waiting: usize,
    /// The same, for all threads.
    limit: u64,
}

/// A thread that uses the table.
pub struct Handle<'a, D: Reclaim + 'a> {
    /// The thread as one that reads.
    pub(super) reader: D::Reader<'a>,
    list: usize,
    /// Elements that the thread has retired since it last looked how many wait.
    retired: usize,
}

impl<D: Reclaim, B> Store<D, B> {
    /// An empty table.
    pub fn new(shape: &Shape, own: impl Fn() -> B) -> Self {
        assert!(shape.buckets.is_power_of_two(), "the number of buckets is a power of two");
        let waiting = shape.waiting.max(1);
        let limit = (waiting * shape.threads.max(1)) as u64;
        let domain = D::new_in();
        domain.set_limit(Limit { objects: limit, bytes: u64::MAX });
        Store {
            domain,
            heads: Array::new(shape.buckets, |_| Word::new(null_mut())),
            own: Array::new(shape.buckets, |_| own()),
            // Beside the elements: what may wait, as much again that threads retire before they look, one that each thread
            // holds while it inserts, and what domains leave to the next batch.
            pool: Pool::new(shape.elements + 2 * limit as usize + shape.threads * (SLACK + 1) + 8 * SLACK),
            waiting,
            limit,
        }
    }

    /// The calling thread.
    pub fn join(&self, index: usize) -> Handle<'_, D> {
        Handle { reader: self.domain.reader(), list: index, retired: 0 }
    }

    /// The guard, if it protects what this table retires. Panics if it is that of another table's handle, and does not.
    #[inline(always)]
    pub fn checked<'g, 'r, 'd>(&self, guard: &'g GuardOf<'r, 'd, D>) -> &'g GuardOf<'r, 'd, D>
    where
        D::Reader<'d>: 'r,
    {
        #[cfg(test)]
        CHECKS.set(CHECKS.get() + 1);
        assert!(self.domain.covers(guard), "a handle of another table");
        guard
    }

    /// The chain of a key, and the mask of all.
    #[inline(always)]
    pub fn head(&self, key: u64) -> (&<D::Machine as Machine>::Ptr<Node<D::Machine>>, u64) {
        // SAFETY: there are one or more buckets, a power of two (`new`).
        (unsafe { self.heads.masked(key) }, self.heads.len() as u64 - 1)
    }

    /// What updaters of a key's bucket have beside its head. It is apart from the heads because readers do not need it:
    /// with it, the heads would take twice the cache (lookups in a large table at 0.82 of the ideal's rate, instead of
    /// 0.9).
    #[inline(always)]
    pub fn own(&self, key: u64) -> &B {
        // SAFETY: there are one or more buckets, a power of two (`new`).
        unsafe { self.own.masked(key) }
    }

    /// A free node. To be called outside of sections: it may wait until one has been reclaimed.
    pub fn take<'s>(&'s self, handle: &mut Handle<'s, D>, key: u64, value: u64) -> *mut Node<D::Machine> {
        loop {
            if let Some(node) = self.pool.take(handle.list, key, value, Relaxed) {
                return node;
            }
            handle.reader.offline(|| self.domain.barrier());
        }
    }

    /// Retires a node.
    ///
    /// # Safety
    ///
    /// As [`Reclaim::retire`]: the calling thread has just taken the node out of its chain.
    pub unsafe fn retire(&self, retired: &mut usize, node: *mut Node<D::Machine>) {
        *retired += 1;
        // SAFETY: the node has just left its chain, says the caller; the pool is dropped after the domain.
        unsafe { self.domain.retire(node) };
    }

    /// After an operation, outside of sections: if the thread has retired its share, collects, and waits while too many
    /// elements wait. Other libraries' domains do not say how many wait, and collect each time. A domain of this library's whose own
    /// batches keep it well below the limit does not collect: each time would cost a grace period for the few elements that have come
    /// in since the last batch.
    #[inline]
    pub fn settle<'s>(&'s self, handle: &mut Handle<'s, D>, retired: usize) {
        handle.retired += retired;
        if handle.retired >= self.waiting {
            handle.retired = 0;
            let waiting = self.domain.garbage().objects;
            if waiting != 0 && waiting <= self.limit {
                return;
            }
            handle.reader.offline(|| {
                self.domain.collect();
                self.domain.throttle();
            });
        }
    }

    /// Elements that wait to be reclaimed.
    pub fn waiting(&self) -> usize {
        self.domain.garbage().objects as usize
    }

    /// Calls `each` with every key and value.
    pub fn each(&mut self, mut each: impl FnMut(u64, u64)) {
        // SAFETY: the chains consist of nodes of the pool, which is dropped with the table.
        unsafe { super::node::each::<D::Machine>(self.heads.iter(), &mut each) };
    }
}
