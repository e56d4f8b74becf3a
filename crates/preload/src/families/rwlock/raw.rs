//! The raw lock of a rwlock: inlined for the fast paths, through pointers for all other code.
//!
//! BRAVO with a row of slots for each thread knows itself which thread has a read acquisition that uses a slot. Such an
//! acquisition is *recorded* and needs no note. A thread notes all its other read acquisitions in its list ([`holds`]).

use super::holds;
use crate::state::abi::{RWLOCK_SPACE, RwLock};
use crate::state::table::Slot;
use crate::state::{choice, identity, place};
use core::sync::atomic::Ordering::Relaxed;
use latchwork::locks::mutex::Token;
use latchwork::locks::rwlock::{RawRwLock, rwsem::RawRwSem};
use latchwork::machine::{Deadline, Native};

/// In place of a token in the list: the thread reads again while a writer waits, by leave of a recorded
/// acquisition. The recorded acquisition ends last, because an unlock first takes what is in the list.
pub(super) const NESTED: usize = usize::MAX;

/// The raw lock in `l`.
///
/// # Safety
///
/// `l` is a live rwlock of ours, and `R` serves rwlocks.
#[inline(always)]
pub(super) unsafe fn raw<'a, R: RawRwLock<Machine = Native>>(l: &RwLock) -> &'a R {
    // SAFETY: the first bytes of a rwlock of ours are zero, which is an unlocked `R`, or what `R` has made of them.
    unsafe { place::locate(&l.raw) }
}

/// Whether the acquisition of `token` is recorded, so that no note is needed. A lock out of place is never asked:
/// its address is not the object's, and a forked child could not find by it what the thread holds.
#[inline(always)]
fn is_recorded<R: RawRwLock<Machine = Native>>(token: &R::Read) -> bool {
    place::is_in_place::<R, RWLOCK_SPACE>() && R::is_recorded(token)
}

/// Whether the calling thread has a recorded acquisition.
///
/// # Safety
///
/// As [`raw`].
#[inline(always)]
pub(super) unsafe fn has_own_recorded_read<R: RawRwLock<Machine = Native>>(l: &RwLock) -> bool {
    // SAFETY: the caller's rwlock has an `R`.
    place::is_in_place::<R, RWLOCK_SPACE>() && unsafe { raw::<R>(l) }.has_own_recorded_read()
}

/// Ends a recorded acquisition of the calling thread; returns whether there was one.
///
/// # Safety
///
/// As [`raw`].
#[inline(always)]
pub(super) unsafe fn unlock_own_recorded_read<R: RawRwLock<Machine = Native>>(l: &RwLock) -> bool {
    // SAFETY: the caller's rwlock has an `R`. No token of a recorded acquisition is kept (`note`), so none is used twice.
    place::is_in_place::<R, RWLOCK_SPACE>() && unsafe { raw::<R>(l).unlock_own_recorded_read() }
}

/// Notes a read acquisition of the calling thread.
///
/// # Safety
///
/// As [`raw`], and `token` is from an acquisition of the lock.
#[inline(always)]
pub(super) unsafe fn note<R: RawRwLock<Machine = Native>>(l: *const RwLock, token: R::Read) {
    if !is_recorded::<R>(&token) {
        // SAFETY: the caller's rwlock is a live one of ours.
        unsafe { holds::add(l, token.into_word()) };
    }
}

/// Ends the acquisition that the list had `token` for.
///
/// # Safety
///
/// As [`raw`], and the list no longer has the token.
#[inline(always)]
pub(super) unsafe fn unlock_read<R: RawRwLock<Machine = Native>>(l: &RwLock, token: usize) {
    if token != NESTED {
        // SAFETY: the token is from the acquisition that ends, because only `note` puts others than `NESTED` into the list.
        unsafe { raw::<R>(l).unlock_read(R::Read::from_word(token)) };
    }
}

/// Records the calling thread, which has just acquired the lock for writing, and its token.
#[inline(always)]
pub(super) fn own<R: RawRwLock<Machine = Native>>(l: &RwLock, token: R::Write) {
    if const { size_of::<R::Write>() != 0 } {
        l.token.store(token.into_word(), Relaxed);
    }
    l.owner.store(identity::me(), Relaxed);
}

/// Releases a lock that is held for writing.
///
/// # Safety
///
/// As [`raw`], and the lock is held for writing.
#[inline(always)]
pub(super) unsafe fn unlock_write<R: RawRwLock<Machine = Native>>(l: &RwLock) {
    // SAFETY: while the lock is held for writing, the token's word is what `own` stored.
    unsafe {
        let word = if const { size_of::<R::Write>() != 0 } { l.token.load(Relaxed) } else { 0 };
        l.owner.store(0, Relaxed);
        // A copy of an object that is held has no lock.
        if place::exists::<R, RWLOCK_SPACE>(&l.raw) {
            raw::<R>(l).unlock_write(R::Write::from_word(word));
        }
    }
}

