//! Every algorithm under loom: all interleavings of small clients, up to a number of preemptions,
//! under the C11 memory model.
//!
//! The clients know the algorithms only through the registry, so a new lock is covered by its line
//! there. Protected data stands in loom's `UnsafeCell`: sections that do not overlap but are not
//! ordered either (a missing acquire or release) are reported as well.
//!
//! `LATCHWORK_LOCK=name` runs one lock only (or several, separated by commas).
//! `LATCHWORK_LOOM_DEEP=1` allows one preemption more everywhere (hours rather than minutes).

mod machine;
mod records;
mod stacks;
mod words;

mod bravo;
mod condvar;
mod map;
mod modes;
mod mutex;
mod reclaim;
mod rwlock;
mod semaphore;
mod seqlock;
mod trios;

#[path = "../example/futex.rs"]
mod example;

/// Runs a client of one lock, unless `LATCHWORK_LOCK` names others, and says on stderr which one and
/// what came of it.
fn report<R: std::fmt::Display>(lock: &str, client: impl FnOnce() -> R) {
    if std::env::var("LATCHWORK_LOCK").is_ok_and(|only| only.split(',').all(|name| name != lock)) {
        return;
    }
    struct Named<'a>(&'a str);
    impl Drop for Named<'_> {
        fn drop(&mut self) {
            if std::thread::panicking() {
                eprintln!("{:>12}: failed", self.0);
            }
        }
    }
    let _named = Named(lock);
    let start = std::time::Instant::now();
    let result = client();
    eprintln!("{lock:>12}: {result} ({:.1?})", start.elapsed());
}
