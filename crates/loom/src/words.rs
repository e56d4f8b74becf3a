//! Words over loom's atomics.

use super::machine::{Mistake, in_model, is_blind, mistake, owe_fence, state, take_fence_owed};
use latchwork::machine::{Arith, Word};
use loom::sync::atomic::{self, Ordering, fence};
use std::sync::atomic::AtomicU64;

/// One of loom's atomics as a machine's word. Three things differ from a plain forwarding:
///
/// - A store is an exchange, and drops the result. loom keeps the modification order of a word as a partial order, and
///   does not know that nothing may come between the two halves of a read-modify-write. A plain store that races with a
///   read-modify-write would leave both "newest", and a spinner could read the older one for ever. Two things are lost: a
///   store that is older in modification order than one that was already executed, which matters to no lock (and does not
///   exist on x86-64); and a store continues a release sequence where it should end it.
/// - loom takes sequentially consistent accesses for acquire and release only. Here a fence precedes such a load, and such
///   a read-modify-write, if the thread has made such a store since its last fence. So two Dekker pairs of accesses work
///   as in C11, and a relaxed access in their place does not.
/// - The end of a word's life is an access that every other access must happen before or after. So a queue node on a
///   waiter's stack that another thread still looks at is reported as the race that it is.
///
/// The newest value is noted beside the atomic, for [`newest`](Cell::newest).
pub struct Cell<A: End> {
    atomic: A,
    newest: AtomicU64,
}

impl<A: End> Cell<A> {
    fn holding(atomic: A, value: u64) -> Self {
        Cell { atomic, newest: AtomicU64::new(value) }
    }

    /// A write has left `value`. (loom switches threads before an access, so no other access comes between the write and this.)
    fn note(&self, value: u64) {
        self.newest.store(value, Ordering::Relaxed);
    }

    /// The value of the last write. The running thread may still load an older one.
    pub fn newest(&self) -> u64 {
        self.newest.load(Ordering::Relaxed)
    }
}

/// An atomic, with a check at the end of its life.
pub trait End: Send + Sync + 'static {
    /// An exclusive access, which loom reports if any other access is not ordered with it.
    fn end(&mut self);
    /// A look that is not atomic, which loom reports if a store is not ordered with it.
    fn settled(&self);
}

impl<A: End> Cell<A> {
    /// The word goes to another use: all stores of its last one come before this, and those of the next one after it.
    pub fn settled(&self) {
        self.atomic.settled();
    }
}

impl<A: End> Drop for Cell<A> {
    fn drop(&mut self) {
        if in_model() && !std::thread::panicking() {
            self.atomic.end();
        }
    }
}

/// The order that a load of a word of `size` bytes is really given.
fn load_order(order: Ordering, size: usize) -> Ordering {
    before_sequential(order);
    match (mistake(), order) {
        (Mistake::RelaxedAcquire, Ordering::Acquire | Ordering::SeqCst) => Ordering::Relaxed,
        (Mistake::RelaxedLoadOf(which), Ordering::Acquire) if which == size => Ordering::Relaxed,
        _ => order,
    }
}

/// Comes before the reading part of an access of `order`.
fn before_sequential(order: Ordering) {
    if order == Ordering::SeqCst && mistake() != Mistake::NoSeqCst && take_fence_owed() {
        fence(Ordering::SeqCst);
    }
}

/// Belongs to the writing part of an access of `order`.
fn note_sequential(order: Ordering) {
    if order == Ordering::SeqCst {
        owe_fence();
    }
}

/// The order that a store of a word of `size` bytes is really given.
fn store_order(order: Ordering, size: usize) -> Ordering {
    note_sequential(order);
    match (mistake(), order) {
        (Mistake::RelaxedRelease, Ordering::Release) => Ordering::Relaxed,
        (Mistake::RelaxedStoreOf(which), Ordering::Release) if which == size => Ordering::Relaxed,
        _ => order,
    }
}

/// The order that a read-modify-write is really given.
fn rmw_order(order: Ordering) -> Ordering {
    use Ordering::*;
    before_sequential(order);
    note_sequential(order);
    match (mistake(), order) {
        (Mistake::RelaxedAcquire, Acquire) | (Mistake::RelaxedRelease, Release) => Relaxed,
        (Mistake::RelaxedAcquire, AcqRel | SeqCst) => Release,
        (Mistake::RelaxedRelease, AcqRel) => Acquire,
        _ => order,
    }
}

/// The order that an exchange of a word of `size` bytes is really given.
fn swap_order(order: Ordering, size: usize) -> Ordering {
    match (mistake(), order) {
        (Mistake::RelaxedSwapOf(which), Ordering::AcqRel) if which == size => Ordering::Acquire,
        _ => rmw_order(order),
    }
}

macro_rules! word {
    ($atomic:ty, $t:ty) => {
        impl End for $atomic {
            fn end(&mut self) {
                self.with_mut(|_| ());
            }
            #[track_caller]
            fn settled(&self) {
                // SAFETY: loom reports a store that races with this.
                unsafe { self.unsync_load() };
            }
        }

        impl Word<$t> for Cell<$atomic> {
            #[track_caller]
            fn new(value: $t) -> Self {
                Cell::holding(<$atomic>::new(value), value as u64)
            }
            #[track_caller]
            fn load(&self, order: Ordering) -> $t {
                let value = self.atomic.load(load_order(order, size_of::<$t>()));
                if size_of::<$t>() == 4 && is_blind() { 0 } else { value }
            }
            #[track_caller]
            fn store(&self, value: $t, order: Ordering) {
                if value == 2 && order == Ordering::Release && mistake() == Mistake::LostSkip {
                    return;
                }
                self.atomic.swap(value, store_order(order, size_of::<$t>()));
                self.note(value as u64);
            }
            #[track_caller]
            fn swap(&self, value: $t, order: Ordering) -> $t {
                let old = self.atomic.swap(value, swap_order(order, size_of::<$t>()));
                self.note(value as u64);
                old
            }
            #[track_caller]
            fn compare_exchange(&self, current: $t, new: $t, ok: Ordering, err: Ordering) -> Result<$t, $t> {
                let err = load_order(err, size_of::<$t>());
                let old = self.atomic.compare_exchange(current, new, rmw_order(ok), err)?;
                self.note(new as u64);
                Ok(old)
            }
        }
    };
}

