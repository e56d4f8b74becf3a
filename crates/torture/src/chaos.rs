//! What happens to threads that wait: signals, other processors, forks.

use crate::random::Random;
use crate::worker::Crew;
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering::*};
use std::time::{Duration, Instant};

/// How often.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Disturbances {
    /// Signals sent.
    pub signals: u64,
    /// Threads bound to another processor, or set free again.
    pub moves: u64,
    /// Children forked, and found to be able to use a lock of their own.
    pub forks: u64,
}

/// What interrupts waiters. Its default action is to do nothing, so one that arrives late is harmless.
const SIGNAL: i32 = libc::SIGURG;

/// Disturbs the threads until the run is over.
pub(crate) fn disturb(crew: &Crew, child: impl Fn() -> Result<(), String>) -> Disturbances {
    /// Children cost a millisecond of everybody's time.
    const BETWEEN_FORKS: Duration = Duration::from_millis(100);
    catch_signals();
    let mut random = Random::new(crew.seed());
    let processors = processors();
    let mut done = Disturbances::default();
    let mut fork_at = Instant::now();
    while !crew.is_over() {
        std::thread::sleep(Duration::from_micros(100 + random.below(1000)));
        for _ in 0..random.below(4) {
            done.signals += u64::from(interrupt(one_of(crew, &mut random)));
        }
        if random.once_in(4) {
            // A few at a time, onto one processor: the holder and its waiters, with luck.
            let only = (!random.once_in(3)).then(|| random.pick(&processors));
            for _ in 0..1 + random.below(4) {
                done.moves += u64::from(bind(one_of(crew, &mut random), only, &processors));
            }
        }
        if Instant::now() >= fork_at {
            match child() {
                Ok(()) => done.forks += 1,
                Err(what) => crew.fail(what),
            }
            fork_at = Instant::now() + BETWEEN_FORKS;
        }
    }
    done
}

fn one_of(crew: &Crew, random: &mut Random) -> i32 {
    crew.posts()[random.below(crew.posts().len() as u64) as usize].thread()
}

/// Sends the signal; `false` if the thread has gone.
fn interrupt(thread: i32) -> bool {
    // SAFETY: a signal to a thread of this process that has a handler for it.
    thread != 0 && unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, SIGNAL) } == 0
}

/// Processors that this process may use; at least one.
pub(crate) fn processors() -> Vec<usize> {
    // SAFETY: the set is valid for writes, and plain data.
    let set = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set);
        set
    };
    // SAFETY: each number is within the set.
    let found: Vec<_> =
        (0..libc::CPU_SETSIZE as usize).filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) }).collect();
    if found.is_empty() { vec![0] } else { found }
}

/// Binds a thread to one processor, or to all again.
fn bind(thread: i32, only: Option<usize>, all: &[usize]) -> bool {
    if thread == 0 {
        return false;
    }
    // SAFETY: the set is plain data and each number is within it.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        match only {
            Some(cpu) => libc::CPU_SET(cpu, &mut set),
            None => all.iter().for_each(|&cpu| libc::CPU_SET(cpu, &mut set)),
        }
        libc::sched_setaffinity(thread, size_of::<libc::cpu_set_t>(), &set) == 0
    }
}

fn catch_signals() {
    static ONCE: Once = Once::new();
    // SAFETY: the handler only calls what a signal handler may; the structure is valid. Without
    // SA_RESTART, so that system calls end with EINTR.
    ONCE.call_once(|| unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_signal as *const () as usize;
        libc::sigaction(SIGNAL, &action, std::ptr::null_mut());
    });
}

/// Holds the thread up for a while, wherever it was.
extern "C" fn on_signal(_: i32) {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Relaxed);
    // SAFETY: both calls are allowed in a signal handler; `errno` is restored.
    unsafe {
        let errno = *libc::__errno_location();
        if count.is_multiple_of(16) {
            let time = libc::timespec { tv_sec: 0, tv_nsec: 200_000 };
            libc::nanosleep(&time, std::ptr::null_mut());
        } else if count.is_multiple_of(4) {
            libc::sched_yield();
        }
        *libc::__errno_location() = errno;
    }
}

