//! Synthetic traces with known answers. The module [`edges`] has those with condition variables and semaphores.

use super::check;
use super::load::{Load, Role};
use super::locks;
use super::plan::{Curve, Plan, WhatIf, scale};
use super::replay::{Change, How, Outcome, replay};
use super::report::Report;
use latchwork_recording::trace::op;
use latchwork_recording::trace_file::{About, Class, Step, Thread, Trace};
use latchwork_sim::{Arbitration, Options, Profile, work};
use std::cell::RefCell;

mod edges;

/// Threads that compute for `think`, and then hold the one lock for `hold` nanoseconds. Each call waited for `wait`.
fn one_lock(threads: usize, hold: u64, think: u64, wait: u64) -> Trace {
    let steps: Vec<Step> = (0..400)
        .flat_map(|_| {
            [
                Step { op: op::ACQUIRE, object: 0, cpu: think, off: 0, wait },
                Step { op: op::RELEASE, object: 0, cpu: hold, off: 0, wait: 0 },
            ]
        })
        .collect();
    let thread = |number: usize| Thread {
        tid: number as u32,
        role: "worker".into(),
        events: steps.len() as u64,
        ..Thread::default()
    };
    Trace {
        about: About {
            command: vec!["./synthetic".into()],
            seconds: 1.0,
            cpus: 16,
            processor: "none".into(),
            mutex: "mcs".into(),
            rwlock: "glibc".into(),
            classes: vec![Class { name: "the lock".into(), kind: "mutex".into(), is_static: false }],
            objects: vec![0],
            threads: (0..threads).map(thread).collect(),
            ..About::default()
        },
        steps: vec![steps; threads],
    }
}

fn machine() -> Profile {
    Profile::find("1x16").unwrap()
}

fn run(trace: &Trace, lock: &str, threads: usize, change: Option<Change>) -> Outcome {
    run_as(trace, lock, threads, change, false)
}

fn run_as(trace: &Trace, lock: &str, threads: usize, change: Option<Change>, tries_first: bool) -> Outcome {
    let load = Load::new(trace, 0.0);
    let how = How {
        profile: machine(),
        mutex: locks::find(lock, false).unwrap(),
        rwlock: locks::find("glibc", true).unwrap(),
        other: None,
        change: change.map(|change| (0, change)),
        threads: load.divide(threads),
        seed: 1,
        arbitration: Arbitration::default(),
        acquisitions: 4_000,
        tries_first,
    };
    replay(&load, &how).unwrap()
}

fn near(found: f64, wanted: f64, by: f64) {
    assert!((found / wanted - 1.0).abs() < by, "{found} instead of {wanted}");
}

/// N threads that think for z and hold for h: at most N / (z + h), and at most 1 / h.
#[test]
fn one_lock_keeps_its_bounds() {
    let trace = one_lock(4, 10_000, 90_000, 0);
    let per_second = |nanos: f64| 1e9 / nanos;
    for lock in ["mcs", "shfl", "glibc"] {
        near(run(&trace, lock, 1, None).throughput, per_second(100_000.0), 0.03);
        let four = run(&trace, lock, 4, None).throughput;
        assert!(four < 4.03 * per_second(100_000.0) && four > 3.3 * per_second(100_000.0), "{lock}: {four}");
    }
    let full = run(&trace, "mcs", 16, None);
    near(full.throughput, per_second(10_000.0), 0.08);
    // Each of 16 threads waits unless it thinks or holds: 10 of 16 are in their cycle.
    near(full.waiting, 1.0 - 10.0 / 16.0, 0.15);
    assert!(full.classes[0].2 > 0.9, "{full:?}");
}

/// Threads that are recorded try first. Under glibc's mutex the second attempt finds short sections over, in place of a sleep. A thread
/// alone, and long sections, see no difference.
#[test]
fn the_second_attempt_comes_after_a_short_section() {
    let rate = |trace: &Trace, lock, threads, tries| run_as(trace, lock, threads, None, tries).throughput;
    let short = one_lock(2, 40, 100, 0);
    let (plain, tried) = (rate(&short, "glibc", 2, false), rate(&short, "glibc", 2, true));
    assert!(tried > plain, "{tried} instead of more than {plain}");
    near(rate(&short, "glibc", 1, true), rate(&short, "glibc", 1, false), 0.01);
    let long = one_lock(4, 10_000, 90_000, 0);
    near(rate(&long, "mcs", 16, true), 1e9 / 10_000.0, 0.08);
}

