//! Runs C and C++ programs, each of which checks itself, under every lock.
//!
//! The programs are in `tests/programs`. Each runs with plain glibc first, so what it expects is what glibc does. Then it
//! runs under every registered mutex with glibc's rwlocks, and under every registered rwlock with `shfl`.

use latchwork::registry::{self, Kind};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, thread};

/// How the command's build script builds the library.
#[path = "../../cli/build_library.rs"]
mod build_library;
/// A lock per lock.
#[path = "programs/choices.rs"]
mod choices;
#[path = "programs/deadlock.rs"]
mod deadlock;
#[path = "programs/harness.rs"]
mod harness;
/// The library's own map, with its tests. The library has no tests itself, because it would interpose the test harness.
#[path = "../src/state/index.rs"]
#[allow(dead_code)]
mod index;
#[path = "../src/state/kernel.rs"]
#[allow(dead_code)]
mod kernel;
/// What is recorded under `LATCHWORK_PROFILE`.
#[path = "programs/live.rs"]
mod live;
/// What the map uses.
#[path = "../src/state/memory.rs"]
mod memory;
#[path = "programs/profile.rs"]
mod profile;
#[path = "programs/profile_blame.rs"]
mod profile_blame;
/// What the tests of recordings share.
#[path = "programs/recorded.rs"]
mod recorded;
#[path = "programs/semantics.rs"]
mod semantics;
/// Surroundings that are hostile to a preloaded library.
#[path = "programs/surroundings.rs"]
mod surroundings;

use harness::*;

macro_rules! programs {
    ($($test:ident: $source:literal $($under:ident)*;)*) => {
        $(#[test]
        fn $test() {
            if let Some(program) = compile($source, stringify!($test), &[]) {
                $($under(&program);)*
            }
        })*
    };
}

programs! {
    mutexes: "mutex.c" under_mutexes;
    condition_variables: "cond.c" under_mutexes;
    notifications_by_the_holder: "held.c" under_mutexes;
    asynchronous_cancellation: "cancel.c" under_mutexes under_rwlocks;
    forks: "fork.c" under_mutexes under_rwlocks;
    objects_of_glibc: "foreign.c" under_mutexes under_rwlocks;
    rwlocks: "rwlock.c" under_rwlocks;
    spin_locks: "spin.c" under_mutexes;
    c11_threads: "c11.c" under_mutexes;
    glibc_past_us: "bypass.c" under_mutexes;
    semaphores: "sem.c" under_one_mutex;
    cpp_library: "cpp.cpp" under_mutexes under_rwlocks;
    suspended_waiters: "suspended.c" under_tolerant_locks;
}

/// Under a lock that lies in the object, one that does not, and while calls are recorded.
#[test]
fn signal_handlers_that_fork() {
    let Some(program) = compile("handler.c", "handler", &[]) else { return };
    for (mutex, profiled) in [(default_mutex(), false), ("cst", false), (default_mutex(), true)] {
        let setting = Setting { profiled, ..Setting::new(mutex, "glibc") };
        let output = setting.run(&program);
        assert!(output.status.success() && output.stdout == b"ok\n", "{mutex}, {profiled}: {output:?}");
    }
}

/// Whether this process may use `SCHED_FIFO`.
fn may_be_urgent() -> bool {
    let urgent = || {
        let parameter = libc::sched_param { sched_priority: 1 };
        // SAFETY: the parameter is valid for the call, which is about the calling thread.
        unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &parameter) == 0 }
    };
    thread::spawn(urgent).join().expect("it does not panic")
}

#[test]
fn real_time_priorities() {
    if !may_be_urgent() {
        eprintln!("SKIPPED: SCHED_FIFO is not permitted");
        return;
    }
    if let Some(program) = compile("priorities.c", "real_time_priorities", &[]) {
        // One at a time: their urgent threads keep others from the same processor.
        let settings = [mutex_settings(), rwlock_settings()].concat();
        for_each_setting(&settings, 1, |setting| drop(setting.check(&program)));
    }
}

/// glibc does not use the bytes in which BRAVO over its lock keeps its own words.
#[test]
#[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
fn bytes_that_glibc_does_not_use() {
    let Some(program) = compile("over_glibc.c", "over_glibc", &[]) else { return };
    let output = watch(Command::new(&program), "over_glibc.c");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "ok\n", "{stderr}");
}

