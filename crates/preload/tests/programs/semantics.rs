//! What the pthread functions do, compared with glibc case by case.
//!
//! Each program consists of cases, and prints a line for each thing that it sees. The same binary runs without the
//! library and under every lock; a case that prints something else fails, unless [`DIFFERENCES`] says why it does.

use super::{AT_ONCE, Setting, compile, default_mutex, for_each_setting, names, watch};
use latchwork::registry::{Kind, PRELOADED};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;

/// Cases in which this library differs from glibc, each with the reason.
const DIFFERENCES: [(&str, &str); 2] = [
    (
        "owners after fork",
        "the child's thread keeps what the thread that forked has locked, as POSIX has it; glibc knows owners by \
         their kernel thread id, which is another one in the child",
    ),
    (
        "write while reading",
        "a thread that reads and asks to write gets EDEADLK, where with glibc it waits for itself: POSIX allows both",
    ),
];

/// The lines that a program prints, by case, in alphabetic order: several threads may print.
fn cases(command: Command, what: &str) -> BTreeMap<String, Vec<String>> {
    let output = watch(command, what);
    assert!(output.status.success(), "{what}: {}", output.status);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.lines().all(|line| line.starts_with("SKIPPED: ")), "{what}: {stderr}");
    eprint!("{stderr}");
    let mut cases = BTreeMap::new();
    for line in String::from_utf8(output.stdout).expect("text").lines() {
        let (case, does) = line.split_once(": ").expect("a case and what it does");
        cases.entry(case.to_owned()).or_insert_with(Vec::new).push(does.to_owned());
    }
    cases.values_mut().for_each(|lines| lines.sort());
    cases
}

/// Compares a program under the settings with the same under glibc.
fn compare(source: &str, settings: &[Setting]) {
    let Some(program) = compile(source, &format!("compared_{source}"), &[]) else { return };
    let glibc = cases(Command::new(&program), source);
    assert!(!glibc.is_empty() && !settings.is_empty());
    let wrong = Mutex::new(Vec::new());
    for_each_setting(settings, AT_ONCE, |setting| {
        let found = differences(&program, &glibc, setting);
        wrong.lock().unwrap().extend(found);
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{source}:\n{}", wrong.join("\n"));
}

/// The differences under one setting that are not listed, and the listed ones that there are not.
fn differences(program: &Path, glibc: &BTreeMap<String, Vec<String>>, setting: &Setting) -> Vec<String> {
    let what = format!("mutex={} rwlock={}", setting.mutex, setting.rwlock);
    let ours = cases(setting.command(program), &format!("{} under {what}", program.display()));
    assert_eq!(ours.keys().collect::<Vec<_>>(), glibc.keys().collect::<Vec<_>>(), "{what}");
    let mut wrong = Vec::new();
    for (case, expected) in glibc {
        // A rwlock over glibc's own does not differ from it.
        let is_ours = PRELOADED.iter().all(|entry| entry.info.name != setting.rwlock);
        let reason = DIFFERENCES.iter().find(|(name, _)| is_ours && name == case).map(|(_, reason)| reason);
        match (&ours[case] == expected, reason) {
            (true, Some(reason)) => wrong.push(format!("{what}: {case}: as glibc, although {reason}")),
            (false, None) => {
                let show =
                    |lines: &[String]| lines.iter().map(|line| format!("    {line}\n")).collect::<String>();
                wrong.push(format!("{what}: {case}:\n{}  glibc:\n{}", show(&ours[case]), show(expected)));
            }
            _ => {}
        }
    }
    wrong
}

#[test]
fn mutexes_do_what_glibc_s_do() {
    let settings: Vec<_> = names(Kind::Mutex).into_iter().map(|mutex| Setting::new(mutex, "glibc")).collect();
    compare("semantics_mutex.c", &settings);
}

#[test]
fn spin_locks_do_what_glibc_s_do() {
    let settings: Vec<_> =
        ["tas", "ttas", "qspinlock", default_mutex()].map(|mutex| Setting::new(mutex, "glibc")).into();
    compare("semantics_spin.c", &settings);
}

/// Every rwlock, beside a mutex of ours.
fn rwlocks() -> Vec<Setting> {
    names(Kind::RwLock).into_iter().map(|rwlock| Setting::new(default_mutex(), rwlock)).collect()
}

#[test]
fn rwlocks_do_what_glibc_s_do() {
    compare("semantics_rwlock.c", &rwlocks());
}

#[test]
fn rwlocks_prefer_whom_glibc_s_do() {
    compare("semantics_preference.c", &rwlocks());
}

/// A comparison that finds nothing would prove nothing: under a library that answers differently it fails.
#[test]
fn a_difference_is_found() {
    let Some(program) = compile("semantics_mutex.c", "different", &[]) else { return };
    let mut glibc = cases(Command::new(&program), "semantics_mutex.c");
    glibc.get_mut("destroy while waited").expect("a case").push("something else".into());
    let wrong = differences(&program, &glibc, &Setting::new(default_mutex(), "glibc"));
    assert_eq!(wrong.len(), 1, "{wrong:?}");
    assert!(wrong[0].contains("destroy while waited") && wrong[0].contains("something else"), "{wrong:?}");
}
