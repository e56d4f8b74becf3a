//! Why there is no result.

use std::fmt;

/// Why a simulation could not be run, or did not end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The input is wrong: an unknown machine, a broken profile, too many threads. One line.
    Usage(String),
    /// The operating system has not given what a simulation needs.
    Resources(String),
    /// No thread can ever go on. One entry for each thread that has not finished: what it waits for.
    Deadlock {
        /// Simulated nanoseconds until then.
        at_ns: u64,
        /// "thread 3 on CPU 5 spins on lock+8", ...
        waits: Vec<String>,
    },
    /// `Options::limit_ns` has passed.
    TimeLimit {
        /// That many nanoseconds.
        limit_ns: u64,
        /// What each thread was doing.
        waits: Vec<String>,
    },
    /// A body called [`fail`](crate::fail): a check of the workload's own did not hold.
    Failed {
        /// Simulated nanoseconds until then.
        at_ns: u64,
        /// What the body said.
        message: String,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |f: &mut fmt::Formatter<'_>, waits: &[String]| {
            const SHOWN: usize = 8;
            for (i, wait) in waits.iter().take(SHOWN).enumerate() {
                write!(f, "{}{wait}", if i == 0 { ": " } else { "; " })?;
            }
            match waits.len().checked_sub(SHOWN + 1) {
                Some(_) => write!(f, "; and {} more", waits.len() - SHOWN),
                None => Ok(()),
            }
        };
        match self {
            Error::Usage(message) | Error::Resources(message) => f.write_str(message),
            Error::Deadlock { at_ns, waits } => {
                write!(f, "deadlock after {at_ns} ns of simulated time")?;
                list(f, waits)
            }
            Error::TimeLimit { limit_ns, waits } => {
                write!(f, "not finished after {limit_ns} ns of simulated time")?;
                list(f, waits)
            }
            Error::Failed { at_ns, message } => write!(f, "{message} (after {at_ns} ns of simulated time)"),
        }
    }
}

impl std::error::Error for Error {}
