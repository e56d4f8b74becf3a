//! One lock that a thread holds for reading.

use super::remove;
use crate::state::abi::RwLock;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering::*};

/// One lock that a thread holds for reading. All-zero bytes are a free entry.
#[repr(C)]
pub(crate) struct Entry {
    /// The lock's address; 0: the entry is free.
    pub(super) lock: AtomicUsize,
    /// The token of the acquisition. In a free entry of a further record: the address of the next free one.
    pub(super) token: AtomicUsize,
    /// How many times the thread holds it.
    pub(super) count: AtomicU32,
    /// The serial that the lock had.
    serial: AtomicU32,
}

impl Entry {
    /// Enters a lock that the thread holds once.
    ///
    /// # Safety
    ///
    /// `lock` is a live rwlock of ours, and the entry is free and the calling thread's.
    #[inline(always)]
    pub(super) unsafe fn set(&self, lock: *const RwLock, token: usize) {
        self.token.store(token, Relaxed);
        self.count.store(1, Relaxed);
        // SAFETY: the caller's lock is live.
        self.serial.store(serial(unsafe { &*lock }), Relaxed);
        // (A) pairs with the search in `take_from_another`, which then sees the fields above.
        self.lock.store(lock.addr(), Release);
    }

    /// The entry, if it is of the lock that is now at this address. If it is of an earlier lock, this drops it.
    ///
    /// # Safety
    ///
    /// `lock` is a live rwlock of ours, and the entry is the calling thread's.
    #[inline(always)]
    pub(super) unsafe fn valid(&'static self, lock: *const RwLock) -> Option<&'static Self> {
        // SAFETY: the caller's lock is live.
        if self.is_of(unsafe { &*lock }) {
            return Some(self);
        }
        self.drop_stale();
        None
    }

    /// Whether the entry, which has the address of `lock`, is of this lock. A lock without a serial is in no list.
    #[inline(always)]
    pub(super) fn is_of(&self, lock: &RwLock) -> bool {
        self.serial.load(Relaxed) == lock.serial.load(Relaxed)
    }

    #[cold]
    #[inline(never)]
    fn drop_stale(&'static self) {
        remove(self);
    }

    /// Counts one more acquisition by the owner. `false`: there are too many.
    #[inline(always)]
    pub(crate) fn again(&self) -> bool {
        let count = self.count.load(Relaxed);
        if count == u32::MAX {
            return false;
        }
        self.count.store(count + 1, Relaxed);
        true
    }

    /// Ends one acquisition by the owner. If it was the last, this frees the entry and returns the token.
    #[inline(always)]
    pub(crate) fn release(&'static self) -> Option<usize> {
        let count = self.count.load(Relaxed);
        if count > 1 {
            self.count.store(count - 1, Relaxed);
            return None;
        }
        Some(remove(self))
    }
}

/// The last serial that a lock got.
static SERIALS: AtomicU32 = AtomicU32::new(0);

/// The lock's serial. A lock that has none gets one.
#[inline(always)]
fn serial(lock: &RwLock) -> u32 {
    match lock.serial.load(Relaxed) {
        0 => number(lock),
        serial => serial,
    }
}

/// Serials are used again after four thousand million locks. That does harm only if both locks have the same address, and a
/// thread that never released the first uses the second.
#[cold]
#[inline(never)]
fn number(lock: &RwLock) -> u32 {
    let serial = SERIALS.fetch_add(1, Relaxed).wrapping_add(1).max(1);
    match lock.serial.compare_exchange(0, serial, Relaxed, Relaxed) {
        Ok(_) => serial,
        Err(first) => first, // from another reader
    }
}
