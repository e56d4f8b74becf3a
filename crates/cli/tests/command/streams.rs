//! Readers that go away, and files, streams and directories that have no room.

use crate::common::{compile, latchwork, latchwork_of_locking_programs, output, scratch, stderr, stdout};
use std::ffi::CString;
use std::fs::{self, OpenOptions};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

/// Two threads want a lock that each of them holds, asleep, for a millisecond at a time. The first one locks another one very
/// often.
const WORK: &str = r#"
    #include <pthread.h>
    #include <unistd.h>
    static pthread_mutex_t slow = PTHREAD_MUTEX_INITIALIZER, fast = PTHREAD_MUTEX_INITIALIZER;
    static void *work(void *unused) {
        for (int i = 0; i < 50; i++) {
            pthread_mutex_lock(&slow);
            usleep(1000);
            pthread_mutex_unlock(&slow);
        }
        return unused;
    }
    int main(void) {
        pthread_t thread;
        for (int i = 0; i < 20000; i++) {
            pthread_mutex_lock(&fast);
            pthread_mutex_unlock(&fast);
        }
        pthread_create(&thread, 0, work, 0);
        work(0);
        pthread_join(thread, 0);
        return 0;
    }
"#;

fn work(directory: &Path) -> String {
    compile(directory, "work", WORK, &["-pthread"]).to_str().unwrap().to_owned()
}

