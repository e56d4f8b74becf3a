//! Interval-based reclamation: readers that stop hold on to what there was then, and to nothing that came later.
//!
//! Source: Wen, Izraelevitz, Cai, Beadle, Scott, "Interval-Based Memory Reclamation", PPoPP 2018, section 3.3 (2GE-IBR);
//! the asymmetric fence as in [`hazard`](super::hazard).
//!
//! A clock counts *eras*. An object notes the era in which it was made. A section notes an interval: the era in which it
//! began, and the latest era in which it has read a pointer. It looks at the clock after each pointer that it reads, and
//! raises the end of its interval if the clock has advanced beyond it. A thread that reclaims a batch issues the heavy
//! fence and looks at all intervals. It keeps an object if there is a section that began before the object was removed and
//! that has read pointers since the object was made. So the garbage that a stalled section holds up is at most what was
//! alive when it last read a pointer.
//!
//! What differs from the paper:
//!
//! - the reader's fence is light, and the thread that reclaims issues the heavy one, for a batch;
//! - an object does not have room for the era in which it was retired. All objects of a list that a look has kept share
//!   one, that of the look, which is later. So an object may be kept for a section that began after the removal, until the
//!   next look. The looks come further apart the more was kept (at half of that), so that keeping what a stalled section
//!   holds costs each retired object a bounded time;
//! - 64 eras share a number of birth, so that 32 bits last for 10^14 retired objects. After that, the numbers begin again: all
//!   objects that are made count as older than all sections, and garbage is bounded as that of [`epoch`](super::epoch) is;
//! - an object whose birth was not noted ([`Reclaim::note_new`]) counts as older than all sections.
//!
//! As with hazard pointers, a pointer must be read from a place where the object is still linked: a link of an object that
//! was removed may lead to one that is reclaimed ([`Guard::protect`]). Typed pointers ([`typed`](super::typed)) always are
//! such a place.
//!
//! Why this one. It needs no signals, which are the program's (as DEBRA+, NBR and Publish-on-Ping do), no jumps out of a
//! reader (DEBRA+, NBR), which would skip destructors, and no double-width exchange (Hyaline-1S). Reading costs a load and a
//! comparison more than epochs do. Hazard eras (Ramalhete and Correia 2017) need a slot for each pointer that is held, and
//! this needs none. The garbage is bounded less tightly than by hazard pointers.
//!
//! State of a group of slots: free (`used` is 0) -> an interval (a guard takes it) -> free. State of an object: incoming ->
//! reclaimed or kept (a look) -> reclaimed or kept (the next look) ...
//!
//! What pairs with what: (A) the reader stores an end of its interval, fences lightly and loads a pointer; the look fences
//! heavily and loads the intervals. So the look sees that end, or the reader sees that the objects were removed. (B) a
//! look lets the clock advance (release); a section that begins in a later era has loaded the clock (acquire), and so does
//! not find what was removed before. (E) the reader's release of its slots, and the store of a later beginning, pair with
//! the look's loads: what was done in a section happens before its objects are reclaimed. (F) the thread that makes an
//! object loads the clock and publishes the object (release); a reader that finds the object (acquire) loads the clock
//! after that, and so does not load an earlier era than that of the object's birth.
//!
//! Size: none per thread, because a guard uses the slots of hazard pointers. Atomics per section: none; per batch: a heavy
//! fence and one addition. Progress: a section is lock-free: it reads a pointer again if the clock has advanced by 64 eras.
//! A thread that retires waits for nobody.

use super::backlog::{Backlog, Steal, to_the_end};
use super::garbage::{Garbage, Limit};
use super::hazard::free_slots;
use super::header::{Header, ReclaimFn, Retire, note, prepare};
use super::list::List;
use super::pace::Rest;
use super::strategy::{Guard, Info, Reader, Reclaim, Sections};
use crate::machine::record::{self, INTERVAL, Kept, Records, Slots};
use crate::machine::{Arith, Group, Native, Word};
use core::hint::cold_path;
use core::marker::PhantomData;
use core::sync::atomic::Ordering::*;

/// The slot with the era in which a section began.
const BEGIN: usize = 0;
/// The slot with the last era of which the section may have objects.
const END: usize = 1;