/// Locks that are too big for their objects.
#[test]
fn locks_out_of_place() {
    let library = build_out_of_place();
    for source in ["mutex.c", "rwlock.c", "fork.c", "early.c"] {
        let early = ["-DLIBRARY", "-shared", "-fPIC"].map(OsStr::new);
        let mut more = Vec::new();
        let Some(needed) = compile("early.c", "libearly_out_of_place.so", &early) else { return };
        if source == "early.c" {
            more.push(needed.as_os_str());
        }
        let Some(program) = compile(source, &format!("out_of_place_{source}"), &more) else { return };
        for (mutex, rwlock) in [("shfl", "bravo-pf-q"), ("mcs", "pf-t")] {
            let mut setting = Setting::new(mutex, rwlock);
            setting.library = library.clone();
            setting.check(&program);
        }
    }
}

#[test]
fn before_and_after_main() {
    let library = compile("early.c", "libearly.so", &["-DLIBRARY", "-shared", "-fPIC"].map(OsStr::new));
    let Some(library) = library else { return };
    let Some(program) = compile("early.c", "early", &[library.as_os_str()]) else { return };
    under_mutexes(&program);
    under_rwlocks(&program);
    // A library that is preloaded after ours is initialised before ours.
    let beside = |setting| Setting { beside: vec![library.clone()], ..setting };
    let settings: Vec<_> = mutex_settings().into_iter().map(beside).collect();
    for_each_setting(&settings, AT_ONCE, |setting| drop(setting.check(&program)));
}

/// Objects that glibc has served before the library was set up: free, held or waited for.
#[test]
fn objects_used_before_set_up() {
    let Some(program) = compile("before.c", "before", &[]) else { return };
    for (mutex, rwlock) in [
        ("glibc", "glibc"),
        (default_mutex(), "bravo-2d-shfl-rw"),
        (default_mutex(), "bravo-2d-glibc"),
        ("mcs", "rwsem"),
        ("glibc", "shfl-rw"),
        ("ticket", "glibc"),
    ] {
        Setting::new(mutex, rwlock).check(&program);
    }
    let mut setting = Setting::new(default_mutex(), "bravo-2d-shfl-rw");
    setting.profiled = true;
    setting.check(&program);
    setting.stats = Some("1".into());
    let stats = String::from_utf8(setting.check(&program).stderr).unwrap();
    assert!(
        stats.contains("mutex, by --config or because it was used before the library was ready"),
        "{stats}"
    );
}

/// The detector does not hear of a lock that is acquired before set-up. It reports only the release that the program's own
/// check wants to fail.
#[test]
fn locks_from_before_set_up_are_released_without_a_report() {
    let Some(program) = compile("before.c", "before_checked", &[]) else { return };
    for (mutex, rwlock) in [("glibc", "glibc"), (default_mutex(), "bravo-2d-shfl-rw"), ("mcs", "rwsem")] {
        let mut command = Setting::new(mutex, rwlock).command(&program);
        let what = format!("before.c, checked, under {mutex} and {rwlock}");
        let output = watch(command.env("LATCHWORK_CHECK", "1"), &what);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{what}: {}\n{stderr}", output.status);
        assert_eq!(stderr.matches("which nobody holds").count(), 1, "{what}: {stderr}");
    }
}

#[test]
fn other_allocators_preloaded_beside_us() {
    let sources = ["mutex.c", "rwlock.c", "fork.c", "cond.c"];
    for allocator in ["libjemalloc.so.2", "libtcmalloc_minimal.so.4"] {
        let candidates =
            ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"];
        let found =
            candidates.iter().map(|directory| Path::new(directory).join(allocator)).find(|p| p.exists());
        let Some(path) = found else {
            assert!(env::var_os("CI").is_none(), "CI must have {allocator}");
            eprintln!("SKIPPED: no {allocator}. To run this: apt install libjemalloc2 libtcmalloc-minimal4");
            continue;
        };
        for source in sources {
            let Some(program) = compile(source, &format!("allocator_{source}"), &[]) else { return };
            let rwlock = names(Kind::RwLock).last().copied().unwrap_or("glibc");
            let mut setting = Setting::new(default_mutex(), rwlock);
            setting.beside = vec![path.clone()];
            setting.check(&program);
        }
    }
}

#[test]
#[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
fn symbol_versions() {
    let Some(program) = compile("versions.c", "versions", &[OsStr::new("-ldl")]) else { return };
    Setting::new(default_mutex(), "glibc").check(&program);
}

