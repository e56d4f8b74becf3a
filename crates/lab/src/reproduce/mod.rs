//! `latchwork-lab reproduce`: the papers' claims beside what comes out here.

mod claims;
mod document;
mod estimates;
mod experiment;
mod headlines;
mod html;
mod judge;
mod kept;
mod markdown;
mod native;
mod papers;
mod picture;
mod probe;
mod rule;
mod runner;
mod sensitivity;
mod space;
mod statements;
mod store;
mod table;
mod validate;

use crate::measure::{options, progress};
use claims::{Claim, Paper, SIMULATOR, one_lock};
use clap::{Args, ValueEnum};
use document::{Answer, Document};
use experiment::{Effort, Experiment, Ready};
use latchwork_console::failure::{Failure, Result};
use latchwork_console::machine::Machine;
use latchwork_console::signals::Signals;
use latchwork_console::{names, output};
use runner::{Known, Shard};
use sensitivity::{Asked, Space};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use store::Store;

/// After the options in `latchwork-lab reproduce --help`.
pub const HELP: &str = "\
Each claim has a citation, the paper's sentence or number, and a rule that is stated before the
run. The locks are this library's own source. The paper's machine is simulated. What two CPUs can
show of McKenney's claims is also measured on this machine (mckenney-here-..). The column `on`
names the simulated machine, or says `here`. Simulated runs differ in their seed. Measured runs
are rounds in which all locks take turns.

A claim holds if every run meets its rule. If no run meets it, the claim is contradicted, or it is
different by design (a lock of ours differs on purpose), or it cannot be shown here (the model lacks
what decides it). Otherwise it depends: on chance, on a parameter that the paper does not give, or
on costs of the machine that are estimates. To find out, --sensitivity also runs each simulated
claim with these costs halved and doubled, in eight runs of a design, and with other values of such
parameters, and looks for the one that decides.

To divide the work, give each machine a file and a shard, then merge the files. The page is the
same, byte for byte, but for what is measured here. A file that is there already is resumed.
--from-state prints the page again and runs nothing.

The claim `simulator` measures all locks on this machine for a minute or two, and asks whether the
simulator orders them as the machine does. Other programs disturb what is measured here.

Exit status: 0, whether claims hold or not; 1 if a lock failed a workload's check; 2 for wrong
arguments; 130 after Ctrl-C.

Examples:
  latchwork-lab reproduce                                    all of it, in a few minutes
  latchwork-lab reproduce --list                             the claims
  latchwork-lab reproduce --only bravo-alternator            one of them
  latchwork-lab reproduce --only shfllock,bueso              those of two papers
  latchwork-lab reproduce --only headlines                   those of abstracts and introductions
  latchwork-lab reproduce --only mckenney-here               those of McKenney that are measured
  latchwork-lab reproduce --sensitivity --state runs.jsonl   with the space; after Ctrl-C it goes on
  latchwork-lab reproduce --sensitivity headlines            with that of the headlines
  latchwork-lab reproduce --sensitivity --state 2.jsonl --shard 2/8    the second of eight machines
  latchwork-lab reproduce --sensitivity --merge 1.jsonl,2.jsonl        the page from all of them
  latchwork-lab reproduce --sensitivity --from-state runs.jsonl        what is there of it
  latchwork-lab reproduce --report report --json claims.json and a page with plots";

