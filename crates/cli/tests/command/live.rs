//! `latchwork profile --pid` and `latchwork top`: programs that run already.

use crate::common::{Scratch, compile, latchwork, limit, output, scratch, send, stderr, stdout};
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// One thread holds `cache.mutex` for 2 ms at a time, and another one wants it. It runs until standard input ends.
pub const BUSY: &str = r#"
    #include <pthread.h>
    #include <time.h>
    #include <unistd.h>
    static struct { char other[40]; pthread_mutex_t mutex; } cache;
    static void nap(long us) { struct timespec t = { 0, us * 1000 }; while (nanosleep(&t, &t)) {} }
    __attribute__((noinline)) void evict(void) {
        pthread_mutex_lock(&cache.mutex);
        nap(2000);
        pthread_mutex_unlock(&cache.mutex);
    }
    __attribute__((noinline)) void get(void) {
        pthread_mutex_lock(&cache.mutex);
        pthread_mutex_unlock(&cache.mutex);
    }
    static void *evictor(void *unused) {
        for (;;) { evict(); nap(100); }
        return unused;
    }
    static void *getter(void *unused) {
        for (;;) { get(); nap(100); }
        return unused;
    }
    int main(void) {
        pthread_t thread;
        char byte;
        pthread_create(&thread, 0, evictor, 0);
        pthread_create(&thread, 0, getter, 0);
        write(1, "ready\n", 6);
        while (read(0, &byte, 1) > 0) {}
        return 0;
    }"#;

/// A program that runs.
pub struct Running(pub Child);

impl Running {
    pub fn start(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = [0; 6];
        child.stdout.as_mut().unwrap().read_exact(&mut line).unwrap();
        Self(child)
    }

    pub fn under_latchwork(arguments: &[&str], program: &Path) -> Self {
        Self::start(latchwork().arg("run").args(arguments).arg("--").arg(program))
    }

    pub fn pid(&self) -> String {
        self.0.id().to_string()
    }

    pub fn end(mut self) {
        drop(self.0.stdin.take());
        assert!(self.0.wait().unwrap().success());
    }
}