fn entries(directory: &Path) -> Vec<String> {
    fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// A run with this stream on a full disk.
fn into_full_disk(arguments: &[&str], to: fn(&mut std::process::Command, Stdio), directory: &Path) -> Output {
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut command = latchwork_of_locking_programs();
    command.args(arguments).current_dir(directory).stdout(Stdio::piped()).stderr(Stdio::piped());
    to(&mut command, full.into());
    command.spawn().unwrap().wait_with_output().unwrap()
}

#[test]
fn a_reader_that_goes_away_leaves_no_recording_behind() {
    let directory = scratch("streams-reader");
    let program = work(&directory);
    let temporary = directory.join("temporary");
    fs::create_dir(&temporary).unwrap();
    for ignored in [false, true] {
        let mut command = latchwork();
        command.args(["profile", "--json", "-", "--", &program]).env("TMPDIR", &temporary);
        let ignore = move || {
            if ignored {
                // SAFETY: may be called between fork and exec.
                unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
            }
            Ok(())
        };
        // SAFETY: the closure calls nothing else.
        unsafe { command.pre_exec(ignore) };
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let ended = child.wait_with_output().unwrap();
        let expected = if ignored { (Some(1), None) } else { (None, Some(libc::SIGPIPE)) };
        assert_eq!((ended.status.code(), ended.status.signal()), expected, "{}", stderr(&ended));
        assert_eq!(stderr(&ended).contains("Broken pipe"), ignored, "{}", stderr(&ended));
        assert_eq!(entries(&temporary), [""; 0]);
    }
}

#[test]
fn a_recorded_program_has_sigpipe_as_it_was() {
    let directory = scratch("streams-sigpipe");
    let trace = directory.join("trace.lw");
    for words in [&["profile"][..], &["record", "-o", trace.to_str().unwrap()]] {
        for ignored in [false, true] {
            let mut command = latchwork();
            command.args(words).args(["--", "grep", "SigIgn", "/proc/self/status"]);
            let action = if ignored { libc::SIG_IGN } else { libc::SIG_DFL };
            let set = move || {
                // SAFETY: may be called between fork and exec.
                unsafe { libc::signal(libc::SIGPIPE, action) };
                Ok(())
            };
            // SAFETY: the closure calls nothing else.
            unsafe { command.pre_exec(set) };
            let text = stdout(&command.output().unwrap());
            let mask = u64::from_str_radix(text.trim().trim_start_matches("SigIgn:").trim(), 16).unwrap();
            assert_eq!(mask >> (libc::SIGPIPE - 1) & 1 == 1, ignored, "{words:?}");
        }
    }
}

#[test]
fn standard_output_that_cannot_be_written_is_an_error() {
    let directory = scratch("streams-stdout");
    for arguments in [
        &["list"][..],
        &["list", "--json"],
        &["--help"],
        &["--version"],
        &["run", "--help"],
        &["completions", "bash"],
        &["demo-kv", "--threads", "1", "--seconds", "0.01"],
        &["compare", "--settle", "0", "--runs", "1", "--mutex", "mcs", "--", "true"],
        &["compare", "--settle", "0", "--runs", "1", "--mutex", "mcs", "--json", "-", "--", "true"],
        &["tune", "--settle", "0", "--", "sleep", "0.01"],
        &["tune", "--settle", "0", "--json", "-", "--", "sleep", "0.01"],
    ] {
        let run = into_full_disk(arguments, |command, full| _ = command.stdout(full), &directory);
        assert_eq!(run.status.code(), Some(1), "{arguments:?}: {}", stderr(&run));
        assert!(
            stderr(&run).contains("standard output: No space left on device"),
            "{arguments:?}: {}",
            stderr(&run)
        );
    }
}

#[test]
fn standard_error_that_cannot_be_written_ends_nothing_halfway() {
    let directory = scratch("streams-stderr");
    let program = work(&directory);
    let temporary = directory.join("temporary");
    fs::create_dir(&temporary).unwrap();
    let full_stderr = |command: &mut std::process::Command, full| {
        command.stderr(full).env("TMPDIR", "temporary");
    };
    for (arguments, status) in [
        (&["run", "--mutex", "nix", "--", "true"][..], 2),
        // The report could not be written; the JSON is.
        (&["profile", "--json", "report.json", "--", &program], 1),
        (&["record", "-o", "trace.lw", "--", &program], 0),
        (&["compare", "--settle", "0", "--runs", "1", "--mutex", "mcs", "--", "true"], 0),
        (&["tune", "--settle", "0", "--", "sleep", "0.01"], 3),
    ] {
        let run = into_full_disk(arguments, full_stderr, &directory);
        assert_eq!((run.status.code(), run.status.signal()), (Some(status), None), "{arguments:?}");
        assert_eq!(entries(&temporary), [""; 0], "{arguments:?}");
    }
    assert!(directory.join("report.json").exists());
}

/// A small file system of the test's own.
struct SmallDisk {
    path: PathBuf,
    name: CString,
}

impl SmallDisk {
    /// `None`: this user may not mount one.
    fn new(directory: &Path, options: &str) -> Option<Self> {
        let path = directory.join("small-disk");
        fs::create_dir_all(&path).unwrap();
        let name = CString::new(path.as_os_str().as_encoded_bytes()).unwrap();
        let options = CString::new(options).unwrap();
        // SAFETY: a system call with strings that end.
        let mounted = unsafe {
            libc::mount(c"latchwork".as_ptr(), name.as_ptr(), c"tmpfs".as_ptr(), 0, options.as_ptr().cast())
        };
        if mounted != 0 {
            eprintln!("SKIPPED: this user may not mount a file system");
            return None;
        }
        Some(Self { path, name })
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // SAFETY: a system call with a string that ends.
        unsafe { libc::umount2(self.name.as_ptr(), libc::MNT_DETACH) };
    }
}

#[test]
fn a_full_disk_is_no_verdict() {
    let directory = scratch("streams-disk");
    let program = work(&directory);
    // There is no room for a file's first page, for threads behind it, and for their tables or all events.
    for size in ["size=4k", "size=16k", "size=100k"] {
        for arguments in [
            &["profile", "--", &program][..],
            &["tune", "--settle", "0", "--", &program],
            &["record", "--", &program],
        ] {
            let Some(disk) = SmallDisk::new(&directory, size) else { return };
            if size == "size=4k" {
                fs::write(disk.path.join("full"), [1; 4096]).unwrap();
            }
            let mut command = latchwork();
            command.args(arguments).env("TMPDIR", &disk.path).current_dir(&directory);
            let run = command.output().unwrap();
            let text = stderr(&run);
            let case = format!("{size} {arguments:?}: {text}{}", stdout(&run));
            assert_eq!(run.status.code(), Some(1), "{case}");
            assert!(text.contains(disk.path.to_str().unwrap()) && text.contains("full"), "{case}");
            assert!(!case.contains("called no lock") && !case.contains("--size,"), "{case}");
            assert!(!directory.join("trace.lw").exists(), "{case}");
        }
    }
}

/// What the program prints is not mixed with a result on standard output.
#[test]
fn a_result_on_standard_output_is_alone_there() {
    let directory = scratch("streams-alone");
    let program = work(&directory);
    let script = format!("echo printed; {program}; echo printed");
    for option in ["--json", "--folded", "--pprof", "-o"] {
        let run = output(&["profile", option, "-", "--", "sh", "-c", &script]);
        assert_eq!(run.status.code(), Some(0), "{option}: {}", stderr(&run));
        assert_eq!(stderr(&run).matches("printed\n").count(), 2, "{option}: {}", stderr(&run));
        assert!(!stdout(&run).contains("printed\n") && run.stdout.len() > 10, "{option}: {}", stdout(&run));
        if option == "--json" {
            serde_json::from_slice::<serde_json::Value>(&run.stdout).unwrap();
        }
    }
    let run = output(&["profile", "--json", "/dev/null", "--", "sh", "-c", &script]);
    assert_eq!(stdout(&run), "printed\nprinted\n");
}

/// A closed stream is said before anything runs, and what the program finds is closed too.
#[test]
fn a_closed_standard_output_is_refused() {
    let directory = scratch("streams-closed");
    let program = work(&directory);
    let ran = directory.join("ran");
    let script = format!("touch {}; {program}", ran.display());
    for (arguments, status) in [
        (&["list"][..], 1),
        (&["compare", "--settle", "0", "--runs", "1", "--mutex", "mcs", "--", "sh", "-c", &script], 2),
        (&["tune", "--settle", "0", "--", "sh", "-c", &script], 2),
        (&["profile", "--json", "-", "--", "sh", "-c", &script], 2),
    ] {
        let run = without(arguments, &[1], &directory);
        assert_eq!(run.status.code(), Some(status), "{arguments:?}: {}", stderr(&run));
        assert!(stderr(&run).contains("standard output"), "{arguments:?}: {}", stderr(&run));
        assert!(!ran.exists(), "{arguments:?}");
    }
    let script = "for n in 0 1 2; do if [ -e /proc/$$/fd/$n ]; then mkdir open-$n; fi; done; mkdir ran";
    without(&["profile", "--json", "report.json", "--", "sh", "-c", script], &[0, 1, 2], &directory);
    let mut left = entries(&directory);
    left.sort();
    assert_eq!(left, ["ran", "report.json", "work", "work.c"]);
}

/// A run of the command with these streams closed.
fn without(arguments: &[&str], closed: &'static [i32], directory: &Path) -> Output {
    let mut command = latchwork();
    command.args(arguments).current_dir(directory).stdin(Stdio::null());
    let close = move || {
        for number in closed {
            // SAFETY: may be called between fork and exec.
            unsafe { libc::close(*number) };
        }
        Ok(())
    };
    // SAFETY: the closure calls nothing else.
    unsafe { command.pre_exec(close) };
    command.output().unwrap()
}

#[test]
fn standard_output_takes_one_document() {
    let directory = scratch("streams-one");
    let both = output(&["profile", "--json", "-", "--folded", "-", "--", "true"]);
    assert_eq!(both.status.code(), Some(2), "{}", stderr(&both));
    assert!(stderr(&both).contains("both"), "{}", stderr(&both));
    for arguments in [&["record", "-o", "-", "--", "true"][..], &["run", "--stats-json", "-", "--", "true"]] {
        let run = latchwork().args(arguments).current_dir(&directory).output().unwrap();
        assert_eq!(run.status.code(), Some(2), "{arguments:?}: {}", stderr(&run));
        assert!(stderr(&run).contains("./-"), "{arguments:?}: {}", stderr(&run));
    }
    assert_eq!(entries(&directory), [""; 0]);
}

/// A disk without room for a result: the file of before stays, nothing lies beside it, and the recording is kept.
#[test]
fn a_result_that_does_not_fit_loses_nothing() {
    let directory = scratch("streams-result");
    let program = work(&directory);
    let Some(disk) = SmallDisk::new(&directory, "size=64k") else { return };
    let temporary = directory.join("temporary");
    fs::create_dir(&temporary).unwrap();
    fs::write(disk.path.join("fills"), [1; 56 << 10]).unwrap();
    let path = |name: &str| disk.path.join(name).to_str().unwrap().to_owned();
    for (name, arguments, again) in [
        ("page", &["profile", "-o"][..], &["profile", "-o", "good", "--read"][..]),
        ("json", &["profile", "--pprof", "/dev/null", "--json"], &["profile", "--json", "good", "--read"]),
        ("trace", &["record", "-o"], &["record", "-o", "good", "--read"]),
    ] {
        let file = path(name);
        fs::write(&file, "of before").unwrap();
        let mut command = latchwork();
        command.args(arguments).args([&file, "--", &program]).env("TMPDIR", &temporary);
        let run = command.output().unwrap();
        let text = stderr(&run);
        assert_eq!(run.status.code(), Some(1), "{name}: {text}");
        assert!(text.contains("No space left on device"), "{name}: {text}");
        assert_eq!(fs::read_to_string(&file).unwrap(), "of before", "{name}: {text}");
        let mut left = entries(&disk.path);
        left.sort();
        assert_eq!(left, ["fills", name], "{text}");
        // What the message says leads to the result.
        let kept = text.rsplit_once(&format!("latchwork {} --read ", arguments[0])).expect(&text).1;
        let kept = kept.trim().strip_suffix(" -o FILE").expect(&text);
        assert!(kept.starts_with(temporary.to_str().unwrap()), "{text}");
        // The next command does not remove it.
        latchwork().args(["profile", "--", "true"]).env("TMPDIR", &temporary).output().unwrap();
        let run = latchwork().args(again).arg(kept).current_dir(&directory).output().unwrap();
        assert_eq!(run.status.code(), Some(0), "{name}: {}", stderr(&run));
        let good = fs::read(directory.join("good")).unwrap();
        assert!(good.len() > 1000, "{name}: {} bytes", good.len());
        if name == "trace" {
            assert!(String::from_utf8_lossy(&good).contains(&program), "the trace has the command");
        }
        fs::remove_file(&file).unwrap();
        fs::remove_file(directory.join("good")).unwrap();
        fs::remove_dir_all(&temporary).unwrap();
        fs::create_dir(&temporary).unwrap();
    }
    let mut command = latchwork();
    command.args(["compare", "--settle", "0", "--runs", "1", "--mutex", "mcs", "--json"]);
    fs::write(path("compared"), "of before").unwrap();
    let _ = fs::write(path("fills too"), [1; 8 << 10]);
    let run = command.args([&path("compared"), "--", "true"]).output().unwrap();
    assert_eq!(run.status.code(), Some(1), "{}", stderr(&run));
    assert_eq!(fs::read_to_string(path("compared")).unwrap(), "of before");
    drop(disk);
}
