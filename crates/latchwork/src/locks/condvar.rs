//! A condition variable that works with every mutex.
//!
//! Source: the futex condition variable of Drepper, "Futexes are tricky" (2011), section 8, reduced
//! to what is needed when waiters compete for the mutex in user space: a sequence number that every
//! notification advances, and that waiters sleep on.
//!
//! A waiter, still holding the mutex, counts itself in and notes the sequence number (its
//! [`Ticket`]); it unlocks the mutex, sleeps while the number is unchanged, counts itself out, and
//! locks the mutex again. A notification with nobody counted in is one load; otherwise it advances
//! the number and wakes one sleeper or all.
//!
//! State:
//!
//! | word | who writes it |
//! |---|---|
//! | `sequence`, the futex | notifications that find a waiter add one |
//! | `waiters`: waiters from `prepare` to `finish`; bit 31: somebody waits until there are none | waiters; [`wait_until_quiet`](RawCondvar::wait_until_quiet) |
//!
//! *No lost wakeups.* A notifier that has locked the mutex after a waiter released it finds the
//! waiter counted in, and advances the number past the waiter's ticket: a waiter that sleeps is
//! woken, one that does not yet finds the number changed and will not. So it is enough that the
//! condition is changed with the mutex held; the notification itself may come after the unlock. A
//! waiter that timed out in the kernel was not the one that a notification woke, and reports
//! [`Wait::Woken`] nevertheless if the number has moved, so that no notification is answered by
//! timeouts alone.
//!
//! *Spurious wakeups* happen: a waiter that has not gone to sleep when somebody else is notified
//! returns too. Callers check their condition in a loop, as always.
//!
//! *Wraparound*: a waiter that is stopped between `prepare` and falling asleep for exactly 2^32 (or
//! a multiple) notifications would take the number for unchanged, and sleep until the next
//! notification. At ten million a second, that is a thread that did not run for seven minutes, to
//! the notification.
//!
//! Size: 8 bytes, none per waiter. Atomics: wait 2 (beside the mutex), notification 0 or 1.
//! Fairness: the kernel wakes the longest sleeper (of the highest priority); the mutex decides who
//! goes on.

use crate::locks::mutex::{self, ConstNew, Held};
use crate::machine::{Arith, Deadline, Machine, Native, Wait, Word};
use core::marker::PhantomData;
use core::sync::atomic::{AtomicU32, Ordering::*};

/// In `waiters`: somebody sleeps until the count is zero.
const QUIET: u32 = 1 << 31;

/// Condition variable. All-zero bytes are one without waiters. See the [module documentation](self).
#[repr(C)]
pub struct RawCondvar<M: Machine> {
    sequence: M::U32,
    waiters: M::U32,
}

/// What a waiter must remember from [`prepare`](RawCondvar::prepare) to
/// [`finish`](RawCondvar::finish).
#[must_use = "a waiter that has prepared must finish or abandon"]
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Ticket(u32);

impl Ticket {
    /// The value of [`word`](RawCondvar::word) that the waiter sleeps on.
    pub fn value(self) -> u32 {
        self.0
    }
}

impl RawCondvar<Native> {
    /// A condition variable without waiters.
    pub const fn new() -> Self {
        RawCondvar { sequence: AtomicU32::new(0), waiters: AtomicU32::new(0) }
    }
}

impl Default for RawCondvar<Native> {
    fn default() -> Self {
        Self::new()
    }
}

impl<M: Machine> RawCondvar<M> {
    /// A condition variable without waiters, on any machine.
    pub fn new_in() -> Self {
        RawCondvar { sequence: M::U32::new(0), waiters: M::U32::new(0) }
    }

