//! What happens to a thread's list without the thread: another thread releases for it, or the process forks.

use super::entry::Entry;
use super::local::local;
use super::records::{ALL, Record, all};
use crate::state::abi::RwLock;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering::*};

/// Takes one acquisition of `lock` away from a thread that has one. `None`: no thread has one. `Some(None)`: the thread
/// holds the lock by a further acquisition. `Some(Some(token))`: it was the last one of the thread.
#[cold]
pub(crate) fn take_from_another(lock: &RwLock) -> Option<Option<usize>> {
    let address = core::ptr::from_ref(lock).addr();
    all(|record, entry| {
        // (A) this thread sees the token, the count and the serial.
        if entry.lock.load(Acquire) != address || !entry.is_of(lock) {
            return None;
        }
        if entry.count.load(Relaxed) > 1 {
            entry.count.fetch_sub(1, Relaxed);
            return Some(None);
        }
        let token = entry.token.load(Relaxed);
        entry.lock.compare_exchange(address, 0, AcqRel, Relaxed).ok()?;
        // If the owner exits meanwhile, the next owner of its first record searches its index once and finds nothing.
        // SAFETY: records are never unmapped.
        if let Some(first) = unsafe { record.first.load(Relaxed).as_ref() } {
            first.lost.fetch_add(1, Relaxed);
        }
        Some(Some(token))
    })
}

/// In a forked child: the first record of the thread that forked.
static FORKER: AtomicPtr<Record> = AtomicPtr::new(null_mut());

/// In a forked child, where no thread uses `lock` yet: if the thread that forked reads `lock`, this makes the acquisition
/// anew and stores its token. `keeps` says which tokens need no new acquisition.
pub(crate) fn renew(lock: &RwLock, keeps: impl Fn(usize) -> bool, acquire: impl FnOnce() -> Option<usize>) {
    let address = core::ptr::from_ref(lock).addr();
    let mut record = FORKER.load(Acquire);
    // SAFETY: records are never unmapped. This does not touch the part that only the owner may use.
    while let Some(this) = unsafe { record.as_ref() } {
        let is_it = |entry: &&Entry| entry.lock.load(Relaxed) == address && entry.is_of(lock);
        if let Some(entry) = this.entries.iter().find(is_it) {
            if !keeps(entry.token.load(Relaxed))
                && let Some(token) = acquire()
            {
                entry.token.store(token, Relaxed);
            }
            return;
        }
        record = this.more.load(Acquire);
    }
}

/// In a forked child: forgets what other threads held. What this thread holds is renewed when it next uses the lock.
pub(crate) fn after_fork() {
    // SAFETY: the child has one thread, and records are never unmapped.
    unsafe {
        let mine = (*local()).first;
        FORKER.store(mine, Release);
        let mut record = ALL.load(Acquire);
        while !record.is_null() {
            if mine.is_null() || (*record).first.load(Relaxed) != mine {
                (*record).entries.iter().for_each(|entry| entry.lock.store(0, Relaxed));
                (*record).more.store(null_mut(), Relaxed);
                (*record).first.store(null_mut(), Relaxed);
                (*record).lost.store(0, Relaxed);
                (*(*record).further.get()).clear();
                (*record).taken.store(0, Relaxed);
            }
            record = (*record).link.load(Relaxed);
        }
    }
}
