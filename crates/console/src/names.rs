//! Names of locks. The commands check what the user typed against the registry before they start anything.

use crate::failure::{Failure, Result};
use latchwork::Semaphore;
use latchwork::locks::mutex::RawMutex;
use latchwork::locks::semaphore::Unit;
use latchwork::locks::seqlock::NOT_HELD;
use latchwork::machine::Native;
use latchwork::registry::{self, Entry, Kind, PRELOADED};

/// The name that leaves a kind of object to the C library, and the baseline of every comparison.
pub const GLIBC: &str = "glibc";

/// The mutex that the manual recommends, and its reader-writer lock.
///
/// Waiters of both locks sleep. `run` takes no spinning lock unless the user names it: a program with more threads than
/// the machine has CPUs can become many times slower under a spinning lock than under glibc's.
const RECOMMENDED: [&str; 2] = ["shfl", "bravo-2d-shfl-rw"];

/// A mutex and a reader-writer lock to run a program under.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// For `pthread_mutex_*`.
    pub mutex: String,
    /// For `pthread_rwlock_*`.
    pub rwlock: String,
}

impl Choice {
    /// Everything left to the C library.
    pub fn glibc() -> Self {
        Self { mutex: GLIBC.into(), rwlock: GLIBC.into() }
    }

    /// Whether nothing is replaced.
    pub fn is_glibc(&self) -> bool {
        *self == Self::glibc()
    }

    /// As a table shows it.
    pub fn label(&self) -> String {
        match (self.mutex.as_str(), self.rwlock.as_str()) {
            (GLIBC, GLIBC) => GLIBC.into(),
            (mutex, GLIBC) => mutex.into(),
            (GLIBC, rwlock) => rwlock.into(),
            (mutex, rwlock) => format!("{mutex} + {rwlock}"),
        }
    }

    /// Whether waiters of one of the locks spin until they have it.
    pub fn spins(&self) -> bool {
        let spins = |kind, name| find(kind, name).is_some_and(|entry| !entry.info.blocking);
        spins(Kind::Mutex, &self.mutex) || spins(Kind::RwLock, &self.rwlock)
    }

    /// As options of `latchwork run`.
    pub fn options(&self) -> String {
        let mut options = Vec::new();
        if self.mutex != GLIBC {
            options.push(format!("--mutex {}", self.mutex));
        }
        if self.rwlock != GLIBC {
            options.push(format!("--rwlock {}", self.rwlock));
        }
        options.join(" ")
    }
}

/// Every algorithm.
pub fn registered() -> Vec<Entry> {
    let mut entries = Vec::new();
    registry::for_each(|entry| entries.push(entry));
    entries
}

/// The semaphore, which the registry of locks does not have. A table shows it with a kind of its own.
pub fn semaphore() -> Entry {
    Entry { kind: Kind::Mutex, info: Unit::<Native>::INFO, bytes: size_of::<Semaphore>() }
}

/// Every lock that a program can run under: the registered ones, and those that only the preloaded library has.
pub fn runnable() -> Vec<Entry> {
    registered().into_iter().chain(PRELOADED).collect()
}

/// The lock called `name`, if a program can run under one of that kind.
pub fn find(kind: Kind, name: &str) -> Option<Entry> {
    runnable().into_iter().find(|entry| entry.kind == kind && entry.info.name == name)
}

/// The names of one kind that a program can run under, in the order of the list, without `glibc`.
pub fn of_kind(kind: Kind) -> Vec<&'static str> {
    runnable().into_iter().filter(|entry| entry.kind == kind).map(|entry| entry.info.name).collect()
}

/// What `latchwork run` takes when the user names no lock.
pub fn default_choice() -> Choice {
    let [mutex, rwlock] = RECOMMENDED.map(str::to_owned);
    Choice { mutex, rwlock }
}

/// `name`, if there is such a lock; otherwise an error that helps to find the right one.
pub fn check(kind: Kind, name: &str) -> Result<String> {
    if name == GLIBC || find(kind, name).is_some() {
        return Ok(name.to_owned());
    }
    let [mutex, rwlock] = RECOMMENDED;
    let (what, option, first, other, other_option) = match kind {
        Kind::Mutex => ("mutex", "--mutex", mutex, Kind::RwLock, "--rwlock"),
        _ => ("reader-writer lock", "--rwlock", rwlock, Kind::Mutex, "--mutex"),
    };
    if registry::find(Kind::SeqLock, name).is_some() {
        return Err(Failure::usage(format!("{name} cannot be {option}: {NOT_HELD}; try {option} {first}")));
    }
    let mut names = of_kind(kind);
    names.push(GLIBC);
    let hint = if find(other, name).is_some() {
        format!("{name} belongs to {other_option}: did you mean {other_option} {name}?\n")
    } else {
        nearest(name, &names).map(|near| format!("did you mean {option} {near}?\n")).unwrap_or_default()
    };
    Err(Failure::usage(format!(
        "there is no {what} called {name:?}\n{hint}{option} can be: {}",
        names.join(", ")
    )))
}

