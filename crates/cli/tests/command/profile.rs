//! `latchwork profile`: programs whose waits are known.

use crate::common::{UNTIL_ASLEEP, compile, compile_with, latchwork, output, scratch, send, stderr, stdout};
use serde_json::Value;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// One thread sleeps under the lock that another one, the main thread, wants. The sleeper takes it first.
const HOT: &str = r#"
    #include <pthread.h>
    #include <semaphore.h>
    #include <unistd.h>
    static struct { char other[40]; pthread_mutex_t mutex; } cache;
    static sem_t held, asked, done;
    __attribute__((noinline)) void evict(void) {
        pthread_mutex_lock(&cache.mutex);
        sem_post(&held);
        sem_wait(&asked);
        until_asleep(getpid());
        usleep(20000);
        pthread_mutex_unlock(&cache.mutex);
        sem_wait(&done);
    }
    __attribute__((noinline)) void get(void) {
        sem_wait(&held);
        sem_post(&asked);
        pthread_mutex_lock(&cache.mutex);
        pthread_mutex_unlock(&cache.mutex);
        sem_post(&done);
    }
    static void *evictor(void *unused) {
        for (int i = 0; i < 10; i++) evict();
        return unused;
    }
    int main(int argc, char **argv) {
        pthread_t thread;
        if (argc > 2) return pthread_mutex_lock(&cache.mutex) || pthread_mutex_unlock(&cache.mutex);
        sem_init(&held, 0, 0);
        sem_init(&asked, 0, 0);
        sem_init(&done, 0, 0);
        pthread_create(&thread, 0, evictor, 0);
        for (int i = 0; i < 10; i++) get();
        pthread_join(thread, 0);
        if (argc > 1) { write(1, "ready\n", 6); pause(); }
        return 3;
    }"#;

fn compile_hot(directory: &Path, arguments: &[&str]) -> PathBuf {
    compile(directory, "hot", &[UNTIL_ASLEEP, HOT].concat(), &[arguments, &["-pthread"]].concat())
}

/// The JSON report, and what was on stderr, of a run that must end with this status.
fn profile(directory: &Path, arguments: &[&str], status: i32) -> (Value, String) {
    let file = directory.join("report.json");
    let run = latchwork().args(["profile", "--json"]).arg(&file).args(arguments).output().unwrap();
    assert_eq!(run.status.code(), Some(status), "{}", stderr(&run));
    (serde_json::from_slice(&fs::read(&file).unwrap()).unwrap(), stderr(&run))
}

/// Nanoseconds of the lock's waiting that holders in this function caused. What comes after a holder's release is not in it:
/// on a busy machine a thread that was woken may not run for long.
fn blamed(lock: &Value, function: &str) -> u64 {
    let of = |holder: &Value| holder["stack"].as_array().unwrap().iter().any(|frame| starts(frame, function));
    let holders = lock["holders"].as_array().unwrap().iter().filter(|holder| of(holder));
    holders.map(|holder| holder["caused_wait_ns"].as_u64().unwrap()).sum()
}

fn starts(frame: &Value, function: &str) -> bool {
    frame.as_str().unwrap().split(" (").next() == Some(function)
}

