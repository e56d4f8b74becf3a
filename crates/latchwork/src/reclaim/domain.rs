//! The writing side of RCU and epochs: what was retired waits in lists until a grace period has passed.
//!
//! State of an object: alive -> incoming in a list (`retire`) -> waiting, with the ticket of a grace period (`take`) ->
//! reclaimed, when the ticket is due (`work`, `reclaim_all`).

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

/// A domain: objects that are retired together. Sections are the process's: one protects what is retired in any domain of
/// its flavour.
///
/// No thread has to drive it. With each 512th object that a thread retires (each 16th, with a small [`Limit`]), the thread
/// takes the reclamation as far as it gets without waiting. While there is more garbage than the [`Limit`], the thread
/// waits, unless it is inside of a section. A worker that calls [`serve`](Domain::serve) takes the work off the others.
pub struct Domain<M: Records, F: Flavour> {
    grace: F::Periods<M>,
    backlog: Backlog<M>,
    /// Whether a thread has retired too much inside of a section, where it could not wait.
    pressed: M::U32,
    throttle: Throttle<M>,
}

/// How long a thread that retires waits while there is too much garbage.
struct Throttle<M: Machine> {
    /// For how long a thread that retires waits, in nanoseconds.
    nanos: M::U64,
    /// The ticket of a grace period that has not ended within the bound, or 0. Until it is due, no thread that retires
    /// waits.
    stuck: M::U64,
    /// See [`Garbage::overruns`].
    overruns: M::U64,
}

/// For how many nanoseconds a thread that retires waits for a grace period: longer than a reader is preempted on a busy
/// machine, and short enough for a program that has lost a guard to go on.
const THROTTLE: u64 = 1_000_000_000;

