//! The first attempt of the usual calls at locks that glibc serves, without a call of glibc's function.
//!
//! | call | object | what changes if the attempt succeeds |
//! |---|---|---|
//! | `pthread_mutex_lock` | a normal mutex | `__lock` from 0 to 1; `__owner` is the thread's number; `__nusers` is one more |
//! | | a recursive one | the same, and `__count` is 1; or the thread has the mutex, and `__count` is one more |
//! | `pthread_rwlock_rdlock` | a rwlock without a writer | `__readers`: one more above three flags, which are 0 |
//! | | a free one whose last holder was a writer | `__readers`: one above the flags, of which one becomes 0; `__wrphase_futex` is 0 |
//! | `pthread_rwlock_wrlock` | a free rwlock | `__readers` has two of the flags; `__writers_futex`, and `__wrphase_futex` if the last holder was a reader, are 1; `__cur_writer` is the thread's number |
//!
//! That is what glibc's own attempts do since 2.25. [`prepare`] looks what they make of an object. If it is anything else, or if
//! the next definition of a function is not glibc's, then the recorder calls that function each time. So another interposer below
//! this library sees all calls.

use super::below::{BELOW, TRY_MUTEX};
use crate::state::abi::{Mutex, RwLock};
use crate::state::table::REAL;
use core::ffi::c_void;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU32, Ordering::*};
use latchwork_recording::layout::kind;
use libc::{EBUSY, c_int};

/// The first fields of glibc's mutex.
#[repr(C)]
struct Fields {
    lock: AtomicU32,
    count: AtomicU32,
    owner: AtomicU32,
    users: AtomicU32,
}

impl Fields {
    /// # Safety
    ///
    /// The mutex is live, and has the kind that [`KIND`] says, with or without [`RECURSIVE`].
    #[inline(always)]
    unsafe fn of<'a>(m: *mut Mutex) -> &'a Self {
        // SAFETY: no kind of ours is one of these, so the mutex is glibc's, and begins with these fields, as `prepare` has seen.
        // glibc's functions write `__lock` as an atomic, and the others only while they hold it.
        unsafe { &*m.cast() }
    }

    /// The attempt of a thread that does not hold the mutex.
    #[inline(always)]
    fn try_lock(&self, tid: u32) -> bool {
        if self.lock.compare_exchange(0, 1, Acquire, Relaxed).is_err() {
            return false;
        }
        self.owner.store(tid, Relaxed);
        self.users.store(self.users.load(Relaxed).wrapping_add(1), Relaxed);
        true
    }
}

/// glibc's kind of the normal mutexes that [`try_lock`] serves: 0, or [`NONE`].
static KIND: AtomicU32 = AtomicU32::new(NONE);
/// No mutex has this kind: it has all of glibc's flags, and a type that glibc does not know.
const NONE: u32 = 0xffff_ff0c;
/// In glibc's kind: the mutex is a recursive one.
const RECURSIVE: u32 = 1;

/// The first fields of glibc's rwlock.
#[repr(C)]
struct RwFields {
    /// Three flags, and above them the number of readers.
    readers: AtomicU32,
    _writers: AtomicU32,
    /// What readers wait on for the end of a write phase.
    write_phase: AtomicU32,
    /// What writers wait on.
    next_writer: AtomicU32,
    _padding: [AtomicU32; 2],
    writer: AtomicU32,
}

/// How many readers [`try_read`] lets in, as [`RwFields::readers`] counts them: fewer than glibc. 0: rwlocks are not served.
static READERS: AtomicU32 = AtomicU32::new(0);
/// In [`RwFields::readers`]: what one reader adds.
const READER: u32 = 1 << 3;
/// In [`RwFields::readers`]: the last holder was a writer, or a writer holds the rwlock.
const WRITE_PHASE: u32 = 1;
/// In [`RwFields::readers`]: a writer holds the rwlock, or is the next.
const WRITE_LOCKED: u32 = 2;

/// What [`KIND`] and [`READERS`] have. Only [`prepare`] writes them, before the layer is used: so an ordinary load is right, and can be
/// a part of a comparison.
#[inline(always)]
fn settled(word: &'static AtomicU32) -> u32 {
    // SAFETY: no thread writes the word any more.
    unsafe { *word.as_ptr() }
}

/// Tries to lock a normal mutex for the thread with this number. `None`: this function does not serve the mutex.
///
/// # Safety
///
/// The mutex is live, and the calling thread has this number.
#[inline(always)]
pub(super) unsafe fn try_lock(m: *mut Mutex, tid: u32) -> Option<c_int> {
    // SAFETY: the caller's mutex is live.
    unsafe {
        if (*m).kind.load(Relaxed) != settled(&KIND) {
            return None;
        }
        Some(if Fields::of(m).try_lock(tid) { 0 } else { EBUSY })
    }
}

