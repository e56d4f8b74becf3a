//! What a workload is, and its parameters.

use crate::candidate::{Candidate, Kind, Origin};
use crate::lock::Lock;
use crate::measure::Outcome;
use crate::stage::Stage;
use std::fmt;
use std::ops::RangeInclusive;

/// A workload, with its parameters set.
pub trait Workload: Sized + Sync {
    /// Its description.
    const INFO: Info;

    /// With these parameters.
    fn new(settings: &Settings) -> Self;

    /// Runs it once, and checks at the end that the lock kept its data right.
    fn run<S: Stage, L: Lock<Machine = S::Machine>>(&self, stage: &S, threads: usize) -> Outcome;
}

/// What the registry, `--list` and the docs say about a workload.
#[derive(Copy, Clone, Debug)]
pub struct Info {
    /// The name that a user types.
    pub name: &'static str,
    /// One line: what its threads do.
    pub summary: &'static str,
    /// Paper and section.
    pub source: &'static str,
    /// What comes out when locks differ.
    pub shows: &'static str,
    /// What one operation is.
    pub operation: &'static str,
    /// Which locks it is for.
    pub locks: Locks,
    /// What can be set.
    pub parameters: &'static [Parameter],
    /// How many threads unless the user says.
    pub threads: Threads,
    /// How many threads run in all if so many are asked for: some workloads have others beside those that are counted.
    pub all_threads: fn(usize) -> usize,
    /// Whether the paper's figure has a logarithmic axis of threads.
    pub log_threads: bool,
    /// Microseconds of simulated time that show it.
    pub simulated_us: u64,
}

/// Which locks a workload is for.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Locks {
    /// Mutexes.
    Mutex,
    /// Reader-writer locks.
    RwLock,
    /// Either.
    Both,
    /// Either, and sequence locks: their readers copy.
    Copies,
    /// Ways to synchronize a table: strategies, a reader-writer lock for all of it, a mutex in each bucket.
    Table,
}

impl Locks {
    /// Whether this lock or strategy is among them.
    pub fn includes(self, candidate: &Candidate) -> bool {
        match (self, candidate.kind) {
            (Locks::Table, Kind::Strategy) => true,
            (Locks::Table, kind) => kind != Kind::SeqLock && candidate.origin == Origin::Latchwork,
            (_, Kind::Strategy) => false,
            (Locks::Copies, _) => true,
            (_, Kind::SeqLock) => false,
            (locks, kind) => locks.allows(kind == Kind::RwLock),
        }
    }

    /// What they are called.
    pub fn plural(self) -> &'static str {
        match self {
            Locks::Mutex => "mutexes",
            Locks::RwLock => "reader-writer locks",
            Locks::Both => "locks that readers hold",
            Locks::Copies => "locks",
            Locks::Table => "this library's locks, and strategies",
        }
    }

    /// Whether a lock that readers hold is among them, one that lets them in together or one that does not.
    pub const fn allows(self, shared: bool) -> bool {
        match self {
            Locks::Mutex => !shared,
            Locks::RwLock => shared,
            Locks::Both => true,
            Locks::Copies | Locks::Table => false,
        }
    }
}

impl fmt::Display for Locks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Locks::Mutex => "mutex",
            Locks::RwLock => "rwlock",
            Locks::Both => "both",
            Locks::Copies => "all",
            Locks::Table => "table",
        })
    }
}

/// How many threads a workload has unless the user says.
#[derive(Copy, Clone, Debug)]
pub enum Threads {
    /// From one to the number of CPUs.
    UpToCpus,
    /// So many for each CPU.
    PerCpu(&'static [usize]),
    /// So many.
    Exactly(usize),
    /// Each of these counts.
    Each(&'static [usize]),
}

/// Something that can be set with `--set NAME=VALUE`.
#[derive(Copy, Clone, Debug)]
pub struct Parameter {
    /// Its name.
    pub name: &'static str,
    /// Its value where none is set.
    pub default: &'static str,
    /// What it can be.
    pub values: Values,
    /// One line.
    pub help: &'static str,
}

impl Parameter {
    /// A time.
    pub const fn time(name: &'static str, default: &'static str, help: &'static str) -> Self {
        Parameter { name, default, values: Values::Time, help }
    }

    /// A number from 0 to 1.
    pub const fn fraction(name: &'static str, default: &'static str, help: &'static str) -> Self {
        Parameter { name, default, values: Values::Fraction, help }
    }

    /// A whole number of this range.
    pub const fn count(
        name: &'static str,
        default: &'static str,
        range: RangeInclusive<u64>,
        help: &'static str,
    ) -> Self {
        Parameter { name, default, values: Values::Count(*range.start(), *range.end()), help }
    }

    /// One of these words.
    pub const fn word(
        name: &'static str,
        default: &'static str,
        words: &'static [&'static str],
        help: &'static str,
    ) -> Self {
        Parameter { name, default, values: Values::Word(words), help }
    }
}

/// What a parameter can be.
#[derive(Copy, Clone, Debug)]
pub enum Values {
    /// 0 to 1, also as `1/100` or `1%`.
    Fraction,
    /// A whole number within bounds.
    Count(u64, u64),
    /// A time: `50ns`, `5us`, `2ms`, up to a second.
    Time,
    /// One of these words.
    Word(&'static [&'static str]),
}

