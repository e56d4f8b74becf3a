//! BRAVO as a `struct rw_semaphore`. The kernel's own semaphore is the underlying lock.

use super::{FAULT, Patience, acquire};
use crate::machine::Kernel;
use crate::rwsem::RawRwSemaphore;
use crate::shim::lw_k_nothing_to_release;
use latchwork::locks::rwlock::bravo::{RawBravo, around::Around};
use latchwork::locks::rwlock::{RawDowngrade, RawRwLock};

/// The field `bravo` of a `struct rw_semaphore`. The semaphore around it is the underlying lock.
pub type Bravo = RawBravo<Kernel<FAULT>, Below>;
type Below = RawRwSemaphore<FAULT, 0>;

/// Searches after which a release has nothing to release.
const SEARCHES: u32 = 1000;

// The size of `struct lw_bravo`.
const _: () = assert!(size_of::<Bravo>() == 16 && align_of::<Bravo>() == 8);

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
