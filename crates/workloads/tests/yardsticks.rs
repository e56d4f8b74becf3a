//! The locks that are only compared with, under torture: what the papers measured must be correct, or it proves nothing.

use latchwork::locks::mutex::RawMutex;
use latchwork::locks::rwlock::RawRwLock;
use latchwork::machine::Native;
use latchwork_torture::jitter::Jitter;
use latchwork_torture::{Scenario, Settings, of_mutex, of_rwlock, torture};
use latchwork_workloads::rwsem_4_19::RwSem4;
use latchwork_workloads::shfl_paper::ShflPaper;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

fn must_work(name: &str, scenarios: &[Scenario]) {
    let settings = Settings {
        time: Duration::from_secs_f64(0.6),
        patience: Duration::from_secs(60),
        ..Settings::default()
    };
    let report = torture(scenarios, settings, &AtomicBool::new(false), |_| ());
    if let Some(failed) = report.failed {
        // Its threads may spin for ever, which would make other tests fail.
        eprintln!("{name} failed in {}: {}\n{}", failed.scenario, failed.what, failed.state.join("\n"));
        std::process::abort();
    }
    assert!(report.totals.writes > 0, "no thread ever got {name}");
}

fn rwlock<N: RawRwLock, J: RawRwLock>() {
    let mut scenarios = of_rwlock::<N>();
    scenarios.extend(of_rwlock::<J>());
    must_work(N::INFO.name, &scenarios);
}

#[test]
fn shfl_paper() {
    let mut scenarios = of_mutex::<ShflPaper<Native>>();
    scenarios.extend(of_mutex::<ShflPaper<Jitter>>());
    must_work(ShflPaper::<Native>::INFO.name, &scenarios);
}

#[test]
fn rwsem_of_linux_4() {
    rwlock::<RwSem4<Native, false>, RwSem4<Jitter, false>>();
    rwlock::<RwSem4<Native, true>, RwSem4<Jitter, true>>();
}
