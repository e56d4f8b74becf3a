//! Threads that come and go, and somebody who watches them.

use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::*};
use std::time::{Duration, Instant};

/// Threads that use the lock at a time.
const THREADS: usize = 16;
/// Operations after which a thread exits and another one starts.
const LIFE: u32 = 300;

/// What threads do to a lock.
pub trait Subject: Send + Sync + 'static {
    /// One operation. `Err` says what was seen that must not be.
    fn operate(&self, random: &mut Random) -> Result<(), String>;
    /// The books, when nobody operates any more. Returns the number of operations that succeeded.
    fn balance(&self) -> Result<u64, String>;
}

/// Why a lock failed.
#[derive(Debug, PartialEq, Eq)]
pub enum Failure {
    /// Nobody made progress for this long.
    Stuck(Duration),
    /// Something was seen that a lock exists to prevent.
    Broken(String),
}

impl Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::Stuck(time) => write!(f, "no operation ended in {time:?}"),
            Failure::Broken(what) => f.write_str(what),
        }
    }
}

/// How long, and when to give up.
#[derive(Copy, Clone)]
pub struct Bounds {
    pub run: Duration,
    /// Standing still for this long counts as stuck. Generous: a strict FIFO lock among sixteen
    /// threads on two busy cores waits for each of them to be scheduled.
    pub patience: Duration,
}

impl Bounds {
    /// For locks that must work.
    pub fn from_environment() -> Self {
        let seconds = match std::env::var("LATCHWORK_STRESS_SECONDS") {
            Ok(text) => text.parse().expect("LATCHWORK_STRESS_SECONDS is a number of seconds"),
            Err(_) => 0.2,
        };
        Bounds { run: Duration::from_secs_f64(seconds), patience: Duration::from_secs(60) }
    }

    /// For locks that must not.
    pub fn for_broken() -> Self {
        Bounds { run: Duration::from_secs(4), patience: Duration::from_secs(2) }
    }
}

struct Run<S> {
    subject: S,
    stop: AtomicBool,
    failure: std::sync::Mutex<Option<String>>,
    operations: AtomicU64,
    alive: AtomicUsize,
    seeds: AtomicU64,
}

/// Lets threads loose on `subject`. Returns the number of operations that succeeded.
///
/// The threads are not scoped: those of a stuck lock stay behind.
pub fn torture<S: Subject>(subject: S, bounds: Bounds) -> Result<u64, Failure> {
    let run = Arc::new(Run {
        subject,
        stop: AtomicBool::new(false),
        failure: std::sync::Mutex::new(None),
        operations: AtomicU64::new(0),
        alive: AtomicUsize::new(THREADS),
        seeds: AtomicU64::new(1),
    });
    for _ in 0..THREADS {
        live(run.clone());
    }
    let end = Instant::now() + bounds.run;
    let mut last = (0, Instant::now());
    while run.alive.load(Acquire) > 0 {
        std::thread::sleep(Duration::from_millis(5));
        if Instant::now() >= end {
            run.stop.store(true, Relaxed);
        }
        let now = run.operations.load(Relaxed);
        if now != last.0 {
            last = (now, Instant::now());
        } else if last.1.elapsed() > bounds.patience {
            run.stop.store(true, Relaxed);
            return Err(Failure::Stuck(bounds.patience));
        }
    }
    match run.failure.lock().unwrap().take() {
        Some(what) => Err(Failure::Broken(what)),
        None => run.subject.balance().map_err(Failure::Broken),
    }
}

/// A life: some operations, then a new thread in this one's place.
fn live<S: Subject>(run: Arc<Run<S>>) {
    std::thread::spawn(move || {
        let mut random = Random::new(run.seeds.fetch_add(1, Relaxed));
        for _ in 0..LIFE {
            if run.stop.load(Relaxed) {
                break;
            }
            if let Err(what) = run.subject.operate(&mut random) {
                run.failure.lock().unwrap().get_or_insert(what);
                run.stop.store(true, Relaxed);
            }
            run.operations.fetch_add(1, Relaxed);
        }
        if run.stop.load(Relaxed) {
            // (A) what this thread did happens before the books are looked at.
            run.alive.fetch_sub(1, Release);
        } else {
            live(run);
        }
    });
}

/// Tortures a lock that must work, and names it if it does not.
pub fn must_work(name: &str, subject: impl Subject) {
    if std::env::var("LATCHWORK_LOCK").is_ok_and(|only| only.split(',').all(|other| other != name)) {
        return;
    }
    match torture(subject, Bounds::from_environment()) {
        Ok(operations) => eprintln!("{name:>12}: {operations} operations"),
        Err(failure @ Failure::Stuck(_)) => {
            // Its threads may spin for ever, and other tests would fail for it.
            eprintln!("{name} is stuck: {failure}. Attach a debugger, or raise LATCHWORK_STRESS_SECONDS.");
            std::process::abort();
        }
        Err(failure) => panic!("{name} is broken: {failure}"),
    }
}

/// xorshift64*.
pub struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// Whether something happens that happens once in `n` times.
    pub fn once_in(&mut self, n: u64) -> bool {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33).is_multiple_of(n)
    }

    /// What a section does in its middle: mostly nothing, sometimes it lets others run, and now and
    /// then it sleeps.
    pub fn dawdle(&mut self) {
        if self.once_in(8) {
            std::thread::yield_now();
        }
        if self.once_in(512) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
