//! Threads of this machine.

use crate::memory_file::MemoryFile;
use crate::stage::{Home, Phase, Stage, Usage};
use crate::topology::{Placement, Topology};
use latchwork::machine::Native;
use std::hint::black_box;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Barrier, Condvar, Mutex, OnceLock};
use std::time::{Duration, Instant};

const WARM_UP: u8 = 0;
const MEASURING: u8 = 1;
const OVER: u8 = 2;

/// A thread that needs longer than this for its operation after the end counts as stuck. An operation may acquire a fair lock a
/// thousand times. On a busy machine each handover waits for the scheduler.
const PATIENCE: Duration = Duration::from_secs(120);

/// How to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// How long operations count.
    pub measured: Duration,
    /// How long they run before that.
    pub warm_up: Duration,
    /// Where the threads run.
    pub placement: Placement,
    /// For the threads' random numbers.
    pub seed: u64,
}

/// A run on threads of this machine. For one run each.
pub struct Threads {
    options: Options,
    topology: Topology,
    phase: AtomicU8,
    measured_ns: AtomicU64,
    usage: OnceLock<Usage>,
    stop: Arc<Stop>,
    /// Called if the threads do not come to their end; must not return, since they cannot be ended.
    stuck: fn(&str) -> !,
}

/// Ends a run early when another thread asks for it.
#[derive(Debug, Default)]
pub struct Stop {
    asked: Mutex<bool>,
    changed: Condvar,
}

impl Stop {
    /// From now on, runs that have this end at once. What they measured is worth nothing.
    pub fn ask(&self) {
        *self.asked.lock().expect("no thread panics while it holds the mutex") = true;
        self.changed.notify_all();
    }

    /// Sleeps for so long, or until another thread asks.
    fn sleep(&self, time: Duration) {
        let asked = self.asked.lock().expect("no thread panics while it holds the mutex");
        let slept = self.changed.wait_timeout_while(asked, time, |asked| !*asked);
        drop(slept.expect("no thread panics while it holds the mutex"));
    }
}

/// Threads that have come to their end.
struct Ended {
    count: Mutex<usize>,
    changed: Condvar,
}

impl Threads {
    /// For a run with these options. If its threads are stuck in a lock, `stuck` is called with a
    /// description, and has to end the process.
    pub fn new(options: Options, stuck: fn(&str) -> !) -> Self {
        // Before any thread is there, as `Native::init` asks for.
        Native::init();
        speed();
        Threads {
            options,
            topology: Topology::here(),
            phase: AtomicU8::new(WARM_UP),
            measured_ns: AtomicU64::new(0),
            usage: OnceLock::new(),
            stop: Arc::default(),
            stuck,
        }
    }

    /// The same, ended early when `stop` is asked for.
    pub fn stopped_by(self, stop: Arc<Stop>) -> Self {
        Threads { stop, ..self }
    }

    /// Lets the time pass, and ends the run.
    fn direct(&self, threads: usize, ended: &Ended) {
        self.stop.sleep(self.options.warm_up);
        let (start, before) = (Instant::now(), used());
        self.phase.store(MEASURING, Relaxed);
        self.stop.sleep(self.options.measured);
        self.phase.store(OVER, Relaxed);
        self.measured_ns.store(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX), Relaxed);
        let after = used();
        self.usage.get_or_init(|| Usage {
            user_ns: after.user_ns - before.user_ns,
            system_ns: after.system_ns - before.system_ns,
            voluntary: after.voluntary - before.voluntary,
            involuntary: after.involuntary - before.involuntary,
        });

        let count = ended.count.lock().expect("no thread panics while it holds the mutex");
        let waiting = ended.changed.wait_timeout_while(count, PATIENCE, |count| *count < threads);
        let (count, timeout) = waiting.expect("no thread panics while it holds the mutex");
        if timeout.timed_out() && *count < threads {
            let left = threads - *count;
            (self.stuck)(&format!(
                "{left} of {threads} threads are still waiting {PATIENCE:?} after the end"
            ));
        }
    }
}

impl Stage for Threads {
    type Machine = Native;
    type File = MemoryFile;
    const FREE_CLOCK: bool = false;