/// Tries to lock a recursive mutex for the thread with this number, and says whether the thread had it before. `None`: this function
/// does not serve the mutex.
///
/// # Safety
///
/// As in [`try_lock`].
#[inline(always)]
pub(super) unsafe fn try_recursive(m: *mut Mutex, tid: u32) -> Option<(c_int, bool)> {
    // SAFETY: the caller's mutex is live.
    let fields = unsafe {
        if (*m).kind.load(Relaxed) != settled(&KIND) | RECURSIVE {
            return None;
        }
        Fields::of(m)
    };
    if fields.owner.load(Relaxed) == tid {
        let count = fields.count.load(Relaxed).checked_add(1)?;
        fields.count.store(count, Relaxed);
        return Some((0, true));
    }
    if !fields.try_lock(tid) {
        return Some((EBUSY, false));
    }
    fields.count.store(1, Relaxed);
    Some((0, false))
}

/// Tries to lock a rwlock for reading. `None`: it is not as simple as that.
///
/// # Safety
///
/// The rwlock is live.
#[inline(always)]
pub(super) unsafe fn try_read(l: *mut RwLock) -> Option<c_int> {
    // SAFETY: the rwlock is glibc's and begins with these fields, if `prepare` has set `READERS`. Else the number of readers is only
    // looked at. glibc's functions write these fields as atomics.
    let readers = unsafe { &(*l.cast::<RwFields>()).readers };
    let before = readers.load(Relaxed);
    let is_simple = before < settled(&READERS) && before % READER == 0;
    (is_simple && readers.compare_exchange(before, before + READER, Acquire, Relaxed).is_ok()).then_some(0)
}

/// Tries to lock a rwlock for reading after [`try_read`] has not. This function also serves a rwlock whose last holder was a writer. If
/// [`try_read`] failed because another reader came first, this processor has the cache line now.
///
/// # Safety
///
/// The rwlock is live.
#[inline(always)]
pub(super) unsafe fn try_read_again(l: *mut RwLock) -> Option<c_int> {
    // SAFETY: as in `try_read`.
    let fields = unsafe { &*l.cast::<RwFields>() };
    let mut before = fields.readers.load(Relaxed);
    while before < settled(&READERS) && (before % READER == 0 || before == WRITE_PHASE) {
        let after = (before & !WRITE_PHASE) + READER;
        match fields.readers.compare_exchange(before, after, Acquire, Relaxed) {
            Ok(_) => {
                if before == WRITE_PHASE {
                    // No thread waits for that: a reader that waited would be among the readers, and a writer would have its flag.
                    fields.write_phase.store(0, Relaxed);
                }
                return Some(0);
            }
            Err(now) => before = now,
        }
    }
    None
}

/// Tries to lock a rwlock for writing, for the thread with this number. `None`: it is not as simple as that.
///
/// # Safety
///
/// The rwlock is live, and the calling thread has this number.
#[inline(always)]
pub(super) unsafe fn try_write(l: *mut RwLock, tid: u32) -> Option<c_int> {
    // SAFETY: as in `try_read`.
    let fields = unsafe { &*l.cast::<RwFields>() };
    let before = fields.readers.load(Relaxed);
    let held = WRITE_PHASE | WRITE_LOCKED;
    if before > WRITE_PHASE
        || settled(&READERS) == 0
        || fields.readers.compare_exchange(before, held, Acquire, Relaxed).is_err()
    {
        return None;
    }
    fields.next_writer.store(1, Relaxed);
    if before == 0 {
        fields.write_phase.store(1, Relaxed);
    }
    fields.writer.store(tid, Relaxed);
    Some(0)
}

/// The number of the thread that holds the lock, of a mutex or for writing; 0: none does, or that is not known.
///
/// # Safety
///
/// The bytes of the object can be read.
pub(super) unsafe fn holder(kind: u32, address: usize) -> u32 {
    const KINDS: u32 = 3;
    // SAFETY: the caller says that the bytes can be read, and all threads access these as atomics. The fields are glibc's, if `prepare`
    // has set `KIND` and `READERS`.
    unsafe {
        match kind {
            kind::MUTEX => {
                let mutex = core::ptr::with_exposed_provenance_mut::<Mutex>(address);
                let is_served = (*mutex).kind.load(Relaxed) & !KINDS == settled(&KIND);
                if is_served { Fields::of(mutex).owner.load(Relaxed) } else { 0 }
            }
            kind::RWLOCK if settled(&READERS) != 0 => {
                let fields = &*core::ptr::with_exposed_provenance::<RwFields>(address);
                let held = WRITE_PHASE | WRITE_LOCKED;
                if fields.readers.load(Relaxed) & held == held { fields.writer.load(Relaxed) } else { 0 }
            }
            _ => 0,
        }
    }
}

