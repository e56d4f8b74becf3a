//! Threads that wait for each other: the traces are computed here, moment by moment, so nothing depends on this machine.

use super::{How, Load, Outcome, check, locks, machine, near, plan, replay, report};
use latchwork_recording::edges::{self, Meaning};
use latchwork_recording::trace::op;
use latchwork_recording::trace_file::{About, Class, NO_THREAD, Step, Thread, Trace};
use latchwork_sim::Arbitration;

const MUTEX: u32 = 0;
const FULL: u32 = 1;
const FREE: u32 = 2;
const UNITS: u32 = 3;
const ROOMS: u32 = 4;
const MEETING: u32 = 5;

/// A trace as it is written.
struct Writer {
    trace: Trace,
    times: Vec<Vec<u64>>,
    now: Vec<u64>,
}

impl Writer {
    fn new(roles: &[&str]) -> Self {
        let class = |kind: &str| Class { name: kind.into(), kind: kind.into(), is_static: true };
        let thread = |role: &&str| Thread { role: (*role).into(), ..Thread::default() };
        let about = About {
            command: vec!["./queue".into()],
            seconds: 1.0,
            cpus: 16,
            mutex: "glibc".into(),
            rwlock: "glibc".into(),
            classes: vec![class("mutex"), class("condvar"), class("semaphore"), class("barrier")],
            objects: vec![0, 1, 1, 2, 2, 3],
            threads: roles.iter().map(thread).collect(),
            ..About::default()
        };
        let count = roles.len();
        Writer {
            trace: Trace { about, steps: vec![Vec::new(); count] },
            times: vec![Vec::new(); count],
            now: vec![0; count],
        }
    }

    /// An event of a thread that has computed for `cpu`, and then waited until `until` if that is later.
    fn event(&mut self, thread: usize, (op, object): (u32, u32), cpu: u64, until: u64) {
        let now = self.now[thread] + cpu;
        let wait = until.saturating_sub(now);
        self.now[thread] = now + wait;
        self.trace.steps[thread].push(Step { op, object, cpu, off: 0, wait });
        self.times[thread].push(self.now[thread]);
    }

    fn done(mut self) -> Trace {
        self.trace.about.permits = edges::permits(&self.trace.about, &self.trace.steps, &self.times);
        for (thread, steps) in self.trace.about.threads.iter_mut().zip(&self.trace.steps) {
            thread.events = steps.len() as u64;
        }
        self.trace
    }
}

/// Nanoseconds of a section of the queue.
const SECTION: u64 = 500;

/// One producer and one consumer with a queue of `room` jobs between them, under one mutex with two condition variables. They
/// compute for `produce` and `consume` nanoseconds for each of `jobs`.
fn queue(jobs: usize, room: usize, produce: u64, consume: u64) -> Trace {
    let mut writer = Writer::new(&["producer", "consumer"]);
    let (mut put, mut taken) = (Vec::<u64>::new(), Vec::<u64>::new());
    // A section of one thread: it waits for `ready`, if that is after it has come.
    fn section(writer: &mut Writer, thread: usize, think: u64, ready: u64, waits: u32, signals: u32) -> u64 {
        writer.event(thread, (op::ACQUIRE, MUTEX), think, 0);
        if ready > writer.now[thread] + SECTION / 2 {
            writer.event(thread, (op::RELEASE, MUTEX), SECTION / 2, 0);
            writer.event(thread, (op::SLEEP, waits), 0, ready);
            writer.event(thread, (op::ACQUIRE, MUTEX), 0, 0);
        } else {
            // The other one holds the mutex for a moment.
            writer.event(thread, (op::WAKE, signals), SECTION / 2, ready);
            writer.event(thread, (op::RELEASE, MUTEX), SECTION / 2, 0);
            return writer.now[thread];
        }
        writer.event(thread, (op::WAKE, signals), 0, 0);
        writer.event(thread, (op::RELEASE, MUTEX), SECTION / 2, 0);
        writer.now[thread]
    }
    for job in 0..jobs {
        let free = if job >= room { taken[job - room] } else { 0 };
        put.push(section(&mut writer, 0, produce, free, FREE, FULL));
        taken.push(section(&mut writer, 1, consume, put[job], FULL, FREE));
    }
    writer.done()
}

