//! What other tools see of the library: gdb, `latchwork check`, probes, valgrind.

use super::*;

const GDB: &str = "share/latchwork/latchwork-gdb.py";

/// Stops the program where its state is known, and runs commands of gdb. `None`: there is no gdb, or it may trace nothing here.
fn in_gdb(debug: bool, commands: &[&str]) -> Option<String> {
    if !is_there("gdb") || !is_there("gcc") {
        return None;
    }
    let define = format!("-DLW_DEBUG={}", u8::from(debug));
    let more = ["-g", "-O1", &*define];
    let program =
        Build { compiler: "gcc", standard: "gnu11", source: "stopped.c", link: Link::Shared, more: &more }
            .build();
    let script = format!("source {}", prefix().join(GDB).display());
    let mut gdb = Command::new("gdb");
    gdb.args(["-nx", "-batch", "-ex", &script, "-ex", "set startup-with-shell off"]);
    // A job that is suspended and continued must not stop in gdb.
    gdb.args(["-ex", "handle SIGCONT nostop noprint pass", "-ex", "break stopped", "-ex", "run"]);
    for command in commands {
        gdb.args(["-ex", &format!("echo == {command}\\n"), "-ex", command]);
    }
    let text = run(gdb.arg("-ex").arg("kill").arg(program));
    if !text.contains("hit Breakpoint") {
        // A container may forbid tracing.
        let forbidden = ["ptrace", "not permitted"].iter().any(|word| text.contains(word));
        assert!(forbidden, "gdb did not stop the program:\n{text}");
        eprintln!("SKIPPED: gdb: it may trace no program here:\n{text}");
        return None;
    }
    Some(text)
}

/// What gdb printed after a command.
fn after<'a>(text: &'a str, command: &str) -> &'a str {
    let (_, rest) =
        text.split_once(&format!("== {command}\n")).unwrap_or_else(|| panic!("{command}:\n{text}"));
    rest.split("\n== ").next().expect("the first part")
}

#[test]
fn gdb_shows_locks_and_readers() {
    let commands = [
        "print table_lock",
        "print routes",
        "latchwork waiters table_lock",
        "latchwork waiters &routes",
        "latchwork readers",
        "latchwork held",
    ];
    for debug in [false, true] {
        let Some(text) = in_gdb(debug, &commands) else { return };
        let find = |command, words: &[&str]| {
            let found = after(&text, command);
            for word in words {
                assert!(found.contains(word), "{command} does not say {word:?}:\n{text}");
            }
        };
        find("print table_lock", &["\"the table\"", "locked", "2 waiting: thread 4 ", "thread 5 "]);
        find("print routes", &["locked"]);
        find("latchwork waiters table_lock", &["thread 4 ", "thread 5 ", "waits (mutex)", "  2 waiting"]);
        find("latchwork waiters &routes", &["lock \"routes\"", "  0 waiting"]);
        find(
            "latchwork readers",
            &["reads (rcu), 2 nested, for 1 steps", "reads (epoch), 1 nested", "2 sections"],
        );
        find("latchwork held", &["thread 4 ", "waits for \"the table\""]);
        let readers = after(&text, "latchwork readers");
        assert!(readers.find("(rcu)") < readers.find("(epoch)"), "the oldest first:\n{readers}");
        if debug {
            find("print table_lock", &["held by thread 1 "]);
            find("print routes", &["read by thread 3 "]);
            find("latchwork waiters table_lock", &["thread 1 (LWP", "holds it"]);
            find("latchwork waiters &routes", &["thread 3 (LWP", "reads it"]);
            find("latchwork held", &["holds \"the table\"", "reads \"routes\""]);
        } else {
            find("latchwork waiters table_lock", &["holder: not known"]);
        }
    }
}

/// The programs pass with the calls in place of the inline paths, too.
#[test]
fn programs_with_debug_calls() {
    if is_there("gcc") {
        let more = &["-DLW_DEBUG=1"];
        Build { compiler: "gcc", standard: "c11", source: "locks.c", link: Link::Shared, more }.run();
    }
    if is_there("g++") {
        let more = &["-DLW_DEBUG=1", "-fsanitize=thread"];
        Build { compiler: "g++", standard: "c++17", source: "drop_in.cpp", link: Link::Static, more }.run();
    }
}

#[test]
fn the_probes_are_in_the_library() {
    let notes = run(Command::new("readelf").arg("--notes").arg(prefix().join("lib/liblatchwork.so")));
    for probe in ["wait_begin", "wait_end", "synchronize_begin", "synchronize_end"] {
        let (_, rest) =
            notes.split_once(&format!("Name: {probe}\n")).unwrap_or_else(|| panic!("{probe}:\n{notes}"));
        let arguments = if cfg!(target_arch = "x86_64") { "8@%rax 4@%edx" } else { "8@x0 4@x1" };
        assert!(rest.lines().take(2).any(|line| line.contains(arguments)), "{probe}:\n{notes}");
    }
}

/// With `LW_VALGRIND`, helgrind knows what happens before what; without it, it reports races.
#[test]
fn helgrind_understands_the_locks() {
    let header = Path::new("/usr/include/valgrind/helgrind.h");
    if !is_there("valgrind") || !is_there("gcc") || !header.exists() {
        return;
    }
    let races = |annotated| {
        let define = format!("-DLW_VALGRIND={annotated}");
        let more = ["-O1", &*define];
        let program = Build {
            compiler: "gcc",
            standard: "gnu11",
            source: "helgrind.c",
            link: Link::Shared,
            more: &more,
        };
        let mut valgrind = Command::new("valgrind");
        let supp = format!("--suppressions={}", prefix().join("share/latchwork/latchwork.supp").display());
        valgrind.args(["--tool=helgrind", "--error-exitcode=9", &supp]);
        let result = output(valgrind.arg(program.build()));
        let text = String::from_utf8_lossy(&result.stderr).into_owned();
        assert!(matches!(result.status.code(), Some(0 | 9)), "{text}");
        (result.status.code() == Some(9), text)
    };
    let (found, text) = races(1);
    assert!(!found, "{text}");
    assert!(races(0).0, "helgrind finds nothing in a program without the requests: it looks at nothing");
}

/// The event loops of `docs/c.md`: each block of the page that waits for events is compiled as it stands there, and run.
#[test]
fn the_event_loops_of_the_documentation_run() {
    if !is_there("gcc") {
        return;
    }
    let page = fs::read_to_string(manifest().join("../../docs/c.md")).unwrap();
    let blocks = page.split("```c\n").skip(1).map(|rest| rest.split("```").next().expect("the first part"));
    let mut loops = 0;
    for block in blocks.filter(|block| block.contains("_wait(")) {
        loops += 1;
        let uring = block.contains("io_uring");
        let name = if uring { "io_uring" } else { "epoll" };
        let header = output(Command::new("gcc").args(["-E", "-include", "liburing.h", "-xc", "/dev/null"]));
        if uring && !header.status.success() {
            eprintln!("SKIPPED: the loop over io_uring: there is no liburing.h (Debian: liburing-dev)");
            continue;
        }
        let file = scratch().join(format!("{name}.loop"));
        fs::write(&file, block).unwrap();
        let define = format!("-DLOOP=<{}>", file.display());
        let more: &[&str] =
            if uring { &[&define, "-DWITH_URING", "-Wl,--no-as-needed", "-luring"] } else { &[&define] };
        let build =
            Build { compiler: "gcc", standard: "gnu11", source: "event_loop.c", link: Link::Shared, more };
        let text = run_program(&build.build(), &[]);
        eprint!("{name}: {text}");
    }
    assert_eq!(loops, 2);
}
