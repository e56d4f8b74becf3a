//! A condition variable that works with every mutex.
//!
//! Source: the futex condition variable of Drepper, "Futexes are tricky" (2011), section 8, reduced to what is needed when
//! waiters compete for the mutex in user space: a sequence number that every notification advances, and that waiters sleep
//! on.
//!
//! A waiter, still holding the mutex, counts itself in and notes the sequence number (its [`Ticket`]). It unlocks the mutex,
//! sleeps while the number is unchanged, counts itself out, and locks the mutex again. A notification with no waiter counted
//! in is one load. Otherwise it advances the number and wakes one sleeper or all.
//!
//! | word | changed by | pairs with |
//! |---|---|---|
//! | `sequence`, the futex | a notification that finds a waiter adds one | the mutex; the futex compares it with the ticket |
//! | `waiters`, bits 0 to 30: the waiters between `prepare` and `finish` | each waiter | (A) release, in `finish` |
//! | `waiters`, bit 31 (QUIET): a thread waits until there are no waiters | [`wait_until_quiet`](RawCondvar::wait_until_quiet) | (A) acquire |
//!
//! *The notifier goes first.* A woken thread may preempt the very thread that woke it, which may hold the mutex. Before it
//! waits for a mutex that is held, it offers its processor to other threads
//! ([`offer_processor`](RawCondvar::offer_processor)). Without that it would spin while the holder waits for the processor.
//!
//! *No lost wakeups.* A notifier that has locked the mutex after a waiter released it finds the waiter counted in, and
//! advances the number past the waiter's ticket. A waiter that sleeps is woken; one that does not sleep yet finds the number
//! changed and does not go to sleep. So it is enough that the condition is changed with the mutex held; the notification
//! itself may come after the unlock. If the kernel reports a timeout, the waiter was not the one that a notification woke. It
//! reports [`Wait::Woken`] nevertheless if the number has moved, so that no notification is answered by timeouts alone.
//!
//! *Spurious wakeups* happen: a waiter that has not gone to sleep when another waiter is notified returns too. Callers check
//! their condition in a loop, as always.
//!
//! *Wraparound*: a waiter that is stopped between `prepare` and falling asleep for exactly 2^32 notifications (or a multiple)
//! would take the number for unchanged, and sleep until the next notification. At ten million notifications a second, that
//! is a thread that did not run for seven minutes, to the notification.
//!
//! Size: 8 bytes, none per waiter.
//! Atomics: wait 2 (beside the mutex), notification 0 or 1.
//! Fairness: the kernel wakes the thread that has slept longest (of the highest priority); the mutex decides which thread
//! goes on.
//! Suspension: a notification may go to a suspended waiter, as POSIX allows. The mutex is the one that must tolerate it.

use crate::locks::mutex::{self, ConstNew, Held};
use crate::machine::{Arith, Deadline, Machine, Native, Wait, Word};
use core::marker::PhantomData;
use core::sync::atomic::{AtomicU32, Ordering::*};

/// How often a notified thread offers its processor to the holder of the mutex. The first offer is worth a factor of five
/// where notifiers hold the mutex, the second up to two, and sixteen are worth no more.
const OFFERS: u32 = 2;

