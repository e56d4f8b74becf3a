//! `latchwork record`: the trace says what the program did.

use crate::common::{compile, output, scratch, stderr, stdout, with_growing_time};
use crate::{COMMAND, UNSEEN};
use latchwork_recording::edges::{self, Meaning};
use latchwork_recording::trace::op;
use latchwork_recording::trace_file::{NO_THREAD, Thread, Trace};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Three workers that do each thing a known number of times.
const KNOWN: &str = r#"
    #include <pthread.h>
    #include <limits.h>
    #include <semaphore.h>
    #define ROUNDS 1000
    static pthread_mutex_t plain = PTHREAD_MUTEX_INITIALIZER, tried = PTHREAD_MUTEX_INITIALIZER, nested;
    static pthread_rwlock_t shared = PTHREAD_RWLOCK_INITIALIZER;
    static pthread_mutex_t turn_lock = PTHREAD_MUTEX_INITIALIZER;
    static pthread_cond_t turn = PTHREAD_COND_INITIALIZER;
    static sem_t units, full;
    static int ready;
    static long counter;
    __attribute__((noinline)) static void try_often(void) {
        pthread_mutex_lock(&tried);
        for (int i = 0; i < 7; i++)
            pthread_mutex_trylock(&tried);
        pthread_mutex_unlock(&tried);
    }
    static void *worker(void *unused) {
        for (int i = 0; i < ROUNDS; i++) {
            pthread_mutex_lock(&plain);
            counter++;
            pthread_mutex_unlock(&plain);
            pthread_mutex_lock(&nested);
            pthread_mutex_lock(&nested);
            pthread_mutex_unlock(&nested);
            pthread_mutex_unlock(&nested);
            pthread_rwlock_rdlock(&shared);
            pthread_rwlock_unlock(&shared);
            if (i % 10 == 0) {
                pthread_rwlock_wrlock(&shared);
                pthread_rwlock_unlock(&shared);
            }
            sem_post(&units);
            sem_wait(&units);
        }
        pthread_mutex_lock(&turn_lock);
        ready++;
        pthread_cond_signal(&turn);
        pthread_mutex_unlock(&turn_lock);
        return unused;
    }
    int main(void) {
        pthread_mutexattr_t attr;
        pthread_mutexattr_init(&attr);
        pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_RECURSIVE);
        pthread_mutex_init(&nested, &attr);
        sem_init(&units, 0, 0);
        sem_init(&full, 0, SEM_VALUE_MAX);
        if (sem_post(&full) == 0)
            return 2;
        try_often();
        pthread_t threads[3];
        for (int i = 0; i < 3; i++)
            pthread_create(&threads[i], 0, worker, 0);
        pthread_mutex_lock(&turn_lock);
        while (ready < 3)
            pthread_cond_wait(&turn, &turn_lock);
        pthread_mutex_unlock(&turn_lock);
        for (int i = 0; i < 3; i++)
            pthread_join(threads[i], 0);
        return counter == 3 * ROUNDS ? 7 : 1;
    }
"#;

/// Two pairs of lock calls, with a quarter of a second in between.
const LATE: &str = r#"
    #include <pthread.h>
    #include <unistd.h>
    static pthread_mutex_t early = PTHREAD_MUTEX_INITIALIZER, late = PTHREAD_MUTEX_INITIALIZER;
    int main(void) {
        pthread_mutex_lock(&early);
        pthread_mutex_unlock(&early);
        usleep(250000);
        pthread_mutex_lock(&late);
        pthread_mutex_unlock(&late);
        return 0;
    }
"#;

/// Runs `latchwork record`; returns the trace, and what the command said.
fn record(directory: &Path, options: &[&str], program: &Path) -> (Trace, std::process::Output) {
    let (trace, output) = record_if_any(directory, options, program);
    (trace.unwrap_or_else(|| panic!("{}", stderr(&output))), output)
}

