//! The writing side of RCU and epochs: what was retired waits in lists until a grace period has passed.
//!
//! State of an object: alive -> incoming in a list (`retire`) -> waiting, with the ticket of a grace period (`take`) ->
//! reclaimed, when the ticket is due (`work`, `reclaim_all`).

use super::backlog::{Backlog, Collecting, Steal, to_the_end};
use super::due::Due;
use super::garbage::{Garbage, Limit};
use super::grace::{Periods, Stamps};
use super::header::{Header, ReclaimFn, Retire, note, prepare};
use super::list::{List, Mine};
use super::pace::{Pace, Rest};
use super::stall::Hooks;
use super::strategy::{GracePeriod, GuardOf, Info, Reader, Reclaim};
use crate::machine::record::{self, NESTING, Records, Stall};
use crate::machine::{Arith, Deadline, Machine, Native, Word};
use alloc::boxed::Box;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

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
/// No thread has to drive it. With each 512th object that a thread retires (more often with a small [`Limit`], up to each
/// 16th), the thread takes the reclamation as far as it gets without waiting. If no thread of the domain has done that for 10 ms, or for
/// 100 times as long as it took, the next object does. After many at once, one of the next 64 does. While there is more garbage than the [`Limit`],
/// the thread waits, unless it is inside of a section. A worker that calls [`serve`](Domain::serve) takes the work off the
/// others.
pub struct Domain<M: Records, F: Flavour> {
    grace: F::Periods<M>,
    pub(super) backlog: Backlog<M>,
    /// Whether a thread has retired too much inside of a section, where it could not wait.
    pressed: M::U32,
    throttle: Throttle<M>,
    hooks: Hooks<M>,
}

/// How long a thread that retires waits while there is too much garbage.
struct Throttle<M: Machine> {
    /// For how long a thread that retires waits, in nanoseconds; 0: not at all ([`AtLimit::Grow`]).
    nanos: M::U64,
    /// The ticket of a grace period that has not ended within the bound, or 0. Until it is due, no thread that retires
    /// waits.
    stuck: M::U64,
    /// The last value of `stuck` that the hook was told of.
    told: M::U64,
    /// See [`Garbage::overruns`].
    overruns: M::U64,
}

/// For how many nanoseconds a thread that retires waits for a grace period: longer than a reader is preempted on a busy
/// machine, and short enough for a program that has lost a guard to go on.
const THROTTLE: u64 = 1_000_000_000;

/// For how many nanoseconds a thread waits for a grace period before it looks whether another thread has reclaimed what it
/// waits for: rarely enough to cost nothing, for a case that is rare.
const LOOK: u64 = 10_000_000;

/// What a thread that retires does while there is more garbage than the [`Limit`]: see [`Domain::set_at_limit`].
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum AtLimit {
    /// Outside of sections, it waits for a grace period, for so many nanoseconds at most. If the grace period has not ended
    /// by then, the thread goes on, and so does every other thread until that grace period has ended: the garbage grows.
    Wait {
        /// The bound.
        nanos: u64,
    },
    /// It never waits, and takes no part in a grace period beyond what it does without waiting: the garbage grows as long
    /// as readers stay in their sections.
    Grow,
}

impl Default for AtLimit {
    /// To wait for a second at most.
    fn default() -> Self {
        AtLimit::Wait { nanos: THROTTLE }
    }
}

/// A point in time. [`Domain::poll`] says whether a grace period has passed since.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[must_use]
pub struct Cookie(u64);

impl<F: Flavour> Domain<Native, F> {
    pub(super) const fn with(grace: F::Periods<Native>) -> Self {
        let throttle = Throttle {
            nanos: AtomicU64::new(THROTTLE),
            stuck: AtomicU64::new(0),
            told: AtomicU64::new(0),
            overruns: AtomicU64::new(0),
        };
        let pressed = AtomicU32::new(0);
        Domain { grace, backlog: Backlog::native(), pressed, throttle, hooks: Hooks::native() }
    }
}

