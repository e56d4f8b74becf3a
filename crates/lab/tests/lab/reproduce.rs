//! `latchwork-lab reproduce`.

use crate::bench::interrupt;
use crate::common::{output, scratch, stderr, stdout};
use serde_json::Value;

/// A claim that takes little to test, in a debug build too.
const CHEAP: &str = "shfl-table1-atomics";

#[test]
fn a_claim_is_tested_from_its_rule_to_the_report() {
    let scratch = scratch("reproduce");
    let report = scratch.join("report");
    let json = scratch.join("claims.json");
    let page = scratch.join("claims.md");
    let paths = [&report, &json, &page].map(|path| path.to_str().unwrap());
    let options = ["--seconds", "0.0002", "--runs", "2", "--report", paths[0], "--json", paths[1]];
    let run = output(&[&["reproduce", "--only", CHEAP][..], &options, &["--markdown", paths[2]]].concat());
    assert_eq!(run.status.code(), Some(0), "{}", stderr(&run));
    let text = stdout(&run);
    let rule = text.find("rule: atomic instructions per operation of tas in 0.99 .. 1.01").expect("the rule");
    let verdict = text.find(" holds ").expect("the verdict");
    assert!(rule < verdict, "the rule is printed before the run\n{text}");
    assert!(text.contains("1 of 1 claims hold"), "{text}");

    let document: Value = serde_json::from_str(&std::fs::read_to_string(json).unwrap()).unwrap();
    assert_eq!(document["claims"].as_array().unwrap().len(), 1);
    let claim = &document["claims"][0];
    assert_eq!((&claim["id"], &claim["verdict"]), (&CHEAP.into(), &"holds".into()));
    // What table 1 says of tas, mcs, and both forms of ShflLock.
    let ours: Vec<f64> =
        claim["checks"].as_array().unwrap().iter().map(|check| check["ours"].as_f64().unwrap()).collect();
    assert_eq!(ours, [1.0, 2.0, 1.0, 1.0]);
    assert_eq!(document["experiments"][0]["points"].as_array().unwrap().len(), 8);

    let html = std::fs::read_to_string(report.join("index.html")).unwrap();
    assert!(html.contains("<svg") && html.contains("id=\"uncontended\""), "the plot is in the page");
    for outside in ["src=", "href=\"http", "url(", "@import"] {
        assert!(!html.contains(outside), "the page needs {outside}");
    }
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains(CHEAP) && page.contains("**holds**"), "{page}");
}

#[test]
fn a_claim_whose_rule_is_missed_on_purpose_is_shown_as_that_and_with_a_reason() {
    let run = output(&["reproduce", "--only", "shfl-table1-bytes"]);
    assert_eq!(run.status.code(), Some(0), "a claim is not an error of the program");
    let text = stdout(&run);
    let row = text.lines().find(|line| line.contains(" different by design ")).expect("the verdict");
    assert!(row.contains("16") && row.len() > 100, "our bytes, and why: {row}");
    assert!(
        text.contains("0 of 1 claims hold, 0 depend, 0 are contradicted, 1 are different by design"),
        "{text}"
    );
}

#[test]
fn the_list_has_every_rule_and_runs_nothing() {
    let list = stdout(&output(&["reproduce", "--list"]));
    for part in [CHEAP, "bravo-rwbench-f", "bueso-mcs", "section 6.3, figure 11a"] {
        assert!(list.contains(part), "{part}");
    }
    let one = stdout(&output(&["reproduce", "--list", "--only", "bueso-mcs"]));
    assert!(one.contains("rule: mcs / ticket >= 1.7 with 120 threads, home=local"), "{one}");
    assert!(one.contains("on: 8x15\n"), "where it is tested: {one}");
    assert!(list.contains("on: here\n") && list.contains("on: power4\n"));
    assert!(!one.contains("bravo-rwbench"), "{one}");
}

