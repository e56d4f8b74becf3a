//! What the pthread functions do, compared with glibc case by case.
//!
//! Each program consists of cases, and prints a line for each thing that it sees. The same binary runs without the
//! library and under every lock; a case that prints something else fails, unless [`DIFFERENCES`] says what it prints and why.

use super::{AT_ONCE, Setting, compile, default_mutex, for_each_setting, names, watch};
use latchwork::registry::{Kind, PRELOADED};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;

/// A case in which this library differs from glibc.
struct Difference {
    case: &'static str,
    reason: &'static str,
    /// The lines that the case prints, in alphabetic order.
    lines: &'static [&'static str],
}

const DEADLOCK: &str = "a thread that reads and asks to write gets EDEADLK, where with glibc it waits for itself: POSIX allows both";

const DIFFERENCES: [Difference; 3] = [
    Difference {
        case: "owners after fork",
        reason: "the child's thread keeps what the thread that forked has locked, as POSIX has it; glibc knows owners \
                 by their kernel thread id, which is another one in the child",
        lines: &[
            "pthread_mutex_lock(&errorcheck) = 0",
            "pthread_mutex_lock(&recursive) = 0",
            "pthread_mutex_trylock(&errorcheck) = EBUSY",
            "pthread_mutex_trylock(&recursive) = 0",
            "pthread_mutex_trylock(&recursive) = 0",
            "pthread_mutex_trylock(&recursive) = EBUSY",
            "pthread_mutex_unlock(&errorcheck) = EPERM",
            "pthread_mutex_unlock(&recursive) = 0",
            "pthread_mutex_unlock(&recursive) = 0",
            "pthread_mutex_unlock(&recursive) = 0",
            "pthread_mutex_unlock(&recursive) = EPERM",
        ],
    },
    Difference {
        case: "write while reading",
        reason: DEADLOCK,
        lines: &[
            "pthread_rwlock_rdlock(&lock) = 0",
            "pthread_rwlock_trywrlock(&lock) = EBUSY",
            "pthread_rwlock_unlock(&lock) = 0",
            "timedwrlock(&lock, 5) = EDEADLK",
        ],
    },
    Difference {
        case: "write while reading, without a time",
        reason: DEADLOCK,
        lines: &[
            "pthread_rwlock_rdlock(&lock) = 0",
            "pthread_rwlock_unlock(&lock) = 0",
            "pthread_rwlock_wrlock(&lock) = 0",
            "pthread_rwlock_wrlock(&lock) = EDEADLK",
        ],
    },
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

/// What is wrong under one setting: the differences that are not listed, the listed ones that there are not, and those that are
/// not as listed.
fn differences(program: &Path, glibc: &BTreeMap<String, Vec<String>>, setting: &Setting) -> Vec<String> {
    let what = format!("mutex={} rwlock={}", setting.mutex, setting.rwlock);
    let ours = cases(setting.command(program), &format!("{} under {what}", program.display()));
    assert_eq!(ours.keys().collect::<Vec<_>>(), glibc.keys().collect::<Vec<_>>(), "{what}");
    // A rwlock over glibc's own does not differ from it.
    let is_ours = PRELOADED.iter().all(|entry| entry.info.name != setting.rwlock);
    let found = glibc.iter().filter_map(|(case, glibc)| is_wrong(case, &ours[case], glibc, is_ours));
    found.map(|wrong| format!("{what}: {wrong}")).collect()
}

/// What is wrong with the lines of a case, if anything is. `may_differ`: the differences that are listed are expected.
fn is_wrong(case: &str, ours: &[String], glibc: &[String], may_differ: bool) -> Option<String> {
    let show = |lines: &[String]| lines.iter().map(|line| format!("    {line}\n")).collect::<String>();
    match DIFFERENCES.iter().find(|difference| may_differ && difference.case == case) {
        Some(Difference { reason, .. }) if ours == glibc => {
            Some(format!("{case}: as glibc, although {reason}"))
        }
        Some(Difference { lines, reason, .. }) if ours != *lines => {
            let expected: Vec<_> = lines.iter().map(|&line| line.to_owned()).collect();
            Some(format!("{case}:\n{}  expected, because {reason}:\n{}", show(ours), show(&expected)))
        }
        None if ours != glibc => Some(format!("{case}:\n{}  glibc:\n{}", show(ours), show(glibc))),
        _ => None,
    }
}

/// A listed difference is no licence for any other.
#[test]
fn a_listed_difference_is_compared() {
    let lines = |lines: &[&str]| lines.iter().map(|&line| line.to_owned()).collect::<Vec<_>>();
    let glibc = lines(&["what glibc prints"]);
    for Difference { case, lines: expected, .. } in DIFFERENCES {
        assert_eq!(is_wrong(case, &lines(expected), &glibc, true), None);
        for wrong in [&["hangs"][..], &["killed by signal 11"], &expected[1..], &["what glibc prints"]] {
            assert!(is_wrong(case, &lines(wrong), &glibc, true).is_some(), "{case}: {wrong:?}");
        }
        assert!(is_wrong(case, &lines(expected), &glibc, false).is_some(), "{case}");
    }
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

/// Every mutex and every rwlock, in as few pairs as that takes.
fn pairs() -> Vec<Setting> {
    let (mutexes, rwlocks) = (names(Kind::Mutex), names(Kind::RwLock));
    let pairs = mutexes.iter().cycle().zip(rwlocks.iter().cycle()).take(mutexes.len().max(rwlocks.len()));
    pairs.map(|(mutex, rwlock)| Setting::new(mutex, rwlock)).collect()
}

#[test]
fn interrupted_calls_do_what_glibc_s_do() {
    compare("semantics_interrupted.c", &pairs());
}

/// Sequences of calls, under every mutex and every rwlock. `LATCHWORK_TEST_SEEDS=N` compares N of them in place of 10.
#[test]
fn calls_by_chance_do_what_glibc_s_do() {
    compare("semantics_random.c", &pairs());
}

/// They find a mistake that this library once made: `mtx_init` failed if the kind was none.
#[test]
fn a_mistake_is_found_by_chance() {
    let [right, mistaken] = [&[][..], &[OsStr::new("-DMISTAKE")]]
        .map(|more| compile("semantics_random.c", &format!("by_chance_{}", more.len()), more));
    let (Some(right), Some(mistaken)) = (right, mistaken) else { return };
    let [right, mistaken] = [right, mistaken].map(|program| cases(Command::new(program), "by chance"));
    assert!(right.keys().eq(mistaken.keys()) && right != mistaken);
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
