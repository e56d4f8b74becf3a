//! Who and where the calling thread is.

/// Whether the process has never had a second thread. glibc keeps this for its own locks.
#[cfg(target_env = "gnu")]
#[inline(always)]
pub(super) fn is_single() -> bool {
    unsafe extern "C" {
        static __libc_single_threaded: u8;
    }
    // SAFETY: glibc 2.32 or later exports it; it is written only by a thread that is alone.
    unsafe { (&raw const __libc_single_threaded).read_volatile() != 0 }
}

#[cfg(not(target_env = "gnu"))]
#[inline(always)]
pub(super) fn is_single() -> bool {
    false
}

/// The address of the thread control block: unique among live threads, one load.
#[inline(always)]
pub(super) fn id() -> usize {
    #[cfg(target_arch = "x86_64")]
    {
        let tcb: usize;
        // SAFETY: the x86-64 TLS ABI keeps the control block's own address at offset 0 of `fs`.
        unsafe {
            core::arch::asm!("mov {}, fs:[0]", out(reg) tcb, options(nostack, preserves_flags, pure, readonly));
        }
        tcb
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        // SAFETY: always succeeds.
        (unsafe { libc::pthread_self() }) as usize
    }
}

unsafe extern "C" {
    fn getcpu(cpu: *mut u32, node: *mut u32) -> i32;
}

/// The NUMA node of the calling thread, right now (vDSO, no system call).
pub(super) fn numa_node() -> u32 {
    let (mut cpu, mut node) = (0, 0);
    // SAFETY: both pointers are valid for writes.
    unsafe { getcpu(&mut cpu, &mut node) };
    node
}
