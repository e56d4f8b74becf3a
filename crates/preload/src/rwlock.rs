//! `pthread_rwlock_*` over any raw reader-writer lock.
//!
//! glibc has three kinds of rwlock. Two prefer readers, the default one and `PREFER_WRITER_NP` (in spite of its name):
//! [`preference`] says how writers wait for them here. The third, `PREFER_WRITER_NONRECURSIVE_NP`, keeps readers out,
//! their attempts included, while a writer waits. None of the locks does that, so such an object is glibc's.
//!
//! A thread that reads may always read again while a writer waits, because programs rely on it; it costs a look at the
//! thread's own list of read holdings, see [`holds`].
//!
//! A lock that remembers by itself what a thread reads (BRAVO with a row of slots per thread) is not
//! entered into that list, unless the thread reads again and the lock would not let it in: see
//! [`NESTED`].
//!
//! Unlike glibc, a thread that reads and asks to write gets EDEADLK instead of waiting for itself.
//!
//! A thread that releases a lock it does not hold: if it is locked for writing, that lock is
//! released (its token is in the object); else a read acquisition is taken away from whichever
//! thread has one; if there is none, the answer is EPERM.

use crate::abi::*;
use crate::table::{Attr, REAL, install};
use crate::{cancel, fork, holds, identity, place, preference, stats};
use core::sync::atomic::{Ordering::*, fence};
use latchwork::locks::mutex::Token;
use latchwork::locks::rwlock::RawRwLock;
use latchwork::machine::{Clock, Native};
use libc::{EAGAIN, EBUSY, EDEADLK, EINVAL, EPERM, ETIMEDOUT, c_int, timespec};

/// Serves the family with `R`.
pub(crate) fn install<R: RawRwLock<Machine = Native>, const STATS: bool>() {
    stats::name_rwlock(R::INFO.name);
    install! {
        rwlock_init => init::<R, STATS>,
        rwlock_destroy => destroy::<R, STATS>,
        rwlock_rdlock => rdlock::<R, STATS>,
        rwlock_wrlock => wrlock::<R, STATS>,
        rwlock_tryrdlock => tryrdlock::<R, STATS>,
        rwlock_trywrlock => trywrlock::<R, STATS>,
        rwlock_timedrdlock => timedrdlock::<R, STATS>,
        rwlock_timedwrlock => timedwrlock::<R, STATS>,
        rwlock_clockrdlock => clockrdlock::<R, STATS>,
        rwlock_clockwrlock => clockwrlock::<R, STATS>,
        rwlock_unlock => unlock::<R, STATS>,
    }
}

unsafe extern "C" {
    fn pthread_rwlockattr_getpshared(attr: *const Attr, shared: *mut c_int) -> c_int;
    fn pthread_rwlockattr_getkind_np(attr: *const Attr, kind: *mut c_int) -> c_int;
}

#[inline(always)]
unsafe fn raw<'a, R: RawRwLock<Machine = Native>>(l: &RwLock) -> &'a R {
    // SAFETY: the rwlock is a live object of ours; its first bytes are only used here.
    unsafe { place::locate(&l.raw) }
}

/// In place of a token: the thread reads again, by leave of an acquisition that the lock remembers. That
/// one ends last, because what is in the list is released first.
const NESTED: usize = usize::MAX;

/// Whether the lock remembers the acquisition of `token`, and nobody else has to. (Out of place the
/// lock's address is not the object's, by which a forked child finds what it holds.)
#[inline(always)]
fn remembers<R: RawRwLock<Machine = Native>>(token: &R::Read) -> bool {
    place::is_in_place::<R, RWLOCK_SPACE>() && R::remembers(token)
}

/// Whether the lock remembers that the calling thread reads it.
#[inline(always)]
unsafe fn reads_own<R: RawRwLock<Machine = Native>>(l: &RwLock) -> bool {
    // SAFETY: the object is live and ours.
    place::is_in_place::<R, RWLOCK_SPACE>() && unsafe { raw::<R>(l) }.reads_own()
}

/// Ends an acquisition by the calling thread that the lock remembers.
#[inline(always)]
unsafe fn unlock_own<R: RawRwLock<Machine = Native>>(l: &RwLock) -> bool {
    // SAFETY: the object is live and ours; tokens of such acquisitions are not kept.
    place::is_in_place::<R, RWLOCK_SPACE>() && unsafe { raw::<R>(l).unlock_own() }
}

