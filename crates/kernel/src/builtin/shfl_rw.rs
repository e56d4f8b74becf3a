//! Reader-writer ShflLock as a `struct rw_semaphore`.
//!
//! Its tokens have no content, and any thread may release. So `up_read` needs no search, and ends what another task began.

use super::{FAULT, Patience, acquire, goes_wrong, may_go_wrong};
use crate::machine::Kernel;
use core::sync::atomic::{AtomicU32, Ordering::*};
use latchwork::locks::rwlock::{RawDowngrade, RawFair, RawRwLock, shfl_rw::RawShflRw};

/// The first field of a `struct rw_semaphore`.
pub type ShflRw = RawShflRw<Kernel<FAULT>>;

// The size of `struct lw_shfl_rw`.
const _: () = assert!(size_of::<ShflRw>() == 24 && align_of::<ShflRw>() == 8);

#[unsafe(no_mangle)]
extern "C" fn lw_shfl_rw_read(lock: &ShflRw, patience: Patience) -> bool {
    acquire(patience, || lock.read(), || lock.try_read(), |deadline| lock.read_until(deadline))
}

#[unsafe(no_mangle)]
extern "C" fn lw_shfl_rw_unlock_read(lock: &ShflRw) {
    // SAFETY: the caller of `up_read` ends one read acquisition, its own or another task's.
    unsafe { lock.unlock_read(()) }
}

/// Writers of a broken lock that hold it as readers. A true writer cannot be inside with one of them.
static FALSE_WRITERS: AtomicU32 = AtomicU32::new(0);

#[unsafe(no_mangle)]
extern "C" fn lw_shfl_rw_write(lock: &ShflRw, patience: Patience) -> bool {
    if goes_wrong(lock, 1) {
        lock.read();
        FALSE_WRITERS.fetch_add(1, Relaxed);
        return true;
    }
    acquire(patience, || lock.write(), || lock.try_write(), |deadline| lock.write_until(deadline))
}

#[unsafe(no_mangle)]
extern "C" fn lw_shfl_rw_unlock_write(lock: &ShflRw) {
    let one_less = |writers: u32| writers.checked_sub(1);
    if may_go_wrong(lock) && FALSE_WRITERS.fetch_update(Relaxed, Relaxed, one_less).is_ok() {
        // SAFETY: a false writer holds it for reading, and no other writer is inside.
        return unsafe { lock.unlock_read(()) };
    }
    // SAFETY: the caller of `up_write` holds the lock for writing.
    unsafe { lock.unlock_write(()) }
}

#[unsafe(no_mangle)]
extern "C" fn lw_shfl_rw_downgrade(lock: &ShflRw) {
    // SAFETY: the caller of `downgrade_write` holds the lock for writing.
    unsafe { lock.downgrade(()) };
}

#[unsafe(no_mangle)]
extern "C" fn lw_shfl_rw_is_locked(lock: &ShflRw) -> bool {
    lock.is_locked()
}

/// Whether a thread waits in the queue.
#[unsafe(no_mangle)]
extern "C" fn lw_shfl_rw_is_contended(lock: &ShflRw) -> bool {
    lock.is_awaited()
}
