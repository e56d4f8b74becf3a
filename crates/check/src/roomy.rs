//! A stack for the thread that prints. Looking up names takes some 20 KiB of stack, and a thread may have 16 KiB in all
//! (`PTHREAD_STACK_MIN`).

use crate::sanitizer::Unseen;

/// Calls `f` on a stack that has room, or on the caller's stack if there is no memory for another one.
///
/// # Safety
///
/// One thread at a time. `f` does not unwind, and the caller is not cancelled meanwhile.
pub(crate) unsafe fn call(f: &mut dyn FnMut()) {
    // Threads use that stack one after the other.
    let _unseen = Unseen::new();
    // SAFETY: the caller's promise.
    if !unsafe { other::call(f) } {
        f();
    }
}

#[cfg(all(target_env = "gnu", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod other {
    use crate::memory;
    use libc::ucontext_t;
    use std::ptr::null_mut;
    use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

    /// Bytes of the stack: more than ten times what looking up a name takes.
    const SIZE: usize = 256 << 10;
    /// Bytes below the stack that no thread may touch: a page, of the largest size that processors have.
    const GUARD: usize = 64 << 10;

    #[repr(C, align(16))]
    struct Area {
        guard: [u8; GUARD],
        stack: [u8; SIZE],
        caller: ucontext_t,
        callee: ucontext_t,
    }

    /// Stays mapped once it is needed.
    static AREA: AtomicPtr<Area> = AtomicPtr::new(null_mut());

    type Task<'a> = &'a mut dyn FnMut();
    /// What the stack is used for now.
    static TASK: AtomicPtr<Task> = AtomicPtr::new(null_mut());

    extern "C" fn begin() {
        // SAFETY: `call` has stored the task, and waits for this function.
        unsafe { (*TASK.load(Relaxed))() };
    }

    fn area() -> *mut Area {
        let mut area = AREA.load(Relaxed);
        if area.is_null() {
            area = memory::map();
            // SAFETY: the lowest bytes of the area are used for nothing.
            if area.is_null() || unsafe { libc::mprotect(area.cast(), GUARD, libc::PROT_NONE) } != 0 {
                return null_mut();
            }
            AREA.store(area, Relaxed);
        }
        area
    }

    /// `false`: there is no such stack.
    ///
    /// # Safety
    ///
    /// As [`call`](super::call).
    pub(super) unsafe fn call(mut f: Task) -> bool {
        let area = area();
        if area.is_null() {
            return false;
        }
        TASK.store((&raw mut f).cast(), Relaxed);
        // SAFETY: the area is this thread's until the task ends, and the contexts in it do not move. `begin` returns to the
        // context that `swapcontext` saves.
        unsafe {
            let (caller, callee) = (&raw mut (*area).caller, &raw mut (*area).callee);
            let stack = &raw mut (*area).stack;
            if libc::getcontext(callee) != 0 {
                return false;
            }
            (*callee).uc_stack.ss_sp = stack.cast();
            (*callee).uc_stack.ss_size = SIZE;
            (*callee).uc_link = caller;
            libc::makecontext(callee, begin, 0);
            libc::swapcontext(caller, callee) == 0
        }
    }
}

#[cfg(not(all(target_env = "gnu", any(target_arch = "x86_64", target_arch = "aarch64"))))]
mod other {
    /// `false`: there is no such stack here.
    pub(super) unsafe fn call(_: &mut dyn FnMut()) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_task_runs_once_each_time() {
        let mut calls = 0;
        for _ in 0..3 {
            // SAFETY: no other test prints, and the closure does not panic.
            unsafe { call(&mut || calls += 1) };
        }
        assert_eq!(calls, 3);
    }
}
