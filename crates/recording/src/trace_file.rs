//! The file of `latchwork record`, which `latchwork predict` replays.
//!
//! ```text
//! latchwork trace 2
//! {"command": [...], "seconds": ..., "classes": [...], "objects": [...], "threads": [...], ...}
//! (16 bytes for each event, thread after thread)
//! ```
//!
//! The second line is an [`About`] in JSON: `sed -n 2p trace.lw | jq` shows it. The events follow in the order of its threads. An
//! event is four 32-bit numbers, the lowest byte first: operation and object (as in [`Event::what`](crate::trace::Event::what)),
//! and three durations in nanoseconds ([`pack`]ed): [`Step::cpu`], [`Step::off`] and
//! [`Step::wait`].
//!
//! Version 1 had no barriers, no creation of threads and no joins. Otherwise it is the same, and is read, too.
//!
//! Times are as the recorder saw them: its own cost is in them. [`About::empty_hold_ns`] and [`About::empty_gap_ns`] say what
//! to subtract.

use crate::trace::{NO_OBJECT, OBJECT_BITS, op, pack, unpack};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;

/// The first line.
const TITLE: &str = "latchwork trace 2\n";
/// That of the version before, which has a part of the operations.
const TITLE_1: &str = "latchwork trace 1\n";
/// [`Step::object`] of a [`op::CREATE`] or [`op::JOIN`] whose thread is not in the trace, and of a join that ended at its deadline.
pub const NO_THREAD: u32 = NO_OBJECT;
/// The longest second line that is read, in bytes.
const LONGEST: u64 = 1 << 30;
/// The events of a thread lie one after the other in the run, so that together they take no longer than the run. They may take so
/// many times as long, and [`ROUNDING`] more, before the file is called damaged.
const TIMES: f64 = 2.0;
/// See [`TIMES`]. In nanoseconds.
const ROUNDING: f64 = 1e9;

/// What is known of the run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct About {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// How long the recorded part of the run was, in seconds, with what the recorder took.
    pub seconds: f64,
    /// CPUs that the program might use.
    pub cpus: usize,
    /// The processor, as the kernel names it.
    pub processor: String,
    /// The lock behind mutexes: its name in latchwork's registry, or `glibc`.
    pub mutex: String,
    /// The lock behind rwlocks.
    pub rwlock: String,
    /// What the recorder shows from an acquisition to the release if the program does nothing in between.
    pub empty_hold_ns: f64,
    /// The same from the end of a release to the next acquisition.
    pub empty_gap_ns: f64,
    /// What it shows of a release that wakes no other thread.
    #[serde(default)]
    pub empty_release_ns: f64,
    /// Locks, condition variables, semaphores and barriers, by the place of their first use.
    pub classes: Vec<Class>,
    /// The class of each object.
    pub objects: Vec<usize>,
    /// Of each object, how many permits it had when the recording began: see [`edges`](crate::edges). Empty: none of them.
    #[serde(default)]
    pub permits: Vec<u32>,
    /// Of each object, how many threads a barrier takes; 0: it is none, or that is not known. Empty: there is no barrier.
    #[serde(default)]
    pub parties: Vec<u32>,
    /// Threads, in the order of their events.
    pub threads: Vec<Thread>,
    /// Calls of threads or for objects that there was no room for.
    #[serde(default)]
    pub unknown: u64,
    /// Other processes of the run, which are not in this file.
    #[serde(default)]
    pub other_processes: usize,
}

/// Objects that were first used at the same place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Class {
    /// As the profile names it.
    pub name: String,
    /// `mutex`, `rwlock`, `spin`, `condvar`, `semaphore` or `barrier`.
    pub kind: String,
    /// Whether it is one object in the static data of a module.
    #[serde(default)]
    pub is_static: bool,
}

/// A thread.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thread {
    /// Its number.
    pub tid: u32,
    /// The outermost function of the program on its stack: threads of one role do the same.
    pub role: String,
    /// When its first event began, since the start of the recording.
    pub start_ns: u64,
    /// How many events it has in this file.
    pub events: u64,
    /// Events that there was no room for.
    pub dropped: u64,
    /// How long it could run and had no processor, between its events.
    pub preempted_ns: u64,
}

/// An event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// One of [`op`], but never [`op::CLOCK`].
    pub op: u32,
    /// An index into [`About::objects`]; 0 for [`op::EXIT`]. For [`op::CREATE`] and [`op::JOIN`] an index into [`About::threads`], or
    /// [`NO_THREAD`].
    pub object: u32,
    /// Nanoseconds of CPU time since the thread's event before.
    pub cpu: u64,
    /// Nanoseconds since the event before in which the thread slept outside of the calls that are recorded.
    pub off: u64,
    /// Nanoseconds that the call waited. Of a release, a signal and a creation: how long the call took.
    pub wait: u64,
}

