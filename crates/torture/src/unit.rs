//! A semaphore with one unit is a mutex, and is tortured as one.

use crate::twins::INFO;
use latchwork::machine::{Deadline, Machine};
use latchwork::mutex::{Info, RawMutex};
use latchwork::semaphore::RawSemaphore;

/// A semaphore with one unit.
pub struct Unit<M: Machine>(RawSemaphore<M>);

// SAFETY: there is one unit, and releases are ordered before the acquisitions that follow. (An all-zero one is
// not unlocked, but nobody makes one.)
unsafe impl<M: Machine> RawMutex for Unit<M> {
    type Machine = M;
    type Token = ();
    const INFO: Info = Info { name: "semaphore", blocking: true, ..INFO };

    fn new_in() -> Self {
        Unit(RawSemaphore::new_in(1))
    }
    fn lock(&self) {
        self.0.acquire();
    }
    fn try_lock(&self) -> Option<()> {
        self.0.try_acquire().then_some(())
    }
    fn lock_until(&self, deadline: Deadline) -> Option<()> {
        self.0.acquire_until(deadline).then_some(())
    }
    unsafe fn unlock(&self, (): ()) {
        self.0.release().expect("one unit is not too many");
    }
    fn is_locked(&self) -> bool {
        self.0.value() == 0
    }
}
