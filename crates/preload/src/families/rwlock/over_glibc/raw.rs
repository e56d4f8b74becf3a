//! glibc's own rwlock, as the lock under BRAVO.

use crate::state::abi::RwLock;
use crate::state::table::REAL;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use latchwork::locks::Suspension;
use latchwork::locks::rwlock::{Info, RawRwLock};
use latchwork::machine::{Clock, Deadline, Native};
use libc::timespec;

/// The words at the start of `pthread_rwlock_t` that glibc uses. glibc's functions also use words behind them, so this is
/// always at the start of a whole object.
#[repr(C)]
pub(crate) struct RawGlibc {
    readers: AtomicU32,
    _glibc: [AtomicU32; 3],
}

/// Of `readers`: the lock is in a write phase, and a writer has it or waits for it.
const WRITE_PHASE: u32 = 1;
const WRITER: u32 = 2;

impl RawGlibc {
    /// The object that begins with this lock.
    #[inline(always)]
    fn object(&self) -> *mut RwLock {
        core::ptr::with_exposed_provenance_mut(core::ptr::from_ref(self).expose_provenance())
    }
}

/// A deadline as glibc takes it.
fn time(deadline: Deadline) -> (libc::clockid_t, timespec) {
    let clock = match deadline.clock {
        Clock::Monotonic => libc::CLOCK_MONOTONIC,
        Clock::Realtime => libc::CLOCK_REALTIME,
    };
    let (seconds, nanos) = (deadline.nanos / 1_000_000_000, deadline.nanos % 1_000_000_000);
    (clock, timespec { tv_sec: seconds as libc::time_t, tv_nsec: nanos as libc::c_long })
}

// SAFETY: glibc's lock excludes writers from all others, and orders the sections. The token of an acquisition has no
// content: a writer is known by `__cur_writer`, so an acquisition for writing is ended by the thread that made it.
unsafe impl RawRwLock for RawGlibc {
    type Machine = Native;
    type Read = ();
    type Write = ();
    type Counted = Self;
    const INFO: Info = Info {
        name: "glibc",
        summary: "the C library's own rwlock",
        atomics: 2,
        waiter_bytes: 0,
        holder_bytes: 0,
        fairness: "readers pass waiting writers",
        blocking: true,
        suspension: Suspension::Blocks,
        source: "GNU C library 2.25, nptl/pthread_rwlock_common.c",
    };
    const PREFERS_READERS: bool = true;
    const RELEASED_BY_ANY: bool = false;

    fn new_in() -> Self {
        RawGlibc { readers: AtomicU32::new(0), _glibc: [const { AtomicU32::new(0) }; 3] }
    }

    fn read(&self) {
        // SAFETY: a live object.
        let error = unsafe { REAL.rwlock_rdlock.get()(self.object()) };
        debug_assert_eq!(error, 0);
    }

    fn try_read(&self) -> Option<()> {
        // SAFETY: a live object.
        (unsafe { REAL.rwlock_tryrdlock.get()(self.object()) } == 0).then_some(())
    }

    fn read_until(&self, deadline: Deadline) -> Option<()> {
        let (clock, time) = time(deadline);
        // SAFETY: a live object, and a valid time.
        (unsafe { REAL.rwlock_clockrdlock.get()(self.object(), clock, &time) } == 0).then_some(())
    }

    unsafe fn unlock_read(&self, (): ()) {
        // SAFETY: a live object, which the caller's acquisition holds.
        unsafe { REAL.rwlock_unlock.get()(self.object()) };
    }

    fn write(&self) {
        // SAFETY: a live object.
        let error = unsafe { REAL.rwlock_wrlock.get()(self.object()) };
        debug_assert_eq!(error, 0);
    }

    fn try_write(&self) -> Option<()> {
        // SAFETY: a live object.
        (unsafe { REAL.rwlock_trywrlock.get()(self.object()) } == 0).then_some(())
    }

    fn write_until(&self, deadline: Deadline) -> Option<()> {
        let (clock, time) = time(deadline);
        // SAFETY: a live object, and a valid time.
        (unsafe { REAL.rwlock_clockwrlock.get()(self.object(), clock, &time) } == 0).then_some(())
    }

    unsafe fn unlock_write(&self, (): ()) {
        // SAFETY: a live object, which the calling thread holds for writing.
        unsafe { REAL.rwlock_unlock.get()(self.object()) };
    }

    fn is_locked(&self) -> bool {
        self.readers.load(Relaxed) >= super::READER || self.is_write_locked()
    }

    fn is_write_locked(&self) -> bool {
        self.readers.load(Relaxed) & (WRITE_PHASE | WRITER) == WRITE_PHASE | WRITER
    }
}
