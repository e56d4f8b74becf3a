//! The comparison as a Markdown table, and as comma-separated values.

use super::candidates::Measure;
use super::json;
use super::plan::Plan;
use super::report;
use super::results::Results;
use super::verdict;
use latchwork_console::stats::Summary;
use latchwork_console::table;

/// The table that is printed, as Markdown, with the machine and the rule below it.
pub fn markdown(plan: &Plan, results: &Results) -> String {
    let lines = report::lines(plan, results);
    let (head, candidates) = lines.split_first().expect("a header");
    let mut text = table::markdown_head(head, |column| (1..head.len() - 1).contains(&column));
    candidates.iter().for_each(|line| text += &table::markdown_row(line));
    text + &format!(
        "\n{}. Medians; in brackets the spread (distance of the quartiles). x: median ratio to glibc's run of the same \
         round. {} rounds. Rule: {}.\n",
        results.machine.line(),
        results.candidates[0].runs.len(),
        verdict::rule(results.locks())
    )
}

/// A header, and a line for each candidate: names, verdict, and of each measure the median, least, greatest, spread and
/// ratio to glibc, in seconds, bytes and plain numbers. What was not measured is empty.
pub fn csv(plan: &Plan, results: &Results) -> String {
    let measures = Measure::all(plan.metric.is_some());
    let mut header: Vec<_> =
        ["label", "mutex", "rwlock", "verdict", "chance", "runs"].map(String::from).to_vec();
    for measure in measures {
        header.extend(
            ["median", "min", "max", "spread", "ratio"].map(|what| format!("{}_{what}", measure.key())),
        );
    }
    let mut text = header.join(",") + "\n";
    for (candidate, judgement) in results.candidates.iter().zip(results.judgements(plan)) {
        let choice = &candidate.choice;
        let chance =
            judgement.and_then(|(_, chance)| chance).map_or(String::new(), |chance| format!("{chance:.3e}"));
        let mut line = vec![choice.label(), choice.mutex.clone(), choice.rwlock.clone()];
        line.extend([json::verdict(candidate, judgement).into(), chance, candidate.runs.len().to_string()]);
        for measure in measures {
            let values = Summary::of(&candidate.values(*measure));
            let ratios = Summary::of(&candidate.ratios(&results.candidates[0], *measure));
            let figures = values.map(|values| [values.median, values.min, values.max, values.spread]);
            line.extend(
                figures.map_or_else(Default::default, |figures| figures.map(|figure| figure.to_string())),
            );
            line.push(ratios.map_or_else(String::new, |ratios| ratios.median.to_string()));
        }
        text += &(line.join(",") + "\n");
    }
    text
}
