//! Reference counts: what the others are compared with.
//!
//! Source: McKenney, Hart, Walpole, "Practical Concerns for Scalable Synchronization", 2005, section 2.4 ("an
//! obvious technique ... is to associate reference counts with the data"); Detlefs, Martin, Moir, Steele,
//! "Lock-Free Reference Counting", 2001, for why the count cannot stand in the object itself.
//!
//! A reader counts itself at the object that it is about to follow, and then looks again whether the object is still
//! linked. The counts stand beside the objects, 1024 of them, chosen by address: a reader could reach a count inside of
//! the object only through the pointer that the count is to protect. Objects that share a count keep each other from
//! being reclaimed, for a while.
//!
//! State of a count: the number of readers of the objects that it stands for.
//!
//! What pairs with what: (A) a reader adds to the count (acquire) and looks again; the scan reads the count with a
//! read-modify-write. So the scan sees the reader, or the reader sees that the object was removed. (E) the reader's
//! subtraction (release) pairs with the scan's read (acquire): what was done with an object happens before it is
//! reclaimed.
//!
//! Size: 64 KiB per domain. Atomics per protection: 2, on a line that all readers of the object share; therefore this
//! does not scale. Garbage: what readers hold, what shares a count with that, and a batch per thread.
//! Marks in the lowest three bits of a pointer are ignored; a reference into the middle of an object does not
//! protect it.
//!
//! In the child of a fork, the guards of threads that are not there stay counted, because a count does not say whose it is. What
//! shares a count with what they protect is never reclaimed there, and [`barrier`](Reclaim::barrier) waits for such an object for
//! ever. The other strategies do not wait for these threads; only a [`HazardPointer`](super::hazard::HazardPointer), which belongs to no
//! thread, does the same.

use super::garbage::Garbage;
use super::header::{Header, Retire, prepare};
use super::list::List;
use super::sieve::Sieve;
use super::strategy::{Guard, Info, Reader, Reclaim};
use crate::machine::record::{Records, SLOTS};
use crate::machine::{Arith, Machine, Word};
use alloc::boxed::Box;
use core::cell::Cell;
use core::marker::PhantomData;
use core::sync::atomic::Ordering::*;

/// Counts of a domain.
const COUNTS: usize = 1024;

/// The largest number of references that a count may stand for: far from where it would wrap around, even if all threads
/// exceed it at the same time.
const MOST: u32 = u32::MAX / 2;

/// A count, in a cache line of its own.
#[repr(align(64))]
struct Count<M: Machine>(M::U32);

/// A domain: objects that are retired together.
pub struct CountedDomain<M: Records> {
    sieve: Sieve<M>,
    counts: Box<[Count<M>]>,
}

/// A thread that reads with counts. See [`Reclaim::reader`].
pub struct CountedReader<'d, M: Records> {
    domain: &'d CountedDomain<M>,
    thread: PhantomData<*mut ()>,
}

/// A section: up to [`SLOTS`] references.
pub struct CountedGuard<'r, M: Records> {
    domain: &'r CountedDomain<M>,
    /// For each slot, the count at which the slot's object is counted.
    held: [Cell<Option<&'r M::U32>>; SLOTS],
    thread: PhantomData<*mut ()>,
}

impl<M: Records> CountedDomain<M> {
    fn count(&self, address: usize) -> &M::U32 {
        let mixed = (M::identity(address & !7) as u64 >> 3).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &self.counts[(mixed >> (64 - COUNTS.ilog2())) as usize].0
    }

    /// Reclaims each object that waits in a list and whose count is 0. The caller has the list.
    fn scan(&self, list: &List<M>) {
        let in_use = |header: &Header| {
            let address = core::ptr::from_ref(header).addr();
            // (A) A read-modify-write: a reader that adds to the count after it sees that the object was removed. (E) What
            // earlier readers did happens before.
            self.count(address).fetch_add(0, AcqRel) != 0
        };
        list.attach(list.keep(list.detach(), in_use));
        // SAFETY: the objects were removed before they came in, and after that each had a count of 0.
        unsafe { list.reclaim() };
    }
}

impl<M: Records> CountedGuard<'_, M> {
    /// Ends the protection of a slot.
    fn leave(&self, slot: usize) {
        if let Some(count) = self.held[slot].take() {
            // (E) pairs with the read in `scan`.
            count.fetch_sub(1, Release);
        }
    }
}

impl<M: Records> Drop for CountedGuard<'_, M> {
    fn drop(&mut self) {
        (0..SLOTS).for_each(|slot| self.leave(slot));
    }
}

