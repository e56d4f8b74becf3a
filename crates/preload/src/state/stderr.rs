//! The stream for reports: the standard error with which the process began.
//!
//! Most reports come when the process ends. Daemons close their streams, and number 2 may be a file of the program's by then. So
//! a text goes to number 2 only while that is still the stream, and otherwise to a duplicate, if there is one.
//!
//! The reader of a pipe waits until all descriptors of the pipe are closed. So a forked child, which may be a daemon, has no
//! duplicate of a pipe.

use super::kernel;
use super::memory::quietly;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering::*};
use libc::c_int;

/// The least number of a descriptor that stays open: programs expect the low ones for their own files.
pub(crate) const KEPT_FROM: c_int = 500;

/// The device and inode of the stream, if the process began with one.
static STREAM: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
static IS_OPEN: AtomicBool = AtomicBool::new(false);
/// The duplicate, or -1.
static KEPT: AtomicI32 = AtomicI32::new(-1);

/// The process begins. `later`: there will be reports later.
pub(crate) fn begin(later: bool) {
    quietly(|| {
        let Some(found) = kernel::status(libc::STDERR_FILENO) else { return };
        STREAM.iter().zip(identity(&found)).for_each(|(to, from)| to.store(from, Relaxed));
        IS_OPEN.store(true, Relaxed);
        if later {
            KEPT.store(kernel::duplicate(libc::STDERR_FILENO, KEPT_FROM), Relaxed);
        }
    });
}

/// In a forked child.
pub(crate) fn after_fork() {
    quietly(|| {
        let kept = KEPT.load(Relaxed);
        let is_pipe = |found: &libc::stat| found.st_mode & libc::S_IFMT == libc::S_IFIFO;
        // The program may have closed the duplicate, and have a file of its own under its number.
        if kernel::status(kept).filter(is_pipe).is_some_and(|found| is_stream(&found)) {
            kernel::close(kept);
            KEPT.store(-1, Relaxed);
        }
    });
}

/// Writes to the stream, if it is still open. An error goes unreported: there is no place to report it.
pub(crate) fn write(text: &[u8]) {
    if !IS_OPEN.load(Relaxed) {
        return;
    }
    quietly(|| {
        let leads_there = |file: &c_int| kernel::status(*file).as_ref().is_some_and(is_stream);
        if let Some(file) = [libc::STDERR_FILENO, KEPT.load(Relaxed)].into_iter().find(leads_there) {
            let _ = latchwork_check::write(file, text);
        }
    });
}

/// Whether a file is the stream.
fn is_stream(found: &libc::stat) -> bool {
    identity(found) == [0, 1].map(|part| STREAM[part].load(Relaxed))
}

/// The device and inode of an open file.
pub(crate) fn identity(file: &libc::stat) -> [u64; 2] {
    [file.st_dev, file.st_ino]
}