/// The same. Without a lock call in the time that is recorded there is no trace.
fn record_if_any(
    directory: &Path,
    options: &[&str],
    program: &Path,
) -> (Option<Trace>, std::process::Output) {
    let trace = directory.join("trace.lw");
    let _ = fs::remove_file(&trace);
    let mut words = vec!["record", "-o", trace.to_str().unwrap()];
    words.extend(options);
    words.extend(["--", program.to_str().unwrap()]);
    let output = output(&words);
    let none = stderr(&output).contains("made no lock call");
    let read = || Trace::read(&trace).unwrap_or_else(|error| panic!("{error}: {}", stderr(&output)));
    ((!none).then(read), output)
}

/// How often each operation was done with the objects of each class.
fn counts(trace: &Trace) -> BTreeMap<(&str, u32), u64> {
    let mut counts = BTreeMap::new();
    for step in trace.steps.iter().flatten().filter(|step| step.has_object()) {
        let class = &trace.about.classes[trace.about.objects[step.object as usize]];
        *counts.entry((class.name.as_str(), step.op)).or_default() += 1;
    }
    counts
}

fn known_counts(directory: &str, options: &[&str], linker: &[&str]) {
    let directory = scratch(directory);
    let program = compile(&directory, "known", KNOWN, &[linker, &["-pthread", "-g"]].concat());
    let (trace, output) = record(&directory, options, &program);
    assert_eq!(output.status.code(), Some(7), "{}", stderr(&output));
    let counts = counts(&trace);
    let of = |name: &str, op: u32| counts.get(&(name, op)).copied().unwrap_or(0);
    for (name, op, wanted) in [
        ("plain", op::ACQUIRE, 3000),
        ("plain", op::RELEASE, 3000),
        // The inner acquisition of a recursive mutex decides nothing.
        ("nested", op::ACQUIRE, 3000),
        ("nested", op::RELEASE, 3000),
        ("shared", op::READ, 3000),
        ("shared", op::ACQUIRE, 300),
        ("shared", op::RELEASE, 3300),
        ("units", op::WAKE, 3000),
        ("units", op::SLEEP, 3000),
        // No unit can be added.
        ("full", op::WAKE, 0),
        ("tried", op::ACQUIRE, 1),
        ("tried", op::FAILED, 7),
        ("tried", op::RELEASE, 1),
        ("turn", op::WAKE, 3),
    ] {
        assert_eq!(of(name, op), wanted, "{name}, operation {op}: {counts:#?}");
    }
    // The main thread waits for the condition as often as it wakes up, and has the mutex before and after.
    assert_eq!(of("turn_lock", op::ACQUIRE), 4 + of("turn", op::SLEEP));
    assert_eq!(of("turn_lock", op::ACQUIRE), of("turn_lock", op::RELEASE));
    assert_eq!(trace.about.unknown + trace.about.threads.iter().map(|thread| thread.dropped).sum::<u64>(), 0);
    let mut roles: Vec<&str> = trace.about.threads.iter().map(|thread| thread.role.as_str()).collect();
    roles.sort_unstable();
    assert_eq!(roles, ["main", "worker", "worker", "worker"]);
    let kinds: BTreeMap<&str, &str> =
        trace.about.classes.iter().map(|class| (class.name.as_str(), class.kind.as_str())).collect();
    assert_eq!((kinds["plain"], kinds["shared"], kinds["units"]), ("mutex", "rwlock", "semaphore"));
}

#[test]
fn the_trace_has_what_the_program_did() {
    known_counts("record-known", &[], &[]);
    // With gaps between the segments of the program.
    let linker = ["-Wl,-z,max-page-size=0x200000", "-Wl,-z,separate-code"];
    known_counts("record-known-gaps", &[], &linker);
}

#[test]
fn under_other_locks_too() {
    known_counts("record-known-shfl", &["--mutex", "shfl", "--rwlock", "bravo-2d-shfl-rw"], &[]);
}

