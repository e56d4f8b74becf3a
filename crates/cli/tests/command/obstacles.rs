//! Programs that the library cannot be loaded into: `latchwork` says beforehand what will happen, and that comes
//! true.

use crate::common::{compile, compile_with, latchwork, output, scratch, stderr, stdout};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Output;

/// Prints what is preloaded here, then in a shell.
const PARENT: &str = r#"
#include <stdio.h>
#include <stdlib.h>
int main(void) {
    const char *preload = getenv("LD_PRELOAD");
    printf("started with %s\n", preload ? preload : "nothing");
    fflush(stdout);
    return system("if grep -q liblatchwork /proc/self/maps; then echo in a child; fi");
}"#;

fn run(program: &Path) -> Output {
    output(&["run", "--", program.to_str().unwrap()])
}

fn run_with(library: &Path, program: &str) -> Output {
    latchwork()
        .args(["run", "--", program, "started"])
        .env("LATCHWORK_PRELOAD_PATH", library)
        .output()
        .unwrap()
}

fn refused(output: &Output, words: &[&str]) {
    let text = stderr(output);
    assert_eq!((output.status.code(), stdout(output).as_str()), (Some(126), ""), "{text}");
    for word in words {
        assert!(text.contains(word), "{word:?} in {text}");
    }
}

#[test]
fn a_musl_program_is_refused() {
    let directory = scratch("musl");
    let linker = "-Wl,--dynamic-linker=/lib/ld-musl-x86_64.so.1";
    let program = compile(&directory, "program", "int main(void) { return 0; }", &[linker]);
    refused(&run(&program), &["musl", "status 127", "build the program for glibc"]);
    let compared = output(&["compare", "--", program.to_str().unwrap()]);
    refused(&compared, &["musl"]);
    let script = directory.join("script");
    fs::write(&script, format!("#!{}\n", program.display())).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    refused(&run(&script), &["interpreter", "musl"]);
}

/// Where there is a musl, its dynamic linker does what is said of it.
#[test]
fn a_musl_program_would_end_with_status_127() {
    let directory = scratch("real-musl");
    let source = "int main(void) { return 0; }";
    let Some(program) = compile_with("musl-gcc", &directory, "program", source, &[]) else {
        eprintln!("SKIPPED: there is no musl-gcc (Debian's package musl-tools)");
        return;
    };
    refused(&run(&program), &["musl", "status 127"]);
    let output = std::process::Command::new(&program).env("LD_PRELOAD", carried()).output().unwrap();
    assert_eq!(output.status.code(), Some(127), "{}", stderr(&output));
}

/// The library that the command carries.
fn carried() -> PathBuf {
    stdout(&output(&["run", "--", "/bin/sh", "-c", "echo $LD_PRELOAD"])).trim().into()
}

#[test]
fn a_static_program_runs_without_the_library_and_its_children_with_it() {
    let directory = scratch("static");
    for (name, option) in [("static", "-static"), ("static-pie", "-static-pie")] {
        let program = compile(&directory, name, PARENT, &[option]);
        let output = run(&program);
        let text = stderr(&output);
        assert!(text.contains("own C library") && text.contains("statically linked"), "{text}");
        assert!(text.contains("programs that it starts do get the library"), "{text}");
        assert!(stdout(&output).ends_with("in a child\n"), "{output:?}");
    }
}

/// As the wrappers of bundled programs start them.
#[test]
fn the_dynamic_linker_as_the_program_is_no_obstacle() {
    let bytes = fs::read("/bin/sh").unwrap();
    let start = bytes.windows(4).position(|part| part == b"/ld-" || part == b"/ld6").unwrap();
    let begin = bytes[..start].iter().rposition(|byte| *byte == 0).unwrap() + 1;
    let end = start + bytes[start..].iter().position(|byte| *byte == 0).unwrap();
    let linker = std::str::from_utf8(&bytes[begin..end]).unwrap();
    let output =
        output(&["run", "--", linker, "/bin/sh", "-c", "grep -c liblatchwork_preload /proc/$$/maps"]);
    assert_eq!(stderr(&output), "", "{linker}");
    assert_ne!(stdout(&output).trim(), "0", "{linker}");
}

