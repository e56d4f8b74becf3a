//! The table over type-stable memory: removed elements are used again at once, and readers find out whether any was.
//!
//! Source: Greenwald and Cheriton, "The Synergy Between Non-Blocking Synchronization and Operating System Structure",
//! OSDI 1996; McKenney, Hart and Walpole, "Practical Concerns for Scalable Synchronization", 2005, section 2.3, which
//! discusses it as what deferred reclamation improves on. Linux's SLAB_TYPESAFE_BY_RCU is the same idea, with a grace
//! period before the memory becomes that of another type.
//!
//! An element stays an element as long as the table is there. A reader may stand on an element that was removed, and that
//! is in another chain by now: then it reads what it did not look for, but always an element. Each bucket counts its
//! removals. A reader notes the count before it looks at the chain, and looks again if the count has changed. If it has
//! not, nothing that the reader met was removed meanwhile, so nothing was used again.
//!
//! State of an element: free -> in a chain -> out of the chain -> counted (A) -> free -> in another chain (B).
//!
//! What pairs with what: (A) the store of the count (release) and the load before a lookup (acquire): the lookup does not
//! meet what was removed before. (B) the stores into an element that is used again (release) and a lookup's loads
//! (acquire): a lookup that sees one of them sees the new count.
//!
//! Atomics: those of the bucket's lock for an update; none for a lookup. Nothing waits to be reclaimed.
//! Progress: each removal from its bucket may have a lookup repeat, so there is no bound.

use super::node::{Node, Place, Pool, give_back, search};
use super::table::{Info, Reclaimed, Shape, Table};
use crate::lock::{Exclusive, Lock};
use latchwork::locks::mutex::ttas::RawTtas;
use latchwork::machine::{Machine, Word};
use latchwork::map::array::Array;
use std::ptr::null_mut;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

struct Bucket<M: Machine> {
    head: M::Ptr<Node<M>>,
    /// How many elements have been removed. (A lookup would miss a change only after 4 billion removals meanwhile.)
    removals: M::U32,
    lock: Exclusive<RawTtas<M>>,
}

/// The table. See the [module documentation](self).
pub struct TypeStable<M: Machine> {
    buckets: Array<Bucket<M>>,
    pool: Box<Pool<M>>,
}

impl<M: Machine> TypeStable<M> {
    #[inline(always)]
    fn bucket(&self, key: u64) -> (&Bucket<M>, u64) {
        // SAFETY: there are one or more buckets, a power of two (`new`).
        (unsafe { self.buckets.masked(key) }, self.buckets.len() as u64 - 1)
    }

    /// The value of `key`, if there is one. `None`: an element was removed meanwhile.
    #[inline(always)]
    fn try_look(bucket: &Bucket<M>, key: u64, mask: u64) -> Option<Option<u64>> {
        // (A) Elements whose removal is counted here left the chain before this load.
        let before = bucket.removals.load(Acquire);
        let mut link = &bucket.head;
        let found = loop {
            // (B) A removal is counted before the element is used again: a lookup that sees the new use, here or below,
            // sees the new count.
            // SAFETY: a link is null or leads to a node of the pool, which is freed with the table.
            let Some(node) = (unsafe { link.load(Acquire).as_ref() }) else { break None };
            let at = node.key.load(Acquire);
            if at == key {
                break Some(node.value.load(Acquire));
            }
            // Beyond the key, or in another chain. (There are no rings: the link of an element that is out of its chain
            // leads to one that was in the chain when the link was written.)
            if at > key || (at ^ key) & mask != 0 {
                break None;
            }
            link = &node.next;
        };
        (bucket.removals.load(Relaxed) == before).then_some(found)
    }

    #[cold]
    #[inline(never)]
    fn look_again(&self, key: u64) -> Option<u64> {
        let (bucket, mask) = self.bucket(key);
        loop {
            if let Some(found) = Self::try_look(bucket, key, mask) {
                return found;
            }
        }
    }
}

// SAFETY: elements are given back while readers may still meet them, and the readers notice (`try_look`).
unsafe impl<M: Machine> Table for TypeStable<M> {
    type Machine = M;
    /// The list of free elements that the thread uses.
    type Handle<'a> = usize;
    const INFO: Info = Info {
        name: "type-stable",
        summary: "updaters lock the bucket; elements are used again at once, and readers find out whether any was",
        source: "McKenney, Hart and Walpole 2005, section 2.3; Greenwald and Cheriton 1996",
        concurrent: true,
        blocking: true,
    };

    fn new(shape: &Shape) -> Self {
        assert!(shape.buckets.is_power_of_two(), "the number of buckets is a power of two");
        let bucket =
            |_| Bucket { head: Word::new(null_mut()), removals: Word::new(0), lock: Exclusive::new() };
        // Each thread holds one more while it inserts.
        let pool = Pool::new(shape.elements + shape.threads.max(1));
        TypeStable { buckets: Array::new(shape.buckets, bucket), pool }
    }

    fn join(&self, index: usize) -> usize {
        index
    }

    #[inline(always)]
    unsafe fn get(&self, _: &mut usize, key: u64) -> Result<Option<u64>, Reclaimed> {
        let (bucket, mask) = self.bucket(key);
        Ok(match Self::try_look(bucket, key, mask) {
            Some(found) => found,
            None => self.look_again(key),
        })
    }

    fn insert(&self, list: &mut usize, key: u64, value: u64) -> Result<bool, Reclaimed> {
        let (bucket, mask) = self.bucket(key);
        // (B) readers may still stand on this element.
        let node = self.pool.take(*list, key, value, Release).expect("no more elements than the shape says");
        let _held = bucket.lock.write();
        // SAFETY: links lead to nodes of the pool, and are never marked.
        let place = unsafe { search::<M>(&bucket.head, bucket.head.load(Relaxed), key, mask) }?;
        let Place { link, node: next, hit } = place;
        if hit {
            // SAFETY: `take` has given the node to this thread alone, and no link leads to it.
            unsafe { give_back(node, Release) };
        } else {
            // (B), as the other stores into an element that is used again.
            // SAFETY: `take` has given the node to this thread alone; the pool keeps it valid.
            unsafe { &*node }.next.store(next, Release);
            // Readers see its fields.
            link.store(node, Release);
        }
        Ok(!hit)
    }

    fn remove(&self, _: &mut usize, key: u64) -> Result<bool, Reclaimed> {
        let (bucket, mask) = self.bucket(key);
        let _held = bucket.lock.write();
        // SAFETY: links lead to nodes of the pool, and are never marked.
        let Place { link, node, hit } =
            unsafe { search::<M>(&bucket.head, bucket.head.load(Relaxed), key, mask) }?;
        if hit {
            // SAFETY: the node is in the chain, and only the holder of the bucket's lock removes nodes from it.
            link.store(unsafe { &*node }.next.load(Relaxed), Release);
            // (A) pairs with the readers' loads of the count.
            bucket.removals.store(bucket.removals.load(Relaxed).wrapping_add(1), Release);
            // SAFETY: the node came from this pool, and has just left the chain; readers see the new count.
            unsafe { give_back(node, Release) };
        }
        Ok(hit)
    }

    /// A removed element is free at once.
    fn waiting(&self) -> Option<usize> {
        Some(0)
    }

    fn each(&mut self, mut each: impl FnMut(u64, u64)) {
        // SAFETY: links lead to nodes of the pool.
        unsafe { super::node::each::<M>(self.buckets.iter().map(|bucket| &bucket.head), &mut each) };
    }
}
