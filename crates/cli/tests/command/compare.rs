//! `latchwork compare` on small shell programs.

use crate::common::{
    alive, in_time, latchwork_of_locking_programs as latchwork, locking_library, mark, scratch, send, stderr,
    stdout, until_alive, with_growing_time,
};
use serde_json::Value;
use std::fs;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Other programs, and other tests, may use the machine meanwhile: what is measured here is not looked at.
const COMPARE: &[&str] = &["compare", "--settle", "0"];

fn output(arguments: &[&str]) -> Output {
    latchwork().args(arguments).output().unwrap()
}

fn compare(options: &[&str], script: &str) -> (std::process::Output, Value) {
    let output =
        output(&[COMPARE, &["--warmup", "0", "--json", "-"], options, &["--", "sh", "-c", script]].concat());
    let json = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
    (output, json)
}

#[test]
fn json_holds_every_run() {
    let (output, json) = compare(&["--runs", "2", "--mutex", "mcs,ttas"], "sleep 0.02");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let candidates = json["candidates"].as_array().unwrap();
    let labels: Vec<_> = candidates.iter().map(|candidate| candidate["label"].as_str().unwrap()).collect();
    assert_eq!(labels, ["glibc", "mcs", "ttas"]);
    for candidate in candidates {
        let runs = candidate["runs"].as_array().unwrap();
        assert_eq!(runs.len(), 2);
        for (index, run) in runs.iter().enumerate() {
            assert_eq!(run["round"], index + 1);
            assert!(run["wall_s"].as_f64().unwrap() >= 0.02);
            assert!(run["memory_bytes"].as_u64().unwrap() > 100_000);
            assert_eq!(run["metric"], Value::Null);
        }
        assert!(candidate["summary"]["wall_s"]["ratio"].as_f64().unwrap() > 0.0);
    }
    assert_eq!(candidates[0]["verdict"], "baseline");
    assert_eq!(candidates[1]["verdict"], "too few runs");
    assert_eq!(json["interrupted"], false);
    assert!(json["machine"]["cpus"].as_u64().unwrap() > 0);
    assert_eq!(json["command"][0], "sh");
}

#[test]
fn each_run_has_its_locks_and_nothing_else() {
    let directory = scratch("locks");
    let log = directory.join("log");
    let others = "$LATCHWORK_STATS$LATCHWORK_CHECK";
    let script = format!("echo \"$LATCHWORK_MUTEX,$LATCHWORK_RWLOCK,{others}\" >> {}", log.display());
    let output = latchwork()
        .args(COMPARE)
        .args(["--runs", "3", "--warmup", "1", "--mutex", "mcs", "--", "sh", "-c", &script])
        .env("LATCHWORK_STATS", "1")
        .env("LATCHWORK_CHECK", "1")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let text = fs::read_to_string(&log).unwrap();
    let (glibc, mcs) = (",,\n", "mcs,glibc,\n");
    assert_eq!(text.matches(mcs).count(), 4, "{text}");
    assert_eq!(text.lines().count(), 8, "{text}");
    // The order changes from round to round.
    assert_eq!(text, [glibc, mcs, mcs, glibc, mcs, glibc, glibc, mcs].concat());
}

#[test]
fn the_metric_decides_in_the_direction_asked_for() {
    // The lock's name is all that tells the candidates apart here.
    let script = "if [ \"$LATCHWORK_MUTEX\" = mcs ]; then echo rate: 2,000; else echo rate: 1000; fi >&2";
    let (_, json) = compare(&["--runs", "6", "--mutex", "mcs", "--metric", r"rate: ([\d,]+)"], script);
    assert_eq!(json["candidates"][1]["summary"]["metric"]["median"], 2000.0);
    assert_eq!(json["candidates"][1]["summary"]["metric"]["ratio"], 2.0);
    assert_eq!(json["candidates"][1]["verdict"], "better");
    let lower = ["--runs", "6", "--mutex", "mcs", "--metric", r"rate: ([\d,]+)", "--lower-is-better"];
    assert_eq!(compare(&lower, script).1["candidates"][1]["verdict"], "worse");

    let table = output(&[COMPARE, &lower[..4], &lower[4..6], &["--", "sh", "-c", script]].concat());
    let text = stdout(&table);
    assert!(text.contains("mcs serves the program best: 2.00 times glibc's metric."), "{text}");
    assert!(text.contains("latchwork run --mutex mcs -- sh -c '"), "{text}");
}

