//! `latchwork-lab reproduce`: the papers' claims beside what comes out here.

mod claims;
mod document;
mod experiment;
mod html;
mod judge;
mod markdown;
mod native;
mod rule;
mod runner;
mod table;
mod validate;

use crate::measure::{options, progress};
use claims::{Claim, Paper, SIMULATOR};
use clap::Args;
use document::{Answer, Document};
use experiment::{Effort, Ready};
use latchwork_console::failure::{Failure, Result};
use latchwork_console::machine::Machine;
use latchwork_console::signals::Signals;
use latchwork_console::{names, output};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// After the options in `latchwork-lab reproduce --help`.
pub const HELP: &str = "\
Each claim has a citation, the paper's sentence or number, and a rule that is stated before the
run. The locks are this library's own source. The paper's machine is simulated. What two CPUs can
show of McKenney's claims is also measured on this machine (mckenney-here-..). The column `on`
names the simulated machine, or says `here`. A claim holds if every run meets its rule, does not
hold if no run meets it, and is not shown otherwise. Simulated runs differ in their seed. Measured
runs are rounds in which all locks take turns.

The claim `simulator` measures all locks on this machine for a minute or two, and asks whether the
simulator orders them as the machine does. Other programs disturb what is measured here.

Exit status: 0, whether claims hold or not; 1 if a lock failed a workload's check; 2 for wrong arguments;
130 after Ctrl-C.

Examples:
  latchwork-lab reproduce                                    all of it, in a few minutes
  latchwork-lab reproduce --list                             the claims
  latchwork-lab reproduce --only bravo-alternator            one of them
  latchwork-lab reproduce --only shfllock,bueso              those of two papers
  latchwork-lab reproduce --only mckenney-here               those of McKenney that are measured
  latchwork-lab reproduce --report report --json claims.json and a page with plots";

