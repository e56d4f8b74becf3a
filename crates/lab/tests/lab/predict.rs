//! `latchwork-lab predict`: what comes out of a trace that is written here.

use crate::COMMAND;
use crate::common::{latchwork, output, scratch, send, stderr, stdout, until_it_watches_for_ctrl_c};
use latchwork_recording::trace::op;
use latchwork_recording::trace_file::{About, Class, Step, Thread, Trace};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

/// Two threads that compute for 9 us, and then hold the lock for 1 us. Each call waited for so many nanoseconds.
fn write(path: &Path, wait: u64) {
    write_threads(path, 2, wait);
}

fn write_threads(path: &Path, threads: usize, wait: u64) {
    let pair = [
        Step { op: op::ACQUIRE, object: 0, cpu: 9_000, off: 0, wait },
        Step { op: op::RELEASE, object: 0, cpu: 1_000, ..Step::default() },
    ];
    let thread = |tid| Thread { tid, role: "worker".into(), events: 400, ..Thread::default() };
    let trace = Trace {
        about: About {
            command: vec!["./program".into(), "<&>".into()],
            seconds: 1.0,
            cpus: 2,
            mutex: "glibc".into(),
            rwlock: "glibc".into(),
            classes: vec![Class { name: "the lock".into(), kind: "mutex".into(), is_static: true }],
            objects: vec![0],
            threads: (1..=threads as u32).map(thread).collect(),
            ..About::default()
        },
        steps: vec![pair.repeat(200); threads],
    };
    let mut bytes = Vec::new();
    trace.write_to(&mut bytes).unwrap();
    fs::write(path, bytes).unwrap();
}

/// Runs the command in a directory; returns its exit status, and what it wrote: text, JSON, drawing.
fn predict(directory: &Path, more: &[&str]) -> (Option<i32>, String, String, Option<String>) {
    let (json, svg) = (directory.join("predicted.json"), directory.join("predicted.svg"));
    let _ = fs::remove_file(&svg);
    let trace = directory.join("trace.lw");
    let names = [&trace, &json, &svg].map(|path| path.to_str().unwrap());
    let words = ["predict", names[0], "--machine", "1x4", "--recorded-on", "1x2", "--threads", "2,4"];
    let files = ["--json", names[1], "--plot", names[2], "--acquisitions", "1000"];
    let output = output(&[&words[..], &files, more].concat());
    let json = fs::read_to_string(json).unwrap_or_else(|error| panic!("{error}: {}", stderr(&output)));
    (output.status.code(), stdout(&output), json, fs::read_to_string(svg).ok())
}

#[test]
fn the_same_file_and_seed_give_the_same_bytes() {
    let directory = scratch("predict-same");
    write(&directory.join("trace.lw"), 0);
    let first = predict(&directory, &["--what-if", "the lock: hold/2"]);
    assert_eq!(first.0, Some(0), "{}", first.1);
    assert_eq!(predict(&directory, &["--what-if", "the lock: hold/2"]), first);
    assert_ne!(predict(&directory, &["--what-if", "the lock: hold/2", "--seed", "2"]).2, first.2);
    let json: Value = serde_json::from_str(&first.2).unwrap();
    assert_eq!(json["curves"].as_array().map(Vec::len), Some(3), "{json}");
    let svg = first.3.unwrap();
    for wanted in [
        "<svg",
        "threads",
        "acquisitions",
        "1x4 (4 CPUs)",
        "./program &lt;&amp;&gt;",
        "the lock: hold/2",
        "<polygon",
    ] {
        assert!(svg.contains(wanted), "{wanted} is missing: {svg}");
    }
}

/// Also where threads come and go: what is allocated for them does not depend on the allocator.
#[test]
fn the_same_file_and_seed_give_the_same_bytes_with_fork_and_join() {
    let directory = scratch("predict-forks");
    let path = directory.join("trace.lw");
    write_threads(&path, 13, 0);
    let mut trace = Trace::read(&path).unwrap();
    let step = |op, object| Step { op, object, cpu: 1_000, ..Step::default() };
    // The first thread creates two others at a time, and waits for their ends.
    trace.about.threads[0].role = "main".into();
    trace.steps[0] = (0..6)
        .flat_map(|round| {
            let children = [2 * round + 1, 2 * round + 2];
            [op::CREATE, op::JOIN].map(|op| children.map(|child| step(op, child))).concat()
        })
        .chain([step(op::ACQUIRE, 0), step(op::RELEASE, 0)])
        .collect();
    for steps in &mut trace.steps[1..] {
        steps.truncate(10);
        steps.push(step(op::EXIT, 0));
    }
    for (thread, steps) in trace.about.threads.iter_mut().zip(&trace.steps) {
        thread.events = steps.len() as u64;
    }
    let mut bytes = Vec::new();
    trace.write_to(&mut bytes).unwrap();
    fs::write(&path, bytes).unwrap();
    let run = |arenas: &str| {
        let mut command = Command::new(COMMAND);
        command.current_dir(&directory).args([
            "predict",
            "trace.lw",
            "--machine",
            "1x4",
            "--recorded-on",
            "1x2",
        ]);
        command.args(["--threads", "3,5", "--acquisitions", "300", "--anyway", "--json", "-"]);
        let output = command.env("MALLOC_ARENA_MAX", arenas).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        stdout(&output)
    };
    let first = run("1");
    for arenas in ["2", "8", "1", "4"] {
        assert_eq!(run(arenas), first);
    }
}

