//! How many instructions the inline paths take, counted by valgrind's callgrind.
//!
//! `cargo test -p latchwork-capi --test c costs -- --nocapture` prints the figures of `docs/c.md`.

use super::*;
use std::collections::BTreeMap;

/// Rounds, so many that an operation's first slow path does not matter.
const ROUNDS: u32 = 50_000;

/// Instructions of one round of each operation of a program, which is a function; less those of the loop.
fn count(program: &Path) -> BTreeMap<String, f64> {
    let file = program.with_extension("callgrind");
    run(Command::new("valgrind")
        .arg("--tool=callgrind")
        .arg(format!("--callgrind-out-file={}", file.display()))
        .arg(program)
        .arg(ROUNDS.to_string()));
    let text = fs::read_to_string(file).expect("callgrind has written it");
    // A name stands beside its number once. A line below a function is a place, and what that costs; below `calls=`, what the
    // called function costs.
    let (mut names, mut costs) = (BTreeMap::<&str, &str>::new(), BTreeMap::<&str, u64>::new());
    let mut function = "";
    for line in text.lines() {
        if let Some((kind, name)) = line.split_once("fn=(").filter(|(kind, _)| ["", "c"].contains(kind)) {
            let (number, name) = name.split_once(')').expect("the number ends");
            if !name.is_empty() {
                // Without the parameters, which a name of C++ has.
                names.insert(number, name.trim().split('(').next().expect("a part at least"));
            }
            if kind.is_empty() {
                function = number;
            }
        } else if line.starts_with(|c: char| c.is_ascii_digit() || ['+', '-', '*'].contains(&c)) {
            let cost = line.split_whitespace().nth(1).map_or(0, |cost| cost.parse().expect("a number"));
            *costs.entry(function).or_default() += cost;
        }
    }
    let of =
        |name: &str| names.iter().find(|(_, other)| **other == name).map_or(0, |(number, _)| costs[number]);
    let empty = of("empty");
    assert!(empty > 0, "no function `empty`");
    let less = |cost: u64| (cost.saturating_sub(empty) as f64 / f64::from(ROUNDS)).round();
    names.iter().map(|(number, name)| ((*name).to_owned(), less(*costs.get(number).unwrap_or(&0)))).collect()
}

fn print(title: &str, counts: &BTreeMap<String, f64>, names: &[&str]) {
    println!("{title}:");
    for name in names {
        println!("    {name}: {}", counts[*name]);
    }
}

/// The inline paths of the library, what they may take, and what takes their place in glibc. The first five may take what Rust's
/// take (`docs/c.md`), and one instruction more: versions of gcc differ by a constant that each round of a loop loads.
const PATHS: [(&str, f64, &str); 11] = [
    ("mutex_pair", 10.0, "pthread_mutex_pair"),
    ("read_pair", 16.0, "pthread_read_pair"),
    ("write_pair", 24.0, "pthread_write_pair"),
    ("rcu_section", 18.0, ""),
    ("hazard_protect", 13.0, ""),
    ("sem_pair", 17.0, "posix_sem_pair"),
    ("cond_signal", 5.0, "pthread_cond_signal_"),
    ("epoch_section", 18.0, ""),
    ("qsbr_quiescent", 10.0, ""),
    ("seqlock_read", 14.0, ""),
    ("mutex_try_pair", 10.0, ""),
];

fn ours(compiler: &str, more: &[&str]) -> BTreeMap<String, f64> {
    count(&Build { compiler, standard: "gnu11", source: "costs.c", link: Link::Shared, more }.build())
}

/// With gcc, once for both tests that need it: they run at the same time, and would write the same files.
fn with_gcc() -> &'static BTreeMap<String, f64> {
    static COUNTS: OnceLock<BTreeMap<String, f64>> = OnceLock::new();
    COUNTS.get_or_init(|| ours("gcc", &[]))
}

