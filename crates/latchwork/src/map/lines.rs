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
use super::tags::{Marks, tag};
use crate::machine::{Machine, Word};
use core::marker::PhantomData;
use core::ops::Range;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Slots in a line, beside the tags and the link.
pub const SLOTS: usize = 12;
/// Buckets that share a spare line.
const SHARE: usize = 8;

/// A line: a bucket, or a part of one.
#[repr(C, align(64))]
pub struct Line<M: Machine> {
    /// A byte for each slot, 0 or [`tag`], and in the upper half of the second word the number of the next line,
    /// or 0.
    words: [M::U64; 2],
    slots: [M::U32; SLOTS],
}

/// The buckets of a shard. One word says all that a lookup needs: where the first line is, how many buckets there are,
/// and which bits of a hash choose among them. So a lookup reads that word, and then the line.
///
/// The lines begin at a multiple of 128 bytes, so the 7 lowest bits of their address are free: the word has the binary
/// logarithm of the number of buckets there. Linux gives a process no address of more than 56 bits, so the 8 highest bits
/// are free as well: they say how many of the lowest bits of a hash have chosen the shard.
pub struct Lines<'a, M: Machine> {
    word: *mut Line<M>,
    life: PhantomData<&'a Line<M>>,
}

// SAFETY: lines are words that any thread may load; stores are for the holder of the shard's lock.
unsafe impl<M: Machine> Send for Lines<'_, M> {}
// SAFETY: a shared `Lines` loads words, which any thread may do.
unsafe impl<M: Machine> Sync for Lines<'_, M> {}

impl<M: Machine> Clone for Lines<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: Machine> Copy for Lines<'_, M> {}

/// Bits of the word that say how many buckets there are.
const SIZE: usize = 0x7f;
/// The lowest of the bits of the word that say which bits choose the bucket.
const DEPTH: u32 = usize::BITS - 8;

/// Where an element is.
pub struct Place<'a, M: Machine> {
    line: &'a Line<M>,
    slot: usize,
    /// The element's number.
    pub element: u32,
}

/// An empty slot, for an element with this hash.
pub struct Vacancy<'a, M: Machine> {
    line: &'a Line<M>,
    slot: usize,
    hash: u64,
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

impl<'a, M: Machine> Lines<'a, M> {
    /// Empty buckets, of which there are a power of two. The bucket is chosen by bits of the hash from `depth` on. To be
    /// given to [`free`](Lines::free) in the end.
    pub fn make(buckets: usize, depth: u32) -> Self {
        assert!(buckets.is_power_of_two() && depth < 56, "more buckets than memory has room for");
        let lines = Array::new(Self::total(buckets), |_| Line::<M>::new()).into_first();
        let tags = buckets.ilog2() as usize | (depth as usize) << DEPTH;
        assert!(lines.addr() & (SIZE | 0xff << DEPTH) == 0, "an address of more than 56 bits");
        Lines { word: lines.map_addr(|address| address | tags), life: PhantomData }
    }

    /// How many lines there are with so many buckets, the spare ones included.
    fn total(buckets: usize) -> usize {
        buckets.saturating_add(buckets.div_ceil(SHARE))
    }

    /// The buckets as one word.
    #[inline(always)]
    pub fn into_word(self) -> *mut Line<M> {
        self.word
    }

    /// The buckets that a word stands for.
    ///
    /// # Safety
    ///
    /// The word is from [`into_word`](Lines::into_word), and the buckets are not freed during `'a`.
    #[inline(always)]
    pub unsafe fn from_word(word: *mut Line<M>) -> Self {
        Lines { word, life: PhantomData }
    }

    /// Frees the lines.
    ///
    /// # Safety
    ///
    /// No thread uses them, and they are freed once.
    pub unsafe fn free(self) {
        // SAFETY: `make` made the array with this length; no thread uses it, says the caller.
        drop(unsafe { Array::from_first(self.first(), Self::total(self.buckets())) });
    }

    #[inline(always)]
    fn first(self) -> *mut Line<M> {
        self.word.map_addr(|address| address & !SIZE & !(0xff << DEPTH))
    }

