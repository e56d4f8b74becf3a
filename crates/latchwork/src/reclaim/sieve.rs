//! The writing side of hazard pointers and counts: a scan finds out which objects are in use, keeps those for the next
//! scan, and reclaims the others.
//!
//! State of an object: incoming -> waiting (a scan begins) -> reclaimed, or kept -> waiting (the next scan).
//!
//! A thread that has filled a batch scans its own list; or moves it to the central list and scans that, if there is anything
//! and no other thread is the collector. A thread that waits for the objects of all threads (`barrier`)
//! becomes the collector, steals them, and scans the central list. Scans of the central list are numbered, and an object
//! is stamped with the number of the first such scan that finds it. By the oldest stamp, a thread knows when everything
//! is reclaimed that was there when it began to wait, while more comes in.

use super::backlog::{Backlog, Collecting, Steal, to_the_end};
use super::header::Header;
use super::list::List;
use super::pace::Rest;
use crate::machine::record::Records;
use crate::machine::{Arith, Machine, Native, Word};
use core::sync::atomic::{AtomicU32, Ordering::*};

/// Objects that a thread retires before it scans: enough to be worth the heavy fence of a scan.
pub(super) const BATCH: u32 = 256;

/// The garbage of a domain whose scans find out which objects are in use.
pub(super) struct Sieve<M: Machine> {
    pub(super) backlog: Backlog<M>,
    /// The number of the last scan of the central list.
    scans: M::U32,
    /// The smallest stamp of an object that is still there, or the number of the next scan.
    oldest: M::U32,
}

/// Whether one scan came before another. The numbers wrap around.
fn is_before(one: u32, other: u32) -> bool {
    (one.wrapping_sub(other) as i32) < 0
}

impl Sieve<Native> {
    pub(super) const fn native() -> Self {
        Sieve { backlog: Backlog::native(), scans: AtomicU32::new(0), oldest: AtomicU32::new(0) }
    }
}

impl<M: Records> Sieve<M> {
    pub(super) fn new() -> Self {
        Sieve { backlog: Backlog::new(), scans: M::U32::new(0), oldest: M::U32::new(0) }
    }

    /// Steals from the lists of other threads, and scans the central list. `scan` reclaims the waiting objects of a list
    /// that the caller has, except for those that it keeps. Returns the number of the scan; `None` if the operating system
    /// refuses the heavy fence, so that the scan has not seen what is in other lists.
    fn scan_others(
        &self,
        collecting: &Collecting<'_, M>,
        which: Steal,
        scan: impl Fn(&List<M>),
    ) -> Option<u32> {
        let stolen = collecting.steal(which);
        let number = self.scan_central(collecting, scan);
        stolen.then_some(number)
    }

    /// Scans the central list. Returns the number of the scan.
    fn scan_central(&self, collecting: &Collecting<'_, M>, scan: impl Fn(&List<M>)) -> u32 {
        let list = collecting.list();
        let number = self.scans.fetch_add(1, Relaxed).wrapping_add(1);
        list.stamp(number);
        if list.gather() {
            scan(list);
        }
        let older = |one, other| if is_before(one, other) { one } else { other };
        self.oldest.store(list.in_use().map(Header::stamp).fold(number.wrapping_add(1), older), Relaxed);
        number
    }

    /// Scans until everything is reclaimed that was retired before. Panics if the calling thread would wait for itself: if it protects
    /// such an object by a guard of its own, as `protects` says.
    #[track_caller]
    pub(super) fn barrier(&self, scan: impl Fn(&List<M>), protects: impl Fn(&Header) -> bool) {
        assert!(!self.backlog.is_reclaiming(), "barrier by an object that is being reclaimed");
        let (mut rest, mut first) = (Rest::new(), None);
        loop {
            let scanning = self.backlog.lock();
            let number = self.scan_others(&scanning, Steal::All, &scan);
            // The first scan that has seen all objects says which of them were there before.
            first = first.or(number);
            if let Some(first) = first {
                if is_before(first, self.oldest.load(Relaxed)) {
                    return;
                }
                let is_waited_for = |object: &&Header| !is_before(first, object.stamp());
                let waits_for_itself = scanning.list().in_use().filter(is_waited_for).any(&protects);
                assert!(!waits_for_itself, "barrier in a section that protects a retired object");
            }
            drop(scanning);
            rest.take::<M>(false);
        }
    }

    /// Adds a retired object, whose header has been filled in, and scans if that fills a batch.
    #[inline]
    pub(super) fn retire(&self, object: *mut Header, scan: impl Fn(&List<M>) + Copy) {
        let due = self.backlog.push(object, BATCH);
        let reclaim = move || self.reclaim(scan);
        self.backlog.reclaim_if(due, reclaim, reclaim);
    }

