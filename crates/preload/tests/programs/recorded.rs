//! `profile.c` measures its own waits and holds, and prints them. Here it runs while it is recorded, and both are compared.

use crate::{Setting, compile, scratch, watch};
use latchwork_recording::histogram::{bounds, bucket};
use latchwork_recording::reader::{Cause, Class, Kind, Pair, Recording};
use std::collections::HashMap;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// An empty directory for recordings, in memory: a file system on a disk may delay any store into a mapped file.
pub(crate) fn directory() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let memory = Path::new("/dev/shm");
    let parent = if memory.is_dir() { memory.to_owned() } else { scratch() };
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let directory = parent.join(format!("latchwork-test-{}-{number}", std::process::id()));
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir(&directory).unwrap();
    directory
}

/// A program's output and its recordings, in the order of their files.
pub(crate) struct Run {
    pub(crate) counts: HashMap<String, u64>,
    pub(crate) times: HashMap<String, u64>,
    pub(crate) sites: HashMap<String, Range<u64>>,
    /// Waiter, holder, nanoseconds.
    pub(crate) pairs: Vec<(String, String, u64)>,
    /// Holder, nanoseconds.
    pub(crate) held: Vec<(String, u64)>,
    pub(crate) recordings: Vec<Recording>,
}

impl Run {
    pub(crate) fn new(setting: &Setting, program: &Path, mode: &str) -> Self {
        let directory = directory();
        let mut command = setting.command(program);
        command.args(mode.split(' ')).env("LATCHWORK_PROFILE", &directory);
        let what = format!("profile.c {mode} under mutex={} rwlock={}", setting.mutex, setting.rwlock);
        let output = watch(command, &what);
        let stdout = String::from_utf8(output.stdout).unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{what}");
        assert!(mode == "kill" || output.status.success() && stdout.ends_with("ok\n"), "{what}: {stdout}");
        let mut files: Vec<_> = fs::read_dir(&directory).unwrap().map(|file| file.unwrap().path()).collect();
        files.sort();
        let recordings: Vec<_> = files.iter().map(|file| Recording::read(file)).collect();
        fs::remove_dir_all(directory).unwrap();
        let recordings = recordings.into_iter().map(Result::unwrap).collect();
        let mut run = Run {
            counts: HashMap::new(),
            times: HashMap::new(),
            sites: HashMap::new(),
            pairs: Vec::new(),
            held: Vec::new(),
            recordings,
        };
        for line in stdout.lines() {
            let words: Vec<_> = line.split(' ').collect();
            let number = |word: &str| word.parse::<u64>().unwrap();
            match words[..] {
                ["count", count, name] => _ = run.counts.insert(name.into(), number(count)),
                ["held", time, name] => run.held.push((name.into(), number(time))),
                ["time", time, name] => _ = run.times.insert(name.into(), number(time)),
                ["site", name, start, end] => {
                    run.sites.insert(name.into(), number(start)..number(end));
                }
                ["pair", time, waiter, holder] => {
                    run.pairs.push((waiter.into(), holder.into(), number(time)));
                }
                _ => {}
            }
        }
        run
    }

    pub(crate) fn only(&self) -> &Recording {
        assert_eq!(self.recordings.len(), 1);
        &self.recordings[0]
    }

    /// The site in which a stack is.
    pub(crate) fn site(&self, stack: usize) -> &str {
        self.sites_of(stack).first().copied().unwrap_or("elsewhere")
    }

    /// All sites in which a stack is, the innermost first.
    pub(crate) fn sites_of(&self, stack: usize) -> Vec<&str> {
        let site = |address: &u64| {
            self.sites.iter().find(|(_, range)| range.contains(address)).map(|(name, _)| &**name)
        };
        self.only().stacks[stack].iter().filter_map(site).collect()
    }

    /// What all classes together have of one waiter and one holder, in nanoseconds.
    pub(crate) fn found(&self, waiter: &str, holder: &str) -> u64 {
        let is = |pair: &&Pair| {
            let holds = matches!(pair.cause, Cause::Holder(stack) if self.site(stack) == holder);
            holds && self.site(pair.waiter) == waiter
        };
        self.only().pairs.iter().filter(is).map(|pair| pair.nanos).sum()
    }
}

