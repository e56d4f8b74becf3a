//! Locks of C and C++ libraries, behind the features `ck`, `absl` and `nsync`. Each is some zeroed
//! memory and a few functions (`shims/`).

use crate::lock::Lock;
use crate::peers::glibc;
use latchwork::locks::condvar::RawCondvar;
use latchwork::machine::Native;
use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::marker::PhantomData;

/// A lock's memory, as its functions see it.
type Memory = *mut u64;

/// The functions of a lock.
pub struct Functions {
    /// Acquires for writing.
    lock: unsafe extern "C" fn(Memory),
    /// Releases that.
    unlock: unsafe extern "C" fn(Memory),
    /// Acquires if that needs no waiting, if the lock has such a function.
    try_lock: Option<unsafe extern "C" fn(Memory) -> c_int>,
    /// Acquires for reading; of a mutex, the same as `lock`.
    read: unsafe extern "C" fn(Memory),
    /// Releases that.
    unread: unsafe extern "C" fn(Memory),
}

impl Functions {
    /// The functions of a mutex.
    const fn mutex(
        lock: unsafe extern "C" fn(Memory),
        unlock: unsafe extern "C" fn(Memory),
        try_lock: unsafe extern "C" fn(Memory) -> c_int,
    ) -> Self {
        Functions { lock, unlock, try_lock: Some(try_lock), read: lock, unread: unlock }
    }
}

/// A lock.
///
/// # Safety
///
/// The functions make a lock out of zeroed `Words` that do not move, and it needs no destruction.
pub unsafe trait Calls: Send + Sync + 'static {
    /// Its memory; the default is zeroed.
    type Words: Default + Send + 'static;
    /// Whether readers can be inside together.
    const SHARED: bool;
    /// Its functions.
    const FUNCTIONS: Functions;
}

/// The lock `C`.
pub struct Foreign<C: Calls>(UnsafeCell<C::Words>, PhantomData<C>);

// SAFETY: a lock is made to be shared; `Calls` promises that the memory is one.
unsafe impl<C: Calls> Sync for Foreign<C> {}

/// Holds a [`Foreign`] for reading.
pub struct Reading<'a, C: Calls>(&'a Foreign<C>);
/// Holds a [`Foreign`] for writing.
pub struct Writing<'a, C: Calls>(&'a Foreign<C>);

impl<C: Calls> Drop for Reading<'_, C> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: a guard is made by the thread that acquired.
        unsafe { (C::FUNCTIONS.unread)(self.0.0.get().cast()) }
    }
}

impl<C: Calls> Drop for Writing<'_, C> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the guard stands for an acquisition of this lock, and is dropped once.
        unsafe { (C::FUNCTIONS.unlock)(self.0.0.get().cast()) }
    }
}

impl<C: Calls> Lock for Foreign<C> {
    type Machine = Native;
    type Read<'a> = Reading<'a, C>;
    type Write<'a> = Writing<'a, C>;
    // Abseil and nsync have condition variables of their own, but with functions that `Functions` does not have. docs/workloads.md
    // says that these locks are measured with this library's.
    type Condvar = RawCondvar<Native>;
    type Semaphore = glibc::Semaphore;
    const SHARED: bool = C::SHARED;

    fn new() -> Self {
        Foreign(UnsafeCell::new(C::Words::default()), PhantomData)
    }
    #[inline]
    fn read(&self) -> Reading<'_, C> {
        // SAFETY: the memory is a lock, as `Calls` promises, and is not moved any more.
        unsafe { (C::FUNCTIONS.read)(self.0.get().cast()) };
        Reading(self)
    }
    #[inline]
    fn write(&self) -> Writing<'_, C> {
        // SAFETY: the memory is a lock, as `Calls` promises, and is not moved any more.
        unsafe { (C::FUNCTIONS.lock)(self.0.get().cast()) };
        Writing(self)
    }
    #[inline]
    fn try_write(&self) -> Option<Writing<'_, C>> {
        let try_lock = C::FUNCTIONS.try_lock?;
        // SAFETY: the memory is a lock, as `Calls` promises, and is not moved any more.
        (unsafe { try_lock(self.0.get().cast()) } != 0).then(|| Writing(self))
    }
}

#[cfg(feature = "ck")]
pub use ck::*;

#[cfg(feature = "ck")]
mod ck {
    use super::{Calls, Functions, Memory};
    use std::ffi::c_int;

    /// So many read locks and unlocks, one after the other, of the one big-reader lock (`ck_brlock`) that this
    /// process has. The loop is C: the lock is inline functions there.
    pub fn big_reader_pairs(pairs: u32) {
        // SAFETY: no preconditions.
        unsafe { lw_ck_br_read_pairs(pairs) }
    }

