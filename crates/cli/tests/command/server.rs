//! `latchwork compare --server`: a server under each lock, with a load generator beside it.

use crate::common::{
    Scratch, alive, compile, latchwork_of_locking_programs as latchwork, mark, processes, scratch, send,
    stderr, until_alive, with_growing_time,
};
use serde_json::Value;
use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};

/// Listens at the port argv[1] and says so. Writes its lock, and later that it was asked to stop, to the file argv[2].
/// argv[3]: `good`; `crashes` at the second connection, after which `lingers` is gone some milliseconds later only: the kernel frees
/// a large file when it has closed the connections; `dies` before it listens, `hangs` there;
/// `deaf`: does not stop when it is asked to, nor does its child.
const SERVER: &str = r#"
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>
static int file;
static void say(const char *text) { if (write(file, text, strlen(text)) < 0) _exit(9); }
static void stop(int signal) { (void)signal; say(" stopped\n"); _exit(0); }
int main(int argc, char **argv) {
    if (argc < 4) return 8;
    const char *lock = getenv("LATCHWORK_MUTEX"), *manner = argv[3];
    file = open(argv[2], O_WRONLY | O_CREAT | O_APPEND, 0600);
    say(lock ? lock : "none");
    int deaf = !strcmp(manner, "deaf");
    signal(SIGTERM, deaf ? SIG_IGN : stop);
    if (deaf && !fork()) for (;;) pause();
    if (!strcmp(manner, "dies")) { puts("no such disk"); fflush(stdout); return 3; }
    while (!strcmp(manner, "hangs")) pause();
    int lingers = !strcmp(manner, "lingers"), crashes = lingers || !strcmp(manner, "crashes");
    if (lingers) {
        const size_t size = 256 << 20;
        int large = memfd_create("large", 0);
        if (large < 0 || ftruncate(large, size)) return 7;
        void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, large, 0);
        if (at == MAP_FAILED) return 7;
        memset(at, 1, size);
    }
    int listener = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[1]))};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (bind(listener, (void *)&at, sizeof at) || listen(listener, 16)) { perror("bind"); return 6; }
    printf("listening at %s\n", argv[1]);
    fflush(stdout);
    for (int connections = 1;; connections++) {
        int connection = accept(listener, 0, 0);
        if (connection < 0) return 5;
        if (crashes && connections == 2) { puts("out of luck"); fflush(stdout); abort(); }
        close(connection);
    }
}"#;

struct Server {
    directory: Scratch,
    program: PathBuf,
    port: u16,
}

impl Server {
    fn new(name: &str) -> Self {
        let directory = scratch(&format!("server-{name}"));
        let program = compile(&directory, "my-server", SERVER, &[]);
        // Ports below those that the kernel gives to clients, and another one for each test.
        static NEXT: AtomicU16 = AtomicU16::new(0);
        let first = u16::try_from(std::process::id() % 1000).unwrap() * 10 + 20000;
        let mut ports = std::iter::repeat_with(|| first + NEXT.fetch_add(1, Ordering::Relaxed) % 2000);
        let port = ports.find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).unwrap();
        Self { directory, program, port }
    }

    fn command(&self, manner: &str, ready: &str, load: &str) -> Command {
        let server = format!(
            "{} {} {} {manner}",
            self.program.display(),
            self.port,
            self.directory.join("log").display()
        );
        let mut command = latchwork();
        command.args([
            "compare", "--settle", "0", "--warmup", "0", "--runs", "2", "--mutex", "mcs", "--json", "-",
        ]);
        command.args(["--server", &server, "--ready", ready, "--load", load]);
        command.args(["--stop-timeout", if manner == "deaf" { "0.3" } else { "300" }]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn log(&self) -> String {
        fs::read_to_string(self.directory.join("log")).unwrap()
    }

    fn running(&self) -> usize {
        let own = self.program.to_str().unwrap();
        processes(|command_line| command_line.starts_with(own))
    }

    fn gone(self) {
        assert_eq!(self.running(), 0);
    }
}

fn failure(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1), "{}", stderr(output));
    stderr(output)
}

