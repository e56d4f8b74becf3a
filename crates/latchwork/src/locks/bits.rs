//! A set of bits of a lock word.

use crate::machine::{Machine, Word};
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

    /// The bits that are in both sets.
    #[inline(always)]
    pub const fn only(self, bits: Bits) -> Bits {
        Bits(self.0 & bits.0)
    }
}
