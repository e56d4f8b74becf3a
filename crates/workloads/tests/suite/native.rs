//! Every workload under real locks for a moment, and under broken ones, which its checks must catch.

use latchwork::locks::condvar::RawCondvar;
use latchwork::locks::mutex::RawMutex;
use latchwork::locks::mutex::tas::RawTas;
use latchwork::locks::semaphore::RawSemaphore;
use latchwork::machine::{Machine, Native};
use latchwork::reclaim::{self, Guard, Reader, Reclaim, Retire};
use latchwork_workloads::candidate::Kind;
use latchwork_workloads::load::hashtable_strategies::HashtableStrategies;
use latchwork_workloads::lock::{Condvar, Exclusive, Lock};
use latchwork_workloads::measure::Measured;
use latchwork_workloads::native::{Options, Stop, Threads};
use latchwork_workloads::peers;
use latchwork_workloads::registry::{self, Point};
use latchwork_workloads::tables::bucket_lock::BucketLocked;
use latchwork_workloads::tables::lock_place::InHead;
use latchwork_workloads::tables::michael::Michael;
use latchwork_workloads::tables::readers::{Section, SectionWide};
use latchwork_workloads::tables::{self, Table, TableWorkload, locked};
use latchwork_workloads::topology::Placement;
use latchwork_workloads::workload::{Info, Settings};
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering::Acquire;
use std::time::{Duration, Instant};

fn stage(ms: u64, placement: Placement) -> Threads {
    let options = Options {
        measured: Duration::from_millis(ms),
        warm_up: Duration::from_millis(ms / 2),
        placement,
        seed: 1,
    };
    Threads::new(options, |why| {
        // What `eprintln` prints is kept back until a test has ended, and this one does not end.
        let _ = writeln!(std::io::stderr(), "stuck: {why}");
        std::process::abort()
    })
}

/// The workload, small enough for a debug build.
fn settings(info: &Info) -> Settings {
    let mut settings = Settings::new(info.parameters);
    for (name, value) in [("nodes", "1000"), ("pages", "4"), ("long", "20us"), ("updates", "1/2")] {
        if let Some(parameter) = info.parameters.iter().find(|parameter| parameter.name == name) {
            settings.set(parameter, value).unwrap();
        }
    }
    settings
}

fn check(what: &str, measured: &Measured) {
    assert!(measured.operations <= measured.total, "{what}");
    assert!(measured.measured_ns > 0, "{what}");
    assert!((0.5..=1.0).contains(&measured.fairness), "{what}: {}", measured.fairness);
}

#[test]
fn every_workload_runs_under_every_lock_and_checks_itself() {
    for info in registry::all() {
        for candidate in peers::candidates() {
            if !info.locks.includes(&candidate) {
                continue;
            }
            let point = Point { workload: info.name, settings: &settings(&info), threads: 2 };
            let what = format!("{} under {}", info.name, candidate.name);
            let run = || {
                let measured = peers::run(&point, &stage(4, Placement::Free), candidate.name, candidate.kind);
                measured.unwrap_or_else(|why| panic!("{what}: {why}"))
            };
            // On a busy machine a thread may not get to do anything in so short a time.
            let measured = for_long().map(|_| run()).find(|measured| measured.total > 0);
            check(&what, &measured.unwrap_or_else(|| panic!("{what} did nothing")));
        }
    }
}

#[test]
fn a_longer_run_counts_what_it_says() {
    for (workload, lock, kind) in [
        ("counter", "shfl", Kind::Mutex),
        ("rwbench", "bravo-pf-q", Kind::RwLock),
        ("wc", "pf-t", Kind::RwLock),
    ] {
        let info = registry::find(workload).unwrap();
        for threads in [1, 3] {
            let point = Point { workload, settings: &settings(&info), threads };
            // A busy machine may let nobody run meanwhile.
            let mut runs =
                for_long().map(|_| point.run_named(&stage(60, Placement::FirstFill), lock, kind).unwrap());
            let counted = |measured: &Measured| measured.operations > 0 && !measured.waits.is_empty();
            let measured = runs.find(counted).expect("operations, and a wait that was sampled");
            check(workload, &measured);
            assert_eq!(measured.per_thread.len(), threads);
            assert_eq!(measured.per_thread.iter().sum::<u64>(), measured.operations);
            assert!(measured.rate() > 0.0);
            // The samples stand for all acquisitions, of which these workloads make one an operation.
            if workload != "wc" && measured.operations > 10_000 {
                let share = measured.waits.len() as f64 / measured.operations as f64;
                assert!((0.5..2.0).contains(&share), "{workload}: {share}");
            }
        }
    }
}