/// Options of `latchwork-lab reproduce`.
#[derive(Args)]
pub struct Options {
    /// Only these claims, or all of a paper: bravo, shfllock, bueso, mckenney, mckenney-here, simulator, or headlines
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
    /// Also run simulated claims over uncertain costs and unknown parameters
    #[arg(long, value_enum, value_name = "WHICH", num_args = 0..=1, default_missing_value = "all")]
    sensitivity: Option<Varied>,
    /// Keep simulated runs in this file, and do not repeat those that it has
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
    /// Do only this part of the simulated runs, print no answers (needs --state)
    #[arg(long, value_name = "K/N", value_parser = shard, requires = "state", conflicts_with_all = ["json", "report", "markdown", "measurements"])]
    shard: Option<Shard>,
    /// Take simulated runs from these files of shards as well
    #[arg(long, value_name = "FILE,..", value_delimiter = ',')]
    merge: Vec<PathBuf>,
    /// Run nothing: print what these files of --state have
    #[arg(long, value_name = "FILE,..", value_delimiter = ',', conflicts_with_all = ["state", "shard", "merge", "measurements"])]
    from_state: Vec<PathBuf>,
    /// Compare the simulator with the measurements in these files; this machine is measured into one that is not there
    #[arg(long, value_name = "FILE,..", value_delimiter = ',')]
    measurements: Vec<PathBuf>,
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

/// The claims that are run over the space.
#[derive(Copy, Clone, Debug, PartialEq, Eq, ValueEnum)]
enum Varied {
    /// All that are simulated
    All,
    /// The ten statements at the head of the document
    Ten,
    /// These, and the claims of abstracts and introductions
    Headlines,
}

impl Options {
    /// The claims that are run over the space.
    fn varied(&self, claims: &[Claim]) -> Vec<Claim> {
        let stated = |claim: &Claim| statements::TEN.iter().any(|statement| statement.id == claim.id);
        let asked = |claim: &&Claim| match self.sensitivity {
            None => false,
            Some(Varied::All) => true,
            Some(Varied::Ten) => stated(claim),
            Some(Varied::Headlines) => stated(claim) || headlines::is_one(claim.id),
        };
        claims.iter().filter(asked).cloned().collect()
    }

    /// Whether standard output is for the document.
    fn json_only(&self) -> bool {
        self.json.as_deref() == Some(Path::new("-"))
    }
}

/// `2/8`.
fn shard(text: &str) -> std::result::Result<Shard, String> {
    let numbers = text.split_once('/').and_then(|(part, of)| Some((part.parse().ok()?, of.parse().ok()?)));
    match numbers {
        Some((part, of)) if 0 < part && part <= of => Ok(Shard { part, of }),
        _ => Err("it takes a part and how many there are, such as 2/8".into()),
    }
}

/// Runs, judges, prints; the exit status.
pub fn reproduce(options: &Options) -> Result<i32> {
    let claims = select(&options.only)?;
    if options.list {
        output::print(&table::list(&claims))?;
        return Ok(0);
    }
    check_outputs(options)?;
    if !options.measurements.is_empty() && !claims.iter().any(|claim| claim.id == SIMULATOR) {
        return Err(Failure::usage(format!(
            "--measurements is for the claim `{SIMULATOR}`, which --only leaves out"
        )));
    }
    let store = match &options.from_state[..] {
        [] => Store::open(options.state.as_deref(), &options.merge)?,
        files => Store::frozen(files)?,
    };
    let effort = Effort { runs: options.runs, seconds: options.seconds, seed: options.seed };
    let used: Vec<&str> = claims.iter().flat_map(Claim::runs).collect();
    let experiments: Vec<Experiment> =
        claims::experiments().into_iter().filter(|experiment| used.contains(&experiment.id)).collect();
    let mut ready: Vec<Ready> =
        experiments.iter().map(|experiment| Ready::find(experiment, &effort)).collect::<Result<_>>()?;
    for one in ready.iter_mut().filter(|one| one.how.is_some()) {
        one.again = Some(claims.iter().flat_map(|claim| runner::points(claim.values(), one)).collect());
    }
    let signals = Signals::watch()?;
    let work = Work { options, effort, store: &store, signals: &signals };
    if let Some(shard) = options.shard {
        return work.shard(shard, &claims, &experiments, &ready);
    }
    announce(options, &claims)?;
    let document = work.all(&claims, &experiments, &ready)?;
    write(options, &document, &ready)?;
    store.check()?;
    Ok(document.interrupted.map_or(i32::from(document.failed()), |signal| 128 + signal))
}

/// What a run is done with.
struct Work<'a> {
    options: &'a Options,
    effort: Effort,
    store: &'a Store,
    signals: &'a Signals,
}

