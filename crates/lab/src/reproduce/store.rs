//! Runs in a file, so that a run of simulations can be interrupted and resumed, and divided among machines and merged.
//!
//! Each line is a JSON object: the first names the sources that were simulated, and each other has one run. A
//! simulation gives the same numbers wherever it runs, so it does not matter which machine wrote a line. What was measured
//! has a line for each run as well, and one that says on which machine. Only a page that is printed from the file reads these.

use super::native::Conditions;
use crate::measure::results::Run;
use latchwork_console::failure::{Failure, Result};
use latchwork_console::machine::Machine;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// A simulated run, or why there is none.
pub type Outcome = std::result::Result<Run, String>;

/// The first line.
#[derive(Serialize, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
struct Head {
    /// A hash of the sources of locks, simulator, machines and workloads (`build.rs`).
    sources: String,
}

/// Another line.
#[derive(Deserialize)]
#[serde(untagged)]
enum Entry {
    Run(Line),
    Here(Here),
}

/// The machine on which experiments were measured, and what it was like meanwhile.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Here {
    /// The machine.
    pub machine: Machine,
    /// What it was like.
    pub conditions: Conditions,
}

/// One run. Floating-point numbers are written as their bits, so that they come back as they were.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    key: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    failure: Option<String>,
    #[serde(default)]
    rate: u64,
    #[serde(default)]
    fairness: u64,
    #[serde(default)]
    extra: BTreeMap<String, u64>,
    /// Seconds that the simulation took. Only a person who looks for the expensive points needs it.
    took: f64,
}

/// The runs that are known, and where new ones are written.
#[derive(Default)]
pub struct Store {
    known: HashMap<String, Outcome>,
    here: Option<Here>,
    /// Nothing is run: only what is known is printed.
    frozen: bool,
    file: Option<(PathBuf, Mutex<Written>)>,
}

/// A file to which lines are appended.
struct Written {
    file: File,
    /// How many of its bytes are whole lines.
    whole: u64,
    /// How many lines are not there, and why the first of them is not.
    missing: usize,
    why: String,
}

impl Written {
    /// Appends a line, which ends with a newline character. If that fails, what is there of it goes: a later line may succeed.
    fn append(&mut self, line: &str) {
        match self.file.write_all(line.as_bytes()) {
            Ok(()) => self.whole += line.len() as u64,
            Err(error) => {
                if self.missing == 0 {
                    self.why = error.to_string();
                }
                self.missing += 1;
                // What cannot be removed is still the last line, unless a later line is written whole.
                let _ = self.file.set_len(self.whole);
            }
        }
    }
}

/// What this program simulates. Another build of the same sources gives the same numbers.
fn head() -> Head {
    Head { sources: env!("LATCHWORK_SIMULATED").into() }
}

/// The name of a figure. They are few, and each is kept once, for as long as the program runs.
fn name(name: &str) -> &'static str {
    static NAMES: Mutex<Vec<&str>> = Mutex::new(Vec::new());
    let mut names = NAMES.lock().expect("no thread panics while it holds the mutex");
    if let Some(known) = names.iter().find(|known| **known == name) {
        return known;
    }
    let new: &'static str = name.to_owned().leak();
    names.push(new);
    new
}

impl Store {
    /// With the runs of the file at `state`, to which new ones are appended, and of the files `merge`.
    pub fn open(state: Option<&Path>, merge: &[PathBuf]) -> Result<Self> {
        let mut store = Store::default();
        for path in merge {
            store.read("--merge", path)?;
        }
        let Some(path) = state else { return Ok(store) };
        let whole = if path.exists() { store.read("--state", path)? } else { 0 };
        let fail = |error: std::io::Error| Failure::usage(format!("--state {}: {error}", path.display()));
        let mut file = OpenOptions::new().create(true).append(true).open(path).map_err(fail)?;
        file.set_len(whole).map_err(fail)?;
        if whole == 0 {
            writeln!(file, "{}", serde_json::to_string(&head()).expect("plain data")).map_err(fail)?;
        }
        let whole = file.metadata().map_err(fail)?.len();
        let written = Written { file, whole, missing: 0, why: String::new() };
        store.file = Some((path.to_owned(), Mutex::new(written)));
        Ok(store)
    }

    /// With the runs of these files. Nothing is run beside them.
    pub fn frozen(files: &[PathBuf]) -> Result<Self> {
        let mut store = Store { frozen: true, ..Store::default() };
        for path in files {
            store.read("--from-state", path)?;
        }
        Ok(store)
    }

    /// Whether nothing is run.
    pub fn is_frozen(&self) -> bool {
        self.frozen
    }

    /// Where the runs that are known were measured.
    pub fn here(&self) -> Option<&Here> {
        self.here.as_ref()
    }

    /// After all runs: an error if one of them is not in the file.
    pub fn check(&self) -> Result<()> {
        let Some((path, written)) = &self.file else { return Ok(()) };
        let written = written.lock().expect("no thread panics while it holds the mutex");
        if written.missing == 0 {
            return Ok(());
        }
        let Written { missing, why, .. } = &*written;
        Err(Failure::new(format!(
            "--state {}: {missing} of the runs could not be written: {why}",
            path.display()
        )))
    }