/// One thread that does nothing but take a free lock. Looks at the clock take longer than that, and are no part of the wait.
#[test]
fn a_wait_for_a_free_lock_is_shorter_than_the_operation_around_it() {
    let info = registry::find("counter").unwrap();
    let mut settings = settings(&info);
    for name in ["gap", "hold"] {
        let parameter = info.parameters.iter().find(|parameter| parameter.name == name).unwrap();
        settings.set(parameter, "0ns").unwrap();
    }
    let point = Point { workload: "counter", settings: &settings, threads: 1 };
    let mut last = None;
    let shorter = |_| {
        let measured = point.run_named(&stage(40, Placement::Free), "ttas", Kind::Mutex).unwrap();
        let (operation, wait) = (1e9 / measured.rate(), measured.waits.value_at_quantile(0.5) as f64);
        last = Some((operation, wait));
        !measured.waits.is_empty() && wait <= operation
    };
    // A busy machine may disturb a run, or each of them in the same way.
    assert!((0..20).any(shorter), "{last:?}");
}

#[test]
fn a_run_that_is_stopped_ends_at_once() {
    let info = registry::find("counter").unwrap();
    let settings = settings(&info);
    let stop = Arc::new(Stop::default());
    let hour = stage(3_600_000, Placement::Free).stopped_by(stop.clone());
    let start = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(20));
            stop.ask();
        });
        Point { workload: "counter", settings: &settings, threads: 2 }
            .run_named(&hour, "shfl", Kind::Mutex)
            .unwrap();
    });
    assert!(start.elapsed() < Duration::from_secs(600));
}

#[test]
fn what_is_not_there_is_said() {
    let info = registry::find("counter").unwrap();
    let settings = settings(&info);
    let point = Point { workload: "counter", settings: &settings, threads: 1 };
    assert!(point.run_named(&stage(1, Placement::Free), "no-lock", Kind::Mutex).is_err());
    let point = Point { workload: "no-workload", settings: &settings, threads: 1 };
    assert!(point.run_named(&stage(1, Placement::Free), "shfl", Kind::Mutex).is_err());
    let point = Point { workload: "counter", settings: &settings, threads: 1 };
    let why = point.run_named(&stage(1, Placement::Free), "seqlock", Kind::SeqLock).unwrap_err();
    assert!(why.contains("cannot hold it"), "{why}");
}

/// A condition variable whose waiters come back without a notification. One that waited for it would sleep for ever if the failure
/// of the lock had lost the notification.
struct Restless;

impl<L: Lock> Condvar<L> for Restless {
    fn new() -> Self {
        Restless
    }
    fn wait<'l>(&self, lock: &'l L, held: L::Write<'l>) -> L::Write<'l> {
        drop(held);
        std::thread::yield_now();
        lock.write()
    }
    fn notify_one(&self) {}
    fn notify_all(&self) {}
}

/// Lets everybody in, as a mutex or as a reader-writer lock.
struct Open<const SHARED: bool>;

impl<const SHARED: bool> Lock for Open<SHARED> {
    type Machine = Native;
    type Read<'a> = ();
    type Write<'a> = ();
    type Condvar = Restless;
    type Semaphore = RawSemaphore<Native>;
    const SHARED: bool = SHARED;
    fn new() -> Self {
        Open
    }
    fn read(&self) {}
    fn write(&self) {}
    fn try_write(&self) -> Option<()> {
        Some(())
    }
}

