//! `latchwork compare` judges no lock that no process of the program has used.

use crate::common::{compile, latchwork, scratch, stderr, stdout};
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Output;

/// Locks a mutex, and a reader-writer lock if it has an argument.
const LOCKS: &str = r#"
    #include <pthread.h>
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
    int main(int argc, char **argv) {
        if (argc > 1) {
            pthread_rwlock_rdlock(&rwlock);
            pthread_rwlock_unlock(&rwlock);
        } else {
            pthread_mutex_lock(&mutex);
            pthread_mutex_unlock(&mutex);
        }
        return 0;
    }"#;

/// Executes another program in an empty environment.
const CLEARS: &str = r#"
    #include <unistd.h>
    int main(int argc, char **argv) {
        char *empty[] = { 0 };
        return execve(argv[1], argv + 1, empty);
    }"#;

fn compare(directory: &Path, options: &[&str], program: &[&str]) -> Output {
    let mut command = latchwork();
    command.args(["compare", "--settle", "0", "--warmup", "0", "--runs", "6"]).args(options).arg("--");
    command.args(program).current_dir(directory).output().unwrap()
}

#[test]
fn a_lock_that_no_process_uses_is_not_judged() {
    let directory = scratch("used");
    let locks = compile(&directory, "locks", LOCKS, &["-pthread"]);
    let clears = compile(&directory, "clears", CLEARS, &[]);
    compile(&directory, "static", LOCKS, &["-pthread", "-static"]);
    let [locks, clears] = [&locks, &clears].map(|path| path.to_str().unwrap());
    let mutex = &["--mutex", "shfl"][..];
    let rwlock = &["--rwlock", "shfl-rw"][..];
    for (options, program, words) in [
        (&["--mutex", "shfl", "--only", "lokc"][..], &[locks][..], "no process of the program got the lock"),
        (mutex, &["./static"], "no process of the program got the lock"),
        (mutex, &["sh", "-c", "exec ./static"], "no process of the program used the lock"),
        (mutex, &[clears, locks], "no process of the program used the lock"),
        // It uses the other kind.
        (rwlock, &[locks], "no process of the program used the lock"),
        (mutex, &[locks, "read"], "no process of the program used the lock"),
        (mutex, &["echo", "printed"], "no process of the program used the lock"),
    ] {
        let output = compare(&directory, options, program);
        let text = stdout(&output);
        assert_eq!(output.status.code(), Some(1), "{program:?}: {text}");
        assert!(text.contains(words), "{program:?}: {text}");
        assert_eq!(words.contains("got"), !text.contains("used the lock:"), "{program:?}: {text}");
        assert!(text.contains("No lock was compared: each has failed."), "{text}");
        assert!(stderr(&output).contains("failed: no process"), "{}", stderr(&output));
        assert_eq!(options.contains(&"--only"), text.contains("--only"), "{text}");
        assert_eq!(program.contains(&"printed"), !text.contains("it printed nothing"), "{text}");
    }
    // A process that uses it is enough, wherever it is.
    for (options, program) in [
        (mutex, &[locks][..]),
        (rwlock, &[locks, "read"]),
        (&["--rwlock", "bravo-2d-glibc"], &[locks, "read"]),
        (&["--mutex", "shfl", "--rwlock", "pf-q"], &[locks, "read"]),
        (&["--mutex", "shfl", "--only", "locks"], &["sh", "-c", "./static; ./locks"]),
        (mutex, &["sh", "-c", "./locks & wait"]),
    ] {
        let output = compare(&directory, options, program);
        assert_eq!(output.status.code(), Some(0), "{program:?}: {}", stdout(&output));
        assert!(!stdout(&output).contains("no process"), "{}", stdout(&output));
    }
}

