//! Garbage of which some is in use: a scan reclaims the rest, and keeps that for the next one.
//!
//! State of an object: incoming -> waiting (a scan begins) -> reclaimed, or kept -> waiting (the next scan).
//! A thread that has filled a batch scans its own. Who waits for all scans what it has stolen: such scans are
//! numbered, and an object is stamped with the number of the first that finds it, so that one can wait for what was
//! there at some time while more comes in.

use super::backlog::{Backlog, Collecting, Steal};
use super::header::{Retire, prepare};
use super::list::List;
use super::pace::Rest;
use crate::machine::record::Records;
use crate::machine::{Arith, Machine, Word};
use core::sync::atomic::Ordering::*;

/// Objects that a thread retires before it scans: enough to be worth a heavy fence.
pub(super) const BATCH: u32 = 256;

pub(super) struct Sieve<M: Machine> {
    pub(super) backlog: Backlog<M>,
    /// The number of the last scan of what was stolen, and that of the first which has found one of the objects that
    /// are still there.
    scans: M::U32,
    oldest: M::U32,
}

/// Whether one scan came before another; their numbers wrap around.
fn is_before(one: u32, other: u32) -> bool {
    (one.wrapping_sub(other) as i32) < 0
}

impl<M: Records> Sieve<M> {
    pub(super) fn new() -> Self {
        Sieve { backlog: Backlog::new(), scans: M::U32::new(0), oldest: M::U32::new(0) }
    }

    /// Scans what has been stolen, and is. `scan` reclaims what is waiting in a list that the caller has, except for
    /// what it keeps there.
    fn scan_others(&self, collecting: &Collecting<'_, M>, which: Steal, scan: impl Fn(&List<M>)) {
        let stolen = collecting.steal(which);
        let list = collecting.list();
        let number = self.scans.fetch_add(1, Relaxed).wrapping_add(1);
        list.stamp(number);
        if list.gather() {
            scan(list);
        }
        // If nothing could be stolen, nobody has waited for it.
        let first = if stolen { number.wrapping_add(1) } else { number };
        let older = |one, other| if is_before(one, other) { one } else { other };
        self.oldest.store(list.stamps().fold(first, older), Relaxed);
    }

    /// Scans until everything is reclaimed that has come in before.
    pub(super) fn barrier(&self, scan: impl Fn(&List<M>)) {
        assert!(!self.backlog.is_mine(), "barrier by an object that is being reclaimed");
        let mut scanning = self.backlog.lock();
        self.scan_others(&scanning, Steal::All, &scan);
        let number = self.scans.load(Relaxed);
        let mut rest = Rest::new();
        while !is_before(number, self.oldest.load(Relaxed)) {
            drop(scanning);
            rest.take::<M>(false);
            scanning = self.backlog.lock();
            self.scan_others(&scanning, Steal::All, &scan);
        }
    }

    /// Takes an object in, and scans if that fills a batch.
    ///
    /// # Safety
    ///
    /// As [`Reclaim::retire`](super::Reclaim::retire).
    #[inline]
    pub(super) unsafe fn retire<T: Retire>(&self, object: *mut T, scan: impl Fn(&List<M>)) {
        // SAFETY: forwarded from the caller.
        if self.backlog.push(unsafe { prepare(object) }, BATCH) {
            self.relieve(scan);
        }
    }

    /// The domain ends: scans for the last time.
    pub(super) fn close(&self, scan: impl Fn(&List<M>)) {
        self.scan_others(&self.backlog.lock(), Steal::Last, scan);
    }

    /// A batch is full: scans, unless the caller is an object that is being reclaimed.
    #[cold]
    fn relieve(&self, scan: impl Fn(&List<M>)) {
        if self.backlog.stacked() >= BATCH && !self.backlog.is_mine() {
            self.scan_others(&self.backlog.lock(), Steal::Old, &scan);
        }
        self.collect(scan);
    }

    /// Scans what the caller has retired, and what others have left alone, unless somebody does.
    pub(super) fn collect(&self, scan: impl Fn(&List<M>)) {
        if self.backlog.is_mine() {
            return;
        }
        if let Some(mine) = self.backlog.mine()
            && mine.gather()
        {
            scan(&mine);
        }
        if let Some(scanning) = self.backlog.try_lock() {
            self.scan_others(&scanning, Steal::Old, scan);
        }
    }
}
