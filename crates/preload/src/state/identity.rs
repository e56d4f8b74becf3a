//! The number of the calling thread: no other thread of the process has it, or ever had it.
//!
//! The address of a thread's control block and the kernel's thread id are both used again after the thread has ended.
//! If a mutex stored one of those, a mutex that an ended thread left locked would look as if a later thread held it. So
//! each thread takes a number at its first use, from a counter that never goes back.
//!
//! The thread of a forked child keeps the number of the thread that forked, and so it still owns what that thread had
//! locked.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Bits of a number. A process that starts a million threads a second uses them up in twelve days.
pub(crate) const BITS: u32 = 40;

/// The calling thread's number: never 0.
#[inline(always)]
pub(crate) fn me() -> u64 {
    match tls::number() {
        0 => take(),
        number => number,
    }
}

/// Gives the calling thread its number.
#[cold]
#[inline(never)]
fn take() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let number = LAST.fetch_add(1, Relaxed) + 1;
    // If a signal handler of this thread has taken a number meanwhile, that number stands.
    match tls::word().compare_exchange(0, number, Relaxed, Relaxed) {
        Ok(_) => number,
        Err(first) => first,
    }
}

#[cfg(target_arch = "x86_64")]
mod tls {
    //! The initial-exec model, as in `holds`: it needs no call, and no memory.
    use core::sync::atomic::AtomicU64;

    core::arch::global_asm!(
        ".pushsection .tbss.__latchwork_identity,\"awT\",@nobits",
        ".weak __latchwork_identity",
        ".hidden __latchwork_identity",
        ".type __latchwork_identity, @object",
        ".size __latchwork_identity, 8",
        ".balign 8",
        "__latchwork_identity:",
        ".zero 8",
        ".popsection",
    );

    /// The number, or 0.
    #[inline(always)]
    pub(super) fn number() -> u64 {
        let number;
        // SAFETY: the symbol above is thread-local and defined in this link unit.
        unsafe {
            core::arch::asm!(
                "mov {0}, qword ptr [rip + __latchwork_identity@GOTTPOFF]",
                "mov {0}, qword ptr fs:[{0}]",
                out(reg) number,
                options(nostack, readonly, preserves_flags),
            );
        }
        number
    }

    /// Where it is.
    pub(super) fn word<'a>() -> &'a AtomicU64 {
        let address: *const AtomicU64;
        // SAFETY: the symbol above is thread-local, defined in this link unit, and eight aligned bytes. The
        // reference does not leave the calling thread.
        unsafe {
            core::arch::asm!(
                "mov {0}, qword ptr [rip + __latchwork_identity@GOTTPOFF]",
                "add {0}, qword ptr fs:[0]",
                out(reg) address,
                options(nostack, pure, readonly),
            );
            &*address
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod tls {
    use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

    std::thread_local! {
        static NUMBER: AtomicU64 = const { AtomicU64::new(0) };
    }

    #[inline]
    pub(super) fn number() -> u64 {
        word().load(Relaxed)
    }

    #[inline]
    pub(super) fn word<'a>() -> &'a AtomicU64 {
        // SAFETY: a thread-local without destructor lives as long as its thread, which the reference does not leave.
        NUMBER.with(|number| unsafe { &*core::ptr::from_ref(number) })
    }
}
