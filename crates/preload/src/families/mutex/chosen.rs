//! The functions of a process with a lock per lock: the word of a mutex says which raw lock it has ([`choice`]).
//!
//! A mutex of the selected lock is served before these functions where the selected lock is the recommended one
//! (`startup::hot`, `startup::near`). All other mutexes come here: one comparison as everywhere, without the bits that name
//! the lock, and one call through a pointer.

use super::raw::{OPERATIONS, Operations, operations};
use super::{acquire, acquire_any, is_left_to_glibc, is_normal_and_uncounted, trylock_slow, unlock_slow};
use crate::families::timeout::Timeout;
use crate::state::abi::{CHOICE, Mutex};
use crate::state::choice::Choice;
use crate::state::counters;
use crate::state::generation::MUTEX_WORD;
use crate::state::table::{REAL, install};
use core::sync::atomic::Ordering::*;
use latchwork::locks::mutex::RawMutex;
use latchwork::machine::Native;
use latchwork::registry::{Visitor, visit};
use libc::c_int;

/// Gives every lock its number, and serves the family object by object. `install` of the family has run.
pub(crate) fn install() {
    struct Number(usize);
    impl Visitor<Native> for Number {
        fn mutex<L: RawMutex<Machine = Native>>(&mut self) {
            OPERATIONS[Choice::registered(self.0).number()].set(const { &Operations::of::<L>() });
            self.0 += 1;
        }
    }
    visit(&mut Number(0));
    install! { mutex_lock => lock, mutex_trylock => trylock, mutex_unlock => unlock }
}

unsafe extern "C" fn lock(m: *mut Mutex) -> c_int {
    // SAFETY: the program passes a live mutex; its word says that it is one of ours, or that glibc may have it.
    unsafe {
        if is_normal_and_uncounted(&*m) {
            return acquire(&*m, Timeout::Never);
        }
        if is_left_to_glibc((*m).kind.load(Relaxed)) && !counters::on() {
            return REAL.mutex_lock.get()(m);
        }
        lock_slow(m)
    }
}

#[cold]
#[inline(never)]
unsafe extern "C" fn lock_slow(m: *mut Mutex) -> c_int {
    // SAFETY: the program passes a live mutex.
    unsafe { acquire_any(&*m, Timeout::Never) }
}

unsafe extern "C" fn trylock(m: *mut Mutex) -> c_int {
    // SAFETY: as in `lock`.
    unsafe {
        if is_normal_and_uncounted(&*m) {
            return acquire(&*m, Timeout::Immediate);
        }
        if is_left_to_glibc((*m).kind.load(Relaxed)) && !counters::on() {
            return REAL.mutex_trylock.get()(m);
        }
        trylock_slow(m)
    }
}

unsafe extern "C" fn unlock(m: *mut Mutex) -> c_int {
    // SAFETY: as in `lock`.
    unsafe {
        // (A): see `Expected::is_in`.
        let word = (*m).kind.load(Acquire);
        if MUTEX_WORD.is(word & !CHOICE) {
            (operations(&*m).unlock)(&*m);
            return 0;
        }
        if is_left_to_glibc(word) {
            return REAL.mutex_unlock.get()(m);
        }
        unlock_slow(m)
    }
}
