//! A notification by the thread that holds the waiters' mutex wakes them when the mutex is released.
//!
//! A waiter cannot go on without the mutex. If a notification woke it while the mutex is held, it would often run on the
//! notifier's processor at once, find the mutex held, and wait again: two sleeps and a preemption more for each notification.
//! So [`defer`] notes in the mutex which waiters to wake, and the unlock wakes them. (Others call this wait morphing, where the
//! notification moves the waiters to the mutex's queue.)
//!
//! Only the holder may defer, because only then is the unlock sure to find the note. A normal mutex does not say which thread holds it,
//! until a thread waits for a condition variable with it: that sets [`NAMES_HOLDER`] ([`names_holder`]). From then on each acquisition
//! makes the two stores of [`note`], and each release those of [`unlock`]. A mutex without condition variables pays nothing.
//!
//! | thread | what it does |
//! |---|---|
//! | one that has locked the raw lock | [`note`]: stores its number in `owner`, and the mutex's address in its own word `HELD` |
//! | a waiter, before it releases the mutex | stores the mutex's address in `Cond::mutex` |
//! | a notifier with `HELD` = `Cond::mutex`, and its number in `owner` | [`defer`]: announces the notification to the condition variable; adds the sleepers to `count`, and stores in `token` where they sleep |
//! | one that unlocks the mutex | [`unlock`]: clears `HELD`, `owner` and `count`, releases the raw lock, and wakes the sleepers |
//!
//! *Both `HELD` and `owner` are needed.* The notifier may look into the mutex only if it holds it, because another mutex may be gone: a
//! waiter whose deadline has passed may be the last user of both objects. `HELD` tells that without a look. But `HELD` stays if another
//! thread unlocks the mutex, which glibc allows for normal ones. Then `owner` has changed.
//!
//! *No waiter is lost.* All words but `HELD` and `Cond::mutex` change only while the raw lock is held, so the thread that unlocks finds
//! the note. If the mutex stays locked for ever, no waiter could go on in any case. Where a waiter must not sleep until the unlock, or
//! where there is no room for the note, the notifier or another thread wakes it:
//! - `pthread_cond_destroy`, which may be called before the unlock, wakes all waiters;
//! - a wait with another mutex wakes those that are claimed (`RawCondvar::wake_claimed`);
//! - a notification of a second condition variable, while the mutex has a note of a first one, wakes at once;
//! - so does each notification of a thread that holds two such mutexes and has locked the other one later: there is one word `HELD`;
//! - so does a notification of more than 511 waiters (`RawCondvar::announce`).
//!
//! *When another thread unlocks.* POSIX forbids that, and glibc does it. The former holder may notify at the same time, and still take
//! itself for the holder: its note could come after the other thread has looked for one. So the first such unlock sets [`AT_ONCE`], and
//! from then on all notifications of the process wake at once ([`unlocked_by_another`]). That is (D): of the notifier, which stores its
//! note and then loads `AT_ONCE`, and the other thread, which stores `AT_ONCE` and then loads `count`, at least one sees what the other
//! has stored. Both then wake the waiters, which does no harm. The checks for deadlocks set `AT_ONCE` too: a thread that sleeps for a
//! condition is in no circle of waiting threads.
//!
//! Only where the raw lock has no token: the note is where the token would be.

use super::raw::{self, operations};
use super::{THREAD, owner, wait};
use crate::state::abi::{ADAPTIVE, Cond, IN_SHARED_MEMORY, Mutex, NAMES_HOLDER, SERVED};
use crate::state::identity;
use core::sync::atomic::{AtomicBool, Ordering::*};
use latchwork::locks::condvar::RawCondvar;
use latchwork::locks::mutex::RawMutex;
use latchwork::machine::native::tls::thread_local_word;
use latchwork::machine::{Machine, Native};
use libc::c_int;

thread_local_word! {
    /// The address of the mutex that the thread has locked last, of those that name their holder; 0 after the unlock.
    Held: usize = "held_mutex"
}

/// Whether all notifications wake at once.
static AT_ONCE: AtomicBool = AtomicBool::new(false);

/// From now on all notifications wake at once.
pub(crate) fn wake_at_once() {
    AT_ONCE.store(true, Relaxed);
}

