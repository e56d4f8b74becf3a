//! Experiments: a workload on a simulated machine, or on this one, under several locks. Several claims may
//! look at one.

use super::space::{self, Variant};
use crate::measure::options::Common;
use crate::measure::plan::{Limits, Plan};
use crate::simulate::{self, How};
use latchwork_console::failure::{Failure, Result};
use latchwork_console::machine;
use latchwork_sim::{MAX_THREADS, Placement, Profile};
use latchwork_workloads::peers;
use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

/// Time of each measurement on this machine, if there are no more threads than CPUs.
pub const MEASURED: Duration = Duration::from_millis(50);

/// What an experiment runs on.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum On {
    /// A simulated machine, as `simulate --machine` takes it.
    Simulated(&'static str),
    /// This machine.
    Here,
}

impl On {
    /// In a word.
    pub fn name(self) -> &'static str {
        match self {
            On::Simulated(machine) => machine,
            On::Here => "here",
        }
    }
}

/// What is run.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// As claims name it.
    pub id: &'static str,
    /// The workload.
    pub workload: &'static str,
    /// The machine.
    pub on: On,
    /// The locks.
    pub locks: &'static [&'static str],
    /// As `simulate --threads` takes it.
    pub threads: &'static str,
    /// As `simulate --set` takes it.
    pub set: &'static [&'static str],
    /// Where threads run, if it is simulated.
    pub placement: Placement,
    /// Simulated microseconds, if not the workload's own.
    pub micros: Option<u64>,
    /// Other values of parameters that the paper does not give, each as `name=value`.
    pub unknown: &'static [&'static str],
}

impl Experiment {
    pub fn set(mut self, set: &'static [&'static str]) -> Self {
        self.set = set;
        self
    }

    pub fn placement(mut self, placement: Placement) -> Self {
        self.placement = placement;
        self
    }

    pub fn micros(mut self, micros: u64) -> Self {
        self.micros = Some(micros);
        self
    }

    pub fn unknown(mut self, unknown: &'static [&'static str]) -> Self {
        self.unknown = unknown;
        self
    }

    /// The command that shows the same.
    pub fn command(&self) -> String {
        let command = match self.on {
            On::Simulated(machine) => format!("simulate {} --machine {machine}", self.workload),
            On::Here => format!("bench {} --seconds {}", self.workload, MEASURED.as_secs_f64()),
        };
        let (locks, threads) = (self.locks.join(","), self.threads);
        let mut text = format!("latchwork-lab {command} --locks {locks} --threads {threads}");
        if let (On::Simulated(_), Some(micros)) = (self.on, self.micros) {
            text += &format!(" --seconds {}", Duration::from_micros(micros).as_secs_f64());
        }
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
    /// Runs of each point, each with a seed of its own; on this machine, one in each round.
    pub runs: u32,
    /// Simulated time of each run, if not the experiment's own.
    pub seconds: Option<Duration>,
    /// The first seed.
    pub seed: u64,
}

/// The variants of an experiment run for this part of its time.
const SHORTER: u64 = 4;

/// An experiment that can be run.
pub struct Ready {
    /// What it is.
    pub experiment: Experiment,
    /// Under which variant its runs are filed; empty for the experiment itself, and None if they are not filed.
    pub label: Option<String>,
    /// The points that are wanted; all, if none is named.
    pub only: BTreeSet<usize>,
    /// The points that have more than one run; None: all of them. The others are there for the plots.
    pub again: Option<BTreeSet<usize>>,
    /// Its points.
    pub plan: Plan,
    /// How each is simulated; None on this machine.
    pub how: Option<How>,
}

impl Ready {
    /// Of an experiment on a machine with this profile, with one of its parameters changed.
    fn new(experiment: &Experiment, profile: Profile, effort: &Effort, change: Option<&str>) -> Result<Self> {
        let limits = Limits {
            candidates: &simulate::candidates(),
            handful: &[],
            cpus: profile.cpus(),
            most_threads: MAX_THREADS - 1,
            name: &profile.name,
            runs: effort.runs,
        };
        let plan = plan(experiment, &limits, effort, change)?;
        let own = Duration::from_micros(experiment.micros.unwrap_or(plan.workload.simulated_us));
        let measured = effort.seconds.unwrap_or(own);
        let options = latchwork_sim::Options { placement: experiment.placement, ..Default::default() };
        let how = How {
            options,
            measured_ns: simulate::nanos(measured),
            warm_up_ns: simulate::nanos(measured / 4),
            profile,
        };
        Ok(Self::of(experiment, plan, Some(how)))
    }

