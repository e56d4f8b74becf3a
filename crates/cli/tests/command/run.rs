//! `latchwork run`: the program must not notice that latchwork started it.

use crate::COMMAND;
use crate::common::{compile, latchwork, limit, output, scratch, send, stderr, stdout};
use latchwork::registry::{self, Kind};
use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, Stdio};

fn run(script: &str) -> std::process::Output {
    output(&["run", "--mutex", "mcs", "--", "sh", "-c", script])
}

#[test]
fn an_unknown_lock_is_refused_before_anything_runs() {
    let output = output(&["run", "--mutex", "tickt", "--", "echo", "started"]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(stdout(&output), "");
    let text = stderr(&output);
    assert!(text.contains("did you mean --mutex ticket?"), "{text}");
    registry::for_each(|entry| {
        if entry.kind == Kind::Mutex {
            assert!(text.contains(entry.info.name), "{} in {text}", entry.info.name);
        }
    });
}

#[test]
fn a_program_that_cannot_run_gives_the_usual_statuses() {
    assert_eq!(output(&["run", "--", "no-such-program"]).status.code(), Some(127));
    assert_eq!(output(&["run", "--", "/etc/passwd"]).status.code(), Some(126));
    assert_eq!(output(&["run"]).status.code(), Some(2));
    let directory = scratch("interpreter");
    let script = directory.join("script");
    fs::write(&script, "#!/no/such/interpreter\n").unwrap();
    assert!(Command::new("chmod").arg("+x").arg(&script).status().unwrap().success());
    let output = output(&["run", "--", script.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(127));
    assert!(stderr(&output).contains("its interpreter /no/such/interpreter is missing"));
}

#[test]
fn exit_status_and_signals_are_the_programs_own() {
    assert_eq!(run("exit 37").status.code(), Some(37));
    assert_eq!(run("kill -TERM $$").status.signal(), Some(libc::SIGTERM));
    // The same process throughout: a signal to latchwork's id reaches the program.
    let mut child = latchwork().args(["run", "--", "sleep", "60"]).spawn().unwrap();
    while !fs::read_to_string(format!("/proc/{}/comm", child.id())).unwrap().starts_with("sleep") {
        std::thread::yield_now();
    }
    send(&child, libc::SIGINT);
    assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGINT));
}