/// What the code that exists once for all locks asks of a raw lock. The condition of each function is that of [`raw`].
///
/// The functions that acquire also note or record the acquisition.
pub(super) struct Operations {
    /// As [`super::rdlock_ready`].
    pub rdlock_ready: unsafe fn(*mut RwLock) -> libc::c_int,
    /// As [`super::unlock_ready`].
    pub unlock_ready: unsafe fn(*mut RwLock) -> libc::c_int,
    /// As [`super::read_ours`].
    pub read_ours: unsafe fn(*mut RwLock, super::Timeout) -> libc::c_int,
    pub read: unsafe fn(&RwLock),
    pub read_until: unsafe fn(&RwLock, Deadline) -> bool,
    /// As [`unlock_read`].
    pub unlock_read: unsafe fn(&RwLock, usize),
    pub try_write: unsafe fn(&RwLock) -> bool,
    pub write_until: unsafe fn(&RwLock, Deadline) -> bool,
    /// As [`unlock_write`].
    pub unlock_write: unsafe fn(&RwLock),
    pub is_locked: unsafe fn(&RwLock) -> bool,
    pub is_write_locked: unsafe fn(&RwLock) -> bool,
    pub has_own_recorded_read: unsafe fn(&RwLock) -> bool,
    /// Ends a recorded acquisition of any thread; returns whether there was one.
    pub unlock_any_recorded_read: unsafe fn(&RwLock) -> bool,
    /// As [`mend`].
    pub mend: unsafe fn(&RwLock),
    /// As [`discard`].
    pub discard: unsafe fn(&RwLock),
}

impl Operations {
    /// Those of `R`.
    pub(super) const fn of<R: RawRwLock<Machine = Native>>() -> Self {
        // SAFETY: each function is called under the condition that `Operations` states, which is that of `raw`.
        unsafe {
            Operations {
                rdlock_ready: super::rdlock_ready::<R>,
                unlock_ready: super::unlock_ready::<R>,
                read_ours: super::read_ours::<R>,
                read: |l| note::<R>(l, raw::<R>(l).read()),
                read_until: |l, deadline| {
                    raw::<R>(l).read_until(deadline).map(|token| note::<R>(l, token)).is_some()
                },
                unlock_read: unlock_read::<R>,
                try_write: |l| raw::<R>(l).try_write().map(|token| own::<R>(l, token)).is_some(),
                write_until: |l, deadline| {
                    let token = raw::<R>(l).write_until(deadline);
                    token.map(|token| own::<R>(l, token)).is_some()
                },
                unlock_write: unlock_write::<R>,
                is_locked: |l| raw::<R>(l).is_locked(),
                is_write_locked: |l| raw::<R>(l).is_write_locked(),
                has_own_recorded_read: has_own_recorded_read::<R>,
                unlock_any_recorded_read: |l| {
                    place::is_in_place::<R, RWLOCK_SPACE>() && raw::<R>(l).unlock_any_recorded_read()
                },
                mend: mend::<R>,
                discard: discard::<R>,
            }
        }
    }
}

/// The locks that serve rwlocks, by [number](choice). No function of the family runs before `install` has set the first; no
/// rwlock has another number before `chosen::install` has set the others.
pub(super) static OPERATIONS: [Slot<&'static Operations>; choice::NUMBERS] =
    [const { Slot::new(const { &Operations::of::<RawRwSem<Native>>() }) }; _];

/// The lock that serves `l`, which is one of ours.
#[inline(always)]
pub(super) fn operations(l: &RwLock) -> &'static Operations {
    OPERATIONS[choice::number(l.flags.load(Relaxed))].get()
}

/// In a forked child: drops the waiters, and the readers that the child does not have. A write lock stays held, whether
/// by the thread that forked or by another.
///
/// # Safety
///
/// As [`raw`], and no other thread uses the lock.
unsafe fn mend<R: RawRwLock<Machine = Native>>(l: &RwLock) {
    // SAFETY: the lock is the caller's alone, and has an `R`.
    unsafe {
        if !place::exists::<R, RWLOCK_SPACE>(&l.raw) {
            return;
        }
        // Only the slots of the thread that forked are left.
        let recorded = place::is_in_place::<R, RWLOCK_SPACE>() && raw::<R>(l).has_recorded_read();
        place::reset::<R, RWLOCK_SPACE>(&l.raw);
        let keeps = |token| token == NESTED;
        holds::renew(l, keeps, || raw::<R>(l).try_read().map(Token::into_word));
        if recorded {
            raw::<R>(l).restore_recorded_reads();
        }
        if l.owner.load(Relaxed) != 0
            && let Some(token) = raw::<R>(l).try_write()
        {
            l.token.store(token.into_word(), Relaxed);
        }
    }
}

/// Frees the memory of a lock that is out of place, unless the lock is held: then its holder can still release it. (glibc
/// does not look whether a rwlock that is destroyed is held.)
///
/// # Safety
///
/// As [`raw`], and no other thread uses the lock.
unsafe fn discard<R: RawRwLock<Machine = Native>>(l: &RwLock) {
    // SAFETY: the lock is the caller's alone. `raw` alone would make a lock only to free it.
    unsafe {
        if place::exists::<R, RWLOCK_SPACE>(&l.raw) && !raw::<R>(l).is_locked() {
            place::discard::<R, RWLOCK_SPACE>(&l.raw);
        }
    }
}
