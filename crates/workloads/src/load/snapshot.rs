//! Snapshot: a few words that are read all together, and now and then written.
//!
//! Source: ours, with RWBench's mix (BRAVO, section 5.4). It is what a sequence lock is for, such as the clock of
//! the Linux kernel; its readers cannot hold it, so no other workload has it. Under a lock a reader holds that
//! for the copy alone.
//!
//! The words lie behind the lock, as they do in a structure with both: small ones share its cache line.
//!
//! Word i is the number of writes plus i, which a reader checks of each copy: half a write is seen, and so
//! is a copy of an earlier moment than this thread's last one.

use crate::copies::{Copies, CopyWorkload};
use crate::data::Line;
use crate::measure::{self, Outcome};
use crate::stage::Stage;
use crate::workload::{Info, Locks, Parameter, Settings, Threads};
use latchwork::machine::{Machine, Word};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The most words.
const MOST: usize = 64;

/// See the [module documentation](self).
pub struct Snapshot {
    writes: f64,
    words: usize,
    gap: u64,
}

/// How many writes a copy is after, if it is of one moment.
fn version(copy: &[usize]) -> Option<usize> {
    let first = copy[0];
    copy.iter().enumerate().all(|(i, word)| *word == first.wrapping_add(i)).then_some(first)
}

impl CopyWorkload for Snapshot {
    const INFO: Info = Info {
        name: "snapshot",
        summary: "copy a few words, or change them, at random",
        source: "ours; mix of BRAVO, section 5.4",
        shows: "readers of a sequence lock write nothing and scale; what it costs them to copy again when writers come often",
        operation: "read or write of all words",
        locks: Locks::Copies,
        parameters: &[
            Parameter::fraction("writes", "1/100", "share of writes"),
            Parameter::count("words", "4", 1..=MOST as u64, "words of 8 bytes"),
            Parameter::time("gap", "0ns", "average computation between operations"),
        ],
        threads: Threads::UpToCpus,
        all_threads: |threads| threads,
        log_threads: true,
        simulated_us: 5_000,
    };

    fn new(settings: &Settings) -> Self {
        Snapshot {
            writes: settings.number("writes"),
            words: settings.count("words"),
            gap: settings.ns("gap"),
        }
    }

    fn run<S: Stage, C: Copies<Machine = S::Machine>>(&self, stage: &S, threads: usize) -> Outcome {
        let all: [<S::Machine as Machine>::Usize; MOST] = std::array::from_fn(Word::new);
        let shared = Line((C::new(), all));
        let (lock, words) = (&shared.0.0, &shared.0.1[..self.words]);
        // Outside the simulated machine: they are no part of the workload.
        let (writes, reads, agains) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        let measured = measure::run(stage, threads, &|thread| {
            let mut space = [0; MOST];
            let copy = &mut space[..self.words];
            let (mut made, mut read, mut again, mut last) = (0, 0, 0, 0);
            while thread.running() {
                if thread.chance(self.writes) {
                    lock.change(thread, words, copy, |words| words.iter_mut().for_each(|word| *word += 1));
                    made += 1;
                } else {
                    again += lock.copy(thread, words, copy);
                    read += 1;
                }
                match version(copy) {
                    Some(version) if version >= last => last = version,
                    Some(version) => thread.fail(|| format!("after write {last}, a copy of write {version}")),
                    None => thread.fail(|| format!("half of a write is inside {copy:?}")),
                }
                thread.done();
                let gap = thread.below(2 * self.gap + 1);
                thread.work(gap);
            }
            for (all, own) in [(&writes, made), (&reads, read), (&agains, again)] {
                all.fetch_add(own, Relaxed);
            }
        })?;
        let copies_in_vain = agains.into_inner() as f64 / reads.into_inner().max(1) as f64;
        let measured = measured.with("again", copies_in_vain);
        measured.expect("writes", words[0].load(Relaxed) as u64, writes.into_inner())
    }
}