#[test]
fn arguments_input_and_output_pass_through() {
    let odd = ["", "--runs", "a b", "$HOME", "*"];
    let output = output(&[&["run", "--", "printf", "[%s]"], &odd[..]].concat());
    assert_eq!(stdout(&output), "[][--runs][a b][$HOME][*]");
    assert_eq!(stderr(&output), "");

    let mut child = latchwork()
        .args(["run", "--rwlock", "glibc", "cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"through\0\xff").unwrap();
    assert_eq!(child.wait_with_output().unwrap().stdout, b"through\0\xff");
}

#[test]
fn signal_dispositions_and_closed_descriptors_are_handed_on() {
    // What the shell sees of ignored signals, with and without us: Rust's runtime would change SIGPIPE.
    let script = "grep -E '^Sig(Ign|Blk)' /proc/self/status; ls /proc/self/fd | wc -l";
    for before in [libc::SIG_DFL, libc::SIG_IGN] {
        let with = |mut command: Command| {
            // SAFETY: system calls that are safe between fork and exec.
            unsafe {
                command.pre_exec(move || {
                    libc::signal(libc::SIGPIPE, before);
                    // SIGINT too: `latchwork()` changes it, and a shell may have, for what it runs in the
                    // background.
                    libc::signal(libc::SIGINT, libc::SIG_IGN);
                    libc::signal(libc::SIGUSR1, libc::SIG_IGN);
                    libc::close(0);
                    Ok(())
                })
            };
            stdout(&command.output().unwrap())
        };
        let mut plain = Command::new("sh");
        plain.args(["-c", script]);
        let mut ours = latchwork();
        ours.args(["run", "--", "sh", "-c", script]);
        let text = with(plain);
        assert!(text.contains("SigIgn"), "{text}");
        assert_eq!(with(ours), text);
    }
}

#[test]
fn the_library_comes_first_and_what_was_preloaded_stays() {
    let cache = scratch("cache");
    let output = latchwork()
        .args(["run", "--mutex", "mcs", "--stats-json", "out.json", "--", "/bin/sh", "-c"])
        .arg("echo $LD_PRELOAD; echo $LATCHWORK_MUTEX $LATCHWORK_RWLOCK; echo $LATCHWORK_STATS")
        .env("XDG_CACHE_HOME", &cache)
        .env("LD_PRELOAD", "libc.so.6")
        .output()
        .unwrap();
    let text = stdout(&output);
    let mut lines = text.lines();
    let (ours, rest) = lines.next().unwrap().split_once(':').unwrap();
    assert_eq!(rest, "libc.so.6");
    assert!(ours.starts_with(cache.to_str().unwrap()) && ours.ends_with(".so"), "{ours}");
    assert!(fs::read(ours).unwrap().starts_with(b"\x7fELF"));
    assert_eq!(lines.next(), Some("mcs glibc"));
    let here = std::env::current_dir().unwrap().join("out.json");
    assert_eq!(lines.next(), Some(format!("json:{}", here.display()).as_str()));
    // The report itself is the library's business; what the shell left is cleaned up.
    let _ = fs::remove_file(here);
}

#[test]
fn without_options_both_kinds_are_replaced_by_the_recommended_locks() {
    let script = "echo $LATCHWORK_MUTEX $LATCHWORK_RWLOCK";
    assert_eq!(stdout(&output(&["run", "--", "sh", "-c", script])), "shfl bravo-2d-shfl-rw\n");
}

#[test]
fn a_file_that_statistics_cannot_be_written_to_is_refused_before_anything_runs() {
    let directory = scratch("statistics-file");
    let (link, missing) = (directory.join("link"), directory.join("missing/file"));
    std::os::unix::fs::symlink(directory.join("file"), &link).unwrap();
    for (file, why) in [(&link, "symbolic link"), (&missing, "cannot be written")] {
        let output = output(&["run", "--stats-json", file.to_str().unwrap(), "--", "echo", "started"]);
        assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(2), ""));
        assert!(
            stderr(&output).contains("--stats-json") && stderr(&output).contains(why),
            "{}",
            stderr(&output)
        );
    }
}

#[test]
fn a_program_that_gave_up_its_privileges_starts_others_with_the_library() {
    // SAFETY: cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!("SKIPPED: only root can become another user");
        return;
    }
    let home = scratch("home-of-root");
    let source = r#"
        #include <grp.h>
        #include <unistd.h>
        int main(void) {
            if (setgroups(0, 0) || setgid(65534) || setuid(65534)) return 1;
            return execl("/bin/sh", "sh", "-c", "grep -q liblatchwork /proc/self/maps && echo loaded", (char *)0);
        }"#;
    let program = compile(&home, "program", source, &[]);
    fs::set_permissions(&home, fs::Permissions::from_mode(0o700)).unwrap();
    let mut command = latchwork();
    command.args(["run", "--"]).arg(&program).env_remove("XDG_CACHE_HOME").env("HOME", &home);
    // SAFETY: a system call that is safe between fork and exec.
    unsafe {
        command.pre_exec(|| {
            libc::umask(0o077);
            Ok(())
        })
    };
    let output = command.output().unwrap();
    assert_eq!((stdout(&output).as_str(), stderr(&output).as_str()), ("loaded\n", ""));
}

#[test]
fn a_cache_that_cannot_be_used_is_passed_over() {
    let cache = scratch("no cache");
    let temporary = scratch("temporary");
    let output = latchwork()
        .args(["run", "--", "/bin/sh", "-c", "echo $LD_PRELOAD"])
        .env("XDG_CACHE_HOME", &cache)
        .env("TMPDIR", &temporary)
        .output()
        .unwrap();
    assert!(stdout(&output).starts_with(temporary.to_str().unwrap()), "{output:?}");

    let output = latchwork()
        .args(["run", "--", "echo", "started"])
        .env("LATCHWORK_PRELOAD_PATH", "/no/such/library.so")
        .output()
        .unwrap();
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(1), ""));
    assert!(stderr(&output).contains("LATCHWORK_PRELOAD_PATH=/no/such/library.so"));
}

