//! Releases of read acquisitions that have lost their token.
//!
//! The kernel's `up_read` is told the lock and nothing else, and another task may call it than the one that called
//! `down_read`. So the acquisition that it ends must be found by the lock.
//!
//! All read acquisitions of one lock are alike: a writer waits for their number to become zero. So a release may end *any* of
//! them, in a slot or in the underlying lock, as long as each release ends exactly one. Two releases that find the same slot
//! must not both count it. Therefore a slot is emptied by a compare-and-exchange here, where a release with a token needs only a
//! store, and the underlying lock's release must be conditional.
//!
//! An acquisition is found in three places, the likeliest first: the slot that the calling thread would fill for this lock, the
//! underlying lock, and all slots of the table. Other threads may acquire and release meanwhile, so that a search misses an
//! acquisition that moves from a place not yet searched to one already searched. Then the search begins again. There is always
//! one to find, since every caller ends one; and a search fails only because another release has succeeded.
//!
//! Atomic read-modify-writes of a release: 1.

use super::RawBravo;
use super::publish::Publish;
use crate::locks::rwlock::RawRwLock;
use crate::machine::{Machine, Word};
use core::sync::atomic::Ordering::*;

impl<M: Machine, R: RawRwLock<Machine = M>, P: Publish<M>, W, V, S> RawBravo<M, R, P, W, V, S> {
    /// Ends one read acquisition of this lock, whichever it finds first.
    ///
    /// `release_below` ends one read acquisition of the underlying lock if there is one, and returns whether it did. It looks and
    /// releases in one atomic step, and its look has acquire ordering.
    ///
    /// # Safety
    ///
    /// The lock has a read acquisition that no other release will end. All releases of the lock's read acquisitions are calls of
    /// this function, none uses a token: a release with a token does not notice that its slot has been emptied.
    #[inline]
    pub unsafe fn unlock_anonymous_read(&self, mut release_below: impl FnMut() -> bool) {
        let me = self.address();
        loop {
            // While no reader can be in a slot, the acquisition to end is below. If it was made through a slot, the bias was on
            // then, this thread sees that or something later, and the bias is not off before all slots are empty.
            let slots = self.may_have_slot_readers();
            // SAFETY: `end` empties a slot only to end the acquisition that it stands for.
            if slots && unsafe { P::of_caller(me) }.is_some_and(|slot| Self::end(slot, me)) || release_below()
            {
                return;
            }
            // SAFETY: as above. The search ends at the first slot that this thread has emptied.
            if slots && !unsafe { P::all_slots_of(me, |slot| !Self::end(slot, me)) } {
                return;
            }
            M::pause(1);
        }
    }

    /// Ends the acquisition that a slot stands for, if the slot still holds the lock's address.
    fn end(slot: &M::Usize, me: usize) -> bool {
        // (C) and (D) as in `leave`. Acquire: the section may have been another thread's, and ends here.
        slot.load(Relaxed) == me && slot.compare_exchange(me, 0, AcqRel, Relaxed).is_ok()
    }
}