/// [`BUSY`] under latchwork, and the test's directory.
pub fn busy(test: &str) -> (Scratch, Running) {
    let directory = scratch(test);
    let program = compile(&directory, "busy", BUSY, &["-g", "-O1", "-pthread"]);
    let running = Running::under_latchwork(&[], &program);
    (directory, running)
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub fn parse(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn a_process_that_runs_is_recorded() {
    let directory = scratch("live");
    let program = compile(&directory, "busy", BUSY, &["-g", "-O1", "-pthread"]);
    for arguments in [&[][..], &["--mutex", "glibc", "--rwlock", "glibc"]] {
        let running = Running::under_latchwork(arguments, &program);
        let pid = running.pid();
        // Twice: the second recording begins anew.
        for _ in 0..2 {
            // On a busy machine the program may not run in half a second, or a thread may wait for all of it.
            let report = (0..100).find_map(|_| {
                let run = output(&["profile", "--pid", &pid, "--seconds", "0.5", "--json", "-"]);
                assert_eq!(run.status.code(), Some(0), "{}", stderr(&run));
                let report = parse(&stdout(&run));
                (report["locks"][0]["acquisitions"].as_u64() > Some(0)).then_some(report)
            });
            let report = report.expect("the program runs");
            let lock = &report["locks"][0];
            assert_eq!((&lock["name"], &lock["instances"]), (&"cache.mutex".into(), &1.into()), "{report}");
            let seconds = report["seconds"].as_f64().unwrap();
            assert!(lock["wait_max_ns"].as_f64().unwrap() <= seconds * 1e9, "{report}");
        }
        let kept = directory.join(format!("kept{}", arguments.len()));
        let run = output(&["profile", "--pid", &pid, "--seconds", "0.2", "--keep", kept.to_str().unwrap()]);
        assert!(stdout(&run).contains("Recorded"), "{}{}", stdout(&run), stderr(&run));
        let again = output(&["profile", "--read", kept.to_str().unwrap()]);
        // The copy may occupy more or less.
        let verdict = |text: &str| text.lines().next().unwrap().to_owned();
        assert_eq!(verdict(&stdout(&again)), verdict(&stdout(&run)));
        let file = fs::read_dir(&kept).unwrap().next().unwrap().unwrap();
        let occupied = std::os::unix::fs::MetadataExt::blocks(&file.metadata().unwrap()) * 512;
        assert!(occupied < 64 << 20, "{occupied} bytes: the copy has holes");
        running.end();
    }
}

/// A recording that is kept says that it began while the process ran. What was before that is not known.
#[test]
fn a_kept_recording_began_late() {
    const IDLE: &str = r#"
        #include <unistd.h>
        int main(void) {
            char byte;
            write(1, "ready\n", 6);
            while (read(0, &byte, 1) > 0) {}
            return 0;
        }"#;
    let directory = scratch("live-late");
    let program = compile(&directory, "idle", IDLE, &[]);
    let running = Running::under_latchwork(&[], &program);
    let kept = directory.join("kept");
    let kept = kept.to_str().unwrap();
    let run = output(&["profile", "--pid", &running.pid(), "--seconds", "0.01", "--keep", kept]);
    for run in [run, output(&["profile", "--read", kept])] {
        assert!(
            stdout(&run).contains("no pthread lock while it was recorded"),
            "{}{}",
            stdout(&run),
            stderr(&run)
        );
    }
    running.end();
}

/// The observer cannot make the thread that keeps the recording going.
#[test]
fn a_limit_on_threads_is_named() {
    let (_directory, running) = busy("live-no-threads");
    for words in [&["top", "--once"][..], &["profile", "--seconds", "0.1", "--pid"]] {
        let mut command = latchwork();
        command.args(words).arg(running.pid());
        let as_no_real_root = || {
            // Root has no limit, nor has a process with the capabilities CAP_SYS_ADMIN (21) and CAP_SYS_RESOURCE (24).
            // SAFETY: system calls with plain arguments, which may be made between fork and exec.
            unsafe {
                if libc::geteuid() == 0 {
                    libc::prctl(libc::PR_CAPBSET_DROP, 21, 0, 0, 0);
                    libc::prctl(libc::PR_CAPBSET_DROP, 24, 0, 0, 0);
                    libc::setresuid(65534, 0, 0);
                }
            }
            Ok(())
        };
        // SAFETY: the closure says why.
        unsafe { command.pre_exec(as_no_real_root) };
        limit(&mut command, libc::RLIMIT_NPROC, 0);
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{words:?}: {}", stderr(&output));
        assert!(stderr(&output).contains("(ulimit -u)"), "{words:?}: {}", stderr(&output));
    }
    // It has been left alone.
    let output = output(&["top", &running.pid(), "--once", "--interval", "0.1"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    running.end();
}

/// With little memory the observer says what it lacks, and does not abort.
#[test]
fn a_limit_on_memory_is_named() {
    let (_directory, running) = busy("live-no-memory");
    for megabytes in (20..80).step_by(12) {
        let mut command = latchwork();
        command.args(["top", "--once", "--interval", "0.1"]).arg(running.pid());
        limit(&mut command, libc::RLIMIT_AS, megabytes << 20);
        let output = command.output().unwrap();
        let text = stderr(&output);
        assert!(matches!(output.status.code(), Some(0 | 1)), "{megabytes} MiB: {}, {text}", output.status);
        assert!(!text.contains("memory allocation of"), "{megabytes} MiB: {text}");
    }
    running.end();
}

/// With few descriptors the observer cannot look at the process. It must not say that the process is gone, or that it blocks a signal.
#[test]
fn a_limit_on_descriptors_is_named() {
    let (_directory, running) = busy("live-no-descriptors");
    // Observers of other tests fill theirs at once.
    let empty = || -> Vec<PathBuf> {
        let entries = fs::read_dir("/dev/shm").unwrap().flatten().map(|entry| entry.path());
        let is_ours = |path: &PathBuf| path.to_string_lossy().contains("/latchwork-live-");
        let is_empty = |path: &PathBuf| fs::read_dir(path).is_ok_and(|mut found| found.next().is_none());
        entries.filter(|path| is_ours(path) && is_empty(path)).collect()
    };
    let before = empty();
    for most in 5..12 {
        let mut command = latchwork();
        command.args(["top", "--once", "--interval", "0.1"]).arg(running.pid());
        limit(&mut command, libc::RLIMIT_NOFILE, most);
        let output = command.output().unwrap();
        let named = stderr(&output).contains("Too many open files");
        assert_eq!(output.status.code(), Some(i32::from(named)), "{most}: {}", stderr(&output));
    }
    let left = || empty().into_iter().filter(|path| !before.contains(path)).collect::<Vec<_>>();
    let begin = Instant::now();
    let is_clean = (0..).take_while(|_| begin.elapsed() < Duration::from_secs(60)).any(|_| {
        thread::sleep(Duration::from_millis(50));
        left().is_empty()
    });
    assert!(is_clean, "{:?}", left());
    running.end();
}

#[test]
fn ctrl_c_and_the_end_of_the_process_end_the_recording() {
    let directory = scratch("live-early");
    let program = compile(&directory, "busy", BUSY, &["-g", "-O1", "-pthread"]);
    // The last time lies beyond the clock's end.
    for (kill, time) in [(false, &["--seconds", "1000"][..]), (false, &[]), (true, &["--seconds", "1e19"])] {
        let mut running = Running::under_latchwork(&[], &program);
        let mut profile = latchwork()
            .args(["profile", "--json", "-", "--pid", &running.pid()])
            .args(time)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut announcement = [0; 9];
        profile.stderr.as_mut().unwrap().read_exact(&mut announcement).unwrap();
        assert_eq!(&announcement, b"latchwork");
        thread::sleep(Duration::from_millis(300));
        if kill {
            running.0.kill().unwrap();
        } else {
            send(&profile, libc::SIGINT);
        }
        let output = profile.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert!(parse(&stdout(&output))["seconds"].as_f64().is_some());
        drop(running);
    }
}

#[test]
fn errors_say_why_a_process_cannot_be_observed() {
    let directory = scratch("live-errors");
    let program = compile(&directory, "busy", BUSY, &["-O1", "-pthread"]);
    let refused = |pid: &str, why: &str| {
        for command in [&["profile", "--seconds", "1", "--pid"][..], &["top", "--once"]] {
            let mut arguments = command.to_vec();
            arguments.push(pid);
            let run = output(&arguments);
            assert_eq!(run.status.code(), Some(1), "{command:?} {pid}: {}", stderr(&run));
            assert!(stderr(&run).contains(why), "{command:?} {pid}: {}", stderr(&run));
        }
    };
    // The largest number that the kernel gives is below this one.
    refused("4194305", "there is no process");
    let alone = Running::start(&mut Command::new(&program));
    refused(&alone.pid(), "was not started under latchwork");
    let left_out = Running::under_latchwork(&["--not", "busy"], &program);
    refused(&left_out.pid(), "--only or --not leaves it out");
    let recorded = directory.join("recorded");
    let mut profile = latchwork();
    profile.args(["profile", "--keep"]).arg(&recorded).arg("--").arg(&program).stderr(Stdio::null());
    let profile = Running::start(&mut profile);
    let file = loop {
        if let Some(file) = fs::read_dir(&recorded).unwrap().next() {
            break file.unwrap().file_name().into_string().unwrap();
        }
        thread::sleep(Duration::from_millis(1));
    };
    refused(file.split('.').next().unwrap(), "recorded from its start");
    for running in [alone, left_out, profile] {
        running.end();
    }

    // Another observer.
    let running = Running::under_latchwork(&[], &program);
    let mut first = latchwork();
    first.args(["top", "--batch", "100000", "--interval", "0.1", &running.pid()]);
    let mut first = first.stdout(Stdio::piped()).spawn().unwrap();
    first.stdout.as_mut().unwrap().read_exact(&mut [0; 4]).unwrap();
    refused(&running.pid(), &format!("recorded already, by process {}", first.id()));
    send(&first, libc::SIGTERM);
    // It ends by the signal, or in order.
    let mut rest = Vec::new();
    first.stdout.as_mut().unwrap().read_to_end(&mut rest).unwrap();
    first.wait().unwrap();
    let next = output(&["top", "--once", "--interval", "0.1", &running.pid()]);
    assert_eq!(next.status.code(), Some(0), "{}", stderr(&next));
    running.end();

    assert_eq!(output(&["profile", "--pid", "1", "--", "true"]).status.code(), Some(2));
    assert_eq!(output(&["profile", "--seconds", "1", "--", "true"]).status.code(), Some(2));
    assert_eq!(output(&["top", "1", "--json"]).status.code(), Some(2));
    let no_terminal = output(&["top", "1"]);
    assert_eq!(no_terminal.status.code(), Some(2), "{}", stderr(&no_terminal));
}

#[test]
fn top_prints_tables_and_json() {
    let (_directory, mut running) = busy("live-top");
    let pid = running.pid();
    // On a busy machine the program may not run in 0.3 s.
    let found = (0..100).any(|_| {
        let table = output(&["top", "--once", "--interval", "0.3", &pid]);
        let text = stdout(&table);
        assert!(text.starts_with(&format!("busy ({pid}): ")), "{text}{}", stderr(&table));
        text.contains("\ncache.mutex ")
    });
    assert!(found, "the program runs");
    let found = (0..100).any(|_| {
        let batch =
            output(&["top", "--batch", "3", "--json", "--interval", "0.3", "--sort", "acquisitions", &pid]);
        let lines: Vec<_> = stdout(&batch).lines().map(parse).collect();
        assert_eq!(lines.len(), 3, "{}", stderr(&batch));
        // A line has the locks that were used since the line before.
        let used: Vec<_> =
            lines.iter().map(|line| &line["locks"][0]).filter(|lock| !lock.is_null()).collect();
        let acquisitions = |lock: &Value, of: &str| lock.pointer(of).and_then(Value::as_u64).unwrap();
        let sum: u64 = used.iter().map(|lock| acquisitions(lock, "/acquisitions")).sum();
        let total = used.last().map_or(0, |lock| acquisitions(lock, "/total/acquisitions"));
        assert_eq!(sum, total, "{lines:#?}");
        sum > 0
    });
    assert!(found, "the program runs");

    // The process ends before the tables do.
    let mut long = latchwork();
    long.args(["top", "--batch", "1000000", "--interval", "0.05", &pid]);
    let mut long = long.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    long.stdout.as_mut().unwrap().read_exact(&mut [0; 4]).unwrap();
    running.0.stdin.as_mut().unwrap().write_all(b"x").unwrap();
    running.end();
    let begin = Instant::now();
    let ended = long.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(0), "after {:?}: {}", begin.elapsed(), stderr(&ended));
    assert!(stderr(&ended).contains("has ended"), "{}", stderr(&ended));
}

#[test]
fn the_name_of_a_program_leads_to_its_number() {
    for arguments in [&["top", "my server"][..], &["profile", "--pid", "my server"]] {
        let run = output(arguments);
        assert_eq!(run.status.code(), Some(2), "{}", stderr(&run));
        assert!(stderr(&run).contains("$(pidof 'my server')"), "{}", stderr(&run));
    }
    for number in ["0", "4294967296", "-1"] {
        let run = output(&["profile", "--pid", number]);
        assert!(stderr(&run).contains("there is no process of this number"), "{}", stderr(&run));
    }
}

/// Two threads that wait for each other since before they were observed call no lock any more.
#[test]
fn a_process_that_is_stuck_already_is_not_called_idle() {
    let source = r#"
        #include <pthread.h>
        #include <unistd.h>
        static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
        static void *wait(void *unused) { pthread_mutex_lock(&mutex); return unused; }
        int main(void) {
            pthread_t threads[2];
            pthread_mutex_lock(&mutex);
            for (int i = 0; i < 2; i++) pthread_create(&threads[i], 0, wait, 0);
            write(1, "ready\n", 6);
            pthread_join(threads[0], 0);
        }"#;
    let directory = scratch("live-stuck");
    let program = compile(&directory, "stuck", source, &["-g", "-O1", "-pthread"]);
    let running = Running::under_latchwork(&["--mutex", "glibc", "--rwlock", "glibc"], &program);
    let pid = running.pid();
    let seen = (0..100).any(|_| {
        let table = output(&["top", "--once", "--interval", "0.1", &pid]);
        stdout(&table).contains("3 threads sleep in a futex")
    });
    assert!(seen, "the three threads wait at last");
    let table = output(&["top", "--once", "--interval", "0.1", &pid]);
    let text = stdout(&table);
    assert!(text.contains("since the recording began") && text.contains(&format!("gdb -p {pid} ")), "{text}");
    let line = parse(&stdout(&output(&["top", "--once", "--json", "--interval", "0.1", &pid])));
    assert_eq!(line["asleep"], 3, "{line}");
    let report = output(&["profile", "--pid", &pid, "--seconds", "0.1", "--json", "-"]);
    let report = parse(&stdout(&report));
    let notes = report["notes"].to_string();
    assert!(notes.contains("3 threads sleep in a futex"), "{report}");
}

/// The directory of the observer, from the memory map of the process that it records.
pub fn observers_directory(pid: &str) -> Option<String> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let start = maps.find("/dev/shm/latchwork-live-").or_else(|| maps.find("/tmp/latchwork-live-"))?;
    Some(maps[start..].split(['/', '\n']).take(4).collect::<Vec<_>>().join("/"))
}

#[test]
fn an_observer_that_is_gone_keeps_no_other_one_out() {
    let (_directory, running) = busy("live-gone");
    let pid = running.pid();
    for killed in [false, true] {
        let mut top = latchwork();
        top.args(["top", &pid, "--batch", "1000000", "--interval", "0.05"]);
        let mut top = top.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut out = top.stdout.take().unwrap();
        out.read_exact(&mut [0; 4]).unwrap();
        let observed = observers_directory(&pid).expect("the process is recorded");
        if killed {
            top.kill().unwrap();
        }
        // As `head` does.
        drop(out);
        let ended = top.wait_with_output().unwrap();
        let signal = if killed { libc::SIGKILL } else { libc::SIGPIPE };
        assert_eq!(ended.status.signal(), Some(signal), "{}", stderr(&ended));
        assert!(killed || !fs::exists(&observed).unwrap(), "{observed}");
        let next = output(&["profile", "--pid", &pid, "--seconds", "0.1"]);
        assert_eq!(next.status.code(), Some(0), "{}", stderr(&next));
        if killed {
            // The process itself removes the directory, unless the next observer asks first.
            let _ = fs::remove_dir_all(&observed);
        }
    }
    running.end();
}

/// An observer and its process that were both killed have left a directory. One that is in use is locked, or its process may record.
#[test]
fn what_the_killed_left_is_removed() {
    use latchwork_recording::control::{Control, DIRECTORY, FILE};
    let (_directory, running) = busy("live-left");
    let number = running.pid();
    // Until the control file is there, no command removes the directory. Other tests run commands meanwhile.
    let make = |name: &str, deadline: u64| {
        let path = PathBuf::from(format!("/dev/shm/{DIRECTORY}{name}{number}"));
        fs::create_dir(&path).unwrap();
        let directory = fs::File::open(&path).unwrap();
        if name == "locked" {
            directory.lock().unwrap();
        }
        let mut bytes = vec![0; size_of::<Control>()];
        let at = std::mem::offset_of!(Control, deadline);
        bytes[at..at + 8].copy_from_slice(&deadline.to_ne_bytes());
        fs::write(path.join(FILE), bytes).unwrap();
        (path, directory)
    };
    let [(abandoned, _), (locked, _lock), (recording, _)] =
        [make("abandoned", 1), make("locked", 1), make("recording", u64::MAX)];
    let observed = output(&["profile", "--pid", &number, "--seconds", "0.1"]);
    assert_eq!(observed.status.code(), Some(0), "{}", stderr(&observed));
    // The command leaves it to another test's command, if that one looks at it at the same moment.
    let begin = Instant::now();
    while abandoned.exists() {
        assert!(begin.elapsed() < Duration::from_secs(60), "it is not removed");
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!([&locked, &recording].map(|path| path.exists()), [true, true]);
    for path in [locked, recording] {
        fs::remove_dir_all(path).unwrap();
    }
    running.end();
}

/// `htop` shows the numbers of threads.
#[test]
fn the_number_of_a_thread_leads_to_its_process() {
    let (ends, waits) = std::sync::mpsc::channel::<()>();
    let (says, number) = std::sync::mpsc::channel();
    let other = std::thread::spawn(move || {
        // SAFETY: a system call that takes nothing.
        says.send(unsafe { libc::syscall(libc::SYS_gettid) }).unwrap();
        let _ = waits.recv();
    });
    let thread = number.recv().unwrap().to_string();
    let process = std::process::id().to_string();
    assert_ne!(thread, process);
    let says = format!("{thread} is a thread of process {process}");
    for arguments in [&["top", &thread, "--once"][..], &["profile", "--pid", &thread, "--seconds", "1"]] {
        let output = output(arguments);
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
        assert!(stderr(&output).contains(&says), "{}", stderr(&output));
    }
    drop(ends);
    other.join().unwrap();
}
