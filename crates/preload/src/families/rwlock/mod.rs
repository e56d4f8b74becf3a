//! `pthread_rwlock_*` over any raw reader-writer lock.
//!
//! # What a rwlock consists of
//!
//! | bytes | field | contents |
//! |---|---|---|
//! | 0..32 | `raw` | the raw lock, or a pointer to one that does not fit (`state::place`) |
//! | 32..40 | `owner` | the number of the thread that holds it for writing, or 0 |
//! | 40..48 | `token` | what the raw lock's `unlock_write` needs |
//! | 48..50 | `flags`, low half | glibc's kind, or the flags below |
//! | 50..52 | `flags`, high half | the fork generation in which the rwlock was last used (`state::generation`) |
//! | 52..56 | `serial` | which of the locks that have been at this address this one is, once a list names it ([`holds`]) |
//!
//! # States, by the low half of `flags`
//!
//! | value | state | which function leaves it, and for which state |
//! |---|---|---|
//! | 0 or 1, bytes 28 to 31 are 0 | made by a static initialiser, never used | the first call claims it ([`make_ready`]) |
//! | [`RWLOCK_OURS`] | ours: the fast paths serve it | none: `destroy` leaves it usable, as glibc does |
//! | `RWLOCK_OURS` + [`IN_SHARED_MEMORY`] | the same, but parent and child of a fork share the memory: the fast paths do not serve it | none |
//! | `RWLOCK_OURS` + a number in [`CHOICE`] | ours, but another lock than the usual one serves it ([`choice`]); [`chosen`] has its fast paths | none |
//! | 0 or 1, bytes 36 to 39 say so ([`RwLock::is_left_to_glibc`]) | glibc's, by choice, or because it has served the rwlock before set-up | `init` |
//! | [`PREFERS_WRITERS`] | glibc's: it keeps readers out while a writer waits | glibc |
//! | 0 or 1, bytes 28 to 31 are not 0 | glibc's: process-shared | glibc |
//!
//! # The holders
//!
//! The holder for writing is in `owner`. Only the holder writes `owner` and `token`, so the raw lock orders these
//! accesses and all of them are relaxed.
//!
//! A thread that holds it for reading notes that in its own list ([`holds`]), unless the lock itself records it
//! ([`raw`]).
//!
//! # Orderings
//!
//! The raw lock orders the critical sections. [`make_ready`] loads `flags` with acquire; that pairs with the release store
//! at the end of a repair ((A) in `state::generation`). A claim and the look at glibc's `__shared` are ordered by two
//! fences, (B) in `make_ready` and in [`chosen::decide`].
//!
//! # What the program is promised
//!
//! glibc has three kinds of rwlock. Two prefer readers: the default one, and `PREFER_WRITER_NP` in spite of its name.
//! [`preference`] says how writers wait for these. The third, `PREFER_WRITER_NONRECURSIVE_NP`, keeps readers out, their
//! attempts included, while a writer waits. None of the raw locks does that, so glibc serves such an object.
//!
//! A thread that reads may always read again, also while a writer waits: programs rely on it.
//!
//! A thread that reads and then asks to write gets EDEADLK. (Under glibc it waits for itself.)
//!
//! A thread may release a lock that it does not hold. If the lock is held for writing, that acquisition ends. Otherwise
//! one read acquisition of any thread ends. If there is none, the result is EPERM.

use super::timeout::Timeout;
use crate::state::abi::*;
use crate::state::choice::{self, Choice};
use crate::state::counters::{self, Family, Reason};
use crate::state::table::{REAL, install};
use crate::state::{cancel, generation, identity};
use core::sync::atomic::{Ordering::*, fence};
use latchwork::locks::rwlock::RawRwLock;
use latchwork::machine::Native;
use libc::{EAGAIN, EBUSY, EDEADLK, EINVAL, EPERM, ETIMEDOUT, c_int, timespec};
use raw::{
    NESTED, OPERATIONS, Operations, has_own_recorded_read, note, operations, own, unlock_own_recorded_read,
    unlock_read, unlock_write,
};

pub(crate) mod chosen;
pub(crate) mod gate;
pub(crate) mod holds;
pub(crate) mod over_glibc;
mod preference;
mod raw;

