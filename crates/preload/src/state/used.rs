//! Whether any process of a program has used a lock of this library: `LATCHWORK_USED`, the path of a file of two bytes.
//!
//! `latchwork compare` measures a program under several locks. It must not judge a lock that no process of the program has used: the
//! process that locks may be statically linked, or may have been executed without the environment.
//!
//! Each process maps the file when it starts, because it may not be able to open it later (another user, another root directory).
//! It sets the first byte then, and the second byte when it makes or uses its first object. Objects are counted there anyway, off
//! the fast paths; see [`counters`](super::counters). Under `LATCHWORK_CHECK` it sets the second byte when it first acquires a lock
//! that is checked, whichever lock serves.

use super::kernel;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU8, Ordering::Relaxed};

/// The bytes of the file.
type Marks = [AtomicU8; 2];

/// The mapped file, or null.
static MARKS: AtomicPtr<Marks> = AtomicPtr::new(null_mut());

/// This process serves locks: says so in the file at this path. To be called once, before there is another thread.
///
/// # Safety
///
/// A zero byte follows the path.
pub(crate) unsafe fn begin(path: &[u8]) {
    // SAFETY: the caller's path ends in a zero byte.
    let file =
        unsafe { kernel::open(path.as_ptr().cast(), libc::O_RDWR | libc::O_CLOEXEC | libc::O_NOFOLLOW, 0) };
    // A store behind the end of a file would end the process.
    let has_room = kernel::status(file).is_some_and(|found| found.st_size >= size_of::<Marks>() as i64);
    if has_room {
        // SAFETY: a new mapping replaces nothing.
        let marks = unsafe { kernel::map(null_mut(), size_of::<Marks>(), 0, Some(file)) };
        if marks != libc::MAP_FAILED {
            MARKS.store(marks.cast(), Relaxed);
            set(0);
        }
    }
    if file >= 0 {
        kernel::close(file);
    }
}

/// This process has used an object.
pub(crate) fn used() {
    set(1);
}

fn set(mark: usize) {
    // SAFETY: null, or a mapping of the file that `begin` has made, which stays.
    if let Some(marks) = unsafe { MARKS.load(Relaxed).as_ref() } {
        marks[mark].store(1, Relaxed);
    }
}