    /// Calls `unlock`, which must release the caller's mutex, and waits for a notification or the
    /// deadline. The caller locks the mutex again afterwards.
    ///
    /// From the call to `unlock` on, no notification passes the caller by. `unlock` must not
    /// unwind: the caller would stay counted as a waiter.
    pub fn wait(&self, unlock: impl FnOnce(), deadline: Option<Deadline>) -> Wait {
        let ticket = self.prepare();
        unlock();
        let reason = self.block(ticket, deadline);
        self.finish(ticket, reason)
    }

    /// The first piece of [`wait`](RawCondvar::wait), for callers that must block in code of their
    /// own: counts the caller in. The mutex must be held.
    pub fn prepare(&self) -> Ticket {
        // Relaxed: a notifier that matters locks the mutex after we have released it, and so finds
        // us counted and cannot have advanced the number before we read it.
        self.waiters.fetch_add(1, Relaxed);
        Ticket(self.sequence.load(Relaxed))
    }

    /// The futex on which to sleep while it holds [`Ticket::value`].
    pub fn word(&self) -> &M::U32 {
        &self.sequence
    }

    /// Whether there was a notification since `ticket`.
    pub fn is_notified(&self, ticket: Ticket) -> bool {
        self.sequence.load(Relaxed) != ticket.0
    }

    /// The middle piece: sleeps until a notification or the deadline. The mutex must have been
    /// released.
    pub fn block(&self, ticket: Ticket, deadline: Option<Deadline>) -> Wait {
        // A signal handler may have interrupted the sleep.
        while !self.is_notified(ticket) {
            if M::wait(&self.sequence, ticket.0, deadline) == Wait::TimedOut {
                return Wait::TimedOut;
            }
        }
        Wait::Woken
    }

    /// The last piece: counts the caller out. It is the caller's last access to the condition
    /// variable, and comes before it locks the mutex again. Returns `reason`, or [`Wait::Woken`] if
    /// there has been a notification since `ticket` after all.
    pub fn finish(&self, ticket: Ticket, reason: Wait) -> Wait {
        let reason = if self.is_notified(ticket) { Wait::Woken } else { reason };
        // (A) pairs with `wait_until_quiet`: our accesses are over.
        if self.waiters.fetch_sub(1, Release) == QUIET + 1 {
            // By now the memory may be gone: only the address is used.
            M::wake(&raw const self.waiters, u32::MAX);
        }
        reason
    }

    /// In place of [`finish`](RawCondvar::finish) for a waiter that will not look at its condition
    /// (its thread is being cancelled): hands a notification that it may have been woken by on to
    /// somebody else.
    pub fn abandon(&self, ticket: Ticket) {
        if self.is_notified(ticket) {
            // Before we count ourselves out, which is our last access. Should we be the only
            // waiter, this is in vain.
            self.notify_one();
        }
        self.finish(ticket, Wait::Woken);
    }

    /// Wakes one waiter, if there are any.
    #[inline]
    pub fn notify_one(&self) {
        self.notify(1);
    }

    /// Wakes all waiters.
    #[inline]
    pub fn notify_all(&self) {
        self.notify(u32::MAX);
    }

    #[inline]
    fn notify(&self, count: u32) {
        // Relaxed: see `prepare`.
        if self.waiters.load(Relaxed) & !QUIET != 0 {
            self.wake(count);
        }
    }

    #[cold]
    #[inline(never)]
    fn wake(&self, count: u32) {
        let sequence = &raw const self.sequence;
        // Relaxed: what the waiter has to see, it sees through the mutex. The futex orders this
        // before the wake, and compares the word with the ticket under the same lock.
        self.sequence.fetch_add(1, Relaxed);
        // A waiter that found the number changed may have destroyed the condition variable: only
        // the address is used.
        M::wake(sequence, count);
    }

    /// Whether there were waiters, a moment ago.
    pub fn has_waiters(&self) -> bool {
        self.waiters.load(Relaxed) & !QUIET != 0
    }