#[test]
fn wrong_arguments_get_one_line_and_2() {
    let unknown = output(&["reproduce", "--only", "bravo-alternatr"]);
    let message = stderr(&unknown);
    assert_eq!(unknown.status.code(), Some(2));
    assert_eq!(message.lines().count(), 1, "{message}");
    assert!(message.contains("did you mean bravo-alternator?"), "{message}");
    assert!(message.contains("bueso-mcs"), "all ids are named: {message}");

    let scratch = scratch("reproduce-refused");
    let measurements = scratch.join("measurements");
    let ignored = output(&["reproduce", "--only", CHEAP, "--measurements", measurements.to_str().unwrap()]);
    assert_eq!(ignored.status.code(), Some(2), "only the claim `simulator` uses them");
    assert!(stderr(&ignored).contains("`simulator`") && !measurements.exists(), "{}", stderr(&ignored));
    let file = scratch.join("file");
    std::fs::write(&file, "not a directory").unwrap();
    let below = file.join("report");
    for (option, path) in [("--report", &file), ("--report", &below), ("--json", &scratch)] {
        let refused = output(&["reproduce", "--only", CHEAP, option, path.to_str().unwrap()]);
        assert_eq!(refused.status.code(), Some(2), "{option} {path:?}");
        let message = stderr(&refused);
        assert!(message.lines().count() == 1 && message.contains(option), "{message}");
        assert!(refused.stdout.is_empty(), "nothing is run");
    }
}

/// Looks at the small table only, which takes seconds in a debug build too.
const HERE: &str = "mckenney-here-hazard-fences";

#[test]
fn what_two_cpus_can_show_is_measured_here_and_shown_as_that() {
    let scratch = scratch("reproduce-here");
    let (report, json, page) =
        (scratch.join("report"), scratch.join("claims.json"), scratch.join("claims.md"));
    let paths = [&report, &json, &page].map(|path| path.to_str().unwrap());
    let state = scratch.join("runs.jsonl");
    let state = state.to_str().unwrap();
    let options = ["--runs", "1", "--report", paths[0], "--json", paths[1], "--markdown", paths[2]];
    let run = output(&[&["reproduce", "--only", HERE, "--state", state][..], &options].concat());
    assert_eq!(run.status.code(), Some(0), "{}", stderr(&run));
    let text = stdout(&run);
    let row = text.lines().rfind(|line| line.trim_start().starts_with(HERE)).expect("the claim");
    assert!(row.contains(" here ") && text.contains("Here is "), "{text}");

    let document: Value = serde_json::from_str(&std::fs::read_to_string(&json).unwrap()).unwrap();
    let (claim, experiment) = (&document["claims"][0], &document["experiments"][0]);
    let verdict = claim["verdict"].as_str().unwrap();
    assert!(["holds", "depends", "contradicted", "cannot be shown here"].contains(&verdict), "{verdict}");
    assert_eq!(claim["on"], serde_json::json!(["here"]));
    assert_eq!((&experiment["machine"], &experiment["simulated"]), (&"here".into(), &false.into()));
    let points = experiment["points"].as_array().unwrap();
    assert_eq!(points.len(), 20, "ten locks, one thread and two");
    let cpus = std::thread::available_parallelism().unwrap().get() as u64;
    for point in points {
        let runs = 3 * usize::from(point["threads"].as_u64().unwrap() <= cpus);
        assert_eq!(point["ops_per_s"].as_array().unwrap().len(), runs, "{point}");
    }
    let turns = document["here"]["transfer_ns"].as_array().unwrap().len();
    assert_eq!(turns, 3 * cpus.min(2) as usize, "three for each number of threads");

    let html = std::fs::read_to_string(report.join("index.html")).unwrap();
    assert!(html.contains("id=\"here-small\"") && html.contains("latchwork-lab bench hashtable-strategies"));
    let text = std::fs::read_to_string(&page).unwrap();
    assert!(text.contains(&format!("| {HERE} | here |")) && text.contains("Here is "), "{text}");

    // What was measured is printed again from the file.
    let before = self::page(&page);
    let options = ["--runs", "1", "--from-state", state, "--markdown", paths[2]];
    let again = output(&[&["reproduce", "--only", HERE][..], &options].concat());
    assert_eq!(again.status.code(), Some(0), "{}", stderr(&again));
    assert_eq!(before, self::page(&page));
}

#[test]
fn one_cpu_cannot_show_what_takes_two() {
    let run = crate::on_one_cpu().args(["reproduce", "--runs", "1", "--only", HERE]).output().unwrap();
    assert_eq!(run.status.code(), Some(0), "{}", stderr(&run));
    let text = stdout(&run);
    let row = text.lines().rfind(|line| line.trim_start().starts_with(HERE)).expect("the claim");
    assert!(
        row.contains("cannot be shown here") && row.contains("it needs 2 CPUs, and this machine has 1"),
        "{row}"
    );
}

