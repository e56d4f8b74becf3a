//! The pthread objects: which of glibc's bytes this library uses, and for what.
//!
//! Three rules hold for every object:
//!
//! - A byte that a static initialiser of glibc's writes keeps the meaning that glibc gives it.
//! - A byte by which glibc marks an object that this library leaves to glibc keeps its meaning too.
//! - All other bytes are this library's. All-zero bytes are an unlocked object.
//!
//! The module of each family says which states its object has, and which functions change them.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use latchwork::locks::condvar::RawCondvar;
use latchwork::locks::semaphore::RawSemaphore;
use latchwork::machine::Native;
use libc::c_void;

/// Bytes for the raw lock at the start of a mutex: glibc's `__kind` follows them.
pub(crate) const MUTEX_SPACE: usize = 16;
/// Bytes for the raw lock at the start of a rwlock. The words of this library need the rest.
pub(crate) const RWLOCK_SPACE: usize = 32;

/// `pthread_mutex_t` and `mtx_t`, 40 bytes. The module [`mutex`](crate::families::mutex) has the table of its states.
#[repr(C, align(8))]
pub(crate) struct Mutex {
    /// Bytes 0 to 15: the raw lock.
    pub raw: UnsafeCell<[u8; MUTEX_SPACE]>,
    /// Bytes 16 to 19. Low half: glibc's `__kind` (0 to 3, and the flags [`GLIBC_MUTEX`]), and [`SERVED`].
    /// High half: the fork generation in which this library last used the mutex.
    pub kind: AtomicU32,
    /// Bytes 20 to 23: how many times the owner holds a recursive mutex; 1 in an error-checking mutex that is held. In a mutex
    /// that [`NAMES_HOLDER`]: how many waiters its unlock will wake.
    pub count: AtomicU32,
    /// Bytes 24 to 31. Low [`identity::BITS`](super::identity::BITS): the thread that holds a recursive or an
    /// error-checking mutex, or one that [`NAMES_HOLDER`]. The bits above: how many waiters of condition variables will lock the mutex again. Only
    /// the holder writes either part.
    pub owner: AtomicU64,
    /// Bytes 32 to 39: the token that the raw lock's `unlock` needs. In a mutex that [`NAMES_HOLDER`]: where the waiters sleep that
    /// its unlock will wake.
    pub token: AtomicUsize,
}

impl Mutex {
    /// Whether the calling thread, which holds this recursive mutex, has locked it more than once.
    #[inline(always)]
    pub(crate) fn is_nested(&self) -> bool {
        // SAFETY: bytes 4 to 7 are glibc's `__count` in a mutex of glibc's, and are aligned to four. Only the holder writes them.
        let of_glibc = unsafe { &*self.raw.get().cast::<AtomicU32>().add(1) };
        // glibc knows no mutex with this bit.
        let count = if self.kind.load(Relaxed) & SERVED != 0 { &self.count } else { of_glibc };
        count.load(Relaxed) > 1
    }

    /// Leaves the mutex, which no thread has used or glibc has served, to glibc. `false`: this library has used it before.
    pub(crate) fn leave_to_glibc(&self) -> bool {
        let is_plain = |kind: u32| kind & !(RECURSIVE | ERRORCHECK | ADAPTIVE) == 0;
        let leave = |kind| is_plain(kind).then_some(kind | LEFT_TO_GLIBC);
        match self.kind.fetch_update(Relaxed, Relaxed, leave) {
            Ok(_) => true,
            Err(kind) => kind & SERVED == 0 || kind & GLIBC_MUTEX != 0,
        }
    }

    /// Whether [`leave_to_glibc`](Self::leave_to_glibc) was called, or the user's choice leaves the mutex to glibc, and a thread holds it.
    pub(crate) fn is_left_to_glibc_and_held(&self) -> bool {
        // SAFETY: bytes 0 to 3 are glibc's `__lock`, are aligned to four, and all threads access them as atomics.
        let lock = unsafe { &*self.raw.get().cast::<AtomicU32>() };
        self.kind.load(Relaxed) & (GLIBC_MUTEX | SERVED | LEFT_TO_GLIBC) == LEFT_TO_GLIBC
            && lock.load(Relaxed) != 0
    }
}

