//! When results are written, and what signals do meanwhile.

use crate::common::{
    compile, in_time, latchwork, latchwork_of_locking_programs, limit, mark, scratch, send, stderr, stdout,
    until_alive,
};
use serde_json::Value;
use std::ffi::CString;
use std::fs;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

#[test]
fn with_nothing_measured_the_files_of_before_stay() {
    let directory = scratch("results-nothing");
    let mark = mark(8);
    let script = format!("exec sleep {mark}");
    for name in ["kept.json", "kept.csv", "kept.md"] {
        fs::write(directory.join(name), "of before").unwrap();
    }
    let mut child = latchwork()
        .args(["compare", "--settle", "0", "--runs", "2", "--mutex", "shfl"])
        .args([
            "--json",
            "kept.json",
            "--csv",
            "kept.csv",
            "--markdown",
            "kept.md",
            "--",
            "sh",
            "-c",
            &script,
        ])
        .current_dir(&directory)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    until_alive(&mut child, &format!("sleep\0{mark}"), 1);
    send(&child, libc::SIGINT);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
    assert!(stdout(&output).contains("nothing yet"), "{}", stdout(&output));
    for name in ["kept.json", "kept.csv", "kept.md"] {
        assert_eq!(fs::read_to_string(directory.join(name)).unwrap(), "of before", "{name}");
    }
}

fn compare(arguments: &[&str], script: &str, directory: &Path) -> Output {
    let mut command = latchwork_of_locking_programs();
    command.args(["compare", "--settle", "0", "--warmup", "0"]).args(arguments);
    if !arguments.contains(&"--mutex") {
        command.args(["--mutex", "shfl"]);
    }
    command.args(["--", "sh", "-c", script]).current_dir(directory).output().unwrap()
}

/// An hour of measuring is not lost because a disk is full.
#[test]
fn a_result_that_cannot_be_written_loses_no_other_one() {
    let directory = scratch("results-full");
    let output =
        compare(&["--runs", "1", "--json", "/dev/full", "--markdown", "table.md"], "true", &directory);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains("--json /dev/full: No space left"), "{}", stderr(&output));
    assert!(stdout(&output).contains("Too few complete rounds"), "{}", stdout(&output));
    assert!(fs::read_to_string(directory.join("table.md")).unwrap().contains("shfl"));
    let program = compile(&directory, "program", WORK, &["-pthread"]);
    let mut command = latchwork();
    command.args(["profile", "--json", "/dev/full", "--folded", "folded", "--"]).arg(&program);
    let output = command.current_dir(&directory).env("TMPDIR", &directory).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains("The recording is kept"), "{}", stderr(&output));
    assert!(directory.join("folded").exists());
}

/// Nor because glibc's run of a late round failed, or a command beside it.
#[test]
fn a_late_failure_keeps_the_rounds_before_it() {
    let directory = scratch("results-late");
    let script = "[ $LATCHWORK_MUTEX ] || { echo >> count; [ $(wc -l < count) -lt 3 ]; }";
    let hook = "echo >> hooks; [ $(wc -l < hooks) -lt 5 ]";
    for (options, script, why) in [
        (&["--runs", "5"][..], script, "the program fails under glibc in round 3"),
        (&["--runs", "5", "--conclude", hook], "true", "--conclude"),
    ] {
        let output = compare(&[options, &["--json", "result.json"]].concat(), script, &directory);
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
        assert!(stderr(&output).contains(why), "{}", stderr(&output));
        let text = stdout(&output);
        assert!(text.contains("Ended by a failure") && text.contains("Too few complete rounds"), "{text}");
        let json: Value = serde_json::from_slice(&fs::read(directory.join("result.json")).unwrap()).unwrap();
        assert_eq!(json["candidates"][0]["runs"].as_array().unwrap().len(), 2, "{json}");
        assert!(json["failure"].as_str().unwrap().contains(why), "{json}");
    }
}

