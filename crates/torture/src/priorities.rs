//! Threads of three real-time priorities on one processor.
//!
//! Under `SCHED_FIFO` the thread with the highest priority that can run has the processor until it sleeps. `sched_yield`
//! does not give the processor to a lower priority. So a thread that waits awake for a step of a preempted thread with a
//! lower priority waits for ever: neither of them makes progress again (a *livelock*). The windows are a few
//! instructions long. A thread may be preempted after it has put its node at the tail of a queue and before it has
//! linked the node to its predecessor's. It may be the head to which the lock has just been left.
//!
//! Three threads, pinned to one processor, run the operations of another scenario's subject. Between operations, and
//! inside sections, they *nap*: they sleep for a random time of up to 50 microseconds. When a nap ends, the thread
//! preempts a thread of lower priority at whatever instruction that is. On the jitter machine a thread also ends the naps
//! of threads with a higher priority, before one in four of its steps. There the preemption comes exactly between two
//! steps, so each window is met thousands of times a second.
//!
//! A livelock shows as an operation that does not end: [`run`](crate::run) looks at the counts from a thread of a higher
//! priority, which is not pinned. The kernel's limit on the time of real-time threads (`sched_rt_runtime_us`) does not
//! hide it. That limit stops all real-time threads of a processor at a time, or, since Linux 6.12, serves ordinary
//! threads only. So the lower of two real-time threads never runs in place of the higher.
//!
//! The watcher alone is not enough. A thread of a low priority can be preempted while it holds something that every thread
//! needs: the kernel's lock of the address space (page faults, `mmap`, new threads) or a mutex of the C library. In a
//! livelock that thread never runs again, and the watcher, once it needs the same, waits for ever. So the kernel watches
//! too. `RLIMIT_RTTIME` limits the processor time of a real-time thread between two sleeps. The kernel sends `SIGXCPU` to a
//! thread that exceeds the limit, and the handler takes the thread's priority away (`lose_priority`). Then the other
//! threads run, and the watcher reports the livelock. The limit is longer than the watcher's patience: mostly the watcher
//! comes first.
//!
//! A process that may not use `SCHED_FIFO` says so once, and skips the scenario.

use crate::run::{Bounds, Outcome, Subject, run};
use crate::worker::{Crew, Worker};
use crate::{chaos, naps};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering::*};
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::time::Duration;

pub use crate::naps::PRIORITIES;

/// The priority of the thread that watches.
const WATCHER: i32 = 10;

/// Processor time that the kernel grants a thread beyond the watcher's patience: enough for the watcher to come first.
const GRACE: Duration = Duration::from_secs(1);

/// The thread that lost its priority in this run, 0 if none did.
static HOG: AtomicI32 = AtomicI32::new(0);

/// A subject whose operations are done by threads of three priorities on one processor.
struct Urgent<S> {
    subject: Arc<S>,
    processor: usize,
    /// Processor time after which a thread that has not slept loses its priority.
    limit: Duration,
}

impl<S: Subject> Subject for Urgent<S> {
    fn operate(self: &Arc<Self>, worker: &mut Worker) -> Result<(), String> {
        if !naps::is_a_napper() {
            become_urgent(1 + worker.place() as i32, Some(self.processor))?;
            naps::become_a_napper(worker.place());
        }
        self.subject.operate(worker)
    }

    fn send_home(&self, crew: &Crew) {
        self.subject.send_home(crew);
    }

    fn balance(&self, crew: &Crew) -> Result<(), String> {
        self.subject.balance(crew)
    }

    fn describe(&self) -> Vec<String> {
        self.subject.describe()
    }

    fn standstill(&self) -> Option<(Duration, String)> {
        let hog = HOG.load(Relaxed);
        let how = || {
            format!(
                "thread {hog} kept its processor from the threads of lower priorities for {:.1} s, until it lost its \
                 priority; below is what the threads did after that",
                self.limit.as_secs_f64()
            )
        };
        (hog != 0).then(|| (self.limit, how()))
    }
}

/// Runs `subject` with three threads of three priorities on one processor. Does nothing where that is not permitted.
pub(crate) fn under_priorities<S: Subject>(subject: S, bounds: Bounds, cancelled: &AtomicBool) -> Outcome {
    within(bounds.patience + GRACE, subject, bounds, cancelled)
}

/// [`under_priorities`], where a thread that runs for `limit` without a sleep loses its priority.
fn within<S: Subject>(limit: Duration, subject: S, bounds: Bounds, cancelled: &AtomicBool) -> Outcome {
    /// Two runs at a time would share the processor and the beds.
    static ALONE: Mutex<()> = Mutex::new(());
    static SKIPPED: Once = Once::new();
    if !are_permitted() {
        SKIPPED.call_once(|| eprintln!("skipped: this process may not use SCHED_FIFO"));
        return Outcome::of_nothing();
    }
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let processor = *chaos::processors().last().expect("a process has a processor");
    HOG.store(0, Relaxed);
    limit_to(limit);
    let subject = Urgent { subject: Arc::new(subject), processor, limit };
    let bounds = Bounds { threads: PRIORITIES, disturb: false, ..bounds };
    let watch = || {
        become_urgent(WATCHER, None).expect("permitted before");
        run(subject, bounds, cancelled)
    };
    std::thread::scope(|scope| scope.spawn(watch).join().expect("it does not panic"))
}

