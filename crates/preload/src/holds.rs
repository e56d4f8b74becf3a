//! What each thread holds for reading.
//!
//! A pthread rwlock has no room for its readers' tokens, and a thread that holds it for reading
//! may read-lock it again while a writer waits, so each thread keeps a list: lock, token, count.
//!
//! The list is a chain of *records* from type-stable memory (`mmap`, reused, never unmapped), found
//! through a thread-local word. Only the owner adds and removes entries, without atomic
//! read-modify-writes, and it never moves one. That lets another thread that releases a read lock
//! it did not take (glibc allows it in practice) search all records and take the entry away. The
//! two race only if both release the same acquisition, which is an error with any lock; a read
//! lock taken several times by one thread and handed to another while the first still releases its
//! own share of it is not supported.

use crate::abi::RwLock;
use crate::place;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering::*};
use latchwork::machine::Native;

/// Entries per record.
const ENTRIES: usize = 10;

/// One lock that a thread holds for reading.
#[repr(C)]
pub(crate) struct Entry {
    /// The lock's address; 0: the entry is free.
    lock: AtomicUsize,
    token: AtomicUsize,
    count: AtomicU32,
}

#[repr(C, align(64))]
struct Record {
    /// The next of all records.
    link: AtomicPtr<Record>,
    /// The next of the same thread's records.
    more: AtomicPtr<Record>,
    /// Whether a thread has it.
    taken: AtomicU32,
    entries: [Entry; ENTRIES],
}

/// A thread's own words.
#[repr(C)]
struct Local {
    first: *mut Record,
    /// Entries of the first record below this index may be in use.
    used: u32,
    /// Whether the records after the first may be in use.
    overflow: u32,
}

/// Where the eight bytes of a thread's words are that are zero while it reads nothing.
#[cfg(versioned)]
pub(crate) const ANY: usize = {
    assert!(core::mem::offset_of!(Local, overflow) == core::mem::offset_of!(Local, used) + 4);
    core::mem::offset_of!(Local, used)
};

/// All records, ever.
static ALL: AtomicPtr<Record> = AtomicPtr::new(null_mut());

#[cfg(target_arch = "x86_64")]
mod tls {
    //! The initial-exec model, which stable Rust has no switch for: two instructions instead of a
    //! call of `__tls_get_addr`, which may allocate.
    core::arch::global_asm!(
        ".pushsection .tbss.__latchwork_holds,\"awT\",@nobits",
        ".weak __latchwork_holds",
        ".hidden __latchwork_holds",
        ".type __latchwork_holds, @object",
        ".size __latchwork_holds, 16",
        ".balign 8",
        "__latchwork_holds:",
        ".zero 16",
        ".popsection",
    );

    #[inline(always)]
    pub(super) fn local() -> *mut super::Local {
        const { assert!(size_of::<super::Local>() == 16) };
        let address: *mut super::Local;
        // SAFETY: the symbol above is thread-local and defined in this link unit.
        unsafe {
            core::arch::asm!(
                "mov {0}, qword ptr [rip + __latchwork_holds@GOTTPOFF]",
                "add {0}, qword ptr fs:[0]",
                out(reg) address,
                options(nostack, pure, readonly),
            );
        }
        address
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod tls {
    use core::cell::UnsafeCell;

    std::thread_local! {
        static LOCAL: UnsafeCell<super::Local> = const {
            UnsafeCell::new(super::Local { first: core::ptr::null_mut(), used: 0, overflow: 0 })
        };
    }

    #[inline]
    pub(super) fn local() -> *mut super::Local {
        LOCAL.with(UnsafeCell::get)
    }
}

/// Readies what happens when a thread exits.
pub(crate) fn init() {
    Native::set_exit(thread_exit);
}

/// Whether the calling thread holds anything for reading.
#[inline(always)]
pub(crate) fn any() -> bool {
    // SAFETY: the thread's own words.
    unsafe { (*tls::local()).used | (*tls::local()).overflow != 0 }
}

/// The calling thread's entry for `lock`.
#[inline(always)]
pub(crate) fn find(lock: *const RwLock) -> Option<&'static Entry> {
    // SAFETY: the thread's own words; a record outlives its use.
    unsafe {
        let local = &*tls::local();
        if local.used != 0 {
            // Most threads hold one lock at a time.
            let entry = &(&(*local.first).entries)[0];
            if entry.lock.load(Relaxed) == lock.addr() {
                return Some(entry);
            }
        }
        if local.used > 1 || local.overflow != 0 { find_further(lock) } else { None }
    }
}

#[inline(never)]
fn find_further(lock: *const RwLock) -> Option<&'static Entry> {
    // SAFETY: as in `find`; a further record belongs to the same thread.
    unsafe {
        let mut record = (*tls::local()).first;
        while !record.is_null() {
            let entries: &'static [Entry; ENTRIES] = &(*record).entries;
            if let Some(entry) = entries.iter().find(|entry| entry.lock.load(Relaxed) == lock.addr()) {
                return Some(entry);
            }
            record = (*record).more.load(Relaxed);
        }
    }
    None
}

/// Notes that the calling thread has `lock` for reading, once, with `token`.
#[inline(always)]
pub(crate) fn add(lock: *const RwLock, token: usize) {
    // SAFETY: the thread's own words; entries are written by their owner.
    unsafe {
        let local = &mut *tls::local();
        if local.first.is_null() || local.used as usize == ENTRIES {
            return add_further(local, lock, token);
        }
        (&(*local.first).entries)[local.used as usize].set(lock, token);
        local.used += 1;
    }
}

