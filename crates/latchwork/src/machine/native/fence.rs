//! The asymmetric fence: a light side that is no instruction, and a heavy side that is `membarrier(2)`.
//!
//! # What it is for
//!
//! Two threads each store one word and then load the other's, and at least one of them must see the other's store. Each needs
//! a full fence in between. Here one side, a reader, does so far more often than the other. So the *hot* side has a
//! compiler barrier for its fence, and the *rare* side pays for both by calling [`heavy`].
//!
//! | the hot side stores | then it loads | the rare side stores | then it loads | where |
//! |---|---|---|---|---|
//! | a reader of `bravo-2d-*`: the lock's address, into its row | the bias | a writer that revokes the bias: no bias | all rows | `locks/rwlock/bravo` |
//! | a reader of RCU, epochs or intervals: the clock, into its record | what it reads | a thread that reclaims: objects are unlinked | all records | `reclaim/section.rs` |
//! | a reader with a hazard pointer: the object's address | the pointer once more | a thread that reclaims: objects are unlinked | all hazard pointers | `reclaim/hazard.rs` |
//!
//! The profiler of the preload library and the C interface have pairs of the same kind. No release of a lock needs this fence.
//!
//! # Why a compiler barrier is enough
//!
//! `membarrier` interrupts every processor that runs a thread of this process, and each executes a full fence. (A thread that
//! is not running has executed one in its context switch.) The interrupt falls between two instructions of the hot side, so
//! there are two cases:
//!
//! - The hot side's store comes before the interrupt. The rare side sees it when [`heavy`] has returned.
//! - It comes after the interrupt, and so does the load. That load sees what the rare side stored before it called [`heavy`].
//!
//! Both need no more than that the load comes after the store in the instructions that are interrupted. A user-mode emulator
//! executes a translation of the program, and the interrupt falls between two instructions of that. On x86-64 a load may
//! overtake an earlier store to another word, so a translator may exchange the two. The rare side could then overlook a reader.
//! Whether any emulator does that was not checked: the mode is FULL under an emulator that gives its name (`emulation`).
//!
//! # The modes
//!
//! | [`MODE`] | the hot side | the rare side |
//! |---|---|---|
//! | UNKNOWN: no thread has needed the heavy side yet | a full fence | [`init`] decides the mode first |
//! | registering: a thread asks the kernel for `membarrier` | a full fence | waits until the mode is decided |
//! | LIGHT | a compiler barrier | `membarrier` |
//! | FULL: the kernel refuses `membarrier` (a seccomp filter, or a kernel before 4.14), an emulator, or [`avoid`] | a full fence | a full fence |
//!
//! UNKNOWN -> registering -> LIGHT or FULL; UNKNOWN -> FULL ([`avoid`]). A full fence of the hot side pairs with either fence of
//! the rare side, so a reader that looked at the mode just before it became LIGHT is safe. LIGHT and FULL stay. So a reader that
//! has once seen LIGHT need not look at the mode again ([`lightest_fence`](super::super::Machine::lightest_fence)).

use super::super::Offers;
use super::emulation::is_emulated;
use core::sync::atomic::{AtomicU32, Ordering, fence};

pub(super) const MEMBARRIER_PRIVATE_EXPEDITED: i32 = 1 << 3;
pub(super) const MEMBARRIER_REGISTER_PRIVATE_EXPEDITED: i32 = 1 << 4;

const UNKNOWN: u32 = 0;
const LIGHT: u32 = 1;
const FULL: u32 = 2;

/// Which side pays for a fence. The hot side takes the cheap path in LIGHT alone, and the rare side decides the mode before it
/// acts. While a thread registers the process, this is FULL plus the number of the process. By that, a child that is forked
/// meanwhile knows that it does not have the registering thread, and the next thread begins anew.
static MODE: AtomicU32 = AtomicU32::new(UNKNOWN);

fn membarrier(command: i32) -> bool {
    // SAFETY: `membarrier` takes no pointers, and `errno` is the thread's own. It is restored: lock calls must not change
    // it.
    unsafe {
        let errno = libc::__errno_location();
        let saved = *errno;
        let ok = libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0;
        *errno = saved;
        ok
    }
}

/// Whether the hot side may take the cheap path.
#[inline(always)]
pub(super) fn is_light() -> bool {
    MODE.load(Ordering::Relaxed) == LIGHT
}

/// Decides the mode, once per process. Threads that call this meanwhile wait: the rare side must not act as in FULL while
/// the hot side may be about to act as in LIGHT.
pub(super) fn init() {
    let (mut mode, mut offers) = (MODE.load(Ordering::Acquire), Offers::new());
    while mode != LIGHT && mode != FULL {
        // SAFETY: the call takes no arguments and touches no memory.
        let registering = FULL + unsafe { libc::getpid() } as u32;
        if mode == registering {
            offers.take::<super::Native>(u64::MAX);
            mode = MODE.load(Ordering::Acquire);
            continue;
        }
        match MODE.compare_exchange(mode, registering, Ordering::Acquire, Ordering::Acquire) {
            Ok(_) => {
                let light = !is_emulated() && membarrier(MEMBARRIER_REGISTER_PRIVATE_EXPEDITED);
                MODE.store(if light { LIGHT } else { FULL }, Ordering::Release);
                return;
            }
            Err(now) => mode = now,
        }
    }
}

/// Whether no thread has begun to decide the mode.
pub(super) fn is_undecided() -> bool {
    MODE.load(Ordering::Relaxed) == UNKNOWN
}

/// Decides against `membarrier`, unless the mode is decided already.
pub(super) fn avoid() {
    // If another thread is deciding the mode, this has no effect.
    let _ = MODE.compare_exchange(UNKNOWN, FULL, Ordering::AcqRel, Ordering::Relaxed);
}

/// A full fence on every running thread of the process. `false`: the kernel refuses it now (a filter was installed after
/// the registration), and the caller must not rely on the fence.
pub(super) fn heavy() -> bool {
    init();
    fence(Ordering::SeqCst);
    if MODE.load(Ordering::Acquire) == FULL {
        return true; // the hot side uses full fences, so the rare side needs no more than its own
    }
    // A forked child inherits the registration on every kernel that was tried. If it does not, this registers again.
    membarrier(MEMBARRIER_PRIVATE_EXPEDITED)
        || (membarrier(MEMBARRIER_REGISTER_PRIVATE_EXPEDITED) && membarrier(MEMBARRIER_PRIVATE_EXPEDITED))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A child that was forked while another thread of its parent was deciding the mode decides it itself.
    #[test]
    fn a_fork_in_the_middle_of_the_registration() {
        // SAFETY: the child only looks at words and exits; it is ours, and `status` valid.
        unsafe {
            let parent = libc::getpid() as u32;
            let child = libc::fork();
            if child == 0 {
                libc::alarm(300); // ends a child that hangs
                MODE.store(FULL + parent, Ordering::Relaxed);
                let fenced = heavy() && is_light() != is_emulated();
                libc::_exit(i32::from(!fenced));
            }
            let mut status = -1;
            libc::waitpid(child, &mut status, 0);
            assert_eq!(status, 0);
        }
    }

    #[test]
    fn heavy_fence_is_granted() {
        assert!(heavy(), "the kernel refused membarrier after granting its registration");
        assert!(!is_emulated() || !is_light(), "an emulator may exchange a store and a load");
    }
}
