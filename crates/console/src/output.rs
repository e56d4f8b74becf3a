//! Files and streams that results are written to.

use crate::failure::{Failure, Result};
use crate::signals;
use std::ffi::CString;
use std::fs;
use std::io::{self, ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Fails if `path`, the value of `option`, can certainly not be written. The commands ask before they measure, so that
/// minutes of measuring do not end in "permission denied". `-` is standard output.
pub fn check(option: &str, path: &Path) -> Result<()> {
    if path == Path::new("-") {
        return Ok(());
    }
    let fail = |why: String| Err(Failure::usage(format!("{option} {}: {why}", path.display())));
    if path.is_dir() {
        return fail("is a directory".into());
    }
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let writable = if path.exists() { path } else { parent };
    let Ok(name) = CString::new(writable.as_os_str().as_bytes()) else {
        return fail("has a zero byte".into());
    };
    // SAFETY: a terminated string.
    if unsafe { libc::access(name.as_ptr(), libc::W_OK) } != 0 {
        return fail(format!("cannot be written: {}", std::io::Error::last_os_error()));
    }
    Ok(())
}

/// The same where standard output does not do: it is the program's, which runs meanwhile.
pub fn check_file(option: &str, path: &Path) -> Result<()> {
    if path == Path::new("-") {
        let why = "it is not printed, because standard output is the program's; name a file (./- for one of this name)";
        return Err(Failure::usage(format!("{option} -: {why}")));
    }
    check(option, path)
}

/// Writes `text` to `path`, the value of `option`.
pub fn write(option: &str, path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).map_err(|error| Failure::new(format!("{option} {}: {error}", path.display())))
}

/// Prints on standard output, all of it.
pub fn print(text: &str) -> Result<()> {
    print_bytes(text.as_bytes())
}

/// The same with bytes that may be no text.
pub fn print_bytes(bytes: &[u8]) -> Result<()> {
    let mut out = io::stdout().lock();
    // What the buffer keeps would be written when the process exits, where no one learns of an error.
    checked("standard output", out.write_all(bytes).and_then(|()| out.flush()))
}

/// Prints a result on standard error.
pub fn print_to_stderr(text: &str) -> Result<()> {
    checked("standard error", io::stderr().write_all(text.as_bytes()))
}

/// Tells the user something in a line on standard error. If it cannot be written, the command goes on: unlike `eprintln!`,
/// this does not panic.
pub fn say(line: &str) {
    // One call, so that other processes print nothing into the line.
    let _ = io::stderr().write_all(format!("{line}\n").as_bytes());
}

fn checked(stream: &str, written: io::Result<()>) -> Result<()> {
    written.map_err(|error| {
        if error.kind() == ErrorKind::BrokenPipe && signals::sigpipe_waits() {
            return Failure::reader_gone();
        }
        Failure::new(format!("{stream}: {error}"))
    })
}