impl Work<'_> {
    /// Does a part of the simulated runs; the exit status.
    fn shard(
        &self,
        shard: Shard,
        claims: &[Claim],
        experiments: &[Experiment],
        ready: &[Ready],
    ) -> Result<i32> {
        let bar = progress(runner::runs(ready));
        let mut signal = runner::run(ready, self.store, Some(shard), self.signals, &bar).signal;
        let varied = self.options.varied(claims);
        if !varied.is_empty() && signal.is_none() {
            let asked = Asked::new(&varied, experiments, &self.effort);
            let ended =
                asked.run(&mut Space::default(), &|_| false, self.store, Some(shard), self.signals, &bar)?;
            signal = ended.signal();
        }
        bar.finish_and_clear();
        let state = self.options.state.as_ref().map_or_else(String::new, |path| path.display().to_string());
        self.store.check()?;
        let Shard { part, of } = shard;
        let done = if signal.is_some() { "is interrupted; run it again to resume" } else { "is done" };
        output::print(&format!("Shard {part} of {of} {done}: its runs are in {state}\n"))?;
        Ok(signal.map_or(0, |signal| 128 + signal))
    }

    /// Does all of it.
    fn all(&self, claims: &[Claim], experiments: &[Experiment], ready: &[Ready]) -> Result<Document> {
        let (effort, signals) = (&self.effort, self.signals);
        let start = Instant::now();
        let before = self.store.here().filter(|_| self.store.is_frozen());
        let machine = before.map_or_else(Machine::here, |here| here.machine.clone());
        let bar = progress(runner::runs(ready));
        let runner::Ran { results, conditions, signal: mut interrupted } =
            runner::run(ready, self.store, None, signals, &bar);
        if interrupted.is_none() && !self.store.is_frozen() {
            runner::keep_measured(ready, &results, self.store, &machine, &conditions);
        }
        let mut space = Space::default();
        let over_space = self.options.varied(claims);
        let asked = Asked::new(&over_space, experiments, effort);
        let varied = !over_space.is_empty() && interrupted.is_none();
        if varied {
            let holds = |claim: &Claim| {
                let none = Known::default();
                judge::judge(&claim.checks, 1, &|figure, run| {
                    runner::figure(ready, &results, &none, figure, run)
                })
                .holds()
            };
            interrupted = asked.run(&mut space, &holds, self.store, None, signals, &bar)?.signal();
        }
        let mut known = Known::default();
        if interrupted.is_none() {
            (known.probes, interrupted) = probe::Answers::ask(claims, effort, self.store, signals, &bar);
        }
        bar.finish_and_clear();
        let varied = varied && interrupted.is_none();

        let mut comparisons = Vec::new();
        if interrupted.is_none()
            && !self.store.is_frozen()
            && claims.iter().any(|claim| claim.id == SIMULATOR)
        {
            (comparisons, interrupted) = self.compare()?;
        }
        known.agreement = comparisons.iter().filter_map(validate::Comparison::share).min_by(f64::total_cmp);
        let answer = |claim: &Claim| {
            // Whatever is the same in every run counts for each of them.
            let runs = if claim.is_fixed() { 1 } else { effort.runs as usize };
            let mut judged = judge::judge_in_turns(&claim.checks, runs, claim.turns(), &|figure, run| {
                runner::figure(ready, &results, &known, figure, run)
            });
            judged.same = one_lock::needs_others(claim, experiments);
            for (checked, check) in judged.checks.iter_mut().zip(&claim.checks) {
                checked.spread = runner::spread(ready, &results, check);
            }
            let tightest = judged.tightest_index();
            let space = if varied { asked.of(&space, claim.id, tightest) } else { None };
            let verdict =
                judge::verdict(&judged, claim.ground, space.as_ref(), runner::apart(ready, &results, claim));
            let evidence =
                claim.checks.get(tightest).and_then(|check| runner::evidence(ready, &results, check));
            let seen = runner::seen(ready, &results, &known, claim, effort.runs as usize);
            Answer { claim: claim.clone(), judged, verdict, space, evidence, seen }
        };
        let answers: Vec<Answer> = claims.iter().map(answer).collect();
        Ok(Document {
            answers,
            results,
            failures: space.failures(),
            conditions,
            comparisons,
            effort: *effort,
            interrupted,
            took: start.elapsed(),
            kept: self.store.is_frozen(),
            machine,
        })
    }

    /// The simulator against measured machines: those of `--measurements`, or this one; and the signal that ended it.
    fn compare(&self) -> Result<(Vec<validate::Comparison>, Option<i32>)> {
        let mut comparisons = Vec::new();
        let this: &[Option<PathBuf>] = &[None];
        let kept: Vec<Option<PathBuf>> = self.options.measurements.iter().cloned().map(Some).collect();
        for file in if kept.is_empty() { this } else { &kept } {
            let bar = progress(0);
            let measured = match file {
                Some(file) if file.exists() => kept::read(file, &Effort { seconds: None, ..self.effort })?,
                _ => validate::measure(&Effort { seconds: None, ..self.effort }, self.signals, &bar)?,
            };
            if measured.signal.is_some() {
                return Ok((comparisons, measured.signal));
            }
            if let Some(file) = file.as_ref().filter(|file| !file.exists()) {
                kept::write(file, &measured)?;
            }
            bar.set_length(runner::runs(&measured.ready) as u64);
            bar.set_position(0);
            let ran = runner::run(&measured.ready, self.store, None, self.signals, &bar);
            bar.finish_and_clear();
            if ran.signal.is_some() {
                return Ok((comparisons, ran.signal));
            }
            comparisons.push(validate::Comparison::new(&measured, &ran.results));
        }
        Ok((comparisons, None))
    }
}

