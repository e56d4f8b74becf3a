//! What a thread still holds when it ends.

use super::{HELD, Tables};
use crate::report::Problem;

/// In place of the identity of a thread that has ended, which the next thread may get.
pub(crate) const ENDED: usize = 0;

impl Tables {
    /// Whether the thread holds a lock.
    pub(crate) fn holds_any(&self, me: usize) -> bool {
        self.index(me).is_some_and(|index| self.threads[index].used != 0)
    }

    /// The thread ends. Returns one of the locks that it has not released, of which the next call does not know.
    pub(crate) fn ended(&mut self, me: usize) -> Option<Problem> {
        let index = self.index(me)?;
        // It may have been cancelled while it waited.
        self.asked[index] = 0;
        let thread = &mut self.threads[index];
        thread.unknown = 0;
        thread.used = thread.used.checked_sub(1)?;
        let hold = thread.holds[thread.used];
        // The lock stays held, by no thread that is there. It is forgotten beside too many others.
        if let Some(gone) = self.thread(ENDED).filter(|gone| gone.used < HELD) {
            gone.holds[gone.used] = hold;
            gone.used += 1;
        }
        Some(Problem::Ended { lock: hold.lock, held: hold.taken })
    }

    /// The thread waits for a condition with this lock.
    pub(crate) fn waiting(&self, me: usize, lock: usize) -> Option<Problem> {
        let may_hold = |index: usize| {
            self.threads[index].unknown > 0 || self.holds(index).iter().any(|hold| hold.lock == lock)
        };
        (self.unknown == 0 && !self.index(me).is_some_and(may_hold)).then(|| self.stranger(lock))
    }
}
