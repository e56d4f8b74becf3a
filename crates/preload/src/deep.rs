//! Libraries that bind past this one.
//!
//! What a program loads with `RTLD_DEEPBIND`, or into a namespace of its own (`dlmopen`), calls glibc's own pthread
//! functions. glibc and this library cannot serve one lock together, so the user has to know: one line on stderr names
//! the library.
//!
//! glibc searches a library by the run path of the object that calls `dlopen`, which it knows by the return address.
//! So every call goes on to glibc with a jump. One exception: a name with a slash is not searched for; there
//! [`load`] loads the library itself and then looks at what the library calls.

use crate::program::Dynamic;
use crate::stats::Line;
use crate::table::{REAL, TABLE, Table, install};
use core::ffi::{CStr, c_char, c_void};
use core::fmt::Write;
use core::mem::offset_of;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use libc::c_int;

core::arch::global_asm!(
    ".pushsection .text.latchwork_deep,\"ax\",@progbits",
    // The exported functions jump through the table: until the configuration is known, to what finds it out.
    ".balign 16",
    ".globl latchwork_deep_dlopen",
    ".type latchwork_deep_dlopen, @function",
    "latchwork_deep_dlopen: jmp [rip + {table} + {dlopen}]",
    ".size latchwork_deep_dlopen, . - latchwork_deep_dlopen",
    ".balign 16",
    ".globl latchwork_deep_dlmopen",
    ".type latchwork_deep_dlmopen, @function",
    "latchwork_deep_dlmopen: jmp [rip + {table} + {dlmopen}]",
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
    table = sym TABLE,
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
    static _r_debug: Debug;
}

/// Whether mutexes, and all that goes with them, and whether rwlocks are this library's.
static SERVED: [AtomicBool; 2] = [const { AtomicBool::new(false) }; 2];

/// Looks at what the program loads from now on.
pub(crate) fn install(mutex: bool, rwlock: bool) {
    SERVED[0].store(mutex, Relaxed);
    SERVED[1].store(rwlock, Relaxed);
    install! { dlopen => latchwork_dlopen, dlmopen => latchwork_dlmopen }
}

/// The start of the dynamic linker's `struct r_debug`.
#[repr(C)]
struct Debug {
    _version: c_int,
    /// The objects of the program's namespace, oldest first.
    first: *mut Object,
}

/// The start of the dynamic linker's `struct link_map`.
#[repr(C)]
struct Object {
    bias: usize,
    name: *const c_char,
    dynamic: *const [usize; 2],
    next: *mut Object,
}

/// Says that a library is about to be loaded with `RTLD_DEEPBIND`, unless `load` can say more. Returns whether it is
/// glibc's turn.
unsafe extern "C" fn announce(name: *const c_char, _flags: c_int) -> bool {
    // SAFETY: the caller's name, a string or null.
    let Some(name) = (unsafe { text(name) }) else { return true };
    if name.contains(&b'/') && !name.contains(&b'$') {
        return false;
    }
    warn(name, "may call glibc's own pthread functions, past latchwork: it is loaded with RTLD_DEEPBIND");
    true
}

unsafe extern "C" fn announce_namespace(name: *const c_char) {
    // SAFETY: the caller's name, a string or null.
    if let Some(name) = unsafe { text(name) } {
        warn(name, "calls another C library's pthread functions, past latchwork: it is loaded with dlmopen");
    }
}

/// `dlopen` of a library that is named by its path, with `RTLD_DEEPBIND`.
unsafe extern "C" fn load(name: *const c_char, flags: c_int) -> *mut c_void {
    // SAFETY: the caller's call, with the caller's arguments. Objects of the list stay while the caller's handle does,
    // and the objects before them do not change.
    unsafe {
        let mut last = _r_debug.first;
        while !last.is_null() && !(*last).next.is_null() {
            last = (*last).next;
        }
        let handle = REAL.dlopen.get()(name, flags);
        if !handle.is_null() && !last.is_null() {
            let mut object = (*last).next;
            while !object.is_null() {
                if goes_past(&*object, handle)
                    && let Some(name) = text((*object).name)
                {
                    warn(
                        name,
                        "calls glibc's own pthread functions, past latchwork: it was loaded with RTLD_DEEPBIND",
                    );
                }
                object = (*object).next;
            }
        }
        handle
    }
}

/// Whether the object, which was loaded with `handle`, calls a function of the interface that is not this library's.
unsafe fn goes_past(object: &Object, handle: *mut c_void) -> bool {
    if object.dynamic.is_null() {
        return false;
    }
    let mut found = false;
    // SAFETY: the dynamic linker's description of an object that is loaded.
    unsafe { Dynamic::new(object.bias, object.dynamic) }.each_import(|name, _| {
        let bytes = name.to_bytes();
        let with_mutexes: [&[u8]; 6] =
            [b"pthread_mutex_", b"pthread_cond_", b"pthread_spin_", b"sem_", b"mtx_", b"cnd_"];
        let with_rwlocks: [&[u8]; 1] = [b"pthread_rwlock_"];
        let is_served = [&with_mutexes[..], &with_rwlocks]
            .into_iter()
            .zip(&SERVED)
            .any(|(families, served)| served.load(Relaxed) && families.iter().any(|f| bytes.starts_with(f)));
        if found || !is_served {
            return;
        }
        // SAFETY: both look for a name among loaded objects.
        let (global, bound) =
            unsafe { (libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()), libc::dlsym(handle, name.as_ptr())) };
        found = !global.is_null() && !bound.is_null() && global != bound;
    });
    found
}

unsafe fn text<'a>(name: *const c_char) -> Option<&'a [u8]> {
    // SAFETY: from the caller.
    (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) }.to_bytes())
}

/// Says it on stderr, once for each name.
fn warn(name: &[u8], what: &str) {
    /// Hashes of the names; when all are taken, no more is said.
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
    // SAFETY: always succeeds.
    let _ = write!(line, "latchwork[{}]: warning: ", unsafe { libc::getpid() });
    line.bytes(name);
    let _ = writeln!(line, " {what}; a lock that it shares with the rest of the program does not work");
    line.write_to(libc::STDERR_FILENO);
}
