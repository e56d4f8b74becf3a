//! How many instructions the inline paths take, counted by valgrind's callgrind.
//!
//! `cargo test -p latchwork-capi --test c costs -- --nocapture` prints the table of `docs/c.md`.

use super::*;

/// Rounds, so many that the start of the process and the first slow paths do not matter.
const ROUNDS: u32 = 20_000;

/// Instructions of the process that executes an operation [`ROUNDS`] times.
fn count(program: &Path, operation: &str) -> f64 {
    let text = run(Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program)
        .args([operation, &ROUNDS.to_string()]));
    let refs = text.lines().find_map(|line| line.split_once("Collected : ")).expect("callgrind says it").1;
    refs.trim().parse().expect("a number")
}

/// No uncontended path takes more instructions than glibc's, and the bounds are those of the documentation.
#[test]
fn costs() {
    if !is_there("gcc") || !is_there("valgrind") {
        return;
    }
    let build = |more: &[&str]| {
        Build { compiler: "gcc", standard: "gnu11", source: "costs.c", link: Link::Shared, more }.build()
    };
    let (several, single) = (build(&[]), build(&["-DSINGLE"]));
    let empty = count(&several, "empty");
    let instructions = |operation| ((count(&several, operation) - empty) / f64::from(ROUNDS)).round();
    for (operation, peer, most) in [
        ("mutex", "pthread-mutex", 14.0),
        ("read", "pthread-read", 22.0),
        ("sem", "posix-sem", 16.0),
        ("signal", "pthread-signal", 5.0),
        ("rcu", "", 16.0),
        ("epoch", "", 16.0),
        ("qsbr", "", 10.0),
        ("hazard", "", 14.0),
    ] {
        let counted = instructions(operation);
        println!("{operation}: {counted}");
        assert!(counted <= most, "{operation} takes {counted} instructions, more than {most}");
        if !peer.is_empty() {
            let theirs = instructions(peer);
            println!("{peer}: {theirs}");
            assert!(counted < theirs, "{operation}: {counted}, {peer}: {theirs}");
        }
    }
    let counted = ((count(&single, "mutex") - count(&single, "empty")) / f64::from(ROUNDS)).round();
    println!("mutex, one thread: {counted}");
    assert!(counted <= 14.0);
}

/// The locks of TBB and abseil, where they are installed, beside this library's.
#[test]
fn peers() {
    if !is_there("g++") || !is_there("valgrind") || !is_there("pkg-config") {
        return;
    }
    let libraries = |name: &str| {
        let found = output(Command::new("pkg-config").args(["--libs", name]));
        String::from_utf8_lossy(&found.stdout).split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    let program = scratch().join("peers");
    let built = output(
        Command::new("g++")
            .args(["-std=c++17", "-O2", "-pthread", "-o"])
            .arg(&program)
            .arg(manifest().join("tests/programs/peers.cpp"))
            .args(libraries("absl_synchronization"))
            .args(libraries("tbb")),
    );
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let ours = Build { compiler: "gcc", standard: "gnu11", source: "costs.c", link: Link::Shared, more: &[] }
        .build();
    let pair = |program: &Path, operation| {
        ((count(program, operation) - count(program, "empty")) / f64::from(ROUNDS)).round()
    };
    let (mutex, read) = (pair(&ours, "mutex"), pair(&ours, "read"));
    println!("lw_mutex_t: {mutex}, lw_rwlock_t, reading: {read}");
    for name in run(&mut Command::new(&program)).lines().filter(|name| *name != "empty") {
        let theirs = pair(&program, name);
        println!("{name}: {theirs}");
        // The spinning and queueing locks never sleep.
        let sleeps = !name.contains("spin") && !name.contains("queuing");
        let ours = if name.ends_with("read") { read } else { mutex };
        assert!(!sleeps || ours < theirs, "{name}: {theirs}, this library's: {ours}");
    }
}
