//! The pthread objects as this library sees them: where in glibc's bytes our own words lie.
//!
//! What is written by glibc's static initialisers, or means that glibc owns the object, keeps
//! glibc's place; everything else is ours. All-zero is unlocked.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use latchwork::machine::{Clock, Deadline};
use libc::{c_int, timespec};

/// Bytes for the raw lock at the start of a mutex.
pub(crate) const MUTEX_SPACE: usize = 16;
/// Bytes for the raw lock at the start of a rwlock.
pub(crate) const RWLOCK_SPACE: usize = 32;

/// `pthread_mutex_t` and `mtx_t`.
#[repr(C, align(8))]
pub(crate) struct Mutex {
    pub raw: UnsafeCell<[u8; MUTEX_SPACE]>,
    /// Low half: glibc's `__kind` (0 to 3, and flags of objects that are glibc's), plus
    /// [`SEEN`] and [`SERVED`]. High half: the fork generation that the object was last used under.
    pub kind: AtomicU32,
    /// Recursive: how many times the owner has it.
    pub count: AtomicU32,
    /// Low [`identity::BITS`](crate::identity::BITS). Recursive and error-checking: the thread that has it. The bits
    /// above count the condition variables' waiters that will lock it again. Only the holder writes either.
    pub owner: AtomicU64,
    /// What the raw lock's `unlock` needs.
    pub token: AtomicUsize,
}

/// `pthread_rwlock_t`.
#[repr(C, align(8))]
pub(crate) struct RwLock {
    /// glibc's `__shared` is at 28: nonzero means process-shared, and glibc's, as long as
    /// [`SEEN`] is not set.
    pub raw: UnsafeCell<[u8; RWLOCK_SPACE]>,
    /// The thread that has it for writing.
    pub owner: AtomicU64,
    /// What the raw lock's `unlock_write` needs.
    pub token: AtomicUsize,
    /// Low half: [`SEEN`], once the object is known to be ours; before that glibc's kind, of which
    /// [`PREFERS_WRITERS`] makes the object glibc's. High half: the fork generation.
    pub flags: AtomicU32,
    /// Which lock at this address: see [`holds`](crate::holds). Padding in glibc's object, which its static
    /// initialisers need not clear: nothing, until the object is known to be ours.
    pub serial: AtomicU32,
}

impl RwLock {
    /// Sets the flags from `flags` to `ours`, and clears the serial. `false`: another thread has changed them.
    pub(crate) fn claim(&self, flags: u32, ours: u32) -> bool {
        let both = |flags: u32, serial: u32| {
            // SAFETY: both are eight bytes, of which any are valid.
            unsafe { core::mem::transmute::<[u32; 2], u64>([flags, serial]) }
        };
        // SAFETY: eight aligned bytes of the object, `flags` and `serial`. A thread that reads one of them at the same
        // time sees the old or the new value: the processors that this library supports order accesses of both sizes.
        let words = unsafe { &*(&raw const self.flags).cast::<AtomicU64>() };
        let old = both(flags, self.serial.load(Relaxed));
        words.compare_exchange(old, both(ours, 0), Relaxed, Relaxed).is_ok()
    }

    /// glibc's `__shared`; bytes of the raw lock in an object of ours.
    pub(crate) fn shared(&self) -> &AtomicU32 {
        // SAFETY: four aligned bytes of the object, which everybody accesses as atomics.
        unsafe { &*self.raw.get().cast::<u8>().add(28).cast() }
    }
}

/// `pthread_cond_t` and `cnd_t`.
#[repr(C, align(8))]
pub(crate) struct Cond {
    pub raw: UnsafeCell<[u8; 16]>,
    _unused: [u32; 2],
    /// `__wrefs` is at 28 (glibc 2.41 and later) or 36 (before) and marks what is glibc's; both
    /// words stay zero in an object of ours.
    _wrefs: [u32; 4],
    /// [`SEEN`], [`MONOTONIC`], and in the high half the fork generation.
    pub flags: AtomicU32,
    _unused_too: u32,
}

const _: () = {
    assert!(size_of::<Mutex>() == 40 && size_of::<RwLock>() == 56 && size_of::<Cond>() == 48);
    assert!(core::mem::offset_of!(Mutex, kind) == 16 && core::mem::offset_of!(Cond, flags) == 40);
    assert!(core::mem::offset_of!(RwLock, flags) == 48 && core::mem::offset_of!(RwLock, serial) == 52);
};

// glibc's `__kind`, low bits.
pub(crate) const NORMAL: u32 = 0;
pub(crate) const RECURSIVE: u32 = 1;
pub(crate) const ERRORCHECK: u32 = 2;
pub(crate) const ADAPTIVE: u32 = 3;
/// Robust, priority-inheriting, priority-protected, process-shared; a destroyed mutex has them all.
pub(crate) const FOREIGN: u32 = 0xf0;
pub(crate) const ROBUST: u32 = 0x10;
pub(crate) const PRIORITY: u32 = 0x60;

/// `PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP`, in the flags of a rwlock that is glibc's for that.
pub(crate) const PREFERS_WRITERS: u32 = 2;

/// Mutex and condition variable: statistics have counted this object. Rwlock: it is ours.
pub(crate) const SEEN: u32 = 0x8000;
/// Mutex: this library has used it. glibc's functions know no kind with this bit and refuse it, with EINVAL, before they
/// touch the lock: a library that binds past this one neither gets a mutex that is held nor harms its waiters.
pub(crate) const SERVED: u32 = 4;
/// The condition variable's deadlines are on the monotonic clock.
pub(crate) const MONOTONIC: u32 = 2;
/// The object lies in memory that a forked child shares with its parent: neither repairs it any more.
pub(crate) const IN_SHARED_MEMORY: u32 = 0x4000;
/// The half of a kind or flags word that is not the fork generation.
pub(crate) const LOW: u32 = 0xffff;

/// The deadline that a caller means, or the error that it gets.
///
/// # Safety
///
/// `time` is valid for reads.
pub(crate) unsafe fn deadline(clock: Clock, time: *const timespec) -> Result<Deadline, c_int> {
    // SAFETY: from the caller.
    let (seconds, nanos) = unsafe { ((*time).tv_sec, (*time).tv_nsec) };
    if !(0..1_000_000_000).contains(&nanos) {
        return Err(libc::EINVAL);
    }
    // Before the epoch is as long ago as the epoch.
    let seconds = u64::try_from(seconds).unwrap_or(0);
    Ok(Deadline { clock, nanos: seconds.saturating_mul(1_000_000_000).saturating_add(nanos as u64) })
}

/// The clock that an interface with a `clockid_t` means.
pub(crate) fn clock(id: libc::clockid_t) -> Option<Clock> {
    match id {
        libc::CLOCK_REALTIME => Some(Clock::Realtime),
        libc::CLOCK_MONOTONIC => Some(Clock::Monotonic),
        _ => None,
    }
}