/// The library passes creation of threads, joins and barriers on, also while it records them.
#[test]
fn threads_and_barriers() {
    let Some(program) = compile("threads.c", "threads", &[]) else { return };
    assert_eq!(watch(Command::new(&program), "threads.c alone").stdout, b"ok\n");
    for mutex in ["glibc", default_mutex()] {
        let setting = Setting::new(mutex, "glibc");
        setting.check(&program);
        let directory = recorded::directory();
        let output =
            watch(setting.command(&program).env("LATCHWORK_TRACE", &directory), "threads.c, recorded");
        let files = fs::read_dir(&directory).unwrap().count();
        fs::remove_dir_all(directory).unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && output.stdout == b"ok\n" && stderr.is_empty(), "{stderr}");
        // The process, and the child that it forks.
        assert_eq!(files, 2);
    }
}

/// A program calls the copies near itself, in whichever way it is linked. It calls the library if there are no copies, or if
/// another library comes before ours.
#[test]
#[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
fn calls_that_go_near() {
    // While a program is recorded there are no copies.
    let favourites = Setting { profiled: false, ..Setting::new("shfl", "bravo-2d-shfl-rw") };
    let mut counted = favourites.clone();
    counted.stats = Some(format!("json:{}", scratch().join("near.json").display()));
    for (name, linked) in [
        ("default", &[][..]),
        ("lazy", &["-Wl,-z,lazy"]),
        ("now", &["-Wl,-z,relro,-z,now"]),
        ("no_plt", &["-fno-plt"]),
        ("fixed", &["-no-pie"]),
        ("tracked", &["-DIBT", "-fcf-protection=branch", "-Wl,-z,ibt"]),
    ] {
        let arguments = |more: &'static [&str]| linked.iter().chain(more).map(OsStr::new).collect::<Vec<_>>();
        let near = compile("near.c", &format!("near_{name}"), &arguments(&["-DNEAR"]));
        let far = compile("near.c", &format!("far_{name}"), &arguments(&[]));
        let (Some(near), Some(far)) = (near, far) else { return };
        favourites.check(&near);
        Setting { rwlock: "bravo-2d-glibc", ..favourites.clone() }.check(&near);
        counted.check(&far);
        Setting::new("hybrid", "rwsem").check(&far);
    }
    let interposer = ["-DINTERPOSER", "-shared", "-fPIC"].map(OsStr::new);
    let interposer = compile("near.c", "libinterposer.so", &interposer);
    let near = compile("near.c", "near_interposed", &[OsStr::new("-DNEAR")]);
    let (Some(interposer), Some(near)) = (interposer, near) else { return };
    let behind = Setting { library: interposer, beside: vec![favourites.library.clone()], ..favourites };
    behind.check(&near);
}

#[test]
fn an_unknown_lock_is_refused_before_main() {
    let Some(program) = compile("mutex.c", "refused", &[]) else { return };
    for (mutex, rwlock) in [("no-such-lock", "glibc"), ("glibc", "no-such-lock")] {
        let output = Setting::new(mutex, rwlock).run(&program);
        assert_eq!(output.status.code(), Some(127));
        assert!(output.stdout.is_empty());
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(stderr.contains("no-such-lock") && stderr.lines().count() == 1, "{stderr}");
    }
    let output = Setting::new("glibc", "seqlock").run(&program);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), stderr.lines().count()), (Some(127), 1));
    assert!(stderr.contains("LATCHWORK_RWLOCK=seqlock") && stderr.contains("cannot hold it"), "{stderr}");
}

#[test]
fn statistics() {
    let Some(program) = compile("foreign.c", "statistics", &[]) else { return };
    let mut setting = Setting::new(default_mutex(), "glibc");
    setting.stats = Some("1".into());
    let text = String::from_utf8(setting.check(&program).stderr).unwrap();
    assert!(text.contains(&format!("mutex ({}):", default_mutex())), "{text}");
    for line in ["robust mutex: ", "process-shared condition variable: ", "priority-inheriting"] {
        assert!(text.contains(line), "no {line} in\n{text}");
    }

    let Some(program) = compile("mutex.c", "statistics_json", &[]) else { return };
    let file = scratch().join("statistics.json");
    let _ = fs::remove_file(&file);
    setting.stats = Some(format!("json:{}", file.display()));
    assert!(setting.check(&program).stderr.is_empty());
    let json = fs::read_to_string(&file).unwrap();
    assert_eq!(json.lines().count(), 1, "{json}");
    let number = |key: &str| -> u64 {
        let start = json.find(&format!("\"{key}\":")).expect(key) + key.len() + 3;
        json[start..].split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
    };
    // mutex.c makes 100,000 mutexes and locks each once. The first family in the line is `mutex`.
    assert!(number("objects") > 100_000 && number("calls") > 100_000, "{json}");
    assert!(number("contended") > 0, "{json}");
}

