//! From what the user typed to the points to measure. Everything that can be wrong with the arguments
//! is found here, before anything is run.

use super::options::{Common, HARM};
use latchwork_console::failure::{Failure, Result};
use latchwork_console::names;
use latchwork_workloads::candidate::{Candidate, Kind, Origin};
use latchwork_workloads::registry;
use latchwork_workloads::workload::{Info, Locks, Settings, Threads};

/// What is measured: each lock at each thread count with each of the settings.
pub struct Plan {
    /// The workload.
    pub workload: Info,
    /// The locks, in the order of the table.
    pub locks: Vec<Candidate>,
    /// The one among `locks` that the others are compared with.
    pub against: Option<usize>,
    /// Thread counts, ascending.
    pub threads: Vec<usize>,
    /// Parameters.
    pub settings: Vec<Settings>,
    /// Measurements of each point.
    pub runs: u32,
    /// For random numbers.
    pub seed: u64,
}

/// What a machine can do.
pub struct Limits<'a> {
    /// The locks that run on it.
    pub candidates: &'a [Candidate],
    /// Locks to take if the user names none, of those that are for the workload.
    pub handful: &'a [&'a str],
    /// Its processors.
    pub cpus: usize,
    /// The most threads that make sense.
    pub most_threads: usize,
    /// What it is called.
    pub name: &'a str,
    /// Measurements of each point unless the user says.
    pub runs: u32,
}

/// The strategies that are compared unless the user names some: those of McKenney, Hart and Walpole, in the
/// order of their figures' best. A reader-writer lock is one for the table, a mutex one in each bucket.
const TABLES: &[&str] = &[
    "ideal",
    "qsbr-l",
    "qsbr-nbs",
    "hpbr-l",
    "hpbr-nbs",
    "rcu-l",
    "epoch-nbs",
    "ttas",
    "percpu",
    "pf-q",
    "crossbeam-epoch",
    "seize",
    "haphazard",
];

/// Where readers only copy: the lock for that, the default and what others have.
const COPIES: &[&str] =
    &["seqlock", "bravo-2d-shfl-rw", "shfl-rw", "pf-q", "shfl", "parking_lot-rw", "glibc-rw"];

impl Plan {
    /// What these options ask for.
    pub fn new(common: &Common, limits: &Limits) -> Result<Self> {
        let workload = workload(common.workload.as_deref().unwrap_or_default())?;
        common.check_files()?;
        let mut locks = locks(&workload, &common.locks, limits)?;
        let against = match &common.against {
            Some(name) => Some(among(
                &mut locks,
                lock(&workload, name, &fitting(&workload, limits.candidates), limits)?,
            )),
            None => None,
        };
        Ok(Plan {
            locks,
            against,
            threads: thread_counts(&workload, common.threads.as_deref(), limits)?,
            settings: settings(&workload, &common.set)?,
            runs: common.runs.unwrap_or(limits.runs),
            seed: common.seed,
            workload,
        })
    }

    /// Whether a lock's memory is to be on another NUMA node.
    pub fn is_far(&self) -> bool {
        let far =
            |settings: &Settings| settings.iter().any(|(name, text, _)| (name, text) == ("home", "remote"));
        self.settings.iter().any(far)
    }

    /// How many measurements that is.
    pub fn measurements(&self) -> usize {
        self.locks.len() * self.threads.len() * self.settings.len() * self.runs as usize
    }
}

/// Where `lock` is among `locks`, at the end if it was not there.
fn among(locks: &mut Vec<Candidate>, lock: Candidate) -> usize {
    locks.iter().position(|other| *other == lock).unwrap_or_else(|| {
        locks.push(lock);
        locks.len() - 1
    })
}

/// The workload called `name`.
pub fn workload(name: &str) -> Result<Info> {
    registry::find(name).ok_or_else(|| {
        let all: Vec<_> = registry::all().iter().map(|info| info.name).chain([HARM]).collect();
        Failure::usage(format!(
            "there is no workload called {name:?}{}; there are: {}",
            names::did_you_mean(name, &all),
            all.join(", ")
        ))
    })
}

/// The locks among `candidates` that are for the workload.
pub fn fitting(workload: &Info, candidates: &[Candidate]) -> Vec<Candidate> {
    candidates.iter().filter(|candidate| workload.locks.includes(candidate)).copied().collect()
}

