//! Where the raw lock of an object lies: in the object itself if it fits.
//!
//! A raw lock that does not fit lies in memory of its own. The object begins with a [`Pointer`] to it; the first use makes it,
//! and `destroy` frees it. Such locks are cut from slabs, which the process keeps. An object that is freed without `destroy`
//! leaks its lock; a lock in place leaves nothing behind. The feature `out-of-place`, for the tests, puts every
//! lock out of place.
//!
//! Programs copy objects that no thread holds: they assign a structure, or `realloc` an array. Under glibc the copy is an object
//! of its own. So it must not share the raw lock, which its original may free. `Pointer` tells a copy from its original.

use super::alone::Alone;
use super::memory;
use core::cell::UnsafeCell;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

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
        // SAFETY: the caller's object is live.
        let pointer = unsafe { Pointer::of(bytes) };
        let lock = pointer.get();
        let lock = if lock.is_null() { make::<L>(pointer) } else { lock };
        // SAFETY: a lock from `make` lives until `discard`, which is called when no thread uses the object.
        unsafe { &*lock.cast::<L>() }
    }
}

/// The first words of an object whose lock is out of place.
#[repr(C)]
struct Pointer {
    lock: AtomicPtr<u8>,
    /// The address of the object for which the lock was made. A copy of that object has another address.
    object: AtomicUsize,
}

impl Pointer {
    /// # Safety
    ///
    /// As [`locate`].
    #[inline(always)]
    unsafe fn of<const SPACE: usize>(bytes: &UnsafeCell<[u8; SPACE]>) -> &Self {
        const { assert!(size_of::<Self>() <= SPACE) };
        // SAFETY: the words fit into the bytes, which are aligned to 8 and used for nothing else if the lock is out of place.
        unsafe { &*bytes.get().cast() }
    }

    /// The lock of this object, or null.
    #[inline(always)]
    fn get(&self) -> *mut u8 {
        // (A) pairs with the store in `set`: this thread sees the lock's address, and its bytes zeroed.
        if self.object.load(Ordering::Acquire) == core::ptr::from_ref(self).addr() {
            self.lock.load(Ordering::Relaxed)
        } else {
            null_mut()
        }
    }

    /// Gives this object the lock `new`, unless it has one. Returns its lock. The thread is [`ALONE`], but a signal handler may
    /// interrupt it between any two steps, and give the same object a lock.
    fn set(&self, new: *mut u8) -> *mut u8 {
        let old = self.lock.load(Ordering::Relaxed);
        let give = || self.lock.compare_exchange(old, new, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if self.get().is_null() && give() {
            self.object.store(core::ptr::from_ref(self).addr(), Ordering::Release); // (A)
        }
        self.get()
    }
}

#[cold]
fn make<L>(pointer: &Pointer) -> *mut u8 {
    const { assert!(size_of::<L>() <= GRAIN * CLASSES && align_of::<L>() <= GRAIN) };
    make_sized(pointer, size_of::<L>())
}

/// The same for every type of lock of this size.
#[cold]
#[inline(never)]
fn make_sized(pointer: &Pointer, size: usize) -> *mut u8 {
    let new = allocate(size);
    let lock = ALONE.run(|_| pointer.set(new));
    if lock != new {
        // SAFETY: allocated above with this size, and no other thread has used it.
        unsafe { free(new, size) };
    }
    lock
}

/// Whether the object has a raw lock already (always, if the lock is in place).
///
/// # Safety
///
/// As [`locate`].
pub(crate) unsafe fn exists<L, const SPACE: usize>(bytes: &UnsafeCell<[u8; SPACE]>) -> bool {
    // SAFETY: the caller's object is live.
    (const { is_in_place::<L, SPACE>() }) || unsafe { !Pointer::of(bytes).get().is_null() }
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
            let lock = Pointer::of(bytes).get().cast::<L>();
            if !lock.is_null() {
                lock.drop_in_place();
                lock.cast::<u8>().write_bytes(0, size_of::<L>());
            }
        }
    }
}

/// Frees what the raw lock occupies outside of the object, and clears the bytes: glibc's functions may read those of a destroyed
/// object.
///
/// # Safety
///
/// As [`reset`], and no thread holds the lock.
pub(crate) unsafe fn discard<L, const SPACE: usize>(bytes: &UnsafeCell<[u8; SPACE]>) {
    // SAFETY: the object is the caller's alone. A lock that is out of place is from `make`. Zero bytes are an object without one.
    unsafe {
        if const { !is_in_place::<L, SPACE>() } {
            let lock = Pointer::of(bytes).get();
            if !lock.is_null() {
                lock.cast::<L>().drop_in_place();
                free(lock, size_of::<L>());
            }
        }
        bytes.get().cast::<u8>().write_bytes(0, SPACE);
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