/// Excludes writers, but lets readers in beside them.
struct BlindReaders(Exclusive<RawTas<Native>>);

impl Lock for BlindReaders {
    type Machine = Native;
    type Read<'a> = ();
    type Write<'a> = <Exclusive<RawTas<Native>> as Lock>::Write<'a>;
    type Condvar = RawCondvar<Native>;
    type Semaphore = RawSemaphore<Native>;
    const SHARED: bool = true;
    fn new() -> Self {
        BlindReaders(Exclusive::new())
    }
    fn read(&self) {}
    fn write(&self) -> Self::Write<'_> {
        self.0.write()
    }
    fn try_write(&self) -> Option<Self::Write<'_>> {
        self.0.try_write()
    }
}

/// As many numbers as runs are worth while: a race needs two threads at the same place, which takes long on a busy machine.
/// On an idle machine the first runs see `queue`'s. With six busy loops beside, and stalls, two minutes were once too short.
fn for_long() -> impl Iterator<Item = u32> {
    let begin = Instant::now();
    (0..).take_while(move |run| *run < 200 || begin.elapsed() < Duration::from_secs(900))
}

/// Runs until the workload's check fails, which it has to.
fn must_catch<L: Lock<Machine = Native>>(workload: &str, set: &[(&str, &str)]) {
    let info = registry::find(workload).unwrap();
    let mut settings = settings(&info);
    for (name, value) in set {
        let parameter = info.parameters.iter().find(|parameter| parameter.name == *name).unwrap();
        settings.set(parameter, value).unwrap();
    }
    for _ in for_long() {
        let point = Point { workload, settings: &settings, threads: 4 };
        if let Err(why) = point.run::<Threads, L>(&stage(10, Placement::Free)) {
            assert!(
                ["exclude", "inside", "a copy of", "chain", "written", "counted", "mappings"]
                    .iter()
                    .any(|word| why.contains(word)),
                "{workload}: {why}"
            );
            return;
        }
    }
    panic!("{workload} did not notice that its lock lets everybody in");
}

#[test]
fn a_lock_that_excludes_nobody_is_caught() {
    must_catch::<Open<false>>("counter", &[]);
    must_catch::<Open<false>>("oversubscribe", &[]);
    must_catch::<Open<false>>("hash-table", &[("writes", "1"), ("keys", "4")]);
    must_catch::<Open<false>>("readrandom", &[]);
    must_catch::<Open<false>>("lock-per-node", &[("nodes", "1"), ("gap", "0ns")]);
    // Consumers are slow, so that there is nearly always an item.
    must_catch::<Open<false>>("queue", &[("capacity", "0"), ("produce", "0ns"), ("consume", "20us")]);
    must_catch::<Open<false>>("yield-inside", &[("locks", "1")]);
    must_catch::<Open<true>>("file-sections", &[("extents", "1"), ("blocks", "16"), ("yields", "0")]);
    must_catch::<Open<true>>("locktorture", &[("writers", "4")]);
    must_catch::<Open<true>>("rwbench", &[("writes", "1/2")]);
    must_catch::<Open<true>>("hash-table-bench", &[]);
    must_catch::<Open<true>>("snapshot", &[("writes", "1/2")]);
    must_catch::<Open<true>>("mmap", &[("hold", "0ns"), ("gap", "0ns")]);
}

#[test]
fn readers_beside_a_writer_are_caught() {
    must_catch::<BlindReaders>("rwbench", &[("writes", "1/2")]);
    must_catch::<BlindReaders>("snapshot", &[("writes", "1/2"), ("words", "64")]);
    must_catch::<BlindReaders>("file-sections", &[("extents", "1"), ("blocks", "16"), ("yields", "0")]);
    must_catch::<BlindReaders>("locktorture", &[]);
    must_catch::<BlindReaders>("test-rwlock", &[]);
    must_catch::<BlindReaders>("readwhilewriting", &[("keys", "1"), ("read", "0ns"), ("write", "0ns")]);
    must_catch::<BlindReaders>("hash-table-bench", &[]);
    must_catch::<BlindReaders>("page-fault", &[("fault", "1us"), ("map", "0ns")]);
}