/// The time for which the command is stopped is not the program's.
#[test]
fn a_run_with_a_pause_is_repeated() {
    let directory = scratch("results-pause");
    // The first run lasts until there is a file.
    let script = "echo $$ >> ran; until [ -e goes-on ]; do sleep 0.01; done";
    let mut command = latchwork_of_locking_programs();
    command
        .args(["compare", "--settle", "0", "--warmup", "0", "--mutex", "shfl", "--runs", "1", "--json", "-"]);
    command.args(["--", "sh", "-c", script]).current_dir(&directory);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let begin = Instant::now();
    while !directory.join("ran").exists() {
        assert!(begin.elapsed() < Duration::from_secs(300), "it does not run");
        std::thread::sleep(Duration::from_millis(5));
    }
    send(&child, libc::SIGSTOP);
    std::thread::sleep(Duration::from_millis(100));
    send(&child, libc::SIGCONT);
    fs::write(directory.join("goes-on"), "").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stderr(&output).contains("is repeated"), "{}", stderr(&output));
    assert_eq!(fs::read_to_string(directory.join("ran")).unwrap().lines().count(), 3);
}

/// SIGCONT also comes to a command that was not stopped. However often it comes, the measuring ends.
#[test]
fn a_run_is_repeated_three_times_at_most() {
    let directory = scratch("results-continued");
    let mut command = latchwork_of_locking_programs();
    command.args(["compare", "--settle", "0", "--warmup", "0", "--mutex", "shfl", "--runs", "1"]);
    // Each run sends the signal to the command.
    command.args(["--", "sh", "-c", "echo $$ >> ran; kill -CONT $PPID"]).current_dir(&directory);
    let output = in_time(&mut command);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stderr(&output).contains("during each of 4 attempts"), "{}", stderr(&output));
    assert_eq!(fs::read_to_string(directory.join("ran")).unwrap().lines().count(), 2 * 4);
}

/// The kernel counts what the command has when it starts a program into the program's peak.
#[test]
fn the_output_of_a_failed_run_is_not_the_next_ones_memory() {
    let directory = scratch("results-memory-of-output");
    let script = "[ \"$LATCHWORK_MUTEX\" != mcs ] || { head -c 12000000 /dev/zero; exit 1; }";
    let output = compare(&["--runs", "3", "--mutex", "shfl,mcs", "--json", "-"], script, &directory);
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["candidates"][2]["verdict"], "failed", "{json}");
    let peak = json["candidates"][0]["summary"]["memory_bytes"]["max"].as_f64().unwrap();
    assert!(peak < 11e6, "{peak}");
}

/// The lock is not kept for programs for which it was not measured.
#[test]
fn the_command_that_keeps_a_lock_leaves_out_the_same_programs() {
    let directory = scratch("results-only");
    let script = "[ \"$LATCHWORK_MUTEX\" ] && echo rate: 2 || echo rate: 1";
    let options = ["--runs", "6", "--metric", r"rate: (\d+)", "--only", "sh,da*", "--not", "x"];
    let output = compare(&options, script, &directory);
    let text = stdout(&output);
    assert!(text.contains("latchwork run --mutex shfl --only 'sh,da*' --not x -- sh -c "), "{text}");
}

