//! `latchwork-lab bench`.

use crate::common::{output, scratch, send, stderr, stdout, until_it_watches_for_ctrl_c};
use latchwork_workloads::workload::Locks;

/// As short as can be.
fn bench(arguments: &[&str]) -> std::process::Output {
    let short = ["--seconds", "0.01", "--runs", "2"];
    output(&[&["bench"], arguments, &short[..]].concat())
}

#[test]
fn the_table_has_a_line_for_every_lock_and_thread_count() {
    let output = bench(&["counter", "--locks", "mcs,shfl,glibc,std,parking_lot", "--threads", "1,2"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let text = stdout(&output);
    for lock in ["mcs", "shfl", "glibc", "std", "parking_lot"] {
        // With or without the number of threads in front of it, and never in the sentences below.
        let named =
            |line: &&str| line.split_whitespace().take(2).any(|word| word == lock) && line.contains('%');
        let lines = text.lines().filter(named);
        assert_eq!(lines.count(), 2, "{lock} in\n{text}");
    }
    assert!(text.contains("With 2 threads: "), "{text}");
}

/// The workload fails if a thread finds another line than the next one.
#[test]
fn a_working_set_may_have_a_stride() {
    let settings = ["--set", "kib=1,4", "--set", "order=random,ascending", "--set", "stride=64,256,4096"];
    let output = bench(&[&["working-set", "--locks", "shfl-rw", "--threads", "1,2"], &settings[..]].concat());
    assert!(output.status.success(), "{}{}", stderr(&output), stdout(&output));
}

#[test]
fn json_and_plot_hold_every_point() {
    let folder = scratch("bench-files");
    let (json, plot) = (folder.join("out.json"), folder.join("out.svg"));
    let files = ["--json", json.to_str().unwrap(), "--plot", plot.to_str().unwrap()];
    let what = ["rwbench", "--locks", "pf-q,bravo-pf-q", "--threads", "1,2", "--set", "writes=1/2,1/1000"];
    // On a busy machine no thread may get to do anything in so short a time.
    let works = |document: &serde_json::Value| {
        let mut points = document["points"].as_array().unwrap().iter();
        points.any(|point| point["ops_per_s"]["median"].as_f64().unwrap() > 0.0)
    };
    let mut documents = (0..1000).map(|_| -> serde_json::Value {
        let output = bench(&[&what[..], &files].concat());
        assert!(output.status.success(), "{}", stderr(&output));
        serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap()
    });
    let document = documents.find(works).expect("some thread does something");
    let points = document["points"].as_array().unwrap();
    assert_eq!(points.len(), 8);
    for point in points {
        assert_eq!(point["runs"].as_array().unwrap().len(), 2);
        assert!(point["failure"].is_null());
        assert!(point["ops_per_s"]["median"].as_f64().unwrap() >= 0.0);
        assert!((0.5..=1.0).contains(&point["fairness"].as_f64().unwrap()));
        assert_eq!(
            point["runs"][0]["per_thread"].as_array().unwrap().len() as u64,
            point["threads"].as_u64().unwrap()
        );
    }
    assert_eq!(points[7]["settings"]["writes"], "1/1000");
    let svg = std::fs::read_to_string(&plot).unwrap();
    assert!(svg.starts_with("<svg") && svg.contains("bravo-pf-q") && svg.contains("writes=1/1000"));
}

/// No table times a wait, and other libraries do not say how many removed elements wait to be reclaimed.
#[test]
fn what_was_not_measured_is_not_shown() {
    let what =
        ["hashtable", "--locks", "ttas,crossbeam-epoch,papaya", "--threads", "2", "--set", "updates=50%"];
    let json: serde_json::Value =
        serde_json::from_slice(&bench(&[&what[..], &["--json", "-"]].concat()).stdout).unwrap();
    for point in json["points"].as_array().unwrap() {
        assert!(point["wait_ns"].is_null() && point["runs"][0]["wait_ns"].is_null(), "{point}");
        assert!(point["lock"] == "ttas" || point["extra"]["reclaimed"].is_null(), "{point}");
    }
    let text = stdout(&bench(&what));
    assert!(text.contains("-: no wait was timed.") && !text.contains(" 0 ns  0 ns"), "{text}");
}

#[test]
fn markdown_has_shares_and_says_where_the_default_is_behind() {
    let folder = scratch("bench-markdown");
    let (json, page) = (folder.join("out.json"), folder.join("out.md"));
    let files = ["--json", json.to_str().unwrap(), "--markdown", page.to_str().unwrap()];
    let what = ["counter", "--locks", "shfl,mcs,glibc", "--threads", "1,2,6", "--set", "hold=0ns,2us"];
    let output = bench(&[&what[..], &files, &["--cut", "0.99"]].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    let page = std::fs::read_to_string(&page).unwrap();
    assert!(
        page.starts_with("<!-- generated: latchwork-lab bench counter --locks shfl,mcs,glibc "),
        "{page}"
    );
    for line in
        ["## hold=0ns", "## hold=2us", "| threads | 1 | 2 | 6 |", "## Where shfl is more than 5% behind"]
    {
        assert!(page.contains(line), "{line} in\n{page}");
    }
    let document: serde_json::Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    let points = document["points"].as_array().unwrap();
    // At each point the best lock of the first round is measured again, and a lock far behind it is not.
    for point in points.chunks(3) {
        let first = |lock: usize| point[lock]["runs"][0]["ops_per_s"].as_f64().unwrap();
        let best = (0..3).map(first).fold(0.0, f64::max);
        for lock in 0..3 {
            let again = point[lock]["runs"].as_array().unwrap().len() == 2;
            assert_eq!(again, first(lock) >= best * 0.99, "{point:#?}");
        }
        // Its median is the best's, or it is not called so.
        let rate = |lock: usize| point[lock]["ops_per_s"]["median"].as_f64().unwrap();
        let best = (0..3).map(rate).fold(0.0, f64::max);
        let listed = format!(
            "| hold={} | {} |",
            point[0]["settings"]["hold"].as_str().unwrap(),
            point[0]["threads"].as_u64().unwrap()
        );
        assert_eq!(page.contains(&listed), rate(0) < best * 0.95, "{listed} in\n{page}");
    }
    let refused = bench(&["counter", "--cut", "1.5"]);
    assert_eq!(refused.status.code(), Some(2));
}

#[test]
fn json_on_stdout_takes_the_table_s_place() {
    let output = bench(&["alternator", "--locks", "pf-t", "--threads", "1", "--json", "-"]);
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["workload"], "alternator");
    assert_eq!(document["command"], "bench");
}

#[test]
fn every_workload_can_be_listed_and_run() {
    let text = stdout(&output(&["bench", "--list"]));
    for info in latchwork_workloads::registry::all() {
        assert!(
            text.lines().any(|line| line.contains(info.name) && line.contains(info.source)),
            "{}",
            info.name
        );
        let detail = stdout(&output(&["bench", info.name, "--list"]));
        assert!(info.parameters.iter().all(|parameter| detail.contains(parameter.help)), "{detail}");
        let lock = if info.locks.allows(false) || info.locks == Locks::Table { "shfl" } else { "pf-t" };
        let run = bench(&[info.name, "--locks", lock, "--threads", "2"]);
        assert!(run.status.success(), "{}: {}", info.name, stderr(&run));
    }
}

#[test]
fn what_the_list_names_can_be_listed() {
    let output = output(&["bench", "instructions", "--list"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(stdout(&output).starts_with("instructions: no workload"), "{}", stdout(&output));
}

#[test]
fn bad_input_is_one_line_and_status_2() {
    let cases: &[(&[&str], &str)] = &[
        (&["bench", "cuonter"], "did you mean counter?"),
        (&["bench", "counter", "--locks", "mcz"], "did you mean mcs?"),
        (&["bench", "counter", "--locks", "pf-q"], "pf-q is a reader-writer lock"),
        (&["bench", "counter", "--threads", "0"], "at least one"),
        (&["bench", "counter", "--threads", "1..1000000"], "too many"),
        (&["bench", "counter", "--threads", "many"], "not a number"),
        (&["bench", "rwbench", "--set", "write=1/2"], "did you mean writes?"),
        (&["bench", "rwbench", "--set", "writes=3"], "a fraction"),
        (&["bench", "counter", "--json", "/no/such/folder/x"], "--json"),
        (&["bench", "counter", "--plot", "/"], "is a directory"),
        (
            &["bench", "counter", "--plot", "out.png"],
            "only SVG is written, which browsers show; name a file that ends in .svg: --plot out.svg",
        ),
        (&["bench", "counter", "--markdown", "-"], "--markdown -: only --json is printed"),
        (&["bench", "counter", "--json", "x", "--markdown", "x"], "--json and --markdown name one file, x"),
        (&["bench", "instructions", "--seconds", "5"], "--seconds is for workloads"),
        (&["bench", "instructions", "--placement", "free"], "--placement is for workloads"),
        (&["bench", "instructions", "--cut", "0.5"], "--cut is for workloads"),
    ];
    for (arguments, words) in cases {
        let output = output(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let text = stderr(&output);
        assert!(text.contains(words) && text.trim_end().lines().count() == 1, "{arguments:?}: {text}");
        assert!(output.stdout.is_empty());
    }
    for arguments in
        [&["bench"][..], &["bench", "counter", "--seconds", "0"], &["bench", "counter", "--runs", "0"]]
    {
        assert_eq!(output(arguments).status.code(), Some(2), "{arguments:?}");
    }
}

#[test]
fn a_library_s_name_stands_for_the_kind_that_is_needed() {
    let run = bench(&["alternator", "--locks", "glibc,parking_lot", "--threads", "1"]);
    assert!(stdout(&run).contains("glibc-rw") && stdout(&run).contains("parking_lot-rw"));
}

/// Sends Ctrl-C's signal once the command has begun to measure, and returns what it then does.
pub fn interrupt(arguments: &[&str]) -> std::process::Output {
    let child = crate::common::latchwork()
        .args(arguments)
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    until_it_watches_for_ctrl_c(&child);
    std::thread::sleep(std::time::Duration::from_millis(700));
    send(&child, libc::SIGINT);
    child.wait_with_output().unwrap()
}

#[test]
fn ctrl_c_prints_what_there_is() {
    let native =
        ["bench", "counter", "--locks", "shfl", "--threads", "1", "--runs", "1000", "--seconds", "0.1"];
    let simulated =
        ["simulate", "counter", "--machine", "2x2", "--locks", "mcs", "--threads", "2", "--runs", "1000"];
    for arguments in [&native[..], &simulated] {
        let output = interrupt(arguments);
        assert_eq!(output.status.code(), Some(130), "{arguments:?}");
        assert!(stdout(&output).starts_with("Interrupted"), "{}", stdout(&output));
    }
}

/// The first Ctrl-C ends a measurement that would take an hour. A simulation of 192 threads that would take longer than that is
/// ended by it, too.
#[test]
fn ctrl_c_is_heard_during_a_measurement() {
    let native = ["bench", "counter", "--locks", "shfl", "--threads", "1", "--seconds", "3600"];
    let simulated = [
        "simulate",
        "counter",
        "--machine",
        "8x24",
        "--locks",
        "mcs",
        "--threads",
        "192",
        "--seconds",
        "3600",
    ];
    let instructions = ["bench", "instructions", "--runs", "1000"];
    for arguments in [&native[..], &simulated, &instructions] {
        let output = interrupt(arguments);
        assert_eq!(output.status.code(), Some(130), "{arguments:?}");
        assert!(stdout(&output).starts_with("Interrupted"), "{}", stdout(&output));
    }
}

#[test]
fn instructions_are_told_in_units_of_the_first() {
    let output = output(&["bench", "instructions", "--runs", "2", "--json", "-"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let costs = document["costs"].as_array().unwrap();
    assert_eq!(costs[0]["instructions"], 1.0);
    let rest = costs.iter().find(|cost| cost["name"] == "atomic increment").unwrap();
    let ratio = rest["ns"].as_f64().unwrap() / costs[0]["ns"].as_f64().unwrap();
    assert!((rest["instructions"].as_f64().unwrap() - ratio).abs() < 1e-6 * ratio.max(1.0));
    assert_eq!(rest["power4"], 183.1);
    // What the paper's Table 7 says: RCU's readers need no atomics and no lines of others, locks need both.
    let lookup = |name: &str, figure: &str| {
        let operations = document["operations"].as_array().unwrap();
        let of = operations.iter().find(|one| one["strategy"] == name).unwrap();
        of["lookup"][figure].as_f64().unwrap()
    };
    // (Each thread makes itself known once, with an atomic instruction.)
    assert!(lookup("qsbr-l", "atomics") < 1e-3 && lookup("hpbr-nbs", "atomics") < 1e-3);
    assert!(lookup("pf-q", "atomics") >= 1.9 && lookup("ttas", "atomics") >= 1.0);
    assert!(lookup("qsbr-l", "misses") < 0.1 && lookup("pf-q", "misses") > 0.5);
}

#[test]
fn instructions_take_no_options_of_workloads() {
    let output = output(&["bench", "instructions", "--threads", "2"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("--threads is for workloads"), "{}", stderr(&output));
}

#[test]
fn processor_time_and_ratios_are_told() {
    let folder = scratch("bench-against");
    let (json, page) = (folder.join("out.json"), folder.join("out.md"));
    let files = ["--json", json.to_str().unwrap(), "--markdown", page.to_str().unwrap()];
    // The lock to compare with need not be named twice.
    let what = ["counter", "--locks", "shfl", "--against", "glibc", "--threads", "1,2"];
    let output = bench(&[&what[..], &files].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    let text = stdout(&output);
    for words in
        ["user/op", "vol/s", "counter: operations a second to glibc", "shfl: operations at least 0.97"]
    {
        assert!(text.contains(words), "{words} in\n{text}");
    }
    let page = std::fs::read_to_string(&page).unwrap();
    assert!(
        page.contains("## Processor time") && page.contains("## counter: user time of an operation"),
        "{page}"
    );
    let document: serde_json::Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    let points = document["points"].as_array().unwrap();
    assert_eq!(points.len(), 4);
    for usage in points.iter().flat_map(|point| point["runs"].as_array().unwrap()).map(|run| &run["usage"]) {
        let time = usage["user_ns_per_op"].as_f64().unwrap() + usage["system_ns_per_op"].as_f64().unwrap();
        assert!(time >= 0.0 && usage["voluntary_per_s"].as_f64().unwrap() >= 0.0, "{usage}");
    }
}

#[test]
fn the_suite_runs_each_workload_under_the_locks_for_it() {
    let output = bench(&["harm", "--locks", "shfl,bravo-2d-shfl-rw,glibc", "--threads", "2", "--json", "-"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let documents: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let documents = documents.as_array().unwrap();
    assert_eq!(documents.len(), 5);
    for document in documents {
        let locks =
            document["points"].as_array().unwrap().iter().map(|point| point["lock"].as_str().unwrap());
        let rw = document["workload"] == "file-sections";
        // A library's name stands for the kind that is needed.
        let expected = if rw { &["shfl-rw", "bravo-2d-shfl-rw", "glibc-rw"][..] } else { &["shfl", "glibc"] };
        assert_eq!(locks.collect::<Vec<_>>(), expected, "{}", document["workload"]);
    }
    // Without a reader-writer lock to compare.
    let output = bench(&["harm", "--locks", "ttas", "--threads", "2"]);
    assert!(stdout(&output).contains(" of 4 points"), "{}", stdout(&output));
    assert!(!stdout(&output).contains("file-sections"));
    for (arguments, words) in [
        (["--locks", "glibc"], "nothing to compare"),
        (["--locks", "mcz"], "there is no lock called"),
        (["--plot", "x.svg"], "--plot is for one workload"),
    ] {
        let refused = bench(&[&["harm"][..], &arguments].concat());
        assert_eq!(refused.status.code(), Some(2), "{arguments:?}");
        assert!(stderr(&refused).contains(words), "{}", stderr(&refused));
    }
}