/// The statistics of a BRAVO lock say how its readers got in. Those of other locks do not.
#[test]
fn statistics_of_readers() {
    let Some(program) = compile("rwlock.c", "statistics_of_readers", &[]) else { return };
    let text = |rwlock| {
        let mut setting = Setting::new("glibc", rwlock);
        setting.stats = Some("1".into());
        String::from_utf8(setting.check(&program).stderr).unwrap()
    };
    let text_of_bravo = text("bravo-2d-glibc");
    assert!(text_of_bravo.contains("rwlock (bravo-2d-glibc)"), "{text_of_bravo}");
    let text_of_bravo = text("bravo-2d-shfl-rw");
    let (_, readers) = text_of_bravo.split_once("rwlock readers: ").expect("a line on readers");
    let numbers: Vec<u64> = readers
        .lines()
        .next()
        .unwrap()
        .split(|c: char| !c.is_ascii_digit())
        .filter_map(|n| n.parse().ok())
        .collect();
    let [fast, slow, unbiased, collisions, _, revocations, _] = numbers[..] else { panic!("{readers}") };
    assert!(fast > 0 && unbiased > 0 && revocations > 0, "{readers}");
    // One object of rwlock.c asks for preference of writers.
    assert!(text_of_bravo.contains("left to glibc: rwlock that prefers writers: "), "{text_of_bravo}");
    assert_eq!(slow, unbiased + collisions, "{readers}");
    // The lines begin with the name of the program, which has the word "readers".
    assert!(!text("pf-t").contains("rwlock readers"));
}

/// Statistics of a process in which glibc serves every lock say why there are none.
#[test]
fn nothing_is_counted_under_glibc() {
    let mut command = Command::new("/bin/true");
    command.env("LD_PRELOAD", library()).env("LATCHWORK_STATS", "1");
    command.env("LATCHWORK_MUTEX", "glibc").env("LATCHWORK_RWLOCK", "glibc");
    let output = watch(command, "true");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.ends_with(": mutex, rwlock: glibc's own, which are not counted\n"), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
}

/// `LATCHWORK_CHECK=1` reports the mistake of a program that makes one, and nothing of a program that makes none.
#[test]
fn misuse_is_reported() {
    let Some(program) = compile("misuse.c", "misuse", &[]) else { return };
    let check = |mutex: &str, mistake: &str| {
        let mut command = Command::new(&program);
        command.arg(mistake).env("LD_PRELOAD", library()).env("LATCHWORK_CHECK", "1");
        command.env("LATCHWORK_MUTEX", mutex).env("LATCHWORK_RWLOCK", "glibc");
        let what = format!("{mistake} under {mutex}");
        let output = watch(command, &what);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{what}: {}\n{stderr}", output.status);
        stderr
    };
    for mutex in ["glibc", default_mutex(), "mcs"] {
        assert_eq!(check(mutex, "clean"), "", "clean under {mutex}");
        let many = check(mutex, "many");
        assert!(many.contains("more locks that one thread holds (32)"), "{mutex}: {many}");
        assert_eq!(many.lines().count(), 1, "{mutex}: {many}");
        // The mistake, a part of its report, and functions that the stacks in the report must name.
        for (mistake, says, functions) in [
            ("inversion", "lock-order inversion", &["a_then_b", "b_then_a", "inverted"][..]),
            ("readers", "for reading, taken at", &["write_both", "read_both"]),
            ("callers", "lock-order inversion", &["take", "takes_a_and_b", "takes_b_and_a"]),
            ("gated", "lock-order inversion", &["a_then_b", "b_then_a", "gated"]),
            ("small", "lock-order inversion", &["a_then_b", "b_then_a", "inverted"]),
            ("named", " \"journal\", taken at", &["a_then_b", "b_then_a", "inverted"]),
            ("foreign", " \"accounts\" for reading at", &["foreign", "main"]),
            ("chain", "the first of 2 steps", &["a_then_b", "b_then_c", "c_then_a"]),
            ("self", "self-deadlock", &["main"]),
            ("stranger", "by a thread that does not hold it", &["main", "take_a_and_stay"]),
            ("ended", "ends while it holds lock", &["take_a"]),
            ("ended_reader", "ends while it holds lock", &["read_r"]),
            ("waits", "which nobody holds", &["main"]),
            ("nobody", "which nobody holds", &["main"]),
            ("destroyed", "destroyed while it is held", &["main"]),
            ("refused", "by a thread that does not hold it", &["main", "refused"]),
            ("busy", "destroyed while it is held", &["main"]),
            ("busy_c11", "destroyed while it is held", &["main"]),
        ] {
            let report = check(mutex, mistake);
            assert!(report.contains(says), "{mistake} under {mutex}: {report}");
            assert_eq!(report.matches("latchwork[").count(), 1, "{mistake} under {mutex}: {report}");
            for function in functions {
                let named = report.lines().any(|line| line.contains(&format!(" {function} at ")));
                assert!(named && report.contains("misuse.c:"), "{mistake}: no {function} in\n{report}");
            }
        }
    }
    // A program without mistakes that uses all locks of the C++ library.
    let Some(program) = compile("cpp.cpp", "checked_cpp", &[]) else { return };
    for (mutex, rwlock) in [("glibc", "glibc"), (default_mutex(), "bravo-2d-shfl-rw")] {
        let mut command = Command::new(&program);
        command.env("LD_PRELOAD", library()).env("LATCHWORK_CHECK", "1");
        command.env("LATCHWORK_MUTEX", mutex).env("LATCHWORK_RWLOCK", rwlock);
        let output = watch(command, "cpp.cpp, checked");
        assert!(output.status.success(), "{}", output.status);
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "under {mutex} and {rwlock}");
    }
}

