//! `latchwork-lab torture`, on the library's locks and on some that are broken on purpose.

use crate::common::{latchwork, output, scratch, stderr, stdout, with_growing_time};
use serde_json::Value;
use std::process::{Child, Stdio};
use std::time::Duration;

/// Tortures locks for longer and longer, until what must happen has happened: on a busy machine threads may hardly run in
/// a short time. Nothing may fail meanwhile.
fn pass(locks: &str, check: impl Fn(&[Value]) -> bool) {
    with_growing_time(|seconds| {
        let what = ["torture", "--lock", locks, "--seconds", seconds, "--threads", "6", "--seed", "5"];
        let output = output(&[&what[..], &["--json", "-"]].concat());
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let json: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(
            (&json["seed"], &json["threads"], &json["interrupted"]),
            (&5.into(), &6.into(), &false.into())
        );
        check(json["locks"].as_array().unwrap()).then_some(())
    });
}

fn total(lock: &Value, what: &str) -> u64 {
    lock["totals"][what].as_u64().unwrap()
}

#[test]
fn locks_of_both_kinds_pass() {
    let facts =
        |lock: &Value| (lock["name"].as_str().unwrap().to_owned(), lock["kind"].clone(), lock["ok"].clone());
    pass("mcs,pf-t", |locks| {
        assert_eq!(facts(&locks[0]), ("mcs".into(), "mutex".into(), true.into()));
        assert_eq!(facts(&locks[1]), ("pf-t".into(), "rwlock".into(), true.into()));
        for lock in locks {
            // Every scenario has its turn, on both machines.
            let rounds = if lock["kind"] == "mutex" { 12 } else { 10 };
            assert!(lock["rounds"].as_u64().unwrap() >= rounds, "{lock}");
            assert_eq!(lock["failed"], Value::Null);
        }
        let [mcs, pf_t] = locks else { panic!("{locks:?}") };
        locks.iter().all(|lock| total(lock, "writes") > 0)
            && total(mcs, "condition_waits") > 0
            && total(pf_t, "reads") > 0
    });
}

