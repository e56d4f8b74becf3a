//! `pthread_rwlock_*` over glibc's own rwlock, with BRAVO in front of it (the BRAVO-pthread of the paper).
//!
//! glibc's lock stays in the bytes of the object that glibc uses, and glibc's functions acquire and release it. So without
//! bias the object is glibc's: with its preference of readers or writers, its errors, its sleeping waiters, and what it
//! does in a forked child or for a cancelled thread. With bias a reader fills a slot and does not call glibc.
//!
//! # What the object consists of
//!
//! The bytes are those of glibc 2.34 and later on x86-64 ([`Object`]):
//!
//! | bytes | glibc's field | contents |
//! |---|---|---|
//! | 0..16 | `__readers`, `__writers`, `__wrphase_futex`, `__writers_futex` | glibc's lock |
//! | 16..24 | `__pad3`, `__pad4` | the bias, and the memory of its policy |
//! | 24..32 | `__cur_writer`, `__shared` | glibc's: the kernel's number of the writing thread; whether processes share the object |
//! | 36..40 | in `__pad1` | `flags`: [`RWLOCK_OURS`], and the fork generation (`state::generation`) |
//! | 48..52 | `__flags` | glibc's: the kind |
//! | 52..56 | padding | the serial, for [`holds`] |
//!
//! Each static initialiser clears bytes 0 to 47, and `pthread_rwlock_init` clears all. glibc uses none of the bytes that
//! BRAVO has here: [`is_as_expected`] tries that before the first use in each process, and `over_glibc.c` under contention.
//!
//! # States, by `flags`
//!
//! | value | state | what serves it |
//! |---|---|---|
//! | 0 | never used, or process-shared, or of the kind that keeps readers out while a writer waits | glibc; the first call claims an object that may have a bias ([`make_ready`]) |
//! | [`RWLOCK_OURS`] | it may be biased | BRAVO over glibc |
//! | `RWLOCK_OURS` + [`IN_SHARED_MEMORY`] | parent and child of a fork share the memory | glibc; readers that were in slots before leave them |
//!
//! The bias of an object that was not claimed is never turned on.
//!
//! # Readers in slots
//!
//! With a row of slots for each thread, a slot that holds the address of the object is the record of a read acquisition.
//! An unlocking thread believes it only while the object can have readers in slots: otherwise an earlier lock at this
//! address has left it there, because it was freed without being unlocked. The bias is not turned on while such a slot
//! exists. With a table of slots for the process, each thread notes its slots in its list ([`holds`]).
//!
//! # Where it differs from glibc
//!
//! - While a writer waits for the readers in slots and still has glibc's lock, for a millisecond at most, an attempt to
//!   read fails, and a reader waits. (With glibc it succeeds if another reader is inside.)
//! - A write of a thread that reads through a slot waits for itself, as with glibc, but it does not keep readers out.
//! - In a forked child, the readers that were in slots of other threads are gone. glibc's stay counted.

use super::super::timeout::Timeout;
use super::holds;
use super::{read_of_glibc, write_of_glibc};
use crate::state::abi::*;
use crate::state::counters::{self, Family, Reason};
use crate::state::table::{REAL, install};
use crate::state::{cancel, generation};
use core::sync::atomic::Ordering::*;
use latchwork::locks::rwlock::bravo::around::Around;
use latchwork::locks::rwlock::bravo::{Passes, Rows};
use latchwork::locks::rwlock::{self, RawRwLock};
use latchwork::locks::{Token, rwlock::Info};
use latchwork::machine::Native;
use libc::{EAGAIN, EBUSY, EINVAL, EPERM, ETIMEDOUT, c_int, timespec};
#[cfg(versioned)]
pub(crate) use object::FLAGS;
pub(crate) use object::is_as_expected;
use object::{
    GLIBC_AND_BIAS, Object, Owner, READER, attend, bravo, is_listed, kernel_id, make_ready, object,
};
use raw::RawGlibc;

mod object;
mod raw;

/// With a row of slots for each thread.
pub(crate) type OverGlibc = Rows<Native, RawGlibc>;
/// With the table of slots of the paper. The writer lets other readers through while it waits for those in slots, because
/// glibc promises readers that they do not wait for a writer that waits.
type TableOverGlibc = Passes<Native, RawGlibc>;

/// Serves the family with the lock of this name, if it is one of this module's; returns its description. `counts`: the
/// statistics are on.
pub(crate) fn install_named(name: &[u8], counts: bool) -> Option<Info> {
    let chosen = |info: Info| (info.name.as_bytes() == name).then_some(info);
    if let Some(info) = chosen(OverGlibc::INFO) {
        if counts {
            install::<<OverGlibc as RawRwLock>::Counted>()
        } else {
            install::<OverGlibc>()
        }
        return Some(info);
    }
    let info = chosen(TableOverGlibc::INFO)?;
    if counts {
        install::<<TableOverGlibc as RawRwLock>::Counted>()
    } else {
        install::<TableOverGlibc>()
    }
    Some(info)
}

