//! Programs and systems that a preloaded library gets on with badly: raised privileges, all thread-specific keys
//! taken, sanitizers, filters of system calls, libraries that bind past it, profilers.

use super::*;
use std::fs::File;
use std::io::{self, Read};
use std::time::{Duration, Instant};
use std::{os::fd::AsRawFd, process::Stdio};

/// A path that leads elsewhere may be another user's trap: statistics follow no symbolic link.
#[test]
fn statistics_follow_no_link() {
    let Some(program) = compile("foreign.c", "statistics_link", &[]) else { return };
    let (file, link) = (scratch().join("statistics-target"), scratch().join("statistics-link"));
    for path in [&file, &link] {
        let _ = fs::remove_file(path);
    }
    fs::write(&file, "").unwrap();
    std::os::unix::fs::symlink(&file, &link).unwrap();
    let mut setting = Setting::new(default_mutex(), "glibc");
    setting.stats = Some(format!("json:{}", link.display()));
    let stderr = String::from_utf8(setting.check(&program).stderr).unwrap();
    assert!(stderr.contains("statistics-link") && stderr.contains("symbolic link"), "{stderr}");
    assert_eq!(fs::read_to_string(&file).unwrap(), "");
}

/// A program with raised privileges (set-group-id here) does nothing that the caller's environment asks for.
#[test]
fn privileged_programs_ignore_the_environment() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
    let directory = library().parent().unwrap().display().to_string();
    let link = [format!("-L{directory}"), format!("-Wl,-rpath,{directory},--no-as-needed")];
    let link = [link[0].as_ref(), link[1].as_ref(), "-llatchwork_preload".as_ref()];
    let Some(program) = compile("secure.c", "secure", &link) else { return };
    let mut groups = [0; 64];
    // SAFETY: room for as many numbers as are asked for.
    let count = unsafe { libc::getgroups(64, groups.as_mut_ptr()) };
    let own = fs::metadata(&program).unwrap().gid();
    let groups = groups.into_iter().take(usize::try_from(count).unwrap_or(0)).chain([65534]);
    let other =
        groups.filter(|group| *group != own).find(|group| chown(&program, None, Some(*group)).is_ok());
    fs::set_permissions(&program, fs::Permissions::from_mode(0o2755)).unwrap();
    let file = scratch().join("secure.json");
    let _ = fs::remove_file(&file);
    let mut command = Command::new(&program);
    command.env("LATCHWORK_STATS", format!("json:{}", file.display()));
    let run = |command: Command| {
        let output = watch(command, "a set-group-id program");
        let [stdout, stderr] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        (output.status.code(), stdout, stderr)
    };
    command.env("LATCHWORK_MUTEX", "shfl");
    let (status, stdout, stderr) = run(command);
    if stdout == "insecure\n" {
        eprintln!(
            "SKIPPED: no other group for the program ({other:?}), or its file system is mounted nosuid"
        );
        return;
    }
    assert_eq!((status, stdout.as_str(), stderr.as_str()), (Some(0), "ok\n", ""));
    assert!(!file.exists(), "a privileged program wrote the caller's file");
    let mut command = Command::new(&program);
    command.env("LATCHWORK_MUTEX", "no-such-lock");
    assert_eq!(run(command), (Some(0), "ok\n".into(), String::new()));
}