/// Each way in which a thread ends, is joined, or waits at a barrier. The roles tell the threads apart.
const LIVES: &str = r#"
    #define _GNU_SOURCE
    #include <pthread.h>
    #include <time.h>
    #include <unistd.h>
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static pthread_barrier_t meeting;
    static void *worker(void *unused) {
        for (int i = 0; i < 2; i++) {
            pthread_mutex_lock(&lock);
            pthread_mutex_unlock(&lock);
            pthread_barrier_wait(&meeting);
        }
        return unused;
    }
    static void *computes(void *unused) { return unused; }
    static void *detached(void *unused) { return unused; }
    static volatile int enough;
    static void *sleeps(void *unused) {
        do usleep(50000); while (!enough);
        return unused;
    }
    static void *waits(void *thread) { pthread_join(*(pthread_t *)thread, 0); return 0; }
    int main(void) {
        pthread_t threads[3], one;
        struct timespec past = {1, 0};
        /* Fork and join: the handles of joined threads come back. */
        for (int round = 0; round < 4; round++) {
            pthread_barrier_init(&meeting, 0, 2 + round % 2);
            for (int i = 0; i < 2 + round % 2; i++)
                pthread_create(&threads[i], 0, worker, 0);
            for (int i = 0; i < 2 + round % 2; i++)
                pthread_join(threads[i], 0);
        }
        pthread_create(&one, 0, detached, 0);
        pthread_detach(one);
        pthread_create(&one, 0, computes, 0);
        usleep(20000);
        pthread_join(one, 0);
        pthread_create(&one, 0, sleeps, 0);
        pthread_create(&threads[0], 0, waits, &one);
        usleep(5000);
        pthread_cancel(threads[0]);
        pthread_join(threads[0], 0);
        if (pthread_timedjoin_np(one, 0, &past) == 0)
            return 1;
        enough = 1;
        pthread_join(one, 0);
        return 0;
    }
"#;

#[test]
fn threads_are_recorded_from_their_creation_to_their_end() {
    for (name, options) in [("record-lives", &[][..]), ("record-lives-shfl", &["--mutex", "shfl"])] {
        let directory = scratch(name);
        let program = compile(&directory, "lives", LIVES, &["-pthread", "-g"]);
        let (trace, output) = record(&directory, options, &program);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let about = &trace.about;
        let role = |thread: u32| match thread {
            NO_THREAD => "none",
            thread => about.threads[thread as usize].role.as_str(),
        };
        let main = about.threads.iter().position(|thread| thread.role == "main").unwrap();
        let of = |thread: usize, wanted: u32| -> Vec<u32> {
            let steps = trace.steps[thread].iter().filter(|step| step.op == wanted);
            steps.map(|step| step.object).collect()
        };
        // Each worker is joined by its own creation's number, though several have the same handle.
        let (created, joined) = (of(main, op::CREATE), of(main, op::JOIN));
        assert_eq!(created[..10], joined[..10]);
        let roles: Vec<&str> = created[10..].iter().map(|thread| role(*thread)).collect();
        assert_eq!(roles, ["detached", "computes", "sleeps", "waits"]);
        let roles: Vec<&str> = joined[10..].iter().map(|thread| role(*thread)).collect();
        assert_eq!(roles, ["computes", "waits", "none", "sleeps"]);
        let mut distinct = created.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), 14);
        for thread in &distinct {
            let steps = &trace.steps[*thread as usize];
            // The detached thread may end after the process.
            assert!(steps.last().is_none_or(|step| step.op == op::EXIT), "{}: {steps:?}", role(*thread));
            // Whoever is cancelled has not joined.
            assert!(role(*thread) != "waits" || steps.len() == 1, "{steps:?}");
        }
        // A barrier for two threads and one for three, which lay at the same place.
        let barriers = about.objects.iter().enumerate();
        let barriers = barriers.filter(|(_, class)| about.classes[**class].kind == "barrier");
        let barriers: Vec<usize> = barriers.map(|(object, _)| object).collect();
        assert_eq!(barriers.iter().map(|barrier| about.parties[*barrier]).collect::<Vec<_>>(), [2, 3]);
        assert!(barriers.iter().all(|barrier| about.classes[about.objects[*barrier]].name == "meeting"));
        for (barrier, passes) in barriers.iter().zip([8, 12]) {
            let all = trace.steps.iter().flatten();
            let waits = all.filter(|step| step.op == op::SLEEP && step.object as usize == *barrier);
            assert_eq!(waits.count(), passes);
        }
    }
}

