//! The headers in programs that are strict: with warnings that are errors, with macros of their own, of several translation units.

use super::*;

const WARNINGS: [&str; 13] = [
    "-Wall",
    "-Wextra",
    "-Wpedantic",
    "-Wconversion",
    "-Wsign-conversion",
    "-Wshadow",
    "-Wundef",
    "-Wcast-qual",
    "-Wcast-align=strict",
    "-Wwrite-strings",
    "-Wredundant-decls",
    "-Wvla",
    "-Wdouble-promotion",
];
const WARNINGS_OF_C: [&str; 6] = [
    "-Wstrict-prototypes",
    "-Wmissing-prototypes",
    "-Wold-style-definition",
    "-Wdeclaration-after-statement",
    "-Wbad-function-cast",
    "-Wc++-compat",
];
const WARNINGS_OF_CPP: [&str; 6] = [
    "-Wold-style-cast",
    "-Wzero-as-null-pointer-constant",
    "-Wuseless-cast",
    "-Weffc++",
    "-Wextra-semi",
    "-Wnon-virtual-dtor",
];

/// Compiles a program of this directory against the headers of this repository, and links nothing.
fn compile(compiler: &str, standard: &str, source: &str, more: &[&str]) {
    let language = if compiler == "gcc" { "c" } else { "c++" };
    let mut command = Command::new(compiler);
    command.args(["-O2", "-S", "-o", "/dev/null", "-Werror", "-x", language, "-I"]);
    command.arg(manifest().join("include")).arg(format!("-std={standard}")).args(more);
    run(command.arg(manifest().join("tests/programs").join(source)));
}

fn are_there() -> bool {
    is_there("gcc") && is_there("g++")
}

#[test]
fn the_headers_have_no_warnings_in_strict_programs() {
    if !are_there() {
        return;
    }
    for debug in ["-DLW_DEBUG=0", "-DLW_DEBUG=1"] {
        for standard in ["c99", "gnu99", "c11", "c2x"] {
            // In strict C99, glibc makes a declaration of each _Static_assert.
            let more: &[&str] = if standard == "c99" { &[debug, "-Wno-redundant-decls"] } else { &[debug] };
            compile("gcc", standard, "strict.c", &[&WARNINGS[..], &WARNINGS_OF_C, more].concat());
        }
        for (standard, source) in [("c++11", "strict.c"), ("c++2b", "strict.c"), ("c++17", "strict.cpp")] {
            compile("g++", standard, source, &[&WARNINGS[..], &WARNINGS_OF_CPP, &[debug]].concat());
        }
    }
}

/// The headers spell attributes as the C library's do, with underscores.
#[test]
fn a_program_may_have_macros_with_the_names_of_attributes() {
    let macros = [
        "-Dalways_inline=inline __attribute__((__always_inline__))",
        "-Daligned(bytes)=__attribute__((__aligned__(bytes)))",
        "-Dcold=__attribute__((__cold__))",
        "-Dtls_model=7",
        "-Dunused=__attribute__((__unused__))",
        "-Dvisibility=7",
    ];
    if are_there() {
        compile("gcc", "c11", "strict.c", &macros);
        compile("g++", "c++17", "strict.cpp", &macros);
    }
}

/// In C++, what the inline functions call is the same in each translation unit, and so are the inline functions.
#[test]
fn translation_units_of_cpp_share_the_inline_functions() {
    if !is_there("g++") {
        return;
    }
    let [one, two] = ["one", "two"].map(|name| {
        let file = scratch().join(format!("unit-{name}.cpp"));
        let text = format!(
            "#include <latchwork.h>\nauto {name}() -> decltype(&lw_mutex_lock) {{ return &lw_mutex_lock; }}\n"
        );
        fs::write(&file, text + if name == "two" { MAIN } else { "" }).expect("the directory is there");
        file
    });
    const MAIN: &str = "auto one() -> decltype(&lw_mutex_lock);\nint main() { return one() != two(); }\n";
    let program = scratch().join("units");
    let lib = prefix().join("lib");
    run(Command::new("g++")
        .args(["-std=c++11", "-I"])
        .arg(prefix().join("include"))
        .args([one, two])
        .arg("-o")
        .arg(&program)
        .arg("-L")
        .arg(&lib)
        .arg("-llatchwork")
        .arg(format!("-Wl,-rpath,{}", lib.display())));
    run_program(&program, &[]);
}

/// With LW_SAFERECL_IN_STD, a program that is written for C++26 compiles. A standard library that has the names itself keeps them.
#[test]
fn the_names_are_in_std_if_they_are_not_there() {
    const PROGRAM: &str = "#include <atomic>
#include <memory>
#include <mutex>
#ifdef OF_THE_LIBRARY
#define __cpp_lib_rcu 202306L
#define __cpp_lib_hazard_pointer 202306L
namespace std {
template <class T, class D = default_delete<T>> struct rcu_obj_base { void retire(D = D()) noexcept; };
template <class T, class D = default_delete<T>> struct hazard_pointer_obj_base { void retire(D = D()) noexcept; };
mutex &rcu_default_domain() noexcept;
struct hazard_pointer { template <class T> T *protect(const atomic<T *> &) noexcept; };
hazard_pointer make_hazard_pointer();
}
#endif
#define LW_SAFERECL_IN_STD
#include <latchwork/hazard_pointer>
#include <latchwork/rcu>
#if __cpp_lib_rcu < 202306L || __cpp_lib_hazard_pointer < 202306L
#error \"the macros\"
#endif
struct route : std::rcu_obj_base<route> {};
struct node : std::hazard_pointer_obj_base<node> {};
node *f(const std::atomic<node *> &from) {
    const std::scoped_lock region(std::rcu_default_domain());
    (new route)->retire();
    std::hazard_pointer hazard = std::make_hazard_pointer();
    return hazard.protect(from);
}
";
    if is_there("g++") {
        let file = scratch().join("in_std.cpp");
        fs::write(&file, PROGRAM).expect("the directory is there");
        for of_library in [&[][..], &["-DOF_THE_LIBRARY"]] {
            compile("g++", "c++20", file.to_str().expect("a path in UTF-8"), of_library);
        }
    }
}

/// What is missing in an older C library would be found out by the linker.
#[test]
fn an_older_c_library_is_refused() {
    if !is_there("gcc") {
        return;
    }
    let file = scratch().join("older.c");
    let text =
        "#include <features.h>\n#undef __GLIBC_MINOR__\n#define __GLIBC_MINOR__ 31\n#include <latchwork.h>\n";
    fs::write(&file, text).expect("the directory is there");
    let refused =
        output(Command::new("gcc").args(["-fsyntax-only", "-I"]).arg(manifest().join("include")).arg(file));
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("glibc 2.32"), "{said}");
}
