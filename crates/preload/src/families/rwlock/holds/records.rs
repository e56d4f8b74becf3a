//! The records that the threads' lists consist of. Their memory is never unmapped and never used for anything else, so any
//! thread may search it at any time.

use super::entry::Entry;
use crate::state::index::Index;
use crate::state::memory;
use core::cell::UnsafeCell;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering::*};

/// Entries in a record: with them it fills five cache lines.
pub(super) const ENTRIES: usize = 10;

/// A piece of a thread's list. All-zero bytes are an empty record that no thread has.
#[repr(C, align(64))]
pub(super) struct Record {
    /// The next of all records.
    pub(super) link: AtomicPtr<Record>,
    /// The next of the same thread's records.
    pub(super) more: AtomicPtr<Record>,
    /// The first of the same thread's records.
    pub(super) first: AtomicPtr<Record>,
    /// 1: a thread has it.
    pub(super) taken: AtomicU32,
    /// In the first record: how many entries other threads have taken away since the owner last looked.
    pub(super) lost: AtomicU32,
    pub(super) entries: [Entry; ENTRIES],
    pub(super) further: UnsafeCell<Further>,
}

/// In the first record: where the entries of the further records are. Only the owner uses it.
pub(super) struct Further {
    /// The entries by the lock's address. It still has those that another thread has taken away.
    pub(super) index: Index<&'static Entry>,
    /// The address of the first free entry, from which the others are linked; 0: there is none.
    pub(super) free: usize,
}

/// All records, ever.
pub(super) static ALL: AtomicPtr<Record> = AtomicPtr::new(null_mut());

impl Further {
    /// Adds a free entry.
    pub(super) fn give_back(&mut self, entry: &'static Entry) {
        entry.token.store(self.free, Relaxed);
        self.free = core::ptr::from_ref(entry).expose_provenance();
    }

    /// Forgets all entries.
    pub(super) fn clear(&mut self) {
        core::mem::replace(&mut self.index, Index::EMPTY).free();
        self.free = 0;
    }
}

impl Record {
    pub(super) fn is_empty(&self) -> bool {
        self.entries.iter().all(|entry| entry.lock.load(Relaxed) == 0)
    }
}

/// Searches the entries of all threads, until `each` finds something.
pub(super) fn all<T>(mut each: impl FnMut(&'static Record, &'static Entry) -> Option<T>) -> Option<T> {
    let mut record = ALL.load(Acquire);
    while !record.is_null() {
        // SAFETY: records are never unmapped. This does not touch the part that only the owner may use.
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

/// Maps a page of new records, and gives the first one to the caller.
unsafe fn map() -> *mut Record {
    const PAGE: usize = 4096 / size_of::<Record>();
    let page: *mut Record = memory::map(PAGE * size_of::<Record>()).cast();
    // SAFETY: the new page has room for that many records, and all-zero bytes are an empty record.
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