#[test]
fn the_lock_the_waiter_and_the_holder_have_their_names() {
    let directory = scratch("profile");
    let program = compile_hot(&directory, &["-g", "-O1"]);
    let kept = directory.join("kept here");
    let page = directory.join("page.html");
    let files = [kept.to_str().unwrap(), page.to_str().unwrap(), program.to_str().unwrap()];
    let (report, text) = profile(&directory, &["--keep", files[0], "-o", files[1], "--", files[2]], 3);
    let lock = &report["locks"][0];
    assert_eq!(lock["name"], "cache.mutex", "{text}");
    assert_eq!(lock["class"], "static in hot");
    assert_eq!((&lock["acquisitions"], &lock["contended"]), (&20.into(), &10.into()), "{lock}");
    // Each of the ten waits lasts as long as the sleep at least, and the other function causes none.
    assert!(lock["wait_ns"].as_u64().unwrap() > 10 * 19_000_000, "{lock}");
    assert!(blamed(lock, "evict") > 10 * 19_000_000 && blamed(lock, "get") == 0, "{lock}");
    assert!(starts(&lock["waiters"][0]["stack"][0], "get"), "{lock}");
    assert!(text.contains("cache.mutex") && text.contains("while evict held it"), "{text}");
    assert!(text.contains(&format!("latchwork profile --read '{}'\n", files[0])), "{text}");
    // The semaphores are in the report, but not among the locks.
    assert_eq!(report["locks"].as_array().unwrap().len(), 1, "{report}");
    assert!(fs::read_to_string(&page).unwrap().contains("cache.mutex"));

    // The same again from the files. How much they occupy on the disk, the file system may decide later.
    let (again, _) = profile(&directory, &["--read", files[0]], 0);
    let without_bytes = |mut report: Value| {
        assert!(report["overhead"]["memory_bytes"].take().as_u64() > Some(0), "{report}");
        report
    };
    assert_eq!(without_bytes(again), without_bytes(report));
    let folded = output(&["profile", "--read", files[0], "--folded", "-"]);
    let lines = stdout(&folded);
    assert!(lines.lines().any(|line| line.contains("main;get;[cache.mutex] ")), "{lines}");
    // Files of two runs would be taken for one.
    let refused = output(&["profile", "--keep", files[0], "--", files[2]]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("not empty"), "{}", stderr(&refused));
}

/// The program names its locks as `lw_name` does, and has a lock of its own that the recorder is told of.
/// A holder that came before the waiter says at its release where it acquired the lock. The waiter is gone then.
#[test]
fn a_wait_that_was_given_up_has_a_name() {
    let directory = scratch("profile-given-up");
    let source = r#"
        #include <errno.h>
        #include <pthread.h>
        #include <time.h>
        static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
        static void *give_up(void *error) {
            struct timespec until;
            clock_gettime(CLOCK_REALTIME, &until);
            until.tv_sec += (until.tv_nsec += 20000000) / 1000000000;
            until.tv_nsec %= 1000000000;
            *(int *)error = pthread_mutex_timedlock(&mutex, &until);
            return 0;
        }
        int main(void) {
            int error;
            pthread_t thread;
            pthread_mutex_lock(&mutex);
            pthread_create(&thread, 0, give_up, &error);
            pthread_join(thread, 0);
            pthread_mutex_unlock(&mutex);
            return error == ETIMEDOUT ? 7 : 1;
        }"#;
    let program = compile(&directory, "program", source, &["-pthread"]);
    for mutex in ["glibc", "shfl"] {
        let (report, text) = profile(&directory, &["--mutex", mutex, "--", program.to_str().unwrap()], 7);
        let pairs = report["locks"][0]["pairs"].as_array().unwrap();
        assert_eq!(pairs.len(), 1, "{pairs:?}");
        assert_eq!(pairs[0]["holder"], "(still held at the deadline)", "{text}");
        assert!(text.contains("(still held at the deadline)"), "{text}");
    }
}

#[test]
fn names_that_the_program_gives() {
    const NAMED: &str = r#"
        #include <pthread.h>
        #include <stdlib.h>
        extern int latchwork_observe_acquire(void *, int, int (*)(void *), int (*)(void *), void *) __attribute__((weak));
        extern int latchwork_observe_release(void *, int, int (*)(void *), void *) __attribute__((weak));
        extern void latchwork_observe_name(void *, const char *) __attribute__((weak));
        static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
        static char *own;
        static int gets(void *unused) { return unused != 0; }
        __attribute__((noinline)) static int lw_debug_lock(void) {
            return latchwork_observe_acquire(own, 0, gets, gets, 0);
        }
        __attribute__((noinline)) static void first(void) { lw_debug_lock(); __asm__(""); }
        int main(void) {
            pthread_mutex_t *made = malloc(sizeof *made);
            pthread_mutex_init(made, 0);
            latchwork_observe_name(made, "made \"here\"");
            latchwork_observe_name(&mutex, "accounts");
            pthread_mutex_lock(made);
            pthread_mutex_unlock(made);
            pthread_mutex_lock(&mutex);
            pthread_mutex_unlock(&mutex);
            own = malloc(16);
            first();
            return latchwork_observe_release(own, 0, gets, 0);
        }"#;
    let directory = scratch("profile-names");
    let program = compile(&directory, "named", NAMED, &["-g", "-O1", "-pthread"]);
    let (report, text) = profile(&directory, &["--", program.to_str().unwrap()], 0);
    let mut found: Vec<_> = report["locks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|lock| {
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            [text(&lock["name"]), text(&lock["class"]), text(&lock["served_by"][0])]
        })
        .collect();
    found.sort();
    let expected = [
        ["accounts", "static in named", "glibc"],
        ["made \\\"here\\\"", "first used at main (named.c:19) in named", "glibc"],
        ["mutex of first (named.c:13)", "first used at first (named.c:13) in named", "latchwork.h"],
    ];
    assert_eq!(found, expected, "{report}\n{text}");
}