impl Step {
    /// Whether [`object`](Self::object) is one of [`About::objects`].
    pub fn has_object(&self) -> bool {
        !matches!(self.op, op::EXIT | op::CREATE | op::JOIN)
    }
}

/// A file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    /// What is known of the run.
    pub about: About,
    /// The events of each thread.
    pub steps: Vec<Vec<Step>>,
}

/// Why a file cannot be read.
#[derive(Debug)]
pub enum Error {
    /// The file cannot be opened or read.
    Io(std::io::Error),
    /// The file is no trace.
    NotATrace,
    /// The file is of another version.
    Version(String),
    /// The file is damaged. Says how.
    Damaged(String),
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(out),
            Self::NotATrace => out.write_str("is no trace; `latchwork record -o FILE -- PROG` makes one"),
            Self::Version(title) => {
                write!(out, "begins with \"{title}\", and this is for \"{}\"; record again", TITLE.trim_end())
            }
            Self::Damaged(how) => write!(out, "is damaged: {how}; record again"),
        }
    }
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        Self::Io(error)
    }
}

impl Trace {
    /// Writes what the file has. It does so in small parts: `out` should have a buffer.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub fn write_to(&self, mut out: impl Write) -> std::io::Result<()> {
        out.write_all(TITLE.as_bytes())?;
        serde_json::to_writer(&mut out, &self.about)?;
        out.write_all(b"\n")?;
        for step in self.steps.iter().flatten() {
            let what = step.op << OBJECT_BITS | step.object;
            for word in [what, pack(step.cpu), pack(step.off), pack(step.wait)] {
                out.write_all(&word.to_le_bytes())?;
            }
        }
        Ok(())
    }

    /// Reads a file, and checks it: every operation and every index of the result is valid.
    ///
    /// # Errors
    ///
    /// See [`Error`].
    pub fn read(path: &Path) -> Result<Self, Error> {
        Self::read_from(BufReader::new(File::open(path)?))
    }

    /// As [`read`](Self::read).
    ///
    /// # Errors
    ///
    /// See [`Error`].
    pub fn read_from(mut input: impl BufRead) -> Result<Self, Error> {
        let mut title = Vec::new();
        input.by_ref().take(64).read_until(b'\n', &mut title)?;
        if ![TITLE, TITLE_1].iter().any(|known| title == known.as_bytes()) {
            let title = String::from_utf8_lossy(&title);
            let is_ours = title.starts_with("latchwork trace ");
            return Err(if is_ours { Error::Version(title.trim_end().into()) } else { Error::NotATrace });
        }
        let mut line = Vec::new();
        input.by_ref().take(LONGEST).read_until(b'\n', &mut line)?;
        let about: About = serde_json::from_slice(&line)
            .map_err(|error| Error::Damaged(format!("its second line: {error}")))?;
        about.check()?;
        let mut steps = Vec::with_capacity(about.threads.len());
        for thread in &about.threads {
            // What a damaged file promises is not allocated before it is there.
            let mut of_thread = Vec::with_capacity(thread.events.min(1 << 20) as usize);
            let mut nanos = 0_u64;
            for _ in 0..thread.events {
                let step = about.step(&mut input)?;
                nanos = nanos.saturating_add(step.cpu + step.off + step.wait);
                of_thread.push(step);
            }
            // A changed bit may make a call of nanoseconds one of half an hour, which would be simulated.
            if nanos as f64 > TIMES * about.seconds * 1e9 + ROUNDING {
                return Err(Error::Damaged("the events of a thread take longer than the run".into()));
            }
            steps.push(of_thread);
        }
        if input.read(&mut [0])? != 0 {
            return Err(Error::Damaged("there is more in it than its threads' events".into()));
        }
        Ok(Trace { about, steps })
    }
}

impl About {
    fn check(&self) -> Result<(), Error> {
        let damaged = |how: &str| Err(Error::Damaged(how.into()));
        if self.objects.iter().any(|class| *class >= self.classes.len()) {
            return damaged("an object has a class that is not there");
        }
        if !self.permits.is_empty() && self.permits.len() != self.objects.len() {
            return damaged("it does not have the permits of each object");
        }
        if !self.parties.is_empty() && self.parties.len() != self.objects.len() {
            return damaged("it does not have the parties of each object");
        }
        let sound = |number: f64| number.is_finite() && number >= 0.0;
        let costs = [self.empty_gap_ns, self.empty_hold_ns, self.empty_release_ns];
        if !sound(self.seconds) || !costs.into_iter().all(sound) || self.cpus == 0 {
            return damaged("a number of its second line is impossible");
        }
        Ok(())
    }

