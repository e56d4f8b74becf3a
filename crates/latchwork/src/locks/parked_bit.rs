//! Parking at a lock word whose holder releases it with [`release_dec`](Machine::release_dec).
//!
//! The release is no atomic read-modify-write, so it may lose a bit that another thread sets meanwhile. A thread that parks
//! sets a *parked bit*, issues a heavy fence, and looks again. If the word is still held and has the bit, then (F) every
//! decrement that has not taken effect by then will see the bit, and the releasing thread unparks the thread.

use super::bits::Bits;
use crate::machine::{Deadline, Machine};

/// Nanoseconds of a sleep when the operating system refused the heavy fence: a wakeup may be missed then.
const UNFENCED_SLEEP: u64 = 1_000_000;

/// Parks the caller while `word` has the bit `held`, until a release finds the bit `parked`, or until the deadline. May
/// return at any time. The caller is the only thread that sets `parked` to park itself.
pub(crate) fn park<M: Machine>(word: &M::U32, held: Bits, parked: Bits, deadline: Option<Deadline>) {
    if !parked.set_in::<M>(word).has(held) {
        return;
    }
    // (F) SeqCst is not needed: the heavy fence orders the bit before the second look, and every decrement either before
    // that look or after the bit.
    let fenced = M::heavy_fence();
    let now = Bits::of::<M>(word);
    if !now.has(held) || !now.has(parked) {
        return;
    }
    let deadline = match deadline {
        deadline if fenced => deadline,
        Some(deadline) if deadline.passed::<M>() => return,
        _ => Some(Deadline::after::<M>(UNFENCED_SLEEP)),
    };
    M::wait(word, now.0, deadline);
}

/// Unparks all threads that have parked at the word: a requeue may have moved a second one there, which would leave the
/// first asleep if only one woke up. The lock may be gone by now: only its address is used.
#[cold]
#[inline(never)]
pub(crate) fn unpark<M: Machine>(word: *const M::U32) {
    M::wake(word, u32::MAX);
}