/// A domain: objects that are retired together. Intervals are the process's: a guard of one domain protects objects of any.
///
/// 2 to the power of `SHIFT` eras share a number of birth.
///
/// ```
/// use latchwork::machine::Native;
/// use latchwork::reclaim::interval::IntervalDomain;
/// use latchwork::reclaim::typed::{Atomic, Owned};
/// use latchwork::reclaim::{Reader, Reclaim};
///
/// static DOMAIN: IntervalDomain<Native> = IntervalDomain::new();
///
/// let route = Atomic::<u32, IntervalDomain<Native>>::new_in(Some(Owned::new(7)));
/// let reader = DOMAIN.reader();
/// let guard = reader.enter();
/// let seen = route.load(&guard);
/// route.store(Some(Owned::new(8)), &DOMAIN); // retires the old one
/// assert_eq!(seen.as_ref(), Some(&7)); // which is not reclaimed before the section is over
/// ```
pub struct IntervalDomain<M: Records, const SHIFT: u32 = 6> {
    backlog: Backlog<M>,
}

/// A thread that reads. See [`Reclaim::reader`].
pub struct IntervalReader<'d, M: Records, const SHIFT: u32 = 6> {
    record: Kept<M>,
    /// Whether the thread has no light fences.
    fenced: bool,
    domain: PhantomData<&'d ()>,
}

/// A section, which ends when this is dropped.
pub struct IntervalGuard<'r, M: Records, const SHIFT: u32 = 6> {
    slots: &'static Slots<M>,
    fenced: bool,
    /// Not `Send`: the slots are the thread's.
    reader: PhantomData<(&'r (), *mut ())>,
}

#[inline(always)]
fn clock<M: Records>() -> &'static M::U64 {
    &record::clocks::<M>().era
}

/// The last era with the same number of birth.
#[inline(always)]
fn last(era: u64, shift: u32) -> usize {
    (era | ((1 << shift) - 1)) as usize
}

impl<M: Records, const SHIFT: u32> IntervalGuard<'_, M, SHIFT> {
    /// A section with these slots, unless a guard has them.
    #[inline(always)]
    fn take(slots: &'static Slots<M>, fenced: bool) -> Option<Self> {
        if slots.used.load(Relaxed) != 0 {
            return None;
        }
        // (B) pairs with the addition in `look`. (The fences (A) order the same: the look's comes before its addition, and this
        // section's after this load.)
        let era = clock::<M>().load(Acquire);
        // (E) what was done in an earlier section, or in a guard of hazard pointers that had the slots, happens before what a
        // look or a scan does that sees one of these.
        slots.hazards[END].store(last(era, SHIFT), Release);
        slots.hazards[BEGIN].store(era as usize, Release);
        slots.used.store(INTERVAL, Release); // (E)
        let guard = IntervalGuard { slots, fenced, reader: PhantomData };
        guard.fence();
        Some(guard)
    }

    #[inline(always)]
    fn fence(&self) {
        // (A) pairs with the heavy fence in `look`.
        if self.fenced { M::light_fence() } else { M::lightest_fence() }
    }

    /// Whether the interval has the era that it is after a pointer was loaded (acquire): then the object is protected.
    #[inline(always)]
    fn is_within(&self) -> bool {
        // (F) pairs with the load in `note_new`.
        clock::<M>().load(Relaxed) as usize <= self.slots.hazards[END].load(Relaxed)
    }

    /// Raises the end of the interval to the present.
    #[cold]
    fn raise(&self) {
        self.slots.hazards[END].store(last(clock::<M>().load(Relaxed), SHIFT), Release); // (E)
        self.fence();
    }
}

impl<M: Records, const SHIFT: u32> Drop for IntervalGuard<'_, M, SHIFT> {
    #[inline(always)]
    fn drop(&mut self) {
        self.slots.used.store(0, Release); // (E)
    }
}

// SAFETY: the object was made in an era before the end of the interval, and the end was stored, and a fence issued, before
// the pointer was loaded. So each look that finds the object comes after that, and sees the interval (A).
unsafe impl<M: Records, const SHIFT: u32> Guard for IntervalGuard<'_, M, SHIFT> {
    type Machine = M;

    #[inline(always)]
    fn protect<T: Send + Sync + 'static>(&self, _: usize, from: &M::Ptr<T>) -> *mut T {
        loop {
            let pointer = from.load(Acquire);
            if self.is_within() {
                return pointer;
            }
            cold_path();
            self.raise();
        }
    }
}

