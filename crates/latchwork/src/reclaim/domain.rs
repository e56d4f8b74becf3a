//! The writing side of RCU and epochs: grace periods, and the garbage that waits for them.

use super::backlog::{Backlog, Collecting, Steal};
use super::garbage::{Garbage, Limit};
use super::grace::{Periods, Stamps};
use super::header::{Retire, prepare};
use super::list::{List, Mine};
use super::pace::{Pace, Rest};
use super::strategy::{GracePeriod, GuardOf, Info, Reader, Reclaim};
use crate::machine::record::{self, NESTING, Records, Stall};
use crate::machine::{Arith, Deadline, Machine, Word};
use core::sync::atomic::Ordering::Relaxed;

/// A kind of RCU, or epochs: how its readers say that they read, and how one waits for them.
///
/// # Safety
///
/// Sections of [`Reader`](Flavour::Reader) are stamped as [`Stamps`] says, and [`Periods`](Flavour::Periods) wait for
/// them.
pub unsafe trait Flavour: Stamps {
    /// Its description.
    const INFO: Info;
    /// How one waits.
    type Periods<M: Records>: Periods;
    /// See [`Reclaim::reader`].
    type Reader<'d, M: Records>: Reader<Machine = M>;
    /// The calling thread as one that reads.
    fn reader<M: Records>(domain: &Domain<M, Self>) -> Self::Reader<'_, M>;
}

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
    throttle: Throttle<M>,
}

/// How long a thread that retires waits while there is too much garbage.
struct Throttle<M: Machine> {
    /// The bound, in nanoseconds.
    nanos: M::U64,
    /// The ticket of a grace period that has not ended within the bound, or 0. Nobody waits while it is not over.
    stuck: M::U64,
    /// See [`Garbage::overruns`].
    overruns: M::U64,
}

/// How long a thread that retires waits for a grace period, in nanoseconds: longer than a reader is preempted on a
/// busy machine, and short enough for a program that has lost a guard to go on.
const THROTTLE: u64 = 1_000_000_000;

/// A point in time, to ask later whether a grace period has passed since.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[must_use]
pub struct Cookie(u64);

impl<M: Records, F: Flavour> Domain<M, F> {
    /// A domain without garbage.
    pub fn new_in() -> Self {
        let throttle =
            Throttle { nanos: M::U64::new(THROTTLE), stuck: M::U64::new(0), overruns: M::U64::new(0) };
        Domain { grace: F::Periods::new(), backlog: Backlog::new(), pressed: M::U32::new(0), throttle }
    }

    /// Whether the calling thread is in a section.
    pub fn is_inside() -> bool {
        F::word(record::own::<M>()).load(Relaxed) & NESTING != 0
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
        self.grace.wait(self.grace.start(), Pace::Normal, None);
    }

