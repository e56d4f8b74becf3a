//! `latchwork record`: writes down every lock call of a program, for `latchwork predict`.

use crate::profile::files::{self, Recordings};
use crate::profile::join;
use crate::profile::session::{self, Ended, Stdout};
use crate::profile::symbols::Frame;
use crate::program;
use crate::run::{Locks, Programs};
use crate::unseen::UNSEEN;
use clap::{Args, ValueHint};
use latchwork_console::failure::{Failure, Result};
use latchwork_console::names::Choice;
use latchwork_console::{ending, machine::Machine, output};
use latchwork_recording::edges;
use latchwork_recording::reader::Kind as ObjectKind;
use latchwork_recording::trace::{MOST_UNITS, UNIT, op};
use latchwork_recording::trace_file::{About, Class, NO_THREAD, Thread, Trace};
use latchwork_recording::trace_raw::{Raw, RawThread};
use std::ffi::OsString;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// Text below the options.
pub const HELP: &str = "\
The trace says, thread by thread, which lock each call acquired, how much CPU time passed before it, how long it waited, and
how long the lock was held; and waits for conditions, semaphores, barriers and the end of threads. `latchwork predict` replays
it on a simulated machine. The exit status is the program's.

The file has 16 bytes for each acquisition and 16 for each release. If a process makes more than --size MiB, what it does
after that is dropped and counted; record a part of a long run with --delay and --seconds. Of several processes, the file has
the one with the most events: choose with --only and --not.

Record with the threads and the load that you know, on an otherwise idle machine.

Examples:
  latchwork record -o trace.lw -- ./server --bench
  latchwork record -o trace.lw --delay 10 --seconds 5 -- ./server  five seconds, after ten
  latchwork predict trace.lw --machine 8x24 --threads 1..192       on a machine that you do not have

If the trace cannot be written when the program has ended, the recording is kept, and a message says where; with --read, this
command writes the trace of it.";

/// Options of `latchwork record`.
#[derive(Args)]
pub struct Options {
    /// The file to write
    #[arg(short, long, value_name = "FILE", default_value = "trace.lw", value_hint = ValueHint::FilePath)]
    output: PathBuf,
    /// Lock to use for pthread mutexes [default: glibc]
    #[arg(long, value_name = "NAME")]
    mutex: Option<String>,
    /// Lock to use for pthread reader-writer locks [default: glibc]
    #[arg(long, value_name = "NAME")]
    rwlock: Option<String>,
    #[command(flatten)]
    programs: Programs,
    /// Begin so many seconds after the start of each process
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value = "0", value_parser = seconds)]
    delay: u64,
    /// Record for so many seconds [default: to the end]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = seconds)]
    seconds: Option<u64>,
    /// Keep so many MiB of events of each process; 2G are 2048
    #[arg(long, value_name = "MIB", allow_negative_numbers = true, default_value_t = 512, value_parser = size)]
    size: u32,
    /// Write the trace of a recording that was kept because its trace could not be written; nothing is run
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, conflicts_with_all = ["command", "mutex", "rwlock", "only", "not", "delay", "seconds", "size"])]
    read: Option<PathBuf>,
    /// The program and its arguments
    #[arg(value_name = "PROG", trailing_var_arg = true, required_unless_present = "read", value_hint = ValueHint::CommandWithArguments)]
    command: Vec<OsString>,
}

/// A number of seconds, in milliseconds.
fn seconds(text: &str) -> std::result::Result<u64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.0..=1e6).contains(&seconds) => Ok((seconds * 1e3).round() as u64),
        _ => Err("a number of seconds from 0 to 1000000".into()),
    }
}

/// A size in MiB: `512`, `512M` or `2G`.
fn size(text: &str) -> std::result::Result<u32, String> {
    let (number, unit) = match (text.strip_suffix('G'), text.strip_suffix('M')) {
        (Some(number), _) => (number, 1024),
        (None, Some(number)) => (number, 1),
        (None, None) => (text, 1),
    };
    let size = number.parse::<u32>().ok().and_then(|number| number.checked_mul(unit));
    size.filter(|size| (1..=65536).contains(size))
        .ok_or("a number of MiB from 1 to 65536; M and G may stand behind it".into())
}