impl<M: Records, const SHIFT: u32> Reader for IntervalReader<'_, M, SHIFT> {
    type Machine = M;
    type Guard<'r>
        = IntervalGuard<'r, M, SHIFT>
    where
        Self: 'r;

    #[inline(always)]
    fn enter(&self) -> IntervalGuard<'_, M, SHIFT> {
        let any = || IntervalGuard::take(free_slots(&self.record.get().hazards), self.fenced);
        self.try_enter().or_else(any).expect("the slots are free")
    }

    #[inline(always)]
    fn try_enter(&self) -> Option<IntervalGuard<'_, M, SHIFT>> {
        if self.fenced {
            return None;
        }
        IntervalGuard::take(&self.record.get().hazards.groups[0], false)
    }
}

/// The last eras of the sections that are in the way.
#[derive(Copy, Clone, Default)]
struct Ends {
    /// Of those that began before the list was looked at last.
    old: Option<u64>,
    /// Of all.
    all: Option<u64>,
}

impl IntervalDomain<Native> {
    /// A domain without garbage, in a constant.
    pub const fn new() -> Self {
        IntervalDomain { backlog: Backlog::native() }
    }
}

impl<M: Records, const SHIFT: u32> IntervalDomain<M, SHIFT> {
    /// Whether the calling thread is in a section.
    pub fn is_inside() -> bool {
        record::own::<M>().hazards.all().any(|slots| slots.used.load(Relaxed) == INTERVAL)
    }

    /// [`retire`](Reclaim::retire) for an object of which the caller knows only the header: one of C or C++, say. `bytes`
    /// count as [`Garbage::bytes`]. `reclaim` is called once, by any thread. When the object was made is not known: a section
    /// that begins before it is retired keeps it.
    ///
    /// # Safety
    ///
    /// - The header is valid, and nothing else uses it, until `reclaim` is called.
    /// - The object was removed as [`retire`](Reclaim::retire) says, and is retired once.
    /// - `reclaim` may be called for the header, in any thread.
    #[inline]
    pub unsafe fn retire_raw(&self, header: *mut Header, bytes: u32, reclaim: ReclaimFn) {
        // SAFETY: the header is valid and the caller's alone, says the caller.
        unsafe { note(header, bytes, reclaim) };
        self.retire_prepared(header);
    }

    /// Adds an object whose header is filled in.
    #[inline(always)]
    fn retire_prepared(&self, header: *mut Header) {
        let due = self.backlog.push(header, 1 << 31);
        self.backlog.reclaim_if(due, || self.look_around(|_| true), || self.reclaim());
    }

    #[cold]
    fn reclaim(&self) {
        self.look_around(|list| {
            let (new, kept) = list.counts();
            new >= (kept / 2).max(1)
        });
    }

    /// Looks at the calling thread's list if `wanted` says so, and then at what other threads have left alone.
    fn look_around(&self, wanted: impl Fn(&List<M>) -> bool) {
        if self.backlog.is_reclaiming() {
            return;
        }
        if let Some(mine) = self.backlog.mine() {
            if !wanted(&mine) {
                return;
            }
            self.look(&mine);
        }
        if let Some(collecting) = self.backlog.try_lock() {
            collecting.steal(Steal::Old);
            if wanted(collecting.list()) {
                self.look(collecting.list());
            }
        }
    }

    /// The intervals of all threads, seen from a list that was looked at in the era `ticket`.
    fn ends(ticket: u64) -> Ends {
        let records = record::groups::<M>().into_iter().flat_map(Group::owned);
        let mut ends = Ends::default();
        // (E) pairs with the readers' stores.
        for slots in records.flat_map(|record| record.hazards.all()) {
            if slots.used.load(Acquire) != INTERVAL {
                continue;
            }
            let [begin, end] = [BEGIN, END].map(|at| slots.hazards[at].load(Acquire) as u64); // (E)
            ends.all = ends.all.max(Some(end));
            if begin <= ticket {
                ends.old = ends.old.max(Some(end));
            }
        }
        ends
    }