/// A library that is loaded with `RTLD_DEEPBIND` and calls glibc's functions is named on stderr, once; one that calls
/// none of them, and one that is loaded in the usual way, are not. `dlopen` searches where the caller says.
#[test]
#[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
fn libraries_that_bind_past_us() {
    let directory = scratch().join("deep");
    fs::create_dir_all(&directory).unwrap();
    let library = |name: &str, define: &str| {
        compile("deep.c", &format!("deep/{name}"), &[define, "-DLIBRARY", "-shared", "-fPIC"].map(OsStr::new))
    };
    let (Some(plugin), Some(_)) = (library("libplugin.so", "-DLOCKS"), library("libplain.so", "-DPLAIN"))
    else {
        return;
    };
    let run_path = format!("-Wl,-rpath,{}", directory.display());
    let Some(program) = compile("deep.c", "deep/deep", &[&run_path, "-ldl"].map(OsStr::new)) else { return };
    for (mutex, rwlock, warnings) in [("glibc", "glibc", 0), ("shfl", "glibc", 1), ("glibc", "pf-t", 0)] {
        let setting = Setting::new(mutex, rwlock);
        let run = |argument: &str| {
            let mut command = Command::new(&program);
            command.arg(argument).arg(&directory).env("LD_PRELOAD", &setting.library);
            command.env("LATCHWORK_MUTEX", mutex).env("LATCHWORK_RWLOCK", rwlock);
            let output = watch(command, argument);
            let stderr = String::from_utf8(output.stderr).unwrap();
            assert!(output.status.success() && output.stdout == b"ok\n", "{argument}: {stderr}");
            stderr
        };
        for argument in ["usual", "plain"] {
            assert_eq!(run(argument), "", "{argument} under {mutex} and {rwlock}");
        }
        let stderr = run("deep");
        assert_eq!(stderr.matches("latchwork[").count(), warnings, "{stderr}");
        assert_eq!(stderr.matches(plugin.to_str().unwrap()).count(), warnings, "{stderr}");
        // What is searched for, and a namespace of its own: there the library can only say what may be.
        for argument in ["searched", "namespace"] {
            let stderr = run(argument);
            let expected = usize::from((mutex, rwlock) != ("glibc", "glibc"));
            assert_eq!(stderr.matches("libplugin.so").count(), expected, "{argument}: {stderr}");
        }
    }
}

