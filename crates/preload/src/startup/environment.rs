//! The environment variables.

use crate::state::line::Line;
use core::ffi::{CStr, c_char};
use core::fmt::Write;

unsafe extern "C" {
    static environ: *const *const c_char;
}

/// Whether the C library has not set `environ` yet: functions in a program's `.preinit_array` run so early, and sanitizers.
pub(super) fn is_too_early() -> bool {
    // SAFETY: a word that is written before any other thread exists.
    unsafe { environ.is_null() }
}

/// The value of an environment variable, given as `NAME=`. `None`: it is unset, empty, or the name of the default,
/// `glibc`.
///
/// In a process with raised privileges (set-user-ID, file capabilities) all variables count as unset: the user who wrote the
/// environment must not decide what the process does.
pub(super) fn variable(prefix: &[u8]) -> Option<&'static [u8]> {
    // SAFETY: reads a number that the kernel gave the process.
    if unsafe { libc::getauxval(libc::AT_SECURE) } != 0 {
        return None;
    }
    // SAFETY: `environ` is null or an array of strings that ends in null. No thread changes it while the process starts, and
    // the strings of the initial environment stay.
    unsafe {
        let mut entry = environ;
        while !entry.is_null() && !(*entry).is_null() {
            let text = CStr::from_ptr(*entry).to_bytes();
            if let Some(value) = text.strip_prefix(prefix) {
                return (!value.is_empty() && value != b"glibc").then_some(value);
            }
            entry = entry.add(1);
        }
    }
    None
}

/// Ends the process: the user asked for a lock that cannot serve, and running under another one would give a wrong answer.
pub(super) fn refuse(variable: &str, name: &[u8], why: &str) -> ! {
    let mut out = Line::new();
    let _ = write!(out, "latchwork: {variable}=");
    out.bytes(name);
    let _ = writeln!(out, ": {why}");
    out.write_to(libc::STDERR_FILENO);
    // SAFETY: ends the process.
    unsafe { libc::_exit(127) }
}
