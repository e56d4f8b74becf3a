//! The stream for reports: the standard error with which the process began.
//!
//! Most reports come when the process ends. Daemons close their streams, and number 2 may be a file of the program's by then. So
//! a text goes to number 2 only while that is still the stream, and otherwise to a duplicate, if there is one.

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

/// Writes to the stream, if it is still open. An error goes unreported: there is no place to report it.
pub(crate) fn write(text: &[u8]) {
    if !IS_OPEN.load(Relaxed) {
        return;
    }
    let stream = [0, 1].map(|part| STREAM[part].load(Relaxed));
    let is_stream = |file: &c_int| kernel::status(*file).is_some_and(|found| identity(&found) == stream);
    quietly(|| {
        if let Some(file) = [libc::STDERR_FILENO, KEPT.load(Relaxed)].into_iter().find(is_stream) {
            let _ = latchwork_check::write(file, text);
        }
    });
}

/// The device and inode of an open file.
pub(crate) fn identity(file: &libc::stat) -> [u64; 2] {
    [file.st_dev, file.st_ino]
}
