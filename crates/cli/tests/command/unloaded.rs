//! Locks that lie at the same place, one after the other: in the data of two libraries, and on the heap.

use crate::common::{compile, latchwork, scratch, stderr, stdout};
use latchwork_recording::trace_file::Trace;
use std::path::{Path, PathBuf};

const PROGRAM: &str = r#"
    #include <dlfcn.h>
    #include <pthread.h>
    static char *use(const char *path) {
        void *library = dlopen(path, RTLD_NOW);
        pthread_mutex_t *(*run)(void) = (pthread_mutex_t * (*)(void)) dlsym(library, "run");
        char *lock = (char *)run();
        dlclose(library);
        return lock;
    }
    int main(int argc, char **argv) {
        char *first = use(argv[1]);
        for (int i = 2; i < argc; i++) {
            if (use(argv[i]) != first) {
                return 3;
            }
        }
        return 0;
    }
"#;

/// The program and the two libraries. The thread that calls and the code that it runs are the same for both: only the names differ.
fn compiled(directory: &Path) -> [PathBuf; 3] {
    let [alpha, beta] = ["alpha", "beta"].map(|name| {
        let source = format!(
            "#include <pthread.h>\n\
             static pthread_mutex_t lock_{name} = PTHREAD_MUTEX_INITIALIZER;\n\
             pthread_mutex_t *run(void) {{\n\
                 for (int i = 0; i < 5; i++) {{\n\
                     pthread_mutex_lock(&lock_{name});\n\
                     pthread_mutex_unlock(&lock_{name});\n\
                 }}\n\
                 return &lock_{name};\n\
             }}"
        );
        compile(directory, &format!("{name}.so"), &source, &["-g", "-O1", "-shared", "-fPIC"])
    });
    [compile(directory, "places", PROGRAM, &["-g", "-pthread", "-ldl"]), alpha, beta]
}

#[test]
fn the_profile_has_the_locks_of_both() {
    let directory = scratch("unloaded-profile");
    let [program, alpha, beta] = compiled(&directory);
    let words = ["profile", "--json", "-", "--"].map(std::ffi::OsStr::new);
    // The first one comes back.
    let run = latchwork().args(words).args([&program, &alpha, &beta, &beta, &alpha]).output().unwrap();
    assert_eq!(run.status.code(), Some(0), "{}", stderr(&run));
    let report: serde_json::Value = serde_json::from_str(&stdout(&run)).unwrap();
    for name in ["lock_alpha", "lock_beta"] {
        let locks = report["locks"].as_array().unwrap().iter().filter(|lock| lock["name"] == name);
        let acquisitions: u64 = locks.map(|lock| lock["acquisitions"].as_u64().unwrap()).sum();
        assert_eq!(acquisitions, 10, "{name}: {report:#}");
    }
}

#[test]
fn the_trace_has_the_locks_of_both() {
    let directory = scratch("unloaded-record");
    let [program, alpha, beta] = compiled(&directory);
    let trace = directory.join("trace.lw");
    let words = ["record".as_ref(), "-o".as_ref(), trace.as_os_str(), "--".as_ref()];
    let run = latchwork().args(words).args([&program, &alpha, &beta, &beta, &alpha]).output().unwrap();
    assert_eq!(run.status.code(), Some(0), "{}", stderr(&run));
    let trace = Trace::read(&trace).unwrap();
    for name in ["lock_alpha", "lock_beta"] {
        let is_of = |object: u32| trace.about.classes[trace.about.objects[object as usize]].name == name;
        let events =
            trace.steps.iter().flatten().filter(|step| step.op != latchwork_recording::trace::op::EXIT);
        assert_eq!(events.filter(|step| is_of(step.object)).count(), 20, "{name}: {:#?}", trace.about);
    }
}

/// Memory that gets a second lock: by its first use after a destroy, or by an init call.
#[test]
fn a_lock_in_memory_of_another_one_has_its_own_name() {
    const PROGRAM: &str = r#"
        #include <pthread.h>
        #include <stdlib.h>
        #include <string.h>
        #define USE(lock, times) \
            for (int i = 0; i < times; i++) { pthread_mutex_lock(lock); pthread_mutex_unlock(lock); }
        __attribute__((noinline)) static void first(pthread_mutex_t *lock) {
            USE(lock, 3);
            pthread_mutex_destroy(lock);
        }
        __attribute__((noinline)) static void second(pthread_mutex_t *lock) { USE(lock, 5); }
        __attribute__((noinline)) static void third(pthread_mutex_t *lock) {
            pthread_mutex_init(lock, 0);
            USE(lock, 7);
        }
        int main(void) {
            pthread_mutex_t *lock = malloc(sizeof *lock), initial = PTHREAD_MUTEX_INITIALIZER;
            memcpy(lock, &initial, sizeof initial);
            first(lock);
            memcpy(lock, &initial, sizeof initial);
            second(lock);
            third(lock);
            return 0;
        }
    "#;
    let directory = scratch("unloaded-memory");
    let program = compile(&directory, "places", PROGRAM, &["-g", "-O1", "-pthread"]);
    for mutex in ["glibc", "shfl"] {
        let words = ["profile", "--mutex", mutex, "--json", "-", "--"];
        let run = latchwork().args(words).arg(&program).output().unwrap();
        assert_eq!(run.status.code(), Some(0), "{}", stderr(&run));
        let report: serde_json::Value = serde_json::from_str(&stdout(&run)).unwrap();
        for (function, acquisitions) in [("first", 3), ("second", 5), ("third", 7)] {
            let is_of = |lock: &&serde_json::Value| lock["name"].as_str().unwrap().contains(function);
            let lock = report["locks"].as_array().unwrap().iter().find(is_of);
            assert!(
                lock.is_some_and(|lock| lock["acquisitions"] == acquisitions),
                "{mutex} {function}: {report:#}"
            );
        }
    }
}
