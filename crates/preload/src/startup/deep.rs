//! A warning about libraries that bind past this one.
//!
//! A library that the program loads with `RTLD_DEEPBIND`, or into a namespace of its own (`dlmopen`), calls glibc's own
//! pthread functions. glibc and this library cannot serve one lock together, so the user has to know: one line on stderr
//! names the library.
//!
//! glibc searches a library by the run path of the object that calls `dlopen`, which it knows by the return address. So every
//! call goes on to glibc with a jump, with one exception. glibc does not search for a name with a slash, so [`load`] can load
//! such a library itself and then look at which functions the library calls.

use super::entry::ENTRIES;
use crate::state::dynamic::{each_object, of_object};
use crate::state::line::Line;
use crate::state::stderr;
use crate::state::table::{REAL, Table, install};
use core::ffi::{CStr, c_char, c_void};
use core::fmt::Write;
use core::mem::offset_of;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use libc::c_int;

core::arch::global_asm!(
    ".pushsection .text.latchwork_deep,\"ax\",@progbits",
    // The exported functions are jumps, like those in `entry`.
    ".balign 16",
    ".globl latchwork_deep_dlopen",
    ".type latchwork_deep_dlopen, @function",
    "latchwork_deep_dlopen: jmp [rip + {entries} + {dlopen}]",
    ".size latchwork_deep_dlopen, . - latchwork_deep_dlopen",
    ".balign 16",
    ".globl latchwork_deep_dlmopen",
    ".type latchwork_deep_dlmopen, @function",
    "latchwork_deep_dlmopen: jmp [rip + {entries} + {dlmopen}]",
    ".size latchwork_deep_dlmopen, . - latchwork_deep_dlmopen",
    ".symver latchwork_deep_dlopen, dlopen@@GLIBC_2.34",
    ".symver latchwork_deep_dlopen, dlopen@GLIBC_2.2.5",
    ".symver latchwork_deep_dlmopen, dlmopen@@GLIBC_2.34",
    ".symver latchwork_deep_dlmopen, dlmopen@GLIBC_2.3.4",
    // dlopen(name, flags), while this library serves locks
    ".balign 16",
    ".type latchwork_dlopen, @function",
    "latchwork_dlopen:",
    ".cfi_startproc",
    "test esi, {deepbind}",
    "jne 3f",
    "2: jmp [rip + {real} + {dlopen}]",
    "3: push rdi",
    ".cfi_adjust_cfa_offset 8",
    "push rsi",
    ".cfi_adjust_cfa_offset 8",
    "sub rsp, 8",
    ".cfi_adjust_cfa_offset 8",
    "call {announce}",
    "add rsp, 8",
    ".cfi_adjust_cfa_offset -8",
    "pop rsi",
    ".cfi_adjust_cfa_offset -8",
    "pop rdi",
    ".cfi_adjust_cfa_offset -8",
    "test al, al",
    "jne 2b",
    "jmp {load}",
    ".cfi_endproc",
    ".size latchwork_dlopen, . - latchwork_dlopen",
    // dlmopen(namespace, name, flags)
    ".balign 16",
    ".type latchwork_dlmopen, @function",
    "latchwork_dlmopen:",
    ".cfi_startproc",
    "test rdi, rdi", // LM_ID_BASE
    "jne 3f",
    "2: jmp [rip + {real} + {dlmopen}]",
    "3: push rdi",
    ".cfi_adjust_cfa_offset 8",
    "push rsi",
    ".cfi_adjust_cfa_offset 8",
    "push rdx",
    ".cfi_adjust_cfa_offset 8",
    "mov rdi, rsi",
    "call {announce_namespace}",
    "pop rdx",
    ".cfi_adjust_cfa_offset -8",
    "pop rsi",
    ".cfi_adjust_cfa_offset -8",
    "pop rdi",
    ".cfi_adjust_cfa_offset -8",
    "jmp 2b",
    ".cfi_endproc",
    ".size latchwork_dlmopen, . - latchwork_dlmopen",
    ".popsection",
    entries = sym ENTRIES,
    real = sym REAL,
    dlopen = const offset_of!(Table, dlopen),
    dlmopen = const offset_of!(Table, dlmopen),
    deepbind = const libc::RTLD_DEEPBIND,
    announce = sym announce,
    announce_namespace = sym announce_namespace,
    load = sym load,
);

unsafe extern "C" {
    fn latchwork_dlopen(name: *const c_char, flags: c_int) -> *mut c_void;
    fn latchwork_dlmopen(namespace: isize, name: *const c_char, flags: c_int) -> *mut c_void;
}

/// Functions that are served together: whether this library serves them, how their names begin, and the name of one.
struct Family {
    served: AtomicBool,
    names: &'static [&'static CStr],
    one: &'static CStr,
}