/// A producer that adds its first job when the consumer waits for it, and two waits that end at their deadlines.
const QUEUE: &str = r#"
    #include <errno.h>
    #include <pthread.h>
    #include <time.h>
    #include <unistd.h>
    #define JOBS 200
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static pthread_cond_t job = PTHREAD_COND_INITIALIZER, never = PTHREAD_COND_INITIALIZER;
    static int waits, jobs;
    static void *consume(void *unused) {
        for (int i = 0; i < JOBS; i++) {
            pthread_mutex_lock(&lock);
            waits = 1;
            while (jobs == 0)
                pthread_cond_wait(&job, &lock);
            jobs--;
            pthread_mutex_unlock(&lock);
        }
        return unused;
    }
    static void late(void) {
        struct timespec past = {1, 0};
        pthread_mutex_lock(&lock);
        while (pthread_cond_timedwait(&never, &lock, &past) != ETIMEDOUT);
        pthread_mutex_unlock(&lock);
    }
    int main(void) {
        pthread_t consumer;
        late();
        pthread_create(&consumer, 0, consume, 0);
        for (int begun = 0; !begun; usleep(1000)) {
            pthread_mutex_lock(&lock);
            begun = waits;
            pthread_mutex_unlock(&lock);
        }
        for (int i = 0; i < JOBS; i++) {
            pthread_mutex_lock(&lock);
            jobs++;
            pthread_cond_signal(&job);
            pthread_mutex_unlock(&lock);
        }
        pthread_join(consumer, 0);
        late();
        return 0;
    }
"#;

/// The trace has what a replay needs to decide anew who waits.
#[test]
fn waits_for_conditions_can_be_replayed() {
    for (name, options) in [("record-queue", &[][..]), ("record-queue-shfl", &["--mutex", "shfl"])] {
        let directory = scratch(name);
        let program = compile(&directory, "queue", QUEUE, &["-pthread", "-g"]);
        let (trace, output) = record(&directory, options, &program);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let about = &trace.about;
        let object = |name: &str| {
            let is = |class: &usize| about.classes[*class].name == name;
            about.objects.iter().position(is).unwrap()
        };
        let counts = counts(&trace);
        let of = |name: &str, op: u32| counts.get(&(name, op)).copied().unwrap_or(0);
        assert_eq!((of("job", op::WAKE), of("never", op::FAILED)), (200, 2), "{counts:?}");
        assert!(of("job", op::SLEEP) > 0 && of("job", op::FAILED) == 0, "{counts:?}");
        let found = edges::find(about, &trace.steps);
        assert_eq!(found.meaning[object("job")], Meaning::Permits);
        assert_eq!(found.meaning[object("never")], Meaning::Recorded);
        // The consumer takes 200 jobs, and none of the main thread's sections takes one.
        let mut takes: Vec<usize> = found.sections.iter().map(Vec::len).collect();
        takes.sort_unstable();
        assert_eq!(takes, [0, 200]);
        assert_eq!(about.permits.len(), about.objects.len());
    }
}

/// A thread that computes and sleeps between its lock calls, and says how much CPU time it had.
const CLOCK: &str = r#"
    #include <pthread.h>
    #include <stdio.h>
    #include <time.h>
    #include <unistd.h>
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static long cpu(void) {
        struct timespec t;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
        return t.tv_sec * 1000000000L + t.tv_nsec;
    }
    static void compute(long ns) {
        long end = cpu() + ns;
        while (cpu() < end);
    }
    static void pair(void) {
        pthread_mutex_lock(&lock);
        pthread_mutex_unlock(&lock);
    }
    int main(void) {
        pair();
        long start = cpu();
        for (int i = 0; i < 40; i++) {
            compute(1000000);
            pair();
            usleep(2000);
            pair();
        }
        printf("%ld\n", cpu() - start);
        return 0;
    }
"#;