/// Serves the family with `R`.
pub(crate) fn install<R: RawRwLock<Machine = Native>>() {
    OPERATIONS[0].set(const { &Operations::of::<R>() });
    install! {
        rwlock_init => init,
        rwlock_destroy => destroy,
        rwlock_rdlock => rdlock::<R>,
        rwlock_wrlock => wrlock::<R>,
        rwlock_tryrdlock => tryrdlock::<R>,
        rwlock_trywrlock => trywrlock::<R>,
        rwlock_timedrdlock => timedrdlock,
        rwlock_timedwrlock => timedwrlock,
        rwlock_clockrdlock => clockrdlock,
        rwlock_clockwrlock => clockwrlock,
        rwlock_unlock => unlock::<R>,
    }
}

// The fast paths.

unsafe extern "C" fn rdlock<R: RawRwLock<Machine = Native>>(l: *mut RwLock) -> c_int {
    // SAFETY: the program passes a live rwlock; this word says that it is one of ours.
    unsafe {
        if generation::RWLOCK_WORD_IF_UNCOUNTED.is_in(&(*l).flags) {
            return rdlock_ready::<R>(l);
        }
        read::<R>(l, Timeout::Never)
    }
}

/// Read-locks a rwlock that has the word [`generation::RWLOCK_WORD_IF_UNCOUNTED`].
///
/// # Safety
///
/// The rwlock is live, and `R` serves rwlocks.
#[inline(always)]
pub(crate) unsafe fn rdlock_ready<R: RawRwLock<Machine = Native>>(l: *mut RwLock) -> c_int {
    // SAFETY: the caller's rwlock is a live one of ours.
    unsafe {
        // Inlined for the usual case: the thread reads nothing yet.
        if !holds::any()
            && let Some(token) = raw::raw::<R>(&*l).try_read_weak()
        {
            note::<R>(l, token);
            return 0;
        }
        read::<R>(l, Timeout::Never)
    }
}

unsafe extern "C" fn tryrdlock<R: RawRwLock<Machine = Native>>(l: *mut RwLock) -> c_int {
    // SAFETY: the program passes a live rwlock; this word says that it is one of ours.
    unsafe {
        if generation::RWLOCK_WORD_IF_UNCOUNTED.is_in(&(*l).flags)
            && !holds::any()
            && let Some(token) = raw::raw::<R>(&*l).try_read()
        {
            note::<R>(l, token);
            return 0;
        }
        read::<R>(l, Timeout::Immediate)
    }
}

unsafe extern "C" fn wrlock<R: RawRwLock<Machine = Native>>(l: *mut RwLock) -> c_int {
    // SAFETY: the program passes a live rwlock; this word says that it is one of ours.
    unsafe {
        if generation::RWLOCK_WORD_IF_UNCOUNTED.is_in(&(*l).flags)
            && let Some(token) = raw::raw::<R>(&*l).try_write()
        {
            own::<R>(&*l, token);
            return 0;
        }
        wrlock_slow(l)
    }
}

unsafe extern "C" fn trywrlock<R: RawRwLock<Machine = Native>>(l: *mut RwLock) -> c_int {
    // SAFETY: the program passes a live rwlock; this word says that it is one of ours.
    unsafe {
        if !generation::RWLOCK_WORD_IF_UNCOUNTED.is_in(&(*l).flags) {
            return trywrlock_slow(l);
        }
        match raw::raw::<R>(&*l).try_write() {
            Some(token) => {
                own::<R>(&*l, token);
                0
            }
            None => EBUSY,
        }
    }
}

unsafe extern "C" fn unlock<R: RawRwLock<Machine = Native>>(l: *mut RwLock) -> c_int {
    // SAFETY: the program passes a live rwlock; this word says that it is one of ours.
    unsafe {
        if generation::RWLOCK_WORD.is_in(&(*l).flags) {
            return unlock_ready::<R>(l);
        }
        unlock_listed::<R>(l)
    }
}

/// Unlocks a rwlock that has the word [`generation::RWLOCK_WORD`].
///
/// # Safety
///
/// The rwlock is live, and `R` serves rwlocks.
#[inline(always)]
pub(crate) unsafe fn unlock_ready<R: RawRwLock<Machine = Native>>(l: *mut RwLock) -> c_int {
    // SAFETY: the caller's rwlock is a live one of ours.
    unsafe {
        // Inlined for the usual case: the lock records the acquisition, and the list is empty.
        if (*l).owner.load(Relaxed) == 0 && !holds::any() && unlock_own_recorded_read::<R>(&*l) {
            return 0;
        }
        unlock_listed::<R>(l)
    }
}

