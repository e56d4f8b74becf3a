//! The locks in the Linux kernel: the same source as in user space, over a machine of the kernel.
//!
//! | file | what it has |
//! |---|---|
//! | [`machine`] | [`Kernel`](machine::Kernel): what a lock asks of the world, answered by the kernel |
//! | [`shim`] | the functions of `module/shim.c` and the files beside it that it calls |
//! | [`rwsem`] | the kernel's own reader-writer semaphore as a lock of the library, for BRAVO over it |
//! | `spin` | ShflLock in the 4 bytes of the kernel's spin lock |
//! | `table` | every lock of the registry as a row of function pointers for C |
//! | `broken` | locks that are broken on purpose; the torture must catch each |
//! | `builtin` | BRAVO and ShflLock as the kernel's own locks, in place of `table` and `broken` (features `builtin`, `shfl`) |
//!
//! The result is a static library, which `module/Kbuild` links into `latchwork.ko`. `docs/kernel.md` says how it is built,
//! and what the kernel asked of the locks that user space does not.
#![no_std]

#[cfg(not(feature = "builtin"))]
pub mod broken;
#[cfg(feature = "builtin")]
pub mod builtin;
pub mod machine;
pub mod rwsem;
pub mod shim;
#[cfg(any(feature = "shfl", not(feature = "builtin")))]
pub mod spin;
#[cfg(not(feature = "builtin"))]
pub mod table;

use core::alloc::{GlobalAlloc, Layout};

#[panic_handler]
fn panic(info: &core::panic::PanicInfo) -> ! {
    let line = info.location().map_or(0, |location| location.line());
    // SAFETY: the function takes a number, and stops the machine.
    unsafe { shim::lw_k_die(line) }
}

/// No lock allocates. The library's other parts do, and the compiler asks for an allocator because of them. This one refers
/// to functions that do not exist, so the module would not link if code that allocates were left in it.
struct Nothing;

// SAFETY: neither function returns.
unsafe impl GlobalAlloc for Nothing {
    unsafe fn alloc(&self, _: Layout) -> *mut u8 {
        // SAFETY: there is no such function.
        unsafe { shim::lw_k_a_lock_allocates() }
    }

    unsafe fn dealloc(&self, _: *mut u8, _: Layout) {
        // SAFETY: there is no such function.
        unsafe { shim::lw_k_a_lock_frees() }
    }
}

#[global_allocator]
static NOTHING: Nothing = Nothing;