impl<M: Records, F: Flavour> Domain<M, F> {
    /// A domain without garbage.
    pub fn new_in() -> Self {
        let throttle = Throttle {
            nanos: M::U64::new(THROTTLE),
            stuck: M::U64::new(0),
            told: M::U64::new(0),
            overruns: M::U64::new(0),
        };
        let (grace, pressed) = (F::Periods::new(), M::U32::new(0));
        Domain { grace, backlog: Backlog::new(), pressed, throttle, hooks: Hooks::new() }
    }

    /// Whether the calling thread is in a section.
    pub fn is_inside() -> bool {
        F::word(record::own::<M>()).load(Relaxed) & NESTING != 0
    }

    #[track_caller]
    fn assert_outside(&self, what: &str) {
        assert!(!Self::is_inside(), "{what} inside of the caller's own section would wait for ever");
    }

    #[track_caller]
    pub(super) fn assert_not_reclaiming(&self, what: &str) {
        assert!(!self.backlog.is_reclaiming(), "{what} by an object that is being reclaimed");
    }

    /// Whether the grace period of a ticket is over; takes it as far as it gets without waiting.
    pub(super) fn is_due(&self, ticket: u64) -> bool {
        self.grace.poll(ticket, &|stall| self.hooks.call(stall))
    }

    /// Whether the caller is a destructor that the calling thread runs while it reclaims for this domain. Then the domain must not be
    /// waited for.
    pub fn is_reclaiming(&self) -> bool {
        self.backlog.is_reclaiming()
    }

    /// Waits for the grace period of a ticket, or until the deadline has passed. Returns whether the grace period is over.
    pub(super) fn wait(&self, ticket: u64, pace: Pace, deadline: Option<Deadline>) -> bool {
        self.grace.wait(ticket, pace, deadline, &|stall| self.hooks.call(stall))
    }

    /// Waits until every section that runs now is over. Callers share grace periods.
    ///
    /// For each section, one of two holds: all that it did happens before the return, or it sees all that the caller did before the
    /// call. This orders nothing else: it is no fence between other threads.
    ///
    /// The destructor of a retired object may call this: it waits for readers only. But threads that wait for the garbage
    /// ([`barrier`](Domain::barrier)) wait meanwhile, and so does nothing else. A destructor may run inside of a section,
    /// when its thread retires there; then this panics, as it does in every section.
    ///
    /// # Panics
    ///
    /// Inside of a section of the caller's own.
    #[track_caller]
    pub fn synchronize(&self) {
        self.assert_outside("synchronize");
        self.wait(self.grace.start(), Pace::Normal, None);
    }

    /// [`synchronize`](Domain::synchronize) in a hurry: the thread that leads the grace period burns a processor for it.
    ///
    /// # Panics
    ///
    /// Inside of a section of the caller's own.
    #[track_caller]
    pub fn synchronize_expedited(&self) {
        self.assert_outside("synchronize");
        self.wait(self.grace.start(), Pace::Expedited, None);
    }

    /// Begins a grace period, for [`poll`](Domain::poll). If one is open already, it takes a call of `poll` to begin the next.
    /// A grace period may cost a heavy fence (`membarrier`; not with QSBR).
    pub fn start_poll(&self) -> Cookie {
        let ticket = self.grace.start();
        // Opens it: else it would not begin before somebody polls.
        self.is_due(ticket);
        Cookie(ticket)
    }

    /// Whether every section that ran when the cookie was made is over; if so, it orders as [`synchronize`](Domain::synchronize)
    /// does. Does not wait. Inside of a section that ran then,
    /// the answer is `false`.
    pub fn poll(&self, cookie: Cookie) -> bool {
        self.is_due(cookie.0)
    }

    /// The thread that holds up a grace period right now, and for how long.
    pub fn stall(&self) -> Option<Stall> {
        self.grace.stall()
    }

