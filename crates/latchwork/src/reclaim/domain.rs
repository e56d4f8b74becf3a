//! The writing side of RCU and epochs: grace periods, and the garbage that waits for them.

use super::backlog::{Backlog, Collecting, Steal};
use super::grace::{Flavour, Periods};
use super::header::{Retire, prepare};
use super::list::{List, Mine};
use super::pace::Rest;
use super::{Garbage, GracePeriod, Info, Limit, Pace, Reclaim, Stall};
use crate::machine::Word;
use crate::machine::record::{NESTING, Records};
use core::sync::atomic::Ordering::Relaxed;

/// What is retired together. Readers are the process's: a section protects what is retired in any domain
/// of its flavour.
///
/// Nobody has to drive it: each 512th object that a thread retires (each 16th, with a small [`Limit`]) takes the
/// reclamation as far as it gets without waiting, and with too much garbage ([`Limit`]) who retires waits for it,
/// except inside of a section. A worker that calls [`serve`](Domain::serve) takes the work off the others.
pub struct Domain<M: Records, F: Flavour> {
    grace: F::Periods<M>,
    backlog: Backlog<M>,
    /// Whether somebody has retired too much where it could not wait.
    pressed: M::U32,
}

/// A point in time, to ask later whether a grace period has passed since.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[must_use]
pub struct Cookie(u64);

impl<M: Records, F: Flavour> Domain<M, F> {
    /// A domain without garbage.
    pub fn new_in() -> Self {
        Domain { grace: F::Periods::new(), backlog: Backlog::new(), pressed: M::U32::new(0) }
    }

    /// Whether the calling thread is in a section.
    pub fn is_inside() -> bool {
        F::word(M::record()).load(Relaxed) & NESTING != 0
    }

    #[track_caller]
    fn assert_outside(&self, what: &str) {
        assert!(!Self::is_inside(), "{what} inside of the caller's own section would wait for ever");
        assert!(!self.backlog.is_mine(), "{what} by an object that is being reclaimed");
    }

    /// Waits until every section that runs now is over. Many callers share a grace period.
    ///
    /// # Panics
    ///
    /// Inside of a section of the caller's own.
    #[track_caller]
    pub fn synchronize(&self) {
        self.assert_outside("synchronize");
        self.grace.wait(self.grace.start(), Pace::Normal);
    }

    /// [`synchronize`](Domain::synchronize) for who is in a hurry, and burns a processor for it.
    ///
    /// # Panics
    ///
    /// Inside of a section of the caller's own.
    #[track_caller]
    pub fn synchronize_expedited(&self) {
        self.assert_outside("synchronize");
        self.grace.wait(self.grace.start(), Pace::Expedited);
    }

    /// Begins a grace period, for [`poll`](Domain::poll).
    pub fn start_poll(&self) -> Cookie {
        Cookie(self.grace.start())
    }

    /// Whether every section that ran when the cookie was made is over. Does not wait, and may be called
    /// inside of a section, which it does not take for over.
    pub fn poll(&self, cookie: Cookie) -> bool {
        self.grace.poll(cookie.0)
    }

    /// Which thread holds up a grace period right now, and for how long.
    pub fn stall(&self) -> Option<Stall> {
        self.grace.stall()
    }

    /// After how many nanoseconds a grace period that does not end is reported (10 seconds if this is not
    /// called).
    pub fn set_stall_nanos(&self, nanos: u64) {
        self.grace.set_patience(nanos);
    }

    /// How much garbage there may be before who retires has to wait.
    pub fn set_limit(&self, limit: Limit) {
        self.backlog.set_limit(limit);
    }

    /// See [`Reclaim::retire`].
    ///
    /// # Safety
    ///
    /// As there.
    #[inline]
    pub unsafe fn retire<T: Retire>(&self, object: *mut T) {
        // SAFETY: forwarded from the caller.
        if self.backlog.push(unsafe { prepare(object) }, self.backlog.batch()) {
            self.relieve();
        }
    }

    /// A batch is full.
    #[cold]
    fn relieve(&self) {
        if self.backlog.is_mine() {
            return;
        }
        if let Some(mine) = self.backlog.mine() {
            // What comes in now is looked at when the next batch is full: by then somebody else's grace period may
            // be over, which is as good.
            self.work(&mine);
        }
        self.collect_others();
        if !Self::is_inside() {
            self.throttle();
        } else if self.backlog.is_over_limit() {
            self.pressed.store(1, Relaxed);
        }
    }

    /// Whether who can wait now should.
    #[inline(always)]
    pub(super) fn is_pressed(&self) -> bool {
        self.pressed.load(Relaxed) != 0
    }

    /// Waits while there is too much garbage, if somebody has retired it where it could not wait, and the calling
    /// thread can.
    #[inline(always)]
    pub(crate) fn heed(&self) {
        if self.is_pressed() {
            self.relent();
        }
    }

    /// Waits until there is not too much garbage, if the calling thread is in no section.
    #[cold]
    pub(super) fn relent(&self) {
        if !Self::is_inside() {
            self.throttle();
            self.pressed.store(0, Relaxed);
        }
    }