fn run(trace: &Trace, threads: usize) -> Outcome {
    let load = Load::new(trace, 0.0);
    let how = How {
        profile: machine(),
        mutex: locks::find("glibc", false).unwrap(),
        rwlock: locks::find("glibc", true).unwrap(),
        other: None,
        change: None,
        threads: load.divide(threads),
        seed: 1,
        arbitration: Arbitration::default(),
        acquisitions: 4_000,
        tries_first: false,
    };
    replay(&load, &how).unwrap()
}

fn meaning(trace: &Trace) -> Vec<Meaning> {
    Load::new(trace, 0.0).objects.iter().map(|object| object.meaning).collect()
}

/// The slower side decides, and the other one waits. With more of both the throughput grows in proportion.
#[test]
fn a_queue_is_as_fast_as_its_slower_side() {
    for (produce, consume) in [(50_000, 10_000), (10_000, 50_000)] {
        let trace = queue(2_000, 8, produce, consume);
        // The side that never waits takes nothing that is known of.
        let counted = if produce > consume { FULL } else { FREE };
        assert_eq!(meaning(&trace)[counted as usize], Meaning::Permits);
        // Two sections for a job: the producer's and the consumer's.
        let one = run(&trace, 2);
        near(one.throughput, 2.0 * 1e9 / 50_500.0, 0.10);
        let waits = 40_000.0 / 50_500.0 / 2.0;
        assert!((one.sleeping - waits).abs() < 0.05, "{one:?}, not {waits}");
        assert!(!one.stands_still);
        near(run(&trace, 16).throughput, 8.0 * one.throughput, 0.15);
    }
}

/// What the check compares fits, so such a program is predicted.
#[test]
fn a_queue_is_predicted() {
    let trace = queue(2_000, 8, 50_000, 10_000);
    let (text, json) = report(&trace, &plan(&trace, &["shfl"], &[]));
    assert_eq!(json["refused"], false, "{text}");
    assert!(text.contains("waiting otherwise"), "{text}");
    assert!(json["recorded"]["shares"]["sleeping"].as_f64() > Some(0.3), "{json}");
}

/// Two threads in turns, each of which waits for the other one's post: only one of them runs at any time.
fn turns(rounds: usize) -> Trace {
    let mut writer = Writer::new(&["first", "second"]);
    let mut posted = 0;
    for _ in 0..rounds {
        for (thread, takes, posts) in [(0, UNITS, ROOMS), (1, ROOMS, UNITS)] {
            writer.event(thread, (op::SLEEP, takes), 100, posted);
            writer.event(thread, (op::ACQUIRE, MUTEX), 100, 0);
            writer.event(thread, (op::RELEASE, MUTEX), 20_000, 0);
            writer.event(thread, (op::WAKE, posts), 100, 0);
            posted = writer.now[thread];
        }
    }
    writer.done()
}

/// However threads jump, no permit is lost, and none comes from nowhere.
#[test]
fn permits_survive_jumps() {
    let trace = turns(1_000);
    assert_eq!(trace.about.permits, [0, 0, 0, 1, 0, 0]);
    let outcome = run(&trace, 2);
    assert!(!outcome.stands_still, "{outcome:?}");
    // The thread that posts goes on for a moment; to wake the other one takes some microseconds.
    assert!(outcome.throughput < 1e9 / 20_000.0 && outcome.throughput > 0.7 * 1e9 / 20_300.0, "{outcome:?}");
    // Four threads take turns with one permit, too.
    let four = run(&trace, 4);
    assert!(!four.stands_still && four.throughput < 1.01 * 1e9 / 20_000.0, "{four:?}");
}

