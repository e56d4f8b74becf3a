//! Objects that remember when they were retired, so that a thread in a section can wait for those that were retired before
//! its section began.
//!
//! Source: C++26, [saferecl.rcu.domain.func], `rcu_barrier`. A call in a region has to return if everything that it waits for
//! was scheduled before the region began. A grace period cannot tell: it waits for every section that runs when it opens.
//!
//! The idea: [`RcuDomain::retire_ordered`] lets the clock of the readers advance by a step, and stamps the object with the
//! new time. A section with that stamp or a later one began after the object was removed, and does not find it. So the
//! thread looks for the oldest section of all threads, its own included, and reclaims each object that is not younger.
//!
//! What pairs with what: (B) the advance of the clock (release) and the load in `enter` of `section` (acquire): a section that
//! sees the time sees the removal. (C) the heavy fence and the light fence in `enter`: a section that the look does not see
//! begins after the fence, and sees the removal. (E) the look (acquire) and the end of a section (release).
//!
//! A header has room for the lower 31 bits of a time. An object whose time is in doubt is not reclaimed ([`is_older`]), so no
//! section loses an object. In two cases a barrier in a section waits for the end of the oldest section, which may be the caller's:
//!
//! - The clock has made 2^31 steps since that section began. If all of them are retirements, the objects are garbage, and have 48
//!   GiB at least. But grace periods are steps as well, and those of QSBR do not wait for that section: so many of them may take
//!   no longer than minutes, and leave no garbage.
//! - An object has been garbage for a multiple of 2^31 steps of the clock, or for some more: as many as that section has lasted.
//!
//! Cost: one atomic read-modify-write for each retired object, on the word that readers load. Only the C++ face uses it.

use super::grace::{Stamps, is_at_least};
use super::header::{Header, ReclaimFn, note};
use super::list::List;
use super::rcu::{General, RcuDomain};
use crate::machine::record::{self, NESTING, Records, STEP, TIME};
use crate::machine::{Arith, Group, Word};
use core::sync::atomic::Ordering::*;

/// What of a time has room in a header: the lower 31 bits of its steps, above a bit that is set. So no stamp is 0, which stands
/// for none.
fn stamp(time: u64) -> u32 {
    ((time + STEP / 2) / (STEP / 2)) as u32
}

/// Whether an object with this stamp was retired before the oldest section began, at `oldest`. No object has a time after `now`.
///
/// Times that are a multiple of 2^31 steps apart have the same stamp. So the answer is no if a time after `oldest`, up to `now`, has
/// the object's stamp; and for every object if these are 2^31 times or more.
fn is_older(stamp: u32, oldest: u64, now: u64) -> bool {
    let halves = (now & TIME).wrapping_sub(oldest & TIME) / (STEP / 2);
    let after = stamp.wrapping_sub(self::stamp(oldest));
    halves <= u32::MAX.into() && (after == 0 || u64::from(after) > halves)
}

impl<M: Records> RcuDomain<M> {
    /// [`retire_raw`](Self::retire_raw), for [`barrier_anywhere`](Self::barrier_anywhere).
    ///
    /// # Safety
    ///
    /// As [`retire_raw`](Self::retire_raw).
    pub unsafe fn retire_ordered(&self, header: *mut Header, bytes: u32, reclaim: ReclaimFn) {
        // (B) a section with this time, or a later one, sees that the object was removed.
        let time = General::clock(record::clocks::<M>()).fetch_add(STEP, AcqRel).wrapping_add(STEP);
        // SAFETY: the header is valid and the caller's alone, says the caller.
        unsafe {
            note(header, bytes, reclaim);
            (*header).set_stamp(stamp(time));
        }
        self.retire_prepared(header);
    }

    /// [`barrier`](Self::barrier) that may be called in a section of the caller's own. There it waits neither for that
    /// section nor for a younger one, if everything was retired by [`retire_ordered`](Self::retire_ordered) before the
    /// section began. If anything else was retired and not reclaimed, it waits for the end of the section, and so for
    /// ever. Threads may call this and [`barrier`](Self::barrier) at the same time: none keeps another one from reclaiming while it
    /// waits. A thread that retires beyond the limit does, for as long as [`set_at_limit`](Self::set_at_limit) says.
    ///
    /// # Panics
    ///
    /// In the destructor of a retired object.
    #[track_caller]
    pub fn barrier_anywhere(&self) {
        self.assert_not_reclaiming("barrier");
        self.reclaim_before(|list| self.reclaim_ordered(list));
    }

    /// Reclaims the objects of a list that were retired before the oldest section began. The caller has the list, and is in
    /// a section.
    fn reclaim_ordered(&self, list: &List<M>) {
        let Some(oldest) = Self::oldest_section() else { return };
        // The caller has had the list since before this: no object in it has a later time.
        let now = General::clock(record::clocks::<M>()).load(Relaxed);
        // SAFETY: a section that runs has the time of the object or a later one, so it does not find the object (B). One that
        // begins later does not either (C).
        unsafe {
            list.reclaim_if(|header| header.stamp() != 0 && is_older(header.stamp(), oldest, now));
        }
    }

    /// When the oldest section of all threads began. `None`: no section runs, or there is no heavy fence.
    fn oldest_section() -> Option<u64> {
        // (C) pairs with the light fence of a section.
        if !M::heavy_fence() {
            return None;
        }
        let records = record::groups::<M>().into_iter().flat_map(Group::groups).flat_map(Group::taken);
        // (E) pairs with the end of a section.
        let words = records.map(|record| General::word(record).load(Acquire));
        words
            .filter(|word| word & NESTING != 0)
            .map(|word| word & TIME)
            .reduce(|oldest, time| if is_at_least(time, oldest) { oldest } else { time })
    }
}