    /// Scans for the last time, when the domain is dropped; and again while destructors retire.
    pub(super) fn close(&self, scan: impl Fn(&List<M>)) {
        let scanning = self.backlog.lock();
        to_the_end(|| {
            loop {
                self.scan_others(&scanning, Steal::Last, &scan);
                if !self.backlog.has_incoming() {
                    return;
                }
            }
        });
    }

    /// Scans, unless the caller is a destructor that runs in a scan. Called when it is time.
    #[cold]
    fn reclaim(&self, scan: impl Fn(&List<M>)) {
        if self.backlog.stacked() >= BATCH && !self.backlog.is_reclaiming() {
            self.scan_others(&self.backlog.lock(), Steal::Old, &scan);
        }
        self.collect(scan);
    }

    /// Scans what the calling thread has retired; and what other threads have left alone, unless another thread is the
    /// collector.
    pub(super) fn collect(&self, scan: impl Fn(&List<M>)) {
        if self.backlog.is_reclaiming() {
            return;
        }
        if let Some(scanning) = self.backlog.try_lock() {
            scanning.steal(Steal::Old);
            if !scanning.list().is_empty() {
                // One scan does for both lists: each costs a heavy fence.
                self.backlog.mine().inspect(|mine| scanning.list().move_all(mine));
                self.scan_central(&scanning, scan);
                return;
            }
        }
        if let Some(mine) = self.backlog.mine()
            && mine.gather()
        {
            scan(&mine);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::backlog::tests::retired;
    use super::*;
    use core::cell::Cell;
    use core::ptr::eq;

    /// A barrier ends when what was there before is reclaimed, while more comes in that stays in use, and that the caller protects. So it
    /// is where the numbers of scans wrap around, too.
    #[test]
    fn a_barrier_waits_for_what_was_there_before() {
        for scans in [0, u32::MAX - 3, u32::MAX - 2, u32::MAX - 1, u32::MAX] {
            let (sieve, scanned) = (Sieve::<Native>::new(), Cell::new(0));
            sieve.scans.store(scans, Relaxed);
            let before = retired();
            _ = sieve.backlog.push(before, BATCH);
            let scan = |list: &List<Native>| {
                scanned.set(scanned.get() + 1);
                assert!(scanned.get() < 10, "it waits for what has come later");
                _ = sieve.backlog.push(retired(), BATCH);
                let in_use = |header: &Header| !eq(header, before) || scanned.get() < 3;
                list.attach(list.keep(list.detach(), in_use));
                // SAFETY: no thread uses the objects.
                unsafe { list.reclaim() };
            };
            sieve.barrier(scan, |object| !eq(object, before));
            assert_eq!(scanned.get(), 3, "after {scans} scans");
            // SAFETY: as above.
            sieve.close(|list| unsafe { list.reclaim() });
            assert!(sieve.backlog.is_clean());
        }
    }

    /// An object in the central list that stays in use costs no scan beside that of each batch.
    #[test]
    fn one_scan_does_for_a_batch_and_the_central_list() {
        let (sieve, kept, scans) = (Sieve::<Native>::new(), retired(), Cell::new(0));
        let scan = |list: &List<Native>| {
            scans.set(scans.get() + 1);
            list.attach(list.keep(list.detach(), |header| eq(header, kept)));
            // SAFETY: no thread uses the objects.
            unsafe { list.reclaim() };
        };
        _ = sieve.backlog.push(kept, BATCH);
        sieve.scan_others(&sieve.backlog.lock(), Steal::All, scan);
        for batch in 1..=3 {
            (1..BATCH).for_each(|_| _ = sieve.backlog.push(retired(), BATCH));
            scans.set(0);
            sieve.collect(scan);
            assert_eq!((scans.get(), sieve.backlog.garbage().objects), (1, 1), "batch {batch}");
        }
        // SAFETY: as above.
        sieve.close(|list| unsafe { list.reclaim() });
        assert!(sieve.backlog.is_clean());
    }

    /// Where the collector takes long, a thread whose list is stopped waits for it when there is a batch on the shared stack.
    #[test]
    fn the_shared_stack_holds_a_batch() {
        let sieve = &Sieve::<Native>::new();
        // SAFETY: no thread uses the objects.
        let scan = |list: &List<Native>| unsafe { list.reclaim() };
        std::thread::scope(|scope| {
            let scanning = sieve.backlog.lock();
            scope.spawn(|| {
                sieve.backlog.mine().expect("no other thread collects").stop();
                (0..4 * BATCH).for_each(|_| sieve.retire(retired(), scan));
            });
            while sieve.backlog.stacked() < BATCH {
                std::thread::yield_now();
            }
            for _ in 0..1000 {
                std::thread::yield_now();
                assert!(sieve.backlog.stacked() <= BATCH);
            }
            drop(scanning);
        });
        sieve.close(scan);
        assert!(sieve.backlog.is_clean());
    }
}
