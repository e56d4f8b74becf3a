//! One run: threads that come and go, a thread that disturbs them, and a thread that watches.

use crate::chaos::{self, Disturbances};
use crate::worker::{Crew, Worker, spawn};
use std::any::Any;
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::time::{Duration, Instant};

/// What threads do to a lock.
pub trait Subject: Send + Sync + Sized + 'static {
    /// One operation. `Err` says what was seen that must not be.
    fn operate(self: &Arc<Self>, worker: &mut Worker) -> Result<(), String>;

    /// Called again and again once the run is over, until every thread has left: wakes the threads that wait for others
    /// that will not come any more.
    fn send_home(&self, _crew: &Crew) {}

    /// Checks the books, when every thread has left.
    fn balance(&self, crew: &Crew) -> Result<(), String>;

    /// Describes a lock that stands still: its memory, above all.
    fn describe(&self) -> Vec<String>;

    /// A standstill that did not show in the counts: how long it was, and how it was found.
    fn standstill(&self) -> Option<(Duration, String)> {
        None
    }

    /// Called in the child of a fork, which has only the calling thread, while other threads go on in the parent. `false`:
    /// a new lock does not work there.
    fn works_in_child(&self) -> bool {
        true
    }
}

/// How long, with how many, and when to give up.
#[derive(Copy, Clone, Debug)]
pub struct Bounds {
    /// Threads that use the lock at a time.
    pub threads: usize,
    /// How long they do.
    pub time: Duration,
    /// Standing still for this long counts as stuck. Time in which this process as a whole does not
    /// run does not count. Generous, for locks that must work: a strict FIFO lock among many threads
    /// waits for each of them to be scheduled.
    pub patience: Duration,
    /// Seed of all random numbers. Threads are real, so the same seed does not give the same run.
    pub seed: u64,
    /// What happens to the threads meanwhile.
    pub disturb: bool,
}

/// Why a lock failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// No thread made progress for too long.
    Stuck {
        /// For how long no thread did.
        seconds: u64,
        /// The lock's memory, and what each thread does.
        state: Vec<String>,
    },
    /// Something was seen that a lock exists to prevent.
    Broken(String),
}

impl Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::Stuck { seconds, state } => {
                write!(f, "stuck: no operation ended in {seconds} s")?;
                state.iter().try_for_each(|line| write!(f, "\n  {line}"))
            }
            Failure::Broken(what) => f.write_str(what),
        }
    }
}

/// Time in which nothing was seen to happen. A pause in which the watcher did not run either (a
/// stopped process, a suspended machine) counts as one look.
struct Standstill {
    looked: Instant,
    total: Duration,
    /// Time in which the watcher did not run.
    away: Duration,
}

impl Standstill {
    const LOOK: Duration = Duration::from_millis(5);
    /// A look that takes this long was not taken at all.
    const AWAY: Duration = Duration::from_secs(1);

    fn new() -> Self {
        Standstill { looked: Instant::now(), total: Duration::ZERO, away: Duration::ZERO }
    }

    fn look(&mut self, progress: bool) -> Duration {
        let passed = self.looked.elapsed();
        self.looked = Instant::now();
        if passed > Self::AWAY {
            self.away += passed;
        }
        self.total = if progress { Duration::ZERO } else { self.total + passed.min(10 * Self::LOOK) };
        self.total
    }
}

/// What a run leaves behind.
pub struct Outcome {
    /// The counts of its threads.
    pub crew: Arc<Crew>,
    /// What was done to them.
    pub disturbances: Disturbances,
    /// How long the process did not run.
    pub away: Duration,
    /// Readers seen inside at a time, at most.
    pub readers_at_once: u64,
    /// Why it failed, if it did.
    pub failure: Option<Failure>,
}

impl Outcome {
    /// Of a run that did not take place.
    pub(crate) fn of_nothing() -> Self {
        Outcome {
            crew: Arc::new(Crew::new(0, 0)),
            disturbances: Disturbances::default(),
            away: Duration::ZERO,
            readers_at_once: 0,
            failure: None,
        }
    }
}

/// Lets threads loose on `subject`, until the time is over or `cancelled` is set.
///
/// The threads are not scoped: those of a stuck lock stay behind, and keep what they use alive.
pub fn run<S: Subject>(subject: S, bounds: Bounds, cancelled: &AtomicBool) -> Outcome {
    let subject = Arc::new(subject);
    let crew = Arc::new(Crew::new(bounds.threads, bounds.seed));
    for place in 0..bounds.threads {
        crew.alive.fetch_add(1, Relaxed);
        live(Arc::clone(&subject), Arc::clone(&crew), place);
    }
    let disturber = bounds.disturb.then(|| {
        let (crew, subject) = (Arc::clone(&crew), Arc::clone(&subject));
        let child = chaos::in_child(move || subject.works_in_child(), bounds.patience);
        std::thread::spawn(move || chaos::disturb(&crew, child))
    });
    let mut standstill = Standstill::new();
    let failure = watch(&*subject, &crew, bounds, cancelled, &mut standstill);
    if failure.is_some() {
        crew.abandoned.store(true, Relaxed);
    }
    crew.stop.store(true, Relaxed);
    let disturbances = disturber.map(|thread| thread.join().expect("it does not panic")).unwrap_or_default();
    let failure = failure
        .or_else(|| crew.failure().map(Failure::Broken)) // in the last moment
        .or_else(|| subject.balance(&crew).err().map(Failure::Broken));
    Outcome { crew, disturbances, away: standstill.away, readers_at_once: 0, failure }
}