#[test]
fn a_server_is_started_loaded_and_stopped_under_each_lock() {
    let server = Server::new("good");
    let port = server.port.to_string();
    for ready in [port.as_str(), "^listening at [0-9]+$"] {
        let _ = fs::remove_file(server.directory.join("log"));
        // The load has no lock.
        let load = "echo \"rate: 7$LATCHWORK_MUTEX\"";
        let output = server.command("good", ready, load).args(["--metric", "^rate: (.*)$"]).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        let json: Value = serde_json::from_slice(&output.stdout).unwrap();
        for candidate in json["candidates"].as_array().unwrap() {
            for run in candidate["runs"].as_array().unwrap() {
                assert_eq!(run["metric"], 7.0);
                assert!(run["memory_bytes"].as_u64().unwrap() > 100_000, "{run}");
            }
        }
        assert_eq!(json["load"][0], "sh");
        assert_eq!(json["ready"], ready);
        assert_eq!(json["left_running"].as_array().map(Vec::len), Some(0), "{json}");
        assert_eq!(server.log(), "none stopped\nmcs stopped\nmcs stopped\nnone stopped\n");
    }
    server.gone();
}

#[test]
fn a_server_that_dies_or_is_never_ready_is_reported_with_its_output() {
    let server = Server::new("bad");
    let port = server.port.to_string();
    let text = failure(&server.command("dies", &port, "true").output().unwrap());
    assert!(
        text.contains("ended before it was ready (exit status 3)") && text.contains("| no such disk"),
        "{text}"
    );

    let mut command = server.command("hangs", &port, "true");
    let text = failure(&command.args(["--ready-timeout", "0.3"]).output().unwrap());
    assert!(
        text.contains("not ready after 0.3 s: no program listens on port")
            && text.contains("--ready-timeout"),
        "{text}"
    );

    with_growing_time(|time| {
        let mut command = server.command("good", "^ready$", "true");
        let text = failure(&command.args(["--ready-timeout", time]).output().unwrap());
        assert!(text.contains("nothing in its output matches \"^ready$\""), "{text}");
        text.contains("| listening at").then_some(())
    });

    // The load notices nothing, and ends at once or much later.
    for (manner, rest) in [("crashes", "true"), ("crashes", "sleep 60"), ("lingers", "true")] {
        let connect = format!("exec 3<>/dev/tcp/127.0.0.1/{port}");
        let connect = format!("bash -c '{connect}; {connect}; read -u 3; {rest}'");
        let text = failure(&server.command(manner, "listening", &connect).output().unwrap());
        assert!(
            text.contains("ended under the load (killed by signal 6") && text.contains("| out of luck"),
            "{text}"
        );
    }

    let text = failure(&server.command("good", &port, "echo oops; exit 5").output().unwrap());
    assert!(text.contains("the load failed: exit status 5") && text.contains("| oops"), "{text}");
    assert!(text.contains("| listening at"), "{text}");

    let mut command = server.command("good", &port, "sleep 60");
    let text = failure(&command.args(["--timeout", "0.3"]).output().unwrap());
    assert!(text.contains("the load timed out after "), "{text}");
    server.gone();
}

#[test]
fn a_port_that_is_taken_is_noticed_before_the_server_starts() {
    let server = Server::new("taken");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let text = failure(&server.command("good", &port, "true").output().unwrap());
    assert!(text.contains(&format!("already listens on port {port}")), "{text}");
    assert!(!server.directory.join("log").exists());
    server.gone();
}

#[test]
fn a_server_that_does_not_stop_is_killed_and_that_is_said_once() {
    let server = Server::new("deaf");
    let port = server.port.to_string();
    let output = server.command("deaf", &port, "true").output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(
        stderr(&output).matches("did not stop within 0.3 s after SIGTERM").count(),
        1,
        "{}",
        stderr(&output)
    );
    server.gone();
}

#[test]
fn ctrl_c_stops_the_server_and_its_load() {
    let server = Server::new("interrupted");
    let port = server.port.to_string();
    let mark = mark(5);
    let mut child = server.command("good", &port, &format!("sleep {mark}")).spawn().unwrap();
    until_alive(&mut child, &format!("sleep\0{mark}"), 1);
    send(&child, libc::SIGINT);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(alive(&mark), 0);
    // It was asked politely.
    assert_eq!(server.log(), "none stopped\n");
    server.gone();
}