/// Runs the program and writes the trace. Returns the program's exit status.
pub fn record(options: &Options) -> Result<i32> {
    output::check_file("--output", &options.output)?;
    output::check_distinct([("--output", &*options.output)], program::named(&options.command))?;
    if options.seconds == Some(0) {
        return Err(Failure::usage("--seconds 0 would record nothing"));
    }
    if let Some(kept) = &options.read {
        ending::by_signals();
        let fail = |why: &dyn std::fmt::Display| Failure::new(format!("{}: {why}", kept.display()));
        fs::read_dir(kept).map_err(|error| fail(&error))?;
        let found = busiest(kept).map_err(|_| fail(&"there is no recording of `record` in it"))?;
        let reached = reached_size(&found.file);
        write(options, found, kept_command(kept), reached)?;
        return Ok(0);
    }
    let (mutex, rwlock) = (options.mutex.as_deref(), options.rwlock.as_deref());
    let locks = |_: &Path| Locks::named(mutex, rwlock, Choice::glibc());
    let mut environment =
        session::environment(&options.command, &options.programs, locks, session::NOT_RECORDED)?;
    let directory = Recordings::new(None)?;
    environment.push(("LATCHWORK_TRACE", directory.path().into()));
    let window = format!("{},{},{}", options.delay, options.seconds.unwrap_or(0), options.size);
    environment.push(("LATCHWORK_TRACE_WINDOW", window.into()));
    let Ended { status, left, .. } = session::run(&options.command, &environment, Stdout::Own)?;
    ending::by_signals();
    if !left.is_empty() {
        output::say(&format!("latchwork: warning: {}", session::background(&left, "record", "trace")));
    }
    let found = busiest(directory.path());
    let reached = found.as_ref().is_ok_and(|found| reached_size(&found.file));
    directory.check_room(found.as_ref().map_or(true, |found| found.dropped() > 0 && !reached))?;
    let found =
        found.map_err(|why| session::not_recorded(&options.command, status, &format!(", and {why}")))?;
    let command: Vec<_> = options.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    if let Err(failure) = write(options, found, command.clone(), reached) {
        // --read puts the words into its trace. If there is no room for them here, its trace has no command.
        let _ = fs::write(directory.path().join(COMMAND), command.join("\0"));
        return Err(directory.keep(failure, "record --read"));
    }
    Ok(status)
}

/// The file in a kept recording that has the words of the program's command.
const COMMAND: &str = "command";

fn kept_command(directory: &Path) -> Vec<String> {
    let words = fs::read_to_string(directory.join(COMMAND)).unwrap_or_default();
    words.split('\0').map(str::to_owned).collect()
}

/// Writes the trace of this process of the program, and says so.
fn write(options: &Options, found: Busiest, command: Vec<String>, reached: bool) -> Result<()> {
    let Busiest { raw, others, lost, .. } = found;
    let trace = convert(raw, command, others);
    output::write_with("--output", &options.output, |out| trace.write_to(out))?;
    output::say(&format!("latchwork: {}: {}", options.output.display(), summary(&trace, reached, lost)));
    Ok(())
}

/// The process with the most events.
struct Busiest {
    file: PathBuf,
    raw: Raw,
    /// How many other processes recorded any events.
    others: usize,
    /// How many forked processes could not make a file.
    lost: u64,
}

impl Busiest {
    /// Events that there was no room for.
    fn dropped(&self) -> u64 {
        self.raw.threads.iter().map(|thread| thread.dropped).sum::<u64>() + self.raw.unknown
    }
}

