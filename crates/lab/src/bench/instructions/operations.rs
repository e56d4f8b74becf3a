//! Table 7: what an operation on the hash table executes, counted in the simulator.
//!
//! The paper's table says yes or no; here is how much. Two runs of the workload, with so many updates and
//! with none, tell a lookup from an update.

use crate::measure::options::Common;
use crate::measure::plan::{Limits, Plan};
use crate::simulate::{self, How};
use latchwork_console::failure::{Failure, Result};
use latchwork_sim::{MAX_THREADS, Profile};
use latchwork_workloads::workload::Settings;
use serde::Serialize;

/// Per operation.
#[derive(Copy, Clone, Debug, Default, Serialize)]
pub struct Counts {
    /// Words read and written.
    pub accesses: f64,
    /// Atomic read-modify-writes.
    pub atomics: f64,
    /// Cache lines that came from elsewhere.
    pub misses: f64,
}

/// What a strategy executes.
#[derive(Clone, Debug, Serialize)]
pub struct Operations {
    /// Its name.
    pub strategy: &'static str,
    /// In a lookup.
    pub lookup: Counts,
    /// In an update, beyond what a lookup has.
    pub update: Counts,
}

/// The machine, and its CPUs.
const MACHINE: &str = "power4";
const CPUS: usize = 8;
/// The share of updates from which what one costs is computed.
const UPDATES: f64 = 0.5;
const MICROS: u64 = 400;

/// Counts for the strategies that are compared unless the user names some.
pub fn count() -> Result<Vec<Operations>> {
    let profile = Profile::find(MACHINE).map_err(|error| Failure::new(error.to_string()))?;
    let candidates = simulate::candidates();
    let limits = Limits {
        candidates: &candidates,
        handful: &[],
        cpus: CPUS,
        most_threads: MAX_THREADS - 1,
        name: MACHINE,
        runs: 1,
    };
    let common = Common {
        workload: Some("hashtable-strategies".into()),
        threads: Some(CPUS.to_string()),
        set: vec![format!("updates=0,{UPDATES}"), "budget=256".into()],
        seed: 1,
        ..Common::default()
    };
    let plan = Plan::new(&common, &limits)?;
    let how = How {
        profile,
        options: latchwork_sim::Options::default(),
        measured_ns: MICROS * 1000,
        warm_up_ns: MICROS * 250,
    };
    let results = simulate::sweep::run(&plan, &how)?;
    if let Some(signal) = results.interrupted {
        return Err(Failure { message: "interrupted".into(), status: (128 + signal) as u8 });
    }
    let counts = |settings: usize, lock: usize| {
        let point = &results.points[settings * plan.locks.len() + lock];
        let extra = |name| point.extra(name).unwrap_or_default();
        Counts { accesses: extra("accesses/op"), atomics: extra("atomics/op"), misses: extra("misses/op") }
    };
    let none = |settings: &Settings| settings.number("updates") == 0.0;
    debug_assert!(none(&plan.settings[0]) && !none(&plan.settings[1]));
    let of = |(at, lock): (usize, &latchwork_workloads::candidate::Candidate)| {
        let (lookup, mixed) = (counts(0, at), counts(1, at));
        let more = |lookup: f64, mixed: f64| (mixed - lookup) / UPDATES;
        let update = Counts {
            accesses: more(lookup.accesses, mixed.accesses),
            atomics: more(lookup.atomics, mixed.atomics),
            misses: more(lookup.misses, mixed.misses),
        };
        Operations { strategy: lock.name, lookup, update }
    };
    Ok(plan.locks.iter().enumerate().map(of).collect())
}