/// Two programs with locks that a shell starts, and which of them get latchwork's.
#[test]
fn the_programs_that_get_the_locks_are_chosen_by_name() {
    let directory = scratch("chosen");
    let source = r#"
        #include <pthread.h>
        #include <stdio.h>
        #include <unistd.h>
        static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
        int main(void) {
            pthread_mutex_lock(&mutex);
            pthread_mutex_unlock(&mutex);
            printf("%d ", getpid());
            return 0;
        }"#;
    let (first, second) =
        (compile(&directory, "first", source, &[]), compile(&directory, "second", source, &[]));
    let script = format!("{} && {}", first.display(), second.display());
    let file = directory.join("statistics");
    // Which of the two, in their order, wrote statistics under its lock; and how many processes did in all.
    let served = |options: &[&str]| {
        let _ = fs::remove_file(&file);
        let output = latchwork()
            .args(["run", "--stats-json"])
            .arg(&file)
            .args(options)
            .args(["--", "sh", "-c", &script])
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        let text = fs::read_to_string(&file).unwrap_or_default();
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let printed = stdout(&output);
        let processes: Vec<i64> = printed.split_whitespace().map(|word| word.parse().unwrap()).collect();
        let [first, second] = processes[..] else { panic!("{printed}") };
        let wrote =
            |process: i64| lines.iter().any(|line| line["pid"] == process && line["mutex"]["lock"] == "shfl");
        (wrote(first), wrote(second), lines.len())
    };
    assert_eq!(served(&[]), (true, true, 2));
    assert_eq!(served(&["--only", "first"]), (true, false, 1));
    assert_eq!(served(&["--only", "f*t,nothing"]), (true, false, 1));
    assert_eq!(served(&["--only", "*s*", "--not", "seco?d"]), (true, false, 1));
    assert_eq!(served(&["--not", "first", "--not", "sh"]), (false, true, 1));
    assert_eq!(served(&["--only", "*d"]), (false, true, 1));
    assert_eq!(served(&["--only", "firs,irst,first?,?first"]), (false, false, 0));
    for wrong in ["/bin/first", ""] {
        let output = output(&["run", "--only", wrong, "--", "echo", "started"]);
        assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(2), ""), "{wrong}");
    }
}

/// What this process finds in its environment is another command's: a program under it must not get it. All names are tried that
/// the library reads.
#[test]
fn variables_of_a_command_around_this_one_do_not_count() {
    let mut names = BTreeSet::new();
    let mut directories = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("../preload/src")];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
                continue;
            }
            let source = fs::read_to_string(path).unwrap();
            let read = source.split("b\"LATCHWORK_").skip(1).filter_map(|rest| rest.split_once("=\""));
            names.extend(read.map(|(name, _)| format!("LATCHWORK_{name}")));
        }
    }
    assert!(names.contains("LATCHWORK_ONLY") && names.contains("LATCHWORK_LOCKS"), "{names:?}");
    let directory = scratch("around");
    let trace = directory.join("trace.lw");
    for words in [&["run"][..], &["check"], &["profile"], &["record", "-o", trace.to_str().unwrap()]] {
        let mut command = latchwork();
        command.args(words).args(["--", "env"]).envs(names.iter().map(|name| (name, "around")));
        let text = stdout(&command.output().unwrap());
        let stay: Vec<&str> = text.lines().filter_map(|line| line.strip_suffix("=around")).collect();
        assert_eq!(stay.iter().collect::<BTreeSet<_>>().len(), 2, "{words:?}: {stay:?}");
        assert!(
            ["LATCHWORK_NEAR", "LATCHWORK_MEMBARRIER"].iter().all(|name| stay.contains(name)),
            "{stay:?}"
        );
    }
}