fn busiest(directory: &Path) -> std::result::Result<Busiest, String> {
    let files = files::regular(directory).map_err(|error| error.to_string())?;
    let is_begun = !files.is_empty();
    let (mut traces, mut with_events, mut lost) = (0, 0_usize, 0_u64);
    // One at a time: a trace is larger in memory than in its file.
    let mut busiest: Option<(PathBuf, Raw)> = None;
    for file in files {
        // A process that was killed while it made the file leaves one that is no trace.
        let Ok(raw) = Raw::read(&file) else { continue };
        traces += 1;
        lost = lost.saturating_add(raw.lost);
        if raw.events() == 0 {
            continue;
        }
        with_events += 1;
        let rank = |raw: &Raw| (raw.events(), std::cmp::Reverse(raw.pid));
        if busiest.as_ref().is_none_or(|(_, best)| rank(&raw) > rank(best)) {
            busiest = Some((file, raw));
        }
    }
    if traces == 0 && is_begun {
        return Err(format!("made no recording: {}", files::BEGUN));
    }
    let others = with_events.saturating_sub(1);
    let why = format!(
        "made no lock call that could be recorded, and that --only, --not, --delay and --seconds do not leave out. {UNSEEN}"
    );
    let rest = || if lost > 0 { format!(" Not recorded: {}", files::lost_text(lost)) } else { String::new() };
    busiest.map(|(file, raw)| Busiest { file, raw, others, lost }).ok_or_else(|| why + &rest())
}

/// Whether a raw trace has grown to its --size. The file has its full length from the start, and holes where nothing was
/// written; the events come last. A chunk that does not fit may leave room for a smaller one.
fn reached_size(file: &Path) -> bool {
    let Ok(file) = File::open(file) else { return false };
    let largest = u64::from(MOST_UNITS) * UNIT as u64;
    let end = file.metadata().map_or(0, |found| found.len().saturating_sub(largest));
    // SAFETY: a system call on an open file.
    unsafe { libc::lseek(file.as_raw_fd(), end.cast_signed(), libc::SEEK_DATA) >= 0 }
}

/// The trace of a process, with names in place of addresses.
fn convert(raw: Raw, command: Vec<String>, other_processes: usize) -> Trace {
    let names = join::names(&raw.named);
    let kind = |kind: ObjectKind| match kind {
        ObjectKind::Mutex => "mutex",
        ObjectKind::RwLock => "rwlock",
        ObjectKind::Spin => "spin",
        ObjectKind::Condvar => "condvar",
        ObjectKind::Semaphore => "semaphore",
        ObjectKind::Barrier => "barrier",
    };
    // Classes of one name and kind are one, as in the profile: different ones have got different names.
    let mut classes: Vec<Class> = Vec::new();
    let mut moved = Vec::new();
    for (class, name) in raw.named.classes.iter().zip(&names.classes) {
        let is_static = class.address != 0;
        let class = Class { name: name.clone(), kind: kind(class.kind).into(), is_static };
        moved.push(classes.iter().position(|known| *known == class).unwrap_or(classes.len()));
        if moved.last() == Some(&classes.len()) {
            classes.push(class);
        }
    }
    let threads = with_events(raw.threads);
    let first = threads.iter().map(|thread| thread.start_ns).min().unwrap_or(0);
    let last = threads.iter().map(|thread| thread.end_ns).max().unwrap_or(0);
    let machine = Machine::here();
    let mut about = About {
        command,
        seconds: last.saturating_sub(first) as f64 / 1e9,
        cpus: machine.cpus,
        processor: machine.processor,
        mutex: raw.mutex,
        rwlock: raw.rwlock,
        empty_hold_ns: raw.empty_hold_ns,
        empty_gap_ns: raw.empty_gap_ns,
        empty_release_ns: raw.empty_release_ns,
        classes,
        objects: raw.objects.iter().map(|class| moved[*class]).collect(),
        permits: Vec::new(),
        parties: if raw.parties.iter().any(|parties| *parties > 0) { raw.parties } else { Vec::new() },
        threads: threads
            .iter()
            .map(|thread| Thread {
                tid: thread.tid,
                role: role(&names.stacks[thread.stack]),
                start_ns: thread.start_ns - first,
                events: thread.steps.len() as u64,
                dropped: thread.dropped,
                preempted_ns: thread.preempted_ns,
            })
            .collect(),
        unknown: raw.unknown,
        other_processes,
    };
    let (steps, times): (Vec<_>, Vec<_>) =
        threads.into_iter().map(|thread| (thread.steps, thread.times)).unzip();
    about.permits = edges::permits(&about, &steps, &times);
    Trace { about, steps }
}