    fn run(&self, threads: usize, body: &(dyn Fn(usize) + Sync)) -> Result<(), String> {
        let ended = Ended { count: Mutex::new(0), changed: Condvar::new() };
        let together = Barrier::new(threads + 1);
        std::thread::scope(|scope| {
            for index in 0..threads {
                let (ended, together) = (&ended, &together);
                let cpu = self.topology.cpu(self.options.placement, index);
                let run = move || {
                    if let Some(cpu) = cpu {
                        crate::topology::pin(cpu);
                    }
                    together.wait();
                    body(index);
                    *ended.count.lock().expect("no thread panics while it holds the mutex") += 1;
                    ended.changed.notify_one();
                };
                let started = std::thread::Builder::new().stack_size(256 << 10).spawn_scoped(scope, run);
                if let Err(error) = started {
                    // The threads that were started wait for the others for ever.
                    (self.stuck)(&format!("thread {index} of {threads} cannot be started: {error}"));
                }
            }
            together.wait();
            self.direct(threads, &ended);
        });
        Ok(())
    }

    #[inline]
    fn phase(&self) -> Phase {
        match self.phase.load(Relaxed) {
            WARM_UP => Phase::WarmUp,
            MEASURING => Phase::Measuring,
            _ => Phase::Over,
        }
    }

    fn measured_ns(&self) -> u64 {
        self.measured_ns.load(Relaxed)
    }

    #[inline]
    fn work(ns: u64) {
        let speed = speed();
        // 20 bits of fraction.
        compute(ns.saturating_sub(speed.overhead_ns).saturating_mul(speed.steps_per_ns) >> 20);
    }

    fn clock_ns() -> u64 {
        speed().clock_ns
    }

    fn cpus(&self) -> usize {
        self.topology.cpus()
    }

    fn file(&self, blocks: usize) -> Result<MemoryFile, String> {
        MemoryFile::new(blocks).map_err(|error| format!("a file in memory: {error}"))
    }

    fn usage(&self) -> Option<Usage> {
        self.usage.get().copied()
    }

    fn place<T>(&self, object: &T, home: Home) -> Result<(), String> {
        self.topology.place(object, home, self.options.placement)
    }

    fn seed(&self) -> u64 {
        self.options.seed
    }
}

/// What all threads of this process have used until now. (The thread that directs the run sleeps meanwhile.)
fn used() -> Usage {
    // SAFETY: plain numbers, for which zeros are valid.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the memory is a `rusage`, and `RUSAGE_SELF` is valid: the call does not fail.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) };
    let ns = |time: libc::timeval| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1000;
    Usage {
        user_ns: ns(usage.ru_utime),
        system_ns: ns(usage.ru_stime),
        voluntary: usage.ru_nvcsw as u64,
        involuntary: usage.ru_nivcsw as u64,
    }
}

/// Steps of a computation in which each waits for the one before, in registers: other threads of the
/// core hardly slow it down.
#[inline]
fn compute(steps: u64) {
    let mut value = black_box(1u64);
    for _ in 0..steps {
        value = value.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
    }
    black_box(value);
    // Nothing after the computation begins before its end; a processor that looks ahead would do the
    // next acquisition meanwhile.
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has it.
    unsafe {
        std::arch::x86_64::_mm_lfence();
    }
}

/// What [`compute`] and a look at the clock cost.
struct Speed {
    /// Times 2^20.
    steps_per_ns: u64,
    /// Nanoseconds of a call without a step.
    overhead_ns: u64,
    /// Nanoseconds that the clock shows between two looks at it, one right after the other.
    clock_ns: u64,
}

/// Measured once: the fastest of several trials, spread over some time; the others were disturbed.
fn speed() -> &'static Speed {
    const STEPS: u64 = 20_000;
    const CALLS: u64 = 1000;
    const BATCHES: u32 = 8;
    const TRIALS: u32 = 40;
    static SPEED: OnceLock<Speed> = OnceLock::new();
    let time = |run: &dyn Fn()| {
        let start = Instant::now();
        run();
        u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX).max(1)
    };
    SPEED.get_or_init(|| {
        let (mut long, mut empty, mut clock) = (u64::MAX, u64::MAX, u64::MAX);
        for _ in 0..BATCHES {
            std::thread::sleep(Duration::from_millis(2));
            for _ in 0..TRIALS {
                long = long.min(time(&|| compute(STEPS)));
                empty = empty.min(time(&|| (0..CALLS).for_each(|_| compute(0))));
                let first = Threads::now();
                clock = clock.min(Threads::now().saturating_sub(first));
            }
        }
        Speed { steps_per_ns: ((STEPS << 20) / long).max(1), overhead_ns: empty / CALLS, clock_ns: clock }
    })
}
