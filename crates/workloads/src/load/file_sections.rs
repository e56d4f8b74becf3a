//! A reader-writer lock that is held across reads and writes of a file.
//!
//! Source: ours, after Tokyo Cabinet (`tchdb.c`, `tcbdb.c`): an embedded database with one reader-writer lock for the file. Its
//! sections read and write blocks with `pread` and `pwrite`, and yield the processor with the lock held (`HDBTHREADYIELD`):
//! `tcbmttest write` yields twice an operation. So a section makes system calls, takes microseconds, and its thread is taken
//! off its processor.
//!
//! On this machine the file is in memory (`memfd_create`), so that no disk decides. The thread can sleep beside each block, as it
//! does when a disk is slow. A simulated machine has no files: a block costs a fixed time of computation, and the same sleep.
//!
//! A writer puts the same number into all blocks of its section. Sections begin at multiples of their length, so a reader that
//! finds two numbers was not alone with other readers.

use crate::data::{Cell, Line};
use crate::lock::Lock;
use crate::measure::{self, Outcome};
use crate::stage::{File, Stage};
use crate::workload::{Info, Locks, Parameter, Settings, Threads, Workload};
use latchwork::machine::Machine;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// See the [module documentation](self).
pub struct FileSections {
    writes: f64,
    blocks: usize,
    yields: usize,
    extents: usize,
    sleep: u64,
    gap: u64,
}

impl FileSections {
    /// Reads or writes one block, and sleeps.
    fn block<S: Stage, T>(&self, operation: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
        let result = operation();
        if self.sleep > 0 {
            S::Machine::doze(self.sleep);
        }
        result
    }

    /// Yields the processor, as often as a section does.
    fn give_way<S: Stage>(&self) {
        (0..self.yields).for_each(|_| S::Machine::yield_now());
    }

    /// Writes `stamp` into all blocks of an extent.
    fn write<S: Stage>(&self, file: &S::File, extent: usize, stamp: u64) -> Result<(), String> {
        self.give_way::<S>();
        let mut blocks = extent * self.blocks..(extent + 1) * self.blocks;
        blocks.try_for_each(|block| self.block::<S, _>(|| file.write(block, stamp)))
    }

    /// Reads an extent, and checks that all its blocks have one stamp.
    fn read<S: Stage>(&self, file: &S::File, extent: usize) -> Result<(), String> {
        self.give_way::<S>();
        let first = extent * self.blocks;
        let stamp = self.block::<S, _>(|| file.read(first))?;
        for block in first + 1..first + self.blocks {
            let other = self.block::<S, _>(|| file.read(block))?;
            if other != stamp {
                return Err(format!(
                    "blocks of writes {stamp} and {other} in one extent: a writer was inside with a reader"
                ));
            }
        }
        Ok(())
    }
}

impl Workload for FileSections {
    const INFO: Info = Info {
        name: "file-sections",
        summary: "read or write blocks of a file under one reader-writer lock",
        source: "ours, after Tokyo Cabinet",
        shows: "what a lock does while its holder is in the kernel or yields: waiters that spin take the processor that the holder waits for",
        operation: "read or write section",
        locks: Locks::RwLock,
        parameters: &[
            Parameter::fraction("writes", "1/2", "share of sections that write"),
            Parameter::count("blocks", "2", 1..=1024, "blocks of 4 KiB that a section reads or writes"),
            Parameter::count("yields", "2", 0..=1_000_000, "how often a section yields the processor"),
            Parameter::count("extents", "64", 1..=65_536, "places in the file among which a section chooses"),
            Parameter::time("sleep", "0ns", "sleep beside each block, as for a slow disk"),
            Parameter::time("gap", "1us", "average computation between sections"),
        ],
        threads: Threads::Each(&[2, 4, 8, 16]),
        all_threads: |threads| threads,
        log_threads: true,
        simulated_us: 20_000,
    };

    fn new(settings: &Settings) -> Self {
        FileSections {
            writes: settings.number("writes"),
            blocks: settings.count("blocks"),
            yields: settings.count("yields"),
            extents: settings.count("extents"),
            sleep: settings.ns("sleep"),
            gap: settings.ns("gap"),
        }
    }

    fn run<S: Stage, L: Lock<Machine = S::Machine>>(&self, stage: &S, threads: usize) -> Outcome {
        let file = stage.file(self.blocks * self.extents)?;
        let shared = Line((L::new(), Cell::<S::Machine>::new(0)));
        let (lock, written) = &shared.0;
        // Outside the simulated machine: it is no part of the workload.
        let writes = AtomicU64::new(0);
        let measured = measure::run(stage, threads, &|thread| {
            let mut made = 0;
            while thread.running() {
                let extent = thread.below(self.extents as u64) as usize;
                let result = if thread.chance(self.writes) {
                    let _held = thread.write(lock);
                    made += 1;
                    self.write::<S>(&file, extent, written.add(1))
                } else {
                    let _held = thread.read(lock);
                    self.read::<S>(&file, extent)
                };
                if let Err(why) = result {
                    thread.fail(|| why);
                }
                thread.done();
                let gap = thread.below(2 * self.gap + 1);
                thread.work(gap);
            }
            writes.fetch_add(made, Relaxed);
        })?;
        measured.expect("writes", written.get(), writes.into_inner())
    }
}