/// Whether this is the name of [`OverGlibc`].
pub(crate) fn has_near_copies(name: &[u8]) -> bool {
    name == OverGlibc::INFO.name.as_bytes()
}

fn install<B: Bravo>() {
    const { assert!(size_of::<B>() <= GLIBC_AND_BIAS && B::BIAS == core::mem::offset_of!(Object, bias)) };
    install! {
        rwlock_init => init::<B>,
        rwlock_destroy => destroy,
        rwlock_rdlock => rdlock::<B>,
        rwlock_wrlock => wrlock::<B>,
        rwlock_tryrdlock => tryrdlock::<B>,
        rwlock_trywrlock => trywrlock::<B>,
        rwlock_timedrdlock => timedrdlock::<B>,
        rwlock_timedwrlock => timedwrlock::<B>,
        rwlock_clockrdlock => clockrdlock::<B>,
        rwlock_clockwrlock => clockwrlock::<B>,
        rwlock_unlock => unlock::<B>,
    }
}

/// BRAVO over glibc's lock.
pub(crate) trait Bravo: Around + RawRwLock<Machine = Native, Write = ()> {}
impl<B: Around + RawRwLock<Machine = Native, Write = ()>> Bravo for B {}

// The fast paths.

pub(crate) unsafe extern "C" fn rdlock<B: Bravo>(l: *mut RwLock) -> c_int {
    // SAFETY: the program passes a live rwlock; this word says that it may be biased.
    unsafe {
        if generation::RWLOCK_WORD_IF_UNCOUNTED.is_in(&object(l).flags) {
            return rdlock_ready::<B>(l);
        }
        read::<B>(l, Timeout::Never)
    }
}

/// Read-locks a rwlock that has the word [`generation::RWLOCK_WORD_IF_UNCOUNTED`].
///
/// # Safety
///
/// The rwlock is live, and `B` serves rwlocks.
#[inline(always)]
unsafe fn rdlock_ready<B: Bravo>(l: *mut RwLock) -> c_int {
    // SAFETY: the caller's rwlock is live.
    unsafe {
        let lock = bravo::<B>(l);
        if let Some(token) = lock.read_in_first_slot() {
            keep::<B>(l, token);
            return 0;
        }
        read_below::<B>(l)
    }
}

/// The same after the attempt through the first slot.
///
/// # Safety
///
/// As [`rdlock_ready`].
#[inline(never)]
unsafe fn read_below<B: Bravo>(l: *mut RwLock) -> c_int {
    // SAFETY: the caller's rwlock is live.
    unsafe {
        let lock = bravo::<B>(l);
        if lock.may_have_slot_readers() || is_listed::<B>() && holds::any() {
            return read_on::<B>(l, Timeout::Never);
        }
        let error = REAL.rwlock_rdlock.get()(l);
        if error == 0 {
            lock.has_read_below(false);
        }
        error
    }
}

unsafe extern "C" fn tryrdlock<B: Bravo>(l: *mut RwLock) -> c_int {
    // SAFETY: the program passes a live rwlock.
    unsafe { read::<B>(l, Timeout::Immediate) }
}

pub(crate) unsafe extern "C" fn unlock<B: Bravo>(l: *mut RwLock) -> c_int {
    // SAFETY: the program passes a live rwlock. While it is biased, the thread's slot is of this lock (module
    // documentation), and no token of the slot is kept.
    unsafe {
        let lock = bravo::<B>(l);
        if lock.is_biased() && !is_listed::<B>() && lock.unlock_own_recorded_read() {
            return 0;
        }
        if lock.may_have_slot_readers()
            || object(l).flags.load(Relaxed) & IN_SHARED_MEMORY != 0
            || is_listed::<B>() && holds::any()
        {
            return unlock_slow::<B>(l);
        }
        REAL.rwlock_unlock.get()(l)
    }
}

unsafe extern "C" fn wrlock<B: Bravo>(l: *mut RwLock) -> c_int {
    // SAFETY: the program passes a live rwlock.
    unsafe {
        if !generation::RWLOCK_WORD_IF_UNCOUNTED.is_in(&object(l).flags) {
            return write::<B>(l, Timeout::Never);
        }
        let error = REAL.rwlock_wrlock.get()(l);
        if error == 0 && bravo::<B>(l).must_revoke() {
            return revoke::<B>(l, Timeout::Never);
        }
        error
    }
}

unsafe extern "C" fn trywrlock<B: Bravo>(l: *mut RwLock) -> c_int {
    // SAFETY: the program passes a live rwlock.
    unsafe { write::<B>(l, Timeout::Immediate) }
}

