//! A notification by the thread that holds the waiters' mutex wakes them when the mutex is released.
//!
//! A waiter cannot go on without the mutex. If a notification woke it while the mutex is held, it would often run on the
//! notifier's processor at once, find the mutex held, and wait again: two sleeps and a preemption more for each notification.
//! So [`defer`] notes in the mutex which waiters to wake, and the unlock wakes them. (Others call this wait morphing, where the
//! notification moves the waiters to the mutex's queue.)
//!
//! Only the holder may defer, because only then is the unlock sure to see the note. A normal mutex does not say who holds it. It
//! does from the first wait with it on ([`names_holder`] sets [`NAMES_HOLDER`]): the two stores of [`note`] at each
//! acquisition, and those of [`unlock`], are the price. A mutex without condition variables pays nothing.
//!
//! | who | what |
//! |---|---|
//! | a thread that has locked the raw lock | [`note`]: its number to `owner`, the mutex's address to its own word `HELD` |
//! | a waiter, before it releases the mutex | its mutex to `Cond::mutex` |
//! | a notifier with `HELD` = `Cond::mutex`, and its number in `owner` | announces the notification to the condition variable; adds the sleepers to `count`, and where they sleep to `token` |
//! | whoever unlocks the mutex | [`unlock`]: clears all that, releases the raw lock, and wakes them |
//!
//! *Both words are needed.* The notifier may look into the mutex only if it holds it, because another mutex may be gone: a waiter whose deadline
//! has passed may be the last user of both objects. `HELD` says that without a look. But it stays if another thread unlocks the
//! mutex, which glibc allows for normal ones. Then `owner` has changed.
//!
//! *No waiter is lost.* All words but `HELD` and `Cond::mutex` change only while the raw lock is held, so whoever unlocks
//! finds the note. A mutex that stays locked for ever keeps its waiters from going on in any case. `pthread_cond_destroy` may be called
//! before the unlock: it wakes all waiters. A second condition variable's notification, while a first one's is noted, wakes at once.
//! So does every notifier that holds two such mutexes and has locked the other one later: there is one word `HELD`.
//!
//! Only where the raw lock has no token: its place in the mutex is used.

use super::raw::{self, operations};
use super::{THREAD, owner, wait};
use crate::state::abi::{ADAPTIVE, Cond, IN_SHARED_MEMORY, Mutex, NAMES_HOLDER, SERVED};
use crate::state::identity;
use core::sync::atomic::Ordering::*;
use latchwork::locks::condvar::RawCondvar;
use latchwork::locks::mutex::RawMutex;
use latchwork::machine::Native;
use latchwork::machine::native::tls::thread_local_word;
use libc::c_int;

thread_local_word! {
    /// The address of the mutex that the thread has locked last, of those that name their holder; 0 after the unlock.
    Held: usize = "held_mutex"
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

/// Notifies at most `count` waiters of `c` when the calling thread unlocks their mutex. `false`: it does not hold the mutex, or
/// cannot note that, and must notify them itself.
pub(in crate::families) fn defer(c: &Cond, count: u32) -> bool {
    let m = c.mutex.load(Relaxed);
    if m.is_null() || Held::get() != m.addr() {
        return false;
    }
    // SAFETY: the thread has locked this mutex and has not unlocked it. If another thread has, then `c` may have waiters that use it, and
    // if it is gone all the same, the program has freed a mutex that threads use.
    let m = unsafe { &*m };
    let sleepers = m.count.load(Relaxed);
    let place = core::ptr::from_ref(c.raw.word()).expose_provenance();
    if owner(m) != identity::me() || sleepers != 0 && m.token.load(Relaxed) != place {
        return false;
    }
    m.token.store(place, Relaxed);
    m.count.store(sleepers.saturating_add(c.raw.announce(count)), Relaxed);
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
/// meanwhile. Does nothing if no thread holds it.
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
    m.owner.store(m.owner.load(Relaxed) & !THREAD, Relaxed);
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
