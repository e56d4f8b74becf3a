//! The kernel's clock.
//!
//! A library that is preloaded beside this one may have a `clock_gettime` that tells another time (libfaketime), or that takes
//! locks. The locks here sleep by the kernel's clock, so they must read the same clock; and a lock call must not wait for a lock.
//! So nothing in this library calls that function. All code in it, Rust's standard library included, calls the function in
//! `clock.c` instead. That function reads the clock as the C library does: through the vDSO, an object that the kernel maps into
//! each process.

use super::dynamic::Dynamic;
use super::table::Slot;
use core::ffi::c_void;
use libc::{Elf64_Ehdr, Elf64_Phdr, c_int, clockid_t, timespec};

/// The answer is 0, or the number of the error, negated.
pub(crate) type Function = unsafe extern "C" fn(clockid_t, *mut timespec) -> c_int;

/// The function that reads the clock; until its first call, one that looks for it.
static FUNCTION: Slot<Function> = Slot::new(first_call);

/// `clock_gettime`.
#[unsafe(no_mangle)]
unsafe extern "C" fn latchwork_clock(clock: clockid_t, time: *mut timespec) -> c_int {
    // SAFETY: the caller passes room for a time; `errno` is always valid.
    unsafe {
        let error = FUNCTION.get()(clock, time);
        if error == 0 {
            return 0;
        }
        *libc::__errno_location() = -error;
        -1
    }
}

/// Looks for the function that reads the clock. While the process starts, so that no lock call has to do it.
pub(crate) fn find() -> Function {
    let function = in_kernel_object().unwrap_or(system_call);
    FUNCTION.set(function);
    function
}

unsafe extern "C" fn first_call(clock: clockid_t, time: *mut timespec) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { find()(clock, time) }
}

/// For a process without the kernel's object, as valgrind makes it.
unsafe extern "C" fn system_call(clock: clockid_t, time: *mut timespec) -> c_int {
    // SAFETY: the caller passes room for a time; `errno` is always valid.
    unsafe {
        match libc::syscall(libc::SYS_clock_gettime, clock, time) {
            0 => 0,
            _ => -*libc::__errno_location(),
        }
    }
}

fn in_kernel_object() -> Option<Function> {
    // SAFETY: the kernel says where it has mapped the object, which stays. It begins with its ELF header; that says where the
    // program headers are, and how many.
    let object = unsafe {
        let start = libc::getauxval(libc::AT_SYSINFO_EHDR) as usize;
        if start == 0 {
            return None;
        }
        let header = &*core::ptr::with_exposed_provenance::<Elf64_Ehdr>(start);
        let headers = core::ptr::with_exposed_provenance::<Elf64_Phdr>(start + header.e_phoff as usize);
        let headers = core::slice::from_raw_parts(headers, header.e_phnum.into());
        let first = headers.iter().find(|header| header.p_type == libc::PT_LOAD)?;
        let bias = start.wrapping_add(first.p_offset as usize).wrapping_sub(first.p_vaddr as usize);
        Dynamic::of(bias, headers)?
    };
    // The names on x86-64 and on AArch64.
    let function =
        [c"__vdso_clock_gettime", c"__kernel_clock_gettime"].iter().find_map(|name| object.function(name))?;
    // SAFETY: the kernel's function of this name has this type.
    Some(unsafe { core::mem::transmute::<*const c_void, Function>(function) })
}