/// A program that is left out must not notice the library: neither its lock nor a name that does not exist.
#[test]
fn a_program_that_is_not_chosen_is_glibcs() {
    let output = output(&["run", "--check", "--not", "grep", "--", "grep", "-c", "near", "/proc/self/maps"]);
    assert_eq!((stdout(&output).as_str(), stderr(&output).as_str()), ("0\n", ""));
}

#[test]
fn check_is_a_command_of_its_own() {
    let directory = scratch("check");
    let source = r#"
        #include <pthread.h>
        int main(void) {
            pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER, two = PTHREAD_MUTEX_INITIALIZER;
            pthread_mutex_lock(&one); pthread_mutex_lock(&two);
            pthread_mutex_unlock(&two); pthread_mutex_unlock(&one);
            pthread_mutex_lock(&two); pthread_mutex_lock(&one);
            return 5;
        }"#;
    let program = compile(&directory, "program", source, &[]);
    for arguments in [&["check"][..], &["run", "--check"], &["check", "--mutex", "glibc"]] {
        let output = latchwork().args(arguments).arg("--").arg(&program).output().unwrap();
        assert_eq!(output.status.code(), Some(5));
        assert!(stderr(&output).contains("inversion"), "{arguments:?}: {}", stderr(&output));
    }
    let within = latchwork().args(["run", "--only", "make", "--", COMMAND, "check"]).arg(&program).output();
    assert!(stderr(&within.unwrap()).contains("inversion"));
    let left_out = latchwork().args(["check", "--not", "program", "--"]).arg(&program).output().unwrap();
    assert_eq!(left_out.status.code(), Some(5));
    assert!(!stderr(&left_out).contains("inversion"), "{}", stderr(&left_out));
}

