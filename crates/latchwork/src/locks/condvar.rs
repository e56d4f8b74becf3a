//! A condition variable that works with every mutex.
//!
//! Source: the futex condition variable of Drepper, "Futexes are tricky" (2011), section 8, reduced to what is needed when
//! waiters compete for the mutex in user space: a sequence number that every notification advances, and that waiters sleep
//! on.
//!
//! A waiter, still holding the mutex, notes the sequence number (its [`Ticket`]) and counts itself in. It unlocks the mutex,
//! sleeps while the number is unchanged, counts itself out, and locks the mutex again. A notification *claims* one of the
//! counted waiters, or all of them. Then it advances the number and wakes as many sleepers. A notification that finds all of them
//! claimed only advances the number, and one that finds no waiter is one load.
//!
//! | word | changed by | pairs with |
//! |---|---|---|
//! | `sequence`, the futex | a notification that finds a waiter adds one, a waiter that helps too | (R) the futex, which compares it with the ticket |
//! | `waiters`, COUNT: the waiters between `prepare` and `finish` | `prepare`, after it has read the ticket | (T) release |
//! | | `finish` | (A) release |
//! | `waiters`, CLAIMED: how many of them notifications have claimed | a notification, before it advances the number | (T) acquire |
//! | | `finish`, which takes one claim away with the waiter | |
//! | `waiters`, QUIET: a thread waits until there are no waiters | [`wait_until_quiet`](RawCondvar::wait_until_quiet) | (A) acquire |
//!
//! *Why claims.* A notified thread needs microseconds until it runs and counts itself out. A notification that finds all waiters
//! claimed makes no system call meanwhile: a producer that puts ten items wakes a lone consumer once. On the queues of
//! `docs/condvars.md` this is worth a sixth.
//!
//! *A notifier may wake later.* [`announce`](RawCondvar::announce) is a notification without its system call. The caller makes that
//! ([`wake_announced`](RawCondvar::wake_announced)) when it has released the mutex, without which no waiter could go on. Its claims are
//! pending until then, which may be long. Two calls that must not wait for so long wake the claimed waiters themselves:
//! [`wait_until_quiet`](RawCondvar::wait_until_quiet), and [`wake_claimed`](RawCondvar::wake_claimed) of a thread that waits with another
//! mutex. (POSIX allows another mutex when all waiters with the first one have been notified.)
//!
//! *No claimed waiter sleeps on.* Claims do not name waiters. Call a waiter *due* if it will return without a further
//! notification: the number has moved past its ticket and it does not sleep, or it was woken, or its deadline has passed. Call
//! a claim *pending* until its notification has made its system call. The invariant is: CLAIMED is at most the number of due
//! waiters plus the number of pending claims. If CLAIMED equals COUNT, as many waiters as are not due will be woken by pending
//! claims, and a further notification need not wake any. Every step keeps the invariant:
//! - A claim adds one to CLAIMED and one to the pending claims.
//! - A wake that finds a sleeper makes it due: a woken waiter returns, even if the number has not moved.
//! - A waiter that leaves is due. It takes a claim away with it if there is one.
//! - A wake that finds no sleeper ends a pending claim. By (T), all waiters that its notification has counted had tickets from
//!   before the number moved. None of them sleeps, so all are due, or have left with a claim. When the claim was made, there
//!   were at least as many of them as claims, including this one. So one of them is due without a claim.
//!
//! *No later waiter takes their wakes.* A notification that relies on pending claims advances the number first, and then finds all
//! waiters still claimed. So those that do not sleep yet will not, and those that sleep were there before every waiter that comes
//! later: the kernel wakes them first, and a waiter whose sleep a signal handler interrupts does not fall asleep again. Without
//! this, a claimed waiter could fall asleep behind a later one, which then got its wake.
//!
//! A waiter that leaves after its deadline may take the claim of another waiter away. Then CLAIMED is too small, which costs
//! a system call. So does CLAIMED when it has reached its largest value.
//!
//! *The notifier goes first.* A woken thread may preempt the very thread that woke it, which may hold the mutex. Before it
//! waits for a mutex that is held, it offers its processor to other threads
//! ([`offer_processor`](RawCondvar::offer_processor)). Without that it would spin while the holder waits for the processor. Where its
//! process has one processor and waiters of the mutex park at once, it makes no offer: a `sched_yield` costs the rest of its time slice.
//!
//! *No lost wakeups.* A notifier that has locked the mutex after a waiter released it finds the waiter counted in. It advances
//! the number past the waiter's ticket, or finds the waiter due. A waiter that sleeps is woken; one that does not sleep yet
//! finds the number changed and does not go to sleep. So it is enough that the condition is changed with the mutex held; the notification
//! itself may come after the unlock. If the kernel reports a timeout, the waiter was not the one that a notification woke. It
//! reports [`Wait::Woken`] nevertheless if it takes a claim away with it, so that no notification is answered by timeouts alone.
//! (That the number has moved is not enough: the notification may have been another waiter's. A thread that sets a new deadline at
//! each turn, as a pool does that lets idle threads go, would never see a timeout.)
//!
//! *Spurious wakeups* happen: a waiter that has not gone to sleep when another waiter is notified returns too, and so does a
//! waiter whose thread has run a signal handler. Callers check their condition in a loop, as always.
//!
//! *Real-time priorities.* The kernel wakes the waiter of the highest real-time priority, and of one priority the one that has slept
//! longest. So a thread of a higher priority that begins to wait between a claim and its wake gets that wake. Such a thread *helps*
//! first: it advances the number, and wakes as many sleepers as it finds claimed. After that no claim from before needs its wake. (In
//! glibc's condition variable, waiters sleep in two groups for this.)
//!
//! *Wraparound*: a waiter that is stopped between `prepare` and falling asleep for exactly 2^32 notifications (or a multiple)
//! would take the number for unchanged, and sleep until the next notification. At ten million notifications a second, that
//! is a thread that did not run for seven minutes, to the notification.
//!
//! Size: 8 bytes, none per waiter.
//! Atomics: wait 2 (beside the mutex; and a system call if there are claims, to find the thread's policy), notification 0, 1 (all
//! waiters are claimed; and a fence) or 2.
//! Fairness: the kernel wakes the thread that has slept longest (of the highest priority); the mutex decides which thread
//! goes on.
//! Suspension: a notification may go to a suspended waiter, as POSIX allows. The mutex is the one that must tolerate it. A
//! notifier that is suspended between its claim and its system call delays the claimed waiter until it runs again.