/// `pthread_rwlock_t`, 56 bytes. The module [`rwlock`](crate::families::rwlock) has the table of its states.
#[repr(C, align(8))]
pub(crate) struct RwLock {
    /// Bytes 0 to 31: the raw lock. Until [`RWLOCK_OURS`] is set, bytes 28 to 31 are glibc's `__shared`: a value other
    /// than 0 makes the object process-shared, and glibc's.
    pub raw: UnsafeCell<[u8; RWLOCK_SPACE]>,
    /// Bytes 32 to 39: the thread that holds it for writing, or 0.
    pub owner: AtomicU64,
    /// Bytes 40 to 47: the token that the raw lock's `unlock_write` needs.
    pub token: AtomicUsize,
    /// Bytes 48 to 51. Low half: [`RWLOCK_OURS`] once this library has claimed the object; before that glibc's kind,
    /// of which [`PREFERS_WRITERS`] makes the object glibc's. High half: the fork generation.
    pub flags: AtomicU32,
    /// Bytes 52 to 55: a number that tells this lock from earlier locks at the same address; see
    /// [`holds`](crate::families::rwlock::holds). These bytes are padding in glibc's object, which its static
    /// initialisers need not clear, so they mean nothing until the object is claimed.
    pub serial: AtomicU32,
}

impl RwLock {
    /// Changes the flags from `flags` to `ours`, and clears the serial, in one step. Returns `false` if another thread
    /// has changed the flags first.
    pub(crate) fn claim(&self, flags: u32, ours: u32) -> bool {
        let both = |flags: u32, serial: u32| {
            // SAFETY: source and target have eight bytes each, and every value of them is valid.
            unsafe { core::mem::transmute::<[u32; 2], u64>([flags, serial]) }
        };
        // SAFETY: `flags` and `serial` are adjacent and together aligned to eight bytes (asserted below). A thread that
        // reads one of them at the same time sees the old or the new value: the processors that this library supports
        // order accesses of both sizes.
        let words = unsafe { &*(&raw const self.flags).cast::<AtomicU64>() };
        let old = both(flags, self.serial.load(Relaxed));
        words.compare_exchange(old, both(ours, 0), Relaxed, Relaxed).is_ok()
    }

    /// Leaves the rwlock, which no thread has used or glibc has served, to glibc. `false`: these bytes are in use, for BRAVO over
    /// glibc's lock.
    pub(crate) fn leave_to_glibc(&self) -> bool {
        let mark = self.high_half_of_owner().compare_exchange(0, RWLOCK_LEFT_TO_GLIBC, Relaxed, Relaxed);
        mark.is_ok() || self.is_left_to_glibc()
    }

    /// Whether [`leave_to_glibc`](Self::leave_to_glibc) was called. No rwlock of ours looks like that.
    #[inline(always)]
    pub(crate) fn is_left_to_glibc(&self) -> bool {
        self.high_half_of_owner().load(Relaxed) == RWLOCK_LEFT_TO_GLIBC
    }

    /// The same, and a thread holds the rwlock.
    pub(crate) fn is_left_to_glibc_and_held(&self) -> bool {
        /// glibc's `__readers`: the number of readers is above three flags.
        const READER_SHIFT: u32 = 3;
        const WRITE_LOCKED: u32 = 2;
        // SAFETY: bytes 0 to 3 are glibc's `__readers`, are aligned to four, and all threads access them as atomics.
        let readers = unsafe { &*self.raw.get().cast::<AtomicU32>() }.load(Relaxed);
        let is_ours = self.flags.load(Relaxed) & RWLOCK_OURS != 0;
        !is_ours && self.is_left_to_glibc() && (readers >> READER_SHIFT != 0 || readers & WRITE_LOCKED != 0)
    }

    fn high_half_of_owner(&self) -> &AtomicU32 {
        // SAFETY: bytes 36 to 39 lie in the object, are aligned to four, and all threads access them as atomics. The
        // processors that this library supports order accesses of four and of eight bytes.
        unsafe { &*(&raw const self.owner).cast::<AtomicU32>().add(1) }
    }

    /// glibc's `__shared`. In an object of ours these are bytes of the raw lock.
    pub(crate) fn shared(&self) -> &AtomicU32 {
        // SAFETY: bytes 28 to 31 lie in `raw`, are aligned to four, and all threads access them as atomics.
        unsafe { &*self.raw.get().cast::<u8>().add(28).cast() }
    }
}

/// `pthread_cond_t` and `cnd_t`, 48 bytes.
#[repr(C, align(8))]
pub(crate) struct Cond {
    /// Bytes 0 to 7.
    pub raw: RawCondvar<Native>,
    /// Bytes 8 to 15: the mutex of its waiters, or null if its unlock wakes no waiters.
    pub mutex: AtomicPtr<Mutex>,
    _unused: [u32; 2],
    /// Bytes 24 to 39 contain glibc's `__wrefs`, at 28 (glibc 2.41 and later) or at 36 (before). Its lowest bit marks
    /// an object of glibc's. In an object of ours they stay zero.
    _wrefs: [u32; 4],
    /// Bytes 40 to 43. Low half: [`COND_COUNTED`] and [`COND_MONOTONIC`]. High half: the fork generation.
    pub flags: AtomicU32,
    _unused_too: u32,
}