/// Two files of a program have a static lock of the same name, one with a condition variable.
#[test]
fn static_locks_of_one_name_are_different_classes() {
    const FIRST: &str = r#"
        #include <pthread.h>
        static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
        static pthread_cond_t ready = PTHREAD_COND_INITIALIZER;
        void second(void);
        int main(void) {
            for (int i = 0; i < 7; i++) { pthread_mutex_lock(&lock); pthread_mutex_unlock(&lock); }
            pthread_cond_signal(&ready);
            second();
            return 0;
        }"#;
    const SECOND: &str = r#"
        #include <pthread.h>
        static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
        void second(void) { pthread_mutex_lock(&lock); pthread_mutex_unlock(&lock); }"#;
    let directory = scratch("profile-same-name");
    let second = directory.join("second.c");
    fs::write(&second, SECOND).unwrap();
    for debug in ["-g0", "-g"] {
        let arguments = [debug, "-O1", "-pthread", second.to_str().unwrap()];
        let program = compile(&directory, "first", FIRST, &arguments);
        let (report, text) = profile(&directory, &["--", program.to_str().unwrap()], 0);
        let mut found: Vec<_> = report["locks"]
            .as_array()
            .unwrap()
            .iter()
            .map(|lock| (lock["name"].as_str().unwrap(), lock["acquisitions"].as_u64().unwrap()))
            .collect();
        found.sort_unstable();
        assert_eq!(found, [("lock (first.c)", 7), ("lock (second.c)", 1)], "{text}");
    }
}

#[test]
fn recordings_of_children_are_joined() {
    let directory = scratch("profile-children");
    let program = compile_hot(&directory, &["-g", "-O1"]);
    let script = format!("{0} & {0}; wait; exit 5", program.display());
    let (report, _) = profile(&directory, &["--only", "hot", "--", "sh", "-c", &script], 5);
    assert_eq!(report["processes"].as_array().unwrap().len(), 2, "{}", report["processes"]);
    let lock = &report["locks"][0];
    assert_eq!((&lock["name"], &lock["instances"]), (&"cache.mutex".into(), &2.into()), "{lock}");
    assert_eq!(lock["acquisitions"], 40);
    // Three further processes have a lock of this name each. They are no parts of the fourth one's data.
    let script = format!("for i in 1 2 3; do {0} only once; done; {0}; exit 5", program.display());
    let (report, _) = profile(&directory, &["--", "sh", "-c", &script], 5);
    assert_eq!(report["locks"][0]["instances"], 4, "{report}");
    let advice: Vec<_> = report["advice"].as_array().unwrap().iter().map(|one| &one["rule"]).collect();
    assert_eq!(advice, ["shorten"], "{report}");
}

/// A program whose child does not have the rights, or the root directory, that the program began with.
const DROPS: &str = r#"
    #include <pthread.h>
    #include <stdlib.h>
    #include <sys/wait.h>
    #include <unistd.h>
    static pthread_mutex_t of_child = PTHREAD_MUTEX_INITIALIZER;
    int main(int argc, char **argv) {
        if (argc > 1 ? chroot(argv[1]) || chdir("/") : setgid(65534) || setuid(65534)) return 2;
        for (int i = 0; i < 2; i++) {
            int status = 0;
            if (!fork()) {
                for (int i = 0; i < 10; i++) {
                    pthread_mutex_lock(&of_child);
                    pthread_mutex_unlock(&of_child);
                }
                exit(0);
            }
            if (wait(&status) < 0 || status) return 3;
        }
        return 0;
    }"#;

