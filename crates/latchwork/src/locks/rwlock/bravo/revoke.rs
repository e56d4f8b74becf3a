//! How a writer revokes the bias: who may come in meanwhile, and how it waits for the readers that it finds.

use crate::machine::{Clock, Deadline, Machine, Offers, Word};
use core::marker::PhantomData;
use core::sync::atomic::Ordering::Acquire;

/// How a writer revokes.
pub trait Revoke: Send + Sync + 'static {
    /// Whether it gives the underlying lock back meanwhile, so that readers can pass through that.
    const PASSING: bool;
    /// How it waits for a reader.
    type Await: Await;
}

/// Holding the underlying lock for writing (listing 1): readers that come meanwhile wait until the writer has
/// been. One revocation for however many writers, and nothing to pay for writers of a lock without bias.
#[derive(Debug)]
pub struct Holding<A = Naps>(PhantomData<A>);

impl<A: Await> Revoke for Holding<A> {
    const PASSING: bool = false;
    type Await = A;
}

/// Holding the underlying lock for a millisecond at most, then without it, so that readers that come meanwhile pass
/// through that lock. Section 7 of the paper has a revocation mutex for this. Here each of several writers looks through
/// the slots by itself, so that none waits for one that does not run, and the bias counts them: it cannot return
/// before the last one has the lock. For readers that cannot wait as long as the longest section of another, which a
/// writer has to, and for locks that are to stay available when a writer is suspended.
///
/// (Without the millisecond, readers fill the underlying lock before the writer is back: in the simulator, with 18
/// threads and 72 and a write in 10,000 reads, half and a sixth of the throughput.)
#[derive(Debug)]
pub struct Passing<A = Naps>(PhantomData<A>);

impl<A: Await> Revoke for Passing<A> {
    const PASSING: bool = true;
    type Await = A;
}

/// How long a revoking writer waits.
#[derive(Copy, Clone)]
pub enum Patience {
    /// Not at all.
    None,
    /// Until then.
    Until(Deadline),
    /// As long as it takes.
    Endless,
}

impl Patience {
    /// The same, but not beyond `nanos` on the monotonic clock.
    pub(super) fn at_most(self, nanos: u64) -> Self {
        match self {
            Patience::None => self,
            Patience::Until(Deadline { clock: Clock::Monotonic, nanos: sooner }) if sooner < nanos => self,
            // The time of the other clock may jump.
            _ => Patience::Until(Deadline { clock: Clock::Monotonic, nanos }),
        }
    }

    /// Nanoseconds of it that are left.
    fn left<M: Machine>(self) -> u64 {
        match self {
            Patience::None => 0,
            Patience::Until(deadline) => deadline.left::<M>(),
            Patience::Endless => u64::MAX,
        }
    }
}

/// How a writer waits for a word that is changed by a thread that does not look for waiters.
///
/// # Safety
///
/// It returns `true` only when `done` has said so of the word, read with acquire semantics.
pub unsafe trait Await: Send + Sync + 'static {
    /// Waits until `done(word)`, which is read with acquire semantics. Returns whether it came to that.
    fn until<M: Machine, T: Copy, W: Word<T>>(
        word: &W,
        patience: Patience,
        done: impl FnMut(T) -> bool + Copy,
    ) -> bool;
}

/// By spinning (listing 1). For short sections and a processor for each thread.
#[derive(Debug)]
pub struct Spins;

/// Looks between two looks at the deadline.
const ROUND: u32 = 64;

// SAFETY: it returns what the machine's spinning on the word has come to.
unsafe impl Await for Spins {
    #[cold]
    fn until<M: Machine, T: Copy, W: Word<T>>(
        word: &W,
        patience: Patience,
        done: impl FnMut(T) -> bool + Copy,
    ) -> bool {
        match patience {
            Patience::None => false,
            Patience::Endless => {
                M::spin_until(word, Acquire, done);
                true
            }
            Patience::Until(_) => {
                let mut offers = Offers::new();
                loop {
                    let left = patience.left::<M>();
                    if M::spin_for(word, Acquire, ROUND, done).is_some() {
                        return true;
                    }
                    if left == 0 {
                        return false;
                    }
                    offers.take::<M>(left);
                }
            }
        }
    }
}

/// By spinning briefly and then sleeping, in naps from `NAPS`.0 to `NAPS`.1, each a quarter of what it has
/// waited: readers leave with a plain store, and wake nobody. Behind a long read it wakes up late by a
/// quarter of the wait, and at most a millisecond.
#[derive(Debug)]
pub struct Naps;

/// Looks before the first sleep, and between naps.
const LOOKS: (u32, u32) = (2048, 64);
/// The shortest and the longest nap in nanoseconds.
const NAPS: (u64, u64) = (50_000, 1_000_000);

// SAFETY: it returns `true` only when the machine's spinning on the word has come to that.
unsafe impl Await for Naps {
    #[cold]
    fn until<M: Machine, T: Copy, W: Word<T>>(
        word: &W,
        patience: Patience,
        done: impl FnMut(T) -> bool + Copy,
    ) -> bool {
        let (mut looks, mut nap) = (LOOKS.0, NAPS.0);
        if matches!(patience, Patience::None) {
            return false;
        }
        loop {
            let left = patience.left::<M>();
            if M::spin_for(word, Acquire, looks, done).is_some() {
                return true;
            }
            if left == 0 {
                return false;
            }
            M::doze(nap.min(left));
            nap = (nap + nap / 4).min(NAPS.1);
            looks = LOOKS.1;
        }
    }
}