/// Notes a read acquisition of the calling thread.
#[inline(always)]
unsafe fn note<R: RawRwLock<Machine = Native>>(l: *const RwLock, token: R::Read) {
    if !remembers::<R>(&token) {
        // SAFETY: the object is live and ours.
        unsafe { holds::add(l, token.into_word()) };
    }
}

/// Ends the acquisition that the list had `token` for.
#[inline(always)]
unsafe fn end<R: RawRwLock<Machine = Native>>(l: &RwLock, token: usize) {
    if token != NESTED {
        // SAFETY: the token is from the acquisition that ends.
        unsafe { raw::<R>(l).unlock_read(R::Read::from_word(token)) };
    }
}

unsafe extern "C" fn init<R: RawRwLock<Machine = Native>, const STATS: bool>(
    l: *mut RwLock,
    attr: *const Attr,
) -> c_int {
    // SAFETY: the caller's object and attributes, as pthread_rwlock_init wants them.
    unsafe {
        let (mut shared, mut kind) = (0, 0);
        if !attr.is_null() {
            pthread_rwlockattr_getpshared(attr, &mut shared);
            pthread_rwlockattr_getkind_np(attr, &mut kind);
        }
        if shared != 0 || kind as u32 == PREFERS_WRITERS {
            if STATS {
                stats::foreign_object(if shared != 0 { stats::RWLOCK_SHARED } else { stats::RWLOCK_WRITERS });
            }
            return REAL.rwlock_init.get()(l, attr);
        }
        l.cast::<u8>().write_bytes(0, size_of::<RwLock>());
        while unlock_own::<R>(&*l) {} // freed without being released
        if STATS {
            stats::object(stats::RWLOCK);
        }
        (*l).flags.store(normal(), Relaxed);
    }
    0
}

unsafe extern "C" fn destroy<R: RawRwLock<Machine = Native>, const STATS: bool>(l: *mut RwLock) -> c_int {
    // SAFETY: the caller's object, which nobody else uses.
    unsafe {
        if !ready(&*l) && make_ready::<R, STATS>(&*l) {
            return REAL.rwlock_destroy.get()(l);
        }
        let l = &*l;
        // Not `raw`: that would make a lock only to free it. glibc does not look whether it is
        // held; a lock that is stays allocated, so that its holder can release it.
        if place::exists::<R, RWLOCK_SPACE>(&l.raw) && !raw::<R>(l).is_locked() {
            place::discard::<R, RWLOCK_SPACE>(&l.raw);
        }
    }
    0
}

/// The flags of an object of ours about which there is nothing to do.
#[inline(always)]
pub(crate) fn normal() -> u32 {
    fork::normal() | SEEN
}

/// Whether the object is ours and there is nothing to do about it.
#[inline(always)]
fn ready(l: &RwLock) -> bool {
    l.flags.load(Relaxed) == normal()
}

/// Repairs, counts, claims; `true` if the object is glibc's.
#[cold]
#[inline(never)]
unsafe fn make_ready<R: RawRwLock<Machine = Native>, const STATS: bool>(l: &RwLock) -> bool {
    loop {
        let word = l.flags.load(Acquire);
        if word & SEEN != 0 {
            if fork::is_current(word) {
                return false;
            }
            // SAFETY: repairs are serialised, and nobody uses the object before it is repaired.
            fork::repair(&l.flags, |_| unsafe { mend::<R>(l) });
        } else if word & LOW == PREFERS_WRITERS {
            if STATS {
                stats::foreign_call(stats::RWLOCK_WRITERS);
            }
            return true;
        } else if l.shared().load(Relaxed) != 0 {
            // (B) pairs with the fence below: if what we saw is the raw lock of an object that
            // another thread has claimed meanwhile, we see the claim.
            fence(SeqCst);
            if l.flags.load(Relaxed) & SEEN == 0 {
                if STATS {
                    stats::foreign_call(stats::RWLOCK_SHARED);
                }
                return true;
            }
        } else if l.claim(word, normal()) {
            // From a static initialiser, and never used: nothing to repair. (B) the claim comes
            // before any use of the raw lock.
            fence(SeqCst);
            if STATS {
                stats::object(stats::RWLOCK);
            }
        }
    }
}