#[test]
fn a_setuid_program_and_its_children_run_without_the_library() {
    // SAFETY: cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!("SKIPPED: only root can make a program setuid to another user");
        return;
    }
    let directory = scratch("setuid");
    let program = compile(&directory, "program", PARENT, &[]);
    chown(&program, Some(65534), Some(65534)).unwrap();
    for (mode, words) in [(0o4755, ["setuid", "as user 65534"]), (0o2755, ["setgid", "group 65534"])] {
        fs::set_permissions(&program, fs::Permissions::from_mode(mode)).unwrap();
        assert_eq!(fs::metadata(&program).unwrap().mode() & 0o7777, mode);
        let output = run(&program);
        let text = stderr(&output);
        assert!(words.iter().all(|word| text.contains(word)), "{text}");
        assert!(text.contains("nor into the programs that it starts"), "{text}");
        assert_eq!(stdout(&output), "started with nothing\n", "{text}");
    }
}

/// Where the kernel does not raise privileges, the library is loaded, and nothing is said.
#[test]
fn a_setuid_bit_without_effect_is_no_obstacle() {
    // SAFETY: cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!("SKIPPED: only root can make a program setuid to another user");
        return;
    }
    let directory = scratch("setuid-without-effect");
    let program = compile(&directory, "program", PARENT, &[]);
    let script = directory.join("script");
    fs::write(&script, format!("#!{}\n", program.display())).unwrap();
    let set = |path: &Path, mode| {
        chown(path, Some(65534), Some(65534)).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    let expect_served = |output: Output| {
        assert_eq!(stderr(&output), "");
        assert!(stdout(&output).ends_with("in a child\n"), "{}", stdout(&output));
    };
    // Of a script; without the right to execute the file as the group; in a process that gains no privileges.
    set(&script, 0o6755);
    expect_served(run(&script));
    set(&program, 0o2745);
    expect_served(run(&program));
    set(&program, 0o6755);
    let mut command = latchwork();
    command.args(["run", "--"]).arg(&program);
    // SAFETY: a system call that is safe between fork and exec.
    unsafe {
        command.pre_exec(|| {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
            Ok(())
        })
    };
    expect_served(command.output().unwrap());
}

/// A library that asks the C library for a version that no glibc has, as ours asks an old one.
fn from_the_future(directory: &Path) -> PathBuf {
    let map = directory.join("map");
    fs::write(&map, "GLIBC_9.99 { thing; };").unwrap();
    let map = format!("-Wl,--version-script={}", map.display());
    let options = ["-shared", "-fPIC", "-nostdlib", "-Wl,-soname,libc.so.6", &map];
    let libc = compile(directory, "libc.so.6", "int thing(void) { return 1; }", &options);
    let source =
        "int thing(void); const char name[] = \"LATCHWORK_MUTEX\"; int use(void) { return thing(); }";
    compile(directory, "future.so", source, &["-shared", "-fPIC", "-nostdlib", libc.to_str().unwrap()])
}

#[test]
fn a_program_whose_glibc_is_too_old_is_refused() {
    let directory = scratch("old-glibc");
    let library = from_the_future(&directory);
    refused(
        &run_with(&library, "echo"),
        &["cannot load", "needs glibc 9.99 or newer", "version `GLIBC_9.99' not found", "Build latchwork on"],
    );
    // Without that refusal, the program would not run under glibc instead: it does not start.
    let output =
        std::process::Command::new("echo").arg("started").env("LD_PRELOAD", &library).output().unwrap();
    assert_eq!((output.status.success(), stdout(&output).as_str()), (false, ""));
}

#[test]
fn a_library_that_misses_another_library_is_refused() {
    let directory = scratch("no-libgcc");
    let needed = compile(
        &directory,
        "libneeded.so",
        "int thing(void) { return 1; }",
        &["-shared", "-Wl,-soname,libneeded.so"],
    );
    let source =
        "int thing(void); const char name[] = \"LATCHWORK_MUTEX\"; int use(void) { return thing(); }";
    let library = compile(&directory, "needs.so", source, &["-shared", "-fPIC", needed.to_str().unwrap()]);
    refused(&run_with(&library, "echo"), &["libneeded.so: cannot open shared object file"]);
}

