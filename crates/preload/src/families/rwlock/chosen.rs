//! The functions of a process with a lock per lock: the word of a rwlock says which raw lock it has ([`choice`]).
//!
//! As for mutexes, a rwlock of the recommended lock is served before these functions where the whole family has that lock.

use super::raw::{OPERATIONS, Operations, operations};
use super::{Owner, is_ready, is_ready_and_uncounted, make_ready, read_any, write};
use crate::families::timeout::Timeout;
use crate::state::abi::{RWLOCK_OURS, RwLock};
use crate::state::choice::{self, Choice};
use crate::state::counters::{self, Family, Reason};
use crate::state::generation;
use crate::state::table::{REAL, install};
use core::sync::atomic::{Ordering::*, fence};
use latchwork::locks::rwlock::RawRwLock;
use latchwork::machine::Native;
use latchwork::registry::{Visitor, visit};
use libc::c_int;

/// Gives every lock its number, and serves the family object by object. `install` of the family has run. `counts`: the
/// statistics are on.
pub(crate) fn install(counts: bool) {
    struct Number {
        counts: bool,
        position: usize,
    }
    impl Visitor<Native> for Number {
        fn rwlock<R: RawRwLock<Machine = Native>>(&mut self) {
            OPERATIONS[Choice::registered(self.position).number()].set(if self.counts {
                const { &Operations::of::<R::Counted>() }
            } else {
                const { &Operations::of::<R>() }
            });
            self.position += 1;
        }
    }
    visit(&mut Number { counts, position: 0 });
    install! {
        rwlock_rdlock => rdlock,
        rwlock_wrlock => wrlock,
        rwlock_tryrdlock => tryrdlock,
        rwlock_trywrlock => trywrlock,
        rwlock_unlock => unlock,
    }
}

/// Claims a rwlock from a static initialiser, at its first use, or leaves it to glibc, if that is the choice. There is nothing to
/// repair.
///
/// A rwlock of ours and one that is left to glibc are marked in two words. So one thread at a time decides, and finds what
/// others have decided.
#[cold]
pub(super) fn decide(l: &RwLock) {
    let choice = choice::choose(Family::RwLock, core::ptr::from_ref(l).addr());
    let decided = generation::one_at_a_time(|| {
        let word = l.flags.load(Relaxed);
        if word & RWLOCK_OURS != 0 || l.is_left_to_glibc() {
            return false;
        }
        if choice == Choice::GLIBC {
            l.leave_to_glibc();
            return true;
        }
        l.claim(word, generation::RWLOCK_WORD.get() | choice.bits())
    });
    if decided {
        // (B) pairs with the fence in `make_ready`: the claim comes before any use of the raw lock.
        fence(SeqCst);
        choice::count(Family::RwLock, choice);
        if choice == Choice::GLIBC {
            counters::foreign_object(Reason::RwLockChoice);
        } else {
            counters::object(Family::RwLock);
        }
    }
}

/// Leaves a rwlock that glibc is about to serve, before set-up, to glibc for good. `false`: this library has used it before.
pub(crate) fn leave_to_glibc(l: &RwLock) -> bool {
    generation::one_at_a_time(|| l.flags.load(Relaxed) & RWLOCK_OURS == 0 && l.leave_to_glibc())
}

/// Whether glibc serves the rwlock, and the call need not be counted.
#[inline(always)]
fn goes_to_glibc(l: &RwLock) -> bool {
    l.flags.load(Relaxed) & RWLOCK_OURS == 0 && l.is_left_to_glibc() && !counters::on()
}

unsafe extern "C" fn rdlock(l: *mut RwLock) -> c_int {
    // SAFETY: the program passes a live rwlock; its word says that it is one of ours, or that glibc may have it.
    unsafe {
        if is_ready_and_uncounted(&*l) {
            return (operations(&*l).rdlock_ready)(l);
        }
        if goes_to_glibc(&*l) {
            return REAL.rwlock_rdlock.get()(l);
        }
        read_any(l, Timeout::Never)
    }
}

unsafe extern "C" fn tryrdlock(l: *mut RwLock) -> c_int {
    // SAFETY: the program passes a live rwlock.
    unsafe { read_any(l, Timeout::Immediate) }
}

unsafe extern "C" fn wrlock(l: *mut RwLock) -> c_int {
    // SAFETY: as in `rdlock`.
    unsafe {
        if is_ready_and_uncounted(&*l) && (operations(&*l).try_write)(&*l) {
            return 0;
        }
        if goes_to_glibc(&*l) {
            return REAL.rwlock_wrlock.get()(l);
        }
        write(l, Timeout::Never)
    }
}

unsafe extern "C" fn trywrlock(l: *mut RwLock) -> c_int {
    // SAFETY: the program passes a live rwlock.
    unsafe { write(l, Timeout::Immediate) }
}

unsafe extern "C" fn unlock(l: *mut RwLock) -> c_int {
    // SAFETY: as in `rdlock`. `make_ready` says whether a rwlock in another state is ours.
    unsafe {
        if !is_ready(&*l) && (goes_to_glibc(&*l) || make_ready(&*l) == Owner::Glibc) {
            return REAL.rwlock_unlock.get()(l);
        }
        (operations(&*l).unlock_ready)(l)
    }
}