/// As [`permits_survive_jumps`], but one of the threads posts first and takes then. Where it may jump, the other one has the permit.
#[test]
fn a_permit_that_the_other_thread_has_is_not_lost() {
    let mut writer = Writer::new(&["first", "second"]);
    for _ in 0..1_000 {
        let taken = writer.now[0];
        writer.event(1, (op::ACQUIRE, MUTEX), 100, 0);
        writer.event(1, (op::RELEASE, MUTEX), 20_000, 0);
        writer.event(1, (op::WAKE, UNITS), 100, 0);
        let posted = writer.now[1];
        writer.event(0, (op::SLEEP, UNITS), 100, posted.max(taken));
        writer.event(0, (op::WAKE, ROOMS), 20_000, 0);
        let posted = writer.now[0];
        writer.event(1, (op::SLEEP, ROOMS), 100, posted);
    }
    let trace = writer.done();
    assert_eq!(trace.about.permits, [0; 6]);
    let outcome = run(&trace, 2);
    assert!(!outcome.stands_still, "{outcome:?}");
    near(outcome.throughput, 1e9 / 40_300.0, 0.30);
}

/// A semaphore that serves as a lock for two of four threads.
#[test]
fn a_semaphore_lets_as_many_in_as_it_has_units() {
    let mut writer = Writer::new(&["worker"; 4]);
    for _ in 0..500 {
        for thread in 0..4 {
            let other = writer.now[(thread + 2) % 4];
            writer.event(thread, (op::SLEEP, UNITS), 100, other);
            writer.event(thread, (op::ACQUIRE, MUTEX), 20_000, 0);
            writer.event(thread, (op::RELEASE, MUTEX), 100, 0);
            writer.event(thread, (op::WAKE, UNITS), 100, 0);
        }
    }
    let trace = writer.done();
    assert_eq!(trace.about.permits[UNITS as usize], 2);
    for threads in [4, 12] {
        let outcome = run(&trace, threads);
        near(outcome.throughput, 2.0 * 1e9 / 20_300.0, 0.25);
        assert!(outcome.sleeping > 0.3, "{outcome:?}");
    }
}

/// A pace-maker that broadcasts each 100 us to three workers.
#[test]
fn a_broadcast_wakes_all_that_wait() {
    let mut writer = Writer::new(&["pace", "worker", "worker", "worker"]);
    for beat in 1..1_000 {
        writer.event(0, (op::ACQUIRE, MUTEX), 99_500, 0);
        writer.event(0, (op::WAKE_ALL, FULL), 250, 0);
        writer.event(0, (op::RELEASE, MUTEX), 250, 0);
        for worker in 1..4 {
            writer.event(worker, (op::ACQUIRE, MUTEX), 20_000, 0);
            writer.event(worker, (op::RELEASE, MUTEX), 100, 0);
            writer.event(worker, (op::SLEEP, FULL), 0, beat * 100_000);
            writer.event(worker, (op::ACQUIRE, MUTEX), 0, 0);
            writer.event(worker, (op::RELEASE, MUTEX), 100, 0);
        }
    }
    let trace = writer.done();
    assert_eq!(meaning(&trace)[FULL as usize], Meaning::Signals);
    // A wait does not count as an acquisition: four of them in a beat.
    near(run(&trace, 4).throughput, 4.0 * 1e9 / 100_000.0, 0.10);
}

