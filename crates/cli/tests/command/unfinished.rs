//! Waits that have not ended when a recording ends: deadlocks, and workers without work.

use crate::common::{UNTIL_ASLEEP, compile, latchwork, scratch, stderr};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Output;

/// Two threads wait for each other's lock, and a third one for a condition. Main lets them wait for half a second. Then it returns, or
/// kills its process.
const STUCK: &str = r#"
    #include <pthread.h>
    #include <semaphore.h>
    #include <signal.h>
    #include <sys/syscall.h>
    static pthread_mutex_t first = PTHREAD_MUTEX_INITIALIZER, second = PTHREAD_MUTEX_INITIALIZER;
    static pthread_mutex_t queue = PTHREAD_MUTEX_INITIALIZER;
    static pthread_cond_t work = PTHREAD_COND_INITIALIZER;
    static sem_t go[2], holds[2];
    static volatile int threads[3];
    static void *forwards(void *unused) {
        threads[0] = syscall(SYS_gettid);
        pthread_mutex_lock(&first);
        sem_post(&holds[0]);
        sem_wait(&go[0]);
        pthread_mutex_lock(&second);
        return unused;
    }
    static void *backwards(void *unused) {
        threads[1] = syscall(SYS_gettid);
        pthread_mutex_lock(&second);
        sem_post(&holds[1]);
        sem_wait(&go[1]);
        pthread_mutex_lock(&first);
        return unused;
    }
    static void *idle(void *unused) {
        pthread_mutex_lock(&queue);
        threads[2] = syscall(SYS_gettid);
        for (;;) pthread_cond_wait(&work, &queue);
        return unused;
    }
    int main(int count, char **arguments) {
        pthread_t thread;
        void *(*bodies[])(void *) = { forwards, backwards, idle };
        for (int i = 0; i < 2; i++) { sem_init(&go[i], 0, 0); sem_init(&holds[i], 0, 0); }
        for (int i = 0; i < 3; i++) pthread_create(&thread, 0, bodies[i], 0);
        for (int i = 0; i < 2; i++) sem_wait(&holds[i]);
        for (int i = 0; i < 2; i++) sem_post(&go[i]);
        while (!threads[2]) usleep(1000);
        for (int i = 0; i < 3; i++) until_asleep(threads[i]);
        usleep(500000);
        if (count > 1) kill(getpid(), SIGTERM);
        return 0;
    }"#;

fn report(directory: &Path, program: &Path, arguments: &[&str]) -> (Value, Output) {
    report_of(directory, &[], program, arguments)
}

fn report_of(directory: &Path, options: &[&str], program: &Path, arguments: &[&str]) -> (Value, Output) {
    let file = directory.join("report.json");
    let run = latchwork()
        .args(["profile", "--json"])
        .arg(&file)
        .args(options)
        .arg("--")
        .arg(program)
        .args(arguments)
        .output()
        .unwrap();
    (serde_json::from_slice(&fs::read(&file).unwrap()).unwrap(), run)
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no number"))
}

#[test]
fn a_deadlock_is_the_first_sentence() {
    let directory = scratch("unfinished");
    let source = [UNTIL_ASLEEP, STUCK].concat();
    let program = compile(&directory, "stuck", &source, &["-g", "-O1", "-pthread"]);
    for (arguments, status) in [(&[][..], 0), (&["kill"], 128 + libc::SIGTERM)] {
        let (report, run) = report(&directory, &program, arguments);
        let text = stderr(&run);
        assert_eq!(run.status.code(), Some(status), "{text}");
        let first = report["verdict"][0].as_str().unwrap();
        assert!(first.starts_with("At the end 2 threads still waited for locks (1 for "), "{text}");
        assert!(first.ends_with("2 wait for each other: a deadlock."), "{text}");
        assert!(first.contains("1 for second at forwards (stuck.c:"), "{text}");
        // 0.4 s: the threads slept for half a second, but for the last moment before they did.
        const LEAST: u64 = 400_000_000;
        for name in ["first", "second"] {
            let locks = report["locks"].as_array().unwrap();
            let lock = locks.iter().find(|lock| lock["name"] == name).expect("it is there");
            assert_eq!((number(&lock["waiting"]), number(&lock["wait_ns"])), (1, 0), "{lock}");
            assert!(number(&lock["waiting_ns"]) > LEAST, "{lock}");
        }
        let conditions = report["condvars"].as_array().unwrap();
        let work = conditions.iter().find(|condition| condition["name"] == "work").expect("it is there");
        assert_eq!((number(&work["waiting"]), number(&work["waits"])), (1, 0), "{work}");
        assert!(number(&work["waiting_ns"]) > LEAST, "{work}");
        // The run and its threads last until the process was gone.
        assert!(report["seconds"].as_f64().unwrap() > 0.4, "{report}");
        let threads = report["thread_list"].as_array().unwrap();
        let waits = |key: &str| threads.iter().filter(|thread| number(&thread[key]) > LEAST).count();
        assert_eq!((waits("wait_ns"), waits("condition_wait_ns")), (2, 1), "{}", report["thread_list"]);
        assert_eq!(waits("lifetime_ns"), 4, "{}", report["thread_list"]);
        assert!(text.contains("1 thread was still waiting"), "{text}");
    }
}

