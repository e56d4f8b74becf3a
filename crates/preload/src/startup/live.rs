//! The signal with which an observer switches the recorder on and off in a live process (`LATCHWORK_LIVE=1`).
//!
//! What was considered, and why it is a signal:
//!
//! - *A word in shared memory* that lock calls look at costs instructions in each call while nothing is recorded, unless only
//!   slow paths look. Then a process without contention, or under glibc's locks, never looks.
//! - *Writing into the process* (`process_vm_writev`, `ptrace`) is refused to users where `kernel.yama.ptrace_scope` is 1, as
//!   in Ubuntu; and it may store half of an address before a thread reads it.
//! - *Addresses of functions in shared memory* would let each process that can open the file run code in this one.
//! - *A thread of this library's* keeps the process from `unshare` and `setns`, and keeps the rights that the program gives up.
//! - *A signal* reaches the process at once and needs no more than the right to send one. It costs one system call at the start.
//!   Its price: a system call of the thread that gets it may return EINTR, if it is one that the kernel does not restart
//!   (`poll`, `epoll_wait`, `nanosleep`). The observer therefore prefers a thread that runs, or waits in a futex.
//!
//! The signal is SIGURG, which Go's runtime uses in the same way and for the same reasons: its default action is none, so it
//! kills no process that has just executed another program; programs do not expect it, and debuggers pass it on. A program
//! that has a handler of its own, or ignores the signal, keeps that, and cannot be observed.

use super::entry;
use crate::observers::profile;
use crate::state::generation;
use core::ffi::c_void;
use core::ptr::null_mut;
use latchwork_recording::control::SIGNAL;
use libc::{c_int, siginfo_t};

/// Waits for observers, from now on.
pub(super) fn listen() {
    profile::live::SWITCH.set(switch);
    // SAFETY: plain data, for which zeroes are a value. The handler is a plain function, and stays.
    unsafe {
        let mut found = core::mem::zeroed::<libc::sigaction>();
        if libc::sigaction(SIGNAL, core::ptr::null(), &mut found) != 0 || found.sa_sigaction != libc::SIG_DFL
        {
            return;
        }
        let mut action = core::mem::zeroed::<libc::sigaction>();
        let handler: unsafe extern "C" fn(c_int, *mut siginfo_t, *mut c_void) = knocked;
        action.sa_sigaction = handler as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK;
        // No other handler comes in between.
        libc::sigfillset(&mut action.sa_mask);
        libc::sigaction(SIGNAL, &action, null_mut());
    }
}

unsafe extern "C" fn knocked(_: c_int, info: *mut siginfo_t, _: *mut c_void) {
    // SAFETY: the kernel passes what it knows of the signal.
    let info = unsafe { &*info };
    if info.si_code == libc::SI_QUEUE {
        // SAFETY: a signal with this code has a value.
        profile::live::knock(unsafe { info.si_value() }.sival_ptr.addr() as u64);
    }
}

/// Puts the recorder's layer over what the program calls, or takes it off.
fn switch(on: bool) {
    if on {
        profile::place(true);
        entry::publish_again();
        generation::suspend_recommended(true);
    } else {
        generation::suspend_recommended(false);
        profile::place(false);
        entry::publish_again();
    }
}
