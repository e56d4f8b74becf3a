//! Forked children without a recording: the parent's recording counts them.
//!
//! A forked child makes a file of its own. It cannot if it has given up the right to, or if the directory does not exist under
//! its root directory. Then nothing of the child is recorded, and the report must not take the rest for the whole.

use crate::state::kernel;
use crate::state::line::Line;
use crate::state::memory::quietly;
use crate::state::program::PAGE;
use crate::state::stderr;
use core::ffi::c_void;
use core::fmt::Write;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A second mapping of the first page of the parent's file, in a forked child. The first mapping ends before it is known whether
/// the child gets a file.
pub(super) struct Parent {
    page: *mut c_void,
    /// Where the count lies in the page, in bytes.
    at: usize,
}

impl Parent {
    /// `count` lies in the first page of a file that is mapped. `None`: the kernel refuses, and nothing is counted.
    pub(super) fn keep(count: &'static AtomicU64) -> Option<Self> {
        let address = core::ptr::from_ref(count).expose_provenance();
        let (first, nothing) = (address & !(PAGE - 1), 0_usize);
        // SAFETY: with an old length of 0, the kernel makes a second mapping of a shared file, and leaves the first as it is.
        let page = quietly(|| unsafe {
            libc::syscall(libc::SYS_mremap, first, nothing, PAGE, libc::MREMAP_MAYMOVE, nothing)
        });
        (page > 0).then(|| Parent {
            page: core::ptr::with_exposed_provenance_mut(page as usize),
            at: address - first,
        })
    }
}

impl Drop for Parent {
    fn drop(&mut self) {
        // SAFETY: `keep` has made this mapping, and nothing else knows it.
        quietly(|| unsafe { kernel::unmap(self.page, PAGE) });
    }
}

/// The calling process, a forked child, could not make a file in this directory. The first child of a parent says so on the
/// standard error.
pub(super) fn report(parent: Option<&Parent>, what: &str, directory: impl Iterator<Item = u8>, why: &str) {
    if let Some(parent) = parent {
        // SAFETY: the count lies in the page, which is mapped as long as `parent` lives. All other accesses are atomic, too.
        let count = unsafe { &*parent.page.byte_add(parent.at).cast::<AtomicU64>() };
        if count.fetch_add(1, Relaxed) > 0 {
            return;
        }
    }
    let mut line = Line::new();
    // SAFETY: `getpid` takes nothing and always succeeds.
    let process = unsafe { libc::getpid() };
    let _ = write!(line, "latchwork: no {what} of process {process}, a forked child, in ");
    directory.for_each(|byte| line.bytes(&[byte]));
    let _ = writeln!(line, ": {why}");
    stderr::write(line.as_bytes());
}
