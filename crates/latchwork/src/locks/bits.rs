//! The value of a lock word whose bits have names.

use crate::machine::{Machine, Word};
use core::sync::atomic::Ordering::Relaxed;

/// The value of a lock word. The names of its bits are plain numbers, so that the word's atomic operations take them too.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bits(pub u32);

impl Bits {
    /// The value of `word`, loaded relaxed.
    #[inline(always)]
    pub fn of<M: Machine>(word: &M::U32) -> Bits {
        Bits(word.load(Relaxed))
    }

    /// Whether any of `bits` is set.
    #[inline(always)]
    pub fn has(self, bits: u32) -> bool {
        self.0 & bits != 0
    }
}
