//! Threads that go through more memory than caches hold.
//!
//! Source: ours, after the pointer chase of lmbench (McVoy and Staelin, "lmbench: Portable Tools for Performance Analysis",
//! USENIX ATC 1996, section 5.1). Each thread goes round through memory of its own, line by line, and holds a lock for reading
//! meanwhile. In random order each line says which is next, so the processor waits for each load; in ascending order
//! it does not, and many lines are on their way at once.
//!
//! At a larger stride than a line, lines at equal places of many pages meet in few sets of a cache.
//!
//! This is how the simulated caches and memory are compared with real ones (docs/simulator.md).

use crate::data::{Cell, Line};
use crate::lock::Lock;
use crate::measure::{self, Outcome};
use crate::stage::Stage;
use crate::workload::{Info, Locks, Parameter, Settings, Threads, Workload};
use latchwork::machine::Machine;
use latchwork::map::array::Array;

/// Lines of an operation: so many that the lock hardly counts.
const LINES: usize = 256;
/// Bytes of a line.
const LINE: usize = 64;

/// See the [module documentation](self).
pub struct WorkingSet {
    lines: usize,
    ascending: bool,
    /// From a line of a thread to the next one, in lines.
    stride: usize,
}

/// A line that says which is next.
#[repr(align(64))]
struct Link<M: Machine>(Cell<M>);

/// Lines of a page of 4 KiB.
const PER_PAGE: usize = 4096 / LINE;

/// From the first line on that begins a page: one of the first [`PER_PAGE`].
fn from_page<M: Machine>(memory: &[Link<M>]) -> &[Link<M>] {
    &memory[memory.as_ptr().addr().wrapping_neg() / LINE % PER_PAGE..]
}

/// The order in which a thread goes round: for each line the next one. A cycle of all, by Sattolo's shuffle.
pub fn successors(lines: usize, ascending: bool) -> Vec<usize> {
    if ascending {
        return (1..lines).chain([0]).collect();
    }
    let mut cycle: Vec<usize> = (0..lines).collect();
    let mut random = 1_u64;
    for last in (1..lines).rev() {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        cycle.swap(last, ((u128::from(random) * last as u128) >> 64) as usize);
    }
    cycle
}

impl Workload for WorkingSet {
    const INFO: Info = Info {
        name: "working-set",
        summary: "read many lines of a thread's own memory under a lock that all hold for reading",
        source: "ours, after lmbench (McVoy and Staelin, 1996), section 5.1",
        shows: "nothing about locks: what caches hold, and how fast memory is; to compare a simulated machine with a real one",
        operation: "read of 256 lines",
        locks: Locks::RwLock,
        parameters: &[
            Parameter::count(
                "kib",
                "256",
                1..=1 << 20,
                "KiB that each thread goes through, in lines of 64 bytes",
            ),
            Parameter::word("order", "random", &["random", "ascending"], "of the lines"),
            Parameter::word(
                "stride",
                "64",
                &["64", "128", "256", "512", "1024", "2048", "4096"],
                "bytes from a line to the next in memory",
            ),
        ],
        threads: Threads::UpToCpus,
        all_threads: |threads| threads,
        log_threads: true,
        simulated_us: 40_000,
    };

    fn new(settings: &Settings) -> Self {
        WorkingSet {
            lines: (settings.count("kib") * 1024 / LINE).max(2),
            ascending: settings.number("order") != 0.0,
            // The value of a word is its position.
            stride: 1 << settings.count("stride"),
        }
    }

    fn run<S: Stage, L: Lock<Machine = S::Machine>>(&self, stage: &S, threads: usize) -> Outcome {
        let lock = Line(L::new());
        let next = successors(self.lines, self.ascending);
        let memory: Vec<Array<Link<S::Machine>>> = (0..threads)
            .map(|_| {
                let memory = Array::new(self.lines * self.stride + PER_PAGE, |_| Link(Cell::new(0)));
                for (line, next) in next.iter().enumerate() {
                    from_page(&memory)[line * self.stride].0.set((next * self.stride) as u64);
                }
                memory
            })
            .collect();
        measure::run(stage, threads, &|thread| {
            let memory = &from_page(&memory[thread.index])[..self.lines * self.stride];
            if self.stride > 1 {
                stage.in_pages(memory);
            }
            let mut line = 0;
            while thread.running() {
                let held = thread.read(&*lock);
                for _ in 0..LINES {
                    let next = memory[line].0.get() as usize;
                    // The processor may go on to a line that does not depend on this load.
                    let after = if line + self.stride < memory.len() { line + self.stride } else { 0 };
                    line = if self.ascending { after } else { next };
                    if next >= memory.len() || self.ascending && next != line {
                        thread.fail(|| format!("line {line} says {next}"));
                        break;
                    }
                }
                drop(held);
                thread.done();
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_order_is_one_cycle() {
        for (lines, ascending) in [(2, false), (3, true), (1000, false), (1000, true)] {
            let next = successors(lines, ascending);
            let mut line = 0;
            let lengths = (1..=lines).find(|_| {
                line = next[line];
                line == 0
            });
            assert_eq!(lengths, Some(lines));
        }
    }
}
