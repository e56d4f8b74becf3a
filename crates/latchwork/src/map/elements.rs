//! Memory for the elements of a table, as dense as it can be: a lookup's second miss.
//!
//! Elements have numbers. They lie in chunks, of which each is twice as large as the one before, and have nothing
//! beside them: what an element needs to wait for its readers ([`Removed`]) is made when it is removed. It then
//! goes back to its home with the element's number, and serves the next one, so that a table whose size stays
//! the same allocates nothing.
//!
//! States of a number: fresh -> in use (`put`) -> removed (`remove`) -> returned by who reclaims (A) -> in use.
//! At the end (`close`) returned ones are counted, and who reclaims the last of the others frees the memory (B).

use super::array::Array;
use crate::locks::mutex::RawMutex;
use crate::machine::{Arith, Machine, Word};
use crate::reclaim::{Header, Retire};
use alloc::boxed::Box;
use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::ptr::null_mut;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// Elements in the first chunk, a power of two.
const FIRST: u32 = 8;
/// Chunks, for all numbers of 32 bits.
const CHUNKS: usize = (32 - FIRST.ilog2()) as usize;

/// An element that has been removed: a line, since it goes from thread to thread.
#[repr(C, align(64))]
pub struct Removed<L: RawMutex, T: Send + Sync + 'static> {
    header: Header,
    home: *const Elements<L, T>,
    next: *mut Removed<L, T>,
    /// In the first of those that are free: the next list of such.
    below: *mut Removed<L, T>,
    number: u32,
}

// SAFETY: its home is there until it has come back; who has it has the element, which may be sent.
unsafe impl<L: RawMutex, T: Send + Sync + 'static> Send for Removed<L, T> {}
// SAFETY: as above.
unsafe impl<L: RawMutex, T: Send + Sync + 'static> Sync for Removed<L, T> {}

/// The memory, and the lock of who adds and removes. What updates write to is one line, in which nothing is that
/// readers need.
#[repr(C, align(64))]
pub struct Elements<L: RawMutex, T: Send + Sync + 'static> {
    /// The lock.
    pub lock: L,
    /// How many elements there are. Changed under the lock.
    pub count: Usize<L>,
    /// Those that have been reclaimed, or [`closed`].
    returned: Ptr<L, Removed<L, T>>,
    own: UnsafeCell<Own<L, T>>,
    /// Those that are away when the table ends.
    owed: Usize<L>,
    chunks: [Ptr<L, T>; CHUNKS],
}

type Usize<L> = <<L as RawMutex>::Machine as Machine>::Usize;
type Ptr<L, T> = <<L as RawMutex>::Machine as Machine>::Ptr<T>;

/// What the lock is for.
struct Own<L: RawMutex, T: Send + Sync + 'static> {
    /// The first number that was never used.
    fresh: u32,
    /// With a number that is free, in lists as they came back, the last first: what is used again is what has just
    /// been in a cache, however much has come back at some time.
    free: *mut Removed<L, T>,
    /// Without a number: a list.
    blank: *mut Removed<L, T>,
    /// How many have been removed, and not used again.
    away: usize,
}

// SAFETY: elements are shared as `Sync` allows, and dropped by who has them; what is not atomic is under a lock.
unsafe impl<L: RawMutex, T: Send + Sync + 'static> Sync for Elements<L, T> {}
// SAFETY: as above.
unsafe impl<L: RawMutex, T: Send + Sync + 'static> Send for Elements<L, T> {}

/// Stands where the list of those that were returned was, once nobody uses them any more.
fn closed<T>() -> *mut T {
    core::ptr::without_provenance_mut(1)
}

/// Takes the first of a list.
///
/// # Safety
///
/// The list is the caller's.
unsafe fn pop<L: RawMutex, T: Send + Sync + 'static>(list: &mut *mut Removed<L, T>) -> *mut Removed<L, T> {
    let first = *list;
    // SAFETY: what is in a list is there.
    if let Some(removed) = unsafe { first.as_ref() } {
        *list = removed.next;
    }
    first
}

/// Frees a list; returns how long it was.
///
/// # Safety
///
/// The list is the caller's.
unsafe fn free<L: RawMutex, T: Send + Sync + 'static>(mut list: *mut Removed<L, T>) -> usize {
    let mut count = 0;
    while !list.is_null() {
        // SAFETY: the caller's promise; they are boxes.
        drop(unsafe { Box::from_raw(pop(&mut list)) });
        count += 1;
    }
    count
}