/// Notes a read acquisition through a slot, if the slot is no record.
///
/// # Safety
///
/// `l` is a live rwlock, and the calling thread has acquired it with `token`.
#[inline(always)]
unsafe fn keep<B: Bravo>(l: *mut RwLock, token: B::Read) {
    if is_listed::<B>() {
        // SAFETY: the caller's rwlock is live.
        unsafe { holds::add(l, token.into_word()) };
    }
}

// The slow paths.

/// Read-locks a rwlock in any state.
///
/// # Safety
///
/// The rwlock is live, and the time of `timeout` is valid.
unsafe fn read<B: Bravo>(l: *mut RwLock, timeout: Timeout) -> c_int {
    // SAFETY: the caller's rwlock and time; `attend` says whether the rwlock may be biased.
    unsafe {
        if !generation::RWLOCK_WORD_IF_UNCOUNTED.is_in(&object(l).flags) && attend::<B>(l) == Owner::Glibc {
            return read_of_glibc(l, timeout);
        }
        if let Some(token) = bravo::<B>(l).read_in_first_slot() {
            keep::<B>(l, token);
            return 0;
        }
        read_on::<B>(l, timeout)
    }
}

/// The same after the attempt through the first slot, for a rwlock that may be biased.
///
/// # Safety
///
/// As [`read`].
#[inline(never)]
unsafe fn read_on<B: Bravo>(l: *mut RwLock, timeout: Timeout) -> c_int {
    // SAFETY: the caller's rwlock and time.
    unsafe {
        let lock = bravo::<B>(l);
        if is_listed::<B>()
            && holds::any()
            && let Some(entry) = holds::find(l)
        {
            return if entry.again() { 0 } else { EAGAIN };
        }
        if let Some(token) = lock.read_in_other_slot().or_else(|| lock.read_in_further_slot()) {
            keep::<B>(l, token);
            return 0;
        }
        let was_biased = lock.is_biased();
        let error = acquire(l, timeout, REAL.rwlock_tryrdlock.get(), read_of_glibc);
        if error == 0 {
            lock.has_read_below(was_biased);
        }
        error
    }
}

/// Write-locks a rwlock in any state.
///
/// # Safety
///
/// The rwlock is live, and the time of `timeout` is valid.
unsafe fn write<B: Bravo>(l: *mut RwLock, timeout: Timeout) -> c_int {
    // SAFETY: the caller's rwlock and time.
    unsafe {
        if !generation::RWLOCK_WORD_IF_UNCOUNTED.is_in(&object(l).flags) && attend::<B>(l) == Owner::Glibc {
            // An object that the child of a fork has found in shared memory may still have readers in slots.
            let error = write_of_glibc(l, timeout);
            if error != 0 || !bravo::<B>(l).must_revoke() {
                return error;
            }
        } else {
            let error = acquire(l, timeout, REAL.rwlock_trywrlock.get(), write_of_glibc);
            if error != 0 || !bravo::<B>(l).must_revoke() {
                return error;
            }
        }
        revoke::<B>(l, timeout)
    }
}

/// Acquires glibc's lock with `call`. While statistics are on, it makes an attempt first, to count those that fail.
///
/// # Safety
///
/// As [`read`].
#[inline(always)]
unsafe fn acquire(
    l: *mut RwLock,
    timeout: Timeout,
    attempt: unsafe extern "C" fn(*mut RwLock) -> c_int,
    call: unsafe fn(*mut RwLock, Timeout) -> c_int,
) -> c_int {
    // SAFETY: the caller's rwlock and time.
    unsafe {
        if counters::on() {
            let error = attempt(l);
            if error != EBUSY {
                return error;
            }
            counters::contended(Family::RwLock);
        }
        call(l, timeout)
    }
}

/// Waits for the readers in slots.
///
/// # Safety
///
/// As [`read`], and the calling thread has acquired glibc's lock for writing.
#[cold]
#[inline(never)]
unsafe fn revoke<B: Bravo>(l: *mut RwLock, timeout: Timeout) -> c_int {
    // SAFETY: the caller's time is valid.
    let (timeout, error) = match unsafe { timeout.deadline() } {
        Ok(None) => (rwlock::Timeout::Never, 0),
        Ok(Some(deadline)) => (rwlock::Timeout::At(deadline), ETIMEDOUT),
        Err(_) => (rwlock::Timeout::Immediate, EBUSY),
    };
    // SAFETY: the caller's rwlock is live.
    let lock = unsafe { bravo::<B>(l) };
    // SAFETY: the calling thread holds glibc's lock for writing.
    let revoked = cancel::shielded(|| unsafe { lock.has_written_below((), timeout) });
    if revoked.is_some() { 0 } else { error }
}

