//! What each thread holds for reading.
//!
//! A pthread rwlock has no room for its readers' tokens. And a thread that holds it for reading may read-lock it again
//! while a writer waits. So each thread keeps a list of entries: lock, token, count.
//!
//! # Which thread changes what
//!
//! | thread | operation |
//! |---|---|
//! | the owner | adds and removes entries, without atomic read-modify-writes; it never moves an entry |
//! | another thread | takes an entry away, when it releases a read lock that it did not take: glibc allows that in practice ([`take_from_another`]) |
//! | the child of a fork | forgets the other threads' lists, and renews the tokens of its own ([`after_fork`], [`renew`]) |
//!
//! Not supported: while a thread releases another's read lock, any thread ends a read of that lock of its own, or reads it again, or a
//! second thread releases another's. The releasing thread may find the very entry that its owner is changing, and an acquisition
//! is lost or never ends. (An entry's count and its lock are two words, which the owner changes by plain stores.)
//!
//! # Where entries are
//!
//! The list is a chain of *records* ([`records`]) from memory that is only ever used for records, so any thread may search
//! it at any time. A thread-local word finds the first record ([`local`]). The owner searches the first record one by one,
//! and finds entries of further records through an [`Index`]: a thread pays the same for each lock however many it holds.
//!
//! # When an entry counts
//!
//! An entry is a hint. A thread may have read a lock and never released it, and the memory may be another lock now. So each
//! lock that is entered gets a *serial* of its own, which an initialiser clears, whether static or not. An entry counts only
//! while the lock has the serial that the entry has ([`entry`]).

use crate::state::abi::RwLock;
use crate::state::exit;
use crate::state::index::Index;
use core::ptr::null_mut;
use core::sync::atomic::Ordering::*;
use entry::Entry;
use latchwork::machine::Native;
#[cfg(versioned)]
pub(crate) use local::{ANY, Words};
use local::{Local, local};
pub(crate) use others::{after_fork, renew, take_from_another};
use records::{ENTRIES, Further, Record, take};

mod entry;
mod local;
mod others;
mod records;

/// Readies what happens when a thread exits.
pub(crate) fn init() {
    exit::Use::HOLDS.set(thread_exit);
    exit::init();
}

/// Whether the calling thread's list may have an entry.
#[inline(always)]
pub(crate) fn any() -> bool {
    // SAFETY: the thread's own words.
    unsafe { (*local()).used | (*local()).overflow != 0 }
}

/// The calling thread's entry for `lock`.
///
/// # Safety
///
/// `lock` is a live rwlock of ours.
#[inline(always)]
pub(crate) unsafe fn find(lock: *const RwLock) -> Option<&'static Entry> {
    // SAFETY: the thread's own words; records are never unmapped.
    unsafe {
        let local = &*local();
        if local.used != 0 {
            // Most threads hold one lock at a time.
            let entry = &(&(*local.first).entries)[0];
            if entry.lock.load(Relaxed) == lock.addr() {
                return entry.valid(lock);
            }
        }
        if local.used > 1 || local.overflow != 0 { find_further(lock) } else { None }
    }
}

#[inline(never)]
unsafe fn find_further(lock: *const RwLock) -> Option<&'static Entry> {
    // SAFETY: the thread's own words; records are never unmapped.
    unsafe {
        let local = &*local();
        let entries: &'static [Entry; ENTRIES] = &(*local.first).entries;
        for entry in entries.iter().take(local.used as usize) {
            if entry.lock.load(Relaxed) == lock.addr() {
                return entry.valid(lock);
            }
        }
        if local.overflow == 0 { None } else { find_indexed(local, lock) }
    }
}

#[inline(never)]
unsafe fn find_indexed(local: &Local, lock: *const RwLock) -> Option<&'static Entry> {
    // SAFETY: records are never unmapped, and only the calling thread uses its index.
    unsafe {
        let entry = (*(*local.first).further.get()).index.get(lock.addr())?;
        if entry.lock.load(Relaxed) == lock.addr() { entry.valid(lock) } else { None }
    }
}

/// Notes that the calling thread holds `lock` for reading, once, with `token`.
///
/// # Safety
///
/// `lock` is a live rwlock of ours.
#[inline(always)]
pub(crate) unsafe fn add(lock: *const RwLock, token: usize) {
    // SAFETY: the thread's own words; only the owner of a free entry writes it.
    unsafe {
        let local = &mut *local();
        if local.first.is_null() || local.used as usize == ENTRIES {
            return add_further(local, lock, token);
        }
        (&(*local.first).entries)[local.used as usize].set(lock, token);
        local.used += 1;
    }
}

