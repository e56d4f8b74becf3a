//! Four exported functions that inline the fast paths of the recommended locks: `pthread_mutex_lock` and
//! `pthread_mutex_unlock` of `shfl`, `pthread_rwlock_rdlock` and `pthread_rwlock_unlock` of `bravo-2d-shfl-rw`.
//!
//! Every other exported function is a jump through [`ENTRIES`]; for these four the jump would be a tenth of the call. So
//! they look for an object of the recommended lock first, with the one comparison that a fast path makes anyway. If another
//! lock was chosen, or an observer is on, they compare with a word that no object has.

use super::entry::ENTRIES;
use crate::families::{mutex, rwlock};
use crate::state::abi::{Mutex, NAMES_HOLDER, RwLock};
use crate::state::generation::{MUTEX_WORD_IF_RECOMMENDED, RWLOCK_WORD_IF_RECOMMENDED};
use core::sync::atomic::Ordering::Acquire;
use latchwork::locks::for_assembly::CompareMutex;
use latchwork::locks::mutex::RawMutex;
use latchwork::locks::mutex::shfl::RawShfl;
use latchwork::locks::rwlock::RawRwLock;
use latchwork::locks::rwlock::bravo::Rows;
use latchwork::locks::rwlock::shfl_rw::RawShflRw;
use latchwork::machine::Native;
use libc::c_int;

/// The recommended mutex.
pub(super) type Recommended = RawShfl<Native>;
/// The recommended rwlock.
pub(super) type RecommendedRwLock = Rows<Native, RawShflRw<Native>>;

/// Whether `name` is the recommended mutex.
pub(super) fn is_recommended(name: &[u8]) -> bool {
    name == Recommended::INFO.name.as_bytes()
}

/// Whether `name` is the recommended rwlock.
pub(super) fn is_recommended_rwlock(name: &[u8]) -> bool {
    name == RecommendedRwLock::INFO.name.as_bytes()
}

#[cfg_attr(versioned, unsafe(no_mangle))]
#[cfg_attr(not(versioned), unsafe(export_name = "pthread_mutex_lock"))]
pub(super) unsafe extern "C" fn latchwork_hot_lock(m: *mut Mutex) -> c_int {
    // SAFETY: the program passes a live mutex; this word says that its raw lock is the recommended one.
    unsafe {
        if MUTEX_WORD_IF_RECOMMENDED.is_in(&(*m).kind) {
            if mutex::raw::try_lock_weak::<Recommended>(&*m) {
                return 0;
            }
            return mutex::wait(m);
        }
        lock_another(m)
    }
}

#[cfg_attr(versioned, unsafe(no_mangle))]
#[cfg_attr(not(versioned), unsafe(export_name = "pthread_mutex_unlock"))]
pub(super) unsafe extern "C" fn latchwork_hot_unlock(m: *mut Mutex) -> c_int {
    // SAFETY: the program passes a live mutex; this word says that its raw lock is the recommended one.
    unsafe {
        if MUTEX_WORD_IF_RECOMMENDED.is_in(&(*m).kind) {
            release(&*m);
            return 0;
        }
        unlock_another(m)
    }
}

/// Unlocks the raw lock.
///
/// # Safety
///
/// The mutex is a live one of ours, which the recommended lock serves.
#[inline(always)]
unsafe fn release(m: &Mutex) {
    // SAFETY: the caller's mutex has the recommended lock.
    unsafe {
        if !mutex::raw::raw::<Recommended>(m).release() {
            mutex::raw::unlock::<Recommended>(m);
        }
    }
}

/// Locks any other mutex: one that names its holder, or that the code here does not serve.
///
/// # Safety
///
/// The program passes a live mutex.
#[inline(never)]
unsafe extern "C" fn lock_another(m: *mut Mutex) -> c_int {
    // SAFETY: the program's live mutex. If it names its holder and has this word otherwise, its raw lock is the recommended one.
    unsafe {
        if names_holder(&*m) {
            return mutex::holder::lock::<Recommended>(m);
        }
        ENTRIES.mutex_lock.get()(m)
    }
}

/// Unlocks any other mutex.
///
/// # Safety
///
/// As [`lock_another`].
#[inline(never)]
unsafe extern "C" fn unlock_another(m: *mut Mutex) -> c_int {
    // SAFETY: as in `lock_another`.
    unsafe {
        if names_holder(&*m) {
            let is_locked = |m: &Mutex| mutex::raw::raw::<Recommended>(m).is_locked();
            mutex::holder::unlock(&*m, is_locked, |m| release(m));
            return 0;
        }
        ENTRIES.mutex_unlock.get()(m)
    }
}

/// Whether the mutex names its holder, and the recommended lock serves it.
#[inline(always)]
fn names_holder(m: &Mutex) -> bool {
    // (A): see `Expected::is_in`. No mutex has this word if another lock was chosen: `NAMES_HOLDER` is one of its bits.
    let word = m.kind.load(Acquire);
    word & NAMES_HOLDER != 0 && MUTEX_WORD_IF_RECOMMENDED.is(word & !NAMES_HOLDER)
}

#[cfg_attr(versioned, unsafe(no_mangle))]
#[cfg_attr(not(versioned), unsafe(export_name = "pthread_rwlock_rdlock"))]
pub(super) unsafe extern "C" fn latchwork_hot_rdlock(l: *mut RwLock) -> c_int {
    // SAFETY: the program passes a live rwlock; this word says that its raw lock is the recommended one.
    unsafe {
        if RWLOCK_WORD_IF_RECOMMENDED.is_in(&(*l).flags) {
            return rwlock::rdlock_ready::<RecommendedRwLock>(l);
        }
        ENTRIES.rwlock_rdlock.get()(l)
    }
}

#[cfg_attr(versioned, unsafe(no_mangle))]
#[cfg_attr(not(versioned), unsafe(export_name = "pthread_rwlock_unlock"))]
pub(super) unsafe extern "C" fn latchwork_hot_rwlock_unlock(l: *mut RwLock) -> c_int {
    // SAFETY: the program passes a live rwlock; this word says that its raw lock is the recommended one.
    unsafe {
        if RWLOCK_WORD_IF_RECOMMENDED.is_in(&(*l).flags) {
            return rwlock::unlock_ready::<RecommendedRwLock>(l);
        }
        ENTRIES.rwlock_unlock.get()(l)
    }
}

// The directives give names to functions of the same object file, so they must stay in this module.
#[cfg(versioned)]
core::arch::global_asm!(
    ".symver latchwork_hot_lock, pthread_mutex_lock@@GLIBC_2.2.5",
    ".symver latchwork_hot_lock, __pthread_mutex_lock@GLIBC_2.2.5",
    ".symver latchwork_hot_unlock, pthread_mutex_unlock@@GLIBC_2.2.5",
    ".symver latchwork_hot_unlock, __pthread_mutex_unlock@GLIBC_2.2.5",
    ".symver latchwork_hot_rdlock, pthread_rwlock_rdlock@@GLIBC_2.34",
    ".symver latchwork_hot_rdlock, pthread_rwlock_rdlock@GLIBC_2.2.5",
    ".symver latchwork_hot_rdlock, __pthread_rwlock_rdlock@GLIBC_2.2.5",
    ".symver latchwork_hot_rwlock_unlock, pthread_rwlock_unlock@@GLIBC_2.34",
    ".symver latchwork_hot_rwlock_unlock, pthread_rwlock_unlock@GLIBC_2.2.5",
    ".symver latchwork_hot_rwlock_unlock, __pthread_rwlock_unlock@GLIBC_2.2.5",
);
