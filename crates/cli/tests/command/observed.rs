//! `latchwork profile --pid` and `latchwork top`: what the observed process does meanwhile, and what other users may do.

use crate::common::{compile, in_time, latchwork, output, scratch, send, stderr, stdout, with_growing_time};
use crate::live::{BUSY, Running, busy, observers_directory, parse};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

fn until<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "it does not happen");
        thread::sleep(Duration::from_millis(5));
    }
}

/// How many recordings an observer has of the process and of the programs that it executed.
fn recordings(pid: &str) -> usize {
    let entries = observers_directory(pid).and_then(|observed| fs::read_dir(observed).ok());
    entries.into_iter().flatten().flatten().filter(|entry| entry.path().extension().is_some()).count()
}

fn make_fifo(path: &Path) {
    let name = std::ffi::CString::new(path.as_os_str().as_encoded_bytes()).unwrap();
    // SAFETY: a string that ends.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
}

/// Any user can make a directory in /dev/shm whose name is that of an observer's.
#[test]
fn directories_of_others_are_not_waited_for() {
    use latchwork_recording::control::{DIRECTORY, FILE};
    let (_directory, running) = busy("live-fifo");
    let trap = PathBuf::from(format!("/dev/shm/{DIRECTORY}fifo{}", running.pid()));
    fs::create_dir(&trap).unwrap();
    make_fifo(&trap.join(FILE));
    let observed = in_time(latchwork().args(["profile", "--pid", &running.pid(), "--seconds", "0.1"]));
    fs::remove_dir_all(trap).unwrap();
    assert_eq!(observed.status.code(), Some(0), "{}", stderr(&observed));
    running.end();
}

/// The directory of the recording belongs to the user of the process, and the command may be root's.
#[test]
fn only_recordings_are_kept() {
    let (directory, running) = busy("live-keep");
    let (secret, kept) = (directory.join("secret"), directory.join("kept"));
    fs::write(&secret, "secret").unwrap();
    let pid = running.pid();
    let mut profile = latchwork();
    profile.args(["profile", "--pid", &pid, "--keep"]).arg(&kept);
    let profile = profile.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let observed = PathBuf::from(until(|| observers_directory(&pid)));
    for name in ["leak", "1.0.recording"] {
        std::os::unix::fs::symlink(&secret, observed.join(name)).unwrap();
    }
    fs::write(observed.join("2"), "no recording").unwrap();
    send(&profile, libc::SIGINT);
    let output = profile.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let names: Vec<_> = fs::read_dir(&kept).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(names.len() == 1 && names[0].to_str().unwrap().starts_with(&pid), "{names:?}");
    running.end();
}

/// Locks a mutex in two threads. It executes itself when it reads a byte.
const SUCCESSOR: &str = r#"
    #include <pthread.h>
    #include <unistd.h>
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static void *work(void *unused) {
        for (;;) { pthread_mutex_lock(&mutex); usleep(100); pthread_mutex_unlock(&mutex); usleep(100); }
        return unused;
    }
    int main(int argc, char **argv) {
        pthread_t thread;
        char byte;
        pthread_create(&thread, 0, work, 0);
        write(1, "ready\n", 6);
        while (read(0, &byte, 1) > 0) execl("/proc/self/exe", "successor", (char *)0);
        return 0;
    }"#;

/// Has it execute itself.
fn succeed(running: &mut Running) {
    running.0.stdin.as_mut().unwrap().write_all(b"x").unwrap();
    running.0.stdout.as_mut().unwrap().read_exact(&mut [0; 6]).unwrap();
}

#[test]
fn top_follows_a_process_that_executes_another_program() {
    let directory = scratch("live-exec");
    let program = compile(&directory, "successor", SUCCESSOR, &["-O1", "-pthread"]);
    let mut running = Running::under_latchwork(&[], &program);
    let pid = running.pid();
    let mut top = latchwork();
    top.args(["top", &pid, "--batch", "1000000", "--interval", "0.1", "--json"]);
    let mut top = top.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = std::io::BufReader::new(top.stdout.take().unwrap()).lines();
    let mut acquisitions = || {
        let line = parse(&lines.next().unwrap().unwrap());
        line["locks"][0]["acquisitions"].as_u64().unwrap_or(0)
    };
    assert!((0..1000).any(|_| acquisitions() > 0), "the program runs");
    succeed(&mut running);
    // The first of these lines may be from before.
    let before = (0..5).map(|_| acquisitions()).count();
    assert!((before..1000).any(|_| acquisitions() > 0), "the program that runs now is not seen");
    send(&top, libc::SIGTERM);
    top.wait().unwrap();
    running.end();
}