/// In `waiters`: a thread sleeps until the count is zero.
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

    /// The first piece of [`wait`](RawCondvar::wait), for callers that must block in code of their own: counts the caller
    /// in. The caller must hold the mutex.
    pub fn prepare(&self) -> Ticket {
        // Relaxed: a notifier that matters locks the mutex after the caller has released it. So it finds the caller
        // counted in, and cannot have advanced the number before the caller read it.
        self.waiters.fetch_add(1, Relaxed);
        Ticket(self.sequence.load(Relaxed))
    }

    /// The futex on which to sleep while it holds [`Ticket::value`].
    pub fn word(&self) -> &M::U32 {
        &self.sequence
    }

    /// Whether there has been a notification since `ticket`.
    pub fn is_notified(&self, ticket: Ticket) -> bool {
        self.sequence.load(Relaxed) != ticket.0
    }

    /// The middle piece: sleeps until a notification or the deadline. The caller must have released the mutex.
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
        // (A) pairs with `wait_until_quiet`: the caller's accesses are over.
        if self.waiters.fetch_sub(1, Release) == QUIET + 1 {
            // By now the memory may be gone: only the address is used.
            M::wake(&raw const self.waiters, u32::MAX);
        }
        reason
    }

    /// Called between `finish` and the lock of the mutex: gives other threads the processor while `is_held`. The thread that
    /// notified the caller may hold the mutex, and may wait for this very processor.
    pub fn offer_processor(is_held: impl Fn() -> bool) {
        for _ in 0..M::patience(OFFERS) {
            if !is_held() {
                return;
            }
            M::yield_now();
        }
    }

    /// In place of [`finish`](RawCondvar::finish) for a waiter that will not look at its condition, because its thread is
    /// being cancelled. If a notification may have woken it, another waiter is notified.
    pub fn abandon(&self, ticket: Ticket) {
        if self.is_notified(ticket) {
            // Before the caller counts itself out, which is its last access. Without another waiter this wakes no thread.
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

    /// Waits until no waiter will touch the memory any more, so that it can be freed. POSIX lets a program destroy a
    /// condition variable as soon as all waiters have been notified, when some may still be on their way out.
    ///
    /// It waits for ever if there is a waiter that no thread notifies, or one that was lost to a `fork` (in the child, make
    /// the condition variable anew instead).
    pub fn wait_until_quiet(&self) {
        if self.waiters.load(Acquire) == 0 {
            return; // (A) pairs with `finish`
        }
        let mut waiters = self.waiters.fetch_or(QUIET, Acquire) | QUIET;
        while waiters != QUIET {
            M::wait(&self.waiters, waiters, None);
            // (A) pairs with `finish`. Every departure is a read-modify-write, so the last one stands for all.
            waiters = self.waiters.load(Acquire);
        }
        self.waiters.store(0, Relaxed);
    }
}

/// Fits a condition variable to [`lock_api::RawCondvar`], for mutexes over `L`.
///
/// It does not know how many waiters a notification wakes, so notifications report `false` and 0.
#[repr(transparent)]
pub struct Api<L> {
    raw: RawCondvar<Native>,
    _mutex: PhantomData<fn() -> L>,
}

// SAFETY: `RawCondvar::wait` counts the caller in before it unlocks, and nothing in it unwinds. `wait_deadline` locks the
// mutex again and gives the guard the new acquisition's token.
unsafe impl<L: ConstNew> lock_api::RawCondvar for Api<L> {
    #[allow(clippy::declare_interior_mutable_const)]
    const INIT: Self = Api { raw: RawCondvar::new(), _mutex: PhantomData };
    type RawMutex = mutex::Api<L>;

    unsafe fn wait(&self, mutex: &Self::RawMutex, guard: &mut Held<L::Token>) {
        // SAFETY: the caller holds `mutex`, with the acquisition in `guard`.
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
        // SAFETY: the token is from the acquisition that this ends. The guard gets a new one below.
        let reason = self.raw.wait(|| unsafe { mutex.0.unlock(token) }, deadline);
        // Should `lock` unwind, the guard would be dropped and unlock another holder's mutex.
        let abort = AbortOnUnwind;
        RawCondvar::<Native>::offer_processor(|| mutex.0.is_locked());
        *guard = Held::new(mutex.0.lock());
        core::mem::forget(abort);
        reason
    }
}

/// Ends the process when it is dropped: a lock whose parts are its user's can panic.
struct AbortOnUnwind;

impl Drop for AbortOnUnwind {
    #[cold]
    fn drop(&mut self) {
        // SAFETY: no arguments, no memory.
        unsafe { libc::abort() };
    }
}

#[cfg(test)]
mod tests;
