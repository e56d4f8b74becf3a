//! The memory of a recorder's file. Its addresses stay mapped from the first file on: a thread may be in the middle of a record when
//! the file is given back, and a signal handler may fork there and return.

use crate::state::kernel;
use crate::state::program::PAGE;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering::*};
use libc::c_int;

/// Where the file is mapped, or was.
pub(super) struct Place(AtomicPtr<u8>);

impl Place {
    pub(super) const fn new() -> Self {
        Place(AtomicPtr::new(null_mut()))
    }

    /// Gives a new file this length, and maps it in the place of what [`clear`](Self::clear) has left. Its first page is there then.
    /// An error says what failed; `limited`: the process may not make a file of this length; `narrow`: its limit on memory leaves no
    /// room for it.
    pub(super) fn map(
        &self,
        file: c_int,
        length: usize,
        limited: &'static str,
        narrow: &'static str,
    ) -> Result<*mut u8, &'static str> {
        // SAFETY: system calls on a descriptor of the caller, and a new mapping, which replaces nothing or what `clear` has left.
        unsafe {
            let mut limit = core::mem::zeroed::<libc::rlimit>();
            // The kernel kills a process that makes a file longer than its limit.
            if libc::getrlimit(libc::RLIMIT_FSIZE, &mut limit) == 0 && limit.rlim_cur < length as u64 {
                return Err(limited);
            }
            if libc::ftruncate(file, length as i64) != 0 {
                return Err("cannot set the length of the file");
            }
            let place = self.0.load(Relaxed);
            let fixed = if place.is_null() { 0 } else { libc::MAP_FIXED };
            let base = kernel::map(place.cast(), length, fixed, Some(file));
            if base == libc::MAP_FAILED {
                let known = libc::getrlimit(libc::RLIMIT_AS, &mut limit) == 0;
                let is_limited = known && limit.rlim_cur != libc::RLIM_INFINITY;
                return Err(if is_limited { narrow } else { "cannot map the file" });
            }
            self.0.store(base.cast(), Relaxed);
            if !kernel::populate(base, PAGE) {
                self.clear(length);
                return Err("no room on the disk, or a kernel before 5.14");
            }
            Ok(base.cast())
        }
    }

    /// Puts empty memory in the place of the file, which has this length.
    ///
    /// # Safety
    ///
    /// A file of this length is mapped here. No thread uses its records. (A thread that is in the middle of a store may still make
    /// it: the new memory allows that.)
    pub(super) unsafe fn clear(&self, length: usize) {
        let flags = libc::MAP_NORESERVE | libc::MAP_FIXED;
        // SAFETY: the mapping begins here and has this length, and is the caller's own.
        unsafe { kernel::map(self.0.load(Relaxed).cast(), length, flags, None) };
    }
}
