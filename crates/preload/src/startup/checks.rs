//! What `LATCHWORK_CHECK`, `LATCHWORK_CHECK_JSON` and `LATCHWORK_CHECK_IGNORE` ask for beside the checks.

use super::environment::{refuse, variable};
use crate::state::line::Line;
use crate::state::log::Log;
use crate::state::memory::quietly;
use crate::state::{kernel, stderr};
use core::ffi::c_void;
use core::fmt::Write;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicI32, Ordering::Relaxed};
use libc::c_int;

unsafe extern "C" {
    fn __cxa_atexit(f: extern "C" fn(*mut c_void), argument: *mut c_void, object: *mut c_void) -> c_int;
}

/// Where the mistakes go as lines of JSON.
static LOG: Log = Log::new("mistakes");

/// With which status the process exits if it has a problem.
static STATUS: AtomicI32 = AtomicI32::new(0);

/// `value` is that of `LATCHWORK_CHECK`.
pub(super) fn begin(value: &[u8]) {
    if let Some(status) = value.strip_prefix(b"exit:") {
        match core::str::from_utf8(status).ok().and_then(|text| text.parse::<u8>().ok()) {
            None | Some(0) => refuse("LATCHWORK_CHECK", value, "after exit: stands a status from 1 to 255"),
            Some(status) => {
                STATUS.store(status.into(), Relaxed);
                // Functions run in the opposite order, so this one runs after those of the program and of all libraries. It
                // belongs to no library: the functions of this library run earlier, when the dynamic linker ends it.
                // SAFETY: the function stays loaded until the process is gone.
                unsafe { __cxa_atexit(exits, null_mut(), null_mut()) };
            }
        }
    }
    if let Some(path) = variable(b"LATCHWORK_CHECK_JSON=") {
        LOG.begin(path);
        latchwork_check::json_with(|line| quietly(|| LOG.append(line)));
    }
    if let Some(path) = variable(b"LATCHWORK_CHECK_IGNORE=") {
        match read(path) {
            Some(patterns) => latchwork_check::ignore(patterns),
            // The file may be out of reach of a process with another root or user.
            None => {
                let mut line = Line::new();
                let _ = write!(line, "latchwork: warning: LATCHWORK_CHECK_IGNORE=");
                line.bytes(path);
                let _ = writeln!(line, ": the file cannot be read, so nothing is left out");
                stderr::write(line.as_bytes());
            }
        }
    }
}

extern "C" fn exits(_: *mut c_void) {
    if latchwork_check::problems_since_fork() != 0 {
        // The C library goes on with what it has left to do, and takes this status.
        // SAFETY: this thread is in `exit` already.
        unsafe { libc::exit(STATUS.load(Relaxed)) };
    }
}

/// The contents of a file, in memory that is not given back. The path lies in the environment, so it ends in NUL.
fn read(path: &[u8]) -> Option<&'static [u8]> {
    // SAFETY: as said above.
    let file = unsafe { kernel::open(path.as_ptr().cast(), libc::O_RDONLY | libc::O_CLOEXEC, 0) };
    if file < 0 {
        return None;
    }
    let text = kernel::status(file).filter(|status| status.st_mode & libc::S_IFMT == libc::S_IFREG).and_then(
        |status| {
            let size = status.st_size as usize;
            // SAFETY: a new mapping, which replaces nothing.
            let memory = unsafe { kernel::map(null_mut(), size.max(1), 0, None) };
            // SAFETY: it has the size, is all zeroes, and nothing else uses it.
            (memory != libc::MAP_FAILED)
                .then(|| unsafe { core::slice::from_raw_parts_mut(memory.cast::<u8>(), size) })
        },
    );
    let read = text.map(|text| {
        let mut length = 0;
        while length < text.len() {
            match kernel::read(file, &mut text[length..]) {
                0 => break,
                more => length += more,
            }
        }
        &text[..length]
    });
    kernel::close(file);
    read
}