/// Two threads wait for a mutex, and one to write under a reader-writer lock, that main holds when it returns. Or the holder has
/// ended: then it was another thread.
const HELD: &str = r#"
    #include <pthread.h>
    #include <sys/syscall.h>
    static pthread_mutex_t first = PTHREAD_MUTEX_INITIALIZER;
    static pthread_rwlock_t table = PTHREAD_RWLOCK_INITIALIZER;
    static volatile int threads[3];
    static void *holds(void *unused) {
        pthread_mutex_lock(&first);
        pthread_rwlock_wrlock(&table);
        return unused;
    }
    static void *waits(void *number) {
        long self = (long)number;
        threads[self] = syscall(SYS_gettid);
        if (self < 2) pthread_mutex_lock(&first);
        else pthread_rwlock_wrlock(&table);
        return number;
    }
    int main(int count, char **arguments) {
        pthread_t thread;
        if (count == 1) {
            holds(0);
        } else {
            pthread_create(&thread, 0, holds, 0);
            pthread_join(thread, 0);
        }
        for (long i = 0; i < 3; i++) pthread_create(&thread, 0, waits, (void *)i);
        for (int i = 0; i < 3; i++) {
            while (!threads[i]) usleep(1000);
            until_asleep(threads[i]);
        }
        usleep(300000);
        return 0;
    }"#;

#[test]
fn the_end_of_the_program_is_no_deadlock() {
    let directory = scratch("held-at-exit");
    let source = [UNTIL_ASLEEP, HELD].concat();
    let program = compile(&directory, "held", &source, &["-g", "-O1", "-pthread"]);
    for (arguments, why) in [
        (
            &[][..],
            "These waits had not ended when the process did: threads that waited for no lock held these.",
        ),
        (&["ended"], "3 wait for a lock whose holder has ended."),
    ] {
        let (report, run) = report(&directory, &program, arguments);
        let first = report["verdict"][0].as_str().unwrap();
        assert!(
            first.starts_with("At the end 3 threads still waited for locks (2 for first "),
            "{}",
            stderr(&run)
        );
        assert!(first.ends_with(why), "{first}");
    }
}