/// `check` passes a program of which it has seen nothing, unless it is told not to, but says that it has seen nothing.
#[test]
fn a_check_that_saw_no_lock_says_so() {
    let directory = scratch("used-check");
    let locks = compile(&directory, "locks", LOCKS, &["-pthread"]);
    let fixed = compile(&directory, "static", LOCKS, &["-pthread", "-static"]);
    let [locks, fixed] = [&locks, &fixed].map(|path| path.to_str().unwrap());
    let check = |options: &[&str], program: &[&str]| {
        let output = latchwork().arg("check").args(options).arg("--").args(program).output().unwrap();
        (output.status.code(), stderr(&output))
    };
    let nothing = "nothing was checked: no process of the program called a lock";
    let (status, text) = check(&[], &[fixed]);
    assert_eq!(status, Some(0));
    assert!(text.contains("static is not checked: it is statically linked"), "{text}");
    let file = directory.join("mistakes.json");
    let json = ["--json", file.to_str().unwrap()];
    for (options, program, expected) in [
        (&[][..], &[fixed][..], 0),
        (&["--error-exitcode", "9"], &[fixed], 0),
        (&["--error-exitcode", "9", json[0], json[1]], &["sh", "-c", "exit 3"], 3),
        (&json, &["true"], 0),
        (&["--not", "locks", json[0], json[1]], &[locks], 0),
        (&["--require-calls", json[0], json[1]], &[fixed], 1),
    ] {
        let _ = fs::remove_file(&file);
        let (status, text) = check(options, program);
        assert_eq!(status, Some(expected), "{options:?} {program:?}: {text}");
        assert!(text.contains(nothing), "{options:?} {program:?}: {text}");
        if options.contains(&"--json") {
            let lines = fs::read_to_string(&file).unwrap();
            let line: serde_json::Value = serde_json::from_str(&lines).unwrap();
            assert!(line["warning"].as_str().unwrap().contains(nothing), "{lines}");
            assert!(line["pid"].is_u64(), "{lines}");
        }
    }
    // A shell's script ends at Ctrl-C if that ends the command, not at a status of 130.
    let output = latchwork().args(["check", "--", "sh", "-c", "kill -INT $$"]).output().unwrap();
    assert_eq!(output.status.signal(), Some(libc::SIGINT), "{}", stderr(&output));
    assert!(stderr(&output).contains(nothing), "{}", stderr(&output));
    // What is needed to find that out is no condition for the check itself.
    let mut command = latchwork();
    command.args(["check", "--", "true"]).env("TMPDIR", directory.join("missing"));
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stderr(&output).contains("no message will say so"), "{}", stderr(&output));
    let calls = "--require-calls";
    for (options, program, expected) in [
        (&[calls][..], &[fixed][..], 1),
        (&[calls, "--error-exitcode", "9"], &[fixed], 9),
        (&[calls], &["true"], 1),
        (&[calls], &["sh", "-c", "exit 3"], 3),
        (&[calls, "--not", "locks"], &[locks], 1),
    ] {
        let (status, text) = check(options, program);
        assert_eq!(status, Some(expected), "{options:?} {program:?}: {text}");
        assert!(text.contains(nothing), "{text}");
    }
    for options in [&[][..], &[calls], &[calls, "--mutex", "glibc", "--rwlock", "glibc"]] {
        for program in [&[locks][..], &[locks, "read"], &["sh", "-c", "$0; exit 0", locks]] {
            assert_eq!(check(options, program), (Some(0), String::new()), "{options:?} {program:?}");
        }
    }
}

#[test]
fn a_library_of_others_is_refused() {
    let directory = scratch("used-foreign");
    let library = compile(&directory, "foreign.so", "int thing(void) { return 1; }", &["-shared", "-fPIC"]);
    for words in [&["run"][..], &["check"], &["profile"], &["compare", "--settle", "0"]] {
        let mut command = latchwork();
        command.args(words).args(["--mutex", "mcs", "--", "echo", "started"]);
        let output = command.env("LATCHWORK_PRELOAD_PATH", &library).output().unwrap();
        let text = stderr(&output);
        assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(1), ""), "{words:?}: {text}");
        assert!(text.contains("foreign.so: is no library of latchwork's"), "{words:?}: {text}");
    }
}

/// Five locks fail for one reason, which is said once.
#[test]
fn a_reason_that_locks_share_is_said_once() {
    let directory = scratch("used-once");
    let output = compare(&directory, &["--mutex", "shfl,ttas,mcs"], &["true"]);
    let (text, said) = (stdout(&output), stderr(&output));
    assert_eq!(output.status.code(), Some(1), "{text}");
    const REASON: &str = "no process of the program used the lock";
    assert!(text.contains("\nshfl, ttas, mcs failed in round 1: no process"), "{text}");
    assert_eq!((text.matches(REASON).count(), said.matches(REASON).count()), (1, 1), "{text}{said}");
    assert!(said.contains("ttas failed: the same\n") && said.contains("mcs failed: the same\n"), "{said}");
}

#[test]
fn a_status_that_may_be_good_is_said_to_be_allowed() {
    let directory = scratch("used-status");
    let output = compare(&directory, &["--mutex", "shfl"], &["false"]);
    let said = stderr(&output);
    assert!(said.contains("exit status 1 (with --ignore-failure, such a run is a good one)"), "{said}");
}