#[cfg(test)]
mod tests {
    use super::super::backlog::Steal;
    use super::super::forks::{advance_to_the_end, in_a_child};
    use super::*;
    use crate::machine::Native;
    use std::boxed::Box;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Barrier;

    /// Between 2^31 and 2^32 steps, for which stamps have no room.
    const LONG: u64 = 3 << 30;

    unsafe extern "C-unwind" fn reclaim(header: *mut Header) {
        // SAFETY: `retire` made a box.
        drop(unsafe { Box::from_raw(header) });
    }

    fn retire(domain: &RcuDomain<Native>) {
        // SAFETY: no other thread has the header, which is all of the object.
        unsafe { domain.retire_ordered(Box::into_raw(Box::new(Header::new())), 24, reclaim) };
    }

    /// Lets time advance, as retirements in other domains do. In a child: sections of other tests would be in doubt.
    fn pass(steps: u64) {
        General::clock(record::clocks::<Native>()).fetch_add(steps * STEP, AcqRel);
    }

    /// What is left of the garbage after a look in a section.
    fn left(domain: &RcuDomain<Native>) -> u64 {
        let collecting = domain.backlog.lock();
        collecting.steal(Steal::All);
        domain.reclaim_ordered(collecting.list());
        drop(collecting);
        domain.garbage().objects
    }

    /// Near each place where bits of a time are lost: in the stamp, in the word of a stamp, and in the time itself.
    #[test]
    fn stamps_are_told_apart_where_they_wrap_around() {
        for wrap in [1 << 31, 1 << 32, 1 << 48] {
            let time = |steps: u64| steps.wrapping_mul(STEP) | 1;
            for oldest in wrap - 9..wrap + 9 {
                for now in oldest..oldest + 9 {
                    for retired in oldest - 9..=now {
                        let is_older = is_older(stamp(time(retired)), time(oldest), time(now));
                        assert_eq!(is_older, retired <= oldest, "{retired:x} {oldest:x} {now:x}");
                        assert_ne!(stamp(time(retired)), 0);
                    }
                }
            }
        }
    }

    #[test]
    fn objects_stay_that_were_retired_long_after_a_section_began() {
        let stays = |steps| {
            let domain = RcuDomain::new();
            let section = domain.enter();
            pass(steps);
            retire(&domain);
            let left = left(&domain);
            drop(section);
            left == 1
        };
        assert!(in_a_child(|| [0, 1, LONG / 2, LONG].into_iter().all(stays)));
    }

    #[test]
    fn objects_go_that_were_retired_long_before_the_sections_began() {
        let goes = |steps| {
            let domain = RcuDomain::new();
            retire(&domain);
            pass(steps);
            let section = domain.enter();
            let left = left(&domain);
            drop(section);
            left == 0
        };
        assert!(in_a_child(|| [0, 1, LONG / 2, LONG].into_iter().all(goes)));
    }

    /// Of the sections that run, the oldest counts.
    #[test]
    fn objects_stay_while_an_older_section_runs() {
        let (domain, inside, leave) = (&RcuDomain::new(), &Barrier::new(2), &Barrier::new(2));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _older = domain.enter();
                inside.wait();
                leave.wait();
            });
            inside.wait();
            retire(domain);
            let section = domain.enter();
            let left = left(domain);
            drop(section);
            leave.wait();
            assert_eq!(left, 1);
        });
    }

    /// It may be younger than the section.
    #[test]
    fn an_object_without_a_time_stays_while_a_section_runs() {
        let domain = &RcuDomain::new();
        let section = domain.enter();
        // SAFETY: no other thread has the header, which is all of the object.
        unsafe { domain.retire_raw(Box::into_raw(Box::new(Header::new())), 24, reclaim) };
        assert_eq!(left(domain), 1);
        drop(section);
    }

    /// A barrier in another thread waits for the caller's section, and lets the caller reclaim meanwhile.
    #[test]
    fn barriers_inside_and_outside_do_not_wait_for_each_other() {
        assert!(in_a_child(|| {
            let domain = &RcuDomain::new();
            domain.backlog.never_soon();
            retire(domain);
            let section = domain.enter();
            std::thread::scope(|scope| {
                let outside = scope.spawn(|| domain.barrier());
                // Until that thread has seen this section, and waits for it.
                while domain.stall().is_none() {
                    std::thread::yield_now();
                }
                domain.barrier_anywhere();
                let is_clean = domain.is_clean();
                drop(section);
                outside.join().is_ok() && is_clean
            })
        }));
    }

    /// Grace periods and retirements while the clock wraps around.
    #[test]
    fn the_clock_wraps_around() {
        let clock = General::clock(record::clocks::<Native>());
        let domain = &RcuDomain::new();
        domain.synchronize(); // so that this thread has a record
        let wraps = || {
            advance_to_the_end(clock, || domain.synchronize());
            let before = clock.load(Relaxed);
            while clock.load(Relaxed) >= before {
                retire(domain);
                let section = domain.enter();
                retire(domain);
                assert_eq!(left(domain), 1);
                drop(section);
                domain.barrier();
                assert_eq!(left(domain), 0);
            }
        };
        assert!(in_a_child(|| catch_unwind(AssertUnwindSafe(wraps)).is_ok()));
    }
}