/// The classes of a kind.
pub(crate) fn of(recording: &Recording, kind: Kind) -> impl Iterator<Item = &Class> {
    recording.classes.iter().filter(move |class| class.kind == kind)
}

pub(crate) fn sum(recording: &Recording, kind: Kind, count: fn(&Class) -> u64) -> u64 {
    of(recording, kind).map(count).sum()
}

/// Threads that wait for work have hardly waited for a mutex. Threads that are idle at no time, because a busy machine lets them
/// run too late, have not waited for it at all.
pub(crate) fn no_contention(run: &Run, idle: u64) -> Result<(), String> {
    let waits = sum(run.only(), Kind::Mutex, |class| class.counters.wait_nanos);
    (waits <= slack(idle)).then_some(()).ok_or_else(|| format!("{waits} ns of contention, {idle} ns idle"))
}

/// The part of a duration by which another may differ from it: a tenth. On an idle machine the recorder is within a fiftieth, which
/// `LATCHWORK_TEST_STRICT=1` demands. On a busy one the kernel preempts threads between their own look at the clock and the
/// recorder's.
pub(crate) fn slack(duration: u64) -> u64 {
    duration / if std::env::var_os("LATCHWORK_TEST_STRICT").is_some() { 50 } else { 10 }
}

/// Whether a duration is near the truth, or within 200 ns for each of the `calls` that it consists of.
pub(crate) fn about(found: u64, truth: u64, calls: u64, what: &str) -> Result<(), String> {
    let error = found.abs_diff(truth);
    let near = error <= slack(truth).max(200 * calls);
    near.then_some(()).ok_or_else(|| format!("{what}: {found} ns recorded, {truth} ns in truth"))
}

/// Runs are repeated for so long, and so often at least.
const PATIENCE: (Duration, u32) = (Duration::from_secs(120), 8);

/// Runs a mode of the program, and checks the durations. A thread that comes too late does not wait, and on a busy machine the
/// kernel preempts threads anywhere. So a run that fails is repeated. What is exact is asserted.
pub(crate) fn run(
    setting: &Setting,
    program: &Path,
    mode: &str,
    check: impl Fn(&Run) -> Result<(), String>,
) -> Run {
    let (begin, mut attempts) = (Instant::now(), 0);
    loop {
        let run = Run::new(setting, program, mode);
        attempts += 1;
        match check(&run) {
            Ok(()) => return run,
            Err(what) if attempts >= PATIENCE.1 && begin.elapsed() > PATIENCE.0 => {
                panic!("{mode} under {}, {}: {what}", setting.mutex, setting.rwlock)
            }
            Err(what) => eprintln!("{mode}: {what}; once more"),
        }
    }
}

pub(crate) fn program() -> Option<PathBuf> {
    // Tests run at the same time, so each compiles its own.
    static NEXT: AtomicU32 = AtomicU32::new(0);
    compile("profile.c", &format!("profile-{}", NEXT.fetch_add(1, Ordering::Relaxed)), &[])
}

/// Whether what a holder caused of the waits of one place is near the truth: within a tenth of all these waits.
pub(crate) fn near_truth(run: &Run, waiter: &str, holder: &str) -> Result<(), String> {
    let is = |pair: &&(String, String, u64)| pair.0 == waiter && pair.1 == holder;
    let truth: u64 = run.pairs.iter().filter(is).map(|pair| pair.2).sum();
    let (found, all) = (run.found(waiter, holder), run.times["wait"]);
    eprintln!("{waiter}, {holder}: {found} ns recorded, {truth} in truth, of {all} ns");
    if truth < all / 4 {
        return Err(format!("{holder} caused {truth} ns of {all} only"));
    }
    let near = found.abs_diff(truth) <= all / 10;
    near.then_some(()).ok_or_else(|| {
        format!("{waiter} waited for {holder}: {found} ns recorded, {truth} in truth, of {all} ns")
    })
}

