//! Measurements of a machine in a file, so that the simulator can be compared with it again, on any machine.
//!
//! Each line is a JSON object: the first says what the machine was like and what its costs were measured to be, and each
//! other has the rates of one lock at one point, one for each round.

use super::experiment::{Effort, Ready};
use super::validate::{self, Measured};
use crate::measure::results::{Results, Run};
use latchwork_console::failure::{Failure, Result};
use latchwork_console::output;
use latchwork_sim::Profile;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The first line.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Head {
    /// Processor, kernel and C library.
    machine: String,
    /// CPUs that other programs used, when the measurement began.
    load_average: f64,
    /// Rounds of all locks during which the costs did not stay the same; none if that was not watched.
    unsteady: Option<usize>,
    /// The costs, as a profile.
    profile: String,
}

/// Another line.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    workload: String,
    threads: usize,
    lock: String,
    /// Operations a second, in whole numbers.
    rates: Vec<u64>,
}

/// Writes measurements.
pub fn write(path: &Path, measured: &Measured) -> Result<()> {
    let head = Head {
        machine: measured.machine.clone(),
        load_average: measured.load_average,
        unsteady: measured.unsteady,
        profile: measured.profile.to_toml(),
    };
    let mut lines = vec![serde_json::to_string(&head).expect("plain data")];
    for (ready, results) in measured.ready.iter().zip(&measured.results) {
        for point in &results.points {
            let row = Row {
                workload: ready.plan.workload.name.to_owned(),
                threads: ready.plan.threads[point.place.threads],
                lock: ready.plan.locks[point.place.lock].name.to_owned(),
                rates: point.rates().into_iter().map(|rate| rate.round() as u64).collect(),
            };
            lines.push(serde_json::to_string(&row).expect("plain data"));
        }
    }
    output::write("--measurements", path, &(lines.join("\n") + "\n"))
}

/// Reads measurements. A lock that is no longer there is left out, and one that is new has no rates.
pub fn read(path: &Path, effort: &Effort) -> Result<Measured> {
    let fail = |why: String| Failure::usage(format!("--measurements {}: {why}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| fail(error.to_string()))?;
    let mut lines = text.lines();
    let head: Head = serde_json::from_str(lines.next().unwrap_or_default())
        .map_err(|error| fail(format!("line 1: {error}")))?;
    let profile = Profile::parse(&head.profile, &path.display().to_string())
        .map_err(|error| fail(error.to_string()))?;
    let ready: Vec<Ready> = validate::experiments()
        .iter()
        .map(|experiment| Ready::on(experiment, profile.clone(), effort))
        .collect::<Result<_>>()?;
    let mut results: Vec<Results> = ready.iter().map(|one| Results::new(&one.plan)).collect();
    for (at, line) in lines.enumerate() {
        let row: Row =
            serde_json::from_str(line).map_err(|error| fail(format!("line {}: {error}", at + 2)))?;
        for (one, results) in
            ready.iter().zip(&mut results).filter(|(one, _)| one.plan.workload.name == row.workload)
        {
            let place = results.points.iter().position(|point| {
                let (threads, lock) =
                    (one.plan.threads[point.place.threads], &one.plan.locks[point.place.lock]);
                threads == row.threads && lock.name == row.lock
            });
            if let Some(place) = place {
                row.rates.iter().for_each(|rate| results.file(place, Ok(Run::at(*rate as f64))));
            }
        }
    }
    let Head { machine, load_average, unsteady, .. } = head;
    Ok(Measured { machine, load_average, profile, ready, results, unsteady, signal: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    const EFFORT: Effort = Effort { runs: 1, seconds: None, seed: 1 };

    /// Measurements of a machine that was never measured: two locks have rates.
    fn made_up() -> Measured {
        let mut profile = Profile::find("emerald-rapids-2").unwrap();
        profile.name = "made-up".into();
        let of = |experiment| Ready::on(experiment, profile.clone(), &EFFORT).unwrap();
        let ready: Vec<Ready> = validate::experiments().iter().map(of).collect();
        let mut results: Vec<Results> = ready.iter().map(|one| Results::new(&one.plan)).collect();
        for (point, rate) in [(0, 3e6), (0, 4e6), (1, 5e6)] {
            results[1].file(point, Ok(Run::at(rate)));
        }
        let machine = "a machine".to_owned();
        Measured { machine, load_average: 0.25, profile, ready, results, unsteady: Some(1), signal: None }
    }

    #[test]
    fn measurements_come_back_as_they_were() {
        let path = std::env::temp_dir().join(format!("latchwork-kept-{}", std::process::id()));
        let before = made_up();
        write(&path, &before).unwrap();
        let after = read(&path, &EFFORT).unwrap();
        assert_eq!((after.machine, after.load_average, after.unsteady), (before.machine, 0.25, Some(1)));
        assert_eq!(after.profile.to_toml(), before.profile.to_toml());
        let rates = |results: &[Results]| -> Vec<Vec<f64>> {
            results.iter().flat_map(|one| &one.points).map(|point| point.rates()).collect()
        };
        assert_eq!(rates(&after.results), rates(&before.results));
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_lock_that_is_gone_is_left_out_and_a_file_of_something_else_is_refused() {
        let path = std::env::temp_dir().join(format!("latchwork-kept-other-{}", std::process::id()));
        write(&path, &made_up()).unwrap();
        let gone = "{\"workload\":\"counter\",\"threads\":2,\"lock\":\"gone\",\"rates\":[1]}\n";
        let text = std::fs::read_to_string(&path).unwrap() + gone;
        std::fs::write(&path, &text).unwrap();
        let runs: usize =
            read(&path, &EFFORT).unwrap().results[0].points.iter().map(|point| point.runs.len()).sum();
        assert_eq!(runs, 0);
        std::fs::write(&path, "a text\n").unwrap();
        assert!(read(&path, &EFFORT).err().unwrap().message.contains("line 1"));
        std::fs::remove_file(path).unwrap();
    }
}
