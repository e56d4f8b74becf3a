//! `latchwork compare`, `profile`, `record` and `tune` on programs that go on in the background.

use crate::common::{
    Scratch, alive, compile, latchwork_of_locking_programs as latchwork, mark, processes, scratch, send,
    stderr, stdout,
};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Goes into the background. `polite`: it writes to FILE and ends when asked to. `deaf`: neither it nor the worker that
/// it starts ends when asked to. `waits`: the process in the foreground stays. `abrupt`: the process in the foreground
/// does not wait until the one in the background has its own session. `slow`: the one in the background takes its time for
/// that, for ever.
const DAEMON: &str = r#"
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
static const char *file;
static void end(int signal) {
    int out = open(file, O_WRONLY | O_CREAT | O_APPEND, 0600);
    _exit(write(out, "asked to end\n", 13) != 13 || signal != SIGTERM);
}
int main(int argc, char **argv) {
    int ready[2];
    char byte = 0;
    if (argc != 4 || pipe(ready)) return 2;
    file = argv[2];
    int deaf = !strcmp(argv[3], "deaf");
    signal(SIGTERM, deaf ? SIG_IGN : end);
    if (fork()) {
        close(ready[1]);
        if (strcmp(argv[3], "abrupt") && strcmp(argv[3], "slow") && (read(ready[0], &byte, 1) != 1 || wait(NULL) < 0)) return 3;
        while (!strcmp(argv[3], "waits")) pause();
        return 0;
    }
    while (!strcmp(argv[3], "slow")) pause();
    setsid();
    if (fork()) _exit(0);
    if (deaf && fork() < 0) _exit(4);
    if (write(ready[1], &byte, 1) != 1) _exit(5);
    for (;;) pause();
}"#;

struct Daemon {
    directory: Scratch,
    program: PathBuf,
    /// An argument that no other process has.
    mark: String,
}

impl Daemon {
    fn new(name: &str) -> Self {
        let directory = scratch(name);
        let program = compile(&directory, "my-daemon", DAEMON, &[]);
        let mark = format!("mark-of-{name}-{}", std::process::id());
        Self { directory, program, mark }
    }

    fn file(&self) -> PathBuf {
        self.directory.join("asked")
    }