    /// Waits while there is more garbage than there may be. [`retire`](Domain::retire) does this by itself,
    /// but not inside of a section: a thread that retires only there calls this outside, or
    /// [`Reader::quiescent`](super::Reader::quiescent).
    pub fn throttle(&self) {
        if !self.backlog.is_over_limit() || self.backlog.is_mine() {
            return;
        }
        self.assert_outside("throttle");
        // What the caller has retired itself, and then all.
        self.settle();
        while self.backlog.is_over_limit() {
            let collecting = self.backlog.lock();
            if self.backlog.is_over_limit() {
                self.clear(&collecting, Steal::All);
            }
        }
    }

    /// Waits until it can reclaim what the calling thread has retired, and reclaims it. The list is not busy
    /// meanwhile.
    fn settle(&self) {
        let begin =
            |mine: Mine<'_, M>| (mine.is_waiting() || self.take(&mine)).then(|| mine.ticket.load(Relaxed));
        while self.backlog.is_over_limit()
            && let Some(ticket) = self.backlog.mine().and_then(begin)
        {
            self.grace.wait(ticket, Pace::Normal);
            self.backlog.mine().inspect(|mine| _ = self.work(mine));
        }
    }

    /// Reclaims what can be reclaimed without waiting: what the calling thread has retired, and what others have
    /// left alone for a millisecond.
    pub fn collect(&self) {
        if self.backlog.is_mine() {
            return;
        }
        if let Some(mine) = self.backlog.mine() {
            // Twice: what has been waiting for long, and what has come in since.
            let _ = self.work(&mine) && self.work(&mine);
        }
        self.collect_others();
    }

    fn collect_others(&self) {
        if let Some(collecting) = self.backlog.try_lock() {
            collecting.steal(Steal::Old);
            let _ = self.work(collecting.list()) && self.work(collecting.list());
        }
    }

    /// Waits until everything that was retired before is reclaimed.
    ///
    /// # Panics
    ///
    /// Inside of a section of the caller's own, and in the destructor of a retired object.
    #[track_caller]
    pub fn barrier(&self) {
        self.assert_outside("barrier");
        self.clear(&self.backlog.lock(), Steal::All);
    }

    /// Reclaims for the others until `stop` says so, and then all there is. Looks every `nanos`.
    pub fn serve(&self, nanos: u64, stop: impl Fn() -> bool) {
        while !stop() {
            self.collect();
            M::doze(nanos);
        }
        self.barrier();
    }

    /// How much garbage there is.
    pub fn garbage(&self) -> Garbage {
        self.backlog.garbage()
    }

    /// Has what has come in on a list wait. The caller has the list.
    fn take(&self, list: &List<M>) -> bool {
        let any = list.take();
        if any {
            list.ticket.store(self.grace.start(), Relaxed);
        }
        any
    }

    /// Reclaims what is waiting in a list, if its time has come, and has what has come in wait. `false`: its time
    /// has not come, or there is nothing. The caller has the list.
    fn work(&self, list: &List<M>) -> bool {
        if list.is_waiting() {
            if !self.grace.poll(list.ticket.load(Relaxed)) {
                return false;
            }
            // SAFETY: a grace period has passed since it was retired, so that nobody uses it.
            unsafe { list.reclaim() };
        }
        self.take(list)
    }

    /// Reclaims what everybody has retired before, waiting for grace periods. Whether there was any.
    fn clear(&self, collecting: &Collecting<'_, M>, which: Steal) -> bool {
        let mut rest = Rest::new();
        while !collecting.steal(which) {
            rest.take::<M>(false);
        }
        let (list, mut any) = (collecting.list(), false);
        while list.is_waiting() || self.take(list) {
            self.grace.wait(list.ticket.load(Relaxed), Pace::Normal);
            // SAFETY: as in `work`.
            unsafe { list.reclaim() };
            any = true;
        }
        any
    }
}

impl<M: Records, F: Flavour> Drop for Domain<M, F> {
    /// Reclaims everything. In a section of the thread's own there is nothing to be waited for: then the
    /// garbage is leaked.
    fn drop(&mut self) {
        if Self::is_inside() {
            return debug_assert!(
                self.garbage().objects == 0,
                "a domain with garbage was dropped in a section"
            );
        }
        let collecting = self.backlog.lock();
        while self.clear(&collecting, Steal::Last) {}
    }
}

impl<M: Records, F: Flavour> Reclaim for Domain<M, F> {
    type Machine = M;
    type Reader<'d> = F::Reader<'d, M>;
    const INFO: Info = F::INFO;

    fn new_in() -> Self {
        Domain::new_in()
    }

    fn reader(&self) -> F::Reader<'_, M> {
        F::reader(self)
    }

    #[inline]
    unsafe fn retire<T: Retire>(&self, object: *mut T) {
        // SAFETY: forwarded from the caller.
        unsafe { Domain::retire(self, object) };
    }

    fn throttle(&self) {
        Domain::throttle(self);
    }

    fn set_limit(&self, limit: Limit) {
        Domain::set_limit(self, limit);
    }

    fn collect(&self) {
        Domain::collect(self);
    }

    #[track_caller]
    fn barrier(&self) {
        Domain::barrier(self);
    }

    fn garbage(&self) -> Garbage {
        Domain::garbage(self)
    }
}

// SAFETY: a section protects all that begins to be reclaimed after it has begun.
unsafe impl<M: Records, F: Flavour> GracePeriod for Domain<M, F> {
    #[track_caller]
    fn synchronize(&self) {
        Domain::synchronize(self);
    }
}
