//! Experiments: a workload on a simulated machine under several locks. Several claims may look at
//! one.

use crate::bench::options::Common;
use crate::bench::plan::{Limits, Plan};
use crate::failure::{Failure, Result};
use crate::simulate::{self, How};
use latchwork_sim::{MAX_THREADS, Placement, Profile};
use std::time::Duration;

/// What is run.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// As claims name it.
    pub id: &'static str,
    /// The workload.
    pub workload: &'static str,
    /// The machine, as `simulate --machine` takes it.
    pub machine: &'static str,
    /// The locks.
    pub locks: &'static [&'static str],
    /// As `simulate --threads` takes it.
    pub threads: &'static str,
    /// As `simulate --set` takes it.
    pub set: &'static [&'static str],
    /// Where threads run.
    pub placement: Placement,
    /// Simulated microseconds, if not the workload's own.
    pub micros: Option<u64>,
}

impl Experiment {
    /// The command that shows the same.
    pub fn command(&self) -> String {
        let mut text = format!(
            "latchwork simulate {} --machine {} --locks {} --threads {}",
            self.workload,
            self.machine,
            self.locks.join(","),
            self.threads
        );
        if self.placement == Placement::RoundRobin {
            text += " --placement round-robin";
        }
        for set in self.set {
            text += &format!(" --set {set}");
        }
        text
    }
}

/// How often, how long, with which seed.
#[derive(Copy, Clone, Debug)]
pub struct Effort {
    /// Runs of each point, each with a seed of its own.
    pub runs: u32,
    /// Simulated time of each run, if not the experiment's own.
    pub seconds: Option<Duration>,
    /// The first seed.
    pub seed: u64,
}

/// An experiment that can be run.
pub struct Ready {
    /// What it is.
    pub experiment: Experiment,
    /// Its points.
    pub plan: Plan,
    /// How each is simulated.
    pub how: How,
}

impl Ready {
    /// Of an experiment on a machine with this profile.
    pub fn new(experiment: &Experiment, profile: Profile, effort: &Effort) -> Result<Self> {
        let candidates = simulate::candidates();
        let limits = Limits {
            candidates: &candidates,
            handful: &[],
            cpus: profile.cpus(),
            most_threads: MAX_THREADS - 1,
            name: &profile.name,
            runs: effort.runs,
        };
        let common = Common {
            workload: Some(experiment.workload.into()),
            list: false,
            locks: experiment.locks.iter().map(|lock| (*lock).to_owned()).collect(),
            threads: Some(experiment.threads.into()),
            set: experiment.set.iter().map(|set| (*set).to_owned()).collect(),
            runs: Some(effort.runs),
            seed: effort.seed,
            json: None,
            markdown: None,
            plot: None,
        };
        let plan = Plan::new(&common, &limits)?;
        let own = Duration::from_micros(experiment.micros.unwrap_or(plan.workload.simulated_us));
        let measured = effort.seconds.unwrap_or(own);
        let options = latchwork_sim::Options { placement: experiment.placement, ..Default::default() };
        let how = How {
            options,
            measured_ns: simulate::nanos(measured),
            warm_up_ns: simulate::nanos(measured / 4),
            profile,
        };
        Ok(Ready { experiment: experiment.clone(), plan, how })
    }

    /// On the machine that it names.
    pub fn find(experiment: &Experiment, effort: &Effort) -> Result<Self> {
        let profile = Profile::find(experiment.machine).map_err(|error| Failure::usage(error.to_string()))?;
        Self::new(experiment, profile, effort)
    }
}