/// In glibc's reader-writer lock a writer that waits is next when the last reader leaves. The reader, which is back long before the
/// writer has woken up, waits for it.
#[test]
fn the_last_reader_hands_glibcs_lock_to_a_waiting_writer() {
    let lock = locks::find("glibc", true).unwrap()();
    let order = RefCell::new(Vec::new());
    let bodies: Vec<Box<dyn FnOnce() + '_>> = vec![
        Box::new(|| {
            let held = lock.read();
            work(100_000);
            drop(held);
            let _held = lock.read();
            order.borrow_mut().push("reader");
        }),
        Box::new(|| {
            work(10_000);
            let _held = lock.write();
            order.borrow_mut().push("writer");
        }),
    ];
    latchwork_sim::run(&machine(), &Options::default(), bodies).unwrap();
    assert_eq!(*order.borrow(), ["writer", "reader"]);
}

#[test]
fn changes_change_what_they_say() {
    let trace = one_lock(4, 10_000, 90_000, 0);
    let per_second = |nanos: f64| 1e9 / nanos;
    let run = |change| run(&trace, "mcs", 16, Some(change)).throughput;
    // 16 threads need 16 x 5 us in 95 us: enough for all but a little queueing.
    let halved = run(Change::Hold(0.5));
    assert!(halved > 14.0 * per_second(95_000.0) && halved < 16.1 * per_second(95_000.0), "{halved}");
    near(run(Change::Free), 16.0 * per_second(100_000.0), 0.03);
    let split = run(Change::Split(16));
    assert!(split > 14.0 * per_second(100_000.0) && split < 16.1 * per_second(100_000.0), "{split}");
    near(run(Change::Hold(2.0)), per_second(20_000.0), 0.08);
}

/// Threads that poll with trylock get the lock one after the other, and the polls that a replay decides anew take the place of the
/// recorded ones.
#[test]
fn polling_threads_exclude_each_other() {
    let mut trace = one_lock(4, 10_000, 90_000, 0);
    let acquisitions = |trace: &mut Trace| {
        trace
            .steps
            .iter_mut()
            .flatten()
            .filter(|step| step.op == op::ACQUIRE)
            .for_each(|step| step.op = op::TRY);
    };
    acquisitions(&mut trace);
    let many = run(&trace, "mcs", 16, None);
    assert!(many.throughput < 1.03e9 / 10_000.0 && many.throughput > 0.7e9 / 10_000.0, "{many:?}");
    assert!(many.waiting > 0.2, "{many:?}");
    // Ten attempts fail before each one that gets the lock.
    let mut polling = trace.clone();
    for steps in &mut polling.steps {
        let failed = |cpu| Step { op: op::FAILED, object: 0, cpu, off: 0, wait: 0 };
        let attempts = |step: Step| match step.op {
            op::TRY => {
                let polls = (0..10).map(|poll| failed(if poll == 0 { step.cpu } else { 1_000 }));
                polls.chain([Step { cpu: 1_000, ..step }]).collect()
            }
            _ => vec![step],
        };
        *steps = steps.drain(..).flat_map(attempts).collect();
    }
    near(run(&polling, "mcs", 1, None).throughput, 1e9 / 100_000.0, 0.02);
    let shares = Load::new(&polling, 0.0).shares;
    near(shares.waiting, 10_000.0 / 110_000.0, 0.01);
    // A thread that holds another lock tries once: what it wants may be wanted by the one that it waits for.
    let mut both = one_lock(2, 10_000, 90_000, 0);
    both.about.objects.push(0);
    for (thread, steps) in both.steps.iter_mut().enumerate() {
        let objects = [thread as u32, 1 - thread as u32];
        let step = |op, object, cpu| Step { op, object, cpu, off: 0, wait: 0 };
        *steps = (0..200)
            .flat_map(|_| {
                [
                    step(op::ACQUIRE, objects[0], 90_000),
                    step(op::TRY, objects[1], 1_000),
                    step(op::RELEASE, objects[1], 9_000),
                    step(op::RELEASE, objects[0], 0),
                ]
            })
            .collect();
    }
    assert!(run(&both, "mcs", 16, None).throughput > 1e9 / 20_000.0);
}

