//! Shared data made of a machine's words, so that a simulator sees each access.

use latchwork::machine::{Arith, Machine, Word};
use std::ops::{Deref, Index};
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

/// How many elements [`Array`] keeps together: of a size that is a multiple of 8, they fill whole
/// pairs of cache lines.
const TOGETHER: usize = 16;

/// Elements close together, from the beginning of a cache line on: which of them share a line does
/// not depend on where the allocator put them, so a simulation with the same seed is the same.
pub struct Array<T> {
    lines: Box<[Line<[T; TOGETHER]>]>,
    len: usize,
}

impl<T> Array<T> {
    /// `len` elements, each made by `new`.
    pub fn new(len: usize, new: impl Fn() -> T) -> Self {
        let line = |_| Line(std::array::from_fn(|_| new()));
        Array { lines: (0..len.div_ceil(TOGETHER)).map(line).collect(), len }
    }

    /// How many there are.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.lines.iter().flat_map(|line| &line.0).take(self.len)
    }
}

impl<T> Index<usize> for Array<T> {
    type Output = T;
    #[inline]
    fn index(&self, at: usize) -> &T {
        assert!(at < self.len);
        &self.lines[at / TOGETHER].0[at % TOGETHER]
    }
}

/// `count` cells of value 0.
pub fn cells<M: Machine>(count: usize) -> Array<Cell<M>> {
    Array::new(count, || Cell::new(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use latchwork::machine::Native;

    #[test]
    fn an_array_begins_with_a_line_and_has_no_holes() {
        let array = cells::<Native>(40);
        let address = |at: usize| std::ptr::from_ref(&array[at]).addr();
        assert_eq!(address(0) % 128, 0);
        assert!((1..40).all(|at| address(at) == address(0) + 8 * at));
        assert_eq!((array.len(), array.iter().count(), array.is_empty()), (40, 40, false));
        array[39].add(3);
        assert_eq!(array.iter().map(Cell::get).sum::<u64>(), 3);
    }
}
