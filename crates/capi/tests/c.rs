//! Installs the library as a user does, and builds and runs C and C++ programs with nothing but what is installed.
//!
//! What is not there (clang, cmake, pkg-config) is left out, with a line that begins with SKIPPED. A C and a C++ compiler
//! must be there in CI. If `LATCHWORK_THOROUGH=1` asks for it, as CI does, clang compiles what gcc compiles, C programs run
//! under each sanitizer, and C++ programs too.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use std::{env, fs, thread};

#[path = "c/clauses.rs"]
mod clauses;
#[path = "c/costs.rs"]
mod costs;
#[path = "c/full.rs"]
mod full;
#[path = "c/installed.rs"]
mod installed;
#[path = "c/man.rs"]
mod man;
#[path = "c/strict.rs"]
mod strict;
#[path = "c/tools.rs"]
mod tools;

/// How long a program may take: far longer than any takes on a busy machine.
const WATCHDOG: Duration = Duration::from_secs(300);

fn manifest() -> PathBuf {
    env!("CARGO_MANIFEST_DIR").into()
}

fn scratch() -> PathBuf {
    // Other packages' tests have files of the same names beside this folder.
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(env!("CARGO_PKG_NAME"));
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// Runs a command to its end, and fails the test if the command fails.
fn run(command: &mut Command) -> String {
    let output = output(command);
    let text =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    assert!(output.status.success(), "{command:?}: {}\n{text}", output.status);
    text
}

fn output(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

/// Whether a program is installed. Says so if not.
fn is_there(program: &str) -> bool {
    let there = Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success());
    if !there {
        assert!(
            env::var_os("CI").is_none() || !["gcc", "g++"].contains(&program),
            "apt-get install {program}"
        );
        eprintln!("SKIPPED: what needs {program}: it is not installed");
    }
    there
}

/// A program, under a watchdog.
fn run_program(program: &Path, environment: &[(&str, &OsStr)]) -> String {
    let log = program.with_extension("log");
    let out = fs::File::create(&log).expect("the directory is there");
    let mut child = Command::new(program)
        .envs(environment.iter().copied())
        .stdout(out.try_clone().expect("a file"))
        .stderr(out)
        .spawn()
        .unwrap_or_else(|error| panic!("{}: {error}", program.display()));
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("the child is ours") {
            break status;
        }
        if start.elapsed() > WATCHDOG {
            let _ = child.kill();
            panic!("{} hangs", program.display());
        }
        thread::sleep(Duration::from_millis(5));
    };
    let text = String::from_utf8_lossy(&fs::read(&log).expect("the log was written")).into_owned();
    assert!(status.success(), "{}: {status}\n{text}", program.display());
    text
}

/// The directory of an installation, made once, without the command.
fn prefix() -> &'static Path {
    static PREFIX: OnceLock<PathBuf> = OnceLock::new();
    PREFIX.get_or_init(|| {
        let prefix = scratch().join("prefix");
        let _ = fs::remove_dir_all(&prefix);
        install(&prefix, &["--library-only"]);
        prefix
    })
}

/// Runs the script in the scratch directory, with a target directory of its own: the outer cargo holds the lock of the usual one.
fn install(prefix: &Path, more: &[&str]) {
    run(Command::new(manifest().join("../../scripts/install.sh"))
        .arg("--prefix")
        .arg(prefix)
        .args(more)
        .current_dir(scratch())
        .env("CARGO_TARGET_DIR", scratch().join("library"))
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        // CC holds options, as it may.
        .env("CC", "cc -O1")
        // The script reads what cargo prints.
        .env("CARGO_TERM_COLOR", "always")
        // It builds for the host's C compiler, whatever cargo builds for by default.
        .env("CARGO_BUILD_TARGET", "no-such-target"));
}

/// What pkg-config says, or `None` without pkg-config.
fn pkg_config(arguments: &[&str]) -> Option<Vec<String>> {
    pkg_config_in(prefix(), arguments)
}

fn pkg_config_in(prefix: &Path, arguments: &[&str]) -> Option<Vec<String>> {
    if !is_there("pkg-config") {
        return None;
    }
    let text = run(Command::new("pkg-config")
        .args(arguments)
        .arg("latchwork")
        .env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig")));
    Some(text.split_whitespace().map(str::to_owned).collect())
}

const C_PROGRAMS: [&str; 7] =
    ["locks.c", "rcu.c", "rcu_list.c", "callbacks.c", "hazard.c", "map.c", "stalls.c"];

/// How a program is linked.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Link {
    Shared,
    Static,
}