fn locks(workload: &Info, wanted: &[String], limits: &Limits) -> Result<Vec<Candidate>> {
    let fitting = fitting(workload, limits.candidates);
    let mut locks: Vec<Candidate> = Vec::new();
    let mut add = |lock: Candidate| {
        if !locks.contains(&lock) {
            locks.push(lock);
        }
    };
    if wanted.is_empty() {
        let handful = match workload.locks {
            Locks::Table => TABLES,
            Locks::Copies => COPIES,
            _ => limits.handful,
        };
        let handful = handful.iter().filter_map(|name| fitting.iter().find(|lock| lock.name == *name));
        handful.copied().for_each(&mut add);
    }
    for name in wanted.iter().map(|name| name.trim()) {
        if name == "all" {
            fitting.iter().filter(|lock| lock.origin != Origin::Yardstick).copied().for_each(&mut add);
        } else {
            add(lock(workload, name, &fitting, limits)?);
        }
    }
    Ok(locks)
}

/// The one of `fitting` that is called `name`. Libraries have both kinds under one name: what they call a lock here is what
/// the workload needs.
pub fn named(name: &str, fitting: &[Candidate]) -> Option<Candidate> {
    let with_suffix = format!("{name}-rw");
    [name, &with_suffix].iter().find_map(|name| fitting.iter().find(|lock| lock.name == *name)).copied()
}

fn lock(workload: &Info, name: &str, fitting: &[Candidate], limits: &Limits) -> Result<Candidate> {
    if let Some(lock) = named(name, fitting) {
        return Ok(lock);
    }
    let names: Vec<_> = fitting.iter().map(|lock| lock.name).collect();
    let why = match limits.candidates.iter().find(|lock| lock.name == name) {
        Some(lock) => {
            let what = match lock.kind {
                _ if lock.origin != Origin::Latchwork => "not of this library",
                Kind::Mutex => "a mutex",
                Kind::RwLock => "a reader-writer lock",
                Kind::SeqLock => "a sequence lock",
                Kind::Strategy => "no lock",
            };
            format!("{name} is {what}, and {} is for {}", workload.name, workload.locks.plural())
        }
        None => format!(
            "there is no lock called {name:?} on {}{}",
            limits.name,
            names::did_you_mean(name, &names)
        ),
    };
    Err(Failure::usage(format!("{why}; --locks can be: {}", names.join(", "))))
}

fn thread_counts(workload: &Info, wanted: Option<&str>, limits: &Limits) -> Result<Vec<usize>> {
    let Some(text) = wanted else {
        let cpus = limits.cpus;
        let mut counts = match workload.threads {
            Threads::UpToCpus => spread(1, cpus.max(4), true),
            Threads::PerCpu(factors) => factors.iter().map(|factor| factor * cpus).collect(),
            Threads::Exactly(count) => vec![count],
            Threads::Each(counts) => counts.to_vec(),
        };
        counts.retain(|count| (workload.all_threads)(*count) <= limits.most_threads);
        return Ok(counts);
    };
    let mut counts = Vec::new();
    for part in text.split(',') {
        counts.extend(range(part.trim()).map_err(|why| Failure::usage(format!("--threads {text}: {why}")))?);
    }
    counts.sort_unstable();
    counts.dedup();
    let most = limits.most_threads;
    let too_many = counts.iter().map(|count| (*count, (workload.all_threads)(*count)));
    if let Some((count, all)) = too_many.into_iter().find(|(_, all)| *all > most) {
        let with = match all {
            all if all == count => format!("{count} threads are"),
            all => format!("{count} threads, with which {} has {all}, are", workload.name),
        };
        return Err(Failure::usage(format!(
            "--threads {text}: {with} too many for {} ({} CPUs): at most {most}",
            limits.name, limits.cpus
        )));
    }
    Ok(counts)
}

