//! The name of the executed file.

use core::ffi::{CStr, c_char};

/// The name of the executed file without directories; of a script: the script's.
pub(crate) fn name() -> &'static [u8] {
    // SAFETY: the kernel gives each process a string with the path that was executed, or nothing. The string lies behind the
    // environment, and stays.
    let path = unsafe {
        let path = core::ptr::with_exposed_provenance::<c_char>(libc::getauxval(libc::AT_EXECFN) as usize);
        if path.is_null() { b"" } else { CStr::from_ptr(path).to_bytes() }
    };
    path.rsplit(|byte| *byte == b'/').next().unwrap_or(path)
}
