//! `latchwork-lab torture --self-test`: whether the torture catches what it must.

use super::Target;
use super::parent::{self, End, Job};
use latchwork_console::failure::{Failure, Result};
use latchwork_console::signals::Signals;
use latchwork_console::{names, output};
use latchwork_torture::twins;
use std::time::Duration;

/// Rounds go on for so many seconds, or until a twin is caught.
const AT_MOST: u32 = 120;

/// The one called `name`.
pub fn find(name: &str) -> Result<Target> {
    let all = twins::all();
    let names: Vec<_> = all.iter().map(|twin| twin.name).collect();
    match names.iter().find(|known| **known == name) {
        Some(name) => Ok(Target { kind: "twin", name }),
        None => Err(Failure::usage(format!(
            "there is no broken lock called {name:?}{}; --twin can be: {}",
            names::did_you_mean(name, &names),
            names.join(", ")
        ))),
    }
}

/// Tortures all of them, or the one called `only`, and returns the exit status.
pub fn self_test(seed: u64, only: Option<&str>) -> Result<i32> {
    let only = only.map(find).transpose()?.map(|target| target.name);
    let signals = Signals::watch()?;
    let mut missed = 0;
    for twin in twins::all().into_iter().filter(|twin| only.is_none_or(|name| twin.name == name)) {
        let job = Job {
            arguments: vec![
                "torture-one".into(),
                "twin".into(),
                twin.name.into(),
                format!("--seconds={AT_MOST}"),
                format!("--seed={seed}"),
            ],
            silence: Duration::from_secs(4 * u64::from(AT_MOST)),
        };
        let (verdict, why) = match parent::run(&job, &signals, |_| ())? {
            End::Done(_, Some(signal)) | End::Killed(signal) => return Ok(128 + signal),
            End::Done(report, None) => match report.failed {
                Some(failed) if !failed.scenario.is_empty() => ("caught", failed.what),
                Some(failed) => ("NOT CAUGHT", failed.what),
                None => ("NOT CAUGHT", String::new()),
            },
        };
        missed += u32::from(verdict != "caught");
        output::print(&format!("{verdict:<10}  {}: {}\n            {why}\n", twin.name, twin.mistake))?;
    }
    Ok(i32::from(missed > 0))
}
