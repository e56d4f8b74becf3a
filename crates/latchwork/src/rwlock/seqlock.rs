//! Sequence lock: readers write nothing at all, and read again if somebody wrote meanwhile.
//!
//! Source: Lameter, "Effective synchronization on Linux/NUMA systems", Gelato 2005; its orderings as in Boehm,
//! "Can seqlocks get along with programming language memory models?", MSPC 2012.
//!
//! A counter is odd while somebody writes. A reader notes an even value, copies the data, and looks whether
//! the counter still has that value. So this is no lock for readers: they cannot hold it, only copy what it
//! protects, which is a few words; and it is not in the registry, whose locks must be held.
//!
//! State: `sequence`: even -> odd (a writer begins) -> even (it ends). Writers exclude each other by a mutex.
//! Size: 4 bytes, the mutex, and the data. Atomics: read 0, write as the mutex.
//! Fairness: writers as the mutex. A reader is kept from finishing by writers that come often enough.

use crate::machine::{Machine, Native, Word};
use crate::mutex::{ConstNew, RawMutex};
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering::*};

/// Words that are read without being locked; writers exclude each other by `L`. See the
/// [module documentation](self).
pub struct SeqLock<L: RawMutex, const WORDS: usize> {
    sequence: <L::Machine as Machine>::U32,
    mutex: L,
    words: [<L::Machine as Machine>::Usize; WORDS],
}

impl<L: RawMutex<Machine = Native> + ConstNew, const WORDS: usize> SeqLock<L, WORDS> {
    /// One that holds `words`.
    ///
    /// ```
    /// static POSITION: latchwork::SeqLock<2> = latchwork::SeqLock::new([0, 0]);
    /// POSITION.write(|[x, y]| (*x, *y) = (3, 4));
    /// assert_eq!(POSITION.read(), [3, 4]);
    /// ```
    pub const fn new(words: [usize; WORDS]) -> Self {
        let mut data = [const { AtomicUsize::new(0) }; WORDS];
        let mut i = 0;
        while i < WORDS {
            data[i] = AtomicUsize::new(words[i]);
            i += 1;
        }
        SeqLock { sequence: AtomicU32::new(0), mutex: L::NEW, words: data }
    }
}

impl<L: RawMutex, const WORDS: usize> SeqLock<L, WORDS> {
    /// One that holds zeroes, on any machine.
    pub fn new_in() -> Self {
        SeqLock { sequence: Word::new(0), mutex: L::new_in(), words: core::array::from_fn(|_| Word::new(0)) }
    }

    /// A copy, of one moment.
    #[inline]
    pub fn read(&self) -> [usize; WORDS] {
        loop {
            if let Some(copy) = self.try_read() {
                return copy;
            }
            L::Machine::spin_until(&self.sequence, Relaxed, |sequence| sequence.is_multiple_of(2));
        }
    }

    /// A copy, unless somebody writes meanwhile.
    #[inline]
    pub fn try_read(&self) -> Option<[usize; WORDS]> {
        // (A) pairs with the end of a write: we see its words, or later ones.
        let before = self.sequence.load(Acquire);
        if !before.is_multiple_of(2) {
            return None;
        }
        // (B) pairs with the stores of a write: who reads one of its words sees the odd number below.
        let copy = core::array::from_fn(|i| self.words[i].load(Acquire));
        (self.sequence.load(Relaxed) == before).then_some(copy)
    }

    /// Changes the words.
    pub fn write<T>(&self, change: impl FnOnce(&mut [usize; WORDS]) -> T) -> T {
        let _writing = Unlock(&self.mutex, self.mutex.lock());
        let mut copy = core::array::from_fn(|i| self.words[i].load(Relaxed));
        // What may panic comes before the number is odd.
        let result = change(&mut copy);
        let sequence = self.sequence.load(Relaxed);
        self.sequence.store(sequence.wrapping_add(1), Relaxed);
        for (word, value) in self.words.iter().zip(copy) {
            word.store(value, Release); // (B)
        }
        self.sequence.store(sequence.wrapping_add(2), Release); // (A)
        result
    }
}

/// Unlocks, whatever happens.
struct Unlock<'a, L: RawMutex>(&'a L, L::Token);

impl<L: RawMutex> Drop for Unlock<'_, L> {
    fn drop(&mut self) {
        // SAFETY: made with the token of an acquisition, which ends here.
        unsafe { self.0.unlock(self.1) };
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    #[test]
    fn copies_are_of_one_moment() {
        static PAIR: crate::SeqLock<2> = crate::SeqLock::new([0, 0]);
        const ROUNDS: usize = 2000;
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..ROUNDS {
                        PAIR.write(|[a, b]| (*a, *b) = (*a + 1, *b + 1));
                    }
                });
            }
            let mut last = 0;
            while last < 2 * ROUNDS {
                let [a, b] = PAIR.read();
                assert!(a == b && a >= last);
                last = a;
            }
        });
        assert_eq!(PAIR.try_read(), Some([2 * ROUNDS; 2]));
    }
}
