//! The allocator of the archive: the C library's, without the race that ThreadSanitizer would see in `free`.
//!
//! ThreadSanitizer takes `malloc`, `memset` and `free` for writes to the memory, and sees nothing of what orders them here: what one
//! thread allocates for a map, another one frees after a grace period, where no callback of the program tells it so. No instrumented
//! code sees this memory, so the calls that free it are not checked. Without ThreadSanitizer each costs a call of a function more.

use crate::thread::lw_tsan_ignore;
use std::alloc::{GlobalAlloc, Layout, System};

struct Unchecked;

#[global_allocator]
static ALLOCATOR: Unchecked = Unchecked;

// SAFETY: each method is the system's.
unsafe impl GlobalAlloc for Unchecked {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise is that of the method.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        lw_tsan_ignore(true);
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) };
        lw_tsan_ignore(false);
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        lw_tsan_ignore(true);
        // SAFETY: as above.
        let moved = unsafe { System.realloc(memory, layout, size) };
        lw_tsan_ignore(false);
        moved
    }
}