#[test]
fn both_programs_of_a_process_are_in_its_profile() {
    let directory = scratch("live-exec-profile");
    let program = compile(&directory, "successor", SUCCESSOR, &["-O1", "-pthread"]);
    let mut running = Running::under_latchwork(&[], &program);
    let pid = running.pid();
    let profile = latchwork()
        .args(["profile", "--json", "-", "--pid", &pid])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    until(|| (recordings(&pid) == 1).then_some(()));
    succeed(&mut running);
    until(|| (recordings(&pid) == 2).then_some(()));
    send(&profile, libc::SIGINT);
    let output = profile.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let report = parse(&stdout(&output));
    assert_eq!(report["processes"].as_array().map(Vec::len), Some(2), "{report}");
    running.end();
}

/// A server with a process for each connection, until it reads a byte.
#[test]
fn children_that_have_ended_do_not_live_in_top_and_take_no_more_memory() {
    let source = r#"
    #include <poll.h>
    #include <pthread.h>
    #include <sys/wait.h>
    #include <unistd.h>
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static void lock(int calls) {
        while (calls--) { pthread_mutex_lock(&mutex); pthread_mutex_unlock(&mutex); }
    }
    int main(void) {
        struct pollfd input = { 0, POLLIN, 0 };
        char byte;
        write(1, "ready\n", 6);
        while (poll(&input, 1, 0) == 0) {
            lock(1);
            int child = fork();
            if (!child) { lock(100); _exit(0); }
            waitpid(child, 0, 0);
        }
        while (read(0, &byte, 1) > 0) {}
        return 0;
    }"#;
    let directory = scratch("live-children");
    let program = compile(&directory, "forks", source, &["-O1", "-pthread"]);
    let mut running = Running::under_latchwork(&[], &program);
    let pid = running.pid();
    let mut top = latchwork();
    top.args(["top", &pid, "--batch", "1000000", "--interval", "0.1", "--json"]);
    let mut top = top.stdout(Stdio::piped()).spawn().unwrap();
    let mut sum = 0;
    // It stays open: without a reader top ends.
    let mut lines = std::io::BufReader::new(top.stdout.take().unwrap()).lines();
    for line in lines.by_ref() {
        let line = parse(&line.unwrap());
        let lock = &line["locks"][0];
        let number = |value: &Value| value.as_u64().unwrap_or(0);
        sum += number(&lock["acquisitions"]);
        // One figure of a look may be older than another one.
        assert!(number(&lock["total"]["acquisitions"]) >= sum, "{line}");
        assert!(number(&line["threads"]) <= 4, "{line}");
        // A hundred children.
        if sum > 100 * 100 {
            break;
        }
    }
    // Between two looks the program may fork any number, if it gets more of a busy processor than top.
    running.0.stdin.as_mut().unwrap().write_all(b"x").unwrap();
    let files = || fs::read_dir(observers_directory(&pid).unwrap()).unwrap().count();
    until(|| (files() < 60).then_some(()));
    send(&top, libc::SIGTERM);
    top.wait().unwrap();
    running.end();
}

/// `main` may end by `pthread_exit`.
#[test]
fn a_process_whose_first_thread_has_ended_is_observed() {
    let directory = scratch("live-first");
    let source = BUSY.replace("while (read(0, &byte, 1) > 0) {}", "if (argc > 1) pthread_exit(0);");
    let source = source.replace("main(void)", "main(int argc, char **argv)");
    let program = compile(&directory, "busy", &source, &["-O1", "-pthread", "-w"]);
    let running = Running::start(latchwork().args(["run", "--"]).arg(&program).arg("x"));
    let status = format!("/proc/{}/status", running.pid());
    until(|| fs::read_to_string(&status).unwrap().contains("State:\tZ").then_some(()));
    let table = output(&["top", "--once", "--interval", "0.3", &running.pid()]);
    assert_eq!(table.status.code(), Some(0), "{}", stderr(&table));
    drop(running);
}

/// As `nohup latchwork profile --pid PID --seconds 3600 &`.
#[test]
fn an_ignored_signal_does_not_end_a_recording() {
    let (_directory, running) = busy("live-nohup");
    let ignore = || {
        for signal in [libc::SIGHUP, libc::SIGINT] {
            // SAFETY: may be called between fork and exec.
            unsafe { libc::signal(signal, libc::SIG_IGN) };
        }
        Ok(())
    };
    // On a busy machine the test may look when the recording has ended.
    let (time, report) = with_growing_time(|time| {
        let mut profile = latchwork();
        profile.args(["profile", "--json", "-", "--pid", &running.pid(), "--seconds", time]);
        // SAFETY: the closure calls nothing else.
        unsafe { profile.pre_exec(ignore) };
        let mut profile = profile.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let is_recorded = until(|| {
            let is_recorded = observers_directory(&running.pid()).is_some();
            (is_recorded || profile.try_wait().unwrap().is_some()).then_some(is_recorded)
        });
        if is_recorded {
            for signal in [libc::SIGHUP, libc::SIGINT] {
                send(&profile, signal);
            }
        }
        let report = parse(&stdout(&profile.wait_with_output().unwrap()));
        is_recorded.then(|| (time.parse::<f64>().unwrap(), report))
    });
    assert!(report["seconds"].as_f64().unwrap() > time - 0.05, "{report}");
    running.end();
}

