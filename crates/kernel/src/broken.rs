//! Locks that are broken on purpose. The torture must catch each of them, or its silence about the others means nothing.
//!
//! | lock | what is wrong | what the torture sees |
//! |---|---|---|
//! | `broken-spin` | looks and takes in two steps | two threads inside |
//! | `broken-handover` | a waiter enters while the thread before it is still inside | the same |
//! | `broken-shfl` | one wakeup in four is lost ([`DEAF`](crate::machine::DEAF)) | threads that make no progress |
//! | `broken-shfl-stubborn` | no deadline and no signal ends a sleep ([`STUBBORN`](crate::machine::STUBBORN)) | a waiter that does not give up while the lock is held |
//! | `broken-shfl-rw` | as `broken-shfl` | threads that make no progress |
//! | `broken-glibc-rw` | the same, in a lock that prefers readers | a writer that makes no progress though no reader comes |
//! | `broken-bravo` | the writer does not find the readers ([`BLIND`](crate::machine::BLIND)) | a reader beside a writer |
//! | `broken-bravo-other` | a release by another task does not find the reader in the table ([`FORGETFUL`](crate::machine::FORGETFUL)) | a writer that makes no progress |
//!
//! One more is a way of calling a lock: its holder leaves interrupts on (`irq=unsafe`).

use crate::machine::{FORGETFUL, Kernel};
use crate::rwsem::RawRwSemaphore;
use crate::table::BravoRwSemaphore;
use core::ffi::c_void;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering::*};
use latchwork::locks::mutex::RawMutex;
use latchwork::locks::{Info, Suspension};
use latchwork::machine::Machine;

/// A test-and-set lock that looks first and takes then. Between the two, one attempt in eight sleeps, so that other threads pass
/// it on a machine with one processor too.
pub struct Torn(AtomicU32, AtomicU32);

// SAFETY: it does not hold: two threads may have it. It protects nothing but the torture's own counters.
unsafe impl RawMutex for Torn {
    type Machine = Kernel;
    type Token = ();
    const INFO: Info = Info {
        name: "broken-spin",
        summary: "looks and takes in two steps",
        atomics: 0,
        waiter_bytes: 0,
        holder_bytes: 0,
        fairness: "none",
        blocking: true,
        suspension: Suspension::Tolerates,
        source: "none",
    };

    fn new_in() -> Self {
        Torn(AtomicU32::new(0), AtomicU32::new(0))
    }

    fn lock(&self) {
        while self.try_lock().is_none() {
            Kernel::<0>::yield_now();
        }
    }

    fn try_lock(&self) -> Option<()> {
        if self.0.load(Acquire) != 0 {
            return None;
        }
        if self.1.fetch_add(1, Relaxed).is_multiple_of(8) {
            Kernel::<0>::doze(50_000);
        }
        self.0.store(1, Relaxed);
        Some(())
    }

    unsafe fn unlock(&self, (): ()) {
        self.0.store(0, Release);
    }

    fn is_locked(&self) -> bool {
        self.0.load(Relaxed) != 0
    }
}

/// A ticket lock in which every eighth waiter does not wait for the release of the thread before it, but only for its turn. What the
/// holder wrote last comes after the waiter's first look, as it may after a handover by a relaxed store. (A processor of x86 keeps
/// the order of stores, so a relaxed store itself would not show.)
pub struct Early {
    next: AtomicU32,
    serving: AtomicU32,
}

// SAFETY: it does not hold: two threads may have it. It protects nothing but the torture's own counters.
unsafe impl RawMutex for Early {
    type Machine = Kernel;
    type Token = ();
    const INFO: Info = Info {
        name: "broken-handover",
        summary: "a waiter enters while the thread before it is still inside",
        ..Torn::INFO
    };

    fn new_in() -> Self {
        Early { next: AtomicU32::new(0), serving: AtomicU32::new(0) }
    }

    fn lock(&self) {
        let ticket = self.next.fetch_add(1, Relaxed);
        let early = i32::from(ticket.is_multiple_of(8));
        // Negative if an early waiter has left before the thread in front of it has looked.
        while ticket.wrapping_sub(self.serving.load(Acquire)) as i32 > early {
            Kernel::<0>::doze(50_000);
        }
    }

    fn try_lock(&self) -> Option<()> {
        let serving = self.serving.load(Acquire);
        self.next.compare_exchange(serving, serving.wrapping_add(1), Relaxed, Relaxed).is_ok().then_some(())
    }

    unsafe fn unlock(&self, (): ()) {
        self.serving.fetch_add(1, Release);
    }

    fn is_locked(&self) -> bool {
        self.serving.load(Relaxed) != self.next.load(Relaxed)
    }
}

/// Reads that [`forget`] has left in the table, and their lock.
static FORGOTTEN: AtomicUsize = AtomicUsize::new(0);
static FORGOTTEN_IN: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

/// What a release does that finds its reader neither below nor in the caller's slot: nothing.
pub fn forget(lock: *const c_void) -> bool {
    FORGOTTEN_IN.store(lock.cast_mut(), Relaxed);
    FORGOTTEN.fetch_add(1, Release);
    true
}

/// Ends the reads that were forgotten, so that the torture gets its threads back.
#[unsafe(no_mangle)]
pub extern "C" fn lw_repair() {
    for _ in 0..FORGOTTEN.swap(0, Acquire) {
        let lock = FORGOTTEN_IN.load(Relaxed);
        // SAFETY: as many reads of that lock were not ended, and the torture keeps the lock until this has returned.
        unsafe {
            let below = &*lock.cast::<RawRwSemaphore<FORGETFUL>>();
            (*lock.cast::<BravoRwSemaphore<FORGETFUL>>()).unlock_anonymous_read(|| below.release_any())
        }
    }
}
