//! Garbage of which some is in use: a scan reclaims the rest, and keeps that for the next one.
//!
//! State of an object: incoming -> waiting (a scan begins) -> reclaimed, or kept -> waiting (the next scan).
//! Scans are numbered, and an object is stamped with the number of the first that finds it, so that one can
//! wait for what was there at some time while more comes in.

use super::backlog::Backlog;
use super::header::{Header, Retire, finish, prepare};
use super::pace::Rest;
use crate::machine::{Arith, Machine, Records, Word};
use core::ptr::null_mut;
use core::sync::atomic::Ordering::*;

pub(super) struct Sieve<M: Machine> {
    pub(super) backlog: Backlog<M>,
    /// What the last scan has found in use.
    kept: M::Ptr<Header>,
    /// The number of the last scan, and that of the first which has found one of the kept objects.
    scans: M::U32,
    oldest: M::U32,
}

/// Whether one scan came before another; their numbers wrap around.
fn is_before(one: u32, other: u32) -> bool {
    (one.wrapping_sub(other) as i32) < 0
}

impl<M: Records> Sieve<M> {
    pub(super) fn new() -> Self {
        Sieve {
            backlog: Backlog::new(),
            kept: M::Ptr::new(null_mut()),
            scans: M::U32::new(0),
            oldest: M::U32::new(0),
        }
    }

    /// A scan begins: all objects. If `fence` says `false`, none of them may be looked at. Under the gate,
    /// like what follows.
    pub(super) fn begin(&self, fence: impl FnOnce() -> bool) -> *mut Header {
        self.backlog.attach(self.kept.swap(null_mut(), Relaxed));
        let number = self.scans.fetch_add(1, Relaxed).wrapping_add(1);
        if self.backlog.take(number) && !fence() {
            return null_mut(); // what waits waits on
        }
        self.oldest.store(number.wrapping_add(1), Relaxed);
        self.backlog.detach()
    }

    /// Keeps those of `objects` that are in use, and returns the others.
    pub(super) fn keep(&self, mut objects: *mut Header, in_use: impl Fn(&Header) -> bool) -> *mut Header {
        let mut others = null_mut();
        // SAFETY: what is in the list is alive.
        while let Some(header) = unsafe { objects.as_ref() } {
            let object = objects;
            objects = header.next();
            if in_use(header) {
                header.set_next(self.kept.load(Relaxed));
                self.kept.store(object, Relaxed);
                if is_before(header.stamp(), self.oldest.load(Relaxed)) {
                    self.oldest.store(header.stamp(), Relaxed);
                }
            } else {
                header.set_next(others);
                others = object;
            }
        }
        others
    }

    /// Reclaims what was not kept.
    ///
    /// # Safety
    ///
    /// `objects` came from this scan, and nobody uses them, nor will.
    pub(super) unsafe fn end(&self, objects: *mut Header) {
        if objects.is_null() {
            return; // there were none, or none may be looked at
        }
        self.backlog.attach(objects);
        while let Some(object) = self.backlog.next() {
            // SAFETY: the caller's promise; it is out of the list, so this happens once.
            unsafe { finish(object) };
        }
    }

    /// Scans until everything is reclaimed that has come in before.
    pub(super) fn barrier(&self, scan: impl Fn()) {
        assert!(!self.backlog.gate.is_mine(), "barrier by an object that is being reclaimed");
        let mut scanning = self.backlog.gate.lock();
        scan();
        let number = self.scans.load(Relaxed);
        let mut rest = Rest::new();
        while !is_before(number, self.oldest.load(Relaxed)) {
            drop(scanning);
            rest.take::<M>(false);
            scanning = self.backlog.gate.lock();
            scan();
        }
    }

    /// Takes an object in, and scans if that fills a batch.
    ///
    /// # Safety
    ///
    /// As [`Reclaim::retire`](super::Reclaim::retire).
    #[inline]
    pub(super) unsafe fn retire<T: Retire>(&self, object: *mut T, scan: impl Fn()) {
        // SAFETY: forwarded from the caller.
        if self.backlog.push(unsafe { prepare(object) }) {
            self.relieve(scan);
        }
    }

    /// The domain ends: scans for the last time.
    pub(super) fn close(&self, scan: impl Fn()) {
        let _scanning = self.backlog.gate.lock();
        scan();
    }

    /// A batch is full: scans, unless the caller is an object that is being reclaimed.
    #[cold]
    fn relieve(&self, scan: impl Fn()) {
        if !self.backlog.gate.is_mine() {
            let _scanning = self.backlog.gate.lock();
            scan();
        }
    }

    /// Scans, unless somebody does.
    pub(super) fn collect(&self, scan: impl Fn()) {
        if let Some(_scanning) = self.backlog.gate.try_lock() {
            scan();
        }
    }
}
