//! The table without locks: Michael's lists.
//!
//! Source: Michael, "High Performance Dynamic Lock-Free Hash Tables and List-Based Sets", SPAA 2002, and
//! "Hazard Pointers", IEEE TPDS 2004, figure 9; as HPBR-NBS, over RCU as RCU-NBS, in McKenney, Hart and
//! Walpole, "Practical Concerns for Scalable Synchronization", 2005, section 4. Epochs: Fraser, "Practical
//! Lock-Freedom", 2003.
//!
//! A sorted list. To remove an element, its own link is marked, which nobody else can then change (B), and it
//! is taken out of the chain (C): by who marked it, or by whoever meets it first. Who takes it out retires it.
//! Everybody helps, readers too: that is what they pay for locks that nobody holds.
//!
//! Where it differs from the figure: a lookup that meets nothing that is being removed only reads, and protects one
//! element less. The previous link is not read again after an element's own link has been
//! protected. An element whose link is not marked has not been removed, so it is in the chain, and with it
//! the one behind it, whatever became of the one before; a stale previous link is found by the exchange.
//!
//! States of an element: free -> in a chain (A) -> marked (B) -> out of the chain (C) -> retired -> free.
//! Atomics: an insertion 1, a removal 2, and those of retiring; a lookup none. Barriers, where they are instructions:
//! one per update, that of the exchange which changes the chain.
//! Progress: lock-free.

use super::node::{Node, Step, give_back, step};
use super::readers::{Readers, is_marked, look_between_marks, marked, unmarked};
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

/// Where a search ended. Under the guard, `node` and what `link` is in are protected.
struct Found<'a, M: Machine> {
    link: &'a M::Ptr<Node<M>>,
    node: *mut Node<M>,
    /// What is behind it, unmarked.
    next: *mut Node<M>,
    hit: bool,
}

impl<D: Reclaim, R: Readers<D>> Michael<D, R> {
    /// Looks `key` up in any case, and helps.
    #[cold]
    #[inline(never)]
    fn look_and_help<'t>(&'t self, handle: &mut Handle<'t, D>, key: u64) -> Result<Option<u64>, Reclaimed> {
        let (guard, mut retired) = (handle.reader.enter(), 0);
        let found = self.find(self.store.checked(&guard), key, &mut retired)?;
        // SAFETY: protected.
        let value = found.hit.then(|| unsafe { &*found.node }.value.load(Relaxed));
        drop(guard);
        self.store.settle(handle, retired);
        Ok(value)
    }

    /// Finds `key`, or where it would be; takes out what was removed on the way, and counts it.
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
            // Slots for the element that `link` is in, the one at hand, and the one behind it.
            let mut slots = [0, 1, 2];
            let mut node = guard.protect(slots[1], link);
            loop {
                // (A) pairs with `insert`. SAFETY: protected, and in the chain when it was.
                let Some(fields) = (unsafe { node.as_ref() }) else {
                    return Ok(Found { link, node, next: node, hit: false });
                };
                // (B) pairs with `remove`.
                let next = guard.protect(slots[2], &fields.next);
                if is_marked(next) {
                    // (C) If the previous link is as it was, the node is in the chain, and so is the next,
                    // which nobody can take out before this one: it was protected in time. Release: who follows
                    // the link sees the next one's fields, as we do.
                    if link.compare_exchange(node, unmarked(next), Release, Relaxed).is_err() {
                        continue 'again;
                    }
                    // SAFETY: we have taken it out of the chain.
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

// SAFETY: elements are retired by who took them out of the chain; what a search looks at is protected.
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
    fn get<'t>(&'t self, handle: &mut Handle<'t, D>, key: u64) -> Result<Option<u64>, Reclaimed> {
        let (head, mask) = self.store.head(key);
        // (A) pairs with `insert`, (B) with `remove`.
        if let Some(guard) = handle.reader.try_enter()
            // SAFETY: nodes of this chain are marked, and then retired in the store's domain.
            && let Some(value) = unsafe { look_between_marks(self.store.checked(&guard), head, key, mask, true) }?
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
                // SAFETY: taken above, and shown to nobody.
                unsafe { give_back(new, Relaxed) };
                break false;
            }
            // SAFETY: as above.
            unsafe { &*new }.next.store(found.node, Relaxed);
            // (A) pairs with the searches: who finds it sees its fields.
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
            // SAFETY: protected.
            let link = &unsafe { &*found.node }.next;
            // (B) From here on the key is not there. Relaxed: who reads the mark has come here through links that
            // show it the fields of what is behind, or reads what an insertion released, of whose release
            // sequence this is a part.
            if link.compare_exchange(found.next, marked(found.next), Relaxed, Relaxed).is_err() {
                continue;
            }
            // (C) After (B), for who sees this. Release: as in `find`.
            if found.link.compare_exchange(found.node, found.next, Release, Relaxed).is_ok() {
                // SAFETY: we have taken it out of the chain.
                unsafe { self.store.retire(&mut retired, found.node) };
            } else {
                // Somebody was there before, or changed the chain: a search takes it out.
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

    fn waiting(&mut self) -> usize {
        self.store.waiting()
    }

    fn each(&mut self, each: impl FnMut(u64, u64)) {
        self.store.each(each);
    }
}