/// What the recorder says of CPU time is what the thread's own clock says, however busy the machine is.
#[test]
fn computing_and_sleeping_are_told_apart() {
    let directory = scratch("record-clock");
    let program = compile(&directory, "clock", CLOCK, &["-pthread"]);
    let measure = || {
        let (trace, output) = record(&directory, &[], &program);
        let truth: f64 = stdout(&output).trim().parse().unwrap();
        let steps = trace.steps[0].iter().skip(2).filter(|step| step.op != op::EXIT);
        let cpu: u64 = steps.map(|step| step.cpu).sum();
        let near = (cpu as f64 / truth - 1.0).abs() < 0.15;
        (!near).then(|| eprintln!("{cpu} recorded, {truth} in truth"));
        near.then_some(trace)
    };
    // The machine may stall between a look at the thread's own clock and one at the other: then once more.
    let trace = (0..20).find_map(|_| measure()).expect("the CPU time is that of the thread's own clock");
    let steps = &trace.steps[0];
    // 40 sleeps of 2 ms. If the thread lost its processor involuntarily meanwhile, the time counts as that.
    let away = steps.iter().map(|step| step.off).sum::<u64>() + trace.about.threads[0].preempted_ns;
    assert!(away > 75_000_000, "{away} ns away");
}

/// A thread that makes lock calls for 2 ms, and says how long that took. Its first and its last call enclose that time.
const SHORT: &str = r#"
    #include <pthread.h>
    #include <stdio.h>
    #include <time.h>
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static long pair(void) {
        struct timespec t;
        pthread_mutex_lock(&lock);
        pthread_mutex_unlock(&lock);
        clock_gettime(CLOCK_MONOTONIC, &t);
        return t.tv_sec * 1000000000L + t.tv_nsec;
    }
    int main(void) {
        long start = pair(), now = start;
        while (now < start + 2000000)
            now = pair();
        pair();
        printf("%ld\n", now - start);
        return 0;
    }
"#;

/// A tick has the right length, however short the run is.
#[test]
fn short_runs_and_delays_last_as_long_as_they_do() {
    let directory = scratch("record-short");
    let program = compile(&directory, "short", SHORT, &["-pthread"]);
    let is_right = |_| {
        let (trace, output) = record(&directory, &[], &program);
        let truth = stdout(&output).trim().parse::<f64>().unwrap() / 1e9;
        let ratio = trace.about.seconds / truth;
        // Whatever the thread did or the recorder took between the first call and the last one is in it.
        let is_right = (0.98..1.15).contains(&ratio);
        if !is_right {
            eprintln!("{} recorded, {truth} in truth", trace.about.seconds);
        }
        is_right
    };
    // The machine may stall between a call and the program's look at the clock: then once more.
    assert!((0..20).any(is_right), "the time is that of CLOCK_MONOTONIC");

    let program = compile(&directory, "late", LATE, &["-pthread"]);
    let (trace, output) = record(&directory, &["--delay", "0.2"], &program);
    assert_eq!(counts(&trace).get(&("late", op::ACQUIRE)), Some(&1), "{}", stderr(&output));
}

#[test]
fn what_there_is_no_room_for_is_counted() {
    let directory = scratch("record-drops");
    let program = compile(
        &directory,
        "many",
        r#"
        #include <pthread.h>
        int main(void) {
            pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
            for (int i = 0; i < 100000; i++) {
                pthread_mutex_lock(&lock);
                pthread_mutex_unlock(&lock);
            }
            return 0;
        }
        "#,
        &["-pthread"],
    );
    let (trace, output) = record(&directory, &["--size", "1"], &program);
    let thread = &trace.about.threads[0];
    // A MiB has less than 65,536 events. Those that have the thread's CPU time are neither lock calls nor in the file.
    assert!(thread.dropped >= 134_464 && thread.events <= 65_536, "{thread:?}");
    assert!(thread.events + thread.dropped >= 200_000, "{thread:?}");
    assert!(stderr(&output).contains("were dropped: use a larger --size"), "{}", stderr(&output));
}