/// In a forked child: drops waiters, and the readers that the child does not have. A write lock stays held, by the
/// forking thread or by one that the child does not have.
unsafe fn mend<R: RawRwLock<Machine = Native>>(l: &RwLock) {
    // SAFETY: from the caller.
    unsafe {
        if !place::exists::<R, RWLOCK_SPACE>(&l.raw) {
            return;
        }
        // Of the slots of threads only the forking one's are left.
        let remembered = place::is_in_place::<R, RWLOCK_SPACE>() && raw::<R>(l).is_remembered();
        place::reset::<R, RWLOCK_SPACE>(&l.raw);
        let keeps = |token| token == NESTED;
        holds::renew(l, keeps, || raw::<R>(l).try_read().map(Token::into_word));
        if remembered {
            raw::<R>(l).remember_again();
        }
        if l.owner.load(Relaxed) != 0
            && let Some(token) = raw::<R>(l).try_write()
        {
            l.token.store(token.into_word(), Relaxed);
        }
    }
}

/// How long a caller is willing to wait.
#[derive(Copy, Clone)]
enum Patience {
    Forever,
    None,
    Until(Clock, *const timespec),
}

#[inline(always)]
unsafe fn read<R: RawRwLock<Machine = Native>, const STATS: bool>(
    l: *mut RwLock,
    patience: Patience,
) -> c_int {
    // SAFETY: the caller's object and time.
    unsafe {
        if !ready(&*l) && make_ready::<R, STATS>(&*l) {
            return real_read(l, patience);
        }
        if STATS {
            stats::call(stats::RWLOCK);
        }
        if holds::any()
            && let Some(entry) = holds::find(l)
        {
            return if entry.again() { 0 } else { EAGAIN };
        }
        match raw::<R>(&*l).try_read() {
            Some(token) => {
                note::<R>(l, token);
                0
            }
            None if reads_own::<R>(&*l) => {
                holds::add(l, NESTED);
                0
            }
            None => read_contended::<R, STATS>(l, patience),
        }
    }
}

#[cold]
#[inline(never)]
unsafe fn read_contended<R: RawRwLock<Machine = Native>, const STATS: bool>(
    l: *mut RwLock,
    patience: Patience,
) -> c_int {
    if STATS {
        stats::contended(stats::RWLOCK);
    }
    // SAFETY: as for the caller.
    unsafe {
        let lock = raw::<R>(&*l);
        let deadline = match patience {
            Patience::None => return EBUSY,
            _ if (*l).owner.load(Relaxed) == identity::me() => return EDEADLK,
            Patience::Forever => None,
            Patience::Until(clock, time) => match deadline(clock, time) {
                Ok(deadline) => Some(deadline),
                Err(error) => return error,
            },
        };
        match cancel::wait(deadline, || lock.read(), |deadline| lock.read_until(deadline)) {
            Some(token) => {
                note::<R>(l, token);
                0
            }
            None => ETIMEDOUT,
        }
    }
}

#[inline(always)]
unsafe fn write<R: RawRwLock<Machine = Native>, const STATS: bool>(
    l: *mut RwLock,
    patience: Patience,
) -> c_int {
    // SAFETY: the caller's object and time.
    unsafe {
        if !ready(&*l) && make_ready::<R, STATS>(&*l) {
            return real_write(l, patience);
        }
        if STATS {
            stats::call(stats::RWLOCK);
        }
        match raw::<R>(&*l).try_write() {
            Some(token) => {
                own::<R>(&*l, token);
                0
            }
            None => write_contended::<R, STATS>(l, patience),
        }
    }
}

#[inline(always)]
fn own<R: RawRwLock<Machine = Native>>(l: &RwLock, token: R::Write) {
    if const { size_of::<R::Write>() != 0 } {
        l.token.store(token.into_word(), Relaxed);
    }
    l.owner.store(identity::me(), Relaxed);
}