/// A program of a comparison is in the background of the terminal: the kernel stops it when it reads from the terminal.
#[test]
fn what_waits_for_the_terminal_is_not_waited_for() {
    let asks = "read answer < /dev/tty";
    let server = ["--server", "sh -c 'read answer < /dev/tty'", "--ready", "ready", "--load", "true"];
    let load = ["--server", "sh -c 'echo ready; sleep 99'", "--ready", "ready", "--load", asks];
    for (arguments, what) in [
        (&["--prepare", asks, "--", "true"][..], "it waits for the terminal"),
        (&["--", "sh", "-c", "stty -echo < /dev/tty"], "it waits for the terminal"),
        (&server, "the server waits for the terminal"),
        (&load, "the load waits for the terminal"),
    ] {
        let (mut master, mut slave) = (0, 0);
        let null = std::ptr::null_mut();
        // SAFETY: room for both descriptors; the other arguments are not asked for.
        assert_eq!(unsafe { libc::openpty(&mut master, &mut slave, null, null.cast(), null.cast()) }, 0);
        // SAFETY: nothing else has these descriptors.
        let [_master, slave] = [master, slave].map(|file| unsafe { OwnedFd::from_raw_fd(file) });
        let mut command = latchwork();
        command.args(COMPARE).args(["--runs", "1", "--mutex", "mcs"]).args(arguments).stdin(slave);
        let own_terminal = || {
            // SAFETY: may be called between fork and exec. Descriptor 0 is the terminal.
            let result = unsafe { libc::setsid() + libc::ioctl(0, libc::TIOCSCTTY, 0) };
            if result >= 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
        };
        // SAFETY: the closure calls nothing else.
        unsafe { command.pre_exec(own_terminal) };
        let output = in_time(&mut command);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(what), "{arguments:?}: {}", stderr(&output));
    }
}

/// Inside a program of `latchwork run`, or where a service's file names the library.
#[test]
fn glibc_and_the_hooks_run_without_a_library_that_is_preloaded_already() {
    let directory = scratch("preloaded");
    let library = directory.join("liblatchwork_preload.so");
    assert!(latchwork().arg("library").arg(&library).status().unwrap().success());
    let log = directory.join("log");
    let note = |what: &str| format!("echo \"{what} $LD_PRELOAD\" >> {}", log.display());
    let output = Command::new(crate::COMMAND)
        .args(COMPARE)
        .args(["--runs", "1", "--warmup", "0", "--mutex", "mcs", "--prepare", &note("hook")])
        .args(["--", "sh", "-c", &note("run:$LATCHWORK_MUTEX")])
        .env("LD_PRELOAD", format!("{}:{}", library.display(), locking_library().display()))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let text = fs::read_to_string(&log).unwrap();
    let others = locking_library().display();
    assert_eq!(text.matches(&format!("hook {others}\n")).count(), 2, "{text}");
    assert!(text.contains(&format!("run: {others}\n")), "{text}");
    let mcs = text.lines().find(|line| line.starts_with("run:mcs ")).unwrap();
    assert!(mcs.matches("liblatchwork_preload").count() == 1 && mcs.ends_with(&others.to_string()), "{text}");
}

/// `> /dev/stderr` in a script opens what is there anew.
#[test]
fn a_program_that_opens_its_streams_anew_keeps_what_it_printed() {
    let script = "echo 'rate: 100'; echo done > /dev/stderr; echo 'the end' > /dev/stdout";
    let (output, json) = compare(&["--runs", "1", "--mutex", "mcs", "--metric", r"rate: (\d+)"], script);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(json["candidates"][1]["summary"]["metric"]["median"], 100.0);
}

#[test]
fn noise_is_called_noise() {
    // Better in five rounds of six, by the number of the run.
    let directory = scratch("noise");
    let count = directory.join("count");
    let script = format!(
        "echo >> {0}; runs=$(wc -l < {0}); if [ -z \"$LATCHWORK_MUTEX\" ]; then echo rate: 10; \
         elif [ $runs -gt 10 ]; then echo rate: 9; else echo rate: 20; fi",
        count.display()
    );
    let output = output(
        &[
            COMPARE,
            &["--warmup", "0", "--runs", "6", "--mutex", "mcs", "--metric", r"rate: (\d+)"],
            &["sh", "-c", &script][..],
        ]
        .concat(),
    );
    let text = stdout(&output);
    assert!(text.contains("within the noise"), "{text}");
    assert!(text.contains("No lock here is sure") && text.contains("Perhaps mcs (2.00 times)"), "{text}");
}

