//! The kernel's own reader-writer semaphore (`struct rw_semaphore`) as a lock of the library.
//!
//! BRAVO over it is what the paper's section 6.1 puts into the kernel. The semaphore stays as it is, and is used through the
//! kernel's functions.

use crate::machine::{Kernel, SOUND};
use crate::shim::*;
use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::sync::atomic::{AtomicU32, Ordering::*};
use latchwork::locks::rwlock::{RawDowngrade, RawRwLock};
use latchwork::locks::{Info, Suspension};
use latchwork::machine::{Clock, Deadline};

/// Words of 8 bytes in a `struct rw_semaphore` at most, with all debugging fields. The module checks it.
pub const ROOM: usize = 32;

/// A semaphore of the kernel.
///
/// This type counts the readers that are inside. The semaphore's own count cannot serve: for a moment it includes a reader that is
/// about to find that it may not enter. A release that may be [any reader's](Self::release_any) must not end such a reader.
///
/// With `WORDS` 0 it is a part of the kernel's own `struct rw_semaphore` (`builtin.rs`), which C finds around it.
#[repr(C, align(8))]
pub struct RawRwSemaphore<const FAULT: u8 = SOUND, const WORDS: usize = ROOM> {
    readers: AtomicU32,
    semaphore: UnsafeCell<[u64; WORDS]>,
}

// SAFETY: it is used through the kernel's functions alone, which any thread may call.
unsafe impl<const FAULT: u8, const WORDS: usize> Send for RawRwSemaphore<FAULT, WORDS> {}
// SAFETY: any thread may call the functions of the kernel.
unsafe impl<const FAULT: u8, const WORDS: usize> Sync for RawRwSemaphore<FAULT, WORDS> {}

impl<const FAULT: u8, const WORDS: usize> RawRwSemaphore<FAULT, WORDS> {
    fn sem(&self) -> *mut c_void {
        if WORDS == 0 { core::ptr::from_ref(self).cast_mut().cast() } else { self.semaphore.get().cast() }
    }

    /// Prepares a semaphore at its final address: its list of waiters points to itself.
    ///
    /// # Safety
    ///
    /// No thread uses it yet.
    pub unsafe fn init(&self) {
        // SAFETY: room for a semaphore that no thread uses.
        unsafe { lw_k_rwsem_init(self.sem()) }
    }

    /// The kernel has given the semaphore to a reader, or not.
    fn enters(&self, acquired: bool) -> Option<()> {
        if acquired {
            // Relaxed: a release that must find this reader comes after it, in the same thread or because it was told.
            self.readers.fetch_add(1, Relaxed);
        }
        acquired.then_some(())
    }

    /// Ends one read acquisition if there is one, and returns whether it did.
    ///
    /// # Safety
    ///
    /// All read acquisitions are released by this function, and the caller ends one of this lock or of the lock over it.
    pub unsafe fn release_any(&self) -> bool {
        // AcqRel: of the releases that come after an acquisition, each sees what those before it have left.
        let found = self.readers.fetch_update(AcqRel, Acquire, |readers| readers.checked_sub(1)).is_ok();
        if found {
            // SAFETY: as in `read`; the reader that was counted is inside.
            unsafe { lw_k_up_read(self.sem()) };
        }
        found
    }

    /// Attempts until a deadline on the clock. The kernel has no timed acquisition.
    fn poll(deadline: Deadline, attempt: impl Fn() -> bool) -> Option<()> {
        loop {
            let late = deadline.passed::<Kernel<FAULT>>();
            if attempt() {
                return Some(());
            }
            if late {
                return None;
            }
            lw_k_doze(10_000);
        }
    }
}

// SAFETY: a writer of the kernel's semaphore is alone; acquisitions and releases are those of the kernel.
unsafe impl<const FAULT: u8, const WORDS: usize> RawRwLock for RawRwSemaphore<FAULT, WORDS> {
    type Machine = Kernel<FAULT>;
    type Read = ();
    type Write = ();
    type Counted = Self;
    const INFO: Info = Info {
        name: "rw_semaphore",
        summary: "the kernel's own reader-writer semaphore",
        atomics: 2,
        waiter_bytes: 0,
        holder_bytes: 0,
        fairness: "first come, first served; the first waiter gets it after 4 ms at most",
        blocking: true,
        suspension: Suspension::Tolerates,
        source: "Linux, kernel/locking/rwsem.c",
    };

    fn new_in() -> Self {
        RawRwSemaphore { readers: AtomicU32::new(0), semaphore: UnsafeCell::new([0; WORDS]) }
    }

    fn read(&self) {
        // SAFETY: `init` has been called, in this function and those below.
        unsafe { lw_k_down_read(self.sem()) };
        self.enters(true);
    }

    fn try_read(&self) -> Option<()> {
        // SAFETY: as in `read`.
        self.enters(unsafe { lw_k_down_read_trylock(self.sem()) })
    }

    fn read_until(&self, deadline: Deadline) -> Option<()> {
        match deadline.clock {
            Clock::Monotonic => Self::poll(deadline, || self.try_read().is_some()),
            // SAFETY: as in `read`.
            Clock::Realtime => {
                self.enters(unsafe { lw_k_down_read_signals(self.sem(), (deadline.nanos >> 62) as u32) })
            }
        }
    }

    unsafe fn unlock_read(&self, (): ()) {
        self.readers.fetch_sub(1, Release);
        // SAFETY: as in `read`; the caller holds it.
        unsafe { lw_k_up_read(self.sem()) }
    }

    fn write(&self) {
        // SAFETY: as in `read`.
        unsafe { lw_k_down_write(self.sem()) }
    }

    fn try_write(&self) -> Option<()> {
        // SAFETY: as in `read`.
        unsafe { lw_k_down_write_trylock(self.sem()) }.then_some(())
    }

    /// The kernel's writers have no interruptible form, so a signal must be deadly.
    fn write_until(&self, deadline: Deadline) -> Option<()> {
        match deadline.clock {
            Clock::Monotonic => Self::poll(deadline, || self.try_write().is_some()),
            // SAFETY: as in `read`.
            Clock::Realtime => unsafe { lw_k_down_write_killable(self.sem()) }.then_some(()),
        }
    }

    unsafe fn unlock_write(&self, (): ()) {
        // SAFETY: as in `read`; the caller holds it.
        unsafe { lw_k_up_write(self.sem()) }
    }

    fn is_locked(&self) -> bool {
        // SAFETY: as in `read`.
        unsafe { lw_k_rwsem_is_locked(self.sem()) }
    }

    fn is_write_locked(&self) -> bool {
        if self.try_read().is_some() {
            // SAFETY: acquired above.
            unsafe { self.unlock_read(()) };
            return false;
        }
        true
    }
}

// SAFETY: `downgrade_write` lets no writer in between.
unsafe impl<const FAULT: u8, const WORDS: usize> RawDowngrade for RawRwSemaphore<FAULT, WORDS> {
    unsafe fn downgrade(&self, (): ()) {
        // SAFETY: as in `read`; the caller holds it for writing.
        unsafe { lw_k_downgrade_write(self.sem()) };
        self.enters(true);
    }
}
