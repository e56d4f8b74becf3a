//! Shared data made of a machine's words, so that a simulator sees each access.

use latchwork::machine::{Arith, Machine, Word};
use latchwork::map::array::Array;
use std::ops::Deref;
use std::sync::atomic::Ordering::Relaxed;

/// A value alone in its pair of cache lines (processors fetch lines in pairs).
#[repr(align(128))]
pub struct Line<T>(pub T);

/// A value alone in its page.
#[repr(align(4096))]
pub struct Page<T>(pub T);

impl<T> Deref for Line<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> Deref for Page<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

/// A number that a lock guards. Its accesses are plain loads and stores: nothing but the lock makes
/// [`add`](Cell::add) right.
pub struct Cell<M: Machine>(M::U64);

impl<M: Machine> Cell<M> {
    /// Holds `value`.
    pub fn new(value: u64) -> Self {
        Cell(M::U64::new(value))
    }

    /// Its value.
    #[inline(always)]
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }

    /// Replaces the value.
    #[inline(always)]
    pub fn set(&self, value: u64) {
        self.0.store(value, Relaxed);
    }

    /// Adds with a load and a store; returns the sum.
    #[inline(always)]
    pub fn add(&self, value: u64) -> u64 {
        let sum = self.get().wrapping_add(value);
        self.set(sum);
        sum
    }

    /// Adds as an atomic operation, for the little that no lock guards; returns the sum.
    #[inline(always)]
    pub fn add_atomically(&self, value: u64) -> u64 {
        self.0.fetch_add(value, std::sync::atomic::Ordering::AcqRel).wrapping_add(value)
    }

    /// The word itself, for spinning on.
    pub fn word(&self) -> &M::U64 {
        &self.0
    }
}

/// `count` cells of value 0.
pub fn cells<M: Machine>(count: usize) -> Array<Cell<M>> {
    Array::new(count, |_| Cell::new(0))
}