#[cold]
#[inline(never)]
unsafe fn write_contended<R: RawRwLock<Machine = Native>, const STATS: bool>(
    l: *mut RwLock,
    patience: Patience,
) -> c_int {
    if STATS {
        stats::contended(stats::RWLOCK);
    }
    // SAFETY: as for the caller.
    unsafe {
        let lock = raw::<R>(&*l);
        let deadline = match patience {
            Patience::None => return EBUSY,
            _ if (*l).owner.load(Relaxed) == identity::me()
                || holds::find(l).is_some()
                || reads_own::<R>(&*l) =>
            {
                return EDEADLK;
            }
            Patience::Forever => None,
            Patience::Until(clock, time) => match deadline(clock, time) {
                Ok(deadline) => Some(deadline),
                Err(error) => return error,
            },
        };
        match preference::write(lock, deadline) {
            Some(token) => {
                own::<R>(&*l, token);
                0
            }
            None => ETIMEDOUT,
        }
    }
}

unsafe extern "C" fn unlock<R: RawRwLock<Machine = Native>, const STATS: bool>(l: *mut RwLock) -> c_int {
    // SAFETY: the caller's object.
    unsafe {
        if ready(&*l) {
            return unlock_ready::<R, STATS>(l);
        }
        unlock_listed::<R, STATS>(l)
    }
}

/// For an object about which there is nothing to do.
#[inline(always)]
pub(crate) unsafe fn unlock_ready<R: RawRwLock<Machine = Native>, const STATS: bool>(
    l: *mut RwLock,
) -> c_int {
    // SAFETY: the caller's object.
    unsafe {
        // Inlined here for the usual case: the lock remembers, and the list is empty.
        if (*l).owner.load(Relaxed) == 0 && !holds::any() && unlock_own::<R>(&*l) {
            return 0;
        }
        unlock_listed::<R, STATS>(l)
    }
}

#[inline(never)]
unsafe fn unlock_listed<R: RawRwLock<Machine = Native>, const STATS: bool>(l: *mut RwLock) -> c_int {
    // SAFETY: the caller's object.
    unsafe {
        if !ready(&*l) && make_ready::<R, STATS>(&*l) {
            return REAL.rwlock_unlock.get()(l);
        }
        if (*l).owner.load(Relaxed) == identity::me() {
            unlock_write::<R>(&*l);
            return 0;
        }
        match holds::find(l) {
            Some(entry) => {
                if let Some(token) = entry.release() {
                    end::<R>(&*l, token);
                }
                0
            }
            None if unlock_own::<R>(&*l) => 0,
            None => unlock_for_another::<R>(l),
        }
    }
}

#[inline(always)]
unsafe fn unlock_write<R: RawRwLock<Machine = Native>>(l: &RwLock) {
    // SAFETY: the lock is held for writing, and the word is what `own` stored.
    unsafe {
        let word = if const { size_of::<R::Write>() != 0 } { l.token.load(Relaxed) } else { 0 };
        l.owner.store(0, Relaxed);
        raw::<R>(l).unlock_write(R::Write::from_word(word));
    }
}

#[cold]
#[inline(never)]
unsafe fn unlock_for_another<R: RawRwLock<Machine = Native>>(l: *mut RwLock) -> c_int {
    // SAFETY: as for the caller; a token that was taken away is ours to use.
    unsafe {
        if (*l).owner.load(Relaxed) != 0 {
            unlock_write::<R>(&*l);
            return 0;
        }
        match holds::take_from_another(&*l) {
            Some(Some(token)) => end::<R>(&*l, token),
            Some(None) => {}
            None if place::is_in_place::<R, RWLOCK_SPACE>() && raw::<R>(&*l).unlock_of_another() => {}
            None => return EPERM,
        }
    }
    0
}

unsafe extern "C" fn rdlock<R: RawRwLock<Machine = Native>, const STATS: bool>(l: *mut RwLock) -> c_int {
    // SAFETY: the caller's object.
    unsafe {
        if !STATS && ready(&*l) {
            return rdlock_ready::<R>(l);
        }
        rdlock_slow::<R, STATS>(l)
    }
}

/// For an object about which there is nothing to do, uncounted.
#[inline(always)]
pub(crate) unsafe fn rdlock_ready<R: RawRwLock<Machine = Native>>(l: *mut RwLock) -> c_int {
    // SAFETY: the caller's object.
    unsafe {
        // Inlined here for the usual case: the thread reads nothing yet.
        if !holds::any()
            && let Some(token) = raw::<R>(&*l).try_read_weak()
        {
            note::<R>(l, token);
            return 0;
        }
        rdlock_slow::<R, false>(l)
    }
}

