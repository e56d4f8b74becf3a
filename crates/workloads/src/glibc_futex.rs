//! glibc's default mutex: a yardstick for machines on which glibc does not run.
//!
//! Source: glibc 2.36, `nptl/lowlevellock.h` and `lowlevellock.c` (`PTHREAD_MUTEX_TIMED_NP` does nothing else).
//!
//! No waiter spins. A thread that finds the word taken sets CONTENDED and sleeps. Newcomers take the word whenever it is
//! free.
//!
//! State: FREE -> HELD (a newcomer), FREE | HELD -> CONTENDED (a thread that is about to sleep, or has slept),
//! HELD | CONTENDED -> FREE (the holder; from CONTENDED it also wakes one sleeper).

use latchwork::locks::mutex::{Info, RawMutex, Suspension};
use latchwork::machine::{Deadline, Machine, Word};
use std::sync::atomic::Ordering::*;

const FREE: u32 = 0;
const HELD: u32 = 1;
const CONTENDED: u32 = 2;

/// The mutex. See the [module documentation](self).
pub struct GlibcFutex<M: Machine>(M::U32);

impl<M: Machine> GlibcFutex<M> {
    #[cold]
    fn wait(&self, deadline: Option<Deadline>) -> bool {
        // (A) pairs with the exchange in `unlock`. The word stays CONTENDED while this thread holds it, because other threads may sleep.
        while self.0.swap(CONTENDED, Acquire) != FREE {
            if deadline.is_some_and(|deadline| deadline.passed::<M>()) {
                return false;
            }
            M::wait(&self.0, CONTENDED, deadline);
        }
        true
    }
}

// SAFETY: only one exchange takes the word away from FREE; (A) orders the sections.
unsafe impl<M: Machine> RawMutex for GlibcFutex<M> {
    type Machine = M;
    type Token = ();
    const INFO: Info = Info {
        name: "glibc-futex",
        summary: "glibc's default mutex",
        atomics: 2,
        waiter_bytes: 0,
        holder_bytes: 0,
        fairness: "none",
        blocking: true,
        suspension: Suspension::Blocks,
        source: "glibc 2.36, nptl/lowlevellock.c",
    };

    fn new_in() -> Self {
        GlibcFutex(M::U32::new(FREE))
    }
    fn lock(&self) {
        if self.try_lock().is_none() {
            self.wait(None);
        }
    }
    fn try_lock(&self) -> Option<()> {
        // (A) as above.
        self.0.compare_exchange(FREE, HELD, Acquire, Relaxed).ok().map(drop)
    }
    fn lock_until(&self, deadline: Deadline) -> Option<()> {
        (self.try_lock().is_some() || self.wait(Some(deadline))).then_some(())
    }
    unsafe fn unlock(&self, (): ()) {
        // (A) the section happens before the next acquire.
        if self.0.swap(FREE, Release) == CONTENDED {
            M::wake(&raw const self.0, 1);
        }
    }
    fn is_locked(&self) -> bool {
        self.0.load(Relaxed) != FREE
    }
}
