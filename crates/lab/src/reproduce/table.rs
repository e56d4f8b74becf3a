//! What is printed.

use super::claims::Claim;
use super::document::{Answer, Document};
use super::rule::{self, number};
use latchwork_console::fold::fold_lines;
use latchwork_console::table;

/// The claims and their rules, as `--list` and every run print them first.
pub fn list(claims: &[Claim]) -> String {
    let mut text = String::from(
        "The claims, what each is tested on (`here` is this machine, all others are simulated), and its rule. All lines of \
         a rule have to be met, in every run.\n",
    );
    for claim in claims {
        text +=
            &format!("\n{}: {}, {}\n    {}\n", claim.id, claim.paper.name(), claim.place, claim.sentence());
        match claim.on().join(", ") {
            none if none.is_empty() => (),
            machines => text += &format!("    on: {machines}\n"),
        }
        for line in rule::lines(&claim.checks) {
            text += &format!("    rule: {line}\n");
        }
    }
    text += "\nWhat the papers' words mean here:\n";
    for (words, meaning) in rule::GLOSSARY {
        text += &format!("    {words}: {meaning}\n");
    }
    // Without a terminal a rule is one line, for grep.
    match table::columns(u16::MAX) {
        u16::MAX => text,
        width => fold_lines(&text, usize::from(width)),
    }
}

/// The answers.
pub fn text(document: &Document) -> String {
    let mut table = table::new([
        "claim",
        "on",
        "verdict",
        "the paper",
        "ours",
        "where our number is (the tightest part)",
        "space",
        "",
    ]);
    table::fit(&mut table, 2000);
    for answer in &document.answers {
        let (rule, ours) = tightest(answer);
        table.add_row([
            answer.claim.id.to_owned(),
            answer.claim.on().join(", "),
            answer.verdict.text().to_owned(),
            answer.claim.number.to_owned(),
            ours,
            rule,
            space(answer),
            answer.why(),
        ]);
    }
    let interrupted =
        if document.interrupted.is_some() { "Interrupted; what was found until then:\n\n" } else { "" };
    let here = document.here().map_or(String::new(), |sentence| format!("{sentence}\n\n"));
    let failures: String =
        document.failures.iter().map(|failure| format!("FAILED in the space: {failure}\n")).collect();
    format!("{interrupted}{}\n\n{here}{}\n{failures}", table.trim_fmt(), document.summary())
}

/// In how much of the space a claim holds, and what decides.
pub fn space(answer: &Answer) -> String {
    let Some(space) = &answer.space else { return String::new() };
    let share = format!("{} of {}", space.holds(), space.points.len());
    match space.decides() {
        none if none.is_empty() => share,
        some => format!("{share}, {}", some.join(", ")),
    }
}

/// The part of the rule that is missed by most or met by least, and our value.
pub fn tightest(answer: &Answer) -> (String, String) {
    let Some(check) = answer.judged.tightest() else {
        return (String::new(), String::new());
    };
    let parts = answer.judged.checks.len();
    let of = if parts > 1 { format!(" (1 of {parts})") } else { String::new() };
    (format!("{}{of}", check.rule), check.ours.map_or_else(|| "-".into(), number))
}
