//! `lw_rwlock_t`.
//!
//! A read acquisition is a slot in the thread's row, or one of the lock below, which needs no token. So the release looks
//! for the slot first.

use crate::debug::waiting;
use crate::time::deadline;
use crate::{same_layout, thread};
use latchwork::locks::for_assembly::{BiasedRwLock, CompareRwLock};
use latchwork::locks::rwlock::bravo::{ReadToken, Rows};
use latchwork::locks::rwlock::shfl_rw::RawShflRw;
use latchwork::locks::rwlock::{RawDowngrade, RawFair, RawRecursive, RawRwLock, RawUpgrade, Timeout};
use latchwork::machine::{Deadline, Native};
use libc::{EBUSY, ETIMEDOUT, clockid_t, timespec};
use std::ffi::c_int;

pub(crate) type RwLock = Rows<Native, RawShflRw<Native>>;

same_layout!(RwLock, 32, 8);
const _: () = {
    type Below = RawShflRw<Native>;
    assert!(RwLock::BIAS == 24 && RwLock::BIASED == 16 && RwLock::REVOKING == 0xff80_0000);
    assert!(RwLock::IN_A_ROW == 28 && RwLock::BELOW == 0);
    assert!(Below::WORD == 0 && Below::READERS == 4 && Below::QUEUE == 8 && Below::WRITER == 1);
};

/// The result of an acquisition with a deadline.
///
/// # Safety
///
/// `time` is valid.
unsafe fn timed<T>(
    clock: clockid_t,
    time: *const timespec,
    acquire: impl FnOnce(Deadline) -> Option<T>,
) -> c_int {
    // SAFETY: the caller's time is valid.
    match unsafe { deadline(clock, time) } {
        Err(error) => error,
        Ok(deadline) if acquire(deadline).is_some() => 0,
        Ok(_) => ETIMEDOUT,
    }
}

/// The result of an attempt.
fn attempt<T>(acquired: Option<T>) -> c_int {
    if acquired.is_some() { 0 } else { EBUSY }
}

/// Defines functions of C over a lock. SAFETY, for all of them: the program passes a live lock, in the state that the header
/// asks for, and a valid time.
macro_rules! functions {
    ($($name:ident($lock:ident $(, $clock:ident, $time:ident)?) $(-> $result:ty)? $body:block)*) => { $(
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name(
            lock: *const RwLock $(, $clock: clockid_t, $time: *const timespec)?
        ) $(-> $result)? {
            // SAFETY: see the macro.
            #[allow(unused_unsafe, reason = "some functions need it for more than the pointer")]
            unsafe {
                let $lock = &*lock;
                $body
            }
        }
    )* };
}

functions! {
    lw_rwlock_rdlock_slow(lock) {
        thread::use_row();
        waiting(lock, 1, || lock.read());
    }
    lw_rwlock_rdtrylock_slow(lock) -> c_int {
        thread::use_row();
        attempt(lock.try_read())
    }
    lw_rwlock_rdclocklock_slow(lock, clock, time) -> c_int {
        thread::use_row();
        timed(clock, time, |deadline| waiting(lock, 1, || lock.read_until(deadline)))
    }
    lw_rwlock_rdlock_recursive_slow(lock) {
        thread::use_row();
        waiting(lock, 1, || lock.read_recursive());
    }
    lw_rwlock_rdunlock_slow(lock) {
        if !lock.unlock_own_recorded_read() && !thread::leave_left_row(core::ptr::from_ref(lock).addr()) {
            lock.unlock_read(ReadToken::Slow(()));
        }
    }
    lw_rwlock_wrlock_slow(lock) {
        waiting(lock, 2, || lock.write());
    }
    lw_rwlock_wrtrylock_slow(lock) -> c_int {
        attempt(lock.try_write())
    }
    lw_rwlock_wrclocklock_slow(lock, clock, time) -> c_int {
        timed(clock, time, |deadline| waiting(lock, 2, || lock.write_until(deadline)))
    }
    lw_rwlock_wrunlock_slow(lock) {
        lock.unlock_write(());
    }
    lw_rwlock_wrunlock_fair_slow(lock) {
        lock.unlock_write_fair(());
    }
    lw_rwlock_downgrade_slow(lock) {
        lock.downgrade(());
    }
    lw_rwlock_uplock_slow(lock) {
        waiting(lock, 1, || lock.upgradable());
    }
    lw_rwlock_uptrylock_slow(lock) -> c_int {
        attempt(lock.try_upgradable())
    }
    lw_rwlock_upclocklock_slow(lock, clock, time) -> c_int {
        timed(clock, time, |deadline| waiting(lock, 1, || lock.upgradable_until(deadline)))
    }
    lw_rwlock_upunlock_slow(lock) {
        lock.unlock_upgradable(());
    }
    lw_rwlock_upgrade_slow(lock) {
        waiting(lock, 2, || lock.upgrade(()));
    }
    lw_rwlock_tryupgrade_slow(lock) -> c_int {
        attempt(lock.upgrade_within((), Timeout::Immediate).ok())
    }
    lw_rwlock_clockupgrade_slow(lock, clock, time) -> c_int {
        timed(clock, time, |deadline| waiting(lock, 2, || lock.upgrade_within((), Timeout::At(deadline)).ok()))
    }
    lw_rwlock_downgrade_upgradable_slow(lock) {
        lock.downgrade_upgradable(());
    }
    lw_rwlock_downgrade_to_upgradable_slow(lock) {
        lock.downgrade_to_upgradable(());
    }
    lw_rwlock_is_locked_slow(lock) -> c_int {
        c_int::from(lock.is_locked())
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lw_rwlock_destroy_slow(lock: *mut RwLock) -> c_int {
    // SAFETY: the program passes a live lock that no other thread uses. A lock that is not held has its address in no slot, so that
    // there is nothing to drop.
    if unsafe { (*lock).is_locked() } { EBUSY } else { 0 }
}
