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
//!
//! The first record is looked through. Entries of further records are found through an
//! [`Index`], so that a thread pays the same for each lock however many it holds.
//!
//! An entry is a hint: memory that was a lock which a thread read, and never released, may be another lock now. So each
//! object that is entered gets a *serial* number of its own, which an initialiser, static or not, clears. An entry
//! counts only while the object has the serial that the entry has.

use crate::abi::RwLock;
use crate::index::Index;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering::*};
use latchwork::machine::Native;
use records::{ALL, ENTRIES, Further, Record, all, take};

mod records;

/// One lock that a thread holds for reading.
#[repr(C)]
pub(crate) struct Entry {
    /// The lock's address; 0: the entry is free.
    lock: AtomicUsize,
    /// The token; of a free entry of a further record the address of the next that is free.
    token: AtomicUsize,
    count: AtomicU32,
    /// The lock's serial.
    serial: AtomicU32,
}

/// A thread's own words.
#[repr(C)]
struct Local {
    first: *mut Record,
    /// Entries of the first record below this index may be in use.
    used: u32,
    /// Entries of further records that are in use, or were until another thread took them away.
    overflow: u32,
}

/// Where the eight bytes of a thread's words are that are zero while it reads nothing.
#[cfg(versioned)]
pub(crate) const ANY: usize = {
    assert!(core::mem::offset_of!(Local, overflow) == core::mem::offset_of!(Local, used) + 4);
    core::mem::offset_of!(Local, used)
};

/// In a forked child: the first record of the thread that forked.
static FORKER: AtomicPtr<Record> = AtomicPtr::new(null_mut());

/// The last serial that a lock got.
static SERIALS: AtomicU32 = AtomicU32::new(0);

/// The lock's serial, which it gets if it has none.
#[inline(always)]
fn serial(lock: &RwLock) -> u32 {
    match lock.serial.load(Relaxed) {
        0 => number(lock),
        serial => serial,
    }
}

