//! Memory for the elements of a shard, as dense as it can be: reading an element is a lookup's second cache miss.
//!
//! Elements have numbers. They lie in chunks, of which each is twice as large as the one before, with nothing beside
//! them. What an element needs to wait for its readers is a [`Removed`], which is made when the element is removed. When
//! the element has been reclaimed, its `Removed` goes back to the shard with the element's number, and serves the next
//! element. So a table whose size stays the same allocates nothing.
//!
//! State of a number: fresh -> in use (`put`) -> removed (`remove`) -> returned (the thread that reclaims) -> in use
//! (`put`).
//!
//! At the end, `close` counts the numbers that were returned. The thread that reclaims the last of the others frees the
//! memory.
//!
//! What pairs with what: (A) a reclaiming thread pushes a `Removed` onto `returned` (release), and `put` or `close` takes
//! the list (acquire). (B) `close` adds the number of missing ones to `owed`, and each reclaiming thread after that
//! subtracts one, with read-modify-writes: the thread that makes it 0 comes after all others.

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
/// Chunks: enough for all numbers of 32 bits.
const CHUNKS: usize = (32 - FIRST.ilog2()) as usize;

/// Stands for an element that has been removed. It is a cache line, because it goes from thread to thread.
#[repr(C, align(64))]
pub struct Removed<L: RawMutex, T: Send + Sync + 'static> {
    header: Header,
    /// Where the element is.
    home: *const Elements<L, T>,
    /// The next of its list.
    next: *mut Removed<L, T>,
    /// In the first of a list of `Own::free`: the list below it.
    below: *mut Removed<L, T>,
    /// The element's number.
    number: u32,
}

// SAFETY: its home is freed after it has come back. A thread that has it has the element with it, which is `Send`.
unsafe impl<L: RawMutex, T: Send + Sync + 'static> Send for Removed<L, T> {}
// SAFETY: one thread at a time uses it: the holder of the lock, or the thread that retires and reclaims.
unsafe impl<L: RawMutex, T: Send + Sync + 'static> Sync for Removed<L, T> {}

/// The memory, and the lock of the threads that add and remove. What updates write to lies in one cache line, in which
/// readers read nothing.
#[repr(C, align(64))]
pub struct Elements<L: RawMutex, T: Send + Sync + 'static> {
    /// The lock of the shard's updates.
    pub lock: L,
    /// How many elements there are. Changed under the lock.
    pub count: Usize<L>,
    /// The list of those `Removed` whose elements have been reclaimed; or [`closed`].
    returned: Ptr<L, Removed<L, T>>,
    /// Under the lock.
    own: UnsafeCell<Own<L, T>>,
    /// After `close`: how many `Removed` have not come back.
    owed: Usize<L>,
    chunks: [Ptr<L, T>; CHUNKS],
}

type Usize<L> = <<L as RawMutex>::Machine as Machine>::Usize;
type Ptr<L, T> = <<L as RawMutex>::Machine as Machine>::Ptr<T>;

/// What the lock guards.
struct Own<L: RawMutex, T: Send + Sync + 'static> {
    /// The first number that was never used.
    fresh: u32,
    /// `Removed`s with a free number: lists, as they came back, the last one first. So a number is used again that has
    /// just been in a cache.
    free: *mut Removed<L, T>,
    /// `Removed`s without a number: a list.
    blank: *mut Removed<L, T>,
    /// How many numbers have been removed, and not used again.
    away: usize,
}

// SAFETY: elements are `Send` and `Sync`; `own` is used under the lock alone.
unsafe impl<L: RawMutex, T: Send + Sync + 'static> Sync for Elements<L, T> {}
// SAFETY: elements and `Removed`s are `Send`.
unsafe impl<L: RawMutex, T: Send + Sync + 'static> Send for Elements<L, T> {}

/// Stands in `returned` once the table has ended.
fn closed<T>() -> *mut T {
    core::ptr::without_provenance_mut(1)
}

/// Takes the first of a list.
///
/// # Safety
///
/// No other thread uses the list, whose entries are boxes that have not been freed.
unsafe fn pop<L: RawMutex, T: Send + Sync + 'static>(list: &mut *mut Removed<L, T>) -> *mut Removed<L, T> {
    let first = *list;
    // SAFETY: an entry of the list has not been freed, says the caller.
    if let Some(removed) = unsafe { first.as_ref() } {
        *list = removed.next;
    }
    first
}

/// Frees a list; returns how long it was.
///
/// # Safety
///
/// No other thread uses the list, whose entries are boxes that have not been freed.
unsafe fn free<L: RawMutex, T: Send + Sync + 'static>(mut list: *mut Removed<L, T>) -> usize {
    let mut count = 0;
    while !list.is_null() {
        // SAFETY: the entries are boxes, says the caller; each is freed once, because it leaves the list.
        drop(unsafe { Box::from_raw(pop(&mut list)) });
        count += 1;
    }
    count
}