/// Each call of a thread that gets no room at all counts.
#[test]
fn threads_without_room_drop_all_that_they_do() {
    let directory = scratch("record-full");
    let source = r#"
        #include <pthread.h>
        #include <unistd.h>
        static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
        static void *worker(void *unused) {
            for (int i = 0; i < 400; i++) {
                pthread_mutex_lock(&lock);
                pthread_mutex_unlock(&lock);
            }
            return unused;
        }
        int main(void) {
            pthread_t threads[100];
            pthread_mutex_lock(&lock);
            pthread_mutex_unlock(&lock);
            usleep(PAUSE);
            for (int i = 0; i < 100; i++)
                pthread_create(&threads[i], 0, worker, 0);
            for (int i = 0; i < 100; i++)
                pthread_join(threads[i], 0);
            return 0;
        }
        "#;
    let program = compile(&directory, "many", source, &["-pthread", "-DPAUSE=0"]);
    // A MiB has room for less than 65,536 events, so a thread that comes late gets none at all.
    let (trace, output) = record(&directory, &["--size", "1"], &program);
    let about = &trace.about;
    assert!(about.threads.len() <= 101, "{}", about.threads.len());
    let sum = |count: fn(&Thread) -> u64| about.threads.iter().map(count).sum::<u64>();
    let (kept, dropped) = (sum(|thread| thread.events), sum(|thread| thread.dropped) + about.unknown);
    // Some of the recorder's own events may be dropped, too.
    let all = 100 * 800 + 202;
    assert!((all..all + 1000).contains(&(kept + dropped)), "{kept} kept, {dropped} dropped");
    assert!(stderr(&output).contains("were dropped: use a larger --size"), "{}", stderr(&output));
    // What they do outside of the time that is recorded does not count.
    // On a busy machine the program may come late to its first call.
    let trace = with_growing_time(|time| {
        let pause = format!("-DPAUSE={:.0}", time.parse::<f64>().unwrap() * 1.2e6);
        let program = compile(&directory, "late", source, &["-pthread", &pause]);
        record_if_any(&directory, &["--size", "1", "--seconds", time], &program).0
    });
    assert_eq!(trace.about.unknown, 0);
}

/// A hundred thousand threads fit into the default size.
#[test]
fn short_threads_need_little_room() {
    let directory = scratch("record-threads");
    let source = r#"
        #include <pthread.h>
        static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
        static long count;
        static void *worker(void *unused) {
            pthread_mutex_lock(&lock);
            count++;
            pthread_mutex_unlock(&lock);
            return unused;
        }
        int main(void) {
            pthread_attr_t attr;
            pthread_t thread;
            pthread_attr_init(&attr);
            pthread_attr_setstacksize(&attr, 64 << 10);
            for (int i = 0; i < 100000; i++)
                if (pthread_create(&thread, &attr, worker, 0) || pthread_join(thread, 0))
                    return 1;
            return count != 100000;
        }
        "#;
    let program = compile(&directory, "short", source, &["-pthread"]);
    let (trace, output) = record(&directory, &[], &program);
    let about = &trace.about;
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(about.threads.len(), 100_001);
    assert_eq!((about.unknown, about.threads.iter().map(|thread| thread.dropped).sum::<u64>()), (0, 0));
    let done = |op| trace.steps.iter().flatten().filter(|step| step.op == op).count();
    for op in [op::ACQUIRE, op::RELEASE, op::CREATE, op::JOIN] {
        assert_eq!(done(op), 100_000, "operation {op}");
    }
    assert!(!stderr(&output).contains("dropped"), "{}", stderr(&output));
}

#[test]
fn a_forked_child_has_a_trace_of_its_own() {
    let source = r#"
        #define _GNU_SOURCE
        #include <pthread.h>
        #include <sys/wait.h>
        #include <unistd.h>
        static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
        static void pairs(int n) {
            for (int i = 0; i < n; i++) {
                pthread_mutex_lock(&lock);
                pthread_mutex_unlock(&lock);
            }
        }
        int main(void) {
            pairs(10);
            int child = FORK();
            if (child == 0) {
                pairs(1000);
                return 0;
            }
            waitpid(child, 0, 0);
            pairs(10);
            return 0;
        }
        "#;
    let directory = scratch("record-fork");
    // No fork handlers run in `_Fork`.
    for fork in ["fork", "_Fork"] {
        let program = compile(&directory, fork, source, &["-pthread", &format!("-DFORK={fork}")]);
        let (trace, output) = record(&directory, &[], &program);
        assert_eq!(counts(&trace).get(&("lock", op::ACQUIRE)), Some(&1000), "{fork}: {}", stderr(&output));
        assert_eq!(trace.about.other_processes, 1, "{fork}");
    }
}

