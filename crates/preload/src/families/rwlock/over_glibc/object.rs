//! The object over glibc's rwlock: its bytes, and its life from the first use on, also in a forked child.

use super::super::holds;
use super::{Bravo, LOST};
use crate::state::abi::*;
use crate::state::counters::{self, Family, Reason};
use crate::state::generation;
use crate::state::table::REAL;
use core::sync::atomic::{AtomicU32, Ordering::*};
use latchwork::locks::Token;
use libc::EBUSY;

/// `pthread_rwlock_t`, as glibc has it.
#[repr(C, align(8))]
pub(super) struct Object {
    /// glibc's reader count, and its state in the low bits ([`READER`]).
    pub(super) readers: AtomicU32,
    _glibc: [u32; 3],
    pub(super) bias: AtomicU32,
    memory: AtomicU32,
    /// The kernel's number of the thread that holds it for writing, or 0.
    pub(super) cur_writer: AtomicU32,
    /// Not 0: process-shared.
    pub(super) shared: AtomicU32,
    _elision: u32,
    pub(super) flags: AtomicU32,
    _pad2: u64,
    /// glibc's kind.
    pub(super) kind: AtomicU32,
    _serial: u32,
}

const _: () = {
    assert!(size_of::<Object>() == size_of::<RwLock>());
    assert!(core::mem::offset_of!(Object, cur_writer) == 24 && core::mem::offset_of!(Object, flags) == 36);
    assert!(core::mem::offset_of!(Object, kind) == 48);
    assert!(core::mem::offset_of!(Object, _serial) == core::mem::offset_of!(RwLock, serial));
};

/// Where the flags are: their offset in the object, in bytes.
#[cfg(versioned)]
pub(crate) const FLAGS: usize = core::mem::offset_of!(Object, flags);
/// Bytes of glibc's lock, the bias and the bias' memory.
pub(super) const GLIBC_AND_BIAS: usize = 24;
/// One reader in glibc's `__readers`. The bits below say in which phase the lock is.
pub(super) const READER: u32 = 1 << 3;

/// The object at `l`.
///
/// # Safety
///
/// `l` is a live rwlock.
#[inline(always)]
pub(super) unsafe fn object<'a>(l: *mut RwLock) -> &'a Object {
    // SAFETY: the caller's rwlock is live, and has as many bytes, which all threads access as atomics.
    unsafe { &*l.cast() }
}

/// The lock in the object at `l`.
///
/// # Safety
///
/// `l` is a live rwlock.
#[inline(always)]
pub(super) unsafe fn bravo<'a, B: Bravo>(l: *mut RwLock) -> &'a B {
    // SAFETY: an object begins with glibc's lock and the bias (asserted in `install`). Zero bytes, which an initialiser
    // writes, are an unlocked `B`.
    unsafe { &*l.cast() }
}

/// Whether each read acquisition through a slot is noted in the thread's list: no slot says which thread filled it.
pub(super) const fn is_listed<B: Bravo>() -> bool {
    !B::RECORDS
}

/// The kernel's number of the calling thread, by which glibc knows a writer.
pub(super) fn kernel_id() -> u32 {
    // SAFETY: the call takes nothing and always succeeds.
    unsafe { libc::syscall(libc::SYS_gettid) as u32 }
}

/// Which library serves an object.
#[derive(PartialEq, Eq)]
pub(super) enum Owner {
    /// BRAVO over glibc.
    Both,
    Glibc,
}

/// Makes the rwlock ready, and counts a lock call if it may be biased.
///
/// # Safety
///
/// The rwlock is live.
#[cold]
#[inline(never)]
pub(super) unsafe fn attend<B: Bravo>(l: *mut RwLock) -> Owner {
    // SAFETY: the caller's rwlock is live.
    if unsafe { make_ready::<B>(l) } == Owner::Glibc {
        return Owner::Glibc;
    }
    counters::call(Family::RwLock);
    Owner::Both
}

