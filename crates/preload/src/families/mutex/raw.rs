//! The raw lock of a mutex: inlined for the fast paths, through pointers for all other code.

use crate::state::abi::{MUTEX_SPACE, Mutex};
use crate::state::choice;
use crate::state::place;
use crate::state::table::Slot;
use core::sync::atomic::Ordering::Relaxed;
use latchwork::locks::mutex::{RawMutex, Token, ttas::RawTtas};
use latchwork::machine::{Deadline, Native};

/// The raw lock in `m`.
///
/// # Safety
///
/// `m` is a live mutex of ours, and `L` is the lock that serves it.
#[inline(always)]
pub(crate) unsafe fn raw<'a, L: RawMutex<Machine = Native>>(m: &Mutex) -> &'a L {
    // SAFETY: the first bytes of a mutex of ours are zero, which is an unlocked `L`, or what `L` has made of them, or a pointer
    // to an `L` that does not fit (`place`).
    unsafe { place::locate(&m.raw) }
}

/// Keeps what `unlock` will need. A lock with an empty token costs no store.
#[inline(always)]
fn keep<L: RawMutex<Machine = Native>>(m: &Mutex, token: L::Token) {
    if const { size_of::<L::Token>() != 0 } {
        m.token.store(token.into_word(), Relaxed);
    }
}

/// Keeps the token of an attempt that succeeded; returns whether it did.
#[inline(always)]
fn got<L: RawMutex<Machine = Native>>(m: &Mutex, token: Option<L::Token>) -> bool {
    match token {
        Some(token) => {
            keep::<L>(m, token);
            true
        }
        None => false,
    }
}

/// Locks the raw lock if it is free, even if threads wait for it.
///
/// # Safety
///
/// As [`raw`].
#[inline(always)]
pub(super) unsafe fn try_lock<L: RawMutex<Machine = Native>>(m: &Mutex) -> bool {
    // SAFETY: the caller's mutex has an `L`.
    got::<L>(m, unsafe { raw::<L>(m) }.try_lock())
}

/// The fast path of a call that goes on to wait if this fails. Where the algorithm tells a free lock with waiters from a free
/// one without, this attempt fails on the former.
///
/// # Safety
///
/// As [`raw`].
#[inline(always)]
pub(crate) unsafe fn try_lock_weak<L: RawMutex<Machine = Native>>(m: &Mutex) -> bool {
    // SAFETY: the caller's mutex has an `L`.
    got::<L>(m, unsafe { raw::<L>(m) }.try_lock_weak())
}

/// Unlocks the raw lock, or does nothing if no thread holds it: glibc's unlock of such a mutex returns 0, so ours must not
/// fail either. The queue of many raw locks does not survive an `unlock` that follows no `lock`.
///
/// # Safety
///
/// As [`raw`]. If `L` has a token and the caller does not hold the lock, no other thread locks or unlocks it meanwhile.
#[inline(always)]
pub(crate) unsafe fn unlock<L: RawMutex<Machine = Native>>(m: &Mutex) {
    // SAFETY: the caller's mutex has an `L`. If that is locked, its holder is the caller, or no thread is within a call: so
    // the token's word is what `keep` stored for the holder.
    unsafe {
        let lock = raw::<L>(m);
        if lock.is_locked() {
            let word = if const { size_of::<L::Token>() != 0 } { m.token.load(Relaxed) } else { 0 };
            lock.unlock(L::Token::from_word(word));
        }
    }
}

/// What the code that exists once for all locks asks of a raw lock. The condition of each function is that of [`raw`].
pub(super) struct Operations {
    /// Whether `unlock` needs what `keep` stores.
    pub has_token: bool,
    pub try_lock: unsafe fn(&Mutex) -> bool,
    pub try_lock_weak: unsafe fn(&Mutex) -> bool,
    /// Waits, after an attempt that failed.
    pub lock_contended: unsafe fn(&Mutex),
    /// Waits, but no longer than until the deadline.
    pub lock_until: unsafe fn(&Mutex, Deadline) -> bool,
    pub unlock: unsafe fn(&Mutex),
    /// Whether a thread holds it. This never makes a lock that is out of place.
    pub is_locked: unsafe fn(&Mutex) -> bool,
    /// [`RawMutex::wants_offers`], likewise.
    pub wants_offers: unsafe fn(&Mutex) -> bool,
    /// Makes it unlocked and drops its waiters; the caller is the only user.
    pub reset: unsafe fn(&Mutex),
    /// Frees the memory of a lock that is out of place; the caller is the only user, and the lock is free.
    pub discard: unsafe fn(&Mutex),
}

impl Operations {
    /// Those of `L`.
    pub(super) const fn of<L: RawMutex<Machine = Native>>() -> Self {
        // SAFETY: each function is called under the condition that `Operations` states, which is that of `raw`.
        unsafe {
            Operations {
                has_token: size_of::<L::Token>() != 0,
                try_lock: try_lock::<L>,
                try_lock_weak: try_lock_weak::<L>,
                lock_contended: |m| keep::<L>(m, raw::<L>(m).lock_contended()),
                lock_until: |m, deadline| got::<L>(m, raw::<L>(m).lock_until(deadline)),
                unlock: unlock::<L>,
                is_locked: |m| place::exists::<L, MUTEX_SPACE>(&m.raw) && raw::<L>(m).is_locked(),
                wants_offers: |m| place::exists::<L, MUTEX_SPACE>(&m.raw) && raw::<L>(m).wants_offers(),
                reset: |m| place::reset::<L, MUTEX_SPACE>(&m.raw),
                discard: |m| place::discard::<L, MUTEX_SPACE>(&m.raw),
            }
        }
    }
}

/// The locks that serve mutexes, by [number](choice). No function of the family runs before `install` has set the first; no
/// mutex has another number before `chosen::install` has set the others.
pub(super) static OPERATIONS: [Slot<&'static Operations>; choice::NUMBERS] =
    [const { Slot::new(const { &Operations::of::<RawTtas<Native>>() }) }; _];

/// The lock that serves `m`, which is one of ours.
#[inline(always)]
pub(super) fn operations(m: &Mutex) -> &'static Operations {
    OPERATIONS[choice::number(m.kind.load(Relaxed))].get()
}
