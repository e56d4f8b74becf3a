//! A lock for whoever does the work of all: runs a grace period, or reclaims what is due.
//!
//! Others either go on at once, since the work is being done ([`Gate::try_lock`]), or sleep until it
//! has been and look again ([`Gate::wait`]); nobody queues to do it once more. So a release wakes all.
//!
//! The child of a fork has only one thread: a gate that another thread held there is free. The word says
//! in which process it was taken.
//!
//! State: FREE -> HELD (`try_lock`), HELD -> HELD | SLEEPERS (`wait`), HELD* -> FREE (the holder).
//! Size: 16 bytes. Atomics: 2 per pair.

use crate::machine::record::Records;
use crate::machine::{Deadline, Machine, Word};
use core::sync::atomic::Ordering::*;

const FREE: u32 = 0;
const HELD: u32 = 1;
const SLEEPERS: u32 = 2;
/// Above these bits stands the generation of the process.
const GENERATION: u32 = 2;

/// Looks at the word before who waits sleeps.
const LOOKS: u32 = 100;

pub(super) struct Gate<M: Machine> {
    word: M::U32,
    /// The thread that holds it, or 0; exact for the thread itself.
    owner: M::Usize,
}

/// Who holds a gate, until this is dropped.
pub(super) struct Held<'a, M: Records>(&'a Gate<M>);

impl<M: Records> Gate<M> {
    pub(super) fn new() -> Self {
        Gate { word: M::U32::new(FREE), owner: M::Usize::new(0) }
    }

    /// What the word is when a thread of this process holds it.
    fn held() -> u32 {
        M::generation() << GENERATION | HELD
    }

    pub(super) fn try_lock(&self) -> Option<Held<'_, M>> {
        let held = Self::held();
        let word = self.word.load(Relaxed);
        if word | SLEEPERS == held | SLEEPERS {
            return None;
        }
        // (A) pairs with the exchange in `drop`.
        self.word.compare_exchange(word, held, Acquire, Relaxed).ok()?;
        self.owner.store(M::thread_id(), Relaxed);
        Some(Held(self))
    }

    /// Waits as long as it takes, or until the deadline: then nobody has been let in.
    pub(super) fn lock(&self, deadline: Option<Deadline>) -> Option<Held<'_, M>> {
        loop {
            if let Some(held) = self.try_lock() {
                return Some(held);
            }
            if deadline.is_some_and(|deadline| deadline.passed::<M>()) {
                return None;
            }
            self.wait(deadline);
        }
    }

    /// Returns when the gate is not held, or has been released since, or when the deadline has passed.
    pub(super) fn wait(&self, deadline: Option<Deadline>) {
        let held = Self::held();
        let open = |word: u32| word | SLEEPERS != held | SLEEPERS;
        if M::spin_for(&self.word, Relaxed, LOOKS, open).is_some()
            || self.word.compare_exchange(held, held | SLEEPERS, Relaxed, Relaxed).is_err_and(open)
        {
            return;
        }
        M::wait(&self.word, held | SLEEPERS, deadline);
    }

    /// Whether the calling thread holds it: reclaims an object right now.
    pub(super) fn is_mine(&self) -> bool {
        // An owner that a fork has left behind is nobody.
        self.word.load(Relaxed) | SLEEPERS == Self::held() | SLEEPERS
            && self.owner.load(Relaxed) == M::thread_id()
    }
}

impl<M: Records> Drop for Held<'_, M> {
    fn drop(&mut self) {
        let Gate { word, owner } = self.0;
        owner.store(0, Relaxed);
        // (A) what was done under the gate happens before the next holder's.
        if word.swap(FREE, Release) & SLEEPERS != 0 {
            M::wake(word, u32::MAX);
        }
    }
}