fn nearest<'a>(name: &str, names: &[&'a str]) -> Option<&'a str> {
    let score = |candidate: &str| strsim::jaro_winkler(&name.to_lowercase(), candidate);
    let best = names.iter().copied().max_by(|a, b| score(a).total_cmp(&score(b)))?;
    (score(best) > 0.75).then_some(best)
}

/// `: did you mean NAME?`, or nothing if no name is near.
pub fn did_you_mean(name: &str, names: &[&str]) -> String {
    nearest(name, names).map(|near| format!(": did you mean {near}?")).unwrap_or_default()
}

/// Names from a comma-separated option; `all` stands for every registered one. Doubled names count
/// once.
pub fn list(kind: Kind, names: &[String]) -> Result<Vec<String>> {
    let mut checked: Vec<String> = Vec::new();
    for name in names.iter().map(|name| name.trim()) {
        let more = match name {
            "all" => of_kind(kind).into_iter().map(str::to_owned).collect(),
            name => vec![check(kind, name)?],
        };
        for name in more {
            if !checked.contains(&name) {
                checked.push(name);
            }
        }
    }
    Ok(checked)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_names_pass_and_others_are_explained() {
        assert_eq!(check(Kind::Mutex, "mcs").unwrap(), "mcs");
        assert_eq!(check(Kind::RwLock, GLIBC).unwrap(), GLIBC);
        let error = check(Kind::Mutex, "tickte").unwrap_err();
        assert_eq!(error.status, 2);
        assert!(error.message.contains("did you mean --mutex ticket?"), "{}", error.message);
        for name in of_kind(Kind::Mutex) {
            assert!(error.message.contains(name));
        }
        assert!(!check(Kind::Mutex, "zzzzz").unwrap_err().message.contains("did you mean"));
        let error = check(Kind::RwLock, "mcs").unwrap_err();
        assert!(error.message.contains("did you mean --mutex mcs?"), "{}", error.message);
        for (kind, instead) in [(Kind::Mutex, "--mutex shfl"), (Kind::RwLock, "--rwlock bravo-2d-shfl-rw")] {
            let error = check(kind, "seqlock").unwrap_err();
            assert_eq!((error.status, error.message.lines().count()), (2, 1));
            assert!(error.message.contains("cannot hold it"), "{}", error.message);
            assert!(error.message.ends_with(instead), "{}", error.message);
            assert!(check(kind, instead.split(' ').next_back().unwrap()).is_ok());
        }
    }

    #[test]
    fn lists_expand_all_and_drop_doubles() {
        let all = of_kind(Kind::Mutex);
        assert_eq!(list(Kind::Mutex, &["mcs".into(), "all".into()]).unwrap().len(), all.len());
        assert_eq!(list(Kind::Mutex, &[" mcs".into(), "mcs ".into()]).unwrap(), ["mcs"]);
        assert!(list(Kind::Mutex, &["mcs".into(), "nope".into()]).is_err());
    }

    #[test]
    fn nothing_that_spins_is_taken_unasked() {
        let Choice { mutex, rwlock } = default_choice();
        for (kind, name) in [(Kind::Mutex, mutex), (Kind::RwLock, rwlock)] {
            assert!(find(kind, &name).unwrap().info.blocking, "{name}");
        }
    }

    #[test]
    fn labels_leave_out_what_is_not_replaced() {
        let choice = |mutex: &str, rwlock: &str| Choice { mutex: mutex.into(), rwlock: rwlock.into() };
        assert_eq!(Choice::glibc().label(), "glibc");
        assert_eq!(choice("mcs", GLIBC).label(), "mcs");
        assert_eq!(choice(GLIBC, "pf-q").label(), "pf-q");
        assert_eq!(choice("mcs", "pf-q").label(), "mcs + pf-q");
        assert_eq!(choice("mcs", "pf-q").options(), "--mutex mcs --rwlock pf-q");
    }
}