#[test]
fn output_that_cannot_be_written_is_an_error() {
    let directory = scratch("predict-full");
    write(&directory.join("trace.lw"), 0);
    let words = [
        "predict",
        "trace.lw",
        "--machine",
        "1x2",
        "--recorded-on",
        "1x2",
        "--threads",
        "2",
        "--acquisitions",
        "1000",
    ];
    for more in [&[][..], &["--json", "-"]] {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut command = Command::new(COMMAND);
        let output = command.args(words).args(more).current_dir(&directory).stdout(full).output().unwrap();
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{more:?}: {said}");
        assert!(
            said.starts_with("latchwork-lab: standard output: No space left on device"),
            "{more:?}: {said}"
        );
    }
}

/// The second result would replace the first, or the trace.
#[test]
fn results_and_what_is_read_are_different_files() {
    let directory = scratch("predict-distinct");
    let trace = directory.join("trace.lw");
    write(&trace, 0);
    let before = fs::read(&trace).unwrap();
    for (files, why) in [
        (["--json", "same", "--plot", "./same"], "--json and --plot both name"),
        (["--json", "trace.lw", "--plot", "curves.svg"], "TRACE and --json both name"),
        (["--json", "predicted.json", "--plot", "trace.lw"], "TRACE and --plot both name"),
        (["--json", "-", "--plot", "-"], "--plot -: only --json is printed"),
    ] {
        let mut command = latchwork();
        command.args(["predict", "trace.lw", "--machine", "1x4"]).args(files).current_dir(&directory);
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{files:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(why), "{files:?}: {}", stderr(&output));
    }
    assert!(fs::read(&trace).unwrap() == before && fs::read_dir(&directory).unwrap().count() == 1);
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let output =
        Command::new(COMMAND).args(["predict", "/no/such/trace.lw", "--machine", "1x2"]).output().unwrap();
    let said = stderr(&output);
    assert!(said.starts_with("latchwork-lab: /no/such/trace.lw: No such file"), "{said}");
}

#[test]
fn more_threads_than_can_be_simulated_are_refused() {
    let directory = scratch("predict-threads");
    write_threads(&directory.join("trace.lw"), 1_100, 0);
    let mut command = Command::new(COMMAND);
    command.current_dir(&directory).args(["predict", "trace.lw", "--machine", "1x4", "--threads", "2"]);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let wanted = "1100 threads ran at the same time, and at most 1024 can be simulated. ";
    assert!(stderr(&output).contains(wanted), "{}", stderr(&output));
    assert!(
        stderr(&output).ends_with("latchwork record --delay 10 --seconds 5 -- PROG\n"),
        "{}",
        stderr(&output)
    );
}

/// The first signal ends it, also in the middle of long simulations.
#[test]
fn a_signal_ends_simulations_that_run() {
    let directory = scratch("predict-signal");
    write(&directory.join("trace.lw"), 0);
    let mut command = latchwork();
    command.current_dir(&directory).args(["predict", "trace.lw", "--machine", "1x4", "--recorded-on", "1x2"]);
    command
        .args(["--threads", "2", "--acquisitions", "10000000"])
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    until_it_watches_for_ctrl_c(&child);
    send(&child, libc::SIGINT);
    let ended = (0..3000).find_map(|_| {
        thread::sleep(Duration::from_millis(100));
        child.try_wait().unwrap()
    });
    let _ = child.kill();
    assert_eq!(ended.expect("it ends within 5 minutes").code(), Some(128 + libc::SIGINT));
}

#[test]
fn a_refusal_draws_nothing() {
    let directory = scratch("predict-refused");
    // They are said to have waited for half of their time.
    write(&directory.join("trace.lw"), 10_000);
    let (status, text, json, svg) = predict(&directory, &[]);
    assert_eq!((status, svg), (Some(1), None), "{text}");
    assert!(text.contains("No prediction"), "{text}");
    assert_eq!(serde_json::from_str::<Value>(&json).unwrap()["refused"], true);
    let (status, text, _, svg) = predict(&directory, &["--anyway"]);
    assert_eq!(status, Some(0), "{text}");
    assert!(svg.unwrap().contains("NOT TO BE TRUSTED"));
}