use crate::locks::mutex::{self, ConstNew, Held};
use crate::locks::relock;
use crate::machine::{Arith, Deadline, Machine, Native, Wait, Word};
use core::marker::PhantomData;
use core::sync::atomic::{AtomicU32, Ordering::*};

/// How often a notified thread offers its processor to the holder of the mutex. The first offer is worth a factor of five
/// where notifiers hold the mutex, the second up to two, and sixteen are worth no more.
const OFFERS: u32 = 2;

/// A value of the word `waiters`.
#[derive(Copy, Clone, PartialEq, Eq)]
struct Waiters(u32);

impl Waiters {
    /// One more waiter. COUNT has 22 bits: Linux has at most 2^22 threads.
    const ONE: u32 = 1;
    const COUNT: u32 = (1 << 22) - 1;
    /// One more claim. CLAIMED has 9 bits, and stays at its largest value.
    const CLAIM: u32 = 1 << 22;
    const MOST_CLAIMS: u32 = (1 << 9) - 1;
    /// A thread sleeps until COUNT is zero.
    const QUIET: u32 = 1 << 31;

    fn count(self) -> u32 {
        self.0 & Self::COUNT
    }

    fn claimed(self) -> u32 {
        (self.0 / Self::CLAIM) & Self::MOST_CLAIMS
    }