/// The threads that have events, or would have some.
fn with_events(threads: Vec<RawThread>) -> Vec<RawThread> {
    let is_kept = |thread: &RawThread| !thread.steps.is_empty() || thread.dropped > 0;
    let mut kept = 0..;
    let moved: Vec<u32> = threads
        .iter()
        .map(|thread| if is_kept(thread) { kept.next().unwrap_or(NO_THREAD) } else { NO_THREAD })
        .collect();
    let mut threads: Vec<RawThread> = threads.into_iter().filter(is_kept).collect();
    for step in threads.iter_mut().flat_map(|thread| &mut thread.steps) {
        if matches!(step.op, op::CREATE | op::JOIN) {
            step.object = moved.get(step.object as usize).copied().unwrap_or(NO_THREAD);
        }
    }
    threads
}

/// The outermost function that is the program's own: what starts threads in the C library, in libstdc++ and in Rust's standard
/// library is the same for all threads.
fn role(stack: &[Frame]) -> String {
    let common = |frame: &Frame| {
        let of_library = ["libc.so", "libc-", "ld-linux", "libstdc++", "libpthread", "libc++"];
        let of_start = ["_start", "std::", "core::", "alloc::", "<alloc::", "<core::", "<std::", "__rust_"];
        of_library.iter().any(|name| frame.module.starts_with(name))
            || of_start.iter().any(|name| frame.function.starts_with(name))
            // The closure of `std::thread::spawn`, whose type is elided.
            || frame.function.ends_with("::call_once")
    };
    let own = stack.iter().rev().find(|frame| !common(frame)).or(stack.last());
    own.map_or_else(|| "[unknown]".into(), |frame| frame.function.clone())
}

/// One line about what there is. `reached`: there are as many events as --size allows. `lost`: processes that could not make a
/// file.
fn summary(trace: &Trace, reached: bool, lost: u64) -> String {
    let events: u64 = trace.about.threads.iter().map(|thread| thread.events).sum();
    let dropped: u64 =
        trace.about.threads.iter().map(|thread| thread.dropped).sum::<u64>() + trace.about.unknown;
    // Condition variables, semaphores and barriers are no locks.
    let kind = |class: &usize| trace.about.classes[*class].kind.as_str();
    let is_lock = |class: &&usize| matches!(kind(class), "mutex" | "rwlock" | "spin");
    let counted = |number: u64, what: &str| format!("{number} {what}{}", if number == 1 { "" } else { "s" });
    let mut text = format!(
        "{} of {} and {} in {:.3} s",
        counted(events, "event"),
        counted(trace.about.threads.len() as u64, "thread"),
        counted(trace.about.objects.iter().filter(is_lock).count() as u64, "lock"),
        trace.about.seconds
    );
    if dropped > 0 {
        let hint = if reached { ": use a larger --size, or --seconds" } else { "" };
        text += &format!("; {dropped} more were dropped{hint}");
    }
    if trace.about.other_processes > 0 {
        let (others, are) = match trace.about.other_processes {
            1 => ("1 other process".into(), "is"),
            many => (format!("{many} other processes"), "are"),
        };
        text += &format!("; {others} {are} not in it");
    }
    if lost > 0 {
        text += &format!("; not recorded: {}", files::lost_text(lost));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_no_locks() {
        let class = |kind: &str| Class { name: kind.into(), kind: kind.into(), is_static: true };
        let classes = ["mutex", "rwlock", "spin", "condvar", "semaphore", "barrier"].map(class).to_vec();
        let about = About { classes, objects: vec![0, 0, 1, 2, 3, 4, 5], ..About::default() };
        let text = summary(&Trace { about, steps: Vec::new() }, false, 0);
        assert_eq!(text, "0 events of 0 threads and 4 locks in 0.000 s");
    }

    #[test]
    fn sizes_are_mebibytes() {
        for (text, mib) in [("1", 1), ("512", 512), ("512M", 512), ("2G", 2048), ("64G", 65536)] {
            assert_eq!(size(text), Ok(mib), "{text}");
        }
        for bad in ["", "0", "M", "65G", "-1", "1.5G", "4194304G", "12K"] {
            assert!(size(bad).is_err(), "{bad}");
        }
    }
}
