//! `latchwork-lab ablate`.

use crate::common::{output, scratch, stderr, stdout};
use serde_json::Value;

/// As short as a debug build needs.
const SHORT: [&str; 4] = ["--seconds", "0.00005", "--runs", "1"];

#[test]
fn the_variants_of_each_lock_run_at_every_point() {
    let directory = scratch("ablate");
    let page = directory.join("ablate.md");
    // All variants of the reader-writer locks would take half a minute in a debug build.
    for (lock, name, only, points) in [
        ("shfl", "shfl", "", 27),
        ("shfl-rw", "shfl-rw", "shuffling,requeue", 54),
        ("bravo", "bravo-2d-shfl-rw", "bias,in a row", 54),
    ] {
        let page = page.to_str().unwrap();
        let what = ["ablate", lock, "--only", only, "--machine", "2x1", "--json", "-", "--markdown", page];
        let output = output(&[&what[..], &SHORT].concat());
        assert!(output.status.success(), "{lock}: {}", stderr(&output));
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(document["lock"], name);
        let all = document["points"].as_array().unwrap();
        assert_eq!(all.len(), points, "{lock}");
        for point in all {
            let variants = point["variants"].as_array().unwrap();
            assert_eq!((&variants[0]["share"], &variants[1]["mechanism"]), (&1.0.into(), &"none".into()));
            for variant in variants {
                assert!(variant["ops_per_s"].as_f64().unwrap() > 0.0, "{lock}: {variant}");
            }
        }
        let text = std::fs::read_to_string(page).unwrap();
        assert!(text.starts_with("<!-- generated: latchwork-lab ablate "), "{text}");
        assert_eq!(
            text.lines().filter(|line| line.starts_with("| hold=") || line.starts_with("| writes=")).count(),
            points
        );
    }
}

#[test]
fn one_mechanism_can_be_chosen_and_an_unknown_one_is_refused() {
    let run = |only| output(&[&["ablate", "shfl", "--machine", "1x2", "--only", only][..], &SHORT].concat());
    let text = stdout(&run("batches"));
    assert!(text.contains("\n NUMA batches ") && !text.contains("role handed on"), "{text}");
    let refused = run("no-such-part");
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("there are: NUMA batches"), "{}", stderr(&refused));
}

#[test]
fn variants_run_on_this_machine_too() {
    let output =
        output(&["ablate", "shfl", "--native", "--only", "batches", "--seconds", "0.0005", "--runs", "1"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stdout(&output).contains("\n none "), "{}", stdout(&output));
}
