//! `pthread_mutex_lock` and `pthread_mutex_unlock` themselves, with the fast path of the lock that
//! is recommended, `shfl`.
//!
//! Every other entry point jumps through the table; for these two the jump is a tenth of the call.
//! So they look for a normal mutex of `shfl` first, with the one comparison that a fast path makes
//! anyway: if another lock was chosen, or statistics are on, they compare with a word that no mutex
//! contains.

use crate::abi::Mutex;
use crate::table::TABLE;
use crate::{fork, mutex};
use latchwork::machine::Native;
use latchwork::mutex::RawMutex;
use latchwork::mutex::shfl::RawShfl;
use libc::c_int;

type Favourite = RawShfl<Native>;

/// Whether the fast paths here are those of the lock called `name`.
pub(crate) fn is_favourite(name: &[u8]) -> bool {
    name == Favourite::INFO.name.as_bytes()
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

// The directives bind names to functions of the same object file: both must stay in this module.
#[cfg(versioned)]
core::arch::global_asm!(
    ".symver latchwork_hot_lock, pthread_mutex_lock@@GLIBC_2.2.5",
    ".symver latchwork_hot_lock, __pthread_mutex_lock@GLIBC_2.2.5",
    ".symver latchwork_hot_unlock, pthread_mutex_unlock@@GLIBC_2.2.5",
    ".symver latchwork_hot_unlock, __pthread_mutex_unlock@GLIBC_2.2.5",
);