/// No uncontended path takes more instructions than glibc's, and the bounds are those of the documentation.
#[test]
fn costs() {
    if !is_there("gcc") || !is_there("valgrind") {
        return;
    }
    for compiler in compilers(["gcc", "clang"]) {
        let counts = if compiler == "gcc" { with_gcc().clone() } else { ours(compiler, &[]) };
        print(compiler, &counts, &PATHS.map(|(name, ..)| name));
        print("a call each", &counts, &["mcs_pair"]);
        for (name, most, peer) in PATHS {
            let counted = counts[name];
            assert!(
                counted > 0.0 && counted <= most,
                "{name} takes {counted} instructions, more than {most}"
            );
            if !peer.is_empty() {
                print("glibc", &counts, &[peer]);
                assert!(counted < counts[peer], "{name}: {counted}, {peer}: {}", counts[peer]);
            }
        }
    }
    let counts = ours("gcc", &["-DSINGLE"]);
    print("in a process with one thread", &counts, &["mutex_pair", "pthread_mutex_pair"]);
    assert!(counts["mutex_pair"] <= 10.0);
}

/// What pkg-config says about another library; nothing if it is not there.
fn libraries(name: &str) -> Vec<String> {
    let found = output(Command::new("pkg-config").args(["--libs", name]));
    String::from_utf8_lossy(&found.stdout).split_whitespace().map(str::to_owned).collect()
}

/// The locks of TBB, abseil and Concurrency Kit, and the readers of liburcu and Concurrency Kit, where they are installed,
/// beside this library's.
#[test]
fn peers() {
    if !is_there("g++") || !is_there("gcc") || !is_there("valgrind") || !is_there("pkg-config") {
        return;
    }
    let build = |compiler: &str, name: &str, source: &str, more: &[&str], packages: &[&str]| {
        let program = scratch().join(name);
        let mut command = Command::new(compiler);
        command.args(more).args(["-O2", "-pthread", "-o"]).arg(&program);
        command.arg(manifest().join("tests/programs").join(source));
        run(command.args(packages.iter().flat_map(|package| libraries(package))));
        count(&program)
    };
    let ours = with_gcc();
    let names = ["mutex_pair", "read_pair", "rcu_section", "qsbr_quiescent", "hazard_protect"];
    print("this library", ours, &names);
    let locks = build("g++", "peers", "peers.cpp", &["-std=c++17"], &["absl_synchronization", "tbb"]);
    let c = ["liburcu-memb", "liburcu-qsbr", "ck"];
    let calls = build("gcc", "peers-c", "peers.c", &["-std=gnu11"], &c);
    let inline = build("gcc", "peers-inline", "peers.c", &["-std=gnu11", "-D_LGPL_SOURCE"], &c);
    for (title, counts) in [("TBB, abseil", &locks), ("liburcu, ck", &calls), ("liburcu, inline", &inline)] {
        let of_operations =
            |name: &&str| ["std_shared", "absl_", "tbb_", "urcu_", "ck_"].iter().any(|p| name.starts_with(p));
        let names: Vec<_> =
            counts.keys().map(String::as_str).filter(of_operations).filter(|n| counts[*n] > 0.0).collect();
        print(title, counts, &names);
    }
    // Not those whose waiters never sleep: locks that spin.
    for (name, mine) in [
        ("absl_pair", "mutex_pair"),
        ("tbb_pair", "mutex_pair"),
        ("std_shared_read", "read_pair"),
        ("absl_read", "read_pair"),
        ("tbb_read", "read_pair"),
    ] {
        if let Some(theirs) = locks.get(name) {
            assert!(ours[mine] < *theirs, "{name}: {theirs}, this library's: {}", ours[mine]);
        }
    }
    if let Some(theirs) = inline.get("urcu_memb") {
        assert!(ours["rcu_section"] < *theirs, "liburcu: {theirs}, this library's: {}", ours["rcu_section"]);
    }
}
