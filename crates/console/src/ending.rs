//! A signal while the command writes its results.
//!
//! A command that measures waits for Ctrl-C itself, and keeps the signals blocked. When it writes its results it does not wait for
//! signals any more, and a result may go to a pipe that no process reads. From then on a thread waits for them, removes what
//! the command must not leave behind, and lets the signal end the process.

use crate::signals;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::thread;
use std::time::Duration;

/// How long a command with such a signal may go on to write: timeout(1) sends two signals, and the first may be what has ended
/// the measuring. Without a pipe, results are written in less.
const GRACE: Duration = Duration::from_millis(200);

/// The files and directories of [`Temporary`].
static THERE: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

fn there() -> MutexGuard<'static, Vec<PathBuf>> {
    THERE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A file or directory that a signal removes as long as this lives. Otherwise its maker removes it.
#[derive(Debug)]
pub struct Temporary(PathBuf);

impl Temporary {
    /// What is at this path, which is absolute.
    pub fn new(path: &Path) -> Self {
        there().push(path.to_owned());
        Self(path.to_owned())
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        there().retain(|path| *path != self.0);
    }
}

/// The command writes its results from now on. A signal that has come before was for the measuring, and does nothing any more; the
/// next one ends the process. A signal that is ignored (nohup) stays ignored.
pub fn by_signals() {
    static BEGUN: Once = Once::new();
    BEGUN.call_once(|| {
        let set = blocked();
        if thread::Builder::new().spawn(move || end_at(&set)).is_err() {
            // Too many threads: the signals end the process as they end others.
            // SAFETY: the set is complete.
            unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, std::ptr::null_mut()) };
        }
    });
}

/// Blocks the signals in this thread and in those that it will make, and takes those that wait.
fn blocked() -> libc::sigset_t {
    let (set, _) = signals::block_unless_ignored(&signals::ENDING);
    let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the set is complete, and the call needs no room for what it may tell.
    while unsafe { libc::sigtimedwait(&set, std::ptr::null_mut(), &at_once) } > 0 {}
    set
}

/// Waits for one of the signals, which then ends the process.
fn end_at(set: &libc::sigset_t) {
    let mut signal = 0;
    // SAFETY: a set of signals, and room for a number.
    unsafe {
        if libc::sigwait(set, &mut signal) != 0 {
            return;
        }
    }
    thread::sleep(GRACE);
    // Held until the process ends, so that nothing is made or kept meanwhile.
    let there = there();
    for path in there.iter() {
        let _ = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    }
    signals::by_default(signal);
    std::process::abort();
}