#[test]
fn the_children_of_a_program_that_gave_up_root_are_recorded_or_missed() {
    // SAFETY: cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!("SKIPPED: only root can become another user");
        return;
    }
    let directory = scratch("profile-drops");
    let program = compile(&directory, "drops", DROPS, &["-pthread"]);
    let program = program.to_str().unwrap();
    let (report, text) = profile(&directory, &["--", program], 0);
    assert_eq!(report["processes"].as_array().unwrap().len(), 3, "{report}");
    let lock = &report["locks"][0];
    assert_eq!((&lock["name"], &lock["acquisitions"]), (&"of_child".into(), &20.into()), "{text}");
    let trace = directory.join("trace.lw");
    let record = |arguments: &[&str]| {
        output(&[&["record", "-o", trace.to_str().unwrap(), "--", program], arguments].concat())
    };
    let recorded = record(&[]);
    assert!(stderr(&recorded).contains("20 events"), "{}", stderr(&recorded));

    // In another root directory, the children cannot make files.
    let root = directory.join("root");
    fs::create_dir(&root).unwrap();
    let root = root.to_str().unwrap();
    let (report, text) = profile(&directory, &["--", program, root], 0);
    assert_eq!(text.matches("latchwork: no profile of process").count(), 1, "{text}");
    let verdict = report["verdict"][0].as_str().unwrap();
    assert!(verdict.starts_with("Not in this report: 2 processes that the program forked"), "{report}");
    let recorded = record(&[root]);
    assert_eq!(recorded.status.code(), Some(1));
    assert!(stderr(&recorded).contains("Not recorded: 2 processes"), "{}", stderr(&recorded));
    let tuned = output(&["tune", "-o", directory.join("tuned").to_str().unwrap(), "--", program, root]);
    assert_eq!(tuned.status.code(), Some(1));
    assert!(stderr(&tuned).contains("not recorded: 2 processes"), "{}", stderr(&tuned));
}

#[test]
fn a_wrapper_is_not_the_place() {
    let source = r#"
        #include <mutex>
        #include <thread>
        #include <chrono>
        #include <atomic>
        template <class T> struct Guarded {
            T value{};
            std::mutex mutex;
            template <class F> void with(F f) { std::lock_guard<std::mutex> guard(mutex); f(value); }
        };
        struct Cache {
            Guarded<int> entries;
            std::atomic<int> inside{0};
            __attribute__((noinline)) void evict() {
                entries.with([this](int &) {
                    inside++;
                    until_asleep(getpid()); // the main thread, in get
                    std::this_thread::sleep_for(std::chrono::milliseconds(20));
                });
            }
            __attribute__((noinline)) void get() { entries.with([](int &value) { value++; }); }
        };
        int main() {
            auto cache = new Cache;
            std::thread other([cache] { for (int i = 0; i < 5; i++) cache->evict(); });
            for (int i = 1; i <= 5; i++) {
                while (cache->inside < i) std::this_thread::yield();
                cache->get();
            }
            other.join();
        }"#;
    let directory = scratch("profile-cpp");
    let source = [UNTIL_ASLEEP, source].concat();
    let Some(program) =
        compile_with("g++", &directory, "cache", &source, &["-x", "c++", "-g", "-O1", "-pthread"])
    else {
        eprintln!("SKIPPED: there is no g++");
        return;
    };
    let (report, text) = profile(&directory, &["--", program.to_str().unwrap()], 0);
    let lock = &report["locks"][0];
    assert!(lock["name"].as_str().unwrap().starts_with("mutex of "), "{lock}");
    // The frames of the template say more than those of the library, and are no wrappers of the program's own.
    let stack = lock["waiters"][0]["stack"].as_array().unwrap();
    assert!(stack.iter().any(|frame| starts(frame, "Cache::get")), "{stack:?}");
    // Five waits, each of which lasts as long as the sleep at least.
    assert!(blamed(lock, "Cache::evict") > 5 * 19_000_000, "{lock}");
    assert!(!text.contains("blocked at std::"), "{text}");
}

#[test]
fn a_signal_reaches_the_program_and_the_report_comes() {
    let directory = scratch("profile-signal");
    let program = compile_hot(&directory, &["-O1"]);
    for (signal, status) in [(libc::SIGINT, 130), (libc::SIGTERM, 143)] {
        let mut child = latchwork()
            .args(["profile", "--"])
            .arg(&program)
            .arg("stay")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = [0; 6];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut line).unwrap();
        send(&child, signal);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(status));
        assert!(stderr(&output).contains("Threads spent"), "{}", stderr(&output));
    }
}

