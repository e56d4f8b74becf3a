//! The table whose updaters lock the bucket, and whose readers lock nothing.
//!
//! Source: McKenney, Hart and Walpole, "Practical Concerns for Scalable Synchronization", 2005, section 4:
//! RCU-L ([`Section`] readers) and HPBR-L ([`Reference`] readers, with the links marked as in Michael's list,
//! without which a reader could step from a removed element to one that was reclaimed).
//!
//! Updaters of a bucket exclude each other, so they read its chain as if nobody else were there: what they
//! meet cannot be removed, and so not be reclaimed.
//!
//! States of an element: free -> in a chain (A) -> removed, which its own link says to readers that protect
//! each reference (B) -> out of the chain -> retired -> free, when the domain says so.
//! Atomics: an update, those of the bucket's lock and of retiring; a lookup, none.
//! Progress: readers of sections never wait or repeat; those that protect references wait for the updater when
//! they stand on an element that is being removed.

use super::deferred::{Handle, Store, look_between_marks, marked};
use super::node::{Node, Place, Reclaimed, look, search};
use super::{Info, Shape, Table, under};
use crate::locks::backoff::Backoff;
use crate::locks::mutex::RawMutex;
use crate::locks::mutex::ttas::RawTtas;
use crate::machine::{Machine, Word};
use crate::reclaim::{Guard, Reader, Reclaim};
use core::marker::PhantomData;
use core::sync::atomic::Ordering::{Relaxed, Release};

/// How readers get from one element to the next.
///
/// # Safety
///
/// With a domain of type `D`, an element that `look` looks at has not been reclaimed.
pub unsafe trait Readers<D: Reclaim>: Send + Sync + 'static {
    /// What is said about the table with a lock in each bucket.
    const LOCKED: Info;
    /// What is said about the table without locks ([`michael`](super::michael)).
    const LOCK_FREE: Info;
    /// Whether the link of an element that is removed has to say so.
    const MARKS: bool;
    /// The value of `key`, with a lock in each bucket. `None`: an updater is about to take an element on the way out
    /// of the chain.
    ///
    /// # Safety
    ///
    /// The chain is a table's: its links lead to nodes, which are marked when they are removed if
    /// [`MARKS`](Readers::MARKS) says so, and retired only then, in a domain of type `D` that the guard covers.
    unsafe fn look(
        guard: &impl Guard<Machine = D::Machine>,
        head: &<D::Machine as Machine>::Ptr<Node<D::Machine>>,
        key: u64,
        mask: u64,
    ) -> Result<Option<Option<u64>>, Reclaimed>;
}

/// A strategy under which a section protects all that is read in it, from one link to the next.
///
/// # Safety
///
/// What the name says; hazard pointers are none.
pub unsafe trait SectionWide: Reclaim {
    /// What the table with a lock in each bucket is called.
    const LOCKED: &'static str;
    /// What the table without locks is called.
    const LOCK_FREE: &'static str;
}

/// A strategy under which each reference is protected by itself.
pub trait PerReference: Reclaim {
    /// What the table with a lock in each bucket is called.
    const LOCKED: &'static str;
    /// What the table without locks is called.
    const LOCK_FREE: &'static str;
}

const fn info(name: &'static str, summary: &'static str, source: &'static str) -> Info {
    Info { name, summary, source, concurrent: true, blocking: true }
}

const LOCKED: &str = "McKenney, Hart and Walpole 2005, section 4";
const LOCK_FREE: &str = "Michael 2002; McKenney, Hart and Walpole 2005, section 4";

/// Readers in a section that protects whatever they meet.
pub struct Section;

// SAFETY: a section protects all that was in a chain when it began.
unsafe impl<D: SectionWide> Readers<D> for Section {
    const LOCKED: Info = info(D::LOCKED, "updaters lock the bucket; readers are in a section", LOCKED);
    const LOCK_FREE: Info =
        info(D::LOCK_FREE, "Michael's lock-free lists; everybody is in a section", LOCK_FREE);
    const MARKS: bool = false;

    #[inline(always)]
    unsafe fn look(
        guard: &impl Guard<Machine = D::Machine>,
        head: &<D::Machine as Machine>::Ptr<Node<D::Machine>>,
        key: u64,
        mask: u64,
    ) -> Result<Option<Option<u64>>, Reclaimed> {
        // (A) pairs with the store in `insert`. SAFETY: `MARKS` is false; the caller says that links lead to nodes.
        unsafe { look::<D::Machine>(head, key, mask, |link| guard.protect(0, link)) }.map(Some)
    }
}

/// Readers that protect one reference after the other.
pub struct Reference;

// SAFETY: protecting a reference reads the link again. If it still leads there and carries no mark, the
// element that it is in had not been removed, so neither had the one that it leads to.
unsafe impl<D: PerReference> Readers<D> for Reference {
    const LOCKED: Info =
        info(D::LOCKED, "updaters lock the bucket; readers protect each element they look at", LOCKED);
    const LOCK_FREE: Info = info(
        D::LOCK_FREE,
        "Michael's lock-free lists; everybody protects each element they look at",
        LOCK_FREE,
    );
    const MARKS: bool = true;