/// An uncontended lock call makes no system call for the check, and what the check needs otherwise no filter of a service refuses.
#[test]
fn misuse_is_reported_in_a_sandbox() {
    let Some(program) = compile("sandbox.c", "sandbox", &[]) else { return };
    for (mutex, rwlock) in [("glibc", "glibc"), (default_mutex(), "bravo-2d-shfl-rw"), ("mcs", "pf-t")] {
        for allows in ["none", "none_first", "some"] {
            let mut command = Setting::new(mutex, rwlock).command(&program);
            let what = format!("sandbox.c {allows} under {mutex} and {rwlock}");
            let output = watch(command.arg(allows).env("LATCHWORK_CHECK", "1"), &what);
            let Some(stderr) = filtered(output, &what) else { return };
            // The frames of the coroutine, which lie on several pages, are there up to the outermost one.
            let frames = |name: &str| stderr.matches(&format!(" {name} at ")).count();
            let [outermost, b_then_a] = ["outermost", "b_then_a"].map(frames);
            let expected = if allows == "some" { (4, 10) } else { (0, 0) };
            assert_eq!((outermost, b_then_a), expected, "{what}: {stderr}");
        }
    }
}

/// A recorder of every lock call above the checks, as someone may set both by hand: they report the same.
#[test]
fn misuse_is_reported_while_it_is_traced() {
    let Some(program) = compile("misuse.c", "misuse_traced", &[]) else { return };
    let directory = recorded::directory();
    for (mutex, rwlock) in [("glibc", "glibc"), (default_mutex(), "bravo-2d-shfl-rw"), ("mcs", "pf-t")] {
        for (mistake, says) in [
            ("clean", ""),
            ("inversion", "lock-order inversion"),
            ("chain", "the first of 2 steps"),
            ("self", "self-deadlock"),
            ("stranger", "by a thread that does not hold it"),
        ] {
            let mut command = Setting::new(mutex, rwlock).command(&program);
            command.arg(mistake).env("LATCHWORK_CHECK", "1").env("LATCHWORK_TRACE", &directory);
            let what = format!("{mistake} under {mutex} and {rwlock}");
            let output = watch(command, &what);
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{what}: {}\n{stderr}", output.status);
            assert_eq!(
                stderr.matches("latchwork[").count(),
                usize::from(mistake != "clean"),
                "{what}: {stderr}"
            );
            assert!(stderr.contains(says), "{what}: {stderr}");
        }
    }
    assert!(fs::read_dir(&directory).unwrap().count() > 0);
    fs::remove_dir_all(directory).unwrap();
}