/// Runs `other` in a thread of its own beside `own`, and returns what `own` does. For a forked child: a thread of the standard
/// library locks a mutex of that library when it begins, which a thread of the parent may have held at the fork.
pub(crate) fn beside<T>(other: impl Fn() + Sync, own: impl FnOnce() -> T) -> T {
    extern "C" fn start<F: Fn()>(body: *mut libc::c_void) -> *mut libc::c_void {
        // SAFETY: `beside` joins this thread before its function goes. A panic ends the child.
        unsafe { (*body.cast::<F>())() };
        std::ptr::null_mut()
    }
    fn start_of<F: Fn()>(_: &F) -> extern "C" fn(*mut libc::c_void) -> *mut libc::c_void {
        start::<F>
    }
    let mut thread = 0;
    let body = (&raw const other).cast_mut().cast();
    // SAFETY: the thread shares a `Sync` function, which outlives it.
    let error = unsafe { libc::pthread_create(&raw mut thread, std::ptr::null(), start_of(&other), body) };
    assert_eq!(error, 0, "a thread in the child");
    let result = own();
    // SAFETY: created above, and joined once.
    unsafe { libc::pthread_join(thread, std::ptr::null_mut()) };
    result
}

/// `check` in a child of this process, which has `patience` to return true.
pub(crate) fn in_child(check: impl Fn() -> bool, patience: Duration) -> impl Fn() -> Result<(), String> {
    move || {
        // SAFETY: the child only runs `check`, on locks of its own, and leaves without cleaning up.
        let child = unsafe { libc::fork() };
        match child {
            0 => {
                // SAFETY: no memory is involved; `_exit` runs nothing of the parent's.
                unsafe {
                    libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                    let works =
                        std::panic::catch_unwind(std::panic::AssertUnwindSafe(&check)).unwrap_or(false);
                    libc::_exit(i32::from(!works))
                }
            }
            child if child < 0 => Err(format!("fork: {}", std::io::Error::last_os_error())),
            child => match wait(child, patience) {
                Some(0) => Ok(()),
                Some(status) if libc::WIFSIGNALED(status) => {
                    let signal = libc::WTERMSIG(status);
                    Err(format!("after a fork, a fresh lock in the child killed it (signal {signal})"))
                }
                Some(_) => Err("after a fork, a fresh lock in the child does not exclude".into()),
                None => Err("after a fork, a fresh lock in the child is stuck".into()),
            },
        }
    }
}

/// The child's status, or `None` if it takes too long, in which case it is killed. Looks are counted,
/// not time, for the reason in [`run`](crate::run).
fn wait(child: i32, patience: Duration) -> Option<i32> {
    const LOOK: Duration = Duration::from_micros(500);
    let mut status = 0;
    for _ in 0..patience.as_micros() / LOOK.as_micros() {
        // SAFETY: `status` is valid for writes, and the child is ours.
        if unsafe { libc::waitpid(child, &mut status, libc::WNOHANG) } == child {
            return Some(status);
        }
        std::thread::sleep(LOOK);
    }
    // SAFETY: the child has not been waited for, so its number is still its own.
    unsafe {
        libc::kill(child, libc::SIGKILL);
        libc::waitpid(child, &mut status, 0);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_that_fail_are_noticed() {
        let patience = Duration::from_secs(300);
        assert_eq!(in_child(|| true, patience)(), Ok(()));
        assert!(in_child(|| false, patience)().unwrap_err().contains("does not exclude"));
        let stuck = || loop {
            std::thread::sleep(Duration::from_secs(1));
        };
        assert!(in_child(stuck, Duration::from_millis(100))().unwrap_err().contains("stuck"));
        fn dies() -> bool {
            // SAFETY: ends the child.
            unsafe { libc::raise(libc::SIGKILL) };
            true
        }
        assert!(in_child(dies, patience)().unwrap_err().contains("signal 9"));
    }
}