/// What is printed if Ctrl-C comes early.
fn interrupted(claims: &str) -> String {
    let output = interrupt(&["reproduce", "--only", claims, "--runs", "100"]);
    assert_eq!(output.status.code(), Some(130));
    let text = stdout(&output);
    assert!(text.contains("Interrupted"), "{text}");
    text
}

#[test]
fn ctrl_c_prints_what_there_is() {
    let text = interrupted("bravo");
    // Bytes of a lock need no run.
    let row = |id: &str| text.lines().rfind(|line| line.trim_start().starts_with(id)).unwrap().to_owned();
    assert!(row("bravo-bytes-pf-t").contains(" holds "), "{text}");
    assert!(row("bravo-rwbench-f").contains("cannot be shown here"), "{text}");
    // Measured, not simulated.
    let here = interrupted("mckenney-here");
    assert!(
        here.lines()
            .rfind(|line| line.contains("mckenney-here-memory"))
            .unwrap()
            .contains("cannot be shown here")
    );
}

/// The page without what is measured here, and without the time that the run took.
fn page(path: &std::path::Path) -> String {
    let text = std::fs::read_to_string(path).unwrap();
    let measured = |line: &&str| {
        // The first line has the path of this very page.
        ["<!-- generated", "<!-- machine", "This run took", "This page was printed"]
            .iter()
            .any(|start| line.starts_with(start))
    };
    text.lines().filter(|line| !measured(line)).collect::<Vec<_>>().join("\n")
}

#[test]
fn shards_and_a_run_that_is_resumed_give_the_page_of_one_run() {
    let scratch = scratch("reproduce-shards");
    let at = |name: &str| scratch.join(name).to_str().unwrap().to_owned();
    let run = |more: &[&str]| {
        let only = ["reproduce", "--only", CHEAP, "--seconds", "0.0002", "--runs", "2", "--sensitivity"];
        let run = output(&[&only, more].concat());
        assert_eq!(run.status.code(), Some(0), "{}", stderr(&run));
        run
    };
    let lines = |name: &str| std::fs::read_to_string(scratch.join(name)).unwrap().lines().count();
    run(&["--markdown", &at("one.md"), "--state", &at("one.jsonl")]);
    let known = lines("one.jsonl");
    assert!(known > 8 + 4 + 9 * 4, "a seed of 8 locks, another one of 4, and nine variants of 4");
    run(&["--markdown", &at("again.md"), "--state", &at("one.jsonl")]);
    assert_eq!(lines("one.jsonl"), known, "nothing is simulated again");

    for part in ["1/2", "2/2"] {
        let state = at(&format!("{}.jsonl", &part[..1]));
        let run = run(&["--shard", part, "--state", &state]);
        assert!(stdout(&run).starts_with(&format!("Shard {} of 2 is done", &part[..1])), "{}", stdout(&run));
    }
    let both = format!("{},{}", at("1.jsonl"), at("2.jsonl"));
    run(&["--markdown", &at("merged.md"), "--merge", &both, "--state", &at("rest.jsonl")]);
    assert_eq!(lines("rest.jsonl"), 1, "the shards have all of it");
    let one = page(&scratch.join("one.md"));
    assert_eq!(one, page(&scratch.join("again.md")));
    assert_eq!(one, page(&scratch.join("merged.md")));
    assert!(one.contains("| 9 of 9 |"), "the share of the space: {one}");
    assert!(
        one.contains(
            "1 of the 1 that were run over their space hold: 1 in at least half of it, 1 in all of it"
        ),
        "{one}"
    );

    // The files alone give the page as well. Where they do not have all of the space, the claim has no share.
    let printed = |name: &str, files: &str| {
        let state = ["--from-state", files, "--markdown", &at(name)];
        let options = ["reproduce", "--only", CHEAP, "--seconds", "0.0002", "--runs", "2", "--sensitivity"];
        let run = output(&[&options[..], &state].concat());
        assert_eq!(run.status.code(), Some(0), "{}", stderr(&run));
        page(&scratch.join(name))
    };
    assert_eq!(one, printed("printed.md", &at("one.jsonl")));
    assert_eq!(one, printed("printed.md", &both));
    let text = std::fs::read_to_string(scratch.join("one.jsonl")).unwrap();
    let some: Vec<&str> = text.lines().filter(|line| !line.contains("|joint 8|")).collect();
    std::fs::write(scratch.join("some.jsonl"), some.join("\n") + "\n").unwrap();
    let some = printed("some.md", &at("some.jsonl"));
    assert!(some.contains("0 of the 1 simulated claims were also run over the space"), "{some}");
    assert!(some.contains(&format!("may depend on them, too: {CHEAP}.")), "{some}");
    assert!(!some.contains(" of 9") && some.contains("**1 of 1 claims hold"), "{some}");

    // A run that was ended while it wrote a line goes on after the line before.
    let text = std::fs::read_to_string(scratch.join("one.jsonl")).unwrap();
    std::fs::write(scratch.join("torn.jsonl"), &text[..text.len() - 20]).unwrap();
    run(&["--markdown", &at("torn.md"), "--state", &at("torn.jsonl")]);
    assert_eq!(lines("torn.jsonl"), known);
    assert_eq!(one, page(&scratch.join("torn.md")));

    for wrong in [["--shard", "3/2"], ["--shard", "0/2"], ["--shard", "1"]] {
        let refused = output(&["reproduce", "--only", CHEAP, "--state", &at("x.jsonl"), wrong[0], wrong[1]]);
        assert_eq!(refused.status.code(), Some(2), "{wrong:?}");
    }
    // A shard prints no answers, so it has nothing to write there.
    for ignored in ["--json", "--markdown", "--report", "--measurements"] {
        let only = ["reproduce", "--only", CHEAP, "--shard", "1/2", "--state", &at("x.jsonl")];
        let refused = output(&[&only[..], &[ignored, &at("ignored")]].concat());
        assert_eq!(refused.status.code(), Some(2), "{ignored}: {}", stderr(&refused));
    }
    let alone = output(&["reproduce", "--only", CHEAP, "--shard", "1/2"]);
    assert_eq!(alone.status.code(), Some(2), "a shard needs a file: {}", stderr(&alone));
    let other = output(&["reproduce", "--only", CHEAP, "--merge", &at("one.md")]);
    assert_eq!(other.status.code(), Some(2));
    assert!(stderr(&other).contains("not a file of simulated runs"), "{}", stderr(&other));
}