#[test]
fn two_results_need_two_files() {
    let directory = scratch("results-twice");
    let run = |arguments: &[&str]| latchwork().args(arguments).current_dir(&directory).output().unwrap();
    fs::write(directory.join("there"), "of before").unwrap();
    let program = compile(&directory, "program", WORK, &["-pthread"]);
    let content = fs::read(&program).unwrap();
    for arguments in [
        &["tune", "-o", "same", "--json", "./same", "--", "touch", "ran"][..],
        &["tune", "--json", "there", "--input", "there", "--", "touch", "ran"],
        &["compare", "--csv", "there", "--input", "./there", "--", "touch", "ran"],
        &["profile", "--config", "there", "-o", "there", "--", "touch", "ran"],
        &["profile", "--read", "there", "-o", "there"],
        &["profile", "--pprof", "program", "--", "./program"],
        &["record", "-o", "program", "--", "./program"],
        &["check", "--json", "program", "--", "./program"],
        &["check", "--json", "there", "--ignore", "there", "--", "./program"],
        &["run", "--stats-json", "there", "--config", "there", "--", "./program"],
        &["compare", "--json", "same", "--csv", "./same", "--", "touch", "ran"],
        &["profile", "--json", "there", "-o", "../there/../there", "--", "touch", "ran"],
    ] {
        let arguments: Vec<String> = arguments
            .iter()
            .map(|word| {
                word.replace("../there/..", &format!("../{}", directory.file_name().unwrap().display()))
            })
            .collect();
        let output = run(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", stderr(&output));
        assert!(stderr(&output).contains("both name"), "{arguments:?}: {}", stderr(&output));
    }
    assert!(!directory.join("ran").exists());
    assert!(
        fs::read(&program).unwrap() == content && fs::read(directory.join("there")).unwrap() == b"of before"
    );
    // In the PATH is another program of that name.
    let output = run(&["record", "-o", "true", "--", "true"]);
    assert!(!stderr(&output).contains("both name"), "{}", stderr(&output));
    let output = run(&["profile", "--json", "/dev/null", "-o", "/dev/null", "--", "true"]);
    assert!(!stderr(&output).contains("both name"), "{}", stderr(&output));
    let output = run(&["record", "--read", "not-there"]);
    assert!(stderr(&output).contains("not-there: No such file"), "{}", stderr(&output));
}

/// With few descriptors a directory could be made, and not be removed.
/// The file that `record` and `tune` write has a default, which the user may never have heard of. In /proc no user can make a file.
#[test]
fn a_file_that_cannot_be_made_is_refused_before_the_program_runs() {
    for (command, file) in [("record", "trace.lw"), ("tune", "latchwork.toml")] {
        let run = latchwork()
            .args([command, "--", "sh", "-c", "echo ran >&2"])
            .current_dir("/proc")
            .output()
            .unwrap();
        let text = stderr(&run);
        assert_eq!(run.status.code(), Some(2), "{text}");
        assert!(text.starts_with(&format!("latchwork: --output {file}: cannot be written: ")), "{text}");
        assert!(text.ends_with("; name another file with -o FILE\n") && !text.contains("ran"), "{text}");
    }
}

#[test]
fn a_limit_on_files_leaves_no_directory() {
    let directory = scratch("results-descriptors");
    for words in [&["profile", "--"][..], &["record", "-o", "trace.lw", "--"], &["check", "--"]] {
        for most in 5..12 {
            let mut command = latchwork();
            command.args(words).arg("/bin/true").current_dir(&directory).env("TMPDIR", &directory);
            limit(&mut command, libc::RLIMIT_NOFILE, most);
            let output = command.output().unwrap();
            let text = stderr(&output);
            assert!(text.contains("(ulimit -n)") || most == 11, "{words:?}, {most}: {text}");
            let left: Vec<_> = fs::read_dir(&directory)
                .unwrap()
                .flatten()
                .map(|entry| entry.file_name())
                .filter(|name| name.to_string_lossy().starts_with("latchwork-profile-"))
                .collect();
            assert!(left.is_empty(), "{words:?}, {most}: {left:?}");
        }
    }
}

/// What keeps a program from being recorded is named, and nothing else.
#[test]
fn a_limit_on_memory_is_named() {
    let directory = scratch("results-memory");
    let program = compile(&directory, "program", WORK, &["-pthread"]);
    for words in [&["profile", "--"][..], &["record", "--"]] {
        let mut command = latchwork();
        command.args(words).arg(&program).current_dir(&directory);
        limit(&mut command, libc::RLIMIT_AS, 250 << 20);
        let output = command.output().unwrap();
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{words:?}: {text}");
        assert!(text.contains("the limit on memory (ulimit -v)"), "{words:?}: {text}");
        assert!(
            !text.contains("dynamically linked") && text.contains("a message above"),
            "{words:?}: {text}"
        );
    }
}

/// A limit on the size of files ends no command without a word: neither where the command writes the library, nor where it writes a
/// result, nor where the program is recorded.
#[test]
fn a_limit_on_files_is_named() {
    let directory = scratch("results-files");
    let program = compile(&directory, "program", WORK, &["-pthread"]);
    let profile = |arguments: &[&str], cache: &str, most| {
        let mut command = latchwork();
        command.args(arguments).current_dir(&directory);
        command.env("XDG_CACHE_HOME", directory.join(cache)).env("TMPDIR", &directory);
        if let Some(most) = most {
            limit(&mut command, libc::RLIMIT_FSIZE, most);
        }
        command.output().unwrap()
    };
    let program = program.to_str().unwrap();
    for word in ["profile", "check", "record"] {
        let output = profile(&[word, "--", program], "none", Some(0));
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{word}: {text}");
        assert!(
            text.contains("preload library")
                && text.contains("raise the limit on the size of files (ulimit -f)"),
            "{text}"
        );
    }
    let output = profile(&["profile", "--keep", "kept", "--", program], "cache", None);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let output = profile(&["profile", "--", program], "cache", Some(0));
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains("(ulimit -f)"), "{}", stderr(&output));
    let output = profile(&["profile", "--read", "kept", "-o", "page.html"], "cache", Some(2000));
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains("--output page.html: File too large"), "{}", stderr(&output));
    assert!(stderr(&output).contains("(ulimit -f)") && !directory.join("page.html").exists());
}