    /// Waits until no waiter will touch the memory any more, so that it can be freed: POSIX lets a
    /// program destroy a condition variable as soon as all waiters have been notified, when some
    /// may still be on their way out.
    ///
    /// It waits for ever if there is a waiter that nobody notifies, or one that was lost to a
    /// `fork` (in the child, make the condition variable anew instead).
    pub fn wait_until_quiet(&self) {
        if self.waiters.load(Acquire) == 0 {
            return; // (A) pairs with `finish`
        }
        let mut waiters = self.waiters.fetch_or(QUIET, Acquire) | QUIET;
        while waiters != QUIET {
            M::wait(&self.waiters, waiters, None);
            // (A) pairs with `finish`; every departure is a read-modify-write, so the last one
            // stands for all.
            waiters = self.waiters.load(Acquire);
        }
        self.waiters.store(0, Relaxed);
    }
}

/// Fits a condition variable to [`lock_api::RawCondvar`], for mutexes over `L`.
///
/// It makes no promise against spurious wakeups, so notifications report `false` and 0.
#[repr(transparent)]
pub struct Api<L> {
    raw: RawCondvar<Native>,
    _mutex: PhantomData<fn() -> L>,
}

// SAFETY: `RawCondvar::wait` counts the caller in before it unlocks; nothing in `wait` unwinds; the
// mutex is locked again and the guard gets the new acquisition's token.
unsafe impl<L: ConstNew> lock_api::RawCondvar for Api<L> {
    #[allow(clippy::declare_interior_mutable_const)]
    const INIT: Self = Api { raw: RawCondvar::new(), _mutex: PhantomData };
    type RawMutex = mutex::Api<L>;

    unsafe fn wait(&self, mutex: &Self::RawMutex, guard: &mut Held<L::Token>) {
        // SAFETY: forwarded from the caller.
        unsafe { self.wait_deadline(mutex, guard, None) };
    }

    fn notify_one(&self) -> bool {
        self.raw.notify_one();
        false
    }

    fn notify_all(&self) -> usize {
        self.raw.notify_all();
        0
    }
}

impl<L: ConstNew> Api<L> {
    /// # Safety
    ///
    /// The caller holds `mutex`, with the acquisition in `guard`.
    pub(super) unsafe fn wait_deadline(
        &self,
        mutex: &mutex::Api<L>,
        guard: &mut Held<L::Token>,
        deadline: Option<Deadline>,
    ) -> Wait {
        let token = guard.token;
        // SAFETY: the token is from the acquisition that this ends; the guard gets a new one below.
        let reason = self.raw.wait(|| unsafe { mutex.0.unlock(token) }, deadline);
        // A guard that is dropped without the mutex would unlock another holder's.
        let abort = AbortOnUnwind;
        *guard = Held::new(mutex.0.lock());
        core::mem::forget(abort);
        reason
    }
}

/// Ends the process when it is dropped: a lock panics, as one with a part of its user's can.
struct AbortOnUnwind;

