//! The asymmetric fence: `membarrier(2)`, and the unlock that it makes possible.
//!
//! # Why the decrement needs no `lock` prefix
//!
//! A waiter that is about to sleep (the *parker*) sets PARKED in the lock word with an atomic or. It calls [`heavy`] and
//! looks at the word again. It sleeps only if it still sees LOCKED and its own PARKED. The holder unlocks with
//! [`release_dec`]: on x86-64 one `dec` instruction. That is a load and a store, but not one atomic step, because the
//! processor does not keep the cache line between the two. There are two cases:
//!
//! - The decrement took effect (its store became visible) before `heavy` returned. Then the parker's second look finds
//!   the lock free; or taken again by a thread whose exchange came later; or it finds that PARKED was overwritten. In the
//!   last two cases the parker starts over.
//! - The decrement did not take effect before that. `membarrier` interrupts every processor that runs a thread of this
//!   process, and an interrupt falls between instructions, never inside one. So the whole `dec`, its load included, comes
//!   after PARKED was set: the holder sees PARKED and wakes the parker.
//!
//! A preempted holder is between two instructions as well, and the context switch is a full fence. The holder does not
//! read the word again after its store took effect, so the next holder may free the memory. A store and then a load of a
//! second word would be as fast, but that load could touch an unmapped page.
//!
//! The portable path is an atomic decrement, with which the parker needs no fence. x86-64 takes it until [`init`] has
//! run. It takes it for ever if the kernel refuses `membarrier` (a seccomp filter, or a kernel before 4.14), or if the
//! processor is a user-mode emulator, which may be interrupted inside of an instruction (`emulation`).
//!
//! State of [`MODE`]: UNKNOWN -> registering -> LIGHT or FULL; UNKNOWN -> FULL (`avoid`).

use super::super::Offers;
use super::emulation::is_emulated;
use core::sync::atomic::{AtomicU32, Ordering, fence};

pub(super) const MEMBARRIER_PRIVATE_EXPEDITED: i32 = 1 << 3;
pub(super) const MEMBARRIER_REGISTER_PRIVATE_EXPEDITED: i32 = 1 << 4;

const UNKNOWN: u32 = 0;
const LIGHT: u32 = 1;
const FULL: u32 = 2;

/// Which side pays for a fence. The hot side takes the cheap path in LIGHT alone, and no parker relies on `membarrier`
/// before it has seen LIGHT. While a thread registers the process, this is FULL plus the number of the process. By that, a
/// child that is forked meanwhile knows that it does not have the registering thread, and the next thread begins anew.
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

/// Decides the mode, once per process. Threads that call this meanwhile wait: a parker must not act as in FULL while the
/// hot side may be about to act as in LIGHT.
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
/// the registration), and the caller may only sleep for a bounded time.
pub(super) fn heavy() -> bool {
    init();
    fence(Ordering::SeqCst);
    if MODE.load(Ordering::Acquire) == FULL {
        return true; // the hot side uses atomic instructions and full fences, so the rare side needs no more than its own
    }
    // A forked child inherits the registration on every kernel that was tried. If it does not, this registers again.
    membarrier(MEMBARRIER_PRIVATE_EXPEDITED)
        || (membarrier(MEMBARRIER_REGISTER_PRIVATE_EXPEDITED) && membarrier(MEMBARRIER_PRIVATE_EXPEDITED))
}

/// See [`Machine::release_dec`](super::super::Machine::release_dec).
#[inline(always)]
pub(super) fn release_dec(word: &AtomicU32) -> bool {
    #[cfg(target_arch = "x86_64")]
    if is_light() {
        return light_dec(word);
    }
    (word.fetch_sub(1, Ordering::Release).wrapping_sub(1) as i32) < 0
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn light_dec(word: &AtomicU32) -> bool {
    let negative: u8;
    // SAFETY: the word is valid and writable. On x86 every store is a release store; the block is not `nomem`, so the
    // compiler moves no access across it.
    unsafe {
        core::arch::asm!(
            "dec dword ptr [{word}]",
            "sets {negative}",
            word = in(reg) word.as_ptr(),
            negative = out(reg_byte) negative,
            options(nostack),
        );
    }
    negative != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decrement_reports_the_top_bit() {
        for prepare in [|| (), init as fn()] {
            prepare();
            let word = AtomicU32::new(1);
            assert!(!release_dec(&word));
            assert_eq!(word.load(Ordering::Relaxed), 0);
            word.store(1 << 31 | 3, Ordering::Relaxed);
            assert!(release_dec(&word));
            assert_eq!(word.load(Ordering::Relaxed), 1 << 31 | 2);
        }
    }

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
        assert!(!is_emulated() || !is_light(), "the decrement is not whole under emulation");
    }
}