/// Reclaims what is retired at once, even if a reader still reads it.
struct Eager;

struct EagerReader;

struct EagerGuard;

// SAFETY: a lie, which is what the test is about; in a table nothing is freed before the table.
unsafe impl Guard for EagerGuard {
    type Machine = Native;
    fn protect<T: Send + Sync + 'static>(&self, _: usize, from: &<Native as Machine>::Ptr<T>) -> *mut T {
        from.load(Acquire)
    }
}

impl Reader for EagerReader {
    type Machine = Native;
    type Guard<'r> = EagerGuard;
    fn enter(&self) -> EagerGuard {
        EagerGuard
    }
}

// SAFETY: a lie, as above.
unsafe impl Reclaim for Eager {
    type Machine = Native;
    type Reader<'d> = EagerReader;
    const INFO: reclaim::Info =
        reclaim::Info { name: "eager", summary: "", reader: "", atomics: 0, bound: "", source: "" };
    fn new_in() -> Self {
        Eager
    }
    fn reader(&self) -> EagerReader {
        EagerReader
    }
    fn covers<'r, 'd>(&self, _: &EagerGuard) -> bool
    where
        Self::Reader<'d>: 'r,
    {
        true
    }
    unsafe fn retire<T: Retire>(&self, object: *mut T) {
        // SAFETY: it is retired once; that nobody uses it is the lie.
        unsafe { T::reclaim(object) };
    }
    fn collect(&self) {}
    fn barrier(&self) {}
    fn garbage(&self) -> reclaim::Garbage {
        reclaim::Garbage::default()
    }
}

// SAFETY: as above, a lie.
unsafe impl SectionWide for Eager {
    const LOCKED: &'static str = "eager-l";
    const LOCK_FREE: &'static str = "eager-nbs";
    type Lock = InHead;
}

/// Excludes writers of a bucket, and lets readers in beside them.
struct Blind;

// SAFETY: a lie about readers; elements are not freed before the table.
unsafe impl locked::Guard for Blind {
    type Machine = Native;
    type Bucket = RawTas<Native>;
    const INFO: tables::Info =
        tables::Info { name: "blind", summary: "", source: "", concurrent: true, blocking: false };
    fn new() -> Self {
        Blind
    }
    fn bucket() -> RawTas<Native> {
        RawTas::new_in()
    }
    fn read<T>(&self, _: &RawTas<Native>, section: impl FnOnce() -> T) -> T {
        section()
    }
    fn write<T>(&self, lock: &RawTas<Native>, section: impl FnOnce() -> T) -> T {
        lock.lock();
        let result = section();
        // SAFETY: locked above.
        unsafe { lock.unlock(()) };
        result
    }
}

/// As `must_catch`, for a way to synchronize a table.
fn must_catch_table<T: Table<Machine = Native>>() {
    let info = HashtableStrategies::INFO;
    let mut settings = Settings::new(info.parameters);
    for (name, value) in [("updates", "1/2"), ("buckets", "2"), ("chain", "8")] {
        let parameter = info.parameters.iter().find(|parameter| parameter.name == name).unwrap();
        settings.set(parameter, value).unwrap();
    }
    for _ in for_long() {
        let run = HashtableStrategies::new(&settings).run::<Threads, T>(&stage(10, Placement::Free), 4);
        if let Err(why) = run {
            let said = ["reclaimed", "lost", "has the value", "was found", "should not be"];
            return assert!(said.iter().any(|word| why.contains(word)), "{why}");
        }
    }
    panic!("{} was not noticed", T::INFO.name);
}

#[test]
fn a_table_that_reclaims_too_early_is_caught() {
    must_catch_table::<BucketLocked<Eager, Section>>();
    must_catch_table::<Michael<Eager, Section>>();
    must_catch_table::<locked::Locked<Blind>>();
}