/// `--delay` and `--seconds` count from the start of each process, also of one that is forked when its parent's time is over.
#[test]
fn a_forked_child_has_a_window_of_its_own() {
    let source = r#"
        #include <pthread.h>
        #include <sys/wait.h>
        #include <unistd.h>
        static pthread_mutex_t early = PTHREAD_MUTEX_INITIALIZER, late = PTHREAD_MUTEX_INITIALIZER;
        static void pair(pthread_mutex_t *lock) {
            pthread_mutex_lock(lock);
            pthread_mutex_unlock(lock);
        }
        int main(void) {
            usleep(PAUSE);
            int child = fork();
            if (child == 0) {
                pair(&early);
                usleep(PAUSE);
                pair(&late);
                return 0;
            }
            waitpid(child, 0, 0);
            return 0;
        }
        "#;
    let directory = scratch("record-fork-window");
    // On a busy machine the child may come late to its first call.
    with_growing_time(|time| {
        let pause = format!("-DPAUSE={:.0}", time.parse::<f64>().unwrap() * 1.2e6);
        let program = compile(&directory, "forks", source, &["-pthread", &pause]);
        let is_recorded = |(option, recorded)| {
            let (trace, output) = record_if_any(&directory, &[option, time], &program);
            let counts = trace.as_ref().map(counts).unwrap_or_default();
            let found: Vec<_> = counts.into_keys().filter(|(_, op)| *op == op::ACQUIRE).collect();
            let is_right = found == [(recorded, op::ACQUIRE)];
            if !is_right {
                eprintln!("{option} {time}: {found:?}: {}", stderr(&output));
            }
            is_right
        };
        [("--seconds", "early"), ("--delay", "late")].into_iter().all(is_recorded).then_some(())
    });
}

/// A thread acquires a mutex that it has not released: another thread has, or there is another mutex in the place of one that was held.
#[test]
fn an_acquisition_ends_the_one_before() {
    let source = r#"
        #include <pthread.h>
        #include <semaphore.h>
        static pthread_mutex_t handed = PTHREAD_MUTEX_INITIALIZER;
        static sem_t locked, unlocked;
        static void *unlocks(void *unused) {
            for (int i = 0; i < 100; i++) {
                sem_wait(&locked);
                pthread_mutex_unlock(&handed);
                sem_post(&unlocked);
            }
            return unused;
        }
        int main(void) {
            static pthread_mutex_t renewed;
            pthread_t thread;
            pthread_create(&thread, 0, unlocks, 0);
            for (int i = 0; i < 100; i++) {
                pthread_mutex_lock(&handed);
                sem_post(&locked);
                sem_wait(&unlocked);
            }
            pthread_join(thread, 0);
            for (int i = 0; i < 2; i++) {
                pthread_mutex_init(&renewed, 0);
                for (int j = 0; j < 50; j++) {
                    pthread_mutex_lock(&renewed);
                    pthread_mutex_unlock(&renewed);
                }
                pthread_mutex_lock(&renewed);
            }
            return 0;
        }
        "#;
    let directory = scratch("record-handed");
    let program = compile(&directory, "handed", source, &["-pthread", "-g"]);
    for options in [&[][..], &["--mutex", "shfl"]] {
        let (trace, output) = record(&directory, options, &program);
        let counts = counts(&trace);
        let of = |name: &str, op: u32| counts.get(&(name, op)).copied().unwrap_or(0);
        assert_eq!(of("handed", op::ACQUIRE), 100, "{}", stderr(&output));
        assert_eq!((of("renewed", op::ACQUIRE), of("renewed", op::RELEASE)), (102, 101));
    }
}