fn watch<S: Subject>(
    subject: &S,
    crew: &Crew,
    bounds: Bounds,
    cancelled: &AtomicBool,
    standstill: &mut Standstill,
) -> Option<Failure> {
    let start = Instant::now();
    let mut last = (0, 0);
    loop {
        std::thread::sleep(Standstill::LOOK);
        if start.elapsed() >= bounds.time || cancelled.load(Relaxed) {
            crew.stop.store(true, Relaxed);
        }
        let now = (crew.total(crate::worker::Count::Operations), crew.alive());
        if let Some((time, how)) = subject.standstill() {
            crew.stop.store(true, Relaxed); // the threads may go on
            return Some(stuck(time, Some(how), subject, crew));
        }
        if now.1 == 0 {
            return crew.failure().map(Failure::Broken);
        }
        let still = standstill.look(now != last);
        last = now;
        if crew.is_over() {
            subject.send_home(crew);
        }
        match crew.failure() {
            // A broken lock may not let every thread go.
            Some(what) if still > Duration::from_millis(500) => return Some(Failure::Broken(what)),
            None if still > bounds.patience => return Some(stuck(still, None, subject, crew)),
            _ => (),
        }
    }
}

fn stuck<S: Subject>(time: Duration, how: Option<String>, subject: &S, crew: &Crew) -> Failure {
    let state = how.into_iter().chain(subject.describe()).chain(crew.dump()).collect();
    Failure::Stuck { seconds: time.as_secs(), state }
}

/// What a thread said when it panicked.
fn text_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("it did not say why")
}

/// A life: some operations, then a new thread in this one's place.
fn live<S: Subject>(subject: Arc<S>, crew: Arc<Crew>, place: usize) {
    spawn(move || {
        let mut worker = Worker::new(Arc::clone(&crew), place);
        let most = worker.random.pick(&[20, 2000, 2000, 2000]);
        let operations = 1 + worker.random.below(most);
        for _ in 0..operations {
            if crew.is_over() {
                break;
            }
            match catch_unwind(AssertUnwindSafe(|| subject.operate(&mut worker))) {
                Ok(Ok(())) => {}
                Ok(Err(what)) => crew.fail(what),
                // A thread that just went would only be missed, as one that stands still.
                Err(panic) => crew.fail(format!("a thread panicked: {}", text_of(&*panic))),
            }
            worker.count(crate::worker::Count::Operations);
            worker.rest();
        }
        if crew.is_over() {
            worker.leave();
            drop((worker, subject));
            // (A) what this thread did happens before the books are looked at.
            crew.alive.fetch_sub(1, Release);
        } else {
            worker.count(crate::worker::Count::Replaced);
            live(subject, crew, place);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_of_the_whole_process_is_not_a_standstill() {
        let mut standstill = Standstill::new();
        let earlier =
            Instant::now().checked_sub(Duration::from_secs(120)).expect("the machine is older than that");
        standstill.looked = earlier;
        let still = standstill.look(false);
        assert!(still <= 10 * Standstill::LOOK, "{still:?}");
        assert!(standstill.away >= Duration::from_secs(120));
        standstill.looked = Instant::now() - Duration::from_millis(20);
        let more = standstill.look(false);
        assert!(more > still, "standing still does not add up");
        assert_eq!(standstill.look(true), Duration::ZERO);
    }

    /// A subject whose operations panic.
    struct Panics;

    impl Subject for Panics {
        fn operate(self: &Arc<Self>, _: &mut Worker) -> Result<(), String> {
            panic!("the {}rd operation", 3)
        }
        fn balance(&self, _: &Crew) -> Result<(), String> {
            Ok(())
        }
        fn describe(&self) -> Vec<String> {
            Vec::new()
        }
    }

    #[test]
    fn a_panic_of_a_thread_is_told() {
        let bounds = Bounds {
            threads: 2,
            time: Duration::from_secs(60),
            patience: Duration::from_secs(60),
            seed: 1,
            disturb: false,
        };
        let failure = run(Panics, bounds, &AtomicBool::new(false)).failure;
        assert_eq!(failure, Some(Failure::Broken("a thread panicked: the 3rd operation".into())));
    }
}