/// Brings the rwlock up to the current generation, claims and counts it at its first use, and says what serves it.
///
/// # Safety
///
/// The rwlock is live.
pub(super) unsafe fn make_ready<B: Bravo>(l: *mut RwLock) -> Owner {
    // SAFETY: the caller's rwlock is live.
    let object = unsafe { object(l) };
    loop {
        let word = object.flags.load(Acquire); // pairs with (A) in `generation::repair`
        if word & RWLOCK_OURS != 0 {
            if generation::is_current(word) {
                return if word & IN_SHARED_MEMORY != 0 { Owner::Glibc } else { Owner::Both };
            }
            // SAFETY: the rwlock is live and claimed. `repair` lets one thread at a time mend it, before any uses it.
            generation::repair(&object.flags, |_| unsafe { mend::<B>(l) });
        } else if object.kind.load(Relaxed) == PREFERS_WRITERS {
            counters::foreign_call(Reason::RwLockPrefersWriters);
            return Owner::Glibc;
        } else if object.shared.load(Relaxed) != 0 {
            counters::foreign_call(Reason::RwLockShared);
            return Owner::Glibc;
        } else if object.flags.compare_exchange(word, generation::RWLOCK_WORD.get(), Relaxed, Relaxed).is_ok()
        {
            counters::object(Family::RwLock);
        }
    }
}

/// In a forked child: ends the revocations of threads that the child does not have. glibc's lock stays as it is.
///
/// # Safety
///
/// The rwlock is live, and no other thread uses it.
pub(super) unsafe fn mend<B: Bravo>(l: *mut RwLock) {
    // SAFETY: the lock is the caller's alone.
    unsafe {
        let (object, lock) = (object(l), bravo::<B>(l));
        // Only the slots of the thread that forked are left.
        let recorded = lock.has_recorded_read();
        object.bias.store(0, Relaxed);
        object.memory.store(0, Relaxed);
        if recorded {
            lock.restore_recorded_reads();
        }
        if is_listed::<B>() {
            let is_glibc_s = |token| token == ().into_word();
            holds::renew(&*l, is_glibc_s, || Some(lock.try_read().map_or(LOST, Token::into_word)));
        }
    }
}

/// Whether glibc's rwlock leaves the bytes alone that BRAVO uses, and has its own where this module looks at them. Tried
/// with one object that no other thread uses.
pub(crate) fn is_as_expected() -> bool {
    /// In all bytes that are not glibc's.
    const MARK: u32 = 0xa5a5_a5a5;
    let mark = || AtomicU32::new(MARK);
    let tried = Object {
        readers: AtomicU32::new(0),
        _glibc: [0; 3],
        bias: mark(),
        memory: mark(),
        cur_writer: AtomicU32::new(0),
        shared: AtomicU32::new(0),
        _elision: 0,
        flags: mark(),
        _pad2: 0,
        kind: AtomicU32::new(0),
        _serial: MARK,
    };
    let l = (&raw const tried).cast_mut().cast::<RwLock>();
    let marked = || [&tried.bias, &tried.memory, &tried.flags].iter().all(|word| word.load(Relaxed) == MARK);
    let holds = |readers: u32, writer: u32| {
        marked()
            && tried.readers.load(Relaxed) / READER == readers
            && tried.cur_writer.load(Relaxed) == writer
    };
    let me = kernel_id();
    // SAFETY: zero bytes where glibc's fields are make an unlocked rwlock, which this thread alone uses.
    unsafe {
        let unlock = || REAL.rwlock_unlock.get()(l) == 0;
        REAL.rwlock_rdlock.get()(l) == 0
            && REAL.rwlock_tryrdlock.get()(l) == 0
            && holds(2, 0)
            && REAL.rwlock_trywrlock.get()(l) == EBUSY
            && unlock()
            && unlock()
            && holds(0, 0)
            && REAL.rwlock_wrlock.get()(l) == 0
            && holds(0, me)
            && REAL.rwlock_tryrdlock.get()(l) == EBUSY
            && unlock()
            && REAL.rwlock_trywrlock.get()(l) == 0
            && holds(0, me)
            && unlock()
            && holds(0, 0)
            && REAL.rwlock_destroy.get()(l) == 0
            && marked()
    }
}
