//! A thread's own words: where its list begins, and how much of it is in use.

use super::records::Record;

/// A thread's own words. All-zero: the thread has no list.
#[repr(C)]
pub(super) struct Local {
    pub(super) first: *mut Record,
    /// Entries of the first record below this index may be in use.
    pub(super) used: u32,
    /// How many entries of further records are in use, or were until another thread took them away.
    pub(super) overflow: u32,
}

/// The offset, in a thread's words, of the eight bytes that are zero while the thread reads nothing.
#[cfg(versioned)]
pub(crate) const ANY: usize = {
    assert!(core::mem::offset_of!(Local, overflow) == core::mem::offset_of!(Local, used) + 4);
    core::mem::offset_of!(Local, used)
};

/// The calling thread's words. They live as long as the thread.
#[inline(always)]
pub(super) fn local() -> *mut Local {
    tls::local()
}

#[cfg(target_arch = "x86_64")]
mod tls {
    //! The initial-exec model, which stable Rust has no switch for: two instructions instead of a
    //! call of `__tls_get_addr`, which may allocate.
    core::arch::global_asm!(
        ".pushsection .tbss.__latchwork_holds,\"awT\",@nobits",
        ".weak __latchwork_holds",
        ".hidden __latchwork_holds",
        ".type __latchwork_holds, @object",
        ".size __latchwork_holds, 16",
        ".balign 8",
        "__latchwork_holds:",
        ".zero 16",
        ".popsection",
    );

    #[inline(always)]
    pub(super) fn local() -> *mut super::Local {
        const { assert!(size_of::<super::Local>() == 16) };
        let address: *mut super::Local;
        // SAFETY: the symbol above is thread-local and defined in this link unit.
        unsafe {
            core::arch::asm!(
                "mov {0}, qword ptr [rip + __latchwork_holds@GOTTPOFF]",
                "add {0}, qword ptr fs:[0]",
                out(reg) address,
                options(nostack, pure, readonly),
            );
        }
        address
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod tls {
    use core::cell::UnsafeCell;

    std::thread_local! {
        static LOCAL: UnsafeCell<super::Local> = const {
            UnsafeCell::new(super::Local { first: core::ptr::null_mut(), used: 0, overflow: 0 })
        };
    }

    #[inline]
    pub(super) fn local() -> *mut super::Local {
        LOCAL.with(UnsafeCell::get)
    }
}
