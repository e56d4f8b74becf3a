//! What is measured, and how: the options of `latchwork compare` after they were checked.

use super::candidates::Measure;
use super::hooks::Hooks;
use super::metric::Metric;
use super::server::Server;
use super::used::Used;
use super::verdict::Better;
use crate::run::Programs;
use latchwork_console::signals::Signals;
use std::ffi::OsString;
use std::fs::File;
use std::path::PathBuf;
use std::time::Duration;

/// What is run under each lock.
pub enum Subject {
    /// A program and its arguments, and a file for standard input.
    Program(Vec<OsString>, Option<File>),
    /// A server with a load generator beside it.
    Server(Server),
}

/// How long is measured.
#[derive(Copy, Clone)]
pub enum Length {
    /// So many rounds.
    Rounds(u32),
    /// As many rounds as fit.
    Time(Duration),
}

/// What is asked of each run.
pub struct Plan {
    pub subject: Subject,
    /// Whether the program is the built-in one.
    pub built_in: bool,
    pub metric: Option<Metric>,
    /// A latency that each run must report.
    pub p99: Option<Metric>,
    pub length: Length,
    /// Rounds before the measured ones.
    pub warmup: u32,
    /// Rounds that the same candidates have had in an earlier measuring: the order of the turns goes on from there.
    pub earlier: u32,
    pub timeout: Option<Duration>,
    /// Whether a run may exit with another status than 0.
    pub any_status: bool,
    pub settle: Duration,
    /// How long a server, or what a program left running, may take to end when it is asked to.
    pub stop_timeout: Duration,
    /// Whether to warn about noise after the measuring.
    pub warns: bool,
    pub hooks: Hooks,
    /// Which of the programs that are started get the locks.
    pub programs: Programs,
    /// Ctrl-C and the like, from the moment on at which the plan was made.
    pub signals: Signals,
    /// Whether the program's processes use the locks.
    pub used: Used,
    /// The preload library.
    pub library: PathBuf,
    /// The runtime of the sanitizer that the program is built with.
    pub sanitizer: Option<String>,
}

impl Plan {
    /// The measure that the verdicts are about.
    pub fn deciding(&self) -> Measure {
        Measure::deciding(self.metric.is_some())
    }

    /// Which direction of the deciding measure is good.
    pub fn better(&self) -> Better {
        self.metric.as_ref().map_or(Better::Lower, |metric| metric.better)
    }

    /// How people call a measure.
    pub fn name(&self, measure: Measure) -> &'static str {
        match measure {
            Measure::Metric if self.built_in => "operations/s",
            Measure::Metric => "metric",
            Measure::Wall => "wall time",
            Measure::Cpu => "CPU time",
            Measure::Memory => "peak memory",
            Measure::Switches => "switches",
        }
    }
}

impl Subject {
    /// What runs under the locks.
    pub fn command(&self) -> &[OsString] {
        match self {
            Self::Program(command, _) => command,
            Self::Server(server) => &server.command,
        }
    }
}