    /// Reclaims each object of a list that no section can have, and keeps the others. The caller has the list.
    fn look(&self, list: &List<M>) {
        if list.is_empty() {
            return;
        }
        // (A) pairs with the fence after a section has stored an end of its interval. The objects were removed before.
        if !M::heavy_fence() {
            return; // the objects wait for the next look
        }
        let ends = Self::ends(list.ticket.load(Relaxed));
        let in_use = |end: Option<u64>| {
            move |header: &Header| end.is_some_and(|end| u64::from(header.stamp()) << SHIFT <= end)
        };
        let oldest = list.oldest();
        list.recall();
        let before = list.keep(list.detach(), in_use(ends.old));
        // (B) pairs with the load in `IntervalGuard::take`. A section that begins in a later era does not find what is kept
        // now.
        list.take(|| clock::<M>().fetch_add(1, AcqRel));
        let new = list.keep(list.detach(), in_use(ends.all));
        list.set_looked(oldest);
        list.attach(before);
        list.attach(new);
        // SAFETY: the objects were removed before the fence. Each section that may have found one began before that, and
        // its interval has ended before the object was made, or it is over: sections that the fence did not order before
        // the look see that the objects were removed, and those with a later beginning than the list's ticket do too.
        unsafe { list.reclaim() };
    }
}

impl<M: Records, const SHIFT: u32> Default for IntervalDomain<M, SHIFT> {
    /// A domain without garbage.
    fn default() -> Self {
        Self::new_in()
    }
}

impl<M: Records, const SHIFT: u32> Drop for IntervalDomain<M, SHIFT> {
    /// Reclaims everything. Waits for sections that may have an object of the garbage. Inside of a section of its own, the
    /// thread would wait for itself: then the garbage is leaked.
    fn drop(&mut self) {
        if Self::is_inside() {
            return;
        }
        let collecting = self.backlog.lock();
        to_the_end(|| {
            let mut rest = Rest::new();
            loop {
                // Destructors may retire, so there may be more each time.
                collecting.steal(Steal::Last);
                if collecting.list().is_empty() {
                    return;
                }
                self.look(collecting.list());
                if !collecting.list().is_empty() {
                    rest.take::<M>(false);
                }
            }
        });
    }
}

// SAFETY: a look reclaims no object of which a section of any domain of the type may have been found in its interval
// (`look`). Each object is in one list.
unsafe impl<M: Records, const SHIFT: u32> Reclaim for IntervalDomain<M, SHIFT> {
    type Machine = M;
    type Reader<'d> = IntervalReader<'d, M, SHIFT>;
    const INFO: Info = Info {
        name: "interval",
        summary: "intervals of eras: a stalled reader holds up what there was when it stopped",
        reader: "two stamps on the section, and a look at the clock per pointer, with plain instructions",
        atomics: 0,
        bound: "one and a half times what there was when a reader stopped, and three batches per retiring thread",
        source: "Wen et al. 2018, section 3.3",
    };

    fn new_in() -> Self {
        IntervalDomain { backlog: Backlog::new() }
    }