#[test]
fn a_library_that_the_dynamic_linker_ignores_is_warned_of() {
    let directory = scratch("no-library");
    let library = directory.join("text.so");
    fs::write(&library, "no library, but for the name LATCHWORK_MUTEX").unwrap();
    let output = run_with(&library, "echo");
    assert_eq!(stdout(&output), "started\n");
    let text = stderr(&output);
    assert!(
        text.starts_with("latchwork: warning: echo runs with the locks of its own C library: "),
        "{text}"
    );
    assert!(text.contains("ignores") && text.contains("cannot be preloaded"), "{text}");
}

#[test]
fn a_program_that_cannot_run_anyway_gets_its_own_error() {
    let directory = scratch("incomplete");
    let source = "int thing(void) { return 1; }";
    let needed = compile(&directory, "libneeded.so", source, &["-shared", "-Wl,-soname,libneeded.so"]);
    let source = "int thing(void); int main(void) { return thing(); }";
    let program = compile(&directory, "program", source, &[needed.to_str().unwrap()]);
    let output = run(&program);
    assert_eq!(output.status.code(), Some(127));
    assert!(!stderr(&output).contains("latchwork:"), "{}", stderr(&output));
}

/// All commands say the same of a program that cannot be started, before they run anything.
#[test]
fn a_program_that_cannot_be_started_has_one_message_and_status() {
    let directory = scratch("cannot-start");
    let script = directory.join("script");
    fs::write(&script, "#! /nonexistent/python\r\n").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let linker = "-Wl,--dynamic-linker=/nonexistent/ld-linux.so.2";
    let program = compile(&directory, "program", "int main(void) { return 0; }", &[linker]);
    let circle = directory.join("circle");
    std::os::unix::fs::symlink("circle", &circle).unwrap();
    let below = script.join("below");
    let long = directory.join("x".repeat(300));
    for (program, status, words) in [
        (&script, 127, r"its interpreter /nonexistent/python\r is missing"),
        (&program, 127, "its dynamic linker /nonexistent/ld-linux.so.2 is missing"),
        (&circle, 126, "symbolic links"),
        (&below, 126, "Not a directory"),
        (&long, 126, "name too long"),
        (&directory.join("none"), 127, "No such file or directory"),
    ] {
        for command in ["run", "check", "profile", "record", "compare", "tune"] {
            let mut run = latchwork();
            let run = run.args([command, "--"]).arg(program).current_dir(&directory).output().unwrap();
            let text = stderr(&run);
            assert_eq!(run.status.code(), Some(status), "{command} {}: {text}", program.display());
            assert!(text.contains(words), "{command} {}: {text}", program.display());
            assert_eq!(text.lines().count(), 1, "{text}");
        }
    }
}

/// What `run` finds out beforehand is not charged to the program.
#[test]
fn the_program_starts_without_children_behind_it() {
    let output = output(&["run", "--", "cat", "/proc/self/stat"]);
    let text = stdout(&output);
    let fields: Vec<_> = text.rsplit_once(") ").unwrap().1.split(' ').collect();
    // From the third field on: minor and major faults, user and system time of children that were waited for.
    let [faults, major, user, system] = [11, 13, 16, 17].map(|field| fields[field - 3]);
    assert_eq!([faults, major, user, system], ["0"; 4], "{text}");
}

/// A shell may have started children before it became `latchwork`; the program can wait for them.
#[test]
fn children_from_before_are_the_programs_to_wait_for() {
    let directory = scratch("children");
    let source = r#"
        #include <stdio.h>
        #include <sys/wait.h>
        int main(void) {
            int status = -1;
            if (wait(&status) < 0) perror("wait");
            printf("%d\n", WEXITSTATUS(status));
            return 0;
        }"#;
    let program = compile(&directory, "program", source, &[]);
    // The child ends before, while and after the dynamic linker is asked.
    for delay in ["0", "0.005", "0.01", "0.02", "0.1"] {
        let script = format!("(sleep {delay}; exit 7) & exec \"$0\" run -- {}", program.display());
        let mut command = std::process::Command::new("sh");
        let output = command.args(["-c", &script, env!("CARGO_BIN_EXE_latchwork")]).output().unwrap();
        assert_eq!((stdout(&output).as_str(), stderr(&output).as_str()), ("7\n", ""), "{delay}");
    }
}