/// A point in time. [`Domain::poll`] says whether a grace period has passed since.
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
        assert!(!self.backlog.is_reclaiming(), "{what} by an object that is being reclaimed");
    }

    /// Waits until every section that runs now is over. Callers share grace periods.
    ///
    /// # Panics
    ///
    /// Inside of a section of the caller's own.
    #[track_caller]
    pub fn synchronize(&self) {
        self.assert_outside("synchronize");
        self.grace.wait(self.grace.start(), Pace::Normal, None);
    }

    /// [`synchronize`](Domain::synchronize) in a hurry: the thread that leads the grace period burns a processor for it.
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

    /// Whether every section that ran when the cookie was made is over. Does not wait. Inside of a section that ran then,
    /// the answer is `false`.
    pub fn poll(&self, cookie: Cookie) -> bool {
        self.grace.poll(cookie.0)
    }

    /// The thread that holds up a grace period right now, and for how long.
    pub fn stall(&self) -> Option<Stall> {
        self.grace.stall()
    }

    /// Sets after how many nanoseconds a grace period that does not end is reported (10 seconds if this is not called).
    pub fn set_stall_nanos(&self, nanos: u64) {
        self.grace.set_patience(nanos);
    }

    /// Sets for how many nanoseconds a thread that retires waits while there is more garbage than the [`Limit`] (1 second
    /// if this is not called). If the grace period has not ended by then, the thread goes on, and so does every other
    /// thread until that grace period has ended: the garbage grows, and [`Garbage::overruns`] counts.
    pub fn set_throttle_nanos(&self, nanos: u64) {
        self.throttle.nanos.store(nanos, Relaxed);
    }

    /// Sets how much garbage there may be before a thread that retires has to wait.
    pub fn set_limit(&self, limit: Limit) {
        self.backlog.set_limit(limit);
    }

    /// See [`Reclaim::retire`]. May run the destructors of other objects
    /// ([destructors and locks](super#destructors-and-locks)).
    ///
    /// # Safety
    ///
    /// As [`Reclaim::retire`].
    #[inline]
    pub unsafe fn retire<T: Retire>(&self, object: *mut T) {
        // SAFETY: the object is alive and begins with its header (`Retire`), and is retired once, says the caller.
        if self.backlog.push(unsafe { prepare(object) }, self.backlog.batch()) {
            self.batch_is_full();
        }
    }

    /// Reclaims what is due, and waits if there is too much garbage. Called when the thread's batch is full.
    #[cold]
    fn batch_is_full(&self) {
        if self.backlog.is_reclaiming() {
            return;
        }
        if let Some(mine) = self.backlog.mine() {
            // Once, and not again for what has come in now: when the next batch is full, a grace period that another
            // thread has led may serve it as well.
            self.work(&mine);
        }
        self.collect_others();
        if !Self::is_inside() {
            self.throttle();
        } else if self.backlog.is_over_limit() {
            self.pressed.store(1, Relaxed);
        }
    }

    /// Whether a thread has retired too much inside of a section, so that a thread that can wait should.
    #[inline(always)]
    pub(super) fn is_pressed(&self) -> bool {
        self.pressed.load(Relaxed) != 0
    }

    /// Waits while there is too much garbage, if a thread has retired it inside of a section, and the calling thread is in
    /// no section.
    #[inline(always)]
    pub(crate) fn throttle_if_pressed(&self) {
        if self.is_pressed() {
            self.throttle_outside();
        }
    }

    /// Waits while there is too much garbage, if the calling thread is in no section.
    #[cold]
    pub(super) fn throttle_outside(&self) {
        if !Self::is_inside() {
            self.throttle();
            self.pressed.store(0, Relaxed);
        }
    }

    /// Waits while there is more garbage than the [`Limit`], for as long as
    /// [`set_throttle_nanos`](Domain::set_throttle_nanos) says. [`retire`](Domain::retire) does this by itself, but not
    /// inside of a section: a thread that retires only there calls this outside, or [`Reader::quiescent`].
    pub fn throttle(&self) {
        if !self.backlog.is_over_limit() || self.backlog.is_reclaiming() {
            return;
        }
        self.assert_outside("throttle");
        if !self.is_stuck() {
            let deadline = Deadline::after::<M>(self.throttle.nanos.load(Relaxed));
            // First what the caller has retired itself, and then what all threads have.
            if self.reclaim_own(deadline) && self.reclaim_all_until(deadline) {
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
            // This may overwrite a later ticket of another thread: then one more thread waits, for the bounded time.
            self.throttle.stuck.store(0, Relaxed);
            return false;
        }
        ticket != 0
    }

    /// Waits until what the calling thread has retired is due, and reclaims it. Other threads may take the list
    /// meanwhile. `false`: the deadline has passed.
    fn reclaim_own(&self, deadline: Deadline) -> bool {
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

    /// Reclaims what all threads have retired until there is no more than the limit. `false`: the deadline has passed.
    fn reclaim_all_until(&self, deadline: Deadline) -> bool {
        let mut rest = Rest::new();
        while self.backlog.is_over_limit() {
            let Some(collecting) = self.backlog.lock_until(Some(deadline)) else { return false };
            if self.backlog.is_over_limit()
                && self.reclaim_all(&collecting, Steal::Free, Some(deadline)).is_none()
            {
                return false;
            }
            drop(collecting);
            // The rest is in lists that their threads are reclaiming, or adding to, right now.
            if self.backlog.is_over_limit() {
                if deadline.passed::<M>() {
                    return false;
                }
                rest.take::<M>(true);
            }
        }
        true
    }

    /// Reclaims what can be reclaimed without waiting: what the calling thread has retired, and what other threads have
    /// left alone for a millisecond.
    pub fn collect(&self) {
        if self.backlog.is_reclaiming() {
            return;
        }
        if let Some(mine) = self.backlog.mine() {
            // Twice: for what has been waiting, and for what has come in since.
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
        self.reclaim_all(&self.backlog.lock(), Steal::All, None);
    }

    /// Reclaims for the other threads until `stop` returns `true`, and then everything. Looks every `nanos` nanoseconds.
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

    /// Gives what has come in on a list a ticket, for which it waits. Returns whether anything has come in. The caller has
    /// the list.
    fn take(&self, list: &List<M>) -> bool {
        let any = list.take();
        if any {
            list.ticket.store(self.grace.start(), Relaxed);
        }
        any
    }

    /// Reclaims what is waiting in a list, if its ticket is due, and then gives what has come in a ticket. `false`: the
    /// ticket is not due, or nothing has come in. The caller has the list.
    fn work(&self, list: &List<M>) -> bool {
        if list.is_waiting() {
            if !self.grace.poll(list.ticket.load(Relaxed)) {
                return false;
            }
            // SAFETY: the ticket was given out after the objects were removed and retired, and it is due: every section
            // is over that may have found them.
            unsafe { list.reclaim() };
        }
        self.take(list)
    }

    /// Reclaims what all threads have retired before, and waits for grace periods. Returns whether there was anything.
    /// `None`: the deadline has passed.
    fn reclaim_all(
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
            // SAFETY: as in `work`: the ticket of the objects is due.
            unsafe { list.reclaim() };
            any = true;
        }
        Some(any)
    }
}

impl<M: Records, F: Flavour> Drop for Domain<M, F> {
    /// Reclaims everything. Waits for readers that may have found an object of the garbage, as long as they stay in their
    /// sections. Inside of a section of its own, the thread would wait for itself: then the garbage is leaked.
    fn drop(&mut self) {
        if Self::is_inside() {
            return debug_assert!(
                self.garbage().objects == 0,
                "a domain with garbage was dropped in a section"
            );
        }
        let collecting = self.backlog.lock();
        while self.reclaim_all(&collecting, Steal::Last, None) == Some(true) {}
    }
}

// SAFETY: a list is reclaimed when a grace period has passed since the last object came in: each section of the
// flavour, of whichever domain, that may have found one of them is over. Each object is in one list.
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

    /// Always: the sections of a flavour are the process's.
    #[inline(always)]
    fn covers<'r, 'd>(&self, _: &GuardOf<'r, 'd, Self>) -> bool
    where
        F::Reader<'d, M>: 'r,
    {
        true
    }

    #[inline]
    unsafe fn retire<T: Retire>(&self, object: *mut T) {
        // SAFETY: the caller promises what `Reclaim::retire` asks.
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

// SAFETY: a section protects every object that is retired after the section has begun, in every domain of the flavour.
unsafe impl<M: Records, F: Flavour> GracePeriod for Domain<M, F> {
    #[track_caller]
    fn synchronize(&self) {
        Domain::synchronize(self);
    }
}
