//! The reading side of RCU and epochs: a thread stamps its sections with the time.
//!
//! The states of the word that holds the stamp, and the pairs (B), (C) and (E), are described at
//! [`rcu`](super::rcu); for epochs, "clock" is the current epoch.

use super::domain::{Domain, Flavour};
use super::strategy::{Guard, Reader};
use crate::machine::record::{self, Kept, NEEDS_FULL_FENCE, NESTING, Record, Records};
use crate::machine::{Machine, Word};
use core::marker::PhantomData;
use core::sync::atomic::Ordering::*;

/// Begins the outermost section of a thread, or a nested one.
#[inline(always)]
fn enter<M: Records>(word: &M::U64, clock: &M::U64) {
    if !try_enter::<M>(word, clock) {
        enter_slowly::<M>(word, clock);
    }
}

/// Begins the outermost section of a thread that has light fences and does not rest. `false`: nothing was done.
#[inline(always)]
fn try_enter<M: Records>(word: &M::U64, clock: &M::U64) -> bool {
    if word.load(Relaxed) & (NESTING | NEEDS_FULL_FENCE) != 0 {
        return false;
    }
    // (B) pairs with the advance of the clock. (E) what was done in an earlier section happens before what a thread does
    // that sees this stamp.
    word.store(clock.load(Acquire), Release);
    // (C) pairs with the heavy fence. A thread that rests, or whose fences are not prepared, has `NEEDS_FULL_FENCE` set, and does
    // not come here.
    M::lightest_fence();
    true
}

/// Begins a nested section, or a section of a thread that rests or has no light fences.
#[cold]
#[inline(never)]
fn enter_slowly<M: Records>(word: &M::U64, clock: &M::U64) {
    if nest::<M>(word, "32767 nested sections: the thread keeps too many guards, or has leaked them") {
        return;
    }
    let fenced = if M::prepare_fences() { 0 } else { NEEDS_FULL_FENCE };
    // (B) and (E) as in `try_enter`.
    word.store(clock.load(Acquire) | fenced, Release);
    // (C) pairs with the leader's full fence: it may have seen that the thread rests. (The delivery of a signal orders as much for a
    // section of its handler that nests before the fence.)
    M::full_fence();
}

/// The calling thread *rests*, if it is outside of sections: its next section begins with a full fence, so that a leader that sees
/// this needs no heavy fence on its behalf.
pub(super) fn rest<M: Machine>(word: &M::U64) {
    let now = word.load(Relaxed);
    if now & (NESTING | NEEDS_FULL_FENCE) == 0 {
        // (E) as the store at the end of a section: a leader may see this one and not that.
        word.store(now | NEEDS_FULL_FENCE, Release);
    }
}

/// Counts one more section, if the thread is inside of one already. Returns whether it is.
#[inline]
pub(super) fn nest<M: Records>(word: &M::U64, leaked: &str) -> bool {
    let now = word.load(Relaxed);
    if now & NESTING == 0 {
        return false;
    }
    assert!(now & NESTING < NESTING, "{leaked}");
    // (E) as the store of an outermost section: a leader may see this store and not that one.
    word.store(now + 1, Release);
    true
}

/// Ends the innermost section.
#[inline(always)]
pub(super) fn exit<M: Machine>(word: &M::U64) {
    // (E) what was done in the section happens before the end of the grace period whose leader sees this.
    word.store(word.load(Relaxed) - 1, Release);
}

/// A thread that reads in sections. See [`Reclaim::reader`](super::Reclaim::reader).
pub struct SectionReader<'d, M: Records, F: Flavour> {
    domain: &'d Domain<M, F>,
    record: Kept<M>,
}

/// A section, which ends when this is dropped.
pub struct SectionGuard<'r, M: Records, F: Flavour> {
    record: &'static Record<M>,
    reader: PhantomData<(&'r F, *mut ())>,
}

impl<'d, M: Records, F: Flavour> SectionReader<'d, M, F> {
    pub(super) fn new(domain: &'d Domain<M, F>) -> Self {
        SectionReader { domain, record: Kept::new() }
    }
}

impl<M: Records, F: Flavour> SectionGuard<'_, M, F> {
    #[inline(always)]
    #[cfg_attr(feature = "section-origins", track_caller)]
    pub(super) fn new(record: &'static Record<M>) -> Self {
        record.note_origin(F::word(record));
        enter::<M>(F::word(record), F::clock(record::clocks::<M>()));
        SectionGuard { record, reader: PhantomData }
    }
}

impl<M: Records, F: Flavour> Drop for SectionGuard<'_, M, F> {
    #[inline(always)]
    fn drop(&mut self) {
        exit::<M>(F::word(self.record));
    }
}

// SAFETY: a section that begins before an object is retired ends before the object is reclaimed: `Grace` and `Epochs`
// wait for it.
unsafe impl<M: Records, F: Flavour> Guard for SectionGuard<'_, M, F> {
    type Machine = M;

    #[inline(always)]
    fn protect<T: Send + Sync + 'static>(&self, _: usize, from: &M::Ptr<T>) -> *mut T {
        from.load(Acquire)
    }
}

impl<M: Records, F: Flavour> Reader for SectionReader<'_, M, F> {
    type Machine = M;
    type Guard<'r>
        = SectionGuard<'r, M, F>
    where
        Self: 'r;

    #[inline(always)]
    #[cfg_attr(feature = "section-origins", track_caller)]
    fn enter(&self) -> SectionGuard<'_, M, F> {
        SectionGuard::new(self.record.get())
    }

    #[inline(always)]
    #[cfg_attr(feature = "section-origins", track_caller)]
    fn try_enter(&self) -> Option<SectionGuard<'_, M, F>> {
        let record = self.record.get();
        record.note_origin(F::word(record));
        let entered = try_enter::<M>(F::word(record), F::clock(record::clocks::<M>()));
        entered.then(|| SectionGuard { record, reader: PhantomData })
    }

    #[inline(always)]
    fn quiescent(&mut self) {
        self.domain.throttle_if_pressed();
    }
}