#[cold]
#[inline(never)]
unsafe fn add_further(local: &mut Local, lock: *const RwLock, token: usize) {
    // SAFETY: only the owner of a free entry writes it, and only the calling thread uses its index.
    unsafe {
        if local.first.is_null() {
            local.first = take();
            (*local.first).first.store(local.first, Relaxed);
            local.used = 1;
            (*local.first).entries[0].set(lock, token);
            Native::notice_exit();
            return;
        }
        let entries = &(*local.first).entries;
        if let Some(entry) = entries.iter().find(|entry| entry.lock.load(Relaxed) == 0) {
            return entry.set(lock, token);
        }
        let further = &mut *(*local.first).further.get();
        if further.free == 0 {
            extend(local.first, further);
        }
        let entry: &'static Entry = &*core::ptr::with_exposed_provenance(further.free);
        further.free = entry.token.load(Relaxed);
        entry.set(lock, token);
        match further.index.insert(lock.addr(), entry) {
            None => local.overflow += 1,
            Some(lost) => further.give_back(lost), // another thread has taken it away
        }
    }
}

/// Adds one record to the thread's chain.
unsafe fn extend(first: *mut Record, further: &mut Further) {
    // SAFETY: `take` gives the record to the calling thread, and records are never unmapped.
    unsafe {
        let record = take();
        (*record).first.store(first, Relaxed);
        (*record).more.store((*first).more.load(Relaxed), Relaxed);
        (*first).more.store(record, Release); // pairs with `renew`
        let entries: &'static [Entry; ENTRIES] = &(*record).entries;
        entries.iter().for_each(|entry| further.give_back(entry));
    }
}

/// Ends an entry of the calling thread; returns its token.
#[inline(always)]
fn remove(entry: &'static Entry) -> usize {
    let token = entry.token.load(Relaxed);
    // SAFETY: the thread's own words.
    unsafe {
        let local = &mut *local();
        if local.overflow != 0 {
            shrink_further(local, entry);
        } else {
            entry.lock.store(0, Relaxed);
            if local.used == 1 {
                local.used = 0; // it was the only one
            } else {
                shrink(local);
            }
        }
    }
    token
}

/// Lowers `used` past the free entries at the end of the first record.
#[inline(never)]
unsafe fn shrink(local: &mut Local) {
    // SAFETY: the first record exists while `used` is not 0.
    unsafe {
        while local.used != 0 && (&(*local.first).entries)[local.used as usize - 1].lock.load(Relaxed) == 0 {
            local.used -= 1;
        }
    }
}

/// Ends an entry of a thread that uses further records.
#[inline(never)]
unsafe fn shrink_further(local: &mut Local, entry: &'static Entry) {
    // SAFETY: records are never unmapped, and only the calling thread uses its index.
    unsafe {
        let first = &*local.first;
        let further = &mut *first.further.get();
        let lock = entry.lock.load(Relaxed);
        entry.lock.store(0, Relaxed);
        if !first.entries.as_ptr_range().contains(&core::ptr::from_ref(entry)) {
            further.index.remove(lock);
            further.give_back(entry);
            local.overflow -= 1;
        }
        if first.lost.load(Relaxed) != 0 {
            sweep(local, further);
        }
        shrink(local);
    }
}

/// Removes from the index the entries that other threads have taken away.
#[cold]
unsafe fn sweep(local: &mut Local, further: &mut Further) {
    // SAFETY: the thread's own record.
    unsafe { (*local.first).lost.store(0, Relaxed) };
    let old = core::mem::replace(&mut further.index, Index::EMPTY);
    local.overflow = 0;
    old.each(|lock, entry| {
        if entry.lock.load(Relaxed) == lock {
            further.index.insert(lock, entry);
            local.overflow += 1;
        } else {
            further.give_back(entry);
        }
    });
    old.free();
}

/// Runs when a thread exits, and again if later destructors take read locks. A record that is not empty stays taken, because
/// another thread may yet release its locks.
fn thread_exit() {
    // SAFETY: the thread's own words and records.
    unsafe {
        let local = &mut *local();
        let mut record = local.first;
        *local = Local { first: null_mut(), used: 0, overflow: 0 };
        if let Some(first) = record.as_ref() {
            (*first.further.get()).clear();
            first.lost.store(0, Relaxed);
        }
        while !record.is_null() {
            let more = (*record).more.swap(null_mut(), Relaxed);
            (*record).first.store(null_mut(), Relaxed);
            if (*record).is_empty() {
                (*record).taken.store(0, Release);
            }
            record = more;
        }
    }
}