#[cold]
unsafe fn add_further(local: &mut Local, lock: *const RwLock, token: usize) {
    // SAFETY: as in `add`.
    unsafe {
        if local.first.is_null() {
            local.first = take();
            local.used = 1;
            (*local.first).entries[0].set(lock, token);
            return set_exit_hook();
        }
        let mut record = local.first;
        loop {
            let entries = &(*record).entries;
            let free = entries.iter().find(|entry| entry.lock.load(Relaxed) == 0);
            if let Some(entry) = free {
                local.overflow |= u32::from(record != local.first);
                return entry.set(lock, token);
            }
            if (*record).more.load(Relaxed).is_null() {
                (*record).more.store(take(), Relaxed);
            }
            record = (*record).more.load(Relaxed);
        }
    }
}

/// Ends an entry of the calling thread; returns its token.
#[inline(always)]
fn remove(entry: &'static Entry) -> usize {
    let token = entry.token.load(Relaxed);
    entry.lock.store(0, Relaxed);
    // SAFETY: the thread's own words.
    unsafe {
        let local = &mut *tls::local();
        if local.used == 1 && local.overflow == 0 {
            local.used = 0; // it was the only one
        } else {
            shrink(local);
        }
    }
    token
}

/// Drops free entries from the end of the list.
#[inline(never)]
unsafe fn shrink(local: &mut Local) {
    // SAFETY: as in `find`.
    unsafe {
        while local.used != 0 && (&(*local.first).entries)[local.used as usize - 1].lock.load(Relaxed) == 0 {
            local.used -= 1;
        }
        if local.overflow != 0 {
            settle(local);
        }
    }
}

/// Notices that the further records are empty again.
unsafe fn settle(local: &mut Local) {
    // SAFETY: as in `find`.
    unsafe {
        let mut record = (*local.first).more.load(Relaxed);
        while !record.is_null() {
            if !(*record).is_empty() {
                return;
            }
            record = (*record).more.load(Relaxed);
        }
    }
    local.overflow = 0;
}

/// Forgets that the calling thread holds `lock`, whose memory is being made a new lock.
#[cold]
pub(crate) fn forget(lock: *const RwLock) {
    if let Some(entry) = find(lock) {
        remove(entry);
    }
}

impl Entry {
    #[inline(always)]
    fn set(&self, lock: *const RwLock, token: usize) {
        self.token.store(token, Relaxed);
        self.count.store(1, Relaxed);
        // (A) pairs with the search in `take_from_another`.
        self.lock.store(lock.addr(), Release);
    }

    /// Another acquisition by the owner; `false` if there were too many.
    #[inline(always)]
    pub(crate) fn again(&self) -> bool {
        let count = self.count.load(Relaxed);
        if count == u32::MAX {
            return false;
        }
        self.count.store(count + 1, Relaxed);
        true
    }

    /// A release by the owner; the token, if it was the last.
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

impl Record {
    fn is_empty(&self) -> bool {
        self.entries.iter().all(|entry| entry.lock.load(Relaxed) == 0)
    }
}

/// Takes one acquisition of `lock` away from whichever thread has it. `None`: nobody has;
/// `Some(None)`: the thread has it still, by another acquisition.
#[cold]
pub(crate) fn take_from_another(lock: *const RwLock) -> Option<Option<usize>> {
    let mut record = ALL.load(Acquire);
    while !record.is_null() {
        // SAFETY: records are never unmapped.
        let entries = unsafe { &(*record).entries };
        for entry in entries {
            // (A) the token and the count.
            if entry.lock.load(Acquire) != lock.addr() {
                continue;
            }
            if entry.count.load(Relaxed) > 1 {
                entry.count.fetch_sub(1, Relaxed);
                return Some(None);
            }
            let token = entry.token.load(Relaxed);
            if entry.lock.compare_exchange(lock.addr(), 0, AcqRel, Relaxed).is_ok() {
                return Some(Some(token));
            }
        }
        // SAFETY: as above.
        record = unsafe { (*record).link.load(Acquire) };
    }
    None
}

/// An empty record that no thread has.
#[cold]
fn take() -> *mut Record {
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

fn set_exit_hook() {
    Native::notice_exit();
}

/// Runs when a thread exits; again, if later destructors take read locks. A record that is not
/// empty stays taken: its locks may yet be released by another thread.
fn thread_exit() {
    // SAFETY: the thread's own words and records.
    unsafe {
        let local = &mut *tls::local();
        let mut record = local.first;
        *local = Local { first: null_mut(), used: 0, overflow: 0 };
        while !record.is_null() {
            let more = (*record).more.swap(null_mut(), Relaxed);
            if (*record).is_empty() {
                (*record).taken.store(0, Release);
            }
            record = more;
        }
    }
}

/// In a forked child: forgets what other threads held, and renews what this one holds.
pub(crate) fn after_fork(renew: unsafe fn(*mut RwLock) -> Option<usize>) {
    // SAFETY: there is one thread; records are never unmapped.
    unsafe {
        let mine = (*tls::local()).first;
        let is_mine = |record: *mut Record| {
            let mut one = mine;
            while !one.is_null() && one != record {
                one = (*one).more.load(Relaxed);
            }
            !one.is_null()
        };
        let mut record = ALL.load(Acquire);
        while !record.is_null() {
            let keep = is_mine(record);
            for entry in &(*record).entries {
                let lock = entry.lock.load(Relaxed);
                if lock == 0 {
                    continue;
                }
                let renewed = if keep { renew(core::ptr::with_exposed_provenance_mut(lock)) } else { None };
                match renewed {
                    Some(token) => entry.token.store(token, Relaxed),
                    None => entry.lock.store(0, Relaxed),
                }
            }
            if !keep {
                (*record).more.store(null_mut(), Relaxed);
                (*record).taken.store(0, Relaxed);
            }
            record = (*record).link.load(Relaxed);
        }
    }
}
