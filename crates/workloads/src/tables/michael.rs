//! The table without locks: Michael's lists.
//!
//! Source: Michael, "High Performance Dynamic Lock-Free Hash Tables and List-Based Sets", SPAA 2002, and
//! "Hazard Pointers", IEEE TPDS 2004, figure 9; as HPBR-NBS, over RCU as RCU-NBS, in McKenney, Hart and
//! Walpole, "Practical Concerns for Scalable Synchronization", 2005, section 4. Epochs: Fraser, "Practical
//! Lock-Freedom", 2003.
//!
//! Each chain is a sorted list. To remove an element, a thread marks the element's own link, which no thread changes from
//! then on (B). Then the element is taken out of the chain (C), by the thread that marked it or by the first thread that
//! meets it there. The thread that takes it out retires it. All threads help, readers too: that is the price of having no
//! locks.
//!
//! What differs from the figure:
//!
//! - a lookup that meets no marked element only reads, and protects one element less;
//! - a search does not read the previous link again after it has protected an element's own link. If an element's link is
//!   not marked, the element has not been removed. So the element is in the chain, and with it the one behind it,
//!   whatever became of the one before. If the previous link is stale, the exchange fails.
//!
//! State of an element: free -> in a chain (`insert`) -> marked (`remove`) -> out of the chain (`remove`, `find`) ->
//! retired -> free.
//!
//! What pairs with what: (A) the exchange that inserts an element (release) and the loads of searches: they see the
//! element's fields. (B) the exchange that marks a link and the loads that find the mark. (C) the exchange that takes an
//! element out (release) and the loads of searches: they see the fields of the element behind it.
//!
//! Atomics: an insertion 1, a removal 2, and those of retiring; a lookup none. Fences, where they are instructions: one
//! per update, that of the exchange which changes the chain.
//! Progress: lock-free.

use super::node::{Node, Step, give_back, is_marked, marked, step, unmarked};
use super::readers::{Readers, look_between_marks};
use super::store::{Handle, Store};
use super::table::{Info, Reclaimed, Shape, Table};
use latchwork::machine::{Machine, Word};
use latchwork::reclaim::{Guard, Reader, Reclaim};
use std::marker::PhantomData;
use std::sync::atomic::Ordering::{Relaxed, Release};

/// The table. See the [module documentation](self).
pub struct Michael<D: Reclaim, R> {
    store: Store<D, ()>,
    readers: PhantomData<R>,
}

/// Where a search ended. The guard protects `node`, and the node that `link` is in.
struct Found<'a, M: Machine> {
    link: &'a M::Ptr<Node<M>>,
    node: *mut Node<M>,
    /// The node behind it, unmarked.
    next: *mut Node<M>,
    hit: bool,
}

impl<D: Reclaim, R: Readers<D>> Michael<D, R> {
    /// Looks `key` up where a lookup has met a marked element: takes such elements out of the chain.
    #[cold]
    #[inline(never)]
    fn look_and_help<'t>(&'t self, handle: &mut Handle<'t, D>, key: u64) -> Result<Option<u64>, Reclaimed> {
        let (guard, mut retired) = (handle.reader.enter(), 0);
        let found = self.find(self.store.checked(&guard), key, &mut retired)?;
        // SAFETY: the guard protects it.
        let value = found.hit.then(|| unsafe { &*found.node }.value.load(Relaxed));
        drop(guard);
        self.store.settle(handle, retired);
        Ok(value)
    }

    /// Finds `key`, or where it would be. Takes marked elements on the way out of the chain, retires and counts them.
    #[inline(always)]
    fn find<'a>(
        &'a self,
        guard: &impl Guard<Machine = D::Machine>,
        key: u64,
        retired: &mut usize,
    ) -> Result<Found<'a, D::Machine>, Reclaimed> {
        let (head, mask) = self.store.head(key);
        'again: loop {
            let mut link = head;
            // The slots that protect the element that `link` is in, the element at hand, and the one behind it.
            let mut slots = [0, 1, 2];
            let mut node = guard.protect(slots[1], link);
            loop {
                // (A) pairs with `insert`. SAFETY: the guard protects it, and it was in the chain when it was protected.
                let Some(fields) = (unsafe { node.as_ref() }) else {
                    return Ok(Found { link, node, next: node, hit: false });
                };
                // (B) pairs with `remove`.
                let next = guard.protect(slots[2], &fields.next);
                if is_marked(next) {
                    // (C) If the previous link is as it was, the node is in the chain. So is the next one, which no
                    // thread can take out before this one: it was protected in time. Release: a thread that follows
                    // the link sees the next one's fields, as this thread does.
                    if link.compare_exchange(node, unmarked(next), Release, Relaxed).is_err() {
                        continue 'again;
                    }
                    // SAFETY: this thread has taken it out of the chain.
                    unsafe { self.store.retire(retired, node) };
                    slots.swap(1, 2);
                    node = unmarked(next);
                    continue;
                }
                if let Step::End(hit) = step(fields.key.load(Relaxed), key, mask)? {
                    return Ok(Found { link, node, next, hit });
                }
                slots.rotate_left(1);
                (link, node) = (&fields.next, next);
            }
        }
    }
}