    /// Sets a function that is called when a thread stays in its section for so long that a grace period does not end:
    ///
    /// - when a thread that retires has waited for as long as [`AtLimit::Wait`] says;
    /// - when a grace period has been open for [`set_stall_nanos`](Domain::set_stall_nanos), and each time that it has been
    ///   open for as long again.
    ///
    /// Without a function, nobody is told; [`stall`](Domain::stall) answers at any time. The function is called in the
    /// thread that noticed it: one that retires, or waits, or polls. It may use the domain, but must not wait for garbage
    /// ([`barrier`](Domain::barrier)), nor fork a child that goes on to use the domain, as the thread may have its list. It is not
    /// called by two threads at a time. It replaces the one that was set before, which is dropped with the domain.
    ///
    /// ```
    /// use latchwork::reclaim::rcu;
    ///
    /// rcu::global().on_stall(|stall| {
    ///     println!("thread {} has been reading for {} ms", stall.thread, stall.nanos / 1_000_000);
    /// });
    /// ```
    pub fn on_stall(&self, hook: impl Fn(&Stall) + Send + Sync + 'static) {
        self.hooks.set(Box::new(hook));
    }

    /// Sets after how many nanoseconds [`on_stall`](Domain::on_stall) is called of a grace period that does not end (10
    /// seconds if this is not called).
    pub fn set_stall_nanos(&self, nanos: u64) {
        self.grace.set_patience(nanos);
    }

    /// Sets what a thread that retires does while there is more garbage than the [`Limit`]. By default it waits for a second
    /// at most. [`Garbage::overruns`] counts how often a thread has gone on beyond the limit.
    pub fn set_at_limit(&self, at_limit: AtLimit) {
        let nanos = match at_limit {
            AtLimit::Wait { nanos } => nanos,
            AtLimit::Grow => 0,
        };
        self.throttle.nanos.store(nanos, Relaxed);
    }

    /// Sets how much garbage there may be before a thread that retires has to wait.
    pub fn set_limit(&self, limit: Limit) {
        self.backlog.set_limit(limit);
    }

    /// See [`Reclaim::retire`]. May run the destructors of this and other objects
    /// ([destructors and locks](super#destructors-and-locks)).
    ///
    /// # Safety
    ///
    /// As [`Reclaim::retire`].
    #[inline]
    pub unsafe fn retire<T: Retire>(&self, object: *mut T) {
        // SAFETY: the object is alive and begins with its header (`Retire`), and is retired once, says the caller.
        self.retire_prepared(unsafe { prepare(object) });
    }

    /// [`retire`](Reclaim::retire) for an object of which the caller knows only the header: one of C or C++, say. `bytes`
    /// count as [`Garbage::bytes`]. `reclaim` is called once, by any thread.
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
    pub(super) fn retire_prepared(&self, header: *mut Header) {
        self.reclaim_if(self.backlog.push(header, 1 << 31));
    }

    /// [`retire`](Domain::retire) for objects that each stand for many: the thread reclaims with each `every`-th object, a
    /// power of two, if not sooner.
    ///
    /// # Safety
    ///
    /// As [`Reclaim::retire`].
    #[cfg(feature = "std")] // the maps are its only callers
    #[inline]
    pub(crate) unsafe fn retire_in_batches<T: Retire>(&self, object: *mut T, every: u32) {
        // SAFETY: as in `retire`.
        self.reclaim_if(self.backlog.push(unsafe { prepare(object) }, every));
    }

    /// [`retire`](Domain::retire) of an object that stands for so many bytes, in place of [`Retire::BYTES`].
    ///
    /// # Safety
    ///
    /// As [`Reclaim::retire`].
    #[cfg(feature = "std")] // the maps are its only callers
    pub(crate) unsafe fn retire_sized<T: Retire>(&self, object: *mut T, bytes: usize) {
        // SAFETY: as in `retire`.
        let header = unsafe { prepare(object) };
        // SAFETY: the object is alive until it is reclaimed.
        unsafe { &*header }.set_bytes(u32::try_from(bytes).unwrap_or(u32::MAX));
        self.retire_prepared(header);
    }