#[test]
fn reclamation_strategies_pass() {
    pass("rcu,hazard", |locks| {
        let names: Vec<_> = locks.iter().map(|lock| lock["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["rcu", "hazard"]);
        for lock in locks {
            assert_eq!((&lock["kind"], &lock["ok"]), (&"reclamation".into(), &true.into()));
            // On both machines.
            assert!(lock["rounds"].as_u64().unwrap() >= 2, "{lock}");
        }
        locks.iter().all(|lock| total(lock, "reads") > 0)
    });
}

#[test]
fn a_broken_lock_is_reported_with_the_command_that_repeats_it() {
    let directory = scratch("torture");
    let file = directory.join("result.json");
    let output = output(&[
        "torture",
        "--twin",
        "early-unlock",
        "--seconds",
        "120",
        "--seed",
        "3",
        "--json",
        file.to_str().unwrap(),
    ]);
    assert_eq!(output.status.code(), Some(1));
    let said = stderr(&output);
    assert!(said.contains("latchwork-lab: early-unlock failed in exclusion with jitter: "), "{said}");
    assert!(said.contains("again: latchwork-lab torture --twin early-unlock --seconds 120"), "{said}");
    assert!(said.contains("--seed 3"), "{said}");
    let table = stdout(&output);
    assert!(table.lines().any(|line| line.contains("early-unlock") && line.contains("FAILED")), "{table}");
    let json: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!(json["locks"][0]["ok"], false);
    let what = json["locks"][0]["failed"]["what"].as_str().unwrap();
    assert!(said.contains(what) && table.contains(what), "{what}");
}

#[test]
fn a_lock_that_stands_still_is_shown_with_its_memory_and_its_threads() {
    let output = output(&["torture", "--twin", "node-reused", "--seconds", "120", "--seed", "1"]);
    assert_eq!(output.status.code(), Some(1));
    let said = stderr(&output);
    assert!(said.contains("node-reused failed in exclusion"), "{said}");
    if said.contains("stands still") {
        assert!(said.contains("memory: "), "{said}");
        assert!(
            said.lines().any(|line| line.contains("place ") && line.contains("waits to write")),
            "{said}"
        );
    } else {
        // A node that is used twice may also let two in.
        assert!(
            said.contains("inside") || said.contains("torn") || said.contains("says that it is free"),
            "{said}"
        );
    }
}

/// With two of the broken locks. The torture's own tests have all of them.
#[test]
fn the_self_test_passes() {
    for twin in ["skipped-reader", "early-unlock"] {
        let output = output(&["torture", "--self-test", "--twin", twin, "--seed", "1"]);
        let said = stdout(&output);
        assert_eq!(output.status.code(), Some(0), "{said}");
        let caught: Vec<_> = said.lines().filter(|line| line.starts_with("caught ")).collect();
        assert!(caught.len() == 1 && caught[0].contains(twin), "{said}");
    }
}

#[test]
fn bad_input_is_refused_in_one_line() {
    for (arguments, words) in [
        (&["--lock", "shlf"][..], "did you mean shfl?"),
        (&["--lock", "mcs,zzzzzz"], "there is no lock called \"zzzzzz\"; --lock can be: tas, "),
        (&["--lock", ""], "there is no lock called \"\""),
        (&["--twin", "early-lock"], "did you mean early-unlock?"),
        (&["--json", "/no/such/directory/x.json"], "--json /no/such/directory/x.json: cannot be written"),
    ] {
        let output = output(&[&["torture"], arguments].concat());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let said = stderr(&output);
        assert!(said.starts_with("latchwork-lab: ") && said.contains(words), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
    for arguments in [
        ["--threads", "0"],
        ["--threads", "5000"],
        ["--seconds", "0"],
        ["--seconds", "x"],
        ["--patience", "0"],
    ] {
        let output = output(&[&["torture"], &arguments[..]].concat());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(stderr(&output).contains(arguments[0]), "{}", stderr(&output));
    }
}

/// A run, and the process in it that tortures the first lock. The run watches for signals by then.
fn start(arguments: &[&str]) -> (Child, i32) {
    let child =
        latchwork().arg("torture").args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let child = child.unwrap();
    let children = format!("/proc/{0}/task/{0}/children", child.id());
    let torturer = loop {
        let list = std::fs::read_to_string(&children).unwrap();
        if let Some(first) = list.split_whitespace().next() {
            break first.parse().unwrap();
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    (child, torturer)
}

#[test]
fn a_process_that_dies_is_a_failure_of_its_lock_and_the_others_go_on() {
    // On a busy machine the first lock may be done before the signal comes.
    let (output, seconds) = with_growing_time(|seconds| {
        let (child, torturer) = start(&["--lock", "tas,mcs", "--seconds", seconds, "--json", "-"]);
        // SAFETY: a signal to a process of this test.
        unsafe { libc::kill(torturer, libc::SIGKILL) };
        let output = child.wait_with_output().unwrap();
        stderr(&output).contains("tas failed").then(|| (output, seconds.to_owned()))
    });
    assert_eq!(output.status.code(), Some(1));
    let said = stderr(&output);
    assert!(said.contains("tas failed: its process died of signal 9"), "{said}");
    assert!(said.contains(&format!("again: latchwork-lab torture --lock tas --seconds {seconds}")), "{said}");
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    let ok: Vec<_> = json["locks"].as_array().unwrap().iter().map(|lock| lock["ok"].clone()).collect();
    assert_eq!(ok, [false, true]);
}

#[test]
fn ctrl_c_ends_it_with_the_results_so_far() {
    let (mut child, torturer) = start(&["--lock", "tas,mcs", "--seconds", "600", "--json", "-"]);
    std::thread::sleep(Duration::from_millis(500));
    // SAFETY: a signal to our own child, which has not been waited for.
    unsafe { libc::kill(child.id() as i32, libc::SIGINT) };
    let mut text = String::new();
    std::io::Read::read_to_string(&mut child.stdout.take().unwrap(), &mut text).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let json: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["interrupted"], true);
    let locks = json["locks"].as_array().unwrap();
    assert_eq!(locks.len(), 1, "{json}");
    assert_eq!((&locks[0]["name"], &locks[0]["ok"]), (&"tas".into(), &true.into()));
    assert!(!std::path::Path::new(&format!("/proc/{torturer}")).exists(), "it left a process behind");
}
