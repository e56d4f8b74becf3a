//! Buckets that are cache lines: the numbers of twelve elements, and seven bits of each one's hash.
//!
//! Source: David, Guerraoui and Trigonakis, "Asynchronized Concurrency: The Secret to Scaling Concurrent Search
//! Data Structures" (ASPLOS 2015), section 6.1, whose CLHT ("cache-line hash table") makes each bucket a line,
//! with further lines chained to it; the tags, all compared at once, are those of SwissTable (Kulukundis, CppCon
//! 2017) and Folly's F14 (Bronson and Shi 2019). CLHT keeps keys and values of a word each in the line; here they
//! are elsewhere, so that readers can have references to what is replaced meanwhile.
//!
//! A lookup reads the tags, in two words, and then reads only those elements whose tag is right: one line, and one element
//! if the key is there. (One lookup in 18 reads one more element, whose tag is right by chance.) Elements stay in their
//! slots, so a lookup beside updates finds each element that is there all the time. A bucket that is full gets a spare
//! line. There is one spare line for each eight buckets; when all are used, the table has to grow.
//!
//! State of a slot: empty (no tag; the number means nothing) -> full (`fill`) -> replaced, any number of times
//! (`replace`) -> empty (`clear`). Updates exclude each other.
//!
//! What pairs with what: (A) an update stores a tag (release), and a lookup loads the tags (acquire). (B) an update stores
//! a number (release), and a lookup loads it (acquire). (C) an update links a spare line (release), and a lookup follows
//! the link.
//! Size: 64 bytes for each bucket, and 8 for its share of the spare lines.

use super::array::Array;
use crate::machine::{Machine, Word};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Slots in a line, beside the tags and the link.
pub const SLOTS: usize = 12;
/// Buckets that share a spare line.
const SHARE: usize = 8;

/// The lowest bit of each byte.
const ONES: u64 = u64::from_ne_bytes([1; 8]);
/// The highest bit of each byte that is a tag, in each of a line's two words. A full slot has it set.
const FULL: [u64; 2] = [ONES << 7, (ONES << 7) & 0xffff_ffff];

/// A line: a bucket, or a part of one.
#[repr(C, align(64))]
struct Line<M: Machine> {
    /// A byte for each slot, 0 or [`tag`], and in the upper half of the second word the number of the next line,
    /// or 0.
    words: [M::U64; 2],
    slots: [M::U32; SLOTS],
}

/// The buckets of a shard.
pub struct Lines<M: Machine> {
    /// First those of the buckets, a power of two; then the spare ones.
    lines: Array<Line<M>>,
    buckets: usize,
    /// Bits of a hash that do not choose the bucket, because they have chosen something else.
    shift: u32,
    /// How many lines are in use. For updates alone.
    used: M::Usize,
}

/// Where an element is.
pub struct Place<'a, M: Machine> {
    line: &'a Line<M>,
    slot: usize,
    /// The element's number.
    pub element: u32,
}

/// The tag of a hash: the highest bits, because the lowest ones choose the bucket.
#[inline(always)]
fn tag(hash: u64) -> u64 {
    hash >> 57 | 0x80
}

/// The slots of which the bit is set in these words: the highest of the slot's byte.
#[inline(always)]
fn slots([first, second]: [u64; 2]) -> impl Iterator<Item = usize> {
    // Four bits further on for each slot of the first word, and in between those of the second.
    let mut marks = first >> 7 | second >> 3;
    core::iter::from_fn(move || {
        let at = marks.trailing_zeros() as usize;
        let there = marks != 0;
        marks &= marks.wrapping_sub(1);
        there.then_some(at / 8 + (at & 4) * 2)
    })
}

impl<M: Machine> Line<M> {
    fn new() -> Self {
        let (words, slots) = (|_| M::U64::new(0), |_| M::U32::new(0));
        Line { words: core::array::from_fn(words), slots: core::array::from_fn(slots) }
    }

    #[inline(always)]
    fn words(&self) -> [u64; 2] {
        // (A) pairs with the stores of tags in `fill` and `clear`.
        [self.words[0].load(Acquire), self.words[1].load(Acquire)]
    }

    /// The number in a slot. The caller has seen the slot's tag.
    #[inline(always)]
    fn element(&self, slot: usize) -> u32 {
        // (B) pairs with the stores of numbers. The slot holds the number that came with the tag, or a later one.
        // SAFETY: there are as many slots as tags.
        unsafe { self.slots.get_unchecked(slot) }.load(Acquire)
    }

    /// Fills an empty slot.
    fn fill(&self, slot: usize, tag: u64, element: u32) {
        // (B) A lookup that saw the slot's previous tag may read this number, and then the element.
        self.slots[slot].store(element, Release);
        let word = &self.words[slot / 8];
        // (A) A lookup that sees the tag sees the number, and the element. The other tags in the word are stored again
        // with it; those that they publish were stored by earlier updates, which happen before this one.
        word.store(word.load(Relaxed) | tag << (slot % 8 * 8), Release);
    }
}

impl<M: Machine> Lines<M> {
    /// Empty buckets, of which there are a power of two. The bucket is chosen by bits of the hash from
    /// `shift` on.
    pub fn new(buckets: usize, shift: u32) -> Self {
        assert!(buckets.is_power_of_two());
        let lines = Array::new(buckets + buckets.div_ceil(SHARE), |_| Line::new());
        Lines { lines, buckets, shift, used: M::Usize::new(buckets) }
    }

    /// How many buckets there are.
    pub fn buckets(&self) -> usize {
        self.buckets
    }