    /// [`retire`](Domain::retire) that reclaims nothing now: for a thread that a destructor has made panic.
    ///
    /// # Safety
    ///
    /// As [`Reclaim::retire`].
    #[cfg(feature = "std")] // the maps are its only callers
    pub(crate) unsafe fn retire_for_later<T: Retire>(&self, object: *mut T) {
        // SAFETY: as in `retire`.
        _ = self.backlog.push(unsafe { prepare(object) }, 1 << 31);
    }

    /// From now on, only full batches are reclaimed.
    #[cfg(test)]
    pub(crate) fn never_soon(&self) {
        self.backlog.never_soon();
    }

    #[inline(always)]
    fn reclaim_if(&self, due: Due) {
        if due != Due::No {
            self.reclaim(due);
        }
    }

    /// Reclaims what is due, and waits if there is too much garbage. In a section of the thread's own, another call waits, and after a
    /// pause it opens a grace period, which the thread takes to its end when it retires in a later section.
    #[cold]
    fn reclaim(&self, due: Due) {
        if self.backlog.is_reclaiming() {
            return;
        }
        // Also for other threads' grace periods: a thread that only updates costs them no heavy fence.
        F::Periods::<M>::rest();
        let a_batch = || {
            self.backlog.mine().inspect(|mine| self.work(mine, false));
            self.collect_others();
            self.backlog.adapt(0);
        };
        self.backlog.reclaim_if(due, || self.collect(), a_batch);
        // Also after a pause: where threads retire less than a batch from one pause to the next, none is ever full.
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
    /// [`set_at_limit`](Domain::set_at_limit) says. [`retire`](Domain::retire) does this by itself, but not
    /// inside of a section: a thread that retires only there calls this outside, or [`Reader::quiescent`].
    ///
    /// # Panics
    ///
    /// Inside of a section of the caller's own, unless a destructor of a retired object calls it.
    #[track_caller]
    pub fn throttle(&self) {
        if self.backlog.is_reclaiming() {
            return;
        }
        self.assert_outside("throttle");
        if !self.backlog.is_over_limit() {
            return;
        }
        let nanos = self.throttle.nanos.load(Relaxed);
        if nanos > 0 && !self.is_stuck() {
            let deadline = Deadline::after::<M>(nanos);
            // First what the caller has retired itself, and then what all threads have.
            if self.reclaim_own(deadline) && self.reclaim_all_until(deadline) {
                return;
            }
            self.throttle.stuck.store(self.grace.start(), Relaxed);
        }
        self.throttle.overruns.fetch_add(1, Relaxed);
        // Once for each grace period that does not end: as soon as the thread in the way is known.
        let (stuck, told) = (self.throttle.stuck.load(Relaxed), &self.throttle.told);
        if stuck != told.load(Relaxed)
            && let Some(stall) = self.stall()
            && told.swap(stuck, Relaxed) != stuck
        {
            self.hooks.call(&stall);
        }
    }

    /// Whether a grace period that has not ended within the bound is still open.
    fn is_stuck(&self) -> bool {
        let ticket = self.throttle.stuck.load(Relaxed);
        if ticket != 0 && self.is_due(ticket) {
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
            if !self.wait(ticket, Pace::Normal, Some(deadline)) {
                return false;
            }
            self.backlog.mine().inspect(|mine| self.work(mine, false));
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
        self.backlog.mine().inspect(|mine| self.work(mine, true));
        self.collect_others();
    }

    fn collect_others(&self) {
        if let Some(collecting) = self.backlog.try_lock() {
            collecting.steal(Steal::Old);
            self.work(collecting.list(), true);
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
        self.assert_not_reclaiming("barrier");
        self.reclaim_before(|_| ());
    }

    /// Reclaims what was retired before, whichever thread has retired it. In a section of the caller's own, `inside` reclaims what
    /// it can of the central list each time that the caller has the list.
    ///
    /// The caller has the list only while it reclaims. While it waits for readers, other threads may collect, and so may a reader
    /// that the caller waits for.
    pub(super) fn reclaim_before(&self, inside: impl Fn(&List<M>)) {
        let (mut rest, mut goal) = (Rest::new(), None);
        loop {
            let collecting = self.backlog.lock();
            let list = collecting.list();
            if goal.is_none() && collecting.steal(Steal::All) {
                goal = Some(list.goal());
            }
            while (list.is_waiting() || self.take(list)) && self.is_due(list.ticket.load(Relaxed)) {
                // SAFETY: the ticket was given out after the objects were retired, and it is due.
                unsafe { list.reclaim() };
            }
            let is_inside = Self::is_inside();
            if is_inside {
                inside(list);
            }
            let is_reached = |goal: u32| list.finished().wrapping_sub(goal) as i32 >= 0;
            if goal.is_some_and(|goal| list.is_vacant() || is_reached(goal)) {
                return;
            }
            let ticket = list.ticket.load(Relaxed);
            let any = list.is_waiting();
            drop(collecting);
            if is_inside || !any {
                rest.take::<M>(false);
            } else {
                self.wait(ticket, Pace::Normal, Some(Deadline::after::<M>(LOOK)));
            }
        }
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

    /// Whether everything that was retired before is reclaimed. What its destructors did happens before the return.
    pub fn is_clean(&self) -> bool {
        self.backlog.is_clean()
    }

    /// Gives what has come in on a list a ticket, for which it waits. Returns whether anything has come in. The caller has
    /// the list.
    pub(super) fn take(&self, list: &List<M>) -> bool {
        list.take(|| self.grace.start())
    }

    /// Reclaims what is waiting in a list, if its ticket is due, and gives what has come in a ticket, to wait in its stead.
    ///
    /// If the ticket is not due, the thread leads a grace period, as far as it gets without waiting, for all that is in the
    /// list. So a thread that is the only one to retire leads one for two batches. Where others retire, what waits is mostly due
    /// when the next batch is full, by a grace period that another thread has led. With `now`, the thread also leads one if
    /// nothing waits. The caller has the list.
    fn work(&self, list: &List<M>, now: bool) {
        if list.is_waiting() && self.grace.is_over(list.ticket.load(Relaxed)) {
            // SAFETY: the ticket was given out after the objects were removed and retired, and it is due: every section
            // is over that may have found them.
            unsafe { list.reclaim() };
        }
        if list.is_vacant() {
            return;
        }
        if !now && !list.is_waiting() {
            self.take(list);
            return;
        }
        let (ticket, count) = (self.grace.start(), list.count());
        let all_due = self.is_due(ticket);
        if list.is_waiting() {
            if !self.grace.is_over(list.ticket.load(Relaxed)) {
                return;
            }
            // SAFETY: the waiting objects were retired before their ticket was given out, and it is due.
            unsafe { list.reclaim() };
        }
        if list.count() != count {
            // A destructor, or the function that is told of a stall, has retired more since.
            self.take(list);
        } else if list.take(|| ticket) && all_due {
            // SAFETY: `ticket` was given out when all these objects had come in: as many have come in now as then. It is due.
            unsafe { list.reclaim() };
        }
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
            if !self.wait(list.ticket.load(Relaxed), Pace::Normal, deadline) {
                return None;
            }
            // SAFETY: as in `work`: the ticket of the objects is due.
            unsafe { list.reclaim() };
            any = true;
        }
        Some(any)
    }
}

impl<M: Records, F: Flavour> Default for Domain<M, F> {
    /// A domain without garbage.
    fn default() -> Self {
        Self::new_in()
    }
}

impl<M: Records, F: Flavour> Drop for Domain<M, F> {
    /// Reclaims everything. Waits for readers that may have found an object of the garbage, as long as they stay in their
    /// sections. Inside of a section of its own, the thread would wait for itself: then the garbage is leaked.
    fn drop(&mut self) {
        if Self::is_inside() {
            return;
        }
        let collecting = self.backlog.lock();
        to_the_end(|| while self.reclaim_all(&collecting, Steal::Last, None) == Some(true) {});
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