/// A file that has no room for all lines ends after a whole one, so the run can be resumed.
#[test]
fn a_shard_whose_runs_are_not_all_written_fails() {
    let scratch = scratch("reproduce-full");
    let state = scratch.join("state.jsonl");
    let state = state.to_str().unwrap();
    let shard = [
        "reproduce",
        "--only",
        CHEAP,
        "--seconds",
        "0.0002",
        "--runs",
        "1",
        "--shard",
        "1/1",
        "--state",
        state,
    ];
    // No file may grow beyond 2 blocks, of 512 or 1024 bytes.
    let limited = std::process::Command::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -f 2; exec \"$@\"", "sh", super::COMMAND])
        .args(shard)
        .output()
        .unwrap();
    let message = stderr(&limited);
    assert_eq!(limited.status.code(), Some(1), "{message}{}", stdout(&limited));
    assert!(message.contains("could not be written"), "{message}");
    assert!(std::fs::read_to_string(state).unwrap().ends_with("}\n"));
    let resumed = output(&shard);
    assert_eq!(resumed.status.code(), Some(0), "{}", stderr(&resumed));
}

#[test]
fn the_page_begins_with_statements_that_have_plots() {
    let scratch = scratch("reproduce-statements");
    let (page, report) = (scratch.join("claims.md"), scratch.join("report"));
    let paths = [&page, &report].map(|path| path.to_str().unwrap());
    let only = [
        "reproduce",
        "--only",
        "bravo-page-fault-many,bravo-page-fault-few",
        "--seconds",
        "0.0002",
        "--runs",
        "1",
    ];
    let run = output(&[&only[..], &["--markdown", paths[0], "--report", paths[1]]].concat());
    assert_eq!(run.status.code(), Some(0), "{}", stderr(&run));
    let text = std::fs::read_to_string(&page).unwrap();
    let statement = text.find("(claims/bravo-page-fault-many.svg)").expect("the plot is shown");
    assert!(statement < text.find("## How to read the verdicts").expect("a heading"), "{text}");
    assert!(!text.contains("bravo-page-fault-few.svg"), "it is none of the ten");
    let plot = std::fs::read_to_string(scratch.join("claims/bravo-page-fault-many.svg")).unwrap();
    assert!(
        plot.starts_with("<svg") && plot.contains("bravo-rwsem-4.20 / rwsem-4.20") && plot.len() < 20_000,
        "{plot}"
    );
    let html = std::fs::read_to_string(report.join("index.html")).unwrap();
    assert!(html.contains("<summary>raw numbers</summary>"), "the numbers are in the report");
}