    fn compare(&self, options: &[&str], manner: &str) -> Command {
        let mut command = latchwork();
        command
            .args(["compare", "--settle", "0", "--warmup", "0", "--mutex", "mcs"])
            .args(options)
            .arg("--")
            .arg(&self.program);
        command.arg(&self.mark).arg(self.file()).arg(manner).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Waits until so many processes of the program run.
    fn wait_for(&self, running: usize, latchwork: &mut Child) {
        let begin = Instant::now();
        let own = |command_line: &str| command_line.starts_with(self.program.to_str().unwrap());
        while processes(own) != running {
            assert!(latchwork.try_wait().unwrap().is_none(), "latchwork ended by itself");
            assert!(begin.elapsed() < Duration::from_secs(300), "the daemon does not start");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn gone(self) {
        assert_eq!(alive(&self.mark), 0);
    }
}

fn finished(mut command: Command) -> Output {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    output
}

fn asked(file: &Path) -> usize {
    fs::read_to_string(file).unwrap_or_default().lines().count()
}

#[test]
fn a_daemon_is_noticed_asked_to_end_and_no_lock_is_recommended() {
    let daemon = Daemon::new("polite");
    let output = finished(daemon.compare(&["--runs", "3", "--stop-timeout", "300"], "polite"));
    let warning = stderr(&output);
    assert!(warning.contains("left my-daemon (process "), "{warning}");
    assert!(warning.contains("in the foreground"), "{warning}");
    assert_eq!(warning.matches("left my-daemon").count(), 1, "{warning}");
    let text = stdout(&output);
    assert!(text.contains("No lock is recommended") && !text.contains("Keep it with"), "{text}");
    // Each of the six daemons was asked, and ended by that.
    assert_eq!(asked(&daemon.file()), 6);
    daemon.gone();
}

/// The recorders leave the daemon alone, and say what they do not have.
#[test]
fn a_launcher_is_not_taken_for_the_server() {
    let daemon = Daemon::new("launched");
    // The daemon keeps its standard error, so that a pipe would not end.
    let errors = daemon.directory.join("errors");
    let run = |options: &[&str], manner: &str| {
        let mut command = latchwork();
        command.args(options).arg("--").arg(&daemon.program).arg(&daemon.mark).arg(daemon.file()).arg(manner);
        let file = fs::File::create(&errors).unwrap();
        let status = command.stdout(Stdio::null()).stderr(file).status().unwrap();
        (status.code(), fs::read_to_string(&errors).unwrap())
    };
    let end = |text: &str| {
        let (_, process) = text.split_once("left my-daemon (process ").unwrap_or_else(|| panic!("{text}"));
        let process = process.split_once(')').unwrap().0.parse().unwrap();
        // SAFETY: a signal to the daemon, which waits for it.
        unsafe { libc::kill(process, libc::SIGTERM) };
        let begin = Instant::now();
        while alive(&daemon.mark) > 0 {
            assert!(begin.elapsed() < Duration::from_secs(300), "the daemon does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    let report = daemon.directory.join("report.json");
    for manner in ["polite", "slow"] {
        let (_, text) = run(&["profile", "--json", report.to_str().unwrap()], manner);
        end(&text);
        let report: Value = serde_json::from_slice(&fs::read(&report).unwrap()).unwrap();
        let verdict = report["verdict"][0].as_str().unwrap();
        assert!(
            verdict.contains("left my-daemon") && verdict.contains("profile the server in the fore"),
            "{manner}: {verdict}"
        );
    }
    let (_, text) = run(&["record", "-o", daemon.directory.join("trace.lw").to_str().unwrap()], "polite");
    end(&text);
    assert!(text.contains("record the server in the foreground"), "{text}");

    // Measured runs end it.
    let (status, text) =
        run(&["tune", "-o", daemon.directory.join("locks.toml").to_str().unwrap()], "polite");
    assert_eq!(status, Some(1), "{text}");
    assert!(text.contains("left my-daemon") && text.contains("tune the server in the foreground"), "{text}");
    assert_eq!(asked(&daemon.file()), 4);
    daemon.gone();
}

#[test]
fn a_daemon_that_does_not_end_when_asked_is_killed_with_its_workers() {
    let daemon = Daemon::new("deaf");
    let output = finished(daemon.compare(&["--runs", "1", "--json", "-", "--stop-timeout", "0.3"], "deaf"));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["left_running"][0], "my-daemon", "{json}");
    assert_eq!(json["candidates"][1]["runs"].as_array().unwrap().len(), 1);
    assert_eq!(asked(&daemon.file()), 0);
    daemon.gone();
}

/// `main` may end by `pthread_exit`.
#[test]
fn a_daemon_whose_first_thread_has_ended_is_ended() {
    let source = r#"
    #include <pthread.h>
    #include <unistd.h>
    static void *work(void *unused) { pause(); return unused; }
    int main(int argc, char **argv) {
        int ready[2];
        char byte = 0;
        if (pipe(ready)) return 2;
        if (fork()) return read(ready[0], &byte, 1) != 1;
        pthread_t thread;
        setsid();
        pthread_create(&thread, 0, work, 0);
        if (write(ready[1], &byte, 1) != 1) return 3;
        pthread_exit(0);
    }"#;
    let mut daemon = Daemon::new("headless");
    daemon.program = compile(&daemon.directory, "headless", source, &["-pthread"]);
    let output = finished(daemon.compare(&["--runs", "1"], "x"));
    assert!(stderr(&output).contains("left headless (process "), "{}", stderr(&output));
    daemon.gone();
}

#[test]
fn ctrl_c_and_a_timeout_end_daemons_too() {
    let daemon = Daemon::new("interrupted");
    let mut child = daemon.compare(&["--runs", "1"], "waits").spawn().unwrap();
    // The process in the foreground and the daemon.
    daemon.wait_for(2, &mut child);
    send(&child, libc::SIGINT);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(alive(&daemon.mark), 0);

    let output = daemon.compare(&["--runs", "1", "--timeout", "0.5"], "waits").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("timed out"), "{}", stderr(&output));
    daemon.gone();
}

#[test]
fn ctrl_c_while_a_daemon_is_asked_to_end_is_heeded() {
    let daemon = Daemon::new("asked");
    let mut child = daemon.compare(&["--runs", "9", "--stop-timeout", "300"], "deaf").spawn().unwrap();
    // The daemon and its worker, when the process in the foreground has ended.
    daemon.wait_for(2, &mut child);
    std::thread::sleep(Duration::from_millis(200));
    daemon.wait_for(2, &mut child);
    send(&child, libc::SIGINT);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    daemon.gone();
}

#[test]
fn a_daemon_that_is_just_leaving_its_group_is_ended() {
    let daemon = Daemon::new("abrupt");
    finished(daemon.compare(&["--runs", "3"], "abrupt"));
    daemon.gone();
}

/// What stays in the program's own process group is no daemon: a shell that starts a server, measures, and exits.
#[test]
fn a_child_in_the_background_is_not_called_a_daemon() {
    let mark = mark(6);
    let mut command = latchwork();
    command
        .args(["compare", "--settle", "0", "--warmup", "0", "--runs", "1", "--mutex", "mcs", "--json", "-"])
        .args(["--", "sh", "-c"]);
    let output = command.arg(format!("sleep {mark} &")).output().unwrap();
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["left_running"].as_array().map(Vec::len), Some(0), "{json}");
    assert_eq!(alive(&mark), 0);
}
