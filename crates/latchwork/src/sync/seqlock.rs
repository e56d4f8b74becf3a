//! `SeqLock`.

use crate::locks::mutex::shfl::RawShfl;
use crate::locks::seqlock;
use crate::machine::Native;

/// A few words that readers copy without a lock.
///
/// **When to take it.** For a few words that are read all together, often, and seldom written: a position, a
/// configuration, a clock's parameters. Readers get a copy. For a value that readers must look into, take
/// [`RwLock`](crate::RwLock) or [`Rcu`](crate::reclaim::Rcu).
///
/// ```
/// use latchwork::SeqLock;
///
/// static POSITION: SeqLock<2> = SeqLock::new([0, 0]);
///
/// POSITION.write(|[x, y]| (*x, *y) = (3, 4));
/// assert_eq!(POSITION.read(), [3, 4]);
/// ```
///
/// **What it costs.** A reader writes no memory. It copies the words, and copies again if a writer has stored meanwhile.
///
/// | `seqlock` | |
/// |---|---|
/// | bytes beside the words | 24 |
/// | bytes for each waiter | 64 |
/// | bytes for each holder | 0 |
/// | atomic read-modify-writes, uncontended | 0 |
/// | waiters | spin for microseconds, then sleep |
/// | fairness | writers as their mutex, shfl; a reader makes 16 copies at most, then waits with the writers |
/// | a suspended waiter | delays the others, for tens of milliseconds at most |
///
/// The atomics are those of a read. Writers lock a [`Mutex`](crate::Mutex).
///
/// **Panics.** If the closure of [`write`](seqlock::SeqLock::write) panics, the words stay as they were. A closure that
/// writes the same `SeqLock` waits for ever. If the kernel has no page for waiters, the process ends.
///
/// **Poisoning.** There is none: readers see none of a change that panicked.
///
/// **Between processes.** It is for the threads of one process: do not use it in memory that processes share.
///
/// **On fork.** If another thread was writing, the child must not use the words.
///
/// **In a signal handler.** [`try_read`](seqlock::SeqLock::try_read) only: it never waits.
pub type SeqLock<const WORDS: usize> = seqlock::SeqLock<RawShfl<Native>, WORDS>;