/// Another preloaded library's `open` uses a mutex. What the first lock call in a forked child reads, it reads without that.
#[test]
fn a_preloaded_tracer_of_files() {
    let Some(program) = compile("tracer.c", "traced", &[]) else { return };
    let libraries =
        [("libtracer.so", "-DLOCKS"), ("libtracer_reads.so", "-DREADS"), ("libtracer_writes.so", "-DWRITES")];
    for (name, holds) in libraries {
        let options = [holds, "-DLIBRARY", "-shared", "-fPIC"].map(OsStr::new);
        let Some(tracer) = compile("tracer.c", name, &options) else { return };
        for (mutex, rwlock) in [("glibc", "glibc"), (default_mutex(), "bravo-2d-shfl-rw"), ("mcs", "pf-q")] {
            let directory = recorded::directory();
            let json = format!("json:{}", directory.join("statistics").display());
            for (variable, value) in [
                ("LATCHWORK_NOTHING", ""),
                ("LATCHWORK_STATS", &json),
                ("LATCHWORK_CHECK", "1"),
                ("LATCHWORK_PROFILE", directory.to_str().unwrap()),
                ("LATCHWORK_TRACE", directory.to_str().unwrap()),
            ] {
                let setting = Setting { beside: vec![tracer.clone()], ..Setting::new(mutex, rwlock) };
                let what = format!("{} with {name} and {variable}", setting.what(&program));
                let output = watch(setting.command(&program).env(variable, value), &what);
                let [stdout, stderr] =
                    [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
                assert!(stdout == "ok\n" && output.status.success(), "{what}: {}\n{stderr}", output.status);
            }
            fs::remove_dir_all(directory).unwrap();
        }
    }
}

/// An observer tries a lock where the program waits for it. Objects of glibc's behave as without.
#[test]
fn observed_objects_of_glibc() {
    let Some(program) = compile("foreign.c", "observed_foreign", &[]) else { return };
    for variable in ["LATCHWORK_PROFILE", "LATCHWORK_TRACE", "LATCHWORK_CHECK"] {
        for mutex in ["glibc", default_mutex()] {
            let directory = recorded::directory();
            let setting = Setting::new(mutex, "glibc");
            let what = format!("{} with {variable}", setting.what(&program));
            let output = watch(setting.command(&program).env(variable, &directory), &what);
            assert!(output.stdout == b"ok\n" && output.status.success(), "{what}: {}", output.status);
            fs::remove_dir_all(directory).unwrap();
        }
    }
}

/// A process whose streams are closed, and whose number 2 is a file of its own, as daemons have it: reports go to the stream that the
/// process began with.
#[test]
fn reports_go_to_no_file_of_the_program() {
    let Some(program) = compile("daemon.c", "daemon", &[]) else { return };
    let file = scratch().join("daemon-data");
    for (variable, says) in [("LATCHWORK_STATS", ": mutex ("), ("LATCHWORK_CHECK", "lock-order inversion")] {
        let mut command = Setting::new(default_mutex(), "glibc").command(&program);
        let output = watch(command.arg(&file).env(variable, "1"), variable);
        assert_eq!(fs::read_to_string(&file).unwrap(), "data\n", "{variable}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(says), "{variable}: {output:?}");
        assert!(output.status.success(), "{variable}: {}", output.status);
    }
}

/// A pipe ends for its reader when a process in the background has closed its standard error. Of a file it notices nothing:
/// reports of that process go there.
#[test]
fn a_process_in_the_background_keeps_no_pipe() {
    let Some(program) = compile("background.c", "background", &[]) else { return };
    let file = scratch().join("background-errors");
    let run = |variable: &str, stderr: Stdio| {
        let mut command = Setting::new(default_mutex(), "glibc").command(&program);
        command.env(variable, "1").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(stderr);
        let mut foreground = command.spawn().unwrap();
        let (stdin, mut stdout) = (foreground.stdin.take().unwrap(), foreground.stdout.take().unwrap());
        stdout.read_exact(&mut [0; 7]).unwrap();
        assert!(foreground.wait().unwrap().success(), "{variable}");
        // The other process goes on until the first of these is closed, and has ended when the second one ends.
        (stdin, stdout)
    };
    for variable in ["LATCHWORK_STATS", "LATCHWORK_CHECK"] {
        let (mut reader, writer) = io::pipe().unwrap();
        let background = run(variable, writer.into());
        let mut poll = libc::pollfd { fd: reader.as_raw_fd(), events: 0, revents: 0 };
        // A child that another test has just forked keeps the pipe until it executes its program.
        // SAFETY: the structure is valid for the call.
        assert_eq!(unsafe { libc::poll(&mut poll, 1, 60_000) }, 1, "{variable}: the pipe goes on");
        assert_eq!(reader.read_to_end(&mut Vec::new()).unwrap(), 0, "{variable}");
        drop(background);
    }
    let (stdin, mut stdout) = run("LATCHWORK_STATS", File::create(&file).unwrap().into());
    drop(stdin);
    stdout.read_to_end(&mut Vec::new()).unwrap();
    let said = fs::read_to_string(&file).unwrap();
    assert!(said.contains(": mutex ("), "{said}");
}

/// What cannot be written sends the program no signal, and statistics say it if they have a file of their own.
#[test]
fn reports_that_cannot_be_written() {
    use std::os::unix::process::CommandExt;
    let Some(program) = compile("unread.c", "unread_limited", &[]) else { return };
    let (reports, json) = (scratch().join("unread-reports"), scratch().join("unread.json"));
    let to_json = format!("json:{}", json.display());
    let run = |variable: &str, value: &str, stderr: Stdio, limit: Option<u64>| {
        let mut command = Setting::new(default_mutex(), "glibc").command(&program);
        command.arg("").env(variable, value).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(stderr);
        let set = move || match limit {
            Some(bytes) => {
                let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
                // SAFETY: the structure is valid for the call.
                let result = unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &limit) };
                (result == 0).then_some(()).ok_or_else(io::Error::last_os_error)
            }
            None => Ok(()),
        };
        // SAFETY: a system call that is safe between fork and exec.
        let output = unsafe { command.pre_exec(set) }.spawn().unwrap().wait_with_output().unwrap();
        assert!(output.status.success() && output.stdout == b"ok\n", "{variable}={value}: {output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    for variable in ["LATCHWORK_CHECK", "LATCHWORK_STATS"] {
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        run(variable, "1", writer.into(), None);
        run(variable, "1", File::create(&reports).unwrap().into(), Some(0));
        assert_eq!(fs::metadata(&reports).unwrap().len(), 0);
    }
    fs::write(&json, "").unwrap();
    let said = run("LATCHWORK_STATS", "json:/dev/full", Stdio::piped(), None);
    assert!(said.contains("/dev/full: there is no room"), "{said}");
    for lines in 0..2 {
        // No part of a line is left, for which there would be room.
        let before = fs::read_to_string(&json).unwrap();
        assert_eq!(before.lines().filter(|line| line.ends_with("}}")).count(), lines, "{before}");
        let said = run("LATCHWORK_STATS", &to_json, Stdio::piped(), Some(before.len() as u64 + 50));
        assert!(said.contains("unread.json: the limit on the size of files"), "{said}");
        assert_eq!(fs::read_to_string(&json).unwrap(), before);
        assert_eq!(run("LATCHWORK_STATS", &to_json, Stdio::piped(), None), "");
    }
}

/// A report that is longer than there is room in the pipe is written to its end, although the pipe does not block, or a signal
/// handler runs meanwhile.
#[test]
fn reports_into_a_full_pipe() {
    const ROOM: libc::c_int = 4096;
    let Some(program) = compile("unread.c", "unread", &[]) else { return };
    let command = |how: &str| {
        let mut command = Setting::new(default_mutex(), "glibc").command(&program);
        command.arg(how).env("LATCHWORK_CHECK", "1");
        command
    };
    let whole = String::from_utf8(watch(command(""), "unread.c").stderr).unwrap();
    assert!(whole.len() > 2 * ROOM as usize, "{whole}");
    for how in ["nonblock", "signal"] {
        let (mut reader, writer) = io::pipe().unwrap();
        // SAFETY: the descriptor is open.
        assert!(unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_SETPIPE_SZ, ROOM) } == ROOM);
        let mut child = command(how).stdout(Stdio::piped()).stderr(writer).spawn().unwrap();
        let begin = Instant::now();
        let mut filled = 0;
        while filled < ROOM {
            assert!(begin.elapsed() < WATCHDOG, "{how}: no report");
            thread::sleep(Duration::from_millis(1));
            // SAFETY: the descriptor is open, and there is room for the answer.
            unsafe { libc::ioctl(reader.as_raw_fd(), libc::FIONREAD, &mut filled) };
        }
        let mut stdout = child.stdout.take().unwrap();
        if how == "signal" {
            // SAFETY: a signal to a child that was not waited for yet.
            unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGUSR1) };
            stdout.read_exact(&mut [0]).unwrap();
        }
        let (mut report, mut rest) = (String::new(), String::new());
        reader.read_to_string(&mut report).unwrap();
        stdout.read_to_string(&mut rest).unwrap();
        assert!(child.wait().unwrap().success() && rest == "ok\n", "{how}: {rest}");
        assert_eq!(report.lines().count(), whole.lines().count(), "{how}: {report}");
    }
}

