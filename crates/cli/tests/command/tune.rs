//! `latchwork tune`, and `latchwork run --config`.

use crate::UNSEEN;
use crate::common::{UNTIL_ASLEEP, compile, latchwork, output, scratch, stderr, stdout};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// Two threads and two locks: one is held for a millisecond, asleep, and both threads want it all the time: they begin when
/// the second one waits for the lock. While the program is profiled the lock is held for longer, so that it takes 1% of the threads'
/// time even if the machine stops for seconds.
const PROGRAM: &str = r#"
    #include <pthread.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <unistd.h>
    static pthread_mutex_t slow = PTHREAD_MUTEX_INITIALIZER, rare = PTHREAD_MUTEX_INITIALIZER;
    static void *work(void *unused) {
        for (int i = 0; i < 20; i++) {
            pthread_mutex_lock(&slow);
            usleep(getenv("LATCHWORK_PROFILE") ? 25000 : 1000);
            pthread_mutex_unlock(&slow);
        }
        pthread_mutex_lock(&rare);
        pthread_mutex_unlock(&rare);
        return unused;
    }
    static volatile int second;
    static void *second_work(void *unused) {
        second = gettid();
        return work(unused);
    }
    int main(void) {
        pthread_t thread;
        pthread_mutex_lock(&slow);
        pthread_create(&thread, 0, second_work, 0);
        while (!second) usleep(100);
        until_asleep(second);
        pthread_mutex_unlock(&slow);
        work(0);
        pthread_join(thread, 0);
        puts("rate: 1000");
        return 0;
    }
"#;

fn program(directory: &Path) -> PathBuf {
    compile(directory, "slow", &[UNTIL_ASLEEP, PROGRAM].concat(), &["-pthread"])
}