/// A holder that sleeps is in its section, too: in a system call, or in a wait that nobody in the trace ends.
#[test]
fn shorter_sections_are_shorter_sleeps() {
    let mut sleeping = one_lock(4, 10_000, 90_000, 0);
    sleeping
        .steps
        .iter_mut()
        .flatten()
        .filter(|step| step.op == op::RELEASE)
        .for_each(|step| step.off = 990_000);
    let mut waiting = one_lock(4, 10_000, 90_000, 0);
    waiting.about.classes.push(Class { name: "outside".into(), kind: "condvar".into(), is_static: false });
    waiting.about.objects.push(1);
    let wait = Step { op: op::SLEEP, object: 1, cpu: 0, off: 0, wait: 990_000 };
    for steps in &mut waiting.steps {
        let of_section = |step: Step| if step.op == op::RELEASE { vec![wait, step] } else { vec![step] };
        *steps = steps.drain(..).flat_map(of_section).collect();
    }
    for trace in [sleeping, waiting] {
        near(run(&trace, "mcs", 16, None).throughput, 1e9 / 1_000_000.0, 0.08);
        let shorter = run(&trace, "mcs", 16, Some(Change::Hold(0.1))).throughput;
        // A sleeper takes some microseconds to wake up.
        near(shorter, 1e9 / 100_000.0, 0.15);
    }
}

#[test]
fn a_lock_of_one_thread_belongs_to_its_copies() {
    let mut trace = one_lock(2, 10_000, 0, 0);
    trace.about.objects.push(0);
    trace.steps[1].iter_mut().for_each(|step| step.object = 1);
    // All 16 threads compute in their own sections all the time.
    near(run(&trace, "mcs", 16, None).throughput, 16.0 * 1e9 / 10_000.0, 0.05);
    // A static lock belongs to nobody: one of the two is taken by half of the threads.
    trace.about.classes[0].is_static = true;
    near(run(&trace, "mcs", 16, None).throughput, 2.0 * 1e9 / 10_000.0, 0.08);
    // Nor does the lock of a role's only thread.
    near(run(&one_lock(1, 10_000, 0, 0), "mcs", 16, None).throughput, 1e9 / 10_000.0, 0.08);
}

#[test]
fn readers_share() {
    let mut trace = one_lock(2, 10_000, 1_000, 0);
    trace.about.classes[0].kind = "rwlock".into();
    for step in trace.steps.iter_mut().flatten().filter(|step| step.op == op::ACQUIRE) {
        step.op = op::READ;
    }
    near(run(&trace, "mcs", 16, None).throughput, 16.0 * 1e9 / 11_000.0, 0.05);
}

fn plan(trace: &Trace, wanted: &[&str], what_if: &[&str]) -> Plan {
    let load = Load::new(trace, 0.0);
    let what_if =
        what_if.iter().map(|text| WhatIf::parse(text, &load).map_err(|error| error.message).unwrap());
    let what_if = what_if.collect();
    let wanted: Vec<String> = wanted.iter().map(|name| (*name).into()).collect();
    let curves = Curve::all(&wanted, what_if, &trace.about, &load).map_err(|error| error.message).unwrap();
    let (home_is, threads) = ("for a test".into(), vec![2, 16]);
    Plan { load, machine: machine(), home: machine(), home_is, curves, threads, seed: 7, most: 2_000 }
}

/// As the report shows it: the text and the JSON.
fn report(trace: &Trace, plan: &Plan) -> (String, serde_json::Value) {
    let answer = plan.run(false).map_err(|error| error.message).unwrap().unwrap();
    let report = Report::new(&trace.about, plan, &answer);
    (report.text(), serde_json::from_str(&report.json()).unwrap())
}

#[test]
fn a_prediction_names_the_knee_and_the_lock_that_limits() {
    let trace = one_lock(4, 10_000, 90_000, 0);
    let plan = plan(&trace, &["mcs"], &["the lock: hold/2", "lock: uncontended"]);
    let (text, json) = report(&trace, &plan);
    assert_eq!(json["refused"], false, "{text}");
    let curve = &json["curves"][0];
    assert_eq!((&curve["name"], &curve["knee"]), (&"mcs".into(), &16.into()));
    let last = &curve["points"][1];
    assert_eq!(last["limit"]["name"], "the lock");
    assert!(last["low"].as_f64() <= last["throughput"].as_f64());
    assert!(last["throughput"].as_f64() <= last["high"].as_f64());
    assert_eq!(json["curves"][1]["against_recorded"], "faster", "{text}");
    assert_eq!(json["curves"][2]["against_recorded"], "faster", "{text}");
    assert!(text.contains("the lock: hold/2: 90% of its best from 16 threads on"), "{text}");
    // The same again gives the same bytes.
    assert_eq!(report(&trace, &plan), (text, json));
}

