//! The records that the threads' lists consist of: memory that is only ever used as records, and that any thread may
//! look through.

use super::Entry;
use crate::index::Index;
use crate::place;
use core::cell::UnsafeCell;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering::*};

/// Entries per record.
pub(super) const ENTRIES: usize = 10;

#[repr(C, align(64))]
pub(super) struct Record {
    /// The next of all records.
    pub(super) link: AtomicPtr<Record>,
    /// The next of the same thread's records.
    pub(super) more: AtomicPtr<Record>,
    /// The first of the same thread's records.
    pub(super) first: AtomicPtr<Record>,
    /// Whether a thread has it.
    pub(super) taken: AtomicU32,
    /// First record: how many entries other threads have taken away, until the owner notices.
    pub(super) lost: AtomicU32,
    pub(super) entries: [Entry; ENTRIES],
    pub(super) further: UnsafeCell<Further>,
}

/// First record: where the entries of the further records are. The owner's alone.
pub(super) struct Further {
    /// By the lock's address; those that another thread has taken away are still in it.
    pub(super) index: Index<&'static Entry>,
    /// The free entries, linked; 0: none.
    pub(super) free: usize,
}

/// All records, ever.
pub(super) static ALL: AtomicPtr<Record> = AtomicPtr::new(null_mut());

impl Further {
    /// A free entry.
    pub(super) fn give_back(&mut self, entry: &'static Entry) {
        entry.token.store(self.free, Relaxed);
        self.free = core::ptr::from_ref(entry).expose_provenance();
    }
}

impl Record {
    pub(super) fn is_empty(&self) -> bool {
        self.entries.iter().all(|entry| entry.lock.load(Relaxed) == 0)
    }
}

/// Looks through the entries of all threads, until `each` finds something.
pub(super) fn all<T>(mut each: impl FnMut(&'static Record, &'static Entry) -> Option<T>) -> Option<T> {
    let mut record = ALL.load(Acquire);
    while !record.is_null() {
        // SAFETY: records are never unmapped. The part that is its owner's alone is not touched.
        let this: &'static Record = unsafe { &*record };
        if let Some(found) = this.entries.iter().find_map(|entry| each(this, entry)) {
            return Some(found);
        }
        record = this.link.load(Acquire);
    }
    None
}

/// An empty record that no thread has.
#[cold]
pub(super) fn take() -> *mut Record {
    let mut record = ALL.load(Acquire);
    // SAFETY: records are never unmapped.
    unsafe {
        while !record.is_null() {
            if (*record).taken.load(Relaxed) == 0
                && (*record).taken.compare_exchange(0, 1, Acquire, Relaxed).is_ok()
            {
                return record;
            }
            record = (*record).link.load(Acquire);
        }
        map()
    }
}

/// A page of new records, the first of which is the caller's.
unsafe fn map() -> *mut Record {
    const PAGE: usize = 4096 / size_of::<Record>();
    let page: *mut Record = place::pages(PAGE * size_of::<Record>()).cast();
    // SAFETY: the page is ours and large enough, and zero is an empty record.
    unsafe {
        (*page).taken.store(1, Relaxed);
        for i in 1..PAGE {
            (*page.add(i)).link.store(page.add(i - 1), Relaxed);
        }
        let mut head = ALL.load(Relaxed);
        loop {
            (*page).link.store(head, Relaxed);
            match ALL.compare_exchange(head, page.add(PAGE - 1), Release, Relaxed) {
                Ok(_) => return page,
                Err(now) => head = now,
            }
        }
    }
}