// SAFETY: the thread that takes an element out of the chain retires it; what a search looks at is protected.
unsafe impl<D: Reclaim, R: Readers<D>> Table for Michael<D, R> {
    type Machine = D::Machine;
    type Handle<'a> = Handle<'a, D>;
    const INFO: Info = R::LOCK_FREE;

    fn new(shape: &Shape) -> Self {
        Michael { store: Store::new(shape, || ()), readers: PhantomData }
    }

    fn join(&self, index: usize) -> Handle<'_, D> {
        self.store.join(index)
    }

    #[inline(always)]
    unsafe fn get<'t>(&'t self, handle: &mut Handle<'t, D>, key: u64) -> Result<Option<u64>, Reclaimed> {
        let (head, mask) = self.store.head(key);
        // (A) pairs with `insert`, (B) with `remove`.
        if let Some(guard) = handle.reader.try_enter()
            // SAFETY: nodes of this chain are marked, and then retired in the store's domain. The guard covers the domain: the
            // handle is one of this table, as the caller promises.
            && let Some(value) = unsafe { look_between_marks(&guard, head, key, mask, true) }?
        {
            return Ok(value);
        }
        self.look_and_help(handle, key)
    }

    fn insert<'t>(&'t self, handle: &mut Handle<'t, D>, key: u64, value: u64) -> Result<bool, Reclaimed> {
        let new = self.store.take(handle, key, value);
        let (guard, mut retired) = (handle.reader.enter(), 0);
        let inserted = loop {
            let found = self.find(self.store.checked(&guard), key, &mut retired)?;
            if found.hit {
                // SAFETY: `take` has given the node to this thread alone, and no link leads to it.
                unsafe { give_back(new, Relaxed) };
                break false;
            }
            // SAFETY: `take` has given the node to this thread alone; the pool keeps it valid.
            unsafe { &*new }.next.store(found.node, Relaxed);
            // (A) pairs with the loads of searches: they see its fields.
            if found.link.compare_exchange(found.node, new, Release, Relaxed).is_ok() {
                break true;
            }
        };
        drop(guard);
        self.store.settle(handle, retired);
        Ok(inserted)
    }

    fn remove<'t>(&'t self, handle: &mut Handle<'t, D>, key: u64) -> Result<bool, Reclaimed> {
        let (guard, mut retired) = (handle.reader.enter(), 0);
        let removed = loop {
            let found = self.find(self.store.checked(&guard), key, &mut retired)?;
            if !found.hit {
                break false;
            }
            // SAFETY: the guard protects it.
            let link = &unsafe { &*found.node }.next;
            // (B) From here on the key is not there. Relaxed is enough for a thread that reads the mark. Either it has come
            // here through links that show it the fields of the node behind; or it reads a value of the release sequence
            // of the insertion behind, to which this exchange belongs.
            if link.compare_exchange(found.next, marked(found.next), Relaxed, Relaxed).is_err() {
                continue;
            }
            // (C) Release: as in `find`; and a thread that sees this sees the mark (B).
            if found.link.compare_exchange(found.node, found.next, Release, Relaxed).is_ok() {
                // SAFETY: this thread has taken it out of the chain.
                unsafe { self.store.retire(&mut retired, found.node) };
            } else {
                // Another thread has taken the node out, or has changed the chain before it: a search takes it out if it
                // is still there.
                self.find(&guard, key, &mut retired)?;
            }
            break true;
        };
        drop(guard);
        self.store.settle(handle, retired);
        Ok(removed)
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