    /// Of all claims of an experiment. `how` is for a simulated one.
    fn of(experiment: &Experiment, plan: Plan, how: Option<How>) -> Self {
        Ready { experiment: experiment.clone(), label: None, only: BTreeSet::new(), again: None, plan, how }
    }

    /// Of an experiment on a machine that was measured. Its runs are filed under the costs.
    pub fn on(experiment: &Experiment, profile: Profile, effort: &Effort) -> Result<Self> {
        let mut costs = DefaultHasher::new();
        profile.to_toml().hash(&mut costs);
        let label = Some(format!("costs {:016x}", costs.finish()));
        Ok(Ready { label, ..Self::new(experiment, profile, effort, None)? })
    }

    /// A variant of a simulated experiment: once, and for a shorter time or the `whole` time.
    pub fn variant(experiment: &Experiment, variant: &Variant, effort: &Effort, whole: bool) -> Result<Self> {
        let On::Simulated(name) = experiment.on else {
            return Err(Failure::new(format!("{} is not simulated", experiment.id)));
        };
        let base = Profile::find(name).map_err(|error| Failure::usage(error.to_string()))?;
        let change = match variant {
            Variant::Unknown(set) => Some(set.as_str()),
            _ => None,
        };
        let once = Effort { runs: 1, ..*effort };
        let mut ready = Self::new(experiment, space::profile(&base, variant)?, &once, change)?;
        let how = ready.how.as_mut().expect("it is simulated");
        let (shorter, suffix) = if whole { (1, ", all of the time") } else { (SHORTER, "") };
        how.measured_ns /= shorter;
        how.warm_up_ns /= shorter;
        ready.label = Some(variant.label() + suffix);
        Ok(ready)
    }

    /// Of an experiment on this machine. It may have too few processors: then there are points without runs.
    fn here(experiment: &Experiment, effort: &Effort) -> Result<Self> {
        let limits = Limits {
            candidates: &peers::candidates(),
            handful: &[],
            cpus: machine::cpus(),
            most_threads: usize::MAX,
            name: "this machine",
            runs: effort.runs,
        };
        let plan = plan(experiment, &limits, effort, None)?;
        Ok(Self::of(experiment, plan, None))
    }

    /// On the machine that it names.
    pub fn find(experiment: &Experiment, effort: &Effort) -> Result<Self> {
        let On::Simulated(name) = experiment.on else { return Self::here(experiment, effort) };
        let profile = Profile::find(name).map_err(|error| Failure::usage(error.to_string()))?;
        Ok(Ready { label: Some(String::new()), ..Self::new(experiment, profile, effort, None)? })
    }

    /// For how long operations count.
    pub fn measured_ns(&self) -> u64 {
        self.how.as_ref().map_or_else(|| simulate::nanos(MEASURED), |how| how.measured_ns)
    }
}

fn plan(experiment: &Experiment, limits: &Limits, effort: &Effort, change: Option<&str>) -> Result<Plan> {
    let name = |set: &str| set.split_once('=').map_or("", |(name, _)| name).to_owned();
    let kept = experiment.set.iter().filter(|set| change.is_none_or(|change| name(change) != name(set)));
    let common = Common {
        workload: Some(experiment.workload.into()),
        locks: experiment.locks.iter().map(|lock| (*lock).to_owned()).collect(),
        threads: Some(experiment.threads.into()),
        set: kept.copied().chain(change).map(str::to_owned).collect(),
        runs: Some(effort.runs),
        seed: effort.seed,
        ..Common::default()
    };
    Plan::new(&common, limits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::options;
    use crate::reproduce::claims;

    #[test]
    fn the_command_that_is_shown_simulates_as_long_as_the_experiment() {
        let effort = Effort { runs: 1, seconds: None, seed: 1 };
        for experiment in claims::experiments().iter().filter(|experiment| experiment.on != On::Here) {
            let command = experiment.command();
            let ready = Ready::find(experiment, &effort).map_err(|error| error.message).unwrap();
            let own = Duration::from_micros(ready.plan.workload.simulated_us);
            let given = command.split_once("--seconds ").map_or(own, |(_, rest)| {
                options::seconds(rest.split(' ').next().expect("there is a first word")).unwrap()
            });
            assert_eq!(simulate::nanos(given), ready.measured_ns(), "{command}");
        }
    }
}
