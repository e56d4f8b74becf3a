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
//! A process that may not use `SCHED_FIFO` says so once, and skips the scenario.

use crate::run::{Bounds, Outcome, Subject, run};
use crate::worker::{Crew, Worker};
use crate::{chaos, naps};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, Once, PoisonError};

pub use crate::naps::PRIORITIES;

/// The priority of the thread that watches.
const WATCHER: i32 = 10;
/// A subject whose operations are done by threads of three priorities on one processor.
struct Urgent<S> {
    subject: Arc<S>,
    processor: usize,
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
}

/// Runs `subject` with three threads of three priorities on one processor. Does nothing where that is not permitted.
pub(crate) fn under_priorities<S: Subject>(subject: S, bounds: Bounds, cancelled: &AtomicBool) -> Outcome {
    /// Two runs at a time would share the processor and the beds.
    static ALONE: Mutex<()> = Mutex::new(());
    static SKIPPED: Once = Once::new();
    if !are_permitted() {
        SKIPPED.call_once(|| eprintln!("skipped: this process may not use SCHED_FIFO"));
        return Outcome::of_nothing();
    }
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let processor = *chaos::processors().last().expect("a process has a processor");
    let subject = Urgent { subject: Arc::new(subject), processor };
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