    /// Reads a file; how many of its bytes are whole lines. If the program was ended while it wrote, the last line is none.
    fn read(&mut self, option: &str, path: &Path) -> Result<u64> {
        let fail =
            |why: &dyn std::fmt::Display| Failure::usage(format!("{option} {}: {why}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|error| fail(&error))?;
        let whole = text.rfind('\n').map_or(0, |last| last + 1);
        let mut lines = text[..whole].lines().enumerate();
        match lines.next().map(|(_, head)| serde_json::from_str::<Head>(head)) {
            None => return Ok(0),
            Some(Ok(head)) if head == self::head() => (),
            Some(Ok(head)) => {
                let why = format!("its runs are of other sources ({}); use another file", head.sources);
                return Err(fail(&why));
            }
            Some(Err(_)) => return Err(fail(&"it is not a file of simulated runs")),
        }
        for (at, line) in lines {
            let entry =
                serde_json::from_str(line).map_err(|error| fail(&format!("line {}: {error}", at + 1)))?;
            match entry {
                Entry::Here(here) => self.here = Some(here),
                Entry::Run(line) => {
                    self.known.insert(line.key.clone(), line.into());
                }
            }
        }
        Ok(whole as u64)
    }

    /// The run that is filed under `key`.
    pub fn get(&self, key: &str) -> Option<&Outcome> {
        self.known.get(key)
    }

    /// Writes a run to the file, if there is one; the run with what a file keeps of it.
    pub fn put(&self, key: &str, outcome: Outcome, took: f64) -> Outcome {
        let line = match outcome {
            Ok(run) => Line {
                key: key.to_owned(),
                failure: None,
                rate: run.rate.to_bits(),
                fairness: run.fairness.to_bits(),
                extra: run.extra.iter().map(|(name, value)| ((*name).to_owned(), value.to_bits())).collect(),
                took,
            },
            Err(failure) => Line {
                key: key.to_owned(),
                failure: Some(failure),
                rate: 0,
                fairness: 0,
                extra: BTreeMap::new(),
                took,
            },
        };
        self.append(&line);
        line.into()
    }

    /// Writes to the file, if there is one, where the runs before it were measured.
    pub fn put_here(&self, machine: &Machine, conditions: &Conditions) {
        self.append(&Here { machine: machine.clone(), conditions: conditions.clone() });
    }

    fn append(&self, line: &impl Serialize) {
        let Some((_, written)) = &self.file else { return };
        let mut text = serde_json::to_string(line).expect("plain data");
        text.push('\n');
        // One write for each line: it is there as a whole, or is the last.
        written.lock().expect("no thread panics while it holds the mutex").append(&text);
    }
}

impl From<Line> for Outcome {
    fn from(line: Line) -> Self {
        match line.failure {
            Some(why) => Err(why),
            None => Ok(Run {
                fairness: f64::from_bits(line.fairness),
                extra: line.extra.iter().map(|(key, bits)| (name(key), f64::from_bits(*bits))).collect(),
                ..Run::at(f64::from_bits(line.rate))
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("latchwork-store-{name}-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        path
    }

    fn run(rate: f64) -> Run {
        Run { fairness: 0.1 + 0.2, extra: vec![("misses/op", 1.0 / 3.0)], ..Run::at(rate) }
    }

    #[test]
    fn runs_come_back_as_they_were_and_a_torn_last_line_is_left_out() {
        let path = scratch("back");
        let store = Store::open(Some(&path), &[]).unwrap();
        let before = store.put("one", Ok(run(1e6 / 3.0)), 0.5).unwrap();
        store.put("two", Err("broken".into()), 0.5).unwrap_err();
        std::fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(b"{\"key\":\"thr").unwrap();
        let again = Store::open(None, std::slice::from_ref(&path)).unwrap();
        let after = again.get("one").unwrap().as_ref().unwrap();
        assert_eq!((after.rate, after.fairness, &after.extra), (before.rate, before.fairness, &before.extra));
        assert_eq!(again.get("two").unwrap().as_ref().unwrap_err(), "broken");
        assert!(again.get("three").is_none());
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_run_that_cannot_be_written_is_an_error_in_the_end() {
        let path = scratch("full");
        let mut store = Store::open(Some(&path), &[]).unwrap();
        store.put("one", Ok(run(1.0)), 0.5).unwrap();
        assert!(store.check().is_ok());
        // From now on each write fails.
        let (_, written) = store.file.as_mut().unwrap();
        written.get_mut().unwrap().file = File::open(&path).unwrap();
        store.put("two", Ok(run(2.0)), 0.5).unwrap();
        store.put("three", Ok(run(3.0)), 0.5).unwrap();
        let error = store.check().unwrap_err();
        assert!(error.status == 1 && error.message.contains("2 of the runs"), "{}", error.message);
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn files_of_other_sources_are_refused() {
        let path = scratch("other");
        std::fs::write(&path, "{\"sources\":\"0\"}\n").unwrap();
        let error = Store::open(Some(&path), &[]).err().unwrap();
        assert!(error.message.contains("other sources") && error.status == 2, "{}", error.message);
        std::fs::write(&path, "a text\n").unwrap();
        assert!(
            Store::open(Some(&path), &[]).err().unwrap().message.contains("not a file of simulated runs")
        );
        std::fs::remove_file(path).unwrap();
    }
}
