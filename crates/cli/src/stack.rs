//! A stack that is large enough for this command, under a small limit (`ulimit -s`).
//!
//! Reading the options takes more than 64 KiB. The program that is to be run may do with less, and a crash of this command would
//! look like a crash of that program.

use std::mem::MaybeUninit;

/// Below this limit, in bytes, the command makes a stack of its own.
const SMALL: u64 = 4 << 20;
/// Its size in bytes. The kernel provides the pages that are used.
const SIZE: usize = 8 << 20;

/// Ends the process with the exit status that `command` returns. `command` has a large stack, unless there is no memory for one. It
/// must be called once, by the first thread.
pub fn exit_with(command: fn() -> i32) -> ! {
    if is_small() {
        on_own(command);
    }
    std::process::exit(command())
}

fn is_small() -> bool {
    let mut limit = MaybeUninit::<libc::rlimit>::uninit();
    // SAFETY: room for the answer.
    unsafe {
        libc::getrlimit(libc::RLIMIT_STACK, limit.as_mut_ptr()) == 0 && limit.assume_init().rlim_cur < SMALL
    }
}

/// Returns if there is no other stack.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn on_own(command: fn() -> i32) {
    use std::sync::OnceLock;

    static COMMAND: OnceLock<fn() -> i32> = OnceLock::new();
    extern "C" fn begin() {
        let command = COMMAND.get().expect("it is set before the stack is changed");
        std::process::exit(command());
    }

    COMMAND.get_or_init(|| command);
    // SAFETY: a new mapping replaces nothing. Its first page becomes inaccessible, so that a stack that is still too small ends the
    // process. The context is complete when the thread goes on with it, and `begin` does not return. This thread never comes back
    // to its first stack, which stays as it is.
    unsafe {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_STACK | libc::MAP_NORESERVE;
        let stack = libc::mmap(std::ptr::null_mut(), SIZE, access, kind, -1, 0);
        let mut context = MaybeUninit::<libc::ucontext_t>::uninit();
        if stack == libc::MAP_FAILED || libc::getcontext(context.as_mut_ptr()) != 0 {
            return;
        }
        libc::mprotect(stack, 4096, libc::PROT_NONE);
        let context = context.as_mut_ptr();
        (*context).uc_stack.ss_sp = stack;
        (*context).uc_stack.ss_size = SIZE;
        (*context).uc_link = std::ptr::null_mut();
        libc::makecontext(context, begin, 0);
        libc::setcontext(context);
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn on_own(_: fn() -> i32) {}
