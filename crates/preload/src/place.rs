//! Where the raw lock of an object lies: in the object itself if it fits.
//!
//! If it does not, the object's first word points to a lock that is allocated at the first use and
//! freed by `destroy`. Memory comes from `mmap`, in slabs that are kept, because `malloc` may be
//! our caller. An object that is freed without `destroy` leaks such a lock; in-place objects leave
//! nothing behind. The feature `out-of-place` makes all locks do it, for the tests.

use core::cell::UnsafeCell;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};
use latchwork::locks::mutex::{RawMutex, ttas::RawTtas};
use latchwork::machine::Native;

/// Locks made at a time.
const SLAB: usize = 64;
/// The grain that sizes are rounded up to, and the largest lock that anybody may write.
const GRAIN: usize = 64;
const CLASSES: usize = 32;

const fn fits<L, const SPACE: usize>() -> bool {
    // pthread objects are aligned to 8 bytes.
    !cfg!(feature = "out-of-place") && size_of::<L>() <= SPACE && align_of::<L>() <= 8
}

/// Whether a raw lock lies in the object, at its address.
#[inline(always)]
pub(crate) const fn is_in_place<L, const SPACE: usize>() -> bool {
    fits::<L, SPACE>()
}

/// The object's raw lock, which is made if need be.
///
/// # Safety
///
/// `bytes` is the start of a live pthread object of ours, its bytes are zero or were left there by
/// this function, all-zero bytes are an unlocked `L`, and the reference is not used after the
/// object may have been freed.
#[inline(always)]
pub(crate) unsafe fn locate<'a, L, const SPACE: usize>(bytes: &UnsafeCell<[u8; SPACE]>) -> &'a L {
    let start = bytes.get();
    if const { fits::<L, SPACE>() } {
        // SAFETY: from the caller, and it fits.
        unsafe { &*start.cast::<L>() }
    } else {
        // SAFETY: the space is at least a pointer, and is used as nothing else for such an `L`.
        let word = unsafe { &*start.cast::<AtomicPtr<L>>() };
        // (A) pairs with the exchange in `make`: the lock's bytes are zero.
        let lock = word.load(Ordering::Acquire);
        let lock = if lock.is_null() { make(word) } else { lock };
        // SAFETY: a lock from `make` lives until `discard`.
        unsafe { &*lock }
    }
}

#[cold]
fn make<L>(word: &AtomicPtr<L>) -> *mut L {
    const { assert!(size_of::<L>() <= GRAIN * CLASSES && align_of::<L>() <= GRAIN) };
    let lock: *mut L = allocate(size_of::<L>()).cast();
    // (A) publishes the zeroed lock.
    match word.compare_exchange(null_mut(), lock, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => lock,
        Err(other) => {
            // SAFETY: made above and never published.
            unsafe { free(lock.cast(), size_of::<L>()) };
            other
        }
    }
}

/// Whether the object has a raw lock already (always, if it is in place).
///
/// # Safety
///
/// As [`locate`].
pub(crate) unsafe fn exists<L, const SPACE: usize>(bytes: &UnsafeCell<[u8; SPACE]>) -> bool {
    // SAFETY: as in `locate`.
    (const { fits::<L, SPACE>() })
        || unsafe { !(*bytes.get().cast::<AtomicPtr<L>>()).load(Ordering::Acquire).is_null() }
}

/// Makes the raw lock unlocked and forgets its waiters.
///
/// # Safety
///
/// As [`locate`], and nobody else uses the object.
pub(crate) unsafe fn reset<L, const SPACE: usize>(bytes: &UnsafeCell<[u8; SPACE]>) {
    let start = bytes.get().cast::<u8>();
    // SAFETY: from the caller.
    unsafe {
        if const { fits::<L, SPACE>() } {
            start.write_bytes(0, SPACE);
        } else {
            let lock = *start.cast::<*mut L>();
            if !lock.is_null() {
                lock.drop_in_place();
                lock.cast::<u8>().write_bytes(0, size_of::<L>());
            }
        }
    }
}

/// Frees what the raw lock occupies outside of the object.
///
/// # Safety
///
/// As [`reset`], and the lock is not held.
pub(crate) unsafe fn discard<L, const SPACE: usize>(bytes: &UnsafeCell<[u8; SPACE]>) {
    if const { !fits::<L, SPACE>() } {
        // SAFETY: from the caller.
        unsafe {
            let word = bytes.get().cast::<*mut L>();
            if !(*word).is_null() {
                (*word).drop_in_place();
                free((*word).cast(), size_of::<L>());
                *word = null_mut();
            }
        }
    }
}

/// A free chunk points to the next.
struct Free {
    next: *mut Free,
}

struct Slabs(UnsafeCell<[*mut Free; CLASSES]>);
// SAFETY: only touched under `LOCK`.
unsafe impl Sync for Slabs {}

static FREE: Slabs = Slabs(UnsafeCell::new([null_mut(); CLASSES]));
/// Also taken around `fork`, so that no child inherits it from a thread that it does not have.
pub(crate) static LOCK: RawTtas<Native> = RawTtas::new();

fn class(size: usize) -> usize {
    size.div_ceil(GRAIN) - 1
}

fn allocate(size: usize) -> *mut u8 {
    LOCK.lock();
    // SAFETY: under the lock; free chunks are ours, large enough and linked.
    let chunk = unsafe {
        let head = &mut (*FREE.0.get())[class(size)];
        if head.is_null() {
            *head = map((class(size) + 1) * GRAIN);
        }
        let chunk = *head;
        *head = (*chunk).next;
        chunk.cast::<u8>().write_bytes(0, size);
        chunk
    };
    // SAFETY: taken above.
    unsafe { LOCK.unlock(()) };
    chunk.cast()
}

/// # Safety
///
/// From [`allocate`] with the same size, and not used any more.
unsafe fn free(chunk: *mut u8, size: usize) {
    let chunk: *mut Free = chunk.cast();
    LOCK.lock();
    // SAFETY: under the lock, and the chunk is the caller's to give.
    unsafe {
        let head = &mut (*FREE.0.get())[class(size)];
        (*chunk).next = *head;
        *head = chunk;
        LOCK.unlock(());
    }
}

/// A slab of chunks, linked.
fn map(chunk: usize) -> *mut Free {
    let slab = pages(chunk * SLAB);
    // SAFETY: the slab is ours and large enough.
    unsafe {
        for i in 0..SLAB {
            let next = if i + 1 < SLAB { slab.add((i + 1) * chunk).cast() } else { null_mut() };
            slab.add(i * chunk).cast::<Free>().write(Free { next });
        }
    }
    slab.cast()
}

/// Zeroed memory from the operating system.
pub(crate) fn pages(bytes: usize) -> *mut u8 {
    // SAFETY: an anonymous private mapping, checked below; `errno` is restored because lock calls
    // must not disturb it.
    unsafe {
        let errno = *libc::__errno_location();
        let memory = libc::mmap(
            null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        );
        if memory == libc::MAP_FAILED {
            // A lock call has no way to report this, and going on would break exclusion.
            libc::abort();
        }
        *libc::__errno_location() = errno;
        memory.cast()
    }
}

/// Takes the slabs' lock for the time of a `fork`.
pub(crate) fn before_fork() {
    LOCK.lock();
}

/// Gives it back, in the parent and in the child.
pub(crate) fn after_fork() {
    // SAFETY: taken by this thread in `before_fork`.
    unsafe { LOCK.unlock(()) };
}