impl fmt::Display for Values {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Values::Fraction => f.write_str("a fraction, such as 0.01, 1/100 or 1%"),
            Values::Count(least, most) => write!(f, "a whole number from {least} to {most}"),
            Values::Time => f.write_str("a time up to a second, such as 50ns, 5us or 2ms"),
            Values::Word(words) => f.write_str(&words.join(" or ")),
        }
    }
}

impl Values {
    /// Reads a value; words become their position.
    fn read(&self, text: &str) -> Option<f64> {
        let number = |text: &str| text.trim().parse::<f64>().ok().filter(|number| number.is_finite());
        match self {
            Values::Fraction => {
                let value = if let Some((above, below)) = text.split_once('/') {
                    number(above)? / number(below)?
                } else if let Some(percent) = text.strip_suffix('%') {
                    number(percent)? / 100.0
                } else {
                    number(text)?
                };
                (0.0..=1.0).contains(&value).then_some(value)
            }
            Values::Count(least, most) => {
                let value: u64 = text.trim().parse().ok()?;
                // All bounds are far below the 53 bits that a float holds.
                (*least..=*most).contains(&value).then_some(value as f64)
            }
            Values::Time => {
                let (digits, scale) = [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)]
                    .into_iter()
                    .find_map(|(unit, scale)| Some((text.strip_suffix(unit)?, scale)))?;
                let value = number(digits)? * scale;
                (0.0..=1e9).contains(&value).then_some(value.round())
            }
            Values::Word(words) => words.iter().position(|word| *word == text).map(|at| at as f64),
        }
    }
}

/// A workload's parameters, each with a value.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    values: Vec<(&'static str, String, f64)>,
}

impl Settings {
    /// The defaults.
    pub fn new(parameters: &[Parameter]) -> Self {
        let value = |parameter: &Parameter| {
            let read = parameter.values.read(parameter.default).expect("defaults are valid");
            (parameter.name, parameter.default.to_owned(), read)
        };
        Settings { values: parameters.iter().map(value).collect() }
    }

    /// Sets one; says what it can be if that is not it.
    pub fn set(&mut self, parameter: &Parameter, text: &str) -> Result<(), String> {
        let read = parameter.values.read(text);
        let read = read.ok_or_else(|| format!("{}={text}: not {}", parameter.name, parameter.values))?;
        let entry = self.values.iter_mut().find(|(name, ..)| *name == parameter.name);
        *entry.expect("a parameter of this workload") = (parameter.name, text.to_owned(), read);
        Ok(())
    }

    /// Names and values as the user wrote them, with the number behind.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &str, f64)> {
        self.values.iter().map(|(name, text, value)| (*name, text.as_str(), *value))
    }

    /// The value of `name`, as a number: of a fraction, in nanoseconds, or a word's position.
    pub fn number(&self, name: &str) -> f64 {
        let found = self.iter().find(|(other, ..)| *other == name);
        found.expect("workloads ask only for their own parameters").2
    }

    /// The value of `name`, a count.
    pub fn count(&self, name: &str) -> usize {
        self.number(name) as usize
    }

    /// The value of `name`, a time in nanoseconds.
    pub fn ns(&self, name: &str) -> u64 {
        self.number(name) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_or_refused() {
        assert_eq!(Values::Fraction.read("1/100"), Some(0.01));
        assert_eq!(Values::Fraction.read("1%"), Some(0.01));
        assert_eq!(Values::Fraction.read("0.5"), Some(0.5));
        for bad in ["1.5", "1/0", "0/0", "-1", "x", ""] {
            assert_eq!(Values::Fraction.read(bad), None, "{bad}");
        }
        assert_eq!(Values::Count(1, 8).read("8"), Some(8.0));
        assert_eq!(Values::Count(1, 8).read("9"), None);
        assert_eq!(Values::Time.read("5us"), Some(5000.0));
        assert_eq!(Values::Time.read("1.5ms"), Some(1.5e6));
        for bad in ["5", "2s", "us", "-1ns"] {
            assert_eq!(Values::Time.read(bad), None, "{bad}");
        }
        assert_eq!(Values::Word(&["local", "remote"]).read("remote"), Some(1.0));
    }
}