#[test]
fn locks_that_hardly_differ_are_undecided() {
    // With so much thinking no lock matters.
    let trace = one_lock(2, 100, 900_000, 0);
    let (text, json) = report(&trace, &plan(&trace, &["glibc", "shfl"], &[]));
    assert_eq!(json["best_lock"], serde_json::Value::Null, "{text}");
    assert_eq!(json["curves"][1]["against_recorded"], "undecided", "{text}");
    assert!(text.contains("undecided, the ranges overlap"), "{text}");
}

#[test]
fn a_recording_that_is_not_steady_is_mentioned() {
    let warnings = |trace: &Trace| check::of_trace(&Load::new(trace, 0.0), 16).warnings.join("\n");
    let mut trace = one_lock(2, 1_000, 9_000, 0);
    assert_eq!(warnings(&trace), "");
    // The last quarter of the events takes as long as the others together, so it is the second half.
    for steps in &mut trace.steps {
        steps[600..].iter_mut().for_each(|step| step.cpu *= 3);
    }
    assert!(warnings(&trace).contains("has 66.7% fewer acquisitions"), "{}", warnings(&trace));
}

/// Two threads that never met in the recording: nothing shows that the replay waits as the program would.
#[test]
fn waiting_that_was_not_recorded_is_mentioned() {
    let mentions = |hold| {
        let trace = one_lock(2, hold, 100_000, 0);
        let (text, json) = report(&trace, &plan(&trace, &["mcs"], &[]));
        assert_eq!(json["refused"], false, "{text}");
        text.contains("has not been checked")
    };
    assert!(mentions(8_000));
    assert!(!mentions(10));
}

