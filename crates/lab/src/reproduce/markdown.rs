//! docs/reproduction.md.

use super::claims::Paper;
use super::document::{Answer, Document};
use super::rule::{GLOSSARY, number};
use super::table::tightest;
use crate::generated;
use std::fmt::Write as _;

const INTRODUCTION: &str = "\
# The papers' claims

The laboratory prints this page (`latchwork-lab reproduce --markdown docs/reproduction.md`); do not edit it. Each claim
of the papers that the locks of this library can show has a rule, which was stated before the run in
`crates/lab/src/reproduce/claims`. The claim *holds* if every run meets all parts of the rule. It *does not hold* if no
run meets all of them. It is *not shown* otherwise. A row shows the part of the rule that is missed by most or met by
least, and our number there. `on` says what the claim was tested on: a simulated machine, whose runs differ in their
seed, or `here`, the machine named below, whose runs are rounds in which all locks take turns.

To repeat the run:

    cargo run --release --bin latchwork-lab -- reproduce --markdown docs/reproduction.md --report report --json claims.json

`--report` writes a page with all parts of the rules and the plots, `--json` every number. The simulated claims come
out the same on every machine, as long as locks, simulator and seeds are the same; `latchwork-lab reproduce --only ID`
repeats one of them. What is tested `here` depends on the machine and on the other programs that use it.
";

/// The page.
pub fn text(document: &Document) -> String {
    let mut text = generated::head(&document.machine.line()) + INTRODUCTION;
    let seeds = document.effort.runs;
    let first = document.effort.seed;
    writeln!(
        text,
        "\n**{}**\n\nlatchwork {}, {seeds} runs, seeds from {first}, in {:.0} seconds on {}. Rates are medians over the runs.\n",
        document.summary(),
        env!("CARGO_PKG_VERSION"),
        document.took.as_secs_f64(),
        document.machine.line()
    )
    .expect("a String");
    if document.interrupted.is_some() {
        text += "The run was interrupted.\n\n";
    }
    text += "The papers say much in words. They mean the same numbers everywhere:\n\n| words | means |\n|---|---|\n";
    for (words, meaning) in GLOSSARY {
        writeln!(text, "| {words} | {meaning} |").expect("a String");
    }
    for paper in Paper::ALL {
        let answers = document.of(paper);
        if answers.is_empty() {
            continue;
        }
        writeln!(text, "\n## {}\n\n{}\n", paper.title(), paper.setting()).expect("a String");
        text += "| claim | on | the paper | its number | ours | rule | verdict |\n|---|---|---|---|---|---|---|\n";
        for answer in &answers {
            text += &row(answer);
        }
        if let Some(here) = document.here().filter(|_| paper == Paper::McKenneyHere) {
            writeln!(text, "\n{here}").expect("a String");
        }
        if paper == Paper::Simulator {
            text += &comparison(document);
        }
    }
    text
}

fn row(answer: &Answer) -> String {
    let (rule, ours) = tightest(answer);
    let why = answer.why();
    let why = if why.is_empty() { why } else { format!(": {why}") };
    let claim = &answer.claim;
    format!(
        "| {} | {} | {} ({}) | {} | {} | {} | **{}**{} |\n",
        claim.id,
        claim.on().join(", "),
        cell(claim.says),
        cell(claim.place),
        cell(claim.number),
        ours,
        cell(&rule),
        answer.judged.verdict.text(),
        cell(&why)
    )
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

fn comparison(document: &Document) -> String {
    let Some(comparison) = &document.comparison else { return String::new() };
    let mut text = format!("\n{}\n", comparison.sentence());
    if comparison.disagree.is_empty() {
        return text;
    }
    text += "\nThe pairs that disagree (ratios of the first to the second):\n\n\
             | workload | threads | measured faster | measured slower | measured | simulated |\n\
             |---|---|---|---|---|---|\n";
    for pair in &comparison.disagree {
        writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} |",
            pair.workload,
            pair.threads,
            pair.faster,
            pair.slower,
            number(pair.measured),
            number(pair.simulated)
        )
        .expect("a String");
    }
    text
}