/// The chunk of a number, and where in it.
#[inline(always)]
fn locate(number: u32) -> (usize, usize) {
    let at = number + FIRST;
    let chunk = at.ilog2();
    ((chunk - FIRST.ilog2()) as usize, (at ^ (1 << chunk)) as usize)
}

impl<L: RawMutex, T: Send + Sync + 'static> Elements<L, T> {
    /// No elements. To be given to [`close`](Elements::close) in the end.
    pub fn new() -> Box<Self> {
        let own = Own { fresh: 0, free: null_mut(), blank: null_mut(), away: 0 };
        Box::new(Elements {
            lock: L::new_in(),
            count: Word::new(0),
            returned: Word::new(null_mut()),
            own: UnsafeCell::new(own),
            owed: Word::new(0),
            chunks: core::array::from_fn(|_| Word::new(null_mut())),
        })
    }

    /// Where an element is.
    ///
    /// # Safety
    ///
    /// The number is in use, or was: it came from [`put`](Elements::put).
    #[inline(always)]
    pub unsafe fn at(&self, number: u32) -> *mut T {
        let (chunk, at) = locate(number);
        // SAFETY: `put` gives out numbers below the end of the last chunk. Relaxed: the chunk was there before the
        // number was used.
        let first = unsafe { self.chunks.get_unchecked(chunk) }.load(Relaxed);
        first.wrapping_add(at)
    }

    /// Adds an element.
    ///
    /// # Safety
    ///
    /// Under the lock.
    pub unsafe fn put(&self, element: T) -> u32 {
        // SAFETY: the caller has the lock.
        let own = unsafe { &mut *self.own.get() };
        // SAFETY: the lists are of who has the lock.
        let number = match unsafe { self.pop_free(own).as_mut() } {
            Some(removed) => {
                removed.next = own.blank;
                own.blank = removed;
                own.away -= 1;
                removed.number
            }
            None => self.fresh(own),
        };
        // SAFETY: the number is in use by nobody else.
        unsafe { self.at(number).write(element) };
        number
    }

    /// Takes one that has come back, if there is any.
    ///
    /// # Safety
    ///
    /// Under the lock.
    unsafe fn pop_free(&self, own: &mut Own<L, T>) -> *mut Removed<L, T> {
        if !self.returned.load(Relaxed).is_null() {
            // (A) pairs with `reclaim`.
            let returned = self.returned.swap(null_mut(), Acquire);
            // SAFETY: it is ours since the exchange.
            unsafe { (*returned).below = own.free };
            own.free = returned;
        }
        let first = own.free;
        // SAFETY: what is in a list is there, and of who has the lock.
        if let Some(removed) = unsafe { first.as_ref() } {
            own.free = removed.below;
            if !removed.next.is_null() {
                own.free = removed.next;
                // SAFETY: as above.
                unsafe { (*removed.next).below = removed.below };
            }
        }
        first
    }

    fn fresh(&self, own: &mut Own<L, T>) -> u32 {
        let number = own.fresh;
        assert!(number < u32::MAX - FIRST, "more than 4 billion elements in a shard");
        if let (chunk, 0) = locate(number) {
            let memory = Array::<MaybeUninit<T>>::new((FIRST as usize) << chunk, |_| MaybeUninit::uninit());
            self.chunks[chunk].store(memory.into_first().cast(), Relaxed);
        }
        own.fresh += 1;
        number
    }

    /// Removes an element: what is returned is to be retired.
    ///
    /// # Safety
    ///
    /// Under the lock; nobody finds the element any more.
    pub unsafe fn remove(&self, number: u32) -> *mut Removed<L, T> {
        // SAFETY: the caller has the lock.
        let own = unsafe { &mut *self.own.get() };
        own.away += 1;
        let new = Removed { header: Header::new(), home: self, next: null_mut(), below: null_mut(), number };
        // SAFETY: the list is of who has the lock.
        let blank = unsafe { pop(&mut own.blank) };
        if blank.is_null() {
            return Box::into_raw(Box::new(new));
        }
        // SAFETY: as above.
        unsafe { blank.write(new) };
        blank
    }

    /// Drops the elements that `left` names, and frees the memory, when the last of those that were removed
    /// has come back.
    ///
    /// # Safety
    ///
    /// Nobody uses `this`, which is from `new`; `left` are those that have not been removed.
    pub unsafe fn close(this: *mut Self, left: impl Iterator<Item = u32>) {
        let (elements, owed) = {
            // SAFETY: it is freed below, or by the last that comes back, who waits for (B).
            let elements = unsafe { &*this };
            // SAFETY: nobody else has it; they are in use.
            left.for_each(|number| unsafe { elements.at(number).drop_in_place() });
            // SAFETY: as above.
            let own = unsafe { &mut *elements.own.get() };
            // (A) pairs with `reclaim`.
            let returned = elements.returned.swap(closed(), AcqRel);
            // SAFETY: the lists are ours.
            let back = unsafe {
                free(own.blank);
                let mut back = free(returned);
                while let Some(first) = own.free.as_ref() {
                    let below = first.below;
                    back += free(own.free);
                    own.free = below;
                }
                back
            };
            (elements, own.away - back)
        };
        // (B) pairs with `reclaim`: of both, who finds that nothing is owed any more comes last. (It may have
        // been more than nothing, if some have come back since.)
        if elements.owed.fetch_add(owed, AcqRel).wrapping_add(owed) == 0 {
            // SAFETY: it is a box, and nobody else has it.
            drop(unsafe { Box::from_raw(this) });
        }
    }
}