/// A program of `tests/programs`, and how it is built.
struct Build<'a> {
    compiler: &'a str,
    standard: &'a str,
    source: &'a str,
    link: Link,
    more: &'a [&'a str],
}

impl Build<'_> {
    /// Compiles and links with what pkg-config says, or with the same words without it.
    fn build(&self) -> PathBuf {
        let Build { compiler, standard, source, link, more } = self;
        // Of a path, the file alone.
        let flags: String = more.iter().filter_map(|word| word.rsplit('/').next()).collect();
        let name = format!("{source}-{compiler}-{standard}-{}-{flags}", *link as u8)
            .replace(['/', '=', '.', '+', ',', ' ', '>'], "_");
        let program = scratch().join(name);
        let lib = prefix().join("lib");
        let mut command = Command::new(compiler);
        command
            .arg(format!("-std={standard}"))
            .args(["-O2", "-g1", "-Wall", "-Wextra", "-Werror", "-pthread", "-D_GNU_SOURCE"])
            .args(*more)
            // UndefinedBehaviorSanitizer would only print what it finds.
            .args(more.iter().find(|word| word.contains("undefined")).map(|_| "-fno-sanitize-recover=all"))
            .arg(manifest().join("tests/programs").join(source))
            .arg("-o")
            .arg(&program);
        match link {
            Link::Shared => {
                let flags = pkg_config(&["--cflags", "--libs"]);
                let flags = flags.unwrap_or_else(|| {
                    let include = prefix().join("include");
                    vec![
                        format!("-I{}", include.display()),
                        format!("-L{}", lib.display()),
                        "-llatchwork".into(),
                    ]
                });
                command.args(flags).arg(format!("-Wl,-rpath,{}", lib.display()));
            }
            Link::Static => {
                let private = pkg_config(&["--static", "--cflags", "--libs"]).unwrap_or_else(|| {
                    let include = prefix().join("include");
                    let names = prefix().join("share/latchwork/latchwork.names");
                    vec![
                        format!("-I{}", include.display()),
                        format!("-L{}", lib.display()),
                        format!("-Wl,--export-dynamic-symbol-list={}", names.display()),
                    ]
                });
                let archive = "-l:liblatchwork.a".to_owned();
                command.args(private.into_iter().filter(|word| word != "-llatchwork"));
                command.arg(archive).arg("-lm");
            }
        }
        run(&mut command);
        program
    }

    fn run(&self) {
        run_program(&self.build(), &[]);
    }
}

/// Configures and builds `tests/programs/cmake` with the installed files, in a new directory, which is the result.
fn cmake(name: &str, options: &[&str]) -> PathBuf {
    let build = scratch().join(name);
    let _ = fs::remove_dir_all(&build);
    run(Command::new("cmake")
        .arg("-S")
        .arg(manifest().join("tests/programs/cmake"))
        .arg("-B")
        .arg(&build)
        .arg(format!("-DCMAKE_PREFIX_PATH={}", prefix().display()))
        .args(options));
    run(Command::new("cmake").arg("--build").arg(&build).args(["--parallel", "2"]));
    build
}

/// Whether what takes long and repeats other tests was asked for. CI does.
fn thorough() -> bool {
    env::var_os("LATCHWORK_THOROUGH").is_some_and(|value| value != "0")
}

/// The compilers that are there, of a pair such as gcc and clang. The second one repeats what the first one does: it is left out
/// unless it is asked for.
fn compilers(names: [&str; 2]) -> impl Iterator<Item = &str> {
    names.into_iter().take(if thorough() { 2 } else { 1 }).filter(|name| is_there(name))
}

/// Whether a C++ compiler has the attribute by which a library refuses specialisations of its templates.
fn refuses_specialisations(compiler: &str) -> bool {
    let result = output(
        Command::new("sh")
            .args(["-c", "echo '__has_cpp_attribute(clang::no_specializations)' | \"$0\" -E -P -xc++ -"])
            .arg(compiler),
    );
    let says = String::from_utf8_lossy(&result.stdout);
    result.status.success() && !["", "0"].contains(&says.trim())
}

