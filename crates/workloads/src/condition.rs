//! What a workload knows of a condition variable.

use crate::lock::Lock;
use latchwork::locks::condvar::RawCondvar;
use latchwork::machine::Machine;

/// The condition variable that goes with the lock `L`.
pub trait Condition<L: Lock>: Send + Sync + Sized {
    /// Without waiters.
    fn new() -> Self;
    /// Releases the lock, waits for a notification, and acquires the lock again. It may return without a notification.
    fn wait<'l>(&self, lock: &'l L, held: L::Write<'l>) -> L::Write<'l>;
    /// Wakes one waiter, if there are any.
    fn notify_one(&self);
    /// Wakes all waiters.
    fn notify_all(&self);
}

/// This library's condition variable, for its own locks and for those of libraries whose condition variables are not
/// compared.
pub struct Ours<M: Machine>(RawCondvar<M>);

impl<M: Machine, L: Lock<Machine = M>> Condition<L> for Ours<M> {
    fn new() -> Self {
        Ours(RawCondvar::new_in())
    }
    fn wait<'l>(&self, lock: &'l L, held: L::Write<'l>) -> L::Write<'l> {
        self.0.wait(|| drop(held), None);
        RawCondvar::<M>::offer_processor(|| lock.is_locked());
        lock.write()
    }
    fn notify_one(&self) {
        self.0.notify_one();
    }
    fn notify_all(&self) {
        self.0.notify_all();
    }
}