/// A shell ignores SIGINT and SIGQUIT in what a script starts in the background. Servers install handlers all the same.
#[test]
fn an_ignored_signal_reaches_a_program_with_a_handler() {
    let directory = scratch("profile-ignored");
    let source = "#include <signal.h>\n#include <unistd.h>\n\
        static void quit(int signal) { _exit(signal); }\n\
        int main(void) { signal(SIGQUIT, quit); signal(SIGWINCH, quit); alarm(60); write(1, \"ready\\n\", 6); for (;;) pause(); }";
    let program = compile(&directory, "handlers", source, &["-w"]);
    for (command, signal) in
        [("profile", libc::SIGQUIT), ("check", libc::SIGQUIT), ("profile", libc::SIGWINCH)]
    {
        let mut child = latchwork();
        child.args([command, "--"]).arg(&program).stdout(Stdio::piped()).stderr(Stdio::null());
        // SAFETY: the closure makes one call, which may be made between fork and exec.
        unsafe {
            child.pre_exec(move || {
                libc::signal(signal, libc::SIG_IGN);
                Ok(())
            })
        };
        let mut child = child.spawn().unwrap();
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut [0; 6]).unwrap();
        send(&child, signal);
        assert_eq!(child.wait().unwrap().code(), Some(signal), "{command}");
    }
}

#[test]
fn errors_say_what_to_do() {
    let directory = scratch("profile-errors");
    let path = directory.to_str().unwrap();
    assert_eq!(output(&["profile", "--", "no-such-program"]).status.code(), Some(127));
    assert_eq!(output(&["profile"]).status.code(), Some(2));
    assert_eq!(output(&["profile", "--read", path, "--", "true"]).status.code(), Some(2));
    let unwritable = output(&["profile", "-o", "/no/such/directory/page.html", "--", "true"]);
    assert_eq!(unwritable.status.code(), Some(2), "before the program is started");
    let empty = output(&["profile", "--read", path]);
    assert_eq!(empty.status.code(), Some(1));
    assert!(stderr(&empty).contains("no recording"), "{}", stderr(&empty));
    std::fs::write(directory.join("notes.txt"), "of another program").unwrap();
    let other = output(&["profile", "--read", path]);
    assert_eq!(other.status.code(), Some(1));
    assert!(
        stderr(&other).contains("its files are none (`latchwork profile --keep DIR`"),
        "{}",
        stderr(&other)
    );
    let program = compile(&directory, "static", "int main(void) { return 0; }", &["-static"]);
    let fixed = output(&["profile", "--", program.to_str().unwrap()]);
    assert_eq!(fixed.status.code(), Some(1));
    assert!(stderr(&fixed).contains("statically linked"), "{}", stderr(&fixed));
}

#[test]
fn nothing_is_left_behind() {
    let directory = scratch("profile-temporary");
    let run = latchwork().args(["profile", "--", "true"]).env("TMPDIR", &directory).output().unwrap();
    assert!(run.status.success() || stderr(&run).contains("no recording"), "{}", stderr(&run));
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 0);
}

/// What a command that SIGKILL has ended left goes with the next run; what belongs to a command that runs stays.
#[test]
fn what_a_killed_command_left_is_removed() {
    let directory = scratch("profile-left");
    let make = |process: u32| {
        let path = directory.join(format!("latchwork-profile-{process}-0"));
        fs::create_dir(&path).unwrap();
        fs::write(path.join("recording"), "anything").unwrap();
        path
    };
    let dead = || {
        let mut child = Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        child.id()
    };
    let (left, lives) = (make(dead()), make(std::process::id()));
    // Of a process that this one cannot see: in another container.
    let elsewhere = make(dead());
    let lock = fs::File::open(&elsewhere).unwrap();
    lock.lock().unwrap();
    let others = directory.join("latchwork-profile-notes");
    fs::create_dir(&others).unwrap();
    let run = latchwork().args(["profile", "--", "true"]).env("TMPDIR", &directory).output().unwrap();
    assert!(run.status.success() || stderr(&run).contains("no recording"), "{}", stderr(&run));
    assert_eq!([&left, &lives, &elsewhere, &others].map(|path| path.exists()), [false, true, true, true]);
}