/// `sem_t`, 32 bytes. At offset 8 glibc says whether it is process-shared: with 0 or 128.
#[repr(C, align(8))]
pub(crate) struct Sem {
    /// Bytes 0 to 7: glibc's value and waiters. They are zero in a semaphore of ours, so that glibc's own functions,
    /// if a library calls them past this one, find no unit.
    _value: [u32; 2],
    /// Bytes 8 to 11: [`SEM_OURS`], or glibc's.
    pub mark: AtomicU32,
    /// From byte 12.
    pub raw: RawSemaphore<Native>,
    _rest: [u32; 3],
}

/// `pthread_spinlock_t`: the one word of the lock. The module [`spin`](crate::families::spin) says which library serves it.
pub(crate) type Spin = u32;

/// An attributes object, which only glibc reads.
pub(crate) type Attr = c_void;

const _: () = {
    assert!(size_of::<Mutex>() == 40 && size_of::<RwLock>() == 56 && size_of::<Cond>() == 48);
    assert!(core::mem::offset_of!(Mutex, kind) == 16 && core::mem::offset_of!(Cond, flags) == 40);
    assert!(core::mem::offset_of!(Cond, _wrefs) == 24);
    assert!(core::mem::offset_of!(RwLock, flags) == 48 && core::mem::offset_of!(RwLock, serial) == 52);
    assert!(size_of::<Sem>() == 32 && core::mem::offset_of!(Sem, mark) == 8);
};

// glibc's `__kind` of a mutex, low two bits.
pub(crate) const NORMAL: u32 = 0;
pub(crate) const RECURSIVE: u32 = 1;
pub(crate) const ERRORCHECK: u32 = 2;
pub(crate) const ADAPTIVE: u32 = 3;

/// Flags in glibc's `__kind`, any of which makes the mutex glibc's: robust, priority-inheriting, priority-protected,
/// process-shared. A destroyed mutex has them all.
pub(crate) const GLIBC_MUTEX: u32 = 0xf0;
/// Of [`GLIBC_MUTEX`]: robust.
pub(crate) const ROBUST: u32 = 0x10;
/// Of [`GLIBC_MUTEX`]: priority-inheriting or -protected.
pub(crate) const PRIORITY: u32 = 0x60;
/// Of [`GLIBC_MUTEX`]: process-shared.
pub(crate) const SHARED: u32 = 0x80;

/// Mutex: this library has used it. glibc's functions know no kind with this bit and refuse it, with EINVAL, before they
/// touch the lock. So a library that binds past this one neither gets a mutex that is held nor harms its waiters.
pub(crate) const SERVED: u32 = 4;

/// Mutex with [`SERVED`]: a normal one that a thread has waited with, for a condition variable. Its holder is recorded, and its unlock
/// wakes the waiters that the holder has notified ([`holder`](crate::families::mutex::holder)).
pub(crate) const NAMES_HOLDER: u32 = 0x8000;

/// Mutex with [`SERVED`], or rwlock with [`RWLOCK_OURS`]: the number of the lock that serves it
/// ([`choice`](super::choice)). 0 in a process without a lock per lock.
pub(crate) const CHOICE: u32 = 0x3f00;
/// Mutex without [`SERVED`]: `LATCHWORK_LOCKS` leaves it to glibc, or glibc has served it before set-up. It is glibc's own flag `PTHREAD_MUTEX_NO_ELISION_NP`,
/// which glibc's functions ignore where they do not elide locks, and respect where they do.
pub(crate) const LEFT_TO_GLIBC: u32 = 0x200;
/// The same of a rwlock, in bytes 36 to 39, which glibc does not use ([`RwLock::is_left_to_glibc`]). They are the high half
/// of `owner` in a rwlock of ours, which is below 256.
const RWLOCK_LEFT_TO_GLIBC: u32 = 0x6c77_676c;

/// `PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP`, in the flags of a rwlock: this kind makes it glibc's.
pub(crate) const PREFERS_WRITERS: u32 = 2;
/// Rwlock: this library has claimed it.
pub(crate) const RWLOCK_OURS: u32 = 0x8000;

/// Condition variable: statistics have counted this object.
pub(crate) const COND_COUNTED: u32 = 0x8000;
/// Condition variable: its deadlines are on the monotonic clock.
pub(crate) const COND_MONOTONIC: u32 = 2;

/// Semaphore: this library has initialised it. glibc writes 0 or 128 there.
pub(crate) const SEM_OURS: u32 = 0x6c77_7365;

/// Mutex, rwlock, condition variable: the object lies in memory that a forked child shares with its parent, so neither
/// process repairs it any more.
pub(crate) const IN_SHARED_MEMORY: u32 = 0x4000;
/// The half of a kind or flags word that is not the fork generation.
pub(crate) const LOW: u32 = 0xffff;