/// A clang++ that has this attribute: the one that `LATCHWORK_CLANGXX` names, or the newest on the path. Says so if there is
/// none.
fn newest_clang() -> Option<&'static str> {
    static FOUND: OnceLock<Option<String>> = OnceLock::new();
    let find = || {
        if let Ok(named) = env::var("LATCHWORK_CLANGXX") {
            assert!(refuses_specialisations(&named), "LATCHWORK_CLANGXX={named} is not clang++ 20 or later");
            return Some(named);
        }
        let numbered = (20..40).rev().map(|version| format!("clang++-{version}"));
        let found = numbered.chain(["clang++".to_owned()]).find(|name| refuses_specialisations(name));
        if found.is_none() {
            eprintln!(
                "SKIPPED: clause 10 and C++26: no clang++ 20 or later on the path, and LATCHWORK_CLANGXX names none"
            );
        }
        found
    };
    FOUND.get_or_init(find).as_deref()
}

#[test]
fn c_programs() {
    for compiler in compilers(["gcc", "clang"]) {
        for source in C_PROGRAMS {
            // Under sanitizers, the programs are linked with the archive.
            Build { compiler, standard: "c11", source, link: Link::Shared, more: &[] }.run();
        }
    }
}

/// A program without shared libraries, by what pkg-config says.
#[test]
fn a_static_program() {
    for compiler in compilers(["gcc", "clang"]) {
        Build { compiler, standard: "c11", source: "rcu.c", link: Link::Static, more: &["-static"] }.run();
    }
}

/// AddressSanitizer sees a callback that comes too early, ThreadSanitizer an annotation that is missing. Every day, each program
/// runs under the one that can see more in it.
#[test]
fn c_programs_under_sanitizers() {
    let threads = ["locks.c", "rcu.c", "rcu_list.c", "hazard.c", "stalls.c"];
    for source in C_PROGRAMS {
        for sanitizer in ["-fsanitize=address,undefined", "-fsanitize=thread"] {
            let every_day = sanitizer.ends_with("thread") == threads.contains(&source);
            if (every_day || thorough()) && is_there("gcc") {
                let more = &[sanitizer, "-O1"];
                Build { compiler: "gcc", standard: "c11", source, link: Link::Static, more }.run();
            }
        }
    }
}

/// Where clang checks which thread holds what: a program that is right, and mistakes that it must find.
#[test]
fn thread_safety_analysis() {
    if !is_there("clang") {
        return;
    }
    let compile = |more: &[&str]| {
        output(
            Command::new("clang")
                .args(["-std=c11", "-fsyntax-only", "-Wthread-safety", "-Werror", "-I"])
                .arg(prefix().join("include"))
                .args(more)
                .arg(manifest().join("tests/programs/annotated.c")),
        )
    };
    let right = compile(&[]);
    assert!(right.status.success(), "{}", String::from_utf8_lossy(&right.stderr));
    for mistake in 1..=4 {
        let wrong = compile(&[&format!("-DMISTAKE={mistake}")]);
        let text = String::from_utf8_lossy(&wrong.stderr);
        assert!(
            !wrong.status.success() && text.contains("thread-safety"),
            "mistake {mistake} is not found:\n{text}"
        );
    }
}

/// Clang warns about no header, and about no template that the programs use. What it says of their own code does not count.
#[test]
fn the_headers_have_no_warnings_in_clang() {
    if !is_there("clang") || !is_there("clang++") {
        return;
    }
    let include = manifest().join("include");
    let warnings = |standard: &str, sources: &[PathBuf]| {
        let (compiler, language) = if standard == "c11" { ("clang", "c") } else { ("clang++", "c++") };
        let (source, before) = sources.split_last().expect("a source");
        let mut command = Command::new(compiler);
        command.args(["-Wthread-safety", "-Wall", "-Wextra", "-Wpedantic", "-fsyntax-only", "-I"]);
        command.arg(&include).args([&format!("-std={standard}"), "-x", language]);
        before.iter().for_each(|header| _ = command.arg("-include").arg(header));
        let result = output(command.arg(source));
        let said = String::from_utf8(result.stderr).expect("text");
        assert!(result.status.success(), "{source:?} in {standard}: {said}");
        said
    };
    let is_header = |path: &PathBuf| path.is_file() && !path.ends_with("registered.h");
    let files = |directory: &Path| {
        let entries =
            fs::read_dir(directory).expect("a directory").map(|entry| entry.expect("an entry").path());
        entries.filter(is_header).collect::<Vec<_>>()
    };
    let mut headers = [files(&include), files(&include.join("latchwork"))].concat();
    assert!(headers.len() > 20);
    let in_c = headers.iter().filter(|header| header.extension().is_some_and(|extension| extension == "h"));
    let in_c: Vec<PathBuf> = in_c.cloned().chain(["/dev/null".into()]).collect();
    headers.push("/dev/null".into());
    for (standard, headers) in [("c11", &in_c), ("c++17", &headers), ("c++20", &headers)] {
        let said = warnings(standard, headers);
        assert!(said.is_empty(), "{standard}:\n{said}");
    }
    for (standard, source) in [("c++20", "drop_in.cpp"), ("c++20", "types.cpp"), ("c++17", "map.cpp")] {
        let said = warnings(standard, &[manifest().join("tests/programs").join(source)]);
        let include = include.to_str().expect("a path in UTF-8");
        let is_of_a_header = |line: &&str| line.starts_with(include) && line.contains("warning:");
        let of_headers: Vec<&str> = said.lines().filter(is_of_a_header).collect();
        assert!(of_headers.is_empty(), "{source}: {of_headers:#?}");
    }
}