#[test]
fn a_replay_that_comes_to_a_stand_is_refused() {
    // Each thread takes a unit from the other one, and posts only once in a while.
    let mut writer = Writer::new(&["worker"; 2]);
    for round in 0..400 {
        for thread in 0..2 {
            writer.event(thread, (op::ACQUIRE, MUTEX), 10_000, 0);
            writer.event(thread, (op::RELEASE, MUTEX), 100, 0);
            writer.event(thread, (op::SLEEP, UNITS), 100, 0);
            if round % 8 == 0 {
                writer.event(thread, (op::WAKE, UNITS), 100, 0);
            }
        }
    }
    let trace = writer.done();
    assert!(trace.about.permits[UNITS as usize] > 500);
    let mut trace = trace;
    trace.about.permits = vec![0; 6];
    let (text, json) = report(&trace, &plan(&trace, &[], &[]));
    assert_eq!(json["refused"], true, "{text}");
    assert!(text.contains("comes to a stand"), "{text}");
    let refusals = json["check"]["refusals"].as_array().unwrap();
    super::end_with_commands(refusals.iter().map(|refusal| refusal.as_str().unwrap()));
}

/// A wait that ended at its deadline, or that nobody in the trace ends, stays as long as it was.
#[test]
fn waits_without_a_signaller_are_refused_or_mentioned() {
    for (wait, refused, warned) in [(100_000, 1, 0), (10_000, 0, 1), (1_000, 0, 0)] {
        for op in [op::SLEEP, op::FAILED] {
            let mut writer = Writer::new(&["worker"; 2]);
            for _ in 0..200 {
                for thread in 0..2 {
                    writer.event(thread, (op::ACQUIRE, MUTEX), 100_000, 0);
                    writer.event(thread, (op::RELEASE, MUTEX), 100, 0);
                    let until = writer.now[thread] + wait;
                    writer.event(thread, (op, UNITS), 0, until);
                }
            }
            let check = check::of_trace(&Load::new(&writer.done(), 0.0), 16);
            assert_eq!((check.refusals.len(), check.warnings.len()), (refused, warned), "{check:#?}");
        }
    }
}

/// The thread that signals is replayed, however few locks it uses.
#[test]
fn a_role_that_signals_is_kept() {
    let mut trace = queue(2_000, 8, 50_000, 10_000);
    // The producer: semaphores in place of sections.
    let trace_steps = (0..400).map(|_| Step { op: op::WAKE, object: UNITS, cpu: 50_000, ..Step::default() });
    trace.steps[0] = trace_steps.collect();
    trace.steps[1] = (0..400)
        .flat_map(|_| {
            [
                Step { op: op::SLEEP, object: UNITS, cpu: 100, off: 0, wait: 40_000 },
                Step { op: op::ACQUIRE, object: MUTEX, cpu: 5_000, ..Step::default() },
                Step { op: op::RELEASE, object: MUTEX, cpu: 5_000, ..Step::default() },
            ]
        })
        .collect();
    let load = Load::new(&trace, 0.0);
    let mut names: Vec<&str> = load.roles.iter().map(|role| role.name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["consumer", "producer"]);
    near(run(&trace, 2).throughput, 1e9 / 50_000.0, 0.10);
}

/// Threads that compute in phases, with a section of a lock after each 20 us, and meet at a barrier after each phase. `sections`: how
/// many of them a thread has in a phase.
fn phases(threads: usize, phases: usize, sections: impl Fn(usize, usize) -> u64) -> Trace {
    let mut writer = Writer::new(&vec!["worker"; threads]);
    writer.trace.about.parties = vec![0, 0, 0, 0, 0, threads as u32];
    for phase in 0..phases {
        for thread in 0..threads {
            for _ in 0..sections(thread, phase) {
                writer.event(thread, (op::ACQUIRE, MUTEX), 19_800, 0);
                writer.event(thread, (op::RELEASE, MUTEX), 200, 0);
            }
        }
        let last = writer.now.iter().copied().max().unwrap();
        (0..threads).for_each(|thread| writer.event(thread, (op::SLEEP, MEETING), 0, last));
    }
    writer.done()
}

