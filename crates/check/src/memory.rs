//! Memory from the kernel.

use std::ptr::null_mut;

#[cfg(target_pointer_width = "64")]
const MMAP: libc::c_long = libc::SYS_mmap;
/// The last argument counts pages here, and is 0.
#[cfg(not(target_pointer_width = "64"))]
const MMAP: libc::c_long = libc::SYS_mmap2;

/// Zero bytes for a `T`, which stay mapped; null if there is no memory.
///
/// Calls the kernel past `mmap`, which may be another library's and take a lock: the checks of that lock would come here again.
pub(crate) fn map<T>() -> *mut T {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new anonymous mapping replaces nothing.
    let memory = unsafe { libc::syscall(MMAP, null_mut::<T>(), size_of::<T>(), access, flags, -1, 0_usize) };
    if memory == -1 { null_mut() } else { std::ptr::with_exposed_provenance_mut(memory as usize) }
}
