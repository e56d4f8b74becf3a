//! Words that are copied, and changed, all together: under a lock, or under a sequence lock. Readers of a sequence lock
//! hold nothing, and copy again if a writer changed the words meanwhile.
//!
//! A sequence lock is for these workloads only. Between the beginning of a copy and the check that the copy is of one moment
//! the reader must do nothing but copy, because it may see half a write.

use crate::lock::Lock;
use crate::measure::Outcome;
use crate::stage::Stage;
use crate::thread::Thread;
use crate::workload::{Info, Settings};
use latchwork::locks::mutex::RawMutex;
use latchwork::locks::seqlock::RawSeqLock;
use latchwork::machine::{Machine, Word};
use std::sync::atomic::Ordering::Relaxed;

/// Words of machine `M`.
pub type Words<M> = [<M as Machine>::Usize];

/// A way to keep words together.
pub trait Copies: Send + Sync + Sized + 'static {
    /// The machine that it runs on.
    type Machine: Machine;

    /// For words that no thread uses yet.
    fn new() -> Self;

    /// Copies `words`, all of one moment, to `copy`. Returns how many copies had to be made again.
    fn copy<S: Stage<Machine = Self::Machine>>(
        &self,
        thread: &mut Thread<S>,
        words: &Words<Self::Machine>,
        copy: &mut [usize],
    ) -> u64;

    /// Changes `words`, in one moment. `space` is as large, and what `change` sees.
    fn change<S: Stage<Machine = Self::Machine>>(
        &self,
        thread: &mut Thread<S>,
        words: &Words<Self::Machine>,
        space: &mut [usize],
        change: impl FnOnce(&mut [usize]),
    );
}

fn load<M: Machine>(words: &Words<M>, copy: &mut [usize]) {
    for (copy, word) in copy.iter_mut().zip(words) {
        *copy = word.load(Relaxed);
    }
}

impl<L: Lock> Copies for L {
    type Machine = L::Machine;

    fn new() -> Self {
        L::new()
    }

    #[inline]
    fn copy<S: Stage<Machine = L::Machine>>(
        &self,
        thread: &mut Thread<S>,
        words: &Words<L::Machine>,
        copy: &mut [usize],
    ) -> u64 {
        let _held = thread.read(self);
        load::<L::Machine>(words, copy);
        0
    }

    #[inline]
    fn change<S: Stage<Machine = L::Machine>>(
        &self,
        thread: &mut Thread<S>,
        words: &Words<L::Machine>,
        space: &mut [usize],
        change: impl FnOnce(&mut [usize]),
    ) {
        let _held = thread.write(self);
        load::<L::Machine>(words, space);
        change(space);
        for (word, value) in words.iter().zip(space) {
            word.store(*value, Relaxed);
        }
    }
}

/// The sequence lock. A reader's wait is the time until it has its copy.
pub struct Sequence<L: RawMutex>(RawSeqLock<L>);

impl<L: RawMutex> Copies for Sequence<L> {
    type Machine = L::Machine;

    fn new() -> Self {
        Sequence(RawSeqLock::new_in())
    }

    #[inline]
    fn copy<S: Stage<Machine = L::Machine>>(
        &self,
        thread: &mut Thread<S>,
        words: &Words<L::Machine>,
        copy: &mut [usize],
    ) -> u64 {
        let mut again = 0;
        thread.acquire(None, || self.0.read(words, copy, || again += 1));
        again
    }

    #[inline]
    fn change<S: Stage<Machine = L::Machine>>(
        &self,
        thread: &mut Thread<S>,
        words: &Words<L::Machine>,
        space: &mut [usize],
        change: impl FnOnce(&mut [usize]),
    ) {
        let mut writing = thread.acquire(Some(0), || self.0.write());
        writing.load(words, space);
        change(space);
        writing.store(words, space);
    }
}

/// A workload with readers that copy, with its parameters set.
pub trait CopyWorkload: Sized + Sync {
    /// Its description.
    const INFO: Info;

    /// With these parameters.
    fn new(settings: &Settings) -> Self;

    /// Runs it once, and checks that each copy was of one moment.
    fn run<S: Stage, C: Copies<Machine = S::Machine>>(&self, stage: &S, threads: usize) -> Outcome;
}
