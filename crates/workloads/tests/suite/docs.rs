//! docs/workloads.md is generated from the registry; `LATCHWORK_WRITE_DOCS=1 cargo test -p latchwork-workloads --test suite docs`
//! writes it.

use latchwork_workloads::registry;
use latchwork_workloads::workload::Threads;
use std::fmt::Write;

const HEAD: &str = "\
<!-- generated: LATCHWORK_WRITE_DOCS=1 cargo test -p latchwork-workloads --test suite docs -->

# Workloads

`latchwork-lab bench` runs these workloads on this machine, `latchwork-lab simulate` on a simulated one. Each workload is
written once, over any lock and any machine, in one file of `crates/workloads/src/load`. The file's header says what was
taken from the paper and what differs. Threads share nothing under a lock but words of the machine, so the simulator
sees and charges every access. A unit of work is computation without memory.

Every run checks its workload's own invariant at the end: counts that only the lock keeps right, chains of the hash
table, mappings of the address space. A lock that breaks the invariant is reported as failed, not as fast.
The check costs some locks more than others. The counter of `counter` lies in the line of a small lock: waiters that spin there take that
line from the holder once more in each section. A reader of `rwbench` and `test-rwlock` looks at a word in the lock's line at both ends of
its section: up to one transfer more for each read, where readers count in that line. The papers' sections touch no such word.
With `word=own` it has a line of its own. The words of `file-sections`, `yield-inside` and `lock-per-node` lie in the lock's
line, too; no claim of a paper is tested with these three.

To add a workload, write a file with a type that implements `Workload`, and add a line to `registry.rs`. Then
`LATCHWORK_WRITE_DOCS=1 cargo test -p latchwork-workloads --test suite docs` writes this page anew.

## How it is measured

Threads start spread over 10 microseconds, because threads that start in step keep that order in every fair queue. They
warm up before anything counts. An operation counts if it began and ended within the measured time. Each thread has a
random number generator of its own (xoshiro256++), seeded from `--seed` and the thread's number.

Fairness is the factor of the ShflLock paper: the operations of the better half of the threads over all operations, 0.5
if all threads are equal. Threads with a role of their own, such as the one writer of `test-rwlock`, do not count.

A wait is the time from asking for the lock to having it. It counts if it ends after the warm-up, and then from its
beginning: a thread that waits from the warm-up until after the end has a wait longer than the measured time. The
simulator times every acquisition, because its clock is free. On a real machine the clock is not: a thread reads it
about every 5 microseconds, which times one acquisition in 1 to 256, and leaves out what a look takes. Each sample stands
for the acquisitions since the last one. `max` is the longest sample, not the longest wait.

Processor time and context switches are those of the whole process (`getrusage`) within the measured time. The kernel
tells user from system time by samples at its ticks, so a ratio of user times needs half a second or more in all.

## Harm

A lock can be fast and still do harm: its waiters spin while the holder sleeps or waits for their processor. `latchwork-lab
bench harm` runs the workloads in which that shows, with 2, 4, 8 and 16 threads: `file-sections`, `interpreter`, `barrier`,
`thread-pool` and `yield-inside`. It prints each lock's throughput and user time as ratios to glibc's lock. A ratio is that of
two runs of the same round; the median of the rounds counts, and the lowest and the highest stand beside it. Throughput
below 0.97 and user time above 1.1 are marked as harm. `--against LOCK` prints the same for any one workload.

These workloads use condition variables and semaphores beside the lock: glibc's with glibc's mutex, this library's with its
own locks, as in a program that runs with the preloaded library. With the mutexes of `std` and `parking_lot` they use the
condition variable of that library, and glibc's semaphore. With those of Concurrency Kit, Abseil and nsync they use this library's
condition variable, and glibc's semaphore: what waits for a condition there is not what a program of that library would have.
`latchwork-lab simulate harm` compares with a model of glibc's mutex.

";

fn capital(text: &str) -> String {
    let (first, rest) = text.split_at(1);
    first.to_uppercase() + rest
}

fn page() -> String {
    let mut page = HEAD.to_owned();
    page += "## The table\n\n| workload | locks | source | what it shows |\n|---|---|---|---|\n";
    for info in registry::all() {
        writeln!(page, "| [{0}](#{0}) | {1} | {2} | {3} |", info.name, info.locks, info.source, info.shows)
            .unwrap();
    }
    for info in registry::all() {
        let threads = match info.threads {
            Threads::UpToCpus => "from one to one for each CPU".to_owned(),
            Threads::PerCpu(factors) => {
                let factors: Vec<_> = factors.iter().map(usize::to_string).collect();
                format!("{} for each CPU", factors.join(", "))
            }
            Threads::Exactly(count) => count.to_string(),
            Threads::Each(counts) => counts.iter().map(usize::to_string).collect::<Vec<_>>().join(", "),
        };
        write!(
            page,
            "\n## {}\n\n{}. An operation: {}. Unless said otherwise, threads: {}; simulated time: {} ms.\n",
            info.name,
            capital(info.summary),
            info.operation,
            threads,
            info.simulated_us as f64 / 1000.0,
        )
        .unwrap();
        if !info.parameters.is_empty() {
            page += "\n| parameter | default | meaning | values |\n|---|---|---|---|\n";
        }
        for parameter in info.parameters {
            let (name, default, help, values) =
                (parameter.name, parameter.default, parameter.help, &parameter.values);
            writeln!(page, "| `{name}` | {default} | {help} | {values} |").unwrap();
        }
    }
    page
}

#[test]
fn the_page_is_that_of_the_registry() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/workloads.md");
    if std::env::var_os("LATCHWORK_WRITE_DOCS").is_some() {
        std::fs::write(path, page()).unwrap();
    }
    let written = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        written == page(),
        "docs/workloads.md is out of date: LATCHWORK_WRITE_DOCS=1 cargo test -p latchwork-workloads --test suite docs"
    );
}