/// Barriers for a thousand numbers of threads at one address have more records than a search finds. They do not use up all records.
#[test]
fn what_is_not_found_again_leaves_room_for_others() {
    let source = r#"
        #include <pthread.h>
        static pthread_mutex_t after = PTHREAD_MUTEX_INITIALIZER;
        static pthread_barrier_t barrier;
        int main(void) {
            for (int i = 0; i < 75000; i++) {
                pthread_barrier_init(&barrier, 0, 1 + i % 1000);
                pthread_barrier_destroy(&barrier);
            }
            pthread_mutex_lock(&after);
            pthread_mutex_unlock(&after);
            return 0;
        }
        "#;
    let directory = scratch("record-slots");
    let program = compile(&directory, "barriers", source, &["-pthread"]);
    let (trace, output) = record(&directory, &[], &program);
    assert_eq!(counts(&trace).get(&("after", op::ACQUIRE)), Some(&1), "{}", stderr(&output));
}

#[test]
fn what_cannot_be_recorded_is_refused() {
    let directory = scratch("record-refused");
    let trace = directory.join("trace.lw");
    let trace = trace.to_str().unwrap();
    let program = compile(&directory, "late", LATE, &["-pthread"]);
    let program = program.to_str().unwrap();
    for (words, status, why) in [
        (&["record", "-o", trace, "--seconds", "0", "--", "true"][..], 2, "would record nothing"),
        (&["record", "-o", trace, "--size", "0", "--", "true"], 2, "--size"),
        (&["record", "-o", trace, "--mutex", "nonsense", "--", "true"], 2, "nonsense"),
        (&["record", "-o", "/nowhere/trace.lw", "--", "true"], 2, "/nowhere"),
        (&["record", "-o", trace, "--", "/bin/true"], 1, "made no lock call"),
        (&["record", "-o", trace, "--", "/bin/true"], 1, UNSEEN),
        (
            &["record", "-o", trace, "--delay", "1000", "--", program],
            1,
            "--delay and --seconds do not leave out",
        ),
        (&["record", "-o", trace, "--", "/nowhere/program"], 127, "/nowhere/program"),
    ] {
        let output = output(words);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(status), "{words:?}: {said}");
        assert!(said.contains(why), "{words:?}: {said}");
    }
    assert!(!fs::exists(trace).unwrap());
}

/// The recorder of the child asks again where the program lies, while it makes the record of a mutex.
#[test]
fn a_child_is_recorded_beside_a_library_that_locks_in_getauxval() {
    let directory = scratch("record-getauxval");
    let library = r#"
        #define _GNU_SOURCE
        #include <dlfcn.h>
        #include <pthread.h>
        static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
        unsigned long getauxval(unsigned long kind) {
            pthread_mutex_lock(&mutex);
            unsigned long (*below)(unsigned long) = (unsigned long (*)(unsigned long))dlsym(RTLD_NEXT, "getauxval");
            unsigned long value = below(kind);
            pthread_mutex_unlock(&mutex);
            return value;
        }"#;
    let library = compile(&directory, "locking.so", library, &["-shared", "-fPIC", "-pthread"]);
    let source = r#"
        #include <pthread.h>
        #include <sys/wait.h>
        #include <unistd.h>
        static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
        int main(void) {
            pthread_mutex_lock(&mutex);
            pthread_mutex_unlock(&mutex);
            if (!fork()) {
                alarm(300);
                pthread_mutex_lock(&mutex);
                pthread_mutex_unlock(&mutex);
                return 7;
            }
            int status;
            wait(&status);
            return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
        }"#;
    let program = compile(&directory, "program", source, &["-pthread"]);
    for words in [&["record", "-o", "/dev/null", "--"][..], &["profile", "--"], &["check", "--"]] {
        let output =
            Command::new(COMMAND).args(words).arg(&program).env("LD_PRELOAD", &library).output().unwrap();
        assert_eq!(output.status.code(), Some(7), "{words:?}: {}", stderr(&output));
    }
}

#[test]
fn predict_says_how_to_get_it() {
    let directory = scratch("predict-alone");
    let alone = directory.join("latchwork");
    // By another process: a child that another test forks meanwhile would keep the copy open for writing, and the kernel does not
    // execute such a file.
    assert!(Command::new("cp").args([COMMAND.as_ref(), alone.as_path()]).status().unwrap().success());
    let output = Command::new(&alone).args(["predict", "trace.lw"]).env("PATH", "").output().unwrap();
    assert_eq!(output.status.code(), Some(127));
    assert!(stderr(&output).contains("cargo install --path crates/lab"), "{}", stderr(&output));
}