/// Each refusal ends with the command to try next.
fn end_with_commands<'a>(refusals: impl IntoIterator<Item = &'a str>) {
    for refusal in refusals {
        let command = refusal.rsplit_once(": ").map_or("", |(_, command)| command);
        assert!(command.starts_with("latchwork ") && command.ends_with(" -- PROG"), "{refusal}");
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    // Threads that are said to have waited for half of their time, under a lock that is free for most of it.
    let trace = one_lock(4, 1_000, 99_000, 100_000);
    let (text, json) = report(&trace, &plan(&trace, &[], &[]));
    assert_eq!(json["refused"], true, "{text}");
    assert_eq!(json["curves"], serde_json::json!([]));
    let refusals = json["check"]["refusals"].as_array().unwrap();
    assert_eq!(refusals.len(), 2, "{refusals:#?}");
    end_with_commands(refusals.iter().map(|refusal| refusal.as_str().unwrap()));
    assert!(text.contains("No prediction") && text.contains("more acquisitions a second"), "{text}");
    assert!(text.contains("0.0% of their time, in the recording for 50.0%"), "{text}");
    // Where events are missing, that is the reason, and the only one.
    let mut trace = trace;
    trace.about.threads[0].dropped = 1_000;
    let (text, json) = report(&trace, &plan(&trace, &[], &[]));
    let refusals = json["check"]["refusals"].as_array().unwrap();
    assert!(refusals.len() == 1 && text.contains("were dropped"), "{text}");
    end_with_commands(refusals.iter().map(|refusal| refusal.as_str().unwrap()));
}

#[test]
fn time_that_the_recorder_cannot_see_is_refused_or_mentioned() {
    for (off, refusals, warnings) in [(100_000, 1, 0), (10_000, 0, 1), (1_000, 0, 0)] {
        let mut trace = one_lock(4, 1_000, 99_000, 0);
        trace
            .steps
            .iter_mut()
            .flatten()
            .filter(|step| step.op == op::ACQUIRE)
            .for_each(|step| step.off = off);
        let check = check::of_trace(&Load::new(&trace, 0.0), 16);
        assert_eq!((check.refusals.len(), check.warnings.len()), (refusals, warnings), "{check:#?}");
        end_with_commands(check.refusals.iter().map(|refusal| &**refusal));
    }
    let mut trace = one_lock(4, 1_000, 99_000, 0);
    trace.about.threads[0].dropped = 1_000;
    let check = check::of_trace(&Load::new(&trace, 0.0), 16);
    assert!(check.refusals[0].contains("--size"), "{check:#?}");
    trace.steps.iter_mut().for_each(|steps| *steps = vec![Step { op: op::EXIT, ..Step::default() }]);
    let check = check::of_trace(&Load::new(&trace, 0.0), 16);
    assert!(check.refusals[0].contains("no acquisition"), "{check:#?}");
    end_with_commands(check.refusals.iter().map(|refusal| &**refusal));
}

/// However small they are, roles are replayed that have most of the acquisitions together.
#[test]
fn many_small_roles_are_replayed() {
    let mut trace = one_lock(250, 100, 900, 0);
    trace.about.threads.iter_mut().enumerate().for_each(|(at, thread)| thread.role = format!("worker {at}"));
    let load = Load::new(&trace, 0.0);
    assert_eq!((load.roles.len(), load.left_out.len()), (248, 2));
    assert_eq!(check::of_trace(&load, 250).refusals, [""; 0]);
    // Of a role with three quarters and one that hardly uses locks, one is.
    let mut trace = one_lock(2, 100, 900, 0);
    trace.about.threads[1].role = "idle".into();
    trace.steps[1].truncate(2);
    assert_eq!(Load::new(&trace, 0.0).left_out, ["idle"]);
}

/// Where there is nothing to replay, `--anyway` predicts nothing.
#[test]
fn no_option_is_recommended_in_vain() {
    let mut trace = one_lock(2, 1_000, 9_000, 0);
    let anyway = "--anyway predicts all the same";
    let refused = plan(&one_lock(4, 1_000, 99_000, 100_000), &[], &[]);
    assert!(report(&trace, &refused).0.contains(anyway));
    trace.steps.iter_mut().for_each(|steps| *steps = vec![Step { op: op::EXIT, ..Step::default() }]);
    let (text, _) = report(&trace, &plan(&trace, &[], &[]));
    assert!(text.contains("no acquisition of a lock") && !text.contains(anyway), "{text}");
}

/// The process was stopped in one of its unlocks: the simulation is not made so much longer.
#[test]
fn a_call_of_minutes_makes_no_long_simulation() {
    let mut trace = one_lock(4, 10_000, 90_000, 0);
    trace.steps[0][101].wait = 653_000_000_000;
    assert_eq!(trace.steps[0][101].op, op::RELEASE);
    near(run(&trace, "mcs", 4, None).throughput, 4.0 * 1e9 / 100_000.0, 0.2);
}

/// Threads that take two locks in one order, and later in the other one. The program keeps these times apart, and the replay does not.
#[test]
fn locks_in_different_orders_are_refused() {
    let mut trace = one_lock(2, 1_000, 1_000, 0);
    trace.about.objects.push(0);
    let step = |op, object| Step { op, object, cpu: 1_000, off: 0, wait: 0 };
    let nested = |outer, inner| {
        let steps = [(op::ACQUIRE, outer), (op::ACQUIRE, inner), (op::RELEASE, inner), (op::RELEASE, outer)];
        steps.map(|(op, object)| step(op, object)).repeat(500)
    };
    for lock in ["mcs", "glibc", "shfl"] {
        trace.steps = vec![[nested(0, 1), nested(1, 0)].concat(); 2];
        trace.about.mutex = lock.into();
        let (text, json) = report(&trace, &plan(&trace, &[], &[]));
        assert_eq!(json["refused"], true, "{lock}: {text}");
        assert!(text.contains("in different orders at different times"), "{lock}: {text}");
        trace.steps = vec![nested(0, 1); 2];
        assert!(!run(&trace, lock, 4, None).deadlocked, "{lock}");
    }
}

#[test]
fn a_trace_cannot_control_the_terminal() {
    let mut trace = one_lock(4, 10_000, 90_000, 0);
    trace.about.command = vec!["\x1b[31m./program\n".into(), "--fast".into()];
    trace.about.classes[0].name = "\x1b]0;title\x07".into();
    let text = report(&trace, &plan(&trace, &["mcs"], &[])).0;
    assert!(text.starts_with(" [31m./program  --fast: ") && text.contains("]0;title"), "{text}");
    assert!(!text.chars().any(|char| char.is_control() && char != '\n'), "{text}");
}

#[test]
fn roles_keep_their_proportions() {
    let mut trace = one_lock(4, 1_000, 9_000, 0);
    trace.about.threads[3].role = "writer".into();
    let load = Load::new(&trace, 0.0);
    assert_eq!(load.roles.iter().map(|role| role.threads).collect::<Vec<_>>(), [3, 1]);
    assert_eq!(load.divide(4), [3, 1]);
    assert_eq!(load.divide(192), [144, 48]);
    assert_eq!(load.divide(2), [1, 1]);
    // However many roles there are, the parts make up the whole.
    for roles in [&[3, 3, 1, 1][..], &[3, 3, 3, 3], &[3; 9], &[7, 1, 1, 1]] {
        let mut load = Load::new(&trace, 0.0);
        let one = load.roles[0].clone();
        load.roles = roles.iter().map(|threads| Role { threads: *threads, ..one.clone() }).collect();
        for threads in roles.len()..200 {
            let parts = load.divide(threads);
            assert_eq!(parts.iter().sum::<usize>(), threads, "{roles:?}: {parts:?}");
            assert!(parts.iter().all(|part| *part > 0));
        }
    }
    let mut four = Load::new(&trace, 0.0);
    let one = four.roles[0].clone();
    four.roles = [3, 3, 1, 1].map(|threads| Role { threads, ..one.clone() }).to_vec();
    assert_eq!((four.divide(4), four.divide(6)), (vec![1, 1, 1, 1], vec![2, 2, 1, 1]));
}

#[test]
fn bad_changes_are_refused() {
    let load = Load::new(&one_lock(2, 1, 1, 0), 0.0);
    for (text, why) in [
        ("the lock", "write 'NAME: hold/2'"),
        ("the lock: hold/0", "a number from 0.01"),
        ("the lock: split 1", "a number from 2"),
        ("the lock: faster", "write 'NAME: hold/2'"),
        ("another: hold/2", "it has the lock"),
    ] {
        let message = WhatIf::parse(text, &load).unwrap_err().message;
        assert!(message.contains(why), "{text}: {message}");
    }
    let trace = one_lock(2, 1, 1, 0);
    let what_if =
        vec![WhatIf::parse("the lock: lock nonsense", &load).map_err(|error| error.message).unwrap()];
    assert!(Curve::all(&[], what_if, &trace.about, &load).is_err());
    assert!(Curve::all(&["nonsense".into()], Vec::new(), &trace.about, &load).is_err());
}

/// A lock of the other kind would change nothing, and the answer would be that it is worth nothing.
#[test]
fn a_lock_of_the_other_kind_is_refused() {
    let mut trace = one_lock(2, 1, 1, 0);
    for (kind, other, what) in [("mutex", "pf-q", "a reader-writer lock"), ("rwlock", "mcs", "a mutex")] {
        trace.about.classes[0].kind = kind.into();
        let load = Load::new(&trace, 0.0);
        let what_if = WhatIf::parse(&format!("the lock: lock {other}"), &load).map_err(|error| error.message);
        let error = Curve::all(&[], vec![what_if.unwrap()], &trace.about, &load).err().unwrap();
        assert!(
            error.status == 2 && error.message.contains(&format!("{other} is {what}")),
            "{}",
            error.message
        );
        let error = Curve::all(&[other.into()], Vec::new(), &trace.about, &load).err().unwrap();
        assert!(
            error.status == 2 && error.message.contains(&format!("{other} is {what}")),
            "{}",
            error.message
        );
    }
}

/// The range is that of all latencies: also of those that only a calibrated machine has.
#[test]
fn every_latency_is_lowered_and_raised() {
    // Instructions, shares, and what is no latency.
    let stays = |name: &str| match name.split_once('.').expect("a part and a name") {
        ("processor", _) => true,
        ("lines", name) => {
            [
                "hit",
                "store",
                "atomic",
                "atomic_wait",
                "request",
                "jitter",
                "pair_prefetch",
                "scan",
                "scan_misses",
            ]
            .contains(&name)
                || name.starts_with("read_occupancy")
        }
        ("memory", name) => name != "shared_hit",
        ("eevdf", _) => true,
        (_, name) => {
            ["falls_asleep", "quantum", "membarrier", "interrupt", "pause", "pause_every"].contains(&name)
        }
    };
    let profile = Profile::find("zen3-2").unwrap();
    let mut higher = profile.clone();
    scale(&mut higher, 2.0);
    for ((name, before), (_, after)) in profile.numbers().into_iter().zip(higher.numbers()) {
        let by = if stays(name) { 1.0 } else { 2.0 };
        assert_eq!(after.value, by * before.value, "{name}");
    }
    assert!(profile.kernel.wakeup_busy.is_some() && profile.memory.is_some());
}
