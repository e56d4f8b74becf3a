//! Deadlocks under the checks: the thread that closes the circle reports it, and waits.

use crate::{Setting, WATCHDOG, compile, default_mutex, scratch, watch};
use std::fs::{self, File};
use std::thread;
use std::time::{Duration, Instant};

fn locks() -> [(&'static str, &'static str); 3] {
    [("glibc", "glibc"), (default_mutex(), "bravo-2d-shfl-rw"), ("mcs", "pf-t")]
}

#[test]
fn a_deadlock_is_reported_while_it_lasts() {
    let Some(program) = compile("deadlock.c", "deadlock", &[]) else { return };
    for (mutex, rwlock) in locks() {
        // glibc's condition variable calls glibc's own function to take the mutex again, which the checks do not see.
        let condition = (mutex != "glibc").then_some(("condition", 2));
        for (case, length) in [("2", 2), ("3", 3), ("readers", 2)].into_iter().chain(condition) {
            let what = format!("{case} under {mutex} and {rwlock}");
            let reports = scratch().join(format!("deadlock-{case}-{mutex}"));
            let mut command = Setting::new(mutex, rwlock).command(&program);
            command.arg(case).env("LATCHWORK_CHECK", "1").stderr(File::create(&reports).unwrap());
            let mut child = command.spawn().unwrap();
            let begin = Instant::now();
            let title = format!("deadlock: {length} threads wait for each other\n");
            // A report is written in one piece.
            let report = loop {
                let text = fs::read_to_string(&reports).unwrap();
                if text.contains(&title) || begin.elapsed() > WATCHDOG {
                    break text;
                }
                thread::sleep(Duration::from_millis(1));
            };
            // The program does not end by itself.
            assert!(child.try_wait().unwrap().is_none(), "{what}: {report}");
            child.kill().unwrap();
            child.wait().unwrap();
            let (_, deadlock) = report.split_once(&title).unwrap_or_else(|| panic!("{what}: {report}"));
            let count = |text: &str| deadlock.matches(text).count();
            assert_eq!(count(" waits for lock "), length, "{what}: {report}");
            assert_eq!(count("    which thread "), length, "{what}: {report}");
            assert_eq!(
                (count(" take_next at "), count(" take_first at ")),
                (length, length),
                "{what}: {report}"
            );
            assert_eq!(count(" for reading"), 0, "{what}: {report}");
            // No thread is the holder twice.
            let mut threads: Vec<_> =
                deadlock.lines().filter_map(|line| line.trim_start().strip_prefix("which thread ")).collect();
            threads.sort();
            threads.dedup();
            assert_eq!(threads.len(), length, "{what}: {report}");
            assert_eq!(report.matches("deadlock: ").count(), 1, "{what}: {report}");
        }
    }
}

/// Threads that give up at a deadline are in no deadlock. (Their orders are an inversion.)
#[test]
fn waits_with_a_deadline_end() {
    let Some(program) = compile("deadlock.c", "deadlock_timed", &[]) else { return };
    for (mutex, rwlock) in locks() {
        let mut command = Setting::new(mutex, rwlock).command(&program);
        command.arg("timed").env("LATCHWORK_CHECK", "1");
        let output = watch(command, "timed");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{mutex}: {stderr}");
        assert!(stderr.contains("lock-order inversion"), "{mutex}: {stderr}");
        assert!(!stderr.contains("deadlock: "), "{mutex}: {stderr}");
    }
}