/// Options of `latchwork-lab reproduce`.
#[derive(Args)]
pub struct Options {
    /// Only these claims, or all of a paper: bravo, shfllock, bueso, mckenney, mckenney-here, simulator
    #[arg(long, value_name = "ID,..", value_delimiter = ',')]
    only: Vec<String>,
    /// Show the claims and their rules, and run nothing
    #[arg(long)]
    list: bool,
    /// Write every number here (- for standard output, in place of the table)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write a page with plots into this directory, as index.html
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,
    /// Write the table as Markdown here
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Simulated time of each measurement [default: a few milliseconds, as the workload needs]
    #[arg(long, value_name = "S", value_parser = options::seconds)]
    seconds: Option<Duration>,
    /// How often to run each point: seeds, and rounds of what is measured here
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    runs: u32,
    /// The first seed
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

impl Options {
    /// Whether standard output is for the document.
    fn json_only(&self) -> bool {
        self.json.as_deref() == Some(Path::new("-"))
    }
}

/// Runs, judges, prints; the exit status.
pub fn reproduce(options: &Options) -> Result<i32> {
    let claims = select(&options.only)?;
    if options.list {
        print!("{}", table::list(&claims));
        return Ok(0);
    }
    check_outputs(options)?;
    announce(options, &claims);
    let effort = Effort { runs: options.runs, seconds: options.seconds, seed: options.seed };
    let used: Vec<&str> = claims.iter().flat_map(Claim::experiments).collect();
    let ready: Vec<Ready> = claims::experiments()
        .iter()
        .filter(|experiment| used.contains(&experiment.id))
        .map(|experiment| Ready::find(experiment, &effort))
        .collect::<Result<_>>()?;
    let document = run(claims, &ready, &effort)?;
    write(options, &document, &ready)?;
    Ok(document.interrupted.map_or(i32::from(document.failed()), |signal| 128 + signal))
}

fn run(claims: Vec<Claim>, ready: &[Ready], effort: &Effort) -> Result<Document> {
    let signals = Signals::watch().map_err(|error| Failure::new(format!("signalfd: {error}")))?;
    let start = Instant::now();
    let machine = Machine::here();
    let bar = progress(runner::measurements(ready));
    let runner::Ran { results, conditions, signal: mut interrupted } = runner::run(ready, &signals, &bar);
    bar.finish_and_clear();

    let mut comparison = None;
    if interrupted.is_none() && claims.iter().any(|claim| claim.id == SIMULATOR) {
        let bar = progress(0);
        let measured = validate::measure(&Effort { seconds: None, ..*effort }, &signals, &bar)?;
        let (simulated, ended) = match measured.signal {
            None => {
                let ran = runner::run(&measured.ready, &signals, &bar);
                (ran.results, ran.signal)
            }
            some => (Vec::new(), some),
        };
        interrupted = ended;
        bar.finish_and_clear();
        if interrupted.is_none() {
            comparison = Some(validate::Comparison::new(&measured, &simulated, &machine));
        }
    }
    let agreement = comparison.as_ref().and_then(validate::Comparison::share);
    let judge = |claim: &Claim| {
        // Whatever is the same in every run counts for each of them.
        let runs = if claim.experiments().is_empty() { 1 } else { effort.runs as usize };
        judge::judge(&claim.checks, runs, &|figure, run| {
            runner::figure(ready, &results, agreement, figure, run)
        })
    };
    let answers: Vec<Answer> =
        claims.into_iter().map(|claim| Answer { judged: judge(&claim), claim }).collect();
    Ok(Document {
        answers,
        results,
        conditions,
        comparison,
        effort: *effort,
        interrupted,
        took: start.elapsed(),
        machine,
    })
}

/// The rules, before anything is run.
fn announce(options: &Options, claims: &[Claim]) {
    let rules = table::list(claims);
    if options.json_only() {
        eprintln!("{rules}");
    } else {
        println!("{rules}");
    }
}

fn write(options: &Options, document: &Document, ready: &[Ready]) -> Result<()> {
    let to_stdout = options.json_only();
    if to_stdout {
        print!("{}", document.json(ready));
    } else {
        print!("{}", table::text(document));
    }
    if let Some(path) = options.json.as_deref().filter(|_| !to_stdout) {
        output::write("--json", path, &document.json(ready))?;
    }
    if let Some(path) = &options.markdown {
        output::write("--markdown", path, &markdown::text(document))?;
    }
    if let Some(directory) = &options.report {
        let page = directory.join("index.html");
        output::write("--report", &page, &html::page(document, ready)?)?;
        eprintln!("The report is {}", page.display());
    }
    Ok(())
}

fn check_outputs(options: &Options) -> Result<()> {
    if let Some(path) = &options.json {
        output::check("--json", path)?;
    }
    if let Some(path) = &options.markdown {
        output::check("--markdown", path)?;
    }
    if let Some(directory) = &options.report {
        std::fs::create_dir_all(directory)
            .map_err(|error| Failure::usage(format!("--report {}: {error}", directory.display())))?;
        output::check("--report", &directory.join("index.html"))?;
    }
    Ok(())
}

/// The claims that `--only` names, or all.
fn select(only: &[String]) -> Result<Vec<Claim>> {
    let all = claims::all();
    for wanted in only.iter().map(|id| id.trim()) {
        let known = |id: &str| all.iter().any(|claim| claim.id == id) || is_paper(id);
        if !known(wanted) {
            let mut ids: Vec<&str> = Paper::ALL.iter().map(|paper| paper.id()).collect();
            ids.extend(all.iter().map(|claim| claim.id).filter(|id| !is_paper(id)));
            return Err(Failure::usage(format!(
                "there is no claim called {wanted:?}{}; --only takes {}",
                names::did_you_mean(wanted, &ids),
                ids.join(", ")
            )));
        }
    }
    let selected = |claim: &Claim| {
        let named = |id: &String| id.trim() == claim.id || claim.paper.is_of(id.trim());
        only.is_empty() || only.iter().any(named)
    };
    Ok(all.into_iter().filter(selected).collect())
}

fn is_paper(id: &str) -> bool {
    Paper::ALL.iter().any(|paper| paper.id() == id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_are_selected_by_id_and_by_paper() {
        let of = |ids: &[&str]| select(&ids.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>());
        assert_eq!(of(&[]).unwrap().len(), claims::all().len());
        assert_eq!(of(&["bravo-alternator"]).unwrap().len(), 1);
        let bueso = of(&["bueso"]).unwrap();
        assert!(bueso.len() > 5 && bueso.iter().all(|claim| claim.paper == Paper::Bueso));
        let (both, here) = (of(&["mckenney"]).unwrap(), of(&["mckenney-here"]).unwrap());
        assert!(here.iter().all(|claim| claim.paper == Paper::McKenneyHere));
        assert!(
            both.len() > here.len() && here.iter().all(|one| both.iter().any(|claim| claim.id == one.id))
        );
        let error = of(&["bravo-alternatr"]).unwrap_err();
        assert_eq!(error.status, 2);
        assert!(error.message.contains("did you mean bravo-alternator?"), "{}", error.message);
        assert!(!error.message.contains('\n'));
    }
}
