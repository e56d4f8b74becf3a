//! What an object carries so that retiring it allocates nothing.
//!
//! The header has the same layout in C (`lw_header`): a pointer, a function, and two words of 32 bits.

use alloc::boxed::Box;
use core::cell::Cell;
use core::fmt;
use core::mem::offset_of;
use core::ptr::null_mut;

/// Ends the life of a retired object, which begins with this header. A function of C or C++ fits as well. It may unwind:
/// the panic is then that of the thread that reclaims.
pub type ReclaimFn = unsafe extern "C-unwind" fn(*mut Header);

/// Room inside of an object for what the library notes about it once it is retired: 24 bytes, unused before. Readers may
/// have the object when it is retired, so the header answers no questions:
///
/// ```compile_fail,E0624
/// assert!(!latchwork::reclaim::Header::new().is_retired());
/// ```
#[repr(C)]
pub struct Header {
    /// The object that was retired before this one.
    next: Cell<*mut Header>,
    /// How to reclaim the object; `None` until it is retired.
    reclaim: Cell<Option<ReclaimFn>>,
    /// [`Retire::BYTES`], or what [`Domain::retire_raw`](super::domain::Domain::retire_raw) was given.
    bytes: Cell<u32>,
    /// Where hazard pointers protect: the number of the first scan that found the object (`sieve`). With intervals: when the
    /// object was made, 0 if that is not known (`interval`). In a domain of RCU: the time at which the object was retired, if it
    /// was retired in order (`ordered`); else 0.
    stamp: Cell<u32>,
}

#[cfg(target_pointer_width = "64")]
const _: () = {
    assert!(size_of::<Header>() == 24 && align_of::<Header>() == 8);
    assert!(offset_of!(Header, next) == 0 && offset_of!(Header, reclaim) == 8);
    assert!(offset_of!(Header, bytes) == 16 && offset_of!(Header, stamp) == 20);
};

// SAFETY: the cells are private to this part of the library. Only the thread uses them that retires the object, and then
// the thread that has the list which the object is in; taking the list orders the two.
unsafe impl Sync for Header {}
// SAFETY: the object, and its header with it, may be reclaimed by any thread; the cells hold no thread's own.
unsafe impl Send for Header {}

impl Header {
    /// The header of an object that is in use.
    pub const fn new() -> Self {
        Header {
            next: Cell::new(null_mut()),
            reclaim: Cell::new(None),
            bytes: Cell::new(0),
            stamp: Cell::new(0),
        }
    }

    /// Whether the object has been retired. For the thread that retires it alone.
    fn is_retired(&self) -> bool {
        self.reclaim.get().is_some()
    }

    pub(super) fn next(&self) -> *mut Header {
        self.next.get()
    }

    pub(super) fn set_next(&self, next: *mut Header) {
        self.next.set(next);
    }

    /// Bytes of the whole object, which begins with this header.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.get() as usize
    }

    pub(super) fn stamp(&self) -> u32 {
        self.stamp.get()
    }

    pub(super) fn set_stamp(&self, stamp: u32) {
        self.stamp.set(stamp);
    }

    /// How many bytes the object stands for. Before it is in a list.
    #[cfg(feature = "std")]
    pub(super) fn set_bytes(&self, bytes: u32) {
        self.bytes.set(bytes);
    }
}

impl fmt::Debug for Header {
    /// Shows no fields: another thread may write them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Header")
    }
}

impl Default for Header {
    fn default() -> Self {
        Self::new()
    }
}

/// An object that can be retired. By default it came from [`Box::into_raw`], and is dropped.
///
/// It is `Send`, because any thread may be the one that reclaims it.
///
/// # Safety
///
/// - The type is `repr(C)` and its first field is a [`Header`].
/// - [`reclaim`](Retire::reclaim) ends the object's life, and does nothing else that is not safe.
pub unsafe trait Retire: Send + Sized + 'static {
    /// How many bytes of [`Garbage`](super::Garbage) the object is, and how many bytes from its beginning on a hazard
    /// pointer protects. It is more than the object's size if the object stands for something beside it. If it were less,
    /// a hazard pointer into the rest would not protect the object: retiring such an object does not compile.
    ///
    /// ```compile_fail,E0080
    /// use latchwork::machine::Native;
    /// use latchwork::reclaim::{Header, Reclaim, Retire, hazard::HazardDomain};
    ///
    /// #[repr(C)]
    /// struct Route {
    ///     header: Header,
    ///     gateways: [u32; 8],
    /// }
    /// // SAFETY: `repr(C)`, and the header comes first.
    /// unsafe impl Retire for Route {
    ///     const BYTES: usize = 32;
    /// }
    ///
    /// let route = Box::into_raw(Box::new(Route { header: Header::new(), gateways: [0; 8] }));
    /// // SAFETY: no other thread has it.
    /// unsafe { HazardDomain::<Native>::new_in().retire(route) };
    /// ```
    const BYTES: usize = size_of::<Self>();

    /// Ends the object's life.
    ///
    /// # Safety
    ///
    /// No thread uses the object any more, and this is called once.
    unsafe fn reclaim(this: *mut Self) {
        // SAFETY: an implementation that does not override this retires boxes alone (see `Reclaim::retire`). No thread
        // uses the object, says the caller.
        drop(unsafe { Box::from_raw(this) });
    }
}

/// Notes in the object's header how to reclaim it, and how large it is.
///
/// # Safety
///
/// As [`Reclaim::retire`](super::Reclaim::retire).
pub(super) unsafe fn prepare<T: Retire>(object: *mut T) -> *mut Header {
    let header: *mut Header = object.cast();
    // SAFETY: the header is the first field of the object (`Retire`), which is alive until it is reclaimed.
    let this = unsafe { &*header };
    debug_assert!(!this.is_retired(), "an object was retired twice");
    // SAFETY: as above.
    unsafe { note(header, const { bytes_of::<T>() }, reclaim::<T>) };
    header
}

/// Notes in a header how to reclaim the object, and how large it is. Clears the stamp: a header of C may begin as anything.
///
/// # Safety
///
/// As [`Domain::retire_raw`](super::domain::Domain::retire_raw).
#[inline(always)]
pub(super) unsafe fn note(header: *mut Header, bytes: u32, reclaim: ReclaimFn) {
    // SAFETY: the header is valid, says the caller, until the object is reclaimed.
    let this = unsafe { &*header };
    this.reclaim.set(Some(reclaim));
    this.bytes.set(bytes);
    this.stamp.set(0);
}

const fn bytes_of<T: Retire>() -> u32 {
    assert!(T::BYTES >= size_of::<T>(), "`Retire::BYTES` is less than the object's size");
    assert!(T::BYTES <= u32::MAX as usize, "an object of 4 GiB or more cannot be retired: put it into a box");
    T::BYTES as u32
}

unsafe extern "C-unwind" fn reclaim<T: Retire>(header: *mut Header) {
    // SAFETY: `prepare` put this function into the header of a `T`. No thread uses the object, and this is called once: so
    // promises the caller of `finish`.
    unsafe { T::reclaim(header.cast()) };
}

/// Reclaims a retired object.
///
/// # Safety
///
/// No thread uses the object any more, and this is called once.
#[inline(always)]
pub(super) unsafe fn finish(header: *mut Header) {
    // SAFETY: a retired object is alive until the call below.
    let reclaim = unsafe { (*header).reclaim.get() };
    let reclaim = reclaim.expect("only retired objects are in lists");
    // SAFETY: no thread uses the object, and this is called once, says the caller.
    unsafe { reclaim(header) };
}