#[inline(never)]
unsafe fn unlock_listed<R: RawRwLock<Machine = Native>>(l: *mut RwLock) -> c_int {
    // SAFETY: the program passes a live rwlock, and `make_ready` says whether it is ours.
    unsafe {
        if !is_ready(&*l) && make_ready(&*l) == Owner::Glibc {
            return REAL.rwlock_unlock.get()(l);
        }
        if (*l).owner.load(Relaxed) == identity::me() {
            unlock_write::<R>(&*l);
            return 0;
        }
        match holds::find(l) {
            Some(entry) => {
                if let Some(token) = entry.release() {
                    unlock_read::<R>(&*l, token);
                }
                0
            }
            None if unlock_own_recorded_read::<R>(&*l) => 0,
            None => unlock_for_another(&*l),
        }
    }
}

/// Read-locks a rwlock in any state.
///
/// # Safety
///
/// The rwlock is live, the time of `timeout` is valid, and `R` serves rwlocks.
#[inline(never)]
unsafe fn read<R: RawRwLock<Machine = Native>>(l: *mut RwLock, timeout: Timeout) -> c_int {
    // SAFETY: the caller's rwlock and time; `attend` says whether the rwlock is ours.
    unsafe {
        if !is_ready_and_uncounted(&*l) && attend(&*l) == Owner::Glibc {
            return read_of_glibc(l, timeout);
        }
        read_ours::<R>(l, timeout)
    }
}

/// Read-locks a rwlock of ours.
///
/// # Safety
///
/// The rwlock is live, ours and of the current generation, the time of `timeout` is valid, and `R` serves this rwlock.
#[inline]
unsafe fn read_ours<R: RawRwLock<Machine = Native>>(l: *mut RwLock, timeout: Timeout) -> c_int {
    // SAFETY: the caller's rwlock and time.
    unsafe {
        if holds::any()
            && let Some(entry) = holds::find(l)
        {
            return if entry.again() { 0 } else { EAGAIN };
        }
        match raw::raw::<R>(&*l).try_read() {
            Some(token) => {
                note::<R>(l, token);
                0
            }
            None if has_own_recorded_read::<R>(&*l) => {
                holds::add(l, NESTED);
                0
            }
            None => read_contended(&*l, timeout),
        }
    }
}

// Everything below exists once for all locks.

/// Read-locks a rwlock in any state, with the lock that serves it.
///
/// # Safety
///
/// The rwlock is live, and the time of `timeout` is valid.
unsafe fn read_any(l: *mut RwLock, timeout: Timeout) -> c_int {
    // SAFETY: the caller's rwlock and time; `attend` says whether the rwlock is ours.
    unsafe {
        if !is_ready_and_uncounted(&*l) && attend(&*l) == Owner::Glibc {
            return read_of_glibc(l, timeout);
        }
        (operations(&*l).read_ours)(l, timeout)
    }
}

unsafe extern "C" fn timedrdlock(l: *mut RwLock, time: *const timespec) -> c_int {
    // SAFETY: the program passes a live rwlock and a time that is valid for reads.
    unsafe { clockrdlock(l, libc::CLOCK_REALTIME, time) }
}

unsafe extern "C" fn clockrdlock(l: *mut RwLock, clock: libc::clockid_t, time: *const timespec) -> c_int {
    // SAFETY: the program passes a live rwlock and a time that is valid for reads.
    unsafe { Timeout::checked(clock, time).map_or(EINVAL, |timeout| read_any(l, timeout)) }
}

#[cold]
#[inline(never)]
unsafe extern "C" fn wrlock_slow(l: *mut RwLock) -> c_int {
    // SAFETY: the program passes a live rwlock.
    unsafe { write(l, Timeout::Never) }
}

#[cold]
#[inline(never)]
unsafe extern "C" fn trywrlock_slow(l: *mut RwLock) -> c_int {
    // SAFETY: the program passes a live rwlock.
    unsafe { write(l, Timeout::Immediate) }
}

unsafe extern "C" fn timedwrlock(l: *mut RwLock, time: *const timespec) -> c_int {
    // SAFETY: the program passes a live rwlock and a time that is valid for reads.
    unsafe { clockwrlock(l, libc::CLOCK_REALTIME, time) }
}

unsafe extern "C" fn clockwrlock(l: *mut RwLock, clock: libc::clockid_t, time: *const timespec) -> c_int {
    // SAFETY: the program passes a live rwlock and a time that is valid for reads.
    unsafe { Timeout::checked(clock, time).map_or(EINVAL, |timeout| write(l, timeout)) }
}

