//! Where the raw lock of an object lies: in the object itself if it fits.
//!
//! A raw lock that does not fit lies in memory of its own. The object's first word points to it; the first use makes it,
//! and `destroy` frees it. Such locks are cut from slabs, which the process keeps. An object that is freed without `destroy`
//! leaks its lock; a lock in place leaves nothing behind. The feature `out-of-place`, for the tests, puts every
//! lock out of place.

use super::alone::Alone;
use super::memory;
use core::cell::UnsafeCell;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};

/// Whether a raw lock lies in an object with room for `SPACE` bytes.
#[inline(always)]
pub(crate) const fn is_in_place<L, const SPACE: usize>() -> bool {
    // pthread objects are aligned to 8 bytes.
    !cfg!(feature = "out-of-place") && size_of::<L>() <= SPACE && align_of::<L>() <= 8
}

/// The object's raw lock. If it is out of place and does not exist yet, this makes it.
///
/// # Safety
///
/// `bytes` is the start of a live pthread object of ours. They are zero, or this function has left them there. All-zero
/// bytes are an unlocked `L`. The caller does not use the reference after the object may have been freed.
#[inline(always)]
pub(crate) unsafe fn locate<'a, L, const SPACE: usize>(bytes: &UnsafeCell<[u8; SPACE]>) -> &'a L {
    let start = bytes.get();
    if const { is_in_place::<L, SPACE>() } {
        // SAFETY: `L` fits into the bytes, which are those of a live object, and every state of them is an `L`.
        unsafe { &*start.cast::<L>() }
    } else {
        // SAFETY: the space has at least the size of a pointer, and such an `L` uses it for nothing else.
        let word = unsafe { &*start.cast::<AtomicPtr<L>>() };
        // (A) pairs with the exchange in `make`: this thread sees the lock's bytes zeroed.
        let lock = word.load(Ordering::Acquire);
        let lock = if lock.is_null() { make(word) } else { lock };
        // SAFETY: a lock from `make` lives until `discard`, which is called when no thread uses the object.
        unsafe { &*lock }
    }
}

#[cold]
fn make<L>(word: &AtomicPtr<L>) -> *mut L {
    const { assert!(size_of::<L>() <= GRAIN * CLASSES && align_of::<L>() <= GRAIN) };
    make_sized(word.as_ptr().cast(), size_of::<L>()).cast()
}

/// The same for every type of lock of this size.
#[cold]
#[inline(never)]
fn make_sized(word: *mut *mut u8, size: usize) -> *mut u8 {
    // SAFETY: `make` passes the address of its word, which only atomic operations access.
    let word = unsafe { AtomicPtr::from_ptr(word) };
    let lock = allocate(size);
    // (A) publishes the zeroed lock.
    match word.compare_exchange(null_mut(), lock, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => lock,
        Err(other) => {
            // SAFETY: allocated above with this size, and no other thread has seen it.
            unsafe { free(lock, size) };
            other
        }
    }
}

/// Whether the object has a raw lock already (always, if the lock is in place).
///
/// # Safety
///
/// As [`locate`].
pub(crate) unsafe fn exists<L, const SPACE: usize>(bytes: &UnsafeCell<[u8; SPACE]>) -> bool {
    // SAFETY: if the lock is out of place, the object begins with a pointer, which may be null.
    (const { is_in_place::<L, SPACE>() })
        || unsafe { !(*bytes.get().cast::<AtomicPtr<L>>()).load(Ordering::Acquire).is_null() }
}

/// Makes the raw lock unlocked and forgets its waiters.
///
/// # Safety
///
/// As [`locate`], and no other thread uses the object.
pub(crate) unsafe fn reset<L, const SPACE: usize>(bytes: &UnsafeCell<[u8; SPACE]>) {
    let start = bytes.get().cast::<u8>();
    // SAFETY: the object is the caller's alone. Zero bytes are an unlocked `L`. A lock that is out of place has the size
    // of `L`, and is dropped before its bytes are written.
    unsafe {
        if const { is_in_place::<L, SPACE>() } {
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
/// As [`reset`], and no thread holds the lock.
pub(crate) unsafe fn discard<L, const SPACE: usize>(bytes: &UnsafeCell<[u8; SPACE]>) {
    if const { !is_in_place::<L, SPACE>() } {
        // SAFETY: the object is the caller's alone, and begins with a pointer that is null or from `make`.
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

/// Locks in a slab.
const SLAB: usize = 64;
/// Bytes that sizes are rounded up to, one cache line; also the largest alignment of a lock.
const GRAIN: usize = 64;
/// Classes of size: locks have at most `GRAIN * CLASSES` bytes.
const CLASSES: usize = 32;

/// A free chunk points to the next.
struct Free {
    next: *mut Free,
}

/// The free chunks of each class.
struct Slabs(UnsafeCell<[*mut Free; CLASSES]>);
// SAFETY: only a thread that is `ALONE` accesses them.
unsafe impl Sync for Slabs {}

static FREE: Slabs = Slabs(UnsafeCell::new([null_mut(); CLASSES]));
static ALONE: Alone = Alone::new();

fn class(size: usize) -> usize {
    size.div_ceil(GRAIN) - 1
}

/// A zeroed chunk.
fn allocate(size: usize) -> *mut u8 {
    ALONE.run(|interrupted| {
        let bytes = (class(size) + 1) * GRAIN;
        if interrupted {
            // The lists may be half changed: a signal handler gets a page of its own.
            return memory::map(bytes);
        }
        // SAFETY: this thread is alone. A free chunk is unused memory of at least `size` bytes that begins with a link.
        unsafe {
            let head = &mut (*FREE.0.get())[class(size)];
            if head.is_null() {
                *head = slab(bytes);
            }
            let chunk = *head;
            *head = (*chunk).next;
            let chunk = chunk.cast::<u8>();
            chunk.write_bytes(0, size);
            chunk
        }
    })
}

/// # Safety
///
/// `chunk` is from [`allocate`] with the same size, and nothing uses it any more.
unsafe fn free(chunk: *mut u8, size: usize) {
    let chunk: *mut Free = chunk.cast();
    ALONE.run(|interrupted| {
        if interrupted {
            return; // the lists may be half changed: the chunk is lost
        }
        // SAFETY: this thread is alone, and the chunk is the caller's to give.
        unsafe {
            let head = &mut (*FREE.0.get())[class(size)];
            (*chunk).next = *head;
            *head = chunk;
        }
    });
}

/// Maps a slab, and links its chunks.
fn slab(chunk: usize) -> *mut Free {
    let slab = memory::map(chunk * SLAB);
    // SAFETY: the slab has room for `SLAB` chunks, each of which has room for a link.
    unsafe {
        for i in 0..SLAB {
            let next = if i + 1 < SLAB { slab.add((i + 1) * chunk).cast() } else { null_mut() };
            slab.add(i * chunk).cast::<Free>().write(Free { next });
        }
    }
    slab.cast()
}

/// Before a `fork`: no child inherits lists that another thread has half changed.
pub(crate) fn before_fork() {
    ALONE.before_fork();
}

/// In the parent and in the child.
pub(crate) fn after_fork() {
    ALONE.after_fork();
}
