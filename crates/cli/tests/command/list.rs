//! `latchwork list` and the help texts.

use crate::common::{latchwork, output, stdout};
use latchwork::registry;
use std::fs::File;
use std::io::Read;
use std::os::fd::{FromRawFd, OwnedFd};
use std::ptr::{null, null_mut};

#[test]
fn json_holds_every_registered_lock() {
    let output = output(&["list", "--json"]);
    assert!(output.status.success());
    let locks: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let locks = locks.as_array().unwrap();
    let mut expected = Vec::new();
    registry::for_each(|entry| expected.push(entry));
    expected.extend(registry::PRELOADED);
    let semaphore = &locks[expected.len()];
    assert_eq!((&semaphore["name"], &semaphore["kind"]), (&"semaphore".into(), &"semaphore".into()));
    assert_eq!((&semaphore["bytes"], &semaphore["waiter_bytes"]), (&8.into(), &0.into()));
    assert_eq!(locks.len(), expected.len() + 1 + latchwork::reclaim::STRATEGIES.len());
    for (strategy, info) in locks[expected.len() + 1..].iter().zip(latchwork::reclaim::STRATEGIES) {
        assert_eq!((&strategy["name"], &strategy["kind"]), (&info.name.into(), &"reclamation".into()));
        assert_eq!((&strategy["bound"], &strategy["reader"]), (&info.bound.into(), &info.reader.into()));
        assert_eq!((&strategy["atomics"], &strategy["source"]), (&info.atomics.into(), &info.source.into()));
    }
    for (lock, entry) in locks.iter().zip(&expected) {
        assert_eq!(lock["name"], entry.info.name);
        assert_eq!(lock["kind"], entry.kind.name());
        assert_eq!(lock["bytes"], entry.bytes);
        assert_eq!(lock["waiter_bytes"], entry.info.waiter_bytes);
        assert_eq!(lock["holder_bytes"], entry.info.holder_bytes);
        assert_eq!(lock["atomics"], entry.info.atomics);
        assert_eq!(lock["blocking"], entry.info.blocking);
        assert_eq!(lock["suspension"], entry.info.suspension.name());
        assert_eq!(lock["fairness"], entry.info.fairness);
        assert_eq!(lock["source"], entry.info.source);
    }
}

#[test]
fn table_has_a_line_for_every_lock() {
    let text = stdout(&output(&["list"]));
    let check = |entry: registry::Entry| {
        let line = text.lines().find(|line| line.split_whitespace().next() == Some(entry.info.name));
        assert!(line.is_some_and(|line| line.contains(entry.info.source)), "{} in\n{text}", entry.info.name);
    };
    registry::for_each(check);
    registry::PRELOADED.into_iter().for_each(check);
}

#[test]
fn table_has_a_line_for_every_reclamation_strategy() {
    let text = stdout(&output(&["list"]));
    for info in latchwork::reclaim::STRATEGIES {
        let line = text.lines().find(|line| line.split_whitespace().next() == Some(info.name));
        let facts = [info.reader, info.bound, info.source];
        assert!(
            line.is_some_and(|line| facts.iter().all(|fact| line.contains(fact))),
            "{}\n{text}",
            info.name
        );
    }
}

/// What the command prints on a terminal of this width.
fn on_terminal(columns: u16) -> String {
    let (mut master, mut slave) = (0, 0);
    let size = libc::winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: room for both descriptors; the name and the modes are not asked for.
    let made = unsafe { libc::openpty(&mut master, &mut slave, null_mut(), null(), &raw const size) };
    assert_eq!(made, 0, "{}", std::io::Error::last_os_error());
    // SAFETY: nothing else has these descriptors.
    let (mut master, slave) = unsafe { (File::from_raw_fd(master), OwnedFd::from_raw_fd(slave)) };
    let mut command = latchwork();
    let mut child = command.arg("list").stdout(slave).spawn().unwrap();
    // The terminal ends with its last user.
    drop(command);
    let mut bytes = Vec::new();
    let _ = master.read_to_end(&mut bytes);
    assert!(child.wait().unwrap().success());
    String::from_utf8(bytes).unwrap().replace('\r', "")
}

#[test]
fn a_narrow_terminal_has_a_line_for_every_lock() {
    for columns in [80, 100, 132] {
        let text = on_terminal(columns);
        let wide = text.lines().find(|line| line.chars().count() > columns.into());
        assert_eq!(wide, None, "{columns}");
        let mut locks = 0;
        let check = |entry: registry::Entry| {
            let line = text.lines().find(|line| line.split_whitespace().next() == Some(entry.info.name));
            assert!(line.is_some_and(|line| line.contains(entry.kind.name())), "{}\n{text}", entry.info.name);
            locks += 1;
        };
        registry::for_each(check);
        assert!(text.lines().count() < locks + 60, "{columns}: {text}");
        assert!(text.contains("latchwork list --json"), "{columns}: {text}");
    }
    // A word is never broken, however often a line is.
    for columns in [80, 200, 250] {
        let text = on_terminal(columns);
        for info in latchwork::reclaim::STRATEGIES {
            for word in info.bound.split_whitespace() {
                assert!(text.split_whitespace().any(|found| found == word), "{columns}: {word}\n{text}");
            }
        }
    }
}

#[test]
fn help_has_examples() {
    for arguments in [&["--help"][..], &["list", "--help"], &["run", "--help"], &["compare", "--help"]] {
        let output = output(arguments);
        assert!(output.status.success());
        assert!(stdout(&output).contains("Examples:\n  latchwork "), "{arguments:?}");
    }
    assert_eq!(stdout(&output(&["--version"])), format!("latchwork {}\n", env!("CARGO_PKG_VERSION")));
}