#[test]
fn wrong_arguments_are_told_before_anything_runs() {
    for (arguments, text) in [
        (&["--metric", "("][..], "--metric"),
        (&["--metric", "rate"], "(...)"),
        (&["--mutex", "shlf"], "called \"shlf\""),
        (&["--rwlock", "mcs"], "did you mean --mutex mcs?"),
        (&["--runs", "0"], "--runs"),
        (&["--timeout", "0"], "--timeout"),
        (&["--input", "/no/such/file"], "--input"),
        (&["--input", "/"], "--input /: is a directory"),
        (&["--runs", "-1"], "-1 is not in 1..=10000"),
        (&["--seconds", "99999999999999999999"], "at most 1000000"),
        (&["--json", "/no/such/directory/file"], "--json"),
        (&["--csv", "/no/such/directory/file"], "--csv"),
        (&["--csv", "-", "--markdown", "-"], "--markdown and --csv cannot both be printed"),
        (&["--runs", "3", "--seconds", "3"], "--seconds"),
        (&["--server", "sleep 9", "--ready", "1"], "--load"),
    ] {
        let output = output(&[COMPARE, arguments, &["--", "echo", "started"]].concat());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(stderr(&output).contains(text), "{arguments:?}: {}", stderr(&output));
    }
    assert_eq!(output(&["compare", "--", "no-such-program"]).status.code(), Some(127));
    for port in ["0", "70000", "99999"] {
        let output = output(&["compare", "--server", "sleep 9", "--ready", port, "--load", "true"]);
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        assert!(stderr(&output).contains(&format!("--ready {port}: ")), "{}", stderr(&output));
    }
}

#[test]
fn what_a_verdict_takes_is_said() {
    let (output, json) = compare(&["--runs", "2", "--mutex", "mcs,ttas"], "true");
    assert!(
        stderr(&output).contains("--runs 2 gives no verdict: to judge 2 locks takes at least 7"),
        "{output:?}"
    );
    assert_eq!(json["rounds_needed"], 7);
    assert_eq!(json["candidates"][1]["chance"], Value::Null);
    let table = output_of_table(&["--runs", "2", "--mutex", "mcs"], "true");
    assert!(table.contains("Too few complete rounds to judge a lock: that takes at least 6."), "{table}");
    let table = output_of_table(&["--runs", "6", "--mutex", "mcs", "--metric", "rate: (.*)"], "echo rate: 1");
    assert!(
        table.contains("sign") || table.contains("Rule: a lock is called better or worse when"),
        "{table}"
    );
}

fn output_of_table(options: &[&str], script: &str) -> String {
    stdout(&output(&[COMPARE, &["--warmup", "0"], options, &["--", "sh", "-c", script]].concat()))
}

#[test]
fn many_equal_locks_have_no_winner() {
    // Numbers without an order: a permutation of the runs' counts, the same every time.
    let directory = scratch("equal");
    let count = directory.join("count");
    let script = format!(
        "echo >> {0}; n=$(wc -l < {0}); echo rate: $(( (n * 7919 + n * n * 31) % 1009 + 1000 ))",
        count.display()
    );
    let locks = "tas,ttas,ticket,mcs,clh,hemlock,k42,qspinlock,futex,shfl";
    let known = stdout(&output(&["list"]));
    let locks: Vec<_> = locks.split(',').filter(|name| known.contains(&format!("\n {name} "))).collect();
    let (output, json) =
        compare(&["--runs", "9", "--mutex", &locks.join(","), "--metric", r"rate: (\d+)"], &script);
    assert!(output.status.success(), "{}", stderr(&output));
    let candidates = &json["candidates"].as_array().unwrap()[1..];
    assert!(candidates.len() >= 5, "{candidates:?}");
    for candidate in candidates {
        assert_eq!(candidate["verdict"], "noise", "{candidate}");
    }
}

#[test]
fn rounds_are_measured_until_the_time_is_up() {
    // A round that takes longer than the time is measured nevertheless.
    let (output, json) = compare(&["--seconds", "0.01", "--mutex", "mcs"], "sleep 0.05");
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!((&json["runs"], &json["seconds"]), (&Value::Null, &0.01.into()));
    assert_eq!(json["candidates"][1]["runs"].as_array().unwrap().len(), 1);
}

