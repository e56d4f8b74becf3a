//! The report: one page that needs nothing else.

use super::claims::Paper;
use super::document::{Answer, Document};
use super::experiment::Ready;
use super::judge::{Checked, Verdict};
use super::picture;
use super::rule::{GLOSSARY, number};
use super::sensitivity::Point;
use super::statements;
use super::table;
use super::validate::Comparison;
use crate::measure::plot;
use crate::measure::report::rate;
use latchwork_console::failure::{Failure, Result};

const STYLE: &str = "\
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1240px; margin: 2em auto; padding: 0 1em; color: #222; background: #fff }
h1, h2, h3 { line-height: 1.2 } h2 { margin-top: 2.2em; border-bottom: 1px solid #ccc }
table { border-collapse: collapse; width: 100% } td, th { text-align: left; vertical-align: top; padding: .35em .6em; border-bottom: 1px solid #ddd }
th { background: #f4f4f4 } code { font-size: 13px } td.n { white-space: nowrap; font-variant-numeric: tabular-nums }
.v { font-weight: 600; white-space: nowrap } .holds { color: #17702b } .not { color: #b3261e } .unclear { color: #8a5a00 }
blockquote { margin: 0; font-style: italic } .where { color: #666; font-size: 13px } figure { margin: 1.5em 0 } figure svg { max-width: 100%; height: auto }
figcaption { font-size: 13px; color: #444 } details summary { cursor: pointer; color: #444 } .why { font-size: 14px }
";

/// The page.
pub fn page(document: &Document, ready: &[Ready]) -> Result<String> {
    let mut body = format!(
        "<h1>The papers' claims</h1>\n<p><strong>{}</strong></p>\n<p>latchwork {}, {} runs, seeds from {}, in {:.0} s on {}. Each claim has a rule \
         that was stated before the run. It holds if all parts are met in every run. It is tested on a simulated \
         machine, or here: on the machine just named.</p>\n",
        escape(&document.summary()),
        env!("CARGO_PKG_VERSION"),
        document.effort.runs,
        document.effort.seed,
        document.took.as_secs_f64(),
        escape(&document.machine.line())
    );
    if document.interrupted.is_some() {
        body += "<p class=not>The run was interrupted.</p>\n";
    }
    body += &ten(document)?;
    body += "<details><summary>What the papers' words mean here</summary><table>";
    for (words, meaning) in GLOSSARY {
        body += &format!("<tr><td>{}<td>{}\n", escape(words), escape(meaning));
    }
    body += "</table></details>\n";
    for paper in Paper::ALL {
        let answers = document.of(paper);
        if answers.is_empty() {
            continue;
        }
        body += &format!("<h2>{}</h2>\n<p>{}</p>\n", escape(paper.title()), escape(paper.setting()));
        if let Some(here) = document.here().filter(|_| paper == Paper::McKenneyHere) {
            body += &format!("<p>{}</p>\n", escape(&here));
        }
        body += "<table><tr><th>claim<th>on<th>the paper<th>its number<th>ours<th>rule<th>space<th>verdict\n";
        answers.iter().for_each(|answer| body += &row(answer));
        body += "</table>\n";
        for comparison in document.comparisons.iter().filter(|_| paper == Paper::Simulator) {
            body += &self::comparison(comparison);
        }
        for (one, results) in ready.iter().zip(&document.results) {
            if !answers.iter().any(|answer| answer.claim.experiments().contains(&one.experiment.id)) {
                continue;
            }
            let here = document.machine.line();
            let machine = one.how.as_ref().map_or(&here, |how| &how.profile.summary);
            let svg = plot::text(&one.plan, results, machine)
                .map_err(|error| Failure::new(format!("--report: {error}")))?;
            body += &format!(
                "<figure id=\"{id}\"><h3>{id}</h3>{}<figcaption><code>{}</code></figcaption></figure>\n",
                scalable(&svg),
                escape(&one.experiment.command()),
                id = one.experiment.id
            );
        }
    }
    Ok(format!(
        "<!doctype html>\n<html lang=en>\n<meta charset=utf-8>\n<meta name=viewport content=\"width=device-width\">\n\
         <title>latchwork: the papers' claims</title>\n<style>{STYLE}</style>\n{body}</html>\n"
    ))
}

/// The ten statements: each with its plot, and the raw numbers behind a click.
fn ten(document: &Document) -> Result<String> {
    let mut text = String::new();
    for (at, (statement, answer)) in statements::answered(document).enumerate() {
        if at == 0 {
            text += "<h2>Ten statements</h2>\n";
        }
        let svg =
            picture::svg(statement, answer).map_err(|error| Failure::new(format!("--report: {error}")))?;
        text += &format!(
            "<h3>{}. {}: <span class=\"{}\">{}</span></h3>\n<blockquote>{}</blockquote>\n<p class=where>{}, {}; {}</p>\n\
             <figure>{}</figure>\n{}",
            at + 1,
            escape(statement.title),
            class(&answer.verdict),
            answer.verdict.text(),
            escape(&answer.claim.sentence()),
            answer.claim.paper.name(),
            escape(answer.claim.place),
            answer.claim.id,
            scalable(&svg),
            raw(answer)
        );
    }
    Ok(text)
}

/// The numbers of a plot.
fn raw(answer: &Answer) -> String {
    let line = |(at, check): (usize, &Checked)| {
        let band = answer.space.as_ref().and_then(|space| space.band_of(at));
        let band =
            band.map_or_else(String::new, |(least, most)| format!("{} to {}", number(least), number(most)));
        let runs: Vec<String> = check.runs.iter().map(|value| number(*value)).collect();
        format!(
            "<tr><td>{}<td class=n>{}<td class=n>{}<td class=n>{band}<td>met in {} of {}\n",
            escape(&check.rule),
            value(check),
            runs.join(", "),
            check.met,
            check.runs.len()
        )
    };
    let lines: String = answer.judged.checks.iter().enumerate().map(line).collect();
    format!(
        "<details><summary>raw numbers</summary><table><tr><th>rule<th>median<th>runs<th>over the space<th>\n{lines}</table></details>\n"
    )
}

fn class(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Holds => "holds",
        Verdict::Contradicted => "not",
        _ => "unclear",
    }
}

fn row(answer: &Answer) -> String {
    let class = class(&answer.verdict);
    let claim = &answer.claim;
    let links: Vec<String> =
        claim.experiments().iter().map(|id| format!("<a href=\"#{id}\">{id}</a>")).collect();
    let (rule, ours) = match answer.judged.tightest() {
        None => (String::new(), String::new()),
        Some(check) => (escape(&check.rule), value(check)),
    };
    let rest = match answer.judged.checks.len() {
        0 | 1 => String::new(),
        parts => {
            let line = |check: &Checked| {
                format!(
                    "<tr><td>{}<td class=n>{}<td>met in {} of {}\n",
                    escape(&check.rule),
                    value(check),
                    check.met,
                    check.runs.len()
                )
            };
            let lines: String = answer.judged.checks.iter().map(line).collect();
            format!("<details><summary>all {parts} parts</summary><table>{lines}</table></details>")
        }
    };
    format!(
        "<tr><td><code>{}</code><br><span class=where>{}</span><td>{}<td><blockquote>{}</blockquote><span class=where>{}</span>\
         <td>{}<td class=n>{ours}<td>{rule}{rest}<td>{}{}<td><span class=\"v {class}\">{}</span><br><span class=why>{}</span>\n",
        claim.id,
        links.join(" "),
        claim.on().join(", "),
        escape(&claim.sentence()),
        escape(claim.place),
        escape(claim.number),
        escape(&table::space(answer)),
        points(answer),
        answer.verdict.text(),
        escape(&answer.why())
    )
}

/// Every point of the space.
fn points(answer: &Answer) -> String {
    let Some(space) = &answer.space else { return String::new() };
    let line = |point: &Point| {
        format!(
            "<tr><td>{}<td class=n>{}<td>{}\n",
            escape(&point.variant),
            point.value.map_or_else(|| "-".into(), number),
            if point.holds { "holds" } else { "does not" }
        )
    };
    let lines: String = space.points.iter().map(line).collect();
    format!("<details><summary>all points</summary><table>{lines}</table></details>")
}

fn value(check: &Checked) -> String {
    check.ours.map_or_else(|| "-".into(), number)
}

fn comparison(comparison: &Comparison) -> String {
    let mut text = format!("<p>{}</p>\n", escape(&comparison.sentence()));
    text += "<details open><summary>The pairs that disagree</summary><table><tr><th>workload<th>threads<th>measured \
             faster<th>measured slower<th>measured<th>simulated\n";
    for pair in &comparison.disagree {
        text += &format!(
            "<tr><td>{}<td>{}<td>{}<td>{}<td class=n>{}<td class=n>{}\n",
            pair.workload,
            pair.threads,
            pair.faster,
            pair.slower,
            number(pair.measured),
            number(pair.simulated)
        );
    }
    text += "</table></details>\n<details><summary>All rates</summary><table><tr><th>workload<th>threads<th>lock\
             <th>measured<th>simulated\n";
    let shown = |value: Option<f64>| value.map_or_else(|| "-".into(), rate);
    for row in &comparison.rows {
        text += &format!(
            "<tr><td>{}<td>{}<td>{}<td class=n>{}<td class=n>{}\n",
            row.workload,
            row.threads,
            row.lock,
            shown(row.measured),
            shown(row.simulated)
        );
    }
    text + "</table></details>\n"
}

/// As a part of a page, with a view box, so that it shrinks with the window.
fn scalable(svg: &str) -> String {
    let start = svg.find("<svg").unwrap_or(0);
    svg[start..].to_owned()
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped() {
        assert_eq!(escape("a < b & c"), "a &lt; b &amp; c");
        assert_eq!(scalable("<?xml?>\n<svg viewBox=\"0 0 1 1\"/>"), "<svg viewBox=\"0 0 1 1\"/>");
    }
}
