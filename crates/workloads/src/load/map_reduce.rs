//! Map-reduce in memory, with threads that meet at the lock of their address space.
//!
//! What Metis does to mmap_sem: the map phase fills fresh memory with intermediate pairs, so that it
//! faults pages in (reads), and now and then maps more (writes); the reduce phase adds the tables of
//! all threads. Jobs follow each other until the time is over. The words and their counts are really
//! there, so that the result can be checked.

use super::address_space::AddressSpace;
use crate::data::{Cell, Line, cells};
use crate::lock::Lock;
use crate::measure::{self, Outcome};
use crate::stage::Stage;
use crate::thread::Thread;
use crate::workload::{Parameter, Settings};
use latchwork::machine::{Arith, Machine, Word};
use latchwork::map::array::Array;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// Different words.
const VOCABULARY: usize = 256;
/// Words of a task.
const WORDS: u64 = 64;
/// Tasks of a job, per thread.
const TASKS: u64 = 8;

/// How a job uses memory.
pub(super) struct MapReduce {
    /// Computation for each word.
    pub word: u64,
    /// Words that fill a page.
    pub words_per_page: u64,
    /// Pages of a mapping.
    pub pages: u64,
    /// Hold of a fault.
    pub fault: u64,
    /// Hold of mapping and unmapping.
    pub map: u64,
}

/// The parameters of a program of this kind, with the defaults of those that differ.
pub(super) const fn parameters(word: &'static str, words: &'static str) -> [Parameter; 5] {
    [
        Parameter::time("word", word, "computation for each word"),
        Parameter::count("words", words, 1..=1 << 20, "words that fill a page of intermediate pairs"),
        Parameter::count("pages", "1024", 1..=1 << 20, "pages of each mapping"),
        Parameter::time("fault", "2us", "hold of a page fault, which reads"),
        Parameter::time("map", "2us", "hold of mapping and unmapping, which write"),
    ]
}

impl MapReduce {
    /// Reads the [`parameters`].
    pub fn new(settings: &Settings) -> Self {
        MapReduce {
            word: settings.ns("word"),
            words_per_page: settings.count("words") as u64,
            pages: settings.count("pages") as u64,
            fault: settings.ns("fault"),
            map: settings.ns("map"),
        }
    }
}

struct Job<M: Machine, L> {
    space: AddressSpace<M, L>,
    /// Tasks handed out.
    next: Line<M::U64>,
    /// Each thread's counts of each word, one thread's after the other's.
    tables: Array<Cell<M>>,
    /// The result.
    counts: Array<Cell<M>>,
    arrived: Line<M::U64>,
    /// How often all have met.
    met: Line<M::U64>,
    over: Line<Cell<M>>,
}

impl<M: Machine, L: Lock<Machine = M>> Job<M, L> {
    /// Waits for all threads; the last one does `last` before the others go on.
    fn meet(&self, threads: usize, last: impl FnOnce()) {
        let met = self.met.load(Relaxed);
        if self.arrived.fetch_add(1, AcqRel) + 1 == threads as u64 {
            self.arrived.store(0, Relaxed);
            last();
            self.met.store(met + 1, Release);
        } else {
            M::spin_until(&self.met.0, Acquire, |now| now != met);
        }
    }
}

/// A thread's memory for intermediate pairs.
struct Arena {
    page: u64,
    words: u64,
    mapped: bool,
}

impl MapReduce {
    /// Runs jobs until the time is over. An operation is a task.
    pub fn run<S: Stage, L: Lock<Machine = S::Machine>>(&self, stage: &S, threads: usize) -> Outcome {
        let word = || Line(Word::new(0));
        let job = Job::<S::Machine, L> {
            space: AddressSpace::new(threads),
            next: word(),
            tables: cells(threads * VOCABULARY),
            counts: cells(VOCABULARY),
            arrived: word(),
            met: word(),
            over: Line(Cell::new(0)),
        };
        let tasks = threads as u64 * TASKS;
        let measured = measure::run(stage, threads, &|thread| {
            let mut arena = Arena { page: 0, words: 0, mapped: false };
            loop {
                while job.next.fetch_add(1, Relaxed) < tasks {
                    self.task(&job, thread, &mut arena);
                    thread.done();
                    thread.running();
                }
                job.meet(threads, || {});
                self.reduce(&job, thread, threads);
                let over = !thread.running();
                job.meet(threads, || {
                    job.next.store(0, Relaxed);
                    job.over.set(u64::from(over));
                });
                if job.over.get() == 1 {
                    break;
                }
            }
            if arena.mapped {
                job.space.unmap(thread, self.map);
            }
        })?;
        let words = measured.total * WORDS;
        let counted = job.counts.iter().map(Cell::get).sum();
        measured.expect("mappings left", job.space.check()?, 0)?.expect("words counted", counted, words)
    }

    fn task<S: Stage, L: Lock<Machine = S::Machine>>(
        &self,
        job: &Job<S::Machine, L>,
        thread: &mut Thread<S>,
        arena: &mut Arena,
    ) {
        for _ in 0..WORDS {
            if !arena.mapped {
                job.space.map(thread, self.pages, self.map);
                *arena = Arena { page: 0, words: 0, mapped: true };
            }
            if arena.words == 0 {
                job.space.fault(thread, arena.page, self.fault);
            }
            thread.work(self.word);
            // The minimum of two: some words are frequent.
            let word = thread.below(VOCABULARY as u64).min(thread.below(VOCABULARY as u64));
            job.tables[thread.index * VOCABULARY + word as usize].add(1);
            arena.words += 1;
            if arena.words == self.words_per_page {
                arena.words = 0;
                arena.page += 1;
                if arena.page == self.pages {
                    job.space.unmap(thread, self.map);
                    arena.mapped = false;
                }
            }
        }
    }

    /// Adds and clears this thread's share of the words in all tables.
    fn reduce<S: Stage, L: Lock<Machine = S::Machine>>(
        &self,
        job: &Job<S::Machine, L>,
        thread: &Thread<S>,
        threads: usize,
    ) {
        let from = thread.index * VOCABULARY / threads;
        let to = (thread.index + 1) * VOCABULARY / threads;
        for word in from..to {
            for thread in 0..threads {
                let cell = &job.tables[thread * VOCABULARY + word];
                let count = cell.get();
                if count > 0 {
                    job.counts[word].add(count);
                    cell.set(0);
                }
            }
        }
    }
}
