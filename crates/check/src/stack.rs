//! Stacks: recorded as addresses, printed with names.

use std::ffi::{CStr, c_void};
use std::fmt::Write;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Frames of a stack that are kept: our own, and the program's innermost ones.
const DEPTH: usize = 20;

/// Return addresses, innermost first; 0 is the end.
#[derive(Copy, Clone)]
pub(crate) struct Stack([usize; DEPTH]);

impl Stack {
    pub(crate) const NONE: Stack = Stack([0; DEPTH]);

    /// The caller's. Allocates nothing, and takes no lock but the loader's own.
    pub(crate) fn here() -> Stack {
        let mut stack = Stack::NONE;
        let mut depth = 0;
        // SAFETY: what may not happen at the same time is looking up names with the same crate, which it
        // guards by itself; walking the frames only reads them.
        unsafe {
            backtrace::trace_unsynchronized(|frame| {
                stack.0[depth] = frame.ip().addr();
                depth += 1;
                depth < DEPTH
            });
        }
        stack
    }

    /// Writes it, without our own frames at its top, a line for each frame.
    pub(crate) fn write(&self, out: &mut String, names: bool) {
        let mut number = 0;
        let mut ours = true;
        for ip in self.0.iter().copied().take_while(|ip| *ip != 0) {
            // The call, not what comes after it: that may be another line.
            let (name, place) = if names { name(ip - 1) } else { (None, None) };
            let text = name.as_deref().unwrap_or("");
            ours &= if OWN_OBJECT.load(Relaxed) { is_our_object(ip) } else { is_ours(text) };
            if ours {
                continue;
            }
            let _ = match (&name, place) {
                (Some(name), Some(place)) => writeln!(out, "      #{number} {name} at {place}"),
                (Some(name), None) => writeln!(out, "      #{number} {name} ({})", object(ip)),
                (None, _) => writeln!(out, "      #{number} {}", object(ip)),
            };
            number += 1;
            if ["main", "start_thread"].contains(&text) {
                break;
            }
        }
        if number == 0 {
            out.push_str("      (unknown)\n");
        }
    }
}

/// The function at an address, and file and line.
fn name(ip: usize) -> (Option<String>, Option<String>) {
    let (mut name, mut place) = (None, None);
    backtrace::resolve(ip as *mut c_void, |symbol| {
        // The last one is the function itself; those before are inlined in it.
        name = symbol.name().map(|name| format!("{name:#}"));
        place =
            symbol.filename().zip(symbol.lineno()).map(|(file, line)| format!("{}:{line}", file.display()));
    });
    (name, place)
}

/// Whether this crate is in a library of its own that was put under a program. Then the library's addresses tell which
/// functions of a stack are its own.
pub(crate) static OWN_OBJECT: AtomicBool = AtomicBool::new(false);

fn is_ours(name: &str) -> bool {
    let name = name.trim_start_matches('<');
    ["latchwork", "backtrace::", "lock_api::"].iter().any(|part| name.starts_with(part))
}

/// What the loader knows of an address.
fn loader(ip: usize) -> Option<libc::Dl_info> {
    // SAFETY: zero is a valid `Dl_info`, which the function fills.
    unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        (libc::dladdr(ip as *const c_void, &mut info) != 0).then_some(info)
    }
}

fn is_our_object(ip: usize) -> bool {
    let base = |ip| loader(ip).map(|info| info.dli_fbase);
    base(ip) == base(is_our_object as *const () as usize)
}

/// The file that an address is in, and where: what `addr2line` takes.
fn object(ip: usize) -> String {
    match loader(ip) {
        Some(info) if !info.dli_fname.is_null() => {
            // SAFETY: a string of the loader's.
            let file = unsafe { CStr::from_ptr(info.dli_fname) }.to_string_lossy();
            format!("{file}+{:#x}", ip - info.dli_fbase.addr())
        }
        _ => format!("{ip:#x}"),
    }
}