/// The status tells whether there was a mistake that is not known; what else the program has to do when it exits is done.
#[test]
fn check_fails_if_a_mistake_is_found() {
    let directory = scratch("check_fails");
    let source = r#"
        #include <pthread.h>
        #include <stdio.h>
        #include <stdlib.h>
        #include <sys/wait.h>
        #include <unistd.h>
        pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER, two = PTHREAD_MUTEX_INITIALIZER;
        __attribute__((noinline)) static void in_order(pthread_mutex_t *a, pthread_mutex_t *b) {
            pthread_mutex_lock(a); pthread_mutex_lock(b);
            pthread_mutex_unlock(b); pthread_mutex_unlock(a);
        }
        __attribute__((noinline)) static void turned(void) {
            in_order(&two, &one);
            __asm__ volatile("");
        }
        static void at_exit(void) { printf("at exit, "); }
        int main(int count, char **arguments) {
            (void)arguments;
            atexit(at_exit);
            setvbuf(stdout, NULL, _IOFBF, 1 << 16);
            in_order(&one, &two);
            if (count > 1)
                turned();
            int status, fails = count > 2;
            if (!fork())
                return 6;
            wait(&status);
            printf("child %d, ", WEXITSTATUS(status));
            return fails ? 5 : 0;
        }"#;
    let program = compile(&directory, "program", source, &["-g"]);
    let patterns = directory.join("known");
    fs::write(&patterns, "# those that are known\n\n  turn?d\n").unwrap();
    let [path, others] = [patterns.to_str().unwrap(), directory.to_str().unwrap()];
    let by = |command: &[&str], options: &[&str], arguments: &[&str]| {
        let mut run = latchwork();
        run.args(command).args(options).arg("--").arg(&program).args(arguments).output().unwrap()
    };
    let check = |options: &[&str], arguments: &[&str]| by(&["check"], options, arguments);
    let fails = ["--error-exitcode", "99"];
    let out = "at exit, child 6, at exit, ";
    for (options, arguments, status, said) in [
        (&fails[..], &[][..], 0, 0),
        (&fails, &["turned"], 99, 1),
        (&fails, &["turned", "fails"], 99, 1),
        (&[], &["turned", "fails"], 5, 1),
        (&[fails[0], fails[1], "--ignore", path], &["turned", "fails"], 5, 0),
        (&["--ignore", path], &["turned"], 0, 0),
    ] {
        for output in [check(options, arguments), by(&["run", "--check"], options, arguments)] {
            let shown = format!("{options:?} {arguments:?}: {output:?}");
            assert_eq!(output.status.code(), Some(status), "{shown}");
            assert_eq!(stderr(&output).matches("inversion").count(), said, "{shown}");
            assert_eq!(stdout(&output), out, "{shown}");
        }
    }
    let without = by(&["run"], &["--ignore", path], &[]);
    assert_eq!(without.status.code(), Some(2), "{without:?}");
    assert!(stderr(&without).contains("--ignore needs --check"), "{without:?}");
    // The same as JSON: a line for each mistake that is not left out.
    let file = directory.join("mistakes.json");
    let json = file.to_str().unwrap();
    check(&["--json", json, "--ignore", path], &["turned"]);
    assert_eq!(fs::read_to_string(&file).unwrap(), "");
    for lines in 1..3 {
        let said = stderr(&check(&["--json", json], &["turned"]));
        assert!(said.contains("inversion") && said.contains(" (two, program+0x"), "{said}");
        let text = fs::read_to_string(&file).unwrap();
        assert_eq!(text.lines().count(), lines, "{text}");
        let last: serde_json::Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
        assert!(last["mistake"] == "lock-order inversion" && last["pid"].is_u64(), "{last:#}");
        let parts = last["parts"].as_array().unwrap();
        let does = |part: &serde_json::Value| part["does"].as_str().map(str::to_owned);
        let what: Vec<_> = parts.iter().filter_map(does).collect();
        assert_eq!(what, ["holds", "takes", "held before", "took before"], "{last:#}");
        assert!(parts[0]["lock"] == parts[3]["lock"] && parts[1]["lock"] == parts[2]["lock"], "{last:#}");
        assert!(parts[0]["variable"] == "two" && parts[1]["variable"] == "one", "{last:#}");
        assert!(parts[0]["object"].as_str().unwrap().ends_with("/program"), "{last:#}");
        assert!(parts[0]["offset"].as_str().unwrap().starts_with("0x"), "{last:#}");
        let frame = &parts[1]["stack"][0];
        assert!(frame["function"] == "in_order" && frame["line"].is_u64(), "{last:#}");
        assert!(frame["object"].as_str().unwrap().ends_with("/program"), "{last:#}");
    }
    // Patterns that match nothing, or the file of the program.
    for (text, status) in [("turn\nprogra\n#program\n", 99), ("*gram", 0), ("", 99)] {
        fs::write(&patterns, text).unwrap();
        let output = check(&[fails[0], fails[1], "--ignore", path], &["turned"]);
        assert_eq!(output.status.code(), Some(status), "{text:?}: {output:?}");
    }
    for (options, why) in [
        (&["--error-exitcode", "0"][..], "0 is not in 1..=255"),
        (&["--error-exitcode", "256"], "256 is not in 1..=255"),
        (&["--json", "/nowhere/mistakes"], "--json /nowhere/mistakes: cannot be written"),
        (&["--json", "-"], "name a file"),
        (&["--ignore", "/nowhere/known"], "--ignore /nowhere/known: No such file"),
        (&["--ignore", others], "Is a directory"),
        (&["--ignore", "/dev/zero"], "longer than 4 MiB"),
        (&["--config", "/dev/zero"], "longer than 4 MiB"),
        (&["--error-exitcode", "-1"], "-1 is not in 1..=255"),
    ] {
        let output = check(options, &[]);
        assert_eq!(output.status.code(), Some(2), "{options:?}: {output:?}");
        assert!(stderr(&output).contains(why), "{options:?}: {output:?}");
    }
    // A pipe can be read only once. An empty file leaves nothing out.
    let command = "echo turn | \"$@\" check --ignore /dev/stdin -- true";
    let output =
        Command::new("sh").args(["-c", command, "sh"]).arg(latchwork().get_program()).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(stderr(&output).contains("--ignore /dev/stdin: is no regular file"), "{output:?}");
    let output = check(&["--ignore", "/dev/null"], &["turned"]);
    assert!(stderr(&output).contains("lock-order inversion"), "{output:?}");
    assert!(!stderr(&output).contains("cannot be read"), "{output:?}");
}