    /// A line.
    ///
    /// # Safety
    ///
    /// `at` is below [`total`](Lines::total).
    #[inline(always)]
    unsafe fn line(self, at: usize) -> &'a Line<M> {
        // SAFETY: the line is within the array, says the caller. The array is not freed during `'a` (`from_word`).
        unsafe { &*self.first().add(at) }
    }

    /// How many buckets there are.
    #[inline(always)]
    pub fn buckets(self) -> usize {
        1 << (self.word.addr() & SIZE)
    }

    /// How many lines there are.
    pub fn lines(self) -> usize {
        Self::total(self.buckets())
    }

    /// How many of the lowest bits of a hash have chosen the shard.
    #[inline(always)]
    pub fn depth(self) -> u32 {
        (self.word.addr() >> DEPTH) as u32
    }

    #[inline(always)]
    fn bucket(self, hash: u64) -> &'a Line<M> {
        // SAFETY: the index is below the number of buckets, a power of two.
        unsafe { self.line(self.index(hash)) }
    }

    /// Which bucket a hash has.
    #[inline(always)]
    fn index(self, hash: u64) -> usize {
        (hash >> self.depth()) as usize & (self.buckets() - 1)
    }

    /// The address of a hash's bucket in buckets that may have been freed.
    #[inline(always)]
    pub fn address(word: *mut Line<M>, hash: u64) -> *const Line<M> {
        let lines = Lines::<M> { word, life: PhantomData };
        lines.first().wrapping_add(lines.index(hash))
    }

    /// The line that these words of a line link to.
    #[inline(always)]
    fn next(self, words: [u64; 2]) -> Option<&'a Line<M>> {
        let next = (words[1] >> 32) as usize;
        // (C) pairs with the store of the link in `insert`. SAFETY: `insert` links lines of this array alone.
        (next != 0).then(|| unsafe { self.line(next) })
    }

    /// The first element with this hash of which `wanted` returns `true`.
    #[inline(always)]
    pub fn find(self, hash: u64, mut wanted: impl FnMut(u32) -> bool) -> Option<Place<'a, M>> {
        let (mut line, tag) = (self.bucket(hash), tag(hash));
        loop {
            let words = line.words();
            for slot in <Marks>::same(words, tag) {
                let element = line.element(slot);
                if wanted(element) {
                    return Some(Place { line, slot, element });
                }
            }
            line = self.next(words)?;
        }
    }

    /// All elements.
    pub fn elements(self) -> impl Iterator<Item = u32> + use<'a, M> {
        self.elements_of(0..self.lines())
    }

    /// The elements in some of the lines.
    pub fn elements_of(self, lines: Range<usize>) -> impl Iterator<Item = u32> + use<'a, M> {
        self.places_of(lines).map(|place| place.element)
    }

    /// The elements in some of the lines, with their slots.
    pub fn places_of(self, lines: Range<usize>) -> impl Iterator<Item = Place<'a, M>> + use<'a, M> {
        assert!(lines.end <= self.lines());
        // Spare lines that are not in use have no tags.
        lines.flat_map(move |at| {
            // SAFETY: `at` is below the number of lines, as was checked.
            let line = unsafe { self.line(at) };
            let words = line.words();
            <Marks>::full(words).map(|slot| Place { line, slot, element: line.element(slot) })
        })
    }

    /// The elements of a bucket.
    pub fn elements_in(self, bucket: usize) -> impl Iterator<Item = u32> + use<'a, M> {
        assert!(bucket < self.buckets());
        // SAFETY: there are more lines than buckets.
        let first = unsafe { self.line(bucket) };
        core::iter::successors(Some(first), move |line| self.next(line.words())).flat_map(|line| {
            let words = line.words();
            <Marks>::full(words).map(|slot| line.element(slot))
        })
    }

    /// An empty slot. `spare` is how many spare lines are in use. `None`: the bucket is full, and no spare line is left. The
    /// caller holds the shard's lock.
    #[inline]
    pub fn vacancy(self, hash: u64, spare: &mut usize) -> Option<Vacancy<'a, M>> {
        let mut line = self.bucket(hash);
        loop {
            let words = line.words();
            if let Some(slot) = <Marks>::empty(words).next() {
                return Some(Vacancy { line, slot, hash });
            }
            line = match self.next(words) {
                Some(next) => next,
                None => self.lengthen(line, spare)?,
            }
        }
    }

    /// Links a spare line to the last one of a bucket.
    #[cold]
    fn lengthen(self, last: &Line<M>, spare: &mut usize) -> Option<&'a Line<M>> {
        let at = self.buckets() + *spare;
        if at == self.lines() {
            return None;
        }
        *spare += 1;
        // (C) A lookup that sees the link sees the line, which is empty.
        last.words[1].store(last.words[1].load(Relaxed) | (at as u64) << 32, Release);
        // SAFETY: `at` is below the number of lines, as was checked.
        Some(unsafe { self.line(at) })
    }

    /// Puts an element into an empty slot. `false`: there is none.
    #[must_use]
    pub fn insert(self, hash: u64, element: u32, spare: &mut usize) -> bool {
        self.vacancy(hash, spare).map(|vacancy| vacancy.fill(element)).is_some()
    }
}

impl<'a, M: Machine> Vacancy<'a, M> {
    /// Puts an element into the slot. The caller has held the shard's lock since it found the slot.
    #[inline(always)]
    pub fn fill(self, element: u32) -> Place<'a, M> {
        self.line.fill(self.slot, tag(self.hash), element);
        Place { line: self.line, slot: self.slot, element }
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
        let lines = Lines::<Native>::make(4, 3);
        let mut spare = 0;
        assert_eq!((lines.buckets(), lines.depth(), lines.lines()), (4, 3, 5));
        for tag in 0..SLOTS as u64 {
            assert!(lines.insert(hash(2, tag), 100 + tag as u32, &mut spare));
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
        assert!(lines.insert(hash(2, 9), 2000, &mut spare), "into the slot that is empty");
        assert_eq!(spare, 0);
        // SAFETY: no other thread has them.
        unsafe { lines.free() };
    }

    #[test]
    fn a_full_bucket_gets_spare_lines_while_there_are_some() {
        let lines = Lines::<Native>::make(16, 3);
        // Two spare lines.
        let mut spare = 0;
        for element in 0..3 * SLOTS as u32 {
            assert!(lines.insert(hash(5, 77), element, &mut spare));
        }
        assert!(!lines.insert(hash(5, 77), 99, &mut spare), "there are no more");
        assert!(lines.insert(hash(6, 77), 99, &mut spare), "another bucket has room");
        for element in 0..3 * SLOTS as u32 {
            let place = lines.find(hash(5, 77), |found| found == element).unwrap();
            assert_eq!(place.element, element);
            place.clear();
        }
        assert_eq!(lines.elements().collect::<Vec<_>>(), [99]);
        assert!(lines.insert(hash(5, 77), 1, &mut spare), "a slot of the last line is empty");
        assert_eq!(lines.elements_in(5).collect::<Vec<_>>(), [1]);
        // SAFETY: no other thread has them.
        unsafe { lines.free() };
    }
}
