//! The writing side of RCU and epochs: grace periods, and the garbage that waits for them.

use super::backlog::Backlog;
use super::grace::{Flavour, Periods};
use super::header::{Retire, finish, prepare};
use super::{Garbage, GracePeriod, Info, Limit, Pace, Reclaim, Stall};
use crate::machine::Word;
use crate::machine::record::{NESTING, Records};
use core::sync::atomic::Ordering::Relaxed;

/// What is retired together. Readers are the process's: a section protects what is retired in any domain
/// of its flavour.
///
/// Nobody has to drive it: each 128th object that is retired takes the reclamation as far as
/// it gets without waiting, and with too much garbage ([`Limit`]) who retires waits for it, except inside
/// of a section. A worker that calls [`serve`](Domain::serve) takes the work off the others.
pub struct Domain<M: Records, F: Flavour> {
    grace: F::Periods<M>,
    backlog: Backlog<M>,
    /// The ticket of what is waiting.
    ticket: M::U64,
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
        Domain {
            grace: F::Periods::new(),
            backlog: Backlog::new(),
            ticket: M::U64::new(0),
            pressed: M::U32::new(0),
        }
    }

    /// Whether the calling thread is in a section.
    pub fn is_inside() -> bool {
        F::word(M::record()).load(Relaxed) & NESTING != 0
    }

    #[track_caller]
    fn assert_outside(&self, what: &str) {
        assert!(!Self::is_inside(), "{what} inside of the caller's own section would wait for ever");
        assert!(!self.backlog.gate.is_mine(), "{what} by an object that is being reclaimed");
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
        if self.backlog.push(unsafe { prepare(object) }) {
            self.relieve();
        }
    }

    /// A batch is full.
    #[cold]
    fn relieve(&self) {
        self.collect();
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
        while self.backlog.is_over_limit() && !self.backlog.gate.is_mine() {
            self.assert_outside("throttle");
            let _collecting = self.backlog.gate.lock();
            if self.backlog.is_over_limit() {
                self.work(Some(Pace::Normal));
            }
        }
    }

    /// Reclaims what can be reclaimed without waiting.
    pub fn collect(&self) {
        if let Some(_collecting) = self.backlog.gate.try_lock() {
            // Twice: what has been waiting for long, and what has come in since.
            let _ = self.work(None) && self.work(None);
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
        let _collecting = self.backlog.gate.lock();
        // Twice: what was waiting, and then all that has come in.
        let _ = self.work(Some(Pace::Normal)) && self.work(Some(Pace::Normal));
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

    /// Reclaims what is waiting, or if nothing is, what has come in. `false`: there is nothing, or its
    /// time has not come. Under the backlog's gate.
    fn work(&self, pace: Option<Pace>) -> bool {
        if !self.backlog.is_waiting() {
            if !self.backlog.take(0) {
                return false;
            }
            self.ticket.store(self.grace.start(), Relaxed);
        }
        let ticket = self.ticket.load(Relaxed);
        match pace {
            Some(pace) => self.grace.wait(ticket, pace),
            None if self.grace.poll(ticket) => (),
            None => return false,
        }
        while let Some(object) = self.backlog.next() {
            // SAFETY: a grace period has passed since it was retired, so that nobody uses it; it is out of
            // the list, so that this happens once.
            unsafe { finish(object) };
        }
        true
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
        let _collecting = self.backlog.gate.lock();
        while self.work(Some(Pace::Normal)) {}
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
