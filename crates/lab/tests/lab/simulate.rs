//! `latchwork-lab simulate`.

use crate::common::{output, scratch, stderr, stdout};
use latchwork_workloads::candidate::{Candidate, Origin};
use serde_json::Value;

/// As short as a debug build needs.
fn simulate(arguments: &[&str]) -> Value {
    let short = ["--seconds", "0.0001", "--json", "-"];
    let output = output(&[&["simulate"], arguments, &short[..]].concat());
    assert!(output.status.success(), "{arguments:?}: {}{}", stderr(&output), stdout(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn rate(point: &Value) -> f64 {
    point["ops_per_s"]["median"].as_f64().unwrap()
}

#[test]
fn every_workload_runs_under_every_lock_and_is_the_same_twice() {
    for info in latchwork_workloads::registry::all() {
        // The debug build has its limits.
        let small: &[&str] = if info.name == "lock-per-node" { &["--set", "nodes=500"] } else { &[] };
        let what = [info.name, "--machine", "2x4", "--locks", "all", "--threads", "5"];
        let document = simulate(&[&what[..], small].concat());
        // Whatever address the system gave to the process and its memory.
        assert!(document["points"] == simulate(&[&what[..], small].concat())["points"], "{}", info.name);
        let candidates = latchwork_workloads::peers::candidates();
        let fitting = |lock: &&Candidate| lock.origin == Origin::Latchwork && info.locks.includes(lock);
        let expected = candidates.iter().filter(fitting).count();
        let points = document["points"].as_array().unwrap();
        assert_eq!(points.len(), expected, "{}", info.name);
        for point in points {
            assert!(point["failure"].is_null(), "{point}");
            assert!(point["extra"]["misses/op"].as_f64().unwrap() >= 0.0);
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_numbers_and_another_one_others() {
    let run = |seed| {
        let what =
            ["hash-table", "--machine", "8x24", "--locks", "mcs,pf-t", "--threads", "1,30", "--seed", seed];
        simulate(&what)["points"].clone()
    };
    assert_eq!(run("7"), run("7"));
    assert_ne!(run("7"), run("8"));
}

#[test]
fn readers_scale_with_bravo_and_not_without() {
    let what = ["alternator", "--machine", "x5-2", "--locks", "pf-q,bravo-pf-q", "--threads", "32"];
    let document = simulate(&what);
    assert_eq!(document["machine"]["cpus"], 72);
    let points = document["points"].as_array().unwrap();
    assert!(rate(&points[1]) > rate(&points[0]), "{points:?}");
}

#[test]
fn more_sockets_cost_more() {
    let what = ["counter", "--machine", "8x24", "--locks", "mcs", "--threads", "8", "--arbitration", "fifo"];
    let near = simulate(&what);
    let far = simulate(&[&what[..], &["--placement", "round-robin"]].concat());
    assert!(rate(&near["points"][0]) > 1.5 * rate(&far["points"][0]));
    assert_eq!(near["points"][0]["extra"]["remote"], 0.0);
    assert_eq!(far["points"][0]["extra"]["remote"], 1.0);
}

#[test]
fn lines_at_equal_places_of_many_pages_do_not_fit_a_cache() {
    // Twice as many lines as the private cache has at equal places of pages, and a thirty-second of all that it has.
    let what = ["working-set", "--machine", "zen3-2", "--locks", "shfl-rw", "--threads", "1"];
    let lines = ["--set", "kib=16", "--set", "stride=64,4096", "--warm-up", "0.0003"];
    let document = simulate(&[&what[..], &lines].concat());
    let points = document["points"].as_array().unwrap();
    assert!(rate(&points[0]) > 4.0 * rate(&points[1]), "{points:?}");
    assert!(document["points"] == simulate(&[&what[..], &lines].concat())["points"], "the same twice");
}

/// Eight readers in turn keep the writer out from the warm-up until after the end.
#[test]
fn a_thread_that_never_gets_the_lock_has_the_longest_wait() {
    let what = ["test-rwlock", "--machine", "8x24", "--locks", "glibc-rw-model", "--threads", "8"];
    let document = simulate(&[&what[..], &["--warm-up", "0.00005"]].concat());
    let point = &document["points"][0];
    let writer = point["runs"][0]["per_thread"].as_array().unwrap().iter().filter(|done| **done == 0).count();
    assert_eq!(writer, 1, "{point}");
    // The measured time.
    assert!(point["wait_ns"]["max"].as_f64().unwrap() >= 1e5, "{point}");
}

#[test]
fn a_plot_is_written() {
    let directory = scratch("simulate-plot");
    let plot = directory.join("out.svg");
    let what =
        ["interference", "--machine", "x5-2", "--locks", "bravo-pf-q,bravo-pf-q-private", "--threads", "8"];
    simulate(&[&what[..], &["--set", "locks=1,4,16", "--plot", plot.to_str().unwrap()]].concat());
    let svg = std::fs::read_to_string(&plot).unwrap();
    for wanted in ["bravo-pf-q-private", "locks", "8 threads", "per second"] {
        assert!(svg.contains(wanted), "{wanted}");
    }
}

#[test]
fn bad_input_is_one_line_and_status_2() {
    let directory = scratch("simulate-broken");
    let broken = directory.join("broken.toml");
    std::fs::write(&broken, "name = \"broken\"\nsummary = \n").unwrap();
    let broken = broken.to_str().unwrap();
    let cases: &[(&[&str], &str)] = &[
        (&["counter", "--machine", "x5-3"], "x5-2"),
        (&["counter", "--machine", broken], "line 2"),
        (&["counter", "--machine", "/no/such.toml"], "/no/such.toml"),
        (&["counter", "--machine", "1000x1000"], "at most"),
        (&["cuonter", "--machine", "x5-2"], "did you mean counter?"),
        (&["counter", "--machine", "x5-2", "--locks", "mcz"], "did you mean mcs?"),
        (&["counter", "--machine", "x5-2", "--locks", "glibc"], "no lock called \"glibc\" on x5-2"),
        (&["counter", "--machine", "x5-2", "--threads", "100000"], "too many"),
        (&["queue", "--machine", "8x64", "--threads", "600"], "with which queue has 1200, are too many"),
        (&["test-rwlock", "--machine", "8x64", "--threads", "1023"], "has 1024, are too many"),
        (&["counter", "--machine", "x5-2", "--set", "home=away"], "local or remote"),
        (&["counter", "--machine", "1x4", "--set", "home=local,remote"], "two sockets, and 1x4 has one"),
        (&["counter", "--machine", "x5-2", "--threads", "0"], "at least one thread"),
        (&["counter", "--machine", "x5-2", "--threads", "-4"], "not a number of threads"),
        (&["counter", "--machine", "x5-2", "--threads", "99999999999999999999"], "not a number of threads"),
        (&["counter", "--machine", "0x4"], "at least 1"),
        (&["counter", "--machine", "x5-2", "--json", "/no/such/dir/x.json"], "cannot be written"),
        (&["counter", "--machine", "x5-2", "--plot", "/no/such/dir/x.svg"], "cannot be written"),
    ];
    for (arguments, words) in cases {
        let output = output(&[&["simulate"], *arguments].concat());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", stderr(&output));
        let text = stderr(&output);
        assert!(text.contains(words) && text.trim_end().lines().count() == 1, "{arguments:?}: {text}");
    }
    for arguments in
        [&["simulate", "counter"][..], &["simulate", "counter", "--machine", "x5-2", "--arbitration", "x"]]
    {
        assert_eq!(output(arguments).status.code(), Some(2), "{arguments:?}");
    }
    // What the parser refuses: its first line says it all.
    for bad in ["-1", "0", "nan", "1e9"] {
        for option in ["--seconds", "--warm-up"] {
            let output = output(&["simulate", "counter", "--machine", "x5-2", option, bad]);
            assert_eq!(output.status.code(), Some(2), "{option} {bad}");
            let text = stderr(&output);
            let first = text.lines().next().unwrap_or_default();
            assert!(first.contains(option) && first.contains("a number of seconds above 0"), "{text}");
        }
    }
}