/// The part of a read lock that waits, after a failed attempt.
///
/// # Safety
///
/// The rwlock is live and ours, and the time of `timeout` is valid.
#[cold]
#[inline(never)]
unsafe fn read_contended(l: &RwLock, timeout: Timeout) -> c_int {
    counters::contended(Family::RwLock);
    if !matches!(timeout, Timeout::Immediate) && l.owner.load(Relaxed) == identity::me() {
        return EDEADLK;
    }
    // SAFETY: the caller's time is valid.
    let deadline = match unsafe { timeout.deadline() } {
        Ok(deadline) => deadline,
        Err(error) => return error,
    };
    let lock = operations(l);
    // SAFETY: the caller's rwlock is a live one of ours.
    let block = || unsafe { (lock.read)(l) };
    // SAFETY: the caller's rwlock is a live one of ours.
    let until = |deadline| unsafe { (lock.read_until)(l, deadline) }.then_some(());
    if cancel::wait(deadline, block, until).is_some() { 0 } else { ETIMEDOUT }
}

/// Write-locks a rwlock in any state.
///
/// # Safety
///
/// The rwlock is live, and the time of `timeout` is valid.
unsafe fn write(l: *mut RwLock, timeout: Timeout) -> c_int {
    // SAFETY: the caller's rwlock and time; `attend` says whether the rwlock is ours.
    unsafe {
        if !is_ready_and_uncounted(&*l) && attend(&*l) == Owner::Glibc {
            return write_of_glibc(l, timeout);
        }
        let lock = operations(&*l);
        if (lock.try_write)(&*l) {
            return 0;
        }
        counters::contended(Family::RwLock);
        let holds_it = || {
            (*l).owner.load(Relaxed) == identity::me()
                || holds::find(l).is_some()
                || (lock.has_own_recorded_read)(&*l)
        };
        if !matches!(timeout, Timeout::Immediate) && holds_it() {
            return EDEADLK;
        }
        let deadline = match timeout.deadline() {
            Ok(deadline) => deadline,
            Err(error) => return error,
        };
        if preference::write(&*l, deadline) { 0 } else { ETIMEDOUT }
    }
}

/// Ends an acquisition that the calling thread does not have.
///
/// # Safety
///
/// The rwlock is live and ours.
#[cold]
#[inline(never)]
unsafe fn unlock_for_another(l: &RwLock) -> c_int {
    let lock = operations(l);
    // SAFETY: the caller's rwlock is a live one of ours; a token that was taken from a list is in none any more. That no reader
    // begins or ends meanwhile is the program's duty (docs/cli.md); a slot that both end keeps writers out, and no more.
    unsafe {
        if l.owner.load(Relaxed) != 0 {
            (lock.unlock_write)(l);
            return 0;
        }
        match holds::take_from_another(l) {
            Some(Some(token)) => (lock.unlock_read)(l, token),
            Some(None) => {}
            None if (lock.unlock_any_recorded_read)(l) => {}
            None => return EPERM,
        }
    }
    0
}

unsafe extern "C" {
    fn pthread_rwlockattr_getpshared(attr: *const Attr, shared: *mut c_int) -> c_int;
    fn pthread_rwlockattr_getkind_np(attr: *const Attr, kind: *mut c_int) -> c_int;
}

unsafe extern "C" fn init(l: *mut RwLock, attr: *const Attr) -> c_int {
    // SAFETY: the program passes memory for a rwlock, which no thread uses, and valid attributes or null. All-zero bytes
    // are a valid `RwLock`.
    unsafe {
        let (mut shared, mut kind) = (0, 0);
        if !attr.is_null() {
            pthread_rwlockattr_getpshared(attr, &mut shared);
            pthread_rwlockattr_getkind_np(attr, &mut kind);
        }
        if shared != 0 || kind as u32 == PREFERS_WRITERS {
            let reason = if shared != 0 { Reason::RwLockShared } else { Reason::RwLockPrefersWriters };
            counters::foreign_object(reason);
            return REAL.rwlock_init.get()(l, attr);
        }
        let choice = choice::choose(Family::RwLock, l.addr());
        choice::count(Family::RwLock, choice);
        if choice == Choice::GLIBC {
            counters::foreign_object(Reason::RwLockChoice);
            let error = REAL.rwlock_init.get()(l, attr);
            (*l).leave_to_glibc();
            return error;
        }
        l.cast::<u8>().write_bytes(0, size_of::<RwLock>());
        let word = generation::RWLOCK_WORD.get() | choice.bits();
        counters::object(Family::RwLock);
        (*l).flags.store(word, Relaxed);
    }
    0
}

