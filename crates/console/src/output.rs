//! Files that results are written to.

use crate::failure::{Failure, Result};
use std::ffi::CString;
use std::fs;
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

/// Writes `text` to `path`, the value of `option`.
pub fn write(option: &str, path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).map_err(|error| Failure::new(format!("{option} {}: {error}", path.display())))
}
