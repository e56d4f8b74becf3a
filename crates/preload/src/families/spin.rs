//! `pthread_spin_*`. The chosen mutex serves if [`fits`] says so, otherwise `ttas`. The object has 4 bytes, so only a lock of
//! that size can serve. And nothing repairs a spin lock in the child of a fork, because it has no room for the number of the
//! fork. So a lock cannot serve if its waiters leave a mark in it that only they remove, such as the pending bit of
//! `qspinlock`: the child does not have these waiters, and would wait for them.
//!
//! The object is one word, and its value says which library serves it:
//!
//! | word, as a signed number | owner |
//! |---|---|
//! | 1 and below | glibc: unlocked is 1 on x86 and 0 elsewhere, and on x86 waiters count down below 0 |
//! | above 1 | ours: it has the bit [`MARK`] ([`marked`]) |
//!
//! glibc serves a process-shared spin lock, because a process that shares it may not be preloaded. It also serves an object
//! that no `pthread_spin_init` has written.

use crate::state::abi::Spin;
use crate::state::cancel;
use crate::state::counters::{self, Family, Reason};
use crate::state::table::{REAL, install};
use core::sync::atomic::{AtomicU32, Ordering};
use latchwork::locks::mutex::{RawMutex, Suspension, Token};
use latchwork::registry::{Visitor, visit};
use libc::{EBUSY, c_int};
use marked::{MARK, Marked};

mod marked;

/// Whether `L` can serve. To a child of a fork, the waiters of the parent are waiters that are suspended for ever.
const fn fits<L: RawMutex<Machine = Marked>>() -> bool {
    size_of::<L>() <= size_of::<Spin>() && matches!(L::INFO.suspension, Suspension::Tolerates)
}

/// Serves the family with `name`, or with `ttas`. Returns which lock serves.
pub(crate) fn install(name: &[u8]) -> &'static str {
    struct Fits<'a> {
        name: &'a [u8],
        found: Option<&'static str>,
    }
    impl Visitor<Marked> for Fits<'_> {
        fn mutex<L: RawMutex<Machine = Marked>>(&mut self) {
            // A constant condition: the functions of other locks are not even compiled.
            if const { fits::<L>() } && L::INFO.name.as_bytes() == self.name {
                serve::<L>();
                self.found = Some(L::INFO.name);
            }
        }
    }
    let mut fits = Fits { name, found: None };
    visit(&mut fits);
    if fits.found.is_none() {
        fits.name = b"ttas";
        visit(&mut fits);
    }
    fits.found.unwrap_or("ttas")
}

fn serve<L: RawMutex<Machine = Marked>>() {
    install! { spin_init => init, spin_destroy => destroy, spin_unlock => unlock::<L> }
    if counters::on() {
        install! { spin_lock => lock_counted::<L>, spin_trylock => trylock_counted::<L> }
    } else {
        install! { spin_lock => lock::<L>, spin_trylock => trylock::<L> }
    }
}

/// The lock, if it is ours.
///
/// # Safety
///
/// `s` is a live spin lock.
#[inline(always)]
unsafe fn raw<'a, L>(s: *mut Spin) -> Option<&'a L> {
    // SAFETY: four aligned bytes of a live object, which all threads access as an atomic. `serve` chose an `L` that fits into
    // them; its words carry the mark.
    unsafe { ((*s.cast::<AtomicU32>()).load(Ordering::Relaxed) as i32 > 1).then(|| &*s.cast::<L>()) }
}

unsafe extern "C" fn lock<L: RawMutex<Machine = Marked>>(s: *mut Spin) -> c_int {
    // SAFETY: the program passes a live spin lock.
    let Some(lock) = (unsafe { raw::<L>(s) }) else {
        // SAFETY: the program's own argument.
        return unsafe { lock_of_glibc(s) };
    };
    // Weak: a thread that goes on to wait does not barge past those that wait already.
    if lock.try_lock_weak().is_some() { 0 } else { contended(lock) }
}

unsafe extern "C" fn lock_counted<L: RawMutex<Machine = Marked>>(s: *mut Spin) -> c_int {
    // SAFETY: the program passes a live spin lock.
    unsafe {
        count_call::<L>(s);
        lock::<L>(s)
    }
}

#[cold]
#[inline(never)]
unsafe extern "C" fn lock_of_glibc(s: *mut Spin) -> c_int {
    counters::foreign_call(Reason::SpinShared);
    // SAFETY: the program's own argument.
    unsafe { REAL.spin_lock.get()(s) }
}

#[cold]
#[inline(never)]
fn contended<L: RawMutex<Machine = Marked>>(lock: &L) -> c_int {
    counters::contended(Family::Spin);
    cancel::wait(None, || lock.lock(), |deadline| lock.lock_until(deadline));
    0
}

unsafe extern "C" fn trylock<L: RawMutex<Machine = Marked>>(s: *mut Spin) -> c_int {
    // SAFETY: the program passes a live spin lock.
    match unsafe { raw::<L>(s) } {
        Some(lock) => {
            if lock.try_lock().is_some() {
                0
            } else {
                EBUSY
            }
        }
        // SAFETY: the program's own argument.
        None => unsafe { REAL.spin_trylock.get()(s) },
    }
}

unsafe extern "C" fn trylock_counted<L: RawMutex<Machine = Marked>>(s: *mut Spin) -> c_int {
    // SAFETY: the program passes a live spin lock.
    unsafe {
        let ours = count_call::<L>(s);
        let result = trylock::<L>(s);
        if !ours {
            counters::foreign_call(Reason::SpinShared);
        } else if result == EBUSY {
            counters::contended(Family::Spin);
        }
        result
    }
}

/// Counts a call, if the lock is ours; returns whether it is.
///
/// # Safety
///
/// As [`raw`].
unsafe fn count_call<L: RawMutex<Machine = Marked>>(s: *mut Spin) -> bool {
    // SAFETY: the caller's spin lock is live.
    let ours = unsafe { raw::<L>(s) }.is_some();
    if ours {
        counters::call(Family::Spin);
    }
    ours
}

unsafe extern "C" fn unlock<L: RawMutex<Machine = Marked>>(s: *mut Spin) -> c_int {
    // SAFETY: the program passes a live spin lock, which a thread holds. A lock of 4 bytes has no room for a queue, so its
    // token is empty.
    unsafe {
        match raw::<L>(s) {
            Some(lock) => {
                lock.unlock(L::Token::from_word(0));
                0
            }
            None => REAL.spin_unlock.get()(s),
        }
    }
}

unsafe extern "C" fn init(s: *mut Spin, shared: c_int) -> c_int {
    if shared != libc::PTHREAD_PROCESS_PRIVATE {
        counters::foreign_object(Reason::SpinShared);
        // SAFETY: the program's own arguments.
        return unsafe { REAL.spin_init.get()(s, shared) };
    }
    counters::object(Family::Spin);
    // SAFETY: the program passes memory for a spin lock. The mark alone is an unlocked lock.
    unsafe { s.write(MARK) };
    0
}

unsafe extern "C" fn destroy(_: *mut Spin) -> c_int {
    0
}