/// A thread throws the first exception of the process while another one loads a library, and waits for the former.
#[test]
fn an_exception_while_a_library_is_loaded() {
    let options = ["-DLIBRARY", "-shared", "-fPIC"].map(OsStr::new);
    let Some(loaded) = compile("loading.cpp", "libloading.so", &options) else { return };
    let Some(program) = compile("loading.cpp", "loading", &["-rdynamic"].map(OsStr::new)) else { return };
    for (mutex, rwlock) in [("glibc", "glibc"), ("shfl", "bravo-2d-shfl-rw")] {
        let setting = Setting::new(mutex, rwlock);
        let output = watch(setting.command(&program).arg(&loaded), &setting.what(&program));
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(String::from_utf8_lossy(&output.stdout), "ok\n", "{}: {stderr}", setting.what(&program));
    }
}

/// A thread reports a mistake while another one loads a library, and waits for the former.
#[test]
fn a_report_while_a_library_is_loaded() {
    let options = ["-DLIBRARY", "-shared", "-fPIC"].map(OsStr::new);
    let Some(loaded) = compile("loading.cpp", "libloading_checked.so", &options) else { return };
    let Some(program) = compile("loading.cpp", "loading_checked", &["-rdynamic"].map(OsStr::new)) else {
        return;
    };
    for (mutex, rwlock) in [("glibc", "glibc"), ("shfl", "bravo-2d-shfl-rw")] {
        let setting = Setting::new(mutex, rwlock);
        let what = setting.what(&program);
        let mut command = setting.command(&program);
        let output = watch(command.arg(&loaded).arg("report").env("LATCHWORK_CHECK", "1"), &what);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(String::from_utf8_lossy(&output.stdout), "ok\n", "{what}: {stderr}");
        assert!(
            stderr.contains("lock-order inversion") && stderr.contains("loading.cpp:"),
            "{what}: {stderr}"
        );
    }
}