#[test]
fn commands_run_around_the_runs() {
    let directory = scratch("hooks");
    let log = directory.join("log");
    let say = |word: &str| format!("echo {word}$LATCHWORK_MUTEX >> {}", log.display());
    let (setup, prepare, conclude, cleanup) = (say("setup"), say("prepare"), say("conclude"), say("cleanup"));
    let options = ["--runs", "2", "--mutex", "mcs", "--setup", &setup, "--prepare", &prepare];
    let more = ["--conclude", &conclude, "--cleanup", &cleanup];
    let (output, _) = compare(&[&options[..], &more].concat(), &say("run"));
    assert!(output.status.success(), "{}", stderr(&output));
    let text = fs::read_to_string(&log).unwrap();
    let words: Vec<_> = text.split_whitespace().collect();
    // The commands have no lock, whatever the run has. The second round begins with the other lock.
    let (glibc, mcs) = (["prepare", "run", "conclude"], ["prepare", "runmcs", "conclude"]);
    let expected = [&["setup"], &glibc[..], &["setup"], &mcs, &mcs, &glibc, &["cleanup", "cleanup"]].concat();
    assert_eq!(words, expected);
}

#[test]
fn a_command_around_the_runs_that_fails_ends_the_comparison() {
    let directory = scratch("failing-hook");
    let log = directory.join("log");
    let cleanup = format!("echo cleaned >> {}", log.display());
    let options =
        ["--runs", "1", "--mutex", "mcs", "--prepare", "echo no space; exit 4", "--cleanup", &cleanup];
    let (output, json) = compare(&options, "true");
    assert_eq!((output.status.code(), json), (Some(1), Value::Null));
    let text = stderr(&output);
    assert!(
        text.contains("--prepare") && text.contains("exit status 4") && text.contains("| no space"),
        "{text}"
    );
    // The setup of glibc had run.
    assert_eq!(fs::read_to_string(log).unwrap(), "cleaned\n");
}

#[test]
fn failures_can_be_ignored() {
    let options = ["--runs", "1", "--mutex", "mcs", "--metric", r"rate: (\d+)", "--ignore-failure"];
    let (output, json) = compare(&options, "echo rate: 5; exit 3");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(json["candidates"][1]["runs"][0]["metric"], 5.0);
    // Not a crash, and not a missing number.
    let (output, _) = compare(&options, "echo rate: 5; kill -SEGV $$");
    assert!(stderr(&output).contains("killed by signal 11"), "{}", stderr(&output));
    let (output, _) = compare(&options, "exit 3");
    assert!(stderr(&output).contains("nothing in its output matches"), "{}", stderr(&output));
}

#[test]
fn markdown_and_csv_hold_the_table() {
    let directory = scratch("formats");
    let (markdown, csv) = (directory.join("table.md"), directory.join("table.csv"));
    let options = ["--runs", "6", "--mutex", "mcs", "--metric", r"rate: (\d+)"];
    let files = ["--markdown", markdown.to_str().unwrap(), "--csv", csv.to_str().unwrap()];
    let script = "if [ \"$LATCHWORK_MUTEX\" = mcs ]; then echo rate: 3; else echo rate: 2; fi";
    let (output, _) = compare(&[&options[..], &files].concat(), script);
    assert!(output.status.success(), "{}", stderr(&output));
    let text = fs::read_to_string(markdown).unwrap();
    let lines: Vec<_> = text.lines().collect();
    assert!(
        lines[0].starts_with("| lock | metric | x | wall time | x |") && lines[0].ends_with("| verdict |")
    );
    assert!(lines[1].starts_with("| --- | ---: | ---: |") && lines[1].ends_with("| --- |"), "{text}");
    assert!(
        lines[3].starts_with("| mcs | 3 (0%) | 1.50 |") && lines[3].ends_with("| 50% better |"),
        "{text}"
    );
    assert!(text.contains("6 rounds. Rule: "), "{text}");
    let text = fs::read_to_string(csv).unwrap();
    let lines: Vec<Vec<_>> = text.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(lines[0][..7], ["label", "mutex", "rwlock", "verdict", "chance", "runs", "metric_median"]);
    assert_eq!(lines[1][..7], ["glibc", "glibc", "glibc", "baseline", "", "6", "2"]);
    assert_eq!(lines[2][..7], ["mcs", "mcs", "glibc", "better", "3.125e-2", "6", "3"]);
    assert!(lines.iter().all(|line| line.len() == lines[0].len()), "{text}");

    let table = output_of_table(&["--runs", "1", "--mutex", "mcs", "--csv", "-"], "true");
    assert!(table.starts_with("label,") && table.lines().count() == 3, "{table}");
}

