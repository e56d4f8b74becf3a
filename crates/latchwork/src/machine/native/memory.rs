//! Memory from the kernel.

use super::super::end;
use core::ptr::null_mut;

#[cfg(target_pointer_width = "64")]
const MMAP: libc::c_long = libc::SYS_mmap;
/// The last argument counts pages here, and is 0.
#[cfg(not(target_pointer_width = "64"))]
const MMAP: libc::c_long = libc::SYS_mmap2;

const NO_MEMORY: &str = "latchwork: the kernel gives no memory for waiters or readers: the process ends (ulimit -v, ulimit -l after \
    mlockall, vm.overcommit_memory)\n";

/// Pages of zero bytes, which stay mapped. If there are none, the process ends with a line of text: a lock call cannot report
/// that, and without memory it would not exclude.
///
/// Calls the kernel past `mmap`, which may be another library's and may use a lock that is being served here. `errno` is
/// restored, because lock calls must not change it.
pub(super) fn map<T>(bytes: usize) -> *mut T {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new anonymous mapping replaces nothing. The C library says where the calling thread's `errno` is.
    unsafe {
        let errno = libc::__errno_location();
        let saved = *errno;
        let memory = libc::syscall(MMAP, null_mut::<T>(), bytes, protection, flags, -1, 0_usize);
        if memory == -1 {
            end(NO_MEMORY);
        }
        *errno = saved;
        core::ptr::with_exposed_provenance_mut(memory as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::alone::{in_a_process, refuse};
    use crate::machine::{Machine, Native};

    #[test]
    fn without_memory_the_process_says_why_it_ends() {
        const VARIABLE: &str = "LATCHWORK_TEST_NO_MEMORY";
        if std::env::var_os(VARIABLE).is_some() {
            refuse(MMAP, None);
            Native::acquire_node();
            return;
        }
        let test = "machine::native::memory::tests::without_memory_the_process_says_why_it_ends";
        let (succeeded, text) = in_a_process(test, VARIABLE, "1");
        assert!(!succeeded && text.contains(NO_MEMORY), "{text}");
    }
}