// SAFETY: the reader was counted before it saw that the object was linked. So it was counted when the object was removed.
// Every scan that finds the object comes after that, and sees the count (A).
unsafe impl<M: Records> Guard for CountedGuard<'_, M> {
    type Machine = M;

    fn protect<T: Send + Sync + 'static>(&self, slot: usize, from: &M::Ptr<T>) -> *mut T {
        self.leave(slot);
        let mut pointer = from.load(Acquire);
        loop {
            if pointer.addr() & !7 == 0 {
                // A null pointer needs no protection. Counting it would have all readers at the end of a list share a
                // count.
                return pointer;
            }
            let count = self.domain.count(pointer.addr());
            // (A) pairs with the read in `scan`: the scan sees this reader, or this reader sees that the object was
            // removed.
            if count.fetch_add(1, Acquire) >= MOST {
                count.fetch_sub(1, Release); // or a program that goes on after each panic could have it wrap around
                panic!("2 billion references to what shares a count: guards are leaked");
            }
            let now = from.load(Acquire);
            if now == pointer {
                self.held[slot].set(Some(count));
                return pointer;
            }
            count.fetch_sub(1, Release);
            pointer = now;
        }
    }
}

impl<M: Records> Reader for CountedReader<'_, M> {
    type Machine = M;
    type Guard<'r>
        = CountedGuard<'r, M>
    where
        Self: 'r;

    fn enter(&self) -> CountedGuard<'_, M> {
        CountedGuard { domain: self.domain, held: Default::default(), thread: PhantomData }
    }
}

// SAFETY: a scan keeps each object at whose count a guard of this domain is counted. Each object is in one list.
unsafe impl<M: Records> Reclaim for CountedDomain<M> {
    type Machine = M;
    type Reader<'d> = CountedReader<'d, M>;
    const INFO: Info = Info {
        name: "counted",
        summary: "reference counts: readers are counted at what they follow, two atomics each",
        reader: "two atomics on a shared line per pointer",
        atomics: 2,
        bound: "what readers hold, what shares a count with that, and a batch per thread",
        source: "McKenney et al. 2005, section 2.4",
    };

    fn new_in() -> Self {
        let counts = (0..COUNTS).map(|_| Count(M::U32::new(0))).collect();
        CountedDomain { sieve: Sieve::new(), counts }
    }

    fn reader(&self) -> CountedReader<'_, M> {
        CountedReader { domain: self, thread: PhantomData }
    }

    /// For guards of this domain alone: the counts are the domain's own.
    #[inline]
    fn covers<'r, 'd>(&self, guard: &CountedGuard<'r, M>) -> bool
    where
        CountedReader<'d, M>: 'r,
    {
        core::ptr::eq(self, guard.domain)
    }

    #[inline]
    unsafe fn retire<T: Retire>(&self, object: *mut T) {
        // SAFETY: the object is alive and begins with its header (`Retire`), and is retired once, says the caller.
        self.sieve.retire(unsafe { prepare(object) }, |list| self.scan(list));
    }

    fn collect(&self) {
        self.sieve.collect(|list| self.scan(list));
    }

    /// Waits for the readers of objects that are retired already. If the caller is one of them, it waits for ever: a count does not tell
    /// whose it is. In the child of a fork,
    /// it waits for readers of the parent that are not there, for ever.
    fn barrier(&self) {
        self.sieve.barrier(|list| self.scan(list), |_| false);
    }

    fn garbage(&self) -> Garbage {
        self.sieve.backlog.garbage()
    }
}

impl<M: Records> Drop for CountedDomain<M> {
    /// Reclaims everything: readers borrow the domain, so none is left. What a forgotten guard protects is leaked.
    fn drop(&mut self) {
        self.sieve.close(|list| self.scan(list));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Native;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    /// However often a program that has leaked billions of guards goes on after the panic, the count does not grow.
    #[test]
    fn a_reference_that_is_refused_does_not_count() {
        let domain = CountedDomain::<Native>::new_in();
        let object = Box::into_raw(Box::new(7));
        let (root, count) = (<Native as Machine>::Ptr::new(object), domain.count(object.addr()));
        count.store(MOST, Relaxed);
        let reader = domain.reader();
        for _ in 0..3 {
            let guard = reader.enter();
            assert!(catch_unwind(AssertUnwindSafe(|| guard.protect(0, &root))).is_err());
        }
        assert_eq!(count.load(Relaxed), MOST);
        // SAFETY: made above.
        drop(unsafe { Box::from_raw(object) });
    }
}
