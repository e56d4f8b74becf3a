//! The tags of a line: a byte for each slot, all of which are compared at once. [`Marks`] are the slots that a comparison finds.
//!
//! On x86-64 the two words of tags are one vector (SSE2, which every such processor has). Elsewhere each word is compared with
//! arithmetic. Both take words that were loaded before: the loads are atomic, and belong to the line.

use core::marker::PhantomData;

/// The tag of a hash: the highest bits, because the lowest ones choose the bucket.
#[inline(always)]
pub fn tag(hash: u64) -> u64 {
    hash >> 57 | 0x80
}

/// A way to compare tags. Each of its results has a bit for each slot.
pub trait Comparison {
    /// The bits of all slots.
    const ALL: u64;
    /// The slots that have a tag.
    fn full(words: [u64; 2]) -> u64;
    /// The slots that have this tag, and perhaps others that have a tag.
    fn same(words: [u64; 2], tag: u64) -> u64;
    /// The slot that a bit stands for.
    fn slot(bit: usize) -> usize;
}

/// The comparison that is used.
#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
type Best = vector::Vector;
#[cfg(not(all(target_arch = "x86_64", target_feature = "sse2")))]
type Best = words::Words;

/// Slots of a line.
pub struct Marks<C = Best>(u64, PhantomData<C>);

impl<C: Comparison> Marks<C> {
    /// The slots that have a tag.
    #[inline(always)]
    pub fn full(words: [u64; 2]) -> Self {
        Marks(C::full(words), PhantomData)
    }

    /// The slots that have none.
    #[inline(always)]
    pub fn empty(words: [u64; 2]) -> Self {
        Marks(C::full(words) ^ C::ALL, PhantomData)
    }

    /// The slots that have this tag, and sometimes one whose tag differs in the lowest bit.
    #[inline(always)]
    pub fn same(words: [u64; 2], tag: u64) -> Self {
        Marks(C::same(words, tag), PhantomData)
    }
}

impl<C: Comparison> Iterator for Marks<C> {
    type Item = usize;

    #[inline(always)]
    fn next(&mut self) -> Option<usize> {
        let bit = self.0.trailing_zeros() as usize;
        let there = self.0 != 0;
        self.0 &= self.0.wrapping_sub(1);
        there.then_some(C::slot(bit))
    }
}

#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
mod vector {
    use super::Comparison;
    use crate::map::lines::SLOTS;
    use core::arch::x86_64::{_mm_cmpeq_epi8, _mm_movemask_epi8, _mm_set_epi64x, _mm_set1_epi8};

    /// In one vector.
    pub struct Vector;

    impl Comparison for Vector {
        const ALL: u64 = (1 << SLOTS) - 1;

        #[inline(always)]
        fn full(words: [u64; 2]) -> u64 {
            // SAFETY: the target has SSE2.
            let highest = unsafe { _mm_movemask_epi8(_mm_set_epi64x(words[1] as i64, words[0] as i64)) };
            highest as u64 & Self::ALL
        }

        #[inline(always)]
        fn same(words: [u64; 2], tag: u64) -> u64 {
            // SAFETY: the target has SSE2.
            let same = unsafe {
                let words = _mm_set_epi64x(words[1] as i64, words[0] as i64);
                _mm_movemask_epi8(_mm_cmpeq_epi8(words, _mm_set1_epi8(tag as i8)))
            };
            same as u64 & Self::ALL
        }

        #[inline(always)]
        fn slot(bit: usize) -> usize {
            bit
        }
    }
}

#[cfg(any(test, not(all(target_arch = "x86_64", target_feature = "sse2"))))]
mod words {
    use super::Comparison;

    /// The lowest bit of each byte.
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    /// The highest bit of each byte that is a tag, in each of a line's two words. A full slot has it set.
    const FULL: [u64; 2] = [ONES << 7, (ONES << 7) & 0xffff_ffff];

    /// Word by word.
    pub struct Words;

    /// Of each byte the highest bit: four bits further on for each slot of the first word, and in between those of the second.
    #[inline(always)]
    const fn bits([first, second]: [u64; 2]) -> u64 {
        first >> 7 | second >> 3
    }

    impl Comparison for Words {
        const ALL: u64 = bits(FULL);

        #[inline(always)]
        fn full(words: [u64; 2]) -> u64 {
            bits([words[0] & FULL[0], words[1] & FULL[1]])
        }

        #[inline(always)]
        fn same(words: [u64; 2], tag: u64) -> u64 {
            bits([0, 1].map(|at| {
                let differences = words[at] ^ (tag * ONES);
                // The bytes that are 0; and sometimes one that is 1, whose slot is full as well.
                differences.wrapping_sub(ONES) & !differences & FULL[at]
            }))
        }

        #[inline(always)]
        fn slot(bit: usize) -> usize {
            bit / 8 + (bit & 4) * 2
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::map::lines::SLOTS;
    use std::vec::Vec;

    /// Bytes of tags, with runs of the same tag and of empty slots, and a link behind them.
    fn lines() -> impl Iterator<Item = [u8; 16]> {
        let mut random = 1u64;
        (0..2000).map(move |_| {
            core::array::from_fn(|at| {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                match random >> 40 {
                    bits if at >= SLOTS => bits as u8,
                    bits if bits & 3 == 0 => 0,
                    bits => 0x80 | (bits >> 8) as u8 & 3,
                }
            })
        })
    }

    fn check<C: Comparison>(exact: bool) {
        for line in lines() {
            let words = [0, 8].map(|at| u64::from_le_bytes(line[at..at + 8].try_into().unwrap()));
            let slots = |wanted: &dyn Fn(u8) -> bool| -> Vec<usize> {
                (0..SLOTS).filter(|slot| wanted(line[*slot])).collect()
            };
            let sorted = |marks: Marks<C>| {
                let mut found: Vec<usize> = marks.collect();
                found.sort_unstable();
                found
            };
            assert_eq!(sorted(Marks::full(words)), slots(&|byte| byte != 0), "{line:x?}");
            assert_eq!(sorted(Marks::empty(words)), slots(&|byte| byte == 0), "{line:x?}");
            for tag in 0x80..0x84 {
                let (found, same) = (sorted(Marks::same(words, tag)), slots(&|byte| u64::from(byte) == tag));
                assert!(same.iter().all(|slot| found.contains(slot)), "{line:x?}: {found:?}");
                let near = |slot: &usize| u64::from(line[*slot]) ^ tag <= 1;
                assert!(found.iter().all(near) && (!exact || found == same), "{line:x?}: {found:?}");
            }
        }
    }

    #[test]
    fn tags_are_compared_word_by_word() {
        check::<words::Words>(false);
    }

    #[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
    #[test]
    fn tags_are_compared_in_a_vector() {
        check::<vector::Vector>(true);
    }
}