/// Reads `8`, `1..72` or `1..72:8`.
pub fn range(text: &str) -> std::result::Result<Vec<usize>, String> {
    let number = |text: &str| match text.trim().parse::<usize>() {
        Ok(0) => Err("at least one thread is needed".to_owned()),
        Ok(number) => Ok(number),
        Err(_) => Err(format!("{text:?} is not a number of threads, such as 4, 1,2,4 or 1..72")),
    };
    let Some((first, rest)) = text.split_once("..") else {
        return Ok(vec![number(text)?]);
    };
    let (last, step) = match rest.split_once(':') {
        Some((last, step)) => (last, Some(number(step)?)),
        None => (rest, None),
    };
    let (first, last) = (number(first)?, number(last)?);
    if first > last {
        return Err(format!("{first} is more than {last}"));
    }
    // Longer lists are refused for their last number anyway.
    let last = last.min(1 << 20);
    Ok(match step {
        Some(step) => (first..=last).step_by(step).collect(),
        None => spread(first, last, false),
    })
}

/// From `first` to `last` by powers of two, and what is half-way between them unless `coarse`.
fn spread(first: usize, last: usize, coarse: bool) -> Vec<usize> {
    let mut counts = vec![first, last];
    let mut power = 1;
    while power <= last {
        counts.push(power);
        if power > 1 && !coarse {
            counts.push(power + power / 2);
        }
        power *= 2;
    }
    counts.retain(|count| (first..=last).contains(count));
    counts.sort_unstable();
    counts.dedup();
    counts
}

/// All combinations of the values that were given.
fn settings(workload: &Info, wanted: &[String]) -> Result<Vec<Settings>> {
    let fail = |why: String| Failure::usage(format!("--set {why}"));
    let mut all = vec![Settings::new(workload.parameters)];
    let mut seen: Vec<&str> = Vec::new();
    for text in wanted {
        let (name, values) =
            text.split_once('=').ok_or_else(|| fail(format!("{text}: it takes NAME=VALUE")))?;
        let parameters = workload.parameters;
        let Some(parameter) = parameters.iter().find(|parameter| parameter.name == name) else {
            let names: Vec<_> = parameters.iter().map(|parameter| parameter.name).collect();
            let there = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            let hint = names::did_you_mean(name, &names);
            return Err(fail(format!(
                "{text}: {} has no parameter {name:?}{hint}; there are: {there}",
                workload.name
            )));
        };
        if seen.contains(&parameter.name) {
            return Err(fail(format!("{text}: {name} is set twice; give its values together: {name}=A,B")));
        }
        seen.push(parameter.name);
        let mut more = Vec::new();
        for one in &all {
            for value in values.split(',') {
                let mut with = one.clone();
                with.set(parameter, value.trim()).map_err(fail)?;
                more.push(with);
            }
        }
        all = more;
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thread_lists_are_read_or_refused() {
        assert_eq!(range("4").unwrap(), [4]);
        assert_eq!(range("1..72").unwrap(), [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 72]);
        assert_eq!(range("8..32:8").unwrap(), [8, 16, 24, 32]);
        assert_eq!(range("5..7").unwrap(), [5, 6, 7]);
        for bad in ["0", "x", "", "4..2", "1..", "..4", "1..8:0", "-3", "1e9"] {
            assert!(range(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn default_thread_counts_are_never_too_many() {
        let limits =
            Limits { candidates: &[], handful: &[], cpus: 192, most_threads: 1000, name: "", runs: 1 };
        for info in registry::all() {
            let counts = thread_counts(&info, None, &limits).unwrap();
            assert!(!counts.is_empty() && counts.iter().all(|count| *count <= 1000), "{}", info.name);
        }
    }

    #[test]
    fn several_values_make_all_combinations() {
        let info = registry::find("rwbench").unwrap();
        let all = settings(&info, &["writes=9/10,1/100".into(), "hold=1,2,3".into()]).unwrap();
        assert_eq!(all.len(), 6);
        assert_eq!(all[5].number("writes"), 0.01);
        assert_eq!(all[5].count("hold"), 3);
        for bad in ["writes", "write=1", "writes=2", "hold=x", "writes=0.1,"] {
            let error = settings(&info, &[bad.into()]).unwrap_err();
            assert_eq!(error.status, 2);
            assert!(!error.message.contains('\n'), "{}", error.message);
        }
        assert!(settings(&info, &["write=1".into()]).unwrap_err().message.contains("did you mean writes?"));
        assert!(settings(&info, &["hold=1".into(), "hold=2".into()]).is_err());
    }
}
