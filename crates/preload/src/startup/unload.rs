//! `dlclose`: the recorders forget the locks in the data of a library that is gone. The next library may lie at the same place, with
//! locks of its own.
//!
//! A lock call must not look for that: it compares addresses. So this library exports the function. In a process that is not
//! recorded, it only passes the call on.

use crate::observers::{profile, trace};
use crate::state::table::Slot;
use core::ffi::{c_int, c_void};

type Close = unsafe extern "C" fn(*mut c_void) -> c_int;

/// The C library's function; at first, the function that looks for it.
static NEXT: Slot<Close> = Slot::new(find_next);

unsafe extern "C" fn find_next(library: *mut c_void) -> c_int {
    // SAFETY: the symbol has this type in the C library, and the argument is the program's.
    unsafe {
        let next = libc::dlsym(libc::RTLD_NEXT, c"dlclose".as_ptr());
        if next.is_null() {
            return -1;
        }
        NEXT.set(core::mem::transmute::<*mut c_void, Close>(next));
        NEXT.get()(library)
    }
}

/// The program unloads a library, or gives one reference to it back.
#[unsafe(no_mangle)]
unsafe extern "C" fn dlclose(library: *mut c_void) -> c_int {
    // SAFETY: the program's own argument.
    let result = unsafe { NEXT.get()(library) };
    if result == 0 {
        profile::unloaded();
        trace::unloaded();
    }
    result
}