/// A phase lasts as long as its slowest thread, and the others wait. Without the barrier, they do not wait for that thread but for as long
/// as they did once.
#[test]
fn a_barrier_waits_for_its_slowest_thread() {
    let trace = phases(4, 200, |thread, _| if thread == 0 { 30 } else { 10 });
    assert_eq!(meaning(&trace)[MEETING as usize], Meaning::Barrier);
    let outcome = run(&trace, 4);
    near(outcome.throughput, 60.0 * 1e9 / 600_000.0, 0.04);
    near(outcome.sleeping, 3.0 / 4.0 * 400.0 / 600.0, 0.04);
    // Two threads of each kind that was recorded, and one alone, which waits for nobody.
    near(run(&trace, 8).throughput, 120.0 * 1e9 / 600_000.0, 0.06);
    near(run(&trace, 1).throughput, 30.0 * 1e9 / 600_000.0, 0.04);
    // A section that takes longer shows the difference.
    let longer = |trace: &Trace| {
        let mut trace = trace.clone();
        // The slow thread is twice as fast.
        trace.steps[0].iter_mut().for_each(|step| step.cpu /= 2);
        run(&trace, 4).throughput
    };
    near(longer(&trace), 60.0 * 1e9 / 300_000.0, 0.04);
    let mut old = trace.clone();
    old.about.parties.clear();
    assert_eq!(meaning(&old)[MEETING as usize], Meaning::Recorded);
    assert!(longer(&old) < 0.8 * longer(&trace), "{}", longer(&old));
    let (text, json) = report(&trace, &plan(&trace, &["shfl"], &[]));
    assert_eq!(json["refused"], false, "{text}");
}

/// Each phase has one slow thread, in turns. Threads that jumped to different phases would have several, or none.
#[test]
fn threads_at_a_barrier_stay_in_one_phase() {
    let trace = phases(3, 300, |thread, phase| if phase % 3 == thread { 30 } else { 10 });
    let outcome = run(&trace, 3);
    near(outcome.throughput, 50.0 * 1e9 / 600_000.0, 0.04);
    // The recording of one thread begins after its first barrier.
    let mut late = trace.clone();
    let first = late.steps[1].iter().position(|step| step.op == op::SLEEP).unwrap();
    late.about.threads[1].start_ns = late.steps[1][..=first].iter().map(|step| step.cpu + step.wait).sum();
    late.steps[1].drain(..=first);
    near(run(&late, 3).throughput, 50.0 * 1e9 / 600_000.0, 0.04);
    // Another one ends before the others.
    late.steps[2].truncate(4_000);
    near(run(&late, 3).throughput, 50.0 * 1e9 / 600_000.0, 0.04);
}

/// A main thread that computes for 200 us, and then creates workers, which compute for 200 us each, and joins them.
fn fork_and_join(rounds: usize, workers: usize) -> Trace {
    let mut writer = Writer::new(&["main"]);
    for round in 0..rounds {
        writer.event(0, (op::ACQUIRE, MUTEX), 199_800, 0);
        writer.event(0, (op::RELEASE, MUTEX), 200, 0);
        let first = writer.now.len();
        for worker in 0..workers {
            let start = writer.now[0];
            let role = Thread { role: "worker".into(), start_ns: start, ..Thread::default() };
            writer.trace.about.threads.push(role);
            writer.trace.steps.push(Vec::new());
            writer.times.push(Vec::new());
            writer.now.push(start);
            writer.event(0, (op::CREATE, (first + worker) as u32), 0, start + 1_000);
            for _ in 0..10 {
                writer.event(first + worker, (op::ACQUIRE, MUTEX), 19_800, 0);
                writer.event(first + worker, (op::RELEASE, MUTEX), 200, 0);
            }
            // Some end early.
            let more = if (round + worker) % 2 == 0 { 0 } else { 100_000 };
            writer.event(first + worker, (op::EXIT, 0), more, 0);
        }
        for worker in 0..workers {
            let end = writer.now[first + worker];
            writer.event(0, (op::JOIN, (first + worker) as u32), 0, end);
        }
    }
    writer.done()
}