    #[inline(always)]
    unsafe fn look(
        guard: &impl Guard<Machine = D::Machine>,
        head: &<D::Machine as Machine>::Ptr<Node<D::Machine>>,
        key: u64,
        mask: u64,
    ) -> Result<Option<Option<u64>>, Reclaimed> {
        // (A), (B) pair with the stores in `insert` and `remove`. SAFETY: as the caller says; `MARKS` is true.
        unsafe { look_between_marks(guard, head, key, mask, false) }
    }
}

/// The table. See the [module documentation](self).
pub struct BucketLocked<D: Reclaim, R> {
    store: Store<D, RawTtas<D::Machine>>,
    readers: PhantomData<R>,
}

impl<D: Reclaim, R: Readers<D>> BucketLocked<D, R> {
    /// Looks `key` up in any case, and waits for updaters.
    #[cold]
    #[inline(never)]
    fn look_again<'t>(&'t self, handle: &mut Handle<'t, D>, key: u64) -> Result<Option<u64>, Reclaimed> {
        let ((head, mask), mut backoff) = (self.store.head(key), Backoff::default());
        loop {
            let guard = handle.reader.enter();
            // SAFETY: nodes of this chain are retired in the store's domain, after they have left it.
            if let Some(value) = unsafe { R::look(self.store.checked(&guard), head, key, mask) }? {
                return Ok(value);
            }
            drop(guard);
            backoff.wait::<D::Machine>();
        }
    }
}

// SAFETY: elements are retired to the domain after they have left their chain, and readers are as
// `Readers` promises.
unsafe impl<D: Reclaim, R: Readers<D>> Table for BucketLocked<D, R> {
    type Machine = D::Machine;
    type Handle<'a> = Handle<'a, D>;
    const INFO: Info = R::LOCKED;

    fn new(shape: &Shape) -> Self {
        BucketLocked { store: Store::new(shape, RawTtas::new_in), readers: PhantomData }
    }

    fn join(&self, index: usize) -> Handle<'_, D> {
        self.store.join(index)
    }

    #[inline(always)]
    fn get<'t>(&'t self, handle: &mut Handle<'t, D>, key: u64) -> Result<Option<u64>, Reclaimed> {
        let (head, mask) = self.store.head(key);
        if let Some(guard) = handle.reader.try_enter()
            // SAFETY: as in `look_again`.
            && let Some(value) = unsafe { R::look(self.store.checked(&guard), head, key, mask) }?
        {
            return Ok(value);
        }
        self.look_again(handle, key)
    }

    fn insert<'t>(&'t self, handle: &mut Handle<'t, D>, key: u64, value: u64) -> Result<bool, Reclaimed> {
        let (head, mask) = self.store.head(key);
        let node = self.store.take(handle, key, value);
        under(self.store.own(key), || {
            // SAFETY: links lead to nodes of the pool; with the lock, none carries a mark.
            let place = unsafe { search::<D::Machine>(head, key, mask, Relaxed) }?;
            let Place { link, node: next, hit } = place;
            if hit {
                // SAFETY: taken above, and shown to nobody.
                unsafe { super::node::give_back(node, Relaxed) };
            } else {
                // SAFETY: as above.
                unsafe { &*node }.next.store(next, Relaxed);
                // (A) pairs with the readers' loads: they see its fields.
                link.store(node, Release);
            }
            Ok(!hit)
        })
    }

    fn remove<'t>(&'t self, handle: &mut Handle<'t, D>, key: u64) -> Result<bool, Reclaimed> {
        let (head, mask) = self.store.head(key);
        let removed = under(self.store.own(key), || {
            // SAFETY: as in `insert`.
            let Place { link, node, hit } = unsafe { search::<D::Machine>(head, key, mask, Relaxed) }?;
            if !hit {
                return Ok(None);
            }
            // SAFETY: it is in the chain, and only who has the lock removes.
            let fields = unsafe { &*node };
            let next = fields.next.load(Relaxed);
            if R::MARKS {
                // (B) before it leaves the chain: whoever stands on it goes nowhere from there.
                fields.next.store(marked(next), Release);
            }
            link.store(next, Release);
            Ok(Some(node))
        })?;
        let Some(node) = removed else { return Ok(false) };
        let mut retired = 0;
        // SAFETY: it has left the chain.
        unsafe { self.store.retire(&mut retired, node) };
        self.store.settle(handle, retired);
        Ok(true)
    }

    #[inline]
    fn quiescent<'t>(&'t self, handle: &mut Handle<'t, D>) {
        handle.reader.quiescent();
    }

    fn waiting(&mut self) -> usize {
        self.store.waiting()
    }

    fn each(&mut self, each: impl FnMut(u64, u64)) {
        self.store.each(each);
    }
}
