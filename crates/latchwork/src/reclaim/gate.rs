//! A lock for the one thread that does the work of all: leads a grace period, or reclaims what is due.
//!
//! Other threads either go on at once, because the work is being done ([`Gate::try_lock`]), or sleep until it has been
//! done and look again ([`Gate::wait`]). No thread queues to do the work once more, so a release wakes all sleepers.
//!
//! The child of a fork has only one thread. The word says in which process the gate was taken, so that a gate that
//! another thread held at the fork is free in the child.
//!
//! State: FREE -> HELD (`try_lock`), HELD -> HELD | SLEEPERS (`wait`), HELD or HELD | SLEEPERS -> FREE (the holder).
//! (A): the holder's release pairs with the acquire of the next holder.
//! Size: 16 bytes. Atomics: 2 per pair.

use crate::machine::record::Records;
use crate::machine::{Deadline, Machine, Native, Word};
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering::*};

const FREE: u32 = 0;
const HELD: u32 = 1;
const SLEEPERS: u32 = 2;
/// Bits below the generation of the process.
const GENERATION: u32 = 2;

/// Looks at the word before a waiting thread sleeps.
const LOOKS: u32 = 100;

/// See the [module documentation](self).
pub(super) struct Gate<M: Machine> {
    word: M::U32,
    /// The thread that holds the gate, or 0. Only the holder can rely on what it reads.
    owner: M::Usize,
}

/// The calling thread holds the gate, until this is dropped.
pub(super) struct Held<'a, M: Records>(&'a Gate<M>);

impl Gate<Native> {
    pub(super) const fn native() -> Self {
        Gate { word: AtomicU32::new(FREE), owner: AtomicUsize::new(0) }
    }
}

impl<M: Records> Gate<M> {
    pub(super) fn new() -> Self {
        Gate { word: M::U32::new(FREE), owner: M::Usize::new(0) }
    }

    /// The word while a thread of this process holds the gate, without sleepers.
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

    /// Waits as long as it takes, or until the deadline has passed: then it returns `None`.
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

    /// Returns when the gate is free, or has been released since, or when the deadline has passed.
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

    /// Whether the calling thread holds the gate: if it is asked by a destructor, that runs in the thread's own
    /// reclamation.
    pub(super) fn is_mine(&self) -> bool {
        // In the child of a fork, a gate of the parent is free, whatever `owner` says.
        self.word.load(Relaxed) | SLEEPERS == Self::held() | SLEEPERS
            && self.owner.load(Relaxed) == M::thread_id()
    }
}

impl<M: Records> Drop for Held<'_, M> {
    fn drop(&mut self) {
        let Gate { word, owner } = self.0;
        owner.store(0, Relaxed);
        // (A) what this holder did happens before what the next one does.
        if word.swap(FREE, Release) & SLEEPERS != 0 {
            M::wake(word, u32::MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::forks::in_a_child;
    use super::*;
    use crate::machine::record;

    /// In a child, a gate that was held at the fork is free. A thread that has held a gate does not take it for its own while another
    /// one has just taken it.
    #[test]
    fn a_gate_is_its_holders() {
        record::own::<Native>(); // so that forks are noticed
        let gate = &Gate::<Native>::new();
        let held = gate.try_lock().expect("it is free");
        assert!(gate.is_mine() && gate.try_lock().is_none());
        assert!(in_a_child(|| !gate.is_mine() && gate.try_lock().is_some() && !gate.is_mine()));
        drop(held);
        gate.word.store(Gate::<Native>::held(), Relaxed); // and its owner is stored after that
        assert!(!gate.is_mine());
    }
}