/// An observer refuses what the lock below refuses.
#[test]
fn invalid_arguments_while_observed() {
    let Some(program) = compile("invalid.c", "invalid", &[]) else { return };
    let directory = recorded::directory();
    for (mutex, rwlock) in [("glibc", "glibc"), (default_mutex(), "bravo-2d-shfl-rw"), ("mcs", "pf-t")] {
        for (variable, value) in [
            ("LATCHWORK_NOTHING", OsStr::new("")),
            ("LATCHWORK_CHECK", OsStr::new("1")),
            ("LATCHWORK_PROFILE", directory.as_os_str()),
            ("LATCHWORK_TRACE", directory.as_os_str()),
        ] {
            let setting = Setting::new(mutex, rwlock);
            let what = format!("{} with {variable}", setting.what(&program));
            let output = watch(setting.command(&program).env(variable, value), &what);
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert_eq!(String::from_utf8_lossy(&output.stdout), "ok\n", "{what}: {stderr}");
        }
    }
    fs::remove_dir_all(directory).unwrap();
}

/// A signal handler that uses a lock needs hardly more stack while the lock is recorded.
#[test]
fn signal_handlers_on_small_stacks() {
    let Some(program) = compile("alternate.c", "alternate", &[]) else { return };
    let directory = recorded::directory();
    for mutex in ["glibc", default_mutex()] {
        let works = |size: usize, variable: &str| {
            let setting = Setting::new(mutex, "glibc");
            let mut command = setting.command(&program);
            command.arg(size.to_string()).env(variable, &directory).env("LD_BIND_NOW", "1");
            watch(command, &setting.what(&program)).stdout == b"ok\n"
        };
        let least = (2048..65536).step_by(512).find(|size| works(*size, "LATCHWORK_NOTHING")).unwrap();
        for variable in ["LATCHWORK_PROFILE", "LATCHWORK_TRACE"] {
            assert!(
                works(least + 2048, variable),
                "{variable} under {mutex}: {least} bytes are enough without"
            );
        }
    }
    fs::remove_dir_all(directory).unwrap();
}

/// What `LATCHWORK_CHECK=1` must not do: end a thread, name an inversion that is none, miss one because there were many locks, or
/// trust the words of the program's stack.
#[test]
fn reports_leave_cancellation_and_new_locks_alone() {
    let Some(program) = compile("reports.cpp", "reports", &[]) else { return };
    for (mutex, rwlock) in [("glibc", "glibc"), (default_mutex(), "bravo-2d-shfl-rw"), ("mcs", "pf-t")] {
        for (what, reports) in [
            ("locals", 0..=0),
            ("lives", 1..=1),
            ("foreign", 0..=0),
            ("overwritten", 1..=1),
            ("pending", 2..=2),
            ("asynchronous", 1..=100),
        ] {
            let mut command = Command::new(&program);
            command.arg(what).env("LD_PRELOAD", library()).env("LATCHWORK_CHECK", "1");
            command.env("LATCHWORK_MUTEX", mutex).env("LATCHWORK_RWLOCK", rwlock);
            let output = watch(command, &format!("{what} under {mutex} and {rwlock}"));
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() && output.stdout == b"ok\n", "{what} under {mutex}: {stderr}");
            let found = stderr.matches("latchwork[").count();
            assert!(reports.contains(&found), "{what} under {mutex}: {stderr}");
        }
    }
}

/// Beside a library whose clock is not the kernel's, or whose clock takes locks, lock calls wait as long as they should.
#[test]
fn another_clock_preloaded_beside_us() {
    let options = ["-DLIBRARY", "-shared", "-fPIC"].map(OsStr::new);
    let Some(shifted) = compile("clock.c", "libclock.so", &options) else { return };
    let Some(program) = compile("clock.c", "clock", &[]) else { return };
    for how in ["ahead", "behind", "jumps", "locks"] {
        let settings = [
            ("glibc", "glibc"),
            ("shfl", "bravo-2d-shfl-rw"),
            ("mcs", "pf-t"),
            ("ticket", "bravo-2d-glibc"),
            ("mcs-park", "bravo-glibc"),
            ("hybrid", "rwsem"),
        ]
        .map(|(mutex, rwlock)| Setting { beside: vec![shifted.clone()], ..Setting::new(mutex, rwlock) });
        for_each_setting(&settings, AT_ONCE, |setting| {
            let what = format!("{how}: {}", setting.what(&program));
            let output = watch(setting.command(&program).env("CLOCK", how), &what);
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert!(
                output.status.success() && output.stdout == b"ok\n",
                "{what}: {}\n{stderr}",
                output.status
            );
        });
    }
}