    unsafe extern "C" {
        fn lw_ck_br_read_pairs(pairs: u32);
        fn lw_ck_ticket_lock(memory: Memory);
        fn lw_ck_ticket_unlock(memory: Memory);
        fn lw_ck_ticket_try(memory: Memory) -> c_int;
        fn lw_ck_mcs_lock(memory: Memory);
        fn lw_ck_mcs_unlock(memory: Memory);
        fn lw_ck_mcs_try(memory: Memory) -> c_int;
        fn lw_ck_pf_lock(memory: Memory);
        fn lw_ck_pf_unlock(memory: Memory);
        fn lw_ck_pf_read(memory: Memory);
        fn lw_ck_pf_unread(memory: Memory);
        fn lw_ck_rw_lock(memory: Memory);
        fn lw_ck_rw_unlock(memory: Memory);
        fn lw_ck_rw_try(memory: Memory) -> c_int;
        fn lw_ck_rw_read(memory: Memory);
        fn lw_ck_rw_unread(memory: Memory);
    }

    /// `ck_spinlock_ticket_t`.
    pub struct CkTicket;

    // SAFETY: the shim asserts the size; zeroes are its initialiser.
    unsafe impl Calls for CkTicket {
        type Words = [u64; 1];
        const SHARED: bool = false;
        const FUNCTIONS: Functions =
            Functions::mutex(lw_ck_ticket_lock, lw_ck_ticket_unlock, lw_ck_ticket_try);
    }

    /// `ck_spinlock_mcs_t`, with a node per thread.
    pub struct CkMcs;

    // SAFETY: the shim asserts the size; zeroes are its initialiser.
    unsafe impl Calls for CkMcs {
        type Words = [u64; 1];
        const SHARED: bool = false;
        const FUNCTIONS: Functions = Functions::mutex(lw_ck_mcs_lock, lw_ck_mcs_unlock, lw_ck_mcs_try);
    }

    /// `ck_pflock_t`, the phase-fair lock. It has no trylock, and no workload asks a reader-writer lock for one.
    pub struct CkPf;

    // SAFETY: the shim asserts the size; zeroes are its initialiser.
    unsafe impl Calls for CkPf {
        type Words = [u64; 2];
        const SHARED: bool = true;
        const FUNCTIONS: Functions = Functions {
            lock: lw_ck_pf_lock,
            unlock: lw_ck_pf_unlock,
            try_lock: None,
            read: lw_ck_pf_read,
            unread: lw_ck_pf_unread,
        };
    }

    /// `ck_rwlock_t`.
    pub struct CkRw;

    // SAFETY: the shim asserts the size; zeroes are its initialiser.
    unsafe impl Calls for CkRw {
        type Words = [u64; 1];
        const SHARED: bool = true;
        const FUNCTIONS: Functions = Functions {
            lock: lw_ck_rw_lock,
            unlock: lw_ck_rw_unlock,
            try_lock: Some(lw_ck_rw_try),
            read: lw_ck_rw_read,
            unread: lw_ck_rw_unread,
        };
    }
}

#[cfg(feature = "absl")]
pub use absl::*;

#[cfg(feature = "absl")]
mod absl {
    use super::{Calls, Functions, Memory};
    use std::ffi::c_int;

    unsafe extern "C" {
        fn lw_absl_lock(memory: Memory);
        fn lw_absl_unlock(memory: Memory);
        fn lw_absl_try(memory: Memory) -> c_int;
        fn lw_absl_read(memory: Memory);
        fn lw_absl_unread(memory: Memory);
    }

    /// `absl::Mutex`, never read-locked.
    pub struct AbslMutex;

    // SAFETY: the shim asserts the size; zeroes are its initialiser.
    unsafe impl Calls for AbslMutex {
        type Words = [u64; 1];
        const SHARED: bool = false;
        const FUNCTIONS: Functions = Functions::mutex(lw_absl_lock, lw_absl_unlock, lw_absl_try);
    }

    /// `absl::Mutex` with its readers.
    pub struct AbslRw;

    // SAFETY: the shim asserts the size; zeroes are its initialiser.
    unsafe impl Calls for AbslRw {
        type Words = [u64; 1];
        const SHARED: bool = true;
        const FUNCTIONS: Functions =
            Functions { read: lw_absl_read, unread: lw_absl_unread, ..AbslMutex::FUNCTIONS };
    }
}

#[cfg(feature = "nsync")]
pub use nsync::*;

#[cfg(feature = "nsync")]
mod nsync {
    use super::{Calls, Functions, Memory};
    use std::ffi::c_int;

    unsafe extern "C" {
        fn lw_nsync_lock(memory: Memory);
        fn lw_nsync_unlock(memory: Memory);
        fn lw_nsync_try(memory: Memory) -> c_int;
        fn lw_nsync_read(memory: Memory);
        fn lw_nsync_unread(memory: Memory);
    }

    /// `nsync_mu`, never read-locked.
    pub struct NsyncMutex;

    // SAFETY: the shim asserts the size; zeroes are its initialiser.
    unsafe impl Calls for NsyncMutex {
        type Words = [u64; 2];
        const SHARED: bool = false;
        const FUNCTIONS: Functions = Functions::mutex(lw_nsync_lock, lw_nsync_unlock, lw_nsync_try);
    }

    /// `nsync_mu` with its readers.
    pub struct NsyncRw;

    // SAFETY: the shim asserts the size; zeroes are its initialiser.
    unsafe impl Calls for NsyncRw {
        type Words = [u64; 2];
        const SHARED: bool = true;
        const FUNCTIONS: Functions =
            Functions { read: lw_nsync_read, unread: lw_nsync_unread, ..NsyncMutex::FUNCTIONS };
    }
}