/// Threads that use all locks, one thread after the other, so that the tables of all have entries of all locks. Then each takes its own, and
/// waits for that of the next one. The argument says what happens: so many threads form a circle (1: a thread waits for its own lock); `readers`:
/// two threads, one of which reads, so that the other waits to write; `ended`: the holder ends.
const CIRCLES: &str = r#"
    #include <pthread.h>
    #include <semaphore.h>
    #include <stdlib.h>
    #include <string.h>
    #include <unistd.h>
    static pthread_mutex_t locks[3] = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER };
    static pthread_rwlock_t table = PTHREAD_RWLOCK_INITIALIZER;
    static sem_t used, turn[3], holds, go;
    static int threads, readers, ended;
    static void *body(void *number) {
        long self = (long)number;
        sem_wait(&turn[self]);
        for (int i = 0; i < 2000; i++) {
            for (int lock = 0; lock < 3; lock++) {
                pthread_mutex_lock(&locks[lock]);
                pthread_mutex_unlock(&locks[lock]);
            }
            pthread_rwlock_rdlock(&table);
            pthread_rwlock_unlock(&table);
            pthread_rwlock_wrlock(&table);
            pthread_rwlock_unlock(&table);
        }
        sem_post(&used);
        sem_wait(&turn[self]);
        if (ended && self == 1) return number;
        if (readers && self == 1) pthread_rwlock_rdlock(&table);
        else pthread_mutex_lock(&locks[self]);
        sem_post(&holds);
        if (ended) return number;
        sem_wait(&go);
        if (readers && self == 0) pthread_rwlock_wrlock(&table);
        else pthread_mutex_lock(&locks[(self + 1) % threads]);
        return number;
    }
    static void *behind(void *unused) {
        pthread_mutex_lock(&locks[0]);
        return unused;
    }
    int main(int count, char **arguments) {
        pthread_t all[3], thread;
        readers = !strcmp(arguments[1], "readers");
        ended = !strcmp(arguments[1], "ended");
        threads = readers || ended ? 2 : atoi(arguments[1]);
        sem_init(&used, 0, 0), sem_init(&holds, 0, 0), sem_init(&go, 0, 0);
        for (long i = 0; i < threads; i++) {
            sem_init(&turn[i], 0, 0);
            pthread_create(&all[i], 0, body, (void *)i);
        }
        for (int i = 0; i < threads; i++) { sem_post(&turn[i]); sem_wait(&used); }
        for (int i = 0; i < threads; i++) sem_post(&turn[i]);
        for (int i = 0; i < (ended ? 1 : threads); i++) sem_wait(&holds);
        for (int i = 0; i < threads; i++) sem_post(&go);
        if (ended) pthread_join(all[0], 0);
        pthread_create(&thread, 0, behind, 0);
        usleep(300000);
        if (count > 2) kill(getpid(), SIGKILL);
        return 0;
    }"#;

/// Under latchwork's locks, the tables of the threads say which one holds a lock.
#[test]
fn holders_are_known_under_all_locks() {
    let directory = scratch("circles");
    let source = ["#include <signal.h>\n", CIRCLES].concat();
    let program = compile(&directory, "circles", &source, &["-g", "-O1", "-pthread"]);
    let cases = [
        ("2", 3, "2 wait for each other: a deadlock. One waits behind these."),
        ("3", 4, "3 wait for each other: a deadlock. One waits behind these."),
        ("1", 2, "One waits for what the thread holds itself: a deadlock. One waits behind these."),
        ("readers", 3, "2 wait for each other: a deadlock. One waits behind these."),
        ("ended", 1, "One waits for a lock whose holder has ended."),
    ];
    for (mutex, rwlock) in [("glibc", "glibc"), ("shfl", "shfl-rw"), ("ttas", "pf-q"), ("mcs", "bravo-pf-q")]
    {
        for (case, waiting, why) in cases {
            let ends = [None, Some("kill")];
            // Once is enough to see that a killed process tells as much.
            for end in if case == "2" { &ends[..] } else { &ends[..1] } {
                let arguments: Vec<_> = [case].into_iter().chain(*end).collect();
                let of_locks = ["--mutex", mutex, "--rwlock", rwlock];
                // On a busy machine, main may not give the threads enough time to begin to wait.
                let report = (0..20)
                    .map(|_| report_of(&directory, &of_locks, &program, &arguments).0)
                    .find(|report| threads_that_wait(report) == waiting)
                    .expect("all threads wait at some time");
                let first = report["verdict"][0].as_str().unwrap();
                assert!(first.ends_with(why), "{case} {end:?} under {mutex} and {rwlock}: {first}");
            }
        }
    }
}

/// How many threads waited for locks when the recording ended, and had for long.
fn threads_that_wait(report: &Value) -> u64 {
    let is_verdict = report["verdict"][0].as_str().unwrap().starts_with("At the end ");
    let locks = report["locks"].as_array().unwrap();
    if is_verdict { locks.iter().map(|lock| number(&lock["waiting"])).sum() } else { 0 }
}
