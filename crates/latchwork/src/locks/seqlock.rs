//! Sequence lock: readers write nothing at all, and read again if a writer has stored meanwhile.
//!
//! # Source
//!
//! Lameter, "Effective synchronization on Linux/NUMA systems", Gelato 2005. The orderings are as in Boehm, "Can seqlocks get
//! along with programming language memory models?", MSPC 2012. A reader that writers outpace takes their mutex in the end, as
//! Linux's `read_seqbegin_or_lock` does.
//!
//! # Idea
//!
//! A counter is odd while a writer stores. A reader notes an even value, copies the data, and looks whether the counter still
//! has that value. So this is no lock for readers: they copy what it protects, a few words, and hold nothing. Therefore it is
//! neither a [`RawMutex`] nor a [`RawRwLock`](crate::locks::rwlock::RawRwLock), and is a kind of its own in the registry.
//!
//! # States
//!
//! | `sequence` | meaning | which thread changes it |
//! |---|---|---|
//! | even | the words are those of one moment | a writer that begins to store: to odd |
//! | odd | a writer stores the words | that writer, when it is done: to the next even number |
//!
//! Writers exclude each other by a mutex. A reader takes that mutex too, after [`ATTEMPTS`] copies that a writer has spoilt.
//!
//! # Orderings
//!
//! | pair | one side | other side |
//! |---|---|---|
//! | (A) | the writer makes `sequence` even, release | the reader's first look at `sequence`, acquire: it sees that write's words, or later ones |
//! | (B) | the writer stores a word, release, after it has made `sequence` odd | a reader that copies this word, acquire, sees the odd number, or a later one, at its second look |
//!
//! # Properties
//!
//! - Size: 4 bytes, the mutex, and the data.
//! - Atomic read-modify-writes: read 0, write as the mutex.
//! - Fairness: writers as the mutex. A reader makes at most `ATTEMPTS` copies and then waits as a writer does.
//! - Suspension: a writer that is suspended while it stores holds the lock; readers then wait for its mutex.
//! - Limit: a reader that is held up within a copy while an exact multiple of 2^31 writes go by does not notice them. Linux's
//!   readers have the same limit.

use crate::locks::mutex::{ConstNew, Info, RawMutex};
use crate::machine::{Machine, Native, Word};
use core::fmt;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering::*};

/// Copies of a reader before it waits for its turn among the writers: a bound on its work, and on its starvation.
pub const ATTEMPTS: u32 = 16;

/// Looks at an odd number before it does. A writer needs far less time to store a few words, unless it is preempted.
const LOOKS: u32 = 256;

/// What a command says to a user that asks for a sequence lock where readers must hold the lock.
pub const NOT_HELD: &str =
    "readers copy what a sequence lock protects, and again if somebody wrote meanwhile: they cannot hold it";

/// Words that readers copy without locking them; writers exclude each other by `L`. See the [module documentation](self).
pub struct SeqLock<L: RawMutex, const WORDS: usize> {
    lock: RawSeqLock<L>,
    words: [<L::Machine as Machine>::Usize; WORDS],
}

impl<L: RawMutex<Machine = Native> + ConstNew, const WORDS: usize> SeqLock<L, WORDS> {
    /// A sequence lock that protects `words`.
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
    /// A sequence lock that protects zeroes, on any machine.
    pub fn new_in() -> Self {
        SeqLock { lock: RawSeqLock::new_in(), words: core::array::from_fn(|_| Word::new(0)) }
    }

    /// Copies the words, all of one moment. The reader waits for writers only if they come faster than it makes copies.
    #[inline]
    pub fn read(&self) -> [usize; WORDS] {
        let mut copy = [0; WORDS];
        self.lock.read(&self.words, &mut copy, || ());
        copy
    }

    /// Copies the words unless a writer stores meanwhile. It never waits, so a signal handler may use it.
    #[inline]
    pub fn try_read(&self) -> Option<[usize; WORDS]> {
        let mut copy = [0; WORDS];
        self.lock.try_read(&self.words, &mut copy).then_some(copy)
    }

    /// Changes the words. Readers go on while `change` computes, and see nothing of it if `change` panics.
    pub fn write<T>(&self, change: impl FnOnce(&mut [usize; WORDS]) -> T) -> T {
        let mut writing = self.lock.write();
        let mut copy = [0; WORDS];
        writing.load(&self.words, &mut copy);
        let result = change(&mut copy);
        writing.store(&self.words, &copy);
        result
    }
}

/// A sequence lock that does not contain the words. Its user passes the same words to every call.
#[repr(C)]
pub struct RawSeqLock<L: RawMutex> {
    sequence: <L::Machine as Machine>::U32,
    mutex: L,
}

/// Words of the machine of `L`.
type Words<L> = [<<L as RawMutex>::Machine as Machine>::Usize];

impl<L: RawMutex> RawSeqLock<L> {
    /// What the registry says about it.
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

    /// A sequence lock that no thread writes.
    pub fn new_in() -> Self {
        RawSeqLock { sequence: Word::new(0), mutex: L::new_in() }
    }

    /// Copies `words`, all of one moment, to `copy`. Calls `again` before each further copy.
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

    /// Copies `words` to `copy`. Returns whether they are of one moment: no writer has stored meanwhile.
    #[inline]
    pub fn try_read(&self, words: &Words<L>, copy: &mut [usize]) -> bool {
        // (A) pairs with the end of a write: this reader sees its words, or later ones.
        let before = self.sequence.load(Acquire);
        if !before.is_multiple_of(2) {
            return false;
        }
        for (copy, word) in copy.iter_mut().zip(words) {
            // (B) pairs with the stores of a write: a reader that copies one of them sees the odd number below.
            *copy = word.load(Acquire);
        }
        self.sequence.load(Relaxed) == before
    }

    /// Keeps other writers out. Readers go on.
    #[inline]
    pub fn write(&self) -> Writing<'_, L> {
        Writing { lock: self, token: self.mutex.lock() }
    }
}

/// The writer's guard: its owner may store words.
pub struct Writing<'a, L: RawMutex> {
    lock: &'a RawSeqLock<L>,
    token: L::Token,
}

impl<L: RawMutex> Writing<'_, L> {
    /// Copies `words` to `copy`.
    #[inline]
    pub fn load(&self, words: &Words<L>, copy: &mut [usize]) {
        for (copy, word) in copy.iter_mut().zip(words) {
            *copy = word.load(Relaxed); // the mutex orders it after the last writer
        }
    }

    /// Stores `values` to `words`, in one moment.
    #[inline]
    pub fn store(&mut self, words: &Words<L>, values: &[usize]) {
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
        // SAFETY: `write` made this guard with the token of its acquisition, which ends here.
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

    /// A reader finds a writer that is suspended in the middle of its stores, and waits for it asleep.
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