/// What the library calls of another one, while it sets the process up, may take locks.
#[test]
#[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
fn locks_of_another_library_during_set_up() {
    let versions = format!("-Wl,--version-script={}", manifest().join("versions.map").display());
    let options = ["-DLIBRARY", "-shared", "-fPIC", &versions].map(OsStr::new);
    let Some(counting) = compile("setup.c", "libsetup.so", &options) else { return };
    let Some(program) = compile("setup.c", "setup", &[]) else { return };
    for (mutex, rwlock) in [
        ("glibc", "glibc"),
        ("shfl", "glibc"),
        ("mcs", "pf-t"),
        ("glibc", "bravo-2d-glibc"),
        ("shfl", "bravo-2d-shfl-rw"),
    ] {
        Setting { beside: vec![counting.clone()], ..Setting::new(mutex, rwlock) }.check(&program);
    }
}

/// A program gets as many keys, and the same numbers, as without the library, before and after its first locks.
#[test]
fn all_keys_are_the_programs() {
    let Some(program) = compile("keys.c", "keys", &[]) else { return };
    for (mutex, rwlock) in
        [("glibc", "glibc"), ("shfl", "bravo-2d-shfl-rw"), ("mcs", "glibc"), ("clh", "pf-q")]
    {
        let setting = Setting::new(mutex, rwlock);
        for arguments in [&[][..], &["after-locks"]] {
            let mut command = Command::new(&program);
            command.args(arguments).env("LD_PRELOAD", &setting.library);
            command.env("LATCHWORK_MUTEX", mutex).env("LATCHWORK_RWLOCK", rwlock);
            let output = watch(command, &format!("keys.c under {mutex} and {rwlock}"));
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert!(
                output.status.success() && output.stdout == b"ok\n",
                "under {mutex} and {rwlock}: {stderr}"
            );
        }
    }
}

/// From each instruction of the copies near the program the stack can be unwound; `LATCHWORK_NEAR=0` makes none; what
/// cannot be made read-only again is said.
#[test]
#[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
fn the_page_near_the_program() {
    let Some(program) = compile("unwind.c", "unwind", &[]) else { return };
    // While a program is recorded there is no such page.
    let favourites = Setting { profiled: false, ..Setting::new("shfl", "bravo-2d-shfl-rw") };
    favourites.check(&program);
    let mut command = Command::new(&program);
    command.arg("far").env("LD_PRELOAD", &favourites.library).env("LATCHWORK_NEAR", "0");
    command.env("LATCHWORK_MUTEX", favourites.mutex).env("LATCHWORK_RWLOCK", favourites.rwlock);
    let output = watch(command, "unwind.c with LATCHWORK_NEAR=0");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));

    let protects = ["-DPROTECTS", "-shared", "-fPIC"].map(OsStr::new);
    let protects = compile("near.c", "libprotects.so", &protects);
    let near = compile("near.c", "near_unprotected", &["-DNEAR", "-Wl,-z,relro,-z,now"].map(OsStr::new));
    let (Some(protects), Some(near)) = (protects, near) else { return };
    let behind = Setting { library: protects, beside: vec![favourites.library.clone()], ..favourites };
    let stderr = String::from_utf8(behind.run(&near).stderr).unwrap();
    assert!(stderr.contains("stays writable") && stderr.lines().count() == 1, "{stderr}");
}

/// A filter that kills for `membarrier`, or refuses it: from the start, or installed by the program, where the library
/// has to be told.
#[test]
fn filters_of_system_calls() {
    let Some(program) = compile("filter.c", "filter", &[]) else { return };
    for (mutex, rwlock) in [("glibc", "glibc"), ("shfl", "bravo-2d-shfl-rw"), ("mcs-park", "bravo-pf-q")] {
        for (action, when, told) in [
            ("kill", "before", false),
            ("refuse", "before", false),
            ("kill", "after", true),
            ("refuse", "after", true),
            ("refuse", "after", false),
        ] {
            let mut command = Command::new(&program);
            command.args([action, when]).env("LD_PRELOAD", library());
            command.env("LATCHWORK_MUTEX", mutex).env("LATCHWORK_RWLOCK", rwlock);
            if told {
                command.env("LATCHWORK_MEMBARRIER", "0");
            }
            let what = format!("filter.c {action} {when} under {mutex} and {rwlock}");
            let output = watch(command, &what);
            if filtered(output, &what).is_none() {
                return;
            }
        }
    }
}