#[test]
fn work_of_others_is_waited_for_and_no_longer_than_asked() {
    // One busy process for each CPU, while the comparison starts.
    let cpus = std::thread::available_parallelism().unwrap().get();
    // SAFETY: the call takes a number only.
    if 5 * cpus < unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) } as usize {
        eprintln!("SKIPPED: a container may use few of the machine's CPUs, so the machine stays idle");
        return;
    }
    let busy = || Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
    let mut others: Vec<_> = (0..cpus).map(|_| busy()).collect();
    let arguments =
        ["--settle", "1", "--warmup", "0", "--runs", "1", "--mutex", "mcs", "--json", "-", "true"];
    let output = latchwork().arg("compare").args(arguments).output().unwrap();
    for other in &mut others {
        other.kill().unwrap();
        other.wait().unwrap();
    }
    let text = stderr(&output);
    assert!(text.contains("of the CPUs; waiting until they are done, at most 1 s"), "{text}");
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["candidates"][1]["runs"].as_array().unwrap().len(), 1, "{text}");
}

#[test]
fn a_lock_that_fails_is_left_out_and_the_rest_goes_on() {
    let script = "if [ \"$LATCHWORK_MUTEX\" = mcs ]; then echo what happened; exit 3; fi";
    let (output, json) = compare(&["--runs", "2", "--mutex", "mcs,ttas"], script);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(json["candidates"][1]["verdict"], "failed");
    assert_eq!(json["candidates"][1]["failure"]["reason"], "exit status 3");
    assert_eq!(json["candidates"][1]["failure"]["output"], "what happened\n");
    assert_eq!(json["candidates"][1]["failure"]["round"], 1);
    assert_eq!(json["candidates"][2]["runs"].as_array().unwrap().len(), 2);
    assert!(stderr(&output).contains("mcs failed: exit status 3"));
}

#[test]
fn a_failure_under_glibc_ends_it() {
    let (output, _) = compare(&["--mutex", "mcs"], "echo the reason; kill -SEGV $$");
    assert_eq!(output.status.code(), Some(1));
    let text = stderr(&output);
    assert!(text.contains("under glibc already") && text.contains("killed by signal 11"), "{text}");
    assert!(text.contains("| the reason"), "{text}");
    let (output, _) = compare(&["--mutex", "mcs", "--metric", "rate: (.*)"], "echo nothing of the kind");
    assert!(stderr(&output).contains("| nothing of the kind"), "{}", stderr(&output));
}

#[test]
fn a_timeout_ends_the_whole_group() {
    let mark = mark(7);
    let script = format!("if [ -n \"$LATCHWORK_MUTEX\" ]; then sleep {mark} & sleep {mark}; fi");
    with_growing_time(|time| {
        let (output, json) = compare(&["--runs", "1", "--mutex", "mcs", "--timeout", time], &script);
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(alive(&mark), 0);
        // The run with glibc has to end in time.
        if stderr(&output).contains("under glibc already") {
            return None;
        }
        let reason = json["candidates"][1]["failure"]["reason"].as_str().unwrap();
        let seconds = reason.strip_prefix("timed out after ").and_then(|rest| rest.strip_suffix(" s"));
        let seconds: f64 = seconds.and_then(|seconds| seconds.parse().ok()).expect(reason);
        assert!(seconds >= time.parse().unwrap(), "{reason}");
        Some(())
    });
}

#[test]
fn what_a_program_leaves_behind_is_ended() {
    let mark = mark(8);
    let (output, _) = compare(&["--runs", "1", "--mutex", "mcs"], &format!("sleep {mark} &"));
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(alive(&mark), 0);
}

/// A container's first command is often a shell that starts something and then becomes this program.
#[test]
fn what_a_shell_has_started_before_is_let_alone() {
    let directory = scratch("earlier");
    let mark = mark(9);
    let script = format!("sleep {mark} >&- 2>&- & echo $! > number; exec \"$0\" \"$@\"");
    let mut shell = Command::new("sh");
    shell.current_dir(&directory).args(["-c", &script, crate::COMMAND]).args(COMPARE);
    shell.env("LD_PRELOAD", locking_library());
    let output = shell.args(["--runs", "1", "--mutex", "mcs", "--", "true"]).output().unwrap();
    let left = alive(&format!("sleep\0{mark}"));
    let number: i32 = fs::read_to_string(directory.join("number")).unwrap().trim().parse().unwrap();
    // SAFETY: a signal to a process that no one has waited for.
    unsafe { libc::kill(number, libc::SIGKILL) };
    assert!(output.status.success() && !stderr(&output).contains("left"), "{}", stderr(&output));
    assert_eq!(left, 1);
}