    fn step(&self, input: &mut impl Read) -> Result<Step, Error> {
        let mut bytes = [0; 16];
        input.read_exact(&mut bytes).map_err(|error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => Error::Damaged("it ends within the events".into()),
            _ => Error::Io(error),
        })?;
        let word =
            |index: usize| u32::from_le_bytes(bytes[4 * index..4 * index + 4].try_into().expect("4 bytes"));
        let (op, object) = (word(0) >> OBJECT_BITS, word(0) & ((1 << OBJECT_BITS) - 1));
        if !matches!(op, op::ACQUIRE..=op::WAKE_ALL | op::EXIT | op::TRY | op::CREATE | op::JOIN) {
            return Err(Error::Damaged(format!("operation {op}")));
        }
        let step = Step { op, object, cpu: unpack(word(1)), off: unpack(word(2)), wait: unpack(word(3)) };
        if step.has_object() && object as usize >= self.objects.len() {
            return Err(Error::Damaged(format!("an event of object {object}, which is not there")));
        }
        let of_thread = matches!(op, op::CREATE | op::JOIN) && object != NO_THREAD;
        if of_thread && object as usize >= self.threads.len() {
            return Err(Error::Damaged(format!("an event of thread {object}, which is not there")));
        }
        Ok(step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Trace {
        let thread = |events| Thread {
            tid: 7,
            role: "worker".into(),
            start_ns: 5,
            events,
            dropped: 1,
            preempted_ns: 0,
        };
        Trace {
            about: About {
                command: vec!["./prog".into()],
                seconds: 2000.0,
                cpus: 2,
                mutex: "glibc".into(),
                rwlock: "glibc".into(),
                empty_hold_ns: 20.5,
                classes: vec![Class { name: "lock".into(), kind: "mutex".into(), is_static: true }],
                objects: vec![0],
                parties: vec![0],
                threads: vec![thread(2), thread(3)],
                ..About::default()
            },
            steps: vec![
                vec![
                    Step { op: op::ACQUIRE, object: 0, cpu: 100, off: 3, wait: 1 << 40 },
                    Step { op: op::RELEASE, object: 0, cpu: 50, ..Step::default() },
                ],
                vec![
                    Step { op: op::CREATE, object: 0, cpu: 7, off: 0, wait: 9 },
                    Step { op: op::JOIN, object: NO_THREAD, wait: 5, ..Step::default() },
                    Step { op: op::EXIT, ..Step::default() },
                ],
            ],
        }
    }

    fn bytes() -> Vec<u8> {
        let mut bytes = Vec::new();
        sample().write_to(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn what_is_written_is_read() {
        assert_eq!(Trace::read_from(&bytes()[..]).unwrap(), sample());
    }

    #[test]
    fn events_that_take_longer_than_the_run_are_refused() {
        let mut trace = sample();
        // One of them takes 18 minutes.
        trace.about.seconds = 1.0;
        let mut bytes = Vec::new();
        trace.write_to(&mut bytes).unwrap();
        let message = Trace::read_from(&bytes[..]).unwrap_err().to_string();
        assert!(message.contains("longer than the run"), "{message}");
    }

    #[test]
    fn the_version_before_is_read() {
        let text = bytes();
        let old = [TITLE_1.as_bytes(), &text[TITLE.len()..]].concat();
        assert_eq!(Trace::read_from(&old[..]).unwrap(), sample());
    }

    /// Every prefix of a file, and every file with a byte changed, is read or refused, and never panics.
    #[test]
    fn damaged_files_are_refused() {
        let whole = bytes();
        for length in 0..whole.len() {
            assert!(Trace::read_from(&whole[..length]).is_err(), "{length} bytes");
        }
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 0x55;
            let _ = Trace::read_from(&changed[..]);
        }
        let longer: Vec<u8> = whole.iter().copied().chain([0]).collect();
        let message = |bytes: &[u8]| Trace::read_from(bytes).unwrap_err().to_string();
        assert!(message(&longer).contains("there is more in it"));
        assert!(message(b"latchwork trace 3\n").contains("record again"));
        let mut wrong = whole.clone();
        // The thread of the creation.
        let at = whole.len() - 3 * 16;
        wrong[at] = 2;
        assert!(message(&wrong).contains("thread 2, which is not there"));
        assert!(message(b"#!/bin/sh\n").contains("latchwork record"));
        assert!(message(&whole[..whole.len() - 1]).contains("ends within"));
    }
}
