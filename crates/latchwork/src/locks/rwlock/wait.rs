//! How long a thread waits for a lock, and how it waits for a word when no other thread will wake it.

use crate::machine::{Clock, Deadline, Machine, Nap, Offers, Word};
use core::sync::atomic::Ordering::Acquire;

/// How long an acquisition may wait.
#[derive(Copy, Clone, Debug)]
pub enum Timeout {
    /// It must not wait at all.
    Immediate,
    /// It gives up at this time.
    At(Deadline),
    /// It waits as long as it takes.
    Never,
}

impl Timeout {
    /// The same timeout, or `nanos` on the monotonic clock if that is earlier.
    pub(super) fn at_most(self, nanos: u64) -> Self {
        match self {
            Timeout::Immediate => self,
            Timeout::At(Deadline { clock: Clock::Monotonic, nanos: sooner }) if sooner < nanos => self,
            // A deadline on the real-time clock is not compared: that clock may jump.
            _ => Timeout::At(Deadline { clock: Clock::Monotonic, nanos }),
        }
    }

    /// Whether the acquisition is to give up now.
    pub(super) fn passed<M: Machine>(self) -> bool {
        self.left::<M>() == 0
    }

    /// Nanoseconds until the acquisition gives up; `u64::MAX` if it never does.
    fn left<M: Machine>(self) -> u64 {
        match self {
            Timeout::Immediate => 0,
            Timeout::At(deadline) => deadline.left::<M>(),
            Timeout::Never => u64::MAX,
        }
    }
}

/// How a thread waits for a word that another thread changes without waking anyone.
///
/// # Safety
///
/// [`until`](Await::until) returns `true` only when `done` has said so of a value of the word that was read with acquire
/// semantics.
pub unsafe trait Await: Send + Sync + 'static {
    /// Waits until `done(word)` holds, or until the timeout. Returns whether `done(word)` held. With
    /// [`Timeout::Immediate`] it returns `false` at once.
    fn until<M: Machine, T: Copy, W: Word<T>>(
        word: &W,
        timeout: Timeout,
        done: impl FnMut(T) -> bool + Copy,
    ) -> bool;
}

/// Looks at the word between two rests: a look at the clock costs as much as about ten looks at the word.
const LOOKS: u32 = 64;
/// Nanoseconds for which a thread that naps looks before its first nap: longer than most read sections.
const SPIN: u32 = 20_000;

/// Looks at the word, `first` times at first, and calls `rest` in between with the nanoseconds that are left.
fn look<M: Machine, T: Copy, W: Word<T>>(
    word: &W,
    timeout: Timeout,
    done: impl FnMut(T) -> bool + Copy,
    first: u32,
    mut rest: impl FnMut(u64),
) -> bool {
    if matches!(timeout, Timeout::Immediate) {
        return false;
    }
    let mut looks = first;
    loop {
        let left = timeout.left::<M>();
        if M::spin_for(word, Acquire, looks, done).is_some() {
            return true;
        }
        if left == 0 {
            return false;
        }
        rest(left);
        looks = LOOKS;
    }
}

/// The thread spins (listing 1 of the BRAVO paper). For short sections and a processor for each thread.
#[derive(Debug)]
pub struct Spins;

// SAFETY: `true` is returned only when `look` or `spin_until`, with acquire loads, has found `done`.
unsafe impl Await for Spins {
    #[cold]
    fn until<M: Machine, T: Copy, W: Word<T>>(
        word: &W,
        timeout: Timeout,
        done: impl FnMut(T) -> bool + Copy,
    ) -> bool {
        if matches!(timeout, Timeout::Never) {
            M::spin_until(word, Acquire, done);
            return true;
        }
        let mut offers = Offers::new();
        look::<M, _, _>(word, timeout, done, LOOKS, |left| offers.take::<M>(left))
    }
}

/// The thread spins briefly and then sleeps in naps ([`Nap`]).
#[derive(Debug)]
pub struct Naps;

// SAFETY: `true` is returned only when `look`, with acquire loads, has found `done`.
unsafe impl Await for Naps {
    #[cold]
    fn until<M: Machine, T: Copy, W: Word<T>>(
        word: &W,
        timeout: Timeout,
        done: impl FnMut(T) -> bool + Copy,
    ) -> bool {
        let mut nap = Nap::new();
        look::<M, _, _>(word, timeout, done, M::hints(SPIN), |left| nap.take::<M>(left))
    }
}
