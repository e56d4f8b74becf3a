//! Which programs are served: `LATCHWORK_ONLY` and `LATCHWORK_NOT`, lists of patterns for the names of executables.
//!
//! A program passes its environment on to all programs that it starts. These two variables choose among them by name: for
//! example, of `make -j8` with its shells and compilers only the linker.

use core::ffi::{CStr, c_char};
use latchwork_check::matches;

/// Whether this process is served. `only` and `not` are the values of the two variables.
pub(super) fn chosen(only: Option<&[u8]>, not: Option<&[u8]>) -> bool {
    if only.is_none() && not.is_none() {
        return true;
    }
    // SAFETY: the kernel gives each process a string with the path that was executed, which stays, or nothing.
    let path = unsafe {
        let path = core::ptr::with_exposed_provenance::<c_char>(libc::getauxval(libc::AT_EXECFN) as usize);
        if path.is_null() { b"" } else { CStr::from_ptr(path).to_bytes() }
    };
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
    let among = |list: &[u8]| list.split(|byte| *byte == b',').any(|pattern| matches(pattern, name));
    only.is_none_or(among) && !not.is_some_and(among)
}
