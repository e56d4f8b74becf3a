//! Sleeping, waking and the clock: `futex(2)` and `clock_gettime(2)`.

use super::super::{Clock, Deadline, Wait};
use core::sync::atomic::AtomicU32;

fn clock_id(clock: Clock) -> libc::clockid_t {
    match clock {
        Clock::Monotonic => libc::CLOCK_MONOTONIC,
        Clock::Realtime => libc::CLOCK_REALTIME,
    }
}

/// Nanoseconds on `clock` (vDSO, no system call).
pub(super) fn now(clock: Clock) -> u64 {
    let mut ts = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `ts` is valid for writes; both clocks always exist.
    unsafe { libc::clock_gettime(clock_id(clock), &mut ts) };
    ts.tv_sec as u64 * 1_000_000_000 + ts.tv_nsec as u64
}

/// The raw system call: no cancellation point, `errno` of the caller preserved.
///
/// # Safety
///
/// As `futex(2)` with these arguments.
unsafe fn futex(word: *const AtomicU32, op: i32, value: u32, timeout: *const libc::timespec) -> i64 {
    // An interposed lock call must not disturb `errno`: POSIX lock functions return their error.
    // SAFETY: `errno` is always valid; the call is as the caller promised.
    unsafe {
        let errno = libc::__errno_location();
        let saved = *errno;
        let bitset = u32::MAX;
        let result = libc::syscall(
            libc::SYS_futex,
            word,
            op | libc::FUTEX_PRIVATE_FLAG,
            value,
            timeout,
            0usize,
            bitset,
        );
        let result = if result < 0 { -i64::from(*errno) } else { result };
        *errno = saved;
        result
    }
}

/// Sleeps while `*word == expected`; see [`Machine::wait`](super::super::Machine::wait).
pub(super) fn wait(word: &AtomicU32, expected: u32, deadline: Option<Deadline>) -> Wait {
    let mut op = libc::FUTEX_WAIT_BITSET;
    let timeout = deadline.map(|d| {
        if d.clock == Clock::Realtime {
            op |= libc::FUTEX_CLOCK_REALTIME;
        }
        libc::timespec {
            tv_sec: (d.nanos / 1_000_000_000) as libc::time_t,
            tv_nsec: (d.nanos % 1_000_000_000) as libc::c_long,
        }
    });
    let timeout = timeout.as_ref().map_or(core::ptr::null(), core::ptr::from_ref);
    // SAFETY: `word` outlives the call and `timeout` is null or valid.
    let result = unsafe { futex(word, op, expected, timeout) };
    if result == -i64::from(libc::ETIMEDOUT) { Wait::TimedOut } else { Wait::Woken }
}

/// Wakes up to `count` sleepers. Uses the address alone: for freed memory the kernel returns an error, which is ignored.
pub(super) fn wake(word: *const AtomicU32, count: u32) -> usize {
    // SAFETY: FUTEX_WAKE dereferences nothing in this process.
    let woken = unsafe { futex(word, libc::FUTEX_WAKE, count.min(i32::MAX as u32), core::ptr::null()) };
    usize::try_from(woken).unwrap_or(0)
}

/// Moves one sleeper from one word to another, if the first still holds `expected`. If the kernel refuses (a filter of
/// system calls may), wakes the sleeper instead: a sleeper may be woken too early, but never too late.
pub(super) fn requeue(from: *const AtomicU32, expected: u32, to: &AtomicU32) {
    const MOVE_ONE: usize = 1;
    // SAFETY: FUTEX_CMP_REQUEUE reads `from` in the kernel, which reports freed memory as an error;
    // `errno` is restored.
    unsafe {
        let errno = libc::__errno_location();
        let saved = *errno;
        let op = libc::FUTEX_CMP_REQUEUE | libc::FUTEX_PRIVATE_FLAG;
        let to = core::ptr::from_ref(to);
        let refused =
            libc::syscall(libc::SYS_futex, from, op, 0, MOVE_ONE, to, expected) < 0 && *errno != libc::EAGAIN; // the word has changed
        *errno = saved;
        if refused {
            wake(from, 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::alone::refuse;
    use core::sync::atomic::Ordering;

    #[test]
    fn wait_returns_at_once_when_the_word_differs() {
        assert_eq!(wait(&AtomicU32::new(1), 2, None), Wait::Woken);
    }

    #[test]
    fn wait_times_out_on_both_clocks() {
        for clock in [Clock::Monotonic, Clock::Realtime] {
            let word = AtomicU32::new(7);
            let deadline = Deadline { clock, nanos: now(clock) + 2_000_000 };
            assert_eq!(wait(&word, 7, Some(deadline)), Wait::TimedOut);
            assert!(now(clock) >= deadline.nanos);
        }
    }

    #[test]
    fn requeued_sleepers_wait_for_the_other_word() {
        static FROM: AtomicU32 = AtomicU32::new(0);
        static TO: AtomicU32 = AtomicU32::new(0);
        let sleeper = std::thread::spawn(|| {
            while TO.load(Ordering::Acquire) == 0 {
                wait(&FROM, 0, None);
            }
        });
        // Once `wake` finds a sleeper at `TO`, the sleep has been moved.
        loop {
            requeue(&FROM, 0, &TO);
            TO.store(1, Ordering::Release);
            if wake(&TO, 1) == 1 || sleeper.is_finished() {
                break;
            }
            TO.store(0, Ordering::Release);
            std::thread::yield_now();
        }
        wake(&FROM, 1);
        sleeper.join().unwrap();
        assert_eq!(wake(&TO, 1), 0);
    }

    #[test]
    fn a_sleeper_that_cannot_be_moved_is_woken() {
        static FROM: AtomicU32 = AtomicU32::new(0);
        static TO: AtomicU32 = AtomicU32::new(0);
        static AWAKE: AtomicU32 = AtomicU32::new(0);
        let sleeper = std::thread::spawn(|| {
            let end = Deadline { clock: Clock::Monotonic, nanos: now(Clock::Monotonic) + 60_000_000_000 };
            let why = wait(&FROM, 0, Some(end));
            AWAKE.store(1, Ordering::Release);
            why
        });
        std::thread::spawn(|| {
            let requeue = (libc::FUTEX_CMP_REQUEUE | libc::FUTEX_PRIVATE_FLAG) as u32;
            refuse(libc::SYS_futex, Some(requeue));
            // The sleeper may not sleep yet. It is alone, so one that was moved stays asleep until its deadline.
            while AWAKE.load(Ordering::Acquire) == 0 {
                super::requeue(&FROM, 0, &TO);
                std::thread::yield_now();
            }
        })
        .join()
        .unwrap();
        assert_eq!(sleeper.join().unwrap(), Wait::Woken, "neither moved nor woken");
        assert_eq!(wake(&TO, 1), 0);
    }

    #[test]
    fn wake_counts_sleepers_and_keeps_errno() {
        static WORD: AtomicU32 = AtomicU32::new(0);
        let sleeper = std::thread::spawn(|| {
            while WORD.load(Ordering::Acquire) == 0 {
                wait(&WORD, 0, None);
            }
        });
        WORD.store(1, Ordering::Release);
        // SAFETY: errno is always valid.
        unsafe { *libc::__errno_location() = 99 };
        wake(&WORD, u32::MAX);
        wake(core::ptr::without_provenance(0x1000), 1);
        // SAFETY: errno is always valid.
        assert_eq!(unsafe { *libc::__errno_location() }, 99);
        sleeper.join().unwrap();
    }
}