#[test]
fn go_reads_the_file() {
    let go = Command::new("go").arg("version").output();
    if !go.is_ok_and(|output| output.status.success()) {
        eprintln!("SKIPPED: there is no go");
        return;
    }
    let directory = scratch("profile-go");
    let program = compile_hot(&directory, &["-g", "-O1"]);
    let file = directory.join("locks.pb.gz");
    let arguments = ["profile", "--pprof", file.to_str().unwrap(), "--", program.to_str().unwrap()];
    assert_eq!(output(&arguments).status.code(), Some(3));
    let blame = Command::new("go")
        .args(["tool", "pprof", "-sample_index=blame", "-top"])
        .arg(&file)
        .output()
        .unwrap();
    assert!(stdout(&blame).contains("evict"), "{}{}", stdout(&blame), stderr(&blame));
}

/// Two libraries that lie at the same place, one after the other, and whose code is the same but for the names.
#[test]
fn a_library_in_the_place_of_another_one() {
    let directory = scratch("profile-place");
    for name in ["alpha", "beta"] {
        let source = format!(
            "#include <pthread.h>\n\
             __attribute__((noinline)) void make_{name}(pthread_mutex_t *m) {{ pthread_mutex_init(m, 0); }}\n\
             void *run(void *m) {{\n\
                 make_{name}(m);\n\
                 pthread_mutex_lock(m);\n\
                 pthread_mutex_unlock(m);\n\
                 return 0;\n\
             }}"
        );
        compile(&directory, &format!("{name}.so"), &source, &["-g", "-O1", "-shared", "-fPIC"]);
    }
    let program = r#"
        #include <dlfcn.h>
        #include <pthread.h>
        #include <stdlib.h>
        static char *use(const char *path, pthread_mutex_t *mutex) {
            pthread_t thread;
            void *library = dlopen(path, RTLD_NOW);
            void *(*run)(void *) = (void *(*)(void *))dlsym(library, "run");
            pthread_create(&thread, 0, run, mutex);
            pthread_join(thread, 0);
            dlclose(library);
            return (char *)run;
        }
        int main(int argc, char **argv) {
            (void)argc;
            pthread_mutex_t *made = calloc(2, sizeof *made);
            return use(argv[1], &made[0]) == use(argv[2], &made[1]) ? 0 : 3;
        }"#;
    let program = compile(&directory, "places", program, &["-g", "-pthread", "-ldl"]);
    let [alpha, beta] = ["alpha.so", "beta.so"].map(|name| directory.join(name));
    let words = ["profile", "--json", "-", "--"].map(std::ffi::OsStr::new);
    let run = latchwork().args(words).args([&program, &alpha, &beta]).output().unwrap();
    assert_eq!(run.status.code(), Some(0), "{}", stderr(&run));
    let report = stdout(&run);
    assert!(report.contains("make_alpha") && report.contains("make_beta"), "{report}");
}

/// In a root directory or a container where `/proc` is not mounted.
#[test]
fn a_report_needs_no_proc() {
    let may = Command::new("unshare").args(["-rm", "true"]).status();
    if !may.is_ok_and(|status| status.success()) {
        return; // no such program, or no namespaces for this user
    }
    let directory = scratch("without-proc");
    let source = r#"
        #include <pthread.h>
        int main(void) {
            pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
            for (int i = 0; i < 10; i++) {
                pthread_mutex_lock(&lock);
                pthread_mutex_unlock(&lock);
            }
            return 3;
        }
        "#;
    let program = compile(&directory, "locks", source, &["-pthread"]);
    let file = directory.join("report.json");
    let run = Command::new("unshare")
        .args(["-rm", "sh", "-c", "mount -t tmpfs none /proc && exec \"$@\"", "sh"])
        .arg(latchwork().get_program())
        .args(["profile", "--json"])
        .args([&file, &program])
        .output()
        .unwrap();
    assert_eq!(run.status.code(), Some(3), "{}", stderr(&run));
    let report: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    assert_eq!(report["locks"][0]["acquisitions"], 10, "{report}");
}