/// The calling thread's number, as glibc knows it; 0 if no function here needs it. In a child that a program makes by the system call
/// itself, glibc keeps the parent's number.
pub(super) fn number() -> u32 {
    if settled(&KIND) == NONE && settled(&READERS) == 0 { 0 } else { ask_number() }
}

fn ask_number() -> u32 {
    let mut mutex = MaybeUninit::<Mutex>::zeroed();
    let m = mutex.as_mut_ptr();
    // SAFETY: zero bytes are a normal mutex of glibc's, which no other thread uses. It is as long as these fields.
    unsafe {
        REAL.mutex_trylock.get()(m);
        (*m.cast::<Fields>()).owner.load(Relaxed)
    }
}

/// While the process is set up: finds out what glibc's functions do. [`TRY_MUTEX`] and [`BELOW`] are complete.
pub(super) fn prepare() {
    let (lock, unlock) = (REAL.mutex_trylock.get(), REAL.mutex_unlock.get());
    if !is_of_glibc(lock as *const c_void) {
        return;
    }
    let tid = ask_number();
    let once = [1, 1, tid, 1, RECURSIVE, 0, 0];
    let twice = [1, 2, tid, 1, RECURSIVE, 0, 0];
    let free = [0, 0, 0, 0, RECURSIVE, 0, 0];
    if are_one(TRY_MUTEX.get(), lock)
        && does(0, [(lock, [1, 0, tid, 1, 0, 0, 0]), (unlock, [0; 7])])
        && does(RECURSIVE, [(lock, once), (lock, twice), (unlock, once), (unlock, free)])
    {
        KIND.store(0, Relaxed);
    }
    let (read, write) = (REAL.rwlock_tryrdlock.get(), REAL.rwlock_trywrlock.get());
    let unlock = REAL.rwlock_unlock.get();
    let readers = |count| [count * READER, 0, 0, 0, 0, 0, 0];
    let held = [WRITE_PHASE | WRITE_LOCKED, 0, 1, 1, 0, 0, tid];
    let free = [WRITE_PHASE, 0, 1, 0, 0, 0, 0];
    if are_one(BELOW.rwlock_tryrdlock.get(), read)
        && are_one(BELOW.rwlock_trywrlock.get(), write)
        && does(0, [(read, readers(1)), (read, readers(2)), (unlock, readers(1)), (unlock, readers(0))])
        && does(0, [(write, held), (unlock, free), (write, held), (unlock, free), (read, readers(1))])
    {
        READERS.store(1 << 30, Relaxed);
    }
}

type Function<T> = unsafe extern "C" fn(*mut T) -> c_int;

/// Whether the layer calls this function of the next library, and that is the C library.
fn are_one<T>(below: Function<T>, real: Function<T>) -> bool {
    below as *const c_void == real as *const c_void && is_of_glibc(real as *const c_void)
}

fn is_of_glibc(function: *const c_void) -> bool {
    let module = |address: *const c_void| {
        let mut found = MaybeUninit::<libc::Dl_info>::zeroed();
        // SAFETY: there is room for the answer. Zero bytes are one, too.
        unsafe { (libc::dladdr(address, found.as_mut_ptr()) != 0).then(|| found.assume_init().dli_fbase) }
    };
    module(function).is_some_and(|base| module(libc::getpid as *const c_void) == Some(base))
}

/// Whether the functions succeed for a new mutex of this kind, or for a new rwlock, and the object begins with these words after each.
fn does<T, const STEPS: usize>(kind: u32, steps: [(Function<T>, [u32; 7]); STEPS]) -> bool {
    const { assert!(size_of::<T>() >= size_of::<[u32; 7]>()) };
    let mut object = MaybeUninit::<T>::zeroed();
    let address = object.as_mut_ptr();
    // SAFETY: the object is as long, and this word of a mutex is its kind.
    unsafe { address.cast::<u32>().add(4).write(kind) };
    // SAFETY: the bytes were those of a static initialiser, and no other thread uses the object.
    steps.into_iter().all(|(function, words)| unsafe {
        function(address) == 0 && address.cast::<[u32; 7]>().read() == words
    })
}
