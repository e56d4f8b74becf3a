//! The table in which updaters lock the bucket, and readers lock nothing.
//!
//! Source: McKenney, Hart and Walpole, "Practical Concerns for Scalable Synchronization", 2005, section 4:
//! RCU-L (readers in a [`Section`](super::readers::Section)) and HPBR-L (readers that protect each
//! [`Reference`](super::readers::Reference); links are marked as in Michael's list).
//!
//! Updaters of a bucket exclude each other; [`lock_place`](super::lock_place) says where their lock lies. So no other thread
//! removes what an updater meets in the chain, and the updater reads the chain without protecting anything.
//!
//! State of an element: free -> in a chain (A) -> removed (B): for readers that protect references, its own link is
//! marked -> out of the chain -> retired -> free, when the domain reclaims it.
//!
//! What pairs with what: (A) the store that inserts an element (release) and the loads of readers: they see the element's
//! fields. (B) the store of the mark (release) and the loads of readers: a reader that does not see the mark has
//! protected the element behind in time.
//!
//! Atomics: those of the bucket's lock and of retiring for an update; none for a lookup.
//! Progress: readers in sections never wait or repeat. Readers that protect references wait for the updater if they
//! stand on an element that is being removed.

use super::lock_place::{BucketLock, wait};
use super::node::{Place, give_back, marked, search};
use super::readers::Readers;
use super::store::{Handle, Store};
use super::table::{Info, Reclaimed, Shape, Table};
use latchwork::machine::Word;
use latchwork::reclaim::{Reader, Reclaim};
use std::marker::PhantomData;
use std::sync::atomic::Ordering::{Relaxed, Release};

/// The table. See the [module documentation](self).
pub struct BucketLocked<D: Reclaim, R: Readers<D>> {
    store: Store<D, R::Lock>,
    readers: PhantomData<R>,
}

impl<D: Reclaim, R: Readers<D>> BucketLocked<D, R> {
    /// Looks `key` up where a section takes a call to begin, or a lookup has met an element that an updater is removing: then
    /// waits for the updater.
    ///
    /// # Safety
    ///
    /// As [`Table::get`].
    #[cold]
    #[inline(never)]
    unsafe fn look_again<'t>(
        &'t self,
        handle: &mut Handle<'t, D>,
        key: u64,
    ) -> Result<Option<u64>, Reclaimed> {
        let ((head, mask), mut looks) = (self.store.head(key), 0);
        loop {
            let guard = handle.reader.enter();
            // SAFETY: nodes of this chain are retired in the store's domain, after they have left the chain; before that they are
            // marked, if `R::MARKS`. The guard covers the domain: the handle is one of this table, as the caller promises.
            if let Some(value) = unsafe { R::look(&guard, head, key, mask) }? {
                return Ok(value);
            }
            drop(guard);
            wait::<D::Machine>(looks);
            looks += 1;
        }
    }
}

// SAFETY: elements are retired in the domain after they have left their chain, and readers protect what they look at, as
// `Readers` promises.
unsafe impl<D: Reclaim, R: Readers<D>> Table for BucketLocked<D, R> {
    type Machine = D::Machine;
    type Handle<'a> = Handle<'a, D>;
    const INFO: Info = R::LOCKED;

    fn new(shape: &Shape) -> Self {
        BucketLocked { store: Store::new(shape, R::Lock::new), readers: PhantomData }
    }

    fn join(&self, index: usize) -> Handle<'_, D> {
        self.store.join(index)
    }

    #[inline(always)]
    unsafe fn get<'t>(&'t self, handle: &mut Handle<'t, D>, key: u64) -> Result<Option<u64>, Reclaimed> {
        let (head, mask) = self.store.head(key);
        if let Some(guard) = handle.reader.try_enter()
            // SAFETY: nodes of this chain are retired in the store's domain, after they have left the chain; before that they are
            // marked, if `R::MARKS`. The guard covers the domain: the handle is one of this table, as the caller promises.
            && let Some(value) = unsafe { R::look(&guard, head, key, mask) }?
        {
            return Ok(value);
        }
        // SAFETY: the caller promises what `look_again` asks.
        unsafe { self.look_again(handle, key) }
    }

    fn insert<'t>(&'t self, handle: &mut Handle<'t, D>, key: u64, value: u64) -> Result<bool, Reclaimed> {
        let (head, mask) = self.store.head(key);
        let node = self.store.take(handle, key, value);
        self.store.own(key).with(head, |chain| {
            // SAFETY: links lead to nodes of the pool; with the lock, none carries a mark.
            let place = unsafe { search::<D::Machine>(head, chain.first, key, mask) }?;
            let Place { link, node: next, hit } = place;
            if hit {
                // SAFETY: `take` has given the node to this thread alone, and no link leads to it.
                unsafe { give_back(node, Relaxed) };
            } else {
                // SAFETY: `take` has given the node to this thread alone; the pool keeps it valid.
                unsafe { &*node }.next.store(next, Relaxed);
                // (A) pairs with the readers' loads: they see its fields.
                chain.set(link, node);
            }
            Ok(!hit)
        })
    }

    fn remove<'t>(&'t self, handle: &mut Handle<'t, D>, key: u64) -> Result<bool, Reclaimed> {
        let (head, mask) = self.store.head(key);
        let removed = self.store.own(key).with(head, |chain| {
            // SAFETY: links lead to nodes of the pool; with the lock, none carries a mark.
            let Place { link, node, hit } = unsafe { search::<D::Machine>(head, chain.first, key, mask) }?;
            if !hit {
                return Ok(None);
            }
            // SAFETY: the node is in the chain, and only the holder of the bucket's lock removes nodes from it.
            let fields = unsafe { &*node };
            let next = fields.next.load(Relaxed);
            if R::MARKS {
                // (B) before the node leaves the chain: a reader that stands on it follows its link no further.
                fields.next.store(marked(next), Release);
            }
            chain.set(link, next);
            Ok(Some(node))
        })?;
        let Some(node) = removed else { return Ok(false) };
        let mut retired = 0;
        // SAFETY: this thread has just taken it out of the chain.
        unsafe { self.store.retire(&mut retired, node) };
        self.store.settle(handle, retired);
        Ok(true)
    }

    #[inline]
    fn quiescent<'t>(&'t self, handle: &mut Handle<'t, D>) {
        handle.reader.quiescent();
    }

    fn waiting(&self) -> Option<usize> {
        R::COUNTS.then(|| self.store.waiting())
    }

    fn each(&mut self, each: impl FnMut(u64, u64)) {
        self.store.each(each);
    }
}
