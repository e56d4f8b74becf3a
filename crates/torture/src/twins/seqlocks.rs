//! Sequence locks with one mistake each.

use crate::copies::{Copied, Copy, MadeCopied, WORDS};
use crate::lock::words;
use latchwork::locks::mutex::{RawMutex, ttas::RawTtas};
use latchwork::machine::{Machine, Word};
use std::sync::atomic::Ordering::*;

/// What is wrong.
pub struct Mistake;

impl Mistake {
    /// The number is even again before the last word is stored.
    pub const EVEN_EARLY: u32 = 0;
    /// A reader does not look at the number again.
    pub const UNVALIDATED: u32 = 1;
    /// Writers do not exclude each other.
    pub const NO_MUTEX: u32 = 2;
    /// A writer makes the number even without making it another one.
    pub const SAME_NUMBER: u32 = 3;
}

/// A sequence lock that makes a [`Mistake`].
pub struct Broken<M: Machine, const MISTAKE: u32> {
    sequence: M::U32,
    mutex: RawTtas<M>,
    words: [M::Usize; WORDS],
}

impl<M: Machine, const MISTAKE: u32> MadeCopied for Broken<M, MISTAKE> {
    fn new() -> Self {
        Broken {
            sequence: Word::new(0),
            mutex: RawTtas::new_in(),
            words: std::array::from_fn(|_| Word::new(0)),
        }
    }
}

impl<M: Machine, const MISTAKE: u32> Copied for Broken<M, MISTAKE> {
    fn read(&self) -> Copy {
        loop {
            if let Some(copy) = self.try_read() {
                return copy;
            }
            M::spin_until(&self.sequence, Relaxed, |sequence| sequence.is_multiple_of(2));
        }
    }

    fn try_read(&self) -> Option<Copy> {
        let before = self.sequence.load(Acquire);
        if !before.is_multiple_of(2) {
            return None;
        }
        let copy = std::array::from_fn(|index| self.words[index].load(Acquire));
        (MISTAKE == Mistake::UNVALIDATED || self.sequence.load(Relaxed) == before).then_some(copy)
    }

    fn write(&self, change: &mut dyn FnMut(&mut Copy)) {
        let token = (MISTAKE != Mistake::NO_MUTEX).then(|| self.mutex.lock());
        let mut copy = std::array::from_fn(|index| self.words[index].load(Relaxed));
        change(&mut copy);
        let even = self.sequence.load(Relaxed);
        self.sequence.store(even.wrapping_add(1), Relaxed);
        let after = if MISTAKE == Mistake::SAME_NUMBER { even } else { even.wrapping_add(2) };
        for (index, word) in self.words.iter().enumerate() {
            if MISTAKE == Mistake::EVEN_EARLY && index == WORDS - 1 {
                self.sequence.store(after, Release);
            }
            word.store(copy[index], Release);
        }
        self.sequence.store(after, Release);
        if let Some(token) = token {
            // SAFETY: locked above.
            unsafe { self.mutex.unlock(token) };
        }
    }

    fn words(&self) -> String {
        words(self)
    }
}