    /// With claims of `more` waiters, or of all if there are fewer.
    fn claim(self, more: u32) -> Self {
        let claimed = self.claimed().saturating_add(more).min(self.count()).min(Self::MOST_CLAIMS);
        Waiters((self.0 & !(Self::MOST_CLAIMS * Self::CLAIM)) | (claimed * Self::CLAIM))
    }

    /// With one waiter less, and one claim less if there is any. A caller that never came takes nothing away.
    fn leave(self) -> Self {
        let waiter = Self::ONE.min(self.count());
        let claim = Self::CLAIM * self.claimed().min(1);
        Waiters(self.0 - waiter - claim)
    }
}

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
        // (T) pairs with `wake`: a notification that counts the caller advances the number after the caller has read it. In
        // the other order, a notification could claim the caller, and the caller could take the number that it left.
        let ticket = Ticket(self.sequence.load(Relaxed));
        let before = Waiters(self.waiters.fetch_add(Waiters::ONE, Release));
        if before.claimed() > 0 && M::is_real_time() { self.help(ticket, before.claimed()) } else { ticket }
    }

    /// Wakes as many waiters as were claimed before the caller counted itself in. Returns the caller's new ticket.
    #[cold]
    fn help(&self, ticket: Ticket, claimed: u32) -> Ticket {
        // Claimed waiters that do not sleep yet will not.
        let sequence = self.sequence.fetch_add(1, Relaxed);
        M::wake(&self.sequence, claimed);
        // A notification that has moved the number already may have claimed the caller: it is due.
        if sequence == ticket.0 { Ticket(sequence.wrapping_add(1)) } else { ticket }
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
        // A caller that was woken must return: the wake was meant for a waiter, and no other one gets it.
        if self.is_notified(ticket) { Wait::Woken } else { M::wait(&self.sequence, ticket.0, deadline) }
    }

    /// The last piece: counts the caller out. It is the caller's last access to the condition
    /// variable, and comes before it locks the mutex again. Returns `reason`, or [`Wait::Woken`] if the caller answers a
    /// notification after all.
    pub fn finish(&self, _ticket: Ticket, reason: Wait) -> Wait {
        let address = &raw const self.waiters;
        let mut waiters = Waiters(self.waiters.load(Relaxed));
        // (A) pairs with `wait_until_quiet`: the caller's accesses are over.
        while let Err(now) = self.waiters.compare_exchange(waiters.0, waiters.leave().0, Release, Relaxed) {
            waiters = Waiters(now);
        }
        if waiters.leave() == Waiters(Waiters::QUIET) {
            // By now the memory may be gone: only the address is used.
            M::wake(address, u32::MAX);
        }
        if waiters.claimed() > 0 { Wait::Woken } else { reason }
    }

    /// Called between `finish` and the lock of the mutex: gives other threads the processor while the mutex `wants_offers`
    /// ([`RawMutex::wants_offers`](mutex::RawMutex::wants_offers)). The thread that notified the caller may hold the mutex, and may wait
    /// for this very processor.
    pub fn offer_processor(wants_offers: impl Fn() -> bool) {
        for _ in 0..M::patience(OFFERS) {
            if !wants_offers() {
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

    /// Wakes at most `count` waiters.
    #[inline]
    pub fn notify(&self, count: u32) {
        // Relaxed: a waiter that the caller's change concerns released the mutex before the caller locked it.
        if self.has_waiters() {
            self.wake(count);
        }
    }

    #[cold]
    #[inline(never)]
    fn wake(&self, count: u32) {
        let sequence = &raw const self.sequence;
        let sleepers = self.claim(count);
        if sleepers != 0 {
            // A waiter that found the number changed may have destroyed the condition variable: only
            // the address is used.
            Self::wake_announced(sequence, sleepers);
        }
    }

    /// A notification of at most `count` waiters that wakes none yet: returns how many sleepers the caller must wake with
    /// [`wake_announced`](Self::wake_announced). Until then the claimed waiters may sleep. So the caller must hold the mutex of all
    /// waiters, and call that function as soon as it has released the mutex.
    ///
    /// `None`: there are more waiters than claims can be counted for, so nothing has happened and the caller must
    /// [`notify`](Self::notify) them. Otherwise a waiter without a claim whose deadline passes before it is woken would report a
    /// timeout, though it was notified in time.
    #[must_use = "without `wake_announced`, claimed waiters sleep on"]
    pub fn announce(&self, count: u32) -> Option<u32> {
        let waiters = Waiters(self.waiters.load(Relaxed)).count();
        (waiters <= Waiters::MOST_CLAIMS).then(|| self.claim(count))
    }

    /// Claims at most `count` waiters, and advances the number. Returns how many sleepers are to be woken.
    fn claim(&self, count: u32) -> u32 {
        let mut waiters = Waiters(self.waiters.load(Relaxed));
        let mut has_advanced = false;
        loop {
            if waiters.claimed() == waiters.count() {
                if has_advanced || waiters.count() == 0 {
                    return 0; // all are due or will be woken by pending claims, or there are none any more
                }
                // (R) pairs with the futex, which is a full fence before it compares the word: a waiter that counts itself in
                // unseen by the next load falls asleep behind all that are counted here.
                self.sequence.fetch_add(1, Relaxed);
                M::full_fence();
                has_advanced = true;
                waiters = Waiters(self.waiters.load(Relaxed));
                continue;
            }
            // (T) pairs with `prepare`: all tickets of the counted waiters were read before the number moves.
            match self.waiters.compare_exchange(waiters.0, waiters.claim(count).0, Acquire, Relaxed) {
                Ok(_) => break,
                Err(now) => waiters = Waiters(now),
            }
        }
        // Relaxed: what the waiter has to see, it sees through the mutex. The futex orders this
        // before the wake, and compares the word with the ticket under the same lock.
        self.sequence.fetch_add(1, Relaxed);
        count
    }

    /// The system call of [`announce`](Self::announce). The condition variable may be gone: only the address of its
    /// [`word`](Self::word) is used.
    pub fn wake_announced(word: *const M::U32, sleepers: u32) {
        M::wake(word, sleepers);
    }

    /// Wakes the waiters that are notified already, but may sleep until a notifier calls [`wake_announced`](Self::wake_announced). For a
    /// thread that is about to wait with another mutex than those waiters: a notification that it is to get would wake the thread that
    /// has slept longest, which may be one of them.
    pub fn wake_claimed(&self) {
        if Waiters(self.waiters.load(Relaxed)).claimed() > 0 {
            // Claimed waiters that do not sleep yet will not.
            self.sequence.fetch_add(1, Relaxed);
            M::wake(&self.sequence, u32::MAX);
        }
    }

    /// Whether there were waiters, a moment ago.
    #[inline]
    pub fn has_waiters(&self) -> bool {
        self.waiters.load(Relaxed) & !Waiters::QUIET != 0
    }

    /// Waits until no waiter will touch the memory any more, so that it can be freed. POSIX lets a program destroy a
    /// condition variable as soon as all waiters have been notified, when some may still be on their way out.
    ///
    /// Waiters that were notified by [`announce`](Self::announce) are woken. (So are others. POSIX allows none here; if one waits again,
    /// the caller waits for ever unless a thread notifies it.) Do not call it in the child of a `fork` if there were waiters in the
    /// parent: the caller would wait for threads that do not exist. Make the condition variable anew instead.
    pub fn wait_until_quiet(&self) {
        if self.waiters.load(Acquire) == 0 {
            return; // (A) pairs with `finish`
        }
        let mut waiters = self.waiters.fetch_or(Waiters::QUIET, Acquire) | Waiters::QUIET;
        // An announced notification may not have made its system call yet. It may be the caller's own, which makes that call after it
        // has destroyed the condition variable.
        M::wake(&self.sequence, u32::MAX);
        while waiters != Waiters::QUIET {
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
        RawCondvar::<Native>::offer_processor(|| mutex.0.wants_offers());
        relock(guard, || mutex.0.lock());
        reason
    }
}

#[cfg(test)]
mod tests;
