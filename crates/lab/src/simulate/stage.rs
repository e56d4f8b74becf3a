//! The simulated machine as a place for workloads.

use super::How;
use latchwork_sim::{Report, Sim};
use latchwork_workloads::measure::Measured;
use latchwork_workloads::stage::{File, Home, Phase, Stage};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// Whether all simulations of this process are to end.
static STOPPED: AtomicBool = AtomicBool::new(false);

/// Ends all simulations of this process soon, those that begin later included. What they measured is worth nothing.
pub fn stop() {
    STOPPED.store(true, Relaxed);
}

/// Whether [`stop`] was called.
pub fn is_stopped() -> bool {
    STOPPED.load(Relaxed)
}

/// One simulation. For one run.
pub struct Simulated<'a> {
    how: &'a How,
    seed: u64,
    report: Mutex<Option<Report>>,
}

impl<'a> Simulated<'a> {
    /// To be run this way.
    pub fn new(how: &'a How, seed: u64) -> Self {
        Simulated { how, seed, report: Mutex::new(None) }
    }

    /// Adds the simulator's own figures to what the workload measured.
    pub fn explain(self, measured: Measured) -> Measured {
        let Some(report) = self.report.into_inner().expect("no thread panics while it holds the mutex")
        else {
            return measured;
        };
        // The simulator counts from the start, as `total` does.
        let per = |count: u64, of: u64| count as f64 / of.max(1) as f64;
        let operations = measured.total;
        let (total, acquisitions) = (&report.total, report.acquisitions);
        measured
            .with("remote", per(report.remote_handovers, report.handovers))
            .with("accesses/op", per(total.accesses, operations))
            .with("misses/op", per(total.misses, operations))
            .with("atomics/op", per(total.atomics, operations))
            .with("fences/op", per(total.fences, operations))
            .with("late wakes", per(report.critical_wakeups, acquisitions))
            .with("parked", report.parked_share())
    }
}

/// Nanoseconds of computation that stand for a system call which copies a block: 0.7 to 1.1 us on an AMD EPYC of 2024.
const BLOCK_NS: u64 = 1_000;

/// The blocks' numbers. They are outside the simulated memory: a copy by the kernel is charged as computation.
pub struct Blocks(Box<[AtomicU64]>);

impl File for Blocks {
    fn read(&self, block: usize) -> Result<u64, String> {
        let number = self.0[block].load(Relaxed);
        latchwork_sim::work(BLOCK_NS);
        Ok(number)
    }

    fn write(&self, block: usize, number: u64) -> Result<(), String> {
        self.0[block].store(number, Relaxed);
        latchwork_sim::work(BLOCK_NS);
        Ok(())
    }
}

impl Stage for Simulated<'_> {
    type Machine = Sim;
    type File = Blocks;
    const FREE_CLOCK: bool = true;

    fn run(&self, threads: usize, body: &(dyn Fn(usize) + Sync)) -> Result<(), String> {
        let bodies = (0..threads).map(|index| Box::new(move || body(index)) as Box<dyn FnOnce()>).collect();
        let mut options = self.how.options.clone();
        options.seed = self.seed;
        // Threads end soon after the time is over, unless a lock keeps them.
        options.limit_ns = 100 * (self.how.measured_ns + self.how.warm_up_ns) + 100_000_000;
        let report =
            latchwork_sim::run(&self.how.profile, &options, bodies).map_err(|error| error.to_string())?;
        *self.report.lock().expect("no thread panics while it holds the mutex") = Some(report);
        Ok(())
    }

    fn phase(&self) -> Phase {
        match latchwork_sim::now() {
            _ if is_stopped() => Phase::Over,
            now if now < self.how.warm_up_ns => Phase::WarmUp,
            now if now < self.how.warm_up_ns + self.how.measured_ns => Phase::Measuring,
            _ => Phase::Over,
        }
    }

    fn measured_ns(&self) -> u64 {
        self.how.measured_ns
    }

    fn work(ns: u64) {
        latchwork_sim::work(ns);
    }

    fn now() -> u64 {
        latchwork_sim::now()
    }

    fn cpus(&self) -> usize {
        self.how.profile.cpus()
    }

    fn file(&self, blocks: usize) -> Result<Blocks, String> {
        Ok(Blocks((0..blocks).map(|_| AtomicU64::new(0)).collect()))
    }

    fn place<T>(&self, object: &T, home: Home) -> Result<(), String> {
        let node = match home {
            Home::Local => 0,
            // In a cube of sockets, the one that differs in every bit.
            Home::Remote => self.how.profile.topology.sockets - 1,
        };
        latchwork_sim::set_home(object, node);
        Ok(())
    }

    fn in_pages<T>(&self, memory: &[T]) {
        latchwork_sim::in_pages(memory);
    }

    fn acquiring(_: usize) {
        latchwork_sim::acquiring();
    }

    fn acquired(lock: usize) {
        latchwork_sim::acquired(lock);
    }

    fn released(lock: usize) {
        latchwork_sim::released(lock);
    }

    fn seed(&self) -> u64 {
        self.seed
    }
}