unsafe extern "C" fn destroy(l: *mut RwLock) -> c_int {
    // SAFETY: the program passes a live rwlock, which no other thread uses.
    unsafe {
        if !is_ready(&*l) && make_ready(&*l) == Owner::Glibc {
            return REAL.rwlock_destroy.get()(l);
        }
        (operations(&*l).discard)(&*l);
    }
    0
}

/// Which library serves an object.
#[derive(PartialEq, Eq)]
enum Owner {
    Ours,
    Glibc,
}

/// Whether the rwlock is ours and of the current generation, whichever lock serves it.
#[inline(always)]
fn is_ready(l: &RwLock) -> bool {
    // (A): see `Expected::is_in`.
    generation::RWLOCK_WORD.is(l.flags.load(Acquire) & !CHOICE)
}

/// The same while statistics do not count calls; otherwise `false`.
#[inline(always)]
fn is_ready_and_uncounted(l: &RwLock) -> bool {
    // (A): see `Expected::is_in`.
    generation::RWLOCK_WORD_IF_UNCOUNTED.is(l.flags.load(Acquire) & !CHOICE)
}

/// Makes the rwlock ready, and counts a lock call if it is ours.
///
/// # Safety
///
/// The rwlock is live.
#[cold]
#[inline(never)]
unsafe fn attend(l: &RwLock) -> Owner {
    // SAFETY: the caller's rwlock is live.
    if !is_ready(l) && unsafe { make_ready(l) } == Owner::Glibc {
        return Owner::Glibc;
    }
    counters::call(Family::RwLock);
    Owner::Ours
}

/// Brings the rwlock up to the current generation, claims and counts it at its first use, and says which library serves it.
///
/// # Safety
///
/// The rwlock is live.
#[cold]
#[inline(never)]
unsafe fn make_ready(l: &RwLock) -> Owner {
    loop {
        let word = l.flags.load(Acquire); // pairs with (A) in `generation::repair`
        if word & RWLOCK_OURS != 0 {
            if generation::is_current(word) {
                return Owner::Ours;
            }
            // SAFETY: the rwlock is live and ours. `repair` lets one thread at a time mend it, before any uses it.
            generation::repair(&l.flags, |_| unsafe { (operations(l).mend)(l) });
        } else if word & LOW == PREFERS_WRITERS {
            counters::foreign_call(Reason::RwLockPrefersWriters);
            return Owner::Glibc;
        } else if l.shared().load(Relaxed) != 0 {
            // (B) pairs with the fence in `decide`. These bytes may be the raw lock of an object that another thread has claimed
            // since `word` was loaded; then this thread sees the claim.
            fence(SeqCst);
            if l.flags.load(Relaxed) & RWLOCK_OURS == 0 {
                counters::foreign_call(Reason::RwLockShared);
                return Owner::Glibc;
            }
        } else if l.is_left_to_glibc() {
            counters::foreign_call(Reason::RwLockChoice);
            return Owner::Glibc;
        } else {
            chosen::decide(l);
        }
    }
}

unsafe fn read_of_glibc(l: *mut RwLock, timeout: Timeout) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe {
        match timeout {
            Timeout::Never => REAL.rwlock_rdlock.get()(l),
            Timeout::Immediate => REAL.rwlock_tryrdlock.get()(l),
            Timeout::Realtime(time) => REAL.rwlock_timedrdlock.get()(l, time),
            Timeout::Monotonic(time) => REAL.rwlock_clockrdlock.get()(l, libc::CLOCK_MONOTONIC, time),
        }
    }
}

unsafe fn write_of_glibc(l: *mut RwLock, timeout: Timeout) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe {
        match timeout {
            Timeout::Never => REAL.rwlock_wrlock.get()(l),
            Timeout::Immediate => REAL.rwlock_trywrlock.get()(l),
            Timeout::Realtime(time) => REAL.rwlock_timedwrlock.get()(l, time),
            Timeout::Monotonic(time) => REAL.rwlock_clockwrlock.get()(l, libc::CLOCK_MONOTONIC, time),
        }
    }
}
