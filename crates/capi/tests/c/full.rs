//! The whole installation, with the command: every program with every compiler, standard, way of finding the library, way of
//! linking and sanitizer. It takes minutes, so it runs if `LATCHWORK_FULL_INSTALL` is set; the other tests here are its short
//! form.

use super::*;
use std::sync::Mutex;

fn is_wanted() -> bool {
    env::var_os("LATCHWORK_FULL_INSTALL").is_some()
}

/// Does something with each item, on all processors.
fn in_parallel<T: Send>(items: impl Iterator<Item = T> + Send, work: impl Fn(T) + Sync) {
    let items = Mutex::new(items);
    let next = || items.lock().unwrap().next();
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(item) = next() {
                    work(item);
                }
            });
        }
    });
}

const CPP: [&str; 3] = ["drop_in.cpp", "types.cpp", "map.cpp"];
const STANDARDS: [&str; 3] = ["c++17", "c++20", "c++2b"];
const SANITIZERS: [&[&str]; 3] = [&[], &["-fsanitize=address,undefined"], &["-fsanitize=thread"]];

/// Whether a compiler has the libraries of the sanitizers.
fn has_sanitizers(compiler: &str) -> bool {
    let source = scratch().join(format!("empty-{compiler}.c"));
    fs::write(&source, "int main(void) { return 0; }\n").unwrap();
    let has = output(
        Command::new(compiler)
            .args(["-xc", "-fsanitize=thread", "-o"])
            .arg(source.with_extension("program"))
            .arg(&source),
    );
    if !has.status.success() {
        eprintln!(
            "SKIPPED: sanitizers of {compiler}: it has no libraries for them (Debian: libclang-rt-14-dev)"
        );
    }
    has.status.success()
}

/// Builds and runs everything with a pair of compilers, and with pkg-config if it is there.
fn with(c: &str, cpp: &str) {
    if !is_wanted() || !is_there(c) || !is_there(cpp) {
        return;
    }
    let sanitizers = if has_sanitizers(c) { &SANITIZERS[..] } else { &SANITIZERS[..1] };
    let c = C_PROGRAMS.iter().map(|source| (c, "c11", *source));
    let cpp = STANDARDS.iter().flat_map(|standard| CPP.iter().map(move |source| (cpp, *standard, *source)));
    let mut builds = Vec::new();
    for (compiler, standard, source) in c.chain(cpp) {
        for link in [Link::Shared, Link::Static] {
            builds.extend(sanitizers.iter().map(|more| Build { compiler, standard, source, link, more }));
        }
    }
    println!("{} programs", builds.len());
    in_parallel(builds.into_iter(), |build| build.run());
}

#[test]
fn the_whole_with_gcc() {
    with("gcc", "g++");
}

#[test]
fn the_whole_with_clang() {
    with("clang", "clang++");
}

/// The same with CMake, without sanitizers.
#[test]
fn the_whole_with_cmake() {
    if !is_wanted() || !is_there("cmake") {
        return;
    }
    for (c, cpp) in [("gcc", "g++"), ("clang", "clang++")] {
        if !is_there(c) || !is_there(cpp) {
            continue;
        }
        let compilers = [format!("-DCMAKE_C_COMPILER={c}"), format!("-DCMAKE_CXX_COMPILER={cpp}")];
        let build = cmake(&format!("cmake-full-{c}"), &["-DFULL=1", &compilers[0], &compilers[1]]);
        let is_program = |file: &PathBuf| {
            let name = file.file_name().expect("an entry has a name").to_string_lossy();
            (name.starts_with("shared-") || name.starts_with("static-"))
                && file.extension().is_none_or(|e| e != "log")
        };
        let files = fs::read_dir(&build).unwrap().map(|entry| entry.unwrap().path());
        let programs: Vec<_> = files.filter(is_program).collect();
        println!("{} programs", programs.len());
        assert!(!programs.is_empty());
        in_parallel(programs.into_iter(), |program| _ = run_program(&program, &[]));
    }
}

#[test]
fn the_whole_installation() {
    if !is_wanted() {
        return;
    }
    let whole = scratch().join("whole");
    let _ = fs::remove_dir_all(&whole);
    install(&whole, &[]);
    let command = whole.join("bin/latchwork");
    assert!(run(Command::new(&command).arg("--version")).starts_with("latchwork "));
    let preloaded = run(Command::new(&command).args(["run", "--", "sh", "-c", "echo $LD_PRELOAD"]));
    assert!(preloaded.contains("liblatchwork_preload"), "{preloaded}");
    for file in [
        "lib/latchwork/liblatchwork_preload.so",
        "share/man/man1/latchwork.1",
        "share/bash-completion/completions/latchwork",
    ] {
        assert!(whole.join(file).exists(), "{file}");
    }
    // The checks see the locks of programs with LW_DEBUG, and show their names.
    let checked = |define, link| {
        let more = &["-g", define];
        let program = Build { compiler: "gcc", standard: "c11", source: "inverted.c", link, more }.build();
        let result = output(Command::new(&command).args(["check", "--"]).arg(program));
        String::from_utf8_lossy(&result.stderr).into_owned()
    };
    for link in [Link::Shared, Link::Static] {
        let report = checked("-DLW_DEBUG=1", link);
        for word in ["lock-order inversion", "\"accounts\"", "\"journal\"", "inverted.c:"] {
            assert!(report.contains(word), "no {word:?} in\n{report}");
        }
        assert!(!checked("-DLW_DEBUG=0", link).contains("inversion"));
    }
    // So does the recorder of profiles.
    let more = &["-g", "-DLW_DEBUG=1"];
    let program =
        Build { compiler: "gcc", standard: "c11", source: "inverted.c", link: Link::Shared, more }.build();
    let report = run(Command::new(&command).args(["profile", "--json", "-", "--"]).arg(program));
    for name in ["accounts", "journal"] {
        assert!(report.contains(&format!("\"name\": \"{name}\"")), "no {name} in\n{report}");
    }
    install(&whole, &["--uninstall"]);
    assert!(!whole.exists(), "{}", run(Command::new("find").arg(&whole)));
}

/// Each header can be the first one of a program.
#[test]
fn the_whole_of_the_headers() {
    if !is_wanted() {
        return;
    }
    let include = prefix().join("include");
    let files = |directory: &Path| -> Vec<PathBuf> {
        fs::read_dir(directory)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.is_file())
            .collect()
    };
    let headers = [files(&include), files(&include.join("latchwork"))].concat();
    assert!(headers.len() > 20);
    let cases = headers.iter().filter(|header| !header.ends_with("registered.h")).flat_map(|header| {
        let c: &[(&str, &str)] = match header.extension() {
            Some(extension) if extension == "h" => &[("gcc", "c11"), ("clang", "c11")],
            _ => &[],
        };
        c.iter().chain(&[("g++", "c++17"), ("clang++", "c++17")]).map(move |case| (header, *case))
    });
    in_parallel(cases, |(header, (compiler, standard))| {
        if is_there(compiler) {
            let language = if standard == "c11" { "c" } else { "c++" };
            run(Command::new(compiler)
                .args(["-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-I"])
                .arg(&include)
                .args([&format!("-std={standard}"), "-x", language, "-include"])
                .arg(header)
                .arg("/dev/null"));
        }
    });
}