/// Numbers are used again after four thousand million locks: that matters only if the two have the same address, and
/// the first was left behind by a thread that comes to use the second.
#[cold]
#[inline(never)]
fn number(lock: &RwLock) -> u32 {
    let serial = SERIALS.fetch_add(1, Relaxed).wrapping_add(1).max(1);
    match lock.serial.compare_exchange(0, serial, Relaxed, Relaxed) {
        Ok(_) => serial,
        Err(first) => first, // another reader's
    }
}

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
///
/// # Safety
///
/// `lock` is a live object of ours.
#[inline(always)]
pub(crate) unsafe fn find(lock: *const RwLock) -> Option<&'static Entry> {
    // SAFETY: the thread's own words; a record outlives its use.
    unsafe {
        let local = &*tls::local();
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
    // SAFETY: as in `find`.
    unsafe {
        let local = &*tls::local();
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
    // SAFETY: as in `find`; the index is the owner's.
    unsafe {
        let entry = (*(*local.first).further.get()).index.get(lock.addr())?;
        if entry.lock.load(Relaxed) == lock.addr() { entry.valid(lock) } else { None }
    }
}

/// Notes that the calling thread has `lock` for reading, once, with `token`.
///
/// # Safety
///
/// `lock` is a live object of ours.
#[inline(always)]
pub(crate) unsafe fn add(lock: *const RwLock, token: usize) {
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
#[inline(never)]
unsafe fn add_further(local: &mut Local, lock: *const RwLock, token: usize) {
    // SAFETY: as in `add`; the index is the owner's.
    unsafe {
        if local.first.is_null() {
            local.first = take();
            (*local.first).first.store(local.first, Relaxed);
            local.used = 1;
            (*local.first).entries[0].set(lock, token);
            return set_exit_hook();
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

/// One more record.
unsafe fn extend(first: *mut Record, further: &mut Further) {
    // SAFETY: the record is the caller's from now on; records are never unmapped.
    unsafe {
        let record = take();
        (*record).first.store(first, Relaxed);
        (*record).more.store((*first).more.load(Relaxed), Relaxed);
        (*first).more.store(record, Release); // pairs with `renew`
        let entries: &'static [Entry; ENTRIES] = &(*record).entries;
        entries.iter().for_each(|entry| further.give_back(entry));
    }
}

/// Takes the entries out of the index that other threads have taken away.
#[cold]
unsafe fn sweep(local: &mut Local, further: &mut Further) {
    // SAFETY: the owner's record.
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

/// Ends an entry of the calling thread; returns its token.
#[inline(always)]
fn remove(entry: &'static Entry) -> usize {
    let token = entry.token.load(Relaxed);
    // SAFETY: the thread's own words.
    unsafe {
        let local = &mut *tls::local();
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

/// Drops free entries from the end of the first record.
#[inline(never)]
unsafe fn shrink(local: &mut Local) {
    // SAFETY: as in `find`.
    unsafe {
        while local.used != 0 && (&(*local.first).entries)[local.used as usize - 1].lock.load(Relaxed) == 0 {
            local.used -= 1;
        }
    }
}

/// Ends an entry of a thread that uses further records.
#[inline(never)]
unsafe fn shrink_further(local: &mut Local, entry: &'static Entry) {
    // SAFETY: as in `find`; the index is the owner's.
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

impl Entry {
    /// # Safety
    ///
    /// `lock` is a live object of ours.
    #[inline(always)]
    unsafe fn set(&self, lock: *const RwLock, token: usize) {
        self.token.store(token, Relaxed);
        self.count.store(1, Relaxed);
        // SAFETY: the caller's lock is a live object of ours.
        self.serial.store(serial(unsafe { &*lock }), Relaxed);
        // (A) pairs with the search in `take_from_another`.
        self.lock.store(lock.addr(), Release);
    }

    /// The entry, if it is not left from another lock at the address of this one. Else it is dropped.
    ///
    /// # Safety
    ///
    /// `lock` is a live object of ours, and the entry is the calling thread's.
    #[inline(always)]
    unsafe fn valid(&'static self, lock: *const RwLock) -> Option<&'static Self> {
        // SAFETY: the caller's lock is a live object of ours.
        if self.is_of(unsafe { &*lock }) {
            return Some(self);
        }
        self.drop_stale();
        None
    }

    #[inline(always)]
    fn is_of(&self, lock: &RwLock) -> bool {
        // A lock without a serial is in nobody's list.
        self.serial.load(Relaxed) == lock.serial.load(Relaxed)
    }

    #[cold]
    #[inline(never)]
    fn drop_stale(&'static self) {
        remove(self);
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

/// Takes one acquisition of `lock` away from whichever thread has it. `None`: nobody has;
/// `Some(None)`: the thread has it still, by another acquisition.
#[cold]
pub(crate) fn take_from_another(lock: &RwLock) -> Option<Option<usize>> {
    let address = core::ptr::from_ref(lock).addr();
    all(|record, entry| {
        // (A) the token, the count and the serial.
        if entry.lock.load(Acquire) != address || !entry.is_of(lock) {
            return None;
        }
        if entry.count.load(Relaxed) > 1 {
            entry.count.fetch_sub(1, Relaxed);
            return Some(None);
        }
        let token = entry.token.load(Relaxed);
        entry.lock.compare_exchange(address, 0, AcqRel, Relaxed).ok()?;
        // If the owner exits meanwhile, the next owner of its first record looks through its index, and finds nothing.
        // SAFETY: records are never unmapped.
        if let Some(first) = unsafe { record.first.load(Relaxed).as_ref() } {
            first.lost.fetch_add(1, Relaxed);
        }
        Some(Some(token))
    })
}

/// In a forked child, where nobody uses `lock` yet: gives the thread that forked, if it reads `lock`, the token of an
/// acquisition anew. `keeps` are tokens that need none.
pub(crate) fn renew(lock: &RwLock, keeps: impl Fn(usize) -> bool, acquire: impl FnOnce() -> Option<usize>) {
    let address = core::ptr::from_ref(lock).addr();
    let mut record = FORKER.load(Acquire);
    // SAFETY: records are never unmapped. The part that is its owner's alone is not touched.
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
        if let Some(first) = record.as_ref() {
            let further = &mut *first.further.get();
            core::mem::replace(&mut further.index, Index::EMPTY).free();
            further.free = 0;
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

/// In a forked child: forgets what other threads held. What this one holds is renewed when the lock is used.
pub(crate) fn after_fork() {
    // SAFETY: there is one thread; records are never unmapped.
    unsafe {
        let mine = (*tls::local()).first;
        FORKER.store(mine, Release);
        let mut record = ALL.load(Acquire);
        while !record.is_null() {
            if mine.is_null() || (*record).first.load(Relaxed) != mine {
                (*record).entries.iter().for_each(|entry| entry.lock.store(0, Relaxed));
                (*record).more.store(null_mut(), Relaxed);
                (*record).first.store(null_mut(), Relaxed);
                (*record).lost.store(0, Relaxed);
                let further = &mut *(*record).further.get();
                core::mem::replace(&mut further.index, Index::EMPTY).free();
                further.free = 0;
                (*record).taken.store(0, Relaxed);
            }
            record = (*record).link.load(Relaxed);
        }
    }
}
