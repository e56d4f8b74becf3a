//! How to unwind the stack from the page of [`near`](super::near).
//!
//! Exceptions, cancellation, `backtrace` and the profilers that call it ask libgcc for the description of the code at an
//! address. libgcc searches the files that are loaded, and the page is in none of them.
//!
//! `__register_frame` would add the page. But from then on libgcc before version 13 takes a mutex for each frame of each
//! thread. A signal handler that unwinds would wait for ever if it had interrupted a thread that holds this mutex. So this
//! library exports the function that libgcc calls to find a description, answers for the page, and passes all other calls
//! on.

use crate::state::table::Slot;
use core::ffi::c_void;
use core::mem::{offset_of, size_of};
use core::ptr::{null, null_mut};
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::*};

/// The description of code that never moves the stack pointer, in the format of DWARF (`.eh_frame`): a common part, and a
/// part about one range of addresses.
#[repr(C)]
pub(super) struct Description {
    length: u32,
    id: u32,
    common: [u8; 16],
    range_length: u32,
    /// The distance of this field from the common part.
    to_common: u32,
    start: usize,
    size: usize,
    /// The length of the augmentation data, and padding.
    nothing: [u8; 8],
}

impl Description {
    pub(super) fn new(start: usize, size: usize) -> Self {
        Description {
            length: (offset_of!(Self, range_length) - offset_of!(Self, id)) as u32,
            id: 0,
            common: [
                1, b'z', b'R', 0, // version and augmentation
                1, 0x78, 16, // factors 1 and -8; the return address is register 16
                1, 0, // augmentation data: addresses are absolute
                0x0c, 7, 8, // the frame begins 8 above the stack pointer
                0x90, 1, // and the return address is 8 below that
                0, 0,
            ],
            range_length: (size_of::<Self>() - offset_of!(Self, to_common)) as u32,
            to_common: offset_of!(Self, to_common) as u32,
            start,
            size,
            nothing: [0; 8],
        }
    }
}

/// The page's description; null while there is no page. [`describe`] stores the range of its code first.
static DESCRIPTION: AtomicPtr<Description> = AtomicPtr::new(null_mut());
static START: AtomicUsize = AtomicUsize::new(0);
static SIZE: AtomicUsize = AtomicUsize::new(0);

/// From now on libgcc finds the description, which stays.
pub(super) fn describe(description: &'static Description) {
    START.store(description.start, Relaxed);
    SIZE.store(description.size, Relaxed);
    // (A) pairs with the load in `_Unwind_Find_FDE`.
    DESCRIPTION.store(core::ptr::from_ref(description).cast_mut(), Release);
}

/// libgcc's `struct dwarf_eh_bases`.
#[repr(C)]
struct Bases {
    text: *const c_void,
    data: *const c_void,
    function: *const c_void,
}

type Find = unsafe extern "C" fn(*const c_void, *mut Bases) -> *const c_void;

/// libgcc's function; until its first call, one that looks for it.
static NEXT: Slot<Find> = Slot::new(first_call);

/// Looks for libgcc's function while the process starts. To look for it takes the dynamic linker's lock. A thread that did so at its
/// first exception would wait for a thread that loads a library, and that thread may be waiting for the first.
pub(super) fn find() {
    // SAFETY: the name ends in a zero byte. The symbol has this type in libgcc, which this library is linked with.
    unsafe {
        let next = libc::dlsym(libc::RTLD_NEXT, c"_Unwind_Find_FDE".as_ptr());
        NEXT.set(if next.is_null() { nothing } else { core::mem::transmute::<*mut c_void, Find>(next) });
    }
}

/// For an exception before the process is set up.
unsafe extern "C" fn first_call(pc: *const c_void, bases: *mut Bases) -> *const c_void {
    find();
    // SAFETY: the arguments are those of libgcc's caller.
    unsafe { NEXT.get()(pc, bases) }
}

unsafe extern "C" fn nothing(_: *const c_void, _: *mut Bases) -> *const c_void {
    null()
}

/// libgcc asks: what describes the code at `pc`?
#[unsafe(no_mangle)]
unsafe extern "C" fn _Unwind_Find_FDE(pc: *const c_void, bases: *mut Bases) -> *const c_void {
    // (A) this thread sees the range.
    let description = DESCRIPTION.load(Acquire);
    let start = START.load(Relaxed);
    // SAFETY: libgcc passes room for the answer; the arguments that are passed on are its own.
    unsafe {
        if description.is_null() || pc.addr().wrapping_sub(start) >= SIZE.load(Relaxed) {
            return NEXT.get()(pc, bases);
        }
        *bases = Bases { text: null(), data: null(), function: core::ptr::without_provenance(start) };
    }
    description.wrapping_byte_add(offset_of!(Description, range_length)).cast()
}