/// Two commands find a directory empty at once: one of them may keep its recording there.
#[test]
fn a_directory_is_kept_for_one_recording() {
    let directory = scratch("results-keep");
    let program = compile(&directory, "program", WORK, &["-pthread"]);
    let start = |kept: &Path| {
        let mut command = latchwork();
        command.args(["profile", "--keep"]).arg(kept).arg("--").arg(&program);
        command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let empty = directory.join("empty");
    fs::create_dir(&empty).unwrap();
    let other = fs::File::open(&empty).unwrap();
    other.try_lock().unwrap();
    let refused = start(&empty).wait_with_output().unwrap();
    assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
    assert!(stderr(&refused).contains("another command"), "{}", stderr(&refused));
    drop(other);
    assert!(start(&empty).wait_with_output().unwrap().status.success());
    for number in 0..8 {
        let kept = directory.join(format!("kept-{number}"));
        let both = [start(&kept), start(&kept)].map(|child| child.wait_with_output().unwrap());
        let status = both.each_ref().map(|output| output.status.code());
        assert!([[Some(0), Some(2)], [Some(2), Some(0)]].contains(&status), "{both:?}");
        assert_eq!(fs::read_dir(&kept).unwrap().count(), 1);
    }
}

/// A pipe that no process reads.
#[test]
fn signals_end_a_command_that_cannot_write_its_results() {
    let directory = scratch("results-pipe");
    let temporary = directory.join("temporary");
    fs::create_dir(&temporary).unwrap();
    let fifo = directory.join("fifo");
    let name = CString::new(fifo.as_os_str().as_encoded_bytes()).unwrap();
    // SAFETY: a string that ends.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    let compare =
        &["compare", "--settle", "0", "--warmup", "0", "--runs", "1", "--mutex", "shfl", "--json"][..];
    let program = compile(&directory, "program", WORK, &["-pthread"]);
    for arguments in [&["record", "-o"][..], &["profile", "--json"], &["profile", "-o"], compare] {
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            let mut command = latchwork();
            command.args(arguments).arg(&fifo).arg("--").arg(&program).env("TMPDIR", &temporary);
            let ignore_none = || {
                // SAFETY: may be called between fork and exec.
                unsafe { libc::signal(libc::SIGHUP, libc::SIG_DFL) };
                Ok(())
            };
            // SAFETY: the closure calls nothing else.
            unsafe { command.pre_exec(ignore_none) };
            let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            until_it_opens_a_pipe(&mut child);
            send(&child, signal);
            let ended = ended(&mut child).unwrap_or_else(|| {
                let _ = child.kill();
                panic!("{arguments:?} goes on after signal {signal}")
            });
            assert_eq!(ended.signal(), Some(signal), "{arguments:?}: {ended:?}");
            let left: Vec<_> = fs::read_dir(&temporary).unwrap().collect();
            assert!(left.is_empty(), "{arguments:?}: {left:?}");
        }
    }
}

/// Waits until the command has slept for a second, and its program has ended: it waits for the other end of a pipe.
fn until_it_opens_a_pipe(child: &mut Child) {
    let begin = Instant::now();
    let mut asleep = 0;
    while asleep < 20 {
        assert!(begin.elapsed() < Duration::from_secs(300), "it does not come to its results");
        assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
        let read =
            |name: &str| fs::read_to_string(format!("/proc/{}/{name}", child.id())).unwrap_or_default();
        let children = read(&format!("task/{}/children", child.id()));
        let sleeps = read("stat").rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('S'));
        asleep = if sleeps && children.trim().is_empty() { asleep + 1 } else { 0 };
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// How the command ends, in a minute.
fn ended(child: &mut Child) -> Option<ExitStatus> {
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(60) {
        if let Some(status) = child.try_wait().unwrap() {
            return Some(status);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    None
}

const WORK: &str = r#"
    #include <pthread.h>
    int main(void) {
        pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
        for (int i = 0; i < 100; i++) {
            pthread_mutex_lock(&lock);
            pthread_mutex_unlock(&lock);
        }
        return 0;
    }
"#;
