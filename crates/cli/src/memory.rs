//! What the command says when there is no memory: Rust's own message does not say what to do, and the abort that follows may leave a
//! core.

use std::alloc::{GlobalAlloc, Layout, System};

/// The system's allocator, but for a failure.
pub struct OrEnd;

const MESSAGE: &str =
    "latchwork: out of memory: raise the limit on memory (ulimit -v, ulimit -d, or that of the container)\n";

#[cfg(not(test))]
#[global_allocator]
static ALLOCATOR: OrEnd = OrEnd;

fn checked(memory: *mut u8) -> *mut u8 {
    if memory.is_null() {
        // SAFETY: the message is initialised memory, and `_exit` takes a number. Neither call allocates.
        unsafe {
            libc::write(libc::STDERR_FILENO, MESSAGE.as_ptr().cast(), MESSAGE.len());
            libc::_exit(1);
        }
    }
    memory
}

// SAFETY: all calls go to `System`, which is an allocator, with the caller's arguments.
unsafe impl GlobalAlloc for OrEnd {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises are those that `System` asks for.
        checked(unsafe { System.alloc(layout) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises are those that `System` asks for.
        checked(unsafe { System.alloc_zeroed(layout) })
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's promises are those that `System` asks for; `System` has made the memory.
        checked(unsafe { System.realloc(memory, layout, size) })
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are those that `System` asks for; `System` has made the memory.
        unsafe { System.dealloc(memory, layout) }
    }
}
