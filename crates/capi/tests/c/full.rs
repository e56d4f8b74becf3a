//! The whole installation, with the command: every program with every compiler, standard, way of finding the library, way of
//! linking and sanitizer. It takes minutes, so it runs if `LATCHWORK_FULL_INSTALL` is set; the other tests here are its short
//! form.

use super::*;

const CPP: [&str; 3] = ["drop_in.cpp", "types.cpp", "map.cpp"];
const STANDARDS: [&str; 3] = ["c++17", "c++20", "c++2b"];
const SANITIZERS: [&[&str]; 3] = [&[], &["-fsanitize=address,undefined"], &["-fsanitize=thread"]];

/// Whether a compiler has the libraries of the sanitizers.
fn has_sanitizers(compiler: &str) -> bool {
    let source = scratch().join("empty.c");
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

/// Builds and runs everything with pkg-config. Returns how many programs.
fn with_pkg_config() -> u32 {
    let mut programs = 0;
    for (compilers_of, sources, standards) in
        [(["gcc", "clang"], &C_PROGRAMS[..], &["c11"][..]), (["g++", "clang++"], &CPP[..], &STANDARDS[..])]
    {
        for compiler in compilers(compilers_of) {
            let sanitizers = if has_sanitizers(compiler) { &SANITIZERS[..] } else { &SANITIZERS[..1] };
            for (standard, source) in
                standards.iter().flat_map(|s| sources.iter().map(move |source| (s, source)))
            {
                for (link, more) in [Link::Shared, Link::Static]
                    .into_iter()
                    .flat_map(|l| sanitizers.iter().map(move |s| (l, s)))
                {
                    Build { compiler, standard, source, link, more }.run();
                    programs += 1;
                }
            }
        }
    }
    programs
}

/// The same with CMake, without sanitizers.
fn with_cmake() -> u32 {
    let mut programs = 0;
    for (c, cpp) in [("gcc", "g++"), ("clang", "clang++")] {
        if !is_there(c) || !is_there(cpp) {
            continue;
        }
        let build = scratch().join(format!("cmake-full-{c}"));
        let _ = fs::remove_dir_all(&build);
        run(Command::new("cmake")
            .arg("-S")
            .arg(manifest().join("tests/programs/cmake"))
            .arg("-B")
            .arg(&build)
            .args([
                "-DFULL=1".into(),
                format!("-DCMAKE_C_COMPILER={c}"),
                format!("-DCMAKE_CXX_COMPILER={cpp}"),
            ])
            .arg(format!("-DCMAKE_PREFIX_PATH={}", prefix().display())));
        run(Command::new("cmake").arg("--build").arg(&build).args(["--parallel", "2"]));
        for file in fs::read_dir(&build).unwrap().map(|entry| entry.unwrap().path()) {
            let name = file.file_name().unwrap().to_string_lossy().into_owned();
            if (name.starts_with("shared-") || name.starts_with("static-"))
                && file.extension().is_none_or(|e| e != "log")
            {
                run_program(&file, &[]);
                programs += 1;
            }
        }
    }
    programs
}

#[test]
fn the_whole_installation() {
    if env::var_os("LATCHWORK_FULL_INSTALL").is_none() {
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
    let programs = [with_pkg_config(), with_cmake()];
    println!("{} programs with pkg-config, {} with CMake", programs[0], programs[1]);
    assert!(programs[0] > 0 || programs[1] > 0);

    install(&whole, &["--uninstall"]);
    assert!(!whole.exists(), "{}", run(Command::new("find").arg(&whole)));
}
