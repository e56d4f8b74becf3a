//! The environment variables.

use super::only;
use crate::state::line::Line;
use crate::state::stderr;
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
/// All variables count as unset in two cases: in a process with raised privileges (set-user-ID, file capabilities), because
/// the user who wrote the environment must not decide what such a process does; and in a process that `LATCHWORK_ONLY` or
/// `LATCHWORK_NOT` leaves out.
pub(super) fn variable(prefix: &[u8]) -> Option<&'static [u8]> {
    // SAFETY: reads a number that the kernel gave the process.
    let privileged = unsafe { libc::getauxval(libc::AT_SECURE) } != 0;
    if privileged || !only::chosen(lookup(b"LATCHWORK_ONLY="), lookup(b"LATCHWORK_NOT=")) {
        return None;
    }
    lookup(prefix).filter(|value| *value != b"glibc")
}

/// The value of an environment variable, given as `NAME=`, unless it is empty.
fn lookup(prefix: &[u8]) -> Option<&'static [u8]> {
    // SAFETY: `environ` is null or an array of strings that ends in null. No thread changes it while the process starts, and
    // the strings of the initial environment stay.
    unsafe {
        let mut entry = environ;
        while !entry.is_null() && !(*entry).is_null() {
            let text = CStr::from_ptr(*entry).to_bytes();
            if let Some(value) = text.strip_prefix(prefix) {
                return (!value.is_empty()).then_some(value);
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
    stderr::write(out.as_bytes());
    // SAFETY: ends the process.
    unsafe { libc::_exit(127) }
}
