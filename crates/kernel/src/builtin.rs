//! The locks as the kernel's own `struct rw_semaphore` and `struct mutex`, in a kernel that is built with
//! `patch/linux-6.1.patch`. `patch/latchwork/latchwork.h` declares these functions for C.
//!
//! The semaphore is BRAVO over the kernel's own (`bravo`), or with the feature `shfl` a ShflLock (`shfl_rw`).

#[cfg(not(feature = "shfl"))]
mod bravo;
#[cfg(feature = "shfl")]
mod shfl_rw;

use crate::machine::{INTERRUPTIBLE, KILLABLE, Kernel, SOUND, TWIN};
use latchwork::locks::mutex::{RawMutex, shfl::RawShfl};
use latchwork::machine::Deadline;

/// With the feature `twin` the locks can be broken, to see whether the kernel's own torture notices.
const FAULT: u8 = if cfg!(feature = "twin") { TWIN } else { SOUND };

/// The first field of a `struct mutex`.
pub type Shfl = RawShfl<Kernel<FAULT>>;

// The size of `struct lw_shfl`.
const _: () = assert!(size_of::<Shfl>() == 16 && align_of::<Shfl>() == 8);

/// Where the kernel loads modules (`MODULES_VADDR`, if its base is not random).
#[cfg(feature = "shfl")]
const MODULES: usize = 0xffff_ffff_a000_0000;

/// Whether the lock can be broken: it lies in a module, as the torture's do. The kernel itself could not go on with broken locks.
#[cfg(feature = "shfl")]
#[inline(always)]
fn may_go_wrong<L>(lock: &L) -> bool {
    cfg!(feature = "twin") && core::ptr::from_ref(lock).addr() >= MODULES
}

/// Whether this acquisition goes wrong: one in eight does, once `lw_k_broken` says that this `part` is broken.
#[cfg(all(feature = "shfl", feature = "twin"))]
fn goes_wrong<L>(lock: &L, part: u32) -> bool {
    use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
    static ACQUISITIONS: AtomicU32 = AtomicU32::new(0);
    may_go_wrong(lock)
        && crate::shim::lw_k_broken() == part
        && ACQUISITIONS.fetch_add(1, Relaxed).is_multiple_of(8)
}

/// No lock of this build can be broken.
#[cfg(all(feature = "shfl", not(feature = "twin")))]
#[inline(always)]
fn goes_wrong<L>(_: &L, _: u32) -> bool {
    false
}

/// How an acquisition waits: the numbers of `enum lw_patience` in C.
#[repr(u32)]
#[derive(Copy, Clone)]
pub enum Patience {
    /// As long as it takes.
    Endless = 0,
    /// Not at all.
    None = 1,
    /// Until a signal.
    Interruptible = 3,
    /// Until a deadly signal.
    Killable = 4,
}

fn acquire<T>(
    patience: Patience,
    endless: impl FnOnce() -> T,
    attempt: impl FnOnce() -> Option<T>,
    until: impl FnOnce(Deadline) -> Option<T>,
) -> bool {
    match patience {
        Patience::Endless => {
            endless();
            true
        }
        Patience::None => attempt().is_some(),
        Patience::Interruptible => until(INTERRUPTIBLE).is_some(),
        Patience::Killable => until(KILLABLE).is_some(),
    }
}

#[unsafe(no_mangle)]
extern "C" fn lw_shfl_lock(lock: &Shfl, patience: Patience) -> bool {
    acquire(patience, || lock.lock(), || lock.try_lock(), |deadline| lock.lock_until(deadline))
}

#[unsafe(no_mangle)]
extern "C" fn lw_shfl_unlock(lock: &Shfl) {
    // SAFETY: the caller of `mutex_unlock` holds it.
    unsafe { lock.unlock(()) }
}

#[unsafe(no_mangle)]
extern "C" fn lw_shfl_is_locked(lock: &Shfl) -> bool {
    lock.is_locked()
}

/// The slow path of `queued_spin_lock`. The kernel's inline functions are the fast path, and the release.
#[cfg(feature = "shfl")]
#[unsafe(no_mangle)]
extern "C" fn lw_shfl_spin_slow(lock: &crate::spin::Spin) {
    #[cfg(feature = "twin")]
    if goes_wrong(lock, 3) {
        return lock.take_anyway();
    }
    lock.lock_slow();
}