/// On a terminal, which a script's stderr is not.
#[test]
fn locks_for_a_thread_per_cpu_are_pointed_out() {
    let locks = ["run", "--mutex", "mcs-park", "--rwlock", "pf-q", "--", "true"];
    assert_eq!(stderr(&output(&locks)), "");
    let (mut master, mut slave) = (0, 0);
    let null = std::ptr::null_mut();
    // SAFETY: room for both descriptors; the other arguments are not asked for.
    assert_eq!(unsafe { libc::openpty(&mut master, &mut slave, null, null.cast(), null.cast()) }, 0);
    // SAFETY: nothing else has these descriptors.
    let [master, slave] = [master, slave].map(|file| unsafe { OwnedFd::from_raw_fd(file) });
    let mut command = latchwork();
    assert!(command.args(locks).stderr(slave).status().unwrap().success());
    drop(command);
    let mut text = Vec::new();
    // The end of a terminal that no process has open is an error.
    let _ = fs::File::from(master).read_to_end(&mut text);
    let text = String::from_utf8_lossy(&text);
    for why in ["mcs-park goes to its waiters in their order", "waiters of pf-q only spin"] {
        assert!(text.contains(why), "{text}");
    }
}

/// A program may do with a small stack. This command then has to do with it, too, and the program gets the same limit.
#[test]
fn a_small_stack_is_enough() {
    let directory = scratch("run-stack");
    for words in [
        &["run", "--"][..],
        &["run", "--mutex", "mcs", "--"],
        &["check", "--"],
        &["profile", "-o", "report.html", "--"],
        &["record", "--"],
        &["compare", "--settle", "0", "--runs", "1", "--mutex", "mcs"],
        &["list"],
    ] {
        let mut command = latchwork();
        command.args(words).current_dir(&directory);
        if words.last() == Some(&"--") {
            command.args(["sh", "-c", "test $(ulimit -s) = 64"]);
        }
        limit(&mut command, libc::RLIMIT_STACK, 64 << 10);
        let output = command.output().unwrap();
        let expected = i32::from(words[0] == "record");
        assert_eq!(
            output.status.code(),
            Some(expected),
            "{words:?}: {:?} {}",
            output.status,
            stderr(&output)
        );
    }
}

/// Where the cache cannot be used, the library goes to the temporary directory: not to the present one, nor to one that is made for
/// it or that others may replace.
#[test]
fn the_temporary_directory_is_one_that_is_there() {
    let directory = scratch("run-tmpdir");
    let open = directory.join("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
    let missing = directory.join("missing");
    let below = open.join("new");
    for (temporary, status) in [("", 0), (missing.to_str().unwrap(), 1), (below.to_str().unwrap(), 1)] {
        for cache in ["/proc", below.to_str().unwrap()] {
            let mut command = latchwork();
            command.args(["run", "--", "true"]).current_dir(&directory);
            let output = command.env("TMPDIR", temporary).env("XDG_CACHE_HOME", cache).output().unwrap();
            assert_eq!(output.status.code(), Some(status), "{temporary:?}: {}", stderr(&output));
            assert_eq!(fs::read_dir(&directory).unwrap().count(), 1, "{temporary:?}");
            assert_eq!(fs::read_dir(&open).unwrap().count(), 0, "{temporary:?}");
        }
    }
    let mut command = latchwork();
    let output = command.args(["profile", "--", "true"]).env("TMPDIR", "").output().unwrap();
    assert!(!stderr(&output).contains("TMPDIR"), "{}", stderr(&output));
}