/// The chunk of a number, and the index there.
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
    /// The caller holds the lock.
    pub unsafe fn put(&self, element: T) -> u32 {
        // SAFETY: the caller holds the lock.
        let own = unsafe { &mut *self.own.get() };
        // SAFETY: the caller holds the lock.
        let number = match unsafe { self.pop_free(own).as_mut() } {
            Some(removed) => {
                removed.next = own.blank;
                own.blank = removed;
                own.away -= 1;
                removed.number
            }
            None => self.fresh(own),
        };
        // SAFETY: the number is fresh, or its element has been reclaimed: no other thread uses it.
        unsafe { self.at(number).write(element) };
        number
    }

    /// Takes a `Removed` that has come back, if there is one.
    ///
    /// # Safety
    ///
    /// The caller holds the lock.
    unsafe fn pop_free(&self, own: &mut Own<L, T>) -> *mut Removed<L, T> {
        if !self.returned.load(Relaxed).is_null() {
            // (A) pairs with the exchange in `Return`.
            let returned = self.returned.swap(null_mut(), Acquire);
            // SAFETY: the list is this thread's since the exchange, and not empty.
            unsafe { (*returned).below = own.free };
            own.free = returned;
        }
        let first = own.free;
        // SAFETY: null, or an entry of a list that is the lock holder's; entries are freed in `close`.
        if let Some(removed) = unsafe { first.as_ref() } {
            own.free = removed.below;
            if !removed.next.is_null() {
                own.free = removed.next;
                // SAFETY: the next entry of the same list.
                unsafe { (*removed.next).below = removed.below };
            }
        }
        first
    }

    /// A number that was never used; makes a chunk for it if it is the first of one.
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

    /// Removes an element. The caller retires what this returns.
    ///
    /// # Safety
    ///
    /// The caller holds the lock, the number is in use, and no thread finds the element any more.
    pub unsafe fn remove(&self, number: u32) -> *mut Removed<L, T> {
        // SAFETY: the caller holds the lock.
        let own = unsafe { &mut *self.own.get() };
        own.away += 1;
        let new = Removed { header: Header::new(), home: self, next: null_mut(), below: null_mut(), number };
        // SAFETY: the caller holds the lock, and `blank` is a list of boxes.
        let blank = unsafe { pop(&mut own.blank) };
        if blank.is_null() {
            return Box::into_raw(Box::new(new));
        }
        // SAFETY: it was just taken out of the list, so no other thread uses it.
        unsafe { blank.write(new) };
        blank
    }

    /// Drops the elements that `left` names. Frees the memory, or has the thread do so that returns the last number.
    ///
    /// # Safety
    ///
    /// `this` is from `new`, and no thread uses it but those that reclaim. `left` names the elements that have not been
    /// removed.
    pub unsafe fn close(this: *mut Self, left: impl Iterator<Item = u32>) {
        let (elements, owed) = {
            // SAFETY: it is freed below, or by a reclaiming thread after the addition (B) below.
            let elements = unsafe { &*this };
            // SAFETY: these elements are in use, and no thread finds them any more, says the caller.
            left.for_each(|number| unsafe { elements.at(number).drop_in_place() });
            // SAFETY: no thread uses it but those that reclaim, which do not use `own`.
            let own = unsafe { &mut *elements.own.get() };
            // (A) pairs with the exchange in `Return`.
            let returned = elements.returned.swap(closed(), AcqRel);
            // SAFETY: lists of boxes; no other thread uses `own`, nor `returned` since the exchange.
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
        // (B) pairs with the subtraction in `Return`: the thread that makes the sum 0 comes last. (The word may have been
        // below 0, if some have come back since the exchange.)
        if elements.owed.fetch_add(owed, AcqRel).wrapping_add(owed) == 0 {
            // SAFETY: it is a box, and every `Removed` has come back, so no other thread uses it.
            drop(unsafe { Box::from_raw(this) });
        }
    }
}

impl<L: RawMutex, T: Send + Sync + 'static> Drop for Elements<L, T> {
    fn drop(&mut self) {
        for (chunk, first) in self.chunks.iter().enumerate() {
            let first = first.load(Relaxed).cast::<MaybeUninit<T>>();
            if !first.is_null() {
                // SAFETY: `fresh` made the array with this length.
                drop(unsafe { Array::from_first(first, (FIRST as usize) << chunk) });
            }
        }
    }
}

// SAFETY: `repr(C)`, and the header comes first.
unsafe impl<L: RawMutex, T: Send + Sync + 'static> Retire for Removed<L, T> {
    const BYTES: usize = size_of::<Self>() + size_of::<T>();

    unsafe fn reclaim(this: *mut Self) {
        // Gives the number back even if the element's destructor panics.
        let _return = Return(this);
        // SAFETY: no other thread uses it, says the caller. Its home is freed after it has come back.
        let (number, home) = unsafe { ((*this).number, &*(*this).home) };
        // SAFETY: no thread uses the element any more, says the caller.
        unsafe { home.at(number).drop_in_place() };
    }
}

/// A `Removed` whose element has been dropped. It goes back to its home when this is dropped.
struct Return<L: RawMutex, T: Send + Sync + 'static>(*mut Removed<L, T>);

impl<L: RawMutex, T: Send + Sync + 'static> Drop for Return<L, T> {
    fn drop(&mut self) {
        let this = self.0;
        // SAFETY: no other thread uses it until it is pushed. Its home is freed after it has come back.
        let (removed, home) = unsafe { (&mut *this, &*(*this).home) };
        let mut first = home.returned.load(Acquire);
        while first != closed() {
            removed.next = first;
            // (A) pairs with the exchanges in `pop_free` and `close`: the element's readers come before its number is used
            // again.
            match home.returned.compare_exchange(first, this, Release, Acquire) {
                Ok(_) => return,
                Err(now) => first = now,
            }
        }
        // SAFETY: it is a box, and no other thread uses it.
        let home = unsafe { Box::from_raw(this) }.home.cast_mut();
        // (B) pairs with the addition in `close`. SAFETY: this one has not come back, so its home has not been freed.
        if unsafe { &*home }.owed.fetch_sub(1, AcqRel) == 1 {
            // SAFETY: it is a box; every `Removed` has come back, and `close` is over, so no other thread uses it.
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
        // SAFETY: no other thread has the elements; each is removed once, and reclaimed once after that.
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
