//! Stacks: recorded as addresses, printed with names.

use crate::ignored;
use std::borrow::Cow;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::fmt::{self, Display, Formatter};
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

    /// Its frames with names, without our own at its top. `names` says whether functions are looked up.
    pub(crate) fn frames(&self, names: bool) -> Vec<Frame> {
        let mut frames = Vec::new();
        let own = OWN_OBJECT.load(Relaxed).then(|| Object::of(Stack::here as *const () as usize)).flatten();
        let mut ours = true;
        for ip in self.0.iter().copied().take_while(|ip| *ip != 0) {
            let frame = Frame::at(ip, names);
            let function = frame.function.as_deref().unwrap_or("");
            ours &= own.as_ref().map_or_else(|| is_ours(function), |own| own.addresses.contains(&ip));
            if ours {
                continue;
            }
            let is_outermost = ["main", "start_thread"].contains(&function);
            frames.push(frame);
            if is_outermost {
                break;
            }
        }
        frames
    }
}

/// A frame of a stack that is reported.
pub(crate) struct Frame {
    pub(crate) function: Option<String>,
    /// File and line of the source.
    pub(crate) source: Option<(String, u32)>,
    /// The file with code that is loaded there, if there is one.
    pub(crate) object: Option<String>,
    /// Where in that file the address is, as `addr2line` takes it; without a file, the address.
    pub(crate) offset: usize,
}

impl Frame {
    fn at(ip: usize, names: bool) -> Frame {
        let object = Object::of(ip);
        let offset = ip - object.as_ref().map_or(0, |object| object.bias);
        let object = object.map(|object| object.name().into_owned());
        let mut frame = Frame { function: None, source: None, object, offset };
        if names {
            // The call, not what comes after it: that may be another line.
            backtrace::resolve((ip - 1) as *mut c_void, |symbol| {
                // The last one is the function itself; those before are inlined in it.
                frame.function = symbol.name().map(|name| format!("{name:#}"));
                let file = symbol.filename().map(|file| file.display().to_string());
                frame.source = file.zip(symbol.lineno());
            });
        }
        frame
    }

    /// Whether it is of a function or a file with which problems are left out.
    pub(crate) fn is_ignored(&self) -> bool {
        let function = self.function.as_deref().unwrap_or("");
        let object = self.object.as_deref().map(|path| path.rsplit('/').next().unwrap_or(path));
        ignored::is_ignored(function.as_bytes())
            || object.is_some_and(|object| ignored::is_ignored(object.as_bytes()))
    }
}

/// The place of a lock in a file that is loaded.
pub(crate) struct Variable {
    /// The variable that begins there, or has the lock in it.
    pub(crate) name: Option<String>,
    /// The file.
    pub(crate) object: String,
    /// The place in the file.
    pub(crate) offset: usize,
}

impl Variable {
    /// That of the lock at this address. `None`: it is on the heap or on a stack. `names` says whether the variable is looked up.
    pub(crate) fn of(lock: usize, names: bool) -> Option<Variable> {
        let object = Object::of(lock)?;
        let offset = lock - object.bias;
        let mut name = None;
        if names {
            // It finds the symbols of data, too. It takes each address for one behind a call, and looks one byte before it.
            backtrace::resolve((lock + 1) as *mut c_void, |symbol| {
                name = symbol.name().map(|name| format!("{name:#}"));
            });
        }
        Some(Variable { name, object: object.name().into_owned(), offset })
    }
}

impl Display for Frame {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match (&self.function, &self.source) {
            (Some(function), Some((file, line))) => return write!(f, "{function} at {file}:{line}"),
            (Some(function), None) => write!(f, "{function} (")?,
            (None, _) => {}
        }
        match &self.object {
            Some(object) => write!(f, "{object}+{:#x}", self.offset)?,
            None => write!(f, "{:#x}", self.offset)?,
        }
        if self.function.is_some() { f.write_str(")") } else { Ok(()) }
    }
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
