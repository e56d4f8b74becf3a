//! Where a workload runs: native threads ([`crate::native`]), or a simulated machine.

use latchwork::machine::{Clock, Machine, Records};

/// How far a run is.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Caches fill and queues form; nothing counts yet.
    WarmUp,
    /// Operations count.
    Measuring,
    /// Threads come to their end.
    Over,
}

/// Which memory a workload's shared data are in.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Home {
    /// That of thread 0's NUMA node.
    Local,
    /// That of a node as far as possible from thread 0's.
    Remote,
}

/// What the threads of a run used within the measured time.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Nanoseconds of processor time in the program.
    pub user_ns: u64,
    /// Nanoseconds of processor time in the kernel on behalf of the program.
    pub system_ns: u64,
    /// How often a thread gave up its processor, because it slept or yielded.
    pub voluntary: u64,
    /// How often a thread was taken off its processor.
    pub involuntary: u64,
}

/// Bytes of a [`File`]'s block.
pub const BLOCK: usize = 4096;

/// A file, in blocks that each hold one number over and over.
pub trait File: Send + Sync {
    /// Reads a block, and returns its number; an error if the block holds several.
    fn read(&self, block: usize) -> Result<u64, String>;
    /// Fills a block with `number`.
    fn write(&self, block: usize, number: u64) -> Result<(), String>;
}

/// A place to run threads, and a clock.
///
/// A workload must keep everything that its threads share in the words of
/// [`Machine`](Stage::Machine), and wait only through the machine's operations or a lock: what it
/// does behind the machine's back a simulator neither sees nor charges for.
pub trait Stage: Sync + Sized {
    /// What the locks run on.
    type Machine: Records;

    /// Whether looking at the clock is free, so that every acquisition can be timed.
    const FREE_CLOCK: bool;

    /// Runs `body(0)` to `body(threads - 1)`, each on a thread of its own, and returns when all have
    /// returned. From its start on, [`phase`](Stage::phase) tells how far the run is.
    fn run(&self, threads: usize, body: &(dyn Fn(usize) + Sync)) -> Result<(), String>;

    /// How far the run is, as a running thread sees it.
    fn phase(&self) -> Phase;

    /// After the run: how long operations counted.
    fn measured_ns(&self) -> u64;

    /// Computes for about `ns` nanoseconds of processor time, touching no memory.
    fn work(ns: u64);

    /// Nanoseconds since some moment.
    fn now() -> u64 {
        Self::Machine::now(Clock::Monotonic)
    }

    /// Nanoseconds that the clock shows between two looks at it, one right after the other. They are no part of a wait.
    #[inline(always)]
    fn clock_ns() -> u64 {
        0
    }

    /// How many threads of the machine can run at a time.
    fn cpus(&self) -> usize;

    /// What a file is here.
    type File: File;

    /// A new file with so many blocks, which hold 0.
    fn file(&self, blocks: usize) -> Result<Self::File, String>;

    /// After the run: what the threads used, where the stage knows.
    fn usage(&self) -> Option<Usage> {
        None
    }

    /// Called by thread 0 as it begins: puts the memory of `object`, whole pages, at `home`.
    fn place<T>(&self, object: &T, home: Home) -> Result<(), String>;

    /// Called by a thread before `memory`, which begins a page, is touched for the first time: which of its lines meet in a set of a
    /// cache follows from their offsets within their pages. On native threads that is so in any case.
    #[inline(always)]
    fn in_pages<T>(&self, memory: &[T]) {
        let _ = memory;
    }

    /// Told by a thread that it is about to acquire lock number `lock` of the workload. Only of
    /// acquisitions that exclude all others, here and below.
    #[inline(always)]
    fn acquiring(lock: usize) {
        let _ = lock;
    }

    /// Told by a thread that it has the lock.
    #[inline(always)]
    fn acquired(lock: usize) {
        let _ = lock;
    }

    /// Told by a thread that it is about to release the lock.
    #[inline(always)]
    fn released(lock: usize) {
        let _ = lock;
    }

    /// A seed for the threads' random numbers.
    fn seed(&self) -> u64;
}
