//! The space in which a claim is tested: what its machine's uncertain costs and its workload's unknowns may be.
//!
//! An uncertain cost is one that the machine's profile calls an estimate. All are halved or doubled at once, in the runs of a
//! design. An unknown is a parameter of the workload that the paper does not give.

use super::experiment::{Experiment, On};
use latchwork_console::failure::{Failure, Result};
use latchwork_sim::Profile;

/// How far an estimate may be off, either way.
const FACTOR: f64 = 2.0;
/// Runs in which all uncertain costs vary at once.
pub const JOINT: usize = 8;

/// Costs that are uncertain for the same reason, and so vary together.
const TOGETHER: &[(&str, &[&str])] = &[
    ("transfer in a cluster", &["lines.cluster", "lines.cluster_modified"]),
    ("transfer in a socket", &["lines.socket", "lines.socket_modified"]),
    ("one hop", &["lines.hop", "lines.hop_modified"]),
    ("two hops", &["lines.two_hops", "lines.two_hops_modified"]),
    ("memory", &["lines.dram_local", "lines.dram_remote"]),
];

/// Values that are shares of something, and so at most 1.
const SHARES: &[&str] = &[
    "lines.request",
    "lines.jitter",
    "lines.pair_prefetch",
    "lines.read_occupancy_remote",
    "lines.atomic_wait",
];

/// A group of costs that vary together.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// What a reader calls it.
    pub name: String,
    /// The fields of the profile.
    pub fields: Vec<&'static str>,
}

/// One point of the space.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Variant {
    /// Nothing is changed, but the run is as short as those of the other variants.
    AsItIs,
    /// All uncertain costs are halved or doubled, each according to the design.
    Joint(usize),
    /// A parameter of the workload has another value, as `name=value`.
    Unknown(String),
    /// The first so many uncertain costs are as in that joint run, the others as they are.
    Part(usize, usize),
    /// The uncertain cost of this number is as in that joint run, the others as they are.
    Alone(usize, usize),
}

impl Variant {
    /// As a reader sees it, and as results are filed under it.
    pub fn label(&self) -> String {
        match self {
            Variant::AsItIs => "as it is".into(),
            Variant::Joint(run) => format!("joint {}", run + 1),
            Variant::Unknown(set) => set.clone(),
            Variant::Part(run, costs) => format!("joint {}, first {costs}", run + 1),
            Variant::Alone(run, cost) => format!("joint {}, only {}", run + 1, cost + 1),
        }
    }

    /// The parameter of the workload that differs, if one does.
    pub fn parameter(&self) -> Option<&str> {
        match self {
            Variant::Unknown(set) => set.split_once('=').map(|(name, _)| name),
            _ => None,
        }
    }
}

/// The uncertain costs of a machine. A cost of 0 has no double; one that the profile calls unused decides nothing.
pub fn groups(profile: &Profile) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for (field, number) in profile.numbers() {
        let uncertain = number.source.starts_with("estimate") && !number.source.contains("unused");
        if !uncertain || number.value == 0.0 {
            continue;
        }
        let together = TOGETHER.iter().find(|(_, fields)| fields.contains(&field));
        let own = field.split_once('.').map_or(field, |(_, name)| name).replace('_', " ");
        let name = together.map_or(own, |(name, _)| (*name).to_owned());
        match groups.iter_mut().find(|group| group.name == name) {
            Some(group) => group.fields.push(field),
            None => groups.push(Group { name, fields: vec![field] }),
        }
    }
    groups
}

/// In which of the joint runs group number `group` is doubled: in half of them. No two groups of 35 go together in all runs,
/// or against each other in all.
fn doubled(group: usize) -> u8 {
    // A set of half of the runs and its complement are one column of the design: the one with run 0 stands for both.
    let columns = (0..=u8::MAX).filter(|set| set.count_ones() as usize == JOINT / 2 && set & 1 == 1);
    let columns: Vec<u8> = columns.collect();
    let column = columns[group % columns.len()];
    // In the first run not all are doubled.
    if group.is_multiple_of(2) { column } else { !column }
}

/// Whether group number `group` is doubled in joint run number `run`. Otherwise it is halved.
pub fn is_doubled(group: usize, run: usize) -> bool {
    doubled(group) >> run & 1 == 1
}

/// The machine of this variant.
pub fn profile(base: &Profile, variant: &Variant) -> Result<Profile> {
    let groups = groups(base);
    let (run, costs) = match *variant {
        Variant::AsItIs | Variant::Unknown(_) => return Ok(base.clone()),
        Variant::Joint(run) => (run, 0..groups.len()),
        Variant::Part(run, costs) => (run, 0..costs),
        Variant::Alone(run, cost) => (run, cost..cost + 1),
    };
    let mut value = serde_json::to_value(base).expect("a profile consists of numbers and text");
    for (at, group) in groups.iter().enumerate().filter(|(at, _)| costs.contains(at)) {
        let factor = if is_doubled(at, run) { FACTOR } else { 1.0 / FACTOR };
        for field in &group.fields {
            let number = &mut value[field.split_once('.').expect("a table and a field").0]
                [field.split_once('.').expect("a table and a field").1]["value"];
            let old = number.as_f64().expect("a number");
            *number = changed(field, old, factor).into();
        }
    }
    let changed: Profile = serde_json::from_value(value).expect("the same fields as before");
    Profile::parse(&changed.to_toml(), &format!("{}, {}", base.name, variant.label()))
        .map_err(|error| Failure::new(error.to_string()))
}