/// Whether durations with this sum and this longest one can lie in the buckets of a histogram as they are counted there.
fn check_histogram(counts: &[u64], sum: u64, longest: u64) {
    let sum_of =
        |bound: fn(usize) -> u64| counts.iter().enumerate().map(|(at, count)| count * bound(at)).sum();
    let (least, most): (u64, u64) = (sum_of(|at| bounds(at).0), sum_of(|at| bounds(at).1));
    assert!((least..most).contains(&sum), "{sum} ns in buckets of {least} to {most} ns");
    assert_eq!(
        counts.iter().rposition(|count| *count > 0),
        Some(bucket(longest)),
        "the longest: {longest} ns"
    );
}

/// Checks the waits and holds of the one contended class, and which holder caused which wait.
pub(crate) fn check_blame(run: &Run, kind: Kind) -> Result<(), String> {
    let recording = run.only();
    let class = recording.classes.iter().position(|class| class.kind == kind && class.counters.contended > 0);
    let Some(class) = class else { return Err("no contended class".into()) };
    let counters = &recording.classes[class].counters;
    assert_eq!(counters.acquisitions, run.counts["acquisitions"]);
    assert_eq!(counters.reads, run.counts.get("reads").copied().unwrap_or(0));
    about(counters.wait_nanos, run.times["wait"], counters.acquisitions, "waits")?;
    assert_eq!(counters.hold_samples, counters.acquisitions);
    about(counters.hold_nanos, run.times["hold"], counters.acquisitions, "holds")?;
    assert_eq!(recording.unaccounted, 0);
    let waits: u64 = recording.classes[class].waits.iter().sum();
    assert_eq!(waits, counters.contended, "the histogram has every wait");
    check_histogram(&recording.classes[class].waits, counters.wait_nanos, counters.wait_max);
    check_histogram(&recording.classes[class].holds, counters.hold_nanos, counters.hold_max);
    // Each event stands for some waiting, and all together for all but a rest of less than 10 us in each thread.
    let events: u64 = recording.events.iter().map(|event| event.stands_for).sum();
    let threads = recording.threads.len() as u64;
    assert!(events <= counters.wait_nanos && counters.wait_nanos < events + 10_000 * threads, "{events}");
    let by_thread: u64 = recording.threads.iter().map(|thread| thread.wait_nanos).sum();
    assert_eq!(by_thread, counters.wait_nanos);

    let pairs = || recording.pairs.iter().filter(|pair| pair.class == class);
    let of_cause = |is: fn(Cause) -> bool| pairs().filter(|p| is(p.cause)).map(|p| p.nanos).sum::<u64>();
    assert_eq!(of_cause(|cause| cause == Cause::Whole), counters.wait_nanos);
    assert_eq!(of_cause(|cause| cause != Cause::Whole), counters.wait_nanos, "the parts are the whole");
    // The CPU time of the first waits of each thread was measured, and these are all.
    assert_eq!(counters.timed_nanos, counters.wait_nanos);
    assert!(counters.spun_nanos <= counters.wait_nanos && counters.owner_changes <= counters.successions);
    for (holder, truth) in &run.held {
        let holds =
            recording.holds.iter().filter(|hold| hold.class == class && run.site(hold.holder) == holder);
        let (count, nanos) = holds.fold((0, 0), |sum, hold| (sum.0 + hold.count, sum.1 + hold.nanos));
        // The recorder's hold begins and ends some hundred nanoseconds outside of the program's; more if another process
        // takes the processor there.
        about(nanos, *truth, 25 * count, &format!("holds of {holder}"))?;
    }
    for (waiter, holder, truth) in &run.pairs {
        let found = run.found(waiter, holder);
        // A part of all waiting: a pair may be a few microseconds in a second.
        if found.abs_diff(*truth) > slack(run.times["wait"]) {
            let all: Vec<_> = pairs().map(|pair| (run.site(pair.waiter), pair)).collect();
            return Err(format!(
                "{waiter} waited for {holder}: {found} ns recorded, {truth} in truth: {all:#?}"
            ));
        }
    }
    Ok(())
}