/// A report allocates nothing by the program's allocator, whose lock it may be about.
#[test]
fn a_mistake_of_an_allocator_is_reported() {
    let library =
        compile("allocator.c", "liballocator.so", &["-DLIBRARY", "-shared", "-fPIC"].map(OsStr::new));
    let (Some(library), Some(program)) = (library, compile("allocator.c", "allocator", &[])) else { return };
    for mutex in ["glibc", default_mutex()] {
        let setting = Setting { beside: vec![library.clone()], ..Setting::new(mutex, "glibc") };
        let output = watch(setting.command(&program).env("LATCHWORK_CHECK", "1"), "allocator.c");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && output.stdout == b"ok\n", "{mutex}: {}\n{stderr}", output.status);
        assert_eq!(stderr.matches(": lock-order inversion").count(), 1, "{mutex}: {stderr}");
    }
}

/// Reports of a process that forks meanwhile: each child makes its own, with names.
#[test]
fn misuse_is_reported_across_forks() {
    let Some(program) = compile("forked_reports.c", "forked_reports", &[]) else { return };
    for mutex in ["glibc", default_mutex()] {
        let mut command = Setting::new(mutex, "glibc").command(&program);
        let output = watch(command.env("LATCHWORK_CHECK", "1"), "forked_reports.c");
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{mutex}: {}\n{stderr}", output.status);
        assert_eq!(stderr.matches(": lock-order inversion").count(), 24 + 12, "{mutex}: {stderr}");
        assert!(stderr.matches(" invert_in_child at ").count() >= 12, "{mutex}: {stderr}");
    }
}

/// ThreadSanitizer reports no race in the detector.
#[test]
fn a_program_with_thread_sanitizer_is_checked() {
    let found = Command::new("cc").arg("-print-file-name=libtsan.so").output();
    let runtime = found.map_or_else(|_| String::new(), |found| String::from_utf8(found.stdout).unwrap());
    if !runtime.starts_with('/') {
        eprintln!("SKIPPED: no libtsan.so; it comes with gcc");
        return;
    }
    // In the order in which the command puts them.
    let preload = format!("{}:{}", runtime.trim(), library().display());
    let option = OsStr::new("-fsanitize=thread");
    for (source, reports) in [("sanitized.c", 0), ("misuse.c", 1)] {
        let Some(program) = compile(source, &format!("{source}-tsan"), &[option]) else { return };
        for mutex in ["glibc", default_mutex()] {
            let mut command = Command::new(&program);
            if reports != 0 {
                command.arg("inversion").env("TSAN_OPTIONS", "detect_deadlocks=0");
            }
            command.env("LD_PRELOAD", &preload).env("LATCHWORK_CHECK", "1");
            command.env("LATCHWORK_MUTEX", mutex).env("LATCHWORK_RWLOCK", "glibc");
            let output = watch(command, source);
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{source} under {mutex}: {}\n{stderr}", output.status);
            assert!(!stderr.contains("ThreadSanitizer"), "{source} under {mutex}: {stderr}");
            assert_eq!(stderr.matches("latchwork[").count(), reports, "{source} under {mutex}: {stderr}");
        }
    }
}

/// 300,000 mutexes, used, take no more memory than glibc's if the lock fits in their bytes.
#[test]
fn memory_of_many_mutexes() {
    let Some(program) = compile("memory.c", "memory", &[]) else { return };
    let grown = |mutex: &'static str| -> u64 {
        let output = Setting::new(mutex, "glibc").run(&program);
        assert!(output.status.success(), "{mutex}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().parse().expect("a number")
    };
    // KiB, 1 byte for each mutex. The library has pages of its own, and some locks have tables.
    const PAGES: u64 = 256;
    let glibc = grown("glibc");
    eprintln!("{:>16}: {glibc} KiB", "glibc");
    let (mut inside, mut outside) = (0, 0);
    registry::for_each(|entry| {
        // Of the locks that do not fit, the smaller ones are enough here; `docs/memory.md` has all.
        let all = env::var_os("LATCHWORK_ALL").is_some();
        if entry.kind != Kind::Mutex || entry.bytes > 64 && !all {
            return;
        }
        let ours = grown(entry.info.name);
        eprintln!("{:>16}: {ours} KiB, {} bytes each", entry.info.name, entry.bytes);
        if entry.bytes <= 16 {
            inside += 1;
            assert!(ours <= glibc + PAGES, "{}: {ours} KiB, glibc's {glibc}", entry.info.name);
        } else {
            outside += 1;
            assert!(ours > glibc + PAGES, "{} is not in place, and costs nothing?", entry.info.name);
        }
    });
    assert!(inside > 5 && outside > 0);
}
