//! Whether the process runs under valgrind.

/// Asks valgrind, which knows the question by its first four instructions, and answers it instead of running them. The processor
/// rotates a register by 128 bits altogether, and nothing changes.
#[cfg(target_arch = "x86_64")]
pub(super) fn is_here() -> bool {
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
pub(super) fn is_here() -> bool {
    false
}
