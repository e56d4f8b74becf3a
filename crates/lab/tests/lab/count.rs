//! `latchwork-lab count` and the help texts.

use crate::common::{output, scratch, stdout};
use latchwork::registry;

#[test]
fn json_holds_every_registered_lock() {
    let output = output(&["count", "--json"]);
    assert!(output.status.success());
    let locks: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let locks = locks.as_array().unwrap();
    let mut expected = Vec::new();
    registry::for_each(|entry| expected.push(entry));
    let semaphore = &locks[expected.len()];
    assert_eq!((&semaphore["name"], &semaphore["kind"]), (&"semaphore".into(), &"semaphore".into()));
    assert_eq!((&semaphore["bytes"], &semaphore["counted_waiter_bytes"]), (&8.into(), &0.into()));
    assert_eq!(locks.len(), expected.len() + 1);
    for (lock, entry) in locks.iter().zip(&expected) {
        assert_eq!(lock["name"], entry.info.name);
        assert_eq!(lock["counted_atomics"].as_f64(), Some(entry.info.atomics.into()), "{}", entry.info.name);
        assert_eq!(lock["counted_waiter_bytes"], entry.info.waiter_bytes, "{}", entry.info.name);
        assert_eq!(lock["counted_holder_bytes"], entry.info.holder_bytes, "{}", entry.info.name);
        assert_eq!(
            lock["paper"].is_null(),
            !["tas", "mcs", "c-bo-mcs", "cna", "hybrid", "cst", "shfl", "shfl-spin"]
                .contains(&entry.info.name)
        );
    }
}

#[test]
fn the_paper_s_table_stands_beside_ours() {
    let text = stdout(&output(&["count", "--paper"]));
    for (lock, theirs) in
        [("tas", "TAS"), ("mcs", "MCS"), ("c-bo-mcs", "Cohort"), ("hybrid", "mutex"), ("shfl", "ShflLock")]
    {
        let line = text.lines().find(|line| line.split_whitespace().next() == Some(lock)).unwrap_or_default();
        assert_eq!(line.split_whitespace().nth(1), Some(theirs), "{lock} in\n{text}");
        assert_eq!(line.split_whitespace().count(), if lock == "tas" { 13 } else { 12 }, "{line}");
    }
    assert!(!text.contains("ticket"), "{text}");
    assert_eq!(output(&["count", "--paper", "--json"]).status.code(), Some(2));
}

#[test]
fn markdown_has_a_row_for_every_lock_and_names_its_command() {
    let directory = scratch("count-markdown");
    let page = directory.join("count.md");
    let output = output(&["count", "--markdown", page.to_str().unwrap()]);
    assert!(output.status.success());
    let text = std::fs::read_to_string(&page).unwrap();
    assert!(text.starts_with("<!-- generated: latchwork-lab count --markdown "), "{text}");
    assert!(text.contains("<!-- machine: 8x24 (simulated) -->"), "{text}");
    registry::for_each(|entry| {
        assert!(text.contains(&format!("| {} | {} |", entry.info.name, entry.kind.name())), "{text}");
    });
}

#[test]
fn help_has_examples() {
    for arguments in [
        &["--help"][..],
        &["simulate", "--help"],
        &["bench", "--help"],
        &["torture", "--help"],
        &["count", "--help"],
        &["reproduce", "--help"],
        &["calibrate", "--help"],
    ] {
        let output = output(arguments);
        assert!(output.status.success());
        assert!(stdout(&output).contains("Examples:\n  latchwork-lab "), "{arguments:?}");
    }
}