    /// [`synchronize`](Domain::synchronize) for who is in a hurry, and burns a processor for it.
    ///
    /// # Panics
    ///
    /// Inside of a section of the caller's own.
    #[track_caller]
    pub fn synchronize_expedited(&self) {
        self.assert_outside("synchronize");
        self.grace.wait(self.grace.start(), Pace::Expedited, None);
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

    /// For how many nanoseconds a thread that retires waits while there is more garbage than the [`Limit`] (1 second if
    /// this is not called). If the grace period that it waits for has not ended by then, it goes on, and so does every
    /// other thread until that grace period has ended: the garbage grows, and [`Garbage::overruns`] counts.
    pub fn set_throttle_nanos(&self, nanos: u64) {
        self.throttle.nanos.store(nanos, Relaxed);
    }

    /// How much garbage there may be before a thread that retires has to wait.
    pub fn set_limit(&self, limit: Limit) {
        self.backlog.set_limit(limit);
    }

    /// See [`Reclaim::retire`]. May run the destructors of other objects
    /// ([destructors and locks](super#destructors-and-locks)).
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

    /// Waits while there is too much garbage, if a thread has retired that inside of a section, and the calling thread is
    /// in none.
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

    /// Waits while there is more garbage than there may be, for as long as
    /// [`set_throttle_nanos`](Domain::set_throttle_nanos) says. [`retire`](Domain::retire) does this by itself,
    /// but not inside of a section: a thread that retires only there calls this outside, or
    /// [`Reader::quiescent`](super::Reader::quiescent).
    pub fn throttle(&self) {
        if !self.backlog.is_over_limit() || self.backlog.is_mine() {
            return;
        }
        self.assert_outside("throttle");
        if !self.is_stuck() {
            let deadline = Deadline::after::<M>(self.throttle.nanos.load(Relaxed));
            // What the caller has retired itself, and then all.
            if self.settle(deadline) && self.clear_until(deadline) {
                return;
            }
            self.throttle.stuck.store(self.grace.start(), Relaxed);
        }
        self.throttle.overruns.fetch_add(1, Relaxed);
    }

    /// Whether a grace period that has not ended within the bound is still open.
    fn is_stuck(&self) -> bool {
        let ticket = self.throttle.stuck.load(Relaxed);
        if ticket != 0 && self.grace.poll(ticket) {
            // If another thread has stored a later ticket meanwhile, one more wait is bounded too.
            self.throttle.stuck.store(0, Relaxed);
            return false;
        }
        ticket != 0
    }

    /// Waits until it can reclaim what the calling thread has retired, and reclaims it. The list is not busy
    /// meanwhile. `false`: the deadline has passed.
    fn settle(&self, deadline: Deadline) -> bool {
        let begin =
            |mine: Mine<'_, M>| (mine.is_waiting() || self.take(&mine)).then(|| mine.ticket.load(Relaxed));
        while self.backlog.is_over_limit()
            && let Some(ticket) = self.backlog.mine().and_then(begin)
        {
            if !self.grace.wait(ticket, Pace::Normal, Some(deadline)) {
                return false;
            }
            self.backlog.mine().inspect(|mine| _ = self.work(mine));
        }
        true
    }

    /// Reclaims what others have retired until there is not too much. `false`: the deadline has passed.
    fn clear_until(&self, deadline: Deadline) -> bool {
        let mut rest = Rest::new();
        while self.backlog.is_over_limit() {
            let Some(collecting) = self.backlog.lock_until(Some(deadline)) else { return false };
            if self.backlog.is_over_limit() && self.clear(&collecting, Steal::Free, Some(deadline)).is_none()
            {
                return false;
            }
            drop(collecting);
            // The rest is in lists that their threads are just reclaiming, or adding to.
            if self.backlog.is_over_limit() {
                if deadline.passed::<M>() {
                    return false;
                }
                rest.take::<M>(true);
            }
        }
        true
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
        self.clear(&self.backlog.lock(), Steal::All, None);
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
        Garbage { overruns: self.throttle.overruns.load(Relaxed), ..self.backlog.garbage() }
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

    /// Reclaims what everybody has retired before, waiting for grace periods. Whether there was any. `None`: the
    /// deadline has passed.
    fn clear(
        &self,
        collecting: &Collecting<'_, M>,
        which: Steal,
        deadline: Option<Deadline>,
    ) -> Option<bool> {
        let mut rest = Rest::new();
        while !collecting.steal(which) {
            if deadline.is_some_and(|deadline| deadline.passed::<M>()) {
                return None;
            }
            rest.take::<M>(false);
        }
        let (list, mut any) = (collecting.list(), false);
        while list.is_waiting() || self.take(list) {
            if !self.grace.wait(list.ticket.load(Relaxed), Pace::Normal, deadline) {
                return None;
            }
            // SAFETY: a grace period has passed since it was retired, so that nobody uses it.
            unsafe { list.reclaim() };
            any = true;
        }
        Some(any)
    }
}

impl<M: Records, F: Flavour> Drop for Domain<M, F> {
    /// Reclaims everything. It waits for the readers that may have what is garbage, for as long as they stay in their
    /// sections. In a section of the thread's own there is nothing to be waited for: then the garbage is leaked.
    fn drop(&mut self) {
        if Self::is_inside() {
            return debug_assert!(
                self.garbage().objects == 0,
                "a domain with garbage was dropped in a section"
            );
        }
        let collecting = self.backlog.lock();
        while self.clear(&collecting, Steal::Last, None) == Some(true) {}
    }
}

// SAFETY: a list is reclaimed when a grace period has passed since the last object came in: each section of the
// flavour, of whichever domain, that may have protected one of them is over. Each object is in one list.
unsafe impl<M: Records, F: Flavour> Reclaim for Domain<M, F> {
    type Machine = M;
    type Reader<'d> = F::Reader<'d, M>;
    const INFO: Info = F::INFO;

    fn new_in() -> Self {
        Domain::new_in()
    }

    fn reader(&self) -> F::Reader<'_, M> {
        F::reader(self)
    }

    /// The sections of a flavour are the process's.
    #[inline(always)]
    fn covers<'r, 'd>(&self, _: &GuardOf<'r, 'd, Self>) -> bool
    where
        F::Reader<'d, M>: 'r,
    {
        true
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

// SAFETY: a section protects all that begins to be reclaimed after it has begun, in every domain of the flavour.
unsafe impl<M: Records, F: Flavour> GracePeriod for Domain<M, F> {
    #[track_caller]
    fn synchronize(&self) {
        Domain::synchronize(self);
    }
}
