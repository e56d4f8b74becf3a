//! The stacks of loom's threads, kept for the next execution.
//!
//! loom runs each thread of each execution on a stack that it maps, guards with a page, faults in and unmaps again. That
//! takes half of the time of a run, all of it under one lock of the process. So this binary has its own `mmap`, `mprotect`
//! and `munmap`, which the linker prefers to the C library's. They pass every call on to the kernel, except for mappings
//! made as stacks. A stack stays with the OS thread that made it until that thread ends, guard and all. It is handed out
//! again, the oldest stack first, so that each of loom's threads gets the stack that it had in the last execution.
//!
//! A new mapping is zero, and a used stack is not: no code may rely on the contents of a new stack.

use crate::machine::Model;
use libc::{MAP_ANONYMOUS, MAP_PRIVATE, MAP_STACK, PROT_NONE, PROT_READ, PROT_WRITE};
use libc::{c_int, c_long, c_void, off_t, size_t};
use loom::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::cell::RefCell;

/// What the C library's functions of these names do.
mod kernel {
    use super::*;

    pub unsafe fn mmap(
        at: *mut c_void,
        size: size_t,
        access: c_int,
        flags: c_int,
        file: c_int,
        offset: off_t,
    ) -> *mut c_void {
        let [access, flags, file] = [access, flags, file].map(c_long::from);
        // SAFETY: the caller keeps the rules of the C function of this name.
        let new = unsafe { libc::syscall(libc::SYS_mmap, at, size, access, flags, file, offset) };
        std::ptr::with_exposed_provenance_mut(new as usize)
    }

    pub unsafe fn mprotect(start: *mut c_void, size: size_t, access: c_int) -> c_int {
        // SAFETY: the caller keeps the rules of the C function of this name.
        unsafe { libc::syscall(libc::SYS_mprotect, start, size, c_long::from(access)) as c_int }
    }

    pub unsafe fn munmap(start: *mut c_void, size: size_t) -> c_int {
        // SAFETY: the caller keeps the rules of the C function of this name.
        unsafe { libc::syscall(libc::SYS_munmap, start, size) as c_int }
    }
}

/// A mapping that the running OS thread has made.
struct Stack {
    start: *mut c_void,
    size: size_t,
    /// Whether it is mapped as far as its user knows.
    in_use: bool,
    /// Bytes from `start` on that may not be touched.
    guard: size_t,
}

impl Drop for Stack {
    fn drop(&mut self) {
        // A stack in use is unmapped later, past this table.
        if !self.in_use {
            // SAFETY: its last user has unmapped it, so no thread uses it.
            unsafe { kernel::munmap(self.start, self.size) };
        }
    }
}

std::thread_local! {
    static STACKS: RefCell<Vec<Stack>> = const { RefCell::new(Vec::new()) };
}

/// Looks at the running thread's stacks, unless it does so already, or is about to end and has given them up.
fn stacks<R>(look: impl FnOnce(&mut Vec<Stack>) -> Option<R>) -> Option<R> {
    STACKS.try_with(|stacks| look(&mut *stacks.try_borrow_mut().ok()?)).ok().flatten()
}

/// As mmap(2).
///
/// # Safety
///
/// As mmap(2).
#[unsafe(no_mangle)]
unsafe extern "C" fn mmap(
    at: *mut c_void,
    size: size_t,
    access: c_int,
    flags: c_int,
    file: c_int,
    offset: off_t,
) -> *mut c_void {
    // SAFETY: the caller keeps the rules of the C function of this name.
    let map = || unsafe { kernel::mmap(at, size, access, flags, file, offset) };
    let asked = (at.is_null(), access, flags);
    if asked != (true, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK) {
        return map();
    }
    let taken = stacks(|stacks| {
        let free = stacks.iter_mut().find(|stack| !stack.in_use && stack.size == size)?;
        free.in_use = true;
        Some(free.start)
    });
    taken.unwrap_or_else(|| {
        let start = map();
        if start != libc::MAP_FAILED {
            let stack = Stack { start, size, in_use: true, guard: 0 };
            stacks(|stacks| {
                stacks.push(stack);
                Some(())
            });
        }
        start
    })
}

/// As mprotect(2).
///
/// # Safety
///
/// As mprotect(2).
#[unsafe(no_mangle)]
unsafe extern "C" fn mprotect(start: *mut c_void, size: size_t, access: c_int) -> c_int {
    let before = stacks(|stacks| {
        let stack = stacks.iter_mut().find(|stack| stack.start == start && access == PROT_NONE)?;
        Some(std::mem::replace(&mut stack.guard, size))
    });
    if before == Some(size) {
        return 0;
    }
    // SAFETY: the caller keeps the rules of the C function of this name.
    unsafe { kernel::mprotect(start, size, access) }
}

/// As munmap(2).
///
/// # Safety
///
/// As munmap(2).
#[unsafe(no_mangle)]
unsafe extern "C" fn munmap(start: *mut c_void, size: size_t) -> c_int {
    let kept = stacks(|stacks| {
        let stack = stacks.iter_mut().find(|stack| (stack.start, stack.size) == (start, size))?;
        stack.in_use = false;
        Some(())
    });
    // SAFETY: the caller keeps the rules of the C function of this name.
    kept.map_or_else(|| unsafe { kernel::munmap(start, size) }, |()| 0)
}

/// Two threads have two stacks, however often they run.
#[test]
fn used_again() {
    let add = |sum: &AtomicUsize| _ = sum.fetch_add(1, Relaxed);
    for _ in 0..2 {
        Model::exhaustive().check(|| AtomicUsize::new(0), &[add, add], |_| ());
        STACKS.with_borrow(|stacks| {
            assert_eq!(stacks.len(), 2, "loom maps its stacks in another way");
            assert!(stacks.iter().all(|stack| !stack.in_use && stack.guard > 0));
        });
    }
}
