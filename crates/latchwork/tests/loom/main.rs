//! Every algorithm under loom: all interleavings of small clients, up to a number of preemptions,
//! under the C11 memory model.
//!
//! The clients know the algorithms only through the registry, so a new lock is covered by its line
//! there. Protected data stands in loom's `UnsafeCell`: sections that do not overlap but are not
//! ordered either (a missing acquire or release) are reported as well.
//!
//! `cargo test --release --test loom` takes minutes less than the debug build.
//! `LATCHWORK_LOOM_DEEP=1` allows one preemption more everywhere (hours rather than minutes).

mod machine;
mod words;

mod condvar;
mod mutex;
mod rwlock;

/// Runs a client of one lock, and says on stderr which one and what came of it.
fn report<R: std::fmt::Display>(lock: &str, client: impl FnOnce() -> R) {
    let start = std::time::Instant::now();
    eprint!("{lock:>12}: ");
    let result = client();
    eprintln!("{result} ({:.1?})", start.elapsed());
}