impl<L: RawMutex, T: Send + Sync + 'static> Drop for Elements<L, T> {
    fn drop(&mut self) {
        for (chunk, first) in self.chunks.iter().enumerate() {
            let first = first.load(Relaxed).cast::<MaybeUninit<T>>();
            if !first.is_null() {
                // SAFETY: from `fresh`, which made it so large.
                drop(unsafe { Array::from_first(first, (FIRST as usize) << chunk) });
            }
        }
    }
}

// SAFETY: `repr(C)`, and the header comes first.
unsafe impl<L: RawMutex, T: Send + Sync + 'static> Retire for Removed<L, T> {
    const BYTES: usize = size_of::<Self>() + size_of::<T>();

    unsafe fn reclaim(this: *mut Self) {
        // Comes back also if the element's destructor panics.
        let _return = Return(this);
        // SAFETY: it is the caller's, and its home is there until it has come back.
        let (number, home) = unsafe { ((*this).number, &*(*this).home) };
        // SAFETY: nobody uses the element.
        unsafe { home.at(number).drop_in_place() };
    }
}

/// A removed element without an element, which comes back when this is dropped.
struct Return<L: RawMutex, T: Send + Sync + 'static>(*mut Removed<L, T>);

impl<L: RawMutex, T: Send + Sync + 'static> Drop for Return<L, T> {
    fn drop(&mut self) {
        let this = self.0;
        // SAFETY: it is the caller's, and its home is there until it has come back.
        let (removed, home) = unsafe { (&mut *this, &*(*this).home) };
        let mut first = home.returned.load(Acquire);
        while first != closed() {
            removed.next = first;
            // (A) who uses the number comes after those who have read the element.
            match home.returned.compare_exchange(first, this, Release, Acquire) {
                Ok(_) => return,
                Err(now) => first = now,
            }
        }
        // SAFETY: it is a box, and ours.
        let home = unsafe { Box::from_raw(this) }.home.cast_mut();
        // (B) SAFETY: there is still one that has not come back: this.
        if unsafe { &*home }.owed.fetch_sub(1, AcqRel) == 1 {
            // SAFETY: nothing is owed, so that nobody else has it.
            drop(unsafe { Box::from_raw(home) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::locks::mutex::shfl::RawShfl;
    use crate::machine::Native;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    struct Bomb;

    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("a destructor panics");
        }
    }

    #[test]
    fn an_element_whose_destructor_panics_gives_its_number_back() {
        let elements = Elements::<RawShfl<Native>, Bomb>::new();
        // SAFETY: nobody else has the elements; each is removed once, and reclaimed once after that.
        unsafe {
            let first = elements.put(Bomb);
            let removed = elements.remove(first);
            catch_unwind(AssertUnwindSafe(|| Removed::reclaim(removed))).expect_err("it panics");
            assert_eq!(elements.put(Bomb), first, "its number is not used again");
            let removed = elements.remove(first);
            catch_unwind(AssertUnwindSafe(|| Removed::reclaim(removed))).expect_err("it panics");
            Elements::close(Box::into_raw(elements), [].into_iter());
        }
    }
}
