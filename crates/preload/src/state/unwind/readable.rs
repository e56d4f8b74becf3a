//! Which pages the kernel can read.

use crate::state::memory::quietly;
use core::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// Which system call tells; 0: not known yet.
static CALL: AtomicU8 = AtomicU8::new(0);
/// `rt_sigprocmask` is the cheapest call of its sort, and no filter of system calls refuses it.
const BLOCKS_SIGNALS: u8 = 1;
/// `process_vm_readv`, which takes ten times as long, and which filters of services refuse.
const READS_MEMORY: u8 = 2;

/// Whether the kernel can read a page.
pub(crate) fn is_readable(page: usize) -> bool {
    quietly(|| {
        if CALL.load(Relaxed) == 0 {
            // The first page is never mapped. An emulator may look at the arguments in another order than the kernel, and valgrind
            // would report a set of signals that was never written.
            let is_told = !is_valgrind() && !may_block_signals(0);
            CALL.store(if is_told { BLOCKS_SIGNALS } else { READS_MEMORY }, Relaxed);
        }
        if CALL.load(Relaxed) == BLOCKS_SIGNALS { may_block_signals(page) } else { may_read_memory(page) }
    })
}

/// Asks the kernel to change the set of blocked signals to what lies there, in a way that does not exist: it reads the set first.
fn may_block_signals(page: usize) -> bool {
    const NO_WAY: libc::c_int = -1;
    const SET: usize = 8;
    // A null pointer would stand for no set.
    let set = page + SET;
    // SAFETY: changes nothing. The kernel reports an address that it cannot read (EFAULT), and otherwise the way (EINVAL).
    unsafe {
        libc::syscall(libc::SYS_rt_sigprocmask, NO_WAY, set, core::ptr::null::<u8>(), SET) == 0
            || *libc::__errno_location() != libc::EFAULT
    }
}

fn may_read_memory(page: usize) -> bool {
    let mut byte = 0_u8;
    let local = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    let remote = libc::iovec { iov_base: core::ptr::without_provenance_mut(page), iov_len: 1 };
    // SAFETY: the kernel writes at most one byte, and reports what it cannot read.
    unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) == 1 }
}

/// Asks valgrind, which knows the question by its first four instructions, and answers it instead of running them. The processor
/// rotates a register by 128 bits altogether, and nothing changes.
#[cfg(target_arch = "x86_64")]
fn is_valgrind() -> bool {
    /// `VG_USERREQ__RUNNING_ON_VALGRIND` in `valgrind.h`.
    const RUNNING_ON_VALGRIND: u64 = 0x1001;
    let request = [RUNNING_ON_VALGRIND, 0, 0, 0, 0, 0];
    let mut answer = 0_u64;
    // SAFETY: changes no other register than that of the answer.
    unsafe {
        core::arch::asm!(
            "rol rdi, 3",
            "rol rdi, 13",
            "rol rdi, 61",
            "rol rdi, 51",
            "xchg rbx, rbx",
            inout("rdx") answer,
            in("rax") request.as_ptr(),
            inout("rdi") 0_u64 => _,
            options(nostack),
        );
    }
    answer != 0
}

#[cfg(not(target_arch = "x86_64"))]
fn is_valgrind() -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both calls know pages that can be read from those that cannot.
    #[test]
    fn pages() {
        const PAGE: usize = 4096;
        // SAFETY: a new mapping, which replaces nothing and is used only here.
        let start = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let memory = libc::mmap(core::ptr::null_mut(), 3 * PAGE, libc::PROT_READ, flags, -1, 0);
            assert_ne!(memory, libc::MAP_FAILED);
            assert_eq!(libc::mprotect(memory.byte_add(PAGE), PAGE, libc::PROT_NONE), 0);
            assert_eq!(
                libc::mprotect(memory.byte_add(2 * PAGE), PAGE, libc::PROT_READ | libc::PROT_WRITE),
                0
            );
            memory.expose_provenance()
        };
        for (number, expected) in [true, false, true].into_iter().enumerate() {
            let page = start + number * PAGE;
            assert_eq!(may_block_signals(page), expected, "page {number}");
            assert_eq!(may_read_memory(page), expected, "page {number}");
            assert_eq!(is_readable(page), expected, "page {number}");
        }
        assert!(!is_readable(0) && !may_block_signals(0) && !may_read_memory(0));
    }
}