/// A cost times `factor`, where it stays possible.
fn changed(field: &str, value: f64, factor: f64) -> f64 {
    match field {
        _ if SHARES.contains(&field) => (value * factor).min(1.0),
        // The part that is slower, not the whole.
        "processor.smt_slowdown" => 1.0 + (value - 1.0) * factor,
        "lines.scan_misses" => (value * factor).max(1.0),
        _ => value * factor,
    }
}

/// The variants that every claim about these experiments is tested in.
pub fn first(experiments: &[&Experiment]) -> Vec<Variant> {
    let joint = (0..JOINT).map(Variant::Joint);
    let unknown = experiments.iter().flat_map(|experiment| experiment.unknown);
    let mut variants: Vec<Variant> = std::iter::once(Variant::AsItIs).chain(joint).collect();
    for set in unknown {
        let variant = Variant::Unknown((*set).to_owned());
        if !variants.contains(&variant) {
            variants.push(variant);
        }
    }
    variants
}

/// The uncertain costs of the experiments' machines, in the order of [`Variant::Part`]. Two machines may have different ones at
/// one place; then both change.
pub fn costs(experiments: &[&Experiment]) -> Result<Vec<Vec<String>>> {
    let mut costs: Vec<Vec<String>> = Vec::new();
    for experiment in experiments {
        let On::Simulated(machine) = experiment.on else { continue };
        let base = Profile::find(machine).map_err(|error| Failure::usage(error.to_string()))?;
        for (at, group) in groups(&base).into_iter().enumerate() {
            if at == costs.len() {
                costs.push(Vec::new());
            }
            if !costs[at].contains(&group.name) {
                costs[at].push(group.name);
            }
        }
    }
    Ok(costs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_estimates_vary_and_each_both_ways() {
        let base = Profile::find("e7-8890v4").unwrap();
        let groups = groups(&base);
        let has = |name: &str| groups.iter().any(|group| group.name == name);
        assert!(has("one hop") && has("two hops") && has("wakeup") && has("memory"));
        assert!(!has("hit") && !has("atomic"), "they are looked up");
        let hop = |variant: &Variant| profile(&base, variant).unwrap().lines.hop.unwrap().value;
        assert_eq!(hop(&Variant::AsItIs), 170.0);
        let at = |name: &str| groups.iter().position(|group| group.name == name).unwrap();
        let one_hop = at("one hop");
        let run = |up: bool| (0..JOINT).find(|run| is_doubled(one_hop, *run) == up).unwrap();
        assert_eq!(hop(&Variant::Alone(run(true), one_hop)), 340.0);
        assert_eq!(hop(&Variant::Alone(run(false), one_hop)), 85.0);
        assert_eq!(hop(&Variant::Alone(0, at("wakeup"))), 170.0);
    }

    #[test]
    fn in_the_joint_runs_each_group_is_doubled_in_half_and_no_two_always_agree() {
        let columns: Vec<u8> = (0..35).map(doubled).collect();
        for (at, column) in columns.iter().enumerate() {
            assert_eq!(column.count_ones(), 4);
            assert!(columns[..at].iter().all(|other| other != column && *other != !column), "{at}");
        }
        for name in Profile::names() {
            let base = Profile::find(&name).unwrap();
            assert!(groups(&base).len() <= columns.len(), "{name}");
            assert!(groups(&base).len() <= 32, "{name}: a search takes more than six runs");
            for run in 0..JOINT {
                profile(&base, &Variant::Joint(run)).unwrap_or_else(|error| panic!("{name}: {error:?}"));
            }
        }
    }

    #[test]
    fn a_part_of_a_joint_run_lies_between_it_and_the_machine_as_it_is() {
        let base = Profile::find("e7-8890v4").unwrap();
        let all = groups(&base).len();
        for run in 0..JOINT {
            let numbers = |variant: &Variant| {
                let profile = profile(&base, variant).unwrap();
                profile.numbers().iter().map(|(_, number)| number.value).collect::<Vec<f64>>()
            };
            assert_eq!(numbers(&Variant::Part(run, 0)), numbers(&Variant::AsItIs));
            assert_eq!(numbers(&Variant::Part(run, all)), numbers(&Variant::Joint(run)));
            for costs in 0..all {
                let (fewer, more) =
                    (numbers(&Variant::Part(run, costs)), numbers(&Variant::Part(run, costs + 1)));
                let differ = fewer.iter().zip(&more).filter(|(one, other)| one != other).count();
                assert!(differ <= groups(&base)[costs].fields.len(), "{run} {costs}");
            }
        }
    }

    #[test]
    fn what_is_impossible_is_not_asked() {
        assert_eq!(changed("lines.request", 0.6, 2.0), 1.0);
        assert_eq!(changed("processor.smt_slowdown", 1.6, 0.5), 1.3);
        assert_eq!(changed("lines.hop", 170.0, 2.0), 340.0);
    }
}
