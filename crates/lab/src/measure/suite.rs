//! Several workloads in one run: `harm`, those in which a lock that spins does harm.

use super::options::{Common, HARM};
use super::plan::{self, Limits, Plan};
use latchwork_console::failure::{Failure, Result};
use latchwork_console::names;

/// Holders that sleep, are in the kernel or have just been woken, and tries that fail.
pub const WORKLOADS: &[&str] = &["file-sections", "interpreter", "barrier", "thread-pool", "yield-inside"];
const THREADS: &str = "2,4,8,16";
/// What harm is compared with: the C library's lock, or on a machine without it the model of its mutex.
const AGAINST: &[&str] = &[names::GLIBC, "glibc-futex"];

/// One plan if `common` names a workload, several if it names the suite.
pub fn plans(common: &Common, limits: &Limits) -> Result<Vec<Plan>> {
    if common.workload.as_deref() != Some(HARM) {
        return Ok(vec![Plan::new(common, limits)?]);
    }
    if common.plot.is_some() {
        return Err(Failure::usage("--plot is for one workload"));
    }
    let choice = names::default_choice();
    let defaults = [&choice.mutex, &choice.rwlock].map(ToString::to_string);
    let locks = if common.locks.is_empty() { &defaults[..] } else { &common.locks };
    let mut plans = Vec::new();
    for name in WORKLOADS {
        let info = plan::workload(name)?;
        let fitting = plan::fitting(&info, limits.candidates);
        let fits = |lock: &str| plan::named(lock, &fitting).is_some();
        let against = match &common.against {
            Some(name) => fits(name).then_some(name.as_str()),
            None => AGAINST.iter().copied().find(|name| fits(name)),
        };
        // A name that nothing is called is refused by the plan.
        let known = |lock: &str| limits.candidates.iter().any(|candidate| candidate.name == lock);
        let wanted = |lock: &&String| lock.as_str() == "all" || fits(lock) || !known(lock);
        let locks: Vec<String> = locks.iter().filter(wanted).cloned().collect();
        if locks.iter().all(|lock| Some(lock.as_str()) == against) {
            continue;
        }
        let common = Common {
            workload: Some((*name).to_owned()),
            locks,
            against: against.map(ToOwned::to_owned),
            threads: Some(common.threads.clone().unwrap_or_else(|| THREADS.to_owned())),
            ..common.clone()
        };
        plans.push(Plan::new(&common, limits)?);
    }
    if plans.is_empty() {
        return Err(Failure::usage(
            "--locks has nothing to compare: name a lock beside the one of --against",
        ));
    }
    Ok(plans)
}
