//! How a writer revokes the bias: who may come in meanwhile, and how it waits for the readers that it finds.

use crate::machine::{Deadline, Machine, Offers, Word};
use core::marker::PhantomData;
use core::sync::atomic::Ordering::Acquire;

/// How a writer revokes.
pub trait Revoke: Send + Sync + 'static {
    /// Whether it does so before it takes the underlying lock, through which readers can then pass.
    const EARLY: bool;
    /// How it waits for a reader.
    type Await: Await;
}

/// Holding the underlying lock for writing (listing 1): readers that come meanwhile wait until the writer has
/// been. One revocation for however many writers, and nothing to pay for writers of a lock without bias.
#[derive(Debug)]
pub struct Holding<A = Naps>(PhantomData<A>);

impl<A: Await> Revoke for Holding<A> {
    const EARLY: bool = false;
    type Await = A;
}

/// Before it takes the underlying lock, under the revocation mutex of section 7, so that readers that come
/// meanwhile pass, through that lock. The mutex is a value of the bias, [`REVOKING`](super::bias): no byte more.
/// Should the bias be back when the writer has the lock, it revokes once more. For readers that
/// cannot wait as long as the longest section of another, which a writer has to.
#[derive(Debug)]
pub struct Passing<A = Naps>(PhantomData<A>);

impl<A: Await> Revoke for Passing<A> {
    const EARLY: bool = true;
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
