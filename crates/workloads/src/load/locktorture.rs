//! Short holds, and now and then a long one.
//!
//! Source: Dice and Kogan, "BRAVO", USENIX ATC 2019, section 6.1 (figures 7 and 8): the kernel's
//! locktorture, with one writer or none, and with readers that hold the lock for 5 microseconds, the
//! typical time of mmap_sem ("modified", figure 8b). The original's 50 ms, 10 ms and 200 ms are a
//! matter of parameters; the defaults are the modified times, and long holds are likelier.

use crate::data::{Cell, Line};
use crate::lock::Lock;
use crate::measure::{self, Outcome};
use crate::stage::Stage;
use crate::workload::{Info, Locks, Parameter, Settings, Threads, Workload};

/// See the [module documentation](self).
pub struct LockTorture {
    writers: usize,
    read: u64,
    write: u64,
    away: u64,
    long: u64,
    chance: f64,
}

impl Workload for LockTorture {
    const INFO: Info = Info {
        name: "locktorture",
        summary: "a few writers beside readers, short holds and rare long ones",
        source: "BRAVO, section 6.1, figures 7 and 8",
        shows: "readers scale only if they do not share a counter; a writer pays for that when it revokes",
        operation: "read or write section",
        locks: Locks::Both,
        parameters: &[
            Parameter::count("writers", "1", 0..=1024, "threads that write; all others read"),
            Parameter::time("read", "5us", "hold of a reader"),
            Parameter::time("write", "1us", "hold of a writer"),
            Parameter::time("long", "100us", "a long hold"),
            Parameter::fraction("chance", "1/2000", "share of holds that are long"),
            Parameter::time("away", "0ns", "computation of a writer between two writes"),
        ],
        threads: Threads::UpToCpus,
        all_threads: |threads| threads,
        log_threads: true,
        simulated_us: 20_000,
    };

    fn new(settings: &Settings) -> Self {
        LockTorture {
            writers: settings.count("writers"),
            read: settings.ns("read"),
            write: settings.ns("write"),
            away: settings.ns("away"),
            long: settings.ns("long"),
            chance: settings.number("chance"),
        }
    }

    fn run<S: Stage, L: Lock<Machine = S::Machine>>(&self, stage: &S, threads: usize) -> Outcome {
        let lock = Line(L::new());
        // Equal whenever nobody writes.
        let pair = Line([Cell::<S::Machine>::new(0), Cell::new(0)]);
        let measured = measure::run(stage, threads, &|thread| {
            let writer = thread.index < self.writers;
            if writer && threads > self.writers {
                thread.apart();
            }
            while thread.running() {
                let long = thread.chance(self.chance);
                if writer {
                    let held = thread.write(&*lock);
                    let before = pair[0].add(1);
                    thread.work(if long { self.long } else { self.write });
                    let after = pair[1].add(1);
                    drop(held);
                    if before != after {
                        thread.fail(|| format!("a writer left {before} and {after}: another one was inside"));
                    }
                    if self.away > 0 {
                        thread.work(self.away);
                    }
                } else {
                    let held = thread.read(&*lock);
                    let first = pair[0].get();
                    thread.work(if long { self.long } else { self.read });
                    let second = pair[1].get();
                    drop(held);
                    if first != second {
                        thread.fail(|| format!("a reader saw {first} and {second}: a writer was inside"));
                    }
                }
                thread.done();
            }
        })?;
        let writes: u64 = measured.totals.iter().take(self.writers).sum();
        let of_writers: u64 = measured.per_thread.iter().take(self.writers).sum();
        let rate = of_writers as f64 * 1e9 / measured.measured_ns.max(1) as f64;
        Ok(measured.expect("writes", pair[0].get(), writes)?.with("writes/s", rate))
    }
}