/// A file with one entry.
fn file(directory: &Path, program: &Path, build_id: &str, more: &str) -> String {
    let path = directory.join("locks.toml");
    let text = format!(
        "version = 1\n[module.slow]\npath = {:?}\nbuild-id = {build_id:?}\n[[lock]]\nname = \"slow\"\nkind = \"mutex\"\n\
         use = \"ticket\"\nstatic = [\"slow 0x1 slow\"]\n{more}",
        program.to_str().unwrap()
    );
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn a_file_gives_each_lock_its_own() {
    let directory = scratch("tune-config");
    let program = program(&directory);
    let program_name = program.to_str().unwrap();
    // The build id is not the program's, so its symbol says which lock it is.
    let config = file(&directory, &program, "00", "");
    let statistics = directory.join("statistics.json");
    let output = output(&[
        "run",
        "--config",
        &config,
        "--stats-json",
        statistics.to_str().unwrap(),
        "--",
        program_name,
    ]);
    assert_eq!(stdout(&output), "rate: 1000\n", "{}", stderr(&output));
    assert!(stderr(&output).contains("was rebuilt since"), "{}", stderr(&output));
    let found: Value = serde_json::from_str(&fs::read_to_string(&statistics).unwrap()).unwrap();
    // The default is glibc.
    assert_eq!(found["mutex"]["chosen"], serde_json::json!({"ticket": 1, "glibc": 1}), "{found}");
    // The same locks while they are observed.
    let profile = directory.join("profile.json");
    let arguments = ["profile", "--config", &config, "--json", profile.to_str().unwrap(), "--", program_name];
    let observed = crate::common::output(&arguments);
    assert_eq!(stdout(&observed), "rate: 1000\n", "{}", stderr(&observed));
    assert!(stderr(&observed).contains("was rebuilt since"), "{}", stderr(&observed));
    let found: Value = serde_json::from_str(&fs::read_to_string(&profile).unwrap()).unwrap();
    let served: Vec<_> = found["locks"].as_array().unwrap().iter().map(|lock| &lock["served_by"]).collect();
    assert!(
        !served.is_empty() && served.iter().all(|by| **by == serde_json::json!(["a lock per lock"])),
        "{found}"
    );
    fs::remove_dir_all(directory).unwrap();
}

/// Of a build id with more than 32 bytes the first 32 count.
#[test]
fn a_build_id_may_be_long() {
    let directory = scratch("tune-long-id");
    let source = "#include <pthread.h>
        static pthread_mutex_t slow = PTHREAD_MUTEX_INITIALIZER;
        int main(void) { pthread_mutex_lock(&slow); return pthread_mutex_unlock(&slow); }";
    let id = format!("-Wl,--build-id=0x{}", "ab".repeat(40));
    let program = compile(&directory, "long", source, &["-pthread", &id]);
    let statistics = directory.join("statistics.json");
    let start = |build_id: &str| {
        let config = file(&directory, &program, build_id, "");
        let words = ["run", "--config", &config, "--stats-json", statistics.to_str().unwrap(), "--"];
        let output = output(&[&words[..], &[program.to_str().unwrap()]].concat());
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        stderr(&output)
    };
    assert!(start("00").contains("was rebuilt since"));
    let found: Value = serde_json::from_str(&fs::read_to_string(&statistics).unwrap()).unwrap();
    assert_eq!(found["mutex"]["chosen"], serde_json::json!({"ticket": 1}), "{found}");
    assert_eq!(start(&"ab".repeat(32)), "");
    fs::remove_dir_all(directory).unwrap();
}

/// A library without build id is known by its path, which is a symbolic link for most libraries.
#[test]
fn a_library_may_be_loaded_through_a_link() {
    let directory = scratch("tune-link");
    let source = "#include <pthread.h>
        static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
        void pair(void) { pthread_mutex_lock(&lock); pthread_mutex_unlock(&lock); }";
    let flags = ["-shared", "-fPIC", "-pthread", "-Wl,--build-id=none,-soname,libpair.so.1"];
    compile(&directory, "libpair.so.1.0", source, &flags);
    let link = directory.join("libpair.so.1");
    std::os::unix::fs::symlink("libpair.so.1.0", &link).unwrap();
    let linker = [link.to_str().unwrap(), &format!("-Wl,-rpath,{}", directory.display())];
    let source = "void pair(void); int main(void) { pair(); return 0; }";
    let program = compile(&directory, "linked", source, &linker);
    let config = file(&directory, &link, "00", "");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, text.replace("slow 0x1 slow", "slow 0x1 lock")).unwrap();
    let statistics = directory.join("statistics.json");
    let words = ["run", "--config", &config, "--stats-json", statistics.to_str().unwrap(), "--"];
    let output = output(&[&words[..], &[program.to_str().unwrap()]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let found: Value = serde_json::from_str(&fs::read_to_string(&statistics).unwrap()).unwrap();
    assert_eq!(found["mutex"]["chosen"], serde_json::json!({"ticket": 1}), "{found}");
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn a_file_that_cannot_be_used_is_refused_before_anything_runs() {
    let directory = scratch("tune-refused");
    let program = program(&directory);
    let good = file(&directory, &program, "00", "");
    let text = fs::read_to_string(&good).unwrap();
    for (from, to, why) in [
        ("ticket", "tickte", "did you mean"),
        ("version = 1", "version = 9", "version is 9"),
        ("kind = \"mutex\"", "kind = \"barrier\"", "only a mutex or a rwlock"),
        ("static = ", "statics = ", "unknown field"),
    ] {
        fs::write(&good, text.replace(from, to)).unwrap();
        let output = output(&["run", "--config", &good, "--", "echo", "started"]);
        assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(2), ""), "{from}");
        assert!(
            stderr(&output).contains(why) && stderr(&output).contains("locks.toml"),
            "{}",
            stderr(&output)
        );
    }
    let output = output(&["run", "--config", "/no/such/file", "--", "echo", "started"]);
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(2), ""));
    // A rule that fits nothing is reported, and the program runs.
    fs::write(&good, text.replace("slow 0x1 slow", "slow 0x1 gone")).unwrap();
    let output = crate::common::output(&["run", "--config", &good, "--", program.to_str().unwrap()]);
    assert_eq!(stdout(&output), "rate: 1000\n");
    assert!(stderr(&output).contains("fits nothing"), "{}", stderr(&output));
    fs::remove_dir_all(directory).unwrap();
}

/// The program says the same rate under every lock, so that the rounds cannot prove anything.
#[test]
fn what_is_not_better_is_not_written() {
    let directory = scratch("tune-keep");
    let program = program(&directory);
    let mut command = latchwork();
    command.current_dir(&directory).args(["tune", "--settle", "0", "--runs", "12", "--json", "tuned.json"]);
    command.args(["--metric", "rate: ([0-9]+)", "--", program.to_str().unwrap()]);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    assert!(stdout(&output).contains("Keep what you have"), "{}", stdout(&output));
    assert!(!directory.join("latchwork.toml").exists());
    let json: Value =
        serde_json::from_str(&fs::read_to_string(directory.join("tuned.json")).unwrap()).unwrap();
    assert_eq!(json["result"], "keep", "{json}");
    let classes = json["classes"].as_array().unwrap();
    assert!(
        classes.iter().any(|class| class["name"] == "slow" && class["share"].as_f64() > Some(0.01)),
        "{json}"
    );
    let tried = |class: &Value| class["candidates"].as_array().unwrap()[0] == "glibc";
    assert!(classes.iter().all(tried) && json["search_runs"].as_u64() <= Some(12), "{json}");
    fs::remove_dir_all(directory).unwrap();
}