static MUTEXES: Family = Family {
    served: AtomicBool::new(false),
    names: &[c"pthread_mutex_", c"pthread_cond_", c"pthread_spin_", c"sem_", c"mtx_", c"cnd_"],
    one: c"pthread_mutex_lock",
};
static RWLOCKS: Family =
    Family { served: AtomicBool::new(false), names: &[c"pthread_rwlock_"], one: c"pthread_rwlock_rdlock" };

/// From now on this looks at the libraries that the program loads.
pub(super) fn install(mutex: bool, rwlock: bool) {
    MUTEXES.served.store(mutex, Relaxed);
    RWLOCKS.served.store(rwlock, Relaxed);
    install! { dlopen => latchwork_dlopen, dlmopen => latchwork_dlmopen }
}

impl Family {
    fn has(&self, name: &CStr) -> bool {
        self.names.iter().any(|start| name.to_bytes().starts_with(start.to_bytes()))
    }

    /// Whether this library serves the family, but the library of `handle` calls another one's functions.
    fn is_missed_by(&self, handle: *mut c_void) -> bool {
        // SAFETY: `dlsym` searches loaded objects for a name; `dlerror` clears the error of a search that failed.
        unsafe {
            let bound = libc::dlsym(handle, self.one.as_ptr());
            if bound.is_null() {
                libc::dlerror();
            }
            self.served.load(Relaxed)
                && !bound.is_null()
                && bound != libc::dlsym(libc::RTLD_DEFAULT, self.one.as_ptr())
        }
    }
}

/// Warns that the program is about to load a library with `RTLD_DEEPBIND`, unless `load` can say more. Returns whether glibc
/// is to load it.
unsafe extern "C" fn announce(name: *const c_char, _flags: c_int) -> bool {
    // SAFETY: the program passes a string or null.
    let Some(name) = (unsafe { text(name) }) else { return true };
    if name.contains(&b'/') && !name.contains(&b'$') {
        return false;
    }
    warn(name, "may call glibc's own pthread functions, past latchwork: it is loaded with RTLD_DEEPBIND");
    true
}

unsafe extern "C" fn announce_namespace(name: *const c_char) {
    // SAFETY: the program passes a string or null.
    if let Some(name) = unsafe { text(name) } {
        warn(name, "calls another C library's pthread functions, past latchwork: it is loaded with dlmopen");
    }
}

/// `dlopen` with `RTLD_DEEPBIND`, of a library that is named by its path.
unsafe extern "C" fn load(name: *const c_char, flags: c_int) -> *mut c_void {
    // The dynamic linker adds new objects at the end of its list.
    let mut before = 0;
    each_object(&mut |_| before += 1);
    // SAFETY: the program's own arguments.
    let handle = unsafe { REAL.dlopen.get()(name, flags) };
    if handle.is_null() {
        return handle;
    }
    let missed = [&MUTEXES, &RWLOCKS].map(|family| family.is_missed_by(handle).then_some(family));
    let mut index = 0;
    each_object(&mut |object| {
        index += 1;
        if index > before && calls(object, &missed) {
            // SAFETY: the dynamic linker's name of the object is a string or null.
            if let Some(name) = unsafe { text(object.dlpi_name) } {
                warn(
                    name,
                    "calls glibc's own pthread functions, past latchwork: it was loaded with RTLD_DEEPBIND",
                );
            }
        }
    });
    handle
}

/// Whether the object calls a function of one of the families.
fn calls(object: &libc::dl_phdr_info, families: &[Option<&Family>]) -> bool {
    let mut found = false;
    if let Some(dynamic) = of_object(object) {
        dynamic.each_import(|name, _| found |= families.iter().flatten().any(|family| family.has(name)));
    }
    found
}

/// # Safety
///
/// `name` is null or a string that ends in NUL and stays.
unsafe fn text<'a>(name: *const c_char) -> Option<&'a [u8]> {
    // SAFETY: a name that is not null is a string that stays, as the caller promises.
    (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) }.to_bytes())
}

/// Writes a warning to stderr, once for each name.
fn warn(name: &[u8], what: &str) {
    /// Hashes of the names so far. When all places are taken, no more warnings are written.
    static SAID: [AtomicU64; 16] = [const { AtomicU64::new(0) }; 16];
    let hash = name.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    for said in &SAID {
        match said.compare_exchange(0, hash, Relaxed, Relaxed) {
            Ok(_) => break,
            Err(same) if same == hash => return,
            Err(_) if core::ptr::eq(said, &SAID[SAID.len() - 1]) => return,
            Err(_) => {}
        }
    }
    let mut line = Line::new();
    // SAFETY: `getpid` takes nothing and always succeeds.
    let _ = write!(line, "latchwork[{}]: warning: ", unsafe { libc::getpid() });
    line.bytes(name);
    let _ = writeln!(line, " {what}; a lock that it shares with the rest of the program does not work");
    stderr::write(line.as_bytes());
}
