//! System calls, past other libraries.
//!
//! `open`, `mmap` and the like may be another preloaded library's, and may take a lock there: tracers of memory or of files count
//! calls under a mutex. This library calls them within lock calls and while it sets the process up, where it must not make a lock
//! call. So it calls the kernel itself. Each function here has the result and the `errno` of the C library's function, and
//! none is a cancellation point. [`latchwork_check::write`] is of this kind, too.

use core::ffi::{c_char, c_void};
use core::mem::MaybeUninit;
use libc::{c_int, c_uint, syscall};

/// `open`. `mode` counts if the file is made.
///
/// # Safety
///
/// The path ends in a zero byte.
pub(crate) unsafe fn open(path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
    // SAFETY: the caller passes a string.
    unsafe { syscall(libc::SYS_openat, libc::AT_FDCWD, path, flags, mode) as c_int }
}

/// `close`. The descriptor is the caller's.
pub(crate) fn close(file: c_int) {
    // SAFETY: the kernel refuses a number that is no descriptor.
    unsafe { syscall(libc::SYS_close, file) };
}

/// A second descriptor of the same file, of at least `least`, which is closed when the process executes another program.
pub(crate) fn duplicate(file: c_int, least: c_int) -> c_int {
    // SAFETY: the kernel refuses a number that is no descriptor.
    unsafe { syscall(libc::SYS_fcntl, file, libc::F_DUPFD_CLOEXEC, least) as c_int }
}

/// `fstat`. `None`: there is no such descriptor.
pub(crate) fn status(file: c_int) -> Option<libc::stat> {
    let mut found = MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: there is room for the answer, and zeroes are a value of it. On 64-bit systems, which this library is for, the C
    // library's structure is the kernel's.
    unsafe { (syscall(libc::SYS_fstat, file, found.as_mut_ptr()) == 0).then(|| found.assume_init()) }
}

/// `read`: how many bytes it has read; 0 after an error.
pub(crate) fn read(file: c_int, text: &mut [u8]) -> usize {
    // SAFETY: the text is valid for its length.
    let length = unsafe { syscall(libc::SYS_read, file, text.as_mut_ptr(), text.len()) };
    usize::try_from(length).unwrap_or(0)
}

/// Locks or unlocks the first byte of a file for this process, without waiting. An error is the kernel's number.
pub(crate) fn lock_file(file: c_int, kind: i16) -> Result<(), c_int> {
    // SAFETY: zeroes are a value. The kernel reads the structure, and refuses a number that is no descriptor. The C library says
    // where the calling thread's `errno` is.
    unsafe {
        let mut lock = core::mem::zeroed::<libc::flock>();
        (lock.l_type, lock.l_whence, lock.l_len) = (kind, libc::SEEK_SET as i16, 1);
        match syscall(libc::SYS_fcntl, file, libc::F_SETLK, &lock) {
            0 => Ok(()),
            _ => Err(*libc::__errno_location()),
        }
    }
}

/// `ftruncate`.
pub(crate) fn cut(file: c_int, length: i64) {
    // SAFETY: the kernel refuses a number that is no descriptor of a file that may be written.
    unsafe { syscall(libc::SYS_ftruncate, file, length) };
}

/// `mmap`, with memory to read and write. Private memory of zeroes, unless `file` is a descriptor: then the file's bytes from
/// the first on, shared. The result is `MAP_FAILED` after an error.
///
/// # Safety
///
/// If `flags` has `MAP_FIXED`, the caller may replace what is mapped at `place`.
pub(crate) unsafe fn map(place: *mut c_void, bytes: usize, flags: c_int, file: Option<c_int>) -> *mut c_void {
    let kind = if file.is_some() { libc::MAP_SHARED } else { libc::MAP_PRIVATE | libc::MAP_ANONYMOUS };
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: without MAP_FIXED a mapping replaces nothing; with it, the caller's promise.
    let memory =
        unsafe { syscall(libc::SYS_mmap, place, bytes, access, flags | kind, file.unwrap_or(-1), 0_usize) };
    let memory: *mut c_void = core::ptr::with_exposed_provenance_mut(memory as usize);
    if file.is_some() && memory != libc::MAP_FAILED {
        // Else each page that is touched for the first time has the file system read megabytes around it: 3 ms for 4 KiB of a
        // hole in an ext4 file (Linux 6.18).
        // SAFETY: advice about the mapping that was just made.
        unsafe { syscall(libc::SYS_madvise, memory, bytes, libc::MADV_RANDOM) };
    }
    memory
}

/// `munmap`.
///
/// # Safety
///
/// Nothing uses these pages any more.
pub(crate) unsafe fn unmap(memory: *mut c_void, bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe { syscall(libc::SYS_munmap, memory, bytes) };
}

/// Has the kernel empty these pages of private memory in each new child. It may refuse.
pub(crate) fn wipe_in_children(pages: *mut c_void, bytes: usize) {
    // SAFETY: the kernel changes no contents in this process, and refuses addresses that are not mapped.
    unsafe { syscall(libc::SYS_madvise, pages, bytes, libc::MADV_WIPEONFORK) };
}

/// Has the kernel take these pages of private memory back: they are zero when they are next used. `false`: it refuses, and they are
/// as they were.
///
/// # Safety
///
/// The pages are mapped without a file, and nothing else uses them meanwhile.
pub(crate) unsafe fn empty(pages: *mut c_void, bytes: usize) -> bool {
    // SAFETY: the caller's promise.
    unsafe { syscall(libc::SYS_madvise, pages, bytes, libc::MADV_DONTNEED) == 0 }
}

/// Asks the kernel for pages of a mapping. Their contents stay as they are. `false`: the kernel refuses.
pub(crate) fn populate(pages: *mut c_void, bytes: usize) -> bool {
    // SAFETY: the kernel adds pages to a mapping, changes no contents, and refuses addresses that are not mapped.
    unsafe { syscall(libc::SYS_madvise, pages, bytes, libc::MADV_POPULATE_WRITE) == 0 }
}
