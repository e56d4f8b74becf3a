//! What `latchwork profile --pid` and `latchwork top` say of a process whose threads have begun to wait before.

use super::live::{BUSY, Running, parse};
use crate::common::{compile, latchwork, output, scratch, stderr, stdout};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Two threads wait for each other's lock, a third one waits behind them, and main for the end of one of them. Each is asleep, or soon will be,
/// when the program says that it is ready.
const CIRCLE: &str = r#"
    #include <pthread.h>
    #include <semaphore.h>
    #include <unistd.h>
    static struct { char other[8]; pthread_mutex_t first, second; } bank;
    static pthread_rwlock_t table = PTHREAD_RWLOCK_INITIALIZER;
    static sem_t holds, go;
    static void *forwards(void *unused) {
        pthread_mutex_lock(&bank.first);
        sem_post(&holds);
        sem_wait(&go);
        WAIT;
        return unused;
    }
    static void *backwards(void *unused) {
        pthread_mutex_lock(&bank.second);
        pthread_rwlock_wrlock(&table);
        sem_post(&holds);
        sem_wait(&go);
        pthread_mutex_lock(&bank.first);
        return unused;
    }
    static void *behind(void *unused) {
        pthread_mutex_lock(&bank.second);
        return unused;
    }
    int main(void) {
        pthread_t threads[3];
        sem_init(&holds, 0, 0), sem_init(&go, 0, 0);
        pthread_create(&threads[0], 0, forwards, 0);
        pthread_create(&threads[1], 0, backwards, 0);
        for (int i = 0; i < 2; i++) sem_wait(&holds);
        for (int i = 0; i < 2; i++) sem_post(&go);
        pthread_create(&threads[2], 0, behind, 0);
        write(1, "ready\n", 6);
        pthread_join(threads[0], 0);
        return 0;
    }"#;

/// The first sentence of a report, when threads have come to wait for locks.
fn verdict(pid: &str, asleep: impl Fn(&str) -> bool) -> String {
    let verdict = || {
        let report = output(&["profile", "--pid", pid, "--seconds", "0.05", "--json", "-"]);
        assert_eq!(report.status.code(), Some(0), "{}", stderr(&report));
        parse(&stdout(&report))["verdict"][0].as_str().unwrap().to_owned()
    };
    let mut last = String::new();
    // On a busy machine a thread may come to its wait later.
    let found = (0..100).map(|_| verdict()).find(|text| {
        last.clone_from(text);
        asleep(text)
    });
    found.unwrap_or_else(|| panic!("{last}"))
}

#[test]
fn a_deadlock_of_before_is_named() {
    let directory = scratch("stuck-before");
    for (wait, lock) in
        [("pthread_mutex_lock(&bank.second)", "bank.second"), ("pthread_rwlock_rdlock(&table)", "table")]
    {
        let source = CIRCLE.replace("WAIT", wait);
        let program = compile(&directory, "circle", &source, &["-g", "-O1", "-pthread"]);
        let running = Running::under_latchwork(&["--mutex", "glibc", "--rwlock", "glibc"], &program);
        let pid = running.pid();
        let sentence = verdict(&pid, |text| text.contains("2 more threads waited behind these."));
        let begin = "When the recording began, 2 threads waited for each other, a deadlock: thread ";
        assert!(sentence.starts_with(begin), "{sentence}");
        assert!(sentence.contains("(circle) waits for bank.first, which thread "), "{sentence}");
        assert!(sentence.contains(&format!("(circle) waits for {lock}, which thread ")), "{sentence}");
        let table = stdout(&output(&["top", "--once", "--interval", "0.05", &pid]));
        assert!(table.contains("2 threads waited for each other, a deadlock"), "{table}");
        let line = parse(&stdout(&output(&["top", "--once", "--json", "--interval", "0.05", &pid])));
        assert!(line["deadlock"].as_str().is_some_and(|text| text.starts_with(begin)), "{line}");
    }
}

/// latchwork's own locks do not say which thread holds them. So no deadlock is claimed, and it is said what would name one.
#[test]
fn without_holders_it_is_said_how_to_learn_of_a_deadlock() {
    let directory = scratch("stuck-unnamed");
    let source = CIRCLE.replace("WAIT", "pthread_mutex_lock(&bank.second)");
    let program = compile(&directory, "circle", &source, &["-g", "-O1", "-pthread"]);
    let running = Running::under_latchwork(&[], &program);
    let report = || stdout(&output(&["profile", "--pid", &running.pid(), "--seconds", "0.05"]));
    let text = (0..100).map(|_| report()).find(|text| text.contains("4 threads sleep in a futex"));
    let text = text.expect("all threads wait at last").replace('\n', " ");
    assert!(
        text.contains("latchwork check -- PROG") && text.contains("--mutex glibc --rwlock glibc"),
        "{text}"
    );
    assert!(!text.contains("waited for each other"), "{text}");
}

/// Root in a container usually lacks a capability that it takes to look into some processes, such as one that dumps no core.
#[test]
fn the_missing_capability_is_named() {
    const PTRACE: libc::c_ulong = 19;
    // SAFETY: system calls with plain arguments.
    let has = unsafe { libc::geteuid() == 0 && libc::prctl(libc::PR_CAPBSET_READ, PTRACE) == 1 };
    if !has {
        eprintln!("not tested: this user has no capabilities");
        return;
    }
    let directory = scratch("stuck-capability");
    let source = BUSY.replace("write(1,", "prctl(PR_SET_DUMPABLE, 0); write(1,");
    let source = format!("#include <sys/prctl.h>\n{source}");
    let program = compile(&directory, "busy", &source, &["-O1", "-pthread"]);
    let running = Running::under_latchwork(&[], &program);
    let without = |command: &mut Command| {
        // SAFETY: a system call in the child. At exec, root gets the capabilities that are left.
        unsafe {
            command.pre_exec(|| match libc::prctl(libc::PR_CAPBSET_DROP, PTRACE) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            })
        };
        command.output().unwrap()
    };
    if without(Command::new("cat").arg(format!("/proc/{}/maps", running.pid()))).status.success() {
        eprintln!("not tested: this kernel asks for no capability");
        return;
    }
    let table = without(latchwork().args(["top", "--once", "--interval", "0.1", &running.pid()]));
    let text = stderr(&table);
    assert_eq!(table.status.code(), Some(1), "{text}");
    assert!(text.contains("CAP_SYS_PTRACE") && !text.contains("by root only"), "{text}");
    running.end();
}