/// By a debugger, or by Ctrl-Z in its terminal.
#[test]
fn a_process_that_is_stopped_at_the_end_loses_nothing() {
    let (directory, running) = busy("live-stopped");
    let (pid, kept) = (running.pid(), directory.join("kept"));
    let mut profile = latchwork();
    profile.args(["profile", "--json", "-", "--pid", &pid, "--keep"]).arg(&kept);
    let profile = profile.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    until(|| (recordings(&pid) == 1).then_some(()));
    thread::sleep(Duration::from_millis(300));
    send(&running.0, libc::SIGSTOP);
    send(&profile, libc::SIGINT);
    let output = profile.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stderr(&output).contains("may be missing") && stderr(&output).contains("stopped"));
    assert!(parse(&stdout(&output))["seconds"].as_f64().unwrap() > 0.2);
    assert_eq!(fs::read_dir(&kept).unwrap().count(), 1);
    send(&running.0, libc::SIGCONT);
    running.end();
}

/// Ctrl-Z gives the terminal back as it was, `fg` brings the screen again, and Ctrl-\ ends as `q` does.
#[test]
fn the_screen_goes_and_comes_with_job_control() {
    let (_directory, running) = busy("live-screen");
    let (mut master, mut slave) = (0, 0);
    let size = libc::winsize { ws_row: 24, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: room for both descriptors; the name and the modes are not asked for.
    let made = unsafe {
        libc::openpty(&mut master, &mut slave, std::ptr::null_mut(), std::ptr::null(), &raw const size)
    };
    assert_eq!(made, 0);
    // SAFETY: nothing else has these descriptors.
    let (mut master, slave) = unsafe { (fs::File::from_raw_fd(master), OwnedFd::from_raw_fd(slave)) };
    let script =
        "set -m; \"$0\" top \"$1\" --interval 0.1; echo stopped $?; stty -a; fg; echo ended $?; stty -a";
    let mut shell = Command::new("sh");
    shell.args(["-c", script, crate::COMMAND, &running.pid()]).stdin(slave.try_clone().unwrap());
    shell.stdout(slave.try_clone().unwrap()).stderr(slave);
    let own_terminal = || {
        // SAFETY: may be called between fork and exec. Descriptor 0 is the terminal.
        let result = unsafe { libc::setsid() + libc::ioctl(0, libc::TIOCSCTTY, 0) };
        if result >= 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    };
    // SAFETY: the closure calls nothing else.
    unsafe { shell.pre_exec(own_terminal) };
    let mut shell = shell.spawn().unwrap();
    let mut seen = String::new();
    let mut until_seen = |master: &mut fs::File, what: &str| {
        let mut bytes = [0; 4096];
        while !seen.contains(what) {
            let mut poll = libc::pollfd { fd: master.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            // SAFETY: one descriptor.
            assert_eq!(unsafe { libc::poll(&mut poll, 1, 60_000) }, 1, "{what:?} does not come: {seen:?}");
            let length = master.read(&mut bytes).unwrap_or_else(|error| panic!("{error}: {seen:?}"));
            seen += &String::from_utf8_lossy(&bytes[..length]);
        }
        let at = seen.find(what).unwrap() + what.len();
        let before: String = seen.drain(..at).collect();
        before
    };
    until_seen(&mut master, "acquisitions/s");
    master.write_all(b"\x1a").unwrap();
    assert!(until_seen(&mut master, "stopped ").contains("\x1b[?1049l"));
    // The terminal is in line mode.
    assert!(until_seen(&mut master, " echo ").contains(" icanon "));
    until_seen(&mut master, "\x1b[?1049h");
    // The whole screen is drawn again.
    until_seen(&mut master, "busy (");
    until_seen(&mut master, "acquisitions/s");
    master.write_all(b"\x1c").unwrap();
    assert!(until_seen(&mut master, "ended 0").contains("\x1b[?1049l"));
    assert!(until_seen(&mut master, " echo ").contains(" icanon "));
    shell.wait().unwrap();
    running.end();
}

/// A server that root started and that has given up its rights; and it calls itself something that would paint root's terminal.
#[test]
fn a_process_that_cannot_be_looked_into_is_not_said_to_be_without_latchwork() {
    let directory = scratch("live-closed");
    let source =
        BUSY.replace("write(1,", r#"prctl(PR_SET_DUMPABLE, 0); prctl(PR_SET_NAME, "a\033[31m"); write(1,"#);
    let source = format!("#include <sys/prctl.h>\n{source}");
    let program = compile(&directory, "busy", &source, &["-O1", "-pthread"]);
    let running = Running::under_latchwork(&[], &program);
    // SAFETY: cannot fail.
    let is_root = unsafe { libc::geteuid() } == 0;
    let table = output(&["top", "--once", "--interval", "0.1", &running.pid()]);
    let text = stdout(&table) + &stderr(&table);
    assert!(text.contains(&format!("a[31m ({})", running.pid())) || !is_root, "{text:?}");
    assert!(text.contains("by root only") || is_root, "{text:?}");
    running.end();
}