/// As a supervisor may start it.
#[test]
fn failures_are_seen_where_the_end_of_children_is_ignored() {
    let mut command = latchwork();
    let ignore = || {
        // SAFETY: may be called between fork and exec.
        unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
        Ok(())
    };
    // SAFETY: the closure calls nothing else.
    unsafe { command.pre_exec(ignore) };
    let output =
        command.args(COMPARE).args(["--runs", "1", "--mutex", "mcs", "--", "sh", "-c", "exit 3"]).output();
    let output = output.unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
    assert!(stderr(&output).contains("exit status 3"), "{}", stderr(&output));
}

#[test]
fn ctrl_c_prints_what_there_is_and_leaves_nothing() {
    let directory = scratch("interrupt");
    let count = directory.join("count");
    let mark = mark(9);
    // Quick for two rounds, then it sleeps with a child of its own.
    let script = format!(
        "echo >> {0}; if [ $(wc -l < {0}) -gt 5 ]; then sleep {mark} & sleep {mark}; fi",
        count.display()
    );
    let mut child = latchwork()
        .args(COMPARE)
        .args(["--warmup", "1", "--runs", "9", "--mutex", "mcs", "--", "sh", "-c", &script])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    until_alive(&mut child, &format!("sleep\0{mark}"), 2);
    send(&child, libc::SIGINT);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
    let text = stdout(&output);
    assert!(text.starts_with("Interrupted") && text.contains("too few runs"), "{text}");
    assert_eq!(alive(&mark), 0);
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
}

#[test]
fn input_is_given_to_every_run() {
    let directory = scratch("input");
    let file = directory.join("lines");
    fs::write(&file, "1\n2\n3\n").unwrap();
    let options =
        ["--runs", "2", "--mutex", "mcs", "--metric", r"^(\d+)$", "--input", file.to_str().unwrap()];
    let (output, json) = compare(&options, "wc -l");
    assert!(output.status.success(), "{}", stderr(&output));
    for candidate in json["candidates"].as_array().unwrap() {
        for run in candidate["runs"].as_array().unwrap() {
            assert_eq!(run["metric"], 3.0);
        }
    }
}

#[test]
fn the_end_of_much_output_is_kept() {
    let (output, json) = compare(
        &["--runs", "1", "--mutex", "mcs", "--metric", "last: (.*)"],
        "yes | head -c 50000000; echo last: 7",
    );
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(json["candidates"][1]["runs"][0]["metric"], 7.0);
}

#[test]
fn the_built_in_program_is_compared_and_checks_itself() {
    let output = latchwork().args(["demo-kv", "--threads", "4", "--seconds", "0.1"]).output().unwrap();
    assert!(output.status.success());
    assert!(stdout(&output).starts_with("operations/s: "));

    // Reader-writer locks that exclude no thread are caught. It takes several tries, because on a busy machine the threads may
    // hardly ever run at the same time.
    let directory = scratch("broken");
    let library = broken_locks(&directory);
    let begin = Instant::now();
    let caught = (0..).take_while(|run| *run < 50 || begin.elapsed() < Duration::from_secs(120)).any(|_| {
        let output = latchwork()
            .args(["demo-kv", "--threads", "8", "--seconds", "0.2"])
            .env("LD_PRELOAD", &library)
            .output()
            .unwrap();
        !output.status.success() && stderr(&output).contains("the store is damaged")
    });
    assert!(caught);
}

/// A library with reader-writer locks that do nothing.
fn broken_locks(directory: &Path) -> PathBuf {
    let source = directory.join("broken.rs");
    let library = directory.join("libbroken.so");
    let functions = ["rdlock", "wrlock", "unlock"].map(|name| {
        format!("#[unsafe(no_mangle)] pub extern \"C\" fn pthread_rwlock_{name}(_: usize) -> i32 {{ 0 }}\n")
    });
    let start = "#![no_std]\n#[panic_handler] fn panic(_: &core::panic::PanicInfo) -> ! { loop {} }\n";
    fs::write(&source, start.to_owned() + &functions.concat()).unwrap();
    let rustc = std::env::var_os("RUSTC").unwrap_or("rustc".into());
    let built = Command::new(rustc)
        .args(["--crate-type=cdylib", "--edition=2024", "-Cpanic=abort", "-o"])
        .args([&library, &source])
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", stderr(&built));
    library
}
