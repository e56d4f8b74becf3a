//! `latchwork reproduce`.

mod common;

use common::{output, scratch, stderr, stdout};
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
fn a_claim_that_does_not_hold_is_shown_as_that_and_with_a_reason() {
    let run = output(&["reproduce", "--only", "shfl-table1-bytes"]);
    assert_eq!(run.status.code(), Some(0), "a claim is not an error of the program");
    let text = stdout(&run);
    let row = text.lines().find(|line| line.contains(" does not hold ")).expect("the verdict");
    assert!(row.contains("16") && row.len() > 100, "our bytes, and why: {row}");
    assert!(text.contains("0 of 1 claims hold, 1 do not"), "{text}");
}

#[test]
fn the_list_has_every_rule_and_runs_nothing() {
    let list = stdout(&output(&["reproduce", "--list"]));
    for part in [CHEAP, "bravo-rwbench-f", "bueso-mcs", "section 6.3, figure 11a"] {
        assert!(list.contains(part), "{part}");
    }
    let one = stdout(&output(&["reproduce", "--list", "--only", "bueso-mcs"]));
    assert!(one.contains("rule: mcs / ticket >= 1.7 with 120 threads, home=local"), "{one}");
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

#[test]
fn ctrl_c_prints_what_there_is() {
    let child = common::latchwork()
        .args(["reproduce", "--only", "bravo", "--runs", "100"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    std::thread::sleep(std::time::Duration::from_millis(700));
    // SAFETY: our own child, which is not reaped before the wait below.
    unsafe { libc::kill(child.id() as i32, libc::SIGINT) };
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let text = stdout(&output);
    // Bytes of a lock need no run.
    let row = |id: &str| text.lines().rfind(|line| line.trim_start().starts_with(id)).unwrap().to_owned();
    assert!(text.contains("Interrupted") && row("bravo-bytes-pf-t").contains(" holds "), "{text}");
    assert!(row("bravo-rwbench-f").contains("not shown"), "{text}");
}
