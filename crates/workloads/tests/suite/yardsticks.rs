//! The locks that are only compared with, under torture: what the papers measured must be correct, or it proves nothing.
//!
//! Both are locks of a kernel, and promise less than the library's. Two scenarios would find that, and are left out:
//!
//! - `priorities`: a waiter spins for a thread that may be preempted: the head of the queue of `shfl-paper`, and whoever
//!   wants the list of `rwsem`. In the kernel such a thread is not preempted.
//! - `reuse`: the release of `rwsem` takes the list's lock when another thread may already have got and left the semaphore.
//!   Linux says so of its mutexes (`Documentation/locking/mutex-design.rst`): nobody may free one while a thread releases it.

use latchwork::locks::mutex::RawMutex;
use latchwork::locks::rwlock::RawRwLock;
use latchwork::machine::Native;
use latchwork_torture::jitter::Jitter;
use latchwork_torture::{Scenario, Settings, of_mutex, of_rwlock, torture};
use latchwork_workloads::rwsem_4_19::RwSem4;
use latchwork_workloads::shfl_paper::ShflPaper;
use std::io::Write;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Tortures the lock `name` in the scenarios that are not in `left_out`.
fn must_work(name: &str, mut scenarios: Vec<Scenario>, left_out: &[&str]) {
    scenarios.retain(|scenario| !left_out.contains(&scenario.name));
    let settings = Settings {
        time: Duration::from_secs_f64(0.6),
        patience: Duration::from_secs(60),
        ..Settings::default()
    };
    let report = torture(&scenarios, settings, &AtomicBool::new(false), |_| ());
    if let Some(failed) = report.failed {
        // Its threads may spin for ever, which would make other tests fail. What `eprintln` prints is kept back until a test
        // has ended, and this one does not end.
        let (scenario, what, state) = (failed.scenario, failed.what, failed.state.join("\n"));
        let _ = writeln!(std::io::stderr(), "{name} failed in {scenario}: {what}\n{state}");
        std::process::abort();
    }
    assert!(report.totals.writes > 0, "no thread ever got {name}");
}

fn rwlock<N: RawRwLock, J: RawRwLock>() {
    let mut scenarios = of_rwlock::<N>();
    scenarios.extend(of_rwlock::<J>());
    must_work(N::INFO.name, scenarios, &["priorities", "reuse"]);
}

#[test]
fn shfl_paper() {
    let mut scenarios = of_mutex::<ShflPaper<Native>>();
    scenarios.extend(of_mutex::<ShflPaper<Jitter>>());
    must_work(ShflPaper::<Native>::INFO.name, scenarios, &["priorities"]);
}

#[test]
fn rwsem_of_linux_4() {
    rwlock::<RwSem4<Native, false>, RwSem4<Jitter, false>>();
    rwlock::<RwSem4<Native, true>, RwSem4<Jitter, true>>();
}