/// It may have locks that no command sees. `profile`, `record`, `top` and `tune` say so in the same words.
#[test]
fn a_program_without_lock_calls_is_told_why_nothing_can_be_tuned() {
    let directory = scratch("tune-no-locks");
    let mut command = latchwork();
    command.current_dir(&directory).args(["tune", "--settle", "0", "--json", "tuned.json", "--", "true"]);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    assert!(stderr(&output).contains("called no pthread lock (Rust's std and Go"), "{}", stderr(&output));
    let text = stdout(&output);
    assert!(text.contains("called no pthread lock, so there is none to tune"), "{text}");
    assert!(text.contains(UNSEEN) && !text.contains("to search"), "{text}");
    let profile = latchwork().args(["profile", "--", "true"]).output().unwrap();
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words(&stderr(&profile)).contains(UNSEEN), "{}", stderr(&profile));
    fs::remove_dir_all(directory).unwrap();
}

/// A program that works under glibc's locks only is best left as it is.
#[test]
fn a_program_that_fails_under_other_locks_keeps_glibcs() {
    let directory = scratch("tune-glibc-only");
    let fails = "
        #include <stdlib.h>
        #include <string.h>
        __attribute__((constructor)) static void check(void) {
            const char *lock = getenv(\"LATCHWORK_MUTEX\");
            if (lock && strcmp(lock, \"glibc\")) exit(4);
        }
    ";
    let program = compile(&directory, "fails", &[UNTIL_ASLEEP, fails, PROGRAM].concat(), &["-pthread"]);
    let mut command = latchwork();
    command.current_dir(&directory).args(["tune", "--settle", "0", "--runs", "12"]);
    command.args(["--metric", "rate: ([0-9]+)", "--", program.to_str().unwrap()]);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    assert!(stdout(&output).contains("Keep what you have"), "{}", stdout(&output));
    assert!(stderr(&output).contains("fails under all of them"), "{}", stderr(&output));
    fs::remove_dir_all(directory).unwrap();
}

/// The main thread holds each of three mutexes and a reader-writer lock until another thread waits for it. While the program is profiled
/// it holds them for 500 ms more: then each takes 1% of the threads' time even if the machine stops for seconds.
const FOUR_LOCKS: &str = r#"
    #include <pthread.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <string.h>
    #include <unistd.h>
    static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER, two = PTHREAD_MUTEX_INITIALIZER,
                           three = PTHREAD_MUTEX_INITIALIZER;
    static pthread_mutex_t *const mutexes[3] = {&one, &two, &three};
    static pthread_rwlock_t table = PTHREAD_RWLOCK_INITIALIZER;
    static volatile int id, held, wanted;
    static void lock(int which) {
        which < 3 ? pthread_mutex_lock(mutexes[which]) : pthread_rwlock_wrlock(&table);
    }
    static void unlock(int which) {
        which < 3 ? pthread_mutex_unlock(mutexes[which]) : pthread_rwlock_unlock(&table);
    }
    static void *follow(void *unused) {
        id = gettid();
        for (int which = 0; which < 4; which++) {
            while (held <= which) usleep(100);
            wanted = which + 1;
            lock(which);
            unlock(which);
        }
        return unused;
    }
    static int is(const char *variable, const char *value) {
        const char *found = getenv(variable);
        return found && strstr(found, value) != 0;
    }
    int main(void) {
        pthread_t thread;
        if (access("set-up", F_OK)) return 9;
        pthread_create(&thread, 0, follow, 0);
        for (int which = 0; which < 4; which++) {
            lock(which);
            held = which + 1;
            while (wanted <= which) usleep(100);
            until_asleep(id);
            /* The rwlock costs most, so it is first. */
            if (getenv("LATCHWORK_PROFILE")) usleep(which < 3 ? 500000 : 600000);
            unlock(which);
        }
        pthread_join(thread, 0);
        printf("rate: %d\n", RATE);
        return 0;
    }
"#;

/// Tunes [`FOUR_LOCKS`], which says this rate of itself, in so many runs; returns the JSON and the file.
fn tuned_by(name: &str, rate: &str, runs: &str) -> (Value, String) {
    let directory = scratch(name);
    let text = format!("{UNTIL_ASLEEP}{}", FOUR_LOCKS.replace("RATE", rate));
    let program = compile(&directory, "says", &text, &["-pthread"]);
    let mut command = latchwork();
    command.current_dir(&directory).args(["tune", "--settle", "0", "--runs", runs, "--timeout", "600"]);
    // Each run is one between a setup and its cleanup.
    command.args(["--setup", "touch set-up", "--cleanup", "rm -f set-up"]);
    command.args(["--json", "tuned.json", "--metric", "rate: ([0-9]+)", "--", program.to_str().unwrap()]);
    let output = command.output().unwrap();
    assert!(!directory.join("set-up").exists(), "{}", stderr(&output));
    let json = fs::read_to_string(directory.join("tuned.json"));
    let json = json.unwrap_or_else(|error| panic!("{error}: {}", stderr(&output)));
    let written = fs::read_to_string(directory.join("latchwork.toml")).unwrap_or_default();
    fs::remove_dir_all(directory).unwrap();
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["classes"].as_array().unwrap().len(), 4, "{json}");
    (json, written)
}

/// The lock that a rule names for a class is tried, though there are several classes and few runs: the program says that it is
/// twice as fast if one of its mutexes, each of which is held asleep, is `mcs-park`. After that mutex's second round, one run is left, which
/// is no round.
#[test]
fn the_lock_that_fits_is_tried_though_runs_are_few() {
    let (json, written) = tuned_by("tune-few", r#"is("LATCHWORK_LOCKS", "mcs-park") ? 2000 : 1000"#, "24");
    assert_eq!(json["result"], "tuned", "{json}");
    assert!(json["search_runs"].as_u64() <= Some(24), "{json}");
    assert!(written.contains("use = \"mcs-park\""), "{written}");
}

/// The best mutex and the best reader-writer lock are tried together, though neither was measured beside the other.
#[test]
fn the_best_of_both_kinds_make_a_pair() {
    let rate = r#"1000 + 500 * is("LATCHWORK_MUTEX", "mcs-park") + 500 * is("LATCHWORK_RWLOCK", "rwsem")"#;
    let (json, written) = tuned_by("tune-both", rate, "60");
    assert_eq!(json["result"], "pair", "{json}");
    assert!(written.contains("mutex = \"mcs-park\"\nrwlock = \"rwsem\""), "{written}");
}

/// Runs `latchwork tune` for a program that says of itself that it is twice as fast with other mutexes than glibc's, and has a
/// latency of 300 in place of 100. Returns the exit status, the text, the JSON and the file if there is one.
fn tuned_within(name: &str, limits: &[&str]) -> (Option<i32>, String, Value, Option<String>) {
    let directory = scratch(name);
    let says = r#"
        const char *mutex = getenv("LATCHWORK_MUTEX");
        int other = mutex && strcmp(mutex, "glibc") != 0;
        printf("rate: %d\np99: %d us\n", other ? 2000 : 1000, other ? 300 : 100);
    "#;
    let text = PROGRAM.replace("puts(\"rate: 1000\");", says);
    let text = format!("{UNTIL_ASLEEP}#include <stdlib.h>\n#include <string.h>\n{text}");
    let program = compile(&directory, "says", &text, &["-pthread"]);
    let mut command = latchwork();
    command.current_dir(&directory).args(["tune", "--settle", "0", "--runs", "12", "--json", "tuned.json"]);
    // The default limit of a run is a few times what it took under glibc. A stopped or busy machine may need longer.
    command.args(limits).args([
        "--timeout",
        "600",
        "--metric",
        "rate: ([0-9]+)",
        "--",
        program.to_str().unwrap(),
    ]);
    let output = command.output().unwrap();
    let json = fs::read_to_string(directory.join("tuned.json"));
    let json = json.unwrap_or_else(|error| panic!("{error}: {}", stderr(&output)));
    let file = directory.join("latchwork.toml");
    let written = fs::read_to_string(&file).ok();
    if written.is_some() {
        let program = program.to_str().unwrap();
        let again = crate::common::output(&["run", "--config", file.to_str().unwrap(), "--", program]);
        assert!(stdout(&again).starts_with("rate: 2000\n"), "{}{}", stdout(&again), stderr(&again));
    }
    fs::remove_dir_all(directory).unwrap();
    (output.status.code(), stdout(&output), serde_json::from_str(&json).unwrap(), written)
}

/// Nothing here is measured but memory, of which every program has more than a KiB.
#[test]
fn locks_that_exceed_a_limit_are_refused() {
    let p99 = ["--p99", "p99: ([0-9]+) us"];
    for (name, limits, option) in [
        ("tune-p99", vec![p99[0], p99[1], "--max-p99", "250"], "--max-p99: 300, and 250 are allowed"),
        ("tune-memory", vec!["--max-memory", "1K"], "--max-memory: "),
    ] {
        let (status, text, json, written) = tuned_within(name, &limits);
        assert_eq!((status, &json["result"]), (Some(3), &"keep".into()), "{text}{json}");
        assert_eq!(written, None);
        let pairs = json["pairs"].as_array().unwrap();
        let says = |pair: &Value| pair["exceeds"].as_str().is_some_and(|why| why.starts_with(option));
        assert!(!pairs.is_empty() && pairs.iter().all(says), "{json}");
        assert!(text.contains("Keep what you have"), "{text}");
    }
    // With limits that they keep, these locks are taken: all of them are equally fast, so there is a pair for all.
    let wide = [p99[0], p99[1], "--max-p99", "300%", "--max-memory", "100G", "--max-cpu", "1e5"];
    let (status, text, json, written) = tuned_within("tune-wide", &wide);
    assert_eq!((status, &json["result"]), (Some(0), &"pair".into()), "{text}{json}");
    assert!(text.contains("for all locks beats glibc, and is in latchwork.toml"), "{text}");
    assert_eq!(json["proof"]["exceeds"], Value::Null);
    let mutex = json["pair"]["mutex"].as_str().unwrap();
    let written = written.expect("a file");
    assert!(written.contains(&format!("mutex = \"{mutex}\"")) && !written.contains("[[lock]]"), "{written}");
}

#[test]
fn without_a_lock_to_tune_there_is_a_result_all_the_same() {
    let tune = |json| output(&["tune", "--settle", "0", "--json", json, "--", "sleep", "0.01"]);
    let output = tune("-");
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    let json: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!((&json["result"], &json["search_runs"]), (&"keep".into(), &0.into()), "{json}");
    assert_eq!(json["classes"].as_array().map(Vec::len), Some(0), "{json}");
    // Nothing was measured.
    assert_eq!((&json["proof"]["rounds"], &json["proof"]["glibc"]), (&0.into(), &Value::Null), "{json}");
    // The report is there also where the file cannot be written.
    let output = tune("/dev/full");
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stdout(&output).contains("so there is none to tune"), "{}", stdout(&output));
}

#[test]
fn a_program_that_fails_is_cleaned_up_after() {
    let directory = scratch("tune-fails");
    let mut command = latchwork();
    command.current_dir(&directory).args(["tune", "--settle", "0", "--setup", "touch set-up"]);
    let output = command.args(["--cleanup", "rm set-up", "--", "sh", "-c", "exit 4"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("while it is profiled: exit status 4"), "{}", stderr(&output));
    assert!(!directory.join("set-up").exists());
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn limits_that_mean_nothing_are_refused() {
    for (options, why) in [
        (&["--max-cpu", "fast"][..], "a positive number of seconds"),
        (&["--max-memory", "0"], "a positive number of bytes"),
        (&["--max-p99", "3"], "--p99"),
        (&["--p99", "p99: [0-9]+"], "--p99: \"p99: [0-9]+\" captures nothing"),
    ] {
        let output = output(&[&["tune"], options, &["--", "true"]].concat());
        assert_eq!(output.status.code(), Some(2), "{options:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(why), "{options:?}: {}", stderr(&output));
    }
}

#[test]
fn an_interrupted_tuning_leaves_nothing() {
    let directory = scratch("tune-interrupted");
    let program = program(&directory);
    let temporary = directory.join("tmp");
    fs::create_dir(&temporary).unwrap();
    let mut child = latchwork()
        .current_dir(&directory)
        .env("TMPDIR", &temporary)
        .args(["tune", "--settle", "0", "--runs", "1000", "--", program.to_str().unwrap()])
        .stderr(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // The first line comes before the first run.
    let mut byte = [0];
    std::io::Read::read_exact(child.stderr.as_mut().unwrap(), &mut byte).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(300));
    // SAFETY: a signal to a child that was not yet waited for.
    unsafe { libc::kill(child.id() as i32, libc::SIGINT) };
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
    assert!(!directory.join("latchwork.toml").exists());
    assert_eq!(fs::read_dir(&temporary).unwrap().count(), 0);
    fs::remove_dir_all(directory).unwrap();
}