/// Unlocks a rwlock that may have readers in slots.
///
/// # Safety
///
/// The rwlock is live.
#[inline(never)]
unsafe fn unlock_slow<B: Bravo>(l: *mut RwLock) -> c_int {
    // SAFETY: the program passes a live rwlock, whose tokens are in the lists.
    unsafe {
        let (object, lock) = (object(l), bravo::<B>(l));
        if is_listed::<B>() {
            if !generation::RWLOCK_WORD.is_in(&object.flags) {
                make_ready::<B>(l);
            }
            if holds::any()
                && let Some(entry) = holds::find(l)
            {
                if let Some(token) = entry.release() {
                    unlock_noted::<B>(lock, token);
                }
                return 0;
            }
        } else if (lock.has_own_recorded_read() || object.flags.load(Relaxed) & IN_SHARED_MEMORY != 0)
            && lock.unlock_own_recorded_read()
        {
            return 0;
        }
        // glibc's lock is not held by the calling thread if no thread holds it, or another one writes.
        let writer = object.cur_writer.load(Relaxed);
        let idle = writer == 0 && object.readers.load(Relaxed) < READER;
        if idle || writer != 0 && lock.is_being_revoked() && writer != kernel_id() {
            return unlock_for_another::<B>(l);
        }
        REAL.rwlock_unlock.get()(l)
    }
}

/// Ends the acquisition that a list had `token` for.
///
/// # Safety
///
/// No list has the token any more.
unsafe fn unlock_noted<B: Bravo>(lock: &B, token: usize) {
    if token != LOST {
        // SAFETY: the token is from the acquisition that ends.
        unsafe { lock.unlock_read(B::Read::from_word(token)) };
    }
}

/// In place of a token in the list, in a forked child: a writer that the child does not have holds glibc's lock.
const LOST: usize = usize::MAX;

/// Ends a read acquisition through a slot of another thread.
///
/// # Safety
///
/// The rwlock is live.
#[cold]
#[inline(never)]
unsafe fn unlock_for_another<B: Bravo>(l: *mut RwLock) -> c_int {
    // SAFETY: the caller's rwlock is live; a token that was taken from a list is in none any more.
    unsafe {
        let lock = bravo::<B>(l);
        match holds::take_from_another(&*l) {
            Some(Some(token)) => unlock_noted::<B>(lock, token),
            Some(None) => {}
            None if lock.unlock_any_recorded_read() => {}
            None => return EPERM,
        }
    }
    0
}

unsafe extern "C" fn timedrdlock<B: Bravo>(l: *mut RwLock, time: *const timespec) -> c_int {
    // SAFETY: the program passes a live rwlock and a time that is valid for reads.
    unsafe { clockrdlock::<B>(l, libc::CLOCK_REALTIME, time) }
}

unsafe extern "C" fn clockrdlock<B: Bravo>(
    l: *mut RwLock,
    clock: libc::clockid_t,
    time: *const timespec,
) -> c_int {
    // SAFETY: the program passes a live rwlock and a time that is valid for reads.
    unsafe { Timeout::checked(clock, time).map_or(EINVAL, |timeout| read::<B>(l, timeout)) }
}

unsafe extern "C" fn timedwrlock<B: Bravo>(l: *mut RwLock, time: *const timespec) -> c_int {
    // SAFETY: the program passes a live rwlock and a time that is valid for reads.
    unsafe { clockwrlock::<B>(l, libc::CLOCK_REALTIME, time) }
}

unsafe extern "C" fn clockwrlock<B: Bravo>(
    l: *mut RwLock,
    clock: libc::clockid_t,
    time: *const timespec,
) -> c_int {
    // SAFETY: the program passes a live rwlock and a time that is valid for reads.
    unsafe { Timeout::checked(clock, time).map_or(EINVAL, |timeout| write::<B>(l, timeout)) }
}

unsafe extern "C" fn init<B: Bravo>(l: *mut RwLock, attr: *const Attr) -> c_int {
    // SAFETY: the program passes memory for a rwlock, which no thread uses, and valid attributes or null.
    unsafe {
        let error = REAL.rwlock_init.get()(l, attr);
        if error != 0 {
            return error;
        }
        let object = object(l);
        if object.shared.load(Relaxed) != 0 {
            counters::foreign_object(Reason::RwLockShared);
        } else if object.kind.load(Relaxed) == PREFERS_WRITERS {
            counters::foreign_object(Reason::RwLockPrefersWriters);
        } else {
            // An earlier lock at this address may have been freed while this thread read it.
            while bravo::<B>(l).unlock_own_recorded_read() {}
            counters::object(Family::RwLock);
            object.flags.store(generation::RWLOCK_WORD.get(), Relaxed);
        }
    }
    0
}

unsafe extern "C" fn destroy(l: *mut RwLock) -> c_int {
    // SAFETY: the program passes a live rwlock, which no other thread uses.
    unsafe { REAL.rwlock_destroy.get()(l) }
}
