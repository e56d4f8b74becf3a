//! Whether a filter of system calls (seccomp) that the process was started under lets it call `membarrier`.
//!
//! Some filters do not refuse a call but kill the process that makes it. So where there is a filter, a child process
//! makes the call first. Containers have filters, and most of those let `membarrier` pass.

use super::fence::{MEMBARRIER_PRIVATE_EXPEDITED, MEMBARRIER_REGISTER_PRIVATE_EXPEDITED};
use super::thread::read_file;

/// Whether the process may call `membarrier`. `false` if the call may kill it.
pub(super) fn lets_membarrier_pass() -> bool {
    is_absent() || child_survives()
}

/// Whether the kernel says that there is no filter.
fn is_absent() -> bool {
    let mut text = [0; 4096];
    let status = read_file(c"/proc/self/status", &mut text);
    let line = b"\nSeccomp:\t";
    let place = status.windows(line.len()).position(|part| part == line);
    place.is_some_and(|place| status.get(place + line.len()) == Some(&b'0'))
}

/// Whether a child process survives the calls.
fn child_survives() -> bool {
    // SAFETY: the child is a copy of this thread alone and makes system calls only, until it exits; `status` is valid.
    // The child has no exit signal, so the program's own waits for children do not see it. `errno` is restored: lock
    // calls must not disturb it.
    unsafe {
        let errno = libc::__errno_location();
        let saved = *errno;
        let child = libc::syscall(libc::SYS_clone, 0, 0, 0, 0, 0);
        if child == 0 {
            // A killed child must not leave a core file.
            libc::syscall(libc::SYS_prctl, libc::PR_SET_DUMPABLE, 0, 0, 0, 0);
            let ask = |command: i32| libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0;
            let ok = ask(MEMBARRIER_REGISTER_PRIVATE_EXPEDITED) && ask(MEMBARRIER_PRIVATE_EXPEDITED);
            loop {
                libc::syscall(libc::SYS_exit_group, i32::from(!ok));
            }
        }
        let mut status = -1;
        let waited = child > 0
            && loop {
                if libc::waitpid(child as libc::pid_t, &mut status, libc::__WALL) == child as libc::pid_t {
                    break true;
                }
                if *errno != libc::EINTR {
                    break false;
                }
            };
        *errno = saved;
        waited && status == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_filter_both_ways_agree() {
        assert!(child_survives());
        assert!(lets_membarrier_pass());
    }
}
