//! The comparison as a table and a few sentences.

use super::candidates::{self, Candidate, Failed, Judgement, Measure};
use super::plan::Plan;
use super::results::Results;
use super::tail::tail;
use super::verdict::{self, Better, NOTABLE, Verdict};
use latchwork_console::names::GLIBC;
use latchwork_console::output::shell_word;
use latchwork_console::{stats, table};

/// All of it.
pub fn text(plan: &Plan, results: &Results) -> String {
    let mut text = String::new();
    let glibc = &results.candidates[0];
    if results.interrupted.is_some() {
        text += "Interrupted; what was measured until then:\n";
    }
    if results.failure.is_some() {
        text += "Ended by a failure, which stands on stderr; what was measured until then:\n";
    }
    if glibc.runs.is_empty() {
        return text + "nothing yet.\n";
    }
    let mut lines = lines(plan, results).into_iter();
    let header = lines.next().expect("a header");
    let last = header.len() - 1;
    let mut table = table::new(header);
    table.add_rows(lines);
    table::right(&mut table, 1..last);
    text += &format!("{}\n\n{}\n\n", results.machine.line(), table.trim_fmt());
    text += "Medians; in brackets the spread (distance of the quartiles). x: median ratio to glibc's run of the \
             same\nround.\n";
    if let Some(metric) = &plan.metric
        && !plan.built_in
    {
        let which = if metric.better == Better::Higher { "more" } else { "less" };
        text += &format!("metric: {} ({which} is better).\n", metric.expression());
    }
    for (labels, failure) in failures(&results.candidates) {
        text += &format!("\n{} failed {failure}\n", labels.join(", "));
    }
    text += "\n";
    if !results.left_running.is_empty() && plan.metric.is_none() {
        let names = results.left_running.join(", ");
        text += &format!(
            "No lock is recommended: the program left {names} running in the background, and what was measured may \
             be only its start.\nThe warning on stderr says what to compare instead. Or compare by a number in its output \
             (--metric).\n"
        );
    } else {
        text += &conclusion(plan, results);
    }
    text
}

/// The locks that failed alike, with when and why.
fn failures(candidates: &[Candidate]) -> Vec<(Vec<String>, String)> {
    let mut failures: Vec<(Vec<String>, String)> = Vec::new();
    for candidate in candidates {
        let Some(Failed { round, why, output }) = &candidate.failed else { continue };
        let when = round.map_or("warm-up".into(), |round| format!("round {}", round + 1));
        let failure = format!("in {when}: {why}{}", tail(output));
        match failures.iter_mut().find(|(_, known)| *known == failure) {
            Some((labels, _)) => labels.push(candidate.choice.label()),
            None => failures.push((vec![candidate.choice.label()], failure)),
        }
    }
    failures
}

/// The table: its header, and a line for each candidate. The last column is the verdict.
pub fn lines(plan: &Plan, results: &Results) -> Vec<Vec<String>> {
    let measures = Measure::all(plan.metric.is_some());
    let glibc = &results.candidates[0];
    let mut header = vec!["lock".to_owned()];
    for measure in measures {
        header.extend([plan.name(*measure).to_owned(), "x".to_owned()]);
    }
    header.push("verdict".to_owned());
    let line = |(candidate, judgement): (&Candidate, Option<Judgement>)| {
        let mut line = vec![candidate.choice.label()];
        for measure in measures {
            let values = candidate.values(*measure);
            let ratios = candidate.ratios(glibc, *measure);
            line.push(if values.is_empty() { "-".into() } else { value(*measure, &values) });
            line.push(if ratios.is_empty() { "-".into() } else { ratio(stats::median(&ratios)) });
        }
        line.push(match judgement {
            _ if candidate.failed.is_some() => "failed".into(),
            Some((verdict, _)) => verdict.text(),
            None => "baseline".into(),
        });
        line
    };
    let candidates = results.candidates.iter().zip(results.judgements(plan)).map(line);
    std::iter::once(header).chain(candidates).collect()
}

fn value(measure: Measure, values: &[f64]) -> String {
    let middle = stats::median(values);
    let shown = match measure {
        Measure::Wall | Measure::Cpu if middle < 1.0 => format!("{:.0} ms", middle * 1e3),
        Measure::Wall | Measure::Cpu => format!("{middle:.2} s"),
        Measure::Memory => format!("{:.1} MiB", middle / f64::from(1 << 20)),
        Measure::Metric | Measure::Switches => short(middle),
    };
    if values.len() < stats::FEWEST {
        shown
    } else {
        format!("{shown} ({:.0}%)", stats::spread(values) * 100.0)
    }
}

