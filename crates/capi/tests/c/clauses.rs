//! The clauses of C++26's [saferecl], by number: what runs (`clauses.cpp`, TAP) and what must not compile
//! (`clauses_reject.cpp`).

use super::*;

/// The clauses that only the compiler can check.
const STATIC_ONLY: [u32; 4] = [1, 15, 52, 81];

/// Stands behind the number of a case that only compilers with `[[clang::no_specializations]]` refuse.
const NEEDS: &str = " /* no_specializations */";

/// Builds and runs the clauses, each of which must hold. Returns the program.
fn run_clauses(build: Build<'_>) -> PathBuf {
    let program = build.build();
    let text = run_program(&program, &[]);
    let number = |line: &str| line.strip_prefix("ok ")?.split_whitespace().next()?.parse::<u32>().ok();
    let mut passed: BTreeSet<u32> = text.lines().filter_map(number).collect();
    passed.extend(STATIC_ONLY);
    let missing: Vec<_> = (1..=90).filter(|clause| !passed.contains(clause)).collect();
    assert!(missing.is_empty(), "clauses {missing:?} have no test:\n{text}");
    assert!(!text.contains("\nnot ok"), "{text}");
    program
}

#[test]
fn the_clauses_hold() {
    for compiler in compilers(["g++", "clang++"]) {
        let standard = "c++17";
        run_clauses(Build { compiler, standard, source: "clauses.cpp", link: Link::Shared, more: &[] });
    }
    if let Some(compiler) = newest_clang() {
        let standard = "c++2c";
        run_clauses(Build { compiler, standard, source: "clauses.cpp", link: Link::Shared, more: &[] });
    }
}

#[test]
fn the_clauses_hold_under_sanitizers() {
    if thorough() && is_there("g++") {
        for sanitizer in ["-fsanitize=address", "-fsanitize=thread"] {
            let more = &[sanitizer, "-O0"];
            run_clauses(Build {
                compiler: "g++",
                standard: "c++20",
                source: "clauses.cpp",
                link: Link::Static,
                more,
            });
        }
    }
}

/// The clauses fail for a library in which protection, regions or waiting do nothing. Only if asked for: to compile them once
/// more takes most of the time. So this program is the one of the newer standard, too: without a mistake the clauses hold.
#[test]
fn the_clauses_find_mistakes() {
    if !thorough() || !is_there("g++") {
        return;
    }
    let more = &["-DWITH_MISTAKES", "-O0"];
    let program = run_clauses(Build {
        compiler: "g++",
        standard: "c++2b",
        source: "clauses.cpp",
        link: Link::Shared,
        more,
    });
    let run = |mistake| output(Command::new(&program).env("MISTAKE", mistake));
    for mistake in ["1", "2", "3", "4"] {
        // A clause says so: a program that only ended early would show nothing about the clauses.
        let report = String::from_utf8_lossy(&run(mistake).stdout).into_owned();
        let broken = report.lines().filter(|line| line.starts_with("not ok ")).count();
        assert!(broken >= 1, "mistake {mistake} is found by no clause:\n{report}");
    }
}

#[test]
fn what_the_clauses_forbid_does_not_compile() {
    let source = manifest().join("tests/programs/clauses_reject.cpp");
    let text = fs::read_to_string(&source).unwrap();
    // The number of the case, what it needs, and what the compiler says.
    let cases: Vec<_> = text
        .lines()
        .filter_map(|line| line.split_once("if REJECT == ")?.1.split_once(" // clause "))
        .map(|(case, rest)| (case, rest.split_once(": ").expect("what the compiler says").1))
        .map(|(case, message)| (case.trim_end_matches(NEEDS), case.ends_with(NEEDS), message))
        .collect();
    assert!(cases.len() > 15 && cases.iter().filter(|(_, needs, _)| *needs).count() == 2);
    let mut compilers: Vec<_> = compilers(["g++", "clang++"]).collect();
    compilers.extend(newest_clang().filter(|name| *name != "clang++"));
    for compiler in compilers {
        let compile = |case: &str| {
            output(
                Command::new(compiler)
                    .args(["-std=c++17", "-fsyntax-only", "-I"])
                    .arg(prefix().join("include"))
                    .arg(format!("-DREJECT={case}"))
                    .arg(&source),
            )
        };
        let allowed = compile("0");
        assert!(allowed.status.success(), "{}", String::from_utf8_lossy(&allowed.stderr));
        // gcc, and clang before 20, have no means to refuse a specialisation.
        let refuses = refuses_specialisations(compiler);
        for (case, _, message) in cases.iter().filter(|(_, needs, _)| refuses || !needs) {
            let refused = compile(case);
            let text = String::from_utf8_lossy(&refused.stderr);
            assert!(!refused.status.success() && text.contains(message), "{compiler}, case {case}:\n{text}");
        }
    }
}