/// The library serves a program whose own functions run before the C library is initialised.
#[test]
fn calls_before_the_environment_is_known() {
    let library = compile("early.c", "libearly_first.so", &["-DLIBRARY", "-shared", "-fPIC"].map(OsStr::new));
    let Some(library) = library else { return };
    let Some(program) = compile("early.c", "early_first", &[library.as_os_str(), OsStr::new("-DFIRST")])
    else {
        return;
    };
    Setting::new("glibc", "glibc").check(&program);
    let mut setting = Setting::new(default_mutex(), "bravo-2d-shfl-rw");
    setting.check(&program);
    setting.stats = Some("1".into());
    let stats = String::from_utf8(setting.check(&program).stderr).unwrap();
    assert!(stats.contains(&format!("mutex ({}): ", default_mutex())), "{stats}");
}

/// Behind a sanitizer's runtime, which wants to come first, the library serves the program, and the sanitizer finds what
/// there is and nothing else.
#[test]
fn sanitizers() {
    for (sanitizer, runtime, finding) in
        [("address", "libasan.so", "heap-use-after-free"), ("thread", "libtsan.so", "heap-use-after-free")]
    {
        let Some(found) = runtime_library(runtime) else {
            assert!(env::var_os("CI").is_none(), "CI must have {runtime}");
            eprintln!("SKIPPED: no {runtime}; it comes with gcc");
            continue;
        };
        let option = format!("-fsanitize={sanitizer}");
        let Some(program) = compile("sanitized.c", &format!("sanitized_{sanitizer}"), &[option.as_ref()])
        else {
            return;
        };
        for (mutex, rwlock) in [("glibc", "glibc"), ("shfl", "bravo-2d-shfl-rw"), ("mcs", "pf-t")] {
            let run = |mistake: bool| {
                let mut preload = found.as_os_str().to_owned();
                preload.push(":");
                preload.push(library());
                let mut command = Command::new(&program);
                command.args(mistake.then_some("mistake")).env("LD_PRELOAD", preload);
                command
                    .env("LATCHWORK_MUTEX", mutex)
                    .env("LATCHWORK_RWLOCK", rwlock)
                    .env("LATCHWORK_STATS", "1");
                let output = watch(command, &format!("{sanitizer} under {mutex} and {rwlock}"));
                let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
                (output.status.success() && output.stdout == b"ok\n", stderr)
            };
            let (good, stderr) = run(false);
            assert!(
                good && !stderr.contains("Sanitizer"),
                "{sanitizer} under {mutex} and {rwlock}: {stderr}"
            );
            let served = mutex == "glibc" || stderr.contains(&format!("mutex ({mutex}): "));
            assert!(served, "{sanitizer}: {stderr}");
            let (good, stderr) = run(true);
            assert!(!good && stderr.contains(finding), "{sanitizer} under {mutex} and {rwlock}: {stderr}");
        }
    }
}

/// The file that a program is linked with, by the name under which it is loaded.
fn runtime_library(name: &str) -> Option<PathBuf> {
    let output = Command::new("cc").arg(format!("-print-file-name={name}")).output().ok()?;
    let path = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim());
    path.is_absolute().then(|| path.canonicalize().ok()).flatten()
}

/// A child leaves objects alone that lie in memory which it shares with its parent, under locks that lie in the object.
#[test]
fn private_objects_in_shared_memory() {
    let Some(program) = compile("mapped.c", "mapped", &[]) else { return };
    for (mutex, rwlock) in [
        ("glibc", "glibc"),
        ("shfl", "bravo-2d-shfl-rw"),
        ("mcs", "pf-q"),
        ("ttas", "rwsem"),
        ("clh", "shfl-rw"),
    ] {
        Setting::new(mutex, rwlock).check(&program);
    }
}