#[inline(never)]
unsafe extern "C" fn rdlock_slow<R: RawRwLock<Machine = Native>, const STATS: bool>(l: *mut RwLock) -> c_int {
    // SAFETY: the caller's object.
    unsafe { read::<R, STATS>(l, Patience::Forever) }
}

unsafe extern "C" fn tryrdlock<R: RawRwLock<Machine = Native>, const STATS: bool>(l: *mut RwLock) -> c_int {
    // SAFETY: the caller's object.
    unsafe { read::<R, STATS>(l, Patience::None) }
}

unsafe extern "C" fn wrlock<R: RawRwLock<Machine = Native>, const STATS: bool>(l: *mut RwLock) -> c_int {
    // SAFETY: the caller's object.
    unsafe {
        if !STATS
            && ready(&*l)
            && let Some(token) = raw::<R>(&*l).try_write()
        {
            own::<R>(&*l, token);
            return 0;
        }
        wrlock_slow::<R, STATS>(l)
    }
}

#[cold]
#[inline(never)]
unsafe extern "C" fn wrlock_slow<R: RawRwLock<Machine = Native>, const STATS: bool>(l: *mut RwLock) -> c_int {
    // SAFETY: the caller's object.
    unsafe { write::<R, STATS>(l, Patience::Forever) }
}

unsafe extern "C" fn trywrlock<R: RawRwLock<Machine = Native>, const STATS: bool>(l: *mut RwLock) -> c_int {
    // SAFETY: the caller's object.
    unsafe { write::<R, STATS>(l, Patience::None) }
}

unsafe extern "C" fn timedrdlock<R: RawRwLock<Machine = Native>, const STATS: bool>(
    l: *mut RwLock,
    time: *const timespec,
) -> c_int {
    // SAFETY: the caller's object and time.
    unsafe { read::<R, STATS>(l, Patience::Until(Clock::Realtime, time)) }
}

unsafe extern "C" fn timedwrlock<R: RawRwLock<Machine = Native>, const STATS: bool>(
    l: *mut RwLock,
    time: *const timespec,
) -> c_int {
    // SAFETY: the caller's object and time.
    unsafe { write::<R, STATS>(l, Patience::Until(Clock::Realtime, time)) }
}

unsafe extern "C" fn clockrdlock<R: RawRwLock<Machine = Native>, const STATS: bool>(
    l: *mut RwLock,
    id: libc::clockid_t,
    time: *const timespec,
) -> c_int {
    match clock(id) {
        // SAFETY: the caller's object and time.
        Some(clock) => unsafe { read::<R, STATS>(l, Patience::Until(clock, time)) },
        None => EINVAL,
    }
}

unsafe extern "C" fn clockwrlock<R: RawRwLock<Machine = Native>, const STATS: bool>(
    l: *mut RwLock,
    id: libc::clockid_t,
    time: *const timespec,
) -> c_int {
    match clock(id) {
        // SAFETY: the caller's object and time.
        Some(clock) => unsafe { write::<R, STATS>(l, Patience::Until(clock, time)) },
        None => EINVAL,
    }
}

unsafe fn real_read(l: *mut RwLock, patience: Patience) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe {
        match patience {
            Patience::Forever => REAL.rwlock_rdlock.get()(l),
            Patience::None => REAL.rwlock_tryrdlock.get()(l),
            Patience::Until(Clock::Realtime, time) => REAL.rwlock_timedrdlock.get()(l, time),
            Patience::Until(Clock::Monotonic, time) => {
                REAL.rwlock_clockrdlock.get()(l, libc::CLOCK_MONOTONIC, time)
            }
        }
    }
}

unsafe fn real_write(l: *mut RwLock, patience: Patience) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe {
        match patience {
            Patience::Forever => REAL.rwlock_wrlock.get()(l),
            Patience::None => REAL.rwlock_trywrlock.get()(l),
            Patience::Until(Clock::Realtime, time) => REAL.rwlock_timedwrlock.get()(l, time),
            Patience::Until(Clock::Monotonic, time) => {
                REAL.rwlock_clockwrlock.get()(l, libc::CLOCK_MONOTONIC, time)
            }
        }
    }
}