/// Makes a normal mutex one that names its holder, if its lock allows that. The caller holds the mutex, and is about to wait for a
/// condition variable with it.
pub(super) fn names_holder(m: &Mutex) {
    let kind = m.kind.load(Relaxed);
    if kind & (NAMES_HOLDER | IN_SHARED_MEMORY) == 0
        && kind & (SERVED | ADAPTIVE) == SERVED
        && !operations(m).has_token
    {
        m.kind.fetch_or(NAMES_HOLDER, Relaxed);
    }
}

/// Notes that the calling thread, which has just locked the raw lock, holds the mutex.
#[inline(always)]
pub(super) fn note(m: &Mutex) {
    m.owner.store(m.owner.load(Relaxed) & !THREAD | identity::me(), Relaxed);
    Held::set(core::ptr::from_ref(m).addr());
}

/// The same, if the mutex names its holder.
#[inline(always)]
pub(super) fn note_if_named(m: &Mutex) {
    if m.kind.load(Relaxed) & NAMES_HOLDER != 0 {
        note(m);
    }
}

/// Notifies at most `count` waiters of `c` when the calling thread unlocks their mutex. `false`: nothing has happened, because the thread
/// does not hold that mutex, or cannot leave a note in it. It must notify them itself.
pub(in crate::families) fn defer(c: &Cond, count: u32) -> bool {
    let m = c.mutex.load(Relaxed);
    if m.is_null() || Held::get() != m.addr() || AT_ONCE.load(Relaxed) {
        return false;
    }
    // SAFETY: the thread has locked a mutex at this address and has not unlocked it. While `AT_ONCE` is not set, no other thread has
    // unlocked it either. (A program that frees a mutex which is held is the exception: then a later mutex is here, which `c` may have
    // waiters with, and the checks below refuse it.)
    let m = unsafe { &*m };
    let names_holder = m.kind.load(Relaxed) & (NAMES_HOLDER | IN_SHARED_MEMORY) == NAMES_HOLDER;
    if !names_holder || owner(m) != identity::me() {
        return false;
    }
    let place = c.raw.word();
    let noted = m.count.load(Relaxed);
    if noted != 0 && m.token.load(Relaxed) != core::ptr::from_ref(place).addr() {
        return false;
    }
    let Some(more) = c.raw.announce(count) else { return false };
    let sleepers = noted.saturating_add(more);
    m.token.store(core::ptr::from_ref(place).expose_provenance(), Relaxed);
    m.count.store(sleepers, Relaxed);
    Native::full_fence(); // (D) pairs with `unlocked_by_another`
    if AT_ONCE.load(Relaxed) {
        RawCondvar::<Native>::wake_announced(place, sleepers);
    }
    true
}

/// Locks a normal mutex that names its holder. 0, always.
///
/// # Safety
///
/// The mutex is live, one of ours and of the current generation, and `L` serves it.
pub(crate) unsafe extern "C" fn lock<L: RawMutex<Machine = Native>>(m: *mut Mutex) -> c_int {
    // SAFETY: the caller's mutex is a live one of ours, which `L` serves.
    unsafe {
        if !raw::try_lock_weak::<L>(&*m) {
            wait(m);
        }
        note(&*m);
    }
    0
}

/// Unlocks a mutex that names its holder with `unlock`, the raw lock's own function, and wakes the waiters that were notified
/// meanwhile. Does nothing if no thread holds the mutex.
///
/// # Safety
///
/// The mutex is live, one of ours and of the current generation.
#[inline(always)]
pub(crate) unsafe fn unlock(m: &Mutex, is_locked: impl FnOnce(&Mutex) -> bool, unlock: impl FnOnce(&Mutex)) {
    if !is_locked(m) {
        return;
    }
    if Held::get() == core::ptr::from_ref(m).addr() {
        Held::set(0);
    }
    let holder = owner(m);
    m.owner.store(m.owner.load(Relaxed) & !THREAD, Relaxed);
    if holder != identity::me() && holder != 0 {
        unlocked_by_another();
    }
    let sleepers = m.count.load(Relaxed);
    if sleepers == 0 {
        return unlock(m);
    }
    let place = core::ptr::with_exposed_provenance(m.token.load(Relaxed));
    m.count.store(0, Relaxed);
    unlock(m);
    // The mutex may be gone, and so may the condition variable.
    RawCondvar::<Native>::wake_announced(place, sleepers);
}

/// The calling thread is about to unlock a mutex that another thread has locked, and has not looked for a note in it yet.
#[cold]
#[inline(never)]
fn unlocked_by_another() {
    wake_at_once();
    Native::full_fence(); // (D) pairs with `defer`
}