#[test]
fn forked_threads_live_as_long_as_they_did() {
    let trace = fork_and_join(100, 3);
    let load = Load::new(&trace, 0.0);
    let roles: Vec<_> =
        load.roles.iter().map(|role| (role.name.as_str(), role.threads, role.forks)).collect();
    assert_eq!(roles, [("worker", 3, false), ("main", 1, true)]);
    assert_eq!((load.divide(4), load.divide(10), load.least()), (vec![3, 1], vec![9, 1], 2));
    // The main thread computes for 200 us, and waits for its workers for 300.
    let round = 1e9 / 505_000.0;
    near(load.throughput, 31.0 * round, 0.02);
    let outcome = run(&trace, 4);
    near(outcome.throughput, 31.0 * round, 0.05);
    near(outcome.sleeping, load.shares.sleeping, 0.05);
    assert!(!outcome.stands_still && load.shares.off + load.shares.timed + load.shares.joining == 0.0);
    // Three times as many workers; and one in place of three, which ends early in each second round.
    near(run(&trace, 10).throughput, 91.0 * round, 0.08);
    near(run(&trace, 2).throughput, 11.0 * 1e9 / 455_000.0, 0.08);
    let (text, json) = report(&trace, &plan(&trace, &["shfl"], &[]));
    assert_eq!(json["refused"], false, "{text}");
}

/// The main thread makes no lock call of its own, and the workers hardly any.
#[test]
fn who_forks_is_replayed() {
    let mut trace = fork_and_join(100, 2);
    trace.steps[0].retain(|step| !matches!(step.op, op::ACQUIRE | op::RELEASE));
    for step in trace.steps[0].iter_mut().filter(|step| step.op == op::CREATE) {
        step.cpu = 100_000;
    }
    let outcome = run(&trace, 3);
    // The second worker begins 100 us after the first one, and one of the two takes 100 us longer, in turns.
    near(outcome.throughput, 20.0 * 1e9 / 455_000.0, 0.10);
}

/// A thread that waits once for the end of others, or for one that is not in the trace, is no reason to refuse.
#[test]
fn a_join_at_the_end_is_kept() {
    let mut trace = phases(2, 100, |_, _| 10);
    trace.about.threads.push(Thread { role: "main".into(), ..Thread::default() });
    let mut steps = trace.steps[0].clone();
    steps.retain(|step| step.op != op::SLEEP);
    steps.push(Step { op: op::JOIN, object: 0, wait: 20_000_000, ..Step::default() });
    steps.push(Step { op: op::JOIN, object: NO_THREAD, wait: 1_000_000, ..Step::default() });
    trace.steps.push(steps);
    let load = Load::new(&trace, 0.0);
    assert!(load.shares.joining > 0.2 && load.shares.timed == 0.0, "{:?}", load.shares);
    assert_eq!(check::of_trace(&load, 16).refusals, Vec::<String>::new());
}

/// A thread that takes 20,000 semaphores one by one, and then gives them back. What is kept of each place must not grow with their number.
#[test]
fn many_semaphores_take_no_long_time() {
    const MANY: u32 = 20_000;
    let mut writer = Writer::new(&["worker"]);
    let about = &mut writer.trace.about;
    about.objects = vec![2; MANY as usize + 1];
    about.objects[0] = 0;
    for _ in 0..3 {
        writer.event(0, (op::ACQUIRE, MUTEX), 100, 0);
        writer.event(0, (op::RELEASE, MUTEX), 100, 0);
        (1..=MANY).for_each(|object| writer.event(0, (op::WAKE, object), 100, 0));
        (1..=MANY).for_each(|object| writer.event(0, (op::SLEEP, object), 100, 0));
    }
    let stream = &Load::new(&writer.done(), 0.0).streams[0];
    let round = 2 + 2 * MANY as usize;
    let all_given = 2 + MANY as usize;
    assert_eq!((&stream.tops[..], stream.end), (&[all_given, all_given + round][..], all_given + 2 * round));
    assert_eq!(stream.given, (1..=MANY).map(|object| (object, 1)).collect::<Vec<_>>());
}
