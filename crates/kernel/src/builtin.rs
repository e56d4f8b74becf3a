//! The locks as the kernel's own `struct rw_semaphore` and `struct mutex`, in a kernel that is built with
//! `patch/linux-6.1.patch`. `patch/latchwork.h` declares these functions for C.

use crate::machine::{INTERRUPTIBLE, KILLABLE, Kernel, SOUND, TWIN};
use crate::rwsem::RawRwSemaphore;
use crate::shim::lw_k_nothing_to_release;
use latchwork::locks::mutex::{RawMutex, shfl::RawShfl};
use latchwork::locks::rwlock::bravo::{RawBravo, around::Around};
use latchwork::locks::rwlock::{RawDowngrade, RawRwLock};
use latchwork::machine::Deadline;

/// With the feature `twin` the locks can be broken, to see whether the kernel's own torture notices.
const FAULT: u8 = if cfg!(feature = "twin") { TWIN } else { SOUND };

/// The field `bravo` of a `struct rw_semaphore`. The semaphore around it is the underlying lock.
pub type Bravo = RawBravo<Kernel<FAULT>, Below>;
type Below = RawRwSemaphore<FAULT, 0>;
/// The first field of a `struct mutex`.
pub type Shfl = RawShfl<Kernel<FAULT>>;

/// Searches after which a release has nothing to release.
const SEARCHES: u32 = 1000;

// The sizes of `struct lw_bravo` and `struct lw_shfl`.
const _: () = assert!(size_of::<Bravo>() == 16 && align_of::<Bravo>() == 8);
const _: () = assert!(size_of::<Shfl>() == 16 && align_of::<Shfl>() == 8);

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

// A read token is dropped: `lw_bravo_unlock_read` finds the acquisition. A write token has no content.
#[unsafe(no_mangle)]
extern "C" fn lw_bravo_read(lock: &Bravo, patience: Patience) -> bool {
    acquire(patience, || lock.read(), || lock.try_read(), |deadline| lock.read_until(deadline))
}

#[unsafe(no_mangle)]
extern "C" fn lw_bravo_unlock_read(lock: &Bravo) {
    // SAFETY: the first field of the `repr(C)` lock.
    let below = unsafe { &*core::ptr::from_ref(lock).cast::<Below>() };
    // A search fails only if another release succeeds meanwhile. So many failures mean that the caller ends what it does not have:
    // the kernel's own semaphore would be left with a wrong count, and this one would look for ever.
    let mut left = SEARCHES;
    let mut is_wrong = || {
        left -= 1;
        if left == 0 {
            lw_k_nothing_to_release();
        }
        left == 0
    };
    // SAFETY: `up_read` ends a read acquisition, and all are ended here.
    unsafe { lock.unlock_anonymous_read(|| below.release_any() || is_wrong()) }
}

#[unsafe(no_mangle)]
extern "C" fn lw_bravo_write(lock: &Bravo, patience: Patience) -> bool {
    acquire(patience, || lock.write(), || lock.try_write(), |deadline| lock.write_until(deadline))
}

#[unsafe(no_mangle)]
extern "C" fn lw_bravo_unlock_write(lock: &Bravo) {
    // SAFETY: the caller of `up_write` holds it.
    unsafe { lock.unlock_write(()) }
}

#[unsafe(no_mangle)]
extern "C" fn lw_bravo_downgrade(lock: &Bravo) {
    // SAFETY: the caller of `downgrade_write` holds it for writing.
    unsafe { lock.downgrade(()) };
}

#[unsafe(no_mangle)]
extern "C" fn lw_bravo_is_locked(lock: &Bravo) -> bool {
    lock.is_locked()
}

/// Whether a writer waits for readers in the table; those that wait in the semaphore's own list are not asked for.
#[unsafe(no_mangle)]
extern "C" fn lw_bravo_is_contended(lock: &Bravo) -> bool {
    lock.is_being_revoked()
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
