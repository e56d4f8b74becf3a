//! Shared memory cells: [`Word`] and [`Arith`].

use core::sync::atomic::Ordering;

/// A shared memory cell of one of the machine's word sizes. Its operations are those of the core atomics.
pub trait Word<T: Copy>: Sized + Send + Sync + 'static {
    /// A new word that holds `value`.
    fn new(value: T) -> Self;
    /// Atomic load.
    fn load(&self, order: Ordering) -> T;
    /// Atomic store.
    fn store(&self, value: T, order: Ordering);
    /// Atomic exchange; returns the previous value.
    fn swap(&self, value: T, order: Ordering) -> T;
    /// Atomic compare-and-exchange: `Ok(previous)` if the word held `current` and now holds `new`.
    fn compare_exchange(&self, current: T, new: T, ok: Ordering, err: Ordering) -> Result<T, T>;
}

/// A [`Word`] with arithmetic and bitwise read-modify-writes. Each returns the previous value.
pub trait Arith<T: Copy>: Word<T> {
    /// Wrapping atomic addition.
    fn fetch_add(&self, value: T, order: Ordering) -> T;
    /// Wrapping atomic subtraction.
    fn fetch_sub(&self, value: T, order: Ordering) -> T;
    /// Atomic bitwise or.
    fn fetch_or(&self, value: T, order: Ordering) -> T;
    /// Atomic bitwise and.
    fn fetch_and(&self, value: T, order: Ordering) -> T;
}
