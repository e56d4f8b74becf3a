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
//! underlying lock, and all slots of the table. Meanwhile an acquisition may end in a place that is not searched yet, and another
//! one begin in a place that was searched already. Then the search finds neither, and begins again. There is always an acquisition to
//! find, since every caller ends one; and a search fails only because another release has succeeded.
//!
//! # Candidates
//!
//! A reader that has filled a slot and not yet looked at the bias is a candidate. A release cannot tell its slot from that of a
//! reader inside, and may empty it. If the candidate then finds the bias on, it is inside; a slot less stands for a reader less,
//! as always. If it finds no bias, it sees that its slot was emptied, and is inside too (`leave_in_vain`):
//!
//! - Let a writer revoke. Call a reader *early* if it had filled its slot before the bias was turned off. The writer waits until no
//!   early slot is left.
//! - There are at least as many early slots as there are readers inside and late candidates whose slots were taken. A release of an
//!   early reader takes an early slot, and there is one of each less; or it takes a late candidate's slot, and then a candidate
//!   whose slot was taken stands in the place of the reader that has left.
//! - So while there is such a candidate, an early slot is filled, no writer is inside, and the candidate may enter. Its own release
//!   finds that slot.
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
    /// this function. None uses a token: a reader that releases with its token does not notice that its slot was emptied.
    #[inline]
    pub unsafe fn unlock_anonymous_read(&self, mut release_below: impl FnMut() -> bool) {
        let me = self.address();
        loop {
            // While no reader can be in a slot, the acquisition to end is below. If it was made through a slot, the bias was on
            // then, this thread sees that or something later, and the bias is not off before all slots are empty.
            let slots = self.may_have_slot_readers();
            // SAFETY: `end` empties a slot only to end the acquisition that it stands for.
            if slots && unsafe { P::of_caller(me) }.is_some_and(|slot| self.end(slot)) || release_below() {
                return;
            }
            // SAFETY: as above. The search ends at the first slot that this thread has emptied.
            if slots && !unsafe { P::all_slots_of(me, |slot| !self.end(slot)) } {
                return;
            }
            M::pause(1);
        }
    }

    /// Ends the acquisition that a slot stands for, if the slot still holds the lock's address.
    pub(super) fn end(&self, slot: &M::Usize) -> bool {
        let me = self.address();
        // (C), (D) and (E) as in `leave` and `leave_in_vain`. Acquire: the section may have been another thread's, and ends here.
        slot.load(Relaxed) == me && slot.compare_exchange(me, 0, AcqRel, Relaxed).is_ok()
    }
}