/// Whether this process may use `SCHED_FIFO`.
pub fn are_permitted() -> bool {
    std::thread::spawn(|| become_urgent(WATCHER, None).is_ok()).join().expect("it does not panic")
}

/// Gives the calling thread a priority of `SCHED_FIFO`, and pins it to a processor if there is one.
fn become_urgent(priority: i32, processor: Option<usize>) -> Result<(), String> {
    // SAFETY: the set and the parameter are plain data, and valid for the calls.
    let done = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        processor.is_none_or(|processor| {
            libc::CPU_SET(processor, &mut set);
            libc::sched_setaffinity(0, size_of_val(&set), &set) == 0
        }) && libc::sched_setscheduler(0, libc::SCHED_FIFO, &libc::sched_param { sched_priority: priority })
            == 0
    };
    let error = || format!("SCHED_FIFO, priority {priority}: {}", std::io::Error::last_os_error());
    if done { Ok(()) } else { Err(error()) }
}

/// From now on a real-time thread of this process that runs for `limit` without a sleep loses its priority. The limit is
/// still there when the run has ended, because a lock that stands still leaves threads behind.
fn limit_to(limit: Duration) {
    static ONCE: Once = Once::new();
    let action = libc::sigaction {
        sa_sigaction: lose_priority as *const () as usize,
        sa_flags: libc::SA_RESTART,
        // SAFETY: zero bytes are an empty set of signals and no restorer.
        ..unsafe { std::mem::zeroed() }
    };
    ONCE.call_once(|| {
        // SAFETY: the structure is valid, and the handler makes only system calls.
        assert_eq!(unsafe { libc::sigaction(libc::SIGXCPU, &action, std::ptr::null_mut()) }, 0);
    });
    let mut limits = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limits` is valid for both calls.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_RTTIME, &mut limits), 0);
        limits.rlim_cur = libc::rlim_t::try_from(limit.as_micros())
            .map_or(limits.rlim_max, |micros| micros.min(limits.rlim_max));
        assert_eq!(libc::setrlimit(libc::RLIMIT_RTTIME, &limits), 0);
    }
}

/// What `SIGXCPU` does to a thread that has a real-time priority: it loses it. The kernel sends the signal to the process,
/// so another thread may take it first. The kernel repeats it after each second that the thread runs on.
extern "C" fn lose_priority(_: i32) {
    // SAFETY: a signal handler may make these calls. The parameter is valid, and `errno` is restored.
    unsafe {
        let errno = *libc::__errno_location();
        if libc::sched_getscheduler(0) == libc::SCHED_FIFO {
            HOG.store(libc::gettid(), Relaxed);
            libc::sched_setscheduler(0, libc::SCHED_OTHER, &libc::sched_param { sched_priority: 0 });
        }
        *libc::__errno_location() = errno;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::Failure;

    /// The thread of the lowest priority holds what the watcher needs, and the thread of the highest keeps it from running.
    #[derive(Default)]
    struct Hogged {
        needed: Mutex<()>,
        held: AtomicBool,
        hogged: AtomicBool,
    }

    impl Subject for Hogged {
        fn operate(self: &Arc<Self>, worker: &mut Worker) -> Result<(), String> {
            match worker.place() {
                0 if !self.held.load(Relaxed) => {
                    let _needed = self.needed.lock().unwrap();
                    self.held.store(true, Release);
                    while !self.hogged.load(Acquire) {
                        std::hint::spin_loop(); // the other thread preempts this one here
                    }
                }
                2 if self.held.load(Acquire) && !self.hogged.swap(true, AcqRel) => {
                    while self.needed.try_lock().is_err() {
                        std::hint::spin_loop();
                    }
                }
                _ => (),
            }
            Ok(())
        }
        fn balance(&self, _: &Crew) -> Result<(), String> {
            Ok(())
        }
        fn describe(&self) -> Vec<String> {
            drop(self.needed.lock());
            vec!["described".into()]
        }
    }

    const BOUNDS: Bounds = Bounds {
        threads: PRIORITIES,
        time: Duration::from_secs(3600),
        patience: Duration::from_millis(500),
        seed: 1,
        disturb: false,
    };

    /// The lines of the report.
    fn report_of(outcome: Outcome) -> Vec<String> {
        let Some(Failure::Stuck { state, .. }) = outcome.failure else { panic!("{:?}", outcome.failure) };
        state
    }

    #[test]
    fn a_watcher_that_waits_for_a_preempted_thread_reports_the_livelock() {
        let outcome = under_priorities(Hogged::default(), BOUNDS, &AtomicBool::new(false));
        if are_permitted() {
            assert!(report_of(outcome).contains(&"described".to_owned()));
        } else {
            eprintln!("SKIPPED: SCHED_FIFO is not permitted");
        }
    }

    #[test]
    fn a_livelock_that_the_watcher_did_not_see_is_reported() {
        let bounds = Bounds { patience: BOUNDS.time, ..BOUNDS };
        let outcome = within(Duration::from_secs(1), Hogged::default(), bounds, &AtomicBool::new(false));
        if are_permitted() {
            let state = report_of(outcome);
            assert!(state[0].contains("for 1.0 s, until it lost its priority"), "{state:?}");
        }
    }
}