macro_rules! arith {
    ($atomic:ty, $t:ty) => {
        word!($atomic, $t);
        impl Arith<$t> for Cell<$atomic> {
            #[track_caller]
            fn fetch_add(&self, value: $t, order: Ordering) -> $t {
                let old = self.atomic.fetch_add(value, rmw_order(order));
                self.note(old.wrapping_add(value) as u64);
                old
            }
            #[track_caller]
            fn fetch_sub(&self, value: $t, order: Ordering) -> $t {
                let old = self.atomic.fetch_sub(value, rmw_order(order));
                self.note(old.wrapping_sub(value) as u64);
                old
            }
            #[track_caller]
            fn fetch_or(&self, value: $t, order: Ordering) -> $t {
                let old = self.atomic.fetch_or(value, rmw_order(order));
                self.note((old | value) as u64);
                old
            }
            #[track_caller]
            fn fetch_and(&self, value: $t, order: Ordering) -> $t {
                let old = self.atomic.fetch_and(value, rmw_order(order));
                self.note((old & value) as u64);
                old
            }
        }
    };
}

word!(atomic::AtomicU8, u8);
arith!(atomic::AtomicU32, u32);
arith!(atomic::AtomicU64, u64);

/// A pointer-sized word: what [`Cell`] is, and a slot of the table of visible readers, to which a
/// revoking writer can be blind.
pub struct UsizeCell(Cell<atomic::AtomicUsize>);
arith!(atomic::AtomicUsize, usize);

impl Word<usize> for UsizeCell {
    #[track_caller]
    fn new(value: usize) -> Self {
        UsizeCell(Cell::new(value))
    }
    #[track_caller]
    fn load(&self, order: Ordering) -> usize {
        let value = self.0.load(order);
        let blind =
            mistake() == Mistake::BlindScan && state(|s| s.is_reader_slot(self) || s.is_row_slot(self));
        if blind { 0 } else { value }
    }
    #[track_caller]
    fn store(&self, value: usize, order: Ordering) {
        self.0.store(value, order);
    }
    #[track_caller]
    fn swap(&self, value: usize, order: Ordering) -> usize {
        self.0.swap(value, order)
    }
    #[track_caller]
    fn compare_exchange(&self, now: usize, new: usize, ok: Ordering, err: Ordering) -> Result<usize, usize> {
        self.0.compare_exchange(now, new, ok, err)
    }
}

impl Arith<usize> for UsizeCell {
    #[track_caller]
    fn fetch_add(&self, value: usize, order: Ordering) -> usize {
        self.0.fetch_add(value, order)
    }
    #[track_caller]
    fn fetch_sub(&self, value: usize, order: Ordering) -> usize {
        self.0.fetch_sub(value, order)
    }
    #[track_caller]
    fn fetch_or(&self, value: usize, order: Ordering) -> usize {
        self.0.fetch_or(value, order)
    }
    #[track_caller]
    fn fetch_and(&self, value: usize, order: Ordering) -> usize {
        self.0.fetch_and(value, order)
    }
}

impl<T: Send + Sync + 'static> End for atomic::AtomicPtr<T> {
    fn end(&mut self) {
        self.with_mut(|_| ());
    }
    #[track_caller]
    fn settled(&self) {
        // SAFETY: loom reports a store that races with this.
        unsafe { self.unsync_load() };
    }
}

impl<T: Send + Sync + 'static> Word<*mut T> for Cell<atomic::AtomicPtr<T>> {
    #[track_caller]
    fn new(value: *mut T) -> Self {
        Cell::holding(atomic::AtomicPtr::new(value), value.addr() as u64)
    }
    #[track_caller]
    fn load(&self, order: Ordering) -> *mut T {
        self.atomic.load(load_order(order, size_of::<*mut T>()))
    }
    #[track_caller]
    fn store(&self, value: *mut T, order: Ordering) {
        if order == Ordering::Relaxed && !value.is_null() && mistake() == Mistake::LostLink {
            return;
        }
        // The link of a node is its first field, so a node that is linked to itself holds the link's own address.
        if mistake() == Mistake::OpenRing && value.addr() == std::ptr::from_ref(self).addr() {
            return;
        }
        self.atomic.swap(value, store_order(order, size_of::<*mut T>()));
        self.note(value.addr() as u64);
    }
    #[track_caller]
    fn swap(&self, value: *mut T, order: Ordering) -> *mut T {
        let old = self.atomic.swap(value, swap_order(order, size_of::<*mut T>()));
        self.note(value.addr() as u64);
        old
    }
    #[track_caller]
    fn compare_exchange(
        &self,
        current: *mut T,
        new: *mut T,
        ok: Ordering,
        err: Ordering,
    ) -> Result<*mut T, *mut T> {
        if current.is_null() && new.is_null() && mistake() == Mistake::SeenCleared {
            return Ok(current);
        }
        let err = load_order(err, size_of::<*mut T>());
        let old = self.atomic.compare_exchange(current, new, rmw_order(ok), err)?;
        self.note(new.addr() as u64);
        Ok(old)
    }
}