/// Three digits and a decimal prefix.
fn short(number: f64) -> String {
    let (scaled, prefix) = match number.abs() {
        1e9.. => (number / 1e9, " G"),
        1e6.. => (number / 1e6, " M"),
        1e4.. => (number / 1e3, " k"),
        _ => (number, ""),
    };
    let decimals = match scaled.abs() {
        100.0.. => 0,
        10.0.. => 1,
        _ if prefix.is_empty() && scaled.fract() == 0.0 => 0,
        _ => 2,
    };
    format!("{scaled:.decimals$}{prefix}")
}

fn ratio(ratio: f64) -> String {
    match ratio {
        10.0.. => format!("{ratio:.0}"),
        ..0.095 => format!("{ratio:.3}"),
        _ => format!("{ratio:.2}"),
    }
}

fn conclusion(plan: &Plan, results: &Results) -> String {
    let candidates = &results.candidates;
    let (name, locks) = (plan.name(plan.deciding()), results.locks());
    let judgements = results.judgements(plan);
    let mut judged = judgements.iter().flatten();
    if locks == 0 && candidates.len() > 1 {
        return "No lock was compared: each has failed.\n".into();
    }
    if locks > 0 && judged.all(|(verdict, _)| *verdict == Verdict::TooFew) {
        let of = if locks == 1 { "a lock".to_owned() } else { format!("{locks} locks") };
        let needed = verdict::rounds_needed(locks);
        return format!("Too few complete rounds to judge {of}: that takes at least {needed}.\n");
    }
    let rule = format!("Rule: {}.\n", verdict::rule(locks));
    let Some((best, alike)) = candidates::best(candidates, plan.deciding(), plan.better()) else {
        let mut text = format!("No lock here is sure to serve the program better than {GLIBC}, by {name}.\n");
        let perhaps =
            (1..candidates.len()).filter_map(|index| perhaps(plan, results, index, judgements[index]?.0));
        let names = perhaps.collect::<Vec<_>>().join(", ");
        if !names.is_empty() {
            text += &format!(
                "Perhaps {names}, but that may be chance: take more --runs, fewer locks, or a quieter machine.\n"
            );
        }
        return text + &rule;
    };
    let label = candidates[best].choice.label();
    let middle = stats::median(&candidates[best].ratios(&candidates[0], plan.deciding()));
    let mut text = format!("{label} serves the program best: {middle:.2} times {GLIBC}'s {name}.\n");
    if !alike.is_empty() {
        let names: Vec<_> = alike.iter().map(|index| candidates[*index].choice.label()).collect();
        text += &format!("Not distinguishable from it here: {}.\n", names.join(", "));
    }
    let options = candidates[best].choice.options();
    let program = if plan.built_in { "./your-program".into() } else { shell_words(plan) };
    let programs = plan.programs.options();
    text += &format!("Keep it with:\n  latchwork run {options} {programs}-- {program}\n");
    if plan.built_in {
        text +=
            "This was the built-in program; ask about yours with `latchwork compare -- ./your-program`.\n";
    }
    text + &rule
}

/// The name and median ratio of a lock that is notably better by its median, although chance may explain that.
fn perhaps(plan: &Plan, results: &Results, index: usize, verdict: Verdict) -> Option<String> {
    let candidate = &results.candidates[index];
    let middle = stats::median(&candidate.ratios(&results.candidates[0], plan.deciding()));
    let gain = if plan.better() == Better::Higher { middle - 1.0 } else { 1.0 - middle };
    let notable = verdict == Verdict::Noise && gain > NOTABLE;
    notable.then(|| format!("{} ({middle:.2} times)", candidate.choice.label()))
}

/// The command as one could type it.
fn shell_words(plan: &Plan) -> String {
    plan.subject
        .command()
        .iter()
        .map(|word| shell_word(&word.to_string_lossy()))
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let texts = [0.0, 7.0, 0.5, 9999.0, 12345.0, 1_234_567.0, 5.0e9].map(short);
        assert_eq!(texts, ["0", "7", "0.50", "9999", "12.3 k", "1.23 M", "5.00 G"]);
        assert_eq!([0.0123, 0.5, 2.345, 83.2].map(ratio), ["0.012", "0.50", "2.35", "83"]);
        assert_eq!(value(Measure::Wall, &[0.25]), "250 ms");
        assert_eq!(value(Measure::Wall, &[1.8, 2.0, 2.2]), "2.00 s (10%)");
        assert_eq!(value(Measure::Memory, &[3.0 * 1048576.0]), "3.0 MiB");
    }
}