    #[inline(always)]
    fn bucket(&self, hash: u64) -> &Line<M> {
        let at = (hash >> self.shift) as usize & (self.buckets - 1);
        // SAFETY: `at` is below the number of buckets, a power of two.
        unsafe { self.lines.get_unchecked(at) }
    }

    /// The line that these words of a line link to.
    #[inline(always)]
    fn next(&self, words: [u64; 2]) -> Option<&Line<M>> {
        let next = (words[1] >> 32) as usize;
        // (C) pairs with the store of the link in `insert`.
        (next != 0).then(|| &self.lines[next])
    }

    /// The first element with this hash of which `wanted` returns `true`.
    #[inline(always)]
    pub fn find(&self, hash: u64, mut wanted: impl FnMut(u32) -> bool) -> Option<Place<'_, M>> {
        let (mut line, same) = (self.bucket(hash), tag(hash) * ONES);
        loop {
            let words = line.words();
            let marks = [0, 1].map(|at| {
                let differences = words[at] ^ same;
                // The bytes that are 0; and sometimes one that is 1, whose slot is full as well.
                differences.wrapping_sub(ONES) & !differences & FULL[at]
            });
            for slot in slots(marks) {
                let element = line.element(slot);
                if wanted(element) {
                    return Some(Place { line, slot, element });
                }
            }
            line = self.next(words)?;
        }
    }

    /// All elements.
    pub fn elements(&self) -> impl Iterator<Item = u32> {
        // Spare lines that are not in use have no tags.
        self.lines.iter().flat_map(|line| {
            let words = line.words();
            slots([words[0] & FULL[0], words[1] & FULL[1]]).map(|slot| line.element(slot))
        })
    }

    /// Puts an element into an empty slot. `false`: the bucket is full, and no spare line is left. The caller holds the
    /// shard's lock.
    #[must_use]
    pub fn insert(&self, hash: u64, element: u32) -> bool {
        let mut line = self.bucket(hash);
        loop {
            let words = line.words();
            if let Some(slot) = slots([!words[0] & FULL[0], !words[1] & FULL[1]]).next() {
                line.fill(slot, tag(hash), element);
                return true;
            }
            if let Some(next) = self.next(words) {
                line = next;
                continue;
            }
            let used = self.used.load(Relaxed);
            let Some(spare) = self.lines.get(used) else { return false };
            self.used.store(used + 1, Relaxed);
            spare.fill(0, tag(hash), element);
            // (C) A lookup that sees the link sees what is in the line.
            line.words[1].store(words[1] | (used as u64) << 32, Release);
            return true;
        }
    }
}

impl<M: Machine> Place<'_, M> {
    /// Puts another element, of the same hash, in its place. The caller holds the shard's lock.
    pub fn replace(&self, element: u32) {
        // (B) A lookup that reads the number sees the element.
        self.line.slots[self.slot].store(element, Release);
    }

    /// Empties the slot. The caller holds the shard's lock.
    pub fn clear(&self) {
        let word = &self.line.words[self.slot / 8];
        // (A) The other tags in the word are stored again with it, as in `fill`.
        word.store(word.load(Relaxed) & !(0xff << (self.slot % 8 * 8)), Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Native;
    use std::vec::Vec;

    /// A hash of bucket `bucket`, with a tag.
    fn hash(bucket: u64, tag: u64) -> u64 {
        bucket << 3 | tag << 57
    }

    #[test]
    fn an_element_is_found_by_its_tag_until_its_slot_is_emptied() {
        assert_eq!(size_of::<Line<Native>>(), 64);
        let lines = Lines::<Native>::new(4, 3);
        for tag in 0..SLOTS as u64 {
            assert!(lines.insert(hash(2, tag), 100 + tag as u32));
        }
        for tag in 0..SLOTS as u64 {
            let mut seen = Vec::new();
            let place = lines.find(hash(2, tag), |element| {
                seen.push(element);
                element == 100 + tag as u32
            });
            assert_eq!(place.unwrap().element, 100 + tag as u32);
            // One that differs in the lowest bit may be looked at too.
            assert!(seen.iter().all(|element| u64::from(element - 100) ^ tag <= 1), "{tag}: {seen:?}");
            assert!(lines.find(hash(1, tag), |_| true).is_none(), "another bucket");
        }
        lines.find(hash(2, 7), |element| element == 107).unwrap().replace(1007);
        lines.find(hash(2, 9), |element| element == 109).unwrap().clear();
        assert!(lines.find(hash(2, 9), |element| element == 109).is_none());
        let mut all: Vec<u32> = lines.elements().collect();
        all.sort_unstable();
        assert_eq!(all, [100, 101, 102, 103, 104, 105, 106, 108, 110, 111, 1007]);
        assert!(lines.insert(hash(2, 9), 2000), "into the slot that is empty");
        assert_eq!(lines.used.load(Relaxed), 4);
    }

    #[test]
    fn a_full_bucket_gets_spare_lines_while_there_are_some() {
        let lines = Lines::<Native>::new(16, 3);
        // Two spare lines.
        for element in 0..3 * SLOTS as u32 {
            assert!(lines.insert(hash(5, 77), element));
        }
        assert!(!lines.insert(hash(5, 77), 99), "there are no more");
        assert!(lines.insert(hash(6, 77), 99), "another bucket has room");
        for element in 0..3 * SLOTS as u32 {
            let place = lines.find(hash(5, 77), |found| found == element).unwrap();
            assert_eq!(place.element, element);
            place.clear();
        }
        assert_eq!(lines.elements().collect::<Vec<_>>(), [99]);
        assert!(lines.insert(hash(5, 77), 1), "a slot of the last line is empty");
    }
}