    fn reader(&self) -> IntervalReader<'_, M, SHIFT> {
        const { assert!(usize::BITS >= 64, "eras need slots of 64 bits") };
        let record = Kept::<M>::new();
        let fenced = !M::prepare_fences();
        IntervalReader { record, fenced, domain: PhantomData }
    }

    /// Always: intervals are the process's.
    #[inline(always)]
    fn covers<'r, 'd>(&self, _: &IntervalGuard<'r, M, SHIFT>) -> bool
    where
        IntervalReader<'d, M, SHIFT>: 'r,
    {
        true
    }

    #[inline]
    fn note_new<T: Retire>(object: &mut T) {
        let header: *const Header = core::ptr::from_mut(object).cast();
        // (F) pairs with the load in `is_within`. Of a number that does not fit, the lower bits stand for an earlier era.
        let birth = (clock::<M>().load(Relaxed) >> SHIFT) as u32;
        // SAFETY: the header is the first field of the object (`Retire`), which the caller has alone.
        unsafe { (*header).set_stamp(birth) };
    }

    #[inline]
    unsafe fn retire<T: Retire>(&self, object: *mut T) {
        // SAFETY: the object is alive and begins with its header (`Retire`), and is retired once, says the caller.
        let header = unsafe {
            let birth = (*object.cast::<Header>()).stamp();
            let header = prepare(object); // which clears the stamp
            (*header).set_stamp(birth);
            header
        };
        self.retire_prepared(header);
    }

    /// Sets after how many objects a thread looks whether they can be reclaimed: after as many as with RCU.
    fn set_limit(&self, limit: Limit) {
        self.backlog.set_limit(limit);
    }

    fn collect(&self) {
        self.look_around(|_| true);
    }

    #[track_caller]
    fn barrier(&self) {
        assert!(!self.backlog.is_reclaiming(), "barrier by an object that is being reclaimed");
        assert!(!Self::is_inside(), "barrier inside of the caller's own section would wait for ever");
        let collecting = self.backlog.lock();
        let mut rest = Rest::new();
        while !collecting.steal(Steal::All) {
            rest.take::<M>(false);
        }
        // Nothing comes into the central list while this thread is the collector.
        while !collecting.list().is_empty() {
            self.look(collecting.list());
            if !collecting.list().is_empty() {
                rest.take::<M>(false);
            }
        }
    }

    fn garbage(&self) -> Garbage {
        self.backlog.garbage()
    }
}

// SAFETY: an interval only grows while its guard lasts, so whatever was made in it stays protected.
unsafe impl<M: Records, const SHIFT: u32> Sections for IntervalDomain<M, SHIFT> {
    #[inline(always)]
    fn protect_seen<T: Send + Sync + 'static>(
        guard: &IntervalGuard<'_, M, SHIFT>,
        seen: *mut T,
        from: &M::Ptr<T>,
    ) -> *mut T {
        if guard.is_within() { seen } else { guard.protect(0, from) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::backlog::tests::retired;
    use super::super::forks::in_a_child;
    use super::*;
    use crate::machine::{Clock, Machine};

    /// What a stalled section keeps is looked at when half as much has come in, and says how old it is. (Looks are other ones if the
    /// thread is stopped for a millisecond, and its list counts as left alone.)
    #[test]
    fn looks_come_further_apart_the_more_is_kept() {
        let attempt = || {
            let domain = IntervalDomain::<Native>::new();
            domain.set_limit(Limit { objects: 0, bytes: 0 });
            domain.backlog.never_soon();
            let (reader, before) = (domain.reader(), clock::<Native>().load(Relaxed));
            let section = reader.enter();
            domain.retire_prepared(retired());
            let since = Native::now(Clock::Monotonic);
            (1..20 * 16).for_each(|_| domain.retire_prepared(retired()));
            let looks = clock::<Native>().load(Relaxed) - before;
            (0..9).for_each(|_| domain.collect());
            let least = Native::now(Clock::Monotonic) - since;
            let garbage = domain.garbage();
            drop(section);
            domain.barrier();
            // With 16, 32, 48, 80, 128, 192 and 288 objects.
            looks == 7
                && garbage.objects == 20 * 16
                && garbage.oldest_nanos >= least
                && domain.backlog.is_clean()
        };
        assert!(in_a_child(|| (0..100).any(|_| attempt())));
    }
    /// What a section has kept in the central list is looked at when more has come there, or after a pause: a batch of another
    /// list costs no second look, and no second heavy fence.
    #[test]
    fn a_batch_costs_one_look() {
        assert!(in_a_child(|| {
            let domain = IntervalDomain::<Native>::new();
            domain.set_limit(Limit { objects: 0, bytes: 0 });
            domain.backlog.never_soon();
            let reader = domain.reader();
            let section = reader.enter();
            domain.retire_prepared(retired());
            {
                let collecting = domain.backlog.lock();
                collecting.steal(Steal::All);
                domain.look(collecting.list());
            }
            drop(section);
            (0..16).for_each(|_| domain.retire_prepared(retired()));
            let after_a_batch = domain.garbage().objects;
            domain.collect();
            (after_a_batch, domain.garbage().objects) == (1, 0)
        }));
    }
}
