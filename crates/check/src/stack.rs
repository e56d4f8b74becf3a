//! Stacks: recorded as addresses, printed with names.

use crate::ignored;
use std::borrow::Cow;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::fmt::Write;
use std::ops::Range;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering::Relaxed};

/// Frames of a stack that are kept: our own, and the program's innermost ones.
const DEPTH: usize = 20;

/// Writes the calling thread's return addresses, innermost first. `false`: it cannot, and has written nothing.
pub type Unwind = fn(&mut [usize]) -> bool;

/// What finds the frames of a stack; null: the crate `backtrace`, which reads every word that should be a frame's.
static UNWIND: AtomicPtr<()> = AtomicPtr::new(null_mut());

pub(crate) fn unwind_with(unwind: Unwind) {
    UNWIND.store(unwind as *mut (), Relaxed);
}

/// Return addresses, innermost first; 0 is the end.
#[derive(Copy, Clone)]
pub(crate) struct Stack([usize; DEPTH]);

impl Stack {
    pub(crate) const NONE: Stack = Stack([0; DEPTH]);

    /// The caller's. Allocates nothing, and takes no lock but the loader's own.
    pub(crate) fn here() -> Stack {
        let mut stack = Stack::NONE;
        let unwind = UNWIND.load(Relaxed);
        // SAFETY: `unwind_with` stores only such functions.
        if !unwind.is_null() && unsafe { std::mem::transmute::<*mut (), Unwind>(unwind)(&mut stack.0) } {
            return stack;
        }
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

    /// Writes it, without our own frames at its top, a line for each frame. Returns whether one is of a function or a file with
    /// which problems are left out.
    pub(crate) fn write(&self, out: &mut String, names: bool) -> bool {
        let (mut number, mut is_ignored) = (0, false);
        let own = OWN_OBJECT.load(Relaxed).then(|| Object::of(Stack::write as *const () as usize)).flatten();
        let mut ours = true;
        for ip in self.0.iter().copied().take_while(|ip| *ip != 0) {
            // The call, not what comes after it: that may be another line.
            let (name, place) = if names { name(ip - 1) } else { (None, None) };
            let text = name.as_deref().unwrap_or("");
            ours &= own.as_ref().map_or_else(|| is_ours(text), |own| own.addresses.contains(&ip));
            if ours {
                continue;
            }
            is_ignored |= ignored::is_ignored(text.as_bytes()) || is_in_ignored_file(ip);
            let _ = match (&name, place) {
                (Some(name), Some(place)) => writeln!(out, "      #{number} {name} at {place}"),
                (Some(name), None) => writeln!(out, "      #{number} {name} ({})", file_at(ip)),
                (None, _) => writeln!(out, "      #{number} {}", file_at(ip)),
            };
            number += 1;
            if ["main", "start_thread"].contains(&text) {
                break;
            }
        }
        if number == 0 {
            out.push_str("      (unknown)\n");
        }
        is_ignored
    }
}

fn is_in_ignored_file(ip: usize) -> bool {
    ignored::are_some()
        && Object::of(ip).is_some_and(|object| {
            let path = object.name();
            ignored::is_ignored(path.rsplit('/').next().unwrap_or(&path).as_bytes())
        })
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

/// A file that is loaded.
pub(crate) struct Object {
    /// What the loader has added to each address in the file.
    bias: usize,
    addresses: Range<usize>,
    name: *const c_char,
}

impl Object {
    /// The one that has this address. The loader answers under a lock that it holds only while it changes its list. (For `dladdr` it takes
    /// the lock that a thread holds through the constructors of a library that it loads.)
    pub(crate) fn of(ip: usize) -> Option<Object> {
        let mut search = (ip, None);
        // SAFETY: `look` is called before the function returns, with this argument.
        unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut search).cast()) };
        search.1
    }

    /// Its path.
    pub(crate) fn name(&self) -> Cow<'_, str> {
        // SAFETY: a string of the loader's, and for the program itself, whose name is empty there, one of the kernel's.
        unsafe {
            let name = CStr::from_ptr(self.name);
            let program: *const c_char =
                std::ptr::with_exposed_provenance(libc::getauxval(libc::AT_EXECFN) as usize);
            if name.is_empty() && !program.is_null() { CStr::from_ptr(program) } else { name }
                .to_string_lossy()
        }
    }
}

/// Whether this is the object of the address that is searched.
unsafe extern "C" fn look(info: *mut libc::dl_phdr_info, _size: usize, search: *mut c_void) -> c_int {
    // SAFETY: the loader's record, with its program headers, and the argument of `Object::of`.
    unsafe {
        let (info, (ip, found)) = (&*info, &mut *search.cast::<(usize, Option<Object>)>());
        let bias = info.dlpi_addr as usize;
        let headers = std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into());
        let loaded = || headers.iter().filter(|header| header.p_type == libc::PT_LOAD);
        let start = loaded().map(|header| bias.wrapping_add(header.p_vaddr as usize)).min();
        let end = loaded().map(|header| bias.wrapping_add((header.p_vaddr + header.p_memsz) as usize)).max();
        let addresses = start.unwrap_or(0)..end.unwrap_or(0);
        if addresses.contains(ip) {
            *found = Some(Object { bias, addresses, name: info.dlpi_name });
        }
        found.is_some().into()
    }
}

/// The file that an address is in, and where: what `addr2line` takes.
fn file_at(ip: usize) -> String {
    match Object::of(ip) {
        Some(object) => format!("{}+{:#x}", object.name(), ip - object.bias),
        None => format!("{ip:#x}"),
    }
}
