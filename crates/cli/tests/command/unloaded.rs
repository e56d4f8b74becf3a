//! Two libraries that lie at the same place, one after the other, each with a lock in its data.

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