#[test]
fn cpp_programs() {
    // Each program with one standard. Under sanitizers, some have another.
    let programs =
        [("c++20", "drop_in.cpp"), ("c++17", "map.cpp"), ("c++17", "rcu_list.cpp"), ("c++23", "types.cpp")];
    for compiler in compilers(["g++", "clang++"]) {
        for (standard, source) in programs {
            // clang 14 calls it so.
            let standard = if standard == "c++23" { "c++2b" } else { standard };
            Build { compiler, standard, source, link: Link::Shared, more: &[] }.run();
        }
    }
}

/// A thread that ends the process notifies as one that returns.
#[test]
fn notify_at_the_exit_of_the_process() {
    if !is_there("g++") {
        return;
    }
    for more in [&[][..], &["-DWITH_STD"]] {
        let program =
            Build { compiler: "g++", standard: "c++17", source: "exit.cpp", link: Link::Shared, more }
                .build();
        for arguments in [&[][..], &["exit"]] {
            assert_eq!(run(Command::new("timeout").arg("300").arg(&program).args(arguments)), "joined\n");
        }
    }
}

/// The headers need no exceptions. What would throw ends a program that has none.
#[test]
fn cpp_without_exceptions() {
    for compiler in compilers(["g++", "clang++"]) {
        let more = &["-fno-exceptions", "-fno-rtti"];
        let build =
            Build { compiler, standard: "c++17", source: "no_exceptions.cpp", link: Link::Shared, more };
        let program = build.build();
        assert_eq!(run_program(&program, &[]), "ok\n");
        let aborted = output(Command::new(&program).arg("fail"));
        assert_eq!(aborted.status.signal(), Some(6), "SIGABRT");
    }
}

/// The headers use nothing that C++23 deprecates. Before version 13, libstdc++ does not say what that is.
#[test]
fn the_headers_use_nothing_that_is_deprecated() {
    let source = "#include <bits/stdc++.h>\n#pragma GCC poison aligned_storage aligned_storage_t aligned_union aligned_union_t\n\
        #include <latchwork.hpp>\n#include <latchwork/rcu>\n#include <latchwork/hazard_pointer>\n\
        template class lw::seqlock<int>;\n";
    let path = scratch().join("deprecated.cpp");
    fs::write(&path, source).expect("the directory is there");
    for compiler in compilers(["g++", "clang++"]) {
        let mut command = Command::new(compiler);
        // Older compilers call C++23 so.
        command.args(["-std=c++2b", "-fsyntax-only", "-Werror=deprecated-declarations", "-I"]);
        run(command.arg(manifest().join("include")).arg(&path));
    }
}

/// Only if asked for: every day, C's programs do the same with the same library.
#[test]
fn cpp_programs_under_sanitizers() {
    if !thorough() || !is_there("g++") {
        return;
    }
    let [threads, memory] = ["-fsanitize=thread", "-fsanitize=address,undefined"];
    for (standard, source, sanitizer) in [
        ("c++20", "drop_in.cpp", threads),
        ("c++20", "types.cpp", threads),
        ("c++20", "map.cpp", threads),
        ("c++20", "map.cpp", memory),
        ("c++17", "types.cpp", memory),
        ("c++17", "drop_in.cpp", memory),
    ] {
        let more = &[sanitizer, "-O0"];
        Build { compiler: "g++", standard, source, link: Link::Static, more }.run();
    }
}

/// The program that is written against the standard library: it passes with the standard library too.
#[test]
fn the_drop_in_program_is_a_program_of_std() {
    if is_there("g++") {
        Build {
            compiler: "g++",
            standard: "c++20",
            source: "drop_in.cpp",
            link: Link::Shared,
            more: &["-DWITH_STD"],
        }
        .run();
    }
}
