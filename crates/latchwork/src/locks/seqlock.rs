//! Sequence lock: readers write nothing at all, and read again if somebody wrote meanwhile.
//!
//! Source: Lameter, "Effective synchronization on Linux/NUMA systems", Gelato 2005; its orderings as in Boehm,
//! "Can seqlocks get along with programming language memory models?", MSPC 2012. That a reader whom writers
//! outpace takes their mutex in the end is Linux's `read_seqbegin_or_lock`.
//!
//! A counter is odd while somebody writes. A reader notes an even value, copies the data, and looks whether
//! the counter still has that value. So this is no lock for readers: they cannot hold it, only copy what it
//! protects, which is a few words; and it is neither a [`RawMutex`] nor a
//! [`RawRwLock`](crate::locks::rwlock::RawRwLock), whose readers hold them. In the registry it is a kind of its own.
//!
//! State: `sequence`: even -> odd (a writer begins to store) -> even (it is done). Writers exclude each other by a
//! mutex, and so does a reader after [`ATTEMPTS`] copies in vain.
//! Size: 4 bytes, the mutex, and the data. Atomics: read 0, write as the mutex.
//! Fairness: writers as the mutex. A reader makes at most `ATTEMPTS` copies, then waits as a writer does.
//! Limit: a reader that is held up within a copy while a multiple of 2^31 writes go by takes its copy for
//! one of one moment, as Linux's does.

use crate::locks::mutex::{ConstNew, Info, RawMutex};
use crate::machine::{Machine, Native, Word};
use core::fmt;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering::*};

/// Copies of a reader before it waits for its turn among the writers.
pub const ATTEMPTS: u32 = 16;

/// Looks at an odd number before it does: who stores a few words and is not done by then does not run.
const LOOKS: u32 = 256;

/// Why it cannot be had where a lock for readers is asked for.
pub const NOT_HELD: &str =
    "readers copy what a sequence lock protects, and again if somebody wrote meanwhile: they cannot hold it";

/// Words that are read without being locked; writers exclude each other by `L`. See the
/// [module documentation](self).
pub struct SeqLock<L: RawMutex, const WORDS: usize> {
    lock: RawSeqLock<L>,
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
        SeqLock { lock: RawSeqLock { sequence: AtomicU32::new(0), mutex: L::NEW }, words: data }
    }
}

impl<L: ConstNew, const WORDS: usize> Default for SeqLock<L, WORDS> {
    /// Zeroes.
    fn default() -> Self {
        Self::new([0; WORDS])
    }
}

impl<L: ConstNew, const WORDS: usize> From<[usize; WORDS]> for SeqLock<L, WORDS> {
    fn from(words: [usize; WORDS]) -> Self {
        Self::new(words)
    }
}

impl<L: RawMutex, const WORDS: usize> fmt::Debug for SeqLock<L, WORDS> {
    /// The words, unless a thread writes them at this moment.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.try_read() {
            Some(words) => f.debug_tuple("SeqLock").field(&words).finish(),
            None => f.debug_tuple("SeqLock").field(&format_args!("<written>")).finish(),
        }
    }
}

impl<L: RawMutex, const WORDS: usize> SeqLock<L, WORDS> {
    /// One that holds zeroes, on any machine.
    pub fn new_in() -> Self {
        SeqLock { lock: RawSeqLock::new_in(), words: core::array::from_fn(|_| Word::new(0)) }
    }

    /// A copy, of one moment. It waits for a writer only if writers come faster than copies are made.
    #[inline]
    pub fn read(&self) -> [usize; WORDS] {
        let mut copy = [0; WORDS];
        self.lock.read(&self.words, &mut copy, || ());
        copy
    }

    /// A copy, unless somebody writes meanwhile. Never waits: also for a signal's handler.
    #[inline]
    pub fn try_read(&self) -> Option<[usize; WORDS]> {
        let mut copy = [0; WORDS];
        self.lock.try_read(&self.words, &mut copy).then_some(copy)
    }

    /// Changes the words. Readers go on while `change` computes, and see none of it if it panics.
    pub fn write<T>(&self, change: impl FnOnce(&mut [usize; WORDS]) -> T) -> T {
        let writing = self.lock.write();
        let mut copy = [0; WORDS];
        writing.load(&self.words, &mut copy);
        let result = change(&mut copy);
        writing.store(&self.words, &copy);
        result
    }
}

/// A sequence lock whose words are elsewhere: which, and how many, is what its user always says the same.
pub struct RawSeqLock<L: RawMutex> {
    sequence: <L::Machine as Machine>::U32,
    mutex: L,
}

/// Words of the machine that `L` runs on.
type Words<L> = [<<L as RawMutex>::Machine as Machine>::Usize];

