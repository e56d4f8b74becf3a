//! `pthread_mutex_lock` and `pthread_mutex_unlock` themselves, with the fast path of the lock that
//! is recommended, `shfl`, and `pthread_rwlock_rdlock` and `pthread_rwlock_unlock` with that of
//! `bravo-2d-shfl-rw`.
//!
//! Every other entry point jumps through the table; for these the jump is a tenth of the call.
//! So they look for a normal mutex of `shfl` first, with the one comparison that a fast path makes
//! anyway: if another lock was chosen, or statistics are on, they compare with a word that no mutex
//! contains.

use crate::abi::{Mutex, RwLock};
use crate::table::TABLE;
use crate::{fork, mutex, rwlock};
use latchwork::locks::mutex::RawMutex;
use latchwork::locks::mutex::shfl::RawShfl;
use latchwork::locks::rwlock::RawRwLock;
use latchwork::locks::rwlock::bravo::Rows;
use latchwork::locks::rwlock::shfl_rw::RawShflRw;
use latchwork::machine::Native;
use libc::c_int;

pub(crate) type Favourite = RawShfl<Native>;
pub(crate) type FavouriteRw = Rows<Native, RawShflRw<Native>>;

/// Whether the fast paths here are those of the lock called `name`.
pub(crate) fn is_favourite(name: &[u8]) -> bool {
    name == Favourite::INFO.name.as_bytes()
}

/// The same of the reader-writer lock.
pub(crate) fn is_favourite_rw(name: &[u8]) -> bool {
    name == FavouriteRw::INFO.name.as_bytes()
}

/// Gives the program copies of these functions that are near it.
#[cfg(versioned)]
pub(crate) fn move_near() {
    use crate::abi::{MUTEX_SPACE, RWLOCK_SPACE};
    use crate::place::is_in_place;
    if const { is_in_place::<Favourite, MUTEX_SPACE>() && is_in_place::<FavouriteRw, RWLOCK_SPACE>() } {
        crate::near::install(
            latchwork_hot_lock,
            latchwork_hot_unlock,
            latchwork_hot_rdlock,
            latchwork_hot_rwlock_unlock,
        );
    }
}

#[cfg_attr(versioned, unsafe(no_mangle))]
#[cfg_attr(not(versioned), unsafe(export_name = "pthread_mutex_lock"))]
unsafe extern "C" fn latchwork_hot_lock(m: *mut Mutex) -> c_int {
    // SAFETY: the caller's mutex; it is of the favourite's if its word says so.
    unsafe {
        if fork::is_favourite(&*m) {
            if mutex::acquire_fast::<Favourite>(&*m) {
                return 0;
            }
            return mutex::acquire_contended::<Favourite>(m);
        }
        TABLE.mutex_lock.get()(m)
    }
}

#[cfg_attr(versioned, unsafe(no_mangle))]
#[cfg_attr(not(versioned), unsafe(export_name = "pthread_mutex_unlock"))]
unsafe extern "C" fn latchwork_hot_unlock(m: *mut Mutex) -> c_int {
    // SAFETY: the caller's mutex; it is of the favourite's if its word says so.
    unsafe {
        if fork::is_favourite(&*m) {
            mutex::release::<Favourite>(&*m);
            return 0;
        }
        TABLE.mutex_unlock.get()(m)
    }
}

#[cfg_attr(versioned, unsafe(no_mangle))]
#[cfg_attr(not(versioned), unsafe(export_name = "pthread_rwlock_rdlock"))]
unsafe extern "C" fn latchwork_hot_rdlock(l: *mut RwLock) -> c_int {
    // SAFETY: the caller's lock; it is of the favourite's if its word says so.
    unsafe {
        if fork::is_favourite_rw(&*l) {
            return rwlock::rdlock_ready::<FavouriteRw>(l);
        }
        TABLE.rwlock_rdlock.get()(l)
    }
}

#[cfg_attr(versioned, unsafe(no_mangle))]
#[cfg_attr(not(versioned), unsafe(export_name = "pthread_rwlock_unlock"))]
unsafe extern "C" fn latchwork_hot_rwlock_unlock(l: *mut RwLock) -> c_int {
    // SAFETY: the caller's lock; it is of the favourite's if its word says so.
    unsafe {
        if fork::is_favourite_rw(&*l) {
            return rwlock::unlock_ready::<FavouriteRw, false>(l);
        }
        TABLE.rwlock_unlock.get()(l)
    }
}

// The directives bind names to functions of the same object file: they must stay in this module.
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
