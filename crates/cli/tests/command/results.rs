//! When results are written, and what signals do meanwhile.

use crate::common::{alive, latchwork, mark, scratch, stderr, stdout};
use std::fs;
use std::process::Stdio;
use std::time::Duration;

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
    while alive(&format!("sleep\0{mark}")) < 1 {
        assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
        std::thread::sleep(Duration::from_millis(5));
    }
    // SAFETY: a signal to a child that was not yet waited for.
    unsafe { libc::kill(child.id() as i32, libc::SIGINT) };
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
    assert!(stdout(&output).contains("nothing yet"), "{}", stdout(&output));
    for name in ["kept.json", "kept.csv", "kept.md"] {
        assert_eq!(fs::read_to_string(directory.join(name)).unwrap(), "of before", "{name}");
    }
    fs::remove_dir_all(directory).unwrap();
}