impl<L: RawMutex> RawSeqLock<L> {
    /// Its description.
    pub const INFO: Info = Info {
        name: "seqlock",
        summary: "sequence lock: readers hold nothing, they copy a few words, again if somebody wrote meanwhile",
        atomics: 0,
        waiter_bytes: L::INFO.waiter_bytes,
        holder_bytes: 0,
        fairness: "writers as their mutex, shfl; a reader makes 16 copies at most, then waits with the writers",
        blocking: L::INFO.blocking,
        suspension: L::INFO.suspension,
        source: "Lameter 2005; Boehm 2012",
    };

    /// One that nobody writes.
    pub fn new_in() -> Self {
        RawSeqLock { sequence: Word::new(0), mutex: L::new_in() }
    }

    /// Copies `words`, all of one moment, to `copy`. Calls `again` for each copy that was in vain.
    #[inline]
    pub fn read(&self, words: &Words<L>, copy: &mut [usize], again: impl FnMut()) {
        if !self.try_read(words, copy) {
            self.read_again(words, copy, again);
        }
    }

    #[cold]
    fn read_again(&self, words: &Words<L>, copy: &mut [usize], mut again: impl FnMut()) {
        for _ in 1..=L::Machine::patience(ATTEMPTS - 1) {
            again();
            let even = |sequence: u32| sequence.is_multiple_of(2);
            if L::Machine::spin_for(&self.sequence, Relaxed, LOOKS, even).is_none() {
                break;
            }
            if self.try_read(words, copy) {
                return;
            }
        }
        self.write().load(words, copy);
    }

    /// Copies `words` to `copy`, and returns whether that was all of one moment: nobody wrote meanwhile.
    #[inline]
    pub fn try_read(&self, words: &Words<L>, copy: &mut [usize]) -> bool {
        // (A) pairs with the end of a write: we see its words, or later ones.
        let before = self.sequence.load(Acquire);
        if !before.is_multiple_of(2) {
            return false;
        }
        for (copy, word) in copy.iter_mut().zip(words) {
            // (B) pairs with the stores of a write: who reads one of its words sees the odd number.
            *copy = word.load(Acquire);
        }
        self.sequence.load(Relaxed) == before
    }

    /// Keeps other writers out; readers go on.
    #[inline]
    pub fn write(&self) -> Writing<'_, L> {
        Writing { lock: self, token: self.mutex.lock() }
    }
}

/// The one who may write.
pub struct Writing<'a, L: RawMutex> {
    lock: &'a RawSeqLock<L>,
    token: L::Token,
}

impl<L: RawMutex> Writing<'_, L> {
    /// Copies `words` to `copy`.
    #[inline]
    pub fn load(&self, words: &Words<L>, copy: &mut [usize]) {
        for (copy, word) in copy.iter_mut().zip(words) {
            *copy = word.load(Relaxed); // the mutex orders it
        }
    }

    /// Stores `values` to `words`, in one moment.
    #[inline]
    pub fn store(&self, words: &Words<L>, values: &[usize]) {
        let sequence = &self.lock.sequence;
        let even = sequence.load(Relaxed);
        sequence.store(even.wrapping_add(1), Relaxed);
        for (word, value) in words.iter().zip(values) {
            word.store(*value, Release); // (B)
        }
        sequence.store(even.wrapping_add(2), Release); // (A)
    }
}

impl<L: RawMutex> Drop for Writing<'_, L> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: made with the token of an acquisition, which ends here.
        unsafe { self.lock.mutex.unlock(self.token) };
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

    /// A reader that finds a writer in the middle of its stores, and not running, waits for it asleep.
    #[test]
    fn a_reader_waits_for_a_writer_that_does_not_run() {
        use super::*;
        use crate::locks::mutex::shfl::RawShfl;
        let pair = SeqLock::<RawShfl<Native>, 2>::new([1, 1]);
        let writing = pair.lock.write();
        assert_eq!(pair.read(), [1, 1], "it has not stored anything yet");
        pair.lock.sequence.store(1, Relaxed);
        pair.words[0].store(2, Release);
        assert_eq!(pair.try_read(), None);
        thread::scope(|scope| {
            let reader = scope.spawn(|| pair.read());
            thread::sleep(std::time::Duration::from_millis(20));
            assert!(!reader.is_finished());
            pair.words[1].store(2, Release);
            pair.lock.sequence.store(2, Release);
            drop(writing);
            assert_eq!(reader.join().unwrap(), [2, 2]);
        });
        assert_eq!(pair.read(), [2, 2]);
    }

    #[test]
    fn a_panic_changes_nothing() {
        static PAIR: crate::SeqLock<2> = crate::SeqLock::new([3, 4]);
        let panics = || {
            PAIR.write(|[x, _]| {
                *x = 5;
                panic!("while it computes");
            })
        };
        std::panic::catch_unwind(panics).unwrap_err();
        assert_eq!(PAIR.read(), [3, 4]);
        PAIR.write(|[_, y]| *y = 6);
        assert_eq!(PAIR.try_read(), Some([3, 6]));
    }
}
