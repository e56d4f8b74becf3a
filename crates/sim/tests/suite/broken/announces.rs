//! A small lock over [`Machine::release_if`]: sound, or with a mistake that matters only because a release is several steps.

use latchwork::locks::mutex::{Info, RawMutex, Suspension};
use latchwork::machine::{Machine, QNode, Word};
use std::ptr::null_mut;
use std::sync::atomic::Ordering::*;

const HELD: u32 = 1;
const PARKED: u32 = 2;

/// No mistake.
pub const ANNOUNCED: u8 = 0;
/// Waiters do not queue before they set PARKED. The holder sees no queue, and does not look at the word.
pub const UNANNOUNCED: u8 = 1;
/// A waiter sleeps without a bound, though a torn release may have overwritten PARKED.
pub const UNBOUNDED: u8 = 2;

/// A mutex of which one waiter at a time sleeps: the one whose node is in `tail`.
pub struct Announces<M: Machine, const KIND: u8> {
    word: M::U32,
    tail: M::Ptr<QNode<M>>,
}

// SAFETY: only one compare-and-exchange can set HELD, and only its thread takes it away.
unsafe impl<M: Machine, const KIND: u8> RawMutex for Announces<M, KIND> {
    type Machine = M;
    type Token = ();
    const INFO: Info = Info {
        name: "announces",
        summary: "a lock whose release looks at the queue",
        atomics: 1,
        waiter_bytes: 64,
        holder_bytes: 0,
        fairness: "none",
        blocking: true,
        suspension: Suspension::Blocks,
        source: "none",
    };

    fn new_in() -> Self {
        Announces { word: M::U32::new(0), tail: M::Ptr::new(null_mut()) }
    }

    fn lock(&self) {
        if M::acquire_zero(&self.word, HELD) {
            return;
        }
        let node = M::acquire_node();
        let is_alone = || self.tail.compare_exchange(null_mut(), node.as_ptr(), Acquire, Relaxed).is_ok();
        while KIND != UNANNOUNCED && !is_alone() {
            M::spin_until(&self.tail, Relaxed, |tail| tail.is_null());
        }
        loop {
            let word = self.word.load(Relaxed);
            let next = if word & HELD == 0 { HELD } else { HELD | PARKED };
            if self.word.compare_exchange(word, next, Acquire, Relaxed).is_err() {
                continue;
            }
            if next == HELD {
                break;
            }
            let until = if KIND == UNBOUNDED { None } else { M::torn_timeout(1_000_000) };
            M::wait(&self.word, next, until);
        }
        if KIND != UNANNOUNCED {
            self.tail.store(null_mut(), Release);
        }
        // SAFETY: from the pool, above; other threads compare the pointer, and do not look at the node.
        unsafe { M::release_node(node) };
    }

    fn try_lock(&self) -> Option<()> {
        M::acquire_zero(&self.word, HELD).then_some(())
    }

    unsafe fn unlock(&self, (): ()) {
        if !M::release_if(&self.tail, &self.word, HELD) && self.word.swap(0, Release) & PARKED != 0 {
            M::wake(&self.word, u32::MAX);
        }
    }

    fn is_locked(&self) -> bool {
        self.word.load(Relaxed) & HELD != 0
    }
}