/// The rules, before anything is run.
fn announce(options: &Options, claims: &[Claim]) -> Result<()> {
    let rules = table::list(claims);
    if options.json_only() {
        output::say(&rules);
        Ok(())
    } else {
        output::print(&(rules + "\n"))
    }
}

fn write(options: &Options, document: &Document, ready: &[Ready]) -> Result<()> {
    output::report(options.json.as_deref(), || table::text(document), || document.json(ready))?;
    if let Some(path) = &options.markdown {
        markdown::write(document, path)?;
    }
    if let Some(directory) = &options.report {
        let page = directory.join("index.html");
        output::write("--report", &page, &html::page(document, ready)?)?;
        output::say(&format!("The report is {}", page.display()));
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

/// What `--only` calls the claims of abstracts and introductions.
const HEADLINES: &str = "headlines";

/// The claims that `--only` names, or all.
fn select(only: &[String]) -> Result<Vec<Claim>> {
    let all = claims::all();
    for wanted in only.iter().map(|id| id.trim()) {
        let known = |id: &str| all.iter().any(|claim| claim.id == id) || is_paper(id) || id == HEADLINES;
        if !known(wanted) {
            let mut ids: Vec<&str> = Paper::ALL.iter().map(|paper| paper.id()).chain([HEADLINES]).collect();
            ids.extend(all.iter().map(|claim| claim.id).filter(|id| !is_paper(id)));
            return Err(Failure::usage(format!(
                "there is no claim called {wanted:?}{}; --only takes {}",
                names::did_you_mean(wanted, &ids),
                ids.join(", ")
            )));
        }
    }
    let selected = |claim: &Claim| {
        let named = |id: &String| match id.trim() {
            HEADLINES => headlines::is_one(claim.id),
            id => id == claim.id || claim.paper.is_of(id),
        };
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