impl Drop for AbortOnUnwind {
    #[cold]
    fn drop(&mut self) {
        // SAFETY: no arguments, no memory.
        unsafe { libc::abort() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::locks::mutex::RawMutex;
    use crate::registry::{Visitor, visit};
    use core::cell::UnsafeCell;
    use std::boxed::Box;
    use std::thread;

    const _: () = assert!(size_of::<RawCondvar<Native>>() == 8);

    fn within(millis: u64) -> Option<Deadline> {
        Some(Deadline::after::<Native>(millis * 1_000_000))
    }

    /// Items in flight and the rest, under a raw mutex.
    struct Market<L> {
        mutex: L,
        arrived: RawCondvar<Native>,
        taken: RawCondvar<Native>,
        /// On offer; consumed so far.
        items: UnsafeCell<(u32, u32)>,
    }

    // SAFETY: the items are accessed with the mutex held.
    unsafe impl<L: Sync> Sync for Market<L> {}

    const PATIENCE: u64 = 60_000;

    impl<L: RawMutex<Machine = Native>> Market<L> {
        fn new() -> Self {
            Market {
                mutex: L::new_in(),
                arrived: RawCondvar::new(),
                taken: RawCondvar::new(),
                items: UnsafeCell::new((0, 0)),
            }
        }

        /// Waits on `condvar`; a wait of a minute is a lost wakeup.
        fn wait(&self, condvar: &RawCondvar<Native>, token: L::Token) -> L::Token {
            // SAFETY: the token is the caller's acquisition.
            let reason = condvar.wait(|| unsafe { self.mutex.unlock(token) }, within(PATIENCE));
            assert_eq!(reason, Wait::Woken, "{}: a lost wakeup", L::INFO.name);
            self.mutex.lock()
        }

        fn assert_settled(&self, total: u32) {
            assert!(!self.arrived.has_waiters() && !self.taken.has_waiters());
            // SAFETY: all threads have finished.
            assert_eq!(unsafe { *self.items.get() }, (0, total));
        }

        fn consume(&self, total: u32, all: bool) {
            let items = self.items.get();
            let mut token = self.mutex.lock();
            // SAFETY: the mutex is held wherever the items are touched.
            unsafe {
                while (*items).1 < total {
                    if (*items).0 == 0 {
                        token = self.wait(&self.arrived, token);
                        continue;
                    }
                    (*items).0 -= 1;
                    (*items).1 += 1;
                    if all { self.taken.notify_all() } else { self.taken.notify_one() }
                }
                self.mutex.unlock(token);
            }
            // The other consumers are done too.
            self.arrived.notify_all();
        }

        fn produce(&self, count: u32, all: bool) {
            let items = self.items.get();
            for i in 0..count {
                let mut token = self.mutex.lock();
                // SAFETY: the mutex is held wherever the items are touched.
                unsafe {
                    loop {
                        if (*items).0 < 2 {
                            break;
                        }
                        token = self.wait(&self.taken, token);
                    }
                    (*items).0 += 1;
                    if i % 2 == 0 {
                        self.mutex.unlock(token);
                    }
                    if all {
                        self.arrived.notify_all()
                    } else {
                        self.arrived.notify_one()
                    }
                    if i % 2 != 0 {
                        self.mutex.unlock(token);
                    }
                }
            }
        }
    }

    #[test]
    fn producers_and_consumers_over_every_mutex() {
        struct All;
        impl Visitor<Native> for All {
            fn mutex<L: RawMutex<Machine = Native>>(&mut self) {
                for all in [false, true] {
                    let market = &Market::<L>::new();
                    thread::scope(|scope| {
                        for _ in 0..4 {
                            scope.spawn(move || market.consume(4 * 200, all));
                            scope.spawn(move || market.produce(200, all));
                        }
                    });
                    market.assert_settled(4 * 200);
                }
            }
        }
        visit(&mut All);
    }

    /// A waiter that reports a timeout has not used up a notification: one that ignores its
    /// condition then must not keep the other from being woken.
    #[test]
    fn timeouts_do_not_swallow_notifications() {
        use crate::locks::mutex::ttas::RawTtas;
        const ITEMS: u32 = 1000;
        let market = &Market::<RawTtas<Native>>::new();
        thread::scope(|scope| {
            scope.spawn(|| market.consume(ITEMS, false));
            scope.spawn(|| {
                let items = market.items.get();
                market.mutex.lock();
                // SAFETY: the mutex is held wherever the items are touched.
                unsafe {
                    while (*items).1 < ITEMS {
                        let deadline = Some(Deadline::after::<Native>(20_000));
                        let reason = market.arrived.wait(|| market.mutex.unlock(()), deadline);
                        market.mutex.lock();
                        if reason == Wait::Woken && (*items).0 > 0 {
                            (*items).0 -= 1;
                            (*items).1 += 1;
                            market.taken.notify_one();
                        }
                    }
                    market.mutex.unlock(());
                }
                market.arrived.notify_all();
            });
            scope.spawn(|| market.produce(ITEMS, false));
        });
        market.assert_settled(ITEMS);
    }

    #[test]
    fn a_notification_without_waiters_leaves_no_trace() {
        let condvar = RawCondvar::new();
        condvar.notify_one();
        condvar.notify_all();
        assert_eq!(condvar.word().load(Relaxed), 0);
        // And is not kept for a waiter that comes later.
        assert_eq!(condvar.wait(|| (), within(2)), Wait::TimedOut);
    }

    #[test]
    fn a_notification_between_unlock_and_sleep_is_seen() {
        let condvar = RawCondvar::new();
        assert_eq!(condvar.wait(|| condvar.notify_one(), None), Wait::Woken);
        assert_eq!(condvar.wait(|| condvar.notify_all(), None), Wait::Woken);
        // Also if the sleep ended with a timeout.
        let ticket = condvar.prepare();
        assert_eq!(condvar.block(ticket, within(0)), Wait::TimedOut);
        condvar.notify_one();
        assert_eq!(condvar.finish(ticket, Wait::TimedOut), Wait::Woken);
        assert!(!condvar.has_waiters());
    }

    #[test]
    fn an_abandoned_notification_goes_to_the_next() {
        let condvar = RawCondvar::new();
        let leaver = condvar.prepare();
        condvar.notify_one();
        let other = condvar.prepare();
        condvar.abandon(leaver);
        assert_eq!(condvar.block(other, within(PATIENCE)), Wait::Woken);
        condvar.finish(other, Wait::Woken);
        // Without a notification there is nothing to hand on.
        let (leaver, other) = (condvar.prepare(), condvar.prepare());
        condvar.abandon(leaver);
        assert!(!condvar.is_notified(other));
        condvar.finish(other, Wait::TimedOut);
        assert!(!condvar.has_waiters());
    }

    /// Destroyed by the notifier while the waiters are on their way out.
    #[test]
    fn it_can_be_freed_once_quiet() {
        use core::sync::atomic::AtomicUsize;
        for _ in 0..200 {
            let condvar = Box::new(RawCondvar::<Native>::new());
            let left = AtomicUsize::new(0);
            thread::scope(|scope| {
                let shared: &RawCondvar<Native> = &condvar;
                for _ in 0..3 {
                    scope.spawn(|| {
                        assert_eq!(shared.wait(|| (), within(PATIENCE)), Wait::Woken);
                        left.fetch_add(1, Relaxed);
                    });
                }
                while shared.waiters.load(Relaxed) != 3 {
                    thread::yield_now();
                }
                shared.notify_all();
                shared.wait_until_quiet();
                assert_eq!(shared.waiters.load(Relaxed), 0);
            });
            drop(condvar);
            assert_eq!(left.into_inner(), 3);
        }
    }

    #[test]
    fn through_lock_api() {
        use crate::locks::{ClhCondvar, ClhMutex, CondvarOver, TasMutex};
        use core::time::Duration;
        static TURN: ClhMutex<u32> = ClhMutex::new(0);
        static CHANGED: ClhCondvar = ClhCondvar::new();
        thread::scope(|scope| {
            for me in 0..6 {
                scope.spawn(move || {
                    for round in 0..20 {
                        let mut turn = TURN.lock();
                        CHANGED.wait_while(&mut turn, |turn| *turn != round * 6 + me);
                        *turn += 1;
                        CHANGED.notify_all();
                    }
                });
            }
        });
        assert_eq!(*TURN.lock(), 120);

        let (mutex, condvar) = (TasMutex::new(()), CondvarOver::new());
        let mut guard = mutex.lock();
        assert!(condvar.wait_for(&mut guard, Duration::from_millis(2)).timed_out());
        assert!(mutex.try_lock().is_none(), "not locked again after a timeout");
        assert!(condvar.wait_until(&mut guard, std::time::Instant::now()).timed_out());
    }
}
