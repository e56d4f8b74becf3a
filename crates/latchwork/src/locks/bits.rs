//! A set of bits of a lock word.

use crate::machine::{Arith, Machine, Word};
use core::sync::atomic::Ordering::Relaxed;

/// A set of bits: the value of a lock word, or some of its bits.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bits(pub u32);

impl Bits {
    /// The value of `word`. Relaxed.
    #[inline(always)]
    pub fn of<M: Machine>(word: &M::U32) -> Bits {
        Bits(word.load(Relaxed))
    }

    /// Sets these bits in `word` atomically, and returns its value before. Relaxed.
    #[inline(always)]
    pub fn set_in<M: Machine>(self, word: &M::U32) -> Bits {
        Bits(word.fetch_or(self.0, Relaxed))
    }

    /// Whether any bit of `bits` is in the set.
    #[inline(always)]
    pub const fn has(self, bits: Bits) -> bool {
        self.0 & bits.0 != 0
    }

    /// The set and `bits`.
    #[inline(always)]
    pub const fn with(self, bits: Bits) -> Bits {
        Bits(self.0 | bits.0)
    }

    /// The set without `bits`.
    #[inline(always)]
    pub const fn without(self, bits: Bits) -> Bits {
        Bits(self.0 & !bits.0)
    }

    /// The bits that are in both sets.
    #[inline(always)]
    pub const fn only(self, bits: Bits) -> Bits {
        Bits(self.0 & bits.0)
    }
}
